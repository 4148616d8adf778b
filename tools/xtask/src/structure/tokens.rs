//! Rust source without what is not code: comments and literals.
//!
//! Key function: [`code_only`]. Neighbours: [`super::sources`] looks for words in its result.
//!
//! Invariant: lines keep their numbers.

/// Replaces comments and the contents of string and character literals by nothing, keeping line
/// ends. Knows line and (nested) block comments, strings with escapes, raw strings of any number
/// of `#`, characters and lifetimes.
pub fn code_only(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut code = String::with_capacity(source.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let rest = &bytes[at..];
        let skip = if rest.starts_with(b"//") {
            rest.iter()
                .position(|&byte| byte == b'\n')
                .unwrap_or(rest.len())
        } else if rest.starts_with(b"/*") {
            block_comment(rest)
        } else if byte == b'"' {
            string(rest)
        } else if is_raw_string(bytes, at) {
            raw_string(rest)
        } else if byte == b'\'' {
            character(rest)
        } else {
            0
        };
        if skip == 0 {
            code.push(if byte.is_ascii() {
                char::from(byte)
            } else {
                ' '
            });
            at += 1;
        } else {
            let skipped = &rest[..skip];
            code.extend(skipped.iter().filter(|&&byte| byte == b'\n').map(|_| '\n'));
            at += skip;
        }
    }
    code
}

fn block_comment(rest: &[u8]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

fn string(rest: &[u8]) -> usize {
    let mut at = 1;
    while let Some(&byte) = rest.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// `r"`, `r#"`, `br"` and so on, and not the end of a longer word.
fn is_raw_string(bytes: &[u8], at: usize) -> bool {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let before = at.checked_sub(1).and_then(|before| bytes.get(before));
    if bytes[at] != b'r' || before.is_some_and(|byte| is_word(byte) && *byte != b'b') {
        return false;
    }
    let hashes = bytes[at + 1..]
        .iter()
        .take_while(|&&byte| byte == b'#')
        .count();
    bytes.get(at + 1 + hashes) == Some(&b'"')
}

fn raw_string(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|&&byte| byte == b'#').count();
    let mut end = vec![b'"'];
    end.resize(hashes + 1, b'#');
    let body = hashes + 2;
    rest[body..]
        .windows(end.len())
        .position(|window| window == end)
        .map_or(rest.len(), |found| body + found + end.len())
}

/// A character literal; a lifetime (`'a` without a closing quote) skips nothing.
fn character(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        let end = rest.iter().skip(3).position(|&byte| byte == b'\'');
        return end.map_or(0, |end| end + 4);
    }
    // One character of up to four bytes.
    (2..=5)
        .find(|&end| rest.get(end) == Some(&b'\''))
        .map_or(0, |end| {
            let text = std::str::from_utf8(&rest[1..end]);
            if text.is_ok_and(|text| text.chars().count() == 1) {
                end + 1
            } else {
                0
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_go_and_lines_stay() {
        let source = "a // unsafe\n/* unsafe\n /* nested */ unsafe */ b\nc \"unsafe \\\" \n\" d";
        let code = code_only(source);
        assert!(!code.contains("unsafe"));
        assert_eq!(code.lines().count(), source.lines().count());
        assert!(["a", "b", "c", "d"].iter().all(|word| code.contains(word)));
    }

    #[test]
    fn raw_strings_characters_and_lifetimes_are_told_apart() {
        assert_eq!(code_only("r#\"unsafe \" \"# x").trim(), "x");
        assert_eq!(code_only("br\"unsafe\" x").trim(), "b x");
        assert_eq!(code_only("'\"' unsafe '\\'' x"), " unsafe  x");
        assert_eq!(code_only("fn f<'a>(x: &'a str)"), "fn f<'a>(x: &'a str)");
        assert_eq!(code_only("var\"x\""), "var");
    }
}
