//! Signals of Linux x86-64: their names and numbers.
//!
//! Key functions: [`name`], [`text`], [`parse`]. Neighbours: `jobs::record` tells ends by them,
//! `cli` reads them.
//!
//! Invariant: numbers are those of Linux x86-64, whatever machine control runs on.

/// Highest number of a signal.
pub const MAX: i32 = 64;

/// The signal of a rank whose time is up.
pub const XCPU: i32 = 24;

/// Names by number, the first is 1.
const NAMES: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

/// Other names.
const ALIASES: [(&str, i32); 4] = [("IOT", 6), ("CLD", 17), ("POLL", 29), ("UNUSED", 31)];

/// The first real-time signal that C libraries leave to programs, and the last: `RTMIN`, `RTMAX`.
const RT: (i32, i32) = (34, MAX);

/// Name of a signal; those for real time have none.
pub fn name(number: i32) -> Option<&'static str> {
    let index = usize::try_from(number).ok()?.checked_sub(1)?;
    NAMES.get(index).copied()
}

/// `SIGUSR1 (signal 10)`, `signal 40`.
pub fn text(number: i32) -> String {
    match name(number) {
        Some(name) => format!("{name} (signal {number})"),
        None => format!("signal {number}"),
    }
}

/// Reads a signal: its number, or its name with or without `SIG`, in letters of either case.
///
/// # Errors
/// What to write, for people.
pub fn parse(word: &str) -> Result<i32, String> {
    let upper = word.to_ascii_uppercase();
    let short = upper.strip_prefix("SIG").unwrap_or(&upper);
    let of_names = || {
        let at = NAMES.iter().position(|name| name[3..] == *short)?;
        i32::try_from(at + 1).ok()
    };
    let of_aliases = || {
        let found = ALIASES.iter().find(|(alias, _)| *alias == short)?;
        Some(found.1)
    };
    let number = short.parse().ok();
    let found = number
        .filter(|_| short.bytes().all(|byte| byte.is_ascii_digit()))
        .or_else(of_names)
        .or_else(of_aliases)
        .or_else(|| real_time(short));
    found
        .filter(|number| (1..=MAX).contains(number))
        .ok_or_else(|| {
            format!(
                "{word:?} is not a signal; write a name as USR1 or SIGTERM, or a number from 1 to \
                 {MAX}"
            )
        })
}

/// `RTMIN`, `RTMIN+3`, `RTMAX-2`.
fn real_time(word: &str) -> Option<i32> {
    let (first, last) = RT;
    let offset = |rest: &str, sign: char| match rest {
        "" => Some(0),
        rest => rest.strip_prefix(sign)?.parse::<u8>().ok().map(i32::from),
    };
    let number = match (word.strip_prefix("RTMIN"), word.strip_prefix("RTMAX")) {
        (Some(rest), _) => first + offset(rest, '+')?,
        (_, Some(rest)) => last - offset(rest, '-')?,
        _ => return None,
    };
    (first..=last).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_read_by_name_and_number() {
        for (word, number) in [
            ("USR1", 10),
            ("SIGUSR1", 10),
            ("sigterm", 15),
            ("kill", 9),
            ("10", 10),
            ("64", 64),
            ("SYS", 31),
            ("IOT", 6),
            ("RTMIN", 34),
            ("SIGRTMIN+3", 37),
            ("RTMAX-2", 62),
        ] {
            assert_eq!(parse(word), Ok(number), "{word}");
        }
        for word in [
            "", "SIG", "0", "65", "-9", "+9", "USR3", "RTMIN-1", "RTMIN+40", "RTMAX-60", "9 ",
        ] {
            let error = parse(word).unwrap_err();
            assert!(error.contains("USR1 or SIGTERM"), "{word}: {error}");
        }
        for number in 1..=31 {
            assert_eq!(parse(name(number).unwrap()), Ok(number));
        }
        assert_eq!(
            (name(XCPU), name(0), name(32)),
            (Some("SIGXCPU"), None, None)
        );
        assert_eq!(text(15), "SIGTERM (signal 15)");
        assert_eq!(text(40), "signal 40");
    }
}
