//! Roles end, and what they knew and could not tell is kept until the node has a parent again.
//!
//! Source: the overlay method, practice: accounting that adds up. A link has two ends, and only the
//! child knows what it handed up last, only the parent what arrived. Both tell while the link is
//! there; when it is over in a hurry (a tree made anew while a program computes, a parent that was
//! given up) the rest is told in the next tree.
//!
//! Invariant: what a role holds at its end is counted as given up. Words are bounded
//! ([`MAX_WORDS`]), set no timer without a parent, and leave the node once.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Collector, Greeting, Node, NodeEvent, io};
use crate::overlay::message::{CensusEntry, CensusKey, Process};
use crate::overlay::metric::OverlayMetric;
use crate::overlay::room::{MAX_WORDS, WORDS_BYTES};
use crate::overlay::uplink::{Io, Uplink};
use crate::rng::Rng;
use crate::time::{Instant, Micros};

/// Time over which the nodes of a new tree tell what is left of the one before.
const SPREAD: Micros = Micros::from_secs(2);

/// What stays of a communication process that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    /// Samples that it gave up in this boot.
    pub dropped: u64,
    /// The number of its next link.
    pub next_link: u32,
}

impl Default for Ended {
    fn default() -> Self {
        Ended {
            dropped: 0,
            next_link: 1,
        }
    }
}

/// What is to be told of links that are over.
#[derive(Debug)]
pub(super) struct Words {
    entries: BTreeMap<CensusKey, CensusEntry>,
    /// When they are told: nodes of a new tree do not speak all at once.
    at: Instant,
}

impl Default for Words {
    fn default() -> Self {
        Words {
            entries: BTreeMap::new(),
            at: Instant::FAR_FUTURE,
        }
    }
}

impl Words {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes, as counted against [`WORDS_BYTES`].
    pub fn bytes(&self) -> usize {
        self.entries.len() * (WORDS_BYTES / MAX_WORDS)
    }

    /// A role has a parent: they can be told soon.
    pub fn spread(&mut self, now: Instant, rng: &mut Rng) {
        if !self.entries.is_empty() && self.at == Instant::FAR_FUTURE {
            self.at = now + Micros(rng.below(SPREAD.0));
        }
    }

    /// Keeps words until a role has a parent again; gives how many found no room.
    fn keep(&mut self, entries: impl IntoIterator<Item = CensusEntry>) -> u64 {
        self.at = Instant::FAR_FUTURE;
        let mut refused = 0;
        for entry in entries {
            let room = self.entries.len() < MAX_WORDS || self.entries.contains_key(&entry.key());
            match room {
                true => drop(self.entries.insert(entry.key(), entry)),
                false => refused += 1,
            }
        }
        refused
    }

    fn take(&mut self) -> impl Iterator<Item = CensusEntry> + use<> {
        self.at = Instant::FAR_FUTURE;
        core::mem::take(&mut self.entries).into_values()
    }
}

impl Node {
    /// Roles that were taken down and have lingered end.
    pub(super) fn end_what_is_over(&mut self, now: Instant, collector: &mut dyn Collector) {
        let back_end = self.back_end.as_ref();
        let taken = back_end.and_then(|back_end| back_end.taken_at);
        if taken.is_some_and(|at| now.saturating_since(at) >= crate::overlay::LINGER) {
            self.end_back_end(now, Some(collector));
        }
        let leaving = |cp: &super::Cp| cp.hub.leaving.is_some_and(|leaving| leaving.is_over(now));
        let over = self.cps.iter().filter(|(_, cp)| leaving(cp));
        let over: Vec<u8> = over.map(|(slot, _)| *slot).collect();
        for slot in over {
            self.end_cp(now, slot);
        }
        if taken.is_some() && self.back_end.is_none() && self.cps.is_empty() {
            self.greeting = Greeting::Off;
        }
    }

    fn end_back_end(&mut self, now: Instant, collector: Option<&mut dyn Collector>) {
        if let Some(mut back_end) = self.back_end.take() {
            self.unsettled |= back_end.stop(now, collector);
            let words = back_end.uplink.end(&mut io!(self, now));
            self.submitted += back_end.submitted;
            self.dropped += back_end.uplink.dropped;
            self.sampled_to = back_end.sampled_to;
            self.next_link = back_end.uplink.next_link();
            let figures = (self.submitted, self.dropped);
            self.keep_words(words.into_values().collect(), self.process(0), figures);
            self.tell(NodeEvent::RoleEnded { slot: 0 });
        }
    }

    fn end_cp(&mut self, now: Instant, slot: u8) {
        if let Some(mut cp) = self.cps.remove(&slot) {
            let words = cp.end(&mut io!(self, now));
            let (dropped, next_link) = (cp.dropped(), cp.uplink.next_link());
            self.ended.insert(slot, Ended { dropped, next_link });
            self.keep_words(words, self.process(slot), (0, dropped));
            self.tell(NodeEvent::RoleEnded { slot });
        }
    }

    /// Every role ends.
    pub(super) fn end_roles(&mut self, now: Instant, collector: Option<&mut dyn Collector>) {
        self.end_back_end(now, collector);
        while let Some(slot) = self.cps.keys().next().copied() {
            self.end_cp(now, slot);
        }
        self.assemblies.clear();
    }

    /// Keeps what a process that ended could not tell, its own figures with it.
    fn keep_words(
        &mut self,
        mut words: Vec<CensusEntry>,
        process: Process,
        (submitted, dropped): (u64, u64),
    ) {
        let mut told = false;
        for word in &mut words {
            word.earlier = true;
            if word.process == process && word.own {
                (word.submitted, word.dropped, told) = (submitted, dropped, true);
            }
        }
        // What it gave up without ever having had a parent.
        if !told && dropped > 0 {
            words.push(CensusEntry {
                process,
                boot: self.config.boot,
                own: true,
                submitted,
                dropped,
                ..CensusEntry::default()
            });
        }
        let refused = self.words.keep(words);
        self.count(OverlayMetric::Overflowed, refused);
    }

    /// The uplink that can tell words: of a process that stays, or of a back end that may speak.
    fn teller(&mut self) -> Option<&mut Uplink> {
        let cp = self.cps.values_mut();
        let cp = cp
            .filter(|cp| cp.hub.leaving.is_none())
            .map(|cp| &mut cp.uplink);
        let back_end = self.back_end.iter_mut();
        let back_end = back_end
            .filter(|back_end| !back_end.quiet && back_end.taken_at.is_none())
            .map(|back_end| &mut back_end.uplink);
        cp.chain(back_end).find(|uplink| uplink.is_up())
    }

    /// When words are to be told.
    pub(super) fn words_at(&self) -> Instant {
        self.words.at
    }

    /// Tells words when their time has come, by any role that has a parent. Without one they wait
    /// for the next.
    pub(super) fn tell_words(&mut self, now: Instant) {
        if self.words.at > now {
            return;
        }
        let words: Vec<CensusEntry> = self.words.take().collect();
        let refused = match self.teller() {
            Some(uplink) => uplink.take_words(words),
            None => self.words.keep(words),
        };
        self.count(OverlayMetric::Overflowed, refused);
    }

    /// The node may speak again.
    pub(super) fn spread_words(&mut self, now: Instant) {
        if self.teller().is_some() {
            self.words.spread(now, &mut self.rng);
        }
    }

    /// The tree is taken down by the parent of this process: words go before its answer.
    pub(super) fn tell_words_by(&mut self, slot: u8, parent: Process) {
        let uplink = match slot {
            0 => self.back_end.as_mut().map(|back_end| &mut back_end.uplink),
            slot => self.cps.get_mut(&slot).map(|cp| &mut cp.uplink),
        };
        if let Some(uplink) = uplink.filter(|uplink| uplink.is_linked(parent)) {
            let refused = uplink.take_words(self.words.take());
            self.count(OverlayMetric::Overflowed, refused);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broadcast::Peer;
    use crate::ids::{BootEpoch, NodeId};
    use crate::overlay::message::Hello;
    use crate::overlay::{Filter, MetricId, NodeConfig, StreamId, StreamSpec};
    use crate::wire::key::Key;
    use core::net::{Ipv4Addr, SocketAddrV4};

    struct One;

    impl Collector for One {
        fn read(&mut self, _: MetricId) -> Option<i64> {
            Some(1)
        }
    }

    fn node() -> Node {
        let peer = Peer {
            addr: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7118),
            mac: [0; 6],
        };
        let hello = Hello {
            back_end: true,
            cps: 0,
            auxiliary: 0,
            job: None,
            factors: [crate::overlay::fixed::Fixed::whole(1); 4],
        };
        let config = NodeConfig {
            node: NodeId(1),
            boot: BootEpoch(1),
            me: peer,
            front_end: peer,
            key: Key([7; 16]),
            hello,
            seed: 1,
        };
        Node::new(config, Instant::ZERO)
    }

    /// The back end of a new tree, which takes `overlay` for the present, with a tick every 100 ms.
    fn begin(node: &mut Node, now: Instant, overlay: u64) {
        node.end_roles(now, None);
        node.begin_back_end(now);
        let back_end = node.back_end.as_mut().expect("it has begun");
        let time = now.as_micros();
        back_end.uplink.clock.learn(now, time, (overlay, 0));
        let spec = StreamSpec::new(
            alloc::vec![MetricId(1)],
            Filter::Sum,
            Micros::from_millis(100),
        );
        assert!(back_end.set_stream(StreamId(1), 1, Some(spec)));
    }

    /// Samples that the node takes in so many milliseconds from `now` on.
    fn taken(node: &mut Node, now: &mut Instant, millis: u64) -> u64 {
        let samples = |node: &Node| node.submitted();
        let before = samples(node);
        for _ in 0..millis {
            *now += Micros::from_millis(1);
            node.tick(*now, &mut One);
        }
        samples(node) - before
    }

    #[test]
    fn no_tick_is_sampled_again_in_the_next_tree() {
        let (mut node, mut now) = (node(), Instant::from_micros(50_000_000));
        // Its program computes: the answer that tells the time came late and is 250 ms off.
        begin(&mut node, now, 10_350_001);
        assert_eq!(taken(&mut node, &mut now, 100), 1, "tick 104");
        // The next tree knows better: ticks 102 to 104 are still to come there.
        begin(&mut node, now, 10_100_001);
        assert_eq!(taken(&mut node, &mut now, 350), 0);
        assert_eq!(taken(&mut node, &mut now, 300), 3, "from tick 105 on");
    }

    #[test]
    fn another_control_node_may_have_another_time() {
        let (mut node, mut now) = (node(), Instant::from_micros(50_000_000));
        begin(&mut node, now, 10_350_001);
        assert_eq!(taken(&mut node, &mut now, 100), 1);
        node.set_key(now, Key([8; 16]), &mut One);
        begin(&mut node, now, 1_000_001);
        assert_eq!(taken(&mut node, &mut now, 300), 3);
    }
}
