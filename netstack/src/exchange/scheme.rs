//! How an all-to-all exchange is done: the default, the published method, or one of those that both
//! are compared with.
//!
//! Key types: [`Scheme`], [`SchemeError`], [`Baseline`]. Neighbours: `settings` and the command
//! line read the names by [`Scheme::parse`]; the simulator has the baselines.
//!
//! Invariant: no name leads to a baseline, so that no launch can ask for one.

use alloc::vec::Vec;
use core::fmt;

use super::rounds::Order;
use crate::ids::Rank;
use crate::rng::Rng;

/// A scheme.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheme {
    /// Rounds of perfect matchings without a barrier; receivers pull, small blocks are sent
    /// unasked: [`super::rounds`].
    #[default]
    Default,
    /// Rank 0 is the master and tells the ranks of the active queue whom to send to:
    /// [`super::published`].
    Published {
        /// Length of the active queue, L.
        active: Active,
    },
    /// For comparison only: a simulator or a test has it.
    Compared(&'static dyn Baseline),
}

/// A scheme that the others are compared with. The engine has this one hook for all of them; what
/// they do is with the simulator.
pub trait Baseline: fmt::Debug + Sync {
    /// What it is called.
    fn name(&self) -> &'static str;

    /// All rounds, in the order in which the rank at place `me` serves them; None: in the order of
    /// their numbers.
    fn sequence(&self, _order: &Order, _me: u32, _rng: &mut Rng) -> Option<Vec<u32>> {
        None
    }

    /// A rank sends to one and receives from one, whole blocks, and nobody else meanwhile: what
    /// becomes of a sender whose receiver is busy. None: blocks are sent without being asked for.
    fn conflict(&self) -> Option<Conflict> {
        None
    }
}

impl PartialEq for dyn Baseline {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for dyn Baseline {}

/// What becomes of a sender whose receiver is busy.
#[derive(Clone, Copy, Debug)]
pub enum Conflict {
    /// It tries again after a random time, which grows with every conflict.
    Retry,
    /// It waits. Of those that wait the one with the greatest weight goes first, by its rank and
    /// the bytes of its block.
    Heaviest(fn(Rank, u64) -> u64),
}

/// How many ranks are active at a time in the published method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Active {
    /// All.
    All,
    /// So many, or all where there are fewer. Where one rank would have more than 65,535 targets in
    /// a step, more are active: [`super::published::schedule`].
    Given(u32),
    /// As many as links and ports suggest, see [`super::published::active`].
    Computed,
}

/// Why a name is no scheme's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemeError {
    /// None has this name.
    Unknown,
    /// `published-L=0`.
    NobodyActive,
}

impl fmt::Display for SchemeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SchemeError::Unknown => {
                formatter.write_str("there are")?;
                for (at, name) in Scheme::NAMES.iter().enumerate() {
                    let comma = if at == 0 { "" } else { "," };
                    write!(formatter, "{comma} {name}")?;
                }
                Ok(())
            }
            SchemeError::NobodyActive => formatter.write_str(
                "with published-L=0 no rank would send; say 1 or more, or published for all at a time",
            ),
        }
    }
}

impl core::error::Error for SchemeError {}

impl Scheme {
    /// The names that there are; NUMBER stands for one.
    pub const NAMES: [&str; 4] = [
        "default",
        "published",
        "published-L=NUMBER",
        "published-L=auto",
    ];

    /// The scheme with this name, one of [`Scheme::NAMES`].
    ///
    /// # Errors
    /// There is none, or nobody would send.
    pub fn parse(name: &str) -> Result<Self, SchemeError> {
        Ok(match name {
            "default" => Scheme::Default,
            "published" => Scheme::Published {
                active: Active::All,
            },
            "published-L=auto" => Scheme::Published {
                active: Active::Computed,
            },
            other => {
                let length = other.strip_prefix("published-L=");
                let length = length.and_then(|length| length.parse().ok());
                match length.ok_or(SchemeError::Unknown)? {
                    0 => return Err(SchemeError::NobodyActive),
                    length => Scheme::Published {
                        active: Active::Given(length),
                    },
                }
            }
        })
    }

    /// Blocks are sent without being asked for, whatever their length.
    pub(crate) fn is_blind(self) -> bool {
        !matches!(self, Scheme::Default) && !self.is_exclusive()
    }

    /// A rank sends to one and receives from one, whole blocks, and nobody else meanwhile.
    pub(crate) fn is_exclusive(self) -> bool {
        self.conflict().is_some()
    }

    /// What becomes of a sender whose receiver is busy, where that is an exclusive one.
    pub(crate) fn conflict(self) -> Option<Conflict> {
        match self {
            Scheme::Default | Scheme::Published { .. } => None,
            Scheme::Compared(baseline) => baseline.conflict(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        assert_eq!(Scheme::parse("default"), Ok(Scheme::Default));
        assert_eq!(
            Scheme::parse("published-L=16"),
            Ok(Scheme::Published {
                active: Active::Given(16)
            })
        );
        assert_eq!(
            Scheme::parse("published-L=auto"),
            Ok(Scheme::Published {
                active: Active::Computed
            })
        );
        assert_eq!(Scheme::parse("published-L="), Err(SchemeError::Unknown));
        for nobody in ["published-L=0", "published-L=00"] {
            assert_eq!(Scheme::parse(nobody), Err(SchemeError::NobodyActive));
        }
        assert_eq!(Scheme::parse("fast"), Err(SchemeError::Unknown));
        // What the simulator compares with is no launch's to choose, and whoever asks is told what
        // is.
        for gone in [
            "at-once",
            "blind",
            "barrier",
            "random-delay",
            "priority",
            "volume",
        ] {
            assert_eq!(Scheme::parse(gone), Err(SchemeError::Unknown));
        }
        let said = alloc::format!("{}", SchemeError::Unknown);
        assert_eq!(
            said,
            "there are default, published, published-L=NUMBER, published-L=auto"
        );
    }
}
