//! The published scheme's own options on a command line.
//!
//! Neighbour: [`super::options`], which these are a part of.
//!
//! Invariant: what is accepted here fits into an announcement.

use clap::{Args, ValueEnum};
use netstack::broadcast::PublishedOptions;
use netstack::broadcast::published::header::{
    self, MAX_CHOSEN, MAX_CHUNKS, MAX_LAYERS, MAX_ROUNDS, MAX_RUNS, Tree,
};
use netstack::broadcast::published::{self, Policy, estimate};

/// See [`published::Choice`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Choice {
    /// Any of them
    #[default]
    Random,
    /// The one in the middle of their order
    Middle,
    /// The last of them
    Highest,
}

/// See [`estimate::Presence`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Presence {
    /// Inner nodes once their branch is served, leaves once they hold their chunk
    #[default]
    Served,
    /// From the start
    Always,
}

/// Options that the published schemes alone have.
#[derive(Args, Clone, Debug)]
pub struct Published {
    /// Published: layers of the tree
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..=i64::from(MAX_LAYERS)))]
    layers: u8,
    /// Published: chunks of equal size; 0: as many as nodes in the first layer
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_CHUNKS)))]
    chunks: u32,
    /// Published: chunks of these sizes, as in 4x10,1x20: four of 10 blocks, then one of 20; what
    /// is left is one more
    #[arg(long, value_name = "RUNS", conflicts_with = "chunks", value_parser = sizes)]
    sizes: Option<header::Sizes>,
    /// Published: who of the first layer gets which chunks: cyclic, rounds:N (each so many,
    /// cyclically), or chosen:0,3,5 (these for those that come after the last chunk)
    #[arg(long, default_value = "cyclic", value_parser = deal)]
    deal: header::Deal,
    /// Published: which of those that should hold a chunk is asked
    #[arg(long, value_enum, default_value_t)]
    choice: Choice,
    /// Published: when nodes take part in the swap
    #[arg(long, value_enum, default_value_t)]
    presence: Presence,
    /// Published: nobody stands in for who does not answer: to the letter, a dead inner node keeps
    /// the cast from ending
    #[arg(long)]
    no_fallback: bool,
}

impl Published {
    /// One of them is given.
    pub(super) fn is_given(&self) -> bool {
        self.layers != 2
            || self.chunks != 0
            || self.sizes.is_some()
            || self.deal != header::Deal::Cyclic
            || self.choice != Choice::Random
            || self.presence != Presence::Served
            || self.no_fallback
    }

    /// What they come to for so many nodes, `n1` of them in the first layer (0: as fits).
    pub(super) fn options(&self, policy: Policy, nodes: u32, n1: u32) -> PublishedOptions {
        PublishedOptions {
            fan_out: fan_out(nodes, n1, self.layers),
            layers: self.layers,
            sizes: match self.chunks {
                0 => self.sizes.clone(),
                chunks => Some(header::Sizes::Equal(chunks)),
            },
            deal: self.deal.clone(),
            policy,
            choice: match self.choice {
                Choice::Random => published::Choice::Random,
                Choice::Middle => published::Choice::Middle,
                Choice::Highest => published::Choice::Highest,
            },
            presence: match self.presence {
                Presence::Served => estimate::Presence::Served,
                Presence::Always => estimate::Presence::Always,
            },
            fallback: !self.no_fallback,
        }
    }
}

/// The least fan-out with which a first layer of `n1` nodes holds the tree; 0 for an `n1` of 0.
pub(super) fn fan_out(nodes: u32, n1: u32, layers: u8) -> u32 {
    let fits = |fan_out: &u32| {
        let tree = Tree::new(nodes, *fan_out, layers);
        tree.is_ok_and(|tree| tree.first_layer() <= n1)
    };
    match n1 {
        0 => 0,
        _ => (0..=nodes).find(fits).unwrap_or(0),
    }
}

/// Reads runs of chunks.
fn sizes(text: &str) -> Result<header::Sizes, String> {
    let run = |run: &str| {
        let (count, blocks) = run.split_once('x')?;
        let (count, blocks): (u16, u16) = (count.parse().ok()?, blocks.parse().ok()?);
        (count > 0 && blocks > 0).then_some((count, blocks))
    };
    match text.split(',').map(run).collect::<Option<Vec<_>>>() {
        Some(runs) if runs.len() <= MAX_RUNS => Ok(header::Sizes::Given(runs)),
        _ => Err(format!(
            "1 to {MAX_RUNS} runs of chunks and blocks of each, as in 4x10,1x20"
        )),
    }
}

/// Reads how chunks are dealt.
fn deal(text: &str) -> Result<header::Deal, String> {
    let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
    let chosen = || {
        let chunks = rest.split(',').map(|chunk| chunk.parse().ok());
        chunks.collect::<Option<Vec<u16>>>()
    };
    match (kind, rest.parse()) {
        ("cyclic", _) if rest.is_empty() => Ok(header::Deal::Cyclic),
        ("rounds", Ok(rounds)) if (1..=MAX_ROUNDS).contains(&rounds) => {
            Ok(header::Deal::Rounds(rounds))
        }
        ("chosen", _) => match chosen() {
            Some(chunks) if chunks.len() <= MAX_CHOSEN => Ok(header::Deal::Chosen(chunks)),
            _ => Err(format!(
                "1 to {MAX_CHOSEN} numbers of chunks, as in chosen:0,3,5"
            )),
        },
        _ => Err(format!(
            "cyclic, rounds:N with 1 to {MAX_ROUNDS}, or chosen:0,3,5"
        )),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        published: Published,
    }

    fn read(line: &str) -> Result<Published, clap::Error> {
        let words = std::iter::once("line").chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.published)
    }

    #[test]
    fn every_option_is_read() {
        let line = "--layers 3 --sizes 4x10,1x20 --deal chosen:0,3 --choice highest --presence always --no-fallback";
        let options = read(line).unwrap().options(Policy::NodeFirst, 100, 4);
        let expected = PublishedOptions {
            // 4 + 4 * 5 + 4 * 5 * 5 nodes have room for 100, with 4 children each they have not.
            fan_out: 5,
            layers: 3,
            sizes: Some(header::Sizes::Given(vec![(4, 10), (1, 20)])),
            deal: header::Deal::Chosen(vec![0, 3]),
            policy: Policy::NodeFirst,
            choice: published::Choice::Highest,
            presence: estimate::Presence::Always,
            fallback: false,
        };
        assert_eq!(options, expected);
        let options = read("--chunks 7 --deal rounds:2").unwrap();
        assert!(options.is_given());
        let options = options.options(Policy::ChunkFirst, 100, 0);
        assert_eq!(options.sizes, Some(header::Sizes::Equal(7)));
        assert_eq!(options.deal, header::Deal::Rounds(2));
        let plain = read("").unwrap();
        assert!(!plain.is_given());
        let plain = plain.options(Policy::ChunkFirst, 100, 0);
        assert_eq!(plain, PublishedOptions::default());
    }

    #[test]
    fn what_fits_no_announcement_is_refused() {
        for line in [
            "--layers 1",
            "--layers 9",
            "--chunks 16385",
            "--sizes 4",
            "--sizes 0x4",
            "--sizes 1x1,1x1,1x1,1x1,1x1,1x1,1x1,1x1,1x1,1x1,1x1,1x1,1x1,1x1,1x1,1x1,1x1",
            "--sizes 1x4 --chunks 2",
            "--deal rounds:0",
            "--deal rounds",
            "--deal chosen:",
            "--deal all",
            "--choice lowest",
        ] {
            assert!(read(line).is_err(), "{line}");
        }
    }

    #[test]
    fn the_first_layer_is_as_large_as_asked_for() {
        for (nodes, n1, layers) in [
            (1056, 32, 2),
            (100, 4, 3),
            (7, 7, 2),
            (30, 40, 2),
            (9, 1, 4),
        ] {
            let tree = Tree::new(nodes, fan_out(nodes, n1, layers), layers).unwrap();
            assert!(tree.first_layer() <= n1);
        }
        assert_eq!(fan_out(1056, 32, 2), 32);
        assert_eq!(fan_out(16_512, 128, 2), 128);
    }
}
