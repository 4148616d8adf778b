//! Casts of different rates at once: each keeps to its own, and leaves the others theirs.

use super::*;

const NODES: u32 = 4;

/// Microseconds that a link of this rate takes for so many bytes in datagrams as casts send them.
fn limit_us(bytes: usize, rate: u64) -> f64 {
    let wire = bytes as f64 * 1460.0 / 1366.0;
    wire * 1e6 / rate as f64
}

/// When all nodes have a cast: microseconds from the beginning of the run, at most five minutes.
fn complete_us(net: &mut Net, cast: u64) -> f64 {
    let complete = |net: &Net| (0..NODES).all(|node| net.complete_at(node, cast));
    let late = Instant::from_micros(300_000_000);
    net.run_until(|net| complete(net) || net.now > late);
    assert!(complete(net), "cast {cast} does not end");
    net.now.as_micros() as f64
}

fn all_have(net: &mut Net, casts: &[u64]) {
    net.run();
    for cast in casts {
        (0..NODES).for_each(|node| net.check(node, *cast));
        assert!(net.finished(*cast));
    }
    net.nothing_left();
}

#[test]
fn a_slow_cast_leaves_the_link_to_a_fast_one() {
    let bytes = content(2_000_000, 7);
    let mut net = Net::new(NODES, 1, 0);
    net.cast(1, &bytes, 13, Scheme::Auto);
    let alone = complete_us(&mut net, 1);

    let mut net = Net::new(NODES, 1, 0);
    net.cast(1, &bytes, 13, Scheme::Auto);
    net.run_until(|net| net.now.as_micros() > 2_000);
    // A thousandth of the link.
    net.cast_at(2, &content(6, 8), 12, Scheme::Auto, RATE / 1000);
    let beside = complete_us(&mut net, 1);
    assert!(beside < 1.1 * alone, "{beside} us beside it, {alone} alone");
    all_have(&mut net, &[1, 2]);
}

#[test]
fn a_fast_cast_does_not_hurry_a_slow_one() {
    for (slow_at, fast_at) in [(0, 500), (500, 0)] {
        let mut net = Net::new(NODES, 1, 0);
        let (slow, fast) = (content(500_000, 9), content(200_000, 10));
        let rate = RATE / 20;
        let mut order = [(slow_at, 1), (fast_at, 2)];
        order.sort();
        for (at, cast) in order {
            net.run_until(|net| net.now.as_micros() > at);
            match cast {
                1 => net.cast_at(1, &slow, 12, Scheme::Auto, rate),
                _ => net.cast(2, &fast, 12, Scheme::Auto),
            }
        }
        let quick = complete_us(&mut net, 2) - fast_at as f64;
        let least = limit_us(fast.len(), RATE);
        assert!(
            quick < 1.6 * least,
            "{quick} us, {least} at the link's rate"
        );
        let took = complete_us(&mut net, 1) - slow_at as f64;
        let least = limit_us(slow.len(), rate);
        // A burst when it begins, and a block of each member that serves.
        assert!(took > 0.9 * least, "{took} us, {least} at its rate");
        assert!(took < 1.3 * least, "{took} us, {least} at its rate");
        all_have(&mut net, &[1, 2]);
    }
}

#[test]
fn what_ends_gives_its_share_back() {
    let bytes = content(1_000_000, 11);
    let mut net = Net::new(NODES, 1, 0);
    for cast in [1, 2] {
        net.cast(cast, &bytes, 13, Scheme::Auto);
    }
    net.cast_at(3, &content(100, 12), 12, Scheme::Auto, RATE / 1000);
    net.run_until(|net| net.now.as_micros() > 1_000);
    net.source.cancel(net.now, CastId(2));
    let cancelled = net.now.as_micros() as f64;
    let took = complete_us(&mut net, 1) - cancelled;
    let least = limit_us(bytes.len(), RATE);
    assert!(took < 1.2 * least, "{took} us after it, {least} for all");
    net.run();
    net.nothing_left();
}
