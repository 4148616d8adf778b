//! The network card against QEMU's user network: DHCP, wake-up by a received frame, silence while
//! nobody waits. The runner attaches the card that a test demands.

use core::net::{Ipv4Addr, SocketAddrV4};

use netstack::time::{Instant, Micros};
use smoltcp::wire::Ipv4Address;

use super::{Outcome, check};
use crate::arch::interrupts::{self, Class};
use crate::arch::{entropy, idle};
use crate::{drivers, net, time};

/// What QEMU's user network gives its first guest, and its router.
const GUEST: Ipv4Address = Ipv4Address::new(10, 0, 2, 15);
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
/// A port on which nobody listens.
const NOBODY: u16 = 9;
/// A lease or an answer on the same machine takes milliseconds; load on the host is forgiven.
const PATIENCE: Micros = Micros::from_secs(20);
/// Datagrams sent in [`wake`], and the wait for the answer to each.
const ATTEMPTS: usize = 50;
const ANSWER_WAIT: Micros = Micros::from_millis(100);

/// A node without a card says so and goes on.
pub fn no_card() -> Outcome {
    check!(drivers::probe_nic().is_none(), "found a card");
    Ok(())
}

/// DHCP works, the halted CPU is woken by frames, and frames raise no interrupt while the kernel
/// does not wait. Run with a modern and with a transitional card.
pub fn card() -> Outcome {
    let mut stack = started()?;
    lease(&mut stack)?;
    stack.set_control(SocketAddrV4::new(ROUTER, NOBODY));
    silence(&mut stack)?;
    wake(&mut stack)
}

fn started() -> Result<net::Stack, alloc::string::String> {
    let card = drivers::probe_nic().ok_or("no card")?;
    check!(card.interrupts(), "the card has no MSI-X");
    let config = net::Config {
        address: None,
        wants_personality: false,
        version: "test",
        boot_epoch: entropy::random_u64(),
    };
    Ok(net::Stack::new(card, &config, time::now()))
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

/// A frame that arrives while the CPU is halted wakes it. The host answers a datagram to a closed
/// port with an ICMP message, in its own time; now and then that is before the CPU is halted.
fn wake(stack: &mut net::Stack) -> Outcome {
    let before = interrupts::counts();
    for _ in 0..ATTEMPTS {
        check!(stack.send(b"hello"), "datagram not taken");
        let (mut now, asleep) = (time::now(), idle::total());
        let quiet_at = now + ANSWER_WAIT;
        while now < quiet_at {
            stack.poll(now, &mut |_| {});
            stack.wait(now, quiet_at);
            if interrupts::counts().since(&before).idle[Class::Nic as usize] > 0 {
                check!(idle::total() > asleep, "woken, but never asleep");
                return Ok(());
            }
            now = time::now();
        }
    }
    let counted = interrupts::counts().since(&before);
    Err(alloc::format!(
        "{ATTEMPTS} answers, woken by {counted}, never by the card"
    ))
}

/// Frames that arrive while the kernel computes raise no interrupt.
fn silence(stack: &mut net::Stack) -> Outcome {
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
