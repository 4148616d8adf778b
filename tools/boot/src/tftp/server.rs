//! All transfers together: who may start one, and whose turn it is to send.

use super::packet::{self, ErrorCode, Packet};
use super::session::{Outcome, Session};
use axum::body::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Bound;
use std::time::Duration;

/// Transfers at one time. Every machine of four full racks may ask at once; the files are shared,
/// so that a transfer costs some hundred bytes.
const MAX_SESSIONS: usize = 256;
/// Transfers at one time of one address: firmware has one, two when it repeats a request under a
/// new port.
const MAX_SESSIONS_PER_CLIENT: usize = 4;
/// Error packets waiting to be sent; more are dropped, the clients repeat their requests.
const MAX_ERRORS: usize = 64;

/// What may be read.
pub trait Files {
    /// The content of `name` for the machine at `client`. The name is a plain file name.
    ///
    /// # Errors
    /// The reason, which is sent to the machine and reported.
    fn open(&self, client: Ipv4Addr, name: &str) -> Result<Bytes, String>;
}

/// A transfer that ended, or was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    pub client: SocketAddrV4,
    pub file: String,
    pub outcome: Outcome,
}

/// All transfers of the service. A transfer is known by its client's address and port; the service
/// sends all of them from one port of its own.
#[derive(Debug, Default)]
pub struct Server {
    sessions: BTreeMap<SocketAddrV4, (String, Session)>,
    /// The client served last, so that all get their turn.
    last_served: Option<SocketAddrV4>,
    errors: VecDeque<(SocketAddrV4, Vec<u8>)>,
    finished: VecDeque<Finished>,
}

impl Server {
    pub fn new() -> Server {
        Server::default()
    }

    /// Takes one datagram.
    pub fn handle(&mut self, now: Duration, from: SocketAddrV4, bytes: &[u8], files: &dyn Files) {
        match packet::parse(bytes) {
            Some(Packet::Read {
                file,
                octet,
                options,
            }) => {
                let repeated = self
                    .sessions
                    .get(&from)
                    .is_some_and(|(name, session)| *name == file && session.is_fresh());
                if repeated {
                    return;
                }
                match self.admit(from, &file, octet, files) {
                    Ok(content) => {
                        let session = Session::new(now, content, options);
                        self.sessions.insert(from, (file, session));
                    }
                    Err((code, reason)) => self.refuse(from, file, code, reason),
                }
            }
            Some(Packet::Write) => {
                let text = "files are only read here";
                self.queue_error(from, packet::error(ErrorCode::AccessViolation, text));
            }
            Some(packet) => match self.sessions.get_mut(&from) {
                Some((_, session)) => {
                    session.handle(now, packet);
                    self.reap(from);
                }
                None if matches!(packet, Packet::Ack { .. }) => {
                    let text = "no such transfer";
                    self.queue_error(from, packet::error(ErrorCode::UnknownTransfer, text));
                }
                None => {}
            },
            None => {}
        }
    }

    /// The next datagram to send now, with its destination.
    pub fn poll_transmit(&mut self, now: Duration) -> Option<(SocketAddrV4, Vec<u8>)> {
        if let Some(error) = self.errors.pop_front() {
            return Some(error);
        }
        let after = self.last_served.map_or(Bound::Unbounded, Bound::Excluded);
        let turn: Vec<SocketAddrV4> = self
            .sessions
            .range((after, Bound::Unbounded))
            .chain(self.sessions.iter())
            .take(self.sessions.len())
            .map(|(client, _)| *client)
            .collect();
        for client in turn {
            let Some((_, session)) = self.sessions.get_mut(&client) else {
                continue;
            };
            let packet = session.poll_transmit(now);
            self.reap(client);
            if let Some(packet) = packet {
                self.last_served = Some(client);
                return Some((client, packet));
            }
        }
        None
    }

    /// When [`Self::poll_transmit`] has something to do next without a new packet.
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.sessions
            .values()
            .map(|(_, session)| session.deadline())
            .min()
    }

    /// The next transfer that ended.
    pub fn poll_finished(&mut self) -> Option<Finished> {
        self.finished.pop_front()
    }

    fn admit(
        &self,
        from: SocketAddrV4,
        file: &str,
        octet: bool,
        files: &dyn Files,
    ) -> Result<Bytes, (ErrorCode, String)> {
        if !octet {
            let reason = "only octet mode is served".to_owned();
            return Err((ErrorCode::IllegalOperation, reason));
        }
        let name = plain_name(file).ok_or_else(|| {
            let reason = "only plain file names are served, without directories".to_owned();
            (ErrorCode::AccessViolation, reason)
        })?;
        let replaces = usize::from(self.sessions.contains_key(&from));
        let first = SocketAddrV4::new(*from.ip(), 0);
        let last = SocketAddrV4::new(*from.ip(), u16::MAX);
        let own = self.sessions.range(first..=last).count() - replaces;
        if own >= MAX_SESSIONS_PER_CLIENT || self.sessions.len() - replaces >= MAX_SESSIONS {
            let reason = "too many transfers at once; ask again in a few seconds".to_owned();
            return Err((ErrorCode::Undefined, reason));
        }
        files
            .open(*from.ip(), name)
            .map_err(|reason| (ErrorCode::FileNotFound, reason))
    }

    fn refuse(&mut self, from: SocketAddrV4, file: String, code: ErrorCode, reason: String) {
        self.queue_error(from, packet::error(code, &reason));
        self.finish(Finished {
            client: from,
            file,
            outcome: Outcome::Failed(reason),
        });
    }

    fn queue_error(&mut self, to: SocketAddrV4, packet: Vec<u8>) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push_back((to, packet));
        }
    }

    /// Removes the session if it ended.
    fn reap(&mut self, client: SocketAddrV4) {
        let Some((_, session)) = self.sessions.get(&client) else {
            return;
        };
        let Some(outcome) = session.outcome().cloned() else {
            return;
        };
        if let Some((file, _)) = self.sessions.remove(&client) {
            self.finish(Finished {
                client,
                file,
                outcome,
            });
        }
    }

    fn finish(&mut self, finished: Finished) {
        if self.finished.len() >= MAX_SESSIONS {
            self.finished.pop_front();
        }
        self.finished.push_back(finished);
    }
}

/// The file name without the leading `/` that some firmware puts there; `None` if it has
/// directories.
fn plain_name(file: &str) -> Option<&str> {
    let name = file.strip_prefix('/').unwrap_or(file);
    let plain = !name.is_empty()
        && !name.starts_with('.')
        && !name
            .chars()
            .any(|c| matches!(c, '/' | '\\' | ':') || c.is_control());
    plain.then_some(name)
}
