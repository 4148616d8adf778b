//! How much may be under way to a rank, and how long to wait for it.
//!
//! | name | what it is |
//! |---|---|
//! | congestion window ([`Credit::window`]) | packets asked of all senders of a round |
//! | per-peer credit ([`Credit::each`]) | packets asked of one sender |
//! | receive limit ([`Credit::room`]) | packets asked of anybody, of later rounds too |
//! | batch ([`Credit::batch`]) | packets that are worth a pull |
//!
//! A rank knows its own port at the switch, so the window is at most a share of that; on a slow
//! link all of it. Who is asked serves others first, so the window is not what one round trip
//! carries. What is asked of later rounds comes on top, up to all that the port holds. Windows
//! shrink where more is lost than at random: then some queue between the ranks is full.
//!
//! The round trip is the shortest that was seen (RFC 9002, section 5.2: min_rtt): most answers wait
//! at a sender that is busy with others. The rate, where nobody gave it, is the most that came in a
//! period (BBR's filter of the bottleneck bandwidth: Cardwell et al., ACM Queue 14/5, 2016).
//!
//! Neighbours: an adapter over [`crate::transport::window`] and [`crate::transport::rtt`].
//!
//! Invariant: at least one packet may always be under way. A wait that is too short costs a
//! question, never a packet.

use super::DEFAULT_PORT_BUFFER;
use super::inbound::SPAN;
use super::liveness::COMPUTES;
use super::message::{BlockId, Pull};
use crate::broadcast::pacer::{Pacer, on_wire};
use crate::ids::Rank;
use crate::time::{Instant, Micros};
use crate::transport::pull::BATCH;
use crate::transport::retry::Backoff;
use crate::transport::rtt::RttEstimator;
use crate::transport::window::{LEAST, Window};

/// Bytes of a full data datagram on the wire.
const FULL: u64 = on_wire(crate::MAX_DATAGRAM) as u64;
/// Ethernet, IPv4 and UDP headers: what every limiter counts. Preamble and gap, which a wire counts
/// too, are left to its queue.
const HEADERS: usize = 14 + 20 + 8;
/// Slower links than this are paced, in bytes a second: on faster ones a port of
/// [`DEFAULT_PORT_BUFFER`] is empty within 2 ms, before a timer of 1 ms has fired twice.
pub(super) const PACED_BELOW: u64 = 125_000_000;
/// Rate that is assumed until packets tell more, in bytes a second: Fast Ethernet.
const ASSUMED_RATE: u64 = 12_500_000;
/// What waits in front of a link that is slow for its port, unless told otherwise: the latency of
/// a token bucket in the Linux Advanced Routing HOWTO, section 9.2.2.
const DEFAULT_QUEUE: Micros = Micros::from_millis(50);
/// However often it doubled, the wait is no longer than this, or than one on a slow link: a rank
/// that computes is asked twice for each time it looks.
const LONGEST_WAIT: Micros = Micros(COMPUTES.0 / 2);
/// Most packets under way: half of a receive ring of 256, and what a sender knows one by one.
pub(super) const MAX_WINDOW: u32 = SPAN;
/// Most packets that go unasked: a pull names so many.
const MAX_OPENING: u32 = 64;
/// Of so many periods, and of those before, the best tells the rate: BBR's filter has ten.
const REMEMBERED: u32 = 10;
/// A period in which packets are counted has as many, and is as long: they come in heaps, of what
/// a loop was late by at a timer of 1 ms.
const PERIOD_PACKETS: u32 = 2 * BATCH;
/// See [`PERIOD_PACKETS`].
const PERIOD: Micros = Micros::from_millis(2);
/// Of so many packets it is counted how often something was asked for again.
const EPOCH_PACKETS: u32 = 64;
/// So often in an epoch is more than at random: where one packet in a hundred is lost, an epoch of
/// 64 has five losses or more once in 1,900 times (Poisson's law with a mean of 0.64).
const CONGESTED: u32 = 5;

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
    /// The rate was given.
    is_known: bool,
    /// Bytes that a port holds; 0: not told.
    told_port: u64,
    rtt: RttEstimator,
    /// The pull whose answer tells the round trip: when it left, to whom, what the answer is.
    probe: Option<(Instant, Rank, Answer)>,
    /// The last packet, of any sender.
    came_at: Instant,
    /// When the packets are counted from that tell the rate, and how many came since.
    counted: (Instant, u32),
    /// The most that came in a period, of these periods and of those before; how many these are.
    most: (u64, u64),
    periods: u32,
    /// Packets under way, of all blocks.
    used: u32,
    window: Window,
    /// Something was asked for again.
    is_lossy: bool,
    /// Packets that came in this epoch, and pulls that asked for something again.
    epoch: (u32, u32),
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
            is_known: false,
            told_port: port_buffer.into(),
            rtt: RttEstimator::of_peer(Micros::ZERO),
            probe: None,
            came_at: Instant::ZERO,
            counted: (Instant::ZERO, 0),
            most: (0, 0),
            periods: 0,
            used: 0,
            window: Window::begin(LEAST, MAX_WINDOW),
            is_lossy: false,
            epoch: (0, 0),
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
        // What the port holds is known then. Else the link may carry less than is assumed of it.
        let first = match self.is_known {
            true => self.ceiling(),
            false => self.in_round_trip(),
        };
        self.window = Window::begin(first, self.ceiling());
    }

    /// The window where no more is lost than at random. A quarter of the port is left for what
    /// nobody asks for; on a paced link that waits at its sender.
    fn ceiling(&self) -> u32 {
        let port = self.port() / FULL;
        let share = match self.pacer {
            Some(_) => port,
            None => port * 3 / 4,
        };
        share.clamp(1, MAX_WINDOW.into()) as u32
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
        let longest = self.wait();
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
        self.epoch.0 += count;
        if self.epoch.0 >= EPOCH_PACKETS {
            self.epoch = (0, 0);
        }
        if self.used == 0 {
            // What comes unasked tells when its sender had it, not what the link carries.
            self.counted = (now, 0);
        } else {
            (0..count).for_each(|_| self.window.arrived());
            self.measure_rate(now, count);
        }
        self.measure(now, from, Answer::Packet(packet));
    }

    /// The round trip, where this is the answer that is waited for.
    fn measure(&mut self, now: Instant, from: Rank, answer: Answer) {
        let is_it =
            |(_, rank, awaited): &mut (Instant, Rank, Answer)| (*rank, *awaited) == (from, answer);
        if let Some((asked_at, ..)) = self.probe.take_if(is_it) {
            self.rtt.sample(now.saturating_since(asked_at));
        }
    }

    /// Something that was asked for did not come. The window follows what exchanges of the default
    /// scheme lose, see `repaired`: messages and other schemes only know of it.
    pub(super) fn lost(&mut self) {
        self.is_lossy = true;
    }

    /// Something was lost before: the end of a block may be, too, and pulls.
    pub(super) fn is_lossy(&self) -> bool {
        self.is_lossy
    }

    /// A pull asks for packets again. Where that is often, the window shrinks, once in an epoch.
    pub(super) fn repaired(&mut self) {
        self.epoch.1 += 1;
        if self.epoch.1 == CONGESTED {
            self.window.lost(self.used);
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
        self.window.set_most(self.ceiling());
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

    /// Packets that may be under way, of all senders of a round together.
    pub(super) fn window(&self) -> u32 {
        self.window.size().min(self.ceiling())
    }

    /// Packets that may still be asked for, whatever was asked of later rounds.
    pub(super) fn room(&self) -> u32 {
        let port = (self.port() / FULL) as u32;
        port.max(self.window()).saturating_sub(self.used)
    }

    /// Most packets under way from one sender.
    pub(super) fn each(&self) -> u32 {
        self.window()
    }

    /// Packets that a pull asks for, unless less is left of its block: as in
    /// [`crate::transport::pull`].
    pub(super) fn batch(&self) -> u32 {
        BATCH.min(self.window().div_ceil(4))
    }

    /// A batch of the largest window.
    fn chunk(&self) -> u32 {
        BATCH.min(self.ceiling().div_ceil(4))
    }

    /// Packets that are sent unasked when an exchange begins: what the link carries until the first
    /// pull is there. A receiver that has not begun drops them.
    pub(super) fn opening(&self) -> u32 {
        self.in_round_trip().min(MAX_OPENING).min(self.window())
    }

    /// Full packets that the link carries in a round trip.
    fn in_round_trip(&self) -> u32 {
        let bytes = u128::from(self.rate) * u128::from(self.round_trip().0) / 1_000_000;
        let packets = bytes / u128::from(FULL);
        packets.clamp(LEAST.into(), u32::MAX.into()) as u32
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

    /// How long the answer takes behind so many packets, and it is a round trip late.
    fn behind(&self, packets: u32) -> Micros {
        self.takes(packets.into()) + self.round_trip().saturating_mul(2)
    }

    /// How long an answer takes at most when nothing is lost: windows are in front of it at both
    /// ends. Those that have shrunk are no shorter here: what congestion makes slow is not asked
    /// for sooner.
    pub(super) fn wait(&self) -> Micros {
        self.behind(2 * self.ceiling())
    }

    /// How long to wait for packets that were asked for.
    pub(super) fn waits(&self) -> Waits {
        Waits {
            came_at: self.came_at,
            busy: self.behind(self.ceiling()),
            quiet: self.behind(0),
            first: self.behind(self.chunk()),
            longest: self.wait().max(LONGEST_WAIT),
        }
    }

    /// How long the answer to a whole block takes: what waits at the port of its receiver, and
    /// round trips.
    pub(super) fn answer(&self) -> Micros {
        self.behind(2 * self.chunk())
    }

    /// How long the answer to a short block takes.
    pub(super) fn short_answer(&self) -> Micros {
        self.takes(self.chunk().into()) + self.round_trip()
    }

    /// How long after a block of a later round a short one may come that was sent at the same time.
    pub(super) fn missing(&self) -> Micros {
        self.round_trip()
    }

    /// Others send unasked already: until it is known how much comes, it is as much as the link
    /// carries.
    pub(super) fn assume_unasked(&mut self, now: Instant) {
        let most = self.chunk() * 2;
        self.unasked = (now, most, most);
    }

    /// A packet has come unasked.
    pub(super) fn came_unasked(&mut self, now: Instant, count: u32) {
        self.roll(now);
        self.unasked.1 += count;
    }

    /// Counts unasked packets by periods, in which the link carries two batches.
    fn roll(&mut self, now: Instant) {
        let period = self.takes(u64::from(self.chunk()) * 2);
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

    /// Packets that may be under way where others come unasked: of two round trips as much as the
    /// link has left.
    pub(super) fn beside_unasked(&mut self, now: Instant) -> u32 {
        self.roll(now);
        let (_, count, before) = self.unasked;
        let most = self.chunk() * 2;
        let free = most.saturating_sub(count.max(before));
        let beside = u64::from(self.in_round_trip()) * 2 * u64::from(free) / u64::from(most);
        beside.clamp(1, self.window().into()) as u32
    }

    /// No round trip was seen yet. It is taken for a long one, and what is lost costs long waits.
    pub(super) fn is_new(&self) -> bool {
        self.rtt.is_assumed()
    }

    /// The round trip. Until one was seen, the link carries a batch in it.
    pub(super) fn round_trip(&self) -> Micros {
        match self.is_new() {
            true => self.takes(BATCH.into()),
            false => self.rtt.shortest(),
        }
    }

    /// Packets under way.
    pub(super) fn used(&self) -> u32 {
        self.used
    }
}

#[cfg(test)]
mod tests;
