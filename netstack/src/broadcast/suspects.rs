//! Members that did not answer or were too late: they are left alone for a while, longer every
//! time.

use alloc::vec::Vec;

use super::message::MemberIndex;
use crate::time::{Instant, Micros};

/// Members kept: two of each row of a grid of 65,000, which is as many as a member asks there. With
/// more, as in the largest grid it could be (724), all are forgotten, and suspected anew if they
/// are still silent.
pub(super) const MAX_SUSPECTS: usize = 512;
/// Times the wait doubles.
const MAX_STRIKES: u32 = 8;

/// What a member is suspected of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suspicion {
    /// It does not answer at all, or gave wrong data.
    Gone,
    /// It answers, but too late.
    Late,
}

#[derive(Debug)]
struct Suspect {
    until: Instant,
    strikes: u32,
    /// It was late, no worse.
    late: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    members: Vec<MemberIndex>,
    entries: Vec<Suspect>,
    /// Those that are left alone at present, ascending.
    silent: Vec<MemberIndex>,
    /// Those of them that were not only late.
    gone: Vec<MemberIndex>,
    next: Option<Instant>,
}

impl Suspects {
    /// Those that are left alone at present.
    pub(crate) fn silent(&self) -> &[MemberIndex] {
        &self.silent
    }

    /// Those that did not answer, or gave wrong data, and are left alone at present.
    pub(crate) fn gone(&self) -> &[MemberIndex] {
        &self.gone
    }

    /// A member was silent or late: leaves it alone for `wait`, doubled with every strike.
    pub(crate) fn strike(
        &mut self,
        now: Instant,
        member: MemberIndex,
        wait: Micros,
        of: Suspicion,
    ) {
        let late = of == Suspicion::Late;
        if member.is_source() {
            return;
        }
        match self.members.binary_search(&member) {
            Ok(at) => {
                let entry = &mut self.entries[at];
                entry.late &= late;
                if entry.until <= now {
                    entry.strikes = (entry.strikes + 1).min(MAX_STRIKES);
                    entry.until = now + wait.saturating_mul(1 << entry.strikes);
                    entry.late = late;
                }
            }
            Err(at) => {
                if self.members.len() >= MAX_SUSPECTS {
                    self.members.clear();
                    self.entries.clear();
                    self.silent.clear();
                    self.gone.clear();
                    return self.strike(now, member, wait, of);
                }
                self.members.insert(at, member);
                let entry = Suspect {
                    until: now + wait,
                    strikes: 0,
                    late,
                };
                self.entries.insert(at, entry);
            }
        }
        match self.next.is_some_and(|next| next <= now) {
            true => self.refresh(now),
            false => self.list(now, member),
        }
    }

    /// Lists a member that was struck, as far as its time is not over.
    fn list(&mut self, now: Instant, member: MemberIndex) {
        let Ok(at) = self.members.binary_search(&member) else {
            return;
        };
        let entry = &self.entries[at];
        if entry.until <= now {
            return;
        }
        self.next = Some(self.next.map_or(entry.until, |next| next.min(entry.until)));
        if let Err(at) = self.silent.binary_search(&member) {
            self.silent.insert(at, member);
        }
        match (self.gone.binary_search(&member), entry.late) {
            (Err(at), false) => self.gone.insert(at, member),
            (Ok(at), true) => _ = self.gone.remove(at),
            _ => {}
        }
    }

    /// A member sent data in good time.
    pub(crate) fn clear(&mut self, now: Instant, member: MemberIndex) {
        if self.silent.is_empty() {
            return;
        }
        if let Ok(at) = self.members.binary_search(&member) {
            let entry = &mut self.entries[at];
            entry.until = entry.until.min(now);
        }
        for list in [&mut self.silent, &mut self.gone] {
            if let Ok(at) = list.binary_search(&member) {
                list.remove(at);
            }
        }
    }

    /// Lets those go whose time is over.
    pub(crate) fn tick(&mut self, now: Instant) {
        if self.next.is_some_and(|next| next <= now) {
            self.refresh(now);
        }
    }

    fn refresh(&mut self, now: Instant) {
        self.silent.clear();
        self.gone.clear();
        self.next = None;
        for (member, entry) in self.members.iter().zip(&self.entries) {
            if entry.until > now {
                self.silent.push(*member);
                if !entry.late {
                    self.gone.push(*member);
                }
                self.next = Some(self.next.map_or(entry.until, |next| next.min(entry.until)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn a_strike_lists_what_a_look_at_all_would() {
        let mut rng = Rng::new(3);
        let (mut suspects, mut now) = (Suspects::default(), Instant::from_micros(1));
        for _ in 0..3_000 {
            now += Micros(rng.below(400));
            let of = match rng.below(2) {
                0 => Suspicion::Late,
                _ => Suspicion::Gone,
            };
            let member = MemberIndex(rng.below(40) as u32);
            suspects.strike(now, member, Micros(1 + rng.below(2_000)), of);
            let listed = (
                suspects.silent.clone(),
                suspects.gone.clone(),
                suspects.next,
            );
            suspects.refresh(now);
            let all = (
                suspects.silent.clone(),
                suspects.gone.clone(),
                suspects.next,
            );
            assert_eq!(listed, all);
        }
        assert!(!suspects.silent().is_empty() && !suspects.gone().is_empty());
    }

    #[test]
    fn who_was_cleared_is_not_listed_again() {
        let (mut suspects, now) = (Suspects::default(), Instant::from_micros(1));
        for (member, wait) in [(1, 5_000), (2, 100), (3, 5_000)] {
            suspects.strike(now, MemberIndex(member), Micros(wait), Suspicion::Gone);
        }
        suspects.clear(now, MemberIndex(1));
        suspects.tick(now + Micros(100));
        assert_eq!(suspects.silent(), [MemberIndex(3)]);
        assert_eq!(suspects.gone(), [MemberIndex(3)]);
    }
}
