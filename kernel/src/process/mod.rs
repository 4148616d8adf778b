//! Programs: loading, page faults, system calls, the end.
//!
//! | module | purpose |
//! |---|---|
//! | [`launch`] | from a launch command to a program that is ready to start |
//! | [`thread`], [`current`] | a thread; the one that the kernel works for, with its process |
//! | [`ranks`], [`cores`] | the ranks of this node, their cores, the boot core's timer and ear |
//! | [`run_loop`] | the loop around ring 3 on each core, and what each trap means |
//! | [`pager`] | waiting, fetching pages, copying to and from the program |
//! | [`image`] | pages of the program that a broadcast brings |
//! | [`files`] | the files a job was given |
//! | [`signals`] | entering handlers of signals and coming back |
//! | [`streams`] | standard input, output and error, shipped to control |
//! | [`calls`] | the system calls |
//! | [`polling`] | long work, in which the node goes on looking at the network |
//! | [`services`] | what a process asks of the node |
//! | [`ending`] | how a program ended, its report, what stays of its memory |
//! | [`dump`] | the core file of a program that crashed |
//! | [`verify`] | held pages against the program's page hashes |
//! | [`refusal`] | why a program is not launched |
//!
//! Neighbours: `agent::job` calls [`prepare`] and [`Prepared::run`] and lends the network as
//! [`Ranks`]; decisions are made by `kernel_core::{loader, space, fault, program}`.
//!
//! Invariant: a program is never trusted: its pointers are `UserSlice`s, its numbers are checked,
//! and whatever it does ends at worst the program. When [`Prepared`] is gone, so are all frames of
//! the program, scrubbed, but those that hold pages of its file and wait for its next launch.

mod calls;
mod cores;
mod current;
mod dump;
mod ending;
mod files;
mod image;
mod launch;
mod pager;
mod polling;
mod ranks;
mod refusal;
mod run_loop;
pub mod services;
mod signals;
mod streams;
mod thread;
mod verify;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use hearth_abi::resources::Lowered;
use kernel_core::futex::Queues;
use kernel_core::program::Memory;
use kernel_core::retention::Policy;
use kernel_core::signals::{Posted, Program as Signals};
use kernel_core::threads::{CoreSet, Full, Threads, Tid};
use netstack::ids::LocalRank;
use netstack::io::ExitReport;
use netstack::job::LaunchSpec;
use netstack::time::Instant;

use crate::arch::interrupts::Counts;
use crate::mm;
use crate::time::Moment;
use cores::Cores;
#[cfg(feature = "ktest")]
pub use ending::scrub;
pub use ending::scrub_some;
use ending::{Crashed, Ending};
use files::JobFiles;
pub use launch::prepare;
use pager::InFlight;
use services::{NodeServices, Ranks};
use streams::Streams;
use thread::Thread;

/// A launch command as it arrived.
#[derive(Clone, Debug)]
pub struct Launch {
    /// What to launch, and how.
    pub spec: LaunchSpec,
    /// The launch block, where it came along.
    pub block: Option<Vec<u8>>,
    /// When the node woke for it.
    pub arrived: Moment,
}

/// Programs that are loaded and not started, one for each rank that the node has of a job. To be
/// run or abandoned; only a panic may drop it, which gives their memory back to the last page and
/// tells nobody.
pub struct Prepared {
    processes: Vec<Process>,
}

/// What is done at the end of each rank: output it wrote is queued with its services then, and its
/// memory is given back.
pub type Ended<'a> = dyn Fn(LocalRank, &mut dyn NodeServices, Exit) + Sync + 'a;

/// How a program ended.
#[derive(Debug)]
pub struct Exit {
    /// Status and counts, for control.
    pub report: ExitReport,
    /// What to tell the user when it did not end by itself.
    pub text: Option<String>,
}

impl Prepared {
    /// Runs the programs to their ends and gives their memory back.
    pub fn run(self, node: &mut dyn Ranks, ended: &Ended<'_>) {
        ranks::run(self.processes, node, ended);
    }

    /// Runs one program alone, and says how it ended.
    #[cfg(feature = "ktest")]
    pub fn run_alone(self, node: &mut dyn Ranks) -> Exit {
        let exit = spin::Mutex::new(None);
        self.run(node, &|_, _, how| *exit.lock() = Some(how));
        exit.into_inner().expect("a program that has ended")
    }

    /// Gives the memory of one program alone back without having run it.
    #[cfg(feature = "ktest")]
    pub fn abandon_alone(self, node: &mut dyn Ranks, signal: u8) -> ExitReport {
        let exit = spin::Mutex::new(None);
        self.abandon(node, signal, &|_, _, how| *exit.lock() = Some(how));
        exit.into_inner()
            .expect("a program that was abandoned")
            .report
    }

    /// Gives their memory back without having run them; pages of their file stay as if they had
    /// ended. The reports say that `signal` ended them.
    pub fn abandon(self, node: &mut dyn Ranks, signal: u8, ended: &Ended<'_>) {
        for process in self.processes {
            let rank = process.local;
            let services = node.rank(rank);
            let report = process.abandon(services, signal);
            let text = None;
            ended(rank, services, Exit { report, text });
        }
    }
}

/// Processes that there are.
static LIVING: AtomicUsize = AtomicUsize::new(0);

/// Panics unless every frame is accounted for: at each launch and each end, when no program but
/// `own` has any, so that a frame that was lost or given twice never reaches another program.
fn check_frames(services: &mut dyn NodeServices, own: usize) {
    if LIVING.load(Ordering::Relaxed) > own {
        return;
    }
    let (sums, usage) = {
        let frames = mm::frames();
        (frames.check(), frames.usage())
    };
    if let Err(sum) = sums {
        panic!("counts of frames do not add up: {sum}");
    }
    let warm = services.warm().pages();
    let objects = services.objects().pages() + services.temporary().frames();
    assert!(
        usage.user == 0 && usage.retained == warm && usage.object == objects,
        "frames of no program: {usage:?}, {warm} pages are warm, {objects} of objects"
    );
}

/// One program on this node: a rank.
struct Process {
    /// Its launch, with its own rank.
    spec: LaunchSpec,
    local: LocalRank,
    /// What stays of it at its end.
    policy: Policy,
    /// `None` once it has been given back.
    memory: Option<Memory>,
    /// Those that do not run; the one that runs has an empty place.
    threads: Threads<Option<Box<Thread>>>,
    cores: Cores,
    /// Signals for threads that run.
    posted: Posted,
    futexes: Queues,
    /// Why it ends, once it does, and the thread that ended it.
    ending: Option<Ending>,
    crashed: Option<Crashed>,
    /// What it is called: its first argument.
    name: Vec<u8>,
    /// Fetches of pages of the program that are on their way.
    in_flight: Vec<InFlight>,
    /// What the progress of broadcasts was when a wait for a block was in vain.
    stalled_at: Option<u64>,
    streams: Streams,
    files: JobFiles,
    /// What all its threads share of signals.
    signals: Signals,
    /// Limits of resources that it has lowered.
    lowered: Lowered,
    clock: Clock,
    account: Account,
}

/// Deadlines while the program runs.
struct Clock {
    started: Instant,
    /// End of the program's time, when it has a limit.
    limit: Option<Instant>,
    /// Next monitoring interrupt the user asked for.
    monitor: Option<Instant>,
    /// Whether the boot core's timer, where it is armed, is for these, too.
    armed: bool,
}

/// What the program has cost so far.
struct Account {
    /// When LAUNCH arrived, when the program was loaded, when its first instruction ran.
    arrived: Moment,
    ready: Moment,
    first: Moment,
    /// Time-stamp counts spent in ring 3.
    user_counts: u64,
    system_calls: u64,
    /// System calls the node does not have, by number.
    unknown: Vec<(u32, u32)>,
    bytes_loaded: u64,
    /// Held pages that were found damaged before the launch.
    pages_damaged: u64,
    /// Held pages that were given back before the launch.
    pages_discarded: u64,
    /// Faults that pages of a broadcast served, and of these those that waited for a block.
    faults_from_cast: u64,
    faults_awaited: u64,
    /// Messages sent, their bytes, and exchanges.
    messages_sent: u64,
    message_bytes: u64,
    exchanges: u64,
    /// Interrupts since the node started, at the program's start.
    interrupts: Counts,
}

impl Account {
    /// Adds what a thread has cost since the last time.
    fn take(&mut self, thread: &mut Thread) {
        self.system_calls += core::mem::take(&mut thread.calls);
        let counts = core::mem::take(&mut thread.user_counts);
        self.user_counts += counts;
        thread.told_counts += counts;
    }
}

impl Process {
    /// Lets a thread begin.
    fn start_thread(&mut self, thread: Box<Thread>, affinity: CoreSet) -> Result<Tid, Full> {
        let tid = self.threads.insert(Some(thread), affinity)?;
        if let Some(Some(thread)) = self.threads.get_mut(tid) {
            thread.tid = tid;
        }
        Ok(tid)
    }

    fn memory(&mut self) -> &mut Memory {
        self.memory.as_mut().expect("memory of a running program")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            ending::drop_memory(memory);
        }
        LIVING.fetch_sub(1, Ordering::Relaxed);
    }
}
