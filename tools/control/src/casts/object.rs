//! What is cast: a file or a few bytes, with the hashes of its blocks.
//!
//! Key types: [`Described`] (an object and its lists), [`Blake3`] (the hash function that netstack
//! asks for). Neighbours: `netstack::broadcast::hashes` (the method), `shelf` (serves what is
//! described), `hosted` (sends and receives files with it).
//!
//! Invariant: a file is read once and never held as a whole.

use std::fs::File;
use std::os::unix::fs::FileExt;

pub use netstack::broadcast::hashes::Blake3;
use netstack::broadcast::hashes::{self, Builder};
use netstack::broadcast::{Lists, Object, ObjectError};

/// Bytes read at once while a file is described.
const PIECE_BYTES: usize = 1024 * 1024;

/// Why something cannot be cast.
#[derive(Debug, thiserror::Error)]
pub enum DescribeError {
    /// More than any object can have.
    #[error(
        "it has {bytes} bytes; at most {} can be cast at once: split it",
        hashes::MAX_OBJECT_BYTES
    )]
    TooLarge {
        /// Its size.
        bytes: u64,
    },
    /// The system said no.
    #[error("cannot read it: {0}")]
    Read(#[from] std::io::Error),
}

/// An object and the hashes of its blocks.
#[derive(Debug, Clone)]
pub struct Described {
    /// What an announcement says of it.
    pub object: Object,
    /// The contents of its list blocks.
    pub lists: Lists,
}

impl Described {
    /// What is known of a file that has not been read: enough to name it, not to cast it.
    ///
    /// # Errors
    /// [`DescribeError::TooLarge`].
    pub fn unread(id: hashes::Hash, bytes: u64) -> Result<Self, DescribeError> {
        let object = Object {
            id,
            bytes,
            block_log2: block_log2(bytes)?,
            tops: Vec::new(),
        };
        let lists = Lists::default();
        Ok(Described { object, lists })
    }

    /// Describes bytes at hand.
    ///
    /// # Errors
    /// [`DescribeError::TooLarge`].
    pub fn of_bytes(bytes: &[u8]) -> Result<Self, DescribeError> {
        let log2 = block_log2(bytes.len() as u64)?;
        let (object, lists) =
            Object::describe(bytes, log2, &mut Blake3).map_err(too_large(bytes.len() as u64))?;
        Ok(Described { object, lists })
    }

    /// Describes the first `bytes` bytes of a file. Reads all of it: not for a task that others
    /// wait for.
    ///
    /// # Errors
    /// [`DescribeError`].
    pub fn of_file(file: &File, bytes: u64) -> Result<Self, DescribeError> {
        Described::in_blocks(file, bytes, block_log2(bytes)?)
    }

    /// The same, in blocks of a given size.
    ///
    /// # Errors
    /// [`DescribeError`].
    pub fn in_blocks(file: &File, bytes: u64, block_log2: u8) -> Result<Self, DescribeError> {
        let mut builder = Builder::new(bytes, block_log2).map_err(too_large(bytes))?;
        let mut piece = vec![0; PIECE_BYTES];
        let mut offset = 0;
        while offset < bytes {
            let left = usize::try_from(bytes - offset).unwrap_or(usize::MAX);
            // A multiple of every size of a block, but for the last piece.
            let piece = &mut piece[..left.min(PIECE_BYTES)];
            file.read_exact_at(piece, offset)?;
            offset += piece.len() as u64;
            let mut rest = &*piece;
            while let Some(next) = builder.next_bytes().filter(|next| *next <= rest.len()) {
                let (block, after) = rest.split_at(next);
                builder.push(block, &mut Blake3);
                rest = after;
            }
        }
        let (object, lists) = builder.finish(&mut Blake3);
        Ok(Described { object, lists })
    }
}

fn block_log2(bytes: u64) -> Result<u8, DescribeError> {
    hashes::usual_block_log2(bytes).ok_or(DescribeError::TooLarge { bytes })
}

fn too_large(bytes: u64) -> impl Fn(ObjectError) -> DescribeError {
    move |_| DescribeError::TooLarge { bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_described_as_its_bytes_are_and_by_its_own_hash() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for bytes in [
            0,
            1,
            4096,
            4097,
            40_000,
            PIECE_BYTES + 5,
            4 << 20,
            (5 << 20) + 77,
        ] {
            let content: Vec<u8> = (0..bytes).map(|at| (at / 3 + at / 777) as u8).collect();
            std::fs::write(&path, &content).unwrap();
            let file = File::open(&path).unwrap();
            let described = Described::of_file(&file, bytes as u64).unwrap();
            assert_eq!(described.object.id, *blake3::hash(&content).as_bytes());
            let other = Described::of_bytes(&content).unwrap();
            assert_eq!(
                (&described.object, &described.lists),
                (&other.object, &other.lists)
            );
            assert_eq!(described.object.check(&mut Blake3), Ok(()));
        }
    }

    #[test]
    fn what_is_too_large_is_said_with_the_bound() {
        let error = block_log2(hashes::MAX_OBJECT_BYTES + 1)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("536870912") && error.contains("split"),
            "{error}"
        );
        assert_eq!(block_log2(hashes::MAX_OBJECT_BYTES).unwrap(), 16);
    }
}
