//! Changes that are written together: one batch for everything that one step of control did.
//!
//! Key types: [`Batch`], [`Change`]. Neighbours: [`crate::Store::commit`] writes a batch; control
//! keeps one that could not be written and commits it again.
//!
//! Invariant: a batch may be committed twice (the first time failed half-way, or only its answer
//! was lost) only if the store refused it the first time; the store applies all of it or nothing,
//! so counters of programs are never added twice.

use crate::rows::{
    CastRow, DrainRow, EventRow, FileRow, HeldRow, JobRow, NodeRow, ProgramHash, ProgramUse,
    RankEndRow, SpecRow, StreamRow, TokenRow, WarmRow,
};

/// One change, in the order in which it happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// See [`Batch::put_node`].
    PutNode(NodeRow),
    /// See [`Batch::set_warm`].
    SetWarm(WarmRow),
    /// See [`Batch::clear_warm`].
    ClearWarm(u32, ProgramHash),
    /// See [`Batch::clear_node`].
    ClearNode(u32),
    /// See [`Batch::void_boot`].
    VoidBoot(u32, u64),
    /// See [`Batch::touch_program`].
    TouchProgram(ProgramUse),
    /// See [`Batch::put_job`] and [`Batch::finish_job`].
    PutJob(JobRow),
    /// See [`Batch::put_spec`].
    PutSpec(SpecRow),
    /// See [`Batch::put_rank_end`].
    PutRankEnd(RankEndRow),
    /// See [`Batch::put_drain`].
    PutDrain(DrainRow),
    /// See [`Batch::end_drain`].
    EndDrain(u32),
    /// See [`Batch::begin_instance`].
    BeginInstance(u64),
    /// See [`Batch::number_jobs_from`].
    NumberJobsFrom(u64),
    /// See [`Batch::put_file`].
    PutFile(FileRow),
    /// See [`Batch::forget_file`].
    ForgetFile(String),
    /// See [`Batch::set_held`].
    SetHeld(HeldRow),
    /// See [`Batch::clear_held`].
    ClearHeld(u32, ProgramHash),
    /// See [`Batch::void_held`].
    VoidHeld(u32, Option<u64>),
    /// See [`Batch::put_cast`].
    PutCast(CastRow),
    /// See [`Batch::end_cast`].
    EndCast(u64),
    /// See [`Batch::number_casts_from`].
    NumberCastsFrom(u64),
    /// See [`Batch::put_stream`].
    PutStream(StreamRow),
    /// See [`Batch::end_stream`].
    EndStream(u16),
    /// See [`Batch::put_token`].
    PutToken(TokenRow),
    /// See [`Batch::revoke_token`].
    RevokeToken(u64),
    /// See [`Batch::append_event`].
    AppendEvent(EventRow),
}

/// Changes to be written together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    changes: Vec<Change>,
    /// Bytes of the records and specs of jobs among them.
    record_bytes: usize,
}

impl Batch {
    /// Keeps the number of a machine, and the boot it joined with. A machine has one number and a
    /// number one machine: whoever had the number before loses it.
    pub fn put_node(&mut self, row: NodeRow) {
        self.changes.push(Change::PutNode(row));
    }

    /// A node holds a program; replaces what was said about the two before.
    pub fn set_warm(&mut self, row: WarmRow) {
        self.changes.push(Change::SetWarm(row));
    }

    /// A node does not hold a program any more.
    pub fn clear_warm(&mut self, node: u32, program: ProgramHash) {
        self.changes.push(Change::ClearWarm(node, program));
    }

    /// A node holds nothing.
    pub fn clear_node(&mut self, node: u32) {
        self.changes.push(Change::ClearNode(node));
    }

    /// A node is in boot `boot_epoch`: what it held in any other is gone.
    pub fn void_boot(&mut self, node: u32, boot_epoch: u64) {
        self.changes.push(Change::VoidBoot(node, boot_epoch));
    }

    /// A program was used.
    pub fn touch_program(&mut self, used: ProgramUse) {
        self.changes.push(Change::TouchProgram(used));
    }

    /// A job was accepted, or has got further. What is known of a job that has ended stays.
    pub fn put_job(&mut self, row: JobRow) {
        self.record_bytes += row.record.len();
        self.changes.push(Change::PutJob(row));
    }

    /// A job has ended, having used its program.
    pub fn finish_job(&mut self, row: JobRow, used: ProgramUse) {
        assert!(row.ended_unix_us.is_some(), "job {} has ended", row.id);
        self.put_job(row);
        self.changes.push(Change::TouchProgram(used));
    }

    /// What a job was asked to be; it goes when the job has ended.
    pub fn put_spec(&mut self, row: SpecRow) {
        self.record_bytes += row.spec.len();
        self.changes.push(Change::PutSpec(row));
    }

    /// A rank of a job has ended before the others; it goes when the job has ended.
    pub fn put_rank_end(&mut self, row: RankEndRow) {
        self.record_bytes += row.record.len();
        self.changes.push(Change::PutRankEnd(row));
    }

    /// A node gets no jobs from now on; replaces what was said about it before.
    pub fn put_drain(&mut self, row: DrainRow) {
        self.changes.push(Change::PutDrain(row));
    }

    /// A node gets jobs again.
    pub fn end_drain(&mut self, node: u32) {
        self.changes.push(Change::EndDrain(node));
    }

    /// The cluster gets its number, unless it has one.
    pub fn begin_instance(&mut self, instance: u64) {
        self.changes.push(Change::BeginInstance(instance));
    }

    /// Jobs are numbered from `next` on, or from where they are if that is further.
    pub fn number_jobs_from(&mut self, next: u64) {
        self.changes.push(Change::NumberJobsFrom(next));
    }

    /// A name stands for a content that was cast; replaces what it stood for.
    pub fn put_file(&mut self, row: FileRow) {
        self.changes.push(Change::PutFile(row));
    }

    /// A name stands for nothing any more.
    pub fn forget_file(&mut self, name: &str) {
        self.changes.push(Change::ForgetFile(name.to_string()));
    }

    /// A node holds a cast file.
    pub fn set_held(&mut self, row: HeldRow) {
        self.changes.push(Change::SetHeld(row));
    }

    /// A node does not hold a cast file any more.
    pub fn clear_held(&mut self, node: u32, object: ProgramHash) {
        self.changes.push(Change::ClearHeld(node, object));
    }

    /// A node holds no cast files but those of the boot `kept`, if there is one.
    pub fn void_held(&mut self, node: u32, kept: Option<u64>) {
        self.changes.push(Change::VoidHeld(node, kept));
    }

    /// A cast has begun, or its nodes have changed.
    pub fn put_cast(&mut self, row: CastRow) {
        self.changes.push(Change::PutCast(row));
    }

    /// A cast is over.
    pub fn end_cast(&mut self, id: u64) {
        self.changes.push(Change::EndCast(id));
    }

    /// Somebody has opened a stream.
    pub fn put_stream(&mut self, row: StreamRow) {
        self.changes.push(Change::PutStream(row));
    }

    /// A stream was closed, or has ended.
    pub fn end_stream(&mut self, number: u16) {
        self.changes.push(Change::EndStream(number));
    }

    /// Somebody has made a token. Tokens are numbered on from the highest there has been.
    pub fn put_token(&mut self, row: TokenRow) {
        self.changes.push(Change::PutToken(row));
    }

    /// A token is good no more.
    pub fn revoke_token(&mut self, id: u64) {
        self.changes.push(Change::RevokeToken(id));
    }

    /// Casts are numbered from `next` on, or from where they are if that is further.
    pub fn number_casts_from(&mut self, next: u64) {
        self.changes.push(Change::NumberCastsFrom(next));
    }

    /// Adds all changes of `other`, which has none then.
    pub fn append(&mut self, other: &mut Batch) {
        self.changes.append(&mut other.changes);
        self.record_bytes += std::mem::take(&mut other.record_bytes);
    }

    /// Something happened. Events are appended in the order of their numbers.
    pub fn append_event(&mut self, row: EventRow) {
        self.changes.push(Change::AppendEvent(row));
    }

    /// The changes, oldest first.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Number of changes.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Forgets everything, after it was written.
    pub fn clear(&mut self) {
        self.changes.clear();
        self.record_bytes = 0;
    }

    /// Drops changes until at most `most` are left, with records of jobs of `most_bytes`, and says
    /// how many were dropped: the oldest jobs for their bytes; then for their number events first,
    /// which matter least, then the oldest.
    pub fn shed(&mut self, most: usize, most_bytes: usize) -> usize {
        let before = self.changes.len();
        if before <= most && self.record_bytes <= most_bytes {
            return 0;
        }
        let record_bytes = |change: &Change| match change {
            Change::PutJob(row) => row.record.len(),
            Change::PutSpec(row) => row.spec.len(),
            Change::PutRankEnd(row) => row.record.len(),
            _ => 0,
        };
        let mut over = self.record_bytes.saturating_sub(most_bytes);
        self.changes.retain(|change| {
            let bytes = record_bytes(change);
            let goes = over > 0 && bytes > 0;
            over = over.saturating_sub(bytes);
            !goes
        });
        self.shed_count(most);
        self.record_bytes = self.changes.iter().map(record_bytes).sum();
        before - self.changes.len()
    }

    fn shed_count(&mut self, most: usize) {
        let surplus = self.changes.len().saturating_sub(most);
        let mut left = surplus;
        self.changes.retain(|change| {
            let goes = left > 0 && matches!(change, Change::AppendEvent(_));
            left -= usize::from(goes);
            !goes
        });
        self.changes.drain(..left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_shed_before_anything_else_and_the_oldest_first() {
        let mut batch = Batch::default();
        let event = |seq| EventRow {
            seq,
            time_unix_us: 0,
            severity: String::new(),
            kind: String::new(),
            node: None,
            job: None,
            mac: None,
            text: String::new(),
        };
        for number in 1..=3 {
            batch.clear_node(number);
            batch.append_event(event(u64::from(number)));
        }
        assert_eq!(batch.shed(6, 0), 0);
        assert_eq!(batch.shed(4, 0), 2);
        let left = [
            Change::ClearNode(1),
            Change::ClearNode(2),
            Change::ClearNode(3),
            Change::AppendEvent(event(3)),
        ];
        assert_eq!(batch.changes(), left);
        assert_eq!(batch.shed(2, 0), 2);
        assert_eq!(batch.changes(), &left[1..3]);
    }

    #[test]
    fn records_of_jobs_are_shed_for_their_bytes() {
        let mut batch = Batch::default();
        for id in 1..=3 {
            batch.put_job(JobRow {
                id,
                name: String::new(),
                program: [0; 32],
                state: String::new(),
                reason: String::new(),
                ranks: 1,
                nodes: String::new(),
                submitted_unix_us: 0,
                started_unix_us: None,
                ended_unix_us: None,
                exit_status: None,
                record: "x".repeat(100),
            });
            batch.clear_node(1);
        }
        assert_eq!(batch.shed(100, 300), 0);
        assert_eq!(batch.shed(100, 199), 2);
        let left = batch.changes().iter();
        let jobs = left.filter(|change| matches!(change, Change::PutJob(row) if row.id == 3));
        assert_eq!((jobs.count(), batch.len()), (1, 4));
    }
}
