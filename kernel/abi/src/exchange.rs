//! What programs and the kernel say to each other about data between ranks.
//!
//! A program describes an operation ([`Operation`]), hands it over with the call `hearth_post`, and
//! learns with `hearth_wait` how it ended ([`Status`]). `hearth_self` tells it who it is
//! ([`Identity`]).
//!
//! [`Operation`], 104 bytes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | length of the structure, 104 |
//! | 4 | 2 | kind, see [`Kind`] |
//! | 6 | 2 | flags: [`ANY_RANK`], [`ANY_TAG`] of a receive, [`CHECK`] of a send or receive, [`SYNCHRONOUS`] and [`FORGET`] of a send, [`CLAIM`] and [`NOW`] of a probe, [`CLAIMED`] of a receive, [`SIT_OUT`] of an all-to-all, else zero |
//! | 8 | 4 | rank: to whom, or from whom; with [`SIT_OUT`] the rank at fault |
//! | 12 | 4 | context: only operations of one context meet |
//! | 16 | 4 | tag; with [`SIT_OUT`] why, see [`Why`] |
//! | 20 | 4 | of an all-to-all or barrier: ranks of the group, or 0 for all of the job |
//! | 24 | 8 | address of what is sent |
//! | 32 | 8 | its bytes; of an all-to-all the bytes for each rank |
//! | 40 | 8 | address of where to receive |
//! | 48 | 8 | its room in bytes; of an all-to-all the bytes from each rank |
//! | 56 | 8 | address of one u64 a rank: bytes for it, or 0 |
//! | 64 | 8 | address of one u64 a rank: where they begin, from the address of what is sent on, or 0 |
//! | 72 | 8 | address of one u64 a rank: bytes from it, or 0 |
//! | 80 | 8 | address of one u64 a rank: where they go, or 0 |
//! | 88 | 8 | address of one u32 for each of the group: its rank; or 0 |
//! | 96 | 4 | of an all-to-all or barrier: its number in the context, or 0 for the next; with [`CLAIMED`] the request of the probe |
//! | 100 | 4 | zero |
//!
//! Lists and blocks of an all-to-all are in the order of the group.
//!
//! [`Status`], 24 bytes: error i32 (0 or a negative number of [`crate::errno`]), rank u32, tag u32,
//! zero u32, bytes u64. [`Identity`], 24 bytes: rank u32, size u32, job u64, most operations
//! outstanding u32, zero u32.
//!
//! Neighbours: the kernel's `process::calls::exchange`, the library in `kernel/user`, `hearth.h`,
//! docs/abi.md.
//!
//! Invariant: every field is at a multiple of its size, so that C structures without attributes
//! have these layouts; all numbers are little-endian.

/// Bytes of an operation.
pub const OPERATION_BYTES: usize = 104;
/// Bytes of a status.
pub const STATUS_BYTES: usize = 24;
/// Bytes of an identity.
pub const IDENTITY_BYTES: usize = 24;

/// Operations of a program that may be posted and not waited for.
pub const OUTSTANDING_MAX: u32 = 65_536;
/// Buffers that a program may give for messages that wait.
pub const ROOMS_MAX: usize = 256;
/// Requests that one call of `hearth_wait` looks at.
pub const WAIT_MAX: u64 = 1024;
/// Time of `hearth_wait` that never ends.
pub const FOREVER: u64 = u64::MAX;

/// Flag of a receive: from any rank; the field for the rank is zero.
pub const ANY_RANK: u16 = 1;
/// Flag of a receive: with any tag; the field for the tag is zero.
pub const ANY_TAG: u16 = 2;
/// Flag of a send or receive: only brings its memory in, as posting it would, and begins nothing.
/// The number of the request is then 0.
pub const CHECK: u16 = 4;
/// Flag of an all-to-all: this rank takes no part in it. The exchange counts here as begun and
/// failed, and ranks that need this one in it are told why. Nothing is posted, and needs no room:
/// the number of the request is then 0.
pub const SIT_OUT: u16 = 8;

/// Flag of a send: it is done only when a receive has taken the message, however short it is.
pub const SYNCHRONOUS: u16 = 16;

/// Flag of a probe: the message that it finds is kept for the receive that names the request of the
/// probe. `hearth_cancel` of that request lets it go.
pub const CLAIM: u16 = 32;
/// Flag of a probe: it does not wait. Where no message is here nothing is posted, and the number of
/// the request is 0; else the request has finished.
pub const NOW: u16 = 64;
/// Flag of a receive: of the message that a probe keeps. The fields for rank, context and tag are
/// zero.
pub const CLAIMED: u16 = 128;

/// Flag of a send of up to [`FORGOTTEN_MAX`] bytes: the message is copied, and nothing tells how it
/// ends. The number of the request is 0. EAGAIN: there is no room for the copy until others have
/// arrived. Else the message is as any other: it is sent again until it has arrived, also after the
/// program's end.
pub const FORGET: u16 = 256;
/// Bytes of a message that may be forgotten.
pub const FORGOTTEN_MAX: u64 = 1384;

/// `hearth_wait`: take one request that has finished and return its place in the list plus 1, with
/// one status.
pub const WAIT_ANY: u64 = 1;
/// `hearth_wait`: do not halt the processor meanwhile.
pub const WAIT_SPIN: u64 = 2;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Kind {
    /// Sends bytes to a rank.
    Send = 1,
    /// Receives the bytes of a send of the same context and tag from a rank.
    Receive = 2,
    /// Sends bytes to each other rank of a group and receives bytes from each: all of them post it,
    /// in the same order within a context. The rank's own block is copied.
    AllToAll = 3,
    /// Finished when all ranks of a group have posted it.
    Barrier = 4,
    /// Finished when a message is here that a receive of these fields would take and that no
    /// receive was posted for. It stays, see [`CLAIM`].
    Probe = 5,
    /// Gives the memory of `receive` and `receive_bytes` for messages that wait, until the program
    /// ends. Nothing is posted, and the number of the request is 0.
    Room = 6,
}

impl Kind {
    /// The kind with this number.
    pub const fn from_number(number: u16) -> Option<Self> {
        match number {
            1 => Some(Self::Send),
            2 => Some(Self::Receive),
            3 => Some(Self::AllToAll),
            4 => Some(Self::Barrier),
            5 => Some(Self::Probe),
            6 => Some(Self::Room),
            _ => None,
        }
    }
}

/// Why a rank cannot do its part in what all take part in: that other rank's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Why {
    /// It is lost.
    Lost = 0,
    /// It has another number of bytes.
    Length = 1,
    /// It has taken back its part.
    Withdrawn = 2,
}

impl Why {
    /// The reason with this number.
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Lost),
            1 => Some(Self::Length),
            2 => Some(Self::Withdrawn),
            _ => None,
        }
    }
}

/// An operation as the program describes it. Unused fields are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operation {
    /// Number of a [`Kind`].
    pub kind: u16,
    /// [`ANY_RANK`], [`ANY_TAG`], [`CHECK`], [`SIT_OUT`], [`SYNCHRONOUS`], [`CLAIM`], [`NOW`],
    /// [`CLAIMED`], [`FORGET`].
    pub flags: u16,
    /// To whom or from whom; with [`SIT_OUT`] the rank at fault.
    pub rank: u32,
    /// Only operations of one context meet.
    pub context: u32,
    /// Only sends and receives of one tag meet; with [`SIT_OUT`] the number of a [`Why`].
    pub tag: u32,
    /// Address of what is sent.
    pub send: u64,
    /// Its bytes, of an all-to-all for each rank.
    pub send_bytes: u64,
    /// Address of where to receive.
    pub receive: u64,
    /// Its room in bytes, of an all-to-all for each rank.
    pub receive_bytes: u64,
    /// Address of the bytes for each rank.
    pub send_counts: u64,
    /// Address of where they begin.
    pub send_offsets: u64,
    /// Address of the bytes from each rank.
    pub receive_counts: u64,
    /// Address of where they go.
    pub receive_offsets: u64,
    /// Ranks of the group; 0: all of the job.
    pub group_size: u32,
    /// Address of the ranks of the group.
    pub group: u64,
    /// Number of the exchange or barrier in its context; 0: the next. With [`CLAIMED`] the request
    /// of the probe.
    pub number: u32,
}

impl Operation {
    /// The structure as it is handed over.
    pub fn to_bytes(&self) -> [u8; OPERATION_BYTES] {
        let mut bytes = [0; OPERATION_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &(OPERATION_BYTES as u32).to_le_bytes());
        put(4, &self.kind.to_le_bytes());
        put(6, &self.flags.to_le_bytes());
        put(8, &self.rank.to_le_bytes());
        put(12, &self.context.to_le_bytes());
        put(16, &self.tag.to_le_bytes());
        put(20, &self.group_size.to_le_bytes());
        put(96, &self.number.to_le_bytes());
        let words = [
            self.send,
            self.send_bytes,
            self.receive,
            self.receive_bytes,
            self.send_counts,
            self.send_offsets,
            self.receive_counts,
            self.receive_offsets,
            self.group,
        ];
        for (index, word) in words.into_iter().enumerate() {
            put(24 + 8 * index, &word.to_le_bytes());
        }
        bytes
    }

    /// Reads the structure; `None` when its length is another or a field that must be zero is not:
    /// the program was made for another kernel.
    pub fn from_bytes(bytes: &[u8; OPERATION_BYTES]) -> Option<Self> {
        let word = |at: usize| u64::from_le_bytes(array(&bytes[at..]));
        let zeros = bytes[100..].iter().all(|&byte| byte == 0);
        if u32::from_le_bytes(array(bytes)) != OPERATION_BYTES as u32 || !zeros {
            return None;
        }
        Some(Self {
            kind: u16::from_le_bytes(array(&bytes[4..])),
            flags: u16::from_le_bytes(array(&bytes[6..])),
            rank: u32::from_le_bytes(array(&bytes[8..])),
            context: u32::from_le_bytes(array(&bytes[12..])),
            tag: u32::from_le_bytes(array(&bytes[16..])),
            send: word(24),
            send_bytes: word(32),
            receive: word(40),
            receive_bytes: word(48),
            send_counts: word(56),
            send_offsets: word(64),
            receive_counts: word(72),
            receive_offsets: word(80),
            group_size: u32::from_le_bytes(array(&bytes[20..])),
            group: word(88),
            number: u32::from_le_bytes(array(&bytes[96..])),
        })
    }
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// 0, or a negative error number.
    pub error: i32,
    /// The other rank; with an error that a rank caused, that rank.
    pub rank: u32,
    /// The tag of a receive.
    pub tag: u32,
    /// Bytes received; with EMSGSIZE the length of the message that did not fit.
    pub bytes: u64,
}

impl Status {
    /// The structure as the program finds it.
    pub fn to_bytes(&self) -> [u8; STATUS_BYTES] {
        let mut bytes = [0; STATUS_BYTES];
        bytes[..4].copy_from_slice(&self.error.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.rank.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.tag.to_le_bytes());
        bytes[16..].copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }

    /// Reads the structure.
    pub fn from_bytes(bytes: &[u8; STATUS_BYTES]) -> Self {
        Self {
            error: i32::from_le_bytes(array(bytes)),
            rank: u32::from_le_bytes(array(&bytes[4..])),
            tag: u32::from_le_bytes(array(&bytes[8..])),
            bytes: u64::from_le_bytes(array(&bytes[16..])),
        }
    }
}

/// Who the program is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Its rank.
    pub rank: u32,
    /// Ranks of its job.
    pub size: u32,
    /// Number of its job.
    pub job: u64,
    /// Operations it may have posted and not waited for.
    pub outstanding_max: u32,
}

impl Identity {
    /// The structure as the program finds it.
    pub fn to_bytes(&self) -> [u8; IDENTITY_BYTES] {
        let mut bytes = [0; IDENTITY_BYTES];
        bytes[..4].copy_from_slice(&self.rank.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.size.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.job.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.outstanding_max.to_le_bytes());
        bytes
    }

    /// Reads the structure.
    pub fn from_bytes(bytes: &[u8; IDENTITY_BYTES]) -> Self {
        Self {
            rank: u32::from_le_bytes(array(bytes)),
            size: u32::from_le_bytes(array(&bytes[4..])),
            job: u64::from_le_bytes(array(&bytes[8..])),
            outstanding_max: u32::from_le_bytes(array(&bytes[16..])),
        }
    }
}

/// The first bytes of a slice that has them.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[..N]);
    array
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_table_says() {
        let operation = Operation {
            kind: 0x0101,
            flags: 0x0202,
            rank: 0x0303_0303,
            context: 0x0404_0404,
            tag: 0x0505_0505,
            send: u64::from_le_bytes([6; 8]),
            send_bytes: u64::from_le_bytes([7; 8]),
            receive: u64::from_le_bytes([8; 8]),
            receive_bytes: u64::from_le_bytes([9; 8]),
            send_counts: u64::from_le_bytes([10; 8]),
            send_offsets: u64::from_le_bytes([11; 8]),
            receive_counts: u64::from_le_bytes([12; 8]),
            receive_offsets: u64::from_le_bytes([13; 8]),
            group_size: u32::from_le_bytes([14; 4]),
            group: u64::from_le_bytes([15; 8]),
            number: u32::from_le_bytes([16; 4]),
        };
        let bytes = operation.to_bytes();
        assert_eq!(bytes[..4], 104u32.to_le_bytes());
        let places = [
            (4..6, 1),
            (6..8, 2),
            (8..12, 3),
            (12..16, 4),
            (16..20, 5),
            (20..24, 14),
            (24..32, 6),
            (32..40, 7),
        ];
        let more = [
            (40..48, 8),
            (48..56, 9),
            (56..64, 10),
            (64..72, 11),
            (72..80, 12),
            (80..88, 13),
            (88..96, 15),
            (96..100, 16),
            (100..104, 0),
        ];
        for (range, mark) in places.into_iter().chain(more) {
            assert!(
                bytes[range.clone()].iter().all(|&byte| byte == mark),
                "{range:?}"
            );
        }
        assert_eq!(Operation::from_bytes(&bytes), Some(operation));
        let mut other = bytes;
        other[0] = 64;
        assert_eq!(Operation::from_bytes(&other), None);
        for at in [100, 103] {
            other = bytes;
            other[at] = 1;
            assert_eq!(Operation::from_bytes(&other), None);
        }
    }

    #[test]
    fn what_the_kernel_writes_is_what_a_program_reads() {
        let status = Status {
            error: -112,
            rank: 7,
            tag: u32::MAX - 1,
            bytes: 1 << 40,
        };
        assert_eq!(Status::from_bytes(&status.to_bytes()), status);
        let identity = Identity {
            rank: 3,
            size: 16,
            job: 1 << 33,
            outstanding_max: OUTSTANDING_MAX,
        };
        assert_eq!(Identity::from_bytes(&identity.to_bytes()), identity);
        for number in 0..=u16::MAX {
            let kind = Kind::from_number(number);
            assert!(kind.is_none_or(|kind| kind as u16 == number));
        }
    }
}
