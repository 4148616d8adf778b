//! Programs whose image a broadcast brings: nothing is asked for that comes by itself, nothing
//! waits for ever, nothing is in memory twice, and memory goes to who needs it.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};

use hearth_abi::peer::ENTRY_BYTES;
use kernel_core::objects::ObjectId;
use kernel_core::retention::ROOM_FRAMES;
use netstack::broadcast::table::{self, Entry};
use netstack::ids::NodeId;
use netstack::io::{ExitReport, ExitStatus};

use super::control::FakeControl;
use super::fake_cast::FakeCast;
use super::program::{expect, file, file_with};
use super::warm::{faults_of_file, large_file, run};
use super::{Outcome, check};
use crate::arch::test_programs::{self, PROGRAM_DATA, TOUCHED_PAGES};
use crate::mm;
use crate::mm::Hardware;
use crate::process;
use crate::time;

/// What the program of a large file exits with.
const SUM: ExitStatus = ExitStatus::Exited(((1 + (TOUCHED_PAGES - 1)) & 127) as u8);
/// Pages of its file: the head, and those touched.
const FILE_PAGES: u64 = TOUCHED_PAGES + 1;

/// A node with a broadcast of a large program; block `n` comes after `after(n)` microseconds.
fn node(after: impl Fn(u32) -> Option<u64>) -> FakeControl {
    let mut control = FakeControl::warming(large_file(TOUCHED_PAGES, 1));
    cast(&mut control, after);
    control
}

fn cast(control: &mut FakeControl, after: impl Fn(u32) -> Option<u64>) {
    let id = ObjectId(control.id().0);
    let image = control.file().to_vec();
    control.cast = Some(FakeCast::new(&mut control.objects, id, &image, after));
}

fn asked_for_nothing(report: &ExitReport) -> Outcome {
    check!(
        report.program_requests == 0 && report.bytes_loaded == 0,
        "a page was asked for: {report:?}"
    );
    check!(
        report.pages_asked == 0 && report.pages_read_ahead == 0,
        "{report:?}"
    );
    Ok(())
}

/// A cold program whose image is complete makes no page request at all. Its pages move out of the
/// store, stay when it has ended, and the next launch is warm: no fault, no byte.
pub fn complete() -> Outcome {
    let mut control = node(|_| Some(0));
    check!(
        control.objects.pages() == FILE_PAGES,
        "{:?}",
        control.objects
    );
    let cold = run(&mut control)?;
    expect(&cold, SUM)?;
    asked_for_nothing(&cold)?;
    check!(!cold.warm && cold.pages_from_cast == FILE_PAGES, "{cold:?}");
    check!(
        cold.faults_from_cast > 0 && cold.faults_awaited == 0,
        "{cold:?}"
    );
    check!(cold.pages_kept == FILE_PAGES, "{cold:?}");
    let left = control.objects.pages();
    check!(left == 0, "{left} pages are in memory twice");
    control.again();
    let warm = run(&mut control)?;
    expect(&warm, SUM)?;
    asked_for_nothing(&warm)?;
    check!(
        warm.warm && faults_of_file(&warm) == 0 && warm.pages_from_cast == 0,
        "{warm:?}"
    );
    // What an earlier run gave away and nobody has any more comes again.
    control.retention.reuse = netstack::retention::Reuse::Forbid;
    control.again();
    let cold = run(&mut control)?;
    expect(&cold, SUM)?;
    check!(cold.program_requests > 0, "{cold:?}");
    Ok(())
}

/// A program whose image is on its way asks for the block it faults on first and waits for it; it
/// makes no request.
pub fn coming() -> Outcome {
    let mut control = node(|block| Some(2_000 * u64::from(block)));
    if let Some(cast) = &mut control.cast {
        cast.want_us = Some(500);
    }
    let report = run(&mut control)?;
    expect(&report, SUM)?;
    asked_for_nothing(&report)?;
    check!(
        report.faults_awaited > 0 && report.faults_awaited <= report.faults_from_cast,
        "{report:?}"
    );
    let wanted = control.cast.as_ref().map_or(0, |cast| cast.wanted.len());
    check!(wanted as u64 == report.faults_awaited, "{wanted} wanted");
    // Those that were never waited for come later.
    check!(report.pages_from_cast == FILE_PAGES, "{report:?}");
    Ok(())
}

/// A block that does not come is asked for after a bounded wait; the others are not.
pub fn stalled() -> Outcome {
    let mut control = node(|block| (block != 7 && block != 20).then_some(0));
    let before = time::now();
    let report = run(&mut control)?;
    let took = time::now().saturating_since(before).as_micros();
    expect(&report, SUM)?;
    let asked = report.pages_asked + report.pages_read_ahead;
    check!((2..=16).contains(&asked), "{report:?}");
    check!(
        report.pages_from_cast >= FILE_PAGES - 16 && report.program_requests <= 4,
        "{report:?}"
    );
    check!(took < 10_000_000, "waited {took} us");
    check!(control.objects.pages() < 16, "{:?}", control.objects);
    Ok(())
}

/// The headers are waited for as long as blocks come, and asked for when none does.
pub fn head() -> Outcome {
    // Past the longest wait without a block, if none came before.
    let mut late = node(|block| {
        Some(if block == 0 {
            900_000
        } else {
            40_000 * u64::from(block)
        })
    });
    let report = run(&mut late)?;
    expect(&report, SUM)?;
    asked_for_nothing(&report)?;
    late.warm.drop_program(&mut Hardware::new(), None);
    process::scrub(|| ());
    let mut never = node(|block| (block != 0).then_some(0));
    let before = time::now();
    let report = run(&mut never)?;
    let took = time::now().saturating_since(before).as_micros();
    expect(&report, SUM)?;
    check!(report.program_requests > 0, "{report:?}");
    check!((400_000..5_000_000).contains(&took), "waited {took} us");
    Ok(())
}

/// A program that is cancelled while it waits for a block leaves nothing but what stays anyway.
pub fn cancelled() -> Outcome {
    let mut control = node(|block| (block < 4).then_some(0));
    control.time_limit_us = 100_000;
    control.retention.keep = netstack::retention::Keep::Nothing;
    let report = run(&mut control)?;
    expect(&report, ExitStatus::Signal(24))?;
    let id = ObjectId(control.id().0);
    control.objects.drop_object(&mut Hardware::new(), &id);
    let usage = mm::frames().usage();
    check!(
        usage.object == 0 && usage.user == 0 && usage.retained == 0,
        "{usage:?}"
    );
    mm::frames().check()?;
    Ok(())
}

/// Memory that a running program wants goes before images that nobody runs.
pub fn pressure() -> Outcome {
    let mut control = FakeControl::warming(large_file(TOUCHED_PAGES, 1));
    for mark in 1..=8 {
        control.next_program(large_file(TOUCHED_PAGES, mark));
        cast(&mut control, |_| Some(0));
    }
    control.cast = None;
    let usage = mm::frames().usage();
    check!(usage.object == 8 * FILE_PAGES, "{usage:?}");
    // Half of what the images have must go.
    let wanted = usage.available() + usage.object / 2 - ROOM_FRAMES;
    let bytes = (wanted * 4096).to_le_bytes();
    control.next_program(file_with(test_programs::fill_memory(), &bytes, 1));
    let report = run(&mut control)?;
    expect(&report, ExitStatus::Exited(0))?;
    let left = mm::frames().usage().object;
    check!(
        (1..=5 * FILE_PAGES).contains(&left) && left.is_multiple_of(FILE_PAGES),
        "{left} pages of images are left"
    );
    control.next_program(large_file(TOUCHED_PAGES, 8));
    let newest = ObjectId(control.id().0);
    check!(
        control.objects.find(&newest).is_some(),
        "the newest image went first"
    );
    Ok(())
}

/// While a broadcast is unfinished a computing program is interrupted for it, by a class of its
/// own; afterwards it is not.
pub fn interrupts() -> Outcome {
    const POLLS: u32 = 20;
    let mut control = FakeControl::new(file(test_programs::spin()));
    control.cast_due = Some(time::now());
    control.cancel_after_polls = Some(POLLS);
    let report = run(&mut control)?;
    expect(&report, ExitStatus::Signal(15))?;
    let user = report.interrupts_user;
    check!(user.cast >= u64::from(POLLS) - 1, "{user:?}");
    check!(user.nic == 0 && user.spurious == 0, "{user:?}");
    let (allowed, forbidden) = control.listened;
    check!(
        allowed >= POLLS && forbidden == 1,
        "allowed {allowed} times, forbidden {forbidden} times"
    );
    let mut control = FakeControl::new(file(test_programs::spin()));
    control.tick_us = 20_000;
    control.cancel_after_polls = Some(3);
    let report = run(&mut control)?;
    check!(report.interrupts_user.cast == 0, "{report:?}");
    check!(control.listened == (0, 0), "{:?}", control.listened);
    Ok(())
}

/// A program learns how other ranks are reached, once the table is there; what it must not know or
/// cannot have is an error, never a wait.
pub fn table() -> Outcome {
    const RANKS: u32 = 3;
    const OUT: u64 = PROGRAM_DATA + 64;
    let entry = |rank: u32| Entry {
        node: NodeId(100 + rank),
        addr: SocketAddrV4::new(Ipv4Addr::new(10, 0, 1, rank as u8), 7117),
        mac: [2, 0, 0, 0, 9, rank as u8],
        window: rank / 2,
        network: 0xfe80_0000_0000_0001,
        logical: 100 + rank as u16,
        lid_mask: 2,
        port_id: 1,
    };
    let entries: Vec<Entry> = (0..RANKS).map(entry).collect();
    let bytes = table::encode(&entries, 0).map_err(|error| format!("{error}"))?;
    let ask = |rank: u64, to: u64, size: u32, table: Option<&[u8]>, after: u32| {
        let words = [rank, to].map(u64::to_le_bytes);
        let mut control = FakeControl::new(file_with(
            test_programs::ask_peer(),
            words.as_flattened(),
            1,
        ));
        control.set_size(size);
        control.table = table.map(<[u8]>::to_vec);
        control.table_after = after;
        let report = run(&mut control)?;
        Ok::<_, String>((report.status, control.output(1), control.polls))
    };
    for after in [0, 1, 5] {
        let (status, output, polls) = ask(2, OUT, RANKS, Some(&bytes), after)?;
        check!(status == ExitStatus::Exited(0), "{status:?} after {after}");
        check!(polls >= after, "{polls} looks at the network");
        let number = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| output[at + byte]));
        check!(output.len() == ENTRY_BYTES, "{output:?}");
        let numbers = [0, 4, 20, 32, 36, 40, 44].map(number);
        check!(numbers == [2, 102, 1, 102, 2, 1, 0], "{numbers:?}");
        check!(output[8..12] == [10, 0, 1, 2], "{output:?}");
        check!(output[12..14] == 7117u16.to_le_bytes(), "{output:?}");
        check!(output[14..20] == [2, 0, 0, 0, 9, 2], "{output:?}");
    }
    let damaged = [0xff; 400];
    let (good, none) = (Some(&bytes[..]), None);
    let cases = [
        ("no such rank", 3, OUT, RANKS, good, 22),
        ("a rank beyond all", u64::MAX, OUT, RANKS, good, 22),
        ("a bad address", 1, 0xffff_8000_0000_0000, RANKS, good, 14),
        ("an unmapped address", 1, 0x7000_0000, RANKS, good, 14),
        ("a job of one rank", 0, OUT, 1, none, 61),
        (
            "a table that is none",
            1,
            OUT,
            RANKS,
            Some(&damaged[..]),
            61,
        ),
    ];
    for (what, rank, to, size, table, error) in cases {
        let (status, output, _) = ask(rank, to, size, table, 0)?;
        check!(
            status == ExitStatus::Exited(error) && output.is_empty(),
            "{what}: {status:?}"
        );
    }
    Ok(())
}
