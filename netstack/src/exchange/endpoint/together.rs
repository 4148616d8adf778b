//! How an exchange or a barrier begins, and what becomes of it where another rank takes part in
//! something else at its number.
//!
//! Ranks say the signature of an operation with what they tell each other about it. One that finds
//! another than its own, now, in what has come before it began, or in what is over here, fails and
//! tells the other rank, which fails as well.
//!
//! Neighbours: `numbers` knows what an operation was, `receiving` asks for each item, [`super`]
//! begins.
//!
//! Invariant: a rank that is not in a group cannot make its operations fail.

use alloc::vec::Vec;

use super::super::barrier::Barrier;
use super::super::group::Together;
use super::super::message::{Item, NOBODY, Why};
use super::super::{Among, Error};
use super::{Endpoint, MAX_EARLY_TOKENS};
use crate::ids::Rank;

/// What has come for an operation before it began.
#[derive(Debug, Default)]
pub(super) struct Early {
    /// Ranks that are ready for it, and the bytes of their blocks.
    pub ready: Vec<(Rank, u64)>,
    /// What it hears as the master of the published method.
    pub reports: Vec<(Rank, u32)>,
    /// Stages of a barrier whose token has come.
    pub stages: u32,
    /// It has failed at another rank, since this one takes part in something else.
    pub broken: Option<Rank>,
    /// Ranks that take part in something else, and what that is.
    pub others: Vec<(Rank, Together)>,
}

/// What a rank has said of a barrier that this one has not reached.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EarlyToken {
    /// Stages whose token has come.
    pub stages: u32,
    /// What it takes part in; 0: it has not said so.
    pub signature: u32,
    /// The barrier has failed there, since this rank takes part in something else.
    pub broken: Option<Rank>,
}

impl Endpoint {
    /// Where to note what a rank says of a barrier that this one has not reached; none where it
    /// has, or where there is no room.
    pub(super) fn early_token(&mut self, from: Rank, id: (u16, u32)) -> Option<&mut EarlyToken> {
        let key = (id.0, id.1, from);
        let is_known = self.early_tokens.contains_key(&key);
        let is_room = is_known || self.early_tokens.len() < MAX_EARLY_TOKENS;
        let is_ahead = self.numbers.is_ahead(id.0, id.1) && !self.left;
        (is_room && is_ahead).then(|| self.early_tokens.entry(key).or_default())
    }

    /// Counts an operation that begins: its context and number, and what has come for it.
    pub(super) fn begin_number(&mut self, among: &Among, signature: u32) -> ((u16, u32), Early) {
        let context = among.context as u16;
        let number = self.numbers.begin(context, among.number, signature);
        let mut early = Early::default();
        let all = (context, number, Rank(0))..=(context, number, NOBODY);
        // A packet of a block says nothing of its exchange.
        let is_other = |of: u32| of != signature && of != 0;
        for ((.., rank), (bytes, of)) in self.early.extract_if(all.clone(), |_, _| true) {
            match is_other(of) {
                true => early.others.push((rank, Together::Exchange)),
                false => early.ready.push((rank, bytes)),
            }
        }
        for (rank, step, of) in self.early_reports.take((context, number)) {
            match is_other(of) {
                true => early.others.push((rank, Together::Exchange)),
                false => early.reports.push((rank, step)),
            }
        }
        for ((.., rank), token) in self.early_tokens.extract_if(all, |_, _| true) {
            match is_other(token.signature) {
                true => early.others.push((rank, Together::Barrier)),
                false => {
                    early.stages |= token.stages;
                    early.broken = early.broken.or(token.broken);
                }
            }
        }
        ((context, number), early)
    }

    /// What a rank says is of something else than this rank has, or had, at that number; it hears
    /// so.
    pub(super) fn is_of_other(&mut self, from: Rank, item: &Item) -> bool {
        let Some((id, signature)) = item.operation() else {
            return false;
        };
        let own = self.numbers.signature(id.0, id.1);
        let is_other = own.is_some_and(|own| own != signature);
        if is_other {
            let theirs = match item {
                Item::Arrived { .. } | Item::Ask { .. } => Together::Barrier,
                _ => Together::Exchange,
            };
            self.counters.bad += 1;
            self.found_other(from, id, theirs);
            if own == Some(0) {
                self.fail_behind(from, id.0, |of| of == signature);
            }
        }
        is_other
    }

    /// A rank takes part in something else at this number.
    pub(super) fn found_other(
        &mut self,
        from: Rank,
        (context, number): (u16, u32),
        theirs: Together,
    ) {
        let exchanges = self.exchanges.iter_mut();
        let same = exchanges.filter(|e| (e.context, e.number) == (context, number));
        for exchange in same.filter(|exchange| exchange.has(from)) {
            exchange.fail(Error::Other(from));
        }
        let barriers = self.barriers.iter_mut();
        let same = barriers.filter(|barrier| barrier.id() == (context, number));
        for barrier in same.filter(|barrier| barrier.has(from)) {
            barrier.fail(Error::Other(from));
        }
        let (rank, why) = (from, Why::Other);
        let item = match theirs {
            Together::Exchange => Item::Fault {
                context,
                number,
                rank,
                why,
                bytes: None,
            },
            Together::Barrier => Item::Broken {
                context,
                number,
                rank,
                why,
            },
        };
        self.outbox.push(from, item);
    }

    /// A barrier has failed because a rank takes part in something else. That rank is not lost, so
    /// that who waits for it in a later stage would hear of nobody: it hears of this one.
    pub(super) fn pass_on(&mut self, barrier: &Barrier, error: Error) {
        let Error::Other(rank) = error else {
            return;
        };
        let (context, number) = barrier.id();
        for to in barrier.targets() {
            let broken = Item::Broken {
                context,
                number,
                rank,
                why: Why::Other,
            };
            self.outbox.push(to, broken);
        }
    }

    /// A rank has an operation of this rank at a number that this one passed over, so it does not
    /// come to the number of this one.
    pub(super) fn fail_behind(&mut self, from: Rank, context: u16, is_it: impl Fn(u32) -> bool) {
        let exchanges = self.exchanges.iter_mut();
        let same = exchanges.filter(|e| e.context == context && is_it(e.signature));
        for exchange in same.filter(|exchange| exchange.has(from)) {
            exchange.fail(Error::Other(from));
        }
        let barriers = self.barriers.iter_mut();
        let same = barriers.filter(|b| b.context == context && is_it(b.signature));
        for barrier in same.filter(|barrier| barrier.has(from)) {
            barrier.fail(Error::Other(from));
        }
    }
}
