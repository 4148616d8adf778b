//! Lists of host names: `tux[0-3,7],login1`, `r[1-2]n[01-16]`, as Slurm and LLNL's hostlist have
//! them.
//!
//! Key function: [`expand`]. Neighbours: the module above reads files with such lists.
//!
//! Invariant: no more than [`NAMES_MAX`] names come out, however a list is written.

use super::{NAMES_MAX, SiteError, Word};

/// The names of a list, in its order. `count` counts the names of all lists of a file.
///
/// # Errors
/// [`SiteError`].
pub(super) fn expand(list: &Word, count: &mut usize) -> Result<Vec<Word>, SiteError> {
    let mut names = Vec::new();
    for item in items(list)? {
        let mut begun = vec![String::new()];
        let mut rest = item;
        while let Some((plain, behind)) = rest.split_once('[') {
            let (ranges, behind) = behind.split_once(']').expect("brackets match");
            begun.iter_mut().for_each(|name| name.push_str(plain));
            let numbers = numbers(list, ranges)?;
            if begun.len() * numbers.len() > NAMES_MAX {
                return Err(too_many(list));
            }
            begun = begun
                .iter()
                .flat_map(|name| numbers.iter().map(move |number| format!("{name}{number}")))
                .collect();
            rest = behind;
        }
        begun.iter_mut().for_each(|name| name.push_str(rest));
        *count += begun.len();
        if *count > NAMES_MAX {
            return Err(too_many(list));
        }
        names.extend(begun.into_iter().map(|text| Word {
            line: list.line,
            text,
        }));
    }
    Ok(names)
}

fn too_many(list: &Word) -> SiteError {
    list.wrong(format!(
        "is more than the {NAMES_MAX} names that a file may have"
    ))
}

/// The parts between the commas that are outside of brackets.
fn items(list: &Word) -> Result<Vec<&str>, SiteError> {
    let brackets = || list.wrong("has brackets that do not match; write n[0-3,7]");
    let (mut items, mut start, mut is_inside) = (Vec::new(), 0, false);
    for (at, character) in list.text.char_indices() {
        match (character, is_inside) {
            ('[', false) => is_inside = true,
            (']', true) => is_inside = false,
            ('[', true) | (']', false) => return Err(brackets()),
            (',', false) => {
                items.push(&list.text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if is_inside {
        return Err(brackets());
    }
    items.push(&list.text[start..]);
    match items.iter().any(|item| item.is_empty()) {
        true => Err(list.wrong("has a comma with no name beside it")),
        false => Ok(items),
    }
}

/// The numbers of `0-3,7`, written as wide as the first of each range.
fn numbers(list: &Word, ranges: &str) -> Result<Vec<String>, SiteError> {
    let mut numbers = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u32>().ok().filter(|_| is_number)
        };
        let (Some(low), Some(high)) = (number(first), number(last)) else {
            return Err(list.wrong(format!("has the range {range:?}; write n[0-3,7]")));
        };
        if high < low {
            return Err(list.wrong(format!("has the range {range}, which runs backwards")));
        }
        if (high - low) as usize >= NAMES_MAX - numbers.len().min(NAMES_MAX) {
            return Err(too_many(list));
        }
        let width = first.len();
        numbers.extend((low..=high).map(|number| format!("{number:0width$}")));
    }
    Ok(numbers)
}
