use std::{any::Any, collections::BTreeMap, fmt::Debug, time::Duration};

use super::Dialect;
use crate::go::{self, DurationError, NumberError};

/// A type of flag values.
pub trait FlagValue: Clone + Debug + Send + Sync + 'static {
    /// The type's name in help: `string`, `duration`, ...
    const KIND: &'static str;

    /// Whether the flag may have no value, which then means `true`.
    const BARE: bool = false;

    /// Parses the text of the flag; called once per use of the flag. The error says what was
    /// expected, without the flag's name.
    fn set(&mut self, text: &str, dialect: Dialect) -> Result<(), String>;

    /// Called before the first [`FlagValue::set`]: collections drop their default here.
    fn reset(&mut self) {}

    /// The value in the flag's syntax; empty if there is nothing to show.
    fn show(&self) -> String;

    /// Warnings about an accepted value.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A flag's value of any type.
pub(super) trait Slot: Debug + Send + Sync {
    fn kind(&self) -> &'static str;
    fn is_bare(&self) -> bool;
    fn set(&mut self, text: &str, first: bool, dialect: Dialect) -> Result<(), String>;
    fn show(&self) -> String;
    fn warnings(&self) -> Vec<String>;
    fn as_any(&self) -> &dyn Any;
    fn boxed(&self) -> Box<dyn Slot>;
}

impl<T: FlagValue> Slot for T {
    fn kind(&self) -> &'static str {
        T::KIND
    }

    fn is_bare(&self) -> bool {
        T::BARE
    }

    fn set(&mut self, text: &str, first: bool, dialect: Dialect) -> Result<(), String> {
        if first {
            self.reset();
        }
        FlagValue::set(self, text, dialect)
    }

    fn show(&self) -> String {
        FlagValue::show(self)
    }

    fn warnings(&self) -> Vec<String> {
        FlagValue::warnings(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn boxed(&self) -> Box<dyn Slot> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn Slot> {
    fn clone(&self) -> Self {
        self.as_ref().boxed()
    }
}

impl FlagValue for String {
    const KIND: &'static str = "string";

    fn set(&mut self, text: &str, _: Dialect) -> Result<(), String> {
        text.clone_into(self);
        Ok(())
    }

    fn show(&self) -> String {
        self.clone()
    }
}

impl FlagValue for bool {
    const KIND: &'static str = "";
    const BARE: Self = true;

    fn set(&mut self, text: &str, dialect: Dialect) -> Result<(), String> {
        *self = go::parse_bool(text).map_err(|error| number(error, "ParseBool", text, dialect))?;
        Ok(())
    }

    fn show(&self) -> String {
        if *self { "true".to_owned() } else { String::new() }
    }
}

impl FlagValue for i64 {
    const KIND: &'static str = "int";

    fn set(&mut self, text: &str, dialect: Dialect) -> Result<(), String> {
        *self = go::parse_int(text).map_err(|error| number(error, "ParseInt", text, dialect))?;
        Ok(())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl FlagValue for u64 {
    const KIND: &'static str = "uint";

    fn set(&mut self, text: &str, dialect: Dialect) -> Result<(), String> {
        *self = go::parse_uint(text).map_err(|error| number(error, "ParseUint", text, dialect))?;
        Ok(())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl FlagValue for f64 {
    const KIND: &'static str = "float";

    fn set(&mut self, text: &str, dialect: Dialect) -> Result<(), String> {
        *self =
            go::parse_float(text).map_err(|error| number(error, "ParseFloat", text, dialect))?;
        Ok(())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl FlagValue for Duration {
    const KIND: &'static str = "duration";

    fn set(&mut self, text: &str, dialect: Dialect) -> Result<(), String> {
        let nanos = go::parse_duration(text).map_err(|error| duration(&error, dialect))?;
        let nanos = u64::try_from(nanos).map_err(|_| "a duration must not be negative")?;
        *self = Self::from_nanos(nanos);
        Ok(())
    }

    fn show(&self) -> String {
        go::format_duration(i64::try_from(self.as_nanos()).unwrap_or(i64::MAX))
    }
}

impl FlagValue for Vec<String> {
    const KIND: &'static str = "strings";

    fn set(&mut self, text: &str, _: Dialect) -> Result<(), String> {
        self.extend(text.split(',').filter(|item| !item.is_empty()).map(str::to_owned));
        Ok(())
    }

    fn reset(&mut self) {
        self.clear();
    }

    fn show(&self) -> String {
        self.join(",")
    }
}

impl FlagValue for BTreeMap<String, String> {
    const KIND: &'static str = "key=value,...";

    fn set(&mut self, text: &str, _: Dialect) -> Result<(), String> {
        for pair in text.split(',').filter(|pair| !pair.is_empty()) {
            // Kubernetes label keys contain neither separator, so the first one found separates.
            let (key, value) = pair.split_once([':', '=']).ok_or_else(|| {
                format!("malformed pair {}, expect key=value or key:value", go::quote(pair))
            })?;
            self.insert(key.trim().to_owned(), value.trim().to_owned());
        }
        Ok(())
    }

    fn reset(&mut self) {
        self.clear();
    }

    fn show(&self) -> String {
        let pairs: Vec<String> = self.iter().map(|(key, value)| format!("{key}={value}")).collect();
        pairs.join(",")
    }
}

/// The error for a bad number: `flag` hides the message of `strconv`, `pflag` includes it.
pub(crate) fn number(error: NumberError, parser: &str, text: &str, dialect: Dialect) -> String {
    match (dialect, error) {
        (Dialect::Go, NumberError::Syntax) => "parse error".to_owned(),
        (Dialect::Go, NumberError::Range) => error.to_string(),
        (Dialect::Pflag, _) => format!("strconv.{parser}: parsing {}: {error}", go::quote(text)),
    }
}

fn duration(error: &DurationError, dialect: Dialect) -> String {
    match dialect {
        Dialect::Go => "parse error".to_owned(),
        Dialect::Pflag => error.to_string(),
    }
}
