//! Of which nodes there is anything in a time, whatever it is.

use hearth_monitor::{DAY_MS, HOUR_MS, Metric, Reader, Sample, Span, Writer};

/// 2026-11-22T00:00:00Z.
const MIDNIGHT: u64 = 20_779 * DAY_MS;

#[test]
fn nodes_are_found_by_any_row_of_the_time_and_by_none_outside() {
    let dir = tempfile::tempdir().unwrap();
    let metrics = [
        Metric::gauge("used_bytes", "bytes", 1.0, "Memory."),
        Metric::gauge("rare_bytes", "bytes", 1.0, "Of no node here."),
    ];
    let mut writer = Writer::open(dir.path(), &metrics).unwrap();
    let value = [Some(1i64), None];
    // n0 all the time; n1 once, n2 in the last tick, which no roll-up has.
    let last = 3 * HOUR_MS + 90_000;
    for after in (0..=last).step_by(30_000) {
        let mut rows = vec![(0, value)];
        rows.extend((after == HOUR_MS + 30_000).then_some((1, value)));
        rows.extend((after == last).then_some((2, value)));
        let samples = rows.iter().map(|(node, values)| Sample {
            node: *node,
            values,
        });
        let samples: Vec<Sample> = samples.collect();
        writer.append(MIDNIGHT + after, &samples).unwrap();
    }
    let kept = |from: u64, to: u64| -> Vec<u32> {
        let span = Span {
            from_ms: MIDNIGHT + from,
            to_ms: MIDNIGHT + to,
        };
        let kept = Reader::new(dir.path()).kept(span, &[0, 1, 2, 7]).unwrap();
        kept.into_iter().collect()
    };
    assert_eq!(kept(0, DAY_MS), [0, 1, 2]);
    assert_eq!(kept(HOUR_MS, 2 * HOUR_MS), [0, 1]);
    // The edges are those of the time, not of the hours and minutes in it.
    assert_eq!(kept(HOUR_MS + 30_000, last), [0, 1]);
    assert_eq!(kept(HOUR_MS + 30_001, last + 1), [0, 2]);
    assert_eq!(kept(1, HOUR_MS + 30_001), [0, 1]);
    assert_eq!(kept(1, 29_999), [0; 0]);
    assert_eq!(kept(DAY_MS, 400 * DAY_MS), [0; 0]);
}
