//! The exchange that Hearth ships: rounds of perfect matchings, without a master and without a
//! barrier.
//!
//! [`super::published`] has the method's page. What is ours, and why (ADR 24):
//!
//! | published | here | why |
//! |---|---|---|
//! | L ranks active at a time | all | with unicast fewer take p / L times as long |
//! | the master names targets, and waits after each step | the order of rounds is known to every rank (`order`) | a step lasts for the slowest pair and a round trip more |
//! | senders send | receivers pull, the earliest round first, within a credit | no port overflows, and a lost packet holds up no round |
//! | | blocks of few packets go unasked | a credit would cost more than they do |
//! | | whoever is late is asked again, and told when its turn comes | late ranks hold nobody up |
//!
//! **The order of rounds** is decided by [`Order`] and by nothing else: whom a rank sends to in a
//! round, whom it receives from, and in which round two ranks meet. To change it, change these
//! three functions together (`round` is the inverse of both others), and what the header of
//! `order`, docs/exchange.md and ADR 24 say of it. Two commands tell whether the new one is good:
//!
//! - `cargo test -p netstack rounds::order` holds what every order must hold, such as
//!   `every_round_is_a_permutation_and_every_pair_meets_once`. It sees the order of one rank.
//! - `cargo test -p netstack-sim --test exchange` fails where ranks do not agree, or a round is
//!   slow: each quiet exchange must take at most 1.05 of its links' time, with no packet dropped.
//!   `cargo xtask sim exchange --p 64 --bytes 64KB` shows the figure, 1.033 now; the bytes arrive
//!   whatever it is.
//!
//! An exchange is right as long as the order of each rank is a valid one; it is fast when all have
//! the same. With one that is none ranks wait for blocks of the wrong pair: the error is then of
//! two lengths, or the exchange stands still. The published method does not know the order: the
//! engine numbers its blocks by distance.
//!
//! The blocks themselves are the engine's, which serves the published method as well: `alltoall`
//! follows the order, `inbound` and `grants` are both ends of a block, `credit` says how much may
//! be under way.
//!
//! Invariant: every ordered pair meets in exactly one round, and a round is a permutation of the
//! ranks.

mod order;

pub use order::{Order, ranks_of_a_leaf};
