//! The node's facade: takes part in casts, receives and serves.
//!
//! The drain loop is that of [`crate::node::Endpoint`]. All datagrams are of kinds 64 to 79.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddrV4;

use super::cast::{Cast, CastEvent, Consent, Io};
use super::event::{CastCounters, FailReason, Footprint, MemberEvent, Progress, RefuseReason};
use super::hashes::{Hash, Hasher};
use super::message::{MemberIndex, Message, PAGE_PEERS, Packet, Range, Setup};
use super::station::Station;
use super::{CastId, MAX_MEMBERS, MAX_NAME, NoRoom, Part, Peer, Purpose, Scheme, Store, published};
use crate::ids::{BootEpoch, NodeId};
use crate::time::Instant;
use crate::wire::key::Key;

/// Casts a member takes part in at a time: those of the job that runs, and those of the next.
pub(super) const MAX_CASTS: usize = 2 * super::MEMBER_CASTS;
/// Memberships whose rosters are remembered.
const MAX_ROSTERS: usize = 4;

/// Bytes that others can make a member keep for each member of a cast: its address (12), two ranges
/// of what is done for every second one (8), and why it failed (8).
pub const MEMBER_BYTES: u64 = 32;

const _: () = assert!(size_of::<Peer>() + 2 * size_of::<Range>() <= MEMBER_BYTES as usize);

/// What a member needs to know of itself.
#[derive(Clone, Debug)]
pub struct MemberConfig {
    /// Number of the node, for its counters and texts only.
    pub node: NodeId,
    /// Its boot, as the control node knows it; 0 where a member is not known to the source by its
    /// boot.
    pub boot: BootEpoch,
    /// Where it is reached.
    pub me: Peer,
    /// The control node; None: whoever announces under the key.
    pub control: Option<Peer>,
    /// The key of this run of the control node.
    pub key: Key,
    /// Most bytes per second it sends, framing included; 0: as announced, where several casts are
    /// under way as the fastest of them.
    pub rate: u64,
    /// Reassembly buffers of a block each; 0: the usual number. Fragments that were asked for and
    /// may arrive at any time never exceed what these hold.
    pub buffers: u32,
    /// Fragments that may be asked for, and so arrive, at any time, of all casts together: what the
    /// receive ring of its card has room for; 0: any number. They are shared among the casts that
    /// lack something. As many more may come as a block of the largest size has (48), so that a
    /// cast can begin beside others that have asked for all of it; beyond that casts take turns.
    pub credit: u32,
    /// Members that all casts together may have in which this one takes part, remembered rosters
    /// included, if the store has room for so many ([`Store::members_room`]); 0: as many as it has.
    /// Whoever has the key can have it keep [`MEMBER_BYTES`] of each, so this is what bounds its
    /// memory.
    pub members: u32,
    /// Seed of its random choices; different on every node.
    pub seed: u64,
}

/// What a member wants of a cast that it accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// All of it.
    All,
    /// Nothing: it serves what it has. It counts as done.
    Nothing,
}

/// A membership and its pages.
type KnownRoster = (u64, Vec<Arc<[Peer]>>);

/// The node's side of all casts.
#[derive(Debug)]
pub struct Member {
    config: MemberConfig,
    station: Station,
    events: VecDeque<MemberEvent>,
    rosters: VecDeque<KnownRoster>,
    /// Members that there may be of all casts together, as of the last announcement.
    members_most: u64,
}

/// Whether another cast can be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    Now,
    /// When others are over: it is not answered, and taken when its announcement is repeated then.
    Later,
    /// Not even without the others.
    No,
}

/// For calls that read and write nothing.
pub(super) struct NoStore;

impl Hasher for NoStore {
    fn subtree(&mut self, _: u64, _: &[u8], _: bool) -> Hash {
        [0; 32]
    }
    fn merge(&mut self, _: &Hash, _: &Hash, _: bool) -> Hash {
        [0; 32]
    }
}

impl Store for NoStore {
    fn read(&mut self, _: CastId, _: Part, _: usize, _: &mut [u8]) -> bool {
        false
    }
    fn write(&mut self, _: CastId, _: Part, _: &[u8]) -> Result<(), NoRoom> {
        Err(NoRoom)
    }
}

impl Member {
    /// A member of no cast.
    pub fn new(config: MemberConfig, now: Instant) -> Self {
        // None: its own rate bounds that of each cast, and the fastest cast's is the link's.
        let mut station = Station::new(config.me, config.key, None, config.seed, now);

        if config.credit > 0 {
            station.set_credit(config.credit);
        }
        Member {
            station,
            members_most: most_members(config.members),
            config,
            events: VecDeque::new(),
            rosters: VecDeque::new(),
        }
    }

    /// Takes a datagram of kinds 64 to 79. Bad input is counted.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        from: SocketAddrV4,
        datagram: &[u8],
        store: &mut dyn Store,
    ) {
        if let Some((packet, fragment)) = self.station.parse(now, from, datagram) {
            self.handle_message(now, from, packet, fragment, store);
        }
    }

    /// Takes a message. `fragment` is the payload of DATA, exactly one fragment then; without it
    /// the payload is virtual: trains count, nothing is hashed, [`Store::write`] gets no bytes.
    pub fn handle_message(
        &mut self,
        now: Instant,
        from: SocketAddrV4,
        packet: Packet,
        fragment: Option<&[u8]>,
        store: &mut dyn Store,
    ) {
        let id = packet.cast;
        if let Message::Announce { setup, .. } = &packet.message
            && let Some(known) = self.station.cast(id)
            && known.setup.object.id != setup.object.id
        {
            // Two casts of one number: the one that is under way goes on.
            self.station.counters.bad += 1;
            return;
        }
        if self.station.cast(id).is_none() {
            match &packet.message {
                Message::Announce { index, setup, .. } => {
                    if !self.announced(now, from, &packet, (*index, setup), store) {
                        return;
                    }
                }
                Message::Data { .. } => return,
                _ => {
                    let me = MemberIndex(self.config.node.0);
                    self.station.stray(from, &packet, me);
                    return;
                }
            }
        }
        self.station.deliver(now, from, packet, fragment, store);
        self.take_events();
    }

    /// A cast that is not known. False if it is not taken: then nothing is kept of it. Whoever
    /// announces it is told where there is no room whatever else is under way; else there may be
    /// some when the announcement is repeated.
    fn announced(
        &mut self,
        now: Instant,
        from: SocketAddrV4,
        packet: &Packet,
        (me, setup): (MemberIndex, &Arc<Setup>),
        store: &mut dyn Store,
    ) -> bool {
        let id = packet.cast;
        if self.station.has_ended(id) {
            self.station.counters.bad += 1;
            self.station.stray(from, packet, me);
            return false;
        }
        let control = self.config.control.as_ref();
        let by_control = control.is_none_or(|control| control.addr == setup.control.addr);
        if !by_control || !is_sound(setup, me) {
            self.station.counters.bad += 1;
            return false;
        }
        match self.room_for(setup.members, store) {
            Room::Now => {}
            full => {
                self.station.counters.overloaded += 1;
                if full == Room::No {
                    self.station.turn_away(from, packet, me);
                }
                return false;
            }
        }
        if setup.object.check(store).is_err() {
            self.station.counters.bad += 1;
            return false;
        }
        let rate = match self.config.rate {
            0 => setup.rate,
            own => own.min(setup.rate.max(1)),
        };
        let mut cast = Cast::new(id, setup.clone(), me, now, self.config.buffers, rate);
        cast.boot = self.config.boot;
        if let Some((_, pages)) = self.rosters.iter().find(|(id, _)| *id == setup.roster_id) {
            for (page, peers) in pages.iter().enumerate() {
                cast.roster.put(page as u32, peers.clone());
            }
        }
        let speaker = Peer {
            addr: from,
            mac: packet.mac,
        };
        if !cast.roster.is_from(packet.from, speaker) {
            // Somebody says again what another member said. That one says it again, too, until it
            // is answered.
            self.station.counters.bad += 1;
            return false;
        }
        self.station.add(cast);
        self.forget_rosters();
        let cold = setup.members.saturating_sub(setup.holders);
        if !published::is_bounded(&setup.scheme, cold, &setup.object) {
            // It tells those below it nevertheless, and the source why it takes no part.
            let invalid = |cast: &mut Cast, io: &mut Io<'_>| cast.fail(FailReason::Invalid, io);
            self.station.with(now, id, store, invalid);
            return true;
        }
        self.events.push_back(MemberEvent::Announced {
            cast: id,
            object: setup.object.clone(),
            purpose: setup.purpose.clone(),
            job: setup.job,
            rate: setup.rate,
            plan_bytes: published::plan_bytes(&setup.scheme, cold, &setup.object),
        });
        true
    }

    /// The next datagram to send: to whom and its length, written to the front of `out`, which
    /// must have [`crate::MAX_DATAGRAM`] bytes. Also acts on deadlines that have passed.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        out: &mut [u8],
        store: &mut dyn Store,
    ) -> Option<(Peer, usize)> {
        let datagram = self.station.poll_transmit(now, out, store);
        self.take_events();
        datagram
    }

    /// The next message to send (instead of [`Member::poll_transmit`], not beside it).
    pub fn poll_message(&mut self, now: Instant, store: &mut dyn Store) -> Option<(Peer, Packet)> {
        let message = self.station.poll_message(now, store);
        self.take_events();
        message
    }

    /// When to call `poll_transmit` again without other cause, the pacer's wait included; a time
    /// that has passed means at once. None: nothing is under way.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if !self.events.is_empty() {
            return Some(Instant::ZERO);
        }
        self.station.poll_timeout()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<MemberEvent> {
        self.events.pop_front()
    }

    fn take_events(&mut self) {
        while let Some((cast, event)) = self.station.poll_event() {
            let event = match event {
                CastEvent::Stored(block) => MemberEvent::Stored { cast, block },
                CastEvent::Complete => MemberEvent::Complete { cast },
                CastEvent::Ended(reason) => {
                    self.keep_roster(cast);
                    MemberEvent::Ended { cast, reason }
                }
                CastEvent::Failed(reason) => MemberEvent::Failed { cast, reason },
                CastEvent::Done(..) | CastEvent::MemberFailed(..) | CastEvent::Corrupt(..) => {
                    continue;
                }
            };
            self.events.push_back(event);
        }
    }

    /// Later casts of the same membership need not ask for addresses.
    fn keep_roster(&mut self, cast: CastId) {
        let Some(cast) = self.station.cast(cast) else {
            return;
        };
        let pages: Option<Vec<_>> = cast.roster.pages().iter().cloned().collect();
        if let Some(pages) = pages {
            let id = cast.setup.roster_id;
            self.learn_roster(id, pages);
        }
    }

    /// Takes part in an announced cast. `have` says which parts are here already (checked).
    /// Nothing happens when the cast is not waiting for an answer.
    pub fn accept(
        &mut self,
        now: Instant,
        cast: CastId,
        want: Want,
        have: &mut dyn FnMut(Part) -> bool,
    ) {
        let consent = match want {
            Want::All => Consent::Given,
            Want::Nothing => Consent::Serving,
        };
        self.station.with(now, cast, &mut NoStore, |cast, io| {
            cast.accept(consent, have, io);
        });
        self.take_events();
    }

    /// Takes no part in an announced cast, but passes its announcement on.
    pub fn refuse(&mut self, now: Instant, cast: CastId, reason: RefuseReason) {
        let reason = match reason {
            RefuseReason::NoRoom => FailReason::NoRoom,
            RefuseReason::Unwanted => FailReason::Refused,
        };
        self.station.with(now, cast, &mut NoStore, |cast, io| {
            cast.fail(reason, io);
        });
        self.take_events();
    }

    /// A program waits for this data block: it is asked for before all others.
    pub fn want(&mut self, now: Instant, cast: CastId, data_block: u32) {
        self.station.with(now, cast, &mut NoStore, |cast, io| {
            cast.want(data_block, io)
        });
    }

    /// Takes part in a cast that is unfinished, here or elsewhere.
    pub fn is_active(&self) -> bool {
        !self.station.casts().is_empty()
    }

    /// From now on so many fragments may be asked for at a time, as [`MemberConfig::credit`] says,
    /// but that 0 is none. What was asked for before still comes.
    pub fn set_credit(&mut self, fragments: u32) {
        self.station.set_credit(fragments);
    }

    /// A cast lacks something here.
    pub fn is_receiving(&self) -> bool {
        self.station.casts().iter().any(|cast| !cast.is_satisfied())
    }

    /// How far a cast is here.
    pub fn progress(&self, cast: CastId) -> Option<Progress> {
        self.station.cast(cast).map(Cast::progress)
    }

    /// The block is here and checked.
    pub fn holds(&self, cast: CastId, data_block: u32) -> bool {
        self.station.cast(cast).is_some_and(|cast| {
            let block = cast.setup.object.block_of(Part::Data(data_block));
            cast.have.contains(block)
        })
    }

    /// Leaves a cast at once, without a word to anybody: its peers find out.
    pub fn forget(&mut self, cast: CastId) {
        self.station.forget(cast);
    }

    /// It is this time at the control node, in microseconds: the base of what this member numbers.
    pub fn set_time(&mut self, now: Instant, time: u64) {
        self.station.envelopes().set_time(now, time);
    }

    /// The node began to take part at this time of the control node, which vouches for it. What
    /// was said before to this address is not opened.
    pub fn begin_at(&mut self, now: Instant, time: u64) {
        self.station.envelopes().begin_at(now, time);
    }

    /// The control node has a new key: all casts end without an event, the rosters are kept.
    pub fn set_key(&mut self, now: Instant, key: Key) {
        self.config.key = key;
        self.station.set_key(now, key);
        self.events.clear();
    }

    /// Makes a roster known before it is asked for (see [`super::message::Setup::roster_id`]).
    pub fn learn_roster(&mut self, roster_id: u64, pages: Vec<Arc<[Peer]>>) {
        if self.rosters.iter().any(|(id, _)| *id == roster_id) {
            return;
        }
        if self.rosters.len() >= MAX_ROSTERS {
            self.rosters.pop_front();
        }
        self.rosters.push_back((roster_id, pages));
        self.forget_rosters();
    }

    /// Members of the casts under way.
    fn members_of_casts(&self) -> u64 {
        let members = self.station.casts().iter();
        members.map(|cast| u64::from(cast.setup.members)).sum()
    }

    /// Whether a cast of so many members can be taken beside the others.
    fn room_for(&mut self, members: u32, store: &mut dyn Store) -> Room {
        let kept = self.members_of_casts();
        let room = u64::from(store.members_room());
        // What was promised to casts under way is taken only when their pages come: what there is
        // room for now may be theirs.
        let beside = self.members_most.min(kept + room);
        self.members_most = room.max(beside).min(most_members(self.config.members));
        let members = u64::from(members);
        if self.station.casts().len() < MAX_CASTS && kept + members <= self.members_most {
            Room::Now
        } else if members <= self.members_most {
            Room::Later
        } else {
            Room::No
        }
    }

    /// Casts under way go before what is remembered, of which the oldest goes first.
    fn forget_rosters(&mut self) {
        let most = self.members_most.saturating_sub(self.members_of_casts());
        let of_one = |(_, pages): &KnownRoster| pages.len() as u64 * u64::from(PAGE_PEERS);
        while self.rosters.iter().map(of_one).sum::<u64>() > most {
            self.rosters.pop_front();
        }
    }

    /// Figures since the start.
    pub fn counters(&self) -> &CastCounters {
        &self.station.counters
    }

    /// What is kept at present.
    pub fn footprint(&self) -> Footprint {
        self.station.footprint()
    }

    /// Pages of addresses that are kept: of casts under way, remembered, and waiting to be sent.
    #[cfg(test)]
    pub(super) fn pages_kept(&self) -> usize {
        let casts = self.station.casts().iter();
        let known = casts.flat_map(|cast| cast.roster.pages().iter().flatten());
        let remembered = self.rosters.iter().flat_map(|(_, pages)| pages);
        let all = known.chain(remembered).chain(self.station.queued_pages());
        let each: alloc::collections::BTreeSet<_> = all.map(|page| page.as_ptr()).collect();
        each.len()
    }

    /// This member's number in a cast.
    pub fn index(&self, cast: CastId) -> Option<MemberIndex> {
        self.station.cast(cast).map(|cast| cast.me)
    }
}

/// The bound that a configuration names: 0 is none.
fn most_members(configured: u32) -> u64 {
    match configured {
        0 => u64::MAX,
        most => u64::from(most),
    }
}

/// An announcement's numbers fit together.
fn is_sound(setup: &Setup, me: MemberIndex) -> bool {
    let name = match &setup.purpose {
        Purpose::File { name } => !name.is_empty() && name.len() <= MAX_NAME && !name.contains('/'),
        Purpose::Program | Purpose::Table { .. } | Purpose::Read { .. } => true,
    };
    let roster = setup.roster.is_empty() || setup.roster.len() == setup.members as usize;
    (1..=MAX_MEMBERS).contains(&setup.members)
        // Those that join late have numbers beyond the announced ones.
        && me.0 < MAX_MEMBERS
        && setup.holders <= setup.members
        && setup.rate > 0
        && setup.scheme != Scheme::Auto
        && setup.object.check_size().is_ok()
        && name
        && roster
}
