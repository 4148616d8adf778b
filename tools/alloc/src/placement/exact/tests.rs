use super::*;

fn cold(nodes: impl IntoIterator<Item = u32>) -> Vec<Candidate> {
    let candidate = |node| Candidate { node, warm: false };
    nodes.into_iter().map(candidate).collect()
}

fn nodes(topology: &Topology, free: &[Candidate], count: usize) -> Vec<u32> {
    place(topology, free, count).unwrap().nodes
}

#[test]
fn the_lowest_switch_under_which_a_job_fits_is_not_the_best_place() {
    // Five leaf switches with one free node each under A, one with four under B.
    let tree = Topology::new(&[4, 5, 2]).unwrap();
    let inside_a = [0, 4, 8, 12, 16];
    let alone = place(&tree, &cold(inside_a), 5).unwrap();
    assert_eq!((alone.hops, alone.nodes.as_slice()), (30, &inside_a[..]));
    let free = cold(inside_a.into_iter().chain(20..24));
    let best = place(&tree, &free, 5).unwrap();
    assert_eq!(
        (best.hops, best.nodes.as_slice()),
        (26, &[0, 20, 21, 22, 23][..])
    );
}

#[test]
fn ties_go_to_warm_nodes_then_to_the_tightest_place_then_to_low_numbers() {
    let tree = Topology::new(&[4, 4]).unwrap();
    // n0-3 all free, n4-6 free, n8-9 free.
    let mut free = cold((0..4).chain(4..7).chain(8..10));
    assert_eq!(nodes(&tree, &free, 2), [8, 9], "breaks up no other switch");
    assert_eq!(nodes(&tree, &free, 3), [4, 5, 6]);
    free[3].warm = true;
    assert_eq!(nodes(&tree, &free, 2), [0, 3], "n3 is warm");
    assert_eq!(nodes(&tree, &free, 4), [0, 1, 2, 3]);
    assert_eq!(nodes(&Topology::flat(), &cold([5, 7, 9]), 2), [5, 7]);
    // Warm nodes far apart do not win against fewer hops.
    let mut free = cold([0, 4, 8, 9]);
    (free[0].warm, free[1].warm) = (true, true);
    assert_eq!(nodes(&tree, &free, 2), [8, 9]);
}

#[test]
fn nothing_wanted_and_too_much_wanted() {
    let tree = Topology::new(&[2, 2]).unwrap();
    assert_eq!(place(&tree, &cold(0..3), 4), None);
    assert_eq!(nodes(&tree, &cold(0..3), 0), []);
    assert_eq!(nodes(&tree, &[], 0), []);
    assert_eq!(place(&tree, &cold([1]), 1).unwrap().hops, 0);
}

#[test]
fn a_whole_large_machine() {
    let tree = Topology::new(&[16, 16, 16]).unwrap();
    let all = place(&tree, &cold(0..4096), 4096).unwrap();
    // Pairs on one leaf switch cross 1, under one middle switch 3, others 5.
    let pairs = |count: i64| count * (count - 1) / 2;
    let (leaf, middle) = (256 * pairs(16), 16 * pairs(256));
    let expected = leaf + 3 * (middle - leaf) + 5 * (pairs(4096) - middle);
    assert_eq!(
        (all.hops, all.nodes.len(), all.left_behind),
        (expected, 4096, 0)
    );
    let half = place(&tree, &cold((0..4096).step_by(2)), 256).unwrap();
    assert_eq!(half.nodes, (0..512).step_by(2).collect::<Vec<u32>>());
}
