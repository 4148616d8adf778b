//! Sums over all nodes, tick by tick.
//!
//! Neighbour: [`super::Overlay`] takes the parts from the front end and shows what is here.
//!
//! Invariant: the sum of a part of the nodes is shown only when the next tick has begun: counters
//! do not go back because some nodes report later than others.

use netstack::overlay::MetricId;

/// Sums over all nodes of a tick: of the last one that is whole, or that the next one has followed.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    /// The tick.
    pub tick: u64,
    /// Back ends in it.
    pub covers: u32,
    /// Back ends attached then.
    pub attached: u32,
    /// By metric.
    pub sums: Vec<(MetricId, i128)>,
}

impl Totals {
    /// Takes what came late of the same tick.
    fn add(&mut self, late: Totals) {
        self.covers = self.covers.saturating_add(late.covers);
        self.attached = late.attached;
        for (metric, more) in late.sums {
            match self.sums.iter_mut().find(|(of, _)| *of == metric) {
                Some((_, sum)) => *sum = sum.saturating_add(more),
                None => self.sums.push((metric, more)),
            }
        }
    }

    fn is_whole(&mut self) -> bool {
        self.covers >= self.attached
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    shown: Totals,
    coming: Option<Totals>,
}

impl Gathering {
    pub fn shown(&self) -> &Totals {
        &self.shown
    }

    /// Takes a part of a tick. Those of a tick that was shown already, or that another has
    /// followed, change nothing.
    pub fn take(&mut self, part: Totals) {
        let newest = self.coming.as_ref().map_or(0, |coming| coming.tick);
        if part.tick <= self.shown.tick || part.tick < newest {
            return;
        }
        match &mut self.coming {
            Some(coming) if coming.tick == part.tick => coming.add(part),
            coming => {
                if let Some(last) = coming.replace(part) {
                    self.shown = last;
                }
            }
        }
        if let Some(whole) = self.coming.take_if(Totals::is_whole) {
            self.shown = whole;
        }
    }
}
