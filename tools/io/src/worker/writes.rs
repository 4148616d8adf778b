//! Writes that come in pieces: each is carried out as one write of this system.
//!
//! A node sends the pieces of a long write without waiting for one after the other, and threads
//! take them up in any order. A piece is written when all before it are. So who looks at the file
//! meanwhile sees it grow from its begin, and an error leaves nothing behind what the write
//! reports. What is appended is written when all of it is here, by one call: it is one record.
//!
//! Invariant: of a write at most [`AHEAD_MAX`] bytes are kept, in [`PIECES_MAX`] pieces, of an open
//! file at most [`MOST`] writes.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use netstack::files::{Call, MAX_TRANSFER, RECORD_MAX, Reply, WINDOW};
use nix::errno::Errno;
use nix::unistd::{self, Whence};

use super::calls::{errno_of, is_appending, signed};
use super::handles::Open;

/// Writes of one open file that have begun and not ended: as many as a node has calls under way.
const MOST: usize = WINDOW as usize;
/// Most bytes of a write that are kept: a record, and the pieces that a node has under way.
const AHEAD_MAX: u64 = RECORD_MAX + WINDOW * MAX_TRANSFER as u64;

/// Most pieces of them. A node sends long ones, but where a write ends.
const PIECES_MAX: usize = 4096;
/// A write of which no piece has come for so long is over: twice as long as a node waits for an
/// answer ([`netstack::files::client::SILENCE`]).
const OVER: Duration = Duration::from_secs(240);

/// The writes of an open file that have begun and not ended, by the number of their first call.
#[derive(Debug, Default)]
pub struct Writes(Mutex<BTreeMap<u64, Arc<Mutex<Long>>>>);

/// A write in several pieces.
#[derive(Debug, Default)]
struct Long {
    /// Bytes of it that have come, and that are in the file.
    come: u64,
    written: u64,
    /// What is to be written, by where in the write it begins.
    kept: BTreeMap<u64, Vec<u8>>,
    /// The error with which it has ended.
    failed: Option<Errno>,
    /// Of one that appends: the position behind the last byte.
    end: Option<u64>,
    /// When a piece came last.
    heard: Option<Instant>,
}

/// Carries out the call `number`, which is a piece of a write; see
/// [`Op::Write`](netstack::files::Op::Write).
///
/// # Errors
/// EINVAL where it is no piece of a write, or of one that is too far ahead; ENOBUFS where as many
/// writes have begun as may be.
pub fn write_piece(open: &Open, number: u64, call: &Call) -> Result<Reply, Errno> {
    let [offset, first, at, total] = call.words;
    signed(offset)?;
    let begin = offset.checked_sub(at).ok_or(Errno::EINVAL)?;
    let length = call.input.len() as u64;
    let end = at.checked_add(length).filter(|end| *end <= total);
    end.ok_or(Errno::EINVAL)?;
    let first = if first == 0 { number } else { first };
    let long = open.writes.find(first, at, length)?;
    let mut long = long.lock().unwrap_or_else(PoisonError::into_inner);
    long.check(at, length)?;
    long.heard = Some(Instant::now());
    long.come += length;
    if long.failed.is_none() {
        if length > 0 {
            long.kept.insert(at, call.input.clone());
        }
        let outcome = match is_appending(open)? {
            true => long.append(open, total),
            false => long.write(open, begin),
        };
        if let Err(errno) = outcome {
            long.failed = Some(errno);
            long.kept.clear();
        }
    }
    if long.come >= total {
        open.writes.forget(first);
    }
    Ok(long.reply())
}

impl Writes {
    /// The write with this first call, which begins with this piece where it has not.
    fn find(&self, first: u64, at: u64, length: u64) -> Result<Arc<Mutex<Long>>, Errno> {
        let mut writes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(long) = writes.get(&first) {
            return Ok(Arc::clone(long));
        }
        Long::default().check(at, length)?;
        if writes.len() >= MOST {
            writes.retain(|_, long| !is_over(long));
        }
        if writes.len() >= MOST {
            return Err(Errno::ENOBUFS);
        }
        Ok(Arc::clone(writes.entry(first).or_default()))
    }

    fn forget(&self, first: u64) {
        let mut writes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        writes.remove(&first);
    }
}

/// No thread has a piece of it, and none has come for long: nobody waits for it any more.
fn is_over(long: &Arc<Mutex<Long>>) -> bool {
    let only = Arc::strong_count(long) == 1;
    only && long
        .try_lock()
        .is_ok_and(|long| long.heard.is_some_and(|heard| heard.elapsed() >= OVER))
}

impl Long {
    /// Whether this may be a piece of it: not of what has come, nor too far ahead.
    ///
    /// # Errors
    /// EINVAL where it may not.
    fn check(&self, at: u64, length: u64) -> Result<(), Errno> {
        // An empty one says where the write ends; what has failed keeps nothing.
        if length == 0 || self.failed.is_some() {
            return Ok(());
        }
        let end = at.checked_add(length).ok_or(Errno::EINVAL)?;
        let before = self.kept.range(..=at).next_back();
        let is_free = before.is_none_or(|(begin, piece)| begin + piece.len() as u64 <= at)
            && self.kept.range(at..end).next().is_none();
        let is_near = at >= self.written && end <= self.written + AHEAD_MAX;
        match is_free && is_near && self.kept.len() < PIECES_MAX {
            true => Ok(()),
            false => Err(Errno::EINVAL),
        }
    }

    /// Writes what is next, from `begin` on in the file.
    fn write(&mut self, open: &Open, begin: u64) -> Result<(), Errno> {
        while let Some(piece) = self.kept.remove(&self.written) {
            let mut rest = &piece[..];
            while !rest.is_empty() {
                match open.file.write_at(rest, begin + self.written) {
                    Ok(0) => return Err(Errno::EIO),
                    Ok(more) => {
                        self.written += more as u64;
                        rest = &rest[more..];
                    }
                    Err(error) => return Err(errno_of(&error)),
                }
            }
        }
        Ok(())
    }

    /// Appends what is next, when it is all of the write, or as much as a record may have.
    fn append(&mut self, open: &Open, total: u64) -> Result<(), Errno> {
        let mut end = self.written;
        while let Some(piece) = self.kept.get(&end) {
            end += piece.len() as u64;
        }
        let is_whole = end == total || end - self.written >= RECORD_MAX;
        if !is_whole || end == self.written {
            return Ok(());
        }
        let behind = self.kept.split_off(&end);
        let record = std::mem::replace(&mut self.kept, behind);
        let record: Vec<u8> = record.into_values().flatten().collect();
        let mut rest = &record[..];
        // More than one call only where the disk is full, or the like.
        while !rest.is_empty() {
            let (written, position) = append(open, rest)?;
            self.written += written as u64;
            self.end = Some(position);
            if written == 0 {
                return Err(Errno::EIO);
            }
            rest = &rest[written..];
        }
        Ok(())
    }

    fn reply(&self) -> Reply {
        let mut output = self.written.to_le_bytes().to_vec();
        output.extend(self.end.iter().flat_map(|end| end.to_le_bytes()));
        Reply {
            result: self.failed.map_or(0, |errno| -i64::from(errno as i32)),
            output,
        }
    }
}

/// Writes at the end, wherever that is by now: how many bytes, and the position behind them, at
/// which the description then stands.
///
/// # Errors
/// What the system answered.
pub fn append(open: &Open, input: &[u8]) -> Result<(usize, u64), Errno> {
    let _alone = open
        .appending
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let written = unistd::write(&open.file, input)?;
    let end = unistd::lseek(&open.file, 0, Whence::SeekCur)?;
    Ok((written, end as u64))
}

#[cfg(test)]
mod tests;
