//! How many ranks send at a time in the published method: its L, computed from what the network
//! carries.
//!
//! - *The core*: an active rank sends at the full rate of its link. More of them than the trunks
//!   carry, core rate by link rate, fill the trunks' queues, and these overflow.
//! - *The port*: no rank receives from two, but the master hears of all active ranks when a step
//!   ends, and they end together. Half of what its port holds is for these reports; the other half
//!   is for the block that it receives in the same step.
//! - *The time*: there are p steps whatever L is, with a round trip to the master each. A step
//!   lasts for the longest target queue, p / L blocks rounded up, each with a round trip until its
//!   receiver has said that it has it; and then for a report of each active rank on the master's
//!   link, while the orders for the next step leave it the other way. More active ranks have
//!   shorter queues, fewer have fewer reports. Where a block and what the link carries in a round
//!   trip are B bytes, and a report M, the best is near the root of p * B / M: all ranks, but where
//!   there are many and both the blocks and the round trip are short.
//!
//! Source: the method of grouped exchange leaves open how L is chosen; this is derived from its
//! steps. Neighbours: [`super::schedule`] has the schedule, `alltoall` asks for L where none is
//! given.
//!
//! Invariant: a pure function; at least one rank is active, and at most all.

use crate::time::Micros;
use crate::transport::pacer::on_wire;

/// Bytes on the wire of a report to the master: a control datagram with one item.
const MESSAGE: u64 = on_wire(48) as u64;

/// What the ranks of an exchange have between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Ranks of the exchange, at least 1.
    pub ranks: u32,
    /// Bytes of a block, in the mean.
    pub block: u64,
    /// Bytes a second of a rank's link; 0: not known, and neither is the core's share of it.
    pub rate: u64,
    /// Until an answer is there.
    pub round_trip: Micros,
    /// Bytes a second that the core carries, all ranks together; 0: as much as all links.
    pub core: u64,
    /// Bytes that the port in front of a rank holds.
    pub port: u64,
}

impl Network {
    /// L: how many ranks are active at a time.
    pub fn active(&self) -> u32 {
        // Of two that take the same the larger: target queues are shorter.
        let all = (1..=self.most()).rev();
        all.min_by_key(|active| self.cost(*active)).unwrap_or(1)
    }

    /// The most that core and port allow.
    fn most(&self) -> u32 {
        let reports = self.port / 2 / MESSAGE;
        let streams = match self.core {
            0 => u64::MAX,
            core => core.checked_div(self.rate).unwrap_or(u64::MAX),
        };
        let most = reports.min(streams).min(self.ranks.into());
        most.max(1) as u32
    }

    /// What all steps take with so many active, in bytes of a link; round trips, which are as many
    /// for all, left out.
    fn cost(&self, active: u32) -> u128 {
        let (ranks, active) = (u128::from(self.ranks), u128::from(active));
        let idle = u128::from(self.rate) * u128::from(self.round_trip.0) / 1_000_000;
        let block = u128::from(self.block) + idle;
        let steps = |active: u128| {
            let step = match active {
                0 => 0,
                _ => ranks.div_ceil(active) * block,
            };
            active * (step + active * u128::from(MESSAGE))
        };
        ranks / active * steps(active) + steps(ranks % active)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 10 Gbit/s at full bisection, and 20 us.
    fn network(ranks: u32, block: u64) -> Network {
        Network {
            ranks,
            block,
            rate: 1_250_000_000,
            round_trip: Micros(20),
            core: 0,
            port: 256_000,
        }
    }

    #[test]
    fn large_blocks_have_all_ranks_active_and_small_ones_fewer() {
        assert_eq!(network(64, 64_000).active(), 64);
        assert_eq!(network(64, 1_000).active(), 64);
        assert_eq!(network(256, 1_000_000).active(), 256);
        // The root of 4,096 * 26,000 / 114 is 967.
        assert_eq!(network(4096, 1_000).active(), 1024);
        assert_eq!(network(1, 0).active(), 1);
    }

    #[test]
    fn core_and_port_bound_it() {
        let quarter = Network {
            core: 16 * 1_250_000_000,
            ..network(64, 1_000_000)
        };
        assert_eq!(quarter.active(), 16);
        let small = Network {
            port: 8_000,
            ..network(64, 1_000_000)
        };
        assert!(u64::from(small.active()) * MESSAGE <= 4_000);
        let unknown = Network { rate: 0, ..quarter };
        assert_eq!(unknown.active(), 64);
    }

    fn any_network() -> impl Strategy<Value = Network> {
        let core = prop_oneof![Just(0), 1_000_000..200_000_000_000_u64];
        (
            1u32..300,
            0u64..200_000,
            0u64..2_000_000_000,
            0u64..1_000,
            core,
            0u64..400_000,
        )
            .prop_map(|(ranks, block, rate, round_trip, core, port)| Network {
                ranks,
                block,
                rate,
                round_trip: Micros(round_trip),
                core,
                port,
            })
    }

    proptest! {
        #[test]
        fn it_is_within_its_bounds_and_none_there_is_better(network in any_network()) {
            let active = network.active();
            prop_assert!((1..=network.ranks).contains(&active));
            let fits = |active: u32| {
                u64::from(active) * MESSAGE <= network.port / 2
                    && (network.core == 0 || u64::from(active) * network.rate <= network.core)
            };
            prop_assert!(active == 1 || fits(active));
            let block = network.block + network.rate * network.round_trip.0 / 1_000_000;
            // Step by step, as the schedule has them.
            let takes = |active: u32| {
                let (mut left, mut time) = (network.ranks, 0);
                while left > 0 {
                    let now = active.min(left);
                    left -= now;
                    for _ in 0..now {
                        time += u64::from(network.ranks.div_ceil(now)) * block;
                        time += u64::from(now) * MESSAGE;
                    }
                }
                time
            };
            for other in (1..=network.ranks).filter(|other| fits(*other)) {
                prop_assert!(takes(active) <= takes(other), "{other} is better than {active}");
            }
        }

        #[test]
        fn more_core_port_or_bytes_never_make_it_worse(network in any_network(), more in 0u64..100_000) {
            // Blocks in all target queues.
            let queues = |network: Network| {
                let cost = |block| Network { block, ..network }.cost(network.active());
                cost(1) - cost(0)
            };
            let port = Network { port: network.port + more, ..network };
            prop_assert!(port.cost(port.active()) <= network.cost(network.active()));
            let block = Network { block: network.block + more, ..network };
            prop_assert!(queues(block) <= queues(network));
            if network.core > 0 {
                let core = Network { core: network.core + more * 10_000, ..network };
                prop_assert!(core.cost(core.active()) <= network.cost(network.active()));
            }
        }
    }
}
