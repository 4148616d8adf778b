//! The network card for a kernel that has panicked.
//!
//! Neighbours: `drivers::probe_nic` registers the card, `agent::last_words` sends through it.
//!
//! Invariant: [`send`] is called by the panic handler only, after which nothing else runs.

use core::ptr::NonNull;

use spin::Once;

use super::nic::Nic;

struct Card(NonNull<dyn Nic>);

// SAFETY: the pointer is followed by the panic handler only, when no other code runs any more.
unsafe impl Send for Card {}
// SAFETY: as above.
unsafe impl Sync for Card {}

static CARD: Once<Card> = Once::new();

/// Remembers the card; it must live as long as the kernel.
pub fn register(card: &'static mut dyn Nic) -> &'static mut dyn Nic {
    let pointer = NonNull::from(&mut *card);
    CARD.call_once(|| Card(pointer));
    card
}

/// Sends one frame, if the card has room. Only for the panic handler.
pub fn send(frame: &[u8]) {
    let Some(card) = CARD.get() else { return };
    // SAFETY: the card is leaked, so it lives; whoever held the exclusive reference has panicked
    // on this single CPU and never goes on. The card may be half changed; at worst its checks
    // panic once more, and the panic handler does not report twice.
    let card = unsafe { &mut *card.0.as_ptr() };
    if let Some(room) = card.transmit() {
        room.send(frame.len(), &mut |buffer| buffer.copy_from_slice(frame));
    }
}
