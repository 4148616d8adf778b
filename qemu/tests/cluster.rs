//! Clusters of real QEMU machines whose firmware asks for DHCP, with a stand-in for control.
//!
//! They need QEMU and a network namespace, so a plain `cargo test` leaves them out;
//! `cargo xtask test` runs them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use hearth_qemu::{
    Accelerator, Cards, Error, Firmware, Launcher, MachineState, Paths, Progress, Record, Spec,
    down, is_running, power_off, power_on, reset, restart_control, start_control, up,
};
use nix::sys::signal::Signal;

const STANDIN: &str = env!("CARGO_BIN_EXE_hearth-qemu-standin");
/// The machines share few processors with whatever else runs.
const LIMIT: Duration = Duration::from_secs(60);

struct Lab {
    _root: tempfile::TempDir,
    paths: Paths,
    spec: Spec,
    launcher: Launcher,
}

impl Lab {
    fn new(name: &str, nodes: u32, tree: &str, rate: Option<&str>) -> Self {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::below(root.path(), name).unwrap();
        let spec = Spec {
            name: name.to_owned(),
            nodes,
            memory_mib: 48,
            cpus: 1,
            tree: tree.parse().unwrap(),
            rate: rate.map(|rate| rate.parse().unwrap()),
            firmware: Firmware::Bios,
            accelerator: Accelerator::Tcg,
            cards: Cards::default(),
            // Never loaded: nothing answers DHCP here.
            image: STANDIN.into(),
            command_line: String::new(),
            instruction_shift: None,
            trace: None,
            io_services: 0,
            debugged: Vec::new(),
        };
        let own = |words: &[&str]| words.iter().map(Into::into).collect();
        let launcher = Launcher {
            supervise: own(&[STANDIN, "supervise", root.path().to_str().unwrap(), name]),
            io: Vec::new(),
            control: own(&[STANDIN, "control"]),
            http: "127.0.0.1:0".parse().unwrap(),
        };
        Self {
            _root: root,
            paths,
            spec,
            launcher,
        }
    }

    fn up(&self, wait: bool) -> Result<Record, Error> {
        up(&self.spec, &self.paths, &self.launcher, wait, &mut |_| {
            ControlFlow::Continue(())
        })
    }

    fn record(&self) -> Record {
        Record::load(&self.paths).unwrap()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // After a failed assertion; a test that passed has done so itself.
        let _ = down(&self.paths, false);
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn all_dead(record: &Record) -> bool {
    record.processes().all(|process| !process.is_alive())
}

#[test]
#[ignore = "needs QEMU and a network namespace"]
fn nodes_reach_control_through_a_limited_tree_and_down_leaves_nothing() {
    let lab = Lab::new("tree", 3, "2x2", Some("20mbit"));
    let mut seen = Vec::new();
    let record = up(
        &lab.spec,
        &lab.paths,
        &lab.launcher,
        true,
        &mut |progress| {
            if seen.last() != Some(progress) {
                seen.push(progress.clone());
            }
            ControlFlow::Continue(())
        },
    )
    .unwrap();
    assert!(
        seen.contains(&Progress::Network {
            switches: 3,
            links: 6
        }),
        "{seen:?}"
    );
    assert!(
        seen.contains(&Progress::Machines {
            started: 3,
            total: 3
        }),
        "{seen:?}"
    );
    assert!(matches!(seen.last(), Some(Progress::Nodes { joined, .. }) if joined.len() == 3));
    assert_eq!(
        record
            .nodes
            .iter()
            .map(|node| node.leaf)
            .collect::<Vec<_>>(),
        [0, 0, 1]
    );
    assert!(
        record
            .nodes
            .iter()
            .all(|node| node.power_on_unix_ms.is_some())
    );
    let serial = std::fs::read_to_string(lab.paths.serial_log(2)).unwrap();
    assert!(serial.contains("iPXE"), "{serial}");

    // Control's listener is reached from outside the namespace.
    let mut stream = TcpStream::connect(record.http).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\"outside\""), "{answer}");

    assert!(matches!(lab.up(false), Err(Error::AlreadyUp(_))));
    let report = down(&lab.paths, false).unwrap();
    assert!(report.orderly && report.killed == 0, "{report:?}");
    assert!(all_dead(&record));
    assert!(!lab.paths.state().exists());
    assert!(matches!(down(&lab.paths, false), Err(Error::NotUp(_))));
}

/// The words of a process. One that has just been made has none for a moment.
fn command_line(pid: u32) -> String {
    let path = format!("/proc/{pid}/cmdline");
    let looks = (0..100).map(|_| std::fs::read_to_string(&path).unwrap());
    let mut waited = looks.inspect(|words| {
        if words.is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    });
    waited.find(|words| !words.is_empty()).unwrap_or_default()
}

#[test]
#[ignore = "needs QEMU and a network namespace"]
fn nodes_are_switched_off_and_on_and_control_is_replaced() {
    let lab = Lab::new("reset", 2, "2", None);
    let before = lab.up(false).unwrap();
    reset(&lab.paths, &[1]).unwrap();
    let after = lab.record();
    assert_eq!((after.nodes[0].starts, after.nodes[1].starts), (1, 2));
    assert_eq!(before.nodes[0].process, after.nodes[0].process);
    assert!(!before.nodes[1].process.unwrap().is_alive());
    assert!(after.nodes[1].process.unwrap().is_alive());
    assert!(after.nodes[1].power_on_unix_ms > before.nodes[1].power_on_unix_ms);
    // Both machines, the one that was started again too, have what was chosen.
    for node in &after.nodes {
        let pid = node.process.unwrap().pid;
        let words = command_line(pid);
        assert!(words.contains("-accel\0tcg,"), "{words:?}");
    }

    let refused = reset(&lab.paths, &[0, 7]).unwrap_err().to_string();
    assert!(
        refused.contains("n7") && refused.contains("n0 to n1"),
        "{refused}"
    );
    assert_eq!(
        lab.record().nodes[0].starts,
        1,
        "a refused list changes nothing"
    );

    power_off(&lab.paths, &[0]).unwrap();
    assert_eq!(lab.record().nodes[0].state, MachineState::Off);
    assert!(lab.record().nodes[0].ended.is_none());
    assert!(!after.nodes[0].process.unwrap().is_alive());

    power_on(&lab.paths, &[0, 1]).unwrap();
    let on = lab.record();
    assert_eq!(on.nodes[0].state, MachineState::On);
    assert_eq!(
        on.nodes[1].process, after.nodes[1].process,
        "what is on stays as it is"
    );
    power_off(&lab.paths, &[0]).unwrap();

    // A machine that ends by itself is noted.
    after.nodes[1]
        .process
        .unwrap()
        .signal(Signal::SIGKILL)
        .unwrap();
    eventually("the end of n1 is noted", || {
        lab.record().nodes[1].ended.is_some()
    });

    restart_control(&lab.paths).unwrap();
    let restarted = lab.record().control.unwrap();
    assert_ne!(before.control, Some(restarted));
    // So is a control node that crashes: another takes its place.
    restarted.signal(Signal::SIGKILL).unwrap();
    eventually("control is started again", || {
        lab.record()
            .control
            .is_some_and(|control| control != restarted && control.is_alive())
    });
    down(&lab.paths, true).unwrap();
    let left: Vec<_> = std::fs::read_dir(lab.paths.state())
        .unwrap()
        .flatten()
        .collect();
    assert_eq!(left.len(), 1, "only the logs are kept: {left:?}");
}

#[test]
#[ignore = "needs QEMU and a network namespace"]
fn a_control_node_that_was_stopped_stays_so_until_it_is_wanted_again() {
    let lab = Lab::new("pause", 1, "1", None);
    assert!(!start_control(&lab.paths).unwrap(), "there is no cluster");
    let before = lab.up(false).unwrap();
    assert!(!start_control(&lab.paths).unwrap(), "it runs");

    let mut socket = UnixStream::connect(lab.paths.control_socket()).unwrap();
    socket.write_all(b"POST /v1/stop HTTP/1.0\r\n\r\n").unwrap();
    eventually("its end is noted", || lab.record().control_stopped);
    // The supervisor looks four times a second.
    std::thread::sleep(Duration::from_secs(1));
    let stopped = lab.record();
    assert!(stopped.control.is_none() && stopped.control_stopped);
    assert_eq!(stopped.nodes[0].process, before.nodes[0].process);

    assert!(start_control(&lab.paths).unwrap());
    let again = lab.record();
    assert!(again.control.unwrap().is_alive() && !again.control_stopped);
    assert_ne!(again.control, before.control);
    assert_eq!(again.nodes[0].process, before.nodes[0].process);
    assert!(matches!(lab.up(false), Err(Error::AlreadyUp(_))));

    // Also at once, before the supervisor has noted its end.
    let mut again = again;
    for _ in 0..20 {
        let mut socket = UnixStream::connect(lab.paths.control_socket()).unwrap();
        socket.write_all(b"POST /v1/stop HTTP/1.0\r\n\r\n").unwrap();
        let control = again.control.unwrap();
        assert!(control.wait_for_end(Duration::from_secs(60)));
        assert!(start_control(&lab.paths).unwrap());
        again = lab.record();
    }
    down(&lab.paths, false).unwrap();
    assert!(all_dead(&again));
}

#[test]
#[ignore = "needs QEMU and a network namespace"]
fn a_killed_supervisor_takes_everything_with_it_and_up_works_again() {
    let lab = Lab::new("crash", 2, "2", None);
    let crashed = lab.up(false).unwrap();
    assert!(crashed.supervisor.unwrap().signal(Signal::SIGKILL).unwrap());
    eventually("machines and control die with the supervisor", || {
        all_dead(&crashed)
    });
    assert!(!is_running(&lab.paths));
    assert!(matches!(reset(&lab.paths, &[0]), Err(Error::NotUp(_))));
    // What the crash left is in nobody's way.
    let again = lab.up(false).unwrap();
    assert!(
        again
            .nodes
            .iter()
            .all(|node| node.process.unwrap().is_alive())
    );
    again.supervisor.unwrap().signal(Signal::SIGKILL).unwrap();
    let report = down(&lab.paths, false).unwrap();
    assert!(!report.orderly);
    assert!(all_dead(&again) && !lab.paths.state().exists());
}

#[test]
#[ignore = "needs QEMU and a network namespace"]
fn two_clusters_live_side_by_side() {
    let (one, other) = (
        Lab::new("one", 1, "1", None),
        Lab::new("other", 1, "1", None),
    );
    let first = one.up(false).unwrap();
    let second = other.up(true).unwrap();
    assert_ne!(first.http, second.http);
    down(&other.paths, false).unwrap();
    assert!(first.processes().all(|process| process.is_alive()));
    down(&one.paths, false).unwrap();
    assert!(all_dead(&first));
}

#[test]
#[ignore = "needs QEMU and a network namespace"]
fn an_interrupted_or_failed_start_is_in_nobodys_way() {
    let mut lab = Lab::new("stop", 2, "2", None);
    let mut control = None;
    let result = up(
        &lab.spec,
        &lab.paths,
        &lab.launcher,
        true,
        &mut |progress| {
            if matches!(progress, Progress::Machines { .. }) {
                control = lab.record().control;
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        },
    );
    assert!(
        matches!(result, Err(Error::Interrupted { .. })),
        "{result:?}"
    );
    assert!(!control.unwrap().is_alive());
    assert!(!lab.paths.state().exists());

    lab.launcher.control = vec!["sh".into(), "-c".into(), "echo no such luck; exit 3".into()];
    let message = lab.up(false).unwrap_err().to_string();
    assert!(
        message.contains("no such luck") && message.contains("exit status: 3"),
        "{message}"
    );
    assert!(!is_running(&lab.paths));
    assert!(
        Path::new(&lab.paths.control_log()).exists(),
        "the logs of a failed start stay"
    );
    assert!(!lab.paths.run().exists() && !lab.paths.record().exists());
    // And nothing else: a corrected command comes up.
    lab.launcher.control = vec![STANDIN.into(), "control".into()];
    lab.up(false).unwrap();
    down(&lab.paths, false).unwrap();
}

#[test]
#[ignore = "needs QEMU and a network namespace"]
fn a_machine_whose_kernel_panics_is_started_again_until_it_does_so_too_often() {
    let outputs = std::env::var_os("HEARTH_OUTPUTS").expect("`cargo xtask test` sets it");
    let mut lab = Lab::new("panics", 1, "1", None);
    lab.spec.image = Path::new(&outputs).join("hearth-test.efi");
    lab.spec.firmware = Firmware::Direct;
    // A kernel that panics as soon as it has booted.
    lab.spec.command_line = "hearth.test=panic-resets hearth.console=ttyS0".to_owned();
    lab.up(false).unwrap();
    eventually("the machine stays off", || {
        let node = &lab.record().nodes[0];
        let ended = node.ended.as_deref().unwrap_or_default();
        node.state == MachineState::Off && ended.contains("reset itself 3 times")
    });
    assert_eq!(lab.record().nodes[0].starts, 3);
    // Whoever resets it gives it a new start.
    reset(&lab.paths, &[0]).unwrap();
    eventually("it is started again by itself", || {
        lab.record().nodes[0].starts >= 5
    });
    down(&lab.paths, false).unwrap();
}
