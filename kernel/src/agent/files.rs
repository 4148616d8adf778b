//! Files in the node's memory between the protocol and the store that holds them.
//!
//! Neighbours: `kernel_core::objects` keeps them, `agent::cast` brings them, `agent::node` brings
//! DROP.
//!
//! Invariant: a file goes by DROP or with the node, never because memory is short.

use kernel_core::objects::{Kept, ObjectId, Objects};
use netstack::ids::ProgramId;

use crate::mm::Hardware;

/// Drops the file with this identity, at once or when the job that has it ends. Returns the pages
/// given back now, and whether it is in use.
pub fn drop(objects: &mut Objects, id: ProgramId) -> (u32, bool) {
    let id = ObjectId(id.0);
    let is_file = |kept| kept == Kept::File;
    if !objects.find(&id).is_some_and(|view| is_file(view.kept)) {
        return (0, false);
    }
    let dropped = objects.drop_object(&mut Hardware::new(), &id);
    let pages = u32::try_from(dropped.pages).unwrap_or(u32::MAX);
    (pages, dropped.in_use)
}
