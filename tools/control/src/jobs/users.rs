//! Users by number: the queue counts what each has by a number.
//!
//! Key type: [`Users`].
//!
//! Invariant: a user has one number for as long as one of their jobs is not over; there are at most
//! as many as jobs.

use std::collections::BTreeMap;

/// Longest name of a user.
const NAME_MAX: usize = 32;

/// Numbers of users.
#[derive(Debug, Default)]
pub(crate) struct Users {
    /// By name: the number, and how many jobs.
    known: BTreeMap<String, (u32, u32)>,
    next: u32,
}

impl Users {
    /// Whether this can be the name of a user.
    pub(crate) fn is_name(name: &str) -> bool {
        let is_plain = |c: char| c.is_alphanumeric() || "-_.@".contains(c);
        (1..=NAME_MAX).contains(&name.len()) && name.chars().all(is_plain)
    }

    /// The user has one more job; their number.
    pub(super) fn enter(&mut self, name: &str) -> u32 {
        if let Some((number, jobs)) = self.known.get_mut(name) {
            *jobs += 1;
            return *number;
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.known.insert(name.to_string(), (number, 1));
        number
    }

    /// The number of a user who has a job.
    pub(super) fn number(&self, name: &str) -> u32 {
        self.known.get(name).expect("they have a job").0
    }

    /// The user has one job less.
    pub(super) fn leave(&mut self, name: &str) {
        if let Some((_, jobs)) = self.known.get_mut(name) {
            *jobs -= 1;
            if *jobs == 0 {
                self.known.remove(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_numbers_while_they_have_jobs() {
        let mut users = Users::default();
        let (ann, bob) = (users.enter("ann"), users.enter("bob"));
        assert_ne!(ann, bob);
        assert_eq!(users.enter("ann"), ann);
        users.leave("ann");
        assert_eq!(users.number("ann"), ann);
        users.leave("ann");
        assert!(!users.known.contains_key("ann"));
        assert!(Users::is_name("j.doe@site") && !Users::is_name("") && !Users::is_name("a b"));
    }
}
