//! One run of the service after another, and other addresses: nothing twice, nothing to strangers.

use super::*;

/// What a client has to say, as datagrams.
fn said(world: &mut World) -> Vec<Vec<u8>> {
    let mut out = [0; MAX_DATAGRAM];
    let next = || {
        let length = world.client.poll_transmit(world.now, &mut out)?;
        Some(out[..length].to_vec())
    };
    core::iter::from_fn(next).collect()
}

/// What the service has to say, and to whom.
fn answered(world: &mut World) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut out = [0; MAX_DATAGRAM];
    let next = || {
        let (length, to) = world.server.poll_transmit(world.now, &mut out)?;
        Some((to, out[..length].to_vec()))
    };
    core::iter::from_fn(next).collect()
}

fn rename() -> Call {
    Call::new(Op::Rename, WORKING).with_input(b"a\0b".to_vec())
}

#[test]
fn a_first_call_that_a_dead_service_carried_out_is_not_carried_out_again() {
    let mut world = World::new(1, 0, 0);
    world.client.submit(world.now, rename()).expect("room");
    let mut given = 0;
    let mut copies = Vec::new();
    for _ in 0..2 {
        for bytes in said(&mut world) {
            world
                .server
                .handle_datagram(world.now, node_address(), &bytes);
            copies.push(bytes);
        }
        for (_, bytes) in answered(&mut world) {
            world.client.handle_datagram(world.now, &bytes);
        }
        given += core::iter::from_fn(|| world.server.poll_event()).count();
    }
    assert_eq!(given, 1, "its first service has carried it out");
    // The machine of the service dies before it answers; the next one hears all copies.
    world.server = server_at(world.now, 2);
    for bytes in &copies {
        world
            .server
            .handle_datagram(world.now, node_address(), bytes);
    }
    world.run_until(1);
    assert_eq!(world.completed[0].reply, Reply::plain(-5));
    assert!(world.given.is_empty(), "carried out again");
}

#[test]
fn a_call_that_was_caught_does_nothing_at_a_later_service() {
    let mut world = World::new(1, 0, 0);
    let open = Call::new(Op::Open, WORKING).with_words([0o1001, 0o600]);
    let open = open.with_input(b"file".to_vec());
    world.client.submit(world.now, open).expect("room");
    let caught = said(&mut world).remove(0);
    // Its worker is another one, and it: nothing is known of the rank.
    world.server = server_at(world.now, 2);
    assert!(
        world
            .server
            .handle_datagram(world.now, node_address(), &caught)
    );
    assert_eq!(world.server.poll_event(), None);
}

/// The network doubles the only copy. One came to a service that is dead, the other to the next.
#[test]
fn a_doubled_call_is_no_reason_to_make_it_again() {
    let mut world = acquainted(1);
    world.client.submit(world.now, rename()).expect("room");
    let copy = said(&mut world).remove(0);
    world
        .server
        .handle_datagram(world.now, node_address(), &copy);
    assert!(world.server.poll_event().is_some(), "carried out");
    world.now += Micros(50);
    world.server = server_at(world.now, 2);
    world.now += Micros(50);
    world
        .server
        .handle_datagram(world.now, node_address(), &copy);
    for (_, bytes) in answered(&mut world) {
        world.client.handle_datagram(world.now, &bytes);
    }
    world.take_completions();
    assert_eq!(world.completed[0].reply, Reply::plain(-5));
}

/// A node that made no call while the service was replaced has nothing fail.
#[test]
fn a_call_that_is_made_when_the_next_service_is_there_fails_with_nothing() {
    for loss in [0, 300] {
        let mut world = World::new(3, loss, 100);
        world.client.submit(world.now, rename()).expect("room");
        world.run_until(1);
        world.server = server_at(world.now, 2);
        world.now += Micros(5_000_000);
        world.client.submit(world.now, rename()).expect("room");
        world.run_until(2);
        assert_eq!(world.completed[1].reply, Reply::plain(NOT_CARRIED_OUT));
        assert!(!world.given.contains_key(&2));
    }
}

/// A worker that another service had started and that dies: whether it had the call, this service
/// does not know.
#[test]
fn a_call_of_a_worker_that_was_found_is_in_doubt() {
    let mut world = World::new(1, 0, 0);
    world.client.submit(world.now, rename()).expect("room");
    world.run_until(1);
    world.client.submit(world.now, rename()).expect("room");
    let copy = said(&mut world).remove(0);
    world
        .server
        .handle_datagram(world.now, node_address(), &copy);
    assert!(world.server.poll_event().is_some(), "carried out");
    world.server = Server::new(world.now, 1_000);
    world.server.admit_in(CHANNEL.job, [member(KEY)], 1);
    world.server.begin_again(CHANNEL.job);
    world.run_until(2);
    assert_eq!(world.completed[1].reply, Reply::plain(-5));
}

#[test]
fn what_was_answered_stands_when_its_worker_dies() {
    let mut world = acquainted(1);
    let calls = [
        rename(),
        Call::new(Op::Open, WORKING).with_input(b"f".to_vec()),
    ];
    for call in calls {
        world.client.submit(world.now, call).expect("room");
    }
    for bytes in said(&mut world) {
        world
            .server
            .handle_datagram(world.now, node_address(), &bytes);
    }
    while let Some(request) = world.server.poll_event() {
        world
            .server
            .complete(CHANNEL, request.number, Reply::plain(0));
    }
    // The replies are lost, and the worker dies.
    assert_eq!(answered(&mut world).len(), 2);
    world.server.begin_again(CHANNEL.job);
    world.run_until(2);
    let ended = world.completed.iter();
    let results: BTreeMap<u64, i64> = ended
        .map(|completion| (completion.number, completion.reply.result))
        .collect();
    let expected = [(2, 0), (3, -5)];
    assert_eq!(
        results,
        expected.into(),
        "a handle is void, a rename is not"
    );
}

/// Who copies a datagram, and is faster than its sender, gets a challenge and nothing more.
#[test]
fn a_copy_from_elsewhere_brings_nothing_there_but_a_challenge() {
    let mut world = acquainted(1);
    world.file = pattern(MAX_TRANSFER, 1);
    let thief: SocketAddr = "10.9.9.9:1".parse().expect("an address");
    let (mut to_thief, mut to_node, mut from_thief) = (0, 0, 0);
    for _ in 0..40 {
        let read = Call::new(Op::Read, 1).with_room(15_000);
        world.client.submit(world.now, read).expect("room");
        for bytes in said(&mut world) {
            from_thief += bytes.len();
            world.server.handle_datagram(world.now, thief, &bytes);
            world
                .server
                .handle_datagram(world.now, node_address(), &bytes);
        }
        while let Some(request) = world.server.poll_event() {
            world.carry_out(request);
        }
        for (to, bytes) in answered(&mut world) {
            match to == thief {
                true => to_thief += bytes.len(),
                false => to_node += bytes.len(),
            }
            // It sends challenges on to whom they are for.
            world.client.handle_datagram(world.now, &bytes);
        }
        world.now += Micros(300_000);
    }
    world.take_completions();
    assert_eq!(world.completed.len(), 40);
    assert!(to_node > 40 * 15_000, "{to_node} bytes to the node");
    assert!(
        to_thief > 0 && to_thief < from_thief,
        "{to_thief} bytes for {from_thief}"
    );
}

#[test]
fn a_node_that_has_moved_is_answered_where_it_is() {
    let mut world = acquainted(1);
    let moved: SocketAddr = "10.0.0.77:7118".parse().expect("an address");
    world.client.submit(world.now, rename()).expect("room");
    let begun = world.now;
    while world.completed.is_empty() {
        for bytes in said(&mut world) {
            world.server.handle_datagram(world.now, moved, &bytes);
        }
        while let Some(request) = world.server.poll_event() {
            world.carry_out(request);
        }
        for (to, bytes) in answered(&mut world) {
            if to == moved {
                world.client.handle_datagram(world.now, &bytes);
            }
        }
        world.take_completions();
        world.now += Micros(10_000);
        let took = world.now.saturating_since(begun);
        assert!(took < Micros::from_secs(6), "{took:?}");
    }
    assert_eq!(world.completed[0].reply, Reply::plain(-38));
}

/// The job's exports are others, or it was closed and is served again: its calls are forgotten.
#[test]
fn a_call_is_not_carried_out_again_when_its_job_is_served_anew() {
    let mut world = acquainted(1);
    world.client.submit(world.now, rename()).expect("room");
    let copy = said(&mut world).remove(0);
    world
        .server
        .handle_datagram(world.now, node_address(), &copy);
    assert!(world.server.poll_event().is_some(), "carried out");
    // Its reply is lost.
    world.now += Micros(50);
    let before = world.server.run_of(CHANNEL.job);
    world.server.close(CHANNEL.job);
    world.now += Micros(50_000);
    world.server.admit(CHANNEL.job, [member(KEY)]);
    assert!(world.server.run_of(CHANNEL.job) > before);
    world
        .server
        .handle_datagram(world.now, node_address(), &copy);
    world.run_until(1);
    assert_eq!(world.completed[0].reply, Reply::plain(-5));
    assert!(!world.given.contains_key(&2), "carried out again");
    // What is called later is.
    world.client.submit(world.now, rename()).expect("room");
    world.run_until(2);
    assert_eq!(world.completed[1].reply, Reply::plain(-38));
}

/// Clocks drift: a service that began just after the call was sent may count a longer time.
#[test]
fn times_of_two_clocks_that_are_about_as_long_prove_nothing() {
    for (ahead, is_sure) in [(100, false), (10_000, false), (2_000_000, true)] {
        let mut world = acquainted(1);
        world.now += Micros::from_secs(10);
        world.client.submit(world.now, rename()).expect("room");
        let copy = said(&mut world).remove(0);
        let begun = world.now;
        world.now += Micros::from_secs(100);
        // As its clock has it, it began before the call was sent.
        world.server = server_at(Instant::from_micros(begun.as_micros() - ahead), 2);
        world
            .server
            .handle_datagram(world.now, node_address(), &copy);
        for (_, bytes) in answered(&mut world) {
            world.client.handle_datagram(world.now, &bytes);
        }
        world.take_completions();
        let expected = if is_sure { NOT_CARRIED_OUT } else { -5 };
        assert_eq!(world.completed[0].reply, Reply::plain(expected), "{ahead}");
    }
}

/// Somebody sends again from a node's former address what came from there.
#[test]
fn a_node_that_has_moved_is_found_whoever_says_again_what_it_said() {
    let mut world = acquainted(1);
    let moved: SocketAddr = "10.0.0.77:7118".parse().expect("an address");
    world.client.submit(world.now, rename()).expect("room");
    let old = said(&mut world).remove(0);
    let begun = world.now;
    while world.completed.is_empty() {
        world
            .server
            .handle_datagram(world.now, node_address(), &old);
        for bytes in said(&mut world) {
            world.server.handle_datagram(world.now, moved, &bytes);
        }
        while let Some(request) = world.server.poll_event() {
            world.carry_out(request);
        }
        for (to, bytes) in answered(&mut world) {
            if to == moved {
                world.client.handle_datagram(world.now, &bytes);
            }
        }
        world.take_completions();
        world.now += Micros(10_000);
        let took = world.now.saturating_since(begun);
        assert!(took < Micros::from_secs(6), "{took:?}");
    }
    assert_eq!(world.completed[0].reply, Reply::plain(-38));
}

/// Challenges are no answers: a node whose answers go elsewhere has its calls fail in time.
#[test]
fn a_node_that_hears_nothing_but_challenges_gives_up() {
    let mut world = acquainted(1);
    let moved: SocketAddr = "10.0.0.77:7118".parse().expect("an address");
    world.client.submit(world.now, rename()).expect("room");
    let begun = world.now;
    let mut challenges = 0;
    while world.completed.is_empty() {
        for bytes in said(&mut world) {
            world.server.handle_datagram(world.now, moved, &bytes);
            // Each is said again at once from where the node was.
            world
                .server
                .handle_datagram(world.now, node_address(), &bytes);
        }
        while let Some(request) = world.server.poll_event() {
            world.carry_out(request);
        }
        for (to, bytes) in answered(&mut world) {
            if to == moved {
                challenges += 1;
                world.client.handle_datagram(world.now, &bytes);
            }
        }
        world.take_completions();
        world.now += Micros(100_000);
        let took = world.now.saturating_since(begun);
        assert!(took < SILENCE + Micros::from_secs(2), "{took:?}");
    }
    assert!(challenges > 2, "{challenges}");
    assert_eq!(world.completed[0].reply, Reply::plain(-5));
}
