//! Who is told what in the tree, and how every wait ends.

use alloc::collections::BTreeSet;

use super::*;
use crate::broadcast::cast::alone::Alone;
use crate::broadcast::message::{Blocks, WantedBlock, Wants};
use crate::broadcast::published;
use crate::broadcast::tests::peer;

/// The source of a cast to one node that hears nothing yet, and the numbers of its first
/// announcements.
fn announced(times: usize) -> (Alone, Vec<u32>) {
    let mut alone = Alone::new(MemberIndex::SOURCE, 1, 100_000, published::direct());
    let mut numbers = Vec::new();
    while numbers.len() < times {
        alone.now = alone.now.max(alone.cast.spread.deadline());
        alone.with(|cast, io| cast.tick(io));
        numbers.extend(alone.sent().iter().map(|message| match message {
            Message::Announce { number, .. } => *number,
            other => panic!("{other:?}"),
        }));
    }
    (alone, numbers)
}

#[test]
fn silence_is_not_distance() {
    let (mut alone, numbers) = announced(5);
    let standing = Standing::Child;
    let ack = |number| Message::AnnounceAck { number, standing };
    alone.after(60);
    alone.hear(0, ack(numbers[4]));
    assert_eq!(alone.cast.way.blocks(), 0);
    // All came, but the node was busy: the last answer says how near it is.
    let (mut alone, numbers) = announced(5);
    alone.after(60);
    numbers
        .iter()
        .for_each(|number| alone.hear(0, ack(*number)));
    assert_eq!(alone.cast.way.blocks(), 0);
}

#[test]
fn a_long_way_is_known_although_announcements_are_repeated() {
    let (mut alone, numbers) = announced(1);
    let sent = alone.now;
    alone.after(20_000);
    alone.with(|cast, io| cast.tick(io));
    assert!(!alone.sent().is_empty(), "it is repeated before");
    let (number, standing) = (numbers[0], Standing::Child);
    alone.hear(0, Message::AnnounceAck { number, standing });
    let took = alone.now.saturating_since(sent).0 / 70;
    assert_eq!(u64::from(alone.cast.way.blocks()), took);
}

#[test]
fn every_member_has_one_parent() {
    let mut seen = alloc::vec![0; 100];
    let stations = (0..100).map(MemberIndex).chain([MemberIndex::SOURCE]);
    for child in stations.flat_map(|station| children_of(station, 100)) {
        seen[child.0 as usize] += 1;
    }
    assert!(seen.iter().all(|count| *count == 1));
}

/// Acts on deadlines until the cast has nothing to do within `time`; what was sent meanwhile.
fn for_a_while(alone: &mut Alone, time: u64) -> Vec<Message> {
    let end = alone.now + Micros(time);
    let mut sent = Vec::new();
    loop {
        alone.with(|cast, io| cast.tick(io));
        sent.extend(alone.sent());
        let next = alone.cast.spread.deadline();
        if next > end {
            return sent;
        }
        alone.now = next.max(alone.now + Micros(1));
    }
}

#[test]
fn everybody_who_joins_late_hears_of_the_cast_or_is_given_up() {
    const LATE: u32 = 3000;
    let mut alone = Alone::new(MemberIndex::SOURCE, 1, 100_000, published::direct());
    for late in 1..=LATE {
        alone.with(|cast, _| cast.join(MemberIndex(late), peer(late)));
    }
    let sent = for_a_while(&mut alone, 60_000_000);
    let announced: BTreeSet<MemberIndex> = (sent.iter())
        .filter_map(|message| match message {
            Message::Announce { index, .. } => Some(*index),
            _ => None,
        })
        .collect();
    assert_eq!(announced.len() as u32, LATE + 1);
    let dead = |event: &CastEvent| matches!(event, CastEvent::MemberFailed(_, FailReason::Dead));
    let events = alone.events();
    assert_eq!(
        events.iter().filter(|event| dead(event)).count(),
        LATE as usize + 1
    );
    assert!(alone.cast.spread.children_done());
}

#[test]
fn a_child_whose_address_the_source_does_not_know_is_given_up() {
    let mut alone = Alone::new(MemberIndex::SOURCE, 1, 100_000, published::direct());
    alone.cast.spread.add(MemberIndex(5), true);
    for_a_while(&mut alone, 60_000_000);
    assert!(alone.cast.spread.children_done());
}

/// A report that so many members, from this one on, have failed.
fn failures(first: u32, count: usize) -> Message {
    let failed = (first..).map(|member| (MemberIndex(member), FailReason::Dead));
    Message::Report(Arc::new(Report {
        boot: crate::ids::BootEpoch(0),
        number: first,
        done: Vec::new(),
        failed: failed.take(count).collect(),
        corrupt: Vec::new(),
        all: false,
    }))
}

/// Member 0 of 40, which has heard of the cast: its children are 4 to 7.
fn announced_member() -> Alone {
    let mut alone = Alone::new(MemberIndex(0), 40, 100_000, published::direct());
    (alone.cast.spread).announced_by(MemberIndex::SOURCE, false);
    alone.tick();
    alone.sent();
    alone
}

#[test]
fn reports_name_no_more_than_there_are_members() {
    let mut alone = announced_member();
    for first in (0..2000).step_by(MAX_NAMED) {
        alone.hear(4, failures(first, MAX_NAMED));
        // Once more: nobody is kept twice.
        alone.hear(4, failures(first, MAX_NAMED));
    }
    let failed = &alone.cast.spread.failed;
    assert!(failed.iter().all(|(member, _)| member.0 < 40));
    assert_eq!(failed.len(), 40);
    // All of them are told to the parent, and to the next one again.
    for parent in [MemberIndex::SOURCE, MemberIndex(1)] {
        alone.cast.spread.announced_by(parent, false);
        let mut told = BTreeSet::new();
        for _ in 0..100 {
            alone.now = alone.now.max(alone.cast.spread.deadline());
            alone.tick();
            let reports = alone
                .sent()
                .into_iter()
                .filter_map(|message| match message {
                    Message::Report(report) => Some(report),
                    _ => None,
                });
            let Some(report) = reports.last() else {
                continue;
            };
            told.extend(report.failed.iter().map(|(member, _)| *member));
            let number = report.number;
            alone.with(|cast, io| cast.report_acked(parent, number, io));
        }
        assert_eq!(told.len(), 40);
    }
}

#[test]
fn senders_of_corrupt_blocks_are_members_or_may_be() {
    let report = |senders: &[u32]| {
        Message::Report(Arc::new(Report {
            boot: crate::ids::BootEpoch(0),
            number: 1,
            done: Vec::new(),
            failed: Vec::new(),
            corrupt: senders.iter().map(|at| (MemberIndex(*at), 1)).collect(),
            all: false,
        }))
    };
    let source = MemberIndex::SOURCE.0;
    let named = [7, 40, MAX_MEMBERS - 1, MAX_MEMBERS, source - 1, source];
    // 40 and those behind it may have joined late.
    let mut alone = announced_member();
    alone.hear(4, report(&named));
    let kept = alone.cast.spread.corrupt.iter();
    let kept: Vec<u32> = kept.map(|(sender, _)| sender.0).collect();
    assert_eq!(kept, [7, 40, MAX_MEMBERS - 1, source]);

    // The source knows who has.
    let mut alone = Alone::new(MemberIndex::SOURCE, 40, 100_000, published::direct());
    alone.with(|cast, _| cast.join(MemberIndex(40), peer(40)));
    alone.hear(4, report(&named));
    let corrupt = |sender| CastEvent::Corrupt(MemberIndex(sender), 1);
    assert_eq!(alone.events(), [7, 40, source].map(corrupt));
}

#[test]
fn only_the_source_takes_children_by_their_report() {
    let mut alone = announced_member();
    alone.hear(30, failures(31, 1));
    assert!(
        alone
            .cast
            .spread
            .children
            .iter()
            .all(|child| child.member.0 < 8)
    );
    assert!(alone.cast.spread.failed.is_empty());
    let acked = |message: &Message| matches!(message, Message::ReportAck { .. });
    assert!(!alone.sent().iter().any(acked), "it goes on to the source");

    let mut alone = Alone::new(MemberIndex::SOURCE, 40, 100_000, published::direct());
    alone.hear(30, failures(31, 1));
    assert!(alone.sent().iter().any(acked));
    assert!(alone.cast.spread.child(MemberIndex(30)).is_some());
    // Numbers that nobody has, before and after one joins late.
    alone.hear(41, failures(41, 1));
    assert!(alone.cast.spread.child(MemberIndex(41)).is_none());
    alone.with(|cast, _| cast.join(MemberIndex(40), peer(40)));
    alone.hear(41, failures(41, 1));
    assert!(alone.cast.spread.child(MemberIndex(41)).is_none());
    let failed = |member| CastEvent::MemberFailed(MemberIndex(member), FailReason::Dead);
    assert_eq!(alone.events(), [failed(31)]);
    alone.hear(30, failures(39, 2));
    assert_eq!(alone.events(), [failed(39)], "40 has joined again since");
}

/// Whom the cast was announced to.
fn announced_to(sent: &[Message]) -> Vec<u32> {
    let announced = sent.iter().filter_map(|message| match message {
        Message::Announce { index, .. } => Some(index.0),
        _ => None,
    });
    announced.collect()
}

#[test]
fn a_member_with_a_new_parent_takes_back_the_children_that_others_had_adopted() {
    let mut alone = announced_member();
    let says = |standing| Message::AnnounceAck {
        number: 1,
        standing,
    };
    for member in [4, 5, 6] {
        alone.hear(member, says(Standing::Child));
    }
    alone.hear(7, says(Standing::Elsewhere));
    // The same parent announces again: it knows whom it has adopted.
    (alone.cast.spread).announced_by(MemberIndex::SOURCE, false);
    alone.tick();
    assert_eq!(announced_to(&alone.sent()), []);
    assert!(!alone.cast.spread.tends(MemberIndex(7)));
    (alone.cast.spread).announced_by(MemberIndex(1), false);
    alone.tick();
    assert_eq!(announced_to(&alone.sent()), [7]);
    assert!(!alone.cast.spread.children_done());
}

/// Member 25, of whose cast all is done. Its parent in the heap is 5, and 0 is that of 5.
fn done_member(parent: u32) -> Alone {
    let mut alone = Alone::new(MemberIndex(25), 40, 100_000, published::direct());
    (alone.cast.spread).announced_by(MemberIndex(parent), false);
    alone.cast.spread.complete(MemberIndex(25));
    alone
}

/// The reports of a while, each of which is answered.
fn reports(alone: &mut Alone, time: u64, acks: bool) -> Vec<Arc<Report>> {
    let end = alone.now + Micros(time);
    let mut told = Vec::new();
    loop {
        alone.with(|cast, io| cast.tick(io));
        for message in alone.sent() {
            if let Message::Report(report) = message {
                let parent = alone.cast.spread.parent.expect("it has one");
                if acks {
                    alone.with(|cast, io| cast.report_acked(parent, report.number, io));
                }
                told.push(report);
            }
        }
        let next = alone.cast.spread.deadline();
        if next > end {
            return told;
        }
        alone.now = next.max(alone.now + Micros(1));
    }
}

#[test]
fn an_adopted_member_goes_on_to_say_that_it_is_done() {
    assert_eq!(parent_of(MemberIndex(25)), MemberIndex(5));
    assert_eq!(parent_of(MemberIndex(5)), MemberIndex(0));
    assert_eq!(parent_of(MemberIndex(3)), MemberIndex::SOURCE);
    for parent in [5, MemberIndex::SOURCE.0] {
        let told = reports(&mut done_member(parent), 5_000_000, true);
        assert_eq!(told.len(), 1, "{parent}");
    }
    let mut alone = done_member(0);
    let told = reports(&mut alone, 5_500_000, true);
    assert_eq!(told.len(), 6);
    assert!(told.iter().all(|report| report.all));
    // What was told once is not told again.
    assert_eq!(told[0].done.len(), 1);
    assert!(told[1..].iter().all(|report| report.done.is_empty()));
    // Nobody answers any more: the source hears of all.
    let told = reports(&mut alone, 7_000_000, false);
    assert_eq!(alone.cast.spread.parent, Some(MemberIndex::SOURCE));
    assert!(told.last().is_some_and(|report| report.done.len() == 1));
}

#[test]
fn a_member_whose_parent_has_forgotten_the_cast_tells_the_source() {
    let mut alone = done_member(5);
    assert_eq!(reports(&mut alone, 100_000, true).len(), 1);
    alone.hear(7, Message::Unknown);
    assert_eq!(alone.cast.spread.parent, Some(MemberIndex(5)));
    alone.hear(5, Message::Unknown);
    assert_eq!(alone.cast.spread.parent, Some(MemberIndex::SOURCE));
    let told = reports(&mut alone, 100_000, true);
    assert!(told.iter().any(|report| report.done.len() == 1), "{told:?}");
    // The source has forgotten it: it is over.
    alone.with(|cast, io| cast.unknown(MemberIndex::SOURCE, io));
    assert!(reports(&mut alone, 100_000, true).is_empty());
}

#[test]
fn who_has_no_room_is_passed_by_until_it_says_otherwise() {
    let mut alone = announced_member();
    let says = |standing| Message::AnnounceAck {
        number: 1,
        standing,
    };
    let stage = |alone: &mut Alone, member| {
        alone
            .cast
            .spread
            .child(MemberIndex(member))
            .map(|child| child.stage)
    };
    alone.hear(5, says(Standing::NoRoom));
    assert_eq!(stage(&mut alone, 5), Some(Stage::Gone));
    assert_eq!(
        alone.cast.spread.failed,
        [(MemberIndex(5), FailReason::NoRoom)]
    );
    // Those below it hear of the cast from here, at once.
    alone.tick();
    assert_eq!(announced_to(&alone.sent()), [24, 25, 26, 27]);
    // Of two announcements one was taken: in either order that counts.
    for says_both in [
        [Standing::NoRoom, Standing::Child],
        [Standing::Child, Standing::NoRoom],
    ] {
        for standing in says_both {
            alone.hear(6, says(standing));
        }
        assert_eq!(stage(&mut alone, 6), Some(Stage::Running));
        alone.cast.spread.add(MemberIndex(6), false);
    }
}

/// Whether the source has given node 0 up after 20 s, in which this happens every 100 ms.
fn is_given_up(mut meanwhile: impl FnMut(&mut Alone)) -> bool {
    let mut alone = Alone::new(MemberIndex::SOURCE, 1, 100_000, published::direct());
    for _ in 0..200 {
        let end = alone.now + Micros(100_000);
        while alone.cast.spread.deadline() <= end {
            alone.now = alone.cast.spread.deadline().max(alone.now + Micros(1));
            alone.with(|cast, io| cast.tick(io));
        }
        alone.now = end;
        meanwhile(&mut alone);
    }
    let dead = CastEvent::MemberFailed(MemberIndex(0), FailReason::Dead);
    alone.events().contains(&dead)
}

#[test]
fn who_says_anything_lives() {
    assert!(is_given_up(|alone| drop(alone.sent())));
    let read = || Message::RosterRead {
        pages: Blocks::one(0),
    };
    assert!(!is_given_up(|alone| {
        alone.sent();
        alone.hear(0, read());
    }));
    // It does not know the cast.
    assert!(is_given_up(|alone| {
        alone.sent();
        alone.hear(0, Message::Unknown);
    }));
}

#[test]
fn nobody_is_given_up_for_what_has_not_left() {
    let mut sent = Vec::new();
    let mut steps = 0;
    let given_up = is_given_up(|alone| {
        steps += 1;
        if steps == 200 {
            sent = alone.sent();
        }
    });
    assert!(!given_up);
    assert_eq!(sent.len(), 1, "{sent:?}");
}

#[test]
fn signs_of_life_go_before_what_waits() {
    let mut alone = announced_member();
    let mut wants = Wants::default();
    wants.push(WantedBlock {
        block: 0,
        fragments: u64::MAX,
        ..WantedBlock::default()
    });
    for _ in 0..2 {
        alone.hear(5, Message::Request(wants));
    }
    alone.hear(4, Message::Probe { number: 7 });
    let sent = alone.sent();
    let standing = Standing::Elsewhere;
    let answer = Message::AnnounceAck {
        number: 7,
        standing,
    };
    assert!(sent.len() > 1 && sent[0] == answer, "{sent:?}");
}
