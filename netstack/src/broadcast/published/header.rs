//! The published distribution header: what every node must know to tell by itself who holds what,
//! and when.
//!
//! - [`Tree`]: `[nodes, fan-out, layers]`, and where in the address table each node stands;
//! - [`Sizes`]: the chunks the data is split into;
//! - [`Deal`]: which chunks the control node sends to which first-layer node;
//! - [`Header`]: these with start time and link rate.
//!
//! Published: Chunked broadcast, step 2. There the header is one piece. Here the announcement
//! carries it but for the address table, which is the cast's roster, in the same order.
//!
//! The published layout places only the leaves of two layers: the j-th child of the i-th
//! first-layer node is at index i*h + j. The rest is ours: the deepest layer comes first and the
//! first layer last, each in the order of its parents; h may be anything; a tree that is not full
//! lacks the last nodes of its deepest layer. So the first layer follows the leaves, and index
//! i*h + j holds for all trees of two layers.
//!
//! Neighbours: [`super::estimate`] computes with it, `wire` sends it, `planner` obeys it.
//!
//! Invariant: a `Tree` has all its nodes, and a `Header` all its chunks; nothing here divides by
//! zero or overflows, whatever was received.

use core::ops::Range;

use alloc::vec::Vec;

use crate::wire::Error;
use crate::wire::field::{Reader, Writer};

/// Most layers. Two are preferred; more than eight would be a chain of stores and forwards.
pub const MAX_LAYERS: u8 = 8;
/// Most nodes of a tree: the largest cast.
pub const MAX_NODES: u32 = crate::broadcast::MAX_MEMBERS;
/// Most chunks: each has at least a block, and this many fit 16 bits on the wire.
pub const MAX_CHUNKS: u32 = 1 << 14;
/// Most runs of given chunk sizes, 4 bytes each: they ride in the announcement.
pub const MAX_RUNS: usize = 16;
/// Most chosen chunks, 2 bytes each, for the same reason.
pub const MAX_CHOSEN: usize = 16;
/// Most times that the control node deals to each first-layer node: every chunk once to each.
pub const MAX_ROUNDS: u32 = MAX_CHUNKS;

/// The tree `[nodes, fan-out, layers]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    nodes: u32,
    fan_out: u32,
    layers: u8,
    /// Nodes of each layer, the first layer at index 0.
    sizes: [u32; MAX_LAYERS as usize],
}

/// Where a node stands in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its layer; the first is 1.
    pub layer: u8,
    /// Its number within the layer, from 0.
    pub number: u32,
}

impl Tree {
    /// A tree of `nodes` compute nodes, each with up to `fan_out` children, in `layers` layers; the
    /// first layer has as few nodes as hold them all (all of them without a fan-out).
    pub fn new(nodes: u32, fan_out: u32, layers: u8) -> Result<Self, Error> {
        let possible = (1..=MAX_NODES).contains(&nodes)
            && fan_out <= MAX_NODES
            && (2..=MAX_LAYERS).contains(&layers);
        if !possible {
            return Err(Error::BadValue);
        }
        // Nodes of a full branch: 1 + h + h^2 + ..., as far as it matters.
        let branch = (1..layers).fold(1_u64, |branch, _| {
            (branch * u64::from(fan_out) + 1).min(u64::from(MAX_NODES))
        });
        let mut left = nodes;
        let mut size = u64::from(nodes).div_ceil(branch);
        let mut sizes = [0; MAX_LAYERS as usize];
        for layer in sizes.iter_mut().take(layers.into()) {
            *layer = size.min(left.into()) as u32;
            left -= *layer;
            size = u64::from(*layer) * u64::from(fan_out);
        }
        // A branch that was cut short above is larger than the whole tree: one first-layer node,
        // and the layers below it are full until the nodes run out.
        assert!(left == 0, "a node has no place in the tree");
        Ok(Tree {
            nodes,
            fan_out,
            layers,
            sizes,
        })
    }

    /// The tree whose first layer is about as large as a node's fan-out, which is best when there
    /// are as many chunks (n1 = k = h).
    pub fn balanced(nodes: u32, layers: u8) -> Result<Self, Error> {
        let full = |fan_out: u64| {
            (0..layers).fold(0_u64, |sum, _| {
                ((sum + 1) * fan_out).min(u64::from(MAX_NODES))
            })
        };
        let fan_out = (1..=nodes.max(1)).find(|fan_out| full((*fan_out).into()) >= nodes.into());
        Tree::new(nodes, fan_out.unwrap_or(nodes), layers)
    }

    /// Number of compute nodes.
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Most children of a node, h.
    pub fn fan_out(&self) -> u32 {
        self.fan_out
    }

    /// Number of layers, m.
    pub fn layers(&self) -> u8 {
        self.layers
    }

    /// Nodes of the first layer, n1; each is the head of a branch.
    pub fn first_layer(&self) -> u32 {
        self.sizes[0]
    }

    /// Indices of the first layer in the address table.
    pub fn heads(&self) -> Range<u32> {
        self.nodes - self.first_layer()..self.nodes
    }

    /// Nodes of a layer, which is one of 1 to [`Tree::layers`].
    pub fn layer_nodes(&self, layer: u8) -> u32 {
        self.sizes[usize::from(layer) - 1]
    }

    /// Index of a layer's first node in the address table.
    fn offset(&self, layer: u8) -> u32 {
        self.sizes[usize::from(layer)..].iter().sum()
    }

    /// Where the node at this index of the address table stands; there must be one.
    pub fn place(&self, index: u32) -> Place {
        assert!(
            index < self.nodes,
            "no node {index} in a tree of {}",
            self.nodes
        );
        let mut layer = self.layers;
        let mut number = index;
        while number >= self.layer_nodes(layer) {
            number -= self.layer_nodes(layer);
            layer -= 1;
        }
        Place { layer, number }
    }

    /// Index of a place in the address table. The place must exist.
    pub fn index(&self, place: Place) -> u32 {
        self.offset(place.layer) + place.number
    }

    /// The node above, None for the first layer.
    pub fn parent(&self, place: Place) -> Option<Place> {
        (place.layer > 1).then(|| Place {
            layer: place.layer - 1,
            number: place.number / self.fan_out,
        })
    }

    /// Number of a node among its parent's children, from 1; 0 in the first layer.
    pub fn child_number(&self, place: Place) -> u32 {
        match place.layer {
            1 => 0,
            _ => place.number % self.fan_out + 1,
        }
    }

    /// The branch a node belongs to: the number of its head in the first layer.
    pub fn branch(&self, place: Place) -> u32 {
        (1..place.layer).fold(place.number, |number, _| number / self.fan_out)
    }

    /// Numbers of a node's children in the layer below it.
    pub fn children(&self, place: Place) -> Range<u32> {
        if place.layer == self.layers {
            return 0..0;
        }
        let below = u64::from(self.layer_nodes(place.layer + 1));
        let first = u64::from(place.number) * u64::from(self.fan_out);
        let end = first + u64::from(self.fan_out);
        first.min(below) as u32..end.min(below) as u32
    }

    fn emit(&self, writer: &mut Writer<'_>) {
        writer.u32(self.nodes).u32(self.fan_out).u8(self.layers);
    }

    fn parse(reader: &mut Reader<'_>) -> Result<Self, Error> {
        let (nodes, fan_out, layers) = (reader.u32()?, reader.u32()?, reader.u8()?);
        Tree::new(nodes, fan_out, layers)
    }
}

/// The chunks that the data is split into, each of whole blocks (but for the end of the data).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// So many, as equal as whole blocks allow: they differ by one block at most.
    Equal(u32),
    /// Runs of (number of chunks, blocks of each), cut where the data ends; what they do not cover
    /// is one chunk more.
    Given(Vec<(u16, u16)>),
}

/// Which chunks first-layer nodes are dealt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Deal {
    /// Each node at least one and each chunk at least once, in turn: with more nodes than chunks
    /// the first nodes get one each and the rest start again with chunk 0; with more chunks than
    /// nodes they go round.
    #[default]
    Cyclic,
    /// With more nodes than chunks the rest get these chunks, in turn, instead.
    Chosen(Vec<u16>),
    /// Every node gets so many, cyclically: node i the chunks i, i + 1, ... (with fewer nodes than
    /// chunks i, i + n1, ...), at least as many as it takes to deal every chunk.
    Rounds(u32),
}

/// What every node is told, but for the address table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// When the control node begins to send, in microseconds of its clock.
    pub start_us: u64,
    /// Link rate g in bytes a second, of payload.
    pub rate: u64,
    /// The tree.
    pub tree: Tree,
    /// The chunks.
    pub sizes: Sizes,
    /// How they are dealt.
    pub deal: Deal,
}

impl Header {
    /// Most bytes of [`Header::emit`].
    pub const MAX_LEN: usize = 8 + 8 + 9 + 2 + 4 * MAX_RUNS + 2 + 2 * MAX_CHOSEN + 2;

    /// Writes it.
    pub fn emit(&self, writer: &mut Writer<'_>) {
        writer.u64(self.start_us).u64(self.rate);
        self.tree.emit(writer);
        self.sizes.emit(writer);
        self.deal.emit(writer);
    }

    /// Reads it from the front of what is left.
    pub fn parse(reader: &mut Reader<'_>) -> Result<Self, Error> {
        let (start_us, rate) = (reader.u64()?, reader.u64()?);
        if rate == 0 {
            return Err(Error::BadValue);
        }
        Ok(Header {
            start_us,
            rate,
            tree: Tree::parse(reader)?,
            sizes: Sizes::parse(reader)?,
            deal: Deal::parse(reader)?,
        })
    }
}

impl Sizes {
    /// First block of each chunk and, last, the number of blocks. Chunks without a block are left
    /// out, so that there are at most as many as blocks; none when there are no blocks.
    pub fn bounds(&self, blocks: u32) -> Vec<u32> {
        let mut bounds = Vec::new();
        match self {
            Sizes::Equal(chunks) => {
                let chunks = (*chunks).clamp(1, MAX_CHUNKS).min(blocks);
                bounds.extend((0..chunks).map(|chunk| share(blocks, chunk, chunks)));
            }
            Sizes::Given(runs) => {
                let sizes = runs
                    .iter()
                    .flat_map(|(count, size)| (0..*count).map(|_| u32::from(*size)));
                let mut next = 0;
                for size in sizes.filter(|size| *size > 0).take(MAX_CHUNKS as usize - 1) {
                    if next >= blocks {
                        break;
                    }
                    bounds.push(next);
                    next = next.saturating_add(size);
                }
                if next < blocks {
                    bounds.push(next);
                }
            }
        }
        bounds.push(blocks);
        bounds
    }

    /// Writes it.
    pub(super) fn emit(&self, writer: &mut Writer<'_>) {
        match self {
            Sizes::Equal(chunks) => {
                writer.u8(0).u16(*chunks as u16);
            }
            Sizes::Given(runs) => {
                assert!(runs.len() <= MAX_RUNS, "more runs of chunk sizes than fit");
                writer.u8(1).u8(runs.len() as u8);
                for (count, blocks) in runs {
                    writer.u16(*count).u16(*blocks);
                }
            }
        }
    }

    /// Reads it from the front of what is left.
    pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Self, Error> {
        match reader.u8()? {
            0 => match u32::from(reader.u16()?) {
                chunks @ 1..=MAX_CHUNKS => Ok(Sizes::Equal(chunks)),
                _ => Err(Error::BadValue),
            },
            1 => {
                let count = usize::from(reader.u8()?);
                if count > MAX_RUNS {
                    return Err(Error::BadValue);
                }
                let mut runs = Vec::with_capacity(count);
                for _ in 0..count {
                    let run = (reader.u16()?, reader.u16()?);
                    if run.0 == 0 || run.1 == 0 {
                        return Err(Error::BadValue);
                    }
                    runs.push(run);
                }
                Ok(Sizes::Given(runs))
            }
            _ => Err(Error::BadValue),
        }
    }
}

/// First of `blocks` blocks that belongs to part `part` of `parts`.
fn share(blocks: u32, part: u32, parts: u32) -> u32 {
    (u64::from(blocks) * u64::from(part) / u64::from(parts)) as u32
}

impl Deal {
    /// The chunk that first-layer node `node` of `nodes` gets as its number `turn`, from 0, of
    /// `chunks` in all (both at least 1). None: it gets no more.
    pub fn chunk(&self, node: u32, turn: u32, nodes: u32, chunks: u32) -> Option<u32> {
        let (node64, nodes64, chunks64) = (u64::from(node), u64::from(nodes), u64::from(chunks));
        let round = u64::from(turn) * nodes64 + node64;
        if nodes < chunks {
            // Round and round, each chunk once, or as often as asked for.
            let rounds = match self {
                Deal::Rounds(rounds) => u64::from(*rounds) * nodes64,
                _ => 0,
            };
            // A node that the cycle brings back to where it began has all it can get.
            let again = turn > 0 && u64::from(turn) * nodes64 % chunks64 == 0;
            return (round < rounds.max(chunks64) && !again).then(|| (round % chunks64) as u32);
        }
        let turns = match self {
            Deal::Rounds(rounds) => (*rounds).clamp(1, chunks),
            _ => 1,
        };
        if turn >= turns {
            return None;
        }
        match self {
            Deal::Chosen(chosen) if node >= chunks && !chosen.is_empty() => {
                let at = (node - chunks) as usize % chosen.len();
                Some(u32::from(chosen[at]) % chunks)
            }
            _ => Some(((node64 + u64::from(turn)) % chunks64) as u32),
        }
    }

    /// No more than so many chunks are dealt, each counted as often as it is.
    pub fn most(&self, nodes: u32, chunks: u32) -> u64 {
        let (nodes, chunks) = (u64::from(nodes), u64::from(chunks));
        let rounds = match self {
            Deal::Rounds(rounds) => u64::from(*rounds).clamp(1, chunks),
            _ => 1,
        };
        (rounds * nodes).max(chunks)
    }

    /// Writes it.
    pub(super) fn emit(&self, writer: &mut Writer<'_>) {
        match self {
            Deal::Cyclic => {
                writer.u8(0);
            }
            Deal::Chosen(chosen) => {
                assert!(chosen.len() <= MAX_CHOSEN, "more chosen chunks than fit");
                writer.u8(1).u8(chosen.len() as u8);
                for chunk in chosen {
                    writer.u16(*chunk);
                }
            }
            Deal::Rounds(rounds) => {
                writer.u8(2).u16(*rounds as u16);
            }
        }
    }

    /// Reads it from the front of what is left.
    pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Self, Error> {
        match reader.u8()? {
            0 => Ok(Deal::Cyclic),
            1 => {
                let count = usize::from(reader.u8()?);
                if !(1..=MAX_CHOSEN).contains(&count) {
                    return Err(Error::BadValue);
                }
                let mut chosen = Vec::with_capacity(count);
                for _ in 0..count {
                    chosen.push(reader.u16()?);
                }
                Ok(Deal::Chosen(chosen))
            }
            2 => match u32::from(reader.u16()?) {
                rounds @ 1..=MAX_ROUNDS => Ok(Deal::Rounds(rounds)),
                _ => Err(Error::BadValue),
            },
            _ => Err(Error::BadValue),
        }
    }
}

#[cfg(test)]
mod tests;
