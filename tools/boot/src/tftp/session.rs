//! One transfer: a window of blocks, go-back-N on loss.

use super::packet::{self, ErrorCode, Options, Packet};
use axum::body::Bytes;
use std::time::Duration;

/// Block size without the option (RFC 1350).
const DEFAULT_BLOCK_BYTES: u16 = 512;
/// Largest block given: fills a 1,500-byte packet. Larger ones would be fragmented, and one lost
/// fragment costs the whole block.
const MAX_BLOCK_BYTES: u16 = 1_468;
/// Largest window given: 16 x 1,468 bytes are 23 KB in flight, which the receive ring of any
/// firmware driver and the queue of any switch port hold.
const MAX_WINDOW_BLOCKS: u16 = 16;
/// First wait for an answer; doubled at every repeat. Firmware's own first wait is about as long.
const FIRST_TIMEOUT: Duration = Duration::from_millis(500);
/// Longest wait between two repeats.
const MAX_TIMEOUT: Duration = Duration::from_secs(4);
/// Repeats without any answer before the client counts as gone, about 20 s altogether.
const MAX_REPEATS: u32 = 8;
/// A transfer that takes longer than this is given up, however slowly it still moves.
const MAX_TRANSFER_TIME: Duration = Duration::from_secs(600);
/// A repeated acknowledgement rewinds the window at most this often: one lost block makes the
/// client repeat itself for every block after it.
const REWIND_INTERVAL: Duration = Duration::from_millis(20);

/// How a transfer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The client has the whole file.
    Complete,
    /// The client only wanted to know the size (as UEFI firmware does first), or changed its mind
    /// before any data.
    Declined,
    /// It broke off; the reason is for people.
    Failed(String),
}

/// One client's read of one file.
#[derive(Debug)]
pub(super) struct Session {
    file: Bytes,
    block_bytes: usize,
    window_blocks: u64,
    fixed_timeout: Option<Duration>,
    /// The answer to the options, until the client has acknowledged it.
    option_ack: Option<Vec<u8>>,
    /// Blocks acknowledged. Block `n` (from 1) holds bytes `(n-1)*block_bytes..`.
    acknowledged: u64,
    /// Next block to send.
    next: u64,
    /// The option acknowledgement has to be sent (again).
    send_option_ack: bool,
    began: Duration,
    deadline: Duration,
    rewound: Duration,
    repeats: u32,
    outcome: Option<Outcome>,
}

impl Session {
    pub(super) fn new(now: Duration, file: Bytes, options: Options) -> Session {
        let block_bytes = options.block_bytes.map(|bytes| bytes.min(MAX_BLOCK_BYTES));
        let window_blocks = options
            .window_blocks
            .map(|blocks| blocks.min(MAX_WINDOW_BLOCKS));
        // The value must be echoed as it came (RFC 2349): one too long to be useful is left out.
        let max_seconds = MAX_TIMEOUT.as_secs();
        let timeout = options
            .timeout_seconds
            .filter(|s| u64::from(*s) <= max_seconds);
        let mut accepted: Vec<(&str, u64)> = Vec::new();
        accepted.extend(block_bytes.map(|bytes| ("blksize", u64::from(bytes))));
        accepted.extend(options.size.then_some(("tsize", file.len() as u64)));
        accepted.extend(timeout.map(|seconds| ("timeout", u64::from(seconds))));
        accepted.extend(window_blocks.map(|blocks| ("windowsize", u64::from(blocks))));
        let option_ack = (!accepted.is_empty()).then(|| packet::option_ack(&accepted));
        let mut session = Session {
            file,
            block_bytes: usize::from(block_bytes.unwrap_or(DEFAULT_BLOCK_BYTES)),
            window_blocks: u64::from(window_blocks.unwrap_or(1)),
            fixed_timeout: timeout.map(|seconds| Duration::from_secs(u64::from(seconds))),
            send_option_ack: option_ack.is_some(),
            option_ack,
            acknowledged: 0,
            next: 1,
            began: now,
            deadline: now,
            rewound: Duration::ZERO,
            repeats: 0,
            outcome: None,
        };
        session.arm(now);
        session
    }

    /// Whether this is a transfer that has not got an answer yet: a repeated request then is a
    /// retransmission.
    pub(super) fn is_fresh(&self) -> bool {
        self.acknowledged == 0 && self.outcome.is_none()
    }

    /// Number of blocks: the last one is short, or empty when the size is a multiple of the block
    /// size.
    fn blocks(&self) -> u64 {
        (self.file.len() / self.block_bytes) as u64 + 1
    }

    pub(super) fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    pub(super) fn handle(&mut self, now: Duration, packet: Packet) {
        if self.outcome.is_some() {
            return;
        }
        match packet {
            Packet::Ack { block } => self.handle_ack(now, block),
            Packet::Error { code, message } => {
                let declined = self.acknowledged == 0;
                self.outcome = Some(if declined {
                    Outcome::Declined
                } else {
                    Outcome::Failed(format!("the machine stopped it: error {code} {message}"))
                });
            }
            Packet::Read { .. } | Packet::Write => {}
        }
    }

    fn handle_ack(&mut self, now: Duration, block: u16) {
        if self.option_ack.is_some() {
            if block == 0 {
                self.option_ack = None;
                self.send_option_ack = false;
                self.repeats = 0;
                self.arm(now);
            }
            return;
        }
        // Block numbers are 16 bits on the wire and go round (to 0) in long files.
        let ahead = u64::from(block.wrapping_sub(self.acknowledged as u16));
        let sent = self.next - 1 - self.acknowledged;
        if ahead == 0 {
            // With a window this says "the block after this one is missing". Without one it is an
            // old packet, and answering it would double every packet from here on (RFC 1123,
            // 4.2.3.1).
            if self.window_blocks > 1 && sent > 0 && now >= self.rewound + REWIND_INTERVAL {
                self.rewound = now;
                self.next = self.acknowledged + 1;
                self.arm(now);
            }
            return;
        }
        if ahead > sent {
            return;
        }
        self.acknowledged += ahead;
        self.repeats = 0;
        if self.acknowledged == self.blocks() {
            self.outcome = Some(Outcome::Complete);
            return;
        }
        // An acknowledgement from inside the window: the client misses what follows (RFC 7440, 4).
        if ahead < sent {
            self.next = self.acknowledged + 1;
        }
        self.arm(now);
    }

    /// The next packet to send now.
    pub(super) fn poll_transmit(&mut self, now: Duration) -> Option<Vec<u8>> {
        if self.outcome.is_some() {
            return None;
        }
        if now >= self.began + MAX_TRANSFER_TIME {
            let limit = MAX_TRANSFER_TIME.as_secs();
            return Some(self.abort(&format!("it took longer than {limit} s")));
        }
        if now >= self.deadline {
            self.repeat(now)?;
        }
        if let Some(option_ack) = &self.option_ack {
            return std::mem::take(&mut self.send_option_ack).then(|| option_ack.clone());
        }
        let last = self.blocks().min(self.acknowledged + self.window_blocks);
        if self.next > last {
            return None;
        }
        let start = (self.next - 1) as usize * self.block_bytes;
        let end = (start + self.block_bytes).min(self.file.len());
        let packet = packet::data(self.next as u16, &self.file[start..end]);
        self.next += 1;
        Some(packet)
    }

    /// The time ran out: sends everything unacknowledged again, or gives up (`None`).
    fn repeat(&mut self, now: Duration) -> Option<()> {
        let all_sent = self.next > self.blocks();
        if self.repeats >= MAX_REPEATS {
            let block = self.acknowledged + 1;
            self.outcome = Some(if self.option_ack.is_some() {
                Outcome::Failed("the machine did not answer the first packet".into())
            } else if all_sent && self.acknowledged + 1 == self.blocks() {
                // Only the last acknowledgement is missing: clients do not repeat it.
                Outcome::Complete
            } else {
                Outcome::Failed(format!(
                    "the machine stopped answering at block {block} of {}",
                    self.blocks()
                ))
            });
            return None;
        }
        self.repeats += 1;
        self.next = self.acknowledged + 1;
        self.send_option_ack = self.option_ack.is_some();
        self.arm(now);
        Some(())
    }

    /// Ends the transfer and gives the packet that says so.
    fn abort(&mut self, reason: &str) -> Vec<u8> {
        self.outcome
            .get_or_insert(Outcome::Failed(reason.to_owned()));
        packet::error(ErrorCode::Undefined, reason)
    }

    pub(super) fn deadline(&self) -> Duration {
        self.deadline.min(self.began + MAX_TRANSFER_TIME)
    }

    fn arm(&mut self, now: Duration) {
        let backoff = FIRST_TIMEOUT
            .saturating_mul(1 << self.repeats.min(8))
            .min(MAX_TIMEOUT);
        self.deadline = now + self.fixed_timeout.unwrap_or(backoff);
    }
}
