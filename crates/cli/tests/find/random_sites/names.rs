//! Names of which each has a random part that no other one has, so that a name can be searched for
//! in whatever a user can read.

use crate::common;

use rand::RngExt;
use rand::rngs::StdRng;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// The random part of a name, which stands between two marks.
pub type Token = [u8; 8];

const MARK: u8 = b'~';

/// Names that were given out.
#[derive(Default)]
pub struct Names {
    count: usize,
}

impl Names {
    /// Returns a new name of all kinds of bytes.
    pub fn odd(&mut self, random: &mut StdRng) -> OsString {
        self.count += 1;
        let mut name = common::odd_name(random, self.count).into_vec();
        name.truncate(245);
        name.extend(marked(random));
        OsString::from_vec(name)
    }

    /// Returns a new name that begins like this.
    pub fn plain(&mut self, begin: &str, random: &mut StdRng) -> String {
        format!("{begin}{}", String::from_utf8(marked(random)).unwrap())
    }
}

fn marked(random: &mut StdRng) -> Vec<u8> {
    let digits = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut marked = vec![MARK];
    marked.extend((0..8).map(|_| digits[random.random_range(0..digits.len())]));
    marked.push(MARK);
    marked
}

/// Returns the random parts of all names in a text.
pub fn tokens(text: &[u8]) -> BTreeSet<Token> {
    let mut found = BTreeSet::new();
    for (at, _) in text.iter().enumerate().filter(|(_, byte)| **byte == MARK) {
        let Some(token) = text.get(at + 1..at + 10) else { continue };
        if token[8] == MARK && token[..8].iter().all(u8::is_ascii_alphanumeric) {
            found.insert(token[..8].try_into().unwrap());
        }
    }
    found
}
