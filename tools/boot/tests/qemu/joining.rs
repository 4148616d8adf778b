//! From power-on to a node, without a boot loader of ours in the firmware.

use std::time::{Duration, Instant};

use crate::machine::Machine;
use crate::rack::{LIMIT, Rack, Site, has_stage, in_namespace};

/// The boot service beside the site's DHCP server.
pub const BESIDE: &str = "[boot]\nproxy_dhcp = true\n";
/// Addresses of the site's server begin with this.
pub const SITE: &str = "10.117.9.";

#[test]
#[ignore = "needs QEMU, a network namespace and the outputs of `cargo xtask build`"]
fn uefi_pxe_joins() {
    in_namespace("joining::uefi_pxe_joins", || {
        let rack = Rack::new(&[]);
        let machine = Machine::uefi(rack.folder()).boots_by_network();
        let (boot, _) = rack.joins(machine);
        assert_eq!(boot["firmware"], "uefi-pxe");
        assert!(has_stage(&boot, "kernel"));
    });
}

#[test]
#[ignore = "needs QEMU, a network namespace and the outputs of `cargo xtask build`"]
fn uefi_http_boot_joins() {
    in_namespace("joining::uefi_http_boot_joins", || {
        let rack = Rack::new(&[]);
        let machine = Machine::uefi(rack.folder()).without("IPv4PXESupport");
        let (boot, _) = rack.joins(machine.boots_by_network());
        assert_eq!(boot["firmware"], "uefi-http");
        assert!(has_stage(&boot, "kernel"));
    });
}

/// The site leases the address; the boot service only says what to boot, and who the node is.
#[test]
#[ignore = "needs QEMU, a network namespace and the outputs of `cargo xtask build`"]
fn ipxe_beside_another_dhcp_server_joins() {
    in_namespace("joining::ipxe_beside_another_dhcp_server_joins", || {
        let rack = Rack::configured(BESIDE, &[]);
        let _site = Site::new(&rack);
        let (boot, console) = rack.joins(Machine::bios().boots_by_ipxe());
        assert_eq!(boot["firmware"], "ipxe");
        assert!(has_stage(&boot, "kernel") && has_stage(&boot, "personality"));
        assert!(console.contains(SITE), "{console}");
        assert_eq!(boot["boots"], 1, "one boot from power-on on: {boot}");
    });
}

/// Nothing is loaded, and the operator is told why: the kernel has no driver for the card.
#[test]
#[ignore = "needs QEMU, a network namespace and the outputs of `cargo xtask build`"]
fn a_card_without_a_driver_is_refused() {
    in_namespace("joining::a_card_without_a_driver_is_refused", || {
        let rack = Rack::new(&[]);
        let machine = rack.start(Machine::bios().boots_by_ipxe_of("pcnet"));
        let begin = Instant::now();
        let boot = loop {
            let troubled = rack.boot().filter(|boot| boot["trouble"].is_string());
            if let Some(boot) = troubled {
                break boot;
            }
            assert!(begin.elapsed() < LIMIT, "{}", machine.console());
            std::thread::sleep(Duration::from_millis(50));
        };
        let text = boot.to_string();
        assert!(text.contains("no driver for 1022:2000"), "{text}");
        assert!(!has_stage(&boot, "script") && !has_stage(&boot, "kernel"));
        let events = rack.hearth(&["events"]);
        assert!(events.contains("no driver for 1022:2000"), "{events}");
    });
}
