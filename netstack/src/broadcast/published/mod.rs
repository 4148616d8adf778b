//! The published broadcast in chunks, whole, on the engine that serves every scheme.
//!
//! Source: Chinese patent publication CN 102486739 A, 2012; of the same family US 8,671,134 B2,
//! 2014 (`docs/methods.md`).
//!
//! Published are these steps; where they are:
//!
//! | step | what | where |
//! |---|---|---|
//! | 1 | control cuts the data into chunks and deals them to the first layer in turn | [`header::Sizes`], [`header::Deal`] |
//! | 2 | the distribution header: start, tree, chunk sizes, address table | [`header`] |
//! | 3 | every inner node passes its branch's chunks on to its children in turn | [`planner`](mod@planner), [`estimate::Presence`] |
//! | 4 | the swap: every node asks others for the chunks it lacks, chunk first or node first | [`planner`](mod@planner), [`Policy`], [`Choice`] |
//! | 5 | the estimate: who holds what by now, by arithmetic | [`estimate`] |
//! | 6 | *not here*: the asker corrects its estimate | [`planner`](mod@planner) |
//! | 7 | who has everything reports to control | the engine's: reports come up a tree |
//!
//! How it stands on an engine that pulls: a node asks its parent (a head: control) for its branch's
//! chunks when their turn comes by the estimate, and the parent serves its children in the order of
//! their numbers, each whole chunk before the next. A request for a chunk is a request for its
//! blocks, and for the list blocks they are checked against, at one node. The header travels as the
//! announcement and the roster ([`header`]).
//!
//! Ours, where the publication is silent: who does not take part yet answers *not here* instead of
//! nothing; requests are served in the order they came; the correction is the time of one chunk for
//! every *not here*, all of them at most as long as the distribution, and after that each *not
//! here* is followed by a pause of one chunk, so that nobody is asked the same again at once;
//! [`PublishedOptions::fallback`], which looks past all that are silent, and asks control when
//! eight one after the other, for whichever chunks, were silent or, with the estimate as late as it
//! can be, did not have the chunk, and no chunk came meanwhile.
//!
//! What Hearth does by default instead, and why, is said at [`super::grid`] and
//! [`super::double_tree`].
//!
//! - [`planner`](mod@planner): the scheme at one station; `progress` counts what is here by chunks,
//!   `queue` orders what waits.
//!
//! Invariant: without the fallback nothing happens that is not published, but that the engine
//! repeats what was lost; with it every cast ends for every living member.

pub mod estimate;
pub mod header;
mod planner;
mod progress;
mod queue;
mod wire;

use super::message::Setup;
use super::{FRAGMENT, Object, Scheme};
use estimate::Presence;
use header::{Deal, MAX_CHOSEN, MAX_CHUNKS, MAX_ROUNDS, MAX_RUNS, Sizes, Tree};

pub(crate) use planner::Published;

/// How the next chunk and whom to ask for it are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// A chunk that can be had by now, then one of those that hold it.
    #[default]
    ChunkFirst,
    /// One of those that hold anything that lacks, then one of these chunks.
    NodeFirst,
}

/// Which of the candidates is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Any of them; preferred.
    #[default]
    Random,
    /// The one in the middle of their order.
    Middle,
    /// The last of them.
    Highest,
}

/// What the publication leaves open to choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedOptions {
    /// Children of a node, h; 0: as many as makes n1 about as large.
    pub fan_out: u32,
    /// Layers of the tree, m; 2 is preferred. With 1, which the publication does not have, the
    /// control node sends to every node itself.
    pub layers: u8,
    /// The chunks; None: as many as first-layer nodes, of equal size, which is preferred.
    pub sizes: Option<Sizes>,
    /// Which first-layer node gets which.
    pub deal: Deal,
    /// How the next request is chosen.
    pub policy: Policy,
    /// Which candidate is asked.
    pub choice: Choice,
    /// When nodes take part in the swap.
    pub presence: Presence,
    /// Whoever does not answer is given up: another candidate is asked, in the end control. Without
    /// it, literally as published, one dead inner node keeps the cast from ever ending.
    pub fallback: bool,
}

impl Default for PublishedOptions {
    fn default() -> Self {
        PublishedOptions {
            fan_out: 0,
            layers: 2,
            sizes: None,
            deal: Deal::default(),
            policy: Policy::default(),
            choice: Choice::default(),
            presence: Presence::default(),
            fallback: true,
        }
    }
}

impl PublishedOptions {
    /// Most bytes of [`PublishedOptions::emit`].
    pub(super) const MAX_LEN: usize = wire::MAX_LEN;

    /// They fit into an announcement, and give a tree.
    fn is_sound(&self) -> bool {
        let sizes = match &self.sizes {
            None => true,
            Some(Sizes::Equal(chunks)) => (1..=MAX_CHUNKS).contains(chunks),
            Some(Sizes::Given(runs)) => {
                runs.len() <= MAX_RUNS
                    && runs.iter().all(|(count, blocks)| *count > 0 && *blocks > 0)
            }
        };
        let deal = match &self.deal {
            Deal::Cyclic => true,
            Deal::Chosen(chunks) => (1..=MAX_CHOSEN).contains(&chunks.len()),
            Deal::Rounds(rounds) => (1..=MAX_ROUNDS).contains(rounds),
        };
        sizes && deal && self.tree(1).is_ok()
    }

    /// The tree for so many members, at least one.
    pub fn tree(&self, members: u32) -> Result<Tree, crate::wire::Error> {
        match (self.layers, self.fan_out) {
            (1, _) => Tree::new(members, 0, 2),
            (layers, 0) => Tree::balanced(members, layers),
            (layers, fan_out) => Tree::new(members, fan_out, layers),
        }
    }
}

/// Most chunks that are dealt, counted as often as each is: every station keeps a place of
/// [`DEALT_BYTES`] for each.
const MAX_DEALT: u64 = 1 << 15;
/// Memory that [`estimate::Estimate`] takes for a dealt chunk.
const DEALT_BYTES: usize = size_of::<estimate::Dealt>() + 2 * size_of::<u32>();

/// The same for a chunk: its size, its bounds, what of it lacks, and where it is among those that
/// lack.
const CHUNK_BYTES: usize = size_of::<u64>() + 5 * size_of::<u32>();

// Small beside the memory of a node; whether there is room for it is asked before it is made.
const _: () = assert!(MAX_DEALT as usize * DEALT_BYTES <= 2 << 20);

/// The options make sense, and what a station keeps of the plan of such a cast is bounded. True for
/// other schemes.
pub(super) fn is_bounded(scheme: &Scheme, cold: u32, object: &Object) -> bool {
    if let Scheme::Published(options) = scheme
        && !options.is_sound()
    {
        return false;
    }
    plan_size(scheme, cold, object).is_none_or(|(dealt, ..)| dealt <= MAX_DEALT)
}

/// Bytes that the plan of a cast takes at a station that takes part; 0 for schemes without one.
pub(super) fn plan_bytes(scheme: &Scheme, cold: u32, object: &Object) -> u64 {
    let Some((dealt, chunks, tree)) = plan_size(scheme, cold, object) else {
        return 0;
    };
    let nodes = u64::from(tree.first_layer()) + u64::from(tree.fan_out());
    dealt * DEALT_BYTES as u64
        + u64::from(chunks) * CHUNK_BYTES as u64
        + nodes * size_of::<u32>() as u64
}

/// Chunks that are dealt, each counted as often as it is, chunks, and the tree of a cast's plan;
/// None for schemes without one.
fn plan_size(scheme: &Scheme, cold: u32, object: &Object) -> Option<(u64, u32, Tree)> {
    let (options, tree) = options(scheme, cold)?;
    let nodes = tree.first_layer();
    let chunks = match &options.sizes {
        None => nodes,
        Some(Sizes::Equal(chunks)) => *chunks,
        Some(Sizes::Given(_)) => MAX_CHUNKS,
    };
    let chunks = chunks.min(object.data_blocks()).clamp(1, MAX_CHUNKS);
    Some((options.deal.most(nodes, chunks), chunks, tree))
}

/// The tree and the options of a cast by this scheme; None for other schemes, and for a cast to
/// nobody.
fn options(scheme: &Scheme, cold: u32) -> Option<(PublishedOptions, Tree)> {
    let Scheme::Published(options) = scheme else {
        return None;
    };
    Some((options.clone(), options.tree(cold).ok()?))
}

/// The object is one chunk: nothing of it is passed on before all of it is there.
pub(super) fn is_whole(scheme: &Scheme) -> bool {
    matches!(scheme, Scheme::Published(options) if options.sizes == Some(Sizes::Equal(1)))
}

/// Everything from the source to each member.
#[cfg(test)]
pub(super) fn direct() -> Scheme {
    Scheme::Published(PublishedOptions {
        layers: 1,
        sizes: Some(Sizes::Equal(1)),
        ..PublishedOptions::default()
    })
}

/// Bytes of payload a second on links of this rate, with full blocks.
fn payload_rate(setup: &Setup) -> u64 {
    let block = setup.object.block_bytes();
    let framing = super::wire::DATA_OVERHEAD + crate::transport::pacer::FRAMING;
    let wire = block + block.div_ceil(FRAGMENT) * framing;
    let rate = u128::from(setup.rate) * block as u128 / wire as u128;
    (rate as u64).max(1)
}
