//! Hostile datagrams into the ranks of a job.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| netstack_fuzz::attack_exchange(input));
