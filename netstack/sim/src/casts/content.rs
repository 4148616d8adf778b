//! The objects of a run: random bytes or a connection table with their hashes, or only what is
//! known of an object.
//!
//! Neighbour: [`super::shelf`] keeps them.
//!
//! Invariant: the n-th cast of a setup gets the n-th object; all differ.

use netstack::broadcast::hashes::{self, Blake3};
use netstack::broadcast::{Hash, Hasher, Object};
use netstack::rng::Rng;

use super::plan::CastPlan;
use super::shelf::Content;
use super::table;
use crate::setup::Setup;

/// Largest object with real bytes: more would only be slow.
const REAL_MOST: u64 = 64 << 20;

/// The objects of all casts.
///
/// # Errors
/// A text that says which object cannot be.
pub fn make_all(setup: &Setup) -> Result<Vec<Content>, String> {
    let mut rng = Rng::new(setup.seed ^ 0x636f_6e74_656e_7473);
    let make = |plan: &CastPlan| {
        let log2 = match plan.block_log2 {
            Some(log2) => log2,
            None => hashes::usual_block_log2(plan.bytes)
                .ok_or_else(|| format!("{} bytes are too many for one object", plan.bytes))?,
        };
        if !setup.real {
            return imagine(plan.bytes, log2, &mut rng);
        }
        if plan.bytes > REAL_MOST {
            return Err(format!("at most {REAL_MOST} bytes when they are real"));
        }
        match plan.table {
            Some(count) => describe(&table::encode(count, setup.seed)?, log2),
            None => describe(&random(plan.bytes, &mut rng), log2),
        }
    };
    setup.casts.iter().map(make).collect()
}

/// An object nobody has the bytes of: the values of its blocks are drawn, the rest follows from
/// them.
fn imagine(bytes: u64, block_log2: u8, rng: &mut Rng) -> Result<Content, String> {
    struct Drawn<'a>(&'a mut Rng);
    impl Hasher for Drawn<'_> {
        fn subtree(&mut self, _first_byte: u64, _bytes: &[u8], _root: bool) -> Hash {
            let mut value = Hash::default();
            for word in value.chunks_mut(8) {
                word.copy_from_slice(&self.0.next_u64().to_le_bytes());
            }
            value
        }
        fn merge(&mut self, left: &Hash, right: &Hash, root: bool) -> Hash {
            Blake3.merge(left, right, root)
        }
    }
    let mut builder = hashes::Builder::new(bytes, block_log2).map_err(|error| error.to_string())?;
    let nothing = vec![0; 1 << block_log2];
    while let Some(length) = builder.next_bytes() {
        builder.push(&nothing[..length], &mut Drawn(rng));
    }
    let (object, _) = builder.finish(&mut Drawn(rng));
    Ok(Content {
        object,
        blocks: Vec::new(),
    })
}

/// Random bytes.
fn random(bytes: u64, rng: &mut Rng) -> Vec<u8> {
    let mut data = vec![0; bytes as usize];
    for word in data.chunks_mut(8) {
        let drawn = rng.next_u64().to_le_bytes();
        word.copy_from_slice(&drawn[..word.len()]);
    }
    data
}

/// An object of these bytes.
fn describe(data: &[u8], block_log2: u8) -> Result<Content, String> {
    let described = Object::describe(data, block_log2, &mut Blake3);
    let (object, lists) = described.map_err(|error| error.to_string())?;
    let mut blocks: Vec<u8> = (0..object.list_blocks())
        .flat_map(|index| lists.block(index).expect("there is such a list").to_vec())
        .collect();
    blocks.extend_from_slice(data);
    Ok(Content { object, blocks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_blocks_of_an_object_make_its_hash() {
        for bytes in [1, 8192, 8193, 300_000, 5_000_000] {
            let content = describe(&random(bytes, &mut Rng::new(bytes)), 13).unwrap();
            let object = &content.object;
            assert_eq!(object.check(&mut Blake3), Ok(()), "{bytes} bytes");
            let data: Vec<u8> = (object.list_blocks()..object.blocks())
                .flat_map(|block| content.block(block).to_vec())
                .collect();
            assert_eq!(*blake3::hash(&data).as_bytes(), object.id);
        }
    }
}
