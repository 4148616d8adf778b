//! What kind of client a request comes from, and what it is to load.

use super::packet::Request;
use super::{DOCTOR_CLASS, KERNEL_CLASS};
use crate::config::{Config, ImageTransport};
use crate::mac::Mac;
use crate::timeline::Firmware;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Name of the boot image, in TFTP and as the last part of its URL (UEFI HTTP Boot wants `.efi`).
pub const IMAGE_NAME: &str = "hearth.efi";
/// Name of the iPXE script in TFTP.
pub const SCRIPT_NAME: &str = "boot.ipxe";
/// Network boot program for BIOS ROMs that are not iPXE.
pub const BIOS_NBP_NAME: &str = "undionly.kpxe";

/// Feature number in option 175 by which iPXE says that it speaks HTTP.
const IPXE_FEATURE_HTTP: u8 = 0x13;

/// Option in option 175 by which iPXE tells the card that it boots from: the kind of bus, and on
/// PCI vendor and device, big-endian.
const IPXE_CARD: u8 = 0xb1;
const IPXE_CARD_IS_PCI: u8 = 1;

/// Who asks. "Architecture" is the number of DHCP option 93 (RFC 4578 and the IANA list).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// iPXE, in BIOS or UEFI, built with HTTP or without.
    Ipxe { http: bool },
    /// BIOS network ROM.
    BiosPxe,
    /// 64-bit UEFI network boot by TFTP.
    UefiPxe,
    /// 64-bit UEFI HTTP Boot.
    UefiHttp,
    /// Firmware for which there is no image.
    Unsupported { architecture: u16 },
    /// A Hearth kernel.
    Kernel,
    /// This project's doctor, looking for other servers.
    Doctor,
    /// Anything else, for example an installed system: it gets an address and no boot file.
    Other,
}

impl Client {
    /// Recognises the client from its options.
    pub fn of(request: &Request) -> Client {
        let class = request.vendor_class.as_slice();
        if class.starts_with(KERNEL_CLASS.as_bytes()) {
            return Client::Kernel;
        }
        if class.starts_with(DOCTOR_CLASS.as_bytes()) {
            return Client::Doctor;
        }
        if let Some(options) = &request.ipxe {
            return Client::Ipxe {
                http: has_feature(options, IPXE_FEATURE_HTTP),
            };
        }
        if request.user_class.windows(4).any(|part| part == b"iPXE") {
            // Chained with its own options hidden: every build of that kind speaks HTTP.
            return Client::Ipxe { http: true };
        }
        let firmware = class.starts_with(b"PXEClient") || class.starts_with(b"HTTPClient");
        if !firmware && request.architecture.is_none() {
            return Client::Other;
        }
        match request
            .architecture
            .or_else(|| architecture_in_class(class))
        {
            None | Some(0) => Client::BiosPxe,
            Some(7 | 9) => Client::UefiPxe,
            Some(16) => Client::UefiHttp,
            Some(architecture) => Client::Unsupported { architecture },
        }
    }

    /// The name in the timeline, for clients that take part in a boot.
    pub fn firmware(self) -> Option<Firmware> {
        match self {
            Client::Ipxe { .. } => Some(Firmware::Ipxe),
            Client::BiosPxe => Some(Firmware::BiosPxe),
            Client::UefiPxe => Some(Firmware::UefiPxe),
            Client::UefiHttp => Some(Firmware::UefiHttp),
            Client::Kernel => Some(Firmware::Direct),
            Client::Unsupported { .. } | Client::Doctor | Client::Other => None,
        }
    }

    /// What this client loads next: a TFTP path or a URL.
    pub fn boot_file(self, mac: Mac, places: &Places) -> Option<String> {
        match self {
            Client::Ipxe { http } if http && places.transport == ImageTransport::Http => {
                Some(places.script_url(mac))
            }
            Client::Ipxe { .. } => Some(format!("tftp://{}/{SCRIPT_NAME}", places.address)),
            Client::BiosPxe => Some(BIOS_NBP_NAME.to_owned()),
            Client::UefiPxe => Some(IMAGE_NAME.to_owned()),
            Client::UefiHttp => Some(places.image_url(mac)),
            Client::Kernel | Client::Unsupported { .. } | Client::Doctor | Client::Other => None,
        }
    }
}

/// Where files are, as clients name them.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    pub address: Ipv4Addr,
    pub http: SocketAddrV4,
    pub transport: ImageTransport,
}

impl Places {
    /// The places of a configuration.
    pub fn of(config: &Config) -> Places {
        Places {
            address: config.address,
            http: config.http,
            transport: config.image_transport,
        }
    }

    /// URL of a machine's iPXE script.
    pub fn script_url(&self, mac: Mac) -> String {
        format!("http://{}/boot/ipxe?mac={mac}", self.http)
    }

    /// URL of the image, with the machine's address in it so that the download can be followed.
    pub fn image_url(&self, mac: Mac) -> String {
        self.machine_url(mac, IMAGE_NAME)
    }

    /// URL of a file, with the machine's address in it.
    pub fn machine_url(&self, mac: Mac, file: &str) -> String {
        let mac = mac.to_string().replace(':', "-");
        format!("http://{}/boot/{mac}/{file}", self.http)
    }

    /// TFTP URL of the image, as iPXE writes it.
    pub fn image_tftp_url(&self) -> String {
        format!("tftp://{}/{IMAGE_NAME}", self.address)
    }
}

/// `PXEClient:Arch:00007:UNDI:003016`: some firmware sends no option 93 of its own.
fn architecture_in_class(class: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(class).ok()?;
    let mut parts = text.split(':');
    parts.find(|part| *part == "Arch")?;
    parts.next()?.parse().ok()
}

/// PCI vendor and device of the card that iPXE boots from, if it tells.
pub fn card_of(request: &Request) -> Option<(u16, u16)> {
    match ipxe_option(request.ipxe.as_deref()?, IPXE_CARD)? {
        [IPXE_CARD_IS_PCI, v1, v0, d1, d0] => Some((
            u16::from_be_bytes([*v1, *v0]),
            u16::from_be_bytes([*d1, *d0]),
        )),
        _ => None,
    }
}

/// Whether iPXE's encapsulated options contain `feature` with a value other than zero.
fn has_feature(options: &[u8], feature: u8) -> bool {
    ipxe_option(options, feature).is_some_and(|value| value.iter().any(|byte| *byte != 0))
}

/// The value of one of iPXE's encapsulated options.
fn ipxe_option(options: &[u8], wanted: u8) -> Option<&[u8]> {
    let mut rest = options;
    while let [code, length, after @ ..] = rest {
        let (value, after) = after.split_at_checked(usize::from(*length))?;
        if *code == wanted {
            return Some(value);
        }
        rest = after;
    }
    None
}
