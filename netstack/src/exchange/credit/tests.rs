use super::*;

#[test]
fn windows_shrink_where_far_more_is_lost_than_at_random_and_grow_again() {
    let mut credit = Credit::new(1_250_000_000, 0);
    let epoch = |credit: &mut Credit, repairs: u32| {
        (0..repairs).for_each(|_| credit.repaired(1));
        credit.came(Instant::ZERO, Rank(1), 0, EPOCH_PACKETS);
    };
    // Few repairs, and each epoch counts for itself.
    (0..100).for_each(|_| epoch(&mut credit, CONGESTED - 1));
    assert_eq!(credit.total, 83);
    let wait = credit.wait();
    (0..CONGESTED).for_each(|_| credit.repaired(1));
    assert_eq!((credit.total, credit.each), (62, 46));
    (0..100).for_each(|_| credit.repaired(1));
    assert_eq!(credit.total, LEAST_WINDOW);
    // What congestion makes slow is not asked for sooner.
    assert_eq!(credit.wait(), wait);
    epoch(&mut credit, 0);
    assert_eq!(credit.total, LEAST_WINDOW + GROWTH);
    (0..200).for_each(|_| epoch(&mut credit, 0));
    assert_eq!(credit.total, 83);
    // In the long run what was lost is forgotten.
    (0..2_000).for_each(|_| epoch(&mut credit, 0));
    assert_eq!(credit.total, 120);
    let mut paced = Credit::new(625_000, 32_000);
    (0..100).for_each(|_| paced.repaired(1));
    assert_eq!(paced.total, 20);
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
    let mut credit = Credit::new(1_250_000_000, 0);
    let mut now = Instant::from_micros(1_000);
    assert_eq!(credit.beside_unasked(now), 42);
    for _ in 0..200 {
        now += Micros(1);
        credit.came_unasked(now, 1);
    }
    assert_eq!(credit.beside_unasked(now), LEAST_BESIDE);
    // Half of the link is free, and then all of it.
    for _ in 0..100 {
        now += Micros(2);
        credit.came_unasked(now, 1);
    }
    let half = credit.beside_unasked(now);
    assert!((9..=35).contains(&half), "{half}");
    assert_eq!(credit.beside_unasked(now + Micros(200)), 42);
}

#[test]
fn windows_fit_the_link_and_the_port() {
    // 10 Gbit/s and 20 us: 16 packets.
    let credit = Credit::new(1_250_000_000, 0);
    assert_eq!((credit.total, credit.each, credit.chunk), (120, 90, 16));
    assert_eq!(
        (credit.bound, credit.opening, credit.worth()),
        (166, 20, 24)
    );
    // 5 Mbit/s behind a queue of 32 KB: all of it, for one sender.
    let slow = Credit::new(625_000, 32_000);
    assert_eq!((slow.total, slow.each, slow.chunk), (20, 20, 5));
    assert_eq!((slow.bound, slow.opening, slow.worth()), (40, 20, 10));
    assert!(slow.wait() > slow.takes(21));
    // Nobody says what the port holds: 50 ms.
    let slow = Credit::new(625_000, 0);
    assert_eq!((slow.total, slow.each, slow.chunk), (20, 20, 5));
    assert_eq!(slow.blind_bytes(), 15_625);
}

#[test]
fn where_packets_are_lost_pulls_are_shorter_and_where_many_are_windows_too() {
    let mut credit = Credit::new(1_250_000_000, 0);
    credit.came(Instant::ZERO, Rank(1), 0, 1_000);
    credit.lost();
    credit.repaired(1);
    assert_eq!((credit.total, credit.worth()), (120, 16));
    credit.repaired(2);
    assert_eq!((credit.total, credit.each), (83, 62));
    // It was for a moment.
    credit.came(Instant::ZERO, Rank(1), 0, 200);
    assert_eq!((credit.total, credit.worth()), (120, 16));
    let mut slow = Credit::new(625_000, 32_000);
    slow.lost();
    slow.repaired(100);
    assert_eq!((slow.total, slow.worth()), (20, 5));
}

#[test]
fn links_that_are_paced_wait_for_twice_as_long_until_a_loss() {
    let mut slow = Credit::new(625_000, 32_000);
    let wait =
        |credit: &Credit, packets| credit.takes(packets) + credit.round_trip().saturating_mul(2);
    assert_eq!(slow.waits().first, wait(&slow, 10));
    slow.lost();
    assert_eq!((slow.is_lossy(), slow.worth()), (true, 5));
    assert_eq!(slow.waits().first, wait(&slow, 5));
    slow.came(Instant::ZERO, Rank(1), 0, 10_000);
    assert!(slow.is_lossy());
}

#[test]
fn a_rank_is_new_until_a_round_trip_was_seen_or_much_has_come() {
    let begin = Instant::from_micros(1_000_000);
    let mut slow = Credit::new(60_000, 0);
    for packet in 0..NEW_PACKETS as u32 {
        assert!(slow.is_new());
        let asked = begin + Micros::from_millis(150 * u64::from(packet));
        slow.asked(asked, Rank(1), packet);
        slow.came(asked + Micros::from_millis(150), Rank(1), packet, 1);
    }
    assert!(!slow.is_new());
    let mut fast = Credit::new(1_250_000_000, 0);
    fast.change(0, 20);
    // What goes unasked is no answer.
    fast.came(begin, Rank(1), 3, 1);
    fast.asked(begin, Rank(1), 20);
    assert!(fast.is_new());
    fast.came(begin + Micros(30), Rank(1), 20, 1);
    assert!(!fast.is_new());
}

#[test]
fn whatever_a_port_holds_something_may_be_asked_for() {
    for rate in [0, 1, 60_000, 625_000, 125_000_000, 1_250_000_000] {
        for port in [0, 1, 1_538, 2_000, 3_100, 20_000, u32::MAX] {
            let mut credit = Credit::new(rate, port);
            for _ in 0..2 {
                assert!(
                    credit.total >= 1 && credit.room() >= credit.total,
                    "{credit:?}"
                );
                assert!((1..=credit.total).contains(&credit.worth()), "{credit:?}");
                credit.repaired(1_000);
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
        assert!(credit.total <= 20, "{credit:?}");
    }
    assert!((600_000..660_000).contains(&credit.rate), "{credit:?}");
    assert_eq!(credit.total, 15);
}

#[test]
fn rate_and_round_trip_are_measured_where_they_are_not_given() {
    let mut credit = Credit::new(0, 0);
    assert_eq!((credit.rate, credit.total), (ASSUMED_RATE, 20));
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
    assert_eq!(credit.total, 120);
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
