//! Counts test results in libtest's output.

/// The sum over all test binaries of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Tests that passed, including skipped ones.
    pub(super) passed: usize,
    /// Tests that failed.
    pub(super) failed: usize,
    /// Tests marked as ignored.
    pub(super) ignored: usize,
    /// The failure output of each binary.
    pub(super) failures: Vec<String>,
    open: Option<String>,
}

impl Tally {
    /// Reads the next line of output.
    pub(super) fn line(&mut self, line: &str) {
        if let Some(result) = line.strip_prefix("test result: ") {
            self.passed += count(result, "passed");
            self.failed += count(result, "failed");
            self.ignored += count(result, "ignored");
            self.failures.extend(self.open.take());
        } else if let Some(open) = &mut self.open {
            open.push_str(line);
            open.push('\n');
        } else if line == "failures:" {
            self.open = Some(String::from("failures:\n"));
        }
    }
}

/// The number before `word` in `ok. 3 passed; 0 failed; ...`.
fn count(result: &str, word: &str) -> usize {
    result
        .split([';', '.'])
        .filter_map(|part| part.trim().split_once(' '))
        .find(|(_, what)| *what == word)
        .and_then(|(number, _)| number.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(output: &str) -> Tally {
        let mut tally = Tally::default();
        output.lines().for_each(|line| tally.line(line));
        tally
    }

    #[test]
    fn binaries_are_added_up() {
        let one = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.01s";
        let sum = tally(&format!("running 4 tests\ntest a ... ok\n{one}\n\n{one}\n"));
        assert_eq!(sum, Tally { passed: 6, ignored: 2, ..Tally::default() });
    }

    #[test]
    fn failures_are_kept_with_what_they_said() {
        let sum = tally(
            "test a ... FAILED\n\nfailures:\n\n---- a stdout ----\nassertion failed\n\nfailures:\n    a\n\n\
             test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0s\n",
        );
        assert_eq!((sum.passed, sum.failed), (0, 1));
        assert_eq!(sum.failures.len(), 1);
        assert!(sum.failures[0].contains("assertion failed"), "{}", sum.failures[0]);
    }
}
