//! join: the equi-join of two relations that are spread over the ranks in no order. Each rank sends
//! every tuple to the rank that its key belongs to (a repartition: an all-to-all exchange with
//! blocks of any length), then joins what it has.
//!
//! The number of pairs and a sum over them are compared with those of a serial join of the whole
//! relations.

use std::collections::HashMap;
use std::process::ExitCode;

use hearth::{Combine, Error, World};

/// Key and value.
type Tuple = [u32; 2];

fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Tuple `at` of relation `which` on a rank; small keys are frequent.
fn tuple(which: u64, rank: u32, at: usize, keys: u32) -> Tuple {
    let draw = mix(which << 60 ^ u64::from(rank) << 40 ^ at as u64);
    let limit = if draw & 1 == 1 { keys } else { keys / 8 + 1 };
    [(draw >> 1) as u32 % limit, (draw >> 33) as u32]
}

fn owner(key: u32, size: u32) -> u32 {
    (mix(key.into()) % u64::from(size)) as u32
}

/// The number of pairs and a sum over them.
fn join(r: &[Tuple], s: &[Tuple]) -> [u64; 2] {
    let mut table: HashMap<u32, Vec<u32>> = HashMap::new();
    for &[key, value] in r {
        table.entry(key).or_default().push(value);
    }
    let mut result = [0, 0_u64];
    for [key, value] in s {
        for partner in table.get(key).into_iter().flatten() {
            result[0] += 1;
            let pair = u64::from(*partner) << 32 | u64::from(*value);
            result[1] = result[1].wrapping_add(mix(pair));
        }
    }
    result
}

/// Sends every tuple to its owner; gives those that this rank owns.
fn repartition(world: World, mine: &[Tuple]) -> Result<Vec<Tuple>, Error> {
    let size = world.size();
    let mut buckets = vec![Vec::new(); size as usize];
    for &tuple in mine {
        buckets[owner(tuple[0], size) as usize].push(tuple);
    }
    let to: Vec<usize> = buckets.iter().map(Vec::len).collect();
    let mut from = vec![0; to.len()];
    world.all_to_all(&to, &mut from)?;
    let mut received = vec![[0; 2]; from.iter().sum()];
    world.all_to_all_v(&buckets.concat(), &to, &mut received, &from)?;
    Ok(received)
}

fn run(tuples: usize) -> Result<bool, Error> {
    let world = World::new()?;
    let (rank, size) = (world.rank(), world.size());
    let keys = tuples as u32 * 2 + 1;
    let part = |which: u64, rank: u32| (0..tuples).map(move |at| tuple(which, rank, at, keys));
    let r = repartition(world, &part(0, rank).collect::<Vec<_>>())?;
    let s = repartition(world, &part(1, rank).collect::<Vec<_>>())?;
    if r.iter()
        .chain(&s)
        .any(|tuple| owner(tuple[0], size) != rank)
    {
        println!("join: rank {rank} got a tuple of another rank");
        return Ok(false);
    }
    let mut result = join(&r, &s);
    world.reduce(Combine::Sum, 0, &mut result)?;
    if rank != 0 {
        return Ok(true);
    }
    let whole = |which: u64| {
        (0..size)
            .flat_map(|rank| part(which, rank))
            .collect::<Vec<_>>()
    };
    let serial = join(&whole(0), &whole(1));
    if result != serial {
        println!("join: {result:?}, serial {serial:?}");
        return Ok(false);
    }
    println!(
        "join: {size} ranks, {tuples} tuples each, {} pairs: ok",
        result[0]
    );
    Ok(true)
}

fn main() -> ExitCode {
    let tuples = std::env::args().nth(1).map(|text| text.parse());
    let Ok(tuples) = tuples.unwrap_or(Ok(2_000)) else {
        eprintln!("usage: join [TUPLES]");
        return ExitCode::from(2);
    };
    match run(tuples) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("join: {error}");
            ExitCode::FAILURE
        }
    }
}
