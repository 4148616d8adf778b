//! How an all-to-all exchange is done: the default, the published method and what both are compared
//! with.
//!
//! Key types: [`Scheme`], [`SchemeError`]. Neighbours: `settings` and the command line read the
//! names by [`Scheme::parse`].

use core::fmt;

/// A scheme. All but [`Scheme::Default`] and [`Scheme::Published`] are baselines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheme {
    /// Rounds of perfect matchings without a barrier; receivers pull, small blocks are sent
    /// unasked.
    #[default]
    Default,
    /// The published method: rank 0 is the master and tells the ranks of the active queue whom to
    /// send to.
    Published {
        /// Length of the active queue, L.
        active: Active,
    },
    /// Everything at once: each rank sends its blocks in the order of the ranks' numbers.
    AtOnce,
    /// Everything at once, in an order drawn at random by each rank.
    AtOnceRandom,
    /// Blocks unasked in the order of the rounds, without waiting for anything.
    BlindShift,
    /// Each rank sends to one at a time and receives from one at a time; who comes to a receiver
    /// that is busy tries again after a random time, which grows with every conflict.
    RandomDelay,
    /// As that, but who comes waits: of those the one with the greatest weight goes first, which is
    /// its rank.
    Priority,
    /// As that, but the one with the longest block goes first.
    Volume,
}

/// How many ranks are active at a time in the published method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Active {
    /// All.
    All,
    /// So many, or all where there are fewer. Where one rank would have more than 65,535 targets in
    /// a step, more are active: [`super::published`].
    Given(u32),
    /// As many as links and ports suggest, see [`super::active`].
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
    pub const NAMES: [&str; 11] = [
        "default",
        "published",
        "published-L=NUMBER",
        "published-L=auto",
        "at-once",
        "at-once-random",
        "blind",
        "barrier",
        "random-delay",
        "priority",
        "volume",
    ];

    /// The scheme with this name, one of [`Scheme::NAMES`].
    ///
    /// # Errors
    /// There is none, or nobody would send.
    pub fn parse(name: &str) -> Result<Self, SchemeError> {
        Ok(match name {
            "default" => Scheme::Default,
            // With all ranks active the published method is the rounds with a wait for all after
            // each.
            "published" | "barrier" => Scheme::Published {
                active: Active::All,
            },
            "published-L=auto" => Scheme::Published {
                active: Active::Computed,
            },
            "at-once" => Scheme::AtOnce,
            "at-once-random" => Scheme::AtOnceRandom,
            "blind" => Scheme::BlindShift,
            "random-delay" => Scheme::RandomDelay,
            "priority" => Scheme::Priority,
            "volume" => Scheme::Volume,
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
        matches!(
            self,
            Scheme::RandomDelay | Scheme::Priority | Scheme::Volume
        )
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
    }
}
