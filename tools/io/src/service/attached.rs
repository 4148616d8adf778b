//! The worker of a job, as its service has it: started, or found alive and connected to again.
//!
//! Workers listen at sockets in a directory that their services alone may enter, each under the
//! number of its job.
//!
//! Invariant: a worker that is found serves the same files as the one that would be started.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use netstack::files::server::Request;
use netstack::ids::{JobId, Rank};
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::geteuid;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::fair::Queue;
use crate::message::{self, Cast, NOBODY, Setup};
use crate::worker;

/// How long a worker that is found may take to say that it serves. It does nothing else then.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// Services that may wait for a worker to take leave of the one before.
const BACKLOG: i32 = 1;

/// Where the workers of a service listen.
#[derive(Debug)]
pub struct Directory(OwnedFd);

impl Directory {
    /// The directory at `path`, made where it is not there.
    ///
    /// # Errors
    /// It cannot be made, or others may enter it.
    pub fn open(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let directory = open(path, flags, Mode::empty())?;
        let metadata = fs::metadata(name_of(&directory))?;
        if metadata.uid() != geteuid().as_raw() || metadata.mode() & 0o077 != 0 {
            let text = format!(
                "{} is not of this user alone (mode 0700); remove it, or choose another one",
                path.display()
            );
            return Err(io::Error::new(ErrorKind::PermissionDenied, text));
        }
        Ok(Self(directory))
    }

    /// The directory, open.
    pub fn descriptor(&self) -> &OwnedFd {
        &self.0
    }

    /// A name of a job's socket that is short, as names of sockets must be.
    fn socket(&self, job: JobId) -> PathBuf {
        name_of(&self.0).join(job.0.to_string())
    }

    /// Jobs whose workers may be there.
    pub fn jobs(&self) -> Vec<JobId> {
        let entries = fs::read_dir(name_of(&self.0)).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names
            .filter_map(|name| name.parse().ok().map(JobId))
            .collect()
    }

    /// Ends the worker that a service before this one has left of a job that is over.
    pub fn end(&self, job: JobId) {
        let Ok(address) = SockAddr::unix(self.socket(job)) else {
            return;
        };
        if let Ok(worker) = connect(&address) {
            // One that is gone meanwhile needs no word.
            let _ = worker.send(message::END);
        }
        self.remove(job);
    }

    /// The job is over: nobody shall find its worker.
    pub fn remove(&self, job: JobId) {
        let _ = fs::remove_file(self.socket(job));
    }
}

/// A name by which this process has an open directory.
fn name_of(directory: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", directory.as_raw_fd()).into()
}

/// A worker.
#[derive(Debug)]
pub struct Worker {
    /// Its process; `None`: another service has started it.
    pub child: Option<Child>,
    /// The connection to it.
    pub socket: UnixDatagram,
    /// It serves.
    pub ready: bool,
    /// It has been told that its job is over.
    told_end: bool,
    /// Calls that it has not taken.
    pub queue: Queue,
    /// Calls that it has not answered.
    pub open: BTreeSet<(Rank, u64)>,
}

impl Worker {
    /// Starts one.
    ///
    /// # Errors
    /// What the system does not give.
    pub fn start(
        program: &Path,
        directory: &Directory,
        job: JobId,
        setup: &Setup,
    ) -> io::Result<Self> {
        directory.remove(job);
        let listener = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
        let address = SockAddr::unix(directory.socket(job))?;
        listener.bind(&address)?;
        listener.listen(BACKLOG)?;
        let socket = connect(&address)?;
        socket.send(&serde_json::to_vec(setup)?)?;
        socket.set_nonblocking(true)?;
        let mut command = Command::new(program);
        // In a group of its own: an interrupt at the service's terminal is not for it.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command
            .arg(worker::COMMAND)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(listener)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self::of(socket, Some(child)))
    }

    /// Connects to the worker that a service before this one has left, and gives the run that its
    /// handles are of. `None` where there is none, or not of these files: it ends.
    pub fn find(directory: &Directory, job: JobId, setup: &Setup) -> Option<(Self, u64)> {
        let found = Self::try_find(directory, job, setup);
        match found {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(job = job.0, "the worker of a service before: {error}");
                None
            }
        }
    }

    fn try_find(
        directory: &Directory,
        job: JobId,
        setup: &Setup,
    ) -> io::Result<Option<(Self, u64)>> {
        let address = SockAddr::unix(directory.socket(job))?;
        let socket = match connect(&address) {
            Ok(socket) => socket,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                directory.remove(job);
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        socket.send(&serde_json::to_vec(setup)?)?;
        socket.set_read_timeout(Some(ANSWERS_WITHIN))?;
        let mut packet = vec![0; message::MAX];
        let length = socket.recv(&mut packet)?;
        let Some(run) = message::parse_ready(&packet[..length]) else {
            let why = String::from_utf8_lossy(&packet[..length]);
            return Err(io::Error::other(why.into_owned()));
        };
        socket.set_nonblocking(true)?;
        let mut worker = Self::of(socket, None);
        worker.ready = true;
        Ok(Some((worker, run)))
    }

    fn of(socket: UnixDatagram, child: Option<Child>) -> Self {
        Self {
            child,
            socket,
            ready: false,
            told_end: false,
            queue: Queue::default(),
            open: BTreeSet::new(),
        }
    }

    /// A call for it.
    pub fn take(&mut self, request: &Request) {
        let (rank, number) = (request.channel.rank, request.number);
        self.open.insert((rank, number));
        let packet = message::call_packet(request);
        self.queue.push(rank, packet);
    }

    /// What has become of a file that many nodes read.
    pub fn tell(&mut self, cast: &Cast) {
        self.queue.push(NOBODY, message::cast_packet(cast));
    }

    /// Gives the worker what it takes. One that is gone takes nothing: what it said last is read
    /// before its end.
    pub fn give(&mut self) {
        while let Some(packet) = self.queue.front() {
            let is_call = message::parse_cast(packet).is_none();
            if self.socket.send(packet).is_err() {
                break;
            }
            self.queue.pop();
            if !is_call {
                self.queue.done(NOBODY);
            }
        }
    }

    /// Says that the job is over; whether the worker has heard it, or is gone. One that has many
    /// calls before it hears of it later.
    pub fn end(&mut self) -> bool {
        if !self.told_end {
            let sent = self.socket.send(message::END);
            self.told_end = !sent.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        }
        self.told_end
    }
}

fn connect(address: &SockAddr) -> io::Result<UnixDatagram> {
    let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
    // A worker that takes leave of nobody, or stands still, has no room for another service.
    socket.set_write_timeout(Some(ANSWERS_WITHIN))?;
    socket.connect(address)?;
    Ok(UnixDatagram::from(OwnedFd::from(socket)))
}
