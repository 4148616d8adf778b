//! The HTTP API of control: JSON over a unix socket, and over TCP with TLS or on loopback (see
//! [`auth`]).
//!
//! Each handler stands beside its description (`utoipa::path`), and only described handlers get
//! into the router, so `GET /openapi.json` ([`description`]) names every route with the types that
//! it takes and gives; docs/api.md has the list for people. The page of [`monitor`] and its files
//! have no description; docs/monitoring.md says more of its other routes.
//!
//! Every error answer has an [`types::ErrorBody`]. Neighbours: `control::Shared` (all state),
//! `client` and the web page (callers).
//!
//! Invariant: handlers hold the control state only to compute; they wait outside it.

pub mod auth;
pub mod bounded;
mod casts;
mod description;
pub mod instance;
pub mod io;
mod jobs;
mod lists;
pub mod monitor;
mod nodes;
pub mod overlay;
mod past;
pub mod places;
mod programs;
mod queue;
pub mod rules;
mod stopping;
mod tokens;
pub mod types;
mod unread;
pub mod warm;

pub use past::PAGE_MAX;

use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::clock::Clock;
use crate::control::Shared;
use crate::hosts::Hosts;
use crate::monitor::Monitor;
use crate::power::Switch;
use crate::principal::Denied;

/// Largest JSON request body, in bytes: a launch block's worth of arguments and environment in
/// base64, several times over.
const REQUEST_MAX_BYTES: usize = 1024 * 1024;

/// What handlers need.
#[derive(Clone)]
pub struct Api {
    /// The control state.
    pub shared: Arc<Shared>,
    /// The boot service, if it runs.
    pub boot: Option<Arc<hearth_boot::Service>>,
    /// What `GET /v1/status` says, without counters.
    pub status: Arc<types::Status>,
    /// Pictures of the cluster.
    pub monitor: Arc<Monitor>,
    /// Switches machines on and off.
    pub switch: Arc<Switch>,
    /// Protocol time, to date what the endpoint reports.
    pub clock: Clock,
    /// Nodes by the host names of the site.
    pub hosts: Arc<Hosts>,
    /// Directories that jobs may see.
    pub files: Arc<crate::config::Files>,
}

impl Api {
    /// The nodes of a list.
    fn nodes(&self, list: &str) -> Result<Vec<u32>, Refusal> {
        self.hosts.list(list).map_err(Refusal::bad_request)
    }

    /// The same of a list that may be left out.
    fn nodes_if(&self, list: Option<&str>) -> Result<Option<Vec<u32>>, Refusal> {
        list.map(|list| self.nodes(list)).transpose()
    }
}

/// All routes; each request has to come with its [`crate::principal::By`] ([`auth`]), and needs the
/// role that [`rules`] say.
pub fn router(api: Api) -> Router {
    let instance = HeaderValue::from_str(&api.status.instance).expect("hexadecimal digits");
    let (_, watched) = monitor::described().split_for_parts();
    let watching = monitor::router(api.monitor.clone());
    let (router, mut description) = described().split_for_parts();
    description.merge(watched);
    if let Some(route) = rules::without_rule(&description).first() {
        panic!("{route} has no rule that says who may ask for it");
    }
    let description = Arc::new(description::finish(description));
    router
        .fallback(|| async {
            Refusal::new(
                StatusCode::NOT_FOUND,
                "no-such-path",
                "there is nothing at this path; GET /openapi.json lists what there is",
            )
        })
        .method_not_allowed_fallback(|| async {
            Refusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "no-such-method",
                "this path does not take this method; GET /openapi.json says which it takes",
            )
        })
        .layer(axum::extract::DefaultBodyLimit::max(REQUEST_MAX_BYTES))
        .layer(axum::Extension(description))
        .with_state(api)
        .merge(watching)
        .layer(axum::middleware::from_fn(rules::check))
        .layer(axum::middleware::map_response(unread::in_form))
        .layer(axum::middleware::from_fn_with_state(
            instance,
            instance::check,
        ))
}

/// Every route with its description.
fn described() -> OpenApiRouter<Api> {
    OpenApiRouter::with_openapi(description::head())
        .routes(routes!(description::get))
        .routes(routes!(lists::status))
        .routes(routes!(lists::nodes))
        .routes(routes!(nodes::named))
        .routes(routes!(nodes::leave))
        .routes(routes!(stopping::stop))
        .routes(routes!(tokens::list, tokens::create))
        .routes(routes!(tokens::revoke))
        .routes(routes!(nodes::waiting))
        .routes(routes!(nodes::approve))
        .routes(routes!(nodes::power))
        .routes(routes!(nodes::log))
        .routes(routes!(io::list))
        .routes(routes!(io::poll))
        .routes(routes!(io::read))
        .routes(routes!(past::events))
        .routes(routes!(lists::timeline))
        .routes(routes!(past::jobs, jobs::submit))
        .routes(routes!(past::job))
        .routes(routes!(jobs::output))
        .routes(routes!(jobs::stdin))
        .routes(routes!(jobs::cancel))
        .routes(routes!(jobs::signal))
        .routes(routes!(queue::list))
        .routes(routes!(queue::hold))
        .routes(routes!(queue::release))
        .routes(routes!(queue::priority))
        .routes(routes!(queue::drain))
        .routes(routes!(queue::resume))
        .routes(routes!(warm::programs))
        .routes(routes!(warm::drop_programs))
        .routes(routes!(casts::list, casts::begin))
        .routes(routes!(casts::drop_file))
        .routes(routes!(casts::get))
        .routes(routes!(casts::cancel))
        .routes(routes!(overlay::get))
        .routes(routes!(overlay::metrics))
        .routes(routes!(overlay::down))
        .routes(routes!(overlay::up))
        .routes(routes!(overlay::open))
        .routes(routes!(overlay::close))
        .routes(routes!(programs::exists, programs::put))
}

/// An error answer.
#[derive(Debug)]
pub struct Refusal {
    status: StatusCode,
    body: types::ErrorBody,
}

impl Refusal {
    /// An answer with `status`, a stable word and a sentence.
    pub fn new(status: StatusCode, code: &str, error: impl ToString) -> Self {
        let body = types::ErrorBody {
            code: code.to_string(),
            error: error.to_string(),
        };
        Refusal { status, body }
    }

    /// The stable word.
    #[cfg(test)]
    fn code(&self) -> &str {
        &self.body.code
    }

    fn bad_request(error: impl ToString) -> Self {
        Refusal::new(StatusCode::BAD_REQUEST, "bad-request", error)
    }
}

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Self {
        let status = match denied {
            Denied::Nameless => StatusCode::UNAUTHORIZED,
            _ => StatusCode::FORBIDDEN,
        };
        Refusal::new(status, denied.code(), denied)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let asks_for_token = self.status == StatusCode::UNAUTHORIZED;
        let mut response = (self.status, axum::Json(self.body)).into_response();
        if asks_for_token {
            let bearer = HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, bearer);
        }
        response
    }
}
