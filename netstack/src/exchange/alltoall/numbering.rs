//! What the blocks of an exchange are numbered by.
//!
//! The default scheme numbers them by its rounds. The published method knows no rounds: its blocks
//! are numbered by the distance of their ranks, whatever the order of rounds is.
//!
//! Invariant: each pair of places has a number below the number of ranks, and the pairs of a number
//! are a permutation of the places.

use super::super::rounds::Order;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) enum Numbering {
    /// By the round in which they are sent.
    Rounds(Order),
    /// By how many places the receiver is behind the sender, among so many.
    Distance(u32),
}

impl Numbering {
    /// How many numbers there are: as many as ranks.
    pub(super) fn rounds(&self) -> u32 {
        match self {
            Numbering::Rounds(order) => order.rounds(),
            Numbering::Distance(size) => *size,
        }
    }

    /// Whom the rank at a place sends the block of a number to, by place.
    pub(super) fn target(&self, me: u32, number: u32) -> u32 {
        match self {
            Numbering::Rounds(order) => order.target(me, number),
            Numbering::Distance(size) => sum(me, number, *size),
        }
    }

    /// Whom the rank at a place receives it from, by place.
    pub(super) fn source(&self, me: u32, number: u32) -> u32 {
        match self {
            Numbering::Rounds(order) => order.source(me, number),
            Numbering::Distance(size) => sum(me, size - number, *size),
        }
    }

    /// The number of the block that the rank at place `from` sends to the one at `to`.
    pub(super) fn number(&self, from: u32, to: u32) -> u32 {
        match self {
            Numbering::Rounds(order) => order.round(from, to),
            Numbering::Distance(size) => sum(to, size - from, *size),
        }
    }
}

fn sum(one: u32, other: u32, modulo: u32) -> u32 {
    ((u64::from(one) + u64::from(other)) % u64::from(modulo)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_has_a_number_and_each_number_is_a_permutation() {
        for size in 1..20 {
            let numbering = Numbering::Distance(size);
            for number in 0..size {
                for me in 0..size {
                    let to = numbering.target(me, number);
                    assert_eq!(numbering.source(to, number), me);
                    assert_eq!(numbering.number(me, to), number);
                }
            }
        }
    }
}
