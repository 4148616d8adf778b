//! Starting the cores that firmware lists.
//!
//! Neighbours: [`cores`] starts one and says what it does then; `mm` has its stacks and the page
//! that it starts in.
//!
//! Invariant: a core that does not answer within its time is left out, and named in the log; the
//! others work.

use kernel_core::acpi::Machine;
use kernel_core::threads::CORES_MAX;

use crate::arch::cores::{self, Started, Trampoline};
use crate::arch::{self, apic};
use crate::mm::{self, DirectMap, StartPage};

/// Starts the cores that firmware lists, so that there are `most` in all. Those that do not answer,
/// or whose time-stamp counter is not the boot core's, are named in the log and left out.
pub fn start(machine: &Machine, most: usize) {
    let own = apic::this_id();
    let ids = machine.processors.iter().map(|processor| processor.apic_id);
    let mut others = ids.filter(|id| *id != own).peekable();
    let most = most.clamp(1, CORES_MAX);
    if most == 1 || others.peek().is_none() {
        return;
    }
    let Some(page) = StartPage::take() else {
        warn!(
            "cpu",
            "no page below 1 MiB to start other cores in: one core works"
        );
        return;
    };
    let mut trampoline = Trampoline::new(DirectMap, page.frame(), page.root());
    // Of a core that did not answer.
    let mut spare_stack = None;
    let mut may_come_late = false;
    for id in others {
        let core = cores::count();
        if core >= most {
            break;
        }
        let Some(stack) = spare_stack.take().or_else(|| mm::add_core(core)) else {
            warn!("cpu", "no memory for the stacks of more than {core} cores");
            break;
        };
        match cores::start_one(&mut trampoline, id, stack, arrive) {
            Started::Works => {}
            Started::Silent => (spare_stack, may_come_late) = (Some(stack), true),
            Started::Unusable => {
                may_come_late = true;
                break;
            }
        }
    }
    if may_come_late {
        core::mem::forget(page);
    }
    if cores::count() > 1 {
        info!("cpu", "{} cores", cores::count());
    }
    let listed = machine.processors.len();
    if listed > CORES_MAX {
        warn!(
            "cpu",
            "firmware lists {listed} cores: a node works with {CORES_MAX}, the others stay halted"
        );
    }
}

/// Where a core arrives, on its own stack. What a job leaves there is no business of the next.
extern "C" fn arrive(core: usize) -> ! {
    let counter = arch::tsc();
    arch::cpu::enable_paging_features();
    mm::activate_kernel_table();
    cores::serve(core, counter, mm::scrub_stack)
}
