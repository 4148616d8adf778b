//! The HTTP API over TCP: reading is open on loopback, changes need the token.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

use crate::lab::Lab;

/// Sends a request; gives the status and the body.
fn request(lab: &Lab, head: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(lab.http.as_ref().unwrap()).unwrap();
    let length = body.len();
    write!(
        stream,
        "{head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    (status, body.to_string())
}

#[test]
fn reading_is_open_and_changes_need_the_token() {
    let lab = Lab::with_nodes(1);
    let host = "Host: localhost";
    let (status, body) = request(&lab, &format!("GET /v1/nodes HTTP/1.1\r\n{host}"), "");
    assert_eq!(status, 200);
    assert!(body.contains("\"n0\""), "{body}");
    let json = "Content-Type: application/json";
    let cancel = format!("POST /v1/jobs/1/cancel HTTP/1.1\r\n{host}\r\n{json}");
    assert_eq!(request(&lab, &cancel, "{}").0, 401);
    let output = format!("GET /v1/jobs/1/output HTTP/1.1\r\n{host}");
    assert_eq!(request(&lab, &output, "").0, 401);
    let token = std::fs::read_to_string(lab.path("token")).unwrap();
    let bearer = format!("{cancel}\r\nAuthorization: Bearer {}", token.trim());
    let (status, body) = request(&lab, &bearer, "{}");
    assert_eq!(status, 404);
    assert!(body.contains("there is no job 1"), "{body}");
    let strange = "GET /v1/nodes HTTP/1.1\r\nHost: rebound.example";
    assert_eq!(request(&lab, strange, "").0, 401);
}

#[test]
fn secrets_and_the_socket_are_private() {
    let lab = Lab::control();
    for name in ["secret", "token", "run/control.sock"] {
        let mode = std::fs::metadata(lab.path(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o777;
        assert_eq!(mode, 0o600, "{name}");
    }
}

#[test]
fn a_program_with_the_wrong_hash_is_not_taken() {
    let lab = Lab::control();
    let token = std::fs::read_to_string(lab.path("token")).unwrap();
    let put = |hash: &str, body: &str| {
        let bearer = format!("Authorization: Bearer {}", token.trim());
        request(
            &lab,
            &format!("PUT /v1/programs/{hash} HTTP/1.1\r\nHost: localhost\r\n{bearer}"),
            body,
        )
    };
    let (status, body) = put(&"ab".repeat(32), "content");
    assert_eq!(status, 422);
    assert!(body.contains("wrong-hash"), "{body}");
    assert_eq!(put("xyz", "content").0, 400);
    assert_eq!(std::fs::read_dir(lab.path("programs")).unwrap().count(), 0);
    let hash = blake3::hash(b"content").to_hex();
    assert_eq!(put(&hash, "content").0, 200);
    // And who has sent it.
    assert_eq!(std::fs::read_dir(lab.path("programs")).unwrap().count(), 2);
}
