//! The host tool on hostile input: whatever the ELF files and images are, it answers with an error
//! or with an image that passes its own check.

mod synthetic;

use bootimage::{Error, InspectError, Options, build, inspect};
use bootstub::descriptor::{DESCRIPTOR_RVA, Descriptor, offset};
use bootstub::unpack::unpack;
use proptest::prelude::*;
use synthetic::{kernel_elf, stub_elf};

fn options() -> Options {
    Options {
        version: "1.2.3".into(),
        default_command_line: "hearth.console=ttyS0".into(),
    }
}

fn image() -> Vec<u8> {
    build(&kernel_elf(), &stub_elf(), &options()).unwrap()
}

#[test]
fn an_image_says_what_went_in() {
    let image = image();
    let info = inspect(&image).unwrap();
    assert_eq!(info.version, "1.2.3");
    assert_eq!(info.default_command_line, "hearth.console=ttyS0");
    assert_eq!(info.bytes, image.len() as u64);
    assert_eq!(info.kernel_memory_bytes, synthetic::KERNEL_MEMORY_BYTES);
    // Where `file` looks for the text: 0x200 on from what the header's 0x20e says.
    let at = 0x200 + usize::from(u16::from_le_bytes([image[0x20e], image[0x20f]]));
    let text = format!("1.2.3 Hearth node image, build {}", info.build_id_hex());
    assert_eq!(&image[at..at + text.len()], text.as_bytes());
    // The loader is told of the whole file and of the working memory behind it.
    let word = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
    assert_eq!(word(0x1f4) * 16, image.len() as u32 - 0x1000);
    assert_eq!(
        word(0x260),
        image.len() as u32 - 0x1000 + bootstub::descriptor::WORKSPACE_BYTES
    );
}

#[test]
fn the_kernel_is_relocated_and_its_pages_are_apart() {
    let image = image();
    let descriptor = Descriptor::parse(&image[DESCRIPTOR_RVA as usize..]).unwrap();
    let packed = &image[descriptor.kernel as usize..][..descriptor.kernel_file_bytes as usize];
    let mut kernel = vec![0; descriptor.kernel_bytes as usize];
    unpack(packed, &mut kernel).unwrap();
    let at = synthetic::KERNEL_POINTER_AT;
    let pointer = u64::from_le_bytes(kernel[at..at + 8].try_into().unwrap());
    assert_eq!(
        pointer,
        descriptor.kernel_base + synthetic::KERNEL_POINTER_TO
    );
    let segments: Vec<_> = descriptor
        .segments()
        .iter()
        .map(|s| (s.start, s.end, s.writable, s.executable))
        .collect();
    // The third is read-only once relocated, which the host tool has done.
    assert_eq!(
        segments,
        [
            (0, 0x1000, false, false),
            (0x1000, 0x2000, false, true),
            (0x2000, 0x3000, false, false),
            (0x3000, 0x6000, true, false),
        ]
    );
}

#[test]
fn every_changed_byte_behind_the_headers_is_found() {
    let image = image();
    let skipped = DESCRIPTOR_RVA as usize + offset::EARLY_SUM;
    for place in (0xcd0..image.len()).filter(|place| !(skipped..skipped + 4).contains(place)) {
        let mut altered = image.clone();
        altered[place] ^= 1;
        assert!(inspect(&altered).is_err(), "byte {place:#x}");
    }
}

#[test]
fn cut_images_are_refused() {
    let image = image();
    for length in 0..image.len() {
        assert!(inspect(&image[..length]).is_err(), "{length} bytes");
    }
    let mut longer = image.clone();
    longer.push(0);
    assert!(matches!(inspect(&longer), Err(InspectError::Length { .. })));
}

#[test]
fn texts_that_do_not_fit_are_refused() {
    let try_with = |options: Options| build(&kernel_elf(), &stub_elf(), &options);
    for version in ["", "12345678901234567", "a b", "ä"] {
        let options = Options {
            version: version.into(),
            ..options()
        };
        assert_eq!(try_with(options), Err(Error::Version));
    }
    for line in ["x".repeat(1025), "a\nb".into()] {
        let options = Options {
            default_command_line: line,
            ..options()
        };
        assert_eq!(try_with(options), Err(Error::CommandLine));
    }
}

#[test]
fn kernel_and_stub_are_not_interchangeable() {
    assert!(matches!(
        build(&stub_elf(), &stub_elf(), &options()),
        Err(Error::Kernel(_))
    ));
    assert!(matches!(
        build(&kernel_elf(), &kernel_elf(), &options()),
        Err(Error::Stub(_))
    ));
}

/// Changes anywhere, most of them in the headers, with values that are likely to hurt.
fn changes() -> impl Strategy<Value = Vec<(usize, u8)>> {
    let place = prop_oneof![3 => 0..0x400_usize, 1 => 0..0x4000_usize];
    let value = prop_oneof![
        Just(0_u8),
        Just(1),
        Just(0x7f),
        Just(0x80),
        Just(0xff),
        any::<u8>()
    ];
    prop::collection::vec((place, value), 1..12)
}

fn altered(mut file: Vec<u8>, changes: &[(usize, u8)], cut: Option<usize>) -> Vec<u8> {
    for &(place, value) in changes {
        if let Some(byte) = file.get_mut(place) {
            *byte = value;
        }
    }
    file.truncate(cut.unwrap_or(file.len()));
    file
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_kernel_panics(changes in changes(), cut in prop::option::weighted(0.1, 0..0x5000_usize)) {
        if let Ok(image) = build(&altered(kernel_elf(), &changes, cut), &stub_elf(), &options()) {
            prop_assert!(inspect(&image).is_ok());
        }
    }

    #[test]
    fn no_stub_panics(changes in changes(), cut in prop::option::weighted(0.1, 0..0x5000_usize)) {
        if let Ok(image) = build(&kernel_elf(), &altered(stub_elf(), &changes, cut), &options()) {
            prop_assert!(inspect(&image).is_ok());
        }
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(build(&bytes, &stub_elf(), &options()).is_err());
        prop_assert!(build(&kernel_elf(), &bytes, &options()).is_err());
        prop_assert!(inspect(&bytes).is_err());
    }
}
