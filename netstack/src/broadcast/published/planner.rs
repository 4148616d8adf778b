//! The published scheme at one station.
//!
//! Invariant: at most one chunk is under way in the swap, and at most [`AHEAD`] blocks of a
//! branch's chunk are asked for before they come.

use alloc::vec::Vec;

use super::estimate::{Dealt, Estimate, Presence, Sent};
use super::header::{Header, Place, Sizes, Tree};
use super::progress::Chunks;
use super::queue::{self, Queue};
use super::{Choice, Policy, PublishedOptions, options, payload_rate};
use crate::broadcast::cast::pulling::WINDOW;
use crate::broadcast::message::{MemberIndex, Setup};
use crate::broadcast::plan::{Next, Planner, Service, Trouble, View};
use crate::time::{Instant, Micros};

/// Blocks of a branch's chunk that are asked for in advance: enough for a round trip of as many
/// block times, few enough that a parent can keep those of all its children.
const AHEAD: usize = WINDOW as usize;
/// A child asks its parent for a chunk so many chunk times before its turn by the estimate.
const EARLY_CHUNKS: u64 = 2;
/// ... and at least so long, which is what clocks may be apart.
const EARLY: u64 = 2_000;
/// With the fallback: times that a parent may not answer before control is asked. Where one
/// datagram in a hundred is lost, request or answer, two are in vain once in 2,500 times.
const PARENT_TRIES: u32 = 2;
/// With the fallback: candidates, of whichever chunks, that may one after the other not answer, or
/// not have the chunk when the estimate can be no later, while no chunk comes: then control is
/// asked for the last of these chunks.
const SWAP_TRIES: u32 = 8;
/// With the fallback: an inner node whose children have asked for nothing for so many chunk times
/// after the estimate says that they are served takes part in the swap.
const CHILDLESS_CHUNKS: u64 = 16;
/// Shortest wait between looks at an estimate that is about to come true.
const LOOK_AGAIN: Micros = Micros(100);

/// A chunk that is being asked for in the swap.
#[derive(Clone, Copy, Debug)]
struct Current {
    chunk: u32,
    from: MemberIndex,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Published {
    options: PublishedOptions,
    me: MemberIndex,
    /// Where this node stands; None: control, or a member that is not in the tree.
    place: Option<Place>,
    estimate: Estimate,
    chunks: Chunks,
    /// The source's clock at the start, in microseconds.
    start: u64,
    /// What was here at the beginning has been counted.
    counted: bool,
    /// The distribution is later than the estimate by so many microseconds.
    correction: u64,
    /// Chunks of the own branch that are here, in the order they are dealt.
    own_held: u32,
    /// Children that have not asked for the end of the branch's last chunk.
    unserved: Vec<MemberIndex>,
    child_asked: Instant,
    cursor: u32,
    current: Option<Current>,
    /// Nobody is asked in the swap before this.
    swap_from: Instant,
    /// Candidates that were asked in vain since a chunk came last.
    in_vain: u32,
    queue: Queue,
}

impl Published {
    /// The planner of one station; None when the cast is by another scheme, or there is nothing to
    /// cast.
    pub(crate) fn new(setup: &Setup, me: MemberIndex) -> Option<Self> {
        let cold = setup.members.saturating_sub(setup.holders);
        let (options, tree) = options(&setup.scheme, cold)?;
        let object = &setup.object;
        let preferred = Sizes::Equal(tree.first_layer());
        let sizes = options.sizes.clone().unwrap_or(preferred);
        let bounds = sizes.bounds(object.data_blocks());
        if bounds.len() < 2 {
            return None;
        }
        let chunks = Chunks::new(object, bounds);
        let header = Header {
            start_us: setup.start,
            rate: payload_rate(setup),
            tree,
            sizes,
            deal: options.deal.clone(),
        };
        let bytes = (0..chunks.count()).map(|chunk| chunks.bytes(chunk, object));
        let estimate = Estimate::new(&header, bytes.collect());
        let place = (me.0 < tree.nodes()).then(|| tree.place(me.0));
        let unserved = place.map_or(Vec::new(), |place| children(&tree, place));
        Some(Published {
            options,
            me,
            place,
            estimate,
            chunks,
            start: header.start_us,
            counted: me.is_source(),
            correction: 0,
            own_held: 0,
            unserved,
            child_asked: Instant::ZERO,
            cursor: 0,
            current: None,
            swap_from: Instant::ZERO,
            in_vain: 0,
            queue: Queue::default(),
        })
    }

    /// What the own branch is dealt; nothing outside the tree.
    fn own(&self) -> &[Dealt] {
        match self.place {
            Some(place) => self.estimate.dealt(self.estimate.tree().branch(place)),
            None => &[],
        }
    }

    /// Who passes the own branch's chunks on to this node.
    fn parent(&self) -> MemberIndex {
        let tree = self.estimate.tree();
        let parent = self.place.and_then(|place| tree.parent(place));
        parent.map_or(MemberIndex::SOURCE, |parent| {
            MemberIndex(tree.index(parent))
        })
    }

    /// Now, as the estimate counts.
    fn elapsed(&self, view: &View<'_>) -> Sent {
        let late = self.start.saturating_add(self.correction);
        self.estimate.at(view.clock.saturating_sub(late))
    }

    /// When it will be `sent` by the estimate; at least a little later.
    fn when(&self, sent: Sent, view: &View<'_>) -> Instant {
        let clock = (self.start.saturating_add(self.correction))
            .saturating_add(self.estimate.after_us(sent));
        view.now + Micros(clock.saturating_sub(view.clock)).max(LOOK_AGAIN)
    }

    /// Microseconds that one chunk takes on a link.
    fn chunk_us(&self, chunk: u32) -> u64 {
        self.estimate.after_us(self.estimate.bytes(chunk))
    }

    fn count(&mut self, view: &View<'_>) {
        if !self.counted {
            self.counted = true;
            self.chunks.recount(view.have);
            self.settle_own();
        }
    }

    /// Goes on to the first of the branch's chunks that is not here.
    fn settle_own(&mut self) {
        let held = self.own().iter();
        let held = held.take_while(|dealt| self.chunks.is_held(dealt.chunk));
        self.own_held = held.count() as u32;
    }

    /// All chunks of the own branch are here.
    fn holds_own(&self) -> bool {
        self.own_held as usize == self.own().len()
    }

    /// The own branch is served, as far as it can be told from what the children have asked for.
    fn has_served(&self, view: &View<'_>) -> bool {
        if self.unserved.is_empty() {
            return true;
        }
        let (Some(place), Some(last)) = (self.place, self.own().last()) else {
            return true;
        };
        let served = self.estimate.ready(place, Presence::Served);
        let quiet = view.now.saturating_since(self.child_asked).0;
        self.options.fallback
            && self.elapsed(view) >= served
            && quiet > CHILDLESS_CHUNKS * self.chunk_us(last.chunk) + EARLY
    }

    /// The node takes part in the swap (published, step 3).
    fn takes_part(&self, view: &View<'_>) -> bool {
        match self.options.presence {
            Presence::Always => true,
            Presence::Served => self.holds_own() && self.has_served(view),
        }
    }

    /// The next request to the parent; None when all that may be asked there is.
    fn next_own(&mut self, view: &View<'_>) -> Option<Next> {
        let place = self.place?;
        let parent = self.parent();
        for turn in self.own_held..self.own().len() as u32 {
            let chunk = self.own()[turn as usize].chunk;
            if self.chunks.is_held(chunk) {
                continue;
            }
            let bytes = self.estimate.bytes(chunk);
            let begins = self.estimate.held(place, turn).saturating_sub(bytes);
            // Nobody asks before the parent holds the chunk.
            let elder = self.estimate.tree().child_number(place).saturating_sub(1);
            let early = (EARLY_CHUNKS * bytes).max(self.estimate.at(EARLY));
            let early = match self.estimate.tree().parent(place) {
                Some(_) => early.min(u64::from(elder) * bytes),
                None => early,
            };
            let ask_at = begins.saturating_sub(early);
            if self.elapsed(view) < ask_at {
                return Some(Next::Wait(self.when(ask_at, view)));
            }
            if self.chunks.asked(chunk, AHEAD, view) >= AHEAD {
                return Some(Next::Idle);
            }
            let mut cursor = self.cursor;
            if let Some(block) = self.chunks.next_block(chunk, &mut cursor, view) {
                self.cursor = cursor;
                return Some(Next::Ask {
                    block,
                    from: parent,
                    early: 0,
                });
            }
        }
        None
    }

    /// The next request of the swap (published, step 4).
    fn next_swap(&mut self, view: &mut View<'_>) -> Next {
        if let Some(current) = self.current {
            let mut cursor = self.cursor;
            if let Some(block) = self.chunks.next_block(current.chunk, &mut cursor, view) {
                self.cursor = cursor;
                return Next::Ask {
                    block,
                    from: current.from,
                    early: 0,
                };
            }
            return Next::Idle;
        }
        if view.now < self.swap_from {
            return Next::Wait(self.swap_from);
        }
        let now = self.elapsed(view);
        let chosen = match self.options.policy {
            Policy::ChunkFirst => self.chunk_first(now, view),
            Policy::NodeFirst => self.node_first(now, view),
        };
        let chosen = chosen.or_else(|| self.forsaken(now, view));
        let Some(current) = chosen else {
            return self.wait_for_candidates(now, view);
        };
        self.current = Some(current);
        self.cursor = 0;
        let mut cursor = 0;
        match self.chunks.next_block(current.chunk, &mut cursor, view) {
            Some(block) => Next::Ask {
                block,
                from: current.from,
                early: 0,
            },
            // All of it is asked for, of somebody that was given up: it may come yet.
            None => {
                self.current = None;
                Next::Wait(view.now + Micros(self.chunk_us(current.chunk)).max(LOOK_AGAIN))
            }
        }
    }

    /// Something of the chunk can be asked for.
    fn is_open(&self, chunk: u32, view: &View<'_>) -> bool {
        self.chunks.next_block(chunk, &mut 0, view).is_some()
    }

    /// The branches that were dealt a chunk, without this node's own while it waits for it there.
    fn branches(&self, chunk: u32) -> impl Iterator<Item = &Dealt> {
        let branch = self.place.map(|place| self.estimate.tree().branch(place));
        let waits = !self.holds_own();
        let branches = self.estimate.branches(chunk);
        branches.filter(move |dealt| !(waits && Some(dealt.head) == branch))
    }

    /// Which chunks lack, which can be had by now, one of them; who holds it, one of them.
    fn chunk_first(&self, now: Sent, view: &mut View<'_>) -> Option<Current> {
        let lacking = self.chunks.lacking();
        if lacking.is_empty() {
            return None;
        }
        let first = self.chunks.any_lacking(view.rng);
        for at in (first..lacking.len()).chain(0..first) {
            let chunk = lacking[at];
            if !self.is_open(chunk, view) {
                continue;
            }
            if let Some(from) = self.candidate(chunk, now, view) {
                return Some(Current { chunk, from });
            }
        }
        None
    }

    /// One of those that are estimated to hold the chunk.
    fn candidate(&self, chunk: u32, now: Sent, view: &mut View<'_>) -> Option<MemberIndex> {
        let presence = self.options.presence;
        let of = |dealt: &Dealt| self.estimate.candidates(dealt, now, presence);
        let count = self.branches(chunk).map(|dealt| of(dealt).count()).sum();
        self.choose(count, view, |mut at| {
            for dealt in self.branches(chunk) {
                let candidates = of(dealt);
                match at.checked_sub(candidates.count()) {
                    Some(rest) => at = rest,
                    None => return candidates.get(at),
                }
            }
            unreachable!("there are as many as were counted")
        })
    }

    /// Who holds, by now, anything that lacks, one of them; one of these chunks.
    fn node_first(&self, now: Sent, view: &mut View<'_>) -> Option<Current> {
        let presence = self.options.presence;
        let open = |dealt: &Dealt| !self.chunks.is_held(dealt.chunk);
        let own = self.place.map(|place| self.estimate.tree().branch(place));
        // Of a branch that was dealt several chunks the first one that lacks has the most holders.
        let first = |head: u32| {
            let waits = !self.holds_own() && Some(head) == own;
            let mut dealt = self.estimate.dealt(head).iter();
            let first = dealt.find(|dealt| open(dealt));
            first.filter(|_| !waits)
        };
        let heads = 0..self.estimate.tree().first_layer();
        let of =
            |head: u32| first(head).map(|dealt| self.estimate.candidates(dealt, now, presence));
        let counts = heads.clone().filter_map(|head| Some(of(head)?.count()));
        let mut chunk = None;
        let from = self.choose(counts.sum(), view, |mut at| {
            for head in heads.clone() {
                let Some(candidates) = of(head) else { continue };
                match at.checked_sub(candidates.count()) {
                    Some(rest) => at = rest,
                    None => {
                        chunk = first(head).map(|dealt| dealt.chunk);
                        return candidates.get(at);
                    }
                }
            }
            unreachable!("there are as many as were counted")
        })?;
        let chunk = chunk.filter(|chunk| self.is_open(*chunk, view))?;
        Some(Current { chunk, from })
    }

    /// Chooses one of `count` candidates, `get` names them. Never this node itself; with the
    /// fallback none that is known not to answer, if there are others.
    fn choose(
        &self,
        count: u32,
        view: &mut View<'_>,
        mut get: impl FnMut(u32) -> u32,
    ) -> Option<MemberIndex> {
        if count == 0 {
            return None;
        }
        let first = match self.options.choice {
            Choice::Random => view.rng.below(count.into()) as u32,
            Choice::Middle => count / 2,
            Choice::Highest => count - 1,
        };
        // Downwards from the choice: the next best where a number was asked for. Each step names
        // another, so after as many as are avoided, and this node, one is found if there is one.
        let avoided = match self.options.fallback {
            true => view.silent,
            false => &[],
        };
        let most = (avoided.len() as u32).saturating_add(2).min(count);
        let mut candidates = (0..most).map(|step| MemberIndex(get((first + count - step) % count)));
        candidates.find(|from| *from != self.me && avoided.binary_search(from).is_err())
    }

    /// With the fallback: a chunk that somebody should hold by now, and all who should do not
    /// answer. Control has it.
    fn forsaken(&self, now: Sent, view: &View<'_>) -> Option<Current> {
        if !self.options.fallback || view.gone.is_empty() {
            return None;
        }
        let presence = self.options.presence;
        let is_gone = |member: u32| {
            let member = MemberIndex(member);
            member == self.me || view.is_gone(member)
        };
        let forsaken = |chunk: u32| {
            let of = |dealt: &Dealt| self.estimate.candidates(dealt, now, presence);
            let mut candidates = self.branches(chunk).flat_map(|dealt| {
                let candidates = of(dealt);
                (0..candidates.count()).map(move |at| candidates.get(at))
            });
            candidates.next().is_some_and(is_gone) && candidates.all(is_gone)
        };
        let mut lacking = self.chunks.lacking().iter().copied();
        let chunk = lacking.find(|chunk| self.is_open(*chunk, view) && forsaken(*chunk))?;
        let from = MemberIndex::SOURCE;
        Some(Current { chunk, from })
    }

    /// Nobody can be asked for anything: until when.
    fn wait_for_candidates(&self, now: Sent, view: &View<'_>) -> Next {
        let presence = self.options.presence;
        let lacking = self.chunks.lacking().iter();
        let dealt = lacking.flat_map(|chunk| self.branches(*chunk));
        let next = dealt
            .map(|dealt| self.estimate.earliest(dealt, presence))
            .min();
        match next {
            Some(next) if next > now => Next::Wait(self.when(next, view)),
            // There are candidates, but all of them are silent, or their blocks are under way.
            Some(_) => Next::Wait(view.now + Micros(self.chunk_us(0)).max(LOOK_AGAIN)),
            None => Next::Idle,
        }
    }

    /// Whoever was asked for the chunk is not asked any more; after so many in vain without a chunk
    /// that came control is.
    fn give_up(&mut self, chunk: u32, in_vain: bool) {
        self.in_vain += u32::from(in_vain);
        let forsaken = self.options.fallback && self.in_vain >= SWAP_TRIES;
        self.current = forsaken.then_some(Current {
            chunk,
            from: MemberIndex::SOURCE,
        });
    }

    /// *Not here*: the whole distribution is later than thought, by one chunk more, up to as long
    /// as it takes. False: that much later it was already.
    fn correct(&mut self, chunk: u32) -> bool {
        let heads = self.estimate.tree().first_layer();
        let last = Place {
            layer: 1,
            number: heads - 1,
        };
        let most = self.estimate.ready(last, Presence::Served);
        let most = self.estimate.after_us(most);
        let before = self.correction;
        self.correction = before.saturating_add(self.chunk_us(chunk)).min(most);
        self.correction > before
    }

    /// The block belongs to the own branch's distribution, which is not over here.
    fn is_own(&self, block: u32) -> bool {
        let own = &self.own()[self.own_held as usize..];
        if self.chunks.is_list(block) {
            return !own.is_empty();
        }
        let chunk = self.chunks.chunk_of(block);
        own.iter().any(|dealt| dealt.chunk == chunk)
    }

    /// The turn of a chunk among those dealt to a branch.
    fn turn(&self, head: u32, block: u32) -> Option<u32> {
        let dealt = self.estimate.dealt(head);
        if self.chunks.is_list(block) {
            return dealt.first().map(|dealt| dealt.turn);
        }
        let chunk = self.chunks.chunk_of(block);
        let dealt = dealt.iter().find(|dealt| dealt.chunk == chunk);
        dealt.map(|dealt| dealt.turn)
    }

    /// Whether the asker is served a block in its turn: its turn and its number among those served
    /// so.
    fn in_turn(&self, asker: MemberIndex, block: u32) -> Option<(u32, u32)> {
        let tree = self.estimate.tree();
        if asker.0 >= tree.nodes() {
            return None;
        }
        let place = tree.place(asker.0);
        let parent = tree.parent(place).map(|above| tree.index(above));
        let mine = match parent {
            None => self.me.is_source(),
            Some(parent) => parent == self.me.0,
        };
        if !mine {
            return None;
        }
        let number = match tree.child_number(place) {
            0 => place.number,
            child => child,
        };
        let turn = self.turn(tree.branch(place), block)?;
        Some((turn, number))
    }

    /// What became of a request to the parent.
    fn parent_instead(&self, from: MemberIndex, trouble: Trouble, attempt: u32) -> MemberIndex {
        let given_up = match trouble {
            Trouble::Silent => attempt >= PARENT_TRIES,
            Trouble::NotHere | Trouble::Corrupt => true,
            Trouble::Late | Trouble::Busy => false,
        };
        match self.options.fallback && given_up {
            true => MemberIndex::SOURCE,
            false => from,
        }
    }
}

fn children(tree: &Tree, place: Place) -> Vec<MemberIndex> {
    let below = tree.children(place).map(|number| Place {
        layer: place.layer + 1,
        number,
    });
    below.map(|child| MemberIndex(tree.index(child))).collect()
}

impl Planner for Published {
    fn next(&mut self, view: &mut View<'_>) -> Next {
        self.count(view);
        if self.chunks.lacking().is_empty() {
            return Next::Idle;
        }
        let own = self.next_own(view);
        if let Some(Next::Ask { .. }) = own {
            return own.unwrap_or(Next::Idle);
        }
        if self.takes_part(view) {
            let swap = self.next_swap(view);
            // Whichever comes first.
            return match (own, swap) {
                (Some(Next::Wait(own)), Next::Wait(swap)) => Next::Wait(own.min(swap)),
                (Some(Next::Wait(own)), Next::Idle) => Next::Wait(own),
                (_, swap) => swap,
            };
        }
        match (own, self.holds_own()) {
            (Some(own), _) => own,
            (None, false) => Next::Idle,
            // The children are being served.
            (None, true) => {
                let chunk = self.own().last().map_or(0, |dealt| dealt.chunk);
                Next::Wait(view.now + Micros(self.chunk_us(chunk) / 4).max(LOOK_AGAIN))
            }
        }
    }

    fn instead(
        &mut self,
        view: &mut View<'_>,
        block: u32,
        from: MemberIndex,
        trouble: Trouble,
        attempt: u32,
    ) -> Option<MemberIndex> {
        self.count(view);
        if attempt == 0 {
            // A program waits for the block: nobody was asked yet.
            let chunk = self.chunks.chunk_of(block);
            let now = self.elapsed(view);
            return match self.is_own(block) {
                true => Some(self.parent()),
                false => self.candidate(chunk, now, view),
            };
        }
        if from.is_source() {
            return Some(from);
        }
        if from == self.parent() && self.is_own(block) {
            return Some(self.parent_instead(from, trouble, attempt));
        }
        let asked = self.current.filter(|current| current.from == from);
        match trouble {
            Trouble::NotHere => {
                // Once for all blocks of the request.
                if let Some(current) = asked {
                    let corrected = self.correct(current.chunk);
                    self.give_up(current.chunk, !corrected && self.options.fallback);
                    // Where the middle or the highest is chosen the same one would be asked again
                    // at once, for ever, and all ask that one.
                    if !corrected {
                        self.swap_from = view.now + Micros(self.chunk_us(current.chunk));
                    }
                }
                None
            }
            _ if !self.options.fallback => Some(from),
            _ => {
                if let Some(current) = asked {
                    // Where the choice is no draw, who is late is chosen again: it may be dead, and
                    // the end near.
                    let drawn = self.options.choice == Choice::Random;
                    self.give_up(current.chunk, trouble != Trouble::Late || !drawn);
                }
                None
            }
        }
    }

    fn arrived(&mut self, view: &mut View<'_>, block: u32, _from: MemberIndex, _late: Option<u32>) {
        self.count(view);
        let lacked = self.chunks.lacking().len();
        self.chunks.arrived(block, view.have);
        if self.chunks.lacking().len() < lacked {
            // Any: also one that was given up and came after all.
            self.in_vain = 0;
        }
        self.settle_own();
        if (self.current).is_some_and(|current| self.chunks.is_held(current.chunk)) {
            self.current = None;
        }
    }

    fn service(&mut self, view: &mut View<'_>, asker: MemberIndex, block: u32) -> Service {
        self.count(view);
        let chunk = self.chunks.chunk_of(block);
        if self.in_turn(asker, block).is_some() {
            self.child_asked = view.now;
            let last = self.own().last().map(|dealt| dealt.chunk);
            if last.is_some_and(|last| self.chunks.last_block(last) == block) {
                self.unserved.retain(|child| *child != asker);
            }
            return Service::WhenHere;
        }
        self.queue.asked(asker, chunk);
        if self.me.is_source() {
            return Service::WhenHere;
        }
        let whole = self.chunks.is_held(chunk) || self.chunks.is_list(block);
        match whole && self.takes_part(view) {
            true => Service::IfHere,
            false => Service::Refuse,
        }
    }

    fn order(&self, block: u32, asker: MemberIndex) -> u64 {
        match self.in_turn(asker, block) {
            Some((turn, number)) => {
                let tree = self.estimate.tree();
                let places = tree.fan_out().max(tree.first_layer());
                queue::in_turn(turn, number, places, block)
            }
            None => (self.queue).foreign(asker, self.chunks.chunk_of(block), block),
        }
    }

    fn late_after(&self) -> u32 {
        // As long as the data takes on a link: a turn in the distribution is awaited.
        let blocks = self.chunks.last_block(0).max(1);
        (self.estimate.chunks().saturating_mul(blocks)).clamp(512, 1 << 20)
    }
}

#[cfg(test)]
mod tests;
