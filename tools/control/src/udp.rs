//! The loop between a protocol machine and a UDP socket: receive, act, send, wait; for the control
//! node and for the hosted sender and receiver alike.
//!
//! Key types: [`Engine`] (a machine), [`Outbox`] (datagrams on their way out), [`Arrived`] (those
//! that have come), [`drive`] (the loop). Neighbours: `control` (endpoint, runner and casts behind
//! one lock), `hosted` (one cast, nobody else), [`timer`].
//!
//! Invariants: a machine that always has something to send still receives; nothing is held across
//! an await but the datagrams themselves.

pub mod timer;

use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::AsRawFd;

use netstack::MAX_DATAGRAM;
use nix::sys::socket::sockopt::RcvBufForce;
use tokio::io::Interest;
use tokio::net::UdpSocket;

use crate::clock::Clock;
use timer::Timer;

/// Datagrams handled in one turn: long enough to be cheap, short enough that nobody else who needs
/// the machine waits.
const BATCH: usize = 128;

/// Datagrams handed to the system in one call: a block of 8 KiB and the next one's first, less than
/// what a port of any switch can buffer.
const SEGMENTS: usize = 8;

/// Receive and send buffer of a socket, in bytes: a heartbeat or a page request from each of a few
/// thousand nodes at once. The system may give less (net.core.rmem_max).
const SOCKET_BUFFER_BYTES: usize = 8 * 1024 * 1024;

/// A protocol machine that is driven by [`drive`].
pub trait Engine {
    /// Takes what has arrived.
    fn receive(&mut self, arrived: &mut Arrived<'_>);

    /// Acts on what is due and puts into `outbox` what is to be sent, as long as it has room. Gives
    /// the time of the next call, in microseconds of the clock of the loop; a time that has passed
    /// means at once.
    fn turn(&mut self, outbox: &mut Outbox) -> u64;

    /// Completes when something outside the loop gave the machine something to do.
    fn woken(&mut self) -> impl Future<Output = ()>;

    /// Whether the loop ends here, what was collected being sent.
    fn is_over(&self) -> bool {
        false
    }
}

/// Receives, sends and keeps time until the machine is over or `stop` completes.
///
/// # Errors
/// When the socket fails for good.
pub async fn drive(
    engine: &mut impl Engine,
    socket: &UdpSocket,
    clock: Clock,
    stop: impl Future<Output = ()>,
) -> std::io::Result<()> {
    let mut stop = std::pin::pin!(stop);
    let mut outbox = Outbox::default();
    let mut timer = Timer::new()?;
    loop {
        // What has arrived comes first: an answer that waits in the socket is not late.
        let mut arrived = Arrived::new(socket);
        engine.receive(&mut arrived);
        let busy = arrived.left == 0;
        let next_us = engine.turn(&mut outbox);
        let more = outbox.is_full();
        outbox.send(socket).await?;
        if engine.is_over() {
            return Ok(());
        }
        if more || busy || next_us <= clock.now_us() {
            // Lets the runtime look at its sockets and its other tasks.
            tokio::select! {
                biased;
                () = &mut stop => return Ok(()),
                () = engine.woken() => tokio::task::yield_now().await,
                () = tokio::task::yield_now() => {}
            }
            continue;
        }
        timer.set(next_us, clock.now_us());
        tokio::select! {
            () = &mut stop => return Ok(()),
            () = engine.woken() => {}
            () = timer.wait() => {}
            readable = socket.readable() => readable?,
        }
    }
}

/// Opens a socket with large buffers at `listen`.
///
/// # Errors
/// What the system said.
pub fn open(listen: SocketAddrV4) -> std::io::Result<UdpSocket> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None)?;
    // As much as the system allows; less only costs repeats. Root may have more than others.
    drop(socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES));
    let _ = nix::sys::socket::setsockopt(&socket, RcvBufForce, &SOCKET_BUFFER_BYTES);
    drop(socket.set_send_buffer_size(SOCKET_BUFFER_BYTES));
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::V4(listen).into())?;
    UdpSocket::from_std(socket.into())
}

/// Bytes of a socket's receive buffer, as the system counts them.
pub fn receive_buffer(socket: &UdpSocket) -> usize {
    socket2::SockRef::from(socket)
        .recv_buffer_size()
        .unwrap_or(0)
}

/// Where a socket is bound.
///
/// # Errors
/// What the system said; or it is not an IPv4 socket.
pub fn address(socket: &UdpSocket) -> std::io::Result<SocketAddrV4> {
    match socket.local_addr()? {
        SocketAddr::V4(address) => Ok(address),
        SocketAddr::V6(_) => Err(std::io::Error::other("not an IPv4 socket")),
    }
}

/// What has arrived at a socket, up to the bound of one turn.
#[derive(Debug)]
pub struct Arrived<'a> {
    socket: &'a UdpSocket,
    buffer: [u8; 2048],
    left: usize,
}

impl<'a> Arrived<'a> {
    fn new(socket: &'a UdpSocket) -> Self {
        Arrived {
            socket,
            buffer: [0; 2048],
            left: BATCH,
        }
    }

    /// The next datagram and where it came from. (Not an iterator: the datagram is lent.)
    #[expect(clippy::should_implement_trait, reason = "it lends its buffer")]
    pub fn next(&mut self) -> Option<(SocketAddrV4, &[u8])> {
        while self.left > 0 {
            self.left -= 1;
            match self.socket.try_recv_from(&mut self.buffer) {
                Ok((length, SocketAddr::V4(from))) => {
                    return Some((from, &self.buffer[..length]));
                }
                Ok(_) => {}
                // Nothing more; or an ICMP error about an earlier datagram, whose loss the
                // protocols find out by themselves.
                Err(_) => return None,
            }
        }
        None
    }
}

/// Datagrams on their way from the machine to the socket.
#[derive(Debug, Default)]
pub struct Outbox {
    datagrams: Vec<(SocketAddrV4, usize, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    /// Segmentation was refused once.
    one_by_one: bool,
}

impl Outbox {
    /// Whether it has no room before the next turn.
    pub fn is_full(&self) -> bool {
        self.datagrams.len() >= BATCH
    }

    /// Whether nothing is to be sent.
    pub fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    /// Takes datagrams from `next`, which writes one into the buffer and says where it goes and how
    /// long it is, until there is none or no room.
    pub fn collect(&mut self, mut next: impl FnMut(&mut [u8]) -> Option<(SocketAddrV4, usize)>) {
        while !self.is_full() {
            let mut datagram = self.spare.pop().unwrap_or_else(|| vec![0; MAX_DATAGRAM]);
            match next(&mut datagram[..]) {
                Some((to, length)) => self.datagrams.push((to, length, datagram)),
                None => {
                    self.spare.push(datagram);
                    break;
                }
            }
        }
    }

    /// Hands everything to the socket: datagrams of one length to one station that follow each
    /// other in one call, which the system takes apart as late as it can (UDP segmentation).
    async fn send(&mut self, socket: &UdpSocket) -> std::io::Result<()> {
        let mut at = 0;
        while at < self.datagrams.len() {
            let count = if self.one_by_one {
                1
            } else {
                run(&self.datagrams[at..])
            };
            let group = &self.datagrams[at..at + count];
            let sent = loop {
                let sent = socket.try_io(Interest::WRITABLE, || send_group(socket, group));
                match sent {
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                        socket.writable().await?;
                    }
                    sent => break sent,
                }
            };
            match sent {
                // This system or interface cannot take them apart.
                Err(error) if count > 1 => {
                    tracing::debug!("sending {count} datagrams at once: {error}");
                    self.one_by_one = true;
                    continue;
                }
                // A node that cannot be reached now is the protocol's business: it repeats.
                Err(error) => {
                    tracing::debug!("sending to {}: {error}", group[0].0);
                    if error.kind() == std::io::ErrorKind::NotConnected {
                        return Err(error);
                    }
                }
                Ok(()) => {}
            }
            at += count;
        }
        self.spare
            .extend(self.datagrams.drain(..).map(|(_, _, datagram)| datagram));
        Ok(())
    }
}

/// How many datagrams at the beginning can be sent in one call: all to one station and of one
/// length, but for a shorter last one.
fn run(datagrams: &[(SocketAddrV4, usize, Vec<u8>)]) -> usize {
    let (to, length, _) = &datagrams[0];
    let mut count = 1;
    while count < datagrams.len().min(SEGMENTS) {
        let (next_to, next_length, _) = &datagrams[count];
        if next_to != to || next_length > length {
            break;
        }
        count += 1;
        if next_length < length {
            break;
        }
    }
    count
}

fn send_group(socket: &UdpSocket, group: &[(SocketAddrV4, usize, Vec<u8>)]) -> std::io::Result<()> {
    let parts: Vec<std::io::IoSlice<'_>> = group
        .iter()
        .map(|(_, length, datagram)| std::io::IoSlice::new(&datagram[..*length]))
        .collect();
    let segment = u16::try_from(group[0].1).expect("a datagram has at most 1,472 bytes");
    let segments = [nix::sys::socket::ControlMessage::UdpGsoSegments(&segment)];
    let control = if group.len() > 1 { &segments[..] } else { &[] };
    let to = nix::sys::socket::SockaddrIn::from(group[0].0);
    nix::sys::socket::sendmsg(
        socket.as_raw_fd(),
        &parts,
        control,
        nix::sys::socket::MsgFlags::empty(),
        Some(&to),
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends without end, and is over when it has received enough and was woken.
    struct Talker {
        to: SocketAddrV4,
        received: usize,
        woken: usize,
    }

    impl Engine for Talker {
        fn receive(&mut self, arrived: &mut Arrived<'_>) {
            while arrived.next().is_some() {
                self.received += 1;
            }
        }

        fn turn(&mut self, outbox: &mut Outbox) -> u64 {
            let to = self.to;
            outbox.collect(|out| {
                out[..4].copy_from_slice(b"talk");
                Some((to, 4))
            });
            0
        }

        async fn woken(&mut self) {
            self.woken += 1;
        }

        fn is_over(&self) -> bool {
            self.received >= 1000 && self.woken > 0
        }
    }

    #[tokio::test]
    async fn who_always_has_something_to_send_still_receives_and_is_woken() {
        let socket = open("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut talker = Talker {
            to: address(&socket).unwrap(),
            received: 0,
            woken: 0,
        };
        let stop = tokio::time::sleep(std::time::Duration::from_secs(20));
        drive(&mut talker, &socket, Clock::start(), stop)
            .await
            .unwrap();
        assert!(talker.is_over());
    }
}
