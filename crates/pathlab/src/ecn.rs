//! Explicit congestion notification in IPv4 headers (RFC 3168 §5).

/// What the last two bits of the second byte say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// The ends do not understand marks, or it is not IPv4.
    #[default]
    NotCapable,
    /// They do.
    Capable,
    /// A queue on the way has marked it.
    Marked,
}

const BITS: u8 = 0b11;
/// Bytes of a header without options, and where its checksum is.
const HEADER: usize = 20;
const CHECKSUM: usize = 10;

impl Ecn {
    /// What the header of an IP packet says.
    #[must_use]
    pub fn of(packet: &[u8]) -> Self {
        match header(packet).map(|header| header[1] & BITS) {
            None | Some(0) => Self::NotCapable,
            Some(BITS) => Self::Marked,
            Some(_) => Self::Capable,
        }
    }
}

/// Marks an IPv4 packet, and leaves others alone.
pub fn mark(packet: &mut [u8]) {
    let Some(length) = header(packet).map(<[u8]>::len) else {
        return;
    };
    let header = &mut packet[..length];
    header[1] |= BITS;
    header[CHECKSUM..CHECKSUM + 2].fill(0);
    let sum = checksum(header);
    header[CHECKSUM..CHECKSUM + 2].copy_from_slice(&sum.to_be_bytes());
}

fn header(packet: &[u8]) -> Option<&[u8]> {
    let first = *packet.first()?;
    let length = usize::from(first & 0xf) * 4;
    (first >> 4 == 4 && length >= HEADER).then(|| packet.get(..length))?
}

/// RFC 1071.
fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks_exact(2);
    let sum: u32 = words
        .map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])))
        .sum();
    let folded = (sum >> 16) + (sum & 0xffff);
    !((folded >> 16) + (folded & 0xffff)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From 10.77.0.1 to 10.77.0.2, with this second byte and a true checksum.
    fn packet(tos: u8) -> Vec<u8> {
        let mut packet = vec![
            0x45, tos, 0, 40, 0x12, 0x34, 0x40, 0, 64, 6, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2,
        ];
        let sum = checksum(&packet).to_be_bytes();
        packet[CHECKSUM..CHECKSUM + 2].copy_from_slice(&sum);
        packet.extend([7; 20]);
        packet
    }

    #[test]
    fn the_bits_tell() {
        let told = [0b1000, 0b1001, 0b1010, 0b1011].map(|tos| Ecn::of(&packet(tos)));
        use Ecn::{Capable, Marked, NotCapable};
        assert_eq!(told, [NotCapable, Capable, Capable, Marked]);
        for other in [&[][..], &[0x60; 40], &[0x45; 19], &[0x44; 40]] {
            assert_eq!(Ecn::of(other), NotCapable, "{other:?}");
        }
    }

    /// RFC 1071: over a header with a true checksum it is zero.
    #[test]
    fn a_marked_packet_is_valid() {
        for tos in 0..=u8::MAX {
            let mut marked = packet(tos);
            mark(&mut marked);
            assert_eq!(marked[1], tos | 0b11);
            assert_eq!(checksum(&marked[..HEADER]), 0, "{tos}");
            assert_eq!(marked[HEADER..], [7; 20]);
        }
        let mut other = vec![0x60; 40];
        mark(&mut other);
        assert_eq!(other, [0x60; 40]);
    }
}
