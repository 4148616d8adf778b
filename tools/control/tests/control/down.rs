//! `hearth down`: which jobs end is said in any case, and asked about on a terminal.
//!
//! The cluster is what a crash of its supervisor left: a record, and a control node that lives on.

use std::fs::File;
use std::io::Write;
use std::process::Stdio;

use hearth_qemu::{Accelerator, Cards, Firmware, Paths, Record, Spec, Tree};
use nix::pty::openpty;

use crate::lab::{Lab, finish, parts};

/// Makes the lab's control node one of a cluster of QEMU nodes.
fn make_cluster(lab: &Lab) {
    let state = lab.path("");
    let (name, root) = (state.file_name().unwrap(), state.parent().unwrap());
    let name = name.to_str().unwrap().to_string();
    let paths = Paths::below(root, &name).unwrap();
    let spec = Spec {
        name,
        nodes: 1,
        memory_mib: 48,
        cpus: 1,
        tree: Tree::flat(1),
        rate: None,
        firmware: Firmware::Direct,
        accelerator: Accelerator::Tcg,
        cards: Cards::default(),
        image: "/dev/null".into(),
        command_line: String::new(),
        instruction_shift: None,
        trace: None,
        io_services: 0,
        debugged: Vec::new(),
    };
    let http = "127.0.0.1:1".parse().unwrap();
    Record::new(spec, http, &paths).save(&paths).unwrap();
}

/// A cluster with a job that runs and has a client, and one that is held.
fn with_jobs() -> (Lab, std::process::Child) {
    let lab = Lab::with_nodes(1);
    make_cluster(&lab);
    let client = lab.run_command(&[], "pause\n").spawn().unwrap();
    lab.eventually("it runs", |lab| lab.last_job()["state"] == "running");
    let program = lab.program("held", "exit 0\n");
    let args = ["submit", "--no-precheck", "--hold", &program];
    assert!(lab.hearth(&args).status.success());
    (lab, client)
}

fn names_the_jobs(text: &str) {
    assert!(text.contains("2 jobs end with the cluster: "), "{text}");
    assert!(
        text.contains("running)") && text.contains("2 (held, pending)"),
        "{text}"
    );
}

#[test]
fn jobs_that_end_with_a_cluster_are_named_also_where_nobody_is_asked() {
    for options in [&["down"][..], &["down", "--yes"]] {
        let (lab, client) = with_jobs();
        let (code, out, err) = parts(&lab.hearth(options));
        assert_eq!((code, &*out), (0, ""), "{err}");
        names_the_jobs(&err);
        assert!(!lab.path("").exists());
        let (code, _, err) = parts(&finish(client));
        assert_ne!(code, 0);
        assert!(err.contains("the cluster is taken down"), "{err}");
    }
}

#[test]
fn json_has_the_jobs_that_ended_with_a_cluster() {
    let (lab, client) = with_jobs();
    let (code, out, err) = parts(&lab.hearth(&["down", "--json"]));
    assert_eq!((code, &*err), (0, ""));
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["ended_jobs"], serde_json::json!([1, 2]));
    finish(client);
}

#[test]
fn who_is_asked_and_says_no_keeps_the_cluster() {
    let (lab, mut client) = with_jobs();
    let ends = openpty(None, None).unwrap();
    let mut down = lab.command(&["down"]);
    let down = down.stdin(Stdio::from(ends.slave)).spawn().unwrap();
    File::from(ends.master.try_clone().unwrap())
        .write_all(b"n\n")
        .unwrap();
    let (code, _, err) = parts(&finish(down));
    assert_eq!(code, 125, "{err}");
    names_the_jobs(&err);
    assert!(
        err.contains("Take it down? [y/N]") && err.contains("nothing was done"),
        "{err}"
    );
    assert_eq!(lab.json(&["queue"]).as_array().unwrap().len(), 2);
    client.kill().unwrap();
    client.wait().unwrap();
}

#[test]
fn that_jobs_are_not_known_is_said() {
    let mut lab = Lab::control();
    make_cluster(&lab);
    lab.stop_control(true);
    let (code, _, err) = parts(&lab.hearth(&["down"]));
    assert_eq!(code, 0, "{err}");
    assert!(
        err.contains("which jobs end with the cluster is not known"),
        "{err}"
    );
    assert!(!lab.path("").exists());
}
