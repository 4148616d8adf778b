//! What nodes are judged by when the comprehensive placement makes a tree: their heartbeats, not
//! what they said when they joined.
//!
//! Key type: [`Loads`]. Neighbours: [`super::Overlay`] looks once a second and judges by it,
//! `netstack::overlay::placement` has the method.
//!
//! Invariant: of a node that is not heard nothing stays.

use std::collections::BTreeMap;

use netstack::ids::NodeId;
use netstack::overlay::fixed::Fixed;
use netstack::overlay::placement::Factors;
use netstack::vitals::Vitals;

/// The unit of free memory.
const GIB: u64 = 1 << 30;

/// A node's last two different heartbeats.
#[derive(Debug, Clone, Copy)]
struct Seen {
    cores: u16,
    uptime_us: u64,
    idle_us: u64,
    /// Share of the time between the two that its cores were not halted.
    load: Fixed,
    memory_free: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Loads {
    nodes: BTreeMap<NodeId, Seen>,
}

fn share(part: u64, whole: u64) -> Fixed {
    let billionths = u128::from(part) * Fixed::ONE.0 as u128 / u128::from(whole.max(1));
    Fixed(i64::try_from(billionths).unwrap_or(i64::MAX))
}

impl Loads {
    /// Looks at the newest heartbeats.
    pub fn look(&mut self, nodes: impl Iterator<Item = (NodeId, u16, Vitals)>) {
        let mut seen = BTreeMap::new();
        for (node, cores, vitals) in nodes {
            let mut now = Seen {
                cores,
                uptime_us: vitals.uptime_us,
                idle_us: vitals.idle_us,
                load: Fixed::ZERO,
                memory_free: vitals.memory_free,
            };
            if let Some(before) = self.nodes.get(&node) {
                now.load = before.load;
                // It booted anew, or there is a later heartbeat.
                if now.uptime_us < before.uptime_us {
                    now.load = Fixed::ZERO;
                } else if now.uptime_us > before.uptime_us {
                    let up = now.uptime_us - before.uptime_us;
                    let idle = now.idle_us.saturating_sub(before.idle_us).min(up);
                    now.load = share(up - idle, up);
                }
            }
            seen.insert(node, now);
        }
        self.nodes = seen;
    }

    /// What a node is judged by: its cores, its free memory in GiB, the rate of its
    /// link in Gbit/s, its load.
    pub fn factors(&self, node: NodeId, link: Fixed) -> Option<Factors> {
        let seen = self.nodes.get(&node)?;
        let cores = Fixed::whole(seen.cores.into());
        Some([cores, share(seen.memory_free, GIB), link, seen.load])
    }
}

/// A rate in Gbit/s.
pub(super) fn gbits(bits_per_second: u64) -> Fixed {
    share(bits_per_second, 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_time_between_two_heartbeats() {
        assert_eq!(share(1, 4), Fixed::hundredths(25));
        assert_eq!(share(0, 0), Fixed::ZERO);
        assert_eq!(gbits(10_000_000_000), Fixed::whole(10));
        assert_eq!(gbits(50_000_000), Fixed::hundredths(5));
    }

    #[test]
    fn a_load_is_kept_until_the_next_heartbeat_and_forgotten_with_the_boot() {
        let link = Fixed::whole(10);
        let vitals = |uptime_us, idle_us| Vitals {
            uptime_us,
            idle_us,
            memory_free: GIB / 2,
            ..Vitals::default()
        };
        let mut loads = Loads::default();
        let mut look = |uptime_us, idle_us| {
            loads.look([(NodeId(3), 4, vitals(uptime_us, idle_us))].into_iter());
            loads.factors(NodeId(3), link).unwrap()[3]
        };
        assert_eq!(look(1_000_000, 900_000), Fixed::ZERO);
        assert_eq!(look(2_000_000, 1_150_000), Fixed::hundredths(75));
        assert_eq!(look(2_000_000, 1_150_000), Fixed::hundredths(75));
        assert_eq!(look(3_000_000, 2_150_000), Fixed::ZERO);
        assert_eq!(look(500_000, 0), Fixed::ZERO);
        assert_eq!(
            loads.factors(NodeId(3), link).unwrap()[..3],
            [Fixed::whole(4), Fixed::hundredths(50), link]
        );
        loads.look(std::iter::empty());
        assert_eq!(loads.factors(NodeId(3), link), None);
    }
}
