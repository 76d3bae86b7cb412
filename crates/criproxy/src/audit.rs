//! The audit log: one event for each hook server that changed a call, and for each that wanted to
//! change a field that another server had changed.
//!
//! The events have a target of their own, `wharf::audit`, so that they can be kept apart from other
//! logs. Their size is bounded, whatever a server answers, and they leave out values of environment
//! variables and annotations, which may be secrets.

use std::fmt;

use wharf_facts::text::{cut, plain};

use crate::{
    HookPoint,
    chain::{CallContext, Compared, Dispute},
    edit::{Edit, Field, Value},
};

/// The most changes that one event lists.
const LISTED: usize = 64;
const LONGEST_FIELD: usize = 128;
const LONGEST_VALUE: usize = 64;

/// `server` changed these fields.
pub(crate) fn changed(server: &str, point: HookPoint, context: &CallContext, edits: &[Edit]) {
    tracing::info!(
        target: "wharf::audit",
        server,
        hook = point.name(),
        pod = context.pod,
        container = context.container,
        id = context.id,
        changes = %Listed(edits, change),
        "changed by a hook server"
    );
}

/// Logs that changes of a pod are carried into one of its containers. The servers are unknown if
/// they made the changes before the proxy started.
pub(crate) fn carried(servers: Option<&str>, context: &CallContext, edits: &[Edit]) {
    tracing::info!(
        target: "wharf::audit",
        server = servers.unwrap_or("unknown, from before the start"),
        hook = HookPoint::PreRunPodSandbox.name(),
        pod = context.pod,
        container = context.container,
        changes = %Listed(edits, change),
        "carried from the pod into its container"
    );
}

/// `server` would have changed these fields, but it is in a dry run.
pub(crate) fn rehearsed(
    server: &str,
    point: HookPoint,
    context: &CallContext,
    edits: &[(&Edit, Compared)],
) {
    tracing::info!(
        target: "wharf::audit",
        server,
        hook = point.name(),
        pod = context.pod,
        container = context.container,
        id = context.id,
        changes = %Listed(edits, compared),
        "would be changed by a hook server, dry run"
    );
}

/// `server` wanted to change fields that other servers had changed before.
pub(crate) fn contested(
    server: &str,
    point: HookPoint,
    context: &CallContext,
    resolution: &str,
    disputes: &[Dispute],
) {
    tracing::info!(
        target: "wharf::audit",
        server,
        hook = point.name(),
        pod = context.pod,
        container = context.container,
        id = context.id,
        resolution,
        fields = %Listed(disputes, dispute),
        "hook servers are in conflict"
    );
}

/// As many items as anyone reads.
struct Listed<'a, T, F>(&'a [T], F);

impl<T, F> fmt::Display for Listed<'_, T, F>
where
    F: Fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Listed(items, write_item) = self;
        for (number, item) in items.iter().take(LISTED).enumerate() {
            f.write_str(if number == 0 { "" } else { ", " })?;
            write_item(f, item)?;
        }
        match items.len().saturating_sub(LISTED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

fn change(f: &mut fmt::Formatter<'_>, edit: &Edit) -> fmt::Result {
    write!(f, "{}: ", field(&edit.field))?;
    value(f, &edit.field, &edit.from)?;
    f.write_str(" -> ")?;
    value(f, &edit.field, &edit.to)
}

fn compared(f: &mut fmt::Formatter<'_>, (edit, compared): &(&Edit, Compared)) -> fmt::Result {
    change(f, edit)?;
    write!(f, " ({})", compared.name())
}

fn dispute(f: &mut fmt::Formatter<'_>, dispute: &Dispute) -> fmt::Result {
    write!(f, "{} of {}", field(&dispute.field), dispute.owner.name)
}

/// Keys come from other programs: escape line breaks and cut long keys.
fn field(field: &Field) -> String {
    plain(&field.to_string(), LONGEST_FIELD)
}

fn value(f: &mut fmt::Formatter<'_>, field: &Field, value: &Value) -> fmt::Result {
    match (field, value) {
        (_, Value::Absent) => f.write_str("absent"),
        (_, Value::Number(number)) => write!(f, "{number}"),
        (Field::Env(_) | Field::Annotation(_), Value::Text(text)) => {
            write!(f, "({} bytes)", text.len())
        }
        (_, Value::Text(text)) => write!(f, "{:?}", cut(text, LONGEST_VALUE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edit::Amount;

    fn listed(edits: &[Edit]) -> String {
        Listed(edits, change).to_string()
    }

    fn edit(field: Field, from: Value, to: &str) -> Edit {
        Edit { field, from, to: Value::Text(to.to_owned()) }
    }

    #[test]
    fn a_secret_is_told_by_its_length_only() {
        let edits = [edit(Field::Env("TOKEN".into()), Value::Text("old one".into()), "s3cret")];
        assert_eq!(listed(&edits), "envs[TOKEN]: (7 bytes) -> (6 bytes)");
        let edits = [edit(Field::Annotation("key".into()), Value::Absent, "s3cret")];
        assert_eq!(listed(&edits), "annotations[key]: absent -> (6 bytes)");
        let edits = [edit(Field::Label("tier".into()), Value::Absent, "web")];
        assert_eq!(listed(&edits), "labels[tier]: absent -> \"web\"");
    }

    #[test]
    fn values_can_be_read_beside_a_request() {
        let edits = [
            edit(Field::CgroupParent, Value::Absent, "/kubepods"),
            Edit {
                field: Field::Amount(Amount::CpuShares),
                from: Value::Number(2),
                to: Value::Number(1024),
            },
        ];
        assert_eq!(listed(&edits), "cgroup_parent: absent -> \"/kubepods\", cpu_shares: 2 -> 1024");
    }

    #[test]
    fn nothing_is_as_long_as_a_stranger_likes() {
        let long = "a\n".repeat(1 << 10);
        let edits: Vec<_> = (0..1000)
            .map(|_| edit(Field::Annotation(long.clone()), Value::Text(long.clone()), &long))
            .collect();
        let text = listed(&edits);
        assert!(text.len() < 64 << 10, "{} bytes", text.len());
        assert!(!text.contains('\n'));
        assert!(text.ends_with(" and 936 more"), "{}", &text[text.len() - 32..]);
    }
}
