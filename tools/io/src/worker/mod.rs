//! The process that carries out the calls of one job.
//!
//! It shuts itself in ([`enclosure`]) before it hears of the first call, and says why where it
//! cannot: then it serves nothing. Its threads take calls from the socket as they are free, so that
//! one slow call holds nobody up.
//!
//! Invariant: nothing of a call is looked at before the process is shut in and is the job's user.

mod calls;
mod enclosure;
mod handles;
mod listing;

use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;

use netstack::files::Reply;

use crate::message::{self, Setup};
use handles::Handles;

/// Threads that carry calls out: each waits for a disk most of the time.
const THREADS: usize = 16;
/// Where the kernel tells which boot this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Name of the command by which a program that has the service starts its worker.
pub const COMMAND: &str = "io-worker";

/// Serves the job that the socket on standard input names, until the service lets go of it.
/// To be called first thing in a process of its own, which has one thread; gives its exit status.
pub fn main() -> u8 {
    let alone = enclosure::close_others();
    let socket = match std::io::stdin().as_fd().try_clone_to_owned() {
        Ok(socket) => UnixDatagram::from(socket),
        Err(_) => return 2,
    };
    // A call that a thread does not survive has no answer: the service gives one in its place.
    std::panic::set_hook(Box::new(|_| std::process::exit(3)));
    match alone.and_then(|()| serve(&socket)) {
        Ok(()) => 0,
        Err(why) => {
            // It is for the service to tell; with it gone nobody is left.
            let _ = socket.send(why.as_bytes());
            1
        }
    }
}

fn serve(socket: &UnixDatagram) -> Result<(), String> {
    let mut packet = vec![0; message::MAX];
    let length = socket
        .recv(&mut packet)
        .map_err(|error| error.to_string())?;
    let setup: Setup = serde_json::from_slice(&packet[..length])
        .map_err(|error| format!("what to serve was not understood: {error}"))?;
    let boot = this_boot()?;
    let working = enclosure::enter(&setup)?;
    let handles = Handles::new(working, boot);
    socket
        .send(message::READY)
        .map_err(|error| error.to_string())?;
    std::thread::scope(|scope| {
        for _ in 1..THREADS {
            let thread = std::thread::Builder::new();
            // Where the user may have no more of them, fewer serve.
            if thread
                .spawn_scoped(scope, || work(socket, &handles))
                .is_err()
            {
                break;
            }
        }
        work(socket, &handles);
    });
    Ok(())
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
fn work(socket: &UnixDatagram, handles: &Handles) {
    // A directory of its own to work in, for the one call that needs that.
    let own_directory = nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS).is_ok();
    let mut packet = vec![0; message::MAX];
    while let Ok(length @ 1..) = socket.recv(&mut packet) {
        let Ok((rank, number, call)) = message::parse_call(&packet[..length]) else {
            return;
        };
        let reply = match calls::carry_out(handles, rank, &call, own_directory) {
            Ok(reply) => reply,
            Err(errno) => Reply::plain(-i64::from(errno as i32)),
        };
        if socket
            .send(&message::reply_packet(rank, number, &reply))
            .is_err()
        {
            return;
        }
    }
}
