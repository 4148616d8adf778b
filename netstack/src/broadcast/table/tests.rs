//! What was put in is found; what it costs; and that no bytes break a lookup.

use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::rng::Rng;

const MILLION: u32 = 1_000_000;

/// An entry of a cluster where everything is regular.
fn regular(node: u32, window: u32) -> Entry {
    let [_, a, b, c] = node.to_be_bytes();
    Entry {
        node: NodeId(node),
        addr: SocketAddrV4::new(Ipv4Addr::from_bits(0x0a75_0100 + node), 7118),
        mac: [0x52, 0x54, 0, a, b, c],
        window,
        network: 0xfe80_0000_0000_0000,
        logical: (node % 0xbfff) as u16 + 1,
        lid_mask: 0,
        port_id: 1,
    }
}

/// The same with an Ethernet address that nobody can foresee.
fn bought(node: u32, window: u32) -> Entry {
    let [_, _, mac @ ..] = Rng::new(node.into()).next_u64().to_be_bytes();
    Entry {
        mac,
        ..regular(node, window)
    }
}

fn lookup(bytes: &[u8], rank: u32) -> Option<Entry> {
    let mut read = reader(bytes);
    Table::open(bytes.len() as u64, &mut read)?.entry(Rank(rank), &mut read)
}

/// Bytes that a million entries need, all of them looked up.
fn bytes_of_a_million(entry: impl Fn(u32) -> Entry) -> usize {
    let entries: Vec<Entry> = (0..MILLION).map(&entry).collect();
    let bytes = encode(&entries, 0).expect("a million fits");
    let mut read = reader(&bytes);
    let table = Table::open(bytes.len() as u64, &mut read).expect("it is a table");
    assert_eq!(table.ranks(), MILLION);
    for (rank, entry) in (0..).zip(&entries) {
        assert_eq!(table.entry(Rank(rank), &mut read).as_ref(), Some(entry));
    }
    assert_eq!(table.entry(Rank(MILLION), &mut read), None);
    bytes.len()
}

#[test]
fn a_million_entries_of_a_regular_cluster_take_no_room() {
    // A rank on each node; blocks of 64 ranks; ranks dealt round 16,384 nodes.
    let single = bytes_of_a_million(|rank| regular(rank, 0));
    let blocks = bytes_of_a_million(|rank| regular(rank / 64, rank % 64));
    let cycles = bytes_of_a_million(|rank| regular(rank % 16_384, rank / 16_384));
    assert!([single, blocks, cycles].iter().all(|bytes| *bytes < 2_000));
}

#[test]
fn a_million_entries_with_bought_addresses_take_six_bytes_for_each_adapter() {
    let single = bytes_of_a_million(|rank| bought(rank, 0));
    assert!(single < MILLION as usize * 6 + 2_000, "{single}");
    let blocks = bytes_of_a_million(|rank| bought(rank / 64, rank % 64));
    assert!(blocks < MILLION as usize / 64 * 6 + 8_000, "{blocks}");
}

#[test]
fn a_million_entries_in_no_order_take_less_than_half_of_the_published_size() {
    // Nodes in a random order, each with an address of its own: an odd factor permutes them.
    let node = |rank: u32| rank.wrapping_mul(0x9e37_79b1) % (1 << 20);
    let entries: Vec<Entry> = (0..MILLION).map(|rank| bought(node(rank), 0)).collect();
    let bytes = encode(&entries, 0).expect("a million fits");
    let each = bytes.len() as f64 / f64::from(MILLION);
    assert!(each < 16.0, "{each} bytes an entry");
    assert!(each * 2.0 < Entry::LEN as f64);
    for rank in (0..MILLION).step_by(997) {
        assert_eq!(lookup(&bytes, rank).as_ref(), Some(&entries[rank as usize]));
    }
}

#[test]
fn an_entry_in_the_published_form_has_fifty_bytes() {
    let bytes = regular(3, 7).emit(Rank(9));
    assert_eq!(bytes.len(), 50);
    assert_eq!(bytes[..8], [9, 0, 0, 0, 3, 0, 0, 0]);
    assert_eq!(bytes[18..24], [0xff, 0xff, 10, 117, 1, 3]);
    assert_eq!(bytes[24..32], [0x52, 0x54, 0, 0, 0, 3, 0xce, 0x1b]);
    assert_eq!(Entry::parse(&bytes), Ok((Rank(9), regular(3, 7))));
}

fn entry() -> impl Strategy<Value = Entry> {
    let addr = (any::<u32>(), any::<u16>());
    let ids = (any::<u32>(), any::<u64>(), any::<u16>(), any::<u8>());
    (any::<u32>(), addr, any::<[u8; 6]>(), ids, any::<u8>()).prop_map(
        |(node, (ip, port), mac, (window, network, logical, lid_mask), port_id)| Entry {
            node: NodeId(node),
            addr: SocketAddrV4::new(Ipv4Addr::from_bits(ip), port),
            mac,
            window,
            network,
            logical,
            lid_mask,
            port_id,
        },
    )
}

/// Tables with runs, cycles, repeats and exceptions.
fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let piece = (any::<bool>(), entry(), 0_u32..40, 1_u32..5, 1_u32..9).prop_map(
        |(odd, entry, count, repeat, period)| {
            let of = move |at: u32| match odd {
                true => entry,
                false => regular(at / repeat % period, at % period),
            };
            (0..count).map(of).collect::<Vec<Entry>>()
        },
    );
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn what_was_put_in_is_found(entries in entries()) {
        let bytes = encode(&entries, 0).expect("it is small");
        for (rank, entry) in (0..).zip(&entries) {
            prop_assert_eq!(lookup(&bytes, rank), Some(*entry));
        }
        prop_assert_eq!(lookup(&bytes, entries.len() as u32), None);
    }

    #[test]
    fn entries_read_as_written(entry in entry(), rank: u32) {
        prop_assert_eq!(Entry::parse(&entry.emit(Rank(rank))), Ok((Rank(rank), entry)));
    }

    #[test]
    fn hostile_tables_panic_nothing(
        entries in entries(), ranks in prop::collection::vec(any::<u32>(), 1..8),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = encode(&entries, 0).expect("it is small");
        let length = bytes.len();
        for (at, value) in changes {
            bytes[at.index(length)] = value;
        }
        // The object says how long it is; what of it is there is another matter.
        let cut = cut.index(length + 1);
        for rank in ranks.into_iter().chain(0..4) {
            let _ = lookup(&bytes, rank);
            let _ = lookup(&bytes[..cut], rank);
            let mut read = reader(&bytes[..cut]);
            if let Some(table) = Table::open(length as u64, &mut read) {
                let _ = table.entry(Rank(rank), &mut read);
            }
        }
    }

    #[test]
    fn random_bytes_are_no_table(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert_eq!(lookup(&bytes, 0), None);
    }
}
