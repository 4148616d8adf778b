//! Rows of nodes that come after the picture of their tick was taken.
//!
//! Key types: [`LateRows`], [`LateRow`]. Neighbours: [`super::Overlay`] gives it each row that
//! comes, `monitor::late` puts those that a picture lacks to that picture, for the files.
//!
//! A row belongs to the first picture that was taken after its tick began. Only the newest row of a
//! node is known to [`super::Overlay`]: one that is late and that the next follows before the next
//! picture would be in no picture.
//!
//! Invariant: bounded: of each node one row for each of the last [`PICTURES`] pictures, the newest.
//! What is older than these is left out.

use std::collections::{BTreeMap, VecDeque};

use netstack::ids::NodeId;
use netstack::overlay::Row;
use netstack::time::Instant;

use super::NodeRow;

/// Pictures that rows can come late for.
pub const PICTURES: usize = 2;

/// A row that came after its picture.
#[derive(Debug, Clone)]
pub struct LateRow {
    /// When that picture was taken.
    pub picture: Instant,
    /// Whose row it is.
    pub node: NodeId,
    /// The row.
    pub row: NodeRow,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct LateRows {
    /// When the last pictures were taken, and the one before them: theirs are the ticks that began
    /// after it.
    pictures: VecDeque<Instant>,
    rows: BTreeMap<(Instant, NodeId), NodeRow>,
}

impl LateRows {
    /// Keeps those of a tick that began at `begin` and is over in the pictures.
    pub fn keep(&mut self, now: Instant, begin: Instant, tick: u64, rows: &[Row]) {
        let after = self.pictures.partition_point(|picture| *picture < begin);
        // None: the picture is still to come. The first: it is not known what belongs to it.
        let Some(picture) = self.pictures.get(after).filter(|_| after > 0) else {
            return;
        };
        for row in rows {
            let kept = self.rows.entry((*picture, row.node)).or_default();
            if kept.tick <= tick {
                *kept = NodeRow {
                    at: now,
                    tick,
                    values: row.values.clone(),
                };
            }
        }
    }

    /// A picture is taken: what came since the last one for those before, by their time.
    pub fn take(&mut self, now: Instant) -> Vec<LateRow> {
        if self.pictures.len() > PICTURES {
            self.pictures.pop_front();
        }
        self.pictures.push_back(now);
        let rows = std::mem::take(&mut self.rows).into_iter();
        rows.map(|((picture, node), row)| LateRow { picture, node, row })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Milliseconds.
    fn at(ms: u64) -> Instant {
        Instant::from_micros(ms * 1_000)
    }

    fn came(late: &mut LateRows, tick: u64, period_ms: u64, node: u32) {
        let row = Row {
            node: NodeId(node),
            node_time_us: 0,
            values: vec![Some(tick as i64)],
        };
        late.keep(at(0), at(tick * period_ms), tick, &[row]);
    }

    /// Picture, node and tick.
    fn taken(late: &mut LateRows, now_ms: u64) -> Vec<(u64, u32, u64)> {
        let rows = late.take(at(now_ms)).into_iter();
        rows.map(|late| {
            assert_eq!(late.row.values, [Some(late.row.tick as i64)]);
            (late.picture.as_micros() / 1_000, late.node.0, late.row.tick)
        })
        .collect()
    }

    #[test]
    fn a_late_row_belongs_to_the_first_picture_after_its_tick_began() {
        let mut late = LateRows::default();
        for second in 10..13 {
            assert_eq!(taken(&mut late, second * 1_000 + 160), []);
            // In time for the next.
            came(&mut late, second + 1, 1_000, 3);
        }
        // The picture of 12.160 lacked it, and the next tick follows before the next picture.
        came(&mut late, 12, 1_000, 3);
        came(&mut late, 13, 1_000, 3);
        // That of 11.160 too, on another node.
        came(&mut late, 11, 1_000, 5);
        assert_eq!(taken(&mut late, 13_160), [(11_160, 5, 11), (12_160, 3, 12)]);
        // Each is given once; older than two pictures is too old.
        came(&mut late, 11, 1_000, 5);
        assert_eq!(taken(&mut late, 14_160), []);
    }

    #[test]
    fn of_many_ticks_between_two_pictures_the_newest_is_kept() {
        let mut late = LateRows::default();
        taken(&mut late, 1_160);
        // Nobody knows whether an earlier picture had it.
        came(&mut late, 11, 100, 3);
        assert_eq!(taken(&mut late, 2_160), []);
        for tick in [15, 21, 14, 22] {
            came(&mut late, tick, 100, 3);
        }
        assert_eq!(taken(&mut late, 3_160), [(2_160, 3, 21)]);
        for tick in 0..1_000 {
            came(&mut late, tick, 10, 3);
        }
        assert_eq!(late.rows.len(), PICTURES);
    }
}
