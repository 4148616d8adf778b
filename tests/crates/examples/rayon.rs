//! rayon: a pool of threads that steal each other's work, with a thread for each core: sums, sorts
//! and joins, panics that reach who waits, a second pool with more threads than cores. The last
//! line is "rayon: ok".

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

fn fibonacci(n: u64) -> u64 {
    match n {
        0 | 1 => n,
        _ => {
            let (one, other) = rayon::join(|| fibonacci(n - 1), || fibonacci(n - 2));
            one + other
        }
    }
}

fn work() {
    let sum: u64 = (0..200_000_u64).into_par_iter().map(|n| n * n % 7).sum();
    assert_eq!(sum, (0..200_000_u64).map(|n| n * n % 7).sum());
    let mut numbers: Vec<u64> = (0..50_000).map(|n| n * 6_364_136_223 % 1_000_003).collect();
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    numbers.par_sort();
    assert_eq!(numbers, sorted);
    assert_eq!(fibonacci(16), 987);
    let done = AtomicUsize::new(0);
    rayon::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|_| {
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(done.into_inner(), 100);
}

fn main() {
    let cores = std::thread::available_parallelism()
        .expect("it is known")
        .get();
    assert_eq!(rayon::current_num_threads(), cores);
    work();
    let more = rayon::ThreadPoolBuilder::new().num_threads(2 * cores + 1);
    let more = more.build().expect("threads");
    more.install(work);
    let caught = std::panic::catch_unwind(|| {
        let half = |n: u64| assert!(n != 777, "as it should");
        (0..1000_u64).into_par_iter().for_each(half);
    });
    assert!(caught.is_err());
    println!("rayon: ok");
}
