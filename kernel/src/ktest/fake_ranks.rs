//! The other ranks of a job, in this kernel's own memory: the same engine, whose datagrams go from
//! one to the other without a wire.
//!
//! Key type: [`FakeRanks`]. Neighbour: `FakeControl`, which moves datagrams when the program polls
//! or waits.

use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};

use netstack::MAX_DATAGRAM;
use netstack::broadcast::table::Entry;
use netstack::exchange::{BufferId, Config, Endpoint, Event, Gone, Memory, Op, Scheme};
use netstack::ids::{JobId, LocalRank, NodeId, Rank};
use netstack::time::Instant;
use netstack::wire::key::Key;

use crate::exchange::Exchange;
use crate::exchange::PeerLookup;
use crate::net::peer::PeerDatagram;

/// What all ranks share.
pub const KEY: Key = Key([7; 16]);
/// UDP port of rank 0; that of rank n is n higher.
const PORT: u16 = 1000;
/// Datagrams that one call moves at most: a rank that never stops talking must not stop the test.
const MOVES_MAX: u32 = 100_000;

/// Memory of a fake rank: each buffer's number is its place in the list.
#[derive(Default)]
struct Buffers(Vec<Vec<u8>>);

impl Buffers {
    fn piece(&mut self, buffer: BufferId, offset: u64, length: usize) -> Result<&mut [u8], Gone> {
        let buffer = self.0.get_mut(buffer.0 as usize).ok_or(Gone)?;
        let start = offset as usize;
        buffer.get_mut(start..start + length).ok_or(Gone)
    }
}

impl Memory for Buffers {
    fn read(&mut self, buffer: BufferId, offset: u64, out: &mut [u8]) -> Result<(), Gone> {
        out.copy_from_slice(self.piece(buffer, offset, out.len())?);
        Ok(())
    }

    fn write(&mut self, buffer: BufferId, offset: u64, bytes: &[u8]) -> Result<(), Gone> {
        self.piece(buffer, offset, bytes.len())?
            .copy_from_slice(bytes);
        Ok(())
    }
}

struct FakeRank {
    endpoint: Endpoint,
    memory: Buffers,
    events: Vec<Event>,
}

/// The ranks from 1 on.
pub struct FakeRanks {
    ranks: Vec<FakeRank>,
    /// Operations to be posted, and when.
    plans: Vec<(Instant, u32, Op)>,
    /// Operations to be posted when the program waits and has made so many system calls.
    plans_by_calls: Vec<(u64, u32, Op)>,
    /// The connection table is here.
    pub table: bool,
    /// Turns of the run loop that have asked them.
    pub turns: u64,
}

impl FakeRanks {
    /// The ranks from 1 on of job 1, which has `size`.
    pub fn new(size: u32, now: Instant) -> Self {
        let rank = |me: u32| FakeRank {
            endpoint: Endpoint::new(
                Config {
                    job: JobId(1),
                    epoch: 0,
                    me: Rank(me),
                    size,
                    key: KEY,
                    rate: 0,
                    port_buffer: 0,
                    leaf: 0,
                    scheme: Scheme::Default,
                    eager_bytes: 0,
                    seed: me.into(),
                },
                now,
            ),
            memory: Buffers::default(),
            events: Vec::new(),
        };
        Self {
            ranks: (1..size).map(rank).collect(),
            plans: Vec::new(),
            plans_by_calls: Vec::new(),
            table: true,
            turns: 0,
        }
    }

    /// A buffer of a rank with this content; its number.
    pub fn buffer(&mut self, rank: u32, bytes: Vec<u8>) -> BufferId {
        let buffers = &mut self.ranks[rank as usize - 1].memory.0;
        buffers.push(bytes);
        BufferId(buffers.len() as u64 - 1)
    }

    /// What is in a buffer.
    pub fn content(&self, rank: u32, buffer: BufferId) -> &[u8] {
        &self.ranks[rank as usize - 1].memory.0[buffer.0 as usize]
    }

    /// Has a rank post an operation at some time.
    pub fn plan(&mut self, at: Instant, rank: u32, op: Op) {
        self.plans.push((at, rank, op));
    }

    /// Has a rank post an operation when the program waits in its system call number `calls`,
    /// counted from 1, or later: however long it takes to get there.
    pub fn plan_at_call(&mut self, calls: u64, rank: u32, op: Op) {
        self.plans_by_calls.push((calls, rank, op));
    }

    /// The program waits, and has made so many system calls.
    pub fn program_waits(&mut self, now: Instant, calls: u64) {
        let (due, later) = self
            .plans_by_calls
            .drain(..)
            .partition(|plan| plan.0 <= calls);
        self.plans_by_calls = later;
        self.plans
            .extend(due.into_iter().map(|(_, rank, op)| (now, rank, op)));
    }

    /// What has happened at a rank.
    pub fn events(&self, rank: u32) -> &[Event] {
        &self.ranks[rank as usize - 1].events
    }

    /// When there is something to do.
    pub fn next(&self, exchange: &Exchange) -> Instant {
        let plans = self.plans.iter().map(|plan| plan.0);
        let ranks = self
            .ranks
            .iter()
            .filter_map(|rank| rank.endpoint.poll_timeout());
        let own = exchange.poll_timeout(self.table);
        plans
            .chain(ranks)
            .chain(own)
            .min()
            .unwrap_or(Instant::FAR_FUTURE)
    }

    /// Moves datagrams until nobody has any.
    pub fn pump(&mut self, now: Instant, exchange: &mut Exchange) {
        self.turns += 1;
        let (due, later) = self.plans.drain(..).partition(|plan| plan.0 <= now);
        self.plans = later;
        for (_, rank, op) in due {
            let FakeRank {
                endpoint, memory, ..
            } = &mut self.ranks[rank as usize - 1];
            endpoint
                .post(now, op, memory)
                .expect("a plan can be posted");
        }
        let mut buffer = vec![0; MAX_DATAGRAM];
        for _ in 0..MOVES_MAX {
            let moved = self.move_from_program(now, exchange, &mut buffer)
                | self.move_to_others(now, exchange, &mut buffer);
            if !moved {
                break;
            }
        }
        for rank in &mut self.ranks {
            while let Some(event) = rank.endpoint.poll_event() {
                rank.events.push(event);
            }
        }
    }

    fn move_from_program(
        &mut self,
        now: Instant,
        exchange: &mut Exchange,
        buffer: &mut [u8],
    ) -> bool {
        let table = self
            .table
            .then_some(&look_up as &dyn Fn(Rank) -> PeerLookup);
        let Some((route, length)) = exchange.poll_transmit(now, buffer, table) else {
            return false;
        };
        let to = usize::from(route.address.port() - PORT);
        let FakeRank {
            endpoint, memory, ..
        } = &mut self.ranks[to - 1];
        endpoint.handle_datagram(now, &buffer[..length], memory);
        true
    }

    fn move_to_others(&mut self, now: Instant, exchange: &mut Exchange, buffer: &mut [u8]) -> bool {
        let mut moved = false;
        for from in 0..self.ranks.len() {
            let FakeRank {
                endpoint, memory, ..
            } = &mut self.ranks[from];
            let Some((to, length)) = endpoint.poll_transmit(now, buffer, memory) else {
                continue;
            };
            moved = true;
            let bytes = &buffer[..length];
            match to.0 as usize {
                0 => exchange.handle_datagram(
                    now,
                    &PeerDatagram {
                        from: address(from as u32 + 1),
                        mac: [0; 6],
                        to: LocalRank::FIRST,
                        bytes,
                    },
                ),
                other => {
                    let FakeRank {
                        endpoint, memory, ..
                    } = &mut self.ranks[other - 1];
                    endpoint.handle_datagram(now, bytes, memory);
                }
            }
        }
        moved
    }
}

fn address(rank: u32) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, PORT + rank as u16)
}

fn look_up(rank: Rank) -> PeerLookup {
    PeerLookup::Found(Entry {
        node: NodeId(rank.0),
        addr: address(rank.0),
        mac: [0; 6],
        window: 0,
        network: 0,
        logical: 0,
        lid_mask: 0,
        port_id: 0,
    })
}
