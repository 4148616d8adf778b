//! Tasks of a job array, as Slurm writes them: `1-100%10`.
//!
//! Key type: [`Array`]. Neighbours: `job_options` has the option, `submit` hands in a job for each
//! task.
//!
//! Invariant: tasks are distinct and at most [`TASKS_MAX`].

use std::collections::BTreeSet;
use std::str::FromStr;

/// Most tasks of an array: as many as Slurm has unless it is told otherwise, and few enough for a
/// queue that others use as well.
pub const TASKS_MAX: usize = 1_001;

/// Highest task, so that a range is counted without overflow; Slurm's bound.
const TASK_MAX: u32 = 4_000_000;

/// What `--array` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    /// Its tasks, rising.
    pub tasks: Vec<u32>,
    /// How many run at a time; 0: no bound.
    pub at_once: u32,
}

impl FromStr for Array {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "write tasks as in 1-100, 0-9:3 or 1,4,7, and %10 behind them for ten at a time"
                .to_string()
        };
        let number = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text.parse::<u32>().ok();
            let number = number.filter(|number| *number <= TASK_MAX);
            number.filter(|_| is_number).ok_or_else(wrong)
        };
        let (list, at_once) = match text.split_once('%') {
            Some((list, at_once)) => (list, Some(number(at_once)?)),
            None => (text, None),
        };
        if at_once == Some(0) {
            return Err(wrong());
        }
        let mut tasks = BTreeSet::new();
        for part in list.split(',') {
            let (range, step) = match part.split_once(':') {
                Some((range, step)) => (range, number(step)?),
                None => (part, 1),
            };
            let (first, last) = match range.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None if part.contains(':') => return Err(wrong()),
                None => (number(range)?, number(range)?),
            };
            if step == 0 || first > last {
                return Err(wrong());
            }
            let step = usize::try_from(step).map_err(|_| wrong())?;
            // One more than may be is enough to know.
            tasks.extend((first..=last).step_by(step).take(TASKS_MAX + 1));
            if tasks.len() > TASKS_MAX {
                return Err(format!(
                    "an array has at most {TASKS_MAX} tasks; submit several"
                ));
            }
        }
        Ok(Array {
            tasks: tasks.into_iter().collect(),
            at_once: at_once.unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_ranges_steps_and_lists() {
        let of = |text: &str| {
            let array: Array = text.parse().unwrap();
            (array.tasks, array.at_once)
        };
        assert_eq!(of("1-4"), (vec![1, 2, 3, 4], 0));
        assert_eq!(of("0-9:3%2"), (vec![0, 3, 6, 9], 2));
        assert_eq!(of("7,1,3-4,4"), (vec![1, 3, 4, 7], 0));
        assert_eq!(of("0-1000").0.len(), TASKS_MAX);
    }

    #[test]
    fn what_is_no_array_is_refused() {
        for wrong in [
            "",
            "a",
            "4-1",
            "1-",
            "-3",
            "1-3%",
            "1-3%0",
            "1-3:0",
            "3:2",
            "1,,2",
            "+1",
            "1-5000000",
        ] {
            assert!(wrong.parse::<Array>().is_err(), "{wrong}");
        }
        let text = "0-1001".parse::<Array>().unwrap_err();
        assert!(text.contains("1001"), "{text}");
        assert!("0-600,1000-1600".parse::<Array>().is_err());
    }
}
