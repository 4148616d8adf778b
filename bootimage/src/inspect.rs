//! Reads a boot image: version, build id, sizes; checks what the stub checks.

use bootstub::descriptor::{
    DESCRIPTOR_RVA, Descriptor, DescriptorError, HEAD_RVA, SETUP_RVA, image_crc,
};
use bootstub::unpack::unpack;

use crate::layout::{self, words};

/// What an image says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageInfo {
    /// Version of the image.
    pub version: String,
    /// Build id of the kernel.
    pub build_id: [u8; 20],
    /// Length of the file in bytes.
    pub bytes: u64,
    /// Share of boot stub and headers in bytes.
    pub stub_bytes: u64,
    /// Share of the kernel in bytes, packed.
    pub kernel_bytes: u64,
    /// Size of the kernel in bytes, unpacked.
    pub kernel_unpacked_bytes: u64,
    /// Memory that the kernel's image takes, in bytes.
    pub kernel_memory_bytes: u64,
    /// Default command line.
    pub default_command_line: String,
}

impl ImageInfo {
    /// Build id in hexadecimal.
    pub fn build_id_hex(&self) -> String {
        layout::build_id_hex(&self.build_id)
    }
}

/// Why a file is not a good image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InspectError {
    /// Neither MZ nor the Linux header, or no descriptor.
    #[error("this is not a Hearth boot image; make one with `cargo xtask build`")]
    NotAnImage,
    /// Shorter or longer than it says.
    #[error("the image should have {expected} bytes and has {actual}; build or copy it again")]
    Length {
        /// By the descriptor.
        expected: u64,
        /// Of the file.
        actual: u64,
    },
    /// CRC or sum do not fit, or the kernel does not unpack.
    #[error("the image is damaged (checksum of the {0}); build or copy it again")]
    Damaged(&'static str),
}

/// Reads and checks an image.
pub fn inspect(file: &[u8]) -> Result<ImageInfo, InspectError> {
    let descriptor_at = DESCRIPTOR_RVA as usize;
    if file.get(..2) != Some(b"MZ") || file.get(0x202..0x206) != Some(b"HdrS") {
        return Err(InspectError::NotAnImage);
    }
    let descriptor = match Descriptor::parse(file.get(descriptor_at..).unwrap_or_default()) {
        Ok(descriptor) => descriptor,
        Err(DescriptorError::Magic) => return Err(InspectError::NotAnImage),
        Err(DescriptorError::Range(_)) => return Err(InspectError::Damaged("descriptor")),
    };
    if file.len() as u64 != u64::from(descriptor.image_bytes) {
        return Err(InspectError::Length {
            expected: u64::from(descriptor.image_bytes),
            actual: file.len() as u64,
        });
    }
    let setup = &file[SETUP_RVA as usize..HEAD_RVA as usize];
    if words(setup).fold(0_u16, |sum, word| sum.wrapping_add(word)) != 0 {
        return Err(InspectError::Damaged("setup code"));
    }
    if image_crc(&file[HEAD_RVA as usize..], &[]) != descriptor.crc {
        return Err(InspectError::Damaged("image"));
    }
    let packed = &file[descriptor.kernel as usize..][..descriptor.kernel_file_bytes as usize];
    let mut kernel = vec![0; descriptor.kernel_bytes as usize];
    if unpack(packed, &mut kernel).is_err() {
        return Err(InspectError::Damaged("kernel"));
    }
    let text = |bytes: &[u8]| {
        String::from_utf8_lossy(bytes)
            .trim_end_matches('\0')
            .to_owned()
    };
    let line = &file[descriptor.command_line as usize..][..descriptor.command_line_bytes as usize];
    Ok(ImageInfo {
        version: text(&descriptor.version),
        build_id: descriptor.build_id,
        bytes: file.len() as u64,
        stub_bytes: u64::from(descriptor.stub_bytes),
        kernel_bytes: u64::from(descriptor.kernel_file_bytes),
        kernel_unpacked_bytes: u64::from(descriptor.kernel_bytes),
        kernel_memory_bytes: u64::from(descriptor.kernel_memory_bytes),
        default_command_line: text(line),
    })
}
