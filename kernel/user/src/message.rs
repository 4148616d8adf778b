//! Messages that are looked at before they are received.
//!
//! Key types: [`Found`], what a probe says; [`Message`], a message that is kept for one receive.
//!
//! Invariant: a message that is not received is let go, and others find it again.

use core::mem::size_of_val;

use hearth_abi::exchange::{
    ANY_RANK, ANY_TAG, CLAIM, CLAIMED, Kind, NOW, Operation, STATUS_BYTES, Status,
};

use crate::call::{self, Patience};
use crate::scope::{carry_out, wait_one};
use crate::world::MESSAGES;
use crate::{Data, Received, Result, World};

/// A message that is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Whose it is.
    pub rank: u32,
    /// Its tag.
    pub tag: u32,
    /// Its bytes.
    pub bytes: u64,
}

/// A message that is kept for one receive: nobody else's receive or probe finds it. Dropped without
/// being received, it waits as before.
#[derive(Debug)]
pub struct Message {
    world: World,
    /// Number of the request that found it; 0: it was received.
    number: u32,
    found: Found,
}

impl Message {
    /// What it is.
    pub fn found(&self) -> Found {
        self.found
    }

    /// Receives it.
    ///
    /// # Errors
    /// [`crate::Error::TooLong`] when it does not fit, [`crate::Error::Withdrawn`] when its sender
    /// has taken it back, [`crate::Error::Lost`].
    pub fn receive<T: Data>(mut self, into: &mut [T]) -> Result<Received> {
        let operation = Operation {
            receive: into.as_mut_ptr() as u64,
            receive_bytes: size_of_val(into) as u64,
            ..claimed(self.number)
        };
        // SAFETY: `into` is borrowed mutably while this runs.
        let status = unsafe { carry_out(self.world, &operation) };
        self.number = 0;
        Ok(Received::of(&status?, size_of::<T>()))
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if self.number != 0 {
            // It is there until it is received or let go.
            let _ = call::cancel(self.number);
        }
    }
}

/// The receive of the message that a request keeps.
pub(crate) fn claimed(number: u32) -> Operation {
    Operation {
        kind: Kind::Receive as u16,
        flags: CLAIMED,
        number,
        ..Operation::default()
    }
}

/// A probe, as the kernel is asked for it.
pub(crate) fn probe(from: Option<u32>, tag: Option<u32>, flags: u16) -> Operation {
    let any_rank = if from.is_none() { ANY_RANK } else { 0 };
    let any_tag = if tag.is_none() { ANY_TAG } else { 0 };
    Operation {
        kind: Kind::Probe as u16,
        flags: any_rank | any_tag | flags,
        rank: from.unwrap_or(0),
        context: MESSAGES,
        tag: tag.unwrap_or(0),
        ..Operation::default()
    }
}

/// Memory that is given for messages that wait, as the kernel is asked for it.
pub(crate) fn room(address: u64, bytes: u64) -> Operation {
    Operation {
        kind: Kind::Room as u16,
        receive: address,
        receive_bytes: bytes,
        ..Operation::default()
    }
}

/// Carries a probe out: the request that it had, and its status; none where it does not wait and
/// there is no message.
pub(crate) fn look(
    operation: &Operation,
    patience: Patience,
) -> Result<Option<(u32, [u8; STATUS_BYTES])>> {
    // SAFETY: a probe has no memory.
    let number = unsafe { call::post(operation)? };
    match number {
        0 => Ok(None),
        number => Ok(Some((number, wait_one(number, patience)?))),
    }
}

impl World {
    /// Gives memory for messages that nobody receives yet: 64 bytes for each and its own, up to
    /// 1,384. Without it 4,096 may wait at a rank; more of one rank hide those behind them.
    ///
    /// # Errors
    /// [`crate::Error::TooMany`] after 256 times.
    pub fn give_room(self, memory: &'static mut [u8]) -> Result<()> {
        let operation = room(memory.as_mut_ptr() as u64, memory.len() as u64);
        // SAFETY: nobody else uses the memory any more.
        unsafe { call::post(&operation).map(drop) }
    }

    /// Waits until a message is here that a receive with the same arguments would take, and says
    /// what it is. It stays.
    ///
    /// # Errors
    /// [`crate::Error::Lost`], [`crate::Error::Invalid`] for a rank that the job does not have.
    pub fn probe(self, from: Option<u32>, tag: Option<u32>) -> Result<Found> {
        let found = self.look(from, tag, 0)?;
        Ok(found.expect("a probe that waits").1)
    }

    /// Whether there is such a message now.
    ///
    /// # Errors
    /// Those of [`World::probe`].
    pub fn try_probe(self, from: Option<u32>, tag: Option<u32>) -> Result<Option<Found>> {
        Ok(self.look(from, tag, NOW)?.map(|(_, found)| found))
    }

    /// Waits for a message as [`World::probe`] does and keeps it, so that it is received by
    /// [`Message::receive`] and nothing else.
    ///
    /// # Errors
    /// Those of [`World::probe`].
    pub fn claim(self, from: Option<u32>, tag: Option<u32>) -> Result<Message> {
        let message = self.take(from, tag, 0)?;
        Ok(message.expect("a probe that waits"))
    }

    /// Keeps such a message if there is one now.
    ///
    /// # Errors
    /// Those of [`World::probe`].
    pub fn try_claim(self, from: Option<u32>, tag: Option<u32>) -> Result<Option<Message>> {
        self.take(from, tag, NOW)
    }

    fn take(self, from: Option<u32>, tag: Option<u32>, flags: u16) -> Result<Option<Message>> {
        let found = self.look(from, tag, CLAIM | flags)?;
        Ok(found.map(|(number, found)| Message {
            world: self,
            number,
            found,
        }))
    }

    fn look(self, from: Option<u32>, tag: Option<u32>, flags: u16) -> Result<Option<(u32, Found)>> {
        let patience = Patience {
            spin: self.spins(),
            ..Patience::ALL
        };
        let Some((number, status)) = look(&probe(from, tag, flags), patience)? else {
            return Ok(None);
        };
        let Status {
            rank, tag, bytes, ..
        } = call::status(&status)?;
        Ok(Some((number, Found { rank, tag, bytes })))
    }
}
