//! What may be on its way to a member at a time, whatever its casts are.

use alloc::sync::Arc;

use super::*;
use crate::broadcast::message::Setup;

/// Fragments that a node's card has room for.
const CREDIT: u32 = 96;

/// A member of casts, this many of objects in blocks of that size each, announced at once or one after the other, with
/// room for so many fragments (0: any number); those that it asks for before any comes, and those of one block.
fn asked_for(casts: u64, block_log2: u8, at_once: bool, credit: u32) -> (u32, u32) {
    let config = MemberConfig {
        node: NodeId(5),
        me: peer(5),
        control: None,
        key: KEY,
        rate: 0,
        buffers: 16,
        credit,
        seed: 1,
    };
    let mut now = Instant::from_micros(1_000_000);
    let mut member = Member::new(config, now);
    let mut memory = Memory::default();
    let (object, _) = object(&content(40 << block_log2, 3), block_log2);
    let block = object.fragments(object.blocks() - 1).count_ones();
    let mut asked = BTreeMap::new();
    for id in 1..=casts {
        let setup = Setup {
            object: object.clone(),
            purpose: Purpose::Program,
            job: None,
            scheme: Scheme::Mesh,
            members: 8,
            holders: 0,
            rate: RATE,
            start: 1,
            control: peer(CONTROL),
            roster_id: 1,
            roster: (0..8).map(peer).collect(),
        };
        let announce = Packet {
            cast: CastId(id),
            from: MemberIndex::SOURCE,
            mac: [0; 6],
            message: Message::Announce {
                index: MemberIndex(5),
                number: 1,
                clock: 1,
                leaf: true,
                setup: Arc::new(setup),
            },
        };
        member.handle_message(now, peer(CONTROL).addr, announce, None, &mut memory);
        member.accept(now, CastId(id), Want::All, &mut |_| false);
        // So short that nothing is given up.
        let polls = if at_once && id < casts { 0 } else { 100 };
        for _ in 0..polls {
            now += Micros(1);
            while let Some((_, packet)) = member.poll_message(now, &mut memory) {
                if let Message::Request(wants) = packet.message {
                    for want in wants.iter() {
                        asked.insert((packet.cast, want.block), want.fragments.count_ones());
                    }
                }
            }
        }
    }
    let each = (1..=casts).map(|id| asked.keys().filter(|(cast, _)| cast.0 == id).count());
    assert!(each.min() > Some(0), "none of them waits for the others");
    (asked.values().sum(), block)
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
        let (fragments, block) = asked_for(casts, 13, false, CREDIT);
        // The first one has asked for all before there were others, and those for a block each.
        assert!(fragments <= CREDIT + (casts as u32 - 1) * block);
    }
}
