//! `wharf status` and `wharf why`: the state of storage objects, and who must act on them.

use std::{io::Write, process::ExitCode};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use wharf_sidecars::inspect::{ClusterSnapshot, Finding, Subject, SubjectKind};

use crate::{
    access::KubectlArgs,
    runtime::{Threads, run},
    text::{json, plain},
};

/// Shows claims, volumes, attachments and snapshots that wait, and who must act
///
/// One line per object: its stage, its age, who must act and the last error. Healthy objects are
/// shown with --all only.
#[derive(Args)]
pub(crate) struct Status {
    #[command(flatten)]
    cluster: KubectlArgs,
    /// Only claims and snapshots of this namespace
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Include healthy objects
    #[arg(short, long)]
    all: bool,
    /// Form of the output
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

/// Explains what a claim, volume, snapshot, attachment or pod waits for
///
/// Shows the object's stage, who must act and the last error, and the same for the objects it
/// depends on: a claim's volume, attachments and snapshot, a snapshot's content and claim, an
/// attachment's volume, claim and pods, and a pod's claims with their objects.
#[derive(Args)]
pub(crate) struct Why {
    /// The object: pvc/NAME, pv/NAME, vs/NAME (VolumeSnapshot), vsc/NAME (VolumeSnapshotContent),
    /// va/NAME (VolumeAttachment) or pod/NAME. kubectl's other names of these kinds are accepted as
    /// well
    #[arg(value_name = "KIND/NAME")]
    subject: Subject,
    #[command(flatten)]
    cluster: KubectlArgs,
    /// Namespace of a claim, a VolumeSnapshot or a pod
    #[arg(short, long, value_name = "NAMESPACE", default_value = "default")]
    namespace: String,
    /// Form of the output
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Table,
    Json,
}

async fn read(cluster: &KubectlArgs, namespace: Option<&str>) -> anyhow::Result<ClusterSnapshot> {
    let client = cluster.client().await?;
    ClusterSnapshot::read(&client, namespace)
        .await
        .context("cannot read the cluster's storage objects")
}

impl Status {
    pub(crate) fn run(self) -> ExitCode {
        run(Threads::One, |_| async move {
            let mut findings = read(&self.cluster, self.namespace.as_deref()).await?.findings();
            let seen = findings.len();
            findings.retain(|finding| self.all || finding.who.is_some());
            let mut out = std::io::stdout().lock();
            match self.output {
                Output::Json => writeln!(out, "{}", json(&findings)?)?,
                Output::Table if findings.is_empty() => {
                    writeln!(out, "Nothing waits: {seen} objects are healthy.")?;
                }
                Output::Table => write!(out, "{}", table(&findings))?,
            }
            Ok(ExitCode::SUCCESS)
        })
    }
}

impl Why {
    pub(crate) fn run(self) -> ExitCode {
        run(Threads::One, |_| async move {
            let Self { subject: subject @ Subject { kind, name }, namespace, .. } = &self;
            // Objects that a cluster-scoped object depends on may be in any namespace.
            let within = Some(namespace.as_str()).filter(|_| kind.is_namespaced());
            let cluster = read(&self.cluster, within).await?;
            let findings = cluster.findings_of(subject, namespace);
            if findings.is_empty() {
                let is_of_snapshots = matches!(kind, SubjectKind::Snapshot | SubjectKind::Content);
                match within {
                    _ if is_of_snapshots && cluster.lacks_snapshots => bail!(
                        "there is no {kind} {name}: this cluster lacks the snapshot CRDs. `wharf crds install` adds them"
                    ),
                    Some(_) => bail!("there is no {kind} {name} in namespace {namespace}"),
                    None => bail!("there is no {kind} {name}"),
                }
            }
            let mut out = std::io::stdout().lock();
            match self.output {
                Output::Json => writeln!(out, "{}", json(&findings)?)?,
                Output::Table => {
                    findings.iter().try_for_each(|it| write!(out, "{}", details(it)))?;
                }
            }
            Ok(ExitCode::SUCCESS)
        })
    }
}

const HEAD: [&str; 6] = ["OBJECT", "STAGE", "AGE", "WHO ACTS", "WAITS FOR", "LAST ERROR"];

fn table(findings: &[Finding]) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(findings.iter().map(|finding| {
        let or_none = |text: &Option<String>| text.as_deref().map_or("-".to_owned(), plain);
        [
            object(finding),
            plain(&finding.stage),
            finding.age.map_or("-".to_owned(), age),
            or_none(&finding.who),
            or_none(&finding.waits_for),
            or_none(&finding.last_error),
        ]
    }));
    let widths: [usize; HEAD.len()] = std::array::from_fn(|column| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    });
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// A finding with all of its fields.
fn details(finding: &Finding) -> String {
    let mut text = format!("{}: {}\n", object(finding), plain(&finding.stage));
    let mut line = |head: &str, value: &Option<String>| {
        if let Some(value) = value {
            text.push_str(&format!("  {head:<11}{}\n", plain(value)));
        }
    };
    line("waits for", &finding.waits_for);
    line("who acts", &finding.who);
    line("last error", &finding.last_error);
    text
}

fn object(finding: &Finding) -> String {
    match &finding.namespace {
        Some(namespace) => format!("{} {namespace}/{}", finding.kind, finding.name),
        None => format!("{} {}", finding.kind, finding.name),
    }
}

/// An age in its largest unit, as in kubectl.
fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_each_object_in_columns() {
        let finding = Finding {
            kind: "claim",
            namespace: Some("n".to_owned()),
            name: "data".to_owned(),
            stage: "Pending".to_owned(),
            age: Some(180),
            who: Some("provisioner".to_owned()),
            waits_for: Some("a volume".to_owned()),
            last_error: Some("a\nb".to_owned()),
        };
        let lines = table(&[finding]);
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(lines[1], "claim n/data  Pending  3m   provisioner  a volume   a\\nb");
        assert_eq!(lines[0], "OBJECT        STAGE    AGE  WHO ACTS     WAITS FOR  LAST ERROR");
    }
}
