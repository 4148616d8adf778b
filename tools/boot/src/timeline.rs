//! How far each machine came in its boot, and when.
//!
//! One [`BootRecord`] per MAC, for its latest boot; the boot before is kept only as a count.

use crate::mac::Mac;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;

/// A step of a boot, in the order in which they come. A machine may skip steps: UEFI firmware
/// that loads the image itself has no script, a kernel started by hand has only the last three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Firmware asked for an address.
    Dhcp,
    /// Firmware has its network boot program.
    Nbp,
    /// iPXE has its script.
    Script,
    /// The machine has the whole image.
    Kernel,
    /// The running kernel has its personality.
    Personality,
    /// The node has joined the control node.
    Joined,
    /// Another system on the machine has reported that it runs.
    Reported,
}

impl Stage {
    /// All stages, in order.
    pub const ALL: [Stage; 7] = [
        Stage::Dhcp,
        Stage::Nbp,
        Stage::Script,
        Stage::Kernel,
        Stage::Personality,
        Stage::Joined,
        Stage::Reported,
    ];
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Stage::Dhcp => "dhcp",
            Stage::Nbp => "nbp",
            Stage::Script => "script",
            Stage::Kernel => "kernel",
            Stage::Personality => "personality",
            Stage::Joined => "joined",
            Stage::Reported => "reported",
        })
    }
}

/// What asked first in this boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Firmware {
    /// BIOS network ROM that is not iPXE.
    BiosPxe,
    /// 64-bit UEFI, image by TFTP.
    UefiPxe,
    /// 64-bit UEFI, image by HTTP.
    UefiHttp,
    /// iPXE, on either.
    Ipxe,
    /// The kernel itself: it was not loaded through this service.
    Direct,
}

impl fmt::Display for Firmware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Firmware::BiosPxe => "bios-pxe",
            Firmware::UefiPxe => "uefi-pxe",
            Firmware::UefiHttp => "uefi-http",
            Firmware::Ipxe => "ipxe",
            Firmware::Direct => "direct",
        })
    }
}

/// One time for each stage that was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageTimes {
    pub dhcp: Option<u64>,
    pub nbp: Option<u64>,
    pub script: Option<u64>,
    pub kernel: Option<u64>,
    pub personality: Option<u64>,
    pub joined: Option<u64>,
    pub reported: Option<u64>,
}

impl StageTimes {
    /// The time of one stage.
    pub fn get(&self, stage: Stage) -> Option<u64> {
        match stage {
            Stage::Dhcp => self.dhcp,
            Stage::Nbp => self.nbp,
            Stage::Script => self.script,
            Stage::Kernel => self.kernel,
            Stage::Personality => self.personality,
            Stage::Joined => self.joined,
            Stage::Reported => self.reported,
        }
    }

    fn slot(&mut self, stage: Stage) -> &mut Option<u64> {
        match stage {
            Stage::Dhcp => &mut self.dhcp,
            Stage::Nbp => &mut self.nbp,
            Stage::Script => &mut self.script,
            Stage::Kernel => &mut self.kernel,
            Stage::Personality => &mut self.personality,
            Stage::Joined => &mut self.joined,
            Stage::Reported => &mut self.reported,
        }
    }

    /// The furthest stage reached.
    pub fn furthest(&self) -> Option<Stage> {
        Stage::ALL
            .into_iter()
            .rev()
            .find(|stage| self.get(*stage).is_some())
    }
}

/// The latest boot of one machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootRecord {
    pub mac: Mac,
    /// Address last given out.
    pub address: Option<Ipv4Addr>,
    /// Node number: of the fixed lease, or as it joined.
    pub node: Option<u32>,
    pub firmware: Option<Firmware>,
    /// Boots seen of this machine since the service started, this one included.
    pub boots: u32,
    /// Boot epoch the kernel announced.
    pub boot_epoch: Option<u64>,
    /// First packet of this boot, in milliseconds since 1970.
    pub began_unix_ms: u64,
    /// When each stage was reached first, in microseconds after the boot's first packet.
    pub stages: StageTimes,
    /// The same in milliseconds since 1970.
    pub stages_unix_ms: StageTimes,
    /// DHCP requests of this boot; many without a later stage mean that answers do not arrive.
    pub dhcp_requests: u32,
    /// What went wrong last, until the boot gets further.
    pub trouble: Option<String>,
    /// What another system said of itself when it reported.
    pub report: Option<Report>,
}

/// What another system on a machine says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Milliseconds since its kernel was entered.
    pub uptime_ms: Option<u64>,
    /// Milliseconds of these that it was idle.
    pub idle_ms: Option<u64>,
}

/// Most machines remembered: as many as can have leases.
pub const MAX_RECORDS: usize = crate::config::MAX_LEASES;

/// A boot that shows no sign for this long is over, whatever stage it reached; the machine's next
/// packet begins a new one. Ten minutes are more than any firmware waits between two tries.
const SILENCE_ENDS_BOOT: Duration = Duration::from_secs(600);

/// The latest boot of every machine. Times are counted from the start of the service.
#[derive(Debug)]
pub struct Timeline {
    records: BTreeMap<Mac, Entry>,
    /// Wall time of the service's start, in milliseconds since 1970.
    started_unix_ms: u64,
}

#[derive(Debug)]
struct Entry {
    record: BootRecord,
    began: Duration,
    last_seen: Duration,
}

impl Timeline {
    /// An empty timeline of a service that started at `started_unix_ms`.
    pub fn new(started_unix_ms: u64) -> Timeline {
        Timeline {
            records: BTreeMap::new(),
            started_unix_ms,
        }
    }

    /// A machine asked by DHCP. Begins a new boot where the request cannot belong to the one known.
    /// Returns whether this is the first request of a boot.
    pub fn asked(
        &mut self,
        now: Duration,
        mac: Mac,
        firmware: Firmware,
        boot_epoch: Option<u64>,
    ) -> bool {
        let again = self.records.get(&mac).is_some_and(|entry| {
            let silent = now.saturating_sub(entry.last_seen) >= SILENCE_ENDS_BOOT;
            !silent && belongs(&entry.record, firmware, boot_epoch)
        });
        if !again {
            self.begin(now, mac, firmware);
        }
        let entry = self.entry(now, mac);
        entry.record.dhcp_requests = entry.record.dhcp_requests.saturating_add(1);
        if boot_epoch.is_some() {
            entry.record.boot_epoch = boot_epoch;
        }
        !again
    }

    /// A machine has an address.
    pub fn addressed(&mut self, now: Duration, mac: Mac, address: Ipv4Addr, node: Option<u32>) {
        let record = &mut self.entry(now, mac).record;
        record.address = Some(address);
        record.node = node.or(record.node);
    }

    /// A machine reached a stage. Returns the record if it is the first time in this boot.
    pub fn reached(&mut self, now: Duration, mac: Mac, stage: Stage) -> Option<&BootRecord> {
        let unix_ms = self.started_unix_ms + now.as_millis() as u64;
        let entry = self.entry(now, mac);
        let since = now.saturating_sub(entry.began).as_micros() as u64;
        let slot = entry.record.stages.slot(stage);
        if slot.is_some() {
            return None;
        }
        *slot = Some(since);
        entry.record.trouble = None;
        *entry.record.stages_unix_ms.slot(stage) = Some(unix_ms);
        Some(&entry.record)
    }

    /// The node joined: in a boot the service saw, or, after a restart of the service, in one it
    /// did not.
    pub fn joined(
        &mut self,
        now: Duration,
        mac: Mac,
        boot_epoch: u64,
        node: u32,
    ) -> Option<&BootRecord> {
        let known = self
            .records
            .get(&mac)
            .and_then(|entry| entry.record.boot_epoch);
        if known.is_some_and(|known| known != boot_epoch) {
            self.begin(now, mac, Firmware::Direct);
        }
        let record = &mut self.entry(now, mac).record;
        record.boot_epoch = Some(boot_epoch);
        record.node = Some(node);
        self.reached(now, mac, Stage::Joined)
    }

    /// Another system on the machine reports that it runs. Only machines that asked for something
    /// before are recorded; `None` for all others and for a repeated report.
    pub fn reported(&mut self, now: Duration, mac: Mac, report: Report) -> Option<&BootRecord> {
        if !self.records.contains_key(&mac) {
            return None;
        }
        let record = &mut self.entry(now, mac).record;
        record.report.get_or_insert(report);
        self.reached(now, mac, Stage::Reported)
    }

    /// The machine that has this address; the one seen last, where an address went from one to
    /// another.
    pub fn mac_at(&self, address: Ipv4Addr) -> Option<Mac> {
        let at = self
            .records
            .values()
            .filter(|entry| entry.record.address == Some(address));
        at.max_by_key(|entry| entry.last_seen)
            .map(|entry| entry.record.mac)
    }

    /// Something went wrong in a machine's boot.
    pub fn trouble(&mut self, now: Duration, mac: Mac, text: String) {
        if self.records.contains_key(&mac) {
            self.entry(now, mac).record.trouble = Some(text);
        }
    }

    /// One machine's latest boot.
    pub fn get(&self, mac: Mac) -> Option<&BootRecord> {
        self.records.get(&mac).map(|entry| &entry.record)
    }

    /// All records, by MAC.
    pub fn records(&self) -> impl Iterator<Item = &BootRecord> {
        self.records.values().map(|entry| &entry.record)
    }

    fn begin(&mut self, now: Duration, mac: Mac, firmware: Firmware) {
        let boots = self.records.get(&mac).map_or(0, |entry| entry.record.boots);
        self.records.remove(&mac);
        let record = &mut self.entry(now, mac).record;
        record.firmware = Some(firmware);
        record.boots = boots.saturating_add(1);
    }

    /// The machine's entry, made if need be; the table's oldest gives way when it is full.
    fn entry(&mut self, now: Duration, mac: Mac) -> &mut Entry {
        if !self.records.contains_key(&mac) && self.records.len() >= MAX_RECORDS {
            let oldest = self.records.iter().min_by_key(|(_, entry)| entry.last_seen);
            if let Some(oldest) = oldest.map(|(mac, _)| *mac) {
                self.records.remove(&oldest);
            }
        }
        let began_unix_ms = self.started_unix_ms + now.as_millis() as u64;
        let entry = self.records.entry(mac).or_insert_with(|| Entry {
            record: BootRecord::new(mac, began_unix_ms),
            began: now,
            last_seen: now,
        });
        entry.last_seen = now;
        entry
    }
}

/// Whether a DHCP request can be part of the boot in `record`.
fn belongs(record: &BootRecord, firmware: Firmware, boot_epoch: Option<u64>) -> bool {
    let stages = &record.stages;
    let kernel_runs =
        stages.personality.is_some() || stages.joined.is_some() || stages.reported.is_some();
    match firmware {
        Firmware::Direct => record.boot_epoch.is_none() || record.boot_epoch == boot_epoch,
        // iPXE comes after another ROM's network boot program, or first.
        Firmware::Ipxe => !kernel_runs && stages.script.is_none() && stages.kernel.is_none(),
        Firmware::BiosPxe | Firmware::UefiPxe | Firmware::UefiHttp => {
            !kernel_runs && matches!(stages.furthest(), None | Some(Stage::Dhcp))
        }
    }
}

impl BootRecord {
    fn new(mac: Mac, began_unix_ms: u64) -> BootRecord {
        BootRecord {
            mac,
            address: None,
            node: None,
            firmware: None,
            boots: 1,
            boot_epoch: None,
            began_unix_ms,
            stages: StageTimes::default(),
            stages_unix_ms: StageTimes::default(),
            dhcp_requests: 0,
            trouble: None,
            report: None,
        }
    }
}

/// The records as a table for people: seconds from the first packet to each stage, and what went
/// wrong.
pub fn table<'a>(records: impl IntoIterator<Item = &'a BootRecord>) -> String {
    let records: Vec<&BootRecord> = records.into_iter().collect();
    let reports = records
        .iter()
        .any(|record| record.stages.reported.is_some());
    let stages: Vec<Stage> = Stage::ALL
        .into_iter()
        .filter(|stage| *stage != Stage::Reported || reports)
        .collect();
    let mut rows = vec![
        ["NODE", "MAC", "ADDRESS", "BY", "BOOTS"]
            .into_iter()
            .map(str::to_owned)
            .chain(stages.iter().map(|stage| stage.to_string().to_uppercase()))
            .chain(["TROUBLE".to_owned()])
            .collect::<Vec<_>>(),
    ];
    let dash = || "-".to_owned();
    for record in records {
        let mut row = vec![
            record.node.map_or_else(dash, |node| format!("n{node}")),
            record.mac.to_string(),
            record
                .address
                .map_or_else(dash, |address| address.to_string()),
            record
                .firmware
                .map_or_else(dash, |firmware| firmware.to_string()),
            record.boots.to_string(),
        ];
        row.extend(stages.iter().map(|stage| {
            let seconds = |us: u64| format!("{:.2}", us as f64 / 1e6);
            record.stages.get(*stage).map_or_else(dash, seconds)
        }));
        row.push(record.trouble.clone().unwrap_or_default());
        rows.push(row);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..rows[0].len()).map(|c| width(c).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = Mac([0x52, 0x54, 0, 7, 0, 3]);

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn one_boot_through_ipxe_is_one_record() {
        let mut timeline = Timeline::new(1_000_000);
        assert!(timeline.asked(at(100), MAC, Firmware::Ipxe, None));
        assert!(timeline.reached(at(100), MAC, Stage::Dhcp).is_some());
        assert!(!timeline.asked(at(150), MAC, Firmware::Ipxe, None));
        assert!(timeline.reached(at(150), MAC, Stage::Dhcp).is_none());
        timeline.addressed(at(150), MAC, Ipv4Addr::new(10, 117, 1, 3), Some(3));
        timeline.reached(at(300), MAC, Stage::Script);
        timeline.reached(at(600), MAC, Stage::Kernel);
        assert!(!timeline.asked(at(900), MAC, Firmware::Direct, Some(7)));
        timeline.reached(at(900), MAC, Stage::Personality);
        let record = timeline.joined(at(1_000), MAC, 7, 3).unwrap().clone();
        assert_eq!(record.firmware, Some(Firmware::Ipxe));
        assert_eq!(record.began_unix_ms, 1_000_100);
        assert_eq!(record.boots, 1);
        assert_eq!(record.stages.script, Some(200_000));
        assert_eq!(record.stages_unix_ms.script, Some(1_000_300));
        assert_eq!(record.stages.joined, Some(900_000));
        assert_eq!(record.dhcp_requests, 3);
        let text = table([&record]);
        assert!(
            text.lines()
                .nth(1)
                .unwrap()
                .starts_with("n3    52:54:00:07:00:03  10.117.1.3")
        );
        assert!(text.contains("0.90"), "{text}");
    }

    #[test]
    fn trouble_lasts_until_the_boot_gets_further() {
        let mut timeline = Timeline::new(0);
        timeline.trouble(at(0), MAC, "nobody knows it".into());
        assert!(timeline.get(MAC).is_none(), "trouble alone makes no record");
        timeline.asked(at(0), MAC, Firmware::Ipxe, None);
        timeline.trouble(at(5), MAC, "no image".into());
        timeline.reached(at(9), MAC, Stage::Script);
        assert_eq!(timeline.get(MAC).unwrap().trouble, None);
        timeline.trouble(at(10), MAC, "broke off".into());
        timeline.reached(at(11), MAC, Stage::Script);
        assert_eq!(
            timeline.get(MAC).unwrap().trouble.as_deref(),
            Some("broke off")
        );
    }

    #[test]
    fn a_rom_and_the_ipxe_it_loads_are_one_boot() {
        let mut timeline = Timeline::new(0);
        timeline.asked(at(0), MAC, Firmware::BiosPxe, None);
        timeline.reached(at(0), MAC, Stage::Dhcp);
        timeline.reached(at(500), MAC, Stage::Nbp);
        assert!(!timeline.asked(at(900), MAC, Firmware::Ipxe, None));
        assert_eq!(timeline.get(MAC).unwrap().firmware, Some(Firmware::BiosPxe));
    }

    #[test]
    fn a_reset_machine_begins_again() {
        let mut timeline = Timeline::new(0);
        timeline.asked(at(0), MAC, Firmware::Ipxe, None);
        timeline.reached(at(0), MAC, Stage::Dhcp);
        timeline.reached(at(10), MAC, Stage::Script);
        timeline.trouble(at(20), MAC, "broke off".into());
        assert!(timeline.asked(at(5_000), MAC, Firmware::Ipxe, None));
        let record = timeline.get(MAC).unwrap();
        assert_eq!(record.boots, 2);
        assert_eq!(record.stages, StageTimes::default());
        assert_eq!(record.trouble, None);
    }

    #[test]
    fn another_epoch_or_a_long_silence_is_another_boot() {
        let mut timeline = Timeline::new(0);
        timeline.asked(at(0), MAC, Firmware::Direct, Some(1));
        assert!(!timeline.asked(at(10), MAC, Firmware::Direct, Some(1)));
        assert!(timeline.asked(at(20), MAC, Firmware::Direct, Some(2)));
        assert!(timeline.asked(at(20) + SILENCE_ENDS_BOOT, MAC, Firmware::Direct, Some(2)));
        assert_eq!(timeline.get(MAC).unwrap().boots, 3);
        assert_eq!(timeline.joined(at(0), MAC, 9, 0).unwrap().boots, 4);
    }

    #[test]
    fn only_known_machines_report() {
        let mut timeline = Timeline::new(0);
        let report = Report {
            uptime_ms: Some(900),
            idle_ms: Some(40),
        };
        assert!(timeline.reported(at(0), MAC, report).is_none());
        timeline.asked(at(0), MAC, Firmware::Ipxe, None);
        assert_eq!(
            timeline.reported(at(5), MAC, report).unwrap().report,
            Some(report)
        );
        assert!(timeline.reported(at(6), MAC, Report::default()).is_none());
        let record = timeline.get(MAC).unwrap();
        assert_eq!(record.report, Some(report));
        assert!(table([record]).contains("REPORTED"));
    }

    #[test]
    fn records_survive_serialisation() {
        let mut timeline = Timeline::new(5);
        timeline.asked(at(0), MAC, Firmware::UefiHttp, None);
        let record = timeline.get(MAC).unwrap();
        let text = serde_json::to_string(record).unwrap();
        assert!(text.contains("\"uefi_http\""), "{text}");
        assert_eq!(&serde_json::from_str::<BootRecord>(&text).unwrap(), record);
    }
}
