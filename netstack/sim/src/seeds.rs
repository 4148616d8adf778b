//! Runs of one simulation with seeds one after the other, as every `--seed N --runs M` means.
//!
//! Invariant: a run that fails does not keep the others from being made.

/// Makes `runs` runs from seed `first` on; whether all passed. Of those that did not, what is wrong
/// is printed.
pub fn each_seed(first: u64, runs: u64, run: impl Fn(u64) -> Result<(), String>) -> bool {
    let mut passed = true;
    for seed in first..first.saturating_add(runs) {
        if let Err(what) = run(seed) {
            passed = false;
            eprintln!("{what}");
        }
    }
    passed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_seeds_run_although_one_fails() {
        let seen = std::cell::RefCell::new(Vec::new());
        let passed = each_seed(u64::MAX - 3, 3, |seed| {
            seen.borrow_mut().push(u64::MAX - seed);
            match seed == u64::MAX - 2 {
                true => Err("this one fails".into()),
                false => Ok(()),
            }
        });
        assert!(!passed);
        assert_eq!(*seen.borrow(), [3, 2, 1]);
        assert!(each_seed(0, 0, |_| Err("never".into())));
    }
}
