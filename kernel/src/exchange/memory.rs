//! The program's memory, as the engine reads and writes it: straight from and to the pages of the
//! program.
//!
//! A buffer's number is its address. Pages were brought in when the operation was posted; one that
//! the program has unmapped since, or made unwritable, is gone, and that is the end of the
//! operation.
//!
//! Neighbours: `kernel_core::program::UserView` looks every page up anew.
//!
//! Invariant: nothing here waits or brings a page in.

use kernel_core::program::{UserSlice, UserView};
use netstack::exchange::{BufferId, Gone, Memory};

use crate::mm::DirectMap;

/// Memory of the program that runs; none before it begins and after its end.
pub(super) struct ProgramMemory(pub Option<UserView>);

impl ProgramMemory {
    fn find(
        &self,
        buffer: BufferId,
        offset: u64,
        length: usize,
    ) -> Result<(UserView, UserSlice), Gone> {
        let start = buffer.0.checked_add(offset).ok_or(Gone)?;
        let slice = UserSlice::new(start, length as u64).map_err(|_| Gone)?;
        Ok((self.0.ok_or(Gone)?, slice))
    }
}

impl Memory for ProgramMemory {
    fn read(&mut self, buffer: BufferId, offset: u64, out: &mut [u8]) -> Result<(), Gone> {
        let (view, slice) = self.find(buffer, offset, out.len())?;
        view.copy_from(&DirectMap, slice, out, 0).map_err(|_| Gone)
    }

    fn write(&mut self, buffer: BufferId, offset: u64, bytes: &[u8]) -> Result<(), Gone> {
        let (view, slice) = self.find(buffer, offset, bytes.len())?;
        view.copy_to(&mut DirectMap, slice, bytes, 0)
            .map_err(|_| Gone)
    }
}
