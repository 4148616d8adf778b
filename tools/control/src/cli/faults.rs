//! Reports of ranks that were ended by a fault: of those that ended alike one is shown whole, the
//! others are counted.
//!
//! Key type: [`Faults`]. Neighbours: `screen` (as they come), `lists` (of a job that is over).
//!
//! Invariant: every rank that has a report is named.

use std::collections::BTreeMap;

/// What was shown, and which ranks ended like that.
#[derive(Debug, Default)]
pub struct Faults {
    /// By what happened: the rank that was shown, and the others.
    seen: BTreeMap<String, (u32, Vec<u32>)>,
}

impl Faults {
    /// Whether a report is to be shown whole: no other rank has ended for the same reason at the
    /// same instruction.
    pub fn is_news(&mut self, rank: u32, report: &str) -> bool {
        let what = headline(report);
        if let Some((_, others)) = self.seen.get_mut(&what) {
            others.push(rank);
            return false;
        }
        self.seen.insert(what, (rank, Vec::new()));
        true
    }

    /// A line for the ranks that ended as one that was shown.
    pub fn others(self) -> impl Iterator<Item = String> {
        let alike = self.seen.into_iter();
        alike.filter_map(|(what, (first, mut others))| {
            others.sort_unstable();
            let ranks = match &others[..] {
                [] => return None,
                [one] => format!("rank {one}"),
                many => format!("{} more ranks ({})", many.len(), spans(many)),
            };
            Some(format!("{ranks} ended like rank {first}: {what}"))
        })
    }
}

/// The line of a report that says what happened and where, without the address of the data, which
/// may be another on each rank. Before it there may be a line that names the rank.
fn headline(report: &str) -> String {
    let named = |line: &&str| line.starts_with("SIG");
    let first = report.lines().next().unwrap_or_default();
    let line = report.lines().take(2).find(named).unwrap_or(first);
    let parts = line
        .split(", ")
        .filter(|part| !part.contains(" address 0x"));
    parts.collect::<Vec<_>>().join(", ")
}

/// Rising numbers as `1-3, 7`.
fn spans(numbers: &[u32]) -> String {
    let runs = numbers.chunk_by(|one, next| one + 1 == *next);
    let texts = runs.map(|run| match run {
        [one] => one.to_string(),
        _ => format!("{}-{}", run[0], run[run.len() - 1]),
    });
    texts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(rank: u32, rip: &str) -> String {
        format!(
            "rank {rank} on n{rank} was ended by SIGSEGV (signal 11)\nSIGSEGV: nothing mapped there, reading address {rank:#x}, rip {rip}\n  rax {rank:016x}\n"
        )
    }

    #[test]
    fn one_of_those_alike_is_shown_and_the_others_are_counted() {
        let mut faults = Faults::default();
        let shown: Vec<u32> = (0..8)
            .filter(|rank| {
                let rip = if *rank == 5 { "0x2" } else { "0x1" };
                faults.is_news(*rank, &report(*rank, rip))
            })
            .collect();
        assert_eq!(shown, [0, 5]);
        let lines: Vec<String> = faults.others().collect();
        assert_eq!(
            lines,
            ["6 more ranks (1-4, 6-7) ended like rank 0: SIGSEGV: nothing mapped there, rip 0x1"]
        );
        let mut faults = Faults::default();
        assert!(faults.is_news(1, &report(1, "0x1")) && !faults.is_news(0, &report(0, "0x1")));
        let lines: Vec<String> = faults.others().collect();
        assert!(
            lines[0].starts_with("rank 0 ended like rank 1: SIGSEGV"),
            "{lines:?}"
        );
    }
}
