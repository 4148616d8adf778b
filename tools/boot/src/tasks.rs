//! The service's loops: they move datagrams between sockets and the protocol logic.
//!
//! Invariant: no loop ends by itself and none spins: an error of a socket is reported and followed
//! by a pause.

use crate::dhcp::client::{BIOS_NBP_NAME, IMAGE_NAME, SCRIPT_NAME};
use crate::dhcp::{self, Notice, Port};
use crate::event::Event;
use crate::hooks::Personalities;
use crate::http;
use crate::lease_file::LeaseFile;
use crate::mac::Mac;
use crate::router_advert;
use crate::shared::Shared;
use crate::sockets::{self, RouterSocket};
use crate::tftp::{self, Finished, Outcome};
use crate::timeline::{Firmware, Stage};
use axum::body::Bytes;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

/// Pause after a socket error (the interface may be down for a while).
const ERROR_PAUSE: Duration = Duration::from_secs(1);
/// A lasting socket error is reported again only after so many of them.
const ERRORS_PER_REPORT: u32 = 60;
/// How often changed leases are written to their file.
const LEASE_FILE_INTERVAL: Duration = Duration::from_secs(2);
/// Advertisements that nobody asked for: as often as the standard's shortest default (RFC 4861,
/// 6.2.1, a third of 600 s), for machines whose solicitation was lost.
const ADVERTISE_INTERVAL: Duration = Duration::from_secs(200);
/// A fresh interface has no usable link-local address for up to two seconds (duplicate address
/// detection): sending is tried so often and so long.
const ADVERTISE_RETRY: Duration = Duration::from_millis(200);
const ADVERTISE_TRIES: u32 = 25;

/// Reports an error of a lasting series now and then, and waits.
struct ErrorPause {
    part: &'static str,
    count: u32,
}

impl ErrorPause {
    fn new(part: &'static str) -> ErrorPause {
        ErrorPause { part, count: 0 }
    }

    async fn wait(&mut self, shared: &Shared, error: &io::Error) {
        if self.count.is_multiple_of(ERRORS_PER_REPORT) {
            let interface = &shared.config.interface;
            let reason = format!("{error} on {interface}; check that it is up and has its address");
            shared.event(Event::Degraded {
                part: self.part.into(),
                reason,
            });
        }
        self.count += 1;
        sleep(ERROR_PAUSE).await;
    }
}

/// Everything the DHCP loop owns.
pub(crate) struct DhcpTask {
    pub(crate) shared: Arc<Shared>,
    pub(crate) server: dhcp::Server,
    pub(crate) personalities: Arc<dyn Personalities>,
    pub(crate) socket: UdpSocket,
    pub(crate) proxy_socket: Option<UdpSocket>,
    pub(crate) joined: mpsc::Receiver<(Mac, u64)>,
    pub(crate) lease_file: Option<LeaseFile>,
}

impl DhcpTask {
    pub(crate) async fn run(mut self) {
        let mut tick = interval(LEASE_FILE_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut pause = ErrorPause::new("DHCP");
        let mut buffer = vec![0; dhcp::packet::MAX_PACKET_BYTES];
        let mut proxy_buffer = vec![0; dhcp::packet::MAX_PACKET_BYTES];
        loop {
            tokio::select! {
                biased;
                Some((mac, boot_epoch)) = self.joined.recv() => self.server.joined(mac, boot_epoch),
                received = self.socket.recv_from(&mut buffer) => match received {
                    Ok((length, from)) => self.answer(Port::Dhcp, from, &buffer[..length]).await,
                    Err(error) => pause.wait(&self.shared, &error).await,
                },
                received = receive_optional(self.proxy_socket.as_ref(), &mut proxy_buffer) => match received {
                    Ok((length, from)) => self.answer(Port::Proxy, from, &proxy_buffer[..length]).await,
                    Err(error) => pause.wait(&self.shared, &error).await,
                },
                _ = tick.tick() => self.keep_leases(),
            }
        }
    }

    async fn answer(&mut self, port: Port, from: SocketAddr, bytes: &[u8]) {
        let SocketAddr::V4(from) = from else { return };
        let now = self.shared.now();
        let reply = self
            .server
            .handle(now, port, from, bytes, self.personalities.as_ref());
        if let Some(reply) = reply {
            let source = self.shared.config.address;
            let socket = match port {
                Port::Dhcp => &self.socket,
                Port::Proxy => self.proxy_socket.as_ref().unwrap_or(&self.socket),
            };
            if let Err(error) = sockets::send_from(socket, source, &reply.bytes, reply.to).await {
                // The client repeats its request; a lasting error shows in the receiving half.
                tracing::warn!(to = %reply.to, %error, "DHCP reply not sent");
            }
        }
        *self.shared.dhcp_counters() = self.server.counters();
        while let Some(notice) = self.server.poll_notice() {
            note(&self.shared, notice);
        }
    }

    fn keep_leases(&mut self) {
        let Some(file) = &self.lease_file else { return };
        if !self.server.leases_mut().take_changed() {
            return;
        }
        if let Err(error) = file.save(self.server.leases().bindings()) {
            let reason = format!("{error}; leases would be lost by a restart");
            self.shared.event(Event::Degraded {
                part: "lease file".into(),
                reason,
            });
        }
    }
}

async fn receive_optional(
    socket: Option<&UdpSocket>,
    buffer: &mut [u8],
) -> io::Result<(usize, SocketAddr)> {
    match socket {
        Some(socket) => socket.recv_from(buffer).await,
        None => std::future::pending().await,
    }
}

/// Enters what the DHCP server did into the timeline.
fn note(shared: &Shared, notice: Notice) {
    let now = shared.now();
    match notice {
        Notice::Asked {
            mac,
            firmware,
            boot_epoch,
        } => {
            shared.timeline().asked(now, mac, firmware, boot_epoch);
            // A kernel's own request is not the firmware's.
            if firmware != Firmware::Direct {
                shared.reached(mac, Stage::Dhcp);
            }
        }
        Notice::Addressed { mac, address, node } => {
            shared.timeline().addressed(now, mac, address, node);
        }
        Notice::Personality { mac, .. } => shared.reached(mac, Stage::Personality),
        Notice::Event(event) => shared.event(event),
    }
}

/// The TFTP loop: requests come in on port 69, everything else on the transfer socket.
pub(crate) async fn tftp(shared: Arc<Shared>, requests: UdpSocket, transfers: UdpSocket) {
    let mut server = tftp::Server::new();
    let mut pause = ErrorPause::new("TFTP");
    let mut request = [0; 1_500];
    let mut packet = [0; 1_500];
    loop {
        let wake = server
            .poll_timeout()
            .map(|at| Instant::now() + at.saturating_sub(shared.now()));
        // Transfers first: a client may end one and begin the next from the same port.
        let received = tokio::select! {
            biased;
            received = transfers.recv_from(&mut packet) => {
                received.map(|(length, from)| Some((from, &packet[..length])))
            }
            received = requests.recv_from(&mut request) => {
                received.map(|(length, from)| Some((from, &request[..length])))
            }
            () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => Ok(None),
        };
        match received {
            Ok(Some((SocketAddr::V4(from), bytes))) => {
                server.handle(shared.now(), from, bytes, shared.as_ref());
            }
            Ok(_) => {}
            Err(error) => pause.wait(&shared, &error).await,
        }
        while let Some((to, bytes)) = server.poll_transmit(shared.now()) {
            if let Err(error) = transfers.send_to(&bytes, to).await {
                // Repeated when its time runs out.
                tracing::debug!(%to, %error, "TFTP packet not sent");
            }
        }
        while let Some(finished) = server.poll_finished() {
            note_transfer(&shared, finished);
        }
    }
}

impl tftp::Files for Shared {
    fn open(&self, client: Ipv4Addr, name: &str) -> Result<Bytes, String> {
        match name {
            IMAGE_NAME => self.files.image(),
            SCRIPT_NAME => {
                let mac = self.mac_at(client).ok_or_else(|| {
                    format!("no machine is known at {client}; it asks DHCP here first")
                })?;
                Ok(Bytes::from(http::ipxe_script(self, mac)))
            }
            _ => self.files.firmware(name),
        }
    }
}

/// Enters what became of a TFTP transfer into the timeline.
pub(crate) fn note_transfer(shared: &Shared, finished: Finished) {
    let Finished {
        client,
        file,
        outcome,
    } = finished;
    let mac = shared.mac_at(*client.ip());
    match outcome {
        Outcome::Declined => {}
        Outcome::Failed(reason) => shared.transfer_failed(mac, Some(*client.ip()), &file, reason),
        Outcome::Complete => {
            let Some(mac) = mac else { return };
            match file.trim_start_matches('/') {
                IMAGE_NAME => shared.reached_image(mac, Firmware::UefiPxe),
                SCRIPT_NAME => shared.reached(mac, Stage::Script),
                BIOS_NBP_NAME => shared.reached(mac, Stage::Nbp),
                _ => {}
            }
        }
    }
}

/// The router advertisement loop.
pub(crate) async fn advertise(shared: Arc<Shared>, socket: RouterSocket) {
    let mut tick = interval(ADVERTISE_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut pause = ErrorPause::new("router advertisements");
    let mut buffer = [0; 1_500];
    loop {
        let asked = tokio::select! {
            received = socket.receive(&mut buffer) => match received {
                Ok(length) if router_advert::is_solicitation(&buffer[..length]) => true,
                Ok(_) => continue,
                Err(error) => {
                    pause.wait(&shared, &error).await;
                    continue;
                }
            },
            _ = tick.tick() => false,
        };
        let result = if asked {
            answer_solicitation(&socket).await
        } else {
            socket.advertise().await
        };
        match result {
            Ok(()) => {}
            // A bridge without machines has no link and so no address to send from: nobody misses
            // anything.
            Err(error) if !asked && no_address_yet(&error) => {}
            Err(error) => pause.wait(&shared, &error).await,
        }
    }
}

/// Sends an advertisement, waiting for the interface's own address if need be.
async fn answer_solicitation(socket: &RouterSocket) -> io::Result<()> {
    let mut tries = 1;
    loop {
        match socket.advertise().await {
            Err(error) if tries < ADVERTISE_TRIES && no_address_yet(&error) => {
                tries += 1;
                sleep(ADVERTISE_RETRY).await;
            }
            other => return other,
        }
    }
}

/// Whether sending failed because the interface has no usable link-local address.
fn no_address_yet(error: &io::Error) -> bool {
    use io::ErrorKind::{AddrNotAvailable, NetworkUnreachable};
    matches!(error.kind(), AddrNotAvailable | NetworkUnreachable)
}
