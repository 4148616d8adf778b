//! The descriptions against the BLAKE3 crate.

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i % 251) as u8).collect()
}

/// Sizes where the tree changes: nothing, one block, the last direct one, one list, a list of one
/// entry, several lists, the last block and the last list full or not.
const SIZES: [usize; 14] = [
    0,
    1,
    4095,
    4096,
    4097,
    5 * 4096,
    8 * 4096,
    8 * 4096 + 1,
    256 * 4096,
    256 * 4096 + 1,
    257 * 4096,
    512 * 4096,
    3 * 256 * 4096 - 5,
    5 * 256 * 4096 + 100,
];

#[test]
fn descriptions_merge_to_the_crates_hash() {
    for size in SIZES {
        for log2 in [12, 13] {
            let bytes = content(size);
            let (object, lists) =
                Object::describe(&bytes, log2, &mut Blake3).expect("it is small enough");
            assert_eq!(object.id, *blake3::hash(&bytes).as_bytes(), "{size}");
            assert_eq!(object.check(&mut Blake3), Ok(()));
            for index in 0..object.list_blocks() {
                let list = lists.block(index).expect("there is such a list");
                assert_eq!(list.len(), object.list_bytes(index));
                assert!(object.verify_list(index, list, &mut Blake3));
            }
            assert_eq!(lists.block(object.list_blocks()), None);
            for (index, block) in (0..).zip(bytes.chunks(1 << log2)) {
                let list = object.list_of(index).and_then(|list| lists.block(list));
                let list = list.unwrap_or_default();
                assert_eq!(block.len(), object.data_bytes(index));
                assert!(object.verify_block(index, block, list, &mut Blake3));
            }
        }
    }
}

#[test]
fn what_is_not_there_is_not_accepted() {
    let bytes = content(300 * 4096);
    let (object, lists) = Object::describe(&bytes, 12, &mut Blake3).expect("it is small enough");
    let list = lists.block(0).expect("there are two");
    assert!(!object.verify_list(1, list, &mut Blake3), "another list");
    assert!(!object.verify_list(2, list, &mut Blake3), "no list");
    assert!(!object.verify_list(0, &list[1..], &mut Blake3));
    let block = &bytes[..4096];
    assert!(!object.verify_block(300, block, list, &mut Blake3));
    assert!(!object.verify_block(1, block, list, &mut Blake3));
    assert!(!object.verify_block(0, &block[1..], list, &mut Blake3));
    assert!(!object.verify_block(0, block, &[], &mut Blake3), "no list");
    // The same content elsewhere in the object has another value: its offset is hashed, too.
    let same = vec![7; 600 * 4096];
    let (object, lists) = Object::describe(&same, 12, &mut Blake3).expect("it is small enough");
    assert_ne!(lists.value(0), lists.value(1));
    assert_eq!(object.data_blocks(), 600);
}

#[test]
fn descriptions_that_contradict_themselves_are_refused() {
    let bytes = content(300 * 4096);
    let (object, _) = Object::describe(&bytes, 12, &mut Blake3).expect("it is small enough");
    let with = |change: fn(&mut Object)| {
        let mut changed = object.clone();
        change(&mut changed);
        changed.check(&mut Blake3)
    };
    assert_eq!(with(|o| o.block_log2 = 11), Err(ObjectError::BlockSize));
    assert_eq!(with(|o| o.block_log2 = 17), Err(ObjectError::BlockSize));
    assert_eq!(with(|o| o.bytes = u64::MAX), Err(ObjectError::TooLarge));
    assert_eq!(with(|o| o.bytes = 1), Err(ObjectError::Tops));
    assert_eq!(with(|o| o.tops.clear()), Err(ObjectError::Tops));
    assert_eq!(with(|o| o.tops.swap(0, 1)), Err(ObjectError::Hash));
    assert_eq!(with(|o| o.id[0] ^= 1), Err(ObjectError::Hash));
}

#[test]
fn the_largest_objects_have_blocks() {
    assert_eq!(block_log2_for(0, 13), Some(13));
    assert_eq!(block_log2_for(64 << 20, 13), Some(13));
    assert_eq!(block_log2_for((64 << 20) + 1, 13), Some(14));
    assert_eq!(block_log2_for(MAX_OBJECT_BYTES, 0), Some(16));
    assert_eq!(block_log2_for(MAX_OBJECT_BYTES + 1, 0), None);
    for log2 in MIN_BLOCK_LOG2..=MAX_BLOCK_LOG2 {
        let object = Object {
            id: [0; HASH_BYTES],
            bytes: largest(log2),
            block_log2: log2,
            tops: vec![[0; HASH_BYTES]; MAX_TOPS],
        };
        assert_eq!(object.check_size(), Ok(()));
        assert_eq!(object.list_blocks() as usize, MAX_TOPS);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn one_bit_is_enough_to_be_refused(
        size in 1_usize..40 * 4096, at in any::<prop::sample::Index>(), bit in 0_u32..8,
    ) {
        let mut bytes = content(size);
        let (object, lists) = Object::describe(&bytes, 12, &mut Blake3).expect("it is small");
        let at = at.index(size);
        let index = (at / 4096) as u32;
        bytes[at] ^= 1_u8 << bit;
        let block = &bytes[at / 4096 * 4096..][..object.data_bytes(index)];
        let list = lists.block(0).unwrap_or_default();
        prop_assert!(!object.verify_block(index, block, list, &mut Blake3));
        if let Some(list) = lists.block(0) {
            let mut list = list.to_vec();
            let at = at % list.len();
            list[at] ^= 1_u8 << bit;
            prop_assert!(!object.verify_list(0, &list, &mut Blake3));
        }
    }
}
