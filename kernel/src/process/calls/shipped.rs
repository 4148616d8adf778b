//! Calls that an I/O service carries out: shipping one, and moving the bytes of reads.
//!
//! When the service has died, calls under way fail with EIO. Files that were open are opened again
//! when they are next used ([`Current::current`]), and a call that was not carried out is made once
//! more.
//!
//! Neighbours: `shipping` has the calls under way, [`super::path`] the calls on names,
//! [`super::writes`] what is special about writes,
//! `kernel_core::files::Origins` how files are opened again.
//!
//! Invariant: a call that was shipped is not shipped again by the thread that waits for it, and a
//! reply is given up only when what it brought has reached the program. A read or write is of the
//! file that it began with, whatever becomes of the descriptor. Nothing is left of a call that has
//! ended early ([`Current::leave_shipped`]).

use alloc::vec::Vec;

use hearth_abi::errno::Errno;
use hearth_abi::linux::open;
use kernel_core::files::{AHEAD_BYTES, Held, Identity, Opened, Opening, Place, Shipped};
use netstack::files::{
    BOOT_LEN, Call, MAX_TRANSFER, METADATA_LEN, Metadata, NOT_CARRIED_OUT, Op, Reply, TAKES_CAST,
    WORKING,
};
use netstack::time::Instant;

use super::buffers::Buffers;
use super::cast_reads::FromCast;
use super::writes::Long;
use crate::process::current::Current;
use crate::process::ending::Stop;
use crate::process::thread::Progress;
use crate::shipping::Shipping;
use crate::time;

/// Pieces of one read or write that are under way at once: enough that the link does not fall idle
/// while one is carried out.
pub(super) const PIECES: usize = 4;

/// Bytes that each thread may move without a look at how much memory there is.
const LITTLE_BYTES: usize = 4096;

/// A read or write as far as it has come.
#[derive(Clone, Copy, Debug)]
pub(in crate::process) struct Transfer {
    /// What it reads or writes, as it was opened at first.
    pub(super) file: Shipped,
    held: Held,
    /// It moves the position of the description.
    moves: bool,
    /// It writes.
    writes: bool,
    /// Where in the file it begins.
    pub(super) base: u64,
    /// Bytes that were asked for, and that are done.
    pub(super) asked: u64,
    pub(super) done: u64,
    /// The pieces under way, in order: number of the call, bytes.
    pub(super) pieces: [Option<(u64, u32)>; PIECES],
    /// No more is asked for: the file has ended, or this error has come.
    pub(super) ended: bool,
    error: Option<Errno>,
    /// Of a file that is appended to: where it ends now.
    pub(super) end: Option<u64>,
    /// Bytes that are to be written, and the write of several pieces that the service knows of.
    pub(super) total: Option<u64>,
    pub(super) long: Option<Long>,
    /// Changes that were known when more was asked for than the program wants.
    changes: Option<u64>,
    /// When it began, in microseconds, and the changes that were known then.
    pub(super) begun: (u64, u64),
    /// It reads from the node's memory.
    pub(super) from_cast: Option<FromCast>,
    /// The service is to answer with bytes.
    pub(super) is_plain: bool,
    /// Nothing is asked for before this time.
    pub(super) asks_at: Instant,
}

impl Transfer {
    pub(super) fn count(&self) -> usize {
        self.pieces.iter().flatten().count()
    }

    fn push(&mut self, number: u64, bytes: u32) {
        let count = self.count();
        self.pieces[count] = Some((number, bytes));
        self.asked += u64::from(bytes);
    }

    pub(super) fn pop(&mut self) {
        self.pieces.rotate_left(1);
        self.pieces[PIECES - 1] = None;
    }

    /// Nobody waits for the pieces that are under way: they are asked for once more.
    pub(super) fn forget_pieces(&mut self, shipping: &mut Shipping) {
        for (number, _) in self.pieces.iter_mut().filter_map(Option::take) {
            shipping.forget(time::now(), number);
        }
        self.ask_again();
    }

    /// Begins again behind what is done.
    pub(super) fn ask_again(&mut self) {
        self.asked = self.done;
        self.long = None;
    }

    pub(super) fn stop(&mut self, errno: Errno) {
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
    /// where the service that had it open is gone, and it cannot be opened again.
    pub(super) fn shipped(&mut self, fd: u64) -> Result<Option<Shipped>, Stop> {
        if let Some(transfer) = self.transfer() {
            return self.current(transfer.file).map(Some);
        }
        match self.description(fd)?.opened {
            Opened::Shipped(file) => self.current(file).map(Some),
            _ => Ok(None),
        }
    }

    /// The read or write of the thread that is under way.
    pub(super) fn transfer(&self) -> Option<Transfer> {
        self.thread.progress.and_then(|progress| progress.transfer)
    }

    /// A file with the handle that it has in this run of the service. It is opened again where the
    /// run is over that it was opened in; EIO where it cannot be.
    pub(super) fn current(&mut self, shipped: Shipped) -> Result<Shipped, Stop> {
        // The working directory is the same one in every run.
        if shipped.handle == WORKING {
            return Ok(shipped);
        }
        loop {
            let shipping = self.services.shipping().ok_or(Errno::EIO)?;
            let origins = &mut self.process.files.origins;
            let run = shipping.run();
            if let Some(handle) = origins.handle(shipped, run)? {
                return Ok(Shipped {
                    handle,
                    run,
                    ..shipped
                });
            }
            let Some(opening) = origins.opening(shipped) else {
                let (flags, path) = origins.begin(shipped)?;
                let call = Call::new(Op::Open, WORKING)
                    .with_words([flags])
                    .with_input(path.to_vec())
                    .with_room(OPENED_LEN);
                if let Ok(number) = shipping.submit(time::now(), call) {
                    origins.begun(shipped, Opening { number, run });
                }
                return Err(Stop::news());
            };
            let (replied, reply) = shipping.take(opening.number).ok_or(Stop::news())?;
            let opened = result_of(&reply).ok().and_then(|handle| {
                let handle = u32::try_from(handle).ok()?;
                Some((handle, replied, identity_of(&reply)?.1))
            });
            // It has no process to open it by, for a moment.
            if reply.result == -i64::from(Errno::EIO.number()) && replied == run {
                origins.again(shipped);
                return Err(Errno::EIO.into());
            }
            // Meanwhile the service has died once more.
            if replied != run || opening.run != run || reply.result == NOT_CARRIED_OUT {
                origins.again(shipped);
                continue;
            }
            let is_it = origins.end(shipped, opened);
            if let (Err(_), Some((handle, ..))) = (is_it, opened) {
                shipping.close(time::now(), run, handle);
            }
            // Who else waits for the file looks again.
            self.process.threads.wake_news();
            is_it?;
        }
    }

    /// Has the service carry out a call, and waits for its reply: the same call must come here
    /// again when the thread goes on.
    pub(super) fn ship(&mut self, call: impl FnOnce() -> Call) -> Result<Reply, Stop> {
        Ok(self.ship_in_run(call)?.1)
    }

    /// The same; with the run of the service that a handle in the reply is of.
    pub(super) fn ship_in_run(
        &mut self,
        call: impl FnOnce() -> Call,
    ) -> Result<(u64, Reply), Stop> {
        let waited = self.thread.progress.and_then(|progress| progress.shipped);
        let call = call();
        if let Some(number) = waited {
            let (run, reply) = self.shipping()?.take(number).ok_or(Stop::news())?;
            self.thread.progress().shipped = None;
            self.tell_room();
            if changes(&call) {
                self.process.files.ahead.clear();
            }
            return match reply.result {
                // Once more from the start, with handles of another run.
                NOT_CARRIED_OUT => Err(Stop::news_until(time::now())),
                _ => Ok((run, reply)),
            };
        }
        if changes(&call) {
            self.process.files.ahead.clear();
        }
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

    /// Whether there is memory for a read ahead beside what is under way: for what is kept, what
    /// replaces it, and its fragments.
    fn has_room_ahead(&mut self) -> Result<bool, Errno> {
        let needed = self.shipping()?.promised() + 3 * AHEAD_BYTES as u64;
        Ok(self.services.exchange().has_room(needed))
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
        if let Some(Opened::Temporary(open, _)) = opened {
            self.close_temporary(open);
        }
        let Some(Opened::Shipped(shipped)) = opened else {
            return;
        };
        self.process.files.ahead.forget(shipped);
        self.process.files.cast.forget(shipped);
        let origins = &mut self.process.files.origins;
        let opening = origins.opening(shipped);
        let gone = origins.remove(shipped);
        let Some(shipping) = self.services.shipping() else {
            return;
        };
        if let Some(opening) = opening {
            shipping.forget(time::now(), opening.number);
        }
        if let Some((handle, run)) = gone {
            shipping.close(time::now(), run, handle);
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
        self.leave_positions(progress);
    }

    /// What a descriptor refers to was changed.
    pub(super) fn changed(&mut self, fd: u64) {
        if let Ok(description) = self.process.files.descriptors.get(fd)
            && let Opened::Shipped(shipped) = description.opened
        {
            self.process.files.origins.change(shipped);
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
        self.move_shipped(fd, offset, false, |current, transfer| {
            current.read_kept(transfer, to)?;
            current.find_cast(transfer);
            current.read_pieces(shipped, transfer, to)
        })
    }

    /// Reads or writes; the description's position moves with it unless there is an offset. One
    /// call at a time moves it, as on Linux.
    pub(super) fn move_shipped(
        &mut self,
        fd: u64,
        offset: Option<u64>,
        writes: bool,
        pieces: impl FnOnce(&mut Self, &mut Transfer) -> Result<(), Stop>,
    ) -> Result<u64, Stop> {
        let mut transfer = match self.transfer() {
            Some(transfer) => transfer,
            None => self.begin_transfer(fd, offset, writes)?,
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
        offset: Option<u64>,
        writes: bool,
    ) -> Result<Transfer, Stop> {
        if offset.is_none() {
            self.hold_positions(&[fd])?;
        }
        let description = self.description(fd)?;
        let Opened::Shipped(file) = description.opened else {
            return Err(Errno::EBADF.into());
        };
        let base = offset.unwrap_or(description.position);
        let kept = self.thread.progress.and_then(|progress| progress.held);
        let files = &mut self.process.files;
        let held = match kept {
            Some(held) => files.descriptors.hold_again(held),
            None => files.descriptors.hold(fd)?,
        };
        if writes {
            files.origins.begin_write(file);
        }
        Ok(Transfer {
            file,
            held,
            moves: offset.is_none(),
            writes,
            base,
            asked: 0,
            done: 0,
            pieces: [None; PIECES],
            ended: false,
            error: None,
            end: None,
            total: None,
            long: None,
            changes: None,
            begun: (time::now().as_micros(), self.process.files.ahead.changes()),
            from_cast: None,
            is_plain: false,
            asks_at: Instant::ZERO,
        })
    }

    /// Ends a read or write: nobody waits for pieces that are still under way, and the file is
    /// closed if no descriptor is left.
    fn end_transfer(&mut self, transfer: &Transfer) {
        if let Some(shipping) = self.services.shipping() {
            for (number, _) in transfer.pieces.iter().flatten() {
                shipping.forget(time::now(), *number);
            }
        }
        self.tell_room();
        if transfer.writes {
            self.process.files.origins.end_write(transfer.file);
        }
        let gone = self.process.files.descriptors.let_go(transfer.held);
        self.let_go(gone);
    }

    /// Takes what was read ahead, of a read that has just begun.
    fn read_kept(&mut self, transfer: &mut Transfer, to: Buffers) -> Result<(), Stop> {
        if !transfer.moves || transfer.asked > 0 {
            return Ok(());
        }
        let file = transfer.file;
        let wanted = self.bytes_of(to)?;
        let ahead = &self.process.files.ahead;
        let kept = ahead.bytes(file, transfer.base, time::now().as_micros());
        let kept = kept[..kept.len().min(wanted as usize)].to_vec();
        if !kept.is_empty() {
            self.scatter(to, 0, &kept)?;
            self.process.files.ahead.take(file, kept.len());
            transfer.asked = kept.len() as u64;
            transfer.done = transfer.asked;
        }
        Ok(())
    }

    /// Of a file that is read in small pieces one after another, more is asked for than `to` takes.
    fn read_pieces(
        &mut self,
        shipped: Shipped,
        transfer: &mut Transfer,
        to: Buffers,
    ) -> Result<(), Stop> {
        let wanted = self.bytes_of(to)?;
        let goes_on = transfer.moves && wanted < AHEAD_BYTES as u64;
        let file = goes_on.then_some(transfer.file);
        loop {
            if let Some(mut from) = transfer.from_cast {
                let read = self.read_cast(transfer, &mut from, wanted, to);
                transfer.from_cast = Some(from);
                match read {
                    Ok(true) => return Ok(()),
                    Ok(false) => self.leave_cast(transfer, from),
                    Err(Stop::Errno(errno)) => {
                        transfer.stop(errno);
                        return Ok(());
                    }
                    Err(stop) => return Err(stop),
                }
                continue;
            }
            if let Some((number, run, reply)) = self.first_reply(transfer)? {
                if self.take_cast(transfer, &reply) {
                    continue;
                }
                let asked = transfer.pieces[0].map_or(0, |(_, bytes)| bytes as usize);
                let arrived = result_of(&reply).map(|_| reply.output.len().min(asked));
                let copied = match arrived {
                    Ok(_) if transfer.ended => Ok(()),
                    Ok(arrived) => self.scatter(to, transfer.done, &reply.output[..arrived]),
                    Err(errno) => Err(errno.into()),
                };
                match (copied, arrived) {
                    (Err(stop @ Stop::Wait(_)), _) => {
                        self.shipping()?.restore(number, (run, reply));
                        return Err(stop);
                    }
                    (Ok(()), Ok(arrived)) if !transfer.ended => {
                        transfer.done += arrived as u64;
                        transfer.ended = arrived < asked;
                        if let Some(file) = file {
                            let end = transfer.base + transfer.done;
                            let rest = reply.output[arrived..].to_vec();
                            let now = time::now().as_micros();
                            let ahead = &mut self.process.files.ahead;
                            ahead.keep(file, end, rest, now);
                            // What changed meanwhile may be in it, or not.
                            if transfer.changes != Some(ahead.changes()) {
                                ahead.discard(file);
                            }
                        }
                    }
                    (Ok(()), _) => {}
                    (Err(Stop::Errno(errno)), _) => transfer.stop(errno),
                    (Err(other), _) => return Err(other),
                }
                transfer.pop();
                continue;
            }
            if transfer.count() == 0 && time::now() < transfer.asks_at {
                return Err(Stop::news_until(transfer.asks_at));
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
                let at = transfer.base + transfer.asked;
                let ahead = &self.process.files.ahead;
                let goes_on = file.is_some_and(|file| ahead.goes_on(file, at)) && room == end;
                transfer.changes = goes_on.then(|| ahead.changes());
                let bytes = match goes_on && self.has_room_ahead()? {
                    true => AHEAD_BYTES,
                    false => (room - transfer.asked) as usize,
                };
                let takes = !transfer.is_plain && self.process.files.cast.takes(transfer.file);
                let call = Call::new(Op::Read, shipped.handle)
                    .with_words([at, if takes { TAKES_CAST } else { 0 }])
                    .with_room(bytes);
                self.ship_piece(transfer, call, (room - transfer.asked) as u32)?;
                continue;
            }
            match transfer.count() {
                0 => return Ok(()),
                _ => return Err(Stop::news()),
            }
        }
    }

    /// The reply to the first piece under way, if it is here: number, run, reply. Where no run of
    /// the service has carried the piece out, all pieces from it on are asked for once more.
    pub(super) fn first_reply(
        &mut self,
        transfer: &mut Transfer,
    ) -> Result<Option<(u64, u64, Reply)>, Stop> {
        let Some((number, _)) = transfer.pieces[0] else {
            return Ok(None);
        };
        let shipping = self.shipping()?;
        let Some((run, reply)) = shipping.take(number) else {
            return Ok(None);
        };
        if reply.result == NOT_CARRIED_OUT {
            transfer.forget_pieces(shipping);
            return Err(Stop::news_until(time::now()));
        }
        Ok(Some((number, run, reply)))
    }

    /// Bytes of the next piece to ask for; `None`: none now.
    pub(super) fn next_piece(
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

    pub(super) fn ship_piece(
        &mut self,
        transfer: &mut Transfer,
        call: Call,
        bytes: u32,
    ) -> Result<(), Stop> {
        if changes(&call) {
            self.process.files.ahead.clear();
        }
        match self.shipping()?.submit(time::now(), call) {
            Ok(number) => {
                transfer.push(number, bytes);
                Ok(())
            }
            Err(_) => Err(Stop::news()),
        }
    }

    pub(super) fn shipping(&mut self) -> Result<&mut Shipping, Errno> {
        self.services.shipping().ok_or(Errno::EIO)
    }
}

/// So many bytes, if they are there in one piece.
pub(super) fn zeroed(bytes: usize) -> Option<Vec<u8>> {
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(bytes).ok()?;
    buffer.resize(bytes, 0);
    Some(buffer)
}

/// Whether a call may change what a file holds, or is one by which ranks agree on that.
fn changes(call: &Call) -> bool {
    match call.op {
        Op::Open => call.words[0] & (open::CREATE | open::TRUNCATE) != 0,
        Op::Close
        | Op::Read
        | Op::ReadDirectory
        | Op::Stat
        | Op::StatFileSystem
        | Op::Access
        | Op::ReadLink
        | Op::Seek
        | Op::Path => false,
        _ => true,
    }
}

/// Bytes of what a call answers that opens a file.
pub(super) const OPENED_LEN: usize = METADATA_LEN + BOOT_LEN;

/// What was opened, from the reply to the call that did.
pub(super) fn identity_of(reply: &Reply) -> Option<(Metadata, Identity)> {
    let metadata = Metadata::parse(&reply.output).ok()?;
    let boot = reply.output.get(METADATA_LEN..OPENED_LEN)?;
    let identity = Identity {
        device: metadata.device,
        inode: metadata.inode,
        boot: u64::from_le_bytes(boot.try_into().ok()?),
    };
    Some((metadata, identity))
}

/// A path as the input of a call, or two with a zero byte between.
pub(super) fn paths(first: &[u8], second: &[u8]) -> Vec<u8> {
    let mut input = Vec::with_capacity(first.len() + second.len() + 1);
    input.extend_from_slice(first);
    input.push(0);
    input.extend_from_slice(second);
    input
}
