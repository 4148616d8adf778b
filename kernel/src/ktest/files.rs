//! Files in the node's memory, from the launch block to what a program reads of them.
//!
//! The programs are tables of system calls with the answer that Linux would give
//! (`test_programs::check_calls`); what they read they write to standard output.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use hearth_abi::errno::Errno;
use hearth_abi::linux::{at, clone, map, open, prot, seek, utsname};
use hearth_abi::sysno;
use kernel_core::objects::ObjectId;
use netstack::io::{ExitReport, ExitStatus};
use netstack::job::RefusalCode;

use super::control::{FakeControl, NODE_NAME};
use super::program::{expect, file_with, run};
use super::{Outcome, check};
use crate::arch::test_programs::{self, PROGRAM_DATA as DATA};
use crate::mm;
use crate::mm::Hardware;
use crate::process;

/// Bytes of the table of calls, of the strings behind it, and where zeros follow them.
const TABLE_BYTES: u64 = 0x4000;
const STRING_BYTES: u64 = 0x1000;
const STRINGS: u64 = DATA + TABLE_BYTES;
pub(super) const BUFFER: u64 = STRINGS + STRING_BYTES;
/// Where mappings are made.
pub(super) const MAPPED: u64 = 0x2000_0000;
/// Length of the file that is given: not a multiple of anything.
const BYTES: u64 = 5 * 4096 + 1234;
const CWD: u64 = at::CWD as u64;

/// Bytes told apart by their place.
fn contents(bytes: u64) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at / 7 + at / 4096 * 3) as u8)
        .collect()
}

/// Calls with their answers.
pub(super) struct Script {
    table: Vec<u8>,
    strings: Vec<u8>,
}

impl Script {
    pub(super) fn new() -> Self {
        Self {
            table: Vec::new(),
            strings: Vec::new(),
        }
    }

    pub(super) fn string(&mut self, text: &str) -> u64 {
        let at = STRINGS + self.strings.len() as u64;
        self.strings.extend_from_slice(text.as_bytes());
        self.strings.push(0);
        at
    }

    pub(super) fn words(&mut self, words: &[u64]) -> u64 {
        self.strings
            .resize(self.strings.len().next_multiple_of(8), 0);
        let at = STRINGS + self.strings.len() as u64;
        for word in words {
            self.strings.extend_from_slice(&word.to_le_bytes());
        }
        at
    }

    pub(super) fn call(&mut self, number: u64, arguments: &[u64], answer: u64) -> &mut Self {
        let mut row = [0; 8];
        row[0] = number;
        row[1..=arguments.len()].copy_from_slice(arguments);
        row[7] = answer;
        for word in row {
            self.table.extend_from_slice(&word.to_le_bytes());
        }
        self
    }

    pub(super) fn fails(&mut self, number: u64, arguments: &[u64], errno: Errno) -> &mut Self {
        self.call(number, arguments, errno.as_return())
    }

    /// Has the program write what is at an address.
    pub(super) fn show(&mut self, address: u64, length: u64) -> &mut Self {
        self.call(sysno::WRITE, &[1, address, length], length)
    }

    pub(super) fn program(&self) -> Vec<u8> {
        let mut data = self.table.clone();
        data.extend_from_slice(&u64::MAX.to_le_bytes());
        assert!(data.len() as u64 <= TABLE_BYTES, "too many calls");
        data.resize(TABLE_BYTES as usize, 0);
        data.extend_from_slice(&self.strings);
        data.resize((TABLE_BYTES + STRING_BYTES) as usize, 0);
        file_with(test_programs::check_calls(), &data, 1)
    }

    /// Runs the script with a file `/with/data`; what it wrote must be `shown`.
    fn run(&self, shown: &[u8]) -> Outcome {
        self.report(shown).map(drop)
    }

    /// As [`Self::run`]; gives the report of its end.
    fn report(&self, shown: &[u8]) -> Result<ExitReport, String> {
        let mut control = FakeControl::new(self.program());
        let id = control.give_file("data", &contents(BYTES), false);
        let exit = run(&mut control)?;
        // The next control has a store of its own.
        control.objects.drop_object(&mut Hardware::new(), &id);
        check!(
            exit.report.status == ExitStatus::Exited(0),
            "call {:?} had another answer: {:?}",
            exit.report.status,
            exit.text
        );
        let output = control.output(1);
        let differs = output.iter().zip(shown).position(|(a, b)| a != b);
        check!(
            output == shown,
            "{} bytes instead of {}, the first that differs: {differs:?}",
            output.len(),
            shown.len()
        );
        Ok(exit.report)
    }
}

/// Reads, seeks and questions.
pub fn calls() -> Outcome {
    let mut script = Script::new();
    let path = script.string("/with/data");
    let with = script.string("/with");
    let name = script.string("data");
    let none = script.string("/with/none");
    let file = contents(BYTES);
    let mut shown = Vec::new();
    script
        .call(sysno::OPEN, &[path, 0], 3)
        .call(sysno::READ, &[3, BUFFER, 5000], 5000)
        .show(BUFFER, 5000)
        .call(sysno::LSEEK, &[3, 0, seek::CUR], 5000)
        .call(sysno::PREAD64, &[3, BUFFER, 300, 4000], 300)
        .show(BUFFER, 300)
        .call(
            sysno::LSEEK,
            &[3, 1u64.wrapping_neg(), seek::END],
            BYTES - 1,
        )
        .call(sysno::READ, &[3, BUFFER, 100], 1)
        .call(sysno::READ, &[3, BUFFER, 100], 0)
        .call(sysno::PREAD64, &[3, BUFFER, 100, BYTES + 1000], 0)
        .fails(sysno::PREAD64, &[3, BUFFER, 100, u64::MAX], Errno::EINVAL)
        .fails(sysno::PREAD64, &[0, BUFFER, 100, 0], Errno::ESPIPE)
        .call(sysno::READ, &[3, 8, 100], 0)
        .fails(sysno::PREAD64, &[3, 8, 100, 0], Errno::EFAULT)
        .fails(sysno::WRITE, &[3, BUFFER, 1], Errno::EBADF);
    shown.extend_from_slice(&file[..5000]);
    shown.extend_from_slice(&file[4000..4300]);
    let vector = script.words(&[BUFFER, 10, BUFFER + 100, 0, BUFFER + 10, BYTES]);
    script
        .call(sysno::LSEEK, &[3, 50, seek::SET], 50)
        .call(sysno::READV, &[3, vector, 3], BYTES - 50)
        .show(BUFFER, BYTES - 50)
        .call(sysno::PREADV, &[3, vector, 1, 4090], 10)
        .show(BUFFER, 10)
        .call(sysno::LSEEK, &[3, 0, seek::CUR], BYTES);
    shown.extend_from_slice(&file[50..]);
    shown.extend_from_slice(&file[4090..4100]);
    // Directories, copies, and what is refused.
    script
        .call(sysno::OPENAT, &[CWD, with, open::DIRECTORY], 4)
        .call(sysno::OPENAT, &[4, name, 0], 5)
        .fails(sysno::READ, &[4, BUFFER, 10], Errno::EISDIR)
        .fails(sysno::OPENAT, &[3, name, 0], Errno::ENOTDIR)
        .fails(sysno::OPENAT, &[9, name, 0], Errno::EBADF)
        .fails(sysno::OPEN, &[none, 0], Errno::ENOENT)
        .fails(sysno::OPEN, &[path, open::WRITE_ONLY], Errno::EROFS)
        .fails(sysno::OPEN, &[8, 0], Errno::EFAULT)
        .call(sysno::DUP2, &[1, 7], 7)
        .call(sysno::WRITE, &[7, path, 5], 5)
        .call(sysno::CLOSE, &[7], 0)
        .fails(sysno::WRITE, &[7, path, 5], Errno::EBADF)
        .call(sysno::ACCESS, &[path, 4], 0)
        .fails(sysno::ACCESS, &[path, 2], Errno::EROFS)
        .fails(sysno::ACCESS, &[none, 0], Errno::ENOENT)
        .fails(sysno::IOCTL, &[3, 0x5401], Errno::ENOTTY)
        .call(sysno::GETCWD, &[BUFFER, 100], 6)
        .fails(sysno::GETCWD, &[BUFFER, 5], Errno::ERANGE)
        .call(sysno::OPENAT, &[CWD, name, 0], 6)
        .call(sysno::CLOSE, &[6], 0)
        .fails(sysno::READLINK, &[path, BUFFER, 100], Errno::EINVAL);
    shown.extend_from_slice(b"/with");
    // The sizes that stat and statx say, then the names in the directory.
    let empty = script.string("");
    script
        .call(sysno::FSTAT, &[3, BUFFER], 0)
        .show(BUFFER + 48, 8)
        .call(sysno::STAT, &[path, BUFFER + 256], 0)
        .show(BUFFER + 256 + 48, 8)
        .call(sysno::NEWFSTATAT, &[5, empty, BUFFER, at::EMPTY_PATH], 0)
        .show(BUFFER + 48, 8)
        .call(sysno::STATX, &[CWD, path, 0, 0x7ff, BUFFER], 0)
        .show(BUFFER + 40, 8)
        .call(sysno::GETDENTS64, &[4, BUFFER, 1000], 24 + 24 + 24)
        .show(BUFFER + 48 + 19, 5)
        .call(sysno::GETDENTS64, &[4, BUFFER, 1000], 0)
        .fails(sysno::GETDENTS64, &[3, BUFFER, 1000], Errno::ENOTDIR);
    for _ in 0..4 {
        shown.extend_from_slice(&BYTES.to_le_bytes());
    }
    shown.extend_from_slice(b"data\0");
    script.run(&shown)
}

/// A program hears the node's name; what it calls in vain is told by the number that it means.
pub fn missing() -> Outcome {
    let mut script = Script::new();
    let path = script.string("/with/data");
    let new = script.string("/data/new");
    let none = script.string("/with/none");
    let field = utsname::FIELD as u64;
    script
        .call(sysno::UNAME, &[BUFFER], 0)
        .show(BUFFER + field, NODE_NAME.len() as u64 + 1)
        .fails(sysno::UNAME, &[8], Errno::EFAULT)
        .fails(sysno::CLONE, &[clone::THREAD], Errno::EINVAL)
        .fails(sysno::CLONE, &[17], Errno::ENOSYS)
        .fails(sysno::CLONE, &[clone::VFORK], Errno::ENOSYS)
        .fails(sysno::OPEN, &[path, open::WRITE_ONLY], Errno::EROFS)
        .fails(sysno::OPEN, &[none, 0], Errno::ENOENT)
        .fails(sysno::CREAT, &[new], Errno::ENOENT);
    let name = [NODE_NAME.as_bytes(), b"\0"].concat();
    let told = script.report(&name)?.unknown_calls;
    let calls = [
        sysno::CLONE,
        sysno::FORK,
        sysno::VFORK,
        sysno::OPEN,
        sysno::CREAT,
    ];
    let wanted = calls.map(|call| (call as u32, 1));
    check!(told[..] == wanted, "{told:?}");
    Ok(())
}

/// Mappings: shared and private, written, and behind the end; by calls and by ring 3 itself.
pub fn mapped() -> Outcome {
    let mut script = Script::new();
    let path = script.string("/with/data");
    let file = contents(BYTES);
    const SHARED: u64 = map::SHARED | map::FIXED;
    const PRIVATE: u64 = map::PRIVATE | map::FIXED;
    const SECOND: u64 = MAPPED + 0x10_0000;
    let both = prot::READ | prot::WRITE;
    script
        .call(sysno::OPEN, &[path, 0], 3)
        .call(
            sysno::MMAP,
            &[MAPPED, BYTES, prot::READ, SHARED, 3, 0],
            MAPPED,
        )
        .call(
            sysno::MMAP,
            &[SECOND, 16384, both, PRIVATE, 3, 4096],
            SECOND,
        )
        .call(sysno::CLOSE, &[3], 0)
        .show(MAPPED, BYTES)
        .show(SECOND, 16384)
        // The kernel writes to the private mapping as the program would.
        .call(sysno::GETCWD, &[SECOND + 10, 100], 6)
        .show(SECOND, 20)
        .show(MAPPED + 4096, 20)
        .fails(sysno::GETCWD, &[MAPPED, 100], Errno::EFAULT)
        .fails(sysno::MPROTECT, &[MAPPED, 4096, both], Errno::EACCES)
        .call(sysno::MADVISE, &[SECOND, 4096, 4], 0)
        .show(SECOND, 20)
        .call(sysno::MUNMAP, &[MAPPED, 0x20_0000], 0)
        .fails(sysno::WRITE, &[1, MAPPED, 1], Errno::EFAULT)
        .call(sysno::OPEN, &[path, 0], 3)
        .call(
            sysno::MMAP,
            &[MAPPED, 0x8000, prot::READ, SHARED, 3, 0],
            MAPPED,
        )
        .fails(sysno::WRITE, &[1, MAPPED + 0x6000, 1], Errno::EFAULT)
        .fails(
            sysno::MMAP,
            &[0, 4096, both, map::SHARED, 3, 0],
            Errno::EACCES,
        )
        .fails(
            sysno::MMAP,
            &[0, 4096, prot::READ, map::SHARED, 1, 0],
            Errno::ENODEV,
        )
        .fails(
            sysno::MMAP,
            &[0, 4096, prot::READ, map::SHARED, 9, 0],
            Errno::EBADF,
        );
    let mut changed = file[4096..4116].to_vec();
    changed[10..16].copy_from_slice(b"/with\0");
    let same = &file[4096..4116];
    let shown = [&file[..], &file[4096..4096 + 16384], &changed, same, same].concat();
    script.run(&shown)?;
    // In ring 3: every page, and the first behind the end.
    let pages = BYTES.div_ceil(4096);
    let sum: u64 = (0..pages)
        .map(|page| u64::from(file[page as usize * 4096]))
        .sum();
    let ends = [
        (pages, ExitStatus::Exited((sum & 127) as u8)),
        (pages + 1, ExitStatus::Signal(7)),
    ];
    for (touched, status) in ends {
        let mut data = Vec::new();
        data.extend_from_slice(&(64 * 4096u64).to_le_bytes());
        data.extend_from_slice(&touched.to_le_bytes());
        data.extend_from_slice(b"/with/data\0");
        let program = file_with(test_programs::sum_mapped(), &data, 1);
        let mut control = FakeControl::new(program);
        control.give_file("data", &file, false);
        let before = mm::frames().usage();
        let exit = run(&mut control)?;
        expect(&exit.report, status)?;
        let after = mm::frames().usage();
        check!(
            before.object == after.object && before.object == pages,
            "frames of the file: {before:?}, {after:?}"
        );
        let text = exit.text.unwrap_or_default();
        let said = text.contains("behind the end of the file");
        check!(said == (touched > pages), "{text}");
        mm::frames().check_tags()?;
        let id = control.objects.iter().next().map(|(id, _)| id);
        control
            .objects
            .drop_object(&mut Hardware::new(), &id.expect("the file is here"));
    }
    Ok(())
}

/// A job sees the files that its launch names, and no other; one that is not there is named in the
/// refusal.
pub fn named() -> Outcome {
    let mut script = Script::new();
    let data = script.string("/with/data");
    let other = script.string("/with/other");
    let with = script.string("/with");
    script
        .fails(sysno::OPEN, &[data, 0], Errno::ENOENT)
        .call(sysno::OPEN, &[other, 0], 3)
        .call(sysno::READ, &[3, BUFFER, 100], 4)
        .show(BUFFER, 4)
        .call(sysno::OPEN, &[with, 0], 4)
        .call(sysno::GETDENTS64, &[4, BUFFER, 1000], 24 + 24 + 32);
    let mut control = FakeControl::new(script.program());
    control.give_file("data", &contents(BYTES), false);
    control.name_nothing();
    control.give_file("other", b"four", false);
    let exit = run(&mut control)?;
    expect(&exit.report, ExitStatus::Exited(0))?;
    check!(control.output(1) == b"four", "{:?}", control.written);
    // The same bytes under another name.
    control.again();
    control.name_nothing();
    let id = control.give_file("else", b"five!", false);
    control.name_nothing();
    control.name_file("other", id, 5);
    let exit = run(&mut control)?;
    expect(&exit.report, ExitStatus::Exited(3))?;
    for (id, bytes, code, text) in [
        (
            ObjectId([1; 32]),
            4,
            RefusalCode::NoFile,
            "file other is not in",
        ),
        (id, 4, RefusalCode::BadLaunchBlock, "length"),
    ] {
        control.name_nothing();
        control.name_file("other", id, bytes);
        let before = mm::frames().usage();
        let launch = control.launch();
        match process::prepare(&launch, &mut control) {
            Err(refusal) if refusal.code == code && refusal.text.contains(text) => {}
            Err(refusal) => return Err(format!("{refusal:?}")),
            Ok(_) => return Err("a file that is not there was found".into()),
        }
        let after = mm::frames().usage();
        check!(before.kernel == after.kernel, "{before:?}, {after:?}");
    }
    Ok(())
}

/// A launch waits for a file that is on its way; it ends when the job is cancelled.
pub fn late() -> Outcome {
    let mut script = Script::new();
    let path = script.string("/with/data");
    script
        .call(sysno::OPEN, &[path, 0], 3)
        .call(sysno::PREAD64, &[3, BUFFER, BYTES, 0], BYTES)
        .show(BUFFER, BYTES);
    let mut control = FakeControl::new(script.program());
    control.give_file("data", &contents(BYTES), true);
    let exit = run(&mut control)?;
    expect(&exit.report, ExitStatus::Exited(0))?;
    check!(control.output(1) == contents(BYTES), "not what arrived");
    control.again();
    control.give_file("more", &contents(BYTES + 1), true);
    control.cancel_after_polls = Some(0);
    let launch = control.launch();
    match process::prepare(&launch, &mut control) {
        Err(refusal) if refusal.code == RefusalCode::Cancelled => Ok(()),
        Err(refusal) => Err(format!("{refusal:?}")),
        Ok(_) => Err("a program was loaded without its file".into()),
    }
}

/// A file that is dropped while a job has it goes when the job ends, scrubbed, and not before.
pub fn kept() -> Outcome {
    let mut script = Script::new();
    let path = script.string("/with/data");
    script
        .call(sysno::OPEN, &[path, 0], 3)
        .call(sysno::PREAD64, &[3, BUFFER, BYTES, 0], BYTES)
        .show(BUFFER, BYTES);
    let mut control = FakeControl::new(script.program());
    let id = control.give_file("data", &contents(BYTES), false);
    let launch = control.launch();
    let prepared = process::prepare(&launch, &mut control).map_err(|r| format!("{r:?}"))?;
    let dropped = control.objects.drop_object(&mut Hardware::new(), &id);
    check!(dropped.in_use, "a file of a job was dropped");
    let exit = prepared.run_alone(&mut control);
    expect(&exit.report, ExitStatus::Exited(0))?;
    check!(control.output(1) == contents(BYTES), "not the file");
    let usage = mm::frames().usage();
    check!(
        control.objects.is_empty() && usage.object == 0 && usage.dirty == 0,
        "{usage:?}"
    );
    mm::frames().check_tags()?;
    Ok(())
}
