//! What can be done with a node: asking it to leave, approving of a machine that wants to be one,
//! switching it on and off, reading its log.
//!
//! Neighbours: `power` switches machines, `netstack::control::Endpoint::ask_to_leave` (repeats the
//! request until the node has answered), `control_events` (its answer).
//!
//! Invariant: a node that was asked gets no job until it has refused.

use axum::Extension;
use axum::extract::{Json, Path, Query, State};
use axum::http::StatusCode;
use netstack::control::{LeaveRefused, NodeState};
use netstack::ids::NodeId;

use super::types::{
    ApproveRequest, Approved, Done, NamedQuery, NodeLogPart, NodeLogQuery, POWERED_MAX,
    PowerRequest, Powered, WaitingMachine,
};
use super::{Api, Refusal};
use crate::control::Core;
use crate::events::{Event, Severity, mac_text};
use crate::hostlist;
use crate::power::Asked;
use crate::principal::{By, Operator};
use netstack::time::Instant;

/// Ask a node to leave the cluster and halt.
///
/// The list of nodes shows when it has left. Asking a node that is leaving or has left changes
/// nothing.
#[utoipa::path(post, path = "/v1/nodes/{node}/leave", tag = "nodes", params(("node" = u32, Path, description = "Number of the node")), responses((status = 200, body = Done), (status = 404, body = super::types::ErrorBody)))]
pub async fn leave(
    State(api): State<Api>,
    Extension(by): Extension<By>,
    Path(node): Path<u32>,
) -> Result<Json<Done>, Refusal> {
    let operator = by.operator()?;
    let now = api.shared.now();
    let asked = {
        let mut core = api.shared.lock();
        let asked = ask(&mut core, &operator, now, NodeId(node));
        core.settle(now);
        asked
    };
    api.shared.kick();
    asked.map(|()| Json(Done {}))
}

/// The numbers of the nodes that a list names, in its order.
///
/// A list names nodes as `n0`, `n[0-3,7]`, or by the host names of the site: `tux[1-3]`. Every
/// other route that takes nodes takes the same; these need not be there.
#[utoipa::path(get, path = "/v1/nodes/named", tag = "nodes", params(NamedQuery), responses((status = 200, body = Vec<u32>), (status = 400, body = super::types::ErrorBody)))]
pub async fn named(
    State(api): State<Api>,
    Query(query): Query<NamedQuery>,
) -> Result<Json<Vec<u32>>, Refusal> {
    api.nodes(&query.list).map(Json)
}

/// Machines that want to join and wait for approval.
#[utoipa::path(get, path = "/v1/nodes/waiting", tag = "nodes", responses((status = 200, body = Vec<WaitingMachine>)))]
pub async fn waiting(State(api): State<Api>) -> Json<Vec<WaitingMachine>> {
    let core = api.shared.lock();
    let waiting = core.table.waiting().map(|(mac, of)| WaitingMachine {
        mac: mac_text(mac),
        node: of.node,
        since_unix_us: of.since_unix_us,
        asked_unix_us: of.asked_unix_us,
    });
    Json(waiting.collect())
}

/// Let a machine be a node.
///
/// It has a number from then on, and joins when it asks next, which it does by itself.
#[utoipa::path(post, path = "/v1/nodes/approve", tag = "nodes", request_body = ApproveRequest, responses((status = 200, body = Approved), (status = 400, body = super::types::ErrorBody), (status = 409, body = super::types::ErrorBody)))]
pub async fn approve(
    State(api): State<Api>,
    Extension(by): Extension<By>,
    Json(request): Json<ApproveRequest>,
) -> Result<Json<Approved>, Refusal> {
    let operator = by.operator()?;
    let mac: hearth_boot::Mac = request.mac.parse().map_err(Refusal::bad_request)?;
    let now = api.shared.now();
    let mut core = api.shared.lock();
    let refused = |error| Refusal::new(StatusCode::CONFLICT, "not-approved", error);
    let is_known = core.table.machines().any(|known| known.mac == mac.0);
    let node = core.table.approve(&operator, mac.0).map_err(refused)?;
    if !is_known {
        core.ledger.approved(mac.0, node);
    }
    core.endpoint.admit(mac.0);
    core.runner.know_node(node);
    let name = hostlist::name(node);
    let text = format!("{mac} may join, as {name}");
    let event = Event::new(Severity::Info, "machine-approved", text);
    core.events.push(event.node(node).mac(mac.0));
    core.settle(now);
    drop(core);
    api.shared.kick();
    Ok(Json(Approved { node, name }))
}

/// Lines of the log of a node's kernel, as far as they have come and are kept.
///
/// A node tells its log once it has joined, from the first line of its boot on that it still has.
/// Control keeps 32 KiB of each node, and none over a restart of its own.
#[utoipa::path(get, path = "/v1/nodes/{node}/log", tag = "nodes", params(("node" = u32, Path, description = "Number of the node"), NodeLogQuery), responses((status = 200, body = NodeLogPart), (status = 404, body = super::types::ErrorBody)))]
pub async fn log(
    State(api): State<Api>,
    Path(node): Path<u32>,
    Query(query): Query<NodeLogQuery>,
) -> Result<Json<NodeLogPart>, Refusal> {
    let core = api.shared.lock();
    match hostlist::unknown([node], &core.known_nodes()) {
        Some(text) => Err(Refusal::new(StatusCode::NOT_FOUND, "no-such-nodes", text)),
        None => Ok(Json(core.node_logs.part(node, query.from))),
    }
}

/// Switch nodes on or off, or ask which are on.
///
/// It is answered when all have, each with its own result. Whatever runs on a node that is switched
/// off or reset is lost. What was begun is carried out, also where the client goes.
#[utoipa::path(post, path = "/v1/nodes/power", tag = "nodes", request_body = PowerRequest, responses((status = 200, body = Vec<Powered>), (status = 400, body = super::types::ErrorBody), (status = 404, body = super::types::ErrorBody), (status = 503, body = super::types::ErrorBody)))]
pub async fn power(
    State(api): State<Api>,
    Extension(by): Extension<By>,
    Json(request): Json<PowerRequest>,
) -> Result<Json<Vec<Powered>>, Refusal> {
    let nodes = api.nodes(&request.nodes)?;
    if nodes.len() > POWERED_MAX {
        return Err(Refusal::bad_request(format!(
            "at most {POWERED_MAX} nodes at a time; these are {}",
            nodes.len()
        )));
    }
    let known = api.shared.lock().known_nodes();
    if let Some(text) = hostlist::unknown(nodes.iter().copied(), &known) {
        return Err(Refusal::new(StatusCode::NOT_FOUND, "no-such-nodes", text));
    }
    by.claims(&request.by)?;
    let asked = Asked::new(&by, request.action)?;
    let switched = api.switch.perform(&api.shared, asked, nodes.clone()).await;
    let switched = switched
        .map_err(|busy| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "power-busy", busy))?;
    let powered = nodes.iter().zip(switched);
    let powered = powered.map(|(node, of)| Powered::new(*node, of.result, of.was_up));
    Ok(Json(powered.collect()))
}

fn ask(core: &mut Core, _: &Operator<'_>, now: Instant, node: NodeId) -> Result<(), Refusal> {
    let status = core.endpoint.node(node);
    if status.is_none()
        && let Some(text) = hostlist::unknown([node.0], &core.known_nodes())
    {
        return Err(Refusal::new(StatusCode::NOT_FOUND, "no-such-nodes", text));
    }
    if status.is_some_and(|status| status.state == NodeState::Left) {
        return Ok(());
    }
    let busy = |job: u64| {
        let text = format!("{node} has job {job}; wait for its end or `hearth cancel {job}`");
        Refusal::new(StatusCode::CONFLICT, "node-busy", text)
    };
    if let Some(job) = core.runner.job_of(node.0) {
        return Err(busy(job));
    }
    core.endpoint
        .ask_to_leave(now, node)
        .map_err(|refused| match refused {
            LeaveRefused::Busy(job) => busy(job.0),
            LeaveRefused::NotUp => {
                let text = format!("{node} is not in service; see `hearth nodes`");
                Refusal::new(StatusCode::CONFLICT, "node-not-up", text)
            }
        })?;
    let text = format!("{node} was asked to leave");
    core.events
        .push(Event::new(Severity::Info, "node-asked-to-leave", &text).node(node.0));
    core.with_runner(now, |runner, now_us, fabric| {
        runner.node_left(now_us, fabric, node.0, &text);
    });
    Ok(())
}
