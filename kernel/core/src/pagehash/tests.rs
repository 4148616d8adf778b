//! The list against the hash of the whole file, at every size where the tree changes its shape.

use super::*;
use proptest::prelude::*;
use std::vec::Vec;

fn file(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at / 1024 * 37 + at % 251) as u8)
        .collect()
}

/// Sizes around each boundary of chunk, page and tree.
fn sizes() -> Vec<usize> {
    let around = |size: usize| [size - 1, size, size + 1];
    let mut sizes = std::vec![0, 1];
    for chunks in [1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 31, 32, 64, 1024] {
        sizes.extend(around(chunks * 1024));
    }
    sizes
}

fn agrees(file: &[u8]) {
    let id = *::blake3::hash(file).as_bytes();
    let list = PageHashes::of_file(file);
    assert_eq!(list.root(), id);
    assert_eq!(list.len() as u64, entries(file.len() as u64));
    let size = file.len() as u64;
    assert!(
        prove(&id, size, list.as_bytes()),
        "{size} bytes do not merge"
    );
    assert_eq!(
        PageHashes::verify(list.as_bytes(), size, &id),
        Some(list.clone())
    );
    for (index, page) in (0..).zip(file.chunks(PAGE_BYTES)) {
        assert!(list.check(index, page));
        assert!(!list.check(index + 1, page));
        assert!(!list.check(index, &page[1..]));
        let mut damaged = page.to_vec();
        damaged[page.len() / 2] ^= 1;
        assert!(!list.check(index, &damaged));
    }
}

#[test]
fn the_list_merges_to_the_hash_of_the_file_at_every_boundary() {
    for size in sizes() {
        agrees(&file(size));
    }
}

#[test]
fn a_page_is_known_by_its_place_too() {
    // Two pages of the same bytes are two entries: a page in the wrong place is found.
    let file = [7; 3 * PAGE_BYTES];
    let list = PageHashes::of_file(&file);
    let (hashes, _) = list.as_bytes().as_chunks::<HASH_BYTES>();
    assert_ne!(hashes[0], hashes[1]);
    assert!(!list.check(3, &file[..PAGE_BYTES]));
    assert!(!list.check(u64::MAX, &file[..PAGE_BYTES]));
}

#[test]
fn a_list_that_was_changed_is_not_taken() {
    for size in [1, 4096, 4097, 3 * 4096, 5 * 4096 + 5] {
        let file = file(size);
        let id = *::blake3::hash(&file).as_bytes();
        let list = PageHashes::of_file(&file).as_bytes().to_vec();
        let size = size as u64;
        for at in 0..list.len() {
            let mut damaged = list.clone();
            damaged[at] ^= 0x10;
            assert_eq!(PageHashes::verify(&damaged, size, &id), None);
        }
        assert!(!prove(&id, size, &list[..list.len() - 1]));
        assert!(!prove(&id, size, &list[..list.len() - HASH_BYTES]));
        assert!(!prove(&id, size + 4096, &list));
        let mut longer = list.clone();
        longer.extend_from_slice(&[0; HASH_BYTES]);
        assert!(!prove(&id, size, &longer));
    }
    assert!(prove(::blake3::hash(&[]).as_bytes(), 0, &[]));
    assert!(!prove(::blake3::hash(&[1]).as_bytes(), 0, &[]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn pieces_of_any_size_give_the_same_list(
        size in 0usize..100_000,
        cuts in proptest::collection::vec(0usize..9000, 0..20),
    ) {
        let file = file(size);
        let mut builder = Builder::new();
        let mut rest = &file[..];
        for cut in cuts {
            let (piece, more) = rest.split_at(cut.min(rest.len()));
            builder.update(piece);
            rest = more;
        }
        builder.update(rest);
        let list = builder.finish();
        prop_assert_eq!(&list, &PageHashes::of_file(&file));
        prop_assert!(prove(::blake3::hash(&file).as_bytes(), size as u64, list.as_bytes()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn subtrees_are_those_of_the_crate(
        bytes in proptest::collection::vec(any::<u8>(), 1..=PAGE_BYTES),
        page in prop_oneof![0u64..9, any::<u64>().prop_map(|page| page >> 13)],
        other in any::<Hash>(),
    ) {
        use ::blake3::hazmat::{self, HasherExt, Mode};
        let chunk = page * (PAGE_BYTES / CHUNK_BYTES) as u64;
        let mut hasher = ::blake3::Hasher::new();
        hasher.set_input_offset(page * PAGE_BYTES as u64);
        let theirs = hasher.update(&bytes).finalize_non_root();
        let ours = blake3::subtree(&bytes, chunk, Place::Inside);
        prop_assert_eq!(ours, theirs);
        prop_assert_eq!(
            blake3::parent(&ours, &other, Place::Inside),
            hazmat::merge_subtrees_non_root(&ours, &other, Mode::Hash)
        );
        prop_assert_eq!(
            blake3::subtree(&bytes, 0, Place::Root),
            *::blake3::hash(&bytes).as_bytes()
        );
        let length = page * 77 + 1025;
        prop_assert_eq!(blake3::left_bytes(length), hazmat::left_subtree_len(length));
    }
}
