//! Tables as firmware leaves them, and tables that make no sense.

use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const ROOT: u64 = 0xf_5a60;
const PM_PORT: usize = 76 - HEADER_BYTES;
const PM_LENGTH: usize = 91 - HEADER_BYTES;
const TIMER_32: u32 = 1 << 8;

/// Memory with pieces in it; counts what is read.
#[derive(Default)]
struct Fake {
    pieces: Vec<(u64, Vec<u8>)>,
    bytes_read: usize,
}

impl FirmwareMemory for Fake {
    fn read(&mut self, at: PhysAddr, out: &mut [u8]) -> bool {
        self.bytes_read += out.len();
        let found = self.pieces.iter().find_map(|(start, piece)| {
            let from = usize::try_from(at.as_u64().checked_sub(*start)?).ok()?;
            piece.get(from..from.checked_add(out.len())?)
        });
        found.map(|bytes| out.copy_from_slice(bytes)).is_some()
    }
}

fn put(table: &mut [u8], at: usize, bytes: &[u8]) {
    table[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Makes the sum of all bytes zero by the one at `at`.
fn seal(table: &mut [u8], at: usize) {
    table[at] = 0;
    table[at] = 0u8.wrapping_sub(sum(table));
}

fn table(signature: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let mut table = vec![0; HEADER_BYTES];
    table.extend(body);
    let length = table.len() as u32;
    put(&mut table, 0, signature);
    put(&mut table, 4, &length.to_le_bytes());
    seal(&mut table, 9);
    table
}

/// A machine of ACPI 2 or later with these tables.
fn machine(tables: Vec<Vec<u8>>) -> Fake {
    let mut memory = Fake::default();
    let at = |index: usize| 0x7fe0_0000 + index as u64 * 0x10_0000;
    let list: Vec<u8> = (0..tables.len())
        .flat_map(|index| at(index).to_le_bytes())
        .collect();
    let mut root = vec![0; ROOT_BYTES];
    put(&mut root, 0, &ROOT_SIGNATURE);
    root[15] = 2;
    put(&mut root, 20, &(ROOT_BYTES as u32).to_le_bytes());
    put(&mut root, 24, &0x7fd0_0000u64.to_le_bytes());
    seal(&mut root[..ROOT_OLD_BYTES], 8);
    seal(&mut root, 32);
    memory.pieces.push((ROOT, root));
    memory.pieces.push((0x7fd0_0000, table(b"XSDT", &list)));
    for (index, table) in tables.into_iter().enumerate() {
        memory.pieces.push((at(index), table));
    }
    memory
}

fn read_all(memory: &mut Fake) -> Result<Machine, AcpiError> {
    read(PhysAddr::new(ROOT), memory)
}

/// Body of a MADT: a processor in each form, one of them in both, two disabled, an I/O APIC.
fn madt() -> Vec<u8> {
    let mut body = vec![0; 8];
    for (apic_id, flags) in [(0u8, 1u8), (1, 1), (2, 0), (255, 1)] {
        body.extend([0, 8, 0, apic_id, flags, 0, 0, 0]);
    }
    for (apic_id, flags) in [(1u32, 1u32), (300, 1), (301, 2), (0xffff_ffff, 1)] {
        body.extend([9, 16, 0, 0]);
        body.extend(apic_id.to_le_bytes());
        body.extend(flags.to_le_bytes());
        body.extend([0; 4]);
    }
    body.extend([1, 12, 8, 0, 0, 0, 0xc0, 0xfe, 24, 0, 0, 0]);
    body
}

/// Body of a SRAT: processors 0 and 300, memory in two domains, one range disabled.
fn srat() -> Vec<u8> {
    let mut body = vec![0; 12];
    body.extend([0, 16, 1, 0, 1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0]);
    body.extend([2, 24, 0, 0, 7, 0, 0, 0]);
    body.extend(300u32.to_le_bytes());
    body.extend([1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    for (domain, flags) in [(0u8, 1u8), (1, 1), (2, 0)] {
        body.extend([1, 40, domain, 0, 0, 0, 0, 0]);
        body.extend((u64::from(domain) << 32).to_le_bytes());
        body.extend(0x1_0000_0000u64.to_le_bytes());
        body.extend([0, 0, 0, 0, flags, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
    body
}

fn spcr(kind: u8, space: u8, address: u64, baud: u8) -> Vec<u8> {
    let mut body = vec![0; 44];
    body[0] = kind;
    body[4] = space;
    put(&mut body, 8, &address.to_le_bytes());
    body[22] = baud;
    body
}

fn fadt(flags: u32, extended: Option<u64>) -> Vec<u8> {
    let mut body = vec![0; 184 + if extended.is_some() { 60 } else { 0 }];
    put(&mut body, PM_PORT, &0x608u32.to_le_bytes());
    body[PM_LENGTH] = 4;
    put(&mut body, 112 - HEADER_BYTES, &flags.to_le_bytes());
    if let Some(address) = extended {
        put(&mut body, 208 - HEADER_BYTES, &[SPACE_PORTS, 32, 0, 3]);
        put(&mut body, 212 - HEADER_BYTES, &address.to_le_bytes());
    }
    body
}

#[test]
fn processors_of_both_forms_are_listed_once_with_their_domains() {
    let mut memory = machine(vec![table(b"SRAT", &srat()), table(b"APIC", &madt())]);
    let machine = read_all(&mut memory).unwrap();
    let processors = machine.processors.iter();
    let processors: Vec<_> = processors.map(|one| (one.apic_id, one.domain)).collect();
    assert_eq!(processors, [(0, Some(0x201)), (1, None), (300, Some(7))]);
    assert_eq!((machine.disabled, machine.listed_twice), (4, 1));
    let io_apic = IoApic {
        registers: PhysAddr::new(0xfec0_0000),
        first_input: 24,
    };
    assert_eq!(machine.io_apics, [io_apic]);
    let memory = machine.memory.iter();
    let memory: Vec<_> = memory.map(|one| (one.start.as_u64(), one.domain)).collect();
    assert_eq!(memory, [(0, 0), (1 << 32, 1)]);
    assert!(machine.damaged.is_empty() && machine.nearness.is_empty());
}

#[test]
fn windows_timers_and_console_are_found() {
    let mut window = vec![0; 8];
    window.extend(0xb000_0000u64.to_le_bytes());
    window.extend([1, 0, 2, 255, 0, 0, 0, 0]);
    let mut hpet = vec![0; 20];
    put(&mut hpet, 8, &0xfed0_0000u64.to_le_bytes());
    let machine = read_all(&mut machine(vec![
        table(b"MCFG", &window),
        table(b"HPET", &hpet),
        table(b"FACP", &fadt(TIMER_32, None)),
        table(b"SPCR", &spcr(0, SPACE_PORTS, 0x2f8, 7)),
        table(b"SSDT", b"a program"),
    ]))
    .unwrap();
    let window = ConfigWindow {
        base: PhysAddr::new(0xb000_0000),
        segment: 1,
        first_bus: 2,
        last_bus: 255,
    };
    assert_eq!(machine.config_windows, [window]);
    assert_eq!(machine.hpet, Some(PhysAddr::new(0xfed0_0000)));
    let timer = PmTimer {
        register: Register::Port(0x608),
        bits: 32,
    };
    assert_eq!(machine.pm_timer, Some(timer));
    let console = SerialConsole {
        register: Register::Port(0x2f8),
        baud: Some(115_200),
    };
    assert_eq!(machine.console, Some(console));
}

#[test]
fn what_is_no_port_or_no_timer_is_left_out() {
    let read_one = |signature, body: Vec<u8>| {
        let mut memory = machine(vec![table(signature, &body)]);
        read_all(&mut memory).unwrap()
    };
    let timer = |flags, extended| read_one(b"FACP", fadt(flags, extended)).pm_timer;
    assert_eq!(timer(0, None).unwrap().bits, 24);
    let extended = timer(0, Some(0x1808)).unwrap();
    assert_eq!(extended.register, Register::Port(0x1808));
    // One that is no port counts as none, and the old one is there.
    let old = timer(0, Some(0x1_1808)).unwrap();
    assert_eq!(old.register, Register::Port(0x608));
    assert_eq!(timer(1 << 20, None), None);
    let console = |body| read_one(b"SPCR", body).console;
    let in_memory = console(spcr(0x12, SPACE_MEMORY, 0xfe03_4000, 0)).unwrap();
    assert_eq!(in_memory.baud, None);
    assert!(matches!(in_memory.register, Register::Memory(_)));
    // An ARM port; no address, which switches redirection off.
    assert_eq!(console(spcr(3, SPACE_MEMORY, 0xfe03_4000, 7)), None);
    assert_eq!(console(spcr(0, SPACE_PORTS, 0, 7)), None);
}

#[test]
fn the_old_list_counts_where_the_new_one_is_damaged() {
    let mut memory = machine(vec![table(b"APIC", &madt())]);
    let at = 0x7fe0_0000u32;
    memory
        .pieces
        .push((0x7fc0_0000, table(b"RSDT", &at.to_le_bytes())));
    let root = &mut memory.pieces[0].1;
    put(root, 16, &0x7fc0_0000u32.to_le_bytes());
    seal(&mut root[..ROOT_OLD_BYTES], 8);
    seal(root, 32);
    assert_eq!(read_all(&mut memory).unwrap().processors.len(), 3);
    memory.pieces[1].1[40] ^= 1;
    assert_eq!(read_all(&mut memory).unwrap().processors.len(), 3);
    memory.pieces.retain(|(start, _)| *start != 0x7fc0_0000);
    assert_eq!(read_all(&mut memory), Err(AcpiError::NoList));
    memory.pieces[0].1[3] ^= 1;
    assert_eq!(read_all(&mut memory), Err(AcpiError::NoRoot));
}

#[test]
fn a_damaged_table_is_named_and_the_others_count() {
    let mut broken = table(b"HPET", &[0; 20]);
    broken[40] ^= 1;
    let mut endless = table(b"SRAT", &srat());
    put(&mut endless, 4, &u32::MAX.to_le_bytes());
    let mut memory = machine(vec![broken, endless, table(b"APIC", &madt())]);
    let machine = read_all(&mut memory).unwrap();
    assert_eq!(machine.damaged, [*b"HPET", *b"SRAT"]);
    assert_eq!(machine.processors.len(), 3);
}

proptest! {
    /// Tables whose sums are right, whatever is in them.
    #[test]
    fn no_table_panics(
        bodies in proptest::collection::vec(
            (0..6usize, proptest::collection::vec(any::<u8>(), 0..300)),
            0..8,
        ),
        changes in proptest::collection::vec((0..400usize, any::<u8>()), 0..40),
    ) {
        let kinds = [b"APIC", b"SRAT", b"MCFG", b"SPCR", b"HPET", b"FACP"];
        let real = [table(b"APIC", &madt()), table(b"SRAT", &srat())];
        let mutated = real.into_iter().map(|mut table| {
            for &(at, byte) in &changes {
                if let Some(place) = table.get_mut(HEADER_BYTES + at) {
                    *place = byte;
                }
            }
            seal(&mut table, 9);
            table
        });
        let mutated: Vec<_> = mutated.collect();
        let tables = bodies.iter().map(|(kind, body)| table(kinds[*kind], body)).chain(mutated);
        let mut memory = machine(tables.collect());
        let found = read_all(&mut memory).unwrap();
        prop_assert!(found.damaged.is_empty());
        prop_assert!(found.processors.windows(2).all(|pair| pair[0].apic_id < pair[1].apic_id));
        prop_assert!(memory.bytes_read < 100_000);
    }

    /// Memory of which every byte may be wrong.
    #[test]
    fn no_memory_panics(
        changes in proptest::collection::vec((0..4usize, 0..200usize, any::<u8>()), 0..60),
    ) {
        let mut memory = machine(vec![table(b"APIC", &madt()), table(b"SRAT", &srat())]);
        for (piece, at, byte) in changes {
            if let Some(place) = memory.pieces[piece].1.get_mut(at) {
                *place = byte;
            }
        }
        seal(&mut memory.pieces[0].1[..ROOT_OLD_BYTES], 8);
        seal(&mut memory.pieces[0].1, 32);
        // What it finds does not matter.
        let _ = read_all(&mut memory);
        prop_assert!(memory.bytes_read < 1 << 20);
    }
}
