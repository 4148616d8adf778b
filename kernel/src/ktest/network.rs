//! The network card against QEMU's user network: DHCP, wake-up by a received frame, silence while
//! nobody waits. The runner attaches the card that a test demands.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddrV4;

use kernel_core::cmdline::PeerPath;
use kernel_core::nic::Signal;
use kernel_core::nic::choice::TURN;
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
use crate::drivers::nic::{Nic, RECEIVE_ENTRIES, TRANSMIT_ENTRIES};
use crate::net::cards::Cards;
use crate::{drivers, mm, net, time};

/// What QEMU's user network gives its first guest, and its router.
const GUEST: Ipv4Address = Ipv4Address::new(10, 0, 2, 15);
const ROUTER: Ipv4Address = Ipv4Address::new(10, 0, 2, 2);
const ROUTER_MAC: EthernetAddress = EthernetAddress([0x52, 0x55, 10, 0, 2, 2]);
/// Bytes that the router is asked to send back.
const ECHO_BYTES: usize = 1024;
/// Questions that are asked of the router, three times as many as a ring has entries, and how many
/// at once.
const QUESTIONS: usize = 3 * RECEIVE_ENTRIES;
const BURST: usize = 2 * TRANSMIT_ENTRIES;
/// A port on which nobody listens.
const NOBODY: u16 = 9;
/// A lease or an answer on the same machine takes milliseconds; load on the host is forgiven.
const PATIENCE: Micros = Micros::from_secs(20);

/// A node without a card says so and goes on.
pub fn no_card() -> Outcome {
    check!(start(Signal::Msix).is_err(), "found a card");
    Ok(())
}

/// The only card, which is started.
fn start(best: Signal) -> Result<&'static mut dyn Nic, String> {
    let cards = drivers::start_cards(best);
    let [card]: [_; 1] = cards
        .try_into()
        .map_err(|cards: Vec<_>| format!("{} cards", cards.len()))?;
    Ok(card)
}

/// The halted CPU is woken by frames, DHCP works, and frames raise no interrupt while the kernel
/// does not wait.
pub fn card() -> Outcome {
    check_card(start(Signal::Msix)?, true)
}

/// The same with plain messages.
pub fn card_msi() -> Outcome {
    check_card(start(Signal::Msi)?, true)
}

/// The same without interrupts: frames are found by polling.
pub fn card_polled() -> Outcome {
    check_card(start(Signal::None)?, false)
}

/// A card that still runs, as another kernel leaves it to one that it starts, is started anew.
pub fn running_card() -> Outcome {
    let first = start(Signal::Msix)?;
    first.set_interrupts(true);
    ask_for_router(first)?;
    let card = start(Signal::Msix)?;
    let interrupts = card.interrupts();
    check_card(card, interrupts)
}

fn check_card(card: &'static mut dyn Nic, interrupts: bool) -> Outcome {
    check!(
        card.interrupts() == interrupts,
        "the card interrupts: {}",
        card.interrupts()
    );
    let start = time::now();
    while !card.has_link() {
        check!(time::now() < start + PATIENCE, "no link in {PATIENCE}");
    }
    match interrupts {
        true => wake(card)?,
        false => find(card)?,
    }
    clear(card)?;
    many(card)?;
    let mut stack = net::Stack::new(card, &config(), time::now());
    lease(&mut stack)?;
    silence(&mut stack)
}

/// The first card's port is dead, though it says that it has a link: nobody answers there. The
/// second one gets the lease.
pub fn dead_port() -> Outcome {
    let cards = drivers::start_cards(Signal::Msix);
    check!(cards.len() == 2, "{} cards", cards.len());
    let (dead, good) = (cards[0].mac(), cards[1].mac());
    let cards = Cards::new(cards, None, time::now());
    let mut stack = net::Stack::new(cards, &config(), time::now());
    check!(stack.mac() == dead, "the second card comes first");
    lease(&mut stack)?;
    check!(
        stack.mac() == good,
        "a lease by a card that is not connected"
    );
    silence(&mut stack)?;
    stack.quiesce();
    Ok(())
}

/// The card that the firmware booted from comes first.
pub fn boot_card() -> Outcome {
    let cards = drivers::start_cards(Signal::Msix);
    check!(cards.len() == 2, "{} cards", cards.len());
    let second = cards[1].mac();
    let cards = Cards::new(cards, Some(second), time::now());
    let start = time::now();
    let mut stack = net::Stack::new(cards, &config(), start);
    check!(stack.mac() == second, "the first card comes first");
    lease(&mut stack)?;
    let waited = time::now().saturating_since(start);
    check!(waited < Micros(TURN), "a lease only after {waited}");
    Ok(())
}

fn config() -> net::Config {
    net::Config {
        address: None,
        wants_personality: false,
        version: "test",
        boot_epoch: entropy::random_u64(),
        peers: PeerPath::Direct,
    }
}

/// A received frame wakes the halted CPU. The interrupt is switched on before the question is sent,
/// so an answer that comes before the CPU is halted leaves its interrupt pending and is not missed.
fn wake(card: &mut dyn Nic) -> Outcome {
    let (before, start) = (interrupts::counts(), time::now());
    card.set_interrupts(true);
    ask_for_router(card)?;
    while !card.has_received() {
        check!(time::now() < start + PATIENCE, "no answer in {PATIENCE}");
        time::sleep_until(start + PATIENCE);
    }
    card.set_interrupts(false);
    idle::absorb();
    let counted = interrupts::counts().since(&before);
    let by_card = counted.idle[Class::Nic as usize];
    check!(by_card >= 1, "interrupts {counted}, none by the card");
    Ok(())
}

/// A received frame is found by looking.
fn find(card: &mut dyn Nic) -> Outcome {
    let start = time::now();
    card.set_interrupts(true);
    ask_for_router(card)?;
    while !card.has_received() {
        check!(time::now() < start + PATIENCE, "no answer in {PATIENCE}");
    }
    card.set_interrupts(false);
    Ok(())
}

/// Both rings go round several times, with bursts that fill the one to send.
fn many(card: &mut dyn Nic) -> Outcome {
    let start = time::now();
    let mut answers = 0;
    let mut asked = 0;
    while answers < QUESTIONS {
        check!(
            time::now() < start + PATIENCE,
            "{answers} answers to {asked} questions in {PATIENCE}"
        );
        for _ in 0..BURST {
            // Frames that were lost for want of room are asked for again.
            if card.transmit().is_some() {
                ask_for_router(card)?;
                asked += 1;
            }
        }
        while let Some((frame, _)) = card.receive() {
            let frame = EthernetFrame::new_checked(frame).map_err(|_| "a short frame")?;
            answers += usize::from(frame.ethertype() == EthernetProtocol::Arp);
        }
    }
    while card.receive().is_some() {}
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
        // The frame handed out goes back to the card. The answer may be here before the card says
        // that it has sent the question.
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
            crate::time::sleep_until(stack.begin_wait(now, due));
            stack.end_wait();
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
