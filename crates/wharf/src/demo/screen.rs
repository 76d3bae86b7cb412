use std::{
    io::{IsTerminal, Write},
    time::{Duration, Instant},
};

/// Prints lines with times, in colour on a terminal.
pub(super) struct Screen {
    started: Instant,
    colours: bool,
}

impl Screen {
    pub(super) fn new() -> Self {
        Self { started: Instant::now(), colours: std::io::stdout().is_terminal() }
    }

    /// Prints the next step.
    pub(super) fn step(&self, text: &str) {
        let (on, off) = self.colour("\x1b[1m");
        self.line(&format!("{on}{text}{off}"));
    }

    /// Prints an event, and the time since the demo's last action.
    pub(super) fn seen(&self, what: &str, took: Duration, detail: &str) {
        let (on, off) = self.colour("\x1b[32m");
        let took = format!("{:.1} ms", took.as_secs_f64() * 1e3);
        self.line(&format!("  {on}{what:<13}{off} {took:>10}  {detail}"));
    }

    /// Prints a failure.
    pub(super) fn failed(&self, text: &str) {
        let (on, off) = self.colour("\x1b[31m");
        self.line(&format!("{on}failed: {text}{off}"));
    }

    fn line(&self, text: &str) {
        let at = self.started.elapsed().as_secs_f64();
        // A closed standard output does not end the demo: its exit code still reports the outcome.
        let _ = writeln!(std::io::stdout().lock(), "{at:>7.3}s  {text}");
    }

    fn colour(&self, on: &'static str) -> (&'static str, &'static str) {
        if self.colours { (on, "\x1b[0m") } else { ("", "") }
    }
}
