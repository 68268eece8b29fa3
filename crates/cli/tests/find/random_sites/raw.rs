//! Names that a user finds who reads the files of an index without the command.

use super::asked::{Raw, token_of};
use super::names::{Token, tokens};
use super::site::Site;
use arrow::array::{Array, AsArray};
use arrow::datatypes::DataType;
use common::User;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::common;

/// A letter or digit more in one piece makes part of a name in the index one that is by chance.
const RANDOM_PART: usize = 16;

/// All files of an index, decoded.
pub struct Files(BTreeMap<PathBuf, Decoded>);

struct Decoded {
    /// Everything that the file says, as text.
    text: Vec<u8>,
    tokens: BTreeSet<Token>,
}

impl Files {
    /// Reads all files as root.
    pub fn read(index: &Path) -> Self {
        let mut files = BTreeMap::new();
        for path in common::all_paths(index).into_iter().filter(|path| path.is_file()) {
            let text = decoded(&path);
            files.insert(path, Decoded { tokens: tokens(&text), text });
        }
        Files(files)
    }

    pub fn paths(&self) -> Vec<PathBuf> {
        self.0.keys().cloned().collect()
    }

    /// Returns the random parts of names and values that a file has.
    pub fn tokens(&self, path: &Path) -> &BTreeSet<Token> {
        &self.0[path].tokens
    }

    /// Asserts that the names of all entries that the index should have are found by this search.
    pub fn assert_has(&self, site: &Site, covered: &[PathBuf]) {
        let all: BTreeSet<&Token> = self.0.values().flat_map(|file| &file.tokens).collect();
        for path in covered.iter().filter(|path| !site.sources.contains(path)) {
            let token = token_of(path).expect("every name has a token");
            assert!(all.contains(&token), "seed {}: root reads nothing of {path:?}", site.seed);
        }
    }

    /// Asserts that a user reads no name, and no value, that the kernel does not show: from the top
    /// alone in files found by what the index tells, with all paths known in those found by chance.
    /// Returns how many of those there were.
    pub fn assert_closed(&self, site: &Site, user: &User, raw: &Raw) -> usize {
        let told = self.discoverable(raw);
        for path in &raw.opened {
            let (allowed, how) = match told.contains(path) {
                true => (&raw.listed, "told"),
                false => (&raw.known, "guessed"),
            };
            let found = &self.0[path].tokens - allowed;
            let found: Vec<_> = found.iter().map(|t| String::from_utf8_lossy(t)).collect();
            let seed = site.seed;
            assert!(found.is_empty(), "seed {seed} {user:?} reads {found:?} in {path:?} ({how})");
        }
        raw.opened.difference(&told).count()
    }

    /// Returns the files that a user finds without guessing: by listing, or because files found
    /// before contain the random parts of their paths.
    fn discoverable(&self, raw: &Raw) -> BTreeSet<PathBuf> {
        let mut told: BTreeSet<PathBuf> = raw.opened.intersection(&raw.walked).cloned().collect();
        loop {
            let is_told = |part: &[u8]| {
                let bytes = bytes_of_hex(part);
                told.iter().any(|path| {
                    let text = &self.0[path].text;
                    contains(text, part) || bytes.as_ref().is_some_and(|part| contains(text, part))
                })
            };
            let more = raw.opened.difference(&told);
            let all_told = |path: &&PathBuf| {
                let listed = raw.walked.iter().any(|walked| walked.parent() == path.parent());
                let parts = random_parts(path);
                parts.iter().all(|part| is_told(part) || (listed && !ends_with_part(path, part)))
            };
            let more: Vec<PathBuf> = more.filter(all_told).cloned().collect();
            if more.is_empty() {
                return told;
            }
            told.extend(more);
        }
    }
}

fn ends_with_part(path: &Path, part: &[u8]) -> bool {
    contains(path.file_name().unwrap().as_bytes(), part)
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// The bytes of hexadecimal digits, if they are such.
fn bytes_of_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.chunks(2).map(byte).collect()
}

/// Parts of a path that nobody can guess.
fn random_parts(path: &Path) -> Vec<&[u8]> {
    let parts = path.as_os_str().as_bytes().split(|byte| !byte.is_ascii_alphanumeric());
    parts.filter(|part| part.len() >= RANDOM_PART).collect()
}

/// Returns all that a file says: its bytes, and what they stand for.
fn decoded(path: &Path) -> Vec<u8> {
    let mut text = fs::read(path).unwrap();
    if path.extension().is_some_and(|extension| extension == "parquet") {
        rows(path, &mut text);
    } else if text.starts_with(b"canopy ") {
        let document = canopy_index::fuzzing::describe(&text);
        text.extend(document.unwrap_or_default().bytes());
    }
    text
}

/// Adds all texts in a Parquet file, and what its footer says beside the columns.
fn rows(path: &Path, text: &mut Vec<u8>) {
    let reader = ParquetRecordBatchReaderBuilder::try_new(fs::File::open(path).unwrap()).unwrap();
    for pair in reader.metadata().file_metadata().key_value_metadata().into_iter().flatten() {
        text.extend(pair.value.iter().flat_map(|value| value.bytes()));
        text.push(0);
    }
    for batch in reader.build().unwrap() {
        for column in batch.unwrap().columns() {
            let mut add = |value: &[u8]| {
                text.extend(value);
                text.push(0);
            };
            match column.data_type() {
                DataType::Utf8 => {
                    column.as_string::<i32>().iter().flatten().for_each(|v| add(v.as_bytes()))
                }
                DataType::Binary => column.as_binary::<i32>().iter().flatten().for_each(add),
                other => {
                    assert!(other.is_primitive() || column.is_empty(), "{other}: texts unread")
                }
            }
        }
    }
}
