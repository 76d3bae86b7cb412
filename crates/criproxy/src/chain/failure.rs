//! The failure of one server.

use std::fmt;

use tonic::{Code, Status};
use wharf_facts::text::plain;
use wharf_uds::code_name;

use super::{context::CallContext, ledger::Dispute};
use crate::{
    HookPoint,
    config::Server,
    edit::{Field, Value},
    explain::strike,
    partial::Inexpressible,
};

/// The longest message of a server in an error.
const LONGEST: usize = 1024;
/// The most fields of a conflict that an error names.
const NAMED: usize = 4;

#[derive(Debug)]
pub(super) enum Failure {
    /// The process behind its socket is not trusted.
    Untrusted(Status),
    /// It hung, and is not asked until it answers a probe.
    LeftOut(Status),
    /// It could not be reached, did not answer, or answered with an error.
    Call(Status),
    /// Its answer changes a field that cannot be changed.
    Inexpressible(Inexpressible),
    /// It changes fields that other servers have changed.
    Conflict(Vec<Dispute>),
}

impl Failure {
    /// The failure without values of the question: a server may quote them, and its text reaches
    /// logs, status, records and the kubelet.
    pub(super) fn without_secrets(self, context: &CallContext, fields: &[(Field, Value)]) -> Self {
        let Failure::Call(status) = self else { return self };
        let others = context.secrets();
        let own = fields.iter().filter_map(|(field, value)| match field {
            Field::Env(_) | Field::Annotation(_) => value.text(),
            _ => None,
        });
        let secrets = others.iter().map(String::as_str).chain(own);
        Failure::Call(Status::new(status.code(), strike(status.message(), secrets)))
    }

    /// The code for the kubelet. It never gets a server's own code, because kubelets take some
    /// codes of a runtime for success: NOT_FOUND of a stop means that the container is gone.
    fn code_for_caller(&self) -> Code {
        match self {
            Failure::Untrusted(_) | Failure::LeftOut(_) => Code::Unavailable,
            Failure::Call(status) if is_outage(status) => Code::Unavailable,
            Failure::Call(_) | Failure::Inexpressible(_) => Code::Unknown,
            Failure::Conflict(_) => Code::FailedPrecondition,
        }
    }

    pub(super) fn code(&self) -> Code {
        match self {
            Failure::Untrusted(status) | Failure::LeftOut(status) | Failure::Call(status) => {
                status.code()
            }
            Failure::Inexpressible(_) => Code::InvalidArgument,
            Failure::Conflict(_) => Code::FailedPrecondition,
        }
    }

    /// The name in metrics.
    pub(super) fn outcome(&self) -> &'static str {
        match self {
            Failure::Conflict(_) => "conflict",
            Failure::Inexpressible(_) => "inexpressible",
            Failure::Untrusted(_) => "untrusted",
            Failure::LeftOut(_) => "left-out",
            Failure::Call(status) if status.code() == Code::DeadlineExceeded => "timeout",
            Failure::Call(status) => code_name(status.code()),
        }
    }

    /// The failure for a record: in full, but without text from the question of another call.
    pub(super) fn text(&self) -> String {
        match self {
            Failure::LeftOut(_) => {
                "it hung before, and is left out until it answers again".to_owned()
            }
            Failure::Untrusted(status) | Failure::Call(status) => status.message().to_owned(),
            Failure::Inexpressible(_) | Failure::Conflict(_) => self.to_string(),
        }
    }

    /// The error for the kubelet under the policy Fail. Begins like that of koord-runtime-proxy.
    pub(super) fn status(&self, server: &Server, point: HookPoint) -> Status {
        let (name, endpoint, hook) = (&server.name, server.endpoint.display(), point.name());
        let code = match self {
            Failure::Call(status) if !is_outage(status) => {
                code_name(status.code()).to_owned() + ": "
            }
            _ => String::new(),
        };
        let text = format!("hook server err: {name} at {endpoint}, {hook}: {code}{self}");
        Status::new(self.code_for_caller(), text)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let disputes = match self {
            Failure::Untrusted(status) | Failure::LeftOut(status) | Failure::Call(status) => {
                return f.write_str(&plain(status.message(), LONGEST));
            }
            Failure::Inexpressible(error) => {
                return f.write_str(&plain(&error.to_string(), LONGEST));
            }
            Failure::Conflict(disputes) => disputes,
        };
        f.write_str("it changes what was changed before:")?;
        for (number, Dispute { field, owner }) in disputes.iter().take(NAMED).enumerate() {
            let comma = if number == 0 { "" } else { "," };
            let field = field.to_string();
            write!(f, "{comma} {} by {}", plain(&field, LONGEST / NAMED), owner.name)?;
        }
        match disputes.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Whether a server could not be asked, or did not answer in time.
fn is_outage(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded)
}
