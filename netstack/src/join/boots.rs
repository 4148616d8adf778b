//! Which boots of a machine have been nodes: the key of an earlier one is used up.
//!
//! Key type: [`UsedBoots`]. Neighbours: `registry` tells which boot has joined, `admission` asks at
//! each HELLO. The owner of the endpoint writes it down and tells it after a restart.
//!
//! Invariant: a boot is used once it has been heard in a session of its own; a HELLO alone, which
//! may be recorded, says nothing.

use alloc::collections::{BTreeMap, VecDeque};

use crate::ids::BootEpoch;

/// Earlier boots of a machine that are remembered, 64 bytes of numbers. An older one needs to pass
/// the same test as a new boot: nobody else may be up at that address.
pub const EARLIER_MAX: usize = 8;

/// A MAC address.
type Mac = [u8; 6];

/// The boots of one machine.
#[derive(Debug)]
struct Used {
    /// The one that joined last. It may come back, as after a restart of the control node.
    last: BootEpoch,
    /// Those before it, the oldest first: at most [`EARLIER_MAX`].
    earlier: VecDeque<BootEpoch>,
    /// Grows with each boot that joins, of any machine.
    turn: u64,
}

/// The boots of all machines that were nodes.
#[derive(Debug)]
pub(crate) struct UsedBoots {
    machines: BTreeMap<Mac, Used>,
    limit: usize,
    turns: u64,
}

impl UsedBoots {
    /// For at most `limit` machines: one more takes the place of the one that joined longest ago.
    pub(super) fn new(limit: usize) -> Self {
        UsedBoots {
            machines: BTreeMap::new(),
            limit,
            turns: 0,
        }
    }

    /// A boot has joined: those before it are used up.
    pub(crate) fn joined(&mut self, mac: Mac, boot: BootEpoch) {
        self.turns += 1;
        if let Some(used) = self.machines.get_mut(&mac) {
            used.turn = self.turns;
            if used.last == boot {
                return;
            }
            if used.earlier.len() == EARLIER_MAX {
                used.earlier.pop_front();
            }
            used.earlier
                .push_back(core::mem::replace(&mut used.last, boot));
            return;
        }
        if self.machines.len() >= self.limit {
            let oldest = self.machines.iter().min_by_key(|(_, used)| used.turn);
            let oldest = oldest.map(|(mac, _)| *mac);
            oldest.and_then(|mac| self.machines.remove(&mac));
        }
        let used = Used {
            last: boot,
            earlier: VecDeque::new(),
            turn: self.turns,
        };
        self.machines.insert(mac, used);
    }

    /// The boot that used the key of `boot` up, if one did.
    pub(super) fn used_up_by(&self, mac: Mac, boot: BootEpoch) -> Option<BootEpoch> {
        let used = self.machines.get(&mac)?;
        used.earlier.contains(&boot).then_some(used.last)
    }

    /// Whether a boot has joined, now or earlier.
    pub(crate) fn contains(&self, mac: Mac, boot: BootEpoch) -> bool {
        let used = self.machines.get(&mac);
        used.is_some_and(|used| used.last == boot || used.earlier.contains(&boot))
    }

    /// The boots of a machine before the one that joined last, the oldest first.
    pub(crate) fn earlier(&self, mac: Mac) -> impl Iterator<Item = BootEpoch> + '_ {
        let used = self.machines.get(&mac);
        used.into_iter()
            .flat_map(|used| used.earlier.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_boot_may_come_back_and_those_before_it_may_not() {
        let mut boots = UsedBoots::new(2);
        for boot in 1..=12 {
            boots.joined([1; 6], BootEpoch(boot));
            boots.joined([1; 6], BootEpoch(boot));
        }
        assert_eq!(boots.used_up_by([1; 6], BootEpoch(12)), None);
        assert!(boots.contains([1; 6], BootEpoch(12)));
        let last = Some(BootEpoch(12));
        assert_eq!(boots.used_up_by([1; 6], BootEpoch(11)), last);
        assert_eq!(boots.used_up_by([1; 6], BootEpoch(4)), last);
        assert_eq!(boots.used_up_by([1; 6], BootEpoch(3)), None);
        assert_eq!(boots.used_up_by([2; 6], BootEpoch(11)), None);
        let earlier: alloc::vec::Vec<u64> = boots.earlier([1; 6]).map(|boot| boot.0).collect();
        assert_eq!(earlier, [4, 5, 6, 7, 8, 9, 10, 11]);
        // The table has a bound, and who joined longest ago goes.
        boots.joined([2; 6], BootEpoch(1));
        boots.joined([1; 6], BootEpoch(12));
        boots.joined([3; 6], BootEpoch(1));
        assert!(!boots.contains([2; 6], BootEpoch(1)) && boots.contains([1; 6], BootEpoch(5)));
    }
}
