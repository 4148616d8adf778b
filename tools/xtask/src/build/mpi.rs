//! MPI: MPICH with the netmod of `kernel/user/mpich`, in `target/hearth/mpi/`.
//!
//! Purpose: `mpicc`, `mpicxx`, `mpifort` and `mpiexec`, the headers, Fortran's modules and the
//! static libraries. MPICH's sources are Debian's source package, pinned by its hash
//! ([`SourcePackage`]); the files of `kernel/user/mpich` take the places of those of its stub
//! netmod and of its simple process manager, and `upstream.patch` changes a few lines of others.
//! Neighbours: [`super::library`] has the library without MPI.
//!
//! Invariant: sources are never changed in the repository's copy but for the files named here, and
//! what is installed finds itself wherever the folder is moved.

use std::fs;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::debian::SourcePackage;
use crate::limited::{self, say};
use crate::workspace::{Workspace, find_program, output_of, run};

/// MPICH 4.0.2: the newest that Debian 12 has.
const MPICH: SourcePackage = SourcePackage {
    name: "mpich",
    suite: "bookworm",
    archive: "mpich_4.0.2.orig.tar.xz",
    sha256: "b27039f964afeb6b8a3e009c56b441cbe368c26d6d6476ad3bb7190996875860",
};
/// Our files, and whose places they take.
const REPLACED: [(&str, &str); 5] = [
    ("mpich/netmod", "src/mpid/ch4/netmod/stubnm"),
    ("include/hearth.h", "src/mpid/ch4/netmod/stubnm/hearth.h"),
    ("mpich/pmi.c", "src/pmi/simple/simple_pmi.c"),
    ("mpich/netmod/hearth_call.h", "src/pmi/simple/hearth_call.h"),
    ("include/hearth.h", "src/pmi/simple/hearth.h"),
];
const PATCH: &str = "mpich/upstream.patch";
const LIBTOOL: &str = "mpich/libtool.sh";
/// How MPICH is configured. Its own engine for datatypes is a tenth of the other's size. Its tests
/// are configured where they are run.
const CONFIGURE: [&str; 19] = [
    "--no-recursion",
    "--with-device=ch4:stubnm",
    "--with-ch4-shmmods=none",
    "--disable-shared",
    "--enable-static",
    "--with-pm=no",
    "--with-pmi=simple",
    "--with-datatype-engine=dataloop",
    "--without-hwloc",
    "--enable-threads=multiple",
    "--enable-fortran=all",
    "--enable-cxx",
    "--enable-romio",
    "--with-file-system=ufs",
    "--enable-fast=O2,ndebug",
    "--enable-error-checking=runtime",
    // Its own flags are not those of the libraries beside it, ROMIO and MPL.
    "CFLAGS=-O2",
    // gfortran 10 and later refuse what MPI's old Fortran interface does by design.
    "FFLAGS=-fallow-argument-mismatch",
    "FCFLAGS=-fallow-argument-mismatch",
];
/// Its configure scripts ask the same compilers the same things: they share one cache. Each passes
/// its own flags to the next, which is no mistake.
const SITE: &str = "enable_cache=yes\n\
                    cache_file=$hearth_cache\n\
                    if test -f $cache_file; then sed -i /ac_cv_env_/d $cache_file; fi\n";
/// The header of nearly all its files takes the compiler longer than the rest of them.
const HEADER: &str = "src/include/mpiimpl.h";
/// Compilers and tools that it takes.
const NEEDED: [&str; 6] = ["gcc", "g++", "gfortran", "make", "tar", "xz"];
/// Programs that compile for MPI.
const WRAPPERS: [&str; 4] = ["mpicc", "mpicxx", "mpifort", "mpic++"];
/// What starts programs, and its text.
const LAUNCHERS: [&str; 2] = ["mpiexec", "mpirun"];
const LAUNCHER: &str = include_str!("mpiexec.sh");
/// What MPICH installs and no program needs.
const NEEDLESS: [&str; 4] = ["share/doc", "share/man", "bin/mpivars", "bin/parkill"];
/// Files that `make` compiles, near enough for a percentage.
const FILES: usize = 990;
/// A step that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(2_700);
const LINE_PERIOD: Duration = Duration::from_secs(15);
const REDRAW: Duration = Duration::from_millis(250);

/// Where it is installed.
pub fn prefix(workspace: &Workspace) -> PathBuf {
    workspace.target().join("hearth/mpi")
}

/// The sources of its test suite.
pub fn test_suite(workspace: &Workspace) -> PathBuf {
    workspace.target().join("mpi/source/test/mpi")
}

/// Builds it, or what of it has changed.
///
/// # Errors
/// A tool or the sources are missing, or do not compile; the log is named.
pub fn build(workspace: &Workspace) -> Result<()> {
    for program in NEEDED {
        ensure!(
            find_program(program).is_some(),
            "`{program}` is not on this machine; `cargo xtask setup` installs it"
        );
    }
    let root = workspace.target().join("mpi");
    fs::create_dir_all(&root).with_context(|| format!("making {}", root.display()))?;
    let ours = workspace.root().join("kernel/user");
    let stamp = root.join("stamp");
    let state = state_of(&ours)?;
    let prefix = prefix(workspace);
    if fs::read_to_string(&stamp).is_ok_and(|old| old == state) && prefix.join("bin/mpicc").exists()
    {
        return launchers(&prefix);
    }
    let source = root.join("source");
    let build = root.join("build");
    patched(&source, &build, &ours.join(PATCH))?;
    for (from, to) in REPLACED {
        replace(&ours.join(from), &source.join(to), &build)?;
    }
    if !is_configured(&build, &prefix) {
        let _ = fs::remove_dir_all(&build);
        fs::create_dir_all(&build).with_context(|| format!("making {}", build.display()))?;
        say("mpi", "configuring MPICH, about a minute");
        let (site, cache) = (root.join("config.site"), root.join("config.cache"));
        fs::write(&site, SITE).with_context(|| format!("writing {}", site.display()))?;
        let _ = fs::remove_file(&cache);
        let mut command = Command::new(source.join("configure"));
        command.current_dir(&build).args(CONFIGURE);
        command
            .env("CONFIG_SITE", &site)
            .env("hearth_cache", &cache);
        command.arg(format!("--prefix={}", prefix.display()));
        if let Err(error) = logged(&mut command, &root.join("configure.log"), None) {
            // What is there is no state to go on from.
            let _ = fs::remove_dir_all(&build);
            return Err(error);
        }
    }
    precompile(&build, &source, &root.join("header.log"))?;
    let jobs = std::thread::available_parallelism().map_or(2, usize::from);
    let libtool = format!(
        "LIBTOOL=$(SHELL) '{}' $(top_builddir)/libtool",
        ours.join(LIBTOOL).display()
    );
    let mut command = Command::new("make");
    command.current_dir(&build).arg(&libtool);
    command.arg(format!("-j{jobs}"));
    logged(&mut command, &root.join("make.log"), Some(FILES))?;
    let _ = fs::remove_dir_all(&prefix);
    let mut command = Command::new("make");
    command
        .current_dir(&build)
        .args(["install", "-j2", &libtool]);
    logged(&mut command, &root.join("install.log"), None)?;
    // Its licence wants this in every copy.
    let notice = "COPYRIGHT";
    fs::copy(source.join(notice), prefix.join(notice)).context("copying MPICH's notice")?;
    finish(&prefix)?;
    fs::write(&stamp, state).with_context(|| format!("writing {}", stamp.display()))
}

/// Whether the folder is configured, and for this place: its paths are absolute.
fn is_configured(build: &Path, prefix: &Path) -> bool {
    let configured = fs::read(build.join("config.status")).unwrap_or_default();
    let option = format!("--prefix={}'", prefix.display());
    let is_for_here = String::from_utf8_lossy(&configured).contains(&option);
    is_for_here && build.join("Makefile").exists()
}

/// Compiles [`HEADER`] once; the compiler looks into the build folder first. The text lies beside
/// it, for files that include it again.
fn precompile(build: &Path, source: &Path, log: &Path) -> Result<()> {
    let header = build.join(HEADER);
    if !header.exists() {
        std::os::unix::fs::symlink(source.join(HEADER), &header)
            .with_context(|| format!("linking {}", header.display()))?;
    }
    let compiled = format!("{HEADER}.gch");
    let rule = format!("{compiled}: {HEADER}\n\t$(COMPILE) -x c-header $< -o $@");
    let mut command = Command::new("make");
    command.current_dir(build).arg(format!("--eval={rule}"));
    logged(command.arg(&compiled), log, None)
}

/// Makes sure that the sources are there with this patch.
fn patched(source: &Path, build: &Path, patch: &Path) -> Result<()> {
    let applied = source.join("hearth.patch");
    let new = fs::read(patch).with_context(|| format!("reading {}", patch.display()))?;
    if fs::read(&applied).is_ok_and(|old| old == new) {
        return Ok(());
    }
    for old in [source, build] {
        let _ = fs::remove_dir_all(old);
    }
    MPICH.unpack(source)?;
    let mut command = Command::new("patch");
    command.args(["--quiet", "--strip=1", "--directory"]);
    run(command.arg(source).arg("--input").arg(patch))?;
    fs::write(&applied, new).with_context(|| format!("writing {}", applied.display()))
}

/// What the build depends on.
fn state_of(ours: &Path) -> Result<String> {
    let mut command = Command::new("sh");
    command.arg("-c").current_dir(ours);
    command.arg("find mpich include -type f | LC_ALL=C sort | xargs sha256sum");
    let files = output_of(&mut command)?;
    Ok(format!(
        "{}\n{}\n{files}",
        MPICH.sha256,
        CONFIGURE.join(" ")
    ))
}

/// Copies a file, or the files of a folder, where they differ: `make` compiles what is newer. Of
/// headers it does not know, since they are in the compiled one: then all is compiled again.
fn replace(from: &Path, to: &Path, build: &Path) -> Result<()> {
    if from.is_dir() {
        for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
            let entry = entry?;
            replace(&entry.path(), &to.join(entry.file_name()), build)?;
        }
        return Ok(());
    }
    let new = fs::read(from).with_context(|| format!("reading {}", from.display()))?;
    if fs::read(to).is_ok_and(|old| old == new) {
        return Ok(());
    }
    if to.extension().is_some_and(|extension| extension == "h") {
        let _ = fs::remove_dir_all(build);
    }
    fs::write(to, new).with_context(|| format!("writing {}", to.display()))
}

/// Runs a command with its output in a file; tells how many of so many files it has compiled.
fn logged(command: &mut Command, log: &Path, files: Option<usize>) -> Result<()> {
    let began = Instant::now();
    let is_terminal = std::io::stderr().is_terminal();
    let period = if is_terminal { REDRAW } else { LINE_PERIOD };
    let (mut compiled, mut shown) = (0, Duration::ZERO);
    let finished = limited::watch(command, LIMIT, &mut |line| {
        compiled += usize::from(line.is_some_and(is_compiling));
        let now = began.elapsed();
        let (Some(files), true) = (files, now - shown >= period) else {
            return;
        };
        shown = now;
        let percent = (100 * compiled / files).min(99);
        let text = format!("    mpi       compiled {compiled} files, about {percent} %");
        let mut output = std::io::stderr();
        // A standard error that is closed is no reason to stop.
        let _ = match is_terminal {
            true => write!(output, "\r\x1b[K{text}\r").and_then(|()| output.flush()),
            false => writeln!(output, "{text}"),
        };
    })?;
    fs::write(log, finished.lines.join("\n") + "\n")
        .with_context(|| format!("writing {}", log.display()))?;
    if !finished.status.success() {
        let is_error = |line: &&String| line.contains("error:") || line.contains(" Error ");
        let first = finished.lines.iter().find(is_error);
        let last = finished.lines.last();
        bail!(
            "{} ({}); all that it said is in {}",
            first.or(last).map_or("no output", String::as_str),
            finished.status,
            log.display()
        );
    }
    Ok(())
}

/// A line of `make` that says what is compiled.
fn is_compiling(line: &str) -> bool {
    let kind = line.split_whitespace().next().unwrap_or_default();
    line.starts_with("  ") && matches!(kind, "CC" | "CXX" | "F77" | "FC" | "PPF77" | "PPFC" | "MOD")
}

/// Makes the wrappers independent of where they are, and the commands that run programs.
fn finish(prefix: &Path) -> Result<()> {
    let bin = prefix.join("bin");
    for name in WRAPPERS {
        let path = bin.join(name);
        let text = fs::read_to_string(&path)
            .with_context(|| format!("MPICH has installed no {}", path.display()))?;
        fs::write(&path, movable(&text, &prefix.display().to_string()))?;
    }
    launchers(prefix)
}

/// Makes the commands that run programs, and removes what is not for users.
fn launchers(prefix: &Path) -> Result<()> {
    for name in LAUNCHERS {
        let path = prefix.join("bin").join(name);
        if fs::read_to_string(&path).is_ok_and(|old| old == LAUNCHER) {
            continue;
        }
        let _ = fs::remove_file(&path);
        fs::write(&path, LAUNCHER)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    for needless in NEEDLESS {
        let path = prefix.join(needless);
        let _ = match path.is_dir() {
            true => fs::remove_dir_all(path),
            false => fs::remove_file(path),
        };
    }
    Ok(())
}

/// The text of a wrapper that links statically, and names the place where it is in place of where
/// it was installed.
fn movable(text: &str, prefix: &str) -> String {
    let here = "$(cd \"$(dirname \"$(readlink -f \"$0\")\")/..\" && pwd)";
    let begin = text.find('\n').map_or(0, |end| end + 1);
    let (first, rest) = text.split_at(begin);
    let rest = rest.replace(prefix, "${hearth_mpi}");
    let rest = rest.replace("final_ldflags=\"", "final_ldflags=\"-static ");
    format!("{first}hearth_mpi={here}\n{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrapper_names_the_place_where_it_is() {
        let text = "#!/bin/sh\nprefix=/a/b\nlibdir=\"/a/b/lib\"\nfinal_ldflags=\" \"\n";
        let movable = movable(text, "/a/b");
        assert!(movable.starts_with("#!/bin/sh\nhearth_mpi="));
        let rest = "prefix=${hearth_mpi}\nlibdir=\"${hearth_mpi}/lib\"\n\
                    final_ldflags=\"-static  \"\n";
        assert!(movable.ends_with(rest), "{movable}");
    }

    /// The exit status of the launcher and what it says; in place of `hearth` is what prints the
    /// words that it is called with.
    fn launched(words: &[&str]) -> (Option<i32>, String, String) {
        let script = LAUNCHER.replace("exec hearth", "printf '%s|'");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, "/x/mpiexec"]).args(words);
        let output = shell.output().expect("there is a shell");
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    }

    #[test]
    fn the_launcher_knows_the_option_that_scripts_use() {
        for (words, wanted) in [
            (&["-np", "3", "./a b", "", "*"][..], "run|-n|3|./a b||*|"),
            (&["-l", "-np", "3", "./a"], "run|-l|-n|3|./a|"),
            // What stands behind the program is the program's.
            (&["-n", "3", "./a", "-np", "-ppn"], "run|-n|3|./a|-np|-ppn|"),
            (
                &["-n", "2", "--env", "A=1", "./a"],
                "run|-n|2|--env|A=1|./a|",
            ),
        ] {
            let (code, out, err) = launched(words);
            assert_eq!((code, &out[..], &err[..]), (Some(0), wanted, ""));
        }
    }

    #[test]
    fn the_launcher_says_what_to_write_for_options_that_it_has_not() {
        for (words, wanted) in [
            (
                &["-n", "1", "./a", ":", "-n", "1", "./b"][..],
                "one program",
            ),
            (&["-ppn", "2", "-n", "4", "./a"], "-N NODES"),
            (&["-n", "4", "-hosts", "n0,n1", "./a"], "--nodes LIST"),
            (&["-f", "hosts", "./a"], "--nodes LIST"),
            (&["-genv", "A", "1", "./a"], "--env NAME=VALUE"),
            (&["-wdir", "/x", "./a"], "-D DIR"),
            (&[], "usage: mpiexec"),
        ] {
            let (code, out, err) = launched(words);
            assert_eq!((code, &out[..]), (Some(2), ""), "{words:?}");
            assert!(
                err.starts_with("mpiexec: ") && err.contains(wanted),
                "{words:?}: {err}"
            );
        }
    }

    #[test]
    fn lines_of_compilers_are_counted_and_no_others() {
        assert!(is_compiling("  CC       src/mpi/coll/x.lo"));
        assert!(is_compiling("  FC       src/binding/f08/mpi_c.lo"));
        assert!(!is_compiling("CC is what it is"));
        assert!(!is_compiling("  AR       lib/libmpi.a"));
    }
}
