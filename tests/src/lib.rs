//! What tests of several crates share.
//!
//! - [`browser`]: a headless Chromium, for the page of the control node with fake nodes and with
//!   real ones.
//!
//! Invariant: nothing here knows what is tested.

pub mod browser;
