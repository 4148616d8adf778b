//! The battery-backed clock (MC146818): the date, read once at start.
//!
//! Invariant: a clock that never settles costs a bounded number of reads, and the date is then
//! unknown, not wrong.

use x86_64::instructions::port::Port;

const INDEX: u16 = 0x70;
const DATA: u16 = 0x71;
const STATUS_A: u8 = 0x0a;
const STATUS_B: u8 = 0x0b;
const UPDATE_IN_PROGRESS: u8 = 0x80;
const BINARY: u8 = 0x04;
const HOURS_24: u8 = 0x02;
const AFTERNOON: u8 = 0x80;
/// An update takes 2 ms at most: 2,000 reads of 1 us; twice that and the clock is broken.
const PATIENCE: u32 = 4_000;
/// Readings tried until two in a row agree.
const TRIES: u32 = 5;

/// Seconds since 1970 by the clock, which is taken to run on UTC; `None` when there is no clock or
/// it shows no date.
pub fn unix_seconds() -> Option<u64> {
    let mut last = read()?;
    for _ in 0..TRIES {
        let next = read()?;
        if next == last {
            return seconds(next);
        }
        last = next;
    }
    None
}

fn register(index: u8) -> u8 {
    // SAFETY: selecting and reading a register of the clock changes nothing; bit 7 clear leaves
    // NMI enabled.
    unsafe {
        Port::new(INDEX).write(index);
        Port::new(DATA).read()
    }
}

/// Second, minute, hour, day, month, year of the century, as the registers hold them.
fn read() -> Option<[u8; 6]> {
    let settled = (0..PATIENCE).any(|_| register(STATUS_A) & UPDATE_IN_PROGRESS == 0);
    settled.then(|| [0, 2, 4, 7, 8, 9].map(register))
}

fn seconds(registers: [u8; 6]) -> Option<u64> {
    let format = register(STATUS_B);
    let decode = |value: u8| match format & BINARY {
        0 => (value >> 4) * 10 + (value & 15),
        _ => value,
    };
    let [second, minute, hour, day, month, year] = registers;
    let mut hours = decode(hour & !AFTERNOON);
    if format & HOURS_24 == 0 {
        hours = hours % 12 + if hour & AFTERNOON != 0 { 12 } else { 0 };
    }
    let [second, minute, day, month, year] =
        [second, minute, day, month, year].map(|value| u64::from(decode(value)));
    if !(1..=31).contains(&day) || !(1..=12).contains(&month) || year > 99 || minute > 59 {
        return None;
    }
    let days = days_since_1970(2000 + year, month, day);
    Some(((days * 24 + u64::from(hours)) * 60 + minute) * 60 + second)
}

/// Days from 1 January 1970 (Hinnant: chrono-compatible low-level date algorithms,
/// `days_from_civil`), for years from 2000.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    // The year begins in March, so that the leap day is its last.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year / 400, year % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = of_era * 365 + of_era / 4 - of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}
