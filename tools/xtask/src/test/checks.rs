//! How many tests passed and failed and which did, from what test programs print.
//!
//! Key type: [`Checks`]. Neighbours: [`super`] runs the programs, [`super::report`] tells the sums.
//!
//! Invariant: a line in another form counts nothing, and the caller treats nothing as a failure.

use serde::{Deserialize, Serialize};

/// Lines that are kept of what a failed test has said.
const WORDS_MOST: usize = 12;

/// What a part of the tests counted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checks {
    pub passed: u64,
    pub failed: u64,
    /// The first words of each that failed, as far as the part knows them.
    pub what_failed: Vec<String>,
}

impl Checks {
    pub fn pass(&mut self) {
        self.passed += 1;
    }

    pub fn fail(&mut self, what: String) {
        self.failed += 1;
        self.what_failed.push(what);
    }

    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.what_failed.extend(other.what_failed);
    }
}

/// The sum over all lines like `test result: ok. 9 passed; 1 failed; ...`. A test that starts its
/// own program again to run one test in another namespace leaves such a line too: it says that one
/// test ran and others were filtered out, and is not counted twice.
pub fn of_test_programs(lines: &[String]) -> Checks {
    let mut sum = Checks::default();
    for line in lines {
        let Some(rest) = line.trim().strip_prefix("test result: ") else {
            continue;
        };
        let Some((_, counts)) = rest.split_once(". ") else {
            continue;
        };
        let count = |what: &str| -> u64 {
            let mut parts = counts
                .split(';')
                .filter_map(|part| part.trim().split_once(' '));
            let number = parts.find_map(|(number, of)| (of == what).then_some(number));
            number.and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        let (passed, failed) = (count("passed"), count("failed"));
        if passed + failed == 1 && count("filtered out") > 0 {
            continue;
        }
        sum.passed += passed;
        sum.failed += failed;
    }
    let is_begin = |line: &str| line.starts_with("---- ") && line.ends_with(" stdout ----");
    sum.what_failed = blocks(lines, is_begin, |line| {
        is_begin(line) || line == "failures:"
    });
    sum
}

/// The parts of the text from a line that begins one to the next that ends one, or to as many lines
/// as are kept.
fn blocks(
    lines: &[String],
    is_begin: impl Fn(&str) -> bool,
    is_end: impl Fn(&str) -> bool,
) -> Vec<String> {
    let begins = lines.iter().enumerate();
    let begins = begins.filter(|(_, line)| is_begin(line.trim()));
    let block = |(at, _): (usize, &String)| {
        let rest = lines[at + 1..].iter();
        let rest = rest.take_while(|line| !is_end(line.trim()));
        let said = rest.filter(|line| !line.trim().is_empty());
        let words = std::iter::once(&lines[at]).chain(said).take(WORDS_MOST);
        words
            .map(|line| line.trim_end())
            .collect::<Vec<_>>()
            .join("\n")
    };
    begins.map(block).collect()
}

/// Whether a line says nothing: test programs without a test print four of them.
pub fn is_idle_talk(line: &str) -> bool {
    let line = line.trim();
    line.is_empty()
        || line == "running 0 tests"
        || line.starts_with("test result: ok. 0 passed; 0 failed; 0 ignored;")
}

/// The last line, if it is `N passed, N failed`; what failed is what stands from a line that begins
/// with `FAILED` to the next that begins with `ok`, `FAILED` or `---`.
pub fn of_last_line(lines: &[String]) -> Option<Checks> {
    let last = lines
        .iter()
        .rev()
        .map(|line| line.trim())
        .find(|line| !line.is_empty())?;
    let (passed, failed) = last.split_once(", ")?;
    let is_begin = |line: &str| line.starts_with("FAILED ");
    let is_end = |line: &str| {
        let ends = ["ok ", "FAILED ", "---", "failed: "];
        ends.iter().any(|word| line.starts_with(word)) || line == last
    };
    Some(Checks {
        passed: passed.strip_suffix(" passed")?.parse().ok()?,
        failed: failed.strip_suffix(" failed")?.parse().ok()?,
        what_failed: blocks(lines, is_begin, is_end),
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
             failed; 0 ignored; 0 measured; 3 filtered out; finished in 2.00s\n\
             test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 5 filtered out; \
             finished in 2.00s",
        );
        assert_eq!(
            of_test_programs(&output),
            Checks {
                passed: 9,
                failed: 1,
                what_failed: vec![],
            }
        );
        assert_eq!(of_test_programs(&lines("error: no")), Checks::default());
    }

    #[test]
    fn the_first_words_of_what_failed_are_kept() {
        let output = lines(
            "failures:\n\n---- a::b stdout ----\n\nthread 'a::b' panicked at x.rs:1:2:\nno\n\n\
             ---- c stdout ----\nError: 5\n\nfailures:\n    a::b\n    c\n\n\
             test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out",
        );
        let said = of_test_programs(&output).what_failed;
        let first = "---- a::b stdout ----\nthread 'a::b' panicked at x.rs:1:2:\nno";
        assert_eq!(said, [first, "---- c stdout ----\nError: 5"]);
        let output = lines(
            "  ok  one\n  FAILED  two  1.0 s\nwaited for it\n    --- hearth nodes\n    n0\n\
             failed: two\n1 passed, 1 failed",
        );
        let said = of_last_line(&output).expect("a count").what_failed;
        assert_eq!(said, ["  FAILED  two  1.0 s\nwaited for it"]);
        let long = format!("FAILED  x\n{}1 passed, 1 failed", "more\n".repeat(50));
        let said = of_last_line(&lines(&long)).expect("a count").what_failed;
        assert_eq!(said[0].lines().count(), WORDS_MOST);
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
                failed: 3,
                what_failed: vec![],
            })
        );
        assert_eq!(of_last_line(&lines("12 passed, 3 failed\nmore")), None);
        assert_eq!(of_last_line(&[]), None);
    }
}
