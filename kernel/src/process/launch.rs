//! From a launch command to a program that is ready to start: headers, launch block, stack.
//!
//! Nothing but the stack is mapped; the pages of the file that were read for the headers are held
//! for the program's first touch.
//!
//! Invariant: a refusal leaves nothing behind, and says in words what to do.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU16, Ordering};

use kernel_core::addr::{PAGE_SIZE, VirtAddr};
use kernel_core::frames::Owner;
use kernel_core::loader::{HEAD_BYTES, Image, LoadError, layout};
use kernel_core::program::{Fetch, Memory, Program, UserSlice};
use kernel_core::retention::{Policy, ProgramId};
use kernel_core::signals::Signals;
use kernel_core::stack::{InitialStack, StackError, Start};
use netstack::job::{LaunchRefusal, LaunchSpec, RefusalCode, launch_block};
use netstack::page::{MAX_REQUEST, Object};
use netstack::time::{Instant, Micros};

use super::ending::Stop;
use super::{Account, Clock, Prepared, Process, Streams};
use crate::agent::services::NodeServices;
use crate::arch::interrupts::Counts;
use crate::arch::user::UserContext;
use crate::mm;
use crate::process::hardware::Hardware;
use crate::{arch, time};

/// Longest single wait for a page of the program.
const WAIT_STEP: Micros = Micros::from_secs(1);

/// Loads the program of `spec`, with its launch block if that came along; it is ready to start when
/// this returns.
pub fn prepare(
    spec: &LaunchSpec,
    block: Option<Vec<u8>>,
    services: &mut dyn NodeServices,
) -> Result<Prepared, LaunchRefusal> {
    let head_bytes = spec.program_bytes.min(HEAD_BYTES);
    let head = read_all(services, Object::Program, head_bytes)?;
    let image = Image::parse(&head, spec.program_bytes).map_err(refuse_file)?;
    let block_bytes = u64::from(spec.launch_block_bytes);
    if block_bytes > launch_block::MAX as u64 {
        return Err(bad_block("it is larger than a node takes"));
    }
    let block = match block {
        Some(block) => block,
        None => read_all(services, Object::LaunchBlock, block_bytes)?,
    };
    let block = launch_block::parse(&block).map_err(|error| bad_block(&format!("{error:?}")))?;
    if block.rank != spec.rank || block.size != spec.size {
        return Err(bad_block("rank or size differ from the launch"));
    }
    let mut random = [0; 16];
    arch::entropy::fill(&mut random);
    let start = Start {
        argv: &block.argv,
        envp: &block.envp,
        random,
        hwcap: u64::from(arch::cpu::hwcap()),
    };
    let stack = InitialStack::build(&image, &start, layout::STACK_TOP).map_err(refuse_stack)?;
    let limit = match spec.memory_limit {
        0 => u64::MAX,
        bytes => bytes,
    };
    let mut machine = Hardware::new();
    let kernel = mm::kernel_table();
    let program = Program {
        id: ProgramId(spec.program.0),
        image: image.clone(),
    };
    let policy = Policy::nothing();
    let memory = Memory::new(&mut machine, program, kernel, next_owner(), limit, policy)
        .map_err(|_| no_memory())?;
    let mut process = Process {
        spec: *spec,
        context: UserContext::new(image.entry, stack.pointer),
        image,
        memory: Some(memory),
        flights: Vec::new(),
        streams: Streams::new(),
        signals: Signals::new(),
        clock: Clock {
            started: time::now(),
            limit: None,
            monitor: None,
            armed: false,
        },
        account: Account {
            user_counts: 0,
            system_calls: 0,
            unknown: Vec::new(),
            bytes_loaded: head.len() as u64,
            interrupts: Counts::new(),
        },
    };
    let top = UserSlice::new(stack.pointer, stack.bytes.len() as u64)
        .expect("the stack lies in user space");
    match process.write_user(services, top, &stack.bytes) {
        Ok(()) => {}
        Err(Stop::Ending(_)) if services.cancelled().is_some() => return Err(cancelled()),
        Err(_) => return Err(no_memory()),
    }
    process.hold_head(&head);
    Ok(Prepared { process })
}

impl Process {
    /// Keeps the pages that were read for the headers, where a segment maps the start of the file.
    fn hold_head(&mut self, head: &[u8]) {
        let Some(segment) =
            self.image.segments.iter().find(|s| {
                s.offset == 0 && s.file_end > s.start && s.protection != protection_none()
            })
        else {
            return;
        };
        let pages = (segment.file_end - segment.start)
            .min(head.len() as u64)
            .div_ceil(PAGE_SIZE);
        let length = (pages * PAGE_SIZE).min(head.len() as u64);
        let fetch = Fetch {
            page: VirtAddr::new(segment.start),
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
}

const fn protection_none() -> kernel_core::paging::entry::Protection {
    kernel_core::paging::entry::Protection::None
}

/// Reads the first `length` bytes of an object.
fn read_all(
    services: &mut dyn NodeServices,
    object: Object,
    length: u64,
) -> Result<Vec<u8>, LaunchRefusal> {
    let mut bytes = Vec::with_capacity(length as usize);
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
        let piece = piece.map_err(|error| unreadable(object, &format!("{error:?}")))?;
        if piece.len() < wanted as usize {
            return Err(unreadable(object, "it is shorter than announced"));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

fn wait(services: &mut dyn NodeServices) -> Result<(), LaunchRefusal> {
    if services.cancelled().is_some() {
        return Err(cancelled());
    }
    // The endpoint gives up on a page after its own limit of attempts.
    services.wait(time::now() + WAIT_STEP);
    Ok(())
}

/// A number for the next program; frames carry it, so that a lost one can be traced.
fn next_owner() -> Owner {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let number = NEXT.load(Ordering::Relaxed) % Owner::MAX + 1;
    NEXT.store(number, Ordering::Relaxed);
    Owner::program(number)
}

fn refusal(code: RefusalCode, text: String) -> LaunchRefusal {
    LaunchRefusal { code, text }
}

fn refuse_file(error: LoadError) -> LaunchRefusal {
    let code = match error {
        LoadError::NotElf | LoadError::NotAProgram(_) | LoadError::BadHeader => RefusalCode::NotElf,
        LoadError::Not64Bit | LoadError::WrongMachine(_) => RefusalCode::WrongMachine,
        LoadError::DynamicallyLinked => RefusalCode::Dynamic,
        LoadError::Truncated { .. } => RefusalCode::Truncated,
        _ => RefusalCode::BadSegments,
    };
    refusal(code, error.to_string())
}

fn refuse_stack(error: StackError) -> LaunchRefusal {
    let text = match error {
        StackError::TooLarge(bytes) => format!(
            "arguments and environment need {bytes} bytes of stack, at most {} are possible: pass less",
            kernel_core::stack::INITIAL_STACK_MAX
        ),
        StackError::ZeroByte => "an argument contains a zero byte".to_string(),
    };
    refusal(RefusalCode::BadLaunchBlock, text)
}

fn bad_block(why: &str) -> LaunchRefusal {
    let text = format!("launch block not understood: {why}; are node and control of one version?");
    refusal(RefusalCode::BadLaunchBlock, text)
}

fn unreadable(object: Object, why: &str) -> LaunchRefusal {
    let text = format!("{object:?} could not be read from the control node: {why}; try again");
    refusal(RefusalCode::Unreadable, text)
}

fn no_memory() -> LaunchRefusal {
    let text = "not enough memory on the node to start a program".to_string();
    refusal(RefusalCode::NoMemory, text)
}

fn cancelled() -> LaunchRefusal {
    refusal(RefusalCode::Cancelled, "cancelled".to_string())
}

impl Process {
    /// The program is about to run for the first time.
    pub(super) fn begin(&mut self, services: &dyn NodeServices) {
        let now = services.now();
        let after = |micros: u64| (micros != 0).then(|| now + Micros(micros));
        self.clock = Clock {
            started: now,
            limit: after(self.spec.time_limit_us),
            monitor: after(self.spec.monitor_period_us),
            armed: false,
        };
        self.account.interrupts = arch::interrupts::counts();
        arch::reset_program_registers();
        let table = self.memory().table();
        mm::activate(table);
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
        if monitor.0 < limit.0 { monitor } else { limit }
    }
}
