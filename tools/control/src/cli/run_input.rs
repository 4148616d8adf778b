//! Standard input of `hearth run` on its way to the job, also over a restart of the control node:
//! what was sent last is kept, since the control node that took it may have died with it.
//!
//! Key type: [`Input`]. Neighbour: `run_session`, which says from where on it is wanted.
//!
//! Invariant: what the control node can hold that the program has not read ([`STDIN_BUFFER_BYTES`],
//! one piece, and what sockets hold) is less than what is kept here.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::Method;
use tokio::io::AsyncReadExt;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::client::{Body, Client};
use crate::jobs::streams::STDIN_BUFFER_BYTES;

/// Bytes that were sent and are kept.
const KEPT_BYTES: usize = 4 * 1024 * 1024;

/// Bytes that are read before they can be sent.
const AHEAD_BYTES: u64 = 64 * 1024;

/// Most bytes of a piece.
const PIECE_BYTES: usize = 16 * 1024;

const _: () = assert!(KEPT_BYTES >= 8 * STDIN_BUFFER_BYTES);

#[derive(Debug, Default)]
struct State {
    /// Where what is kept begins, in bytes from the beginning of the input.
    start: u64,
    kept: VecDeque<u8>,
    /// How far it was sent.
    sent: u64,
    ended: bool,
}

impl State {
    fn end(&self) -> u64 {
        self.start + self.kept.len() as u64
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }

    fn take_in(&self, piece: &[u8]) {
        let mut state = self.lock();
        state.kept.extend(piece);
        let surplus = state.kept.len().saturating_sub(KEPT_BYTES);
        let sent = usize::try_from(state.sent - state.start).unwrap_or(usize::MAX);
        let goes = surplus.min(sent);
        state.kept.drain(..goes);
        state.start += goes as u64;
        state.ended = piece.is_empty();
        drop(state);
        self.changed.send_replace(());
    }

    /// The next piece from `at` on; None while there is none, an empty one at the end.
    fn piece(&self, at: u64) -> Option<Bytes> {
        let mut state = self.lock();
        let skip = usize::try_from(at.checked_sub(state.start)?).ok()?;
        let range = skip..state.kept.len().min(skip.saturating_add(PIECE_BYTES));
        if range.is_empty() {
            return state.ended.then(Bytes::new);
        }
        let piece: Vec<u8> = state.kept.range(range).copied().collect();
        state.sent = state.sent.max(at + piece.len() as u64);
        drop(state);
        self.changed.send_replace(());
        Some(Bytes::from(piece))
    }
}

/// Standard input, read as fast as it is sent.
#[derive(Debug)]
pub struct Input {
    shared: Arc<Shared>,
    sending: Option<JoinHandle<()>>,
}

impl Input {
    /// Begins to read.
    pub fn of(mut reader: impl tokio::io::AsyncRead + Unpin + Send + 'static) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: watch::Sender::new(()),
        });
        let of_reader = shared.clone();
        tokio::spawn(async move {
            let mut changed = of_reader.changed.subscribe();
            let mut piece = vec![0; PIECE_BYTES];
            loop {
                changed.mark_unchanged();
                let is_ahead = {
                    let state = of_reader.lock();
                    state.end() - state.sent >= AHEAD_BYTES
                };
                if is_ahead {
                    if changed.changed().await.is_err() {
                        return;
                    }
                    continue;
                }
                // What cannot be read is the end, as for a pipe.
                let count = reader.read(&mut piece).await.unwrap_or(0);
                of_reader.take_in(&piece[..count]);
                if count == 0 {
                    return;
                }
            }
        });
        Input {
            shared,
            sending: None,
        }
    }

    /// Sends it to a job, from a byte on, in place of what was being sent; whether that is
    /// possible.
    pub fn send(&mut self, client: &Client, id: u64, from: u64) -> bool {
        if let Some(before) = self.sending.take() {
            before.abort();
        }
        let kept = {
            let state = self.shared.lock();
            (state.start..=state.end()).contains(&from)
        };
        if !kept {
            return false;
        }
        let body = body(self.shared.clone(), from);
        let (client, path) = (client.clone(), format!("/v1/jobs/{id}/stdin"));
        self.sending = Some(tokio::spawn(async move {
            // A job that ends without reading all of its input is not an error.
            drop(client.send(Method::POST, &path, body).await);
        }));
        true
    }
}

fn body(shared: Arc<Shared>, from: u64) -> Body {
    let changed = shared.changed.subscribe();
    let pieces = futures_util::stream::unfold(
        (shared, changed, from),
        |(shared, mut changed, at)| async move {
            loop {
                changed.mark_unchanged();
                match shared.piece(at) {
                    Some(piece) if piece.is_empty() => return None,
                    Some(piece) => {
                        let after = at + piece.len() as u64;
                        let frame = Ok(hyper::body::Frame::data(piece));
                        return Some((frame, (shared, changed, after)));
                    }
                    None => changed.changed().await.ok()?,
                }
            }
        },
    );
    StreamBody::new(pieces).boxed_unsync()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(body: Body) -> Vec<u8> {
        body.collect().await.unwrap().to_bytes().to_vec()
    }

    #[tokio::test]
    async fn what_was_sent_can_be_sent_again_from_any_byte() {
        let bytes: Vec<u8> = (0..200_000_u32).map(|at| (at / 7) as u8).collect();
        let input = Input::of(std::io::Cursor::new(bytes.clone()));
        assert_eq!(all(body(input.shared.clone(), 0)).await, bytes);
        assert_eq!(
            all(body(input.shared.clone(), 70_001)).await,
            bytes[70_001..]
        );
        assert!(all(body(input.shared.clone(), 200_000)).await.is_empty());
    }

    #[tokio::test]
    async fn what_is_kept_is_bounded_and_too_old_is_said() {
        let bytes = vec![7; KEPT_BYTES + 3 * PIECE_BYTES];
        let mut input = Input::of(std::io::Cursor::new(bytes.clone()));
        assert_eq!(all(body(input.shared.clone(), 0)).await.len(), bytes.len());
        let start = input.shared.lock().start;
        assert!(start > 0 && input.shared.lock().kept.len() <= KEPT_BYTES + PIECE_BYTES);
        let client = Client::new("/nowhere".into());
        assert!(!input.send(&client, 1, start - 1));
        assert!(input.send(&client, 1, start));
    }
}
