//! Whose a job is: each request about one, asked by each role, of the owner and of others.

use super::*;
use crate::api::rules::{Need, RULES};
use crate::api::types::ArrayTask;
use crate::jobs::NodeError;
use crate::principal::{Denied, Identity, Principal, Role};
use lab::{operator, user};

/// Everybody who may ask, and whether job of ann's is theirs to change.
fn everybody() -> [(Principal, bool); 6] {
    let read = |name: &str| Principal {
        role: Role::Read,
        ..user(name)
    };
    [
        (Principal::nameless(), false),
        (read("bob"), false),
        (read("ann"), false),
        (user("bob"), false),
        (user("ann"), true),
        (operator(), true),
    ]
}

/// What the core answers to the request of a route about job `id`.
fn ask(lab: &mut Lab, by: &Principal, route: (&str, &str), id: u64) -> Result<(), JobError> {
    let Lab { runner, nodes, .. } = lab;
    match route {
        ("POST", "/v1/jobs/{id}/cancel") => runner.cancel(by, 0, nodes, id, (15, None), "enough"),
        ("POST", "/v1/jobs/{id}/hold") => runner.hold(by, id),
        ("POST", "/v1/jobs/{id}/release") => runner.release(by, id),
        ("POST", "/v1/jobs/{id}/priority") => runner.set_priority(by, id, 3),
        ("POST", "/v1/jobs/{id}/signal") => runner.signal(by, nodes, id, 10),
        ("POST", "/v1/jobs/{id}/stdin") => runner.stdin(by, id).map(drop),
        ("GET", "/v1/jobs/{id}/output") => runner.attach(by, 0, nodes, id).map(drop),
        other => panic!("no request to the core is known for {other:?}: write it down here"),
    }
}

#[test]
fn each_request_about_a_job_is_its_owners_and_the_operators() {
    let own = RULES.iter().filter(|(.., need)| *need == Need::Own);
    let mut routes = 0;
    for (method, path, _) in own {
        for (by, is_theirs) in everybody() {
            let mut lab = Lab::with_nodes(1);
            let mut submission = lab.submission(1, None);
            submission.stdin = true;
            let id = lab.hand_in(0, submission).unwrap();
            let before = lab.runner.get(id).unwrap();
            let answer = ask(&mut lab, &by, (method, path), id);
            let is_denied = matches!(answer, Err(JobError::Denied(_)));
            assert_eq!(is_denied, !is_theirs, "{path} by {by:?}: {answer:?}");
            if is_denied {
                assert_eq!(lab.runner.get(id).unwrap(), before, "{path} by {by:?}");
            }
            // What there is not is nobody's secret.
            let unknown = ask(&mut lab, &by, (method, path), 77);
            assert_eq!(unknown, Err(JobError::Unknown(77)), "{path}");
        }
        routes += 1;
    }
    assert!(routes >= 7, "{routes} routes about a job");
}

#[test]
fn what_a_batch_job_has_written_is_its_owners_and_the_operators() {
    let mut lab = Lab::with_nodes(1);
    let submission = lab.batch(1);
    let id = lab.submit_batch(submission);
    let job = lab.runner.get(id).unwrap();
    for (by, is_theirs) in everybody() {
        // Without the proof nothing can be read: `Outputs::reader` takes it and no number.
        assert_eq!(by.access(id, &job.user).is_ok(), is_theirs, "{by:?}");
    }
}

#[test]
fn a_job_is_of_whoever_hands_it_in_whatever_it_says() {
    let mut lab = Lab::with_nodes(1);
    let ann = Principal {
        identity: Some(Identity {
            uid: 1_001,
            gid: 100,
            groups: vec![100, 27],
        }),
        ..user("ann")
    };
    let mut submission = lab.batch(1);
    submission.terms.user = "root".to_string();
    submission.terms.identity = Some(Identity {
        uid: 0,
        gid: 0,
        groups: Vec::new(),
    });
    let id = lab.runner.submit(&ann, 0, submission).unwrap();
    lab.write_down();
    assert_eq!(lab.runner.get(id).unwrap().user, "ann");
    let on_nodes = lab.launch_of(id).job;
    assert_eq!(lab.runner.identity(on_nodes), ann.identity.as_ref());
    // Also for a control node that was started again.
    lab.restart(1);
    let on_nodes = lab.launch_of(id).job;
    assert_eq!(lab.runner.identity(on_nodes), ann.identity.as_ref());
    assert_eq!(lab.runner.get(id).unwrap().user, "ann");
}

#[test]
fn who_only_looks_runs_nothing_and_operators_alone_drain_nodes() {
    for (by, _) in everybody() {
        let mut lab = Lab::with_nodes(1);
        let submission = lab.batch(1);
        let taken = lab.runner.submit(&by, 0, submission);
        let is_denied = matches!(taken, Err(SubmitError::Denied(_)));
        assert_eq!(is_denied, by.role == Role::Read, "{by:?}");
        let is_operator = by.role == Role::Operator;
        for answer in [
            lab.runner.drain(&by, &[0], "bad fan"),
            lab.runner.resume(&by, &[0]),
        ] {
            let is_denied = matches!(answer, Err(NodeError::Denied(_)));
            assert_eq!(is_denied, !is_operator, "{by:?}");
        }
    }
    let denied = user("bob").operator().map(|_| ()).unwrap_err();
    assert_eq!(
        denied,
        Denied::NotOperator {
            name: "bob".to_string(),
            role: "user",
        }
    );
}

#[test]
fn nobody_adds_tasks_to_the_array_of_another() {
    let mut lab = Lab::with_nodes(1);
    let mut task = lab.batch(1);
    let array = |first, task| ArrayTask {
        first,
        task,
        at_once: 1,
    };
    task.terms.array = Some(array(0, 1));
    let first = lab.submit_batch(task);
    for (by, is_theirs) in [("ann", true), ("bob", false)] {
        let mut task = lab.batch(1);
        task.terms.array = Some(array(first, 2));
        let taken = lab.runner.submit(&user(by), 0, task);
        let is_denied = matches!(taken, Err(SubmitError::Denied(Denied::NotYours { .. })));
        assert_eq!(is_denied, !is_theirs, "{by}: {taken:?}");
    }
}
