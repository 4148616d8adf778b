//! Machines are switched by a command of the site's, for whoever asks and where nodes stay lost.

use crate::lab::{Lab, parts};

/// A control node with two nodes, whose site writes down what it is asked for: n1 is always off,
/// and n0 cannot be switched off.
fn lab(more: &str) -> (Lab, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("power");
    let text = format!(
        "echo \"$1 $2\" >> {}\ncase \"$1 $2\" in\n\
         'status n1') echo off;;\nstatus*) echo on;;\n\
         'off n0') echo 'no relay for n0' >&2; exit 1;;\nesac\n",
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
    std::thread::sleep(std::time::Duration::from_secs(5));
    assert_eq!(asked(&dir).len(), 4);
}
