//! The two endpoints against each other and against hostile input, on one wire.

mod hostile;
mod pair;
mod wire_pair;
