//! The network card against QEMU's user network: DHCP, wake-up by a received frame, silence while
//! nobody waits. The runner attaches the card that a test demands.

use core::net::SocketAddrV4;

use netstack::time::{Instant, Micros};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol,
    EthernetRepr, Icmpv4Packet, Icmpv4Repr, IpProtocol, Ipv4Address, Ipv4Packet, Ipv4Repr,
};

use super::remains::{self, Marker};
use super::{Outcome, check};
use crate::arch::interrupts::{self, Class};
use crate::arch::{entropy, idle};
use crate::drivers::nic::Nic;
use crate::{drivers, mm, net, time};

/// What QEMU's user network gives its first guest, and its router.
const GUEST: Ipv4Address = Ipv4Address::new(10, 0, 2, 15);
const ROUTER: Ipv4Address = Ipv4Address::new(10, 0, 2, 2);
const ROUTER_MAC: EthernetAddress = EthernetAddress([0x52, 0x55, 10, 0, 2, 2]);
/// Bytes that the router is asked to send back.
const ECHO_BYTES: usize = 1024;
/// A port on which nobody listens.
const NOBODY: u16 = 9;
/// A lease or an answer on the same machine takes milliseconds; load on the host is forgiven.
const PATIENCE: Micros = Micros::from_secs(20);

/// A node without a card says so and goes on.
pub fn no_card() -> Outcome {
    check!(drivers::probe_nic().is_none(), "found a card");
    Ok(())
}

/// The halted CPU is woken by frames, DHCP works, and frames raise no interrupt while the kernel
/// does not wait. Run with a modern and with a transitional card.
pub fn card() -> Outcome {
    let card = drivers::probe_nic().ok_or("no card")?;
    check!(card.interrupts(), "the card has no MSI-X");
    wake(card)?;
    clear(card)?;
    let config = net::Config {
        address: None,
        wants_personality: false,
        version: "test",
        boot_epoch: entropy::random_u64(),
    };
    let mut stack = net::Stack::new(card, &config, time::now());
    lease(&mut stack)?;
    silence(&mut stack)
}

/// A received frame wakes the halted CPU. The interrupt is switched on before the question is sent,
/// so an answer that comes before the CPU is halted leaves its interrupt pending and is not missed.
fn wake(card: &mut dyn Nic) -> Outcome {
    let (before, start) = (interrupts::counts(), time::now());
    card.set_interrupts(true);
    ask_for_router(card)?;
    while !card.has_received() {
        check!(time::now() < start + PATIENCE, "no answer in {PATIENCE}");
        idle::wait(start + PATIENCE);
    }
    card.set_interrupts(false);
    idle::absorb();
    let counted = interrupts::counts().since(&before);
    let by_card = counted.idle[Class::Nic as usize];
    check!(by_card >= 1, "interrupts {counted}, none by the card");
    Ok(())
}

/// Sends an ARP request for the router's hardware address.
fn ask_for_router(card: &mut dyn Nic) -> Outcome {
    let mac = EthernetAddress(card.mac());
    let ethernet = EthernetRepr {
        src_addr: mac,
        dst_addr: EthernetAddress::BROADCAST,
        ethertype: EthernetProtocol::Arp,
    };
    let arp = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Request,
        source_hardware_addr: mac,
        source_protocol_addr: GUEST,
        target_hardware_addr: EthernetAddress::default(),
        target_protocol_addr: ROUTER,
    };
    let room = card.transmit().ok_or("no room to send")?;
    room.send(ethernet.buffer_len() + arp.buffer_len(), &mut |frame| {
        let mut frame = EthernetFrame::new_unchecked(frame);
        ethernet.emit(&mut frame);
        arp.emit(&mut ArpPacket::new_unchecked(frame.payload_mut()));
    });
    Ok(())
}

/// What was sent and received is in no buffer of the card afterwards.
fn clear(card: &mut dyn Nic) -> Outcome {
    let marker = Marker::new();
    let payload = marker.show_often(ECHO_BYTES);
    let request = Icmpv4Repr::EchoRequest {
        ident: 1,
        seq_no: 1,
        data: &payload,
    };
    let ethernet = EthernetRepr {
        src_addr: EthernetAddress(card.mac()),
        dst_addr: ROUTER_MAC,
        ethertype: EthernetProtocol::Ipv4,
    };
    let ip = Ipv4Repr {
        src_addr: GUEST,
        dst_addr: ROUTER,
        next_header: IpProtocol::Icmp,
        payload_len: request.buffer_len(),
        hop_limit: 64,
    };
    let length = ethernet.buffer_len() + ip.buffer_len() + request.buffer_len();
    let room = card.transmit().ok_or("no room to send")?;
    room.send(length, &mut |frame| {
        let mut frame = EthernetFrame::new_unchecked(frame);
        ethernet.emit(&mut frame);
        let sums = ChecksumCapabilities::default();
        let mut packet = Ipv4Packet::new_unchecked(frame.payload_mut());
        ip.emit(&mut packet, &sums);
        request.emit(
            &mut Icmpv4Packet::new_unchecked(packet.payload_mut()),
            &sums,
        );
    });
    let start = time::now();
    loop {
        check!(time::now() < start + PATIENCE, "no echo in {PATIENCE}");
        let Some((frame, _)) = card.receive() else {
            continue;
        };
        if frame.len() == length && marker.is_all_of(&frame[length - ECHO_BYTES..]) {
            break;
        }
    }
    drop(payload);
    loop {
        // The frame handed out goes back to the card. The answer may be here before the card says that it has sent the question.
        check!(card.receive().is_none(), "a second answer");
        mm::scrub_stack();
        let found = marker.find();
        if found.is_empty() {
            return Ok(());
        }
        let report = remains::report(&found);
        check!(time::now() < start + PATIENCE, "of a frame {report}");
    }
}

/// Gets a lease.
fn lease(stack: &mut net::Stack) -> Outcome {
    let start = time::now();
    while stack.address().is_none() {
        let now = time::now();
        check!(now < start + PATIENCE, "no lease in {PATIENCE}");
        stack.poll(now, &mut |_| {});
        let due = stack.next_deadline(now).unwrap_or(start + PATIENCE);
        if stack.address().is_none() {
            stack.wait(now, due);
        }
    }
    let address = stack.address().map(|address| address.address());
    check!(address == Some(GUEST), "leased {address:?}");
    Ok(())
}

/// Frames that arrive while the kernel computes raise no interrupt.
fn silence(stack: &mut net::Stack) -> Outcome {
    stack.set_control(SocketAddrV4::new(ROUTER, NOBODY));
    let start = time::now();
    idle::absorb();
    let before = interrupts::counts();
    let received = |stack: &net::Stack| stack.counters().0.received;
    let frames = received(stack);
    // The first datagram makes the stack ask for the router's hardware address: an answer comes.
    check!(stack.send(b"hello"), "datagram not taken");
    while received(stack) == frames {
        let now = time::now();
        check!(now < start + PATIENCE, "no answer in {PATIENCE}");
        stack.poll(now, &mut |_| {});
    }
    idle::absorb();
    let counted = interrupts::counts().since(&before);
    let total = counted.idle.iter().chain(&counted.user).sum::<u64>();
    check!(total == 0, "a silenced card caused {counted}");
    check!(
        stack.next_deadline(time::now()) > Some(Instant::ZERO),
        "a stack with a lease has no deadline"
    );
    Ok(())
}
