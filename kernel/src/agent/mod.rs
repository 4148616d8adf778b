//! The node's side of the protocol: joins the control node, obeys it, reports to it.
//!
//! | module | purpose |
//! |---|---|
//! | [`identity`] | boot epoch, what the command line says about this node |
//! | [`node`] | datagrams between the network and the protocol's endpoint |
//! | [`job`] | one program, from launch to exit report |
//! | [`mailbox`] | what has arrived for the job |
//! | [`ranks`] | what the node has of each rank: exchange, files, pages |
//! | [`cast`] | this node's part in broadcasts |
//! | [`overlay`] | this node's part in the monitoring overlay |
//! | [`files`] | files in the node's memory, as the control node drops them |
//! | [`warm`] | the warm programs, as the control node asks and is told |
//! | [`vitals`] | what a heartbeat tells |
//! | [`last_words`] | the message of a kernel that has panicked |
//!
//! Neighbours: `main` ends in [`run`]; the panic handler calls [`report_panic`] last.
//!
//! Invariant: with nothing to do the CPU is halted; a node without a card, an address or a control
//! node keeps trying, ever more slowly, and says so.

pub mod cast;
mod files;
pub mod identity;
mod job;
mod last_words;
pub mod mailbox;
pub mod node;
pub mod overlay;
pub mod ranks;
pub mod vitals;
pub mod warm;

use alloc::vec::Vec;

use netstack::time::{Instant, Micros};
use netstack::vitals::BootTimings;

use crate::boot::{self, BootFacts};
use crate::drivers::nic::Nic;
use crate::net::cards::Cards;
use crate::process::services::NodeServices;
use crate::{arch, drivers, net, time};

/// First and longest wait before the bus is searched for a card again.
const CARD_RETRY: Micros = Micros::from_secs(1);
const CARD_RETRY_MAX: Micros = Micros::from_secs(60);

/// Joins the control node and serves until the machine is switched off or control asks it to leave.
pub fn run(boot: &'static BootFacts) -> ! {
    let timings = BootTimings {
        stub_us: time::at_tsc(boot.kernel_entry_tsc).as_micros(),
        ..BootTimings::default()
    };
    let identity = identity::Identity::new(&boot.options);
    let cards = Cards::new(await_cards(), boot.options.boot_card, time::now());
    let stack = net::Stack::new(cards, &identity.network(boot), time::now());
    let mut node = node::Node::new(boot, identity, stack, timings);
    while !node.has_left() {
        dispatch(&mut node, Instant::FAR_FUTURE);
    }
    node.quiesce();
    info!(
        "agent",
        "left the cluster as the control node asked; halted until the machine is reset"
    );
    arch::halt();
}

/// Runs the next job, or waits until `until` for news. What an earlier job left on the stack is
/// cleared from here, since the frames of all functions that served it lie below this one's.
#[inline(never)]
pub fn dispatch(node: &mut node::Node, until: Instant) {
    match node.next_launch() {
        Some(launch) => {
            node.scrub_remains(true);
            job::serve(node, &launch);
        }
        None => {
            node.wait(until);
            node.scrub_remains(false);
        }
    }
}

/// Searches for cards until there is one: it may be plugged in while the node runs.
fn await_cards() -> Vec<&'static mut dyn Nic> {
    let mut wait = CARD_RETRY;
    loop {
        let cards = drivers::start_cards(boot::facts().options.interrupts);
        if !cards.is_empty() {
            return cards;
        }
        let until = time::now() + wait;
        while time::now() < until {
            time::sleep_until(until);
        }
        wait = wait.saturating_mul(2).min(CARD_RETRY_MAX);
    }
}

/// Tells the control node that this node is about to stop. Best effort, at once; does nothing
/// when called again, as by a panic in here.
pub fn report_panic(text: &str) {
    last_words::speak(text);
}
