//! Virtio devices by the `virtio-drivers` crate.
//!
//! `hal` gives the crate memory, `transport` adapts its PCI transport (interrupt vectors, features
//! left out, cheap notification), `legacy` is the one of cards from before 1.0, `net` is the
//! network card.

mod hal;
mod legacy;
pub mod net;
mod transport;
