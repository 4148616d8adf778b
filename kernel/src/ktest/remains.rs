//! Nothing of a job is left anywhere in memory when the next one runs.
//!
//! The first job has a *marker*, 32 random bytes, in its arguments, its environment, its memory,
//! its input and its output, in files in `/tmp`, and in a message of another rank. While the second
//! job runs, all of physical memory is searched for pieces of it. The test itself keeps the marker
//! masked.
//!
//! Key types: [`Marker`]; [`Control`], the protocol's other side, which answers on the wire of a
//! whole node. Neighbours: `wire` has the wire, `control` the fake that stands for a node where
//! messages are looked at.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};

use hearth_abi::exchange::{FOREVER, Kind, OPERATION_BYTES, Operation};
use hearth_abi::linux::open;
use hearth_abi::sysno;
use kernel_core::addr::{PAGE_SIZE, PhysAddr, VirtAddr};
use kernel_core::cmdline::PeerPath;
use kernel_core::phys::PhysMem;
use netstack::MAX_DATAGRAM;
use netstack::control::{self, Endpoint, Event, Limits};
use netstack::exchange::Op;
use netstack::ids::{BootEpoch, ControlEpoch, JobId, NodeId, ProgramId, Rank};
use netstack::io::{ExitStatus, IoOp, IoReply, MAX_CALL_DATA, WINDOW};
use netstack::job::{JobSpec, PlaceSpec, StartMode, launch_block};
use netstack::join::Timing;
use netstack::page::{Object, PageReply};
use netstack::personality::{Personality, TREE_LEVELS};
use netstack::retention::Retention;
use netstack::time::Micros;
use netstack::vitals::BootTimings;
use netstack::wire::key::Key;
use smoltcp::wire::Ipv4Cidr;
use spin::Mutex;

use super::control::FakeControl;
use super::fake_ranks::{FakeRanks, KEY};
use super::files::{BUFFER, Script};
use super::program::{expect, file, run};
use super::wire::{CARD_MAC, Wire};
use super::{Outcome, check};
use crate::agent::identity::Identity;
use crate::agent::{self, node::Node};
use crate::arch::{entropy, test_programs};
use crate::mm::{self, DirectMap};
use crate::{boot, net, process, time};

const BYTES: usize = 32;
const MASK: u8 = 0xa5;
/// Copies of it in a row that the first job reads and writes: as much as fits a call.
const COPIES: usize = MAX_CALL_DATA / BYTES;
/// Copies in its arguments, and as many in its environment.
const ARGUMENTS: usize = 12;
const LENGTH: u64 = (COPIES * BYTES) as u64;
/// Bytes of the marker that are looked for at once: a word at any of its places but the last few.
const PLACES: usize = BYTES - 7;
/// Bytes of the message that the program receives, and of one that it does not: both fit a
/// datagram.
const MESSAGE: usize = 16 * BYTES;
/// Bytes of the kernel's stack that are filled: deeper than any call of the second job goes.
const DEPTH: usize = 16 * 1024;
/// Writes of the marker to each file in `/tmp`: they fill several pages.
const TMP_WRITES: usize = 8;
/// How long the two jobs may take; load on the host is forgiven.
const PATIENCE: Micros = Micros::from_secs(60);

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 117, 0, 1);
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 117, 1, 1);
const CONTROL: SocketAddrV4 = SocketAddrV4::new(SERVER, netstack::CONTROL_PORT);
const AT_NODE: SocketAddrV4 = SocketAddrV4::new(ADDRESS, netstack::NODE_PORT);
const NODE: NodeId = NodeId(1);
const SECRET: Key = Key([9; 16]);

/// Random bytes that are nowhere else, masked.
#[derive(Clone)]
pub(super) struct Marker([u8; BYTES]);

impl Marker {
    pub(super) fn new() -> Self {
        let mut masked = [0; BYTES];
        entropy::fill(&mut masked);
        // Arguments have no zeros in them.
        for byte in masked.iter_mut().filter(|byte| **byte == MASK) {
            *byte = 1;
        }
        Self(masked)
    }

    /// The marker, for a while.
    fn show(&self) -> Vec<u8> {
        self.0.iter().map(|byte| byte ^ MASK).collect()
    }

    /// So many bytes of the marker, again and again.
    pub(super) fn show_often(&self, bytes: usize) -> Vec<u8> {
        let all = self.0.iter().cycle().take(bytes);
        all.map(|byte| byte ^ MASK).collect()
    }

    /// Leaves it on the kernel's stack, below all that is in use.
    #[inline(never)]
    fn leave_on_stack(&self) {
        let mut stack = [0; DEPTH];
        for (place, byte) in stack.iter_mut().zip(self.0.iter().cycle()) {
            *place = byte ^ MASK;
        }
        core::hint::black_box(&mut stack);
    }

    /// Whether these bytes are the marker again and again.
    pub(super) fn is_all_of(&self, bytes: &[u8]) -> bool {
        let masked = bytes.iter().map(|byte| byte ^ MASK);
        masked.eq(self.0.iter().copied().cycle().take(bytes.len())) && !bytes.is_empty()
    }

    /// Where in memory there is a piece of it: all that the kernel maps, whatever it is used for.
    pub(super) fn find(&self) -> Vec<u64> {
        let mask = u64::from_le_bytes([MASK; 8]);
        let mut wanted = [0; PLACES];
        // Which values the first bytes of the words have that are looked for, masked.
        let mut first = [false; 256];
        for (word, bytes) in wanted.iter_mut().zip(self.0.windows(8)) {
            *word = bytes.try_into().map_or(0, u64::from_le_bytes);
            first[usize::from(bytes[0])] = true;
        }
        let mut found = Vec::new();
        let end = mm::memory_end();
        for frame in (0..end).step_by(PAGE_SIZE as usize) {
            let mapped = VirtAddr::new(mm::layout::PHYSICAL_MAP + frame);
            if mm::kernel_translate(mapped).is_none() {
                continue;
            }
            for at in (frame..frame + PAGE_SIZE).step_by(8) {
                let word = DirectMap.read_u64(PhysAddr::new(at)) ^ mask;
                if first[usize::from(word as u8)] && wanted.contains(&word) {
                    found.push(at);
                }
            }
        }
        found
    }
}

/// What was found, in words.
pub(super) fn report(found: &[u64]) -> String {
    let places = found.iter().take(16).map(|&at| {
        let (state, _) = mm::frames().state(PhysAddr::new(at & !(PAGE_SIZE - 1)));
        let mapped = mm::kernel_areas(PhysAddr::new(at));
        format!("{at:#x} ({state:?}, {mapped})")
    });
    let places: Vec<_> = places.collect();
    format!("{} words of it: {}", found.len(), places.join(", "))
}

/// The control node of two jobs.
struct Control {
    endpoint: Endpoint,
    marker: Marker,
    /// The program files of the two jobs.
    programs: [Vec<u8>; 2],
    /// How many were launched, and have ended.
    launched: usize,
    closed: usize,
    /// Which jobs have told that they got the marker.
    output: bool,
    /// While the first job runs the stack is filled with the marker, as by functions that have
    /// returned.
    fills_stack: bool,
    /// Where the marker was found while the second job ran.
    found: Option<Vec<u64>>,
    failed: Option<String>,
    buffer: Vec<u8>,
}

impl Control {
    fn new(marker: Marker, fills_stack: bool, programs: [Vec<u8>; 2]) -> Self {
        let config = control::Config {
            cluster_secret: SECRET.0,
            key_id: 1,
            version: boot::facts().version,
            accept_lab_keys: true,
            control_epoch: ControlEpoch(7),
            peer_key: KEY,
            seed: 7,
            timing: Timing::default(),
            limits: Limits::default(),
        };
        Self {
            endpoint: Endpoint::new(config),
            marker,
            programs,
            launched: 0,
            closed: 0,
            output: false,
            fills_stack,
            found: None,
            failed: None,
            buffer: vec![0; MAX_DATAGRAM],
        }
    }

    /// Takes what the node has sent and answers it.
    fn turn(&mut self, wire: &Wire) {
        let now = time::now();
        while let Some(sent) = wire.take_udp() {
            self.endpoint.handle_datagram(now, AT_NODE, &sent.payload);
        }
        while let Some(event) = self.endpoint.poll_event() {
            self.take(event);
        }
        while let Some((_, length)) = self.endpoint.poll_transmit(now, &mut self.buffer) {
            wire.put_udp(CONTROL, AT_NODE, &self.buffer[..length]);
        }
        self.buffer.fill(0);
    }

    fn take(&mut self, event: Event) {
        let now = time::now();
        match event {
            Event::NodeJoined { .. } => self.launch(),
            Event::JobClosed { .. } => {
                self.closed += 1;
                if self.closed < self.programs.len() {
                    self.launch();
                }
            }
            Event::PageWanted(wanted) => {
                let file = &self.programs[self.launched - 1];
                let from = (wanted.offset as usize).min(file.len());
                let to = (from + wanted.length as usize).min(file.len());
                let is_program = wanted.object == Object::Program;
                let bytes = file[from..to].to_vec();
                if is_program {
                    let reply = PageReply {
                        wanted,
                        bytes: Ok(bytes),
                    };
                    self.endpoint.page_data(now, reply);
                } else {
                    self.fail("the node wants something that is not the program");
                }
            }
            Event::IoCall {
                node,
                job,
                rank,
                call,
                op,
            } => {
                let reply = self.carry_out(op);
                self.endpoint.io_reply(now, node, (job, rank), call, reply);
            }
            Event::LaunchRefused { text, .. } => self.fail(&text),
            Event::NodeLost { .. } | Event::RankLost { .. } => self.fail("the node is lost"),
            _ => {}
        }
    }

    fn carry_out(&mut self, op: IoOp) -> IoReply {
        let mut data = Vec::new();
        let result = match op {
            IoOp::Read { .. } => {
                data = self.marker.show_often(COPIES * BYTES);
                data.len()
            }
            IoOp::Write { data, .. } => {
                match self.launched {
                    1 => {
                        self.output |= self.marker.is_all_of(&data);
                        if self.fills_stack {
                            self.marker.leave_on_stack();
                        }
                    }
                    _ => self.found = Some(self.marker.find()),
                }
                data.len()
            }
            IoOp::Exit(report) => {
                let well = matches!(report.status, ExitStatus::Exited(0 | 7));
                if !well {
                    self.fail(&format!("job {} ended: {:?}", self.launched, report.status));
                }
                0
            }
            IoOp::Report { .. } => 0,
        };
        IoReply {
            result: result as i64,
            data,
        }
    }

    /// Launches the next job; the first has the marker.
    fn launch(&mut self) {
        let shown = match self.launched {
            0 => self.marker.show(),
            _ => Vec::new(),
        };
        let mut variable = b"MARKER=".to_vec();
        variable.extend_from_slice(&shown);
        let (argv, envp) = ([&shown[..]; ARGUMENTS], [&variable[..]; ARGUMENTS]);
        let block = launch_block::emit(Rank(0), 1, &argv, &envp, &[]);
        let block = block.expect("a small launch block");
        let program = &self.programs[self.launched];
        let spec = JobSpec {
            job: JobId(self.launched as u64 + 1),
            submitted_us: 1,
            places: vec![PlaceSpec {
                node: NODE,
                ranks: 1,
                launch_block: Arc::from(&block[..]),
                retain: false,
                files: None,
            }],
            program: ProgramId([self.launched as u8 + 1; 32]),
            program_bytes: program.len() as u64,
            time_limit_us: 0,
            monitor_period_us: 0,
            memory_limit: 0,
            retention: Retention::NOTHING,
            start: StartMode::AtOnce,
            cores: 0,
            core_bytes: 0,
        };
        self.launched += 1;
        if let Err(error) = self.endpoint.launch(time::now(), spec) {
            self.fail(&format!("launch: {error:?}"));
        }
    }

    fn fail(&mut self, why: &str) {
        self.failed.get_or_insert(why.into());
    }

    fn is_done(&self) -> bool {
        self.closed == self.programs.len() || self.failed.is_some()
    }
}

/// A node on a wire, as its command line may say who it is.
fn node(card: &'static mut dyn crate::drivers::nic::Nic) -> Node {
    let boot = boot::facts();
    let identity = Identity {
        boot_epoch: entropy::random_u64(),
        fixed: Some(Personality {
            node: NODE,
            control_addr: SERVER.octets(),
            control_port: netstack::CONTROL_PORT,
            http_port: 0,
            tree_height: 0,
            place: [0; TREE_LEVELS],
            key_id: 1,
            key: SECRET.node_key(1, CARD_MAC, BootEpoch(0), NODE),
            name: "n1".into(),
        }),
    };
    let config = net::Config {
        address: Some((Ipv4Cidr::new(ADDRESS, 16), None)),
        wants_personality: false,
        version: "test",
        boot_epoch: identity.boot_epoch,
        peers: PeerPath::Direct,
    };
    let stack = net::Stack::new(card, &config, time::now());
    Node::new(boot, identity, stack, BootTimings::default())
}

/// What the first job was given and said is nowhere while the second runs.
pub fn of_a_job() -> Outcome {
    let marker = Marker::new();
    let found = two_jobs(&marker, false)?;
    check!(found.is_empty(), "of the first job {}", report(&found));
    // One who keeps it is seen.
    let kept = marker.show();
    check!(
        !marker.find().is_empty(),
        "a marker that is there was not found"
    );
    drop(kept);
    Ok(())
}

/// What functions that served the first job left on the stack is not there while the second runs.
/// Bytes of a value that mean nothing are copied with it, so some may be elsewhere.
pub fn on_the_stack() -> Outcome {
    let mut found = two_jobs(&Marker::new(), true)?;
    found.retain(|&at| mm::kernel_areas(PhysAddr::new(at)).contains("stacks"));
    check!(found.is_empty(), "of the first job {}", report(&found));
    Ok(())
}

/// A whole node runs the two jobs; where the marker of the first was found while the second ran.
fn two_jobs(marker: &Marker, fills_stack: bool) -> Result<Vec<u64>, String> {
    let mut script = Script::new();
    script
        .call(sysno::READ, &[0, BUFFER, LENGTH], LENGTH)
        .call(
            sysno::PREAD64,
            &[0, BUFFER, 1, 0],
            hearth_abi::errno::Errno::ESPIPE.as_return(),
        )
        .show(BUFFER, LENGTH);
    // A file in `/tmp` that is there when the job ends, one that has no name any more, and what was
    // cut off one.
    let [kept, gone, cut] = ["/tmp/kept", "/tmp/gone", "/tmp/cut"].map(|name| script.string(name));
    for (fd, path) in (3..).zip([kept, gone, cut]) {
        script.call(
            sysno::OPEN,
            &[path, open::READ_WRITE | open::CREATE, 0o600],
            fd,
        );
        for _ in 0..TMP_WRITES {
            script.call(sysno::WRITE, &[fd, BUFFER, LENGTH], LENGTH);
        }
    }
    script
        .call(sysno::UNLINK, &[gone], 0)
        .call(sysno::FTRUNCATE, &[5, 10], 0)
        .call(sysno::CLOSE, &[3], 0);
    // The control node keeps its answers to the last calls, and here it is in the same memory.
    for _ in 0..WINDOW {
        script.show(BUFFER + 2 * PAGE_SIZE, 8);
    }
    let programs = [script.program(), file(test_programs::write_and_sum())];
    let (wire, card) = Wire::new();
    let control = Arc::new(Mutex::new(Control::new(
        marker.clone(),
        fills_stack,
        programs,
    )));
    let at_wire = control.clone();
    wire.set_peer(Box::new(move |wire| at_wire.lock().turn(wire)));
    let mut node = node(card);
    let end = time::now() + PATIENCE;
    while !control.lock().is_done() {
        check!(time::now() < end, "two jobs take longer than {PATIENCE}");
        agent::dispatch(&mut node, end);
    }
    let control = control.lock();
    if let Some(why) = &control.failed {
        return Err(why.clone());
    }
    check!(control.output, "the first job has not told the marker");
    control.found.clone().ok_or("nobody looked".into())
}

/// A program receives one message of another rank and leaves another waiting; the next has neither.
pub fn of_messages() -> Outcome {
    let marker = Marker::new();
    let mut script = Script::new();
    let receive = Operation {
        kind: Kind::Receive as u16,
        rank: 1,
        receive: BUFFER,
        receive_bytes: MESSAGE as u64,
        ..Operation::default()
    };
    let bytes = receive.to_bytes();
    let (words, _) = bytes.as_chunks();
    let words: Vec<u64> = words.iter().copied().map(u64::from_le_bytes).collect();
    let at = script.words(&words);
    script.call(sysno::HEARTH_POST, &[at, OPERATION_BYTES as u64], 1);
    let (list, status) = (script.words(&[1]), script.words(&[0; 3]));
    script
        .call(sysno::HEARTH_WAIT, &[list, 1, status, 0, FOREVER], 1)
        .show(BUFFER, MESSAGE as u64);
    let mut control = FakeControl::new(script.program());
    control.set_size(2);
    let job = control.spec().job;
    control.exchange.launched(job, KEY);
    let mut ranks = FakeRanks::new(2, time::now());
    for tag in [1, 0] {
        let buffer = ranks.buffer(1, marker.show_often(MESSAGE));
        let bytes = MESSAGE as u64;
        let (to, context) = (Rank(0), 0);
        let send = Op::Send {
            to,
            context,
            tag,
            buffer,
            bytes,
            is_synchronous: false,
        };
        ranks.plan(time::now(), 1, send);
    }
    control.ranks = Some(ranks);
    let exit = run(&mut control)?;
    expect(&exit.report, ExitStatus::Exited(0))?;
    check!(
        marker.is_all_of(&control.output(1)),
        "the message has not come"
    );
    // The other rank, and what the program wrote, are the test's.
    control.ranks = None;
    control.set_size(1);
    control.next_program(file(test_programs::write_and_sum()));
    mm::scrub_stack();
    let launch = control.launch();
    let prepared = process::prepare(&launch, &mut control).map_err(|why| format!("{why:?}"))?;
    let found = marker.find();
    check!(found.is_empty(), "of a message {}", report(&found));
    let exit = prepared.run_alone(&mut control);
    expect(&exit.report, ExitStatus::Exited(7))
}
