//! Whole exchanges with the DHCP server, packet by packet.

use super::client::IMAGE_NAME;
use super::{Notice, Port, Reply, Server, option};
use crate::config::{Config, FixedLease, ImageTransport, Leases};
use crate::event::Event;
use crate::hooks::{Personalities, Refused};
use crate::mac::Mac;
use crate::timeline::Firmware;
use dhcproto::v4::{DhcpOption, Message, MessageType, OptionCode, UnknownOption};
use dhcproto::{Decodable, Decoder, Encodable};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Mutex;
use std::time::Duration;

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 117, 0, 1);
const NONE: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
const T0: Duration = Duration::ZERO;

/// Counts what it is asked; refuses machines whose MAC ends in 0xff.
#[derive(Default)]
struct Fake {
    asked: Mutex<Vec<(Mac, u64, Ipv4Addr)>>,
}

impl Personalities for Fake {
    fn personality(&self, mac: Mac, boot_epoch: u64, ip: Ipv4Addr) -> Result<Vec<u8>, Refused> {
        self.asked.lock().unwrap().push((mac, boot_epoch, ip));
        if mac.0[5] == 0xff {
            return Err(Refused {
                reason: "not in the cluster".into(),
            });
        }
        Ok(vec![mac.0[5], boot_epoch as u8])
    }
}

fn config() -> Config {
    Config::new("br0", SERVER, 16, "hearth.efi".into())
}

fn mac(n: u8) -> Mac {
    Mac([0x52, 0x54, 0, 7, 0, n])
}

/// What a client is, as its options say it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum As {
    Bios,
    Ipxe,
    IpxeWithoutHttp,
    UefiPxe,
    UefiHttp,
    Kernel(u64),
    Os,
    Arm,
}

fn raw(code: u8, data: Vec<u8>) -> DhcpOption {
    DhcpOption::Unknown(UnknownOption::new(OptionCode::from(code), data))
}

fn message(mac: Mac, client: As, kind: MessageType) -> Message {
    let mut message = Message::new_with_id(u32::from(mac.0[5]), NONE, NONE, NONE, NONE, &mac.0);
    let options = message.opts_mut();
    options.insert(DhcpOption::MessageType(kind));
    let class = |text: &str| DhcpOption::ClassIdentifier(text.as_bytes().to_vec());
    let architecture = |number: u16| DhcpOption::ClientSystemArchitecture(number.into());
    match client {
        As::Bios => {
            options.insert(class("PXEClient:Arch:00000:UNDI:002001"));
            options.insert(architecture(0));
            options.insert(DhcpOption::ClientMachineIdentifier(vec![0; 17]));
        }
        As::Ipxe | As::IpxeWithoutHttp => {
            options.insert(class("PXEClient:Arch:00000:UNDI:002001"));
            options.insert(architecture(0));
            options.insert(DhcpOption::ClientIdentifier([&[1], &mac.0[..]].concat()));
            let http = if client == As::Ipxe { 0x13 } else { 0x14 };
            options.insert(raw(option::IPXE, vec![0xb1, 1, 0, http, 1, 1]));
        }
        As::UefiPxe => {
            options.insert(class("PXEClient:Arch:00007:UNDI:003016"));
            options.insert(architecture(7));
        }
        As::UefiHttp => {
            options.insert(class("HTTPClient:Arch:00016:UNDI:003016"));
            options.insert(architecture(16));
        }
        As::Kernel(epoch) => {
            options.insert(class("hearth-node:0.1.0"));
            options.insert(raw(option::BOOT_EPOCH, epoch.to_be_bytes().to_vec()));
        }
        As::Os => {}
        As::Arm => {
            options.insert(class("PXEClient:Arch:00011:UNDI:003000"));
            options.insert(architecture(11));
        }
    }
    message
}

struct Bed {
    server: Server,
    personalities: Fake,
    now: Duration,
}

impl Bed {
    fn new(config: &Config) -> Bed {
        assert_eq!(config.check(), Ok(()));
        Bed {
            server: Server::new(config),
            personalities: Fake::default(),
            now: T0,
        }
    }

    fn send(&mut self, port: Port, message: &Message) -> Option<(Message, SocketAddrV4)> {
        let bytes = message.to_vec().unwrap();
        let from = SocketAddrV4::new(message.ciaddr(), 68);
        let reply = self
            .server
            .handle(self.now, port, from, &bytes, &self.personalities);
        let Reply { bytes, to } = reply?;
        assert!(bytes.len() >= 300);
        let answer = Message::decode(&mut Decoder::new(&bytes)).unwrap();
        assert_eq!(answer.xid(), message.xid());
        assert_eq!(answer.chaddr(), message.chaddr());
        Some((answer, to))
    }

    fn offer(&mut self, mac: Mac, client: As) -> Message {
        let (offer, to) = self
            .send(Port::Dhcp, &message(mac, client, MessageType::Discover))
            .unwrap();
        assert_eq!(offer.opts().msg_type(), Some(MessageType::Offer));
        assert_eq!(to, SocketAddrV4::new(Ipv4Addr::BROADCAST, 68));
        offer
    }

    /// DISCOVER to ACK.
    fn boot(&mut self, mac: Mac, client: As) -> Message {
        let offer = self.offer(mac, client);
        let mut request = message(mac, client, MessageType::Request);
        let options = request.opts_mut();
        options.insert(DhcpOption::RequestedIpAddress(offer.yiaddr()));
        options.insert(DhcpOption::ServerIdentifier(SERVER));
        let (ack, to) = self.send(Port::Dhcp, &request).unwrap();
        assert_eq!(ack.opts().msg_type(), Some(MessageType::Ack));
        assert_eq!(ack.yiaddr(), offer.yiaddr());
        assert_eq!(to, SocketAddrV4::new(Ipv4Addr::BROADCAST, 68));
        ack
    }

    fn notices(&mut self) -> Vec<Notice> {
        std::iter::from_fn(|| self.server.poll_notice()).collect()
    }

    fn events(&mut self) -> Vec<Event> {
        let event = |notice| {
            if let Notice::Event(event) = notice {
                Some(event)
            } else {
                None
            }
        };
        self.notices().into_iter().filter_map(event).collect()
    }
}

fn boot_file(message: &Message) -> Option<String> {
    let Some(DhcpOption::BootfileName(name)) = message.opts().get(OptionCode::BootfileName) else {
        return None;
    };
    let name = String::from_utf8(name.clone()).unwrap();
    let field = message.fname().unwrap_or_default();
    let field = field.split(|byte| *byte == 0).next();
    assert_eq!(
        field,
        Some(name.as_bytes()),
        "header field and option 67 agree"
    );
    Some(name)
}

fn unknown(message: &Message, code: u8) -> Option<Vec<u8>> {
    match message.opts().get(OptionCode::from(code)) {
        Some(DhcpOption::Unknown(option)) => Some(option.data().to_vec()),
        _ => None,
    }
}

fn vendor_class(message: &Message) -> Option<String> {
    match message.opts().get(OptionCode::ClassIdentifier) {
        Some(DhcpOption::ClassIdentifier(class)) => String::from_utf8(class.clone()).ok(),
        _ => None,
    }
}

#[test]
fn each_firmware_gets_its_boot_file() {
    let mut bed = Bed::new(&config());
    let bios = bed.boot(mac(1), As::Bios);
    assert_eq!(boot_file(&bios).as_deref(), Some("undionly.kpxe"));
    assert_eq!(bios.siaddr(), SERVER);
    assert_eq!(vendor_class(&bios).as_deref(), Some("PXEClient"));
    assert!(
        bios.opts().contains(OptionCode::ClientMachineIdentifier),
        "echoed"
    );

    let ipxe = bed.boot(mac(1), As::Ipxe);
    let script = "http://10.117.0.1:7180/boot/ipxe?mac=52:54:00:07:00:01";
    assert_eq!(boot_file(&ipxe).as_deref(), Some(script));
    assert_eq!(
        unknown(&ipxe, option::IPXE),
        Some(vec![176, 1, 1]),
        "no wait for a proxy"
    );
    let old = bed.boot(mac(1), As::IpxeWithoutHttp);
    assert_eq!(
        boot_file(&old).as_deref(),
        Some("tftp://10.117.0.1/boot.ipxe")
    );

    let uefi = bed.boot(mac(2), As::UefiPxe);
    assert_eq!(boot_file(&uefi).as_deref(), Some(IMAGE_NAME));
    let http = bed.boot(mac(3), As::UefiHttp);
    let url = "http://10.117.0.1:7180/boot/52-54-00-07-00-03/hearth.efi";
    assert_eq!(boot_file(&http).as_deref(), Some(url));
    assert_eq!(vendor_class(&http).as_deref(), Some("HTTPClient"));

    let os = bed.boot(mac(4), As::Os);
    assert_eq!(boot_file(&os), None);
    assert_eq!(vendor_class(&os), None);
}

#[test]
fn ipxe_can_be_kept_to_tftp() {
    let mut config = config();
    config.image_transport = ImageTransport::Tftp;
    let ack = Bed::new(&config).boot(mac(1), As::Ipxe);
    assert_eq!(
        boot_file(&ack).as_deref(),
        Some("tftp://10.117.0.1/boot.ipxe")
    );
}

#[test]
fn firmware_without_options_93_61_and_97_is_recognised_by_its_class() {
    let mut bed = Bed::new(&config());
    let mut discover = message(mac(1), As::UefiPxe, MessageType::Discover);
    discover
        .opts_mut()
        .remove(OptionCode::ClientSystemArchitecture);
    let (offer, _) = bed.send(Port::Dhcp, &discover).unwrap();
    assert_eq!(boot_file(&offer).as_deref(), Some(IMAGE_NAME));
}

#[test]
fn unsupported_firmware_is_an_event_and_no_answer() {
    let mut bed = Bed::new(&config());
    let discover = message(mac(1), As::Arm, MessageType::Discover);
    assert_eq!(bed.send(Port::Dhcp, &discover), None);
    assert_eq!(
        bed.events(),
        [Event::UnsupportedFirmware {
            mac: mac(1),
            architecture: 11
        }]
    );
    // Firmware repeats itself; the event does not.
    assert_eq!(bed.send(Port::Dhcp, &discover), None);
    assert_eq!(bed.events(), []);
    bed.now += Duration::from_secs(60);
    assert_eq!(bed.send(Port::Dhcp, &discover), None);
    assert_eq!(bed.events().len(), 1);
}

/// A machine whose card has no driver loads nothing, and its timeline says why.
#[test]
fn a_card_without_a_driver_is_an_event_and_no_answer() {
    for proxy_dhcp in [false, true] {
        let mut config = config();
        config.proxy_dhcp = proxy_dhcp;
        config.drives = |vendor, device| (vendor, device) == (0x8086, 0x100e);
        let mut bed = Bed::new(&config);
        let mut discover = message(mac(1), As::Ipxe, MessageType::Discover);
        let mut card = |ids: [u8; 4]| {
            let told = [&[0x13, 1, 1, 0xb1, 5, 1], &ids[..]].concat();
            discover.opts_mut().insert(raw(option::IPXE, told));
            bed.send(Port::Dhcp, &discover)
        };
        assert_eq!(card([0x80, 0x86, 0x15, 0x72]), None);
        assert!(card([0x80, 0x86, 0x10, 0x0e]).is_some());
        let event = Event::NoDriver {
            mac: mac(1),
            vendor: 0x8086,
            device: 0x1572,
        };
        assert!(event.to_string().contains("no driver for 8086:1572"));
        let asked = Notice::Asked {
            mac: mac(1),
            firmware: Firmware::Ipxe,
            boot_epoch: None,
        };
        // First that it asked: only then is there a timeline to write into.
        assert_eq!(bed.notices(), [asked.clone(), Notice::Event(event), asked]);

        // Another system has drivers of its own.
        config.other = Some(crate::config::OtherSystem {
            kernel: "vmlinuz".into(),
            initrd: None,
            command_line: String::new(),
        });
        let mut bed = Bed::new(&config);
        let told = vec![0x13, 1, 1, 0xb1, 5, 1, 0x80, 0x86, 0x15, 0x72];
        discover.opts_mut().insert(raw(option::IPXE, told));
        assert!(bed.send(Port::Dhcp, &discover).is_some());
    }
}

/// The load the service is made for: 64 machines switched on together, every packet of one
/// step before any of the next, through firmware, iPXE and kernel.
#[test]
fn sixty_four_machines_keep_one_address_each() {
    let mut bed = Bed::new(&config());
    let mut addresses = BTreeSet::new();
    for client in [As::Bios, As::Ipxe, As::Kernel(9)] {
        let offers: Vec<Message> = (0..64).map(|n| bed.offer(mac(n), client)).collect();
        for (n, offer) in (0..64).zip(offers) {
            let mut request = message(mac(n), client, MessageType::Request);
            let options = request.opts_mut();
            options.insert(DhcpOption::RequestedIpAddress(offer.yiaddr()));
            options.insert(DhcpOption::ServerIdentifier(SERVER));
            // Every packet twice, as on a wire with retransmissions.
            let first = bed.send(Port::Dhcp, &request).unwrap();
            assert_eq!(bed.send(Port::Dhcp, &request).unwrap(), first);
            assert_eq!(first.0.yiaddr(), offer.yiaddr());
            addresses.insert((n, offer.yiaddr()));
            if client == As::Kernel(9) {
                assert_eq!(unknown(&first.0, option::PERSONALITY), Some(vec![n, 9]));
            }
        }
        bed.now += Duration::from_secs(2);
    }
    assert_eq!(
        addresses.len(),
        64,
        "one address for each machine in all three phases"
    );
    let distinct: BTreeSet<_> = addresses.iter().map(|(_, address)| address).collect();
    assert_eq!(distinct.len(), 64);
    assert!(!distinct.contains(&SERVER));
    assert_eq!(
        bed.personalities.asked.lock().unwrap().len(),
        64,
        "asked once for each machine"
    );
    assert_eq!(bed.server.counters().naks, 0);
    assert_eq!(bed.server.counters().acks, 64 * 2 * 3);
}

#[test]
fn a_personality_is_given_until_the_node_has_joined() {
    let mut bed = Bed::new(&config());
    let ack = bed.boot(mac(1), As::Kernel(7));
    assert_eq!(unknown(&ack, option::PERSONALITY), Some(vec![1, 7]));
    assert!(bed.notices().contains(&Notice::Personality {
        mac: mac(1),
        boot_epoch: 7
    }));
    let again = bed.boot(mac(1), As::Kernel(7));
    assert_eq!(unknown(&again, option::PERSONALITY), Some(vec![1, 7]));
    assert_eq!(bed.personalities.asked.lock().unwrap().len(), 1);
    bed.notices();

    bed.server.joined(mac(1), 7);
    let refused = bed.boot(mac(1), As::Kernel(7));
    assert_eq!(unknown(&refused, option::PERSONALITY), None);
    let text = refused.opts().get(OptionCode::Message);
    assert!(matches!(text, Some(DhcpOption::Message(text)) if text.contains("in use")));
    let events = bed.events();
    assert!(
        matches!(
            &events[..],
            [Event::PersonalityRefused { boot_epoch: 7, .. }]
        ),
        "{events:?}"
    );

    // The machine boots again: another epoch, another personality.
    let next = bed.boot(mac(1), As::Kernel(8));
    assert_eq!(unknown(&next, option::PERSONALITY), Some(vec![1, 8]));
    assert_eq!(bed.personalities.asked.lock().unwrap().len(), 2);
}

#[test]
fn an_offer_carries_no_personality_and_a_renewal_neither() {
    let mut bed = Bed::new(&config());
    let offer = bed.offer(mac(1), As::Kernel(7));
    assert_eq!(unknown(&offer, option::PERSONALITY), None);
    let address = bed.boot(mac(1), As::Kernel(7)).yiaddr();
    bed.server.joined(mac(1), 7);
    bed.notices();
    let mut renewal = message(mac(1), As::Kernel(7), MessageType::Request);
    renewal.set_ciaddr(address);
    let (ack, to) = bed.send(Port::Dhcp, &renewal).unwrap();
    assert_eq!(ack.opts().msg_type(), Some(MessageType::Ack));
    assert_eq!(
        to,
        SocketAddrV4::new(address, 68),
        "a client with an address gets unicast"
    );
    assert_eq!(unknown(&ack, option::PERSONALITY), None);
    assert_eq!(bed.events(), [], "a renewal is no attempt on the key");
}

#[test]
fn a_refusal_reaches_the_machine_and_the_operator() {
    let mut bed = Bed::new(&config());
    let ack = bed.boot(mac(0xff), As::Kernel(7));
    assert_eq!(unknown(&ack, option::PERSONALITY), None);
    let text = ack.opts().get(OptionCode::Message);
    assert_eq!(
        text,
        Some(&DhcpOption::Message("not in the cluster".into()))
    );
    let events = bed.events();
    assert!(
        events
            .iter()
            .any(|event| event.to_string().contains("not in the cluster"))
    );
}

#[test]
fn fixed_leases_serve_only_the_machines_listed() {
    let mut config = config();
    let address = Ipv4Addr::new(10, 117, 1, 5);
    config.leases = Leases::Fixed(vec![FixedLease {
        mac: mac(5),
        address,
        node: 5,
    }]);
    let mut bed = Bed::new(&config);
    let ack = bed.boot(mac(5), As::Ipxe);
    assert_eq!(ack.yiaddr(), address);
    assert_eq!(
        ack.opts().get(OptionCode::Hostname),
        Some(&DhcpOption::Hostname("n5".into()))
    );
    let addressed = Notice::Addressed {
        mac: mac(5),
        address,
        node: Some(5),
    };
    assert!(bed.notices().contains(&addressed));
    assert_eq!(
        bed.send(
            Port::Dhcp,
            &message(mac(6), As::Ipxe, MessageType::Discover)
        ),
        None
    );
    assert_eq!(bed.events(), [Event::UnknownMachine { mac: mac(6) }]);
}

#[test]
fn wrong_addresses_get_a_nak_and_other_servers_offers_none() {
    let mut bed = Bed::new(&config());
    let address = bed.boot(mac(1), As::Os).yiaddr();
    // A machine that comes from another network, rebooting (INIT-REBOOT).
    let mut reboot = message(mac(2), As::Os, MessageType::Request);
    let elsewhere = DhcpOption::RequestedIpAddress(Ipv4Addr::new(192, 168, 1, 7));
    reboot.opts_mut().insert(elsewhere);
    let (nak, to) = bed.send(Port::Dhcp, &reboot).unwrap();
    assert_eq!(nak.opts().msg_type(), Some(MessageType::Nak));
    assert_eq!(nak.yiaddr(), NONE);
    assert_eq!(to, SocketAddrV4::new(Ipv4Addr::BROADCAST, 68));
    // Somebody else's address, renewing: the NAK must not go to the owner.
    let mut renewal = message(mac(2), As::Os, MessageType::Request);
    renewal.set_ciaddr(address);
    let (nak, to) = bed.send(Port::Dhcp, &renewal).unwrap();
    assert_eq!(nak.opts().msg_type(), Some(MessageType::Nak));
    assert_eq!(to, SocketAddrV4::new(Ipv4Addr::BROADCAST, 68));
    // The client took another server's offer.
    bed.notices();
    let mut chosen = message(mac(3), As::Ipxe, MessageType::Request);
    let other = Ipv4Addr::new(10, 117, 0, 2);
    chosen
        .opts_mut()
        .insert(DhcpOption::ServerIdentifier(other));
    chosen
        .opts_mut()
        .insert(DhcpOption::RequestedIpAddress(address));
    assert_eq!(bed.send(Port::Dhcp, &chosen), None);
    assert_eq!(
        bed.events(),
        [Event::ForeignServer {
            server: other,
            mac: Some(mac(3))
        }]
    );
}

#[test]
fn a_machine_keeps_its_address_over_a_restart_of_the_service() {
    let address = Bed::new(&config()).boot(mac(1), As::Kernel(1)).yiaddr();
    let mut bed = Bed::new(&config());
    let mut renewal = message(mac(1), As::Kernel(1), MessageType::Request);
    renewal.set_ciaddr(address);
    let (ack, _) = bed.send(Port::Dhcp, &renewal).unwrap();
    assert_eq!(ack.opts().msg_type(), Some(MessageType::Ack));
    assert_eq!(bed.offer(mac(1), As::Ipxe).yiaddr(), address);
    assert_eq!(
        Bed::new(&config()).offer(mac(1), As::Ipxe).yiaddr(),
        address,
        "computed again"
    );
}

#[test]
fn an_empty_range_is_an_event() {
    let mut config = config();
    let first = Ipv4Addr::new(10, 117, 0, 1);
    config.leases = Leases::Range {
        first,
        last: Ipv4Addr::new(10, 117, 0, 3),
    };
    let mut bed = Bed::new(&config);
    bed.boot(mac(1), As::Ipxe);
    bed.boot(mac(2), As::Ipxe);
    bed.notices();
    assert_eq!(
        bed.send(
            Port::Dhcp,
            &message(mac(3), As::Ipxe, MessageType::Discover)
        ),
        None
    );
    assert_eq!(
        bed.events(),
        [Event::LeasesExhausted {
            mac: mac(3),
            size: 2
        }]
    );
}

#[test]
fn decline_and_release() {
    let mut bed = Bed::new(&config());
    let address = bed.boot(mac(1), As::Os).yiaddr();
    bed.notices();
    let mut decline = message(mac(1), As::Os, MessageType::Decline);
    decline
        .opts_mut()
        .insert(DhcpOption::RequestedIpAddress(address));
    assert_eq!(bed.send(Port::Dhcp, &decline), None);
    assert_eq!(
        bed.events(),
        [Event::AddressDeclined {
            mac: mac(1),
            address
        }]
    );
    let next = bed.boot(mac(1), As::Os).yiaddr();
    assert_ne!(next, address);
    let mut release = message(mac(1), As::Os, MessageType::Release);
    release.set_ciaddr(next);
    assert_eq!(bed.send(Port::Dhcp, &release), None);
    assert_eq!(bed.boot(mac(1), As::Os).yiaddr(), next);
}

#[test]
fn a_relay_of_this_network_gets_the_answer_and_others_none() {
    let mut bed = Bed::new(&config());
    let mut discover = message(mac(1), As::Ipxe, MessageType::Discover);
    let relay = Ipv4Addr::new(10, 117, 0, 9);
    discover.set_giaddr(relay);
    let (offer, to) = bed.send(Port::Dhcp, &discover).unwrap();
    assert_eq!(offer.giaddr(), relay);
    assert_eq!(to, SocketAddrV4::new(relay, 67));
    discover.set_giaddr(Ipv4Addr::new(192, 168, 0, 9));
    assert_eq!(bed.send(Port::Dhcp, &discover), None);
}

#[test]
fn a_whole_boot_goes_through_the_relays_address() {
    let mut bed = Bed::new(&config());
    let relay = Ipv4Addr::new(10, 117, 0, 9);
    let mut ask = |client, kind, more: &[DhcpOption]| {
        let mut message = message(mac(1), client, kind);
        message.set_giaddr(relay);
        for option in more {
            message.opts_mut().insert(option.clone());
        }
        let (reply, to) = bed.send(Port::Dhcp, &message).unwrap();
        assert_eq!((reply.giaddr(), to), (relay, SocketAddrV4::new(relay, 67)));
        reply
    };
    let offer = ask(As::Kernel(7), MessageType::Discover, &[]);
    let wanted = DhcpOption::RequestedIpAddress(offer.yiaddr());
    let server = DhcpOption::ServerIdentifier(SERVER);
    let ack = ask(As::Kernel(7), MessageType::Request, &[wanted, server]);
    assert_eq!(ack.opts().msg_type(), Some(MessageType::Ack));
    assert_eq!(unknown(&ack, option::PERSONALITY), Some(vec![1, 7]));
    assert!(!ack.flags().broadcast(), "the relay knows the machine");
    // The machine's address is not to be trusted: the relay is told to broadcast.
    let other = DhcpOption::RequestedIpAddress(Ipv4Addr::new(10, 117, 9, 9));
    let nak = ask(As::Os, MessageType::Request, &[other]);
    assert_eq!(nak.opts().msg_type(), Some(MessageType::Nak));
    assert!(nak.flags().broadcast());
}

#[test]
fn a_proxy_answers_relays_of_other_networks_too() {
    let mut bed = Bed::new(&Config {
        proxy_dhcp: true,
        ..config()
    });
    let mut discover = message(mac(1), As::UefiPxe, MessageType::Discover);
    let relay = Ipv4Addr::new(192, 168, 0, 9);
    discover.set_giaddr(relay);
    let (offer, to) = bed.send(Port::Dhcp, &discover).unwrap();
    assert_eq!((offer.yiaddr(), to), (NONE, SocketAddrV4::new(relay, 67)));
    assert!(boot_file(&offer).is_some());
}

#[test]
fn the_doctor_gets_no_answer() {
    let mut bed = Bed::new(&config());
    let bytes = super::doctor_discover(7, mac(1));
    let from = SocketAddrV4::new(NONE, 68);
    let reply = bed
        .server
        .handle(T0, Port::Dhcp, from, &bytes, &bed.personalities);
    assert_eq!(reply, None);
    assert_eq!(bed.server.counters().malformed, 0, "it is a valid packet");
    assert_eq!(bed.notices(), []);
}

#[test]
fn as_proxy_it_names_boot_files_and_gives_no_address() {
    let mut config = config();
    config.proxy_dhcp = true;
    let mut bed = Bed::new(&config);
    let discover = message(mac(1), As::UefiPxe, MessageType::Discover);
    let (offer, to) = bed.send(Port::Dhcp, &discover).unwrap();
    assert_eq!(offer.yiaddr(), NONE);
    assert_eq!(to, SocketAddrV4::new(Ipv4Addr::BROADCAST, 68));
    assert_eq!(vendor_class(&offer).as_deref(), Some("PXEClient"));
    assert_eq!(boot_file(&offer).as_deref(), Some(IMAGE_NAME));
    assert!(!offer.opts().contains(OptionCode::AddressLeaseTime));
    assert!(!offer.opts().contains(OptionCode::SubnetMask));

    // On port 4011 the machine has an address and is answered where it asks from.
    let address = Ipv4Addr::new(10, 117, 3, 3);
    let mut request = message(mac(1), As::UefiPxe, MessageType::Request);
    request.set_ciaddr(address);
    let (ack, to) = bed.send(Port::Proxy, &request).unwrap();
    assert_eq!(ack.opts().msg_type(), Some(MessageType::Ack));
    assert_eq!(to, SocketAddrV4::new(address, 68));
    assert_eq!(boot_file(&ack).as_deref(), Some(IMAGE_NAME));

    // A request to the site's server is not answered, but it tells the machine's address.
    bed.notices();
    let mut request = message(mac(1), As::UefiPxe, MessageType::Request);
    request
        .opts_mut()
        .insert(DhcpOption::RequestedIpAddress(address));
    assert_eq!(bed.send(Port::Dhcp, &request), None);
    assert_eq!(
        bed.notices(),
        [Notice::Addressed {
            mac: mac(1),
            address,
            node: None
        }]
    );

    // Machines that do not boot are none of its business.
    assert_eq!(bed.send(Port::Dhcp, &request), None);
    assert_eq!(
        bed.send(Port::Dhcp, &message(mac(2), As::Os, MessageType::Discover)),
        None
    );
    assert_eq!(bed.events(), []);

    // The kernel asks for its personality when it has its address.
    let mut inform = message(mac(1), As::Kernel(3), MessageType::Inform);
    inform.set_ciaddr(address);
    let (ack, to) = bed.send(Port::Dhcp, &inform).unwrap();
    assert_eq!(unknown(&ack, option::PERSONALITY), Some(vec![1, 3]));
    assert_eq!(to, SocketAddrV4::new(address, 68));
    // At port 4011 it is answered where it asks from, with the same.
    let (ack, _) = bed.send(Port::Proxy, &inform).unwrap();
    assert_eq!(unknown(&ack, option::PERSONALITY), Some(vec![1, 3]));
    assert_eq!(
        *bed.personalities.asked.lock().unwrap(),
        [(mac(1), 3, address)]
    );
}

#[test]
fn the_first_asker_names_the_firmware() {
    let mut bed = Bed::new(&config());
    bed.offer(mac(1), As::Ipxe);
    let asked = Notice::Asked {
        mac: mac(1),
        firmware: Firmware::Ipxe,
        boot_epoch: None,
    };
    assert_eq!(bed.notices(), [asked]);
}

proptest! {
    /// Any change to a valid packet, and any packet at all, leaves a server that serves.
    #[test]
    fn hostile_packets_do_no_harm(
        noise in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..400), 0..8),
        edits in prop::collection::vec((0usize..400, any::<u8>()), 0..60),
        kind in 0u8..10,
        epoch in any::<u64>(),
        proxy in any::<bool>(),
    ) {
        let mut config = config();
        config.proxy_dhcp = proxy;
        let mut server = Server::new(&config);
        let fake = Fake::default();
        let from = SocketAddrV4::new(Ipv4Addr::new(10, 117, 9, 9), 68);
        let mut valid = message(mac(1), As::Kernel(epoch), MessageType::from(kind));
        valid.opts_mut().insert(DhcpOption::RequestedIpAddress(Ipv4Addr::new(10, 117, 9, 9)));
        let mut packets = noise;
        packets.push(valid.to_vec().unwrap());
        for (at, value) in edits {
            let mut packet = valid.to_vec().unwrap();
            if let Some(byte) = packet.get_mut(at) {
                *byte = value;
            }
            packets.push(packet);
        }
        for packet in &packets {
            for port in [Port::Dhcp, Port::Proxy] {
                server.handle(T0, port, from, packet, &fake);
            }
        }
        prop_assert_eq!(server.counters().received, 2 * packets.len() as u64);
        if !proxy {
            let discover = message(mac(200), As::Ipxe, MessageType::Discover).to_vec().unwrap();
            prop_assert!(server.handle(T0, Port::Dhcp, from, &discover, &fake).is_some());
        }
    }
}
