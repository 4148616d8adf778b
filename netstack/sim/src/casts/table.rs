//! The connection table of a simulated job: what is cast, and what every node must find in it.
//!
//! Neighbours: [`super::content`] makes the object, [`super::check`] looks ranks up where the nodes
//! keep it.
//!
//! Invariant: an entry is a function of its rank and the run's seed, so that what a node finds is
//! compared with what was meant, not with what was encoded.

use std::net::{Ipv4Addr, SocketAddrV4};

use netstack::NODE_PORT;
use netstack::broadcast::table::{self, Entry, Table};
use netstack::ids::{NodeId, Rank};
use netstack::rng::Rng;

/// Ranks that each node looks up, beside the first and the last.
const LOOKUPS: u64 = 1000;
/// First address of the adapters.
const FIRST_ADDRESS: u32 = 0x0a00_0000;

/// How a rank is reached: each has an adapter of its own, whose Ethernet address is in no order.
pub fn entry(rank: u32, seed: u64) -> Entry {
    let mut rng = Rng::new(seed ^ (u64::from(rank) << 20));
    let [_, _, mac @ ..] = rng.next_u64().to_be_bytes();
    Entry {
        node: NodeId(rank),
        addr: SocketAddrV4::new(Ipv4Addr::from(FIRST_ADDRESS + rank), NODE_PORT),
        mac,
        window: 0,
        network: 1,
        logical: rank as u16,
        lid_mask: 0,
        port_id: 1,
    }
}

/// The table as it is sent.
///
/// # Errors
/// More ranks than a table has.
pub fn encode(ranks: u32, seed: u64) -> Result<Vec<u8>, String> {
    if ranks == 0 {
        return Err("--table: a job has 1 rank or more".into());
    }
    if ranks > table::MAX_RANKS {
        return Err(format!("--table: {}", table::TooManyRanks));
    }
    let entries: Vec<Entry> = (0..ranks).map(|rank| entry(rank, seed)).collect();
    table::encode(&entries, 0).map_err(|error| format!("--table: {error}"))
}

/// Looks ranks up in a table of so many bytes that lies at a node; gives how many.
///
/// # Errors
/// What was found that is not so.
pub fn look_up(
    ranks: u32,
    seed: u64,
    node: u32,
    bytes: u64,
    read: &mut table::Read<'_>,
) -> Result<u64, String> {
    let table = Table::open(bytes, read).ok_or("what it has is no connection table")?;
    if table.ranks() != ranks {
        return Err(format!("its table has {} ranks of {ranks}", table.ranks()));
    }
    let mut rng = Rng::new(seed ^ 0x7261_6e6b_7321 ^ u64::from(node));
    let drawn: Vec<u32> = (0..LOOKUPS)
        .map(|_| rng.below(ranks.into()) as u32)
        .collect();
    for &rank in drawn.iter().chain(&[0, ranks - 1]) {
        let found = table.entry(Rank(rank), read);
        if found != Some(entry(rank, seed)) {
            return Err(format!("it finds {found:?} for rank {rank}"));
        }
    }
    Ok(LOOKUPS + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_with_another_entry_is_found_out() {
        let bytes = encode(500, 3).unwrap();
        let look = |seed, bytes: &[u8]| {
            look_up(500, seed, 0, bytes.len() as u64, &mut table::reader(bytes))
        };
        assert_eq!(look(3, &bytes), Ok(1002));
        assert!(look(4, &bytes).is_err());
        assert!(look(3, &bytes[..bytes.len() - 1]).is_err());
        assert!(look_up(501, 3, 0, bytes.len() as u64, &mut table::reader(&bytes)).is_err());
    }
}
