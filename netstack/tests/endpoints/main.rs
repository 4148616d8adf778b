//! The two endpoints against each other and against hostile input, on one wire.

mod agreement;
mod hostile;
mod jobs;
mod joining;
mod keys;
mod log;
mod outlive;
mod ranks;
mod retention;
mod wire_pair;
