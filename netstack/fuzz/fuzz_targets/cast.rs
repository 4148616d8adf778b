//! Hostile datagrams into the stations of a cast, and bytes into a connection table.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    netstack_fuzz::attack_cast(input);
    netstack_fuzz::look_up(input);
});
