//! What docs/protocol.md says of the messages, against the code.

use netstack::MAX_DATA;
use netstack::broadcast::message::{Answer, Blocks, PAGE_PEERS, Standing, WantedBlock, Wants};
use netstack::broadcast::{EndReason, MAX_MEMBERS, Message, Peer};
use netstack::exchange::PACKET;
use netstack::exchange::envelope::{HEAD, TAG};
use netstack::files::{ChannelId, wire as files};
use netstack::ids::{CallId, ControlEpoch, JobId, LocalRank, ProgramId, RequestId};
use netstack::io::IoOp;
use netstack::job::{RefusalCode, launch_block};
use netstack::join::{Refusal, Timing};
use netstack::page::{FRAGMENT, MAX_FRAGMENTS, MAX_REQUEST, MAX_REQUESTS, Object, PageError};
use netstack::retention::{CHANGES_MAX, HOLDINGS_MAX};
use netstack::time::Micros;
use netstack::vitals::{BootTimings, Vitals};
use netstack::wire::datagram::{Kind, VERSION};
use netstack::wire::envelope;
use netstack::wire::io::{Done, IoReply, emit_call};
use netstack::wire::job::{
    ClaimAck, Command, CommandAck, INLINE_BLOCK_MAX, JobAck, JobStatus, LAUNCH_LEN,
};
use netstack::wire::join::{self, HeartbeatAck, Hello, Refuse, Welcome};
use netstack::wire::log::NodeLog;
use netstack::wire::page::{Content, PageData, PageRead};
use netstack::wire::retention::Holdings;
use netstack::wire::window::WINDOW;

use crate::{payload, small_launch, small_report};

/// The lengths that docs/protocol.md states.
#[test]
fn payloads_are_as_long_as_documented() {
    let document = include_str!("../../../docs/protocol.md");
    let documented = |kind: Kind| {
        let begin = format!("| {} | ", kind as u8);
        // The table of kinds has five columns.
        let line = document
            .lines()
            .filter(|line| line.matches('|').count() == 6)
            .find(|line| line.starts_with(&begin));
        let line = line.unwrap_or_else(|| panic!("{kind:?} is not in the table of kinds"));
        let cell = line.trim_end_matches(" |").rsplit("| ").next();
        cell.expect("the table has columns").to_owned()
    };
    let ack = CommandAck::Job(JobAck {
        job: JobId(1),
        status: JobStatus::Ready,
        cancel_signal: 0,
        code: RefusalCode::Other,
        pages: 0,
        signals: 0,
        text: "",
    });
    let claimed = CommandAck::Claimed(ClaimAck {
        job: JobId(1),
        status: JobStatus::Started,
        cancel_signal: 0,
        signals: 0,
        calls: vec![netstack::wire::job::Standing {
            first: CallId(1),
            done: 0,
            input_bytes: 0,
            is_over: false,
        }],
    });
    let read = PageRead {
        request: RequestId(1),
        job: JobId(1),
        object: Object::Program,
        offset: 0,
        length: 1,
        fragments: 1,
    };
    let failed = PageData {
        request: RequestId(1),
        content: Content::Failed(PageError::Unreadable),
    };
    let timing = Timing::default();
    let welcome = Welcome {
        hello_seq: 1,
        control: ControlEpoch(1),
        session: 1,
        timing,
        control_time_us: 1,
        wrapped_peer_key: [0; 16],
    };
    let refuse = Refuse {
        hello_seq: 1,
        reason: Refusal::Protocol,
        text: "",
    };
    let heartbeat_ack = HeartbeatAck {
        heartbeat_seq: 1,
        control_time_us: 1,
        challenge: 0,
        probe: false,
    };
    let write = IoOp::Write {
        fd: 1,
        offset: 0,
        data: Vec::new(),
    };
    let done = Some(Done {
        result: 0,
        data: &[],
    });
    let (job, call) = (JobId(1), CallId(1));
    let [pending, done] = [None, done].map(|done| IoReply {
        job,
        rank: LocalRank::FIRST,
        call,
        done,
    });
    let start = payload(|w| Command::Start { job }.emit(w)).len();
    let cancel = Command::Cancel {
        job,
        signal: 15,
        orphan: false,
        grace: Micros(0),
    };
    let cancel = payload(|w| cancel.emit(w)).len();
    let signal = Command::Signal {
        job,
        signal: 15,
        number: 1,
    };
    let signal = payload(|w| signal.emit(w)).len();
    let launch = Command::Launch {
        spec: small_launch(0),
        wrapped_key: [0; 16],
        block: None,
    };
    let launch = payload(|w| launch.emit(w)).len();
    assert_eq!(launch, LAUNCH_LEN);
    let retain = Command::Retain {
        job,
        program: ProgramId([0; 32]),
        read_only: false,
    };
    let retain = payload(|w| retain.emit(w)).len();
    let drop = Command::Drop {
        id: 1,
        program: None,
    };
    assert_eq!(payload(|w| drop.emit(w)).len(), retain);
    let empty = Holdings {
        held: Vec::new(),
        dropped: Vec::new(),
        ..small_report()
    };
    let fetch = files::FileFetch {
        channel: ChannelId {
            job,
            rank: netstack::ids::Rank(0),
        },
        number: 1,
        fragments: 1,
    };
    let cases = [
        (
            Kind::Hello,
            format!("{}", payload(|w| hello_of_zeros().emit(w)).len()),
        ),
        (
            Kind::Welcome,
            format!("{}", payload(|w| welcome.emit(w)).len()),
        ),
        (
            Kind::Refuse,
            format!("{} + text", payload(|w| refuse.emit(w)).len()),
        ),
        (
            Kind::Heartbeat,
            format!(
                "{}",
                payload(|w| join::emit_heartbeat(&Vitals::default(), 0, w)).len()
            ),
        ),
        (
            Kind::HeartbeatAck,
            format!("{}", payload(|w| heartbeat_ack.emit(w)).len()),
        ),
        (
            Kind::Resync,
            format!("{}", payload(|w| join::emit_echo(1, w)).len()),
        ),
        (
            Kind::Stay,
            format!("{}", payload(|w| join::emit_stay(job, w)).len()),
        ),
        (
            Kind::Command,
            format!(
                "LAUNCH {launch} + block, RETAIN and DROP {retain}, CANCEL {cancel}, \
                 SIGNAL {signal}, others {start}"
            ),
        ),
        (
            Kind::Holdings,
            format!("{} + changes", payload(|w| empty.emit(w)).len()),
        ),
        (
            Kind::HoldingsAck,
            format!("{}", payload(|w| join::emit_echo(1, w)).len()),
        ),
        (
            Kind::NodeLog,
            format!(
                "{} + lines",
                payload(|w| {
                    let log = NodeLog {
                        number: 1,
                        missed: 0,
                        text: "",
                    };
                    log.emit(w);
                })
                .len()
            ),
        ),
        (
            Kind::NodeLogAck,
            format!("{}", payload(|w| join::emit_echo(1, w)).len()),
        ),
        (
            Kind::CommandAck,
            format!(
                "{} + text; claimed 16 + {} a rank",
                payload(|w| ack.emit(w)).len(),
                payload(|w| claimed.emit(w)).len() - 16
            ),
        ),
        (
            Kind::PageRead,
            format!("{}", payload(|w| read.emit(w)).len()),
        ),
        (
            Kind::PageData,
            format!("{} + data", payload(|w| failed.emit(w)).len()),
        ),
        (
            Kind::IoCall,
            format!(
                "{} + operation",
                payload(|w| emit_call((job, LocalRank::FIRST), call, &write, w)).len() - 12
            ),
        ),
        (
            Kind::IoReply,
            format!(
                "{}, or {} + data",
                payload(|w| pending.emit(w)).len(),
                payload(|w| done.emit(w)).len()
            ),
        ),
        (Kind::FileCall, format!("{} + input", files::CALL_LEN)),
        (Kind::FileReply, format!("{} + output", files::REPLY_LEN)),
        (
            Kind::FileFetch,
            format!("{}", payload(|w| fetch.emit(w)).len()),
        ),
        (Kind::FileData, format!("{} + fragment", files::DATA_LEN)),
    ];
    for (kind, length) in cases {
        assert_eq!(documented(kind), length, "{kind:?}");
    }
}

/// The lengths that docs/protocol.md states for messages of casts, with their MAC address.
#[test]
fn messages_of_casts_are_as_long_as_documented() {
    let document = include_str!("../../../docs/protocol.md");
    let peer = Peer {
        addr: "10.0.0.1:1".parse().expect("it is an address"),
        mac: [0; 6],
    };
    let one = Blocks::one(1);
    let mut wants = Wants::default();
    wants.push(WantedBlock {
        block: 1,
        fragments: 1,
        ..WantedBlock::default()
    });
    let (number, standing, reason) = (1, Standing::Child, EndReason::Finished);
    let page = Message::RosterPage {
        page: 0,
        peers: vec![peer].into(),
    };
    let answer = Message::Answer {
        answer: Answer::Busy,
        blocks: one,
    };
    let data = Message::Data {
        block: 1,
        fragments: 1,
        held: Micros::ZERO,
        sealed: true,
    };
    let cases = [
        (65, Message::AnnounceAck { number, standing }, 0, ""),
        (66, Message::Probe { number }, 0, ""),
        (67, Message::Unknown, 0, ""),
        (68, Message::RosterRead { pages: one }, 4, " a page"),
        (69, page, 12, " a peer"),
        (70, Message::Request(wants), 12, " a block"),
        (71, answer, 4, " a block"),
        (72, Message::Cancel(one), 4, " a block"),
        (74, Message::Report(Default::default()), 0, " + lists"),
        (75, Message::ReportAck { number }, 0, ""),
        (76, Message::End { number, reason }, 0, ""),
        (77, Message::EndAck { number }, 0, ""),
        (78, data, 0, " + fragment"),
    ];
    for (kind, message, each, unit) in cases {
        let fixed = message.wire_bytes() - envelope::OVERHEAD - each;
        let length = match each {
            0 => format!("{fixed}{unit}"),
            each => format!("{fixed} + {each}{unit}"),
        };
        let row = (document.lines()).find(|line| line.starts_with(&format!("| {kind} | CAST_")));
        let row = row.unwrap_or_else(|| panic!("kind {kind} is not documented"));
        assert!(row.ends_with(&format!("| {length} |")), "{row}: {length}");
    }
    for text in [
        format!(
            "| members of a cast | {},{:03} |",
            MAX_MEMBERS / 1000,
            MAX_MEMBERS % 1000
        ),
        format!("1 number of members, {PAGE_PEERS} but for the last page"),
    ] {
        assert!(
            document.contains(&text),
            "docs/protocol.md does not say {text:?}"
        );
    }
}

/// The numbers and codes that docs/protocol.md states in words and tables.
#[test]
fn numbers_are_as_documented() {
    let document = include_str!("../../../docs/protocol.md");
    let grouped = |number: usize| match number {
        0..1000 => format!("{number}"),
        _ => format!("{},{:03}", number / 1000, number % 1000),
    };
    let last = KINDS.iter().map(|kind| *kind as u8).max();
    assert_eq!(
        (0..=u8::MAX)
            .filter(|raw| Kind::from_wire(*raw).is_ok())
            .count(),
        KINDS.len(),
        "a kind is missing in this test; the last it knows is {last:?}"
    );
    let fragment = grouped(FRAGMENT);
    let stated = [
        format!("Version {VERSION}. Everything"),
        format!("| 2 | 1 | protocol version, {VERSION} |"),
        format!("| {HEAD} | n | body |"),
        format!("| {HEAD} + n | {TAG} | tag of everything before it |"),
        format!("that is {WINDOW} or more behind the highest"),
        format!("A block is sent in packets of {} bytes", grouped(PACKET)),
        format!("then 1 to {} bytes, fewer only", grouped(PACKET)),
        format!("one of up to {} bytes so", grouped(INLINE_BLOCK_MAX)),
        format!("| {LAUNCH_LEN} | n | the launch block"),
        format!("h + d is at most {CHANGES_MAX},"),
        format!("| programs held by a node | {HOLDINGS_MAX} |"),
        format!("| DROPs waiting for a node | {HOLDINGS_MAX} |"),
        format!("offset + {fragment} i |"),
        format!("| 16 | n | {fragment} bytes, or what is left"),
        format!("| data of an object in one datagram | {fragment} bytes |"),
        format!(
            "| data of a call in one datagram | {} bytes |",
            grouped(MAX_DATA)
        ),
        format!(
            "of 10 fragments at first and {} at most",
            MAX_FRAGMENTS * MAX_REQUESTS
        ),
        format!("length, 1 to {} |", grouped(MAX_REQUEST as usize)),
        format!("{} not warm", RefusalCode::NotWarm as u16),
        format!("{} no file", RefusalCode::NoFile as u16),
        format!("number of files, at most {} |", launch_block::FILES_MAX),
        format!("its name, 1 to {}", launch_block::NAME_MAX),
        format!("{} retained, 7 dropped", JobStatus::Retained as u8),
    ];
    for text in stated {
        assert!(
            document.contains(&text),
            "docs/protocol.md does not say {text:?}"
        );
    }
    // The table of kinds has five columns.
    let rows: Vec<&str> = document
        .lines()
        .filter(|line| line.matches('|').count() == 6)
        .collect();
    for kind in KINDS {
        let begin = format!("| {} | ", kind as u8);
        let row = rows.iter().find(|line| line.starts_with(&begin));
        let plain = row.map(|row| row.replace('_', "").to_lowercase());
        let name = format!("{kind:?}").to_lowercase();
        assert!(
            plain.is_some_and(|row| row.contains(&name)),
            "{kind:?} is not documented"
        );
    }
}

const KINDS: [Kind; 57] = [
    Kind::Hello,
    Kind::Welcome,
    Kind::Refuse,
    Kind::Heartbeat,
    Kind::HeartbeatAck,
    Kind::Leave,
    Kind::Resync,
    Kind::Panic,
    Kind::AskLeave,
    Kind::Stay,
    Kind::Command,
    Kind::CommandAck,
    Kind::Holdings,
    Kind::HoldingsAck,
    Kind::PageRead,
    Kind::PageData,
    Kind::IoCall,
    Kind::IoReply,
    Kind::CastAnnounce,
    Kind::CastAnnounceAck,
    Kind::CastProbe,
    Kind::CastUnknown,
    Kind::CastRosterRead,
    Kind::CastRosterPage,
    Kind::CastRequest,
    Kind::CastAnswer,
    Kind::CastCancel,
    Kind::CastData,
    Kind::CastReport,
    Kind::CastReportAck,
    Kind::CastEnd,
    Kind::CastEndAck,
    Kind::CastSealedData,
    Kind::ExchangeData,
    Kind::ExchangeControl,
    Kind::ExchangeMessage,
    Kind::OverlayHello,
    Kind::OverlayHelloAck,
    Kind::OverlayBuild,
    Kind::OverlayBuildAck,
    Kind::OverlayAttach,
    Kind::OverlayAttachAck,
    Kind::OverlayReport,
    Kind::OverlayBeat,
    Kind::OverlayStream,
    Kind::OverlayStreamAck,
    Kind::OverlayDetach,
    Kind::OverlayTakeDown,
    Kind::OverlayTaken,
    Kind::OverlayCensus,
    Kind::OverlayCensusAck,
    Kind::FileCall,
    Kind::FileReply,
    Kind::FileFetch,
    Kind::FileData,
    Kind::NodeLog,
    Kind::NodeLogAck,
];

fn hello_of_zeros() -> Hello {
    Hello {
        mac: [0; 6],
        lab_key: false,
        key_id: 0,
        version: [0; 16],
        build_id: [0; 20],
        memory_bytes: 0,
        cores: 1,
        timings: BootTimings::default(),
        known_control: ControlEpoch(0),
        job: None,
    }
}
