//! How hashes, addresses, epochs and large numbers are written.
//!
//! Key types: [`Hash`], [`Mac`], [`Epoch`] (text), [`Number`] (integer). Neighbours: `apply`,
//! `query`.
//!
//! Invariant: what is read back is what was written; a text in another form is an error of the
//! row, never a default.

use std::fmt::Write;

use rusqlite::Row;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};

/// A number below 2^63; a larger one is written as 2^63 - 1.
#[derive(Debug, Clone, Copy)]
pub struct Number(pub u64);

/// 64 hexadecimal digits.
#[derive(Debug, Clone, Copy)]
pub struct Hash(pub [u8; 32]);

/// `52:54:00:07:00:01`.
#[derive(Debug, Clone, Copy)]
pub struct Mac(pub [u8; 6]);

/// 16 hexadecimal digits.
#[derive(Debug, Clone, Copy)]
pub struct Epoch(pub u64);

/// The number in a column.
pub fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get(column).map(|Number(number)| number)
}

/// The number in a column that may have none.
pub fn optional_number(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<u64>> {
    let number: Option<Number> = row.get(column)?;
    Ok(number.map(|Number(number)| number))
}

impl ToSql for Number {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(i64::try_from(self.0).unwrap_or(i64::MAX).into())
    }
}

impl FromSql for Number {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let number = value.as_i64()?;
        let unsigned = u64::try_from(number).map_err(|_| FromSqlError::OutOfRange(number))?;
        Ok(Number(unsigned))
    }
}

impl ToSql for Hash {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(hex(&self.0, "").into())
    }
}

impl FromSql for Hash {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        bytes(value.as_str()?, 0)
            .map(Hash)
            .ok_or(FromSqlError::InvalidType)
    }
}

impl ToSql for Mac {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(hex(&self.0, ":").into())
    }
}

impl FromSql for Mac {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        bytes(value.as_str()?, 1)
            .map(Mac)
            .ok_or(FromSqlError::InvalidType)
    }
}

impl ToSql for Epoch {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(hex(&self.0.to_be_bytes(), "").into())
    }
}

impl FromSql for Epoch {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let epoch = bytes(value.as_str()?, 0).map(u64::from_be_bytes);
        epoch.map(Epoch).ok_or(FromSqlError::InvalidType)
    }
}

/// Two digits a byte, `between` two bytes.
fn hex(bytes: &[u8], between: &str) -> String {
    let mut text = String::new();
    for byte in bytes {
        if !text.is_empty() {
            text.push_str(between);
        }
        write!(text, "{byte:02x}").expect("a string takes everything");
    }
    text
}

/// The bytes of a text of two digits a byte with `gap` characters between two bytes.
fn bytes<const N: usize>(text: &str, gap: usize) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != N * 2 + N.saturating_sub(1) * gap {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        let at = index * (2 + gap);
        *byte = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
    }
    Some(bytes)
}
