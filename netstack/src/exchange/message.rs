//! What ranks say to one another. [`super::wire`] turns it into datagrams.
//!
//! Invariant: what is said in every packet's time (data, pulls, answers) owns no heap beyond the
//! list it rides in.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{PACKET, SHORT};
use crate::ids::Rank;

/// Numbers of exchanges, barriers and messages, and of packets, have 24 bits on the wire.
pub const NUMBER_MASK: u32 = (1 << 24) - 1;
/// Most items of a control datagram: those to one rank that wait at the same time.
pub const MAX_ITEMS: usize = 16;

/// Published scheme: a rank that has done so many steps has nothing left to send.
pub const ALL_STEPS: u32 = u32::MAX;

/// A block, together with who sends it and who receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockId {
    /// The block of an all-to-all exchange: the context, and its number within it.
    Exchange(u16, u32),
    /// A message: its number among those of the two ranks, this way.
    Message(u32),
}

/// A datagram, or in a simulation several data packets that follow one another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Who says it.
    pub from: Rank,
    /// What.
    pub body: Body,
}

/// See [`Packet`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Packets of a block.
    Data(Data),
    /// Announcements, pulls, answers.
    Control(Vec<Item>),
    /// A short message.
    Short {
        /// What it is.
        offer: Offer,
        /// Its bytes, at most [`SHORT`].
        payload: Box<[u8]>,
    },
}

/// Packets of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// The block.
    pub block: BlockId,
    /// Number of the packet of bit 0.
    pub first: u32,
    /// Which packets: not 0.
    pub packets: u64,
    /// Bytes of the last packet there; the others are full.
    pub tail: u16,
    /// The last packet there is the last of its block.
    pub is_last: bool,
}

/// A message that is there to be received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Its number among those from its sender to its receiver.
    pub number: u32,
    /// Its context.
    pub context: u16,
    /// Its tag.
    pub tag: u32,
    /// Its length.
    pub bytes: u64,
}

/// Which packets of a block are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pull {
    /// Rises with each pull of the block, from 1.
    pub serial: u16,
    /// Number of the packet of bit 0.
    pub first: u32,
    /// Which packets; none only where the receiver just wants to be told.
    pub packets: u64,
    /// The receiver wants to be told when all that it asked for up to now is sent.
    pub tell: bool,
}

/// Something said in a control datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// I am ready: my block for you has so many bytes.
    Ready {
        /// Context of the exchange.
        context: u16,
        /// Its number.
        number: u32,
        /// Bytes of the block.
        bytes: u64,
        /// So many of its first packets come unasked.
        pushed: u8,
        /// What I take part in, see [`super::group`].
        signature: u32,
    },
    /// Are you ready for this exchange?
    WhoIsReady {
        /// Context of the exchange.
        context: u16,
        /// Its number.
        number: u32,
        /// What I take part in.
        signature: u32,
    },
    /// These packets, please.
    Pull {
        /// The block.
        block: BlockId,
        /// Which.
        pull: Pull,
    },
    /// I have the whole block.
    Got {
        /// The block.
        block: BlockId,
        /// Of an exchange: what I take part in, 0 where that is not known any more. Else 0.
        signature: u32,
    },
    /// I have sent all that you asked for.
    Served {
        /// The block.
        block: BlockId,
        /// Of the last pull that wanted to be told.
        serial: u16,
    },
    /// The block does not come.
    Refuse {
        /// The block.
        block: BlockId,
        /// Of an exchange: it failed or was cancelled here; else the block is not as long as the
        /// other side says. Of a message: its memory is gone; else it was taken back, and is as if
        /// it had never been sent.
        gone: bool,
    },
    /// A message waits here.
    Offer(Offer),
    /// I know of this message and ask for it when it is to be received.
    Known {
        /// Its number.
        number: u32,
    },
    /// I have reached this stage of a barrier.
    Arrived {
        /// Its context.
        context: u16,
        /// Its number.
        number: u32,
        /// The stage, from 0.
        stage: u8,
        /// What I take part in.
        signature: u32,
    },
    /// Have you reached this stage?
    Ask {
        /// The context of the barrier.
        context: u16,
        /// Its number.
        number: u32,
        /// The stage, from 0.
        stage: u8,
        /// What I take part in.
        signature: u32,
    },
    /// Are you there?
    Ping {
        /// A number drawn at random.
        question: u32,
    },
    /// I am.
    Pong {
        /// That of the question.
        question: u32,
    },
    /// This rank is lost: its node does not answer, or its program has ended.
    Lost(Loss),
    /// I have not begun this exchange. I know that you are ready, and ask for your block when I
    /// have.
    Noted {
        /// Context of the exchange.
        context: u16,
        /// Its number.
        number: u32,
    },
    /// I serve somebody else, try again (random delay).
    Busy {
        /// Context of the exchange.
        context: u16,
        /// Its number.
        number: u32,
    },
    /// This barrier failed or was cancelled here, because of that rank's part in it: it cannot be
    /// done.
    Broken {
        /// Its context.
        context: u16,
        /// Its number.
        number: u32,
        /// Whose part.
        rank: Rank,
        /// What it was.
        why: Why,
    },
    /// This exchange failed here because of that rank's part in it. Nobody answers it: two ranks in
    /// which it has failed would never stop.
    Fault {
        /// Context of the exchange.
        context: u16,
        /// Its number.
        number: u32,
        /// Whose part.
        rank: Rank,
        /// What it was.
        why: Why,
        /// Bytes of this rank's block for each other, where they are equal.
        bytes: Option<u64>,
    },
    /// Published scheme: this rank is ready for the exchange, or done with its part of a step.
    ToMaster {
        /// Context of the exchange.
        context: u16,
        /// Its number.
        number: u32,
        /// 0: its local part is finished; [`ALL_STEPS`]: that, and all its blocks have come; else
        /// so many steps are done.
        step: u32,
        /// What I take part in.
        signature: u32,
    },
    /// Published scheme: a target of this rank's queue in this step. Without targets: the master
    /// has heard the report with this step.
    FromMaster {
        /// Context of the exchange.
        context: u16,
        /// Its number.
        number: u32,
        /// The step, from 1.
        step: u32,
        /// Place of this target in the queue.
        place: u16,
        /// Targets in the queue.
        count: u16,
        /// Whom to send to.
        to: Rank,
        /// What I take part in, 0 where that is not known any more.
        signature: u32,
    },
}

impl Item {
    /// The exchange or barrier that this is about, and what its sender takes part in there, where
    /// it says so.
    pub(super) fn operation(&self) -> Option<((u16, u32), u32)> {
        match *self {
            Item::Ready {
                context,
                number,
                signature,
                ..
            }
            | Item::WhoIsReady {
                context,
                number,
                signature,
            }
            | Item::Got {
                block: BlockId::Exchange(context, number),
                signature,
            }
            | Item::Arrived {
                context,
                number,
                signature,
                ..
            }
            | Item::Ask {
                context,
                number,
                signature,
                ..
            }
            | Item::ToMaster {
                context,
                number,
                signature,
                ..
            }
            | Item::FromMaster {
                context,
                number,
                signature,
                ..
            } => Some(((context, number), signature)).filter(|(_, signature)| *signature != 0),
            _ => None,
        }
    }
}

/// A rank that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Which.
    pub rank: Rank,
    /// The rank that its program had lost, as it was told last, before it ended itself.
    pub cause: Option<Rank>,
    /// Its program has ended, and its node still answers for it: what it had done before is done,
    /// and who asks it hears what is not.
    pub has_ended: bool,
    /// It has ended well, so that nobody who waits for a message of any rank misses one of it.
    pub is_well: bool,
}

impl Loss {
    /// Of a rank whose node does not answer.
    pub fn of(rank: Rank) -> Self {
        Loss {
            rank,
            cause: None,
            has_ended: false,
            is_well: false,
        }
    }
}

/// What a rank has done to an exchange or a barrier that failed because of it, or another of whom
/// it has heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its block has another length.
    Length,
    /// It takes part in something else at this number: another group, or another operation.
    Other,
    /// It took its part back.
    Withdrawn,
    /// It is lost.
    Lost,
}

/// No rank.
pub const NOBODY: Rank = Rank(u32::MAX);

impl Data {
    /// Bytes of all packets there.
    pub fn bytes(&self) -> usize {
        (self.packets.count_ones() as usize - 1) * PACKET + usize::from(self.tail)
    }
}

/// Packets of a block of so many bytes.
pub fn packets(bytes: u64) -> u32 {
    bytes.div_ceil(PACKET as u64) as u32
}

/// Bytes of packet `number` of a block of so many bytes.
pub fn packet_bytes(bytes: u64, number: u32) -> usize {
    let start = u64::from(number) * PACKET as u64;
    bytes.saturating_sub(start).min(PACKET as u64) as usize
}

/// `a` comes before `b` in the order of numbers of 24 bits, which wraps.
pub fn is_before(a: u32, b: u32) -> bool {
    let ahead = b.wrapping_sub(a) & NUMBER_MASK;
    ahead != 0 && ahead <= NUMBER_MASK / 2
}

/// The number after `number`.
pub fn next(number: u32) -> u32 {
    number.wrapping_add(1) & NUMBER_MASK
}

const _: () = assert!(SHORT <= PACKET && SHORT.is_multiple_of(8));
