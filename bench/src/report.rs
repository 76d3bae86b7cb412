//! Figures with their targets.

use std::{fmt::Display, process::ExitCode};

/// The results of a run; lines are printed at once.
pub(crate) struct Report {
    name: &'static str,
    met: usize,
    missed: usize,
}

/// Which side of a target is good.
#[derive(Clone, Copy)]
enum Side {
    AtMost,
    AtLeast,
}

impl Report {
    /// Prints the machine first, since figures depend on it.
    pub(crate) fn start(name: &'static str) -> Self {
        let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let kernel = read("/proc/sys/kernel/osrelease");
        let load = read("/proc/loadavg");
        let load = load.split(' ').next().unwrap_or_default();
        println!("bench {name}: {cores} cores, Linux {}, load {load}", kernel.trim());
        Self { name, met: 0, missed: 0 }
    }

    /// Begins a group of figures.
    pub(crate) fn section(&self, title: &str) {
        println!("\n{title}");
    }

    /// A figure that must be `limit` or less.
    pub(crate) fn at_most(&mut self, what: &str, figure: f64, limit: f64, unit: &str) {
        self.target(what, figure, (Side::AtMost, limit), unit);
    }

    /// A figure that must be `limit` or more.
    pub(crate) fn at_least(&mut self, what: &str, figure: f64, limit: f64, unit: &str) {
        self.target(what, figure, (Side::AtLeast, limit), unit);
    }

    /// A figure without a target, for comparison.
    pub(crate) fn show(&self, what: &str, figure: f64, unit: &str) {
        println!("  {what:<62} {:>12}", with_unit(figure, unit));
    }

    /// A target that counts neither as met nor as missed.
    pub(crate) fn not_measured(&self, what: &str, reason: impl Display) {
        println!("  {what:<62} {:>12}  {reason}", "not measured");
    }

    /// Prints the summary.
    pub(crate) fn close(self) -> ExitCode {
        let Self { name, met, missed } = self;
        println!("\nbench {name}: {met} of {} targets met", met + missed);
        if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn target(&mut self, what: &str, figure: f64, (side, limit): (Side, f64), unit: &str) {
        let met = side.holds(figure, limit);
        let word = if met { "met" } else { "MISSED" };
        *(if met { &mut self.met } else { &mut self.missed }) += 1;
        let limit = format!("{} {}", side.sign(), with_unit(limit, unit));
        println!("  {what:<62} {:>12}  {limit:<12} {word}", with_unit(figure, unit));
    }
}

impl Side {
    /// A figure that is not a number, like the median of nothing, misses its target.
    fn holds(self, figure: f64, limit: f64) -> bool {
        match self {
            Self::AtMost => figure <= limit,
            Self::AtLeast => figure >= limit,
        }
    }

    fn sign(self) -> &'static str {
        match self {
            Self::AtMost => "<=",
            Self::AtLeast => ">=",
        }
    }
}

/// Three digits, the precision of a measurement.
fn with_unit(figure: f64, unit: &str) -> String {
    let digits = match figure.abs() {
        _ if figure.fract() == 0.0 => 0,
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    format!("{figure:.digits$} {unit}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        let shown = [0.0, 0.1234, 9.996, 20.0, 99.94, 123.4].map(|figure| with_unit(figure, "ms"));
        assert_eq!(shown, ["0 ms", "0.12 ms", "10.0 ms", "20 ms", "99.9 ms", "123 ms"]);
        assert_eq!(with_unit(3.0, ""), "3");
    }

    #[test]
    fn a_target_is_met_or_missed() {
        let mut report = Report { name: "test", met: 0, missed: 0 };
        report.at_most("a", 20.0, 20.0, "ms");
        report.at_least("b", 4.9, 5.0, "times");
        report.at_most("c", f64::NAN, 20.0, "ms");
        report.not_measured("d", "no opponent");
        report.show("e", 1.0, "ms");
        assert_eq!((report.met, report.missed), (1, 2));
        assert_eq!(report.close(), ExitCode::FAILURE);
    }
}
