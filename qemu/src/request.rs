//! Requests to a supervisor: one JSON line each way on a unix socket.
//!
//! Key types: [`Request`], [`Reply`]. Neighbours: `lifecycle` asks, `supervisor` answers.
//!
//! Invariant: neither side waits for the other without a limit.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Error, Paths};

/// Longest line of either side: node lists and error texts fit many times.
const MAX_LINE_BYTES: u64 = 65_536;
/// A supervisor answers within this time; switching 256 machines off and on included.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// What can be asked of a supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub(crate) enum Request {
    /// Switch nodes off and on again.
    Reset { nodes: Vec<u32> },
    /// Switch nodes on that are off.
    PowerOn { nodes: Vec<u32> },
    /// Switch nodes off.
    PowerOff { nodes: Vec<u32> },
    /// End the control node and start it again.
    RestartControl,
    /// Start the control node, which does not run.
    StartControl,
    /// End everything.
    Stop,
}

/// The supervisor's answer: nothing, or what went wrong.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Reply {
    pub error: Option<String>,
}

/// Asks a supervisor and waits for its answer.
pub(crate) fn ask(paths: &Paths, request: &Request) -> Result<(), Error> {
    let mut stream =
        UnixStream::connect(paths.supervisor_socket()).map_err(|source| Error::Socket {
            operation: "connecting to the supervisor",
            source,
        })?;
    let reply: Reply = stream
        .set_read_timeout(Some(ANSWER_LIMIT))
        .and_then(|()| stream.set_write_timeout(Some(ANSWER_LIMIT)))
        .and_then(|()| write_line(&mut stream, request))
        .and_then(|()| read_line(&mut stream))
        .map_err(|source| Error::Socket {
            operation: "asking the supervisor",
            source,
        })?;
    match reply.error {
        None => Ok(()),
        Some(message) => Err(Error::Supervisor(message)),
    }
}

/// Writes one value as one line.
pub(crate) fn write_line(stream: &mut impl Write, value: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Reads one value from one line of bounded length.
pub(crate) fn read_line<T: for<'a> Deserialize<'a>>(stream: &mut impl Read) -> std::io::Result<T> {
    let mut line = String::new();
    BufReader::new(stream.take(MAX_LINE_BYTES)).read_line(&mut line)?;
    if line.is_empty() {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_str(&line)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_the_line() {
        let mut line = Vec::new();
        let request = Request::Reset { nodes: vec![3, 4] };
        write_line(&mut line, &request).unwrap();
        assert_eq!(line, b"{\"op\":\"reset\",\"nodes\":[3,4]}\n");
        assert_eq!(read_line::<Request>(&mut line.as_slice()).unwrap(), request);
        assert!(read_line::<Request>(&mut &b""[..]).is_err());
        assert!(read_line::<Request>(&mut &b"{\"op\":\"fly\"}\n"[..]).is_err());
    }
}
