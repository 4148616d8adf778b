//! The ranks that take part in an exchange or a barrier: all of the job, or those that are listed.
//!
//! Within a group everybody has a *place*, from 0 on: the rank itself where the group is all of the
//! job, else where it stands in the list. Schedules, layouts and the order of rounds know places;
//! datagrams and losses know ranks.
//!
//! The *signature* of an operation is a hash of its kind and of its group. Ranks say it with what
//! they tell each other, so that those who take part in different ones at a number hear so.
//!
//! Neighbours: `alltoall` and `barrier` have a group each; [`super::endpoint`] checks it.
//!
//! Invariant: no rank has two places, and every place is below the size.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::ids::Rank;

/// Who takes part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Group {
    /// All ranks of the job.
    #[default]
    All,
    /// These. All of them name the same, in the same order.
    Listed(Arc<Listed>),
}

/// Some ranks of a job, in an order of their own.
#[derive(Debug, PartialEq, Eq)]
pub struct Listed {
    /// By place.
    ranks: Vec<Rank>,
    /// The places, by rank.
    places: Vec<u32>,
    /// Hash of the list.
    hash: u32,
}

/// What the ranks of a group do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Together {
    Exchange = 1,
    Barrier = 2,
}

/// FNV-1a, word by word.
const HASH: u32 = 0x811c_9dc5;

fn hash(before: u32, word: u32) -> u32 {
    (before ^ word).wrapping_mul(0x0100_0193)
}

/// A list of ranks is no group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupError {
    /// It is empty, or has more ranks than there may be.
    Length,
    /// This rank stands in it twice.
    Twice(Rank),
    /// There is no memory for it.
    Memory,
}

impl Group {
    /// The group of these ranks. Takes 8 bytes a rank.
    ///
    /// # Errors
    /// The list is empty or too long, names a rank twice, or there is no memory for it.
    pub fn listed(ranks: Vec<Rank>) -> Result<Self, GroupError> {
        if ranks.is_empty() || ranks.len() > super::MAX_RANKS as usize {
            return Err(GroupError::Length);
        }
        let mut places = Vec::new();
        (places.try_reserve_exact(ranks.len())).map_err(|_| GroupError::Memory)?;
        places.extend(0..ranks.len() as u32);
        places.sort_unstable_by_key(|place| ranks[*place as usize]);
        let rank = |place: u32| ranks[place as usize];
        let mut pairs = places.windows(2);
        if let Some(pair) = pairs.find(|pair| rank(pair[0]) == rank(pair[1])) {
            return Err(GroupError::Twice(rank(pair[0])));
        }
        let hash = ranks.iter().fold(HASH, |before, rank| hash(before, rank.0));
        let listed = Listed {
            ranks,
            places,
            hash,
        };
        Ok(Group::Listed(Arc::new(listed)))
    }

    /// The greatest rank that it names; none where it names none.
    pub(super) fn greatest(&self) -> Option<Rank> {
        match self {
            Group::All => None,
            Group::Listed(listed) => listed.places.last().map(|at| listed.ranks[*at as usize]),
        }
    }

    /// As one of its ranks sees it, in a job of `size` ranks; none where this rank is not in it.
    pub(super) fn seen_by(&self, me: Rank, size: u32) -> Option<Members> {
        let (group, size) = match self {
            Group::All => (Group::All, size),
            Group::Listed(listed) if listed.is_all(size) => (Group::All, size),
            Group::Listed(listed) => (self.clone(), listed.ranks.len() as u32),
        };
        let members = Members { group, size, me: 0 };
        let me = members.place(me)?;
        Some(Members { me, ..members })
    }
}

impl Listed {
    /// It names all ranks of a job of so many, each at its own place.
    fn is_all(&self, size: u32) -> bool {
        let mut ranks = (0..).zip(&self.ranks);
        self.ranks.len() == size as usize && ranks.all(|(place, rank)| place == rank.0)
    }
}

/// A group as one of its ranks sees it.
#[derive(Clone, Debug)]
pub(super) struct Members {
    group: Group,
    size: u32,
    me: u32,
}

impl Members {
    /// How many there are.
    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// What these ranks do together, as they tell each other; never 0. Who does something else, or
    /// with others, has another signature.
    pub(super) fn signature(&self, what: Together) -> u32 {
        let group = match &self.group {
            Group::All => HASH,
            Group::Listed(listed) => listed.hash,
        };
        hash(hash(group, self.size), what as u32).max(1)
    }

    /// The place of this rank.
    pub(super) fn me(&self) -> u32 {
        self.me
    }

    /// All ranks of the job.
    pub(super) fn is_all(&self) -> bool {
        self.group == Group::All
    }

    /// The rank at a place. Invariant: the place is below the size.
    pub(super) fn rank(&self, place: u32) -> Rank {
        match &self.group {
            Group::All => Rank(place),
            Group::Listed(listed) => listed.ranks[place as usize],
        }
    }

    /// The place of a rank, if it is one of them.
    pub(super) fn place(&self, rank: Rank) -> Option<u32> {
        match &self.group {
            Group::All => (rank.0 < self.size).then_some(rank.0),
            Group::Listed(listed) => {
                let by_rank = |place: &u32| listed.ranks[*place as usize];
                let at = listed.places.binary_search_by_key(&rank, by_rank).ok()?;
                Some(listed.places[at])
            }
        }
    }

    /// It is one of them.
    pub(super) fn has(&self, rank: Rank) -> bool {
        self.place(rank).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_rank_of_a_list_has_its_place(
            ranks in prop::collection::hash_set(0u32..500, 1..60), absent in 0u32..500,
        ) {
            let list: Vec<Rank> = ranks.iter().copied().map(Rank).collect();
            let group = Group::listed(list.clone()).unwrap();
            prop_assert_eq!(group.greatest(), list.iter().copied().max());
            for (place, rank) in list.iter().enumerate() {
                let members = group.seen_by(*rank, 500).unwrap();
                prop_assert_eq!((members.me(), members.size()), (place as u32, list.len() as u32));
                prop_assert_eq!(members.rank(place as u32), *rank);
                prop_assert_eq!(members.has(Rank(absent)), ranks.contains(&absent));
            }
            if !ranks.contains(&absent) {
                prop_assert!(group.seen_by(Rank(absent), 500).is_none());
            }
            let mut twice = list.clone();
            twice.push(list[0]);
            prop_assert_eq!(Group::listed(twice), Err(GroupError::Twice(list[0])));
        }
    }

    #[test]
    fn all_ranks_are_their_own_places() {
        let members = Group::All.seen_by(Rank(3), 5).unwrap();
        assert_eq!(
            (members.me(), members.size(), members.rank(4)),
            (3, 5, Rank(4))
        );
        assert_eq!(
            (members.place(Rank(4)), members.place(Rank(5))),
            (Some(4), None)
        );
        assert!(Group::All.seen_by(Rank(5), 5).is_none());
        assert_eq!(Group::listed(Vec::new()), Err(GroupError::Length));
        let all = Group::listed((0..5).map(Rank).collect()).unwrap();
        assert!(all.seen_by(Rank(3), 5).unwrap().is_all());
        assert!(!all.seen_by(Rank(3), 6).unwrap().is_all());
    }

    #[test]
    fn who_does_something_else_or_with_others_has_another_signature() {
        let list = |ranks: &[u32]| Group::listed(ranks.iter().copied().map(Rank).collect());
        let groups = [&[0, 1][..], &[1, 0], &[0, 1, 2], &[0, 2], &[2, 1, 0]];
        let groups = groups.map(|ranks| list(ranks).unwrap());
        let groups = groups.iter().chain([&Group::All]);
        let mut signatures: Vec<u32> = groups
            .map(|group| group.seen_by(Rank(0), 4).unwrap())
            .flat_map(|of| [Together::Exchange, Together::Barrier].map(|what| of.signature(what)))
            .collect();
        let all = signatures.len();
        signatures.sort_unstable();
        signatures.dedup();
        assert_eq!(signatures.len(), all);
    }
}
