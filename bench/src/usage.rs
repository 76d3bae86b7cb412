//! A process's use of the machine, from the kernel's counters.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};

/// A snapshot of a process's counters.
#[derive(Debug)]
pub(crate) struct Usage {
    /// Resident memory, including pages of the binary, in kB of 1,024 bytes.
    pub(crate) resident: u64,
    /// The part of it that is not backed by a file.
    pub(crate) anonymous: u64,
    /// Open descriptors.
    pub(crate) descriptors: usize,
    threads: BTreeMap<String, Thread>,
}

/// The work of a process between two snapshots.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Work {
    /// Processor time of all threads.
    pub(crate) processor: Duration,
    /// How often a thread woke up, which is also how often it slept.
    pub(crate) wakeups: u64,
    /// Number of threads that woke up.
    pub(crate) threads: usize,
}

/// `schedstat` counts nanoseconds; the ticks of `stat` are 10 ms.
#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    processor: Duration,
    switches: u64,
}

impl Usage {
    /// Reads the counters of the process `id`.
    pub(crate) fn of(id: u32) -> Result<Self> {
        let process = PathBuf::from(format!("/proc/{id}"));
        let status = read(&process.join("status"))?;
        let mut threads = BTreeMap::new();
        for entry in process.join("task").read_dir()? {
            let entry = entry?;
            match Thread::read(&entry.path()) {
                Ok(thread) => {
                    threads.insert(entry.file_name().to_string_lossy().into_owned(), thread);
                }
                // The thread has ended since it was listed.
                Err(_) if !entry.path().exists() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self {
            resident: field(&status, "VmRSS:")?,
            anonymous: field(&status, "RssAnon:")?,
            descriptors: process.join("fd").read_dir()?.count(),
            threads,
        })
    }

    /// Resets the kernel's peak of the process's memory, so that [`Usage::peak`] counts from now
    /// on.
    pub(crate) fn reset_peak(id: u32) -> Result<()> {
        let file = PathBuf::from(format!("/proc/{id}/clear_refs"));
        fs::write(&file, "5").with_context(|| file.display().to_string())
    }

    /// The peak of the process's memory since [`Usage::reset_peak`], in kB.
    pub(crate) fn peak(id: u32) -> Result<u64> {
        field(&read(&PathBuf::from(format!("/proc/{id}/status")))?, "VmHWM:")
    }

    /// Processor time since the start, of the threads that still run.
    pub(crate) fn processor(&self) -> Duration {
        self.threads.values().map(|thread| thread.processor).sum()
    }

    /// The work since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Work {
        let mut work = Work { processor: Duration::ZERO, wakeups: 0, threads: 0 };
        for (id, thread) in &self.threads {
            let before = earlier.threads.get(id).copied().unwrap_or_default();
            let wakeups = thread.switches.saturating_sub(before.switches);
            work.processor += thread.processor.saturating_sub(before.processor);
            work.wakeups += wakeups;
            work.threads += usize::from(wakeups > 0);
        }
        work
    }
}

/// Processor time, user and system, of collected child processes and their descendants.
pub(crate) fn children() -> Result<Duration> {
    let stat = read(Path::new("/proc/self/stat"))?;
    // The second field is the program's name in parentheses, which may contain spaces.
    let fields = stat.rsplit_once(')').context("stat has no name")?.1;
    // `cutime` and `cstime` are the 16th and 17th field of the line.
    let ticks = fields.split_whitespace().skip(13).take(2).map(str::parse::<u64>);
    let ticks = ticks.sum::<Result<u64, _>>().context("stat")?;
    Ok(Duration::from_secs(ticks) / u32::try_from(rustix::param::clock_ticks_per_second())?)
}

impl Thread {
    fn read(folder: &Path) -> Result<Self> {
        let schedule = read(&folder.join("schedstat"))?;
        let nanoseconds = schedule.split(' ').next().unwrap_or_default();
        let status = read(&folder.join("status"))?;
        Ok(Self {
            processor: Duration::from_nanos(nanoseconds.parse().context("schedstat")?),
            switches: field(&status, "voluntary_ctxt_switches:")?,
        })
    }
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| file.display().to_string())
}

/// The number on the line of `status` that begins with `name`.
fn field(status: &str, name: &str) -> Result<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.with_context(|| format!("status has no {name}"))?.parse().context("status")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_usage() {
        let usage = Usage::of(std::process::id()).unwrap();
        assert!(usage.resident > usage.anonymous && usage.anonymous > 0, "{usage:?}");
        assert!(usage.descriptors >= 3 && !usage.threads.is_empty(), "{usage:?}");
    }

    #[test]
    fn work_is_the_difference() {
        let usage = |threads: &[(&str, u64, u64)]| Usage {
            resident: 0,
            anonymous: 0,
            descriptors: 0,
            threads: threads
                .iter()
                .map(|&(id, ms, switches)| {
                    (id.to_owned(), Thread { processor: Duration::from_millis(ms), switches })
                })
                .collect(),
        };
        let earlier = usage(&[("1", 5, 10), ("2", 3, 7)]);
        let later = usage(&[("1", 9, 16), ("2", 3, 7), ("3", 1, 1)]);
        let expected = Work { processor: Duration::from_millis(5), wakeups: 7, threads: 2 };
        assert_eq!(later.since(&earlier), expected);
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let status =
            "nonvoluntary_ctxt_switches:\t9\nvoluntary_ctxt_switches:\t4\nVmRSS:\t  12 kB\n";
        assert_eq!(field(status, "voluntary_ctxt_switches:").unwrap(), 4);
        assert_eq!(field(status, "VmRSS:").unwrap(), 12);
        assert!(field(status, "RssAnon:").unwrap_err().to_string().contains("RssAnon"));
    }
}
