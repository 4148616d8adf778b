//! Every rank computes for some seconds and tells whoever watches how far it is: counter 0 is the
//! number of steps done so far, counter 1 the rank plus 100.

use std::time::{Duration, Instant};

hearth::counters!("steps", "rank plus 100");

fn main() -> Result<(), hearth::Error> {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(10));
    let world = hearth::World::new()?;
    world.count(1, i64::from(world.rank()) + 100)?;
    assert!(world.count(16, 0).is_err(), "there are sixteen counters");
    let (mut steps, mut sum) = (0, 0.0);
    while Instant::now() < end {
        sum += (1..200_000).map(|i| 1.0 / f64::from(i)).sum::<f64>();
        steps += 1;
        world.count(0, steps)?;
    }
    println!(
        "count: rank {} did {steps} steps, sum {sum:.3}: ok",
        world.rank()
    );
    Ok(())
}
