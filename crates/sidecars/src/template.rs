//! Expands texts with `$name` and `${name}`, as Go's `os.Expand` does.

use std::collections::BTreeSet;

/// Replaces each name by its `value`.
///
/// # Errors
/// The names without a value.
pub(crate) fn expand(
    template: &str,
    value: impl Fn(&str) -> Option<String>,
) -> Result<String, BTreeSet<String>> {
    let mut expanded = String::new();
    let mut missing = BTreeSet::new();
    let mut rest = template;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let (name, width) = name(after);
        match name {
            // As in Go: a dollar sign without a name stays, and a malformed brace is dropped.
            "" if width == 0 => expanded.push('$'),
            "" => {}
            name => match value(name) {
                Some(value) => expanded.push_str(&value),
                None => drop(missing.insert(name.to_owned())),
            },
        }
        rest = &after[width..];
    }
    expanded.push_str(rest);
    if missing.is_empty() { Ok(expanded) } else { Err(missing) }
}

/// The name after a dollar sign, and the number of bytes that it takes.
fn name(text: &str) -> (&str, usize) {
    let is_special = |byte: u8| b"*#$@!?-".contains(&byte) || byte.is_ascii_digit();
    match text.as_bytes() {
        [b'{', special, b'}', ..] if is_special(*special) => (&text[1..2], 3),
        [b'{', ..] => match text.find('}') {
            Some(end) => (&text[1..end], end + 1),
            None => ("", 1),
        },
        [special, ..] if is_special(*special) => (&text[..1], 1),
        bytes => {
            let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
            let length = bytes.iter().take_while(|byte| is_inner(byte)).count();
            (&text[..length], length)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_as_go_finds_them() {
        let value = |name: &str| match name {
            "pv.name" => Some("pv".to_owned()),
            "a_1" => Some("x".to_owned()),
            "pvc.annotations['k']" => Some("note".to_owned()),
            "$" => Some("dollar".to_owned()),
            _ => None,
        };
        for (template, expanded) in [
            ("plain", "plain"),
            ("${pv.name}-s", "pv-s"),
            ("<$a_1>", "<x>"),
            ("${pvc.annotations['k']}", "note"),
            ("$$", "dollar"),
            ("${$}", "dollar"),
            ("a$", "a$"),
            ("a$.b", "a$.b"),
            ("${}x", "x"),
            ("${x", "x"),
            ("ä$é", "ä$é"),
        ] {
            assert_eq!(expand(template, value).unwrap(), expanded, "{template}");
        }
        let missing = expand("$pv.name ${nobody} $1", value).unwrap_err();
        assert_eq!(missing.into_iter().collect::<Vec<_>>(), ["1", "nobody", "pv"]);
    }
}
