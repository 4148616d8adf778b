//! A page of a roster: the addresses of up to [`PAGE_PEERS`] members, in few bytes.
//!
//! At thousands of members the pages are what a cast of little data waits for first. The control
//! node numbers addresses one after the other, and network cards of one maker have their first
//! bytes in common: what all members of a page share is written once. Anything else is written as
//! it is, 12 bytes a member.
//!
//! Invariant: what was read has at least one member and no port 0; reading what was written gives
//! the same.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};

use super::{PEER_LEN, emit_peer, parse_peer};
use crate::broadcast::Peer;
use crate::broadcast::message::PAGE_PEERS;
use crate::wire::Error;
use crate::wire::field::{Reader, Writer};

/// Bytes of a page of which nothing is shared.
pub(super) const MOST_BYTES: usize = 2 + PAGE_PEERS as usize * PEER_LEN;
/// Bytes of an Ethernet address.
const MAC_BYTES: usize = 6;
/// How many first bytes of the Ethernet addresses are written once, where addresses follow one
/// another; where they do not, peers are written as they are.
const AS_THEY_ARE: u8 = u8::MAX;

/// First bytes that all Ethernet addresses have in common; None: the members' addresses do not
/// follow one another.
fn shared(peers: &[Peer]) -> Option<usize> {
    let first = peers.first()?;
    let mut same = MAC_BYTES;
    for (place, peer) in peers.iter().enumerate() {
        if Some(peer.addr) != place_after(first.addr, place) {
            return None;
        }
        let pairs = first.mac.iter().zip(&peer.mac);
        same = same.min(pairs.take_while(|(one, other)| one == other).count());
    }
    Some(same)
}

/// The address so many after another one, at the same port.
fn place_after(addr: SocketAddrV4, place: usize) -> Option<SocketAddrV4> {
    let host = addr.ip().to_bits().checked_add(place as u32)?;
    Some(SocketAddrV4::new(Ipv4Addr::from_bits(host), addr.port()))
}

/// Bytes that [`emit`] writes.
pub(super) fn length(peers: &[Peer]) -> usize {
    2 + match shared(peers) {
        Some(same) => PEER_LEN - MAC_BYTES + same + peers.len() * (MAC_BYTES - same),
        None => peers.len() * PEER_LEN,
    }
}

/// Writes a page.
pub(super) fn emit(peers: &[Peer], writer: &mut Writer<'_>) {
    let fits = (1..=PAGE_PEERS as usize).contains(&peers.len());
    assert!(fits, "a page is empty or too long");
    let same = shared(peers);
    writer.u8(peers.len() as u8);
    writer.u8(same.map_or(AS_THEY_ARE, |same| same as u8));
    let Some(same) = same else {
        peers.iter().for_each(|peer| emit_peer(peer, writer));
        return;
    };
    let first = &peers[0];
    writer.bytes(&first.addr.ip().octets());
    writer.u16(first.addr.port()).bytes(&first.mac[..same]);
    for peer in peers {
        writer.bytes(&peer.mac[same..]);
    }
}

/// Reads a page.
pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Vec<Peer>, Error> {
    let count = usize::from(reader.u8()?);
    let same = reader.u8()?;
    if !(1..=PAGE_PEERS as usize).contains(&count) {
        return Err(Error::BadValue);
    }
    let mut peers = Vec::with_capacity(count);
    if same == AS_THEY_ARE {
        for _ in 0..count {
            peers.push(parse_peer(reader)?);
        }
        return Ok(peers);
    }
    let same = usize::from(same);
    let host = Ipv4Addr::from(reader.array::<4>()?);
    let first = SocketAddrV4::new(host, reader.u16()?);
    if first.port() == 0 || same > MAC_BYTES {
        return Err(Error::BadValue);
    }
    let mut mac = [0; MAC_BYTES];
    mac[..same].copy_from_slice(reader.bytes(same)?);
    for place in 0..count {
        mac[same..].copy_from_slice(reader.bytes(MAC_BYTES - same)?);
        let addr = place_after(first, place).ok_or(Error::BadValue)?;
        peers.push(Peer { addr, mac });
    }
    Ok(peers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(host: u32, mac: [u8; 6]) -> Peer {
        let addr = SocketAddrV4::new(Ipv4Addr::from_bits(host), 7000);
        Peer { addr, mac }
    }

    fn written(peers: &[Peer]) -> Vec<u8> {
        let mut bytes = [0; MOST_BYTES];
        let mut writer = Writer::new(&mut bytes);
        emit(peers, &mut writer);
        let written = writer.written();
        assert_eq!(written, length(peers));
        bytes[..written].to_vec()
    }

    #[test]
    fn pages_come_back_and_take_what_differs() {
        let mac = |at: u32| [0x52, 0x54, 0, (at * 7) as u8, (at * 13) as u8, at as u8];
        let orderly: Vec<Peer> = (0..64).map(|at| peer(0x0a00_0001 + at, mac(at))).collect();
        let mut moved = orderly.clone();
        moved[9] = peer(0x0a00_0009, mac(99));
        let mut port = orderly.clone();
        port[3].addr.set_port(9);
        let foreign = [peer(5, [1; 6]), peer(6, [2; 6])];
        let last = [peer(u32::MAX, [7; 6])];
        let cases: [(&[Peer], usize); 5] = [
            (&orderly, 2 + 6 + 3 + 64 * 3),
            (&moved, 2 + 64 * 12),
            (&port, 2 + 64 * 12),
            (&foreign, 2 + 6 + 12),
            (&last, 2 + 12),
        ];
        for (peers, bytes) in cases {
            let page = written(peers);
            assert_eq!(page.len(), bytes);
            assert_eq!(parse(&mut Reader::new(&page)).unwrap(), peers);
            for cut in 0..page.len() {
                assert!(parse(&mut Reader::new(&page[..cut])).is_err());
            }
        }
    }

    #[test]
    fn impossible_pages_are_refused() {
        let two = written(&[peer(5, [1; 6]), peer(6, [1; 6])]);
        let with = |at: usize, byte: u8| {
            let mut page = two.clone();
            page[at] = byte;
            parse(&mut Reader::new(&page))
        };
        assert!(with(0, 0).is_err(), "nobody");
        assert!(with(0, 65).is_err(), "more than a page");
        assert!(with(1, 7).is_err(), "more than an Ethernet address shared");
        let mut page = two.clone();
        page[2..6].fill(0xff);
        assert!(
            parse(&mut Reader::new(&page)).is_err(),
            "beyond the last address"
        );
        page[6..8].fill(0);
        assert!(parse(&mut Reader::new(&page)).is_err(), "port 0");
    }
}
