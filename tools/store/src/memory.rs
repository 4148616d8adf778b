//! A store in memory, for tests and simulation.
//!
//! Key types: [`Memory`]. Neighbour: [`crate::sqlite`] does the same on disk; this one is the plain
//! model that its tests compare it with.
//!
//! Invariant: the bounds are those of the store on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::batch::{Batch, Change};
use crate::error::StoreError;
use crate::rows::{
    CastRow, DrainRow, EventRow, FileRow, HeldRow, JobRow, Limits, NodeRow, ProgramHash,
    ProgramRow, RankEndRow, SpecRow, StreamRow, TokenRow, WarmRow,
};
use crate::{Query, Store};

/// A store that lasts as long as the process. Clones are views of the same store.
#[derive(Debug, Clone)]
pub struct Memory {
    limits: Limits,
    tables: Arc<Mutex<Tables>>,
}

#[derive(Debug, Default)]
struct Tables {
    nodes: BTreeMap<u32, NodeRow>,
    warm: BTreeMap<(u32, ProgramHash), WarmRow>,
    programs: BTreeMap<ProgramHash, ProgramRow>,
    jobs: BTreeMap<u64, JobRow>,
    specs: BTreeMap<u64, String>,
    rank_ends: BTreeMap<(u64, u32), RankEndRow>,
    drains: BTreeMap<u32, DrainRow>,
    instance: Option<u64>,
    /// Jobs that have ended, by the moment they did.
    ended: BTreeSet<(u64, u64)>,
    events: BTreeMap<u64, EventRow>,
    next_job: u64,
    files: BTreeMap<String, FileRow>,
    held: BTreeMap<(u32, ProgramHash), HeldRow>,
    casts: BTreeMap<u64, CastRow>,
    next_cast: u64,
    streams: BTreeMap<u16, StreamRow>,
    tokens: BTreeMap<u64, TokenRow>,
    next_token: u64,
}

impl Memory {
    /// An empty store.
    pub fn new(limits: Limits) -> Self {
        Memory {
            limits,
            tables: Arc::default(),
        }
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().expect("no panic while held")
    }
}

impl Store for Memory {
    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let mut tables = self.tables();
        for change in batch.changes() {
            tables.apply(change);
        }
        tables.trim(&self.limits);
        Ok(())
    }

    fn reader(&self) -> Result<Box<dyn Query + Send>, StoreError> {
        Ok(Box::new(self.clone()))
    }
}

impl Tables {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::PutNode(row) => {
                self.nodes.retain(|_, known| known.mac != row.mac);
                self.nodes.insert(row.node, row.clone());
            }
            Change::SetWarm(row) => drop(self.warm.insert((row.node, row.program), *row)),
            Change::ClearWarm(node, program) => drop(self.warm.remove(&(*node, *program))),
            Change::ClearNode(node) => self.warm.retain(|(of, _), _| of != node),
            Change::VoidBoot(node, epoch) => {
                let stays = |row: &WarmRow| row.node != *node || row.boot_epoch == *epoch;
                self.warm.retain(|_, row| stays(row));
            }
            Change::TouchProgram(used) => {
                let known = self.programs.get_mut(&used.hash);
                match known {
                    Some(row) => row.add(used),
                    None => drop(self.programs.insert(used.hash, ProgramRow::first(used))),
                }
            }
            Change::PutJob(row) => self.put_job(row),
            Change::PutSpec(row) => drop(self.specs.insert(row.id, row.spec.clone())),
            Change::PutRankEnd(row) => {
                drop(self.rank_ends.insert((row.job, row.rank), row.clone()));
            }
            Change::PutDrain(row) => drop(self.drains.insert(row.node, row.clone())),
            Change::EndDrain(node) => drop(self.drains.remove(node)),
            Change::BeginInstance(instance) => {
                self.instance.get_or_insert(*instance);
            }
            Change::NumberJobsFrom(next) => self.next_job = self.next_job.max(*next),
            Change::PutFile(row) => drop(self.files.insert(row.name.clone(), row.clone())),
            Change::ForgetFile(name) => drop(self.files.remove(name)),
            Change::SetHeld(row) => drop(self.held.insert((row.node, row.object), *row)),
            Change::ClearHeld(node, object) => drop(self.held.remove(&(*node, *object))),
            Change::VoidHeld(node, kept) => {
                let stays = |row: &HeldRow| row.node != *node || Some(row.boot_epoch) == *kept;
                self.held.retain(|_, row| stays(row));
            }
            Change::PutCast(row) => {
                self.next_cast = self.next_cast.max(row.id.saturating_add(1));
                self.casts.insert(row.id, row.clone());
            }
            Change::EndCast(id) => drop(self.casts.remove(id)),
            Change::PutStream(row) => drop(self.streams.insert(row.number, row.clone())),
            Change::EndStream(number) => drop(self.streams.remove(number)),
            Change::PutToken(row) => {
                self.next_token = self.next_token.max(row.id.saturating_add(1));
                self.tokens.insert(row.id, row.clone());
            }
            Change::RevokeToken(id) => drop(self.tokens.remove(id)),
            Change::NumberCastsFrom(next) => self.next_cast = self.next_cast.max(*next),
            Change::AppendEvent(row) => drop(self.events.insert(row.seq, row.clone())),
        }
    }

    fn put_job(&mut self, row: &JobRow) {
        self.next_job = self.next_job.max(row.id.saturating_add(1));
        if let Some(known) = self.jobs.get(&row.id)
            && let Some(ended) = known.ended_unix_us
        {
            if row.ended_unix_us.is_none() {
                return;
            }
            self.ended.remove(&(ended, row.id));
        }
        if let Some(ended) = row.ended_unix_us {
            self.ended.insert((ended, row.id));
            self.specs.remove(&row.id);
            self.rank_ends.retain(|(job, _), _| *job != row.id);
        }
        self.jobs.insert(row.id, row.clone());
    }

    fn trim(&mut self, limits: &Limits) {
        while self.ended.len() as u64 > limits.jobs {
            let (_, id) = self.ended.pop_first().expect("not empty");
            self.jobs.remove(&id);
        }
        while self.programs.len() as u64 > limits.programs {
            let age = |row: &&ProgramRow| (row.last_used_unix_us, row.hash);
            let oldest = self.programs.values().min_by_key(age).expect("not empty");
            let hash = oldest.hash;
            self.programs.remove(&hash);
        }
        if let Some((newest, _)) = self.events.last_key_value() {
            let gone = newest.saturating_sub(limits.events);
            self.events.retain(|seq, _| *seq > gone);
        }
    }
}

impl Query for Memory {
    fn nodes(&self) -> Result<Vec<NodeRow>, StoreError> {
        Ok(self.tables().nodes.values().cloned().collect())
    }

    fn warm(&self) -> Result<Vec<WarmRow>, StoreError> {
        Ok(self.tables().warm.values().copied().collect())
    }

    fn programs(&self, limit: u32) -> Result<Vec<ProgramRow>, StoreError> {
        let mut rows: Vec<ProgramRow> = self.tables().programs.values().cloned().collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.last_used_unix_us), row.hash));
        rows.truncate(limit as usize);
        Ok(rows)
    }

    fn job(&self, id: u64) -> Result<Option<JobRow>, StoreError> {
        Ok(self.tables().jobs.get(&id).cloned())
    }

    fn each_ended_job(
        &self,
        before: Option<u64>,
        each: &mut dyn FnMut(JobRow) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let tables = self.tables();
        let below = tables.jobs.range(..before.unwrap_or(u64::MAX)).rev();
        let ended = below.filter(|(_, row)| row.ended_unix_us.is_some());
        for (_, row) in ended {
            if each(row.clone()).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn open_jobs(&self, limit: u32) -> Result<Vec<JobRow>, StoreError> {
        let tables = self.tables();
        let open = tables
            .jobs
            .values()
            .filter(|row| row.ended_unix_us.is_none());
        Ok(open.take(limit as usize).cloned().collect())
    }

    fn specs(&self, limit: u32) -> Result<Vec<SpecRow>, StoreError> {
        let tables = self.tables();
        let is_open = |id: &u64| {
            tables
                .jobs
                .get(id)
                .is_some_and(|row| row.ended_unix_us.is_none())
        };
        let open = tables.specs.iter().filter(|(id, _)| is_open(id));
        let rows = open.take(limit as usize).map(|(id, spec)| SpecRow {
            id: *id,
            spec: spec.clone(),
        });
        Ok(rows.collect())
    }

    fn rank_ends(&self, limit: u32) -> Result<Vec<RankEndRow>, StoreError> {
        let tables = self.tables();
        let jobs = &tables.jobs;
        let is_open = |row: &&RankEndRow| {
            let job = jobs.get(&row.job);
            job.is_some_and(|job| job.ended_unix_us.is_none())
        };
        let rows = tables.rank_ends.values().filter(is_open);
        Ok(rows.take(limit as usize).cloned().collect())
    }

    fn drains(&self) -> Result<Vec<DrainRow>, StoreError> {
        Ok(self.tables().drains.values().cloned().collect())
    }

    fn instance(&self) -> Result<Option<u64>, StoreError> {
        Ok(self.tables().instance)
    }

    fn events(&self, after: u64, limit: u32) -> Result<Vec<EventRow>, StoreError> {
        let tables = self.tables();
        let later = tables.events.range(after.saturating_add(1)..);
        let rows = later.take(limit as usize).map(|(_, row)| row.clone());
        Ok(rows.collect())
    }

    fn files(&self) -> Result<Vec<FileRow>, StoreError> {
        Ok(self.tables().files.values().cloned().collect())
    }

    fn held(&self) -> Result<Vec<HeldRow>, StoreError> {
        Ok(self.tables().held.values().copied().collect())
    }

    fn casts(&self) -> Result<Vec<CastRow>, StoreError> {
        Ok(self.tables().casts.values().cloned().collect())
    }

    fn tokens(&self) -> Result<Vec<TokenRow>, StoreError> {
        Ok(self.tables().tokens.values().cloned().collect())
    }

    fn next_token(&self) -> Result<u64, StoreError> {
        Ok(self.tables().next_token.max(1))
    }

    fn streams(&self) -> Result<Vec<StreamRow>, StoreError> {
        Ok(self.tables().streams.values().cloned().collect())
    }

    fn next_cast(&self) -> Result<u64, StoreError> {
        Ok(self.tables().next_cast.max(1))
    }

    fn next_job(&self) -> Result<u64, StoreError> {
        Ok(self.tables().next_job.max(1))
    }

    fn next_event(&self) -> Result<u64, StoreError> {
        let tables = self.tables();
        let newest = tables.events.last_key_value();
        Ok(newest.map_or(1, |(seq, _)| seq.saturating_add(1)))
    }
}
