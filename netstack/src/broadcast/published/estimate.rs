//! Who holds what, and from when on, by arithmetic alone: the published estimate, for any tree and
//! any chunks.
//!
//! Published: Chunked broadcast, steps 4 and 5. With equal chunks of s bytes in a tree of two
//! layers [i,0] holds its chunk from i*s/g after the start and [i,j] from (i+j)*s/g (i and j from
//! 1). Generalised: a link that sends one thing after the other has sent everything up to the end
//! of a chunk when it has carried so many bytes; a node passes a chunk on to its children one after
//! the other, as soon as it holds it and has passed on the one before.
//!
//! Time is counted in [`Sent`], bytes that a link has carried since the start: whole numbers, and g
//! comes in only where they meet a clock ([`Estimate::at`], [`Estimate::after_us`]).
//!
//! Neighbours: [`super::header`] says what is sent to whom; `planner` asks for candidates and
//! corrects the clock when it was wrong.
//!
//! Invariant: pure functions of the header; the same on every node.

use alloc::vec::Vec;

use super::header::{Header, Place, Tree};

/// Bytes that a link has carried since the start of the distribution.
pub type Sent = u64;

/// When nodes take part in the swap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Presence {
    /// Preferred: an inner node once its branch is served, a leaf once it holds its branch's
    /// chunks.
    #[default]
    Served,
    /// Inner nodes while they distribute, and leaves before they hold anything: they answer for
    /// what they hold.
    Always,
}

/// A chunk that the control node sends to a first-layer node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dealt {
    /// The chunk.
    pub chunk: u32,
    /// The first-layer node, which heads the branch.
    pub head: u32,
    /// How many chunks that node was dealt before.
    pub turn: u32,
    /// When the node holds it.
    pub held: Sent,
    /// When the node begins to pass it on.
    pub begins: Sent,
}

/// Who holds what when.
#[derive(Clone, Debug)]
pub struct Estimate {
    tree: Tree,
    rate: u64,
    /// Bytes of each chunk.
    sizes: Vec<u64>,
    /// All that is dealt, by head and turn.
    dealt: Vec<Dealt>,
    /// Where each head's begin in `dealt`, and its length at the end.
    heads: Vec<u32>,
    /// Indices into `dealt`, by chunk.
    by_chunk: Vec<u32>,
    /// Where each chunk's begin in `by_chunk`, and its length at the end.
    chunks: Vec<u32>,
    /// When the control node has sent everything that it deals.
    dealt_out: Sent,
}

impl Estimate {
    /// For chunks of so many bytes each, at least one; those of `header` in whatever the cast
    /// counts as their bytes on a link.
    pub fn new(header: &Header, sizes: Vec<u64>) -> Self {
        let tree = header.tree;
        let (nodes, chunks) = (tree.first_layer(), sizes.len() as u32);
        assert!(chunks > 0 && header.rate > 0, "nothing to estimate");
        // At once, so that it takes no more than it needs while it grows.
        let most = header.deal.most(nodes, chunks);
        let mut dealt = Vec::with_capacity(most.min(super::MAX_DEALT) as usize);
        let mut sent = 0;
        for turn in 0.. {
            let before = dealt.len();
            for head in 0..nodes {
                // A node that got nothing in the turn before gets nothing any more.
                if let Some(chunk) = header.deal.chunk(head, turn, nodes, chunks) {
                    sent += sizes[chunk as usize];
                    dealt.push(Dealt {
                        chunk,
                        head,
                        turn,
                        held: sent,
                        begins: sent,
                    });
                }
            }
            if dealt.len() == before {
                break;
            }
        }
        dealt.sort_unstable_by_key(|dealt| (dealt.head, dealt.turn));
        let mut heads = Vec::with_capacity(nodes as usize + 1);
        let mut free = 0;
        for (at, dealt) in dealt.iter_mut().enumerate() {
            if dealt.turn == 0 {
                heads.push(at as u32);
                free = 0;
            }
            let head = Place {
                layer: 1,
                number: dealt.head,
            };
            dealt.begins = dealt.held.max(free);
            free = dealt.begins + children(&tree, head) * sizes[dealt.chunk as usize];
        }
        heads.push(dealt.len() as u32);
        let mut by_chunk: Vec<u32> = (0..dealt.len() as u32).collect();
        by_chunk.sort_by_key(|at| dealt[*at as usize].chunk);
        let mut starts = Vec::with_capacity(sizes.len() + 1);
        for (position, at) in (0..).zip(&by_chunk) {
            while starts.len() <= dealt[*at as usize].chunk as usize {
                starts.push(position);
            }
        }
        while starts.len() <= sizes.len() {
            starts.push(by_chunk.len() as u32);
        }
        Estimate {
            tree,
            rate: header.rate,
            sizes,
            dealt,
            heads,
            by_chunk,
            chunks: starts,
            dealt_out: sent,
        }
    }

    /// The tree.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Number of chunks, k.
    pub fn chunks(&self) -> u32 {
        self.sizes.len() as u32
    }

    /// Bytes of a chunk.
    pub fn bytes(&self, chunk: u32) -> u64 {
        self.sizes[chunk as usize]
    }

    /// What a link has carried this many microseconds after the start.
    pub fn at(&self, after_us: u64) -> Sent {
        let sent = u128::from(after_us) * u128::from(self.rate) / 1_000_000;
        sent.try_into().unwrap_or(Sent::MAX)
    }

    /// Microseconds after the start until a link has carried so much.
    pub fn after_us(&self, sent: Sent) -> u64 {
        let micros = (u128::from(sent) * 1_000_000).div_ceil(u128::from(self.rate));
        micros.try_into().unwrap_or(u64::MAX)
    }

    /// What first-layer node `head` is dealt, in order.
    pub fn dealt(&self, head: u32) -> &[Dealt] {
        let head = head as usize;
        &self.dealt[self.heads[head] as usize..self.heads[head + 1] as usize]
    }

    /// The branches that are dealt a chunk.
    pub fn branches(&self, chunk: u32) -> impl Iterator<Item = &Dealt> {
        let chunk = chunk as usize;
        let range = self.chunks[chunk] as usize..self.chunks[chunk + 1] as usize;
        (self.by_chunk[range].iter()).map(|at| &self.dealt[*at as usize])
    }

    /// When the control node has sent all that it deals.
    pub fn dealt_out(&self) -> Sent {
        self.dealt_out
    }

    /// When the last node holds all chunks of its branch.
    pub fn distributed(&self) -> Sent {
        // The last child of a last child is last in its branch, in a tree that is full; one that is
        // not may have its deepest node elsewhere, so all places without children are asked.
        let leaves = (0..self.tree.nodes()).map(|index| self.tree.place(index));
        let leaves = leaves.filter(|place| self.tree.children(*place).is_empty());
        leaves
            .map(|place| self.ready(place, Presence::Served))
            .max()
            .unwrap_or(0)
    }

    /// When a node holds the chunk that its branch was dealt as number `turn`.
    pub fn held(&self, place: Place, turn: u32) -> Sent {
        let pace = self.pace(place, turn);
        pace.held
    }

    /// When a node takes part in the swap with all chunks of its branch (with
    /// [`Presence::Always`] when it holds the first of them).
    pub fn ready(&self, place: Place, presence: Presence) -> Sent {
        match presence {
            Presence::Always => self.held(place, 0),
            Presence::Served => {
                let turns = self.dealt(self.tree.branch(place)).len() as u32;
                self.pace(place, turns - 1).passed
            }
        }
    }

    /// Follows the chunks of a branch, up to number `turn`, down to a node.
    fn pace(&self, place: Place, turn: u32) -> Pace {
        let layers = usize::from(place.layer);
        let mut path = [place; super::header::MAX_LAYERS as usize];
        for layer in (1..layers).rev() {
            let above = self.tree.parent(path[layer]);
            path[layer - 1] = above.expect("only the first layer has nobody above");
        }
        // When each node of the path is free to pass on the next chunk.
        let mut free = [0; super::header::MAX_LAYERS as usize];
        let mut held = 0;
        let dealt = self.dealt(path[0].number);
        for dealt in dealt.iter().take(turn as usize + 1) {
            let bytes = self.bytes(dealt.chunk);
            held = dealt.held;
            for (layer, place) in path[..layers].iter().enumerate() {
                let begins = held.max(free[layer]);
                free[layer] = begins + children(&self.tree, *place) * bytes;
                if let Some(next) = path[..layers].get(layer + 1) {
                    held = begins + u64::from(self.tree.child_number(*next)) * bytes;
                }
            }
        }
        Pace {
            held,
            passed: free[layers - 1].max(held),
        }
    }

    /// Nodes of a branch that can be asked at `now` for the chunk that it was dealt, in the order
    /// of their numbers [i], [i,j], ...
    pub fn candidates(&self, dealt: &Dealt, now: Sent, presence: Presence) -> Candidates<'_> {
        let all = self.dealt(dealt.head);
        let last = all[all.len() - 1];
        let head = Place {
            layer: 1,
            number: dealt.head,
        };
        let bytes = self.bytes(last.chunk);
        let (begins, bytes, ready) = match presence {
            Presence::Served => {
                let served = last.begins + children(&self.tree, head) * bytes;
                (last.begins, bytes, served)
            }
            Presence::Always => (dealt.begins, self.bytes(dealt.chunk), dealt.held),
        };
        let mut candidates = Candidates {
            estimate: self,
            head,
            turn: dealt.turn,
            now,
            presence,
            head_ready: ready <= now,
            prefix: 0,
            count: 0,
        };
        if self.tree.layers() == 2 {
            // Children are served in turn: those that hold it are the first of them.
            let passed = now.saturating_sub(begins).checked_div(bytes);
            let passed = passed.unwrap_or(u64::MAX).min(children(&self.tree, head));
            candidates.prefix = if now >= begins { passed as u32 } else { 0 };
            candidates.count = u32::from(candidates.head_ready) + candidates.prefix;
        } else {
            candidates.count = candidates.subtree(head, &mut None);
        }
        candidates
    }

    /// When the first node can be asked for this chunk of a branch.
    pub fn earliest(&self, dealt: &Dealt, presence: Presence) -> Sent {
        let mut place = Place {
            layer: 1,
            number: dealt.head,
        };
        if presence == Presence::Always {
            return dealt.held;
        }
        // Among nodes with children the first child of a first child is served first; a node
        // without any may be ready before it.
        let mut earliest = self.ready(place, presence);
        loop {
            let below = self.tree.children(place).map(|number| Place {
                layer: place.layer + 1,
                number,
            });
            let mut leaves = below
                .clone()
                .filter(|child| self.tree.children(*child).is_empty());
            let first = below.clone().next();
            for child in first.into_iter().chain(leaves.next()) {
                earliest = earliest.min(self.ready(child, presence));
            }
            match first {
                Some(first) => place = first,
                None => return earliest,
            }
        }
    }
}

/// What [`Estimate::pace`] finds.
struct Pace {
    /// The node holds the chunk.
    held: Sent,
    /// It has passed it on to all its children.
    passed: Sent,
}

fn children(tree: &Tree, place: Place) -> u64 {
    tree.children(place).len() as u64
}

/// The nodes of one branch that can be asked for one chunk.
#[derive(Clone, Copy, Debug)]
pub struct Candidates<'a> {
    estimate: &'a Estimate,
    head: Place,
    turn: u32,
    now: Sent,
    presence: Presence,
    head_ready: bool,
    /// In two layers: so many of the head's children, the first ones, can be asked.
    prefix: u32,
    count: u32,
}

impl Candidates<'_> {
    /// How many there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Number `at` of them, as an index in the address table; there must be so many.
    pub fn get(&self, at: u32) -> u32 {
        assert!(at < self.count, "no candidate {at} of {}", self.count);
        let tree = &self.estimate.tree;
        if tree.layers() > 2 {
            let mut wanted = Some(at);
            self.subtree(self.head, &mut wanted);
            // Left in its place: the index that was found.
            return wanted.expect("the count has this one");
        }
        let place = match (self.head_ready, at) {
            (true, 0) => self.head,
            _ => Place {
                layer: 2,
                number: tree.children(self.head).start + at - u32::from(self.head_ready),
            },
        };
        tree.index(place)
    }

    /// All of them, as indices in the address table.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.count).map(|at| self.get(at))
    }

    /// Counts the candidates in the subtree of `place`; with `wanted` the one of that number, from
    /// 0, is looked for, and its index takes the number's place when it is found. Children whose
    /// elder sibling does not hold the chunk yet do not hold it either.
    fn subtree(&self, place: Place, wanted: &mut Option<u32>) -> u32 {
        let estimate = self.estimate;
        let tree = &estimate.tree;
        if estimate.held(place, self.turn) > self.now {
            return 0;
        }
        let ready = match self.presence {
            Presence::Always => true,
            Presence::Served => estimate.ready(place, Presence::Served) <= self.now,
        };
        let mut count = u32::from(ready);
        if let Some(number) = wanted
            && ready
            && *number == 0
        {
            *wanted = Some(tree.index(place));
            return FOUND;
        }
        for number in tree.children(place) {
            let child = Place {
                layer: place.layer + 1,
                number,
            };
            if estimate.held(child, self.turn) > self.now {
                break;
            }
            let mut inner = wanted.map(|wanted| wanted - count);
            let below = self.subtree(child, &mut inner);
            if below == FOUND {
                *wanted = inner;
                return FOUND;
            }
            count += below;
        }
        count
    }
}

/// The candidate that was looked for is in this subtree: more than a tree can have.
const FOUND: u32 = u32::MAX;

#[cfg(test)]
mod tests;
