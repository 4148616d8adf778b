//! The published method of grouped exchange.
//!
//! Source: Chen and Na, Journal of the University of Shanghai for Science and Technology 27(1),
//! 2005 (`docs/methods.md`).
//!
//! Its steps, and where they are:
//!
//! | step | what | where |
//! |---|---|---|
//! | a to c | ranks wait in a passive queue, in the order in which they finished their local part; the first L become active | [`schedule`] |
//! | d | the target queues: the passive ranks dealt out by striding, then an active one each | [`schedule::target_queues`] |
//! | e | rotation: in step f active rank i sends to the ranks of queue i + f, one after the other; the master waits for all | [`schedule`], `steps` |
//! | f, g | who was active goes to the tail; until each was active once | [`schedule`] |
//! | on a rank | hear of the master whom to send to, send, tell it when done | `steps` |
//!
//! *Published*: all of these. *Ours*, where the publication is silent: an L that does not divide
//! the number of ranks, how L is chosen where nobody says it ([`active`]), how lost messages
//! between a rank and the master are said again (`steps`), and blocks: the publication has sockets,
//! here they go unasked, and what is lost is asked for.
//!
//! [`super::rounds`] has what Hearth does by default, and why.
//!
//! Invariant: in a step no rank receives from two, and all ordered pairs meet once.

pub mod active;
pub mod schedule;
pub(super) mod steps;
