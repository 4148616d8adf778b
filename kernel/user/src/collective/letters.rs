//! The messages of a collective operation that goes from rank to rank, along a tree or between pairs.
//!
//! A letter has its sender's values; of values that are many it has their bytes as a number, and they themselves go by
//! all-to-all exchanges afterwards. Its tag says which of the two it is, of what operation, and the operation's number.
//! A rank that cannot go on sends no values to those who would hear of it later but the reason, at once: so all that
//! wait hear, and of the rank at fault instead of one that gave up because of it.
//!
//! | bits of a tag | of values | of a reason |
//! |---|---|---|
//! | 31 | 0 | 1 |
//! | 30 to 27, 30 to 29 | bit 30: a length; 29 to 27: [`Kind`] | 0 lost, 1 another length, 2 withdrawn |
//! | 26 to 0, 28 to 17 | number of the operation | its low bits |
//! | 16 to 0 | | the rank at fault |
//!
//! Neighbours: `broadcast` and `reduce` say who sends to whom; `call` counts the operations.
//!
//! Invariant: a letter of an earlier operation, which some rank gave up, is never taken for one of this operation; whoever gives
//! up waits for nobody longer than [`TELL_WITHIN`].

use hearth_abi::errno::Errno;
use hearth_abi::exchange::{Kind as Operation, Operation as Posted, STATUS_BYTES, Status};

use super::COLLECTIVE;
use crate::call::{self, Patience};
use crate::scope;
use crate::{Data, Error, Result, World};

/// How long the reason may take to leave where the node has no room for a copy of it, in microseconds.
const TELL_WITHIN: u64 = 1_000_000;

const REASON: u32 = 1 << 31;
const LENGTH: u32 = 1 << 30;
const KIND_AT: u32 = 27;
const NUMBER: u32 = (1 << KIND_AT) - 1;
const WHY_AT: u32 = 29;
/// Of the operation's number in a reason.
const SHORT_NUMBER: u32 = (1 << 12) - 1;
const SHORT_NUMBER_AT: u32 = 17;
const RANK: u32 = (1 << SHORT_NUMBER_AT) - 1;

/// Which operation a letter is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Broadcast = 1,
    Reduce = 2,
}

/// What has come from a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Values of so many bytes.
    Values(u64),
    /// That its values have so many bytes.
    Length(u64),
}

/// The letters of one operation.
#[derive(Debug)]
pub(super) struct Letters {
    world: World,
    kind: Kind,
    number: u32,
    begun: bool,
}

/// The bytes of values.
pub(super) fn bytes_of<T: Data>(values: &[T]) -> &[u8] {
    // SAFETY: no byte of a value is uninitialized, says `Data`.
    unsafe { core::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// The bytes of values, to be written.
pub(super) fn bytes_of_mut<T: Data>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and all combinations of bytes are values.
    unsafe { core::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}

impl Letters {
    /// Those of the next operation, which counts once a letter has left or come: what failed before can be tried again.
    pub(super) fn new(world: World, kind: Kind) -> Self {
        Self {
            world,
            kind,
            number: call::collectives() & NUMBER,
            begun: false,
        }
    }

    fn begin(&mut self) {
        if !core::mem::replace(&mut self.begun, true) {
            call::collective_begins();
        }
    }

    fn tag(&self, is_length: bool) -> u32 {
        let length = if is_length { LENGTH } else { 0 };
        length | (self.kind as u32) << KIND_AT | self.number
    }

    /// Sends values, or their length in 8 bytes, to some ranks; what cannot be sent to one does not keep it from the others.
    pub(super) fn send(&mut self, to: &[u32], is_length: bool, bytes: &[u8]) -> Result<()> {
        let tag = self.tag(is_length);
        self.world.collective_scope(|scope| {
            let mut result = Ok(());
            for &to in to {
                match scope.send(to, tag, bytes) {
                    Ok(_) => self.begin(),
                    Err(error) => result = result.and(Err(error)),
                }
            }
            match (result, scope.finish()) {
                (Ok(()), finished) => finished,
                (error, _) => error,
            }
        })
    }

    /// Waits for the letter of a rank, whose values or length go to the start of `room`, of 8 bytes at least where a length
    /// may come.
    ///
    /// # Errors
    /// That the rank is lost; why it gave up; [`Error::Mismatch`] where its letter does not fit.
    pub(super) fn receive(&mut self, from: u32, room: &mut [u8]) -> Result<Heard> {
        loop {
            let operation = scope::receive(COLLECTIVE, Some(from), None, room);
            // SAFETY: `room` is borrowed while this runs.
            let status = unsafe { scope::outcome(self.world, &operation)? };
            let is_longer = -status.error == i32::from(Errno::EMSGSIZE.number());
            if status.error != 0 && !is_longer {
                self.begin();
                return Err(Error::of_status(&status));
            }
            if let Some(heard) = self.read(from, &status, room) {
                self.begin();
                return heard;
            }
        }
    }

    /// What a letter says; `None` for one of an earlier operation.
    fn read(&self, from: u32, status: &Status, room: &[u8]) -> Option<Result<Heard>> {
        let tag = status.tag;
        if tag & REASON != 0 {
            let number = tag >> SHORT_NUMBER_AT & SHORT_NUMBER;
            if number != self.number & SHORT_NUMBER {
                return None;
            }
            let rank = match tag & RANK {
                // It is this rank's letter that did not fit, as that one sees it.
                rank if rank == self.world.rank() => from,
                rank => rank,
            };
            return Some(Err(match tag >> WHY_AT & 3 {
                0 => Error::Lost(rank),
                1 => Error::Mismatch(rank),
                _ => Error::Withdrawn(rank),
            }));
        }
        let behind = self.number.wrapping_sub(tag) & NUMBER;
        if behind != 0 && behind <= NUMBER / 2 {
            return None;
        }
        let is_of_this = tag & !LENGTH == self.tag(false);
        if !is_of_this || status.error != 0 {
            return Some(Err(Error::Mismatch(from)));
        }
        if tag & LENGTH == 0 {
            return Some(Ok(Heard::Values(status.bytes)));
        }
        let length = room.first_chunk().filter(|_| status.bytes == 8);
        let length = length.map(|bytes| Heard::Length(u64::from_le_bytes(*bytes)));
        Some(length.ok_or(Error::Mismatch(from)))
    }

    /// Waits for the letter of a rank and sends it that of this one meanwhile; both must have the same length and be of the
    /// same sort. When that rank's does not come, or does not fit, it may not get this one's.
    pub(super) fn swap(
        &mut self,
        other: u32,
        is_length: bool,
        own: &[u8],
        room: &mut [u8],
    ) -> Result<()> {
        let tag = self.tag(is_length);
        self.world.collective_scope(|scope| {
            let sent = scope.send(other, tag, own)?;
            self.expect(other, is_length, own.len(), room)?;
            scope.wait(sent).map(drop)
        })
    }

    /// Waits for the letter of a rank, which must have so many bytes and be of this sort.
    pub(super) fn expect(
        &mut self,
        from: u32,
        is_length: bool,
        bytes: usize,
        room: &mut [u8],
    ) -> Result<()> {
        match (self.receive(from, room)?, is_length) {
            (Heard::Values(found), false) if found == bytes as u64 => Ok(()),
            (Heard::Length(_), true) => Ok(()),
            _ => Err(Error::Mismatch(from)),
        }
    }

    /// This rank cannot go on: those who wait for letters of it get the reason instead. Gives the reason back.
    pub(super) fn give_up(&mut self, why: Error, to: impl Iterator<Item = u32>) -> Error {
        if !self.begun {
            return why;
        }
        let (reason, rank) = match why {
            Error::Lost(rank) => (0, rank),
            Error::Mismatch(rank) => (1, rank),
            Error::Withdrawn(rank) => (2, rank),
            _ => (2, self.world.rank()),
        };
        let tag = REASON
            | reason << WHY_AT
            | (self.number & SHORT_NUMBER) << SHORT_NUMBER_AT
            | rank & RANK;
        for to in to {
            let letter = Posted {
                kind: Operation::Send as u16,
                rank: to,
                context: COLLECTIVE,
                tag,
                ..Posted::default()
            };
            // Who is lost need not hear it.
            // SAFETY: it has no bytes.
            let Ok(request) = (unsafe { call::post(&letter) }) else {
                continue;
            };
            let patience = Patience {
                spin: false,
                micros: TELL_WITHIN,
            };
            let mut status = [[0; STATUS_BYTES]];
            if call::wait(&mut [request], &mut status, patience) != Ok(1) {
                let _ = call::cancel(request);
            }
        }
        why
    }
}
