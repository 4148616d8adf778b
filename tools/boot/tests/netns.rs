//! 64 machines against the running service, through real sockets on a real (virtual) wire.
//!
//! The service runs in one network namespace, the machines in another, with a veth pair between.
//! Run by `cargo xtask test`, or by `cargo test -p hearth-boot -- --ignored`.

mod support;

use dhcproto::v4::{DhcpOption, Message, MessageType, OptionCode, UnknownOption};
use dhcproto::{Decodable, Decoder, Encodable};
use hearth_boot::{
    BootRecord, Config, DoctorOptions, Event, Mac, Personalities, Refused, Service, Severity,
    Stage, TimelineSink, doctor,
};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::Running;

const MACHINES: u8 = 64;
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 117, 0, 1);
const EPOCH: u64 = 0x1122_3344_5566_7788;
/// Everything here takes a second or two on a quiet machine.
const LIMIT: Duration = Duration::from_secs(120);

fn image() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..300_000u32).map(|i| (i / 13) as u8).collect();
    bytes[..2].copy_from_slice(b"MZ");
    bytes[0x202..0x206].copy_from_slice(b"HdrS");
    bytes
}

fn mac(n: u8) -> Mac {
    Mac([0x52, 0x54, 0, 7, 1, n])
}

struct Fake;

impl Personalities for Fake {
    fn personality(&self, mac: Mac, epoch: u64, _: Ipv4Addr) -> Result<Vec<u8>, Refused> {
        assert_eq!(epoch, EPOCH);
        Ok(vec![mac.0[5]])
    }
}

#[derive(Default)]
struct Log(Mutex<Vec<Event>>);

impl TimelineSink for Log {
    fn stage(&self, _: Stage, _: &BootRecord) {}

    fn event(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

#[test]
#[ignore = "needs a network namespace"]
fn sixty_four_machines_boot_over_a_wire() {
    const NAME: &str = "sixty_four_machines_boot_over_a_wire";
    match support::role().as_deref() {
        None => support::in_namespace(NAME, "server", LIMIT),
        Some("server") => serve(NAME),
        Some("machines") => machines(),
        Some(other) => panic!("no role {other}"),
    }
}

/// Address of the relay in [`a_relay_gets_the_answers_for_its_machines`].
const RELAY: Ipv4Addr = Ipv4Addr::new(10, 117, 0, 9);

#[test]
#[ignore = "needs a network namespace"]
fn a_relay_gets_the_answers_for_its_machines() {
    const NAME: &str = "a_relay_gets_the_answers_for_its_machines";
    match support::role().as_deref() {
        None => support::in_namespace(NAME, "server", LIMIT),
        Some("server") => serve_a_relay(NAME),
        Some("relay") => relay(),
        Some(other) => panic!("no role {other}"),
    }
}

fn serve_a_relay(name: &str) {
    let holder = wire();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("hearth.efi");
    std::fs::write(&path, image()).unwrap();
    let config = Config::new("boot0", SERVER, 16, path);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let log = Arc::new(Log::default());
        let service = Service::start(config, Arc::new(Fake), log).unwrap();
        let pid = holder.0.id().to_string();
        let name = name.to_owned();
        let relay = tokio::task::spawn_blocking(move || {
            support::again(&["nsenter", "-t", &pid, "-n"], &name, "relay").finish(LIMIT);
        });
        relay.await.unwrap();
        let records = service.timeline();
        assert!(records[0].stages.get(Stage::Personality).is_some());
    });
}

/// A relay and the machine behind it: what the machine broadcasts comes from the relay's own
/// address, and the answers come back to it.
fn relay() {
    support::run(&format!("ip address add {RELAY}/16 dev boot1"));
    let socket = UdpSocket::bind((RELAY, 67)).unwrap();
    let wait = Some(Duration::from_millis(500));
    socket.set_read_timeout(wait).unwrap();
    let kernel = [
        DhcpOption::ClassIdentifier(b"hearth-node:0.1.0".to_vec()),
        DhcpOption::Unknown(UnknownOption::new(
            OptionCode::from(225),
            EPOCH.to_be_bytes().to_vec(),
        )),
    ];
    let begin = Instant::now();
    let ask = |kind, answer, more: &[DhcpOption]| -> Message {
        let mut asked = message(1, kind, &[&kernel, more].concat());
        asked.set_giaddr(RELAY);
        let mut buffer = [0; 1_500];
        loop {
            assert!(begin.elapsed() < LIMIT, "no answer at the relay's address");
            socket
                .send_to(&asked.to_vec().unwrap(), (SERVER, 67))
                .unwrap();
            if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                assert_eq!(from, SocketAddr::from((SERVER, 67)));
                let reply = Message::decode(&mut Decoder::new(&buffer[..length])).unwrap();
                // An earlier question may have been asked twice.
                if reply.opts().msg_type() == Some(answer) {
                    return reply;
                }
            }
        }
    };
    let offer = ask(MessageType::Discover, MessageType::Offer, &[]);
    let wanted = DhcpOption::RequestedIpAddress(offer.yiaddr());
    let ack = ask(
        MessageType::Request,
        MessageType::Ack,
        &[wanted, DhcpOption::ServerIdentifier(SERVER)],
    );
    assert_eq!((ack.giaddr(), ack.chaddr()), (RELAY, &mac(1).0[..]));
    let personality = ack.opts().get(OptionCode::from(224));
    assert!(personality.is_some(), "no personality: {ack}");
}

/// Starts another network namespace and lays a wire to it: `boot0` here, `boot1` there.
fn wire() -> Running {
    let holder = support::namespace();
    let pid = holder.0.id();
    let begin = Instant::now();
    support::run("ip link set lo up");
    support::run("ip link add boot0 type veth peer name boot1");
    support::no_address_detection("boot0");
    support::run(&format!("ip link set boot1 netns {pid}"));
    support::run("ip address add 10.117.0.1/16 dev boot0");
    support::run("ip link set boot0 up");
    support::run(&format!("nsenter -t {pid} -n ip link set boot1 up"));
    while !has_link_local("boot0") {
        assert!(begin.elapsed() < LIMIT);
        std::thread::sleep(Duration::from_millis(5));
    }
    holder
}

/// The link is up and IPv6 has its address: both come a moment after the command.
fn has_link_local(interface: &str) -> bool {
    nix::ifaddrs::getifaddrs().unwrap().any(|entry| {
        entry.interface_name == interface
            && entry
                .flags
                .contains(nix::net::if_::InterfaceFlags::IFF_RUNNING)
            && entry.address.is_some_and(|address| {
                let address = address.as_sockaddr_in6().map(|address| address.ip());
                address.is_some_and(|address| address.segments()[0] == 0xfe80)
            })
    })
}

fn serve(name: &str) {
    let holder = wire();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("hearth.efi");
    std::fs::write(&path, image()).unwrap();
    let mut config = Config::new("boot0", SERVER, 16, path);
    config.lease_file = Some(directory.path().join("leases.json"));
    let http = config.http;
    let log = Arc::new(Log::default());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let records = runtime.block_on(async {
        let service = Service::start(config.clone(), Arc::new(Fake), log.clone()).unwrap();
        // The same once more says which port is in the way.
        let Err(error) = Service::start(config.clone(), Arc::new(Fake), log.clone()) else {
            panic!("two services on one interface");
        };
        assert!(
            error.to_string().contains("DHCP port 67 on boot0"),
            "{error}"
        );
        let listener = tokio::net::TcpListener::bind(http).await.unwrap();
        tokio::spawn(service.serve_http(listener));
        let pid = holder.0.id().to_string();
        let name = name.to_owned();
        let machines = tokio::task::spawn_blocking(move || {
            support::again(&["nsenter", "-t", &pid, "-n"], &name, "machines").finish(LIMIT);
        });
        machines.await.unwrap();
        // The lease file is written every other second.
        let begin = Instant::now();
        while !directory.path().join("leases.json").exists() {
            assert!(begin.elapsed() < LIMIT);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        service.joined(mac(0), EPOCH, 0);
        service.timeline()
    });
    assert_eq!(*log.0.lock().unwrap(), []);
    assert_eq!(records.len(), usize::from(MACHINES));
    for record in records {
        let stages = record.stages;
        for stage in [
            Stage::Dhcp,
            Stage::Script,
            Stage::Kernel,
            Stage::Personality,
        ] {
            assert!(stages.get(stage).is_some(), "{stage}: {record:?}");
        }
        assert_eq!(stages.joined.is_some(), record.mac == mac(0));
        assert_eq!(record.boots, 1);
    }
}

/// All machines: firmware's exchange, the files, the kernel's exchange.
fn machines() {
    let begin = Instant::now();
    router_advertisement();
    let firmware = leases(&[
        DhcpOption::ClassIdentifier(b"PXEClient:Arch:00000:UNDI:002001".to_vec()),
        DhcpOption::ClientSystemArchitecture(0.into()),
        DhcpOption::Unknown(UnknownOption::new(OptionCode::from(175), vec![0x13, 1, 1])),
    ]);
    for ack in firmware.values() {
        let url = format!(
            "http://10.117.0.1:7180/boot/ipxe?mac={}",
            mac(ack.chaddr()[5])
        );
        let file = ack.opts().get(OptionCode::BootfileName);
        assert_eq!(file, Some(&DhcpOption::BootfileName(url.into_bytes())));
        support::run(&format!("ip address add {}/16 dev boot1", ack.yiaddr()));
    }
    let files: Vec<_> = firmware
        .iter()
        .map(|(n, ack)| {
            let (n, address) = (*n, ack.yiaddr());
            std::thread::spawn(move || download(n, address))
        })
        .collect();
    for file in files {
        file.join().unwrap();
    }
    let kernel = leases(&[
        DhcpOption::ClassIdentifier(b"hearth-node:0.1.0".to_vec()),
        DhcpOption::Unknown(UnknownOption::new(
            OptionCode::from(225),
            EPOCH.to_be_bytes().to_vec(),
        )),
    ]);
    for (n, ack) in &kernel {
        assert_eq!(
            ack.yiaddr(),
            firmware[n].yiaddr(),
            "one address for firmware and kernel"
        );
        let Some(DhcpOption::Unknown(personality)) = ack.opts().get(OptionCode::from(224)) else {
            panic!("no personality: {ack}");
        };
        assert_eq!(personality.data(), [*n]);
    }
    println!("64 machines took {:?}", begin.elapsed());
}

/// A router solicitation is answered at once; iPXE would wait 16 s for it.
fn router_advertisement() {
    let index = nix::net::if_::if_nametoindex("boot1").unwrap();
    let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6)).unwrap();
    socket.bind_device(Some(b"boot1")).unwrap();
    socket.set_multicast_hops_v6(255).unwrap();
    socket.set_multicast_if_v6(index).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let all_routers = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
    let to = SockAddr::from(SocketAddrV6::new(all_routers, 0, 0, index));
    let begin = Instant::now();
    loop {
        assert!(
            begin.elapsed() < Duration::from_secs(10),
            "no router advertisement"
        );
        // This end's own link-local address may not be usable yet.
        let _ = socket.send_to(&[133, 0, 0, 0, 0, 0, 0, 0], &to);
        let mut answer = [0; 200];
        let Ok(length) = (&socket).read(&mut answer) else {
            continue;
        };
        if answer[0] == 134 {
            assert_eq!(length, 16);
            assert_eq!(answer[5], 0, "neither managed nor other configuration");
            assert_eq!(answer[6..8], [0, 0], "no default router");
            return;
        }
    }
}

fn client_socket() -> UdpSocket {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
    socket.bind_device(Some(b"boot1")).unwrap();
    socket.set_broadcast(true).unwrap();
    socket.set_recv_buffer_size(4 << 20).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    socket
        .bind(&SockAddr::from(SocketAddrV4::new(
            Ipv4Addr::UNSPECIFIED,
            68,
        )))
        .unwrap();
    socket.into()
}

/// DISCOVER to ACK for all machines at once, repeating what is lost.
fn leases(options: &[DhcpOption]) -> BTreeMap<u8, Message> {
    let socket = client_socket();
    let server = SocketAddrV4::new(Ipv4Addr::BROADCAST, 67);
    let mut acks: BTreeMap<u8, Message> = BTreeMap::new();
    let begin = Instant::now();
    while acks.len() < usize::from(MACHINES) {
        assert!(begin.elapsed() < LIMIT);
        for n in (0..MACHINES).filter(|n| !acks.contains_key(n)) {
            let discover = message(n, MessageType::Discover, options);
            socket.send_to(&discover.to_vec().unwrap(), server).unwrap();
        }
        let mut buffer = [0; 1_500];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            assert_eq!(from, SocketAddr::from((SERVER, 67)));
            let reply = Message::decode(&mut Decoder::new(&buffer[..length])).unwrap();
            let n = reply.chaddr()[5];
            match reply.opts().msg_type() {
                Some(MessageType::Offer) => {
                    let mut request = message(n, MessageType::Request, options);
                    let wanted = DhcpOption::RequestedIpAddress(reply.yiaddr());
                    request.opts_mut().insert(wanted);
                    request
                        .opts_mut()
                        .insert(DhcpOption::ServerIdentifier(SERVER));
                    socket.send_to(&request.to_vec().unwrap(), server).unwrap();
                }
                Some(MessageType::Ack) => {
                    acks.insert(n, reply);
                    if acks.len() == usize::from(MACHINES) {
                        break;
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }
    acks
}

fn message(n: u8, kind: MessageType, options: &[DhcpOption]) -> Message {
    let none = Ipv4Addr::UNSPECIFIED;
    let mut message = Message::new_with_id(u32::from(n), none, none, none, none, &mac(n).0);
    message.opts_mut().insert(DhcpOption::MessageType(kind));
    for option in options {
        message.opts_mut().insert(option.clone());
    }
    message
}

/// Script and image by HTTP; the image again by TFTP, as machines without iPXE do.
fn download(n: u8, address: Ipv4Addr) {
    let mac = mac(n);
    let script = get(address, &format!("/boot/ipxe?mac={mac}"));
    assert!(script.starts_with(b"#!ipxe"));
    let path = format!("/boot/{}/hearth.efi", mac.to_string().replace(':', "-"));
    assert_eq!(get(address, &path), image());
    assert_eq!(tftp(address, "hearth.efi"), image());
    let script = tftp(address, "boot.ipxe");
    assert!(
        String::from_utf8(script)
            .unwrap()
            .contains(&mac.to_string())
    );
}

fn get(address: Ipv4Addr, path: &str) -> Vec<u8> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
    socket
        .bind(&SockAddr::from(SocketAddrV4::new(address, 0)))
        .unwrap();
    socket
        .connect(&SockAddr::from(SocketAddrV4::new(SERVER, 7180)))
        .unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(
        answer.starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    let end = answer
        .windows(4)
        .position(|part| part == b"\r\n\r\n")
        .unwrap();
    answer.split_off(end + 4)
}

/// Reads a file with a window of four blocks.
fn tftp(address: Ipv4Addr, file: &str) -> Vec<u8> {
    let socket = UdpSocket::bind((address, 0)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(1)))
        .unwrap();
    let request = format!("\0\x01{file}\0octet\0tsize\x000\0blksize\x001468\0windowsize\x004\0");
    let mut content = Vec::new();
    let mut peer = None;
    let mut blocks = 0u16;
    let begin = Instant::now();
    socket.send_to(request.as_bytes(), (SERVER, 69)).unwrap();
    loop {
        assert!(begin.elapsed() < LIMIT);
        let mut packet = [0; 1_500];
        let ack = |blocks: u16| [[0, 4], blocks.to_be_bytes()].concat();
        match (socket.recv_from(&mut packet), peer) {
            (Ok((length, from)), _) => {
                peer = Some(from);
                match &packet[..length] {
                    [0, 6, ..] => {
                        socket.send_to(&ack(0), from).unwrap();
                    }
                    [0, 3, high, low, data @ ..] => {
                        let next = u16::from_be_bytes([*high, *low]) == blocks + 1;
                        if next {
                            blocks += 1;
                            content.extend(data);
                        }
                        let last = next && data.len() < 1_468;
                        if !next || last || blocks.is_multiple_of(4) {
                            socket.send_to(&ack(blocks), from).unwrap();
                        }
                        if last {
                            return content;
                        }
                    }
                    other => panic!("{}", String::from_utf8_lossy(other)),
                }
            }
            (Err(_), Some(peer)) => {
                socket.send_to(&ack(blocks), peer).unwrap();
            }
            (Err(_), None) => {
                socket.send_to(request.as_bytes(), (SERVER, 69)).unwrap();
            }
        }
    }
}

#[test]
#[ignore = "needs a network namespace"]
fn the_doctor_finds_what_is_wrong() {
    const NAME: &str = "the_doctor_finds_what_is_wrong";
    match support::role().as_deref() {
        None => support::in_namespace(NAME, "patient", LIMIT),
        Some("patient") => examine(NAME),
        Some("foreign") => foreign_server(),
        Some(other) => panic!("no role {other}"),
    }
}

fn find(options: &DoctorOptions, text: &str) -> Severity {
    let findings = doctor(options);
    let finding = findings.iter().find(|finding| finding.what.contains(text));
    let finding = finding.unwrap_or_else(|| panic!("no {text:?} in {findings:#?}"));
    assert!(!finding.fix.is_empty());
    finding.severity
}

fn examine(name: &str) {
    let holder = wire();
    let options = DoctorOptions {
        interface: "boot0".into(),
        address: Some(SERVER),
        ..DoctorOptions::default()
    };
    assert_eq!(doctor(&options), [], "all is well");

    let busy = UdpSocket::bind("0.0.0.0:69").unwrap();
    assert_eq!(
        find(&options, &format!("(process {})", std::process::id())),
        Severity::Error
    );
    drop(busy);

    support::run("ip link set boot0 mtu 1400");
    assert_eq!(find(&options, "MTU of 1400"), Severity::Error);
    support::run("ip link set boot0 mtu 1500");

    let elsewhere = DoctorOptions {
        address: Some(Ipv4Addr::new(10, 1, 2, 3)),
        ..options.clone()
    };
    assert_eq!(
        find(&elsewhere, "does not have the address"),
        Severity::Error
    );

    let proxy = DoctorOptions {
        proxy_dhcp: true,
        ..options.clone()
    };
    assert_eq!(find(&proxy, "no DHCP server"), Severity::Error);

    let pid = holder.0.id().to_string();
    let _foreign = support::again(&["nsenter", "-t", &pid, "-n"], name, "foreign");
    // It needs a moment to open its socket; the doctor asks twice in three seconds.
    let begin = Instant::now();
    while doctor(&options).is_empty() {
        assert!(begin.elapsed() < LIMIT, "the other server is not seen");
    }
    assert_eq!(find(&options, "10.117.0.9"), Severity::Error);

    support::run("ip link set boot0 down");
    assert_eq!(find(&options, "boot0 is down"), Severity::Error);
}

/// Offers an address to everybody, as a forgotten router does.
fn foreign_server() {
    support::run("ip address add 10.117.0.9/16 dev boot1");
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
    socket.bind_device(Some(b"boot1")).unwrap();
    socket.set_broadcast(true).unwrap();
    socket
        .bind(&SockAddr::from(SocketAddrV4::new(
            Ipv4Addr::UNSPECIFIED,
            67,
        )))
        .unwrap();
    let socket = UdpSocket::from(socket);
    let mut buffer = [0; 1_500];
    loop {
        let (length, _) = socket.recv_from(&mut buffer).unwrap();
        let Ok(mut reply) = Message::decode(&mut Decoder::new(&buffer[..length])) else {
            continue;
        };
        reply.set_opcode(dhcproto::v4::Opcode::BootReply);
        reply.set_yiaddr(Ipv4Addr::new(10, 117, 9, 9));
        let options = reply.opts_mut();
        options.insert(DhcpOption::MessageType(MessageType::Offer));
        options.insert(DhcpOption::ServerIdentifier(Ipv4Addr::new(10, 117, 0, 9)));
        socket
            .send_to(&reply.to_vec().unwrap(), (Ipv4Addr::BROADCAST, 68))
            .unwrap();
    }
}
