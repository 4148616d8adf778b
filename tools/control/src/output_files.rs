//! Files that a job's standard output and standard error go to: `-o FILE`, `-e FILE`, with Slurm's
//! `%j` and its like in their names; and the core files of its ranks.
//!
//! Key types: [`Pattern`] (a name), [`Wanted`] (what was asked for), [`Streams`] (what is written
//! to). Neighbours: `cli::screen` writes the files of `hearth run`, `jobs::kept::files` those of
//! batch jobs; `output` puts lines together.
//!
//! Invariants: a file that all ranks share has whole lines, as the terminal has; a file of one rank
//! (`%n`) has its bytes as they are. A file begins empty. At most [`OPEN_MAX`] files of one rank
//! each are open at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use netstack::io::CORE_FILE;
use nix::fcntl::OFlag;
use nix::unistd::{AccessFlags, access};
use serde::{Deserialize, Serialize};

use crate::output::Printer;

/// Most files of one rank each that are open at a time; a job has up to tens of thousands of ranks.
const OPEN_MAX: usize = 128;

/// Longest pattern, in bytes: a path of Linux.
const PATTERN_MAX: usize = 4_096;

/// Name of a file, in which `%j` and its like stand for what a job is called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pattern(String);

/// Why a name is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Something unknown behind `%`.
    #[error(
        "%{0} stands for nothing here; there are %j (job), %A and %a (array and task), %n, %r and %t (rank), %x (name of the job), %u (user), %% (a percent sign)"
    )]
    Unknown(String),
    /// `%` in the folder.
    #[error("%j and its like stand in the name of the file, not in that of its folder")]
    Folder,
    /// No name, or one too long.
    #[error("the name of a file has 1 to {PATTERN_MAX} bytes")]
    Length,
    /// A folder that cannot stand in a request.
    #[error("the folder {0} has a name that is not UTF-8; name another with --chdir")]
    NotUtf8(PathBuf),
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        if text.is_empty() || text.len() > PATTERN_MAX || text.contains('\0') {
            return Err(PatternError::Length);
        }
        for piece in pieces(text) {
            if let Piece::Letter(letter) = piece
                && !"jAanrtxu%".contains(letter)
            {
                return Err(PatternError::Unknown(letter.to_string()));
            }
        }
        let pattern = Pattern(text.to_string());
        let folder = text.rsplit_once('/').map_or("", |(folder, _)| folder);
        let is_letter = |piece: Piece| matches!(piece, Piece::Letter(letter) if letter != '%');
        match pieces(folder).any(is_letter) {
            true => Err(PatternError::Folder),
            false => Ok(pattern),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A part of a pattern.
enum Piece<'a> {
    Text(&'a str),
    /// What stands behind `%`; a space where nothing does.
    Letter(char),
}

fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some(behind) = rest.strip_prefix('%') else {
            let (text, behind) = rest.split_at(rest.find('%').unwrap_or(rest.len()));
            rest = behind;
            return Some(Piece::Text(text));
        };
        let letter = behind.chars().next().unwrap_or(' ');
        rest = behind.get(letter.len_utf8()..).unwrap_or("");
        Some(Piece::Letter(letter))
    })
}

/// What a job is called, for names of files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// Its number.
    pub job: u64,
    /// The first job of its array and its task there.
    pub array: Option<(u64, u32)>,
    /// Its name.
    pub name: String,
    /// Its user.
    pub user: String,
}

impl Pattern {
    /// Whether each rank has a file of its own.
    pub fn is_per_rank(&self) -> bool {
        self.has("nrt")
    }

    /// Whether it has the task of an array.
    pub fn names_task(&self) -> bool {
        self.has("a")
    }

    fn has(&self, letters: &str) -> bool {
        pieces(&self.0)
            .any(|piece| matches!(piece, Piece::Letter(letter) if letters.contains(letter)))
    }

    /// The same as a path that does not depend on where a process runs.
    ///
    /// # Errors
    /// [`PatternError::NotUtf8`].
    pub fn in_folder(&self, folder: &Path) -> Result<Self, PatternError> {
        if self.0.starts_with('/') {
            return Ok(self.clone());
        }
        let not_utf8 = || PatternError::NotUtf8(folder.to_path_buf());
        let folder = std::path::absolute(folder).map_err(|_| not_utf8())?;
        let folder = folder.to_str().ok_or_else(not_utf8)?;
        let folder = folder.trim_end_matches('/').replace('%', "%%");
        Ok(Pattern(format!("{folder}/{}", self.0)))
    }

    /// Whether it is a path from the root.
    pub fn is_absolute(&self) -> bool {
        self.0.starts_with('/')
    }

    /// The file of a rank.
    pub fn path(&self, names: &Names, rank: u32) -> PathBuf {
        let mut path = String::new();
        for piece in pieces(&self.0) {
            match piece {
                Piece::Text(text) => path.push_str(text),
                Piece::Letter('j') => path += &names.job.to_string(),
                Piece::Letter('A') => {
                    let first = names.array.map_or(names.job, |(first, _)| first);
                    path += &first.to_string();
                }
                Piece::Letter('a') => path += &names.array.map_or(0, |(_, task)| task).to_string(),
                Piece::Letter('n' | 'r' | 't') => path += &rank.to_string(),
                Piece::Letter('x') => path += &names.name.replace('/', "_"),
                Piece::Letter('u') => path += &names.user.replace('/', "_"),
                Piece::Letter(_) => path.push('%'),
            }
        }
        PathBuf::from(path)
    }
}

/// Why a file could not be written before its job began.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}: {error}; name another {option}")]
pub struct Unwritable {
    /// What to name, and with which option.
    option: &'static str,
    path: String,
    error: io::Error,
}

/// What was asked for: files for standard output, standard error, both or none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// For standard output, and without `error` for standard error as well, as in Slurm.
    pub output: Option<Pattern>,
    /// For standard error.
    pub error: Option<Pattern>,
    /// For the core file of each rank that crashes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<Pattern>,
}

impl Wanted {
    /// Whether there is none.
    pub fn is_nothing(&self) -> bool {
        self.output.is_none() && self.error.is_none() && self.core.is_none()
    }

    /// What can be known before the job has a number: that the folders are there and take files.
    ///
    /// # Errors
    /// [`Unwritable`].
    pub fn check(&self) -> Result<(), Unwritable> {
        let options = [
            ("file with -o (--output)", &self.output, false),
            ("file with -e (--error)", &self.error, false),
            ("folder for --core with -D (--chdir)", &self.core, true),
        ];
        for (option, pattern, is_named_by_us) in options {
            let Some(pattern) = pattern else { continue };
            let path = pattern.path(&Names::default(), 0);
            let is_open = pattern.has("jAanrtxu");
            may_write(&path, is_open).map_err(|error| Unwritable {
                option,
                path: match path.parent().filter(|_| is_named_by_us) {
                    Some(folder) => format!("core files to {}", folder.display()),
                    None => pattern.to_string(),
                },
                error,
            })?;
        }
        Ok(())
    }

    /// Begins the files of a job of so many ranks; what has none goes to `out` and `err`.
    ///
    /// # Errors
    /// A file cannot be begun.
    pub fn open(
        &self,
        names: &Names,
        (label, ranks): (bool, u32),
        out: Box<dyn Write + Send>,
        err: Box<dyn Write + Send>,
    ) -> io::Result<Streams> {
        let error = self.error.as_ref().filter(|_| self.error != self.output);
        let (first, first_file) = stream(self.output.as_ref(), names)?;
        let (second, second_file) = match error {
            Some(error) => stream(Some(error), names)?,
            None if self.output.is_some() => {
                let again = first_file.as_ref().map(Begun::again).transpose()?;
                (None, again)
            }
            None => (None, None),
        };
        let or = |file: Option<Begun>, other| match file {
            Some(file) => Box::new(file) as Box<dyn Write + Send>,
            None => other,
        };
        Ok(Streams {
            shares: error.is_none(),
            per_rank: [first, second],
            cores: self.core.as_ref().map(|core| PerRank::new(core, names)),
            lost_cores: BTreeMap::new(),
            printer: Printer::new(or(first_file, out), or(second_file, err), label, ranks),
        })
    }
}

/// Where a stream goes: files of one rank each, or one file.
fn stream(
    pattern: Option<&Pattern>,
    names: &Names,
) -> io::Result<(Option<PerRank>, Option<Begun>)> {
    let Some(pattern) = pattern else {
        return Ok((None, None));
    };
    if pattern.is_per_rank() {
        return Ok((Some(PerRank::new(pattern, names)), None));
    }
    let path = pattern.path(names, 0);
    let file = begin(&path, true)?;
    Ok((None, Some(Begun { path, file })))
}

/// A file that was begun, with its path for errors.
#[derive(Debug)]
struct Begun {
    path: PathBuf,
    file: File,
}

impl Begun {
    /// The same file once more.
    fn again(&self) -> io::Result<Self> {
        let file = self
            .file
            .try_clone()
            .map_err(|error| at(&self.path, &error))?;
        let path = self.path.clone();
        Ok(Begun { path, file })
    }
}

impl Write for Begun {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.file
            .write(data)
            .map_err(|error| at(&self.path, &error))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens a file to write at its end, `anew`: made if it is not there, and emptied. Never waits:
/// what somebody would have to read before it can be written is refused.
fn begin(path: &Path, anew: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // Two names may be those of one file: each writes at its end.
    let options = options.append(true).custom_flags(OFlag::O_NONBLOCK.bits());
    let file = match anew {
        true => options.create(true).open(path),
        false => options.open(path),
    };
    let file = file.map_err(|error| at(path, &error))?;
    let kind = file
        .metadata()
        .map_err(|error| at(path, &error))?
        .file_type();
    if !kind.is_file() && !kind.is_char_device() {
        return Err(at(path, &not_a_file()));
    }
    if anew && kind.is_file() {
        file.set_len(0).map_err(|error| at(path, &error))?;
    }
    Ok(file)
}

/// Output is not written to what blocks until somebody reads it.
fn not_a_file() -> io::Error {
    let text = "it is neither a regular file nor a device";
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// An error with the file that it is about.
fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Whether a file can be made; `is_open`: its name is not known yet.
fn may_write(path: &Path, is_open: bool) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    if !folder.metadata()?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    match path.metadata() {
        Ok(there) if !is_open && there.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(there) if !is_open && (there.file_type().is_fifo() || there.file_type().is_socket()) => {
            Err(not_a_file())
        }
        Ok(_) if !is_open => Ok(access(path, AccessFlags::W_OK)?),
        _ => Ok(access(folder, AccessFlags::W_OK | AccessFlags::X_OK)?),
    }
}

/// Files of one rank each.
#[derive(Debug)]
struct PerRank {
    pattern: Pattern,
    names: Names,
    open: BTreeMap<u32, Begun>,
    begun: BTreeSet<u32>,
}

impl PerRank {
    fn new(pattern: &Pattern, names: &Names) -> Self {
        PerRank {
            pattern: pattern.clone(),
            names: names.clone(),
            open: BTreeMap::new(),
            begun: BTreeSet::new(),
        }
    }

    fn write(&mut self, rank: u32, data: &[u8]) -> io::Result<()> {
        if !self.open.contains_key(&rank) {
            if self.open.len() >= OPEN_MAX {
                self.open.clear();
            }
            let path = self.pattern.path(&self.names, rank);
            let file = begin(&path, self.begun.insert(rank))?;
            self.open.insert(rank, Begun { path, file });
        }
        let file = self.open.get_mut(&rank).expect("opened above");
        file.write_all(data)
    }

    /// Removes the file of a rank, where it is one.
    fn remove(&mut self, rank: u32) {
        self.open.remove(&rank);
        let path = self.pattern.path(&self.names, rank);
        let is_file = path.symlink_metadata().is_ok_and(|data| data.is_file());
        if is_file && let Err(error) = std::fs::remove_file(&path) {
            tracing::warn!("{}: {error}", path.display());
        }
    }
}

/// What a job's output is written to.
pub struct Streams {
    /// Standard error goes where standard output goes.
    shares: bool,
    per_rank: [Option<PerRank>; 2],
    cores: Option<PerRank>,
    /// Ranks whose core files cannot be written, and why.
    lost_cores: BTreeMap<u32, io::Error>,
    printer: Printer<Box<dyn Write + Send>, Box<dyn Write + Send>>,
}

impl Streams {
    /// Takes bytes that `rank` wrote to `fd` (2: standard error, [`CORE_FILE`]: its core file, else
    /// standard output). A core file that cannot be written is given up, and is no error: it takes
    /// nothing from what else is told of the crash ([`Streams::lost_cores`]).
    ///
    /// # Errors
    /// A stream cannot be written.
    pub fn output(&mut self, rank: u32, fd: u32, data: &[u8]) -> io::Result<()> {
        if fd == CORE_FILE {
            self.core(rank, data);
            return Ok(());
        }
        match self.per_rank_of(fd) {
            Some(files) => files.write(rank, data),
            None => self.printer.output(rank, fd, data),
        }
    }

    /// Writes lines of ours where standard error of a rank goes.
    ///
    /// # Errors
    /// As for [`Streams::output`].
    pub fn say(&mut self, rank: u32, lines: &str) -> io::Result<()> {
        match self.per_rank_of(2) {
            Some(files) => files.write(rank, lines.as_bytes()),
            None => self.printer.say(lines),
        }
    }

    fn core(&mut self, rank: u32, data: &[u8]) {
        // Who only reads the output wants no core file.
        let Some(files) = &mut self.cores else { return };
        if self.lost_cores.contains_key(&rank) {
            return;
        }
        if let Err(error) = files.write(rank, data) {
            files.remove(rank);
            self.lost_cores.insert(rank, error);
        }
    }

    /// The core files that were written, by rank.
    pub fn core_files(&self) -> impl Iterator<Item = (u32, PathBuf)> + '_ {
        let all = self.cores.iter().flat_map(|files| {
            let ranks = files.begun.iter().copied();
            ranks.map(move |rank| (files, rank))
        });
        all.filter(|(_, rank)| !self.lost_cores.contains_key(rank))
            .map(|(files, rank)| (rank, files.pattern.path(&files.names, rank)))
    }

    /// The ranks whose core files could not be written, each with the reason.
    pub fn lost_cores(&self) -> impl Iterator<Item = (u32, &io::Error)> {
        self.lost_cores.iter().map(|(rank, error)| (*rank, error))
    }

    /// Whether rank `rank` was to leave a core file and wrote none of it; one that an earlier job
    /// left under its name is removed, so that nobody takes it for this one's.
    pub fn lacks_core(&mut self, rank: u32) -> bool {
        let Some(files) = &mut self.cores else {
            return false;
        };
        let lacks = !files.begun.contains(&rank);
        if lacks {
            files.remove(rank);
        }
        lacks
    }

    /// Writes what is left of unfinished lines.
    ///
    /// # Errors
    /// As for [`Streams::output`].
    pub fn finish(&mut self) -> io::Result<()> {
        self.printer.finish()
    }

    fn per_rank_of(&mut self, fd: u32) -> Option<&mut PerRank> {
        let place = usize::from(fd == 2 && !self.shares);
        self.per_rank[place].as_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        text.parse().unwrap()
    }

    fn names() -> Names {
        Names {
            job: 41,
            array: Some((40, 2)),
            name: "a/b".into(),
            user: "eve".into(),
        }
    }

    #[test]
    fn what_somebody_has_to_read_is_refused_and_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let wanted = wanted(dir.path(), Some("pipe"), None);
        let text = wanted.check().unwrap_err().to_string();
        assert!(
            text.contains("neither a regular file nor a device; name another file with -o"),
            "{text}"
        );
        let nowhere = || Box::new(io::sink());
        let opened = wanted.open(&names(), (false, 1), nowhere(), nowhere());
        assert!(opened.is_err(), "nobody reads it");
        // Somebody does: still it is no regular file.
        let options = OpenOptions::new()
            .read(true)
            .custom_flags(OFlag::O_NONBLOCK.bits())
            .clone();
        let _reader = options.open(&pipe).unwrap();
        let opened = wanted.open(&names(), (false, 1), nowhere(), nowhere());
        assert!(
            opened
                .err()
                .unwrap()
                .to_string()
                .contains("neither a regular")
        );
    }

    #[test]
    fn two_names_of_one_file_overwrite_nothing() {
        let both = written(Some("o"), Some("./o"), 1);
        assert_eq!(both["o"].lines().count(), 3, "{both:?}");
    }

    fn wanted(dir: &Path, output: Option<&str>, error: Option<&str>) -> Wanted {
        let within = |text: Option<&str>| Some(pattern(text?).in_folder(dir).unwrap());
        Wanted {
            output: within(output),
            error: within(error),
            core: None,
        }
    }

    /// What a job of so many ranks writes with these options, by file.
    fn written(output: Option<&str>, error: Option<&str>, ranks: u32) -> BTreeMap<String, String> {
        let dir = tempfile::tempdir().unwrap();
        let wanted = wanted(dir.path(), output, error);
        wanted.check().unwrap();
        let (out, err) = (dir.path().join("OUT"), dir.path().join("ERR"));
        let other = |path| Box::new(File::create(path).unwrap());
        let streams = wanted.open(&names(), (false, ranks), other(out), other(err));
        let mut streams = streams.unwrap();
        for rank in 0..ranks {
            streams.output(rank, 1, b"a").unwrap();
            streams.output(rank, 2, b"e\n").unwrap();
            streams.output(rank, 1, b"b\n").unwrap();
        }
        streams.say(0, "hearth: n\n").unwrap();
        streams.finish().unwrap();
        let files = std::fs::read_dir(dir.path()).unwrap().map(|entry| {
            let entry = entry.unwrap();
            let text = std::fs::read_to_string(entry.path()).unwrap();
            (entry.file_name().into_string().unwrap(), text)
        });
        files.filter(|(_, text)| !text.is_empty()).collect()
    }

    #[test]
    fn core_files_are_of_one_rank_each_and_no_output() {
        let dir = tempfile::tempdir().unwrap();
        let core = Some(pattern("core.%n").in_folder(dir.path()).unwrap());
        let wanted = Wanted {
            core,
            ..Wanted::default()
        };
        assert!(!wanted.is_nothing());
        wanted.check().unwrap();
        let open = |wanted: &Wanted| {
            let out = Box::new(File::create(dir.path().join("out")).unwrap());
            let streams = wanted.open(&names(), (true, 3), out, Box::new(io::sink()));
            streams.unwrap()
        };
        let mut streams = open(&wanted);
        for (rank, fd, data) in [(2, CORE_FILE, "ELF"), (1, 1, "a\n"), (2, CORE_FILE, "rest")] {
            streams.output(rank, fd, data.as_bytes()).unwrap();
        }
        let path = dir.path().join("core.2");
        let files: Vec<_> = streams.core_files().collect();
        assert_eq!(files, [(2, path.clone())]);
        assert_eq!(std::fs::read(&path).unwrap(), b"ELFrest");
        streams.finish().unwrap();
        assert_eq!(std::fs::read(dir.path().join("out")).unwrap(), b"1: a\n");
        // Who only reads the output has none.
        let mut streams = open(&Wanted::default());
        streams.output(2, CORE_FILE, b"ELF").unwrap();
        streams.finish().unwrap();
        assert_eq!(streams.core_files().count(), 0);
        assert_eq!(std::fs::read(dir.path().join("out")).unwrap(), b"");
    }

    #[test]
    fn a_core_file_that_cannot_be_written_takes_nothing_else_along() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = Wanted {
            core: Some(pattern("core.%n").in_folder(dir.path()).unwrap()),
            ..Wanted::default()
        };
        std::fs::create_dir(dir.path().join("core.0")).unwrap();
        std::fs::write(dir.path().join("core.2"), "of yesterday").unwrap();
        // As a full disk.
        std::os::unix::fs::symlink("/dev/full", dir.path().join("core.3")).unwrap();
        let out = Box::new(File::create(dir.path().join("out")).unwrap());
        let opened = wanted.open(&names(), (false, 4), out, Box::new(io::sink()));
        let mut streams = opened.unwrap();
        for rank in [0, 1, 3] {
            for piece in [b"ELF", b"end"] {
                streams.output(rank, CORE_FILE, piece).unwrap();
            }
        }
        streams.output(0, 1, b"a\n").unwrap();
        streams.finish().unwrap();
        let written: Vec<u32> = streams.core_files().map(|(rank, _)| rank).collect();
        assert_eq!(written, [1]);
        let lost: Vec<_> = streams.lost_cores().collect();
        assert_eq!(
            lost.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(),
            [0, 3]
        );
        assert!(lost[0].1.to_string().contains("core.0"), "{lost:?}");
        assert!(lost[1].1.to_string().contains("No space"), "{lost:?}");
        assert_eq!(
            [0, 1, 2].map(|rank| streams.lacks_core(rank)),
            [false, false, true]
        );
        assert!(!dir.path().join("core.2").exists());
        assert_eq!(std::fs::read(dir.path().join("core.1")).unwrap(), b"ELFend");
        assert_eq!(std::fs::read(dir.path().join("out")).unwrap(), b"a\n");
    }

    fn files(files: &[(&str, &str)]) -> BTreeMap<String, String> {
        let own = |(name, text): &(&str, &str)| (name.to_string(), text.to_string());
        files.iter().map(own).collect()
    }

    #[test]
    fn letters_stand_for_what_the_job_is_called() {
        let path = |text: &str| pattern(text).path(&names(), 3).display().to_string();
        assert_eq!(path("out-%j.%n"), "out-41.3");
        assert_eq!(path("%A_%a-%t"), "40_2-3");
        assert_eq!(path("out-%j.%r"), "out-41.3");
        assert!(pattern("o.%r").is_per_rank());
        assert_eq!(path("/x/%x-%u-100%%"), "/x/a_b-eve-100%");
        let alone = Names {
            array: None,
            ..names()
        };
        assert_eq!(pattern("%A").path(&alone, 0), Path::new("41"));
        assert!(pattern("%t").is_per_rank() && !pattern("%%n").is_per_rank());
    }

    #[test]
    fn what_stands_for_nothing_is_refused() {
        for wrong in ["%N", "a%", "%4j", "%ü"] {
            let error = wrong.parse::<Pattern>().unwrap_err();
            assert!(error.to_string().contains("%j (job)"), "{wrong}: {error}");
        }
        assert_eq!("%j/out".parse::<Pattern>(), Err(PatternError::Folder));
        assert_eq!("".parse::<Pattern>(), Err(PatternError::Length));
        assert!("100%%/out".parse::<Pattern>().is_ok());
    }

    #[test]
    fn a_name_is_one_in_its_folder() {
        let within = |text: &str, folder: &str| pattern(text).in_folder(Path::new(folder)).unwrap();
        assert_eq!(within("o%j", "/a%b/").to_string(), "/a%%b/o%j");
        assert_eq!(within("/o", "/a").to_string(), "/o");
        assert_eq!(within("o", "/").to_string(), "/o");
    }

    #[test]
    fn one_file_has_whole_lines_of_both_streams() {
        assert_eq!(
            written(Some("out-%j"), None, 2),
            files(&[("out-41", "e\nab\ne\nab\nhearth: n\n")])
        );
        let same = written(Some("x"), Some("x"), 1);
        assert_eq!(same, files(&[("x", "ae\nb\nhearth: n\n")]));
    }

    #[test]
    fn standard_error_has_a_file_of_its_own_or_stays() {
        assert_eq!(
            written(Some("o"), Some("e"), 2),
            files(&[("o", "ab\nab\n"), ("e", "e\ne\nhearth: n\n")])
        );
        assert_eq!(
            written(None, Some("e"), 1),
            files(&[("OUT", "ab\n"), ("e", "e\nhearth: n\n")])
        );
        assert_eq!(
            written(None, None, 1),
            files(&[("OUT", "ab\n"), ("ERR", "e\nhearth: n\n")])
        );
    }

    #[test]
    fn each_rank_has_a_file_of_its_own_where_it_is_named() {
        assert_eq!(
            written(Some("o.%n"), None, 2),
            files(&[("o.0", "ae\nb\nhearth: n\n"), ("o.1", "ae\nb\n")])
        );
        assert_eq!(
            written(Some("o"), Some("e.%t"), 2),
            files(&[("o", "ab\nab\n"), ("e.0", "e\nhearth: n\n"), ("e.1", "e\n")])
        );
        // More ranks than files are open at a time, and back to the first.
        let many = written(Some("o.%n"), None, OPEN_MAX as u32 + 10);
        assert_eq!(many.len(), OPEN_MAX + 10);
        assert_eq!(many["o.0"], "ae\nb\nhearth: n\n");
    }

    #[test]
    fn a_file_that_cannot_be_made_is_told_before() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |text: &str| {
            let wanted = wanted(dir.path(), Some(text), None);
            wanted.check().unwrap_err().to_string()
        };
        std::fs::write(dir.path().join("file"), "old").unwrap();
        std::fs::create_dir(dir.path().join("folder")).unwrap();
        assert!(refused("none/out").contains("--output"));
        assert!(refused("file/out").contains("ot a directory"));
        assert!(refused("folder").contains("directory"));
        wanted(dir.path(), Some("file"), Some("folder/%j"))
            .check()
            .unwrap();
    }
}
