//! Streams of jobs that wait for all: who takes part is known from the last tick only, and ranks
//! begin and end one by one.

use super::*;

/// Two ranks of five have ended: their processes hold the last ticks of the others, which wait for
/// these two.
#[test]
fn what_waits_at_a_job_s_end_is_handed_over() {
    let mut net = Net::built(12);
    let job = JobId(5);
    let spec = StreamSpec {
        scope: Scope::Job(job),
        sync: Sync::WaitAll,
        ..second(&[1], Filter::Sum)
    };
    let stream = net.open(spec);
    let set = |net: &mut Net, nodes: core::ops::Range<usize>, job| {
        let now = Instant::from_micros(net.now);
        for (node, fake) in &mut net.nodes[nodes] {
            node.set_job(now, job, false, fake);
        }
    };
    set(&mut net, 2..7, Some(job));
    net.run(8_000_000);
    set(&mut net, 4..6, None);
    net.run(2_000_000);
    set(&mut net, 2..4, None);
    set(&mut net, 6..7, None);
    net.run(100_000);
    let now = Instant::from_micros(net.now);
    net.front.job_ending(now, job);
    net.run(500_000);
    net.front.job_ended(Instant::from_micros(net.now), job);
    net.run(12_000_000);
    let covers = net.ticks(stream).into_iter().map(|value| value.covers);
    let books = net.front.books();
    let covered: u64 = covers.map(u64::from).sum();
    let submitted = (0..12).map(|node| net.front.submitted(NodeId(node), BootEpoch(7)));
    assert_eq!(
        (covered, books.lost_dropped),
        (submitted.sum(), 0),
        "{books:?}"
    );
    assert!(covered > 40, "{covered} samples");
}

/// Who takes part in a job's stream is known only when its first tick has been passed on, after
/// four have waited for it.
#[test]
fn a_job_s_stream_that_waits_for_all_leaves_no_tick_behind() {
    let mut net = Net::built(12);
    let job = JobId(5);
    let spec = StreamSpec {
        scope: Scope::Job(job),
        sync: Sync::WaitAll,
        ..second(&[1], Filter::Sum)
    };
    let stream = net.open(spec);
    net.run(1_200_000);
    let begin = |net: &mut Net, nodes: core::ops::Range<usize>| {
        let now = Instant::from_micros(net.now);
        for (node, fake) in &mut net.nodes[nodes] {
            node.set_job(now, Some(job), false, fake);
        }
    };
    begin(&mut net, 3..7);
    net.run(1_000_000);
    begin(&mut net, 7..8);
    net.run(9_000_000);
    let ticks = net.ticks(stream);
    let numbers: Vec<u64> = ticks.iter().map(|value| value.tick).collect();
    let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
    // What comes in two parts is of the first ones, of which each leaf passed on four at once.
    let one_by_one = numbers.iter().filter(|number| **number > first + 4);
    assert!(
        one_by_one.eq(&Vec::from_iter(first + 5..=last)),
        "{numbers:?}"
    );
    let covered = |number: u64| {
        let parts = ticks.iter().filter(|value| value.tick == number);
        parts.map(|value| value.covers).sum::<u32>()
    };
    assert_eq!(covered(first), 4, "the last node came later");
    for number in first + 1..=last {
        assert_eq!(covered(number), 5, "tick {number} of {first} to {last}");
    }
    assert_eq!(last, net.now / 1_000_000, "nothing is held up");
}
