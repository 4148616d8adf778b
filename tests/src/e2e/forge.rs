//! Datagrams under somebody else's address: what a hostile machine that sees the network of a
//! cluster can send.
//!
//! The end-to-end binary starts itself inside a cluster's network namespace with [`FLAG`]. It
//! listens to what one node sends to another for a cast. A sender serves its blocks in ascending
//! order and at even distances, so two of them tell which come next: it sends wrong fragments of
//! those, in the name of the same sender. They need not win a race against the true ones, which are
//! not sent yet. Neighbours: [`crate::cast_failures`].
//!
//! Invariant: what is forged is well formed; only its bytes are lies.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use netstack::broadcast::{CastId, FRAGMENT, MemberIndex, wire};
use netstack::time::Micros;

use crate::cluster::Cluster;

/// First argument of the binary that makes it a forger.
pub const FLAG: &str = "--forge";
/// Linux: sockets that see frames.
const AF_PACKET: i32 = 17;
/// Linux's number of raw sockets.
const SOCK_RAW: i32 = 3;
/// Linux: with this protocol number the sender writes the IPv4 header.
const IPPROTO_RAW: i32 = 255;
/// Linux: packets of all protocols, in both directions.
const ETH_P_ALL: u16 = 3;
/// Headers before a UDP payload in a frame: Ethernet, IPv4 without options, UDP.
const FRAME_HEADERS: usize = 14 + 20 + 8;
/// The same without Ethernet.
const PACKET_HEADERS: u16 = 20 + 8;
/// Largest datagram of a cast.
const DATAGRAM_BYTES: usize = 1_472;
/// Bit of an envelope's flags that tells data, which carries no tag.
const BULK: u16 = 2;
/// The fragment that is forged: of a block of 8 KiB in six fragments the one before the last. Only
/// first fragments are listened to, so that the forger does not hear itself.
const FRAGMENT_FORGED: u8 = 4;
/// Blocks ahead of the last one seen that are lied about: a forger that the system lets wait for
/// that many block times still comes before the truth.
const BLOCKS_AHEAD: u32 = 4;
/// A lie for so many blocks is enough.
const BLOCKS_MOST: u32 = 20;

/// Listens inside the cluster's network for at most so many seconds and forges what `from` sends to
/// `to`; how many blocks it lied about.
pub fn forge(cluster: &Cluster, from: Ipv4Addr, to: Ipv4Addr, seconds: u32) -> Result<u32> {
    let binary = std::env::current_exe()?.to_string_lossy().into_owned();
    let (from, to, seconds) = (from.to_string(), to.to_string(), seconds.to_string());
    let words = [binary.as_str(), FLAG, &from, &to, &seconds];
    let done = cluster.in_namespace(&words, b"")?.expect_code(0)?;
    let text = done.out();
    text.trim()
        .parse()
        .with_context(|| format!("the forger said {text:?}"))
}

/// The forger itself.
pub fn main(words: &[String]) -> ExitCode {
    match listen_and_lie(words) {
        Ok(blocks) => {
            println!("{blocks}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("e2e {FLAG}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn listen_and_lie(words: &[String]) -> Result<u32> {
    let [from, to, seconds] = words else {
        bail!("FROM TO SECONDS");
    };
    let (from, to): (Ipv4Addr, Ipv4Addr) = (from.parse()?, to.parse()?);
    let end = Instant::now() + Duration::from_secs(seconds.parse()?);
    let rights = "a raw socket; run this as root, or where user namespaces are allowed";
    let all = socket2::Protocol::from(i32::from(ETH_P_ALL.to_be()));
    let kind = socket2::Type::from(SOCK_RAW);
    let mut ear =
        socket2::Socket::new(socket2::Domain::from(AF_PACKET), kind, Some(all)).context(rights)?;
    ear.set_read_timeout(Some(Duration::from_millis(200)))?;
    let raw = socket2::Protocol::from(IPPROTO_RAW);
    let mouth = socket2::Socket::new(socket2::Domain::IPV4, kind, Some(raw)).context(rights)?;
    let mut frame = [0; 2048];
    let (mut blocks, mut last, mut lied_to) = (0, None, 0);
    while blocks < BLOCKS_MOST && Instant::now() < end {
        let Ok(bytes) = ear.read(&mut frame) else {
            continue;
        };
        let Some(seen) = Data::parse(&frame[..bytes]) else {
            continue;
        };
        let is_theirs = seen.from.ip() == &from && seen.to.ip() == &to;
        // The same frame is seen on every interface that it passes; blocks that are sent again come
        // out of turn.
        if !is_theirs || seen.fragment != 0 || last >= Some(seen.block) {
            continue;
        }
        let before = last.replace(seen.block);
        let Some(distance) = before.map(|before| seen.block - before) else {
            continue;
        };
        for next in (1..=BLOCKS_AHEAD).map(|ahead| seen.block + ahead * distance) {
            if next > lied_to {
                mouth.send_to(&seen.lie(next)?, &seen.to.into())?;
                lied_to = next;
                blocks += 1;
            }
        }
    }
    ensure!(blocks > 0, "{from} sent no data to {to}");
    Ok(blocks)
}

/// One datagram with data of a cast.
struct Data {
    from: SocketAddrV4,
    to: SocketAddrV4,
    cast: CastId,
    member: MemberIndex,
    block: u32,
    fragment: u8,
}

impl Data {
    /// Finds it in an Ethernet frame: docs/protocol.md has the envelope.
    fn parse(frame: &[u8]) -> Option<Self> {
        let ip = frame.get(14..)?;
        let envelope = frame.get(FRAME_HEADERS..)?;
        let port = |at: usize| Some(u16::from_be_bytes(ip.get(at..at + 2)?.try_into().ok()?));
        let host = |at: usize| -> Option<Ipv4Addr> {
            let octets: [u8; 4] = ip.get(at..at + 4)?.try_into().ok()?;
            Some(octets.into())
        };
        let number = |at: usize, size: usize| -> Option<u64> {
            let part = envelope.get(at..at + size)?;
            Some(
                part.iter()
                    .rev()
                    .fold(0, |sum, &byte| sum << 8 | u64::from(byte)),
            )
        };
        let is_data = frame.get(12..14)? == [8, 0]
            && ip[0] == 0x45
            && ip.get(9)? == &17
            && wire::is_cast(envelope)
            && number(26, 2)? as u16 & BULK != 0;
        let sequence = number(16, 8)?;
        is_data.then_some(Self {
            from: SocketAddrV4::new(host(12)?, port(20)?),
            to: SocketAddrV4::new(host(16)?, port(22)?),
            member: MemberIndex(number(4, 4)? as u32),
            cast: CastId(number(8, 8)?),
            block: sequence as u32,
            fragment: (sequence >> 32) as u8,
        })
    }

    /// An IPv4 packet with wrong data for a block, from the same sender; the system fills in the
    /// header's checksum, UDP has none.
    fn lie(&self, block: u32) -> Result<Vec<u8>> {
        let mut payload = [0; DATAGRAM_BYTES];
        let fill = |bytes: &mut [u8]| {
            bytes.fill(0x5a);
            true
        };
        let piece = wire::Piece {
            block,
            fragment: FRAGMENT_FORGED,
            held: Micros::ZERO,
        };
        let bytes = wire::emit_data(self.cast, self.member, piece, FRAGMENT, &mut payload, fill)
            .context("no datagram was made")?;
        let udp_bytes = bytes as u16 + 8;
        let mut packet = vec![0x45, 0];
        packet.extend((bytes as u16 + PACKET_HEADERS).to_be_bytes());
        // Identification 0, no fragments, 64 hops, UDP, checksum.
        packet.extend([0, 0, 0, 0, 64, 17, 0, 0]);
        packet.extend(self.from.ip().octets());
        packet.extend(self.to.ip().octets());
        packet.extend(self.from.port().to_be_bytes());
        packet.extend(self.to.port().to_be_bytes());
        packet.extend(udp_bytes.to_be_bytes());
        packet.extend([0, 0]);
        packet.extend(&payload[..bytes]);
        Ok(packet)
    }
}
