use std::fmt;

use super::{Dialect, Flag, FlagError, FlagSet, FlagValue, value::Slot};
use crate::gates::FeatureGates;

/// The values of a [`FlagSet`] after its command line was parsed.
#[derive(Debug)]
pub struct Parsed {
    pub(super) set: FlagSet,
    pub(super) values: Vec<Box<dyn Slot>>,
    pub(super) given: Vec<bool>,
    pub(super) args: Vec<String>,
}

impl Parsed {
    /// The value of a flag, given or default.
    ///
    /// # Panics
    ///
    /// If the flag was declared on another set.
    pub fn get<T: FlagValue>(&self, flag: &Flag<T>) -> &T {
        self.values
            .get(flag.index)
            .and_then(|slot| slot.as_ref().as_any().downcast_ref())
            .expect("a flag is read from the set that declared it")
    }

    /// Whether the command line gave the flag, even with its default value.
    pub fn is_set(&self, flag: &dyn AnyFlag) -> bool {
        self.given[flag.index()]
    }

    /// Whether the flag's value differs from its default. Charts often pass empty values, which
    /// upstream treats like missing flags.
    pub fn is_changed(&self, flag: &dyn AnyFlag) -> bool {
        let index = flag.index();
        self.values[index].show() != self.set.specs[index].default.show()
    }

    /// The printed value of the flag of this name, for rules that are tables of names. A switch
    /// that is off prints as an empty text. `None` if the set has no such flag.
    pub fn shown(&self, name: &str) -> Option<String> {
        self.set.find(name).map(|index| self.values[index].show())
    }

    /// Whether the value of the flag of this name differs from its default.
    pub fn differs(&self, name: &str) -> bool {
        self.set
            .find(name)
            .is_some_and(|index| self.values[index].show() != self.set.specs[index].default.show())
    }

    /// Whether the feature of this name is on; `None` if the set has no such gate.
    pub fn feature(&self, name: &str) -> Option<bool> {
        let index = self.set.find("feature-gates")?;
        self.values[index].as_any().downcast_ref::<FeatureGates>()?.is_on(name)
    }

    /// The words of the command line that are not flags.
    pub fn args(&self) -> &[String] {
        &self.args
    }

    /// Warnings, to be logged once the log is set up: deprecated flags, values with a warning.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for (index, spec) in self.set.specs.iter().enumerate().filter(|(i, _)| self.given[*i]) {
            if let Some(advice) = &spec.deprecated {
                warnings.push(format!("Flag --{} has been deprecated, {advice}", spec.name));
            }
            let value_warnings = self.values[index].warnings();
            warnings
                .extend(value_warnings.into_iter().map(|text| format!("--{}: {text}", spec.name)));
        }
        warnings.extend(self.set.rules.iter().flat_map(|rule| rule.0(self)));
        warnings
    }

    /// An error about the command line as a whole, for rules that the caller checks.
    pub fn usage_error(&self, message: impl fmt::Display) -> FlagError {
        self.set.usage_error(message, None)
    }

    /// The command's help text.
    pub fn help(&self) -> String {
        self.set.help()
    }

    /// The dialect of the flags.
    pub fn dialect(&self) -> Dialect {
        self.set.dialect
    }
}

/// A [`Flag`] of any type, for lists of flags of different types.
pub trait AnyFlag: sealed::Indexed {
    /// The name as declared, without dashes.
    fn name(&self) -> &'static str;
}

impl<T> AnyFlag for Flag<T> {
    fn name(&self) -> &'static str {
        self.name
    }
}

mod sealed {
    pub trait Indexed {
        fn index(&self) -> usize;
    }

    impl<T> Indexed for super::Flag<T> {
        fn index(&self) -> usize {
            self.index
        }
    }
}
