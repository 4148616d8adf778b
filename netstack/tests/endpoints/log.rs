//! A node's log on its way to the control node.

use netstack::control::Event;
use netstack::ids::NodeId;
use netstack::time::Micros;
use netstack::wire::field::Writer;
use netstack::wire::log::{NodeLog, TEXT_MAX};

use crate::wire_pair::Pair;

/// What has come of the node's log: missed lines, and text.
fn come(pair: &mut Pair) -> Vec<(u32, String)> {
    pair.settle();
    let boot = pair.epoch();
    let lines = |event| match event {
        Event::LogLines {
            node,
            boot_epoch,
            missed,
            text,
        } => {
            assert_eq!((node, boot_epoch), (NodeId(3), boot));
            Some((missed, text))
        }
        _ => None,
    };
    let events = std::iter::from_fn(|| pair.control.poll_event()).collect::<Vec<_>>();
    events.into_iter().filter_map(lines).collect()
}

#[test]
fn lines_come_once_and_in_order() {
    let mut pair = Pair::joined();
    for round in 0..5_u32 {
        assert!(pair.node.takes_log());
        pair.node.log(pair.now, round, &format!("line {round}\n"));
        assert!(!pair.node.takes_log(), "one report at a time");
        assert_eq!(come(&mut pair), [(round, format!("line {round}\n"))]);
    }
    let longest = "x".repeat(TEXT_MAX - 1) + "\n";
    pair.node.log(pair.now, 0, &longest);
    assert_eq!(come(&mut pair), [(0, longest)]);
    // Nothing is repeated that has arrived, and nothing wakes the node for it.
    pair.advance(Micros::from_secs(60));
    assert_eq!(come(&mut pair), []);
}

#[test]
fn what_is_lost_is_repeated_ever_more_slowly() {
    let mut pair = Pair::joined();
    pair.node.log(pair.now, 0, "first\n");
    let sent = pair.take_datagrams_of_node();
    assert_eq!(sent.len(), 1);
    let before = pair.node.counters().retransmitted;
    pair.cut = true;
    pair.advance(Micros::from_secs(2));
    let repeats = pair.node.counters().retransmitted - before;
    assert!((2..=8).contains(&repeats), "{repeats} in two seconds");
    pair.cut = false;
    pair.advance(Micros::from_secs(5));
    assert_eq!(come(&mut pair), [(0, "first\n".to_string())]);
    assert!(pair.node.takes_log());
    // The one that was lost comes late, and again.
    pair.deliver(&sent[0]);
    assert_eq!(come(&mut pair), []);
}

#[test]
fn a_new_session_gets_what_is_under_way() {
    let mut pair = Pair::joined();
    pair.node.log(pair.now, 0, "before\n");
    assert_eq!(come(&mut pair).len(), 1);
    pair.cut = true;
    pair.node.log(pair.now, 7, "while nobody hears\n");
    pair.settle();
    pair.restart_control();
    pair.cut = false;
    pair.advance(Micros::from_secs(60));
    assert_eq!(come(&mut pair), [(7, "while nobody hears\n".to_string())]);
    pair.node.log(pair.now, 0, "after\n");
    assert_eq!(come(&mut pair), [(0, "after\n".to_string())]);
}

#[test]
fn a_node_that_has_not_joined_takes_no_lines() {
    let pair = Pair::new();
    assert!(!pair.node.takes_log());
}

#[test]
fn what_is_no_report_is_refused() {
    let emitted = |number, text| {
        let mut bytes = [0; 64];
        let mut writer = Writer::new(&mut bytes);
        let report = NodeLog {
            number,
            missed: 9,
            text,
        };
        report.emit(&mut writer);
        let length = writer.written();
        bytes[..length].to_vec()
    };
    let good = emitted(4, "a\nb\u{e4}\n");
    let report = NodeLog::parse(&good).unwrap();
    assert_eq!(
        (report.number, report.missed, report.text),
        (4, 9, "a\nb\u{e4}\n")
    );
    assert!(
        NodeLog::parse(&emitted(0, "a\n")).is_err(),
        "numbers begin with 1"
    );
    assert!(NodeLog::parse(&emitted(1, "")).is_err());
    assert!(
        NodeLog::parse(&good[..good.len() - 1]).is_err(),
        "no whole line"
    );
    assert!(NodeLog::parse(&good[..11]).is_err());
    let mut damaged = good.clone();
    damaged[15] = 0xff;
    assert!(NodeLog::parse(&damaged).is_err(), "no text");
    let long = [&good[..12], &[b'x'; TEXT_MAX], b"\n"].concat();
    assert!(NodeLog::parse(&long).is_err());
}
