//! HTTP for machines: the iPXE script and the image.
//!
//! | path | answer |
//! |---|---|
//! | `/boot/ipxe?mac=M` | the machine's iPXE script |
//! | `/boot/hearth.efi`, `/boot/M/hearth.efi` | the image; the second form is followed in the timeline |
//! | `/boot/M/kernel`, `/boot/M/initrd` | another system, where one is configured |
//! | `/boot/report?mac=M&uptime_ms=..&idle_ms=..` | another system says that it runs |
//!
//! GET and HEAD, with `Content-Length` and single ranges: UEFI HTTP Boot asks for the length first.
//!
//! Invariant: every denial says why, as text. Nothing is ever "not found": a machine that asks for
//! what it may not have gets 403, one that asks for what is missing gets 503.

use crate::config::ImageTransport;
use crate::dhcp::client::IMAGE_NAME;
use crate::event::Event;
use crate::mac::Mac;
use crate::shared::Shared;
use crate::timeline::{Firmware, Report, Stage};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, FromRequestParts, OriginalUri, Path, Query, State};
use axum::http::{HeaderMap, Method, StatusCode, header, request};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// The image's type: UEFI HTTP Boot starts nothing else.
const IMAGE_TYPE: &str = "application/efi";
/// Bytes handed to the connection at a time; small enough that the timeline tells how far a broken
/// download came.
const CHUNK_BYTES: usize = 64 << 10;
/// Tries of the iPXE script before the machine starts over, and the seconds between them.
const SCRIPT_TRIES: u32 = 6;
const SCRIPT_PAUSE_SECONDS: u32 = 5;

/// The routes, for the boot network's HTTP server.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let boot = Router::new()
        .route("/ipxe", get(script))
        .route("/report", get(report).post(report))
        .route("/hearth.efi", get(image))
        .route("/{mac}/{file}", get(machine_file))
        .fallback(nothing_here)
        .with_state(shared);
    Router::new().nest("/boot", boot)
}

/// Why a machine does not get something.
#[derive(Debug)]
enum Denial {
    /// It may not have it, or asked wrongly.
    Forbidden(String),
    /// It should have it, but this side has not.
    Unavailable(String),
}

impl IntoResponse for Denial {
    fn into_response(self) -> Response {
        let (status, reason) = match self {
            Denial::Forbidden(reason) => (StatusCode::FORBIDDEN, reason),
            Denial::Unavailable(reason) => (StatusCode::SERVICE_UNAVAILABLE, reason),
        };
        (status, format!("{reason}\n")).into_response()
    }
}

/// The address of the other end, where the server passes it on.
struct Peer(Option<Ipv4Addr>);

impl<S: Sync> FromRequestParts<S> for Peer {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut request::Parts,
        _: &S,
    ) -> Result<Peer, std::convert::Infallible> {
        let info = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        Ok(Peer(info.and_then(
            |info| match info.0.ip().to_canonical() {
                IpAddr::V4(address) => Some(address),
                IpAddr::V6(_) => None,
            },
        )))
    }
}

#[derive(serde::Deserialize)]
struct MachineQuery {
    mac: Option<String>,
    uptime_ms: Option<u64>,
    idle_ms: Option<u64>,
}

/// The machine a request names, if it may be served.
fn machine(shared: &Shared, mac: Option<&str>) -> Result<Mac, Denial> {
    let text = mac.ok_or_else(|| Denial::Forbidden("say which machine: ?mac=52:54:..".into()))?;
    let mac: Mac = text
        .parse()
        .map_err(|error| Denial::Forbidden(format!("{error}")))?;
    if !shared.admits(mac) {
        shared.event(Event::UnknownMachine { mac });
        let reason = format!("{mac} is not in the list of machines; add it there to boot it");
        return Err(Denial::Forbidden(reason));
    }
    Ok(mac)
}

async fn script(
    State(shared): State<Arc<Shared>>,
    method: Method,
    Query(query): Query<MachineQuery>,
) -> Result<Response, Denial> {
    let mac = machine(&shared, query.mac.as_deref())?;
    let text = ipxe_script(&shared, mac);
    if method == Method::GET {
        shared.reached(mac, Stage::Script);
    }
    Ok(([(header::CONTENT_TYPE, "text/plain")], text).into_response())
}

/// The iPXE script of one machine. It tries a few times and then starts the machine over, so that
/// no machine waits for a person.
pub(crate) fn ipxe_script(shared: &Shared, mac: Mac) -> String {
    let places = &shared.places;
    let load = match &shared.config.other {
        None => {
            let url = match places.transport {
                ImageTransport::Http => places.image_url(mac),
                ImageTransport::Tftp => places.image_tftp_url(),
            };
            let line = &shared.config.command_line;
            // The kernel prefers the card that the firmware booted from.
            let card = mac.to_string().replace(':', "-");
            format!("kernel {url} {line} BOOTIF=01-{card} && boot ||")
        }
        Some(other) => {
            let kernel = places.machine_url(mac, "kernel");
            let line = &other.command_line;
            match &other.initrd {
                None => format!("kernel {kernel} {line} && boot ||"),
                Some(_) => format!(
                    "kernel {kernel} initrd=initrd {line} && initrd --name initrd {} && boot ||",
                    places.machine_url(mac, "initrd")
                ),
            }
        }
    };
    format!(
        "#!ipxe\n\
         set tries:int32 0\n\
         :load\n\
         imgfree\n\
         {load}\n\
         echo Hearth: {mac} could not load its image from {server}; the reason is in the events there\n\
         inc tries\n\
         iseq ${{tries}} {SCRIPT_TRIES} && reboot ||\n\
         sleep {SCRIPT_PAUSE_SECONDS}\n\
         goto load\n",
        server = places.address,
    )
}

async fn image(
    State(shared): State<Arc<Shared>>,
    peer: Peer,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Denial> {
    let bytes = shared.files.image().map_err(Denial::Unavailable)?;
    Ok(serve(
        &method,
        &headers,
        bytes,
        Download::new(shared, None, peer.0, IMAGE_NAME),
    ))
}

async fn machine_file(
    State(shared): State<Arc<Shared>>,
    peer: Peer,
    Path((mac, file)): Path<(String, String)>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Denial> {
    let mac = machine(&shared, Some(&mac))?;
    let bytes = match file.as_str() {
        IMAGE_NAME => shared.files.image(),
        "kernel" => shared.files.other(false),
        "initrd" => shared.files.other(true),
        _ => return Err(nothing(&format!("/boot/{mac}/{file}"))),
    };
    let bytes = bytes.map_err(|reason| {
        shared.transfer_failed(Some(mac), peer.0, &file, reason.clone());
        Denial::Unavailable(reason)
    })?;
    let name = if file == "kernel" {
        IMAGE_NAME
    } else {
        file.as_str()
    };
    Ok(serve(
        &method,
        &headers,
        bytes,
        Download::new(shared, Some(mac), peer.0, name),
    ))
}

async fn report(
    State(shared): State<Arc<Shared>>,
    Query(query): Query<MachineQuery>,
) -> Result<&'static str, Denial> {
    let mac = machine(&shared, query.mac.as_deref())?;
    let report = Report {
        uptime_ms: query.uptime_ms,
        idle_ms: query.idle_ms,
    };
    if !shared.reported(mac, report) {
        let reason = format!("{mac} has not booted from here, or has reported already");
        return Err(Denial::Forbidden(reason));
    }
    Ok("ok\n")
}

async fn nothing_here(OriginalUri(uri): OriginalUri) -> Denial {
    nothing(uri.path())
}

fn nothing(path: &str) -> Denial {
    let path: String = path.chars().take(100).collect();
    Denial::Forbidden(format!(
        "{path} is not served; machines get /boot/ipxe?mac=.. and /boot/{IMAGE_NAME}"
    ))
}

/// Follows one download: completes the timeline at the last byte, reports one that breaks off.
struct Download {
    shared: Arc<Shared>,
    mac: Option<Mac>,
    peer: Option<Ipv4Addr>,
    file: String,
    /// Bytes handed over and to hand over; equal when done.
    sent: usize,
    total: usize,
    /// The range ends where the file ends.
    to_the_end: bool,
}

impl Download {
    fn new(shared: Arc<Shared>, mac: Option<Mac>, peer: Option<Ipv4Addr>, file: &str) -> Download {
        let mac = mac.or_else(|| shared.mac_at(peer?));
        Download {
            shared,
            mac,
            peer,
            file: file.to_owned(),
            sent: 0,
            total: 0,
            to_the_end: false,
        }
    }

    fn advance(&mut self, bytes: usize) {
        self.sent += bytes;
        let complete = self.sent == self.total && self.to_the_end && self.file == IMAGE_NAME;
        if let Some(mac) = self.mac.filter(|_| complete) {
            self.shared.reached_image(mac, Firmware::UefiHttp);
        }
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        if self.sent < self.total {
            let reason = format!(
                "the connection broke off at byte {} of {}",
                self.sent, self.total
            );
            self.shared
                .transfer_failed(self.mac, self.peer, &self.file, reason);
        }
    }
}

fn serve(method: &Method, headers: &HeaderMap, bytes: Bytes, mut download: Download) -> Response {
    let length = bytes.len();
    let asked = headers
        .get(header::RANGE)
        .and_then(|value| value.to_str().ok());
    let (status, part) = match asked.map(|value| byte_range(value, length)) {
        None | Some(ByteRange::Whole) => (StatusCode::OK, 0..length),
        Some(ByteRange::Part(part)) => (StatusCode::PARTIAL_CONTENT, part),
        Some(ByteRange::Outside) => {
            let range = format!("bytes */{length}");
            return (
                StatusCode::RANGE_NOT_SATISFIABLE,
                [(header::CONTENT_RANGE, range)],
            )
                .into_response();
        }
    };
    let mut response = Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, IMAGE_TYPE)
        .header(header::ACCEPT_RANGES, "bytes")
        .header(header::CACHE_CONTROL, "no-store")
        .header(header::CONTENT_LENGTH, part.len());
    if status == StatusCode::PARTIAL_CONTENT {
        let range = format!("bytes {}-{}/{length}", part.start, part.end - 1);
        response = response.header(header::CONTENT_RANGE, range);
    }
    let body = if *method == Method::HEAD {
        Body::empty()
    } else {
        download.total = part.len();
        download.to_the_end = part.end == length;
        let rest = bytes.slice(part);
        Body::from_stream(futures_util::stream::unfold((rest, download), next_chunk))
    };
    response.body(body).expect("all headers are made here")
}

async fn next_chunk(
    (mut rest, mut download): (Bytes, Download),
) -> Option<(std::io::Result<Bytes>, (Bytes, Download))> {
    if rest.is_empty() {
        return None;
    }
    let chunk = rest.split_to(rest.len().min(CHUNK_BYTES));
    download.advance(chunk.len());
    Some((Ok(chunk), (rest, download)))
}

#[derive(Debug, PartialEq, Eq)]
enum ByteRange {
    Whole,
    Part(std::ops::Range<usize>),
    Outside,
}

/// Reads a `Range` header (RFC 9110, 14.1.2). What is not one range of bytes counts as no range, as
/// the RFC allows.
fn byte_range(value: &str, length: usize) -> ByteRange {
    let Some((first, last)) = value
        .strip_prefix("bytes=")
        .and_then(|range| range.split_once('-'))
    else {
        return ByteRange::Whole;
    };
    let number = |text: &str| text.trim().parse::<usize>().ok();
    let (first, last) = match (first.trim().is_empty(), last.trim().is_empty()) {
        (false, true) => (number(first), Some(usize::MAX)),
        (false, false) => (number(first), number(last)),
        // The last so many bytes.
        (true, false) => match number(last) {
            Some(0) => return ByteRange::Outside,
            count => (
                count.map(|count| length.saturating_sub(count)),
                Some(usize::MAX),
            ),
        },
        (true, true) => return ByteRange::Whole,
    };
    match (first, last) {
        (Some(first), Some(last)) if first > last => ByteRange::Whole,
        (Some(first), Some(_)) if first >= length => ByteRange::Outside,
        (Some(first), Some(last)) => ByteRange::Part(first..last.saturating_add(1).min(length)),
        _ => ByteRange::Whole,
    }
}

#[cfg(test)]
mod tests;
