//! Who a fake node is.
//!
//! Key type: [`Identity`]. Neighbours: `lab` makes them, `fake_node` speaks for them.

/// Who a node is.
#[derive(Debug, Clone, Copy)]
pub struct Identity {
    pub node: u32,
    pub epoch: u64,
    pub secret: [u8; 16],
    pub version: [u8; 16],
    /// A key for every boot instead of the one for this.
    pub lab_key: Option<[u8; 16]>,
    /// It does not scrub memory.
    pub unscrubbed: bool,
    /// Cores that it says it has.
    pub cores: u16,
}

impl Identity {
    pub fn mac(&self) -> [u8; 6] {
        [0x52, 0x54, 0, 7, 0, u8::try_from(self.node).unwrap()]
    }
}
