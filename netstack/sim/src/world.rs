//! The event loop: machines, the services on them, and what happens to them, in virtual time.
//!
//! A machine's services are asked for the next message whenever its card has room, after something
//! arrived and at the time they named themselves; never otherwise. The control node is the machine
//! with the number after the last node.
//!
//! Key types: [`World`], [`Service`]. Neighbours: [`crate::setup`] says what happens,
//! [`crate::net`] is what they are on, [`crate::summary`] what comes out.
//!
//! Invariant: nothing but the setup decides what happens; two runs give the same digest.

mod faults;
mod glue;

use std::sync::Arc;

use netstack::rng::Rng;

use crate::casts::{self, Casts};
use crate::exchange::Exchanges;
use crate::jobs::Sessions;
use crate::net::fabric::Train;
use crate::net::{Event, Load, Net};
use crate::overlay::{self, Overlay};
use crate::setup::{Fault, Setup};
use crate::summary::{Progress, Summary};

/// How often a node whose program computes looks at the network.
const LOOK_NS: u64 = 1_000_000_000;
/// Messages that a machine may send at one point of time: far more than its card takes.
const MESSAGES_AT_ONCE: u32 = 200_000;
/// How often it is looked whether all is well again, once nothing goes wrong any more.
const HEALTH_NS: u64 = 500_000_000;

/// What a check found.
pub type Checked = Result<(), String>;

/// `what` unless it holds.
pub(crate) fn check(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(what()) }
}

/// Why a run failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What is wrong.
    pub what: String,
    /// When, in nanoseconds.
    pub at_ns: u64,
    /// The last lines of the trace, where one is kept.
    pub trace: Vec<String>,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for line in &self.trace {
            writeln!(f, "{line}")?;
        }
        write!(
            f,
            "failed at {:.6} s: {}",
            self.at_ns as f64 / 1e9,
            self.what
        )
    }
}

/// What happens at a time that is known before.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// Something from outside.
    Fault(Fault),
    /// Whether all is well again is to be looked at.
    Health,
    /// Of casts.
    Cast(casts::Action),
    /// A rank begins an exchange.
    Begin(u32),
    /// Of the overlay.
    Overlay(overlay::Action),
    /// Control looks after what it keeps up.
    Tend,
}

impl Action {
    /// Whether a run goes on until it has happened.
    pub fn counts(self) -> bool {
        !matches!(self, Action::Health | Action::Tend)
    }
}

/// One protocol on all machines.
pub trait Service {
    /// Plans what happens.
    fn begin(&mut self, net: &mut Net);

    /// A machine was switched on, or the control node.
    fn boot(&mut self, net: &mut Net, host: u32) -> Checked;

    /// A machine is about to be off.
    fn off(&mut self, net: &mut Net, host: u32);

    /// Something happens from outside that is not for machines as a whole.
    fn inflict(&mut self, net: &mut Net, fault: Fault) -> Checked;

    /// Something that was planned happens.
    fn act(&mut self, net: &mut Net, action: Action) -> Checked;

    /// Something has reached a machine: when, from where, what is left of it.
    fn take(&mut self, net: &mut Net, host: u32, at: u64, arrived: (u32, Train, Load)) -> Checked;

    /// Acts on what engines of a machine have to tell.
    fn settle(&mut self, net: &mut Net, host: u32, at: u64) -> Checked;

    /// Sends the next message of a machine; false when it has none.
    fn send_next(&mut self, net: &mut Net, host: u32) -> Result<bool, String>;

    /// When a machine that has nothing to send wants to be asked again.
    fn deadline(&self, net: &Net, host: u32) -> Option<u64>;

    /// Everything planned has come to its end.
    fn is_over(&self, net: &Net) -> bool;

    /// How long all rests after that, before it is looked at what is left.
    fn rest_ns(&self) -> u64;

    /// What is missing for it to be over.
    fn missing(&self, net: &Net) -> String;

    /// What must hold at the end.
    ///
    /// # Errors
    /// What does not.
    fn end(&self, net: &Net) -> Checked;
}

/// Machines, and what they do.
pub struct World {
    pub(crate) net: Net,
    pub(crate) sessions: Option<Sessions>,
    pub(crate) casts: Option<Casts>,
    pub(crate) exchanges: Option<Exchanges>,
    pub(crate) overlay: Option<Overlay>,
    progress: Progress,
    is_healthy: bool,
}

/// All services of a world, in the order in which they are asked; `$net` beside them.
macro_rules! services {
    ($world:expr) => {{
        let sessions = $world
            .sessions
            .as_mut()
            .map(|it| it as &mut dyn $crate::world::Service);
        let casts = $world
            .casts
            .as_mut()
            .map(|it| it as &mut dyn $crate::world::Service);
        let exchanges = $world
            .exchanges
            .as_mut()
            .map(|it| it as &mut dyn $crate::world::Service);
        let overlay = $world
            .overlay
            .as_mut()
            .map(|it| it as &mut dyn $crate::world::Service);
        [sessions, casts, exchanges, overlay].into_iter().flatten()
    }};
}
use services;

impl World {
    /// A world in which nothing has happened yet.
    ///
    /// # Errors
    /// A text that says what is wrong with the setup.
    pub fn new(setup: Setup) -> Result<Self, String> {
        setup.check()?;
        let setup = Arc::new(setup);
        let mut net = Net::new(Arc::clone(&setup))?;
        let together = setup.jobs.is_some();
        let alone = !together && setup.exchange.is_none() && setup.overlay.is_none();
        // With several casts nodes are asked at once: their shares are compared in the middle.
        net.is_lazy = alone && setup.casts.len() == 1;
        let mut world = World {
            sessions: setup
                .jobs
                .as_ref()
                .map(|jobs| Sessions::new(&mut net, jobs)),
            casts: (!setup.casts.is_empty())
                .then(|| Casts::new(&setup))
                .transpose()?,
            exchanges: (setup.exchange.is_some() || together).then(|| Exchanges::new(&setup)),
            overlay: setup.overlay.is_some().then(|| Overlay::new(&setup)),
            progress: Progress::new(setup.progress),
            is_healthy: false,
            net,
        };
        let control = world.net.control();
        world.net.switch_on(control);
        for service in services!(world) {
            service.boot(&mut world.net, control)?;
        }
        let mut rng = Rng::new(setup.seed ^ 0x626f_6f74_7321);
        match setup.boot_within_ns {
            Some(0) => (0..setup.nodes).try_for_each(|node| world.boot(node))?,
            Some(within) => {
                for node in 0..setup.nodes {
                    let at = rng.below(within);
                    world.net.schedule(at, Action::Fault(Fault::Boot(node)));
                }
            }
            None => {}
        }
        for service in services!(world) {
            service.begin(&mut world.net);
        }
        for &(at, fault) in &setup.faults {
            world.net.schedule(at, Action::Fault(fault));
        }
        Ok(world)
    }

    /// Runs to the end: everything over and at rest, or the deadline passed, or a check failed.
    ///
    /// # Errors
    /// What was found.
    pub fn run(mut self) -> Result<Summary, Failure> {
        match self.run_to_rest().and_then(|()| self.end()) {
            Ok(()) => Ok(Summary::of(&self)),
            Err(what) => Err(Failure {
                what,
                at_ns: self.net.now(),
                trace: self.net.trace(),
            }),
        }
    }

    fn run_to_rest(&mut self) -> Checked {
        let heals = self.net.setup.heals_at().is_some();
        let mut rest_until = None;
        while let Some(event) = self.net.pop() {
            if self.net.events.is_multiple_of(1 << 16) {
                self.progress.tell(&self.net, self.casts.as_ref());
            }
            if self.net.now() > self.net.setup.deadline_ns {
                let missing = self.missing();
                return Err(format!("not done by the deadline: {missing}"));
            }
            self.step(event)?;
            if self.is_healthy {
                return Ok(());
            }
            // Whoever heals has to be well, not only at rest.
            if !heals && self.is_over() {
                let rest = services!(self).map(|service| service.rest_ns()).max();
                let now = self.net.now();
                let until = *rest_until.get_or_insert(now + rest.unwrap_or(0));
                if now >= until {
                    return Ok(());
                }
            } else {
                rest_until = None;
            }
        }
        let missing = self.missing();
        check(self.is_over(), || {
            format!("nothing will ever happen again: {missing}")
        })
    }

    fn is_over(&mut self) -> bool {
        let World { net, .. } = self;
        net.actions_left == 0 && services!(self).all(|service| service.is_over(net))
    }

    fn end(&mut self) -> Checked {
        let World { net, .. } = self;
        services!(self).try_for_each(|service| service.end(net))
    }

    /// A node that is off, stands still or is out of reach.
    fn unreached(&self) -> Option<u32> {
        (0..self.net.control()).find(|node| !self.net.lives(*node))
    }

    fn missing(&mut self) -> String {
        let heals = self.net.setup.heals_at().is_some();
        let unreached = self.unreached().filter(|_| heals);
        let World { net, .. } = self;
        let mut missing: Vec<String> = services!(self)
            .filter(|service| !service.is_over(net))
            .map(|service| service.missing(net))
            .collect();
        if missing.is_empty()
            && let Some(left) = services!(self).find_map(|service| service.end(net).err())
        {
            missing.push(left);
        }
        missing.extend(unreached.map(|node| format!("n{node} is out of reach")));
        missing.join("; ")
    }

    fn step(&mut self, event: Event) -> Checked {
        let reached = match event {
            Event::Arrive(number) => self.net.arrive(number),
            Event::Again(number) => self.net.put_in(number, self.net.now()),
            Event::Deliver(host) => Some(host),
            Event::Wake(host) => return self.wake(host),
            Event::Act(number) => return self.act(number),
        };
        match reached {
            Some(host) if !self.net.is_busy(host, self.net.now()) => {
                if self.net.looks(host) {
                    self.take_in(host, self.net.now() + 1)?;
                    self.drive(host)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn act(&mut self, number: u32) -> Checked {
        if self.net.is_lazy {
            // What happens from outside finds everybody up to date.
            for node in 0..self.net.control() {
                self.take_in(node, self.net.now())?;
            }
        }
        match self.net.action(number) {
            Action::Fault(fault) => {
                self.net.note(|| format!("{fault:?}"));
                self.inflict(fault)
            }
            Action::Health => {
                let all_live = self.unreached().is_none();
                self.is_healthy = all_live && self.is_over() && self.end().is_ok();
                let next = self.net.now() + HEALTH_NS;
                self.net.schedule(next, Action::Health);
                Ok(())
            }
            action => services!(self).try_for_each(|service| service.act(&mut self.net, action)),
        }
    }

    /// An event for a machine's wake-up came.
    fn wake(&mut self, host: u32) -> Checked {
        if !self.net.wakes(host) || !self.net.looks(host) {
            return Ok(());
        }
        let machine = &self.net.hosts[host as usize];
        let before = match machine.look_at.is_some() || machine.service_ns > 0 {
            true => self.net.now() + 1,
            false => self.net.now(),
        };
        // Half of those whose programs compute send what is due before they look at what came.
        if machine.look_at.is_some() && host.is_multiple_of(2) {
            while self.net.fabric.card_takes_at(host) <= self.net.now() && self.send_next(host)? {}
        }
        self.take_in(host, before)?;
        self.drive(host)
    }

    /// Gives a machine what has reached it before this time.
    fn take_in(&mut self, host: u32, before: u64) -> Checked {
        let takes_one = self.net.hosts[host as usize].service_ns > 0;
        loop {
            if takes_one
                && self.net.has_waiting(host)
                && let Some(at) = self.net.busy_until(host)
            {
                self.net.wake_by(host, at, false);
                return Ok(());
            }
            let Some((from, train, at, load)) = self.net.take_next(host, before) else {
                return Ok(());
            };
            if self.net.is_on(host) {
                let arrived = (from, train, load);
                if let Some(service) = self.service_of(&arrived.2) {
                    service.0.take(service.1, host, at, arrived)?;
                }
                self.settle(host, at)?;
            }
        }
    }

    /// Whose a message is, as the kernel tells by its kind.
    fn service_of(&mut self, load: &Load) -> Option<(&mut dyn Service, &mut Net)> {
        let kind = match load {
            Load::Datagram(bytes) => *bytes.get(3)?,
            Load::Cast(_) => 64,
            Load::Exchange(_) => 80,
        };
        let service: Option<&mut dyn Service> = match kind {
            64..=79 => self.casts.as_mut().map(|it| it as &mut dyn Service),
            80..=95 => self.exchanges.as_mut().map(|it| it as &mut dyn Service),
            96..=111 => self.overlay.as_mut().map(|it| it as &mut dyn Service),
            _ => self.sessions.as_mut().map(|it| it as &mut dyn Service),
        };
        Some((service?, &mut self.net))
    }

    /// Lets a machine act: takes its events, sends what its card takes, and notes when to come
    /// back.
    fn drive(&mut self, host: u32) -> Checked {
        let mut sent = 0;
        loop {
            if !self.net.is_on(host) {
                return Ok(());
            }
            self.settle(host, self.net.now())?;
            if !self.net.looks(host) {
                return Ok(());
            }
            let takes_at = self.net.fabric.card_takes_at(host);
            if takes_at > self.net.now() {
                self.net.wake_by(host, takes_at, false);
                return Ok(());
            }
            if !self.send_next(host)? {
                break;
            }
            sent += 1;
            if sent > MESSAGES_AT_ONCE {
                return Err(format!("n{host} never stops sending"));
            }
        }
        // The last question may have brought events.
        self.settle(host, self.net.now())?;
        if !self.net.is_on(host) {
            return Ok(());
        }
        if let Some(at) = self.looks_next(host) {
            self.net.hosts[host as usize].look_at = Some(at);
            self.net.wake_by(host, at, false);
            return Ok(());
        }
        self.net.hosts[host as usize].look_at = None;
        let due = services!(self).filter_map(|service| service.deadline(&self.net, host));
        if let Some(due) = due.min() {
            // What is due now and still gave nothing is asked for in the next microsecond.
            let soonest = (self.net.now() / 1000 + 1) * 1000;
            self.net.wake_by(host, due.max(soonest), true);
        }
        Ok(())
    }

    /// When a machine whose program computes looks at the network next.
    fn looks_next(&self, host: u32) -> Option<u64> {
        let told = self.net.hosts[host as usize].computes;
        let told = told.then(|| self.net.now() + LOOK_NS);
        let is_interrupted = self.casts.as_ref().is_some_and(|it| it.is_active(host))
            || self.exchanges.as_ref().is_some_and(|it| it.is_active(host));
        let sessions = self.sessions.as_ref().filter(|_| !is_interrupted);
        let computes = sessions.and_then(|sessions| sessions.looks_next(&self.net, host));
        told.or(computes)
    }

    fn send_next(&mut self, host: u32) -> Result<bool, String> {
        for service in services!(self) {
            if service.send_next(&mut self.net, host)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Acts on what engines of a machine have to tell, and has services hear of one another.
    fn settle(&mut self, host: u32, at: u64) -> Checked {
        services!(self).try_for_each(|service| service.settle(&mut self.net, host, at))?;
        while self.pass_on(host, at)? {
            services!(self).try_for_each(|service| service.settle(&mut self.net, host, at))?;
        }
        Ok(())
    }
}
