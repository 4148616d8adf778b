//! I/O services: which there are, and what each is to do.
//!
//! Neighbours: `io_service` has them; `cli::io` is one that asks.
//!
//! Invariant: a question is answered within [`POLL`], and keys of ranks go to operators only.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Json, State};
use axum::http::StatusCode;
use netstack::ids::{JobId, NodeId};

use super::types::IoServiceInfo;
use super::{Api, Refusal, programs};
use crate::casts::shelf::Content;
use crate::control::Shared;
use crate::io_service::NotJoined;
use crate::io_service::joined::{self, Orders, POLL, Poll, Polled};
use crate::io_service::reads::{self, ReadAnswer, ReadFile};
use crate::principal::By;
use crate::{blocking, secrets};

/// The I/O services, and the nodes of each.
#[utoipa::path(get, path = "/v1/io", tag = "nodes", responses((status = 200, body = Vec<IoServiceInfo>)))]
pub async fn list(State(api): State<Api>) -> Json<Vec<IoServiceInfo>> {
    let core = api.shared.lock();
    Json(core.io_services.list(&core.known_nodes()))
}

/// Join as an I/O service, and hear what to do.
///
/// It is answered when there is something to do, and after two seconds else. The answer has the
/// keys of ranks.
#[utoipa::path(post, path = "/v1/io/poll", tag = "nodes", request_body = Poll, responses((status = 200, body = Orders), (status = 409, body = super::types::ErrorBody)))]
pub async fn poll(
    State(api): State<Api>,
    Extension(by): Extension<By>,
    Json(request): Json<Poll>,
) -> Result<Json<Orders>, Refusal> {
    by.operator()?;
    let until = tokio::time::Instant::now() + POLL;
    let mut asking = None;
    loop {
        let polled = {
            let mut core = api.shared.lock();
            let core = &mut *core;
            let begins = asking.is_none();
            core.io_services
                .poll(&core.endpoint, &request, begins)
                .map_err(refused)?
        };
        if asking.is_none() {
            // Jobs may wait for a service.
            api.shared.kick();
            asking = Some(Asking {
                shared: api.shared.clone(),
                poll: request.clone(),
            });
        }
        let news = match polled {
            Polled::Orders(orders) => return Ok(Json(orders)),
            Polled::Wait(news) => news,
        };
        if tokio::time::timeout_at(until, news.notified())
            .await
            .is_err()
        {
            return Ok(Json(Orders {
                whole: false,
                orders: Vec::new(),
                taken: request.taken,
            }));
        }
    }
}

/// Have a file cast that many nodes of a job read from an I/O service.
#[utoipa::path(post, path = "/v1/io/reads", tag = "nodes", request_body = ReadFile, responses((status = 200, body = ReadAnswer)))]
pub async fn read(
    State(api): State<Api>,
    Extension(by): Extension<By>,
    Json(request): Json<ReadFile>,
) -> Result<Json<ReadAnswer>, Refusal> {
    by.operator()?;
    let service = joined::address(&request.service).map_err(Refusal::bad_request)?;
    let content = match &request.object {
        None => None,
        Some(object) => {
            let hash = programs::parse_hash(object)?;
            let found = api.shared.programs.find_for(&by, &hash).await;
            let program = found.ok_or_else(|| programs::unknown_program(&hash))?;
            let reading = program.clone();
            let described = blocking::run(move || reading.describe()).await;
            let described = described.map_err(|error| Refusal::bad_request(error.to_string()))?;
            Some((described, Content::Cached(program)))
        }
    };
    let nodes: Vec<NodeId> = request.nodes.iter().copied().map(NodeId).collect();
    let key = (JobId(request.job), service, request.number);
    let object = reads::cast(&api.shared, key, content, &nodes);
    Ok(Json(ReadAnswer {
        object: object.map(|object| secrets::encode_hex(&object.id)),
        bytes: object.map_or(0, |object| object.bytes),
    }))
}

fn refused(error: NotJoined) -> Refusal {
    let (status, code) = match error {
        NotJoined::Bad(_) => (StatusCode::BAD_REQUEST, "bad-request"),
        NotJoined::NotWanted => (StatusCode::CONFLICT, "no-io-services"),
        NotJoined::Taken(_) => (StatusCode::CONFLICT, "address-taken"),
        NotJoined::TooMany => (StatusCode::SERVICE_UNAVAILABLE, "too-many-io-services"),
    };
    Refusal::new(status, code, error)
}

/// A question that waits; it does not any more when this goes, also with its connection.
struct Asking {
    shared: Arc<Shared>,
    poll: Poll,
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.shared.lock().io_services.answered(&self.poll);
    }
}
