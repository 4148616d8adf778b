//! Unpacks the kernel: raw deflate, which the host tool's [`miniz_oxide`] made.
//!
//! Invariant: nothing is written outside the room given, whatever the packed bytes are.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

/// The packed bytes are no complete deflate stream, or not of the length that was promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

/// Unpacks `packed` into `out`, which must become full exactly where the stream ends.
pub fn unpack(packed: &[u8], out: &mut [u8]) -> Result<(), Damaged> {
    let mut state = DecompressorOxide::new();
    let flags = TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
    let (status, read, written) = decompress(&mut state, packed, out, 0, flags);
    let whole = read == packed.len() && written == out.len();
    if status == TINFLStatus::Done && whole {
        Ok(())
    } else {
        Err(Damaged)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec;

    use miniz_oxide::deflate::compress_to_vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_packed_comes_back(bytes in prop::collection::vec(0_u8..4, 0..3000)) {
            let packed = compress_to_vec(&bytes, 9);
            let mut out = vec![0xee; bytes.len()];
            prop_assert_eq!(unpack(&packed, &mut out), Ok(()));
            prop_assert_eq!(&out, &bytes);
            // Another length than the stream's own, a cut stream and one with something behind it.
            prop_assert_eq!(unpack(&packed, &mut vec![0; bytes.len() + 1]), Err(Damaged));
            if !bytes.is_empty() {
                prop_assert_eq!(unpack(&packed, &mut vec![0; bytes.len() - 1]), Err(Damaged));
            }
            prop_assert_eq!(unpack(&packed[..packed.len() - 1], &mut out), Err(Damaged));
            let longer = [&packed[..], &[0]].concat();
            prop_assert_eq!(unpack(&longer, &mut out), Err(Damaged));
        }

        #[test]
        fn random_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut out = [0; 1000];
            let _ = unpack(&bytes, &mut out);
        }
    }
}
