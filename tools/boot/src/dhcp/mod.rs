//! DHCP for machines that boot: addresses, boot files by firmware, personalities.
//!
//! Key types: [`Server`] takes packets and gives replies ([`Server::handle`]); [`packet`] turns
//! bytes into a [`packet::Request`] at the edge; [`client`] says what asked; [`leases`] who has
//! which address. The sockets are in [`crate::service`].
//!
//! After RFC 2131 (protocol), 2132 (options), 4578 (PXE options 93, 94, 97), 3004 (user class)
//! and the PXE 2.1 specification (proxy DHCP, option 43).
//!
//! Invariant: no clock, no socket, no randomness here; whatever a packet contains, the answer is a
//! reply or a counter, never a panic.

pub mod client;
mod issue;
pub mod leases;
mod notice;
pub mod packet;
mod reply;
mod server;
#[cfg(test)]
mod tests;

pub use notice::Notice;
pub(crate) use reply::doctor_discover;
pub use server::{Counters, Port, Reply, Server};

/// DHCP option numbers that the packet library has no name for, or that are sent as raw bytes.
pub mod option {
    /// PXE and HTTP firmware, kernels and the doctor say who they are.
    pub const VENDOR_CLASS: u8 = 60;
    /// iPXE's own encapsulated options.
    pub const IPXE: u8 = 175;
    /// Site option: the node's personality, service to kernel.
    pub const PERSONALITY: u8 = netstack::personality::DHCP_OPTION;
    /// Site option: the boot epoch, kernel to service; 8 bytes, big-endian.
    pub const BOOT_EPOCH: u8 = netstack::personality::EPOCH_OPTION;
}

/// Start of the vendor class of a Hearth kernel; its version follows.
pub const KERNEL_CLASS: &str = netstack::personality::VENDOR_CLASS_PREFIX;

/// Vendor class of the doctor's DISCOVER. This service does not answer it.
pub const DOCTOR_CLASS: &str = "hearth-doctor";
