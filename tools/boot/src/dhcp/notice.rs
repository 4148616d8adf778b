//! What the DHCP server has to tell: a bounded queue, with repeated trouble held back.

use crate::event::Event;
use crate::mac::Mac;
use crate::timeline::Firmware;
use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;
use std::time::Duration;

/// Notices kept until somebody drains them. A service drains after every packet, which makes at
/// most four; the rest is room.
const MAX_NOTICES: usize = 64;
/// The same trouble of the same machine is reported again only after this time: firmware repeats
/// its requests every few seconds for as long as the machine is on.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);
/// Machines whose last report is remembered. Beyond it reports come more often, not less.
const MAX_REPORTED: usize = 1_024;
/// What happened, for the timeline and the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A machine that boots asked for an address or for what to boot.
    Asked {
        mac: Mac,
        firmware: Firmware,
        boot_epoch: Option<u64>,
    },
    /// A machine has its address.
    Addressed {
        mac: Mac,
        address: Ipv4Addr,
        node: Option<u32>,
    },
    /// A kernel was sent its personality.
    Personality {
        mac: Mac,
        boot_epoch: u64,
    },
    Event(Event),
}

/// Notices that nobody has taken yet.
#[derive(Debug, Default)]
pub(super) struct Notices {
    queue: VecDeque<Notice>,
    reported: BTreeMap<(Mac, &'static str), Duration>,
}

impl Notices {
    pub(super) fn pop(&mut self) -> Option<Notice> {
        self.queue.pop_front()
    }

    /// Queues a notice; the oldest gives way when nobody drains the queue.
    pub(super) fn push(&mut self, notice: Notice) {
        if self.queue.len() >= MAX_NOTICES {
            self.queue.pop_front();
        }
        self.queue.push_back(notice);
    }

    /// Queues an event, unless the same kind was reported of this machine a moment ago.
    pub(super) fn report(&mut self, now: Duration, mac: Mac, event: Event) {
        let key = (mac, event.name());
        let recent = self
            .reported
            .get(&key)
            .is_some_and(|last| now < *last + REPORT_INTERVAL);
        if recent {
            return;
        }
        if self.reported.len() >= MAX_REPORTED {
            self.reported.clear();
        }
        self.reported.insert(key, now);
        self.push(Notice::Event(event));
    }
}
