//! What can be read of the present: status, nodes, boot timeline. Neighbour: `past` (jobs, events).

use std::collections::BTreeMap;

use axum::extract::{Json, State};
use netstack::control::{NodeState as Reported, NodeStatus};

use super::types::{BootStage, BootTimeline, NodeCasts, NodeInfo, NodeState, Status, WarmProgram};
use super::{Api, warm};
use crate::clock;
use crate::control::Core;
use crate::events::mac_text;
use crate::nodes::Machine;
use crate::programs::Hash;
use crate::{hostlist, secrets};

/// The control node itself.
#[utoipa::path(get, path = "/v1/status", tag = "control", responses((status = 200, body = Status)))]
pub async fn status(State(api): State<Api>) -> Json<Status> {
    let mut status = (*api.status).clone();
    let core = api.shared.lock();
    status.store = core.ledger.failing().map(str::to_string);
    let counters = core.endpoint.counters();
    let named = [
        ("received", counters.received),
        ("sent", counters.sent),
        ("retransmitted", counters.retransmitted),
        ("bad_length", counters.bad_length),
        ("bad_magic", counters.bad_magic),
        ("bad_version", counters.bad_version),
        ("bad_kind", counters.bad_kind),
        ("bad_tag", counters.bad_tag),
        ("replayed", counters.replayed),
        ("bad_payload", counters.bad_payload),
        ("misdirected", counters.misdirected),
        ("stale", counters.stale),
        ("unknown_peer", counters.unknown_peer),
        ("overloaded", counters.overloaded),
        ("rate_limited", counters.rate_limited),
        ("cast_bad", core.casts.counters().bad),
        ("cast_overloaded", core.casts.counters().overloaded),
        ("cast_blocks_repeated", core.casts.counters().repeated),
        ("event_lines_lost", core.events.lost_lines()),
        ("changes_unwritten", core.ledger.unwritten() as u64),
        ("passes", core.passes.count),
        ("pass_last_us", core.passes.last_us),
        ("pass_longest_us", core.passes.longest_us),
    ];
    status.counters = named
        .into_iter()
        .map(|(name, count)| (name.to_string(), count))
        .collect();
    Json(status)
}

/// Every node that is listed or has joined, by number.
#[utoipa::path(get, path = "/v1/nodes", tag = "nodes", responses((status = 200, body = Vec<NodeInfo>)))]
pub async fn nodes(State(api): State<Api>) -> Json<Vec<NodeInfo>> {
    let names = warm::names(&api).await;
    let now_us = api.shared.now().as_micros();
    let unix_us = clock::unix_us();
    let core = api.shared.lock();
    let listed = core
        .table
        .machines()
        .map(|machine| (machine.node, absent(machine)));
    let mut list: BTreeMap<u32, NodeInfo> = listed.collect();
    for status in core.endpoint.nodes() {
        let date = |at_us: u64| unix_us.saturating_sub(now_us.saturating_sub(at_us));
        let mut info = node_info(&core, &status, date);
        info.warm = warm_programs(&core, status.node.0, &names);
        list.insert(status.node.0, info);
    }
    for info in list.values_mut() {
        info.host = api.hosts.name(info.node).map(str::to_string);
        info.drained = core.runner.drained(info.node).cloned();
        if info.state == NodeState::Absent && core.runner.awaits(info.node) {
            info.state = NodeState::Awaited;
            info.job = core.runner.job_of(info.node);
        }
    }
    Json(list.into_values().collect())
}

/// What a node holds, the largest first.
fn warm_programs(core: &Core, node: u32, names: &BTreeMap<Hash, String>) -> Vec<WarmProgram> {
    let held = core.ledger.warm.of_node(node);
    let mut held: Vec<WarmProgram> = held
        .map(|warm| WarmProgram {
            program: secrets::encode_hex(&warm.program),
            name: names.get(&warm.program).cloned(),
            pages: warm.pages,
            pristine: warm.pristine,
            since_unix_us: warm.since_unix_us,
        })
        .collect();
    held.sort_by_key(|warm| std::cmp::Reverse(warm.pages));
    held
}

fn absent(machine: &Machine) -> NodeInfo {
    NodeInfo {
        name: hostlist::name(machine.node),
        node: machine.node,
        state: NodeState::Absent,
        since_unix_us: None,
        job: None,
        mac: mac_text(machine.mac),
        host: None,
        address: machine.address.map(|address| address.to_string()),
        image_version: None,
        build_id: None,
        memory_bytes: None,
        cores: None,
        memory_free_bytes: None,
        memory_used_bytes: None,
        power_on_unix_ms: None,
        joined_unix_ms: None,
        kernel_ms: None,
        busy_ms: None,
        stub_ms: None,
        boots: 0,
        boot_epoch: None,
        uptime_us: None,
        idle_us: None,
        unscrubbed: false,
        drained: None,
        casts: NodeCasts::default(),
        warm: Vec::new(),
    }
}

fn node_info(core: &Core, status: &NodeStatus, date: impl Fn(u64) -> u64) -> NodeInfo {
    let node = status.node.0;
    // A heartbeat is up to a second old, so it counts only while a node drops an old job.
    let old_job = core
        .draining
        .contains(&node)
        .then_some(status.vitals.job)
        .flatten();
    let job = core.runner.job_of(node).or(old_job.map(|job| job.0));
    let state = match status.state {
        Reported::Up if job.is_some() => NodeState::Busy,
        Reported::Up => NodeState::Idle,
        Reported::Joining => NodeState::Absent,
        Reported::Lost => NodeState::Lost,
        Reported::Left => NodeState::Left,
    };
    let timings = &status.timings;
    let millis = |us: u64| (us > 0).then_some(us as f64 / 1e3);
    // From the kernel's entry to its welcome, as the node counted; zero until it told.
    let vitals = &status.vitals;
    let busy_us = vitals.joined_us.saturating_sub(vitals.joined_idle_us);
    let version = String::from_utf8_lossy(&status.version)
        .trim_end_matches('\0')
        .to_string();
    let joined = core.joined_unix_ms.get(&node).copied();
    NodeInfo {
        name: hostlist::name(node),
        node,
        state,
        since_unix_us: Some(date(status.since.as_micros())),
        job: if status.state == Reported::Up {
            job
        } else {
            None
        },
        mac: mac_text(status.mac),
        host: None,
        address: Some(status.addr.to_string()),
        image_version: Some(version),
        build_id: Some(secrets::encode_hex(&status.build_id)),
        memory_bytes: Some(status.memory_bytes),
        cores: Some(status.cores),
        memory_free_bytes: Some(status.vitals.memory_free),
        memory_used_bytes: Some(status.vitals.memory_used),
        power_on_unix_ms: None,
        joined_unix_ms: joined,
        kernel_ms: millis(vitals.joined_us),
        busy_ms: millis(busy_us),
        stub_ms: millis(timings.stub_us),
        boots: core.boots.get(&node).copied().unwrap_or(0),
        boot_epoch: Some(status.epoch.to_string()),
        uptime_us: Some(status.vitals.uptime_us),
        idle_us: Some(status.vitals.idle_us),
        unscrubbed: status.vitals.unscrubbed,
        drained: None,
        casts: NodeCasts {
            blocks_in: status.vitals.casts.blocks_in,
            blocks_out: status.vitals.casts.blocks_out,
            corrupt: status.vitals.casts.corrupt,
            duplicates: status.vitals.casts.duplicates,
        },
        warm: Vec::new(),
    }
}

/// How far the last boot of each machine came, and when.
#[utoipa::path(get, path = "/v1/timeline", tag = "nodes", responses((status = 200, body = Vec<BootTimeline>)))]
pub async fn timeline(State(api): State<Api>) -> Json<Vec<BootTimeline>> {
    let Some(boot) = &api.boot else {
        return Json(Vec::new());
    };
    let records = boot.timeline();
    Json(records.iter().map(boot_timeline).collect())
}

fn boot_timeline(record: &hearth_boot::BootRecord) -> BootTimeline {
    let reached = |stage: hearth_boot::Stage| {
        let after_us = record.stages.get(stage)?;
        Some(BootStage {
            stage: stage.to_string(),
            unix_ms: record.began_unix_ms + after_us / 1000,
            after_ms: after_us as f64 / 1e3,
            detail: detail(stage, record),
        })
    };
    BootTimeline {
        mac: record.mac.to_string(),
        node: record.node.map(hostlist::name),
        address: record.address.map(|address| address.to_string()),
        firmware: record.firmware.map(|firmware| firmware.to_string()),
        boots: record.boots,
        began_unix_ms: record.began_unix_ms,
        stages: hearth_boot::Stage::ALL
            .into_iter()
            .filter_map(reached)
            .collect(),
        trouble: record.trouble.clone(),
    }
}

fn detail(stage: hearth_boot::Stage, record: &hearth_boot::BootRecord) -> String {
    match stage {
        hearth_boot::Stage::Dhcp => {
            let firmware = record.firmware.map(|firmware| format!("{firmware}, "));
            format!(
                "{}{} requests",
                firmware.unwrap_or_default(),
                record.dhcp_requests
            )
        }
        hearth_boot::Stage::Personality => record
            .boot_epoch
            .map_or_else(String::new, |epoch| format!("boot {epoch:016x}")),
        hearth_boot::Stage::Joined => record.node.map_or_else(String::new, hostlist::name),
        _ => String::new(),
    }
}
