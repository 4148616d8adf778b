//! The list of a program's page hashes: made once, kept beside its file.
//!
//! Nodes check pages that they kept against it. It is 32 bytes for each page of 4 KiB, and nobody
//! has to trust it: the hashes merge to the program's id (`kernel_core::pagehash`).
//!
//! Neighbours: `api::jobs` (has it made while a job is handed in), `control_events` (serves it as
//! `Object::PageHashes`; a node whose request comes too early asks again).
//!
//! Invariant: a list is given out only if it belongs to the program.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use kernel_core::pagehash::{self, Builder};

use super::Program;

/// Extension of a list's file name, after the program's hash.
const EXTENSION: &str = "pages";

/// Bytes read at once while a list is made.
const PIECE_BYTES: usize = 256 * 1024;

/// Why there is no list to give out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoList {
    /// It is being made, or nobody has asked for that.
    Yet,
    /// The program's file cannot be read.
    Unreadable,
}

/// A program's list, as far as it has been needed.
#[derive(Debug)]
pub struct PageList {
    path: PathBuf,
    /// Nothing inside: the program could not be read.
    list: OnceLock<Option<Vec<u8>>>,
}

impl PageList {
    /// The list beside the program's file `program`.
    pub fn beside(program: &Path) -> Self {
        PageList {
            path: beside(program),
            list: OnceLock::new(),
        }
    }

    /// The list, if it is there; never waits.
    pub fn get(&self) -> Result<&[u8], NoList> {
        let made = self.list.get().ok_or(NoList::Yet)?;
        made.as_deref().ok_or(NoList::Unreadable)
    }

    /// The list: as it lies on disk if that is sound, else made from `program`.
    pub fn make(&self, program: &Program) -> Result<&[u8], NoList> {
        let made = self.list.get_or_init(|| self.load(program));
        made.as_deref().ok_or(NoList::Unreadable)
    }

    fn load(&self, program: &Program) -> Option<Vec<u8>> {
        let sound = |list: &Vec<u8>| pagehash::prove(&program.hash(), program.bytes(), list);
        if let Some(list) = std::fs::read(&self.path).ok().filter(sound) {
            return Some(list);
        }
        let list = match hash_pages(program) {
            Ok(list) => list,
            Err(error) => {
                let id = crate::secrets::encode_hex(&program.hash());
                tracing::error!("reading program {id}: {error}; its pages cannot be checked");
                return None;
            }
        };
        // A list that a crash left in part is found out when it is read.
        if let Err(error) = std::fs::write(&self.path, &list) {
            let path = self.path.display();
            tracing::warn!("cannot write {path}: {error}; it is made again after a restart");
        }
        Some(list)
    }
}

/// The name of the list beside a program's file.
pub fn beside(program: &Path) -> PathBuf {
    program.with_extension(EXTENSION)
}

/// Whether a file of the store is such a list.
pub fn is_list(path: &Path) -> bool {
    path.extension().is_some_and(|found| found == EXTENSION)
}

fn hash_pages(program: &Program) -> std::io::Result<Vec<u8>> {
    let mut builder = Builder::new();
    let mut offset = 0;
    while offset < program.bytes() {
        let piece = program.read_at(offset, PIECE_BYTES)?;
        builder.update(&piece);
        offset += piece.len() as u64;
    }
    Ok(builder.finish().as_bytes().to_vec())
}
