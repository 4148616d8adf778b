//! Tokens as they travel between control and its clients.
//!
//! Neighbours: `api::tokens` serves them; `hearth token` asks.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::principal::Role;

/// What `POST /v1/tokens` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// What it is good for: no more than who asks may do.
    pub role: Role,
    /// Whom it stands for; absent: who asks. Only operators name others.
    #[serde(default)]
    pub user: String,
    /// For how many seconds it is good; absent: until it is revoked.
    #[serde(default)]
    pub life_s: Option<u64>,
}

/// A token that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenMade {
    /// The token itself, which is told this once.
    pub token: String,
    /// What is kept of it.
    pub info: TokenInfo,
    /// Where it is good: the address at which the control node listens with TLS, if it does.
    pub listen: Option<String>,
    /// By what clients know the control node there: SHA-256 of its certificate.
    pub fingerprint: Option<String>,
}

/// What is kept of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenInfo {
    /// Its number.
    pub id: u64,
    /// What it is good for, as a word: `read`, `user` or `operator`.
    pub role: String,
    /// Whom it stands for.
    pub user: String,
    /// Who made it.
    pub made_by: String,
    /// Microseconds since 1970 at which it was made.
    pub made_unix_us: u64,
    /// From when on it is good no more; absent: never.
    pub expires_unix_us: Option<u64>,
}
