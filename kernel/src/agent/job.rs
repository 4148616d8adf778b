//! One job on this node, from launch to the exit reports of its ranks.
//!
//! Neighbours: `agent::node` brings commands and completions, `process` loads and runs.
//! The rules for answers are those of `netstack::job`: every launch is answered once, and each rank
//! of a job whose launch succeeded ends with exactly one exit call.
//!
//! Invariant: when [`serve`] returns, what the ranks had is given back and scrubbed, or is warm.

use alloc::boxed::Box;
use alloc::string::ToString;

use netstack::ids::{JobId, LocalRank};
use netstack::io::{ExitStatus, IoOp, MAX_CALL_DATA, SubmitError};
use netstack::job::{LaunchRefusal, LaunchSpec, RefusalCode, StartMode};
use netstack::node::Endpoint;
use netstack::time::Instant;

use super::node::Node;
use crate::process::services::{NodeServices, Ranks};
use crate::process::{self, Exit, Launch};
use crate::time;

/// Loads, runs and reports the ranks of a job that this node has. Nothing is logged before the
/// first instruction of one that starts at once: the serial port would take longer than the launch.
/// Its frame is one of its own, so that the caller can clear it.
#[inline(never)]
pub fn serve(node: &mut Node, launch: &Launch) {
    let spec = &launch.spec;
    node.open_job(spec);
    match process::prepare(launch, node) {
        Err(refusal) => refuse(node, spec.job, refusal),
        Ok(prepared) => {
            node.endpoint().launch_result(time::now(), spec.job, Ok(()));
            if starts(node, spec) {
                node.set_entered(true);
                prepared.run(node, &|local, services, exit| {
                    if spec.start == StartMode::AtOnce {
                        log_launch(spec, local);
                    }
                    report_exit(services, spec, local, exit);
                });
                node.set_entered(false);
            } else {
                let signal = node.rank(LocalRank::FIRST).cancelled().unwrap_or_default();
                prepared.abandon(node, signal, &|local, services, exit| {
                    report_exit(services, spec, local, exit);
                });
            }
        }
    }
    node.close_job();
}

fn log_launch(spec: &LaunchSpec, local: LocalRank) {
    let rank = spec.rank.plus(local);
    info!("agent", "job {}: rank {rank} of {}", spec.job, spec.size);
}

/// Waits until the program may start; returns whether it may. Control hears of a start at once
/// before ring 3 is entered: a program that computes lets nobody send.
fn starts(node: &mut Node, spec: &LaunchSpec) -> bool {
    match spec.start {
        StartMode::AtOnce => {
            node.send_due();
            node.cancel().is_none()
        }
        StartMode::OnCommand => {
            LocalRank::first(spec.ranks).for_each(|local| log_launch(spec, local));
            await_start(node)
        }
    }
}

/// Waits for start or cancel, at idle; the control node may take its time, for the slowest node of
/// the job, and a lost control node comes back with one or the other. Returns whether to start.
fn await_start(node: &mut Node) -> bool {
    loop {
        if node.cancel().is_some() {
            return false;
        }
        if node.started() {
            return true;
        }
        node.wait(Instant::FAR_FUTURE);
    }
}

fn refuse(node: &mut Node, job: JobId, refusal: LaunchRefusal) {
    if node.cancel().is_some() {
        refuse_cancelled(node.endpoint(), job);
        return;
    }
    info!("agent", "job {job}: refused: {}", refusal.text);
    node.endpoint()
        .launch_result(time::now(), job, Err(refusal));
}

/// Answers the launch of a job that was cancelled before it was loaded.
pub fn refuse_cancelled(endpoint: &mut Endpoint, job: JobId) {
    let refusal = LaunchRefusal {
        code: RefusalCode::Cancelled,
        text: "cancelled".to_string(),
    };
    endpoint.launch_result(time::now(), job, Err(refusal));
}

/// Queues the failure text in pieces and the exit report of a rank behind all its output. The
/// endpoint delivers them while the node goes on.
fn report_exit(services: &mut dyn NodeServices, spec: &LaunchSpec, local: LocalRank, exit: Exit) {
    let status = exit.report.status;
    match spec.ranks {
        1 => info!("agent", "job {}: ended: {status:?}", spec.job),
        _ => info!(
            "agent",
            "job {}: rank {} ended: {status:?}",
            spec.job,
            spec.rank.plus(local)
        ),
    }
    // What a handler does wrong in the time that a cancel gives is told.
    let is_wanted = matches!(status, ExitStatus::Signal(signal) if services.is_by_cancel(signal));
    let text = exit.text.filter(|_| !is_wanted).unwrap_or_default();
    for (index, piece) in text.as_bytes().chunks(MAX_CALL_DATA).enumerate() {
        let op = IoOp::Report {
            offset: (index * MAX_CALL_DATA) as u32,
            data: piece.to_vec(),
        };
        submit(services, op);
    }
    submit(services, IoOp::Exit(Box::new(exit.report)));
}

/// Submits a call, waiting for room behind output that the control node has not taken yet.
fn submit(services: &mut dyn NodeServices, op: IoOp) {
    loop {
        match services.io_submit(op.clone()) {
            Err(SubmitError::Full) => services.wait(Instant::FAR_FUTURE),
            // The control node has dropped the job: nobody is left to tell.
            Err(SubmitError::UnknownJob) => return,
            Err(error @ (SubmitError::TooLarge | SubmitError::AfterExit)) => {
                panic!("reporting the end of a job: {error:?}")
            }
            Ok(_) => return,
        }
    }
}
