//! An entry of a job's connection table as a program gets it.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | rank |
//! | 4 | 4 | node number |
//! | 8 | 4 | IPv4 address, in network order |
//! | 12 | 2 | UDP port |
//! | 14 | 6 | Ethernet address |
//! | 20 | 4 | window id |
//! | 24 | 8 | network id |
//! | 32 | 4 | logical id |
//! | 36 | 4 | LID mask control |
//! | 40 | 4 | port id |
//! | 44 | 4 | zero |
//!
//! Numbers are little-endian but for the address. Neighbours: the call `hearth_peer` fills it in
//! (docs/abi.md).
//!
//! Invariant: every field is at a multiple of its size, so that a C structure without attributes
//! has this layout.

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 48;

/// An entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerEntry {
    /// Which rank.
    pub rank: u32,
    /// The node it runs on.
    pub node: u32,
    /// IPv4 address of its adapter.
    pub address: [u8; 4],
    /// UDP port.
    pub port: u16,
    /// Ethernet address of its adapter.
    pub mac: [u8; 6],
    /// Its window on the adapter.
    pub window: u32,
    /// The network that the adapter is on.
    pub network: u64,
    /// Logical id of the adapter.
    pub logical: u32,
    /// How many low bits of the logical id choose a path.
    pub mask: u32,
    /// Port of the adapter.
    pub port_id: u32,
}

impl PeerEntry {
    /// The structure as the program finds it.
    pub fn to_bytes(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &self.rank.to_le_bytes());
        put(4, &self.node.to_le_bytes());
        put(8, &self.address);
        put(12, &self.port.to_le_bytes());
        put(14, &self.mac);
        put(20, &self.window.to_le_bytes());
        put(24, &self.network.to_le_bytes());
        put(32, &self.logical.to_le_bytes());
        put(36, &self.mask.to_le_bytes());
        put(40, &self.port_id.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_table_says() {
        let entry = PeerEntry {
            rank: 0x0101_0101,
            node: 0x0202_0202,
            address: [3; 4],
            port: 0x0404,
            mac: [5; 6],
            window: 0x0606_0606,
            network: 0x0707_0707_0707_0707,
            logical: 0x0808_0808,
            mask: 0x0909_0909,
            port_id: 0x0a0a_0a0a,
        };
        let mut expected = [0; ENTRY_BYTES];
        let fields = [
            (0..4, 1),
            (4..8, 2),
            (8..12, 3),
            (12..14, 4),
            (14..20, 5),
            (20..24, 6),
            (24..32, 7),
            (32..36, 8),
            (36..40, 9),
            (40..44, 10),
        ];
        for (range, mark) in fields {
            expected[range].fill(mark);
        }
        assert_eq!(entry.to_bytes(), expected);
    }
}
