//! One QEMU machine: started, read by its serial console until a line appears, stopped.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long a boot may take before the test fails: these run on loaded machines without hardware
/// virtualisation, where OVMF alone needs a minute.
const LIMIT: Duration = Duration::from_secs(300);
const OVMF_CODE: &str = "/usr/share/OVMF/OVMF_CODE_4M.fd";
const OVMF_VARIABLES: &str = "/usr/share/OVMF/OVMF_VARS_4M.fd";

/// What a machine starts from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Firmware {
    /// SeaBIOS, with iPXE in the network card's ROM.
    Bios,
    /// OVMF.
    Uefi,
}

/// A machine to be started.
pub struct Machine {
    firmware: Firmware,
    board: &'static str,
    cpu: &'static str,
    memory_kib: u64,
    options: Vec<String>,
}

impl Machine {
    /// A small machine.
    pub fn new(firmware: Firmware) -> Self {
        Self {
            firmware,
            board: if firmware == Firmware::Uefi {
                "q35"
            } else {
                "pc"
            },
            cpu: "max",
            memory_kib: if firmware == Firmware::Uefi {
                128 << 10
            } else {
                32 << 10
            },
            options: Vec::new(),
        }
    }

    /// Another board.
    pub fn board(mut self, board: &'static str) -> Self {
        self.board = board;
        self
    }

    /// Another processor.
    pub fn cpu(mut self, cpu: &'static str) -> Self {
        self.cpu = cpu;
        self
    }

    /// Another size of memory.
    pub fn memory_kib(mut self, memory_kib: u64) -> Self {
        self.memory_kib = memory_kib;
        self
    }

    /// One more option.
    pub fn option(mut self, name: &str, value: &str) -> Self {
        self.options.extend([name.to_owned(), value.to_owned()]);
        self
    }

    /// Boots `image` by QEMU's own loader.
    pub fn kernel(self, image: impl AsRef<Path>, command_line: &str) -> Self {
        self.option("-kernel", &image.as_ref().display().to_string())
            .option("-append", command_line)
    }

    /// Boots `file` over QEMU's user network, with `directory` behind TFTP.
    pub fn network(self, directory: &Path, file: &str) -> Self {
        let directory = directory.display();
        // OVMF has its own driver; BIOS boots by the iPXE that QEMU puts into the card.
        let rom = if self.firmware == Firmware::Uefi {
            ",romfile="
        } else {
            ""
        };
        self.option(
            "-netdev",
            &format!("user,id=n0,tftp={directory},bootfile={file}"),
        )
        .option(
            "-device",
            &format!("virtio-net-pci,netdev=n0,bootindex=0{rom}"),
        )
    }

    /// Runs until one of `ends` appears on the serial console; fails the test when the machine ends
    /// before or takes too long.
    pub fn run(&self, ends: &[&str]) -> Console {
        let mut child = Running(self.command().spawn().unwrap_or_else(|error| {
            panic!("qemu-system-x86_64 does not start ({error}); run `cargo xtask setup`")
        }));
        let mut output = child.0.stdout.take().unwrap();
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut chunk) {
                if sender.send(chunk[..length].to_vec()).is_err() {
                    break;
                }
            }
        });
        let deadline = Instant::now() + LIMIT;
        let mut bytes = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&bytes).replace('\r', "");
            if ends.iter().any(|end| text.contains(end)) {
                return Console(text);
            }
            match receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(chunk) => bytes.extend(chunk),
                Err(RecvTimeoutError::Timeout) => panic!("no {ends:?} within {LIMIT:?}: {text}"),
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("QEMU ended without {ends:?}: {text}")
                }
            }
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new("qemu-system-x86_64");
        let graphics = if self.board == "microvm" {
            ""
        } else {
            ",graphics=off"
        };
        command
            .args([
                "-accel",
                "tcg,tb-size=64",
                "-M",
                &format!("{}{graphics}", self.board),
            ])
            .args(["-cpu", self.cpu, "-m", &format!("{}K", self.memory_kib)])
            .args([
                "-nodefaults",
                "-display",
                "none",
                "-serial",
                "stdio",
                "-no-reboot",
            ])
            .args(&self.options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        if self.firmware == Firmware::Uefi {
            let variables = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ovmf-variables.fd");
            std::fs::copy(OVMF_VARIABLES, &variables).unwrap_or_else(|error| {
                panic!("{OVMF_VARIABLES}: {error}; run `cargo xtask setup`")
            });
            for (file, mode) in [(OVMF_CODE, "on"), (&variables.display().to_string(), "off")] {
                command.args([
                    "-drive",
                    &format!("if=pflash,format=raw,readonly={mode},file={file}"),
                ]);
            }
        }
        command
    }
}

/// A child that does not outlive the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the serial console said.
pub struct Console(String);

impl Console {
    /// All of it.
    pub fn text(self) -> String {
        self.0
    }

    /// The report of the kernel that only prints.
    pub fn report(self) -> Report {
        Report(self.0)
    }
}

/// A report: lines of name and value.
pub struct Report(String);

/// A line `region START END KIND`.
pub struct Region {
    /// First byte.
    pub start: u64,
    /// End, exclusive.
    pub end: u64,
    /// `Usable`, `Bootloader` or another.
    pub kind: String,
}

impl Report {
    /// The value of `name`. The first line follows firmware's own output without a line end.
    pub fn value(&self, name: &str) -> &str {
        let start = self
            .0
            .find("entry ")
            .unwrap_or_else(|| panic!("no report: {}", self.0));
        self.0[start..]
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
            .unwrap_or_else(|| panic!("no {name} in the report: {}", self.0))
    }

    /// The memory regions.
    pub fn regions(&self) -> Vec<Region> {
        let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
        self.0
            .lines()
            .filter_map(|line| line.strip_prefix("region "))
            .map(|line| {
                let words: Vec<&str> = line.splitn(3, ' ').collect();
                Region {
                    start: number(words[0]),
                    end: number(words[1]),
                    kind: words[2].to_owned(),
                }
            })
            .collect()
    }
}
