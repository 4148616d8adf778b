//! `hearth plan`: which nodes the allocator would give a job, without a cluster.
//!
//! Neighbours: `hearth_alloc::placement::exact` answers, as it does for the control node.
//!
//! Invariant: in a batch every line of input that is not blank has one line of output, in order.

use std::collections::BTreeSet;
use std::io::{BufRead, Read, Write};
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use hearth_alloc::placement::exact::{self, Candidate, Preference};
use hearth_alloc::topology::Topology;
use serde::{Deserialize, Serialize};

use super::{Global, exit, print_text};
use crate::config::queue::preference;
use crate::{hostlist, output, site_tree};

/// Longest line of a batch, in bytes: a million nodes by number.
const LINE_MAX: u64 = 16 << 20;
/// Some questions of a batch have no answer.
const EXIT_UNANSWERED: u8 = 1;

/// Options of `hearth plan`.
#[derive(Debug, Args)]
#[command(after_help = "\
Nodes are chosen by the fewest hops between them, then the most warm ones, then what breaks up the least
free space. With --batch each line of standard input is a question, and each line of output its answer:
  {\"tree\":[4,4,4],\"free\":[0,1,4],\"warm\":[4],\"count\":2}   widths from the leaves up, nodes from 0
  {\"nodes\":[0,1],\"hops\":1,\"certificate\":\"optimal: ...\"}  or {\"error\":\"...\"}
A line has at most 16 MiB, and may name any number of nodes.
Exit status: 0; 1 some line of a batch has no answer; 2 a wrong option; 125 anything else.")]
pub struct Options {
    /// Widths of the tree from the leaves up, as in 4x4x4, or a file as Slurm's topology.conf that
    /// names nodes n0, n1 and so on.
    #[arg(long, value_name = "WIDTHS|FILE", required_unless_present = "batch")]
    tree: Option<String>,
    /// The free nodes: n0,n[3-5], at most 65,536 of them [default: all of the tree].
    #[arg(long, value_name = "NODES")]
    free: Option<String>,
    /// How many nodes are wanted.
    #[arg(
        short = 'n',
        long,
        value_name = "COUNT",
        required_unless_present = "batch"
    )]
    count: Option<usize>,
    /// Nodes that hold the program; those that are not free do not matter.
    #[arg(long, value_name = "NODES")]
    warm: Option<String>,
    /// What warm nodes count: hops (fewest hops first), warm (most warm nodes first), none, or how
    /// many hops a node's mean way to the others may be longer for it to be warm, as in 0.5.
    #[arg(long, value_name = "WHAT", default_value = "hops", value_parser = preference)]
    prefer: Preference,
    /// Read questions from standard input, one JSON object a line.
    #[arg(long, conflicts_with_all = ["tree", "free", "count", "warm"])]
    batch: bool,
}

/// A question of a batch.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    tree: Vec<u32>,
    free: Vec<u32>,
    #[serde(default)]
    warm: Vec<u32>,
    count: usize,
}

/// An answer.
#[derive(Debug, Serialize, PartialEq, Eq)]
struct Answer {
    nodes: Vec<u32>,
    hops: i64,
    certificate: String,
}

/// Runs the command.
pub fn main(global: &Global, options: &Options) -> anyhow::Result<ExitCode> {
    if options.batch {
        if !global.json {
            return Err(
                exit::Usage("--batch reads and writes JSON; add --json".to_string()).into(),
            );
        }
        let (input, output) = (std::io::stdin().lock(), std::io::stdout().lock());
        return batch(input, output, options.prefer);
    }
    let (Some(tree), Some(count)) = (&options.tree, options.count) else {
        bail!("name --tree and -n, or use --batch");
    };
    let (topology, places) = tree_of(tree)?;
    let free = match &options.free {
        Some(free) => hostlist::parse(free).context("--free")?,
        // One more than may be asked about is refused as such.
        None => match &places {
            Some(places) => places.iter().copied().collect(),
            None => (0..topology.nodes().min(exact::FREE_MAX as u64 + 1) as u32).collect(),
        },
    };
    if let Some(places) = places
        && let Some(node) = free.iter().find(|node| !places.contains(node))
    {
        bail!("n{node} is on no switch of {tree}");
    }
    let warm = options.warm.as_deref().map(hostlist::parse);
    let warm = warm.transpose().context("--warm")?.unwrap_or_default();
    let answer = plan(&topology, free, &warm, count, options.prefer)?;
    if global.json {
        print_text(&(serde_json::to_string(&answer)? + "\n"))?;
    } else {
        print_text(&format!(
            "nodes        {}\nhops         {}\ncertificate  {}\n",
            hostlist::format(&answer.nodes),
            answer.hops,
            answer.certificate
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A tree by its widths, or a site's own tree with the nodes that it has.
fn tree_of(text: &str) -> anyhow::Result<(Topology, Option<BTreeSet<u32>>)> {
    if !text.contains(['/', '.']) {
        let tree = text.parse();
        let tree = tree.map_err(|error| exit::Usage(format!("--tree: {error}")))?;
        return Ok((tree, None));
    }
    let wired = site_tree::read(text.as_ref(), |site| Ok(site.with_numbers(site_tree::own)?))?;
    let tree = wired.topology();
    Ok((tree, Some(wired.nodes.into_keys().collect())))
}

/// Answers each line of the input by one of the output.
fn batch(
    mut input: impl BufRead,
    mut output: impl Write,
    prefer: Preference,
) -> anyhow::Result<ExitCode> {
    let mut status = ExitCode::SUCCESS;
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = input.by_ref().take(LINE_MAX);
        let size = limited.read_until(b'\n', &mut line);
        if size.context("reading questions from standard input")? == 0 {
            return Ok(status);
        }
        if line.len() as u64 == LINE_MAX && line.last() != Some(&b'\n') {
            bail!("a line of the batch is longer than {LINE_MAX} bytes; ask about fewer nodes");
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let text = match answer_line(&line, prefer) {
            Ok(answer) => serde_json::to_string(&answer)?,
            Err(error) => {
                status = ExitCode::from(EXIT_UNANSWERED);
                serde_json::json!({ "error": format!("{error:#}") }).to_string()
            }
        };
        match writeln!(output, "{text}").and_then(|()| output.flush()) {
            // A reader that has gone wants no more.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(status),
            written => written.context("writing answers to standard output")?,
        }
    }
}

fn answer_line(line: &[u8], prefer: Preference) -> anyhow::Result<Answer> {
    let question: Question = serde_json::from_slice(line).context(
        "a question is {\"tree\":[4,4,4],\"free\":[0,1],\"warm\":[1],\"count\":2} on one line",
    )?;
    let topology = Topology::new(&question.tree)?;
    plan(
        &topology,
        question.free,
        &question.warm,
        question.count,
        prefer,
    )
}

/// Asks the allocator.
fn plan(
    topology: &Topology,
    mut free: Vec<u32>,
    warm: &[u32],
    count: usize,
    prefer: Preference,
) -> anyhow::Result<Answer> {
    if count == 0 {
        bail!("0 nodes wanted; ask for 1 at least");
    }
    free.sort_unstable();
    if let Some(twice) = free.windows(2).find(|pair| pair[0] == pair[1]) {
        bail!("n{} is named twice; name each free node once", twice[0]);
    }
    let outside = free.iter().chain(warm);
    if let Some(node) = outside
        .copied()
        .find(|node| u64::from(*node) >= topology.nodes())
    {
        bail!(
            "n{node} is not in the tree {topology}, which has n0 to n{}",
            topology.nodes().saturating_sub(1)
        );
    }
    if free.len() > exact::FREE_MAX {
        bail!("more than {} free nodes; ask about fewer", exact::FREE_MAX);
    }
    let warm: std::collections::BTreeSet<u32> = warm.iter().copied().collect();
    let candidate = |&node: &u32| Candidate {
        node,
        warm: warm.contains(&node),
    };
    let free: Vec<Candidate> = free.iter().map(candidate).collect();
    let placement = exact::place_with(topology, &free, count, prefer);
    let placement = placement.ok_or_else(|| {
        anyhow!(
            "{} wanted, {} free; name more, or want fewer",
            output::count(count, "node"),
            free.len()
        )
    })?;
    Ok(Answer {
        nodes: placement.nodes,
        hops: placement.hops,
        certificate: placement.certificate.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(input: &str) -> (Vec<serde_json::Value>, bool) {
        let mut output = Vec::new();
        let status = batch(input.as_bytes(), &mut output, Preference::HopsFirst).unwrap();
        let text = String::from_utf8(output).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        (lines.collect(), status == ExitCode::SUCCESS)
    }

    #[test]
    fn a_batch_answers_line_by_line() {
        // Five leaf switches with one free node each, and one with four: 26 hops, not 30.
        let (lines, all) = answers(
            "{\"tree\":[4,5,2],\"free\":[0,4,8,12,16,20,21,22,23],\"count\":5}\n\n\
             {\"tree\":[4,5,2],\"free\":[16,12,8,4,0],\"warm\":[],\"count\":5}\n\
             {\"tree\":[4,4],\"free\":[0,1,2,5],\"warm\":[2,3],\"count\":2}",
        );
        assert!(all);
        assert_eq!(lines[0]["hops"], 26);
        assert_eq!(lines[0]["nodes"], serde_json::json!([0, 20, 21, 22, 23]));
        assert_eq!(lines[1]["hops"], 30);
        assert_eq!(lines[2]["nodes"], serde_json::json!([0, 2]));
        assert!(
            lines[2]["certificate"]
                .as_str()
                .unwrap()
                .starts_with("optimal")
        );
        assert_eq!(lines[2].as_object().unwrap().len(), 3);
    }

    #[test]
    fn questions_without_answer_say_why_and_the_others_are_answered() {
        let (lines, all) = answers(
            "{\"tree\":[4,4],\"free\":[0,1],\"count\":3}\n\
             {\"tree\":[4,4],\"free\":[0,16],\"count\":1}\n\
             {\"tree\":[4,4],\"free\":[1,1],\"count\":1}\n\
             {\"tree\":[],\"free\":[1],\"count\":1}\n\
             {\"tree\":[4],\"free\":[1],\"cuont\":1}\n\
             nothing\n\
             {\"tree\":[4],\"free\":[1],\"count\":1}\n",
        );
        assert!(!all);
        let errors = [
            "2 free",
            "n16 is not",
            "n1 is named twice",
            "at least one level",
            "cuont",
        ];
        for (line, expected) in lines.iter().zip(errors) {
            let error = line["error"].as_str().unwrap();
            assert!(error.contains(expected), "{error}");
        }
        assert!(
            lines[5]["error"]
                .as_str()
                .unwrap()
                .contains("a question is")
        );
        assert_eq!(lines[6]["nodes"], serde_json::json!([1]));
    }

    #[test]
    fn preferences_are_read() {
        assert_eq!(preference("0.5"), Ok(Preference::Weighted { milli: 500 }));
        assert_eq!(preference("warm"), Ok(Preference::WarmFirst));
        for wrong in ["-1", "many", "NaN", "1e9", ""] {
            assert!(preference(wrong).is_err(), "{wrong}");
        }
    }
}
