//! The connection table of a job: how each rank is reached, so that no rank ever asks for an
//! address.
//!
//! Published (Chunked broadcast, "What is distributed"): one entry for each task, about 50 bytes,
//! one million tasks. [`Entry`] is that entry, and [`Entry::emit`] its published size. What is cast
//! and kept is smaller: columns, because what is regular in a cluster is regular in its columns.
//!
//! ```text
//! 0    magic "HRCT"      8   ranks, u32
//! 4    version, 1        12  adapters, u32
//! 5    columns, 10       16  for each column: kind u8, width u8, 0 u16, count u32, offset u64
//! 6    leaf u16          176 the columns' contents
//! ```
//!
//! Leaf: how many ranks share a leaf switch, where they are placed leaf after leaf; else 0
//! ([`crate::exchange::rounds`]). Columns of ranks: adapter, port, window id. Columns of adapters
//! (in the order in which ranks first use them): node, IPv4, MAC, network id, logical id, LID mask
//! control, port id. A column is *packed* (kind 1: `count` numbers of `width` bytes) or consists of
//! *runs* (kind 2: `count` records of 28 bytes: first index u32, repeat u32, period u32, base u64,
//! step u64; the value at index i is base + step * ((i - first) / repeat mod period), wrapping). So
//! blocks and cycles of ranks are one run.
//!
//! Neighbours: control encodes, [`super`] carries it like any object, a node looks ranks up where
//! it lies, by [`Table`], without unpacking and without memory of its own.
//!
//! Invariant: a lookup reads at most the logarithm of the runs, whatever the bytes are; bytes that
//! make no sense give None.

mod column;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};

use self::column::Column;
use crate::ids::{NodeId, Rank};
use crate::wire::Error;
use crate::wire::field::{Reader, Writer};

/// Most ranks of a table: four times the million that the method was made for.
pub const MAX_RANKS: u32 = 1 << 22;
const MAGIC: [u8; 4] = *b"HRCT";
const VERSION: u8 = 1;
/// Columns of ranks, then columns of adapters.
const RANK_COLUMNS: usize = 3;
const COLUMNS: usize = 10;
/// Bytes before the columns' contents.
const HEADER_LEN: usize = 16 + COLUMNS * column::DESCRIPTOR_LEN;

/// How one rank is reached: all that a frame needs, and the names that the published method gives
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The node it runs on.
    pub node: NodeId,
    /// IPv4 address of the adapter, and the UDP port.
    pub addr: SocketAddrV4,
    /// Ethernet address of the adapter.
    pub mac: [u8; 6],
    /// The task's window on the adapter.
    pub window: u32,
    /// The network the adapter is on.
    pub network: u64,
    /// The adapter's logical id (LID) on the network.
    pub logical: u16,
    /// How many low bits of the logical id choose a path (LID mask control).
    pub lid_mask: u8,
    /// The adapter's port.
    pub port_id: u8,
}

impl Entry {
    /// Bytes of an entry in the published form.
    pub const LEN: usize = 50;

    /// The published form: rank 4, node 4, adapter address 16 (IPv4-mapped, big-endian), MAC 6,
    /// UDP port 2, window id 4, network id 8, logical id 2, LID mask control 1, port id 1, reserved
    /// 2. Little-endian but for the address.
    pub fn emit(&self, rank: Rank) -> [u8; Entry::LEN] {
        let mut bytes = [0; Entry::LEN];
        let mut writer = Writer::new(&mut bytes);
        writer.u32(rank.0).u32(self.node.0);
        writer.bytes(&self.addr.ip().to_ipv6_mapped().octets());
        writer.bytes(&self.mac).u16(self.addr.port());
        writer.u32(self.window).u64(self.network);
        writer
            .u16(self.logical)
            .u8(self.lid_mask)
            .u8(self.port_id)
            .u16(0);
        bytes
    }

    /// Reads the published form.
    pub fn parse(bytes: &[u8; Entry::LEN]) -> Result<(Rank, Entry), Error> {
        let mut reader = Reader::new(bytes);
        let (rank, node) = (Rank(reader.u32()?), NodeId(reader.u32()?));
        let ip = core::net::Ipv6Addr::from(reader.array::<16>()?);
        let ip = ip.to_ipv4_mapped().ok_or(Error::BadValue)?;
        let mac = reader.array()?;
        let port = reader.u16()?;
        let entry = Entry {
            node,
            addr: SocketAddrV4::new(ip, port),
            mac,
            window: reader.u32()?,
            network: reader.u64()?,
            logical: reader.u16()?,
            lid_mask: reader.u8()?,
            port_id: reader.u8()?,
        };
        match reader.u16()? {
            0 => Ok((rank, entry)),
            _ => Err(Error::BadValue),
        }
    }

    /// What of it belongs to the adapter, as numbers in the order of the columns.
    fn adapter(&self) -> [u64; COLUMNS - RANK_COLUMNS] {
        let [a, b, c, d, e, f] = self.mac;
        [
            self.node.0.into(),
            self.addr.ip().to_bits().into(),
            u64::from_be_bytes([0, 0, a, b, c, d, e, f]),
            self.network,
            self.logical.into(),
            self.lid_mask.into(),
            self.port_id.into(),
        ]
    }

    /// The entry of these numbers, if they are in range.
    fn of(port: u64, window: u64, adapter: [u64; COLUMNS - RANK_COLUMNS]) -> Option<Entry> {
        let [node, ip, mac, network, logical, lid_mask, port_id] = adapter;
        let ip = Ipv4Addr::from_bits(ip.try_into().ok()?);
        let [0, 0, a, b, c, d, e, f] = mac.to_be_bytes() else {
            return None;
        };
        Some(Entry {
            node: NodeId(node.try_into().ok()?),
            addr: SocketAddrV4::new(ip, port.try_into().ok()?),
            mac: [a, b, c, d, e, f],
            window: window.try_into().ok()?,
            network,
            logical: logical.try_into().ok()?,
            lid_mask: lid_mask.try_into().ok()?,
            port_id: port_id.try_into().ok()?,
        })
    }
}

/// More ranks than [`MAX_RANKS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyRanks;

impl core::fmt::Display for TooManyRanks {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "a connection table has at most {MAX_RANKS} ranks")
    }
}

impl core::error::Error for TooManyRanks {}

/// The compact form of the table whose ranks have these entries; `leaf` of them share each leaf
/// switch (0: not known, or not the same everywhere).
pub fn encode(entries: &[Entry], leaf: u16) -> Result<Vec<u8>, TooManyRanks> {
    if entries.len() > MAX_RANKS as usize {
        return Err(TooManyRanks);
    }
    let mut known = BTreeMap::new();
    let mut columns: [Vec<u64>; COLUMNS] = Default::default();
    for entry in entries {
        let numbers = entry.adapter();
        let fresh = known.len() as u64;
        let adapter = *known.entry(numbers).or_insert(fresh);
        if adapter == fresh {
            for (column, number) in columns[RANK_COLUMNS..].iter_mut().zip(numbers) {
                column.push(number);
            }
        }
        columns[0].push(adapter);
        columns[1].push(entry.addr.port().into());
        columns[2].push(entry.window.into());
    }
    let mut bytes = alloc::vec![0; HEADER_LEN];
    let descriptors = columns.map(|numbers| column::encode(&numbers, &mut bytes));
    let mut writer = Writer::new(&mut bytes[..HEADER_LEN]);
    writer.bytes(&MAGIC).u8(VERSION).u8(COLUMNS as u8).u16(leaf);
    writer.u32(entries.len() as u32).u32(known.len() as u32);
    for descriptor in descriptors {
        descriptor.emit(&mut writer);
    }
    Ok(bytes)
}

/// Reads bytes of a table from an offset, all of the buffer; false when they are not there.
pub type Read<'a> = dyn FnMut(u64, &mut [u8]) -> bool + 'a;

/// A table that lies somewhere in its compact form, ready for lookups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    leaf: u16,
    ranks: u32,
    adapters: u32,
    columns: [Column; COLUMNS],
}

impl Table {
    /// Looks at the front of a table of so many bytes. None: it is not there, or it is no table.
    pub fn open(bytes: u64, read: &mut Read<'_>) -> Option<Table> {
        let mut header = [0; HEADER_LEN];
        if bytes < HEADER_LEN as u64 || !read(0, &mut header) {
            return None;
        }
        Table::parse(bytes, &header).ok()
    }

    fn parse(bytes: u64, header: &[u8; HEADER_LEN]) -> Result<Table, Error> {
        let mut reader = Reader::new(header);
        if reader.array::<4>()? != MAGIC {
            return Err(Error::BadMagic);
        }
        let version = reader.u8()?;
        if version != VERSION {
            return Err(Error::BadVersion(version));
        }
        let (shape, leaf) = (reader.u8()?, reader.u16()?);
        let (ranks, adapters) = (reader.u32()?, reader.u32()?);
        if shape != COLUMNS as u8 || ranks > MAX_RANKS || adapters > ranks {
            return Err(Error::BadValue);
        }
        let mut columns = [Column::EMPTY; COLUMNS];
        for (at, column) in columns.iter_mut().enumerate() {
            let entries = if at < RANK_COLUMNS { ranks } else { adapters };
            *column = Column::parse(&mut reader, entries, bytes)?;
        }
        Ok(Table {
            leaf,
            ranks,
            adapters,
            columns,
        })
    }

    /// How many ranks share each leaf switch, where they are placed leaf after leaf; else 0.
    pub fn leaf(&self) -> u16 {
        self.leaf
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// How a rank is reached. None: there is no such rank, or its bytes are not there or make no
    /// sense.
    pub fn entry(&self, rank: Rank, read: &mut Read<'_>) -> Option<Entry> {
        if rank.0 >= self.ranks {
            return None;
        }
        let adapter = self.columns[0].value(rank.0, read)?;
        let port = self.columns[1].value(rank.0, read)?;
        let window = self.columns[2].value(rank.0, read)?;
        let adapter = u32::try_from(adapter).ok()?;
        if adapter >= self.adapters {
            return None;
        }
        let mut numbers = [0; COLUMNS - RANK_COLUMNS];
        for (number, column) in numbers.iter_mut().zip(&self.columns[RANK_COLUMNS..]) {
            *number = column.value(adapter, read)?;
        }
        Entry::of(port, window, numbers)
    }
}

/// Reads from a table that lies in memory as a whole.
pub fn reader(bytes: &[u8]) -> impl FnMut(u64, &mut [u8]) -> bool + '_ {
    move |offset, out| {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let found = bytes.get(offset..).and_then(|rest| rest.get(..out.len()));
        if let Some(found) = found {
            out.copy_from_slice(found);
        }
        found.is_some()
    }
}

#[cfg(test)]
mod tests;
