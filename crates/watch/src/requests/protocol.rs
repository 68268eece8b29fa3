//! Messages between a user and the daemon.
//!
//! A user sends [`GREETING`], then the absolute real paths of directories, [`PATHS_MAX`] at most,
//! each with a NUL behind it, and another NUL. The answers come in the order of the paths, a line
//! each: a letter and a number. Both sides may close the connection at any time.

use canopy_model::Generation;
use std::time::Duration;

/// Name of the socket in the directory of an index.
pub(crate) const SOCKET: &str = "requests";

/// First bytes from a user: the version of the protocol.
pub(crate) const GREETING: &[u8] = b"canopy requests 1\0";

/// Directories that one connection can ask for.
pub(crate) const PATHS_MAX: usize = 64;

/// Bytes of a path, without a NUL.
pub(crate) const PATH_BYTES_MAX: usize = libc::PATH_MAX as usize - 1;

/// Most bytes from a user.
pub(crate) const BYTES_MAX: usize = GREETING.len() + PATHS_MAX * (PATH_BYTES_MAX + 1) + 1;

/// Bytes of a line, more than any answer has.
const LINE_BYTES_MAX: usize = 32;

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This generation has the directory's state from after the request.
    Updated(Generation),
    /// The user cannot list it, by this errno.
    Denied(i32),
    /// No followed tree contains it.
    Elsewhere,
    /// The user has used up the credit, and may ask again after this time.
    Spent(Duration),
    /// Too many requests wait, or what is under way has taken too long.
    Busy,
    /// Listing it was given up after this time.
    TooLong(Duration),
}

impl Answer {
    /// Returns the line for it.
    pub(crate) fn line(self) -> String {
        let (letter, number) = match self {
            Answer::Updated(generation) => ('u', generation.0),
            Answer::Denied(errno) => ('d', errno.unsigned_abs().into()),
            Answer::Elsewhere => ('e', 0),
            Answer::Spent(time) => ('s', time.as_secs()),
            Answer::Busy => ('b', 0),
            Answer::TooLong(time) => ('t', time.as_secs()),
        };
        format!("{letter}{number}\n")
    }

    /// Reads a line without its end; `None` if it is none.
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        let (letter, number) = std::str::from_utf8(line).ok()?.split_at_checked(1)?;
        let number: u64 = number.parse().ok()?;
        Some(match letter {
            "u" => Answer::Updated(Generation(number)),
            "d" => Answer::Denied(number.try_into().ok()?),
            "e" => Answer::Elsewhere,
            "s" => Answer::Spent(Duration::from_secs(number)),
            "b" => Answer::Busy,
            "t" => Answer::TooLong(Duration::from_secs(number)),
            _ => return None,
        })
    }
}

/// Parts of a stream that end with the same byte.
pub(crate) struct Parts {
    bytes: Vec<u8>,
    end: u8,
    length_max: usize,
}

impl Parts {
    /// Lines of answers.
    pub(crate) fn lines() -> Self {
        Parts { bytes: Vec::new(), end: b'\n', length_max: LINE_BYTES_MAX }
    }

    /// Paths, and what stands in front of them.
    pub(crate) fn paths() -> Self {
        Parts { bytes: Vec::new(), end: 0, length_max: PATH_BYTES_MAX + 1 }
    }

    /// Adds what was read.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the next part out, without its end; `None` if it is not all there. Fails if it is
    /// longer than any may be.
    pub(crate) fn next(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        let end = self.bytes.iter().position(|&byte| byte == self.end);
        if end.unwrap_or(self.bytes.len()) > self.length_max {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        Ok(end.map(|end| {
            let part = self.bytes[..end].to_vec();
            self.bytes.drain(..=end);
            part
        }))
    }

    /// Whether nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn answers_are_read_as_they_were_written() {
        for answer in [
            Answer::Updated(Generation(u64::MAX)),
            Answer::Denied(libc::EACCES),
            Answer::Elsewhere,
            Answer::Spent(Duration::from_secs(7)),
            Answer::Busy,
            Answer::TooLong(Duration::from_secs(30)),
        ] {
            let mut lines = Parts::lines();
            lines.add(answer.line().as_bytes());
            let line = lines.next().unwrap().unwrap();
            assert_eq!(Answer::parse(&line), Some(answer));
        }
        for line in ["", "u", "x1", "d99999999999", "u1 ", "\u{e4}1"] {
            assert_eq!(Answer::parse(line.as_bytes()), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn parts_are_the_same_however_they_come(
            paths in prop::collection::vec(prop::collection::vec(1_u8.., 0..40), 0..8),
            chunk in 1_usize..30,
        ) {
            let bytes: Vec<u8> = paths.iter().flat_map(|path| [path, &[0][..]].concat()).collect();
            let mut parts = Parts::paths();
            let mut found = Vec::new();
            for some in bytes.chunks(chunk) {
                parts.add(some);
                while let Some(part) = parts.next().unwrap() {
                    found.push(part);
                }
            }
            prop_assert_eq!(found, paths);
            parts.add(&vec![b'x'; PATH_BYTES_MAX + 2]);
            prop_assert!(parts.next().is_err());
        }
    }
}
