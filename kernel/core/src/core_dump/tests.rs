//! Core files are read back as a debugger reads them: headers, notes, pages at their offsets.

use super::*;
use crate::loader::synthetic;
use crate::signals::code;
use std::vec;

fn run(start: u64, pages: u64, is_data: bool) -> Run {
    Run {
        start,
        end: start + pages * PAGE_SIZE,
        protection: Protection::ReadWrite,
        is_data,
    }
}

fn threads() -> [Thread<'static>; 2] {
    let thread = |tid, rip| Thread {
        tid,
        registers: Registers {
            rip,
            rsp: 0x7000,
            ..Registers::default()
        },
        bases: (0x1234, 0),
        state: &[7; 832],
    };
    [thread(3, 0x40_1136), thread(2, 0x40_1200)]
}

fn planned(runs: Vec<Run>, limit: u64) -> Option<Plan> {
    let image = synthetic::image();
    let program = Program {
        pid: 2,
        signal: 11,
        info: Info::fault(code::SEGV_MAPERR, 0x40),
        name: b"/home/eve/app",
        image: &image,
        threads: &threads(),
        components: 7,
    };
    plan(&program, runs, limit)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn half(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// (kind, offset, address, bytes in the file) of each program header.
fn headers(head: &[u8]) -> Vec<(u32, u64, u64, u64)> {
    assert_eq!(&head[..4], b"\x7fELF");
    assert_eq!(word(head, 32), 64, "where the program headers are");
    let count = u16::from_le_bytes([head[56], head[57]]);
    let header = |index| {
        let at = 64 + index * 56;
        (
            half(head, at),
            word(head, at + 8),
            word(head, at + 16),
            word(head, at + 32),
        )
    };
    (0..usize::from(count)).map(header).collect()
}

/// (name, kind, contents) of each note.
fn notes(head: &[u8]) -> Vec<(Vec<u8>, u32, Vec<u8>)> {
    let (kind, offset, _, bytes) = headers(head)[0];
    assert_eq!(kind, PT_NOTE);
    let mut rest = &head[offset as usize..(offset + bytes) as usize];
    let mut all = Vec::new();
    while !rest.is_empty() {
        let (name, contents) = (half(rest, 0) as usize, half(rest, 4) as usize);
        let at = 12 + name.next_multiple_of(4);
        all.push((
            rest[12..12 + name].to_vec(),
            half(rest, 8),
            rest[at..at + contents].to_vec(),
        ));
        rest = &rest[at + contents.next_multiple_of(4)..];
    }
    all
}

#[test]
fn pages_lie_at_their_offsets_and_headers_in_the_order_of_addresses() {
    let runs = vec![
        run(0x40_5000, 2, true),
        run(0x60_0000, 3, false),
        run(0x7f00_0000_0000, 1, false),
    ];
    let plan = planned(runs, u64::MAX).unwrap();
    assert_eq!(plan.left_out, 0);
    let order: Vec<u64> = plan.runs.iter().map(|run| run.start).collect();
    assert_eq!(order, [0x40_5000, 0x7f00_0000_0000, 0x60_0000]);
    let head = plan.head.len() as u64;
    assert!(head.is_multiple_of(PAGE_SIZE));
    assert_eq!(plan.bytes(), head + 6 * PAGE_SIZE);
    let loads = &headers(&plan.head)[1..];
    assert_eq!(
        loads,
        [
            (PT_LOAD, head, 0x40_5000, 2 * PAGE_SIZE),
            (PT_LOAD, head + 3 * PAGE_SIZE, 0x60_0000, 3 * PAGE_SIZE),
            (PT_LOAD, head + 2 * PAGE_SIZE, 0x7f00_0000_0000, PAGE_SIZE),
        ]
    );
}

#[test]
fn every_thread_has_its_registers_and_the_one_that_ended_it_is_first() {
    let plan = planned(vec![run(0x40_5000, 1, true)], u64::MAX).unwrap();
    let notes = notes(&plan.head);
    let kinds: Vec<u32> = notes.iter().map(|note| note.1).collect();
    assert_eq!(kinds, [1, 3, 0x5349_4749, 6, 2, 0x202, 1, 2, 0x202]);
    let status = |index: usize| {
        let bytes = &notes[index].2;
        assert_eq!(bytes.len(), 336);
        let rip = word(bytes, 112 + 16 * 8);
        (half(bytes, 32), rip, u32::from(bytes[12]))
    };
    assert_eq!(status(0), (3, 0x40_1136, 11));
    assert_eq!(status(6), (2, 0x40_1200, 11));
    assert_eq!(word(&notes[0].2, 112 + 21 * 8), 0x1234, "the base of FS");
    assert_eq!(notes[1].2.len(), 136);
    assert_eq!(&notes[1].2[40..44], b"app\0");
    let entry = notes[3].2.chunks(16).find(|pair| word(pair, 0) == 9);
    assert_eq!(word(entry.unwrap(), 8), synthetic::image().entry);
    assert_eq!(
        (notes[5].0.as_slice(), notes[5].2.len()),
        (&b"LINUX\0"[..], 832)
    );
    assert_eq!(word(&notes[5].2, 464), 7, "the components");
}

#[test]
fn what_came_with_the_signal_is_a_note_behind_the_registers_of_its_thread() {
    let plan = planned(vec![run(0x40_5000, 1, true)], u64::MAX).unwrap();
    let (name, kind, info) = &notes(&plan.head)[2];
    assert_eq!((name.as_slice(), *kind), (&b"CORE\0"[..], 0x5349_4749));
    // si_signo, si_errno, si_code, si_addr.
    assert_eq!(info.len(), 128);
    assert_eq!((half(info, 0), half(info, 4), half(info, 8)), (11, 0, 1));
    assert_eq!(word(info, 16), 0x40);
}

#[test]
fn a_limit_leaves_the_heap_out_and_is_never_passed() {
    let runs = || {
        vec![
            run(0x40_5000, 2, true),
            run(0x60_0000, 100, false),
            run(0x7f00_0000_0000, 4, false),
        ]
    };
    let head = planned(runs(), u64::MAX).unwrap().head.len() as u64;
    let limit = head + 7 * PAGE_SIZE + 5;
    let plan = planned(runs(), limit).unwrap();
    assert_eq!(plan.bytes(), head + 7 * PAGE_SIZE);
    assert_eq!(plan.left_out, 99 * PAGE_SIZE);
    assert_eq!(plan.runs[2], run(0x60_0000, 1, false));
    assert!(planned(runs(), head - 1).is_none());
    let plan = planned(runs(), head).unwrap();
    assert_eq!((plan.runs.len(), headers(&plan.head).len()), (0, 1));
    for limit in (0..200 * PAGE_SIZE).step_by(1000) {
        assert!(planned(runs(), limit).is_none_or(|plan| plan.bytes() <= limit));
    }
}
