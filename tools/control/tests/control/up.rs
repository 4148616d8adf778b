//! What `hearth up` refuses before it starts anything.

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
