//! The page: a few files in the binary, no request to anywhere else.
//!
//! Invariants: no data is in them, so they are served without the token to whoever can connect; the
//! content security policy lets the page load its own files and talk to its own control node,
//! nothing else; nothing inline runs.

use std::io::Write;
use std::sync::OnceLock;

use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// What a browser may do for the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// One file.
struct File {
    name: &'static str,
    kind: &'static str,
    text: &'static str,
    packed: OnceLock<Vec<u8>>,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

const fn bundled(name: &'static str, kind: &'static str, text: &'static str) -> File {
    File {
        name,
        kind,
        text,
        packed: OnceLock::new(),
    }
}

/// A file of `web/`, under its own name.
macro_rules! own {
    ($name:literal, $kind:expr) => {
        bundled($name, $kind, include_str!(concat!("../../../web/", $name)))
    };
}

static FILES: [File; 22] = [
    own!("index.html", HTML),
    own!("style.css", CSS),
    own!("app.js", SCRIPT),
    own!("chart.js", SCRIPT),
    own!("controls.js", SCRIPT),
    own!("events.js", SCRIPT),
    own!("format.js", SCRIPT),
    own!("grid.js", SCRIPT),
    own!("header.js", SCRIPT),
    own!("job.js", SCRIPT),
    own!("jobs.js", SCRIPT),
    own!("node.js", SCRIPT),
    own!("nodes.js", SCRIPT),
    own!("output.js", SCRIPT),
    own!("overview.js", SCRIPT),
    own!("parts.js", SCRIPT),
    own!("io.js", SCRIPT),
    own!("programs.js", SCRIPT),
    own!("stream.js", SCRIPT),
    own!("tree.js", SCRIPT),
    bundled(
        "uplot.js",
        SCRIPT,
        include_str!("../../../web/vendor/uPlot.iife.min.js"),
    ),
    bundled(
        "uplot.css",
        CSS,
        include_str!("../../../web/vendor/uPlot.min.css"),
    ),
];

/// Whether a path is one of the page's own.
pub fn is_page(path: &str) -> bool {
    path == "/" || path.starts_with("/web/")
}

/// `GET /`.
pub async fn index(headers: HeaderMap) -> Response {
    serve(&FILES[0], &headers)
}

/// `GET /web/FILE`.
pub async fn file(Path(name): Path<String>, headers: HeaderMap) -> Response {
    match FILES.iter().find(|file| file.name == name) {
        Some(file) => serve(file, &headers),
        None => (StatusCode::NOT_FOUND, "there is no such file").into_response(),
    }
}

fn packed(file: &File) -> &[u8] {
    file.packed.get_or_init(|| {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        let done = packer
            .write_all(file.text.as_bytes())
            .and_then(|()| packer.finish());
        done.expect("memory takes what is written to it")
    })
}

fn serve(file: &'static File, headers: &HeaderMap) -> Response {
    let accepted = headers
        .get(header::ACCEPT_ENCODING)
        .and_then(|value| value.to_str().ok());
    let gzip = accepted.is_some_and(|accepted| accepted.contains("gzip"));
    let head = [
        (header::CONTENT_TYPE, file.kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // A control node that was replaced brings its own page.
        (header::CACHE_CONTROL, "no-cache"),
        (header::VARY, "accept-encoding"),
    ];
    if gzip {
        (head, [(header::CONTENT_ENCODING, "gzip")], packed(file)).into_response()
    } else {
        (head, file.text).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_of_the_page_is_there() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/web");
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let is_there = FILES.iter().any(|file| file.name == name);
            assert!(is_there || name == "vendor", "{name} is not served");
        }
    }

    #[test]
    fn the_bundle_is_small_and_asks_nobody_else() {
        let bytes: usize = FILES.iter().map(|file| packed(file).len()).sum();
        assert!(bytes <= 150_000, "{bytes} bytes");
        for file in &FILES {
            let vendored = file.name.starts_with("uplot");
            let outside = ["http://", "https://", "//cdn"]
                .iter()
                .any(|word| file.text.contains(word));
            assert!(vendored || !outside, "{} names another host", file.name);
            for word in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
            ] {
                assert!(
                    vendored || !file.text.contains(word),
                    "{} uses {word}",
                    file.name
                );
            }
        }
        let page = FILES[0].text;
        assert!(!page.contains("<style") && !page.contains(" style=") && !page.contains("onclick"));
        assert!(!page.contains("<script>"), "inline script");
    }
}
