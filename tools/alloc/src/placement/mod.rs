//! Which nodes of a machine a job gets: the published way and ours, side by side.
//!
//! | folder | what it is |
//! |---|---|
//! | [`published`] | the publication: its scheduling units, and which units a job may have |
//! | [`exact`] | ours: the fewest hops exactly, with a certificate, and what warm nodes count |
//! | [`baselines`] | simple algorithms that both are measured against |
//!
//! Here is what they share. A job of a unit's size or more gets free units, as many as it takes; of
//! the last it may use only a part, and that unit is then busy. A smaller job gets a part of one
//! unit: by either rule a busy one if that may be entered, else a free one.
//!
//! In units, hops are those between units, as in the publication; that is the same as between
//! nodes when all units are wholly used. The unit that is partly used is then the one that costs
//! the fewest hops between nodes.
//!
//! Key types: [`Placing`] (the algorithm), [`Wish`], [`Given`]. Neighbours: [`crate::queue`] asks,
//! [`crate::machine`] holds the nodes.
//!
//! Invariant: an algorithm gives what [`Placing::fits`] says it can: free nodes, each once.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::machine::{Machine, UnitState};

pub mod baselines;
pub mod exact;
pub mod published;

use exact::{Certificate, Point, Preference, Question};

/// How nodes are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placing {
    /// The publication's, see [`published`].
    Published,
    /// Ours, see [`exact`]; warm nodes as preferred.
    Exact(Preference),
    /// The nested greedy choice: not always the fewest hops.
    Greedy,
    /// The free units with the lowest numbers.
    FirstFit,
    /// The tightest run of neighbouring free units that holds the job; where there is none, the
    /// longest runs one after the other.
    Contiguous,
    /// Any free units, by this seed and the job's number.
    Random(u64),
}

/// What a job wants.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    /// Its number.
    pub job: u64,
    /// How many nodes; at least one.
    pub count: u32,
    /// Nodes that hold its program.
    pub warm: &'a BTreeSet<u32>,
}

/// What it gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// Nodes, in the order of their numbers.
    pub nodes: Vec<u32>,
    /// How it is known that no other units have fewer hops, where it is.
    pub certificate: Option<Certificate>,
}

/// All algorithms by name, for the command line.
pub const NAMES: [&str; 6] = [
    "published",
    "exact",
    "greedy",
    "first-fit",
    "contiguous",
    "random",
];

impl fmt::Display for Placing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Placing::Published => "published",
            Placing::Exact(_) => "exact",
            Placing::Greedy => "greedy",
            Placing::FirstFit => "first-fit",
            Placing::Contiguous => "contiguous",
            Placing::Random(_) => "random",
        })
    }
}

impl FromStr for Placing {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Ok(match name {
            "published" => Placing::Published,
            "exact" => Placing::Exact(Preference::HopsFirst),
            "greedy" => Placing::Greedy,
            "first-fit" => Placing::FirstFit,
            "contiguous" => Placing::Contiguous,
            "random" => Placing::Random(1),
            _ => {
                return Err(format!(
                    "{name:?} places no jobs; there are: {}",
                    NAMES.join(", ")
                ));
            }
        })
    }
}

impl Placing {
    /// Whether this gives a job of so many nodes some now.
    pub fn fits(self, machine: &Machine, count: u32) -> bool {
        machine.units_for(count) <= machine.free_units()
            || match self {
                Placing::Published => published::has_busy_unit(machine, count),
                _ => exact::has_busy_unit(machine, count),
            }
    }

    /// Whether it could give a job that is smaller than a unit a part of one of which nodes are out
    /// of service, if no other job had any, or does so now.
    pub fn fits_a_part(self, machine: &Machine, count: u32) -> bool {
        let is_part = |in_service: u32| self.may_enter(in_service, count);
        count < machine.unit()
            && (self.fits(machine, count) || machine.in_service_of_units().any(is_part))
    }

    /// Whether a job of fewer nodes than a unit may have a part of one with so many free.
    fn may_enter(self, free: u32, count: u32) -> bool {
        match self {
            Placing::Published => published::may_enter(free, count),
            _ => exact::may_enter(free, count),
        }
    }

    /// Chooses nodes; none when the job does not fit ([`Placing::fits`]).
    pub fn choose(self, machine: &Machine, wish: &Wish) -> Option<Given> {
        if wish.count == 0 || !self.fits(machine, wish.count) {
            return None;
        }
        if wish.count < machine.unit() {
            return self.part_of_a_unit(machine, wish);
        }
        let points = free_units(machine, wish, machine.unit());
        let wanted = machine.units_for(wish.count);
        let (units, certificate) = self.units(machine, wish, &points, wanted)?;
        let nodes = nodes_of_units(machine, wish, &units);
        Some(Given { nodes, certificate })
    }

    /// Chooses some of the free units.
    fn units(
        self,
        machine: &Machine,
        wish: &Wish,
        points: &[Point],
        wanted: usize,
    ) -> Option<(Vec<u32>, Option<Certificate>)> {
        if points.len() < wanted {
            return None;
        }
        let numbers = points.iter().map(|point| point.number);
        let question = Question {
            topology: machine.unit_topology(),
            free: points,
            count: wanted,
            preference: match self {
                Placing::Exact(preference) => preference,
                _ => Preference::None,
            },
            unit: machine.unit(),
        };
        Some(match self {
            Placing::Published | Placing::Exact(_) => {
                let choice = exact::choose(&question)?;
                (choice.numbers, Some(choice.certificate))
            }
            Placing::Greedy => (baselines::nested_greedy(&question)?, None),
            Placing::FirstFit => (numbers.take(wanted).collect(), None),
            Placing::Contiguous => {
                let numbers: Vec<u32> = numbers.collect();
                (baselines::contiguous(&numbers, wanted), None)
            }
            Placing::Random(seed) => {
                let numbers = numbers.collect();
                (baselines::random(numbers, wanted, (seed, wish.job)), None)
            }
        })
    }

    /// Gives a part of one unit.
    fn part_of_a_unit(self, machine: &Machine, wish: &Wish) -> Option<Given> {
        let is_busy = |unit: &usize| machine.unit_state(*unit) == UnitState::Busy;
        let free = |unit: usize| machine.free_in_units()[unit];
        let busy = (0..machine.free_in_units().len()).filter(is_busy);
        let is_weighed = matches!(self, Placing::Exact(preference) if preference != Preference::None)
            && !wish.warm.is_empty();
        let warm = |unit: usize| {
            let warm = machine
                .free_nodes_of(unit)
                .filter(|n| wish.warm.contains(n));
            if is_weighed {
                (warm.count() as u32).min(wish.count)
            } else {
                0
            }
        };
        // The best busy unit: most warm nodes, then the tightest, then the lowest number.
        let best = busy
            .filter(|&unit| self.may_enter(free(unit), wish.count))
            .min_by_key(|&unit| (std::cmp::Reverse(warm(unit)), free(unit), unit));
        let points = free_units(machine, wish, wish.count);
        let whole = self.units(machine, wish, &points, 1);
        let unit = match (best, whole) {
            (Some(busy), Some((whole, _))) if warm(whole[0] as usize) <= warm(busy) => busy,
            (_, Some((whole, _))) => whole[0] as usize,
            (Some(busy), None) => busy,
            // The exact fit of the publication leaves busy units alone that would do.
            (None, None) => return None,
        };
        Some(self.part_of(machine, wish, unit))
    }

    /// Gives a part of this unit, which has enough free nodes.
    pub(crate) fn part_of(self, machine: &Machine, wish: &Wish, unit: usize) -> Given {
        Given {
            nodes: nodes_in(machine, wish, unit, wish.count),
            certificate: matches!(self, Placing::Published | Placing::Exact(_))
                .then_some(Certificate::OneLeaf),
        }
    }
}

/// The free units, each with its warm nodes, at most as many as count.
fn free_units(machine: &Machine, wish: &Wish, most: u32) -> Vec<Point> {
    let all = machine.free_in_units().iter().zip(0_u32..);
    let free = all.filter(|(free, _)| **free == machine.unit());
    let mut points: Vec<Point> = free
        .map(|(_, number)| Point { number, weight: 0 })
        .collect();
    if !wish.warm.is_empty() {
        for point in &mut points {
            let first = point.number * machine.unit();
            let warm = wish.warm.range(first..first + machine.unit()).count() as u32;
            point.weight = warm.min(most);
        }
    }
    points
}

/// The nodes of free units; of one of them only a part where the job does not fill it.
fn nodes_of_units(machine: &Machine, wish: &Wish, units: &[u32]) -> Vec<u32> {
    let unit = machine.unit();
    let spare = units.len() as u32 * unit - wish.count;
    let partly = (spare > 0).then(|| cheapest_part(machine, wish, units, unit - spare));
    let mut nodes = Vec::with_capacity(wish.count as usize);
    for &number in units {
        if Some(number) == partly {
            nodes.extend(nodes_in(machine, wish, number as usize, unit - spare));
        } else {
            nodes.extend(number * unit..(number + 1) * unit);
        }
    }
    nodes
}

/// The unit of which a part leaves the fewest hops between nodes: the one with the fewest others
/// near it. Of equals the one that keeps the most warm nodes, then the last.
fn cheapest_part(machine: &Machine, wish: &Wish, units: &[u32], part: u32) -> u32 {
    let tree = machine.unit_topology();
    let near = |unit: u32| -> usize {
        let levels = 1..tree.height();
        let count = |level| {
            let above = |other: u32| tree.switch_above(other, level);
            units.partition_point(|&other| above(other) <= above(unit))
                - units.partition_point(|&other| above(other) < above(unit))
        };
        levels.map(count).sum()
    };
    let lost = |number: u32| {
        let first = number * machine.unit();
        let warm = wish.warm.range(first..first + machine.unit()).count() as u32;
        warm.saturating_sub(part)
    };
    let units = units.iter().copied();
    units
        .min_by_key(|&unit| (near(unit), lost(unit), std::cmp::Reverse(unit)))
        .expect("at least one unit")
}

/// Some free nodes of a unit, warm ones first.
fn nodes_in(machine: &Machine, wish: &Wish, unit: usize, count: u32) -> Vec<u32> {
    let mut nodes: Vec<u32> = machine.free_nodes_of(unit).collect();
    nodes.sort_by_key(|node| !wish.warm.contains(node));
    nodes.truncate(count as usize);
    nodes.sort_unstable();
    nodes
}

#[cfg(test)]
mod tests;
