//! The network card for a kernel that has panicked.
//!
//! Neighbours: `net::cards` registers the card in use, `agent::last_words` sends through it.
//!
//! Invariant: [`send`] is called by the panic handler only, after which nothing else runs.

use core::ptr::NonNull;

use spin::Mutex;

use super::nic::Nic;

#[derive(Clone, Copy)]
struct Card(NonNull<dyn Nic>);

// SAFETY: the pointer is followed by the panic handler only, when no other code runs any more.
unsafe impl Send for Card {}
static CARD: Mutex<Option<Card>> = Mutex::new(None);

/// Remembers the card, in place of another; it lives as long as the kernel.
pub fn register(card: &mut &'static mut dyn Nic) {
    *CARD.lock() = Some(Card(NonNull::from(&mut **card)));
}

/// Sends one frame, if the card has room. Only for the panic handler.
pub fn send(frame: &[u8]) {
    let Some(card) = CARD.try_lock().and_then(|card| *card) else {
        return;
    };
    // SAFETY: the card is leaked, so it lives; whoever held the exclusive reference has panicked
    // on this single CPU and never goes on. The card may be half changed; at worst its checks
    // panic once more, and the panic handler does not report twice.
    let card = unsafe { &mut *card.0.as_ptr() };
    if let Some(room) = card.transmit() {
        room.send(frame.len(), &mut |buffer| buffer.copy_from_slice(frame));
    }
}
