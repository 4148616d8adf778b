//! Whether the machines run on the processor (KVM) or are emulated (TCG).
//!
//! Purpose: [`choose`] decides it once, when a cluster comes up. That the device is there does not
//! say that guests run: a probe machine has to execute a few instructions within
//! [`PROBE_LIMIT`]. Key types: [`Choice`] (what the user asks for), [`Accelerator`] (what the
//! machines get), [`Refusal`] (why it is not KVM). Neighbours: [`Spec`] keeps what was chosen, so
//! that a machine that is started again gets the same; `machine` writes it on command lines.
//!
//! Invariant: [`Choice::Auto`] ends with an accelerator, whatever the probe machine does.

use std::ffi::OsString;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::{Deserialize, Serialize};

use crate::{Error, Spec, machine, namespace};

/// The device of KVM.
const DEVICE: &str = "/dev/kvm";
/// A probe machine that works takes a tenth of a second.
const PROBE_LIMIT: Duration = Duration::from_secs(2);
/// How often a probe machine is looked at.
const POLL: Duration = Duration::from_millis(10);
/// Size of the probe machine's ROM: QEMU wants a multiple of it.
const ROM_BYTES: usize = 64 << 10;
/// Where in the ROM a processor begins after a reset.
const RESET_VECTOR: usize = ROM_BYTES - 16;
/// What the probe machine executes: `mov al, 0x2a; out 0xf4, al; hlt; jmp` back to `hlt`.
const PROBE_CODE: [u8; 7] = [0xb0, 0x2a, 0xe6, 0xf4, 0xf4, 0xeb, 0xfd];
/// How QEMU ends when 0x2a is written to isa-debug-exit: (value << 1) | 1.
const PROBE_STATUS: i32 = 0x55;
/// Most of what QEMU says that goes into a reason.
const MAX_REASON_CHARS: usize = 120;

/// What the user asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// KVM where guests run under it, else emulation.
    Auto,
    Kvm,
    Tcg,
}

impl FromStr for Choice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "auto" => Ok(Self::Auto),
            "kvm" => Ok(Self::Kvm),
            "tcg" => Ok(Self::Tcg),
            _ => Err(Error::Spec(format!(
                "`{text}` executes no machine: write auto, kvm or tcg"
            ))),
        }
    }
}

/// What executes the machines' instructions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accelerator {
    /// The processor, through the Linux kernel.
    Kvm,
    /// QEMU's emulation.
    #[default]
    Tcg,
}

impl fmt::Display for Accelerator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        })
    }
}

/// Why the machines cannot have KVM.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("there is no {DEVICE}")]
    Absent,
    #[error("{DEVICE} is closed to you")]
    Closed,
    #[error("{DEVICE}: {0}")]
    Device(io::Error),
    #[error("no probe machine could be started: {0}")]
    Start(io::Error),
    #[error("a probe machine ended before it had run: {0}")]
    Ended(String),
    #[error("a probe machine did not run within {} s", .0.as_secs())]
    Hung(Duration),
}

impl Refusal {
    fn of_device(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Absent,
            io::ErrorKind::PermissionDenied => Self::Closed,
            _ => Self::Device(error),
        }
    }

    /// What the user can do about it.
    fn advice(&self) -> &'static str {
        match self {
            Self::Absent => {
                "switch virtualization on in the firmware and load kvm_intel or kvm_amd; in a \
                 virtual machine, have its host allow nested virtualization"
            }
            Self::Closed => "`sudo usermod -aG kvm $USER` and a new login open it",
            Self::Device(_) | Self::Start(_) | Self::Ended(_) | Self::Hung(_) => {
                "another program may hold the processor's virtualization, or this is a virtual \
                 machine whose host does not pass all of it on"
            }
        }
    }
}

/// Chooses what executes the machines of `spec`, and says why it is not KVM when KVM was looked
/// for.
///
/// # Errors
/// KVM was demanded and does not work, or this machine lacks what every cluster needs.
pub fn choose(choice: Choice, spec: &Spec) -> Result<(Accelerator, Option<Refusal>), Error> {
    // What is missing for every cluster is to be told first.
    namespace::check_host()?;
    decide(choice, spec.needs_emulation(), || {
        Probe::of_this_machine().run()
    })
}

fn decide(
    choice: Choice,
    needs_emulation: Option<&str>,
    probe: impl FnOnce() -> Result<(), Refusal>,
) -> Result<(Accelerator, Option<Refusal>), Error> {
    match (choice, needs_emulation) {
        (Choice::Tcg, _) | (Choice::Auto, Some(_)) => Ok((Accelerator::Tcg, None)),
        (Choice::Auto, None) => Ok(match probe() {
            Ok(()) => (Accelerator::Kvm, None),
            Err(refusal) => (Accelerator::Tcg, Some(refusal)),
        }),
        (Choice::Kvm, Some(option)) => Err(Error::Spec(format!(
            "{option} needs emulation: leave out `--accel kvm`"
        ))),
        (Choice::Kvm, None) => match probe() {
            Ok(()) => Ok((Accelerator::Kvm, None)),
            Err(refusal) => Err(Error::Host(format!(
                "KVM does not work here: {refusal}; {}; `--accel tcg` emulates the machines",
                refusal.advice()
            ))),
        },
    }
}

/// A machine that shows whether guests run.
struct Probe {
    device: PathBuf,
    /// QEMU; its arguments follow.
    program: Vec<OsString>,
    /// As QEMU takes it.
    accelerator: &'static str,
    limit: Duration,
}

impl Probe {
    fn of_this_machine() -> Self {
        Self {
            device: DEVICE.into(),
            program: vec![machine::PROGRAM.into()],
            accelerator: "kvm",
            limit: PROBE_LIMIT,
        }
    }

    fn run(&self) -> Result<(), Refusal> {
        let device = OpenOptions::new().read(true).write(true).open(&self.device);
        device.map_err(Refusal::of_device)?;
        let mut child = self.start().map_err(Refusal::Start)?;
        let status = wait(&mut child, self.limit).map_err(Refusal::Start)?;
        let Some(status) = status else {
            // Whatever comes of it: the machine dies with this process at the latest.
            let _ = child.kill().and_then(|()| child.wait());
            return Err(Refusal::Hung(self.limit));
        };
        if status.code() == Some(PROBE_STATUS) {
            return Ok(());
        }
        let mut text = String::new();
        if let Some(output) = &mut child.stderr {
            // What was said before something unreadable is as good.
            let _ = output.read_to_string(&mut text);
        }
        Err(Refusal::Ended(reason(&text, status)))
    }

    fn start(&self) -> io::Result<Child> {
        let mut rom = vec![0; ROM_BYTES];
        rom[RESET_VECTOR..][..PROBE_CODE.len()].copy_from_slice(&PROBE_CODE);
        // A file without a name, so that none is left behind.
        let file = memfd_create(c"hearth-probe", MFdFlags::MFD_CLOEXEC)?;
        let mut file = File::from(file);
        file.write_all(&rom)?;
        let (program, before) = self.program.split_first().ok_or(io::ErrorKind::NotFound)?;
        machine::dying_with_parent(program)
            .args(before)
            .args(machine::PLATFORM)
            .args(["-accel", self.accelerator, "-m", "16"])
            .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=0x04"])
            .args(["-bios", "/proc/self/fd/0"])
            .stdin(Stdio::from(file))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
    }
}

/// How a child ended; none while it runs on at the time limit.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    loop {
        let status = child.try_wait()?;
        if status.is_some() || Instant::now() >= deadline {
            return Ok(status);
        }
        std::thread::sleep(POLL);
    }
}

/// What QEMU gave as its reason, else how it ended.
fn reason(text: &str, status: ExitStatus) -> String {
    let mut lines = text.lines().filter(|line| !line.contains("warning:"));
    let Some(line) = lines.find(|line| !line.trim().is_empty()) else {
        return status.to_string();
    };
    let line = line.trim_start_matches("qemu-system-x86_64: ");
    let line = line.trim_start_matches("error: ");
    line.chars().take(MAX_REASON_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A probe whose QEMU is a line of shell; its device is there.
    fn probe(script: &str) -> Probe {
        Probe {
            device: "/dev/null".into(),
            program: ["sh", "-c", script].map(Into::into).to_vec(),
            accelerator: "kvm",
            limit: Duration::from_secs(30),
        }
    }

    fn auto(probe: Probe) -> (Accelerator, String) {
        let (accelerator, refusal) = decide(Choice::Auto, None, || probe.run()).unwrap();
        (
            accelerator,
            refusal.map_or(String::new(), |refusal| refusal.to_string()),
        )
    }

    fn kvm(probe: Probe) -> Result<Accelerator, String> {
        let chosen = decide(Choice::Kvm, None, || probe.run());
        chosen
            .map(|(accelerator, _)| accelerator)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_guest_that_runs_gives_kvm() {
        assert_eq!("kvm".parse::<Choice>().unwrap(), Choice::Kvm);
        assert!(
            "hvf"
                .parse::<Choice>()
                .unwrap_err()
                .to_string()
                .contains("auto, kvm or tcg")
        );
        assert_eq!(auto(probe("exit 85")), (Accelerator::Kvm, String::new()));
        assert_eq!(kvm(probe("exit 85")), Ok(Accelerator::Kvm));
    }

    #[test]
    fn a_machine_that_ends_otherwise_gives_emulation_with_its_reason() {
        let script = "echo qemu-system-x86_64: warning: no such feature >&2
                      echo qemu-system-x86_64: error: failed to set MSR 0x10a >&2; exit 1";
        let (accelerator, why) = auto(probe(script));
        assert_eq!(accelerator, Accelerator::Tcg);
        assert!(why.ends_with("had run: failed to set MSR 0x10a"), "{why}");
        // Success without the status of the guest's own is none.
        let (accelerator, why) = auto(probe("exit 0"));
        assert_eq!(accelerator, Accelerator::Tcg);
        assert!(why.contains("exit status: 0"), "{why}");
        let error = kvm(probe(script)).unwrap_err();
        assert!(
            error.contains("0x10a") && error.contains("--accel tcg"),
            "{error}"
        );
    }

    #[test]
    fn a_machine_that_hangs_is_ended_at_the_limit() {
        let hangs = || Probe {
            limit: Duration::from_millis(300),
            ..probe("exec sleep 600")
        };
        let began = Instant::now();
        let (accelerator, why) = auto(hangs());
        assert_eq!(accelerator, Accelerator::Tcg);
        assert!(why.contains("did not run within"), "{why}");
        assert!(kvm(hangs()).is_err());
        assert!(began.elapsed() < Duration::from_secs(60));
        assert!(PROBE_LIMIT <= Duration::from_secs(2));
    }

    #[test]
    fn a_device_that_is_missing_or_closed_starts_no_machine() {
        let absent = || Probe {
            device: "/nonexistent/kvm".into(),
            ..probe("exit 85")
        };
        let (accelerator, why) = auto(absent());
        assert_eq!(
            (accelerator, why.as_str()),
            (Accelerator::Tcg, "there is no /dev/kvm")
        );
        let error = kvm(absent()).unwrap_err();
        assert!(
            error.contains("kvm_intel") && error.contains("nested"),
            "{error}"
        );
        // Root may open everything, so the refusal is made up.
        let closed = || Err(Refusal::of_device(io::ErrorKind::PermissionDenied.into()));
        let (accelerator, refusal) = decide(Choice::Auto, None, closed).unwrap();
        assert_eq!(accelerator, Accelerator::Tcg);
        assert!(refusal.unwrap().to_string().contains("closed to you"));
        let error = decide(Choice::Kvm, None, closed).unwrap_err().to_string();
        assert!(error.contains("usermod -aG kvm"), "{error}");
    }

    #[test]
    fn what_needs_emulation_gets_it_without_a_probe() {
        let probe = || -> Result<(), Refusal> { unreachable!("nothing is probed") };
        for (choice, needs) in [
            (Choice::Tcg, None),
            (Choice::Tcg, Some("--icount")),
            (Choice::Auto, Some("--icount")),
        ] {
            let (accelerator, refusal) = decide(choice, needs, probe).unwrap();
            assert_eq!(accelerator, Accelerator::Tcg);
            assert!(refusal.is_none());
        }
        let error = decide(Choice::Kvm, Some("--icount"), probe).unwrap_err();
        assert!(error.to_string().contains("--icount needs emulation"));
    }

    #[test]
    #[ignore = "needs QEMU"]
    fn the_probe_machine_says_that_it_has_run() {
        let probe = Probe {
            program: vec![machine::PROGRAM.into()],
            accelerator: "tcg",
            ..probe("")
        };
        probe.run().unwrap();
    }
}
