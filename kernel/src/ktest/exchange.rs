//! Operations between ranks, from the program's call to its pages and back.
//!
//! The program is rank 0; the others are [`FakeRanks`]. Programs are tables of calls with their
//! answers, as in [`super::files`].

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use hearth_abi::errno::Errno;
use hearth_abi::exchange::{
    ANY_RANK, ANY_TAG, CHECK, FOREVER, Kind, OPERATION_BYTES, Operation, SIT_OUT, Status, Why,
};
use hearth_abi::linux::{map, prot};
use hearth_abi::sysno;
use netstack::exchange::{Among, Event, Layout, Op, Part, Side};
use netstack::ids::Rank;
use netstack::io::ExitStatus;
use netstack::time::Micros;

use super::control::FakeControl;
use super::fake_ranks::{FakeRanks, KEY};
use super::files::{BUFFER, MAPPED, Script};
use super::program::{edge, expect, file_with, run};
use super::{Outcome, check};
use crate::arch::entropy;
use crate::arch::test_programs::{self, PROGRAM_DATA as DATA, TABLE_CALLS, TABLE_WORDS};
use crate::exchange::Exchange;
use crate::{mm, process, time};

const TAG: u32 = 9;

/// Words of an operation as a script has them.
fn words(operation: &Operation) -> Vec<u64> {
    let bytes = operation.to_bytes();
    let (words, _) = bytes.as_chunks();
    words.iter().copied().map(u64::from_le_bytes).collect()
}

/// Posts an operation, which must get this number.
fn post(script: &mut Script, operation: &Operation, request: u64) {
    let at = script.words(&words(operation));
    script.call(sysno::HEARTH_POST, &[at, OPERATION_BYTES as u64], request);
}

/// Waits for requests for ever and shows their statuses.
fn wait(script: &mut Script, requests: &[u32]) {
    let list: Vec<u64> = requests
        .chunks(2)
        .map(|pair| u64::from(pair[0]) | u64::from(*pair.get(1).unwrap_or(&0)) << 32)
        .collect();
    let list = script.words(&list);
    let count = requests.len() as u64;
    let statuses = script.words(&vec![0; requests.len() * 3]);
    script
        .call(
            sysno::HEARTH_WAIT,
            &[list, count, statuses, 0, FOREVER],
            count,
        )
        .show(statuses, count * 24);
}

fn receive(address: u64, bytes: u64) -> Operation {
    Operation {
        kind: Kind::Receive as u16,
        rank: 1,
        tag: TAG,
        receive: address,
        receive_bytes: bytes,
        ..Operation::default()
    }
}

fn send(address: u64, bytes: u64) -> Operation {
    Operation {
        kind: Kind::Send as u16,
        rank: 1,
        tag: TAG,
        send: address,
        send_bytes: bytes,
        ..Operation::default()
    }
}

fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    let byte = |at: usize| (at * 7 + (at >> 9)) as u8 ^ seed;
    (0..bytes).map(byte).collect()
}

/// A program with other ranks beside it.
fn control(program: Vec<u8>, size: u32) -> FakeControl {
    let mut control = FakeControl::new(program);
    control.set_size(size);
    let job = control.spec().job;
    control.exchange.launched(job, KEY);
    control.ranks = Some(FakeRanks::new(size, time::now()));
    control
}

fn ranks(control: &mut FakeControl) -> &mut FakeRanks {
    control.ranks.as_mut().expect("there are other ranks")
}

/// The message that rank 1 sends.
fn from_one(ranks: &mut FakeRanks, bytes: Vec<u8>) -> Op {
    let length = bytes.len() as u64;
    Op::Send {
        to: Rank(0),
        context: 0,
        tag: TAG,
        buffer: ranks.buffer(1, bytes),
        bytes: length,
        is_synchronous: false,
    }
}

/// A long message each way, into pages that the program has never touched, and out of its file's.
pub fn messages() -> Outcome {
    const IN: usize = 50_001;
    const OUT: u64 = 9_000;
    // Not at the start of a page.
    const TO: u64 = BUFFER + 0x2345;
    let mut script = Script::new();
    post(&mut script, &receive(TO, IN as u64 + 10), 1);
    post(&mut script, &send(DATA, OUT), 2);
    wait(&mut script, &[1, 2]);
    script.show(TO, IN as u64 + 10);
    let program = script.program();
    let table = &program[program.len() - 0x5000..][..OUT as usize];
    let mut control = control(program.clone(), 2);
    let others = ranks(&mut control);
    let message = from_one(others, pattern(IN, 1));
    let room = others.buffer(1, vec![0; OUT as usize]);
    let take = Op::Receive {
        from: Some(Rank(0)),
        context: 0,
        tag: Some(TAG),
        buffer: room,
        capacity: OUT,
    };
    others.plan(time::now(), 1, message);
    others.plan(time::now() + Micros::from_millis(20), 1, take);
    let exit = run(&mut control)?;
    expect(&exit.report, ExitStatus::Exited(0))?;
    let output = control.output(1);
    let (statuses, content) = output.split_at(48);
    let status = |at: usize| {
        let bytes = statuses[at * 24..].first_chunk().expect("two statuses");
        Status::from_bytes(bytes)
    };
    let first = status(0);
    check!(first.error == 0 && first.bytes == IN as u64, "{first:?}");
    check!(first.rank == 1 && first.tag == TAG, "{first:?}");
    check!(status(1).error == 0, "{:?}", status(1));
    let mut expected = pattern(IN, 1);
    expected.resize(IN + 10, 0);
    check!(content == expected, "another message arrived");
    let sent = ranks(&mut control).content(1, room);
    // The first request's number was written over: nothing else of the table changes.
    check!(sent == table, "another message left");
    Ok(())
}

/// An all-to-all exchange among three, with blocks of different lengths, one of them empty.
pub fn blocks() -> Outcome {
    const LENGTHS: [[u64; 3]; 3] = [[100, 5_000, 0], [70_000 % 30_000, 1, 12], [3, 0, 9]];
    const TO: u64 = BUFFER + 0x8000;
    let mut script = Script::new();
    let offsets = |counts: [u64; 3]| [0, counts[0], counts[0] + counts[1]];
    let column = [0, 1, 2].map(|from: usize| LENGTHS[from][0]);
    let lists = [LENGTHS[0], offsets(LENGTHS[0]), column, offsets(column)];
    let [send_counts, send_offsets, receive_counts, receive_offsets] =
        lists.map(|list| script.words(&list));
    let exchange = Operation {
        kind: Kind::AllToAll as u16,
        context: 3,
        send: DATA,
        receive: TO,
        send_counts,
        send_offsets,
        receive_counts,
        receive_offsets,
        ..Operation::default()
    };
    post(&mut script, &exchange, 1);
    wait(&mut script, &[1]);
    let all: u64 = column.iter().sum();
    script.show(TO, all);
    let barrier = Operation {
        kind: Kind::Barrier as u16,
        context: 3,
        ..Operation::default()
    };
    post(&mut script, &barrier, 2);
    wait(&mut script, &[2]);
    let program = script.program();
    let data = program[program.len() - 0x5000..].to_vec();
    let mut control = control(program, 3);
    let mut rooms = Vec::new();
    for me in [1, 2_usize] {
        let others = ranks(&mut control);
        let parts = |counts: [u64; 3]| {
            let parts = offsets(counts).into_iter().zip(counts);
            Layout::Parts(
                parts
                    .map(|(offset, bytes)| Part { offset, bytes })
                    .collect(),
            )
        };
        let column = [0, 1, 2].map(|from: usize| LENGTHS[from][me]);
        let length: u64 = LENGTHS[me].iter().sum();
        let from = others.buffer(me as u32, pattern(length as usize, me as u8));
        let room = others.buffer(me as u32, vec![0; column.iter().sum::<u64>() as usize]);
        rooms.push(room);
        let exchange = Op::AllToAll {
            among: Among::all(3),
            send: Side {
                buffer: from,
                layout: parts(LENGTHS[me]),
            },
            receive: Side {
                buffer: room,
                layout: parts(column),
            },
        };
        // One is early, one is late.
        let at = time::now() + Micros::from_millis(30 * (me as u64 - 1));
        others.plan(at, me as u32, exchange);
        others.plan(
            at,
            me as u32,
            Op::Barrier {
                among: Among::all(3),
            },
        );
    }
    let exit = run(&mut control)?;
    expect(&exit.report, ExitStatus::Exited(0))?;
    let output = control.output(1);
    let content = &output[24..output.len() - 24];
    let first = |seed: u8, count: u64| pattern(count as usize, seed);
    let expected = [
        data[..LENGTHS[0][0] as usize].to_vec(),
        first(1, LENGTHS[1][0]),
        first(2, LENGTHS[2][0]),
    ]
    .concat();
    check!(content == expected, "other blocks arrived");
    for me in [1, 2_usize] {
        let start = offsets(LENGTHS[0])[me] as usize;
        let sent = &data[start..start + LENGTHS[0][me] as usize];
        let found = ranks(&mut control).content(me as u32, rooms[me - 1]);
        check!(found.starts_with(sent), "rank {me} got another block");
    }
    Ok(())
}

/// A rank that waits is asleep: the CPU is halted until the message is there.
pub fn idle() -> Outcome {
    const WAIT: Micros = Micros::from_millis(400);
    // One that does not sleep makes tens of thousands. Turns, not time: a machine that gives the
    // node no processor leaves it neither asleep nor at work.
    const MOST_TURNS: u64 = 100;
    let mut script = Script::new();
    post(&mut script, &receive(BUFFER, 100), 1);
    wait(&mut script, &[1]);
    let mut control = control(script.program(), 2);
    let others = ranks(&mut control);
    let message = from_one(others, pattern(100, 4));
    others.plan(time::now() + WAIT, 1, message);
    let asleep = time::slept();
    let exit = run(&mut control)?;
    expect(&exit.report, ExitStatus::Exited(0))?;
    let slept = time::slept().as_micros() - asleep.as_micros();
    let turns = ranks(&mut control).turns;
    info!("test", "asleep {slept} us, {turns} turns of the run loop");
    check!(slept > 0, "it never slept");
    check!(
        turns <= MOST_TURNS,
        "{turns} turns of the run loop in which nothing happened"
    );
    Ok(())
}

/// Memory of an outstanding operation that is unmapped ends the operation, at both ends, and
/// nothing else.
pub fn unmapped() -> Outcome {
    const PAGES: u64 = 20;
    let mut script = Script::new();
    let flags = map::PRIVATE | map::ANONYMOUS | map::FIXED;
    let both = prot::READ | prot::WRITE;
    let bytes = PAGES * 4096;
    script.call(
        sysno::MMAP,
        &[MAPPED, bytes, both, flags, u64::MAX, 0],
        MAPPED,
    );
    post(&mut script, &receive(MAPPED, bytes), 1);
    script.call(sysno::MUNMAP, &[MAPPED + 4096, bytes - 4096], 0);
    wait(&mut script, &[1]);
    let mut control = control(script.program(), 2);
    let others = ranks(&mut control);
    let message = from_one(others, pattern(bytes as usize, 5));
    // In the wait, behind mapping, posting and unmapping.
    others.plan_at_call(4, 1, message);
    let exit = run(&mut control)?;
    expect(&exit.report, ExitStatus::Exited(0))?;
    let output = control.output(1);
    let status = Status::from_bytes(output.first_chunk().ok_or("no status")?);
    let fault = -i32::from(Errno::EFAULT.number());
    check!(status.error == fault, "{status:?}");
    Ok(())
}

/// A program ends with an operation outstanding: its memory is not touched any more, and the other
/// end is told.
pub fn ended() -> Outcome {
    let mut script = Script::new();
    post(&mut script, &receive(BUFFER, 60_000), 1);
    let mut control = control(script.program(), 2);
    let exit = run(&mut control)?;
    expect(&exit.report, ExitStatus::Exited(0))?;
    let now = time::now();
    let mut others = control.ranks.take().ok_or("no other ranks")?;
    let message = from_one(&mut others, pattern(60_000, 6));
    others.plan(now, 1, message);
    // Before it learns that rank 0 has ended, and after.
    for step in 0..20 {
        others.pump(now + Micros::from_millis(100 * step), &mut control.exchange);
    }
    let failed = |event: &Event| matches!(event, Event::Failed { .. });
    let events = others.events(1);
    check!(events.iter().any(failed), "rank 1 was not told: {events:?}");
    mm::frames().check_tags()?;
    Ok(())
}

/// A connection table that does not come: what was posted ends with an error, and nothing more is
/// taken.
pub fn no_table() -> Outcome {
    let mut script = Script::new();
    post(&mut script, &receive(BUFFER, 100), 1);
    wait(&mut script, &[1]);
    let at = script.words(&words(&receive(BUFFER, 100)));
    script.fails(
        sysno::HEARTH_POST,
        &[at, OPERATION_BYTES as u64],
        Errno::ENODATA,
    );
    let mut control = control(script.program(), 2);
    ranks(&mut control).table = false;
    control.exchange = Exchange::new(Micros::from_millis(300));
    let job = control.spec().job;
    control.exchange.launched(job, KEY);
    let exit = run(&mut control)?;
    expect(&exit.report, ExitStatus::Exited(0))?;
    let output = control.output(1);
    let status = Status::from_bytes(output.first_chunk().ok_or("no status")?);
    let none = -i32::from(Errno::ENODATA.number());
    check!(status.error == none, "{status:?}");
    Ok(())
}

/// A receive of any rank and any tag says whose message it got; nothing else may have such a flag.
pub fn from_any() -> Outcome {
    let mut script = Script::new();
    let any = Operation {
        flags: ANY_RANK | ANY_TAG,
        rank: 0,
        tag: 0,
        ..receive(BUFFER, 100)
    };
    post(&mut script, &any, 1);
    wait(&mut script, &[1]);
    let wrong = [
        Operation {
            flags: ANY_RANK,
            ..send(DATA, 1)
        },
        Operation {
            flags: 8,
            ..receive(BUFFER, 100)
        },
        Operation {
            flags: CHECK,
            kind: Kind::Barrier as u16,
            ..Operation::default()
        },
    ];
    for wrong in wrong {
        let at = script.words(&words(&wrong));
        let arguments = [at, OPERATION_BYTES as u64];
        script.fails(sysno::HEARTH_POST, &arguments, Errno::EINVAL);
    }
    // Memory that is only looked at: nothing begins.
    let check = |operation| Operation {
        flags: CHECK,
        ..operation
    };
    post(&mut script, &check(receive(BUFFER, 100)), 0);
    post(&mut script, &check(send(DATA, 100)), 0);
    for wrong in [receive(0, 8), send(0x7000_0000, 1)] {
        let at = script.words(&words(&check(wrong)));
        let arguments = [at, OPERATION_BYTES as u64];
        script.fails(sysno::HEARTH_POST, &arguments, Errno::EFAULT);
    }
    // One that does not fit says whose it was.
    post(&mut script, &receive(BUFFER, 10), 2);
    wait(&mut script, &[2]);
    let mut control = control(script.program(), 3);
    let others = ranks(&mut control);
    let message = from_one(others, pattern(100, 4));
    others.plan(time::now() + Micros::from_millis(20), 1, message.clone());
    others.plan(time::now() + Micros::from_millis(20), 1, message);
    let exit = run(&mut control)?;
    expect(&exit.report, ExitStatus::Exited(0))?;
    let output = control.output(1);
    let (statuses, _) = output.as_chunks();
    let too_long = -i32::from(Errno::EMSGSIZE.number());
    for (error, bytes) in [0, too_long].into_iter().zip(statuses) {
        let expected = Status {
            error,
            rank: 1,
            tag: TAG,
            bytes: 100,
        };
        let status = Status::from_bytes(bytes);
        check!(status == expected, "{status:?}");
    }
    check!(statuses.len() == 2, "{} statuses", statuses.len());
    Ok(())
}

/// Lets the heap grow as far as it may, so that its pages are not taken for those of a program.
fn fill_heap() {
    const PIECES: usize = 256;
    let mut pieces: Vec<Vec<u8>> = Vec::with_capacity(PIECES);
    while pieces.len() < PIECES {
        let mut piece = Vec::new();
        if piece.try_reserve_exact(32 << 10).is_err() {
            break;
        }
        pieces.push(piece);
    }
}

/// Takes of the heap until less than its reserve is left.
fn leave_reserve() -> Vec<Vec<u8>> {
    let mut pieces: Vec<Vec<u8>> = Vec::with_capacity(4096);
    while mm::heap_room_bytes() >= mm::HEAP_RESERVE_BYTES {
        let mut piece = Vec::new();
        if piece.try_reserve_exact(8 << 10).is_err() {
            break;
        }
        pieces.push(piece);
    }
    pieces
}

/// With the heap short of room a program's operations are refused, and datagrams of other ranks
/// count as lost: what they bring comes later.
pub fn short_of_room() -> Outcome {
    let sitting_out = Operation {
        kind: Kind::AllToAll as u16,
        flags: SIT_OUT,
        tag: Why::Withdrawn as u32,
        ..Operation::default()
    };
    let mut script = Script::new();
    for operation in [receive(BUFFER, 100), send(DATA, 100), sitting_out] {
        let at = script.words(&words(&operation));
        let arguments = [at, OPERATION_BYTES as u64];
        script.fails(sysno::HEARTH_POST, &arguments, Errno::ENOMEM);
    }
    let mut refused = control(script.program(), 2);
    let launch = refused.launch();
    let prepared = process::prepare(&launch, &mut refused).map_err(|why| format!("{why:?}"))?;
    let held = leave_reserve();
    let exit = prepared.run_alone(&mut refused);
    drop(held);
    expect(&exit.report, ExitStatus::Exited(0))?;
    drop(refused);

    let mut script = Script::new();
    post(&mut script, &receive(BUFFER, 100), 1);
    wait(&mut script, &[1]);
    script.show(BUFFER, 100);
    let mut control = control(script.program(), 2);
    let launch = control.launch();
    let prepared = process::prepare(&launch, &mut control).map_err(|why| format!("{why:?}"))?;
    let mut others = control.ranks.take().ok_or("no other ranks")?;
    let message = from_one(&mut others, pattern(100, 3));
    others.plan(time::now(), 1, message);
    let held = leave_reserve();
    others.pump(time::now(), &mut control.exchange);
    let due = control.exchange.poll_timeout(true);
    drop(held);
    check!(due.is_none(), "a datagram was taken without room for it");
    control.ranks = Some(others);
    let exit = prepared.run_alone(&mut control);
    expect(&exit.report, ExitStatus::Exited(0))?;
    check!(
        control.output(1).ends_with(&pattern(100, 3)),
        "the message has not come"
    );
    Ok(())
}

/// Exchanges of many ranks with lists take no more of the heap than there is: the one too many is
/// refused, and afterwards all of it is there again.
pub fn many_lists() -> Outcome {
    const SIZE: u32 = 16_384;
    const LIST: u64 = SIZE as u64 * 8;
    let flags = map::PRIVATE | map::ANONYMOUS | map::FIXED;
    let mapping = [
        MAPPED,
        2 * LIST,
        prot::READ | prot::WRITE,
        flags,
        u64::MAX,
        0,
    ];
    // A call that writes a 1: one byte goes to rank 1, which never takes it.
    let one = [0, 8, MAPPED + 8];
    let exchange = Operation {
        kind: Kind::AllToAll as u16,
        send: DATA,
        receive: BUFFER,
        send_counts: MAPPED,
        send_offsets: MAPPED + LIST,
        receive_counts: MAPPED + LIST,
        receive_offsets: MAPPED + LIST,
        ..Operation::default()
    };
    let alone = |program: Vec<u8>| {
        let mut control = FakeControl::new(program);
        control.set_size(SIZE);
        // The program's end waits for the connection table, which never comes.
        control.exchange = Exchange::new(Micros::from_secs(1));
        let job = control.spec().job;
        control.exchange.launched(job, KEY);
        control
    };
    fill_heap();
    let mut script = Script::new();
    script
        .call(sysno::MMAP, &mapping, MAPPED)
        .call(sysno::SCHED_GETAFFINITY, &one, 8);
    post(&mut script, &exchange, 1);
    let exit = run(&mut alone(script.program()))?;
    expect(&exit.report, ExitStatus::Exited(0))?;
    let room = mm::heap_room_bytes();
    let mut table = Vec::new();
    let mut call = |number: u64, arguments: &[u64]| {
        table.push(number);
        table.extend_from_slice(arguments);
        table.resize(table.len().next_multiple_of(TABLE_WORDS), 0);
    };
    call(sysno::MMAP, &mapping);
    call(sysno::SCHED_GETAFFINITY, &one);
    for _ in 2..TABLE_CALLS {
        let at = DATA + TABLE_CALLS * TABLE_WORDS as u64 * 8;
        call(sysno::HEARTH_POST, &[at, OPERATION_BYTES as u64]);
    }
    table.extend(words(&exchange));
    let data: Vec<u8> = table.iter().flat_map(|word| word.to_le_bytes()).collect();
    let exit = run(&mut alone(file_with(test_programs::call_table(), &data, 1)))?;
    expect(&exit.report, ExitStatus::Exited(0))?;
    drop((table, data));
    let after = mm::heap_room_bytes();
    check!(
        after >= room,
        "{after} bytes of the heap are left of {room}"
    );
    Ok(())
}

/// Random operations and waits end at worst the program, whatever comes from the other rank
/// meanwhile.
pub fn hostile() -> Outcome {
    const ROUNDS: u32 = 60;
    const CALLS: [u64; 4] = [
        sysno::HEARTH_POST,
        sysno::HEARTH_POST,
        sysno::HEARTH_WAIT,
        sysno::HEARTH_CANCEL,
    ];
    let operations = DATA + TABLE_CALLS * TABLE_WORDS as u64 * 8;
    let (mut through, mut calls) = (0, 0);
    for _ in 0..ROUNDS {
        let mut table: Vec<u64> = Vec::new();
        let mut structures = Vec::new();
        for index in 0..TABLE_CALLS {
            let random = entropy::random_u64();
            let number = match random % 8 {
                7 => sysno::MMAP + random / 8 % 3,
                choice => CALLS[choice as usize % CALLS.len()],
            };
            table.push(number);
            let mut arguments = [0; TABLE_WORDS - 1].map(|_: u64| edge());
            match number {
                sysno::HEARTH_POST => {
                    arguments[0] = operations + index * OPERATION_BYTES as u64;
                    arguments[1] = OPERATION_BYTES as u64;
                }
                // Waits that end, for requests that may be there.
                sysno::HEARTH_WAIT => {
                    arguments[1] = random / 16 % 4;
                    arguments[3] = random / 64 % 4;
                    arguments[4] = random / 256 % 1_000;
                }
                sysno::HEARTH_CANCEL => arguments[0] = random / 8 % 64,
                _ => {}
            }
            table.extend(arguments);
            let near = |offset: u64| DATA + 0x8000 + offset % 0x1_0000;
            let address = |edge: u64| match edge.is_multiple_of(3) {
                true => edge,
                false => near(edge),
            };
            structures.extend(words(&Operation {
                kind: (random / 8 % 5) as u16,
                flags: (random >> 56) as u16 % 8 * u16::from(random >> 58 & 3 == 0),
                rank: (random / 64 % 4) as u32 % 3,
                context: (random / 256 % 2) as u32,
                tag: (random / 512 % 2) as u32,
                send: address(edge()),
                send_bytes: edge() % 0x1_0000,
                receive: address(edge()),
                receive_bytes: edge() % 0x1_0000,
                send_counts: if random >> 60 == 0 { edge() } else { 0 },
                send_offsets: if random >> 60 == 0 { edge() } else { 0 },
                receive_counts: if random >> 60 == 0 { edge() } else { 0 },
                receive_offsets: if random >> 60 == 0 { edge() } else { 0 },
                group_size: if random >> 59 & 7 == 1 {
                    1 + edge() as u32 % 3
                } else {
                    0
                },
                group: if random >> 59 & 7 == 1 {
                    address(edge())
                } else {
                    0
                },
                number: if random >> 62 == 1 {
                    edge() as u32 % 9
                } else {
                    0
                },
            }));
        }
        table.extend(structures);
        let data: Vec<u8> = table.iter().flat_map(|word| word.to_le_bytes()).collect();
        let program = file_with(test_programs::call_table(), &data, 1);
        let mut control = control(program, 2);
        control.time_limit_us = 300_000;
        let others = ranks(&mut control);
        for tag in 0..2 {
            let bytes = 1_000 + 40_000 * u64::from(tag);
            let op = Op::Send {
                to: Rank(0),
                context: 0,
                tag,
                buffer: others.buffer(1, pattern(bytes as usize, 8)),
                bytes,
                is_synchronous: false,
            };
            others.plan(time::now(), 1, op);
        }
        let exit = run(&mut control)?;
        mm::frames().check_tags()?;
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
    Ok(())
}
