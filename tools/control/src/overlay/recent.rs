//! The last ticks of a stream, each as far as it has come.
//!
//! Key type: [`Recent`]. Neighbours: [`super::asked`] and the sums over all nodes give it what the
//! front end hands over.
//!
//! Parts of a tick come late, behind those of later ones: of a node whose program computes, of a
//! process that waited for a child that is gone, of a stream that passes on what comes as it comes.
//! They are put to their tick, for [`BEHIND`] and eight ticks at least.
//!
//! Invariant: bounded, in ticks; what is older than all of these is refused, and counted by who
//! asks.

use std::collections::VecDeque;

use netstack::overlay::{Acc, TickBody, TickValue};
use netstack::time::Micros;

/// How late a part may be: a node whose program computes looks at the network once a second, as do
/// the processes that it hosts.
const BEHIND: Micros = Micros::from_secs(3);
/// Ticks that are kept of a stream: what waits for all is four behind at most, and as much above
/// it.
const TICKS: std::ops::RangeInclusive<u64> = 8..=300;

/// A tick as far as it has come.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TickSoFar {
    /// Its number.
    pub tick: u64,
    /// Back ends in it.
    pub covers: u32,
    /// Back ends that were attached and could have been.
    pub attached: u32,
    /// Reduced values, in the order of the stream's metrics; none of concat.
    pub values: Vec<Acc>,
}

impl TickSoFar {
    fn add(&mut self, value: &TickValue) {
        self.covers = self.covers.saturating_add(value.covers);
        self.attached = self.attached.max(value.attached);
        let TickBody::Reduced(values) = &value.values else {
            return;
        };
        if self.values.len() == values.len() {
            for (own, more) in self.values.iter_mut().zip(values) {
                own.merge(more.clone());
            }
        } else {
            self.values.clone_from(values);
        }
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Recent {
    /// By number.
    ticks: VecDeque<TickSoFar>,
    most: usize,
    /// Ticks that have come.
    count: u64,
}

impl Recent {
    /// Of a stream with this period.
    pub fn new(period: Micros) -> Self {
        let behind = BEHIND.0 / period.0.max(1);
        Recent {
            ticks: VecDeque::new(),
            most: behind.clamp(*TICKS.start(), *TICKS.end()) as usize,
            count: 0,
        }
    }

    /// Takes a part of a tick, and gives what is known of that tick; None: it is older than what is
    /// kept.
    pub fn take(&mut self, value: &TickValue) -> Option<&TickSoFar> {
        let place = self.ticks.partition_point(|of| of.tick < value.tick);
        let known = self.ticks.get(place);
        let mut place = place;
        if known.is_none_or(|of| of.tick != value.tick) {
            if self.ticks.len() == self.most {
                if place == 0 {
                    return None;
                }
                self.ticks.pop_front();
                place -= 1;
            }
            let fresh = TickSoFar {
                tick: value.tick,
                ..TickSoFar::default()
            };
            self.ticks.insert(place, fresh);
            self.count += 1;
        }
        let tick = &mut self.ticks[place];
        tick.add(value);
        Some(tick)
    }

    /// The newest tick.
    pub fn newest(&self) -> Option<&TickSoFar> {
        self.ticks.back()
    }

    /// Ticks that have come.
    pub fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use netstack::overlay::{Reduced, StreamId};
    use netstack::time::Instant;

    use super::*;

    fn part(tick: u64, covers: u32, sum: i128) -> TickValue {
        TickValue {
            stream: StreamId(3),
            tick,
            covers,
            attached: 4,
            ends: true,
            at: Instant::ZERO,
            values: TickBody::Reduced(vec![Acc {
                count: covers,
                reduced: Some(Reduced::Total(sum)),
            }]),
        }
    }

    #[test]
    fn parts_are_put_to_their_tick_in_whatever_order_they_come() {
        let mut recent = Recent::new(Micros::from_secs(1));
        for number in [14, 10, 11, 13, 12] {
            let tick = recent.take(&part(number, 3, 30)).unwrap();
            assert_eq!((tick.tick, tick.covers), (number, 3));
        }
        for number in 10..15 {
            let tick = recent.take(&part(number, 1, 7)).unwrap();
            assert_eq!((tick.tick, tick.covers), (number, 4));
            assert_eq!(tick.values[0].reduced, Some(Reduced::Total(37)));
        }
        assert_eq!((recent.newest().unwrap().tick, recent.count()), (14, 5));
    }

    #[test]
    fn no_more_than_the_last_are_kept() {
        let mut recent = Recent::new(Micros::from_secs(1));
        for number in 1..=20 {
            assert!(recent.take(&part(number, 1, 1)).is_some());
            assert!(recent.ticks.len() <= 8);
        }
        assert_eq!(
            recent.take(&part(12, 1, 1)),
            None,
            "older than the last eight"
        );
        assert_eq!(recent.take(&part(13, 1, 1)).unwrap().covers, 2);
        assert_eq!(recent.count(), 20);
        assert_eq!(Recent::new(Micros::from_millis(10)).most, 300);
        assert_eq!(Recent::new(Micros::from_millis(100)).most, 30);
    }
}
