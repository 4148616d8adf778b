//! The boot service: everything a diskless machine asks for between power-on and its first own
//! datagram.
//!
//! | module | what it answers |
//! |---|---|
//! | `dhcp` | addresses, boot files by firmware, the node's personality (sans-IO) |
//! | `tftp` | the first small file, and the image where firmware speaks nothing else (sans-IO) |
//! | `http` | the iPXE script and the image |
//! | `router_advert` | router solicitations, so that firmware does not wait for IPv6 |
//! | [`timeline`] | how far each machine came in its boot, and when |
//! | [`doctor`] | what on this host or wire would stop a boot |
//! | [`service`] | the sockets and tasks around all of them |
//!
//! The control node owns one [`Service`], merges [`Service::router`] into its HTTP server on the
//! boot network, hands out personalities through [`Personalities`] and hears of every step through
//! [`TimelineSink`].
//!
//! Invariant: `dhcp` and `tftp` take the time as an argument and touch no socket, so whole boots
//! of many machines are tested without a network.

pub mod config;
pub mod dhcp;
pub mod doctor;
pub mod event;
mod files;
pub mod hooks;
mod http;
pub mod http_server;
mod lease_file;
pub mod mac;
pub mod router_advert;
pub mod service;
mod shared;
mod sockets;
mod tasks;
pub mod tftp;
pub mod timeline;

pub use config::{Config, FixedLease, ImageTransport, Leases, OtherSystem};
pub use doctor::{DoctorOptions, Finding, doctor};
pub use event::{Event, Severity};
pub use files::check_image;
pub use hooks::{Personalities, Refused, TimelineSink};
pub use mac::Mac;
pub use service::{Service, StartError};
pub use timeline::{BootRecord, Firmware, Report, Stage, StageTimes};
