//! ring: every rank sends to the next one and receives from the one before.
//!
//! First a token goes once around, and each rank adds its number; then all ranks shift blocks at
//! the same time, until each has its own back. What arrives is compared with what a serial run
//! would have made of it.

use std::process::ExitCode;

use hearth::{Error, World};

const TOKEN: u32 = 1;
const SHIFT: u32 = 2;

fn value(rank: u32, at: usize) -> u32 {
    rank.wrapping_mul(0x9e37_79b9) ^ at as u32
}

fn run(count: usize) -> Result<bool, Error> {
    let world = World::new()?;
    let (rank, size) = (world.rank(), world.size());
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);

    let mut token = [0_u64];
    if rank != 0 {
        world.receive(previous, TOKEN, &mut token)?;
    }
    token[0] += u64::from(rank);
    world.send(next, TOKEN, &token)?;
    if rank == 0 {
        world.receive(previous, TOKEN, &mut token)?;
        let sum = u64::from(size) * u64::from(size - 1) / 2;
        if token[0] != sum {
            println!("ring: the token came back as {}", token[0]);
            return Ok(false);
        }
    }

    let mut have: Vec<u32> = (0..count).map(|at| value(rank, at)).collect();
    let mut get = vec![0; count];
    for step in 1..=size {
        world.send_receive((next, &have), (previous, &mut get), SHIFT)?;
        let from = (rank + size - step) % size;
        if (0..count).any(|at| get[at] != value(from, at)) {
            println!(
                "ring: rank {rank} has another block than that of rank {from} after {step} steps"
            );
            return Ok(false);
        }
        std::mem::swap(&mut have, &mut get);
    }
    world.barrier()?;
    if rank == 0 {
        println!("ring: {size} ranks, {count} values shifted {size} times: ok");
    }
    Ok(true)
}

fn main() -> ExitCode {
    let count = std::env::args().nth(1).map(|text| text.parse());
    let Ok(count) = count.unwrap_or(Ok(5_000)) else {
        eprintln!("usage: ring [VALUES]");
        return ExitCode::from(2);
    };
    match run(count) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("ring: {error}");
            ExitCode::FAILURE
        }
    }
}
