//! Bytes into the parsers of what comes before a node has a session: personality, launch block.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| netstack_fuzz::parse_personality(input));
