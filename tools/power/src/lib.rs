//! Switching nodes on and off: through the board that manages each machine (IPMI, Redfish), by
//! wake-on-LAN, by a command of the site's, or by the supervisor of a QEMU cluster.
//!
//! Key types: [`Power`] (the way that is configured), [`Action`], [`Machine`], [`State`],
//! [`Error`]; [`watch::Watch`] says which lost nodes are due for a reset. Neighbours:
//! `hearth-control` has the section `[power]`, the command line and the API; `hearth-qemu` starts
//! and ends QEMU machines.
//!
//! Invariants: nothing waits longer than the time limit; no password is among the arguments of a
//! program.

mod config;
mod error;
mod ipmi;
mod program;
mod redfish;
mod template;
mod wake;
pub mod watch;

use std::fmt;
use std::net::Ipv4Addr;
use std::num::NonZero;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use hearth_qemu::{MachineState, Paths, Record};
use serde::{Deserialize, Serialize};

pub use config::{Config, Method};
pub use error::Error;
pub use template::{Template, TemplateError};

/// Machines that are asked at a time, for whoever asks; each takes a process, and a board answers
/// within a second or two.
const AT_A_TIME: NonZero<usize> = NonZero::new(16).expect("not zero");

/// What is done with a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Switch it on; one that is on stays as it is.
    On,
    /// Switch it off, as by pulling the plug.
    Off,
    /// Switch it off and on again; one that is off is switched on.
    Reset,
    /// Ask whether it is on.
    Status,
}

impl fmt::Display for Action {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Action::On => "on",
            Action::Off => "off",
            Action::Reset => "reset",
            Action::Status => "status",
        })
    }
}

/// Whether a machine is on: as it says, or as it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is on.
    On,
    /// It is off.
    Off,
}

/// A machine that is a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// Number of the node.
    pub node: u32,
    /// Its MAC address, as far as it is known.
    pub mac: Option<[u8; 6]>,
}

impl Machine {
    /// The node's name.
    pub fn name(&self) -> String {
        format!("n{}", self.node)
    }

    /// Its MAC address.
    ///
    /// # Errors
    /// [`Error::NoMac`].
    fn known_mac(&self) -> Result<[u8; 6], Error> {
        self.mac.ok_or_else(|| Error::NoMac(self.name()))
    }
}

/// How the machines of a cluster are switched.
#[derive(Debug, Clone)]
pub struct Power {
    way: Way,
    limit: Duration,
    slots: Arc<Slots>,
}

/// Room for machines that are asked at a time, shared by all that switch some.
#[derive(Debug, Default)]
struct Slots {
    taken: Mutex<usize>,
    freed: Condvar,
}

/// Room for one machine, until it is dropped.
struct Slot<'a>(&'a Slots);

impl Slots {
    fn take(&self) -> Slot<'_> {
        let taken = self.taken.lock().expect("no panic while held");
        let is_full = |taken: &mut usize| *taken >= AT_A_TIME.get();
        let mut taken = self
            .freed
            .wait_while(taken, is_full)
            .expect("no panic while held");
        *taken += 1;
        Slot(self)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        *self.0.taken.lock().expect("no panic while held") -= 1;
        self.0.freed.notify_one();
    }
}

/// The ways that there are.
#[derive(Debug, Clone)]
enum Way {
    None,
    Qemu(Paths),
    Ipmi(ipmi::Ipmi),
    Redfish(redfish::Redfish),
    Wake(wake::Wake),
    Command(Vec<Template>),
}

impl Power {
    /// As configured; wake-on-LAN packets leave from `address`.
    ///
    /// # Errors
    /// [`Error::Incomplete`]: a key that the method needs is not set.
    pub fn of(config: &Config, address: Option<Ipv4Addr>) -> Result<Self, Error> {
        let way = match config.method {
            Method::None => Way::None,
            Method::Ipmi => Way::Ipmi(ipmi::Ipmi::of(config)?),
            Method::Redfish => Way::Redfish(redfish::Redfish::of(config)?),
            Method::Wake => Way::Wake(wake::Wake::from(address)),
            Method::Command if config.command.is_empty() => {
                return Err(Error::Incomplete("command", "command"));
            }
            Method::Command => Way::Command(config.command.clone()),
        };
        let limit = Duration::from_secs(config.time_limit_s);
        Ok(Power {
            way,
            limit,
            slots: Arc::default(),
        })
    }

    /// The machines of a QEMU cluster, through its supervisor.
    pub fn of_qemu(paths: Paths) -> Self {
        Power {
            way: Way::Qemu(paths),
            limit: hearth_qemu::ANSWER_LIMIT,
            slots: Arc::default(),
        }
    }

    /// Whether there is a way to switch machines off and on again.
    pub fn can_reset(&self) -> bool {
        !matches!(self.way, Way::None | Way::Wake(_))
    }

    /// Does it with each machine, several at a time; the results in the order of the machines.
    /// Takes up to three time limits for every sixteen machines, and as long as others take that
    /// ask at the same time: not for a task that others wait for.
    pub fn perform(&self, action: Action, machines: &[Machine]) -> Vec<Result<State, Error>> {
        let results = self.perform_wanted(action, machines, &|_| true);
        let done = |result: Option<_>| result.expect("each is wanted");
        results.into_iter().map(done).collect()
    }

    /// The same with those machines that are wanted when their turn has come; nothing for others.
    pub fn perform_wanted(
        &self,
        action: Action,
        machines: &[Machine],
        is_wanted: &(dyn Fn(&Machine) -> bool + Sync),
    ) -> Vec<Option<Result<State, Error>>> {
        if let Way::Qemu(paths) = &self.way {
            let wanted: Vec<bool> = machines.iter().map(is_wanted).collect();
            let chosen = machines
                .iter()
                .zip(&wanted)
                .filter(|(_, is_wanted)| **is_wanted);
            let chosen: Vec<Machine> = chosen.map(|(machine, _)| *machine).collect();
            let mut results = match chosen.is_empty() {
                true => Vec::new(),
                false => qemu(paths, action, &chosen),
            }
            .into_iter();
            let result = |is_wanted: bool| is_wanted.then(|| results.next().expect("one each"));
            return wanted.into_iter().map(result).collect();
        }
        let next = AtomicUsize::new(0);
        let results: Vec<_> = machines.iter().map(|_| Mutex::new(None)).collect();
        std::thread::scope(|scope| {
            for _ in 0..machines.len().min(AT_A_TIME.get()) {
                scope.spawn(|| {
                    while let Some(at) = claim(&next, machines.len()) {
                        let _slot = self.slots.take();
                        let machine = &machines[at];
                        let result = is_wanted(machine).then(|| self.with_one(action, machine));
                        *results[at].lock().expect("no panic while held") = Some(result);
                    }
                });
            }
        });
        let done = |result: Mutex<Option<_>>| {
            let result = result.into_inner().expect("no panic while held");
            result.expect("each was claimed by one thread")
        };
        results.into_iter().map(done).collect()
    }

    fn with_one(&self, action: Action, machine: &Machine) -> Result<State, Error> {
        match &self.way {
            Way::None => Err(Error::NotConfigured),
            Way::Ipmi(ipmi) => ipmi.perform(action, machine, self.limit),
            Way::Redfish(redfish) => redfish.perform(action, machine, self.limit),
            Way::Wake(wake) => wake.perform(action, machine),
            Way::Command(command) => of_site(command, action, machine, self.limit),
            Way::Qemu(_) => unreachable!("the supervisor is asked about all at once"),
        }
    }
}

/// The next of `count` things that no other thread has.
fn claim(next: &AtomicUsize, count: usize) -> Option<usize> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    (at < count).then_some(at)
}

/// Asks the supervisor of a QEMU cluster. It does all or nothing.
fn qemu(paths: &Paths, action: Action, machines: &[Machine]) -> Vec<Result<State, Error>> {
    let nodes: Vec<u32> = machines.iter().map(|machine| machine.node).collect();
    let done = match action {
        Action::On => hearth_qemu::power_on(paths, &nodes),
        Action::Off => hearth_qemu::power_off(paths, &nodes),
        Action::Reset => hearth_qemu::reset(paths, &nodes),
        Action::Status => Ok(()),
    };
    let record = done.and_then(|()| Record::load(paths));
    let state = |node: &u32| match &record {
        Err(error) => Err(Error::Qemu(error.to_string())),
        Ok(record) => match record.nodes.iter().find(|there| there.node == *node) {
            Some(there) if there.state == MachineState::On => Ok(State::On),
            Some(_) => Ok(State::Off),
            None => Err(Error::Qemu(format!("there is no machine of n{node}"))),
        },
    };
    nodes.iter().map(state).collect()
}

/// Runs the site's own command. Asked for the status, it prints `on` or `off`.
fn of_site(
    command: &[Template],
    action: Action,
    machine: &Machine,
    limit: Duration,
) -> Result<State, Error> {
    let words: Result<Vec<String>, Error> = command
        .iter()
        .map(|word| word.expand(machine, Some(action)))
        .collect();
    let words = words?;
    let (program, arguments) = words.split_first().expect("checked when it was configured");
    let mut command = Command::new(program);
    command.args(arguments);
    let finished = program::run(command, b"", limit)?;
    let said = finished.success()?;
    match action {
        Action::On | Action::Reset => Ok(State::On),
        Action::Off => Ok(State::Off),
        Action::Status => match said.trim().to_ascii_lowercase().as_str() {
            "on" => Ok(State::On),
            "off" => Ok(State::Off),
            _ => Err(Error::answer(
                program,
                &said,
                "asked for the status, it prints on or off",
            )),
        },
    }
}
