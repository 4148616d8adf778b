//! Registers and bits of the family, as far as they are used; names of the manuals in brackets.

/// Device control (CTRL).
pub const CONTROL: usize = 0x0000;
/// The card starts no transfers of its own (GIO master disable).
pub const CONTROL_NO_MASTER: u32 = 1 << 2;
/// The card finds the speed out by itself (ASDE).
pub const CONTROL_DETECT_SPEED: u32 = 1 << 5;
/// The link may come up (SLU).
pub const CONTROL_LINK_UP: u32 = 1 << 6;
/// The PHY's loss-of-signal signal is inverted (ILOS).
pub const CONTROL_INVERT_LOSS: u32 = 1 << 7;
/// Speed is forced (FRCSPD).
pub const CONTROL_FORCE_SPEED: u32 = 1 << 11;
/// Duplex is forced (FRCDPLX).
pub const CONTROL_FORCE_DUPLEX: u32 = 1 << 12;
/// Reset of all but the PHY (RST); clears itself.
pub const CONTROL_RESET: u32 = 1 << 26;
/// VLAN tags are taken out of frames (VME).
pub const CONTROL_VLAN: u32 = 1 << 30;

/// Device status (STATUS).
pub const STATUS: usize = 0x0008;
/// The port has a link (LU).
pub const STATUS_LINK: u32 = 1 << 1;
/// The card may still start transfers (GIO master enable status).
pub const STATUS_MASTER: u32 = 1 << 19;

/// Access to the PHY (MDIC): writes its control register, which is register 0 of the PHY at address
/// 1; the card begins at once and needs no more attention.
pub const PHY: usize = 0x0020;
/// To negotiate anew, with power (BMCR: autonegotiation on, and once more).
pub const PHY_NEGOTIATE: u32 = 1 << 26 | 1 << 21 | 1 << 12 | 1 << 9;

/// Causes that are pending (ICR): a read clears all, writing a one clears one.
pub const INTERRUPT_CAUSE: usize = 0x00c0;
/// Least time between two interrupts (ITR).
pub const INTERRUPT_THROTTLE: usize = 0x00c4;
/// Causes to let through (IMS).
pub const INTERRUPT_MASK_SET: usize = 0x00d0;
/// Causes to hold back (IMC).
pub const INTERRUPT_MASK_CLEAR: usize = 0x00d8;
/// MSI-X entries of causes, 82574 (IVAR).
pub const VECTORS: usize = 0x00e4;
/// Entry 0 for receive queue 0, which is valid; none for other causes.
pub const VECTORS_RECEIVE_0: u32 = 1 << 3;
/// How interrupts are sent (GPIE); 0 for one message for all.
pub const GENERAL_INTERRUPT: usize = 0x1514;
/// A received frame was written (RXT0; RXDW since 82576).
pub const CAUSE_RECEIVED: u32 = 1 << 7;
/// The same for queue 0, while there is MSI-X (RXQ0).
pub const CAUSE_RECEIVE_QUEUE_0: u32 = 1 << 20;

/// Receive control (RCTL).
pub const RECEIVE_CONTROL: usize = 0x0100;
/// On, broadcasts too, checksum cut off, buffers of 2 KiB, no long and no damaged frames
/// (EN, BAM, SECRC).
pub const RECEIVE_ON: u32 = 1 << 1 | 1 << 15 | 1 << 26;
/// Transmit control (TCTL).
pub const TRANSMIT_CONTROL: usize = 0x0400;
/// Short frames are padded (PSP).
pub const TRANSMIT_PAD_SHORT: u32 = 1 << 3;
/// On, with 15 attempts (CT) and 64 byte times (COLD) where there are collisions (EN).
pub const TRANSMIT_ON: u32 = 1 << 1 | TRANSMIT_PAD_SHORT | 0x0f << 4 | 0x3f << 12;
/// Gaps between frames (TIPG).
pub const TRANSMIT_GAP: usize = 0x0410;
/// What the manuals give for copper.
pub const TRANSMIT_GAP_COPPER: u32 = 8 | 8 << 10 | 6 << 20;
/// Delay of the interrupt for a received frame (RDTR).
pub const RECEIVE_DELAY: usize = 0x2820;

/// Offsets of a ring's registers (RDBAL, RDBAH, RDLEN, SRRCTL, RDH, RDT, RXDCTL; the same to send).
pub const RING_ADDRESS: usize = 0x00;
pub const RING_ADDRESS_HIGH: usize = 0x04;
pub const RING_LENGTH: usize = 0x08;
pub const RING_SPLIT: usize = 0x0c;
pub const RING_HEAD: usize = 0x10;
pub const RING_TAIL: usize = 0x18;
pub const RING_CONTROL: usize = 0x28;
/// One buffer for a frame, advanced descriptors.
pub const SPLIT_ONE_BUFFER: u32 = 1 << 25;
/// Buffers of 2 KiB.
pub const SPLIT_2_KIB: u32 = 2;
/// The queue is on.
pub const RING_ENABLE: u32 = 1 << 25;
/// Thresholds count descriptors; to be set on 82571 to 82583.
pub const RING_COUNT_DESCRIPTORS: u32 = 1 << 22;

/// Multicast table (MTA): nothing of it is wanted.
pub const MULTICAST_TABLE: usize = 0x5200;
pub const MULTICAST_ENTRIES: usize = 128;
/// Hardware address, first four bytes (RAL).
pub const ADDRESS_LOW: usize = 0x5400;
/// Its last two bytes (RAH).
pub const ADDRESS_HIGH: usize = 0x5404;
/// The address counts (AV).
pub const ADDRESS_VALID: u32 = 1 << 31;
