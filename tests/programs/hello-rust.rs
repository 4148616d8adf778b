// hello-rust: a static-PIE program (rustc's default for a static target), with heap and a
// thread-local.
use std::cell::Cell;
use std::collections::BTreeMap;

thread_local!(static CALLS: Cell<u32> = const { Cell::new(0) });

fn main() {
    let vars: BTreeMap<String, String> = std::env::vars().collect();
    CALLS.with(|c| c.set(c.get() + 1));
    let get = |k: &str| vars.get(k).cloned().unwrap_or_else(|| "?".into());
    println!("hello from hello-rust, rank {} of {}", get("HEARTH_RANK"), get("HEARTH_SIZE"));
    assert_eq!(CALLS.with(Cell::get), 1);
}
