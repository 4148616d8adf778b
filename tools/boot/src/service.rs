//! The running service: opens the sockets, starts the loops, answers the control node.

use crate::config::Config;
use crate::dhcp;
use crate::event::Event;
use crate::hooks::{Personalities, TimelineSink};
use crate::http;
use crate::http_server;
use crate::lease_file::LeaseFile;
use crate::mac::Mac;
use crate::shared::Shared;
use crate::sockets::{self, RouterSocket};
use crate::tasks::{self, DhcpTask};
use crate::timeline::BootRecord;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::ConnectInfo;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Joins waiting for the DHCP loop. It takes them between any two packets; beyond this a key counts
/// as unused until its machine boots again.
const MAX_JOINS_WAITING: usize = 16_384;

/// A thousand machines switched on together, with some that hang; a machine has one connection, and
/// a few more where its firmware reads pieces side by side. The largest file served at 1 MB/s takes
/// about nine minutes.
const HTTP_LIMITS: http_server::Limits = http_server::Limits {
    connections: 1_024,
    per_address: 16,
    life: Duration::from_secs(900),
};

/// Why the service cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A value of the configuration is wrong.
    #[error("boot service: {0}")]
    Config(String),
    /// A file that machines will ask for cannot be read.
    #[error("boot service: {0}")]
    File(String),
    /// A socket cannot be opened.
    #[error("boot service: cannot open {what}: {source}; {fix}")]
    Socket {
        what: String,
        source: io::Error,
        fix: String,
    },
}

/// The running boot service. Dropping it ends its tasks and closes its sockets.
pub struct Service {
    shared: Arc<Shared>,
    joined: mpsc::Sender<(Mac, u64)>,
    tasks: Vec<JoinHandle<()>>,
}

impl Service {
    /// Opens the sockets and starts serving. To be called inside a tokio runtime. The caller starts
    /// the HTTP part with [`Service::serve_http`].
    ///
    /// # Errors
    /// [`StartError`], which says what to do next. Router advertisements alone do not stop the
    /// start: without them boots are slower, and [`Event::Degraded`] says so.
    pub fn start(
        config: Config,
        personalities: Arc<dyn Personalities>,
        sink: Arc<dyn TimelineSink>,
    ) -> Result<Service, StartError> {
        config.check().map_err(StartError::Config)?;
        let shared = Arc::new(Shared::new(config, sink));
        shared.files.image().map_err(StartError::File)?;
        let config = &shared.config;
        let any = Ipv4Addr::UNSPECIFIED;
        let socket = udp(config, "DHCP", any, 67)?;
        let proxy_socket = config
            .proxy_dhcp
            .then(|| udp(config, "proxy DHCP", any, 4011));
        let tftp_requests = udp(config, "TFTP", any, 69)?;
        let tftp_transfers = udp(config, "TFTP", config.address, 0)?;
        let (joined, joined_receiver) = mpsc::channel(MAX_JOINS_WAITING);
        let mut server = dhcp::Server::new(config);
        let lease_file = config.lease_file.clone().map(LeaseFile::new);
        if let Some(file) = &lease_file {
            restore_leases(&shared, &mut server, file);
        }
        let dhcp_task = DhcpTask {
            shared: shared.clone(),
            server,
            personalities,
            socket,
            proxy_socket: proxy_socket.transpose()?,
            joined: joined_receiver,
            lease_file,
        };
        let mut tasks = vec![
            tokio::spawn(dhcp_task.run()),
            tokio::spawn(tasks::tftp(shared.clone(), tftp_requests, tftp_transfers)),
        ];
        match router_socket(&config.interface) {
            Ok(socket) => tasks.push(tokio::spawn(tasks::advertise(shared.clone(), socket))),
            Err(error) => shared.event(Event::Degraded {
                part: "router advertisements".into(),
                reason: format!(
                    "{error}; iPXE machines will wait 16 s longer: run with CAP_NET_RAW and IPv6 enabled on {}",
                    config.interface
                ),
            }),
        }
        Ok(Service {
            shared,
            joined,
            tasks,
        })
    }

    /// Serves [`Service::router`] at `listener`, which listens at `config.http`, with limits on the
    /// number and the life of connections. Never ends by itself; ending the future ends all
    /// connections.
    pub fn serve_http(&self, listener: TcpListener) -> impl Future<Output = ()> + Send + use<> {
        let router = self.router();
        http_server::serve(listener, HTTP_LIMITS, move |stream, peer| {
            let router = router
                .clone()
                .layer(Extension(ConnectInfo::<SocketAddr>(peer)));
            (stream, router)
        })
    }

    /// Routes `/boot/...`: iPXE scripts and the image. A server other than [`Service::serve_http`]
    /// passes the other end on (`into_make_service_with_connect_info::<SocketAddr>()`), so that
    /// denials can name the machine.
    pub fn router(&self) -> axum::Router {
        http::router(self.shared.clone())
    }

    /// The node has joined: completes its timeline and marks the key of this boot as used. Returns
    /// the record if it is the first time in this boot; the [`TimelineSink`] is not told of it.
    pub fn joined(&self, mac: Mac, boot_epoch: u64, node: u32) -> Option<BootRecord> {
        if self.joined.try_send((mac, boot_epoch)).is_err() {
            tracing::warn!(%mac, "DHCP loop is behind: the node's key is not marked as used");
        }
        let now = self.shared.now();
        self.shared
            .timeline()
            .joined(now, mac, boot_epoch, node)
            .cloned()
    }

    /// The latest boot of every machine seen, by MAC. [`crate::timeline::table`] prints them.
    pub fn timeline(&self) -> Vec<BootRecord> {
        self.shared.timeline().records().cloned().collect()
    }

    /// DHCP packets by what became of them.
    pub fn dhcp_counters(&self) -> dhcp::Counters {
        *self.shared.dhcp_counters()
    }

    /// The address that a machine has in its latest boot.
    pub fn address_of(&self, mac: Mac) -> Option<Ipv4Addr> {
        self.shared
            .timeline()
            .get(mac)
            .and_then(|record| record.address)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Puts the leases of the last run back. A file that cannot be read costs the addresses, not the
/// start.
fn restore_leases(shared: &Shared, server: &mut dhcp::Server, file: &LeaseFile) {
    match file.load() {
        Ok(leases) => {
            let until = shared.now() + shared.config.lease_time;
            server.leases_mut().restore(leases, until);
        }
        Err(error) => shared.event(Event::Degraded {
            part: "lease file".into(),
            reason: format!("{error}; machines may get other addresses than before"),
        }),
    }
}

fn router_socket(interface: &str) -> io::Result<RouterSocket> {
    let switch = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
    // Without the file there is no IPv6 at all, and opening the socket says so.
    if std::fs::read_to_string(switch).is_ok_and(|text| text.trim() == "1") {
        return Err(io::Error::other("IPv6 is disabled"));
    }
    RouterSocket::open(interface)
}

fn udp(
    config: &Config,
    protocol: &str,
    address: Ipv4Addr,
    port: u16,
) -> Result<UdpSocket, StartError> {
    let interface = &config.interface;
    sockets::udp(interface, address, port).map_err(|source| StartError::Socket {
        what: match port {
            0 => format!("a {protocol} socket at {address} on {interface}"),
            _ => format!("{protocol} port {port} on {interface}"),
        },
        fix: socket_fix(&source, config),
        source,
    })
}

/// What to do about a socket that cannot be opened.
fn socket_fix(error: &io::Error, config: &Config) -> String {
    let Config {
        interface,
        address,
        prefix,
        ..
    } = config;
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "run as root or with CAP_NET_BIND_SERVICE and CAP_NET_RAW".into()
        }
        io::ErrorKind::AddrInUse => {
            "another DHCP or TFTP server holds it; `hearth doctor` names it".into()
        }
        io::ErrorKind::AddrNotAvailable => {
            format!(
                "give the interface its address: ip address add {address}/{prefix} dev {interface}"
            )
        }
        _ if error.raw_os_error() == Some(nix::libc::ENODEV) => {
            format!("there is no interface {interface}; `ip link` lists them")
        }
        _ => "`hearth doctor` looks for the cause".into(),
    }
}
