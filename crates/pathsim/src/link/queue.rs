//! Packets that wait, in the order in which they came.

use std::collections::VecDeque;

/// A packet that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting<T> {
    /// When it came, ns.
    pub(super) since_ns: u64,
    pub(super) bytes: u32,
    pub(super) packet: T,
}

/// First in, first out; knows its length in bytes.
#[derive(Clone, Debug)]
pub(super) struct Fifo<T> {
    waiting: VecDeque<Waiting<T>>,
    bytes: u64,
}

impl<T> Default for Fifo<T> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            bytes: 0,
        }
    }
}

impl<T> Fifo<T> {
    pub(super) fn push(&mut self, waiting: Waiting<T>) {
        self.bytes += u64::from(waiting.bytes);
        self.waiting.push_back(waiting);
    }

    pub(super) fn pop(&mut self) -> Option<Waiting<T>> {
        let first = self.waiting.pop_front()?;
        self.bytes -= u64::from(first.bytes);
        Some(first)
    }

    /// The one that came last, which leaves again.
    pub(super) fn pop_last(&mut self) -> Option<Waiting<T>> {
        let last = self.waiting.pop_back()?;
        self.bytes -= u64::from(last.bytes);
        Some(last)
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    #[cfg(test)]
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Waiting<T>> {
        self.waiting.iter_mut()
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Waiting<T>> {
        self.waiting.iter()
    }
}
