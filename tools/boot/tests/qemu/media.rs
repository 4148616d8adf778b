//! Sticks and CDs that `hearth image usb` makes, which have GRUB on them.

use crate::machine::{MAC, Machine};
use crate::rack::{Rack, in_namespace};

/// A medium for a node with a laboratory key, whose address is on it as well: nothing comes from
/// the boot service.
fn medium(rack: &Rack) -> std::path::PathBuf {
    let medium = rack.file("hearth.iso");
    let path = medium.display().to_string();
    let options = "hearth.console=ttyS0 hearth.ip=10.117.4.7/16";
    let said = rack.hearth(&[
        "image",
        "usb",
        "--node",
        "7",
        "--mac",
        MAC,
        "--command-line",
        options,
        "--output",
        &path,
    ]);
    assert!(said.contains(&path), "{said}");
    medium
}

fn is_node_seven(rack: &Rack, machine: Machine) {
    let (boot, console) = rack.joins(machine);
    assert_eq!(boot["node"], "n7");
    assert!(console.contains("hearth.key=(hidden)"), "{console}");
}

#[test]
#[ignore = "needs QEMU, a network namespace, GRUB and the outputs of `cargo xtask build`"]
fn a_stick_joins_with_a_laboratory_key() {
    in_namespace("media::a_stick_joins_with_a_laboratory_key", || {
        let rack = Rack::new(&["--lab-keys"]);
        let medium = medium(&rack);
        is_node_seven(&rack, Machine::bios().boots_from_stick(&medium));
    });
}

#[test]
#[ignore = "needs QEMU, a network namespace, GRUB and the outputs of `cargo xtask build`"]
fn the_same_stick_joins_under_uefi() {
    in_namespace("media::the_same_stick_joins_under_uefi", || {
        let rack = Rack::new(&["--lab-keys"]);
        let medium = medium(&rack);
        let machine = Machine::uefi(rack.folder());
        is_node_seven(&rack, machine.boots_from_stick(&medium));
    });
}
