use std::{ffi::OsString, fmt};

use super::{Dialect, FlagError, FlagSet, Parsed, help, suggest, value::Slot};
use crate::go::quote;

/// Parses a command line from left to right and sets the flags in it.
pub(super) fn parse(
    set: &FlagSet,
    args: impl Iterator<Item = OsString>,
) -> Result<Parsed, FlagError> {
    let mut words = Vec::new();
    for arg in args {
        words.push(arg.into_string().map_err(|arg| {
            set.usage_error(format_args!("argument is not valid UTF-8: {}", arg.display()), None)
        })?);
    }
    let values = set.specs.iter().map(|spec| spec.default.clone()).collect();
    let given = vec![false; set.specs.len()];
    let mut walk = Walk { set, values, given, rest: words.into_iter(), args: Vec::new() };
    match set.dialect {
        Dialect::Go => walk.go()?,
        Dialect::Pflag => walk.pflag()?,
    }
    let Walk { values, given, args, .. } = walk;
    Ok(Parsed { set: set.clone(), values, given, args })
}

impl FlagSet {
    pub(super) fn usage_error(&self, message: impl fmt::Display, flag: Option<usize>) -> FlagError {
        let mut usage = flag.map(|index| help::flag(self, index)).unwrap_or_default();
        usage.push_str(&format!("Run `{} --help` for all flags.", self.command));
        FlagError::Usage { message: message.to_string(), usage }
    }
}

struct Walk<'a> {
    set: &'a FlagSet,
    values: Vec<Box<dyn Slot>>,
    given: Vec<bool>,
    rest: std::vec::IntoIter<String>,
    args: Vec<String>,
}

impl Walk<'_> {
    fn go(&mut self) -> Result<(), FlagError> {
        while let Some(word) = self.rest.next() {
            let Some(body) = word.strip_prefix('-').filter(|body| !body.is_empty()) else {
                self.args.push(word);
                break;
            };
            if body == "-" {
                break;
            }
            let body = body.strip_prefix('-').unwrap_or(body);
            if body.starts_with(['-', '=']) {
                return Err(self.set.usage_error(format_args!("bad flag syntax: {word}"), None));
            }
            self.go_flag(body)?;
        }
        self.args.extend(self.rest.by_ref());
        Ok(())
    }

    fn go_flag(&mut self, body: &str) -> Result<(), FlagError> {
        let (name, value) = split_value(body);
        let Some(index) = self.set.find(name) else {
            return Err(self.unknown(name, format!("flag provided but not defined: -{name}")));
        };
        let bare = self.values[index].is_bare();
        let value = match value {
            Some(value) => value.to_owned(),
            None if bare => "true".to_owned(),
            None => self.rest.next().ok_or_else(|| {
                self.set.usage_error(format_args!("flag needs an argument: -{name}"), Some(index))
            })?,
        };
        self.set(index, &value, |cause| {
            if bare {
                format!("invalid boolean value {} for -{name}: {cause}", quote(&value))
            } else {
                format!("invalid value {} for flag -{name}: {cause}", quote(&value))
            }
        })
    }

    fn pflag(&mut self) -> Result<(), FlagError> {
        while let Some(word) = self.rest.next() {
            if word == "--" {
                break;
            } else if let Some(body) = word.strip_prefix("--") {
                if body.starts_with(['-', '=']) {
                    return Err(self
                        .set
                        .usage_error(format_args!("bad flag syntax: {word}"), None));
                }
                self.pflag_long(body)?;
            } else if let Some(group) = word.strip_prefix('-').filter(|group| !group.is_empty()) {
                self.pflag_group(group)?;
            } else {
                self.args.push(word);
            }
        }
        self.args.extend(self.rest.by_ref());
        Ok(())
    }

    fn pflag_long(&mut self, body: &str) -> Result<(), FlagError> {
        let (name, value) = split_value(body);
        let Some(index) = self.set.find(name) else {
            return Err(self.unknown(name, format!("unknown flag: --{name}")));
        };
        let value = match value {
            Some(value) => value.to_owned(),
            None if self.values[index].is_bare() => "true".to_owned(),
            None => self.rest.next().ok_or_else(|| {
                self.set.usage_error(format_args!("flag needs an argument: --{name}"), Some(index))
            })?,
        };
        self.pflag_set(index, &value)
    }

    /// Parses a word such as `-v5`, `-v=5`, `-v 5` or, with boolean shorthands, `-abv=5`.
    fn pflag_group(&mut self, group: &str) -> Result<(), FlagError> {
        let mut letters = group.char_indices();
        while let Some((start, letter)) = letters.next() {
            let name = &group[start..start + letter.len_utf8()];
            let Some(index) = self.set.find(name) else {
                // pflag prints the remaining letters, of which the first is the unknown one.
                let left = &group[start..];
                let message = format!("unknown shorthand flag: '{letter}' in -{left}");
                let meant = if letter == 'h' { "h" } else { group };
                return Err(self.unknown(meant, message));
            };
            let left = letters.as_str();
            let value = if let Some(value) = left.strip_prefix('=').filter(|v| !v.is_empty()) {
                value.to_owned()
            } else if self.values[index].is_bare() {
                self.pflag_set(index, "true")?;
                continue;
            } else if left.is_empty() {
                self.rest.next().ok_or_else(|| {
                    let left = &group[start..];
                    let message = format!("flag needs an argument: '{letter}' in -{left}");
                    self.set.usage_error(message, Some(index))
                })?
            } else {
                left.to_owned()
            };
            return self.pflag_set(index, &value);
        }
        Ok(())
    }

    fn pflag_set(&mut self, index: usize, value: &str) -> Result<(), FlagError> {
        let name = self.set.specs[index].name;
        self.set(index, value, |cause| {
            let short = if name.len() == 1 { format!("-{name}, ") } else { String::new() };
            format!("invalid argument {} for \"{short}--{name}\" flag: {cause}", quote(value))
        })
    }

    fn set(
        &mut self,
        index: usize,
        value: &str,
        wording: impl FnOnce(String) -> String,
    ) -> Result<(), FlagError> {
        let first = !std::mem::replace(&mut self.given[index], true);
        self.values[index]
            .set(value, first, self.set.dialect)
            .map_err(|cause| self.set.usage_error(wording(cause), Some(index)))
    }

    /// Undeclared `-h` and `-help` request help; every other undeclared name is an error.
    fn unknown(&self, name: &str, mut message: String) -> FlagError {
        if matches!(name, "h" | "help") {
            return FlagError::Help(self.set.help());
        }
        let names = self.set.specs.iter().map(|spec| spec.name);
        if let Some(nearest) = suggest::nearest(name, names) {
            message.push_str(&format!("\nDid you mean --{nearest}?"));
        }
        self.set.usage_error(message, None)
    }
}

pub(super) fn split_value(body: &str) -> (&str, Option<&str>) {
    match body.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (body, None),
    }
}
