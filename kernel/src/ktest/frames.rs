//! Two cards on one wire: every frame that one sends is what the other receives, whatever its
//! length, and a flood costs frames only. The runner attaches the cards that a test demands.

use alloc::vec;
use alloc::vec::Vec;

use kernel_core::nic::Signal;
use netstack::time::Micros;

use super::{Outcome, check};
use crate::drivers::nic::{FRAME_MAX, Nic, RECEIVE_ENTRIES};
use crate::{drivers, time};

/// Frames shorter than this are padded, by the card or on the wire.
const SHORTEST: usize = 60;
const HEADER: usize = 14;
const TAGGED_HEADER: usize = 18;
/// Lengths around every limit: no payload, padded ones, the longest.
const LENGTHS: [usize; 9] = [14, 15, 42, 59, 60, 61, 1024, 1513, FRAME_MAX];
/// An EtherType for experiments (IEEE 802, 9.2.4), and that of a VLAN tag.
const EXPERIMENT: [u8; 2] = [0x88, 0xb5];
const VLAN: [u8; 2] = [0x81, 0x00];
/// More than any ring and QEMU's queue take at once.
const FLOOD: usize = 3 * RECEIVE_ENTRIES;
/// QEMU's e1000 takes nothing in the first second.
const PATIENCE: Micros = Micros::from_secs(20);
/// A sender without room for so long is being held back.
const HELD_BACK: Micros = Micros::from_millis(200);

/// Frames in both directions, a flood, and silence after the end.
pub fn between_cards() -> Outcome {
    let mut cards = drivers::start_cards(Signal::Msix);
    check!(cards.len() == 2, "{} cards", cards.len());
    let second = cards.pop().ok_or("no card")?;
    let first = cards.pop().ok_or("no card")?;
    let start = time::now();
    while !(first.has_link() && second.has_link()) {
        check!(time::now() < start + PATIENCE, "no link in {PATIENCE}");
    }
    for _ in 0..RECEIVE_ENTRIES / LENGTHS.len() {
        lengths(first, second)?;
        lengths(second, first)?;
    }
    flood(first, second)?;
    flood(second, first)?;
    quiet(first, second)
}

fn lengths(from: &mut dyn Nic, to: &mut dyn Nic) -> Outcome {
    for (number, length) in LENGTHS.into_iter().enumerate() {
        for kind in [EXPERIMENT, VLAN] {
            // Half a tag is no frame; QEMU's e1000e throws it away.
            if kind == VLAN && length < TAGGED_HEADER {
                continue;
            }
            let frame = frame(from.mac(), to.mac(), kind, length, number as u8);
            send(from, &frame)?;
            let received = receive(to)?;
            let (same, padding) = received.split_at_checked(length).unwrap_or((&[], &[]));
            let padded = padding.iter().all(|&byte| byte == 0);
            check!(
                same == frame && padded && received.len() <= length.max(SHORTEST),
                "of {length} bytes came {}: {received:02x?}",
                received.len()
            );
        }
    }
    Ok(())
}

/// Nobody takes what comes; then all that the card has kept comes out in order, and after it the
/// next frame.
fn flood(from: &mut dyn Nic, to: &mut dyn Nic) -> Outcome {
    for number in 0..FLOOD {
        let frame = frame(from.mac(), to.mac(), EXPERIMENT, 100, number as u8);
        // QEMU holds a sender back whose receiver has no room.
        if send_within(from, &frame, HELD_BACK).is_err() {
            break;
        }
    }
    let mut kept = 0;
    while to.has_received() {
        receive(to)?;
        kept += 1;
        check!(kept <= FLOOD, "more frames than were sent");
    }
    check!(kept >= 32, "{kept} frames kept of a flood");
    let last = frame(from.mac(), to.mac(), EXPERIMENT, 777, 0);
    send(from, &last)?;
    let start = time::now();
    while receive(to)? != last {
        check!(time::now() < start + PATIENCE, "nothing after a flood");
    }
    Ok(())
}

/// A card that was stopped receives nothing.
fn quiet(from: &mut dyn Nic, to: &mut dyn Nic) -> Outcome {
    while to.receive().is_some() {}
    to.quiesce();
    for number in 0..8 {
        let frame = frame(from.mac(), to.mac(), EXPERIMENT, 64, number);
        send(from, &frame)?;
    }
    check!(!to.has_received(), "a frame for a card that was stopped");
    from.quiesce();
    Ok(())
}

fn frame(from: [u8; 6], to: [u8; 6], kind: [u8; 2], length: usize, number: u8) -> Vec<u8> {
    let mut frame = vec![0; length];
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    frame[12..HEADER].copy_from_slice(&kind);
    for (at, byte) in frame[HEADER..].iter_mut().enumerate() {
        *byte = (at as u8).wrapping_mul(31) ^ number | 1;
    }
    frame
}

fn send(card: &mut dyn Nic, frame: &[u8]) -> Outcome {
    send_within(card, frame, PATIENCE)
}

fn send_within(card: &mut dyn Nic, frame: &[u8], limit: Micros) -> Outcome {
    let start = time::now();
    loop {
        if let Some(room) = card.transmit() {
            room.send(frame.len(), &mut |buffer| buffer.copy_from_slice(frame));
            return Ok(());
        }
        check!(time::now() < start + limit, "no room to send in {limit}");
    }
}

fn receive(card: &mut dyn Nic) -> Result<Vec<u8>, alloc::string::String> {
    let start = time::now();
    loop {
        if let Some((frame, _)) = card.receive() {
            return Ok(frame.to_vec());
        }
        check!(time::now() < start + PATIENCE, "no frame in {PATIENCE}");
    }
}
