//! Calls of a client that are in frames, and the window of their connection.

use crate::wire::duplex::SharedDuplex;
use crate::wire::error::Refusal;
use crate::wire::frame::{FrameWriter, Sizes};
use crate::wire::link::ClientEnd;
use crate::wire::pending::Slot;
use crate::wire::security::Stream;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Instant;

/// A connection that takes calls.
pub(crate) struct Live {
    pub(crate) number: u64,
    pub(crate) sizes: Sizes,
    pub(crate) writer: FrameWriter,
    /// Frames that the task has taken to write them.
    pub(crate) taken: u64,
    under_way: Vec<Place>,
    free: Vec<u16>,
    pub(crate) calls: usize,
    bytes: usize,
    pub(crate) waker: Option<Waker>,
    /// The connection itself.
    pub(crate) duplex: Weak<SharedDuplex<Stream, ClientEnd>>,
}

/// A place for a call under way. Its number and generation are the call's id.
#[derive(Default)]
pub(crate) struct Place {
    generation: u16,
    call: Option<UnderWay>,
}

pub(crate) struct UnderWay {
    pub(crate) slot: Arc<Slot>,
    /// Number of its frame, from 1.
    pub(crate) frame: u64,
    /// Its part of the window.
    bytes: usize,
}

impl Live {
    pub(crate) fn new(
        number: u64,
        sizes: Sizes,
        duplex: Weak<SharedDuplex<Stream, ClientEnd>>,
    ) -> Self {
        Live {
            number,
            sizes,
            writer: FrameWriter::default(),
            taken: 0,
            under_way: Vec::new(),
            free: Vec::new(),
            calls: 0,
            bytes: 0,
            waker: None,
            duplex,
        }
    }

    /// Returns whether the window has room for a call now.
    pub(crate) fn has_room(&self, body: usize, room: u32) -> bool {
        let window = self.sizes.window;
        self.calls < window.calls.min(u32::from(u16::MAX)) as usize
            && self.bytes + body + room as usize <= window.bytes as usize
    }

    /// Returns the reason why a call can never be sent.
    pub(crate) fn refusal(&self, body: usize, room: u32) -> Option<Refusal> {
        let (bytes, limit) = (body.max(room as usize), self.sizes.body_max as usize);
        if bytes > limit {
            return Some(Refusal::TooLarge { bytes, limit });
        }
        let (bytes, limit) = (body + room as usize, self.sizes.window.bytes as usize);
        (bytes > limit).then_some(Refusal::TooLarge { bytes, limit })
    }

    /// Puts a call into a frame.
    pub(crate) fn push(&mut self, slot: Arc<Slot>, body: &[u8], now: Instant) {
        let at = self.free.pop().unwrap_or_else(|| {
            self.under_way.push(Place::default());
            (self.under_way.len() - 1) as u16
        });
        let place = &mut self.under_way[usize::from(at)];
        let id = u32::from(at) | u32::from(place.generation) << 16;
        let left = slot.deadline.saturating_duration_since(now).as_millis();
        let left = u32::try_from(left).unwrap_or(u32::MAX).max(1);
        self.writer.call(id, left, slot.room, body);
        let bytes = body.len() + slot.room as usize;
        place.call = Some(UnderWay { slot, frame: self.writer.begun(), bytes });
        self.calls += 1;
        self.bytes += bytes;
    }

    /// Takes the call with an id.
    pub(crate) fn remove(&mut self, id: u32) -> Option<Arc<Slot>> {
        let (at, generation) = (id as u16, (id >> 16) as u16);
        let place = self.under_way.get_mut(usize::from(at))?;
        if place.generation != generation {
            return None;
        }
        let UnderWay { slot, bytes, .. } = place.call.take()?;
        place.generation = generation.wrapping_add(1);
        self.free.push(at);
        self.calls -= 1;
        self.bytes -= bytes;
        Some(slot)
    }

    /// Takes all calls for which `is_taken` holds of the number of their frame.
    pub(crate) fn remove_all(&mut self, is_taken: impl Fn(u64) -> bool) -> Vec<UnderWay> {
        let mut removed = Vec::new();
        for (at, place) in self.under_way.iter_mut().enumerate() {
            if let Some(call) = place.call.take_if(|call| is_taken(call.frame)) {
                place.generation = place.generation.wrapping_add(1);
                self.free.push(at as u16);
                self.calls -= 1;
                self.bytes -= call.bytes;
                removed.push(call);
            }
        }
        removed
    }
}
