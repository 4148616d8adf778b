//! Router advertisements that say "there is no router and nothing to configure".
//!
//! iPXE configures IPv4 and IPv6 side by side and boots when both have come to an end. Without an
//! answer to its router solicitations the IPv6 half ends only after 16 seconds. An advertisement
//! with a lifetime of zero, no prefix and neither the managed nor the other-configuration flag (RFC
//! 4861, 4.2) ends it at once and makes no host use this machine as its router.

/// Multicast group of all routers on a link, to which solicitations are sent.
pub const ALL_ROUTERS: std::net::Ipv6Addr = std::net::Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// Multicast group of all nodes on a link, to which advertisements are sent.
pub const ALL_NODES: std::net::Ipv6Addr = std::net::Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Hop limit that solicitations and advertisements must have: it proves that they come from this
/// link (RFC 4861, 6.1).
pub const HOP_LIMIT: u8 = 255;

const SOLICITATION: u8 = 133;
const ADVERTISEMENT: u8 = 134;
/// Shortest solicitation: type, code, checksum, reserved.
const MIN_SOLICITATION_BYTES: usize = 8;

/// Whether an ICMPv6 message is a valid router solicitation.
pub fn is_solicitation(message: &[u8]) -> bool {
    let [SOLICITATION, 0, ..] = message else {
        return false;
    };
    if message.len() < MIN_SOLICITATION_BYTES {
        return false;
    }
    // Options are type, length in units of 8 bytes, data; a length of zero is invalid.
    let mut rest = &message[MIN_SOLICITATION_BYTES..];
    while !rest.is_empty() {
        let length = rest.get(1).map_or(0, |units| usize::from(*units) * 8);
        match rest.get(length..) {
            Some(after) if length > 0 => rest = after,
            _ => return false,
        }
    }
    true
}

/// The advertisement. The checksum stays zero: the operating system fills it in for ICMPv6 sockets.
pub fn advertisement() -> [u8; 16] {
    let mut message = [0; 16];
    message[0] = ADVERTISEMENT;
    // Current hop limit 0 (unspecified), flags 0, router lifetime 0, reachable and retransmission
    // time 0.
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_advertisement_promises_nothing() {
        let message = advertisement();
        assert_eq!(message[0], 134);
        assert!(message[1..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn solicitations_are_recognised() {
        let bare = [133, 0, 0, 0, 0, 0, 0, 0];
        assert!(is_solicitation(&bare));
        let with_address = [&bare[..], &[1, 1, 0x52, 0x54, 0, 7, 0, 0]].concat();
        assert!(is_solicitation(&with_address));
        assert!(!is_solicitation(&bare[..7]));
        assert!(!is_solicitation(&advertisement()));
        assert!(
            !is_solicitation(&[&bare[..], &[1, 0]].concat()),
            "option of length zero"
        );
        assert!(
            !is_solicitation(&[&bare[..], &[1, 2, 0, 0]].concat()),
            "option cut short"
        );
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = is_solicitation(&bytes);
            let _ = is_solicitation(&[&[133, 0], &bytes[..]].concat());
        }
    }
}
