//! Two questions to the control node: which nodes have joined, and which can never join.
//!
//! Key functions: [`joined`], [`refused`]. Neighbours: `lifecycle` asks while a cluster comes up,
//! `supervisor` to see that control is ready.
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

/// What matters here of an event.
#[derive(Debug, Deserialize)]
struct Event {
    kind: String,
    text: String,
}

/// The kind of the event that says that a node speaks another version of the protocol. It tries on,
/// and is refused each time.
const FOREIGN_VERSION: &str = "refused-protocol";

/// Whether something listens on control's socket.
pub(crate) fn is_ready(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}

/// Names of the nodes that are in service.
pub(crate) fn joined(socket: &Path) -> io::Result<Vec<String>> {
    let nodes: Vec<NodeStatus> = serde_json::from_slice(body(&ask(socket, "/v1/nodes")?)?)?;
    let in_service = |node: &NodeStatus| matches!(node.state.as_str(), "idle" | "busy");
    let nodes = nodes.into_iter().filter(in_service);
    Ok(nodes.map(|node| node.name).collect())
}

/// Why a node was refused that will be refused for ever, if there is one.
pub(crate) fn refused(socket: &Path) -> io::Result<Option<String>> {
    let events: Vec<Event> = serde_json::from_slice(body(&ask(socket, "/v1/events")?)?)?;
    let mut refused = events
        .into_iter()
        .filter(|event| event.kind == FOREIGN_VERSION);
    Ok(refused.next().map(|event| event.text))
}

fn ask(socket: &Path, path: &str) -> io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    // HTTP/1.0: the answer is not chunked and ends with the connection.
    let request =
        format!("GET {path} HTTP/1.0\r\nHost: control\r\nAccept: application/json\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer)?;
    Ok(answer)
}

/// What an answer brings, where it is a good one.
fn body(answer: &[u8]) -> io::Result<&[u8]> {
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
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A control node that answers one question.
    fn answering(name: &str, answer: &'static str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("hearth-socket-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join(name);
        let _ = std::fs::remove_file(&path);
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).unwrap();
            let _ = write!(stream, "HTTP/1.0 200 OK\r\n\r\n{answer}");
        });
        path
    }

    #[test]
    fn nodes_in_service_are_counted() {
        let nodes = r#"[{"name":"n0","state":"idle","x":1},{"name":"n1","state":"lost"},
            {"name":"n2","state":"busy"}]"#;
        assert_eq!(joined(&answering("nodes", nodes)).unwrap(), ["n0", "n2"]);
    }

    #[test]
    fn a_node_that_speaks_another_version_is_told_of() {
        let none = r#"[{"kind":"node-joined","text":"n0 has joined","number":1}]"#;
        assert_eq!(refused(&answering("none", none)).unwrap(), None);
        let one = r#"[{"kind":"node-joined","text":"n0 has joined"},
            {"kind":"refused-protocol","text":"n1 is older"}]"#;
        let told = refused(&answering("one", one)).unwrap();
        assert_eq!(told.as_deref(), Some("n1 is older"));
    }

    #[test]
    fn other_answers_are_errors() {
        let failed = body(b"HTTP/1.0 500 Oops\r\n\r\n[]").unwrap_err();
        assert!(failed.to_string().contains("500"));
        assert!(body(b"HTTP/1.0 200 OK\r\n").is_err());
        assert!(joined(&answering("no-json", "not json")).is_err());
    }
}
