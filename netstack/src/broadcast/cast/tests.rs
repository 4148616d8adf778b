//! What a station keeps of a cast, and what an announcement and its user may say of it.

use alloc::format;
use alloc::vec::Vec;

use super::alone::Alone;
use super::*;
use crate::broadcast::message::{WantedBlock, Wants};
use crate::broadcast::{PublishedOptions, Scheme};

fn published() -> Scheme {
    Scheme::Published(PublishedOptions::default())
}

fn has_plan(alone: &Alone) -> bool {
    format!("{:?}", alone.cast.planner).starts_with("Published")
}

/// Somebody asks for a block.
fn ask(alone: &mut Alone, from: u32, block: u32) {
    let mut wants = Wants::default();
    wants.push(WantedBlock {
        block,
        fragments: u64::MAX,
        ..WantedBlock::default()
    });
    alone.hear(from, Message::Request(wants));
}

/// The answers among these messages.
fn answers(messages: &[Message]) -> Vec<(Answer, Vec<u32>)> {
    let answers = messages.iter().filter_map(|message| match message {
        Message::Answer { answer, blocks } => Some((*answer, blocks.as_slice().to_vec())),
        _ => None,
    });
    answers.collect()
}

#[test]
fn a_plan_is_made_when_the_user_takes_part() {
    for refuses in [false, true] {
        let mut alone = Alone::asked(MemberIndex(3), 40, 1_500_000, published());
        alone.hear(1, announce(&alone, 1));
        alone.tick();
        // From a stranger, and too early.
        ask(&mut alone, 20, 5);
        assert!(!has_plan(&alone));
        assert!(answers(&alone.sent()).is_empty(), "it is kept");
        alone.with(|cast, io| match refuses {
            true => cast.fail(FailReason::NoRoom, io),
            false => cast.accept(Consent::Given, &mut |_| false, io),
        });
        assert_eq!(has_plan(&alone), !refuses);
        if !refuses {
            // By the plan it is nobody's turn who is no child.
            assert_eq!(answers(&alone.sent()), [(Answer::NotHere, [5].into())]);
        }
    }
}

fn announce(alone: &Alone, clock: u64) -> Message {
    Message::Announce {
        index: alone.cast.me,
        number: 1,
        clock,
        leaf: false,
        setup: alone.cast.setup.clone(),
    }
}

#[test]
fn a_cast_goes_by_any_clock() {
    for clock in [0, 1 << 63, (1 << 63) + 2_000_000, u64::MAX] {
        let mut alone = Alone::new(MemberIndex(3), 40, 1_500_000, published());
        alone.hear(1, announce(&alone, clock));
        for _ in 0..5 {
            alone.tick();
            alone.after(1_000_000);
        }
        // What it passes on is as near to it as can be.
        let nearest = clock.min(i64::MAX as u64);
        let told = alone.sent().into_iter().find_map(|message| match message {
            Message::Announce { clock, .. } => Some(clock),
            _ => None,
        });
        let apart = told.expect("it has children").abs_diff(nearest);
        assert!(apart <= 10_000_000, "{clock}: {told:?}");
    }
}

#[test]
fn who_waits_for_a_block_that_is_gone_is_told() {
    let mut alone = Alone::new(MemberIndex(0), 8, 1_500_000, Scheme::Mesh);
    alone.block(0, MemberIndex(1), 0);
    alone.block(8, MemberIndex(1), 0);
    alone.sent();
    ask(&mut alone, 5, 8);
    assert_eq!(alone.cast.serve.ready(), 1);
    // The store has given it away, and said so to somebody else.
    alone.cast.have.remove(8);
    assert!(alone.with(|cast, io| cast.next_train(io)).is_none());
    assert_eq!(answers(&alone.sent()), [(Answer::NotHere, [8].into())]);
    assert_eq!(alone.cast.serve.ready(), 0);
}

/// Bytes of what was sent.
fn bytes(messages: &[Message]) -> usize {
    messages.iter().map(Message::wire_bytes).sum()
}

/// The number of the one probe among these messages, which are nothing else.
fn challenge(messages: &[Message]) -> u32 {
    match messages {
        [Message::Probe { number }] => *number,
        other => panic!("a probe alone: {other:?}"),
    }
}

#[test]
fn an_address_that_only_its_own_datagrams_say_gets_no_more_than_it_sends_before_it_answers() {
    let mut alone = Alone::new(MemberIndex(0), 80, 1_500_000, Scheme::Mesh);
    alone.block(0, MemberIndex(1), 0);
    alone.block(8, MemberIndex(1), 0);
    alone.sent();
    // Members that came late: nobody has told where they are.
    let (reads, asks) = (4_000, 4_001);
    let mut pages = Blocks::one(0);
    pages.push(1);
    let read = Message::RosterRead { pages };
    alone.hear(reads, read.clone());
    alone.hear(reads, read.clone());
    let sent = alone.sent();
    assert!(bytes(&sent) <= 2 * read.wire_bytes(), "{sent:?}");
    let number = challenge(&sent[..1]);
    let standing = Standing::Elsewhere;
    let number_of_another = number.wrapping_add(1);
    for (from, number, proves) in [
        (reads, number_of_another, false),
        (asks, number, false),
        (reads, number, true),
    ] {
        alone.hear(from, Message::AnnounceAck { number, standing });
        let sent = alone.sent();
        let page = |message: &Message| matches!(message, Message::RosterPage { .. });
        assert_eq!(
            sent.iter().filter(|it| page(it)).count(),
            usize::from(proves) * 2
        );
    }
    alone.hear(reads, read);
    assert_eq!(alone.sent().len(), 2, "it has proved where it is");
    // The same for blocks, each some thousand bytes.
    ask(&mut alone, asks, 8);
    let number = challenge(&alone.sent());
    assert_eq!(alone.cast.serve.ready(), 0);
    assert!(alone.with(|cast, io| cast.next_train(io)).is_none());
    alone.hear(asks, Message::AnnounceAck { number, standing });
    let train = alone
        .with(|cast, io| cast.next_train(io))
        .expect("it is served");
    assert_eq!((train.to, train.block), (MemberIndex(asks), 8));
    // At another address it is to prove itself again.
    let packet = Packet {
        cast: alone.cast.id,
        from: MemberIndex(asks),
        mac: [0; 6],
        message: Message::RosterRead { pages },
    };
    let elsewhere = crate::broadcast::tests::peer(77).addr;
    alone.with(|cast, io| cast.message(elsewhere, packet, io));
    assert_ne!(challenge(&alone.sent()), number);
}

#[test]
fn who_does_not_know_the_cast_is_found_by_its_address_among_those_that_matter() {
    let mut alone = Alone::new(MemberIndex(0), 80, 1_500_000, Scheme::Mesh);
    alone.tick();
    let asked = alone.cast.asked_at(|member| !member.is_source());
    let asked = asked.expect("members are asked");
    let addr = |member: MemberIndex| crate::broadcast::tests::peer(member.0).addr;
    // Its node number is not its number in the cast.
    let guess = MemberIndex(70);
    assert_eq!(alone.cast.who_is_at(addr(asked), guess), Some(asked));
    assert_eq!(alone.cast.who_is_at(addr(guess), guess), Some(guess));
    let other = (1..80).map(MemberIndex).find(|other| {
        let of_tree = 5;
        *other != guess && other.0 > of_tree && alone.cast.asked_at(|it| it == other).is_none()
    });
    let other = other.expect("most are not asked");
    assert_eq!(alone.cast.who_is_at(addr(other), guess), None);
}
