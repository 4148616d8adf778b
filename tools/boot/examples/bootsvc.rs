//! The boot service alone: serves an image on one interface and prints what machines do.
//!
//! `cargo run -p hearth-boot --example bootsvc -- --interface br0 --address 10.117.0.1/16 --image
//! FILE`
//!
//! For trying the service without a control node: the personalities it hands out are made up, so a
//! node boots and then finds nobody to join.

use hearth_boot::{
    BootRecord, Config, Event, ImageTransport, Mac, OtherSystem, Personalities, Refused, Service,
    Stage, TimelineSink, timeline,
};
use netstack::ids::NodeId;
use netstack::personality::Personality;
use netstack::wire::key::Key;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const USAGE: &str = "usage: bootsvc --interface IF --address IP/PREFIX --image FILE [--command-line TEXT] \
     [--tftp] [--proxy] [--firmware-dir DIR] [--other KERNEL[,INITRD]] [--seconds N]";

struct MadeUp {
    control: Ipv4Addr,
}

impl Personalities for MadeUp {
    fn personality(&self, mac: Mac, _: u64, ip: Ipv4Addr) -> Result<Vec<u8>, Refused> {
        let node = u32::from(mac.0[4]) << 8 | u32::from(mac.0[5]);
        println!("personality of n{node} for {mac} at {ip}");
        let personality = Personality {
            node: NodeId(node),
            control_addr: self.control.octets(),
            control_port: 7117,
            http_port: 7180,
            tree_height: 0,
            place: [0; 4],
            key_id: 1,
            key: Key([0; 16]),
            name: format!("n{node}"),
        };
        let refused = |error| Refused {
            reason: format!("{error:?}"),
        };
        let bytes = personality.emit().map_err(refused)?;
        Ok(bytes)
    }
}

struct Print;

impl TimelineSink for Print {
    fn stage(&self, stage: Stage, record: &BootRecord) {
        let after = record.stages.get(stage).unwrap_or_default() as f64 / 1e6;
        println!("{after:8.3} s  {}  {stage}", record.mac);
    }

    fn event(&self, event: &Event) {
        println!("{}: {event}", event.severity());
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    if let Err(error) = run().await {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let (config, seconds) = arguments().ok_or(USAGE)?;
    let http = config.http;
    let personalities = Arc::new(MadeUp {
        control: config.address,
    });
    let service = Service::start(config, personalities, Arc::new(Print))?;
    let listener = tokio::net::TcpListener::bind(http).await?;
    println!("serving at {http}");
    tokio::select! {
        () = service.serve_http(listener) => {}
        () = tokio::time::sleep(Duration::from_secs(seconds)) => {}
        result = tokio::signal::ctrl_c() => result?,
    }
    print!("{}", timeline::table(&service.timeline()));
    Ok(())
}

fn arguments() -> Option<(Config, u64)> {
    let mut config = Config::new("", Ipv4Addr::UNSPECIFIED, 0, PathBuf::new());
    let mut seconds = 3600;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--interface" => config.interface = arguments.next()?,
            "--address" => {
                let text = arguments.next()?;
                let (address, prefix) = text.split_once('/')?;
                let (address, prefix) = (address.parse().ok()?, prefix.parse().ok()?);
                let rest = config;
                config = Config::new(&rest.interface, address, prefix, rest.image.clone());
                config.command_line = rest.command_line;
                config.firmware_dir = rest.firmware_dir;
                config.image_transport = rest.image_transport;
                config.proxy_dhcp = rest.proxy_dhcp;
                config.other = rest.other;
            }
            "--image" => config.image = arguments.next()?.into(),
            "--command-line" => config.command_line = arguments.next()?,
            "--firmware-dir" => config.firmware_dir = arguments.next()?.into(),
            "--tftp" => config.image_transport = ImageTransport::Tftp,
            "--proxy" => config.proxy_dhcp = true,
            "--other" => {
                let text = arguments.next()?;
                let (kernel, initrd) = match text.split_once(',') {
                    Some((kernel, initrd)) => (kernel, Some(initrd)),
                    None => (text.as_str(), None),
                };
                config.other = Some(OtherSystem {
                    kernel: kernel.into(),
                    initrd: initrd.map(Into::into),
                    command_line: config.command_line.clone(),
                });
            }
            "--seconds" => seconds = arguments.next()?.parse().ok()?,
            _ => return None,
        }
    }
    Some((config, seconds))
}
