//! Translation between the protocol endpoint and the job runner: what nodes report becomes calls
//! of the runner and events for people; what the runner wants becomes protocol commands.
//!
//! Key types: [`EndpointFabric`] (the runner's `Fabric` over the endpoint), [`handle`].
//! Neighbours: `control` (drains the endpoint), `jobs`.
//!
//! Invariant: every event of the endpoint is handled here, each kind in one place.

use netstack::broadcast::Peer;
use netstack::control::{Endpoint, Event as Reported, LostReason, NodeStatus};
use netstack::ids::{CallId, JobId, NodeId, ProgramId, Rank};
use netstack::io::{ExitReport, ExitStatus, IoOp, IoReply};
use netstack::job::{AdoptedRank, JobSpec, LaunchError, PlaceSpec, RankLoss, RefusalCode};
use netstack::join::Refusal;
use netstack::page::{Object, PageError, PageReply, PageWanted};
use netstack::retention::Retention;
use netstack::time::{Instant, Micros};
use netstack::vitals;

use crate::api::types::{
    CastCounts, FaultCounts, InterruptCounts, IoPart, LoadReport, PageCounts, RankEnd, RankReport,
    RetainedCounts, SentCounts, UnknownCall, WireCounts,
};
use hearth_store::NodeRow;

use crate::casts::Casts;
use crate::casts::coming::Departure;
use crate::casts::for_jobs::{Brought, JobFile, ProgramCast};
use crate::control::{Core, Joined};
use crate::drops;
use crate::events::{Event, Severity};
use crate::io_service::IoServices;
use crate::jobs::allocator::WarmNodes;
use crate::jobs::attempt;
use crate::jobs::fabric::{Call, EndBy, Exit, Fabric, Launch, Reply};
use crate::jobs::lifecycle::Blame;
use crate::jobs::record::Cause;
use crate::outgoing::{LastReply, Outgoing};
use crate::programs::{NoList, short_id};
use crate::warm;

/// Bytes of a page, in which nodes count what they hold.
const PAGE_BYTES: u64 = 4096;

/// The nodes, reached through the endpoint.
pub struct EndpointFabric<'a> {
    /// The endpoint.
    pub endpoint: &'a mut Endpoint,
    /// Which node holds what.
    pub warm: &'a warm::Index,
    /// What goes to many nodes at once.
    pub casts: &'a mut Casts,
    /// Files of jobs.
    pub io_services: &'a mut IoServices,
    /// What leaves once it is written down.
    pub outgoing: &'a mut Outgoing,
    /// The time at which things are said.
    pub now: Instant,
}

impl EndpointFabric<'_> {
    /// So many percent of the memory of the smallest of `nodes`, in pages; 0 stays 0.
    fn limit_pages(&self, nodes: &[NodeId], percent: u8) -> u32 {
        let memory = nodes
            .iter()
            .filter_map(|node| Some(self.endpoint.node(*node)?.memory_bytes));
        let pages = memory.min().unwrap_or(0) / 100 * u64::from(percent) / PAGE_BYTES;
        u32::try_from(pages).unwrap_or(u32::MAX)
    }

    /// Tells the nodes of a job to prepare.
    ///
    /// # Errors
    /// Why no node was told anything, for people.
    pub fn send_launch(&mut self, launch: Launch) -> Result<(), String> {
        let spec = self.job_spec(launch);
        let launched = self.endpoint.launch(self.now, spec);
        launched.map_err(not_launched)
    }

    /// A job as the endpoint sees it.
    fn job_spec(&mut self, launch: Launch) -> JobSpec {
        let files = match &launch.mounts {
            Some(mounts) => {
                let (job, nodes) = (launch.job, &launch.nodes);
                let services = &mut self.io_services;
                services.admit(self.endpoint, job, nodes, mounts, &launch.io)
            }
            None => launch.nodes.iter().map(|_| None).collect(),
        };
        let plan = &launch.plan;
        let nodes: Vec<NodeId> = launch.nodes.iter().map(|(node, _)| *node).collect();
        let places = launch.nodes.iter().zip(launch.launch_blocks).zip(files);
        JobSpec {
            job: launch.job,
            submitted_us: launch.submitted_us,
            places: places
                .map(|(((node, ranks), launch_block), files)| PlaceSpec {
                    node: *node,
                    ranks: *ranks,
                    launch_block,
                    retain: plan.retain.contains(node),
                    files,
                })
                .collect(),
            program: ProgramId(launch.program),
            program_bytes: launch.program_bytes,
            time_limit_us: launch.time_limit_us,
            monitor_period_us: 0,
            memory_limit: 0,
            retention: Retention {
                limit_pages: self.limit_pages(&nodes, plan.limit_percent),
                ..plan.policy
            },
            start: plan.start,
            cores: launch.cores,
            core_bytes: launch.core_bytes,
        }
    }
}

impl Fabric for EndpointFabric<'_> {
    fn warm_nodes(&self, program: &[u8; 32]) -> WarmNodes {
        WarmNodes {
            held: self.warm.nodes(program).map(|warm| warm.node).collect(),
            away: self.warm.away(program).collect(),
        }
    }

    fn file_services(&self, known: &[u32], nodes: &[(NodeId, u16)]) -> Result<Vec<IoPart>, String> {
        self.io_services.assign(known, nodes)
    }

    fn launch(&mut self, launch: Launch) -> Result<(), String> {
        self.outgoing.launches.push(launch);
        Ok(())
    }

    fn adopt(&mut self, launch: Launch, begun: bool, ranks: &[AdoptedRank]) -> Result<(), String> {
        let spec = self.job_spec(launch);
        let adopted = self.endpoint.adopt(spec, begun, ranks);
        adopted.map_err(not_launched)
    }

    fn abandon(&mut self, node: NodeId, job: JobId) -> bool {
        self.endpoint.abandon(node, job)
    }

    fn bring(&mut self, job: JobId, nodes: &[u32], files: &[JobFile]) -> Result<Brought, String> {
        self.casts.bring(self.now, job.0, nodes, files)
    }

    fn give_up(&mut self, job: JobId) {
        self.casts.give_up(self.now, job.0);
    }

    fn cast_program(&mut self, job: &ProgramCast<'_>) -> Result<LoadReport, String> {
        let mut holders = self.warm_nodes(&job.program.hash()).held;
        holders.retain(|node| !job.cold.contains(node));
        self.casts.cast_program(self.now, job, holders)
    }

    fn start(&mut self, job: JobId) {
        self.outgoing.starts.push(job);
    }

    fn cancel(&mut self, job: JobId, by: EndBy) {
        if self.outgoing.cancel(job) {
            let signal = u8::try_from(by.signal).unwrap_or(9);
            let grace = Micros(by.grace_us);
            self.endpoint.cancel(self.now, job, signal, grace);
        }
    }

    fn signal(&mut self, job: JobId, signal: i32) {
        if let Ok(signal) = u8::try_from(signal) {
            self.endpoint.signal(self.now, job, signal);
        }
    }

    fn reply(&mut self, node: NodeId, by: (JobId, Rank), call: CallId, reply: Reply) {
        let reply = io_reply(reply);
        self.endpoint.io_reply(self.now, node, by, call, reply);
    }

    fn reply_last(&mut self, node: NodeId, by: (JobId, Rank), call: CallId, reply: Reply) {
        let reply = io_reply(reply);
        self.outgoing.last_replies.push(LastReply {
            node,
            by,
            call,
            reply,
        });
    }
}

fn io_reply(reply: Reply) -> IoReply {
    let count = |bytes: usize| i64::try_from(bytes).expect("a call is small");
    match reply {
        Reply::Done(bytes) => IoReply {
            result: count(bytes),
            data: Vec::new(),
        },
        Reply::Data(data) => IoReply {
            result: count(data.len()),
            data,
        },
        Reply::Error(errno) => IoReply {
            result: -i64::from(errno),
            data: Vec::new(),
        },
    }
}

fn not_launched(error: LaunchError) -> String {
    match error {
        LaunchError::NodeNotUp(node) => format!("{node} has just gone out of service"),
        LaunchError::NodeBusy(node) => format!("{node} still has a job"),
        error => format!("control could not launch it ({error:?})"),
    }
}

/// Acts on one event of the endpoint.
pub fn handle(core: &mut Core, now: Instant, event: Reported) {
    match event {
        Reported::NodeJoined { status, rejoined } => node_joined(core, now, &status, rejoined),
        Reported::NodeLost {
            node,
            reason,
            last_heard,
            ..
        } => {
            let silent = now.saturating_since(last_heard).as_micros() as f64 / 1e6;
            let why = match reason {
                LostReason::Silent => format!("{node} was lost (nothing heard for {silent:.1} s)"),
                LostReason::Rebooted => format!("{node} was lost (it booted again)"),
                LostReason::Panicked => format!("{node} was lost (its kernel panicked)"),
                LostReason::Switched => format!("{node} was lost (its machine was switched)"),
            };
            let gone = Gone {
                kind: "node-lost",
                severity: Severity::Error,
                forgets: reason != LostReason::Silent,
                returns: reason == LostReason::Rebooted,
                in_order: false,
            };
            node_gone(core, now, node, &why, gone);
        }
        Reported::NodeLeft { node, .. } => {
            let why = format!("{node} left");
            let gone = Gone {
                kind: "node-left",
                severity: Severity::Info,
                forgets: true,
                returns: false,
                in_order: true,
            };
            node_gone(core, now, node, &why, gone);
        }
        Reported::NodeStays { node, job } => node_stays(core, now, node, job),
        Reported::NodePanic { node, text } => {
            let text = format!("{node}: kernel panic\n{text}");
            core.events
                .push(Event::new(Severity::Error, "node-panic", text).node(node.0));
            core.with_runner(now, |runner, now_us, fabric| {
                runner.node_panicked(now_us, fabric, node.0);
            });
        }
        Reported::HardwareErrors { node, count } => {
            let text = format!(
                "{node}: its hardware has found and corrected {count} errors; `hearth console {node}` \
                 says where, `hearth drain {node}` keeps jobs away"
            );
            core.events
                .push(Event::new(Severity::Warning, "node-hardware-errors", text).node(node.0));
        }
        Reported::Rejected { .. }
        | Reported::TwoNodesOneMac { .. }
        | Reported::KeyReused { .. } => refusal(core, event),
        Reported::LaunchReady { job, node, .. } => {
            core.with_runner(now, |runner, now_us, fabric| {
                runner.ready(now_us, fabric, job, node);
            })
        }
        Reported::LaunchRefused {
            job,
            node,
            code,
            text,
            ..
        } => {
            if code == RefusalCode::NoFile {
                // It does not hold what it was believed to: the next job has it cast again.
                if let Some(object) = core.runner.missing_file(job, &text) {
                    core.casts.dropped(node.0, object);
                }
            }
            core.with_runner(now, |runner, now_us, fabric| {
                runner.refused(now_us, fabric, job, node, (blame(code), &text));
            });
        }
        Reported::RankLost {
            job, node, reason, ..
        } => {
            let why = match reason {
                RankLoss::Forgotten => format!("{node} does not know the job any more"),
                RankLoss::GivenUp => format!(
                    "{node} ended it after it had no control node for too long (jobs.without_control_s)"
                ),
                RankLoss::NodeSilent => format!("{node} was lost"),
                RankLoss::NodeRebooted => format!("{node} booted again"),
                RankLoss::NodeLeft => format!("{node} left"),
                RankLoss::NodePanicked => format!("{node} was lost (its kernel panicked)"),
                RankLoss::NodeSwitched => {
                    format!("the machine of {node} was switched off or reset")
                }
            };
            let cause = match reason {
                RankLoss::NodePanicked
                | RankLoss::NodeSilent
                | RankLoss::NodeRebooted
                | RankLoss::NodeSwitched => Cause::NodeCrashed {
                    reason: why,
                    panicked: reason == RankLoss::NodePanicked,
                },
                RankLoss::Forgotten | RankLoss::GivenUp | RankLoss::NodeLeft => {
                    Cause::NodeLost(why)
                }
            };
            core.with_runner(now, |runner, now_us, fabric| {
                runner.rank_lost(now_us, fabric, job, node, cause);
            });
        }
        Reported::Started { job, node, .. } => core.with_runner(now, |runner, now_us, _| {
            runner.started(now_us, job, node);
        }),
        Reported::Retained {
            job, node, pages, ..
        } => core.with_runner(now, |runner, _, _| runner.retained(job, node, pages)),
        Reported::Claimed {
            job,
            node,
            input_bytes,
            ..
        } => core.with_runner(now, |runner, now_us, fabric| {
            fabric.io_services.know(fabric.endpoint, job, node);
            runner.claimed(now_us, fabric, job, node, input_bytes);
        }),
        Reported::JobClosed { .. } => {}
        Reported::LogLines {
            node,
            boot_epoch,
            missed,
            text,
        } => core.node_logs.push(node.0, boot_epoch.0, missed, &text),
        Reported::Holdings {
            node,
            boot_epoch,
            reset,
            held,
            dropped,
        } => {
            let held = held.into_iter().map(|holding| warm::Held {
                program: holding.program.0,
                pages: holding.pages,
                pristine: holding.pristine,
            });
            core.ledger.report(&warm::Report {
                node: node.0,
                boot_epoch: boot_epoch.0,
                reset,
                held: held.collect(),
                dropped: dropped.iter().map(|program| program.0).collect(),
            });
            evictions(core, node, &dropped);
        }
        Reported::ProgramDropped {
            node,
            id,
            pages,
            in_use,
        } => {
            let dropped = core.drops.answered(node.0, id, pages, in_use);
            // One that is in use goes when its job ends, which nobody reports: it is gone already
            // for whoever comes next.
            if let Some(object) = dropped {
                core.casts.dropped(node.0, object);
            }
        }
        Reported::PageWanted(wanted) => {
            // A list of page hashes that is being made is asked for again.
            if let Some(bytes) = read_object(core, &wanted) {
                core.endpoint.page_data(now, PageReply { wanted, bytes });
            }
        }
        Reported::IoCall {
            node,
            job,
            rank,
            call,
            op,
        } => {
            core.with_runner(now, |runner, now_us, fabric| {
                if matches!(op, IoOp::Exit(_)) {
                    fabric.io_services.leave(job, rank);
                }
                runner.call(now_us, fabric, node, (job, rank), (call, call_of(op)));
            });
        }
    }
}

fn node_joined(core: &mut Core, now: Instant, status: &NodeStatus, rejoined: bool) {
    let (node, mac) = (status.node, status.mac);
    core.table.joined(mac, node.0);
    let boots = core.boots.entry(node.0).or_insert(0);
    if !rejoined {
        *boots += 1;
        let now_unix_us = crate::clock::unix_us();
        core.joined_unix_ms.insert(node.0, now_unix_us / 1000);
        let earlier = core
            .endpoint
            .earlier_boots(mac)
            .map(|boot| boot.0)
            .collect();
        core.ledger.joined(NodeRow {
            mac,
            node: node.0,
            boot_epoch: Some(status.epoch.0),
            joined_unix_us: Some(now_unix_us),
            earlier_boots: earlier,
        });
        core.joined.push(Joined {
            mac,
            epoch: status.epoch.0,
            node: node.0,
        });
    } else {
        core.ledger.heard_again(node.0, status.epoch.0);
    }
    let peer = Peer {
        addr: status.addr,
        mac,
    };
    // Asked before they hear of it: one that lacked only this node ends then.
    let wanted = core.casts.wanted_on(node.0);
    core.casts
        .node_joined(now, node.0, status.epoch.0, peer, status.memory_bytes);
    drops::node_joined(core, now, node.0, rejoined, &wanted);
    let kernel_ms = status.vitals.joined_us as f64 / 1e3;
    let (kind, text) = if rejoined {
        ("node-back", format!("{node} is heard again"))
    } else {
        (
            "node-joined",
            format!("{node} joined ({} ms from kernel entry)", kernel_ms.round()),
        )
    };
    let text = match status.version == crate::serve::version_bytes() {
        true => text,
        false => format!(
            "{text}; it runs version {}, the control node {}",
            String::from_utf8_lossy(&status.version).trim_end_matches('\0'),
            env!("CARGO_PKG_VERSION")
        ),
    };
    core.events
        .push(Event::new(Severity::Info, kind, text).node(node.0).mac(mac));
    if status.vitals.unscrubbed {
        let text = format!(
            "{node} does not scrub memory between programs (hearth.scrub=off): for tests only; boot it without that option"
        );
        let event = Event::new(Severity::Warning, "node-unscrubbed", text);
        core.events.push(event.node(node.0).mac(mac));
    }
    let old = status.vitals.job;
    if old.is_some_and(|job| !core.runner.has(node.0, job)) {
        core.draining.insert(node.0);
        return;
    }
    core.with_runner(now, |runner, now_us, fabric| {
        runner.node_has_cores(node.0, status.cores);
        runner.node_up(now_us, fabric, node.0, !rejoined);
    });
}

/// How a node went out of service.
struct Gone {
    /// Its event.
    kind: &'static str,
    severity: Severity,
    /// What it held is gone with it, whatever comes back.
    forgets: bool,
    /// A new boot of it is joining.
    returns: bool,
    /// It was asked to leave.
    in_order: bool,
}

fn node_gone(core: &mut Core, now: Instant, node: NodeId, why: &str, gone: Gone) {
    core.draining.remove(&node.0);
    core.drops.node_gone(node.0, gone.forgets);
    core.ledger.gone(node.0, gone.forgets);
    let departure = Departure {
        forgets: gone.forgets,
        returns: gone.returns,
        in_order: gone.in_order,
    };
    core.casts.node_gone(now, node.0, departure);
    core.events
        .push(Event::new(gone.severity, gone.kind, why).node(node.0));
    core.with_runner(now, |runner, now_us, fabric| match gone.in_order {
        true => runner.node_left(now_us, fabric, node.0, why),
        false => runner.node_down(now_us, fabric, node.0, why),
    });
}

/// A node has let go of programs: to make room, or because it was told to.
fn evictions(core: &mut Core, node: NodeId, dropped: &[ProgramId]) {
    if dropped.is_empty() {
        return;
    }
    let names: Vec<String> = dropped
        .iter()
        .map(|program| match core.runner.program_name(&program.0) {
            Some(name) => format!("{name} ({})", short_id(&program.0)),
            None => short_id(&program.0),
        })
        .collect();
    let text = format!("{node} does not hold {} any more", names.join(", "));
    core.events
        .push(Event::new(Severity::Info, "warm-dropped", text).node(node.0));
}

/// A node that was asked to leave is in service again.
fn node_stays(core: &mut Core, now: Instant, node: NodeId, job: Option<JobId>) {
    let why = job.map_or_else(
        || "it did not answer; ask again or reset it".to_string(),
        |job| format!("it is ending job {}; ask again", attempt::number(job)),
    );
    let text = format!("{node} did not leave: {why}");
    core.events
        .push(Event::new(Severity::Warning, "node-stays", text).node(node.0));
    core.with_runner(now, |runner, now_us, fabric| {
        runner.node_up(now_us, fabric, node.0, false);
    });
}

/// Somebody was refused: each kind is an event of its own.
fn refusal(core: &mut Core, event: Reported) {
    if let Reported::Rejected {
        mac: Some(mac),
        node,
        reason: Refusal::NotAdmitted,
        ..
    } = &event
    {
        // Its key is right, so it has a number; one that is left down is known already.
        core.table
            .note_waiting(*mac, Some(node.0), crate::clock::unix_us());
    }
    let event = match event {
        Reported::Rejected {
            mac,
            node,
            from,
            reason,
            text,
        } => {
            let text = format!("{from} says it is {node} and was refused: {reason} ({text})");
            let kind = format!("refused-{}", kebab(&format!("{reason:?}")));
            let event = Event::new(Severity::Warning, &kind, text).node(node.0);
            match mac {
                Some(mac) => event.mac(mac),
                None => event,
            }
        }
        Reported::TwoNodesOneMac {
            mac,
            node,
            first,
            second,
            from,
        } => {
            let text = format!(
                "two machines have the MAC address {}: {node} (boot {first}) stays, {from} (boot {second}) is refused; change one of the addresses",
                crate::events::mac_text(mac)
            );
            Event::new(Severity::Error, "two-nodes-one-mac", text)
                .node(node.0)
                .mac(mac)
        }
        Reported::KeyReused { mac, epoch } => {
            let text = format!(
                "{} asked again for the personality of boot {epoch}, whose key is in use; nothing was given out",
                crate::events::mac_text(mac)
            );
            Event::new(Severity::Warning, "key-reused", text).mac(mac)
        }
        other => unreachable!("not a refusal: {other:?}"),
    };
    core.events.push(event);
}

/// `KeyUsed` as `key-used`.
fn kebab(name: &str) -> String {
    let mut text = String::new();
    for character in name.chars() {
        if character.is_uppercase() && !text.is_empty() {
            text.push('-');
        }
        text.extend(character.to_lowercase());
    }
    text
}

/// What a node wants to read; nothing when it is to ask again.
fn read_object(core: &Core, wanted: &PageWanted) -> Option<Result<Vec<u8>, PageError>> {
    let Some((program, blocks)) = core.runner.objects(wanted.job) else {
        return Some(Err(PageError::UnknownJob));
    };
    let length = wanted.length as usize;
    let part = |bytes: &[u8]| {
        let from = usize::try_from(wanted.offset).unwrap_or(usize::MAX);
        let from = from.min(bytes.len());
        bytes[from..bytes.len().min(from.saturating_add(length))].to_vec()
    };
    Some(match wanted.object {
        Object::Program => match program.is_sound() {
            Some(true) => program.read_at(wanted.offset, length).map_err(|error| {
                tracing::error!("reading a program of job {}: {error}", wanted.job);
                PageError::Unreadable
            }),
            Some(false) => Err(PageError::Unreadable),
            // It is being read after a start of control.
            None => return None,
        },
        Object::LaunchBlock => {
            let place = core.runner.place_on(wanted.job, wanted.node);
            let block = place.and_then(|place| blocks.get(place));
            block
                .map(|block| part(block))
                .ok_or(PageError::NoSuchObject)
        }
        Object::PageHashes => match program.page_hashes() {
            Ok(list) => Ok(part(list)),
            Err(NoList::Yet) => return None,
            Err(NoList::Unreadable) => Err(PageError::Unreadable),
        },
    })
}

/// What a refusal says something about.
fn blame(code: RefusalCode) -> Blame {
    match code {
        RefusalCode::NotElf
        | RefusalCode::WrongMachine
        | RefusalCode::Dynamic
        | RefusalCode::Truncated
        | RefusalCode::BadSegments
        | RefusalCode::NoMemory => Blame::Program,
        RefusalCode::Other | RefusalCode::Busy | RefusalCode::Unreadable => Blame::Node,
        RefusalCode::Cancelled
        | RefusalCode::BadLaunchBlock
        | RefusalCode::NotWarm
        | RefusalCode::NoFile => Blame::Job,
    }
}

fn call_of(op: IoOp) -> Call {
    match op {
        IoOp::Write { fd, data, .. } => Call::Write { fd, data },
        IoOp::Read { fd, size, .. } => Call::Read {
            fd,
            size: size as usize,
        },
        IoOp::Report { offset, data } => Call::Report {
            offset: offset as usize,
            data,
        },
        IoOp::Exit(report) => Call::Exit(Box::new(exit_of(&report))),
    }
}

fn exit_of(report: &ExitReport) -> Exit {
    let end = match report.status {
        ExitStatus::Exited(code) => RankEnd::Exited(i32::from(code)),
        ExitStatus::Signal(signal) => RankEnd::Signal(i32::from(signal)),
        ExitStatus::Failed => RankEnd::Failed,
    };
    let calls = &report.unknown_calls;
    let report = RankReport {
        user_ms: report.user_us as f64 / 1e3,
        wall_ms: report.wall_us as f64 / 1e3,
        faults: FaultCounts {
            file: report.faults_code + report.faults_readonly + report.faults_data,
            anonymous: report.faults_zero + report.faults_stack,
            code: report.faults_code,
            readonly: report.faults_readonly,
            data: report.faults_data,
            zero: report.faults_zero,
            stack: report.faults_stack,
            held: report.faults_held,
            copied: report.faults_copy,
        },
        pages: PageCounts {
            asked: report.pages_asked,
            read_ahead: report.pages_read_ahead,
            used: report.pages_read_ahead_used,
        },
        interrupts: interrupts_of(&report.interrupts_user),
        interrupts_kernel: interrupts_of(&report.interrupts_idle),
        unknown_calls: calls
            .iter()
            .map(|&(number, count)| UnknownCall { number, count })
            .collect(),
        calls: report.system_calls,
        loaded_bytes: report.bytes_loaded,
        frames_peak: report.frames_peak,
        frames_scrubbed: report.frames_scrubbed,
        warm: report.warm,
        retained: RetainedCounts {
            reused: report.pages_reused,
            kept: report.pages_kept,
            discarded: report.pages_discarded,
            damaged: report.pages_damaged,
        },
        wire: WireCounts {
            requests: report.program_requests,
            fragments: report.program_fragments,
            messages: report.program_requests + report.program_fragments,
            bytes: report.program_wire_bytes,
        },
        cast: CastCounts {
            pages: report.pages_from_cast,
            faults: report.faults_from_cast,
            awaited: report.faults_awaited,
        },
        sent: SentCounts {
            messages: report.messages_sent,
            bytes: report.message_bytes,
            exchanges: report.exchanges,
        },
        table_pages: report.table_pages,
        large_pages: report.pages_large,
        node_launch_us: report.launch_us,
        node_first_us: report.first_us,
        first_counts: report.first_counts,
        exit_counts: report.exit_counts,
        ..RankReport::new(0, 0)
    };
    Exit { end, report }
}

fn interrupts_of(counts: &vitals::InterruptCounts) -> InterruptCounts {
    InterruptCounts {
        heartbeat: counts.heartbeat,
        time_limit: counts.time_limit,
        monitor: counts.monitor,
        nic: counts.nic,
        cast: counts.cast,
        spurious: counts.spurious,
    }
}
