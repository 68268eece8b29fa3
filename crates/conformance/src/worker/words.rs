//! The arguments of a call, taken from its words one after the other.

use super::constants::constant;
use super::refusal::Refusal;
use crate::word;
use rustix::fs::{Mode, RawMode};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::str::SplitAsciiWhitespace;

/// The words that no call has taken yet.
pub struct Words<'a>(SplitAsciiWhitespace<'a>);

impl<'a> Words<'a> {
    /// Splits what a script says into words.
    pub fn new(text: &'a str) -> Self {
        Self(text.split_ascii_whitespace())
    }

    /// The next word as it is, if there is one.
    pub fn optional(&mut self) -> Option<&'a str> {
        self.0.next()
    }

    /// The next word as it is.
    pub fn word(&mut self) -> Result<&'a str, Refusal> {
        self.optional().ok_or_else(|| Refusal::broken("too few arguments"))
    }

    /// All other words as they are.
    pub fn rest(&mut self) -> Vec<&'a str> {
        self.0.by_ref().collect()
    }

    /// The bytes that the next word stands for.
    pub fn bytes(&mut self) -> Result<Vec<u8>, Refusal> {
        let word = self.word()?;
        word::decode(word).ok_or_else(|| Refusal::broken(format!("{word} is not text")))
    }

    /// The next word as a path.
    pub fn path(&mut self) -> Result<OsString, Refusal> {
        self.bytes().map(OsString::from_vec)
    }

    /// The next word as a number; see [`number`].
    pub fn number(&mut self) -> Result<i64, Refusal> {
        number(self.word()?)
    }

    /// The next word as a number, or another if there is none.
    pub fn number_or(&mut self, other: i64) -> Result<i64, Refusal> {
        self.optional().map_or(Ok(other), number)
    }

    /// The next word as a number of 32 bits, such as flags.
    pub fn flags(&mut self) -> Result<u32, Refusal> {
        self.number().map(|number| number as u32)
    }

    /// The next word as the flags of some call.
    pub fn signed_flags(&mut self) -> Result<i32, Refusal> {
        self.number().map(|number| number as i32)
    }

    /// The next word as permission bits.
    pub fn mode(&mut self) -> Result<Mode, Refusal> {
        self.number().map(|number| Mode::from_bits_retain(number as RawMode))
    }

    /// The next word as a user or group; `-` is the one that changes nothing.
    pub fn owner(&mut self) -> Result<Option<u32>, Refusal> {
        match self.word()? {
            "-" => Ok(None),
            word => number(word).map(|number| Some(number as u32)),
        }
    }
}

/// Reads a number: names of constants, octal numbers (with a leading 0), hexadecimal and decimal
/// ones with K, M, G or T, several of them joined with `|`.
pub fn number(word: &str) -> Result<i64, Refusal> {
    word.split('|').try_fold(0, |sum, part| {
        let part =
            single(part).ok_or_else(|| Refusal::broken(format!("{part} is not a number")))?;
        Ok(sum | part)
    })
}

fn single(word: &str) -> Option<i64> {
    if let Some(value) = constant(word) {
        return Some(value);
    }
    if let Some(hexadecimal) = word.strip_prefix("0x") {
        return u64::from_str_radix(hexadecimal, 16).ok().map(|value| value as i64);
    }
    if word.len() > 1 && word.starts_with('0') {
        return i64::from_str_radix(word, 8).ok();
    }
    let (digits, shift) = match word.char_indices().next_back()? {
        (end, 'K') => (&word[..end], 10),
        (end, 'M') => (&word[..end], 20),
        (end, 'G') => (&word[..end], 30),
        (end, 'T') => (&word[..end], 40),
        _ => (word, 0),
    };
    digits.parse::<i64>().ok()?.checked_mul(1 << shift)
}
