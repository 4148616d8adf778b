//! What strangers send who have no key, and what a rank sends that has gone wrong.
//!
//! Invariant: no datagram panics an endpoint, has it write outside of the memory of its operations,
//! put the bytes of one rank where another's belong, or keep more than its limits.

use proptest::prelude::{ProptestConfig, prop_assert, prop_assert_eq, proptest};

use super::super::alltoall::MAX_OVERDUE;
use super::super::envelope::Envelopes;
use super::super::message::{BlockId, Body, MAX_ITEMS, NUMBER_MASK, Offer, Packet, Pull};
use super::super::message::{Data, Item, Why};
use super::super::tagged::WINDOW;
use super::super::{SHORT, wire};
use super::*;

/// Datagrams that a stranger remembers.
const REMEMBERED: usize = 64;
/// Ranks of a test.
const SIZE: u32 = 4;
/// The one that has gone wrong.
const WRONG: Rank = Rank(3);
/// What the memory of a rank holds where nothing has been written.
const UNTOUCHED: u8 = 0xa5;

/// Somebody on the network without the key.
pub(super) struct Stranger {
    seen: Vec<Vec<u8>>,
    rng: Rng,
}

impl Stranger {
    fn new(seed: u64) -> Self {
        Stranger {
            seen: Vec::new(),
            rng: Rng::new(seed),
        }
    }

    /// Sees a datagram; what it sends then, and to whom.
    pub(super) fn answer(&mut self, datagram: &[u8], ranks: usize) -> Option<(usize, Vec<u8>)> {
        let place = self.rng.below(REMEMBERED as u64) as usize;
        match self.seen.get_mut(place) {
            Some(seen) => *seen = datagram.to_vec(),
            None => self.seen.push(datagram.to_vec()),
        }
        if self.rng.below(3) > 0 {
            return None;
        }
        let to = self.rng.below(ranks as u64) as usize;
        Some((to, self.forge()))
    }

    fn forge(&mut self) -> Vec<u8> {
        let any = self.rng.below(self.seen.len() as u64) as usize;
        let mut bytes = self.seen[any].clone();
        let at = self.rng.below(bytes.len() as u64) as usize;
        match self.rng.below(6) {
            // As it was, later and perhaps to another.
            0 | 1 => {}
            2 => bytes.truncate(at),
            3 => bytes[at] ^= 1 << self.rng.below(8),
            4 => bytes[at..].fill_with(|| self.rng.next_u64() as u8),
            _ => {
                let length = self.rng.below(crate::MAX_DATAGRAM as u64 + 1) as usize;
                bytes.resize(length, 0);
                bytes.fill_with(|| self.rng.next_u64() as u8);
            }
        }
        bytes
    }
}

/// A rank that has the key, and says anything.
struct Wrong(Rng, Envelopes);

impl Wrong {
    fn new(seed: u64) -> Self {
        Wrong(Rng::new(seed), envelopes(WRONG, SIZE))
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    /// Small numbers are those of what goes on.
    fn number(&mut self) -> u32 {
        match self.below(4) {
            0 => self.below(u64::from(NUMBER_MASK) + 1) as u32,
            _ => self.below(3) as u32,
        }
    }

    fn context(&mut self) -> u16 {
        match self.below(4) {
            0 => self.0.next_u64() as u16,
            _ => 0,
        }
    }

    fn bytes(&mut self) -> u64 {
        match self.below(4) {
            0 => self.below(MAX_BLOCK + 1),
            1 => 20_000,
            _ => self.below(4_000),
        }
    }

    fn block(&mut self) -> BlockId {
        match self.below(3) {
            0 => BlockId::Message(self.number()),
            _ => BlockId::Exchange(self.context(), self.number()),
        }
    }

    /// Mostly none: what is of something else is not looked at further.
    fn signature(&mut self) -> u32 {
        match self.below(16) {
            0 => self.0.next_u64() as u32,
            _ => 0,
        }
    }

    fn offer(&mut self, bytes: u64) -> Offer {
        Offer {
            number: self.number(),
            context: self.context(),
            tag: self.below(3) as u32,
            bytes,
        }
    }

    fn item(&mut self) -> Item {
        let (context, number) = (self.context(), self.number());
        match self.below(19) {
            0 => Item::Ready {
                context,
                number,
                bytes: self.bytes(),
                pushed: self.0.next_u64() as u8,
                signature: self.signature(),
            },
            1 => Item::WhoIsReady {
                context,
                number,
                signature: self.signature(),
            },
            2 | 3 => {
                let tell = self.below(2) == 0;
                let packets = self.0.next_u64() >> self.below(64) | u64::from(!tell);
                let pull = Pull {
                    serial: self.0.next_u64() as u16,
                    first: self.number(),
                    packets,
                    tell,
                };
                let block = self.block();
                Item::Pull { block, pull }
            }
            4 => {
                let block = self.block();
                let signature = match block {
                    BlockId::Exchange(..) => self.signature(),
                    BlockId::Message(_) => 0,
                };
                Item::Got { block, signature }
            }
            5 => Item::Served {
                block: self.block(),
                serial: self.below(4) as u16,
            },
            6 => Item::Refuse {
                block: self.block(),
                gone: self.below(2) == 0,
            },
            7 => {
                let bytes = self.bytes();
                Item::Offer(self.offer(bytes))
            }
            8 => Item::Known { number },
            9 => Item::Arrived {
                context,
                number,
                stage: self.below(32) as u8,
                signature: self.signature(),
            },
            10 => Item::Ask {
                context,
                number,
                stage: self.below(32) as u8,
                signature: self.signature(),
            },
            11 => Item::Ping { question: number },
            12 => Item::Pong { question: number },
            13 => Item::Busy { context, number },
            17 => Item::Noted { context, number },
            14 => Item::Broken {
                context,
                number,
                rank: Rank(self.below(u64::from(SIZE) + 2) as u32),
                why: [Why::Length, Why::Withdrawn, Why::Lost, Why::Other][self.below(4) as usize],
            },
            16 => Item::Fault {
                context,
                number,
                rank: Rank(self.below(u64::from(SIZE) + 2) as u32),
                why: [Why::Length, Why::Withdrawn, Why::Lost, Why::Other][self.below(4) as usize],
                bytes: (self.below(2) == 0).then(|| self.bytes()),
            },
            15 => Item::ToMaster {
                context,
                number,
                step: self.below(4) as u32,
                signature: self.signature(),
            },
            _ => Item::FromMaster {
                context,
                number,
                step: self.0.next_u64() as u32 >> self.below(32),
                place: self.below(4) as u16,
                count: self.0.next_u64() as u16,
                to: Rank(self.below(u64::from(SIZE) + 2) as u32),
                signature: self.signature(),
            },
        }
    }

    /// A datagram to a rank, sealed as it should be.
    fn datagram(&mut self, to: Rank, out: &mut [u8]) -> usize {
        let body = match self.below(4) {
            0 => {
                let tail = 1 + self.below(PACKET as u64) as usize;
                let data = Data {
                    block: self.block(),
                    first: self.number(),
                    packets: 1,
                    tail: tail as u16,
                    is_last: tail < PACKET || self.below(4) == 0,
                };
                let fill = |room: &mut [u8]| {
                    room.fill(0xee);
                    true
                };
                let length = wire::emit_data(&mut self.1, to, &data, out, fill);
                return length.expect("it is filled");
            }
            1 => {
                let bytes = self.below(SHORT as u64 + 1);
                Body::Short {
                    offer: self.offer(bytes),
                    payload: vec![0xee; bytes as usize].into(),
                }
            }
            _ => {
                let count = 1 + self.below(MAX_ITEMS as u64);
                Body::Control((0..count).map(|_| self.item()).collect())
            }
        };
        let packet = Packet { from: WRONG, body };
        wire::emit(&mut self.1, to, &packet, out).expect("no data")
    }
}

/// Posts what the tests do: an exchange of 20,000 bytes, a barrier, and messages between
/// neighbours.
fn post_all(net: &mut Net, ranks: core::ops::Range<u32>) -> Vec<Op> {
    let ops = exchange(net, |_, _| 20_000);
    for me in ranks {
        let buffers = &mut net.memory[me as usize].0;
        buffers[1].fill(UNTOUCHED);
        buffers.extend([vec![me as u8; 6_000], vec![UNTOUCHED; 6_000]]);
        net.post(me, ops[me as usize].clone());
        net.post(
            me,
            Op::Barrier {
                among: Among::all(1),
            },
        );
        let (after, before) = (Rank((me + 1) % SIZE), Rank((me + SIZE - 1) % SIZE));
        let buffer = BufferId(2);
        let (context, bytes) = (2, 6_000);
        net.post(
            me,
            Op::Send {
                to: after,
                context,
                tag: 1,
                buffer,
                bytes,
                is_synchronous: false,
            },
        );
        net.post(
            me,
            Op::Receive {
                from: Some(before),
                context,
                tag: Some(1),
                buffer: BufferId(3),
                capacity: bytes,
            },
        );
    }
    ops
}

/// What endpoints of so few ranks may keep, whatever they are sent.
fn check_bounds(net: &Net) {
    for rank in &net.ranks {
        let kept = rank.footprint();
        assert!(kept.ops <= MAX_OPS, "{kept:?}");
        assert!(kept.eager_bytes <= 2 * 8192, "{kept:?}");
        assert!(kept.queued <= 8192, "{kept:?}");
        let blocks = MAX_OVERDUE + SIZE as usize * (WINDOW as usize + MAX_OPS);
        assert!(kept.inbound <= blocks && kept.grants <= blocks, "{kept:?}");
    }
}

/// Somebody says again and again what a rank said that is dead. As signs of life that would put off
/// its loss to seven seconds, when it is asked whoever is heard.
#[test]
fn what_is_said_again_is_no_sign_of_life() {
    let mut net = Net::new(2, Scheme::Default, 0, 5);
    for (rank, op) in exchange(&mut net, |_, _| 2_000_000).iter().enumerate() {
        net.post(rank as u32, op.clone());
    }
    net.go_on(Micros(300));
    net.dead[1] = true;
    let to_first = net.flights.iter().filter(|(_, to, _)| *to == 0);
    let recorded: Vec<Vec<u8>> = to_first.map(|(.., bytes)| bytes.clone()).collect();
    assert!(recorded.len() > 1, "nothing was under way");
    let mut said = 0;
    for _ in 0..50 {
        net.go_on(Micros::from_millis(100));
        for datagram in &recorded {
            let taken = net.ranks[0].handle_datagram(net.now, datagram, &mut net.memory[0]);
            assert_eq!(taken, None);
            said += 1;
        }
    }
    assert_eq!(net.ranks[0].counters().replayed, said);
    let lost = |event: &Event| {
        let error = Error::RankLost(Rank(1));
        matches!(event, Event::Failed { error: found, .. } if *found == error)
    };
    assert!(net.events[0].iter().any(lost), "{:?}", net.events[0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn strangers_change_nothing(seed: u64, loss in 0u64..5) {
        let mut net = Net::new(SIZE, Scheme::Default, loss, seed);
        net.stranger = Some(Stranger::new(seed));
        let ops = post_all(&mut net, 0..SIZE);
        net.run(4, Micros::from_secs(20));
        assert_done(&net);
        check_received(&net, &ops);
        check_bounds(&net);
        for me in 0..SIZE {
            let sender = (me + SIZE - 1) % SIZE;
            prop_assert!(net.memory[me as usize].0[3].iter().all(|byte| *byte == sender as u8));
        }
        let bad: u64 = net.ranks.iter().map(|rank| rank.counters().bad).sum();
        prop_assert!(bad > 0);
        let replayed: u64 = net.ranks.iter().map(|rank| rank.counters().replayed).sum();
        prop_assert!(replayed > 0);
    }

    #[test]
    fn a_rank_that_has_gone_wrong_spoils_nothing_but_its_own(seed: u64, scheme in 0usize..4) {
        let scheme = [
            Scheme::Default,
            Scheme::Published { active: Active::Computed },
            compared::BY_NUMBER,
            compared::RETRY,
        ][scheme];
        let mut net = Net::new(SIZE, scheme, 0, seed);
        // The engine of the last rank is silent; in its place speaks what has gone wrong.
        net.dead[WRONG.0 as usize] = true;
        let ops = post_all(&mut net, 0..WRONG.0);
        let mut wrong = Wrong::new(seed);
        let mut out = [0; crate::MAX_DATAGRAM];
        for _ in 0..150 {
            net.go_on(Micros(wrong.below(400)));
            let to = Rank(wrong.below(WRONG.0.into()) as u32);
            let length = wrong.datagram(to, &mut out);
            let to = to.0 as usize;
            net.ranks[to].handle_datagram(net.now, &out[..length], &mut net.memory[to]);
            check_bounds(&net);
        }
        for (me, op) in ops.iter().enumerate().take(WRONG.0 as usize) {
            let Op::AllToAll { receive, .. } = op else { panic!("another operation") };
            let buffer = &net.memory[me].0[1];
            for from in (0..WRONG.0).filter(|from| *from as usize != me) {
                let Part { offset, bytes } = receive.layout.part(from);
                for at in 0..bytes {
                    let found = buffer[(offset + at) as usize];
                    let right = byte(from, me as u32, at);
                    prop_assert!(found == right || found == UNTOUCHED, "{from} to {me} at {at}");
                }
            }
            let lead = receive.layout.part(0).offset as usize;
            prop_assert!(buffer[..lead].iter().all(|byte| *byte == UNTOUCHED));
        }
        // Nobody hangs on it: every operation ends, at the latest when it counts as lost.
        net.go_on(Micros::from_secs(10));
        for me in 0..WRONG.0 as usize {
            prop_assert_eq!(net.events[me].len(), 4, "rank {} has {:?}", me, &net.events[me]);
            // Programs use the rank that is named as an index.
            for event in &net.events[me] {
                let named = match event {
                    Event::Failed { error: Error::RankLost(rank) | Error::Withdrawn(rank) | Error::Other(rank), .. }
                    | Event::Failed { error: Error::SizeMismatch { rank }, .. }
                    | Event::Failed { error: Error::Truncated { from: rank, .. }, .. }
                    | Event::Done { peer: rank, .. } => rank.0,
                    Event::Failed { error: Error::Gone, .. } => 0,
                };
                prop_assert!(named < SIZE, "rank {} has {:?}", me, event);
            }
            net.ranks[me].leave(net.now, false);
        }
        net.go_on(Micros::from_secs(10));
        for me in 0..WRONG.0 as usize {
            let kept = net.ranks[me].footprint();
            prop_assert_eq!((kept.ops, kept.inbound, kept.eager_bytes), (0, 0, 0), "rank {}", me);
        }
    }
}
