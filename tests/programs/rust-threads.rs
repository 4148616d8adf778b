// rust-threads: threads as Rust programs use them: made and joined, scoped, with channels, locks
// and conditions; a panic in one that another sees; what each thread has of its own; sleep and
// time-outs. The last line is "rust-threads: ok".
use std::cell::Cell;
use std::panic;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Barrier, Condvar, Mutex, Once, RwLock};
use std::thread;
use std::time::{Duration, Instant};

const THREADS: u64 = 8;
const ROUNDS: u64 = 300;

thread_local!(static OWN: Cell<u64> = const { Cell::new(7) });

struct Dropped<'a>(&'a AtomicU64);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn counting() {
    let sum = Arc::new(Mutex::new(0));
    let made = (0..THREADS).map(|number| {
        let sum = Arc::clone(&sum);
        thread::spawn(move || {
            OWN.set(OWN.get() + number);
            for _ in 0..ROUNDS {
                *sum.lock().unwrap() += number;
            }
            OWN.get()
        })
    });
    let made: Vec<_> = made.collect();
    let own: Vec<u64> = made.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(own, (7..7 + THREADS).collect::<Vec<_>>());
    assert_eq!(OWN.get(), 7);
    assert_eq!(*sum.lock().unwrap(), ROUNDS * THREADS * (THREADS - 1) / 2);
}

fn scoped() {
    let mut parts = [[0u64; 1000]; THREADS as usize];
    let dropped = AtomicU64::new(0);
    let barrier = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for (number, part) in parts.iter_mut().enumerate() {
            let (dropped, barrier) = (&dropped, &barrier);
            scope.spawn(move || {
                let _dropped = Dropped(dropped);
                barrier.wait();
                part.iter_mut().for_each(|value| *value = number as u64);
            });
        }
    });
    assert_eq!(dropped.load(Ordering::SeqCst), THREADS);
    let sum: u64 = parts.iter().flatten().sum();
    assert_eq!(sum, 1000 * THREADS * (THREADS - 1) / 2);
}

fn channels() {
    let (sender, receiver) = mpsc::sync_channel(3);
    let (results, all) = mpsc::channel();
    let receiver = Arc::new(Mutex::new(receiver));
    for _ in 0..THREADS {
        let (receiver, results) = (Arc::clone(&receiver), results.clone());
        thread::spawn(move || {
            loop {
                let number: Result<u64, _> = receiver.lock().unwrap().recv();
                let Ok(number) = number else { return };
                results.send(number * number).unwrap();
            }
        });
    }
    drop(results);
    for number in 0..ROUNDS {
        sender.send(number).unwrap();
    }
    drop(sender);
    let sum: u64 = all.iter().sum();
    assert_eq!(sum, (0..ROUNDS).map(|number| number * number).sum());
    let (_sender, nobody) = mpsc::channel::<()>();
    let begin = Instant::now();
    let late = nobody.recv_timeout(Duration::from_millis(20));
    assert_eq!(late, Err(RecvTimeoutError::Timeout));
    assert!(begin.elapsed() >= Duration::from_millis(20));
}

fn panics() {
    // Its message would look like that of a failed check.
    panic::set_hook(Box::new(|_| {}));
    let lock = Arc::new(Mutex::new(5));
    let dropped = Arc::new(AtomicU64::new(0));
    let thread = {
        let (lock, dropped) = (Arc::clone(&lock), Arc::clone(&dropped));
        thread::spawn(move || {
            let _guard = lock.lock().unwrap();
            let _dropped = Dropped(&dropped);
            panic!("number {}", std::hint::black_box(42));
        })
    };
    let what = thread.join().unwrap_err();
    assert_eq!(what.downcast_ref::<String>().unwrap(), "number 42");
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    assert!(lock.is_poisoned());
    assert_eq!(*lock.lock().unwrap_err().into_inner(), 5);
    let caught = panic::catch_unwind(|| {
        thread::scope(|scope| {
            scope.spawn(|| panic!("in a scope"));
        });
    });
    assert!(caught.is_err());
    let _ = panic::take_hook();
}

fn conditions() {
    let state = Arc::new((Mutex::new(0), Condvar::new()));
    let other = Arc::clone(&state);
    let thread = thread::spawn(move || {
        let (turn, changed) = &*other;
        for _ in 0..50 {
            let mut turn = changed.wait_while(turn.lock().unwrap(), |turn| *turn % 2 == 0).unwrap();
            *turn += 1;
            changed.notify_one();
        }
    });
    let (turn, changed) = &*state;
    for _ in 0..50 {
        let mut turn = changed.wait_while(turn.lock().unwrap(), |turn| *turn % 2 == 1).unwrap();
        *turn += 1;
        changed.notify_one();
    }
    thread.join().unwrap();
    assert_eq!(*turn.lock().unwrap(), 100);

    let table = RwLock::new(vec![0u64; 10]);
    let once = Once::new();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..40 {
                    once.call_once(|| table.write().unwrap()[0] += 1);
                    table.write().unwrap()[1] += 1;
                    assert_eq!(table.read().unwrap()[0], 1);
                }
            });
        }
    });
    assert_eq!(table.read().unwrap()[..2], [1, 40 * THREADS]);
}

fn parked() {
    let cores = thread::available_parallelism().unwrap().get();
    assert!((1..=64).contains(&cores));
    let thread = thread::Builder::new().name("parked".into()).stack_size(64 * 1024);
    let thread = thread.spawn(|| {
        thread::park();
        thread::current().name().map(str::to_owned)
    });
    let thread = thread.unwrap();
    thread::sleep(Duration::from_millis(10));
    thread.thread().unpark();
    assert_eq!(thread.join().unwrap().as_deref(), Some("parked"));
}

fn main() {
    counting();
    scoped();
    channels();
    panics();
    conditions();
    parked();
    println!("rust-threads: ok");
}
