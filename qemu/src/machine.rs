//! One machine: its QEMU command line, and starting it.
//!
//! Key functions: [`arguments`] (pure), [`start`]. Neighbours: `supervisor`; `network` made the
//! tap it uses.
//!
//! Invariant: a machine dies with the supervisor (`setpriv --pdeathsig`), and its guest's reset
//! ends it (`-no-reboot`): the supervisor counts resets and starts it again.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::namespace::find_program;
use crate::{Accelerator, Error, Firmware, Paths, Spec, network};

/// QEMU.
pub(crate) const PROGRAM: &str = "qemu-system-x86_64";
/// What every machine is, whatever is plugged into it. graphics=off sends the firmware's own
/// messages to the serial console.
pub(crate) const PLATFORM: [&str; 11] = [
    "-machine",
    "pc,graphics=off",
    "-cpu",
    "max",
    "-display",
    "none",
    "-monitor",
    "none",
    "-nodefaults",
    "-no-user-config",
    "-no-reboot",
];
/// Cache of translated code for each machine, in mebibytes: enough for a kernel and a program;
/// QEMU's default of a quarter of memory multiplies badly.
const TRANSLATION_CACHE_MIB: u32 = 64;
/// UEFI firmware: code and the template of its variable store, as distributions name them.
const UEFI_FIRMWARE: [(&str, &str); 4] = [
    (
        "/usr/share/OVMF/OVMF_CODE_4M.fd",
        "/usr/share/OVMF/OVMF_VARS_4M.fd",
    ),
    (
        "/usr/share/OVMF/OVMF_CODE.fd",
        "/usr/share/OVMF/OVMF_VARS.fd",
    ),
    (
        "/usr/share/edk2/ovmf/OVMF_CODE.fd",
        "/usr/share/edk2/ovmf/OVMF_VARS.fd",
    ),
    (
        "/usr/share/edk2/x64/OVMF_CODE.4m.fd",
        "/usr/share/edk2/x64/OVMF_VARS.4m.fd",
    ),
];

/// The UEFI firmware of this machine.
pub(crate) fn find_uefi() -> Result<(PathBuf, PathBuf), Error> {
    UEFI_FIRMWARE
        .iter()
        .map(|&(code, variables)| (PathBuf::from(code), PathBuf::from(variables)))
        .find(|(code, variables)| code.is_file() && variables.is_file())
        .ok_or_else(|| {
            Error::Host(
                "no UEFI firmware (OVMF) was found: `cargo xtask setup` or \
                 `sudo apt-get install ovmf` installs it"
                    .to_owned(),
            )
        })
}

/// QEMU's arguments for a node. `uefi` is the firmware's code when it is asked for.
pub(crate) fn arguments(
    spec: &Spec,
    paths: &Paths,
    node: u32,
    uefi: Option<&Path>,
) -> Vec<OsString> {
    // The name comes first: people find a machine's process by it.
    let name = format!("hearth-{}-n{node}", spec.name);
    let mut list: Vec<OsString> = vec!["-name".into(), name.into()];
    list.extend(PLATFORM.map(OsString::from));
    let mut add = |option: &str, value: String| {
        list.push(option.into());
        list.push(value.into());
    };
    let accelerator = match spec.accelerator {
        Accelerator::Kvm => "kvm".to_owned(),
        Accelerator::Tcg => format!("tcg,tb-size={TRANSLATION_CACHE_MIB}"),
    };
    add("-accel", accelerator);
    add("-m", spec.memory_mib.to_string());
    if spec.cpus > 1 {
        add("-smp", spec.cpus.to_string());
    }
    let log = escape_commas(&paths.serial_log(node));
    add("-chardev", format!("file,id=serial,path={log},append=on"));
    add("-serial", "chardev:serial".to_owned());
    let tap = network::tap(node);
    add(
        "-netdev",
        format!("tap,id=net,ifname={tap},script=no,downscript=no"),
    );
    let mac = Spec::node_mac(node);
    // -kernel takes boot index 0 for itself; the card's boot ROM would only cost time there.
    let boot = match spec.firmware {
        Firmware::Direct => "romfile=",
        Firmware::Bios | Firmware::Uefi => "bootindex=0",
    };
    add(
        "-device",
        format!(
            "{},netdev=net,mac={mac},{boot}",
            spec.cards.of(node).device()
        ),
    );
    if let Some(shift) = spec.instruction_shift {
        // With sleep=off an idle guest would jump to its next timer, and time-outs would storm. The
        // clock of one that computes waits for the host's where it is ahead (align).
        add("-icount", format!("shift={shift},sleep=on,align=on"));
    }
    if spec.debugged.contains(&node) {
        let socket = escape_commas(&paths.debugger_socket(node));
        add("-gdb", format!("unix:{socket},server=on,wait=off"));
    }
    if let Some(items) = &spec.trace {
        add("-d", items.clone());
        // The file begins anew at each start of the machine.
        add("-D", paths.trace_log(node).display().to_string());
    }
    match spec.firmware {
        Firmware::Bios => {}
        Firmware::Direct => {
            add("-kernel", spec.image.display().to_string());
            if !spec.command_line.is_empty() {
                add("-append", spec.command_line.clone());
            }
        }
        Firmware::Uefi => {
            if let Some(code) = uefi {
                let code = escape_commas(code);
                add(
                    "-drive",
                    format!("if=pflash,format=raw,readonly=on,file={code}"),
                );
            }
            let variables = escape_commas(&paths.uefi_variables(node));
            add("-drive", format!("if=pflash,format=raw,file={variables}"));
            // Newer OVMF has no network without a source of random numbers.
            add(
                "-object",
                "rng-random,id=random,filename=/dev/urandom".to_owned(),
            );
            add("-device", "virtio-rng-pci,rng=random".to_owned());
        }
    }
    list
}

/// A comma in a value of QEMU's is written twice.
fn escape_commas(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// Switches a machine on.
pub(crate) fn start(spec: &Spec, paths: &Paths, node: u32) -> Result<Child, Error> {
    let uefi = match spec.firmware {
        Firmware::Uefi => {
            let (code, template) = find_uefi()?;
            let variables = paths.uefi_variables(node);
            fs::copy(&template, &variables).map_err(Error::file("writing", variables))?;
            Some(code)
        }
        Firmware::Bios | Firmware::Direct => None,
    };
    let mut command = dying_with_parent(PROGRAM);
    command
        .args(arguments(spec, paths, node, uefi.as_deref()))
        .stdin(Stdio::null())
        .stdout(append(&paths.qemu_log(node))?)
        .stderr(append(&paths.qemu_log(node))?);
    command.spawn().map_err(|source| Error::Start {
        program: PROGRAM.to_owned(),
        source,
    })
}

/// Run by `sh` once the death signal is set: a parent that died before that sends none, but is not
/// this process's parent any more either. `$0` is the parent's number, `$@` the command.
const UNLESS_ORPHANED: &str = r#"[ "$PPID" = "$0" ] && exec "$@""#;

/// A command whose process is killed when the calling thread ends, however and whenever it ends.
pub(crate) fn dying_with_parent(program: impl Into<OsString>) -> Command {
    match find_program("setpriv") {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command
                .args(["--pdeathsig", "KILL", "--", "sh", "-c", UNLESS_ORPHANED])
                .arg(std::process::id().to_string())
                .arg(program.into());
            command
        }
        // Only what is recorded is cleaned up then; util-linux is on every usual system.
        None => Command::new(program.into()),
    }
}

/// Opens a log to append to.
pub(crate) fn append(path: &Path) -> Result<File, Error> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(Error::file("opening", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Card, Cards};

    fn words(firmware: Firmware, root: &str) -> String {
        let spec = Spec {
            name: "lab".to_owned(),
            nodes: 4,
            memory_mib: 48,
            cpus: match firmware {
                Firmware::Uefi => 4,
                Firmware::Bios | Firmware::Direct => 1,
            },
            tree: "4".parse().unwrap(),
            rate: None,
            io_services: 0,
            firmware,
            accelerator: match firmware {
                Firmware::Bios => Accelerator::Kvm,
                Firmware::Uefi | Firmware::Direct => Accelerator::Tcg,
            },
            cards: Cards {
                usual: Card::Virtio,
                of: [(3, Card::E1000e)].into(),
            },
            image: "/img/hearth.efi".into(),
            command_line: "hearth.console=ttyS0".to_owned(),
            instruction_shift: (firmware == Firmware::Direct).then_some(0),
            trace: (firmware == Firmware::Uefi).then(|| "int".to_owned()),
            debugged: match firmware {
                Firmware::Direct => vec![3],
                Firmware::Bios | Firmware::Uefi => vec![2],
            },
        };
        let paths = Paths::below(Path::new(root), "lab").unwrap();
        let list = arguments(&spec, &paths, 3, Some(Path::new("/fw/code.fd")));
        list.join(" ".as_ref()).into_string().unwrap()
    }

    #[test]
    fn each_firmware_has_its_arguments() {
        let bios = words(Firmware::Bios, "/s");
        assert!(bios.contains("-device e1000e,netdev=net,mac=52:54:00:07:00:03,bootindex=0"));
        assert!(bios.contains("ifname=n3,"));
        assert!(bios.contains("path=/s/lab/logs/n3.serial,append=on"));
        assert!(!bios.contains("-kernel") && !bios.contains("pflash"));
        assert!(bios.contains("-accel kvm -m") && !bios.contains("tcg"));
        let direct = words(Firmware::Direct, "/s");
        assert!(direct.contains("-kernel /img/hearth.efi -append hearth.console=ttyS0"));
        assert!(direct.contains(",romfile=") && !direct.contains("bootindex"));
        assert!(direct.contains("-accel tcg,tb-size=64 -m") && !direct.contains("kvm"));
        assert!(direct.contains("-icount shift=0,sleep=on,align=on") && !bios.contains("-icount"));
        let uefi = words(Firmware::Uefi, "/s");
        assert!(uefi.contains("-smp 4 ") && !bios.contains("-smp"));
        assert!(uefi.contains("readonly=on,file=/fw/code.fd"));
        assert!(uefi.contains("file=/s/lab/run/n3.vars"));
        assert!(direct.contains("-gdb unix:/s/lab/run/n3.gdb,server=on,wait=off"));
        assert!(!bios.contains("-gdb"));
        assert!(uefi.contains("-d int -D /s/lab/logs/n3.trace") && !bios.contains("-d "));
    }

    #[test]
    fn commas_in_paths_are_escaped() {
        assert!(words(Firmware::Bios, "/a,b").contains("path=/a,,b/lab/logs"));
    }
}
