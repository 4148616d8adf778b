//! The kernel's own tests: each in a machine of its own.
//!
//! The kernel lists its tests (`hearth.test=list`) and runs one per boot (`hearth.test=NAME`). A
//! test has passed when its marker is on the console *and* QEMU ended with the status that only
//! the success value of isa-debug-exit gives, within the time limit. A test that is to end in a
//! crash says in the list what the console must show then.
//!
//! Key type: [`Test`]. Neighbours: `kernel/src/ktest` is the other side.
//!
//! Invariant: a guest that hangs, or ends in another way, is a failed test.

use std::fs;
use std::ops::Range;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::checks::Checks;
use crate::build::programs;
use crate::limited::{self, Finished, Show};
use crate::workspace::Workspace;

/// What stands before lines of these tests.
const LABEL: &str = "kernel";
const QEMU: &str = "qemu-system-x86_64";
/// Cards that QEMU 7.2, which Debian 12 has, lacks.
const NEWER_CARDS: [&str; 1] = ["igb"];
/// A test takes seconds on a quiet machine; under load ten times that.
const TEST_LIMIT: Duration = Duration::from_secs(150);
/// Memory of the machine unless the test wants another.
const MEMORY: &str = "48M";
/// The machine, as QEMU takes it, unless the test wants another.
const MACHINE: &str = "pc";
/// QEMU's status for the values 0x10 and 0x11 written to isa-debug-exit: (value << 1) | 1.
const SUCCESS_STATUS: i32 = 33;
const FAILURE_STATUS: i32 = 35;
/// Two processors of three cores each: their APIC ids are 0 to 2 and 4 to 6.
const ODD_TOPOLOGY: &str = ",sockets=2,cores=3";
/// Seeds of one boot: some ten seconds on a quiet machine.
const SEEDS_A_BOOT: u64 = 5;
/// Bytes of the head of an ACPI table.
const TABLE_HEAD_BYTES: usize = 36;
/// How much of a console is shown when a test failed.
const SHOWN_LINES: usize = 30;

/// A test as the kernel lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Test {
    name: String,
    /// Memory of its machine, as QEMU takes it.
    memory: String,
    /// Its machine, as QEMU takes it.
    machine: String,
    /// Devices that it has beside a network card, as QEMU takes them.
    devices: Vec<String>,
    /// Its firmware says that the console is the second serial port (ACPI table SPCR).
    second_port: bool,
    /// Its firmware lists processors that cannot be used (ACPI table MADT).
    odd_processors: bool,
    /// Its network card, as QEMU calls it, on QEMU's own network; none otherwise.
    card: Option<String>,
    /// A card on an earlier place of the bus, whose port leads nowhere.
    dead_card: Option<String>,
    /// A card on an earlier place of the bus; the two are on a wire of their own.
    peer_card: Option<String>,
    /// Its clock counts instructions.
    counted: bool,
    /// Processor cores of the machine.
    cores: u32,
    /// QEMU's status at the end, where it is none of the two.
    exit: Option<i32>,
    /// Seeds that it takes, as `NAME:FROM-TO`.
    seeds: Option<u64>,
    /// Compiled programs that it reads.
    files: Vec<String>,
    /// The compiler of these, where setup does not install it.
    compiler: Option<String>,
    /// What the console must show when the test is to end in a crash.
    expects: Option<String>,
}

/// Runs all tests of the kernel, or with `seeds` those that take seeds, with these.
pub fn run(workspace: &Workspace, seeds: Option<&Range<u64>>) -> Result<Checks> {
    let tests = list(workspace).context("asking the kernel for the list of its tests")?;
    let devices = devices()?;
    let mut checks = Checks::default();
    for test in &tests
        .into_iter()
        .flat_map(|test| boots(test, seeds))
        .collect::<Vec<_>>()
    {
        if let Some(card) = test.missing_card(&devices) {
            let name = &test.name;
            limited::say(LABEL, &format!("not run {name}: this QEMU has no {card}"));
            continue;
        }
        if let Some(compiler) = test.missing_compiler() {
            let (name, files) = (&test.name, test.files.join(", "));
            let what = format!("not run {name}: this machine has no {compiler} for {files}");
            limited::say(LABEL, &what);
            continue;
        }
        let begin = Instant::now();
        match run_one(workspace, test) {
            Ok(_) => {
                let seconds = begin.elapsed().as_secs_f64();
                limited::say(LABEL, &format!("ok      {:<35} {seconds:6.1} s", test.name));
                checks.pass();
            }
            Err(error) => {
                let what = format!("FAILED  {}: {error:#}", test.name);
                limited::say(LABEL, &what);
                checks.fail(what);
            }
        }
    }
    Ok(checks)
}

impl Test {
    /// The card that it needs and this QEMU lacks, where that is no mistake.
    fn missing_card(&self, devices: &str) -> Option<&str> {
        let card = self.card.as_ref()?.split(',').next()?;
        is_lacking(card, devices).then_some(card)
    }

    /// The compiler of its programs, where this machine lacks it and that is no mistake.
    fn missing_compiler(&self) -> Option<&str> {
        let compiler = self.compiler.as_deref()?;
        (!programs::is_installed(compiler)).then_some(compiler)
    }
}

/// Whether QEMU can have this card; one that every QEMU has is taken to be there.
///
/// # Errors
/// QEMU does not start.
pub fn has_card(card: &str) -> Result<bool> {
    Ok(!is_lacking(card, &devices()?))
}

/// Whether a card came later than the QEMU that has these devices.
fn is_lacking(card: &str, devices: &str) -> bool {
    NEWER_CARDS.contains(&card) && !devices.contains(&format!("name \"{card}\""))
}

/// The devices of QEMU, as it lists them.
fn devices() -> Result<String> {
    let output = Command::new(QEMU).args(["-device", "help"]).output();
    let output = output.with_context(|| format!("asking {QEMU} for its devices"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The boots that a test takes: one, or as many as its seeds want.
fn boots(test: Test, seeds: Option<&Range<u64>>) -> Vec<Test> {
    let seeds = match (test.seeds, seeds) {
        (None, None) => return vec![test],
        (None, Some(_)) => return Vec::new(),
        (Some(_), Some(seeds)) => seeds.clone(),
        (Some(count), None) => 0..count,
    };
    let starts = seeds.clone().step_by(SEEDS_A_BOOT as usize);
    let named = starts.map(|from| {
        let to = (from + SEEDS_A_BOOT).min(seeds.end);
        Test {
            name: format!("{}:{from}-{to}", test.name),
            ..test.clone()
        }
    });
    named.collect()
}

/// `FROM..TO`, for the command line.
pub fn parse_seeds(text: &str) -> Result<Range<u64>, String> {
    let range = text.split_once("..").and_then(|(from, to)| {
        let (from, to) = (from.parse().ok()?, to.parse().ok()?);
        (from < to).then_some(from..to)
    });
    range.ok_or_else(|| format!("`{text}` is no range of seeds: write FROM..TO, as in 20..200"))
}

fn list(workspace: &Workspace) -> Result<Vec<Test>> {
    let finished = boot(workspace, &listing())?;
    let status = finished.status.code();
    ensure!(
        status == Some(SUCCESS_STATUS),
        "QEMU ended with {status:?}:\n{}",
        end(&finished)
    );
    let tests: Vec<Test> = finished
        .lines
        .iter()
        .filter_map(|line| parse_listed(line))
        .collect();
    ensure!(!tests.is_empty(), "the list is empty:\n{}", end(&finished));
    Ok(tests)
}

/// `HEARTH-TEST name NAME [memory=SIZE] [machine=MACHINE] [device=DEVICE]... [console=COM2]
/// [processors=odd] [nic=DEVICE] [dead=DEVICE] [peer=DEVICE] [clock=instructions] [cores=COUNT]
/// [exit=STATUS] [files=NAMES] [compiler=PROGRAM] [seeds=COUNT]
/// [expects=TEXT to the end of the line]`.
fn parse_listed(line: &str) -> Option<Test> {
    let (_, rest) = line.split_once("HEARTH-TEST name ")?;
    let (rest, expects) = match rest.split_once(" expects=") {
        Some((rest, expects)) => (rest, Some(expects.trim().to_owned())),
        None => (rest, None),
    };
    let mut words = rest.split_whitespace();
    let mut test = Test {
        name: words.next()?.to_owned(),
        expects,
        ..listing()
    };
    for word in words {
        match word.split_once('=') {
            Some(("memory", size)) => test.memory = size.to_owned(),
            Some(("machine", machine)) => test.machine = machine.to_owned(),
            Some(("device", device)) => test.devices.push(device.to_owned()),
            Some(("console", "COM2")) => test.second_port = true,
            Some(("processors", "odd")) => test.odd_processors = true,
            Some(("nic", device)) => test.card = Some(device.to_owned()),
            Some(("peer", device)) => test.peer_card = Some(device.to_owned()),
            Some(("dead", device)) => test.dead_card = Some(device.to_owned()),
            Some(("clock", "instructions")) => test.counted = true,
            Some(("cores", count)) => test.cores = count.parse().unwrap_or(1),
            Some(("exit", status)) => test.exit = status.parse().ok(),
            Some(("files", names)) => test.files = names.split(',').map(str::to_owned).collect(),
            Some(("compiler", program)) => test.compiler = Some(program.to_owned()),
            Some(("seeds", count)) => test.seeds = count.parse().ok(),
            // Newer than this runner: without what it demands it fails, and shows its console.
            _ => {
                let name = &test.name;
                limited::say(LABEL, &format!("{name}: demand `{word}` is not known here"));
            }
        }
    }
    Some(test)
}

/// The demand of the list itself: nothing special.
fn listing() -> Test {
    Test {
        name: "list".to_owned(),
        memory: MEMORY.to_owned(),
        machine: MACHINE.to_owned(),
        devices: Vec::new(),
        second_port: false,
        odd_processors: false,
        card: None,
        dead_card: None,
        peer_card: None,
        counted: false,
        cores: 1,
        exit: None,
        seeds: None,
        files: Vec::new(),
        compiler: None,
        expects: None,
    }
}

/// Runs one test, which must pass; the lines of its console.
///
/// # Errors
/// There is no such test, or it failed.
pub fn console_of(workspace: &Workspace, name: &str) -> Result<Vec<String>> {
    let tests = list(workspace).context("asking the kernel for the list of its tests")?;
    let test = tests.iter().find(|test| test.name == name);
    let test = test.with_context(|| format!("the kernel has no test {name}"))?;
    run_one(workspace, test)
}

fn run_one(workspace: &Workspace, test: &Test) -> Result<Vec<String>> {
    let finished = boot(workspace, test)?;
    let (marker, usual) = match &test.expects {
        None => {
            let name = test.name.split(':').next().unwrap_or_default();
            (format!("HEARTH-TEST ok {name}"), SUCCESS_STATUS)
        }
        Some(text) => (text.clone(), FAILURE_STATUS),
    };
    let status = test.exit.unwrap_or(usual);
    if !finished.lines.iter().any(|line| line.contains(&marker)) {
        bail!("the console lacks `{marker}`:\n{}", end(&finished));
    }
    let found = finished.status.code();
    if found != Some(status) {
        bail!(
            "QEMU ended with {found:?} instead of {status}:\n{}",
            end(&finished)
        );
    }
    Ok(finished.lines)
}

fn boot(workspace: &Workspace, test: &Test) -> Result<Finished> {
    let mut command = Command::new(QEMU);
    let mut processors = test.cores.to_string();
    if test.odd_processors {
        processors.push_str(ODD_TOPOLOGY);
    }
    command
        .args(["-accel", "tcg,tb-size=64", "-cpu", "max"])
        .args(["-machine", &format!("{},graphics=off", test.machine)])
        .args([
            "-m",
            &test.memory,
            "-smp",
            &processors,
            "-nodefaults",
            "-no-user-config",
            "-no-reboot",
        ])
        .args(["-display", "none", "-monitor", "none"])
        .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=0x04"])
        .arg("-kernel")
        .arg(workspace.test_image())
        .args([
            "-append",
            &format!("hearth.test={} hearth.console=ttyS0", test.name),
        ]);
    for name in &test.files {
        let path = workspace.programs().join(name);
        ensure!(
            path.exists(),
            "{} is missing: run `cargo xtask build --only programs`",
            path.display()
        );
        let file = format!("name=opt/hearth/{name},file={}", path.display());
        command.args(["-fw_cfg", &file]);
    }
    if test.counted {
        command.args(["-icount", "shift=0,sleep=off"]);
    }
    if test.second_port {
        command.args(["-serial", "null"]);
        add_table(&mut command, workspace, *b"SPCR", &console_table())?;
    }
    if test.odd_processors {
        add_table(&mut command, workspace, *b"APIC", &odd_processors())?;
    }
    command.args(["-serial", "stdio"]);
    for device in &test.devices {
        command.args(["-device", device]);
    }
    attach_cards(&mut command, test);
    limited::run(&mut command, TEST_LIMIT, Show::Nothing)
}

/// The network of a test, the card on the earlier place of the bus first.
fn attach_cards(command: &mut Command, test: &Test) {
    // A hub of one port has a link and nobody there, one of two is a wire.
    let hub = |id: &str| format!("hubport,id={id},hubid=1");
    let mut networks = Vec::new();
    if let Some(card) = test.dead_card.as_ref().or(test.peer_card.as_ref()) {
        networks.push((card, "n1", hub("n1")));
    }
    if let Some(card) = &test.card {
        // QEMU's own network answers DHCP and leads nowhere.
        let network = match &test.peer_card {
            None => "user,id=n0,restrict=on".to_owned(),
            Some(_) => hub("n0"),
        };
        networks.push((card, "n0", network));
    }
    if networks.is_empty() {
        command.args(["-nic", "none"]);
    }
    for (card, id, network) in networks {
        let device = format!("{card},netdev={id},romfile=");
        command.args(["-netdev", &network, "-device", &device]);
    }
}

/// Gives the machine an ACPI table more, by its signature and what is behind the head.
fn add_table(
    command: &mut Command,
    workspace: &Workspace,
    signature: [u8; 4],
    body: &[u8],
) -> Result<()> {
    let mut table = vec![0; TABLE_HEAD_BYTES];
    table[..4].copy_from_slice(&signature);
    table.extend(body);
    let length = u32::try_from(table.len()).context("a table of this size")?;
    table[4..8].copy_from_slice(&length.to_le_bytes());
    table[8] = 2;
    let sum = table.iter().fold(0_u8, |sum, &byte| sum.wrapping_add(byte));
    table[9] = 0_u8.wrapping_sub(sum);
    let name = String::from_utf8_lossy(&signature).to_lowercase();
    let path = workspace.target().join(format!("{name}.bin"));
    fs::write(&path, table).with_context(|| path.display().to_string())?;
    command.arg("-acpitable");
    command.arg(format!("file={}", path.display()));
    Ok(())
}

/// What names the second serial port as the console, at 115,200 baud (SPCR).
fn console_table() -> [u8; 44] {
    let mut body = [0; 44];
    // The address: ports, 8 bits wide, 0x2f8.
    body[4..6].copy_from_slice(&[1, 8]);
    body[8..10].copy_from_slice(&0x2f8_u16.to_le_bytes());
    body[22] = 7;
    body
}

/// What lists processors that cannot be used (MADT): one that is disabled, one that the machine's
/// own table has, too, and two that are not there. One of these comes before others
/// ([`ODD_TOPOLOGY`]).
fn odd_processors() -> Vec<u8> {
    let mut body = vec![0; 8];
    for (apic_id, flags) in [(40, 0), (1, 1), (3, 1), (77, 1)] {
        body.extend([0, 8, apic_id, apic_id, flags, 0, 0, 0]);
    }
    body
}

/// The end of a console.
fn end(finished: &Finished) -> String {
    let from = finished.lines.len().saturating_sub(SHOWN_LINES);
    let lines: Vec<_> = finished.lines[from..]
        .iter()
        .map(|line| format!("        {line}"))
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_shared_out_over_boots() {
        let mut test = listing();
        test.name = "random".to_owned();
        assert_eq!(boots(test.clone(), None), std::slice::from_ref(&test));
        assert_eq!(boots(test.clone(), Some(&(0..3))), []);
        test.seeds = Some(7);
        let names = |seeds| -> Vec<String> {
            let boots = boots(test.clone(), seeds);
            boots.into_iter().map(|test| test.name).collect()
        };
        assert_eq!(names(None), ["random:0-5", "random:5-7"]);
        assert_eq!(names(Some(&(30..32))), ["random:30-32"]);
        assert_eq!(parse_seeds("3..9"), Ok(3..9));
        assert!(parse_seeds("9..3").is_err() && parse_seeds("9").is_err());
    }

    #[test]
    fn a_test_of_a_card_that_came_later_is_left_out() {
        let test = |card: &str| Test {
            card: Some(card.to_owned()),
            ..listing()
        };
        let old = "name \"e1000\", bus PCI";
        assert_eq!(test("igb,x=y").missing_card(old), Some("igb"));
        assert_eq!(test("igb").missing_card("name \"igb\", bus PCI"), None);
        // A misspelt one fails.
        assert_eq!(test("e1001").missing_card(old), None);
    }

    #[test]
    fn a_test_of_a_compiler_that_setup_does_not_install_is_left_out() {
        let test = |line| parse_listed(line).unwrap();
        let there = test("HEARTH-TEST name shell files=a compiler=sh");
        assert_eq!(there.missing_compiler(), None);
        let missing = test("HEARTH-TEST name odd files=a,b compiler=no-such-compiler");
        assert_eq!(missing.missing_compiler(), Some("no-such-compiler"));
        assert_eq!(test("HEARTH-TEST name heap").missing_compiler(), None);
    }

    #[test]
    fn listed_tests_are_parsed_wherever_they_stand_in_a_line() {
        let test = |line| parse_listed(line).unwrap();
        let plain = Test {
            name: "heap".to_owned(),
            ..listing()
        };
        assert_eq!(test("[  0.1] info HEARTH-TEST name heap"), plain);
        let crash = test("HEARTH-TEST name guard memory=8M expects=double fault, nic=no");
        assert_eq!((crash.memory.as_str(), crash.card), ("8M", None));
        assert_eq!(crash.expects.as_deref(), Some("double fault, nic=no"));
        let card = test("HEARTH-TEST name card nic=virtio-net-pci,disable-legacy=on");
        assert_eq!(
            card.card.as_deref(),
            Some("virtio-net-pci,disable-legacy=on")
        );
        let other = test("HEARTH-TEST name pci machine=q35,pit=off device=edu,id=e device=e1000e");
        assert_eq!(
            (other.machine.as_str(), plain.machine.as_str()),
            ("q35,pit=off", "pc")
        );
        assert_eq!(other.devices, ["edu,id=e", "e1000e"]);
        assert_eq!(parse_listed("HEARTH-TEST ok heap"), None);
    }
}
