//! Layout of all bytes on a connection, the only statement of it. Numbers are little-endian.
//!
//! ```text
//! greeting, client to server    magic (8), lowest version u16, highest version u16
//! greeting, server to client    magic (8), version u16, code u8, zero u8,
//!                               window of calls u32, window of bytes u32, largest body u32,
//!                               length of text u16, text (UTF-8: why, if the code is a refusal)
//! frame                         length u32 (of all behind it), kind u8, then by kind:
//!   1  calls                    1 to 256 of: id u32, milliseconds left u32 (0: no deadline),
//!                               room u32, length u32, body
//!   2  replies                  1 to 256 of: id u32, status u8, length u32, body
//!   3  goodbye                  frames of calls that the server has taken u64
//!   4  violation                text (UTF-8): why the server closes the connection
//! ```
//!
//! Calls share a frame up to 1 MiB. A larger body, if the server has granted that, is alone in its
//! frame. A decoder checks, in this order: length, kind, each head, each body, the number of calls. It
//! allocates nothing for a frame that is too long, and nobody sees a part of a frame that is wrong.

use std::ops::Range;

/// Version of the protocol.
pub const VERSION: u16 = 1;
/// Calls, or replies, that one frame can carry.
pub const CALLS_MAX: usize = 256;
/// Bytes of calls, or replies, that share a frame.
pub const SHARED_MAX: usize = 1 << 20;
/// Bytes that the largest body of any connection can have, that of a call or of a reply.
pub const BODY_MAX: usize = 64 << 20;
/// Bytes of a frame beside its largest body.
pub(crate) const FRAME_REST: usize = 64;
/// Bytes of the length of a frame.
pub(crate) const LENGTH: usize = 4;

const MAGIC: [u8; 8] = *b"canopy\xf0\n";
pub(crate) const CLIENT_GREETING: usize = 12;
pub(crate) const SERVER_GREETING: usize = 26;
/// Bytes that a text, of a greeting or a violation, can have.
const TEXT_MAX: usize = 512;
const CALL_HEAD: usize = 16;
const REPLY_HEAD: usize = 9;

const CALLS: u8 = 1;
const REPLIES: u8 = 2;
const GOODBYE: u8 = 3;
const VIOLATION: u8 = 4;

/// Bytes from the other end that are not the protocol's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The greeting does not begin as it must.
    #[error(
        "the other end does not speak Canopy's protocol, or one side uses TLS and one does not: a \
         client has a certificate (--certificate FILE or CANOPY_CERTIFICATE=FILE) where the servers \
         have one"
    )]
    Magic,
    /// The other end speaks other versions.
    #[error(
        "the other end speaks versions {0} to {1} of the protocol, this program version {VERSION}"
    )]
    Version(u16, u16),
    /// A frame is longer than any can be.
    #[error("a frame has {0} bytes, at most {1} are allowed")]
    Length(usize, usize),
    /// The kind is unknown, or not one that this end may get.
    #[error("a frame has the unexpected kind {0}")]
    Kind(u8),
    /// A frame ends within a head or a body.
    #[error("a frame ends within a call")]
    Torn,
    /// A frame has no calls, or more than it may.
    #[error("a frame has {0} calls, 1 to {CALLS_MAX} are allowed")]
    Calls(usize),
    /// A body is longer than any can be.
    #[error("a body has {0} bytes, at most {1} are allowed")]
    Body(usize, usize),
    /// A reply may be longer than any can be.
    #[error("a reply of {0} bytes is asked for, at most {1} are allowed")]
    Room(usize, usize),
    /// The status of a reply is unknown.
    #[error("a reply has the unknown status {0}")]
    Status(u8),
    /// A reply is for no call.
    #[error("a reply is for an unknown call")]
    Id,
    /// More calls, or bytes, are under way than the server has granted.
    #[error("the window of {calls} calls and {bytes} bytes is exceeded")]
    Window {
        /// Calls that the server has granted.
        calls: u32,
        /// Bytes of bodies and of room for replies that the server has granted.
        bytes: u32,
    },
    /// The server has found such a fault in what this end sent.
    #[error("the server has closed the connection: {0}")]
    Reported(String),
}

/// Calls and bytes that a client may have under way on one connection. Bytes are those of the
/// bodies, and those that their replies may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Calls without a reply.
    pub calls: u32,
    /// Bytes of these calls.
    pub bytes: u32,
}

/// Sizes that a server grants a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) window: Window,
    /// Bytes that a body can have, at most [`BODY_MAX`].
    pub(crate) body_max: u32,
}

impl Sizes {
    /// Returns the bytes that a frame can have behind its length.
    pub(crate) fn frame_max(&self) -> usize {
        (self.body_max as usize).clamp(SHARED_MAX, BODY_MAX) + FRAME_REST
    }
}

/// Code of the server's greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Welcome = 0,
    Version = 1,
    Connections = 2,
    Denied = 3,
}

/// The server's greeting.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Greeting {
    pub(crate) version: u16,
    pub(crate) admission: Admission,
    pub(crate) sizes: Sizes,
    /// Bytes of the text that follow.
    pub(crate) text: usize,
}

/// Returns the client's greeting.
pub(crate) fn client_greeting() -> [u8; CLIENT_GREETING] {
    let mut bytes = [0; CLIENT_GREETING];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    bytes[10..].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// Checks the client's greeting.
pub(crate) fn check_client_greeting(bytes: &[u8; CLIENT_GREETING]) -> Result<(), FrameError> {
    if bytes[..8] != MAGIC {
        return Err(FrameError::Magic);
    }
    let lowest = u16::from_le_bytes([bytes[8], bytes[9]]);
    let highest = u16::from_le_bytes([bytes[10], bytes[11]]);
    match (lowest..=highest).contains(&VERSION) {
        true => Ok(()),
        false => Err(FrameError::Version(lowest, highest)),
    }
}

/// Returns the server's greeting.
pub(crate) fn server_greeting(admission: Admission, sizes: Sizes, text: &str) -> Vec<u8> {
    let text = &text.as_bytes()[..text.floor_char_boundary(TEXT_MAX)];
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend([admission as u8, 0]);
    bytes.extend(sizes.window.calls.to_le_bytes());
    bytes.extend(sizes.window.bytes.to_le_bytes());
    bytes.extend(sizes.body_max.to_le_bytes());
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text);
    bytes
}

/// Decodes the server's greeting, without its text.
pub(crate) fn decode_greeting(bytes: &[u8; SERVER_GREETING]) -> Result<Greeting, FrameError> {
    if bytes[..8] != MAGIC {
        return Err(FrameError::Magic);
    }
    let version = u16::from_le_bytes([bytes[8], bytes[9]]);
    let admission = match bytes[10] {
        0 => Admission::Welcome,
        1 => Admission::Version,
        2 => Admission::Connections,
        _ => Admission::Denied,
    };
    if admission == Admission::Welcome && version != VERSION {
        return Err(FrameError::Version(version, version));
    }
    let window = Window { calls: u32_at(bytes, 12)?, bytes: u32_at(bytes, 16)? };
    let body_max = u32_at(bytes, 20)?.min(BODY_MAX as u32);
    let text = usize::from(u16::from_le_bytes([bytes[24], bytes[25]])).min(TEXT_MAX);
    Ok(Greeting { version, admission, sizes: Sizes { window, body_max }, text })
}

/// How a server has ended a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// The body is the answer.
    Answered = 0,
    /// The service refused the call and has not executed it; the body is the reason.
    Refused = 1,
    /// The service dropped the call.
    Failed = 2,
    /// The answer was longer than the room for it.
    TooLarge = 3,
    /// The deadline had passed before the service got the call.
    Expired = 4,
}

/// A call in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallEntry {
    pub(crate) id: u32,
    /// 0 means without a deadline.
    pub(crate) left_ms: u32,
    /// Bytes that the reply can have.
    pub(crate) room: u32,
    /// Place in the frame.
    pub(crate) body: Range<usize>,
}

/// A reply in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplyEntry {
    pub(crate) id: u32,
    pub(crate) status: Status,
    /// Place in the frame.
    pub(crate) body: Range<usize>,
}

/// A frame that a client gets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ToClient {
    Replies(Vec<ReplyEntry>),
    /// The number of frames of calls that the server has taken. It takes no more.
    Goodbye(u64),
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, FrameError> {
    let bytes = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map(u32::from_le_bytes).ok_or(FrameError::Torn)
}

/// Decodes the length of a frame.
pub(crate) fn frame_length(bytes: [u8; LENGTH], frame_max: usize) -> Result<usize, FrameError> {
    match u32::from_le_bytes(bytes) as usize {
        0 => Err(FrameError::Torn),
        length if length > frame_max => Err(FrameError::Length(length, frame_max)),
        length => Ok(length),
    }
}

/// Returns the place of the body of a call or a reply, whose length is at `at`.
fn body(frame: &[u8], at: usize) -> Result<Range<usize>, FrameError> {
    let length = u32_at(frame, at)? as usize;
    let body = at + 4..at + 4 + length;
    if body.end > frame.len() { Err(FrameError::Torn) } else { Ok(body) }
}

/// Decodes all that a frame has behind its kind, with a function that decodes one entry from a
/// place on, and returns where it ends.
fn entries<T>(
    frame: &[u8],
    least: usize,
    decode: impl Fn(usize) -> Result<(T, usize), FrameError>,
) -> Result<Vec<T>, FrameError> {
    let mut found = Vec::with_capacity(((frame.len() - 1) / least).min(CALLS_MAX));
    let mut at = 1;
    while at < frame.len() {
        if found.len() == CALLS_MAX {
            return Err(FrameError::Calls(CALLS_MAX + 1));
        }
        let (entry, end) = decode(at)?;
        found.push(entry);
        at = end;
    }
    if found.is_empty() { Err(FrameError::Calls(0)) } else { Ok(found) }
}

/// Decodes a frame that a server gets: calls.
pub(crate) fn decode_calls(frame: &[u8], body_max: u32) -> Result<Vec<CallEntry>, FrameError> {
    match frame.first() {
        Some(&CALLS) => {}
        Some(&kind) => return Err(FrameError::Kind(kind)),
        None => return Err(FrameError::Torn),
    }
    entries(frame, CALL_HEAD, |at| {
        let room = u32_at(frame, at + 8)?;
        if room > body_max {
            return Err(FrameError::Room(room as usize, body_max as usize));
        }
        let body = body(frame, at + 12)?;
        if body.len() > body_max as usize {
            return Err(FrameError::Body(body.len(), body_max as usize));
        }
        let (id, left_ms, end) = (u32_at(frame, at)?, u32_at(frame, at + 4)?, body.end);
        Ok((CallEntry { id, left_ms, room, body }, end))
    })
}

/// Decodes a frame that a client gets.
pub(crate) fn decode_to_client(frame: &[u8]) -> Result<ToClient, FrameError> {
    match frame.first() {
        Some(&REPLIES) => decode_replies(frame).map(ToClient::Replies),
        Some(&GOODBYE) => {
            let taken = frame[1..].try_into().map_err(|_| FrameError::Torn)?;
            Ok(ToClient::Goodbye(u64::from_le_bytes(taken)))
        }
        Some(&VIOLATION) => {
            let text = String::from_utf8_lossy(&frame[1..frame.len().min(1 + TEXT_MAX)]);
            Err(FrameError::Reported(text.into_owned()))
        }
        Some(&kind) => Err(FrameError::Kind(kind)),
        None => Err(FrameError::Torn),
    }
}

fn decode_replies(frame: &[u8]) -> Result<Vec<ReplyEntry>, FrameError> {
    entries(frame, REPLY_HEAD, |at| {
        let id = u32_at(frame, at)?;
        let status = match frame.get(at + 4).copied().ok_or(FrameError::Torn)? {
            0 => Status::Answered,
            1 => Status::Refused,
            2 => Status::Failed,
            3 => Status::TooLarge,
            4 => Status::Expired,
            other => return Err(FrameError::Status(other)),
        };
        let body = body(frame, at + 5)?;
        let end = body.end;
        Ok((ReplyEntry { id, status, body }, end))
    })
}

/// Encodes frames: calls or replies join the open frame until it is full or taken.
#[derive(Default)]
pub(crate) struct FrameWriter {
    bytes: Vec<u8>,
    /// Begin of the open frame, and its calls.
    open: Option<(usize, usize)>,
    /// Frames that were begun, ever.
    begun: u64,
}

impl FrameWriter {
    /// Returns whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the number of frames that were begun so far.
    pub(crate) fn begun(&self) -> u64 {
        self.begun
    }

    /// Has room for an entry of `bytes` in the open frame of this kind: of a new one, if need be.
    fn open(&mut self, kind: u8, bytes: usize) {
        if let Some((begin, calls)) = &mut self.open
            && *calls < CALLS_MAX
            && self.bytes.len() - *begin - LENGTH + bytes <= SHARED_MAX
        {
            *calls += 1;
            return;
        }
        self.close();
        self.open = Some((self.bytes.len(), 1));
        self.begun += 1;
        self.bytes.extend([0, 0, 0, 0, kind]);
    }

    fn close(&mut self) {
        if let Some((begin, _)) = self.open.take() {
            let length = (self.bytes.len() - begin - LENGTH) as u32;
            self.bytes[begin..begin + LENGTH].copy_from_slice(&length.to_le_bytes());
        }
    }

    /// Adds a call. The body has at most as many bytes as the server has granted.
    pub(crate) fn call(&mut self, id: u32, left_ms: u32, room: u32, body: &[u8]) {
        self.open(CALLS, CALL_HEAD + body.len());
        let mut head = [0; CALL_HEAD];
        head[..4].copy_from_slice(&id.to_le_bytes());
        head[4..8].copy_from_slice(&left_ms.to_le_bytes());
        head[8..12].copy_from_slice(&room.to_le_bytes());
        head[12..].copy_from_slice(&(body.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(&head);
        self.bytes.extend_from_slice(body);
    }

    /// Adds a reply. The body has at most as many bytes as the call has room for.
    pub(crate) fn reply(&mut self, id: u32, status: Status, body: &[u8]) {
        self.open(REPLIES, REPLY_HEAD + body.len());
        let mut head = [0; REPLY_HEAD];
        head[..4].copy_from_slice(&id.to_le_bytes());
        head[4] = status as u8;
        head[5..].copy_from_slice(&(body.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(&head);
        self.bytes.extend_from_slice(body);
    }

    /// Adds a frame of its own.
    fn frame(&mut self, kind: u8, body: &[u8]) {
        self.close();
        self.bytes.extend((1 + body.len() as u32).to_le_bytes());
        self.bytes.push(kind);
        self.bytes.extend(body);
    }

    /// Says that the server takes no more frames than these.
    pub(crate) fn goodbye(&mut self, taken: u64) {
        self.frame(GOODBYE, &taken.to_le_bytes());
    }

    /// Says why the connection will be closed.
    pub(crate) fn violation(&mut self, text: &str) {
        self.frame(VIOLATION, &text.as_bytes()[..text.floor_char_boundary(TEXT_MAX)]);
    }

    /// Moves all frames into `buffer`, which must be empty and whose memory is used next.
    pub(crate) fn take(&mut self, buffer: &mut Vec<u8>) {
        self.close();
        std::mem::swap(&mut self.bytes, buffer);
    }
}

pub(crate) mod fuzzing;
#[cfg(test)]
mod tests;
