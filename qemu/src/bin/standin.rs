//! A stand-in for the operator's binary, used by this crate's tests only.
//!
//! `supervise ROOT NAME` keeps a cluster; `control ...` stands in for the control node: it calls a
//! node joined when a DHCP request of it arrived over the cluster's network, and answers HTTP on
//! the listener it was given. `POST /v1/stop` on its socket ends it in good order.
//!
//! Invariant: nothing here is part of what users run.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hearth_qemu::{Paths, supervise};

/// A peer that says nothing does not hold this up.
const PEER_LIMIT: Duration = Duration::from_secs(2);
/// DHCP: offset of the client's hardware address in a request.
const HARDWARE_ADDRESS_OFFSET: usize = 28;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["supervise", root, name] => supervise(&Paths::below(Path::new(root), name)?)?,
        ["control", options @ ..] => control(options)?,
        _ => return Err("usage: supervise ROOT NAME | control OPTIONS".into()),
    }
    Ok(())
}

type Seen = Arc<Mutex<BTreeSet<[u8; 6]>>>;

fn control(options: &[&str]) -> Result<(), Box<dyn std::error::Error>> {
    let option = |name: &str| {
        let pair = options.chunks_exact(2).find(|pair| pair[0] == name);
        pair.map(|pair| pair[1].to_owned())
            .ok_or(format!("no {name}"))
    };
    if option("--http-fd")? != "0" {
        return Err("the listener is standard input".into());
    }
    let state = PathBuf::from(option("--state-dir")?);
    let listener = TcpListener::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = answer(&mut stream, "\"outside\"");
        }
    });
    let nodes = std::fs::read_to_string(option("--nodes-file")?)?;
    let nodes: Vec<([u8; 6], String)> = nodes.lines().filter_map(parse_node).collect();
    let dhcp = UdpSocket::bind("0.0.0.0:67")?;
    let seen = Seen::default();
    let seen_by_dhcp = Arc::clone(&seen);
    std::thread::spawn(move || {
        let mut packet = [0; 1500];
        while let Ok(bytes) = dhcp.recv(&mut packet) {
            let mac = packet[..bytes].get(HARDWARE_ADDRESS_OFFSET..HARDWARE_ADDRESS_OFFSET + 6);
            if let Some(mac) = mac.and_then(|mac| <[u8; 6]>::try_from(mac).ok())
                && let Ok(mut seen) = seen_by_dhcp.lock()
            {
                seen.insert(mac);
            }
        }
    });
    let socket = UnixListener::bind(state.join("run/control.sock"))?;
    for mut stream in socket.incoming().flatten() {
        stream.set_read_timeout(Some(PEER_LIMIT))?;
        let seen = seen.lock().map_err(|_| "a thread panicked")?.clone();
        let joined = nodes.iter().filter(|(mac, _)| seen.contains(mac));
        let list: Vec<String> = joined
            .map(|(_, node)| format!(r#"{{"name":"n{node}","state":"idle"}}"#))
            .collect();
        let _ = answer(&mut stream, &format!("[{}]", list.join(",")));
    }
    Ok(())
}

/// `MAC IP NODE`.
fn parse_node(line: &str) -> Option<([u8; 6], String)> {
    let mut fields = line.split_whitespace();
    let mut mac = [0; 6];
    for (byte, text) in mac.iter_mut().zip(fields.next()?.split(':')) {
        *byte = u8::from_str_radix(text, 16).ok()?;
    }
    Some((mac, fields.nth(1)?.to_owned()))
}

fn answer(stream: &mut (impl Read + Write), body: &str) -> std::io::Result<()> {
    let mut request = [0; 1024];
    let bytes = stream.read(&mut request)?;
    if bytes == 0 {
        return Ok(());
    }
    if request.starts_with(b"POST /v1/stop ") {
        std::process::exit(0);
    }
    write!(
        stream,
        "HTTP/1.0 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}
