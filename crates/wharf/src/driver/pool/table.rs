//! Prints answers as tables or JSON.

use comfy_table::{Table, presets::NOTHING};
use wharf_driver::{
    admin::Answer,
    inspect::{Finding, PoolUsage, Row},
};

use super::human;
use crate::text;

pub(super) fn json(answer: &Answer) -> anyhow::Result<String> {
    Ok(match answer {
        Answer::List(rows) => text::json(rows)?,
        Answer::Usage(pools) => text::json(pools)?,
        Answer::Check(findings) => text::json(findings)?,
        Answer::Repair(done) => text::json(done)?,
        Answer::Done(text) | Answer::Failed(text) => text::json(text)?,
    })
}

pub(super) fn table(answer: &Answer) -> String {
    match answer {
        Answer::List(rows) => list(rows),
        Answer::Usage(pools) => pools.iter().map(usage).collect::<Vec<_>>().join("\n\n"),
        Answer::Check(findings) => check(findings),
        Answer::Repair(done) => done.report.clone(),
        Answer::Done(text) | Answer::Failed(text) => text.clone(),
    }
}

fn list(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header([
        "POOL", "KIND", "ID", "NAME", "SIZE", "TAKES", "EXTENTS", "BACKEND", "CONTENT", "STATE",
        "IMAGE",
    ]);
    for row in rows {
        table.add_row([
            row.pool.clone(),
            row.kind.clone(),
            row.id.clone(),
            row.name.escape_debug().to_string(),
            human(row.size),
            human(row.allocated),
            row.extents.to_string(),
            row.backend.clone(),
            row.content.clone(),
            row.state.clone(),
            row.image.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        ]);
    }
    table.trim_fmt()
}

fn usage(PoolUsage { pool, usage }: &PoolUsage) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    let uuid = pool.uuid.as_deref().unwrap_or("no UUID");
    table.add_row(["pool", &pool.name, uuid]);
    table.add_row(["folder", &pool.folder.display().to_string(), ""]);
    if !pool.kinds.is_empty() {
        table.add_row(["kinds", &pool.kinds, "volumes that may be created"]);
    }
    if let Some(report) = usage {
        for (name, bytes, about) in [
            ("total", report.total, "size of the pool's filesystem"),
            ("available", report.available, "free on it now"),
            ("promised", report.promised, "reserved for volumes and snapshots"),
            ("floor", report.floor, "never promised to volumes"),
            ("capacity", report.capacity, "can still be promised"),
        ] {
            table.add_row([name, &human(bytes), about]);
        }
        let thin = [
            ("thin promised", report.thin_promised, "sum of the sizes of thin volumes"),
            ("thin limit", report.thin_limit, "limit of that sum (--thin-ratio)"),
            ("thin floor", report.thin_floor, "no thin volume is created with less available"),
            ("thin capacity", report.thin_capacity, "the largest thin volume that can be created"),
        ];
        // These figures have no meaning on a pool of thick volumes alone.
        if pool.kinds.contains("thin") || report.thin_promised > 0 {
            for (name, bytes, about) in thin {
                table.add_row([name, &human(bytes), about]);
            }
        }
        table.add_row(["volumes", &report.volumes.to_string(), ""]);
        table.add_row(["snapshots", &report.snapshots.to_string(), ""]);
    }
    format!("{}\n{pool}", table.trim_fmt())
}

fn check(findings: &[Finding]) -> String {
    if findings.is_empty() {
        return "records and images agree".to_owned();
    }
    let line =
        |finding: &Finding| format!("{}: {}: {}", finding.object, finding.problem, finding.advice);
    findings.iter().map(line).collect::<Vec<_>>().join("\n")
}
