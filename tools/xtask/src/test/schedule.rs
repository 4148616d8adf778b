//! Which task of the tests runs when: as many at a time as there are lanes, one of them a
//! compilation at most, which takes two.
//!
//! Key types: [`Task`], [`Outcome`]. Neighbours: [`super`] makes the tasks, [`super::report`] tells
//! what came of them.
//!
//! Invariants: a task starts when all that it needs has passed, and not at all when one of these
//! has not. Every task has an outcome.

use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::checks::Checks;

/// What a task does to the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It compiles, on all processors. cargo lets nobody else compile meanwhile.
    Compiles,
    /// It runs what was compiled, on a processor or so.
    Runs,
}

/// Lanes that a compilation takes. As long as there is one to come they are kept for it.
const LANES_OF_A_COMPILATION: usize = 2;

/// Something to do, once. `K` names tasks.
pub struct Task<'a, K> {
    pub name: K,
    pub kind: Kind,
    /// Other tasks. Those that are not in the list need not have been done.
    pub needs: Vec<K>,
    /// What it does; it may count checks.
    pub body: Box<dyn FnOnce() -> Result<Option<Checks>> + Send + 'a>,
}

/// What came of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<K> {
    /// It counted so many checks, if it counts any, and none failed.
    Passed(Option<Checks>),
    /// It failed, or checks of it did, for this reason.
    Failed(Option<Checks>, String),
    /// This task has not passed.
    NotRun(K),
}

/// A task that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done<K> {
    pub name: K,
    pub kind: Kind,
    pub outcome: Outcome<K>,
    pub time: Duration,
}

/// Who hears of each start, with nothing done, and of each end.
pub type Told<'a, K> = dyn Fn(K, Kind, Option<&Done<K>>) + Sync + 'a;

/// Does everything, in the order of the list as far as there is a choice.
pub fn run<K: Copy + PartialEq + Send + Sync>(
    tasks: Vec<Task<'_, K>>,
    lanes: usize,
    told: &Told<'_, K>,
) -> Vec<Done<K>> {
    let board = Board {
        state: Mutex::new(State {
            waiting: tasks,
            running: Vec::new(),
            done: Vec::new(),
            lanes,
        }),
        changed: Condvar::new(),
    };
    std::thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(|| {
                while let Some(task) = board.next(told) {
                    let (name, kind) = (task.name, task.kind);
                    told(name, kind, None);
                    let begun = Instant::now();
                    // One that panics has failed; others go on.
                    let body = std::panic::AssertUnwindSafe(task.body);
                    let outcome = match std::panic::catch_unwind(body) {
                        Ok(result) => outcome(result),
                        Err(_) => Outcome::Failed(None, "it panicked, see above".into()),
                    };
                    let time = begun.elapsed();
                    let done = Done {
                        name,
                        kind,
                        outcome,
                        time,
                    };
                    told(name, kind, Some(&done));
                    board.end(done);
                }
            });
        }
    });
    let state = board.state.into_inner();
    state.expect("no lane has panicked").done
}

fn outcome<K>(result: Result<Option<Checks>>) -> Outcome<K> {
    match result {
        Ok(Some(checks)) if checks.failed > 0 => {
            let reason = format!("{} checks failed", checks.failed);
            Outcome::Failed(Some(checks), reason)
        }
        Ok(checks) => Outcome::Passed(checks),
        Err(error) => Outcome::Failed(None, format!("{error:#}")),
    }
}

struct State<'a, K> {
    waiting: Vec<Task<'a, K>>,
    running: Vec<(K, Kind)>,
    done: Vec<Done<K>>,
    lanes: usize,
}

struct Board<'a, K> {
    state: Mutex<State<'a, K>>,
    changed: Condvar,
}

impl<'a, K: Copy + PartialEq> Board<'a, K> {
    /// The next task to do; waits for one. None when all are taken.
    fn next(&self, told: &Told<'_, K>) -> Option<Task<'a, K>> {
        let mut state = self.state.lock().expect("no lane has panicked");
        loop {
            for done in state.give_up() {
                told(done.name, done.kind, Some(&done));
            }
            if let Some(at) = state.ready() {
                let task = state.waiting.remove(at);
                state.running.push((task.name, task.kind));
                return Some(task);
            }
            if state.waiting.is_empty() {
                return None;
            }
            // Something is running: what waits needs it, or its lanes.
            state = self.changed.wait(state).expect("no lane has panicked");
        }
    }

    fn end(&self, done: Done<K>) {
        let mut state = self.state.lock().expect("no lane has panicked");
        state.running.retain(|(name, _)| *name != done.name);
        state.done.push(done);
        self.changed.notify_all();
    }
}

impl<K: Copy + PartialEq> State<'_, K> {
    /// The first task that can start.
    fn ready(&self) -> Option<usize> {
        let running = |wanted| {
            self.running
                .iter()
                .filter(|(_, kind)| *kind == wanted)
                .count()
        };
        let compiles = |task: &Task<'_, K>| task.kind == Kind::Compiles;
        let compiling = running(Kind::Compiles) > 0;
        let kept = match compiling || self.waiting.iter().any(compiles) {
            true => LANES_OF_A_COMPILATION,
            false => 0,
        };
        let runs = running(Kind::Runs) < self.lanes.saturating_sub(kept).max(1);
        let is_open = |name: &K| {
            let waits = self.waiting.iter().any(|task| task.name == *name);
            waits || self.running.iter().any(|(running, _)| running == name)
        };
        self.waiting.iter().position(|task| {
            let may = match task.kind {
                Kind::Compiles => !compiling,
                Kind::Runs => runs,
            };
            may && !task.needs.iter().any(is_open)
        })
    }

    /// Takes the tasks out that need one that has not passed.
    fn give_up(&mut self) -> Vec<Done<K>> {
        let has_failed = |name: &&K| {
            let done = self.done.iter().find(|done| done.name == **name);
            done.is_some_and(|done| !matches!(done.outcome, Outcome::Passed(_)))
        };
        let mut given_up = Vec::new();
        let mut left = Vec::new();
        for task in self.waiting.drain(..) {
            match task.needs.iter().find(has_failed) {
                None => left.push(task),
                Some(&failed) => given_up.push(Done {
                    name: task.name,
                    kind: task.kind,
                    outcome: Outcome::NotRun(failed),
                    time: Duration::ZERO,
                }),
            }
        }
        self.waiting = left;
        self.done.extend_from_slice(&given_up);
        if !given_up.is_empty() {
            // Others may need those.
            given_up.extend(self.give_up());
        }
        given_up
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn task<'a>(
        name: &'static str,
        kind: Kind,
        needs: &[&'static str],
        body: impl FnOnce() -> Result<Option<Checks>> + Send + 'a,
    ) -> Task<'a, &'static str> {
        Task {
            name,
            kind,
            needs: needs.to_vec(),
            body: Box::new(body),
        }
    }

    fn outcomes(done: &[Done<&'static str>]) -> Vec<(&'static str, Outcome<&'static str>)> {
        let pair = |done: &Done<&'static str>| (done.name, done.outcome.clone());
        let mut all: Vec<_> = done.iter().map(pair).collect();
        all.sort_by_key(|(name, _)| *name);
        all
    }

    #[test]
    fn what_needs_something_that_failed_is_not_run_and_all_else_is() {
        let failed = Checks {
            passed: 2,
            failed: 1,
            what_failed: vec!["x".into()],
        };
        let tasks = vec![
            task("a", Kind::Compiles, &[], || anyhow::bail!("no")),
            task("b", Kind::Runs, &["a"], || Ok(None)),
            task("c", Kind::Runs, &["b"], || Ok(None)),
            task("d", Kind::Runs, &["not in the list"], || Ok(None)),
            task("e", Kind::Runs, &["d"], || Ok(Some(failed.clone()))),
            task("f", Kind::Runs, &[], || panic!("as meant by the test")),
        ];
        let done = run(tasks, 2, &|_, _, _| ());
        let expected = [
            ("a", Outcome::Failed(None, "no".into())),
            ("b", Outcome::NotRun("a")),
            ("c", Outcome::NotRun("b")),
            ("d", Outcome::Passed(None)),
            ("e", Outcome::Failed(Some(failed), "1 checks failed".into())),
            ("f", Outcome::Failed(None, "it panicked, see above".into())),
        ];
        assert_eq!(outcomes(&done), expected);
    }

    #[test]
    fn lanes_are_kept_for_what_compiles_until_all_is_compiled() {
        let task = |name, kind| task(name, kind, &[], || Ok(None));
        let mut state = State {
            waiting: vec![task("runs", Kind::Runs), task("compiles", Kind::Compiles)],
            running: vec![("first", Kind::Runs)],
            done: Vec::new(),
            lanes: 3,
        };
        assert_eq!(state.ready(), Some(1));
        state.running.push(("compiling", Kind::Compiles));
        assert_eq!(state.ready(), None);
        state.running.pop();
        state.waiting.pop();
        assert_eq!(state.ready(), Some(0));
        state.running.push(("second", Kind::Runs));
        assert_eq!(state.ready(), Some(0));
        state.running.push(("third", Kind::Runs));
        assert_eq!(state.ready(), None);
    }

    #[test]
    fn one_compilation_at_a_time_and_something_else_beside_it() {
        /// More than a busy machine takes to start a thread.
        const LONG: Duration = Duration::from_secs(60);
        let compiling = AtomicUsize::new(0);
        let (meet, met) = std::sync::mpsc::channel();
        let compile = || {
            assert_eq!(compiling.fetch_add(1, Ordering::SeqCst), 0);
            std::thread::yield_now();
            compiling.fetch_sub(1, Ordering::SeqCst);
            Ok(None)
        };
        // It ends when `c` runs beside it.
        let compile_on = move || {
            met.recv_timeout(LONG)?;
            Ok(None)
        };
        let tasks = vec![
            task("a", Kind::Compiles, &[], compile),
            task("b", Kind::Compiles, &[], compile_on),
            task("c", Kind::Runs, &["a"], move || {
                Ok(meet.send(()).map(|()| None)?)
            }),
            task("d", Kind::Runs, &["a", "b"], || Ok(None)),
        ];
        let done = run(tasks, 3, &|_, _, _| ());
        let is_good = |done: &Done<_>| done.outcome == Outcome::Passed(None);
        assert!(done.iter().all(is_good), "{done:?}");
        let at = |name| done.iter().position(|done| done.name == name);
        assert!(at("a") < at("c") && at("b") < at("d"), "{done:?}");
    }
}
