//! Who has which address.
//!
//! Everything is keyed by MAC and never by client identifier: firmware, iPXE and the kernel of one
//! machine send different identifiers (or none) and must get one address. In a range the first
//! choice is computed from the MAC, so that a machine usually keeps its address even when the table
//! is lost.
//!
//! Invariant: an address has at most one owner, and only addresses of the pool are given out.

use crate::config::{FixedLease, Leases, MAX_LEASES};
use crate::mac::Mac;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

/// How long an offered address is kept for the machine's REQUEST. Firmware answers within a second;
/// ten of them cover retransmissions on a lossy or crowded wire.
pub const OFFER_HOLD: Duration = Duration::from_secs(30);

/// How long an address that a machine found in use is kept out of a range.
pub const DECLINE_HOLD: Duration = Duration::from_secs(600);

/// Why a machine gets no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    #[error("the machine is not in the list of fixed leases")]
    UnknownMachine,
    #[error("all {size} addresses are taken")]
    Exhausted { size: usize },
}

/// A machine's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    pub address: Ipv4Addr,
    /// Node number, for fixed leases.
    pub node: Option<u32>,
}

/// The lease table. Times are counted from the start of the service.
#[derive(Debug)]
pub struct LeaseTable {
    pool: Pool,
    machines: BTreeMap<Mac, Binding>,
    owners: BTreeMap<Ipv4Addr, Mac>,
    /// Addresses found in use by strangers, and until when they are avoided.
    declined: BTreeMap<Ipv4Addr, Duration>,
    changed: bool,
}

#[derive(Debug)]
enum Pool {
    Range {
        first: u32,
        last: u32,
        excluded: Vec<u32>,
    },
    Fixed(BTreeMap<Mac, Lease>),
}

/// A range address and until when it is this machine's. After that it is kept for it until
/// somebody else needs it.
#[derive(Clone, Copy, Debug)]
struct Binding {
    address: Ipv4Addr,
    until: Duration,
    /// Acknowledged, not only offered: worth keeping over a restart.
    bound: bool,
}

impl LeaseTable {
    /// A table over `leases`; `excluded` are addresses of the range that belong to somebody else
    /// (the service itself, the router, the network's broadcast address).
    pub fn new(leases: &Leases, excluded: &[Ipv4Addr]) -> LeaseTable {
        let pool = match leases {
            Leases::Range { first, last } => {
                let first = first.to_bits();
                let last = last
                    .to_bits()
                    .min(first.saturating_add(MAX_LEASES as u32 - 1));
                let mut excluded: Vec<u32> = excluded
                    .iter()
                    .map(|address| address.to_bits())
                    .filter(|bits| (first..=last).contains(bits))
                    .collect();
                excluded.sort_unstable();
                excluded.dedup();
                Pool::Range {
                    first,
                    last,
                    excluded,
                }
            }
            Leases::Fixed(list) => Pool::Fixed(
                list.iter()
                    .map(|FixedLease { mac, address, node }| {
                        (
                            *mac,
                            Lease {
                                address: *address,
                                node: Some(*node),
                            },
                        )
                    })
                    .collect(),
            ),
        };
        LeaseTable {
            pool,
            machines: BTreeMap::new(),
            owners: BTreeMap::new(),
            declined: BTreeMap::new(),
            changed: false,
        }
    }

    /// Number of addresses that can be given out.
    pub fn size(&self) -> usize {
        match &self.pool {
            Pool::Range {
                first,
                last,
                excluded,
            } => (last - first + 1) as usize - excluded.len(),
            Pool::Fixed(leases) => leases.len(),
        }
    }

    /// The machine's address, if it has one now.
    pub fn lookup(&self, mac: Mac) -> Option<Lease> {
        match &self.pool {
            Pool::Range { .. } => self.machines.get(&mac).map(|binding| Lease {
                address: binding.address,
                node: None,
            }),
            Pool::Fixed(leases) => leases.get(&mac).copied(),
        }
    }

    /// Whose address this is.
    pub fn owner(&self, address: Ipv4Addr) -> Option<Mac> {
        match &self.pool {
            Pool::Range { .. } => self.owners.get(&address).copied(),
            // Asked a few times per boot; the list is short against a boot.
            Pool::Fixed(leases) => leases
                .iter()
                .find(|(_, lease)| lease.address == address)
                .map(|(mac, _)| *mac),
        }
    }

    /// Whether this machine may be served at all.
    ///
    /// # Errors
    /// [`LeaseError::UnknownMachine`] when there is a list and it is not in it.
    pub fn admits(&self, mac: Mac) -> Result<(), LeaseError> {
        match &self.pool {
            Pool::Fixed(leases) if !leases.contains_key(&mac) => Err(LeaseError::UnknownMachine),
            _ => Ok(()),
        }
    }

    /// An address to offer: the machine's own; else the one it wishes, if free; else the one
    /// computed from its MAC or the next free one after that; else the one unused for longest. Held
    /// for [`OFFER_HOLD`].
    ///
    /// # Errors
    /// [`LeaseError`].
    pub fn offer(
        &mut self,
        mac: Mac,
        wish: Option<Ipv4Addr>,
        now: Duration,
    ) -> Result<Lease, LeaseError> {
        if let Pool::Fixed(leases) = &self.pool {
            return leases.get(&mac).copied().ok_or(LeaseError::UnknownMachine);
        }
        self.declined.retain(|_, until| *until > now);
        if let Some(binding) = self.machines.get_mut(&mac) {
            binding.until = binding.until.max(now + OFFER_HOLD);
            return Ok(Lease {
                address: binding.address,
                node: None,
            });
        }
        let address = wish
            .filter(|address| self.is_free(*address))
            .or_else(|| self.computed_or_next(mac))
            .or_else(|| self.reclaim(now))
            .ok_or(LeaseError::Exhausted { size: self.size() })?;
        self.bind(mac, address, now + OFFER_HOLD, false);
        Ok(Lease {
            address,
            node: None,
        })
    }

    /// Makes `address` the machine's until `until`, if it is its own or free. Taking a free address
    /// that the table does not know is how leases survive a restart: the machine still holds it.
    pub fn confirm(&mut self, mac: Mac, address: Ipv4Addr, until: Duration) -> Option<Lease> {
        if let Pool::Fixed(leases) = &self.pool {
            return leases
                .get(&mac)
                .copied()
                .filter(|lease| lease.address == address);
        }
        let owner = self.owners.get(&address).copied();
        let mine = owner == Some(mac);
        let adopt = owner.is_none() && !self.machines.contains_key(&mac) && self.is_free(address);
        if !mine && !adopt {
            return None;
        }
        self.bind(mac, address, until, true);
        Some(Lease {
            address,
            node: None,
        })
    }

    /// The machine gives its address back; it is still its first choice next time.
    pub fn release(&mut self, mac: Mac, address: Ipv4Addr, now: Duration) -> bool {
        match self.machines.get_mut(&mac) {
            Some(binding) if binding.address == address => {
                binding.until = now;
                true
            }
            _ => false,
        }
    }

    /// The machine found its address in use. From a range it gets another one next time.
    pub fn decline(&mut self, mac: Mac, address: Ipv4Addr, now: Duration) -> bool {
        if let Pool::Fixed(leases) = &self.pool {
            return leases
                .get(&mac)
                .is_some_and(|lease| lease.address == address);
        }
        if self.owners.get(&address) != Some(&mac) {
            return false;
        }
        self.owners.remove(&address);
        self.machines.remove(&mac);
        self.declined.insert(address, now + DECLINE_HOLD);
        self.changed = true;
        true
    }

    /// All acknowledged range leases, for keeping over a restart.
    pub fn bindings(&self) -> impl Iterator<Item = (Mac, Ipv4Addr)> + '_ {
        self.machines
            .iter()
            .filter(|(_, binding)| binding.bound)
            .map(|(mac, binding)| (*mac, binding.address))
    }

    /// Puts back what [`Self::bindings`] gave before a restart. Entries that do not fit are left
    /// out.
    pub fn restore(
        &mut self,
        bindings: impl IntoIterator<Item = (Mac, Ipv4Addr)>,
        until: Duration,
    ) {
        for (mac, address) in bindings {
            if matches!(self.pool, Pool::Range { .. }) && mac.is_station() {
                self.confirm(mac, address, until);
            }
        }
        self.changed = false;
    }

    /// Whether [`Self::bindings`] changed since this was asked last.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    fn bind(&mut self, mac: Mac, address: Ipv4Addr, until: Duration, bound: bool) {
        let previous = self.machines.insert(
            mac,
            Binding {
                address,
                until,
                bound,
            },
        );
        self.changed |=
            bound && previous.is_none_or(|previous| !previous.bound || previous.address != address);
        self.owners.insert(address, mac);
        debug_assert_eq!(self.machines.len(), self.owners.len());
    }

    fn in_pool(&self, address: u32) -> bool {
        match &self.pool {
            Pool::Range {
                first,
                last,
                excluded,
            } => (*first..=*last).contains(&address) && excluded.binary_search(&address).is_err(),
            Pool::Fixed(_) => false,
        }
    }

    fn is_free(&self, address: Ipv4Addr) -> bool {
        self.in_pool(address.to_bits())
            && !self.owners.contains_key(&address)
            && !self.declined.contains_key(&address)
    }

    fn computed_or_next(&self, mac: Mac) -> Option<Ipv4Addr> {
        let Pool::Range { first, last, .. } = &self.pool else {
            return None;
        };
        if self.owners.len() + self.declined.len() >= self.size() {
            return None;
        }
        let length = last - first + 1;
        let start = hash(mac) % length;
        (0..length)
            .map(|step| Ipv4Addr::from_bits(first + (start + step) % length))
            .find(|address| self.is_free(*address))
    }

    /// Takes the address back whose time ran out first.
    fn reclaim(&mut self, now: Duration) -> Option<Ipv4Addr> {
        let (mac, binding) = self
            .machines
            .iter()
            .filter(|(_, binding)| binding.until <= now)
            .min_by_key(|(_, binding)| binding.until)
            .map(|(mac, binding)| (*mac, *binding))?;
        self.machines.remove(&mac);
        self.owners.remove(&binding.address);
        self.changed |= binding.bound;
        Some(binding.address)
    }
}

/// FNV-1a, 32 bits: fixed for good, because addresses over restarts depend on it.
fn hash(mac: Mac) -> u32 {
    mac.0.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const T0: Duration = Duration::ZERO;
    const LONG: Duration = Duration::from_secs(1_000_000);

    fn mac(n: u8) -> Mac {
        Mac([2, 0, 0, 0, 0, n])
    }

    fn ip(n: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 0, n)
    }

    fn range(first: u8, last: u8) -> LeaseTable {
        LeaseTable::new(
            &Leases::Range {
                first: ip(first),
                last: ip(last),
            },
            &[ip(1)],
        )
    }

    #[test]
    fn a_full_range_says_so_and_takes_expired_leases_back() {
        let mut table = range(1, 3);
        assert_eq!(table.size(), 2);
        let a = table.offer(mac(1), None, T0).unwrap().address;
        let b = table.offer(mac(2), None, T0).unwrap().address;
        assert_ne!(a, b);
        assert_eq!(
            table.offer(mac(3), None, T0),
            Err(LeaseError::Exhausted { size: 2 })
        );
        table.confirm(mac(1), a, LONG).unwrap();
        // The second offer was never taken: after the hold it goes to the third machine.
        assert_eq!(table.offer(mac(3), None, OFFER_HOLD).unwrap().address, b);
        assert_eq!(table.lookup(mac(2)), None);
    }

    #[test]
    fn a_restarted_table_takes_what_machines_still_hold() {
        let mut table = range(1, 9);
        assert_eq!(table.confirm(mac(1), ip(5), LONG).unwrap().address, ip(5));
        assert_eq!(table.confirm(mac(2), ip(5), LONG), None);
        assert_eq!(
            table.confirm(mac(2), ip(1), LONG),
            None,
            "the service's own address"
        );
        assert_eq!(
            table.confirm(mac(2), ip(10), LONG),
            None,
            "outside the range"
        );
        assert_eq!(table.offer(mac(1), Some(ip(6)), T0).unwrap().address, ip(5));
    }

    #[test]
    fn bindings_are_restored() {
        let mut table = range(1, 9);
        let a = table.offer(mac(1), None, T0).unwrap().address;
        assert!(!table.take_changed(), "an offer is not worth a write");
        table.confirm(mac(1), a, LONG).unwrap();
        assert!(table.take_changed());
        table.confirm(mac(1), a, LONG + LONG).unwrap();
        assert!(!table.take_changed(), "a renewal changes nothing");
        let saved: Vec<_> = table.bindings().collect();
        let mut again = range(1, 9);
        again.restore(saved.clone(), LONG);
        assert_eq!(again.bindings().collect::<Vec<_>>(), saved);
    }

    #[test]
    fn declined_addresses_rest() {
        let mut table = range(2, 3);
        let a = table.offer(mac(1), None, T0).unwrap().address;
        assert!(!table.decline(mac(2), a, T0), "not its address");
        assert!(table.decline(mac(1), a, T0));
        let b = table.offer(mac(1), None, T0).unwrap().address;
        assert_ne!(a, b);
        assert!(table.offer(mac(2), None, T0).is_err());
        assert_eq!(table.offer(mac(2), None, DECLINE_HOLD).unwrap().address, a);
    }

    #[test]
    fn a_released_address_waits_for_its_machine() {
        let mut table = range(2, 4);
        let a = table.offer(mac(1), None, T0).unwrap().address;
        table.confirm(mac(1), a, LONG).unwrap();
        assert!(!table.release(mac(2), a, T0));
        assert!(table.release(mac(1), a, T0));
        assert_ne!(table.offer(mac(2), None, T0).unwrap().address, a);
        assert_eq!(table.offer(mac(1), None, T0).unwrap().address, a);
    }

    proptest! {
        /// Whatever machines do, no address has two owners.
        #[test]
        fn one_owner_per_address(
            steps in prop::collection::vec((0u8..5, 0u8..12, 0u8..12, 0u64..100), 0..200)
        ) {
            let mut table = range(1, 8);
            let mut now = T0;
            for (step, who, what, wait) in steps {
                now += Duration::from_secs(wait);
                match step {
                    0 => { let _ = table.offer(mac(who), Some(ip(what)), now); }
                    1 => { let _ = table.confirm(mac(who), ip(what), now + OFFER_HOLD); }
                    2 => { table.release(mac(who), ip(what), now); }
                    3 => { table.decline(mac(who), ip(what), now); }
                    _ => { let _ = table.offer(mac(who), None, now); }
                }
                let addresses: BTreeSet<_> = table.machines.values().map(|b| b.address).collect();
                prop_assert_eq!(addresses.len(), table.machines.len());
                for (mac, binding) in &table.machines {
                    prop_assert_eq!(table.owners.get(&binding.address), Some(mac));
                    prop_assert!(table.in_pool(binding.address.to_bits()));
                }
                prop_assert_eq!(table.owners.len(), table.machines.len());
                prop_assert!(table.machines.len() <= table.size());
            }
        }
    }
}
