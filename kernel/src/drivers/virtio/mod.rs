//! Virtio devices by the `virtio-drivers` crate.
//!
//! `hal` gives the crate memory, `transport` adapts its PCI transport (interrupt vectors, features
//! left out, cheap notification), `buffers` owns the DMA buffers, `net` is the network card.

mod buffers;
mod hal;
pub mod net;
mod transport;
