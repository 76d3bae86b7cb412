//! A hook server, and all of them in their order.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use wharf_facts::hook::FailurePolicy;

use crate::HookPoint;

/// A hook server, as its file describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The name of its file, which logs, metrics and errors use.
    pub name: String,
    /// The socket that it listens on.
    pub endpoint: PathBuf,
    /// Its place: the lowest is asked first, equal ones in the order of their names.
    pub order: i64,
    /// The time limit of an answer; without one, its share of the budget of a call.
    pub timeout: Option<Duration>,
    /// A user that its process may run as, in addition to root and the proxy's.
    pub uid: Option<u32>,
    /// The kind of its answers.
    pub answers: Answers,
    /// Whether its questions contain the image, arguments, labels and mounts of containers.
    pub details: bool,
    /// Whether its answers are only compared, never applied.
    pub dry_run: bool,
    /// Whether calls are refused once its file is gone.
    pub required: bool,
    /// Its hooks, with the failure policy of each.
    pub hooks: BTreeMap<HookPoint, FailurePolicy>,
}

/// The kind of answers of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answers {
    /// As koord-runtime-proxy reads them: an answer with resources clears the cpusets that it
    /// leaves out, and one with an environment replaces all of it.
    #[default]
    Koordinator,
    /// Only fields that an answer names change.
    Partial,
}

impl Answers {
    /// The name in a server's file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Koordinator => "koordinator",
            Self::Partial => "partial",
        }
    }

    /// The kind with this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Koordinator, Self::Partial].into_iter().find(|it| it.name() == name)
    }
}

impl Server {
    /// A server with the defaults of a file and without hooks.
    pub fn new(name: impl Into<String>, endpoint: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            endpoint: endpoint.into(),
            order: 0,
            timeout: None,
            uid: None,
            answers: Answers::default(),
            details: false,
            dry_run: false,
            required: false,
            hooks: BTreeMap::new(),
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} (order {}", self.name, self.endpoint.display(), self.order)?;
        if let Some(timeout) = self.timeout {
            write!(f, ", timeout {timeout:?}")?;
        }
        if let Some(uid) = self.uid {
            write!(f, ", uid {uid}")?;
        }
        if self.answers == Answers::Partial {
            f.write_str(", partial answers")?;
        }
        if self.details {
            f.write_str(", told details")?;
        }
        if self.dry_run {
            f.write_str(", dry run")?;
        }
        if self.required {
            f.write_str(", required")?;
        }
        f.write_str("):")?;
        if self.hooks.is_empty() {
            f.write_str(" never asked")?;
        }
        for (number, (point, policy)) in self.hooks.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(f, "{comma} {}={}", point.name(), policy.name())?;
        }
        Ok(())
    }
}

/// A required hook server whose file is missing or refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Barred {
    /// The name of its file.
    pub(crate) name: String,
    /// The hooks whose calls are refused.
    pub(crate) points: BTreeSet<HookPoint>,
    /// The reason, and the remedy.
    pub(crate) why: String,
}

/// All hook servers, in the order in which they are asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Servers {
    in_force: Vec<Arc<Server>>,
    barred: Vec<Barred>,
}

impl Servers {
    /// Puts servers into their order.
    pub fn new(mut servers: Vec<Arc<Server>>) -> Self {
        servers.sort_by(|a, b| (a.order, &a.name).cmp(&(b.order, &b.name)));
        Self { in_force: servers, barred: Vec::new() }
    }

    /// The same, with missing required servers.
    pub(super) fn barring(self, barred: Vec<Barred>) -> Servers {
        Servers { barred, ..self }
    }

    /// The servers, first to last.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Server>> {
        self.in_force.iter()
    }

    /// The missing server for which the calls of a hook are refused, if there is one.
    pub(crate) fn barred(&self, point: HookPoint) -> Option<&Barred> {
        self.barred.iter().find(|barred| barred.points.contains(&point))
    }

    /// Servers with the endpoint of an earlier server, and that earlier server.
    pub(super) fn doubles(&self) -> impl Iterator<Item = (&Server, &Server)> {
        self.in_force.iter().enumerate().filter_map(|(at, server)| {
            let first =
                self.in_force[..at].iter().find(|other| other.endpoint == server.endpoint)?;
            Some((&**server, &**first))
        })
    }
}
