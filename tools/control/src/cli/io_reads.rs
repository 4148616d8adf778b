//! Files that many nodes read at once from a service on another machine: they are sent to the
//! control node, which has them cast.
//!
//! Neighbours: `super::io` is the service, `io_service::reads` answers.
//!
//! Invariant: each file that the service hands over has an answer, also where the control node does
//! not: nodes go on reading from the service then.

use std::fs::File;
use std::io::{Seek as _, copy};
use std::net::SocketAddrV4;
use std::sync::Arc;

use hearth_io::{Cast, Read, Service};
use hyper::Method;
use netstack::files::CastObject;
use netstack::ids::NodeId;

use crate::client::{self, Client};
use crate::io_service::reads::{ReadAnswer, ReadFile};
use crate::{blocking, secrets};

/// Files that wait for being sent.
const WAITING_MAX: usize = 4;

/// Sends what the service hands over, as long as there is one. To be called inside a runtime.
pub fn start(client: Client, service: Arc<Service>, address: SocketAddrV4) {
    let Some(reads) = service.reads() else {
        return;
    };
    let (hands_on, mut handed) = tokio::sync::mpsc::channel(WAITING_MAX);
    std::thread::spawn(move || {
        for read in reads {
            if hands_on.blocking_send(read).is_err() {
                return;
            }
        }
    });
    tokio::spawn(async move {
        while let Some(read) = handed.recv().await {
            let (job, number, nodes) = (read.job, read.number, read.nodes.clone());
            let object = send(&client, read, address).await.unwrap_or_else(|error| {
                tracing::warn!("what nodes of job {} read is not cast: {error:#}", job.0);
                None
            });
            let cast = Cast {
                number,
                object,
                nodes,
            };
            service.cast(job, cast);
        }
    });
}

/// Has a file cast; what is, if anything.
async fn send(
    client: &Client,
    read: Read,
    address: SocketAddrV4,
) -> anyhow::Result<Option<CastObject>> {
    let object = match read.content {
        None => None,
        Some((file, bytes)) => {
            let (file, object) = blocking::run(move || hash(file)).await?;
            let known = client
                .send(Method::GET, &path(&object), client::empty())
                .await;
            if known.is_err() {
                let body = client::streamed(tokio::fs::File::from_std(file));
                client
                    .send_sized(Method::PUT, &path(&object), body, bytes)
                    .await?;
            }
            Some(object)
        }
    };
    let request = ReadFile {
        service: address.to_string(),
        job: read.job.0,
        number: read.number,
        object,
        nodes: read.nodes.iter().map(|NodeId(node)| *node).collect(),
    };
    let answer: ReadAnswer = client.post("/v1/io/reads", &request).await?;
    let id = answer.object.as_deref().and_then(secrets::decode_hex);
    Ok(id.map(|id| CastObject {
        id,
        bytes: answer.bytes,
    }))
}

fn path(object: &str) -> String {
    format!("/v1/programs/{object}")
}

/// The BLAKE3 hash of a file, in hexadecimal; the file is at its begin again.
fn hash(mut file: File) -> std::io::Result<(File, String)> {
    let mut hasher = blake3::Hasher::new();
    file.rewind()?;
    copy(&mut file, &mut hasher)?;
    file.rewind()?;
    let hash = hasher.finalize();
    Ok((file, secrets::encode_hex(hash.as_bytes())))
}
