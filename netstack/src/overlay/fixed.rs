//! Fixed-point numbers where the method has reals: the kernel has no floating point.
//!
//! A [`Fixed`] counts billionths, so that every decimal fraction of up to nine places is exact, and
//! with it all figures of the method's published tables.
//!
//! Invariant: no operation here rounds up; a product or quotient is cut to a billionth.

use core::fmt;
use core::ops::{Add, Sub};

/// A real number, in billionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fixed(pub i64);

/// One, in billionths.
const ONE: i64 = 1_000_000_000;
/// Decimal places that fit.
const PLACES: usize = 9;

/// Why a text is no [`Fixed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberError {
    /// Not digits with at most one point; this includes what is not a number (`NaN`) or infinite.
    NotANumber,
    /// More than nine decimal places.
    TooPrecise,
    /// Beyond nine thousand million.
    TooLarge,
}

impl fmt::Display for NumberError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NumberError::NotANumber => "not a number: give digits, as in 0.35",
            NumberError::TooPrecise => "more than nine decimal places: give fewer",
            NumberError::TooLarge => "too large: give less than 9000000000",
        })
    }
}

impl core::error::Error for NumberError {}

impl Fixed {
    /// Nothing.
    pub const ZERO: Fixed = Fixed(0);
    /// One.
    pub const ONE: Fixed = Fixed(ONE);

    /// A number of hundredths.
    pub const fn hundredths(count: i64) -> Fixed {
        Fixed(count * (ONE / 100))
    }

    /// A whole number, saturating.
    pub const fn whole(count: i64) -> Fixed {
        Fixed(count.saturating_mul(ONE))
    }

    /// The product.
    pub fn times(self, other: Fixed) -> Fixed {
        narrow(i128::from(self.0) * i128::from(other.0) / i128::from(ONE))
    }

    /// The quotient. Invariant: `other` is not zero.
    pub fn over(self, other: Fixed) -> Fixed {
        narrow(i128::from(self.0) * i128::from(ONE) / i128::from(other.0))
    }

    /// The nearest number from 0 to 1.
    pub fn clamp_unit(self) -> Fixed {
        self.clamp(Fixed::ZERO, Fixed::ONE)
    }

    /// Reads a decimal number that is not negative.
    ///
    /// # Errors
    /// [`NumberError`] says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Fixed, NumberError> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(part) {
            return Err(NumberError::NotANumber);
        }
        if part.len() > PLACES {
            return Err(NumberError::TooPrecise);
        }
        let whole: i64 = whole.parse().map_err(|_| NumberError::TooLarge)?;
        let scale = 10_i64.pow((PLACES - part.len()) as u32);
        let part: i64 = part.parse().map_err(|_| NumberError::TooPrecise)?;
        let whole = whole.checked_mul(ONE).ok_or(NumberError::TooLarge)?;
        let sum = whole.checked_add(part * scale);
        sum.map(Fixed).ok_or(NumberError::TooLarge)
    }
}

fn narrow(wide: i128) -> Fixed {
    Fixed(wide.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
}

impl Add for Fixed {
    type Output = Fixed;
    fn add(self, other: Fixed) -> Fixed {
        Fixed(self.0.saturating_add(other.0))
    }
}

impl Sub for Fixed {
    type Output = Fixed;
    fn sub(self, other: Fixed) -> Fixed {
        Fixed(self.0.saturating_sub(other.0))
    }
}

impl core::iter::Sum for Fixed {
    fn sum<I: Iterator<Item = Fixed>>(numbers: I) -> Fixed {
        numbers.fold(Fixed::ZERO, Add::add)
    }
}

impl fmt::Display for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let size = self.0.unsigned_abs();
        let (whole, part) = (size / ONE as u64, size % ONE as u64);
        let digits = alloc::format!("{part:09}");
        match digits.trim_end_matches('0') {
            "" => write!(f, "{sign}{whole}"),
            part => write!(f, "{sign}{whole}.{part}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn decimals_are_exact() {
        for text in ["0", "0.35", "18", "0.000000001", "9000000000.5"] {
            assert_eq!(Fixed::parse(text).unwrap().to_string(), text);
        }
        let product = Fixed::hundredths(35).times(Fixed::hundredths(85));
        assert_eq!(product.to_string(), "0.2975");
        assert_eq!(
            Fixed::hundredths(10)
                .over(Fixed::hundredths(20))
                .to_string(),
            "0.5"
        );
        assert_eq!((Fixed::ZERO - Fixed::hundredths(5)).to_string(), "-0.05");
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in ["", "NaN", "inf", "-1", "1e3", "1.", ".5", "0x1"] {
            assert_eq!(Fixed::parse(text), Err(NumberError::NotANumber), "{text}");
        }
        assert_eq!(Fixed::parse("0.1234567891"), Err(NumberError::TooPrecise));
        assert_eq!(Fixed::parse("99999999999"), Err(NumberError::TooLarge));
    }
}
