//! Files that were cast: their names, and which node holds which.
//!
//! Key types: [`Files`], [`Named`]. Neighbours: `casts` (what nodes report), `ledger` (the store
//! gets every change in the same step), the API and the runner (readers).
//!
//! An entry is *believed* while its node is in service in the boot that reported it, as the entries
//! of `warm` are.
//!
//! A content without a name is one that nodes let go of as soon as they are heard again.
//!
//! Invariants: a name stands for one content; the tables here and in the store have the same
//! entries, but for changes that the store could not take yet.

use std::collections::{BTreeMap, BTreeSet};

use hearth_store::{Batch, FileRow, HeldRow};

use crate::programs::Hash;

/// Names of files at a time: far more than nodes have room for.
const NAMES_MAX: usize = 4096;

/// A file by one of its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// BLAKE3 hash of the content.
    pub object: Hash,
    /// Its size.
    pub bytes: u64,
    /// When it was cast first, in microseconds since 1970.
    pub cast_unix_us: u64,
    /// An operator has cast it for everybody; else it is for jobs of those who have sent it.
    pub shared: bool,
}

/// Why a file cannot have a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotNamed {
    /// Another content has it.
    Taken(Hash),
    /// There are too many names.
    TooMany,
}

/// Names and holders.
#[derive(Debug, Default)]
pub struct Files {
    names: BTreeMap<String, FileRow>,
    held: BTreeMap<(Hash, u32), HeldRow>,
    /// Boots that are in service.
    joined: BTreeMap<u32, u64>,
    /// Changes to be written.
    batch: Batch,
}

impl Files {
    /// The files as the store remembers them.
    pub fn restored(names: Vec<FileRow>, held: Vec<HeldRow>) -> Self {
        let names = names.into_iter().map(|row| (row.name.clone(), row));
        let held = held.into_iter().map(|row| ((row.object, row.node), row));
        Files {
            names: names.collect(),
            held: held.collect(),
            joined: BTreeMap::new(),
            batch: Batch::default(),
        }
    }

    /// Changes since the last call, to be written down.
    pub fn take_changes(&mut self) -> Batch {
        std::mem::take(&mut self.batch)
    }

    /// All files, by name.
    pub fn iter(&self) -> impl Iterator<Item = Named> + use<'_> {
        self.names.values().map(named)
    }

    /// The file with this name.
    pub fn by_name(&self, name: &str) -> Option<Named> {
        self.names.get(name).map(named)
    }

    /// Names of a content.
    pub fn names_of(&self, object: &Hash) -> Vec<String> {
        let rows = self.names.values().filter(|row| row.object == *object);
        rows.map(|row| row.name.clone()).collect()
    }

    /// Nodes in service that hold a content, by number.
    pub fn holders(&self, object: &Hash) -> BTreeSet<u32> {
        let rows = self.held.range((*object, 0)..=(*object, u32::MAX));
        let rows = rows.filter(|(_, row)| self.is_believed(row));
        rows.map(|((_, node), _)| *node).collect()
    }

    /// Nodes out of service that held a content when they were last heard.
    pub fn away(&self, object: &Hash) -> BTreeSet<u32> {
        let rows = self.held.range((*object, 0)..=(*object, u32::MAX));
        let rows = rows.filter(|((_, node), _)| !self.joined.contains_key(node));
        rows.map(|((_, node), _)| *node).collect()
    }

    /// Whether a node in service holds a content.
    pub fn holds(&self, node: u32, object: &Hash) -> bool {
        let row = self.held.get(&(*object, node));
        row.is_some_and(|row| self.is_believed(row))
    }

    /// Bytes of files that a node holds.
    pub fn bytes_on(&self, node: u32) -> u64 {
        let objects: BTreeSet<&Hash> = self
            .held
            .keys()
            .filter(|(_, of)| *of == node)
            .map(|(object, _)| object)
            .collect();
        let size = |object: &&Hash| {
            let named = self.names.values().find(|row| row.object == **object);
            named.map(|row| row.bytes)
        };
        objects.iter().filter_map(size).sum()
    }

    fn is_believed(&self, row: &HeldRow) -> bool {
        self.joined.get(&row.node) == Some(&row.boot_epoch)
    }

    /// Gives a content a name.
    ///
    /// # Errors
    /// [`NotNamed`].
    pub fn name(
        &mut self,
        name: &str,
        object: Hash,
        bytes: u64,
        now_unix_us: u64,
    ) -> Result<(), NotNamed> {
        match self.names.get(name) {
            Some(known) if known.object == object => return Ok(()),
            Some(known) => return Err(NotNamed::Taken(known.object)),
            None if self.names.len() >= NAMES_MAX => return Err(NotNamed::TooMany),
            None => {}
        }
        let row = FileRow {
            name: name.to_string(),
            object,
            bytes,
            cast_unix_us: now_unix_us,
            shared: false,
        };
        self.batch.put_file(row.clone());
        self.names.insert(name.to_string(), row);
        Ok(())
    }

    /// Everybody's jobs may use a content, by any of its names.
    pub fn share(&mut self, object: &Hash) {
        let rows = self.names.values_mut();
        for row in rows.filter(|row| row.object == *object && !row.shared) {
            row.shared = true;
            self.batch.put_file(row.clone());
        }
    }

    /// A node holds a content, complete.
    pub fn hold(&mut self, node: u32, object: Hash, now_unix_us: u64) {
        let Some(epoch) = self.joined.get(&node) else {
            return;
        };
        let row = HeldRow {
            node,
            object,
            boot_epoch: *epoch,
            since_unix_us: now_unix_us,
        };
        self.held.insert((object, node), row);
        self.batch.set_held(row);
    }

    /// A node does not hold a content any more.
    pub fn let_go(&mut self, node: u32, object: Hash) {
        if self.held.remove(&(object, node)).is_some() {
            self.batch.clear_held(node, object);
        }
    }

    /// A node is in service with this boot: what it held in another is gone.
    pub fn joined(&mut self, node: u32, boot_epoch: u64) {
        self.joined.insert(node, boot_epoch);
        self.void(node, Some(boot_epoch));
    }

    /// A node is out of service; `forgets`: and what it held is gone.
    pub fn gone(&mut self, node: u32, forgets: bool) {
        self.joined.remove(&node);
        if forgets {
            self.void(node, None);
        }
    }

    fn void(&mut self, node: u32, kept: Option<u64>) {
        let before = self.held.len();
        self.held
            .retain(|(_, of), row| *of != node || Some(row.boot_epoch) == kept);
        if self.held.len() != before {
            self.batch.void_held(node, kept);
        }
    }

    /// Takes away all names of a content, though nodes out of service hold it.
    pub fn unname(&mut self, object: &Hash) {
        for name in self.names_of(object) {
            self.batch.forget_file(&name);
            self.names.remove(&name);
        }
    }

    /// What a node in service holds.
    pub fn held_on(&self, node: u32) -> impl Iterator<Item = Hash> + use<'_> {
        let rows = self.held.iter();
        let of_node = rows.filter(move |((_, of), row)| *of == node && self.is_believed(row));
        of_node.map(|((object, _), _)| *object)
    }

    /// What a node in service holds that has no name any more: it was to let go of it when it was
    /// away.
    pub fn nameless_on(&self, node: u32) -> Vec<Hash> {
        let named: BTreeSet<&Hash> = self.names.values().map(|row| &row.object).collect();
        let held = self.held_on(node);
        held.filter(|object| !named.contains(object)).collect()
    }

    /// Forgets names of contents that nobody holds, but for those that `wanted` says.
    pub fn tidy(&mut self, wanted: impl Fn(&Hash) -> bool) {
        let mut gone = Vec::new();
        for row in self.names.values() {
            let mut held = self.held.range((row.object, 0)..=(row.object, u32::MAX));
            if held.next().is_none() && !wanted(&row.object) {
                gone.push(row.name.clone());
            }
        }
        for name in gone {
            self.batch.forget_file(&name);
            self.names.remove(&name);
        }
    }
}

fn named(row: &FileRow) -> Named {
    Named {
        name: row.name.clone(),
        object: row.object,
        bytes: row.bytes,
        cast_unix_us: row.cast_unix_us,
        shared: row.shared,
    }
}

#[cfg(test)]
mod tests {
    use hearth_store::{Limits, Memory, Query, Store};

    use super::*;

    const A: Hash = [1; 32];
    const B: Hash = [2; 32];

    #[test]
    fn a_name_stands_for_one_content_while_somebody_holds_it() {
        let mut files = Files::default();
        assert_eq!(files.name("a", A, 5, 1), Ok(()));
        assert_eq!(files.name("a", A, 5, 2), Ok(()));
        assert_eq!(files.name("a", B, 6, 2), Err(NotNamed::Taken(A)));
        assert_eq!(files.name("also", A, 5, 2), Ok(()));
        assert_eq!(files.names_of(&A), ["a", "also"]);
        files.joined(3, 7);
        files.hold(3, A, 9);
        files.tidy(|_| false);
        assert_eq!(files.by_name("a").unwrap().cast_unix_us, 1);
        files.let_go(3, A);
        files.tidy(|object| *object == A);
        assert_eq!(files.iter().count(), 2);
        files.tidy(|_| false);
        assert_eq!(files.name("a", B, 6, 2), Ok(()));
    }

    #[test]
    fn a_name_is_free_when_only_nodes_out_of_service_are_to_let_go() {
        let mut files = Files::default();
        files.name("a", A, 5, 1).unwrap();
        files.joined(1, 7);
        files.hold(1, A, 2);
        files.gone(1, false);
        files.unname(&A);
        assert_eq!(files.name("a", B, 6, 2), Ok(()));
        assert!(files.nameless_on(1).is_empty(), "it is not there");
        files.joined(1, 7);
        assert_eq!(files.nameless_on(1), [A]);
        files.let_go(1, A);
        assert!(files.nameless_on(1).is_empty());
    }

    #[test]
    fn holders_are_believed_in_their_boot_and_the_store_agrees() {
        let mut files = Files::default();
        let mut store = Memory::new(Limits::default());
        let mut step = |files: &mut Files| {
            store.commit(&files.take_changes()).unwrap();
            let mut rows: Vec<HeldRow> = files.held.values().copied().collect();
            rows.sort_by_key(|row| (row.node, row.object));
            assert_eq!(rows, store.held().unwrap());
            assert_eq!(
                files.names.values().cloned().collect::<Vec<_>>(),
                store.files().unwrap()
            );
            Files::restored(store.files().unwrap(), store.held().unwrap())
        };
        files.hold(1, A, 1);
        assert!(!files.holds(1, &A), "it has not joined");
        for node in [1, 2, 3] {
            files.joined(node, 7);
            files.hold(node, A, 2);
        }
        files.name("a", A, 5, 1).unwrap();
        step(&mut files);
        files.gone(1, false);
        files.gone(2, true);
        assert_eq!(files.holders(&A), BTreeSet::from([3]));
        assert_eq!(files.away(&A), BTreeSet::from([1]));
        // After a restart of control nobody is believed before it is heard.
        let mut files = step(&mut files);
        assert!(files.holders(&A).is_empty());
        files.joined(1, 7);
        files.joined(3, 8);
        assert_eq!(files.holders(&A), BTreeSet::from([1]));
        step(&mut files);
    }
}
