//! Bytes to [`Request`], once, at the edge.
//!
//! The fixed header is read by dhcproto. Its option decoder is not used on requests: it stops at
//! the first option it dislikes (a host name that is not UTF-8 would hide the message type of a
//! firmware that is otherwise fine) and asserts on lengths that a hostile packet chooses. The walk
//! here keeps the options that the service acts on and checks their lengths.

use super::option;
use crate::mac::Mac;
use dhcproto::v4::{self, HType, MessageType, Opcode};
use dhcproto::{Decodable, Decoder};
use std::net::Ipv4Addr;

/// Fixed header and magic cookie (RFC 2131, section 2).
const HEADER_BYTES: usize = 240;
const MAGIC_COOKIE: [u8; 4] = [99, 130, 83, 99];
/// Where the header's `sname` and `file` fields are; option 52 puts options there.
const SNAME: std::ops::Range<usize> = 44..108;
const FILE: std::ops::Range<usize> = 108..236;
/// Longest packet looked at: an Ethernet frame's worth, with room for jumbo frames.
pub const MAX_PACKET_BYTES: usize = 9_000;
/// Longest value kept of one option, after joining its parts (RFC 3396).
const MAX_VALUE_BYTES: usize = 1_024;

/// Why a packet is not a request to this service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("shorter than a DHCP header, or longer than any")]
    Length,
    #[error("no DHCP magic cookie")]
    Cookie,
    #[error("the header cannot be decoded")]
    Header,
    #[error("a reply, not a request")]
    NotARequest,
    #[error("no Ethernet address of a machine")]
    HardwareAddress,
    #[error("no DHCP message type (plain BOOTP)")]
    MessageType,
}

/// A client's packet, reduced to what the service acts on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub kind: MessageType,
    pub mac: Mac,
    pub xid: u32,
    /// The client cannot take unicast before it has an address.
    pub broadcast: bool,
    pub ciaddr: Ipv4Addr,
    pub giaddr: Ipv4Addr,
    /// Option 50.
    pub requested: Option<Ipv4Addr>,
    /// Option 54.
    pub server: Option<Ipv4Addr>,
    /// Option 60, as sent.
    pub vendor_class: Vec<u8>,
    /// Option 77, as sent.
    pub user_class: Vec<u8>,
    /// Option 93, the first of the list.
    pub architecture: Option<u16>,
    /// Option 97, echoed to the client when present.
    pub machine_id: Option<Vec<u8>>,
    /// Option 175, present only in iPXE.
    pub ipxe: Option<Vec<u8>>,
    /// Option 225.
    pub boot_epoch: Option<u64>,
}

/// Parses one datagram.
///
/// # Errors
/// [`ParseError`]; options with a wrong length are passed over instead.
pub fn parse(bytes: &[u8]) -> Result<Request, ParseError> {
    if bytes.len() < HEADER_BYTES || bytes.len() > MAX_PACKET_BYTES {
        return Err(ParseError::Length);
    }
    let (header, tail) = bytes.split_at(HEADER_BYTES);
    if header[HEADER_BYTES - 4..] != MAGIC_COOKIE {
        return Err(ParseError::Cookie);
    }
    let message = v4::Message::decode(&mut Decoder::new(header)).map_err(|_| ParseError::Header)?;
    if message.opcode() != Opcode::BootRequest {
        return Err(ParseError::NotARequest);
    }
    let mac = station(&message)?;
    let mut options = Options::default();
    let overload = options.walk(tail);
    if overload & 1 != 0 {
        options.walk(&header[FILE]);
    }
    if overload & 2 != 0 {
        options.walk(&header[SNAME]);
    }
    let kind = options.kind.ok_or(ParseError::MessageType)?;
    Ok(Request {
        kind,
        mac,
        xid: message.xid(),
        broadcast: message.flags().broadcast(),
        ciaddr: message.ciaddr(),
        giaddr: message.giaddr(),
        requested: address(&options.requested),
        server: address(&options.server),
        architecture: options
            .architecture
            .get(..2)
            .map(|b| u16::from_be_bytes([b[0], b[1]])),
        boot_epoch: options
            .boot_epoch
            .as_slice()
            .try_into()
            .ok()
            .map(u64::from_be_bytes),
        machine_id: Some(options.machine_id).filter(|id| id.len() == 17),
        vendor_class: options.vendor_class,
        user_class: options.user_class,
        ipxe: options.ipxe,
    })
}

fn station(message: &v4::Message) -> Result<Mac, ParseError> {
    let ethernet = message.htype() == HType::Eth && message.hlen() == 6;
    if !ethernet {
        return Err(ParseError::HardwareAddress);
    }
    let bytes: [u8; 6] = message
        .chaddr()
        .try_into()
        .map_err(|_| ParseError::HardwareAddress)?;
    Some(Mac(bytes))
        .filter(|mac| mac.is_station())
        .ok_or(ParseError::HardwareAddress)
}

fn address(value: &[u8]) -> Option<Ipv4Addr> {
    let bytes: [u8; 4] = value.try_into().ok()?;
    Some(Ipv4Addr::from(bytes)).filter(|address| !address.is_unspecified())
}

/// The options kept; several options of one number are joined (RFC 3396).
#[derive(Default)]
struct Options {
    kind: Option<MessageType>,
    requested: Vec<u8>,
    server: Vec<u8>,
    vendor_class: Vec<u8>,
    user_class: Vec<u8>,
    architecture: Vec<u8>,
    machine_id: Vec<u8>,
    boot_epoch: Vec<u8>,
    ipxe: Option<Vec<u8>>,
}

impl Options {
    /// Reads options until the end mark or the end of `bytes`; returns the overload bits (option
    /// 52).
    fn walk(&mut self, bytes: &[u8]) -> u8 {
        let mut overload = 0;
        let mut rest = bytes;
        while let Some((&code, after)) = rest.split_first() {
            match code {
                0 => rest = after,
                255 => break,
                _ => {
                    let Some((&length, after)) = after.split_first() else {
                        break;
                    };
                    let Some((value, after)) = after.split_at_checked(usize::from(length)) else {
                        break;
                    };
                    rest = after;
                    match (code, value) {
                        (52, [bits]) => overload = *bits,
                        _ => self.keep(code, value),
                    }
                }
            }
        }
        overload
    }

    fn keep(&mut self, code: u8, value: &[u8]) {
        let kept = match code {
            53 => {
                if let [kind] = value {
                    self.kind = Some(MessageType::from(*kind));
                }
                return;
            }
            50 => &mut self.requested,
            54 => &mut self.server,
            77 => &mut self.user_class,
            93 => &mut self.architecture,
            97 => &mut self.machine_id,
            option::VENDOR_CLASS => &mut self.vendor_class,
            option::IPXE => self.ipxe.get_or_insert_default(),
            option::BOOT_EPOCH => &mut self.boot_epoch,
            _ => return,
        };
        if kept.len() + value.len() <= MAX_VALUE_BYTES {
            kept.extend_from_slice(value);
        }
    }
}

/// What the doctor needs of another server's reply: its kind, transaction and server (option 54,
/// else `siaddr`).
pub fn parse_offer(bytes: &[u8]) -> Option<(u32, Ipv4Addr)> {
    let header = bytes.get(..HEADER_BYTES)?;
    if header[HEADER_BYTES - 4..] != MAGIC_COOKIE {
        return None;
    }
    let message = v4::Message::decode(&mut Decoder::new(header)).ok()?;
    let mut options = Options::default();
    options.walk(&bytes[HEADER_BYTES..]);
    let offered = options.kind == Some(MessageType::Offer);
    let server = address(&options.server).unwrap_or(message.siaddr());
    (message.opcode() == Opcode::BootReply && offered).then_some((message.xid(), server))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A DISCOVER with the given option bytes after the message type.
    fn discover(options: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[..3].copy_from_slice(&[1, 1, 6]);
        bytes[4..8].copy_from_slice(&0x1234_5678u32.to_be_bytes());
        bytes[28..34].copy_from_slice(&[0x52, 0x54, 0, 7, 0, 1]);
        bytes[236..240].copy_from_slice(&MAGIC_COOKIE);
        bytes.extend([53, 1, 1]);
        bytes.extend(options);
        bytes.push(255);
        bytes
    }

    #[test]
    fn reads_what_firmware_sends() {
        let mut options = vec![60, 9];
        options.extend(b"PXEClient");
        options.extend([
            93, 2, 0, 7, 175, 3, 0x13, 1, 1, 225, 8, 1, 2, 3, 4, 5, 6, 7, 8,
        ]);
        let request = parse(&discover(&options)).unwrap();
        assert_eq!(request.kind, MessageType::Discover);
        assert_eq!(request.mac, Mac([0x52, 0x54, 0, 7, 0, 1]));
        assert_eq!(request.xid, 0x1234_5678);
        assert_eq!(request.vendor_class, b"PXEClient");
        assert_eq!(request.architecture, Some(7));
        assert_eq!(request.ipxe.as_deref(), Some(&[0x13, 1, 1][..]));
        assert_eq!(request.boot_epoch, Some(0x0102_0304_0506_0708));
    }

    #[test]
    fn a_bad_option_does_not_hide_the_next() {
        // Host name in Latin-1, rapid commit with a value, an FQDN of no bytes, a short address.
        let options = [12, 1, 0xe4, 80, 1, 1, 81, 0, 50, 1, 9, 93, 2, 0, 0];
        let request = parse(&discover(&options)).unwrap();
        assert_eq!(request.architecture, Some(0));
        assert_eq!(request.requested, None);
    }

    #[test]
    fn options_in_the_file_field_are_read() {
        let mut bytes = discover(&[52, 1, 1]);
        bytes[FILE.start..FILE.start + 7].copy_from_slice(&[50, 4, 10, 0, 0, 9, 255]);
        assert_eq!(
            parse(&bytes).unwrap().requested,
            Some(Ipv4Addr::new(10, 0, 0, 9))
        );
    }

    #[test]
    fn other_packets_are_named() {
        assert_eq!(parse(&[]), Err(ParseError::Length));
        let mut bytes = discover(&[]);
        bytes[0] = 2;
        assert_eq!(parse(&bytes), Err(ParseError::NotARequest));
        bytes[0] = 1;
        bytes[28] = 1;
        assert_eq!(parse(&bytes), Err(ParseError::HardwareAddress));
        bytes[28] = 2;
        bytes[2] = 16;
        assert_eq!(parse(&bytes), Err(ParseError::HardwareAddress));
        bytes[2] = 6;
        bytes[236] = 0;
        assert_eq!(parse(&bytes), Err(ParseError::Cookie));
        bytes[236] = 99;
        bytes[240] = 0;
        assert_eq!(parse(&bytes), Err(ParseError::MessageType));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..700)) {
            let _ = parse(&bytes);
            let _ = parse_offer(&bytes);
        }

        #[test]
        fn no_options_panic(
            options in prop::collection::vec(any::<u8>(), 0..600),
            header in prop::collection::vec(any::<u8>(), 236),
            keep_header in any::<bool>(),
        ) {
            let mut bytes = discover(&options);
            if !keep_header {
                bytes[3..236].copy_from_slice(&header[3..]);
            }
            let _ = parse(&bytes);
            let _ = parse_offer(&bytes);
        }
    }
}
