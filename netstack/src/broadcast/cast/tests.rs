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
