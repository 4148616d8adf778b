//! Time as control uses it: microseconds since control started for the protocols, microseconds
//! since 1970 for people and files, and the texts the tables print.
//!
//! Key types: [`Clock`]. Neighbours: `serve` (one clock for the process), `cli` tables.
//!
//! Invariant: protocol code never reads this clock; it is handed the time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Monotonic time of this process as the protocols count it.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: tokio::time::Instant,
}

impl Clock {
    /// Starts the clock at zero.
    pub fn start() -> Self {
        Clock {
            origin: tokio::time::Instant::now(),
        }
    }

    /// Microseconds since the start.
    pub fn now_us(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// The tokio instant of a protocol time, for timers.
    pub fn instant(&self, at_us: u64) -> tokio::time::Instant {
        // A deadline further away than a day is a day away: timers have a range, and waking once
        // a day costs nothing.
        const FURTHEST: Duration = Duration::from_secs(86_400);
        let ahead = Duration::from_micros(at_us.saturating_sub(self.now_us())).min(FURTHEST);
        tokio::time::Instant::now() + ahead
    }
}

/// Microseconds since 1970-01-01T00:00:00Z.
pub fn unix_us() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// `2026-11-21T02:54:39Z`: RFC 3339 in UTC, to the second.
pub fn rfc3339(unix_us: u64) -> String {
    let seconds = unix_us / 1_000_000;
    let (year, month, day) = civil_from_days(seconds / 86_400);
    let of_day = seconds % 86_400;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Microseconds since 1970 of a date, or of a date and a time, in UTC: `2026-11-21`,
/// `2026-11-21T02:54`, `2026-11-21T02:54:39Z`. `None` for anything else, and before 1970.
pub fn parse_utc(text: &str) -> Option<u64> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = text.split_once('T').unwrap_or((text, "0:0"));
    let numbers = |text: &str, separator| -> Option<Vec<u64>> {
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let number = |part: &str| digits(part).then(|| part.parse().ok())?;
        text.split(separator).map(number).collect()
    };
    let (date, time) = (numbers(date, '-')?, numbers(time, ':')?);
    let &[year @ 1970..=9999, month @ 1..=12, day @ 1..=31] = &date[..] else {
        return None;
    };
    let (hour, minute, second) = match time[..] {
        [hour @ 0..24, minute @ 0..60] => (hour, minute, 0),
        [hour @ 0..24, minute @ 0..60, second @ 0..60] => (hour, minute, second),
        _ => return None,
    };
    let days = days_from_civil(year, month, day);
    // A day that its month does not have is another date.
    (civil_from_days(days) == (year, month, day))
        .then(|| (((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000)
}

/// A span as Slurm prints it: `0:07`, `12:03`, `3:12:03`, `2-03:12:03`.
pub fn span(seconds: u64) -> String {
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let (minutes, seconds) = (seconds / 60 % 60, seconds % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes}:{seconds:02}"),
        (0, _) => format!("{hours}:{minutes:02}:{seconds:02}"),
        _ => format!("{days}-{hours:02}:{minutes:02}:{seconds:02}"),
    }
}

/// A span in the largest unit that it is a whole number of: `3 s`, `90 min`, `1 h`, `2 d`.
pub fn in_words(seconds: u64) -> String {
    let units = [(86_400, "d"), (3600, "h"), (60, "min")];
    let fits = |(unit, _): &(u64, &str)| seconds > 0 && seconds.is_multiple_of(*unit);
    match units.into_iter().find(fits) {
        Some((unit, name)) => format!("{} {name}", seconds / unit),
        None => format!("{seconds} s"),
    }
}

/// Year, month and day of a day counted from 1970-01-01 (Hinnant, "chrono-compatible low-level
/// date algorithms", civil_from_days).
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// The day, counted from 1970-01-01, of a date from 1970 on (the same source, days_from_civil).
fn days_from_civil(year: u64, month: u64, day: u64) -> u64 {
    let year = year - u64::from(month <= 2);
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_back() {
        for at in [
            0,
            951_827_696_000_000,
            1_795_229_679_000_000,
            68_169_600_000_000,
        ] {
            assert_eq!(parse_utc(&rfc3339(at)), Some(at), "{}", rfc3339(at));
        }
        assert_eq!(parse_utc("2026-11-21"), Some(1_795_219_200_000_000));
        assert_eq!(parse_utc("2026-11-21T02:54"), Some(1_795_229_640_000_000));
        for wrong in [
            "",
            "2026",
            "2026-02-30",
            "1969-12-31",
            "2026-11-21T24:00",
            "2026-11-21T1",
            "+1-1-1",
            "2026-1-1T:",
        ] {
            assert_eq!(parse_utc(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_827_696_000_000), "2000-02-29T12:34:56Z");
        assert_eq!(rfc3339(1_795_229_679_123_456), "2026-11-21T02:54:39Z");
    }

    #[test]
    fn spans_in_words_have_the_largest_unit() {
        let words = [0, 3, 90, 5400, 3600, 172_800].map(in_words);
        assert_eq!(words, ["0 s", "3 s", "90 s", "90 min", "1 h", "2 d"]);
    }

    #[test]
    fn spans_read_like_slurm() {
        assert_eq!(span(7), "0:07");
        assert_eq!(span(723), "12:03");
        assert_eq!(span(11_523), "3:12:03");
        assert_eq!(span(2 * 86_400 + 3 * 3600 + 12 * 60 + 3), "2-03:12:03");
    }
}
