//! Pages of the program that a broadcast brings: taken from the node's store before anything is
//! asked for, and waited for while they are on their way. And those that another rank of the node
//! has: they are copied.
//!
//! Neighbours: `agent::cast` fills the store and says what is coming, `kernel_core::program` puts
//! pages into place, [`super::pager`] asks control for what no broadcast brings.
//!
//! Invariant: a wait for a block has a limit, after which the page is asked for, and no other block
//! is waited for until one has come: a broadcast that stands still costs a program one wait.

use alloc::vec::Vec;

use kernel_core::addr::PAGE_SIZE;
use kernel_core::objects::ObjectId;
use kernel_core::program::Fetch;
use kernel_core::retention::{ProgramId, Resident};
use netstack::job::LaunchRefusal;
use netstack::time::{Instant, Micros};

use super::Process;
use super::ending::Stop;
use super::launch::wait_until;
use crate::mm::DirectMap;
use crate::mm::Hardware;
use crate::process::services::{CastPage, NodeServices, Running};
use crate::time;

/// How long a program waits for a block that is on its way before it asks control for the page:
/// many round trips of the slowest link that is planned for, and less than a user notices.
const BLOCK_WAIT: Micros = Micros::from_millis(200);
/// How long a launch waits for the program's headers while no block at all comes; as long as blocks
/// do, it goes on waiting, since the headers are among them and nothing runs without.
const HEAD_WAIT: Micros = Micros::from_millis(500);
/// The longest that a launch waits for the headers in all.
const HEAD_WAIT_MAX: Micros = Micros::from_secs(30);

/// What has become of a fetch that a broadcast brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It is on its way.
    Comes,
    /// Its first page is in place.
    InPlace,
    /// The control node has to be asked.
    Fails,
}

impl Process {
    /// Says which pages of the program others may be given from now on.
    pub(super) fn show_pages(&mut self, services: &mut dyn NodeServices) {
        let memory = self.memory();
        let running = Running {
            program: *memory.program_id(),
            resident: Resident::new(memory.image(), memory.table()),
            warm: memory.pages_reused() > 0,
        };
        services.set_running(Some(running));
    }

    /// Begins a fetch that the program waits for. True when a broadcast had brought its first page
    /// and that is in place; else it flies, with the broadcast where that brings it.
    pub(super) fn begin_from_cast(
        &mut self,
        services: &mut dyn NodeServices,
        fetch: &Fetch,
    ) -> bool {
        let page = fetch.offset / PAGE_SIZE;
        let until = time::now() + BLOCK_WAIT;
        match services.cast_page(page) {
            CastPage::Here => match self.adopt(services, fetch) {
                true => return true,
                false => self.fly(*fetch, None),
            },
            CastPage::Absent => self.fly(*fetch, None),
            // It stands still since an earlier wait was in vain.
            CastPage::Coming if self.stalled_at == Some(services.cast_progress()) => {
                self.fly(*fetch, None);
            }
            CastPage::Coming => {
                services.want_page(page);
                self.fly(*fetch, Some(until));
            }
        }
        false
    }

    /// What has become of a fetch that a broadcast brings, waited for until `until`.
    pub(super) fn step_of_cast(
        &mut self,
        services: &mut dyn NodeServices,
        fetch: &Fetch,
        until: Instant,
    ) -> Step {
        match services.cast_page(fetch.offset / PAGE_SIZE) {
            CastPage::Here => {
                let in_place = self.adopt(services, fetch);
                self.account.faults_awaited += u64::from(in_place);
                match in_place || self.ending.is_some() {
                    true => Step::InPlace,
                    false => Step::Fails,
                }
            }
            CastPage::Absent => Step::Fails,
            CastPage::Coming if self.stalled_at == Some(services.cast_progress()) => Step::Fails,
            CastPage::Coming if time::now() >= until => {
                self.stalled_at = Some(services.cast_progress());
                Step::Fails
            }
            CastPage::Coming => Step::Comes,
        }
    }

    /// Puts pages into place that a broadcast has brought; whether the first one is. Without memory
    /// for that the program ends.
    fn adopt(&mut self, services: &mut dyn NodeServices, fetch: &Fetch) -> bool {
        let memory = self.memory.as_mut().expect("memory of a running program");
        match memory.adopt(&mut Hardware::new(), fetch, services.objects()) {
            Ok(in_place) => {
                self.account.faults_from_cast += u64::from(in_place);
                in_place
            }
            Err(cause) => {
                self.fail(fetch, cause);
                false
            }
        }
    }

    /// Puts pages into place that another rank of this node has, the first of which the program
    /// waits for.
    pub(super) fn copy_from_beside(
        &mut self,
        services: &mut dyn NodeServices,
        fetch: &Fetch,
    ) -> Result<(), Stop> {
        let memory = self.memory.as_mut().expect("memory of a running program");
        let find = |page| services.page_beside(page);
        match memory.copy_pages(&mut Hardware::new(), fetch, find) {
            Ok(_) => {}
            Err(cause) => self.fail(fetch, cause),
        }
        Ok(())
    }

    /// Puts pages into place that the program is going to need, if another rank of this node has
    /// them; returns whether one has, or has asked for them.
    pub(super) fn hold_from_beside(
        &mut self,
        services: &mut dyn NodeServices,
        fetch: &Fetch,
    ) -> bool {
        let memory = self.memory.as_mut().expect("memory of a running program");
        let is_there = services.page_beside(fetch.page).is_some();
        match (is_there, services.is_asked_beside(fetch.offset)) {
            (true, _) => {
                let find = |page| services.page_beside(page);
                // Nobody waits: without memory for them they come at their first touch.
                let _ = memory.copy_pages(&mut Hardware::new(), fetch, find);
            }
            (false, true) => memory.abandon(fetch),
            (false, false) => return false,
        }
        true
    }

    /// Puts pages into place that the program is going to need, if a broadcast brings them: what is
    /// here; what is not is on its way, and not asked for. Returns whether one does.
    pub(super) fn hold_from_cast(
        &mut self,
        services: &mut dyn NodeServices,
        fetch: &Fetch,
    ) -> bool {
        let memory = self.memory.as_mut().expect("memory of a running program");
        match services.cast_page(fetch.offset / PAGE_SIZE) {
            CastPage::Absent => return false,
            CastPage::Coming => memory.abandon(fetch),
            CastPage::Here => {
                // Nobody waits: without memory for them they come at their first touch.
                let _ = memory.adopt(&mut Hardware::new(), fetch, services.objects());
            }
        }
        true
    }
}

/// The first `length` bytes of a program's file from a broadcast; `None` when none brings them in
/// time.
pub(super) fn head(
    services: &mut dyn NodeServices,
    program: &ProgramId,
    length: u64,
) -> Result<Option<Vec<u8>>, LaunchRefusal> {
    let last = time::now() + HEAD_WAIT_MAX;
    let (mut progress, mut deadline) = (services.cast_progress(), time::now() + HEAD_WAIT);
    for page in 0..length.div_ceil(PAGE_SIZE) {
        let mut asked = false;
        loop {
            match services.cast_page(page) {
                CastPage::Here => break,
                CastPage::Absent => return Ok(None),
                CastPage::Coming if time::now() >= deadline => return Ok(None),
                CastPage::Coming => {
                    if !core::mem::replace(&mut asked, true) {
                        services.want_page(page);
                    }
                    wait_until(services, deadline)?;
                    let now = services.cast_progress();
                    if core::mem::replace(&mut progress, now) != now {
                        deadline = (time::now() + HEAD_WAIT).min(last);
                    }
                }
            }
        }
    }
    // Without memory for it the head is read from the control node, or refused there.
    let mut head = Vec::new();
    if head.try_reserve_exact(length as usize).is_err() {
        return Ok(None);
    }
    head.resize(length as usize, 0);
    let id = ObjectId(program.0);
    let read = services.objects().read_bytes(&DirectMap, &id, 0, &mut head);
    Ok(read.then_some(head))
}
