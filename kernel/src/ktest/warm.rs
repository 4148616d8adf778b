//! Warm relaunch: what stays of a program, and that nothing else does.
//!
//! The programs and the control node are those of [`super::program`].

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use kernel_core::phys::PhysMem;
use kernel_core::retention::Change;
use netstack::ids::JobId;
use netstack::io::{ExitReport, ExitStatus};
use netstack::job::RefusalCode;
use netstack::retention::{Keep, Reuse, Verify};

use super::control::{FakeControl, OnHashes};
use super::program::{expect, file, file_with};
use super::{Outcome, check};
use crate::agent::mailbox::Mailbox;
use crate::agent::warm;
use crate::arch::test_programs::{
    self, PROGRAM_BSS_PAGES as BSS_PAGES, PROGRAM_TEXT as TEXT, TOUCHED_PAGES,
};
use crate::mm::{self, DirectMap};
use crate::process;

/// Runs a program to its end. What is left on the node must then be its warm programs, every page
/// of them as in its file, and the counts of frames must add up.
pub fn run(control: &mut FakeControl) -> Result<ExitReport, String> {
    let launch = control.launch();
    let prepared = process::prepare(&launch, control).map_err(|refusal| format!("{refusal:?}"))?;
    let report = prepared.run_alone(control).report;
    leaves_only_file_pages(control)?;
    Ok(report)
}

fn leaves_only_file_pages(control: &FakeControl) -> Outcome {
    let usage = mm::frames().usage();
    let sums = mm::frames().check();
    sums?;
    check!(usage.user == 0, "frames of the program are left: {usage:?}");
    check!(usage.dirty == 0, "frames are not scrubbed: {usage:?}");
    let held = control.warm.pages();
    check!(usage.retained == held, "{held} pages are warm: {usage:?}");
    let Some(retained) = control.warm.get(&control.id()) else {
        return Ok(());
    };
    let (mut seen, mut wrong) = (0, 0);
    let mut contents = [0; 4096];
    retained.for_each_page(&DirectMap, |page| {
        let length = retained
            .contents(&DirectMap, &page, &mut contents)
            .unwrap_or(0);
        let offset = page.offset as usize;
        seen += 1;
        wrong += u64::from(contents[..length] != control.file()[offset..offset + length]);
    });
    check!(
        seen == retained.pages(),
        "{seen} of {} pages",
        retained.pages()
    );
    check!(wrong == 0, "{wrong} of {seen} pages are not the file's");
    Ok(())
}

pub fn faults_of_file(report: &ExitReport) -> u64 {
    report.faults_code + report.faults_readonly + report.faults_data + report.faults_held
}

/// The second launch of a program takes no fault on its pages and fetches nothing; another file is
/// cold; the first is warm still.
pub fn relaunch() -> Outcome {
    let mut control = FakeControl::warming(file(test_programs::write_and_sum()));
    let cold = run(&mut control)?;
    expect(&cold, ExitStatus::Exited(7))?;
    check!(!cold.warm && cold.pages_reused == 0, "{cold:?}");
    check!(
        cold.pages_kept == 2 && cold.program_requests > 0,
        "{cold:?}"
    );
    for round in 0..3 {
        control.again();
        let warm = run(&mut control)?;
        expect(&warm, ExitStatus::Exited(7))?;
        check!(
            control.output(1) == TEXT,
            "round {round}: {:?}",
            control.written
        );
        check!(
            warm.warm && warm.pages_reused == 2 && warm.pages_kept == 2,
            "{warm:?}"
        );
        check!(faults_of_file(&warm) == 0, "round {round}: {warm:?}");
        check!(
            warm.faults_zero == BSS_PAGES && warm.faults_stack == 1,
            "{warm:?}"
        );
        check!(
            warm.program_requests == 0 && warm.bytes_loaded == 0,
            "round {round}: {warm:?}"
        );
        check!(
            warm.first_counts > 0 && warm.exit_counts > warm.first_counts,
            "{warm:?}"
        );
        info!(
            "test",
            "{} counts to the first instruction, {} to the exit",
            warm.first_counts,
            warm.exit_counts
        );
    }
    let mut other = file(test_programs::write_and_sum());
    let end = other.len();
    other[end - 1] = 1;
    control.next_program(other);
    let cold = run(&mut control)?;
    check!(!cold.warm, "another file was warm: {cold:?}");
    control.next_program(file(test_programs::write_and_sum()));
    let warm = run(&mut control)?;
    check!(warm.warm && control.warm.len() == 2, "{warm:?}");
    Ok(())
}

/// Policies: forbidden, required, published, nothing kept, dropped while it ran.
pub fn policies() -> Outcome {
    let program = file(test_programs::write_and_sum());
    let other = file(test_programs::count_up());
    let mut control = FakeControl::warming(program.clone());
    control.retention.reuse = Reuse::Require;
    match process::prepare(&control.launch(), &mut control) {
        Err(refusal) if refusal.code == RefusalCode::NotWarm => {}
        Err(refusal) => return Err(format!("{refusal:?}")),
        Ok(prepared) => {
            prepared.abandon(&mut control, 15, &|_, _, _| ());
            return Err(String::from(
                "a cold program was launched although it had to be warm",
            ));
        }
    }
    control.retention.reuse = Reuse::Allow;
    run(&mut control)?;
    control.retention.reuse = Reuse::Require;
    check!(run(&mut control)?.warm, "a warm program was not used");
    control.retention.reuse = Reuse::Forbid;
    let cold = run(&mut control)?;
    check!(!cold.warm && cold.pages_kept == 2, "{cold:?}");
    check!(cold.pages_discarded == 2, "{cold:?}");
    control.retention.reuse = Reuse::Allow;
    // One that is never started stays warm.
    let prepared = process::prepare(&control.launch(), &mut control);
    let prepared = prepared.map_err(|refusal| format!("{refusal:?}"))?;
    let report = prepared.abandon_alone(&mut control, 15);
    expect(&report, ExitStatus::Signal(15))?;
    check!(report.warm && report.pages_kept == 2, "{report:?}");
    leaves_only_file_pages(&control)?;
    check!(run(&mut control)?.warm, "lost by not being started");
    control.next_program(other.clone());
    run(&mut control)?;
    check!(control.warm.len() == 2, "{} are warm", control.warm.len());
    control.retention.keep = Keep::Published;
    run(&mut control)?;
    check!(
        control.warm.len() == 1,
        "published: {} are warm",
        control.warm.len()
    );
    control.next_program(program);
    check!(
        !run(&mut control)?.warm && control.warm.len() == 1,
        "published: two are warm"
    );
    control.retention.keep = Keep::Warm;
    control.dropped = true;
    let dropped = run(&mut control)?;
    check!(
        dropped.warm && control.warm.is_empty(),
        "kept although dropped: {dropped:?}"
    );
    control.dropped = false;
    control.retention.keep = Keep::Nothing;
    run(&mut control)?;
    check!(control.warm.is_empty(), "kept although nothing was to be");
    check!(
        mm::frames().usage().retained == 0,
        "{:?}",
        mm::frames().usage()
    );
    Ok(())
}

/// The retain message keeps one program, of which executable pages only if asked so; a drop takes
/// one, or all, and leaves one that runs alone until it ends.
pub fn commands() -> Outcome {
    let first = file(test_programs::write_and_sum());
    let second = file(test_programs::count_up());
    let mut control = FakeControl::warming(first.clone());
    run(&mut control)?;
    let first_id = control.spec().program;
    control.next_program(second.clone());
    run(&mut control)?;
    let second_id = control.spec().program;
    let pages = warm::retain(&mut control.warm, second_id, true);
    check!(
        pages == 2 && control.warm.len() == 1,
        "{pages} pages retained"
    );
    let usage = mm::frames().usage();
    check!(usage.retained == 2 && usage.dirty > 0, "{usage:?}");
    process::scrub(|| ());
    // Executable pages only: the page of data goes.
    let pages = warm::retain(&mut control.warm, second_id, false);
    check!(pages == 1, "{pages} executable pages retained");
    process::scrub(|| ());
    leaves_only_file_pages(&control)?;
    let report = run(&mut control)?;
    check!(
        report.warm && report.faults_data == 1 && report.faults_code == 0,
        "{report:?}"
    );
    let pages = warm::retain(&mut control.warm, first_id, true);
    check!(
        pages == 0 && control.warm.is_empty(),
        "{pages} pages of a cold program"
    );
    for program in [first, second] {
        control.next_program(program);
        run(&mut control)?;
    }
    let mut running = Mailbox::new(JobId(1), first_id, 1);
    let answer = warm::drop(&mut control.warm, Some(&mut running), Some(second_id));
    check!(answer == (2, false) && !running.dropped(), "{answer:?}");
    let answer = warm::drop(&mut control.warm, Some(&mut running), None);
    check!(answer == (2, true) && running.dropped(), "{answer:?}");
    let answer = warm::drop(&mut control.warm, None, None);
    check!(
        answer == (0, false) && control.warm.is_empty(),
        "{answer:?}"
    );
    check!(
        mm::frames().usage().retained == 0,
        "{:?}",
        mm::frames().usage()
    );
    Ok(())
}

/// A program never sees what an earlier run wrote, be it its own or another's; and a page that
/// stayed is really the one that is used.
pub fn isolation() -> Outcome {
    let first = u64::from(TEXT[0]);
    let mut control = FakeControl::warming(file(test_programs::count_up()));
    for round in 0..3 {
        let report = run(&mut control)?;
        expect(&report, ExitStatus::Exited(first as u8))?;
        check!(
            round == 0 || report.warm && report.faults_copy == 1,
            "{report:?}"
        );
    }
    for _ in 0..2 {
        control.next_program(file(test_programs::scan_and_fill()));
        expect(&run(&mut control)?, ExitStatus::Exited(0))?;
        control.next_program(file(test_programs::count_up()));
        expect(&run(&mut control)?, ExitStatus::Exited(first as u8))?;
    }
    // What the next run prints is what the frame holds: it is not fetched again.
    control.next_program(file(test_programs::write_and_sum()));
    run(&mut control)?;
    control.again();
    damage(&control, 4096)?;
    control.retention.verify = Verify::Never;
    let launch = control.launch();
    let prepared = process::prepare(&launch, &mut control);
    let report = prepared
        .map_err(|refusal| format!("{refusal:?}"))?
        .run_alone(&mut control)
        .report;
    check!(
        report.warm && control.output(1) != TEXT,
        "the warm page was not used: {report:?}"
    );
    Ok(())
}

/// Turns over a byte of the held page at an offset of the file.
fn damage(control: &FakeControl, offset: u64) -> Outcome {
    let retained = control
        .warm
        .get(&control.id())
        .ok_or("the program is not warm")?;
    let mut frame = None;
    retained.for_each_page(&DirectMap, |page| {
        if page.offset == offset {
            frame = Some(page.frame);
        }
    });
    let frame = frame.ok_or("the page is not held")?;
    let mut byte = [0];
    DirectMap.read(frame, &mut byte);
    DirectMap.write(frame, &[!byte[0]]);
    Ok(())
}

/// Damaged pages are found before a launch (always) or after a run (sample), and fetched again.
pub fn verified() -> Outcome {
    const SAMPLES: u32 = 64;
    let mut control = FakeControl::warming(file(test_programs::write_and_sum()));
    control.retention.verify = Verify::Always;
    run(&mut control)?;
    check!(
        run(&mut control)?.pages_damaged == 0,
        "whole pages were called damaged"
    );
    for offset in [0, 4096] {
        damage(&control, offset)?;
        control.again();
        let report = run(&mut control)?;
        expect(&report, ExitStatus::Exited(7))?;
        check!(control.output(1) == TEXT, "{:?}", control.written);
        check!(
            report.pages_damaged == 1 && report.pages_reused == 1,
            "{report:?}"
        );
        check!(
            report.pages_kept == 2 && report.program_requests > 0,
            "{report:?}"
        );
    }
    control.retention.verify = Verify::Sample;
    damage(&control, 4096)?;
    let mut runs = 0;
    loop {
        control.again();
        let launch = control.launch();
        let prepared = process::prepare(&launch, &mut control);
        let exit = prepared
            .map_err(|refusal| format!("{refusal:?}"))?
            .run_alone(&mut control);
        runs += 1;
        if exit.report.pages_damaged == 1 {
            break;
        }
        check!(runs < SAMPLES, "{runs} samples have not found the damage");
    }
    process::scrub(|| ());
    leaves_only_file_pages(&control)?;
    control.again();
    run(&mut control)?;
    check!(control.output(1) == TEXT, "{:?}", control.written);
    // With no page left whole the program is not held at all.
    let mut runs = 0;
    while !control.warm.is_empty() {
        for offset in [0, 4096] {
            // One that was fetched again is damaged again; one that is not held cannot be.
            let _ = damage(&control, offset);
        }
        let prepared = process::prepare(&control.launch(), &mut control);
        let prepared = prepared.map_err(|refusal| format!("{refusal:?}"))?;
        prepared.run_alone(&mut control);
        runs += 1;
        check!(
            runs < SAMPLES,
            "{runs} samples have not found two damaged pages"
        );
    }
    check!(
        mm::frames().usage().retained == 0,
        "{:?}",
        mm::frames().usage()
    );
    Ok(())
}

/// Runs the program without a look at what it leaves; `None` when it is refused.
fn attempt(control: &mut FakeControl) -> Option<ExitReport> {
    control.again();
    let prepared = process::prepare(&control.launch(), control).ok()?;
    Some(prepared.run_alone(control).report)
}

/// Hashes that are wrong, lost, or come with a drop or a cancel: nothing is trusted that was not
/// compared where that was asked for, and what control believes is right in the end.
pub fn unverified() -> Outcome {
    for trouble in [OnHashes::Lie, OnHashes::Lose] {
        let mut control = FakeControl::warming(file(test_programs::write_and_sum()));
        control.on_hashes = trouble;
        run(&mut control)?;
        // A sample needs them and does without.
        let report = run(&mut control)?;
        check!(
            report.warm && report.pages_kept == 2,
            "{trouble:?}: {report:?}"
        );
        control.retention.verify = Verify::Always;
        control.again();
        let report = run(&mut control)?;
        check!(
            !report.warm && report.pages_damaged == 0,
            "{trouble:?}: {report:?}"
        );
        check!(
            report.pages_discarded == 2 && report.pages_kept == 2,
            "{trouble:?}: {report:?}"
        );
        control
            .warm
            .drop_program(&mut crate::mm::Hardware::new(), None);
    }
    // A drop that comes while the sample waits is not lost.
    let mut control = FakeControl::warming(file(test_programs::write_and_sum()));
    run(&mut control)?;
    control.on_hashes = OnHashes::Drop;
    let report = attempt(&mut control).ok_or("refused")?;
    check!(
        report.warm && control.warm.is_empty(),
        "kept although dropped: {report:?}"
    );
    check!(
        last_change(&mut control) == Some(false),
        "control was not told of the drop"
    );
    // A cancel before the launch leaves the program warm.
    control.on_hashes = OnHashes::Cancel;
    control.again();
    run(&mut control)?;
    control.retention.verify = Verify::Always;
    check!(
        attempt(&mut control).is_none(),
        "launched although cancelled"
    );
    check!(
        control.warm.len() == 1,
        "{} programs are warm",
        control.warm.len()
    );
    check!(
        last_change(&mut control) == Some(true),
        "control believes it cold"
    );
    // All pages damaged, and the file cannot be read: refused, and control hears that it is cold.
    control.on_hashes = OnHashes::Give;
    damage(&control, 0)?;
    damage(&control, 4096)?;
    control.broken_from = 0;
    check!(attempt(&mut control).is_none(), "launched without its file");
    check!(
        control.warm.is_empty(),
        "{} programs are warm",
        control.warm.len()
    );
    check!(
        last_change(&mut control) == Some(false),
        "control believes it warm"
    );
    Ok(())
}

/// What control was told last: whether the node holds the program.
fn last_change(control: &mut FakeControl) -> Option<bool> {
    let changes = core::iter::from_fn(|| control.warm.next_change());
    changes
        .last()
        .map(|change| matches!(change, Change::Holds(_)))
}

/// Killed in the middle, out of memory, by a fault in text that it made writable: what stays is
/// of the file ([`run`] compares it), and the program can be launched again.
pub fn ends() -> Outcome {
    let mut control = FakeControl::warming(file(test_programs::spin()));
    control.tick_us = 5_000;
    for round in 0..2 {
        control.polls = 0;
        control.cancel_after_polls = Some(1);
        let report = run(&mut control)?;
        expect(&report, ExitStatus::Signal(15))?;
        check!(
            report.warm == (round == 1) && report.pages_kept == 1,
            "{report:?}"
        );
    }
    control.cancel_after_polls = None;
    control.next_program(file(test_programs::spoil_text()));
    for _ in 0..2 {
        let report = run(&mut control)?;
        expect(&report, ExitStatus::Signal(11))?;
        check!(report.pages_kept == 0 && !report.warm, "{report:?}");
    }
    let bytes = (mm::frames().usage().total * 4096).to_le_bytes();
    control.next_program(file_with(test_programs::fill_memory(), &bytes, 1));
    for round in 0..2 {
        let report = run(&mut control)?;
        expect(&report, ExitStatus::Signal(9))?;
        check!(
            report.warm == (round == 1) && report.pages_kept == 2,
            "{report:?}"
        );
    }
    Ok(())
}

/// A file whose data has so many pages, different from other files.
pub fn large_file(pages: u64, mark: u8) -> Vec<u8> {
    let mut data = vec![mark; (pages * 4096) as usize];
    data[..8].copy_from_slice(&u64::from(mark).to_le_bytes());
    file_with(test_programs::touch_data(), &data, 1)
}

/// Memory that a running program wants goes before warm programs, least recently used first; the
/// frames it gets from them are clean, and control hears of it.
pub fn pressure() -> Outcome {
    const PROGRAMS: u8 = 24;
    let mut control = FakeControl::warming(Vec::new());
    for mark in 1..=PROGRAMS {
        control.next_program(large_file(TOUCHED_PAGES, mark));
        run(&mut control)?;
    }
    while control.warm.next_change().is_some() {}
    let before = control.warm.len();
    check!(
        before == usize::from(PROGRAMS),
        "{before} programs are warm"
    );
    let usage = mm::frames().usage();
    // Half of what the warm programs have must go.
    let wanted = usage.available() + usage.retained / 2;
    let bytes = (wanted * 4096).to_le_bytes();
    control.next_program(file_with(test_programs::fill_memory(), &bytes, 1));
    let report = run(&mut control)?;
    expect(&report, ExitStatus::Exited(0))?;
    let left: Vec<_> = control
        .warm
        .holdings()
        .map(|holding| holding.program)
        .collect();
    check!(left.len() < before, "all programs are still warm");
    let mut dropped = 0;
    while let Some(change) = control.warm.next_change() {
        dropped += usize::from(matches!(change, Change::Dropped(_)));
    }
    check!(
        dropped + left.len() == before + 1,
        "{dropped} drops told, {left:?} left"
    );
    // The newest are those that stayed.
    control.next_program(large_file(TOUCHED_PAGES, PROGRAMS));
    check!(
        left.contains(&control.id()),
        "the newest program went first"
    );
    control.next_program(large_file(TOUCHED_PAGES, 1));
    check!(!left.contains(&control.id()), "the oldest program stayed");
    Ok(())
}

/// A program that runs through its file has several requests under way, never more than the
/// protocol takes, and every page is asked for once.
pub fn read_ahead() -> Outcome {
    let mut control = FakeControl::new(large_file(TOUCHED_PAGES, 1));
    control.delay_us = 2_000;
    let report = run(&mut control)?;
    expect(
        &report,
        ExitStatus::Exited(((1 + (TOUCHED_PAGES - 1)) & 127) as u8),
    )?;
    let pages = report.pages_asked + report.pages_read_ahead;
    check!(
        report.pages_read_ahead_used + report.pages_asked >= TOUCHED_PAGES,
        "{report:?}"
    );
    check!(pages <= TOUCHED_PAGES + 2, "{report:?}");
    check!(
        control.traffic.bytes <= (TOUCHED_PAGES + 3) * 4096,
        "{:?}",
        control.traffic
    );
    let most = control.outstanding;
    check!((4..=8).contains(&most), "{most} requests were under way");
    Ok(())
}
