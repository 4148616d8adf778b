//! Sockets bound to the boot network's interface.
//!
//! Everything is bound to the interface (SO_BINDTODEVICE), so that the service never answers on a
//! network it was not told about, and two services can live on one host.

use crate::router_advert;
use nix::libc;
use nix::net::if_;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrIn, sendmsg};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsRawFd;
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// Receive buffer of the DHCP and TFTP sockets: the first packets of some thousand machines
/// switched on together.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// A UDP socket on `address:port`, only for packets of `interface`.
pub(crate) fn udp(interface: &str, address: Ipv4Addr, port: u16) -> io::Result<UdpSocket> {
    UdpSocket::from_std(std_udp(interface, address, port)?)
}

/// The same outside an event loop.
pub(crate) fn std_udp(
    interface: &str,
    address: Ipv4Addr,
    port: u16,
) -> io::Result<std::net::UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.bind_device(Some(interface.as_bytes()))?;
    socket.set_broadcast(true)?;
    // Best effort: the system's limit may be lower.
    let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES);
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::from(SocketAddrV4::new(address, port)))?;
    Ok(socket.into())
}

/// Sends from `source`, also where the interface has several addresses or the destination is the
/// broadcast address.
pub(crate) async fn send_from(
    socket: &UdpSocket,
    source: Ipv4Addr,
    bytes: &[u8],
    to: SocketAddrV4,
) -> io::Result<()> {
    let info = libc::in_pktinfo {
        ipi_ifindex: 0,
        ipi_spec_dst: libc::in_addr {
            s_addr: u32::from_ne_bytes(source.octets()),
        },
        ipi_addr: libc::in_addr { s_addr: 0 },
    };
    let to = SockaddrIn::from(to);
    let send = || {
        let slices = [IoSlice::new(bytes)];
        let control = [ControlMessage::Ipv4PacketInfo(&info)];
        let flags = MsgFlags::empty();
        sendmsg(socket.as_raw_fd(), &slices, &control, flags, Some(&to)).map_err(io::Error::from)
    };
    socket.async_io(Interest::WRITABLE, send).await.map(|_| ())
}

/// The raw ICMPv6 socket for router advertisements. The event loop knows it as a UDP socket: both
/// only receive and send datagrams with IPv6 addresses.
pub(crate) struct RouterSocket {
    socket: UdpSocket,
    interface: u32,
}

impl RouterSocket {
    pub(crate) fn open(interface: &str) -> io::Result<RouterSocket> {
        let index = if_::if_nametoindex(interface)?;
        let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
        socket.bind_device(Some(interface.as_bytes()))?;
        socket.set_multicast_hops_v6(u32::from(router_advert::HOP_LIMIT))?;
        socket.set_multicast_if_v6(index)?;
        socket.set_multicast_loop_v6(false)?;
        socket.join_multicast_v6(&router_advert::ALL_ROUTERS, index)?;
        socket.set_nonblocking(true)?;
        let socket = UdpSocket::from_std(socket.into())?;
        Ok(RouterSocket {
            socket,
            interface: index,
        })
    }

    /// Waits for the next ICMPv6 message, which may be any.
    pub(crate) async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket
            .recv_from(buffer)
            .await
            .map(|(length, _)| length)
    }

    /// Sends an advertisement to all nodes on the link.
    pub(crate) async fn advertise(&self) -> io::Result<()> {
        let to = SocketAddrV6::new(router_advert::ALL_NODES, 0, 0, self.interface);
        self.socket
            .send_to(&router_advert::advertisement(), to)
            .await
            .map(|_| ())
    }
}
