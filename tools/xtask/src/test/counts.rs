//! How many tests passed and failed, from what test programs print.
//!
//! Neighbours: [`super`] runs the programs.
//!
//! Invariant: a line in another form counts nothing, and the caller treats nothing as a failure.

use crate::steps::Checks;

/// The sum over all lines like `test result: ok. 9 passed; 1 failed; ...`. A test that starts its
/// own program again to run one test in another namespace leaves such a line too: it says that
/// others were filtered out, and is not counted twice.
pub fn of_test_programs(lines: &[String]) -> Checks {
    let mut sum = Checks::default();
    for line in lines {
        if !line.contains("; 0 filtered out") {
            continue;
        }
        let Some(rest) = line.trim().strip_prefix("test result: ") else {
            continue;
        };
        let Some((_, counts)) = rest.split_once(". ") else {
            continue;
        };
        for part in counts.split(';') {
            match part.trim().split_once(' ') {
                Some((number, "passed")) => sum.passed += number.parse().unwrap_or(0),
                Some((number, "failed")) => sum.failed += number.parse().unwrap_or(0),
                _ => {}
            }
        }
    }
    sum
}

/// Whether a line says nothing: test programs without a test print four of them.
pub fn is_idle_talk(line: &str) -> bool {
    let line = line.trim();
    line.is_empty()
        || line == "running 0 tests"
        || line.starts_with("test result: ok. 0 passed; 0 failed; 0 ignored;")
}

/// The last line, if it is `N passed, N failed`.
pub fn of_last_line(lines: &[String]) -> Option<Checks> {
    let last = lines
        .iter()
        .rev()
        .map(|line| line.trim())
        .find(|line| !line.is_empty())?;
    let (passed, failed) = last.split_once(", ")?;
    Some(Checks {
        passed: passed.strip_suffix(" passed")?.parse().ok()?,
        failed: failed.strip_suffix(" failed")?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn results_of_all_test_programs_are_added() {
        let output = lines(
            "running 3 tests\n...\ntest result: ok. 3 passed; 0 failed; 2 ignored; 0 measured; 0 \
             filtered out; finished in 0.01s\n\ntest result: FAILED. 4 passed; 1 failed; 0 \
             ignored; 0 measured; 0 filtered out; finished in 1.20s\ntest result: ok. 1 passed; 0 \
             failed; 0 ignored; 0 measured; 3 filtered out; finished in 2.00s",
        );
        assert_eq!(
            of_test_programs(&output),
            Checks {
                passed: 7,
                failed: 1
            }
        );
        assert_eq!(of_test_programs(&lines("error: no")), Checks::default());
    }

    #[test]
    fn only_empty_test_programs_are_idle_talk() {
        let idle = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
        assert!(is_idle_talk(idle) && is_idle_talk("running 0 tests") && is_idle_talk(" "));
        assert!(!is_idle_talk(&idle.replace("0 ignored", "2 ignored")));
        assert!(!is_idle_talk("running 1 test"));
    }

    #[test]
    fn only_a_plain_last_line_counts() {
        let good = of_last_line(&lines("x\n12 passed, 3 failed\n\n"));
        assert_eq!(
            good,
            Some(Checks {
                passed: 12,
                failed: 3
            })
        );
        assert_eq!(of_last_line(&lines("12 passed, 3 failed\nmore")), None);
        assert_eq!(of_last_line(&[]), None);
    }
}
