//! What the service's tasks have in common.
//!
//! Invariant: no lock is held while a [`TimelineSink`] is called, so that the control node may call
//! the service from inside.

use crate::config::{Config, Leases};
use crate::dhcp;
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
    flow: Mutex<EventFlow>,
    dhcp_counters: Mutex<dhcp::Counters>,
}

/// Events in a row that are all passed on: a rack of machines may have one trouble each.
const EVENT_BURST: u32 = 128;
/// After a burst, one event is passed on in each such time.
const EVENT_INTERVAL: Duration = Duration::from_millis(200);

/// Holds back a flood of events: any machine on the wire can cause one with each packet.
#[derive(Debug, Default)]
struct EventFlow {
    /// Events passed on that the time since has not paid for yet.
    unpaid: u32,
    paid_until: Duration,
    left_out: u64,
}

impl EventFlow {
    /// Whether an event may pass, and how many were left out before it.
    fn admit(&mut self, now: Duration) -> Option<u64> {
        let intervals =
            now.saturating_sub(self.paid_until).as_millis() / EVENT_INTERVAL.as_millis();
        let intervals = u32::try_from(intervals).unwrap_or(u32::MAX);
        self.unpaid = self.unpaid.saturating_sub(intervals);
        self.paid_until += EVENT_INTERVAL.saturating_mul(intervals);
        if self.unpaid >= EVENT_BURST {
            self.left_out += 1;
            return None;
        }
        self.unpaid += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
            flow: Mutex::default(),
            dhcp_counters: Mutex::default(),
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
        lock(&self.timeline)
    }

    pub(crate) fn mac_at(&self, address: Ipv4Addr) -> Option<Mac> {
        self.timeline().mac_at(address)
    }

    /// A machine reached a stage; told on if it is the first time.
    pub(crate) fn reached(&self, mac: Mac, stage: Stage) {
        let record = self.timeline().reached(self.now(), mac, stage).cloned();
        self.tell(stage, record);
    }

    /// A machine has the whole image. For firmware that loads it directly the image is its network
    /// boot program as well.
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

    /// Tells the operator, and notes the trouble in the machine's record. Events that come faster
    /// than anybody reads are counted instead.
    pub(crate) fn event(&self, event: Event) {
        let now = self.now();
        let event = event.printable();
        if let Some(mac) = event.mac() {
            let text = event.to_string();
            let text = text
                .strip_prefix(&mac.to_string())
                .unwrap_or(&text)
                .trim_start();
            self.timeline().trouble(now, mac, text.to_owned());
        }
        let admitted = lock(&self.flow).admit(now);
        if let Some(left_out) = admitted {
            if left_out > 0 {
                let reason =
                    format!("{left_out} events before this one were left out: too many at once");
                self.sink.event(&Event::Degraded {
                    part: "events".into(),
                    reason,
                });
            }
            self.sink.event(&event);
        }
    }

    /// What the DHCP server counted up to its last packet.
    pub(crate) fn dhcp_counters(&self) -> MutexGuard<'_, dhcp::Counters> {
        lock(&self.dhcp_counters)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tftp;

    #[derive(Default)]
    struct Log(Mutex<Vec<String>>);

    impl TimelineSink for Log {
        fn stage(&self, _: Stage, _: &BootRecord) {}

        fn event(&self, event: &Event) {
            let json = serde_json::to_value(event).unwrap();
            let texts = json
                .as_object()
                .unwrap()
                .values()
                .filter_map(|value| value.as_str());
            let mut log = self.0.lock().unwrap();
            log.extend(texts.map(str::to_owned));
            log.push(event.to_string());
        }
    }

    /// From a TFTP packet to what the control node is told and the timeline shows.
    #[test]
    fn escape_sequences_from_the_wire_reach_nobody() {
        let config = Config::new("br0", Ipv4Addr::new(10, 117, 0, 1), 16, "hearth.efi".into());
        let log = Arc::new(Log::default());
        let shared = Shared::new(config, log.clone());
        let mac = Mac([2, 0, 0, 0, 0, 1]);
        let client = Ipv4Addr::new(10, 117, 1, 1);
        shared
            .timeline()
            .asked(shared.now(), mac, Firmware::Ipxe, None);
        shared.timeline().addressed(shared.now(), mac, client, None);
        let mut server = tftp::Server::new();
        let from = std::net::SocketAddrV4::new(client, 2_070);
        for name in ["x\x1b[2Jy", "dir/\u{9b}31m", "\u{202e}efi"] {
            let packet = format!("\0\x01{name}\0octet\0");
            server.handle(shared.now(), from, packet.as_bytes(), &shared);
        }
        while let Some(finished) = server.poll_finished() {
            crate::tasks::note_transfer(&shared, finished);
        }
        let mut texts = log.0.lock().unwrap().clone();
        assert!(
            texts.iter().any(|text| text.contains("x\\u{1b}[2Jy")),
            "{texts:?}"
        );
        texts.push(shared.timeline().get(mac).unwrap().trouble.clone().unwrap());
        for text in texts {
            assert_eq!(crate::event::printable(&text), text);
        }
    }

    #[test]
    fn a_flood_of_events_is_counted_and_a_trickle_passes() {
        let mut flow = EventFlow::default();
        let passed = (0..1_000)
            .filter(|_| flow.admit(Duration::ZERO).is_some())
            .count();
        assert_eq!(passed, EVENT_BURST as usize);
        assert_eq!(
            flow.admit(EVENT_INTERVAL),
            Some(1_000 - u64::from(EVENT_BURST))
        );
        assert_eq!(flow.admit(EVENT_INTERVAL), None);
        let mut now = Duration::from_secs(3_600);
        assert_eq!(flow.admit(now), Some(1));
        for _ in 0..1_000 {
            now += EVENT_INTERVAL;
            assert_eq!(flow.admit(now), Some(0));
        }
    }
}
