//! Who asks: the user at the other end of the unix socket, or whoever has a token.
//!
//! Key types: [`Access`]. Neighbours: `serve` puts [`at_socket`] before the routes of the unix
//! socket and [`over_tcp`] before those of a TCP listener; `people` knows users, `api::rules` says
//! what each may do.
//!
//! Invariants: every request that reaches a route has a principal; who shows a token is judged by
//! it; without one nothing is read from another machine; a web page from elsewhere cannot read by
//! naming this machine in its own DNS (the Host header must be an address or `localhost`).

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Refusal;
use super::bounded::LocalPeer;
use crate::people::{People, Stranger};
use crate::principal::{By, Denied, Principal, Role};
use crate::secrets::Token;

/// Rules of one TCP listener.
#[derive(Debug, Clone)]
pub struct Access {
    /// The token of the state directory, which makes an operator.
    pub token: Token,
    /// Name of the user who control runs as.
    pub owner: String,
    /// Whether the listener is bound to loopback, where reading is open.
    pub loopback: bool,
}

/// Finds out who asks over the unix socket.
pub async fn at_socket(
    State(people): State<Arc<People>>,
    ConnectInfo(peer): ConnectInfo<LocalPeer>,
    mut request: Request,
    next: Next,
) -> Response {
    let who = move || {
        let (uid, gid) = peer.user.ok_or(Stranger::Unknown)?;
        people.who(uid, gid)
    };
    let found = tokio::task::spawn_blocking(who).await;
    match found.expect("asking the system does not panic") {
        Ok(principal) => {
            request.extensions_mut().insert::<By>(Arc::new(principal));
            next.run(request).await
        }
        Err(stranger) => {
            Refusal::new(StatusCode::FORBIDDEN, "not-served", stranger).into_response()
        }
    }
}

/// Finds out who asks over TCP.
pub async fn over_tcp(State(access): State<Access>, mut request: Request, next: Next) -> Response {
    match access.who(&request) {
        Ok(principal) => {
            request.extensions_mut().insert::<By>(Arc::new(principal));
            next.run(request).await
        }
        Err(refusal) => refusal.into_response(),
    }
}

impl Access {
    fn who<B>(&self, request: &axum::http::Request<B>) -> Result<Principal, Refusal> {
        let header = |name| {
            let value = request.headers().get(name)?;
            Some(value.to_str().unwrap_or_default())
        };
        let Some(given) = header(header::AUTHORIZATION) else {
            return self.without_token(
                request.method(),
                request.uri().path(),
                header(header::HOST),
            );
        };
        let token = given.strip_prefix("Bearer ").unwrap_or_default();
        if self.token.matches(token) {
            return Ok(Principal {
                name: self.owner.clone(),
                identity: None,
                role: Role::Operator,
                is_owner: false,
            });
        }
        let text = "this token is not one of the control node's; `hearth token list` shows those that there are";
        Err(Refusal::new(StatusCode::UNAUTHORIZED, "bad-token", text))
    }

    /// Who shows no token may look, on this machine.
    fn without_token(
        &self,
        method: &Method,
        path: &str,
        host: Option<&str>,
    ) -> Result<Principal, Refusal> {
        let reads = matches!(*method, Method::GET | Method::HEAD);
        // The page itself has no data in it, and it is where the token is typed in.
        let is_page = reads && super::monitor::page::is_page(path);
        match is_page || (self.loopback && host.is_none_or(is_plain_host)) {
            true => Ok(Principal::nameless()),
            false => Err(Denied::Nameless.into()),
        }
    }
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

    /// The role of who asks so, or the code of the refusal.
    fn role(loopback: bool, method: &str, path: &str, headers: &[(&str, &str)]) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path_of_token = dir.path().join("token");
        let token = crate::secrets::token(&path_of_token).unwrap();
        let text = std::fs::read_to_string(&path_of_token).unwrap();
        let mut request = axum::http::Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, value.replace("TOKEN", text.trim()));
        }
        let access = Access {
            token,
            owner: "eva".to_string(),
            loopback,
        };
        match access.who(&request.body(()).unwrap()) {
            Ok(principal) => format!("{}:{}", principal.name, principal.role.word()),
            Err(refusal) => refusal.code().to_string(),
        }
    }

    #[test]
    fn who_says_nothing_looks_on_loopback_only() {
        for host in ["127.0.0.1:7181", "localhost", "[::1]:80"] {
            let host = [("host", host)];
            assert_eq!(role(true, "GET", "/v1/nodes", &host), ":read");
            // What may not be done without a name, the rules say.
            assert_eq!(role(true, "POST", "/v1/jobs", &host), ":read");
        }
        assert_eq!(role(false, "GET", "/v1/nodes", &[]), "no-token");
        let strange = [("host", "evil.example:7181")];
        assert_eq!(role(true, "GET", "/v1/nodes", &strange), "no-token");
        assert_eq!(role(false, "GET", "/", &strange), ":read");
        assert_eq!(role(false, "POST", "/", &strange), "no-token");
    }

    #[test]
    fn who_shows_a_token_is_judged_by_it() {
        for loopback in [false, true] {
            let role = |value| role(loopback, "GET", "/v1/nodes", &[("authorization", value)]);
            assert_eq!(role("Bearer TOKEN"), "eva:operator");
            for wrong in ["Bearer wrong", "TOKEN", "Bearer", "Basic TOKEN"] {
                assert_eq!(role(wrong), "bad-token", "{wrong}");
            }
        }
    }
}
