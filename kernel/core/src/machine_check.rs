//! What the processor's machine-check banks say: errors that hardware found, and mostly corrected.
//!
//! Key type: [`Record`]. Source: Intel SDM volume 3B, chapter 16 (16.3.2.2, 16.9.2); AMD's banks
//! have the same bits. Neighbours: `kernel::arch::machine_check` reads the registers.
//!
//! Invariant: a record is made only of a bank that says its contents are valid.

use core::fmt;

const VALID: u64 = 1 << 63;
const UNCORRECTED: u64 = 1 << 61;
const ADDRESS_VALID: u64 = 1 << 58;

/// First model-specific registers of bank 0, and how far the next bank's are.
const BANK_FIRST: u32 = 0x400;
const BANK_STEP: u32 = 4;

/// Most banks that are looked at: the registers behind those of 32 banks are other things.
pub const BANKS_MAX: u8 = 32;

/// Model-specific registers of a bank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bank {
    /// What it reports.
    pub control: u32,
    /// What it has found.
    pub status: u32,
    /// Where.
    pub address: u32,
}

impl Bank {
    /// The registers of a bank.
    pub const fn new(number: u8) -> Self {
        let control = BANK_FIRST + number as u32 * BANK_STEP;
        Self {
            control,
            status: control + 1,
            address: control + 2,
        }
    }
}

/// One error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Number of the bank.
    pub bank: u8,
    /// Its status register.
    pub status: u64,
    /// Where, if the bank knows.
    pub address: Option<u64>,
}

impl Record {
    /// What a bank's status says, if anything; `address` reads its address register.
    pub fn new(bank: u8, status: u64, address: impl FnOnce() -> u64) -> Option<Self> {
        (status & VALID != 0).then(|| Self {
            bank,
            status,
            address: (status & ADDRESS_VALID != 0).then(address),
        })
    }

    /// Whether hardware has put it right.
    pub const fn is_corrected(&self) -> bool {
        self.status & UNCORRECTED == 0
    }

    /// Where the error was found, by the compound error codes.
    const fn part(&self) -> &'static str {
        match self.status & 0xffff {
            code if code & 0xf800 == 0x0800 => "bus",
            code if code & 0xef00 == 0x0100 => "cache",
            code if code & 0xef80 == 0x0080 => "memory",
            code if code & 0xeff0 == 0x0010 => "TLB",
            _ => "processor",
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = match self.is_corrected() {
            true => "corrected",
            false => "not corrected",
        };
        let Self { bank, status, .. } = self;
        write!(
            f,
            "{} error, {outcome}: bank {bank}, status {status:#x}",
            self.part()
        )?;
        match self.address {
            Some(address) => write!(f, ", address {address:#x}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banks_say_what_was_where() {
        assert_eq!(Record::new(3, 0, || panic!("not asked for")), None);
        // A memory controller's corrected error of channel 1, with its address.
        let record = Record::new(7, 0x8c00_0040_0001_0091, || 0x1234_5000).unwrap();
        assert!(record.is_corrected());
        assert_eq!(
            std::format!("{record}"),
            "memory error, corrected: bank 7, status 0x8c00004000010091, address 0x12345000"
        );
        let part = |code: u64| Record::new(0, VALID | UNCORRECTED | code, || 0).unwrap();
        assert!(!part(0).is_corrected());
        let parts = [0x0005, 0x0014, 0x0151, 0x1135, 0x0e0b, 0x009f].map(|code| part(code).part());
        assert_eq!(
            parts,
            ["processor", "TLB", "cache", "cache", "bus", "memory"]
        );
    }

    #[test]
    fn registers_have_the_numbers_of_the_manual() {
        let bank = Bank::new(9);
        assert_eq!(
            (bank.control, bank.status, bank.address),
            (0x424, 0x425, 0x426)
        );
    }
}
