//! TFTP packets.

/// Longest request looked at; real ones have about 100 bytes.
const MAX_REQUEST_BYTES: usize = 1_024;
/// Longest file name and option kept.
const MAX_TEXT_BYTES: usize = 255;

/// TFTP error codes (RFC 1350, appendix; RFC 2347).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum ErrorCode {
    Undefined = 0,
    FileNotFound = 1,
    AccessViolation = 2,
    IllegalOperation = 4,
    UnknownTransfer = 5,
    OptionRefused = 8,
}

/// Options of a read request that the server knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub block_bytes: Option<u16>,
    /// The client asks for the size (its own value is always 0).
    pub size: bool,
    pub timeout_seconds: Option<u8>,
    pub window_blocks: Option<u16>,
}

/// What a client sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    Read {
        file: String,
        octet: bool,
        options: Options,
    },
    Write,
    Ack {
        block: u16,
    },
    Error {
        code: u16,
        message: String,
    },
}

/// Parses one datagram; `None` for anything a client does not send.
pub fn parse(bytes: &[u8]) -> Option<Packet> {
    let (opcode, rest) = bytes.split_first_chunk::<2>()?;
    match u16::from_be_bytes(*opcode) {
        1 => parse_read(rest),
        2 => Some(Packet::Write),
        4 => {
            let block = rest.first_chunk::<2>()?;
            Some(Packet::Ack {
                block: u16::from_be_bytes(*block),
            })
        }
        5 => {
            let (code, text) = rest.split_first_chunk::<2>()?;
            let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
            let text = &text[..text.len().min(MAX_TEXT_BYTES)];
            let message = String::from_utf8_lossy(text).into_owned();
            Some(Packet::Error {
                code: u16::from_be_bytes(*code),
                message,
            })
        }
        _ => None,
    }
}

fn parse_read(bytes: &[u8]) -> Option<Packet> {
    // Every text ends in a zero byte, the last one too.
    let texts = bytes
        .get(..bytes.len().min(MAX_REQUEST_BYTES))?
        .strip_suffix(&[0])?;
    let mut texts = texts.split(|byte| *byte == 0).map(|text| {
        std::str::from_utf8(text)
            .ok()
            .filter(|text| text.len() <= MAX_TEXT_BYTES)
    });
    let file = texts.next()??.to_owned();
    let octet = texts.next()??.eq_ignore_ascii_case("octet");
    let mut options = Options::default();
    while let (Some(name), Some(value)) = (texts.next(), texts.next()) {
        let (Some(name), Some(value)) = (name, value) else {
            continue;
        };
        match name.to_ascii_lowercase().as_str() {
            "blksize" => options.block_bytes = value.parse().ok().filter(|bytes| *bytes >= 8),
            "tsize" => options.size = true,
            "timeout" => {
                options.timeout_seconds = value.parse().ok().filter(|seconds| *seconds >= 1);
            }
            "windowsize" => {
                options.window_blocks = value.parse().ok().filter(|blocks| *blocks >= 1);
            }
            _ => {}
        }
    }
    Some(Packet::Read {
        file,
        octet,
        options,
    })
}

/// DATA.
pub fn data(block: u16, bytes: &[u8]) -> Vec<u8> {
    let mut packet = Vec::with_capacity(4 + bytes.len());
    packet.extend([0, 3]);
    packet.extend(block.to_be_bytes());
    packet.extend(bytes);
    packet
}

/// OACK: the options accepted, with their values.
pub fn option_ack(options: &[(&str, u64)]) -> Vec<u8> {
    let mut packet = vec![0, 6];
    for (name, value) in options {
        packet.extend(name.bytes());
        packet.push(0);
        packet.extend(value.to_string().bytes());
        packet.push(0);
    }
    packet
}

/// ERROR.
pub fn error(code: ErrorCode, message: &str) -> Vec<u8> {
    let mut packet = vec![0, 5];
    packet.extend((code as u16).to_be_bytes());
    packet.extend(
        message
            .bytes()
            .filter(|byte| *byte != 0)
            .take(MAX_TEXT_BYTES),
    );
    packet.push(0);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_requests_with_options() {
        let bytes =
            b"\0\x01hearth.efi\0OCTET\0blksize\x001468\0TSIZE\x000\0windowsize\x004\0multicast\0\0";
        let options = Options {
            block_bytes: Some(1468),
            size: true,
            timeout_seconds: None,
            window_blocks: Some(4),
        };
        let file = "hearth.efi".to_owned();
        assert_eq!(
            parse(bytes),
            Some(Packet::Read {
                file,
                octet: true,
                options
            })
        );
    }

    #[test]
    fn refuses_what_is_cut_short() {
        for bytes in [
            &b""[..],
            b"\0",
            b"\0\x01",
            b"\0\x01file",
            b"\0\x01file\0",
            b"\0\x01file\0octet",
            b"\0\x04\0",
        ] {
            assert_eq!(parse(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn senseless_values_count_as_absent() {
        let bytes = b"\0\x01f\0octet\0blksize\x000\0windowsize\x000\0timeout\x00x\0";
        let Some(Packet::Read { options, .. }) = parse(bytes) else {
            panic!()
        };
        assert_eq!(options, Options::default());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..1200), opcode in 0u8..8) {
            let _ = parse(&bytes);
            let _ = parse(&[&[0, opcode], &bytes[..]].concat());
        }
    }
}
