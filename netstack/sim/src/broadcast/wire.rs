//! What messages take as datagrams, asked of netstack.

use netstack::broadcast::{Message, Packet};

/// Bytes before the fragment in a DATA datagram.
pub const DATA_HEADER: u32 = 40;

/// Bytes of the datagram of a message that is not data.
pub fn message_bytes(packet: &Packet) -> u32 {
    let body = match &packet.message {
        Message::Announce { setup, .. } => {
            200 + 32 * setup.object.tops.len() + 10 * setup.roster.len()
        }
        Message::RosterPage { peers, .. } => 8 + 12 * peers.len(),
        Message::Request(wants) => 2 + 12 * wants.iter().count(),
        Message::Answer { blocks, .. } | Message::Cancel(blocks) => 2 + 4 * blocks.as_slice().len(),
        Message::Report(report) => 8 + 8 * (report.done.len() + report.failed.len()),
        _ => 8,
    };
    (28 + 16 + 10 + body) as u32
}

/// Bytes of payload of a DATA datagram; None: it is something else.
pub fn data_payload(_datagram: &[u8]) -> Option<u32> {
    None
}
