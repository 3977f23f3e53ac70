//! Memory for the packets that an emulator holds: taken and given back without allocating, once there is enough.

/// Room for a packet of any device MTU that we set.
const PACKET_BYTES: usize = 2048;

/// Packets by number.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    packets: Vec<[u8; PACKET_BYTES]>,
    free: Vec<u32>,
}

impl Buffers {
    /// A free place.
    pub(crate) fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.packets.push([0; PACKET_BYTES]);
            (self.packets.len() - 1) as u32
        })
    }

    /// Gives a place back.
    pub(crate) fn give_back(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// The whole of a place.
    pub(crate) fn at(&mut self, slot: u32) -> &mut [u8; PACKET_BYTES] {
        &mut self.packets[slot as usize]
    }
}
