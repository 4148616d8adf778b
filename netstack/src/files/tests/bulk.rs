//! Long reads and writes over a link with a rate and a short queue, as `cargo xtask bench files`
//! has it: how much of the link they use, and what travels twice.

use std::collections::VecDeque;
use std::vec;

use super::*;

/// What a datagram takes on a link of 20 Mbit/s, and how many of them its queue of 50 ms holds.
const DATAGRAM: Micros = Micros(606);
const QUEUED: usize = 93;
/// One way without any queue.
const WAY: Micros = Micros(150);
/// What a disk takes for a call.
const DISK: Micros = Micros(400);
/// Calls of a program's read or write that are under way at once, and how many there are.
const AT_ONCE: usize = 4;
const CALLS: usize = 64;

/// One direction of the link: datagrams that wait, and when the one in front has been sent.
#[derive(Default)]
struct Link {
    queue: VecDeque<Vec<u8>>,
    sent_at: Option<Instant>,
    arriving: VecDeque<(Instant, Vec<u8>)>,
    long: u32,
}

impl Link {
    fn put(&mut self, now: Instant, bytes: &[u8]) {
        if self.queue.len() == QUEUED {
            return;
        }
        self.queue.push_back(bytes.to_vec());
        self.sent_at.get_or_insert(now + time_of(bytes));
    }

    fn next(&self) -> Option<Instant> {
        let arrives = self.arriving.front().map(|(at, _)| *at);
        self.sent_at.into_iter().chain(arrives).min()
    }

    fn take(&mut self, now: Instant) -> Option<Vec<u8>> {
        while let Some(at) = self.sent_at.filter(|at| *at <= now) {
            let bytes = self.queue.pop_front().expect("one is being sent");
            self.long += u32::from(bytes.len() > MAX_DATAGRAM / 2);
            self.arriving.push_back((at + WAY, bytes));
            self.sent_at = self.queue.front().map(|next| at + time_of(next));
        }
        self.arriving
            .pop_front_if(|(at, _)| *at <= now)
            .map(|(_, bytes)| bytes)
    }
}

fn time_of(bytes: &[u8]) -> Micros {
    Micros(DATAGRAM.0 * (bytes.len() as u64 + 42) / (MAX_DATAGRAM as u64 + 42))
}

/// Makes the calls; how long that takes in times of what the link needs for their datagrams, and
/// how many long datagrams crossed it.
fn share_of_link(op: Op) -> (f64, u32) {
    let (mut client, mut server) = (client(), server(1));
    let (mut up, mut down) = (Link::default(), Link::default());
    let mut disk: VecDeque<(Instant, Request)> = VecDeque::new();
    let (mut now, mut made, mut done) = (Instant::ZERO, 0, 0);
    let mut out = [0; MAX_DATAGRAM];
    while done < CALLS {
        while made < CALLS && made - done < AT_ONCE {
            let call = Call::new(op, 1).with_words([(made * MAX_TRANSFER) as u64]);
            let call = match op {
                Op::Read => call.with_room(MAX_TRANSFER),
                _ => call.with_input(vec![7; MAX_TRANSFER]),
            };
            client.submit(now, call).expect("room");
            made += 1;
        }
        while let Some(length) = client.poll_transmit(now, &mut out) {
            up.put(now, &out[..length]);
        }
        while let Some((length, _)) = server.poll_transmit(now, &mut out) {
            down.put(now, &out[..length]);
        }
        let due = [
            client.poll_timeout(),
            server.poll_timeout(),
            up.next(),
            down.next(),
        ];
        let disk_due = disk.front().map(|(at, _)| *at);
        let next = due.into_iter().chain([disk_due]).flatten().min();
        now = now.max(next.expect("it stands still"));
        assert!(now < Instant::from_micros(600_000_000), "too slow");
        while let Some(bytes) = up.take(now) {
            server.handle_datagram(now, node_address(), &bytes);
        }
        while let Some(request) = server.poll_event() {
            disk.push_back((now + DISK, request));
        }
        while let Some((_, request)) = disk.pop_front_if(|(at, _)| *at <= now) {
            let reply = match op {
                Op::Read => Reply {
                    result: MAX_TRANSFER as i64,
                    output: vec![9; MAX_TRANSFER],
                },
                _ => Reply::plain(MAX_TRANSFER as i64),
            };
            server.complete(request.channel, request.number, reply);
        }
        while let Some(bytes) = down.take(now) {
            client.handle_datagram(now, &bytes);
        }
        // The program takes replies in order, and these are in order but for losses.
        while let Some(completion) = client.poll_event() {
            assert_eq!(completion.reply.result, MAX_TRANSFER as i64);
            done += 1;
        }
    }
    let bytes = (CALLS * MAX_TRANSFER) as f64;
    let datagrams = bytes / MAX_DATAGRAM as f64;
    let needed = datagrams * DATAGRAM.0 as f64;
    (now.as_micros() as f64 / needed, up.long.max(down.long))
}

#[test]
fn long_reads_and_writes_fill_a_link_with_a_short_queue() {
    for op in [Op::Write, Op::Read] {
        let (ratio, datagrams) = share_of_link(op);
        let fragments = (CALLS * MAX_TRANSFER).div_ceil(FRAGMENT) as u32;
        let twice = f64::from(datagrams) / f64::from(fragments) - 1.0;
        std::println!(
            "{op:?}: {ratio:.3} of the link, {:.1} % twice",
            100.0 * twice
        );
        assert!(
            ratio < 1.08,
            "{op:?} takes {ratio:.3} of what the link needs"
        );
        assert!(twice < 0.02, "{op:?}: {:.1} % travel twice", 100.0 * twice);
    }
}
