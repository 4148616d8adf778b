//! Making, listing and revoking tokens.
//!
//! Neighbours: `crate::tokens` (has them and checks who may), `api::auth` (takes them).
//!
//! Invariant: a token is told only once it is written down.

use axum::Extension;
use axum::extract::{Json, Path, State};
use axum::http::StatusCode;

use super::types::{TokenInfo, TokenMade, TokenRequest};
use super::{Api, Refusal};
use crate::clock;
use crate::events::{Event, Severity};
use crate::principal::By;
use crate::tokens::{TokenError, Wanted};
use hearth_store::TokenRow;

/// Make a token for the API over the network; it is told this once.
///
/// Users make tokens for themselves, operators for everybody.
#[utoipa::path(post, path = "/v1/tokens", tag = "control", request_body = TokenRequest, responses((status = 200, body = TokenMade)))]
pub async fn create(
    State(api): State<Api>,
    Extension(by): Extension<By>,
    Json(request): Json<TokenRequest>,
) -> Result<Json<TokenMade>, Refusal> {
    let wanted = Wanted {
        role: request.role,
        user: request.user,
        life_s: request.life_s,
    };
    let mut core = api.shared.lock();
    let made = core.tokens.create(&by, clock::unix_us(), wanted);
    let (row, token) = made.map_err(refused)?;
    let text = format!("token {} ({}) is {}'s", row.id, row.role, row.user);
    let event = Event::new(
        Severity::Info,
        "token-made",
        format!("{text}, made by {}", by.name),
    );
    core.events.push(event);
    core.settle(api.shared.now());
    let trouble = core.ledger.failing().map(str::to_string);
    if let Some(trouble) = trouble {
        // Nobody has been told of it.
        let _ = core.tokens.revoke(&by, row.id);
        core.settle(api.shared.now());
        return Err(not_written(&trouble));
    }
    Ok(Json(TokenMade {
        token: token.text().to_string(),
        info: info(row),
        listen: api.status.listen.clone(),
        fingerprint: api.status.fingerprint.clone(),
    }))
}

/// Tokens that are good: an operator sees all, a user their own.
#[utoipa::path(get, path = "/v1/tokens", tag = "control", responses((status = 200, body = Vec<TokenInfo>)))]
pub async fn list(State(api): State<Api>, Extension(by): Extension<By>) -> Json<Vec<TokenInfo>> {
    let rows = api.shared.lock().tokens.list(&by);
    Json(rows.into_iter().map(info).collect())
}

/// Have a token be good no more.
#[utoipa::path(post, path = "/v1/tokens/{id}/revoke", tag = "control", params(("id" = u64, Path, description = "Number of the token")), responses((status = 200, body = TokenInfo)))]
pub async fn revoke(
    State(api): State<Api>,
    Extension(by): Extension<By>,
    Path(id): Path<u64>,
) -> Result<Json<TokenInfo>, Refusal> {
    let mut core = api.shared.lock();
    let row = core.tokens.revoke(&by, id).map_err(refused)?;
    let text = format!(
        "token {id} ({}, {}) was revoked by {}",
        row.role, row.user, by.name
    );
    core.events
        .push(Event::new(Severity::Info, "token-revoked", text));
    core.settle(api.shared.now());
    match core.ledger.failing() {
        None => Ok(Json(info(row))),
        // It is refused from now on, and a control node that is killed now takes it again.
        Some(trouble) => Err(not_written(trouble)),
    }
}

fn info(row: TokenRow) -> TokenInfo {
    TokenInfo {
        id: row.id,
        role: row.role,
        user: row.user,
        made_by: row.made_by,
        made_unix_us: row.made_unix_us,
        expires_unix_us: row.expires_unix_us,
    }
}

fn refused(error: TokenError) -> Refusal {
    match error {
        TokenError::Denied(denied) => denied.into(),
        TokenError::Unknown(_) => Refusal::new(StatusCode::NOT_FOUND, "no-such-token", error),
        TokenError::TooMany(_) => Refusal::new(StatusCode::CONFLICT, "too-many-tokens", error),
        TokenError::BadUser(_) | TokenError::Life => Refusal::bad_request(error),
        TokenError::Random(_) => Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", error),
    }
}

fn not_written(trouble: &str) -> Refusal {
    let text = format!("tokens cannot be written down at present: {trouble}; try again then");
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "store-failed", text)
}
