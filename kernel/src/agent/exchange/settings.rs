//! What a launch says about the exchange, in the environment variable `HEARTH_EXCHANGE`: for measurements and for links
//! that the node cannot know.
//!
//! The value is a list of `scheme=NAME`, `rate=BITS_PER_SECOND`, `port-buffer=BYTES` and `leaf=RANKS`, separated by commas. All ranks of a job get
//! the same environment, and so the same settings.

use netstack::exchange::Scheme;

/// The variable's name, with what follows it.
const VARIABLE: &[u8] = b"HEARTH_EXCHANGE=";

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

impl Settings {
    /// Those that an environment names.
    ///
    /// # Errors
    /// What is wrong with the variable.
    pub fn of(environment: &[&[u8]]) -> Result<Self, &'static str> {
        let value = environment
            .iter()
            .find_map(|entry| entry.strip_prefix(VARIABLE));
        let Some(value) = value else {
            return Ok(Self::default());
        };
        const WRONG: &str = "HEARTH_EXCHANGE must be a list of scheme=NAME, rate=BITS_PER_SECOND, \
                             port-buffer=BYTES, leaf=RANKS";
        let value = core::str::from_utf8(value).map_err(|_| WRONG)?;
        let mut settings = Self::default();
        for entry in value.split(',').filter(|entry| !entry.is_empty()) {
            match entry.split_once('=').ok_or(WRONG)? {
                ("scheme", name) => {
                    settings.scheme = Scheme::parse(name).ok_or(
                        "HEARTH_EXCHANGE has a scheme that there is not; there are default, published, \
                         published-L=NUMBER, published-L=auto, at-once, at-once-random, blind, barrier, \
                         random-delay, priority, volume",
                    )?;
                }
                ("rate", bits) => settings.rate = bits.parse::<u64>().map_err(|_| WRONG)? / 8,
                ("port-buffer", bytes) => {
                    settings.port_buffer = bytes.parse().map_err(|_| WRONG)?
                }
                ("leaf", ranks) => settings.leaf = Some(ranks.parse().map_err(|_| WRONG)?),
                _ => return Err(WRONG),
            }
        }
        Ok(settings)
    }
}
