//! The control side of demand paging: answers waiting to be sent, fragment by fragment.
//!
//! Invariant: nothing is remembered of an answer once its fragments were sent; a fragment that
//! got lost is asked for again.

use alloc::collections::VecDeque;

use crate::counters::Counters;
use crate::ids::NodeId;
use crate::page::{FRAGMENT, PageReply, fragment_mask};
use crate::wire::page::{Content, PageData};

#[derive(Debug)]
struct Answer {
    reply: PageReply,
    /// Fragments still to be sent.
    left: u32,
}

/// Answers waiting to be sent, in the order they were given.
#[derive(Debug)]
pub(crate) struct PageServer {
    queue: VecDeque<Answer>,
    bytes: usize,
    limit: usize,
}

impl PageServer {
    pub(crate) fn new(limit: usize) -> Self {
        PageServer {
            queue: VecDeque::new(),
            bytes: 0,
            limit,
        }
    }

    pub(crate) fn push(&mut self, mut reply: PageReply, counters: &mut Counters) {
        let mut left = 1;
        if let Ok(bytes) = &mut reply.bytes {
            bytes.truncate(reply.wanted.length as usize);
            if !bytes.is_empty() {
                left = reply.wanted.fragments & fragment_mask(bytes.len() as u32);
                // Tell at least how much there is.
                left = if left == 0 { 1 } else { left };
            }
        }
        let size = cost(&reply);
        if self.bytes + size > self.limit {
            counters.overloaded += 1;
            return;
        }
        self.bytes += size;
        self.queue.push_back(Answer { reply, left });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Gives the next fragment to `send`, with the node it goes to.
    pub(crate) fn next<R>(&mut self, send: impl FnOnce(NodeId, &PageData<'_>) -> R) -> Option<R> {
        let answer = self.queue.front_mut()?;
        let wanted = &answer.reply.wanted;
        let index = answer.left.trailing_zeros();
        answer.left &= answer.left - 1;
        let content = match &answer.reply.bytes {
            Err(reason) => Content::Failed(*reason),
            Ok(bytes) => {
                let start = index as usize * FRAGMENT;
                let end = (start + FRAGMENT).min(bytes.len());
                let available = bytes.len() as u32;
                Content::Fragment {
                    index: index as u8,
                    available,
                    data: &bytes[start..end],
                }
            }
        };
        let data = PageData {
            request: wanted.request,
            content,
        };
        let sent = send(wanted.node, &data);
        if answer.left == 0 {
            self.bytes -= cost(&answer.reply);
            self.queue.pop_front();
        }
        Some(sent)
    }
}

/// What an answer counts against the limit: its bytes and a little for itself.
fn cost(reply: &PageReply) -> usize {
    reply.bytes.as_ref().map_or(0, |bytes| bytes.len()) + 64
}
