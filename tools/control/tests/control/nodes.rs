//! Nodes that join, are refused, come back; several jobs on them at once.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;

use serde_json::json;

use crate::fake_node::FakeNode;
use crate::lab::{Lab, finish, parts, signal, text};

#[test]
fn nodes_are_listed_with_what_they_say_about_themselves() {
    let lab = Lab::with_nodes(2);
    let nodes = lab.json(&["nodes"]);
    assert_eq!(nodes.as_array().unwrap().len(), 2);
    let node = &nodes[1];
    assert_eq!(node["name"], "n1");
    assert_eq!(node["state"], "idle");
    assert_eq!(node["boots"], 1);
    assert_eq!(node["memory_bytes"], 48 << 20);
    assert_eq!(
        (&node["kernel_ms"], &node["busy_ms"]),
        (&json!(12.0), &json!(8.0))
    );
    assert_eq!(node["mac"], "52:54:00:07:00:01");
    assert!(
        node["job"].is_null() && node["joined_unix_ms"].is_u64(),
        "{node}"
    );
    let (code, out, _) = parts(&lab.hearth(&["nodes"]));
    assert_eq!((code, out.lines().count()), (0, 3));
    assert!(out.starts_with("NODE") && out.contains("idle"), "{out}");
    assert!(lab.has_event("node-joined", "n0"));
}

#[test]
fn a_sites_host_names_stand_for_its_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("nodes");
    let lines = "52:54:00:07:00:00 127.0.0.2 0 tux1.example\n\
                 52:54:00:07:00:01 127.0.0.3 1 tux2.example\n\
                 52:54:00:07:00:02 127.0.0.4 2 login.example\n";
    std::fs::write(&list, lines).unwrap();
    let config = format!("[boot]\nnodes_file = \"{}\"\n", list.display());
    let mut lab = Lab::configured(&config);
    lab.add_nodes(0..2);
    let said = |arguments: &[&str]| parts(&lab.hearth(arguments));
    let done = |arguments: &[&str]| {
        let (code, out, err) = said(arguments);
        assert_eq!(code, 0, "{arguments:?}: {err}");
        out
    };
    let job = parts(&lab.run(&["--nodes", "tux2"], "out here\n"));
    assert_eq!((job.0, job.1.as_str()), (0, "here\n"), "{}", job.2);
    assert_eq!(lab.last_job()["nodes"], "n1");
    done(&["drain", "tux[1-2].example", "-r", "dust"]);
    done(&["resume", "tux1"]);
    let nodes = lab.json(&["nodes"]);
    let drained = |node: usize| !nodes[node]["drained"].is_null();
    assert_eq!((drained(0), drained(1)), (false, true), "{nodes}");
    assert_eq!(nodes[2]["host"], "login.example");
    let shown = done(&["nodes", "login,n1"]);
    assert!(
        shown.contains("HOST") && shown.contains("tux2.example"),
        "{shown}"
    );
    assert!(!shown.contains("tux1"), "{shown}");
    assert!(done(&["events", "--node", "tux2"]).contains("node-joined"));
    assert_eq!(done(&["node", "leave", "tux2"]), "left: n1\n");
    let list = "/v1/nodes/named?list=n5,tux%5B1-2%5D";
    assert_eq!(lab.get(list), json!([5, 0, 1]));
    // A name that there is not is a mistake of the command line, whoever finds it.
    let near = "no node \"tux3\" (did you mean tux1 or tux2?)";
    for arguments in [
        &["drain", "tux3", "-r", "dust"][..],
        &["nodes", "tux3"],
        &["node", "reset", "tux[2-3]"],
        &["console", "tux3"],
    ] {
        let (code, _, err) = said(arguments);
        assert!(
            code == 2 && err.contains(near),
            "{arguments:?}: {code} {err}"
        );
    }
}

#[test]
fn a_node_that_does_not_scrub_is_marked() {
    let mut lab = Lab::with_nodes(1);
    let mut identity = lab.identity(1, 1);
    identity.unscrubbed = true;
    lab.nodes.push(FakeNode::start(identity, lab.address));
    lab.eventually("the node joins", |lab| lab.idle_nodes() == 2);
    let nodes = lab.json(&["nodes"]);
    assert_eq!(
        (&nodes[0]["unscrubbed"], &nodes[1]["unscrubbed"]),
        (&json!(false), &json!(true))
    );
    let (_, out, _) = parts(&lab.hearth(&["nodes"]));
    assert_eq!(out.matches("idle, not scrubbing").count(), 1, "{out}");
    assert!(lab.has_event("node-unscrubbed", "n1"));
    assert!(!lab.has_event("node-unscrubbed", "n0 "));
}

#[test]
fn a_node_of_an_earlier_run_that_is_off_is_known_by_its_name() {
    let mut lab = Lab::with_nodes(2);
    lab.nodes.truncate(1);
    lab.stop_control(false);
    lab.start_control();
    let listed = lab.json(&["nodes"]);
    assert_eq!(listed[1]["name"], "n1", "{listed}");
    // It cannot be asked, and that is another thing than a node that there is not.
    let (status, answer) = lab.post("/v1/nodes/1/leave", &json!({}));
    assert_eq!((status, &answer["code"]), (409, &json!("node-not-up")));
    let (status, answer) = lab.post("/v1/nodes/2/leave", &json!({}));
    assert_eq!((status, &answer["code"]), (404, &json!("no-such-nodes")));
    let open = |nodes: &str| {
        let request = json!({ "metrics": ["hearth_node_uptime_seconds"], "nodes": nodes });
        lab.post("/v1/overlay/streams", &request)
    };
    let (status, answer) = open("n1");
    assert_eq!(status, 200, "{answer}");
    let (status, answer) = open("n[1-2]");
    assert_eq!((status, &answer["code"]), (404, &json!("no-such-nodes")));
}

#[test]
fn a_node_leaves_when_asked_and_comes_back_with_its_next_boot() {
    let mut lab = Lab::with_nodes(2);
    let busy = lab
        .run_command(&["--nodes", "n0"], "wait\n")
        .spawn()
        .unwrap();
    lab.eventually("the job runs", |lab| lab.last_job()["state"] == "running");
    let (code, _, err) = parts(&lab.hearth(&["node", "leave", "n0"]));
    assert_eq!(code, 125, "{err}");
    assert!(
        err.contains("n0 has job") && err.contains("cancel"),
        "{err}"
    );
    let (code, out, err) = parts(&lab.hearth(&["node", "leave", "n1"]));
    assert_eq!((code, out.as_str()), (0, "left: n1\n"), "{err}");
    let state = |lab: &Lab, node: usize| lab.json(&["nodes"])[node]["state"].clone();
    assert_eq!(
        (state(&lab, 0), state(&lab, 1)),
        (json!("busy"), json!("left"))
    );
    assert!(lab.has_event("node-left", "n1"));
    // Asking again changes nothing.
    assert_eq!(parts(&lab.hearth(&["node", "leave", "n1"])).0, 0);
    // It gets no job.
    let id = lab.json(&["jobs"])[0]["id"].to_string();
    lab.hearth(&["cancel", &id]);
    finish(busy);
    lab.eventually("n0 is idle", |lab| lab.idle_nodes() == 1);
    assert_eq!(parts(&lab.run(&["-n", "1"], "out here\n")).1, "here\n");
    assert_eq!(lab.json(&["nodes"])[1]["state"], "left");
    // A job that wants it says for what it waits, to whoever asks.
    let both = lab.run_command(&["-n", "2"], "out both\n").spawn().unwrap();
    lab.eventually("the job waits", |lab| {
        lab.last_job()["why"] == "PartitionNodeLimit"
    });
    let wanted = "2 nodes needed, 1 in service; n1 left in good order, `hearth node reset n1`";
    let (_, queue, _) = parts(&lab.hearth(&["queue"]));
    let listed = format!("(PartitionNodeLimit: {wanted}");
    assert!(queue.contains(&listed), "{queue}");
    let (_, job, _) = parts(&lab.hearth(&["job", &lab.last_job()["id"].to_string()]));
    assert!(job.contains(&format!("Detail={wanted}")), "{job}");
    lab.nodes[1] = FakeNode::start(lab.identity(1, 2), lab.address);
    let (code, out, err) = parts(&finish(both));
    assert_eq!((code, out.as_str()), (0, "both\nboth\n"), "{err}");
    assert!(err.contains(&format!("waiting: {wanted}")), "{err}");
    lab.eventually("the next boot is in service", |lab| lab.idle_nodes() == 2);
    assert_eq!(parts(&lab.run(&["-n", "2"], "out all\n")).1, "all\nall\n");
}

#[test]
fn jobs_on_different_nodes_run_at_once() {
    let lab = Lab::with_nodes(4);
    let first = lab
        .run_command(&["--nodes", "n[2-3]"], "out first\nwait\n")
        .spawn()
        .unwrap();
    let second = lab
        .run_command(&["--nodes", "n0"], "out second\nwait\n")
        .spawn()
        .unwrap();
    let running = |lab: &Lab| {
        let jobs = lab.json(&["jobs", "--active"]);
        jobs.as_array()
            .unwrap()
            .iter()
            .filter(|job| job["state"] == "running")
            .count()
    };
    lab.eventually("both jobs run", |lab| running(lab) == 2);
    let states: Vec<String> = lab
        .json(&["nodes"])
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["state"].as_str().unwrap().to_string())
        .collect();
    assert_eq!(states, ["busy", "idle", "busy", "busy"]);
    // A third passes on the node that is left.
    assert_eq!(parts(&lab.run(&[], "out third\n")).1, "third\n");
    for job in lab.json(&["jobs", "--active"]).as_array().unwrap() {
        lab.hearth(&["cancel", &job["id"].to_string()]);
    }
    assert_eq!(parts(&finish(first)).1, "first\nfirst\n");
    assert_eq!(parts(&finish(second)).1, "second\n");
}

#[test]
fn a_job_waits_for_busy_nodes_and_then_runs() {
    let lab = Lab::with_nodes(1);
    let first = lab.run_command(&[], "wait\n").spawn().unwrap();
    lab.eventually("the first job runs", |lab| {
        lab.last_job()["state"] == "running"
    });
    let second = lab.run_command(&[], "out now\n").spawn().unwrap();
    lab.eventually("the second job waits", |lab| {
        lab.last_job()["state"] == "pending"
    });
    assert_eq!(lab.last_job()["reason"], "1 node needed, 0 free");
    // A third is interrupted while it waits.
    let third = lab.run_command(&[], "out never\n").spawn().unwrap();
    lab.eventually("the third job waits", |lab| {
        lab.json(&["jobs"])[2]["state"] == "pending"
    });
    signal(&third, "INT");
    assert_eq!(parts(&finish(third)).0, 130);
    let id = lab.json(&["jobs"])[0]["id"].to_string();
    lab.hearth(&["cancel", &id]);
    finish(first);
    assert_eq!(parts(&finish(second)).1, "now\n");
}

#[test]
fn nodes_that_do_not_exist_are_refused_by_name() {
    let lab = Lab::with_nodes(1);
    let refused = |options: &[&str], status: i32, word: &str| {
        let (code, _, err) = parts(&lab.run(options, "out x\n"));
        assert_eq!(code, status, "{err}");
        assert!(err.contains(word), "{err}");
    };
    refused(&["-n", "9999"], 125, "nodes");
    refused(&["--nodes", "n77"], 125, "n77");
    refused(&["-n", "2", "--nodes", "n0"], 2, "as many nodes");
    refused(&["--nodes", "x"], 2, "n[0-3,7]");
    refused(&["-N", "2"], 125, "2 nodes wanted");
    refused(&["-N", "2", "-n", "8"], 125, "2 nodes wanted");
    refused(&["--dependency", "afterok:3"], 125, "no job 3");
    refused(&["--dependency", "after:3"], 2, "afterok");
}

#[test]
fn a_wrong_key_is_an_event_and_nothing_else() {
    let mut lab = Lab::with_nodes(1);
    let mut identity = lab.identity(5, 1);
    identity.secret[0] ^= 1;
    lab.nodes.push(FakeNode::start(identity, lab.address));
    lab.eventually("the refusal is an event", |lab| {
        lab.has_event("refused-wrong-key", "n5")
    });
    assert_eq!(lab.idle_nodes(), 1);
    assert_eq!(parts(&lab.run(&[], "out fine\n")).1, "fine\n");
}

#[test]
fn another_version_of_the_software_joins_and_is_said() {
    let mut lab = Lab::with_nodes(1);
    let mut identity = lab.identity(5, 1);
    identity.version[0] = b'9';
    lab.nodes.push(FakeNode::start(identity, lab.address));
    lab.eventually("it joined, and both versions are said", |lab| {
        lab.has_event(
            "node-joined",
            "it runs version 9.1.0, the control node 0.1.0",
        )
    });
    assert_eq!(lab.idle_nodes(), 2);
}

#[test]
fn a_node_that_boots_again_is_counted_and_serves_again() {
    let mut lab = Lab::with_nodes(1);
    lab.nodes[0].stop();
    lab.nodes[0] = FakeNode::start(lab.identity(0, 2), lab.address);
    lab.eventually("the second boot joined", |lab| {
        let node = &lab.json(&["nodes"])[0];
        node["boots"] == 2 && node["state"] == "idle"
    });
    assert_eq!(parts(&lab.run(&[], "out again\n")).1, "again\n");
}

/// Control restarts, in order or by a crash, under a running job: the client waits, the nodes join
/// again, the job goes on, and they serve again.
fn restart(crash: bool) {
    let mut lab = Lab::with_nodes(2);
    let child = lab.run_command(&["-n", "2"], "wait\n").spawn().unwrap();
    lab.eventually("the job runs", |lab| lab.last_job()["state"] == "running");
    let id = lab.last_job()["id"].as_u64().unwrap();
    lab.stop_control(crash);
    lab.start_control();
    lab.eventually("the job goes on", |lab| {
        lab.last_job()["state"] == "running" && lab.last_job()["continued"] == 1
    });
    let (code, _, err) = parts(&lab.hearth(&["cancel", &id.to_string()]));
    assert_eq!(code, 0, "{err}");
    let (code, _, err) = parts(&finish(child));
    assert_eq!(code, 128 + 15, "{err}");
    assert!(
        err.contains("control node"),
        "it says for whom it waits: {err}"
    );
    lab.eventually("both nodes joined again", |lab| lab.idle_nodes() == 2);
    assert!(
        lab.nodes
            .iter()
            .all(|node| node.watch.joins.load(Ordering::Relaxed) >= 2)
    );
    let (code, out, err) = parts(&lab.run(&["-n", "2"], "out back\n"));
    assert_eq!((code, &*out), (0, "back\nback\n"), "{err}");
    assert!(
        lab.last_job()["id"].as_u64().unwrap() > id,
        "job numbers go on"
    );
}

#[test]
fn nodes_join_a_restarted_control_again() {
    restart(false);
}

#[test]
fn nodes_join_a_crashed_control_again() {
    restart(true);
}

#[test]
fn one_state_directory_has_one_control_node() {
    let lab = Lab::control();
    let args = [
        "serve",
        "--no-boot",
        "--address",
        "127.0.0.1/8",
        "--control-port",
        "0",
        "--http",
        "none",
    ];
    let (code, _, err) = parts(&lab.hearth(&args));
    assert_eq!(code, 125);
    assert!(err.contains("another control node"), "{err}");
}

#[test]
fn a_second_machine_with_a_mac_in_use_is_an_event_and_nothing_else() {
    let mut lab = Lab::with_nodes(1);
    lab.nodes
        .push(FakeNode::start(lab.identity(0, 2), lab.address));
    lab.eventually("the second machine is an event", |lab| {
        lab.has_event("two-nodes-one-mac", "52:54:00:07:00:00")
    });
    assert_eq!(parts(&lab.run(&[], "out first\n")).1, "first\n");
    assert_eq!(lab.json(&["nodes"])[0]["boots"], 1);
}

#[test]
fn a_machine_waits_until_somebody_approves_of_it_and_stays_approved() {
    let mut lab = Lab::configured("[admission]\nmode = \"approve\"\n");
    lab.nodes
        .push(FakeNode::start(lab.identity(3, 1), lab.address));
    lab.eventually("the machine waits", |lab| {
        lab.json(&["nodes", "--waiting"])[0]["mac"] == "52:54:00:07:00:03"
    });
    let (code, out, err) = parts(&lab.hearth(&["nodes", "--waiting"]));
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("52:54:00:07:00:03  n3"), "{out}");
    assert_eq!(lab.idle_nodes(), 0);
    let (code, _, err) = parts(&lab.hearth(&["node", "approve", "52:54:00:07"]));
    assert!(code == 2 && err.contains("52:54:00:07"), "{err}");
    let (code, out, err) = parts(&lab.hearth(&["node", "approve", "52:54:00:07:00:03"]));
    assert_eq!(
        (code, out.as_str()),
        (0, "52:54:00:07:00:03 is n3 when it joins\n"),
        "{err}"
    );
    lab.eventually("the machine joined", |lab| lab.idle_nodes() == 1);
    assert_eq!(lab.json(&["nodes", "--waiting"]), serde_json::json!([]));
    // Who was approved of is so after a restart; who was not asks again.
    lab.nodes
        .push(FakeNode::start(lab.identity(4, 1), lab.address));
    lab.stop_control(true);
    lab.start_control();
    lab.eventually("the machine is back", |lab| lab.idle_nodes() == 1);
    lab.eventually("the other machine waits", |lab| {
        lab.json(&["nodes", "--waiting"])[0]["mac"] == "52:54:00:07:00:04"
    });
    assert_eq!(parts(&lab.run(&[], "out again\n")).1, "again\n");
}

#[test]
fn a_list_admits_its_machines() {
    let list = "[admission]\nmode = \"list\"\nmachines = [\"52:54:00:07:00:03\"]\n";
    let mut lab = Lab::configured(list);
    for node in [3, 4] {
        lab.nodes
            .push(FakeNode::start(lab.identity(node, 1), lab.address));
    }
    lab.eventually("the listed machine joined", |lab| lab.idle_nodes() == 1);
    lab.eventually("the refusal is an event", |lab| {
        let events = lab.json(&["events"]).to_string();
        events.contains("refused-") && events.contains("52:54:00:07:00:04")
    });
    let (code, _, err) = parts(&lab.hearth(&["node", "approve", "52:54:00:07:00:04"]));
    assert!(code != 0 && err.contains("admission.machines"), "{err}");
    assert_eq!(lab.idle_nodes(), 1);
}

#[test]
fn what_is_meant_for_another_cluster_changes_nothing_in_this_one() {
    let mut lab = Lab::with_nodes(1);
    let first = lab.get("/v1/status")["instance"]
        .as_str()
        .unwrap()
        .to_string();
    lab.stop_control(true);
    lab.start_control();
    assert_eq!(
        lab.get("/v1/status")["instance"],
        *first,
        "it is the same cluster"
    );
    // Another cluster of the same name: everything that was known is gone.
    lab.stop_control(false);
    for file in ["hearth.db", "hearth.db-wal", "hearth.db-shm"] {
        drop(std::fs::remove_file(lab.path(file)));
    }
    lab.start_control();
    assert_ne!(lab.get("/v1/status")["instance"], *first);
    lab.eventually("the node is back", |lab| lab.idle_nodes() == 1);
    let child = lab.run_command(&[], "wait\n").spawn().unwrap();
    lab.eventually("the job runs", |lab| lab.last_job()["state"] == "running");
    let job = lab.last_job()["id"].to_string();
    let cancel = |instance: &str| {
        let mut stream = UnixStream::connect(lab.socket()).unwrap();
        let body = "{\"signal\":15}";
        let head = format!(
            "POST /v1/jobs/{job}/cancel HTTP/1.1\r\nhost: hearth\r\nhearth-instance: {instance}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let answer = cancel(&first);
    assert!(
        answer.starts_with("HTTP/1.1 410") && answer.contains("another-cluster"),
        "{answer}"
    );
    let info = lab.get(&format!("/v1/jobs/{job}"));
    assert_eq!(info["state"], "running");
    assert_eq!(info["instance"], lab.get("/v1/status")["instance"]);
    let own = info["instance"].as_str().unwrap();
    assert!(cancel(own).starts_with("HTTP/1.1 200"));
    assert_eq!(finish(child).status.code(), Some(128 + 15));
}

#[test]
fn a_laboratory_key_is_taken_only_when_allowed() {
    let mut lab = Lab::control();
    let made = lab.json(&["node", "key", "3", "52:54:00:07:00:03"]);
    let mut identity = lab.identity(3, 1);
    identity.lab_key = hearth_control::secrets::decode_hex(made["key"].as_str().unwrap());
    lab.nodes.push(FakeNode::start(identity, lab.address));
    lab.eventually("the refusal is an event", |lab| {
        lab.json(&["events"]).to_string().contains("refused-")
    });
    assert_eq!(lab.idle_nodes(), 0);
    lab.stop_control(false);
    lab.serve_arguments.push("--lab-keys");
    lab.start_control();
    lab.eventually("the node joined", |lab| lab.idle_nodes() == 1);
    assert_eq!(parts(&lab.run(&["--nodes", "n3"], "out lab\n")).1, "lab\n");
}

#[test]
fn commands_find_the_only_cluster_or_ask_which() {
    let lab = Lab::control();
    let root = tempfile::tempdir().unwrap();
    let hearth = |cluster: Option<&str>| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_hearth"));
        command
            .args(["nodes", "--config", "/dev/null"])
            .env_remove("HEARTH_CLUSTER");
        command.env("XDG_STATE_HOME", root.path());
        command.envs(cluster.map(|name| ("HEARTH_CLUSTER", name)));
        command.output().unwrap()
    };
    let (code, _, err) = parts(&hearth(None));
    assert_eq!(code, 125);
    assert!(err.contains("hearth up"), "{err}");
    // A control node is found by its socket, wherever its state really is.
    let add = |name: &str| {
        let clusters = root.path().join("hearth");
        std::fs::create_dir_all(&clusters).unwrap();
        std::os::unix::fs::symlink(lab.path(""), clusters.join(name)).unwrap();
    };
    add("one");
    assert_eq!(parts(&hearth(None)).0, 0);
    add("two");
    let (code, _, err) = parts(&hearth(None));
    assert_eq!(code, 125);
    assert!(
        err.contains("one, two") && err.contains("--cluster"),
        "{err}"
    );
    assert_eq!(parts(&hearth(Some("two"))).0, 0);
    assert!(parts(&hearth(Some("three"))).2.contains("one, two"));
}

#[test]
fn a_list_of_machines_becomes_the_file_of_nodes() {
    let lab = Lab::control();
    let list = |name: &str, text: &str| {
        std::fs::write(lab.path(name), text).unwrap();
        lab.path(name).display().to_string()
    };
    let table = list("rack.csv", "name,mac,ip\nr1n7,52:54:00:00:00:07,10.0.0.7\n");
    let (code, out, err) = parts(&lab.hearth(&["node", "import", &table]));
    assert_eq!(code, 0, "{err}");
    assert_eq!(out, "52:54:00:00:00:07 10.0.0.7 7 r1n7\n");
    let json = lab.json(&["node", "import", &table]);
    assert_eq!(
        (&json[0]["node"], &json[0]["name"]),
        (&7.into(), &"r1n7".into())
    );
    // A name that says nothing needs the option; what is wrong is told with the file.
    let unknown = list("machines", "host a { hardware ethernet 1; }\n");
    let (code, _, err) = parts(&lab.hearth(&["node", "import", &unknown]));
    assert!(code == 2 && err.contains("--format"), "{err}");
    let line = ["node", "import", "--format", "dhcpd", &unknown];
    let (code, _, err) = parts(&lab.hearth(&line));
    assert!(code == 125 && err.contains("machines: a: "), "{err}");
}

#[test]
fn what_is_not_there_is_refused_with_what_is() {
    let lab = Lab::with_nodes(2);
    lab.eventually("a picture with both nodes", |lab| {
        lab.get("/v1/monitor/now")["nodes"]
            .as_array()
            .unwrap()
            .len()
            == 2
    });
    for (line, status, words) in [
        (
            &["nodes", "n[1,7]"][..],
            125,
            "there is no node n7; there are n[0-1]",
        ),
        (
            &["nodes", "n[7-8]", "--json"],
            125,
            "there are no nodes n[7-8]",
        ),
        (&["events", "--node", "n7"], 125, "there is no node n7"),
        (&["events", "--job", "99"], 125, "there is no job 99"),
        (
            &["top", "--once", "--nodes", "n7"],
            125,
            "there is no node n7; there are n[0-1]",
        ),
        (
            &["node", "leave", "n7"],
            125,
            "there is no node n7; there are n[0-1]",
        ),
        (
            &["overlay", "close", "1"],
            125,
            "nobody has opened stream 1",
        ),
        (&["cancel", "1", "--signal", "99"], 2, "from 1 to 64"),
        // Commands for QEMU clusters leave others alone: the state directory says which is meant.
        (&["down"], 125, "no cluster of QEMU nodes in"),
        (&["node", "reset", "n0"], 125, "set [power] method in"),
        (&["node", "on", "n7"], 125, "there is no node n7"),
        (&["console", "n7"], 125, "there is no node n7"),
        (&["list", "--machines"], 125, "no cluster of QEMU nodes in"),
        (
            &["history", "--since", "1d", "--until", "2d"],
            2,
            "--until is before",
        ),
        (
            &["cancel", "--user", "nobody-x"],
            0,
            "no job in the queue is meant",
        ),
        (
            &["node", "key", "32768", "52:54:00:00:00:01"],
            2,
            "0..32768",
        ),
        (&["jobs", "--limit", "0"], 2, "--limit"),
        (&["history", "--limit", "0"], 2, "--limit"),
        (&["cast", "/dev/null", "--timeout", "0"], 2, "above 0"),
        (
            &["plan", "--tree", "4x2", "-n", "0"],
            125,
            "ask for 1 at least",
        ),
        (
            &["plan", "--tree", "4x2", "-n", "1", "--free", "n9"],
            125,
            "which has n0 to n7",
        ),
        (
            &["plan", "--tree", "4x2", "-n", "1", "--free", ""],
            2,
            "empty",
        ),
    ] {
        let (code, _, err) = parts(&lab.hearth(line));
        assert!(
            code == status && err.contains(words),
            "{line:?}: {code} {err}"
        );
    }
    // Of those that are there nothing may have happened.
    let (code, _, err) = parts(&lab.hearth(&["events", "--node", "n1", "--after", "9999"]));
    assert_eq!((code, err.as_str()), (0, ""));
}

#[test]
fn what_a_node_logs_is_shown_while_it_runs_and_after() {
    let mut lab = Lab::with_nodes(1);
    let shown = |lab: &Lab| {
        let (code, out, err) = parts(&lab.hearth(&["console", "n0"]));
        assert_eq!(code, 0, "{err}");
        out
    };
    // What a terminal would take for a command is not passed on.
    lab.eventually("its log comes", |lab| shown(lab) == "joined\u{fffd}[2J\n");
    let mut follow = lab.command(&["console", "n0", "-f"]).spawn().unwrap();
    lab.nodes[0].stop();
    lab.nodes[0] = FakeNode::start(lab.identity(0, 2), lab.address);
    let again = "joined\u{fffd}[2J\n(it has booted again)\njoined\u{fffd}[2J\n";
    lab.eventually("it boots again", |lab| shown(lab) == again);
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert!(follow.try_wait().unwrap().is_none(), "it goes on");
    signal(&follow, "INT");
    assert_eq!(text(&finish(follow).stdout), again);
}
