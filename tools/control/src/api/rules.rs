//! Which role a request needs, route by route; whose a job is the core checks (`jobs::Runner`).
//!
//! Key items: [`RULES`], [`check`]. Neighbours: `api::auth` says who asks; `api::router` puts
//! [`check`] around all routes and refuses to start with a route that has no rule.
//!
//! Invariant: a route without a rule is not served.

use axum::extract::{MatchedPath, Query, Request};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use utoipa::openapi::{OpenApi, PathItem};

use super::Refusal;
use crate::principal::{By, Denied, Role};

/// What a route needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Anybody who may ask at all.
    Look,
    /// The role user.
    Use,
    /// The role user, and that the job in its path is the asker's, or that they are an operator.
    Own,
    /// An operator.
    Operate,
}

impl Need {
    /// The role for it.
    pub fn role(self) -> Role {
        match self {
            Need::Look => Role::Read,
            Need::Use | Need::Own => Role::User,
            Need::Operate => Role::Operator,
        }
    }
}

/// Every route, and what it needs.
pub const RULES: &[(&str, &str, Need)] = &[
    ("GET", "/", Need::Look),
    ("GET", "/web/{file}", Need::Look),
    ("GET", "/metrics", Need::Look),
    ("GET", "/openapi.json", Need::Look),
    ("GET", "/v1/casts", Need::Look),
    ("POST", "/v1/casts", Need::Operate),
    ("POST", "/v1/casts/drop", Need::Operate),
    ("GET", "/v1/casts/{id}", Need::Look),
    ("POST", "/v1/casts/{id}/cancel", Need::Operate),
    ("POST", "/v1/drop", Need::Operate),
    ("GET", "/v1/events", Need::Look),
    ("GET", "/v1/io", Need::Look),
    // The answer has keys.
    ("POST", "/v1/io/poll", Need::Operate),
    ("POST", "/v1/io/reads", Need::Operate),
    ("GET", "/v1/jobs", Need::Look),
    ("POST", "/v1/jobs", Need::Use),
    ("GET", "/v1/jobs/{id}", Need::Look),
    ("POST", "/v1/jobs/{id}/cancel", Need::Own),
    ("POST", "/v1/jobs/{id}/hold", Need::Own),
    ("GET", "/v1/jobs/{id}/output", Need::Own),
    ("POST", "/v1/jobs/{id}/priority", Need::Own),
    ("POST", "/v1/jobs/{id}/release", Need::Own),
    ("POST", "/v1/jobs/{id}/signal", Need::Own),
    ("POST", "/v1/jobs/{id}/stdin", Need::Own),
    ("POST", "/v1/monitor/acknowledge", Need::Operate),
    ("GET", "/v1/monitor/at", Need::Look),
    ("GET", "/v1/monitor/csv", Need::Look),
    ("GET", "/v1/monitor/nodes", Need::Look),
    ("GET", "/v1/monitor/now", Need::Look),
    ("GET", "/v1/monitor/reduced", Need::Look),
    ("GET", "/v1/monitor/series", Need::Look),
    ("GET", "/v1/monitor/stream", Need::Look),
    ("GET", "/v1/monitor/streams", Need::Look),
    ("GET", "/v1/nodes", Need::Look),
    ("POST", "/v1/nodes/approve", Need::Operate),
    ("POST", "/v1/nodes/drain", Need::Operate),
    ("GET", "/v1/nodes/named", Need::Look),
    // To ask which are on is to look; the core asks for more where something is switched.
    ("POST", "/v1/nodes/power", Need::Use),
    ("POST", "/v1/nodes/resume", Need::Operate),
    ("GET", "/v1/nodes/waiting", Need::Look),
    ("POST", "/v1/nodes/{node}/leave", Need::Operate),
    ("GET", "/v1/nodes/{node}/log", Need::Look),
    ("GET", "/v1/overlay", Need::Look),
    ("POST", "/v1/overlay/down", Need::Operate),
    ("GET", "/v1/overlay/metrics", Need::Look),
    ("POST", "/v1/overlay/streams", Need::Operate),
    ("POST", "/v1/overlay/streams/{stream}/close", Need::Operate),
    ("POST", "/v1/overlay/up", Need::Operate),
    ("GET", "/v1/programs", Need::Look),
    ("GET", "/v1/programs/{hash}", Need::Use),
    ("PUT", "/v1/programs/{hash}", Need::Use),
    ("GET", "/v1/queue", Need::Look),
    ("GET", "/v1/status", Need::Look),
    ("POST", "/v1/stop", Need::Operate),
    ("GET", "/v1/timeline", Need::Look),
    ("GET", "/v1/tokens", Need::Use),
    ("POST", "/v1/tokens", Need::Use),
    ("POST", "/v1/tokens/{id}/revoke", Need::Use),
];

/// What a route needs; none for one that there is not.
pub fn need(method: &Method, route: &str) -> Option<Need> {
    // HEAD is answered by what GET is.
    let method = match *method {
        Method::HEAD => "GET",
        ref method => method.as_str(),
    };
    let mut rules = RULES.iter();
    let found = rules.find(|(of, path, _)| *of == method && *path == route);
    found.map(|(_, _, need)| *need)
}

/// Described routes that have no rule, as `METHOD PATH`.
pub fn without_rule(description: &OpenApi) -> Vec<String> {
    let paths = description.paths.paths.iter();
    let routes = paths.flat_map(|(path, item)| methods(item).map(move |of| (of, path)));
    let lacking = routes.filter(|(method, path)| need(method, path).is_none());
    lacking
        .map(|(method, path)| format!("{method} {path}"))
        .collect()
}

/// The methods of a described path.
pub fn methods(item: &PathItem) -> impl Iterator<Item = Method> {
    let all = [
        (Method::GET, item.get.is_some()),
        (Method::PUT, item.put.is_some()),
        (Method::POST, item.post.is_some()),
        (Method::DELETE, item.delete.is_some()),
        (Method::PATCH, item.patch.is_some()),
        (Method::OPTIONS, item.options.is_some()),
        (Method::HEAD, item.head.is_some()),
        (Method::TRACE, item.trace.is_some()),
    ];
    let all = all.into_iter();
    all.filter_map(|(method, is_there)| is_there.then_some(method))
}

/// Lets a request through, or says why not.
pub async fn check(request: Request, next: Next) -> Response {
    match allowed(&request) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

fn allowed(request: &Request) -> Result<(), Refusal> {
    let Some(by) = request.extensions().get::<By>() else {
        let text = "the control node does not know who asks, which is a fault of its own";
        return Err(Refusal::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            text,
        ));
    };
    // A path that there is not is answered so, and so is a method that a path does not have: every
    // route has a rule.
    let route = request.extensions().get::<MatchedPath>();
    let Some(need) = route.and_then(|route| need(request.method(), route.as_str())) else {
        return Ok(());
    };
    by.need(need.role())?;
    if by.name.is_empty() && is_costly(request.uri()) {
        return Err(Denied::Nameless.into());
    }
    Ok(())
}

/// Whether answering takes so much that one says who one is: all jobs of the past.
fn is_costly(uri: &Uri) -> bool {
    // A query that cannot be read is refused by the route.
    let query = Query::<Vec<(String, String)>>::try_from_uri(uri);
    let mut words = query.iter().flat_map(|query| query.iter());
    let wants_all = words.any(|(name, value)| name == "all" && value != "false");
    uri.path() == "/v1/jobs" && wants_all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::principal::Principal;

    fn of(role: Role) -> Principal {
        Principal {
            name: "ann".to_string(),
            identity: None,
            role,
            is_owner: false,
        }
    }

    #[test]
    fn the_past_is_costly_and_the_present_is_not() {
        let costly = |path: &str| is_costly(&path.parse().unwrap());
        for all in ["all=true", "limit=9&all=true", "%61ll=true"] {
            assert!(costly(&format!("/v1/jobs?{all}")), "{all}");
        }
        for other in [
            "/v1/jobs",
            "/v1/jobs?all=false",
            "/v1/jobs?state=running",
            "/v1/nodes?all=true",
        ] {
            assert!(!costly(other), "{other}");
        }
    }

    fn described() -> OpenApi {
        let (_, mut description) = super::super::described().split_for_parts();
        let (_, watched) = super::super::monitor::described().split_for_parts();
        description.merge(watched);
        description
    }

    #[test]
    fn every_route_has_a_rule_and_every_rule_a_route() {
        let description = described();
        assert_eq!(without_rule(&description), Vec::<String>::new());
        for (method, path, _) in RULES {
            // The page is not described.
            let is_page = ["/", "/web/{file}"].contains(path);
            let item = description.paths.paths.get(*path);
            let mut there = item.into_iter().flat_map(methods);
            assert!(is_page || there.any(|of| of == *method), "{method} {path}");
            let same = RULES
                .iter()
                .filter(|rule| (rule.0, rule.1) == (*method, *path));
            assert_eq!(same.count(), 1, "{method} {path}");
        }
    }

    #[test]
    fn a_route_without_a_rule_is_found() {
        let mut description = described();
        let jobs = description.paths.paths["/v1/jobs"].clone();
        description.paths.paths.insert("/v1/new".to_string(), jobs);
        assert_eq!(without_rule(&description), ["GET /v1/new", "POST /v1/new"]);
    }

    #[test]
    fn what_changes_something_is_no_look() {
        for (method, path, need) in RULES {
            assert!(*need != Need::Look || *method == "GET", "{method} {path}");
            let about_a_job = path.starts_with("/v1/jobs/{id}/");
            assert_eq!(*need == Need::Own, about_a_job, "{method} {path}");
        }
    }

    #[tokio::test]
    async fn each_route_asks_for_its_role_before_its_handler() {
        use axum::Router;
        use axum::body::Body;
        use axum::routing::any;
        use hyper::service::Service;
        use hyper_util::service::TowerToHyperService;
        use std::sync::Arc;

        for (method, path, need) in RULES {
            let reached = || async { "reached" };
            let routes = Router::new()
                .route(path, any(reached))
                .layer(axum::middleware::from_fn(check));
            for by in [
                Some(Principal::nameless()),
                Some(of(Role::Read)),
                Some(of(Role::User)),
                Some(of(Role::Operator)),
                None,
            ] {
                let uri = path.replace(['{', '}'], "");
                let mut request = Request::builder().method(*method).uri(&uri);
                if let Some(by) = &by {
                    request = request.extension::<By>(Arc::new(by.clone()));
                }
                let request = request.body(Body::empty()).unwrap();
                let status = TowerToHyperService::new(routes.clone())
                    .call(request)
                    .await
                    .unwrap()
                    .status();
                let expected = match &by {
                    None => 500,
                    Some(by) if by.role >= need.role() => 200,
                    Some(by) if by.name.is_empty() => 401,
                    Some(_) => 403,
                };
                assert_eq!(status, expected, "{method} {path} by {by:?}");
            }
        }
    }

    #[test]
    fn a_route_that_there_is_not_has_no_rule_and_head_has_that_of_get() {
        assert_eq!(need(&Method::DELETE, "/v1/jobs/{id}"), None);
        assert_eq!(need(&Method::GET, "/v1/jobs/12"), None);
        let output = "/v1/jobs/{id}/output";
        assert_eq!(need(&Method::HEAD, output), Some(Need::Own));
    }
}
