//! `Memory` is the plain model of `Sqlite`: after the same batches both answer every query alike,
//! also after the file was closed and opened again.

use hearth_store::{
    Batch, CastRow, Change, DrainRow, EventRow, FileRow, HeldRow, JobRow, Limits, Memory, NodeRow,
    ProgramUse, Query, RankEndRow, SpecRow, Sqlite, Store, StreamRow, TokenRow, WarmRow,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Small enough that every table is trimmed.
const LIMITS: Limits = Limits {
    jobs: 4,
    events: 6,
    programs: 3,
};

fn hash() -> impl Strategy<Value = [u8; 32]> {
    (0..6u8).prop_map(|number| [number.wrapping_mul(77); 32])
}

fn epoch() -> impl Strategy<Value = u64> {
    prop_oneof![Just(1), Just(u64::MAX), Just(1 << 63)]
}

/// Times collide, so that orders among equals count; the largest that fits is among them.
fn time() -> impl Strategy<Value = u64> {
    prop_oneof![0..5u64, Just(u64::MAX >> 1)]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[a-c]",
        Just("two\nlines, \"quoted\", \u{fffd}'); DROP TABLE jobs; --".to_string())
    ]
}

fn node_row() -> impl Strategy<Value = NodeRow> {
    let epoch = proptest::option::of(epoch());
    let earlier = proptest::collection::vec(any::<u64>(), 0..3);
    (
        0..4u8,
        0..4u32,
        epoch,
        proptest::option::of(time()),
        earlier,
    )
        .prop_map(
            |(mac, node, boot_epoch, joined_unix_us, earlier_boots)| NodeRow {
                mac: [0x52, 0x54, 0, 0xff, 0, mac],
                node,
                boot_epoch,
                joined_unix_us,
                earlier_boots,
            },
        )
}

fn warm_row() -> impl Strategy<Value = WarmRow> {
    let last_job = proptest::option::of(0..9u64);
    (
        0..3u32,
        hash(),
        epoch(),
        time(),
        any::<(u32, u32)>(),
        last_job,
    )
        .prop_map(
            |(node, program, boot_epoch, since_unix_us, (pages, pristine), last_job)| WarmRow {
                node,
                program,
                boot_epoch,
                since_unix_us,
                pages,
                pristine,
                last_job,
            },
        )
}

fn program_use() -> impl Strategy<Value = ProgramUse> {
    let name = prop_oneof![
        text(),
        (0..20u8).prop_map(|number| format!("name-{number}"))
    ];
    (hash(), name, time(), time(), 0..100u64, 0..100u64).prop_map(
        |(hash, name, bytes, at_unix_us, launches, warm_launches)| ProgramUse {
            hash,
            name,
            bytes,
            at_unix_us,
            launches,
            warm_launches,
        },
    )
}

fn job_row() -> impl Strategy<Value = JobRow> {
    let times = (
        time(),
        proptest::option::of(time()),
        proptest::option::of(time()),
    );
    let texts = (text(), text(), text(), text(), text());
    let status = proptest::option::of(any::<i32>());
    (1..12u64, hash(), texts, any::<u32>(), times, status).prop_map(
        |(id, program, (name, state, reason, nodes, record), ranks, times, exit_status)| JobRow {
            id,
            name,
            program,
            state,
            reason,
            ranks,
            nodes,
            submitted_unix_us: times.0,
            started_unix_us: times.1,
            ended_unix_us: times.2,
            exit_status,
            record,
        },
    )
}

fn event_row() -> impl Strategy<Value = EventRow> {
    let texts = (text(), text(), text());
    let optional = (
        proptest::option::of(text()),
        proptest::option::of(time()),
        proptest::option::of(text()),
    );
    (1..40u64, time(), texts, optional).prop_map(
        |(seq, time_unix_us, (severity, kind, text), (node, job, mac))| EventRow {
            seq,
            time_unix_us,
            severity,
            kind,
            node,
            job,
            mac,
            text,
        },
    )
}

fn file_row() -> impl Strategy<Value = FileRow> {
    let row = (text(), hash(), time(), time(), proptest::bool::ANY);
    row.prop_map(|(name, object, bytes, cast_unix_us, shared)| FileRow {
        name,
        object,
        bytes,
        cast_unix_us,
        shared,
    })
}

fn token_row() -> impl Strategy<Value = TokenRow> {
    let row = (
        1..12u64,
        hash(),
        text(),
        text(),
        time(),
        proptest::option::of(time()),
    );
    row.prop_map(
        |(id, hash, user, made_by, made_unix_us, expires_unix_us)| TokenRow {
            id,
            hash,
            role: "user".to_string(),
            user,
            made_by,
            made_unix_us,
            expires_unix_us,
        },
    )
}

fn held_row() -> impl Strategy<Value = HeldRow> {
    (0..3u32, hash(), epoch(), time()).prop_map(|(node, object, boot_epoch, since_unix_us)| {
        HeldRow {
            node,
            object,
            boot_epoch,
            since_unix_us,
        }
    })
}

fn cast_row() -> impl Strategy<Value = CastRow> {
    let texts = (text(), text(), text());
    (1..12u64, texts, hash(), time(), any::<bool>(), time()).prop_map(
        |(id, (name, nodes, scheme), object, rate, patient, began_unix_us)| CastRow {
            id,
            name,
            object,
            nodes,
            scheme,
            rate,
            patient,
            began_unix_us,
        },
    )
}

fn queue_change() -> impl Strategy<Value = Change> {
    let spec = (1..12u64, text()).prop_map(|(id, spec)| SpecRow { id, spec });
    let drain = (0..4u32, text(), time(), text());
    let drain = drain.prop_map(|(node, reason, since_unix_us, by)| DrainRow {
        node,
        reason,
        since_unix_us,
        by,
    });
    prop_oneof![
        3 => spec.prop_map(Change::PutSpec),
        3 => (1..12u64, 0..3u32, 0..3u32, text()).prop_map(|(job, rank, attempt, record)| {
            Change::PutRankEnd(RankEndRow { job, rank, attempt, record })
        }),
        2 => drain.prop_map(Change::PutDrain),
        1 => (0..4u32).prop_map(Change::EndDrain),
        1 => time().prop_map(Change::BeginInstance),
    ]
}

fn cast_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        2 => file_row().prop_map(Change::PutFile),
        1 => text().prop_map(Change::ForgetFile),
        3 => held_row().prop_map(Change::SetHeld),
        1 => (0..3u32, hash()).prop_map(|(node, object)| Change::ClearHeld(node, object)),
        1 => (0..3u32, proptest::option::of(epoch()))
            .prop_map(|(node, kept)| Change::VoidHeld(node, kept)),
        2 => cast_row().prop_map(Change::PutCast),
        1 => (1..12u64).prop_map(Change::EndCast),
        1 => (0..20u64).prop_map(Change::NumberCastsFrom),
        2 => (0..4u16, text(), text())
            .prop_map(|(number, name, spec)| Change::PutStream(StreamRow { number, name, spec })),
        1 => (0..4u16).prop_map(Change::EndStream),
        2 => token_row().prop_map(Change::PutToken),
        1 => (1..12u64).prop_map(Change::RevokeToken),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => cast_change(),
        4 => queue_change(),
        2 => node_row().prop_map(Change::PutNode),
        3 => warm_row().prop_map(Change::SetWarm),
        1 => (0..3u32, hash()).prop_map(|(node, program)| Change::ClearWarm(node, program)),
        1 => (0..3u32).prop_map(Change::ClearNode),
        1 => (0..3u32, epoch()).prop_map(|(node, epoch)| Change::VoidBoot(node, epoch)),
        3 => program_use().prop_map(Change::TouchProgram),
        5 => job_row().prop_map(Change::PutJob),
        1 => (0..20u64).prop_map(Change::NumberJobsFrom),
        3 => event_row().prop_map(Change::AppendEvent),
    ]
}

fn batch_of(changes: Vec<Change>) -> Batch {
    let mut batch = Batch::default();
    for change in changes {
        match change {
            Change::PutNode(row) => batch.put_node(row),
            Change::SetWarm(row) => batch.set_warm(row),
            Change::ClearWarm(node, program) => batch.clear_warm(node, program),
            Change::ClearNode(node) => batch.clear_node(node),
            Change::VoidBoot(node, epoch) => batch.void_boot(node, epoch),
            Change::TouchProgram(used) => batch.touch_program(used),
            Change::PutJob(row) => batch.put_job(row),
            Change::PutSpec(row) => batch.put_spec(row),
            Change::PutRankEnd(row) => batch.put_rank_end(row),
            Change::PutDrain(row) => batch.put_drain(row),
            Change::EndDrain(node) => batch.end_drain(node),
            Change::BeginInstance(instance) => batch.begin_instance(instance),
            Change::NumberJobsFrom(next) => batch.number_jobs_from(next),
            Change::AppendEvent(row) => batch.append_event(row),
            Change::PutFile(row) => batch.put_file(row),
            Change::ForgetFile(name) => batch.forget_file(&name),
            Change::SetHeld(row) => batch.set_held(row),
            Change::ClearHeld(node, object) => batch.clear_held(node, object),
            Change::VoidHeld(node, kept) => batch.void_held(node, kept),
            Change::PutCast(row) => batch.put_cast(row),
            Change::EndCast(id) => batch.end_cast(id),
            Change::NumberCastsFrom(next) => batch.number_casts_from(next),
            Change::PutStream(row) => batch.put_stream(row),
            Change::EndStream(number) => batch.end_stream(number),
            Change::PutToken(row) => batch.put_token(row),
            Change::RevokeToken(id) => batch.revoke_token(id),
        }
    }
    batch
}

/// Everything that can be asked, in one comparable piece.
fn answers(store: &dyn Query) -> impl PartialEq + std::fmt::Debug + use<> {
    (
        store.nodes().unwrap(),
        store.warm().unwrap(),
        (store.programs(2).unwrap(), store.programs(100).unwrap()),
        (0..12).map(|id| store.job(id).unwrap()).collect::<Vec<_>>(),
        (
            store.ended_jobs(None, 100).unwrap(),
            store.ended_jobs(Some(6), 2).unwrap(),
            store.open_jobs(3).unwrap(),
            (store.specs(2).unwrap(), store.specs(100).unwrap()),
            (store.rank_ends(2).unwrap(), store.rank_ends(100).unwrap()),
            store.drains().unwrap(),
            store.instance().unwrap(),
        ),
        (store.events(0, 100).unwrap(), store.events(20, 2).unwrap()),
        (store.next_job().unwrap(), store.next_event().unwrap()),
        (
            store.files().unwrap(),
            store.held().unwrap(),
            store.casts().unwrap(),
            store.streams().unwrap(),
            store.next_cast().unwrap(),
            store.tokens().unwrap(),
            store.next_token().unwrap(),
        ),
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn memory_and_sqlite_agree(
        batches in vec((vec(change(), 0..8), proptest::bool::weighted(0.1)), 1..24),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hearth.db");
        let open = || {
            let opened = Sqlite::open(&path, LIMITS).unwrap();
            assert_eq!(opened.set_aside, None);
            opened.store
        };
        let mut memory = Memory::new(LIMITS);
        let mut sqlite = open();
        for (changes, reopen) in batches {
            let batch = batch_of(changes);
            memory.commit(&batch).unwrap();
            sqlite.commit(&batch).unwrap();
            if reopen {
                drop(sqlite);
                sqlite = open();
            }
            prop_assert_eq!(answers(&memory), answers(&sqlite));
            let (jobs, events) = (sqlite.ended_jobs(None, 100).unwrap(), sqlite.events(0, 100).unwrap());
            prop_assert!(jobs.len() as u64 <= LIMITS.jobs && events.len() as u64 <= LIMITS.events);
        }
        let reader = sqlite.reader().unwrap();
        prop_assert_eq!(answers(&*memory.reader().unwrap()), answers(&*reader));
    }
}
