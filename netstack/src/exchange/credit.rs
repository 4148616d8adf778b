//! How much may be under way to a rank, and how long to wait for it.
//!
//! A rank has asked all its senders together for no more packets than fit three quarters of its
//! port at the switch, half of it where many are lost, so that nothing overflows there, and for no
//! more than the link carries in eight round trips: that much, rather than one round trip, because
//! most senders are busy with others when they are asked. One sender alone is asked for three
//! quarters of that. On a slow link one sender may have all of it, and all together what the port
//! holds: what a rank asks for waits behind the data that its sender receives, so a window that is
//! short stands still for a part of each turn. What was asked of later rounds, before an earlier
//! one was ready, comes on top, up to half as much again and all that the port holds, on slow links
//! as much again: its senders serve others first, and an earlier round must not wait for them. The
//! round trip is the shortest of what was seen lately between a pull and its first packet; the
//! rate, where it was not given, is the most that came lately in a period. Both are forgotten
//! again, in favour of what comes later. Until the rate is known windows are small: on a slow link
//! all of a large one would be lost before anything is known.
//!
//! A rank knows its own port, not the queues of trunks between the ranks. Where far more is lost
//! than at random all windows shrink, by a quarter at a time, and grow slowly again: additive
//! increase and multiplicative decrease (Chiu and Jain 1989), as in TCP.
//!
//! Invariant: at least one packet may always be under way. A wait that is too short costs a
//! question, never a packet.

use super::DEFAULT_PORT_BUFFER;
use super::grants::SPAN;
use super::message::{BlockId, Pull};
use crate::ids::Rank;
use crate::time::{Instant, Micros};
use crate::transport::pacer::{Pacer, on_wire};
use crate::transport::pull::BATCH;
use crate::transport::retry::{Backoff, LOOKS};
use crate::transport::window;

/// Bytes of a full data datagram on the wire.
const FULL: u64 = on_wire(crate::MAX_DATAGRAM) as u64;
/// Ethernet, IPv4 and UDP headers: what every limiter counts. Preamble and gap, which a wire counts
/// too, are left to its queue.
const HEADERS: usize = 14 + 20 + 8;
/// Slower links than this are paced, in bytes a second: on faster ones a queue is gone before a
/// timer fires.
pub(super) const PACED_BELOW: u64 = 125_000_000;
/// Rate that is assumed until packets tell more, in bytes a second: 100 Mbit/s.
const ASSUMED_RATE: u64 = 12_500_000;
/// What waits in front of a link that is slow for its port, unless told otherwise.
const DEFAULT_QUEUE: Micros = Micros::from_millis(50);
/// However often it doubled, the wait is no longer than this, or than one on a slow link.
/// Half of [`LOOKS`], so that a sender that computes is asked twice before it looks.
const LONGEST_WAIT: Micros = Micros(LOOKS.0 / 2);
/// Packets under way beyond what round trips explain.
const SPARE: u64 = 4;
/// The link is idle for so many packets, and two round trips, until others than the sender that is
/// waited for are asked.
const QUIET_PACKETS: u64 = 4;
/// Packets of a pull where packets are lost, and the window has room for them: as many as a request
/// of any other service asks for.
const CHUNK: u32 = BATCH;
/// Packets of a pull where none are lost. Longer ones save little, and cost where ranks pause.
const PULL: u32 = 24;
/// The same on links that are paced; but no more than half of the window, since whoever is asked
/// may be late.
const PULL_PACED: u32 = 32;
/// On links that are paced an idle moment is no sign of a loss where none was seen: waits are so
/// many times as long.
const PACED_PATIENCE: u64 = 2;
/// Shortest round trip that counts.
const LEAST_RTT: Micros = Micros(20);
/// The round trip that is assumed at first: the time that so many packets take.
const ASSUMED_RTT: u64 = 16;
/// Longest round trip that counts.
const MAX_RTT: Micros = Micros::from_millis(100);
/// Of so many answers, and of those before, the shortest is the round trip; the same for periods
/// and the rate.
const REMEMBERED: u32 = 64;
/// A period in which packets are counted has as many, and is as long: they come in heaps.
const PERIOD_PACKETS: u32 = 32;
/// See [`PERIOD_PACKETS`].
const PERIOD: Micros = Micros::from_millis(2);
/// After so many packets it is counted anew how often something was asked for again.
const EPOCH_PACKETS: u32 = 64;
/// So often in an epoch is more than what is lost at random: one packet in a hundred comes to that
/// in one epoch of some thousand.
const CONGESTED: u32 = 5;
/// More than one packet of so many is much to be lost.
const MUCH: u64 = 400;
/// Packets within which a round trip is seen, unless it is longer than any that counts.
const NEW_PACKETS: u64 = 256;
/// After so many packets what was counted before counts half.
const FORGET_PACKETS: u64 = 1 << 14;
/// Packets that the windows grow by after an epoch that was better.
const GROWTH: u32 = 2;
/// Packets that may be under way however much is lost.
const LEAST_WINDOW: u32 = 8;
/// Packets that may be under way however much comes unasked: these wait at the port, and each that
/// comes makes room for another.
const LEAST_BESIDE: u32 = window::LEAST;
/// Most packets under way: with those that are late they fit the bitmaps of a block.
const MAX_PACKETS: u64 = 120;
const _: () = assert!(MAX_PACKETS < SPAN as u64);

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// This packet.
    Packet(u32),
    /// The sender's word that all is sent that this pull of this block asked for.
    Served(BlockId, u16),
}

#[derive(Clone, Debug)]
pub(super) struct Credit {
    rate: u64,
    /// Bytes that a port holds; 0: not told.
    told_port: u64,
    /// The shortest answer of these and of those before, and how many these are.
    shortest: (Micros, Micros),
    answers: u32,
    /// The pull whose answer tells the round trip: when it left, to whom, what the answer is.
    probe: Option<(Instant, Rank, Answer)>,
    /// The last packet, of any sender.
    came_at: Instant,
    /// The rate was given.
    is_known: bool,
    /// When the packets are counted from that tell the rate, and how many came since.
    counted: (Instant, u32),
    /// The most that came in a period, of these periods and of those before; how many these are.
    most: (u64, u64),
    periods: u32,
    /// Packets under way, of all blocks.
    used: u32,
    each: u32,
    total: u32,
    /// What `total` is where no more is lost than at random.
    full: u32,
    /// What `total` is at most, because more was lost.
    window: u32,
    /// Something was asked for again.
    is_lossy: bool,
    /// Packets that came, and that were asked for again, older ones by half.
    in_all: (u64, u64),
    /// Packets that came in this epoch, and pulls that asked for something again.
    epoch: (u32, u32),
    /// What `used` never exceeds, whatever was asked of later rounds.
    bound: u32,
    opening: u32,
    chunk: u32,
    pull: u32,
    /// Packets that came unasked: the beginning of a period, how many in it, and in the one before.
    unasked: (Instant, u32, u32),
    /// Holds what is sent to the rate, where that is known and slow.
    pacer: Option<Pacer>,
}

/// How long to wait for packets that were asked for, until their sender is asked whether it sent
/// them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waits {
    /// Until a sender counts as silent, and others have its credit: since it was heard, and since
    /// the link carried anything.
    pub quiet: Micros,
    /// Until it is asked for the first time, and at most later.
    pub first: Micros,
    pub busy: Micros,
    pub longest: Micros,
    /// The last packet, of any sender: before that time the link was busy.
    pub came_at: Instant,
}

impl Waits {
    /// When a sender is asked that was heard or asked at this time, after so many times in vain.
    pub(super) fn due(&self, at: Instant, tries: u8) -> Instant {
        let doubled = |wait: Micros| Backoff::new(wait, self.longest).after(tries.into());
        let idle = at.max(self.came_at) + doubled(self.first);
        idle.min(at + doubled(self.busy))
    }
}

impl Credit {
    pub(super) fn new(rate: u64, port_buffer: u32) -> Self {
        let mut credit = Credit {
            rate: ASSUMED_RATE,
            told_port: port_buffer.into(),
            shortest: (MAX_RTT, MAX_RTT),
            answers: 0,
            probe: None,
            came_at: Instant::ZERO,
            is_known: false,
            counted: (Instant::ZERO, 0),
            most: (0, 0),
            periods: 0,
            used: 0,
            each: 1,
            total: 1,
            full: 1,
            window: u32::MAX,
            is_lossy: false,
            in_all: (0, 0),
            epoch: (0, 0),
            bound: 1,
            opening: 1,
            chunk: 1,
            pull: 1,
            unasked: (Instant::ZERO, 0, 0),
            pacer: None,
        };
        credit.set_rate(Instant::ZERO, rate);
        credit
    }

    /// The rate is this, in bytes a second; 0: not known.
    pub(super) fn set_rate(&mut self, now: Instant, rate: u64) {
        self.is_known = rate != 0;
        if self.is_known {
            self.rate = rate;
        }
        let is_paced = (1..PACED_BELOW).contains(&rate);
        self.pacer = is_paced.then(|| Pacer::new(rate, now));
        self.resize();
    }

    fn resize(&mut self) {
        let rtt = self.round_trip();
        let product = match self.is_known || self.most != (0, 0) {
            true => u128::from(self.rate) * u128::from(rtt.0) / 1_000_000 / u128::from(FULL),
            false => 0,
        };
        let is_paced = self.pacer.is_some();
        let product = product.clamp(2, MAX_PACKETS.into()) as u64;
        let port = self.port() / FULL;
        let most = match (is_paced, self.loses_much()) {
            (true, _) => port,
            (false, false) => port * 3 / 4,
            (false, true) => port / 2,
        };
        self.full = (8 * product + SPARE).min(most.clamp(2, MAX_PACKETS)) as u32;
        self.total = self.full.min(self.window);
        self.bound = match is_paced {
            true => 2 * self.total,
            false => (self.total * 3 / 2).min(port as u32).max(self.total),
        };
        self.chunk = CHUNK.min(self.total.div_ceil(4));
        self.pull = match is_paced {
            true => PULL_PACED.min(self.total.div_ceil(2)),
            false => PULL.min(self.total.div_ceil(3)),
        };
        self.each = match is_paced {
            true => self.total,
            false => (self.total * 3 / 4).max(1),
        };
        self.opening = (product + SPARE) as u32;
    }

    /// Bytes that the port in front of this rank holds.
    pub(super) fn port(&self) -> u64 {
        let in_time = u128::from(self.rate) * u128::from(DEFAULT_QUEUE.0) / 1_000_000;
        match self.told_port {
            0 => in_time.min(DEFAULT_PORT_BUFFER.into()) as u64,
            told => told,
        }
    }

    /// A pull leaves now, for this packet first.
    pub(super) fn asked(&mut self, now: Instant, from: Rank, packet: u32) {
        self.probes(now, from, Answer::Packet(packet));
    }

    /// A pull leaves now, for a block that may be on its way: that it comes tells nothing of the
    /// round trip, only that its sender has met the pull.
    pub(super) fn asked_for_missing(
        &mut self,
        now: Instant,
        from: Rank,
        block: BlockId,
        pull: &Pull,
    ) {
        self.probes(now, from, Answer::Served(block, pull.serial));
    }

    fn probes(&mut self, now: Instant, from: Rank, answer: Answer) {
        if self.used == 0 {
            // What was idle tells nothing of the rate.
            self.counted = (now, 0);
        }
        // It or its answer was lost.
        let longest = self.wait().min(MAX_RTT);
        let is_old = |(at, ..): (Instant, Rank, Answer)| now.saturating_since(at) > longest;
        if self.used == 0 || self.probe.is_none_or(is_old) {
            self.probe = Some((now, from, answer));
        }
    }

    /// A sender has sent all that this pull asked for.
    pub(super) fn served(&mut self, now: Instant, from: Rank, block: BlockId, serial: u16) {
        self.measure(now, from, Answer::Served(block, serial));
    }

    /// Packets have come, this one first.
    pub(super) fn came(&mut self, now: Instant, from: Rank, packet: u32, count: u32) {
        self.came_at = now;
        self.in_all.0 += u64::from(count);
        if self.in_all.0 > FORGET_PACKETS {
            self.in_all = (self.in_all.0 / 2, self.in_all.1 / 2);
        }
        self.epoch.0 += count;
        if self.epoch.0 >= EPOCH_PACKETS {
            self.epoch = (0, 0);
            if self.total < self.full {
                self.window = self.window.saturating_add(GROWTH);
            }
            self.resize();
        }
        if self.used == 0 {
            // What comes unasked tells when its sender had it, not what the link carries.
            self.counted = (now, 0);
        } else {
            self.measure_rate(now, count);
        }
        self.measure(now, from, Answer::Packet(packet));
    }

    /// The round trip, where this is the answer that is waited for.
    fn measure(&mut self, now: Instant, from: Rank, answer: Answer) {
        let is_it =
            |(_, rank, awaited): &mut (Instant, Rank, Answer)| (*rank, *awaited) == (from, answer);
        let Some((asked_at, ..)) = self.probe.take_if(is_it) else {
            return;
        };
        let took = now.saturating_since(asked_at).0;
        let took = took.clamp(LEAST_RTT.0, MAX_RTT.0);
        // Most answers wait at a sender that is busy with others.
        self.shortest.0 = self.shortest.0.min(Micros(took));
        self.answers += 1;
        if self.answers == REMEMBERED {
            self.answers = 0;
            self.shortest = (MAX_RTT, self.shortest.0);
        }
        self.resize();
    }

    /// Something that was asked for did not come. Windows follow what exchanges of the default
    /// scheme lose, see `repaired`: messages and other schemes only know of it.
    pub(super) fn lost(&mut self) {
        self.is_lossy = true;
    }

    /// Something was lost before: the end of a block may be, too, and pulls.
    pub(super) fn is_lossy(&self) -> bool {
        self.is_lossy
    }

    /// So much is lost that two senders share the link most of the time, and what is asked of them
    /// waits at the port.
    fn loses_much(&self) -> bool {
        self.in_all.1 * MUCH > self.in_all.0
    }

    /// A pull asks for so many packets again. Where that is often, some queue between the ranks is
    /// full, and all windows shrink. Not on links that are paced: there is little room to shrink,
    /// and the sender's pace is what holds.
    pub(super) fn repaired(&mut self, packets: u32) {
        self.in_all.1 += u64::from(packets);
        self.resize();
        self.epoch.1 += 1;
        if self.epoch.1 >= CONGESTED && self.pacer.is_none() {
            self.epoch = (0, 0);
            self.window = (self.total * 3 / 4).max(LEAST_WINDOW.min(self.full));
            self.resize();
        }
    }

    /// Counts what comes in a period; the link carries as much as came in the best of the last
    /// periods.
    fn measure_rate(&mut self, now: Instant, count: u32) {
        self.counted.1 += count;
        let (since, packets) = self.counted;
        let took = now.saturating_since(since);
        if self.is_known || packets < PERIOD_PACKETS || took < PERIOD {
            return;
        }
        self.counted = (now, 0);
        self.most.0 = (self.most.0).max(u64::from(packets) * FULL * 1_000_000 / took.0);
        self.periods += 1;
        if self.periods == REMEMBERED {
            self.periods = 0;
            self.most = (0, self.most.0);
        }
        self.rate = self.most.0.max(self.most.1);
        self.resize();
    }

    /// Data may be sent now. What is handed to a slow link before its time waits in front of it,
    /// and what this rank asks for waits behind that.
    pub(super) fn may_send(&self, now: Instant) -> bool {
        self.pacer.as_ref().is_none_or(|pacer| pacer.is_ready(now))
    }

    /// When somebody has to look whether data may be sent. Most look anyway before that, because a
    /// packet comes; the pacer has room for what is late.
    pub(super) fn sends_at(&self) -> Instant {
        let slack = self.takes(1);
        (self.pacer.as_ref()).map_or(Instant::ZERO, |pacer| pacer.ready_at() + slack)
    }

    /// Datagrams were sent, of so many bytes in all.
    pub(super) fn sent(&mut self, now: Instant, datagrams: u32, bytes: usize) {
        if let Some(pacer) = &mut self.pacer {
            pacer.charge(now, bytes + datagrams as usize * HEADERS);
        }
    }

    /// Packets that may be under way, of all senders together.
    pub(super) fn total(&self) -> u32 {
        self.total
    }

    /// Packets that may still be asked for, whatever was asked of later rounds.
    pub(super) fn room(&self) -> u32 {
        self.bound.saturating_sub(self.used)
    }

    /// Most packets under way from one sender.
    pub(super) fn each(&self) -> u32 {
        self.each
    }

    /// Most packets under way from a sender that has the credit of one that is silent for a moment.
    /// On a link that is paced they are no fewer: a chunk lasts about as long there as a machine
    /// may be late, and the link would be idle between two.
    pub(super) fn lent(&self) -> u32 {
        match self.pacer {
            Some(_) => self.each,
            None => self.chunk,
        }
    }

    /// Packets that a pull asks for, unless less is left of its block. Where packets are lost,
    /// pulls are too: shorter ones then.
    pub(super) fn worth(&self) -> u32 {
        match self.is_lossy {
            true => self.chunk,
            false => self.pull,
        }
    }

    /// Packets that are sent unasked when an exchange begins: what the link carries until the first
    /// pull is there. A receiver that has not begun drops them.
    pub(super) fn opening(&self) -> u32 {
        self.opening.min(self.each).min(64)
    }

    /// Bytes a second that the link carries, as far as that is known.
    pub(super) fn rate(&self) -> u64 {
        self.rate
    }

    /// The packets under way were `before` and are `after`.
    pub(super) fn change(&mut self, before: u32, after: u32) {
        self.used = self.used.saturating_sub(before) + after;
    }

    /// The time that so many full packets take on the link.
    pub(super) fn takes(&self, packets: u64) -> Micros {
        Micros(packets.saturating_mul(FULL * 1_000_000) / self.rate + 1)
    }

    /// Most bytes that are sent unasked and not acknowledged.
    pub(super) fn blind_bytes(&self) -> u64 {
        self.port() / 2
    }

    /// How long an answer takes at most when nothing is lost: windows in front of it at both ends,
    /// and round trips.
    pub(super) fn wait(&self) -> Micros {
        self.takes(2 * u64::from(self.full)) + self.round_trip().saturating_mul(2)
    }

    /// How long to wait for packets that were asked for.
    pub(super) fn waits(&self) -> Waits {
        let patience = match self.pacer.is_some() && !self.is_lossy {
            true => PACED_PATIENCE,
            false => 1,
        };
        let wait = |packets: u64| self.takes(packets) + self.round_trip().saturating_mul(2);
        Waits {
            came_at: self.came_at,
            busy: wait(u64::from(self.full) * 5 / 8 * patience),
            quiet: wait(QUIET_PACKETS),
            first: wait(u64::from(self.chunk) * patience),
            longest: self.wait().max(LONGEST_WAIT),
        }
    }

    /// How long the answer to a whole block takes: what waits at the port of its receiver, and
    /// round trips.
    pub(super) fn answer(&self) -> Micros {
        self.takes(u64::from(self.chunk) * 2) + self.round_trip().saturating_mul(2)
    }

    /// How long the answer to a short block takes.
    pub(super) fn short_answer(&self) -> Micros {
        self.takes(u64::from(self.chunk)) + self.round_trip()
    }

    /// How long after a block of a later round a short one may come that was sent at the same time.
    pub(super) fn missing(&self) -> Micros {
        self.round_trip()
    }

    /// Others send unasked already: until it is known how much comes, it is as much as the link
    /// carries.
    pub(super) fn assume_unasked(&mut self, now: Instant) {
        self.unasked = (now, self.chunk * 2, self.chunk * 2);
    }

    /// A packet has come unasked.
    pub(super) fn came_unasked(&mut self, now: Instant, count: u32) {
        self.roll(now);
        self.unasked.1 += count;
    }

    /// Counts unasked packets by periods, in which the link carries a few chunks.
    fn roll(&mut self, now: Instant) {
        let period = self.takes(u64::from(self.chunk) * 2);
        let (since, count, _) = self.unasked;
        let over = now.saturating_since(since);
        if over >= period {
            let before = if over < period.saturating_mul(2) {
                count
            } else {
                0
            };
            self.unasked = (now, 0, before);
        }
    }

    /// Packets that may be under way where others come unasked, which the port has to hold too.
    pub(super) fn beside_unasked(&mut self, now: Instant) -> u32 {
        self.roll(now);
        let (_, count, before) = self.unasked;
        let most = self.chunk * 2;
        let free = most.saturating_sub(count.max(before));
        (LEAST_BESIDE + 2 * self.opening * free / most).min(self.each)
    }

    /// No round trip was seen yet. It is taken for a long one, and what is lost costs long waits.
    /// (Where it is too long to be seen, this is over after some packets.)
    pub(super) fn is_new(&self) -> bool {
        self.shortest.0.min(self.shortest.1) == MAX_RTT && self.in_all.0 < NEW_PACKETS
    }

    /// The round trip.
    pub(super) fn round_trip(&self) -> Micros {
        match self.shortest.0.min(self.shortest.1) {
            MAX_RTT => self.takes(ASSUMED_RTT),
            shortest => shortest,
        }
    }

    /// Packets under way.
    pub(super) fn used(&self) -> u32 {
        self.used
    }
}

#[cfg(test)]
mod tests;
