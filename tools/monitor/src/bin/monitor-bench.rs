//! Measures the store for `cargo xtask bench overlay`: one JSON object a line.
//!
//! An hour of 1,024 nodes at 1 Hz with 32 metrics: half counters that grow by up to a million a
//! second (microseconds), half levels that wander (bytes in steps of a page, parts in a million).
//! Times are CPU time of this thread, so that a busy machine does not count; `wall_s` stands beside
//! them.

use std::time::Instant;

use hearth_monitor::reader::Nodes;
use hearth_monitor::{HOUR_MS, Kind, Level, Limits, Metric, Reader, Sample, Span, Writer, keep};

const NODES: usize = 1_024;
const METRICS: usize = 32;
/// 2026-11-22T10:00:00Z.
const BEGAN_MS: u64 = 20_779 * 86_400_000 + 10 * HOUR_MS;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::args()
        .nth(1)
        .map_or(Ok(3_600), |text| text.parse())?;
    let dir = std::env::temp_dir().join(format!("hearth-monitor-bench-{}", std::process::id()));
    let measured = measure(&dir, seconds);
    std::fs::remove_dir_all(&dir)?;
    measured
}

/// CPU time of this process in seconds: it has one thread.
fn cpu_s() -> Result<f64, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string("/proc/self/schedstat")?;
    let run = text
        .split(' ')
        .next()
        .ok_or("/proc/self/schedstat is empty")?;
    Ok(run.parse::<f64>()? / 1e9)
}

fn print(metric: &str, value: f64, unit: &str, goal: &str) {
    let case = format!("store/{NODES}x{METRICS}");
    let goal = if goal.is_empty() {
        "null".to_string()
    } else {
        format!("\"{goal}\"")
    };
    println!(
        "{{\"case\":\"{case}\",\"metric\":\"{metric}\",\"value\":{value},\"unit\":\"{unit}\",\"goal\":{goal}}}"
    );
}

fn step(values: &mut [Option<i64>], random: &mut fastrand::Rng) {
    for (index, value) in values.iter_mut().enumerate() {
        let value = value.get_or_insert(0);
        match index % 4 {
            0 => *value += random.i64(0..1_000_000),
            1 => *value += random.i64(0..2_000),
            2 => *value = (*value + 4_096 * (random.i64(0..513) - 256)).max(0),
            _ => *value = random.i64(0..1_000_001),
        }
    }
}

fn measure(dir: &std::path::Path, seconds: u64) -> Result<(), Box<dyn std::error::Error>> {
    let declare = |index: usize| match index % 4 {
        0 | 1 => Metric::counter(&format!("counter_{index}_total"), "", 1e-6, ""),
        _ => Metric::gauge(&format!("gauge_{index}"), "", 1.0, ""),
    };
    let metrics: Vec<Metric> = (0..METRICS).map(declare).collect();
    let mut random = fastrand::Rng::with_seed(1);
    let mut values = vec![[None; METRICS]; NODES];
    let mut writer = Writer::open(dir, &metrics)?;
    let limits = Limits {
        days: 10,
        bytes: u64::MAX,
    };
    let (mut ingest_s, mut longest_ms) = (0.0, 0.0f64);
    let began = Instant::now();
    for second in 0..seconds {
        values
            .iter_mut()
            .for_each(|values| step(values, &mut random));
        let samples: Vec<Sample> = (0u32..)
            .zip(&values)
            .map(|(node, values)| Sample { node, values })
            .collect();
        let at_ms = BEGAN_MS + second * 1_000;
        let (before, clock) = (cpu_s()?, Instant::now());
        let appended = writer.append(at_ms, &samples)?;
        ingest_s += cpu_s()? - before;
        longest_ms = longest_ms.max(clock.elapsed().as_secs_f64() * 1e3);
        if appended.stored != NODES as u64 {
            return Err(format!("{} of {NODES} samples stored", appended.stored).into());
        }
        // As the control node does it, from a thread of its own.
        if second % 10 == 9 {
            keep(dir, limits, at_ms)?;
        }
    }
    let wall_s = began.elapsed().as_secs_f64();
    drop(writer);
    let bytes = keep(dir, limits, BEGAN_MS)?.bytes;
    let count = (seconds as usize * NODES * METRICS) as f64;
    print(
        "values_per_s",
        count / ingest_s,
        "values a second of CPU",
        ">= 1000000",
    );
    print("longest_append_ms", longest_ms, "ms", "");
    print("bytes_per_value", bytes as f64 / count, "bytes", "<= 6");
    print("file_bytes", bytes as f64, "bytes", "");
    print("wall_s", wall_s, "s", "");
    open(dir, seconds)
}

/// What the page asks for when it is opened on the past hour: the metrics, of everybody the last
/// values of the four that a cell of the grid needs, all last values of one node, one metric over
/// the hour for all nodes together, small charts of every node, and one node second by second.
fn open(dir: &std::path::Path, seconds: u64) -> Result<(), Box<dyn std::error::Error>> {
    let span = Span {
        from_ms: BEGAN_MS,
        to_ms: BEGAN_MS + seconds * 1_000,
    };
    let (before, clock) = (cpu_s()?, Instant::now());
    let reader = Reader::new(dir);
    let metrics = reader.metrics(span)?;
    let chosen = metrics
        .iter()
        .find(|metric| metric.kind == Kind::Gauge)
        .ok_or("no gauge")?;
    let last = reader.shown_at(span.to_ms, 5_000, &metrics[..4], Nodes::All)?;
    let of_one = reader.shown_at(span.to_ms, 5_000, &metrics, Nodes::Only(&[512]))?;
    let all = reader.series(chosen, Level::Minute, span, Nodes::All)?;
    let small = reader.by_node(chosen, Level::Minute, span, Nodes::All)?;
    let one = reader.series(chosen, Level::Tick, span, Nodes::Only(&[512]))?;
    let (cpu_ms, open_ms) = (
        (cpu_s()? - before) * 1e3,
        clock.elapsed().as_secs_f64() * 1e3,
    );
    let minutes = seconds.div_ceil(60) as usize;
    let is_whole = |values: &[Option<f64>]| values.iter().all(Option::is_some);
    if (last.len(), all.len(), small.len(), one.len()) != (NODES, minutes, NODES, seconds as usize)
        || !last.values().all(|shown| is_whole(&shown.values))
        || !of_one
            .get(&512)
            .is_some_and(|shown| is_whole(&shown.values))
    {
        return Err("the hour did not come back whole".into());
    }
    print("open_cpu_ms", cpu_ms, "ms of CPU", "<= 1000");
    print("open_ms", open_ms, "ms", "");
    Ok(())
}
