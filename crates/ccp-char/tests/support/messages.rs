//! Messages of a mad agent: valid ones, and what comes of them when something is changed.

use ccp_vm::{Message, Updates};
use rand::Rng;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::generate::Choices;

const INSTALL: u16 = 2;
const HEADER_LEN: usize = 8;
/// Longest message that the module takes: 255 events and 255 instructions.
const LONGEST: usize = 8 + 12 + 2 * 255 * 16;
/// libccp reads the number of values as one signed byte.
const MOST_UPDATES: u32 = 127;

/// A source of messages; the same seed gives the same ones.
pub(crate) struct Messages {
    random: ChaCha8Rng,
    next_uid: u32,
}

impl Messages {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: ChaCha8Rng::seed_from_u64(seed),
            next_uid: 2,
        }
    }

    /// A valid message; programs have numbers of their own, flows one of the first.
    fn valid(&mut self) -> Vec<u8> {
        let sid = self.random.random_range(0..4);
        let mut updates = Updates::default();
        for _ in 0..self.random.random_range(0..4) {
            let entry = self.random.random_range(0..Updates::ENTRIES);
            updates.set(entry, self.random.random());
        }
        match self.random.random_range(0..4) {
            0 => Message::Update { sid, updates },
            1 => {
                let uid = self.random.random_range(0..self.next_uid);
                Message::ChangeProgram { sid, uid, updates }
            }
            _ => {
                let mut bytes = [0; 600];
                self.random.fill(&mut bytes[..]);
                self.next_uid += 1;
                Message::Install(Choices(&bytes).program(self.next_uid))
            }
        }
        .encode()
    }

    fn word(&mut self) -> u32 {
        const EDGES: [u32; 16] = [
            0,
            1,
            2,
            15,
            16,
            110,
            127,
            128,
            254,
            255,
            256,
            257,
            0x3fff_ffff,
            0x7fff_ffff,
            u32::MAX - 1,
            u32::MAX,
        ];
        EDGES[self.random.random_range(0..EDGES.len())]
    }

    fn mutate(&mut self, message: &mut Vec<u8>) {
        let at = self.random.random_range(0..message.len());
        match self.random.random_range(0..8) {
            0 | 1 => message[at] = self.random.random(),
            2 => message[at] ^= 1 << self.random.random_range(0..8),
            3 => message.truncate(at.max(1)),
            4 => {
                let more = self.random.random_range(1..40);
                message.extend((0..more).map(|_| self.random.random::<u8>()));
            }
            // One of the counts behind the header, a range of an event, a register's index.
            5 | 6 => {
                let word = self.word().to_le_bytes();
                let place = HEADER_LEN + 4 * self.random.random_range(0..16);
                if let Some(place) = message.get_mut(place..place + 4) {
                    place.copy_from_slice(&word);
                }
            }
            _ => {
                let word = self.word().to_le_bytes();
                if let Some(place) = message.get_mut(at..at + 4) {
                    place.copy_from_slice(&word);
                }
            }
        }
    }
}

impl Iterator for Messages {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        if self.random.random_range(0..20) == 0 {
            let len = self.random.random_range(1..200);
            return Some((0..len).map(|_| self.random.random()).collect());
        }
        let mut message = self.valid();
        for _ in 0..self.random.random_range(0..4) {
            self.mutate(&mut message);
        }
        // Half of those whose length was changed say so, so that more than the length is looked at.
        if message.len() >= HEADER_LEN && self.random.random() {
            let len = (message.len() as u16).to_le_bytes();
            message[2..4].copy_from_slice(&len);
        }
        // DRAIN and RESUME: not CCP's, and the module takes them.
        if message.len() == HEADER_LEN && matches!(message[..2], [33 | 34, 0]) {
            message[1] = 1;
        }
        Some(message)
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

/// Whether the module must take the message, as far as the message alone says: if the machine in safe Rust does, but
/// for what only libccp cannot bear.
pub(crate) fn is_acceptable(message: &[u8]) -> bool {
    let Ok(parsed) = Message::parse(message) else {
        return false;
    };
    if message.len() > LONGEST {
        return false;
    }
    match parsed {
        Message::Install(_) => {
            let (events, instructions) = (word(message, 12) as usize, word(message, 16) as usize);
            let (events, instructions) = message[20..20 + 16 * (events + instructions)]
                .as_chunks::<16>()
                .0
                .split_at(events);
            let fits = |raw: &[u8; 16], at| word(raw, at + 4) > 0 || word(raw, at) <= 255;
            let sound = |raw: &[u8; 16]| raw[0] != 2 || can_be_result(raw[1], word(raw, 2));
            events.iter().all(|raw| fits(raw, 0) && fits(raw, 8)) && instructions.iter().all(sound)
        }
        Message::Update { .. } => word(message, 8) <= MOST_UPDATES,
        Message::ChangeProgram { .. } => word(message, 12) <= MOST_UPDATES,
    }
}

fn can_be_result(kind: u8, index: u32) -> bool {
    let limit = match kind {
        0 | 5 | 6 | 8 => 16,
        2 | 3 => 6,
        7 => 8,
        _ => 0,
    };
    index < limit
}

/// The number of the program that an INSTALL brings.
pub(crate) fn installs(message: &[u8]) -> Option<u32> {
    let kind = u16::from_le_bytes([message[0], *message.get(1)?]);
    (kind == INSTALL && message.len() >= 20).then(|| word(message, 8))
}
