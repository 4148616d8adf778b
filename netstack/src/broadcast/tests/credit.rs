//! What may be on its way to a member at a time, whatever its casts are.

use alloc::sync::Arc;

use super::*;

/// Fragments that a node's card has room for.
const CREDIT: u32 = 96;
/// Fragments of the largest block.
const LARGEST: u32 = 48;
/// Members of each cast.
const MEMBERS: u32 = 8;

/// A member of casts of one object, for which the test is all the others.
struct Asker {
    member: Member,
    memory: Memory,
    now: Instant,
    object: Object,
    /// Fragments that it asked for and did not get, and whom it asked for them.
    asked: BTreeMap<(CastId, u32), (u32, MemberIndex)>,
}

impl Asker {
    /// Of 40 blocks of this size, with room for so many fragments (0: any number).
    fn new(block_log2: u8, credit: u32) -> Self {
        let config = MemberConfig {
            node: NodeId(5),
            boot: crate::ids::BootEpoch(0),
            me: peer(5),
            control: None,
            key: KEY,
            rate: 0,
            buffers: 16,
            credit,
            members: 0,
            seed: 1,
        };
        let now = Instant::from_micros(1_000_000);
        Asker {
            member: Member::new(config, now),
            memory: Memory::default(),
            now,
            object: object(&content(40 << block_log2, 3), block_log2).0,
            asked: BTreeMap::new(),
        }
    }

    /// A cast is announced, and the member takes part.
    fn announce(&mut self, id: u64) {
        self.announce_of(id, self.object.clone());
    }

    /// The same for another object.
    fn announce_of(&mut self, id: u64, object: Object) {
        let announce = Message::Announce {
            index: MemberIndex(5),
            number: 1,
            clock: 1,
            leaf: true,
            setup: Arc::new(mesh_of(object, MEMBERS)),
        };
        self.hear(CastId(id), MemberIndex::SOURCE, announce);
        let (now, id) = (self.now, CastId(id));
        self.member.accept(now, id, Want::All, &mut |_| false);
    }

    fn hear(&mut self, cast: CastId, from: MemberIndex, message: Message) {
        let node = if from.is_source() { CONTROL } else { from.0 };
        let packet = Packet {
            cast,
            from,
            mac: peer(node).mac,
            message,
        };
        let (now, addr) = (self.now, peer(node).addr);
        (self.member).handle_message(now, addr, packet, None, &mut self.memory);
    }

    /// So short that nothing is given up.
    fn ask(&mut self) {
        for _ in 0..100 {
            self.now += Micros(1);
            while let Some((to, packet)) = self.member.poll_message(self.now, &mut self.memory) {
                if let Message::Cancel(blocks) = &packet.message {
                    for block in blocks.as_slice() {
                        self.asked.remove(&(packet.cast, *block));
                    }
                }
                let Message::Request(wants) = packet.message else {
                    continue;
                };
                let of = (0..MEMBERS).find(|node| peer(*node) == to);
                let of = of.map_or(MemberIndex::SOURCE, MemberIndex);
                for want in wants.iter() {
                    let asked = (want.fragments.count_ones(), of);
                    self.asked.insert((packet.cast, want.block), asked);
                }
            }
        }
    }

    /// Time passes without a datagram.
    fn pass(&mut self, time: Micros) {
        self.now += time;
    }

    /// All of a block comes.
    fn receive(&mut self, block: (CastId, u32)) {
        let (_, of) = self.asked.remove(&block).expect("it was asked for");
        let data = Message::Data {
            block: block.1,
            fragments: u64::MAX,
            held: Micros::ZERO,
            sealed: false,
        };
        self.hear(block.0, of, data);
    }

    /// Blocks of a cast that are here.
    fn held(&self, id: u64) -> u32 {
        let progress = self.member.progress(CastId(id));
        progress.expect("it is a member").held
    }

    /// Fragments that may be on their way.
    fn under_way(&self) -> u32 {
        self.asked.values().map(|(fragments, _)| fragments).sum()
    }

    /// Blocks that a cast has asked for.
    fn asked_by(&self, id: u64) -> usize {
        self.asked.keys().filter(|(cast, _)| cast.0 == id).count()
    }
}

/// A member of so many casts with blocks of this size, announced at once or one after the other:
/// what it asks for before any comes, and the fragments of one block.
fn asked_for(casts: u64, block_log2: u8, at_once: bool, credit: u32) -> (u32, u32) {
    let mut asker = Asker::new(block_log2, credit);
    let last = asker.object.blocks() - 1;
    let block = asker.object.fragments(last).count_ones();
    for id in 1..=casts {
        asker.announce(id);
        if !at_once || id == casts {
            asker.ask();
        }
    }
    for id in 1..=casts {
        assert!(asker.asked_by(id) > 0, "none of them waits for the others");
    }
    (asker.under_way(), block)
}

#[test]
fn a_receive_ring_takes_what_is_asked_for_with_blocks_of_any_size() {
    // What the engine asks for of one cast with blocks of 8 KiB fits in any case.
    let (with, without) = (asked_for(1, 13, true, CREDIT), asked_for(1, 13, true, 0));
    assert_eq!(with, without);
    for block_log2 in MIN_BLOCK_LOG2..=MAX_BLOCK_LOG2 {
        let (fragments, block) = asked_for(1, block_log2, true, CREDIT);
        assert!(fragments <= CREDIT, "{fragments} with {block} a block");
        assert!(fragments + block > CREDIT || block_log2 <= 13);
    }
}

#[test]
fn casts_at_once_share_what_a_receive_ring_takes() {
    for casts in [2, 3, 12, 16] {
        let (fragments, _) = asked_for(casts, 13, true, CREDIT);
        assert!(fragments <= CREDIT, "{fragments} of {casts} casts");
    }
    for casts in [2, 3, 8] {
        let (fragments, block) = asked_for(casts, 13, false, CREDIT);
        // The first one has asked for all before there were others, and those for a block each.
        assert!(fragments <= CREDIT + (casts as u32 - 1) * block);
        assert!(fragments <= CREDIT + LARGEST);
    }
}

#[test]
fn casts_of_the_largest_blocks_take_turns_until_they_are_whole() {
    for (casts, bound) in [(1, 96), (2, 144), (3, 144), (6, 144), (9, 144)] {
        let mut asker = Asker::new(MAX_BLOCK_LOG2, CREDIT);
        for id in 1..=casts {
            asker.announce(id);
            asker.ask();
        }
        let mut most = 0;
        let mut last = None;
        while asker.member.is_receiving() {
            asker.ask();
            most = most.max(asker.under_way());
            let held = (1..=casts).map(|id| asker.held(id));
            let (least, best) = (held.clone().min(), held.max());
            assert!(
                best <= least.map(|least| least + 3),
                "{least:?} to {best:?}"
            );
            // The one that has waited for the longest time.
            let after = asker.asked.keys().find(|of| Some(**of) > last);
            let next = *after.or(asker.asked.keys().next()).expect("one is asked");
            last = Some(next);
            asker.receive(next);
        }
        assert_eq!(most, bound, "{casts} casts");
        assert!((1..=casts).all(|id| asker.held(id) == asker.object.blocks()));
    }
}

#[test]
fn casts_of_which_nothing_comes_give_way() {
    let mut asker = Asker::new(MAX_BLOCK_LOG2, CREDIT);
    (1..=6).for_each(|id| asker.announce(id));
    asker.ask();
    // The others of four casts keep their requests and never answer them.
    let begun = asker.now;
    while asker.held(5) + asker.held(6) < 2 * asker.object.blocks() {
        assert!(
            asker.now < begun + Micros::from_secs(30),
            "{:?}",
            asker.asked
        );
        let answered = asker.asked.keys().find(|(cast, _)| cast.0 >= 5).copied();
        match answered {
            Some(block) => asker.receive(block),
            None => asker.pass(Micros::from_millis(10)),
        }
        asker.ask();
        assert!(asker.under_way() <= CREDIT + LARGEST);
    }
}

/// Six casts with blocks of half the size, and a seventh.
fn beside_smaller_blocks() -> Asker {
    let mut asker = Asker::new(MAX_BLOCK_LOG2, CREDIT);
    let log2 = MAX_BLOCK_LOG2 - 1;
    let smaller = object(&content(40 << log2, 5), log2).0;
    (1..=6).for_each(|id| asker.announce_of(id, smaller.clone()));
    asker.ask();
    asker.announce(7);
    asker.ask();
    asker
}

#[test]
fn a_cast_of_larger_blocks_has_its_turn_beside_many_of_smaller_ones() {
    let mut asker = beside_smaller_blocks();
    let mut last = None;
    while (1..=6).any(|id| asker.held(id) < 40) {
        let after = asker.asked.keys().find(|of| Some(**of) > last);
        let next = *after.or(asker.asked.keys().next()).expect("one is asked");
        last = Some(next);
        asker.receive(next);
        asker.ask();
        assert!(asker.under_way() <= CREDIT + LARGEST);
    }
    assert!(asker.held(7) >= 20, "{}", asker.held(7));
}

#[test]
fn casts_of_smaller_blocks_of_which_nothing_comes_give_way() {
    let mut asker = beside_smaller_blocks();
    let end = asker.now + Micros::from_secs(20);
    while asker.now < end {
        let answered = asker.asked.keys().find(|(cast, _)| cast.0 == 7).copied();
        match answered {
            Some(block) => asker.receive(block),
            None => asker.pass(Micros::from_millis(10)),
        }
        asker.ask();
        assert!(asker.under_way() <= CREDIT + LARGEST);
    }
    // For each two of the others have to give up their turn, and these get it back.
    assert!(asker.held(7) >= 10, "{}", asker.held(7));
}

#[test]
fn casts_that_end_leave_the_turns_of_the_others_as_they_are() {
    let mut asker = Asker::new(MAX_BLOCK_LOG2, CREDIT);
    for id in 1..=12 {
        asker.announce(id);
        asker.ask();
    }
    let mut ended = 0;
    for round in 0.. {
        let Some(next) = asker
            .asked
            .keys()
            .nth(round % 3)
            .or(asker.asked.keys().next())
        else {
            break;
        };
        let next = *next;
        asker.receive(next);
        if round % 40 == 39 && ended < 8 {
            ended += 1;
            let end = Message::End {
                number: 1,
                reason: EndReason::Cancelled,
            };
            asker.hear(CastId(13 - ended), MemberIndex::SOURCE, end);
            asker.asked.retain(|(cast, _), _| cast.0 != 13 - ended);
        }
        asker.ask();
        assert!(asker.under_way() <= CREDIT + LARGEST);
    }
    assert!((1..=4).all(|id| asker.held(id) == asker.object.blocks()));
}
