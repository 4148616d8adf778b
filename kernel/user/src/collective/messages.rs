//! The messages of a collective operation that goes from rank to rank, along a tree or between
//! pairs.
//!
//! A message has its sender's values; of values that are many it has their bytes as a number, and
//! they themselves go by all-to-all exchanges afterwards. Its tag says which of the two it is, of
//! what operation, and the operation's number. A rank that cannot go on sends no values to those
//! who would hear of it later but the reason, at once: so all that wait hear, and of the rank at
//! fault instead of one that gave up because of it.
//!
//! | bits of a tag | |
//! |---|---|
//! | 31 | a reason |
//! | 30 | a length |
//! | 29 to 27 | [`Kind`] |
//! | 26 to 0 | number of the operation |
//!
//! A length has 8 bytes, a reason too: the number of a [`Why`] and the rank at fault, each a u32.
//!
//! Neighbours: `broadcast` and `reduce` say who sends to whom; `call` counts the operations.
//!
//! Invariant: a message of an earlier operation, which some rank gave up, is never taken for one of
//! this operation, unless 2^26 were in between; whoever gives up waits for nobody longer than
//! [`TELL_WITHIN`].

use alloc::vec::Vec;

use hearth_abi::errno::Errno;
use hearth_abi::exchange::{Kind as Operation, Operation as Posted, STATUS_BYTES, Status, Why};

use super::COLLECTIVE;
use crate::call::{self, Patience};
use crate::scope;
use crate::{Data, Error, Result, World};

/// How long the reason may take to leave where the node has no room for a copy of it, in
/// microseconds. After that it is left where it is for the rank to find, up to a number of them
/// ([`STAYING_MAX`]).
const TELL_WITHIN: u64 = 1_000_000;
/// Most reasons that stay where they are until the program ends, of the requests that may be
/// outstanding.
const STAYING_MAX: u32 = 16;

const REASON: u32 = 1 << 31;
const LENGTH: u32 = 1 << 30;
const KIND_AT: u32 = 27;
const NUMBER: u32 = (1 << KIND_AT) - 1;

/// Bytes of a length, and of a reason.
const BODY: usize = 8;

/// Which operation a message is of.
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

/// The messages of one operation.
#[derive(Debug)]
pub(super) struct Messages {
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

impl Messages {
    /// Those of the next operation, which counts once a message has left or come: what failed
    /// before can be tried again.
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

    /// Sends values, or their length in 8 bytes, to some ranks; that one of them is lost does not
    /// keep it from the others. To those to whom it cannot be sent goes the reason.
    pub(super) fn send(&mut self, to: &[u32], is_length: bool, bytes: &[u8]) -> Result<()> {
        let (world, tag) = (self.world, self.tag(is_length));
        let mut sent = 0;
        let result = world.collective_scope(|scope| {
            let mut result = Ok(());
            for &to in to {
                let mut posted = scope.send(to, tag, bytes);
                if sent > 0 && matches!(posted, Err(Error::TooMany)) {
                    // One place is enough to send to all in turn.
                    result = result.and(scope.finish());
                    posted = scope.send(to, tag, bytes);
                }
                if let Err(error) = posted {
                    result = result.and(Err(error));
                    break;
                }
                sent += 1;
                self.begin();
            }
            result.and(scope.finish())
        });
        match result {
            Err(why) if sent < to.len() => Err(self.give_up(why, to[sent..].iter().copied())),
            result => result,
        }
    }

    /// Waits for the message of a rank, whose values go to the start of `room`.
    ///
    /// # Errors
    /// That the rank is lost; why it gave up; [`Error::Mismatch`] where its message does not fit.
    pub(super) fn receive(&mut self, from: u32, room: &mut [u8]) -> Result<Heard> {
        let mut body = [0; BODY];
        let is_little = room.len() < BODY;
        loop {
            // There is room for a length and for a reason, too.
            let into = if is_little { &mut body[..] } else { &mut *room };
            let operation = scope::receive(COLLECTIVE, Some(from), None, into);
            // SAFETY: `into` is borrowed while this runs.
            let status = unsafe { scope::outcome(self.world, &operation)? };
            let is_longer = -status.error == i32::from(Errno::EMSGSIZE.number());
            if status.error != 0 && !is_longer {
                self.begin();
                return Err(Error::of_status(&status));
            }
            let Some(heard) = self.read(from, &status, into) else {
                continue;
            };
            self.begin();
            if is_little && let Ok(Heard::Values(bytes)) = heard {
                let bytes = room.len().min(bytes as usize);
                room[..bytes].copy_from_slice(&body[..bytes]);
            }
            return heard;
        }
    }

    /// What a message says; `None` for one of an earlier operation.
    fn read(&self, from: u32, status: &Status, room: &[u8]) -> Option<Result<Heard>> {
        let tag = status.tag;
        let behind = self.number.wrapping_sub(tag) & NUMBER;
        if behind != 0 && behind <= NUMBER / 2 {
            return None;
        }
        let is_of_this = tag & !(LENGTH | REASON) == self.tag(false);
        if !is_of_this || status.error != 0 {
            return Some(Err(Error::Mismatch(from)));
        }
        if tag & (LENGTH | REASON) == 0 {
            return Some(Ok(Heard::Values(status.bytes)));
        }
        let body = room.first_chunk().filter(|_| status.bytes == BODY as u64);
        Some(match body {
            None => Err(Error::Mismatch(from)),
            Some(body) if tag & REASON != 0 => Err(self.reason(from, body)),
            Some(body) => Ok(Heard::Length(u64::from_le_bytes(*body))),
        })
    }

    /// Why that rank gave up.
    fn reason(&self, from: u32, body: &[u8; BODY]) -> Error {
        let body = u64::from_le_bytes(*body);
        let (why, rank) = (Why::from_number(body as u32), (body >> 32) as u32);
        match why.unwrap_or(Why::Withdrawn) {
            why if rank != self.world.rank() && rank < self.world.size() => {
                Error::of_reason(why, rank)
            }
            // It is this rank's message that did not fit, as that one sees it.
            Why::Length => Error::Mismatch(from),
            _ => Error::Withdrawn(from),
        }
    }

    /// Waits for the message of a rank and sends it that of this one meanwhile; both must have the
    /// same length and be of the same sort. When that rank's does not come, or does not fit, it may
    /// not get this one's.
    pub(super) fn swap(
        &mut self,
        other: u32,
        is_length: bool,
        own: &[u8],
        room: &mut [u8],
    ) -> Result<()> {
        let (world, tag) = (self.world, self.tag(is_length));
        let mut body = [0; BODY];
        let is_taken = world.collective_scope(|scope| {
            let sent = scope.send(other, tag, own)?;
            self.begin();
            self.expect(other, is_length, own.len(), room)?;
            let Err(sent) = scope.test(sent)? else {
                return Ok(true);
            };
            // That rank may give up before it takes this one's. No other message has this tag, so
            // none is lost with the receive.
            let reason = scope.receive(other, self.tag(false) | REASON, &mut body)?;
            let mut both = Vec::new();
            both.try_reserve_exact(2).map_err(|_| Error::NoMemory)?;
            both.extend([sent, reason]);
            let first = scope.wait_any(&mut both)?;
            both.into_iter().for_each(|left| scope.cancel(left));
            Ok(first.is_some_and(|(place, _)| place == 0))
        })?;
        match is_taken {
            true => Ok(()),
            false => Err(self.reason(other, &body)),
        }
    }

    /// Waits for the message of a rank, which must have so many bytes and be of this sort.
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

    /// This rank cannot go on: those who wait for messages of it get the reason instead. Gives the
    /// reason back.
    pub(super) fn give_up(&mut self, why: Error, to: impl Iterator<Item = u32>) -> Error {
        if !self.begun {
            return why;
        }
        let (reason, rank) = why.reason(self.world.rank());
        let said = (u64::from(rank) << 32 | u64::from(reason as u32)).to_le_bytes();
        // A reason that does not leave in time stays where it is, after this call.
        let mut kept = Vec::new();
        if kept.try_reserve_exact(BODY).is_ok() {
            kept.extend_from_slice(&said);
        }
        let body = if kept.is_empty() { &said[..] } else { &kept };
        let mut stays = false;
        for to in to {
            let message = Posted {
                kind: Operation::Send as u16,
                rank: to,
                context: COLLECTIVE,
                tag: self.tag(false) | REASON,
                send: body.as_ptr() as u64,
                send_bytes: BODY as u64,
                ..Posted::default()
            };
            // What has begun had a place among the operations, which is free again.
            // SAFETY: the body is there until the request is waited for or cancelled, or for ever.
            let Ok(request) = (unsafe { call::post(&message) }) else {
                continue;
            };
            let patience = Patience {
                spin: false,
                micros: TELL_WITHIN,
            };
            let mut status = [[0; STATUS_BYTES]];
            // Who is lost need not hear it.
            if call::wait(&mut [request], &mut status, patience) == Ok(1) {
                continue;
            }
            if !kept.is_empty() && call::may_stay(STAYING_MAX) {
                stays = true;
            } else {
                let _ = call::cancel(request);
            }
        }
        if stays {
            core::mem::forget(kept);
        }
        why
    }

    /// The operation has failed before the two exchanges of its data: they count all the same, in
    /// all ranks that have begun it, and others that are in them hear why. Where lengths differ no
    /// rank comes to them.
    pub(super) fn sit_out(&self, why: Error) {
        if self.begun && !matches!(why, Error::Mismatch(_)) {
            self.world.sit_out(2, why);
        }
    }
}
