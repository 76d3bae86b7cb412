//! Who changed what: one event for each server that changed something about a call, and for each
//! that wanted to change what another one had changed.
//!
//! The events have a target of their own, `wharf::audit`, so that they can be kept apart from other
//! logs. They are bounded, whatever a server answers, and values of environment variables and annotations, which may be
//! secrets, are not in them.

use std::fmt;

use wharf_facts::text::{cut, plain};

use crate::HookPoint;
use crate::chain::{About, Compared, Dispute};
use crate::edit::{Edit, Field, Value};

/// The most changes that one event lists.
const LISTED: usize = 64;
const LONGEST_FIELD: usize = 128;
const LONGEST_VALUE: usize = 64;

/// `server` changed these fields.
pub(crate) fn changed(server: &str, point: HookPoint, about: &About, edits: &[Edit]) {
    tracing::info!(
        target: "wharf::audit",
        server,
        hook = point.name(),
        pod = about.pod,
        container = about.container,
        id = about.id,
        changes = %Listed(edits, change),
        "changed by a hook server"
    );
}

/// What servers changed of a pod before it was run is written into a container of it. Nobody knows any more who did, if
/// that was before the proxy's start.
pub(crate) fn carried(servers: Option<&str>, about: &About, edits: &[Edit]) {
    tracing::info!(
        target: "wharf::audit",
        server = servers.unwrap_or("unknown, from before the start"),
        hook = HookPoint::PreRunPodSandbox.name(),
        pod = about.pod,
        container = about.container,
        changes = %Listed(edits, change),
        "carried from the pod into its container"
    );
}

/// `server` would have changed these fields, had it not been a dry run.
pub(crate) fn rehearsed(
    server: &str,
    point: HookPoint,
    about: &About,
    edits: &[(&Edit, Compared)],
) {
    tracing::info!(
        target: "wharf::audit",
        server,
        hook = point.name(),
        pod = about.pod,
        container = about.container,
        id = about.id,
        changes = %Listed(edits, compared),
        "would be changed by a hook server, dry run"
    );
}

/// `server` wanted to change fields that others had changed before.
pub(crate) fn contested(
    server: &str,
    point: HookPoint,
    about: &About,
    resolution: &str,
    disputes: &[Dispute],
) {
    tracing::info!(
        target: "wharf::audit",
        server,
        hook = point.name(),
        pod = about.pod,
        container = about.container,
        id = about.id,
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

/// Keys are what somebody wrote: without line breaks, and not at any length.
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
