//! The engines without a cluster, as ordinary processes on ordinary UDP sockets: `hearth send` and
//! `hearth receive`, the source and the members of one broadcast, and `hearth exchange`, the ranks
//! of an all-to-all exchange.
//!
//! Key types: [`send::Sender`], [`receive::Receiver`], [`exchange::Station`] (all driven by
//! [`crate::udp::drive`]). Neighbours: `cli::hosted` (options and words), `casts::object` (hashes),
//! `netstack::broadcast` (all protocol).
//!
//! Who has the key may send and receive; nothing here knows users. Invariant: a file appears under
//! its name only when all of it is there and checked.

pub mod exchange;
pub mod receive;
pub mod send;
mod store;

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, UdpSocket};
use std::process::Command;

use anyhow::{Context, bail};

/// Where a receiver listens unless told otherwise.
pub const PORT: u16 = 7119;

/// Most bytes of a name: the protocol's bound.
const NAME_MAX: usize = netstack::broadcast::MAX_NAME;

/// `HOST`, `HOST:PORT`: the first IPv4 address it has.
///
/// # Errors
/// For people.
pub fn resolve(text: &str) -> anyhow::Result<SocketAddrV4> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => {
            let port: Option<u16> = port.parse().ok();
            let port = port.with_context(|| format!("{text:?}: a port is a number up to 65535"))?;
            (host, port)
        }
        None => (text, PORT),
    };
    let address = host.parse().ok().or_else(|| look_up(host));
    let address = address.with_context(|| {
        format!("{text:?} is neither an IPv4 address nor a host that has one; write ADDRESS:PORT")
    })?;
    Ok(SocketAddrV4::new(address, port))
}

/// The first IPv4 address of a host. The system's own `getent` is asked: a statically linked
/// program cannot load the modules by which a system may know hosts (mDNS, LDAP).
fn look_up(host: &str) -> Option<Ipv4Addr> {
    let output = Command::new("getent")
        .args(["ahostsv4", "--", host])
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// The address of this machine that others see when it sends to `to`.
///
/// # Errors
/// There is no way to it.
pub fn own_address(to: SocketAddrV4) -> anyhow::Result<Ipv4Addr> {
    let ask = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(to)?;
        socket.local_addr()
    };
    match ask()
        .with_context(|| format!("there is no way to {to}"))?
        .ip()
    {
        IpAddr::V4(address) => Ok(address),
        IpAddr::V6(_) => bail!("there is no IPv4 way to {to}"),
    }
}

/// Why a name of a file is not taken: it must be one that stays in its folder, and that a terminal
/// can show.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} cannot be the name of a file that is cast: 1 to {NAME_MAX} bytes, without '/' and control characters, and not `.` or `..`; choose one with --name"
)]
pub struct BadName(pub String);

/// Checks a name, wherever it comes from.
///
/// # Errors
/// [`BadName`].
pub fn check_name(name: &str) -> Result<(), BadName> {
    let sound = (1..=NAME_MAX).contains(&name.len())
        && !matches!(name, "." | "..")
        && !name
            .chars()
            .any(|letter| letter == '/' || letter.is_control());
    if sound {
        Ok(())
    } else {
        Err(BadName(name.to_string()))
    }
}

/// Why a name of a file is not taken by `hearth receive`, which writes it into a folder of
/// somebody's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotReceived {
    /// No file can have it.
    #[error(transparent)]
    Bad(#[from] BadName),
    /// The file would be hidden, as those are that steer other programs.
    #[error(
        "{0:?} begins with a dot, as files do that steer other programs: `hearth receive` does not take it; choose another name with --name"
    )]
    Hidden(String),
}

/// Checks the name of a file that is to be received.
///
/// # Errors
/// [`NotReceived`].
pub fn check_received(name: &str) -> Result<(), NotReceived> {
    check_name(name)?;
    match name.starts_with('.') {
        true => Err(NotReceived::Hidden(name.to_string())),
        false => Ok(()),
    }
}

/// A number for random choices, another for each process. Where the system has none, the clock must
/// do: nothing secret comes of it.
fn seed() -> u64 {
    let mut bytes = [0; 8];
    match getrandom::fill(&mut bytes) {
        Ok(()) => u64::from_le_bytes(bytes),
        Err(_) => crate::clock::unix_us() ^ u64::from(std::process::id()) << 32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_their_folder() {
        for good in [
            "a",
            "data.bin",
            "..data",
            "ünïcode",
            "two words",
            &"x".repeat(128),
        ] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "/etc/passwd",
            "../x",
            "a\nb",
            "a\0b",
            "\u{1b}[2J",
            &"x".repeat(129),
        ] {
            let error = check_name(bad).unwrap_err().to_string();
            assert!(
                error.contains("--name") && !error.contains('\u{1b}'),
                "{error}"
            );
        }
    }

    #[test]
    fn hidden_names_are_not_received() {
        assert_eq!(check_received("data.bin"), Ok(()));
        for hidden in [".bashrc", ".ssh", "..data"] {
            let error = check_received(hidden).unwrap_err().to_string();
            assert!(error.contains("--name"), "{error}");
        }
        assert!(matches!(check_received("../x"), Err(NotReceived::Bad(_))));
    }

    #[test]
    fn addresses_have_a_default_port() {
        assert_eq!(
            resolve("10.0.0.7").unwrap(),
            "10.0.0.7:7119".parse().unwrap()
        );
        assert_eq!(
            resolve("10.0.0.7:80").unwrap(),
            "10.0.0.7:80".parse().unwrap()
        );
        assert!(
            resolve("10.0.0.7:x")
                .unwrap_err()
                .to_string()
                .contains("port")
        );
        assert_eq!(
            resolve("localhost:80").unwrap(),
            "127.0.0.1:80".parse().unwrap()
        );
        let unknown = resolve("no such host").unwrap_err().to_string();
        assert!(unknown.contains("neither an IPv4 address"), "{unknown}");
        assert_eq!(
            own_address("127.0.0.1:9".parse().unwrap()).unwrap(),
            Ipv4Addr::LOCALHOST
        );
    }
}
