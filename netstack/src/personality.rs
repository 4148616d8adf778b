//! The personality: who a node is in the cluster, handed to it in DHCP option 224.
//!
//! The node's DHCP client names its boot epoch in option 225; the boot service answers with the
//! personality, which carries a key that holds for this MAC address and this boot only.
//! Everything is big-endian, as in DHCP.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | version of the format, 1 |
//! | 1 | 4 | node number |
//! | 5 | 4 | IPv4 address of the control node |
//! | 9 | 2 | its UDP port |
//! | 11 | 2 | its HTTP port |
//! | 13 | 1 | height of the fat tree, 0 to 4 |
//! | 14 | 8 | place in the tree: index at each level, from the leaves up, 16 bits each |
//! | 22 | 4 | number of the cluster key |
//! | 26 | 16 | node key |
//! | 42 | 1 | length of the name, 0 to 32 |
//! | 43 | n | name, printable ASCII |

use alloc::string::String;
use alloc::vec::Vec;

use crate::ids::{BootEpoch, NodeId};
use crate::wire::Error;
use crate::wire::field::{Reader, Writer};
use crate::wire::key::Key;

/// DHCP option that carries the personality, boot service to node.
pub const DHCP_OPTION: u8 = 224;
/// DHCP option that carries the boot epoch (8 bytes, big-endian), node to boot service.
pub const EPOCH_OPTION: u8 = 225;
/// A node's vendor class (option 60) is this followed by its version.
pub const VENDOR_CLASS_PREFIX: &str = "hearth-node:";
/// Version of the format that this build reads and writes.
pub const VERSION: u8 = 1;
/// Levels of the fat tree that a place can name.
pub const TREE_LEVELS: usize = 4;
/// Longest node name in bytes; keeps the option far below DHCP's 255.
pub const NAME_MAX: usize = 32;
/// Bytes before the name.
const FIXED_LEN: usize = 43;

/// Who a node is in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Personality {
    /// The node's number.
    pub node: NodeId,
    /// IPv4 address of the control node.
    pub control_addr: [u8; 4],
    /// UDP port of the control node.
    pub control_port: u16,
    /// HTTP port of the control node on the boot network.
    pub http_port: u16,
    /// Height of the fat tree, at most [`TREE_LEVELS`].
    pub tree_height: u8,
    /// Index at each level of the tree, from the leaves up.
    pub place: [u16; TREE_LEVELS],
    /// Which cluster secret the key was derived from.
    pub key_id: u32,
    /// The node's key for this boot.
    pub key: Key,
    /// The node's name, such as `n3`: printable ASCII, at most [`NAME_MAX`] bytes.
    pub name: String,
}

impl Personality {
    /// Reads the content of DHCP option 224.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(bytes);
        let version = reader.u8()?;
        if version != VERSION {
            return Err(Error::BadVersion(version));
        }
        let node = NodeId(reader.u32_be()?);
        let control_addr = reader.array()?;
        let control_port = reader.u16_be()?;
        let http_port = reader.u16_be()?;
        let tree_height = reader.u8()?;
        let mut place = [0; TREE_LEVELS];
        for index in &mut place {
            *index = reader.u16_be()?;
        }
        let key_id = reader.u32_be()?;
        let key = Key(reader.array()?);
        let name_length = usize::from(reader.u8()?);
        let name = reader.bytes(name_length)?;
        reader.finish()?;
        let possible = usize::from(tree_height) <= TREE_LEVELS && control_port != 0;
        if !possible || !is_name(name) || key.is_zero() {
            return Err(Error::BadValue);
        }
        let name = name.iter().map(|byte| char::from(*byte)).collect();
        Ok(Personality {
            node,
            control_addr,
            control_port,
            http_port,
            tree_height,
            place,
            key_id,
            key,
            name,
        })
    }

    /// Writes the content of DHCP option 224. Fails when a field is out of its stated range.
    pub fn emit(&self) -> Result<Vec<u8>, Error> {
        if usize::from(self.tree_height) > TREE_LEVELS
            || self.control_port == 0
            || self.key.is_zero()
            || !is_name(self.name.as_bytes())
        {
            return Err(Error::BadValue);
        }
        let mut bytes = alloc::vec![0; FIXED_LEN + self.name.len()];
        let mut writer = Writer::new(&mut bytes);
        writer.u8(VERSION);
        writer.u32_be(self.node.0);
        writer.bytes(&self.control_addr);
        writer.u16_be(self.control_port);
        writer.u16_be(self.http_port);
        writer.u8(self.tree_height);
        for index in self.place {
            writer.u16_be(index);
        }
        writer.u32_be(self.key_id);
        writer.bytes(&self.key.0);
        writer.u8(self.name.len() as u8);
        writer.bytes(self.name.as_bytes());
        debug_assert_eq!(writer.written(), FIXED_LEN + self.name.len());
        Ok(bytes)
    }
}

fn is_name(name: &[u8]) -> bool {
    name.len() <= NAME_MAX && name.iter().all(u8::is_ascii_graphic)
}

/// The key of one node for one boot, as it stands in the personality and as the control node
/// derives it again from a HELLO. `epoch` zero gives the laboratory key of that node, valid for
/// every boot, for use on the kernel's command line.
pub fn node_key(
    secret: &[u8; 16],
    key_id: u32,
    mac: [u8; 6],
    epoch: BootEpoch,
    node: NodeId,
) -> Key {
    Key(*secret).node_key(key_id, mac, epoch, node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_zeros_is_none() {
        let mut personality = Personality {
            node: NodeId(3),
            control_addr: [10, 0, 0, 1],
            control_port: 7117,
            http_port: 80,
            tree_height: 0,
            place: [0; TREE_LEVELS],
            key_id: 1,
            key: Key([0; 16]),
            name: "n3".into(),
        };
        assert_eq!(personality.emit(), Err(Error::BadValue));
        personality.key = Key([7; 16]);
        let mut bytes = personality.emit().expect("it has a key");
        assert!(Personality::parse(&bytes).is_ok());
        let name = bytes.len() - personality.name.len() - 1;
        bytes[name - 16..name].fill(0);
        assert_eq!(Personality::parse(&bytes), Err(Error::BadValue));
    }
}
