//! A node's values of one tick as bytes.
//!
//! A row is a head (number of values, whether any is missing, whether it is a key row), a bitmap of
//! the values present where some are missing, and for each value present its difference to the
//! node's value before, as a zigzag variable-length integer of 7 bits a byte (Protocol Buffers,
//! "Encoding": Base 128 Varints, ZigZag). In a key row differences are to zero. The first row of a
//! node in every minute is a key row, so a reader goes back a minute at most.
//!
//! Invariant: every value of an `i64` comes back as it was, whatever the order; bytes that no
//! encoder wrote give `None`, never a panic or an allocation beyond [`crate::METRICS_MAX`].

use crate::METRICS_MAX;

/// Appends `value` in 7 bits a byte, the lowest first.
pub fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes an integer off the front of `bytes`.
pub fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for (index, &byte) in bytes.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        if index == 9 && bits > 1 {
            return None;
        }
        value |= bits << (7 * index);
        if byte < 0x80 {
            *bytes = &bytes[index + 1..];
            return Some(value);
        }
    }
    None
}

/// Small numbers of either sign as small numbers.
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The reverse of [`zigzag`].
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Appends a row. `base` holds the node's values before it and then those after it; a key row
/// begins with none.
pub fn encode(values: &[Option<i64>], base: &mut Vec<i64>, key: bool, out: &mut Vec<u8>) {
    if key {
        base.clear();
    }
    base.resize(values.len().max(base.len()), 0);
    let sparse = values.iter().any(Option::is_none);
    put_varint(
        (values.len() as u64) << 2 | u64::from(sparse) << 1 | u64::from(key),
        out,
    );
    if sparse {
        for eight in values.chunks(8) {
            let bit = |(index, value): (usize, &Option<i64>)| u8::from(value.is_some()) << index;
            out.push(eight.iter().enumerate().map(bit).sum());
        }
    }
    for (value, base) in values.iter().zip(base) {
        if let Some(value) = *value {
            put_varint(zigzag(value.wrapping_sub(*base)), out);
            *base = value;
        }
    }
}

/// Decodes a row after the ones before it: `base` as for [`encode`], `values` gets the row. `None`
/// for bytes that are no row; a row that is no key row needs the `base` of its minute.
pub fn decode(mut bytes: &[u8], base: &mut Vec<i64>, values: &mut Vec<Option<i64>>) -> Option<()> {
    let bytes = &mut bytes;
    let head = take_varint(bytes)?;
    let count = usize::try_from(head >> 2).ok()?;
    if count > METRICS_MAX {
        return None;
    }
    if head & 1 == 1 {
        base.clear();
    }
    base.resize(count.max(base.len()), 0);
    let bitmap = if head & 2 == 2 {
        let (bitmap, rest) = bytes.split_at_checked(count.div_ceil(8))?;
        *bytes = rest;
        Some(bitmap)
    } else {
        None
    };
    values.clear();
    for index in 0..count {
        if bitmap.is_some_and(|bitmap| bitmap[index / 8] >> (index % 8) & 1 == 0) {
            values.push(None);
            continue;
        }
        base[index] = base[index].wrapping_add(unzigzag(take_varint(bytes)?));
        values.push(Some(base[index]));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_come_back(rows in proptest::collection::vec(
            (any::<bool>(), proptest::collection::vec(any::<Option<i64>>(), 0..40)), 1..20,
        )) {
            let (mut write, mut read) = (Vec::new(), Vec::new());
            let mut values = Vec::new();
            for (key, row) in rows {
                let mut bytes = Vec::new();
                encode(&row, &mut write, key, &mut bytes);
                prop_assert!(decode(&bytes, &mut read, &mut values).is_some());
                prop_assert_eq!(&values, &row);
            }
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut values = Vec::new();
            let _ = decode(&bytes, &mut Vec::new(), &mut values);
            prop_assert!(values.len() <= METRICS_MAX);
        }
    }

    #[test]
    fn what_does_not_change_takes_a_byte() {
        let row = [Some(5), Some(i64::MAX), None, Some(-3)];
        let (mut base, mut first, mut second) = (Vec::new(), Vec::new(), Vec::new());
        encode(&row, &mut base, true, &mut first);
        encode(&row, &mut base, false, &mut second);
        assert_eq!(second, [4 << 2 | 2, 0b1011, 0, 0, 0]);
    }
}
