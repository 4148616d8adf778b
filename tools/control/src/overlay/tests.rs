//! The front end with its configuration; what it does with nodes is tested with machines
//! (`tests/src/e2e/overlay.rs`).

use std::sync::Arc;

use hearth_store::StreamRow;
use netstack::overlay::placement;

use super::*;
use crate::principal::Principal;

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
        hosts: Arc::default(),
    };
    Overlay::new(setup, Instant::ZERO)
}

#[test]
fn the_streams_that_are_always_open_are_within_bounds() {
    let overlay = overlay(config()).unwrap();
    assert_eq!(overlay.front.streams().len(), 3);
    let own = [
        overlay.rows_stream,
        overlay.totals_stream,
        overlay.calls_stream,
    ];
    assert!(own.iter().all(Option::is_some));
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

/// The control side of the protocol, with no node.
fn endpoint() -> protocol::Endpoint {
    protocol::Endpoint::new(protocol::Config {
        cluster_secret: [1; 16],
        key_id: 1,
        version: [0; 16],
        accept_lab_keys: false,
        control_epoch: netstack::ids::ControlEpoch(1),
        peer_key: Key([1; 16]),
        seed: 1,
        timing: netstack::join::Timing::default(),
        limits: protocol::Limits::default(),
    })
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
fn what_comes_late_of_a_tick_is_put_to_it_and_changes_no_later_one() {
    let control = Principal::control();
    let operator = control.operator().unwrap();
    let mut overlay = overlay(config()).unwrap();
    let spec = StreamSpec::new(vec![MetricId(1)], Filter::Sum, Micros::from_secs(1));
    let stream = overlay.open(&operator, Instant::ZERO, spec).unwrap();
    // As from a process that waited for all of a job before it knew who that is: three ticks behind
    // later ones.
    for (number, covers, value) in [
        (99, 15, 1_500),
        (103, 16, 1_900),
        (100, 16, 1_600),
        (101, 16, 1_700),
        (102, 16, 1_800),
        (99, 1, 7),
    ] {
        let value = tick(stream, number, covers, sum(value, covers));
        overlay.take(Instant::ZERO, FrontEndEvent::Tick(value));
    }
    let asked = &overlay.asked[&stream];
    let newest = asked.newest().unwrap();
    assert_eq!((newest.tick, newest.covers, asked.ticks()), (103, 16, 5));
    assert_eq!(newest.values[0].reduced, Some(Reduced::Total(1_900)));
    let (mut kept, lost) = overlay.take_kept();
    kept.sort_by_key(|tick| tick.begin_us);
    let kept: Vec<_> = kept
        .iter()
        .map(|tick| (tick.begin_us / 1_000_000, tick.covers, tick.values[0]))
        .collect();
    let wanted = [1_507, 1_600, 1_700, 1_800, 1_900];
    let wanted = (99..)
        .zip(wanted)
        .map(|(number, sum)| (number, 16, Some(sum)));
    assert_eq!((kept, lost), (wanted.collect(), 0));
    // What is too old for that is counted.
    let value = tick(stream, 90, 1, sum(1, 1));
    (104..112).for_each(|number| {
        let value = tick(stream, number, 16, sum(1, 16));
        overlay.take(Instant::ZERO, FrontEndEvent::Tick(value));
    });
    overlay.take(Instant::ZERO, FrontEndEvent::Tick(value));
    assert_eq!(overlay.take_kept().1, 1);
}

/// The sum that the tree makes goes back with the nodes that are in it; what is counted for
/// `/metrics` does not.
#[test]
fn calls_are_counted_on_while_nodes_are_quiet_lost_or_booted_again() {
    let mut overlay = overlay(config()).unwrap();
    let stream = overlay.calls_stream.unwrap();
    let hello = |overlay: &mut Overlay, seconds: u64, node, boot| {
        let (node, boot) = (NodeId(node), netstack::ids::BootEpoch(boot));
        let event = FrontEndEvent::Hello { node, boot };
        overlay.take(Instant::from_micros(seconds * 1_000_000), event);
    };
    (0..3).for_each(|node| hello(&mut overlay, 1, node, 1));
    let told = |overlay: &mut Overlay, number, counts: &[(u32, i64)]| {
        let rows = counts.iter().map(|(node, count)| Row {
            node: NodeId(*node),
            node_time_us: 1,
            values: vec![Some(*count); CALLS.len()],
        });
        let mut value = tick(
            stream,
            number,
            counts.len() as u32,
            TickBody::Rows(rows.collect()),
        );
        value.attached = value.covers;
        overlay.take(Instant::ZERO, FrontEndEvent::Tick(value));
        overlay.calls().next().map(|(_, sum)| sum)
    };
    assert_eq!(
        told(&mut overlay, 1, &[(0, 10), (1, 20), (2, 30)]),
        Some(60)
    );
    // n1 and n2 have a quiet job; n2 boots again under it.
    assert_eq!(told(&mut overlay, 2, &[(0, 15)]), Some(65));
    hello(&mut overlay, 25, 2, 2);
    assert_eq!(told(&mut overlay, 3, &[(0, 16), (2, 4)]), Some(70));
    assert_eq!(told(&mut overlay, 4, &[(0, 17), (1, 29), (2, 5)]), Some(81));
    assert_eq!(overlay.calls().count(), CALLS.len());
}

/// Rows of the store after `changes`.
fn rows(store: &mut hearth_store::Memory, overlay: &mut Overlay) -> Vec<StreamRow> {
    hearth_store::Store::commit(store, &overlay.take_changes()).unwrap();
    hearth_store::Query::streams(store).unwrap()
}

#[test]
fn streams_go_on_when_control_is_started_again() {
    let control = Principal::control();
    let operator = control.operator().unwrap();
    let mut store = hearth_store::Memory::new(hearth_store::Limits::default());
    let spec = |scope| StreamSpec {
        scope,
        sync: netstack::overlay::Sync::WaitAll,
        ..StreamSpec::new(vec![MetricId(1)], Filter::Max, Micros::from_secs(1))
    };
    let scopes = [
        Scope::All,
        Scope::Job(JobId(7)),
        Scope::All,
        Scope::Job(JobId(8)),
        Scope::Nodes(vec![(NodeId(1), NodeId(2))]),
    ];
    let mut first = overlay(config()).unwrap();
    let opened = scopes.map(|scope| first.open(&operator, Instant::ZERO, spec(scope)).unwrap());
    assert!(first.close(&operator, Instant::ZERO, opened[2]));
    first.settle(Instant::ZERO, &endpoint());
    let before = rows(&mut store, &mut first);
    assert_eq!(before.len(), 4);
    // Job 8 is over meanwhile. A collector has the number of the first stream now.
    let config = config::Overlay {
        network: "all".to_string(),
        ..config()
    };
    let mut second = overlay(config).unwrap();
    second.reopen(Instant::ZERO, before.clone(), |job| job == JobId(7));
    let after = rows(&mut store, &mut second);
    let name = |place: usize| before[place].name.clone();
    let named = |row: &StreamRow| (row.number, row.name.clone());
    let mut numbers: Vec<_> = after.iter().map(named).collect();
    numbers.sort_by_key(|(number, _)| *number);
    let [own, of_job, _, _, of_nodes] = opened.map(|stream| stream.0);
    assert_eq!(numbers[0], (of_job, name(1)));
    assert_eq!(numbers[1..], [(of_nodes, name(3)), (of_nodes + 1, name(0))]);
    let kinds: Vec<_> = second
        .take_events()
        .into_iter()
        .map(|event| (event.kind, event.text))
        .collect();
    assert_eq!(kinds[0].0, "overlay-stream-over");
    assert!(kinds[0].1.contains("job 8 is"), "{kinds:?}");
    assert_eq!(kinds[1].0, "overlay-streams-again");
    assert!(
        kinds[1]
            .1
            .ends_with(&format!("{of_job}, {of_nodes}, {own} as {}", of_nodes + 1)),
        "{kinds:?}"
    );
    // Numbers go on behind them.
    let next = second
        .open(&operator, Instant::ZERO, spec(Scope::All))
        .unwrap();
    assert_eq!(next.0, of_nodes + 2);
    second.job_over(Instant::ZERO, JobId(7));
    second.settle(Instant::from_micros(600_000), &endpoint());
    assert!(
        rows(&mut store, &mut second)
            .iter()
            .all(|row| row.number != of_job)
    );
}

/// Ranks end in different ticks, so the last one is of a few.
#[test]
fn a_stream_that_has_ended_shows_the_newest_tick_of_those_that_cover_most() {
    let control = Principal::control();
    let operator = control.operator().unwrap();
    let mut overlay = overlay(config()).unwrap();
    let spec = StreamSpec::new(
        vec![MetricId(MetricId::FIRST_PROGRAM)],
        Filter::Sum,
        Micros::from_secs(1),
    );
    let stream = overlay.open(&operator, Instant::ZERO, spec).unwrap();
    for (number, covers, value) in [(7, 2, 3), (8, 6, 6_000), (9, 6, 7_061), (10, 3, 3_690)] {
        let value = tick(stream, number, covers, sum(value, covers));
        overlay.take(Instant::ZERO, FrontEndEvent::Tick(value));
    }
    let endpoint = endpoint();
    let view = overlay.view(Instant::ZERO, &endpoint);
    let live = view.streams.last().unwrap();
    assert_eq!(
        (live.tick, live.covers, live.values[0].value),
        (10, 3, Some(3_690.0))
    );
    assert!(overlay.close(&operator, Instant::ZERO, stream));
    overlay.settle(Instant::ZERO, &endpoint);
    let ended = &overlay.view(Instant::ZERO, &endpoint).ended[0];
    assert_eq!((ended.tick, ended.covers, ended.ticks), (9, 6, 4));
    assert_eq!(ended.values[0].value, Some(7_061.0));
    let stored = overlay.take_kept().0.into_iter();
    let stored: Vec<_> = stored.map(|tick| (tick.covers, tick.values[0])).collect();
    assert_eq!(stored.len(), 4, "{stored:?}");
    assert_eq!(stored[3], (3, Some(3_690)));
}

#[test]
fn every_tick_of_the_sums_is_stored_though_a_node_is_lost_in_it() {
    let mut overlay = overlay(config()).unwrap();
    let stream = overlay.totals_stream.unwrap();
    let (number, gone) = (100, 102);
    for number in number..106 {
        // It is missed for a tick before it is known to be gone.
        let covers = if number < gone { 6 } else { 5 };
        let mut value = tick(stream, number, covers, sum(10, covers));
        value.attached = if number <= gone { 6 } else { 5 };
        overlay.take(Instant::ZERO, FrontEndEvent::Tick(value));
    }
    let stored = overlay.take_kept().0.into_iter();
    let stored: Vec<_> = stored
        .map(|tick| (tick.begin_us / 1_000_000, tick.covers, tick.nodes))
        .collect();
    let wanted = [6, 6, 5, 5, 5, 5].into_iter().zip([6, 6, 6, 5, 5, 5]);
    let wanted = (100..)
        .zip(wanted)
        .map(|(number, (covers, nodes))| (number, covers, nodes));
    assert_eq!(stored, Vec::from_iter(wanted));
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
fn down_and_up_are_told_once_each() {
    let control = Principal::control();
    let operator = control.operator().unwrap();
    let mut overlay = overlay(config()).unwrap();
    let mut kinds = |up: bool| -> Vec<String> {
        match up {
            true => overlay.bring_up(&operator, Instant::ZERO),
            false => overlay.take_down(&operator, Instant::ZERO),
        }
        let events = overlay.take_events().into_iter();
        events.map(|event| event.kind).collect()
    };
    assert_eq!(kinds(true), [""; 0], "it was not down");
    assert_eq!(kinds(false), ["overlay-down"]);
    assert_eq!(kinds(false), [""; 0]);
    assert_eq!(kinds(true), ["overlay-wanted"]);
    assert_eq!(kinds(true), [""; 0]);
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
        message: netstack::overlay::message::Message::Hello(netstack::overlay::message::Hello {
            back_end: true,
            cps: 1,
            auxiliary: 0,
            job: None,
            factors: [netstack::overlay::fixed::Fixed::ONE; 4],
        }),
    };
    let mut out = [0; netstack::MAX_DATAGRAM];
    let from = "10.0.0.3:7118".parse().unwrap();
    let key = Key([1; 16]).overlay_key();
    let mut node = netstack::wire::envelope::Envelopes::new(&key, from, Instant::ZERO);
    let front = "127.0.0.1:1".parse().unwrap();
    let length = netstack::overlay::wire::emit(&mut node, Instant::ZERO, front, &hello, &mut out);
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
    assert_eq!(found, placement::FuzzyConfig::default());
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
