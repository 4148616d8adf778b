//! What a member concludes from what comes, and when.

use alloc::vec::Vec;

use super::*;
use crate::broadcast::Scheme;
use crate::broadcast::cast::alone::Alone;
use crate::broadcast::event::FailReason;
use crate::broadcast::suspects::Suspects;

/// What a block of 8 KiB takes on the links of the tests, in microseconds.
const BLOCK: u64 = 70;

/// One of 8 members that serve each other; a list of hashes, block 0, and 184 blocks of data are
/// cast.
fn member() -> Alone {
    Alone::new(MemberIndex(0), 8, 1_500_000, Scheme::Mesh)
}

/// What was asked for just now, and of whom, in the order of the blocks.
fn asked(alone: &Alone) -> Vec<(u32, MemberIndex)> {
    let pull = &alone.cast.pull;
    let entries = pull.blocks.iter().zip(&pull.entries);
    let new = entries.filter(|(_, entry)| entry.state == State::Sent && entry.at == alone.now);
    let mut asked: Vec<_> = new.map(|(block, entry)| (*block, entry.from)).collect();
    asked.sort();
    asked
}

/// The blocks that are asked for in these messages.
fn requested(messages: &[Message]) -> Vec<u32> {
    let wants = messages.iter().filter_map(|message| match message {
        Message::Request(wants) => Some(wants),
        _ => None,
    });
    wants.flat_map(Wants::iter).map(|want| want.block).collect()
}

#[test]
fn an_answer_to_an_earlier_request_says_nothing_of_the_way() {
    let mut alone = member();
    alone.tick();
    let first = asked(&alone);
    assert_eq!(first[0].0, 0, "the list first: {first:?}");
    alone.after(2_000);
    for (block, from) in &first[..2] {
        alone.block(*block, *from, 0);
        alone.after(BLOCK);
    }
    let far = alone.cast.way.blocks();
    assert!((25..=30).contains(&far), "{far}");
    let soonest = alone.cast.pull.soonest;

    // The block is asked of somebody else, and whoever was asked before sends it after all: it kept
    // the request for 50 ms.
    alone.tick();
    let (block, from) = asked(&alone)[0];
    let former = (1..8).map(MemberIndex).find(|member| *member != from);
    alone.after(1_000);
    alone.block(block, former.expect("there are others"), 50_000);
    assert_eq!(alone.cast.way.blocks(), far);
    assert_eq!(alone.cast.pull.soonest, soonest);

    // The same of the one that is asked anew.
    alone.tick();
    let (block, from) = asked(&alone)[0];
    alone.after(1_000);
    alone.block(block, from, 50_000);
    assert_eq!(alone.cast.way.blocks(), far);

    // A nearer one counts.
    alone.tick();
    let (block, from) = asked(&alone)[0];
    alone.after(1_000);
    alone.block(block, from, 900);
    assert_eq!(alone.cast.way.blocks(), 0);
}

#[test]
fn what_is_under_way_is_counted_whatever_becomes_of_it() {
    let mut alone = member();
    let check = |alone: &Alone, changes: bool, before: u32| {
        let pull = &alone.cast.pull;
        let asked = pull.entries.iter().filter(|entry| !entry.unasked);
        let missing = asked.map(|entry| entry.missing.count_ones());
        assert_eq!(pull.under_way(), missing.sum::<u32>());
        assert_eq!(pull.under_way() != before, changes);
        pull.under_way()
    };
    alone.tick();
    let asked = asked(&alone);
    let count = check(&alone, true, 0);
    // The list, one that was not asked for, a part of one, the rest of it, all again.
    alone.block(0, asked[0].1, 0);
    let count = check(&alone, true, count);
    alone.fragments(180, 0b10, MemberIndex(7), 0);
    let count = check(&alone, false, count);
    let (block, from) = asked[1];
    alone.fragments(block, 0b101, from, 0);
    let count = check(&alone, true, count);
    alone.fragments(block, !0b101, from, 0);
    let count = check(&alone, true, count);
    alone.block(block, from, 0);
    let count = check(&alone, false, count);
    // What is wrong is asked for again.
    let (block, from) = asked[2];
    alone.wrong_block(block, from, false);
    let count = check(&alone, false, count);
    alone.with(|cast, io| cast.fail(FailReason::NoRoom, io));
    assert_eq!(check(&alone, true, count), 0);
}

#[test]
fn blocks_that_waited_for_their_list_did_not_come_at_once() {
    let mut alone = member();
    // A link of a tenth of the announced rate. The list comes behind some.
    for block in (1..=12).chain([0]).chain(13..=17) {
        alone.after(10 * BLOCK);
        alone.block(block, MemberIndex(1), 0);
    }
    assert_eq!(alone.cast.have.count(), 18);
    let pull = &alone.cast.pull.link;
    assert_eq!(pull.block, Micros(10 * BLOCK));
    assert!(pull.narrow, "blocks come slowly");
    assert_eq!(pull.slowdown, 10);
    // A block behind one block of another cast is not far away.
    alone.tick();
    let (block, from) = asked(&alone)[0];
    alone.after(20 * BLOCK);
    alone.block(block, from, 0);
    assert_eq!(alone.cast.way.blocks(), 0);
}

#[test]
fn what_was_missing_of_a_block_does_not_make_a_slow_link_fast() {
    let mut alone = member();
    let from = MemberIndex(1);
    // A link of a tenth of the announced rate: a datagram, of which a block has six, takes so long.
    let datagram = 2 * BLOCK;
    alone.after(6 * datagram);
    alone.block(0, from, 0);
    for block in (1..=16).step_by(2) {
        // The last datagram of one block does not come before that block is asked for again, after
        // the next one.
        alone.after(5 * datagram);
        alone.fragments(block, 0b01_1111, from, 0);
        alone.after(6 * datagram);
        alone.block(block + 1, from, 0);
        alone.after(datagram);
        alone.fragments(block, 0b10_0000, from, 0);
    }
    assert_eq!(alone.cast.have.count(), 17);
    assert!(alone.cast.pull.link.narrow, "blocks come slowly");
    assert!((10..=12).contains(&alone.cast.pull.link.slowdown));
    // The last block of the object is a single datagram, and a short one.
    alone.after(datagram);
    alone.block(184, from, 0);
    for block in 17..32 {
        alone.after(6 * datagram);
        alone.block(block, from, 0);
    }
    assert!(alone.cast.pull.link.narrow, "blocks come slowly");
    assert!((10..=12).contains(&alone.cast.pull.link.slowdown));
}

#[test]
fn who_waits_for_others_is_not_slow() {
    let mut alone = member();
    let from = MemberIndex(1);
    for block in 0..17 {
        alone.after(BLOCK);
        alone.block(block, from, 0);
    }
    assert!(
        !alone.cast.pull.link.narrow,
        "blocks come at the announced rate"
    );
    // Then one comes now and then: the soonest after another takes eight times as long.
    for block in 17..49 {
        alone.after(if block % 2 == 0 {
            8 * BLOCK
        } else {
            40 * BLOCK
        });
        alone.block(block, from, 0);
    }
    assert_eq!(alone.cast.have.count(), 49);
    assert!(!alone.cast.pull.link.narrow, "blocks come unevenly");
    assert_eq!(alone.cast.pull.link.slowdown, 1);
    // Asked for more than it carries, a slow link is busy.
    for block in 49..85 {
        alone.after(8 * BLOCK);
        alone.block(block, from, 0);
    }
    assert!(alone.cast.pull.link.narrow, "blocks come slowly");
    assert_eq!(alone.cast.pull.link.slowdown, 8);
}

#[test]
fn a_slow_link_is_slow_from_the_first_blocks() {
    let mut alone = member();
    let from = MemberIndex(1);
    for block in 0..17 {
        alone.after(if block % 2 == 0 {
            10 * BLOCK
        } else {
            40 * BLOCK
        });
        alone.block(block, from, 0);
    }
    assert!(
        alone.cast.pull.link.narrow,
        "no two blocks come soon after one another"
    );
    assert_eq!(alone.cast.pull.link.slowdown, 10);
}

#[test]
fn a_list_is_asked_for_however_many_blocks_wait_for_it() {
    let mut alone = member();
    alone.tick();
    let entries = alone.cast.pull.blocks.iter().zip(&alone.cast.pull.entries);
    let asked: Vec<_> = entries.map(|(block, entry)| (*block, entry.from)).collect();
    for (block, from) in asked.iter().filter(|(block, _)| *block > 0) {
        alone.after(BLOCK);
        alone.block(*block, *from, 0);
    }
    // More casts begin: fewer blocks may be asked for than there are that wait.
    alone.with(|cast, _| cast.share(16));
    assert!(alone.cast.pull.limit < asked.len() - 1, "{asked:?}");
    alone.sent();
    // Whoever was asked is given up, and the scheme names nobody else.
    let at = alone.cast.pull.find(0).expect("it is asked for");
    alone.cast.pull.remove(at);
    let deadlines = alone.cast.pull.entries.iter().map(|entry| entry.deadline);
    alone.now = deadlines.max().expect("blocks wait");
    alone.tick();
    assert_eq!(requested(&alone.sent()), [0]);
    alone.after(BLOCK);
    alone.block(0, MemberIndex::SOURCE, 0);
    assert_eq!(alone.cast.have.count() as usize, asked.len());
}

#[test]
fn what_was_wrong_is_asked_of_somebody_else_next() {
    let mut alone = member();
    alone.tick();
    let (list, from) = asked(&alone)[0];
    alone.block(list, from, 0);
    for _ in 0..8 {
        alone.after(BLOCK);
        alone.tick();
        let open = alone.cast.pull.blocks.iter().zip(&alone.cast.pull.entries);
        let sent = open.filter(|(_, entry)| entry.state == State::Sent);
        let (block, liar) = sent
            .map(|(block, entry)| (*block, entry.from))
            .find(|(_, from)| !from.is_source())
            .expect("members are asked");
        alone.sent();
        // Anybody may have sent it: the same one is asked for what says who sends it.
        alone.wrong_block(block, liar, false);
        assert_eq!(asked_again(&mut alone), (block, liar, true));
        let gone = alone.cast.suspects.gone();
        assert!(!gone.contains(&liar), "nobody is to blame");
        // Now it can be nobody else.
        alone.wrong_block(block, liar, true);
        let (again, next, sealed) = asked_again(&mut alone);
        assert_eq!((again, sealed), (block, true));
        assert_ne!(next, liar, "block {block}");
        assert!(alone.cast.suspects.gone().contains(&liar));
        alone.after(BLOCK);
        alone.sealed = true;
        alone.block(block, next, 0);
        alone.sealed = false;
        assert!(alone.cast.have.contains(block));
        alone.cast.suspects = Suspects::default();
    }
}

/// A second train of a liar, on its way when somebody else was asked, is not the other's.
#[test]
fn sealed_data_of_somebody_else_does_not_count() {
    let mut alone = member();
    alone.tick();
    let (list, from) = asked(&alone)[0];
    alone.block(list, from, 0);
    alone.after(BLOCK);
    alone.tick();
    let sent = asked(&alone).into_iter();
    let (block, liar) = sent
        .into_iter()
        .find(|(_, from)| !from.is_source())
        .expect("members are asked");
    alone.sent();
    alone.wrong_block(block, liar, false);
    assert_eq!(asked_again(&mut alone), (block, liar, true));
    alone.wrong_block(block, liar, true);
    let (_, next, _) = asked_again(&mut alone);
    assert_ne!(next, liar);
    alone.wrong_block(block, liar, true);
    assert!(alone.sent().is_empty(), "it goes on waiting for {next:?}");
    alone.sealed = true;
    alone.block(block, next, 0);
    assert!(alone.cast.have.contains(block));
    assert_eq!(alone.cast.suspects.gone(), [liar]);
}

/// The one block that is asked for in what was sent: of whom, and whether it is to be sealed.
fn asked_again(alone: &mut Alone) -> (u32, MemberIndex, bool) {
    let sent = alone.sent();
    let requests = sent.iter().filter_map(|message| match message {
        Message::Request(wants) => Some(wants),
        _ => None,
    });
    let wants: Vec<_> = requests.flat_map(Wants::iter).collect();
    let [want] = wants[..] else {
        panic!("one block is asked for again: {wants:?}");
    };
    let at = alone.cast.pull.find(want.block);
    let entry = &alone.cast.pull.entries[at.expect("it is asked for")];
    (want.block, entry.from, want.sealed)
}

#[test]
fn forged_fragments_make_nobody_suspected() {
    let mut alone = member();
    alone.tick();
    let (list, from) = asked(&alone)[0];
    alone.block(list, from, 0);
    alone.tick();
    alone.sent();
    let soonest = alone.cast.pull.soonest;
    let honest = asked(&alone);
    assert!(honest.len() > 4);
    for (block, holder) in honest {
        // One fragment comes from somebody who has the holder's address; the rest is true.
        alone.after(BLOCK);
        alone.wrong_fragments(block, 0b10, holder, false);
        alone.fragments(block, !0b10, holder, 0);
        assert!(!alone.cast.have.contains(block));
        // Asked for again, and forged again: that is not taken.
        alone.wrong_block(block, holder, false);
        alone.after(BLOCK);
        alone.sealed = true;
        alone.block(block, holder, 0);
        alone.sealed = false;
        assert!(alone.cast.have.contains(block), "block {block}");
    }
    assert!(alone.cast.suspects.silent().is_empty());
    assert!(alone.cast.suspects.gone().is_empty());
    assert_eq!(alone.cast.pull.soonest, soonest, "nothing of it counts");
    let report = alone.sent().into_iter().find_map(|message| match message {
        Message::Report(report) => Some(report),
        _ => None,
    });
    assert!(report.is_none_or(|report| report.corrupt.is_empty()));
}

#[test]
fn forged_fragments_do_not_fill_reassembly() {
    let mut alone = member();
    // Of all blocks, from the address of a member that has them.
    for block in 0..=184 {
        alone.wrong_fragments(block, 0b1, MemberIndex(1), false);
    }
    let limit = alone.cast.pull.limit;
    let buffers = alone.cast.pull.buffers();
    assert!(buffers > 0 && buffers <= limit / 2, "{buffers} of {limit}");
    assert_eq!(alone.cast.pull.under_way(), 0);
    // What is asked for has all the room that it ever had.
    let mut alone_before = member();
    alone.tick();
    alone_before.tick();
    assert_eq!(asked(&alone).len(), asked(&alone_before).len());
    while !alone.cast.have.is_full() {
        alone.after(BLOCK);
        alone.tick();
        let asked = alone.cast.pull.blocks.iter().zip(&alone.cast.pull.entries);
        let asked = asked.filter(|(_, entry)| !entry.unasked);
        let asked: Vec<_> = asked.map(|(block, entry)| (*block, entry.from)).collect();
        assert!(!asked.is_empty(), "it asks for what it lacks");
        for (block, from) in asked {
            alone.block(block, from, 0);
        }
        for block in 0..=184 {
            alone.wrong_fragments(block, 0b1, MemberIndex(1), false);
        }
        assert!(alone.cast.pull.entries.len() <= limit);
    }
    assert!(alone.cast.suspects.silent().is_empty());
}

#[test]
fn a_block_that_came_unasked_and_wrong_is_forgotten() {
    let mut alone = member();
    alone.tick();
    let (list, from) = asked(&alone)[0];
    alone.block(list, from, 0);
    alone.sent();
    alone.wrong_block(170, MemberIndex(3), false);
    assert!(alone.cast.pull.find(170).is_none());
    assert!(requested(&alone.sent()).is_empty());
    assert!(alone.cast.suspects.gone().is_empty());
    // One of which only a part came goes with the time.
    alone.wrong_fragments(171, 0b1, MemberIndex(3), false);
    assert!(alone.cast.pull.find(171).is_some());
    alone.after(400 * BLOCK);
    alone.with(|cast, io| cast.tick(io));
    assert!(alone.cast.pull.find(171).is_none());
}

#[test]
fn who_gets_nothing_asks_the_source_before_it_gives_up() {
    let mut alone = member();
    // Blocks of 64 KiB at 5 Mbit/s: a peer that does not know the cast is asked for longer than the
    // patience lasts.
    alone.cast.pace = Pace::new(625_000, 1 << 16);
    while alone.events().is_empty() {
        alone.after(100_000);
        alone.tick();
        // Others live.
        alone.hear(1, Message::Probe { number: 0 });
        let entries = &alone.cast.pull.entries;
        let peers: Vec<_> = entries.iter().map(|entry| entry.from).collect();
        if !peers.is_empty() && peers.iter().all(|peer| peer.is_source()) {
            return;
        }
        for peer in peers.iter().filter(|peer| !peer.is_source()) {
            alone.hear(peer.0, Message::Unknown);
        }
    }
    panic!("it gives the cast up, and never asked the source for all");
}
