//! What a cast is measured by: the time that one link needs for the data once.
//!
//! Neighbours: `api::casts` and the command line show it; `docs/measuring.md` uses the same
//! measure.

use netstack::MAX_DATAGRAM;

use crate::api::types::CastInfo;

/// Bytes beside the payload of a UDP datagram: UDP (8), IPv4 (20), and what Ethernet adds (preamble
/// 8, header 14, checksum 4, gap 12). What a cast adds of its own is no part of the limit: it
/// counts against the cast.
const OVERHEAD: u64 = 8 + 20 + 38;

/// Microseconds that a link of `rate` bytes a second needs for `bytes` bytes in full datagrams.
pub fn limit_us(bytes: u64, rate: u64) -> u64 {
    let datagrams = bytes.div_ceil(MAX_DATAGRAM as u64);
    let on_wire = u128::from(bytes) + u128::from(datagrams) * u128::from(OVERHEAD);
    let us = on_wire * 1_000_000 / u128::from(rate.max(1));
    u64::try_from(us).unwrap_or(u64::MAX)
}

/// Where one link needs less, the time is that of messages, and no multiple of it says anything.
const RATIO_FROM_US: u64 = 10_000;

/// From so many microseconds on an absence is told.
const ABSENT_FROM_US: u64 = 10_000;

/// [`line`] of a cast, without the time in which there was nobody to send to; none where nothing
/// had to be brought.
pub fn of_cast(info: &CastInfo) -> Option<String> {
    if info.done <= info.held {
        return None;
    }
    let us = |ms: f64| (ms * 1e3) as u64;
    let (whole, absent) = (us(info.ms), us(info.absent_ms));
    let mut text = line(info.bytes, whole.saturating_sub(absent), us(info.limit_ms));
    if absent >= ABSENT_FROM_US {
        let seconds = absent as f64 / 1e6;
        text += &format!(", without {seconds:.2} s in which nodes were away");
    }
    Some(text)
}

/// `4194304 bytes in 0.72 s, 5.8 MB/s, 1.07 times as long as sending it once over one link`.
pub fn line(bytes: u64, us: u64, limit_us: u64) -> String {
    let seconds = us as f64 / 1e6;
    let rate = bytes as f64 / 1e6 / seconds.max(1e-6);
    let text = format!("{bytes} bytes in {seconds:.2} s, {rate:.1} MB/s");
    if limit_us < RATIO_FROM_US {
        return text;
    }
    let ratio = us as f64 / limit_us as f64;
    format!("{text}, {ratio:.2} times as long as sending it once over one link")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_needs_time_for_headers_too() {
        // 50 Mbit/s, 4 MB: 2,718 datagrams of 1,472 bytes, 66 bytes more for each.
        assert_eq!(
            limit_us(4_000_000, 6_250_000),
            (4_000_000 + 2_718 * 66) * 4 / 25
        );
        assert_eq!(limit_us(0, 1), 0);
        assert!(line(1_000_000, 500_000, 250_000).contains("0.50 s, 2.0 MB/s, 2.00 times"));
        assert_eq!(line(6, 4_000, 10), "6 bytes in 0.00 s, 0.0 MB/s");
    }
}
