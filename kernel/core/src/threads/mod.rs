//! The threads of a process: which there are, on which core each is, and which of them runs next.
//!
//! | item | what it is |
//! |---|---|
//! | [`Threads`] | the table of one process |
//! | [`Tid`], [`State`], [`Wait`] | name of a thread, what it does, what it waits for |
//! | [`Core`], [`CoreSet`] | a core, and a set of them (affinity) |
//! | [`clone`] | what a call of clone asks for |
//!
//! A new thread is given the core with the fewest threads of those it may be on, and stays there,
//! as on IBM's Compute Node Kernel (Giampapa et al., "Experiences with a Lightweight Supercomputer
//! Kernel", SC 2010). Where there are more threads than cores, those of one core take turns in the
//! order in which they became ready.
//!
//! Neighbours: `kernel::process` switches to the thread that [`Threads::next`] names, keeps a
//! thread's registers as its `T`, and wakes halted cores that got something to do.
//!
//! Invariant: a core runs at most one thread of the table; a thread is in one state; no tid is
//! given twice; at most [`THREADS_PER_CORE`] threads a core live. An operation takes time in
//! proportion to the number of threads at most, and only [`Threads::insert`] allocates.

pub mod clone;
mod cores;

use alloc::vec::Vec;

pub use cores::{CORES_MAX, Core, CoreSet};
use hearth_abi::linux::futex;

/// Threads that may live at a time, for each core of the process.
pub const THREADS_PER_CORE: usize = 64;
/// Largest tid: words of mutexes have so many bits for it.
pub const TID_MAX: u32 = futex::TID_MASK;

/// The name of a thread, 1 to [`TID_MAX`]. That of the first is the name of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tid(u32);

impl Tid {
    /// The tid with this number; `None` where there is none.
    pub const fn new(number: u64) -> Option<Self> {
        if number >= 1 && number <= TID_MAX as u64 {
            Some(Self(number as u32))
        } else {
            None
        }
    }

    /// Its number.
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// What ends a wait, apart from its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Any event of the node ([`Threads::wake_news`]): the thread looks again for itself.
    News,
    /// Only [`Threads::wake`] of this thread.
    Wake,
    /// A change of what has this number ([`Threads::wake_channel`]): the thread looks again.
    Channel(u64),
    /// A change of anything that has such a number.
    AnyChannel,
}

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It could run.
    Ready,
    /// It runs on this core.
    Running(Core),
    /// It waits.
    Waiting {
        /// What for.
        on: Wait,
        /// Until when at most, in nanoseconds of the node's clock.
        until: Option<u64>,
    },
}

/// No thread can be added: there are as many as may be, or no tid is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// None of the cores is one of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchCore;

#[derive(Debug)]
struct Thread<T> {
    tid: Tid,
    state: State,
    /// Its core: where it runs next, if not now.
    core: Core,
    affinity: CoreSet,
    /// When it became ready, by [`Threads::turns`].
    since: u64,
    value: T,
}

impl<T> Thread<T> {
    /// The core that it keeps busy, or would.
    fn busy(&self) -> Option<Core> {
        match self.state {
            State::Ready => Some(self.core),
            State::Running(core) => Some(core),
            State::Waiting { .. } => None,
        }
    }
}

/// The threads of a process, each with a value of the kernel's.
#[derive(Debug)]
pub struct Threads<T> {
    cores: CoreSet,
    /// In ascending order of tids.
    threads: Vec<Thread<T>>,
    /// The next tid.
    fresh: u32,
    /// How often a thread has become ready: 2^64 are never reached.
    turns: u64,
}

impl<T> Threads<T> {
    /// A table without threads, for a process on these cores. The first thread is called `first`.
    ///
    /// # Panics
    /// Where there is no core.
    pub const fn new(first: Tid, cores: CoreSet) -> Self {
        assert!(!cores.is_empty(), "a process without a core");
        Self {
            cores,
            threads: Vec::new(),
            fresh: first.0,
            turns: 0,
        }
    }

    /// The cores of the process.
    pub const fn cores(&self) -> CoreSet {
        self.cores
    }

    /// Threads that may live at a time.
    pub const fn limit(&self) -> usize {
        THREADS_PER_CORE * self.cores.count()
    }

    /// Adds a thread, ready, on the core with the fewest living threads of `affinity`, the lowest
    /// of several. Cores that are not of the process do not count; where none is left, all of the
    /// process do.
    pub fn insert(&mut self, value: T, affinity: CoreSet) -> Result<Tid, Full> {
        if self.threads.len() >= self.limit() || self.fresh > TID_MAX {
            return Err(Full);
        }
        let affinity = match affinity.and(self.cores) {
            CoreSet::NONE => self.cores,
            some => some,
        };
        let tid = Tid(self.fresh);
        self.fresh += 1;
        let (core, since) = (self.place_for(affinity), self.turn());
        self.threads.push(Thread {
            tid,
            state: State::Ready,
            core,
            affinity,
            since,
            value,
        });
        Ok(tid)
    }

    /// Takes a thread out, whatever it does.
    pub fn remove(&mut self, tid: Tid) -> Option<T> {
        let index = self.index(tid)?;
        Some(self.threads.remove(index).value)
    }

    /// The thread that runs on a core from now on: of those ready there the one that has been so
    /// the longest.
    ///
    /// # Panics
    /// Where a thread runs on that core already: it is to be made ready, put to wait or removed
    /// before.
    pub fn next(&mut self, core: Core) -> Option<Tid> {
        assert_eq!(self.running_on(core), None, "a thread runs on {core:?}");
        let ready = self.threads.iter_mut().filter(|thread| {
            let is_ready = thread.state == State::Ready;
            is_ready && thread.core == core
        });
        let thread = ready.min_by_key(|thread| thread.since)?;
        thread.state = State::Running(core);
        Some(thread.tid)
    }

    /// Makes a thread ready that runs or waits, behind all others of its core; `false` where it was
    /// so, or there is none.
    pub fn ready(&mut self, tid: Tid) -> bool {
        let Some(index) = self.index(tid) else {
            return false;
        };
        self.make_ready(index)
    }

    /// Puts a thread to wait; `false` where there is none. `until` is in nanoseconds.
    pub fn wait(&mut self, tid: Tid, on: Wait, until: Option<u64>) -> bool {
        let Some(thread) = self.thread_mut(tid) else {
            return false;
        };
        thread.state = State::Waiting { on, until };
        true
    }

    /// Makes a thread ready that waits for anything; `false` where it does not wait.
    pub fn wake(&mut self, tid: Tid) -> bool {
        match self.index(tid) {
            Some(index) if self.waits(index) => self.make_ready(index),
            _ => false,
        }
    }

    /// Makes all ready that wait for news; the cores on which they are.
    pub fn wake_news(&mut self) -> CoreSet {
        self.wake_where(|on, _| on == Wait::News)
    }

    /// Makes all ready that wait for a change of what has this number; the cores on which they are.
    pub fn wake_channel(&mut self, number: u64) -> CoreSet {
        let ends = [Wait::AnyChannel, Wait::Channel(number)];
        self.wake_where(|on, _| ends.contains(&on))
    }

    /// Makes all ready whose time has come by now, in nanoseconds; the cores on which they are.
    pub fn expire(&mut self, now: u64) -> CoreSet {
        self.wake_where(|_, until| until.is_some_and(|until| until <= now))
    }

    /// Whether one waits for what the node brings.
    pub fn wait_for_news(&self) -> bool {
        self.threads.iter().any(|thread| {
            let state = thread.state;
            matches!(state, State::Waiting { on: Wait::News, .. })
        })
    }

    /// When the first of the waits ends by its time, in nanoseconds.
    pub fn earliest(&self) -> Option<u64> {
        let until = |thread: &Thread<T>| match thread.state {
            State::Waiting { until, .. } => until,
            _ => None,
        };
        self.threads.iter().filter_map(until).min()
    }

    /// Threads that run on a core or are ready there: with two of them they must take turns.
    pub fn runnable(&self, core: Core) -> usize {
        let here = |thread: &&Thread<T>| thread.busy() == Some(core);
        self.threads.iter().filter(here).count()
    }

    /// The cores on which a thread runs now.
    pub fn running(&self) -> CoreSet {
        self.cores_where(|thread| matches!(thread.state, State::Running(_)))
    }

    /// The cores for which a thread is ready.
    pub fn wanted(&self) -> CoreSet {
        self.cores_where(|thread| thread.state == State::Ready)
    }

    /// The thread that runs on a core.
    pub fn running_on(&self, core: Core) -> Option<Tid> {
        let here = |thread: &&Thread<T>| thread.state == State::Running(core);
        self.threads.iter().find(here).map(|thread| thread.tid)
    }

    /// What a thread does.
    pub fn state(&self, tid: Tid) -> Option<State> {
        Some(self.thread(tid)?.state)
    }

    /// The core of a thread: where it runs when it is next taken.
    pub fn place(&self, tid: Tid) -> Option<Core> {
        Some(self.thread(tid)?.core)
    }

    /// The cores on which a thread may be.
    pub fn affinity(&self, tid: Tid) -> Option<CoreSet> {
        Some(self.thread(tid)?.affinity)
    }

    /// Says on which cores a thread may be, as far as they are of the process. One that is on
    /// another is placed anew; where it runs it stays until it is made ready or waits, so that the
    /// kernel must take it off that core. Nothing happens where there is no such thread.
    pub fn set_affinity(&mut self, tid: Tid, affinity: CoreSet) -> Result<(), NoSuchCore> {
        let affinity = affinity.and(self.cores);
        if affinity.is_empty() {
            return Err(NoSuchCore);
        }
        let place = self.place_for(affinity);
        if let Some(thread) = self.thread_mut(tid) {
            thread.affinity = affinity;
            if !affinity.contains(thread.core) {
                thread.core = place;
            }
        }
        Ok(())
    }

    /// The value of a thread.
    pub fn get(&self, tid: Tid) -> Option<&T> {
        Some(&self.thread(tid)?.value)
    }

    /// The value of a thread, to be changed.
    pub fn get_mut(&mut self, tid: Tid) -> Option<&mut T> {
        Some(&mut self.thread_mut(tid)?.value)
    }

    /// All threads, lowest tid first.
    pub fn iter(&self) -> impl Iterator<Item = (Tid, &T)> {
        self.threads
            .iter()
            .map(|thread| (thread.tid, &thread.value))
    }

    /// All threads, lowest tid first, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Tid, &mut T)> {
        let threads = self.threads.iter_mut();
        threads.map(|thread| (thread.tid, &mut thread.value))
    }

    /// Living threads.
    pub const fn len(&self) -> usize {
        self.threads.len()
    }

    /// Whether no thread lives.
    pub const fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    fn index(&self, tid: Tid) -> Option<usize> {
        let found = self.threads.binary_search_by_key(&tid, |thread| thread.tid);
        found.ok()
    }

    fn thread(&self, tid: Tid) -> Option<&Thread<T>> {
        Some(&self.threads[self.index(tid)?])
    }

    fn thread_mut(&mut self, tid: Tid) -> Option<&mut Thread<T>> {
        let index = self.index(tid)?;
        Some(&mut self.threads[index])
    }

    fn turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    fn waits(&self, index: usize) -> bool {
        matches!(self.threads[index].state, State::Waiting { .. })
    }

    fn make_ready(&mut self, index: usize) -> bool {
        let since = self.turn();
        let thread = &mut self.threads[index];
        if thread.state == State::Ready {
            return false;
        }
        thread.state = State::Ready;
        thread.since = since;
        true
    }

    fn wake_where(&mut self, ends: impl Fn(Wait, Option<u64>) -> bool) -> CoreSet {
        let mut woken = CoreSet::NONE;
        for index in 0..self.threads.len() {
            let thread = &self.threads[index];
            if let State::Waiting { on, until } = thread.state
                && ends(on, until)
            {
                woken = woken.or(CoreSet::only(thread.core));
                self.make_ready(index);
            }
        }
        woken
    }

    fn cores_where(&self, holds: impl Fn(&Thread<T>) -> bool) -> CoreSet {
        let threads = self.threads.iter().filter(|thread| holds(thread));
        let cores = threads.filter_map(Thread::busy).map(CoreSet::only);
        cores.fold(CoreSet::NONE, CoreSet::or)
    }

    /// The core with the fewest threads of a set that is not empty.
    fn place_for(&self, affinity: CoreSet) -> Core {
        let mut living = [0usize; CORES_MAX];
        for thread in &self.threads {
            living[thread.core.number()] += 1;
        }
        let fewest = affinity.iter().min_by_key(|core| living[core.number()]);
        fewest.expect("a set with a core")
    }
}

#[cfg(test)]
mod tests;
