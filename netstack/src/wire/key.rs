//! Keys: SipHash-2-4 with 128-bit output, and how each key is derived from the one above it.
//!
//! ```text
//! cluster secret --(key id, MAC, boot epoch, node)--> node key
//! node key --("hello", direction)--------------------> join key, for HELLO, WELCOME and REFUSE
//! node key --("session", direction, session)---------> session key, for everything else
//! node key --(job, rank)-----------------------------> key of the rank's file calls
//! cluster secret --(job)-----------------------------> job's key, for its ranks
//! random, one for each run of the control node ------> peer key, for casts and the overlay
//! ```
//!
//! The peer key is the one key that is not derived: all nodes that joined one run of the control
//! node share it. WELCOME carries it, wrapped under the join key ([`Key::wrap_peer_key`]). LAUNCH
//! carries the key of its job, wrapped under the session key: only the job's nodes get it.
//!
//! The control node can derive the key of any HELLO from what the HELLO itself says, so it keeps
//! no table of keys it gave out, and a restarted control node needs only the cluster secret.
//!
//! Source: Aumasson, Bernstein: SipHash, a fast short-input PRF (2012); the 128-bit output is
//! that of the authors' reference implementation.

use core::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher24};

use crate::ids::{BootEpoch, ControlEpoch, JobId, NodeId, Rank};

/// Bytes in a key.
pub const KEY_LEN: usize = 16;
/// Bytes in an authentication tag.
pub const TAG_LEN: usize = 16;

/// A secret of 16 bytes. Its `Debug` form does not show it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key(pub [u8; KEY_LEN]);

impl core::fmt::Debug for Key {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Which way a datagram goes. Each way has keys of its own, so that nothing can be reflected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From a node to the control node.
    ToControl,
    /// From the control node to a node.
    ToNode,
}

impl Direction {
    fn label(self) -> u8 {
        match self {
            Direction::ToControl => b'c',
            Direction::ToNode => b'n',
        }
    }
}

impl Key {
    /// All zeros: what memory holds that nobody has written, and what anybody guesses first. No key
    /// that comes from outside may be it.
    pub fn is_zero(&self) -> bool {
        self.0 == [0; KEY_LEN]
    }

    /// SipHash-2-4-128 of `parts`, one after the other, under this key.
    pub fn mac(&self, parts: &[&[u8]]) -> [u8; TAG_LEN] {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        for part in parts {
            hasher.write(part);
        }
        hasher.finish128().as_bytes()
    }

    /// SipHash-2-4 of `parts`, one after the other, with its ordinary output of 64 bits: for tags
    /// of single packets of bulk data.
    pub fn short_mac(&self, parts: &[&[u8]]) -> [u8; 8] {
        let mut hasher = siphasher::sip::SipHasher24::new_with_key(&self.0);
        for part in parts {
            hasher.write(part);
        }
        hasher.finish().to_le_bytes()
    }

    /// The key of a job, from the cluster secret (`self`). The nodes of the job get it with their
    /// LAUNCH ([`Key::wrap_job_key`]), and nobody else does. A control node that was started again
    /// gives the same to those that are still to be launched; one that has forgotten the job, and
    /// has another of its number, gives another.
    pub fn job_key(&self, job: JobId, submitted_us: u64) -> Key {
        Key(self.mac(&[
            b"hearth job key\0\0",
            &job.0.to_le_bytes(),
            &submitted_us.to_le_bytes(),
        ]))
    }

    /// The key of a job as LAUNCH carries it: xored with a pad that the session key to the node
    /// (`self`) gives. The same pad hides one key only, since a job has one.
    pub fn wrap_job_key(&self, job: JobId, job_key: Key) -> [u8; KEY_LEN] {
        let pad = self.mac(&[b"hearth job pad\0\0", &job.0.to_le_bytes()]);
        core::array::from_fn(|index| pad[index] ^ job_key.0[index])
    }

    /// The key that [`Key::wrap_job_key`] wrapped.
    pub fn unwrap_job_key(&self, job: JobId, wrapped: [u8; KEY_LEN]) -> Key {
        Key(self.wrap_job_key(job, Key(wrapped)))
    }

    /// The key of what the ranks of a job say to one another in one epoch of its member list, from
    /// the job's key (`self`).
    pub fn exchange_key(&self, job: JobId, epoch: u16) -> Key {
        Key(self.mac(&[
            b"hearth exchange\0",
            &job.0.to_le_bytes(),
            &epoch.to_le_bytes(),
        ]))
    }

    /// The key of all casts of one run of the control node, from the peer key (`self`).
    pub fn casts_key(&self) -> Key {
        Key(self.mac(&[b"hearth casts\0\0\0\0"]))
    }

    /// The key of the overlay of one run of the control node, from the peer key (`self`).
    pub fn overlay_key(&self) -> Key {
        Key(self.mac(&[b"hearth overlay\0\0"]))
    }

    /// The key of the file calls of one rank of a job, from the key of its node (`self`): the I/O
    /// service is given this one, and none that says more.
    pub fn files_key(&self, job: JobId, rank: Rank) -> Key {
        Key(self.mac(&[
            b"hearth files\0\0\0\0",
            &job.0.to_le_bytes(),
            &rank.0.to_le_bytes(),
        ]))
    }

    /// The key of what one run of an I/O service, or the node, says in one direction, from the key
    /// of the rank's file calls (`self`).
    pub fn files_direction(&self, direction: Direction, epoch: u64) -> Key {
        Key(self.mac(&[
            b"hearth files way",
            &[direction.label()],
            &epoch.to_le_bytes(),
        ]))
    }

    /// Compares a tag without telling by the time it takes where the first difference is.
    pub fn verify(&self, parts: &[&[u8]], tag: &[u8; TAG_LEN]) -> bool {
        let expected = u128::from_le_bytes(self.mac(parts));
        core::hint::black_box(expected ^ u128::from_le_bytes(*tag)) == 0
    }

    /// The key of one node for one boot, from the cluster secret (`self`).
    ///
    /// `epoch` is zero for a laboratory key that is given on the command line and therefore holds
    /// for every boot.
    pub fn node_key(&self, key_id: u32, mac: [u8; 6], epoch: BootEpoch, node: NodeId) -> Key {
        Key(self.mac(&[
            b"hearth node key\0",
            &key_id.to_le_bytes(),
            &mac,
            &epoch.0.to_le_bytes(),
            &node.0.to_le_bytes(),
        ]))
    }

    /// The key of join messages in one direction, from a node key (`self`).
    pub fn join_key(&self, direction: Direction) -> Key {
        Key(self.mac(&[b"hearth join key\0", &[direction.label()]]))
    }

    /// The key of a session's messages in one direction, from a node key (`self`).
    pub fn session_key(&self, direction: Direction, session: u64) -> Key {
        Key(self.mac(&[
            b"hearth session\0\0",
            &[direction.label()],
            &session.to_le_bytes(),
        ]))
    }

    /// The peer key as WELCOME carries it: xored with a pad that the join key to the node (`self`)
    /// and the session give. The same pad hides one peer key only, since a run of the control node
    /// has one.
    pub fn wrap_peer_key(
        &self,
        control: ControlEpoch,
        session: u64,
        peer_key: Key,
    ) -> [u8; KEY_LEN] {
        let pad = self.mac(&[
            b"hearth peer key\0",
            &control.0.to_le_bytes(),
            &session.to_le_bytes(),
        ]);
        core::array::from_fn(|index| pad[index] ^ peer_key.0[index])
    }

    /// The peer key that [`Key::wrap_peer_key`] wrapped. WELCOME is sealed, so it is never a
    /// stranger's.
    pub fn unwrap_peer_key(
        &self,
        control: ControlEpoch,
        session: u64,
        wrapped: [u8; KEY_LEN],
    ) -> Key {
        Key(self.wrap_peer_key(control, session, Key(wrapped)))
    }
}
