//! What replies contain.

use super::client::{Client, Places};
use super::option;
use super::packet::Request;
use crate::config::Config;
use crate::mac::Mac;
use dhcproto::Encodable;
use dhcproto::v4::{DhcpOption, Flags, Message, MessageType, Opcode, OptionCode, UnknownOption};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Shortest packet sent: some BIOS ROMs drop what is shorter than a BOOTP packet (RFC 951).
const MIN_PACKET_BYTES: usize = 300;
/// Longest `file` header field that still ends in a zero byte.
const MAX_FILE_BYTES: usize = 127;
/// iPXE's "no-pxedhcp" setting, in option 175: do not wait two seconds for a proxy-DHCP server.
const IPXE_NO_PROXY: [u8; 3] = [176, 1, 1];
/// PXE discovery control, in option 43: no boot server discovery, take the boot file named here
/// (PXE 2.1, 2.4).
const PXE_USE_BOOT_FILE: [u8; 4] = [6, 1, 0b1000, 255];

const CLIENT_PORT: u16 = 68;
const RELAY_PORT: u16 = 67;

/// The settings that every reply draws on.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub places: Places,
    pub netmask: Ipv4Addr,
    pub broadcast: Ipv4Addr,
    pub gateway: Option<Ipv4Addr>,
    pub lease_seconds: u32,
    pub proxy: bool,
}

impl Settings {
    pub(super) fn of(config: &Config) -> Settings {
        let netmask = config.netmask();
        Settings {
            places: Places::of(config),
            netmask,
            broadcast: Ipv4Addr::from_bits(config.address.to_bits() | !netmask.to_bits()),
            gateway: config.gateway,
            lease_seconds: u32::try_from(config.lease_time.as_secs()).unwrap_or(u32::MAX),
            proxy: config.proxy_dhcp,
        }
    }
}

/// What the server decided; the rest of a reply follows from the request.
#[derive(Clone, Debug)]
pub(super) struct Decision<'a> {
    pub kind: MessageType,
    /// The address given out; unspecified for INFORM, NAK and proxy replies.
    pub address: Ipv4Addr,
    pub node: Option<u32>,
    pub personality: Option<&'a [u8]>,
    /// Text for a person at the machine's console or in its log (option 56).
    pub message: Option<String>,
}

impl Decision<'_> {
    pub(super) fn nak(message: String) -> Decision<'static> {
        Decision {
            kind: MessageType::Nak,
            address: Ipv4Addr::UNSPECIFIED,
            node: None,
            personality: None,
            message: Some(message),
        }
    }
}

/// Encodes the reply to `request`.
pub(super) fn encode(
    settings: &Settings,
    request: &Request,
    client: Client,
    decision: Decision<'_>,
) -> Vec<u8> {
    let nak = decision.kind == MessageType::Nak;
    let server = settings.places.address;
    let ciaddr = if nak {
        Ipv4Addr::UNSPECIFIED
    } else {
        request.ciaddr
    };
    let siaddr = if nak { Ipv4Addr::UNSPECIFIED } else { server };
    let mut message = Message::new_with_id(
        request.xid,
        ciaddr,
        decision.address,
        siaddr,
        request.giaddr,
        &request.mac.0,
    );
    message.set_opcode(Opcode::BootReply);
    let flags = Flags::default();
    // A relay must broadcast a NAK (RFC 2131, 4.3.2): the client's address is not to be trusted.
    let broadcast = request.broadcast || (nak && !request.giaddr.is_unspecified());
    message.set_flags(if broadcast {
        flags.set_broadcast()
    } else {
        flags
    });
    let options = message.opts_mut();
    options.insert(DhcpOption::MessageType(decision.kind));
    options.insert(DhcpOption::ServerIdentifier(server));
    if let Some(text) = decision.message {
        options.insert(DhcpOption::Message(text.chars().take(200).collect()));
    }
    if !nak {
        if !settings.proxy {
            insert_network(&mut message, settings, &decision.address, decision.node);
        }
        insert_boot(&mut message, settings, request, client);
        if let Some(personality) = decision.personality {
            insert_raw(&mut message, option::PERSONALITY, personality.to_vec());
        }
    }
    let mut bytes = message.to_vec().expect("a reply built here always encodes");
    if bytes.len() < MIN_PACKET_BYTES {
        bytes.resize(MIN_PACKET_BYTES, 0);
    }
    bytes
}

/// Address, mask and times.
fn insert_network(
    message: &mut Message,
    settings: &Settings,
    address: &Ipv4Addr,
    node: Option<u32>,
) {
    let options = message.opts_mut();
    options.insert(DhcpOption::SubnetMask(settings.netmask));
    options.insert(DhcpOption::BroadcastAddr(settings.broadcast));
    if let Some(gateway) = settings.gateway {
        options.insert(DhcpOption::Router(vec![gateway]));
    }
    if let Some(node) = node {
        options.insert(DhcpOption::Hostname(format!("n{node}")));
    }
    if !address.is_unspecified() {
        let seconds = settings.lease_seconds;
        options.insert(DhcpOption::AddressLeaseTime(seconds));
        options.insert(DhcpOption::Renewal(seconds / 2));
        options.insert(DhcpOption::Rebinding(seconds - seconds / 8));
    }
}

/// Boot file, and the marks by which each kind of firmware recognises an answer meant for it.
fn insert_boot(message: &mut Message, settings: &Settings, request: &Request, client: Client) {
    let Some(file) = client.boot_file(request.mac, &settings.places) else {
        return;
    };
    if file.len() <= MAX_FILE_BYTES {
        message.set_fname_str(&file);
    }
    let options = message.opts_mut();
    options.insert(DhcpOption::BootfileName(file.into_bytes()));
    match client {
        Client::BiosPxe | Client::UefiPxe => {
            options.insert(DhcpOption::ClassIdentifier(b"PXEClient".to_vec()));
            options.insert(DhcpOption::VendorExtensions(PXE_USE_BOOT_FILE.to_vec()));
        }
        Client::UefiHttp => {
            options.insert(DhcpOption::ClassIdentifier(b"HTTPClient".to_vec()));
        }
        Client::Ipxe { .. } => {
            if settings.proxy {
                // iPXE takes an offer without an address only from a PXE server.
                options.insert(DhcpOption::ClassIdentifier(b"PXEClient".to_vec()));
                options.insert(DhcpOption::VendorExtensions(PXE_USE_BOOT_FILE.to_vec()));
            } else {
                insert_raw(message, option::IPXE, IPXE_NO_PROXY.to_vec());
            }
        }
        Client::Kernel | Client::Unsupported { .. } | Client::Doctor | Client::Other => {}
    }
    if let Some(id) = &request.machine_id {
        let id = DhcpOption::ClientMachineIdentifier(id.clone());
        message.opts_mut().insert(id);
    }
}

fn insert_raw(message: &mut Message, code: u8, data: Vec<u8>) {
    let option = UnknownOption::new(OptionCode::from(code), data);
    message.opts_mut().insert(DhcpOption::Unknown(option));
}

/// Where a reply goes (RFC 2131, 4.1), except that a client without an address is always answered
/// by broadcast: unicast to it would need a neighbour entry, and firmware takes either.
pub(super) fn destination(request: &Request, kind: MessageType) -> SocketAddrV4 {
    if !request.giaddr.is_unspecified() {
        SocketAddrV4::new(request.giaddr, RELAY_PORT)
    } else if kind != MessageType::Nak && !request.ciaddr.is_unspecified() {
        SocketAddrV4::new(request.ciaddr, CLIENT_PORT)
    } else {
        SocketAddrV4::new(Ipv4Addr::BROADCAST, CLIENT_PORT)
    }
}
/// The doctor's DISCOVER: from a made-up machine, answered by every server but this project's.
pub(crate) fn doctor_discover(xid: u32, mac: Mac) -> Vec<u8> {
    let none = Ipv4Addr::UNSPECIFIED;
    let mut message = Message::new_with_id(xid, none, none, none, none, &mac.0);
    message.set_flags(Flags::default().set_broadcast());
    let options = message.opts_mut();
    options.insert(DhcpOption::MessageType(MessageType::Discover));
    let class = super::DOCTOR_CLASS.as_bytes().to_vec();
    options.insert(DhcpOption::ClassIdentifier(class));
    options.insert(DhcpOption::ParameterRequestList(vec![
        OptionCode::SubnetMask,
        OptionCode::ServerIdentifier,
    ]));
    let mut bytes = message
        .to_vec()
        .expect("a request built here always encodes");
    bytes.resize(bytes.len().max(MIN_PACKET_BYTES), 0);
    bytes
}
