//! Hands out personalities: once per machine and boot epoch.
//!
//! A repeat before the node has joined is a retransmission and gets the same answer. Once the node
//! has joined, its key is in use, and whoever asks for it again is not that node.

use crate::config::MAX_LEASES;
use crate::hooks::{Personalities, Refused};
use crate::mac::Mac;
use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;

/// Longest personality: one DHCP option.
const MAX_PERSONALITY_BYTES: usize = 255;

/// Boot epochs of one machine that are remembered as used. More than one, so that a stranger cannot
/// make the epoch in use forgotten by asking with another; few, because every one of them was a
/// boot of this machine.
const MAX_USED_EPOCHS: usize = 4;

/// What one machine was given.
#[derive(Debug, Default)]
struct Issued {
    /// The latest personality, until its node has joined.
    waiting: Option<Waiting>,
    /// Epochs that nodes have joined with, the latest last: nobody may get their personalities any
    /// more.
    used: VecDeque<u64>,
}

#[derive(Debug)]
struct Waiting {
    boot_epoch: u64,
    bytes: Vec<u8>,
    /// Position in [`Issuer::order`].
    order: u64,
}

/// The personalities of all machines.
///
/// Invariant: a machine that never joined gives way when the table is full, the one served longest
/// ago first, so that strangers asking under many addresses cannot use the table up; a machine that
/// joined stays.
#[derive(Debug, Default)]
pub(super) struct Issuer {
    issued: BTreeMap<Mac, Issued>,
    /// Machines that never joined, by when they were served.
    order: BTreeMap<u64, Mac>,
    next_order: u64,
}

impl Issuer {
    /// The personality for one boot of one machine.
    pub(super) fn request(
        &mut self,
        mac: Mac,
        boot_epoch: u64,
        address: Ipv4Addr,
        personalities: &dyn Personalities,
    ) -> Result<Vec<u8>, Refused> {
        if let Some(issued) = self.issued.get(&mac) {
            if issued.used.contains(&boot_epoch) {
                let reason = "the key of this boot is in use already; if the machine is yours, restart \
                              it, else somebody copies its requests";
                return Err(Refused {
                    reason: reason.into(),
                });
            }
            if let Some(waiting) = issued
                .waiting
                .as_ref()
                .filter(|w| w.boot_epoch == boot_epoch)
            {
                return Ok(waiting.bytes.clone());
            }
        }
        self.make_room(mac)?;
        let bytes = personalities.personality(mac, boot_epoch, address)?;
        if bytes.len() > MAX_PERSONALITY_BYTES {
            let reason = format!(
                "its personality has {} bytes, more than one DHCP option holds; give the node a shorter name",
                bytes.len()
            );
            return Err(Refused { reason });
        }
        let order = self.next_order;
        self.next_order += 1;
        let issued = self.issued.entry(mac).or_default();
        let waiting = Waiting {
            boot_epoch,
            bytes: bytes.clone(),
            order,
        };
        let before = issued.waiting.replace(waiting);
        if issued.used.is_empty() {
            self.order.insert(order, mac);
        }
        if let Some(before) = before {
            self.order.remove(&before.order);
        }
        Ok(bytes)
    }

    /// The node of this boot has joined: with a personality from here, from before a restart of
    /// this service, or from its command line.
    pub(super) fn joined(&mut self, mac: Mac, boot_epoch: u64) {
        // Without room (every machine in the table has joined) its key merely stays unguarded.
        if self.make_room(mac).is_err() {
            return;
        }
        let issued = self.issued.entry(mac).or_default();
        if let Some(waiting) = issued.waiting.take() {
            self.order.remove(&waiting.order);
            // Kept if it is for another boot: that node has yet to join.
            issued.waiting = Some(waiting).filter(|waiting| waiting.boot_epoch != boot_epoch);
        }
        issued.used.retain(|used| *used != boot_epoch);
        if issued.used.len() >= MAX_USED_EPOCHS {
            issued.used.pop_front();
        }
        issued.used.push_back(boot_epoch);
    }

    /// Makes sure that `mac` has or can have an entry.
    fn make_room(&mut self, mac: Mac) -> Result<(), Refused> {
        if self.issued.contains_key(&mac) || self.issued.len() < MAX_LEASES {
            return Ok(());
        }
        let Some((_, stranger)) = self.order.pop_first() else {
            let reason =
                format!("{MAX_LEASES} machines have joined already, as many as are served");
            return Err(Refused { reason });
        };
        self.issued.remove(&stranger);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;

    /// Counts the questions. The trait wants `Sync`, a test has one thread.
    #[derive(Default)]
    struct Count(std::sync::Mutex<Cell<u32>>);

    impl Personalities for Count {
        fn personality(&self, mac: Mac, epoch: u64, _: Ipv4Addr) -> Result<Vec<u8>, Refused> {
            let count = self.0.lock().unwrap();
            count.set(count.get() + 1);
            Ok([&mac.0[..], &epoch.to_be_bytes()].concat())
        }
    }

    impl Count {
        fn get(&self) -> u32 {
            self.0.lock().unwrap().get()
        }
    }

    const IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);

    fn mac(n: usize) -> Mac {
        let [a, b, c, d] = (n as u32).to_be_bytes();
        Mac([2, 0, a, b, c, d])
    }

    #[test]
    fn strangers_do_not_use_the_table_up() {
        let mut issuer = Issuer::default();
        let count = Count::default();
        issuer.request(mac(0), 1, IP, &count).unwrap();
        issuer.joined(mac(0), 1);
        for n in 1..2 * MAX_LEASES {
            issuer.request(mac(n), 1, IP, &count).unwrap();
            assert!(issuer.issued.len() <= MAX_LEASES);
        }
        assert!(
            issuer.request(mac(0), 1, IP, &count).is_err(),
            "the node is not forgotten"
        );
        // The one served last is still known, the first stranger is not.
        let before = count.get();
        issuer
            .request(mac(2 * MAX_LEASES - 1), 1, IP, &count)
            .unwrap();
        assert_eq!(count.get(), before);
        issuer.request(mac(1), 1, IP, &count).unwrap();
        assert_eq!(count.get(), before + 1);
    }

    #[test]
    fn a_table_of_nodes_refuses_strangers() {
        let mut issuer = Issuer::default();
        for n in 0..MAX_LEASES {
            issuer.joined(mac(n), 1);
        }
        let count = Count::default();
        assert!(issuer.request(mac(MAX_LEASES), 1, IP, &count).is_err());
        assert_eq!(count.get(), 0);
        assert!(
            issuer.request(mac(7), 2, IP, &count).is_ok(),
            "a node boots again"
        );
    }

    #[test]
    fn asking_with_another_epoch_does_not_free_the_one_in_use() {
        let mut issuer = Issuer::default();
        let count = Count::default();
        issuer.request(mac(1), 1, IP, &count).unwrap();
        issuer.joined(mac(1), 1);
        issuer.request(mac(1), 2, IP, &count).unwrap();
        assert!(issuer.request(mac(1), 1, IP, &count).is_err());
        issuer.joined(mac(1), 2);
        assert!(issuer.request(mac(1), 1, IP, &count).is_err());
        assert!(issuer.request(mac(1), 2, IP, &count).is_err());
    }

    proptest! {
        /// The order of strangers and the table never drift apart.
        #[test]
        fn bookkeeping_holds(steps in prop::collection::vec((0usize..6, 0u64..4, any::<bool>()), 0..100)) {
            let mut issuer = Issuer::default();
            let count = Count::default();
            for (n, epoch, join) in steps {
                if join {
                    issuer.joined(mac(n), epoch);
                    prop_assert!(issuer.request(mac(n), epoch, IP, &count).is_err());
                } else if let Ok(bytes) = issuer.request(mac(n), epoch, IP, &count) {
                    let before = count.get();
                    prop_assert_eq!(issuer.request(mac(n), epoch, IP, &count).unwrap(), bytes);
                    prop_assert_eq!(count.get(), before);
                }
                let strangers: Vec<Mac> = issuer
                    .issued
                    .iter()
                    .filter(|(_, issued)| issued.used.is_empty())
                    .map(|(mac, _)| *mac)
                    .collect();
                let mut ordered: Vec<Mac> = issuer.order.values().copied().collect();
                ordered.sort();
                prop_assert_eq!(ordered, strangers);
            }
        }
    }
}
