//! An hour of 1,024 nodes in the files, opened on the page in a browser.
//!
//! Neighbours: `watching` has the feed; `cargo xtask bench overlay --only page` reads the figures.
//!
//! Invariant: the files are written by the control node's own writer, and asked by the page itself.

use std::time::{SystemTime, UNIX_EPOCH};

use hearth_control::monitor::{Monitor, Setup};
use hearth_monitor::{Sample, Writer};
use hearth_tests::browser::Browser;

use crate::watching::feed;

const NODES: u32 = 1_024;
/// Metrics that have values.
const METRICS: usize = 32;
/// Seconds of the past; the figures are of an hour, see [`seconds`].
const HOUR_S: u64 = 3_600;
/// What the page shows when it is opened, in seconds.
const FIRST_S: u64 = 900;
/// The page is opened so often.
const TURNS: usize = 5;

/// Seconds that are stored: those of an hour for figures, those that the page begins with for a
/// test.
fn seconds() -> u64 {
    match std::env::var("HEARTH_FIGURES").is_ok() {
        true => HOUR_S,
        false => FIRST_S,
    }
}

/// Values of all nodes for each second until now: half of the metrics grow, the others wander.
fn fill(dir: &std::path::Path, seconds: u64) {
    // What control measures, without a folder, so that nobody else writes.
    let monitor = Monitor::new(Setup::default());
    let metrics = monitor.metrics();
    let shown = monitor
        .metric("hearth_node_busy_ratio")
        .expect("it is measured");
    let mut writer = Writer::open(dir, metrics).unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    let mut values = vec![vec![None; metrics.len()]; NODES as usize];
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let began_ms = (now.as_secs() - seconds) * 1_000;
    for second in 0..seconds {
        for values in &mut values {
            for (index, value) in values.iter_mut().take(METRICS).enumerate() {
                let value = value.get_or_insert(0);
                match index % 4 {
                    _ if index == shown => *value = random.i64(0..1_000_001),
                    0 => *value += random.i64(0..1_000_000),
                    1 => *value += random.i64(0..2_000),
                    _ => *value = (*value + 4_096 * (random.i64(0..513) - 256)).max(0),
                }
            }
        }
        let samples: Vec<Sample> = (0..NODES)
            .zip(&values)
            .map(|(node, values)| Sample { node, values })
            .collect();
        let appended = writer.append(began_ms + second * 1_000, &samples).unwrap();
        assert_eq!(appended.stored, u64::from(NODES));
    }
    assert!(shown < METRICS, "what the page shows has values");
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn figure(metric: &str, unit: &str, value: f64) {
    println!("{{\"metric\":\"{metric}\",\"unit\":\"{unit}\",\"value\":{value}}}");
}

#[test]
#[ignore = "needs Chromium"]
fn an_hour_of_a_thousand_nodes_opens_on_the_page() {
    let dir = tempfile::tempdir().unwrap();
    let seconds = seconds();
    fill(dir.path(), seconds);
    let feed = feed(NODES, dir);
    let mut browser = Browser::start();
    browser.look(1280, 1000, "light");
    let number = |browser: &mut Browser, name: &str| {
        let value = browser.value(&format!("Number(document.body.dataset.{name})"));
        value.as_f64().unwrap()
    };
    let (mut opened, mut hours) = (Vec::new(), Vec::new());
    for turn in 0..TURNS {
        browser.open(&format!("http://{}/?{turn}", feed.address));
        // All nodes, and the last quarter of an hour second by second.
        let cells = "document.querySelectorAll('.cell[data-index]').length";
        let points = "Number(document.body.dataset.chartPoints)";
        browser.until(&format!(
            "{cells} === {NODES} && {points} >= {}",
            FIRST_S - 60
        ));
        opened.push(number(&mut browser, "chartAtMs"));
        let charts = number(&mut browser, "charts");
        browser.choose("#range", "3600");
        // A chart of the ticks that come meanwhile is not the hour's: it has a point for each
        // second.
        browser.until(&format!(
            "Number(document.body.dataset.charts) > {charts} && {points} <= {}",
            seconds / 60 + 2
        ));
        let minutes = number(&mut browser, "chartPoints");
        assert!(minutes >= (seconds / 60 - 1) as f64, "{minutes} minutes");
        hours.push(number(&mut browser, "chartMs"));
    }
    assert_eq!(browser.errors(), [""; 0]);
    figure("open_ms", "ms", median(opened));
    figure("hour_ms", "ms", median(hours));
    figure("stored_s", "s", seconds as f64);
}
