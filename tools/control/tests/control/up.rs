//! What keeps `hearth up` from starting anything.

use std::process::Command;

use crate::lab::parts;

#[test]
fn a_wrong_configuration_is_told_once_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("wrong.toml");
    std::fs::write(&config, "[retention]\nmode = \"publishd\"\n").unwrap();
    let state = dir.path().join("state");
    let output = Command::new(env!("CARGO_BIN_EXE_hearth"))
        .args(["up", "--direct", "--config"])
        .arg(&config)
        .env("XDG_STATE_HOME", &state)
        .env_remove("HEARTH_CLUSTER")
        .output()
        .unwrap();
    let (code, _, err) = parts(&output);
    assert_eq!(code, 125);
    assert_eq!(err.matches("publishd").count(), 1, "{err}");
    assert!(
        err.contains("wrong.toml") && err.contains("retention.mode"),
        "{err}"
    );
    assert!(!err.contains("hearth: hearth:") && !state.exists(), "{err}");
}

/// Whatever it is that finds no room: the files of `up`, the record of the supervisor, the store or
/// the log of the control node.
#[test]
fn a_full_disk_is_named() {
    let is_there = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !is_there("qemu-system-x86_64") || !std::path::Path::new("/dev/net/tun").exists() {
        eprintln!("left out: it needs QEMU and /dev/net/tun");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let user = match nix::unistd::geteuid().is_root() {
        true => "-m",
        false => "-rm",
    };
    for kib in [4, 12, 24, 100] {
        let mount = format!("mount -t tmpfs -o size={kib}k tmpfs \"$1\"");
        let script =
            format!("{mount} && exec \"$2\" up --direct --no-wait --nodes 1 --image \"$2\"");
        let output = Command::new("unshare")
            .args([user, "sh", "-c", &script, "sh"])
            .arg(dir.path())
            .arg(env!("CARGO_BIN_EXE_hearth"))
            .env("XDG_STATE_HOME", dir.path())
            .env_remove("HEARTH_CLUSTER")
            .output()
            .unwrap();
        let (code, _, err) = parts(&output);
        assert_eq!(code, 125, "{kib} KiB: {err}");
        let is_named = err.contains("No space left") || err.contains("no space is left");
        assert!(is_named, "{kib} KiB: {err}");
    }
}
