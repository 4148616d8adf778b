mod frames;

use super::queue::REAL_TIME_ROOM;
use super::*;
use hearth_abi::linux::Signal;
use proptest::prelude::*;

const HUP: u64 = 1;
const USR1: u64 = 10;
const SEGV: u64 = 11;
const USR2: u64 = 12;
const TERM: u64 = 15;
const CHLD: u64 = 17;
const REAL_TIME: u64 = 34;

const fn bit(signal: u64) -> u64 {
    1 << (signal - 1)
}

fn handler(address: u64, flags: u64) -> Action {
    Action {
        handler: address,
        flags,
        restorer: 0x50_0000,
        mask: 0,
    }
}

/// A process with threads that block these signals.
fn process<const N: usize>(masks: [u64; N]) -> (Program, [Thread; N]) {
    (Program::new(), masks.map(Thread::new))
}

fn number(program: &mut Program, thread: &mut Thread) -> Option<u8> {
    program.next_for(thread).map(|delivery| delivery.signal)
}

#[test]
fn actions_are_read_back_as_set() {
    let (mut program, [mut thread]) = process([0]);
    assert_eq!(program.action(15), Some(Action::default()));
    let action = Action {
        mask: 7 << 56,
        ..handler(0x40_1000, flag::RESTART)
    };
    assert!(program.set_action(15, action, [&mut thread]));
    assert_eq!(program.action(15), Some(action));
    assert_eq!(Action::from_bytes(&action.to_bytes()), action);
    assert_eq!(program.action(14), Some(Action::default()));
    for signal in [0, 9, 19, 65, u64::MAX] {
        assert!(
            !program.set_action(signal, action, [&mut thread]),
            "{signal}"
        );
    }
    assert_eq!(program.action(0), None);
    assert_eq!(program.action(64), Some(Action::default()));
    assert_eq!(program.action(65), None);
    program.set_mask(&mut thread, u64::MAX);
    assert_eq!(thread.mask(), !(1 << 8 | 1 << 18));
}

#[test]
fn a_signal_ends_a_program_that_neither_handles_nor_ignores_it() {
    let (mut program, [mut thread]) = process([0]);
    assert!(program.ends_by(TERM) && program.ends_by(40));
    assert!(!program.ends_by(CHLD), "nothing is done about it");
    program.set_action(TERM, handler(0x40_1000, 0), [&mut thread]);
    assert!(!program.ends_by(TERM), "it has a handler");
    assert!(!program.ends_by(0) && !program.ends_by(65));
}

#[test]
fn what_is_ignored_is_never_due() {
    let (mut program, [mut thread]) = process([0]);
    assert_eq!(program.send(0, Info::KERNEL, [&thread]), Ok(()));
    let unknown = program.send(65, Info::KERNEL, [&thread]);
    assert_eq!(unknown, Err(SendError::NoSuchSignal));
    program.send(CHLD, Info::KERNEL, [&thread]).unwrap();
    assert!(!program.is_due(&thread), "SIGCHLD does nothing by default");
    program.set_action(CHLD, handler(0x40_1000, 0), [&mut thread]);
    assert!(!program.is_due(&thread), "it is gone");
    program.send(CHLD, Info::KERNEL, [&thread]).unwrap();
    assert!(program.is_due(&thread));
    program.set_action(CHLD, handler(1, 0), [&mut thread]);
    assert!(
        !program.is_due(&thread),
        "what waits goes when it is ignored"
    );
    program.set_mask(&mut thread, bit(CHLD));
    program.send(CHLD, Info::KERNEL, [&thread]).unwrap();
    assert_eq!(program.blocked(&thread), bit(CHLD));
    program.set_mask(&mut thread, 0);
    assert!(!program.is_due(&thread));
    program.set_action(CHLD, handler(0x40_1000, 0), [&mut thread]);
    assert!(
        !program.is_due(&thread),
        "it went when it was not blocked any more"
    );
}

#[test]
fn what_is_ignored_waits_while_all_threads_block_it() {
    let (mut program, [mut first, mut second]) = process([bit(CHLD), 0]);
    program.send(CHLD, Info::KERNEL, [&first, &second]).unwrap();
    assert_eq!(program.waiting(), 0, "the second has ignored it");
    program.set_mask(&mut second, bit(CHLD));
    program.send(CHLD, Info::KERNEL, [&first, &second]).unwrap();
    assert_eq!(program.blocked(&first), bit(CHLD));
    // As sigwait takes it, default or not.
    assert_eq!(
        program.take_of(&mut first, bit(CHLD)),
        Some((17, Info::KERNEL))
    );

    program.send(CHLD, Info::KERNEL, [&first, &second]).unwrap();
    program.send_to(&mut first, CHLD, Info::KERNEL).unwrap();
    program.set_mask(&mut second, 0);
    assert_eq!(program.waiting(), 0);
    assert_eq!(program.blocked(&first), bit(CHLD), "its own");
    // Whoever ignores it, it is gone for all threads.
    program.set_action(CHLD, handler(1, 0), [&mut first, &mut second]);
    assert_eq!(program.blocked(&first), 0);
}

#[test]
fn faults_go_first_then_the_lowest_number() {
    let (mut program, [mut thread]) = process([bit(TERM)]);
    for signal in [REAL_TIME, TERM, SEGV, HUP, REAL_TIME, HUP] {
        program.send(signal, Info::KERNEL, [&thread]).unwrap();
    }
    let order: Vec<Option<u8>> = (0..6).map(|_| number(&mut program, &mut thread)).collect();
    // Of those below 32 one waits at most; the blocked one goes on waiting.
    assert_eq!(order, [Some(11), Some(1), Some(34), Some(34), None, None]);
    let taken = program.take_of(&mut thread, u64::MAX);
    assert_eq!(taken, Some((15, Info::KERNEL)));
    assert_eq!(program.take_of(&mut thread, u64::MAX), None);
}

#[test]
fn a_thread_takes_its_own_before_those_of_the_process() {
    let (mut program, [mut thread]) = process([0]);
    for signal in [SEGV, HUP, USR1] {
        program.send(signal, Info::KERNEL, [&thread]).unwrap();
    }
    let info = Info::sent(code::TKILL, 1);
    for signal in [TERM, USR1] {
        program.send_to(&mut thread, signal, info).unwrap();
    }
    let order = [(); 6].map(|()| number(&mut program, &mut thread));
    assert_eq!(
        order,
        [Some(10), Some(15), Some(11), Some(1), Some(10), None]
    );
}

#[test]
fn a_signal_of_the_process_goes_to_a_thread_that_does_not_block_it() {
    let (mut program, [mut first, mut second, mut third]) = process([bit(USR1), 0, 0]);
    program.set_action(
        USR1,
        handler(0x40_1000, 0),
        [&mut first, &mut second, &mut third],
    );
    assert!(!program.would_take(&first, USR1));
    assert!(program.would_take(&second, USR1) && program.would_take(&third, USR1));
    program
        .send(USR1, Info::KERNEL, [&first, &second, &third])
        .unwrap();
    assert!(!program.is_due(&first));
    assert!(program.is_due(&second) && program.is_due(&third));
    assert_eq!(number(&mut program, &mut first), None);
    assert_eq!(number(&mut program, &mut third), Some(10));
    assert!(!program.is_due(&second), "one of them takes it");
    assert_eq!(number(&mut program, &mut second), None);

    // Who blocks it too late leaves it to the others.
    program
        .send(USR1, Info::KERNEL, [&first, &second, &third])
        .unwrap();
    program.set_mask(&mut third, bit(USR1));
    assert_eq!(program.waiting() & third.mask(), bit(USR1));
    assert_eq!(number(&mut program, &mut second), Some(10));
    // Nobody takes what is ignored, and nobody what there is not.
    for signal in [0, CHLD, 65, u64::MAX] {
        assert!(!program.would_take(&second, signal), "{signal}");
    }
}

#[test]
fn a_signal_of_a_thread_is_for_no_other() {
    let (mut program, [mut first, mut second]) = process([0, 0]);
    assert_eq!(program.send_to(&mut first, 0, Info::KERNEL), Ok(()));
    let unknown = program.send_to(&mut first, 65, Info::KERNEL);
    assert_eq!(unknown, Err(SendError::NoSuchSignal));
    program.send_to(&mut first, USR1, Info::KERNEL).unwrap();
    program.send_to(&mut first, CHLD, Info::KERNEL).unwrap();
    assert!(program.is_due(&first) && !program.is_due(&second));
    assert_eq!(number(&mut program, &mut second), None);
    assert_eq!(number(&mut program, &mut first), Some(10));
    assert_eq!(
        number(&mut program, &mut first),
        None,
        "SIGCHLD does nothing"
    );
}

#[test]
fn who_waits_for_a_signal_would_take_it_though_it_blocks_it() {
    let all = bit(USR1) | bit(CHLD);
    let (mut program, [mut first, mut second]) = process([all, all]);
    assert_eq!(program.take_of(&mut second, all | bit(9)), None);
    assert!(!program.would_take(&first, USR1));
    assert!(program.would_take(&second, USR1) && program.would_take(&second, CHLD));
    program.send(CHLD, Info::KERNEL, [&first, &second]).unwrap();
    assert!(!program.is_due(&second));
    assert_eq!(program.take_of(&mut second, all), Some((17, Info::KERNEL)));
    assert!(!program.would_take(&second, USR1), "it waits no more");

    // A wait that ends by its time, or by a handler.
    assert_eq!(program.take_of(&mut first, all), None);
    first.stop_awaiting();
    assert!(!program.would_take(&first, USR1));
    assert_eq!(program.take_of(&mut first, all), None);
    program.enter(&mut first, TERM as u8, &handler(0x40_1000, 0));
    assert!(!program.would_take(&first, USR1));
}

#[test]
fn at_most_so_many_wait() {
    let (mut program, [mut thread]) = process([u64::MAX]);
    let sent = (0..200).filter(|_| program.send(40, Info::KERNEL, [&thread]).is_ok());
    assert_eq!(sent.count(), REAL_TIME_ROOM);
    assert_eq!(
        program.send(40, Info::KERNEL, [&thread]),
        Err(SendError::Full)
    );
    // The thread has room of its own.
    let sent = (0..200).filter(|_| program.send_to(&mut thread, 40, Info::KERNEL).is_ok());
    assert_eq!(sent.count(), REAL_TIME_ROOM);
    // What a fault, a timer or kill sends is never lost.
    for signal in 1..32 {
        assert_eq!(program.send(signal, Info::KERNEL, [&thread]), Ok(()));
        assert_eq!(program.send_to(&mut thread, signal, Info::KERNEL), Ok(()));
    }
    assert_eq!(program.waiting.len(), WAITING_MAX);
    assert_eq!(thread.waiting.len(), WAITING_MAX);
}

#[test]
fn a_handler_blocks_its_signal_and_its_mask() {
    let (mut program, [mut thread, other]) = process([1, 0]);
    let action = Action {
        mask: bit(TERM),
        ..handler(0x40_1000, 0)
    };
    program.set_action(USR1, action, [&mut thread]);
    assert_eq!(thread.mask_behind(), 1);
    program.enter(&mut thread, USR1 as u8, &action);
    assert_eq!(thread.mask(), 1 | bit(USR1) | bit(TERM));
    assert_eq!(other.mask(), 0, "each thread has its own");
    let once = handler(0x40_1000, flag::NODEFER | flag::RESETHAND);
    program.set_mask(&mut thread, 0);
    program.enter(&mut thread, USR1 as u8, &once);
    assert_eq!(thread.mask(), 0);
    assert!(program.action(USR1).unwrap().is_default());
}

#[test]
fn a_mask_for_a_call_ends_with_it_or_with_the_handler() {
    let (mut program, [mut thread]) = process([bit(USR1)]);
    program.set_action(USR1, handler(0x40_1000, flag::RESTART), [&mut thread]);
    program.set_mask_for_call(&mut thread, 0);
    program.restore_mask(&mut thread);
    assert_eq!(thread.mask(), bit(USR1));
    program.send(USR1, Info::KERNEL, [&thread]).unwrap();
    assert!(!program.is_due(&thread));
    // A call that begins again takes its mask again.
    program.set_mask_for_call(&mut thread, 0);
    program.set_mask_for_call(&mut thread, 0);
    program.restore_mask(&mut thread);
    assert!(program.is_due(&thread) && program.restarts(&thread));
    let delivery = program.next_for(&mut thread).unwrap();
    assert_eq!(thread.mask_behind(), bit(USR1));
    program.enter(&mut thread, delivery.signal, &delivery.action);
    assert_eq!(thread.mask_behind(), bit(USR1));
}

#[test]
fn a_mask_for_a_call_ends_where_another_thread_took_the_signal() {
    let (mut program, [mut first, mut second]) = process([bit(USR1), 0]);
    program.set_mask_for_call(&mut first, bit(USR2));
    program.send(USR1, Info::KERNEL, [&first, &second]).unwrap();
    program.send_to(&mut first, USR2, Info::KERNEL).unwrap();
    program.restore_mask(&mut first);
    assert_eq!(first.mask(), bit(USR2), "a signal is due");
    assert_eq!(number(&mut program, &mut second), Some(10));
    // Behind the mask of the call another signal waited.
    assert_eq!(number(&mut program, &mut first), Some(12));
    assert_eq!(first.mask(), bit(USR1));
}

#[test]
fn an_ignored_signal_is_gone_when_a_thread_comes_that_does_not_block_it() {
    let (mut program, [blocks, open]) = process([bit(CHLD), 0]);
    // Both run: none is asked.
    program.send(CHLD, Info::KERNEL, []).unwrap();
    program.drop_ignored(&blocks);
    assert_eq!(program.blocked(&blocks), bit(CHLD));
    program.drop_ignored(&open);
    assert_eq!(program.waiting(), 0);
    program.send(USR1, Info::KERNEL, []).unwrap();
    program.drop_ignored(&open);
    assert_eq!(program.waiting(), bit(USR1), "it is not ignored");
}

#[test]
fn calls_begin_again_as_the_handler_of_the_next_signal_wants() {
    let (mut program, [mut thread]) = process([0]);
    assert!(!program.restarts(&thread));
    program.set_action(USR1, handler(0x40_1000, flag::RESTART), [&mut thread]);
    program.set_action(USR2, handler(0x40_1000, 0), [&mut thread]);
    program.send(USR1, Info::KERNEL, [&thread]).unwrap();
    assert!(program.restarts(&thread));
    program.send_to(&mut thread, USR2, Info::KERNEL).unwrap();
    assert!(!program.restarts(&thread), "its own goes first");
}

#[test]
fn a_fault_ends_the_program_where_its_handler_cannot_run() {
    let (mut program, [mut thread, other]) = process([0, bit(SEGV)]);
    assert_eq!(program.handler_of_fault(&thread, Signal::Segv), None);
    program.set_action(SEGV, handler(0x40_1000, 0), [&mut thread]);
    assert!(program.handler_of_fault(&thread, Signal::Segv).is_some());
    assert_eq!(program.handler_of_fault(&other, Signal::Segv), None);
    program.set_action(SEGV, handler(1, 0), [&mut thread]);
    assert_eq!(program.handler_of_fault(&thread, Signal::Segv), None);
}

proptest! {
    /// What is due is what waits and is neither blocked nor ignored, whatever happens; and what a
    /// thread is given is due to it.
    #[test]
    fn due_is_what_is_neither_blocked_nor_ignored(
        steps in prop::collection::vec((0..7u8, 0..3usize, 1..70u64, any::<u64>()), 1..80)
    ) {
        let (mut program, mut threads) = process([0, 0, 0]);
        for (step, index, signal, word) in steps {
            let thread = &mut threads[index];
            match step {
                0 => drop(program.send(signal, Info::KERNEL, &threads)),
                1 => drop(program.send_to(thread, signal, Info::KERNEL)),
                2 => program.set_mask(thread, word),
                3 => drop(program.set_action(signal, handler(word % 4, word), &mut threads)),
                4 => drop(program.take_of(thread, word)),
                5 => program.set_mask_for_call(thread, word),
                _ => {
                    let is_due = program.is_due(thread);
                    let has_mask = thread.mask_behind() != thread.mask();
                    let delivery = program.next_for(thread);
                    prop_assert!(delivery.is_some() == is_due || has_mask);
                    if let Some(delivery) = delivery {
                        prop_assert!(!delivery.action.is_ignore());
                        prop_assert_eq!(thread.mask() & bit(delivery.signal.into()), 0);
                        program.enter(thread, delivery.signal, &delivery.action);
                    }
                }
            }
            for thread in &threads {
                let waits = program.waiting() | thread.waiting.set();
                let ignores = |signal: u64| {
                    let action = program.action(signal).unwrap();
                    let by_default = [17, 18, 23, 28].contains(&signal) && action.is_default();
                    action.is_ignore() || by_default
                };
                let ignored = (1..=64).filter(|signal| ignores(*signal));
                let ignored = ignored.fold(0, |all, signal| all | bit(signal));
                let due = waits & !thread.mask() & !ignored;
                prop_assert_eq!(program.is_due(thread), due != 0);
                prop_assert_eq!(thread.mask() & (bit(9) | bit(19)), 0);
                prop_assert!(thread.waiting.len() <= WAITING_MAX);
            }
        }
    }
}
