//! transpose: a square matrix, its rows shared out among the ranks, is transposed by one all-to-all
//! exchange of blocks.
//!
//! Each element is compared with that of a serial transposition. The order of the matrix is rounded
//! up to a multiple of the ranks.

use std::process::ExitCode;

use hearth::{Combine, Error, World};

fn element(row: usize, column: usize) -> f64 {
    row as f64 * 1e4 + column as f64 + 0.25
}

fn run(order: usize) -> Result<bool, Error> {
    let world = World::new()?;
    let (rank, size) = (world.rank() as usize, world.size() as usize);
    let rows = order.div_ceil(size);
    let order = rows * size;
    let first = rank * rows;
    // The block for each rank, transposed: what is a column there is a row here.
    let mut send = Vec::with_capacity(rows * order);
    for to in 0..size {
        for column in 0..rows {
            send.extend((0..rows).map(|row| element(first + row, to * rows + column)));
        }
    }
    let mut receive = vec![0.0; send.len()];
    let began = world.seconds();
    world.all_to_all(&send, &mut receive)?;
    let mut took = [world.seconds() - began];
    for (from, block) in receive.chunks(rows * rows).enumerate() {
        for (row, values) in block.chunks(rows).enumerate() {
            for (column, &found) in values.iter().enumerate() {
                if found != element(from * rows + column, first + row) {
                    println!(
                        "transpose: row {}, column {} is {found}",
                        first + row,
                        from * rows + column
                    );
                    return Ok(false);
                }
            }
        }
    }
    world.all_reduce(Combine::Maximum, &mut took)?;
    if rank == 0 {
        println!(
            "transpose: {size} ranks, order {order}, exchange in {:.3} s: ok",
            took[0]
        );
    }
    Ok(true)
}

fn main() -> ExitCode {
    let order = std::env::args().nth(1).map(|text| text.parse());
    let Ok(order) = order.unwrap_or(Ok(256)) else {
        eprintln!("usage: transpose [ORDER]");
        return ExitCode::from(2);
    };
    match run(order) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("transpose: {error}");
            ExitCode::FAILURE
        }
    }
}
