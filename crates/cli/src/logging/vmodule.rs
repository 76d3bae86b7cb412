use std::str::FromStr;

use crate::{
    flags::{Dialect, FlagValue},
    go,
};

/// `--vmodule`: `pattern=N,...` raises the verbosity of source files whose name matches.
///
/// A pattern is compared with the file's name without `.rs` and with the last component of the
/// module's path, which differ for `mod.rs` and `lib.rs`. `*` matches any text, `?` any character.
/// The first matching pattern decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VModule(Vec<(String, u32)>);

impl FromStr for VModule {
    type Err = String;

    fn from_str(list: &str) -> Result<Self, String> {
        let items = list.split(',').map(str::trim).filter(|item| !item.is_empty());
        items.map(parse_item).collect::<Result<_, _>>().map(VModule)
    }
}

impl VModule {
    pub(super) fn level(&self, file: Option<&str>, module: Option<&str>) -> Option<u32> {
        let stem = file.map(|file| {
            let name = file.rsplit('/').next().unwrap_or(file);
            name.strip_suffix(".rs").unwrap_or(name)
        });
        let module = module.map(|path| path.rsplit("::").next().unwrap_or(path));
        let names = [stem, module];
        let mut levels = self.0.iter().filter(|(pattern, _)| {
            names.into_iter().flatten().any(|name| glob(pattern.as_bytes(), name.as_bytes()))
        });
        levels.next().map(|(_, level)| *level)
    }

    pub(super) fn max_level(&self) -> u32 {
        self.0.iter().map(|(_, level)| *level).max().unwrap_or(0)
    }
}

impl FlagValue for VModule {
    const KIND: &'static str = "pattern=N,...";

    fn set(&mut self, text: &str, _: Dialect) -> Result<(), String> {
        *self = text.parse()?;
        Ok(())
    }

    fn show(&self) -> String {
        let items: Vec<String> =
            self.0.iter().map(|(pattern, level)| format!("{pattern}={level}")).collect();
        items.join(",")
    }
}

fn parse_item(item: &str) -> Result<(String, u32), String> {
    let malformed = || format!("{} does not have the pattern=N format", go::quote(item));
    let (pattern, level) = item.split_once('=').ok_or_else(malformed)?;
    if pattern.is_empty() || level.is_empty() {
        return Err(malformed());
    }
    let level = level.parse().map_err(|_| {
        format!("parsing verbosity in {}: expected a number from 0 on", go::quote(item))
    })?;
    Ok((pattern.to_owned(), level))
}

/// Matches with one saved position of `*`: going back to an earlier star is never needed.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match &mut star {
                Some((star, from)) => {
                    *from += 1;
                    (p, t) = (*star + 1, *from);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        for (pattern, text, expected) in [
            ("registrar", "registrar", true),
            ("registrar", "registrars", false),
            ("reg*", "registrar", true),
            ("*trar", "registrar", true),
            ("r*g*r", "registrar", true),
            ("r?gistrar", "registrar", true),
            ("*", "", true),
            ("?", "", false),
            ("*a*b", "xaxxbxb", true),
            ("*a*b", "xbxxa", false),
        ] {
            assert_eq!(glob(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn first_match_decides() {
        let vmodule = VModule::from_str("host=2, reg*=6 ,*=1").unwrap();
        let level = |file, module| vmodule.level(Some(file), Some(module));
        assert_eq!(level("crates/registration/src/registrar.rs", "wharf::registrar"), Some(6));
        assert_eq!(level("crates/registration/src/host/mod.rs", "wharf::host"), Some(2));
        assert_eq!(level("src/other.rs", "wharf::other"), Some(1));
        assert_eq!(vmodule.max_level(), 6);
        assert_eq!(FlagValue::show(&vmodule), "host=2,reg*=6,*=1");
        assert_eq!(VModule::default().level(Some("a.rs"), None), None);
    }

    #[test]
    fn bad_lists_are_named() {
        for (list, expected) in [
            ("a", r#""a" does not have the pattern=N format"#),
            ("a=1,=2", r#""=2" does not have the pattern=N format"#),
            ("a=x", r#"parsing verbosity in "a=x": expected a number from 0 on"#),
        ] {
            assert_eq!(VModule::from_str(list).unwrap_err(), expected);
        }
    }
}
