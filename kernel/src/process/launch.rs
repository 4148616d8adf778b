//! From a launch command to a program that is ready to start: warm pages or headers, launch block,
//! stack.
//!
//! A warm launch runs on the page table that the last run of the program left: no header is read
//! and nothing is fetched. In a cold one nothing but the stack is mapped, and the pages of the file
//! that were read for the headers are held for the program's first touch.
//!
//! Neighbours: `kernel_core::retention` holds the warm programs, [`super::verify`] looks at their
//! pages again, [`super::refusal`] says why a program is not launched.
//!
//! Invariant: a refusal leaves no more behind than the launch found, and says in words what to do.

use alloc::format;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU16, Ordering};
use hearth_abi::resources::Lowered;

use kernel_core::addr::{PAGE_SIZE, VirtAddr};
use kernel_core::frames::Owner;
use kernel_core::futex::Queues;
use kernel_core::loader::{HEAD_BYTES, Image, Segment, layout};
use kernel_core::objects::{Kept, ObjectId, Objects, View};
use kernel_core::paging::entry::Protection;
use kernel_core::program::{Fetch, Memory, Program, UserSlice};
use kernel_core::retention::{Policy, ProgramId, ROOM_FRAMES, Retained, Variant, WarmTable};
use kernel_core::signals::{Posted, Program as Signals};
use kernel_core::stack::{InitialStack, Start};
use kernel_core::threads::{CoreSet, Threads, Tid};
use netstack::exchange::Settings;
use netstack::ids::LocalRank;
use netstack::job::{LaunchRefusal, LaunchSpec, launch_block};
use netstack::page::{MAX_REQUEST, Object};
use netstack::retention::{Keep, Retention, Reuse, Verify};
use netstack::time::{Instant, Micros};

use super::cores::Cores;
use super::ending::Stop;
use super::files::JobFiles;
use super::thread::Thread;
use super::{
    Account, Clock, LIVING, Launch, Prepared, Process, Streams, calls, image, refusal, verify,
};
use crate::arch::interrupts::Counts;
use crate::arch::user::UserContext;
use crate::mm;
use crate::mm::Hardware;
use crate::process::services::{NodeServices, Ranks};
use crate::time::Moment;
use crate::{arch, time};

/// Longest single wait for a page of the program.
const WAIT_STEP: Micros = Micros::from_secs(1);
/// The first thread of a process has the process's number.
const FIRST_TID: Tid = match Tid::new(calls::PID) {
    Some(tid) => tid,
    None => unreachable!(),
};
/// The environment's variable that says which rank a program is: the block of a node has it for the
/// first of its ranks.
const RANK: &str = "HEARTH_RANK=";
/// The environment's word for a job that wants nothing measured of its nodes until its end.
const QUIET: &[u8] = b"HEARTH_MONITOR=quiet";

/// Loads a program for each rank that the node is to have; they are ready to start when this
/// returns.
pub fn prepare(launch: &Launch, node: &mut dyn Ranks) -> Result<Prepared, LaunchRefusal> {
    let services = node.rank(LocalRank::FIRST);
    super::check_frames(services, 0);
    let spec = &launch.spec;
    let cores = share_cores(spec, arch::cores::count())?;
    // The block first: nothing of it needs the program.
    let read;
    let block = match &launch.block {
        Some(block) => block,
        None => {
            let block_bytes = u64::from(spec.launch_block_bytes);
            if block_bytes > launch_block::MAX as u64 {
                return Err(refusal::bad_block("it is larger than a node takes"));
            }
            read = read_all(services, Object::LaunchBlock, block_bytes)?;
            &read
        }
    };
    let (first, head) = load_first(launch, services, cores)?;
    let mut prepared = Prepared {
        processes: Vec::from([first]),
    };
    let loaded = load_others(launch, node, &mut prepared, cores).and_then(|()| {
        let mut processes = prepared.processes.iter_mut();
        processes.try_for_each(|process| process.load(node.rank(process.local), block, &head))
    });
    if let Err(refused) = loaded {
        prepared.abandon(node, 0, &|_, _, _| ());
        return Err(refused);
    }
    for process in &mut prepared.processes {
        process.account.ready = Moment::now();
    }
    Ok(prepared)
}

/// How many cores each rank of a launch gets on a node with `all`. The first rank has those from
/// the boot core on, the next those behind them.
fn share_cores(spec: &LaunchSpec, all: usize) -> Result<usize, LaunchRefusal> {
    let (ranks, wanted) = (usize::from(spec.ranks), usize::from(spec.cores));
    match (ranks, wanted) {
        (1, 0) => Ok(all),
        // A rank alone has as many as there are.
        (1, most) => Ok(all.min(most)),
        (_, 0) if ranks <= all => Ok(all / ranks),
        (_, each) if each > 0 && ranks * each <= all => Ok(each),
        _ => Err(refusal::too_few_cores(all, ranks, wanted.max(1))),
    }
}

/// Makes the process of the first rank, on what the node holds of the program. Also gives the first
/// bytes of the file, where they had to be read.
fn load_first(
    launch: &Launch,
    services: &mut dyn NodeServices,
    cores: usize,
) -> Result<(Process, Vec<u8>), LaunchRefusal> {
    let spec = &launch.spec;
    let program = ProgramId(spec.program.0);
    let warm = take_warm(spec, &program, services)?;
    let policy = policy(&spec.retention);
    let limit = memory_limit(spec);
    let mut machine = Hardware::new();
    let mut head = Vec::new();
    let memory = match warm.retained {
        Some(retained) => Memory::relaunch(&mut machine, retained, limit, policy),
        None => {
            let head_bytes = spec.program_bytes.min(HEAD_BYTES);
            let found = image::head(services, &program, head_bytes)?;
            let image = match &found {
                Some(found) => Image::parse(found, spec.program_bytes),
                None => {
                    head = read_all(services, Object::Program, head_bytes)?;
                    Image::parse(&head, spec.program_bytes)
                }
            };
            let image = image.map_err(refusal::file)?;
            let program = Program { id: program, image };
            let (kernel, owner) = (mm::kernel_table(), next_owner(services.warm(), &[]));
            Memory::new(&mut machine, program, kernel, owner, limit, policy)
                .map_err(|_| refusal::no_memory(services.objects().file_bytes()))?
        }
    };
    let mut process = Process::new(launch, LocalRank::FIRST, cores, memory, policy);
    process.account.bytes_loaded = head.len() as u64;
    process.account.pages_damaged = warm.damaged;
    process.account.pages_discarded = warm.discarded;
    // Before anything waits: others may want what this node is warm for.
    process.show_pages(services);
    process.join_temporary(services);
    Ok((process, head))
}

/// Makes the processes of the other ranks, with nothing in memory: what another one has of the file
/// is copied at the first touch.
fn load_others(
    launch: &Launch,
    node: &mut dyn Ranks,
    prepared: &mut Prepared,
    cores: usize,
) -> Result<(), LaunchRefusal> {
    let spec = &launch.spec;
    let policy = policy(&spec.retention);
    for local in LocalRank::first(spec.ranks).skip(1) {
        let services = node.rank(local);
        let memories = prepared.processes.iter();
        let memories = memories.filter_map(|process| process.memory.as_ref());
        let owners: Vec<Owner> = memories.clone().map(Memory::owner).collect();
        let program = Program {
            id: ProgramId(spec.program.0),
            image: prepared.processes[0].memory().image().clone(),
        };
        let (kernel, owner) = (mm::kernel_table(), next_owner(services.warm(), &owners));
        let machine = &mut Hardware::new();
        let limit = memory_limit(spec);
        let memory = Memory::new(machine, program, kernel, owner, limit, policy)
            .map_err(|_| refusal::no_memory(services.objects().file_bytes()))?;
        let mut process = Process::new(launch, local, cores, memory, policy);
        process.show_pages(services);
        process.join_temporary(services);
        prepared.processes.push(process);
    }
    Ok(())
}

/// Most bytes of memory that a rank may use.
fn memory_limit(spec: &LaunchSpec) -> u64 {
    match spec.memory_limit {
        0 => u64::MAX,
        bytes => bytes,
    }
}

/// What a launch finds of its program.
#[derive(Default)]
pub(super) struct Warm {
    /// Its pages, as far as they may be used.
    pub(super) retained: Option<Retained>,
    /// Pages that were found damaged.
    pub(super) damaged: u64,
    /// Pages given back, damaged or not wanted.
    pub(super) discarded: u64,
}

/// Takes what the node holds of the program, as far as this launch may use it.
fn take_warm(
    spec: &LaunchSpec,
    program: &ProgramId,
    services: &mut dyn NodeServices,
) -> Result<Warm, LaunchRefusal> {
    let retention = &spec.retention;
    let mut machine = Hardware::new();
    let table = services.warm();
    table.set_limit(&mut machine, warm_limit(retention.limit_pages));
    if retention.keep == Keep::Published {
        // The retain message for this program, if there was one, has come before.
        table.drop_others(&mut machine, Some(program));
    }
    let mut warm = Warm::default();
    if retention.reuse == Reuse::Forbid {
        warm.discarded = table.drop_program(&mut machine, Some(program));
        drop_remains(services.objects(), program);
    }
    warm.retained = services.warm().take(program);
    let misfits = |held: &mut Retained| held.image().file_bytes != spec.program_bytes;
    if let Some(other) = warm.retained.take_if(misfits) {
        // No two files have one hash: the announced size is wrong, and reading will say so.
        warm.discarded = other.discard(&mut machine);
    }
    if let Some(held) = warm
        .retained
        .take_if(|_| retention.verify == Verify::Always)
    {
        warm = verify::all(held, spec, services)?;
    }
    let table = services.warm();
    if warm.retained.is_none() {
        // What was taken and is not used is gone, and control hears of it, whatever comes.
        table.restore(&mut machine, program, None);
        if retention.reuse == Reuse::Require {
            return Err(refusal::not_warm());
        }
    }
    services.keep_room(ROOM_FRAMES);
    Ok(warm)
}

/// A launch that wants nothing of earlier runs: what they left of an image goes too. One that has
/// come whole, or is coming, is no earlier run's.
fn drop_remains(objects: &mut Objects, program: &ProgramId) {
    let id = ObjectId(program.0);
    let remains = |view: &View| view.kept == Kept::Image && !view.whole && !view.in_use;
    if objects.find(&id).as_ref().is_some_and(remains) {
        objects.drop_object(&mut Hardware::new(), &id);
    }
}

/// Pages that all warm programs may have.
fn warm_limit(limit_pages: u32) -> u64 {
    match limit_pages {
        0 => WarmTable::default_limit(mm::frames().usage().total),
        pages => pages.into(),
    }
}

/// What becomes of the program's pages at its end.
fn policy(retention: &Retention) -> Policy {
    Policy {
        keep: retention.keep != Keep::Nothing,
        variant: match retention.read_only {
            true => Variant::ReadOnlyToo,
            false => Variant::ExecutableOnly,
        },
        pristine: retention.pristine,
        limit_pages: warm_limit(retention.limit_pages),
    }
}

impl Process {
    fn new(
        launch: &Launch,
        local: LocalRank,
        cores: usize,
        memory: Memory,
        policy: Policy,
    ) -> Self {
        LIVING.fetch_add(1, Ordering::Relaxed);
        let (first, behind) = (local.index() * cores, (local.index() + 1) * cores);
        let own = CoreSet::first(behind).without(CoreSet::first(first));
        let spec = &launch.spec;
        Process {
            spec: LaunchSpec {
                rank: spec.rank.plus(local),
                ..*spec
            },
            local,
            policy,
            memory: Some(memory),
            threads: Threads::new(FIRST_TID, own),
            cores: Cores::new(behind),
            posted: Posted::default(),
            futexes: Queues::new(),
            ending: None,
            crashed: None,
            name: Vec::new(),
            in_flight: Vec::new(),
            stalled_at: None,
            streams: Streams::new(),
            files: JobFiles::none(),
            signals: Signals::new(),
            lowered: Lowered::default(),
            clock: Clock {
                started: Instant::ZERO,
                limit: None,
                monitor: None,
                armed: false,
            },
            account: Account {
                arrived: launch.arrived,
                ready: launch.arrived,
                first: launch.arrived,
                user_counts: 0,
                system_calls: 0,
                unknown: Vec::new(),
                bytes_loaded: 0,
                pages_damaged: 0,
                pages_discarded: 0,
                faults_from_cast: 0,
                faults_awaited: 0,
                messages_sent: 0,
                message_bytes: 0,
                exchanges: 0,
                interrupts: Counts::new(),
            },
        }
    }

    /// Puts arguments and environment onto the stack, and the pages that are here into place.
    fn load(
        &mut self,
        services: &mut dyn NodeServices,
        block: &[u8],
        head: &[u8],
    ) -> Result<(), LaunchRefusal> {
        let block = launch_block::parse(block)
            .map_err(|error| refusal::bad_block(&format!("{error:?}")))?;
        if block.rank.plus(self.local) != self.spec.rank || block.size != self.spec.size {
            return Err(refusal::bad_block("rank or size differ from the launch"));
        }
        let environment = block.envp.iter().copied();
        let settings = Settings::of(environment, self.spec.size).map_err(refusal::bad_variable)?;
        self.name = block
            .argv
            .first()
            .map_or_else(Vec::new, |name| name.to_vec());
        if block.envp.contains(&QUIET) {
            services.be_quiet();
        }
        for entry in &block.envp {
            if let Some(path) = entry.strip_prefix(launch_block::TMP_EXPORT) {
                services.temporary().set_outside(path, time::of_files());
            }
        }
        self.files = JobFiles::take(services, &block.files)?;
        if let Some(service) = &self.spec.files {
            self.files.work_at_service(service.user);
        }
        self.files
            .set_program(block.argv.first().unwrap_or(&&b""[..]));
        let indexes = self.files.indexes().to_vec();
        self.memory().set_files(indexes);
        let mut random = [0; 16];
        arch::entropy::fill(&mut random);
        let rank = format!("{RANK}{}", self.spec.rank);
        let is_rank = |entry: &[u8]| entry.starts_with(RANK.as_bytes());
        let envp: Vec<&[u8]> = block
            .envp
            .iter()
            .map(|entry| match is_rank(entry) {
                true => rank.as_bytes(),
                false => *entry,
            })
            .collect();
        let start = Start {
            argv: &block.argv,
            envp: &envp,
            random,
            hwcap: u64::from(arch::cpu::hwcap()),
            user: self.files.user,
        };
        let image = self.memory().image();
        let stack =
            InitialStack::build(image, &start, layout::STACK_TOP).map_err(refusal::stack)?;
        let context = UserContext::new(image.entry, stack.pointer);
        let first = Thread::first(FIRST_TID, context);
        self.start_thread(first, self.threads.cores())
            .expect("a process without a thread");
        let top = UserSlice::new(stack.pointer, stack.bytes.len() as u64)
            .expect("the stack lies in user space");
        // A stack is made of empty pages: nothing here waits.
        match self.write_user(services, top, &stack.bytes) {
            Ok(()) => {}
            Err(Stop::Ending(_)) if services.cancelled().is_some() => {
                return Err(refusal::cancelled());
            }
            Err(_) => return Err(refusal::no_memory(services.objects().file_bytes())),
        }
        self.hold_head(head);
        // From now on other ranks may speak to this one.
        let spec = self.spec;
        let view = self.memory().view();
        let now = services.now();
        let exchange = services.exchange();
        exchange.open(now, spec.job, spec.rank, spec.size, settings);
        exchange.lend(view);
        Ok(())
    }

    /// Keeps the pages that were read for the headers, where a segment maps the start of the file.
    fn hold_head(&mut self, head: &[u8]) {
        if head.is_empty() {
            return;
        }
        let maps_start = |segment: &&Segment| {
            let readable = segment.protection != Protection::None;
            segment.offset == 0 && segment.file_end > segment.start && readable
        };
        let Some(segment) = self.memory().image().segments.iter().find(maps_start) else {
            return;
        };
        let (start, end) = (segment.start, segment.file_end);
        let pages = (end - start).min(head.len() as u64).div_ceil(PAGE_SIZE);
        let length = (pages * PAGE_SIZE).min(head.len() as u64);
        let fetch = Fetch {
            page: VirtAddr::new(start),
            pages,
            offset: 0,
            length,
            demand: false,
            write: false,
        };
        let head = &head[..length as usize];
        // Without memory for it the pages are fetched again at their first touch.
        let _ = self.memory().install(&mut Hardware::new(), &fetch, head);
    }

    /// The program is about to run for the first time.
    pub(super) fn begin(&mut self) {
        let now = time::now();
        let after = |micros: u64| (micros != 0).then(|| now + Micros(micros));
        self.clock = Clock {
            started: now,
            limit: after(self.spec.time_limit_us),
            // The interrupts of one rank serve all.
            monitor: after(self.spec.monitor_period_us).filter(|_| self.local == LocalRank::FIRST),
            armed: false,
        };
        self.account.interrupts = arch::interrupts::counts();
        self.account.first = Moment::now();
    }

    /// The earliest deadline of this program but the node's own, with its class.
    pub(super) fn own_deadline(&self) -> (Instant, arch::interrupts::Class) {
        use arch::interrupts::Class;
        let limit = (
            self.clock.limit.unwrap_or(Instant::FAR_FUTURE),
            Class::TimeLimit,
        );
        let monitor = (
            self.clock.monitor.unwrap_or(Instant::FAR_FUTURE),
            Class::Monitor,
        );
        // Both deadlines are the program's own.
        let limit = (limit.0.min(self.timer_deadline()), limit.1);
        if monitor.0 < limit.0 { monitor } else { limit }
    }

    /// When the first of the program's timers expires.
    pub(super) fn timer_deadline(&self) -> Instant {
        let due = self.signals.timers.due_us();
        due.map_or(Instant::FAR_FUTURE, Instant::from_micros)
    }
}

/// Reads the first `length` bytes of an object.
pub(super) fn read_all(
    services: &mut dyn NodeServices,
    object: Object,
    length: u64,
) -> Result<Vec<u8>, LaunchRefusal> {
    let mut bytes = Vec::new();
    // The heap may have the bytes, but not in a row.
    bytes
        .try_reserve_exact(length as usize)
        .map_err(|_| refusal::no_memory(services.objects().file_bytes()))?;
    while (bytes.len() as u64) < length {
        let offset = bytes.len() as u64;
        let wanted = (length - offset).min(u64::from(MAX_REQUEST)) as u32;
        let request = loop {
            match services.request_pages(object, offset, wanted, true) {
                Ok(request) => break request,
                Err(_full) => wait(services)?,
            }
        };
        let piece = loop {
            match services.take_pages() {
                Some(done) if done.request == request => break done.result,
                Some(_) => {}
                None => wait(services)?,
            }
        };
        let piece = piece.map_err(|error| refusal::unreadable(object, &format!("{error:?}")))?;
        if piece.len() < wanted as usize {
            return Err(refusal::unreadable(object, "it is shorter than announced"));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

fn wait(services: &mut dyn NodeServices) -> Result<(), LaunchRefusal> {
    // The endpoint gives up on a page after its own limit of attempts.
    wait_until(services, time::now() + WAIT_STEP)
}

/// Waits once, at most until `deadline`; it may be early. Fails when the job is cancelled.
pub(super) fn wait_until(
    services: &mut dyn NodeServices,
    deadline: Instant,
) -> Result<(), LaunchRefusal> {
    if services.cancelled().is_some() {
        return Err(refusal::cancelled());
    }
    services.wait(deadline);
    Ok(())
}

/// A number for the next program; frames carry it, so that a lost one can be traced. Warm programs
/// keep theirs, and those in `taken`.
fn next_owner(warm: &WarmTable, taken: &[Owner]) -> Owner {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let number = NEXT.load(Ordering::Relaxed) % Owner::MAX + 1;
        NEXT.store(number, Ordering::Relaxed);
        let owner = Owner::program(number);
        // Ends: there are far fewer warm programs than numbers.
        if !warm.owns(owner) && !taken.contains(&owner) {
            return owner;
        }
    }
}
