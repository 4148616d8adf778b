//! Reads what jobs and casts of an earlier run of control left in the program cache, once control
//! answers.
//!
//! Neighbours: `serve` has it done in a thread of its own; `jobs::unread` and `casts::resume` wait
//! for it.
//!
//! Invariant: the control state is not held while a file is read.

use std::sync::Arc;

use crate::control::Shared;

/// Reads all of it, one file after the other, what runs first.
pub fn run(shared: &Arc<Shared>) {
    let (jobs, casts) = {
        let core = shared.lock();
        (core.runner.unread(), core.casts.unread())
    };
    for job in jobs {
        if !shared.lock().runner.is_open(job.job) {
            continue;
        }
        let read = job.read(&shared.programs);
        let is_read = read.is_ok();
        shared.with_runner(|runner, now_us, fabric| {
            runner.files_read(now_us, fabric, job.job, read);
        });
        if is_read {
            job.make_page_hashes();
        }
    }
    for (cast, file) in casts {
        let is_sound = shared.programs.check(&file).is_ok();
        let described = is_sound.then(|| file.describe().ok()).flatten();
        let now = shared.now();
        let mut core = shared.lock();
        core.casts.file_read(now, cast, described);
        core.settle(now);
        drop(core);
        shared.kick();
    }
}
