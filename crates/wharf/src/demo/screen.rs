use std::{
    io::{IsTerminal, Write},
    time::{Duration, Instant},
};

/// Lines with times, as they happen. Coloured for people, plain for pipes.
pub(super) struct Screen {
    started: Instant,
    colours: bool,
}

impl Screen {
    pub(super) fn new() -> Self {
        Self { started: Instant::now(), colours: std::io::stdout().is_terminal() }
    }

    /// What the demo does next.
    pub(super) fn step(&self, text: &str) {
        let (on, off) = self.colour("\x1b[1m");
        self.line(&format!("{on}{text}{off}"));
    }

    /// What was seen to happen, and how long it took since the demo acted.
    pub(super) fn seen(&self, what: &str, took: Duration, detail: &str) {
        let (on, off) = self.colour("\x1b[32m");
        let took = format!("{:.1} ms", took.as_secs_f64() * 1e3);
        self.line(&format!("  {on}{what:<13}{off} {took:>10}  {detail}"));
    }

    /// What went wrong.
    pub(super) fn failed(&self, text: &str) {
        let (on, off) = self.colour("\x1b[31m");
        self.line(&format!("{on}failed: {text}{off}"));
    }

    fn line(&self, text: &str) {
        let at = self.started.elapsed().as_secs_f64();
        // A reader that went away ends the output, not the demo: the exit code still tells.
        let _ = writeln!(std::io::stdout().lock(), "{at:>7.3}s  {text}");
    }

    fn colour(&self, on: &'static str) -> (&'static str, &'static str) {
        if self.colours { (on, "\x1b[0m") } else { ("", "") }
    }
}
