//! Machines are switched by a command of the site's, for whoever asks and where nodes stay lost.

use std::time::Duration;

use crate::fake_node::FakeNode;
use crate::lab::{Lab, finish, parts, signal};

/// A control node with two nodes, whose site writes down what it is asked for: n1 is always off,
/// and n0 cannot be switched off.
fn lab(more: &str) -> (Lab, tempfile::TempDir) {
    let does = "'off n0') echo 'no relay for n0' >&2; exit 1;;";
    lab_that(does, more)
}

/// A control node with two nodes, whose site's command does this for some of what it is asked for.
fn lab_that(does: &str, more: &str) -> (Lab, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("power");
    let text = format!(
        "echo \"$1 $2\" >> {}\ncase \"$1 $2\" in\n\
         'status n1') echo off;;\nstatus*) echo on;;\n{does}\nesac\n",
        dir.path().join("asked").display()
    );
    std::fs::write(&script, text).unwrap();
    let script = script.display();
    let mut lab = Lab::configured(&format!(
        "[power]\nmethod = \"command\"\ncommand = [\"sh\", \"{script}\", \"{{action}}\", \"{{name}}\"]\n{more}"
    ));
    lab.add_nodes(0..2);
    (lab, dir)
}

fn asked(dir: &tempfile::TempDir) -> Vec<String> {
    let text = std::fs::read_to_string(dir.path().join("asked")).unwrap_or_default();
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn nodes_are_switched_by_the_command_of_the_site() {
    let (lab, dir) = lab("");
    let (code, out, err) = parts(&lab.hearth(&["node", "status", "n[0-1]"]));
    assert_eq!(code, 0, "{err}");
    assert_eq!(out, "NODE  POWER\nn0    on\nn1    off\n");
    assert_eq!(asked(&dir), ["status n0", "status n1"]);
    // One is not there: nothing is done.
    let (code, _, err) = parts(&lab.hearth(&["node", "off", "n[1-2]"]));
    assert_eq!((code, err.contains("no node n2")), (125, true), "{err}");
    let (code, _, err) = parts(&lab.hearth(&["node", "off", "n[0-1]"]));
    assert_eq!(code, 1);
    assert!(err.contains("n0: sh failed: no relay for n0"), "{err}");
    assert_eq!(asked(&dir)[..2], ["off n0", "off n1"]);
    assert!(lab.has_event("node-power", "n1: switched off by "));
    assert!(lab.has_event("node-power-failed", "n0: power off failed"));
    // What is in service is not waited for; what must boot is, unless nobody wants that.
    let (code, out, err) = parts(&lab.hearth(&["node", "on", "n0", "--json"]));
    assert_eq!(code, 0, "{err}");
    let said: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(said["on"], serde_json::json!(["n0"]));
    let (code, out, err) = parts(&lab.hearth(&["node", "reset", "n1", "--no-wait"]));
    assert_eq!((code, &*out, &*err), (0, "", ""));
    assert!(lab.has_event("node-power", "n1: reset by "));
}

#[test]
fn a_node_that_stays_lost_is_reset_three_times_and_then_left() {
    let (mut lab, dir) = lab("reset_lost_after_s = 1\n");
    lab.nodes[1].stop();
    lab.eventually("it is given up", |lab| {
        lab.has_event("node-given-up", "`hearth node reset n1`")
    });
    assert_eq!(asked(&dir), ["reset n1"; 3]);
    assert!(lab.has_event("node-reset", "n1 stays lost and is reset (3 of 3)"));
    // Somebody looks after it, and it begins anew; once it is switched off, nothing is done.
    let (code, _, err) = parts(&lab.hearth(&["node", "off", "n1"]));
    assert_eq!(code, 0, "{err}");
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(asked(&dir).len(), 4);
}

#[test]
fn resets_that_fail_end_and_say_so() {
    let does = "'reset n1') echo 'no board' >&2; exit 1;;";
    let (mut lab, dir) = lab_that(does, "reset_lost_after_s = 1\n");
    lab.nodes[1].stop();
    lab.eventually("it is given up", |lab| {
        lab.has_event(
            "node-given-up",
            "n1 stays lost and could not be reset 3 times in a row",
        )
    });
    assert_eq!(asked(&dir), ["reset n1"; 3]);
    assert!(lab.has_event(
        "node-power-failed",
        "n1: power reset failed: sh failed: no board"
    ));
    assert!(!lab.has_event("node-reset", "n1"));
}

#[test]
fn a_node_that_was_switched_off_has_not_joined_by_its_old_boot() {
    let (mut lab, _dir) = lab_that("", "");
    // Its silence is not noticed for some seconds, and it is switched on again.
    let (code, _, err) = parts(&lab.hearth(&["node", "off", "n1"]));
    assert_eq!(code, 0, "{err}");
    let mut on = lab
        .command(&["node", "on", "n[0-1]", "--json"])
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(1));
    assert!(on.try_wait().unwrap().is_none(), "n1 counts as joined");
    lab.nodes[1].stop();
    lab.nodes[1] = FakeNode::start(lab.identity(1, 2), lab.address);
    let (code, out, err) = parts(&finish(on));
    assert_eq!(code, 0, "{err}");
    let said: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(said["on"], serde_json::json!(["n0", "n1"]));
    assert_eq!(
        (&said["joined"], &said["late"]),
        (&true.into(), &serde_json::json!([]))
    );
}

#[test]
fn what_was_begun_is_told_though_nobody_waits_for_it() {
    let (lab, dir) = lab_that("'off n1') sleep 10;;", "");
    let off = lab.command(&["node", "off", "n1"]).spawn().unwrap();
    lab.eventually("the board is asked", |_| asked(&dir) == ["off n1"]);
    // Not INT, which is ignored where the tests run in the background of a shell.
    signal(&off, "TERM");
    let (code, _, _) = parts(&finish(off));
    assert_ne!(code, 0);
    assert!(!lab.has_event("node-power", "n1"));
    lab.eventually("it is told", |lab| {
        lab.has_event("node-power", "n1: switched off by ")
    });
}
