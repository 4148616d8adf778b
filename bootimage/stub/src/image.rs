//! The loaded image: its descriptor and its check.
//!
//! The assembler has already summed the stub and moved its addresses (`verify_and_relocate`).
//!
//! Invariant: the kernel's bytes are not used before the CRC was found right.

use bootstub::descriptor::{
    DESCRIPTOR_BYTES, DESCRIPTOR_RVA, Descriptor, HEAD_RVA, STUB_DATA_MAX, WORKSPACE_BYTES,
    image_crc,
};

/// What a damaged image is answered with.
pub const DAMAGED: &str = "the boot image is damaged or cut off (CRC); load it again";

/// The image in memory, checked.
pub struct Image {
    base: *mut u8,
    /// What the host tool wrote about it.
    pub descriptor: Descriptor,
}

impl Image {
    /// Checks the image loaded at `base` (the address of RVA 0; its first page need not be there);
    /// `None` when it is damaged.
    ///
    /// # Safety
    /// `base` must be where this image lies, with as much readable memory behind it as the
    /// descriptor says, and its addresses must have been moved.
    pub unsafe fn open(base: *mut u8) -> Option<Self> {
        // SAFETY: the head page is part of what firmware loaded (this code runs from it).
        let bytes = unsafe {
            core::slice::from_raw_parts(base.add(DESCRIPTOR_RVA as usize), DESCRIPTOR_BYTES)
        };
        let descriptor = Descriptor::parse(bytes).ok()?;
        let image = Self { base, descriptor };
        (image.crc() == descriptor.crc).then_some(image)
    }

    /// CRC of the image as it was in the file.
    fn crc(&self) -> u32 {
        let descriptor = &self.descriptor;
        let data_start = descriptor.stub_data;
        let data_end = descriptor.relocations;
        let mut copy = [0; STUB_DATA_MAX as usize];
        let data = &mut copy[..(data_end - data_start) as usize];
        data.copy_from_slice(self.bytes(data_start, data_end - data_start));
        let table = self.bytes(descriptor.relocations, descriptor.relocation_count * 4);
        for entry in table.chunks_exact(4) {
            let rva = u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
            let place = rva.wrapping_sub(data_start) as usize;
            if let Some(bytes) = data.get_mut(place..place.wrapping_add(8)) {
                let mut word = [0; 8];
                word.copy_from_slice(bytes);
                let original = u64::from_le_bytes(word).wrapping_sub(self.base());
                bytes.copy_from_slice(&original.to_le_bytes());
            }
        }
        image_crc(
            self.bytes(HEAD_RVA, data_start - HEAD_RVA),
            &[
                data,
                self.bytes(data_end, descriptor.image_bytes - data_end),
            ],
        )
    }

    /// Address of RVA 0.
    pub fn base(&self) -> u64 {
        self.base as u64
    }

    /// End of image and working memory.
    pub fn end(&self) -> u64 {
        self.base() + u64::from(self.descriptor.workspace + WORKSPACE_BYTES)
    }

    /// `bytes` bytes of the image from `rva` on, a range that the descriptor has checked.
    pub fn bytes(&self, rva: u32, bytes: u32) -> &'static [u8] {
        // SAFETY: the descriptor's ranges lie inside the image (`Descriptor::parse`), and the
        // image stays until the kernel runs.
        unsafe { core::slice::from_raw_parts(self.base.add(rva as usize), bytes as usize) }
    }
}
