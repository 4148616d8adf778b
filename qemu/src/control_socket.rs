//! One question to the control node: which nodes have joined.
//!
//! Key function: [`joined`]. Neighbours: `lifecycle` asks while a cluster comes up, `supervisor`
//! to see that control is ready.
//!
//! Invariant: control is asked, never told; a control node that does not answer delays this by a
//! bounded time only.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

/// Control answers this from memory; a busy machine may take a while.
const LIMIT: Duration = Duration::from_secs(10);
/// Longest answer taken: 256 nodes at far more than a status takes.
const MAX_ANSWER_BYTES: u64 = 4_000_000;

/// What matters here of a node's status.
#[derive(Debug, Deserialize)]
struct NodeStatus {
    name: String,
    state: String,
}

/// Whether something listens on control's socket.
pub(crate) fn is_ready(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}

/// Names of the nodes that are in service.
pub(crate) fn joined(socket: &Path) -> io::Result<Vec<String>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    // HTTP/1.0: the answer is not chunked and ends with the connection.
    stream.write_all(
        b"GET /v1/nodes HTTP/1.0\r\nHost: control\r\nAccept: application/json\r\n\r\n",
    )?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer)?;
    parse(&answer)
}

fn parse(answer: &[u8]) -> io::Result<Vec<String>> {
    let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let split = answer
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .ok_or_else(|| bad("control's answer has no end of headers"))?;
    let (head, body) = (&answer[..split], &answer[split + 4..]);
    let status = head.split(|&byte| byte == b' ').nth(1);
    if status != Some(b"200") {
        let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
        return Err(bad(&format!(
            "control answered {}",
            String::from_utf8_lossy(line)
        )));
    }
    let nodes: Vec<NodeStatus> = serde_json::from_slice(body)?;
    let in_service = |node: &NodeStatus| matches!(node.state.as_str(), "idle" | "busy");
    Ok(nodes
        .into_iter()
        .filter(in_service)
        .map(|node| node.name)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_in_service_are_counted() {
        let answer = b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n\
            [{\"name\":\"n0\",\"state\":\"idle\",\"x\":1},{\"name\":\"n1\",\"state\":\"lost\"},\
             {\"name\":\"n2\",\"state\":\"busy\"}]";
        assert_eq!(parse(answer).unwrap(), ["n0", "n2"]);
    }

    #[test]
    fn other_answers_are_errors() {
        assert!(
            parse(b"HTTP/1.0 500 Oops\r\n\r\n[]")
                .unwrap_err()
                .to_string()
                .contains("500")
        );
        assert!(parse(b"HTTP/1.0 200 OK\r\n").is_err());
        assert!(parse(b"HTTP/1.0 200 OK\r\n\r\nnot json").is_err());
    }
}
