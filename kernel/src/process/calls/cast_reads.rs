//! Reads of a file that an I/O service has cast to many nodes: from the node's memory, as the file
//! arrives.
//!
//! What does not come in time is read from the service, as is the end of the file.
//!
//! Neighbours: [`super::shipped`] asks the service and comes here with its answer;
//! `kernel_core::files::CastFiles` knows which answers count.
//!
//! Invariant: no read waits longer than [`PATIENCE`] while nothing of its file comes.

use kernel_core::addr::PAGE_SIZE;
use kernel_core::files::CastFile;
use kernel_core::objects::ObjectId;
use netstack::files::{CastObject, IS_CAST, Reply};
use netstack::time::{Instant, Micros};

use super::buffers::Buffers;
use super::shipped::{Transfer, zeroed};
use crate::mm::DirectMap;
use crate::process::current::Current;
use crate::process::ending::Stop;
use crate::process::services::CastPage;
use crate::time;

/// Bytes that are copied at a time.
const PIECE_BYTES: u64 = 16 * 1024;
/// A read that is to ask again does so after this time: a round trip more is little beside a file
/// that is worth a cast.
const ASKS_AGAIN: Micros = Micros::from_millis(20);
/// How long a read waits while nothing of a file comes: what the repetition of a lost announcement
/// takes, and of a lost block, several times.
const PATIENCE: Micros = Micros::from_secs(2);

/// A file that a read takes from the node's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct FromCast {
    file: CastFile,
    /// What is next is waited for: blocks that had come, until when.
    waits: Option<(u64, Instant)>,
}

impl FromCast {
    pub(super) const fn new(file: CastFile) -> Self {
        Self { file, waits: None }
    }
}

impl Current<'_> {
    /// A read that has just begun, of a file that is known to be in the node's memory, takes it
    /// from there.
    pub(super) fn find_cast(&mut self, transfer: &mut Transfer) {
        if transfer.asked > transfer.done || transfer.is_plain || transfer.from_cast.is_some() {
            return;
        }
        let files = &self.process.files;
        let now = time::now().as_micros();
        let known = files.cast.object(transfer.file, now, files.ahead.changes());
        transfer.from_cast = known.map(FromCast::new);
    }

    /// Whether the service has answered a piece by naming what is in the node's memory, or by
    /// saying that it is about to.
    pub(super) fn take_cast(&mut self, transfer: &mut Transfer, reply: &Reply) -> bool {
        if reply.result != IS_CAST {
            return false;
        }
        if let Some(shipping) = self.services.shipping() {
            transfer.forget_pieces(shipping);
        }
        let Some(object) = CastObject::parse(&reply.output) else {
            transfer.asks_at = time::now() + ASKS_AGAIN;
            return true;
        };
        let file = CastFile {
            id: ObjectId(object.id),
            bytes: object.bytes,
        };
        let (begun_us, changes) = transfer.begun;
        let files = &mut self.process.files;
        files.cast.put(transfer.file, file, begun_us, changes);
        transfer.from_cast = Some(FromCast::new(file));
        true
    }

    /// What a read wants next is not in the node's memory: it, and where that has failed all others
    /// of this file, are read from the service.
    pub(super) fn leave_cast(&mut self, transfer: &mut Transfer, from: FromCast) {
        (transfer.from_cast, transfer.is_plain) = (None, true);
        if transfer.base + transfer.done < from.file.bytes {
            self.process.files.cast.refuse(transfer.file);
        }
    }

    /// Reads on from the node's memory. False: what is next is to be read from the service.
    pub(super) fn read_cast(
        &mut self,
        transfer: &mut Transfer,
        from: &mut FromCast,
        wanted: u64,
        to: Buffers,
    ) -> Result<bool, Stop> {
        let CastFile { id, bytes } = from.file;
        while transfer.done < wanted {
            let at = transfer.base + transfer.done;
            if at >= bytes {
                return Ok(false);
            }
            let page = at / PAGE_SIZE;
            match self.services.read_page(&id, page) {
                CastPage::Here => {}
                missing => match self.wait_for_cast(transfer, from, page, missing) {
                    Some(until) => return Err(Stop::news_until(until)),
                    None => return Ok(false),
                },
            }
            from.waits = None;
            let end = (transfer.done + PIECE_BYTES).min(wanted);
            let room = self.make_room(to, transfer.done, end)? - transfer.done;
            let Some(mut piece) = zeroed(room.min(bytes - at) as usize) else {
                return Ok(false);
            };
            let in_page = (PAGE_SIZE - at % PAGE_SIZE) as usize;
            let objects = self.services.objects();
            if !objects.read_bytes(&DirectMap, &id, at, &mut piece) {
                // What is behind this page is not here yet.
                piece.truncate(in_page);
                if !objects.read_bytes(&DirectMap, &id, at, &mut piece) {
                    return Ok(false);
                }
            }
            self.scatter(to, transfer.done, &piece)?;
            transfer.done += piece.len() as u64;
            transfer.asked = transfer.done;
        }
        let end = transfer.base + transfer.done;
        self.process.files.cast.read_to(transfer.file, end);
        Ok(true)
    }

    /// Until when a page is waited for that is not here; `None`: no longer.
    fn wait_for_cast(
        &mut self,
        transfer: &Transfer,
        from: &mut FromCast,
        page: u64,
        missing: CastPage,
    ) -> Option<Instant> {
        let view = self.services.objects().find(&from.file.id);
        let (now, come) = (time::now(), view.map_or(0, |view| view.blocks));
        let until = match from.waits {
            Some((before, until)) if before == come || missing == CastPage::Absent => until,
            Some(_) => now + PATIENCE,
            None => {
                // A file that is read from the begin to the end comes in this order.
                let files = &self.process.files.cast;
                if missing == CastPage::Coming && !files.goes_on(transfer.file, transfer.base) {
                    self.services.want_read(&from.file.id, page);
                }
                now + PATIENCE
            }
        };
        from.waits = Some((come, until));
        (now < until).then_some(until)
    }
}
