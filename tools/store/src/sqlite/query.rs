//! Queries.
//!
//! Key item: the implementation of [`Query`]. Neighbour: `apply` writes what is read here.

use std::ops::ControlFlow;

use rusqlite::{Connection, OptionalExtension, Params, Row};

use super::open::note_damage;
use super::values::{Epoch, Hash, Mac, Number, number, optional_number};
use super::{Sqlite, apply};
use crate::Query;
use crate::error::StoreError;
use crate::rows::{
    CastRow, DrainRow, EventRow, FileRow, HeldRow, JobRow, NodeRow, ProgramHash, ProgramRow,
    RankEndRow, SpecRow, StreamRow, TokenRow, WarmRow,
};

const PROGRAM: &str =
    "hash, names, bytes, first_used_unix_us, last_used_unix_us, launches, warm_launches";
const JOB: &str = "id, name, program, state, reason, ranks, nodes, submitted_unix_us, \
     started_unix_us, ended_unix_us, exit_status, record";

impl Query for Sqlite {
    fn nodes(&self) -> Result<Vec<NodeRow>, StoreError> {
        let text =
            "SELECT mac, node, boot_epoch, joined_unix_us, earlier_boots FROM nodes ORDER BY node";
        self.rows(text, [], |row| {
            let earlier: String = row.get(4)?;
            Ok(NodeRow {
                mac: row.get::<_, Mac>(0)?.0,
                node: row.get(1)?,
                boot_epoch: row.get::<_, Option<Epoch>>(2)?.map(|epoch| epoch.0),
                joined_unix_us: optional_number(row, 3)?,
                earlier_boots: serde_json::from_str(&earlier).map_err(not_json(4))?,
            })
        })
    }

    fn warm(&self) -> Result<Vec<WarmRow>, StoreError> {
        let text = "SELECT node, program, boot_epoch, since_unix_us, pages, pristine, last_job
            FROM node_status ORDER BY node, program";
        self.rows(text, [], |row| {
            Ok(WarmRow {
                node: row.get(0)?,
                program: row.get::<_, Hash>(1)?.0,
                boot_epoch: row.get::<_, Epoch>(2)?.0,
                since_unix_us: number(row, 3)?,
                pages: row.get(4)?,
                pristine: row.get(5)?,
                last_job: optional_number(row, 6)?,
            })
        })
    }

    fn programs(&self, limit: u32) -> Result<Vec<ProgramRow>, StoreError> {
        let order = "last_used_unix_us DESC, hash";
        let text = format!("SELECT {PROGRAM} FROM programs ORDER BY {order} LIMIT ?1");
        self.rows(&text, [limit], program_row)
    }

    fn job(&self, id: u64) -> Result<Option<JobRow>, StoreError> {
        let text = format!("SELECT {JOB} FROM jobs WHERE id = ?1");
        Ok(self.rows(&text, [Number(id)], job_row)?.pop())
    }

    fn each_ended_job(
        &self,
        before: Option<u64>,
        each: &mut dyn FnMut(JobRow) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let text = format!(
            "SELECT {JOB} FROM jobs NOT INDEXED WHERE ended_unix_us IS NOT NULL AND id < ?1 ORDER BY id DESC"
        );
        let before = Number(before.unwrap_or(u64::MAX));
        self.each_row(&text, [before], job_row, each)
    }

    fn open_jobs(&self, limit: u32) -> Result<Vec<JobRow>, StoreError> {
        let text =
            format!("SELECT {JOB} FROM jobs WHERE ended_unix_us IS NULL ORDER BY id LIMIT ?1");
        self.rows(&text, [limit], job_row)
    }

    fn specs(&self, limit: u32) -> Result<Vec<SpecRow>, StoreError> {
        let text = "SELECT job_specs.id, spec FROM job_specs JOIN jobs USING (id)
            WHERE ended_unix_us IS NULL ORDER BY job_specs.id LIMIT ?1";
        self.rows(text, [limit], |row| {
            Ok(SpecRow {
                id: number(row, 0)?,
                spec: row.get(1)?,
            })
        })
    }

    fn rank_ends(&self, limit: u32) -> Result<Vec<RankEndRow>, StoreError> {
        let text = "SELECT job, rank, attempt, rank_ends.record FROM rank_ends
            JOIN jobs ON jobs.id = rank_ends.job
            WHERE ended_unix_us IS NULL ORDER BY job, rank LIMIT ?1";
        self.rows(text, [limit], |row| {
            Ok(RankEndRow {
                job: number(row, 0)?,
                rank: row.get(1)?,
                attempt: row.get(2)?,
                record: row.get(3)?,
            })
        })
    }

    fn streams(&self) -> Result<Vec<StreamRow>, StoreError> {
        let text = "SELECT number, name, spec FROM streams ORDER BY number";
        self.rows(text, [], |row| {
            Ok(StreamRow {
                number: row.get(0)?,
                name: row.get(1)?,
                spec: row.get(2)?,
            })
        })
    }

    fn tokens(&self) -> Result<Vec<TokenRow>, StoreError> {
        let text = "SELECT id, hash, role, user, made_by, made_unix_us, expires_unix_us
            FROM tokens ORDER BY id";
        self.rows(text, [], |row| {
            Ok(TokenRow {
                id: number(row, 0)?,
                hash: row.get::<_, Hash>(1)?.0,
                role: row.get(2)?,
                user: row.get(3)?,
                made_by: row.get(4)?,
                made_unix_us: number(row, 5)?,
                expires_unix_us: optional_number(row, 6)?,
            })
        })
    }

    fn drains(&self) -> Result<Vec<DrainRow>, StoreError> {
        let text = "SELECT node, reason, since_unix_us, by FROM drained ORDER BY node";
        self.rows(text, [], |row| {
            Ok(DrainRow {
                node: row.get(0)?,
                reason: row.get(1)?,
                since_unix_us: number(row, 2)?,
                by: row.get(3)?,
            })
        })
    }

    fn instance(&self) -> Result<Option<u64>, StoreError> {
        let text = "SELECT value FROM counters WHERE name = ?1";
        let found = self.rows(text, [apply::INSTANCE], |row| number(row, 0))?;
        Ok(found.first().copied())
    }

    fn events(&self, after: u64, limit: u32) -> Result<Vec<EventRow>, StoreError> {
        let text = "SELECT seq, time_unix_us, severity, kind, node, job, mac, text FROM events
            WHERE seq > ?1 ORDER BY seq LIMIT ?2";
        self.rows(text, (Number(after), limit), |row| {
            Ok(EventRow {
                seq: number(row, 0)?,
                time_unix_us: number(row, 1)?,
                severity: row.get(2)?,
                kind: row.get(3)?,
                node: row.get(4)?,
                job: optional_number(row, 5)?,
                mac: row.get(6)?,
                text: row.get(7)?,
            })
        })
    }

    fn files(&self) -> Result<Vec<FileRow>, StoreError> {
        let text = "SELECT name, object, bytes, cast_unix_us, shared FROM files ORDER BY name";
        self.rows(text, [], |row| {
            Ok(FileRow {
                name: row.get(0)?,
                object: row.get::<_, Hash>(1)?.0,
                bytes: number(row, 2)?,
                cast_unix_us: number(row, 3)?,
                shared: row.get(4)?,
            })
        })
    }

    fn held(&self) -> Result<Vec<HeldRow>, StoreError> {
        let text = "SELECT node, object, boot_epoch, since_unix_us FROM node_files
            ORDER BY node, object";
        self.rows(text, [], |row| {
            Ok(HeldRow {
                node: row.get(0)?,
                object: row.get::<_, Hash>(1)?.0,
                boot_epoch: row.get::<_, Epoch>(2)?.0,
                since_unix_us: number(row, 3)?,
            })
        })
    }

    fn casts(&self) -> Result<Vec<CastRow>, StoreError> {
        let text = "SELECT id, name, object, nodes, scheme, rate, patient, began_unix_us FROM casts
            ORDER BY id";
        self.rows(text, [], |row| {
            Ok(CastRow {
                id: number(row, 0)?,
                name: row.get(1)?,
                object: row.get::<_, Hash>(2)?.0,
                nodes: row.get(3)?,
                scheme: row.get(4)?,
                rate: number(row, 5)?,
                patient: row.get(6)?,
                began_unix_us: number(row, 7)?,
            })
        })
    }

    fn next_token(&self) -> Result<u64, StoreError> {
        self.counter("next_token")
    }

    fn next_cast(&self) -> Result<u64, StoreError> {
        self.counter("next_cast")
    }

    fn next_job(&self) -> Result<u64, StoreError> {
        self.counter("next_job")
    }

    fn next_event(&self) -> Result<u64, StoreError> {
        let text = "SELECT max(seq) FROM events";
        let newest = self.rows(text, [], |row| optional_number(row, 0))?.pop();
        Ok(newest.flatten().map_or(1, |seq| seq.saturating_add(1)))
    }
}

impl Sqlite {
    /// A counter, from 1.
    fn counter(&self, name: &str) -> Result<u64, StoreError> {
        let text = "SELECT value FROM counters WHERE name = ?1";
        let next = self.rows(text, [name], |row| number(row, 0))?.pop();
        Ok(next.unwrap_or(1).max(1))
    }

    fn rows<T>(
        &self,
        text: &str,
        parameters: impl Params,
        of: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let mut found = Vec::new();
        self.each_row(text, parameters, of, &mut |row| {
            found.push(row);
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    fn each_row<T>(
        &self,
        text: &str,
        parameters: impl Params,
        of: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
        each: &mut dyn FnMut(T) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let read = || -> rusqlite::Result<()> {
            let mut statement = self.connection.prepare_cached(text)?;
            for row in statement.query_map(parameters, of)? {
                match row {
                    Ok(row) => {
                        if each(row).is_break() {
                            return Ok(());
                        }
                    }
                    // One row that somebody has spoilt must not hide the others.
                    Err(error) if is_unreadable(&error) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        };
        let done = read().map_err(|source| self.failed("read", source));
        note_damage(&self.path, &done);
        done
    }
}

/// Whether a row has a value that is not written here.
pub fn is_unreadable(error: &rusqlite::Error) -> bool {
    use rusqlite::Error;
    matches!(
        error,
        Error::FromSqlConversionFailure(..)
            | Error::IntegralValueOutOfRange(..)
            | Error::InvalidColumnType(..)
    )
}

/// The row of one program.
pub fn program(
    connection: &Connection,
    hash: &ProgramHash,
) -> rusqlite::Result<Option<ProgramRow>> {
    let text = format!("SELECT {PROGRAM} FROM programs WHERE hash = ?1");
    let mut statement = connection.prepare_cached(&text)?;
    statement.query_row([Hash(*hash)], program_row).optional()
}

/// JSON in a column that cannot be read.
fn not_json(column: usize) -> impl Fn(serde_json::Error) -> rusqlite::Error {
    let kind = rusqlite::types::Type::Text;
    move |error| rusqlite::Error::FromSqlConversionFailure(column, kind, Box::new(error))
}

fn program_row(row: &Row<'_>) -> rusqlite::Result<ProgramRow> {
    let names: String = row.get(1)?;
    let names = serde_json::from_str(&names).map_err(not_json(1))?;
    Ok(ProgramRow {
        hash: row.get::<_, Hash>(0)?.0,
        names,
        bytes: number(row, 2)?,
        first_used_unix_us: number(row, 3)?,
        last_used_unix_us: number(row, 4)?,
        launches: number(row, 5)?,
        warm_launches: number(row, 6)?,
    })
}

fn job_row(row: &Row<'_>) -> rusqlite::Result<JobRow> {
    Ok(JobRow {
        id: number(row, 0)?,
        name: row.get(1)?,
        program: row.get::<_, Hash>(2)?.0,
        state: row.get(3)?,
        reason: row.get(4)?,
        ranks: row.get(5)?,
        nodes: row.get(6)?,
        submitted_unix_us: number(row, 7)?,
        started_unix_us: optional_number(row, 8)?,
        ended_unix_us: optional_number(row, 9)?,
        exit_status: row.get(10)?,
        record: row.get(11)?,
    })
}
