//! Switches nodes on and off for whoever asks, and resets those that stay lost.
//!
//! Key types: [`Switch`], [`Asked`]. Neighbours: `hearth_power` knows how machines are switched and
//! which lost nodes are due; `api::nodes` passes requests on; [`watch`] is a task of `serve`.
//!
//! Invariants: the control state is not held while machines are switched; a node that somebody
//! switched off is not reset because it is lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use hearth_power::watch::{Due, RESETS_MAX, Seen, Watch};
use hearth_power::{Action, Error, Machine, Power, State};
use netstack::control::NodeState;

use crate::control::{Core, Shared};
use crate::events::{Event, Severity};
use crate::hostlist;

/// How often it is looked which nodes are lost.
const LOOKS: Duration = Duration::from_secs(2);

/// The way to switch machines, and what is known of those that are switched.
#[derive(Debug)]
pub struct Switch {
    power: Power,
    /// How long nodes are lost before they are reset; none: they never are.
    reset_lost_after: Option<Duration>,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    watch: Watch,
    /// Nodes that somebody has switched off, until they are back, and whether they were seen to be
    /// gone: a node without power counts as up until its silence is noticed.
    off: BTreeMap<u32, bool>,
}

/// What is to be done, and for whom.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// What.
    pub action: Action,
    /// Who wants it; for `Action::Status` nobody hears of it.
    pub by: &'a str,
}

impl Switch {
    /// Switches by `power`; nodes that are lost for `reset_lost_after_s` are reset, 0: never.
    pub fn new(power: Power, reset_lost_after_s: u64) -> Arc<Self> {
        let after = Duration::from_secs(reset_lost_after_s);
        let can_reset = reset_lost_after_s > 0 && power.can_reset();
        Arc::new(Switch {
            power,
            reset_lost_after: can_reset.then_some(after),
            known: Mutex::new(Known {
                watch: Watch::new(after),
                off: BTreeMap::new(),
            }),
        })
    }

    /// Does it with these nodes, and has people know. The results are in the order of the nodes.
    pub async fn perform(
        self: &Arc<Self>,
        shared: &Shared,
        asked: Asked<'_>,
        nodes: &[u32],
    ) -> Vec<Result<State, Error>> {
        let machines = machines(&shared.lock(), nodes);
        if asked.action != Action::Status {
            // Before they are seen to be lost.
            self.known().note(asked.action, nodes);
        }
        let results = self.switched(asked.action, machines).await;
        if asked.action == Action::Off {
            self.known().keep_on(nodes, &results);
        }
        if asked.action != Action::Status {
            let events = events(asked, nodes, &results);
            let mut core = shared.lock();
            events.into_iter().for_each(|event| core.events.push(event));
        }
        results
    }

    async fn switched(
        self: &Arc<Self>,
        action: Action,
        machines: Vec<Machine>,
    ) -> Vec<Result<State, Error>> {
        let switch = self.clone();
        let results =
            tokio::task::spawn_blocking(move || switch.power.perform(action, &machines)).await;
        results.expect("switching machines does not panic")
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no panic while held")
    }
}

impl Known {
    /// Somebody switches these nodes.
    fn note(&mut self, action: Action, nodes: &[u32]) {
        for node in nodes {
            self.watch.forget(*node);
            match action {
                Action::Off => self.off.insert(*node, false),
                _ => self.off.remove(node),
            };
        }
    }

    /// Those of the nodes that could not be switched off are looked after as before.
    fn keep_on(&mut self, nodes: &[u32], results: &[Result<State, Error>]) {
        let failed = nodes.iter().zip(results);
        for (node, _) in failed.filter(|(_, result)| result.is_err()) {
            self.off.remove(node);
        }
    }

    /// What is due, now that the nodes are so.
    fn step(&mut self, now: Duration, mut seen: Vec<(u32, Seen)>) -> Vec<Due> {
        for (node, seen) in &mut seen {
            match (self.off.get_mut(node), *seen) {
                (Some(true), Seen::Up) => {
                    self.off.remove(node);
                }
                (Some(was_gone), Seen::Lost | Seen::NotWanted) => {
                    *was_gone = true;
                    *seen = Seen::NotWanted;
                }
                _ => {}
            }
        }
        self.watch.step(now, &seen)
    }
}

/// Resets nodes that stay lost, as long as control runs.
pub async fn watch(shared: Arc<Shared>, switch: Arc<Switch>) {
    if switch.reset_lost_after.is_none() {
        return;
    }
    loop {
        tokio::time::sleep(LOOKS).await;
        let now = Duration::from_micros(shared.now().as_micros());
        let seen = seen(&shared.lock());
        let due = switch.known().step(now, seen);
        let mut nodes = Vec::new();
        for due in due {
            if let Due::Reset { node, .. } = due {
                nodes.push(node);
            }
            shared.lock().events.push(told(due));
        }
        if nodes.is_empty() {
            continue;
        }
        let machines = machines(&shared.lock(), &nodes);
        let results = switch.switched(Action::Reset, machines).await;
        for (node, result) in nodes.iter().zip(results) {
            if let Err(error) = result {
                let event = failed(Action::Reset, *node, &error);
                shared.lock().events.push(event);
            }
        }
    }
}

/// How all nodes are that were ever heard of.
fn seen(core: &Core) -> Vec<(u32, Seen)> {
    let of = |status: netstack::control::NodeStatus| {
        let node = status.node.0;
        let seen = match status.state {
            _ if core.runner.drained(node).is_some() => Seen::NotWanted,
            NodeState::Joining | NodeState::Up => Seen::Up,
            NodeState::Lost => Seen::Lost,
            NodeState::Left => Seen::NotWanted,
        };
        (node, seen)
    };
    core.endpoint.nodes().map(of).collect()
}

/// The machines of nodes, with their MAC addresses as far as they are known.
fn machines(core: &Core, nodes: &[u32]) -> Vec<Machine> {
    let listed = core
        .table
        .machines()
        .map(|machine| (machine.node, machine.mac));
    let heard = core
        .endpoint
        .nodes()
        .map(|status| (status.node.0, status.mac));
    let macs: BTreeMap<u32, [u8; 6]> = listed.chain(heard).collect();
    let machine = |node: &u32| Machine {
        node: *node,
        mac: macs.get(node).copied(),
    };
    nodes.iter().map(machine).collect()
}

/// What becomes of a lost node, for people.
fn told(due: Due) -> Event {
    match due {
        Due::Reset { node, attempt } => {
            let name = hostlist::name(node);
            let text = format!("{name} stays lost and is reset ({attempt} of {RESETS_MAX})");
            Event::new(Severity::Warning, "node-reset", text).node(node)
        }
        Due::GiveUp(node) => {
            let name = hostlist::name(node);
            let text = format!(
                "{name} stays lost after {RESETS_MAX} resets and is left for somebody to look at; `hearth node reset {name}` tries again"
            );
            Event::new(Severity::Error, "node-given-up", text).node(node)
        }
        Due::TooMany(lost) => {
            let text = format!(
                "{lost} nodes are lost at once, so the network or their power has failed and none is reset; `hearth node reset LIST` resets them"
            );
            Event::new(Severity::Warning, "nodes-not-reset", text)
        }
    }
}

/// What became of nodes that somebody had switched: one event for all that were, one for each that
/// was not.
fn events(asked: Asked<'_>, nodes: &[u32], results: &[Result<State, Error>]) -> Vec<Event> {
    let all = || nodes.iter().zip(results);
    let done: Vec<u32> = all()
        .filter(|(_, result)| result.is_ok())
        .map(|(node, _)| *node)
        .collect();
    let mut events = Vec::new();
    if !done.is_empty() {
        let what = match asked.action {
            Action::Reset => "reset",
            Action::Off => "switched off",
            Action::On | Action::Status => "switched on",
        };
        let text = format!("{}: {what} by {}", hostlist::format(&done), asked.by);
        let event = Event::new(Severity::Info, "node-power", text);
        events.push(match done[..] {
            [node] => event.node(node),
            _ => event,
        });
    }
    let errors = all().filter_map(|(node, result)| Some((*node, result.as_ref().err()?)));
    events.extend(errors.map(|(node, error)| failed(asked.action, node, error)));
    events
}

fn failed(action: Action, node: u32, error: &Error) -> Event {
    let text = format!("{}: power {action} failed: {error}", hostlist::name(node));
    Event::new(Severity::Warning, "node-power-failed", text).node(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_was_switched_off_is_not_reset_until_it_was_back() {
        let mut known = Known {
            watch: Watch::new(Duration::from_secs(10)),
            off: BTreeMap::new(),
        };
        let lost = || vec![(0, Seen::Up), (1, Seen::Lost)];
        let at = Duration::from_secs;
        known.note(Action::Off, &[1]);
        // Its silence is noticed some seconds later.
        assert!(known.step(at(0), vec![(1, Seen::Up)]).is_empty());
        assert!((0..100).all(|second| known.step(at(second), lost()).is_empty()));
        // It is switched on at its own button, and then is lost.
        known.step(at(100), vec![(1, Seen::Up)]);
        assert!(known.step(at(101), lost()).is_empty());
        assert_eq!(
            known.step(at(111), lost()),
            [Due::Reset {
                node: 1,
                attempt: 1
            }]
        );
        // Switched on by somebody, who gives it time.
        known.note(Action::On, &[1]);
        assert!(known.step(at(112), lost()).is_empty());
        // Switching it off fails: it is looked after.
        known.note(Action::Off, &[1]);
        known.keep_on(&[1], &[Err(Error::NotConfigured)]);
        known.step(at(113), lost());
        assert_eq!(known.step(at(123), lost()).len(), 1);
    }

    #[test]
    fn people_hear_of_all_that_were_switched_at_once_and_of_each_that_was_not() {
        let asked = Asked {
            action: Action::Off,
            by: "eva",
        };
        let results = [Ok(State::Off), Err(Error::NotConfigured), Ok(State::Off)];
        let events = events(asked, &[1, 2, 3], &results);
        let texts: Vec<&str> = events.iter().map(|event| event.text.as_str()).collect();
        assert_eq!(texts[0], "n[1,3]: switched off by eva");
        assert!(texts[1].starts_with("n2: power off failed: "), "{texts:?}");
        assert_eq!(texts.len(), 2);
    }
}
