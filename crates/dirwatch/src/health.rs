//! What is wrong with a watch, and what was said about it. No I/O.

use std::fmt::Display;
use std::path::Path;

use crate::Change;

/// What is wrong, and what was said about it.
#[derive(Debug, Default)]
pub(crate) struct Health {
    trouble: Option<String>,
    reported: Option<String>,
    /// Everything was looked at, and could be.
    complete: bool,
    synced: bool,
}

impl Health {
    /// Everything will be looked at now; what is still wrong will be found again.
    pub(crate) fn begin_rescan(&mut self) {
        self.trouble = None;
        self.complete = true;
    }

    /// Changes may be seen late. The first trouble is the one that is told.
    pub(crate) fn degraded(&mut self, message: impl FnOnce() -> String) {
        self.trouble.get_or_insert_with(message);
    }

    /// What is at the path is not known.
    pub(crate) fn unknown(&mut self, path: &Path, error: impl Display) {
        self.complete = false;
        self.degraded(|| format!("cannot look at {}: {error}", path.display()));
    }

    pub(crate) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// What is new since the last report. A trouble comes last: it is what holds from then on.
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
