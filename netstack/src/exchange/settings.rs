//! What a launch says about the exchange, in the environment variable `HEARTH_EXCHANGE`: for measurements and for links
//! that the node cannot know.
//!
//! The value is a list of `scheme=NAME`, `rate=BITS_PER_SECOND`, `port-buffer=BYTES` and `leaf=RANKS`, separated by commas. All ranks of a job get
//! the same environment, and so the same settings.
//!
//! Key types: [`Settings`], [`SettingError`]. Neighbours: the control node looks at the variable when a job is handed in,
//! the node's kernel when it is launched.

use core::fmt;

use super::Scheme;

/// The variable's name, with what follows it.
const VARIABLE: &[u8] = b"HEARTH_EXCHANGE=";

/// Least rate, in bits a second: less is not one byte a second.
const LEAST_RATE: u64 = 8;

/// Settings of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// How all-to-all exchanges are done.
    pub scheme: Scheme,
    /// Bytes a second that the node's link carries; 0: not known.
    pub rate: u64,
    /// Bytes that the port of a switch holds; 0: the usual number.
    pub port_buffer: u32,
    /// Ranks on each leaf switch, 0 for the order of their numbers; none: as the connection table says.
    pub leaf: Option<u32>,
}

/// What is wrong with the variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingError {
    /// No such list.
    Form,
    /// There is no such scheme.
    Scheme,
    /// `published-L=0`.
    NobodyActive,
    /// Too few bits a second for a link.
    Rate(u64),
    /// Leaf switches of `leaf` ranks do not make up a job of `ranks`.
    Leaf {
        /// Ranks on each, as the variable says.
        leaf: u32,
        /// Ranks of the job.
        ranks: u32,
    },
}

impl fmt::Display for SettingError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingError::Form => write!(
                formatter,
                "HEARTH_EXCHANGE must be a list of scheme=NAME, rate=BITS_PER_SECOND, port-buffer=BYTES, leaf=RANKS, \
                 with commas between them"
            ),
            SettingError::Scheme => write!(
                formatter,
                "HEARTH_EXCHANGE has a scheme that there is not; there are default, published, published-L=NUMBER, \
                 published-L=auto, at-once, at-once-random, blind, barrier, random-delay, priority, volume"
            ),
            SettingError::NobodyActive => write!(
                formatter,
                "HEARTH_EXCHANGE has published-L=0, with which no rank would send; say 1 or more, or published for all at a time"
            ),
            SettingError::Rate(bits) => write!(
                formatter,
                "HEARTH_EXCHANGE has rate={bits}, which no link has; say how many bits a second, as in rate=1000000000, \
                 or leave rate out, and it is found out"
            ),
            SettingError::Leaf { leaf, ranks } => write!(
                formatter,
                "HEARTH_EXCHANGE has leaf={leaf}, which does not divide the number of ranks, {ranks}; leave leaf out where \
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
        let value = core::str::from_utf8(value).map_err(|_| SettingError::Form)?;
        let mut settings = Self::default();
        for entry in value.split(',').filter(|entry| !entry.is_empty()) {
            let (name, value) = entry.split_once('=').ok_or(SettingError::Form)?;
            settings.set(name, value, ranks)?;
        }
        Ok(settings)
    }

    fn set(&mut self, name: &str, value: &str, ranks: u32) -> Result<(), SettingError> {
        fn number<T: core::str::FromStr>(text: &str) -> Result<T, SettingError> {
            text.parse().map_err(|_| SettingError::Form)
        }
        match name {
            "scheme" if value == "published-L=0" => return Err(SettingError::NobodyActive),
            "scheme" => self.scheme = Scheme::parse(value).ok_or(SettingError::Scheme)?,
            "rate" => {
                let bits = number(value)?;
                if bits < LEAST_RATE {
                    return Err(SettingError::Rate(bits));
                }
                self.rate = bits / 8;
            }
            "port-buffer" => self.port_buffer = number(value)?,
            "leaf" => {
                let leaf = number(value)?;
                if leaf != 0 && !ranks.is_multiple_of(leaf) {
                    return Err(SettingError::Leaf { leaf, ranks });
                }
                self.leaf = Some(leaf);
            }
            _ => return Err(SettingError::Form),
        }
        Ok(())
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
    fn what_has_no_sense_is_refused_by_name() {
        for (value, wanted) in [
            ("scheme=published-L=0", SettingError::NobodyActive),
            ("scheme=best", SettingError::Scheme),
            ("scheme=published-L=-1", SettingError::Scheme),
            ("rate=0", SettingError::Rate(0)),
            ("rate=7", SettingError::Rate(7)),
            ("rate=fast", SettingError::Form),
            ("port-buffer=-1", SettingError::Form),
            ("leaf=3", SettingError::Leaf { leaf: 3, ranks: 8 }),
            ("leaf=16", SettingError::Leaf { leaf: 16, ranks: 8 }),
            ("leaf=", SettingError::Form),
            ("speed=1", SettingError::Form),
            ("default", SettingError::Form),
        ] {
            let error = of(&std::format!("HEARTH_EXCHANGE={value}"), 8).unwrap_err();
            assert_eq!(error, wanted, "{value}");
            let text = error.to_string();
            assert!(text.starts_with("HEARTH_EXCHANGE "), "{text}");
            assert!(text.len() <= crate::job::REFUSAL_TEXT_MAX, "{text}");
        }
    }
}
