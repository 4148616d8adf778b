//! One station of a cast, alone, for tests: the test is all the others, and the clock.
//!
//! Invariant: bytes, hashes and messages are real, and nothing happens by itself.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::serving::Train;
use super::{Cast, CastEvent, Consent, Io};
use crate::broadcast::event::CastCounters;
use crate::broadcast::message::{MemberIndex, Message, Packet, Setup};
use crate::broadcast::outbox::Outbox;
use crate::broadcast::tests::{Memory, RATE, content, mesh_of, object, peer};
use crate::broadcast::{FRAGMENT, Lists, Part, Scheme};
use crate::ids::CastId;
use crate::rng::Rng;
use crate::time::{Instant, Micros};

/// Reassembly buffers of the station.
const BUFFERS: u32 = 32;
/// Blocks of 8 KiB.
const BLOCK_LOG2: u8 = 13;

/// See the module.
pub(super) struct Alone {
    pub cast: Cast,
    pub now: Instant,
    /// Right blocks come in datagrams that are sealed.
    pub sealed: bool,
    content: Vec<u8>,
    lists: Lists,
    last_data: Instant,
    memory: Memory,
    rng: Rng,
    outbox: Outbox,
    counters: CastCounters,
    events: VecDeque<(CastId, CastEvent)>,
}

impl Alone {
    /// `me`, which takes part, in a cast of so many bytes to so many members at [`RATE`].
    pub(super) fn new(me: MemberIndex, members: u32, bytes: usize, scheme: Scheme) -> Self {
        let mut alone = Alone::asked(me, members, bytes, scheme);
        alone.with(|cast, io| match me.is_source() {
            true => cast.consent = Consent::Given,
            false => cast.accept(Consent::Given, &mut |_| false, io),
        });
        alone
    }

    /// The same before its user has said whether it takes part.
    pub(super) fn asked(me: MemberIndex, members: u32, bytes: usize, scheme: Scheme) -> Self {
        let content = content(bytes, 1);
        let (object, lists) = object(&content, BLOCK_LOG2);
        let setup = Setup {
            scheme,
            ..mesh_of(object, members)
        };
        let now = Instant::from_micros(1_000_000);
        Alone {
            cast: Cast::new(CastId(1), Arc::new(setup), me, now, BUFFERS, RATE),
            now,
            sealed: false,
            content,
            lists,
            last_data: Instant::ZERO,
            memory: Memory::default(),
            rng: Rng::new(1),
            outbox: Outbox::default(),
            counters: CastCounters::default(),
            events: VecDeque::new(),
        }
    }

    pub(super) fn with<R>(&mut self, act: impl FnOnce(&mut Cast, &mut Io<'_>) -> R) -> R {
        let mut io = Io {
            now: self.now,
            mac: [0; 6],
            outbox: &mut self.outbox,
            store: &mut self.memory,
            last_data: &mut self.last_data,
            rng: &mut self.rng,
            counters: &mut self.counters,
            events: &mut self.events,
        };
        act(&mut self.cast, &mut io)
    }

    /// Time passes; nothing else does.
    pub(super) fn after(&mut self, micros: u64) {
        self.now += Micros(micros);
    }

    /// The station acts on its deadlines, and asks for what it may.
    pub(super) fn tick(&mut self) {
        self.with(|cast, io| cast.tick(io));
        self.with(|cast, io| cast.make_requests(io));
    }

    /// What was sent since the last call.
    pub(super) fn sent(&mut self) -> Vec<Message> {
        let sent = core::iter::from_fn(|| self.outbox.pop_front());
        sent.map(|(_, packet)| packet.message).collect()
    }

    /// What the cast told its user since the last call.
    pub(super) fn events(&mut self) -> Vec<CastEvent> {
        self.events.drain(..).map(|(_, event)| event).collect()
    }

    /// A member says something.
    pub(super) fn hear(&mut self, from: u32, message: Message) {
        let packet = Packet {
            cast: self.cast.id,
            from: MemberIndex(from),
            mac: peer(from).mac,
            message,
        };
        self.with(|cast, io| cast.message(peer(from).addr, packet, io));
    }

    /// A whole block comes, all its datagrams at once.
    pub(super) fn block(&mut self, block: u32, from: MemberIndex, held: u64) {
        self.fragments(block, u64::MAX, from, held);
    }

    /// A whole block of wrong bytes comes.
    pub(super) fn wrong_block(&mut self, block: u32, from: MemberIndex, sealed: bool) {
        self.wrong_fragments(block, u64::MAX, from, sealed);
    }

    /// These datagrams of a block come, with wrong bytes.
    pub(super) fn wrong_fragments(
        &mut self,
        block: u32,
        which: u64,
        from: MemberIndex,
        sealed: bool,
    ) {
        let object = &self.cast.setup.object;
        let bytes = alloc::vec![0x5a; object.length(block)];
        for (index, fragment) in bytes.chunks(FRAGMENT).enumerate() {
            if which >> index & 1 == 0 {
                continue;
            }
            let train = Train {
                to: from,
                block,
                fragments: 1 << index,
                held: Micros::ZERO,
                sealed,
            };
            self.with(|cast, io| cast.receive(train, Some(fragment), io));
        }
    }

    /// These datagrams of a block come, as far as it has them, all at once.
    pub(super) fn fragments(&mut self, block: u32, which: u64, from: MemberIndex, held: u64) {
        let bytes = match self.cast.setup.object.part(block) {
            Part::List(n) => self.lists.block(n).expect("the list exists").to_vec(),
            Part::Data(n) => {
                let mut blocks = self.content.chunks(1 << BLOCK_LOG2);
                blocks.nth(n as usize).expect("it exists").to_vec()
            }
        };
        for (index, fragment) in bytes.chunks(FRAGMENT).enumerate() {
            if which >> index & 1 == 0 {
                continue;
            }
            let train = Train {
                to: from,
                block,
                fragments: 1 << index,
                held: Micros(held),
                sealed: self.sealed,
            };
            self.with(|cast, io| cast.receive(train, Some(fragment), io));
        }
    }
}
