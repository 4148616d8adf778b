use std::fs;
use std::io::{BufRead, Read, Seek, SeekFrom, Write};
fn main() -> std::io::Result<()> {
    fs::create_dir_all("rs/a/b")?;
    let mut f = fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).open("rs/a/b/data")?;
    for i in 0..5000 { writeln!(f, "{i}")?; }
    f.seek(SeekFrom::Start(0))?;
    let n = std::io::BufReader::new(&f).lines().count();
    println!("{n}");
    fs::copy("rs/a/b/data", "rs/copy")?;
    println!("{}", fs::metadata("rs/copy")?.len());
    let mut s = String::new();
    fs::File::open("rs/copy")?.read_to_string(&mut s)?;
    println!("{}", s.len());
    let mut names: Vec<_> = fs::read_dir("rs")?.map(|e| e.unwrap().file_name()).collect();
    names.sort();
    println!("{names:?}");
    println!("{:?}", fs::read("rs/none").unwrap_err().kind());
    println!("{}", fs::canonicalize("rs/a/../copy")?.ends_with("rs/copy"));
    fs::remove_dir_all("rs")?;
    println!("{}", fs::metadata("rs").is_err());
    Ok(())
}
