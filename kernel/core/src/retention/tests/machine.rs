//! A machine for whole lives of programs: memory, frames, and a CPU that remembers translations, so
//! that one which is not told of a change goes on as before and is found out.

use crate::addr::{PAGE_SIZE, PhysAddr, VirtAddr};
use crate::fault::{Access, Cause};
use crate::frames::{FrameAllocator, State};
use crate::loader::Image;
use crate::loader::synthetic::{Builder, Part, parse};
use crate::objects::{ObjectId, Objects};
use crate::pagehash::PageHashes;
use crate::paging::entry::{Attributes, Protection};
use crate::paging::{PageSize, PageTable};
use crate::phys::FakeMemory;
use crate::program::{Fetch, Machine, Memory, Outcome, Program};
use crate::retention::ProgramId;
use elf::abi;
use std::boxed::Box;
use std::collections::BTreeMap;
use std::vec::Vec;

/// Where memory begins: at a large page.
const BASE: PhysAddr = PhysAddr::new(0x20_0000);
/// A large page of the kernel's own, in the half that all tables share.
pub const KERNEL_PAGE: VirtAddr = VirtAddr::new(0xffff_8000_0040_0000);
/// Faults that one access may take: a fetch, a page presented, a copy.
const FAULTS_MAX: usize = 4;

/// The machine.
pub struct Sim {
    pub mem: FakeMemory,
    pub frames: FrameAllocator,
    pub kernel: PageTable,
    /// Frames of the kernel's own table.
    pub kernel_frames: u64,
    pub total: u64,
    /// What the CPU remembers of the running program, by page.
    remembered: BTreeMap<u64, (PhysAddr, Protection)>,
    /// What broadcasts have brought.
    pub objects: Objects,
}

impl Sim {
    pub fn new(total: u64) -> Self {
        let mut mem = FakeMemory::new(BASE, total);
        let tags = Box::leak(std::vec![0; total as usize].into_boxed_slice());
        let mut frames = FrameAllocator::new(BASE, tags);
        frames.add_region(BASE, BASE.offset(total * PAGE_SIZE));
        let kernel = PageTable::new(&mut mem, &mut frames).unwrap();
        let attributes = Attributes::kernel(Protection::Read);
        let (page, size) = (KERNEL_PAGE, PageSize::Large);
        let mapped = kernel.map(&mut mem, &mut frames, page, BASE, size, attributes);
        mapped.unwrap();
        Self {
            kernel_frames: frames.usage().kernel,
            mem,
            frames,
            kernel,
            total,
            remembered: BTreeMap::new(),
            objects: Objects::new(total),
        }
    }

    /// Takes what the store has of a fetch; returns whether the first page is in place.
    pub fn adopt(&mut self, memory: &mut Memory, fetch: &Fetch) -> Result<bool, Cause> {
        let mut objects = std::mem::replace(&mut self.objects, Objects::new(0));
        let adopted = memory.adopt(self, fetch, &mut objects);
        self.objects = objects;
        adopted
    }

    /// Running programs take the memory of images.
    pub fn keep_room(&mut self) {
        let mut objects = std::mem::replace(&mut self.objects, Objects::new(0));
        objects.keep_room(self, crate::retention::ROOM_FRAMES);
        self.objects = objects;
    }

    /// Another table is loaded.
    pub fn forget_all(&mut self) {
        self.remembered.clear();
    }

    /// An access of the program as the CPU does it: `None` is a page fault.
    pub fn access(&mut self, table: PageTable, address: u64, access: Access) -> Option<PhysAddr> {
        let at = VirtAddr::try_new(address).filter(|at| at.is_user())?;
        let page = at.page_start().as_u64();
        if let Some(&(frame, protection)) = self.remembered.get(&page)
            && access.allowed_by(protection)
        {
            return Some(frame.offset(at.page_offset()));
        }
        // A page fault forgets what led to it.
        self.remembered.remove(&page);
        let leaf = table.translate(&self.mem, at)?;
        let protection = leaf.attributes.protection;
        if !access.allowed_by(protection) {
            return None;
        }
        table.note_use(&mut self.mem, at, access == Access::Write);
        let behind = leaf.frame.offset(page - leaf.page.as_u64());
        self.remembered.insert(page, (behind, protection));
        Some(behind.offset(at.page_offset()))
    }

    /// What the CPU remembers must be what the table says, or less.
    pub fn check_remembered(&self, table: PageTable) {
        for (&page, &(frame, protection)) in &self.remembered {
            let leaf = table.translate(&self.mem, VirtAddr::new(page));
            let leaf = leaf.unwrap_or_else(|| panic!("{page:#x} is remembered but gone"));
            let behind = leaf.frame.offset(page - leaf.page.as_u64());
            assert_eq!(frame, behind, "{page:#x} is remembered elsewhere");
            for access in [Access::Read, Access::Write, Access::Execute] {
                let allowed = access.allowed_by(leaf.attributes.protection);
                assert!(allowed || !access.allowed_by(protection), "{page:#x}");
            }
        }
    }

    /// Whatever programs do, the kernel's half stays as it is.
    pub fn check_kernel(&self) {
        let leaf = self.kernel.translate(&self.mem, KERNEL_PAGE).unwrap();
        assert_eq!((leaf.size, leaf.frame), (PageSize::Large, BASE));
    }

    /// All frames in one state.
    pub fn frames_in(&self, state: State) -> impl Iterator<Item = PhysAddr> + '_ {
        (0..self.total)
            .map(|number| BASE.offset(number * PAGE_SIZE))
            .filter(move |&frame| self.frames.state(frame).0 == state)
    }
}

impl Machine for Sim {
    type Mem = FakeMemory;
    fn mem(&mut self) -> &mut FakeMemory {
        &mut self.mem
    }
    fn with<R>(&mut self, act: impl FnOnce(&mut FakeMemory, &mut FrameAllocator) -> R) -> R {
        act(&mut self.mem, &mut self.frames)
    }
    fn invalidate(&mut self, first: VirtAddr, last: VirtAddr) {
        assert!(first <= last);
        let range = first.page_start().as_u64()..=last.as_u64();
        let gone: Vec<u64> = self
            .remembered
            .range(range)
            .map(|(&page, _)| page)
            .collect();
        for page in gone {
            self.remembered.remove(&page);
        }
    }
}

/// A program file.
pub struct File {
    pub bytes: Vec<u8>,
    pub image: Image,
    pub id: ProgramId,
    pub hashes: PageHashes,
}

/// A file whose segments are these: pages of text, of constants and of data, bytes of the last page
/// of data, pages of zeros. No byte is zero or like that of another page or file.
pub fn file(number: u8, text: u64, constants: u64, data: u64, last: u64, bss: u64) -> File {
    let load = |flags, page: u64, pages: u64| Part {
        kind: abi::PT_LOAD,
        flags,
        offset: page * PAGE_SIZE,
        address: 0x40_0000 + page * PAGE_SIZE,
        file_bytes: pages * PAGE_SIZE,
        memory_bytes: pages * PAGE_SIZE,
        align: PAGE_SIZE,
    };
    let (r, w, x) = (abi::PF_R, abi::PF_W, abi::PF_X);
    let mut code = load(r | x, 1, text);
    // Ends inside a page, where the file goes on.
    code.file_bytes -= 0x123;
    code.memory_bytes = code.file_bytes;
    let mut written = load(r | w, 1 + text + constants, data);
    written.file_bytes -= PAGE_SIZE - last;
    written.memory_bytes += bss * PAGE_SIZE;
    let builder = Builder {
        kind: abi::ET_EXEC,
        machine: abi::EM_X86_64,
        entry: 0x40_1000,
        parts: std::vec![load(r, 0, 1), code, load(r, 1 + text, constants), written],
        bytes: ((1 + text + constants + data) * PAGE_SIZE + 0x77) as usize,
    };
    let mut bytes = builder.build();
    for (at, byte) in bytes.iter_mut().enumerate().skip(0x400) {
        *byte = (at * 7 + at / 4096 * 31 + usize::from(number) * 101) as u8 | 1;
    }
    let hashes = PageHashes::of_file(&bytes);
    File {
        image: parse(&bytes).unwrap(),
        id: ProgramId(hashes.root()),
        hashes,
        bytes,
    }
}

impl File {
    /// To be launched cold.
    pub fn program(&self) -> Program {
        Program {
            id: self.id,
            image: self.image.clone(),
        }
    }

    /// A page of it, and zeros behind its end.
    pub fn page(&self, page: u64) -> Vec<u8> {
        let start = (page * PAGE_SIZE) as usize;
        let end = (start + PAGE_SIZE as usize).min(self.bytes.len());
        let mut contents = self.bytes[start..end].to_vec();
        contents.resize(PAGE_SIZE as usize, 0);
        contents
    }

    /// Number of its pages.
    pub fn pages(&self) -> u64 {
        (self.bytes.len() as u64).div_ceil(PAGE_SIZE)
    }

    /// What control answers.
    pub fn read(&self, fetch: &Fetch) -> &[u8] {
        &self.bytes[fetch.offset as usize..][..fetch.length as usize]
    }
}

/// Makes an access of the program happen, whatever it takes. Returns the byte's address in memory.
pub fn touch(
    sim: &mut Sim,
    memory: &mut Memory,
    file: &File,
    under_way: &mut Vec<Fetch>,
    (address, access): (u64, Access),
    fetched: &mut impl FnMut(&Fetch),
) -> Result<PhysAddr, Cause> {
    for _ in 0..=FAULTS_MAX {
        if let Some(at) = sim.access(memory.table(), address, access) {
            return Ok(at);
        }
        serve(sim, memory, file, under_way, (address, access), fetched)?;
    }
    panic!("{access:?} of {address:#x} faults again and again");
}

/// Serves a fault, of the program or of the kernel on its behalf. `fetched` hears of each fetch;
/// those that nobody waits for stay in `under_way`.
pub fn serve(
    sim: &mut Sim,
    memory: &mut Memory,
    file: &File,
    under_way: &mut Vec<Fetch>,
    (address, access): (u64, Access),
    fetched: &mut impl FnMut(&Fetch),
) -> Result<(), Cause> {
    match memory.resolve(sim, address, access) {
        Outcome::Done => return Ok(()),
        Outcome::Kill(cause) => return Err(cause),
        Outcome::Presented => {}
        Outcome::Fetch(fetch) => {
            if !sim.adopt(memory, &fetch)? {
                fetched(&fetch);
                memory.install(sim, &fetch, file.read(&fetch))?;
            }
        }
        Outcome::Full => unreachable!("reading ahead leaves room for a fetch that is waited for"),
        Outcome::InFlight(first) => {
            let index = under_way.iter().position(|fetch| fetch.page == first);
            let fetch = under_way.remove(index.expect("what is under way was asked for"));
            memory.install(sim, &fetch, file.read(&fetch))?;
        }
    }
    while let Some(fetch) = memory.plan_ahead(sim) {
        let id = ObjectId(file.id.0);
        let here = sim.objects.page(&sim.mem, &id, fetch.offset / PAGE_SIZE);
        if here.is_some() {
            let _ = sim.adopt(memory, &fetch);
            continue;
        }
        fetched(&fetch);
        under_way.push(fetch);
    }
    Ok(())
}
