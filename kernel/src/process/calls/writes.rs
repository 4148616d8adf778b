//! Writes to files of an I/O service.
//!
//! A write of more than a call takes is cut into pieces, several of which are under way at once.
//! They say where in the write they are ([`Op::Write`]), and the service's process carries them out
//! in order: what is written is one write there, too.
//!
//! Neighbours: [`super::shipped`] has what reads and writes have in common;
//! `hearth_io::worker::writes` is the other end.
//!
//! Invariant: what a write reports is what is in the file of it, unless the service has died.

use hearth_abi::errno::Errno;
use kernel_core::files::Shipped;
use netstack::files::{Call, Op, Reply};

use super::buffers::Buffers;
use super::shipped::{PIECES, Transfer, result_of, zeroed};
use crate::process::current::Current;
use crate::process::ending::Stop;

/// Bytes of a number that a write answers with, and of all of them.
const END_BYTES: usize = 8;
const WRITTEN_BYTES: usize = 2 * END_BYTES;

/// A write of several pieces, as the service has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Long {
    /// The number of the call with the first piece; 0: none was made.
    first: u64,
    /// The run of the service that knows of it.
    run: u64,
    /// Where in the transfer it begins, and its bytes.
    start: u64,
    total: u64,
}

impl Transfer {
    /// Takes the reply to a piece of so many bytes that was to be written.
    fn take_written(&mut self, asked: u64, reply: &Reply) {
        let word = |at: usize| {
            let bytes = reply.output.get(at..)?.first_chunk()?;
            Some(u64::from_le_bytes(*bytes))
        };
        let end = match self.long {
            None => {
                let written = result_of(reply).unwrap_or(0).min(asked);
                self.done += written;
                self.ended |= written < asked;
                word(0)
            }
            Some(long) => {
                let written = word(0).unwrap_or(0).min(long.total);
                self.done = self.done.max(long.start + written);
                word(END_BYTES)
            }
        };
        // Replies to pieces are here in another order than the pieces were carried out.
        self.end = self.end.max(end);
        if let Err(errno) = result_of(reply) {
            self.stop(errno);
        }
    }

    /// The words of the next piece of a write, which has so many bytes.
    fn piece_words(&mut self, bytes: u64, run: u64) -> [u64; 4] {
        let offset = self.base + self.asked;
        let rest = self.total.unwrap_or(0).saturating_sub(self.asked);
        if self.long.is_none() && rest > bytes {
            self.long = Some(Long {
                first: 0,
                run,
                start: self.asked,
                total: rest,
            });
        }
        match &mut self.long {
            None => [offset, 0, 0, 0],
            Some(long) => {
                if long.first == 0 {
                    long.run = run;
                }
                [offset, long.first, self.asked - long.start, long.total]
            }
        }
    }

    /// The words of the piece by which the service learns that no more come of a write that was to
    /// be longer.
    fn last_words(&mut self) -> Option<[u64; 4]> {
        let long = self.long.as_mut()?;
        let sent = self.asked - long.start;
        if long.first == 0 || sent >= long.total {
            return None;
        }
        long.total = sent;
        Some([self.base + self.asked, long.first, sent, sent])
    }
}

impl Current<'_> {
    /// write to what a service has open, where the description is, or at `offset`.
    pub(super) fn write_shipped(
        &mut self,
        fd: u64,
        shipped: Shipped,
        offset: Option<u64>,
        from: Buffers,
    ) -> Result<u64, Stop> {
        let written = self.move_shipped(fd, offset, true, |current, transfer| {
            current.write_pieces(shipped, transfer, from)
        });
        if !matches!(written, Err(Stop::Wait(_))) {
            self.process.files.ahead.clear();
        }
        written
    }

    fn write_pieces(
        &mut self,
        shipped: Shipped,
        transfer: &mut Transfer,
        from: Buffers,
    ) -> Result<(), Stop> {
        let wanted = match transfer.total {
            Some(wanted) => wanted,
            None => self.bytes_of(from)?,
        };
        transfer.total = Some(wanted);
        loop {
            if let Some((_, _, reply)) = self.first_reply(transfer)? {
                let asked = transfer.pieces[0].map_or(0, |(_, bytes)| bytes.into());
                transfer.take_written(asked, &reply);
                transfer.pop();
                continue;
            }
            let is_lost = |long: Long| long.first != 0 && long.run != shipped.run;
            if transfer.count() == 0 && transfer.long.is_some_and(is_lost) {
                // What was kept of its pieces is gone with the process that had them.
                transfer.ask_again();
            }
            if let Some(bytes) = self.next_piece(transfer, wanted, PIECES)? {
                let Some(mut input) = zeroed(bytes as usize) else {
                    if transfer.count() > 0 {
                        return Err(Stop::news());
                    }
                    transfer.stop(Errno::ENOMEM);
                    continue;
                };
                match self.gather(from, transfer.asked, &mut input) {
                    Ok(()) => {}
                    Err(Stop::Errno(errno)) => {
                        transfer.stop(errno);
                        continue;
                    }
                    Err(stop) => return Err(stop),
                }
                let words = transfer.piece_words(bytes.into(), shipped.run);
                let call = Call::new(Op::Write, shipped.handle)
                    .with_words(words)
                    .with_input(input)
                    .with_room(WRITTEN_BYTES);
                self.ship_piece(transfer, call, bytes)?;
                let number = transfer.pieces[transfer.count() - 1].map_or(0, |(number, _)| number);
                if let Some(long @ Long { first: 0, .. }) = &mut transfer.long {
                    long.first = number;
                }
                continue;
            }
            if transfer.count() > 0 {
                return Err(Stop::news());
            }
            let before = *transfer;
            let Some(words) = transfer.last_words() else {
                break;
            };
            let call = Call::new(Op::Write, shipped.handle)
                .with_words(words)
                .with_room(WRITTEN_BYTES);
            if let Err(stop) = self.ship_piece(transfer, call, 0) {
                *transfer = before;
                return Err(stop);
            }
        }
        if transfer.done == 0 && wanted > 0 {
            transfer.stop(Errno::EIO);
        }
        Ok(())
    }
}
