use super::*;

/// 10 Gbit/s, whose port holds 166 full packets.
const FAST: u64 = 1_250_000_000;
/// 5 Mbit/s behind a queue of 20 full packets.
const SLOW: (u64, u32) = (625_000, 32_000);

/// So many packets are asked for and come, without loss.
fn flow(credit: &mut Credit, packets: u32) {
    for packet in 0..packets {
        credit.change(0, 1);
        credit.came(Instant::ZERO, Rank(1), packet, 1);
        credit.change(1, 0);
    }
}

#[test]
fn windows_begin_small_and_end_at_a_share_of_the_port() {
    let mut credit = Credit::new(FAST, 0);
    assert_eq!(credit.window(), BATCH);
    assert_eq!(credit.opening(), BATCH);
    flow(&mut credit, 1_000);
    assert_eq!(credit.window(), 124);
    assert_eq!((credit.room(), credit.batch()), (166, BATCH));
    // On a slow link one sender may have all that the queue holds.
    let mut slow = Credit::new(SLOW.0, SLOW.1);
    flow(&mut slow, 1_000);
    assert_eq!((slow.window(), slow.each(), slow.room()), (20, 20, 20));
    assert!(slow.wait() > slow.takes(21));
    // Nobody says what the port holds: 50 ms.
    let slow = Credit::new(SLOW.0, 0);
    assert_eq!(slow.blind_bytes(), 15_625);
}

#[test]
fn windows_shrink_where_far_more_is_lost_than_at_random_and_grow_again() {
    let mut credit = Credit::new(FAST, 0);
    let epoch = |credit: &mut Credit, repairs: u32| {
        (0..repairs).for_each(|_| credit.repaired());
        flow(credit, EPOCH_PACKETS);
    };
    (0..10).for_each(|_| epoch(&mut credit, 0));
    let full = credit.window();
    // Few repairs, and each epoch counts for itself.
    (0..100).for_each(|_| epoch(&mut credit, CONGESTED - 1));
    assert_eq!(credit.window(), full);
    let wait = credit.wait();
    credit.change(0, full);
    (0..100).for_each(|_| credit.repaired());
    credit.change(full, 0);
    assert_eq!(credit.window(), full / 2);
    // What congestion makes slow is not asked for sooner.
    assert_eq!(credit.wait(), wait);
    (0..1_000).for_each(|_| epoch(&mut credit, 0));
    assert_eq!(credit.window(), full);
}

#[test]
fn a_block_that_crosses_its_pull_tells_nothing_of_the_round_trip() {
    let mut credit = Credit::new(125_000_000, 0);
    let block = BlockId::Exchange(0, 0);
    let pull = Pull {
        serial: 1,
        first: 0,
        packets: 1,
        tell: true,
    };
    let assumed = credit.round_trip();
    let begin = Instant::from_micros(1_000);
    credit.asked_for_missing(begin, Rank(1), block, &pull);
    credit.came(begin + Micros(3), Rank(1), 0, 1);
    assert_eq!(credit.round_trip(), assumed);
    credit.served(begin + Micros(300), Rank(1), BlockId::Exchange(0, 1), 1);
    assert_eq!(credit.round_trip(), assumed);
    credit.served(begin + Micros(400), Rank(1), block, 1);
    assert_eq!(credit.round_trip(), Micros(400));
}

#[test]
fn what_comes_unasked_leaves_less_room_for_what_is_asked_for() {
    let mut credit = Credit::new(FAST, 0);
    flow(&mut credit, 1_000);
    let mut now = Instant::from_micros(1_000);
    let free = credit.beside_unasked(now);
    for _ in 0..200 {
        now += Micros(1);
        credit.came_unasked(now, 1);
    }
    assert_eq!(credit.beside_unasked(now), 1);
    // Half of the link is free, and then all of it.
    for _ in 0..100 {
        now += Micros(2);
        credit.came_unasked(now, 1);
    }
    let half = credit.beside_unasked(now);
    assert!((free / 4..free * 3 / 4).contains(&half), "{half} of {free}");
    assert_eq!(credit.beside_unasked(now + Micros(200)), free);
}

#[test]
fn a_rank_is_new_until_a_round_trip_was_seen() {
    let begin = Instant::from_micros(1_000_000);
    let mut credit = Credit::new(FAST, 0);
    credit.change(0, 20);
    // What goes unasked is no answer.
    credit.came(begin, Rank(1), 3, 1);
    credit.asked(begin, Rank(1), 20);
    assert!(credit.is_new());
    credit.came(begin + Micros(30), Rank(1), 20, 1);
    assert!(!credit.is_new());
    assert_eq!(credit.round_trip(), Micros(30));
}

#[test]
fn whatever_a_port_holds_something_may_be_asked_for() {
    for rate in [0, 1, 60_000, 625_000, 125_000_000, FAST] {
        for port in [0, 1, 1_538, 2_000, 3_100, 20_000, u32::MAX] {
            let mut credit = Credit::new(rate, port);
            for _ in 0..2 {
                let window = credit.window();
                assert!(window >= 1 && credit.room() >= window, "{credit:?}");
                assert!((1..=window).contains(&credit.batch()), "{credit:?}");
                (0..1_000).for_each(|_| credit.repaired());
            }
        }
    }
    // Of the first packets few came for a second, so that the link seems to carry next to
    // nothing.
    let mut slow = Credit::new(0, 0);
    slow.change(0, 32);
    slow.came(Instant::from_micros(1), Rank(1), 0, 1);
    slow.came(Instant::from_micros(2_000_000), Rank(1), 1, 31);
    slow.change(32, 0);
    assert!(slow.room() >= 1 && slow.port() < 2 * FULL, "{slow:?}");
}

#[test]
fn a_window_that_waits_for_itself_does_not_grow_beyond_the_port() {
    // 5 Mbit/s: a packet each 2.4 ms, 15 of them before the first that was pulled.
    let mut credit = Credit::new(0, 0);
    let mut now = Instant::ZERO;
    credit.change(0, 15);
    for packet in 15..2_000 {
        credit.asked(now, Rank(1), packet);
        credit.change(15, 16);
        now += Micros(2_420);
        credit.came(now, Rank(1), packet - 15, 1);
        credit.change(16, 15);
    }
    assert!((600_000..660_000).contains(&credit.rate), "{credit:?}");
    assert_eq!(credit.window(), 15);
}

#[test]
fn rate_and_round_trip_are_measured_where_they_are_not_given() {
    let mut credit = Credit::new(0, 0);
    assert_eq!((credit.rate, credit.window()), (ASSUMED_RATE, BATCH));
    // 100 packets a millisecond, each 300 us after its pull, and always one more under way.
    let mut now = Instant::ZERO;
    credit.change(0, 1);
    for packet in 0..10_000 {
        credit.asked(now, Rank(1), packet);
        credit.change(0, 1);
        credit.came(now + Micros(300), Rank(1), packet, 1);
        credit.change(1, 0);
        now += Micros(10);
    }
    let rate = 100_000 * FULL;
    assert!(
        (rate * 9 / 10..=rate * 11 / 10).contains(&credit.rate),
        "{}",
        credit.rate
    );
    assert_eq!(credit.round_trip(), Micros(300));
    assert_eq!(credit.window(), 124);
    // It was told: it does not change.
    let mut known = Credit::new(625_000, 0);
    for packet in 0..1000 {
        known.came(
            Instant::ZERO + Micros(u64::from(packet) * 10),
            Rank(1),
            packet,
            1,
        );
    }
    assert_eq!(known.rate, 625_000);
}

#[test]
fn what_comes_unasked_does_not_tell_the_rate() {
    let mut credit = Credit::new(0, 0);
    let wait = credit.wait();
    for step in 0..10_000 {
        // A packet every 10 ms is no sign of a link of 1.2 Mbit/s.
        let now = Instant::ZERO + Micros::from_millis(10 * step);
        credit.came(now, Rank(1), step as u32, 1);
    }
    assert_eq!(credit.wait(), wait);
}
