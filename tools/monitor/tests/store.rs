//! The files as a whole: what goes in comes out, live and later, over restarts, midnight and
//! limits.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use hearth_monitor::reader::Nodes;
use hearth_monitor::{
    DAY_MS, HOUR_MS, Level, Limits, MINUTE_MS, Metric, MonitorError, Reader, Reduced, ReducedTick,
    Rollup, Sample, Span, Writer, csv, keep,
};
use proptest::prelude::*;

/// 2026-11-22T00:00:00Z.
const MIDNIGHT: u64 = 20_779 * DAY_MS;

fn metrics() -> Vec<Metric> {
    vec![
        Metric::gauge("used_bytes", "bytes", 1.0, "Memory."),
        Metric::counter("idle_seconds_total", "seconds", 1e-6, "Idle."),
    ]
}

fn put(writer: &mut Writer, at: u64, rows: &[(u32, [Option<i64>; 2])]) -> (u64, u64) {
    let samples: Vec<Sample> = rows
        .iter()
        .map(|(node, values)| Sample {
            node: *node,
            values,
        })
        .collect();
    let appended = writer.append(at, &samples).unwrap();
    (appended.stored, appended.late)
}

fn rows(dir: &Path, level: Level, span: Span, nodes: Nodes) -> Vec<(u64, u32, Vec<Rollup>)> {
    let mut rows = Vec::new();
    let mut visit = |at, node, rollups: &[Rollup]| {
        rows.push((at, node, rollups.to_vec()));
        ControlFlow::Continue(())
    };
    Reader::new(dir)
        .visit(level, span, nodes, &metrics(), &mut visit)
        .unwrap();
    rows
}

const DAY: Span = Span {
    from_ms: MIDNIGHT,
    to_ms: MIDNIGHT + DAY_MS,
};

/// What the files should say at `level`: the model.
fn model(kept: &BTreeMap<(u64, u32), [Option<i64>; 2]>, step: u64) -> Vec<(u64, u32, Vec<Rollup>)> {
    let mut rolled: BTreeMap<(u64, u32), Vec<Rollup>> = BTreeMap::new();
    for ((at, node), values) in kept {
        let row = rolled
            .entry((at - at % step, *node))
            .or_insert(vec![Rollup::EMPTY; 2]);
        for (rollup, value) in row.iter_mut().zip(values) {
            if let Some(value) = value {
                rollup.add(*value);
            }
        }
    }
    rolled
        .into_iter()
        .filter(|(_, row)| row.iter().any(|rollup| rollup.count > 0))
        .map(|((at, node), row)| (at, node, row))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Ticks at random intervals with random nodes, restarts in between: every level is the
    /// model's, for all nodes and for one.
    #[test]
    fn every_level_says_what_came_in(
        ticks in proptest::collection::vec(
            (1u64..400_000, any::<bool>(), proptest::collection::vec((0u32..4, any::<[Option<i32>; 2]>()), 0..4)),
            1..60,
        ),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::open(dir.path(), &metrics()).unwrap();
        let mut kept = BTreeMap::new();
        let mut at = MIDNIGHT;
        for (later, restart, rows) in ticks {
            at += later;
            let rows: Vec<_> = rows.into_iter().map(|(node, values)| (node, values.map(|value| value.map(i64::from)))).collect();
            let (stored, late) = put(&mut writer, at, &rows);
            prop_assert_eq!(stored + late, rows.len() as u64);
            for (node, values) in rows {
                kept.entry((at, node)).or_insert(values);
            }
            if restart {
                drop(writer);
                writer = Writer::open(dir.path(), &metrics()).unwrap();
            }
        }
        for (level, step) in [(Level::Tick, 1), (Level::Minute, MINUTE_MS), (Level::Hour, HOUR_MS)] {
            let expected = model(&kept, step);
            prop_assert_eq!(&rows(dir.path(), level, DAY, Nodes::All), &expected);
            let of_one: Vec<_> = expected.into_iter().filter(|(_, node, _)| *node == 1).collect();
            prop_assert_eq!(rows(dir.path(), level, DAY, Nodes::Only(&[1])), of_one);
        }
    }
}

#[test]
fn a_day_begins_a_file_and_a_late_tick_of_the_old_one_is_still_taken() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path(), &metrics()).unwrap();
    let value = |value| [Some(value), None];
    assert_eq!(
        put(
            &mut writer,
            MIDNIGHT - 2_000,
            &[(0, value(1)), (1, value(2))]
        ),
        (2, 0)
    );
    assert_eq!(put(&mut writer, MIDNIGHT + 500, &[(0, value(3))]), (1, 0));
    // Within the grace, and not older than what the node has.
    assert_eq!(put(&mut writer, MIDNIGHT - 1_000, &[(1, value(4))]), (1, 0));
    assert_eq!(put(&mut writer, MIDNIGHT - 2_000, &[(1, value(9))]), (0, 1));
    // The minute is over now.
    assert_eq!(put(&mut writer, MIDNIGHT + 6_000, &[(0, value(5))]), (1, 0));
    assert_eq!(put(&mut writer, MIDNIGHT - 500, &[(1, value(9))]), (0, 1));
    assert_eq!(
        std::fs::read_dir(dir.path())
            .unwrap()
            .filter(|entry| {
                entry
                    .as_ref()
                    .unwrap()
                    .path()
                    .extension()
                    .is_some_and(|end| end == "metrics")
            })
            .count(),
        2
    );
    let span = Span {
        from_ms: MIDNIGHT - HOUR_MS,
        to_ms: MIDNIGHT + HOUR_MS,
    };
    let found: Vec<(u64, u32, i64)> = rows(dir.path(), Level::Tick, span, Nodes::All)
        .into_iter()
        .map(|(at, node, rollups)| (at, node, rollups[0].max))
        .collect();
    assert_eq!(
        found,
        [
            (MIDNIGHT - 2_000, 0, 1),
            (MIDNIGHT - 2_000, 1, 2),
            (MIDNIGHT - 1_000, 1, 4),
            (MIDNIGHT + 500, 0, 3),
            (MIDNIGHT + 6_000, 0, 5),
        ]
    );
}

#[test]
fn a_series_has_rates_of_counters_and_gaps_where_nodes_booted() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path(), &metrics()).unwrap();
    for second in 0..10u64 {
        // Node 0 idles half the time; node 1 boots at second 5 and idles always.
        let zero = [Some(100), Some(second as i64 * 500_000)];
        let one = [Some(300), Some((second % 5) as i64 * 1_000_000)];
        put(
            &mut writer,
            MIDNIGHT + second * 1_000,
            &[(0, zero), (1, one)],
        );
    }
    let reader = Reader::new(dir.path());
    let span = Span {
        from_ms: MIDNIGHT + 1_000,
        to_ms: MIDNIGHT + 10_000,
    };
    let idle = reader
        .series(&metrics()[1], Level::Tick, span, Nodes::All)
        .unwrap();
    assert_eq!(idle.len(), 9);
    assert_eq!(
        (idle[0].min, idle[0].max, idle[0].mean, idle[0].nodes),
        (0.5, 1.0, 0.75, 2)
    );
    assert_eq!((idle[4].max, idle[4].nodes), (0.5, 1), "node 1 began anew");
    let used = reader
        .series(&metrics()[0], Level::Minute, DAY, Nodes::All)
        .unwrap();
    assert_eq!(
        (used.len(), used[0].min, used[0].mean, used[0].nodes),
        (1, 100.0, 200.0, 2)
    );
    let lists = reader
        .by_node(&metrics()[1], Level::Tick, span, Nodes::Only(&[0]))
        .unwrap();
    assert_eq!((lists.len(), lists[&0].len(), lists[&0][0].1), (1, 9, 0.5));
    let last = |at, nodes| reader.shown_at(at, 30_000, &metrics(), nodes).unwrap();
    let one = last(MIDNIGHT + 20_000, Nodes::All).remove(&1).unwrap();
    assert_eq!(
        (one.at_ms, one.values),
        (MIDNIGHT + 9_000, vec![Some(300.0), Some(1.0)])
    );
    let of_zero = last(MIDNIGHT + 20_000, Nodes::Only(&[0]));
    assert_eq!(of_zero.into_keys().collect::<Vec<_>>(), [0]);
    assert!(last(MIDNIGHT + 60_000, Nodes::All).is_empty());
}

/// 5667983 times 1e-6 is 5.6679829999999995: every answer says the number that CSV says.
#[test]
fn a_value_is_the_same_number_in_every_answer() {
    let dir = tempfile::tempdir().unwrap();
    let uptime = Metric::gauge("up_seconds", "seconds", 1e-6, "Up.");
    let mut writer = Writer::open(dir.path(), std::slice::from_ref(&uptime)).unwrap();
    let values = [Some(5_667_983)];
    let sample = Sample {
        node: 3,
        values: &values,
    };
    writer.append(MIDNIGHT, &[sample]).unwrap();
    let reader = Reader::new(dir.path());
    let series = reader
        .series(&uptime, Level::Tick, DAY, Nodes::All)
        .unwrap();
    let point = series[0];
    assert_eq!([point.min, point.mean, point.max], [5.667983; 3]);
    let by_node = reader
        .by_node(&uptime, Level::Tick, DAY, Nodes::All)
        .unwrap();
    assert_eq!(by_node[&3], [(MIDNIGHT, 5.667983)]);
    let shown = reader.shown_at(MIDNIGHT, 0, &[uptime], Nodes::All).unwrap();
    assert_eq!(shown[&3].values, [Some(5.667983)]);
}

#[test]
fn reduced_values_keep_their_coverage() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path(), &metrics()).unwrap();
    // One metric that nodes have, and one of its own.
    let own = [metrics()[1].clone(), Metric::gauge("mean", "", 1e-6, ".")];
    let put = |writer: &mut Writer, after_ms: u64, covers, values: &[Option<i64>]| {
        let reduced = Reduced {
            stream: "stream-3",
            metrics: &own,
            covers,
            nodes: 4,
            values,
        };
        writer
            .append_reduced(MIDNIGHT + after_ms, &reduced)
            .unwrap();
    };
    put_nodes(&mut writer, 1_000);
    put(&mut writer, 1_000, 3, &[None, None]);
    // The rest of the metrics, of the same nodes.
    put(&mut writer, 1_000, 3, &[Some(-5), None]);
    put(&mut writer, 1_000, 2, &[Some(99), None]);
    put(&mut writer, DAY_MS + 1_000, 4, &[None, Some(7)]);
    put_nodes(&mut writer, DAY_MS + 1_000);
    // As after a restart, of the same stream.
    let mut writer = Writer::open(dir.path(), &metrics()).unwrap();
    put(&mut writer, DAY_MS + 2_000, 4, &[Some(1), Some(8)]);
    let reader = Reader::new(dir.path());
    let span = Span {
        from_ms: MIDNIGHT,
        to_ms: MIDNIGHT + 2 * DAY_MS,
    };
    let tick = |after_ms, covers, values: [Option<i64>; 2]| ReducedTick {
        at_ms: MIDNIGHT + after_ms,
        covers,
        nodes: 4,
        values: values.to_vec(),
    };
    let found = reader.reduced("stream-3", span).unwrap().unwrap();
    assert_eq!(found.metrics, own);
    let expected = [
        tick(1_000, 3, [Some(-5), None]),
        tick(DAY_MS + 1_000, 4, [None, Some(7)]),
        tick(DAY_MS + 2_000, 4, [Some(1), Some(8)]),
    ];
    assert_eq!(found.ticks, expected);
    assert_eq!(reader.reduced("stream-4", span).unwrap(), None);
    let streams = reader.streams(span).unwrap();
    assert_eq!(streams.len(), 1);
    assert_eq!((&streams[0].name[..], streams[0].ticks), ("stream-3", 3));
    assert_eq!(streams[0].from_ms, MIDNIGHT + 1_000);
    assert_eq!(streams[0].to_ms, MIDNIGHT + DAY_MS + 2_000);
    // Rows of nodes are what they were.
    let nodes = Nodes::Only(&[0]);
    let rows = reader.by_node(&metrics()[0], Level::Tick, DAY, nodes);
    assert_eq!(rows.unwrap()[&0], [(MIDNIGHT + 1_000, 1.0)]);
}

fn put_nodes(writer: &mut Writer, after_ms: u64) {
    put(writer, MIDNIGHT + after_ms, &[(0, [Some(1), Some(2)])]);
}

#[test]
fn whole_files_go_by_age_and_by_size_and_never_the_newest() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path(), &metrics()).unwrap();
    for day in 0..5 {
        put(
            &mut writer,
            MIDNIGHT + day * DAY_MS,
            &[(0, [Some(1), Some(2)])],
        );
    }
    let now = MIDNIGHT + 4 * DAY_MS;
    let all = Limits {
        days: 3,
        bytes: u64::MAX,
    };
    let kept = keep(dir.path(), all, now).unwrap();
    assert_eq!(kept.removed.len(), 2);
    let small = Limits {
        days: 100,
        bytes: kept.bytes / 2,
    };
    assert_eq!(keep(dir.path(), small, now).unwrap().removed.len(), 2);
    let none = Limits { days: 1, bytes: 0 };
    assert!(
        keep(dir.path(), none, now + 400 * DAY_MS)
            .unwrap()
            .removed
            .is_empty()
    );
    // What is there goes on being written.
    assert_eq!(
        put(&mut writer, now + 1_000, &[(0, [Some(1), Some(2)])]),
        (1, 0)
    );
    let week = Span {
        from_ms: MIDNIGHT,
        to_ms: MIDNIGHT + 7 * DAY_MS,
    };
    assert_eq!(rows(dir.path(), Level::Tick, week, Nodes::All).len(), 2);
}

#[test]
fn a_checkpoint_and_a_reader_are_not_in_the_writer_s_way() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path(), &metrics()).unwrap();
    let limits = Limits {
        days: 9,
        bytes: u64::MAX,
    };
    for second in 0..50 {
        put(
            &mut writer,
            MIDNIGHT + second * 1_000,
            &[(0, [Some(1), Some(2)])],
        );
        keep(dir.path(), limits, MIDNIGHT).unwrap();
        assert_eq!(
            rows(dir.path(), Level::Tick, DAY, Nodes::All).len() as u64,
            second + 1
        );
    }
}

#[test]
fn hostile_names_are_data() {
    let names = [
        "'); DROP TABLE samples; --",
        "=cmd()",
        "a\"b\nc",
        "naïve ☃ <script>",
    ];
    let hostile: Vec<Metric> = names
        .iter()
        .map(|name| Metric::gauge(name, "\"", 1.0, "';--"))
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path(), &hostile).unwrap();
    let values = [Some(-1), Some(2), Some(3), Some(4)];
    writer
        .append(
            MIDNIGHT,
            &[Sample {
                node: 0,
                values: &values,
            }],
        )
        .unwrap();
    let reader = Reader::new(dir.path());
    assert_eq!(reader.metrics(DAY).unwrap(), hostile);
    let mut out = Vec::new();
    let name = |_| "=HYPERLINK(\"x\")".to_string();
    let rows = csv::export(
        &reader,
        Level::Tick,
        DAY,
        Nodes::All,
        &hostile,
        &name,
        &mut out,
    );
    assert_eq!(rows.unwrap(), 1);
    let text = String::from_utf8(out).unwrap();
    assert_eq!(
        text,
        "time,node,'); DROP TABLE samples; --,\"'=cmd()\",\"a\"\"b\nc\",naïve ☃ <script>\r\n\
        2026-11-22T00:00:00.000Z,\"'=HYPERLINK(\"\"x\"\")\",-1,2,3,4\r\n"
    );
}

#[test]
fn wrong_use_is_an_error_that_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path(), &metrics()).unwrap();
    let values = [Some(1); 3];
    let error = writer.append(
        MIDNIGHT,
        &[Sample {
            node: 0,
            values: &values,
        }],
    );
    assert!(matches!(
        error,
        Err(MonitorError::Values {
            values: 3,
            metrics: 2
        })
    ));
    let error = writer.append(
        MIDNIGHT,
        &[Sample {
            node: 1 << 20,
            values: &values[..1],
        }],
    );
    assert!(matches!(error, Err(MonitorError::NodeNumber(_))));
    assert!(
        Reader::new(&dir.path().join("missing"))
            .metrics(DAY)
            .unwrap()
            .is_empty()
    );
}

#[test]
fn a_metric_that_changes_its_meaning_gets_a_column_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path(), &metrics()).unwrap();
    put(&mut writer, MIDNIGHT, &[(0, [Some(1), Some(2)])]);
    drop(writer);
    // Another order, another scale.
    let milli = Metric::counter("idle_seconds_total", "seconds", 1e-3, "Idle.");
    let changed = [milli.clone(), metrics()[0].clone()];
    let mut writer = Writer::open(dir.path(), &changed).unwrap();
    put(&mut writer, MIDNIGHT + 1_000, &[(0, [Some(7), Some(8)])]);
    let reader = Reader::new(dir.path());
    // Stored values, one by one: rates of a single tick there are none.
    let found = |at_ms: u64, metrics: &[Metric]| {
        let span = Span {
            from_ms: at_ms,
            to_ms: at_ms + 1,
        };
        let mut found = Vec::new();
        reader
            .visit(
                Level::Tick,
                span,
                Nodes::All,
                metrics,
                &mut |_, _, rollups| {
                    found.extend(rollups.iter().map(|rollup| rollup.max));
                    ControlFlow::Continue(())
                },
            )
            .unwrap();
        found
    };
    assert_eq!(found(MIDNIGHT + 1_000, &changed), [7, 8]);
    assert_eq!(found(MIDNIGHT, &metrics()), [1, 2]);
}

#[test]
fn a_reader_that_takes_its_time_holds_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path(), &metrics()).unwrap();
    for second in 0..3 {
        put(
            &mut writer,
            MIDNIGHT + second * 1_000,
            &[(0, [Some(1), None]), (1, [Some(2), None])],
        );
    }
    let file = dir.path().join("2026-11-22.metrics");
    let checkpointed = || {
        let connection = rusqlite::Connection::open(&file).unwrap();
        let whole = |row: &rusqlite::Row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
        connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], whole)
            .unwrap()
    };
    let mut at = MIDNIGHT + 10_000;
    for nodes in [Nodes::All, Nodes::Only(&[0, 1])] {
        let mut visited = 0;
        Reader::new(dir.path())
            .visit(Level::Tick, DAY, nodes, &metrics(), &mut |_, _, _| {
                visited += 1;
                // Ticks come in while somebody looks, and all of the log goes into the file.
                at += 1;
                assert_eq!(put(&mut writer, at, &[(2, [Some(3), None])]), (1, 0));
                assert_eq!(checkpointed(), (0, 0), "a statement is open");
                ControlFlow::Continue(())
            })
            .unwrap();
        assert!(visited >= 6, "{visited}");
    }
}

/// Reading in parts while a tick comes in behind what was read: what is read later is right all the
/// same.
#[test]
fn a_tick_behind_the_reader_does_no_harm_to_later_ones() {
    const MANY: u32 = 5_000;
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path(), &metrics()).unwrap();
    let all = |value| -> Vec<_> { (0..MANY).map(|node| (node, [Some(value), None])).collect() };
    put(&mut writer, MIDNIGHT, &[(MANY, [Some(100), None])]);
    put(&mut writer, MIDNIGHT + 2_000, &all(1));
    let mut found = Vec::new();
    let mut came = false;
    Reader::new(dir.path())
        .visit(
            Level::Tick,
            DAY,
            Nodes::All,
            &metrics(),
            &mut |at, node, rollups| {
                if node == MANY {
                    found.push((at, rollups[0].max));
                } else if !came {
                    came = true;
                    // One tick of a node late, another one in its order.
                    let late = put(
                        &mut writer,
                        MIDNIGHT + 1_000,
                        &[(MANY, [Some(5_000), None])],
                    );
                    assert_eq!(late, (1, 0));
                    put(
                        &mut writer,
                        MIDNIGHT + 3_000,
                        &[(MANY, [Some(5_001), None])],
                    );
                }
                ControlFlow::Continue(())
            },
        )
        .unwrap();
    assert_eq!(found, [(MIDNIGHT, 100), (MIDNIGHT + 3_000, 5_001)]);
    let now = rows(dir.path(), Level::Tick, DAY, Nodes::Only(&[MANY]));
    let values: Vec<i64> = now.iter().map(|(_, _, rollups)| rollups[0].max).collect();
    assert_eq!(values, [100, 5_000, 5_001]);
}

#[test]
fn an_answer_has_a_bound() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path(), &metrics()).unwrap();
    for second in 0..10 {
        let rows = [0, 1, 2, 3].map(|node| (node, [Some(1), Some(second)]));
        put(&mut writer, MIDNIGHT + second as u64 * 1_000, &rows);
    }
    let ask = |values: usize, nodes| {
        let reader = Reader::new(dir.path()).at_most(values);
        let lists = reader.by_node(&metrics()[0], Level::Tick, DAY, nodes);
        lists.map(|lists| lists.values().map(Vec::len).sum::<usize>())
    };
    assert_eq!(ask(40, Nodes::All).unwrap(), 40);
    assert!(matches!(
        ask(39, Nodes::All),
        Err(MonitorError::TooMuch(39))
    ));
    assert_eq!(ask(39, Nodes::Only(&[0, 2])).unwrap(), 20);
    let points = |values: usize| {
        let reader = Reader::new(dir.path()).at_most(values);
        reader.series(&metrics()[0], Level::Tick, DAY, Nodes::All)
    };
    assert_eq!(points(10).unwrap().len(), 10);
    assert!(matches!(points(9), Err(MonitorError::TooMuch(9))));
}

#[test]
fn a_roll_up_that_cannot_be_written_is_written_later() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path(), &metrics()).unwrap();
    let value = |value| [(0, [Some(value), None])];
    put(&mut writer, MIDNIGHT, &value(1));
    put(&mut writer, MIDNIGHT + 30_000, &value(2));
    // Somebody else writes for longer than the writer waits.
    let other = rusqlite::Connection::open(dir.path().join("2026-11-22.metrics")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let values = [Some(3), None];
    let sample = Sample {
        node: 0,
        values: &values,
    };
    writer.append(MIDNIGHT + 70_000, &[sample]).unwrap_err();
    other.execute_batch("ROLLBACK").unwrap();
    put(&mut writer, MIDNIGHT + 71_000, &value(4));
    put(&mut writer, MIDNIGHT + HOUR_MS + 71_000, &value(5));
    for writer in [Some(writer), None] {
        let found: Vec<_> = rows(dir.path(), Level::Minute, DAY, Nodes::All)
            .into_iter()
            .map(|(at, _, rollups)| (at - MIDNIGHT, rollups[0].sum))
            .collect();
        assert_eq!(found, [(0, 3), (MINUTE_MS, 4), (HOUR_MS + MINUTE_MS, 5)]);
        let hours = rows(dir.path(), Level::Hour, DAY, Nodes::All);
        assert_eq!(hours[0].2[0].sum, 7);
        drop(writer);
    }
}

#[test]
fn a_clock_that_was_ahead_costs_nothing_but_that_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path(), &metrics()).unwrap();
    let value = |value| [(0, [Some(value), None])];
    for day in 0..5 {
        put(&mut writer, MIDNIGHT + day * DAY_MS, &value(1));
    }
    // Five seconds in another year, then back.
    let (now, wrong) = (MIDNIGHT + 4 * DAY_MS + 600_000, MIDNIGHT + 1_500 * DAY_MS);
    put(&mut writer, now, &value(2));
    for second in 0..5 {
        put(&mut writer, wrong + second * 1_000, &value(9));
    }
    let limits = Limits {
        days: 30,
        bytes: u64::MAX,
    };
    assert!(keep(dir.path(), limits, wrong).unwrap().removed.is_empty());
    // The minute under way was closed by then; the next one is kept.
    assert_eq!(put(&mut writer, now + 6_000, &value(3)), (0, 1));
    let span = Span {
        from_ms: MIDNIGHT,
        to_ms: MIDNIGHT + 5 * DAY_MS,
    };
    let hour = |from: usize| {
        let hours = rows(dir.path(), Level::Hour, span, Nodes::All);
        hours[from].2[0].sum
    };
    for minute in 1..60 {
        let at = now + minute * MINUTE_MS;
        assert_eq!(put(&mut writer, at, &value(4)), (1, 0), "minute {minute}");
        if minute == 30 {
            assert_eq!(hour(4), 1 + 2 + 30 * 4, "an hour that was closed goes on");
        }
    }
    // Ticks at 0:00 and 0:10, and one in each minute from 0:11 to 0:59; the hour was closed at
    // 0:10.
    assert_eq!(hour(4), 1 + 2 + 49 * 4);
    drop(writer);
    let mut writer = Writer::open(dir.path(), &metrics()).unwrap();
    put(&mut writer, now + HOUR_MS, &value(4));
    put(&mut writer, now + 2 * HOUR_MS, &value(4));
    assert_eq!(hour(4), 1 + 2 + 49 * 4);
    // In a year long past: the file of that day is new, and stays as long as it is today's.
    assert_eq!(put(&mut writer, DAY_MS, &value(7)), (1, 0));
    let two = Limits { days: 2, ..limits };
    let kept = keep(dir.path(), two, DAY_MS).unwrap();
    assert_eq!(kept.removed.len(), 5);
    assert!(dir.path().join("1970-01-02.metrics").exists());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the clock does, roll-ups are those of the ticks that are there.
    #[test]
    fn roll_ups_are_true_under_any_clock(
        steps in proptest::collection::vec((0u32..12, 1u64..100_000, 0u32..3), 1..60),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::open(dir.path(), &metrics()).unwrap();
        let mut at = MIDNIGHT + 12 * HOUR_MS;
        let mut stored = 0;
        for (index, (kind, apart, node)) in steps.into_iter().enumerate() {
            at = match kind {
                0 => at - apart * 30,
                1 => at + apart * 30,
                2 => at - apart * 2_000,
                3 => at + apart * 2_000,
                _ => at + apart,
            };
            stored += put(&mut writer, at, &[(node, [Some(index as i64 * 1_000), Some(1)])]).0;
        }
        let span = Span { from_ms: 0, to_ms: MIDNIGHT + 400 * DAY_MS };
        let ticks = rows(dir.path(), Level::Tick, span, Nodes::All);
        prop_assert_eq!(ticks.len() as u64, stored);
        let kept = ticks.into_iter().map(|(at, node, row)| {
            prop_assert_eq!(row[1].max, 1);
            Ok(((at, node), [Some(row[0].max), Some(1)]))
        });
        let kept = kept.collect::<Result<BTreeMap<_, _>, TestCaseError>>()?;
        for (level, step) in [(Level::Minute, MINUTE_MS), (Level::Hour, HOUR_MS)] {
            prop_assert_eq!(rows(dir.path(), level, span, Nodes::All), model(&kept, step));
        }
    }
}

/// Writes noise over a part of a file.
fn damage(path: &std::path::Path, from: usize, bytes: usize) {
    let mut text = std::fs::read(path).unwrap();
    let end = text.len().min(from + bytes);
    for (index, byte) in text[from..end].iter_mut().enumerate() {
        *byte = (index * 151 + 7) as u8;
    }
    std::fs::write(path, text).unwrap();
}

#[test]
fn a_damaged_day_costs_itself_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let metrics = metrics();
    let metric = &metrics[0];
    for day in 0..3 {
        let mut writer = Writer::open(dir.path(), &metrics).unwrap();
        let values = vec![Some(7); metrics.len()];
        let samples = [Sample {
            node: 1,
            values: &values,
        }];
        for second in 0..200 {
            writer
                .append(MIDNIGHT + day * DAY_MS + second * 1_000, &samples)
                .unwrap();
        }
    }
    let limits = Limits {
        days: 10,
        bytes: u64::MAX,
    };
    let now = MIDNIGHT + 2 * DAY_MS;
    assert!(keep(dir.path(), limits, now).unwrap().troubles.is_empty());
    let span = Span {
        from_ms: MIDNIGHT,
        to_ms: MIDNIGHT + 3 * DAY_MS,
    };
    let count = |reader: &Reader| {
        let points = reader.series(metric, Level::Tick, span, Nodes::All);
        points.unwrap().len()
    };
    let reader = Reader::new(dir.path());
    assert_eq!((count(&reader), reader.damaged().len()), (600, 0));
    // The day in the middle from its head on; below, the last one from its second page on.
    let mut files: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "metrics"));
    files.sort();
    damage(&files[1], 0, 160_000);
    let reader = Reader::new(dir.path());
    assert_eq!(count(&reader), 400);
    assert_eq!(reader.damaged(), [files[1].clone()]);
    assert_eq!(reader.metrics(span).unwrap().len(), metrics.len());
    // Its log cannot be moved, and files beyond the limits go nevertheless.
    let limits = Limits { days: 2, ..limits };
    let kept = keep(dir.path(), limits, now).unwrap();
    assert_eq!((kept.removed.len(), kept.troubles.len()), (1, 1));
    assert!(kept.troubles[0].to_string().contains("damaged"));
    // Who writes to it is told what it is.
    let mut writer = Writer::open(dir.path(), &metrics).unwrap();
    let refused = writer.append(MIDNIGHT + DAY_MS + 300_000, &[]).unwrap_err();
    assert!(
        matches!(&refused, MonitorError::Damaged { path, .. } if *path == files[1]),
        "{refused}"
    );
    assert!(refused.to_string().contains("move it away"), "{refused}");
    // Damage inside a file costs what comes behind it.
    damage(&files[2], 8_192, 1 << 20);
    let reader = Reader::new(dir.path());
    assert!(count(&reader) < 200);
    assert!(reader.damaged().contains(&files[2]));
}
