//! The service: its socket, the channels of all ranks, and a worker for each job that calls.
//!
//! One thread has all of it ([`Engine`]); others tell it by a queue which jobs there are. A worker
//! is started at the first call of its job, so that a job without calls costs nothing. It outlives
//! the service: the next one finds it ([`attached`]), and what was open is open.
//!
//! Invariant: nothing here touches a file of a job; a worker that dies fails the calls it had, and
//! no other's.

mod attached;
mod reads;
mod runs;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use netstack::MAX_DATAGRAM;
use netstack::files::server::{Counters, Member, Request, Server};
use netstack::files::{Call, ChannelId, Op, Reply, WORKING};
use netstack::ids::{JobId, NodeId, Rank};
use netstack::time::Instant as NetInstant;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBufForce;

use crate::job::JobFiles;
use crate::message::{self, FromReads, LEAVES, Setup};
use attached::{Directory, Worker};

pub use crate::message::Cast;
pub use reads::Read;
use reads::Receiving;
use runs::Runs;

/// Datagrams taken in before what they caused is sent.
const BATCH: usize = 128;
/// Receive buffer in bytes: the windows of 64 nodes. The system may give less.
const SOCKET_BUFFER_BYTES: usize = 8 * 1024 * 1024;
/// Time for a worker to end by itself when its job is over.
const GRACE: Duration = Duration::from_secs(2);
/// Between two starts of a worker there is as much: one that dies at once is not started all the
/// time.
const AGAIN: Duration = Duration::from_secs(1);
/// How often workers that are to end are looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How long workers wait for the next service: as long as nodes wait for an answer to a call
/// ([`netstack::files::client::SILENCE`]).
pub const LINGERS_S: u64 = netstack::files::client::SILENCE.as_micros() / 1_000_000;
/// Linux's EIO.
const EIO: i64 = 5;
/// What is said of a job whose worker was not there any more when the service came.
const LOST_MEANWHILE: &str = "the process that carried its calls out ended while its service was \
    away; calls under way then gave EIO, and so do files that cannot be opened again";

/// A running service. It stops when this is dropped.
#[derive(Debug)]
pub struct Service {
    address: SocketAddrV4,
    orders: Sender<Order>,
    wake: UnixStream,
    told: Arc<Mutex<Told>>,
    reads: Mutex<Option<Receiver<Read>>>,
    thread: Option<JoinHandle<()>>,
}

/// What a service has its workers from.
#[derive(Clone, Debug)]
pub struct Workers<'a> {
    /// What is started, with [`worker::COMMAND`](crate::worker::COMMAND), for each of them.
    pub program: PathBuf,
    /// Where they listen for their service: a directory of this user alone, made where it is not
    /// there. The service that comes next finds them by it.
    pub directory: &'a Path,
    /// How long they wait for it.
    pub lingers_s: u64,
    /// The file that has the number of the last run; made where it is not there. It shall outlast a
    /// boot of the machine.
    pub last_run: &'a Path,
}

/// What the service tells.
#[derive(Debug, Default)]
struct Told {
    counters: Counters,
    problems: VecDeque<Problem>,
}

/// A job whose calls cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The job.
    pub job: JobId,
    /// Why, in words.
    pub why: String,
}

/// Problems that nobody has asked for: the oldest go first.
const MOST_PROBLEMS: usize = 1024;

#[derive(Debug)]
enum Order {
    Admit(Box<JobFiles>),
    Add(JobId, Vec<Member>),
    Leave(JobId, Rank),
    Close(JobId),
    CloseOthers(BTreeSet<JobId>),
    Cast(JobId, Cast),
    Stop,
}

impl Service {
    /// Starts a service at an address.
    ///
    /// # Errors
    /// When the socket cannot be opened there, the directory of the workers is none, or the number
    /// of the run cannot be kept.
    pub fn start(listen: SocketAddrV4, workers: Workers<'_>) -> io::Result<Self> {
        Self::start_on(UdpSocket::bind(listen)?, workers)
    }

    /// Starts a service on a socket that has its address.
    ///
    /// # Errors
    /// When the socket is none of IPv4, there is no thread for it, the directory is none, or the
    /// number of the run cannot be kept.
    pub fn start_on(socket: UdpSocket, workers: Workers<'_>) -> io::Result<Self> {
        let directory = Directory::open(workers.directory)?;
        let (runs, run) = Runs::begin(workers.last_run)?;
        // Less only costs repeats. Root may have more than others.
        let sock = socket2::SockRef::from(&socket);
        drop(sock.set_recv_buffer_size(SOCKET_BUFFER_BYTES));
        drop(sock.set_send_buffer_size(SOCKET_BUFFER_BYTES));
        let _ = setsockopt(&socket, RcvBufForce, &SOCKET_BUFFER_BYTES);
        socket.set_nonblocking(true)?;
        let address = match socket.local_addr()? {
            SocketAddr::V4(address) => address,
            SocketAddr::V6(_) => return Err(ErrorKind::AddrNotAvailable.into()),
        };
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let (orders, taken) = channel();
        let told = Arc::<Mutex<Told>>::default();
        let (takes, reads) = sync_channel(reads::MOST_WAITING);
        let mut engine = Engine {
            socket,
            woken,
            orders: taken,
            program: workers.program,
            lingers_s: workers.lingers_s,
            directory,
            server: Server::new(NetInstant::ZERO, run),
            runs,
            jobs: BTreeMap::new(),
            receiving: Receiving::new(takes),
            ending: Vec::new(),
            unsent: None,
            started: Instant::now(),
            told: Arc::clone(&told),
        };
        let thread = std::thread::Builder::new()
            .name("files".to_owned())
            .spawn(move || engine.run())?;
        Ok(Self {
            address,
            orders,
            wake,
            told,
            reads: Mutex::new(Some(reads)),
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// Carries out the calls of a job from now on. One that is served already, with the same files,
    /// goes on: its ranks may be others.
    pub fn admit(&self, files: JobFiles) {
        self.order(Order::Admit(Box::new(files)));
    }

    /// More ranks of a job that is served. One that is known goes on, under another key anew.
    pub fn add(&self, job: JobId, members: Vec<Member>) {
        self.order(Order::Add(job, members));
    }

    /// A rank of a job has ended: what it had open is closed, and its locks are free.
    pub fn leave(&self, job: JobId, rank: Rank) {
        self.order(Order::Leave(job, rank));
    }

    /// The job is over: its worker ends.
    pub fn close(&self, job: JobId) {
        self.order(Order::Close(job));
    }

    /// All jobs but these are over, those too whose workers a service before this one has left.
    pub fn close_others(&self, served: BTreeSet<JobId>) {
        self.order(Order::CloseOthers(served));
    }

    /// Files that many nodes read, as they are to be cast; to be asked once. Each is answered with
    /// [`Self::cast`].
    pub fn reads(&self) -> Option<Receiver<Read>> {
        let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        reads.take()
    }

    /// What has become of a file that many nodes of a job read.
    pub fn cast(&self, job: JobId, cast: Cast) {
        self.order(Order::Cast(job, cast));
    }

    /// What was counted.
    pub fn counters(&self) -> Counters {
        self.told().counters
    }

    /// The next problem of a job that has not been told yet.
    pub fn next_problem(&self) -> Option<Problem> {
        self.told().problems.pop_front()
    }

    /// Whether there is one.
    pub fn has_problem(&self) -> bool {
        !self.told().problems.is_empty()
    }

    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn order(&self, order: Order) {
        // Without a thread there is nobody to obey; a full pipe wakes it as well.
        if self.orders.send(order).is_ok() {
            let _ = (&self.wake).write(&[0]);
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.order(Order::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the thread has.
struct Engine {
    socket: UdpSocket,
    woken: UnixStream,
    orders: Receiver<Order>,
    program: PathBuf,
    directory: Directory,
    lingers_s: u64,
    server: Server,
    runs: Runs,
    jobs: BTreeMap<JobId, Job>,
    /// Files that many nodes read.
    receiving: Receiving,
    /// Workers of jobs that are over, and until when they may live.
    ending: Vec<(Worker, Instant)>,
    /// A datagram that the socket had no room for.
    unsent: Option<(Vec<u8>, SocketAddr)>,
    started: Instant,
    told: Arc<Mutex<Told>>,
}

struct Job {
    setup: Setup,
    /// Why its calls are not carried out.
    refused: Option<String>,
    /// The last worker served.
    served: bool,
    /// Calls that came before another worker may be started.
    waiting: Vec<Request>,
    worker: Option<Worker>,
    /// When its last worker was started.
    started: Option<Instant>,
}

impl Engine {
    fn run(&mut self) {
        let mut datagram = [0; MAX_DATAGRAM + 1];
        let mut packet = vec![0; message::MAX];
        let mut more = false;
        while self.obey() {
            let heard = self.wait(more);
            more = self.receive(&mut datagram);
            for job in heard {
                self.collect(job, &mut packet);
            }
            self.hand_out();
            if let Err(error) = self.runs.used(self.server.highest()) {
                tracing::warn!("the number of this run cannot be kept: {error}");
            }
            self.transmit(&mut datagram);
            self.bury();
            self.told().counters = self.server.counters();
        }
        // Workers of jobs that go on wait for the next service. One that is to end and that a disk
        // holds fast cannot be killed, and is left.
        let until = Instant::now() + GRACE + GRACE;
        while !self.ending.is_empty() && Instant::now() < until {
            self.bury();
            std::thread::sleep(LOOK);
        }
    }

    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> NetInstant {
        NetInstant::from_micros(self.started.elapsed().as_micros() as u64)
    }

    /// Takes orders; false when the service is to stop.
    fn obey(&mut self) -> bool {
        let mut bytes = [0; 64];
        while matches!(self.woken.read(&mut bytes), Ok(1..)) {}
        loop {
            match self.orders.try_recv() {
                Ok(Order::Admit(files)) => self.admit(*files),
                Ok(Order::Add(job, members)) => self.add(job, members),
                Ok(Order::Leave(job, rank)) => self.leave(job, rank),
                Ok(Order::Close(job)) => self.end(job),
                Ok(Order::CloseOthers(served)) => self.close_others(&served),
                Ok(Order::Cast(job, cast)) => self.tell_worker(job, &cast),
                Err(std::sync::mpsc::TryRecvError::Empty) => return true,
                Ok(Order::Stop) | Err(std::sync::mpsc::TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Serves more ranks of a job, if it is known.
    fn add(&mut self, job: JobId, members: Vec<Member>) {
        match self.jobs.get(&job).map(Job::run_found) {
            // Of a worker that was found before any of its ranks was known.
            Some(Some(run)) if self.server.run_of(job).is_none() => {
                self.server.admit_in(job, members, run);
            }
            Some(_) => self.server.admit(job, members),
            None => {}
        }
    }

    fn admit(&mut self, files: JobFiles) {
        let mut setup = Setup {
            version: message::VERSION,
            run: 0,
            lingers_s: self.lingers_s,
            identity: files.identity,
            user: files.user,
            exports: files.exports,
            working: files.working,
        };
        let known = self.jobs.get(&files.job);
        let is_same =
            |known: &Job| known.setup.is_of_same_files(&setup) && known.refused == files.refused;
        if known.is_some_and(is_same) {
            self.add(files.job, files.members);
            return;
        }
        let found = match (known, &files.refused) {
            (None, None) => Worker::find(&self.directory, files.job, &setup),
            _ => None,
        };
        // Handles of the worker before are void, and its calls over: another run begins.
        self.close(files.job);
        let worker = match found {
            Some((worker, run)) => {
                self.server.admit_in(files.job, files.members, run);
                setup.run = run;
                Some(worker)
            }
            None => {
                self.server.admit(files.job, files.members);
                None
            }
        };
        self.jobs.insert(
            files.job,
            Job {
                setup,
                refused: files.refused,
                served: worker.is_some(),
                waiting: Vec::new(),
                worker,
                started: None,
            },
        );
    }

    fn leave(&mut self, job: JobId, rank: Rank) {
        let worker = self.jobs.get_mut(&job).and_then(|job| job.worker.as_mut());
        // Without a worker it has nothing open.
        if let Some(worker) = worker {
            worker.take(&Request {
                channel: ChannelId { job, rank },
                node: NodeId(0),
                number: LEAVES,
                done: LEAVES,
                call: Call::new(Op::Close, WORKING),
            });
        }
    }

    /// Tells the worker of a job what has become of a file; one that is gone has forgotten it.
    fn tell_worker(&mut self, job: JobId, cast: &Cast) {
        let worker = self.jobs.get_mut(&job).and_then(|job| job.worker.as_mut());
        if let Some(worker) = worker {
            worker.tell(cast);
        }
    }

    fn close(&mut self, job: JobId) {
        self.server.close(job);
        self.receiving.forget(job);
        if let Some(worker) = self.jobs.remove(&job).and_then(|job| job.worker) {
            self.directory.remove(job);
            self.ending.push((worker, Instant::now() + GRACE));
        }
    }

    /// The job is over, whoever started its worker.
    fn end(&mut self, job: JobId) {
        let is_left = (self.jobs.get(&job)).is_none_or(|job| job.worker.is_none());
        self.close(job);
        if is_left {
            self.directory.end(job);
        }
    }

    /// Ends all jobs but these.
    fn close_others(&mut self, served: &BTreeSet<JobId>) {
        let known = self.jobs.keys().copied();
        let mut over: BTreeSet<JobId> = known.chain(self.directory.jobs()).collect();
        over.retain(|job| !served.contains(job));
        over.into_iter().for_each(|job| self.end(job));
    }

    /// Takes datagrams in; whether more may wait.
    fn receive(&mut self, datagram: &mut [u8]) -> bool {
        for _ in 0..BATCH {
            match self.socket.recv_from(datagram) {
                Ok((length, from)) => {
                    let now = self.now();
                    self.server.handle_datagram(now, from, &datagram[..length]);
                }
                // What a node that is gone sends back concerns no other.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Gives new calls to their workers.
    fn hand_out(&mut self) {
        while let Some(request) = self.server.poll_event() {
            self.hand_over(request);
        }
        while let Some(job) = self.server.poll_doubtful() {
            self.tell(job, Some(LOST_MEANWHILE.to_owned()));
        }
        for id in self.due_jobs() {
            let job = self.jobs.get_mut(&id);
            let waiting = job.map(|job| std::mem::take(&mut job.waiting));
            for request in waiting.into_iter().flatten() {
                self.hand_over(request);
            }
        }
        for job in self.jobs.values_mut() {
            if let Some(worker) = job.worker.as_mut() {
                worker.give();
            }
        }
    }

    /// Gives a call to the worker of its job, or keeps it until there may be one.
    fn hand_over(&mut self, request: Request) {
        let id = request.channel;
        match self.worker(id.job) {
            Ok(Some(worker)) => worker.take(&request),
            // A rank has a bounded number of calls under way, so this is bounded as well.
            Ok(None) => {
                if let Some(job) = self.jobs.get_mut(&id.job) {
                    job.waiting.push(request);
                }
            }
            Err(why) => {
                self.server.complete(id, request.number, Reply::plain(-EIO));
                self.tell(id.job, why);
            }
        }
    }

    /// Jobs with calls that wait for a worker which may be started now.
    fn due_jobs(&self) -> Vec<JobId> {
        let jobs = self.jobs.iter();
        let due = jobs.filter(|(_, job)| {
            !job.waiting.is_empty() && (job.worker.is_some() || job.wait().is_zero())
        });
        due.map(|(id, _)| *id).collect()
    }

    fn tell(&mut self, job: JobId, why: Option<String>) {
        let Some(why) = why else { return };
        tracing::warn!(job = job.0, "files: {why}");
        let problems = &mut self.told().problems;
        if problems.len() == MOST_PROBLEMS {
            problems.pop_front();
        }
        problems.push_back(Problem { job, why });
    }

    /// The worker of a job, started if there is none; none while none may be started.
    ///
    /// # Errors
    /// There is none for this call; why, where that was not told a moment before.
    fn worker(&mut self, job: JobId) -> Result<Option<&mut Worker>, Option<String>> {
        let (program, directory) = (&self.program, &self.directory);
        let id = job;
        let job = self.jobs.get_mut(&id).ok_or(None)?;
        if job.worker.is_none() {
            if !job.wait().is_zero() {
                return match job.served {
                    true => Ok(None),
                    false => Err(None),
                };
            }
            job.served = false;
            job.started = Some(Instant::now());
            job.setup.run = self.server.run_of(id).unwrap_or_default();
            let started = match &job.refused {
                Some(why) => Err(why.clone()),
                None => Worker::start(program, directory, id, &job.setup)
                    .map_err(|error| format!("no worker: {error}")),
            };
            job.worker = Some(started.map_err(Some)?);
        }
        Ok(job.worker.as_mut())
    }

    /// Takes what a worker has said.
    fn collect(&mut self, id: JobId, packet: &mut [u8]) {
        let mut is_reset = false;
        // What is left is heard at the next look.
        for _ in 0..BATCH {
            let Some(job) = self.jobs.get_mut(&id) else {
                return;
            };
            let Some(worker) = job.worker.as_mut() else {
                return;
            };
            match worker.socket.recv(packet) {
                Ok(0) => return self.fail(id, None),
                Ok(length) if !worker.ready => match message::parse_ready(&packet[..length]) {
                    Some(_) => {
                        worker.ready = true;
                        job.served = true;
                    }
                    None => {
                        let why = String::from_utf8_lossy(&packet[..length]).into_owned();
                        return self.fail(id, Some(why));
                    }
                },
                Ok(length) => {
                    if let Some((number, said)) = FromReads::parse(&packet[..length]) {
                        let told = self.receiving.heard(&self.directory, id, number, said);
                        if let Some(refused) = told {
                            worker.tell(&refused);
                        }
                        continue;
                    }
                    if let Ok((rank, number, reply)) = message::parse_reply(&packet[..length])
                        && worker.open.remove(&(rank, number))
                    {
                        worker.queue.done(rank);
                        let channel = ChannelId { job: id, rank };
                        self.server.complete(channel, number, reply);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // It ended with calls unread: what it said before is behind this error.
                Err(error) if error.kind() == ErrorKind::ConnectionReset && !is_reset => {
                    is_reset = true;
                }
                Err(_) => return self.fail(id, None),
            }
        }
    }

    /// A worker has ended: nobody knows which of its calls were carried out, and what it had open
    /// is gone. Its ranks are told that another run of the service begins, as they would be after
    /// the end of the whole service: calls under way fail, and handles are void.
    fn fail(&mut self, id: JobId, why: Option<String>) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let Some(worker) = job.worker.take() else {
            return;
        };
        self.server.begin_again(id);
        self.receiving.forget(id);
        self.ending.push((worker, Instant::now()));
        let why = why.unwrap_or_else(|| {
            "the process that carried its calls out has ended; calls under way gave EIO".to_owned()
        });
        self.tell(id, Some(why));
    }

    fn transmit(&mut self, datagram: &mut [u8]) {
        loop {
            if let Some((bytes, to)) = self.unsent.take()
                && self.send(&bytes, to)
            {
                self.unsent = Some((bytes, to));
                return;
            }
            let now = self.now();
            let out = &mut datagram[..MAX_DATAGRAM];
            let Some((length, to)) = self.server.poll_transmit(now, out) else {
                return;
            };
            if self.send(&datagram[..length], to) {
                self.unsent = Some((datagram[..length].to_vec(), to));
                return;
            }
        }
    }

    /// Sends; true when the socket has no room. Any other error is a datagram lost.
    fn send(&self, bytes: &[u8], to: SocketAddr) -> bool {
        let sent = self.socket.send_to(bytes, to);
        sent.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    /// Takes leave of workers that have ended, and ends those that do not.
    fn bury(&mut self) {
        let now = Instant::now();
        self.ending.retain_mut(|(worker, until)| {
            let heard = worker.end();
            let Some(child) = &mut worker.child else {
                // It ends by itself, or when no service comes.
                return !heard && now < *until;
            };
            match child.try_wait() {
                Ok(Some(_)) | Err(_) => false,
                Ok(None) => {
                    if now >= *until {
                        let _ = child.kill();
                    }
                    true
                }
            }
        });
    }

    /// Waits until something is to be done, not at all where datagrams may wait (`more`). Gives
    /// the jobs whose workers have said something.
    fn wait(&mut self, more: bool) -> Vec<JobId> {
        let due = self.server.poll_timeout().map(|at| {
            let micros = at.saturating_since(self.now()).as_micros();
            Duration::from_micros(micros)
        });
        let look = (!self.ending.is_empty()).then_some(LOOK);
        let jobs = self.jobs.values().filter(|job| !job.waiting.is_empty());
        let start = jobs.map(Job::wait).min();
        let wait = match self.unsent.is_some() {
            true => [look, start].into_iter().flatten().min(),
            false => [due, look, start].into_iter().flatten().min(),
        };
        // Rounded up: a wait of nothing would be none.
        let timeout = match wait {
            _ if more => PollTimeout::ZERO,
            Some(wait) => {
                let millis = wait.as_micros().div_ceil(1_000);
                PollTimeout::try_from(millis.min(60_000) as i32).unwrap_or(PollTimeout::MAX)
            }
            None => PollTimeout::NONE,
        };
        let mut fds = vec![
            PollFd::new(
                self.socket.as_fd(),
                match self.unsent {
                    Some(_) => PollFlags::POLLIN | PollFlags::POLLOUT,
                    None => PollFlags::POLLIN,
                },
            ),
            PollFd::new(self.woken.as_fd(), PollFlags::POLLIN),
        ];
        let mut jobs = Vec::new();
        for (id, job) in &self.jobs {
            let Some(worker) = &job.worker else { continue };
            let wants = match worker.queue.front() {
                None => PollFlags::POLLIN,
                Some(_) => PollFlags::POLLIN | PollFlags::POLLOUT,
            };
            fds.push(PollFd::new(worker.socket.as_fd(), wants));
            jobs.push(*id);
        }
        // Interrupted or failed: everything is looked at again.
        if poll(&mut fds, timeout).is_err() {
            return jobs;
        }
        let said = PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR;
        let has_said = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| events.intersects(said));
        let heard = fds[2..].iter().zip(jobs);
        heard
            .filter_map(|(fd, job)| has_said(fd).then_some(job))
            .collect()
    }
}

impl Job {
    /// The run of its worker, where another service has started that.
    fn run_found(&self) -> Option<u64> {
        let found = self.worker.as_ref().filter(|worker| worker.child.is_none());
        found.map(|_| self.setup.run)
    }

    /// How long until another worker may be started.
    fn wait(&self) -> Duration {
        let since = self.started.map(|started| started.elapsed());
        since.map_or(Duration::ZERO, |since| AGAIN.saturating_sub(since))
    }
}
