//! Where the control node listens: its unix socket and for whom that is open, and TCP with and
//! without TLS.
//!
//! Neighbours: `serve` puts the API behind them; `people` knows groups.
//!
//! Invariant: without TLS nothing listens but on loopback; the socket is its owner's alone until a
//! group has it.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, bail};

use super::Http;
use crate::config;
use crate::paths::StateDir;
use crate::people::{self, People, Serves};
use crate::tls::Certificate;

/// The certificate of the API with TLS; a line of the log says its fingerprint.
pub(super) fn certificate(state: &StateDir) -> anyhow::Result<Certificate> {
    let made = Certificate::load_or_make(&state.certificate(), &state.certificate_key());
    let certificate = made.context("the API cannot listen with TLS")?;
    tracing::info!(
        "fingerprint of the API's certificate: {}",
        certificate.fingerprint
    );
    Ok(certificate)
}

/// Listens at an address that `option` has given.
pub(super) fn bind(address: SocketAddr, option: &str) -> anyhow::Result<tokio::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address).with_context(|| {
        format!("cannot listen at TCP {address} for the HTTP API; choose another address, or none ({option})")
    })?;
    listener.set_nonblocking(true)?;
    Ok(tokio::net::TcpListener::from_std(listener)?)
}

pub(super) fn tcp_listener(http: &Http) -> anyhow::Result<Option<tokio::net::TcpListener>> {
    let listener = match http {
        Http::None => return Ok(None),
        Http::Address(address) => bind(*address, "--http")?,
        Http::Stdin => {
            let fd = std::io::stdin().as_fd().try_clone_to_owned()?;
            let listener = std::net::TcpListener::from(fd);
            listener.set_nonblocking(true)?;
            tokio::net::TcpListener::from_std(listener)?
        }
    };
    let address = listener
        .local_addr()
        .context("--http-fd: this is not a listening TCP socket")?;
    if !address.ip().is_loopback() {
        bail!(
            "the HTTP API does not listen at {address} without TLS: everybody on the way could read tokens; give that address to --listen (api.listen), and --http (serve.http) one of loopback, or none"
        );
    }
    Ok(Some(listener))
}

/// The group that may open the socket, if there is one; says whom control serves.
pub(super) fn socket_group(people: &People, api: &config::Api) -> Option<u32> {
    let control = people.own_name();
    match people.serves() {
        Serves::Everybody => {
            let group = people::group(&api.group);
            match (group, api.group.as_str()) {
                (Some(_), name) => tracing::info!("members of the group {name} may run jobs"),
                (None, "") => tracing::info!("only root may use the socket: api.group is empty"),
                (None, name) => tracing::info!(
                    "only root may use the socket: there is no group {name} (`groupadd --system {name}`, then `usermod -aG {name} USER` for each user, and start again)"
                ),
            }
            group
        }
        Serves::Operators => {
            // A group that the system lets this user give a file to is one that they are in.
            let group = people::group(&api.operators);
            let group = group.filter(|group| people.own_groups().contains(group));
            let others = group.map_or(String::new(), |_| {
                format!(" and members of the group {}", api.operators)
            });
            tracing::info!(
                "serves {control}, root{others} only: it does not run as root, so it cannot act for other users"
            );
            group
        }
        Serves::Itself => {
            tracing::info!(
                "serves {control} only: in a user namespace nobody else can be told apart"
            );
            None
        }
    }
}

/// Has the members of a group reach the socket: they may pass the folders to it and not list them.
fn open_to_group(state: &StateDir, group: u32) -> anyhow::Result<()> {
    let give = |path: &Path, mode: u32| {
        std::os::unix::fs::chown(path, None, Some(group))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
    };
    let pass = |path: &Path| {
        let mode = std::fs::metadata(path)?.permissions().mode() & 0o777;
        match mode & 0o001 {
            0 => give(path, mode | 0o010),
            // A folder of others, whom everybody may pass already.
            _ => Ok(()),
        }
    };
    let (run, socket) = (state.run(), state.socket());
    let done = pass(state.path()).and_then(|()| pass(&run));
    done.and_then(|()| give(&socket, 0o660))
        .with_context(|| format!("cannot open {} to group {group}", socket.display()))
}

pub(super) fn unix_listener(
    state: &StateDir,
    group: Option<u32>,
) -> anyhow::Result<tokio::net::UnixListener> {
    let path = state.socket();
    remove_stale(&path)?;
    let listener = tokio::net::UnixListener::bind(&path).with_context(|| {
        format!(
            "cannot listen at {}; a socket path holds 107 bytes, so choose a shorter --state-dir",
            path.display()
        )
    })?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    if let Some(group) = group {
        open_to_group(state, group)?;
    }
    Ok(listener)
}

/// Removes the socket of a control node that crashed; the lock says that none runs.
fn remove_stale(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
