//! The page below 1 MiB that other cores start in, with page tables of its own.
//!
//! Neighbours: `arch::cores` writes their first instructions into it.
//!
//! Invariant: the tables map the page to itself and the kernel as everywhere, and nothing else.
//! They lie below 4 GiB, where a core in real mode can load their root.

use kernel_core::addr::{PhysAddr, VirtAddr};
use kernel_core::paging::entry::{Attributes, Class, Protection};
use kernel_core::paging::{PageSize, PageTable};

use super::DirectMap;

/// The page with its tables, which are given back when this is dropped; the page stays aside.
pub struct StartPage {
    page: PhysAddr,
    table: PageTable,
}

impl StartPage {
    /// Takes the page that was put aside. `None` where there is none below 1 MiB, or no memory for
    /// tables below 4 GiB.
    pub fn take() -> Option<Self> {
        let page = super::start_page()?;
        let mut frames = super::frames();
        let table = PageTable::new(&mut DirectMap, &mut *frames).ok()?;
        table.share_kernel_half(&mut DirectMap, super::kernel_table());
        let here = VirtAddr::new(page.as_u64());
        // The page lies in the programs' half. SMEP, under which the kernel runs nothing there, is
        // switched on once a core has left it.
        let attributes = Attributes::user(Protection::ReadExecute, Class::Private);
        let size = PageSize::Small;
        table
            .map(&mut DirectMap, &mut *frames, here, page, size, attributes)
            .ok()?;
        u32::try_from(table.root().as_u64()).ok()?;
        Some(Self { page, table })
    }

    /// Its frame.
    pub fn frame(&self) -> PhysAddr {
        self.page
    }

    /// The root of its tables.
    pub fn root(&self) -> u32 {
        u32::try_from(self.table.root().as_u64()).expect("the root is below 4 GiB")
    }
}

impl Drop for StartPage {
    fn drop(&mut self) {
        let mut frames = super::frames();
        let here = VirtAddr::new(self.page.as_u64());
        let unmapped = self.table.unmap(&mut DirectMap, &mut *frames, here);
        unmapped.expect("the page is mapped");
        self.table.destroy(&mut DirectMap, &mut *frames);
    }
}
