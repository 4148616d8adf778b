//! Properties of a normalised memory map, whatever firmware reports.

extern crate std;

use super::*;
use proptest::prelude::*;
use std::vec::Vec;

fn map(regions: &[(u64, u64, Kind)]) -> MemoryMap {
    let mut map = MemoryMap::new();
    for &(start, bytes, kind) in regions {
        map.add(start, bytes, kind).unwrap();
    }
    map.normalise().unwrap();
    map
}

fn region(start: u64, end: u64, kind: Kind) -> Region {
    Region { start, end, kind }
}

#[test]
fn overlaps_go_to_the_more_restrictive_kind() {
    let map = map(&[
        (0x10_0000, 0x10_0000, Kind::Usable),
        (0, 0x9_fc00, Kind::Usable),
        (0x18_0800, 0x800, Kind::Bios(2)),
        (0x9_fc00, 0x400, Kind::Bios(2)),
    ]);
    assert_eq!(
        map.regions(),
        [
            region(0x1000, 0x9_f000, Kind::Usable),
            region(0x9_fc00, 0xa_0000, Kind::Bios(2)),
            region(0x10_0000, 0x18_0000, Kind::Usable),
            region(0x18_0800, 0x18_1000, Kind::Bios(2)),
            region(0x18_1000, 0x20_0000, Kind::Usable),
        ]
    );
}

#[test]
fn equal_neighbours_become_one_region() {
    let pieces: Vec<_> = (1..300)
        .map(|page| (page << 12, PAGE_BYTES, Kind::Usable))
        .collect();
    assert_eq!(
        map(&pieces).regions(),
        [region(0x1000, 300 << 12, Kind::Usable)]
    );
}

#[test]
fn what_is_reserved_is_no_longer_found() {
    let mut map = map(&[(0x10_0000, 0x10_0000, Kind::Usable)]);
    let avoid = [(0x1f_0000, 0x1f_8000)];
    let at = map.find(0x9000, 0, u64::MAX, &avoid).unwrap();
    assert_eq!(at, 0x1f_0000 - 0x9000);
    map.reserve(at, at + 0x9000).unwrap();
    assert_eq!(map.usable_bytes(), 0x10_0000 - 0x9000);
    assert_eq!(map.find(0xf_0000, 0, u64::MAX, &[]), None);
    assert_eq!(map.find(0x1000, 0, 0x10_0000, &[]), None);
    assert_eq!(map.ram_end(), 0x20_0000);
}

#[test]
fn more_regions_than_fit_are_an_error() {
    let mut map = MemoryMap::new();
    for index in 0..REGIONS_MAX as u64 {
        map.add((2 * index + 1) << 12, PAGE_BYTES, Kind::Usable)
            .unwrap();
    }
    assert_eq!(map.add(1 << 40, PAGE_BYTES, Kind::Usable), Err(MapFull));
}

fn any_kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        3 => Just(Kind::Usable),
        1 => (2..7_u32).prop_map(Kind::Bios),
        1 => (0..16_u32).prop_map(Kind::Uefi),
    ]
}

/// Small addresses, so that regions touch and overlap; now and then anything at all.
fn any_region() -> impl Strategy<Value = (u64, u64, Kind)> {
    prop_oneof![
        9 => (0..0x8000_u64, 0..0x4000_u64, any_kind()),
        1 => (any::<u64>(), any::<u64>(), any_kind()),
    ]
}

proptest! {
    #[test]
    fn a_normalised_map_is_sorted_and_safe(input in prop::collection::vec(any_region(), 0..40)) {
        let map = map(&input);
        let regions = map.regions();
        for pair in regions.windows(2) {
            prop_assert!(pair[0].end <= pair[1].start);
            prop_assert!(pair[0].end < pair[1].start || pair[0].kind != pair[1].kind);
        }
        for region in regions {
            prop_assert!(region.start < region.end);
            if region.kind != Kind::Usable {
                continue;
            }
            prop_assert!(region.start >= PAGE_BYTES);
            prop_assert_eq!((region.start % PAGE_BYTES, region.end % PAGE_BYTES), (0, 0));
            for &(start, bytes, kind) in &input {
                let overlaps = start < region.end && start.saturating_add(bytes) > region.start;
                prop_assert!(kind == Kind::Usable || bytes == 0 || !overlaps);
            }
        }
    }

    #[test]
    fn what_is_found_is_usable_and_apart(
        input in prop::collection::vec(any_region(), 0..20),
        pages in 1..4_u64,
        avoid in (0..0x8000_u64, 0..0x2000_u64),
    ) {
        let map = map(&input);
        let avoid = (avoid.0, avoid.0 + avoid.1);
        let bytes = pages * PAGE_BYTES;
        if let Some(start) = map.find(bytes, 0x1000, 1 << 32, &[avoid]) {
            let end = start + bytes;
            prop_assert_eq!(start % PAGE_BYTES, 0);
            prop_assert!(end <= 1 << 32 && start >= 0x1000);
            prop_assert!(avoid.0 >= end || avoid.1 <= start || avoid.0 == avoid.1);
            let inside = |r: &Region| r.kind == Kind::Usable && r.start <= start && end <= r.end;
            prop_assert!(map.regions().iter().any(inside));
        }
    }
}
