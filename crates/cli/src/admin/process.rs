use std::{fmt, fs, io, time::Duration};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};

/// Adds the `process_*` metrics of the Prometheus client libraries, read from `/proc/self` at each
/// scrape. Values that cannot be read are left out.
pub fn process_metrics(registry: &mut Registry) {
    registry.register_collector(Box::new(Process));
}

#[derive(Debug)]
struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let usage = match Usage::read() {
            Ok(usage) => usage,
            Err(error) => {
                tracing::warn!(%error, "proc/proc/self");
                return Ok(());
            }
        };
        let encoder = &mut encoder;
        put(
            encoder,
            "process_cpu_seconds",
            "Total user and system CPU time spent in seconds",
            &ConstCounter::new(usage.cpu.as_secs_f64()),
        )?;
        put(
            encoder,
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds",
            &ConstGauge::new(usage.started.as_secs_f64()),
        )?;
        put(
            encoder,
            "process_resident_memory_bytes",
            "Resident memory size in bytes",
            &ConstGauge::new(usage.resident),
        )?;
        put(
            encoder,
            "process_open_fds",
            "Number of open file descriptors",
            &ConstGauge::new(usage.open_fds),
        )?;
        if let Some(max) = usage.max_fds {
            let help = "Maximum number of open file descriptors";
            put(encoder, "process_max_fds", help, &ConstGauge::new(max))?;
        }
        Ok(())
    }
}

fn put(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    metric: &impl EncodeMetric,
) -> fmt::Result {
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

/// Values from `/proc/self`.
#[derive(Debug)]
struct Usage {
    cpu: Duration,
    /// Time of the start, since 1970.
    started: Duration,
    resident: u64,
    open_fds: u64,
    /// `None` if unlimited.
    max_fds: Option<u64>,
}

impl Usage {
    fn read() -> io::Result<Self> {
        let stat = Stat::parse(&fs::read_to_string("/proc/self/stat")?)
            .ok_or_else(|| malformed("/proc/self/stat"))?;
        let boot =
            boot_time(&fs::read_to_string("/proc/stat")?).ok_or_else(|| malformed("/proc/stat"))?;
        let limits = fs::read_to_string("/proc/self/limits")?;
        // The open folder counts as a descriptor, too.
        let open_fds = fs::read_dir("/proc/self/fd")?.count().saturating_sub(1);
        Ok(Self {
            cpu: ticks(stat.cpu_ticks),
            started: boot + ticks(stat.start_ticks),
            resident: stat.resident_pages * rustix::param::page_size() as u64,
            open_fds: open_fds as u64,
            max_fds: max_open_files(&limits),
        })
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Stat {
    cpu_ticks: u64,
    start_ticks: u64,
    resident_pages: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The command's name is in parentheses and may contain any character, including
        // parentheses.
        let (_, fields) = text.rsplit_once(')')?;
        // proc(5) counts from 1, and the name is field 2.
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: field(14)? + field(15)?,
            start_ticks: field(22)?,
            resident_pages: field(24)?,
        })
    }
}

fn ticks(count: u64) -> Duration {
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_millis(count.saturating_mul(1000) / per_second)
}

fn boot_time(text: &str) -> Option<Duration> {
    let seconds = text.lines().find_map(|line| line.strip_prefix("btime "))?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

fn max_open_files(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn malformed(path: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{path} is not as proc(5) describes it"))
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn stat_survives_hostile_names() {
        let stat = "7 (a) b (c) R 1 1 1 0 -1 4194304 99 0 0 0 12 30 0 0 20 0 1 0 5000 1000 250 1";
        let expected = Stat { cpu_ticks: 42, start_ticks: 5000, resident_pages: 250 };
        assert_eq!(Stat::parse(stat), Some(expected));
        assert_eq!(Stat::parse("7 (short) R 1"), None);
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn limits_may_be_unlimited() {
        let line = |soft| format!("Limit  Soft\nMax open files            {soft}   4096  files\n");
        assert_eq!(max_open_files(&line("1024")), Some(1024));
        assert_eq!(max_open_files(&line("unlimited")), None);
    }

    #[test]
    fn reads_this_process() {
        let usage = Usage::read().unwrap();
        assert!(usage.resident > 100_000, "{usage:?}");
        assert!(usage.open_fds > 2, "{usage:?}");
        let age =
            SystemTime::now().duration_since(UNIX_EPOCH).unwrap().saturating_sub(usage.started);
        assert!(age < Duration::from_secs(3600), "{age:?}");
    }
}
