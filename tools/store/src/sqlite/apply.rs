//! Changes as statements.
//!
//! Key items: [`change`], [`trim`], [`Counts`]. Neighbour: [`super::Sqlite`] runs them inside one
//! transaction.
//!
//! Invariant: what is done here is what [`crate::memory`] does; a property test compares them.

use rusqlite::{Connection, OptionalExtension, params};

use super::values::{Epoch, Hash, Mac, Number, number};
use crate::batch::Change;
use crate::rows::{
    CastRow, DrainRow, EventRow, FileRow, HeldRow, JobRow, Limits, NodeRow, ProgramRow, ProgramUse,
    RankEndRow, SpecRow, StreamRow, TokenRow, WarmRow,
};

/// The counter that is the number of the cluster.
pub const INSTANCE: &str = "instance";

/// Rows of the tables that are trimmed by count; counting them anew for each commit would read
/// them all.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    ended_jobs: u64,
    programs: u64,
}

impl Counts {
    /// Counts the rows.
    pub fn of(connection: &Connection) -> rusqlite::Result<Self> {
        let count = |text: &str| connection.query_row(text, [], |row| number(row, 0));
        Ok(Counts {
            ended_jobs: count("SELECT count(*) FROM jobs WHERE ended_unix_us IS NOT NULL")?,
            programs: count("SELECT count(*) FROM programs")?,
        })
    }
}

/// Makes one change.
pub fn change(
    connection: &Connection,
    counts: &mut Counts,
    change: &Change,
) -> rusqlite::Result<()> {
    match change {
        Change::PutNode(row) => put_node(connection, row),
        Change::SetWarm(row) => set_warm(connection, row),
        Change::ClearWarm(node, program) => connection
            .prepare_cached("DELETE FROM node_status WHERE node = ?1 AND program = ?2")?
            .execute(params![node, Hash(*program)])
            .map(drop),
        Change::ClearNode(node) => connection
            .prepare_cached("DELETE FROM node_status WHERE node = ?1")?
            .execute([node])
            .map(drop),
        Change::VoidBoot(node, epoch) => connection
            .prepare_cached("DELETE FROM node_status WHERE node = ?1 AND boot_epoch <> ?2")?
            .execute(params![node, Epoch(*epoch)])
            .map(drop),
        Change::TouchProgram(used) => touch_program(connection, counts, used),
        Change::PutJob(row) => put_job(connection, counts, row),
        Change::PutSpec(row) => put_spec(connection, row),
        Change::PutRankEnd(row) => put_rank_end(connection, row),
        Change::PutDrain(row) => put_drain(connection, row),
        Change::EndDrain(node) => connection
            .prepare_cached("DELETE FROM drained WHERE node = ?1")?
            .execute([node])
            .map(drop),
        Change::BeginInstance(instance) => connection
            .prepare_cached("INSERT OR IGNORE INTO counters (name, value) VALUES (?1, ?2)")?
            .execute(params![INSTANCE, Number(*instance)])
            .map(drop),
        Change::NumberJobsFrom(next) => number_from(connection, "next_job", *next),
        Change::PutFile(row) => put_file(connection, row),
        Change::ForgetFile(name) => connection
            .prepare_cached("DELETE FROM files WHERE name = ?1")?
            .execute([name])
            .map(drop),
        Change::SetHeld(row) => set_held(connection, row),
        Change::ClearHeld(node, object) => connection
            .prepare_cached("DELETE FROM node_files WHERE node = ?1 AND object = ?2")?
            .execute(params![node, Hash(*object)])
            .map(drop),
        Change::VoidHeld(node, kept) => connection
            .prepare_cached("DELETE FROM node_files WHERE node = ?1 AND boot_epoch IS NOT ?2")?
            .execute(params![node, kept.map(Epoch)])
            .map(drop),
        Change::PutCast(row) => put_cast(connection, row),
        Change::EndCast(id) => connection
            .prepare_cached("DELETE FROM casts WHERE id = ?1")?
            .execute([Number(*id)])
            .map(drop),
        Change::PutStream(row) => put_stream(connection, row),
        Change::EndStream(number) => connection
            .prepare_cached("DELETE FROM streams WHERE number = ?1")?
            .execute([number])
            .map(drop),
        Change::PutToken(row) => put_token(connection, row),
        Change::RevokeToken(id) => connection
            .prepare_cached("DELETE FROM tokens WHERE id = ?1")?
            .execute([Number(*id)])
            .map(drop),
        Change::NumberCastsFrom(next) => number_from(connection, "next_cast", *next),
        Change::AppendEvent(row) => append_event(connection, row),
    }
}

fn put_node(connection: &Connection, row: &NodeRow) -> rusqlite::Result<()> {
    // REPLACE removes the row of the machine and that of the number, if they are not the same.
    let text = "INSERT OR REPLACE INTO nodes (mac, node, boot_epoch, joined_unix_us, earlier_boots)
        VALUES (?1, ?2, ?3, ?4, ?5)";
    let epoch = row.boot_epoch.map(Epoch);
    let joined = row.joined_unix_us.map(Number);
    let earlier = serde_json::to_string(&row.earlier_boots).expect("plain data");
    connection
        .prepare_cached(text)?
        .execute(params![Mac(row.mac), row.node, epoch, joined, earlier])
        .map(drop)
}

fn set_warm(connection: &Connection, row: &WarmRow) -> rusqlite::Result<()> {
    let text = "INSERT OR REPLACE INTO node_status
        (node, program, boot_epoch, since_unix_us, pages, pristine, last_job)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    connection
        .prepare_cached(text)?
        .execute(params![
            row.node,
            Hash(row.program),
            Epoch(row.boot_epoch),
            Number(row.since_unix_us),
            row.pages,
            row.pristine,
            row.last_job.map(Number),
        ])
        .map(drop)
}

fn touch_program(
    connection: &Connection,
    counts: &mut Counts,
    used: &ProgramUse,
) -> rusqlite::Result<()> {
    let row = match super::query::program(connection, &used.hash) {
        Ok(Some(mut row)) => {
            row.add(used);
            row
        }
        // Spoilt by somebody: it begins anew, so that everything else can be written.
        Err(error) if super::query::is_unreadable(&error) => ProgramRow::first(used),
        Err(error) => return Err(error),
        Ok(None) => {
            counts.programs += 1;
            ProgramRow::first(used)
        }
    };
    let text = "INSERT OR REPLACE INTO programs
        (hash, names, bytes, first_used_unix_us, last_used_unix_us, launches, warm_launches)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let names = serde_json::to_string(&row.names).expect("strings are plain data");
    connection
        .prepare_cached(text)?
        .execute(params![
            Hash(row.hash),
            names,
            Number(row.bytes),
            Number(row.first_used_unix_us),
            Number(row.last_used_unix_us),
            Number(row.launches),
            Number(row.warm_launches),
        ])
        .map(drop)
}

fn put_job(connection: &Connection, counts: &mut Counts, row: &JobRow) -> rusqlite::Result<()> {
    number_from(connection, "next_job", row.id.saturating_add(1))?;
    let had_ended: Option<bool> = connection
        .prepare_cached("SELECT ended_unix_us IS NOT NULL FROM jobs WHERE id = ?1")?
        .query_row([Number(row.id)], |row| row.get(0))
        .optional()?;
    let has_ended = row.ended_unix_us.is_some();
    if had_ended == Some(true) && !has_ended {
        return Ok(());
    }
    if has_ended && had_ended != Some(true) {
        counts.ended_jobs += 1;
    }
    if has_ended {
        connection
            .prepare_cached("DELETE FROM job_specs WHERE id = ?1")?
            .execute([Number(row.id)])?;
        connection
            .prepare_cached("DELETE FROM rank_ends WHERE job = ?1")?
            .execute([Number(row.id)])?;
    }
    let text = "INSERT OR REPLACE INTO jobs
        (id, name, program, state, reason, ranks, nodes, submitted_unix_us, started_unix_us,
         ended_unix_us, exit_status, record)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
    connection
        .prepare_cached(text)?
        .execute(params![
            Number(row.id),
            row.name,
            Hash(row.program),
            row.state,
            row.reason,
            row.ranks,
            row.nodes,
            Number(row.submitted_unix_us),
            row.started_unix_us.map(Number),
            row.ended_unix_us.map(Number),
            row.exit_status,
            row.record,
        ])
        .map(drop)
}

fn put_spec(connection: &Connection, row: &SpecRow) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO job_specs (id, spec) VALUES (?1, ?2)")?
        .execute(params![Number(row.id), row.spec])
        .map(drop)
}

fn put_rank_end(connection: &Connection, row: &RankEndRow) -> rusqlite::Result<()> {
    let text = "INSERT OR REPLACE INTO rank_ends (job, rank, attempt, record)
        VALUES (?1, ?2, ?3, ?4)";
    connection
        .prepare_cached(text)?
        .execute(params![Number(row.job), row.rank, row.attempt, row.record])
        .map(drop)
}

fn put_drain(connection: &Connection, row: &DrainRow) -> rusqlite::Result<()> {
    let text = "INSERT OR REPLACE INTO drained (node, reason, since_unix_us, by)
        VALUES (?1, ?2, ?3, ?4)";
    connection
        .prepare_cached(text)?
        .execute(params![
            row.node,
            row.reason,
            Number(row.since_unix_us),
            row.by
        ])
        .map(drop)
}

fn number_from(connection: &Connection, counter: &str, next: u64) -> rusqlite::Result<()> {
    let text = "INSERT INTO counters (name, value) VALUES (?1, ?2)
        ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)";
    connection
        .prepare_cached(text)?
        .execute(params![counter, Number(next)])
        .map(drop)
}

fn put_file(connection: &Connection, row: &FileRow) -> rusqlite::Result<()> {
    let text = "INSERT OR REPLACE INTO files (name, object, bytes, cast_unix_us, shared)
        VALUES (?1, ?2, ?3, ?4, ?5)";
    connection
        .prepare_cached(text)?
        .execute(params![
            row.name,
            Hash(row.object),
            Number(row.bytes),
            Number(row.cast_unix_us),
            row.shared,
        ])
        .map(drop)
}

fn set_held(connection: &Connection, row: &HeldRow) -> rusqlite::Result<()> {
    let text = "INSERT OR REPLACE INTO node_files (node, object, boot_epoch, since_unix_us)
        VALUES (?1, ?2, ?3, ?4)";
    connection
        .prepare_cached(text)?
        .execute(params![
            row.node,
            Hash(row.object),
            Epoch(row.boot_epoch),
            Number(row.since_unix_us),
        ])
        .map(drop)
}

fn put_cast(connection: &Connection, row: &CastRow) -> rusqlite::Result<()> {
    number_from(connection, "next_cast", row.id.saturating_add(1))?;
    let text = "INSERT OR REPLACE INTO casts
        (id, name, object, nodes, scheme, rate, patient, began_unix_us)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    connection
        .prepare_cached(text)?
        .execute(params![
            Number(row.id),
            row.name,
            Hash(row.object),
            row.nodes,
            row.scheme,
            Number(row.rate),
            row.patient,
            Number(row.began_unix_us),
        ])
        .map(drop)
}

fn put_stream(connection: &Connection, row: &StreamRow) -> rusqlite::Result<()> {
    let text = "INSERT OR REPLACE INTO streams (number, name, spec) VALUES (?1, ?2, ?3)";
    connection
        .prepare_cached(text)?
        .execute(params![row.number, row.name, row.spec])
        .map(drop)
}

fn put_token(connection: &Connection, row: &TokenRow) -> rusqlite::Result<()> {
    number_from(connection, "next_token", row.id.saturating_add(1))?;
    let text = "INSERT OR REPLACE INTO tokens
        (id, hash, role, user, made_by, made_unix_us, expires_unix_us)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    connection
        .prepare_cached(text)?
        .execute(params![
            Number(row.id),
            Hash(row.hash),
            row.role,
            row.user,
            row.made_by,
            Number(row.made_unix_us),
            row.expires_unix_us.map(Number),
        ])
        .map(drop)
}

fn append_event(connection: &Connection, row: &EventRow) -> rusqlite::Result<()> {
    let text = "INSERT OR REPLACE INTO events
        (seq, time_unix_us, severity, kind, node, job, mac, text)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    connection
        .prepare_cached(text)?
        .execute(params![
            Number(row.seq),
            Number(row.time_unix_us),
            row.severity,
            row.kind,
            row.node,
            row.job.map(Number),
            row.mac,
            row.text,
        ])
        .map(drop)
}

/// Deletes what is over the limits.
pub fn trim(connection: &Connection, counts: &mut Counts, limits: &Limits) -> rusqlite::Result<()> {
    if let Some(surplus) = surplus(counts.ended_jobs, limits.jobs) {
        let text = "DELETE FROM jobs WHERE id IN (SELECT id FROM jobs
            WHERE ended_unix_us IS NOT NULL ORDER BY ended_unix_us, id LIMIT ?1)";
        connection.prepare_cached(text)?.execute([surplus])?;
        counts.ended_jobs = limits.jobs;
    }
    if let Some(surplus) = surplus(counts.programs, limits.programs) {
        let text = "DELETE FROM programs WHERE hash IN (SELECT hash FROM programs
            ORDER BY last_used_unix_us, hash LIMIT ?1)";
        connection.prepare_cached(text)?.execute([surplus])?;
        counts.programs = limits.programs;
    }
    let text = "DELETE FROM events WHERE seq <= (SELECT max(seq) FROM events) - ?1";
    connection
        .prepare_cached(text)?
        .execute([Number(limits.events)])
        .map(drop)
}

fn surplus(count: u64, limit: u64) -> Option<Number> {
    count
        .checked_sub(limit)
        .filter(|over| *over > 0)
        .map(Number)
}
