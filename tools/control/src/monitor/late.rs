//! What came of nodes after the picture that it belongs to: the files have it at the time of that
//! picture.
//!
//! Key types: [`Lacking`], which knows what the last pictures lack, beside the control state;
//! [`Held`], on the thread that writes: a picture that lacks something waits for it there.
//! Neighbours: `overlay::late` keeps rows that are late, [`super::sample`] asks, [`super::keeping`]
//! writes.
//!
//! Invariants: bounded by [`PICTURES`], in pictures; a picture that was published is not changed;
//! of a node and a tick one row is written, and no row of the overlay is written for two ticks.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use netstack::ids::JobId;
use netstack::time::Instant;

use super::newest::Newest;
use super::picture::{LateValues, NodeNow, Picture};
use super::{Shown, last_counted, metrics};
use crate::overlay::late::{LateRow, PICTURES};

/// The node has values in its picture, and none of them was read anew.
fn lacks(node: &NodeNow) -> bool {
    node.repeated && !node.values.is_empty()
}

/// What the last pictures lack.
#[derive(Debug, Default)]
pub struct Lacking {
    pictures: VecDeque<Past>,
}

#[derive(Debug)]
struct Past {
    taken: Instant,
    at_ms: u64,
    /// Nodes that lack values, by number.
    nodes: BTreeMap<u32, Lacks>,
}

/// A node as its picture has it.
#[derive(Debug)]
struct Lacks {
    boot: u64,
    job: Option<u64>,
    values: Vec<Option<i64>>,
}

impl Lacking {
    /// A picture was taken at `taken`.
    pub fn remember(&mut self, taken: Instant, picture: &Picture) {
        if self.pictures.len() == PICTURES {
            self.pictures.pop_front();
        }
        let nodes = picture.nodes.iter().filter(|node| lacks(node));
        let nodes = nodes.map(|node| {
            let (boot, job) = (node.boot, node.job);
            let values = node.values.clone();
            (node.node, Lacks { boot, job, values })
        });
        self.pictures.push_back(Past {
            taken,
            at_ms: picture.at_ms,
            nodes: nodes.collect(),
        });
    }

    /// Puts a row of a node whose boot is `boot` to its picture; `None`: that lacks nothing of the
    /// node, or the row is of another boot or in another picture. `number`: what people call a job
    /// of the nodes.
    pub fn put(
        &mut self,
        late: &LateRow,
        boot: u64,
        newest: &mut Newest,
        number: impl Fn(JobId) -> Option<u64>,
    ) -> Option<LateValues> {
        let node = late.node.0;
        let mut pictures = self.pictures.iter_mut();
        let past = pictures.find(|past| past.taken == late.picture)?;
        past.nodes.get(&node).filter(|lacks| lacks.boot == boot)?;
        let of_node = metrics::row(&late.row.values)?;
        if !newest.late(node, boot, &of_node) {
            return None;
        }
        let lacks = past.nodes.remove(&node)?;
        // As in a picture: a row can be of the job before.
        let of_program = last_counted::in_row(&late.row.values)
            .filter(|(of, _)| lacks.job.is_none() || number(*of) == lacks.job)
            .map_or(&[][..], |(_, counters)| counters);
        Some(LateValues {
            at_ms: past.at_ms,
            node,
            values: metrics::with_late(&lacks.values, of_node, of_program),
        })
    }
}

/// Pictures on their way to the files, in their order: one that lacks something waits for it while
/// [`PICTURES`] others come.
#[derive(Debug, Default)]
pub struct Held {
    waiting: VecDeque<Whole>,
}

/// A picture, and what came late of it.
#[derive(Debug)]
pub struct Whole {
    /// The picture.
    pub shown: Arc<Shown>,
    /// By node: values as the store has them.
    late: BTreeMap<u32, Vec<Option<i64>>>,
}

impl Whole {
    fn awaits(&self) -> bool {
        let mut nodes = self.shown.picture.nodes.iter();
        nodes.any(|node| lacks(node) && !self.late.contains_key(&node.node))
    }

    /// What is stored of each node. Of one of which nothing came that is what control itself knows.
    pub fn rows(&self) -> Vec<(u32, Cow<'_, [Option<i64>]>)> {
        let nodes = self.shown.picture.nodes.iter();
        let nodes = nodes.filter(|node| !node.values.is_empty());
        let rows = nodes.map(|node| match self.late.get(&node.node) {
            _ if !node.repeated => (node.node, Cow::from(&node.values)),
            Some(late) => (node.node, Cow::from(late)),
            None => (node.node, metrics::of_control(&node.values).into()),
        });
        rows.collect()
    }
}

impl Held {
    /// Takes a picture in, and what it has for those before it.
    pub fn put(&mut self, shown: Arc<Shown>) {
        for late in &shown.picture.late {
            let mut waiting = self.waiting.iter_mut();
            if let Some(whole) = waiting.find(|whole| whole.shown.picture.at_ms == late.at_ms) {
                whole.late.insert(late.node, late.values.clone());
            }
        }
        self.waiting.push_back(Whole {
            shown,
            late: BTreeMap::new(),
        });
    }

    /// The oldest, if it waits for nothing or has waited long enough.
    pub fn ready(&mut self) -> Option<Whole> {
        let oldest = self.waiting.front()?;
        let ready = self.waiting.len() > PICTURES || !oldest.awaits();
        ready.then(|| self.oldest())?
    }

    /// The oldest, whatever it lacks.
    pub fn oldest(&mut self) -> Option<Whole> {
        self.waiting.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use netstack::ids::NodeId;
    use netstack::overlay::{MetricId, NodeMetric};

    use super::*;
    use crate::monitor::picture::Health;
    use crate::overlay::NodeRow;

    const SECOND: u64 = 1_000_000;

    /// When the picture of a second is taken.
    fn at(second: u64) -> Instant {
        Instant::from_micros(second * SECOND + 160_000)
    }

    /// What a node counted, read at `second`, in the job 5 of the nodes.
    fn row(second: u64) -> Vec<Option<i64>> {
        let mut row = vec![Some(second as i64); NodeMetric::COUNT];
        row[NodeMetric::Uptime as usize] = Some((second * SECOND) as i64);
        row[NodeMetric::Job as usize] = Some(5);
        row.extend([Some(100 + second as i64)].iter().chain(&[None; 15]));
        row
    }

    fn late(second: u64, picture: u64) -> LateRow {
        LateRow {
            picture: at(picture),
            node: NodeId(3),
            row: NodeRow {
                at: at(picture),
                tick: second,
                values: row(second),
            },
        }
    }

    /// The picture of `second`, by the row of the second `read`.
    fn picture(newest: &mut Newest, second: u64, read: u64) -> Picture {
        let heartbeat = vec![None; NodeMetric::COUNT];
        let of_node = newest.of(3, 1, metrics::row(&row(read)), heartbeat);
        let known = metrics::Known {
            busy_ppm: Some(7),
            silent_us: second,
            ..metrics::Known::default()
        };
        let node = NodeNow {
            node: 3,
            health: Health::Busy,
            job: Some(5),
            boot: 1,
            mac: String::new(),
            address: None,
            drained: None,
            values: metrics::values(&known, of_node, &[]),
            repeated: !newest.is_new(3),
            counters: Vec::new(),
        };
        Picture {
            at_ms: second * 1_000,
            nodes: vec![node],
            ..Picture::default()
        }
    }

    fn number(of: JobId) -> Option<u64> {
        Some(of.0)
    }

    #[test]
    fn a_late_row_is_put_to_its_picture_once() {
        let (mut lacking, mut newest) = (Lacking::default(), Newest::default());
        for (second, read) in [(10, 10), (11, 10)] {
            lacking.remember(at(second), &picture(&mut newest, second, read));
        }
        let mut put = |late: LateRow, boot| lacking.put(&late, boot, &mut newest, number);
        assert_eq!(put(late(11, 11), 2), None, "of another boot");
        assert_eq!(put(late(10, 11), 1), None, "the picture of 10 has it");
        assert_eq!(put(late(11, 10), 1), None, "that picture lacks nothing");
        let values = put(late(11, 11), 1).expect("it is late");
        assert_eq!((values.at_ms, values.node), (11_000, 3));
        let shown: Vec<i64> = values.values[..metrics::OF_NODE + 1]
            .iter()
            .map(|value| value.expect("all are known"))
            .collect();
        // What control knew then, what the node said, what its program had set.
        let known = metrics::OF_NODE - NodeMetric::COUNT;
        assert_eq!(shown[..known], [7, 0, 0, 0, 11, 0]);
        assert_eq!(shown[known + NodeMetric::Uptime as usize], 11_000_000);
        assert_eq!(shown[metrics::OF_NODE], 111);
        assert_eq!(
            values.values.len(),
            metrics::OF_NODE + MetricId::PROGRAM,
            "as long as all rows"
        );
        assert_eq!(put(late(11, 11), 1), None, "a second time");
        // Nothing newer came by the next picture: that lacks its own, and does not have the late
        // one.
        let next = picture(&mut newest, 12, 11);
        assert!(next.nodes[0].repeated);
        lacking.remember(at(12), &next);
        // The next one but one has come when the late one does.
        lacking.remember(at(13), &picture(&mut newest, 13, 13));
        assert!(lacking.put(&late(12, 12), 1, &mut newest, number).is_some());
        // Two pictures later it is too late.
        lacking.remember(at(14), &picture(&mut newest, 14, 13));
        lacking.remember(at(15), &picture(&mut newest, 15, 15));
        lacking.remember(at(16), &picture(&mut newest, 16, 16));
        assert!(lacking.put(&late(14, 14), 1, &mut newest, number).is_none());
        assert_eq!(lacking.pictures.len(), PICTURES);
    }

    #[test]
    fn counters_of_another_job_than_that_of_the_picture_are_left_out() {
        let (mut lacking, mut newest) = (Lacking::default(), Newest::default());
        lacking.remember(at(10), &picture(&mut newest, 10, 10));
        lacking.remember(at(11), &picture(&mut newest, 11, 10));
        let values = lacking.put(&late(11, 11), 1, &mut newest, |_| Some(4));
        assert_eq!(values.expect("it is late").values[metrics::OF_NODE], None);
    }

    /// The seconds of pictures that go on, and whether each has values of the node.
    fn ready(held: &mut Held) -> Vec<(u64, bool)> {
        let ready = std::iter::from_fn(|| held.ready());
        let has = |whole: &Whole| whole.rows()[0].1[metrics::OF_NODE - 1].is_some();
        ready
            .map(|whole| (whole.shown.picture.at_ms / 1_000, has(&whole)))
            .collect()
    }

    #[test]
    fn a_picture_waits_only_for_what_it_lacks_and_not_for_ever() {
        let (mut held, mut newest) = (Held::default(), Newest::default());
        let mut shown = |second, read, late: &[u64]| {
            let late = late.iter().map(|second| LateValues {
                at_ms: second * 1_000,
                node: 3,
                values: vec![Some(9); metrics::OF_NODE],
            });
            Arc::new(Shown {
                picture: Picture {
                    late: late.collect(),
                    ..picture(&mut newest, second, read)
                },
                ..Shown::default()
            })
        };
        let mut put = |second, read, late: &[u64]| {
            held.put(shown(second, read, late));
            ready(&mut held)
        };
        assert_eq!(put(10, 10, &[]), [(10, true)]);
        assert_eq!(put(11, 10, &[]), []);
        // It came with the next.
        assert_eq!(put(12, 12, &[11]), [(11, true), (12, true)]);
        // It never came: those after it wait too, for the order.
        assert_eq!(put(13, 12, &[]), []);
        assert_eq!(put(14, 14, &[]), []);
        assert_eq!(put(15, 15, &[]), [(13, false), (14, true), (15, true)]);
        // A node that is silent: two wait, and no more.
        assert_eq!(put(16, 15, &[]), []);
        assert_eq!(put(17, 15, &[]), []);
        assert_eq!(put(18, 15, &[]), [(16, false)]);
        assert_eq!(put(19, 15, &[17, 12]), [(17, true)]);
        let seconds = std::iter::from_fn(|| held.oldest());
        let seconds: Vec<u64> = seconds.map(|whole| whole.shown.picture.at_ms).collect();
        assert_eq!(seconds, [18_000, 19_000]);
    }
}
