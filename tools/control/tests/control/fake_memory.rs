//! What a fake node keeps of casts: blocks on their way, and objects that are complete.
//!
//! The hashes are those of the node's own BLAKE3 (`kernel_core::pagehash` has no more than pages,
//! so the crate's stands in for it).

use std::collections::BTreeMap;

use hearth_control::casts::object::{Blake3, Described};
use netstack::broadcast::{Hash, Hasher, NoRoom, Object, Part, Purpose, Store};
use netstack::ids::CastId;

/// An object that comes.
struct Coming {
    object: Object,
    purpose: Purpose,
    data: Vec<u8>,
    lists: BTreeMap<u32, Vec<u8>>,
    complete: bool,
}

/// Everything that casts brought or bring.
#[derive(Default)]
pub struct Memory {
    coming: BTreeMap<CastId, Coming>,
    /// Files by their hash, until they are dropped.
    pub files: BTreeMap<Hash, Vec<u8>>,
    /// Programs by their hash.
    pub images: BTreeMap<Hash, Vec<u8>>,
    /// Bytes of the last connection table.
    pub table: Vec<u8>,
    /// Data of casts is read with a bit that is wrong.
    pub corrupt: bool,
}

impl Memory {
    /// A cast begins; says whether all of it is here already.
    pub fn open(&mut self, cast: CastId, object: Object, purpose: Purpose) -> bool {
        let known = self.files.get(&object.id).or(self.images.get(&object.id));
        let known = known.cloned();
        let mut lists = BTreeMap::new();
        if let Some(bytes) = &known {
            let (_, all) = Object::describe(bytes, object.block_log2, &mut Blake3).unwrap();
            for index in 0..object.list_blocks() {
                lists.insert(index, all.block(index).unwrap().to_vec());
            }
        }
        let complete = known.is_some();
        let empty = || vec![0; usize::try_from(object.bytes).unwrap()];
        let coming = Coming {
            data: known.unwrap_or_else(empty),
            object,
            purpose,
            lists,
            complete,
        };
        self.coming.insert(cast, coming);
        complete
    }

    /// Everything of a cast is here.
    pub fn complete(&mut self, cast: CastId) {
        let coming = self.coming.get_mut(&cast).expect("it was announced");
        coming.complete = true;
        let whole = Described::of_bytes(&coming.data).unwrap();
        assert_eq!(
            whole.object.id, coming.object.id,
            "what is complete is the object"
        );
        let data = coming.data.clone();
        match &coming.purpose {
            // Both give way.
            Purpose::Program | Purpose::Read { .. } => {
                self.images.insert(coming.object.id, data);
            }
            Purpose::File { .. } => drop(self.files.insert(coming.object.id, data)),
            Purpose::Table { .. } => self.table = data,
        }
    }

    /// A cast is over.
    pub fn end(&mut self, cast: CastId) {
        self.coming.remove(&cast);
    }

    /// Casts that are not over.
    pub fn open_casts(&self) -> usize {
        self.coming.len()
    }

    /// Casts that are not complete.
    pub fn incomplete(&self) -> usize {
        self.coming
            .values()
            .filter(|coming| !coming.complete)
            .count()
    }
}

impl Hasher for Memory {
    fn subtree(&mut self, first_byte: u64, bytes: &[u8], root: bool) -> Hash {
        Blake3.subtree(first_byte, bytes, root)
    }

    fn merge(&mut self, left: &Hash, right: &Hash, root: bool) -> Hash {
        Blake3.merge(left, right, root)
    }
}

impl Store for Memory {
    fn read(&mut self, cast: CastId, part: Part, at: usize, out: &mut [u8]) -> bool {
        let Some(coming) = self.coming.get(&cast) else {
            return false;
        };
        let found = match part {
            Part::List(index) => coming.lists.get(&index).and_then(|list| list.get(at..)),
            Part::Data(index) => {
                let from = (index as usize) * coming.object.block_bytes() + at;
                coming.data.get(from..)
            }
        };
        let found = found.and_then(|found| found.get(..out.len()));
        let is_here = found.map(|found| out.copy_from_slice(found)).is_some();
        if self.corrupt && matches!(part, Part::Data(_)) {
            out[0] ^= 1;
        }
        is_here
    }

    fn write(&mut self, cast: CastId, part: Part, bytes: &[u8]) -> Result<(), NoRoom> {
        let coming = self.coming.get_mut(&cast).ok_or(NoRoom)?;
        match part {
            Part::List(index) => drop(coming.lists.insert(index, bytes.to_vec())),
            Part::Data(index) => {
                let from = (index as usize) * coming.object.block_bytes();
                coming.data[from..from + bytes.len()].copy_from_slice(bytes);
            }
        }
        Ok(())
    }
}
