//! `GET /v1/monitor/csv`: ticks or roll-ups as CSV, however many, in pieces as the client takes
//! them.
//!
//! Key item: [`export`]. Neighbour: `hearth_monitor::csv` makes the text.
//!
//! Invariants: downloads have places of their own, so that one whose client sleeps is in no
//! question's way; a client that takes no piece for [`PATIENCE`] loses its download; memory is
//! bounded by [`PIECES`]; an answer that is not whole ends as a broken one.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hearth_monitor::{Reader, csv};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use super::Question;
use crate::api::Refusal;
use crate::hostlist;
use crate::monitor::{EXPORTS_MAX, Monitor};

/// Pieces that may wait for a slow client.
const PIECES: usize = 8;
/// Bytes of a piece.
const PIECE_BYTES: usize = 64 * 1024;
/// How long a client may take no piece.
const PATIENCE: Duration = Duration::from_secs(30);

/// Ticks or roll-ups as CSV.
#[utoipa::path(get, path = "/v1/monitor/csv", tag = "monitor", params(("metrics" = Option<String>, Query, description = "Names, separated by commas; none: all"), ("nodes" = Option<String>, Query, description = "A node list; none: all"), ("from" = Option<u64>, Query, description = "Milliseconds since 1970"), ("to" = Option<u64>, Query, description = "Milliseconds since 1970"), ("points" = Option<u64>, Query, description = "At most so many of a node: 1 to 5000, 600 by default", minimum = 1, maximum = 5000), ("level" = Option<String>, Query, description = "tick, minute or hour")), responses((status = 200, body = String, content_type = "text/csv")))]
pub async fn export(
    State(monitor): State<Arc<Monitor>>,
    Query(question): Query<Question>,
) -> Result<Response, Refusal> {
    let (checked, metrics) = (question.check(&monitor)?, question.several(&monitor)?);
    let place = monitor.exports.clone().try_acquire_owned();
    let place = place.map_err(|_| {
        let text = format!("{EXPORTS_MAX} downloads are under way: ask again when one is over");
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "busy", text)
    })?;
    let place = Arc::new(place);
    let checked = checked.there(&monitor, Some(&place)).await?;
    let name = format!(
        "attachment; filename=\"hearth-{}.csv\"",
        csv::time(checked.span.to_ms).replace([':', '.'], "-")
    );
    let (sender, pieces) = mpsc::channel(PIECES);
    let (over, end) = oneshot::channel();
    let pipe = Pipe {
        runtime: Handle::current(),
        sender,
        patience: PATIENCE,
        broken: false,
    };
    let telling = monitor.clone();
    tokio::task::spawn_blocking(move || {
        let _place = place;
        let mut out = io::BufWriter::with_capacity(PIECE_BYTES, pipe);
        let reader = Reader::new(&checked.dir);
        let (level, span) = (checked.level, checked.span);
        let (nodes, name) = (checked.nodes(), &hostlist::name);
        let done = csv::export(&reader, level, span, nodes, &metrics, name, &mut out);
        let done = done.map_err(io::Error::other).and_then(|_| out.flush());
        // Whole but for files that are damaged, of which an event tells.
        telling.tell_damaged(&reader.damaged());
        // Before the last piece is taken: the sender goes with `out`. Nobody waits for it: no
        // error.
        drop(over.send(done));
    });
    let head = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8".to_string()),
        (header::CONTENT_DISPOSITION, name),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_string()),
    ];
    Ok((head, Body::from_stream(body(pieces, end))).into_response())
}

/// The pieces; after the last one an error, if they are not all.
fn body(
    pieces: mpsc::Receiver<Bytes>,
    end: oneshot::Receiver<io::Result<()>>,
) -> impl futures_util::Stream<Item = io::Result<Bytes>> {
    let state = (pieces, Some(end));
    futures_util::stream::unfold(state, |(mut pieces, mut end)| async move {
        if let Some(piece) = pieces.recv().await {
            return Some((Ok(piece), (pieces, end)));
        }
        let end = end
            .take()?
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()));
        let error = end.err()?;
        Some((Err(error), (pieces, None)))
    })
}

/// Bytes to the body of an answer.
struct Pipe {
    runtime: Handle,
    sender: mpsc::Sender<Bytes>,
    patience: Duration,
    /// The client went away or sleeps: nothing is tried again.
    broken: bool,
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.broken {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let piece = Bytes::copy_from_slice(bytes);
        let sent = self.sender.send_timeout(piece, self.patience);
        let sent = self.runtime.block_on(sent);
        self.broken = sent.is_err();
        sent.map_err(|_| io::ErrorKind::TimedOut)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::StreamExt;

    #[tokio::test]
    async fn a_client_that_sleeps_loses_its_download_and_the_thread_goes_on() {
        let (sender, pieces) = mpsc::channel(1);
        let (over, end) = oneshot::channel();
        let mut pipe = Pipe {
            runtime: Handle::current(),
            sender,
            patience: Duration::from_millis(20),
            broken: false,
        };
        let thread = tokio::task::spawn_blocking(move || {
            let first = pipe.write(b"first").map(|_| ());
            let second = pipe.write(b"second").map(|_| ());
            let kinds = [first, second].map(|result| result.map_err(|error| error.kind()));
            let again = pipe.write(b"third").map(|_| ());
            over.send(again).unwrap();
            kinds
        });
        let kinds = thread.await.unwrap();
        assert_eq!(kinds, [Ok(()), Err(io::ErrorKind::TimedOut)]);
        let taken: Vec<_> = body(pieces, end).collect().await;
        assert_eq!(taken[0].as_ref().unwrap(), "first");
        assert!(taken[1].is_err(), "the answer looks whole");
        assert_eq!(taken.len(), 2);
    }
}
