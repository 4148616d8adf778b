//! `hearth token`: tokens for the control node over the network.
//!
//! Neighbour: `api::tokens`.

use std::net::SocketAddr;

use clap::{Args, Subcommand};

use super::{Global, block_on, print_json, print_text, table};
use crate::api::types::{TokenInfo, TokenMade, TokenRequest};
use crate::principal::Role;

/// Options of `hearth token`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a token, and show it this once
    #[command(after_help = "\
On another machine: `export HEARTH_HOST=ADDRESS:PORT HEARTH_FINGERPRINT=... HEARTH_TOKEN=...`, or the token in
~/.config/hearth/token (chmod 600). The control node listens where `hearth serve --listen` says.")]
    Create(CreateOptions),
    /// List the tokens that are good: yours, or all of them for an operator
    List,
    /// Have a token be good no more
    Revoke(RevokeOptions),
}

/// Options of `hearth token create`.
#[derive(Debug, Args)]
pub struct CreateOptions {
    /// What it is good for: looking, running jobs, everything.
    #[arg(long, value_enum, value_name = "ROLE")]
    role: Role,
    /// Whom it stands for; only operators name others [default: who makes it].
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// For how long it is good, as in 12h or 30d [default: until it is revoked].
    #[arg(long, value_name = "TIME", value_parser = super::job_options::time_limit)]
    expires: Option<u64>,
}

/// Options of `hearth token revoke`.
#[derive(Debug, Args)]
pub struct RevokeOptions {
    /// Its number.
    #[arg(value_name = "TOKEN", value_parser = number)]
    id: u64,
}

fn number(text: &str) -> Result<u64, &'static str> {
    let wrong = "write a token's number, as in 3; `hearth token list` shows them";
    text.parse().map_err(|_| wrong)
}

/// Runs the command.
///
/// # Errors
/// What the control node refused.
pub fn main(global: &Global, options: Options) -> anyhow::Result<()> {
    match options.command {
        Command::Create(options) => create(global, options),
        Command::List => list(global),
        Command::Revoke(options) => revoke(global, options.id),
    }
}

fn create(global: &Global, options: CreateOptions) -> anyhow::Result<()> {
    let request = TokenRequest {
        role: options.role,
        user: options.user.unwrap_or_default(),
        life_s: options.expires.filter(|seconds| *seconds > 0),
    };
    let client = global.client()?;
    let made: TokenMade = block_on(async { Ok(client.post("/v1/tokens", &request).await?) })?;
    if global.json {
        return print_json(&made);
    }
    print_text(&format!("{}\n", made.token))?;
    let TokenInfo { id, role, user, .. } = &made.info;
    crate::output::say_line(format_args!(
        "token {id} stands for {user} with the role {role}; it is not shown again, and `hearth token revoke {id}` ends it"
    ));
    let hint = match (&made.listen, &made.fingerprint) {
        (Some(listen), Some(fingerprint)) => {
            let host = reached_at(listen);
            format!("elsewhere: HEARTH_HOST={host} HEARTH_FINGERPRINT={fingerprint}")
        }
        _ => "this control node does not listen on the network: start it with `hearth serve --listen ADDRESS:PORT`, or set api.listen".to_string(),
    };
    crate::output::say_line(format_args!("{hint}"));
    Ok(())
}

/// By what others reach a control node that listens there: one that listens at all addresses of its
/// machine has no single one.
fn reached_at(listen: &str) -> String {
    match listen.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_unspecified() => {
            format!("ADDRESS-OF-THIS-MACHINE:{}", address.port())
        }
        _ => listen.to_string(),
    }
}

fn list(global: &Global) -> anyhow::Result<()> {
    let client = global.client()?;
    let tokens: Vec<TokenInfo> = block_on(async { Ok(client.get("/v1/tokens").await?) })?;
    if global.json {
        return print_json(&tokens);
    }
    let now = crate::clock::unix_us();
    let mut rows = table::new(&["TOKEN", "ROLE", "USER", "MADE BY", "MADE", "EXPIRES"]);
    for token in &tokens {
        let expires = match token.expires_unix_us {
            None => "never".to_string(),
            Some(at) if at <= now => "has expired".to_string(),
            Some(at) => crate::clock::rfc3339(at),
        };
        rows.add_row([
            token.id.to_string(),
            token.role.clone(),
            table::short_name(&token.user),
            table::short_name(&token.made_by),
            crate::clock::rfc3339(token.made_unix_us),
            expires,
        ]);
    }
    print_text(&table::text(&rows))
}

fn revoke(global: &Global, id: u64) -> anyhow::Result<()> {
    let client = global.client()?;
    let path = format!("/v1/tokens/{id}/revoke");
    let nothing = serde_json::json!({});
    let gone: TokenInfo = block_on(async { Ok(client.post(&path, &nothing).await?) })?;
    if global.json {
        return print_json(&gone);
    }
    let TokenInfo { role, user, .. } = gone;
    print_text(&format!("token {id} of {user} ({role}) is good no more\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_that_others_reach() {
        for (listen, host) in [
            ("0.0.0.0:7182", "ADDRESS-OF-THIS-MACHINE:7182"),
            ("[::]:80", "ADDRESS-OF-THIS-MACHINE:80"),
            ("10.0.0.1:7182", "10.0.0.1:7182"),
        ] {
            assert_eq!(reached_at(listen), host);
        }
        assert_eq!(number("3"), Ok(3));
        assert!(number("x").unwrap_err().contains("token list"));
    }
}
