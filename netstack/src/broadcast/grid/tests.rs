use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};

use super::*;
use crate::broadcast::Peer;
use crate::broadcast::bitmap::Bitmap;
use crate::broadcast::message::PAGE_PEERS;
use crate::rng::Rng;
use crate::time::Instant;

/// A member alone, of whose messages all come at once.
struct Alone {
    planner: Rotation,
    have: Bitmap,
    pages: Vec<Option<Arc<[Peer]>>>,
    rng: Rng,
}

impl Alone {
    fn new(rows: u32, members: u32, blocks: u32, me: u32) -> Self {
        let peer = Peer {
            addr: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7118),
            mac: [2; 6],
        };
        let pages = (0..members.div_ceil(PAGE_PEERS)).map(|page| {
            let peers = (members - page * PAGE_PEERS).min(PAGE_PEERS) as usize;
            Some(alloc::vec![peer; peers].into())
        });
        Alone {
            planner: Rotation::new(rows, members, members, blocks, MemberIndex(me)),
            have: Bitmap::new(blocks),
            pages: pages.collect(),
            rng: Rng::new(me.into()),
        }
    }

    fn plan<T>(&mut self, ask: impl FnOnce(&mut Rotation, &mut View<'_>) -> T) -> T {
        let asked = Bitmap::new(self.have.length());
        let mut view = View {
            now: Instant::ZERO,
            clock: 0,
            me: self.planner.me,
            have: &self.have,
            asked: &asked,
            silent: &[],
            gone: &[],
            pages: &self.pages,
            farther: 0,
            rng: &mut self.rng,
        };
        ask(&mut self.planner, &mut view)
    }

    /// The next block, which is here then; from whom, and in which slot.
    fn next(&mut self) -> Option<(u32, MemberIndex, u32)> {
        let next = self.plan(|planner, view| planner.next(view));
        let Next::Ask { block, from, .. } = next else {
            return None;
        };
        self.have.insert(block);
        Some((block, from, self.planner.slot))
    }
}

#[test]
fn a_member_asks_in_the_slot_in_which_it_is_said_to_have_a_block() {
    // A grid, one whose last column is not full, and a mesh.
    for (rows, members) in [(8, 72), (8, 69), (9, 9)] {
        for me in 0..members {
            let mut member = Alone::new(rows, members, 100, me);
            let layout = member.planner.layout;
            let mut exchanged = 0;
            while let Some((block, _, slot)) = member.next() {
                let at = layout.held_from(MemberIndex(me), block);
                let own = me % rows == layout.row(block);
                if let Some(at) = at
                    && !own
                    && slot < member.planner.last_slot
                {
                    assert_eq!(slot, at, "{me} of {members}: block {block}");
                    exchanged += 1;
                }
            }
            assert!(member.have.is_full());
            let asks = matches!(layout.place(MemberIndex(me)), Place::Child { .. });
            assert!(exchanged > 80 || !(asks || layout.children() == 0), "{me}");
        }
    }
}

#[test]
fn of_a_row_that_lags_as_much_is_asked_from_others_as_makes_up_for_it() {
    let (rows, blocks) = (8, 8_000);
    let mut member = Alone::new(rows, 72, blocks, 8);
    // Member 8 is child (0, 0): row 3 is served to it by child (3, 0), which is member 11.
    let usual = MemberIndex(11);
    let lag = 800;
    member.plan(|planner, view| planner.arrived(view, 3, usual, Some(lag)));
    let mut others = 0;
    let mut lagging = 0;
    while let Some((block, from, _)) = member.next() {
        if block >= blocks / 2 {
            break;
        }
        let lags = block % rows == 3;
        lagging += u32::from(lags);
        if from != usual && lags {
            assert!(from.0 >= rows, "heads have other work");
            others += 1;
        } else if !lags && block % rows != 0 {
            assert_eq!(from, MemberIndex(rows + block % rows), "block {block}");
        }
    }
    // The sum of 800 / blocks that are left, over 500 blocks of this row: 69.
    assert!(
        lagging > 480 && (40..110).contains(&others),
        "{others} of {lagging}"
    );
}

#[test]
fn a_deputy_asks_the_source_when_two_others_miss_a_block() {
    let mut member = Alone::new(8, 72, 800, 11);
    let block = 3;
    let mut calls = |asker| member.plan(|planner, view| planner.stands_in(view, asker, block));
    // Those of other rows ask for other reasons.
    assert!(!calls(MemberIndex(12)) && !calls(MemberIndex(13)));
    let mates = [MemberIndex(19), MemberIndex(27)];
    assert!(
        !calls(mates[0]) && !calls(mates[0]),
        "its request may be lost"
    );
    assert!(calls(mates[1]));
    assert!(member.planner.is_late(block));
    let from = member.plan(|planner, view| planner.from(view, block, 1));
    assert_eq!(from, MemberIndex::SOURCE, "it is the deputy of round 0");
}

#[test]
fn the_source_is_asked_for_a_block_of_another_row_after_many_attempts_and_not_before() {
    // Child (3, 0) of a grid of 8 rows.
    let mut member = Alone::new(8, 72, 800, 11);
    for block in [4, 12, 405] {
        for attempt in 0..20 {
            let from = member.plan(|planner, view| planner.from(view, block, attempt));
            let is_source = attempt > SOURCE_AFTER;
            assert_eq!(from.is_source(), is_source, "{block}, attempt {attempt}");
            assert_ne!(from, MemberIndex(11));
        }
    }
}

/// A grid of 64 rows and 64 columns, in chains of four children.
const LARGE: (u32, u32) = (64, 64 + 64 * 64);

#[test]
fn in_a_large_grid_each_slot_has_one_sender_for_each_member_and_one_member_for_each_sender() {
    let (rows, members) = LARGE;
    // What is asked in the slots of one round, long after the start.
    let mut sent = alloc::collections::BTreeMap::new();
    // The other heads take turns that children have left over.
    let front = rows / 4;
    for me in front..members {
        let mut member = Alone::new(rows, members, 5 * rows, me);
        while let Some((block, from, slot)) = member.next() {
            let own = block % rows == member.planner.coordinates().expect("it is cold").0;
            if !own && (3 * rows..4 * rows).contains(&slot) {
                *sent.entry((slot, from)).or_insert(0) += 1;
            }
        }
    }
    let pairs: u32 = sent.values().sum();
    // A whole round, each one's own row left out.
    assert_eq!(pairs, (members - front) * (rows - 1));
    assert!(sent.values().all(|times| *times == 1));
}

#[test]
fn children_of_the_last_columns_get_their_row_from_children() {
    let (rows, members) = LARGE;
    let own = |me, round| {
        Alone::new(rows, members, 10 * rows, me).plan(|planner, view| {
            let row = planner.coordinates().expect("it is cold").0;
            planner.from(view, round * rows + row, 0)
        })
    };
    let child = |row, column| rows + column * rows + row;
    assert_eq!(own(child(5, 15), 0), MemberIndex(5));
    for column in [16, 32, 63] {
        let relay = MemberIndex(child(5, column - 16));
        assert_eq!(own(child(5, column), 3), relay);
    }
    // One that is late is replaced by the head for some rounds, and its request is no call for a
    // deputy.
    let mut late = Alone::new(rows, members, 10 * rows, child(5, 16));
    let relay = MemberIndex(child(5, 0));
    let instead = late.plan(|planner, view| planner.instead(view, 5, relay, Trouble::Late, 1));
    assert_eq!(instead, Some(MemberIndex(5)));
    let next = |late: &mut Alone, round| {
        late.plan(|planner, view| planner.from(view, round * rows + 5, 0))
    };
    assert_eq!(next(&mut late, 1), MemberIndex(5));
    assert_eq!(next(&mut late, DEPUTY_ROUNDS + 1), relay);
    let mut server = Alone::new(rows, members, 10 * rows, relay.0);
    let mut calls =
        |asker| server.plan(|planner, view| planner.stands_in(view, MemberIndex(asker), 5));
    assert!(
        !calls(child(5, 16)) && !calls(child(5, 1)) && !calls(child(5, 16)) && calls(child(5, 2))
    );
}
