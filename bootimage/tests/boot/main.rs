//! The boot image on real firmware in QEMU: every entry, every way of loading it, damaged images
//! and machines that are too small.
//!
//! Needs QEMU, OVMF and the bare-metal target (`cargo xtask setup` installs them), so the tests are
//! ignored by default; `cargo test -p bootimage -- --ignored --test-threads=1` runs them. They end
//! on events (a line on the serial console), never on a guess of how long a boot takes.

mod artifacts;
mod http;
mod machine;

use artifacts::{Images, images};
use machine::{Firmware, Machine};

const UP: &str = "HEARTH-STUB up";
const DAMAGED: &str = "the boot image is damaged";
const STOPPED: &str = "; stopped";

/// What every kernel must find, however it was entered.
fn check_report(report: &machine::Report, images: &Images, entry: u32, command_line: &str) {
    let info = bootimage::inspect(&images.stub).unwrap();
    let expected = format!("{} {command_line}", artifacts::DEFAULT_COMMAND_LINE);
    assert_eq!(report.value("entry"), entry.to_string());
    assert_eq!(report.value("command_line"), expected.trim_end());
    assert_eq!(report.value("version"), info.version);
    assert_eq!(report.value("build"), info.build_id_hex());
    assert_eq!(report.value("image_bytes"), info.bytes.to_string());
    assert_eq!(report.value("bss_zero"), "true");
    assert_eq!(report.value("memory_ok"), "true");
    assert!(
        report.value("rsdp").starts_with("Some("),
        "no ACPI root pointer"
    );
    // PG, WP, NE, ET, MP, PE; only PAE; LMA, LME, NXE; interrupts off.
    assert_eq!(report.value("cr0"), "0x80010033");
    assert_eq!(report.value("cr4"), "0x20");
    assert_eq!(report.value("efer"), "0xd00");
    let flags = u32::from_str_radix(&report.value("rflags")[2..], 16).unwrap();
    assert_eq!(flags & 0x200, 0, "interrupts are on");
    check_regions(report);
}

/// Regions are sorted and disjoint, usable ones whole pages, and the kernel's own memory is marked.
fn check_regions(report: &machine::Report) {
    let regions = report.regions();
    assert!(regions.windows(2).all(|pair| pair[0].end <= pair[1].start));
    for region in &regions {
        assert!(region.start < region.end);
        if region.kind == "Usable" {
            assert_eq!((region.start % 4096, region.end % 4096), (0, 0));
            assert!(region.start >= 4096, "the null page is usable");
        }
    }
    let kernel: Vec<&str> = report.value("kernel").split(' ').collect();
    let start = u64::from_str_radix(&kernel[0][2..], 16).unwrap();
    assert!(
        regions.iter().any(
            |region| region.kind == "Bootloader" && (region.start..region.end).contains(&start)
        )
    );
}

fn usable_mib(report: &machine::Report) -> u64 {
    report.value("usable_bytes").parse::<u64>().unwrap() >> 20
}

#[test]
#[ignore = "needs QEMU and the bare-metal target"]
fn qemu_loads_it_by_the_16_bit_entry() {
    let images = images();
    for (board, memory) in [("pc", 32), ("q35", 32), ("microvm", 32), ("q35", 6144)] {
        let report = Machine::new(Firmware::Bios)
            .board(board)
            .memory_kib(memory << 10)
            .kernel(images.stub_path(), "hearth.node=7  hearth.console=ttyS0")
            .run(&[UP])
            .report();
        check_report(&report, images, 1, "hearth.node=7 hearth.console=ttyS0");
        assert!(usable_mib(&report) >= memory - 2 && usable_mib(&report) <= memory);
    }
}

#[test]
#[ignore = "needs QEMU and the bare-metal target"]
fn boot_loaders_enter_it_by_the_32_bit_and_64_bit_entries() {
    let images = images();
    // The last two lie above 4 GiB, where kexec puts kernels on large machines; 57 is 5-level
    // paging.
    for (mode, entry, memory_mib, at) in [
        ("32", 2, 64, 0x200_0000_u64),
        ("64", 3, 64, 0x200_0000),
        ("57", 3, 64, 0x200_0000),
        ("64", 3, 6144, 0x1_4000_0000),
        ("57", 3, 6144, 0x1_4000_0000),
    ] {
        let stub = images.stub_path().display().to_string();
        let report = Machine::new(Firmware::Bios)
            .memory_kib(memory_mib << 10)
            .kernel(
                images.chain_path(),
                &format!("chain={mode} at={at:x} -- a=b"),
            )
            .option(
                "-device",
                &format!("loader,file={stub},addr={at:#x},force-raw=on"),
            )
            .run(&[UP])
            .report();
        check_report(&report, images, entry, "a=b");
    }
}

#[test]
#[ignore = "needs QEMU and the bare-metal target"]
fn ipxe_loads_it_over_tftp_and_http() {
    let images = images();
    let server = http::Server::start(images.stub.clone());
    for file in [
        "stub.efi".to_owned(),
        format!("http://10.0.2.2:{}/stub.efi", server.port()),
    ] {
        let report = Machine::new(Firmware::Bios)
            .network(images.directory(), &file)
            .run(&[UP])
            .report();
        check_report(&report, images, 1, "");
    }
    assert!(server.requests() > 0, "nothing came over HTTP");
}

#[test]
#[ignore = "needs QEMU, OVMF and the bare-metal target"]
fn uefi_firmware_loads_it_directly() {
    let images = images();
    let report = Machine::new(Firmware::Uefi)
        .kernel(images.stub_path(), "hearth.node=7")
        .run(&[UP])
        .report();
    check_report(&report, images, 4, "hearth.node=7");
}

#[test]
#[ignore = "needs QEMU, OVMF and the bare-metal target"]
fn uefi_firmware_loads_it_by_pxe() {
    let images = images();
    let report = Machine::new(Firmware::Uefi)
        .network(images.directory(), "stub.efi")
        .run(&[UP])
        .report();
    check_report(&report, images, 4, "");
}

#[test]
#[ignore = "needs QEMU and the bare-metal target"]
fn a_damaged_image_stops_with_a_message() {
    let images = images();
    let info = bootimage::inspect(&images.stub).unwrap();
    let last = images.stub.len() - 1;
    // Setup code, head, descriptor, 64-bit entry, stub code, its data, kernel, last byte.
    let places = [
        0xd80,
        0x1048,
        0x1054,
        0x1090,
        0x1220,
        0x3000,
        0x9000,
        info.stub_bytes as usize + 5000,
        last,
    ];
    for place in places {
        let mut image = images.stub.clone();
        image[place] ^= 0x10;
        let path = images.write("damaged.efi", &image);
        let text = Machine::new(Firmware::Bios)
            .kernel(&path, "")
            .run(&[UP, STOPPED])
            .text();
        assert!(text.contains(DAMAGED), "byte {place:#x} changed: {text}");
        assert!(!text.contains(UP), "byte {place:#x} changed: {text}");
    }
}

#[test]
#[ignore = "needs QEMU and the bare-metal target"]
fn a_truncated_image_stops_with_a_message() {
    let images = images();
    let whole = images.stub.len();
    for length in [
        0x1010,
        0x1210,
        0x2000,
        0x7000,
        0xe000,
        whole / 2,
        whole - 4096,
        whole - 1,
    ] {
        // Trailing zeroes are not missed, by loaders neither: cut where something was.
        let lost = images.stub[length..].iter().any(|&byte| byte != 0);
        let path = images.write("truncated.efi", &images.stub[..length]);
        let text = Machine::new(Firmware::Bios)
            .kernel(&path, "")
            .run(&[UP, STOPPED])
            .text();
        assert_eq!(
            text.contains(DAMAGED),
            lost,
            "cut to {length} bytes: {text}"
        );
        assert_eq!(text.contains(UP), !lost, "cut to {length} bytes: {text}");
    }
}

#[test]
#[ignore = "needs QEMU, OVMF and the bare-metal target"]
fn a_damaged_image_stops_under_uefi_too() {
    let images = images();
    for place in [0x3000, images.stub.len() - 6000] {
        let mut image = images.stub.clone();
        image[place] ^= 0x10;
        let path = images.write("damaged.efi", &image);
        let text = Machine::new(Firmware::Uefi)
            .kernel(&path, "")
            .run(&[UP, STOPPED])
            .text();
        assert!(text.contains(DAMAGED), "byte {place:#x} changed: {text}");
        assert!(!text.contains(UP), "byte {place:#x} changed: {text}");
    }
}

#[test]
#[ignore = "needs QEMU and the bare-metal target"]
fn a_machine_that_is_too_small_is_told() {
    let images = images();
    for (kib, message) in [
        (1152, "too little memory for the boot image"),
        (1536, "too little memory: the kernel needs"),
    ] {
        let text = Machine::new(Firmware::Bios)
            .memory_kib(kib)
            .kernel(images.stub_path(), "")
            .run(&[UP, STOPPED])
            .text();
        assert!(text.contains(message), "{kib} KiB: {text}");
    }
    for cpu in ["qemu32", "qemu64,-nx"] {
        let text = Machine::new(Firmware::Bios)
            .cpu(cpu)
            .kernel(images.stub_path(), "")
            .run(&[UP, STOPPED])
            .text();
        assert!(
            text.contains("this processor has no 64-bit mode"),
            "{cpu}: {text}"
        );
    }
}

#[test]
#[ignore = "needs QEMU and the bare-metal target"]
fn a_command_line_that_is_too_long_is_told() {
    let images = images();
    let text = Machine::new(Firmware::Bios)
        .kernel(images.stub_path(), &"x".repeat(2040))
        .run(&[UP, STOPPED])
        .text();
    assert!(
        text.contains("command line is longer than 2048 bytes"),
        "{text}"
    );
}

/// The image that `cargo xtask build` made, when the caller says where (`HEARTH_OUTPUTS`).
#[test]
#[ignore = "needs the outputs of `cargo xtask build`"]
fn the_built_image_is_sound_and_at_most_1280_kib() {
    let Some(outputs) = std::env::var_os("HEARTH_OUTPUTS") else {
        panic!("set HEARTH_OUTPUTS to the directory with hearth.efi, as `cargo xtask test` does");
    };
    let path = std::path::Path::new(&outputs).join("hearth.efi");
    let image = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let info = bootimage::inspect(&image).unwrap();
    assert!(info.bytes <= 1280 << 10, "{} bytes", info.bytes);
}
