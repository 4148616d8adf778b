//! A node without a kernel: the protocol's own node endpoint over a UDP socket, running scripted
//! programs (`fake_program`).
//!
//! It keeps the files of programs that ended, as far as the launch says so, and runs them again
//! without reading them: what a real node does with pages, in one piece.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use netstack::broadcast::wire::is_cast;
use netstack::broadcast::{
    EndReason, Footprint, Member, MemberConfig, MemberEvent, Peer, RefuseReason, Want,
};
use netstack::ids::{BootEpoch, JobId, LocalRank, NodeId, ProgramId};
use netstack::io::{IoOp, SubmitError};
use netstack::job::{LaunchRefusal, LaunchSpec, RefusalCode, StartMode, launch_block};
use netstack::node::{Config, Endpoint, Event};
use netstack::page::{MAX_REQUEST, Object, PageRequest};
use netstack::personality::{Personality, TREE_LEVELS, node_key};
use netstack::retention::{Holding, Keep, Reuse};
use netstack::time::{Instant, Micros};
use netstack::vitals::{BootTimings, Vitals};
use netstack::wire::key::Key;

use crate::fake_memory::Memory;
use crate::fake_program::{Phase, Run, pages, write};
use crate::identity::Identity;

/// What ends a program that does not end within its grace.
const SIGKILL: u8 = 9;

/// Kind of a datagram with data of a cast.
const CAST_DATA: u8 = 73;

/// What tests see of a node while it runs.
#[derive(Debug, Default)]
pub struct Watch {
    stop: AtomicBool,
    /// Bytes of output the protocol has taken from programs.
    pub written: AtomicU64,
    /// Times the node was welcomed.
    pub joins: AtomicU64,
    /// Programs do not wait at `pause` any more.
    pub go: AtomicBool,
    /// Nothing that is sent to the node arrives.
    pub deaf: AtomicBool,
    /// Nothing that the node sends leaves it.
    pub mute: AtomicBool,
    /// There is no room for anything that is cast.
    pub full: AtomicBool,
    /// Blocks that the node sends to others are damaged.
    pub corrupt: AtomicBool,
    /// No data of casts arrives; all else does.
    pub starved: AtomicBool,
    /// Hashes of the files that it holds.
    pub files: Mutex<BTreeSet<[u8; 32]>>,
    /// Casts that it has a part of.
    pub incomplete: AtomicU64,
    /// Casts that it knows, complete or not, with requests, buffers and messages that they left.
    pub kept_of_casts: AtomicU64,
    /// How the casts ended in which it had a part, in order.
    pub ends: Mutex<Vec<EndReason>>,
    /// Bytes of its last connection table.
    pub table: Mutex<Vec<u8>>,
    /// The node loses what it holds and does not know it yet.
    pub forget: AtomicBool,
    /// What it was told, in order: `retain`, `launch warm`, `launch cold`, `drop`.
    pub told: Mutex<Vec<String>>,
    /// Programs that it has held at any time.
    pub ever_held: Mutex<BTreeSet<[u8; 32]>>,
    /// Programs that control has acknowledged and that it has held without a break since.
    pub acknowledged: Mutex<BTreeSet<[u8; 32]>>,
}

impl Watch {
    fn tell(&self, what: &str) {
        self.told.lock().unwrap().push(what.to_string());
    }

    /// What the node was told since the last call.
    pub fn take_told(&self) -> Vec<String> {
        std::mem::take(&mut self.told.lock().unwrap())
    }
}

/// A running node; dropping it pulls its plug.
pub struct FakeNode {
    pub watch: Arc<Watch>,
    thread: Option<JoinHandle<()>>,
}

impl FakeNode {
    /// Switches a node on that finds control at `control`.
    pub fn start(identity: Identity, control: SocketAddr) -> Self {
        let watch = Arc::new(Watch::default());
        let seen = watch.clone();
        let thread = std::thread::spawn(move || Machine::new(identity, control, seen).run());
        FakeNode {
            watch,
            thread: Some(thread),
        }
    }

    /// Pulls the plug.
    pub fn stop(&mut self) {
        self.watch.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the node did not panic");
        }
    }
}

impl Drop for FakeNode {
    fn drop(&mut self) {
        self.watch.stop.store(true, Ordering::Relaxed);
        drop(self.thread.take().map(JoinHandle::join));
    }
}

struct Machine {
    endpoint: Endpoint,
    boot: BootEpoch,
    socket: UdpSocket,
    began: std::time::Instant,
    watch: Arc<Watch>,
    run: Option<Run>,
    /// Files of programs that ended.
    held: BTreeMap<ProgramId, Vec<u8>>,
    unscrubbed: bool,
    control: SocketAddr,
    /// Its part in casts, once it has joined.
    member: Option<Member>,
    memory: Memory,
}

impl Machine {
    fn new(identity: Identity, control: SocketAddr, watch: Arc<Watch>) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let epoch = BootEpoch(identity.epoch);
        let node = NodeId(identity.node);
        let own = || node_key(&identity.secret, 1, identity.mac(), epoch, node);
        let key = identity.lab_key.map_or_else(own, Key);
        let config = Config {
            personality: Personality {
                node,
                control_addr: [127, 0, 0, 1],
                control_port: control.port(),
                http_port: 0,
                tree_height: 0,
                place: [0; TREE_LEVELS],
                key_id: 1,
                key,
                name: format!("n{}", identity.node),
            },
            mac: identity.mac(),
            boot_epoch: epoch,
            lab_key: identity.lab_key.is_some(),
            version: identity.version,
            build_id: [7; 20],
            memory_bytes: 48 << 20,
            cores: identity.cores,
            seed: identity.epoch,
            timings: BootTimings::default(),
        };
        let began = std::time::Instant::now();
        Machine {
            endpoint: Endpoint::new(config, Instant::ZERO),
            socket,
            began,
            watch,
            run: None,
            held: BTreeMap::new(),
            unscrubbed: identity.unscrubbed,
            boot: epoch,
            control,
            member: None,
            memory: Memory::default(),
        }
    }

    fn now(&self) -> Instant {
        Instant::from_micros(u64::try_from(self.began.elapsed().as_micros()).unwrap())
    }

    fn run(mut self) {
        let mut buffer = [0; 2048];
        while !self.watch.stop.load(Ordering::Relaxed) {
            self.endpoint.set_vitals(Vitals {
                uptime_us: self.now().as_micros(),
                joined_us: 12_000,
                joined_idle_us: 4_000,
                memory_free: 40 << 20,
                memory_used: 8 << 20,
                job: self.run.as_ref().map(|run| run.spec.job),
                unscrubbed: self.unscrubbed,
                ..Vitals::default()
            });
            while let Some(event) = self.endpoint.poll_event() {
                self.handle(event);
            }
            self.step();
            self.note_acknowledged();
            let now = self.now();
            while let Some(length) = self.endpoint.poll_transmit(now, &mut buffer[..1472]) {
                // While control is down the system reports that; the protocol repeats.
                if !self.watch.mute.load(Ordering::Relaxed) {
                    drop(self.socket.send_to(&buffer[..length], self.control));
                }
            }
            self.take_part(&mut buffer);
            let cast = self.member.as_ref().and_then(Member::poll_timeout);
            let until = self.endpoint.poll_timeout().into_iter().chain(cast).min();
            let until = until.unwrap_or(Instant::FAR_FUTURE);
            let wait_us = until
                .saturating_since(self.now())
                .as_micros()
                .clamp(100, 10_000);
            self.socket
                .set_read_timeout(Some(Duration::from_micros(wait_us)))
                .unwrap();
            if let Ok((length, SocketAddr::V4(from))) = self.socket.recv_from(&mut buffer)
                && !self.watch.deaf.load(Ordering::Relaxed)
            {
                let now = self.now();
                let datagram = &buffer[..length];
                let starved = self.watch.starved.load(Ordering::Relaxed);
                match &mut self.member {
                    _ if starved && datagram.get(3) == Some(&CAST_DATA) => {}
                    Some(member) if is_cast(datagram) => {
                        member.handle_datagram(now, from, datagram, &mut self.memory);
                    }
                    _ => self.endpoint.handle_datagram(now, datagram),
                }
            }
        }
    }

    /// Sends and settles what there is to send and to settle of casts.
    fn take_part(&mut self, buffer: &mut [u8]) {
        let now = self.now();
        let Some(member) = &mut self.member else {
            return;
        };
        while let Some(event) = member.poll_event() {
            match event {
                MemberEvent::Announced { cast, .. } if self.watch.full.load(Ordering::Relaxed) => {
                    member.refuse(now, cast, RefuseReason::NoRoom);
                }
                MemberEvent::Announced {
                    cast,
                    object,
                    purpose,
                    ..
                } => {
                    let known = self.memory.open(cast, object, purpose);
                    member.accept(now, cast, Want::All, &mut |_| known);
                }
                MemberEvent::Stored { .. } => {}
                MemberEvent::Complete { cast } => self.memory.complete(cast),
                MemberEvent::Ended { cast, reason } => {
                    self.watch.ends.lock().unwrap().push(reason);
                    self.memory.end(cast);
                }
                MemberEvent::Failed { cast, .. } => self.memory.end(cast),
            }
        }
        self.memory.corrupt = self.watch.corrupt.load(Ordering::Relaxed);
        while let Some((to, length)) =
            member.poll_transmit(now, &mut buffer[..1472], &mut self.memory)
        {
            if !self.watch.mute.load(Ordering::Relaxed) {
                drop(self.socket.send_to(&buffer[..length], to.addr));
            }
        }
        let files = self.memory.files.keys().copied();
        *self.watch.files.lock().unwrap() = files.collect();
        self.watch
            .table
            .lock()
            .unwrap()
            .clone_from(&self.memory.table);
        let incomplete = self.memory.incomplete() as u64;
        self.watch.incomplete.store(incomplete, Ordering::Relaxed);
        let Footprint {
            casts,
            requests,
            parked,
            buffers,
            queued,
        } = member.footprint();
        let kept = self.memory.open_casts() + casts + requests + parked + buffers + queued;
        self.watch
            .kept_of_casts
            .store(kept as u64, Ordering::Relaxed);
    }

    /// Joined a run of the control node, with its key for casts.
    fn joined(&mut self, key: Key, time: u64) {
        self.watch.joins.fetch_add(1, Ordering::Relaxed);
        let now = self.now();
        if self.endpoint.takes_log() {
            self.endpoint.log(now, 0, "joined\u{1b}[2J\n");
        }
        if let Some(member) = &mut self.member {
            member.set_key(now, key);
            return member.begin_at(now, time);
        }
        let SocketAddr::V4(addr) = self.socket.local_addr().unwrap() else {
            unreachable!("bound to an IPv4 address");
        };
        let config = MemberConfig {
            node: NodeId(0),
            boot: self.boot,
            me: Peer { addr, mac: [0; 6] },
            control: None,
            key,
            rate: 0,
            buffers: 0,
            credit: 0,
            members: 0,
            seed: u64::from(addr.port()),
        };
        let mut member = Member::new(config, now);
        member.begin_at(now, time);
        self.member = Some(member);
    }

    fn note_acknowledged(&self) {
        if self.endpoint.holdings_acked() {
            let held = self.endpoint.holdings().map(|held| held.program.0);
            *self.watch.acknowledged.lock().unwrap() = held.collect();
        }
    }

    fn handle(&mut self, event: Event) {
        let now = self.now();
        // Between two jobs: what a job leaves behind is kept when its last call is answered.
        let begins = matches!(event, Event::Retain { .. } | Event::Launch { .. });
        if begins && self.watch.forget.swap(false, Ordering::Relaxed) {
            self.held.clear();
        }
        match event {
            Event::Joined {
                peer_key, time_us, ..
            } => self.joined(peer_key, time_us),
            Event::Launch { spec, block, .. } => self.launch(now, spec, block),
            Event::Data {
                request,
                object,
                bytes,
                ..
            } => {
                let Some(run) = &mut self.run else { return };
                if run.asked == Some(request) {
                    run.asked = None;
                    match object {
                        Object::Program => run.program.extend(bytes),
                        Object::LaunchBlock => run.block.extend(bytes),
                        Object::PageHashes => {}
                    }
                }
            }
            Event::Start { job } => {
                if let Some(run) = self.run.as_mut().filter(|run| run.spec.job == job) {
                    run.phase = Phase::Running;
                }
            }
            Event::Cancel {
                job, orphan: true, ..
            } => {
                self.run = self.run.take().filter(|run| run.spec.job != job);
            }
            Event::Cancel {
                job, signal, grace, ..
            } => self.cancel(now, job, signal, grace),
            Event::Signal { job, signal } => {
                self.watch.tell(&format!("signal {signal}"));
                if let Some(run) = self.run.as_mut().filter(|run| run.spec.job == job) {
                    run.deliver(signal);
                }
            }
            Event::Retain { job, program, .. } => {
                self.watch.tell("retain");
                self.let_go(now, |held| held != program);
                let pages = self.held.get(&program).map_or(0, |file| pages(file));
                self.endpoint.retain_result(now, job, pages);
            }
            Event::Drop { id, program } => {
                self.watch.tell("drop");
                let mut freed =
                    self.let_go(now, |held| program.is_none_or(|program| program == held));
                let file = program.and_then(|id| self.memory.files.remove(&id.0));
                freed += file.map_or(0, |file| pages(&file));
                let pages = freed;
                let run = self.run.as_mut();
                let running = run.filter(|run| program.is_none_or(|id| id == run.spec.program));
                let in_use = running.is_some();
                if let Some(run) = running {
                    run.dropped = true;
                }
                self.endpoint.drop_result(now, id, pages, in_use);
            }
            Event::IoDone { call, data, .. } => {
                let Some(run) = &mut self.run else { return };
                if run.reading == Some(call) {
                    run.reading = None;
                    if data.is_empty() {
                        run.script.pop_front();
                    } else {
                        run.calls.push_back(write(1, data));
                    }
                }
            }
            Event::PageFailed { reason, .. } => panic!("a page could not be read: {reason:?}"),
            _ => {}
        }
    }

    fn launch(&mut self, now: Instant, spec: LaunchSpec, block: Option<Vec<u8>>) {
        if spec.retention.reuse == Reuse::Forbid {
            self.let_go(now, |held| held == spec.program);
        }
        let file = self.held.get(&spec.program).cloned();
        let warm = file.is_some();
        self.watch
            .tell(if warm { "launch warm" } else { "launch cold" });
        if !warm && spec.retention.reuse == Reuse::Require {
            let refusal = LaunchRefusal {
                code: RefusalCode::NotWarm,
                text: "it does not hold the program".to_string(),
            };
            return self.endpoint.launch_result(now, spec.job, Err(refusal));
        }
        self.run = Some(Run::new(spec, file, block));
    }

    /// Lets go of the programs that `which` says; gives the pages they had.
    fn let_go(&mut self, now: Instant, which: impl Fn(ProgramId) -> bool) -> u32 {
        let gone: Vec<ProgramId> = self.held.keys().copied().filter(|id| which(*id)).collect();
        let mut freed = 0;
        for program in gone {
            let file = self.held.remove(&program).unwrap();
            freed += pages(&file);
            self.watch.acknowledged.lock().unwrap().remove(&program.0);
            self.endpoint.unhold(now, program);
        }
        freed
    }

    /// The program has ended: keeps what the launch said.
    fn keep(&mut self, now: Instant, run: Run) {
        let program = run.spec.program;
        let keep = match run.spec.retention.keep {
            _ if run.dropped => Keep::Nothing,
            keep => keep,
        };
        match keep {
            Keep::Nothing => {
                self.let_go(now, |held| held == program);
                return;
            }
            Keep::Published => _ = self.let_go(now, |held| held != program),
            Keep::Warm => {}
        }
        let holding = Holding {
            program,
            pages: pages(&run.program),
            pristine: 0,
        };
        self.held.insert(program, run.program);
        self.watch.ever_held.lock().unwrap().insert(program.0);
        self.endpoint.hold(now, holding);
    }

    fn cancel(&mut self, now: Instant, job: JobId, signal: u8, grace: Micros) {
        let Some(run) = self.run.as_mut().filter(|run| run.spec.job == job) else {
            return;
        };
        if run.phase == Phase::Loading {
            let text = "cancelled".to_string();
            let refusal = LaunchRefusal {
                code: RefusalCode::Cancelled,
                text,
            };
            self.endpoint.cancel_requests(job);
            self.endpoint.launch_result(now, job, Err(refusal));
            self.run = None;
        } else if run.phase == Phase::Running && grace > Micros::ZERO {
            run.kill_at = Some(now + grace);
            run.deliver(signal);
        } else {
            run.end(signal);
        }
    }

    /// Goes on with the program as far as it can.
    fn step(&mut self) {
        let now = self.now();
        let Some(run) = &mut self.run else { return };
        if run.kill_at.is_some_and(|at| at <= now) {
            run.end(SIGKILL);
        }
        if run.phase == Phase::Loading
            && run.program.is_empty()
            && let Some(image) = self.memory.images.get(&run.spec.program.0)
        {
            run.program.clone_from(image);
        }
        if run.phase == Phase::Loading && run.asked.is_none() {
            let block_bytes = u64::from(run.spec.launch_block_bytes);
            let (object, have, all) = if (run.program.len() as u64) < run.spec.program_bytes {
                (
                    Object::Program,
                    run.program.len() as u64,
                    run.spec.program_bytes,
                )
            } else {
                (Object::LaunchBlock, run.block.len() as u64, block_bytes)
            };
            if have < all {
                let length = u32::try_from((all - have).min(u64::from(MAX_REQUEST))).unwrap();
                let job = run.spec.job;
                let request = PageRequest {
                    job,
                    object,
                    offset: have,
                    length,
                    demand: true,
                };
                run.asked = Some(self.endpoint.request_pages(now, request).unwrap());
            } else {
                self.loaded(now);
            }
            return;
        }
        if run.phase == Phase::Running {
            self.execute(now);
        }
    }

    fn loaded(&mut self, now: Instant) {
        let Some(run) = &mut self.run else { return };
        let job = run.spec.job;
        let block = launch_block::parse(&run.block).expect("control sends a sound launch block");
        assert_eq!(block.rank, run.spec.rank);
        let mine = format!("rank {} ", run.spec.rank);
        let text = String::from_utf8(run.program.clone()).expect("a script is text");
        let own = |line: &str| match line.strip_prefix("rank ") {
            None => Some(line.to_string()),
            Some(_) => line.strip_prefix(&mine).map(str::to_string),
        };
        for file in &block.files {
            let bytes = self.memory.files.get(&file.object);
            assert_eq!(
                bytes.map(|bytes| bytes.len() as u64),
                Some(file.bytes),
                "files come first"
            );
            let text = String::from_utf8_lossy(bytes.unwrap())
                .lines()
                .next()
                .unwrap_or("")
                .to_string();
            run.files.insert(file.name.to_string(), text);
        }
        run.script = text
            .lines()
            .filter(|line| !line.is_empty())
            .filter_map(own)
            .collect();
        let refusal = run
            .script
            .front()
            .and_then(|line| line.strip_prefix("refuse "));
        if let Some(text) = refusal {
            let refusal = LaunchRefusal {
                code: RefusalCode::NotElf,
                text: text.to_string(),
            };
            self.endpoint.launch_result(now, job, Err(refusal));
            self.run = None;
            return;
        }
        run.phase = match run.spec.start {
            StartMode::OnCommand => Phase::Ready,
            StartMode::AtOnce => Phase::Running,
        };
        self.endpoint.launch_result(now, job, Ok(()));
    }

    fn execute(&mut self, now: Instant) {
        while let Some(run) = &mut self.run {
            let job = run.spec.job;
            if let Some(op) = run.calls.front() {
                match self
                    .endpoint
                    .io_submit(now, job, LocalRank::FIRST, op.clone())
                {
                    Ok(call) => {
                        if matches!(op, IoOp::Read { .. }) {
                            run.reading = Some(call);
                        }
                        if let IoOp::Write { data, .. } = &op {
                            let bytes = data.len() as u64;
                            self.watch.written.fetch_add(bytes, Ordering::Relaxed);
                        }
                        run.calls.pop_front();
                        continue;
                    }
                    Err(SubmitError::Full) => return,
                    Err(error) => panic!("submitting {op:?}: {error:?}"),
                }
            }
            if run.exited {
                if self.endpoint.io_pending(job, LocalRank::FIRST) == 0
                    && let Some(run) = self.run.take()
                {
                    self.keep(now, run);
                }
                return;
            }
            if run.script.front().is_some_and(|line| line == "evict") {
                run.script.pop_front();
                let own = run.spec.program;
                self.let_go(now, |held| held != own);
                continue;
            }
            if run.script.front().is_some_and(|line| line == "pause") {
                if !self.watch.go.load(Ordering::Relaxed) {
                    return;
                }
                run.script.pop_front();
                continue;
            }
            if run.reading.is_some() || !run.next_command() {
                return;
            }
        }
    }
}
