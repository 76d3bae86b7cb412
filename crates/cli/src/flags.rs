//! Command lines as Go programs read them.
//!
//! Sidecars parse with one of two packages, and charts depend on the rules of both: `flag` accepts
//! `-x` and `--x` alike and stops at the first word that is not a flag; `pflag` has shorthands and
//! allows words between flags. A [`FlagSet`] follows one [`Dialect`] or the other. Declaring a flag
//! returns a typed [`Flag`], the key to its value in [`Parsed`]: no name is written twice, no value
//! is converted twice.
//!
//! In addition to both packages, an unknown flag names its nearest neighbour, and an error shows
//! the help of the flag concerned only.

mod combined;
mod error;
mod help;
mod parsed;
mod size;
mod suggest;
#[cfg(test)]
mod tests;
mod value;
mod walk;

use std::{
    collections::BTreeMap, ffi::OsString, fmt, marker::PhantomData, sync::Arc, time::Duration,
};

pub use combined::{CombinedFlags, CombinedLine};
pub use error::FlagError;
pub use parsed::{AnyFlag, Parsed};
pub use size::ByteSize;
pub use value::FlagValue;

use crate::gates::FeatureGates;
use value::Slot;

/// Which Go package's syntax and error texts a [`FlagSet`] follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Go's `flag`: `-x` is `--x`; parsing stops at `--` or the first word that is not a flag.
    #[default]
    Go,
    /// `pflag`: `--x` and one-letter shorthands `-x`; words are allowed between flags.
    Pflag,
}

/// The key to one flag's value in [`Parsed`]. Valid only for the set that declared it.
#[derive(Debug)]
pub struct Flag<T> {
    index: usize,
    name: &'static str,
    value: PhantomData<fn() -> T>,
}

impl<T> Clone for Flag<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Flag<T> {}

impl<T> Flag<T> {
    /// The name as declared, without dashes.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

/// The flags of one command, declared before its command line is parsed.
#[derive(Clone, Debug)]
pub struct FlagSet {
    command: String,
    about: String,
    dialect: Dialect,
    specs: Vec<Spec>,
    rules: Vec<Rule>,
}

/// Returns warnings about a parsed command line.
#[derive(Clone)]
struct Rule(Arc<Warn>);

type Warn = dyn Fn(&Parsed) -> Vec<String> + Send + Sync;

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rule")
    }
}

#[derive(Clone, Debug)]
struct Spec {
    name: &'static str,
    help: String,
    deprecated: Option<String>,
    default: Box<dyn Slot>,
}

impl Spec {
    /// Whether the help of two flags is the same.
    fn is_like(&self, other: &Self) -> bool {
        (&self.help, &self.deprecated, self.default.show())
            == (&other.help, &other.deprecated, other.default.show())
    }
}

impl FlagSet {
    /// An empty set for `command`; `about` is a description for its help.
    pub fn new(command: impl Into<String>, about: impl Into<String>) -> Self {
        let (command, about) = (command.into(), about.into());
        Self { command, about, dialect: Dialect::Go, specs: Vec::new(), rules: Vec::new() }
    }

    /// Sets the dialect, [`Dialect::Go`] by default.
    #[must_use]
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// Declares a text flag.
    pub fn string(
        &mut self,
        name: &'static str,
        default: impl Into<String>,
        help: impl Into<String>,
    ) -> Flag<String> {
        self.value(name, default.into(), help)
    }

    /// Declares a boolean flag: `--x` or `--x=false`, never `--x false`.
    pub fn bool(
        &mut self,
        name: &'static str,
        default: bool,
        help: impl Into<String>,
    ) -> Flag<bool> {
        self.value(name, default, help)
    }

    /// Declares a signed integer flag.
    pub fn int(&mut self, name: &'static str, default: i64, help: impl Into<String>) -> Flag<i64> {
        self.value(name, default, help)
    }

    /// Declares an unsigned integer flag.
    pub fn uint(&mut self, name: &'static str, default: u64, help: impl Into<String>) -> Flag<u64> {
        self.value(name, default, help)
    }

    /// Declares a floating-point flag.
    pub fn float(
        &mut self,
        name: &'static str,
        default: f64,
        help: impl Into<String>,
    ) -> Flag<f64> {
        self.value(name, default, help)
    }

    /// Declares a duration flag. Negative durations are rejected.
    pub fn duration(
        &mut self,
        name: &'static str,
        default: Duration,
        help: impl Into<String>,
    ) -> Flag<Duration> {
        self.value(name, default, help)
    }

    /// Declares a map flag, `k=v,k=v` or `k:v,k:v`; repeating the flag adds entries.
    pub fn string_map(
        &mut self,
        name: &'static str,
        default: BTreeMap<String, String>,
        help: impl Into<String>,
    ) -> Flag<BTreeMap<String, String>> {
        self.value(name, default, help)
    }

    /// Declares a list flag, `a,b`; repeating the flag adds items.
    pub fn string_list(
        &mut self,
        name: &'static str,
        default: Vec<String>,
        help: impl Into<String>,
    ) -> Flag<Vec<String>> {
        self.value(name, default, help)
    }

    /// Declares `--feature-gates` for `gates`; its help lists them.
    pub fn feature_gates(&mut self, gates: FeatureGates) -> Flag<FeatureGates> {
        let help = gates.help();
        self.value("feature-gates", gates, help)
    }

    /// Declares a flag of any type that implements [`FlagValue`].
    ///
    /// # Panics
    ///
    /// If the set already has a flag of that name.
    pub fn value<T: FlagValue>(
        &mut self,
        name: &'static str,
        default: T,
        help: impl Into<String>,
    ) -> Flag<T> {
        assert!(self.find(name).is_none(), "{}: flag redefined: {name}", self.command);
        self.specs.push(Spec {
            name,
            help: help.into(),
            deprecated: None,
            default: Box::new(default),
        });
        Flag { index: self.specs.len() - 1, name, value: PhantomData }
    }

    /// Marks a flag as deprecated: it is still accepted, and its use adds to [`Parsed::warnings`].
    ///
    /// # Panics
    ///
    /// If there is no flag of that name.
    pub fn deprecate(&mut self, name: &str, advice: impl Into<String>) {
        let index = self.find(name).expect("only a declared flag can be deprecated");
        self.specs[index].deprecated = Some(advice.into());
    }

    /// Adds a rule for the values together. Its texts are added to [`Parsed::warnings`].
    pub fn warn_when(&mut self, rule: impl Fn(&Parsed) -> Vec<String> + Send + Sync + 'static) {
        self.rules.push(Rule(Arc::new(rule)));
    }

    /// Parses a command line, given without the command's own name.
    pub fn parse<I>(&self, args: I) -> Result<Parsed, FlagError>
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        walk::parse(self, args.into_iter().map(Into::into))
    }

    /// The names of all flags, without dashes.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.specs.iter().map(|spec| spec.name)
    }

    /// The help text: every flag, sorted, with its default, for a terminal of 100 columns.
    pub fn help(&self) -> String {
        help::render(self)
    }

    fn spec(&self, name: &str) -> Option<&Spec> {
        self.specs.iter().find(|spec| spec.name == name)
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.specs.iter().position(|spec| spec.name == name)
    }
}
