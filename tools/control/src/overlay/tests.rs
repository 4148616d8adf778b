//! The front end with its configuration; what it does with nodes is tested with machines (`tests/src/e2e/overlay.rs`).

use netstack::overlay::placement::fuzzy;

use super::*;

fn config() -> config::Overlay {
    config::defaults().overlay
}

fn overlay(config: config::Overlay) -> Result<Overlay, String> {
    let setup = Setup {
        me: Peer {
            addr: "127.0.0.1:1".parse().unwrap(),
            mac: [0; 6],
        },
        key: Key([1; 16]),
        seed: 1,
        config,
        link_rate: 10_000_000_000,
    };
    Overlay::new(setup, Instant::ZERO)
}

#[test]
fn the_streams_that_are_always_open_are_within_bounds() {
    let overlay = overlay(config()).unwrap();
    assert_eq!(overlay.front.streams().len(), 2);
    assert!(overlay.rows_stream.is_some() && overlay.totals_stream.is_some());
    let named = CALLS
        .iter()
        .filter_map(|call| catalogue::name_of(MetricId::of_call(*call)?));
    assert_eq!(
        named.count(),
        CALLS.len(),
        "each call that is asked for has a name"
    );
    assert!(overlay.known().is_empty());
}

/// Values of a tick as the front end gives them.
fn tick(stream: StreamId, tick: u64, covers: u32, values: TickBody) -> TickValue {
    TickValue {
        stream,
        tick,
        covers,
        attached: 16,
        ends: true,
        at: Instant::ZERO,
        values,
    }
}

fn sum(value: i128, count: u32) -> TickBody {
    TickBody::Reduced(vec![netstack::overlay::Acc {
        count,
        reduced: Some(Reduced::Total(value)),
    }])
}

#[test]
fn what_comes_late_of_a_tick_is_added_and_of_an_older_one_is_not() {
    let mut overlay = overlay(config()).unwrap();
    let spec = StreamSpec::new(vec![MetricId(1)], Filter::Sum, Micros::from_secs(1));
    let stream = overlay.open(Instant::ZERO, spec).unwrap();
    for (number, covers, value) in [(99, 16, 1_600), (100, 15, 1_500), (100, 1, 100), (99, 1, 7)] {
        let value = tick(stream, number, covers, sum(value, covers));
        overlay.take(Instant::ZERO, FrontEndEvent::Tick(value));
    }
    let asked = &overlay.asked[&stream];
    assert_eq!((asked.tick, asked.covers, asked.ticks), (100, 16, 2));
    assert_eq!(asked.values[0].count, 16);
    assert_eq!(asked.values[0].reduced, Some(Reduced::Total(1_600)));
}

#[test]
fn sums_over_all_nodes_are_shown_when_they_are_whole_or_superseded() {
    let mut overlay = overlay(config()).unwrap();
    let stream = overlay.totals_stream.unwrap();
    let mut take = |number, covers, value| {
        let value = tick(stream, number, covers, sum(value, covers));
        overlay.take(Instant::ZERO, FrontEndEvent::Tick(value));
        let totals = overlay.totals();
        (
            totals.tick,
            totals.covers,
            totals.sums.first().map(|of| of.1),
        )
    };
    assert_eq!(take(99, 16, 1_600), (99, 16, Some(1_600)));
    assert_eq!(take(100, 14, 1_500), (99, 16, Some(1_600)));
    assert_eq!(take(100, 1, 100), (99, 16, Some(1_600)));
    assert_eq!(take(100, 1, 101), (100, 16, Some(1_701)));
    assert_eq!(take(100, 1, 100), (100, 16, Some(1_701)));
    // Two never come.
    assert_eq!(take(101, 14, 1_600), (100, 16, Some(1_701)));
    assert_eq!(take(102, 14, 1_700), (101, 14, Some(1_600)));
    assert_eq!(take(101, 2, 200), (101, 14, Some(1_600)));
}

#[test]
fn a_front_end_that_is_switched_off_has_nothing_to_do() {
    let config = config::Overlay {
        enabled: false,
        ..config()
    };
    let mut overlay = overlay(config).unwrap();
    let hello = netstack::overlay::message::Packet {
        from: Process::back_end(NodeId(3)),
        boot: netstack::ids::BootEpoch(1),
        mac: [0; 6],
        to_slot: 0,
        tree: TreeEpoch(0),
        seq: 0,
        message: netstack::overlay::message::Message::Hello(netstack::overlay::message::Hello {
            back_end: true,
            cps: 1,
            auxiliary: 0,
            job: None,
            factors: [netstack::overlay::fixed::Fixed::ONE; 4],
        }),
    };
    let mut out = [0; netstack::MAX_DATAGRAM];
    let length = netstack::overlay::wire::emit(&Key([1; 16]), &hello, &mut out);
    let from = "10.0.0.3:7118".parse().unwrap();
    overlay.handle_datagram(Instant::ZERO, from, &out[..length]);
    assert_eq!(overlay.front.nodes().count(), 1);
    let now = Instant::from_micros(5_000_000);
    assert!(
        overlay.poll_transmit(now, &mut out).is_some(),
        "the node is told"
    );
    assert_eq!(overlay.poll_transmit(now, &mut out), None);
    assert_eq!(overlay.poll_timeout(now), None);
}

#[test]
fn values_of_a_long_period_stay_until_the_next() {
    let config = config::Overlay {
        period_ms: 10_000,
        ..config()
    };
    let mut overlay = overlay(config).unwrap();
    let row = Row {
        node: NodeId(3),
        node_time_us: 1,
        values: vec![Some(1)],
    };
    let stream = overlay.rows_stream.unwrap();
    let value = tick(stream, 1, 1, TickBody::Rows(vec![row]));
    overlay.take(Instant::from_micros(10_000_000), FrontEndEvent::Tick(value));
    let at = |seconds: u64| Instant::from_micros(seconds * 1_000_000);
    assert!(overlay.values(3, at(30)).is_some());
    assert!(overlay.values(3, at(36)).is_none());
    let row = overlay.values(3, at(30)).unwrap();
    assert_eq!(overlay.age_us(row, at(30)), 20_000_000);
}

#[test]
fn nodes_of_the_configuration_are_read() {
    for (dedicated, network, named) in [
        ("n[0-", "", "overlay.dedicated"),
        ("", "nonsense", "overlay.network"),
        ("", "n[0,2,4,6,8,10,12,14,16]", "overlay.network"),
    ] {
        let config = config::Overlay {
            dedicated: dedicated.to_string(),
            network: network.to_string(),
            ..config()
        };
        let error = overlay(config).unwrap_err();
        assert!(error.contains(named), "{error}");
    }
    let config = config::Overlay {
        dedicated: "n[0-3]".to_string(),
        network: "n[1-2,7]".to_string(),
        profile: "all".to_string(),
        ..config()
    };
    let overlay = overlay(config).unwrap();
    assert_eq!(overlay.dedicated.len(), 4);
    assert_eq!(overlay.collectors().len(), 2);
    let scopes: Vec<&Scope> = overlay
        .front
        .streams()
        .values()
        .map(|spec| &spec.scope)
        .collect();
    let ranges = vec![(NodeId(1), NodeId(2)), (NodeId(7), NodeId(7))];
    assert!(scopes.contains(&&Scope::Nodes(ranges)), "{scopes:?}");
}

#[test]
fn a_configuration_that_makes_no_sense_is_refused() {
    for (placement, fan_out, period_ms, named) in [
        ("best", 32, 1000, "overlay.placement"),
        ("averaging", 1, 1000, "overlay.fan_out"),
        ("averaging", 200, 1000, "overlay.fan_out"),
        ("averaging", 32, 10, "overlay.period_ms"),
    ] {
        let config = config::Overlay {
            placement: placement.to_string(),
            fan_out,
            period_ms,
            ..config()
        };
        let error = overlay(config).unwrap_err();
        assert!(error.contains(named), "{error}");
    }
    let judged = |weights: &str, high: &str| {
        layout::of(&config::Overlay {
            placement: "comprehensive".to_string(),
            judge_weights: weights.to_string(),
            judge_high: high.to_string(),
            ..config()
        })
    };
    let own = config();
    let Policy::Comprehensive(found) = judged(&own.judge_weights, &own.judge_high).unwrap().policy
    else {
        panic!("comprehensive");
    };
    assert_eq!(found, fuzzy::FuzzyConfig::default());
    for (weights, high, said) in [
        ("0.5 0.5 0 0", "20 100 40", "3 numbers"),
        ("0.5 0.5 0 x", "20 100 40 1", "judge_weights"),
        ("0.5 0.5 0.5 0", "20 100 40 1", "sum to 1"),
        ("1.5 -0.5 0 0", "20 100 40 1", "judge_weights"),
        ("0.5 0.5 0 0", "20 100 0 1", "link speed"),
    ] {
        let error = judged(weights, high).unwrap_err();
        assert!(error.contains(said), "{error}");
    }
    for placement in ["comprehensive", "k-ary 4 2", "balanced 4x16"] {
        let config = config::Overlay {
            placement: placement.to_string(),
            ..config()
        };
        assert!(overlay(config).is_ok(), "{placement}");
    }
}
