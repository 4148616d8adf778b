//! Interrupts by class, counted apart for the two places they can hit.
//!
//! A node is tickless: while a program computes it takes only interrupts of a control class, and
//! an idle node takes none that is periodic. These counts are how that is shown after each job.
//!
//! Neighbours: `kernel::arch` registers each vector under a class and counts here; the report of
//! a job and the heartbeat carry the counts.
//!
//! Invariant: an interrupt without a class cannot be counted, so it cannot be taken unnoticed:
//! what nobody registered is [`Class::Spurious`].

use core::fmt;

/// Why an interrupt came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Class {
    /// Timer: a heartbeat is due, at most once a second.
    Heartbeat = 0,
    /// Timer: the program's time limit or its alarm, or a deadline of the kernel while it waits.
    TimeLimit = 1,
    /// Timer: the program's own monitoring period.
    Monitor = 2,
    /// The network interface, only when somebody waits for it.
    Nic = 3,
    /// Network interface or timer: a broadcast that this node has a part in goes on.
    Cast = 4,
    /// Anything else.
    Spurious = 5,
    /// Another core, which has changed something that this one must see.
    Kick = 6,
}

impl Class {
    /// All classes in the order of their counts.
    pub const ALL: [Self; 7] = [
        Self::Heartbeat,
        Self::TimeLimit,
        Self::Monitor,
        Self::Nic,
        Self::Cast,
        Self::Spurious,
        Self::Kick,
    ];

    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Heartbeat => "heartbeat",
            Self::TimeLimit => "time_limit",
            Self::Monitor => "monitor",
            Self::Nic => "nic",
            Self::Cast => "cast",
            Self::Spurious => "spurious",
            Self::Kick => "kick",
        }
    }
}

/// What the interrupt hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A program in ring 3.
    User,
    /// The kernel in its halt.
    Idle,
}

/// Interrupts taken, by class and place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// While a program ran, in the order of [`Class::ALL`].
    pub user: [u64; Class::ALL.len()],
    /// While the kernel was halted.
    pub idle: [u64; Class::ALL.len()],
}

impl Counts {
    /// No interrupt yet.
    pub const fn new() -> Self {
        Self {
            user: [0; _],
            idle: [0; _],
        }
    }

    /// Counts one interrupt.
    pub fn count(&mut self, class: Class, place: Place) {
        match place {
            Place::User => self.user[class as usize] += 1,
            Place::Idle => self.idle[class as usize] += 1,
        }
    }

    /// What was counted since an earlier copy.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut difference = *self;
        for index in 0..Class::ALL.len() {
            difference.user[index] -= earlier.user[index];
            difference.idle[index] -= earlier.idle[index];
        }
        difference
    }

    /// All interrupts that hit a program.
    pub fn user_total(&self) -> u64 {
        self.user.iter().sum()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for class in Class::ALL {
            let (user, idle) = (self.user[class as usize], self.idle[class as usize]);
            if user + idle > 0 {
                write!(f, "{} {user}+{idle} ", class.name())?;
            }
        }
        write!(f, "(user+idle)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_kept_apart_and_subtract() {
        let mut counts = Counts::new();
        counts.count(Class::Heartbeat, Place::User);
        let earlier = counts;
        counts.count(Class::Nic, Place::Idle);
        counts.count(Class::Heartbeat, Place::User);
        let job = counts.since(&earlier);
        assert_eq!(job.user, [1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(job.idle, [0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(job.user_total(), 1);
        assert_eq!(std::format!("{job}"), "heartbeat 1+0 nic 0+1 (user+idle)");
    }
}
