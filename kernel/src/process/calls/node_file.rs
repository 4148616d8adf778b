//! Reads of the node's own small files.
//!
//! Neighbours: `kernel_core::files::NodeFile` has their paths, `kernel_core::procfs` their texts.
//!
//! Invariant: a text is made whole at each read, so that nothing of it is kept; a reader of more
//! than one piece may find it changed in between, as on Linux.

use alloc::string::String;
use alloc::vec::Vec;

use hearth_abi::errno::Errno;
use kernel_core::addr::PAGE_SIZE;
use kernel_core::files::NodeFile;
use kernel_core::procfs::{self, cpuinfo, maps, meminfo, stat, status};
use kernel_core::program::UserSlice;

use super::PID;
use crate::process::current::Current;
use crate::process::ending::Stop;
use crate::{arch, mm, time};

/// Bytes that a device gives at once.
const PIECE: usize = 256;
/// Room on the heap for the longest text, while it grows: a line for each of 1,024 regions.
const TEXT_ROOM: u64 = 384 * 1024;
/// The program has no path on the node.
const PROGRAM: &str = "program";
/// Files of the job are listed without their names.
const FILE: &str = "/with";

impl Current<'_> {
    /// Reads a file of the node from where its description is.
    pub(super) fn read_node_file(
        &mut self,
        fd: u64,
        file: NodeFile,
        to: UserSlice,
    ) -> Result<u64, Stop> {
        if !self.services.exchange().has_room(TEXT_ROOM) {
            return Err(Errno::ENOMEM.into());
        }
        let text = match file {
            NodeFile::Null => return Ok(0),
            NodeFile::Zero | NodeFile::Full | NodeFile::Random => {
                return self.read_device(file, to);
            }
            NodeFile::Maps => self.maps(),
            NodeFile::Status => self.status(),
            NodeFile::CpuInfo => self.cpu_info(),
            NodeFile::MemInfo => memory_info(),
            NodeFile::Stat => self.stat_text(),
            NodeFile::Cpus => procfs::cpus(self.process.threads.cores()),
        };
        let position = self.process.files.descriptors.get(fd)?.position;
        let rest = text.as_bytes().get(position as usize..).unwrap_or(&[]);
        let taken = &rest[..rest.len().min(to.length() as usize)];
        self.write_user(to.first(taken.len() as u64), taken)?;
        let done = taken.len() as u64;
        self.process.files.descriptors.get_mut(fd)?.position = position + done;
        Ok(done)
    }

    fn read_device(&mut self, file: NodeFile, to: UserSlice) -> Result<u64, Stop> {
        let mut done = self.thread.progress.map_or(0, |progress| progress.done);
        while done < to.length() {
            let mut bytes = [0; PIECE];
            let piece = to.after(done).first(PIECE as u64);
            let bytes = &mut bytes[..piece.length() as usize];
            if file == NodeFile::Random {
                arch::entropy::fill(bytes);
            }
            self.write_user(piece, bytes)?;
            done += piece.length();
            self.thread.progress().done = done;
            self.poll_and_check()?;
        }
        Ok(done)
    }

    fn maps(&mut self) -> String {
        let mut text = String::new();
        let regions = self.process.memory().space().regions();
        let regions: Vec<_> = regions.collect();
        let lines = regions
            .iter()
            .map(|region| maps::Line::of(region, PROGRAM, |_| FILE));
        // Writing to a String cannot fail.
        let _ = maps::write(&mut text, lines);
        text
    }

    fn status(&mut self) -> String {
        let mut text = String::new();
        let tid = self.thread.tid;
        let memory = self.process.memory();
        let size = memory
            .space()
            .regions()
            .map(|region| region.end - region.start);
        let size_bytes = size.sum();
        let peak_bytes = memory.pages_peak() * PAGE_SIZE;
        let user = self.process.files.user;
        let threads = &self.process.threads;
        let status = status::Status {
            name: PROGRAM,
            pid: PID as u32,
            user,
            threads: threads.len(),
            size_bytes,
            peak_bytes,
            // Pages are given back at the end: what a program has is close to its most.
            resident_bytes: peak_bytes,
            affinity: threads.affinity(tid).unwrap_or(threads.cores()),
            cores: threads.cores().count(),
        };
        let _ = status::write(&mut text, &status);
        text
    }

    fn stat_text(&mut self) -> String {
        let mut text = String::new();
        let now = time::now();
        let process = &*self.process;
        let before = process.clock.started.as_micros();
        let times = process.threads.cores().iter().map(|core| {
            let (user, idle) = process.cores.times(core, arch::tsc());
            let user_us = time::of_counts(user).as_micros();
            let idle_us = time::of_counts(idle).as_micros();
            let all_us = now.as_micros().saturating_sub(before);
            let times = stat::Times {
                user_us,
                system_us: all_us.saturating_sub(user_us + idle_us),
                idle_us: before + idle_us,
            };
            (core, times)
        });
        let times: Vec<_> = times.collect();
        let interrupts = arch::interrupts::counts();
        let counts = interrupts.user.iter().chain(&interrupts.idle);
        let cores = process.threads.cores();
        let node = stat::Node {
            interrupts: counts.sum(),
            switches: process.cores.switches(),
            started_s: (time::unix_micros() - now.as_micros()) / 1_000_000,
            runnable: cores
                .iter()
                .map(|core| process.threads.runnable(core))
                .sum(),
        };
        let _ = stat::write(&mut text, &times, &node);
        text
    }

    fn cpu_info(&mut self) -> String {
        let mut text = String::new();
        let identity = arch::cpu::identity();
        let flags = identity.flags();
        let processor = cpuinfo::Processor {
            vendor: identity.vendor(),
            family: identity.family,
            model: identity.model,
            stepping: identity.stepping,
            name: identity.name(),
            khz: arch::clock::tsc_hz() / 1000,
            cpuid_level: identity.highest_leaf,
            flags: &flags,
            line_bytes: identity.line_bytes,
            address_bits: identity.address_bits,
        };
        let _ = cpuinfo::write(&mut text, &processor, self.process.threads.cores());
        text
    }
}

fn memory_info() -> String {
    let mut text = String::new();
    let usage = mm::frames().usage();
    let memory = meminfo::Memory {
        total: usage.total * PAGE_SIZE,
        free: usage.available() * PAGE_SIZE,
        available: usage.available() * PAGE_SIZE,
        cached: (usage.retained + usage.object) * PAGE_SIZE,
    };
    let _ = meminfo::write(&mut text, &memory);
    text
}
