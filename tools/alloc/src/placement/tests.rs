use super::*;

fn machine(tree: &str, unit: u32) -> Machine {
    Machine::new(tree.parse().unwrap(), unit).unwrap()
}

fn place(placing: Placing, machine: &mut Machine, job: u64, count: u32, warm: &[u32]) -> Vec<u32> {
    let warm = warm.iter().copied().collect();
    let wish = Wish {
        job,
        count,
        warm: &warm,
    };
    let nodes = placing.choose(machine, &wish).unwrap().nodes;
    machine.take(job, &nodes);
    nodes
}

const EXACT: Placing = Placing::Exact(Preference::HopsFirst);

#[test]
fn the_published_small_job_fills_a_busy_unit_or_breaks_a_free_one() {
    let mut machine = machine("4x2", 4);
    assert_eq!(place(Placing::Published, &mut machine, 1, 1, &[]), [0]);
    // Three nodes are free in the busy unit: two do not fill it.
    assert_eq!(place(Placing::Published, &mut machine, 2, 2, &[]), [4, 5]);
    assert_eq!(
        place(Placing::Published, &mut machine, 3, 3, &[]),
        [1, 2, 3]
    );
    // One does not fill the two that are left, and no unit is free.
    let warm = BTreeSet::new();
    let wish = Wish {
        job: 4,
        count: 1,
        warm: &warm,
    };
    assert_eq!(Placing::Published.choose(&machine, &wish), None);
    assert_eq!(place(EXACT, &mut machine, 4, 1, &[]), [6]);
}

#[test]
fn a_small_job_enters_the_tightest_busy_unit_unless_another_is_warmer() {
    let mut machine = machine("4x4", 4);
    machine.take(1, &[0, 1]);
    machine.take(2, &[4]);
    assert_eq!(place(EXACT, &mut machine, 3, 1, &[]), [2]);
    assert_eq!(place(EXACT, &mut machine, 4, 1, &[6]), [6]);
    assert_eq!(place(EXACT, &mut machine, 5, 2, &[9, 13, 14]), [13, 14]);
    assert_eq!(place(EXACT, &mut machine, 6, 4, &[]), [8, 9, 10, 11]);
}

#[test]
fn a_job_that_does_not_fill_its_units_uses_a_part_of_the_one_that_is_far_from_the_others() {
    let mut machine = machine("8x4", 4);
    machine.take(1, &[0]);
    // The unit n4-7 stands alone on its leaf switch; n8-15 are whole.
    machine.take(2, &(16..32).collect::<Vec<u32>>());
    assert_eq!(
        place(EXACT, &mut machine, 3, 10, &[]),
        [4, 5, 8, 9, 10, 11, 12, 13, 14, 15]
    );
}

#[test]
fn a_part_of_a_unit_counts_nodes_in_service_whoever_has_them() {
    let mut machine = machine("4x2", 4);
    machine.set_in_service(3, false);
    machine.take(1, &[0, 1, 2]);
    machine.take(2, &[4, 5, 6, 7]);
    assert!(!EXACT.fits(&machine, 3));
    let fit = |placing: Placing| [2, 3, 4].map(|count| placing.fits_a_part(&machine, count));
    assert_eq!(fit(EXACT), [true, true, false]);
    assert_eq!(fit(Placing::Published), [false, true, false]);
}

#[test]
fn the_simple_algorithms() {
    let free = [0, 1, 4, 5, 6, 7, 9, 12, 13, 14];
    let mut base = machine("4x4", 1);
    let busy: Vec<u32> = (0..16).filter(|node| !free.contains(node)).collect();
    base.take(9, &busy);
    let with = |placing| place(placing, &mut base.clone(), 1, 3, &[]);
    assert_eq!(with(Placing::FirstFit), [0, 1, 4]);
    assert_eq!(with(Placing::Contiguous), [12, 13, 14]);
    assert_eq!(with(Placing::Greedy), [12, 13, 14]);
    assert_eq!(with(EXACT), [12, 13, 14]);
    let random = with(Placing::Random(3));
    assert!(random.iter().all(|node| free.contains(node)));
    assert_eq!(random, with(Placing::Random(3)));
    // The longest run, then the tightest for what is left.
    assert_eq!(baselines::contiguous(&free, 8), [4, 5, 6, 7, 9, 12, 13, 14]);
    assert_eq!(baselines::contiguous(&free, 6), [0, 1, 4, 5, 6, 7]);
    for name in NAMES {
        assert_eq!(name.parse::<Placing>().unwrap().to_string(), name);
    }
    assert!("best".parse::<Placing>().unwrap_err().contains("first-fit"));
}

#[test]
fn warm_nodes_weigh_in_units_too() {
    let mut machine = machine("4x4", 2);
    // Two units on a leaf switch cost the same everywhere: the leaf with three warm nodes.
    assert_eq!(
        place(EXACT, &mut machine, 1, 4, &[1, 4, 5, 9, 10, 11]),
        [8, 9, 10, 11]
    );
    // One unit partly used keeps the warm node of it.
    assert_eq!(place(EXACT, &mut machine, 2, 3, &[4, 5, 7]), [4, 5, 7]);
}

/// Eight nodes: on two leaf switches below one switch for 32 hops fewer, or four of them warm
/// farther off. Each cold node counts lambda * 7 / 2, in units of any size: the change is at lambda
/// 16/7.
#[test]
fn lambda_counts_nodes_in_units_of_any_size() {
    for unit in [1, 2, 4] {
        let mut machine = machine("4x4x2", unit);
        let busy: Vec<u32> = (8..16).chain(20..32).collect();
        machine.take(9, &busy);
        let warm: BTreeSet<u32> = (0..4).chain(16..20).collect();
        for (milli, hops) in [
            (500, 60),
            (1_500, 60),
            (2_285, 60),
            (2_286, 92),
            (5_000, 92),
        ] {
            let wish = Wish {
                job: 1,
                count: 8,
                warm: &warm,
            };
            let placing = Placing::Exact(Preference::Weighted { milli });
            let given = placing.choose(&machine, &wish).unwrap();
            let got = machine.topology().sum_of_hops(&given.nodes);
            assert_eq!(got, hops, "units of {unit}, lambda {milli}");
        }
    }
}
