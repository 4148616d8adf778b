//! Held pages are compared with the program's page hashes: all before a launch, or some after a
//! run.
//!
//! The list of page hashes comes from control once and stays with the warm program; it is proven
//! by the program's identity, so control need not be believed. A page that fails is given back,
//! counted, and reported to the operator: it is fetched again at its next touch.
//!
//! Neighbours: `kernel_core::pagehash` has the arithmetic; [`super::launch`] asks for all pages
//! before a launch, [`super::ending`] for a sample after a run, off the path of a launch.
//!
//! Invariant: a page that failed is never mapped by a later run.

use alloc::vec::Vec;

use kernel_core::addr::{PAGE_SIZE, VirtAddr};
use kernel_core::pagehash::{self, PageHashes};
use kernel_core::retention::{KeptPage, Retained};
use netstack::job::{LaunchRefusal, LaunchSpec, RefusalCode};
use netstack::page::Object;

use super::launch::{self, Warm};
use crate::arch::entropy;
use crate::mm::Hardware;
use crate::mm::{self, DirectMap};
use crate::process::services::NodeServices;

/// Pages looked at after a run: a node whose memory goes bad is noticed after a few runs, at the
/// cost of some 100 us each.
const SAMPLE_PAGES: u64 = 4;
/// Room of the kernel's heap that lists of hashes leave: what the node's own buffers take at most
/// (`mm::layout`).
const HEAP_KEPT_BYTES: u64 = 2 * 1024 * 1024;
/// Pages of one program that are given back one by one; with more it is dropped.
const SUSPECTS_MAX: usize = 256;
/// Pages hashed between two looks at the network: some milliseconds' worth.
const LOOK_PAGES: u64 = 64;

/// A held page and the room to read it.
type Contents = [u8; PAGE_SIZE as usize];

/// Compares all held pages of a program that is about to be launched, and gives back those that
/// are not whole. Without the list of hashes none can be used.
pub(super) fn all(
    mut retained: Retained,
    spec: &LaunchSpec,
    services: &mut dyn NodeServices,
) -> Result<Warm, LaunchRefusal> {
    let found = find_hashes(&mut retained, spec, services);
    if let Err(refused) = &found
        && refused.code == RefusalCode::Cancelled
    {
        restore(services, retained);
        return Err(refused.clone());
    }
    let Some(suspects) = look_at_all(&retained, services) else {
        restore(services, retained);
        return Err(super::refusal::cancelled());
    };
    let mut warm = Warm::default();
    if retained.hashes().is_none() || suspects.len() > SUSPECTS_MAX {
        warn!(
            "process",
            "job {}: held pages cannot be verified or are damaged, loading the program anew",
            spec.job
        );
        warm.damaged = suspects.iter().filter(|suspect| suspect.damaged).count() as u64;
        warm.discarded = retained.discard(&mut Hardware::new());
        return Ok(warm);
    }
    for suspect in &suspects {
        let pages = give_back(&mut retained, spec, suspect);
        warm.discarded += pages;
        warm.damaged += if suspect.damaged { pages } else { 0 };
    }
    warm.retained = unless_empty(retained);
    Ok(warm)
}

/// A held page that is not trusted.
struct Suspect {
    page: VirtAddr,
    /// It is not what the file has; else the node lacks a part of what its hash covers.
    damaged: bool,
}

/// Compares all held pages; one more than [`SUSPECTS_MAX`] at most are named. `None` when the job
/// is cancelled meanwhile.
fn look_at_all(retained: &Retained, services: &mut dyn NodeServices) -> Option<Vec<Suspect>> {
    let mut suspects = Vec::new();
    let Some(hashes) = retained.hashes() else {
        return Some(suspects);
    };
    let mut contents: Contents = [0; PAGE_SIZE as usize];
    let (mut seen, mut cancelled) = (0, false);
    retained.for_each_page(&DirectMap, |page| {
        seen += 1;
        if seen % LOOK_PAGES == 0 {
            services.poll();
            cancelled |= services.cancelled().is_some();
        }
        if cancelled || suspects.len() > SUSPECTS_MAX {
            return;
        }
        let whole = is_whole(retained, hashes, &page, &mut contents);
        if whole != Some(true) {
            suspects.push(Suspect {
                page: page.page,
                damaged: whole == Some(false),
            });
        }
    });
    (!cancelled).then_some(suspects)
}

/// Compares a few held pages of a program that has ended. Returns what is still held, and the
/// number of damaged pages.
pub(super) fn sample(
    mut retained: Retained,
    spec: &LaunchSpec,
    services: &mut dyn NodeServices,
) -> (Option<Retained>, u64) {
    if find_hashes(&mut retained, spec, services).is_err() {
        return (Some(retained), 0);
    }
    let mut contents: Contents = [0; PAGE_SIZE as usize];
    let mut damaged = 0;
    for _ in 0..SAMPLE_PAGES {
        let Some(index) = entropy::random_u64().checked_rem(retained.pages()) else {
            break;
        };
        let (Some(hashes), Some(page)) = (retained.hashes(), retained.page(&DirectMap, index))
        else {
            break;
        };
        if is_whole(&retained, hashes, &page, &mut contents) == Some(false) {
            let suspect = Suspect {
                page: page.page,
                damaged: true,
            };
            damaged += give_back(&mut retained, spec, &suspect);
        }
    }
    (unless_empty(retained), damaged)
}

/// A program of which no page is left is not held at all.
fn unless_empty(retained: Retained) -> Option<Retained> {
    if retained.pages() > 0 {
        return Some(retained);
    }
    retained.discard(&mut Hardware::new());
    None
}

/// Whether a page is what the file has; `None` when the node does not have all of what its hash
/// covers.
fn is_whole(
    retained: &Retained,
    hashes: &PageHashes,
    page: &KeptPage,
    contents: &mut Contents,
) -> Option<bool> {
    let length = retained.contents(&DirectMap, page, contents)?;
    Some(hashes.check(page.offset / PAGE_SIZE, &contents[..length]))
}

/// Gives a page back that is not trusted, with all of a large one; returns how many.
fn give_back(retained: &mut Retained, spec: &LaunchSpec, suspect: &Suspect) -> u64 {
    if suspect.damaged {
        warn!(
            "process",
            "job {}: the held page at {:#x} is not what the file has: given back; check this node's \
             memory",
            spec.job,
            suspect.page.as_u64()
        );
    }
    retained.discard_page(&mut Hardware::new(), suspect.page)
}

fn restore(services: &mut dyn NodeServices, retained: Retained) {
    let program = *retained.program();
    let warm = services.warm();
    warm.restore(&mut Hardware::new(), &program, Some(retained));
}

/// Makes sure that the program has its list of hashes. Fails when control does not give it, when it
/// is not that of the program, or when the heap has no room for it.
fn find_hashes(
    retained: &mut Retained,
    spec: &LaunchSpec,
    services: &mut dyn NodeServices,
) -> Result<(), LaunchRefusal> {
    if retained.hashes().is_some() {
        return Ok(());
    }
    let bytes = pagehash::entries(spec.program_bytes) * pagehash::HASH_BYTES as u64;
    // It is there twice for a moment: as it came, and proven.
    if 2 * bytes + HEAP_KEPT_BYTES > mm::heap_room_bytes() {
        debug!("process", "no room for {bytes} bytes of page hashes");
        return Err(super::refusal::no_memory(services.objects().file_bytes()));
    }
    let list = launch::read_all(services, Object::PageHashes, bytes)?;
    match PageHashes::verify(&list, spec.program_bytes, &retained.program().0) {
        Some(hashes) => retained.set_hashes(hashes),
        None => {
            warn!(
                "process",
                "job {}: control's page hashes are not the program's", spec.job
            );
            let why = "they are not the program's";
            return Err(super::refusal::unreadable(Object::PageHashes, why));
        }
    }
    Ok(())
}
