//! Exchanges whose figures stand in the reviewed table: a change of the engine shows there.
//!
//! Invariant: every line is the command line of one run, small enough that all take a few seconds.

use clap::Parser;

use super::options::Options;
use super::world::World;

/// The command lines, after `cargo xtask sim exchange`.
const LINES: &[&str] = &[
    "--p 2 --bytes 1MB",
    "--p 16 --bytes 64KB --real",
    "--p 16 --bytes 64KB --real --loss 1%",
    "--p 13 --bytes 20KB --real --unequal --loss 1% --duplicate 1% --reorder 1%",
    "--p 16 --bytes 8KB --real --rate 5Mbit --latency 1ms --queue 32KB",
    "--p 64 --bytes 64KB",
    "--p 64 --bytes 64KB --loss 1%",
    "--p 64 --bytes 64KB --late 2%",
    "--p 64 --bytes 64KB --late 40% --late-by 20us",
    "--p 8 --bytes 256KB --real --rate 20Mbit --latency 100us --queue 256KB --limiters --late 40% --late-by 1ms",
    "--p 16 --bytes 64KB --real --rate 5Mbit --latency 100us --queue 32KB --limiters --late 40% --late-by 1ms",
    "--p 64 --bytes 64KB --kill 9",
    "--p 64 --bytes 1KB",
    "--p 64 --bytes 1KB --loss 1%",
    "--p 64 --bytes 16KB --unequal",
    "--p 64 --bytes 64KB --tree 8x8 --taper 2 --leaves",
    "--p 64 --bytes 64KB --scheme at-once",
    "--p 64 --bytes 64KB --scheme at-once-random",
    "--p 64 --bytes 64KB --scheme blind",
    "--p 64 --bytes 64KB --scheme published",
    "--p 64 --bytes 1KB --scheme published-L=auto",
];

/// The figures of every line.
pub fn table() -> String {
    LINES.iter().map(|line| row(line)).collect()
}

fn row(line: &str) -> String {
    let words = std::iter::once("exchange").chain(line.split_whitespace());
    let run = Options::parse_from(words)
        .setup(1)
        .and_then(World::new)
        .and_then(|world| world.run().map_err(|failure| failure.what));
    match run {
        Ok(summary) => format!(
            "exchange {line}: ratio {:.3}, median {:.3}, {:.4} sent to needed, {} dropped, control {:.2} %, {} named a lost rank\n",
            summary.ratio,
            summary.ratio_median,
            summary.sent_to_needed,
            summary.tally.overflowed,
            summary.control_percent(),
            summary.named_lost,
        ),
        Err(what) => format!("exchange {line}: failed: {what}\n"),
    }
}
