//! The boot service alone: real firmware loads the real image through it, as far as the kernel's
//! first lines.
//!
//! Success is what happens (stages, and the kernel's first lines on its console), never how long it
//! takes; the times are printed.

use hearth_boot::{
    BootRecord, Config, Event, Firmware, FixedLease, ImageTransport, Leases, Mac, Personalities,
    Refused, Service, Stage, TimelineSink, timeline,
};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{self, Running};

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

#[test]
#[ignore = "needs QEMU, a network namespace and the built image"]
fn seabios_ipxe_loads_by_http() {
    boot("seabios_ipxe_loads_by_http", ImageTransport::Http);
}

#[test]
#[ignore = "needs QEMU, a network namespace and the built image"]
fn seabios_ipxe_loads_by_tftp() {
    boot("seabios_ipxe_loads_by_tftp", ImageTransport::Tftp);
}

fn boot(test: &str, transport: ImageTransport) {
    match support::role().as_deref() {
        None => support::in_namespace(&format!("loading::{test}"), "cluster", 2 * LIMIT),
        Some(_) => boot_here(transport),
    }
}

fn boot_here(transport: ImageTransport) {
    support::run("ip link set lo up");
    support::run("ip link add br0 type bridge stp_state 0 forward_delay 0");
    support::no_address_detection("br0");
    support::run("ip address add 10.117.0.1/16 dev br0");
    support::run("ip tuntap add tap0 mode tap");
    support::run("ip link set tap0 master br0 up");
    support::run("ip link set br0 up");
    let mut config = Config::new("br0", SERVER, 16, crate::output("hearth.efi"));
    config.leases = Leases::Fixed(vec![FixedLease {
        mac: MAC,
        address: NODE,
        node: 1,
    }]);
    config.image_transport = transport;
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
        let mut machine = start(&console);
        let record = loop {
            let records = service.timeline();
            let text = console_text(&console);
            let loaded = records.iter().find(|record| record.stages.kernel.is_some());
            if let Some(record) = loaded
                && kernel_speaks(&text)
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
    assert_eq!(record.firmware, Some(Firmware::Ipxe));
    assert_eq!(record.address, Some(NODE));
    assert_eq!(record.boots, 1);
    for stage in [Stage::Dhcp, Stage::Script, Stage::Kernel] {
        assert!(record.stages.get(stage).is_some(), "{stage}: {record:?}");
    }
}

/// The kernel has printed its banner and its command line.
fn kernel_speaks(console: &str) -> bool {
    console.contains("boot: Hearth ") && console.contains(COMMAND_LINE)
}

fn console_text(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

fn start(console: &Path) -> Running {
    let child = Command::new("qemu-system-x86_64")
        .args(
            "-accel tcg,tb-size=64 -M pc,graphics=off -cpu max -m 48 -nodefaults -display none"
                .split(' '),
        )
        .args([
            "-no-reboot",
            "-netdev",
            "tap,id=n0,ifname=tap0,script=no,downscript=no",
        ])
        .args([
            "-device",
            &format!("virtio-net-pci,netdev=n0,mac={MAC},bootindex=0"),
        ])
        .args(["-serial", &format!("file:{}", console.display())])
        .stdin(Stdio::null())
        .spawn();
    Running(child.expect("QEMU is installed (Debian: apt install qemu-system-x86)"))
}
