//! Hostile datagrams into the ranks of a job, which exchange blocks and messages meanwhile.
//!
//! Invariant: besides not panicking, no rank writes outside of the memory of its operations.

use std::collections::BTreeMap;

use netstack::MAX_DATAGRAM;
use netstack::exchange::envelope::{Head, Seal};
use netstack::exchange::wire::OVERHEAD;
use netstack::exchange::{
    Among, Active, Baseline, BufferId, Config, Conflict, Endpoint, Gone, Layout, MAX_OPS, Memory, Op,
    Scheme, Side,
};
use netstack::ids::{JobId, Rank};
use netstack::time::{Instant, Micros};
use netstack::wire::datagram::Kind;
use netstack::wire::key::Key;

const KEY: Key = Key(*b"a secret to fuzz");
const JOB: JobId = JobId(1);
const RANKS: u32 = 3;
/// Bytes of each block.
const BLOCK: u64 = 9_000;
/// Bytes of each message.
const MESSAGE: u64 = 3_000;
/// Where in a datagram its number is.
const NUMBER: usize = 7;
const RECEIVED: BufferId = BufferId(1);
const LETTER: BufferId = BufferId(2);

/// A scheme for comparison: its name, and what becomes of who meets a busy receiver.
#[derive(Debug)]
struct Compared(&'static str, Option<Conflict>);

impl Baseline for Compared {
    fn name(&self) -> &'static str {
        self.0
    }

    fn conflict(&self) -> Option<Conflict> {
        self.1
    }
}

const AT_ONCE: Scheme = Scheme::Compared(&Compared("at once", None));
const RETRY: Scheme = Scheme::Compared(&Compared("retry", Some(Conflict::Retry)));
const BY_RANK: Scheme = Scheme::Compared(&Compared(
    "by rank",
    Some(Conflict::Heaviest(|from, _| u64::from(from.0))),
));

/// Memory that gives zeros, and panics where something is written that no operation has.
struct Bounds;

impl Memory for Bounds {
    fn read(&mut self, _: BufferId, _: u64, out: &mut [u8]) -> Result<(), Gone> {
        out.fill(0);
        Ok(())
    }

    fn write(&mut self, buffer: BufferId, offset: u64, bytes: &[u8]) -> Result<(), Gone> {
        let most = match buffer {
            RECEIVED => BLOCK * u64::from(RANKS),
            LETTER => MESSAGE,
            other => panic!("{other:?} is not written to"),
        };
        assert!(offset + bytes.len() as u64 <= most, "beyond the end");
        Ok(())
    }
}

struct Job {
    ranks: Vec<Endpoint>,
    now: Instant,
    seal: Seal,
    /// Number of the last datagram from a rank to a rank, whoever has sealed it.
    numbers: BTreeMap<(u32, u32), u32>,
}

impl Job {
    fn new(scheme: Scheme) -> Self {
        let now = Instant::from_micros(1);
        let rank = |me| {
            let config = Config {
                job: JOB,
                epoch: 0,
                me: Rank(me),
                size: RANKS,
                key: KEY,
                rate: 0,
                port_buffer: 0,
                leaf: 0,
                scheme,
                eager_bytes: 4_096,
                seed: 1,
            };
            Endpoint::new(config, now)
        };
        Job {
            ranks: (0..RANKS).map(rank).collect(),
            now,
            seal: Seal::new(&KEY.exchange_key(JOB, 0), JOB),
            numbers: BTreeMap::new(),
        }
    }

    /// Each rank posts one of everything, as far as it still may.
    fn post(&mut self) {
        let side = |buffer| Side {
            buffer,
            layout: Layout::Equal { bytes: BLOCK },
        };
        for (me, rank) in (0..).zip(&mut self.ranks) {
            let ops = [
                Op::AllToAll {
                    among: Among::all(0),
                    send: side(BufferId(0)),
                    receive: side(RECEIVED),
                },
                Op::Barrier { among: Among::all(0) },
                Op::Send {
                    to: Rank((me + 1) % RANKS),
                    context: 0,
                    tag: 0,
                    buffer: BufferId(0),
                    bytes: MESSAGE,
                    is_synchronous: false,
                },
                Op::Receive {
                    from: None,
                    context: 0,
                    tag: None,
                    buffer: LETTER,
                    capacity: MESSAGE,
                },
            ];
            for op in ops {
                // Refused once too many wait, or a rank is lost.
                let _ = rank.post(self.now, op, &mut Bounds);
            }
        }
    }

    fn deliver(&mut self, to: usize, datagram: &[u8]) {
        self.ranks[to].handle_datagram(self.now, datagram, &mut Bounds);
        assert!(self.ranks[to].footprint().ops <= MAX_OPS);
    }

    /// Carries what the ranks have to say for a while.
    fn settle(&mut self) {
        let mut out = [0; MAX_DATAGRAM];
        for _ in 0..100 {
            let mut is_quiet = true;
            for from in 0..self.ranks.len() {
                while self.ranks[from].poll_event().is_some() {}
                let sent = self.ranks[from].poll_transmit(self.now, &mut out, &mut Bounds);
                if let Some((to, length)) = sent {
                    is_quiet = false;
                    let [a, b, c, d] = *out[NUMBER..].first_chunk().expect("it has a head");
                    let last = self.numbers.entry((from as u32, to.0)).or_default();
                    *last = u32::from_le_bytes([a, b, c, d]).max(*last);
                    self.deliver(to.0 as usize, &out[..length]);
                }
            }
            if is_quiet {
                return;
            }
        }
    }
}

/// Records as in the other targets: mode 0 delivers bytes as they are, mode 1 as the payload of a
/// datagram under the job's key, mode 2 lets time pass, mode 3 lets the ranks speak, mode 4 has
/// them post more. The first byte chooses the scheme, the upper bits of a record's mode sender and
/// receiver; the first byte of a sealed payload holds its flags.
pub fn attack_exchange(input: &[u8]) {
    let Some((&first, mut rest)) = input.split_first() else {
        return;
    };
    let mut job = Job::new(match first % 5 {
        0 => Scheme::Default,
        1 => Scheme::Published {
            active: Active::Given(2),
        },
        2 => AT_ONCE,
        3 => RETRY,
        _ => BY_RANK,
    });
    job.post();
    job.settle();
    while let Some((&[mode, kind, low, high], tail)) = rest.split_first_chunk::<4>() {
        let length = usize::from(u16::from_le_bytes([low, high])).min(tail.len());
        let (bytes, tail) = tail.split_at(length);
        rest = tail;
        let (to, from) = (usize::from(mode >> 3 & 3) % 3, u32::from(mode >> 5));
        match mode % 8 {
            0 => job.deliver(to, bytes),
            1 => {
                let Some((flags, payload)) = bytes.split_first() else {
                    continue;
                };
                let Ok(kind) = Kind::from_wire(80 + kind % 3) else {
                    continue;
                };
                let head = Head {
                    is_message: flags & 1 != 0,
                    is_last: flags & 2 != 0,
                    ..Head::of(kind, Rank(from))
                };
                let payload = &payload[..payload.len().min(MAX_DATAGRAM - OVERHEAD)];
                let (me, mut out) = (Rank(to as u32), [0; MAX_DATAGRAM]);
                // A number that is taken: those that the rank itself uses are lost then.
                let last = job.numbers.entry((from, me.0)).or_default();
                *last += 1;
                let number = u64::from(*last);
                let length = job.seal.seal(head, me, number, &mut out, |room| {
                    room[..payload.len()].copy_from_slice(payload);
                    Some(payload.len())
                });
                if let Some(length) = length {
                    job.deliver(to, &out[..length]);
                }
            }
            2 => job.now += Micros(u64::from(kind) * 5_000),
            4 => job.post(),
            _ => job.settle(),
        }
    }
    job.settle();
}
