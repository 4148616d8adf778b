//! What can be sent, and what can be reduced.

/// A type whose values can be sent as their bytes.
///
/// # Safety
/// Every value has no byte that is not initialized, and every combination of bytes is a value.
pub unsafe trait Data: Copy + 'static {}

/// How values of several ranks become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    /// Their sum; of integers modulo 2^bits.
    Sum,
    /// Their product; of integers modulo 2^bits.
    Product,
    /// The smallest.
    Minimum,
    /// The largest.
    Maximum,
}

/// A type that can be reduced.
pub trait Number: Data {
    /// One value made of two. The ranks' values are combined in an order that depends on the number
    /// of ranks and of values only, so that every run gives the same result, to the last bit.
    fn combine(how: Combine, a: Self, b: Self) -> Self;
}

// SAFETY: arrays have no padding.
unsafe impl<T: Data, const N: usize> Data for [T; N] {}

macro_rules! integers {
    ($($name:ty)*) => { $(
        // SAFETY: integers have no padding and all combinations of bits.
        unsafe impl Data for $name {}

        impl Number for $name {
            fn combine(how: Combine, a: Self, b: Self) -> Self {
                match how {
                    Combine::Sum => a.wrapping_add(b),
                    Combine::Product => a.wrapping_mul(b),
                    Combine::Minimum => a.min(b),
                    Combine::Maximum => a.max(b),
                }
            }
        }
    )* };
}

macro_rules! floats {
    ($($name:ty)*) => { $(
        // SAFETY: floating-point numbers have no padding and all combinations of bits.
        unsafe impl Data for $name {}

        impl Number for $name {
            fn combine(how: Combine, a: Self, b: Self) -> Self {
                match how {
                    Combine::Sum => a + b,
                    Combine::Product => a * b,
                    Combine::Minimum => a.min(b),
                    Combine::Maximum => a.max(b),
                }
            }
        }
    )* };
}

integers! { u8 u16 u32 u64 usize i8 i16 i32 i64 isize }
floats! { f32 f64 }

/// Combines `from` into `into`, value by value.
pub(crate) fn combine_into<T: Number>(how: Combine, into: &mut [T], from: &[T]) {
    for (into, from) in into.iter_mut().zip(from) {
        *into = T::combine(how, *into, *from);
    }
}
