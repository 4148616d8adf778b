//! How much may be under way to a rank, and how long to wait for it.
//!
//! A window is twice what the link carries in a round trip, and some; all senders together have no more than two thirds of
//! what the port of a switch holds. The round trip is the mean
//! of what was seen between a pull and its first packet, when nothing else was under way.
//!
//! Invariant: at least one packet may always be under way, and no wait is shorter than what is under way takes.

use super::{DEFAULT_PORT_BUFFER, PACKET};
use crate::broadcast::pacer::on_wire;
use crate::ids::Rank;
use crate::time::{Instant, Micros};

/// Bytes of a full data datagram on the wire.
const FULL: u64 = on_wire(crate::MAX_DATAGRAM) as u64;
/// Rate that is assumed until packets tell more, in bytes a second: 100 Mbit/s.
const ASSUMED_RATE: u64 = 12_500_000;
/// However often it doubled, the wait is no longer than this, or than one on a slow link.
const LONGEST_WAIT: Micros = Micros::from_millis(500);
/// So often packets are asked for again before the wait doubles.
pub(super) const PATIENT_TRIES: u8 = 3;
/// Packets of a pull, where the window has room for them.
const CHUNK: u32 = 8;
/// Round trip that is assumed at first, and the least that counts.
const ASSUMED_RTT: Micros = Micros(20);
/// Longest round trip that counts.
const MAX_RTT: Micros = Micros::from_millis(20);
/// Most packets under way.
const MAX_PACKETS: u64 = 120;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Credit {
    rate: u64,
    port: u64,
    rtt: Option<Micros>,
    /// The pull whose first packet tells the round trip: when it left, to whom, which packet.
    probe: Option<(Instant, Rank, u32)>,
    /// Packets under way, of all blocks.
    used: u32,
    each: u32,
    total: u32,
    chunk: u32,
}

/// How long to wait for packets that were asked for. They may wait behind all that other ranks asked the same sender
/// for: asking again as soon as the own link is idle was tried, and collapses under its own repetitions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waits {
    pub longest: Micros,
}

impl Waits {
    /// When packets count as lost that were asked for at this time, after so many times in vain.
    pub(super) fn due(&self, asked_at: Instant, tries: u8) -> Instant {
        // A few losses in a row are no sign that nobody is there.
        let doubled = tries.saturating_sub(PATIENT_TRIES);
        let wait = self.longest.saturating_mul(1 << doubled);
        asked_at + wait.min(self.longest.max(LONGEST_WAIT))
    }
}

impl Credit {
    pub(super) fn new(rate: u64, port_buffer: u32) -> Self {
        let port = if port_buffer == 0 {
            DEFAULT_PORT_BUFFER
        } else {
            port_buffer
        };
        let mut credit = Credit {
            rate: if rate == 0 { ASSUMED_RATE } else { rate },
            port: port.into(),
            rtt: None,
            probe: None,
            used: 0,
            each: 1,
            total: 1,
            chunk: 1,
        };
        credit.resize();
        credit
    }

    fn resize(&mut self) {
        let rtt = self.round_trip();
        let product = u128::from(self.rate) * u128::from(rtt.0) / 1_000_000 / u128::from(FULL);
        let product = product.clamp(2, MAX_PACKETS.into()) as u64;
        let most = (self.port * 2 / 3 / FULL).clamp(2, MAX_PACKETS);
        self.total = (6 * product + u64::from(CHUNK)).min(most) as u32;
        self.chunk = CHUNK.min(self.total.div_ceil(4));
        self.each = (2 * product as u32 + self.chunk)
            .min(self.total * 3 / 4)
            .max(1);
    }

    /// A pull leaves now, for this packet first. It tells the round trip when nothing else is under way.
    pub(super) fn asked(&mut self, now: Instant, from: Rank, packet: u32) {
        if self.used == 0 {
            self.probe = Some((now, from, packet));
        }
    }

    /// A packet has come.
    pub(super) fn came(&mut self, now: Instant, from: Rank, packet: u32) {
        let Some((asked_at, ..)) = self
            .probe
            .take_if(|(_, rank, first)| (*rank, *first) == (from, packet))
        else {
            return;
        };
        let took = now
            .saturating_since(asked_at)
            .0
            .clamp(ASSUMED_RTT.0, MAX_RTT.0);
        // Peers are near and far, and some are busy: the mean of many, weighted as for TCP (RFC 6298).
        let mean = self.rtt.map_or(took, |rtt| (7 * rtt.0 + took) / 8);
        self.rtt = Some(Micros(mean));
        self.resize();
    }

    /// Packets that may still be asked for, of all senders together.
    pub(super) fn left(&self) -> u32 {
        self.total.saturating_sub(self.used)
    }

    /// Most packets under way from one sender.
    pub(super) fn each(&self) -> u32 {
        self.each
    }

    /// Packets that a pull asks for, unless less is left of its block.
    pub(super) fn chunk(&self) -> u32 {
        self.chunk
    }

    /// Packets that are sent unasked when an exchange begins.
    pub(super) fn opening(&self) -> u32 {
        self.each.min(64)
    }

    /// The packets under way were `before` and are `after`.
    pub(super) fn change(&mut self, before: u32, after: u32) {
        self.used = self.used.saturating_sub(before) + after;
    }

    /// The time that so many full packets take on the link.
    pub(super) fn takes(&self, packets: u64) -> Micros {
        let nanos = u128::from(packets) * u128::from(FULL) * 1_000_000_000 / u128::from(self.rate);
        Micros((nanos / 1000).min(u128::from(u64::MAX)) as u64 + 1)
    }

    /// Most bytes that are sent unasked and not acknowledged.
    pub(super) fn blind_bytes(&self) -> u64 {
        self.port / 2
    }

    /// How long an answer takes at most when nothing is lost: windows in front of it at both ends, and round trips.
    pub(super) fn wait(&self) -> Micros {
        self.takes(2 * u64::from(self.total)) + self.round_trip().saturating_mul(2)
    }

    /// How long to wait for packets that were asked for.
    pub(super) fn waits(&self) -> Waits {
        Waits {
            longest: self.wait(),
        }
    }

    /// How long the answer to a whole block takes: what waits at the port of its receiver, and round trips.
    pub(super) fn answer(&self) -> Micros {
        self.takes(u64::from(self.total) / 2) + self.round_trip().saturating_mul(2)
    }

    /// A sender that sends nothing for so long is busy with others, or not there.
    pub(super) fn slow(&self) -> Micros {
        self.takes(self.each.into()) + self.round_trip().saturating_mul(2)
    }

    /// The round trip.
    pub(super) fn round_trip(&self) -> Micros {
        self.rtt.unwrap_or(ASSUMED_RTT)
    }

    /// Packets under way.
    pub(super) fn used(&self) -> u32 {
        self.used
    }
}

const _: () = assert!(PACKET + 40 == crate::MAX_DATAGRAM);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_fit_the_link_and_the_port() {
        // 10 Gbit/s and 20 us: 16 packets.
        let credit = Credit::new(1_250_000_000, 0);
        assert_eq!((credit.total, credit.each, credit.chunk), (104, 40, 8));
        // 5 Mbit/s behind a queue of 32 KB: two thirds of it.
        let slow = Credit::new(625_000, 32_000);
        assert_eq!((slow.total, slow.each), (13, 8));
        assert!(slow.wait() > slow.takes(21));
    }
}
