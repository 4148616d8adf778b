//! Whole programs, from the bytes of an ELF file to the exit report, against a control node made
//! of an array.
//!
//! The programs are those of `arch::test_programs`, wrapped into an ELF file: a page of code, a
//! page of data, and [`BSS_PAGES`] pages behind it.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use hearth_abi::linux::{map, prot};
use hearth_abi::sysno;
use kernel_core::addr::USER_END;
use kernel_core::loader::layout;
use kernel_core::program::STEP_PAGES;
use netstack::ids::{JobId, LocalRank, ProgramId};
use netstack::io::{ExitReport, ExitStatus};
use netstack::job::RefusalCode;
use netstack::time::{Instant, Micros};

use super::control::FakeControl;
use super::files::Script;
use super::{Outcome, check};
use crate::agent::mailbox::{Cancel, Mailbox, SIGKILL};
use crate::arch::test_programs::{
    self, PROGRAM_BSS_PAGES as BSS_PAGES, PROGRAM_DATA as DATA, PROGRAM_TEXT as TEXT, TABLE_CALLS,
    TABLE_WORDS,
};
use crate::arch::{cpu, entropy};
use crate::mm::Hardware;
use crate::mm::{self, DirectMap};
use crate::process::{self, Exit};

/// The signal of a program whose time is over.
const SIGXCPU: u8 = 24;
/// Where the code lies in the file: behind the headers.
const CODE_AT: usize = 0x200;
/// The ELF file of a program, its data in the second page.
pub fn file(code: &[u8]) -> Vec<u8> {
    file_with(code, TEXT, 1)
}

/// The ELF file of a program with its data from a given page of the file on.
pub fn file_with(code: &[u8], data: &[u8], page: u64) -> Vec<u8> {
    let data_at = page * 4096;
    let data_bytes = (data.len() as u64).next_multiple_of(4096);
    let mut file = vec![0; (data_at + data_bytes) as usize];
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"\x7fELF\x02\x01\x01");
    for (at, half) in [(16, 2u16), (18, 62), (52, 64), (54, 56), (56, 2)] {
        put(at, &half.to_le_bytes());
    }
    put(20, &1u32.to_le_bytes());
    let entry = DATA - 4096 + CODE_AT as u64;
    for (at, word) in [(24, entry), (32, 64)] {
        put(at, &word.to_le_bytes());
    }
    let segments = [
        (5u32, 0, DATA - 4096, 4096, 4096),
        (6, data_at, DATA, data_bytes, data_bytes + BSS_PAGES * 4096),
    ];
    for (index, segment) in segments.into_iter().enumerate() {
        let (flags, offset, address, file_bytes, memory_bytes) = segment;
        let at = 64 + 56 * index;
        put(at, &1u32.to_le_bytes());
        put(at + 4, &flags.to_le_bytes());
        for (field, word) in [offset, address, address, file_bytes, memory_bytes, 4096]
            .into_iter()
            .enumerate()
        {
            put(at + 8 + 8 * field, &word.to_le_bytes());
        }
    }
    put(CODE_AT, code);
    put(data_at as usize, data);
    file
}

/// Runs a program to its end; its frames must then be free again.
pub fn run(control: &mut FakeControl) -> Result<Exit, String> {
    let before = mm::frames_beside_heap();
    let launch = control.launch();
    let prepared = process::prepare(&launch, control).map_err(|refusal| format!("{refusal:?}"))?;
    let exit = prepared.run_alone(control);
    let (beside_heap, after) = (mm::frames_beside_heap(), mm::frames().usage());
    check!(
        after.user == 0,
        "{} frames of the program are left",
        after.user
    );
    check!(after.dirty == 0, "{} frames are not scrubbed", after.dirty);
    check!(
        beside_heap == before,
        "frames of the kernel: {before}, then {beside_heap} of {after:?}"
    );
    mm::frames().check()?;
    Ok(exit)
}

pub fn expect(report: &ExitReport, status: ExitStatus) -> Outcome {
    check!(report.status == status, "expected {status:?}: {report:?}");
    Ok(())
}

/// A program is loaded page by page, writes, and exits; what it cost is counted.
pub fn hello_world() -> Outcome {
    let mut control = FakeControl::new(file(test_programs::write_and_sum()));
    control.full = 3;
    let exit = run(&mut control)?;
    expect(&exit.report, ExitStatus::Exited(7))?;
    check!(control.output(1) == TEXT, "output {:?}", control.written);
    check!(
        exit.text.is_none(),
        "a report for no reason: {:?}",
        exit.text
    );
    let report = exit.report;
    // The code page was read for the headers; data was fetched; bss and stack are zero pages.
    check!(report.faults_data == 1, "{report:?}");
    check!(
        report.pages_asked == 1 && report.pages_read_ahead_used == 1,
        "{report:?}"
    );
    check!(
        report.faults_zero + report.faults_stack == BSS_PAGES + 1,
        "{report:?}"
    );
    check!(report.system_calls == 2, "{report:?}");
    check!(report.frames_peak == BSS_PAGES + 3, "{report:?}");
    check!(report.frames_scrubbed > report.frames_peak, "{report:?}");
    Ok(())
}

/// Input, the descriptor of errors, and calls that the node does not have.
pub fn streams() -> Outcome {
    let mut control = FakeControl::new(file(test_programs::echo()));
    control.input = b"forty-two\n".to_vec();
    let exit = run(&mut control)?;
    expect(&exit.report, ExitStatus::Exited(38))?;
    check!(control.output(2) == b"forty-two\n", "{:?}", control.written);
    let unknown = &exit.report.unknown_calls;
    check!(unknown[..] == [(9999, 1)], "{unknown:?}");
    Ok(())
}

/// The second program gets the frames of the first and sees zeros; without scrubbing it does not.
pub fn scrubbed() -> Outcome {
    for round in 0..3 {
        let exit = run(&mut FakeControl::new(file(test_programs::scan_and_fill())))?;
        check!(
            exit.report.status == ExitStatus::Exited(0),
            "round {round} found something: {:?}",
            exit.report
        );
    }
    let counters = mm::frames().counters();
    check!(
        counters.reused >= 2 * BSS_PAGES,
        "other frames were used: {counters:?}"
    );
    mm::frames().disable_scrubbing_for_test();
    run(&mut FakeControl::new(file(test_programs::scan_and_fill())))?;
    let exit = run(&mut FakeControl::new(file(test_programs::scan_and_fill())))?;
    expect(&exit.report, ExitStatus::Exited(1))
}

/// A computing program ends by cancel, by its time limit, and not by a heartbeat.
pub fn ended() -> Outcome {
    let mut control = FakeControl::new(file(test_programs::spin()));
    control.tick_us = 20_000;
    control.cancel_after_polls = Some(3);
    let exit = run(&mut control)?;
    expect(&exit.report, ExitStatus::Signal(15))?;
    let beats = exit.report.interrupts_user.heartbeat;
    check!(beats == 3, "{beats} heartbeats");
    let mut control = FakeControl::new(file(test_programs::spin()));
    control.time_limit_us = 100_000;
    let exit = run(&mut control)?;
    expect(&exit.report, ExitStatus::Signal(24))?;
    let report = exit.report;
    check!(report.interrupts_user.time_limit == 1, "{report:?}");
    check!(
        (100_000..1_000_000).contains(&report.wall_us),
        "ended after {} us",
        report.wall_us
    );
    let text = exit.text.unwrap_or_default();
    check!(text.starts_with("SIGXCPU: time limit"), "{text}");
    Ok(())
}

/// A program gets the signals that control sends, and time to end by itself.
pub fn signalled() -> Outcome {
    const SIGTERM: u8 = 15;
    const SIGCHLD: u8 = 17;
    let mut control = FakeControl::new(file(test_programs::spin()));
    control.tick_us = 20_000;
    // The first does nothing where there is no handler.
    control.signals = [SIGCHLD, SIGTERM].into();
    let exit = run(&mut control)?;
    expect(&exit.report, ExitStatus::Signal(SIGTERM))?;
    let (now, grace) = (Instant::from_micros(1_000_000), Micros::from_secs(5));
    let mut mailbox = Mailbox::new(JobId(1), ProgramId([1; 32]), 1);
    for signal in [64, 10, 1, 10] {
        mailbox.put_signal(signal);
    }
    let taken = [(); 4].map(|()| mailbox.take_signal(LocalRank::FIRST));
    check!(taken == [Some(1), Some(10), Some(64), None], "{taken:?}");
    let cancel = Cancel {
        signal: SIGTERM,
        orphan: false,
        kill_at: Some(now + grace),
    };
    mailbox.put_cancel(cancel);
    let at = mailbox.cancelled(now);
    check!(at == Some(SIGTERM), "{at:?} before the program runs");
    mailbox.set_entered(true);
    let (early, late) = (mailbox.cancelled(now), mailbox.cancelled(now + grace));
    check!(
        early.is_none() && late == Some(SIGKILL),
        "{early:?}, {late:?}"
    );
    check!(mailbox.kill_at() == Some(now + grace), "no deadline");
    check!(
        mailbox.take_signal(LocalRank::FIRST) == Some(SIGTERM),
        "it is not told"
    );
    // Who has no time replaces it.
    mailbox.put_cancel(Cancel {
        signal: SIGKILL,
        orphan: false,
        kill_at: None,
    });
    let at = mailbox.cancelled(now);
    check!(at == Some(SIGKILL) && mailbox.kill_at().is_none(), "{at:?}");
    check!(
        mailbox.take_signal(LocalRank::FIRST).is_none(),
        "a signal beside the end"
    );
    Ok(())
}

/// Calls that work long keep up with the heartbeat and see a cancel before they are done.
pub fn long_calls() -> Outcome {
    const AT: u64 = 0x1000_0000;
    const BYTES: u64 = 4 << 20;
    const FIXED_PRIVATE_ANONYMOUS: u64 = 0x32;
    const READ_WRITE: u64 = 3;
    for call in [[sysno::GETRANDOM, AT, BYTES], [sysno::WRITE, 1, AT]] {
        let map = [
            sysno::MMAP,
            AT,
            BYTES,
            READ_WRITE,
            FIXED_PRIVATE_ANONYMOUS,
            u64::MAX,
            0,
        ];
        let mut table: Vec<u64> = map.to_vec();
        table.extend(call);
        table.extend([if call[0] == sysno::WRITE { BYTES } else { 0 }, 0, 0, 0]);
        for _ in 2..TABLE_CALLS {
            table.extend([sysno::GETPID, 0, 0, 0, 0, 0, 0]);
        }
        let table: Vec<u8> = table.iter().flat_map(|word| word.to_le_bytes()).collect();
        let program = file_with(test_programs::call_table(), &table, 1);
        let mut control = FakeControl::new(program.clone());
        control.tick_us = 1_000;
        let exit = run(&mut control)?;
        expect(&exit.report, ExitStatus::Exited(0))?;
        let took = exit.report.wall_us;
        check!(
            // A loaded host takes the processor away for longer than between two looks.
            u64::from(control.polls) * 1_000 > took / 40,
            "{} looks at the network in {took} us",
            control.polls
        );
        let mut control = FakeControl::new(program);
        control.tick_us = 1_000;
        control.cancel_after_polls = Some(3);
        let exit = run(&mut control)?;
        expect(&exit.report, ExitStatus::Signal(15))?;
        let calls = exit.report.system_calls;
        check!(calls == 2, "ended after {calls} calls");
    }
    Ok(())
}

/// A program that returns to itself by IRETQ goes on there; where the emulator takes its stack for
/// the kernel's under SMAP (docs/abi.md), it stands still until its time is over, and nothing else
/// happens.
pub fn iretq() -> Outcome {
    let mut control = FakeControl::new(file(test_programs::return_by_iretq()));
    control.time_limit_us = 200_000;
    let exit = run(&mut control)?;
    let stands_still = exit.report.status == ExitStatus::Signal(SIGXCPU);
    if cpu::features().smap && stands_still {
        return hello_world();
    }
    expect(&exit.report, ExitStatus::Exited(42))
}

/// However many pages a program gives back at once, the node looks at the network after so many,
/// also at its end.
pub fn many_pages() -> Outcome {
    const AT: u64 = 0x1000_0000;
    const BYTES: u64 = 8 << 20;
    const FIXED_PRIVATE_ANONYMOUS: u64 = 0x32;
    // The pages of a step with the tables that go with them, and what a look at the network may
    // free itself.
    const MOST: u64 = STEP_PAGES + 16;
    let mut script = Script::new();
    let map = [AT, BYTES, 3, FIXED_PRIVATE_ANONYMOUS, u64::MAX, 0];
    let fill = [AT, BYTES, 0];
    for (number, arguments, answer) in [
        (sysno::MMAP, &map[..], AT),
        (sysno::GETRANDOM, &fill, BYTES),
        (sysno::MPROTECT, &[AT, BYTES, 1], 0),
        (sysno::MUNMAP, &[AT, BYTES], 0),
        (sysno::MMAP, &map, AT),
        (sysno::GETRANDOM, &fill, BYTES),
        (sysno::MMAP, &map, AT),
        (sysno::GETRANDOM, &fill, BYTES),
    ] {
        script.call(number, arguments, answer);
    }
    let mut control = FakeControl::new(script.program());
    // Always due.
    control.tick_us = 0;
    let exit = run(&mut control)?;
    expect(&exit.report, ExitStatus::Exited(0))?;
    let most = control.most_freed;
    check!(
        (STEP_PAGES..=MOST).contains(&most),
        "{most} pages were given back between two looks at the network"
    );
    Ok(())
}

/// A page that cannot be had ends the program with a text, and a file that cannot be read refuses
/// the launch.
pub fn pages_lost() -> Outcome {
    // Far enough that the data is not read with the headers.
    let mut control = FakeControl::new(file_with(test_programs::write_and_sum(), TEXT, 4));
    control.broken_from = 4 * 4096;
    let exit = run(&mut control)?;
    expect(&exit.report, ExitStatus::Failed)?;
    let text = exit.text.unwrap_or_default();
    check!(text.contains("could not be fetched"), "{text}");
    let mut control = FakeControl::new(file(test_programs::write_and_sum()));
    control.broken_from = 0;
    let launch = control.launch();
    match process::prepare(&launch, &mut control) {
        Err(refusal) if refusal.code == RefusalCode::Unreadable => Ok(()),
        Err(refusal) => Err(format!("{refusal:?}")),
        Ok(_) => Err(String::from("a file that cannot be read was loaded")),
    }
}

/// Damaged files end in a refusal or in the end of the program, never of the node.
pub fn damaged() -> Outcome {
    const FILES: u32 = 200;
    let good = file(test_programs::write_and_sum());
    let (mut refused, mut ended) = (0, 0);
    for _ in 0..FILES {
        let mut bad = good.clone();
        for _ in 0..1 + entropy::random_u64() % 3 {
            let at = entropy::random_u64() as usize % (CODE_AT + 96);
            bad[at] = entropy::random_u64() as u8;
        }
        let mut control = FakeControl::new(bad);
        control.time_limit_us = 20_000;
        control.tick_us = 10_000;
        let before = mm::frames().usage();
        let launch = control.launch();
        match process::prepare(&launch, &mut control) {
            Err(_) => refused += 1,
            Ok(prepared) => {
                prepared.run_alone(&mut control);
                ended += 1;
            }
        }
        let after = mm::frames().usage();
        check!(
            after.kernel == before.kernel && after.user == 0,
            "{before:?}, {after:?}"
        );
        mm::frames().check()?;
    }
    info!(
        "test",
        "{FILES} damaged files: {refused} refused, {ended} ran to some end"
    );
    check!(refused > 0 && ended > 0, "{refused} refused, {ended} ended");
    hello_world()
}

/// Calls that end the program or wait for ever are left out of the random ones.
const NOT_RANDOM: [u64; 8] = [
    sysno::EXIT,
    sysno::EXIT_GROUP,
    sysno::KILL,
    sysno::TKILL,
    sysno::TGKILL,
    sysno::POLL,
    sysno::NANOSLEEP,
    sysno::CLOCK_NANOSLEEP,
];

/// A number that is likely to be on the edge of something.
pub(super) fn edge() -> u64 {
    let random = entropy::random_u64();
    match random >> 60 {
        0 => random % 8,
        1 => (random % 8).wrapping_neg(),
        2 => DATA + random % 0x2_0000,
        3 => DATA + random % 0x20 * 4096,
        4 => layout::STACK_TOP - random % 0x1_0000,
        5 => layout::MMAP_TOP - random % 0x10 * 4096,
        6 => USER_END - random % 0x2000,
        7 => mm::layout::PHYSICAL_MAP + random % 0x10_0000,
        8 => 1 << (random % 64),
        9 => random % 0x4000,
        10 => random % 0x100 * 4096,
        11 => 0x22 | (random % 2) << 4,
        _ => random,
    }
}

/// The file that random calls meet, and its length.
const FILE_PATH: &[u8] = b"/with/f\0";
const FILE_BYTES: u64 = 3 * 4096 + 100;
/// Calls that are made often.
const FAVOURITES: [u64; 8] = [
    sysno::MADVISE,
    sysno::WRITE,
    sysno::READ,
    sysno::PREAD64,
    sysno::READV,
    sysno::LSEEK,
    sysno::DUP2,
    sysno::GETDENTS64,
];

/// Opens the file, and maps it shared and private behind the program's data.
fn open_and_map() -> [[u64; TABLE_WORDS]; 3] {
    const SHARED: u64 = map::SHARED | map::FIXED;
    const PRIVATE: u64 = map::PRIVATE | map::FIXED;
    let path = DATA + TABLE_CALLS * TABLE_WORDS as u64 * 8;
    let (first, second) = (DATA + 0x8000, DATA + 0x1_0000);
    let both = prot::READ | prot::WRITE;
    [
        [sysno::OPEN, path, 0, 0, 0, 0, 0],
        [sysno::MMAP, first, FILE_BYTES, prot::READ, SHARED, 3, 0],
        [sysno::MMAP, second, FILE_BYTES, both, PRIVATE, 3, 0],
    ]
}

/// Random calls with arguments on the edge of everything end at worst the program.
pub fn hostile() -> Outcome {
    const ROUNDS: u32 = 150;
    const NUMBERS: u64 = 340;
    let (mut through, mut calls) = (0, 0);
    let file: Vec<u8> = (0..FILE_BYTES).map(|at| at as u8 ^ 0x5a).collect();
    for _ in 0..ROUNDS {
        let mut table = Vec::new();
        // A file is open as 3 and mapped where the calls meet it.
        for call in open_and_map() {
            table.extend(call.iter().flat_map(|word| word.to_le_bytes()));
        }
        for _ in 3..TABLE_CALLS {
            let number = loop {
                let random = entropy::random_u64();
                // The calls that change memory are the dangerous ones.
                let number = match random >> 62 {
                    0 => sysno::MMAP + random % 4,
                    1 => FAVOURITES[random as usize % FAVOURITES.len()],
                    _ => random % NUMBERS,
                };
                if !NOT_RANDOM.contains(&number) {
                    break number;
                }
            };
            table.extend_from_slice(&number.to_le_bytes());
            for _ in 1..TABLE_WORDS {
                table.extend_from_slice(&edge().to_le_bytes());
            }
        }
        table.extend_from_slice(FILE_PATH);
        let program = file_with(test_programs::call_table(), &table, 1);
        let mut control = FakeControl::new(program);
        let id = control.give_file("f", &file, false);
        control.time_limit_us = 200_000;
        let exit = run(&mut control)?;
        let mut there = vec![0; file.len()];
        let whole = control.objects.read_bytes(&DirectMap, &id, 0, &mut there);
        check!(whole && there == file, "a program wrote to a file");
        mm::frames().check_tags()?;
        control.objects.drop_object(&mut Hardware::new(), &id);
        through += u32::from(exit.report.status == ExitStatus::Exited(0));
        calls += exit.report.system_calls;
    }
    info!(
        "test",
        "{ROUNDS} programs made {calls} calls, {through} came to their end"
    );
    check!(through > 0, "no program came through");
    check!(
        calls > u64::from(ROUNDS) * 20,
        "only {calls} calls were made"
    );
    hello_world()
}
