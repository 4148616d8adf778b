//! The driver against a model of a card on the host, well-behaved or hostile.
//!
//! Key type: [`Model`], whose registers and memory driver and test share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use proptest::prelude::*;

use super::registers as reg;
use super::*;
use crate::nic::ring::{DESCRIPTOR_WORDS, ReceiveRing, TransmitRing};
use crate::nic::{BUFFER_BYTES, Dma, FRAME_MAX};

const ENTRIES: usize = 8;
const WORDS: usize = ENTRIES * DESCRIPTOR_WORDS;
const RECEIVE_AT: u64 = 0x1_0000_1000;
const TRANSMIT_AT: u64 = 0x2000;
const RECEIVE_BUFFERS: u64 = 0x10_0000;
const TRANSMIT_BUFFERS: u64 = 0x20_0000;
const MAC: [u8; 6] = [0x52, 0x54, 0, 7, 0, 9];

/// What a card does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// It is not there: all registers read as ones.
    Gone,
    /// The reset bit stays.
    NeverReset,
    /// The address does not come back after a reset.
    NoAddress,
    /// Queues do not go on.
    NoQueue,
}

/// A card: registers, and the memory of its two rings.
struct Model {
    registers: RefCell<Vec<u32>>,
    receive: RefCell<[u32; WORDS]>,
    transmit: RefCell<[u32; WORDS]>,
    paused: Cell<u64>,
    fault: Cell<Fault>,
}

impl Model {
    fn new(fault: Fault) -> Rc<Self> {
        let this = Self {
            registers: RefCell::new(vec![0; REGISTER_BYTES / 4]),
            receive: RefCell::new([0; WORDS]),
            transmit: RefCell::new([0; WORDS]),
            paused: Cell::new(0),
            fault: Cell::new(fault),
        };
        if fault != Fault::NoAddress {
            this.load_address();
        }
        Rc::new(this)
    }

    fn load_address(&self) {
        self.set(reg::ADDRESS_LOW, 0x0700_5452);
        self.set(reg::ADDRESS_HIGH, 0x0900 | reg::ADDRESS_VALID);
    }

    fn set(&self, offset: usize, value: u32) {
        self.registers.borrow_mut()[offset / 4] = value;
    }

    fn get(&self, offset: usize) -> u32 {
        self.registers.borrow()[offset / 4]
    }

    /// Fills the buffer at the head as a card of this format does.
    fn fill(&self, advanced: bool, bytes: u32, status: u32) {
        let ring = if advanced { 0xc000 } else { 0x2800 };
        let head = self.get(ring + reg::RING_HEAD) as usize;
        assert_ne!(head as u32, self.get(ring + reg::RING_TAIL), "no buffer");
        let words = &mut self.receive.borrow_mut()[head * DESCRIPTOR_WORDS..];
        let (size, state) = if advanced { (3, 2) } else { (2, 3) };
        (words[size], words[state]) = (bytes, status);
        self.set(ring + reg::RING_HEAD, ((head + 1) % ENTRIES) as u32);
    }

    /// Sends all that it was told to; address and bytes of each frame.
    fn send(&self, advanced: bool) -> Vec<(u64, u32)> {
        let ring = if advanced { 0xe000 } else { 0x3800 };
        let mut sent = Vec::new();
        while self.get(ring + reg::RING_HEAD) != self.get(ring + reg::RING_TAIL) {
            let head = self.get(ring + reg::RING_HEAD) as usize;
            let words = &mut self.transmit.borrow_mut()[head * DESCRIPTOR_WORDS..];
            let address = u64::from(words[0]) | u64::from(words[1]) << 32;
            sent.push((address, words[2] & 0xffff));
            let command = if advanced { 0x2b30_0000 } else { 0x0b00_0000 };
            assert_eq!(words[2] & 0xffff_0000, command);
            assert_eq!(words[3], if advanced { words[2] << 14 } else { 0 });
            words[3] |= 1;
            self.set(ring + reg::RING_HEAD, ((head + 1) % ENTRIES) as u32);
        }
        sent
    }
}

impl Bus for Rc<Model> {
    fn read(&self, offset: usize) -> u32 {
        match (self.fault.get(), offset) {
            (Fault::Gone, _) => u32::MAX,
            _ => self.get(offset),
        }
    }

    fn write(&self, offset: usize, value: u32) {
        let fault = self.fault.get();
        match offset {
            reg::CONTROL if value & reg::CONTROL_RESET != 0 && fault != Fault::NeverReset => {
                self.registers.borrow_mut().fill(0);
                if fault != Fault::NoAddress {
                    self.load_address();
                }
            }
            // A reset undoes what it asks for.
            reg::CONTROL if value & reg::CONTROL_NO_MASTER == 0 => {
                self.set(reg::STATUS, reg::STATUS_MASTER);
                self.set(offset, value);
            }
            reg::CONTROL => {
                self.set(reg::STATUS, 0);
                self.set(offset, value);
            }
            reg::INTERRUPT_CAUSE => self.set(offset, self.get(offset) & !value),
            reg::INTERRUPT_MASK_SET => self.set(offset, self.get(offset) | value),
            reg::INTERRUPT_MASK_CLEAR => {
                let mask = self.get(reg::INTERRUPT_MASK_SET) & !value;
                self.set(reg::INTERRUPT_MASK_SET, mask);
            }
            0xc028 | 0xe028 if fault == Fault::NoQueue => {}
            _ => self.set(offset, value),
        }
    }

    fn pause(&self, micros: u32) {
        self.paused.set(self.paused.get() + u64::from(micros));
    }
}

/// One ring of a model.
struct Memory {
    model: Rc<Model>,
    receives: bool,
}

impl Memory {
    fn cells(&self) -> &RefCell<[u32; WORDS]> {
        match self.receives {
            true => &self.model.receive,
            false => &self.model.transmit,
        }
    }
}

impl Dma for Memory {
    fn address(&self) -> u64 {
        if self.receives {
            RECEIVE_AT
        } else {
            TRANSMIT_AT
        }
    }

    fn words(&self) -> usize {
        WORDS
    }

    fn read(&self, word: usize) -> u32 {
        self.cells().borrow()[word]
    }

    fn write(&self, word: usize, value: u32) {
        self.cells().borrow_mut()[word] = value;
    }
}

/// A started driver on a model.
struct Driver {
    model: Rc<Model>,
    card: Card<Rc<Model>>,
    receive: ReceiveRing<Format, Memory>,
    transmit: TransmitRing<Format, Memory>,
    advanced: bool,
}

impl Driver {
    fn new(device: u16, fault: Fault) -> Result<Self, Error> {
        let kind = model(VENDOR, device).unwrap();
        let model = Model::new(fault);
        let (mut card, mac) = Card::open(model.clone(), kind)?;
        assert_eq!(mac, MAC);
        let format = Format {
            advanced: kind.advanced,
        };
        let memory = |receives| Memory {
            model: model.clone(),
            receives,
        };
        let receive = ReceiveRing::new(format, memory(true), RECEIVE_BUFFERS);
        let transmit = TransmitRing::new(format, memory(false), TRANSMIT_BUFFERS);
        card.start(receive.memory(), transmit.memory(), Signal::Msi)?;
        let mut this = Self {
            model,
            card,
            receive,
            transmit,
            advanced: kind.advanced,
        };
        while this.receive.has_room() {
            this.post();
        }
        Ok(this)
    }

    fn post(&mut self) {
        let tail = self.receive.post();
        self.card.offer(tail);
    }

    fn send(&mut self, bytes: usize) -> usize {
        let slot = self.transmit.free().unwrap();
        self.card.send(self.transmit.send(bytes));
        slot
    }
}

const LEGACY: u16 = 0x100e;
const ADVANCED: u16 = 0x10c9;
const GOOD: u32 = 3;

#[test]
fn frames_are_received_in_order_round_and_round() {
    for device in [LEGACY, ADVANCED] {
        let mut driver = Driver::new(device, Fault::None).unwrap();
        assert!(!driver.receive.is_ready() && driver.receive.take().is_none());
        for round in 0..3 * ENTRIES {
            let bytes = 60 + round;
            driver.model.fill(driver.advanced, bytes as u32, GOOD);
            assert!(driver.receive.is_ready());
            let taken = driver.receive.take().unwrap();
            assert_eq!((taken.slot, taken.bytes), (round % ENTRIES, bytes));
            assert!(!driver.receive.is_ready());
            driver.post();
        }
        // Each descriptor has its own buffer's address.
        let receive = driver.model.receive.borrow();
        for (slot, words) in receive.chunks(DESCRIPTOR_WORDS).enumerate() {
            let address = RECEIVE_BUFFERS + (slot * BUFFER_BYTES) as u64;
            assert_eq!((words[0], words[1]), (address as u32, 0));
        }
    }
}

#[test]
fn what_is_no_whole_frame_is_dropped() {
    for (device, damaged) in [(LEGACY, 1 << 15), (ADVANCED, 1 << 31)] {
        let mut driver = Driver::new(device, Fault::None).unwrap();
        let mut bytes_of = |bytes, status| {
            driver.model.fill(driver.advanced, bytes, status);
            let taken = driver.receive.take().unwrap();
            driver.post();
            taken.bytes
        };
        assert_eq!(bytes_of(FRAME_MAX as u32, GOOD), FRAME_MAX);
        assert_eq!(bytes_of(FRAME_MAX as u32 + 1, GOOD), 0);
        assert_eq!(bytes_of(0xffff, GOOD), 0);
        assert_eq!(bytes_of(60, GOOD | damaged), 0);
        // A frame in three buffers, and a good one behind it.
        assert_eq!(bytes_of(1000, 1), 0);
        assert_eq!(bytes_of(1000, 1), 0);
        assert_eq!(bytes_of(10, GOOD), 0);
        assert_eq!(bytes_of(64, GOOD), 64);
    }
}

#[test]
fn frames_are_sent_in_order_round_and_round() {
    for device in [LEGACY, ADVANCED] {
        let mut driver = Driver::new(device, Fault::None).unwrap();
        assert_eq!(driver.transmit.reclaim(), None);
        for round in 0..3 * ENTRIES {
            let slot = driver.send(60 + round);
            assert_eq!(slot, round % ENTRIES);
            assert_eq!(driver.transmit.reclaim(), None);
            let address = TRANSMIT_BUFFERS + (slot * BUFFER_BYTES) as u64;
            let sent = driver.model.send(driver.advanced);
            assert_eq!(sent, [(address, 60 + round as u32)]);
            assert_eq!(driver.transmit.reclaim(), Some(slot));
        }
        for _ in 0..ENTRIES - 1 {
            driver.send(FRAME_MAX);
        }
        assert_eq!(driver.transmit.free(), None);
        assert_eq!(driver.model.send(driver.advanced).len(), ENTRIES - 1);
    }
}

#[test]
fn a_card_that_does_not_answer_is_an_error_within_a_second() {
    let failure = |device, fault| Driver::new(device, fault).err();
    for device in [LEGACY, 0x10d3, ADVANCED] {
        assert_eq!(failure(device, Fault::None), None);
        assert_eq!(failure(device, Fault::Gone), Some(Error::Gone));
        assert_eq!(failure(device, Fault::NoAddress), Some(Error::Reset));
        let model = Model::new(Fault::NeverReset);
        let opened = Card::open(model.clone(), self::model(VENDOR, device).unwrap());
        assert_eq!(opened.err(), Some(Error::Reset));
        assert!(model.paused.get() < 1_000_000);
    }
    assert_eq!(failure(ADVANCED, Fault::NoQueue), Some(Error::Queue));
}

#[test]
fn an_address_of_no_single_card_is_refused() {
    for (low, high) in [(0, 0), (0x0000_0001, 0), (u32::MAX, 0xffff)] {
        let model = Model::new(Fault::NoAddress);
        model.set(reg::ADDRESS_LOW, low);
        model.set(reg::ADDRESS_HIGH, high | reg::ADDRESS_VALID);
        assert_eq!(address(&model), None);
    }
}

#[test]
fn a_phy_without_a_link_negotiates_anew() {
    let driver = Driver::new(ADVANCED, Fault::None).unwrap();
    assert_eq!(driver.model.get(reg::PHY), reg::PHY_NEGOTIATE);
    // The reset of the older models leaves it alone.
    let driver = Driver::new(LEGACY, Fault::None).unwrap();
    assert_eq!(driver.model.get(reg::PHY), 0);
}

#[test]
fn interrupts_are_off_until_they_are_wanted() {
    let driver = Driver::new(0x10d3, Fault::None).unwrap();
    let mask = || driver.model.get(reg::INTERRUPT_MASK_SET);
    assert_eq!(mask(), 0);
    driver.model.set(reg::INTERRUPT_CAUSE, u32::MAX);
    driver.card.set_interrupts(true);
    assert_eq!(mask(), reg::CAUSE_RECEIVED);
    // What came before does not interrupt.
    let pending = driver.model.get(reg::INTERRUPT_CAUSE);
    assert_eq!(pending & reg::CAUSE_RECEIVED, 0);
    driver.card.set_interrupts(false);
    assert_eq!(mask(), 0);
}

#[test]
fn a_link_is_what_the_card_says_while_it_is_there() {
    let driver = Driver::new(LEGACY, Fault::None).unwrap();
    driver.model.set(reg::STATUS, 0);
    assert!(!driver.card.has_link());
    driver.model.set(reg::STATUS, reg::STATUS_LINK);
    assert!(driver.card.has_link());
    driver.model.fault.set(Fault::Gone);
    assert!(!driver.card.has_link());
}

/// The document lists every model by its id, apart by what is known of it.
#[test]
fn models_are_documented() {
    let text = include_str!("../../../../../docs/cards.md");
    let (proven, rest) = text.split_once("**By datasheet**").unwrap();
    let (by_datasheet, _) = rest.split_once("Not driven:").unwrap();
    for model in MODELS {
        let id = format!("8086:{:04x}", model.device);
        let (has, lacks) = match model.proof {
            Proof::Qemu => (proven, by_datasheet),
            Proof::Datasheet => (by_datasheet, proven),
        };
        assert!(has.contains(&id) && !lacks.contains(&id), "{id}");
    }
    assert_eq!(text.matches("8086:").count(), MODELS.len());
}

#[test]
fn models_are_listed_once() {
    for (at, model) in MODELS.iter().enumerate() {
        assert!(!model.name.is_empty());
        assert!(MODELS[..at].iter().all(|m| m.device != model.device));
    }
    assert!(model(0x1af4, LEGACY).is_none());
}

proptest! {
    /// A card that writes what it likes where it likes: the driver keeps its own books.
    #[test]
    fn a_hostile_card_costs_frames_only(
        advanced in any::<bool>(),
        steps in prop::collection::vec((0..6u8, any::<u8>(), any::<u32>()), 1..300),
    ) {
        let device = if advanced { ADVANCED } else { LEGACY };
        let mut driver = Driver::new(device, Fault::None).unwrap();
        let mut of_card = [true; ENTRIES];
        let mut to_send = [false; ENTRIES];
        of_card[ENTRIES - 1] = false;
        for (step, at, value) in steps {
            let word = usize::from(at) % WORDS;
            match step {
                0 => driver.model.receive.borrow_mut()[word] = value,
                1 => driver.model.transmit.borrow_mut()[word] = value,
                2 => {
                    for ring in [0x2800, 0x3800, 0xc000, 0xe000] {
                        driver.model.set(ring + reg::RING_HEAD, value);
                        driver.model.set(ring + reg::RING_TAIL, value);
                    }
                    driver.model.set(reg::STATUS, value);
                    driver.card.has_link();
                }
                3 => if let Some(taken) = driver.receive.take() {
                    prop_assert!(taken.bytes <= FRAME_MAX);
                    prop_assert!(core::mem::replace(&mut of_card[taken.slot], false));
                },
                4 => if driver.receive.has_room() {
                    let slot = driver.receive.unposted();
                    prop_assert!(!core::mem::replace(&mut of_card[slot], true));
                    driver.post();
                },
                _ => {
                    if let Some(slot) = driver.transmit.reclaim() {
                        prop_assert!(core::mem::replace(&mut to_send[slot], false));
                    }
                    if driver.transmit.free().is_some() {
                        let slot = driver.send(usize::from(at));
                        prop_assert!(!core::mem::replace(&mut to_send[slot], true));
                    }
                }
            }
        }
    }
}
