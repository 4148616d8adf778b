//! Members that did not answer or were too late: they are left alone for a while, longer every time.

use alloc::vec::Vec;

use super::message::MemberIndex;
use crate::time::{Instant, Micros};

/// Members kept: as many as a member asks in a large grid, with room. With more the oldest entry goes.
const MAX_SUSPECTS: usize = 512;
/// Times the wait doubles.
const MAX_STRIKES: u32 = 8;

#[derive(Debug)]
struct Suspect {
    until: Instant,
    strikes: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    members: Vec<MemberIndex>,
    entries: Vec<Suspect>,
    /// Those that are left alone at present, ascending.
    silent: Vec<MemberIndex>,
    next: Option<Instant>,
}

impl Suspects {
    /// Those that are left alone at present.
    pub(crate) fn silent(&self) -> &[MemberIndex] {
        &self.silent
    }

    /// A member was silent or late: leaves it alone for `wait`, doubled with every strike.
    pub(crate) fn strike(&mut self, now: Instant, member: MemberIndex, wait: Micros) {
        if member.is_source() {
            return;
        }
        match self.members.binary_search(&member) {
            Ok(at) => {
                let entry = &mut self.entries[at];
                if entry.until <= now {
                    entry.strikes = (entry.strikes + 1).min(MAX_STRIKES);
                    entry.until = now + wait.saturating_mul(1 << entry.strikes);
                }
            }
            Err(at) => {
                if self.members.len() >= MAX_SUSPECTS {
                    self.members.clear();
                    self.entries.clear();
                    self.silent.clear();
                    return self.strike(now, member, wait);
                }
                self.members.insert(at, member);
                let entry = Suspect {
                    until: now + wait,
                    strikes: 0,
                };
                self.entries.insert(at, entry);
            }
        }
        self.refresh(now);
    }

    /// A member sent data in good time.
    pub(crate) fn clear(&mut self, member: MemberIndex) {
        if self.silent.is_empty() {
            return;
        }
        if let Ok(at) = self.silent.binary_search(&member) {
            self.silent.remove(at);
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
        self.next = None;
        for (member, entry) in self.members.iter().zip(&self.entries) {
            if entry.until > now {
                self.silent.push(*member);
                self.next = Some(self.next.map_or(entry.until, |next| next.min(entry.until)));
            }
        }
    }
}
