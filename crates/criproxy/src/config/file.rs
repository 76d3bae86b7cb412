//! Parses a file's text as a server. No I/O.
//!
//! Read as Go's encoding/json would read it for koord-runtime-proxy: keys in any case, the last of
//! several counts, null is absent.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::PathBuf,
    time::Duration,
};

use serde::{
    Deserializer,
    de::{Deserialize, Error, IgnoredAny, MapAccess, Visitor},
};
use serde_json::Value;
use wharf_cli::go::parse_duration;
use wharf_facts::text::plain;
use wharf_uds::socket_of;

use super::{
    Answers, FailurePolicy, Server,
    problem::{FileError, FileWarning, HookNames},
};
use crate::HookPoint;

/// The longest name or message from a file in an error.
const LONGEST: usize = 256;

/// Reads a file's text.
pub(crate) fn parse(name: &str, text: &[u8]) -> Result<(Server, Vec<FileWarning>), FileError> {
    let keys: Keys = serde_json::from_slice(text)
        .map_err(|error| FileError::Invalid(plain(&error.to_string(), LONGEST)))?;
    let mut warnings = keys.warnings;
    let dry_run = keys.dry_run.unwrap_or_default();
    let policy = keys.policy.unwrap_or_default();
    // At a hook after the call the runtime has done its work: by default a pod must not become
    // unstoppable.
    let default =
        |point: &HookPoint| if point.is_before() { policy } else { FailurePolicy::Ignore };
    let hooks: BTreeMap<_, _> = keys
        .hooks
        .iter()
        .map(|point| (*point, keys.policies.get(point).copied().unwrap_or_else(|| default(point))))
        // A dry run fails no call.
        .map(|(point, policy)| (point, if dry_run { FailurePolicy::Ignore } else { policy }))
        .collect();
    let idle = keys.policies.keys().filter(|point| !keys.hooks.contains(point));
    warnings.extend(idle.map(|point| FileWarning::IdlePolicy(*point)));
    if hooks.is_empty() {
        warnings.push(FileWarning::NoHooks);
    }
    let server = Server {
        order: keys.order.unwrap_or_default(),
        timeout: keys.timeout,
        uid: keys.uid,
        answers: keys.answers.unwrap_or_default(),
        details: keys.details.unwrap_or_default(),
        dry_run,
        required: keys.required.unwrap_or_default() && !dry_run,
        hooks,
        ..Server::new(name, keys.endpoint.ok_or(FileError::NoEndpoint)?)
    };
    if dry_run && keys.required.unwrap_or_default() {
        warnings.push(FileWarning::RequiredDryRun);
    }
    if server.required && !server.hooks.values().any(|policy| *policy == FailurePolicy::Fail) {
        warnings.push(FileWarning::RequiredAndIgnored);
    }
    Ok((server, warnings))
}

/// The hooks with the policy Fail in a refused file, as far as its text can be understood.
pub(crate) fn refusing_points(text: &[u8]) -> BTreeSet<HookPoint> {
    let Ok(Value::Object(written)) = serde_json::from_slice(text) else { return BTreeSet::new() };
    let value = |key: &str| {
        let found = written.iter().rfind(|(name, _)| name.eq_ignore_ascii_case(key));
        found.map(|(_, value)| value)
    };
    // A policy in the wrong case is a typing error: assume Fail.
    let fails = |policy: &Value| policy.as_str().is_some_and(|it| it.eq_ignore_ascii_case(FAIL));
    if value(DRY_RUN).and_then(Value::as_bool).unwrap_or_default() {
        return BTreeSet::new();
    }
    let is_required = value(REQUIRED).and_then(Value::as_bool).unwrap_or_default();
    let fails_at = |point: &HookPoint| {
        let own = value(POLICIES).and_then(|it| it.get(point.name())).filter(|it| *it != "");
        let policy = own.or_else(|| value(POLICY));
        is_required || policy.is_some_and(fails)
    };
    let is_wanted = |point: &HookPoint| match value(HOOKS) {
        Some(Value::Array(names)) => names.iter().any(|name| name == point.name()),
        None | Some(Value::Null) => false,
        // Not a list of hooks: assume all hooks.
        Some(_) => true,
    };
    let before = HookPoint::ALL.into_iter().filter(|point| point.is_before());
    before.filter(|point| is_wanted(point) && fails_at(point)).collect()
}

/// The keys of a file.
#[derive(Default)]
struct Keys {
    endpoint: Option<PathBuf>,
    policy: Option<FailurePolicy>,
    hooks: BTreeSet<HookPoint>,
    order: Option<i64>,
    timeout: Option<Duration>,
    policies: BTreeMap<HookPoint, FailurePolicy>,
    required: Option<bool>,
    uid: Option<u32>,
    answers: Option<Answers>,
    details: Option<bool>,
    dry_run: Option<bool>,
    warnings: Vec<FileWarning>,
}

const ENDPOINT: &str = "remote-endpoint";
const POLICY: &str = "failure-policy";
const HOOKS: &str = "runtime-hooks";
const ORDER: &str = "order";
const TIMEOUT: &str = "timeout";
const POLICIES: &str = "failure-policies";
const REQUIRED: &str = "required";
const UID: &str = "uid";
const ANSWERS: &str = "answers";
const DETAILS: &str = "details";
const DRY_RUN: &str = "dry-run";
/// The names of known keys.
const KEYS: [&str; 11] =
    [ENDPOINT, POLICY, HOOKS, ORDER, TIMEOUT, POLICIES, REQUIRED, UID, ANSWERS, DETAILS, DRY_RUN];
const FAIL: &str = "Fail";

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(KeysVisitor)
    }
}

struct KeysVisitor;

impl<'de> Visitor<'de> for KeysVisitor {
    type Value = Keys;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object that describes a hook server")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
        let mut keys = Keys::default();
        let mut seen = BTreeSet::new();
        while let Some(written) = map.next_key::<String>()? {
            let Some(key) = KEYS.into_iter().find(|key| written.eq_ignore_ascii_case(key)) else {
                map.next_value::<IgnoredAny>()?;
                keys.warnings.push(FileWarning::UnknownKey(plain(&written, LONGEST)));
                continue;
            };
            if !seen.insert(key) {
                keys.warnings.push(FileWarning::RepeatedKey(key));
            }
            keys.read(key, &mut map).map_err(|error| A::Error::custom(Keyed(key, error)))?;
        }
        Ok(keys)
    }
}

/// An error with the key that it is about. serde_json finds the line number at the end of the text.
struct Keyed<E>(&'static str, E);

impl<E: fmt::Display> fmt::Display for Keyed<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0, self.1)
    }
}

impl Keys {
    fn read<'de, A: MapAccess<'de>>(
        &mut self,
        key: &'static str,
        map: &mut A,
    ) -> Result<(), A::Error> {
        match key {
            ENDPOINT => {
                self.endpoint = given(map)?.map(|text: String| endpoint(&text)).transpose()?;
            }
            POLICY => {
                self.policy = given(map)?.map(|text: String| policy(&text)).transpose()?.flatten();
            }
            HOOKS => self.name_hooks(given(map)?.unwrap_or_default()),
            ORDER => self.order = given(map)?,
            REQUIRED => self.required = given(map)?,
            UID => self.uid = given(map)?,
            ANSWERS => self.answers = given(map)?.map(|text: String| answers(&text)).transpose()?,
            DETAILS => self.details = given(map)?,
            DRY_RUN => self.dry_run = given(map)?,
            TIMEOUT => self.timeout = given(map)?.map(|text: String| timeout(&text)).transpose()?,
            _ => self.policies = policies(given(map)?.unwrap_or_default())?,
        }
        Ok(())
    }

    /// Unknown names do not make a file invalid: koordlet writes names of its own version.
    fn name_hooks(&mut self, names: Vec<String>) {
        self.hooks.clear();
        for name in names {
            match HookPoint::named(&name) {
                Some(point) => {
                    self.hooks.insert(point);
                }
                None => {
                    let name = plain(&name, LONGEST);
                    self.warnings.push(FileWarning::UnknownHook(name));
                }
            }
        }
    }
}

fn given<'de, A: MapAccess<'de>, T: Deserialize<'de>>(map: &mut A) -> Result<Option<T>, A::Error> {
    map.next_value()
}

fn endpoint<E: Error>(text: &str) -> Result<PathBuf, E> {
    socket_of(text).map_err(|error| E::custom(plain(&error.to_string(), LONGEST)))
}

/// koordinator writes an empty text for an absent policy.
fn policy<E: Error>(text: &str) -> Result<Option<FailurePolicy>, E> {
    match FailurePolicy::named(text) {
        None if !text.is_empty() => Err(E::custom(format_args!(
            "expected \"Fail\" or \"Ignore\", got {:?}",
            plain(text, LONGEST)
        ))),
        named => Ok(named),
    }
}

fn answers<E: Error>(text: &str) -> Result<Answers, E> {
    Answers::named(text).ok_or_else(|| {
        let text = plain(text, LONGEST);
        E::custom(format_args!("expected \"partial\" or \"koordinator\", got {text:?}"))
    })
}

/// A misspelt hook would silently lose its policy: unlike in `runtime-hooks`, unknown names are
/// errors.
fn policies<E: Error>(
    written: BTreeMap<String, String>,
) -> Result<BTreeMap<HookPoint, FailurePolicy>, E> {
    let mut policies = BTreeMap::new();
    for (name, text) in written {
        let Some(point) = HookPoint::named(&name) else {
            let name = plain(&name, LONGEST);
            return Err(E::custom(format_args!("{name:?} is not a hook; expected {HookNames}")));
        };
        if let Some(policy) =
            policy(&text).map_err(|error: E| E::custom(Keyed(point.name(), error)))?
        {
            policies.insert(point, policy);
        }
    }
    Ok(policies)
}

fn timeout<E: Error>(text: &str) -> Result<Duration, E> {
    let nanos = parse_duration(text).map_err(E::custom)?;
    u64::try_from(nanos).ok().filter(|nanos| *nanos > 0).map(Duration::from_nanos).ok_or_else(
        || E::custom(format_args!("expected a duration above zero, such as 500ms, got {text:?}")),
    )
}

#[cfg(test)]
mod tests;
