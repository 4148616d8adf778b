//! Schemes for comparison, as a simulator gives them to the engine.

use super::super::rounds::Order;
use super::*;

/// Everything at once, in the order of the rounds.
pub(super) const BLIND: Scheme = Scheme::Compared(&Test("blind", None, false));
/// Everything at once, in the order of the ranks' numbers.
pub(super) const BY_NUMBER: Scheme = Scheme::Compared(&Test("by number", None, true));
/// Who comes to a busy receiver tries again later.
pub(super) const RETRY: Scheme = Scheme::Compared(&Test("retry", Some(Conflict::Retry), false));
/// Who comes to a busy receiver waits; the longest block goes first.
pub(super) const LONGEST: Scheme = Scheme::Compared(&Test(
    "longest",
    Some(Conflict::Heaviest(|_, bytes| bytes)),
    false,
));

/// Its name, what becomes of who meets a busy receiver, and whether the order is that of numbers.
#[derive(Debug)]
struct Test(&'static str, Option<Conflict>, bool);

impl Baseline for Test {
    fn name(&self) -> &'static str {
        self.0
    }

    fn sequence(&self, order: &Order, me: u32, _: &mut Rng) -> Option<Vec<u32>> {
        let rounds = (0..order.rounds()).map(|to| order.round(me, to));
        self.2.then(|| rounds.collect())
    }

    fn conflict(&self) -> Option<Conflict> {
        self.1
    }
}
