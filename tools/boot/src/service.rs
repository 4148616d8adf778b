//! The running service: sockets and tasks around the protocol logic.

use crate::config::Config;
use crate::event::Event;
use crate::mac::Mac;
use crate::timeline::{BootRecord, Stage};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Gives nodes their identity. Implemented by the control node.
pub trait Personalities: Send + Sync {
    /// The encoded personality (the content of DHCP option 224) for the machine `mac` in the boot
    /// that chose `boot_epoch`, at the address `ip`.
    ///
    /// Called once per machine and boot epoch: the service keeps the answer for retransmissions
    /// until [`Service::joined`] marks it used, and refuses it from then on. Must not block: it is called
    /// between two packets.
    ///
    /// # Errors
    /// The reason, which is logged and sent to the machine.
    fn personality(&self, mac: Mac, boot_epoch: u64, ip: Ipv4Addr) -> Result<Vec<u8>, Refused>;
}

/// Why a machine does not get a personality.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refused {
    pub reason: String,
}

/// Hears of every step of every boot. Implemented by the control node.
///
/// Called from the service's tasks; must not block.
pub trait TimelineSink: Send + Sync {
    /// A machine reached a stage for the first time in its boot; `record` already contains it.
    fn stage(&self, stage: Stage, record: &BootRecord);
    /// Something an operator should know.
    fn event(&self, event: &Event);
}

/// Why the service cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A value of the configuration is wrong.
    #[error("boot service: {0}")]
    Config(String),
    /// A file that machines will ask for cannot be read.
    #[error("boot service: cannot read {path}: {source}; {fix}")]
    File {
        path: String,
        source: std::io::Error,
        fix: &'static str,
    },
    /// A socket cannot be opened.
    #[error("boot service: cannot open {what}: {source}; {fix}")]
    Socket {
        what: String,
        source: std::io::Error,
        fix: String,
    },
}

/// The running boot service. Dropping it ends its tasks and closes its sockets.
pub struct Service {
    _private: (),
}

impl Service {
    /// Opens the sockets and starts serving. To be called inside a tokio runtime. The HTTP part is
    /// [`Service::router`]; the caller serves it at `config.http`.
    ///
    /// # Errors
    /// [`StartError`], which says what to do next. Router advertisements alone do not stop the start: without
    /// them boots are slower, and [`Event::Degraded`] says so.
    pub fn start(
        config: Config,
        personalities: Arc<dyn Personalities>,
        sink: Arc<dyn TimelineSink>,
    ) -> Result<Service, StartError> {
        let _ = (personalities, sink);
        config.check().map_err(StartError::Config)?;
        Err(StartError::Config(
            "the boot service is not written yet".into(),
        ))
    }

    /// Routes `/boot/...`: iPXE scripts and the image. To be served on the boot network with
    /// `into_make_service_with_connect_info::<SocketAddr>()`, so that denials can name the machine.
    pub fn router(&self) -> axum::Router {
        axum::Router::new()
    }

    /// The node has joined: completes its timeline and marks the key of this boot as used.
    pub fn joined(&self, mac: Mac, boot_epoch: u64, node: u32) {
        let _ = (mac, boot_epoch, node);
    }

    /// The latest boot of every machine seen, by MAC. [`crate::timeline::table`] prints them.
    pub fn timeline(&self) -> Vec<BootRecord> {
        Vec::new()
    }

    /// The address given to a machine, if any.
    pub fn address_of(&self, mac: Mac) -> Option<Ipv4Addr> {
        let _ = mac;
        None
    }
}
