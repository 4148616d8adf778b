//! Puts an image together: what goes where, the descriptor, sums and CRC.
//!
//! Invariant: the result passes [`crate::inspect`].

use bootstub::descriptor::{
    DEFAULT_COMMAND_LINE_MAX, DESCRIPTOR_BYTES, DESCRIPTOR_RVA, Descriptor, ENTRY64_RVA, HEAD_RVA,
    IMAGE_BYTES_MAX, SEGMENTS_MAX, SETUP_RVA, SETUP_SUM_RVA, Segment, VERSION_TEXT_BYTES,
    VERSION_TEXT_RVA, early_sum, image_crc,
};
use miniz_oxide::deflate::compress_to_vec;

use crate::kernel_image::{KernelError, KernelImage};
use crate::stub_image::{StubError, StubImage};
use crate::{pe_header, setup_header};

const PAGE_BYTES: usize = 4096;
/// Deflate's best level but for exhaustive search, of 0 to 10.
const PACKING_LEVEL: u8 = 9;

/// What goes into an image besides kernel and stub.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Version, at most 16 bytes of printable ASCII.
    pub version: String,
    /// Kernel options that hold unless the boot loader's command line overrides them.
    pub default_command_line: String,
}

/// Why an image could not be made.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The kernel.
    #[error("kernel: {0}")]
    Kernel(#[from] KernelError),
    /// The boot stub.
    #[error("boot stub: {0}")]
    Stub(#[from] StubError),
    /// The version text.
    #[error("the version must be 1 to 16 printable ASCII characters without spaces")]
    Version,
    /// The default command line.
    #[error(
        "the default command line must be at most {DEFAULT_COMMAND_LINE_MAX} printable ASCII characters"
    )]
    CommandLine,
    /// Too large.
    #[error("the image would have {0} bytes, more than the limit of {IMAGE_BYTES_MAX}")]
    TooLarge(usize),
}

/// Joins the ELF files of kernel and stub into one boot image.
pub fn build(kernel_elf: &[u8], stub_elf: &[u8], options: &Options) -> Result<Vec<u8>, Error> {
    let version = version_field(&options.version)?;
    let line = options.default_command_line.as_bytes();
    if line.len() > DEFAULT_COMMAND_LINE_MAX || !line.iter().all(|byte| (0x20..0x7f).contains(byte))
    {
        return Err(Error::CommandLine);
    }
    let kernel = KernelImage::parse(kernel_elf)?;
    let stub = StubImage::parse(stub_elf)?;

    let mut file = stub.bytes.clone();
    let relocations = file.len();
    for place in &stub.relocations {
        file.extend_from_slice(&place.to_le_bytes());
    }
    let stub_bytes = file.len();
    let base_relocations = append_base_relocations(&mut file);
    let command_line = file.len();
    file.extend_from_slice(line);
    pad(&mut file);
    let kernel_at = file.len();
    let packed = compress_to_vec(&kernel.bytes, PACKING_LEVEL);
    file.extend_from_slice(&packed);
    pad(&mut file);
    if file.len() > IMAGE_BYTES_MAX as usize {
        return Err(Error::TooLarge(file.len()));
    }

    let mut segments = [Segment::default(); SEGMENTS_MAX];
    segments[..kernel.segments.len()].copy_from_slice(&kernel.segments);
    let mut descriptor = Descriptor {
        crc: 0,
        early_sum: 0,
        image_bytes: file.len() as u32,
        stub_bytes: stub_bytes as u32,
        stub_data: stub.data,
        workspace: file.len() as u32,
        relocations: relocations as u32,
        relocation_count: stub.relocations.len() as u32,
        kernel: kernel_at as u32,
        kernel_file_bytes: packed.len() as u32,
        kernel_bytes: kernel.bytes.len() as u32,
        kernel_memory_bytes: kernel.memory_bytes,
        kernel_entry: kernel.entry,
        stack_bytes: kernel.stack_bytes,
        kernel_base: kernel.base,
        physical_memory_offset: kernel.physical_memory_offset,
        command_line: command_line as u32,
        command_line_bytes: line.len() as u32,
        version,
        build_id: kernel.build_id,
        segment_count: kernel.segments.len() as u32,
        segments,
    };
    let parts = pe_header::Parts {
        entry: stub.entry,
        rodata: stub.rodata,
        data: stub.data,
        payload: relocations as u32,
        end: file.len() as u32,
        base_relocations,
    };
    write_first_page(&mut file, &parts, &options.version, &kernel.build_id);
    put_descriptor(&mut file, &descriptor);
    if Descriptor::parse(&descriptor.emit()).is_err() {
        return Err(Error::Stub(StubError::Layout("too much writable data")));
    }
    descriptor.early_sum = early_sum(&file[ENTRY64_RVA as usize..stub_bytes]);
    descriptor.crc = image_crc(&file[HEAD_RVA as usize..], &[]);
    put_descriptor(&mut file, &descriptor);
    Ok(file)
}

fn version_field(version: &str) -> Result<[u8; 16], Error> {
    let mut field = [0; 16];
    let good = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_graphic());
    field
        .get_mut(..version.len())
        .filter(|_| good)
        .ok_or(Error::Version)?
        .copy_from_slice(version.as_bytes());
    Ok(field)
}

/// One block that holds nothing but padding entries: page, size, two entries of type 0.
fn append_base_relocations(file: &mut Vec<u8>) -> (u32, u32) {
    const BLOCK_BYTES: u32 = 12;
    let at = file.len() as u32;
    file.extend_from_slice(&HEAD_RVA.to_le_bytes());
    file.extend_from_slice(&BLOCK_BYTES.to_le_bytes());
    file.extend_from_slice(&[0; 4]);
    (at, BLOCK_BYTES)
}

fn pad(file: &mut Vec<u8>) {
    file.resize(file.len().next_multiple_of(PAGE_BYTES), 0);
}

fn write_first_page(file: &mut [u8], parts: &pe_header::Parts, version: &str, build_id: &[u8; 20]) {
    let image_bytes = file.len() as u32;
    let Some(page) = file.first_chunk_mut::<{ HEAD_RVA as usize }>() else {
        return; // a stub is longer than a page: `StubImage::parse`
    };
    pe_header::write(page, parts);
    setup_header::write(page, image_bytes);
    let text = version_text(version, build_id);
    let length = text.len().min(VERSION_TEXT_BYTES - 1);
    page[VERSION_TEXT_RVA as usize..][..length].copy_from_slice(&text.as_bytes()[..length]);
    let sum = words(&page[SETUP_RVA as usize..SETUP_SUM_RVA as usize])
        .fold(0_u16, |sum, word| sum.wrapping_add(word));
    page[SETUP_SUM_RVA as usize..].copy_from_slice(&sum.wrapping_neg().to_le_bytes());
}

/// What `file` shows of an image.
pub fn version_text(version: &str, build_id: &[u8; 20]) -> String {
    let build_id = build_id_hex(build_id);
    format!("{version} Hearth node image, build {build_id}")
}

/// A build id in hexadecimal.
pub fn build_id_hex(build_id: &[u8; 20]) -> String {
    build_id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Little-endian 16-bit words.
pub fn words(bytes: &[u8]) -> impl Iterator<Item = u16> {
    bytes
        .chunks_exact(2)
        .map(|word| u16::from_le_bytes([word[0], word[1]]))
}

fn put_descriptor(file: &mut [u8], descriptor: &Descriptor) {
    file[DESCRIPTOR_RVA as usize..][..DESCRIPTOR_BYTES].copy_from_slice(&descriptor.emit());
}
