use super::*;
use proptest::prelude::*;

const ALL: CoreSet = CoreSet::from_bits(u64::MAX);

fn core(number: usize) -> Core {
    Core::new(number).unwrap()
}

fn tid(number: u64) -> Tid {
    Tid::new(number).unwrap()
}

fn table(cores: usize) -> Threads<()> {
    Threads::new(tid(1), CoreSet::first(cores))
}

fn places<T>(threads: &Threads<T>) -> Vec<usize> {
    let place = |(tid, _)| threads.place(tid).unwrap().number();
    threads.iter().map(place).collect()
}

#[test]
fn the_first_thread_is_named_as_the_process_and_no_name_comes_twice() {
    let mut threads = Threads::new(tid(7), CoreSet::first(1));
    assert_eq!(threads.insert('a', ALL), Ok(tid(7)));
    assert_eq!(threads.insert('b', ALL), Ok(tid(8)));
    assert_eq!(threads.remove(tid(8)), Some('b'));
    assert_eq!(threads.remove(tid(8)), None);
    assert_eq!(threads.insert('c', ALL), Ok(tid(9)));
    *threads.get_mut(tid(9)).unwrap() = 'd';
    assert_eq!(
        (threads.get(tid(9)), threads.get(tid(8))),
        (Some(&'d'), None)
    );
    assert_eq!(
        threads.iter().collect::<Vec<_>>(),
        [(tid(7), &'a'), (tid(9), &'d')]
    );
    assert_eq!(threads.len(), 2);
}

#[test]
fn a_core_has_64_threads_at_most() {
    let mut threads = table(2);
    for _ in 0..128 {
        threads.insert((), ALL).unwrap();
    }
    assert_eq!(threads.insert((), ALL), Err(Full));
    threads.remove(tid(5)).unwrap();
    assert_eq!(threads.insert((), ALL), Ok(tid(129)));
    assert_eq!(threads.insert((), ALL), Err(Full));
}

#[test]
fn tids_end_where_mutexes_have_no_bits_for_them() {
    let mut threads = Threads::new(tid(TID_MAX.into()), CoreSet::first(1));
    assert_eq!(threads.insert((), ALL), Ok(tid(TID_MAX.into())));
    assert_eq!(threads.insert((), ALL), Err(Full));
    assert_eq!(Tid::new(0), None);
    assert_eq!(Tid::new(u64::from(TID_MAX) + 1), None);
}

#[test]
fn a_new_thread_gets_the_core_with_the_fewest() {
    let mut threads = table(3);
    for _ in 0..4 {
        threads.insert((), ALL).unwrap();
    }
    assert_eq!(places(&threads), [0, 1, 2, 0]);
    threads.remove(tid(2)).unwrap();
    threads.insert((), ALL).unwrap();
    assert_eq!(places(&threads), [0, 2, 0, 1]);
    // One that waits counts as well: it comes back to its core.
    threads.wait(tid(3), Wait::Wake, None);
    threads.insert((), CoreSet::from_bits(0b101)).unwrap();
    assert_eq!(places(&threads), [0, 2, 0, 1, 2]);
}

#[test]
fn affinity_is_of_the_cores_of_the_process() {
    let mut threads = Threads::new(tid(1), CoreSet::from_bits(0b1110));
    let first = threads.insert((), CoreSet::from_bits(0b1001)).unwrap();
    assert_eq!(threads.place(first), Some(core(3)));
    assert_eq!(threads.affinity(first), Some(CoreSet::from_bits(0b1000)));
    // None of them: all of the process.
    let second = threads.insert((), CoreSet::from_bits(1)).unwrap();
    assert_eq!(threads.affinity(second), Some(CoreSet::from_bits(0b1110)));
    assert_eq!(threads.place(second), Some(core(1)));

    assert_eq!(
        threads.set_affinity(first, CoreSet::from_bits(1)),
        Err(NoSuchCore)
    );
    assert_eq!(threads.place(first), Some(core(3)));
    threads
        .set_affinity(first, CoreSet::from_bits(0b1100))
        .unwrap();
    assert_eq!(threads.place(first), Some(core(3)), "it may stay");
    threads
        .set_affinity(first, CoreSet::from_bits(0b0111))
        .unwrap();
    assert_eq!(threads.place(first), Some(core(2)), "core 1 has one");
}

#[test]
fn a_thread_that_runs_moves_when_it_leaves_its_core() {
    let mut threads = table(2);
    let first = threads.insert((), ALL).unwrap();
    assert_eq!(threads.next(core(0)), Some(first));
    threads.set_affinity(first, CoreSet::only(core(1))).unwrap();
    assert_eq!(threads.state(first), Some(State::Running(core(0))));
    assert_eq!(
        (threads.runnable(core(0)), threads.runnable(core(1))),
        (1, 0)
    );
    assert!(threads.ready(first));
    assert_eq!(
        (threads.runnable(core(0)), threads.runnable(core(1))),
        (0, 1)
    );
    assert_eq!(threads.next(core(0)), None);
    assert_eq!(threads.next(core(1)), Some(first));
}

#[test]
fn threads_of_a_core_take_turns() {
    let mut threads = table(1);
    for _ in 0..3 {
        threads.insert((), ALL).unwrap();
    }
    let mut order = Vec::new();
    for _ in 0..7 {
        let next = threads.next(core(0)).unwrap();
        order.push(next.number());
        assert!(threads.ready(next));
        assert!(!threads.ready(next), "it keeps its place");
    }
    assert_eq!(order, [1, 2, 3, 1, 2, 3, 1]);
    // One that has waited is behind all.
    threads.wait(tid(2), Wait::Wake, None);
    threads.wake(tid(2));
    let order = [(); 3].map(|()| {
        let next = threads.next(core(0)).unwrap();
        threads.wait(next, Wait::Wake, None);
        next.number()
    });
    assert_eq!(order, [3, 1, 2]);
    assert_eq!(threads.next(core(0)), None);
}

#[test]
#[should_panic(expected = "a thread runs on")]
fn a_core_runs_one_thread() {
    let mut threads = table(1);
    threads.insert((), ALL).unwrap();
    threads.insert((), ALL).unwrap();
    threads.next(core(0));
    threads.next(core(0));
}

#[test]
fn news_wake_those_that_wait_for_them() {
    let mut threads = table(2);
    for _ in 0..4 {
        threads.insert((), ALL).unwrap();
    }
    threads.wait(tid(1), Wait::News, None);
    threads.wait(tid(2), Wait::Wake, None);
    threads.wait(tid(3), Wait::News, Some(5));
    assert_eq!(threads.wake_news(), CoreSet::only(core(0)));
    let waiting = State::Waiting {
        on: Wait::Wake,
        until: None,
    };
    assert_eq!(threads.state(tid(1)), Some(State::Ready));
    assert_eq!(threads.state(tid(2)), Some(waiting));
    assert_eq!(threads.wake_news(), CoreSet::NONE);
    assert!(threads.wake(tid(2)) && !threads.wake(tid(2)));
    // Neither one that runs nor one that does not exist is woken.
    let running = threads.next(core(1)).unwrap();
    assert!(!threads.wake(running) && !threads.wake(tid(99)) && !threads.ready(tid(99)));
    assert!(!threads.wait(tid(99), Wait::News, None));
}

#[test]
fn who_waits_for_a_channel_looks_when_it_changes() {
    let mut threads = table(1);
    for _ in 0..4 {
        threads.insert((), ALL).unwrap();
    }
    let waits = [Wait::Channel(7), Wait::Channel(8), Wait::AnyChannel];
    for (number, on) in (1..).zip(waits) {
        threads.wait(tid(number), on, None);
    }
    threads.wait(tid(4), Wait::News, None);
    assert_eq!(threads.wake_channel(9), CoreSet::first(1));
    assert_eq!(threads.state(tid(3)), Some(State::Ready));
    threads.wake_channel(7);
    assert_eq!(threads.state(tid(1)), Some(State::Ready));
    let waiting = [2, 4].map(|number| threads.state(tid(number)));
    assert!(
        waiting
            .iter()
            .all(|state| matches!(state, Some(State::Waiting { .. })))
    );
    assert!(threads.wait_for_news());
}

#[test]
fn waits_end_by_their_time() {
    let mut threads = table(4);
    for _ in 0..4 {
        threads.insert((), ALL).unwrap();
    }
    assert_eq!(threads.earliest(), None);
    threads.wait(tid(1), Wait::Wake, Some(30));
    threads.wait(tid(2), Wait::News, Some(20));
    threads.wait(tid(3), Wait::Wake, None);
    assert_eq!(threads.earliest(), Some(20));
    assert_eq!(threads.expire(19), CoreSet::NONE);
    assert_eq!(threads.expire(20), CoreSet::only(core(1)));
    assert_eq!(threads.earliest(), Some(30));
    assert_eq!(threads.expire(u64::MAX), CoreSet::only(core(0)));
    assert_eq!(threads.earliest(), None);
    assert!(matches!(threads.state(tid(3)), Some(State::Waiting { .. })));
}

#[test]
fn it_is_known_which_cores_run_and_which_could() {
    let mut threads = table(3);
    for _ in 0..5 {
        threads.insert((), ALL).unwrap();
    }
    let second = threads.next(core(1)).unwrap();
    assert_eq!(second, tid(2));
    assert_eq!(threads.running(), CoreSet::only(core(1)));
    assert_eq!(threads.running_on(core(1)), Some(second));
    assert_eq!(threads.wanted(), CoreSet::first(3));
    assert_eq!(
        [0, 1, 2].map(|number| threads.runnable(core(number))),
        [2, 2, 1]
    );
    threads.remove(second).unwrap();
    assert_eq!(threads.running(), CoreSet::NONE);
    assert_eq!(threads.next(core(1)), Some(tid(5)));
}

proptest! {
    /// Whatever happens, a core runs one thread of its own, and no ready thread is passed over by
    /// one that became ready later.
    #[test]
    fn nobody_is_forgotten(
        steps in prop::collection::vec((0..9u8, 1..12u64, any::<u64>()), 1..120)
    ) {
        let mut threads = table(3);
        let mut queue: Vec<Tid> = Vec::new();
        for (step, number, word) in steps {
            let (name, here) = (tid(number), core(word as usize % 3));
            let was_ready = threads.state(name) == Some(State::Ready);
            match step {
                0 | 1 => {
                    if let Ok(tid) = threads.insert((), CoreSet::from_bits(word)) {
                        queue.push(tid);
                    }
                }
                2 => {
                    threads.remove(name);
                    queue.retain(|other| *other != name);
                }
                3 => {
                    let until = (word % 2 == 0).then_some(word % 100);
                    let on = if word % 3 == 0 { Wait::News } else { Wait::Wake };
                    threads.wait(name, on, until);
                    queue.retain(|other| *other != name);
                }
                4 => {
                    if threads.ready(name) {
                        prop_assert!(!was_ready);
                        queue.push(name);
                    }
                }
                5 => {
                    if threads.wake(name) {
                        queue.push(name);
                    }
                }
                6 | 7 => {
                    let is_free = threads.running_on(here).is_none();
                    if is_free {
                        let at = queue.iter().position(|tid| threads.place(*tid) == Some(here));
                        let expected = at.map(|at| queue.remove(at));
                        prop_assert_eq!(threads.next(here), expected);
                    }
                }
                _ => drop(threads.set_affinity(name, CoreSet::from_bits(word))),
            }
            let states = queue.iter().map(|tid| threads.state(*tid));
            prop_assert!(states.into_iter().all(|state| state == Some(State::Ready)));
            let running = threads.iter().filter(|(tid, ())| {
                matches!(threads.state(*tid), Some(State::Running(_)))
            });
            prop_assert_eq!(running.count(), threads.running().count());
            let all: usize = threads.cores().iter().map(|core| threads.runnable(core)).sum();
            prop_assert_eq!(all, queue.len() + threads.running().count());
        }
    }
}
