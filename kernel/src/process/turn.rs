//! The loop around ring 3.
//!
//! A program runs until it traps; a system call or a fault is handled and it runs on. The one-shot
//! timer is armed for the next control deadline only, and stays armed over calls and faults.
//!
//! Invariant: between two timer interrupts nothing here looks at clock or network unless the
//! program asks for something that waits.

use kernel_core::fault::{Access, Cause};
use kernel_core::paging::entry::Protection;
use kernel_core::program::{Faults, Memory};
use kernel_core::signals::frame::Fault;

use super::Process;
use super::ending::Ending;
use crate::agent::services::NodeServices;
use crate::arch::interrupts::Class;
use crate::arch::trap::PAGE_FAULT;
use crate::arch::user::{self, Trap};
use crate::{arch, monitor, time};

impl Process {
    /// Runs the program until it ends.
    pub(super) fn turns(&mut self, services: &mut dyn NodeServices) -> Ending {
        loop {
            self.attend(services);
            if !self.clock.armed {
                self.arm(services);
            }
            let entered = arch::tsc();
            let trap = user::run(&mut self.context);
            self.account.user_counts += arch::tsc().wrapping_sub(entered);
            let result = match trap {
                Trap::Syscall => self.system_call(services),
                Trap::PageFault { address, code } => {
                    let access = Access::from_error_code(code.0);
                    let result = self.fault(services, address, access).or_else(|ending| {
                        let fault = Fault {
                            vector: PAGE_FAULT.into(),
                            code: code.0,
                            address,
                        };
                        self.catch(services, ending, fault)
                    });
                    result.and_then(|()| self.deliver(services))
                }
                Trap::Interrupt { class } => self
                    .interrupt(services, class)
                    .and_then(|()| self.deliver(services)),
                Trap::Exception { vector, code } => {
                    let fault = Fault {
                        vector: vector.into(),
                        code,
                        address: 0,
                    };
                    let ending = Ending::killed(Cause::Exception { vector });
                    self.catch(services, ending, fault)
                        .and_then(|()| self.deliver(services))
                }
            };
            if let Err(ending) = result {
                return ending;
            }
        }
    }

    /// Arms the timer for the earliest of the node's and the program's deadlines.
    pub(super) fn arm(&mut self, services: &dyn NodeServices) {
        let tick = services.tick();
        let (mut deadline, mut class) = match self.own_deadline() {
            (own, class) if own < tick => (own, class),
            _ => (tick, Class::Heartbeat),
        };
        if let Some(due) = services.monitor_deadline().filter(|due| *due < deadline) {
            (deadline, class) = (due, Class::Monitor);
        }
        if let Some(due) = services.peers_deadline().filter(|due| *due < deadline) {
            (deadline, class) = (due, Class::Cast);
        }
        arch::timer::arm(deadline, class);
        self.clock.armed = true;
    }

    /// While a broadcast goes on in which this node has a part, or the program has operations with
    /// other ranks under way, the card may interrupt the program, and what waits is taken in first
    /// (ADR 4). Otherwise all is quiet.
    fn attend(&mut self, services: &mut dyn NodeServices) {
        if services.peers_deadline().is_none() {
            if core::mem::take(&mut self.clock.listening) {
                services.listen(false);
                // What the card sent last is not for the program any more.
                arch::idle::absorb();
                self.clock.armed = false;
            }
            return;
        }
        self.clock.listening = true;
        // What it brings may change every deadline.
        self.clock.armed = false;
        if services.listen(true) {
            services.poll();
            // No interrupt comes for a frame that is there already; a flood does not keep the
            // program from running, it is looked at again at the next deadline or frame.
            if services.listen(true) {
                services.poll();
            }
        }
    }

    fn interrupt(&mut self, services: &mut dyn NodeServices, class: Class) -> Result<(), Ending> {
        match class {
            Class::Nic | Class::Spurious => return Ok(()),
            Class::Monitor => self.next_monitor(),
            Class::Heartbeat | Class::TimeLimit | Class::Cast => {}
        }
        // The timer has fired and is silent now.
        self.clock.armed = false;
        self.ring();
        self.publish();
        // Interrupts for other ranks' sake come when the program has traffic: they would make that
        // look like more of its time.
        if matches!(class, Class::Monitor | Class::Heartbeat) {
            monitor::profile::sample(self.context.rip, || self.text_range());
        }
        services.poll();
        self.streams.collect(services);
        self.push_output(services);
        self.take_signals(services)?;
        self.look_for_end(services)
    }

    /// Tells what the program has cost so far.
    pub(super) fn publish(&self) {
        monitor::publish(self.cost());
    }

    /// What the program has cost so far.
    pub(super) fn cost(&self) -> monitor::Program {
        let memory = self.memory.as_ref();
        monitor::Program {
            user_counts: self.account.user_counts,
            system_calls: self.account.system_calls,
            faults: memory.map_or(Faults::NONE, Memory::faults),
        }
    }

    /// Where the program's text begins and ends: all its executable segments.
    fn text_range(&self) -> (u64, u64) {
        let segments = self.memory.as_ref().map(|memory| &memory.image().segments);
        let text = segments.into_iter().flatten();
        let text = text.filter(|segment| segment.protection == Protection::ReadExecute);
        let (mut start, mut end) = (u64::MAX, 0);
        for segment in text {
            start = start.min(segment.start);
            end = end.max(segment.file_end);
        }
        if end > start { (start, end) } else { (0, 1) }
    }

    /// Moves the monitoring deadline to the next multiple of its period that lies ahead.
    fn next_monitor(&mut self) {
        let period = self.spec.monitor_period_us;
        let elapsed = time::now().saturating_since(self.clock.started).as_micros();
        if let Some(periods) = elapsed.checked_div(period) {
            let next = netstack::time::Micros((periods + 1) * period);
            self.clock.monitor = Some(self.clock.started + next);
        }
    }
}
