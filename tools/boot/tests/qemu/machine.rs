//! A machine of QEMU's, as a server of a rack: firmware, a card at the bridge, what it boots from.
//!
//! Key type: [`Machine`].

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::Running;

/// Address of the card.
pub const MAC: &str = "52:54:00:07:00:01";
const OVMF: &str = "/usr/share/OVMF";

/// A machine to be started.
pub struct Machine {
    command: Command,
}

impl Machine {
    /// SeaBIOS, with iPXE in the card's ROM.
    pub fn bios() -> Machine {
        Machine::new(&["-M", "pc,graphics=off", "-m", "64"])
    }

    /// OVMF. Its variables are in `folder`.
    pub fn uefi(folder: &Path) -> Machine {
        let pc = ["-M", "pc,graphics=off", "-m", "192"];
        Machine::new(&pc).with_firmware(folder, "OVMF_CODE_4M.fd", "OVMF_VARS_4M.fd")
    }

    /// OVMF with Secure Boot on, and the snake-oil key of its Debian package as the key that is
    /// trusted.
    pub fn secure_boot(folder: &Path) -> Machine {
        let q35 = ["-M", "q35,smm=on,graphics=off", "-m", "192"];
        Machine::new(&q35)
            .options(&["-global", "driver=cfi.pflash01,property=secure,value=on"])
            .with_firmware(
                folder,
                "OVMF_CODE_4M.secboot.fd",
                "OVMF_VARS_4M.snakeoil.fd",
            )
    }

    /// A machine with PCI Express, as a server has it, and SeaBIOS.
    pub fn q35() -> Machine {
        Machine::new(&["-M", "q35,graphics=off", "-m", "64"])
    }

    fn new(options: &[&str]) -> Machine {
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-accel", "tcg,tb-size=64", "-cpu", "max", "-nodefaults"]);
        command.args(["-display", "none", "-no-reboot"]);
        command.args(["-netdev", "tap,id=n0,ifname=tap0,script=no,downscript=no"]);
        Machine { command }.options(options)
    }

    fn with_firmware(self, folder: &Path, code: &str, variables: &str) -> Machine {
        let own = folder.join("firmware-variables.fd");
        let from = Path::new(OVMF).join(variables);
        std::fs::copy(&from, &own)
            .unwrap_or_else(|error| panic!("{}: {error}; cargo xtask setup", from.display()));
        let drives = [
            format!("if=pflash,format=raw,readonly=on,file={OVMF}/{code}"),
            format!("if=pflash,format=raw,file={}", own.display()),
        ];
        let [code, variables] = &drives;
        let machine = self.options(&["-drive", code, "-drive", variables]);
        // Newer OVMF does not use its network without a source of random numbers.
        machine
            .options(&["-device", "virtio-rng-pci"])
            .without("IPv6Support")
            .without("IPv6PXESupport")
    }

    /// Switches a part of OVMF off: it would be tried first, and given up after a minute.
    pub fn without(self, part: &str) -> Machine {
        let off = format!("name=opt/org.tianocore/{part},string=n");
        self.options(&["-fw_cfg", &off])
    }

    /// More options of QEMU's.
    pub fn options(mut self, options: &[&str]) -> Machine {
        self.command.args(options);
        self
    }

    /// With a card whose ROM is iPXE, from which it boots.
    pub fn boots_by_ipxe(self) -> Machine {
        self.boots_by_ipxe_of("virtio-net-pci")
    }

    /// The same with another card.
    pub fn boots_by_ipxe_of(self, card: &str) -> Machine {
        let card = format!("{card},netdev=n0,mac={MAC},bootindex=0");
        self.options(&["-device", &card])
    }

    /// With a card without a ROM, from which the firmware boots by itself.
    pub fn boots_by_network(self) -> Machine {
        self.card(",romfile=,bootindex=0")
    }

    /// With a stick at its USB port, from which it boots, and a card from which it does not.
    pub fn boots_from_stick(self, medium: &Path) -> Machine {
        let drive = format!(
            "if=none,id=stick,format=raw,readonly=on,file={}",
            medium.display()
        );
        self.options(&["-drive", &drive, "-device", "qemu-xhci"])
            .options(&["-device", "usb-storage,drive=stick,bootindex=0"])
            .card(",romfile=")
    }

    /// Started by QEMU's own loader, with a card from which it does not boot.
    pub fn boots_directly(self, kernel: &Path, initrd: &Path, command_line: &str) -> Machine {
        let path = |path: &Path| path.display().to_string();
        self.options(&["-kernel", &path(kernel), "-initrd", &path(initrd)])
            .options(&["-append", command_line])
            .card(",romfile=")
    }

    /// Started by QEMU's own loader from the boot image, with this card, from which it does not
    /// boot.
    pub fn starts_with_card(self, card: &str) -> Machine {
        let image = crate::output("hearth.efi").display().to_string();
        let card = format!("{card},netdev=n0,mac={MAC},romfile=");
        self.options(&["-kernel", &image, "-append", "hearth.console=ttyS0"])
            .options(&["-device", &card])
    }

    /// With a monitor ([`crate::monitor`]) at this socket.
    pub fn with_monitor(self, socket: &Path) -> Machine {
        let monitor = format!("unix:{},server=on,wait=off", socket.display());
        self.options(&["-qmp", &monitor])
    }

    fn card(self, more: &str) -> Machine {
        let card = format!("virtio-net-pci,netdev=n0,mac={MAC}{more}");
        self.options(&["-device", &card])
    }

    /// Switches it on.
    pub fn start(self, console: PathBuf) -> Started {
        let serial = format!("file:{}", console.display());
        self.options(&["-serial", &serial]).run(console)
    }

    /// Switches it on, with no serial port in it.
    pub fn start_without_serial_port(self) -> Started {
        self.options(&["-serial", "none"]).run(PathBuf::new())
    }

    fn run(mut self, console: PathBuf) -> Started {
        let process = self.command.stdin(Stdio::null()).spawn();
        let process = process.expect("QEMU is installed (cargo xtask setup)");
        Started {
            process: Running(process),
            console,
        }
    }
}

/// A machine that is on; switched off when dropped.
pub struct Started {
    process: Running,
    console: PathBuf,
}

impl Started {
    /// What it has written to its serial port.
    pub fn console(&self) -> String {
        let bytes = std::fs::read(&self.console).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\r', "\n")
    }

    /// Whether it has gone off by itself.
    pub fn is_off(&mut self) -> bool {
        let status = self.process.0.try_wait();
        status.expect("the process can be waited for").is_some()
    }
}
