//! Names that somebody may have meant.
//!
//! Key functions: [`did_you_mean`], [`quoted`]. Neighbours: whoever refuses a name of a known list:
//! metrics, filters, streams.
//!
//! Invariants: at most [`NEAR_MAX`] names; none, rather than one that is far. What somebody wrote
//! costs and is repeated as [`WORD_MAX`] characters at most: requests have words as long as their
//! bodies.

/// Characters of the longest word that can be near a name.
const WORD_MAX: usize = 64;
/// Most names that are offered.
const NEAR_MAX: usize = 3;
/// Names are near from this share of equal letters on.
const NEAR: f64 = 0.7;
/// Shorter words are part of too many names.
const PART_LEAST: usize = 3;

/// How near a name is to the word that was given: 1 is the same. The first word of a name, which
/// all of a family have, may be left out. A word that is a part of a name counts as near, and the
/// more of it, the nearer.
fn nearness(word: &str, name: &str) -> f64 {
    let whole = strsim::normalized_damerau_levenshtein(word, name);
    let rest = name.split_once('_').map_or(name, |(_, rest)| rest);
    let alike = whole.max(strsim::normalized_damerau_levenshtein(word, rest));
    let part = word.len() >= PART_LEAST && name.contains(word);
    match part {
        true => alike.max(NEAR + (1.0 - NEAR) * word.len() as f64 / name.len() as f64),
        false => alike,
    }
}

/// What somebody wrote, in quotes, for an error that repeats it; of a long word the first
/// characters.
pub fn quoted(word: &str) -> String {
    match word.char_indices().nth(WORD_MAX) {
        None => format!("{word:?}"),
        Some((end, _)) => format!("{:?}...", &word[..end]),
    }
}

/// ` (did you mean this, that or another?)`, or nothing.
pub fn did_you_mean<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> String {
    // The time that it takes grows with the length of the word.
    if word.char_indices().nth(WORD_MAX).is_some() {
        return String::new();
    }
    let lower = word.to_lowercase();
    let mut near: Vec<(f64, &str)> = names
        .map(|name| (nearness(&lower, name), name))
        .filter(|(nearness, _)| *nearness >= NEAR)
        .collect();
    near.sort_by(|(one, name), (other, other_name)| {
        other.total_cmp(one).then(name.cmp(other_name))
    });
    near.truncate(NEAR_MAX);
    let names: Vec<&str> = near.into_iter().map(|(_, name)| name).collect();
    match &names[..] {
        [] => String::new(),
        [name] => format!(" (did you mean {name}?)"),
        [names @ .., last] => format!(" (did you mean {} or {last}?)", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_near_is_offered_and_what_is_far_is_not() {
        let names = [
            "sum",
            "histogram",
            "memory_used_bytes",
            "memory_free_bytes",
            "memory",
        ];
        let near = |word| did_you_mean(word, names.into_iter());
        assert_eq!(near("histgoram"), " (did you mean histogram?)");
        assert_eq!(near("SUM"), " (did you mean sum?)");
        assert_eq!(
            near("memory"),
            " (did you mean memory, memory_free_bytes or memory_used_bytes?)"
        );
        assert_eq!(near("free_bites"), " (did you mean memory_free_bytes?)");
        for far in ["", "um", "mean", "something else"] {
            assert_eq!(near(far), "", "{far}");
        }
    }
    #[test]
    fn a_long_word_is_near_nothing_and_is_repeated_in_part() {
        let name = "n".repeat(WORD_MAX + 1);
        assert_eq!(did_you_mean(&name, [&name[..]].into_iter()), "");
        assert!(did_you_mean(&name[1..], [&name[..]].into_iter()).contains("did you mean"));
        assert_eq!(quoted("s\"m"), r#""s\"m""#);
        assert_eq!(quoted(&name[1..]), format!("{:?}", &name[1..]));
        // Cut between characters, whatever their length.
        let long = quoted(&"\u{fffd}".repeat(300_000));
        assert_eq!(long, format!("\"{}\"...", "\u{fffd}".repeat(WORD_MAX)));
    }
}
