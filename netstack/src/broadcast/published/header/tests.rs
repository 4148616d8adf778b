//! Trees, chunks and what is dealt, and that no bytes break them.

use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

fn tree(nodes: u32, fan_out: u32, layers: u8) -> Tree {
    Tree::new(nodes, fan_out, layers).expect("it is in range")
}

fn place(layer: u8, number: u32) -> Place {
    Place { layer, number }
}

/// Published: the j-th child of the i-th first-layer node is at index i*h + j.
#[test]
fn children_stand_where_the_publication_puts_them() {
    for (nodes, fan_out, heads) in [(128 + 128 * 128, 128, 128), (3 + 3 * 7, 7, 3), (30, 5, 5)] {
        let tree = tree(nodes, fan_out, 2);
        assert_eq!(tree.first_layer(), heads);
        for i in 0..heads {
            for (j, child) in (0..).zip(tree.children(place(1, i))) {
                assert_eq!(tree.index(place(2, child)), i * fan_out + j);
                assert_eq!(tree.child_number(place(2, child)), j + 1);
            }
            assert_eq!(tree.index(place(1, i)), nodes - heads + i);
        }
        assert_eq!(tree.heads(), nodes - heads..nodes);
    }
}

#[test]
fn deeper_trees_have_their_leaves_first() {
    // 2 heads, 3 children each, 3 children each of those.
    let tree = tree(2 + 6 + 18, 3, 3);
    assert_eq!((tree.first_layer(), tree.layer_nodes(3)), (2, 18));
    assert_eq!(tree.place(0), place(3, 0));
    assert_eq!(tree.place(17), place(3, 17));
    assert_eq!(tree.place(18), place(2, 0));
    assert_eq!(tree.place(25), place(1, 1));
    assert_eq!(tree.parent(place(3, 17)), Some(place(2, 5)));
    assert_eq!(tree.branch(place(3, 17)), 1);
    assert_eq!(tree.branch(place(3, 8)), 0);
    assert_eq!(tree.children(place(2, 5)), 15..18);
    assert_eq!(tree.children(place(3, 5)), 0..0);
}

#[test]
fn a_balanced_tree_has_about_as_many_heads_as_children() {
    let shape = |nodes, layers| {
        let tree = Tree::balanced(nodes, layers).expect("it is in range");
        (tree.first_layer(), tree.fan_out())
    };
    assert_eq!(shape(16_512, 2), (128, 128));
    assert_eq!(shape(1_056, 2), (32, 32));
    assert_eq!(shape(1, 2), (1, 1));
    assert_eq!(shape(2, 2), (1, 1));
    assert_eq!(shape(8, 2), (2, 3));
    assert_eq!(shape(16_275, 3), (25, 25));
}

#[test]
fn without_a_fan_out_everybody_is_a_head() {
    let tree = tree(5, 0, 2);
    assert_eq!((tree.first_layer(), tree.heads()), (5, 0..5));
    assert_eq!(tree.place(3), place(1, 3));
    assert_eq!(tree.children(place(1, 3)), 0..0);
}

#[test]
fn impossible_trees_are_refused() {
    for (nodes, fan_out, layers) in [
        (0, 1, 2),
        (1, 1, 1),
        (1, 1, 9),
        (MAX_NODES + 1, 2, 2),
        (5, MAX_NODES + 1, 2),
    ] {
        assert_eq!(Tree::new(nodes, fan_out, layers), Err(Error::BadValue));
    }
}

#[test]
fn chunks_are_cut_as_asked() {
    assert_eq!(Sizes::Equal(4).bounds(8), [0, 2, 4, 6, 8]);
    assert_eq!(Sizes::Equal(3).bounds(8), [0, 2, 5, 8]);
    assert_eq!(Sizes::Equal(9).bounds(2), [0, 1, 2], "a block is the least");
    assert_eq!(Sizes::Equal(3).bounds(0), [0]);
    let given = Sizes::Given(vec![(2, 1), (1, 4)]);
    assert_eq!(given.bounds(6), [0, 1, 2, 6]);
    assert_eq!(given.bounds(4), [0, 1, 2, 4], "cut where the data ends");
    assert_eq!(given.bounds(9), [0, 1, 2, 6, 9], "the rest is one more");
}

/// What first-layer node i is dealt.
fn dealt(deal: &Deal, nodes: u32, chunks: u32) -> Vec<Vec<u32>> {
    let of = |node| (0..).map_while(move |turn| deal.chunk(node, turn, nodes, chunks));
    (0..nodes).map(|node| of(node).collect()).collect()
}

/// Published, step 1, in its words: n1 = k, n1 > k and n1 < k.
#[test]
fn chunks_are_dealt_as_published() {
    let cyclic = Deal::Cyclic;
    assert_eq!(dealt(&cyclic, 3, 3), [[0], [1], [2]]);
    assert_eq!(dealt(&cyclic, 5, 3), [[0], [1], [2], [0], [1]]);
    assert_eq!(dealt(&cyclic, 2, 5), [vec![0, 2, 4], vec![1, 3]]);
    let chosen = Deal::Chosen(vec![2, 1]);
    assert_eq!(dealt(&chosen, 6, 3), [[0], [1], [2], [2], [1], [2]]);
    assert_eq!(dealt(&chosen, 3, 3), [[0], [1], [2]]);
    let twice = Deal::Rounds(2);
    assert_eq!(dealt(&twice, 3, 3), [[0, 1], [1, 2], [2, 0]]);
    assert_eq!(dealt(&twice, 4, 2), [[0, 1], [1, 0], [0, 1], [1, 0]]);
    assert_eq!(dealt(&Deal::Rounds(1), 2, 3), [vec![0, 2], vec![1]]);
    assert_eq!(dealt(&Deal::Rounds(2), 2, 3), [[0, 2], [1, 0]]);
    assert_eq!(dealt(&Deal::Rounds(9), 2, 3), [[0, 2, 1], [1, 0, 2]]);
}

fn sizes() -> impl Strategy<Value = Sizes> {
    prop_oneof![
        (1..=MAX_CHUNKS).prop_map(Sizes::Equal),
        prop::collection::vec((1_u16..500, 1_u16..500), 0..=MAX_RUNS).prop_map(Sizes::Given),
    ]
}

fn deal() -> impl Strategy<Value = Deal> {
    prop_oneof![
        Just(Deal::Cyclic),
        prop::collection::vec(any::<u16>(), 1..=MAX_CHOSEN).prop_map(Deal::Chosen),
        (1_u32..=40).prop_map(Deal::Rounds),
    ]
}

proptest! {
    #[test]
    fn every_node_has_one_place(nodes in 1_u32..3_000, fan_out in 0_u32..80, layers in 2_u8..=8) {
        let tree = tree(nodes, fan_out, layers);
        let mut children = 0;
        for index in 0..nodes {
            let place = tree.place(index);
            prop_assert_eq!(tree.index(place), index);
            for number in tree.children(place) {
                let child = Place { layer: place.layer + 1, number };
                prop_assert_eq!(tree.parent(child), Some(place));
                prop_assert_eq!(tree.branch(child), tree.branch(place));
                children += 1;
            }
        }
        prop_assert_eq!(children + tree.first_layer(), nodes, "each has a parent or is a head");
    }

    #[test]
    fn chunks_cover_the_data(sizes in sizes(), blocks in 0_u32..20_000) {
        let bounds = sizes.bounds(blocks);
        prop_assert_eq!((bounds[0], bounds[bounds.len() - 1]), (0, blocks));
        prop_assert!(bounds.len() <= MAX_CHUNKS as usize + 1);
        prop_assert!(bounds.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn every_chunk_is_dealt_and_none_twice_to_one(
        deal in deal(), nodes in 1_u32..40, chunks in 1_u32..40,
    ) {
        let dealt = dealt(&deal, nodes, chunks);
        let mut seen = vec![false; chunks as usize];
        for mut of_node in dealt {
            of_node.iter().for_each(|chunk| seen[*chunk as usize] = true);
            let count = of_node.len();
            of_node.sort_unstable();
            of_node.dedup();
            prop_assert_eq!(of_node.len(), count);
            prop_assert!(count > 0, "each node at least one");
        }
        prop_assert!(seen.iter().all(|seen| *seen), "each chunk at least once");
    }

    #[test]
    fn headers_read_as_written(
        numbers in (any::<u64>(), 1_u64..), tree in (1_u32..=MAX_NODES, 1_u32..=MAX_NODES, 2_u8..=8),
        sizes in sizes(), deal in deal(),
    ) {
        let tree = Tree::new(tree.0, tree.1, tree.2).expect("it is in range");
        let header = Header { start_us: numbers.0, rate: numbers.1, tree, sizes, deal };
        let mut bytes = [0; Header::MAX_LEN];
        let mut writer = Writer::new(&mut bytes);
        header.emit(&mut writer);
        let length = writer.written();
        let mut reader = Reader::new(&bytes[..length]);
        prop_assert_eq!(Header::parse(&mut reader), Ok(header));
        prop_assert!(reader.finish().is_ok());
        for cut in 0..length {
            prop_assert!(Header::parse(&mut Reader::new(&bytes[..cut])).is_err());
        }
    }

    #[test]
    fn hostile_headers_panic_nothing(bytes in prop::collection::vec(any::<u8>(), 0..140)) {
        if let Ok(header) = Header::parse(&mut Reader::new(&bytes)) {
            let _ = header.sizes.bounds(1000);
            let _ = header.deal.chunk(0, 0, header.tree.first_layer(), 5);
        }
    }
}
