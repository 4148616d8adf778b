//! The addresses of a cast's members, as far as they are known here: whole pages, and single
//! members that spoke to this one.
//!
//! A sealed datagram proves who made it, not who sent it: anybody may send it again from anywhere.
//! So where a datagram came from is believed only of a member whose address nobody has told yet,
//! and such a member gets no more than it sends before it has answered a challenge there: a probe
//! with a random number (RFC 9000, section 8.1).
//!
//! Invariant: an address that was told, by a page of the roster or at the source by its user, never
//! gives way to one that a datagram came from.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::message::{MemberIndex, PAGE_PEERS};
use super::{MAX_MEMBERS, Peer};
use crate::rng::Rng;
use crate::time::{Instant, Micros};

/// Members that may differ from the roster, or spoke before their page was here. As many as a head
/// of a row has children, with room. The source has no such bound: of those that join late it alone
/// knows the address.
const MAX_LEARNED: usize = 2048;
/// Pages of the roster that others wait for here: four children, every page of a membership of
/// 16,512.
pub(super) const MAX_WAITING: usize = 1024;
/// A page is read anew at most so often: whoever sends again what a member sent, from elsewhere,
/// causes no more than that.
const READ_ANEW_EVERY: Micros = Micros::from_millis(100);
/// Doublings of the wait for a page.
const MAX_DOUBLINGS: u32 = 6;

/// A random member of those whose page is known: of the page drawn, or of the next one that is
/// known.
pub(crate) fn any_known(pages: &[Option<Arc<[Peer]>>], rng: &mut Rng) -> Option<MemberIndex> {
    let drawn = rng.below(pages.len() as u64 * u64::from(PAGE_PEERS)) as usize;
    let (page, place) = (drawn / PAGE_PEERS as usize, drawn % PAGE_PEERS as usize);
    let numbered = (page..pages.len()).chain(0..page);
    let mut known = numbered.filter_map(|page| Some((page, pages[page].as_ref()?)));
    let (page, peers) = known.next()?;
    let place = place % peers.len().max(1);
    Some(MemberIndex(page as u32 * PAGE_PEERS + place as u32))
}

/// The address of a member that only its own datagrams say.
#[derive(Clone, Copy, Debug)]
struct Learned {
    peer: Peer,
    /// The number of its challenge; None: it had none yet.
    challenge: Option<u32>,
    /// It has answered from there.
    proven: bool,
}

impl Learned {
    fn new(peer: Peer) -> Self {
        Learned {
            peer,
            challenge: None,
            proven: false,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Roster {
    members: u32,
    source: Peer,
    /// Most of `learned`.
    most: usize,
    pages: Vec<Option<Arc<[Peer]>>>,
    /// At the source: members that joined late and are on no page, as its user says.
    joined: BTreeMap<MemberIndex, Peer>,
    /// Members that spoke to this one before anybody told their address.
    learned: Vec<(MemberIndex, Learned)>,
    /// The page that the source was asked for anew last, and when it may be asked again.
    anew: Option<(u32, Instant)>,
    /// Pages asked for, when to ask again, and how often they were.
    asked: Vec<(u32, Instant, u32)>,
    /// Repeated questions for pages since the parent gave one.
    missed: u32,
    /// Pages that others asked this member for before they were here.
    waiting: Vec<(u32, MemberIndex)>,
}

impl Roster {
    /// Of so many members; `owner` is whose roster it is.
    pub(crate) fn new(members: u32, source: Peer, owner: MemberIndex) -> Self {
        Roster {
            members,
            source,
            most: match owner.is_source() {
                true => MAX_MEMBERS as usize,
                false => MAX_LEARNED,
            },
            pages: alloc::vec![None; members.div_ceil(PAGE_PEERS) as usize],
            joined: BTreeMap::new(),
            learned: Vec::new(),
            anew: None,
            asked: Vec::new(),
            missed: 0,
            waiting: Vec::new(),
        }
    }

    /// Takes all members' addresses.
    pub(crate) fn fill(&mut self, peers: &[Peer]) {
        for (page, peers) in peers.chunks(PAGE_PEERS as usize).enumerate() {
            self.put(page as u32, peers.into());
        }
    }

    /// The source has given a page that it was asked for anew, since a member is not where it was.
    pub(crate) fn put_anew(&mut self, page: u32, peers: &Arc<[Peer]>) {
        if self.anew.is_some_and(|(asked, _)| asked == page)
            && let Some(Some(known)) = self.pages.get_mut(page as usize)
            && known.len() == peers.len()
        {
            *known = peers.clone();
        }
    }

    /// A told address seems to be wrong: the page to read anew, if it is time.
    pub(crate) fn read_anew(&mut self, member: MemberIndex, now: Instant) -> Option<u32> {
        let page = member.0 / PAGE_PEERS;
        let is_time = self.anew.is_none_or(|(_, again)| again <= now);
        (is_time && self.page(page).is_some()).then(|| {
            self.anew = Some((page, now + READ_ANEW_EVERY));
            page
        })
    }

    /// A page has come. False: it is none of this roster's.
    pub(crate) fn put(&mut self, page: u32, peers: Arc<[Peer]>) -> bool {
        let expected = (self.members.saturating_sub(page * PAGE_PEERS)).min(PAGE_PEERS);
        self.asked.retain(|(asked, ..)| *asked != page);
        match self.pages.get_mut(page as usize) {
            // It hardly changes, and who was sent it need not keep another.
            Some(Some(_)) if peers.len() == expected as usize => true,
            Some(slot) if peers.len() == expected as usize => {
                let first = page * PAGE_PEERS;
                self.learned.retain(|(member, _)| {
                    let paged = member.0.checked_sub(first);
                    paged.is_none_or(|at| at as usize >= peers.len())
                });
                *slot = Some(peers);
                true
            }
            _ => false,
        }
    }

    pub(crate) fn page(&self, page: u32) -> Option<&Arc<[Peer]>> {
        self.pages.get(page as usize)?.as_ref()
    }

    pub(crate) fn pages(&self) -> &[Option<Arc<[Peer]>>] {
        &self.pages
    }

    pub(crate) fn get(&self, member: MemberIndex) -> Option<Peer> {
        let learned = || self.find(member).ok().map(|at| self.learned[at].1.peer);
        self.told(member).or_else(learned)
    }

    /// The address of a member that somebody vouches for.
    fn told(&self, member: MemberIndex) -> Option<Peer> {
        if member.is_source() {
            return Some(self.source);
        }
        if let Some(peer) = self.joined.get(&member) {
            return Some(*peer);
        }
        let page = self.page(member.0 / PAGE_PEERS)?;
        page.get((member.0 % PAGE_PEERS) as usize).copied()
    }

    fn find(&self, member: MemberIndex) -> Result<usize, usize> {
        self.learned
            .binary_search_by_key(&member, |(index, _)| *index)
    }

    /// The source: a member is at this address, as its user says.
    pub(crate) fn join(&mut self, member: MemberIndex, peer: Peer) {
        let page = self.pages.get_mut((member.0 / PAGE_PEERS) as usize);
        if let Some(Some(page)) = page
            && (member.0 % PAGE_PEERS) < page.len() as u32
        {
            let mut peers = page.to_vec();
            peers[(member.0 % PAGE_PEERS) as usize] = peer;
            *page = peers.into();
        } else if member.0 < MAX_MEMBERS {
            self.joined.insert(member, peer);
        }
    }

    /// A datagram of a member came from this address. False: the member is elsewhere, and somebody
    /// has sent again what it sent.
    pub(crate) fn is_from(&mut self, member: MemberIndex, peer: Peer) -> bool {
        if let Some(told) = self.told(member) {
            return told.addr == peer.addr;
        }
        match self.find(member) {
            Ok(at) if self.learned[at].1.peer == peer => {}
            Ok(at) => {
                self.learned[at].1 = Learned::new(peer);
                // It asks again from where it is, if it is there.
                self.waiting.retain(|(_, of)| *of != member);
            }
            Err(at) if self.learned.len() < self.most => {
                self.learned.insert(at, (member, Learned::new(peer)));
            }
            Err(_) => {}
        }
        true
    }

    /// The member is where it is thought to be: somebody vouches for it, or it has answered there.
    pub(crate) fn is_proven(&self, member: MemberIndex) -> bool {
        let learned = || self.find(member).is_ok_and(|at| self.learned[at].1.proven);
        self.told(member).is_some() || learned()
    }

    /// The number that a member has to answer to prove its address; None: it need not, or cannot.
    pub(crate) fn challenge(&mut self, member: MemberIndex, rng: &mut Rng) -> Option<u32> {
        if self.told(member).is_some() {
            return None;
        }
        let at = self.find(member).ok()?;
        let learned = &mut self.learned[at].1;
        let draw = || rng.next_u64() as u32;
        (!learned.proven).then(|| *learned.challenge.get_or_insert_with(draw))
    }

    /// A member has answered this number. True: it has proved its address by it.
    pub(crate) fn proves(&mut self, member: MemberIndex, number: u32) -> bool {
        let Ok(at) = self.find(member) else {
            return false;
        };
        let learned = &mut self.learned[at].1;
        let proves = !learned.proven && learned.challenge == Some(number);
        learned.proven |= proves;
        proves
    }

    /// A page is needed. How often it was asked for in vain, if it is time to ask (again): after
    /// `wait`, doubled every time. Whoever answers late is not asked by thousands again and again.
    pub(crate) fn need(&mut self, page: u32, now: Instant, wait: Micros) -> Option<u32> {
        if page as usize >= self.pages.len() || self.page(page).is_some() {
            return None;
        }
        match self.asked.iter_mut().find(|(asked, ..)| *asked == page) {
            Some((_, at, _)) if *at > now => None,
            Some((_, at, times)) => {
                *times = times.saturating_add(1);
                *at = now + wait.saturating_mul(1 << (*times).min(MAX_DOUBLINGS));
                self.missed = self.missed.saturating_add(1);
                Some(*times)
            }
            None => {
                self.asked.push((page, now + wait, 0));
                Some(0)
            }
        }
    }

    /// Pages were asked for again so often since the parent gave one.
    pub(crate) fn missed(&self) -> u32 {
        self.missed
    }

    /// The parent gave a page.
    pub(crate) fn parent_answered(&mut self) {
        self.missed = 0;
    }

    /// Pages to ask for again by now.
    pub(crate) fn overdue(&self, now: Instant) -> Option<u32> {
        let late = self.asked.iter().find(|(_, at, _)| *at <= now);
        late.map(|(page, ..)| *page)
    }

    pub(crate) fn deadline(&self) -> Instant {
        let times = self.asked.iter().map(|(_, at, _)| *at);
        times.min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Somebody waits for a page that is not here, or has to prove its address first. When there
    /// is no room one of those gives way that have not proved theirs: they may never do.
    pub(crate) fn wait(&mut self, page: u32, member: MemberIndex) {
        let entry = (page, member);
        if self.waiting.contains(&entry) {
            return;
        }
        if self.waiting.len() >= MAX_WAITING {
            let mut waiting = self.waiting.iter();
            let Some(at) = waiting.position(|(_, of)| !self.is_proven(*of)) else {
                return;
            };
            self.waiting.swap_remove(at);
        }
        self.waiting.push(entry);
    }

    /// One of those that wait for this page and may have it, taken out.
    pub(crate) fn next_waiting(&mut self, page: u32) -> Option<MemberIndex> {
        let mut waiting = self.waiting.iter();
        let at = waiting.position(|(wanted, member)| *wanted == page && self.is_proven(*member))?;
        Some(self.waiting.swap_remove(at).1)
    }

    /// A page that is here, for which this member waits, taken out.
    pub(crate) fn next_owed(&mut self, member: MemberIndex) -> Option<u32> {
        let mut waiting = self.waiting.iter();
        let at = waiting.position(|(wanted, of)| *of == member && self.page(*wanted).is_some())?;
        Some(self.waiting.swap_remove(at).0)
    }
}

#[cfg(test)]
mod tests {
    use core::net::SocketAddrV4;

    use super::*;

    fn peer(member: u32) -> Peer {
        let port = 1 + member as u16;
        Peer {
            addr: SocketAddrV4::new([10, 0, 0, 1].into(), port),
            mac: [0; 6],
        }
    }

    fn page(members: core::ops::Range<u32>) -> Arc<[Peer]> {
        members.map(peer).collect()
    }

    #[test]
    fn a_page_is_asked_for_again_after_waits_that_double() {
        let mut roster = Roster::new(1000, peer(2000), MemberIndex(0));
        let wait = Micros(700);
        assert_eq!(roster.need(3, Instant::ZERO, wait), Some(0));
        let mut asked = alloc::vec::Vec::new();
        for micros in 0..100_000 {
            if let Some(times) = roster.need(3, Instant::from_micros(micros), wait) {
                asked.push((times, micros));
            }
        }
        let due = [700, 2_100, 4_900, 10_500, 21_700, 44_100, 88_900];
        let due: alloc::vec::Vec<_> = (1..).zip(due).collect();
        assert_eq!(asked, due);
        assert_eq!(roster.missed(), 7);
        assert!(roster.put(3, page(192..256)));
        assert_eq!(roster.need(3, Instant::from_micros(200_000), wait), None);
        assert_eq!(roster.deadline(), Instant::FAR_FUTURE);
    }

    #[test]
    fn only_members_whose_page_is_known_are_drawn() {
        let mut roster = Roster::new(1000, peer(2000), MemberIndex(0));
        let mut rng = Rng::new(1);
        assert_eq!(any_known(roster.pages(), &mut rng), None);
        assert!(roster.put(2, page(128..192)) && roster.put(15, page(960..1000)));
        let mut drawn = [0; 1000];
        for _ in 0..20_000 {
            let member = any_known(roster.pages(), &mut rng).expect("two pages are known");
            drawn[member.0 as usize] += 1;
        }
        let known = |member: &usize| (128..192).contains(member) || *member >= 960;
        assert!((0..1000).all(|member| known(&member) == (drawn[member] > 0)));
    }
}
