//! The network: a full-duplex link and a switch port per node, and a fat tree between
//! them.
//!
//! What a node sends passes its network card's queue (which gives back-pressure), its uplink, the
//! trunks of the tree where these are narrower than full bisection, and the queue of the port that
//! it leaves the last switch by. Each of these is finite: what finds no room is dropped from the
//! tail. Latency grows with the links between the two nodes. Several datagrams that follow one
//! another at link rate - the fragments of a block - are carried as one [`Train`]; loss and room in
//! queues are decided for every datagram of it.
//!
//! Every datagram is charged what it takes on the wire: [`frame_bytes`].
//!
//! Approximations: a train that meets another at a port is served after it, where real ports would
//! interleave their frames; the work and the queue are the same. Loss happens on the sender's link.
//!
//! Neighbours: [`super::Net`] sends and receives; `hearth_alloc::topology::Topology` says how far
//! apart nodes are.
//!
//! Invariant: a link never carries more than its rate, and a queue never holds more than its bytes.

use hearth_alloc::topology::Topology;
use netstack::rng::Rng;

/// Preamble 8, Ethernet header 14, frame check sequence 4 and the gap between frames 12.
const ETHERNET_BYTES: u32 = 8 + 14 + 4 + 12;
/// IPv4 header 20 and UDP header 8.
const IP_UDP_BYTES: u32 = 20 + 8;
/// The least that a frame takes: 64 bytes with header and check sequence, preamble and gap.
const FRAME_LEAST: u32 = 64 + 8 + 12;

/// What tc charges for a datagram beyond its bytes: headers of Ethernet, IPv4 and UDP.
pub const LIMITER_HEADERS: u32 = 14 + 20 + 8;

/// What a datagram of this many bytes takes on the wire, in bytes.
pub const fn frame_bytes(datagram: u32) -> u32 {
    let frame = datagram + IP_UDP_BYTES + ETHERNET_BYTES;
    if frame < FRAME_LEAST {
        FRAME_LEAST
    } else {
        frame
    }
}

/// How the network is built.
#[derive(Clone, Debug)]
pub struct Wiring {
    /// Bits a second of every link, each way.
    pub rate: u64,
    /// One-way delay between the nodes that are furthest apart, in nanoseconds; nearer ones have a
    /// share of it by the number of links between them.
    pub latency_ns: u64,
    /// Widths of the fat tree from the leaves up; the control node hangs at the root.
    pub tree: Vec<u32>,
    /// How much narrower than full bisection the trunks above a switch of each level are, from the
    /// leaf switches up: 1 or nothing is full bisection, 2 half of it.
    pub taper: Vec<u32>,
    /// Bytes that a port's queue holds.
    pub queue_bytes: u64,
    /// Bytes that may wait in a network card before it takes nothing more.
    pub card_bytes: u64,
}

/// What goes wrong with datagrams on their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Noise {
    /// Datagrams lost, in parts per million.
    pub loss_ppm: u32,
    /// Messages that arrive twice, in parts per million.
    pub duplicate_ppm: u32,
    /// Messages held back by up to `reorder_ns`, in parts per million.
    pub reorder_ppm: u32,
    /// Longest time a message is held back.
    pub reorder_ns: u64,
    /// Further delay of every message, uniform from 0.
    pub jitter_ns: u64,
}

/// Datagrams that follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Train {
    /// Which datagrams, a bit each; the lowest goes first.
    pub datagrams: u64,
    /// Bytes of all of them on the wire.
    pub wire: u32,
    /// Nanoseconds that the sender's link takes for them.
    pub sent_in: u32,
    /// Places on its way through the tree that it has passed: a trunk up and one down at each
    /// level.
    pub passed: u8,
}

impl Train {
    /// One datagram, or several, a bit each, of so many bytes on the wire.
    pub const fn of(datagrams: u64, wire: u32) -> Self {
        Train {
            datagrams,
            wire,
            sent_in: 0,
            passed: 0,
        }
    }
}

/// A direction of a node's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// What the node sends.
    Out,
    /// What is sent to it.
    In,
}

/// What became of what was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Datagrams handed to the network.
    pub datagrams: u64,
    /// Bytes of these on the wire.
    pub bytes: u64,
    /// Datagrams lost at random.
    pub lost: u64,
    /// Datagrams between parts of the network that were cut from each other.
    pub cut: u64,
    /// Datagrams that found a queue full.
    pub overflowed: u64,
    /// Messages that arrived twice.
    pub duplicated: u64,
    /// Most bytes that waited at a port.
    pub port_backlog: u64,
    /// Most bytes that waited at a trunk, for each of its links.
    pub trunk_backlog: u64,
}

/// When a train reaches its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It waits in a trunk until then, and arrives at the next place on its way.
    Passes(u64),
    /// Now.
    Now,
    /// Other traffic is in front of it: at this time.
    At(u64),
    /// Nothing of it is left.
    Never,
}

/// One trunk: the links between a switch and those above it, one way.
#[derive(Clone, Copy, Default)]
struct Trunk {
    free_at: u64,
}

/// All trunks above the switches of one level.
struct Level {
    level: usize,
    /// Links of each trunk.
    links: u32,
    up: Vec<Trunk>,
    down: Vec<Trunk>,
}

/// The network.
pub struct Fabric {
    wiring: Wiring,
    noise: Noise,
    /// What became of what was sent.
    pub tally: Tally,
    topology: Topology,
    /// Nanoseconds of latency a link between switches.
    link_ns: u64,
    /// Picoseconds that each node's link takes for a byte; the control node's is the last.
    ps_per_byte: Vec<u32>,
    /// When each card has sent all it took.
    card_free: Vec<u64>,
    /// When each port has delivered all it took.
    port_free: Vec<u64>,
    /// Cards take everything, see [`Fabric::set_limiters`].
    limiters: bool,
    /// The trunks of levels that are narrower than full bisection.
    trunks: Vec<Level>,
    /// Part of the network each node is in.
    part: Vec<u8>,
    /// Directions of each node's link that are cut: out, in.
    mute: Vec<[bool; 2]>,
    /// Some node is in another part, or cut off one way.
    parts: bool,
    rng: Rng,
    /// Datagrams until the next that is lost.
    until_loss: u64,
}

impl Fabric {
    /// A network for `nodes` nodes and the control node, which has the number `nodes`.
    ///
    /// # Errors
    /// A text that says what is wrong with the wiring.
    pub fn new(wiring: Wiring, nodes: u32, seed: u64) -> Result<Self, String> {
        if wiring.rate < 1_000_000 {
            return Err("the rate is 1 Mbit/s or more".into());
        }
        let topology = Topology::new(&wiring.tree).map_err(|error| error.to_string())?;
        let ps_per_byte = u32::try_from(8_000_000_000_000_u64.div_ceil(wiring.rate))
            .map_err(|_| "the rate is too low")?;
        let ends = nodes as usize + 1;
        let mut span = 1_u64;
        let mut trunks = Vec::new();
        for (index, &width) in wiring.tree.iter().enumerate().take(topology.height() - 1) {
            span = span.saturating_mul(u64::from(width));
            let taper = wiring.taper.get(index).copied().unwrap_or(1);
            if taper > 1 {
                let switches = u64::from(nodes).div_ceil(span) as usize;
                trunks.push(Level {
                    level: index + 1,
                    links: (span / u64::from(taper)).clamp(1, 1 << 20) as u32,
                    up: vec![Trunk::default(); switches],
                    down: vec![Trunk::default(); switches],
                });
            }
        }
        let mut fabric = Fabric {
            link_ns: wiring.latency_ns / (2 * topology.height() as u64),
            topology,
            noise: Noise::default(),
            tally: Tally::default(),
            ps_per_byte: vec![ps_per_byte; ends],
            card_free: vec![0; ends],
            port_free: vec![0; ends],
            limiters: false,
            trunks,
            part: vec![0; ends],
            mute: vec![[false; 2]; ends],
            parts: false,
            rng: Rng::new(seed ^ 0x6661_6272_6963),
            until_loss: u64::MAX,
            wiring,
        };
        fabric.set_noise(Noise::default());
        Ok(fabric)
    }

    /// Changes what goes wrong from now on.
    pub fn set_noise(&mut self, noise: Noise) {
        self.noise = noise;
        self.until_loss = self.draw_loss();
    }

    /// Links are limited behind the cards, as those of emulated machines by tc: a card takes
    /// everything at once, and what finds the queue in front of the node's link full is lost
    /// without the node knowing it.
    pub fn set_limiters(&mut self, on: bool) {
        self.limiters = on;
    }

    /// Makes a node's link, both ways, `factor` times slower than the others.
    pub fn set_slow(&mut self, node: u32, factor: u32) {
        self.ps_per_byte[node as usize] = self.ps_per_byte[node as usize].saturating_mul(factor);
    }

    /// Makes a node's link, both ways, `factor` times faster than the others.
    pub fn set_fast(&mut self, node: u32, factor: u32) {
        let ps = &mut self.ps_per_byte[node as usize];
        *ps = (*ps / factor.max(1)).max(1);
    }

    /// Puts a node into a part of the network; parts do not reach each other. All begin in part 0.
    pub fn set_part(&mut self, node: u32, part: u8) {
        self.part[node as usize] = part;
        self.note_parts();
    }

    /// Cuts a node's link one way, or mends it.
    pub fn set_mute(&mut self, node: u32, way: Way, is_cut: bool) {
        self.mute[node as usize][way as usize] = is_cut;
        self.note_parts();
    }

    fn note_parts(&mut self) {
        let cut = self.mute.iter().any(|ways| *ways != [false; 2]);
        self.parts = cut || self.part.iter().any(|&other| other != 0);
    }

    /// A node's link is whole: it reaches all that are not cut off themselves.
    pub fn is_reached(&self, node: u32) -> bool {
        self.part[node as usize] == 0 && self.mute[node as usize] == [false; 2]
    }

    fn is_cut(&self, from: u32, to: u32) -> bool {
        let (from, to) = (from as usize, to as usize);
        self.parts && (self.part[from] != self.part[to] || self.mute[from][0] || self.mute[to][1])
    }

    /// What a datagram of this many bytes takes of a link: [`frame_bytes`], and with limiters what
    /// tc charges.
    pub fn frame(&self, datagram: u32) -> u32 {
        match self.limiters {
            true => datagram + LIMITER_HEADERS,
            false => frame_bytes(datagram),
        }
    }

    /// When the card of a node takes more: now or later.
    pub fn card_takes_at(&self, node: u32) -> u64 {
        if self.limiters {
            return 0;
        }
        let behind = self.wiring.card_bytes * u64::from(self.ps_per_byte[node as usize]) / 1000;
        self.card_free[node as usize].saturating_sub(behind)
    }

    /// Takes a train into a node's card. Gives the train as it left it, less what was lost, and
    /// when it gets to the port of its destination if nothing else is on the way; twice when it is
    /// duplicated.
    pub fn send(
        &mut self,
        now: u64,
        from: u32,
        to: u32,
        mut train: Train,
    ) -> (Train, Option<u64>, Option<u64>) {
        let free = &mut self.card_free[from as usize];
        let count = train.datagrams.count_ones();
        self.tally.datagrams += u64::from(count);
        self.tally.bytes += u64::from(train.wire);
        let ps_per_byte = self.ps_per_byte[from as usize];
        if self.limiters {
            let waiting = free.saturating_sub(now) * 1000 / u64::from(ps_per_byte);
            let over = (waiting + u64::from(train.wire)).saturating_sub(self.wiring.queue_bytes);
            self.tally.overflowed += shorten(&mut train, over);
            if train.datagrams == 0 {
                return (train, None, None);
            }
        }
        let takes = serialization(train.wire, ps_per_byte);
        let at = now.max(*free) + takes;
        *free = at;
        let count = train.datagrams.count_ones();
        train.sent_in = takes as u32;
        if self.is_cut(from, to) {
            self.tally.cut += u64::from(count);
            return (train, None, None);
        }
        self.lose(&mut train, count);
        if train.datagrams == 0 {
            return (train, None, None);
        }
        let at = at + self.latency(from, to);
        let first = at + self.extra_delay();
        let again = chance(&mut self.rng, self.noise.duplicate_ppm).then(|| {
            self.tally.duplicated += 1;
            at + self.extra_delay()
        });
        (train, Some(first), again)
    }

    /// Takes a train whose last bit is at the first switch now, or has left the trunk it was in,
    /// through trunks and port of `to`. What finds no room is taken off its end.
    pub fn arrive(&mut self, now: u64, from: u32, to: u32, train: &mut Train) -> Arrival {
        let passes_at = self.pass_trunks(now, from, to, train);
        if train.datagrams == 0 {
            return Arrival::Never;
        }
        if passes_at > now {
            return Arrival::Passes(passes_at);
        }
        let ps_per_byte = self.ps_per_byte[to as usize];
        let free = self.port_free[to as usize];
        let mut passage = passage(now, free, train, ps_per_byte);
        if passage.waiting > self.wiring.queue_bytes {
            let room = self.wiring.queue_bytes;
            self.tally.overflowed += shorten(train, passage.waiting - room);
            if train.datagrams == 0 {
                return Arrival::Never;
            }
            passage = self::passage(now, free, train, ps_per_byte);
        }
        self.tally.port_backlog = self.tally.port_backlog.max(passage.waiting);
        self.port_free[to as usize] = passage.out_at;
        if passage.out_at <= now {
            Arrival::Now
        } else {
            Arrival::At(passage.out_at)
        }
    }

    /// One-way delay between two nodes in nanoseconds.
    pub fn latency(&self, from: u32, to: u32) -> u64 {
        let control = (self.card_free.len() - 1) as u32;
        let hops = if from == control || to == control {
            2 * self.topology.height() as u32 - 1
        } else {
            self.topology.hops(from, to)
        };
        u64::from(hops + 1) * self.link_ns
    }

    /// Takes a train through the trunks that it can pass now. When it is through, or through the
    /// one where it has to wait: who comes to the next place before that goes there before it.
    fn pass_trunks(&mut self, now: u64, from: u32, to: u32, train: &mut Train) -> u64 {
        let control = (self.card_free.len() - 1) as u32;
        let ps_per_byte = 8_000_000_000_000_u64.div_ceil(self.wiring.rate);
        while let Some(level) = self.trunks.get_mut(usize::from(train.passed / 2)) {
            let is_up = train.passed.is_multiple_of(2);
            train.passed += 1;
            let above = |node: u32| {
                (node != control).then(|| self.topology.switch_above(node, level.level) as usize)
            };
            let (source, destination) = (above(from), above(to));
            if source == destination {
                continue;
            }
            let trunk = match is_up {
                true => source.map(|switch| &mut level.up[switch]),
                false => destination.map(|switch| &mut level.down[switch]),
            };
            let Some(trunk) = trunk else {
                continue;
            };
            // Many links are one fast one; a train still takes its own time on one of them.
            let fast = (ps_per_byte / u64::from(level.links)).max(1) as u32;
            let room = self.wiring.queue_bytes * u64::from(level.links);
            let mut out = passage(now, trunk.free_at, train, fast);
            if out.waiting > room {
                self.tally.overflowed += shorten(train, out.waiting - room);
                if train.datagrams == 0 {
                    return now;
                }
                out = passage(now, trunk.free_at, train, fast);
            }
            let each = out.waiting / u64::from(level.links);
            self.tally.trunk_backlog = self.tally.trunk_backlog.max(each);
            trunk.free_at = out.out_at;
            if out.out_at > now {
                return out.out_at;
            }
        }
        now
    }

    /// Takes the datagrams that are lost out of a train.
    fn lose(&mut self, train: &mut Train, count: u32) {
        if self.until_loss >= u64::from(count) {
            self.until_loss -= u64::from(count);
            return;
        }
        let each = train.wire / count;
        let mut left = train.datagrams;
        while left != 0 {
            if self.until_loss == 0 {
                train.datagrams &= !(left & left.wrapping_neg());
                train.wire -= each;
                self.tally.lost += 1;
                self.until_loss = self.draw_loss();
            } else {
                self.until_loss -= 1;
            }
            left &= left - 1;
        }
    }

    /// How many datagrams get through before one is lost, each with the same chance: a geometric
    /// draw.
    fn draw_loss(&mut self) -> u64 {
        match self.noise.loss_ppm {
            0 => u64::MAX,
            ppm => {
                let kept = 1.0 - f64::from(ppm.min(999_999)) / 1e6;
                let uniform = (self.rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
                ((1.0 - uniform).ln() / kept.ln()) as u64
            }
        }
    }

    fn extra_delay(&mut self) -> u64 {
        let noise = self.noise;
        let mut delay = 0;
        if noise.jitter_ns > 0 {
            delay += self.rng.below(noise.jitter_ns + 1);
        }
        if chance(&mut self.rng, noise.reorder_ppm) {
            delay += self.rng.below(noise.reorder_ns + 1);
        }
        delay
    }
}

/// How a train passes a link with a queue in front of it.
struct Passage {
    /// When its last bit is out.
    out_at: u64,
    /// Bytes in the queue when its last bit has come in.
    waiting: u64,
}

/// A train whose last bit comes at `now` passes a link that has work until `free`.
fn passage(now: u64, free: u64, train: &Train, ps_per_byte: u32) -> Passage {
    let takes = serialization(train.wire, ps_per_byte);
    let begin = free.max(now.saturating_sub(u64::from(train.sent_in)));
    let out_at = (begin + takes).max(now);
    Passage {
        out_at,
        waiting: (out_at - now) * 1000 / u64::from(ps_per_byte),
    }
}

/// Takes datagrams off the end of a train until it is `bytes` shorter; how many that were.
fn shorten(train: &mut Train, bytes: u64) -> u64 {
    let mut dropped = 0;
    let mut over = bytes;
    while over > 0 && train.datagrams != 0 {
        let each = train.wire / train.datagrams.count_ones();
        train.datagrams &= !(1 << (63 - train.datagrams.leading_zeros()));
        train.wire -= each;
        over = over.saturating_sub(u64::from(each));
        dropped += 1;
    }
    dropped
}

/// Nanoseconds, rounded up.
fn serialization(bytes: u32, ps_per_byte: u32) -> u64 {
    (u64::from(bytes) * u64::from(ps_per_byte)).div_ceil(1000)
}

fn chance(rng: &mut Rng, ppm: u32) -> bool {
    ppm > 0 && rng.below(1_000_000) < u64::from(ppm)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wiring(tree: &[u32]) -> Wiring {
        Wiring {
            rate: 10_000_000_000,
            latency_ns: 6_000,
            tree: tree.to_vec(),
            taper: Vec::new(),
            queue_bytes: 256_000,
            card_bytes: 9_000,
        }
    }

    fn block() -> Train {
        Train::of(0b11_1111, 6 * 1_500)
    }

    #[test]
    fn a_frame_is_charged_with_all_that_goes_over_the_wire() {
        assert_eq!(frame_bytes(1472), 1538);
        assert_eq!(frame_bytes(1), 84);
        assert_eq!(frame_bytes(18), 84);
        assert_eq!(frame_bytes(19), 85);
    }

    #[test]
    fn latency_is_a_share_of_the_longest_way() {
        let fabric = Fabric::new(wiring(&[4, 4, 4]), 64, 1).unwrap();
        assert_eq!(fabric.latency(0, 1), 2_000);
        assert_eq!(fabric.latency(0, 4), 4_000);
        assert_eq!(fabric.latency(0, 63), 6_000);
        assert_eq!(fabric.latency(64, 0), 6_000);
    }

    #[test]
    fn a_card_holds_back_and_an_idle_port_delivers_at_once() {
        let mut fabric = Fabric::new(wiring(&[8]), 8, 1).unwrap();
        let (train, first, again) = fabric.send(0, 0, 1, block());
        // 9,000 bytes at 0.8 ns.
        assert_eq!((first, again), (Some(7_200 + 6_000), None));
        assert_eq!(fabric.card_takes_at(0), 0);
        fabric.send(0, 0, 1, block());
        assert_eq!(fabric.card_takes_at(0), 7_200);
        let mut train = train;
        assert_eq!(fabric.arrive(13_200, 0, 1, &mut train), Arrival::Now);
    }

    #[test]
    fn a_limiter_behind_a_card_drops_what_finds_no_room() {
        let mut fabric = Fabric::new(wiring(&[8]), 8, 1).unwrap();
        fabric.set_limiters(true);
        let mut kept = 0;
        for _ in 0..40 {
            assert_eq!(fabric.card_takes_at(0), 0);
            let (train, first, _) = fabric.send(0, 0, 1, block());
            assert_eq!(first.is_some(), train.datagrams != 0);
            kept += train.datagrams.count_ones();
        }
        // 256,000 bytes.
        assert_eq!((kept, fabric.tally.overflowed), (170, 240 - 170));
    }

    #[test]
    fn a_port_queues_to_its_limit_and_drops_the_tail() {
        let mut fabric = Fabric::new(wiring(&[64]), 64, 1).unwrap();
        let (mut whole, mut part, mut nothing) = (0, 0, 0);
        for from in 1..60 {
            let (mut train, at, _) = fabric.send(0, from, 0, block());
            match fabric.arrive(at.unwrap(), from, 0, &mut train) {
                Arrival::Never => nothing += 1,
                Arrival::Now | Arrival::At(_) if train.datagrams == 0b11_1111 => whole += 1,
                _ => part += 1,
            }
        }
        // The first passes while it comes in; 256,000 bytes wait.
        assert_eq!((whole, part, nothing), (29, 1, 29));
        assert!(fabric.tally.port_backlog <= 256_000 && fabric.tally.port_backlog > 253_000);
        assert_eq!(fabric.tally.overflowed, 59 * 6 - 29 * 6 - 2);
    }

    #[test]
    fn datagrams_are_lost_as_often_as_told() {
        let mut fabric = Fabric::new(wiring(&[8]), 8, 1).unwrap();
        fabric.set_noise(Noise {
            loss_ppm: 10_000,
            duplicate_ppm: 20_000,
            ..Noise::default()
        });
        for _ in 0..100_000 {
            fabric.send(0, 0, 1, block());
        }
        assert!(
            (5_700..6_300).contains(&fabric.tally.lost),
            "{:?}",
            fabric.tally
        );
        assert!(
            (1_850..2_150).contains(&fabric.tally.duplicated),
            "{:?}",
            fabric.tally
        );
    }

    #[test]
    fn a_slow_link_takes_longer_both_ways() {
        let mut fabric = Fabric::new(wiring(&[8]), 8, 1).unwrap();
        fabric.set_slow(1, 10);
        let (mut train, at, _) = fabric.send(0, 0, 1, block());
        assert_eq!(at, Some(7_200 + 6_000));
        // The first bit was there 7,200 ns before the last; from then on ten times slower.
        assert_eq!(
            fabric.arrive(13_200, 0, 1, &mut train),
            Arrival::At(6_000 + 72_000)
        );
        let (_, at, _) = fabric.send(0, 1, 0, block());
        assert_eq!(at, Some(72_000 + 6_000));
    }

    #[test]
    fn parts_do_not_reach_each_other() {
        let mut fabric = Fabric::new(wiring(&[8]), 8, 1).unwrap();
        fabric.set_part(3, 1);
        assert_eq!(fabric.send(0, 0, 3, block()).1, None);
        assert_eq!(fabric.tally.cut, 6);
        fabric.set_part(3, 0);
        assert!(fabric.send(0, 0, 3, block()).1.is_some());
        fabric.set_mute(3, Way::Out, true);
        assert!(!fabric.is_reached(3));
        assert!(fabric.send(0, 0, 3, block()).1.is_some());
        assert_eq!(fabric.send(0, 3, 0, block()).1, None);
    }

    #[test]
    fn a_tapered_trunk_holds_the_nodes_below_it_back() {
        let mut wiring = wiring(&[4, 2]);
        wiring.taper = vec![4];
        let mut fabric = Fabric::new(wiring, 8, 1).unwrap();
        // Four nodes send to four under the other switch, over one link.
        let mut last = 0;
        for node in 0..4 {
            let (mut train, at, _) = fabric.send(0, node, node + 4, block());
            let mut at = at.unwrap();
            loop {
                match fabric.arrive(at, node, node + 4, &mut train) {
                    Arrival::Passes(later) => at = later,
                    Arrival::At(later) => break last = last.max(later),
                    Arrival::Now => break last = last.max(at),
                    Arrival::Never => panic!("there is room"),
                }
            }
        }
        assert_eq!(last, 6_000 + 4 * 7_200);
    }

    #[test]
    fn what_waits_in_a_trunk_holds_up_nobody_at_the_port() {
        let mut wiring = wiring(&[4, 2]);
        wiring.taper = vec![4];
        let mut fabric = Fabric::new(wiring, 8, 1).unwrap();
        let (mut far, at, _) = fabric.send(0, 1, 4, block());
        assert_eq!(fabric.arrive(at.unwrap(), 1, 4, &mut far), Arrival::Now);
        let (mut far, at, _) = fabric.send(0, 0, 4, block());
        let at = at.unwrap();
        let Arrival::Passes(_) = fabric.arrive(at, 0, 4, &mut far) else {
            panic!("it waits for the one before");
        };
        // The one before has left the port; its neighbour is there before the one that waits.
        let later = at + 7_200;
        let (mut near, _, _) = fabric.send(later - 9_200, 5, 4, block());
        assert_eq!(fabric.arrive(later, 5, 4, &mut near), Arrival::Now);
    }
}
