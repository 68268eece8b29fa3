//! Limits of a server for its clients.

use crate::wire::frame::{BODY_MAX, FRAME_REST, SHARED_MAX, Sizes, Window};
use std::time::Duration;

/// Limits of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections in all. More are refused.
    pub connections: usize,
    /// Connections that have not authenticated themselves yet. Once there are more, the oldest one
    /// of the origin with most of them is closed: a user of this machine, or another machine.
    pub silent: usize,
    /// Time in which a client must authenticate itself.
    pub handshake: Duration,
    /// Time after which a connection is closed whose client reads nothing of what waits for it.
    pub stalled: Duration,
    /// Threads that read and write.
    pub threads: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 16_384,
            silent: 1_024,
            handshake: Duration::from_secs(10),
            stalled: Duration::from_secs(30),
            threads: 1,
        }
    }
}

/// Limits of one peer, who can have several connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Connections of the peer. More are refused.
    pub connections: usize,
    /// Whether the peer is admitted although the listener has all its connections, as servers are.
    pub is_exempt: bool,
    /// Calls under way on each connection, and bytes of their bodies and of the room for their
    /// answers.
    pub window: Window,
    /// Bytes of the largest body, and of the largest answer: at most [`BODY_MAX`].
    pub body_max: u32,
    /// Bytes of calls that the server holds for the peer, and as many of answers: once there are
    /// more, its connections are not read. Room for the largest call is always added.
    pub memory: usize,
}

impl Default for Grant {
    fn default() -> Self {
        Grant {
            connections: 1_024,
            is_exempt: false,
            window: Window { calls: 2_048, bytes: 32 << 20 },
            body_max: SHARED_MAX as u32,
            memory: 64 << 20,
        }
    }
}

impl Grant {
    /// Returns sizes that keep each other: the window holds the largest call.
    pub(crate) fn sizes(&self) -> Sizes {
        let body_max = self.body_max.clamp(1, BODY_MAX as u32);
        let calls = self.window.calls.clamp(1, u32::from(u16::MAX));
        let bytes = self.window.bytes.max(2 * body_max);
        Sizes { window: Window { calls, bytes }, body_max }
    }

    /// Returns the bytes of calls, and those of answers, that the server holds for the peer.
    pub(crate) fn memory(&self) -> (usize, usize) {
        let sizes = self.sizes();
        let largest = sizes.frame_max() + FRAME_REST;
        (self.memory.max(largest), self.memory.max(sizes.window.bytes as usize))
    }
}
