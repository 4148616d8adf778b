//! What whoever has the key can make a member keep of the members of casts.

use alloc::sync::Arc;

use super::message::{Blocks, PAGE_PEERS};
use super::*;

/// Members of all casts that the member may take part in.
const MOST: u32 = 10_000;
/// Members of each hostile cast.
const MEMBERS: u32 = 4_000;
/// Pages of all casts: one may be short in each.
const PAGES_MOST: usize = (MOST / PAGE_PEERS) as usize + 32;

/// A member, and somebody who has the key.
struct Victim {
    member: Member,
    memory: Memory,
    now: Instant,
}

impl Victim {
    fn new(members: u32) -> Self {
        let config = MemberConfig {
            node: NodeId(5),
            me: peer(5),
            control: None,
            key: KEY,
            rate: 0,
            buffers: 16,
            credit: 0,
            members,
            seed: 1,
        };
        let now = Instant::from_micros(1_000_000);
        Victim {
            member: Member::new(config, now),
            memory: Memory::default(),
            now,
        }
    }

    fn hear(&mut self, cast: u64, from: u32, message: Message) {
        let packet = Packet {
            cast: CastId(cast),
            from: MemberIndex(from),
            mac: peer(from).mac,
            message,
        };
        let (now, addr) = (self.now, peer(from).addr);
        (self.member).handle_message(now, addr, packet, None, &mut self.memory);
        while self.member.poll_event().is_some() {}
    }

    /// A cast of so many members, at a rate at which nothing that waits to be sent ever is.
    fn announce(&mut self, cast: u64, members: u32) {
        let (object, _) = object(&content(4096, 3), 12);
        let setup = message::Setup {
            members,
            rate: 1,
            roster_id: cast,
            roster: Vec::new(),
            ..mesh_of(object, 1)
        };
        let announce = Message::Announce {
            index: MemberIndex(5),
            number: 1,
            clock: 1,
            leaf: true,
            setup: Arc::new(setup),
        };
        self.hear(cast, 1, announce);
    }

    /// Every page of a cast, with addresses that begin with `first`.
    fn give_pages(&mut self, cast: u64, members: u32, first: u32) {
        for page in 0..members.div_ceil(PAGE_PEERS) {
            let count = (members - page * PAGE_PEERS).min(PAGE_PEERS);
            let peers = (first..first + count).map(peer).collect();
            self.hear(cast, 1, Message::RosterPage { page, peers });
        }
    }

    fn takes_part(&self, cast: u64) -> bool {
        self.member.progress(CastId(cast)).is_some()
    }

    fn end(&mut self, cast: u64) {
        let reason = EndReason::Cancelled;
        self.hear(cast, 1, Message::End { number: 1, reason });
        self.now += Micros(1);
        let _ = self.member.poll_message(self.now, &mut self.memory);
    }
}

#[test]
fn the_addresses_that_a_member_keeps_are_bounded_over_all_casts() {
    let mut victim = Victim::new(MOST);
    for round in 0..40 {
        // Again and again under other numbers: more at once than it takes, each page twice, and asked for by others.
        let casts = round * 10..(round + 1) * 10;
        for cast in casts.clone() {
            victim.announce(cast, MEMBERS);
            for first in [0, 7] {
                victim.give_pages(cast, MEMBERS, first);
                for page in 0..MEMBERS.div_ceil(PAGE_PEERS) {
                    let pages = Blocks::one(page);
                    victim.hear(cast, 2 + first, Message::RosterRead { pages });
                }
            }
            let kept = victim.member.pages_kept();
            assert!(kept <= PAGES_MOST, "{kept} pages in round {round}");
        }
        assert_eq!(
            casts
                .clone()
                .filter(|cast| victim.takes_part(*cast))
                .count(),
            2
        );
        casts.for_each(|cast| victim.end(cast));
        let kept = victim.member.pages_kept();
        assert!(kept <= PAGES_MOST, "{kept} pages after round {round}");
    }
}

#[test]
fn pages_of_no_cast_and_beyond_the_last_one_are_not_kept() {
    let mut victim = Victim::new(MOST);
    victim.announce(1, MEMBERS);
    victim.give_pages(2, MEMBERS, 0);
    let peers: Arc<[Peer]> = (0..PAGE_PEERS).map(peer).collect();
    for page in MEMBERS.div_ceil(PAGE_PEERS)..MAX_MEMBERS.div_ceil(PAGE_PEERS) {
        let peers = peers.clone();
        victim.hear(1, 1, Message::RosterPage { page, peers });
    }
    assert_eq!(victim.member.pages_kept(), 0);
    assert!(victim.member.counters().bad > 0);
}

#[test]
fn a_cast_that_has_no_room_is_taken_when_another_is_over() {
    let mut victim = Victim::new(MAX_MEMBERS);
    victim.announce(1, MAX_MEMBERS);
    victim.give_pages(1, MAX_MEMBERS, 0);
    victim.announce(2, 1);
    assert!(victim.takes_part(1) && !victim.takes_part(2));
    victim.end(1);
    // What is remembered of the first gives way.
    victim.announce(2, MAX_MEMBERS);
    assert!(victim.takes_part(2));
    assert_eq!(victim.member.pages_kept(), 0);
}
