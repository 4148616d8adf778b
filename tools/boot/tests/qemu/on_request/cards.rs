//! Each network card that QEMU has a model of, in every place and through everything that can
//! happen to it: a machine with the card as the only node of a rack.
//!
//! The tests of one card are `on_request::cards::CARD::...`; `cargo xtask test --full` runs them
//! card by card, and leaves out a card that its QEMU lacks.

use std::net::{Ipv4Addr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::machine::{Machine, Started};
use crate::monitor::Monitor;
use crate::output;
use crate::rack::{LIMIT, Rack};
use crate::support::Running;

/// Bytes of the file that is cast, and the rate: three seconds.
const CAST_BYTES: usize = 8_000_000;
const CAST_RATE: &str = "[broadcast]\nrate = \"20mbit\"\n";
/// Seconds for which a program computes under a flood.
const COMPUTES_S: u64 = 8;
/// Datagrams of a burst, each so long, and how often one comes.
const BURST: usize = 20;
const DATAGRAM_BYTES: usize = 1_000;
const BETWEEN_BURSTS: Duration = Duration::from_millis(1);
/// QEMU's e1000e puts interrupts off by an eighth of a millisecond, and then sends also those that
/// have been masked meanwhile: at most one each time that the program has waited for a page or a
/// line, of which it writes so many. A flood that interrupted would do so some thousand times a
/// second.
const LINES: f64 = 2.0;
/// A port on which no node listens.
const NOBODY: u16 = 9;

macro_rules! tests_of {
    ($card:ident, $device:literal: $($test:ident)*) => {
        mod $card {
            $(
                #[test]
                #[ignore = "needs QEMU, a network namespace and the outputs of `cargo xtask build`"]
                fn $test() {
                    let module = concat!("on_request::cards::", stringify!($card));
                    let name = format!("{module}::{}", stringify!($test));
                    crate::rack::in_namespace(&name, || super::$test($device));
                }
            )*
        }
    };
}

tests_of!(virtio, "virtio-net-pci": boots_by_its_rom boots_by_its_uefi_rom behind_a_root_port
    behind_a_second_root as_second_card loses_its_link_during_a_cast computes_under_a_flood
    is_reset);
tests_of!(e1000, "e1000": boots_by_its_rom boots_by_its_uefi_rom behind_a_root_port
    behind_a_second_root as_second_card loses_its_link_during_a_cast computes_under_a_flood
    is_reset);
tests_of!(e1000e, "e1000e": boots_by_its_rom boots_by_its_uefi_rom behind_a_root_port
    behind_a_second_root as_second_card loses_its_link_during_a_cast computes_under_a_flood
    is_reset);
// QEMU has no ROM for it.
tests_of!(igb, "igb": behind_a_root_port behind_a_second_root as_second_card
    loses_its_link_during_a_cast computes_under_a_flood is_reset);
tests_of!(rtl8139, "rtl8139": boots_by_its_rom boots_by_its_uefi_rom behind_a_root_port
    behind_a_second_root as_second_card loses_its_link_during_a_cast computes_under_a_flood
    is_reset);

fn boots_by_its_rom(device: &str) {
    let rack = Rack::new(&[]);
    let (_, machine) = rack.runs(Machine::bios().boots_by_ipxe_of(device));
    runs_a_program(&rack);
    drop(machine);
}

fn boots_by_its_uefi_rom(device: &str) {
    let rack = Rack::new(&[]);
    let machine = Machine::uefi(rack.folder()).boots_by_ipxe_of(device);
    let (_, machine) = rack.runs(machine);
    runs_a_program(&rack);
    drop(machine);
}

fn behind_a_root_port(device: &str) {
    let port = ["-device", "pcie-root-port,id=leaf,slot=1,chassis=1"];
    is_found_behind(device, Machine::q35().options(&port));
}

/// Behind a bridge to a second processor's devices, which nothing on the first bus leads to.
fn behind_a_second_root(device: &str) {
    let root = ["-device", "pxb-pcie,bus_nr=128,id=root,bus=pcie.0"];
    let port = [
        "-device",
        "pcie-root-port,bus=root,id=leaf,slot=1,chassis=1",
    ];
    is_found_behind(device, Machine::q35().options(&root).options(&port));
}

fn is_found_behind(device: &str, machine: Machine) {
    let rack = Rack::new(&[]);
    let machine = machine.starts_with_card(&format!("{device},bus=leaf"));
    let (_, machine) = rack.runs(machine);
    let console = machine.console();
    let found = console.lines().find(|line| line.contains(" card "));
    let found = found.unwrap_or_else(|| panic!("no card in {console}"));
    let elsewhere = found.contains(" at ") && !found.contains(" at 00:");
    assert!(elsewhere, "on the first bus: {found}");
    runs_a_program(&rack);
}

/// The first card is of the same kind and has a link, and nobody answers there.
fn as_second_card(device: &str) {
    let rack = Rack::new(&[]);
    // Apart on the bus: the functions of an igb's virtual machines have places behind it.
    let first = format!("{device},addr=2,netdev=dead,romfile=");
    let dead = ["-netdev", "hubport,id=dead,hubid=1", "-device", &first];
    // The rack knows the machine by the second card's address.
    let machine = Machine::q35().options(&dead);
    let machine = machine.starts_with_card(&format!("{device},addr=6"));
    let (_, machine) = rack.runs(machine);
    let console = machine.console();
    let is_card = |line: &&str| line.contains(" card ") && line.contains(" at 00:");
    assert_eq!(console.lines().filter(is_card).count(), 2, "{console}");
    let tried = "nobody answered; trying the card with address 52-54-00-07-00-01";
    assert!(console.contains(tried), "{console}");
    runs_a_program(&rack);
}

/// The cable is out for a second. The rest of the cast arrives when it is in again, and the node
/// has not booted again.
fn loses_its_link_during_a_cast(device: &str) {
    let rack = Rack::configured(CAST_RATE, &[]);
    let socket = rack.file("qmp.sock");
    let machine = Machine::q35().starts_with_card(device);
    let (_, machine) = rack.runs(machine.with_monitor(&socket));
    let mut monitor = Monitor::connect(&socket);
    let file = large_file(&rack);
    let cast = rack.command(&["cast", &file]).spawn();
    let mut cast = Running(cast.expect("hearth starts"));
    std::thread::sleep(Duration::from_millis(700));
    monitor.set_link(false);
    std::thread::sleep(Duration::from_millis(100));
    let before = frames_of("tap0", "rx");
    std::thread::sleep(Duration::from_secs(1));
    let after = frames_of("tap0", "rx");
    assert_eq!(before, after, "frames came through a cable that is out");
    let status = cast.0.try_wait().expect("it can be waited for");
    assert!(status.is_none(), "the cast did not wait for the cable");
    monitor.set_link(true);
    cast.finish(LIMIT);
    let has_whole_file = [
        "run",
        "-n",
        "1",
        "--with",
        "large",
        &program("filesum"),
        "/with/large",
    ];
    let said = rack.hearth(&has_whole_file);
    let wanted = format!("{CAST_BYTES} bytes, checksum {}", checksum(&file));
    assert!(said.contains(&wanted), "{said} is not {wanted}");
    is_in_its_first_boot(&rack, &machine);
}

/// Frames for nobody, as many as the host can send, interrupt no computing program: only
/// heartbeats do.
fn computes_under_a_flood(device: &str) {
    let rack = Rack::new(&[]);
    let (_, machine) = rack.runs(Machine::q35().starts_with_card(device));
    let report = rack.file("report.json");
    let to_report = format!("--report={}", report.display());
    let (spin, seconds) = (program("spin"), COMPUTES_S.to_string());
    let run = ["run", "-n", "1", &to_report, &spin, "--", &seconds];
    let taken = frames_of("tap0", "tx");
    let run = rack.command(&run).spawn().expect("hearth starts");
    let sent = flood(&rack, Running(run));
    let taken = frames_of("tap0", "tx") - taken;
    println!("{sent} datagrams sent, {taken} frames taken by the card");
    // More than its ring has entries.
    assert!(taken > 256, "the flood did not reach the card");
    let report = std::fs::read_to_string(&report).expect("a report");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let rank = &report["ranks"][0];
    let seconds = rank["wall_ms"].as_f64().expect("a time") / 1000.0;
    let interrupts = rank["interrupts"].as_object().expect("counts");
    let asked = rank["pages"]["asked"].as_f64().expect("a count");
    println!("in {seconds:.1} s: {interrupts:?}");
    for (class, count) in interrupts {
        let count = count.as_u64().expect("a count") as f64;
        match class.as_str() {
            // One a second, and none more: loading the program takes longer under a flood.
            "heartbeat" => {
                assert!(count >= COMPUTES_S as f64 - 3.0, "{count} heartbeats");
                assert!(count <= seconds + 2.0, "{count} heartbeats");
            }
            "nic" => assert!(count <= asked + LINES, "{count} of the card"),
            class => assert_eq!(count, 0.0, "{class} interrupts"),
        }
    }
    assert!(interrupts.contains_key("heartbeat") && interrupts.contains_key("nic"));
    runs_a_program(&rack);
    is_in_its_first_boot(&rack, &machine);
}

/// The machine's reset button, while the card has work.
fn is_reset(device: &str) {
    let rack = Rack::new(&[]);
    let socket = rack.file("qmp.sock");
    let machine = Machine::q35().starts_with_card(device);
    let (_, mut machine) = rack.runs(machine.with_monitor(&socket));
    let file = large_file(&rack);
    let cast = rack.command(&["cast", &file]).spawn();
    // What becomes of it is another test's affair.
    let _cast = Running(cast.expect("hearth starts"));
    std::thread::sleep(Duration::from_millis(300));
    Monitor::connect(&socket).reset();
    rack.await_join(&mut machine, |boot| boot["boots"] == 2);
    runs_a_program(&rack);
}

fn runs_a_program(rack: &Rack) {
    let said = rack.hearth(&["run", "-n", "1", &program("compute")]);
    assert!(
        said.contains("compute rank 0: ") && said.contains(": ok"),
        "{said}"
    );
}

fn is_in_its_first_boot(rack: &Rack, machine: &Started) {
    let boot = rack.boot().expect("it has booted");
    assert_eq!(boot["boots"], 1, "{boot}\n{}", machine.console());
}

fn program(name: &str) -> String {
    output(&format!("programs/{name}")).display().to_string()
}

/// A file called `large` whose bytes do not repeat.
fn large_file(rack: &Rack) -> String {
    let mut state = 1_u64;
    let mut byte = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (state >> 56) as u8
    };
    let bytes: Vec<u8> = (0..CAST_BYTES).map(|_| byte()).collect();
    let file = rack.file("large");
    std::fs::write(&file, bytes).expect("it can be written");
    file.display().to_string()
}

/// As the program `filesum` prints it.
fn checksum(file: &str) -> String {
    let bytes = std::fs::read(file).expect("it can be read");
    let (low, high) = bytes.iter().fold((1_u32, 0_u32), |(low, high), byte| {
        let low = (low + u32::from(*byte)) % 65_535;
        (low, (high + low) % 65_535)
    });
    format!("{high:04x}{low:04x}")
}

/// Sends datagrams to the rack's node until a command has ended, which must be well; their number.
fn flood(rack: &Rack, mut until: Running) -> u64 {
    let nodes = rack.hearth(&["nodes", "--json"]);
    let nodes: Value = serde_json::from_str(&nodes).expect("JSON");
    let address = nodes[0]["address"].as_str().expect("an address");
    let address = address.split(':').next().unwrap_or_default();
    let address: Ipv4Addr = address.parse().expect("an IPv4 address");
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    let datagram = [0x5a; DATAGRAM_BYTES];
    let (begin, mut sent) = (Instant::now(), 0);
    loop {
        if let Some(status) = until.0.try_wait().expect("it can be waited for") {
            assert!(status.success(), "{status}");
            return sent;
        }
        assert!(begin.elapsed() < LIMIT, "the program does not end");
        for _ in 0..BURST {
            // Where the tap's queue is full, the rest is for the next burst.
            sent += u64::from(socket.send_to(&datagram, (address, NOBODY)).is_ok());
        }
        std::thread::sleep(BETWEEN_BURSTS);
    }
}

/// Frames that an interface has received (`rx`, of a tap: from the machine) or sent (`tx`).
fn frames_of(interface: &str, direction: &str) -> u64 {
    let words = ["-s", "-j", "link", "show", "dev", interface];
    let shown = Command::new("ip").args(words).output().expect("ip starts");
    let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    let packets = &shown[0]["stats64"][direction]["packets"];
    packets.as_u64().expect("a count")
}
