//! The memory of a simulated rank: what it sends is computed, what it receives is compared and
//! counted.
//!
//! Invariant: a packet that is written twice, in part, or in another place than it belongs to is a
//! violation, and so is a wrong byte.

use netstack::exchange::{BufferId, Gone, Layout, Memory, PACKET, Part};

/// The buffer that blocks are sent from.
pub const SENT: BufferId = BufferId(0);
/// The buffer that blocks are received into.
pub const RECEIVED: BufferId = BufferId(1);

/// See the module.
pub struct RankMemory {
    me: u32,
    /// Of a message: its number and its sender; what is received are its bytes.
    message: Option<(u64, u32)>,
    /// Whom the only block that is sent is for; else each is for the rank of its place.
    to: Option<u32>,
    send: Vec<Part>,
    receive: Vec<Part>,
    /// First packet of each block that is received, in `seen`.
    starts: Vec<u32>,
    /// Packets that were written, a bit each.
    seen: Vec<u64>,
    packets: u64,
    /// The program has ended, and its memory is not there any more.
    is_gone: bool,
    /// What should not have happened.
    pub violations: Vec<String>,
}

/// A byte of the block from one rank to another.
fn byte(from: u32, to: u32, at: u64) -> u8 {
    let mixed =
        (u64::from(from) << 40 ^ u64::from(to) << 20 ^ at).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

impl RankMemory {
    /// Memory for blocks of these lengths, to and from each rank.
    pub fn new(me: u32, send: &[u64], receive: &[u64]) -> Self {
        let mut starts = Vec::with_capacity(receive.len());
        let mut packets = 0;
        for (from, bytes) in receive.iter().enumerate() {
            starts.push(packets as u32);
            if from != me as usize {
                packets += bytes.div_ceil(PACKET as u64);
            }
        }
        RankMemory {
            me,
            message: None,
            to: None,
            send: parts(send),
            receive: parts(receive),
            starts,
            seen: vec![0; packets.div_ceil(64) as usize],
            packets,
            is_gone: false,
            violations: Vec::new(),
        }
    }

    /// Memory for a message of so many bytes to another rank, and one as long from a third.
    pub fn of_message(number: u64, (me, to): (u32, u32), from: u32, bytes: u64) -> Self {
        RankMemory {
            message: Some((number, from)),
            to: Some(to),
            // A message of this rank to itself is not looked at packet by packet.
            ..RankMemory::new(u32::MAX, &[bytes], &[bytes])
        }
        .of(me)
    }

    fn of(mut self, me: u32) -> Self {
        self.me = me;
        self
    }

    /// A byte of what one rank sends another, of which number.
    fn byte(&self, from: u32, to: u32, at: u64) -> u8 {
        byte(
            from,
            to,
            at ^ self.message.map_or(0, |(number, _)| (number + 1) << 40),
        )
    }

    /// What it posts: its blocks for the ranks of a group and from them.
    pub fn layouts(&self, group: &[u32]) -> (Layout, Layout) {
        let of_group = |parts: &[Part]| {
            let parts = group.iter().map(|rank| parts[*rank as usize]);
            Layout::Parts(parts.collect())
        };
        (of_group(&self.send), of_group(&self.receive))
    }

    /// Packets that it has to receive.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Packets that were written.
    pub fn written(&self) -> u64 {
        self.seen
            .iter()
            .map(|word| u64::from(word.count_ones()))
            .sum()
    }

    /// The program has ended: nothing is to be written from now on.
    pub fn take_away(&mut self) {
        self.is_gone = true;
    }

    /// Begins again for the next exchange.
    pub fn clear(&mut self) {
        self.seen.fill(0);
    }

    fn violate(&mut self, what: String) {
        if self.violations.len() < 8 {
            self.violations.push(what);
        }
    }
}

fn parts(lengths: &[u64]) -> Vec<Part> {
    let mut offset = 0;
    let place = |bytes: &u64| {
        let part = Part {
            offset,
            bytes: *bytes,
        };
        offset += bytes;
        part
    };
    lengths.iter().map(place).collect()
}

/// The block that a place is in, and how far.
fn find(parts: &[Part], offset: u64) -> Option<(usize, u64)> {
    let at = parts.partition_point(|part| part.offset + part.bytes <= offset);
    let part = parts.get(at)?;
    Some((at, offset.checked_sub(part.offset)?))
}

impl Memory for RankMemory {
    fn read(&mut self, buffer: BufferId, offset: u64, out: &mut [u8]) -> Result<(), Gone> {
        if self.is_gone {
            return Err(Gone);
        }
        let Some((to, at)) = find(&self.send, offset).filter(|_| buffer == SENT) else {
            self.violate(format!("buffer {buffer:?} is read at {offset}"));
            return Err(Gone);
        };
        if at + out.len() as u64 > self.send[to].bytes {
            self.violate(format!(
                "{} bytes of block {to} are read at {at}",
                out.len()
            ));
            return Err(Gone);
        }
        let to = self.to.unwrap_or(to as u32);
        for (place, out) in out.iter_mut().enumerate() {
            *out = self.byte(self.me, to, at + place as u64);
        }
        Ok(())
    }

    fn write(&mut self, buffer: BufferId, offset: u64, bytes: &[u8]) -> Result<(), Gone> {
        if self.is_gone {
            self.violate(format!("{} bytes are written at {offset}", bytes.len()));
            return Err(Gone);
        }
        let Some((from, at)) = find(&self.receive, offset).filter(|_| buffer == RECEIVED) else {
            self.violate(format!("buffer {buffer:?} is written at {offset}"));
            return Err(Gone);
        };
        let me = self.me;
        let sender = self.message.map_or(from as u32, |(_, sender)| sender);
        let expected = (self.receive[from].bytes - at).min(PACKET as u64);
        // A rank's own block is copied in pieces of any length.
        let is_own = sender == me;
        let is_whole = is_own
            || at.is_multiple_of(PACKET as u64)
                && (bytes.is_empty() || bytes.len() as u64 == expected);
        let mut all = bytes.iter().zip(at..);
        let is_right = all.all(|(found, at)| *found == self.byte(sender, me, at));
        if !is_whole || !is_right {
            self.violate(format!(
                "{} bytes at {at} of the block of {from} are not what it sent",
                bytes.len()
            ));
        }
        if !is_own {
            let packet = self.starts[from] + (at / PACKET as u64) as u32;
            let (word, bit) = (packet as usize / 64, 1 << (packet % 64));
            if self.seen[word] & bit != 0 {
                self.violate(format!(
                    "packet {} of the block of {from} is written twice",
                    at / PACKET as u64
                ));
            }
            self.seen[word] |= bit;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_should_not_be_written_is_noticed() {
        let wrong = [
            (0, vec![byte(0, 1, 0); 3]),
            (5, vec![byte(0, 1, 5)]),
            (9_999, vec![1]),
        ];
        for (offset, bytes) in wrong {
            let mut memory = RankMemory::new(1, &[10, 10], &[3000, 10]);
            let _ = memory.write(RECEIVED, offset, &bytes);
            assert_eq!(memory.violations.len(), 1);
        }
        let mut memory = RankMemory::new(1, &[10, 10], &[3000, 10]);
        let packet: Vec<u8> = (0..PACKET as u64).map(|at| byte(0, 1, at)).collect();
        memory.write(RECEIVED, 0, &packet).unwrap();
        assert_eq!(
            (memory.violations.len(), memory.written(), memory.packets()),
            (0, 1, 3)
        );
        memory.write(RECEIVED, 0, &packet).unwrap();
        assert_eq!(memory.violations.len(), 1);
    }
}
