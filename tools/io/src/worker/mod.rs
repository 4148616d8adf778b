//! The process that carries out the calls of one job.
//!
//! It shuts itself in ([`enclosure`]) before it hears of the first call, and says why where it
//! cannot: then it serves nothing. Its threads take calls from the socket as they are free, so that
//! one slow call holds nobody up.
//!
//! It outlives its service: what is open stays open, what is locked stays locked, and the service
//! that comes next connects to its socket. Where none does it ends after a while
//! ([ADR 52](../../../../docs/adr/0052-workers-outlive-their-service.md)).
//!
//! | module | what it is |
//! |---|---|
//! | [`link`] | the connection to the service, one after another |
//! | [`known`] | which calls have been carried out |
//! | [`calls`] | carrying one out |
//! | [`writes`] | writes that come in pieces |
//! | [`handles`], [`listing`] | open files, and lists of directories |
//! | [`reads`] | files that many nodes read at once |
//!
//! Invariant: nothing of a call is looked at before the process is shut in and is the job's user.

mod calls;
mod enclosure;
mod handles;
mod known;
mod link;
mod listing;
mod reads;
mod writes;

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::Duration;

use netstack::files::{CastObject, IS_CAST, Op, Reply, TAKES_CAST};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use socket2::Socket;

use crate::message::{self, Setup};
use handles::Handles;
use known::{Coming, Known};
use link::Link;
use reads::{Answer, Reads};

/// Threads that carry calls out: each waits for a disk most of the time.
const THREADS: usize = 16;
/// How long a service may take from its connection to its first packet.
const FIRST_PACKET: Duration = Duration::from_secs(10);
/// How long calls may take whose job is over.
const ENDS_WITHIN: Duration = Duration::from_secs(2);
/// Where the kernel tells which boot this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Name of the command by which a program that has the service starts its worker.
pub const COMMAND: &str = "io-worker";

/// Serves the job whose services connect to the socket on standard input, until one says that the
/// job is over, or none comes. To be called first thing in a process of its own, which has one
/// thread; gives its exit status.
pub fn main() -> u8 {
    let alone = enclosure::close_others();
    let Ok(listener) = std::io::stdin().as_fd().try_clone_to_owned() else {
        return 2;
    };
    let listener = Socket::from(listener);
    // Where files are bounded (ulimit -f) a call that writes more fails, and the process goes on.
    let mut refused = SigSet::empty();
    refused.add(Signal::SIGXFSZ);
    if refused.thread_block().is_err() {
        return 2;
    }
    // A call that a thread does not survive has no answer: the service gives one in its place.
    std::panic::set_hook(Box::new(|_| std::process::exit(3)));
    let Some(socket) = accept(&listener, FIRST_PACKET) else {
        return 2;
    };
    let socket = Arc::new(socket);
    match alone.and_then(|()| serve(&listener, &socket)) {
        Ok(()) => 0,
        Err(why) => {
            // It is for the service to tell; with it gone nobody is left.
            let _ = socket.send(why.as_bytes());
            1
        }
    }
}

/// Serves the first service, and those that come after it.
fn serve(listener: &Socket, first: &Arc<UnixDatagram>) -> Result<(), String> {
    let setup = receive_setup(first)?.ok_or("the job was over before it began")?;
    let boot = this_boot()?;
    let descriptors = enclosure::own_descriptors()?;
    let working = enclosure::enter(&setup)?;
    let handles = Handles::new(working, boot, descriptors);
    let (link, known, reads) = (Link::default(), Known::default(), Reads::default());
    let ready = message::ready_packet(setup.run);
    first.send(&ready).map_err(|error| error.to_string())?;
    link.connect(Arc::clone(first));
    std::thread::scope(|scope| {
        let mut started = 0;
        for _ in 0..THREADS {
            let thread = std::thread::Builder::new();
            // Where the user may have no more of them, fewer serve.
            if thread
                .spawn_scoped(scope, || work(&link, &known, &handles, &reads))
                .is_err()
            {
                break;
            }
            started += 1;
        }
        if started == 0 {
            return Err("the job's user may start no thread (ulimit -u)".to_owned());
        }
        let mut socket = Arc::clone(first);
        loop {
            wait_for_end(&socket);
            if link.is_over() {
                // Calls that are under way may end; a disk that holds one fast does not hold this.
                std::thread::spawn(|| {
                    std::thread::sleep(ENDS_WITHIN);
                    std::process::exit(0);
                });
                return Ok(());
            }
            let lingers = Duration::from_secs(setup.lingers_s);
            let Some(next) = accept(listener, lingers) else {
                // One that a disk holds fast may have a thread for ever.
                std::process::exit(0);
            };
            // One that says nothing, or wants other files, is told so and gets none.
            match receive_setup(&next) {
                // The job ended while no service was there.
                Ok(None) => std::process::exit(0),
                Ok(Some(other)) if !other.is_of_same_files(&setup) => {
                    let _ = next.send(b"the worker that is there is of other files");
                    std::process::exit(0);
                }
                // It is gone already: there may be another one.
                Ok(Some(_)) if next.send(&ready).is_err() => continue,
                Ok(Some(_)) => {}
                Err(_) => continue,
            }
            socket = Arc::new(next);
            link.connect(Arc::clone(&socket));
        }
    })
}

/// The next connection, if one comes in time.
fn accept(listener: &Socket, limit: Duration) -> Option<UnixDatagram> {
    let timeout = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
    let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    if poll(&mut fds, timeout).unwrap_or(0) == 0 {
        return None;
    }
    let (socket, _) = listener.accept().ok()?;
    Some(UnixDatagram::from(OwnedFd::from(socket)))
}

/// What a service that has connected says first: `None` when the job is over.
fn receive_setup(socket: &UnixDatagram) -> Result<Option<Setup>, String> {
    let said = |error: std::io::Error| error.to_string();
    socket.set_read_timeout(Some(FIRST_PACKET)).map_err(said)?;
    let mut packet = vec![0; message::MAX];
    let length = socket.recv(&mut packet).map_err(said)?;
    socket.set_read_timeout(None).map_err(said)?;
    if packet[..length] == *message::END {
        return Ok(None);
    }
    let setup = serde_json::from_slice(&packet[..length]);
    setup
        .map(Some)
        .map_err(|error| format!("what to serve was not understood: {error}"))
}

/// Waits until the service at the other end is gone, or this end is shut down.
fn wait_for_end(socket: &UnixDatagram) {
    let gone = PollFlags::POLLHUP | PollFlags::POLLERR;
    loop {
        let mut fds = [PollFd::new(socket.as_fd(), PollFlags::empty())];
        match poll(&mut fds, PollTimeout::NONE) {
            Err(nix::errno::Errno::EINTR) => {}
            Err(_) => return,
            Ok(_) if fds[0].revents().is_some_and(|said| said.intersects(gone)) => return,
            Ok(_) => {}
        }
    }
}

/// A number that is another after each boot of this machine.
fn this_boot() -> Result<u64, String> {
    let text = std::fs::read_to_string(BOOT_ID);
    let text = text.map_err(|error| format!("{BOOT_ID}: {error}"))?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let first = digits.get(..16).unwrap_or_default();
    u64::from_str_radix(first, 16).map_err(|_| format!("{BOOT_ID} has no number: {text:?}"))
}

/// What one thread does.
fn work(link: &Link, known: &Known, handles: &Handles, reads: &Reads) {
    // A directory of its own to work in, for the one call that needs that.
    let own_directory = nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS).is_ok();
    let mut packet = vec![0; message::MAX];
    let mut count = 0;
    while let Some((connection, socket)) = link.after(count) {
        count = connection;
        while let Ok(length @ 1..) = socket.recv(&mut packet) {
            if &packet[..length] == message::END {
                return link.end();
            }
            if let Some(cast) = message::parse_cast(&packet[..length]) {
                reads.cast(&cast);
                continue;
            }
            let Ok(asked) = message::parse_call(&packet[..length]) else {
                break;
            };
            let (rank, number, call) = (asked.rank, asked.number, &asked.call);
            let coming = match number {
                message::LEAVES => Coming::New,
                _ => known.begin(rank, number, asked.done),
            };
            let mut wanted = None;
            let reply = match coming {
                Coming::New => {
                    let answer;
                    (answer, wanted) = answer_of(handles, reads, &asked);
                    let reply = match answer {
                        Answer::Bytes => {
                            let reply =
                                calls::carry_out(handles, (rank, number), call, own_directory);
                            reply.unwrap_or_else(|errno| Reply::plain(-i64::from(errno as i32)))
                        }
                        Answer::Coming => Reply::plain(IS_CAST),
                        Answer::Cast(object) => Reply {
                            result: IS_CAST,
                            output: object.to_bytes(),
                        },
                    };
                    known.end(rank, number, call.op, &reply);
                    reply
                }
                // Its reply comes when it has ended.
                Coming::UnderWay => continue,
                Coming::Done(reply) => reply,
                // The node waits for none: this tells the service that nothing is under way.
                Coming::Over => Reply::plain(-i64::from(nix::errno::Errno::EIO as i32)),
            };
            link.send(&message::reply_packet(rank, number, &reply));
            // Nobody waits for this thread any more.
            if let Some(wanted) = wanted {
                reads.hand_over(link, wanted);
            }
        }
    }
}

/// How a call is answered, by a cast only where it is a read, and what the service is to be told.
fn answer_of(
    handles: &Handles,
    reads: &Reads,
    asked: &message::Asked,
) -> (Answer, Option<reads::Wanted>) {
    let (rank, call) = (asked.rank, &asked.call);
    if call.op == Op::Open {
        reads.know(rank, asked.node);
    }
    let takes = call.op == Op::Read && call.words[1] & TAKES_CAST != 0;
    let open = handles.get(rank, call.handles[0]);
    match open {
        Ok(open) if takes && call.room as usize >= CastObject::LEN => {
            reads.read(handles, (rank, asked.node), &open, call.room.into())
        }
        Ok(open) if call.op == Op::Read && !takes => {
            reads.read_bytes(asked.node, &open, call.words[0]);
            (Answer::Bytes, None)
        }
        _ => (Answer::Bytes, None),
    }
}
