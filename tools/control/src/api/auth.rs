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
use crate::blocking;
use crate::clock;
use crate::control::Shared;
use crate::people::{People, Stranger};
use crate::principal::{By, Denied, Principal, Role};
use crate::secrets::Token;
use crate::tokens::BadToken;

/// Rules of one TCP listener.
#[derive(Debug, Clone)]
pub struct Access {
    /// The tokens that were made.
    pub shared: Arc<Shared>,
    /// The users of this machine.
    pub people: Arc<People>,
    /// The token of the state directory, which makes an operator.
    pub token: Token,
    /// Name of the user who control runs as.
    pub owner: String,
    /// Whether reading is open: on loopback, without TLS.
    pub open: bool,
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
    match blocking::run(who).await {
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
    let principal = match access.who(&request) {
        Ok(Who::Known(principal)) => Ok(principal),
        Ok(Who::Token { user, role }) => {
            // As whom files are read and written for them.
            let people = access.people.clone();
            let find = move || {
                let identity = people.named(&user);
                Principal {
                    name: user,
                    identity,
                    role,
                    is_owner: false,
                }
            };
            Ok(blocking::run(find).await)
        }
        Err(refusal) => Err(refusal),
    };
    match principal {
        Ok(principal) => {
            request.extensions_mut().insert::<By>(Arc::new(principal));
            next.run(request).await
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// Who asks, as far as that is known without waiting.
#[derive(Debug)]
enum Who {
    Known(Principal),
    /// Whoever has a token of this user.
    Token {
        user: String,
        role: Role,
    },
}

impl Access {
    fn who<B>(&self, request: &axum::http::Request<B>) -> Result<Who, Refusal> {
        let header = |name| {
            let value = request.headers().get(name)?;
            Some(value.to_str().unwrap_or_default())
        };
        let Some(given) = header(header::AUTHORIZATION) else {
            let path = request.uri().path();
            let known = without_token(self.open, request.method(), path, header(header::HOST));
            return known.map(Who::Known);
        };
        let token = given.strip_prefix("Bearer ").unwrap_or_default();
        if self.token.matches(token) {
            return Ok(Who::Token {
                user: self.owner.clone(),
                role: Role::Operator,
            });
        }
        let core = self.shared.lock();
        let row = core.tokens.check(clock::unix_us(), token);
        let bad = |error: BadToken| Refusal::new(StatusCode::UNAUTHORIZED, "bad-token", error);
        let row = row.map_err(bad)?;
        Ok(Who::Token {
            user: row.user.clone(),
            // Of a later version with more of them: the least.
            role: Role::of_word(&row.role).unwrap_or(Role::Read),
        })
    }
}

/// Who shows no token may look, where reading is `open`.
fn without_token(
    open: bool,
    method: &Method,
    path: &str,
    host: Option<&str>,
) -> Result<Principal, Refusal> {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    // The page itself has no data in it, and it is where the token is typed in.
    let is_page = reads && super::monitor::page::is_page(path);
    match is_page || (open && host.is_none_or(is_plain_host)) {
        true => Ok(Principal::nameless()),
        false => Err(Denied::Nameless.into()),
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

    /// The role of who asks so without a token, or the code of the refusal.
    fn role(open: bool, method: &str, path: &str, host: Option<&str>) -> String {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        match without_token(open, &method, path, host) {
            Ok(principal) => format!("{}:{}", principal.name, principal.role.word()),
            Err(refusal) => refusal.code().to_string(),
        }
    }

    #[test]
    fn who_says_nothing_looks_on_loopback_only() {
        for host in ["127.0.0.1:7181", "localhost", "[::1]:80"] {
            assert_eq!(role(true, "GET", "/v1/nodes", Some(host)), ":read");
            // What may not be done without a name, the rules say.
            assert_eq!(role(true, "POST", "/v1/jobs", Some(host)), ":read");
        }
        assert_eq!(role(false, "GET", "/v1/nodes", None), "no-token");
        let strange = Some("evil.example:7181");
        assert_eq!(role(true, "GET", "/v1/nodes", strange), "no-token");
        assert_eq!(role(false, "GET", "/", strange), ":read");
        assert_eq!(role(false, "POST", "/", strange), "no-token");
    }
}
