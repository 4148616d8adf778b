//! Every message: what was written is what is read, and no bytes make a parser panic.

mod documented;
mod keys;

use core::net::SocketAddrV4;
use core::num::NonZeroU16;

use netstack::ids::{
    BootEpoch, CallId, ControlEpoch, JobId, LocalRank, NodeId, ProgramId, Rank, RequestId,
};
use netstack::io::exit::MAX_UNKNOWN_CALLS;
use netstack::io::{ExitReport, ExitStatus, IoOp};
use netstack::job::{
    FileService, LaunchSpec, REFUSAL_TEXT_MAX, RefusalCode, StartMode, launch_block,
};
use netstack::join::{Refusal, Timing};
use netstack::page::{FRAGMENT, Object, PageError};
use netstack::personality::Personality;
use netstack::retention::{CHANGES_MAX, Holding, Keep, Retention, Reuse, Verify};
use netstack::time::Micros;
use netstack::vitals::{BootTimings, CastVitals, InterruptCounts, Vitals};
use netstack::wire::datagram::{self, Header, Kind, MAX_PAYLOAD, Packet};
use netstack::wire::field::Writer;
use netstack::wire::io::{Done, IoCall, IoReply, emit_call};
use netstack::wire::job::{
    ClaimAck, Command, CommandAck, DropAck, GRACE_MAX, INLINE_BLOCK_MAX, JobAck, JobStatus,
    SIGNAL_MAX, Standing,
};
use netstack::wire::join::{self, HeartbeatAck, Hello, Refuse, Welcome};
use netstack::wire::key::Key;
use netstack::wire::page::{Content, PageData, PageRead, fragment_length};
use netstack::wire::retention::Holdings;
use netstack::{MAX_DATA, RANKS_PER_NODE_MAX};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

const REFUSALS: [Refusal; 8] = [
    Refusal::WrongKey,
    Refusal::KeyUsed,
    Refusal::Protocol,
    Refusal::MacInUse,
    Refusal::NodeInUse,
    Refusal::RegistryFull,
    Refusal::UnknownKeyId,
    Refusal::NotAdmitted,
];
const CODES: [RefusalCode; 13] = [
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
    RefusalCode::NotWarm,
    RefusalCode::NoFile,
];
const STATUSES: [JobStatus; 7] = [
    JobStatus::Unknown,
    JobStatus::Loading,
    JobStatus::Ready,
    JobStatus::Refused,
    JobStatus::Started,
    JobStatus::Finished,
    JobStatus::Retained,
];
const OBJECTS: [Object; 3] = [Object::Program, Object::LaunchBlock, Object::PageHashes];

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
    let _ = Holdings::parse(bytes);
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
        numbers: [u64; 6], job in optional_job(), cores in 1..=u16::MAX,
    ) -> Hello {
        let [memory_bytes, entry_to_dhcp_us, entry_to_hello_us, idle_us, stub_us, known] = numbers;
        Hello {
            mac, lab_key, key_id, version, build_id, memory_bytes, cores,
            timings: BootTimings { entry_to_dhcp_us, entry_to_hello_us, idle_us, stub_us },
            known_control: ControlEpoch(known),
            job,
        }
    }
}

prop_compose! {
    fn interrupts()(n: [u64; 6]) -> InterruptCounts {
        let [heartbeat, time_limit, monitor, nic, cast, spurious] = n;
        InterruptCounts { heartbeat, time_limit, monitor, nic, cast, spurious }
    }
}

prop_compose! {
    fn vitals()(
        n: [u64; 6], job in optional_job(), unscrubbed: bool, casts: [u64; 4], overlay_kept: u32,
        hardware_errors: u32,
        interrupts_user in interrupts(), interrupts_idle in interrupts(),
    ) -> Vitals {
        let [uptime_us, idle_us, joined_us, joined_idle_us, memory_free, memory_used] = n;
        let [blocks_in, blocks_out, corrupt, duplicates] = casts;
        Vitals {
            uptime_us, idle_us, joined_us, joined_idle_us, memory_free, memory_used, job, unscrubbed,
            interrupts_user, interrupts_idle,
            casts: CastVitals { blocks_in, blocks_out, corrupt, duplicates }, overlay_kept,
            hardware_errors,
        }
    }
}

fn retention() -> impl Strategy<Value = Retention> {
    let reuse = prop_oneof![
        Just(Reuse::Allow),
        Just(Reuse::Forbid),
        Just(Reuse::Require)
    ];
    let keep = prop_oneof![Just(Keep::Nothing), Just(Keep::Published), Just(Keep::Warm)];
    let verify = prop_oneof![
        Just(Verify::Never),
        Just(Verify::Sample),
        Just(Verify::Always)
    ];
    (reuse, keep, verify, any::<[bool; 2]>(), any::<u32>()).prop_map(
        |(reuse, keep, verify, [read_only, pristine], limit_pages)| Retention {
            reuse,
            keep,
            read_only,
            pristine,
            verify,
            limit_pages,
        },
    )
}

prop_compose! {
    fn launch()(
        job in job(), size in 64..=u32::MAX, rank: u32, program: [u8; 32], n: [u64; 4],
        launch_block_bytes in 0..=launch_block::MAX as u32, retention in retention(), at_once: bool,
        ranks in 1..=RANKS_PER_NODE_MAX, cores: u16, core_bytes: u64,
        files: Option<([u8; 4], NonZeroU16, [u32; 2])>,
    ) -> LaunchSpec {
        let [program_bytes, time_limit_us, monitor_period_us, memory_limit] = n;
        let start = if at_once { StartMode::AtOnce } else { StartMode::OnCommand };
        LaunchSpec {
            job, rank: Rank(rank % (size - 63)), ranks, size, program: ProgramId(program), program_bytes,
            launch_block_bytes, time_limit_us, monitor_period_us, memory_limit, retention, start,
            cores, core_bytes,
            files: files.map(|(ip, port, user)| FileService {
                address: SocketAddrV4::new(ip.into(), port.get()),
                user,
            }),
        }
    }
}

/// A command, and the launch block that goes with it.
type Order = (Command<'static>, Option<Vec<u8>>);

fn with_block((command, block): &Order) -> Command<'_> {
    match (*command, block) {
        (
            Command::Launch {
                mut spec,
                wrapped_key,
                ..
            },
            Some(block),
        ) => {
            spec.launch_block_bytes = block.len() as u32;
            let block = Some(&block[..]);
            Command::Launch {
                spec,
                wrapped_key,
                block,
            }
        }
        (command, _) => command,
    }
}

fn order() -> impl Strategy<Value = Order> {
    let block = proptest::option::of(vec(any::<u8>(), 0..=INLINE_BLOCK_MAX));
    let program = || any::<[u8; 32]>().prop_map(ProgramId);
    let plain = prop_oneof![
        job().prop_map(|job| Command::Start { job }),
        job().prop_map(|job| Command::Claim { job }),
        (job(), 1..=u8::MAX, proptest::option::of(0..=GRACE_MAX.0)).prop_map(
            |(job, signal, grace)| Command::Cancel {
                job,
                signal,
                orphan: grace.is_none(),
                grace: Micros(grace.unwrap_or(0)),
            }
        ),
        (job(), 1..=SIGNAL_MAX, 1..=u32::MAX).prop_map(|(job, signal, number)| Command::Signal {
            job,
            signal,
            number
        }),
        (job(), program(), any::<bool>()).prop_map(|(job, program, read_only)| Command::Retain {
            job,
            program,
            read_only
        }),
        (1..=u64::MAX, proptest::option::of(program()))
            .prop_map(|(id, program)| Command::Drop { id, program }),
    ];
    prop_oneof![
        (launch(), block).prop_map(|(spec, block)| (
            Command::Launch {
                spec,
                wrapped_key: [6; 16],
                block: None
            },
            block
        )),
        plain.prop_map(|command| (command, None)),
    ]
}

prop_compose! {
    fn holdings()(
        number in 1..=u64::MAX, reset: bool, dropped in vec(any::<[u8; 32]>(), 0..=CHANGES_MAX),
        held in vec((any::<[u8; 32]>(), any::<u32>(), any::<u32>()), 0..=CHANGES_MAX),
    ) -> Holdings {
        let reset = reset || number == 1;
        let holding = |(program, pages, pristine)| {
            Holding { program: ProgramId(program), pages, pristine }
        };
        let room = if reset { 0 } else { CHANGES_MAX - held.len() };
        Holdings {
            number,
            reset,
            held: held.into_iter().map(holding).collect(),
            dropped: dropped.into_iter().take(room).map(ProgramId).collect(),
        }
    }
}

prop_compose! {
    fn page_read()(
        request: u64, job in job(), object in 0..OBJECTS.len(), offset in 0..u64::MAX - 32_768,
        length in 1..=32_768u32, bits in 1..=u32::MAX,
    ) -> PageRead {
        let mask = u32::MAX >> (32 - length.div_ceil(FRAGMENT as u32));
        let fragments = if bits & mask == 0 { mask } else { bits & mask };
        let object = OBJECTS[object];
        PageRead { request: RequestId(request), job, object, offset, length, fragments }
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
        status in status(), warm: bool, n: [u64; 35],
        interrupts_user in interrupts(), interrupts_idle in interrupts(),
        unknown_calls in vec(any::<(u32, u32)>(), 0..=MAX_UNKNOWN_CALLS),
    ) -> ExitReport {
        let [
            user_us, wall_us, system_calls, faults_code, faults_readonly, faults_data,
            faults_zero, faults_stack, faults_held, faults_copy, pages_asked,
            pages_read_ahead, pages_read_ahead_used, bytes_loaded, frames_peak,
            frames_scrubbed, pages_reused, pages_kept, pages_discarded, pages_damaged,
            table_pages, pages_large, program_requests, program_fragments,
            program_wire_bytes, launch_us, first_us, first_counts, exit_counts,
            pages_from_cast, faults_from_cast, faults_awaited, messages_sent, message_bytes,
            exchanges,
        ] = n;
        ExitReport {
            status, warm,
            user_us, wall_us, system_calls, faults_code, faults_readonly, faults_data,
            faults_zero, faults_stack, faults_held, faults_copy, pages_asked,
            pages_read_ahead, pages_read_ahead_used, bytes_loaded, frames_peak,
            frames_scrubbed, pages_reused, pages_kept, pages_discarded, pages_damaged,
            table_pages, pages_large, program_requests, program_fragments,
            program_wire_bytes, launch_us, first_us, first_counts, exit_counts,
            pages_from_cast, faults_from_cast, faults_awaited, messages_sent, message_bytes,
            exchanges,
            interrupts_user, interrupts_idle, unknown_calls,
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
        exit_report().prop_map(|report| IoOp::Exit(Box::new(report))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn hello_reads_as_written(hello in hello()) {
        prop_assert_eq!(Hello::parse(&payload(|w| hello.emit(w))), Ok(hello));
    }

    #[test]
    fn welcome_reads_as_written(n: [u64; 3], t in [1000..=u64::MAX, 1000..=u64::MAX, 1000..=u64::MAX], keep: u64, wrapped_peer_key: [u8; 16]) {
        let [heartbeat, lost_after, reboot_silence] = t.map(Micros);
        let timing = Timing { heartbeat, lost_after, reboot_silence, keep_job: Micros(keep) };
        let [hello_seq, control, session] = n;
        let welcome = Welcome { hello_seq, control: ControlEpoch(control), session, timing, control_time_us: n[0], wrapped_peer_key };
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
        let bytes = payload(|w| join::emit_heartbeat(&vitals, 7, w));
        prop_assert_eq!(join::parse_heartbeat(&bytes), Ok((vitals, 7)));
    }

    #[test]
    fn acknowledgements_read_as_written(heartbeat_seq: u64, control_time_us: u64, probe: bool, challenge: u64) {
        let ack = HeartbeatAck { heartbeat_seq, control_time_us, probe, challenge };
        prop_assert_eq!(HeartbeatAck::parse(&payload(|w| ack.emit(w))), Ok(ack));
        let echo = payload(|w| join::emit_echo(heartbeat_seq, w));
        prop_assert_eq!(join::parse_echo(&echo), Ok(heartbeat_seq));
    }

    #[test]
    fn command_reads_as_written(order in order()) {
        let command = with_block(&order);
        let bytes = payload(|w| command.emit(w));
        prop_assert_eq!(Command::parse(&bytes), Ok(command));
    }

    #[test]
    fn command_ack_reads_as_written(
        job in job(), status in 0..STATUSES.len(), cancel_signal: u8, code in 0..CODES.len(),
        pages: u32, signals: u32, text in "[ -~]{0,512}", in_use: bool,
    ) {
        let (status, code) = (STATUSES[status], CODES[code]);
        let pages_of_job = if status == JobStatus::Retained { pages } else { 0 };
        let present = [JobStatus::Loading, JobStatus::Ready, JobStatus::Started];
        let signals = if present.contains(&status) { signals } else { 0 };
        let pages_of = pages_of_job;
        let ack = JobAck { job, status, cancel_signal, code, pages: pages_of, signals, text: &text };
        let ack = CommandAck::Job(ack);
        prop_assert!(text.len() <= REFUSAL_TEXT_MAX);
        let bytes = payload(|w| ack.emit(w));
        prop_assert_eq!(CommandAck::parse(&bytes), Ok(ack));
        let dropped = CommandAck::Dropped(DropAck { id: job.0, pages, in_use });
        let bytes = payload(|w| dropped.emit(w));
        prop_assert_eq!(CommandAck::parse(&bytes), Ok(dropped));
        let claimed = CommandAck::Claimed(ClaimAck {
            job,
            status: present[pages as usize % 3],
            cancel_signal,
            signals,
            calls: (0..1 + u64::from(pages) % 64)
                .map(|rank| Standing {
                    first: CallId(1 + u64::from(pages) + rank),
                    done: (pages as u8) & !1,
                    input_bytes: job.0,
                    is_over: rank % 2 == 1,
                })
                .collect(),
        });
        let bytes = payload(|w| claimed.emit(w));
        prop_assert_eq!(CommandAck::parse(&bytes), Ok(claimed));
        prop_assert!(bytes.len() <= MAX_PAYLOAD);
    }

    #[test]
    fn holdings_read_as_written(holdings in holdings()) {
        let bytes = payload(|w| holdings.emit(w));
        prop_assert_eq!(Holdings::parse(&bytes), Ok(holdings));
    }

    #[test]
    fn page_read_reads_as_written(read in page_read()) {
        prop_assert_eq!(PageRead::parse(&payload(|w| read.emit(w))), Ok(read));
    }

    #[test]
    fn page_data_reads_as_written(
        request: u64, available in 0..=32_768u32, index: u8, fill: u8, failed in 0..4,
    ) {
        let count = available.div_ceil(FRAGMENT as u32).max(1);
        let index = (u32::from(index) % count) as u8;
        let data = vec![fill; fragment_length(available, index).expect("the index is in range")];
        let content = match failed {
            0 => Content::Fragment { index, available, data: &data },
            1 => Content::Failed(PageError::NoSuchObject),
            2 => Content::Failed(PageError::Unreadable),
            _ => Content::Failed(PageError::UnknownJob),
        };
        let data = PageData { request: RequestId(request), content };
        let bytes = payload(|w| data.emit(w));
        prop_assert_eq!(PageData::parse(&bytes), Ok(data));
    }

    #[test]
    fn io_call_reads_as_written(
        job in job(), rank in 0..RANKS_PER_NODE_MAX, call in 1..=u64::MAX, op in io_op(),
    ) {
        let (rank, call) = (LocalRank(rank), CallId(call));
        let bytes = payload(|w| emit_call((job, rank), call, &op, w));
        prop_assert_eq!(IoCall::parse(&bytes), Ok(IoCall { job, rank, call, op }));
    }

    #[test]
    fn io_reply_reads_as_written(
        job in job(), rank in 0..RANKS_PER_NODE_MAX, call in 1..=u64::MAX, result: i64,
        pending: bool, data in vec(any::<u8>(), 0..=MAX_DATA),
    ) {
        let done = (!pending).then_some(Done { result, data: &data });
        let reply = IoReply { job, rank: LocalRank(rank), call: CallId(call), done };
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
        named in btree_map("[^/\0]{1,32}", any::<([u8; 32], u64)>(), 0..20),
    ) {
        let rank = Rank(rank % size);
        let named = named.iter().filter(|(name, _)| launch_block::is_name(name));
        let files: Vec<_> = named
            .map(|(name, &(object, bytes))| launch_block::File { name, object, bytes })
            .collect();
        let bytes = launch_block::emit(rank, size, &argv, &envp, &files).expect("it is small");
        let block = launch_block::parse(&bytes).expect("it was just written");
        prop_assert_eq!((block.rank, block.size), (rank, size));
        prop_assert_eq!(block.argv, argv);
        prop_assert_eq!(block.envp, envp);
        prop_assert_eq!(block.files, files);
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
        order in order(), op in io_op(), hello in hello(), read in page_read(),
        holdings in holdings(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let messages = [
            payload(|w| with_block(&order).emit(w)),
            payload(|w| holdings.emit(w)),
            payload(|w| emit_call((JobId(1), LocalRank::FIRST), CallId(1), &op, w)),
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

/// A launch of one rank with a launch block of so many bytes.
fn small_launch(launch_block_bytes: u32) -> LaunchSpec {
    LaunchSpec {
        job: JobId(1),
        rank: Rank(0),
        ranks: 1,
        size: 1,
        program: ProgramId([0; 32]),
        program_bytes: 0,
        launch_block_bytes,
        time_limit_us: 0,
        monitor_period_us: 0,
        memory_limit: 0,
        retention: Retention::default(),
        start: StartMode::OnCommand,
        cores: 0,
        core_bytes: 0,
        files: None,
    }
}

/// A report with a change of each kind.
fn small_report() -> Holdings {
    Holdings {
        number: 2,
        reset: false,
        held: vec![Holding {
            program: ProgramId([1; 32]),
            pages: 7,
            pristine: 2,
        }],
        dropped: vec![ProgramId([2; 32])],
    }
}

#[test]
fn a_message_cut_anywhere_is_refused() {
    let (job, program) = (JobId(1), ProgramId([3; 32]));
    let commands = [
        Command::Launch {
            spec: small_launch(5),
            wrapped_key: [6; 16],
            block: Some(b"block"),
        },
        Command::Start { job },
        Command::Cancel {
            job,
            signal: 15,
            orphan: false,
            grace: GRACE_MAX,
        },
        Command::Signal {
            job,
            signal: SIGNAL_MAX,
            number: 1,
        },
        Command::Retain {
            job,
            program,
            read_only: true,
        },
        Command::Drop {
            id: 1,
            program: Some(program),
        },
    ];
    type Parses = fn(&[u8]) -> bool;
    let as_command: Parses = |bytes| Command::parse(bytes).is_ok();
    let as_holdings: Parses = |bytes| Holdings::parse(bytes).is_ok();
    let commands = commands.map(|command| (payload(|w| command.emit(w)), as_command));
    let report = (payload(|w| small_report().emit(w)), as_holdings);
    for (bytes, parses) in commands.into_iter().chain([report]) {
        assert!(parses(&bytes));
        for length in 0..bytes.len() {
            assert!(!parses(&bytes[..length]), "{length} bytes");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(!parses(&longer), "a byte too many");
    }
}

#[test]
fn a_launch_of_a_rank_that_there_is_not_is_refused() {
    let most = launch_block::MAX as u32;
    for (rank, ranks, size, launch_block_bytes, is_good) in [
        (0, 1, 1, 0, true),
        (1, 1, 2, most, true),
        (1, 1, 1, 0, false),
        (2, 1, 1, 0, false),
        (0, 1, 0, 0, false),
        (0, 1, 1, most + 1, false),
        (4, 4, 8, 0, true),
        (5, 4, 8, 0, false),
        (0, 0, 8, 0, false),
        (0, RANKS_PER_NODE_MAX, 99, 0, true),
        (0, RANKS_PER_NODE_MAX + 1, 99, 0, false),
    ] {
        let spec = LaunchSpec {
            rank: Rank(rank),
            ranks,
            size,
            ..small_launch(launch_block_bytes)
        };
        let bytes = payload(|w| {
            Command::Launch {
                spec,
                wrapped_key: [6; 16],
                block: None,
            }
            .emit(w)
        });
        let what = format!("{ranks} ranks from {rank} on of {size}, {launch_block_bytes} bytes");
        assert_eq!(Command::parse(&bytes).is_ok(), is_good, "{what}");
    }
}

#[test]
fn what_contradicts_itself_is_refused() {
    let launch = payload(|w| {
        let spec = small_launch(0);
        Command::Launch {
            spec,
            wrapped_key: [6; 16],
            block: None,
        }
        .emit(w);
    });
    // Reuse, keep, verify, flags: the first value that means nothing.
    for (offset, value) in [(88, 3), (89, 3), (90, 3), (91, 32)] {
        let mut bytes = launch.clone();
        assert!(Command::parse(&bytes).is_ok());
        bytes[offset] = value;
        assert!(Command::parse(&bytes).is_err(), "{value} at {offset}");
    }
    let signal = payload(|w| {
        Command::Signal {
            job: JobId(1),
            signal: SIGNAL_MAX,
            number: 1,
        }
        .emit(w);
    });
    // No such signal, none, and the first number is 1.
    for (offset, value) in [(1, SIGNAL_MAX + 1), (1, 0), (12, 0)] {
        let mut bytes = signal.clone();
        assert!(Command::parse(&bytes).is_ok());
        bytes[offset] = value;
        assert!(Command::parse(&bytes).is_err(), "{value} at {offset}");
    }
    let cancel = |orphan, grace: u64| {
        payload(|w| {
            let (job, signal, grace) = (JobId(1), 15, Micros(grace));
            Command::Cancel {
                job,
                signal,
                orphan,
                grace,
            }
            .emit(w);
        })
    };
    assert!(Command::parse(&cancel(false, GRACE_MAX.0)).is_ok());
    assert!(Command::parse(&cancel(false, GRACE_MAX.0 + 1)).is_err());
    assert!(Command::parse(&cancel(true, 0)).is_ok());
    assert!(Command::parse(&cancel(true, 1)).is_err(), "an orphan waits");
    let drop_all = payload(|w| {
        let program = None;
        Command::Drop { id: 1, program }.emit(w);
    });
    let mut named = drop_all.clone();
    named[20] = 1;
    assert!(Command::parse(&drop_all).is_ok());
    assert!(
        Command::parse(&named).is_err(),
        "every program, and this one"
    );
    let mut report = small_report();
    report.number = 1;
    let bytes = payload(|w| report.emit(w));
    assert!(
        Holdings::parse(&bytes).is_err(),
        "a session begins with a reset"
    );
    report.reset = true;
    let bytes = payload(|w| report.emit(w));
    assert!(Holdings::parse(&bytes).is_err(), "a reset drops nothing");
    report.dropped.clear();
    let bytes = payload(|w| report.emit(w));
    assert!(Holdings::parse(&bytes).is_ok());
    let mut many = bytes.clone();
    many[9] = CHANGES_MAX as u8 + 1;
    many.resize(12 + 40 * (CHANGES_MAX + 1), 0);
    assert!(Holdings::parse(&many).is_err(), "too many changes");
}

#[test]
fn names_of_files_lead_nowhere_else() {
    let block = |names: &[&str]| {
        let file = |&name| launch_block::File {
            name,
            object: [7; 32],
            bytes: 1,
        };
        let files: Vec<_> = names.iter().map(file).collect();
        launch_block::emit::<&[u8]>(Rank(0), 1, &[], &[], &files)
    };
    let long = "n".repeat(launch_block::NAME_MAX + 1);
    for bad in ["", ".", "..", "a/b", "a\0b", &long] {
        assert_eq!(block(&[bad]), Err(launch_block::EmitError::BadName));
    }
    assert_eq!(block(&["a", "a"]), Err(launch_block::EmitError::BadName));
    let good = block(&["a", ".b", "..."]).expect("these are names");
    assert!(launch_block::parse(&good).is_ok());
    for (from, to) in [(b'a', b'/'), (b'a', b'.'), (b'b', 0), (b'b', 0xff)] {
        let mut bad = good.clone();
        let at = bad.iter().rposition(|&byte| byte == from);
        bad[at.expect("the name is in it")] = to;
        assert!(launch_block::parse(&bad).is_err(), "{from} became {to}");
    }
    let names: Vec<String> = (0..=launch_block::FILES_MAX)
        .map(|n| n.to_string())
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(block(&names), Err(launch_block::EmitError::TooManyFiles));
    assert!(block(&names[1..]).is_ok());
}
