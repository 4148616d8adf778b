//! The two ends of a rank's calls on files.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};

use netstack::files::client::{Client, Config};
use netstack::files::server::{Member, Server};
use netstack::files::{Call, ChannelId, MAX_TRANSFER, Op, Reply, WINDOW, WORKING};
use netstack::ids::{BootEpoch, JobId, NodeId, Rank};
use netstack::time::{Instant, Micros};
use netstack::wire::datagram::{self, Header, Kind, MAX_PAYLOAD};
use netstack::wire::key::{Direction, Key};
use netstack::{MAX_DATAGRAM, NODE_PORT};

const KEY: Key = Key(*b"a secret to fuzz");
const NODE: NodeId = NodeId(3);
const BOOT: BootEpoch = BootEpoch(5);
const HERE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 117, 1, 3), NODE_PORT);
const ELSEWHERE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 117, 1, 4), NODE_PORT);
const CHANNEL: ChannelId = ChannelId {
    job: JobId(1),
    rank: Rank(0),
};
const KINDS: [Kind; 4] = [
    Kind::FileCall,
    Kind::FileReply,
    Kind::FileFetch,
    Kind::FileData,
];

/// A rank, and the service of its calls.
struct Files {
    client: Client,
    server: Server,
    /// The run of the service.
    run: u64,
    now: Instant,
    /// Number of the last datagram that somebody else has sealed, far above their own.
    sealed: u64,
    /// Calls that this service has given out.
    given: BTreeSet<u64>,
}

impl Files {
    fn new() -> Self {
        let mut files = Self {
            client: Client::new(Config {
                channel: CHANNEL,
                node: NODE,
                boot: BOOT,
                key: KEY,
            }),
            server: Server::new(Instant::ZERO, 0),
            run: 0,
            now: Instant::ZERO,
            sealed: 1 << 40,
            given: BTreeSet::new(),
        };
        files.start();
        files.submit(0);
        files.settle();
        files
    }

    /// Another service, which knows nothing of the one before.
    fn start(&mut self) {
        self.run += 1_000;
        self.server = Server::new(self.now, self.run);
        let member = Member {
            rank: CHANNEL.rank,
            node: NODE,
            address: HERE,
            key: KEY,
        };
        self.server.admit(CHANNEL.job, [member]);
        self.given.clear();
    }

    fn submit(&mut self, choice: u8) {
        let bytes = usize::from(choice) * 250;
        let call = match choice % 3 {
            0 => Call::new(Op::Open, WORKING).with_input(vec![b'f'; 1 + bytes]),
            1 => Call::new(Op::Write, 1).with_input(vec![7; bytes]),
            _ => Call::new(Op::Read, 1).with_room(MAX_TRANSFER),
        };
        // Refused while too many are under way.
        let _ = self.client.submit(self.now, call);
        assert!(self.client.under_way() <= WINDOW as usize);
    }

    fn server_hears(&mut self, from: SocketAddrV4, bytes: &[u8]) {
        self.server.handle_datagram(self.now, from.into(), bytes);
        while let Some(request) = self.server.poll_event() {
            assert!(self.given.insert(request.number), "given out twice");
            let room = request.call.room as usize;
            let reply = Reply {
                result: room as i64,
                output: vec![9; room],
            };
            self.server.complete(request.channel, request.number, reply);
        }
    }

    fn client_hears(&mut self, bytes: &[u8]) {
        self.client.handle_datagram(self.now, bytes);
        while self.client.poll_event().is_some() {}
    }

    /// The payload of a datagram that the other end seals, which has been taken over.
    fn seal(&mut self, kind: Kind, direction: Direction, payload: &[u8]) -> Vec<u8> {
        let epoch = match direction {
            Direction::ToNode => self.run,
            Direction::ToControl => BOOT.0,
        };
        self.sealed += 1;
        let header = Header {
            kind,
            node: NODE,
            epoch: BootEpoch(epoch),
            seq: self.sealed,
        };
        let key = KEY.files_direction(direction, epoch);
        let mut out = [0; MAX_DATAGRAM];
        let length = datagram::emit(header, Some(&key), &mut out, |writer| {
            writer.u64(CHANNEL.job.0).u32(CHANNEL.rank.0).bytes(payload);
        });
        out[..length].to_vec()
    }

    fn settle(&mut self) {
        let mut out = [0; MAX_DATAGRAM];
        for _ in 0..1_000 {
            let up = self.client.poll_transmit(self.now, &mut out);
            if let Some(length) = up {
                self.server_hears(HERE, &out[..length]);
            }
            let down = self.server.poll_transmit(self.now, &mut out);
            if let Some((length, to)) = down
                && to == HERE.into()
            {
                self.client_hears(&out[..length]);
            }
            if up.is_none() && down.is_none() {
                return;
            }
        }
    }
}

/// Hostile datagrams into both ends of a rank's calls. Records as in the other targets: mode 0
/// delivers bytes as they are, mode 1 as what follows the channel in a sealed payload, mode 2 lets
/// time pass, mode 3 has the rank call, mode 4 has the service begin another run or start anew, any
/// other lets the ends speak. The upper bits of a record's mode choose the end, and whether the
/// datagram comes from elsewhere.
pub fn attack_files(input: &[u8]) {
    let mut files = Files::new();
    let mut rest = input;
    while let Some((&[mode, kind, low, high], tail)) = rest.split_first_chunk::<4>() {
        let length = usize::from(u16::from_le_bytes([low, high])).min(tail.len());
        let (bytes, tail) = tail.split_at(length);
        rest = tail;
        let is_to_node = mode & 8 != 0;
        let from = if mode & 16 != 0 { ELSEWHERE } else { HERE };
        match mode % 8 {
            0 if is_to_node => files.client_hears(bytes),
            0 => files.server_hears(from, bytes),
            1 => {
                let payload = &bytes[..bytes.len().min(MAX_PAYLOAD - 12)];
                let kind = KINDS[usize::from(kind) % KINDS.len()];
                if is_to_node {
                    let sealed = files.seal(kind, Direction::ToNode, payload);
                    files.client_hears(&sealed);
                } else {
                    let sealed = files.seal(kind, Direction::ToControl, payload);
                    files.server_hears(from, &sealed);
                }
            }
            2 => files.now += Micros(u64::from(kind) * 20_000),
            3 => files.submit(kind),
            4 if is_to_node => files.start(),
            4 => files.server.begin_again(CHANNEL.job),
            _ => files.settle(),
        }
    }
    files.settle();
}
