//! Access to physical memory, as a trait so that page-table code runs in tests on the host.
//!
//! The kernel implements [`PhysMem`] over its map of all memory; tests use [`FakeMemory`].
//!
//! Invariant: an implementation never reaches outside memory it was given; callers pass only
//! addresses of frames they own.

use alloc::vec;
use alloc::vec::Vec;

use crate::addr::{PAGE_SIZE, PhysAddr};

/// Reads and writes of physical memory.
pub trait PhysMem {
    /// Reads a page-table entry; `at` is a multiple of eight.
    fn read_u64(&self, at: PhysAddr) -> u64;
    /// Writes a page-table entry; `at` is a multiple of eight.
    fn write_u64(&mut self, at: PhysAddr, value: u64);
    /// Changes a page-table entry in one step for all cores, which may note a use of the page at
    /// the same time; what it was. `at` is a multiple of eight.
    fn change_u64(&mut self, at: PhysAddr, change: impl Fn(u64) -> u64) -> u64;
    /// Fills the frame that starts at `frame` with zeros.
    fn zero_frame(&mut self, frame: PhysAddr);
    /// Copies `out.len()` bytes out of memory; the range must not cross a frame boundary.
    fn read(&self, at: PhysAddr, out: &mut [u8]);
    /// Copies `bytes` into memory; the range must not cross a frame boundary.
    fn write(&mut self, at: PhysAddr, bytes: &[u8]);
    /// Copies a whole frame to another.
    fn copy_frame(&mut self, from: PhysAddr, to: PhysAddr) {
        // Small enough for any stack.
        const PIECE: usize = 256;
        let mut piece = [0; PIECE];
        for offset in (0..PAGE_SIZE).step_by(PIECE) {
            self.read(from.offset(offset), &mut piece);
            self.write(to.offset(offset), &piece);
        }
    }
}

/// Physical memory made of an array, starting at any frame. For tests.
pub struct FakeMemory {
    base: u64,
    bytes: Vec<u8>,
}

impl FakeMemory {
    /// `frames` frames from `base` on, filled with `0xa5` so that a missing scrub is seen.
    pub fn new(base: PhysAddr, frames: u64) -> Self {
        assert!(base.is_aligned(PAGE_SIZE));
        Self {
            base: base.as_u64(),
            bytes: vec![0xa5; (frames * PAGE_SIZE) as usize],
        }
    }

    /// Whether a whole frame is zero.
    pub fn is_zero(&self, frame: PhysAddr) -> bool {
        let at = self.index(frame, PAGE_SIZE);
        self.bytes[at..at + PAGE_SIZE as usize]
            .iter()
            .all(|&byte| byte == 0)
    }

    /// Fills a whole frame with one byte.
    pub fn fill(&mut self, frame: PhysAddr, byte: u8) {
        let at = self.index(frame, PAGE_SIZE);
        self.bytes[at..at + PAGE_SIZE as usize].fill(byte);
    }

    fn index(&self, at: PhysAddr, length: u64) -> usize {
        let at = at.as_u64().checked_sub(self.base).expect("below memory");
        assert!(at + length <= self.bytes.len() as u64, "above memory");
        at as usize
    }
}

impl PhysMem for FakeMemory {
    fn read_u64(&self, at: PhysAddr) -> u64 {
        let mut bytes = [0; 8];
        assert!(at.is_aligned(8));
        self.read(at, &mut bytes);
        u64::from_le_bytes(bytes)
    }

    fn write_u64(&mut self, at: PhysAddr, value: u64) {
        assert!(at.is_aligned(8));
        self.write(at, &value.to_le_bytes());
    }

    fn change_u64(&mut self, at: PhysAddr, change: impl Fn(u64) -> u64) -> u64 {
        let old = self.read_u64(at);
        self.write_u64(at, change(old));
        old
    }

    fn zero_frame(&mut self, frame: PhysAddr) {
        assert!(frame.is_aligned(PAGE_SIZE));
        self.fill(frame, 0);
    }

    fn read(&self, at: PhysAddr, out: &mut [u8]) {
        check_in_frame(at, out.len());
        let index = self.index(at, out.len() as u64);
        out.copy_from_slice(&self.bytes[index..index + out.len()]);
    }

    fn write(&mut self, at: PhysAddr, bytes: &[u8]) {
        check_in_frame(at, bytes.len());
        let index = self.index(at, bytes.len() as u64);
        self.bytes[index..index + bytes.len()].copy_from_slice(bytes);
    }
}

/// Panics when `length` bytes from `at` on leave the frame of `at`.
pub fn check_in_frame(at: PhysAddr, length: usize) {
    let room = PAGE_SIZE - at.as_u64() % PAGE_SIZE;
    assert!(length as u64 <= room, "access crosses a frame boundary");
}
