//! Files and programs that are cast to nodes: real members of casts on loopback sockets.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use netstack::broadcast::table::Table;
use netstack::broadcast::{EndReason, MEMBER_CASTS};
use netstack::ids::Rank;
use serde_json::{Value, json};

use crate::fake_node::FakeNode;
use crate::lab::{Lab, finish, parts, signal, text};

/// A file whose first line is `first`, of `bytes` bytes.
fn file(lab: &Lab, name: &str, first: &str, bytes: usize) -> String {
    let path: PathBuf = lab.path(name);
    let mut content = format!("{first}\n").into_bytes();
    let mut word = 1u32;
    content.resize_with(bytes.max(content.len()), || {
        word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (word >> 24) as u8
    });
    std::fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_string()
}

/// `hearth cast ARGS --json`: its status and what it printed.
fn cast(lab: &Lab, args: &[&str]) -> (i32, Value) {
    let mut all = vec!["cast", "--json"];
    all.extend(args);
    let output = lab.hearth(&all);
    let (code, out, err) = parts(&output);
    let value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{code}: {out}{err}"));
    (code, value)
}

/// `hearth cast ARGS`, which fails: its status and the message.
fn refused(lab: &Lab, args: &[&str]) -> String {
    refused_with(lab, 125, args)
}

/// Because of the command line itself.
fn mistaken(lab: &Lab, args: &[&str]) -> String {
    refused_with(lab, 2, args)
}

fn refused_with(lab: &Lab, status: i32, args: &[&str]) -> String {
    let mut all = vec!["cast"];
    all.extend(args);
    let (code, _, err) = parts(&lab.hearth(&all));
    assert_eq!(code, status, "{err}");
    err
}

/// A cast of a file to all nodes, slow enough to be met under way: once this node has a part of it.
fn cast_to(lab: &Lab, data: &str, node: usize) -> Child {
    let child = lab
        .command(&["cast", data, "--rate", "2mbit", "--json"])
        .spawn()
        .unwrap();
    lab.eventually("it is under way", |lab| {
        lab.nodes[node].watch.incomplete.load(Ordering::Relaxed) == 1
    });
    child
}

/// Until the only cast waits for exactly these nodes.
fn waits_for(lab: &Lab, nodes: &str) {
    lab.eventually(&format!("the cast waits for {nodes} alone"), |lab| {
        let cast = &lab.json(&["casts"])["casts"][0];
        cast["state"] == "waiting" && cast["nodes_absent"] == nodes
    });
}

/// Another boot of a node, at another address.
fn boot_again(lab: &mut Lab, node: usize) {
    lab.nodes[node].stop();
    let identity = lab.identity(node as u32, 2);
    lab.nodes[node] = FakeNode::start(identity, lab.address);
}

/// A cast that was waited for, and has reached all three nodes.
fn reached_all(lab: &Lab, child: Child) {
    let (code, out, err) = parts(&finish(child));
    let info: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &info["state"]), (0, &json!("done")), "{out}{err}");
    assert_eq!(&info["nodes_done"], &json!("n[0-2]"), "{out}");
    assert!(lab.nodes.iter().all(|node| files_on(node) == 1));
}

fn files_on(node: &FakeNode) -> usize {
    node.watch.files.lock().unwrap().len()
}

#[test]
fn a_file_is_cast_once_and_found_by_jobs_until_it_is_dropped() {
    let lab = Lab::with_nodes(3);
    let data = file(&lab, "data.txt", "what the file says", 300_000);
    let (code, info) = cast(&lab, &[&data, "--rate", "20mbit"]);
    assert_eq!(code, 0, "{info}");
    assert_eq!((&info["state"], &info["done"]), (&json!("done"), &json!(3)));
    let sent = info["bytes_sent"].as_u64().unwrap();
    assert!(
        (300_000..700_000).contains(&sent),
        "nodes pass on what they get: {info}"
    );
    assert!(
        info["limit_ms"].as_f64().unwrap() > 0.0 && info["ratio"].is_f64(),
        "{info}"
    );
    let listed = lab.json(&["casts"]);
    let first = &listed["files"][0];
    assert_eq!(
        (&first["name"], &first["nodes"]),
        (&json!("data.txt"), &json!("n[0-2]"))
    );
    // Again: nothing is sent.
    let (code, again) = cast(&lab, &[&data]);
    assert_eq!(
        (code, &again["held"], &again["bytes_sent"]),
        (0, &json!(3), &json!(0))
    );
    let script = "with data.txt\nwith other\n";
    for with in [&data[..], "data.txt"] {
        let (code, out, err) = parts(&lab.run(&["-n", "2", "--with", with], script));
        assert_eq!(code, 0, "{err}");
        assert_eq!(out.matches("what the file says").count(), 2, "{out}");
        assert_eq!(out.matches("no such file").count(), 2);
    }
    let dropped = lab.json(&["casts", "drop", "data.txt", "n0"]);
    assert_eq!(dropped["nodes"][0]["outcome"], "dropped");
    assert_eq!(lab.json(&["casts"])["files"][0]["nodes"], "n[1-2]");
    assert!(lab.hearth(&["casts", "drop", "data.txt"]).status.success());
    lab.eventually("nobody holds it", |lab| {
        lab.nodes.iter().all(|node| files_on(node) == 0)
    });
    assert_eq!(lab.json(&["casts"])["files"], json!([]));
    let (code, _, err) = parts(&lab.run(&["--with", "data.txt"], script));
    assert_eq!(code, 125);
    assert!(
        err.contains("data.txt: no such file, and no cast file has that name"),
        "{err}"
    );
    // A job with a path brings it along.
    let (code, out, err) = parts(&lab.run(&["-n", "3", "--with", &data], script));
    assert_eq!(code, 0, "{err}");
    assert_eq!(out.matches("what the file says").count(), 3);
    assert!(lab.has_event("cast-started", "data.txt") && lab.has_event("cast-ended", "data.txt"));
}

/// What was dropped while a node was silent stays there when it comes back, if it was cast again
/// meanwhile.
#[test]
fn a_drop_that_is_owed_gives_way_to_a_new_cast() {
    let lab = Lab::with_nodes(2);
    let data = file(&lab, "data.txt", "again", 100_000);
    let other = file(&lab, "other.txt", "other", 1_000);
    for path in [&data, &other] {
        assert_eq!(cast(&lab, &[path]).0, 0);
    }
    let watch = &lab.nodes[1].watch;
    let cut = |cut| {
        watch.deaf.store(cut, Ordering::Relaxed);
        watch.mute.store(cut, Ordering::Relaxed);
    };
    cut(true);
    lab.eventually("n1 is silent", |lab| {
        lab.json(&["casts"])["files"][0]["nodes"] == "n0"
    });
    for name in ["data.txt", "other.txt"] {
        let dropped = lab.hearth(&["casts", "drop", name, "--json"]);
        let dropped: Value = serde_json::from_slice(&dropped.stdout).unwrap();
        assert_eq!(dropped["nodes"][1]["outcome"], "away", "{dropped}");
    }
    assert_eq!(files_on(&lab.nodes[0]), 0);
    let again = lab
        .command(&["cast", "--json", "--wait", &data, "n[0-1]"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    lab.eventually("it is cast again", |lab| {
        lab.json(&["casts"])["casts"][0]["nodes"] == "n[0-1]" || files_on(&lab.nodes[0]) == 1
    });
    cut(false);
    assert!(finish(again).status.success());
    lab.eventually("n1 has let go of the other one", |lab| {
        files_on(&lab.nodes[1]) == 1
    });
    assert_eq!(lab.json(&["casts"])["files"][0]["nodes"], "n[0-1]");
    assert_eq!(lab.json(&["casts"])["files"][0]["name"], "data.txt");
}

#[test]
fn mistakes_are_told_with_what_to_do() {
    let lab = Lab::with_nodes(1);
    let data = file(&lab, "data", "one", 10_000);
    let other = file(&lab, "other", "two", 10_000);
    assert_eq!(cast(&lab, &[&data]).0, 0);
    let taken = refused(&lab, &[&other, "--name", "data"]);
    assert!(
        taken.contains("casts drop data") && taken.contains("n0"),
        "{taken}"
    );
    // A job has its own file all the same: it goes by content.
    std::fs::create_dir(lab.path("sub")).unwrap();
    let own = file(&lab, "sub/data", "of the job", 10_000);
    let (code, out, err) = parts(&lab.run(&["--with", &own], "with data\n"));
    assert_eq!((code, &out[..]), (0, "of the job\n"), "{err}");
    assert!(lab.hearth(&["casts", "drop", "data"]).status.success());
    assert_eq!(cast(&lab, &[&data]).0, 0);
    let missing = refused(&lab, &["/no/such/file"]);
    assert!(missing.contains("/no/such/file"), "{missing}");
    let folder = refused(&lab, &[lab.path("").to_str().unwrap(), "--name", "x"]);
    assert!(folder.contains("tar"), "{folder}");
    for name in ["../x", "a/b", "..", "a\nb"] {
        let bad = mistaken(&lab, &[&data, "--name", name]);
        assert!(bad.contains("--name"), "{bad}");
    }
    assert!(refused(&lab, &[&data, "n7"]).contains("unknown nodes: n7"));
    assert!(mistaken(&lab, &[&data, "x7"]).contains("not a node name"));
    assert!(refused(&lab, &["."]).contains(".: it is a folder; pack it with tar"));
    let large = lab.path("large");
    std::fs::File::create(&large)
        .unwrap()
        .set_len(25 << 20)
        .unwrap();
    let large = refused(&lab, &[large.to_str().unwrap()]);
    assert!(
        large.contains("half of its memory") && large.contains("n0"),
        "{large}"
    );
    let drop = lab.hearth(&["casts", "drop", "nothing"]);
    assert!(
        text(&drop.stderr).contains("hearth casts"),
        "{}",
        text(&drop.stderr)
    );
    let cancel = lab.hearth(&["casts", "cancel", "99"]);
    assert!(
        text(&cancel.stderr).contains("no cast 99"),
        "{}",
        text(&cancel.stderr)
    );
    lab.nodes[0].watch.full.store(true, Ordering::Relaxed);
    let (code, info) = cast(&lab, &[&other]);
    assert_eq!((code, &info["state"]), (1, &json!("failed")), "{info}");
    let why = info["failed"][0]["reason"].as_str().unwrap();
    assert!(
        why.contains("no room") && why.contains("casts drop"),
        "{why}"
    );
}

#[test]
fn an_interrupt_cancels_and_leaves_nothing() {
    let lab = Lab::with_nodes(2);
    let data = file(&lab, "data", "slow", 2_000_000);
    let child = lab
        .command(&["cast", &data, "--rate", "2mbit"])
        .spawn()
        .unwrap();
    lab.eventually("it is under way", |lab| {
        let parts = |node: &FakeNode| node.watch.incomplete.load(Ordering::Relaxed);
        lab.nodes.iter().all(|node| parts(node) == 1)
    });
    // Nobody has it yet, so that it is a cast alone.
    let listed = lab.json(&["casts"]);
    assert_eq!(listed["files"], json!([]), "{listed}");
    signal(&child, "INT");
    let (code, _, err) = parts(&finish(child));
    assert_eq!((code, err.lines().count()), (130, 1), "{err}");
    assert!(err.contains("; n[0-1] did not have it yet"), "{err}");
    lab.eventually("nothing is left", |lab| {
        let clean = |node: &FakeNode| {
            node.watch.incomplete.load(Ordering::Relaxed) == 0 && files_on(node) == 0
        };
        lab.nodes.iter().all(clean)
    });
    assert_eq!(lab.json(&["casts"])["files"], json!([]));
}

/// No data of casts reaches n2 and n3 any more.
fn starve_n2_and_n3(lab: &Lab, starved: bool) {
    for node in [2, 3] {
        lab.nodes[node]
            .watch
            .starved
            .store(starved, Ordering::Relaxed);
    }
}

/// Until n0 and n1 have the only file, as control knows, and n2 and n3 lack it.
fn two_of_four_have_it(lab: &Lab) {
    lab.eventually("n0 and n1 have it, n2 and n3 do not", |lab| {
        let incomplete = |node: &FakeNode| node.watch.incomplete.load(Ordering::Relaxed);
        let casts = lab.json(&["casts"])["casts"].as_array().unwrap().clone();
        casts.last().is_some_and(|cast| cast["done"] == 2)
            && lab.nodes[..2].iter().all(|node| files_on(node) == 1)
            && lab.nodes[2..].iter().all(|node| incomplete(node) == 1)
    });
}

/// How casts have ended on each node since the last call.
fn ends(lab: &Lab) -> Vec<Vec<EndReason>> {
    let take = |node: &FakeNode| std::mem::take(&mut *node.watch.ends.lock().unwrap());
    lab.nodes.iter().map(take).collect()
}

#[test]
fn a_cancel_reaches_nodes_that_are_complete_and_those_that_are_not() {
    let mut lab = Lab::with_nodes(4);
    let data = file(&lab, "data", "unwanted", 200_000);
    starve_n2_and_n3(&lab, true);
    let child = lab.command(&["cast", &data, "--json"]).spawn().unwrap();
    two_of_four_have_it(&lab);
    assert_eq!(lab.json(&["casts"])["files"][0]["nodes"], "n[0-1]");
    assert_eq!(parts(&lab.hearth(&["casts", "cancel", "1"])).0, 0);
    let (_, out, err) = parts(&finish(child));
    let info: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(&info["state"], &json!("cancelled"), "{out}{err}");
    let clean = |lab: &Lab, nodes: &[usize]| {
        nodes.iter().all(|node| {
            let watch = &lab.nodes[*node].watch;
            watch.kept_of_casts.load(Ordering::Relaxed) == 0 && files_on(&lab.nodes[*node]) == 0
        })
    };
    lab.eventually("nothing is left on any node", |lab| {
        clean(lab, &[0, 1, 2, 3])
    });
    // Each was told: none found out by the silence of the others.
    assert_eq!(ends(&lab), vec![vec![EndReason::Cancelled]; 4]);
    lab.eventually("control knows of no file", |lab| {
        lab.json(&["casts"])["files"] == json!([])
    });
    // Nor does the next run of control.
    lab.stop_control(true);
    lab.start_control();
    lab.eventually("the nodes are back", |lab| lab.idle_nodes() == 4);
    let known = lab.json(&["casts"]);
    assert_eq!(
        (&known["casts"], &known["files"]),
        (&json!([]), &json!([])),
        "{known}"
    );
    starve_n2_and_n3(&lab, false);
    let (code, info) = cast(&lab, &[&data]);
    assert_eq!(
        (code, &info["done"], &info["held"]),
        (0, &json!(4), &json!(0)),
        "{info}"
    );
}

/// The next run of control neither goes on with it nor keeps what it left on nodes.
#[test]
fn what_was_cancelled_when_control_was_killed_is_not_cast_on_and_leaves_nothing() {
    let mut lab = Lab::with_nodes(4);
    let data = file(&lab, "data", "unwanted", 200_000);
    starve_n2_and_n3(&lab, true);
    let child = lab.command(&["cast", &data]).spawn().unwrap();
    two_of_four_have_it(&lab);
    // The cast cannot end: nobody answers.
    let mute = |lab: &Lab, mute| {
        let watches = lab.nodes.iter().map(|node| &node.watch.mute);
        watches.for_each(|watch| watch.store(mute, Ordering::Relaxed));
    };
    mute(&lab, true);
    assert_eq!(parts(&lab.hearth(&["casts", "cancel", "1"])).0, 0);
    lab.stop_control(true);
    starve_n2_and_n3(&lab, false);
    mute(&lab, false);
    lab.start_control();
    lab.eventually("the nodes are back and hold nothing", |lab| {
        lab.idle_nodes() == 4 && lab.nodes.iter().all(|node| files_on(node) == 0)
    });
    lab.eventually("control knows of nothing", |lab| {
        let known = lab.json(&["casts"]);
        (&known["casts"], &known["files"]) == (&json!([]), &json!([]))
    });
    assert_ne!(parts(&finish(child)).0, 0);
}

#[test]
fn who_takes_a_half_done_cast_back_leaves_it_to_others_alone() {
    let lab = Lab::with_nodes(4);
    let data = file(&lab, "data", "wanted by one", 200_000);
    starve_n2_and_n3(&lab, true);
    let cast_to_two = |nodes: &str| {
        let args = ["cast", &data, nodes, "--json"];
        lab.command(&args).spawn().unwrap()
    };
    let leaves = cast_to_two("n[0,2]");
    lab.eventually("n0 has it", |lab| files_on(&lab.nodes[0]) == 1);
    let stays = cast_to_two("n[1,3]");
    two_of_four_have_it(&lab);
    signal(&leaves, "INT");
    let (code, out, err) = parts(&finish(leaves));
    let info: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &info["state"]), (130, &json!("running")), "{err}");
    starve_n2_and_n3(&lab, false);
    let (code, out, err) = parts(&finish(stays));
    let info: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &info["state"]), (0, &json!("done")), "{out}{err}");
    assert_eq!(&info["nodes_done"], &json!("n[1,3]"), "{out}");
    let files = |lab: &Lab| lab.nodes.iter().map(files_on).collect::<Vec<_>>();
    lab.eventually("n0 and n2 let go of it", |lab| files(lab) == [0, 1, 0, 1]);
    assert_eq!(lab.json(&["casts"])["files"][0]["nodes"], "n[1,3]");
    let (code, again) = cast(&lab, &[&data]);
    assert_eq!(
        (code, &again["done"], &again["held"]),
        (0, &json!(4), &json!(2)),
        "{again}"
    );
    assert_eq!(files(&lab), [1; 4]);
}

#[test]
fn a_control_node_that_was_killed_goes_on_with_its_casts() {
    let mut lab = Lab::with_nodes(3);
    let data = file(&lab, "data", "survives", 500_000);
    let child = cast_to(&lab, &data, 0);
    let before = Duration::from_millis(1_200);
    std::thread::sleep(before);
    let killed = Instant::now();
    lab.stop_control(true);
    lab.start_control();
    let (code, out, err) = parts(&finish(child));
    assert_eq!(code, 0, "{out}{err}");
    let info: Value = serde_json::from_str(&out).unwrap();
    // The time before the kill counts, more than the client needs to hear of the end.
    let since = killed.elapsed().as_secs_f64() * 1e3;
    assert!(info["ms"].as_f64().unwrap() > since, "{since}: {out}");
    assert_eq!(&info["resumed"], &json!(true));
    assert!(lab.nodes.iter().all(|node| files_on(node) == 1));
    // Who holds it is remembered, in the same boot.
    lab.stop_control(true);
    lab.start_control();
    lab.eventually("all holders are known again", |lab| {
        lab.json(&["casts"])["files"][0]["nodes"] == "n[0-2]"
    });
    let (code, again) = cast(&lab, &[&data]);
    assert_eq!((code, &again["held"]), (0, &json!(3)), "{again}");
    // Another boot has forgotten it.
    lab.nodes[0].stop();
    let identity = lab.identity(0, 2);
    lab.nodes[0] = FakeNode::start(identity, lab.address);
    lab.eventually("the new boot is known to hold nothing", |lab| {
        lab.json(&["casts"])["files"][0]["nodes"] == "n[1-2]"
    });
}

#[test]
fn a_node_that_is_lost_in_the_middle_is_named_and_the_others_finish() {
    let mut lab = Lab::with_nodes(3);
    let data = file(&lab, "data", "x", 750_000);
    let child = cast_to(&lab, &data, 2);
    lab.nodes[2].stop();
    let (code, out, err) = parts(&finish(child));
    let info: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &info["state"]), (1, &json!("partial")), "{out}{err}");
    assert_eq!(
        (&info["nodes_done"], &info["failed"][0]["node"]),
        (&json!("n[0-1]"), &json!("n2"))
    );
    assert!(lab.has_event("cast-node-failed", "n2") && lab.has_event("cast-ended", "not on n2"));
}

#[test]
fn a_node_that_boots_again_in_the_middle_gets_it_also_when_all_others_have_it() {
    let mut lab = Lab::with_nodes(3);
    // Over well before the earlier boot has been silent for long enough to let the new one in.
    let data = file(&lab, "data", "x", 600_000);
    let child = cast_to(&lab, &data, 2);
    boot_again(&mut lab, 2);
    reached_all(&lab, child);
    assert!(lab.has_event("node-lost", "n2"));
}

#[test]
fn who_joined_a_cast_leaves_it_without_taking_it_from_others() {
    let lab = Lab::with_nodes(4);
    let data = file(&lab, "data", "wanted", 600_000);
    let cast_of = |nodes: &str| {
        let args = ["cast", &data, nodes, "--rate", "2mbit", "--json"];
        lab.command(&args).spawn().unwrap()
    };
    let on_its_way = |node: usize| {
        lab.eventually("it is on its way", |lab| {
            lab.nodes[node].watch.incomplete.load(Ordering::Relaxed) == 1
        });
    };
    let first = cast_of("n0");
    on_its_way(0);
    let second = cast_of("n[0-1]");
    on_its_way(1);
    let with = ["-n", "1", "--nodes", "n3", "--with", &data];
    let job = lab.run_command(&with, "out here\n").spawn().unwrap();
    on_its_way(3);
    signal(&second, "INT");
    let (code, out, err) = parts(&finish(second));
    let info: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &info["state"]), (130, &json!("running")), "{err}");
    let (code, out, err) = parts(&finish(first));
    let info: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &info["state"]), (0, &json!("done")), "{out}{err}");
    assert_eq!(&info["nodes_done"], &json!("n0"), "{out}");
    let (code, out, err) = parts(&finish(job));
    assert_eq!((code, out.trim()), (0, "here"), "{err}");
    lab.eventually("nobody wants it on n1", |lab| files_on(&lab.nodes[1]) == 0);
    assert_eq!((files_on(&lab.nodes[0]), files_on(&lab.nodes[3])), (1, 1));
}

#[test]
fn a_cast_that_others_joined_ends_with_the_last_of_them() {
    let lab = Lab::with_nodes(2);
    let data = file(&lab, "data", "unwanted", 900_000);
    let [first, second] = [0, 1].map(|node| {
        let name = format!("n{node}");
        let args = ["cast", &data, &name, "--rate", "2mbit", "--json"];
        let child = lab.command(&args).spawn().unwrap();
        lab.eventually("it is on its way", |lab| {
            lab.nodes[node].watch.incomplete.load(Ordering::Relaxed) == 1
        });
        child
    });
    for (child, state) in [(second, "running"), (first, "cancelled")] {
        signal(&child, "INT");
        let (code, out, err) = parts(&finish(child));
        let info: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((code, &info["state"]), (130, &json!(state)), "{out}{err}");
    }
    lab.eventually("nothing is left", |lab| {
        let left =
            |node: &FakeNode| files_on(node) as u64 + node.watch.incomplete.load(Ordering::Relaxed);
        lab.nodes.iter().all(|node| left(node) == 0)
    });
}

#[test]
fn a_cast_is_not_joined_in_another_way_and_does_not_wait_for_the_absent_ones_of_others() {
    let lab = Lab::with_nodes(2);
    let data = file(&lab, "data", "x", 600_000);
    let args = ["cast", &data, "n[0,7]", "--wait", "--rate", "2mbit"];
    let first = lab.command(&args).spawn().unwrap();
    waits_for(&lab, "n7");
    let otherwise = refused(&lab, &[&data, "n1", "--rate", "1mbit"]);
    assert!(otherwise.contains("leave these options out"), "{otherwise}");
    let second = lab.command(&["cast", &data, "n1"]).spawn().unwrap();
    lab.eventually("n1 has it", |lab| files_on(&lab.nodes[1]) == 1);
    // Nobody is left who waits for n7.
    signal(&first, "INT");
    let (code, out, err) = parts(&finish(first));
    assert_eq!(code, 130, "{out}{err}");
    // It was told why meanwhile, without a terminal.
    assert!(err.contains("data waits: n7 has not "), "{err}");
    assert_eq!(parts(&finish(second)).0, 0);
    assert_eq!(files_on(&lab.nodes[1]), 1);
}

#[test]
fn casts_beyond_what_a_node_takes_wait_for_others() {
    let lab = Lab::with_nodes(2);
    let children: Vec<Child> = (0..20)
        .map(|number| {
            let name = format!("data{number}");
            let data = file(&lab, &name, &name, 20_000);
            let args = ["cast", &data, "--rate", "200kbit", "--json"];
            lab.command(&args).spawn().unwrap()
        })
        .collect();
    lab.eventually("some wait", |lab| {
        let casts = lab.json(&["casts"])["casts"].as_array().unwrap().clone();
        let in_state = |state: &str| casts.iter().filter(|cast| cast["state"] == state).count();
        in_state("running") == MEMBER_CASTS - 4 && in_state("waiting") > 0
    });
    for child in children {
        let (code, out, err) = parts(&finish(child));
        assert_eq!(code, 0, "{out}{err}");
    }
}

#[test]
fn casts_that_wait_for_absent_nodes_hold_up_no_other() {
    let lab = Lab::with_nodes(1);
    let patient: Vec<Child> = (0..MEMBER_CASTS)
        .map(|number| {
            let name = format!("patient{number}");
            let data = file(&lab, &name, &name, 20_000);
            let args = ["cast", &data, "n[0,7]", "--wait", "--rate", "200kbit"];
            lab.command(&args).spawn().unwrap()
        })
        .collect();
    lab.eventually("no more fit", |lab| {
        let casts = lab.json(&["casts"])["casts"].as_array().unwrap().clone();
        let running = casts.iter().filter(|cast| cast["state"] == "running");
        running.count() == MEMBER_CASTS - 4
    });
    let data = file(&lab, "data", "soon", 1_000);
    let (code, info) = cast(&lab, &[&data, "n0"]);
    assert_eq!((code, &info["nodes_done"]), (0, &json!("n0")), "{info}");
    for child in patient {
        signal(&child, "INT");
        assert_eq!(parts(&finish(child)).0, 130);
    }
}

#[test]
fn who_joins_waits_for_its_own_nodes_alone_and_keeps_what_others_gave_up() {
    let lab = Lab::with_nodes(2);
    let data = file(&lab, "data", "kept here", 20_000);
    let patient = |nodes: &str| {
        let args = ["cast", &data, nodes, "--wait"];
        let child = lab.command(&args).spawn().unwrap();
        waits_for(&lab, "n7");
        child
    };
    let first = patient("n[0,7]");
    let second = patient("n[1,7]");
    let (code, info) = cast(&lab, &[&data, "n0"]);
    assert_eq!((code, &info["nodes"]), (0, &json!("n0")), "{info}");
    lab.eventually("n1 has it", |lab| files_on(&lab.nodes[1]) == 1);
    // n1 is to let go of it at the end, and wants it again before.
    signal(&second, "INT");
    assert_eq!(parts(&finish(second)).0, 130);
    let with = ["-n", "1", "--nodes", "n1", "--with", &data];
    let (code, out, err) = parts(&lab.run(&with, "out here\n"));
    assert_eq!((code, out.trim()), (0, "here"), "{err}");
    signal(&first, "INT");
    assert_eq!(parts(&finish(first)).0, 130);
    lab.eventually("the cast is over", |lab| {
        lab.json(&["casts"])["casts"][0]["nodes_absent"] == ""
    });
    assert_eq!((files_on(&lab.nodes[0]), files_on(&lab.nodes[1])), (1, 1));
}

#[test]
fn what_is_cast_anew_while_a_cancelled_cast_ends_stays() {
    let lab = Lab::with_nodes(2);
    let data = file(&lab, "data", "stays", 20_000);
    // The end of the first cast is told to n1 again and again, which does not answer.
    lab.nodes[1].watch.mute.store(true, Ordering::Relaxed);
    let first = lab.command(&["cast", &data]).spawn().unwrap();
    lab.eventually("n0 has it", |lab| {
        lab.json(&["casts"])["casts"][0]["done"] == 1
    });
    let cancelled = |lab: &Lab| lab.json(&["casts"])["casts"][0]["state"] == "cancelled";
    assert_eq!(parts(&lab.hearth(&["casts", "cancel", "1"])).0, 0);
    let (code, info) = cast(&lab, &[&data, "n0"]);
    assert_eq!((code, &info["held"]), (0, &json!(1)), "{info}");
    finish(first);
    lab.eventually("the first is over", cancelled);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(files_on(&lab.nodes[0]), 1);
}

#[test]
fn who_joins_a_cast_of_an_earlier_control_node_does_not_end_it_by_leaving() {
    let mut lab = Lab::with_nodes(2);
    let data = file(&lab, "data", "survives", 500_000);
    let args = ["cast", &data, "n0", "--rate", "2mbit", "--json"];
    let first = lab.command(&args).spawn().unwrap();
    let on_its_way = |lab: &Lab, node: usize| {
        lab.eventually("it is on its way", |lab| {
            lab.nodes[node].watch.incomplete.load(Ordering::Relaxed) == 1
        });
    };
    on_its_way(&lab, 0);
    lab.stop_control(true);
    lab.start_control();
    let second = lab
        .command(&["cast", &data, "n1", "--wait"])
        .spawn()
        .unwrap();
    on_its_way(&lab, 1);
    signal(&second, "INT");
    assert_eq!(parts(&finish(second)).0, 130);
    let (code, out, err) = parts(&finish(first));
    let info: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &info["state"]), (0, &json!("done")), "{out}{err}");
    assert_eq!((files_on(&lab.nodes[0]), files_on(&lab.nodes[1])), (1, 0));
}

#[test]
fn a_node_that_has_it_and_boots_again_while_others_are_waited_for_gets_it_again() {
    let mut lab = Lab::with_nodes(3);
    let data = file(&lab, "data", "x", 300_000);
    let child = cast_to(&lab, &data, 2);
    boot_again(&mut lab, 2);
    lab.eventually("n0 and n1 have it", |lab| {
        lab.json(&["casts"])["casts"][0]["done"] == 2
    });
    boot_again(&mut lab, 0);
    reached_all(&lab, child);
}

#[test]
fn who_sends_damaged_blocks_is_an_event_and_nobody_keeps_them() {
    let lab = Lab::with_nodes(3);
    lab.nodes[1].watch.corrupt.store(true, Ordering::Relaxed);
    let data = file(&lab, "data", "sound", 400_000);
    let (code, info) = cast(&lab, &[&data]);
    assert_eq!((code, &info["state"]), (0, &json!("done")), "{info}");
    lab.eventually("n1 is named", |lab| {
        lab.has_event("cast-corrupt", "n1 sent")
    });
}

#[test]
fn a_program_is_broadcast_to_cold_nodes_and_served_by_warm_ones() {
    let lab = Lab::with_nodes(4);
    let script = format!("out hello\n{}", "\n".repeat(400_000));
    let program = lab.program("large", &script);
    let bytes = script.len() as u64;
    let first = lab.report(&["-n", "3", "--load=broadcast"], &program);
    let load = &first["load"];
    assert_eq!(
        (&load["mode"], &load["cold"], &load["done"]),
        (&json!("broadcast"), &json!(3), &json!(3)),
        "{load}"
    );
    // Mostly it is sent once; how much the nodes give each other depends on how long each of them
    // stands still.
    let [sent, given] = ["bytes_sent", "bytes_from_nodes"].map(|of| load[of].as_u64().unwrap());
    assert!(sent < 3 * bytes && given > 0, "{load}");
    // Warm nodes need nothing.
    let warm = lab.report(&["-n", "3", "--load=broadcast"], &program);
    assert_eq!(warm["load"]["mode"], "none", "{}", warm["load"]);
    let small = lab.program("small", "out hello\n");
    let demand = lab.report(&["-n", "3"], &small);
    assert_eq!(demand["load"]["mode"], "demand");
    // One cold node among warm ones: they serve it, control less than all of it.
    let mixed = lab.report(&["-n", "4", "--load=broadcast"], &program);
    let load = &mixed["load"];
    assert_eq!(
        (&load["cold"], &load["holders"], &load["done"]),
        (&json!(1), &json!(3), &json!(1)),
        "{load}"
    );
    // There is no room: it is loaded by demand, which is said.
    for node in &lab.nodes {
        node.watch.full.store(true, Ordering::Relaxed);
    }
    let another = lab.program("another", &format!("out there\n{script}"));
    let output = lab.hearth(&[
        "run",
        "--no-precheck",
        "-n",
        "2",
        "--load=broadcast",
        &another,
    ]);
    let (code, out, err) = parts(&output);
    assert_eq!((code, out.matches("there").count()), (0, 2), "{err}");
    assert!(err.contains("load it by demand"), "{err}");
}

#[test]
fn the_ranks_of_a_job_get_its_connection_table() {
    let lab = Lab::with_nodes(2);
    let child = lab
        .run_command(&["-n", "2"], "out up\nwait\n")
        .spawn()
        .unwrap();
    lab.eventually("both have it", |lab| {
        let here = |node: &FakeNode| !node.watch.table.lock().unwrap().is_empty();
        lab.nodes.iter().all(here)
    });
    let bytes = lab.nodes[1].watch.table.lock().unwrap().clone();
    let mut read = |at: u64, out: &mut [u8]| {
        let from = usize::try_from(at).unwrap();
        let found = bytes.get(from..from + out.len());
        found.map(|found| out.copy_from_slice(found)).is_some()
    };
    let table = Table::open(bytes.len() as u64, &mut read).unwrap();
    let entries = (0..2).map(|rank| table.entry(Rank(rank), &mut read).unwrap());
    let nodes: BTreeSet<u32> = entries.map(|entry| entry.node.0).collect();
    assert_eq!((table.ranks(), nodes), (2, BTreeSet::from([0, 1])));
    signal(&child, "INT");
    finish(child);
}
