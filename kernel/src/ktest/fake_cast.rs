//! A broadcast made of a list: blocks of a program's image, and when each is there.
//!
//! Neighbours: [`super::control`] asks it what is coming, [`super::cast`] says when.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use kernel_core::addr::PAGE_SIZE;
use kernel_core::objects::{Kept, ObjectId, Objects, Part, Spec};
use netstack::time::{Instant, Micros};

use crate::mm::DirectMap;
use crate::mm::Hardware;
use crate::process::services::CastPage;
use crate::time;

/// Bytes of a block, as a power of two.
pub const BLOCK_LOG2: u8 = 13;

/// A broadcast of one image to this node.
pub struct FakeCast {
    id: ObjectId,
    image: Vec<u8>,
    /// Blocks on their way and when they are there; those without a time never are.
    under_way: VecDeque<(Option<Instant>, u32)>,
    /// Blocks that a program has asked for first, in order.
    pub wanted: Vec<u32>,
    /// Microseconds until a block is there that was asked for first; `None`: asking does not help.
    pub want_us: Option<u64>,
    arrived: u64,
}

impl FakeCast {
    /// All blocks of `image` are on their way: block `n` is there after `after(n)` microseconds, or
    /// never.
    pub fn new(
        objects: &mut Objects,
        id: ObjectId,
        image: &[u8],
        after: impl Fn(u32) -> Option<u64>,
    ) -> Self {
        let bytes = image.len() as u64;
        let spec = Spec::new(id, bytes, BLOCK_LOG2, Kept::Image);
        objects
            .create(&mut Hardware::new(), spec)
            .expect("room for an image");
        let now = time::now();
        let blocks = bytes.div_ceil(1 << BLOCK_LOG2) as u32;
        let at = |block| after(block).map(|micros| now + Micros(micros));
        let mut this = Self {
            id,
            image: image.to_vec(),
            under_way: (0..blocks).map(|block| (at(block), block)).collect(),
            wanted: Vec::new(),
            want_us: None,
            arrived: 0,
        };
        this.deliver(objects);
        this
    }

    /// Stores what has arrived.
    pub fn deliver(&mut self, objects: &mut Objects) {
        let now = time::now();
        let mut arrived = Vec::new();
        self.under_way.retain(|&(at, block)| {
            let there = at.is_some_and(|at| at <= now);
            if there {
                arrived.push(block);
            }
            !there
        });
        self.arrived += arrived.len() as u64;
        for block in arrived {
            let start = (block as usize) << BLOCK_LOG2;
            let end = (start + (1 << BLOCK_LOG2)).min(self.image.len());
            let bytes = &self.image[start..end];
            objects
                .write(&mut Hardware::new(), &self.id, Part::Data(block), bytes)
                .expect("room for a block");
        }
    }

    /// Blocks that have arrived.
    pub fn progress(&self) -> u64 {
        self.arrived
    }

    /// When the next block is there.
    pub fn next(&self) -> Option<Instant> {
        self.under_way.iter().filter_map(|&(at, _)| at).min()
    }

    /// Where a page is.
    pub fn page(&self, page: u64, objects: &Objects) -> CastPage {
        if objects.page(&DirectMap, &self.id, page).is_some() {
            return CastPage::Here;
        }
        let block = block_of(page);
        match self.under_way.iter().any(|&(_, coming)| coming == block) {
            true => CastPage::Coming,
            false => CastPage::Absent,
        }
    }

    /// A page is asked for first.
    pub fn want(&mut self, page: u64) {
        let wanted = block_of(page);
        self.wanted.push(wanted);
        let soon = self.want_us.map(|micros| time::now() + Micros(micros));
        for (at, block) in &mut self.under_way {
            if *block == wanted && soon.is_some() {
                *at = soon;
            }
        }
    }
}

fn block_of(page: u64) -> u32 {
    ((page * PAGE_SIZE) >> BLOCK_LOG2) as u32
}
