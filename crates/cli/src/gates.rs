//! Feature gates: `--feature-gates=Topology=true,AllAlpha=false`.
//!
//! A gate is a constant with a feature's name, stage and default; a [`FeatureGates`] has the gates
//! of one command and their values. Upstream's programs fail on a gate that was removed, which
//! breaks charts at every upgrade. Here a removed gate stays listed as such: setting it warns and
//! has no effect. An unknown gate is still an error.

use std::{collections::BTreeMap, fmt};

use thiserror::Error;

use crate::{
    flags::{Dialect, FlagValue},
    go,
};

/// Maturity of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// May change or be removed; off by default.
    Alpha,
    /// Stable enough to be on by default.
    Beta,
    /// Stable; the gate will be removed.
    Ga,
    /// The feature will be removed.
    Deprecated,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Ga => "GA",
            Self::Deprecated => "DEPRECATED",
        })
    }
}

/// A feature that can be switched on and off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// The name in `--feature-gates`.
    pub name: &'static str,
    /// Whether the feature is on by default.
    pub default: bool,
    /// Maturity of the feature.
    pub stage: Stage,
    /// Whether only the default may be set.
    pub locked: bool,
    /// Whether the gate may be set but changes nothing.
    pub fixed: bool,
}

impl Gate {
    /// A gate at `stage` that may be set.
    pub const fn new(name: &'static str, stage: Stage, default: bool) -> Self {
        Self { name, default, stage, locked: false, fixed: false }
    }

    /// The same gate, locked to its default.
    #[must_use]
    pub const fn locked(mut self) -> Self {
        self.locked = true;
        self
    }

    /// The same gate, accepted with either value and without effect. Setting it gives no warning
    /// here: the command that declares it must warn.
    #[must_use]
    pub const fn fixed(mut self) -> Self {
        self.fixed = true;
        self
    }
}

/// Why a list of gates was rejected.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[allow(missing_docs, reason = "the messages say what the fields hold")]
pub enum GateError {
    #[error("missing bool value for {gate}")]
    MissingValue { gate: String },
    #[error("invalid value of {gate}={value}, expected true or false")]
    InvalidValue { gate: String, value: String },
    #[error("unrecognized feature gate: {gate}; known gates: {known}")]
    Unknown { gate: String, known: String },
    #[error("cannot set feature gate {gate} to {value}, feature is locked to {default}")]
    Locked { gate: &'static str, value: bool, default: bool },
}

/// The gates of one command, and their values.
#[derive(Clone, Debug, Default)]
pub struct FeatureGates {
    known: Vec<Gate>,
    removed: Vec<(&'static str, &'static str)>,
    foreign: Vec<(&'static str, &'static str)>,
    set: BTreeMap<&'static str, bool>,
    all_alpha: Option<bool>,
    all_beta: Option<bool>,
    warnings: Vec<String>,
}

impl FeatureGates {
    /// A set with `gates`, all at their defaults.
    pub fn new(gates: &[Gate]) -> Self {
        Self { known: gates.to_vec(), ..Self::default() }
    }

    /// Adds a removed gate: setting it warns with `fate`, the state of the feature.
    #[must_use]
    pub fn removed(mut self, name: &'static str, fate: &'static str) -> Self {
        self.removed.push((name, fate));
        self
    }

    /// Adds gates of upstream code that wharf does not have: setting one warns with `consequence`
    /// and has no effect.
    #[must_use]
    pub fn foreign(mut self, names: &[&'static str], consequence: &'static str) -> Self {
        self.foreign.extend(names.iter().map(|name| (*name, consequence)));
        self
    }

    /// Whether a feature is on: set by name, else by `AllAlpha` or `AllBeta`, else by default.
    pub fn enabled(&self, gate: &Gate) -> bool {
        let of_stage = match gate.stage {
            _ if gate.locked => None,
            Stage::Alpha => self.all_alpha,
            Stage::Beta => self.all_beta,
            Stage::Ga | Stage::Deprecated => None,
        };
        self.set.get(gate.name).copied().or(of_stage).unwrap_or(gate.default)
    }

    /// Whether the feature of this name is on; `None` if the set has no such gate.
    pub fn is_on(&self, name: &str) -> Option<bool> {
        self.known.iter().find(|gate| gate.name == name).map(|gate| self.enabled(gate))
    }

    /// Sets gates from a list such as `A=true,B=false`. On an error nothing changes.
    pub fn apply(&mut self, list: &str) -> Result<(), GateError> {
        let mut next = self.clone();
        for item in list.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (gate, value) = match item.split_once('=') {
                Some((gate, value)) => (gate.trim(), value.trim()),
                None => return Err(GateError::MissingValue { gate: item.to_owned() }),
            };
            let value = go::parse_bool(value).map_err(|_| GateError::InvalidValue {
                gate: gate.to_owned(),
                value: value.to_owned(),
            })?;
            next.apply_one(gate, value)?;
        }
        *self = next;
        Ok(())
    }

    /// The gates of this set.
    pub fn known(&self) -> &[Gate] {
        &self.known
    }

    /// Whether a gate may be set here, with or without effect.
    pub fn knows(&self, name: &str) -> bool {
        matches!(name, "AllAlpha" | "AllBeta")
            || self.known.iter().any(|gate| gate.name == name)
            || self.removed.iter().chain(&self.foreign).any(|(known, _)| *known == name)
    }

    /// Warnings for gates that were set but will be removed, or have no effect.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    pub(crate) fn help(&self) -> String {
        let mut text =
            String::from("Features to switch on or off, as Name=true,Name=false. Known:");
        let mut gates = self.known.clone();
        gates.sort_by_key(|gate| gate.name);
        for gate in gates {
            text.push_str(&format!("\n{}={} ({})", gate.name, gate.default, gate.stage));
        }
        text + "\nAllAlpha and AllBeta set all gates of a stage."
    }

    fn apply_one(&mut self, name: &str, value: bool) -> Result<(), GateError> {
        match name {
            "AllAlpha" => self.all_alpha = Some(value),
            "AllBeta" => self.all_beta = Some(value),
            _ => {
                if let Some(gate) = self.known.iter().find(|gate| gate.name == name).copied() {
                    return self.apply_known(gate, value);
                }
                if let Some((_, consequence)) = self.foreign.iter().find(|(it, _)| *it == name) {
                    let warning = format!("{name}={value} is not served: {consequence}");
                    if !self.warnings.contains(&warning) {
                        self.warnings.push(warning);
                    }
                    return Ok(());
                }
                let removed = self.removed.iter().find(|(removed, _)| *removed == name);
                let (name, fate) = removed.ok_or_else(|| self.unknown(name))?;
                self.warnings
                    .push(format!("feature gate {name} no longer exists and is ignored: {fate}"));
            }
        }
        Ok(())
    }

    fn apply_known(&mut self, gate: Gate, value: bool) -> Result<(), GateError> {
        let Gate { name, default, stage, locked, fixed } = gate;
        if locked && value != default {
            return Err(GateError::Locked { gate: name, value, default });
        }
        if matches!(stage, Stage::Ga | Stage::Deprecated) && !fixed {
            self.warnings.push(format!(
                "setting {stage} feature gate {name}={value}; it will be removed in a later release"
            ));
        }
        self.set.insert(name, value);
        Ok(())
    }

    fn unknown(&self, gate: &str) -> GateError {
        let mut names: Vec<&str> = self.known.iter().map(|gate| gate.name).collect();
        names.extend(["AllAlpha", "AllBeta"]);
        names.sort_unstable();
        GateError::Unknown { gate: gate.to_owned(), known: names.join(", ") }
    }
}

impl FlagValue for FeatureGates {
    const KIND: &'static str = "gate=bool,...";

    fn set(&mut self, text: &str, _: Dialect) -> Result<(), String> {
        self.apply(text).map_err(|error| error.to_string())
    }

    fn show(&self) -> String {
        let pairs: Vec<String> = self.set.iter().map(|(name, on)| format!("{name}={on}")).collect();
        pairs.join(",")
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FlagSet;

    const NEW: Gate = Gate::new("New", Stage::Alpha, false);
    const USUAL: Gate = Gate::new("Usual", Stage::Beta, true);
    const DONE: Gate = Gate::new("Done", Stage::Ga, true).locked();
    const OLD: Gate = Gate::new("Old", Stage::Deprecated, false);

    fn gates() -> FeatureGates {
        FeatureGates::new(&[NEW, USUAL, DONE, OLD]).removed("Gone", "it is always on")
    }

    #[test]
    fn names_win_over_stages_and_defaults() {
        for (list, expected) in [
            ("", [false, true, true, false]),
            ("New=true", [true, true, true, false]),
            (" New = T , Usual=0 ,", [true, false, true, false]),
            ("AllAlpha=true", [true, true, true, false]),
            ("New=false,AllAlpha=true,AllBeta=false", [false, false, true, false]),
            ("New=true,New=false", [false, true, true, false]),
            ("Old=true,Done=true", [false, true, true, true]),
        ] {
            let mut gates = gates();
            gates.apply(list).unwrap();
            assert_eq!(
                [NEW, USUAL, DONE, OLD].map(|gate| gates.enabled(&gate)),
                expected,
                "{list}"
            );
        }
    }

    #[test]
    fn refuses_bad_lists_whole() {
        for (list, expected) in [
            ("New", "missing bool value for New"),
            ("New=yes", "invalid value of New=yes, expected true or false"),
            (
                "New=true,Nw=true",
                "unrecognized feature gate: Nw; known gates: AllAlpha, AllBeta, Done, New, Old, Usual",
            ),
            ("Done=false", "cannot set feature gate Done to false, feature is locked to true"),
        ] {
            let mut gates = gates();
            assert_eq!(gates.apply(list).unwrap_err().to_string(), expected);
            assert!(!gates.enabled(&NEW), "{list} left a trace");
        }
    }

    #[test]
    fn fixed_gates_are_set_without_a_word() {
        let fixed = Gate::new("Fixed", Stage::Ga, true).fixed();
        let mut gates = FeatureGates::new(&[fixed]);
        gates.apply("Fixed=false").unwrap();
        assert_eq!((gates.is_on("Fixed"), gates.is_on("Other")), (Some(false), None));
        assert_eq!(gates.warnings(), [""; 0]);
    }

    #[test]
    fn foreign_gates_warn_once_and_change_nothing() {
        let mut gates = gates().foreign(&["Served"], "it is of a server");
        gates.apply("Served=true,Served=true").unwrap();
        assert_eq!(gates.warnings(), ["Served=true is not served: it is of a server"]);
        assert!(gates.knows("Served") && gates.is_on("Served").is_none());
        assert!(!gates.help().contains("Served"));
        assert!(gates.apply("Served=yes").is_err() && gates.apply("Servd=true").is_err());
    }

    #[test]
    fn removed_and_leaving_gates_warn() {
        let mut flags = FlagSet::new("test", "");
        let flag = flags.feature_gates(gates());
        let parsed = flags.parse(["-feature-gates=Gone=true", "-feature-gates=Old=true"]).unwrap();
        assert!(parsed.get(&flag).enabled(&OLD));
        assert_eq!(
            parsed.warnings(),
            [
                "--feature-gates: feature gate Gone no longer exists and is ignored: it is always on",
                "--feature-gates: setting DEPRECATED feature gate Old=true; \
                 it will be removed in a later release",
            ]
        );
    }
}
