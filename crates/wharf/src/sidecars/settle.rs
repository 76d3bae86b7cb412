//! `wharf sidecars settle`: removes the marks that the provisioner left on claims.

use std::{
    fmt::Write as _,
    io::{IsTerminal, Write},
    process::ExitCode,
};

use anyhow::{Context, bail};
use clap::Parser;
use wharf_sidecars::unsettled::{self, UnsettledClaim};

use crate::{
    access::KubectlArgs,
    runtime::{Threads, run},
    text::plain,
};

/// Removes the marks of unsettled volumes from claims
///
/// A claim has the finalizer wharf.dev/unsettled-volume while its driver may have a volume that no
/// PersistentVolume names. Only wharf's provisioner removes it. Before you return to another
/// provisioner, stop wharf's and run this: it shows each such claim and the volume that the driver
/// may have, asks, and removes the finalizers. It does not call the driver: look for the volumes in
/// the storage yourself.
#[derive(Parser)]
struct Settle {
    /// Only claims of this CSI driver
    #[arg(long, value_name = "NAME")]
    driver: Option<String>,
    #[command(flatten)]
    cluster: KubectlArgs,
    /// Remove the finalizers without asking
    #[arg(short, long)]
    yes: bool,
}

pub(super) fn main(name: &str, args: &[String]) -> ExitCode {
    let command = format!("{name} settle");
    let args = std::iter::once(command).chain(args.iter().cloned());
    let settle = match Settle::try_parse_from(args) {
        Ok(settle) => settle,
        Err(error) => error.exit(),
    };
    run(Threads::One, |_| async move { settle.run().await })
}

impl Settle {
    async fn run(&self) -> anyhow::Result<ExitCode> {
        let client = self.cluster.client().await?;
        let claims = unsettled::list(&client, self.driver.as_deref()).await;
        let claims = claims.context("cannot list claims")?;
        if claims.is_empty() {
            let of = self.driver.as_ref().map(|it| format!(" of driver {it}")).unwrap_or_default();
            say(&format!("No claim{of} has the finalizer wharf.dev/unsettled-volume.\n"))?;
            return Ok(ExitCode::SUCCESS);
        }
        say(&claims.iter().map(description).collect::<String>())?;
        if !self.yes && !confirmed(claims.len())? {
            say("Nothing was changed.\n")?;
            return Ok(ExitCode::FAILURE);
        }
        for claim in &claims {
            let removed = unsettled::remove(&client, claim).await;
            removed.with_context(|| format!("cannot remove the mark of claim {}", claim.key()))?;
            say(&format!("claim {}: the mark is removed\n", claim.key()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Describes the volume that may be left over from a claim.
fn description(claim: &UnsettledClaim) -> String {
    let going = if claim.is_deleting() { ", which is being deleted" } else { "" };
    let mut text = format!("claim {}{going}\n", claim.key());
    let mut line = |line: String| {
        let _ = writeln!(text, "  {line}");
    };
    let (driver, volume) = (plain(&claim.driver), plain(&claim.volume));
    if claim.known {
        line(format!("PersistentVolume {volume} names its volume: nothing is left over"));
        return text;
    }
    line(format!("driver {driver} may have volume {volume}, and no PersistentVolume names it"));
    if let Some(node) = &claim.node {
        line(format!("asked for on node {}", plain(node)));
    }
    if !claim.class.is_empty() {
        line(format!("asked for with StorageClass {}", plain(&claim.class)));
    }
    if !claim.parameters.is_empty() {
        let pairs: Vec<String> =
            claim.parameters.iter().map(|(key, value)| format!("{key}={value}")).collect();
        line(format!("parameters {}", plain(&pairs.join(", "))));
    }
    if let Some(secret) = &claim.secret {
        line(format!("secret {}", plain(secret)));
    }
    text
}

/// Asks the person at the terminal.
fn confirmed(claims: usize) -> anyhow::Result<bool> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        bail!("volumes may be left over: run this at a terminal, or with --yes");
    }
    say(&format!("Remove the marks of {claims} claims? [y/N] "))?;
    let mut line = String::new();
    input.read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

fn say(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use wharf_cluster::Meta;

    use super::*;

    #[test]
    fn what_may_be_left_is_told() {
        let mut claim = UnsettledClaim {
            metadata: Meta {
                name: "data".to_owned(),
                namespace: Some("n".to_owned()),
                deleting: true,
                ..Meta::default()
            },
            driver: "d.example.com".to_owned(),
            volume: "pvc-1".to_owned(),
            node: Some("n1".to_owned()),
            class: "gold".to_owned(),
            parameters: BTreeMap::from([("tier".to_owned(), "fast\n".to_owned())]),
            secret: Some("vault/login".to_owned()),
            known: false,
        };
        let expected = "claim n/data, which is being deleted\n  \
            driver d.example.com may have volume pvc-1, and no PersistentVolume names it\n  \
            asked for on node n1\n  \
            asked for with StorageClass gold\n  \
            parameters tier=fast\\n\n  \
            secret vault/login\n";
        assert_eq!(description(&claim), expected);
        claim.known = true;
        assert!(
            description(&claim)
                .ends_with("PersistentVolume pvc-1 names its volume: nothing is left over\n")
        );
    }

    #[test]
    fn flags_of_the_command() {
        let parsed = |args: &[&str]| Settle::try_parse_from([&["settle"], args].concat());
        let settle = parsed(&["--driver", "d.example.com", "--yes"]).unwrap();
        assert_eq!((settle.driver.as_deref(), settle.yes), (Some("d.example.com"), true));
        assert!(!parsed(&[]).unwrap().yes);
        assert!(parsed(&["--csi-address=/x"]).is_err());
    }
}
