//! The auxiliary service process for profiles: where the running program is, tick by tick.
//!
//! While it is on, each interrupt of a computing program for a tick or a heartbeat leaves the
//! program's instruction pointer here; how often that is decides the stream that wants the metrics.
//! The program's text is cut into equal parts, each with a count.
//!
//! Invariant: off, it costs nothing; on, it adds no interrupt to those that the stream asks for.

use netstack::overlay::{MetricId, ProfileMetric};
use spin::Mutex;

struct Profile {
    on: bool,
    text: (u64, u64),
    samples: u32,
    pointer: u64,
    elsewhere: u32,
    buckets: [u32; ProfileMetric::BUCKETS],
}

static PROFILE: Mutex<Profile> = Mutex::new(Profile::NONE);

impl Profile {
    const NONE: Self = Self {
        on: false,
        text: (0, 0),
        samples: 0,
        pointer: 0,
        elsewhere: 0,
        buckets: [0; ProfileMetric::BUCKETS],
    };
}

/// Starts or stops it; either forgets what was sampled.
pub fn switch(on: bool) {
    *PROFILE.lock() = Profile {
        on,
        ..Profile::NONE
    };
}

/// A program was interrupted at `pointer`; its text is `text`, from its first byte to behind its
/// last.
pub fn sample(pointer: u64, text: impl FnOnce() -> (u64, u64)) {
    let mut profile = PROFILE.lock();
    if !profile.on {
        return;
    }
    let text = text();
    if profile.text != text {
        *profile = Profile {
            on: true,
            text,
            ..Profile::NONE
        };
    }
    profile.samples += 1;
    profile.pointer = pointer;
    let (start, end) = text;
    if (start..end).contains(&pointer) {
        // The text is far smaller than 2^58 bytes.
        let bucket = (pointer - start) * ProfileMetric::BUCKETS as u64 / (end - start);
        profile.buckets[bucket as usize] += 1;
    } else {
        profile.elsewhere += 1;
    }
}

/// The next program has another text.
pub(super) fn end_program() {
    let on = PROFILE.lock().on;
    switch(on);
}

/// A metric of this process; `None`: off, or no such metric.
pub(super) fn read(metric: MetricId) -> Option<i64> {
    let profile = PROFILE.lock();
    let index = usize::from(metric.0.checked_sub(ProfileMetric::FIRST)?);
    if !profile.on {
        return None;
    }
    const SAMPLES: usize = ProfileMetric::Samples as usize;
    const POINTER: usize = ProfileMetric::Pointer as usize;
    const TEXT_START: usize = ProfileMetric::TextStart as usize;
    const TEXT_END: usize = ProfileMetric::TextEnd as usize;
    const ELSEWHERE: usize = ProfileMetric::Elsewhere as usize;
    Some(match index {
        SAMPLES => profile.samples.into(),
        POINTER => profile.pointer as i64,
        TEXT_START => profile.text.0 as i64,
        TEXT_END => profile.text.1 as i64,
        ELSEWHERE => profile.elsewhere.into(),
        _ => {
            let bucket = index - ProfileMetric::Buckets as usize;
            (*profile.buckets.get(bucket)?).into()
        }
    })
}
