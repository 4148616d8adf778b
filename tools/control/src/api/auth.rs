//! Who may do what over TCP: reading is open to this machine, but for what is costly; everything
//! else needs the token.
//!
//! Key types: [`Access`]. Neighbours: `serve` puts it before the routes of the TCP listener; the
//! unix socket has none, its directory's rights are its access control.
//!
//! Invariants: without the token nothing changes and nothing is read from another machine; a web
//! page from elsewhere cannot read by naming this machine in its own DNS (the Host header must be
//! an address or `localhost`).

use std::net::IpAddr;

use axum::extract::{Query, Request, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Refusal;
use crate::secrets::Token;

/// Rules of one TCP listener.
#[derive(Debug, Clone)]
pub struct Access {
    /// The token.
    pub token: Token,
    /// Whether the listener is bound to loopback, where reading is open.
    pub loopback: bool,
}

/// Lets a request through or answers it.
pub async fn check(State(access): State<Access>, request: Request, next: Next) -> Response {
    if access.allows(&request) {
        return next.run(request).await;
    }
    let error = "this needs the token from the state directory: send `Authorization: Bearer TOKEN`";
    let refusal = Refusal::new(StatusCode::UNAUTHORIZED, "no-token", error);
    ([(header::WWW_AUTHENTICATE, "Bearer")], refusal).into_response()
}

impl Access {
    fn allows<B>(&self, request: &axum::http::Request<B>) -> bool {
        let given = request
            .headers()
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix("Bearer "));
        if given.is_some_and(|given| self.token.matches(given)) {
            return true;
        }
        let reads = reads(request.method(), request.uri().path()) && !is_costly(request.uri());
        // The page itself has no data in it, and it is where the token is typed in.
        if reads && super::monitor::page::is_page(request.uri().path()) {
            return true;
        }
        let host = request
            .headers()
            .get(header::HOST)
            .and_then(|value| value.to_str().ok());
        self.loopback && reads && host.is_none_or(is_plain_host)
    }
}

/// Whether a request only reads. Reading a job's output is taking it: it counts as a change.
pub fn reads(method: &Method, path: &str) -> bool {
    matches!(*method, Method::GET | Method::HEAD) && !path.ends_with("/output")
}

/// Whether answering takes so much that not everybody on this machine may ask: all jobs of the
/// past.
fn is_costly(uri: &Uri) -> bool {
    // A query that cannot be read is refused by the route.
    let query = Query::<Vec<(String, String)>>::try_from_uri(uri);
    let mut words = query.iter().flat_map(|query| query.iter());
    let wants_all = words.any(|(name, value)| name == "all" && value != "false");
    uri.path() == "/v1/jobs" && wants_all
}

/// Whether a Host header names an address or `localhost`, with or without a port.
fn is_plain_host(host: &str) -> bool {
    let without_port = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = without_port.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost" || bare.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(loopback: bool, method: &str, path: &str, headers: &[(&str, &str)]) -> bool {
        let dir = tempfile::tempdir().unwrap();
        let path_of_token = dir.path().join("token");
        let token = crate::secrets::token(&path_of_token).unwrap();
        let text = std::fs::read_to_string(&path_of_token).unwrap();
        let mut request = axum::http::Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, value.replace("TOKEN", text.trim()));
        }
        Access { token, loopback }.allows(&request.body(()).unwrap())
    }

    #[test]
    fn reading_is_open_on_loopback_only() {
        assert!(allowed(
            true,
            "GET",
            "/v1/nodes",
            &[("host", "127.0.0.1:7181")]
        ));
        assert!(allowed(true, "GET", "/v1/nodes", &[("host", "localhost")]));
        assert!(allowed(true, "GET", "/v1/nodes", &[("host", "[::1]:80")]));
        assert!(!allowed(false, "GET", "/v1/nodes", &[]));
        assert!(!allowed(
            true,
            "GET",
            "/v1/nodes",
            &[("host", "evil.example:7181")]
        ));
        assert!(!allowed(true, "GET", "/v1/jobs/1/output", &[]));
        assert!(allowed(true, "GET", "/v1/jobs?state=running", &[]));
        assert!(allowed(true, "GET", "/v1/jobs?all=false", &[]));
        for all in ["all=true", "limit=9&all=true", "%61ll=true"] {
            let path = format!("/v1/jobs?{all}");
            assert!(!allowed(true, "GET", &path, &[]), "{path}");
            let token = [("authorization", "Bearer TOKEN")];
            assert!(allowed(true, "GET", &path, &token), "{path}");
        }
    }

    #[test]
    fn changes_need_the_token() {
        assert!(!allowed(true, "POST", "/v1/jobs", &[]));
        assert!(!allowed(
            true,
            "PUT",
            "/v1/programs/x",
            &[("authorization", "Bearer wrong")]
        ));
        assert!(allowed(
            true,
            "POST",
            "/v1/jobs",
            &[("authorization", "Bearer TOKEN")]
        ));
        assert!(allowed(
            false,
            "GET",
            "/v1/nodes",
            &[("authorization", "Bearer TOKEN")]
        ));
        assert!(!allowed(
            true,
            "POST",
            "/v1/jobs",
            &[("authorization", "TOKEN")]
        ));
    }
}
