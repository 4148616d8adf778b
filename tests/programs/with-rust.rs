//! `with-rust NAME BYTES SEED`: the file `/with/NAME` through Rust's std. Its bytes are those that
//! with-c.c says. Prints one line, or panics about what differs.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, name, bytes, seed] = &arguments[..] else {
        panic!("usage: with-rust NAME BYTES SEED");
    };
    let bytes: u64 = bytes.parse().expect("a length");
    let seed: u32 = seed.parse().expect("a seed");
    let expected = |at: u64| ((at as u32).wrapping_mul(2_654_435_761).wrapping_add(seed) >> 13) as u8;
    let path = format!("/with/{name}");
    let all = fs::read(&path).expect("reading the file");
    assert_eq!(all.len() as u64, bytes);
    assert!((0..bytes).all(|at| all[at as usize] == expected(at)), "contents");

    let metadata = fs::metadata(&path).expect("asking about the file");
    assert!(metadata.is_file() && metadata.len() == bytes);
    assert!(metadata.permissions().readonly());
    let mut file = File::open(&path).expect("opening the file");
    assert_eq!(file.metadata().expect("of an open file").ino(), metadata.ino());
    let last = file.seek(SeekFrom::End(-1)).expect("seeking");
    let mut byte = [0];
    file.read_exact(&mut byte).expect("reading a byte");
    assert_eq!((last, byte[0]), (bytes - 1, expected(bytes - 1)));
    assert_eq!(file.read(&mut byte).expect("reading at the end"), 0);
    let middle = bytes / 2;
    file.read_exact_at(&mut byte, middle).expect("reading in the middle");
    assert_eq!(byte[0], expected(middle));

    let names: Vec<_> = fs::read_dir("/with")
        .expect("listing")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert!(names.iter().any(|found| found == name.as_str()), "{names:?}");
    let missing = fs::read("/with/there is no such file").expect_err("it is not there");
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let written = fs::write(&path, b"no").expect_err("it is read only");
    assert_eq!(written.kind(), ErrorKind::ReadOnlyFilesystem);
    println!("{bytes} bytes of {name} are right");
}
