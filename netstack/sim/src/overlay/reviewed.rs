//! Overlays whose figures stand in the reviewed table: a change of the protocol shows there.
//!
//! Invariant: every line is the command line of one run, small enough that all take a few seconds.

use clap::Parser;

use super::options::Options;
use super::summary::Summary;
use super::world::World;

/// The command lines, after `cargo xtask sim overlay`.
const LINES: &[&str] = &[
    "--nodes 16 --fan-out 4",
    "--nodes 256",
    "--nodes 256 --loss 1",
    "--nodes 256 --loss 10",
    "--nodes 256 --crash 2",
    "--nodes 256 --loss 1 --crash 2 --clocks",
    "--nodes 256 --kill-cp 0",
    "--nodes 256 --stop 0",
    "--nodes 256 --filter concat",
    "--nodes 256 --filter classes --metrics 8",
    "--nodes 1024",
];

/// The figures of every line.
pub fn table() -> String {
    LINES.iter().map(|line| row(line)).collect()
}

fn row(line: &str) -> String {
    let words = ["overlay", "--quiet"].into_iter();
    let options = Options::parse_from(words.chain(line.split_whitespace()));
    let run = (options.setup(1).and_then(World::new))
        .and_then(|world| world.run().map_err(|failure| failure.what));
    match run {
        Ok(summary) => format!("overlay {line}: {}\n", figures(&summary)),
        Err(what) => format!("overlay {line}: failed: {what}\n"),
    }
}

fn figures(summary: &Summary) -> String {
    let levels: Vec<String> = summary
        .levels
        .iter()
        .map(|lag| format!("{}/{}", lag.p50, lag.p99))
        .collect();
    let books = &summary.books;
    format!(
        "built in {} ms; p50/p99 us by level {}, front end {}/{}; {:.3} messages, {:.0} bytes a node and s; sent {} = stored {} + filtered {} + link {} + dropped {} + died {} - unheard {}; {} orphans, the last after {} ms; down in {:.0} ms, {} left",
        summary.build_ms.map_or("-".into(), |ms| format!("{ms:.1}")),
        levels.join(" "),
        summary.front.p50,
        summary.front.p99,
        summary.messages,
        summary.bytes,
        books.sent,
        books.stored,
        books.filtered,
        books.lost_link,
        books.lost_dropped,
        books.missing,
        books.unheard,
        summary.orphans.count,
        summary.orphans.most / 1000,
        summary.down_ms,
        summary.left_over,
    )
}
