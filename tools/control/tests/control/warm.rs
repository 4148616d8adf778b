//! Programs that stay on nodes: who is warm, who is told what, what the user sees.

use serde_json::{Value, json};

use crate::lab::{Lab, parts};

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
