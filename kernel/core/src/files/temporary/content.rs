//! Bytes of files: reading, writing, length, room, holes.
//!
//! Invariant: what is behind the end of a file is zeros in its frames, so that a file which grows
//! shows nothing of what it had.

use super::{Body, Ino, Temporary, Time};
use crate::addr::PAGE_SIZE;
use crate::phys::PhysMem;
use crate::program::Machine;
use hearth_abi::errno::Errno;
use hearth_abi::linux::seek;

/// Mode of fallocate: the length stays.
const KEEP_SIZE: u64 = 1;
/// Mode of fallocate: a hole is made.
pub const PUNCH_HOLE: u64 = 2;

/// A file's last byte is before this one.
const BYTES_MAX: u64 = i64::MAX as u64;

impl Temporary {
    /// Length of a file; of anything else 0.
    pub fn bytes(&self, ino: Ino) -> u64 {
        match self.get(ino).body {
            Body::File { bytes, .. } | Body::Link { bytes, .. } => bytes,
            Body::Directory(_) | Body::Outside(_) => 0,
        }
    }

    /// Copies bytes of a file that lie in one page of it; how many, none behind its end.
    pub fn read(&mut self, mem: &impl PhysMem, ino: Ino, offset: u64, out: &mut [u8]) -> usize {
        let Body::File { blocks, bytes } = &self.get(ino).body else {
            return 0;
        };
        let inside = offset % PAGE_SIZE;
        let rest = bytes.saturating_sub(offset).min(PAGE_SIZE - inside);
        let length = out.len().min(rest as usize);
        let out = &mut out[..length];
        match blocks.frame(mem, offset / PAGE_SIZE) {
            Some(frame) if length > 0 => mem.read(frame.offset(inside), out),
            _ => out.fill(0),
        }
        length
    }

    /// A file has been read.
    pub fn has_read(&mut self, ino: Ino, now: Time) {
        self.get_mut(ino).accessed(now);
    }

    /// Puts bytes into one page of a file, which grows where it must.
    pub fn write<M: Machine>(
        &mut self,
        machine: &mut M,
        ino: Ino,
        offset: u64,
        data: &[u8],
        now: Time,
    ) -> Result<(), Errno> {
        let inside = offset % PAGE_SIZE;
        assert!(inside + data.len() as u64 <= PAGE_SIZE, "more than a page");
        let end = offset.checked_add(data.len() as u64);
        let end = end.filter(|end| *end <= BYTES_MAX).ok_or(Errno::EFBIG)?;
        let (inode, quota) = self.parts(ino);
        let Body::File { blocks, bytes } = &mut inode.body else {
            return Err(Errno::EINVAL);
        };
        let frame = blocks.make(machine, quota, offset / PAGE_SIZE)?;
        machine.mem().write(frame.offset(inside), data);
        *bytes = (*bytes).max(end);
        inode.modified(now);
        Ok(())
    }

    /// Gives a file so many bytes: more are zeros that take no frame.
    pub fn set_length<M: Machine>(
        &mut self,
        machine: &mut M,
        ino: Ino,
        length: u64,
        now: Time,
    ) -> Result<(), Errno> {
        let (inode, quota) = self.parts(ino);
        let Body::File { blocks, bytes } = &mut inode.body else {
            return Err(Errno::EISDIR);
        };
        if length > BYTES_MAX {
            return Err(Errno::EFBIG);
        }
        if length < *bytes {
            blocks.clear(machine, quota, length.div_ceil(PAGE_SIZE), u64::MAX);
            if let Some(frame) = blocks.frame(machine.mem(), length / PAGE_SIZE) {
                zero(machine, frame, length % PAGE_SIZE, PAGE_SIZE);
            }
        }
        *bytes = length;
        inode.modified(now);
        Ok(())
    }

    /// fallocate: frames for a range, or a hole there. What was had before ENOSPC stays.
    pub fn allocate<M: Machine>(
        &mut self,
        machine: &mut M,
        ino: Ino,
        mode: u64,
        (start, length): (u64, u64),
        now: Time,
    ) -> Result<(), Errno> {
        let is_signed = [start, length].map(|value| i64::try_from(value).is_ok());
        if is_signed != [true; 2] || length == 0 {
            return Err(Errno::EINVAL);
        }
        let end = start.checked_add(length).filter(|end| *end <= BYTES_MAX);
        let end = end.ok_or(Errno::EFBIG)?;
        let (inode, quota) = self.parts(ino);
        let Body::File { blocks, bytes } = &mut inode.body else {
            return Err(Errno::ENODEV);
        };
        let (first, behind) = (start / PAGE_SIZE, end.div_ceil(PAGE_SIZE));
        const PUNCHES: u64 = PUNCH_HOLE | KEEP_SIZE;
        match mode {
            0 | KEEP_SIZE => {
                for page in first..behind {
                    blocks.make(machine, quota, page)?;
                }
                if mode == 0 {
                    *bytes = (*bytes).max(end);
                }
            }
            PUNCHES => {
                let whole = start.div_ceil(PAGE_SIZE)..end / PAGE_SIZE;
                blocks.clear(machine, quota, whole.start, whole.end);
                for page in [first, end / PAGE_SIZE] {
                    let from = start.max(page * PAGE_SIZE);
                    let to = end.min((page + 1) * PAGE_SIZE);
                    if let Some(frame) = blocks.frame(machine.mem(), page)
                        && from < to
                    {
                        let base = page * PAGE_SIZE;
                        zero(machine, frame, from - base, to - base);
                    }
                }
            }
            _ => return Err(Errno::EOPNOTSUPP),
        }
        inode.modified(now);
        Ok(())
    }

    /// Whether there can be frames for a range: ENOSPC where that is certain not to be so.
    pub fn check_room<M: Machine>(
        &self,
        machine: &mut M,
        ino: Ino,
        (start, length): (u64, u64),
    ) -> Result<(), Errno> {
        let Body::File { blocks, .. } = &self.get(ino).body else {
            return Err(Errno::ENODEV);
        };
        let pages = (start % PAGE_SIZE).saturating_add(length) / PAGE_SIZE;
        let missing = pages.saturating_sub(blocks.pages());
        match missing <= self.quota.left(machine) {
            true => Ok(()),
            false => Err(Errno::ENOSPC),
        }
    }

    /// lseek by data and holes: the next byte of that kind.
    pub fn seek(
        &self,
        mem: &impl PhysMem,
        ino: Ino,
        offset: u64,
        whence: u64,
    ) -> Result<u64, Errno> {
        let Body::File { blocks, bytes } = &self.get(ino).body else {
            return Err(Errno::EINVAL);
        };
        if offset >= *bytes {
            return Err(Errno::ENXIO);
        }
        let page = offset / PAGE_SIZE;
        let found = match whence {
            seek::DATA => blocks.next(mem, page).ok_or(Errno::ENXIO)?,
            _ => blocks.next_hole(mem, page).min(bytes.div_ceil(PAGE_SIZE)),
        };
        let at = (found * PAGE_SIZE).max(offset);
        match whence {
            seek::DATA if at >= *bytes => Err(Errno::ENXIO),
            _ => Ok(at.min(*bytes)),
        }
    }

    fn parts(&mut self, ino: Ino) -> (&mut super::Inode, &mut super::Quota) {
        let inode = self.inodes.get_mut(ino.0 as usize);
        let inode = inode.and_then(Option::as_mut);
        let inode = inode.expect("an inode that has a name or is open");
        (inode, &mut self.quota)
    }
}

/// Fills bytes of a frame with zeros.
fn zero<M: Machine>(machine: &mut M, frame: crate::addr::PhysAddr, from: u64, to: u64) {
    const PIECE: u64 = 256;
    let zeros = [0; PIECE as usize];
    let mut at = from;
    while at < to {
        let length = (to - at).min(PIECE);
        machine
            .mem()
            .write(frame.offset(at), &zeros[..length as usize]);
        at += length;
    }
}
