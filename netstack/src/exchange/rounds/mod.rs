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
//! three functions, and what the header of `order` and docs/exchange.md say of it. The property
//! tests beside them say what every order must hold. An exchange is right whatever order each rank
//! has; it is fast when all have the same. The published method does not know it: the engine
//! numbers its blocks by distance.
//!
//! The blocks themselves are the engine's, which serves the published method as well: `alltoall`
//! follows the order, `inbound` and `grants` are both ends of a block, `credit` says how much may
//! be under way.
//!
//! Invariant: every ordered pair meets in exactly one round, and a round is a permutation of the
//! ranks.

mod order;

pub use order::{Order, ranks_of_a_leaf};
