//! Programs that stay on nodes: who is warm, who is told what, what the user sees.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use crate::fake_node::FakeNode;
use crate::lab::{Lab, finish, parts};

/// Whether each rank of a report ran on what its node held.
fn warm(report: &Value) -> Vec<bool> {
    let ranks = report["ranks"].as_array().unwrap().iter();
    ranks.map(|rank| rank["warm"].as_bool().unwrap()).collect()
}

#[test]
fn a_program_is_known_by_its_file_and_not_by_its_name() {
    let lab = Lab::with_nodes(1);
    let first = lab.program("first", "out hello\n");
    assert_eq!(warm(&lab.report(&[], &first)), [false]);
    assert_eq!(warm(&lab.report(&[], &first)), [true]);
    let other_name = lab.program("other", "out hello\n");
    assert_eq!(warm(&lab.report(&[], &other_name)), [true]);
    let changed = lab.program("first", "out hallo\n");
    assert_eq!(warm(&lab.report(&[], &changed)), [false]);
    let told = lab.nodes[0].watch.take_told();
    assert_eq!(
        told,
        ["launch cold", "launch warm", "launch warm", "launch cold"]
    );
}

#[test]
fn a_cold_run_uses_nothing_that_is_held() {
    let lab = Lab::with_nodes(1);
    let program = lab.program("program", "out hello\n");
    lab.report(&[], &program);
    let cold = lab.report(&["--cold"], &program);
    assert_eq!(
        (warm(&cold), &cold["reuse"]),
        (vec![false], &json!("forbid"))
    );
    assert_eq!(warm(&lab.report(&[], &program)), [true]);
    let (code, _, err) = parts(&lab.hearth(&["run", "--cold", "--warm-only", &program]));
    assert_eq!(code, 2, "{err}");
}

#[test]
fn the_report_tells_warm_from_cold_by_node_and_in_sum() {
    let lab = Lab::with_nodes(2);
    let program = lab.program("program", "out hello\n");
    lab.report(&["--nodes", "n1"], &program);
    let report = lab.report(&["-n", "2"], &program);
    assert_eq!(warm(&report), [false, true]);
    let [cold, held] = [&report["ranks"][0], &report["ranks"][1]];
    assert_eq!(
        (&cold["faults"]["code"], &held["faults"]["code"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(
        (&cold["faults"]["file"], &cold["faults"]["anonymous"]),
        (&json!(1), &json!(6))
    );
    assert_eq!(
        (&cold["wire"]["messages"], &held["wire"]["messages"]),
        (&json!(3), &json!(0))
    );
    assert_eq!(held["retained"]["reused"], 1);
    for rank in [cold, held] {
        let (first, exit) = (rank["first_ms"].as_f64(), rank["exit_ms"].as_f64());
        assert!(first.unwrap() > 0.0 && first <= exit, "{rank}");
    }
    let totals = &report["totals"];
    assert_eq!((&totals["ranks"], &totals["warm"]), (&json!(2), &json!(1)));
    assert_eq!(totals["wire"]["bytes"], cold["wire"]["bytes"]);
    let (code, _, table) = parts(&lab.hearth(&["run", "--no-precheck", "--report", &program]));
    assert_eq!(code, 0);
    let lines: Vec<&str> = table.lines().collect();
    let heading = lines
        .iter()
        .position(|line| line.contains("LAUNCH"))
        .unwrap();
    assert!(lines[heading + 1].contains("warm"), "{table}");
    assert!(
        lines[heading + 2].starts_with("all") && lines[heading + 2].contains("1/1 warm"),
        "{table}"
    );
}

#[test]
fn a_warm_only_run_says_how_many_nodes_are_warm() {
    let lab = Lab::with_nodes(2);
    let program = lab.program("program", "out hello\n");
    let (code, out, err) = parts(&lab.hearth(&["run", "--no-precheck", "--warm-only", &program]));
    assert_eq!((code, &*out), (125, ""), "{err}");
    assert!(err.contains("no node holds the program warm"), "{err}");
}

#[test]
fn damage_is_an_event_that_names_the_node() {
    let lab = Lab::with_nodes(1);
    let program = lab.program("program", "damage\nout hello\n");
    assert_eq!(
        lab.report(&[], &program)["ranks"][0]["retained"]["damaged"],
        1
    );
    assert!(lab.has_event("pages-damaged", "n0: 1 retained page"));
}

/// Nodes on which control knows a program with this name to be held, as a hostlist.
fn holders(lab: &Lab, name: &str) -> String {
    let programs = lab.json(&["programs"]);
    let found = programs
        .as_array()
        .unwrap()
        .iter()
        .find(|program| program["name"] == name);
    found.map_or_else(String::new, |found| {
        found["nodes"].as_str().unwrap().to_string()
    })
}

fn holders_become(lab: &Lab, name: &str, nodes: &str) {
    let what = format!("{name} is held on {nodes:?}");
    lab.eventually(&what, |lab| holders(lab, name) == nodes);
}

#[test]
fn warm_nodes_come_first_among_equals_and_jobs_may_mix() {
    let lab = Lab::with_nodes(4);
    let program = lab.program("program", "out hello\n");
    lab.report(&["--nodes", "n[1,3]"], &program);
    holders_become(&lab, "program", "n[1,3]");
    let two = lab.report(&["-n", "2"], &program);
    assert_eq!(
        (&two["nodes"], warm(&two)),
        (&json!("n[1,3]"), vec![true, true])
    );
    let three = lab.report(&["-n", "3"], &program);
    assert_eq!(three["nodes"], "n[0-1,3]");
    assert_eq!(warm(&three), [false, true, true]);
    let other = lab.program("other", "out something else\n");
    assert_eq!(lab.report(&[], &other)["nodes"], "n0");
}

#[test]
fn hops_come_before_warm_nodes() {
    let mut lab = Lab::control();
    lab.stop_control(false);
    lab.serve_arguments = vec!["--tree", "2x2"];
    lab.start_control();
    lab.add_nodes(0..4);
    let program = lab.program("program", "out hello\n");
    lab.report(&["--nodes", "n[1-2]"], &program);
    holders_become(&lab, "program", "n[1-2]");
    assert_eq!(lab.report(&["-n", "2"], &program)["nodes"], "n[0-1]");
    assert_eq!(lab.report(&["-n", "1"], &program)["nodes"], "n0");
}

#[test]
fn a_warm_only_run_takes_warm_nodes_alone_and_waits_for_busy_ones() {
    let lab = Lab::with_nodes(3);
    let program = lab.program("program", "cat\n");
    lab.report(&["--nodes", "n2"], &program);
    holders_become(&lab, "program", "n2");
    let (code, _, err) =
        parts(&lab.hearth(&["run", "--no-precheck", "--warm-only", "-n", "2", &program]));
    assert_eq!(code, 125);
    assert!(
        err.contains("2 warm nodes needed, but 1 node holds the program warm (n2)"),
        "{err}"
    );
    let mut waiting = lab.command(&["run", "--no-precheck", "--warm-only", &program]);
    let first = waiting.stdin(std::process::Stdio::piped()).spawn().unwrap();
    lab.eventually("it runs", |lab| lab.last_job()["state"] == "running");
    assert_eq!(lab.last_job()["nodes"], "n2");
    let second = lab
        .command(&["run", "--no-precheck", "--warm-only", &program])
        .spawn()
        .unwrap();
    lab.eventually("the second waits", |lab| {
        lab.last_job()["state"] == "pending"
    });
    assert_eq!(lab.last_job()["reason"], "1 warm node needed, 0 free");
    assert_eq!(finish(first).status.code(), Some(0));
    assert_eq!(finish(second).status.code(), Some(0));
    assert_eq!(warm(&lab.last_job()), [true]);
}

#[test]
fn in_published_mode_warm_nodes_are_told_to_retain_before_the_launch() {
    let mut lab = Lab::configured("[retention]\nmode = \"published\"\n");
    lab.add_nodes(0..2);
    let program = lab.program("program", "out hello\n");
    let told = |lab: &Lab, node: usize| lab.nodes[node].watch.take_told();
    lab.report(&["--nodes", "n1"], &program);
    assert_eq!(
        told(&lab, 1),
        ["launch cold"],
        "none is warm: an ordinary dispatch"
    );
    holders_become(&lab, "program", "n1");
    let report = lab.report(&["-n", "2"], &program);
    assert_eq!(warm(&report), [false, true]);
    assert_eq!(told(&lab, 0), ["launch cold"]);
    assert_eq!(told(&lab, 1), ["retain", "launch warm"]);
    // Another program takes its place: a node keeps one.
    let other = lab.program("other", "out other\n");
    lab.report(&["-n", "2"], &other);
    holders_become(&lab, "program", "");
    holders_become(&lab, "other", "n[0-1]");
}

#[test]
fn a_retain_message_that_is_lost_is_repeated_and_one_that_finds_nothing_is_said_so() {
    let mut lab = Lab::configured("[retention]\nmode = \"published\"\n");
    lab.add_nodes(0..1);
    let program = lab.program("program", "out hello\n");
    lab.report(&[], &program);
    holders_become(&lab, "program", "n0");
    lab.nodes[0].watch.take_told();
    let watch = lab.nodes[0].watch.clone();
    watch.deaf.store(true, Ordering::Relaxed);
    let job = lab
        .command(&["run", "--no-precheck", &program])
        .spawn()
        .unwrap();
    lab.eventually("the job is launched", |lab| {
        lab.last_job()["state"] == "starting"
    });
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(watch.take_told(), [""; 0]);
    watch.deaf.store(false, Ordering::Relaxed);
    let (code, out, err) = parts(&finish(job));
    assert_eq!((code, out.as_str()), (0, "hello\n"));
    // The fake nodes say of every program that it called fork.
    let refused = "job 2 completed, and was refused: fork (a node runs one process: a program cannot start another)";
    assert_eq!(err, format!("hearth: {refused}\n"));
    assert_eq!(watch.take_told(), ["retain", "launch warm"], "each once");
    // What the node lets go of without a word, control does not know.
    watch.forget.store(true, Ordering::Relaxed);
    assert_eq!(warm(&lab.report(&[], &program)), [false]);
    assert_eq!(watch.take_told(), ["retain", "launch cold"]);
    assert!(lab.has_event("retain-missed", "n0 was to keep program"));
}

#[test]
fn nodes_let_go_of_a_program_when_told_to() {
    let lab = Lab::with_nodes(3);
    let program = lab.program("program", "out hello\n");
    lab.report(&["-n", "3"], &program);
    holders_become(&lab, "program", "n[0-2]");
    let busy = lab
        .run_command(&["--nodes", "n2"], "wait\n")
        .spawn()
        .unwrap();
    lab.eventually("the other job runs", |lab| {
        lab.last_job()["state"] == "running"
    });
    let answer = lab.json(&["drop", "program", "n[0,2]"]);
    assert_eq!(answer["name"], "program");
    let outcomes: Vec<&Value> = answer["nodes"].as_array().unwrap().iter().collect();
    assert_eq!(outcomes.len(), 2);
    for (outcome, node) in outcomes.iter().zip(["n0", "n2"]) {
        assert_eq!(
            (&outcome["node"], &outcome["outcome"], &outcome["pages"]),
            (&json!(node), &json!("dropped"), &json!(1))
        );
    }
    holders_become(&lab, "program", "n1");
    assert!(lab.has_event("drop", "drop of program ("));
    // By path; the next launch there is cold.
    let (code, out, err) = parts(&lab.hearth(&["drop", &program]));
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("n1") && out.contains("dropped"), "{out}");
    assert_eq!(warm(&lab.report(&["--nodes", "n1"], &program)), [false]);
    // A node that runs a program lets go of it at the end.
    let running = lab.json(&["jobs", "--active"])[0]["name"]
        .as_str()
        .unwrap()
        .to_string();
    let answer = lab.json(&["drop", &running]);
    assert_eq!(answer["nodes"][0]["outcome"], "running");
    let id = lab.json(&["jobs", "--active"])[0]["id"].to_string();
    lab.hearth(&["cancel", &id]);
    finish(busy);
    lab.eventually("n2 is idle", |lab| lab.idle_nodes() == 3);
    assert_eq!(holders(&lab, &running), "");
    // Nothing is left but program on n1.
    let (code, out, _) = parts(&lab.hearth(&["drop", "--all"]));
    assert_eq!((code, out.lines().count()), (0, 2), "{out}");
    holders_become(&lab, "program", "");
    let (_, _, err) = parts(&lab.hearth(&["drop", "program"]));
    assert!(err.contains("no node holds it"), "{err}");
}

#[test]
fn words_that_mean_no_program_or_several_are_refused() {
    let lab = Lab::with_nodes(1);
    let program = lab.program("program", "out hello\n");
    lab.report(&[], &program);
    lab.program("program", "out hallo\n");
    lab.report(&[], &program);
    let refused = |arguments: &[&str], words: &str| {
        let (code, out, err) = parts(&lab.hearth(arguments));
        assert_eq!((code, out.as_str()), (125, ""), "{arguments:?}");
        assert!(err.contains(words), "{arguments:?}: {err}");
    };
    refused(&["drop", "program"], "can mean 2 programs");
    refused(&["drop", "nonsense"], "hearth programs");
    refused(&["drop", "/no/such/file"], "cannot read /no/such/file");
    refused(&["drop", "--all", "n7"], "unknown nodes: n7");
    let (code, _, err) = parts(&lab.hearth(&["drop", "program", "n["]));
    assert!(code == 2 && err.contains("n["), "{err}");
    let id = lab.json(&["programs"])[0]["program"].as_str().unwrap()[..12].to_string();
    assert_eq!(lab.json(&["drop", &id])["nodes"][0]["outcome"], "dropped");
    assert_eq!(
        lab.json(&["drop", &id, "n0"])["nodes"][0]["outcome"],
        "not-held"
    );
}

#[test]
fn a_node_that_boots_again_holds_nothing() {
    let mut lab = Lab::with_nodes(2);
    let program = lab.program("program", "out hello\n");
    lab.report(&["-n", "2"], &program);
    holders_become(&lab, "program", "n[0-1]");
    lab.nodes[1].stop();
    lab.nodes[1] = FakeNode::start(lab.identity(1, 2), lab.address);
    holders_become(&lab, "program", "n0");
    lab.eventually("both are in service", |lab| lab.idle_nodes() == 2);
    assert_eq!(warm(&lab.report(&["-n", "2"], &program)), [true, false]);
    holders_become(&lab, "program", "n[0-1]");
}

#[test]
fn a_silent_node_is_not_warm_and_drops_when_it_is_heard_again() {
    let lab = Lab::with_nodes(2);
    let program = lab.program("program", "out hello\n");
    lab.report(&["-n", "2"], &program);
    holders_become(&lab, "program", "n[0-1]");
    let watch = &lab.nodes[1].watch;
    let cut = |cut| {
        watch.deaf.store(cut, Ordering::Relaxed);
        watch.mute.store(cut, Ordering::Relaxed);
    };
    cut(true);
    holders_become(&lab, "program", "n0");
    watch.take_told();
    let (code, out, err) = parts(&lab.hearth(&["drop", "program"]));
    assert_eq!(code, 125, "{err}");
    assert!(
        out.contains("n0    dropped") && out.contains("n1    away"),
        "{out}"
    );
    assert!(
        err.contains("no contact with n1: asked when it is heard again"),
        "{err}"
    );
    cut(false);
    lab.eventually("n1 is back", |lab| lab.idle_nodes() == 2);
    lab.eventually("n1 is told", |_| watch.take_told() == ["drop"]);
    holders_become(&lab, "program", "");
    let (code, _, err) = parts(&lab.hearth(&["drop", "program"]));
    assert_eq!((code, err.as_str()), (0, "hearth: no node holds it\n"));
}

#[test]
fn a_node_that_left_holds_nothing() {
    let lab = Lab::with_nodes(2);
    let program = lab.program("program", "out hello\n");
    lab.report(&["-n", "2"], &program);
    holders_become(&lab, "program", "n[0-1]");
    assert!(lab.hearth(&["node", "leave", "n1"]).status.success());
    assert_eq!(holders(&lab, "program"), "n0");
    assert_eq!(lab.json(&["nodes"])[1]["warm"], json!([]));
    let answer = lab.json(&["drop", "program", "n1"]);
    assert_eq!(answer["nodes"][0]["outcome"], "not-up");
}

#[test]
fn what_nodes_hold_survives_a_crash_of_control() {
    let mut lab = Lab::with_nodes(2);
    let program = lab.program("program", "out hello\n");
    lab.report(&["--nodes", "n1"], &program);
    holders_become(&lab, "program", "n1");
    lab.stop_control(true);
    lab.start_control();
    // No node has been heard yet, but one is known to have held it.
    let report = lab.report(&["--warm-only"], &program);
    assert_eq!(
        (&report["nodes"], warm(&report)),
        (&json!("n1"), vec![true])
    );
}

#[test]
fn programs_and_nodes_are_listed_with_what_is_held() {
    let lab = Lab::with_nodes(2);
    let small = lab.program("small", "out hello\n");
    let large = lab.program("large", &format!("out {}\n", "x".repeat(900)).repeat(10));
    lab.report(&[], &small);
    lab.report(&[], &small);
    lab.report(&["-n", "2"], &large);
    holders_become(&lab, "large", "n[0-1]");
    let programs = lab.json(&["programs"]);
    let [last, first] = [&programs[0], &programs[1]];
    assert_eq!(
        (&last["name"], &first["name"]),
        (&json!("large"), &json!("small"))
    );
    assert_eq!(
        (&last["pages"], &last["nodes_total"]),
        (&json!(6), &json!(2))
    );
    assert_eq!((&last["launches"], &last["hits"]), (&json!(2), &json!(0)));
    assert_eq!((&first["launches"], &first["hits"]), (&json!(2), &json!(1)));
    let (_, table, _) = parts(&lab.hearth(&["programs"]));
    assert!(
        table.starts_with("PROGRAM") && table.contains("n[0-1]"),
        "{table}"
    );
    let nodes = lab.json(&["nodes"]);
    let held = nodes[0]["warm"].as_array().unwrap();
    assert_eq!(
        (&held[0]["name"], &held[0]["pages"]),
        (&json!("large"), &json!(3))
    );
    assert_eq!(
        (held.len(), nodes[1]["warm"].as_array().unwrap().len()),
        (2, 1)
    );
    let (_, table, _) = parts(&lab.hearth(&["nodes"]));
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    let heading: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    let at = |name| heading.iter().position(|word| *word == name).unwrap();
    assert_eq!((row[at("WARM")], row[at("PAGES")]), ("2", "4"), "{table}");
    let (_, table, _) = parts(&lab.hearth(&["nodes", "--warm"]));
    assert!(
        table.contains("large") && table.contains("small"),
        "{table}"
    );
}

#[test]
fn evictions_are_events_and_known() {
    let lab = Lab::with_nodes(1);
    let first = lab.program("first", "out first\n");
    lab.report(&[], &first);
    holders_become(&lab, "first", "n0");
    let second = lab.program("second", "evict\nout second\n");
    lab.report(&[], &second);
    holders_become(&lab, "first", "");
    assert!(lab.has_event("warm-dropped", "n0 does not hold first ("));
    assert_eq!(warm(&lab.report(&[], &first)), [false]);
}

/// However many jobs wait with higher numbers.
#[test]
fn a_program_that_runs_is_listed_behind_a_long_queue() {
    let lab = Lab::with_nodes(1);
    let mut job = lab.run_command(&[], "out x\nwait\n").spawn().unwrap();
    lab.eventually("the job runs", |lab| {
        lab.get("/v1/jobs")[0]["state"] == "running"
    });
    let running = lab.get("/v1/jobs")[0]["program"].clone();
    let other = lab.program("other", "out y\n");
    let (code, _, err) = parts(&lab.hearth(&["submit", "--no-precheck", &other]));
    assert_eq!((code, err.as_str()), (0, ""));
    let waits = lab.last_job()["program"].clone();
    assert_ne!(waits, running);
    let body = json!({"name": "other", "program": waits, "args": ["b3RoZXI="], "ranks": 1, "batch": true, "no_precheck": true});
    for number in 0..1_000 {
        let (status, answer) = lab.post("/v1/jobs", &body);
        assert!(status < 300, "{number}: {status} {answer}");
    }
    let listed = lab.get("/v1/programs");
    let has = |program: &Value| {
        let all = listed.as_array().unwrap();
        all.iter().any(|known| known["program"] == *program)
    };
    assert!(has(&running) && has(&waits), "{listed}");
    lab.hearth(&["cancel", "1"]);
    job.wait().unwrap();
}
