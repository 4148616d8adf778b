//! Tokens: who asks over the network, and what they may do.
//!
//! Key types: [`Tokens`] (in memory, as the store has them), [`Token`] (the text that somebody is
//! shown once). Neighbours: `control::Core` has them, `api::tokens` makes, lists and revokes them,
//! `api::auth` asks for each request over TCP.
//!
//! A token is `hearth-NUMBER-SECRET`. Its number finds the row, and the hash of all of it is
//! compared in constant time, also where there is no such row.
//!
//! Invariants: no text of a token is kept or logged, only its hash; nobody gets more by a token
//! than who made it has; a token that was revoked or has expired is good for nothing.

use std::collections::BTreeMap;
use std::fmt;

use hearth_store::{Batch, TokenRow};

use crate::principal::{Denied, Principal, Role};
use crate::secrets;

/// Random bytes of a token.
const SECRET_BYTES: usize = 32;

/// What a token begins with, so that people and scanners know it for one.
const PREFIX: &str = "hearth-";

/// Most tokens at a time, and of one user: no operator looks through more.
pub const TOKENS_MAX: usize = 4_096;
const OF_USER_MAX: usize = 64;

/// Longest life of a token with an end, in seconds: ten years.
pub const LIFE_MOST_S: u64 = 10 * 366 * 86_400;

/// The text of a token, which its holder sends.
pub struct Token(String);

impl Token {
    /// The text itself.
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(..)")
    }
}

/// What somebody wants a token to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// What it is good for.
    pub role: Role,
    /// Whom it stands for; empty: who asks.
    pub user: String,
    /// For how long it is good, in seconds; none: until it is revoked.
    pub life_s: Option<u64>,
}

/// Why a token was not made or revoked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Whoever asks may not.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// Not the name of a user.
    #[error("{0:?} is not the name of a user; use 1 to 32 letters, digits, and - _ . @")]
    BadUser(String),
    /// Too short or too long a life.
    #[error(
        "a token is good for 1 second to {LIFE_MOST_S} s (ten years); leave --expires out for one without an end"
    )]
    Life,
    /// There are too many.
    #[error("there are as many tokens as there can be ({0}); `hearth token revoke` makes room")]
    TooMany(usize),
    /// There is no such token, or it is somebody else's.
    #[error("there is no token {0}; `hearth token list` shows those that you can revoke")]
    Unknown(u64),
    /// The system gives no random numbers.
    #[error("the system gives no random numbers: {0}")]
    Random(String),
}

/// Why what was shown is good for nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadToken {
    /// It is none, or was revoked.
    #[error(
        "this token is not one of this control node's, or was revoked; `hearth token create` there makes one (HEARTH_TOKEN, or --token-file)"
    )]
    Unknown,
    /// Its time is over.
    #[error("token {0} has expired; ask for another (`hearth token create` at the control node)")]
    Expired(u64),
}

/// All tokens.
#[derive(Debug, Default)]
pub struct Tokens {
    rows: BTreeMap<u64, TokenRow>,
    next: u64,
    /// Changes to be written.
    batch: Batch,
}

impl Tokens {
    /// The tokens as the store has them, and the number of the next.
    pub fn restored(rows: Vec<TokenRow>, next: u64) -> Self {
        Tokens {
            rows: rows.into_iter().map(|row| (row.id, row)).collect(),
            next: next.max(1),
            batch: Batch::default(),
        }
    }

    /// Changes since the last call, to be written down.
    pub fn take_changes(&mut self) -> Batch {
        std::mem::take(&mut self.batch)
    }

    /// Makes a token. Operators make them for everybody, users for themselves.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn create(
        &mut self,
        by: &Principal,
        now_unix_us: u64,
        wanted: Wanted,
    ) -> Result<(TokenRow, Token), TokenError> {
        by.need(Role::User)?;
        by.need(wanted.role)?;
        let user = match wanted.user.is_empty() {
            true => by.name.clone(),
            false => wanted.user,
        };
        if user != by.name {
            by.operator()?;
        }
        if !crate::jobs::users::Users::is_name(&user) {
            return Err(TokenError::BadUser(user.chars().take(64).collect()));
        }
        let has_life = |life: u64| (1..=LIFE_MOST_S).contains(&life);
        if !wanted.life_s.is_none_or(has_life) {
            return Err(TokenError::Life);
        }
        self.forget_expired(now_unix_us);
        let of_user = self.rows.values().filter(|row| row.user == user).count();
        if self.rows.len() >= TOKENS_MAX || of_user >= OF_USER_MAX {
            return Err(TokenError::TooMany(of_user.min(OF_USER_MAX)));
        }
        let mut secret = [0; SECRET_BYTES];
        getrandom::fill(&mut secret).map_err(|error| TokenError::Random(error.to_string()))?;
        let id = self.next;
        let token = Token(format!("{PREFIX}{id}-{}", secrets::encode_hex(&secret)));
        let row = TokenRow {
            id,
            hash: *hash_of(token.text()).as_bytes(),
            role: wanted.role.word().to_string(),
            user,
            made_by: by.name.clone(),
            made_unix_us: now_unix_us,
            expires_unix_us: wanted.life_s.map(|life| now_unix_us + life * 1_000_000),
        };
        self.next += 1;
        self.batch.put_token(row.clone());
        self.rows.insert(id, row.clone());
        Ok((row, token))
    }

    /// Has a token be good no more: an operator any, a user their own.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn revoke(&mut self, by: &Principal, id: u64) -> Result<TokenRow, TokenError> {
        by.need(Role::User)?;
        let row = self.rows.get(&id).filter(|row| may_see(by, row));
        if row.is_none() {
            return Err(TokenError::Unknown(id));
        }
        self.batch.revoke_token(id);
        self.rows.remove(&id).ok_or(TokenError::Unknown(id))
    }

    /// The tokens that somebody may see, by number: an operator all, a user their own.
    pub fn list(&self, by: &Principal) -> Vec<TokenRow> {
        let rows = self.rows.values().filter(|row| may_see(by, row));
        rows.cloned().collect()
    }

    /// The token with this text.
    ///
    /// # Errors
    /// [`BadToken`].
    pub fn check(&self, now_unix_us: u64, text: &str) -> Result<&TokenRow, BadToken> {
        let row = number_of(text).and_then(|id| self.rows.get(&id));
        let known = blake3::Hash::from_bytes(row.map_or([0; 32], |row| row.hash));
        // In constant time.
        let is_it = hash_of(text) == known;
        let row = row.filter(|_| is_it).ok_or(BadToken::Unknown)?;
        match is_over(row, now_unix_us) {
            true => Err(BadToken::Expired(row.id)),
            false => Ok(row),
        }
    }

    /// Expired ones make room for others; until then their holders are told that they have expired.
    fn forget_expired(&mut self, now_unix_us: u64) {
        if self.rows.len() < TOKENS_MAX / 2 {
            return;
        }
        let over = self.rows.values().filter(|row| is_over(row, now_unix_us));
        let over: Vec<u64> = over.map(|row| row.id).collect();
        for id in over {
            self.rows.remove(&id);
            self.batch.revoke_token(id);
        }
    }
}

fn may_see(by: &Principal, row: &TokenRow) -> bool {
    by.role == Role::Operator || row.user == by.name
}

fn is_over(row: &TokenRow, now_unix_us: u64) -> bool {
    row.expires_unix_us.is_some_and(|at| at <= now_unix_us)
}

fn number_of(text: &str) -> Option<u64> {
    text.strip_prefix(PREFIX)?.split_once('-')?.0.parse().ok()
}

fn hash_of(text: &str) -> blake3::Hash {
    blake3::hash(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, role: Role) -> Principal {
        Principal {
            name: name.to_string(),
            identity: None,
            role,
            is_owner: false,
        }
    }

    fn wanted(role: Role, user: &str) -> Wanted {
        Wanted {
            role,
            user: user.to_string(),
            life_s: None,
        }
    }

    #[test]
    fn a_token_is_good_until_it_is_revoked_or_expires_and_no_text_is_kept() {
        let root = of("root", Role::Operator);
        let mut tokens = Tokens::default();
        let made = tokens.create(&root, 5, wanted(Role::User, "ann")).unwrap();
        assert_eq!((made.0.id, &made.0.user[..]), (0, "ann"));
        let short = Wanted {
            life_s: Some(10),
            ..wanted(Role::Read, "")
        };
        let (row, brief) = tokens.create(&root, 5, short).unwrap();
        assert_eq!((&row.user[..], &row.role[..]), ("root", "read"));
        let text = made.1.text();
        let secret = text.rsplit('-').next().unwrap();
        assert!(!format!("{tokens:?} {:?}", made.1).contains(secret));
        assert_eq!(tokens.check(6, text).unwrap().user, "ann");
        assert_eq!(tokens.check(10_000_004, brief.text()).unwrap().id, row.id);
        let over = tokens.check(10_000_005, brief.text());
        assert_eq!(over, Err(BadToken::Expired(row.id)));
        // As the store has it, in another run of control.
        let rows = tokens.list(&root);
        let mut again = Tokens::restored(rows, 2);
        assert_eq!(again.check(6, text).unwrap().user, "ann");
        again.revoke(&root, made.0.id).unwrap();
        assert_eq!(again.check(6, text), Err(BadToken::Unknown));
        let next = again.create(&root, 5, wanted(Role::User, "ann")).unwrap();
        assert_eq!(next.0.id, 2, "no number is given twice");
    }

    #[test]
    fn what_is_no_token_is_refused() {
        let root = of("root", Role::Operator);
        let mut tokens = Tokens::default();
        let (_, token) = tokens.create(&root, 5, wanted(Role::User, "ann")).unwrap();
        let text = token.text();
        let (head, secret) = text.rsplit_once('-').unwrap();
        let turned = format!("{head}-{}", secret.chars().rev().collect::<String>());
        let other = text.replacen("hearth-0", "hearth-1", 1);
        let zeros = format!("hearth-0-{}", "0".repeat(64));
        for wrong in [
            "",
            "hearth-",
            "hearth-0-",
            secret,
            &text[1..],
            &turned,
            &other,
            &zeros,
        ] {
            assert_eq!(tokens.check(6, wrong), Err(BadToken::Unknown), "{wrong}");
        }
    }

    #[test]
    fn users_make_tokens_for_themselves_and_no_more_than_they_are() {
        let (ann, read) = (of("ann", Role::User), of("ann", Role::Read));
        let mut tokens = Tokens::default();
        assert!(tokens.create(&ann, 5, wanted(Role::User, "")).is_ok());
        assert!(tokens.create(&ann, 5, wanted(Role::Read, "ann")).is_ok());
        let code = |made: Result<(TokenRow, Token), TokenError>| match made.unwrap_err() {
            TokenError::Denied(denied) => denied.code(),
            other => panic!("{other:?}"),
        };
        let more = tokens.create(&ann, 5, wanted(Role::Operator, ""));
        assert_eq!(code(more), "not-operator");
        let others = tokens.create(&ann, 5, wanted(Role::User, "bob"));
        assert_eq!(code(others), "not-operator");
        let looks = tokens.create(&read, 5, wanted(Role::Read, ""));
        assert_eq!(code(looks), "read-only");
        // Nor do they see or revoke those of others.
        let root = of("root", Role::Operator);
        let (bobs, _) = tokens.create(&root, 5, wanted(Role::User, "bob")).unwrap();
        assert_eq!(tokens.list(&ann).len(), 2);
        assert_eq!(tokens.list(&root).len(), 3);
        assert_eq!(
            tokens.revoke(&ann, bobs.id),
            Err(TokenError::Unknown(bobs.id))
        );
        assert!(tokens.revoke(&of("bob", Role::User), bobs.id).is_ok());
    }

    #[test]
    fn lives_names_and_numbers_have_bounds() {
        let root = of("root", Role::Operator);
        let mut tokens = Tokens::default();
        for life in [0, LIFE_MOST_S + 1, u64::MAX] {
            let wanted = Wanted {
                life_s: Some(life),
                ..wanted(Role::User, "")
            };
            let made = tokens.create(&root, 5, wanted);
            assert_eq!(made.map(drop), Err(TokenError::Life), "{life}");
        }
        let odd = tokens.create(&root, 5, wanted(Role::User, "a b"));
        assert_eq!(odd.map(drop), Err(TokenError::BadUser("a b".to_string())));
        for _ in 0..OF_USER_MAX {
            tokens.create(&root, 5, wanted(Role::User, "ann")).unwrap();
        }
        let more = tokens.create(&root, 5, wanted(Role::User, "ann"));
        assert_eq!(more.map(drop), Err(TokenError::TooMany(OF_USER_MAX)));
        assert!(tokens.create(&root, 5, wanted(Role::User, "bob")).is_ok());
    }
}
