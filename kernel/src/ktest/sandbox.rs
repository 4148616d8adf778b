//! A minimal program for tests of ring 3: one page of code, one of data, one of stack.

use alloc::format;
use alloc::string::String;

use kernel_core::frames::Owner;
use kernel_core::paging::entry::{Attributes, Class, Protection};
use kernel_core::paging::{PageSize, PageTable};
use kernel_core::phys::PhysMem;

use crate::arch;
use crate::arch::test_programs::{CODE, DATA};
use crate::arch::user::{self, Trap, UserContext};
use crate::mm::{self, DirectMap, PAGE_SIZE, PhysAddr, VirtAddr};

/// A page that is not mapped.
pub const NOTHING: u64 = 0x60_0000;
const STACK: u64 = 0x70_0000;

/// A program in an address space of its own, which is active.
pub struct Sandbox {
    /// Its page tables.
    pub table: PageTable,
    /// Its registers.
    pub context: UserContext,
    owner: Owner,
}

impl Sandbox {
    /// A program of this machine code, of at most a page.
    pub fn new(code: &[u8]) -> Result<Self, String> {
        let mut frames = mm::frames();
        let table = PageTable::new(&mut DirectMap, &mut *frames).map_err(|e| format!("{e:?}"))?;
        drop(frames);
        table.share_kernel_half(&mut DirectMap, mm::kernel_table());
        let mut sandbox = Self {
            table,
            context: UserContext::new(CODE, STACK + PAGE_SIZE - 8),
            owner: Owner::program(1),
        };
        let frame = sandbox.map(CODE, Protection::ReadExecute)?;
        DirectMap.write(frame, code);
        sandbox.map(DATA, Protection::ReadWrite)?;
        sandbox.map(STACK, Protection::ReadWrite)?;
        mm::activate(table);
        arch::reset_program_registers();
        Ok(sandbox)
    }

    /// Maps a fresh frame.
    pub fn map(&mut self, page: u64, protection: Protection) -> Result<PhysAddr, String> {
        let mut frames = mm::frames();
        let frame = frames
            .alloc(&mut DirectMap, self.owner)
            .ok_or("no frame left")?
            .into_entry();
        self.table
            .map(
                &mut DirectMap,
                &mut *frames,
                VirtAddr::new(page),
                frame,
                PageSize::Small,
                Attributes::user(protection, Class::Private),
            )
            .map_err(|error| format!("mapping {page:#x}: {error:?}"))?;
        Ok(frame)
    }

    /// Maps device registers, which only a test gives to ring 3.
    pub fn map_device(&mut self, page: u64, registers: PhysAddr) -> Result<(), String> {
        let mut attributes = Attributes::user(Protection::ReadWrite, Class::Private);
        attributes.uncached = true;
        self.table
            .map(
                &mut DirectMap,
                &mut *mm::frames(),
                VirtAddr::new(page),
                registers,
                PageSize::Small,
                attributes,
            )
            .map_err(|error| format!("mapping {page:#x}: {error:?}"))
    }

    /// Physical address behind a page.
    pub fn physical(&self, page: u64) -> Result<PhysAddr, String> {
        self.table
            .physical(&DirectMap, VirtAddr::new(page))
            .ok_or_else(|| format!("{page:#x} is not mapped"))
    }

    /// Runs until the next trap.
    pub fn run(&mut self) -> Trap {
        user::run(&mut self.context)
    }

    /// Runs until the next trap, which must be a system call with this number.
    pub fn run_to_call(&mut self, number: u64) -> Result<(), String> {
        match self.run() {
            Trap::Syscall if self.context.rax == number => Ok(()),
            other => Err(format!(
                "expected system call {number}, got {other:?}\n{}",
                self.context
            )),
        }
    }

    /// Runs until the next trap, which must be an exception with this vector.
    pub fn run_to_exception(&mut self, wanted: u8) -> Result<u64, String> {
        match self.run() {
            Trap::Exception { vector, code } if vector == wanted => Ok(code),
            other => Err(format!(
                "expected exception {wanted}, got {other:?}\n{}",
                self.context
            )),
        }
    }
}
