//! The page-hash list of a program file: one hash for each page of it, so that a page kept in
//! memory can be checked by itself before it is trusted again.
//!
//! BLAKE3 is a tree over chunks of 1 KiB; a page that starts at a multiple of 4 KiB is a whole
//! subtree of it, and the list holds the chaining values of these subtrees. Merging them gives the
//! hash of the file, which is the program's identity: the list proves itself, whoever sent it. A
//! file of at most one page has no inner node, so its one entry is the hash of the file; an empty
//! file has none.
//!
//! Neighbours: control makes the list ([`page_hash`], [`Builder`]) and serves it; `kernel::process`
//! proves it and keeps it with a [`crate::retention::Retained`].
//!
//! Invariant: a [`PageHashes`] made from foreign bytes has been proven against the program's hash.

pub(crate) mod blake3;

use alloc::vec::Vec;

use self::blake3::{CHUNK_BYTES, Place};

/// Bytes of the file that one entry of the list covers.
pub const PAGE_BYTES: usize = crate::addr::PAGE_SIZE as usize;
/// Bytes of one entry.
pub const HASH_BYTES: usize = 32;

/// One entry of the list, or the hash of a whole file.
pub type Hash = [u8; HASH_BYTES];

const _: () = assert!(PAGE_BYTES.is_power_of_two() && PAGE_BYTES > CHUNK_BYTES);

/// Entries of the list for a file of `file_bytes` bytes.
pub const fn entries(file_bytes: u64) -> u64 {
    file_bytes.div_ceil(PAGE_BYTES as u64)
}

/// The entry for page number `index` of a file of `file_bytes` bytes. `page` is what the file has
/// there: 4,096 bytes, less only at its end. Panics when that is not so.
pub fn page_hash(index: u64, page: &[u8], file_bytes: u64) -> Hash {
    let offset = index * PAGE_BYTES as u64;
    let expected = file_bytes.saturating_sub(offset).min(PAGE_BYTES as u64);
    assert!(
        expected > 0 && page.len() as u64 == expected,
        "page {index} has {} bytes instead of {expected}",
        page.len()
    );
    subtree(offset, page, file_bytes <= PAGE_BYTES as u64)
}

/// The chaining value of a subtree of whole chunks that begins at byte `first`; with `root`, the
/// hash of the whole input. For blocks of a broadcast, which are larger than a page.
pub fn subtree(first: u64, bytes: &[u8], root: bool) -> Hash {
    blake3::subtree(bytes, first / CHUNK_BYTES as u64, place(root))
}

/// The value of the node over two subtrees.
pub fn parent(left: &Hash, right: &Hash, root: bool) -> Hash {
    blake3::parent(left, right, place(root))
}

const fn place(root: bool) -> Place {
    match root {
        true => Place::Root,
        false => Place::Inside,
    }
}

/// Whether `list` is the list of the file with this hash and size.
pub fn prove(program: &Hash, file_bytes: u64, list: &[u8]) -> bool {
    let (hashes, rest) = list.as_chunks::<HASH_BYTES>();
    rest.is_empty()
        && hashes.len() as u64 == entries(file_bytes)
        && root(hashes, file_bytes) == *program
}

/// The hash of the file, from its list.
fn root(hashes: &[Hash], file_bytes: u64) -> Hash {
    match hashes {
        [] => blake3::subtree(&[], 0, Place::Root),
        many => merge(many, file_bytes, Place::Root),
    }
}

/// The value of the node over these pages. Its depth is at most that of the file, 52 for the
/// largest there is.
fn merge(hashes: &[Hash], bytes: u64, place: Place) -> Hash {
    if let [only] = hashes {
        return *only;
    }
    // A power of two not below a page, since there is more than a page.
    let left_bytes = blake3::left_bytes(bytes);
    let (left, right) = hashes.split_at((left_bytes / PAGE_BYTES as u64) as usize);
    let left = merge(left, left_bytes, Place::Inside);
    let right = merge(right, bytes - left_bytes, Place::Inside);
    blake3::parent(&left, &right, place)
}

/// The list of one program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageHashes {
    hashes: Vec<Hash>,
    file_bytes: u64,
}

impl PageHashes {
    /// The list as it was received; `None` when it is not that of the program with this hash and
    /// size, or when there is no memory to keep it.
    pub fn verify(list: &[u8], file_bytes: u64, program: &Hash) -> Option<Self> {
        if !prove(program, file_bytes, list) {
            return None;
        }
        let list = list.as_chunks().0;
        let mut hashes = Vec::new();
        hashes.try_reserve_exact(list.len()).ok()?;
        hashes.extend_from_slice(list);
        Some(Self { hashes, file_bytes })
    }

    /// The list of a file that is at hand.
    pub fn of_file(file: &[u8]) -> Self {
        let file_bytes = file.len() as u64;
        let pages = file.chunks(PAGE_BYTES).zip(0..);
        Self {
            hashes: pages
                .map(|(page, index)| page_hash(index, page, file_bytes))
                .collect(),
            file_bytes,
        }
    }

    /// Whether `contents` (4,096 bytes, less only at the end of the file) is page number `index` of
    /// the file. False also for a page that the file does not have.
    pub fn check(&self, index: u64, contents: &[u8]) -> bool {
        let offset = index.saturating_mul(PAGE_BYTES as u64);
        let bytes = self
            .file_bytes
            .saturating_sub(offset)
            .min(PAGE_BYTES as u64);
        let expected = usize::try_from(index).ok().and_then(|i| self.hashes.get(i));
        match expected {
            Some(expected) if contents.len() as u64 == bytes => {
                page_hash(index, contents, self.file_bytes) == *expected
            }
            _ => false,
        }
    }

    /// The hash of the file: what the program is known by.
    pub fn root(&self) -> Hash {
        root(&self.hashes, self.file_bytes)
    }

    /// The list as it is sent: 32 bytes for each page.
    pub fn as_bytes(&self) -> &[u8] {
        self.hashes.as_flattened()
    }

    /// Number of pages.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }
}

/// Makes the list from pieces of a file in their order.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    hashes: Vec<Hash>,
    /// The page under way; a full one waits until more comes, since the last is hashed differently
    /// when it is the only one.
    page: Vec<u8>,
}

impl Builder {
    /// Nothing read yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.page.len() == PAGE_BYTES {
                self.close(u64::MAX);
            }
            let take = bytes.len().min(PAGE_BYTES - self.page.len());
            self.page.extend_from_slice(&bytes[..take]);
            bytes = &bytes[take..];
        }
    }

    /// The list.
    pub fn finish(mut self) -> PageHashes {
        let file_bytes = (self.hashes.len() * PAGE_BYTES + self.page.len()) as u64;
        if !self.page.is_empty() {
            self.close(file_bytes);
        }
        PageHashes {
            hashes: self.hashes,
            file_bytes,
        }
    }

    fn close(&mut self, file_bytes: u64) {
        let index = self.hashes.len() as u64;
        self.hashes.push(page_hash(index, &self.page, file_bytes));
        self.page.clear();
    }
}

#[cfg(test)]
mod tests;
