//! Ethernet addresses, the key under which the boot service knows a machine.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// An Ethernet (MAC) address. Written `52:54:00:07:00:00`; parsing takes `-` as well as `:`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(pub [u8; 6]);

/// The text is not six two-digit hexadecimal numbers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a MAC address; write it as 52:54:00:07:00:00")]
pub struct ParseMacError(String);

impl Mac {
    /// Whether a machine can own this address: it is neither all zeros nor a group address.
    pub fn is_station(self) -> bool {
        self.0 != [0; 6] && self.0[0] & 1 == 0
    }
}

impl From<[u8; 6]> for Mac {
    fn from(bytes: [u8; 6]) -> Self {
        Mac(bytes)
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

impl TryFrom<String> for Mac {
    type Error = ParseMacError;

    fn try_from(text: String) -> Result<Self, ParseMacError> {
        text.parse()
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Mac {
    type Err = ParseMacError;

    fn from_str(text: &str) -> Result<Self, ParseMacError> {
        let error = || ParseMacError(text.chars().take(32).collect());
        let mut bytes = [0; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut bytes {
            let part = parts.next().ok_or_else(error)?;
            if part.len() != 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(error());
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| error())?;
        }
        match parts.next() {
            None => Ok(Mac(bytes)),
            Some(_) => Err(error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_takes_what_display_gives() {
        let mac = Mac([0x52, 0x54, 0, 7, 0, 0xff]);
        assert_eq!(mac.to_string(), "52:54:00:07:00:ff");
        assert_eq!(mac.to_string().parse(), Ok(mac));
        assert_eq!("52-54-00-07-00-FF".parse(), Ok(mac));
    }

    #[test]
    fn parse_refuses_everything_else() {
        for text in [
            "",
            "52:54:00:07:00",
            "52:54:00:07:00:00:00",
            "+2:54:00:07:00:00",
            "5254.0007.0000",
        ] {
            assert!(text.parse::<Mac>().is_err(), "{text}");
        }
    }

    #[test]
    fn groups_and_zero_are_no_stations() {
        assert!(Mac([0x52, 0x54, 0, 7, 0, 0]).is_station());
        assert!(!Mac([0; 6]).is_station());
        assert!(!Mac([0xff; 6]).is_station());
        assert!(!Mac([1, 0, 0x5e, 0, 0, 1]).is_station());
    }
}
