//! What was read from the device and not yet handed to portus.
//!
//! Descriptions of flows go to the [`Observer`]; everything else goes on as it came. A description
//! stays until the flow has ended and portus has been told so.

use crate::flow::{FLOW, FlowInfo, Observer};

const HEADER_LEN: usize = 8;
const MEASURE: u16 = 1;
/// Length of a MEASURE without fields, which says that a flow has ended.
const CLOSE_LEN: usize = 16;

/// Bytes of whole messages, and how far they have been handed on.
pub(crate) struct Inbox {
    buffer: Box<[u8]>,
    read: usize,
    filled: usize,
    observer: Observer,
    /// Flows whose end portus is just being told.
    ended: Vec<u32>,
    /// Bytes that were no message.
    pub(crate) malformed: u64,
}

impl Inbox {
    pub(crate) fn new(capacity: usize, observer: Observer) -> Self {
        Self {
            buffer: vec![0; capacity].into(),
            read: 0,
            filled: 0,
            observer,
            ended: Vec::with_capacity(64),
            malformed: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.read == self.filled
    }

    /// Fills the empty inbox with what `read` puts into the buffer; that is how many bytes.
    pub(crate) fn fill<E>(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        (self.read, self.filled) = (0, 0);
        self.filled = read(&mut self.buffer)?.min(self.buffer.len());
        Ok(self.filled)
    }

    /// Moves whole messages to the front of `out`; returns how many bytes.
    pub(crate) fn take(&mut self, out: &mut [u8]) -> usize {
        if !self.ended.is_empty() {
            self.observer.forget(&self.ended);
            self.ended.clear();
        }
        let mut taken = 0;
        while !self.is_empty() {
            let rest = &self.buffer[self.read..self.filled];
            let Some(len) = message_len(rest) else {
                self.malformed += rest.len() as u64;
                self.read = self.filled;
                break;
            };
            let message = &rest[..len];
            let kind = u16::from_le_bytes([message[0], message[1]]);
            let sock_id = u32::from_le_bytes([message[4], message[5], message[6], message[7]]);
            if kind == FLOW {
                if let Some(info) = FlowInfo::decode(message) {
                    self.observer.insert(sock_id, info);
                }
            } else {
                let Some(room) = out.get_mut(taken..taken + len) else {
                    break;
                };
                room.copy_from_slice(message);
                taken += len;
            }
            self.read += len;
            if kind == MEASURE && len == CLOSE_LEN {
                self.ended.push(sock_id);
                // What follows may be of another flow's life: first portus must hear of this end.
                break;
            }
        }
        taken
    }
}

/// The length of the first message, if it is whole.
fn message_len(bytes: &[u8]) -> Option<usize> {
    let header = bytes.get(..HEADER_LEN)?;
    let len = usize::from(u16::from_le_bytes([header[2], header[3]]));
    (HEADER_LEN..=bytes.len()).contains(&len).then_some(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::tests::message as description;

    fn message(kind: u16, len: u16, sock_id: u32) -> Vec<u8> {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend(len.to_le_bytes());
        bytes.extend(sock_id.to_le_bytes());
        bytes.resize(usize::from(len), 0);
        bytes
    }

    fn inbox(content: &[u8]) -> Inbox {
        let mut inbox = Inbox::new(4096, Observer::default());
        let filled = inbox.fill::<()>(|buffer| {
            buffer[..content.len()].copy_from_slice(content);
            Ok(content.len())
        });
        assert_eq!(filled, Ok(content.len()));
        inbox
    }

    #[test]
    fn descriptions_are_kept_until_the_end_is_told() {
        let (create, report, close) = (message(0, 96, 7), message(1, 24, 7), message(1, 16, 7));
        let content = [
            description(7),
            create.clone(),
            report.clone(),
            description(7),
            close.clone(),
        ];
        let mut inbox = inbox(&content.concat());
        let mut out = [0; 1024];
        let taken = inbox.take(&mut out);
        assert_eq!(out[..taken], [create, report, close].concat());
        assert!(inbox.observer.flow(7).is_some(), "portus is being told");
        assert_eq!(inbox.take(&mut out), 0);
        assert_eq!(inbox.observer.flow(7), None);
    }

    #[test]
    fn messages_are_not_cut() {
        let report = message(1, 100, 3);
        let mut inbox = inbox(&report.repeat(5));
        let mut out = [0; 250];
        assert_eq!([(); 4].map(|()| inbox.take(&mut out)), [200, 200, 100, 0]);
    }

    #[test]
    fn what_is_no_message_is_dropped_and_counted() {
        for content in [
            vec![1, 0],
            message(1, 4, 0),
            message(1, 16, 0)[..12].to_vec(),
            vec![1, 0, 200, 0, 0, 0, 0, 0],
        ] {
            let mut inbox = inbox(&content);
            assert_eq!(inbox.take(&mut [0; 1024]), 0);
            assert_eq!(
                (inbox.malformed, inbox.is_empty()),
                (content.len() as u64, true)
            );
        }
    }
}
