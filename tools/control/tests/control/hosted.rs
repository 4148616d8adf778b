//! `hearth send`, `hearth receive` and `hearth exchange` between processes on loopback.

use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::lab::{finish, parts, signal};

fn hearth(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hearth"));
    command.current_dir(dir).args(args).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// An address that nobody listens at.
fn address() -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap().to_string()
}

/// Receivers with folders `r0`, `r1`, ...; their addresses.
fn receivers(dir: &Path, count: usize, more: &[&str]) -> (Vec<Child>, Vec<String>) {
    std::fs::write(dir.join("key"), "00112233445566778899aabbccddeeff\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(dir.join("key"), mode).unwrap();
    let start = |number: usize| {
        let (folder, at) = (format!("r{number}"), address());
        std::fs::create_dir_all(dir.join(&folder)).unwrap();
        let mut args = vec!["receive", "--key-file", "key", "--json", "--timeout", "50"];
        args.extend(["--dir", &folder, "--listen", &at]);
        args.extend(more);
        (hearth(dir, &args).spawn().unwrap(), at)
    };
    (0..count).map(start).unzip()
}

#[test]
fn a_file_goes_to_several_receivers() {
    let dir = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..700_000u32)
        .map(|at| (at.wrapping_mul(at) >> 7) as u8)
        .collect();
    std::fs::write(dir.path().join("data.bin"), &content).unwrap();
    let (children, addresses) = receivers(dir.path(), 3, &[]);
    let to = addresses.join(",");
    let send = [
        "send",
        "data.bin",
        "--key-file",
        "key",
        "--to",
        &to,
        "--rate",
        "100mbit",
        "--json",
    ];
    let (code, out, err) = parts(&finish(hearth(dir.path(), &send).spawn().unwrap()));
    assert_eq!(code, 0, "{out}{err}");
    let sent: Value = serde_json::from_str(&out).unwrap();
    assert!(sent["bytes_sent"].as_u64().unwrap() < 2 * 700_000, "{sent}");
    for (number, child) in children.into_iter().enumerate() {
        let (code, out, err) = parts(&finish(child));
        assert_eq!(code, 0, "{out}{err}");
        let folder = dir.path().join(format!("r{number}"));
        assert_eq!(std::fs::read(folder.join("data.bin")).unwrap(), content);
        assert_eq!(
            std::fs::read_dir(folder).unwrap().count(),
            1,
            "no temporary file"
        );
    }
}

#[test]
fn what_cannot_be_sent_or_received_is_told() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("data"), "x").unwrap();
    let (children, addresses) = receivers(dir.path(), 1, &[]);
    let to = &addresses[0];
    let send = |args: &[&str]| {
        let mut all = vec!["send"];
        all.extend(args);
        parts(&finish(hearth(dir.path(), &all).spawn().unwrap()))
    };
    let key = ["--key-file", "key", "--to", to];
    let with = |more: &[&'static str]| [more, &key[..]].concat();
    for (args, word) in [
        (with(&["missing"]), "missing"),
        (with(&["data", "--name", "../data"]), "--name"),
        (with(&["data", "--rate", "fast"]), "50mbit"),
        (
            vec!["data", "--key-file", "key", "--to", "127.0.0.1:x"],
            "port",
        ),
    ] {
        let (code, _, err) = send(&args);
        assert!(code != 0 && err.contains(word), "{args:?}: {code} {err}");
    }
    // With another key the receiver hears nothing.
    let other = ["data", "--key-file", "other", "--to", to, "--timeout", "1"];
    let (code, _, err) = send(&other);
    assert_eq!(code, 124, "{err}");
    assert!(err.contains("copy it"), "{err}");
    for child in children {
        signal(&child, "INT");
        assert_eq!(parts(&finish(child)).0, 130);
    }
    assert_eq!(std::fs::read_dir(dir.path().join("r0")).unwrap().count(), 0);
}

#[test]
fn what_is_there_is_not_overwritten_without_force() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("data"), "new").unwrap();
    for (force, left) in [(&[][..], "old"), (&["--force"][..], "new")] {
        let (children, addresses) = receivers(dir.path(), 1, force);
        let place = dir.path().join("r0/data");
        std::fs::write(&place, "old").unwrap();
        let to = &addresses[0];
        let send = ["send", "data", "--key-file", "key", "--to", to];
        let (sent, _, err) = parts(&finish(hearth(dir.path(), &send).spawn().unwrap()));
        for child in children {
            let (code, _, words) = parts(&finish(child));
            let refused = force.is_empty();
            assert_eq!(
                (code, sent),
                (i32::from(refused), i32::from(refused)),
                "{words}{err}"
            );
            assert_eq!(
                refused,
                words.contains("replace it with --force"),
                "{words}"
            );
        }
        assert_eq!(std::fs::read_to_string(&place).unwrap(), left);
    }
    let send = ["send", "data", "--name", ".profile", "--key-file", "key"];
    let send = [&send[..], &["--to", "127.0.0.1:9"]].concat();
    let (code, _, err) = parts(&finish(hearth(dir.path(), &send).spawn().unwrap()));
    assert!(code != 0 && err.contains("begins with a dot"), "{err}");
}

#[test]
fn an_exchange_gives_its_results_on_standard_output() {
    let dir = tempfile::tempdir().unwrap();
    let ranks = [address(), address()].join(",");
    let start = |rank: &str, more: &[&str]| {
        let line = ["exchange", "--key-file", "key", "--ranks", &ranks];
        let bytes = ["--rank", rank, "--bytes", "64KB", "--repeats", "2"];
        let line = [&line[..], &bytes, more].concat();
        hearth(dir.path(), &line).spawn().unwrap()
    };
    let (text, json) = (start("0", &[]), start("1", &["--json"]));
    let (code, out, err) = parts(&finish(text));
    assert_eq!(code, 0, "{err}");
    let lines: Vec<&str> = out.lines().collect();
    let is_time = |line: &&str| {
        let seconds = line.strip_suffix(" s").and_then(|s| s.parse::<f64>().ok());
        seconds.is_some()
    };
    assert!(lines.len() == 2 && lines.iter().all(is_time), "{out}");
    let (code, out, err) = parts(&finish(json));
    assert_eq!(code, 0, "{err}");
    let said: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(said["bytes"], 64_000, "{said}");
    assert_eq!(said["seconds"].as_array().unwrap().len(), 2, "{said}");
}

#[test]
fn an_exchange_is_refused_that_cannot_be_meant() {
    let dir = tempfile::tempdir().unwrap();
    let two = "127.0.0.1:9,127.0.0.1:10";
    for (more, words) in [
        (&["--ranks", two, "--rank", "2"][..], "numbers 0 to 1"),
        (
            &["--ranks", "127.0.0.1:9,127.0.0.1:9", "--rank", "0"],
            "named twice",
        ),
        (
            &["--ranks", two, "--rank", "0", "--bytes", "99999999999"],
            "smaller blocks",
        ),
        (
            &["--ranks", two, "--rank", "0", "--repeats", "0"],
            "--repeats",
        ),
        (
            &["--ranks", two, "--rank", "0", "--scheme", "publishd"],
            "did you mean published?",
        ),
        (
            &["--ranks", two, "--rank", "0", "--scheme", "blind"],
            "there are default, published, published-L=NUMBER, published-L=auto",
        ),
        (
            &["--ranks", two, "--rank", "0", "--bytes", "64XB"],
            "as in 65536, 64KB",
        ),
    ] {
        let line = [&["exchange", "--key-file", "key"], more].concat();
        let (code, _, err) = parts(&finish(hearth(dir.path(), &line).spawn().unwrap()));
        assert!(code == 2 && err.contains(words), "{more:?}: {code} {err}");
    }
}
