//! The image descriptor: fixed fields at [`DESCRIPTOR_RVA`] by which the stub finds its way in the
//! image. The host tool writes it, assembler and Rust parts of the stub read it.
//!
//! All numbers are little-endian; all offsets are from the start of the file, which is also the
//! image's address space (RVA).
//!
//! Invariant: [`Descriptor::parse`] accepts only descriptors whose ranges lie inside the image and
//! whose kernel fits its own memory size, so that the stub needs no further range checks.

/// Offset of the protected-mode part: 32-bit entry.
pub const HEAD_RVA: u32 = 0x1000;
/// Offset of the descriptor.
pub const DESCRIPTOR_RVA: u32 = 0x1040;
/// Offset of the 64-bit entry; the sum over the stub starts here.
pub const ENTRY64_RVA: u32 = 0x1200;
/// Room for the descriptor in bytes.
pub const DESCRIPTOR_BYTES: usize = 0x1c0;
/// Offset of the 16-bit setup code, behind the zero page's E820 map.
pub const SETUP_RVA: u32 = 0xcd0;
/// Offset of the version text, at the end of the setup part.
pub const VERSION_TEXT_RVA: u32 = 0xf80;
/// Longest version text in bytes, with its terminating zero.
pub const VERSION_TEXT_BYTES: usize = 0x7e;
/// Offset of the word that makes the words of the setup code add up to zero.
pub const SETUP_SUM_RVA: u32 = 0xffe;

/// First eight bytes of the descriptor.
pub const MAGIC: [u8; 8] = *b"HEARTHIM";
/// Most segments a kernel may have: text, rodata, data, relro and as many again in reserve.
pub const SEGMENTS_MAX: usize = 8;
/// Longest default command line in bytes.
pub const DEFAULT_COMMAND_LINE_MAX: usize = 1024;
/// Working memory behind the image: 40 KiB of page tables, 88 KiB of stack.
pub const WORKSPACE_BYTES: u32 = 0x2_0000;
/// Part of the working memory for the stub's own page tables, at its start.
pub const WORKSPACE_TABLE_BYTES: u32 = 0xa000;
/// Top of the stack in the working memory.
pub const WORKSPACE_STACK_TOP: u32 = WORKSPACE_BYTES - 16;
/// Largest image in bytes that the stub reads: bounds its loops when the descriptor is damaged.
pub const IMAGE_BYTES_MAX: u32 = 16 << 20;
/// Largest writable data of the stub: it is copied to the stack when the CRC is computed.
pub const STUB_DATA_MAX: u32 = 0x2000;
/// Largest kernel in memory, 1 GiB less than the room above its base: one page directory.
pub const KERNEL_MEMORY_MAX: u32 = 256 << 20;
/// Largest boot stack a kernel may ask for.
pub const STACK_BYTES_MAX: u32 = 1 << 20;

/// Offsets of the fields that the stub's assembler reads, from the start of the descriptor.
pub mod offset {
    /// `crc`: left out of the CRC itself, with the early sum that follows.
    pub const CRC: usize = 8;
    /// `early_sum`.
    pub const EARLY_SUM: usize = 12;
    /// `image_bytes`.
    pub const IMAGE_BYTES: usize = 16;
    /// `stub_bytes`.
    pub const STUB_BYTES: usize = 20;
    /// `workspace`.
    pub const WORKSPACE: usize = 24;
    /// `relocations`.
    pub const RELOCATIONS: usize = 28;
    /// `relocation_count`.
    pub const RELOCATION_COUNT: usize = 32;
}

/// A part of the kernel with permissions of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// First byte, from the kernel's base; a multiple of 4,096.
    pub start: u32,
    /// End (exclusive), from the kernel's base; a multiple of 4,096.
    pub end: u32,
    /// The kernel writes to it.
    pub writable: bool,
    /// The kernel executes it; never together with `writable`.
    pub executable: bool,
}

/// What the stub knows about its image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// CRC-32 (IEEE) of the file from [`HEAD_RVA`] on, without `crc` and `early_sum`.
    pub crc: u32,
    /// Sum over the stub, see [`early_sum`].
    pub early_sum: u32,
    /// Length of the file in bytes.
    pub image_bytes: u32,
    /// End of the stub in the file, its relocations included.
    pub stub_bytes: u32,
    /// Start of the stub's writable data, which ends where the relocations start: the only part
    /// that is not as in the file once the stub runs.
    pub stub_data: u32,
    /// Start of the working memory: the file's end, rounded up to a page.
    pub workspace: u32,
    /// Offset of the stub's relocations: `u32` each, the place of an address to add the base to.
    pub relocations: u32,
    /// Number of relocations.
    pub relocation_count: u32,
    /// Offset of the kernel's bytes.
    pub kernel: u32,
    /// Number of the kernel's bytes in the file, packed ([`crate::unpack`]).
    pub kernel_file_bytes: u32,
    /// Number of the kernel's bytes unpacked, zeroes at the end left out.
    pub kernel_bytes: u32,
    /// Size of the kernel in memory, `.bss` and all.
    pub kernel_memory_bytes: u32,
    /// Entry point, from the kernel's base.
    pub kernel_entry: u32,
    /// Boot stack that the kernel asks for, in bytes.
    pub stack_bytes: u32,
    /// Virtual address of the kernel's base.
    pub kernel_base: u64,
    /// Virtual address of physical address 0.
    pub physical_memory_offset: u64,
    /// Offset and length of the default command line.
    pub command_line: u32,
    /// Length of the default command line in bytes.
    pub command_line_bytes: u32,
    /// Version of the image, text, zero-padded.
    pub version: [u8; 16],
    /// Build id of the kernel.
    pub build_id: [u8; 20],
    /// Number of segments.
    pub segment_count: u32,
    /// Segments in order of address; the first `segment_count` count.
    pub segments: [Segment; SEGMENTS_MAX],
}

/// Why a descriptor was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DescriptorError {
    /// Wrong first bytes or too short.
    Magic,
    /// A range reaches beyond the image or is out of order; the field's name.
    Range(&'static str),
}

const FIXED_BYTES: usize = 128;
const SEGMENT_BYTES: usize = 12;
const _: () = assert!(FIXED_BYTES + SEGMENTS_MAX * SEGMENT_BYTES <= DESCRIPTOR_BYTES);

impl Descriptor {
    /// Reads and checks a descriptor.
    pub fn parse(bytes: &[u8]) -> Result<Self, DescriptorError> {
        let bytes: &[u8; DESCRIPTOR_BYTES] = bytes
            .get(..DESCRIPTOR_BYTES)
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or(DescriptorError::Magic)?;
        if bytes[..8] != MAGIC {
            return Err(DescriptorError::Magic);
        }
        let word = |at: usize| u32::from_le_bytes(array_at(bytes, at));
        let mut segments = [Segment::default(); SEGMENTS_MAX];
        for (index, segment) in segments.iter_mut().enumerate() {
            let at = FIXED_BYTES + index * SEGMENT_BYTES;
            let flags = word(at + 8);
            *segment = Segment {
                start: word(at),
                end: word(at + 4),
                writable: flags & 1 != 0,
                executable: flags & 2 != 0,
            };
        }
        let descriptor = Self {
            crc: word(offset::CRC),
            early_sum: word(offset::EARLY_SUM),
            image_bytes: word(offset::IMAGE_BYTES),
            stub_bytes: word(offset::STUB_BYTES),
            workspace: word(offset::WORKSPACE),
            relocations: word(offset::RELOCATIONS),
            relocation_count: word(offset::RELOCATION_COUNT),
            kernel: word(36),
            kernel_file_bytes: word(40),
            kernel_bytes: word(124),
            kernel_memory_bytes: word(44),
            kernel_entry: word(48),
            stack_bytes: word(52),
            kernel_base: u64::from_le_bytes(array_at(bytes, 56)),
            physical_memory_offset: u64::from_le_bytes(array_at(bytes, 64)),
            command_line: word(72),
            command_line_bytes: word(76),
            version: array_at(bytes, 80),
            build_id: array_at(bytes, 96),
            segment_count: word(116),
            stub_data: word(120),
            segments,
        };
        descriptor.check()?;
        Ok(descriptor)
    }

    /// Writes the descriptor.
    pub fn emit(&self) -> [u8; DESCRIPTOR_BYTES] {
        let mut out = [0; DESCRIPTOR_BYTES];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        for (at, value) in [
            (offset::CRC, self.crc),
            (offset::EARLY_SUM, self.early_sum),
            (offset::IMAGE_BYTES, self.image_bytes),
            (offset::STUB_BYTES, self.stub_bytes),
            (offset::WORKSPACE, self.workspace),
            (offset::RELOCATIONS, self.relocations),
            (offset::RELOCATION_COUNT, self.relocation_count),
            (36, self.kernel),
            (40, self.kernel_file_bytes),
            (44, self.kernel_memory_bytes),
            (48, self.kernel_entry),
            (52, self.stack_bytes),
            (72, self.command_line),
            (76, self.command_line_bytes),
            (116, self.segment_count),
            (120, self.stub_data),
            (124, self.kernel_bytes),
        ] {
            put(at, &value.to_le_bytes());
        }
        put(56, &self.kernel_base.to_le_bytes());
        put(64, &self.physical_memory_offset.to_le_bytes());
        put(80, &self.version);
        put(96, &self.build_id);
        for (index, segment) in self.segments.iter().enumerate() {
            let at = FIXED_BYTES + index * SEGMENT_BYTES;
            let flags = u32::from(segment.writable) | u32::from(segment.executable) << 1;
            put(at, &segment.start.to_le_bytes());
            put(at + 4, &segment.end.to_le_bytes());
            put(at + 8, &flags.to_le_bytes());
        }
        out
    }

    /// The segments in use.
    pub fn segments(&self) -> &[Segment] {
        &self.segments[..self.segment_count as usize]
    }

    fn check(&self) -> Result<(), DescriptorError> {
        let inside = |start: u32, bytes: u32, name: &'static str| {
            let end = u64::from(start) + u64::from(bytes);
            if start < HEAD_RVA || end > u64::from(self.image_bytes) {
                return Err(DescriptorError::Range(name));
            }
            Ok(())
        };
        let range = |good: bool, name| {
            if good {
                Ok(())
            } else {
                Err(DescriptorError::Range(name))
            }
        };
        range(self.image_bytes <= IMAGE_BYTES_MAX, "image_bytes")?;
        range(self.relocations <= IMAGE_BYTES_MAX, "relocations")?;
        range(
            self.workspace >= self.image_bytes
                && self.workspace - self.image_bytes < 4096
                && self.workspace.is_multiple_of(4096),
            "workspace",
        )?;
        range(
            self.stub_bytes > ENTRY64_RVA && self.stub_bytes.is_multiple_of(4),
            "stub_bytes",
        )?;
        inside(HEAD_RVA, self.stub_bytes - HEAD_RVA, "stub_bytes")?;
        range(
            self.stub_data >= ENTRY64_RVA
                && self.stub_data <= self.relocations
                && self.relocations - self.stub_data <= STUB_DATA_MAX
                && self.relocation_count <= STUB_DATA_MAX / 8
                && self.relocations + self.relocation_count * 4 <= self.stub_bytes,
            "relocations",
        )?;
        inside(self.kernel, self.kernel_file_bytes, "kernel")?;
        inside(self.command_line, self.command_line_bytes, "command_line")?;
        range(
            self.command_line_bytes as usize <= DEFAULT_COMMAND_LINE_MAX,
            "command_line",
        )?;
        range(
            self.kernel_bytes <= self.kernel_memory_bytes
                && self.kernel_memory_bytes <= KERNEL_MEMORY_MAX
                && self.kernel_memory_bytes.is_multiple_of(4096)
                && self.kernel_entry < self.kernel_memory_bytes,
            "kernel",
        )?;
        range(
            self.stack_bytes <= STACK_BYTES_MAX && self.stack_bytes.is_multiple_of(4096),
            "stack_bytes",
        )?;
        range(self.segment_count as usize <= SEGMENTS_MAX, "segments")?;
        let mut end = 0;
        for segment in self.segments() {
            range(
                segment.start >= end
                    && segment.start < segment.end
                    && segment.end <= self.kernel_memory_bytes
                    && segment.start.is_multiple_of(4096)
                    && segment.end.is_multiple_of(4096)
                    && !(segment.writable && segment.executable),
                "segments",
            )?;
            end = segment.end;
        }
        Ok(())
    }
}

/// Sum over the stub, `bytes` being the file's bytes from [`ENTRY64_RVA`] to the end of the stub (a
/// multiple of four): rotate left by one, add the next word. The assembler computes the same
/// before it relies on the rest of the stub.
pub fn early_sum(bytes: &[u8]) -> u32 {
    bytes.chunks_exact(4).fold(0_u32, |sum, word| {
        let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        sum.rotate_left(1).wrapping_add(word)
    })
}

/// CRC-32 of an image, given its bytes from [`HEAD_RVA`] to the end in pieces, of which the first
/// holds the whole descriptor: `crc` and `early_sum` are left out.
pub fn image_crc(first: &[u8], rest: &[&[u8]]) -> u32 {
    let crc_at = (DESCRIPTOR_RVA - HEAD_RVA) as usize + offset::CRC;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&first[..crc_at]);
    hasher.update(&first[crc_at + 8..]);
    for piece in rest {
        hasher.update(piece);
    }
    hasher.finalize()
}

fn array_at<const N: usize>(bytes: &[u8; DESCRIPTOR_BYTES], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

#[cfg(test)]
#[path = "descriptor_tests.rs"]
mod tests;
