//! Casts whose figures stand in the reviewed table: a change of the engine shows there.
//!
//! Invariant: every line is the command line of one run, small enough that all take a few seconds.

use clap::Parser;

use super::options::Options;
use super::summary::Summary;
use super::world::World;

/// The command lines, after `cargo xtask sim broadcast`.
const LINES: &[&str] = &[
    "--nodes 1 --bytes 1MB",
    "--nodes 8 --bytes 8MB",
    "--nodes 16 --bytes 4MB --rate 5Mbit --latency 1ms --real",
    "--nodes 64 --bytes 8MB",
    "--nodes 64 --bytes 8MB --loss 1%",
    "--nodes 64 --bytes 8MB --slow 2%",
    "--nodes 64 --bytes 8MB --kill first-layer",
    "--nodes 64 --bytes 8MB --warm 50%",
    "--nodes 64 --bytes 8MB --latency 100us",
    "--nodes 64 --bytes 8MB --latency 200us --members 64 --full 5%",
    "--nodes 64 --bytes 4MB --latency 200us --members 128 --casts 3",
    "--nodes 64 --bytes 4MB --casts 2",
    "--nodes 32 --bytes 4MB --casts 8",
    "--nodes 64 --bytes 4MB --cancel 2ms",
    "--nodes 64 --bytes 4MB --crash-control 2ms --restart-control 3ms",
    "--nodes 300 --bytes 2MB --loss 1% --kill 2%",
    "--nodes 272 --bytes 20MB --loss 1%",
    "--nodes 272 --bytes 20MB --kill first-layer",
    "--nodes 1056 --bytes 8MB --scheme grid --slow 2%",
    "--nodes 4160 --bytes 1MB --scheme grid --loss 1% --kill 1%",
    "--nodes 64 --bytes 4MB --scheme tree",
    "--nodes 16 --bytes 2MB --scheme direct",
];

/// The figures of every line.
pub fn table() -> String {
    LINES.iter().map(|line| row(line)).collect()
}

fn row(line: &str) -> String {
    let words = ["broadcast", "--quiet"].into_iter();
    let options = Options::parse_from(words.chain(line.split_whitespace()));
    let run = options
        .setup(1)
        .and_then(World::new)
        .map_err(|what| what.to_string())
        .and_then(|world| world.run().map_err(|failure| failure.what));
    match run {
        Ok(summary) => format!("broadcast {line}: {}\n", figures(&summary)),
        Err(what) => format!("broadcast {line}: failed: {what}\n"),
    }
}

fn figures(summary: &Summary) -> String {
    let casts: Vec<String> = (summary.casts.iter())
        .map(|cast| match cast.cancelled {
            true => "cancelled".into(),
            false if cast.healthy == 0 && cast.refused > 0 => {
                format!("refused by {}", cast.refused)
            }
            false => format!(
                "ratio {:.3} of {}, median {:.3}, slow {:.3}",
                cast.ratio_max, cast.healthy, cast.ratio_median, cast.slow_ratio
            ),
        })
        .collect();
    format!(
        "{}; {:.2} % duplicates, port {} bytes, {} control messages, control sent {:.3} objects, {} recasts, fairness {:.3}",
        casts.join("; "),
        summary.duplicates * 100.0,
        summary.tally.port_backlog,
        summary.traffic.control_messages,
        summary.source_objects(),
        summary.recasts,
        summary.fairness,
    )
}
