//! The order of the kernel's modules: each uses only those below it, so that there is no circle.
//!
//! Key constant: [`LAYERS`]. Neighbours: [`super::sources`] reads the files;
//! [`super::dependencies`] has the same for crates.
//!
//! Invariant: a module of the kernel is in the list, or a rule is broken.

use super::tokens::code_only;

/// Modules of the kernel from the lowest up. Its tests, and `main`, may use all of them.
const LAYERS: [&str; 15] = [
    "arch", "shipping", "mm", "time", "smp", "boot", "drivers", "console", "net", "exchange",
    "monitor", "platform", "process", "agent", "panic",
];
const ROOT: &str = "kernel/src/";
/// What may use everything.
const ABOVE: [&str; 2] = ["main", "ktest"];

/// The rule.
pub const TEXT: &str = "modules of the kernel use only those below them (`LAYERS`): move what \
                        both need down, or have the upper one pass it in";

/// Where a source of the kernel uses a module that is not below its own.
pub fn violations(path: &str, text: &str) -> Vec<String> {
    let Some(inside) = path.strip_prefix(ROOT) else {
        return Vec::new();
    };
    let module = inside.split(['/', '.']).next().unwrap_or_default();
    if ABOVE.contains(&module) {
        return Vec::new();
    }
    let place = |module: &str| LAYERS.iter().position(|layer| *layer == module);
    let Some(own) = place(module) else {
        return vec![format!("{path}: `{module}` is not in the list of layers")];
    };
    let mut found: Vec<_> = used(&code_only(text))
        .into_iter()
        .filter(|used| place(used).is_some_and(|place| place > own) || used == "ktest")
        .map(|used| format!("{path} uses `{used}`"))
        .collect();
    found.dedup();
    found
}

/// First words of paths that begin with `crate::`, in groups too.
fn used(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    for rest in code.split("crate::").skip(1) {
        if let Some(group) = rest.strip_prefix('{') {
            let (mut depth, mut word) = (0, String::new());
            for character in group.chars() {
                match character {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    _ => {}
                }
                match character {
                    ',' if depth == 0 => names.push(first_word(&std::mem::take(&mut word))),
                    _ => word.push(character),
                }
            }
            names.push(first_word(&word));
        } else {
            names.push(first_word(rest));
        }
    }
    names
}

fn first_word(path: &str) -> String {
    let is_word = |character: &char| character.is_alphanumeric() || *character == '_';
    path.trim_start().chars().take_while(is_word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_uses_what_is_above_is_named() {
        let up = "use crate::mm;\nuse crate::agent::cast;\n// crate::panic\n";
        let broken = violations("kernel/src/process/image.rs", up);
        assert_eq!(broken, ["kernel/src/process/image.rs uses `agent`"]);
        let group = "use crate::{\n    mm::{self, agent},\n    process::turn,\n    time};";
        let broken = violations("kernel/src/time.rs", group);
        assert_eq!(
            broken,
            ["kernel/src/time.rs uses `process`"],
            "what is inside a module does not count"
        );
        assert!(violations("kernel/src/agent/mod.rs", group).is_empty());
        assert!(violations("kernel/src/ktest/mod.rs", up).is_empty());
        assert!(violations("netstack/src/node.rs", up).is_empty());
        assert_eq!(violations("kernel/src/new/mod.rs", "").len(), 1);
    }
}
