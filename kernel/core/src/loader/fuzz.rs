//! 10,000 damaged ELF files, the same every time, from synthetic programs and from static
//! programs of this machine. None may panic the loader, and what it takes must keep the promises
//! of [`Image`], all the way through [`Space`] and the fault policy.

use super::synthetic::{Builder, parse};
use super::*;
use crate::addr::VirtAddr;
use crate::fault::{self, Access, Decision};
use crate::paging::entry::Class;
use crate::space::Space;
use crate::stack::{InitialStack, Start};
use std::println;

const FILES: usize = 10_000;
const SEED: u64 = 0x4845_4152_5448_0001;

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// A value that is likely to be on the edge of something.
    fn edge(&mut self, file_bytes: u64) -> u64 {
        let near = self.next() % 5;
        match self.below(9) {
            0 => near,
            1 => u64::MAX - near,
            2 => layout::USER_TOP - near * PAGE_SIZE,
            3 => 0x8000_0000_0000 + near,
            4 => (file_bytes + near).wrapping_sub(2),
            5 => 1 << self.below(64),
            6 => layout::PIE_BASE.wrapping_sub(near * PAGE_SIZE),
            7 => 0x40_0000 + near * PAGE_SIZE,
            _ => self.next(),
        }
    }
}

/// Fields of the ELF header and of a program header: offset and size.
const HEADER_FIELDS: [(usize, usize); 9] = [
    (4, 1),
    (5, 1),
    (6, 1),
    (16, 2),
    (18, 2),
    (24, 8),
    (32, 8),
    (54, 2),
    (56, 2),
];
const SEGMENT_FIELDS: [(usize, usize); 7] =
    [(0, 4), (4, 4), (8, 8), (16, 8), (32, 8), (40, 8), (48, 8)];

/// Damages a file; returns whether a header changed.
fn mutate(file: &mut Vec<u8>, random: &mut Random) -> bool {
    let count = usize::from(u16::from_le_bytes([file[56], file[57]]));
    let headers_end = EHDR_BYTES + count * HEADER_BYTES as usize;
    let original = file[..headers_end].to_vec();
    for _ in 0..1 + random.below(3) {
        let bytes = file.len() as u64;
        match random.below(10) {
            0..=3 => {
                let part = EHDR_BYTES + random.below(count) * HEADER_BYTES as usize;
                let (at, size) = SEGMENT_FIELDS[random.below(SEGMENT_FIELDS.len())];
                set(file, part + at, size, random.edge(bytes));
            }
            4..=5 => {
                let (at, size) = HEADER_FIELDS[random.below(HEADER_FIELDS.len())];
                set(file, at, size, random.edge(bytes));
            }
            6..=7 => {
                let at = random.below(headers_end.min(file.len()));
                file[at] ^= 1 << random.below(8);
            }
            8 => {
                let at = random.below(file.len());
                file[at] = random.next() as u8;
            }
            _ => file.truncate(1 + random.below(file.len())),
        }
        if file.len() < headers_end {
            break;
        }
    }
    file.get(..headers_end) != Some(&original[..])
}

fn set(file: &mut [u8], at: usize, size: usize, value: u64) {
    file[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
}

/// Static programs of this machine, cut to a size that keeps the test quick: an invariant of the
/// loader cannot depend on the contents of segments.
fn sources() -> Vec<Vec<u8>> {
    let mut sources = std::vec![
        Builder::program().build(),
        Builder::position_independent().build(),
    ];
    for path in ["/bin/busybox", "/sbin/ldconfig"] {
        if let Ok(file) = std::fs::read(path)
            && parse(&file).is_ok()
        {
            println!("with {path} ({} bytes)", file.len());
            sources.push(file);
        }
    }
    sources
}

/// What an accepted image promises.
fn check(image: &Image) {
    let mut last = layout::USER_MIN;
    for segment in &image.segments {
        assert!(segment.start >= last && segment.start < segment.end);
        assert!(segment.end <= layout::IMAGE_TOP);
        assert!((segment.start..=segment.end).contains(&segment.file_end));
        let from_file = segment.file_end - segment.start;
        assert!(segment.offset + from_file <= image.file_bytes);
        last = segment.end;
    }
    let space = Space::new(image, 32 << 20, true);
    let start = Start {
        argv: &[b"program"],
        envp: &[],
        random: [0; 16],
        hwcap: 0,
        user: [0; 2],
    };
    InitialStack::build(image, &start, layout::STACK_TOP).unwrap();
    let entry = fault::decide(&space, image.entry, Access::Execute, None, 1000);
    assert!(!matches!(entry, Decision::Kill(_)), "{entry:?}");
    for segment in &image.segments {
        for at in [
            segment.start,
            segment.file_end.min(segment.end - 1),
            segment.end - 1,
        ] {
            for access in [Access::Read, Access::Write, Access::Execute] {
                match fault::decide(&space, at, access, None, 1000) {
                    Decision::File(page) => {
                        assert!(page.offset + page.bytes <= image.file_bytes);
                        assert!(page.page.as_u64() >= segment.start);
                        let attributes = page.attributes;
                        // A page of data is read-only until it is copied.
                        assert!(
                            access.allowed_by(attributes.protection)
                                || attributes.class == Class::FileData && access == Access::Write
                        );
                    }
                    Decision::ZeroFill {
                        page, attributes, ..
                    } => {
                        assert!(page >= VirtAddr::new(segment.start));
                        assert!(access.allowed_by(attributes.protection));
                    }
                    Decision::Kill(_) => assert!(!access.allowed_by(segment.protection)),
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

#[test]
fn ten_thousand_damaged_files() {
    let sources = sources();
    let mut random = Random(SEED);
    let mut counts = [0; LoadError::KINDS.len()];
    let (mut accepted, mut headers_altered) = (0, 0);
    for index in 0..FILES {
        // The whole file of a large program need not be copied: the loader sees only the head.
        let source = &sources[index % sources.len()];
        let mut head = source[..source.len().min(4 * PAGE_SIZE as usize)].to_vec();
        let cut = head.len();
        headers_altered += usize::from(mutate(&mut head, &mut random));
        let truncated = head.len() < cut;
        let file_bytes = if truncated { head.len() } else { source.len() } as u64;
        head.truncate(HEAD_BYTES as usize);
        match Image::parse(&head, file_bytes) {
            Ok(image) => {
                accepted += 1;
                check(&image);
            }
            Err(error) => {
                counts[error.kind()] += 1;
                assert!(!std::format!("{error}").is_empty());
            }
        }
    }
    println!("{FILES} files, headers altered in {headers_altered}, accepted {accepted}");
    for (kind, count) in LoadError::KINDS.iter().zip(counts) {
        println!("{count:6}  {kind}");
    }
    assert!(headers_altered * 2 >= FILES);
    assert_eq!(accepted + counts.iter().sum::<usize>(), FILES);
    // The damage reaches every kind of error but the ones that take more than one wrong field.
    let reached = counts.iter().filter(|&&count| count > 0).count();
    assert!(
        reached >= LoadError::KINDS.len() - 2,
        "only {reached} kinds"
    );
}
