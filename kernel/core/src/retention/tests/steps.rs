//! What can happen to a node and its programs, and how often.

use crate::addr::PAGE_SIZE;
use crate::fault::Access;
use crate::objects::Kept;
use crate::retention::{Policy, Variant};
use hearth_abi::linux::prot;
use proptest::prelude::*;

/// A place that is likely to be touched more than once.
#[derive(Clone, Copy, Debug)]
pub enum Spot {
    /// A page of a segment of the running program, counted from its start or its end; the one
    /// before the first, or the one behind the last, among them.
    Image {
        segment: usize,
        index: u64,
        from_end: bool,
    },
    /// The page of this number.
    Page(u64),
    /// A page that programs map for themselves.
    Mapped(u64),
    /// A page inside a large one of the kernel.
    Kernel(u64),
    /// A page of the stack, counted from its end.
    Stack(u64),
}

#[derive(Clone, Debug)]
pub enum Step {
    Launch {
        file: usize,
        policy: Policy,
        limit: u64,
    },
    Touch {
        spot: Spot,
        offset: u64,
        access: Access,
    },
    Write {
        spot: Spot,
        offset: u64,
        byte: u8,
    },
    KernelRead {
        spot: Spot,
        offset: u64,
        length: usize,
    },
    KernelWrite {
        spot: Spot,
        offset: u64,
        length: usize,
        byte: u8,
    },
    Arrive {
        pick: usize,
        lost: bool,
    },
    Hold {
        spot: Spot,
        pages: u64,
    },
    Map {
        spot: Spot,
        pages: u64,
        prot: u64,
    },
    /// A file that the job was given, from its page `from` on, over whatever is there.
    MapFile {
        spot: Spot,
        pages: u64,
        prot: u64,
        from: u64,
    },
    Unmap {
        spot: Spot,
        pages: u64,
    },
    Protect {
        spot: Spot,
        pages: u64,
        prot: u64,
    },
    Discard {
        spot: Spot,
        pages: u64,
    },
    Break {
        bytes: u64,
    },
    End,
    Damage {
        file: usize,
        pick: u64,
    },
    Drop {
        file: Option<usize>,
    },
    RetainOnly {
        file: usize,
        variant: Variant,
    },
    Limit {
        pages: u64,
    },
    Squeeze {
        available: u64,
    },
    Scrub {
        limit: u64,
    },
    /// A broadcast brings blocks of a file, those whose bit is set.
    Cast {
        file: usize,
        block_log2: u8,
        blocks: u64,
        kept: Kept,
    },
}

pub fn policy() -> impl Strategy<Value = Policy> {
    let weighted = prop::bool::weighted;
    let limit = prop_oneof![4 => Just(u64::MAX), 1 => 0u64..12];
    (weighted(0.9), weighted(0.8), weighted(0.8), limit).prop_map(
        |(keep, read_only, pristine, limit_pages)| Policy {
            keep,
            variant: match read_only {
                true => Variant::ReadOnlyToo,
                false => Variant::ExecutableOnly,
            },
            pristine,
            limit_pages,
        },
    )
}

pub fn spot() -> impl Strategy<Value = Spot> {
    let image = (0usize..4, 0u64..4, any::<bool>());
    prop_oneof![
        12 => image.prop_map(|(segment, index, from_end)| Spot::Image { segment, index, from_end }),
        1 => (0u64..4).prop_map(Spot::Mapped),
        1 => (0u64..3).prop_map(Spot::Stack),
        1 => (0u64..3).prop_map(Spot::Kernel),
    ]
}

pub fn step() -> impl Strategy<Value = Step> {
    let file = || prop_oneof![3 => Just(0), 2 => Just(1), 1 => Just(2usize)];
    let place = || (spot(), 0..PAGE_SIZE);
    let range = || (spot(), 1u64..4);
    let prot = || {
        prop_oneof![
            1 => Just(prot::NONE),
            1 => Just(prot::READ),
            2 => Just(prot::READ | prot::WRITE),
            1 => Just(prot::READ | prot::EXEC),
        ]
    };
    let access = prop_oneof![Just(Access::Read), Just(Access::Execute)];
    let limit = prop_oneof![9 => Just(u64::MAX), 1 => 4 * PAGE_SIZE..40 * PAGE_SIZE];
    let narrow = |narrow| match narrow {
        true => Variant::ExecutableOnly,
        false => Variant::ReadOnlyToo,
    };
    let blocks = prop_oneof![2 => Just(u64::MAX), 1 => any::<u64>(), 1 => Just(0)];
    let kept = prop_oneof![5 => Just(Kept::Image), 1 => Just(Kept::File)];
    prop_oneof![
        4 => (file(), policy(), limit)
            .prop_map(|(file, policy, limit)| Step::Launch { file, policy, limit }),
        16 => (place(), access)
            .prop_map(|((spot, offset), access)| Step::Touch { spot, offset, access }),
        12 => (place(), 1u8..)
            .prop_map(|((spot, offset), byte)| Step::Write { spot, offset, byte }),
        3 => (place(), 1usize..9000)
            .prop_map(|((spot, offset), length)| Step::KernelRead { spot, offset, length }),
        4 => (place(), 1usize..9000, 1u8..)
            .prop_map(|((spot, offset), length, byte)| Step::KernelWrite { spot, offset, length, byte }),
        3 => (any::<usize>(), prop::bool::weighted(0.1))
            .prop_map(|(pick, lost)| Step::Arrive { pick, lost }),
        2 => range().prop_map(|(spot, pages)| Step::Hold { spot, pages }),
        1 => (range(), prot())
            .prop_map(|((spot, pages), prot)| Step::Map { spot, pages, prot }),
        6 => (range(), prot(), 0u64..3)
            .prop_map(|((spot, pages), prot, from)| Step::MapFile { spot, pages, prot, from }),
        1 => range().prop_map(|(spot, pages)| Step::Unmap { spot, pages }),
        5 => (range(), prot())
            .prop_map(|((spot, pages), prot)| Step::Protect { spot, pages, prot }),
        3 => range().prop_map(|(spot, pages)| Step::Discard { spot, pages }),
        1 => (0u64..0x6000).prop_map(|bytes| Step::Break { bytes }),
        3 => Just(Step::End),
        1 => (file(), any::<u64>()).prop_map(|(file, pick)| Step::Damage { file, pick }),
        1 => proptest::option::of(file()).prop_map(|file| Step::Drop { file }),
        1 => (file(), any::<bool>())
            .prop_map(move |(file, is)| Step::RetainOnly { file, variant: narrow(is) }),
        1 => prop_oneof![1 => Just(0), 1 => 5u64..60, 3 => Just(u64::MAX)].prop_map(|pages| Step::Limit { pages }),
        1 => prop_oneof![200u64..600, Just(u64::MAX)].prop_map(|available| Step::Squeeze { available }),
        2 => (0u64..200).prop_map(|limit| Step::Scrub { limit }),
        3 => (file(), 12u8..=14, blocks, kept)
            .prop_map(|(file, block_log2, blocks, kept)| Step::Cast { file, block_log2, blocks, kept }),
    ]
}
