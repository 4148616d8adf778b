//! Numbers of bytes as people write them: `65536`, `64KB`, `1.5MiB`, `48M`. The command line of
//! `hearth` and the simulator read them by the same rule, which is that of GNU's tools: `KB` is
//! 1,000 bytes, `K` and `KiB` are 1,024, and so are the others; case says nothing. Rates of links
//! are numbers of bits a second: `20mbit`.
//!
//! Key functions: [`parse`], [`rate`]. Invariant: what is read is a whole number, without rounding.

/// What sizes look like, for texts that refuse another.
pub const FORM: &str = "a number of bytes, as in 65536, 64KB (of 1,000) or 64KiB (of 1,024)";

/// What rates look like, for texts that refuse another.
pub const RATE_FORM: &str = "a number and a unit (kbit, mbit, gbit), as in 20mbit";

/// Units of bits a second.
const RATE_UNITS: [(&str, u64); 4] = [
    ("KBIT", 1_000),
    ("MBIT", 1_000_000),
    ("GBIT", 1_000_000_000),
    ("BIT", 1),
];

/// Units, longer names first where one ends another.
const UNITS: [(&str, u64); 11] = [
    ("KIB", 1 << 10),
    ("MIB", 1 << 20),
    ("GIB", 1 << 30),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("B", 1),
    ("", 1),
];

/// The number of bytes that a text says; none where it is no such number.
pub fn parse(text: &str) -> Option<u64> {
    with_unit(text, &UNITS)
}

/// The number of bits a second that a text with a unit says; none where it is no such number.
pub fn rate(text: &str) -> Option<u64> {
    with_unit(text, &RATE_UNITS)
}

fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let unit_at = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let (number, unit) = text.split_at(unit_at.unwrap_or(text.len()));
    let known = units
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit));
    let (_, factor) = known?;
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let bytes = whole.parse::<u64>().ok()?.checked_mul(*factor)?;
    let tenths = 10_u64.checked_pow(u32::try_from(part.len()).ok()?)?;
    let part = part.parse::<u64>().ok()?.checked_mul(*factor)?;
    let part = part.is_multiple_of(tenths).then_some(part / tenths)?;
    bytes.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_units() {
        for (text, bytes) in [
            ("0", 0),
            ("65536", 65_536),
            ("7B", 7),
            ("64KB", 64_000),
            ("64kb", 64_000),
            ("64K", 65_536),
            ("64KiB", 65_536),
            ("1MB", 1_000_000),
            ("1.5MiB", 1_572_864),
            ("48M", 48 << 20),
            ("2GB", 2_000_000_000),
            ("0.25g", 1 << 28),
        ] {
            assert_eq!(parse(text), Some(bytes), "{text}");
        }
    }

    #[test]
    fn rates_are_read_with_units_alone() {
        for (text, bits) in [
            ("8bit", 8),
            ("100kbit", 100_000),
            ("20mbit", 20_000_000),
            ("1.5Gbit", 1_500_000_000),
        ] {
            assert_eq!(rate(text), Some(bits), "{text}");
        }
        for text in ["", "20", "mbit", "20mb", "20MB", "-5mbit", "0.5bit"] {
            assert_eq!(rate(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_no_whole_number_of_bytes_is_none() {
        for text in [
            "",
            "KB",
            "-1",
            "+1",
            "1.5",
            "0.3B",
            "1.",
            ".5KB",
            "1.2.3KB",
            "5XB",
            "5KX",
            "5 KB",
            "18446744073709551616",
            "20000000000GB",
            "1.00000000000000000000KB",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
