//! Frames, the form of all requests and answers, numbers in little endian:
//!
//! | bytes | content |
//! | --- | --- |
//! | 4 | length of the body |
//! | 8 | number of the request, which its answer repeats; 0 where one request follows another |
//! | 1 | 1 for a heavy request, else 0 |
//! | length | the body, in Postcard |
//!
//! The length is checked against [`FRAME_BYTES_MAX`] before anything is allocated or read.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, ErrorKind, Read, Write};

/// Most bytes of a body.
pub const FRAME_BYTES_MAX: usize = 1 << 20;

/// Bytes in front of the body.
const HEAD_BYTES: usize = 13;

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Bytes of the body.
    length: usize,
    /// The number that an answer has in common with its request.
    pub(crate) number: u64,
    /// Whether answering takes long, and much of a processor.
    pub(crate) is_heavy: bool,
}

impl Head {
    fn parse(bytes: [u8; HEAD_BYTES]) -> io::Result<Self> {
        let [l0, l1, l2, l3, number @ .., flag] = bytes;
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(io::Error::other("a frame is too long"));
        }
        if flag > 1 {
            return Err(ErrorKind::InvalidData.into());
        }
        Ok(Head { length, number: u64::from_le_bytes(number), is_heavy: flag == 1 })
    }
}

/// An encoded request or answer.
pub(crate) struct Frame(Vec<u8>);

impl Frame {
    /// Encodes a body. Fails if it is longer than any may be.
    pub(crate) fn encode(what: &impl Serialize) -> io::Result<Self> {
        Self::of_bytes(postcard::to_extend(what, vec![0; HEAD_BYTES]))
    }

    fn of_bytes(encoded: postcard::Result<Vec<u8>>) -> io::Result<Self> {
        let bytes = encoded.map_err(io::Error::other)?;
        if bytes.len() - HEAD_BYTES > FRAME_BYTES_MAX {
            return Err(io::Error::other("a frame would be too long"));
        }
        Ok(Frame(bytes))
    }

    /// Writes the frame in one call, unless it is interrupted.
    pub(crate) fn send(
        &mut self,
        mut to: impl Write,
        number: u64,
        is_heavy: bool,
    ) -> io::Result<()> {
        let length = (self.0.len() - HEAD_BYTES) as u32;
        self.0[..4].copy_from_slice(&length.to_le_bytes());
        self.0[4..12].copy_from_slice(&number.to_le_bytes());
        self.0[12] = u8::from(is_heavy);
        to.write_all(&self.0)
    }
}

/// Reads one frame, and its body into `body`. Fails with `UnexpectedEof` at the end of all frames,
/// too.
pub(crate) fn receive(mut from: impl Read, body: &mut Vec<u8>) -> io::Result<Head> {
    let mut bytes = [0; HEAD_BYTES];
    from.read_exact(&mut bytes)?;
    let head = Head::parse(bytes)?;
    body.clear();
    body.resize(head.length, 0);
    from.read_exact(body)?;
    Ok(head)
}

/// Takes the body of the first frame out of what was received; `None` if it is not all there.
pub(crate) fn take(received: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    let Some(bytes) = received.first_chunk() else { return Ok(None) };
    let end = HEAD_BYTES + Head::parse(*bytes)?.length;
    if received.len() < end {
        return Ok(None);
    }
    let body = received[HEAD_BYTES..end].to_vec();
    received.drain(..end);
    Ok(Some(body))
}

/// Decodes a body, all of it.
pub(crate) fn decode<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    let (decoded, rest) = postcard::take_from_bytes(body).map_err(io::Error::other)?;
    match rest.is_empty() {
        true => Ok(decoded),
        false => Err(ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(what: &impl Serialize, number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        Frame::encode(what).and_then(|mut frame| frame.send(&mut bytes, number, true)).unwrap();
        bytes
    }

    #[test]
    fn frames_are_bounded_and_whole() {
        let bytes = frame(&(3_u64, "three"), 7);
        let mut body = Vec::new();
        let head = receive(&bytes[..], &mut body).expect("the frame");
        assert_eq!((head.number, head.is_heavy, head.length), (7, true, body.len()));
        let (number, text): (u64, String) = decode(&body).expect("the body");
        assert_eq!((number, &*text), (3, "three"));
        for end in 0..bytes.len() {
            let error = receive(&bytes[..end], &mut body).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{end}");
        }
        let mut long = bytes.clone();
        long[..4].copy_from_slice(&(FRAME_BYTES_MAX as u32 + 1).to_le_bytes());
        assert!(receive(&long[..], &mut body).is_err() && take(&mut long).is_err());
        let mut flagged = bytes.clone();
        flagged[12] = 2;
        assert!(receive(&flagged[..], &mut body).is_err());
        assert!(Frame::encode(&"x".repeat(FRAME_BYTES_MAX)).is_err());
        assert!(Frame::encode(&"x".repeat(FRAME_BYTES_MAX - 3)).is_ok());
    }

    #[test]
    fn bodies_are_decoded_strictly() {
        let body = &frame(&(3_u64, "three"), 7)[HEAD_BYTES..];
        assert!(decode::<(u64, String)>(body).is_ok());
        assert!(decode::<(u64, String)>(&body[..body.len() - 1]).is_err());
        assert!(decode::<u64>(body).is_err(), "more than there should be");
        assert!(decode::<(u64, String)>(&[3, 0xff, 0xff, 0xff, 0xff, 0x0f]).is_err());
    }

    #[test]
    fn frames_are_taken_out_however_they_come() {
        let bytes = [frame(&"one", 1), frame(&"", 2), frame(&"three", 3)].concat();
        for chunk in 1..bytes.len() {
            let (mut received, mut found) = (Vec::new(), Vec::new());
            for some in bytes.chunks(chunk) {
                received.extend_from_slice(some);
                while let Some(body) = take(&mut received).expect("frames") {
                    found.push(decode::<String>(&body).expect("a text"));
                }
            }
            assert_eq!(found, ["one", "", "three"], "{chunk}");
            assert!(received.is_empty());
        }
    }
}
