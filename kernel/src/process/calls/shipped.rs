//! Calls that an I/O service carries out: shipping one, and moving the bytes of reads and writes.
//!
//! Neighbours: `agent::shipping` has the calls under way, [`super::path`] the calls on names.
//!
//! Invariant: a call that was shipped is not shipped again by the thread that waits for it, and a
//! reply is given up only when what it brought has reached the program.

use alloc::vec;
use alloc::vec::Vec;

use hearth_abi::errno::Errno;
use kernel_core::files::{Opened, Place, Shipped};
use netstack::files::{Call, MAX_TRANSFER, Op, Reply, WORKING};
use netstack::time::Instant;

use super::buffers::Buffers;
use crate::process::current::Current;
use crate::process::ending::Stop;
use crate::process::thread::Pause;
use crate::time;
use kernel_core::threads::Wait;

/// Pieces of one read or write that are under way at once: enough that the link does not fall idle
/// while one is carried out.
const PIECES: usize = 4;

/// A read or write as far as it has come.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::process) struct Transfer {
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
        let opened = self.process.files.descriptors.get(fd)?.opened;
        match opened {
            Opened::Shipped(shipped) => self.check_run(shipped).map(Some),
            _ => Ok(None),
        }
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
        let shipping = self.services.shipping().ok_or(Errno::EIO)?;
        if let Some(number) = waited {
            let reply = shipping.take(number).ok_or(Stop::news())?;
            self.thread.progress().shipped = None;
            return Ok(reply);
        }
        if let Ok(number) = shipping.submit(time::now(), call()) {
            self.thread.progress().shipped = Some(number);
        }
        Err(Stop::news())
    }

    /// Whether the thread waits for the reply to a call.
    pub(super) fn is_shipping(&self) -> bool {
        self.thread
            .progress
            .is_some_and(|progress| progress.shipped.is_some())
    }

    /// Has a handle closed that nobody will use any more, without waiting for it.
    pub(super) fn let_go(&mut self, opened: Option<Opened>) {
        if let Some(Opened::Place(Place::SharedMemory(_))) = opened {
            self.forget_shared();
        }
        if let Some(Opened::Shipped(shipped)) = opened
            && self.check_run(shipped).is_ok()
            && let Some(shipping) = self.services.shipping()
            && let Ok(number) = shipping.submit(time::now(), Call::new(Op::Close, shipped.handle))
        {
            shipping.forget(number);
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
        self.move_shipped(fd, offset, |current, transfer| {
            current.read_pieces(shipped, transfer, to)
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
        let appends = self.process.files.descriptors.get(fd)?.appends();
        self.move_shipped(fd, offset, |current, transfer| {
            current.write_pieces(shipped, transfer, from, appends)
        })
    }

    /// Reads or writes; the description's position moves with it unless there is an offset. One
    /// call at a time moves it, as on Linux.
    fn move_shipped(
        &mut self,
        fd: u64,
        offset: Option<u64>,
        pieces: impl FnOnce(&mut Self, &mut Transfer) -> Result<(), Stop>,
    ) -> Result<u64, Stop> {
        let begun = self.thread.progress.and_then(|progress| progress.transfer);
        let mut transfer = match begun {
            Some(transfer) => transfer,
            None => {
                let description = self.process.files.descriptors.get_mut(fd)?;
                if offset.is_none() && description.is_moving {
                    return Err(Stop::Wait(Pause {
                        on: Wait::News,
                        until: Instant::FAR_FUTURE,
                    }));
                }
                description.is_moving |= offset.is_none();
                Transfer {
                    base: offset.unwrap_or(description.position),
                    ..Transfer::default()
                }
            }
        };
        let outcome = pieces(self, &mut transfer);
        if let Err(stop @ Stop::Wait(_)) = outcome {
            self.thread.progress().transfer = Some(transfer);
            return Err(stop);
        }
        // The descriptor may have been closed, and given to another file, meanwhile.
        if offset.is_none()
            && let Ok(description) = self.process.files.descriptors.get_mut(fd)
        {
            description.is_moving = false;
            description.position = transfer.end.unwrap_or(transfer.base + transfer.done);
            self.process.threads.wake_news();
        }
        match outcome {
            Ok(()) => Ok(transfer.result()?),
            Err(stop) => Err(stop),
        }
    }

    fn read_pieces(
        &mut self,
        shipped: Shipped,
        transfer: &mut Transfer,
        to: Buffers,
    ) -> Result<(), Stop> {
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
                let call = Call::new(Op::Read, shipped.handle)
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

    fn write_pieces(
        &mut self,
        shipped: Shipped,
        transfer: &mut Transfer,
        from: Buffers,
        appends: bool,
    ) -> Result<(), Stop> {
        let wanted = self.bytes_of(from)?;
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
                let mut input = vec![0; bytes as usize];
                match self.gather(from, transfer.asked, &mut input) {
                    Ok(()) => {}
                    Err(Stop::Errno(errno)) => {
                        transfer.stop(errno);
                        continue;
                    }
                    Err(stop) => return Err(stop),
                }
                let call = Call::new(Op::Write, shipped.handle)
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

    /// Bytes of the next piece to ask for; `None`: none now. Without memory for it the thread waits
    /// for those under way, and ENOMEM where there are none.
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
        // Twice: input is kept beside its fragments, output beside what it replaces.
        match self.services.exchange().has_room(2 * bytes) {
            true => Ok(Some(bytes as u32)),
            false if transfer.count() > 0 => Ok(None),
            false => {
                transfer.stop(Errno::ENOMEM);
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
