//! Page tables, stacks, heap and frames, as they really are on the machine.

use alloc::format;
use alloc::vec::Vec;

use kernel_core::frames::{Frame, Owner};
use kernel_core::paging::entry::{Attributes, Class, Protection};
use kernel_core::paging::{PageSize, PageTable};
use kernel_core::phys::PhysMem;

use super::{Outcome, check};
use crate::arch::probe::{self, Caught};
use crate::arch::trap::PAGE_FAULT;
use crate::arch::{cpu, gdt, test_programs};
use crate::mm::{self, DirectMap, PAGE_SIZE, PhysAddr, VirtAddr, layout};

/// Bits of a page fault's error code.
const PRESENT: u64 = 1;
const WRITE: u64 = 2;
const EXECUTE: u64 = 16;

/// First and last address of the kernel half.
const KERNEL_HALF: (u64, u64) = (0xffff_8000_0000_0000, u64::MAX);

fn caught(vector: u8, code: u64, address: u64) -> Option<Caught> {
    Some(Caught {
        vector,
        code,
        address,
    })
}

/// Two mappings of one frame show the same bytes; an unmapped page faults.
pub fn paging() -> Outcome {
    const PAGE: u64 = layout::DEVICES + layout::DEVICES_BYTES;
    let table = mm::kernel_table();
    let mut frames = mm::frames();
    let frame = frames.alloc(&mut DirectMap, Owner::KERNEL).ok_or("frame")?;
    let frame = frame.into_entry();
    let before = frames.usage().kernel;
    table
        .map(
            &mut DirectMap,
            &mut *frames,
            VirtAddr::new(PAGE),
            frame,
            PageSize::Small,
            Attributes::kernel(Protection::ReadWrite),
        )
        .map_err(|error| format!("{error:?}"))?;
    check!(
        probe::catch(probe::write, PAGE).is_none(),
        "mapped page faults"
    );
    let mut bytes = [0; 8];
    DirectMap.read(frame, &mut bytes);
    check!(
        u64::from_le_bytes(bytes) == probe::PATTERN,
        "alias shows {bytes:x?}"
    );
    table
        .unmap(&mut DirectMap, &mut *frames, VirtAddr::new(PAGE))
        .map_err(|error| format!("{error:?}"))?;
    mm::invalidate(VirtAddr::new(PAGE));
    check!(
        frames.usage().kernel == before,
        "tables were not given back"
    );
    let found = probe::catch(probe::write, PAGE);
    check!(
        found == caught(PAGE_FAULT, WRITE, PAGE),
        "unmapped page: {found:?}"
    );
    frames
        .check()
        .map_err(|sum| format!("frame counters: {sum}"))
}

/// Memory is mapped by pages of 1 GiB where all of it is memory, and can be used through them.
pub fn huge_pages() -> Outcome {
    const SECOND_GIB: u64 = 1 << 30;
    let size = |at| {
        let leaf = mm::kernel_translate(VirtAddr::new(layout::PHYSICAL_MAP + at));
        leaf.map(|leaf| leaf.size)
    };
    let found = size(SECOND_GIB + 0x1234_5678);
    check!(found == Some(PageSize::Huge), "mapped by {found:?}");
    // The kernel's image lies in the first or in the third, whose end is firmware's.
    let whole = [size(0x10_0000), size(2 * SECOND_GIB)];
    check!(
        whole.contains(&Some(PageSize::Large)),
        "mapped by {whole:?}"
    );
    let place = PhysAddr::new(SECOND_GIB + 0x20_0000);
    let before = DirectMap.read_u64(place);
    DirectMap.write_u64(place, !before);
    let after = DirectMap.read_u64(place);
    DirectMap.write_u64(place, before);
    check!(after == !before, "{after:#x} was read");
    Ok(())
}

/// Page 0 is not mapped for the kernel and cannot be mapped for a program.
pub fn null_page() -> Outcome {
    let found = probe::catch(probe::read, 0);
    check!(
        found == caught(PAGE_FAULT, 0, 0),
        "read of address 0: {found:?}"
    );
    let found = probe::catch(probe::write, 8);
    check!(
        found == caught(PAGE_FAULT, WRITE, 8),
        "write to address 8: {found:?}"
    );
    let found = probe::catch(probe::execute, 0);
    let not_present = found.map(|c| (c.vector, c.code & PRESENT, c.address));
    check!(
        not_present == Some((PAGE_FAULT, 0, 0)),
        "call of address 0: {found:?}"
    );
    let mut frames = mm::frames();
    let table =
        PageTable::new(&mut DirectMap, &mut *frames).map_err(|error| format!("{error:?}"))?;
    let frame = frames
        .alloc(&mut DirectMap, Owner::program(1))
        .ok_or("frame")?
        .into_entry();
    let result = table.map(
        &mut DirectMap,
        &mut *frames,
        VirtAddr::new(0),
        frame,
        PageSize::Small,
        Attributes::user(Protection::Read, Class::Private),
    );
    check!(result.is_err(), "page 0 was mapped");
    let mut lower = 0;
    mm::kernel_table().for_each(
        &DirectMap,
        VirtAddr::new(0),
        VirtAddr::new(kernel_core::addr::USER_END - 1),
        |_| lower += 1,
    );
    check!(lower == 0, "{lower} pages in the lower half");
    Ok(())
}

/// No page of the kernel is writable and executable; code cannot be written, neither at its own
/// address nor through the physical map.
pub fn write_xor_execute() -> Outcome {
    let (mut writable, mut executable, mut frames_of_code) = (0u32, 0u32, Vec::new());
    mm::kernel_table().for_each(
        &DirectMap,
        VirtAddr::new(KERNEL_HALF.0),
        VirtAddr::new(KERNEL_HALF.1),
        |leaf| match leaf.attributes.protection {
            Protection::ReadWrite => writable += 1,
            Protection::ReadExecute => {
                executable += 1;
                frames_of_code.push(leaf.frame);
            }
            _ => {}
        },
    );
    check!(
        writable > 100 && executable > 10,
        "{writable} writable and {executable} executable pages: the walk is wrong"
    );
    let code = probe::write as *const () as u64;
    let found = probe::catch(probe::write, code);
    check!(
        found == caught(PAGE_FAULT, PRESENT | WRITE, code),
        "write to code: {found:?}"
    );
    for frame in frames_of_code {
        let alias = mm::phys_to_virt(frame) as u64;
        let found = probe::catch(probe::write, alias);
        check!(
            found == caught(PAGE_FAULT, PRESENT | WRITE, alias),
            "write to code through the physical map: {found:?}"
        );
    }
    let constant = super::TESTS.as_ptr() as u64;
    let found = probe::catch(probe::write, constant);
    check!(
        found == caught(PAGE_FAULT, PRESENT | WRITE, constant),
        "write to relocated constants: {found:?}"
    );
    Ok(())
}

/// Heap, stack, physical map and the kernel's data cannot be executed.
pub fn no_execute() -> Outcome {
    const RETURN: u8 = 0xc3;
    static mut DATA: u8 = RETURN;
    let heap = alloc::boxed::Box::new(RETURN);
    let stack = RETURN;
    let (frame, mapped) = mm::dma_alloc(1).ok_or("no frame")?;
    DirectMap.write(frame, &[RETURN]);
    for (name, address) in [
        ("heap", &raw const *heap as u64),
        ("stack", &raw const stack as u64),
        ("data", &raw const DATA as u64),
        ("physical map", mapped.as_ptr() as u64),
    ] {
        let found = probe::catch(probe::execute, address);
        check!(
            found == caught(PAGE_FAULT, PRESENT | EXECUTE, address),
            "executing the {name}: {found:?}"
        );
    }
    let code = probe::nothing as *const () as u64;
    check!(
        probe::catch(probe::execute, code).is_none(),
        "code cannot be executed"
    );
    Ok(())
}

/// Recursion without end runs into the page under the stack.
pub fn stack_guard() -> Outcome {
    let marker = 0u8;
    let near = &raw const marker as u64;
    let found = probe::catch(overflow, 0).ok_or("the stack has no end")?;
    check!(
        found.vector == PAGE_FAULT && found.code & PRESENT == 0,
        "{found:?}"
    );
    let below = near.saturating_sub(found.address);
    check!(
        found.address < near && below <= layout::KERNEL_STACK_BYTES + PAGE_SIZE,
        "fault at {:#x}, stack near {near:#x}",
        found.address
    );
    Ok(())
}

/// Under every interrupt stack there is a hole.
pub fn interrupt_stack_guard() -> Outcome {
    for index in gdt::StackIndex::ALL {
        // The CPU begins below what says which core's it is.
        let top = gdt::stack(index).next_multiple_of(PAGE_SIZE);
        let bottom = top - layout::INTERRUPT_STACK_BYTES;
        for page in (bottom..top).step_by(PAGE_SIZE as usize) {
            let leaf = mm::kernel_translate(VirtAddr::new(page));
            let protection = leaf.map(|leaf| leaf.attributes.protection);
            check!(
                protection == Some(Protection::ReadWrite),
                "{index:?} stack at {page:#x}: {leaf:?}"
            );
        }
        let guard = bottom - 8;
        let found = probe::catch(probe::write, guard);
        check!(
            found == caught(PAGE_FAULT, WRITE, guard),
            "under the {index:?} stack: {found:?}"
        );
    }
    Ok(())
}

/// A frame that one program wrote is zero when the next one gets it. Fails with
/// `hearth.scrub=off`.
pub fn scrub() -> Outcome {
    const COUNT: usize = 64;
    let mut frames = mm::frames();
    let mut first = Vec::new();
    for _ in 0..COUNT {
        let frame = frames.alloc(&mut DirectMap, Owner::program(1));
        first.push(frame.ok_or("no frame")?.into_entry());
    }
    for frame in &first {
        DirectMap.write(*frame, &[0x5a; PAGE_SIZE as usize]);
        frames.free(Frame::from_entry(*frame));
    }
    let mut again = 0;
    for _ in 0..COUNT {
        let frame = frames
            .alloc(&mut DirectMap, Owner::program(2))
            .ok_or("no frame")?
            .into_entry();
        again += usize::from(first.contains(&frame));
        let mut bytes = [0xff; PAGE_SIZE as usize];
        DirectMap.read(frame, &mut bytes);
        check!(
            bytes.iter().all(|&byte| byte == 0),
            "{frame:?} holds what another program wrote"
        );
    }
    check!(again > 0, "the second program got none of the same frames");
    frames
        .check()
        .map_err(|sum| format!("frame counters: {sum}"))
}

/// The test above notices when frames are not scrubbed.
pub fn scrub_off_is_seen() -> Outcome {
    mm::frames().disable_scrubbing_for_test();
    match scrub() {
        Ok(()) => Err("nobody noticed that frames are not scrubbed".into()),
        Err(_) => Ok(()),
    }
}

/// The heap grows to its limit, then says no, and is whole again afterwards.
pub fn heap() -> Outcome {
    const BLOCK: usize = 64 * 1024;
    let mut blocks: Vec<Vec<u8>> = Vec::new();
    let most = (layout::HEAP_MOST_MAX_BYTES as usize) / BLOCK + 1;
    for index in 0..most {
        let mut block = Vec::new();
        if block.try_reserve_exact(BLOCK).is_err() {
            break;
        }
        block.resize(BLOCK, index as u8);
        blocks.push(block);
    }
    let bytes = blocks.len() * BLOCK;
    check!(
        bytes as u64 > layout::HEAP_LEAST_MAX_BYTES * 3 / 4 && blocks.len() < most,
        "heap ended after {bytes} bytes"
    );
    for (index, block) in blocks.iter().enumerate() {
        check!(
            block.iter().all(|&byte| byte == index as u8),
            "block {index} was overwritten"
        );
    }
    drop(blocks);
    let mut whole: Vec<u8> = Vec::new();
    check!(
        whole.try_reserve_exact(bytes / 2).is_ok(),
        "heap stays fragmented"
    );
    Ok(())
}

/// The kernel can neither read nor execute a program's page at the program's address (SMAP, SMEP).
pub fn user_memory_is_out_of_reach() -> Outcome {
    let features = cpu::features();
    check!(
        features.smap && features.smep,
        "this CPU has no SMAP or SMEP: run the test with -cpu max"
    );
    let _sandbox = super::sandbox::Sandbox::new(test_programs::spin())?;
    let data = test_programs::DATA;
    let found = probe::catch(probe::read, data);
    check!(
        found == caught(PAGE_FAULT, PRESENT, data),
        "read of a program's page: {found:?}"
    );
    let code = test_programs::CODE;
    let found = probe::catch(probe::execute, code);
    check!(
        found == caught(PAGE_FAULT, PRESENT | EXECUTE, code),
        "call into a program's page: {found:?}"
    );
    Ok(())
}

/// Uses the stack until it ends.
pub extern "C" fn overflow(depth: u64) {
    let mut here = [depth; 32];
    core::hint::black_box(&mut here);
    if core::hint::black_box(depth) != u64::MAX {
        overflow(depth + 1);
    }
    core::hint::black_box(&mut here);
}
