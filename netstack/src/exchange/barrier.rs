//! A barrier at one rank: in stage `s` it tells the rank `2^s` further on that it has come so far,
//! and waits for the rank `2^s` before it.
//!
//! After the last stage every rank has heard, directly or not, of every other. A token that is lost
//! is asked for by the rank that misses it.
//!
//! Source: Hensgen, Finkel, Manber: Two algorithms for barrier synchronization, 1988
//! (dissemination).
//!
//! Invariant: it is done only after every rank has begun it.

use super::group::{Members, Together};
use super::io::Io;
use super::liveness::COMPUTES;
use super::message::Item;
use super::{Error, OpId};
use crate::ids::Rank;
use crate::time::{Instant, Micros};
use crate::transport::retry::Backoff;
use crate::transport::rtt::GRANULARITY;

/// Shortest wait for a token: whose processor is slow has not lost it. A tick of a timer (RFC 9002,
/// section 6.1.2: kGranularity).
const SHORTEST_WAIT: Micros = GRANULARITY;
/// Longest wait between two questions: a rank that computes is asked ten times until it looks.
const LONGEST_WAIT: Micros = Micros(COMPUTES.0 / 10);

/// See the module.
#[derive(Debug)]
pub(super) struct Barrier {
    pub op: OpId,
    pub context: u16,
    pub number: u32,
    members: Members,
    pub signature: u32,
    stage: u8,
    /// Stages whose token has come.
    arrived: u32,
    ask_at: Instant,
    /// Questions since the last token.
    asked: u32,
    failure: Option<Error>,
}

/// Stages of a barrier of so many ranks.
fn stages(size: u32) -> u8 {
    size.next_power_of_two().trailing_zeros() as u8
}

/// Who waits for this rank's token of a stage.
fn target(members: &Members, stage: u8) -> Rank {
    let (me, size) = (u64::from(members.me()), u64::from(members.size()));
    members.rank(((me + (1 << stage)) % size) as u32)
}

fn source(members: &Members, stage: u8) -> Rank {
    let (me, size) = (u64::from(members.me()), u64::from(members.size()));
    let back = (1 << stage) % size;
    members.rank(((me + size - back) % size) as u32)
}

impl Barrier {
    /// A barrier that this rank reaches now. `arrived`: stages whose tokens have come already.
    pub(super) fn new(
        op: OpId,
        (context, number): (u16, u32),
        members: Members,
        arrived: u32,
        io: &mut Io<'_>,
    ) -> Self {
        let mut barrier = Barrier {
            op,
            context,
            number,
            signature: members.signature(Together::Barrier),
            members,
            stage: 0,
            arrived,
            ask_at: Instant::FAR_FUTURE,
            asked: 0,
            failure: None,
        };
        if stages(barrier.members.size()) > 0 {
            barrier.tell(0, io);
            barrier.advance(io);
        }
        barrier
    }

    /// How long a token may take. All wait for one that misses its token; who is only late, or
    /// slow, is asked less and less.
    fn wait(&self, io: &Io<'_>) -> Micros {
        let first = io.credit.short_answer().max(SHORTEST_WAIT);
        Backoff::new(first, LONGEST_WAIT).after(self.asked)
    }

    /// Its context and number.
    pub(super) fn id(&self) -> (u16, u32) {
        (self.context, self.number)
    }

    /// Its end, with an error if it failed.
    pub(super) fn result(&self) -> Option<Result<u64, Error>> {
        match self.failure {
            Some(error) => Some(Err(error)),
            None => (self.stage == stages(self.members.size())).then_some(Ok(0)),
        }
    }

    /// It cannot be done.
    pub(super) fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
    }

    /// The ranks that wait for this one, in some stage.
    pub(super) fn targets(&self) -> impl Iterator<Item = Rank> {
        (0..stages(self.members.size())).map(|stage| target(&self.members, stage))
    }

    /// Whom it waits for.
    pub(super) fn waits_for(&self) -> Rank {
        source(&self.members, self.stage)
    }

    /// A rank takes part in it.
    pub(super) fn has(&self, rank: Rank) -> bool {
        self.members.has(rank)
    }

    /// A token has come.
    pub(super) fn arrived(&mut self, stage: u8, io: &mut Io<'_>) {
        self.arrived |= 1 << stage;
        self.advance(io);
    }

    /// A rank asks for a token.
    pub(super) fn asked(&self, from: Rank, stage: u8, io: &mut Io<'_>) {
        if stage <= self.stage && from == target(&self.members, stage) {
            self.tell(stage, io);
        }
    }

    fn advance(&mut self, io: &mut Io<'_>) {
        while self.stage < stages(self.members.size()) && self.arrived >> self.stage & 1 == 1 {
            self.stage += 1;
            if self.stage < stages(self.members.size()) {
                self.tell(self.stage, io);
            }
        }
        self.asked = 0;
        self.ask_at = io.now + self.wait(io);
    }

    fn tell(&self, stage: u8, io: &mut Io<'_>) {
        let token = Item::Arrived {
            context: self.context,
            number: self.number,
            stage,
            signature: self.signature,
        };
        io.outbox.push(target(&self.members, stage), token);
    }

    /// When something is due.
    pub(super) fn deadline(&self) -> Instant {
        self.ask_at
    }

    /// Does what is due. `ended` is one of its ranks whose program has ended: where it was in the
    /// barrier to its end, so was every rank; else nobody will be.
    pub(super) fn tick(&mut self, ended: Option<Rank>, io: &mut Io<'_>) {
        if self.ask_at > io.now {
            return;
        }
        let ask = Item::Ask {
            context: self.context,
            number: self.number,
            stage: self.stage,
            signature: self.signature,
        };
        let source = source(&self.members, self.stage);
        for rank in ended
            .filter(|rank| *rank != source)
            .into_iter()
            .chain([source])
        {
            io.outbox.push(rank, ask);
        }
        self.asked = self.asked.saturating_add(1);
        self.ask_at = io.now + self.wait(io);
    }
}
