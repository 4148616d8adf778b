//! Hostile datagrams into both ends of a rank's calls on files.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| netstack_fuzz::attack_files(input));
