//! Programs: whether control has one, and taking one in. Neighbour: `crate::programs`.

use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use futures_util::StreamExt;

use super::types::Size;
use super::{Api, Refusal};
use crate::principal::By;
use crate::programs::{Hash, StoreError, Upload};
use crate::secrets;

/// How long an upload may bring nothing.
const UPLOAD_PATIENCE: Duration = Duration::from_secs(60);

/// The hash in a path.
pub(super) fn parse_hash(text: &str) -> Result<Hash, Refusal> {
    secrets::decode_hex(text).ok_or_else(|| {
        Refusal::bad_request("a program id is 64 hexadecimal digits, the BLAKE3 hash of its file")
    })
}

/// The refusal for a program that has not been sent.
pub(super) fn unknown_program(hash: &Hash) -> Refusal {
    let id = secrets::encode_hex(hash);
    let error = format!("program {id} is not here; send it with PUT /v1/programs/{id}");
    Refusal::new(StatusCode::NOT_FOUND, "unknown-program", error)
}

/// Whether control has a program or file that you have sent.
#[utoipa::path(get, path = "/v1/programs/{hash}", tag = "programs", params(("hash" = String, Path, description = "BLAKE3 hash of the file, in hexadecimal")), responses((status = 200, body = Size)))]
pub async fn exists(
    State(api): State<Api>,
    Extension(by): Extension<By>,
    Path(hash): Path<String>,
) -> Result<axum::Json<Size>, Refusal> {
    let hash = parse_hash(&hash)?;
    let program = api
        .shared
        .programs
        .find_for(&by, &hash)
        .await
        .ok_or_else(|| unknown_program(&hash))?;
    let bytes = program.bytes();
    Ok(axum::Json(Size { bytes }))
}

/// Send a program, or a file to cast: the body is the file.
#[utoipa::path(put, path = "/v1/programs/{hash}", tag = "programs", params(("hash" = String, Path, description = "BLAKE3 hash of the file, in hexadecimal")), request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses((status = 200, body = Size)))]
pub async fn put(
    State(api): State<Api>,
    Extension(by): Extension<By>,
    Path(hash): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<axum::Json<Size>, Refusal> {
    let hash = parse_hash(&hash)?;
    let length = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok())
        .ok_or_else(|| {
            Refusal::new(
                StatusCode::LENGTH_REQUIRED,
                "no-length",
                "send Content-Length",
            )
        })?;
    let mut upload = api
        .shared
        .programs
        .receive(&by.name, hash, length)
        .map_err(store_refusal)?;
    write(&mut upload, body, UPLOAD_PATIENCE).await?;
    let program = upload.finish().map_err(store_refusal)?;
    let bytes = program.bytes();
    Ok(axum::Json(Size { bytes }))
}

/// Takes all of a body in, which may bring nothing for so long.
async fn write(upload: &mut Upload, body: Body, patience: Duration) -> Result<(), Refusal> {
    let idle = |_| {
        let text = format!(
            "nothing more of the program came for {} s; send it again",
            patience.as_secs_f32()
        );
        Refusal::new(StatusCode::REQUEST_TIMEOUT, "upload-idle", text)
    };
    let mut pieces = body.into_data_stream();
    loop {
        let piece = tokio::time::timeout(patience, pieces.next()).await;
        let Some(piece) = piece.map_err(idle)? else {
            return Ok(());
        };
        let piece = piece
            .map_err(|error| Refusal::bad_request(format!("the program broke off: {error}")))?;
        // Writing to the page cache and hashing are fast; the disk is not waited for.
        upload.write(&piece).map_err(store_refusal)?;
    }
}

fn store_refusal(error: StoreError) -> Refusal {
    let (status, code) = match &error {
        StoreError::File { .. } => (StatusCode::INSUFFICIENT_STORAGE, "cache-failed"),
        StoreError::WrongHash { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "wrong-hash"),
        StoreError::TooLarge { .. } | StoreError::Longer { .. } => {
            (StatusCode::PAYLOAD_TOO_LARGE, "too-large")
        }
        StoreError::Full { .. } => (StatusCode::INSUFFICIENT_STORAGE, "cache-full"),
    };
    Refusal::new(status, code, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::ProgramStore;
    use bytes::Bytes;
    use futures_util::stream;

    #[tokio::test]
    async fn an_upload_that_brings_nothing_for_long_ends_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = ProgramStore::open(dir.path(), 1000, 1000).unwrap();
        let content = b"program";
        let hash = *blake3::hash(content).as_bytes();
        let begin = || store.receive("ann", hash, content.len() as u64).unwrap();
        let piece = |bytes: &'static [u8]| Ok::<_, std::io::Error>(Bytes::from_static(bytes));
        let part = || stream::iter([piece(&content[..3])]);
        let patience = Duration::from_millis(50);

        let mut upload = begin();
        let body = Body::from_stream(part().chain(stream::pending()));
        let idle = write(&mut upload, body, patience).await.unwrap_err();
        assert_eq!(idle.code(), "upload-idle");
        drop(upload);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);

        // One that is slow is waited for.
        let mut upload = begin();
        let rest = stream::once(async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            piece(&content[3..])
        });
        let body = Body::from_stream(part().chain(rest));
        write(&mut upload, body, Duration::from_secs(60))
            .await
            .unwrap();
        assert_eq!(upload.finish().unwrap().hash(), hash);
    }
}
