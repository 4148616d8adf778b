//! Ours, for little data and many nodes: a double tree, where two layers would take longer to fill
//! than the data to send.
//!
//! Nothing of the published method ([`super::published`]) is left in it but that data is cut into
//! blocks and that a member asks for them. Small data is bound by the number of hops, and these are
//! as few as trees have.
//!
//! Two binary trees hang from the source, one for even and one for odd blocks. Who passes blocks on
//! in one of them passes nothing on in the other, so every member receives each block once and
//! sends no more than that: each block goes to two children, and of every two blocks one is theirs.
//! The last member has the last block two slots a level after it was dealt.
//!
//! A member asks its parent for what comes next; a request that is there before the block makes a
//! push of it. For a parent that is late or silent its own parent stands in, which had the block
//! before it, then the parent in the other tree, then the source.
//!
//! Source: Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and
//! scan" (Parallel Computing, 2009): the in-order tree and its mirror image or shift.
//!
//! Invariant: whoever passes blocks on in one tree is a leaf in the other.

use alloc::vec::Vec;

use super::plan::{Next, Planner, Trouble, View};
use crate::broadcast::message::{MAX_LISTED, MemberIndex};

/// Blocks of one tree that a member asks its parent for in one message: a request a block would
/// take three hundredths of a link that has nothing to spare.
const GROUP: u32 = MAX_LISTED as u32;
/// Blocks of one tree that are asked for at a time: enough for a round trip and three messages. A
/// member is deep in one tree and high in the other, where blocks come much earlier; with a common
/// bound it would stop asking in one until the other follows. And were it more, a parent that has
/// many blocks would fill the link of its child with them, while those that the child has to pass
/// on wait: what its own link loses then it never gets back.
const AHEAD: u32 = 3 * GROUP;
/// Attempts at ancestors and in the other tree before the source is asked: where half of all are
/// silent, all of them are once in 16 times.
const PEER_ATTEMPTS: u32 = 4;

/// Which of the two trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Even,
    Odd,
}

impl Side {
    fn of(block: u32) -> Side {
        match block.is_multiple_of(2) {
            true => Side::Even,
            false => Side::Odd,
        }
    }

    fn other(self) -> Side {
        match self {
            Side::Even => Side::Odd,
            Side::Odd => Side::Even,
        }
    }
}

/// Both trees over members `0..members`; the source is the root of each and has one child there.
///
/// In the in-order numbering of a tree, from 1, a place with `l` trailing zeros is at height `l`,
/// and those at odd places are leaves. Places of the odd side are those of the even side mirrored,
/// or shifted by one where the number is odd, so that who has a height in one is a leaf in the
/// other (with an odd number one member is a leaf in both). Members are numbered by their height,
/// highest first, the even side before the odd one: a cast is announced in the order of numbers,
/// and who passes blocks on should know of it first.
#[derive(Clone, Copy, Debug)]
struct Trees {
    members: u32,
}

impl Trees {
    /// Places at a height above 0, in each of the trees.
    fn places(self, height: u32) -> u32 {
        (self.members >> height).div_ceil(2)
    }

    /// A member's place in the tree in which it has a height, and which one that is. The member
    /// that has none is last: its place is odd, on the even side.
    fn inner(self, member: u32) -> (u32, Side) {
        let mut left = member;
        for height in (1..u32::BITS).rev() {
            let places = self.places(height);
            for side in [Side::Even, Side::Odd] {
                match left.checked_sub(places) {
                    Some(rest) => left = rest,
                    None => return ((2 * left + 1) << height, side),
                }
            }
        }
        (self.members, Side::Even)
    }

    /// The place in the other tree of who is at this place on one side.
    fn across(self, position: u32, side: Side) -> u32 {
        match (self.members.is_multiple_of(2), side) {
            (true, _) => self.members + 1 - position,
            (false, Side::Even) => position % self.members + 1,
            (false, Side::Odd) => (position + self.members - 2) % self.members + 1,
        }
    }

    /// A member's place in a tree.
    fn position(self, member: u32, side: Side) -> u32 {
        match self.inner(member) {
            (position, inner) if inner == side => position,
            (position, inner) => self.across(position, inner),
        }
    }

    /// The member at a place of a tree.
    fn member(self, position: u32, side: Side) -> u32 {
        let (inner, inner_side) = match position.is_multiple_of(2) {
            true => (position, side),
            false => (self.across(position, side), side.other()),
        };
        let height = inner.trailing_zeros();
        if height == 0 {
            return self.members - 1;
        }
        let above: u32 = (height + 1..u32::BITS)
            .map(|height| 2 * self.places(height))
            .sum();
        let others = match inner_side {
            Side::Even => 0,
            Side::Odd => self.places(height),
        };
        above + others + (inner >> (height + 1))
    }

    /// Who passes blocks of this side on to a member.
    fn parent(self, member: MemberIndex, side: Side) -> MemberIndex {
        let position = self.position(member.0, side);
        let lowest = position & position.wrapping_neg();
        let above = (position ^ lowest) | lowest << 1;
        // A place that the tree does not have is skipped.
        let above = match above <= self.members {
            true => above,
            false => position ^ lowest,
        };
        match above {
            0 => MemberIndex::SOURCE,
            above => MemberIndex(self.member(above, side)),
        }
    }
}

/// The planner of one member.
#[derive(Debug)]
pub(crate) struct DoubleTree {
    trees: Trees,
    blocks: u32,
    me: MemberIndex,
    /// The parents for even and odd blocks; None for who is in neither tree.
    parents: Option<[MemberIndex; 2]>,
    /// What is asked for in the even tree and in the odd one.
    flows: [Flow; 2],
}

/// What a member asks for in one of the trees, in the order of the blocks.
#[derive(Debug, Default)]
struct Flow {
    /// Blocks before this one are here or asked for, but for those that were given up.
    cursor: u32,
    /// Blocks that are asked for.
    open: Vec<u32>,
    /// Blocks of the present message.
    group: u32,
}

impl Flow {
    /// The next block and its place in its message.
    fn next(&mut self, blocks: u32, view: &View<'_>) -> Option<(u32, u32)> {
        while self.cursor < blocks && !view.lacks(self.cursor) {
            self.cursor += 2;
        }
        if self.cursor >= blocks {
            return None;
        }
        if self.group == 0 {
            // A message is not begun before it has room for all of its blocks.
            self.open.retain(|block| view.asked.contains(*block));
            if self.open.len() as u32 + GROUP > AHEAD + view.farther / 2 {
                return None;
            }
        }
        let place = self.group;
        self.group = (self.group + 1) % GROUP;
        self.open.push(self.cursor);
        self.cursor += 2;
        Some((self.cursor - 2, place))
    }
}

impl DoubleTree {
    /// For `cold` members that lack something, at least one, and so many blocks.
    pub(crate) fn new(cold: u32, blocks: u32, me: MemberIndex) -> Self {
        let trees = Trees {
            members: cold.max(1),
        };
        let inside = me.0 < trees.members;
        DoubleTree {
            trees,
            blocks,
            me,
            parents: inside.then(|| [Side::Even, Side::Odd].map(|side| trees.parent(me, side))),
            flows: [0, 1].map(|cursor| Flow {
                cursor,
                ..Flow::default()
            }),
        }
    }

    /// The parent for a block. Who is in neither tree (it joined later, or lost what it held) asks
    /// the members in turn.
    fn parent(&self, block: u32) -> MemberIndex {
        match self.parents {
            Some(parents) => parents[(block % 2) as usize],
            None => MemberIndex(self.me.0.wrapping_add(block) % self.trees.members),
        }
    }

    /// The first of a member's ancestors that answers; the source in the end.
    fn answering(&self, mut from: MemberIndex, side: Side, view: &View<'_>) -> MemberIndex {
        while !from.is_source() && view.is_silent(from) {
            from = self.trees.parent(from, side);
        }
        from
    }
}

impl Planner for DoubleTree {
    fn next(&mut self, view: &mut View<'_>) -> Next {
        if view.me.is_source() {
            return Next::Idle;
        }
        // A message is finished before another one is begun, and both trees keep in step.
        let [even, odd] = &self.flows;
        let second = even.group == 0 && (odd.group > 0 || odd.cursor < even.cursor);
        for flow in [usize::from(second), usize::from(!second)] {
            if let Some((block, early)) = self.flows[flow].next(self.blocks, view) {
                return Next::Ask {
                    block,
                    from: self.answering(self.parent(block), Side::of(block), view),
                    early,
                };
            }
        }
        if self.flows.iter().any(|flow| flow.cursor < self.blocks) {
            return Next::Idle;
        }
        // What was given up on the way.
        let next = |from| view.have.next_missing(from);
        let mut missing = core::iter::successors(next(0), |block| next(block + 1));
        match missing.find(|block| view.lacks(*block)) {
            Some(block) => Next::Ask {
                block,
                from: self.answering(self.parent(block), Side::of(block), view),
                early: 0,
            },
            None => Next::Idle,
        }
    }

    fn instead(
        &mut self,
        view: &mut View<'_>,
        block: u32,
        from: MemberIndex,
        trouble: Trouble,
        attempt: u32,
    ) -> Option<MemberIndex> {
        let side = Side::of(block);
        let parent = self.parent(block);
        if attempt == 0 {
            return Some(self.answering(parent, side, view));
        }
        if from.is_source() || attempt > PEER_ATTEMPTS {
            return Some(MemberIndex::SOURCE);
        }
        // A parent that lives is behind because those above it are: nobody else has it either.
        if matches!(trouble, Trouble::Late | Trouble::Busy) && attempt == 1 {
            return Some(from);
        }
        if attempt.is_multiple_of(2) {
            let other = self.parent(block + 1);
            if other != from && other != self.me {
                return Some(self.answering(other, side, view));
            }
        }
        let above = self.trees.parent(from, side);
        match above == self.me {
            // The other tree's parent may be below this member here.
            true => Some(MemberIndex::SOURCE),
            false => Some(self.answering(above, side, view)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broadcast::bitmap::Bitmap;
    use crate::rng::Rng;
    use crate::time::Instant;

    #[test]
    fn everybody_hangs_from_the_source_in_both_trees_and_passes_on_in_one() {
        for members in (1..300).chain([1_056, 16_512, 16_513]) {
            let trees = Trees { members };
            let mut children = std::vec![[0_u32; 2]; members as usize];
            let mut roots = [0; 2];
            for (at, side) in [Side::Even, Side::Odd].into_iter().enumerate() {
                for member in 0..members {
                    let position = trees.position(member, side);
                    assert!((1..=members).contains(&position));
                    assert_eq!(trees.member(position, side), member);
                    let parent = trees.parent(MemberIndex(member), side);
                    match parent.is_source() {
                        true => roots[at] += 1,
                        false => children[parent.0 as usize][at] += 1,
                    }
                    // Who passes on what it was passed comes after its parent.
                    if position.is_multiple_of(2) {
                        assert!(parent.is_source() || parent.0 < member);
                    }
                    let mut depth = 0;
                    let mut above = MemberIndex(member);
                    while !above.is_source() {
                        above = trees.parent(above, side);
                        depth += 1;
                        assert!(depth <= 1 + members.ilog2(), "{member} of {members}");
                    }
                }
            }
            assert_eq!(roots, [1, 1], "{members}");
            for [even, odd] in children {
                assert!(even <= 2 && odd <= 2 && (even == 0 || odd == 0));
            }
        }
    }

    /// Whom member `me` of 40 asks for block 0 after trouble with another.
    fn instead(
        me: MemberIndex,
        silent: &[MemberIndex],
        (from, trouble, attempt): (MemberIndex, Trouble, u32),
    ) -> MemberIndex {
        let (have, asked) = (Bitmap::new(8), Bitmap::new(8));
        let mut view = View {
            now: Instant::ZERO,
            clock: 0,
            me,
            have: &have,
            asked: &asked,
            silent,
            gone: &[],
            pages: &[],
            farther: 0,
            rng: &mut Rng::new(1),
        };
        let mut planner = DoubleTree::new(40, 8, me);
        let whom = planner.instead(&mut view, 0, from, trouble, attempt);
        whom.expect("somebody has it")
    }

    #[test]
    fn a_parent_that_fails_is_replaced_by_the_one_above_it_or_in_the_other_tree() {
        const SOURCE: MemberIndex = MemberIndex::SOURCE;
        let trees = Trees { members: 40 };
        let parents = |me| [Side::Even, Side::Odd].map(|side| trees.parent(me, side));
        let mut parents_differ = 0;
        for me in (0..40).map(MemberIndex) {
            let [parent, other] = parents(me);
            let above = |from| match trees.parent(from, Side::Even) {
                above if above == me => SOURCE,
                above => above,
            };
            let asks = |from, trouble, attempt| instead(me, &[], (from, trouble, attempt));
            assert_eq!(asks(SOURCE, Trouble::Silent, 0), parent);
            for attempt in 1..9 {
                assert_eq!(asks(SOURCE, Trouble::NotHere, attempt), SOURCE);
            }
            if parent.is_source() {
                continue;
            }
            for attempt in PEER_ATTEMPTS + 1..9 {
                assert_eq!(asks(parent, Trouble::Late, attempt), SOURCE);
            }
            // One that lives is behind because those above it are.
            for trouble in [Trouble::Late, Trouble::Busy] {
                assert_eq!(asks(parent, trouble, 1), parent);
                assert_eq!(asks(parent, trouble, 3), above(parent));
            }
            for trouble in [Trouble::Silent, Trouble::NotHere, Trouble::Corrupt] {
                assert_eq!(asks(parent, trouble, 1), above(parent));
            }
            for attempt in [2, 4] {
                let whom = asks(parent, Trouble::Late, attempt);
                match other == parent {
                    true => assert_eq!(whom, above(parent)),
                    false => assert_eq!(whom, other),
                }
                parents_differ += u32::from(other != parent);
            }
            // Who does not answer is passed by.
            let silent = [parent];
            let whom = instead(me, &silent, (SOURCE, Trouble::Silent, 0));
            assert_eq!(whom, trees.parent(parent, Side::Even));
        }
        assert!(parents_differ > 40, "{parents_differ}");
    }

    #[test]
    fn nobody_asks_itself_through_a_member_below_it() {
        let trees = Trees { members: 40 };
        let mut below = 0;
        for child in (0..40).map(MemberIndex) {
            let me = trees.parent(child, Side::Even);
            if !me.is_source() {
                let whom = instead(me, &[], (child, Trouble::Silent, 3));
                assert_eq!(whom, MemberIndex::SOURCE);
                below += 1;
            }
        }
        assert_eq!(below, 39, "one hangs from the source");
    }
}
