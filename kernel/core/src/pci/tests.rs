//! Machines of several kinds, and configuration space that makes no sense.

use std::collections::BTreeMap;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const BUS_MASTER_AND_MEMORY: u32 = 0b110;
const CARD: u32 = 0x0200_0000;
const BRIDGE: u32 = 0x0604_0000;

/// Configuration space made of registers; counts what is read.
#[derive(Default)]
struct Fake {
    registers: BTreeMap<(Address, u8), u32>,
    reads: core::cell::Cell<u32>,
}

impl ConfigSpace for Fake {
    fn read(&self, at: Address, register: u8) -> u32 {
        assert!(register.is_multiple_of(4) && at.device < 32 && at.function < 8);
        self.reads.set(self.reads.get() + 1);
        let is_there = self.registers.contains_key(&(at, REGISTER_ID));
        let value = self.registers.get(&(at, register));
        match is_there {
            true => value.copied().unwrap_or(0),
            false => NO_DEVICE,
        }
    }

    fn write(&mut self, at: Address, register: u8, value: u32) {
        self.registers.insert((at, register), value);
    }
}

fn at(bus: u8, device: u8, function: u8) -> Address {
    Address {
        bus,
        device,
        function,
    }
}

impl Fake {
    fn add(&mut self, at: Address, class: u32) {
        self.write(at, REGISTER_ID, 0x1000_1af4);
        self.write(at, REGISTER_CLASS, class);
        self.write(at, REGISTER_COMMAND, BUS_MASTER_AND_MEMORY);
    }

    fn add_bridge(&mut self, at: Address, secondary: u8, subordinate: u8) {
        self.add(at, BRIDGE);
        self.write(at, REGISTER_HEADER, u32::from(HEADER_BRIDGE) << 16);
        let buses = u32::from_le_bytes([at.bus, secondary, subordinate, 0]);
        self.write(at, REGISTER_BRIDGE_BUSES, buses);
    }

    fn found(&mut self) -> Vec<Address> {
        let mut found = Vec::new();
        find_buses(self, |_, at| found.push(at));
        found
    }
}

#[test]
fn roots_that_no_bridge_leads_to_are_found() {
    let mut machine = Fake::default();
    machine.add(at(0, 0, 0), 0x0600_0000);
    machine.add_bridge(at(128, 1, 0), 129, 129);
    machine.add(at(129, 0, 0), CARD);
    machine.add(at(255, 31, 0), CARD);
    let buses = find_buses(&mut machine, |_, _| ());
    assert_eq!(buses.iter().collect::<Vec<_>>(), [0, 128, 129, 255]);
    let expected = [at(0, 0, 0), at(128, 1, 0), at(129, 0, 0), at(255, 31, 0)];
    assert_eq!(machine.found(), expected);
}

#[test]
fn functions_beyond_the_first_count_where_the_header_says_so() {
    let mut machine = Fake::default();
    for function in [0, 3, 7] {
        machine.add(at(2, 4, function), CARD);
        machine.add(at(2, 5, function), CARD);
    }
    machine.write(at(2, 4, 0), REGISTER_HEADER, 0x80 << 16);
    // Nothing at function 0: no device.
    machine.add(at(2, 6, 1), CARD);
    let expected = [at(2, 4, 0), at(2, 4, 3), at(2, 4, 7), at(2, 5, 0)];
    assert_eq!(machine.found(), expected);
}

#[test]
fn buses_that_a_bridge_claims_and_does_not_have_are_not_read() {
    let mut machine = Fake::default();
    machine.add_bridge(at(0, 1, 0), 1, 200);
    machine.add_bridge(at(1, 0, 0), 3, 3);
    machine.add(at(3, 0, 0), CARD);
    // Unreachable: bus 2 is behind the first bridge, and none leads to it.
    machine.add(at(2, 0, 0), CARD);
    assert_eq!(machine.found(), [at(0, 1, 0), at(1, 0, 0), at(3, 0, 0)]);
    let buses_read = 256 - 200 + 2;
    assert!(machine.reads.get() < buses_read * 32 + 20);
}

#[test]
fn endpoints_are_silenced_and_bridges_are_not() {
    let mut machine = Fake::default();
    let (card, bridge) = (at(0, 3, 0), at(0, 1, 0));
    machine.add(card, CARD);
    machine.add_bridge(bridge, 1, 1);
    let status = STATUS_CAPABILITIES | 0xf900_0000;
    machine.write(card, REGISTER_COMMAND, status | BUS_MASTER_AND_MEMORY);
    machine.write(card, REGISTER_CAPABILITIES, 0x50);
    // Power management, MSI, MSI-X, the end.
    machine.write(card, 0x50, 0x0003_6001);
    machine.write(card, 0x60, 0x0081_7005);
    machine.write(card, 0x70, 0x8004_0011);
    assert!(silence(&mut machine, card));
    // Status bits that are written as one would be cleared.
    assert_eq!(machine.read(card, REGISTER_COMMAND), 0b010);
    assert_eq!(machine.read(card, 0x50), 0x0003_6001);
    assert_eq!(machine.read(card, 0x60), 0x0080_7005);
    assert_eq!(machine.read(card, 0x70), 0x0004_0011);
    assert!(!silence(&mut machine, card));
    assert!(!silence(&mut machine, bridge));
    assert_eq!(
        machine.read(bridge, REGISTER_COMMAND),
        BUS_MASTER_AND_MEMORY
    );
}

#[test]
fn a_list_of_capabilities_that_bites_its_tail_has_an_end() {
    let mut machine = Fake::default();
    let card = at(0, 3, 0);
    machine.add(card, CARD);
    machine.write(card, REGISTER_COMMAND, STATUS_CAPABILITIES);
    machine.write(card, REGISTER_CAPABILITIES, 0x50);
    machine.write(card, 0x50, 0x5001);
    assert!(!silence(&mut machine, card));
    assert!(machine.reads.get() < 60);
}

proptest! {
    #[test]
    fn each_function_is_visited_once_at_most(
        words in proptest::collection::vec((any::<[u8; 3]>(), any::<u32>(), any::<u32>()), 0..40),
    ) {
        let mut machine = Fake::default();
        for ([bus, devfn, header], buses, class) in words {
            let at = at(bus, devfn >> 3, devfn & 7);
            machine.add(at, class);
            machine.write(at, REGISTER_HEADER, u32::from(header & 0x81) << 16);
            machine.write(at, REGISTER_BRIDGE_BUSES, buses);
            machine.write(at, REGISTER_COMMAND, class | STATUS_CAPABILITIES);
            machine.write(at, REGISTER_CAPABILITIES, buses);
        }
        let found = machine.found();
        let mut once = found.clone();
        once.dedup();
        prop_assert_eq!(&found, &once);
        prop_assert!(found.is_sorted());
        for at in found {
            silence(&mut machine, at);
            let is_bridge = machine.read(at, REGISTER_CLASS) >> 24 == u32::from(CLASS_BRIDGE);
            prop_assert!(is_bridge || machine.read(at, REGISTER_COMMAND) & COMMAND_BUS_MASTER == 0);
        }
    }
}
