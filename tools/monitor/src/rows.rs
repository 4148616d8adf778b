//! Rows of one table of a file by their keys, a batch at a time.
//!
//! Key item: [`visit`]. Neighbour: [`crate::reader`] decodes what it finds.
//!
//! Invariant: no statement is open while somebody looks at rows. An open one holds a snapshot of
//! the file, and while there is one the write-ahead log cannot be moved into the file: it would
//! grow for as long as the reader of an export sleeps.

use std::ops::{ControlFlow, Range};

use crate::NODES_MAX;
use crate::day::{Day, Table, key, unkey};
use crate::reader::Nodes;

/// Rows of a batch.
const BATCH_ROWS: usize = 4_096;
/// So many nodes are looked up one by one; of more, everything is read in its order.
const FEW: usize = 64;

/// What a visitor gets for each row: time, node, the packed row. It says whether to go on.
pub type Visit<'a> = dyn FnMut(u64, u32, &[u8]) -> ControlFlow<()> + 'a;

/// Rows that were read.
#[derive(Default)]
struct Batch {
    /// Keys, and where each row ends among the bytes.
    rows: Vec<(i64, usize)>,
    bytes: Vec<u8>,
}

impl Batch {
    fn clear(&mut self) {
        self.rows.clear();
        self.bytes.clear();
    }

    fn push(&mut self, key: i64, packed: &[u8]) {
        self.bytes.extend_from_slice(packed);
        self.rows.push((key, self.bytes.len()));
    }

    fn visit(&self, visit: &mut Visit) -> ControlFlow<()> {
        let mut begin = 0;
        for &(key, end) in &self.rows {
            let (time, node) = unkey(key);
            visit(time, node, &self.bytes[begin..end])?;
            begin = end;
        }
        ControlFlow::Continue(())
    }
}

/// Calls `visit` for the rows of `nodes` in `table` whose times are in `times`, by time, within a
/// time by node, until it says to stop.
///
/// # Errors
/// What SQLite says.
pub fn visit(
    day: &Day,
    table: Table,
    times: Range<u64>,
    nodes: Nodes,
    visit: &mut Visit,
) -> rusqlite::Result<ControlFlow<()>> {
    match nodes {
        Nodes::Only([]) => Ok(ControlFlow::Continue(())),
        Nodes::Only(few) if few.len() <= FEW => one_by_one(day, table, times, few, visit),
        _ => in_order(day, table, times, nodes, visit),
    }
}

fn in_order(
    day: &Day,
    table: Table,
    times: Range<u64>,
    nodes: Nodes,
    visit: &mut Visit,
) -> rusqlite::Result<ControlFlow<()>> {
    let text = format!(
        "SELECT key, packed FROM {} WHERE key >= ?1 AND key < ?2 ORDER BY key LIMIT ?3",
        table.name()
    );
    let mut statement = day.connection.prepare(&text)?;
    let (mut from, to) = (key(times.start, 0), key(times.end, 0));
    let mut batch = Batch::default();
    loop {
        batch.clear();
        let mut found = 0;
        let mut rows = statement.query((from, to, BATCH_ROWS as i64))?;
        while let Some(row) = rows.next()? {
            let key = row.get(0)?;
            if nodes.has(unkey(key).1) {
                batch.push(key, row.get_ref(1)?.as_blob()?);
            }
            found += 1;
            from = key + 1;
        }
        // The statement ends before anybody looks.
        drop(rows);
        let flow = batch.visit(visit);
        if flow.is_break() || found < BATCH_ROWS {
            return Ok(flow);
        }
    }
}

fn one_by_one(
    day: &Day,
    table: Table,
    times: Range<u64>,
    nodes: &[u32],
    visit: &mut Visit,
) -> rusqlite::Result<ControlFlow<()>> {
    let connection = &day.connection;
    let text = format!("SELECT packed FROM {} WHERE key = ?1", table.name());
    let mut one = connection.prepare(&text)?;
    let text = "SELECT at FROM ticks WHERE at >= ?1 AND at < ?2 ORDER BY at LIMIT ?3";
    let mut ticks = connection.prepare(text)?;
    let room = BATCH_ROWS / nodes.len();
    let (mut batch, mut known) = (Batch::default(), Vec::new());
    let mut from = times.start;
    loop {
        batch.clear();
        known.clear();
        // One lock for all statements of the batch.
        let snapshot = connection.unchecked_transaction()?;
        if table == Table::Samples {
            let mut rows = ticks.query((from as i64, times.end as i64, room as i64))?;
            while let Some(row) = rows.next()? {
                known.push(row.get::<_, i64>(0)? as u64);
            }
        } else {
            known.extend((from..times.end).take(room));
        }
        for &time in &known {
            for &node in nodes.iter().filter(|&&node| node < NODES_MAX) {
                let key = key(time, node);
                let mut rows = one.query([key])?;
                if let Some(row) = rows.next()? {
                    batch.push(key, row.get_ref(0)?.as_blob()?);
                }
            }
        }
        snapshot.commit()?;
        let flow = batch.visit(visit);
        match known.last() {
            Some(last) if flow.is_continue() && known.len() == room => from = last + 1,
            _ => return Ok(flow),
        }
    }
}
