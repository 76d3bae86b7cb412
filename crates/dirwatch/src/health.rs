//! The faults of a watch, and which of them were reported. No I/O.

use std::{fmt::Display, path::Path};

use crate::Change;

/// The faults of a watch, and which of them were reported.
#[derive(Debug, Default)]
pub(crate) struct Health {
    trouble: Option<String>,
    reported: Option<String>,
    /// Every path was looked at successfully since the last rescan began.
    complete: bool,
    synced: bool,
}

impl Health {
    /// A rescan begins: it finds the faults that remain.
    pub(crate) fn begin_rescan(&mut self) {
        self.trouble = None;
        self.complete = true;
    }

    /// Changes may be seen late. The first fault is the one that is reported.
    pub(crate) fn degraded(&mut self, message: impl FnOnce() -> String) {
        self.trouble.get_or_insert_with(message);
    }

    /// The state of the path could not be read.
    pub(crate) fn unknown(&mut self, path: &Path, error: impl Display) {
        self.complete = false;
        self.degraded(|| format!("cannot look at {}: {error}", path.display()));
    }

    pub(crate) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// The news since the last report. A fault comes last, since it holds from then on.
    pub(crate) fn report(&mut self) -> Vec<Change> {
        let mut report = Vec::new();
        let recovered = self.reported.is_some() && self.trouble.is_none();
        if self.complete && (recovered || !self.synced) {
            self.synced = true;
            report.push(Change::Synced);
        }
        if self.trouble != self.reported {
            self.reported.clone_from(&self.trouble);
            report.extend(self.trouble.clone().map(|message| Change::Trouble { message }));
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trouble(message: &str) -> Change {
        Change::Trouble { message: message.to_owned() }
    }

    #[test]
    fn a_first_complete_scan_is_told_once() {
        let mut health = Health::default();
        assert_eq!(health.report(), []);
        health.begin_rescan();
        assert_eq!(health.report(), [Change::Synced]);
        health.begin_rescan();
        assert_eq!(health.report(), []);
    }

    #[test]
    fn an_incomplete_first_scan_is_not_synced_until_it_is_complete() {
        let mut health = Health::default();
        health.begin_rescan();
        health.unknown(Path::new("/r"), "denied");
        assert_eq!(health.report(), [trouble("cannot look at /r: denied")]);
        health.begin_rescan();
        health.unknown(Path::new("/r"), "denied");
        assert_eq!(health.report(), []);
        health.begin_rescan();
        assert_eq!(health.report(), [Change::Synced]);
    }

    #[test]
    fn a_degraded_first_scan_is_synced_and_then_troubled() {
        let mut health = Health::default();
        health.begin_rescan();
        health.degraded(|| "no inotify".to_owned());
        assert_eq!(health.report(), [Change::Synced, trouble("no inotify")]);
        health.begin_rescan();
        assert_eq!(health.report(), [Change::Synced]);
    }

    #[test]
    fn the_first_of_several_troubles_is_told_and_a_new_one_again() {
        let mut health = Health::default();
        health.begin_rescan();
        assert_eq!(health.report(), [Change::Synced]);
        health.degraded(|| "one".to_owned());
        health.degraded(|| "two".to_owned());
        assert_eq!(health.report(), [trouble("one")]);
        health.begin_rescan();
        health.degraded(|| "two".to_owned());
        assert_eq!(health.report(), [trouble("two")]);
        assert_eq!(health.trouble(), Some("two"));
    }
}
