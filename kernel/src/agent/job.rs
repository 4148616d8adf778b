//! One job on this node, from launch to exit report.
//!
//! Neighbours: `agent::node` brings commands and completions, `process` loads and runs.
//! The rules for answers are those of `netstack::job`: every launch is answered once, and a job
//! whose launch succeeded ends with exactly one exit call.
//!
//! Invariant: when [`serve`] returns, what the program had is given back and scrubbed, or is warm.

use alloc::boxed::Box;
use alloc::string::{String, ToString};

use netstack::ids::JobId;
use netstack::io::{ExitReport, ExitStatus, IoOp, MAX_CALL_DATA, SubmitError};
use netstack::job::{LaunchRefusal, LaunchSpec, RefusalCode, StartMode};
use netstack::node::Endpoint;
use netstack::time::Instant;

use super::mailbox::SIGKILL;
use super::node::Node;
use super::services::NodeServices;
use crate::process::{self, Launch};
use crate::time;

/// Loads, runs and reports a program. Nothing is logged before the first instruction of one that
/// starts at once: the serial port would take longer than the launch. Its frame is one of its own,
/// so that the caller can clear it.
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
                let exit = prepared.run(node);
                node.set_entered(false);
                if spec.start == StartMode::AtOnce {
                    log_launch(spec);
                }
                let text = exit.text.filter(|_| !is_wanted(node, exit.report.status));
                report(node, exit.report, text.as_deref());
            } else {
                let signal = node.cancelled().unwrap_or_default();
                let cost = prepared.abandon(node, signal);
                report(node, cost, None);
            }
        }
    }
    node.close_job();
}

/// Whether a cancel has ended the program, by its signal or after its grace: who wanted that does
/// not ask where the program was then. What its handler does wrong meanwhile is told.
fn is_wanted(node: &Node, status: ExitStatus) -> bool {
    let of_cancel = |signal| {
        node.cancel()
            .is_some_and(|cancel| [cancel.signal, SIGKILL].contains(&signal))
    };
    matches!(status, ExitStatus::Signal(signal) if of_cancel(signal))
}

fn log_launch(spec: &LaunchSpec) {
    info!(
        "agent",
        "job {}: rank {} of {}", spec.job, spec.rank, spec.size
    );
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
            log_launch(spec);
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

/// Queues the failure text in pieces and the exit report behind all output of the job. The
/// endpoint delivers them while the node goes on.
fn report(node: &mut Node, report: ExitReport, text: Option<&str>) {
    let job = node.job();
    info!("agent", "job {job}: ended: {:?}", report.status);
    let text = text.map(String::from).unwrap_or_default();
    for (index, piece) in text.as_bytes().chunks(MAX_CALL_DATA).enumerate() {
        let op = IoOp::Report {
            offset: (index * MAX_CALL_DATA) as u32,
            data: piece.to_vec(),
        };
        submit(node, op);
    }
    submit(node, IoOp::Exit(Box::new(report)));
}

/// Submits a call, waiting for room behind output that the control node has not taken yet.
fn submit(node: &mut Node, op: IoOp) {
    loop {
        match node.io_submit(op.clone()) {
            Err(SubmitError::Full) => node.wait(Instant::FAR_FUTURE),
            // The control node has dropped the job: nobody is left to tell.
            Err(SubmitError::UnknownJob) => return,
            Err(error @ (SubmitError::TooLarge | SubmitError::AfterExit)) => {
                panic!("reporting the end of a job: {error:?}")
            }
            Ok(_) => return,
        }
    }
}
