//! What the service's tasks have in common.
//!
//! Invariant: no lock is held while a [`TimelineSink`] is called, so that the control node may call the service
//! from inside.

use crate::config::{Config, Leases};
use crate::dhcp::client::Places;
use crate::event::Event;
use crate::files::Store;
use crate::hooks::TimelineSink;
use crate::mac::Mac;
use crate::timeline::{BootRecord, Firmware, Report, Stage, Timeline};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Configuration, files, timeline and the way to the control node.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) places: Places,
    pub(crate) files: Store,
    listed: Option<BTreeSet<Mac>>,
    sink: Arc<dyn TimelineSink>,
    started: Instant,
    timeline: Mutex<Timeline>,
}

impl Shared {
    pub(crate) fn new(config: Config, sink: Arc<dyn TimelineSink>) -> Shared {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let unix_ms = since_1970.unwrap_or_default().as_millis() as u64;
        let listed = match &config.leases {
            Leases::Fixed(leases) => Some(leases.iter().map(|lease| lease.mac).collect()),
            Leases::Range { .. } => None,
        };
        Shared {
            places: Places::of(&config),
            files: Store::new(&config),
            listed,
            sink,
            started: Instant::now(),
            timeline: Mutex::new(Timeline::new(unix_ms)),
            config,
        }
    }

    /// Time since the service started.
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether this machine is served at all.
    pub(crate) fn admits(&self, mac: Mac) -> bool {
        mac.is_station()
            && self
                .listed
                .as_ref()
                .is_none_or(|listed| listed.contains(&mac))
    }

    pub(crate) fn timeline(&self) -> MutexGuard<'_, Timeline> {
        self.timeline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn mac_at(&self, address: Ipv4Addr) -> Option<Mac> {
        self.timeline().mac_at(address)
    }

    /// A machine reached a stage; told on if it is the first time.
    pub(crate) fn reached(&self, mac: Mac, stage: Stage) {
        let record = self.timeline().reached(self.now(), mac, stage).cloned();
        self.tell(stage, record);
    }

    /// A machine has the whole image. For firmware that loads it directly the image is its network boot program as well.
    pub(crate) fn reached_image(&self, mac: Mac, direct: Firmware) {
        let firmware = self.timeline().get(mac).and_then(|record| record.firmware);
        if firmware == Some(direct) {
            self.reached(mac, Stage::Nbp);
        }
        self.reached(mac, Stage::Kernel);
    }

    /// Whether this is the machine's first report in this boot.
    pub(crate) fn reported(&self, mac: Mac, report: Report) -> bool {
        let record = self.timeline().reported(self.now(), mac, report).cloned();
        let first = record.is_some();
        self.tell(Stage::Reported, record);
        first
    }

    /// Tells the operator, and notes the trouble in the machine's record.
    pub(crate) fn event(&self, event: Event) {
        if let Some(mac) = event.mac() {
            self.timeline().trouble(self.now(), mac, event.to_string());
        }
        self.sink.event(&event);
    }

    pub(crate) fn transfer_failed(
        &self,
        mac: Option<Mac>,
        client: Option<Ipv4Addr>,
        file: &str,
        reason: String,
    ) {
        let client = client.unwrap_or(Ipv4Addr::UNSPECIFIED);
        let file = file.chars().take(100).collect();
        self.event(Event::TransferFailed {
            mac,
            client,
            file,
            reason,
        });
    }

    fn tell(&self, stage: Stage, record: Option<BootRecord>) {
        if let Some(record) = record {
            self.sink.stage(stage, &record);
        }
    }
}
