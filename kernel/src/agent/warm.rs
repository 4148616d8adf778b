//! The node's warm programs between the protocol and the table that holds them.
//!
//! Neighbours: `kernel_core::retention` keeps the table, `agent::node` brings RETAIN and DROP and
//! sends what control must know.
//!
//! Invariant: what control is told is what the table holds, or held when a program was taken from
//! it to run: control goes on counting that as held until its end is known.

use alloc::vec::Vec;

use kernel_core::objects::{Kept, ObjectId, Objects, View};
use kernel_core::retention::{self, Change, Variant, WarmTable};
use netstack::ids::ProgramId;
use netstack::node::Endpoint;
use netstack::retention::Holding;
use netstack::time::Instant;

use super::mailbox::Mailbox;
use crate::mm::Hardware;

/// The published retain message: everything but this program goes. Its frames are scrubbed before
/// anybody gets them, as soon as the node has nothing else to do. Returns the pages held of it.
pub fn retain(table: &mut WarmTable, program: ProgramId, read_only: bool) -> u32 {
    let variant = match read_only {
        true => Variant::ReadOnlyToo,
        false => Variant::ExecutableOnly,
    };
    let program = retention::ProgramId(program.0);
    clamp(table.retain_only(&mut Hardware::new(), &program, variant))
}

/// Drops a program, or all. Returns the pages given back now, and whether it is one that runs: of
/// that nothing is kept when it ends.
pub fn drop(
    table: &mut WarmTable,
    running: Option<&mut Mailbox>,
    program: Option<ProgramId>,
) -> (u32, bool) {
    let concerned = running.filter(|job| program.is_none_or(|program| program == job.program()));
    let in_use = concerned.is_some();
    if let Some(job) = concerned {
        job.put_drop();
    }
    let program = program.map(|program| retention::ProgramId(program.0));
    let pages = table.drop_program(&mut Hardware::new(), program.as_ref());
    (clamp(pages), in_use)
}

/// Drops images that broadcasts brought and nobody uses: of one program, or all but those of one.
/// Returns the pages.
pub fn drop_images(objects: &mut Objects, which: Images) -> u32 {
    let goes = |id: &ObjectId, view: &View| {
        let named = match which {
            Images::Of(program) => *id == ObjectId(program.0),
            Images::AllBut(kept) => kept.is_none_or(|kept| *id != ObjectId(kept.0)),
        };
        named && view.kept == Kept::Image && !view.in_use
    };
    let going: Vec<ObjectId> = objects
        .iter()
        .filter(|(id, view)| goes(id, view))
        .map(|(id, _)| id)
        .collect();
    let machine = &mut Hardware::new();
    let dropped = going
        .iter()
        .map(|id| objects.drop_object(machine, id).pages);
    clamp(dropped.sum())
}

/// Which images are to go.
#[derive(Debug, Clone, Copy)]
pub enum Images {
    /// That of this program.
    Of(ProgramId),
    /// All but that of this program.
    AllBut(Option<ProgramId>),
}

/// Tells control what has changed, drops first: a program that was dropped made room for one that
/// is held now, and control takes no more than a table full of them.
pub fn tell(table: &mut WarmTable, endpoint: &mut Endpoint, now: Instant) {
    let mut changes: Vec<Change> = core::iter::from_fn(|| table.next_change()).collect();
    changes.sort_by_key(|change| matches!(change, Change::Holds(_)));
    for change in changes {
        match change {
            Change::Holds(held) => endpoint.hold(
                now,
                Holding {
                    program: ProgramId(held.program.0),
                    pages: clamp(held.pages),
                    pristine: clamp(held.pristine),
                },
            ),
            Change::Dropped(program) => endpoint.unhold(now, ProgramId(program.0)),
        }
    }
}

/// A number of pages as it is reported: four billion are 16 TiB.
fn clamp(pages: u64) -> u32 {
    u32::try_from(pages).unwrap_or(u32::MAX)
}
