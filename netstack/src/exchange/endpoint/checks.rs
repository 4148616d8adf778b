//! Whether an operation can be taken: ranks, contexts, groups, lengths, and who is lost.
//!
//! Neighbour: [`super`] begins what was checked.
//!
//! Invariant: nothing changes here.

use super::super::group::Members;
use super::super::incoming::Receiving;
use super::super::tagged::MAX_WITHDRAWN;
use super::super::{
    Among, BufferId, Layout, MAX_BLOCK, MAX_CONTEXTS, MAX_OPS, MAX_TOGETHER, Op, OpId, PostError,
};
use super::Endpoint;
use crate::ids::Rank;

impl Endpoint {
    /// An operation can be taken.
    ///
    /// # Errors
    /// Why it cannot.
    pub(super) fn check(&self, op: &Op) -> Result<(), PostError> {
        let rank = |rank: Rank| match rank.0 < self.config.size {
            true => Ok(()),
            false => Err(PostError::BadRank),
        };
        let context = match *op {
            Op::Send { to, context, .. } => rank(to).map(|()| context),
            Op::Receive { from, context, .. } | Op::Probe { from, context, .. } => {
                from.map_or(Ok(()), rank).map(|()| context)
            }
            Op::ReceiveClaimed { .. } => Ok(0),
            Op::AllToAll { ref among, .. } | Op::Barrier { ref among } => Ok(among.context),
        }?;
        if context >= MAX_CONTEXTS {
            return Err(PostError::BadContext);
        }
        let is_together = matches!(op, Op::AllToAll { .. } | Op::Barrier { .. });
        let together = self.exchanges.len() + self.barriers.len();
        if self.operations() >= MAX_OPS || is_together && together >= MAX_TOGETHER {
            return Err(PostError::Full);
        }
        let members = match op {
            Op::AllToAll { among, .. } | Op::Barrier { among } => Some(self.check_among(among)?),
            _ => None,
        };
        match op {
            Op::Send { bytes, .. } if *bytes > MAX_BLOCK => Err(PostError::TooLong),
            Op::Send { to, .. } if self.lost.has(*to) => Err(PostError::Lost(*to)),
            Op::Receive {
                from, context, tag, ..
            }
            | Op::Probe {
                from, context, tag, ..
            } => {
                let lost = match from {
                    Some(from) => self.lost.is_silent(*from).then_some(*from),
                    None => self.lost.of_any(self.config.size),
                };
                let receiving = Receiving {
                    op: OpId(0),
                    from: *from,
                    context: *context as u16,
                    tag: *tag,
                    buffer: BufferId(0),
                    capacity: 0,
                    claims: false,
                };
                match lost.filter(|_| !self.messages.incoming.has(&receiving)) {
                    Some(rank) => Err(PostError::Lost(rank)),
                    None => Ok(()),
                }
            }
            Op::AllToAll { send, receive, .. } => {
                let members = members.expect("the ranks of an exchange");
                check_layout(&send.layout, members.size())?;
                check_layout(&receive.layout, members.size())?;
                let bytes = |layout: &Layout, place| layout.part(place).bytes;
                let me = members.me();
                if bytes(&send.layout, me) != bytes(&receive.layout, me) {
                    return Err(PostError::BadLayout);
                }
                self.check_needed(|rank| {
                    let needs =
                        |place| bytes(&send.layout, place) > 0 || bytes(&receive.layout, place) > 0;
                    members.place(rank).is_some_and(needs)
                })
            }
            Op::Barrier { .. } => {
                let members = members.expect("the ranks of a barrier");
                self.check_needed(|rank| members.has(rank))
            }
            Op::ReceiveClaimed { claim, .. } => match self.messages.incoming.claimed(*claim) {
                None => Err(PostError::NoClaim),
                Some((sender, false)) if self.lost.has(sender) => Err(PostError::Lost(sender)),
                Some(_) => Ok(()),
            },
            Op::Send { .. } if self.messages.withdrawn() >= MAX_WITHDRAWN => Err(PostError::Full),
            Op::Send { .. } => Ok(()),
        }
    }

    /// An operation that needs these ranks is refused where one of them is lost, for the one that
    /// it would fail for.
    fn check_needed(&self, needs: impl Fn(Rank) -> bool) -> Result<(), PostError> {
        match self.lost.first(&needs) {
            Some(rank) => Err(PostError::Lost(self.lost.named(rank, needs))),
            None => Ok(()),
        }
    }

    /// Checks who takes part in an operation, and its number.
    pub(super) fn check_among(&self, among: &Among) -> Result<Members, PostError> {
        if among.context >= MAX_CONTEXTS {
            return Err(PostError::BadContext);
        }
        let context = among.context as u16;
        if !self.numbers.has_room(context) {
            return Err(PostError::TooManyContexts);
        }
        if !self.numbers.may_be(context, among.number) {
            return Err(PostError::BadNumber);
        }
        let (me, size) = (self.config.me, self.config.size);
        let is_of_job = among.group.greatest().is_none_or(|rank| rank.0 < size);
        let members = among.group.seen_by(me, size).filter(|_| is_of_job);
        members.ok_or(PostError::BadGroup)
    }
}

/// A layout names a block for each of so many ranks, none too long.
fn check_layout(layout: &Layout, size: u32) -> Result<(), PostError> {
    let (longest, is_complete) = match layout {
        Layout::Equal { bytes } => (*bytes, true),
        Layout::Parts(parts) => {
            let longest = parts.iter().map(|part| part.bytes).max();
            (longest.unwrap_or(0), parts.len() == size as usize)
        }
    };
    match (is_complete, longest > MAX_BLOCK) {
        (false, _) => Err(PostError::BadLayout),
        (true, true) => Err(PostError::TooLong),
        (true, false) => Ok(()),
    }
}
