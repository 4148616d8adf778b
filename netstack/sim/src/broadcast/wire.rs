//! What messages take as datagrams, asked of netstack.

use netstack::broadcast::Packet;
use netstack::broadcast::wire::DATA_OVERHEAD;
use netstack::wire::datagram::Kind;

/// Bytes before the fragment in a DATA datagram.
pub const DATA_HEADER: u32 = DATA_OVERHEAD as u32;

/// Bytes of the datagram of a message that is not data.
pub fn message_bytes(packet: &Packet) -> u32 {
    packet.message.wire_bytes() as u32
}

/// Bytes of payload of a DATA datagram; None: it is something else.
pub fn data_payload(datagram: &[u8]) -> Option<u32> {
    let is_data = matches!(datagram, [_, _, _, kind, ..] if *kind == Kind::CastData as u8);
    is_data.then(|| (datagram.len() as u32).saturating_sub(DATA_HEADER))
}
