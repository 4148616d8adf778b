//! Calls that an I/O service carries out: shipping one, and moving the bytes of reads and writes.
//!
//! Neighbours: `agent::shipping` has the calls under way, [`super::path`] the calls on names.
//!
//! Invariant: a call that was shipped is not shipped again by the thread that waits for it, and a
//! reply is given up only when what it brought has reached the program. A read or write is of the
//! file that it began with, whatever becomes of the descriptor. Nothing is left of a call that has
//! ended early ([`Current::leave_shipped`]).

use alloc::vec::Vec;

use hearth_abi::errno::Errno;
use kernel_core::files::{Held, Opened, Place, Shipped};
use netstack::files::{Call, MAX_TRANSFER, Op, Reply, WORKING};

use super::buffers::Buffers;
use crate::process::current::Current;
use crate::process::ending::Stop;
use crate::process::thread::Progress;
use crate::time;

/// Pieces of one read or write that are under way at once: enough that the link does not fall idle
/// while one is carried out.
const PIECES: usize = 4;

/// Bytes that each thread may move without a look at how much memory there is.
const LITTLE_BYTES: usize = 4096;

/// A read or write as far as it has come.
#[derive(Clone, Copy, Debug)]
pub(in crate::process) struct Transfer {
    /// What it reads or writes.
    shipped: Shipped,
    held: Held,
    /// It moves the position of the description.
    moves: bool,
    /// Where in the file it begins.
    base: u64,
    /// Bytes that were asked for, and that are done.
    asked: u64,
    done: u64,
    /// The pieces under way, in order: number of the call, bytes.
    pieces: [Option<(u64, u32)>; PIECES],
    /// No more is asked for: the file has ended, or this error has come.
    ended: bool,
    error: Option<Errno>,
    /// Of a file that is appended to: where it ends now.
    end: Option<u64>,
}

impl Transfer {
    fn count(&self) -> usize {
        self.pieces.iter().flatten().count()
    }

    fn push(&mut self, number: u64, bytes: u32) {
        let count = self.count();
        self.pieces[count] = Some((number, bytes));
        self.asked += u64::from(bytes);
    }

    fn pop(&mut self) {
        self.pieces.rotate_left(1);
        self.pieces[PIECES - 1] = None;
    }

    fn stop(&mut self, errno: Errno) {
        self.ended = true;
        if self.done == 0 {
            self.error.get_or_insert(errno);
        }
    }

    /// What the call answers.
    fn result(&self) -> Result<u64, Errno> {
        match self.error {
            Some(errno) if self.done == 0 => Err(errno),
            _ => Ok(self.done),
        }
    }
}

/// What a reply says.
pub(super) fn result_of(reply: &Reply) -> Result<u64, Errno> {
    match u64::try_from(reply.result) {
        Ok(value) => Ok(value),
        Err(_) => Err(Errno::from_number(reply.result.wrapping_neg()).unwrap_or(Errno::EIO)),
    }
}

impl Current<'_> {
    /// Whether the job has an I/O service.
    pub(super) fn ships(&mut self) -> bool {
        self.services.shipping().is_some()
    }

    /// What an I/O service has open behind a descriptor; `None` where it is something else. EIO
    /// where the service that had it open is gone.
    pub(super) fn shipped(&mut self, fd: u64) -> Result<Option<Shipped>, Errno> {
        if let Some(transfer) = self.transfer() {
            return self.check_run(transfer.shipped).map(Some);
        }
        let opened = self.process.files.descriptors.get(fd)?.opened;
        match opened {
            Opened::Shipped(shipped) => self.check_run(shipped).map(Some),
            _ => Ok(None),
        }
    }

    /// The read or write of the thread that is under way.
    pub(super) fn transfer(&self) -> Option<Transfer> {
        self.thread.progress.and_then(|progress| progress.transfer)
    }

    /// EIO where the run of the service that gave a handle is over.
    pub(super) fn check_run(&mut self, shipped: Shipped) -> Result<Shipped, Errno> {
        let run = self.services.shipping().map(|shipping| shipping.run());
        // The working directory is the same one in every run.
        let is_valid = shipped.handle == WORKING || run == Some(shipped.run);
        match is_valid {
            true => Ok(shipped),
            false => Err(Errno::EIO),
        }
    }

    /// Has the service carry out a call, and waits for its reply: the same call must come here
    /// again when the thread goes on.
    pub(super) fn ship(&mut self, call: impl FnOnce() -> Call) -> Result<Reply, Stop> {
        let waited = self.thread.progress.and_then(|progress| progress.shipped);
        if let Some(number) = waited {
            let reply = self.shipping()?.take(number).ok_or(Stop::news())?;
            self.thread.progress().shipped = None;
            self.tell_room();
            return Ok(reply);
        }
        let call = call();
        if self.has_room_for(call.room as usize + call.input.len())?
            && let Ok(number) = self.shipping()?.submit(time::now(), call)
        {
            self.thread.progress().shipped = Some(number);
        }
        Err(Stop::news())
    }

    /// Whether there is memory for a call that moves so many bytes. False: when others that are
    /// under way have ended. ENOMEM: there are none.
    fn has_room_for(&mut self, bytes: usize) -> Result<bool, Errno> {
        if bytes <= LITTLE_BYTES {
            return Ok(true);
        }
        let shipping = self.shipping()?;
        let (promised, is_busy) = (shipping.promised(), shipping.is_busy());
        // Twice: input is kept beside its fragments, output beside what it replaces.
        let needed = promised + 2 * bytes as u64;
        if self.services.exchange().has_room(needed) {
            return Ok(true);
        }
        self.shipping()?.is_short = is_busy;
        match is_busy {
            true => Ok(false),
            false => Err(Errno::ENOMEM),
        }
    }

    /// Replies have been taken: who waits for memory looks again.
    fn tell_room(&mut self) {
        let shipping = self.services.shipping();
        if shipping.is_some_and(|shipping| core::mem::take(&mut shipping.is_short)) {
            self.process.threads.wake_news();
        }
    }

    /// Has a handle closed that nobody will use any more, without waiting for it.
    pub(super) fn let_go(&mut self, opened: Option<Opened>) {
        if let Some(Opened::Place(Place::SharedMemory(_))) = opened {
            self.forget_shared();
        }
        if let Some(Opened::Shipped(shipped)) = opened
            && self.check_run(shipped).is_ok()
            && let Some(shipping) = self.services.shipping()
        {
            shipping.close(time::now(), shipped.handle);
        }
    }

    /// Lets go of what a call that is over has left under way: it has failed early, or another
    /// thread has changed what it was about.
    pub(super) fn leave_shipped(&mut self, progress: &Progress) {
        if let Some(number) = progress.shipped
            && let Some(shipping) = self.services.shipping()
        {
            shipping.forget(time::now(), number);
            self.tell_room();
        }
        if let Some(transfer) = progress.transfer {
            self.end_transfer(&transfer);
        }
    }

    /// read of what a service has open, from where the description is, or from `offset`.
    pub(super) fn read_shipped(
        &mut self,
        fd: u64,
        shipped: Shipped,
        offset: Option<u64>,
        to: Buffers,
    ) -> Result<u64, Stop> {
        self.move_shipped(fd, shipped, offset, |current, transfer| {
            current.read_pieces(transfer, to)
        })
    }

    /// write to what a service has open, where the description is, or at `offset`.
    pub(super) fn write_shipped(
        &mut self,
        fd: u64,
        shipped: Shipped,
        offset: Option<u64>,
        from: Buffers,
    ) -> Result<u64, Stop> {
        self.move_shipped(fd, shipped, offset, |current, transfer| {
            current.write_pieces(transfer, from)
        })
    }

    /// Reads or writes; the description's position moves with it unless there is an offset. One
    /// call at a time moves it, as on Linux.
    fn move_shipped(
        &mut self,
        fd: u64,
        shipped: Shipped,
        offset: Option<u64>,
        pieces: impl FnOnce(&mut Self, &mut Transfer) -> Result<(), Stop>,
    ) -> Result<u64, Stop> {
        let mut transfer = match self.transfer() {
            Some(transfer) => transfer,
            None => self.begin_transfer(fd, shipped, offset)?,
        };
        let outcome = pieces(self, &mut transfer);
        if let Err(stop @ Stop::Wait(_)) = outcome {
            self.thread.progress().transfer = Some(transfer);
            return Err(stop);
        }
        if transfer.moves {
            let position = transfer.end.unwrap_or(transfer.base + transfer.done);
            let description = self.process.files.descriptors.held(transfer.held);
            description.position = position;
        }
        if let Some(progress) = self.thread.progress.as_mut() {
            progress.transfer = None;
        }
        self.end_transfer(&transfer);
        outcome.and_then(|()| Ok(transfer.result()?))
    }

    /// Begins a read or write; waits while another one moves the same position.
    fn begin_transfer(
        &mut self,
        fd: u64,
        shipped: Shipped,
        offset: Option<u64>,
    ) -> Result<Transfer, Stop> {
        let descriptors = &mut self.process.files.descriptors;
        let description = descriptors.get_mut(fd)?;
        if offset.is_none() && description.is_moving {
            return Err(Stop::news());
        }
        description.is_moving |= offset.is_none();
        let base = offset.unwrap_or(description.position);
        Ok(Transfer {
            shipped,
            held: descriptors.hold(fd)?,
            moves: offset.is_none(),
            base,
            asked: 0,
            done: 0,
            pieces: [None; PIECES],
            ended: false,
            error: None,
            end: None,
        })
    }

    /// Ends a read or write: nobody waits for pieces that are still under way, others may move the
    /// position, and the file is closed if no descriptor is left.
    fn end_transfer(&mut self, transfer: &Transfer) {
        if let Some(shipping) = self.services.shipping() {
            for (number, _) in transfer.pieces.iter().flatten() {
                shipping.forget(time::now(), *number);
            }
        }
        self.tell_room();
        let descriptors = &mut self.process.files.descriptors;
        if transfer.moves {
            descriptors.held(transfer.held).is_moving = false;
            self.process.threads.wake_news();
        }
        let gone = self.process.files.descriptors.let_go(transfer.held);
        self.let_go(gone);
    }

    fn read_pieces(&mut self, transfer: &mut Transfer, to: Buffers) -> Result<(), Stop> {
        let wanted = self.bytes_of(to)?;
        loop {
            if let Some((number, reply)) = self.first_reply(transfer)? {
                let arrived = result_of(&reply).map(|_| reply.output.len());
                let copied = match arrived {
                    Ok(_) if transfer.ended => Ok(()),
                    Ok(_) => self.scatter(to, transfer.done, &reply.output),
                    Err(errno) => Err(errno.into()),
                };
                match (copied, arrived) {
                    (Err(stop @ Stop::Wait(_)), _) => {
                        self.shipping()?.put_back(number, reply);
                        return Err(stop);
                    }
                    (Ok(()), Ok(arrived)) if !transfer.ended => {
                        let asked = transfer.pieces[0].map_or(0, |(_, bytes)| bytes as usize);
                        transfer.done += arrived as u64;
                        transfer.ended = arrived < asked;
                    }
                    (Ok(()), _) => {}
                    (Err(Stop::Errno(errno)), _) => transfer.stop(errno),
                    (Err(other), _) => return Err(other),
                }
                transfer.pop();
                continue;
            }
            if let Some(bytes) = self.next_piece(transfer, wanted, PIECES)? {
                // A bad buffer is an error before it costs a call.
                let end = transfer.asked + u64::from(bytes);
                let room = match self.make_room(to, transfer.asked, end) {
                    Ok(room) => room,
                    Err(Stop::Errno(errno)) => {
                        transfer.stop(errno);
                        continue;
                    }
                    Err(stop) => return Err(stop),
                };
                let call = Call::new(Op::Read, transfer.shipped.handle)
                    .with_words([transfer.base + transfer.asked])
                    .with_room((room - transfer.asked) as usize);
                self.ship_piece(transfer, call, (room - transfer.asked) as u32)?;
                continue;
            }
            match transfer.count() {
                0 => return Ok(()),
                _ => return Err(Stop::news()),
            }
        }
    }

    fn write_pieces(&mut self, transfer: &mut Transfer, from: Buffers) -> Result<(), Stop> {
        let wanted = self.bytes_of(from)?;
        let appends = self.process.files.descriptors.held(transfer.held).appends();
        // What is appended goes behind what was appended before.
        let most = if appends { 1 } else { PIECES };
        loop {
            if let Some((_, reply)) = self.first_reply(transfer)? {
                let asked = transfer.pieces[0].map_or(0, |(_, bytes)| bytes.into());
                match result_of(&reply) {
                    Ok(_) if transfer.ended => {}
                    Ok(written) => {
                        transfer.done += written.min(asked);
                        transfer.ended = written < asked;
                        let end = reply.output.first_chunk().copied();
                        transfer.end = end.map(u64::from_le_bytes).or(transfer.end);
                    }
                    Err(errno) => transfer.stop(errno),
                }
                transfer.pop();
                continue;
            }
            if let Some(bytes) = self.next_piece(transfer, wanted, most)? {
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
                let call = Call::new(Op::Write, transfer.shipped.handle)
                    .with_words([transfer.base + transfer.asked])
                    .with_input(input)
                    .with_room(if appends { END_BYTES } else { 0 });
                self.ship_piece(transfer, call, bytes)?;
                continue;
            }
            match transfer.count() {
                0 => return Ok(()),
                _ => return Err(Stop::news()),
            }
        }
    }

    /// The reply to the first piece under way, if it is here.
    fn first_reply(&mut self, transfer: &Transfer) -> Result<Option<(u64, Reply)>, Stop> {
        let Some((number, _)) = transfer.pieces[0] else {
            return Ok(None);
        };
        let reply = self.shipping()?.take(number);
        Ok(reply.map(|reply| (number, reply)))
    }

    /// Bytes of the next piece to ask for; `None`: none now.
    fn next_piece(
        &mut self,
        transfer: &mut Transfer,
        wanted: u64,
        most: usize,
    ) -> Result<Option<u32>, Stop> {
        let rest = wanted.saturating_sub(transfer.asked);
        if transfer.ended || rest == 0 || transfer.count() >= most {
            return Ok(None);
        }
        let bytes = rest.min(MAX_TRANSFER as u64);
        match self.has_room_for(bytes as usize) {
            Ok(true) => Ok(Some(bytes as u32)),
            Ok(false) if transfer.count() > 0 => Ok(None),
            Ok(false) => Err(Stop::news()),
            Err(errno) => {
                transfer.stop(errno);
                Ok(None)
            }
        }
    }

    fn ship_piece(&mut self, transfer: &mut Transfer, call: Call, bytes: u32) -> Result<(), Stop> {
        match self.shipping()?.submit(time::now(), call) {
            Ok(number) => {
                transfer.push(number, bytes);
                Ok(())
            }
            Err(_) => Err(Stop::news()),
        }
    }

    fn shipping(&mut self) -> Result<&mut crate::agent::shipping::Shipping, Errno> {
        self.services.shipping().ok_or(Errno::EIO)
    }
}

/// So many bytes, if they are there in one piece.
fn zeroed(bytes: usize) -> Option<Vec<u8>> {
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(bytes).ok()?;
    buffer.resize(bytes, 0);
    Some(buffer)
}

/// Bytes of the position that an appending write answers with.
const END_BYTES: usize = 8;

/// A path as the input of a call, or two with a zero byte between.
pub(super) fn paths(first: &[u8], second: &[u8]) -> Vec<u8> {
    let mut input = Vec::with_capacity(first.len() + second.len() + 1);
    input.extend_from_slice(first);
    input.push(0);
    input.extend_from_slice(second);
    input
}
