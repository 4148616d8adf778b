//! Every message: what was written is what is read, and no bytes make a parser panic.

use netstack::MAX_DATA;
use netstack::ids::{BootEpoch, CallId, ControlEpoch, JobId, NodeId, ProgramId, Rank, RequestId};
use netstack::io::exit::MAX_UNKNOWN_CALLS;
use netstack::io::{ExitReport, ExitStatus, IoOp};
use netstack::job::{LaunchSpec, REFUSAL_TEXT_MAX, RefusalCode, launch_block};
use netstack::join::{Refusal, Timing};
use netstack::page::{Object, PageError};
use netstack::personality::Personality;
use netstack::time::Micros;
use netstack::vitals::{BootTimings, InterruptCounts, Vitals};
use netstack::wire::datagram::{self, Header, Kind, MAX_PAYLOAD, Packet};
use netstack::wire::field::Writer;
use netstack::wire::io::{Done, IoCall, IoReply, emit_call};
use netstack::wire::job::{Command, CommandAck, JobStatus};
use netstack::wire::join::{self, HeartbeatAck, Hello, Refuse, Welcome};
use netstack::wire::key::Key;
use netstack::wire::page::{Content, PageData, PageRead, fragment_length};
use proptest::collection::vec;
use proptest::prelude::*;

const REFUSALS: [Refusal; 8] = [
    Refusal::WrongKey,
    Refusal::KeyUsed,
    Refusal::Version,
    Refusal::Protocol,
    Refusal::MacInUse,
    Refusal::NodeInUse,
    Refusal::RegistryFull,
    Refusal::UnknownKeyId,
];
const CODES: [RefusalCode; 11] = [
    RefusalCode::Other,
    RefusalCode::Busy,
    RefusalCode::NotElf,
    RefusalCode::WrongMachine,
    RefusalCode::Dynamic,
    RefusalCode::Truncated,
    RefusalCode::BadSegments,
    RefusalCode::NoMemory,
    RefusalCode::Unreadable,
    RefusalCode::Cancelled,
    RefusalCode::BadLaunchBlock,
];
const STATUSES: [JobStatus; 6] = [
    JobStatus::Unknown,
    JobStatus::Loading,
    JobStatus::Ready,
    JobStatus::Refused,
    JobStatus::Started,
    JobStatus::Finished,
];

/// The bytes of a payload.
fn payload(emit: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = vec![0; MAX_PAYLOAD];
    let mut writer = Writer::new(&mut bytes);
    emit(&mut writer);
    let length = writer.written();
    bytes.truncate(length);
    bytes
}

/// What every payload parser must do with bytes that nobody vouches for: return.
fn parse_everything(bytes: &[u8]) {
    let _ = Packet::new_checked(bytes);
    let _ = Hello::parse(bytes);
    let _ = Welcome::parse(bytes);
    let _ = Refuse::parse(bytes);
    let _ = join::parse_heartbeat(bytes);
    let _ = HeartbeatAck::parse(bytes);
    let _ = join::parse_echo(bytes);
    let _ = join::parse_panic(bytes);
    let _ = Command::parse(bytes);
    let _ = CommandAck::parse(bytes);
    let _ = PageRead::parse(bytes);
    let _ = PageData::parse(bytes);
    let _ = IoCall::parse(bytes);
    let _ = IoReply::parse(bytes);
    let _ = Personality::parse(bytes);
    let _ = launch_block::parse(bytes);
}

fn job() -> impl Strategy<Value = JobId> {
    (1..=u64::MAX).prop_map(JobId)
}

fn optional_job() -> impl Strategy<Value = Option<JobId>> {
    proptest::option::of(job())
}

prop_compose! {
    fn hello()(
        mac: [u8; 6], lab_key: bool, key_id: u32, version: [u8; 16], build_id: [u8; 20],
        numbers: [u64; 6], job in optional_job(),
    ) -> Hello {
        let [memory_bytes, entry_to_dhcp_us, entry_to_hello_us, idle_us, stub_us, known] = numbers;
        Hello {
            mac, lab_key, key_id, version, build_id, memory_bytes,
            timings: BootTimings { entry_to_dhcp_us, entry_to_hello_us, idle_us, stub_us },
            known_control: ControlEpoch(known),
            job,
        }
    }
}

prop_compose! {
    fn interrupts()(n: [u64; 5]) -> InterruptCounts {
        let [heartbeat, time_limit, monitor, nic, spurious] = n;
        InterruptCounts { heartbeat, time_limit, monitor, nic, spurious }
    }
}

prop_compose! {
    fn vitals()(
        n: [u64; 6], job in optional_job(), unscrubbed: bool,
        interrupts_user in interrupts(), interrupts_idle in interrupts(),
    ) -> Vitals {
        let [uptime_us, idle_us, joined_us, joined_idle_us, memory_free, memory_used] = n;
        Vitals {
            uptime_us, idle_us, joined_us, joined_idle_us, memory_free, memory_used, job, unscrubbed,
            interrupts_user, interrupts_idle,
        }
    }
}

prop_compose! {
    fn launch()(
        job in job(), size in 1..=u32::MAX, rank: u32, program: [u8; 32], n: [u64; 4],
        launch_block_bytes in 0..=launch_block::MAX as u32,
    ) -> LaunchSpec {
        let [program_bytes, time_limit_us, monitor_period_us, memory_limit] = n;
        LaunchSpec {
            job, rank: Rank(rank % size), size, program: ProgramId(program), program_bytes,
            launch_block_bytes, time_limit_us, monitor_period_us, memory_limit,
        }
    }
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        launch().prop_map(Command::Launch),
        job().prop_map(|job| Command::Start { job }),
        (job(), 1..=u8::MAX, any::<bool>()).prop_map(|(job, signal, orphan)| Command::Cancel {
            job,
            signal,
            orphan
        }),
    ]
}

prop_compose! {
    fn page_read()(
        request: u64, job in job(), program: bool, attempt: u8, offset in 0..u64::MAX - 32_768,
        length in 1..=32_768u32, bits in 1..=u32::MAX,
    ) -> PageRead {
        let mask = u32::MAX >> (32 - length.div_ceil(MAX_DATA as u32));
        let fragments = if bits & mask == 0 { mask } else { bits & mask };
        let object = if program { Object::Program } else { Object::LaunchBlock };
        PageRead { request: RequestId(request), job, object, attempt, offset, length, fragments }
    }
}

fn status() -> impl Strategy<Value = ExitStatus> {
    prop_oneof![
        any::<u8>().prop_map(ExitStatus::Exited),
        any::<u8>().prop_map(ExitStatus::Signal),
        Just(ExitStatus::Failed),
    ]
}

prop_compose! {
    fn exit_report()(
        status in status(), n: [u64; 11],
        interrupts_user in interrupts(), interrupts_idle in interrupts(),
        unknown_calls in vec(any::<(u32, u32)>(), 0..=MAX_UNKNOWN_CALLS),
    ) -> ExitReport {
        let [
            user_us, wall_us, system_calls, faults_file, faults_anonymous,
            pages_asked, pages_read_ahead, pages_read_ahead_used, bytes_loaded,
            frames_peak, frames_scrubbed,
        ] = n;
        ExitReport {
            status, user_us, wall_us, system_calls, faults_file, faults_anonymous,
            pages_asked, pages_read_ahead, pages_read_ahead_used, bytes_loaded, frames_peak,
            frames_scrubbed, interrupts_user, interrupts_idle, unknown_calls,
        }
    }
}

fn io_op() -> impl Strategy<Value = IoOp> {
    let data = || vec(any::<u8>(), 0..=MAX_DATA);
    prop_oneof![
        (any::<u32>(), any::<u64>(), data()).prop_map(|(fd, offset, data)| IoOp::Write {
            fd,
            offset,
            data
        }),
        (any::<u32>(), any::<u64>(), 0..=MAX_DATA as u32)
            .prop_map(|(fd, offset, size)| IoOp::Read { fd, offset, size }),
        (any::<u32>(), data()).prop_map(|(offset, data)| IoOp::Report { offset, data }),
        exit_report().prop_map(IoOp::Exit),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn hello_reads_as_written(hello in hello()) {
        prop_assert_eq!(Hello::parse(&payload(|w| hello.emit(w))), Ok(hello));
    }

    #[test]
    fn welcome_reads_as_written(n: [u64; 3], t in [1000..=u64::MAX, 1000..=u64::MAX, 1000..=u64::MAX]) {
        let [heartbeat, lost_after, reboot_silence] = t.map(Micros);
        let timing = Timing { heartbeat, lost_after, reboot_silence };
        let [hello_seq, control, session] = n;
        let welcome = Welcome { hello_seq, control: ControlEpoch(control), session, timing };
        prop_assert_eq!(Welcome::parse(&payload(|w| welcome.emit(w))), Ok(welcome));
    }

    #[test]
    fn refuse_reads_as_written(hello_seq: u64, reason in 0..8usize, text in "[a-zé ]{0,120}") {
        let refuse = Refuse { hello_seq, reason: REFUSALS[reason], text: &text };
        let bytes = payload(|w| refuse.emit(w));
        prop_assert_eq!(Refuse::parse(&bytes), Ok(refuse));
    }

    #[test]
    fn heartbeat_reads_as_written(vitals in vitals()) {
        let bytes = payload(|w| join::emit_heartbeat(&vitals, w));
        prop_assert_eq!(join::parse_heartbeat(&bytes), Ok(vitals));
    }

    #[test]
    fn acknowledgements_read_as_written(heartbeat_seq: u64, control_time_us: u64, probe: bool) {
        let ack = HeartbeatAck { heartbeat_seq, control_time_us, probe };
        prop_assert_eq!(HeartbeatAck::parse(&payload(|w| ack.emit(w))), Ok(ack));
        let echo = payload(|w| join::emit_echo(heartbeat_seq, w));
        prop_assert_eq!(join::parse_echo(&echo), Ok(heartbeat_seq));
    }

    #[test]
    fn command_reads_as_written(command in command()) {
        prop_assert_eq!(Command::parse(&payload(|w| command.emit(w))), Ok(command));
    }

    #[test]
    fn command_ack_reads_as_written(
        job in job(), status in 0..6usize, cancel_signal: u8, code in 0..11usize,
        text in "[ -~]{0,512}",
    ) {
        let (status, code) = (STATUSES[status], CODES[code]);
        let ack = CommandAck { job, status, cancel_signal, code, text: &text };
        prop_assert!(text.len() <= REFUSAL_TEXT_MAX);
        let bytes = payload(|w| ack.emit(w));
        prop_assert_eq!(CommandAck::parse(&bytes), Ok(ack));
    }

    #[test]
    fn page_read_reads_as_written(read in page_read()) {
        prop_assert_eq!(PageRead::parse(&payload(|w| read.emit(w))), Ok(read));
    }

    #[test]
    fn page_data_reads_as_written(
        request: u64, attempt: u8, available in 0..=32_768u32, index: u8, fill: u8, failed in 0..4,
    ) {
        let count = available.div_ceil(MAX_DATA as u32).max(1);
        let index = (u32::from(index) % count) as u8;
        let data = vec![fill; fragment_length(available, index).expect("the index is in range")];
        let content = match failed {
            0 => Content::Fragment { index, available, data: &data },
            1 => Content::Failed(PageError::NoSuchObject),
            2 => Content::Failed(PageError::Unreadable),
            _ => Content::Failed(PageError::UnknownJob),
        };
        let data = PageData { request: RequestId(request), attempt, content };
        let bytes = payload(|w| data.emit(w));
        prop_assert_eq!(PageData::parse(&bytes), Ok(data));
    }

    #[test]
    fn io_call_reads_as_written(job in job(), call in 1..=u64::MAX, op in io_op()) {
        let call = CallId(call);
        let bytes = payload(|w| emit_call(job, call, &op, w));
        prop_assert_eq!(IoCall::parse(&bytes), Ok(IoCall { job, call, op }));
    }

    #[test]
    fn io_reply_reads_as_written(
        job in job(), call in 1..=u64::MAX, result: i64, pending: bool,
        data in vec(any::<u8>(), 0..=MAX_DATA),
    ) {
        let done = (!pending).then_some(Done { result, data: &data });
        let reply = IoReply { job, call: CallId(call), done };
        let bytes = payload(|w| reply.emit(w));
        prop_assert_eq!(IoReply::parse(&bytes), Ok(reply));
    }

    #[test]
    fn personality_reads_as_written(
        node: u32, control_addr: [u8; 4], control_port in 1..=u16::MAX, http_port: u16,
        tree_height in 0..=4u8, place: [u16; 4], key_id: u32, key: [u8; 16],
        name in "[!-~]{0,32}",
    ) {
        let (node, key) = (NodeId(node), Key(key));
        let personality = Personality {
            node, control_addr, control_port, http_port, tree_height, place, key_id, key, name,
        };
        let bytes = personality.emit().expect("every field is in range");
        prop_assert!(bytes.len() < 255, "it fits a DHCP option");
        prop_assert_eq!(Personality::parse(&bytes), Ok(personality));
    }

    #[test]
    fn launch_block_reads_as_written(
        size in 1..=u32::MAX, rank: u32,
        argv in vec(vec(1..=u8::MAX, 0..60), 0..20), envp in vec(vec(1..=u8::MAX, 0..60), 0..20),
    ) {
        let rank = Rank(rank % size);
        let bytes = launch_block::emit(rank, size, &argv, &envp).expect("it is small");
        let block = launch_block::parse(&bytes).expect("it was just written");
        prop_assert_eq!((block.rank, block.size), (rank, size));
        prop_assert_eq!(block.argv, argv);
        prop_assert_eq!(block.envp, envp);
    }

    #[test]
    fn a_datagram_opens_with_its_key_and_with_no_other(
        key: [u8; 16], node: u32, epoch: u64, seq: u64, content in vec(any::<u8>(), 0..=MAX_PAYLOAD),
        flip_byte: prop::sample::Index, flip_bit in 0..8u32,
    ) {
        let (node, epoch) = (NodeId(node), BootEpoch(epoch));
        let header = Header { kind: Kind::IoCall, node, epoch, seq };
        let mut out = [0; netstack::MAX_DATAGRAM];
        let length = datagram::emit(header, Some(&Key(key)), &mut out, |w| { w.bytes(&content); });
        let bytes = &mut out[..length];
        let packet = Packet::new_checked(bytes).expect("it was just written");
        prop_assert_eq!(packet.header(), header);
        prop_assert_eq!(packet.open(&Key(key)), Ok(&content[..]));
        let mut other = key;
        other[0] ^= 1;
        prop_assert!(packet.open(&Key(other)).is_err());
        bytes[flip_byte.index(length)] ^= 1 << flip_bit;
        prop_assert!(Packet::new_checked(bytes).and_then(|packet| packet.open(&Key(key)).map(|_| ())).is_err());
    }

    #[test]
    fn an_unsealed_datagram_never_opens(seq: u64) {
        let header = Header { kind: Kind::Resync, node: NodeId(1), epoch: BootEpoch(2), seq };
        let mut out = [0; netstack::MAX_DATAGRAM];
        let length = datagram::emit(header, None, &mut out, |w| { w.u64(seq); });
        let packet = Packet::new_checked(&out[..length]).expect("it was just written");
        prop_assert!(packet.is_unsealed());
        prop_assert!(packet.open(&Key([0; 16])).is_err());
    }

    #[test]
    fn random_bytes_panic_no_parser(bytes in vec(any::<u8>(), 0..200)) {
        parse_everything(&bytes);
    }

    #[test]
    fn mutated_messages_panic_no_parser(
        command in command(), op in io_op(), hello in hello(), read in page_read(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let messages = [
            payload(|w| command.emit(w)),
            payload(|w| emit_call(JobId(1), CallId(1), &op, w)),
            payload(|w| hello.emit(w)),
            payload(|w| read.emit(w)),
        ];
        for mut bytes in messages {
            for (index, value) in &changes {
                let index = index.index(bytes.len());
                bytes[index] = *value;
            }
            parse_everything(&bytes);
            parse_everything(&bytes[..cut.index(bytes.len())]);
        }
    }
}

#[test]
fn a_message_cut_anywhere_is_refused() {
    let launch = LaunchSpec {
        job: JobId(1),
        rank: Rank(0),
        size: 1,
        program: ProgramId([0; 32]),
        program_bytes: 0,
        launch_block_bytes: 0,
        time_limit_us: 0,
        monitor_period_us: 0,
        memory_limit: 0,
    };
    let bytes = payload(|w| Command::Launch(launch).emit(w));
    for length in 0..bytes.len() {
        assert!(Command::parse(&bytes[..length]).is_err(), "{length} bytes");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(Command::parse(&longer).is_err(), "a byte too many");
}

/// From `vectors.h` of the authors' reference implementation: key 00 01 .. 0f, message of n bytes
/// 00 01 ..
#[test]
fn siphash_agrees_with_the_published_vectors() {
    let vectors: [(usize, u128); 6] = [
        (0, 0xa3817f04ba25a8e66df67214c7550293),
        (1, 0xda87c1d86b99af44347659119b22fc45),
        (2, 0x8177228da4a45dc7fca38bdef60affe4),
        (3, 0x9c70b60c5267a94e5f33b6b02985ed51),
        (4, 0xf88164c12d9c8faf7d0f6e7c7bcd5579),
        (63, 0x5150d1772f50834a503e069a973fbd7c),
    ];
    let key = Key(std::array::from_fn(|i| i as u8));
    for (length, expected) in vectors {
        let message: Vec<u8> = (0..length as u8).collect();
        assert_eq!(
            u128::from_be_bytes(key.mac(&[&message])),
            expected,
            "{length} bytes"
        );
        let (first, second) = message.split_at(length / 3);
        assert_eq!(
            key.mac(&[first, second]),
            key.mac(&[&message]),
            "in two parts"
        );
    }
}

#[test]
fn keys_differ_by_everything_they_are_derived_from() {
    use netstack::wire::key::Direction::{ToControl, ToNode};
    let secret = Key([1; 16]);
    let node_key = |id, mac, epoch, node| secret.node_key(id, mac, BootEpoch(epoch), NodeId(node));
    let node = node_key(1, [1; 6], 1, 1);
    let mut keys = vec![
        secret,
        node,
        node_key(2, [1; 6], 1, 1),
        node_key(1, [2; 6], 1, 1),
        node_key(1, [1; 6], 2, 1),
        node_key(1, [1; 6], 1, 2),
        node.join_key(ToControl),
        node.join_key(ToNode),
        node.session_key(ToControl, 1),
        node.session_key(ToNode, 1),
        node.session_key(ToNode, 2),
    ];
    let count = keys.len();
    keys.sort_by_key(|key| key.0);
    keys.dedup();
    assert_eq!(keys.len(), count);
    assert_eq!(format!("{node:?}"), "Key(..)", "a key does not show itself");
}

/// The lengths that docs/protocol.md states.
#[test]
fn payloads_are_as_long_as_documented() {
    let document = include_str!("../../docs/protocol.md");
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
    let ack = CommandAck {
        job: JobId(1),
        status: JobStatus::Ready,
        cancel_signal: 0,
        code: RefusalCode::Other,
        text: "",
    };
    let read = PageRead {
        request: RequestId(1),
        job: JobId(1),
        object: Object::Program,
        attempt: 1,
        offset: 0,
        length: 1,
        fragments: 1,
    };
    let failed = PageData {
        request: RequestId(1),
        attempt: 1,
        content: Content::Failed(PageError::Unreadable),
    };
    let launch = LaunchSpec {
        job: JobId(1),
        rank: Rank(0),
        size: 1,
        program: ProgramId([0; 32]),
        program_bytes: 0,
        launch_block_bytes: 0,
        time_limit_us: 0,
        monitor_period_us: 0,
        memory_limit: 0,
    };
    let timing = Timing::default();
    let welcome = Welcome {
        hello_seq: 1,
        control: ControlEpoch(1),
        session: 1,
        timing,
    };
    let refuse = Refuse {
        hello_seq: 1,
        reason: Refusal::Version,
        text: "",
    };
    let heartbeat_ack = HeartbeatAck {
        heartbeat_seq: 1,
        control_time_us: 1,
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
    let [pending, done] = [None, done].map(|done| IoReply { job, call, done });
    let start = payload(|w| Command::Start { job }.emit(w)).len();
    let launch = payload(|w| Command::Launch(launch).emit(w)).len();
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
                payload(|w| join::emit_heartbeat(&Vitals::default(), w)).len()
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
        (Kind::Command, format!("LAUNCH {launch}, others {start}")),
        (
            Kind::CommandAck,
            format!("{} + text", payload(|w| ack.emit(w)).len()),
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
                payload(|w| emit_call(job, call, &write, w)).len() - 12
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
    ];
    for (kind, length) in cases {
        assert_eq!(documented(kind), length, "{kind:?}");
    }
}

fn hello_of_zeros() -> Hello {
    Hello {
        mac: [0; 6],
        lab_key: false,
        key_id: 0,
        version: [0; 16],
        build_id: [0; 20],
        memory_bytes: 0,
        timings: BootTimings::default(),
        known_control: ControlEpoch(0),
        job: None,
    }
}
