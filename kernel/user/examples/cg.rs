//! cg: conjugate gradients for the five-point Laplacian on a square grid. The rows of the grid are
//! shared out among the ranks; each product with the matrix needs the neighbours' edge rows, and
//! each dot product an all-reduce.
//!
//! The solution is compared with that of a serial run, and put into the equations.

use std::process::ExitCode;

use hearth::{Combine, Error, World};

const UP: u32 = 1;
const DOWN: u32 = 2;
/// The residual shall become this part of what it was.
const LIMIT: f64 = 1e-10;
const STEPS_MAX: usize = 2_000;

/// Some rows of the grid.
struct Part {
    rows: usize,
    width: usize,
    /// Whom to ask for the other rows; nobody when all are here.
    world: Option<World>,
}

impl Part {
    /// The edge rows of the neighbours: zeros outside the grid.
    fn edges(&self, p: &[f64]) -> Result<[Vec<f64>; 2], Error> {
        let width = self.width;
        let (mut above, mut below) = (vec![0.0; width], vec![0.0; width]);
        if let Some(world) = self.world {
            let (rank, last) = (world.rank(), world.size() - 1);
            world.scope(|scope| {
                if rank > 0 {
                    let _ = scope.receive(rank - 1, DOWN, &mut above)?;
                    let _ = scope.send(rank - 1, UP, &p[..width])?;
                }
                if rank < last {
                    let _ = scope.receive(rank + 1, UP, &mut below)?;
                    let _ = scope.send(rank + 1, DOWN, &p[p.len() - width..])?;
                }
                Ok(())
            })?;
        }
        Ok([above, below])
    }

    fn multiply(&self, p: &[f64], q: &mut [f64]) -> Result<(), Error> {
        let width = self.width;
        let [above, below] = self.edges(p)?;
        for row in 0..self.rows {
            for x in 0..width {
                let at = row * width + x;
                let up = if row == 0 { above[x] } else { p[at - width] };
                let down = if row + 1 == self.rows {
                    below[x]
                } else {
                    p[at + width]
                };
                let left = if x == 0 { 0.0 } else { p[at - 1] };
                let right = if x + 1 == width { 0.0 } else { p[at + 1] };
                q[at] = 4.0 * p[at] - (up + down + (left + right));
            }
        }
        Ok(())
    }

    fn dot(&self, a: &[f64], b: &[f64]) -> Result<f64, Error> {
        let mut sum = [a.iter().zip(b).map(|(a, b)| a * b).sum()];
        if let Some(world) = self.world {
            world.all_reduce(Combine::Sum, &mut sum)?;
        }
        Ok(sum[0])
    }

    /// Solves A x = b: the solution and the number of steps.
    fn solve(&self, b: &[f64]) -> Result<(Vec<f64>, usize), Error> {
        let (mut r, mut p) = (b.to_vec(), b.to_vec());
        let (mut x, mut q) = (vec![0.0; b.len()], vec![0.0; b.len()]);
        let mut rr = self.dot(&r, &r)?;
        let enough = LIMIT * LIMIT * rr;
        let mut steps = 0;
        while rr > enough && steps < STEPS_MAX {
            self.multiply(&p, &mut q)?;
            let alpha = rr / self.dot(&p, &q)?;
            for at in 0..b.len() {
                x[at] += alpha * p[at];
                r[at] -= alpha * q[at];
            }
            let next = self.dot(&r, &r)?;
            let beta = next / rr;
            rr = next;
            for (p, r) in p.iter_mut().zip(&r) {
                *p = r + beta * *p;
            }
            steps += 1;
        }
        Ok((x, steps))
    }
}

fn source(row: usize, x: usize) -> f64 {
    ((row * 31 + x * 17) % 23) as f64 - 11.0
}

fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.map(f64::abs).fold(0.0, f64::max)
}

fn run(height: usize) -> Result<bool, Error> {
    let world = World::new()?;
    let (rank, size) = (world.rank() as usize, world.size() as usize);
    let rows = height.div_ceil(size);
    let height = rows * size;
    let part = |rows: usize, world: Option<World>| Part {
        rows,
        width: height,
        world,
    };
    let right = |first: usize, rows: usize| -> Vec<f64> {
        let all = (0..rows * height).map(|at| source(first + at / height, at % height));
        all.collect()
    };
    let mine = part(rows, Some(world));
    let b = right(rank * rows, rows);
    let (x, steps) = mine.solve(&b)?;
    let mut product = vec![0.0; x.len()];
    mine.multiply(&x, &mut product)?;
    let mut worst = [largest(product.iter().zip(&b).map(|(a, b)| a - b))];
    world.all_reduce(Combine::Maximum, &mut worst)?;
    let mut all = match rank {
        0 => vec![0.0; height * height],
        _ => Vec::new(),
    };
    world.gather(0, &x, &mut all)?;
    if rank != 0 {
        return Ok(true);
    }
    let (serial, serial_steps) = part(height, None).solve(&right(0, height))?;
    let off = largest(all.iter().zip(&serial).map(|(a, b)| a - b));
    let most = largest(serial.iter().copied());
    // Sums are taken in another order: the last bits differ, and a step more or less may be needed.
    let good = worst[0] < 1e-6 && off < 1e-7 * most && steps.abs_diff(serial_steps) <= 2;
    match good {
        true => println!(
            "cg: {size} ranks, {height} x {height} unknowns, {steps} steps, serial {serial_steps}: ok"
        ),
        false => println!(
            "cg: residual {}, off by {off} of {most}, {steps} steps, serial {serial_steps}",
            worst[0]
        ),
    }
    Ok(good)
}

fn main() -> ExitCode {
    let height = std::env::args().nth(1).map(|text| text.parse());
    let Ok(height) = height.unwrap_or(Ok(32)) else {
        eprintln!("usage: cg [ROWS]");
        return ExitCode::from(2);
    };
    match run(height) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cg: {error}");
            ExitCode::FAILURE
        }
    }
}
