//! What whoever has the key can make a member keep of the members of casts.

use alloc::sync::Arc;

use super::message::{Answer, Blocks, PAGE_PEERS, Standing, WantedBlock, Wants};
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
    /// Of its casts: usually one at which nothing that waits to be sent ever is.
    rate: u64,
    /// It has nobody to announce casts to.
    leaf: bool,
}

impl Victim {
    fn new(members: u32) -> Self {
        let config = MemberConfig {
            node: NodeId(5),
            boot: crate::ids::BootEpoch(0),
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
            rate: 1,
            leaf: true,
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

    /// A cast of so many members.
    fn announce(&mut self, cast: u64, members: u32) {
        let (object, _) = object(&content(4096, 3), 12);
        let setup = message::Setup {
            members,
            rate: self.rate,
            roster_id: cast,
            roster: Vec::new(),
            ..mesh_of(object, 1)
        };
        let announce = Message::Announce {
            index: MemberIndex(5),
            number: 1,
            clock: 1,
            leaf: self.leaf,
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

    /// What it sends of a cast within a millisecond: to whom, and as which member.
    fn says(&mut self, cast: u64) -> Vec<(Peer, MemberIndex, Message)> {
        let mut said = Vec::new();
        for _ in 0..100 {
            self.now += Micros(10);
            let sent = core::iter::from_fn(|| self.member.poll_message(self.now, &mut self.memory));
            let of_cast = sent.filter(|(_, packet)| packet.cast.0 == cast);
            said.extend(of_cast.map(|(to, packet)| (to, packet.from, packet.message)));
        }
        said
    }

    /// It refuses this cast, and says no more of it than that.
    fn refuses(&mut self, cast: u64) -> bool {
        let refusal = Message::AnnounceAck {
            number: 1,
            standing: Standing::NoRoom,
        };
        !self.takes_part(cast) && self.says(cast) == [(peer(1), MemberIndex(5), refusal)]
    }

    /// What it answers to whoever asks for two blocks of a cast.
    fn asked(&mut self, cast: u64) -> Vec<Message> {
        let mut wants = Wants::default();
        for block in [0, 3] {
            wants.push(WantedBlock {
                block,
                fragments: 1,
                ..WantedBlock::default()
            });
        }
        self.hear(cast, 7, Message::Request(wants));
        let said = self.says(cast).into_iter();
        said.map(|(_, _, message)| message).collect()
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
        // Again and again under other numbers: more at once than it takes, each page twice, and
        // asked for by others.
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

#[test]
fn who_announces_beyond_the_bound_is_told_and_nothing_is_kept() {
    let mut victim = Victim::new(MOST);
    victim.rate = RATE;
    victim.announce(1, MEMBERS);
    victim.announce(2, MEMBERS);
    let kept = victim.member.pages_kept();
    for cast in 3..103 {
        // Its announcement is repeated until the answer comes.
        for _ in 0..2 {
            victim.announce(cast, MOST + 1);
            assert!(victim.refuses(cast), "{cast}");
        }
        victim.give_pages(cast, MEMBERS, 0);
    }
    assert_eq!(victim.member.footprint().casts, 2);
    assert_eq!(victim.member.pages_kept(), kept);
    // Others ask it all the same: they are told at once, as by whoever has no room for the blocks.
    // Casts long ago are forgotten.
    let mut blocks = Blocks::one(0);
    blocks.push(3);
    let answer = Answer::NotHere;
    assert_eq!(victim.asked(102), [Message::Answer { answer, blocks }]);
    assert_eq!(victim.asked(3), [Message::Unknown]);
    // With room for it, it is taken after all.
    victim.end(1);
    victim.announce(102, MEMBERS);
    assert!(victim.takes_part(102));
}

#[test]
fn more_casts_than_there_may_be_wait_for_another_to_be_over() {
    let mut victim = Victim::new(0);
    victim.rate = RATE;
    for cast in 0..32 {
        victim.announce(cast, 1);
        assert!(victim.takes_part(cast));
    }
    victim.announce(32, 1);
    assert_eq!(
        (victim.takes_part(32), victim.says(32)),
        (false, Vec::new())
    );
    victim.end(0);
    for _ in 0..2_000 {
        victim.says(0);
    }
    victim.announce(32, 1);
    assert!(victim.takes_part(32));
}

#[test]
fn the_store_says_for_how_many_members_there_is_room() {
    let mut victim = Victim::new(0);
    victim.rate = RATE;
    victim.memory.members_room = Some(100);
    victim.announce(1, 101);
    assert!(victim.refuses(1));
    victim.announce(1, 60);
    assert!(victim.takes_part(1));
    // Its pages have not come, so that the store still has all of its room; it is promised
    // nevertheless.
    victim.announce(2, 41);
    assert_eq!((victim.takes_part(2), victim.says(2)), (false, Vec::new()));
    victim.announce(2, 40);
    assert!(victim.takes_part(2));
}

#[test]
fn what_else_takes_room_bounds_the_members_as_long_as_it_does() {
    let mut victim = Victim::new(0);
    victim.rate = RATE;
    victim.memory.members_room = Some(100);
    victim.announce(1, 60);
    assert!(victim.takes_part(1));
    victim.memory.members_room = Some(0);
    victim.announce(2, 61);
    assert!(victim.refuses(2));
    // It is there again, and the first cast still under way.
    victim.memory.members_room = Some(100);
    victim.announce(2, 40);
    assert!(victim.takes_part(1) && victim.takes_part(2));
}

#[test]
fn room_that_another_cast_leaves_is_waited_for() {
    let mut victim = Victim::new(MOST);
    (victim.rate, victim.leaf) = (RATE, false);
    victim.announce(1, MOST);
    victim.give_pages(1, MOST, 0);
    victim.says(1);
    let (number, reason) = (1, EndReason::Finished);
    victim.hear(1, 1, Message::End { number, reason });
    victim.says(1);
    // Those below it do not answer.
    assert!(victim.takes_part(1));
    victim.announce(2, MOST);
    assert_eq!((victim.takes_part(2), victim.says(2)), (false, Vec::new()));
    for _ in 0..2_000 {
        victim.says(1);
    }
    victim.announce(2, MOST);
    assert!(victim.takes_part(2));
}

/// Its addresses come with it, so that it shows who said it again from elsewhere. Taken, it would
/// be a cast without a clock, whose member waits for its turn until long after the end.
#[test]
fn a_first_announcement_from_another_address_is_not_taken() {
    let mut victim = Victim::new(0);
    let (object, _) = object(&content(4096, 3), 12);
    let setup = Arc::new(message::Setup {
        members: 8,
        roster: (0..8).map(peer).collect(),
        ..mesh_of(object, 1)
    });
    let announce = || Packet {
        cast: CastId(7),
        from: MemberIndex(1),
        mac: peer(1).mac,
        message: Message::Announce {
            index: MemberIndex(5),
            number: 1,
            clock: 1,
            leaf: true,
            setup: setup.clone(),
        },
    };
    for (address, is_taken) in [(9, false), (3, false), (1, true)] {
        let (now, addr) = (victim.now, peer(address).addr);
        (victim.member).handle_message(now, addr, announce(), None, &mut victim.memory);
        assert_eq!(victim.member.poll_event().is_some(), is_taken, "{address}");
        assert_eq!(victim.takes_part(7), is_taken, "{address}");
    }
}
