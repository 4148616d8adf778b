//! Which node holds which program warm: the node status table, in memory.
//!
//! Key types: [`Index`], [`Warm`] (one entry), [`Report`] (what a node says about itself).
//! Neighbours: `ledger` owns the index and writes every change of it to the store in the same
//! step; `control_events` brings in what nodes report; the job runner and the API read it.
//!
//! An entry is *believed* while its node is in service in the boot that reported it. Entries that
//! were read back from the store, and those of a node that is silent, are remembered, but not
//! believed before the same boot is heard again: the node may have been reset meanwhile.
//!
//! Invariants: only believed entries are given out; the index and the table in the store have the
//! same entries, but for changes that the store could not take yet.

use std::collections::{BTreeMap, BTreeSet};

use hearth_store::{Batch, WarmRow};

use netstack::retention::CHANGES_MAX;

use crate::programs::Hash;

/// Programs that one node can hold: the bound of its own table. What it reports beyond is not
/// kept.
const HELD_MAX: usize = 64;

/// A program that a node holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Warm {
    /// The node.
    pub node: u32,
    /// The program.
    pub program: Hash,
    /// Pages held, of 4 KiB.
    pub pages: u32,
    /// Pristine contents of touched data pages among them.
    pub pristine: u32,
    /// Since when, in microseconds since 1970.
    pub since_unix_us: u64,
    /// The last job of the program on the node, where it is known.
    pub last_job: Option<u64>,
}

/// What a node holds of one program, as it reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The program.
    pub program: Hash,
    /// Pages held, of 4 KiB.
    pub pages: u32,
    /// Pristine contents of touched data pages among them.
    pub pristine: u32,
}

/// What a node reports about its warm programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The node.
    pub node: u32,
    /// Its boot.
    pub boot_epoch: u64,
    /// It begins to report everything anew: what was known before counts no more.
    pub reset: bool,
    /// Programs that it holds.
    pub held: Vec<Held>,
    /// Programs that it holds no more.
    pub dropped: Vec<Hash>,
}

/// The entries.
#[derive(Debug, Default)]
pub struct Index {
    held: BTreeMap<(u32, Hash), WarmRow>,
    by_program: BTreeSet<(Hash, u32)>,
    /// Boots that are in service.
    joined: BTreeMap<u32, u64>,
    /// The last program that ended on each node, and its job.
    last_run: BTreeMap<u32, (Hash, u64)>,
    /// Entries that a node has begun to report anew: an entry that comes again keeps its age.
    before_reset: BTreeMap<(u32, Hash), WarmRow>,
}

impl Index {
    /// The index as the store remembers it.
    pub fn restored(rows: Vec<WarmRow>) -> Self {
        let mut index = Index::default();
        for row in rows {
            index.insert(row);
        }
        index
    }

    /// Nodes that hold `program`, by number.
    pub fn nodes(&self, program: &Hash) -> impl Iterator<Item = Warm> + use<'_> {
        let nodes = self.by_program.range((*program, 0)..=(*program, u32::MAX));
        nodes.filter_map(|(program, node)| self.believed(self.held.get(&(*node, *program))?))
    }

    /// Programs that `node` holds.
    pub fn of_node(&self, node: u32) -> impl Iterator<Item = Warm> + use<'_> {
        let rows = self.held.range((node, [0; 32])..=(node, [0xff; 32]));
        rows.filter_map(|(_, row)| self.believed(row))
    }

    /// Everything, by node.
    pub fn iter(&self) -> impl Iterator<Item = Warm> + use<'_> {
        self.held.values().filter_map(|row| self.believed(row))
    }

    /// Nodes out of service that held `program` when they were last heard, by number.
    pub fn away(&self, program: &Hash) -> impl Iterator<Item = u32> + use<'_> {
        let nodes = self.by_program.range((*program, 0)..=(*program, u32::MAX));
        let away = nodes.filter(|(_, node)| !self.joined.contains_key(node));
        away.map(|(_, node)| *node)
    }

    /// Whether `node` is out of service and held `program`, or any, when it was last heard.
    pub fn is_away(&self, node: u32, program: Option<&Hash>) -> bool {
        let rows = self.held.range((node, [0; 32])..=(node, [0xff; 32]));
        let mut held = rows.map(|((_, held), _)| held);
        !self.joined.contains_key(&node)
            && held.any(|held| program.is_none_or(|program| program == held))
    }

    /// Nodes on which `program`, or any, was the last to end: what they report of it may be on its
    /// way.
    pub fn last_ran(&self, program: Option<&Hash>) -> impl Iterator<Item = u32> + use<'_> {
        let program = program.copied();
        let ran = self.last_run.iter();
        ran.filter(move |(_, (last, _))| program.is_none_or(|program| program == *last))
            .map(|(node, _)| *node)
    }

    fn believed(&self, row: &WarmRow) -> Option<Warm> {
        (self.joined.get(&row.node) == Some(&row.boot_epoch)).then_some(Warm {
            node: row.node,
            program: row.program,
            pages: row.pages,
            pristine: row.pristine,
            since_unix_us: row.since_unix_us,
            last_job: row.last_job,
        })
    }

    /// A node joined with this boot: what it held in another is void.
    pub fn joined(&mut self, node: u32, boot_epoch: u64, batch: &mut Batch) {
        self.joined.insert(node, boot_epoch);
        let of_node = self.rows_of(node);
        let void = of_node
            .into_iter()
            .filter(|row| row.boot_epoch != boot_epoch);
        let mut any = false;
        for row in void {
            self.remove(node, row.program);
            any = true;
        }
        self.before_reset.retain(|(of, _), _| *of != node);
        if any {
            self.last_run.remove(&node);
            batch.void_boot(node, boot_epoch);
        }
    }

    /// A node is silent: what it holds is remembered, but not believed until it is heard again.
    pub fn silent(&mut self, node: u32) {
        self.joined.remove(&node);
    }

    /// A node has left, panicked or booted again: it holds nothing.
    pub fn void(&mut self, node: u32, batch: &mut Batch) {
        self.joined.remove(&node);
        self.last_run.remove(&node);
        self.before_reset.retain(|(of, _), _| *of != node);
        for row in self.rows_of(node) {
            self.remove(node, row.program);
        }
        batch.clear_node(node);
    }

    /// Takes in what a node reports; a report of a boot that has not joined, or is over, changes
    /// nothing.
    pub fn report(&mut self, report: &Report, now_unix_us: u64, batch: &mut Batch) {
        let node = report.node;
        if self.joined.get(&node) != Some(&report.boot_epoch) {
            return;
        }
        if report.reset {
            self.before_reset.retain(|(of, _), _| *of != node);
            for row in self.rows_of(node) {
                self.remove(node, row.program);
                self.before_reset.insert((node, row.program), row);
            }
            batch.clear_node(node);
        }
        for program in &report.dropped {
            self.remove(node, *program);
            self.before_reset.remove(&(node, *program));
            batch.clear_warm(node, *program);
        }
        for held in &report.held {
            let key = (node, held.program);
            let known = self.held.get(&key).or(self.before_reset.get(&key)).copied();
            if !self.held.contains_key(&key) && self.rows_of(node).len() >= HELD_MAX {
                continue;
            }
            let last_run = self.last_run.get(&node);
            let last_run = last_run.filter(|(program, _)| *program == held.program);
            let row = WarmRow {
                node,
                program: held.program,
                boot_epoch: report.boot_epoch,
                since_unix_us: known.map_or(now_unix_us, |row| row.since_unix_us),
                pages: held.pages,
                pristine: held.pristine,
                last_job: last_run
                    .map(|(_, job)| *job)
                    .or(known.and_then(|row| row.last_job)),
            };
            self.insert(row);
            batch.set_warm(row);
        }
        // A report with room left is the last of a full telling: what did not come is gone.
        if report.held.len() + report.dropped.len() < CHANGES_MAX {
            self.before_reset.retain(|(of, _), _| *of != node);
        }
    }

    /// A job of `program` has ended on `node`.
    pub fn ran(&mut self, node: u32, program: Hash, job: u64, batch: &mut Batch) {
        self.last_run.insert(node, (program, job));
        if let Some(row) = self.held.get_mut(&(node, program))
            && self.joined.get(&node) == Some(&row.boot_epoch)
        {
            row.last_job = Some(job);
            batch.set_warm(*row);
        }
    }

    /// Everything, as rows: to write the whole table anew.
    pub fn rows(&self) -> impl Iterator<Item = &WarmRow> {
        self.held.values()
    }

    fn rows_of(&self, node: u32) -> Vec<WarmRow> {
        let rows = self.held.range((node, [0; 32])..=(node, [0xff; 32]));
        rows.map(|(_, row)| *row).collect()
    }

    fn insert(&mut self, row: WarmRow) {
        self.held.insert((row.node, row.program), row);
        self.by_program.insert((row.program, row.node));
    }

    fn remove(&mut self, node: u32, program: Hash) {
        self.held.remove(&(node, program));
        self.by_program.remove(&(program, node));
    }
}

#[cfg(test)]
mod tests {
    use hearth_store::{Limits, Memory, Query, Store};

    use super::*;

    /// An index and its store, which must have the same rows after every step.
    struct Lab {
        index: Index,
        store: Memory,
        now_us: u64,
    }

    impl Lab {
        fn new() -> Self {
            Lab {
                index: Index::default(),
                store: Memory::new(Limits::default()),
                now_us: 100,
            }
        }

        fn step(&mut self, step: impl FnOnce(&mut Index, u64, &mut Batch)) {
            let mut batch = Batch::default();
            self.now_us += 1;
            step(&mut self.index, self.now_us, &mut batch);
            self.store.commit(&batch).unwrap();
            let rows: Vec<WarmRow> = self.index.rows().copied().collect();
            assert_eq!(rows, self.store.warm().unwrap());
        }

        fn report(&mut self, report: Report) {
            self.step(|index, now_us, batch| index.report(&report, now_us, batch));
        }

        fn joined(&mut self, node: u32, epoch: u64) {
            self.step(|index, _, batch| index.joined(node, epoch, batch));
        }

        fn nodes(&self, program: u8) -> Vec<u32> {
            let warm = self.index.nodes(&[program; 32]);
            warm.map(|warm| warm.node).collect()
        }
    }

    fn report(node: u32, boot_epoch: u64, reset: bool, held: &[u8], dropped: &[u8]) -> Report {
        let of = |program: &u8| Held {
            program: [*program; 32],
            pages: 10,
            pristine: 2,
        };
        Report {
            node,
            boot_epoch,
            reset,
            held: held.iter().map(of).collect(),
            dropped: dropped.iter().map(|program| [*program; 32]).collect(),
        }
    }

    #[test]
    fn what_nodes_hold_is_found_by_program_and_by_node() {
        let mut lab = Lab::new();
        for node in [3, 1] {
            lab.joined(node, 7);
            lab.report(report(node, 7, true, &[1, 2], &[]));
        }
        lab.report(report(3, 7, false, &[5], &[2]));
        assert_eq!((lab.nodes(1), lab.nodes(2)), (vec![1, 3], vec![1]));
        let programs = lab.index.of_node(3).map(|warm| warm.program[0]);
        assert_eq!(programs.collect::<Vec<_>>(), [1, 5]);
        assert_eq!(lab.index.iter().count(), 4);
    }

    #[test]
    fn another_boot_voids_what_was_known() {
        let mut lab = Lab::new();
        lab.joined(1, 7);
        lab.report(report(1, 7, true, &[1], &[]));
        lab.joined(1, 7);
        assert_eq!(lab.nodes(1), [1], "the same boot again");
        lab.joined(1, 8);
        assert_eq!(lab.nodes(1), [0; 0]);
        lab.report(report(1, 7, false, &[1], &[]));
        assert_eq!(lab.nodes(1), [0; 0], "a late report of the boot before");
        lab.report(report(2, 7, true, &[1], &[]));
        assert_eq!(lab.nodes(1), [0; 0], "a node that has not joined");
    }

    #[test]
    fn what_a_node_out_of_service_holds_is_remembered_or_void() {
        let mut lab = Lab::new();
        for node in [1, 2] {
            lab.joined(node, 7);
            lab.report(report(node, 7, true, &[1, 2], &[]));
            lab.step(|index, _, batch| index.ran(node, [2; 32], 5, batch));
        }
        lab.index.silent(1);
        lab.step(|index, _, batch| index.void(2, batch));
        assert_eq!((lab.nodes(1), lab.index.iter().count()), (vec![], 0));
        assert_eq!(lab.index.away(&[1; 32]).collect::<Vec<_>>(), [1]);
        let away = |node, program: Option<u8>| {
            let program = program.map(|program| [program; 32]);
            lab.index.is_away(node, program.as_ref())
        };
        assert!(away(1, None) && away(1, Some(2)) && !away(1, Some(3)) && !away(2, None));
        assert_eq!(lab.index.last_ran(Some(&[2; 32])).collect::<Vec<_>>(), [1]);
        lab.joined(1, 7);
        assert_eq!(
            (lab.nodes(1), lab.index.away(&[1; 32]).count()),
            (vec![1], 0)
        );
        assert!(!lab.index.is_away(1, None));
    }

    #[test]
    fn what_the_store_remembers_is_believed_when_its_boot_joins() {
        let mut lab = Lab::new();
        for node in [1, 2] {
            lab.joined(node, 7);
            lab.report(report(node, 7, true, &[1], &[]));
        }
        lab.index = Index::restored(lab.store.warm().unwrap());
        assert_eq!(lab.nodes(1), [0; 0]);
        assert_eq!(lab.index.of_node(1).count() + lab.index.iter().count(), 0);
        lab.joined(1, 7);
        lab.joined(2, 8);
        assert_eq!(lab.nodes(1), [1]);
        assert_eq!(lab.store.warm().unwrap().len(), 1);
    }

    #[test]
    fn a_full_report_keeps_the_age_of_what_is_still_held() {
        let mut lab = Lab::new();
        lab.joined(1, 7);
        lab.report(report(1, 7, true, &[1, 2, 3], &[]));
        lab.step(|index, _, batch| index.ran(1, [1; 32], 44, batch));
        let before: Vec<Warm> = lab.index.of_node(1).collect();
        assert_eq!(before[0].last_job, Some(44));
        // In two pieces; program 2 is gone.
        let mut first: Vec<u8> = (100..100 + CHANGES_MAX as u8 - 1).collect();
        first.push(3);
        lab.report(report(1, 7, true, &first, &[]));
        lab.report(report(1, 7, false, &[1], &[]));
        let after: Vec<Warm> = lab.index.of_node(1).collect();
        assert_eq!(after[..2], [before[0], before[2]]);
        // What the telling left out is forgotten: it comes again as something new.
        lab.report(report(1, 7, false, &[2], &[]));
        let again = lab.index.of_node(1).nth(1).unwrap();
        assert!(again.since_unix_us > before[1].since_unix_us);
    }

    #[test]
    fn the_last_job_is_known_whichever_comes_first() {
        let mut lab = Lab::new();
        lab.joined(1, 7);
        lab.step(|index, _, batch| index.ran(1, [1; 32], 5, batch));
        lab.report(report(1, 7, false, &[1, 2], &[]));
        let last = |lab: &Lab| {
            lab.index
                .of_node(1)
                .map(|warm| warm.last_job)
                .collect::<Vec<_>>()
        };
        assert_eq!(last(&lab), [Some(5), None]);
        lab.step(|index, _, batch| index.ran(1, [2; 32], 6, batch));
        assert_eq!(last(&lab), [Some(5), Some(6)]);
    }

    #[test]
    fn a_node_that_reports_without_end_fills_its_own_share_only() {
        let mut lab = Lab::new();
        lab.joined(1, 7);
        for program in 0..200 {
            lab.report(report(1, 7, false, &[program], &[]));
        }
        assert_eq!(lab.index.of_node(1).count(), HELD_MAX);
    }
}
