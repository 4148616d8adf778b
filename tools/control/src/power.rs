//! Switches nodes on and off for whoever asks, and resets those that stay lost.
//!
//! Key types: [`Switch`], [`Asked`], [`Switched`]. Neighbours: `hearth_power` knows how machines
//! are switched and which lost nodes are due; `api::nodes` passes requests on; [`watch`] is a task
//! of `serve`.
//!
//! Invariants: the control state is not held while machines are switched; a node that somebody
//! switched off is not reset because it is lost; what was begun is carried out and told, also where
//! who asked for it has gone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use hearth_power::watch::{Due, FAILURES_MAX, Outcome, RESETS_MAX, Seen, Watch};
use hearth_power::{Action, Error, Machine, Power, State};
use netstack::control::{NodeState, NodeStatus};
use netstack::ids::NodeId;
use tokio::sync::Semaphore;

use crate::control::{Core, Shared};
use crate::events::{Event, Severity};
use crate::hostlist;
use crate::principal::{Denied, Principal};

/// How often it is looked which nodes are lost.
const LOOKS: Duration = Duration::from_secs(2);

/// Requests of people that are under way at a time; each has a thread that waits for machines.
const REQUESTS_MAX: usize = 16;

/// The way to switch machines, and what is known of those that are switched.
#[derive(Debug)]
pub struct Switch {
    power: Power,
    /// How long nodes are lost before they are reset; none: they never are.
    reset_lost_after: Option<Duration>,
    known: Mutex<Known>,
    requests: Arc<Semaphore>,
}

#[derive(Debug)]
struct Known {
    watch: Watch,
    /// Nodes that somebody has switched off, until they are back, and whether they were seen to be
    /// gone: a node without power counts as up until its silence is noticed.
    off: BTreeMap<u32, bool>,
    /// How often nodes had joined when they were switched off or reset: as long as that is so, a
    /// node that counts as up is one whose silence was not noticed yet.
    joins: BTreeMap<u32, u64>,
}

/// What is to be done, and for whom.
#[derive(Debug, Clone)]
pub struct Asked {
    action: Action,
    /// For `Action::Status` nobody hears of it.
    by: String,
}

impl Asked {
    /// That `by` wants it.
    ///
    /// # Errors
    /// [`Denied`]: only operators switch machines.
    pub fn new(by: &Principal, action: Action) -> Result<Self, Denied> {
        if action != Action::Status {
            by.operator()?;
        }
        let by = by.name.clone();
        Ok(Asked { action, by })
    }
}

/// What became of a node.
#[derive(Debug)]
pub struct Switched {
    /// What its machine answered.
    pub result: Result<State, Error>,
    /// It was in service before, in a boot that nothing has ended.
    pub was_up: bool,
}

/// As many requests are under way as may be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{REQUESTS_MAX} requests to switch nodes are under way, the most there may be; try again when some of them are done"
)]
pub struct Busy;

impl Switch {
    /// Switches by `power`; nodes that are lost for `reset_lost_after_s` are reset, 0: never.
    pub fn new(power: Power, reset_lost_after_s: u64) -> Arc<Self> {
        let after = Duration::from_secs(reset_lost_after_s);
        let can_reset = reset_lost_after_s > 0 && power.can_reset();
        Arc::new(Switch {
            power,
            reset_lost_after: can_reset.then_some(after),
            known: Mutex::new(Known::new(after)),
            requests: Arc::new(Semaphore::new(REQUESTS_MAX)),
        })
    }

    /// Does it with these nodes, and has people know. The results are in the order of the nodes.
    /// Once begun, it is carried out and told, also where nobody waits for it any more.
    ///
    /// # Errors
    /// [`Busy`].
    pub async fn perform(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        asked: Asked,
        nodes: Vec<u32>,
    ) -> Result<Vec<Switched>, Busy> {
        let room = self.requests.clone().try_acquire_owned();
        let room = room.map_err(|_| Busy)?;
        let (switch, shared) = (self.clone(), shared.clone());
        let done = tokio::spawn(async move {
            let _room = room;
            switch.carry_out(&shared, &asked, &nodes).await
        });
        Ok(done.await.expect("switching machines does not panic"))
    }

    async fn carry_out(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        asked: &Asked,
        nodes: &[u32],
    ) -> Vec<Switched> {
        let machines = machines(&shared.lock(), nodes);
        let joins = joins(&shared.lock(), nodes);
        let was_up = self.known().those_up(nodes, &joins);
        if asked.action != Action::Status {
            // Before they are seen to be lost.
            self.known().note(asked.action, nodes);
        }
        let results = self.switched(asked.action, machines, |_| true).await;
        let results: Vec<Result<State, Error>> = results.into_iter().flatten().collect();
        self.known().noted(asked.action, nodes, &joins, &results);
        if asked.action != Action::Status {
            let events = events(asked, nodes, &results);
            let now = shared.now();
            let mut core = shared.lock();
            events.into_iter().for_each(|event| core.events.push(event));
            if matches!(asked.action, Action::Off | Action::Reset) {
                let done = nodes
                    .iter()
                    .zip(&results)
                    .filter(|(_, result)| result.is_ok());
                done.for_each(|(node, _)| core.endpoint.switched_off(now, NodeId(*node)));
                core.settle(now);
                drop(core);
                shared.kick();
            }
        }
        let switched = results.into_iter().zip(was_up);
        switched
            .map(|(result, was_up)| Switched { result, was_up })
            .collect()
    }

    /// Does it with those machines that are wanted when their turn has come.
    async fn switched(
        self: &Arc<Self>,
        action: Action,
        machines: Vec<Machine>,
        is_wanted: impl Fn(&Machine) -> bool + Send + Sync + 'static,
    ) -> Vec<Option<Result<State, Error>>> {
        let switch = self.clone();
        let work = move || switch.power.perform_wanted(action, &machines, &is_wanted);
        crate::blocking::run(work).await
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no panic while held")
    }
}

impl Known {
    fn new(after: Duration) -> Self {
        Known {
            watch: Watch::new(after),
            off: BTreeMap::new(),
            joins: BTreeMap::new(),
        }
    }

    /// Which of the nodes are in service, in a boot that nothing has ended.
    fn those_up(&self, nodes: &[u32], joins: &[Option<u64>]) -> Vec<bool> {
        let is_up = |(node, joins): (&u32, &Option<u64>)| {
            joins.is_some_and(|joins| self.joins.get(node) != Some(&joins))
        };
        nodes.iter().zip(joins).map(is_up).collect()
    }

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

    /// What became of it. Those that could not be switched off are looked after as before.
    fn noted(
        &mut self,
        action: Action,
        nodes: &[u32],
        joins: &[Option<u64>],
        results: &[Result<State, Error>],
    ) {
        for ((node, joins), result) in nodes.iter().zip(joins).zip(results) {
            match (action, result) {
                (Action::Off, Err(_)) => {
                    self.off.remove(node);
                }
                (Action::Off | Action::Reset, Ok(_)) => {
                    self.joins.extend(joins.map(|joins| (*node, joins)));
                }
                _ => {}
            }
        }
    }

    /// Whether somebody has switched a node off.
    fn is_off(&self, node: u32) -> bool {
        self.off.contains_key(&node)
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
        let seen = seen(&shared.lock());
        let due = switch.known().step(since_start(&shared), seen);
        let mut resets = Vec::new();
        for due in due {
            match due {
                Due::Reset { node, attempt } => resets.push((node, attempt)),
                due => shared.lock().events.push(told(due)),
            }
        }
        if !resets.is_empty() {
            // Others are looked after meanwhile; of these none is due before that is over.
            tokio::spawn(reset(shared.clone(), switch.clone(), resets));
        }
    }
}

/// Resets nodes that are due, each with the number of the attempt, unless one is not lost any more
/// when its turn has come.
async fn reset(shared: Arc<Shared>, switch: Arc<Switch>, due: Vec<(u32, u32)>) {
    let nodes: Vec<u32> = due.iter().map(|(node, _)| *node).collect();
    let machines = machines(&shared.lock(), &nodes);
    let is_wanted = {
        let (shared, switch) = (shared.clone(), switch.clone());
        move |machine: &Machine| {
            let node = machine.node;
            let is_lost = is_lost(&shared.lock(), node);
            is_lost && !switch.known().is_off(node)
        }
    };
    let results = switch.switched(Action::Reset, machines, is_wanted).await;
    for ((node, attempt), result) in due.into_iter().zip(results) {
        let (outcome, event) = match result {
            None => (Outcome::NotNeeded, None),
            Some(Ok(_)) => (Outcome::Done, Some(told(Due::Reset { node, attempt }))),
            Some(Err(error)) => {
                let event = failed(Action::Reset, node, &error);
                (Outcome::Failed, Some(event))
            }
        };
        let now = since_start(&shared);
        switch.known().watch.report(now, node, outcome);
        if let Some(event) = event {
            shared.lock().events.push(event);
        }
    }
}

/// Since control began to run.
fn since_start(shared: &Shared) -> Duration {
    Duration::from_micros(shared.now().as_micros())
}

/// How all nodes are that were ever heard of.
fn seen(core: &Core) -> Vec<(u32, Seen)> {
    let of = |status: NodeStatus| (status.node.0, how(core, &status));
    core.endpoint.nodes().map(of).collect()
}

fn how(core: &Core, status: &NodeStatus) -> Seen {
    match status.state {
        _ if core.runner.drained(status.node.0).is_some() => Seen::NotWanted,
        NodeState::Joining | NodeState::Up => Seen::Up,
        NodeState::Lost => Seen::Lost,
        NodeState::Left => Seen::NotWanted,
    }
}

fn is_lost(core: &Core, node: u32) -> bool {
    let status = core.endpoint.node(NodeId(node));
    status.is_some_and(|status| how(core, &status) == Seen::Lost)
}

/// How often each of these nodes has joined; nothing of those that are not in service.
fn joins(core: &Core, nodes: &[u32]) -> Vec<Option<u64>> {
    let joins = |node: &u32| {
        let status = core.endpoint.node(NodeId(*node))?;
        let is_up = status.state == NodeState::Up;
        is_up.then(|| core.boots.get(node).copied().unwrap_or(0))
    };
    nodes.iter().map(joins).collect()
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
        Due::GiveUp {
            node,
            resets,
            failures,
        } => {
            let name = hostlist::name(node);
            let why = match failures {
                FAILURES_MAX.. => {
                    format!("stays lost and could not be reset {failures} times in a row")
                }
                _ => format!("stays lost after {resets} resets"),
            };
            let text = format!(
                "{name} {why}; it is left for somebody to look at; `hearth node reset {name}` tries again"
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
fn events(asked: &Asked, nodes: &[u32], results: &[Result<State, Error>]) -> Vec<Event> {
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
        let mut known = Known::new(Duration::from_secs(10));
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
        assert!(known.is_off(1));
        known.noted(Action::Off, &[1], &[None], &[Err(Error::NotConfigured)]);
        known.step(at(113), lost());
        assert_eq!(known.step(at(123), lost()).len(), 1);
    }

    #[test]
    fn a_boot_that_was_ended_is_not_in_service() {
        let mut known = Known::new(Duration::ZERO);
        let up = |known: &Known, joins| known.those_up(&[1], &[joins])[0];
        assert!(up(&known, Some(4)) && !up(&known, None));
        let mut ends = |action, result| known.noted(action, &[1], &[Some(4)], &[result]);
        ends(Action::On, Ok(State::On));
        ends(Action::Status, Ok(State::On));
        ends(Action::Off, Err(Error::NotConfigured));
        assert!(up(&known, Some(4)), "nothing has ended it");
        for action in [Action::Off, Action::Reset] {
            let mut known = Known::new(Duration::ZERO);
            known.noted(action, &[1], &[Some(4)], &[Ok(State::Off)]);
            // Its silence is not noticed yet, and it is switched on.
            known.note(Action::On, &[1]);
            assert!(!up(&known, Some(4)));
            assert!(up(&known, Some(5)), "it has joined again");
        }
    }

    #[test]
    fn people_hear_of_all_that_were_switched_at_once_and_of_each_that_was_not() {
        let asked = Asked {
            action: Action::Off,
            by: "eva".to_string(),
        };
        let results = [Ok(State::Off), Err(Error::NotConfigured), Ok(State::Off)];
        let events = events(&asked, &[1, 2, 3], &results);
        let texts: Vec<&str> = events.iter().map(|event| event.text.as_str()).collect();
        assert_eq!(texts[0], "n[1,3]: switched off by eva");
        assert!(texts[1].starts_with("n2: power off failed: "), "{texts:?}");
        assert_eq!(texts.len(), 2);
    }

    #[test]
    fn people_hear_why_a_node_is_given_up() {
        let text = |resets, failures| {
            let due = Due::GiveUp {
                node: 7,
                resets,
                failures,
            };
            told(due).text
        };
        assert!(text(3, 0).starts_with("n7 stays lost after 3 resets; "));
        assert!(text(1, 3).contains("could not be reset 3 times in a row"));
    }
}
