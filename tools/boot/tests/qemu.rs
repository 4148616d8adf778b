//! Real firmware boots the real image through the service: one QEMU machine on a tap and a bridge, in a network
//! namespace. Run by `cargo xtask test`; by hand `cargo xtask build`, then `cargo test -p hearth-boot --test qemu -- --ignored`.
//!
//! Success is what happens (stages, and the kernel's first lines on its console), never how long it takes; the
//! times are printed.

mod support;

use hearth_boot::{
    BootRecord, Config, Event, Firmware, FixedLease, ImageTransport, Leases, Mac, Personalities,
    Refused, Service, Stage, TimelineSink, timeline,
};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::Running;

/// Firmware under emulation on a machine with other work takes minutes.
const LIMIT: Duration = Duration::from_secs(300);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 117, 0, 1);
const NODE: Ipv4Addr = Ipv4Addr::new(10, 117, 1, 1);
const MAC: Mac = Mac([0x52, 0x54, 0, 7, 0, 1]);
const COMMAND_LINE: &str = "hearth.console=ttyS0 hearth.log=debug";

struct Nobody;

impl Personalities for Nobody {
    fn personality(&self, _: Mac, _: u64, _: Ipv4Addr) -> Result<Vec<u8>, Refused> {
        Err(Refused {
            reason: "this test ends where the kernel begins".into(),
        })
    }
}

struct Print;

impl TimelineSink for Print {
    fn stage(&self, stage: Stage, record: &BootRecord) {
        let after = record.stages.get(stage).unwrap_or_default() as f64 / 1e6;
        println!("{after:8.3} s  {stage}");
    }

    fn event(&self, event: &Event) {
        println!("{}: {event}", event.severity());
    }
}

/// A way to boot.
struct Way {
    test: &'static str,
    firmware: Firmware,
    transport: ImageTransport,
    /// Options of the machine beside the common ones.
    machine: Vec<String>,
    /// Stages that it passes through.
    stages: &'static [Stage],
    /// What the kernel says of its command line, where firmware passes one.
    command_line: Option<&'static str>,
}

fn bios(test: &'static str, transport: ImageTransport) -> Way {
    Way {
        test,
        firmware: Firmware::Ipxe,
        transport,
        machine: ["-m", "48"].map(String::from).to_vec(),
        stages: &[Stage::Dhcp, Stage::Script, Stage::Kernel],
        command_line: Some(COMMAND_LINE),
    }
}

fn uefi(test: &'static str, firmware: Firmware) -> Way {
    let ovmf = [
        "/usr/share/ovmf/OVMF.fd",
        "/usr/share/OVMF/OVMF.fd",
        "/usr/share/qemu/OVMF.fd",
    ];
    let ovmf = ovmf.into_iter().find(|path| Path::new(path).exists());
    let ovmf = ovmf.expect("OVMF is installed (Debian: apt install ovmf)");
    let mut machine = ["-m", "192", "-bios", ovmf].map(String::from).to_vec();
    if firmware == Firmware::UefiHttp {
        // Both off, or the firmware tries them first and gives up only after a minute.
        for version in ["IPv4", "IPv6"] {
            let no_pxe = format!("name=opt/org.tianocore/{version}PXESupport,string=n");
            machine.extend(["-fw_cfg".to_owned(), no_pxe]);
        }
    }
    Way {
        test,
        firmware,
        transport: ImageTransport::Http,
        machine,
        stages: &[Stage::Dhcp, Stage::Nbp, Stage::Kernel],
        command_line: None,
    }
}

#[test]
#[ignore = "needs QEMU, a network namespace and the built image"]
fn seabios_ipxe_loads_by_http() {
    boot(&bios("seabios_ipxe_loads_by_http", ImageTransport::Http));
}

#[test]
#[ignore = "needs QEMU, a network namespace and the built image"]
fn seabios_ipxe_loads_by_tftp() {
    boot(&bios("seabios_ipxe_loads_by_tftp", ImageTransport::Tftp));
}

#[test]
#[ignore = "needs QEMU, a network namespace and the built image"]
fn ovmf_loads_by_pxe() {
    boot(&uefi("ovmf_loads_by_pxe", Firmware::UefiPxe));
}

#[test]
#[ignore = "needs QEMU, a network namespace and the built image"]
fn ovmf_loads_by_http() {
    boot(&uefi("ovmf_loads_by_http", Firmware::UefiHttp));
}

fn boot(way: &Way) {
    match support::role().as_deref() {
        None => support::in_namespace(way.test, "cluster", 2 * LIMIT),
        Some(_) => boot_here(way),
    }
}

fn image() -> PathBuf {
    let built = std::env::var_os("HEARTH_OUTPUTS")
        .map(PathBuf::from)
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/hearth"));
    let image = built.join("hearth.efi");
    assert!(
        image.exists(),
        "{} is missing: cargo xtask build",
        image.display()
    );
    image
}

fn boot_here(way: &Way) {
    support::run("ip link set lo up");
    support::run("ip link add br0 type bridge stp_state 0 forward_delay 0");
    support::no_address_detection("br0");
    support::run("ip address add 10.117.0.1/16 dev br0");
    support::run("ip tuntap add tap0 mode tap");
    support::run("ip link set tap0 master br0 up");
    support::run("ip link set br0 up");
    let mut config = Config::new("br0", SERVER, 16, image());
    config.leases = Leases::Fixed(vec![FixedLease {
        mac: MAC,
        address: NODE,
        node: 1,
    }]);
    config.image_transport = way.transport;
    config.command_line = COMMAND_LINE.into();
    let directory = tempfile::tempdir().unwrap();
    let console = directory.path().join("console");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let record = runtime.block_on(async {
        let http = config.http;
        let service = Service::start(config, Arc::new(Nobody), Arc::new(Print)).unwrap();
        let listener = tokio::net::TcpListener::bind(http).await.unwrap();
        tokio::spawn(service.serve_http(listener));
        let begin = Instant::now();
        let mut machine = start(way, &console);
        let record = loop {
            let records = service.timeline();
            let text = console_text(&console);
            let loaded = records.iter().find(|record| record.stages.kernel.is_some());
            if let Some(record) = loaded
                && kernel_speaks(&text, way)
            {
                break record.clone();
            }
            let ended = machine.0.try_wait().unwrap();
            let table = timeline::table(&records);
            let late = begin.elapsed() > LIMIT;
            assert!(ended.is_none() && !late, "{ended:?}\n{table}\n{text}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let unix_ms = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let firmware = record.began_unix_ms as i128 + begin.elapsed().as_millis() as i128
            - unix_ms.unwrap().as_millis() as i128;
        println!(
            "power-on to first packet {firmware} ms, to the kernel {:?}",
            begin.elapsed()
        );
        record
    });
    assert_eq!(record.firmware, Some(way.firmware));
    assert_eq!(record.address, Some(NODE));
    assert_eq!(record.boots, 1);
    for stage in way.stages {
        assert!(record.stages.get(*stage).is_some(), "{stage}: {record:?}");
    }
}

/// The kernel has printed its banner, and its command line where it has one.
fn kernel_speaks(console: &str, way: &Way) -> bool {
    console.contains("boot: Hearth ") && way.command_line.is_none_or(|line| console.contains(line))
}

fn console_text(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

fn start(way: &Way, console: &Path) -> Running {
    // QEMU's own UEFI network driver is iPXE: without it the firmware boots by itself.
    let rom = if way.firmware == Firmware::Ipxe {
        ""
    } else {
        ",romfile="
    };
    let child = Command::new("qemu-system-x86_64")
        .args(
            "-accel tcg,tb-size=64 -M pc,graphics=off -cpu max -nodefaults -display none"
                .split(' '),
        )
        .args([
            "-no-reboot",
            "-netdev",
            "tap,id=n0,ifname=tap0,script=no,downscript=no",
        ])
        .args([
            "-device",
            &format!("virtio-net-pci,netdev=n0,mac={MAC},bootindex=0{rom}"),
        ])
        .args(["-serial", &format!("file:{}", console.display())])
        .args(&way.machine)
        .stdin(Stdio::null())
        .spawn();
    Running(child.expect("QEMU is installed (Debian: apt install qemu-system-x86)"))
}
