//! Small ELF files as rustc and the stub's linker script lay them out, written by hand, so that the
//! host tool is tested without the bare-metal target.

use bootloader_api::BootloaderConfig;

/// Where the kernel has an address to be relocated, and what it points to.
pub const KERNEL_POINTER_AT: usize = 0x2010;
/// See [`KERNEL_POINTER_AT`].
pub const KERNEL_POINTER_TO: u64 = 0x1234;
/// Memory of the kernel with its `.bss`.
pub const KERNEL_MEMORY_BYTES: u64 = 0x6000;

const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
const RELRO: u32 = 0x6474_e552;
const R: u32 = 4;
const W: u32 = 2;
const X: u32 = 1;

struct Header {
    kind: u32,
    flags: u32,
    start: u64,
    file_bytes: u64,
    memory_bytes: u64,
}

fn header(kind: u32, flags: u32, start: u64, file_bytes: u64, memory_bytes: u64) -> Header {
    Header {
        kind,
        flags,
        start,
        file_bytes,
        memory_bytes,
    }
}

/// A kernel with text, read-only data, relro, data and `.bss`. Its headers take the first page,
/// file offsets are addresses.
pub fn kernel_elf() -> Vec<u8> {
    let mut file = vec![0; 0x3800];
    put(
        &mut file,
        0x600,
        &rela(KERNEL_POINTER_AT as u64, KERNEL_POINTER_TO),
    );
    file[0x1000..0x2000].fill(0x90);
    put(&mut file, 0x2100, &dynamic(0x600, 24));
    file[0x3000..0x3800].fill(0x55);
    let config = BootloaderConfig::new_default().serialize();
    put(&mut file, 0x800, &config);
    write_headers(
        &mut file,
        0x1040,
        &[
            header(LOAD, R, 0, 0x1000, 0x1000),
            header(LOAD, R | X, 0x1000, 0x1000, 0x1000),
            header(LOAD, R | W, 0x2000, 0x1000, 0x1000),
            header(LOAD, R | W, 0x3000, 0x800, 0x2f00),
            header(DYNAMIC, R | W, 0x2100, 64, 64),
            header(RELRO, R, 0x2000, 0x1000, 0x1000),
        ],
    );
    let names = b"\0.bootloader-config\0.shstrtab\0.dynamic\0";
    write_sections(
        &mut file,
        names,
        &[(1, 1, 0x800, config.len() as u64), (30, 6, 0x2100, 64)],
    );
    file
}

/// A stub with setup code, text, read-only data and data.
pub fn stub_elf() -> Vec<u8> {
    let mut file = vec![0; 0x4100];
    file[0xcd0..0xf00].fill(0x90);
    file[0x1000..0x2000].fill(0x90);
    put(&mut file, 0x2000, &rela(0x3000, 0x1800));
    put(&mut file, 0x3010, &dynamic(0x2000, 24));
    write_headers(
        &mut file,
        0x1300,
        &[
            header(LOAD, R | X, 0xcd0, 0x230, 0x230),
            header(LOAD, R | X, 0x1000, 0x1000, 0x1000),
            header(LOAD, R, 0x2000, 0x800, 0x800),
            header(LOAD, R | W, 0x3000, 0x100, 0x100),
            header(DYNAMIC, R | W, 0x3010, 64, 64),
        ],
    );
    write_sections(
        &mut file,
        b"\0.shstrtab\0.dynamic\0",
        &[(11, 6, 0x3010, 64)],
    );
    file
}

fn put(file: &mut [u8], at: usize, bytes: &[u8]) {
    file[at..at + bytes.len()].copy_from_slice(bytes);
}

fn rela(place: u64, addend: u64) -> Vec<u8> {
    words(&[place, 8, addend])
}

fn dynamic(table: u64, bytes: u64) -> Vec<u8> {
    words(&[7, table, 8, bytes, 9, 24, 0, 0])
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn write_headers(file: &mut [u8], entry: u64, headers: &[Header]) {
    put(file, 0, b"\x7fELF\x02\x01\x01");
    put(file, 16, &3_u16.to_le_bytes());
    put(file, 18, &62_u16.to_le_bytes());
    put(file, 20, &1_u32.to_le_bytes());
    put(file, 24, &entry.to_le_bytes());
    put(file, 32, &64_u64.to_le_bytes());
    put(file, 52, &64_u16.to_le_bytes());
    put(file, 54, &56_u16.to_le_bytes());
    put(file, 56, &(headers.len() as u16).to_le_bytes());
    for (index, header) in headers.iter().enumerate() {
        let at = 64 + index * 56;
        put(file, at, &header.kind.to_le_bytes());
        put(file, at + 4, &header.flags.to_le_bytes());
        let fields = [
            header.start,
            header.start,
            header.start,
            header.file_bytes,
            header.memory_bytes,
            4096,
        ];
        put(file, at + 8, &words(&fields));
    }
}

/// Appends section headers: the null one, those given (name, type, address = offset, size), the
/// names.
fn write_sections(file: &mut Vec<u8>, names: &[u8], sections: &[(u32, u32, u64, u64)]) {
    let names_at = file.len() as u64;
    file.extend_from_slice(names);
    let table = file.len() as u64;
    let name_of_names = names
        .windows(9)
        .position(|name| name == b".shstrtab")
        .unwrap() as u32;
    let all = [(0, 0, 0, 0)]
        .into_iter()
        .chain(sections.iter().copied())
        .chain([(name_of_names, 3, names_at, names.len() as u64)]);
    for (name, kind, at, bytes) in all {
        file.extend_from_slice(&name.to_le_bytes());
        file.extend_from_slice(&kind.to_le_bytes());
        let entry_bytes = if kind == 6 { 16 } else { 0 };
        file.extend(words(&[0, at, at, bytes, 0, 0, entry_bytes]));
    }
    put(file, 40, &table.to_le_bytes());
    put(file, 58, &64_u16.to_le_bytes());
    put(file, 60, &(sections.len() as u16 + 2).to_le_bytes());
    put(file, 62, &(sections.len() as u16 + 1).to_le_bytes());
}
