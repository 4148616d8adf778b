//! The descriptor's checks: what it accepts and what it refuses.

extern crate std;

use super::*;
use proptest::prelude::*;

fn descriptor() -> Descriptor {
    let mut segments = [Segment::default(); SEGMENTS_MAX];
    segments[0] = Segment {
        start: 0,
        end: 0x3000,
        writable: false,
        executable: true,
    };
    segments[1] = Segment {
        start: 0x3000,
        end: 0x8000,
        writable: true,
        executable: false,
    };
    Descriptor {
        crc: 1,
        early_sum: 2,
        image_bytes: 0xa000,
        stub_bytes: 0x6010,
        stub_data: 0x5000,
        workspace: 0xa000,
        relocations: 0x6000,
        relocation_count: 4,
        kernel: 0x7000,
        kernel_file_bytes: 0x2345,
        kernel_bytes: 0x7123,
        kernel_memory_bytes: 0x8000,
        kernel_entry: 0x10,
        stack_bytes: 0x1_0000,
        kernel_base: 0xffff_ffff_8000_0000,
        physical_memory_offset: 0xffff_8000_0000_0000,
        command_line: 0x6100,
        command_line_bytes: 12,
        version: *b"1.2.3\0\0\0\0\0\0\0\0\0\0\0",
        build_id: [9; 20],
        segment_count: 2,
        segments,
    }
}

#[test]
fn parse_returns_what_emit_wrote() {
    assert_eq!(Descriptor::parse(&descriptor().emit()), Ok(descriptor()));
}

type Change = fn(&mut Descriptor);

#[test]
fn what_reaches_outside_is_refused() {
    let cases: [(&str, Change); 14] = [
        ("image_bytes", |d| d.image_bytes = IMAGE_BYTES_MAX + 1),
        ("workspace", |d| d.workspace += 4096),
        ("workspace", |d| d.workspace = 0x9000),
        ("stub_bytes", |d| d.stub_bytes = 0xa004),
        ("relocations", |d| d.relocation_count = 5),
        ("relocations", |d| d.relocations = u32::MAX),
        ("relocations", |d| d.stub_data = 0x3000),
        ("kernel", |d| d.kernel_file_bytes = 0x3001),
        ("kernel", |d| d.kernel_entry = 0x8000),
        ("stack_bytes", |d| d.stack_bytes = 100),
        ("segments", |d| d.segments[1].executable = true),
        ("segments", |d| d.segments[1].start = 0x2000),
        ("segments", |d| d.segments[1].end = 0x9000),
        ("segments", |d| d.segment_count = 9),
    ];
    for (name, change) in cases {
        let mut descriptor = descriptor();
        change(&mut descriptor);
        assert_eq!(
            Descriptor::parse(&descriptor.emit()),
            Err(DescriptorError::Range(name))
        );
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..DESCRIPTOR_BYTES + 8),
        changes in prop::collection::vec((0..DESCRIPTOR_BYTES, any::<u8>()), 0..6),
    ) {
        let _ = Descriptor::parse(&bytes);
        let mut altered = descriptor().emit();
        for (place, byte) in changes {
            altered[place] = byte;
        }
        // What is accepted holds the ranges that the stub relies on.
        if let Ok(descriptor) = Descriptor::parse(&altered) {
            let end = u64::from(descriptor.image_bytes);
            prop_assert!(u64::from(descriptor.kernel) + u64::from(descriptor.kernel_file_bytes) <= end);
            prop_assert!(descriptor.relocations - descriptor.stub_data <= STUB_DATA_MAX);
            prop_assert!(descriptor.relocations + descriptor.relocation_count * 4 <= descriptor.stub_bytes);
            prop_assert!(u64::from(descriptor.stub_bytes) <= end);
        }
    }

    #[test]
    fn the_early_sum_sees_every_change(
        bytes in prop::collection::vec(any::<u8>(), 4..400),
        place in any::<prop::sample::Index>(),
        bit in 0..8_u32,
    ) {
        let mut altered = bytes.clone();
        let place = place.index(bytes.len() / 4 * 4);
        altered[place] ^= 1 << bit;
        prop_assert_ne!(early_sum(&bytes), early_sum(&altered));
    }
}
