//! One decision for each thing a program can touch.

use super::*;
use crate::addr::PhysAddr;
use crate::loader::synthetic;
use crate::paging::PageSize;
use crate::space::MapRequest;
use hearth_abi::linux::{map, prot};

const PLENTY: u64 = 1000;

fn space() -> Space {
    Space::new(&synthetic::image(), 32 << 20, true)
}

fn decide(space: &Space, address: u64, access: Access) -> Decision {
    super::decide(space, address, access, None, PLENTY)
}

#[test]
fn segments_bring_in_their_file_pages() {
    let space = space();
    let Decision::File(code) = decide(&space, 0x40_1136, Access::Execute) else {
        panic!("code is not brought in");
    };
    assert_eq!(code.page.as_u64(), 0x40_1000);
    assert_eq!((code.offset, code.bytes), (0x1000, 4096));
    assert_eq!(code.attributes.class, Class::FileExecute);
    // The last page of code is the file's to its end.
    let Decision::File(last) = decide(&space, 0x40_3fff, Access::Read) else {
        panic!("code is not brought in");
    };
    assert_eq!((last.offset, last.bytes), (0x3000, 0x1000));
    let Decision::File(constants) = decide(&space, 0x40_4000, Access::Read) else {
        panic!("constants are not brought in");
    };
    assert_eq!(constants.attributes.class, Class::FileRead);
    let Decision::File(data) = decide(&space, 0x40_5700, Access::Write) else {
        panic!("data is not brought in");
    };
    assert_eq!((data.offset, data.bytes), (0x5000, 4096));
    assert_eq!(
        data.attributes,
        Attributes::user(Protection::Read, Class::FileData)
    );
    // Data ends at a page boundary here: the next page is bss.
    let bss = decide(&space, 0x40_6000, Access::Write);
    assert!(matches!(bss, Decision::ZeroFill { .. }), "{bss:?}");
}

#[test]
fn wrong_accesses_end_the_program() {
    let space = space();
    let cases = [
        (0, Access::Read, Cause::NullPointer),
        (0xffff, Access::Write, Cause::NullPointer),
        (0x2000_0000, Access::Read, Cause::Unmapped),
        (USER_END, Access::Read, Cause::NotUser),
        (u64::MAX, Access::Execute, Cause::NotUser),
        (
            0x40_1000,
            Access::Write,
            Cause::Protection(Protection::ReadExecute),
        ),
        (
            0x40_4000,
            Access::Write,
            Cause::Protection(Protection::Read),
        ),
        (
            0x40_5000,
            Access::Execute,
            Cause::Protection(Protection::ReadWrite),
        ),
        (
            layout::STACK_TOP - 8,
            Access::Execute,
            Cause::Protection(Protection::ReadWrite),
        ),
        (layout::MMAP_TOP, Access::Write, Cause::StackOverflow),
        (
            layout::MMAP_TOP + layout::STACK_GUARD_BYTES - 8,
            Access::Write,
            Cause::StackOverflow,
        ),
    ];
    for (address, access, cause) in cases {
        assert_eq!(
            decide(&space, address, access),
            Decision::Kill(cause),
            "{address:#x}"
        );
        assert_eq!(cause.signal(), Signal::Segv);
    }
}

#[test]
fn a_reserve_of_frames_stays_with_the_kernel() {
    let space = space();
    let stack = layout::STACK_TOP - 8;
    let decision = super::decide(&space, stack, Access::Write, None, FRAMES_RESERVED);
    assert_eq!(decision, Decision::Kill(Cause::OutOfMemory));
    assert_eq!(Cause::OutOfMemory.signal(), Signal::Kill);
    let decision = super::decide(&space, stack, Access::Write, None, FRAMES_RESERVED + 1);
    assert!(matches!(decision, Decision::ZeroFill { .. }));
}

#[test]
fn a_page_in_memory_is_presented_not_fetched() {
    let mut space = space();
    let request = MapRequest {
        address: 0,
        length: 4096,
        protection: prot::READ | prot::WRITE,
        flags: map::PRIVATE | map::ANONYMOUS,
        fd: -1,
    };
    let address = space.mmap(request).unwrap().address;
    let page = VirtAddr::new(address);
    let held = |protection| {
        Some(Leaf {
            page,
            frame: PhysAddr::new(0x1000),
            size: PageSize::Small,
            attributes: Attributes::user(protection, Class::Private),
            accessed: false,
            dirty: false,
        })
    };
    let touch = |space: &Space, protection| {
        super::decide(space, address, Access::Write, held(protection), 0)
    };
    let protection = Protection::ReadWrite;
    assert_eq!(
        touch(&space, Protection::None),
        Decision::Present { page, protection }
    );
    assert_eq!(
        touch(&space, Protection::ReadWrite),
        Decision::Stale { page }
    );
    space.mprotect(address, 4096, prot::NONE).unwrap();
    let kill = Decision::Kill(Cause::Protection(Protection::None));
    assert_eq!(touch(&space, Protection::None), kill);
}

#[test]
fn a_data_page_is_read_as_the_file_has_it_and_copied_when_written() {
    let mut space = space();
    let page = VirtAddr::new(0x40_5000);
    let held = |protection| {
        Some(Leaf {
            page,
            frame: PhysAddr::new(0x1000),
            size: PageSize::Small,
            attributes: Attributes::user(protection, Class::FileData),
            accessed: false,
            dirty: false,
        })
    };
    let touch = |space: &Space, access, protection| {
        super::decide(space, page.as_u64(), access, held(protection), 0)
    };
    let (none, read) = (Protection::None, Protection::Read);
    let copy = Decision::Copy { page };
    assert_eq!(touch(&space, Access::Write, read), copy);
    assert_eq!(touch(&space, Access::Write, none), copy);
    assert_eq!(touch(&space, Access::Read, read), Decision::Stale { page });
    let present = Decision::Present {
        page,
        protection: read,
    };
    assert_eq!(touch(&space, Access::Read, none), present);
    // RELRO: what was never written stays what it was; writing is not for the program.
    space.mprotect(page.as_u64(), 4096, prot::READ).unwrap();
    let kill = Decision::Kill(Cause::Protection(read));
    assert_eq!(touch(&space, Access::Write, read), kill);
    assert_eq!(touch(&space, Access::Read, none), present);
    // And back: still not writable itself.
    let both = prot::READ | prot::WRITE;
    space.mprotect(page.as_u64(), 4096, both).unwrap();
    assert_eq!(touch(&space, Access::Write, read), copy);
}

#[test]
fn error_codes_and_exceptions_have_their_meaning() {
    assert_eq!(Access::from_error_code(0b00100), Access::Read);
    assert_eq!(Access::from_error_code(0b00111), Access::Write);
    assert_eq!(Access::from_error_code(0b10101), Access::Execute);
    let signal = |vector| Cause::Exception { vector }.signal();
    assert_eq!(signal(0), Signal::Fpe);
    assert_eq!(signal(6), Signal::Ill);
    assert_eq!(signal(13), Signal::Segv);
    assert_eq!(Cause::TimeLimit.signal(), Signal::Xcpu);
}

#[test]
fn a_real_time_signal_ends_a_program_as_that_signal() {
    assert_eq!(Cause::Raised(40).signal_number(), 40);
    assert_eq!(Cause::Cancelled(64).signal_number(), 64);
    assert_eq!(Cause::Raised(6).signal(), Signal::Abrt);
    assert_eq!(Cause::Raised(6).signal_number(), 6);
}
