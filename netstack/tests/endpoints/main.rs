//! The two endpoints against each other and against hostile input, on one wire.

mod hostile;
mod jobs;
mod joining;
mod retention;
mod wire_pair;
