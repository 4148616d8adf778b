//! Tests run inside the kernel: `hearth.test=NAME` runs one in place of the agent.
//!
//! A test ends with the line `HEARTH-TEST ok NAME` or `HEARTH-TEST FAILED NAME: why` and leaves
//! QEMU by `isa-debug-exit` with a status of its own for each; the runner on the host (`tests/`)
//! wants line and status, so a kernel that hangs or resets has failed. `hearth.test=list` prints
//! the names.
//!
//! Invariant: one boot runs one test, so a test may leave the machine as it likes.

mod cast;
mod casting;
mod clock;
mod compiled;
mod control;
mod exchange;
mod fake_cast;
mod fake_ranks;
mod files;
mod frames;
mod memory;
mod monitoring;
mod mutants;
mod network;
mod packets;
mod page_cost;
mod peer;
mod platform;
mod program;
mod random_calls;
mod remains;
mod ring3;
mod sandbox;
mod stack;
mod warm;
mod wire;

use alloc::string::String;

use crate::{arch, console, mm};

/// Why a test failed.
type Outcome = Result<(), String>;

/// One test.
struct Test {
    name: &'static str,
    run: fn() -> Outcome,
    /// What the runner must know: `memory=SIZE` for a guest of another size, `machine=MACHINE` for
    /// another machine, `device=DEVICE` for each device beside a card, `console=COM2` for firmware
    /// whose console is the second serial port, `processors=odd` for one that lists a processor
    /// that is disabled, one twice and one that is not there, `nic=DEVICE` for a card on QEMU's
    /// user network (there is none otherwise), `dead=DEVICE` for a card before it that is connected
    /// to nothing, `peer=DEVICE` for one that is connected to the card alone, `clock=instructions`
    /// for a clock
    /// that counts them, `exit=STATUS` for a machine that ends with another status, `seeds=COUNT`
    /// for one that takes so many seeds as `NAME:FROM-TO`, `files=NAMES` for compiled programs that
    /// it reads, `expects=TEXT`, always last, for a test that ends in a report holding the text,
    /// and the status for failure.
    demands: &'static str,
}

const fn test(name: &'static str, run: fn() -> Outcome) -> Test {
    Test {
        name,
        run,
        demands: "",
    }
}

const fn test_that(name: &'static str, run: fn() -> Outcome, demands: &'static str) -> Test {
    Test { name, run, demands }
}

const TESTS: &[Test] = &[
    test("paging", memory::paging),
    test_that("huge-pages", memory::huge_pages, " memory=3G"),
    test("null-page", memory::null_page),
    test("write-xor-execute", memory::write_xor_execute),
    test("no-execute", memory::no_execute),
    test("stack-guard", memory::stack_guard),
    test("interrupt-stack-guard", memory::interrupt_stack_guard),
    test("scrub", memory::scrub),
    test("scrub-off", memory::scrub_off_is_seen),
    test("heap", memory::heap),
    test("user-memory", memory::user_memory_is_out_of_reach),
    test("round-trip", ring3::round_trip),
    test("user-faults", ring3::faults),
    test("user-flags", ring3::flags),
    test("user-isolation", ring3::isolation),
    test("sysret-guard", ring3::sysret_guard),
    test("fpu", ring3::fpu),
    test("bases", ring3::segment_bases),
    test("selectors", ring3::selectors),
    test("sysenter", ring3::other_entries),
    test("timer", clock::timer),
    test("idle", clock::idle_is_tickless),
    test("compute", clock::compute_is_tickless),
    test("nmi", clock::nmi),
    test("nmi-in-ring-3", ring3::nmi),
    test("entropy", clock::entropy),
    test("program", program::hello_world),
    test("program-streams", program::streams),
    test("program-frames", program::scrubbed),
    test("remains", remains::of_a_job),
    test("remains-on-the-stack", remains::on_the_stack),
    test("remains-messages", remains::of_messages),
    test("program-ended", program::ended),
    test("program-signalled", program::signalled),
    test("program-long-calls", program::long_calls),
    test("program-iretq", program::iretq),
    test("program-many-pages", program::many_pages),
    test("program-pages-lost", program::pages_lost),
    test("program-damaged", program::damaged),
    test("program-hostile", program::hostile),
    test_that(
        "random-calls",
        random_calls::seeds,
        " clock=instructions seeds=10",
    ),
    test_that(
        "random-calls-of-threads",
        random_calls::seeds_by_threads,
        " cores=4 seeds=3",
    ),
    test_that(
        "mutants",
        mutants::seeds,
        " memory=512M clock=instructions files=musl-hello,hello-c,pie-hello,bare-frames seeds=5",
    ),
    test_that(
        "compiled",
        compiled::check_themselves,
        " memory=128M files=resources,musl-resources,signals,musl-signals",
    ),
    test_that(
        "threads",
        compiled::threads,
        " memory=128M files=threads,musl-threads",
    ),
    test_that(
        "threads-on-4-cores",
        compiled::threads,
        " memory=128M cores=4 files=threads,musl-threads",
    ),
    test_that(
        "channels",
        compiled::channels,
        " memory=128M files=pipes,musl-pipes,mappings,musl-mappings,shared-memory,musl-shared-memory",
    ),
    test_that(
        "channels-on-4-cores",
        compiled::channels,
        " memory=128M cores=4 files=pipes,musl-pipes,mappings,musl-mappings,shared-memory,musl-shared-memory",
    ),
    test_that(
        "languages",
        compiled::languages,
        " memory=256M files=rust-threads,cpp-threads,rayon,omp-c,omp-cpp,omp-fortran",
    ),
    test_that(
        "languages-on-4-cores",
        compiled::languages,
        " memory=256M cores=4 files=rust-threads,cpp-threads,rayon,omp-c,omp-cpp,omp-fortran",
    ),
    test_that(
        "goroutines",
        compiled::goroutines,
        " memory=256M files=goroutines compiler=go",
    ),
    test_that(
        "goroutines-on-4-cores",
        compiled::goroutines,
        " memory=256M cores=4 files=goroutines compiler=go",
    ),
    test("files-calls", files::calls),
    test("calls-missing", files::missing),
    test("files-mapped", files::mapped),
    test("files-named", files::named),
    test("files-late", files::late),
    test("files-kept", files::kept),
    test("warm-relaunch", warm::relaunch),
    test("warm-policies", warm::policies),
    test("warm-commands", warm::commands),
    test("warm-isolation", warm::isolation),
    test("warm-verified", warm::verified),
    test("warm-unverified", warm::unverified),
    test("warm-ends", warm::ends),
    test("warm-pressure", warm::pressure),
    test("read-ahead", warm::read_ahead),
    test("cast-complete", cast::complete),
    test("cast-coming", cast::coming),
    test("cast-stalled", cast::stalled),
    test("cast-head", cast::head),
    test("cast-cancelled", cast::cancelled),
    test("cast-pressure", cast::pressure),
    test("cast-interrupts", cast::interrupts),
    test("cast-table", cast::table),
    test("casting-receive", casting::receive),
    test("casting-unfinished", casting::unfinished),
    test("casting-replaced", casting::replaced),
    test("casting-warm", casting::warm_node_serves),
    test("casting-hostile", casting::hostile),
    test("exchange-messages", exchange::messages),
    test("exchange-blocks", exchange::blocks),
    test("exchange-idle", exchange::idle),
    test("exchange-unmapped", exchange::unmapped),
    test("exchange-ended", exchange::ended),
    test("exchange-no-table", exchange::no_table),
    test("exchange-any", exchange::from_any),
    test("exchange-heap", exchange::many_lists),
    test("exchange-short-of-room", exchange::short_of_room),
    test("exchange-hostile", exchange::hostile),
    // The heap holds the file, which must fit a large page.
    test("dhcp-personality", stack::dhcp_personality),
    test("dhcp-stranger", stack::dhcp_stranger),
    test("dhcp-beside", stack::dhcp_beside),
    test("dhcp-beside-later", stack::dhcp_beside_later),
    test("dhcp-refused", stack::dhcp_refused),
    test("dhcp-silence", stack::dhcp_silence),
    test("datagrams-in", stack::datagrams_in),
    test("datagrams-out", stack::datagrams_out),
    test("peers-in", peer::arrive),
    test("peers-hostile", peer::hostile),
    test("peers-out", peer::leave),
    test("no-card", network::no_card),
    test_that(
        "card-modern",
        network::card,
        " nic=virtio-net-pci,disable-legacy=on",
    ),
    test_that(
        "card-transitional",
        network::card,
        " nic=virtio-net-pci,disable-modern=off",
    ),
    test_that(
        "card-second-root",
        network::card,
        " machine=q35 device=pxb-pcie,bus_nr=128,id=p1,bus=pcie.0 \
         device=pcie-root-port,bus=p1,id=rp1,slot=1,chassis=1 nic=virtio-net-pci,bus=rp1",
    ),
    test_that(
        "pci-silenced",
        platform::devices_are_silenced,
        " machine=q35 device=e1000e device=qemu-xhci device=edu",
    ),
    test("io-apic-masked", platform::io_apic_is_masked),
    test("stray-interrupts", platform::stray_interrupts),
    test_that("console-moved", platform::console_moved, " console=COM2"),
    test("machine-check", platform::machine_check),
    test_that(
        "machine-check-stops",
        platform::machine_check_stops,
        " expects=memory error, not corrected: bank 5",
    ),
    test_that("acpi-tables", platform::tables, " machine=q35"),
    test_that(
        "cores-left-out",
        platform::cores_left_out,
        " cores=6 processors=odd",
    ),
    test_that("acpi-none", platform::no_tables, " machine=pc,acpi=off"),
    test("clocks-agree", platform::clocks_agree),
    test("clock-hpet", platform::clock_is_hpet),
    test_that(
        "clock-acpi-timer",
        platform::clock_is_acpi_timer,
        " machine=q35,pit=off,hpet=off",
    ),
    test_that(
        "clock-no-8254",
        platform::clock_is_hpet,
        " machine=q35,pit=off",
    ),
    test_that(
        "clock-8254",
        platform::clock_is_8254,
        " machine=pc,acpi=off",
    ),
    test_that(
        "clock-none",
        platform::no_clock,
        " machine=pc,pit=off,hpet=off,acpi=off expects=switch one of them on in the firmware",
    ),
    test_that(
        "card-legacy",
        network::card,
        " nic=virtio-net-pci,disable-modern=on,disable-legacy=off",
    ),
    test_that("card-polled", network::card_polled, " nic=virtio-net-pci"),
    test_that("card-82540em", network::card_polled, " nic=e1000"),
    test_that("card-82544gc", network::card_polled, " nic=e1000-82544gc"),
    test_that("card-82545em", network::card_polled, " nic=e1000-82545em"),
    test_that(
        "card-running-virtio",
        network::running_card,
        " nic=virtio-net-pci",
    ),
    test_that("card-running-e1000", network::running_card, " nic=e1000"),
    test_that("card-running-e1000e", network::running_card, " nic=e1000e"),
    test_that("card-running-igb", network::running_card, " nic=igb"),
    test_that(
        "card-running-rtl8139",
        network::running_card,
        " nic=rtl8139",
    ),
    test_that(
        "card-dead-port",
        network::dead_port,
        " dead=virtio-net-pci nic=virtio-net-pci",
    ),
    test_that(
        "card-dead-port-mixed",
        network::dead_port,
        " dead=e1000e nic=virtio-net-pci",
    ),
    test_that(
        "card-of-boot",
        network::boot_card,
        " dead=virtio-net-pci nic=e1000e",
    ),
    test_that(
        "card-frames-e1000",
        frames::between_cards,
        " peer=virtio-net-pci nic=e1000",
    ),
    test_that(
        "card-frames-e1000e",
        frames::between_cards,
        " peer=virtio-net-pci nic=e1000e",
    ),
    test_that(
        "card-frames-igb",
        frames::between_cards,
        " peer=virtio-net-pci nic=igb",
    ),
    test_that(
        "card-frames-rtl8139",
        frames::between_cards,
        " peer=virtio-net-pci nic=rtl8139",
    ),
    test_that("card-rtl8139", network::card_polled, " nic=rtl8139"),
    test_that("card-82576", network::card_msi, " nic=igb"),
    test_that("card-82576-polled", network::card_polled, " nic=igb"),
    test_that("card-82574l", network::card, " nic=e1000e"),
    test_that("card-82574l-msi", network::card_msi, " nic=e1000e"),
    test_that("card-82574l-polled", network::card_polled, " nic=e1000e"),
    test_that(
        "overlay-cost",
        monitoring::cost,
        " memory=128M clock=instructions",
    ),
    test("overlay-counters", monitoring::counters_of_jobs),
    test_that(
        "packet-cost",
        packets::cost,
        " memory=128M clock=instructions peer=virtio-net-pci nic=virtio-net-pci",
    ),
    test_that("panic", panics, " expects=on purpose"),
    test_that(
        "panic-resets",
        panics_on_a_node,
        " exit=0 expects=on purpose",
    ),
    test_that("stack-overflow", overflows, " expects=page fault"),
    test_that(
        "too-little-memory",
        enough_memory,
        " memory=8M expects=give this node at least 32 MiB",
    ),
];

/// Fails the test with a message unless the condition holds.
macro_rules! check {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            return Err(alloc::format!($($text)*));
        }
    };
}
use check;

/// The seeds that were named with the test.
static RANGE: spin::Once<Option<(u64, u64)>> = spin::Once::new();

/// `FROM-TO`, without TO, or one number.
fn parse_range(text: &str) -> Option<(u64, u64)> {
    match text.split_once('-') {
        Some((from, to)) => Some((from.parse().ok()?, to.parse().ok()?)),
        None => text.parse().ok().map(|seed| (seed, seed + 1)),
    }
}

/// The seeds that a test is to run, from the first to below the second, where some were named:
/// `hearth.test=NAME:FROM-TO`.
fn range() -> Option<(u64, u64)> {
    RANGE.get().copied().flatten()
}

/// Runs the named test and leaves.
pub fn run(name: &str) -> ! {
    if name == "list" {
        for Test { name, demands, .. } in TESTS {
            console::raw(format_args!("HEARTH-TEST name {name}{demands}\n"));
        }
        console::raw(format_args!("HEARTH-TEST ok list\n"));
        arch::succeed();
    }
    let (name, seeds) = name.split_once(':').unwrap_or((name, ""));
    RANGE.call_once(|| parse_range(seeds));
    let outcome = match TESTS.iter().find(|test| test.name == name) {
        Some(test) => (test.run)().and_then(|()| stack_suffices(name)),
        None => Err(String::from("no such test")),
    };
    match outcome {
        Ok(()) => {
            console::raw(format_args!("HEARTH-TEST ok {name}\n"));
            arch::succeed()
        }
        Err(why) => {
            console::raw(format_args!("HEARTH-TEST FAILED {name}: {why}\n"));
            arch::fail()
        }
    }
}

/// No test may have come near the end of the kernel's stack, except the one that looks for it.
fn stack_suffices(name: &str) -> Outcome {
    let used = mm::kernel_stack_peak();
    info!("test", "at most {used} bytes of the kernel's stack used");
    check!(
        used <= mm::layout::KERNEL_STACK_BYTES * 3 / 4 || name == "stack-guard",
        "{used} bytes of the kernel's stack used"
    );
    Ok(())
}

/// The runner wants the report and the status for failure.
fn panics() -> Outcome {
    info!("test", "this line belongs into the report");
    panic!("on purpose")
}

/// The runner wants the report, and the status of a machine that reset itself.
fn panics_on_a_node() -> Outcome {
    arch::set_leaves_when_done(false);
    panic!("on purpose")
}

/// The runner wants a report that names the guard page, printed on the page fault's own stack.
fn overflows() -> Outcome {
    memory::overflow(0);
    Ok(())
}

/// Reached only where there is enough memory, which is the failure.
fn enough_memory() -> Outcome {
    Err(String::from(
        "the kernel started in a guest it calls too small",
    ))
}
