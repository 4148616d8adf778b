//! heat: the heat equation on a square plate with cold edges and a hot side, by explicit steps. The
//! rows are shared out among the ranks; before each step neighbours exchange their edge rows, and
//! the rows inside are computed meanwhile.
//!
//! Rank 0 gathers the plate and compares it, bit for bit, with a serial run.

use std::process::ExitCode;

use hearth::{Error, World};

const UP: u32 = 1;
const DOWN: u32 = 2;

/// One row of a step: each inner point moves a quarter of the way to its neighbours' mean.
fn step_row(above: &[f64], row: &[f64], below: &[f64], new: &mut [f64]) {
    new.copy_from_slice(row);
    for x in 1..row.len() - 1 {
        let around = (row[x - 1] + row[x + 1]) + (above[x] + below[x]);
        new[x] = row[x] + 0.25 * (0.25 * around - row[x]);
    }
}

/// The first row is hot, some points inside are warm.
fn start(row: usize, x: usize) -> f64 {
    match (row, row % 7, x % 5) {
        (0, ..) => 100.0,
        (_, 3, 2) => 20.0,
        _ => 0.0,
    }
}

/// Rows of a plate.
struct Plate {
    width: usize,
    points: Vec<f64>,
}

impl Plate {
    fn new(first: usize, rows: usize, width: usize) -> Self {
        let points = (0..rows * width).map(|at| start(first + at / width, at % width));
        Self {
            width,
            points: points.collect(),
        }
    }

    fn row(&self, row: usize) -> &[f64] {
        &self.points[row * self.width..][..self.width]
    }

    fn row_mut(&mut self, row: usize) -> &mut [f64] {
        &mut self.points[row * self.width..][..self.width]
    }
}

fn serial(height: usize, steps: usize) -> Plate {
    let mut old = Plate::new(0, height, height);
    let mut new = Plate::new(0, height, height);
    for _ in 0..steps {
        for row in 1..height - 1 {
            step_row(
                old.row(row - 1),
                old.row(row),
                old.row(row + 1),
                new.row_mut(row),
            );
        }
        std::mem::swap(&mut old, &mut new);
    }
    old
}

fn run(height: usize, steps: usize) -> Result<bool, Error> {
    let world = World::new()?;
    let (rank, size) = (world.rank(), world.size());
    let rows = height.div_ceil(size as usize);
    let height = rows * size as usize;
    let first = rows * rank as usize;
    let mut old = Plate::new(first, rows, height);
    let mut new = Plate::new(first, rows, height);
    let (mut above, mut below) = (vec![0.0; height], vec![0.0; height]);
    for _ in 0..steps {
        world.scope(|scope| {
            if rank > 0 {
                let _ = scope.receive(rank - 1, DOWN, &mut above)?;
                let _ = scope.send(rank - 1, UP, old.row(0))?;
            }
            if rank + 1 < size {
                let _ = scope.receive(rank + 1, UP, &mut below)?;
                let _ = scope.send(rank + 1, DOWN, old.row(rows - 1))?;
            }
            for row in 1..rows.max(1) - 1 {
                step_row(
                    old.row(row - 1),
                    old.row(row),
                    old.row(row + 1),
                    new.row_mut(row),
                );
            }
            Ok(())
        })?;
        for row in [0, rows - 1] {
            // The edges of the plate stay as they are.
            if first + row > 0 && first + row + 1 < height {
                let above = if row == 0 {
                    &above[..]
                } else {
                    old.row(row - 1)
                };
                let below = if row + 1 == rows {
                    &below[..]
                } else {
                    old.row(row + 1)
                };
                step_row(above, old.row(row), below, new.row_mut(row));
            }
        }
        std::mem::swap(&mut old, &mut new);
    }
    let mut all = match rank {
        0 => vec![0.0; height * height],
        _ => Vec::new(),
    };
    world.gather(0, &old.points, &mut all)?;
    if rank != 0 {
        return Ok(true);
    }
    let expected = serial(height, steps).points;
    if let Some(at) = (0..all.len()).find(|&at| all[at].to_bits() != expected[at].to_bits()) {
        println!(
            "heat: row {}, point {} is {}, serial {}",
            at / height,
            at % height,
            all[at],
            expected[at]
        );
        return Ok(false);
    }
    println!("heat: {size} ranks, {height} x {height} points, {steps} steps: ok");
    Ok(true)
}

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse());
    let (height, steps) = (
        numbers.next().unwrap_or(Ok(96)),
        numbers.next().unwrap_or(Ok(50)),
    );
    let (Ok(height), Ok(steps)) = (height, steps) else {
        eprintln!("usage: heat [ROWS [STEPS]]");
        return ExitCode::from(2);
    };
    match run(height, steps) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("heat: {error}");
            ExitCode::FAILURE
        }
    }
}
