//! The steps of the publication, one member at a time.

use alloc::collections::BTreeSet;
use alloc::vec;
use core::net::SocketAddrV4;

use super::*;
use crate::broadcast::bitmap::Bitmap;
use crate::broadcast::message::Setup;
use crate::broadcast::{Object, Peer, Purpose, Scheme};
use crate::rng::Rng;

/// h = n1 = 5, and a block for each chunk: the tree of the published example.
const HEADS: u32 = 5;
const NODES: u32 = HEADS + HEADS * HEADS;

/// A member with what it has and has asked for.
struct Node {
    planner: Published,
    me: MemberIndex,
    have: Bitmap,
    asked: Bitmap,
    rng: Rng,
    /// Microseconds since the start.
    clock: u64,
    silent: Vec<MemberIndex>,
}

/// [i,j] of the publication, j = 0 for the first layer.
fn named(i: u32, j: u32) -> MemberIndex {
    match j {
        0 => MemberIndex(HEADS * HEADS + i - 1),
        _ => MemberIndex((i - 1) * HEADS + j - 1),
    }
}

fn setup(options: PublishedOptions) -> Setup {
    let object = Object {
        id: [0; 32],
        bytes: u64::from(HEADS) * 8192,
        block_log2: 13,
        tops: vec![[0; 32]; HEADS as usize],
    };
    object.check_size().expect("the sizes fit");
    Setup {
        object,
        purpose: Purpose::Program,
        job: None,
        scheme: Scheme::Published(options),
        members: NODES,
        holders: 0,
        rate: 125_000_000,
        start: 1_000_000,
        control: Peer {
            addr: SocketAddrV4::new([10, 0, 0, 1].into(), 7117),
            mac: [0; 6],
        },
        roster_id: 1,
        roster: Vec::new(),
    }
}

impl Node {
    fn new(me: MemberIndex, options: PublishedOptions) -> Self {
        Node {
            planner: Published::new(&setup(options), me).expect("it is published"),
            me,
            have: Bitmap::new(HEADS),
            asked: Bitmap::new(HEADS),
            rng: Rng::new(me.0.into()),
            clock: 0,
            silent: Vec::new(),
        }
    }

    /// The unit s/g in microseconds, and a little more.
    fn unit(&self) -> u64 {
        self.planner.chunk_us(0)
    }

    fn plan<T>(&mut self, ask: impl FnOnce(&mut Published, &mut View<'_>) -> T) -> T {
        let mut view = View {
            now: Instant::from_micros(self.clock),
            clock: 1_000_000 + self.clock,
            me: self.me,
            have: &self.have,
            asked: &self.asked,
            silent: &self.silent,
            gone: &self.silent,
            pages: &[],
            farther: 0,
            rng: &mut self.rng,
        };
        ask(&mut self.planner, &mut view)
    }

    /// What is asked next; it counts as asked for.
    fn next(&mut self) -> Next {
        let next = self.plan(|planner, view| planner.next(view));
        if let Next::Ask { block, .. } = next {
            assert!(self.asked.insert(block));
        }
        next
    }

    fn receive(&mut self, block: u32, from: MemberIndex) {
        self.asked.remove(block);
        self.have.insert(block);
        self.plan(|planner, view| planner.arrived(view, block, from, None));
    }

    fn fails(&mut self, block: u32, from: MemberIndex, trouble: Trouble) -> Option<MemberIndex> {
        self.asked.remove(block);
        self.plan(|planner, view| planner.instead(view, block, from, trouble, 1))
    }

    fn serves(&mut self, asker: MemberIndex, block: u32) -> Service {
        self.plan(|planner, view| planner.service(view, asker, block))
    }
}

/// Node [3,2] at time 5, with its branch's chunk.
fn node_3_2(options: PublishedOptions) -> Node {
    let mut node = Node::new(named(3, 2), options);
    node.clock = 5 * node.unit();
    let ask = Next::Ask {
        early: 0,
        block: 2,
        from: named(3, 0),
    };
    assert_eq!(node.next(), ask, "its parent first");
    if node.planner.options.presence == Presence::Served {
        assert_eq!(node.next(), Next::Idle, "nobody else before it holds it");
    }
    node.receive(2, named(3, 0));
    node
}

/// All requests that [3,2] may make at time 5, found by giving it many tries.
fn requests(options: &PublishedOptions) -> BTreeSet<(u32, MemberIndex)> {
    let mut seen = BTreeSet::new();
    for seed in 0..400 {
        let mut node = node_3_2(options.clone());
        node.rng = Rng::new(seed);
        if let Next::Ask { block, from, .. } = node.next() {
            seen.insert((block, from));
        }
    }
    seen
}

fn expected(chunks: &[(u32, u32, core::ops::RangeInclusive<u32>)]) -> BTreeSet<(u32, MemberIndex)> {
    let of = |(block, i, js): &(u32, u32, core::ops::RangeInclusive<u32>)| {
        let (block, i) = (*block, *i);
        js.clone().map(move |j| (block, named(i, j)))
    };
    chunks.iter().flat_map(of).collect()
}

#[test]
fn node_3_2_asks_whom_the_publication_says() {
    let served = [(0, 1, 1..=4), (1, 2, 1..=3), (3, 4, 1..=1)];
    let always = [(0, 1, 0..=4), (1, 2, 0..=3), (3, 4, 0..=1), (4, 5, 0..=0)];
    for policy in [Policy::ChunkFirst, Policy::NodeFirst] {
        let options = PublishedOptions {
            policy,
            ..PublishedOptions::default()
        };
        assert_eq!(requests(&options), expected(&served), "{policy:?}");
        let options = PublishedOptions {
            presence: Presence::Always,
            ..options
        };
        assert_eq!(requests(&options), expected(&always), "{policy:?}");
    }
}

#[test]
fn the_middle_and_the_highest_candidate_are_chosen() {
    for (choice, asked) in [
        (
            Choice::Middle,
            [(0, named(1, 3)), (1, named(2, 2)), (3, named(4, 1))],
        ),
        (
            Choice::Highest,
            [(0, named(1, 4)), (1, named(2, 3)), (3, named(4, 1))],
        ),
    ] {
        let options = PublishedOptions {
            choice,
            ..PublishedOptions::default()
        };
        assert_eq!(requests(&options), BTreeSet::from(asked), "{choice:?}");
    }
}

#[test]
fn one_chunk_is_asked_for_at_a_time() {
    let mut node = node_3_2(PublishedOptions::default());
    let Next::Ask { block, from, .. } = node.next() else {
        panic!("there are candidates");
    };
    assert_eq!(node.next(), Next::Idle);
    node.receive(block, from);
    assert!(matches!(node.next(), Next::Ask { .. }));
}

#[test]
fn not_here_makes_everything_later_by_one_chunk() {
    let mut node = node_3_2(PublishedOptions::default());
    for step in 1..=3 {
        let Next::Ask { block, from, .. } = node.next() else {
            panic!("there are candidates");
        };
        assert_eq!(node.fails(block, from, Trouble::NotHere), None);
        assert_eq!(node.planner.correction, step * node.unit());
    }
    // At time 5 - 3 only [1,1] is thought to hold anything.
    assert_eq!(
        node.next(),
        Next::Ask {
            early: 0,
            block: 0,
            from: named(1, 1)
        }
    );
    assert_eq!(node.fails(0, named(1, 1), Trouble::NotHere), None);
    // Nobody any more: it waits until one may hold it, by what it believes now.
    let Next::Wait(at) = node.next() else {
        panic!("nobody holds anything at time 1");
    };
    let units = |at: Instant| at.as_micros().div_ceil(node.unit());
    assert!((6..=7).contains(&units(at)), "{at}");
    for _ in 0..100 {
        node.planner.correct(0);
    }
    assert_eq!(
        node.planner.correction.div_ceil(node.unit()),
        u64::from(2 * HEADS),
        "not more than the distribution takes"
    );
}

/// By the latest estimate everybody holds everything, and one choice is as good as the next.
#[test]
fn not_here_costs_the_time_of_a_chunk_when_the_estimate_can_be_no_later() {
    for fallback in [true, false] {
        let mut node = node_3_2(PublishedOptions {
            choice: Choice::Highest,
            fallback,
            ..PublishedOptions::default()
        });
        for _ in 0..100 {
            node.planner.correct(0);
        }
        node.clock = 100 * node.unit();
        let Next::Ask { block, from, .. } = node.next() else {
            panic!("there are candidates");
        };
        assert_eq!(node.fails(block, from, Trouble::NotHere), None);
        let later = Instant::from_micros(node.clock + node.unit());
        assert_eq!(node.next(), Next::Wait(later));
        node.clock += node.unit();
        assert!(matches!(node.next(), Next::Ask { .. }));
    }
}

#[test]
fn an_inner_node_is_silent_until_its_branch_is_served() {
    let mut head = Node::new(named(1, 0), PublishedOptions::default());
    let Next::Ask { block: 0, from, .. } = head.next() else {
        panic!("control deals to it first");
    };
    assert!(from.is_source());
    head.receive(0, from);
    head.clock = head.unit();
    let stranger = named(3, 2);
    assert_eq!(head.serves(stranger, 0), Service::Refuse);
    for j in 1..=HEADS {
        assert!(matches!(head.next(), Next::Wait(_)), "it asks nobody");
        assert_eq!(head.serves(named(1, j), 0), Service::WhenHere);
    }
    assert_eq!(head.serves(stranger, 0), Service::IfHere);
    assert_eq!(head.serves(stranger, 1), Service::Refuse, "not held");
    let order = |child| head.planner.order(0, named(1, child));
    assert!((1..HEADS).all(|child| order(child) < order(child + 1)));
    assert!(order(HEADS) < head.planner.order(0, stranger));
    head.clock = 7 * head.unit();
    assert!(matches!(head.next(), Next::Ask { .. }));
}

#[test]
fn a_child_that_never_asks_holds_the_literal_scheme_up_only() {
    for fallback in [true, false] {
        let options = PublishedOptions {
            fallback,
            ..PublishedOptions::default()
        };
        let mut head = Node::new(named(1, 0), options);
        head.next();
        head.receive(0, MemberIndex::SOURCE);
        head.clock = 1_000_000;
        assert_eq!(matches!(head.next(), Next::Ask { .. }), fallback);
    }
}

#[test]
fn a_dead_parent_is_replaced_by_control_only_with_the_fallback() {
    for (fallback, asked) in [(true, MemberIndex::SOURCE), (false, named(3, 0))] {
        let options = PublishedOptions {
            fallback,
            ..PublishedOptions::default()
        };
        let mut leaf = Node::new(named(3, 2), options);
        leaf.clock = 5 * leaf.unit();
        leaf.next();
        let mut instead = |attempt| {
            leaf.plan(|planner, view| {
                planner.instead(view, 2, named(3, 0), Trouble::Silent, attempt)
            })
        };
        assert_eq!(instead(1), Some(named(3, 0)), "it may have been lost");
        assert_eq!(instead(PARENT_TRIES), Some(asked));
    }
}

#[test]
fn a_candidate_that_does_not_answer_is_replaced_and_control_is_last() {
    let mut node = node_3_2(PublishedOptions::default());
    let mut asked = BTreeSet::new();
    for _ in 0..SWAP_TRIES {
        let Next::Ask { block, from, .. } = node.next() else {
            panic!("there are candidates");
        };
        asked.insert(from);
        assert_eq!(node.fails(block, from, Trouble::Silent), None);
    }
    assert!(asked.len() > 1 && !asked.contains(&MemberIndex::SOURCE));
    assert!(matches!(node.next(), Next::Ask { from, .. } if from.is_source()));
    // Literally: the same one for ever.
    let mut node = node_3_2(PublishedOptions {
        fallback: false,
        ..PublishedOptions::default()
    });
    let Next::Ask { block, from, .. } = node.next() else {
        panic!("there are candidates");
    };
    assert_eq!(node.fails(block, from, Trouble::Silent), Some(from));
}

#[test]
fn a_chunk_that_was_given_up_and_came_was_not_asked_for_in_vain() {
    let mut node = node_3_2(PublishedOptions::default());
    let try_in_vain = |node: &mut Node| {
        let Next::Ask { block, from, .. } = node.next() else {
            panic!("there are candidates");
        };
        assert!(!from.is_source());
        assert_eq!(node.fails(block, from, Trouble::Silent), None);
        (block, from)
    };
    let mut last = None;
    for _ in 1..SWAP_TRIES {
        last = Some(try_in_vain(&mut node));
    }
    let (block, from) = last.expect("there were tries");
    node.receive(block, from);
    for _ in 0..SWAP_TRIES {
        try_in_vain(&mut node);
    }
    assert!(matches!(node.next(), Next::Ask { from, .. } if from.is_source()));
}

#[test]
fn who_casts_one_chunk_has_everybody_ask_the_parent_for_everything() {
    for (layers, parent) in [(2, named(3, 0)), (1, MemberIndex::SOURCE)] {
        let setup = setup(PublishedOptions {
            fan_out: HEADS,
            layers,
            sizes: Some(Sizes::Equal(1)),
            ..PublishedOptions::default()
        });
        let mut node = Node::new(named(3, 2), PublishedOptions::default());
        node.planner = Published::new(&setup, node.me).expect("a special case of it");
        assert!(matches!(node.next(), Next::Wait(_)), "not its turn");
        node.clock = 1_000_000;
        for block in 0..HEADS {
            let ask = Next::Ask {
                early: 0,
                block,
                from: parent,
            };
            assert_eq!(node.next(), ask);
        }
        assert_eq!(node.next(), Next::Idle);
    }
}
