//! Hostile datagrams into the control node's endpoint.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| netstack_fuzz::attack_control(input));
