//! Replays of a small made-up trace, packed and not, by every queue policy and placement.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use hearth_alloc::machine::Machine;
use hearth_replay::trace::{self, Trace};
use hearth_replay::world::{self, Figures, Setting};

fn trace_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/small.swf")
}

fn replay(trace: &Trace, tree: &str, unit: u32, setting: Setting) -> Figures {
    let machine = Machine::new(tree.parse().unwrap(), unit).unwrap();
    world::replay(trace, machine, 2, setting, &mut |_, _| {}).unwrap()
}

#[test]
fn every_setting_runs_every_job() {
    let trace = trace::read(&trace_path()).unwrap();
    assert_eq!((trace.jobs.len(), trace.empty), (59, 1));
    for unit in [1, 2, 4] {
        for setting in world::all_settings() {
            let figures = replay(&trace, "4x4", unit, setting);
            assert_eq!((figures.jobs, figures.too_large), (59, 0), "{setting}");
            assert!((1.0..3.0).contains(&figures.mean_hops), "{setting}");
            assert!((0.1..=1.0).contains(&figures.utilisation), "{setting}");
            assert!((0.0..1.0).contains(&figures.warm_share), "{setting}");
            assert!(figures.bounded_slowdown >= 1.0, "{setting}");
            // The same twice.
            assert_eq!(
                replay(&trace, "4x4", unit, setting).mean_wait_s,
                figures.mean_wait_s
            );
        }
    }
}

/// The same jobs start at the same times, so that only the placement differs: then the exact one
/// has the fewest hops of all, job for job.
#[test]
fn exact_has_the_fewest_hops() {
    let trace = trace::read(&trace_path()).unwrap();
    let hops = |placing: &str| {
        let setting = format!("fcfs+{placing}").parse().unwrap();
        let figures = replay(&trace, "4x4", 1, setting);
        (figures.mean_hops, figures.mean_wait_s)
    };
    let exact = hops("exact");
    for other in ["greedy", "first-fit", "contiguous", "random"] {
        let (hops, wait) = hops(other);
        assert!(exact.0 <= hops, "{other}: {hops}, exact: {}", exact.0);
        assert_eq!(wait, exact.1);
    }
}

#[test]
fn a_machine_too_small_leaves_jobs_out_and_says_so() {
    let trace = trace::read(&trace_path()).unwrap();
    let figures = replay(&trace, "4x2", 1, "easy+exact".parse().unwrap());
    assert!(figures.too_large > 0);
    assert_eq!(figures.jobs + figures.too_large, 59);
    let machine = Machine::new("1".parse().unwrap(), 1).unwrap();
    let huge = trace::parse("1 0 -1 9 2 -1 -1 2 9").unwrap();
    let setting = "+exact".parse().unwrap();
    let error = world::replay(&huge, machine, 2, setting, &mut |_, _| {}).unwrap_err();
    assert!(error.to_string().contains("larger --topology"), "{error}");
}

#[test]
fn settings_are_read() {
    let text = |text: &str| text.parse::<Setting>().map(|setting| setting.to_string());
    assert_eq!(text("+random").unwrap(), "easy+random");
    assert_eq!(text("published").unwrap(), "published+published");
    for wrong in ["exact", "easy+best", "fifo+exact", ""] {
        assert!(text(wrong).is_err(), "{wrong}");
    }
    assert_eq!(world::all_settings().len(), 30);
}

/// The command, on the packed trace: one JSON object a policy.
#[test]
fn the_command_reads_packed_traces_and_prints_json() {
    let packed = std::env::temp_dir().join(format!("hearth-replay-{}.swf.gz", std::process::id()));
    let text = std::fs::read(trace_path()).unwrap();
    let file = std::fs::File::create(&packed).unwrap();
    let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    encoder.write_all(&text).unwrap();
    encoder.finish().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hearth-replay"));
    command.arg("replay").arg(&packed);
    command.args(["--topology", "4x4", "--unit", "2", "--json"]);
    let output = command
        .args(["--policy", "easy+exact,published"])
        .output()
        .unwrap();
    std::fs::remove_file(&packed).unwrap();
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let objects: Vec<serde_json::Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(objects.len(), 2);
    assert_eq!(objects[0]["policy"], "easy+exact");
    assert_eq!(objects[1]["policy"], "published+published");
    let keys = [
        "mean_hops",
        "mean_wait_s",
        "utilisation",
        "bounded_slowdown",
        "warm_share",
    ];
    for (object, key) in objects
        .iter()
        .flat_map(|object| keys.map(|key| (object, key)))
    {
        assert!(object[key].is_f64(), "{key}");
    }
    let progress = String::from_utf8(output.stderr).unwrap();
    assert!(progress.contains("59 of 59 jobs have ended"), "{progress}");
}

/// Units of 0 nodes are those of the rule, as in the control node.
#[test]
fn units_of_no_nodes_are_those_of_the_rule() {
    let header = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hearth-replay"));
        let command = command.arg("replay").arg(trace_path());
        let command = command.args(["--topology", "4x4"]).args(arguments);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().next().unwrap().to_owned()
    };
    assert!(header(&[]).contains("in units of 4"));
    assert_eq!(header(&["--unit", "0"]), header(&[]));
    assert!(header(&["--unit", "2"]).contains("in units of 2"));
}

#[test]
fn what_cannot_be_done_is_said() {
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hearth-replay"));
        let output = command.arg("replay").args(arguments).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let trace = trace_path();
    let trace = trace.to_str().unwrap();
    assert!(run(&["/no/such.swf"]).contains("/no/such.swf"));
    assert!(run(&[trace, "--unit", "3"]).contains("units of 3 nodes"));
    assert!(run(&[trace, "--topology", "4x"]).contains("4x4x4"));
    assert!(run(&[trace, "--policy", "easy"]).contains("easy+exact"));
    assert!(run(&[trace, "--policy", "easy+best"]).contains("first-fit"));
}
