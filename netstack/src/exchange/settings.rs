//! What a launch says about the exchange, in the environment variable `HEARTH_EXCHANGE`: for
//! measurements and for links that the node cannot know.
//!
//! The value is a list of `scheme=NAME`, `rate=RATE`, `port-buffer=SIZE` and `leaf=RANKS`,
//! separated by commas; a rate is a number of bits a second or has a unit ([`size::rate`]), a size
//! is one of [`size::parse`]. All ranks of a job get the same environment, and so the same
//! settings.
//!
//! Key types: [`Settings`], [`SettingError`]. Neighbours: the control node looks at the variable
//! when a job is handed in, the node's kernel when it is launched.

use alloc::string::String;
use core::fmt;

use super::{Scheme, SchemeError};
use crate::size;

/// The variable's name, with what follows it.
const VARIABLE: &[u8] = b"HEARTH_EXCHANGE=";

/// Least rate, in bits a second: less is not one byte a second.
const LEAST_RATE: u64 = 8;

/// Characters of a wrong part that an error repeats.
const PART_MAX: usize = 64;

/// Settings of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// How all-to-all exchanges are done.
    pub scheme: Scheme,
    /// Bytes a second that the node's link carries; 0: not known.
    pub rate: u64,
    /// Bytes that the port of a switch holds; 0: the usual number.
    pub port_buffer: u32,
    /// Ranks on each leaf switch, 0 for the order of their numbers; none: as the connection table
    /// says.
    pub leaf: Option<u32>,
}

/// Which part of the variable is wrong, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingError {
    /// The part, without characters that turn or hide text; of a long one the beginning.
    part: String,
    /// What is wrong with it.
    pub wrong: Wrong,
}

/// What is wrong with a part of the variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// There is no such setting.
    Setting,
    /// No scheme.
    Scheme(SchemeError),
    /// No rate, or too few bits a second for a link.
    Rate,
    /// No size, or one that no port has.
    PortBuffer,
    /// No number of ranks.
    Leaf,
    /// Leaf switches of so many ranks do not make up a job of `ranks`.
    Uneven {
        /// Ranks of the job.
        ranks: u32,
    },
}

impl fmt::Display for SettingError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "HEARTH_EXCHANGE has {}: ", self.part)?;
        match self.wrong {
            Wrong::Setting => write!(
                formatter,
                "it is a list of scheme=NAME, rate=RATE, port-buffer=SIZE and leaf=RANKS, with commas between them"
            ),
            Wrong::Scheme(SchemeError::Unknown) => {
                write!(
                    formatter,
                    "there is no such scheme; {}",
                    SchemeError::Unknown
                )
            }
            Wrong::Scheme(error) => write!(formatter, "{error}"),
            Wrong::Rate => write!(
                formatter,
                "no link has such a rate; say {}, or a number of bits a second from {LEAST_RATE} on, or leave rate out, and it is \
                 found out",
                size::RATE_FORM
            ),
            Wrong::PortBuffer => write!(
                formatter,
                "no port holds that; say {}, at most {}, or 0 for the usual number",
                size::FORM,
                u32::MAX
            ),
            Wrong::Leaf => write!(
                formatter,
                "say how many ranks each leaf switch has, as in leaf=4, or leaf=0 for the order of the ranks' numbers"
            ),
            Wrong::Uneven { ranks } => write!(
                formatter,
                "that does not divide the number of ranks, {ranks}; leave leaf out where \
                 leaf switches have different numbers of them, or say leaf=0 for the order of the ranks' numbers"
            ),
        }
    }
}

impl core::error::Error for SettingError {}

impl Settings {
    /// Those that the environment of a job of `ranks` ranks names.
    ///
    /// # Errors
    /// What is wrong with the variable.
    pub fn of<'a>(
        mut environment: impl Iterator<Item = &'a [u8]>,
        ranks: u32,
    ) -> Result<Self, SettingError> {
        let Some(value) = environment.find_map(|entry| entry.strip_prefix(VARIABLE)) else {
            return Ok(Self::default());
        };
        let value = String::from_utf8_lossy(value);
        let mut settings = Self::default();
        for entry in value.split(',').filter(|entry| !entry.is_empty()) {
            settings
                .set(entry, ranks)
                .map_err(|wrong| SettingError::new(entry, wrong))?;
        }
        Ok(settings)
    }

    fn set(&mut self, entry: &str, ranks: u32) -> Result<(), Wrong> {
        let (name, value) = entry.split_once('=').ok_or(Wrong::Setting)?;
        match name {
            "scheme" => self.scheme = Scheme::parse(value).map_err(Wrong::Scheme)?,
            "rate" => {
                let bits = value.parse().ok().or_else(|| size::rate(value));
                let bits = bits.filter(|bits| *bits >= LEAST_RATE);
                self.rate = bits.ok_or(Wrong::Rate)? / 8;
            }
            "port-buffer" => {
                let bytes = size::parse(value).and_then(|bytes| bytes.try_into().ok());
                self.port_buffer = bytes.ok_or(Wrong::PortBuffer)?;
            }
            "leaf" => {
                let leaf = value.parse().map_err(|_| Wrong::Leaf)?;
                if leaf != 0 && !ranks.is_multiple_of(leaf) {
                    return Err(Wrong::Uneven { ranks });
                }
                self.leaf = Some(leaf);
            }
            _ => return Err(Wrong::Setting),
        }
        Ok(())
    }
}

impl SettingError {
    fn new(entry: &str, wrong: Wrong) -> Self {
        let mut messages = entry.chars().flat_map(char::escape_debug);
        let mut part: String = messages.by_ref().take(PART_MAX).collect();
        if messages.next().is_some() {
            part.push_str("...");
        }
        SettingError { part, wrong }
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;
    use std::vec::Vec;

    use super::super::Active;
    use super::*;

    fn of(variable: &str, ranks: u32) -> Result<Settings, SettingError> {
        let environment = ["HOME=/", variable];
        let environment: Vec<&[u8]> = environment.iter().map(|entry| entry.as_bytes()).collect();
        Settings::of(environment.into_iter(), ranks)
    }

    #[test]
    fn what_a_launch_says_is_read() {
        assert_eq!(of("A=1", 8), Ok(Settings::default()));
        assert_eq!(of("HEARTH_EXCHANGE=", 8), Ok(Settings::default()));
        let all = "HEARTH_EXCHANGE=scheme=published-L=2,rate=8000,port-buffer=100000,leaf=4";
        let scheme = Scheme::Published {
            active: Active::Given(2),
        };
        let wanted = Settings {
            scheme,
            rate: 1_000,
            port_buffer: 100_000,
            leaf: Some(4),
        };
        assert_eq!(of(all, 8), Ok(wanted));
        // As many on each leaf switch as there are, or the order of the numbers.
        for leaf in [0, 1, 8] {
            let found = of(&std::format!("HEARTH_EXCHANGE=leaf={leaf}"), 8).unwrap();
            assert_eq!(found.leaf, Some(leaf));
        }
        // More active than there are ranks: all.
        assert!(of("HEARTH_EXCHANGE=scheme=published-L=99", 4).is_ok());
    }

    #[test]
    fn rates_and_sizes_have_units() {
        for (rate, bytes) in [
            ("8", 1),
            ("20000000", 2_500_000),
            ("20mbit", 2_500_000),
            ("1.5Gbit", 187_500_000),
            ("8bit", 1),
        ] {
            let found = of(&std::format!("HEARTH_EXCHANGE=rate={rate}"), 8).unwrap();
            assert_eq!(found.rate, bytes, "{rate}");
        }
        let found = of("HEARTH_EXCHANGE=port-buffer=256KiB", 8).unwrap();
        assert_eq!(found.port_buffer, 262_144);
    }

    #[test]
    fn what_has_no_sense_is_refused_by_name() {
        let nobody = Wrong::Scheme(SchemeError::NobodyActive);
        let unknown = Wrong::Scheme(SchemeError::Unknown);
        for (value, wanted, word) in [
            ("scheme=published-L=0", nobody, "no rank would send"),
            ("scheme=best", unknown, "published-L=auto"),
            ("scheme=published-L=-1", unknown, "published-L=NUMBER"),
            ("rate=0", Wrong::Rate, "20mbit"),
            ("rate=7", Wrong::Rate, "from 8 on"),
            ("rate=fast", Wrong::Rate, "20mbit"),
            ("rate=20MB", Wrong::Rate, "20mbit"),
            ("rate=", Wrong::Rate, "20mbit"),
            ("port-buffer=-1", Wrong::PortBuffer, "64KiB"),
            ("port-buffer=4GiB", Wrong::PortBuffer, "at most 4294967295"),
            ("leaf=3", Wrong::Uneven { ranks: 8 }, "number of ranks, 8"),
            ("leaf=16", Wrong::Uneven { ranks: 8 }, "number of ranks, 8"),
            ("leaf=", Wrong::Leaf, "leaf=4"),
            ("speed=1", Wrong::Setting, "port-buffer=SIZE"),
            ("default", Wrong::Setting, "scheme=NAME"),
        ] {
            // The part that is wrong is named, not the first.
            let error = of(&std::format!("HEARTH_EXCHANGE=leaf=4,{value}"), 8).unwrap_err();
            assert_eq!(error.wrong, wanted, "{value}");
            let text = error.to_string();
            let start = std::format!("HEARTH_EXCHANGE has {value}: ");
            assert!(text.starts_with(&start) && text.contains(word), "{text}");
        }
    }

    #[test]
    fn an_error_repeats_no_long_or_wild_text() {
        let long = "\u{202e}\u{fffd}".repeat(10_000);
        for key in ["scheme", "rate", "port-buffer", "leaf", "speed"] {
            let error = of(&std::format!("HEARTH_EXCHANGE={key}={long}"), 8).unwrap_err();
            let text = error.to_string();
            assert!(text.len() <= crate::job::REFUSAL_TEXT_MAX, "{text}");
            assert!(
                text.contains("...: ") && !text.contains('\u{202e}'),
                "{text}"
            );
        }
    }
}
