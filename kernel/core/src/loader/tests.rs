//! Each thing the loader takes and each thing it refuses.

use super::synthetic::{Builder, parse};
use super::*;
use std::string::ToString;

fn refused(change: impl FnOnce(&mut Builder)) -> LoadError {
    let mut builder = Builder::program();
    change(&mut builder);
    builder.parse().unwrap_err()
}

#[test]
fn a_static_program_is_taken_as_its_headers_say() {
    let image = Builder::program().parse().unwrap();
    assert_eq!((image.entry, image.base), (0x40_1136, 0));
    assert_eq!(image.headers, Some(0x40_0040));
    assert_eq!(image.header_count, 5);
    let code = image.segments[1];
    assert_eq!((code.start, code.end), (0x40_1000, 0x40_4000));
    assert_eq!((code.offset, code.file_end), (0x1000, 0x40_4000));
    assert_eq!(code.protection, Protection::ReadExecute);
    assert_eq!(code.class, Class::FileExecute);
    let data = image.segments[3];
    assert_eq!((data.start, data.end), (0x40_5000, 0x40_9000));
    assert_eq!((data.offset, data.file_end), (0x5000, 0x40_6000));
    assert_eq!(data.protection, Protection::ReadWrite);
    assert_eq!(image.segments[2].class, Class::FileRead);
    assert_eq!(image.end(), 0x40_9000);
}

#[test]
fn a_position_independent_program_gets_the_fixed_base() {
    let image = Builder::position_independent().parse().unwrap();
    assert_eq!(image.base, layout::PIE_BASE);
    assert_eq!(image.entry, layout::PIE_BASE + 0x1136);
    assert_eq!(image.headers, Some(layout::PIE_BASE + 0x40));
    let mut large = Builder::position_independent();
    large.parts[1].align = 2 << 20;
    let image = large.parse().unwrap();
    assert!(image.base.is_multiple_of(2 << 20));
}

#[test]
fn what_is_not_for_a_node_is_told_what_to_do() {
    let text = |error: LoadError| error.to_string();
    assert!(text(parse(b"#!/bin/sh\n").unwrap_err()).starts_with("not an ELF file"));
    assert!(text(parse(b"").unwrap_err()).starts_with("not an ELF file"));
    assert!(text(refused(|b| b.machine = 183)).contains("machine (AArch64"));
    assert!(text(refused(|b| b.kind = abi::ET_REL)).contains("link it (with -static)"));
    let dynamic = refused(|b| b.parts[4].kind = abi::PT_INTERP);
    assert_eq!(dynamic, LoadError::DynamicallyLinked);
    assert!(text(dynamic).contains("-static"));
    let mut narrow = Builder::program().build();
    narrow[abi::EI_CLASS] = abi::ELFCLASS32;
    assert_eq!(parse(&narrow), Err(LoadError::Not64Bit));
    let mut big = Builder::program().build();
    big[abi::EI_DATA] = abi::ELFDATA2MSB;
    assert_eq!(parse(&big), Err(LoadError::WrongMachine(None)));
}

#[test]
fn a_truncated_file_is_refused_wherever_it_is_cut() {
    let whole = Builder::program().build();
    // The last byte that a segment needs.
    let needed = 0x5700 + 0x900;
    for length in 4..needed {
        let error = parse(&whole[..length]).unwrap_err();
        let LoadError::Truncated { file_bytes, needed } = error else {
            panic!("{error:?} at {length}");
        };
        assert!(needed > file_bytes && file_bytes == length as u64);
    }
    assert!(parse(&whole[..needed]).is_ok());
}

/// What is expected, and the damage.
type Case = (LoadError, fn(&mut Builder));

#[test]
fn a_lying_segment_is_refused() {
    let lie = |index, what| LoadError::BadSegment { index, what };
    let cases: [Case; 15] = [
        (lie(1, Lie::Alignment), |b| b.parts[1].align = 3),
        (lie(1, Lie::Alignment), |b| b.parts[1].align = 1 << 40),
        (lie(1, Lie::FileLargerThanMemory), |b| {
            b.parts[1].memory_bytes = 1
        }),
        (lie(1, Lie::OffsetDoesNotFitAddress), |b| {
            b.parts[1].offset += 8
        }),
        (lie(3, Lie::FileRange), |b| {
            b.parts[3].offset = u64::MAX - 0xff;
            b.parts[3].address = 0x40_5f00;
        }),
        (lie(3, Lie::Address), |b| {
            b.parts[3].address = 0xffff_8000_0000_0700
        }),
        (lie(3, Lie::Address), |b| b.parts[3].memory_bytes = u64::MAX),
        (lie(0, Lie::NullPage), |b| b.parts[0].address = 0),
        (
            LoadError::TooLarge {
                index: 3,
                bytes: 1 << 46,
            },
            |b| {
                b.parts[3].address = 0x5000_0000_0700;
                b.parts[3].memory_bytes = 1 << 46;
            },
        ),
        (LoadError::Overlapping { index: 2 }, |b| {
            b.parts[2].address = 0x40_3000
        }),
        (LoadError::Overlapping { index: 1 }, |b| {
            b.parts[0].address = 0x80_0000;
        }),
        (LoadError::WriteAndExecute { index: 1 }, |b| {
            b.parts[1].flags = 7
        }),
        (LoadError::EntryOutside(0x40_5000), |b| b.entry = 0x40_5000),
        (LoadError::NoSegments, |b| b.parts.truncate(0)),
        (LoadError::HeadersNotLoaded, |b| {
            b.parts[4].kind = abi::PT_PHDR;
            b.parts[4].address = 0x80_0000;
        }),
    ];
    for (expected, change) in cases {
        let error = refused(change);
        assert_eq!(error, expected);
        assert!(!error.to_string().is_empty());
    }
    let many = refused(|b| {
        b.parts = (0..17)
            .map(|index| {
                let mut part = b.parts[0];
                part.address += index * PAGE_SIZE;
                part
            })
            .collect();
    });
    assert_eq!(many, LoadError::TooManySegments(17));
}

#[test]
fn headers_out_of_reach_are_refused() {
    let mut file = Builder::program().build();
    file[32..40].copy_from_slice(&0x6000u64.to_le_bytes());
    let end = 0x6000 + 5 * HEADER_BYTES;
    assert_eq!(parse(&file), Err(LoadError::HeadersTooFar { end }));
    file[32..40].copy_from_slice(&(u64::MAX - 8).to_le_bytes());
    assert_eq!(parse(&file), Err(LoadError::BadHeader));
}

#[test]
fn a_program_whose_headers_are_not_loaded_still_starts() {
    let mut builder = Builder::program();
    builder.parts.remove(0);
    let image = builder.parse().unwrap();
    assert_eq!(image.headers, None);
}
