//! The journal of a writer: what it is about to make or to remove, written down before.
//!
//! `INDEX/journal` is there while a generation is being written, and after a writer that did not
//! come to its end, so that the next writer ends what it has begun; nothing is ever removed because
//! of what it is called. Its first line is `canopy journal FORMAT GENERATION`; each other one has a
//! CRC-32 in hexadecimal and that of which it is: `make`, `remove` or `close` and a path below the
//! index. A line that a crash has torn names nothing: what it was about to name was not made.

use crate::error::{Error, Result};
use crate::names;
use crate::plain_file;
use crate::schema::FORMAT;
use canopy_model::Generation;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

/// Most bytes of a journal that are read: far more than a generation has files.
const BYTES_MAX: u64 = 1 << 30;

/// The journal of one generation; its file is made with the first name.
#[derive(Debug)]
pub(crate) struct Journal {
    index: PathBuf,
    path: PathBuf,
    generation: Generation,
    /// Whether it was made before, and may be taken away.
    is_workers: bool,
    file: Mutex<Option<File>>,
}

/// Operation that a writer is about to do with a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// Make it.
    Make,
    /// Remove it once the generation is committed.
    Remove,
    /// Restrict it to its owner once the generation is committed.
    Close,
}

impl Intent {
    const ALL: [Intent; 3] = [Intent::Make, Intent::Remove, Intent::Close];

    fn word(self) -> &'static str {
        match self {
            Intent::Make => "make",
            Intent::Remove => "remove",
            Intent::Close => "close",
        }
    }
}

/// The journal that a crashed writer has left.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Leftover {
    /// The generation that it was writing; 0 if that is not known.
    pub(crate) generation: Generation,
    /// Intended operations, with paths below the index.
    pub(crate) intents: Vec<(Intent, PathBuf)>,
}

impl Journal {
    /// Returns the journal of a generation of the index at a real path.
    pub(crate) fn new(index: &Path, generation: Generation) -> Self {
        let (path, index) = (names::journal(index), index.to_owned());
        Journal { index, path, generation, is_workers: false, file: Mutex::default() }
    }

    /// Returns that of a worker, which is there; once it is not, nothing can be noted in it.
    pub(crate) fn of_worker(index: &Path, path: PathBuf, generation: Generation) -> Self {
        Journal { path, is_workers: true, ..Journal::new(index, generation) }
    }

    /// Writes down what is about to be done with a path in the index.
    pub(crate) fn note(&self, intent: Intent, path: &Path) -> io::Result<()> {
        let outside = || io::Error::new(io::ErrorKind::InvalidInput, "a path outside of the index");
        let line = line(&self.index, intent, path).ok_or_else(outside)?;
        let mut file = self.file.lock();
        let file = match &mut *file {
            Some(file) if !self.is_workers => file,
            file => file.insert(self.open()?),
        };
        let length = file.metadata()?.len();
        // A line torn by a full disk would spoil the next one, too.
        file.write_all(line.as_bytes()).inspect_err(|_| drop(file.set_len(length)))
    }

    fn open(&self) -> io::Result<File> {
        let mut options = std::fs::OpenOptions::new();
        let (path, options) = (&self.path, options.append(true));
        if self.is_workers {
            return options.open(path);
        }
        let mut file = options.create_new(true).mode(0o600).open(path)?;
        let mut begin = || {
            file.write_all(first_line(self.generation).as_bytes())?;
            // So that the next writer takes a number that no file has yet, whatever power it loses.
            file.sync_all()
        };
        begin().inspect_err(|_| drop(std::fs::remove_file(path)))?;
        Ok(file)
    }
}

/// Returns what is to be done with files of an index, in the form of a journal. Others are left
/// out.
pub(crate) fn encode(
    index: &Path,
    generation: Generation,
    intents: &BTreeMap<PathBuf, Intent>,
) -> Vec<u8> {
    let lines = intents.iter().filter_map(|(path, &intent)| line(index, intent, path));
    std::iter::once(first_line(generation)).chain(lines).collect::<String>().into_bytes()
}

fn first_line(generation: Generation) -> String {
    format!("canopy journal {FORMAT} {generation}\n")
}

/// Returns the line of a path in the index.
fn line(index: &Path, intent: Intent, path: &Path) -> Option<String> {
    let path = path.strip_prefix(index).ok().and_then(Path::to_str);
    let path = path.filter(|path| is_below(Path::new(path)) && !path.contains('\n'))?;
    let line = format!("{} {path}", intent.word());
    Some(format!("{:08x} {line}\n", crc32fast::hash(line.as_bytes())))
}

/// Reads the journal of an index; an empty one if there is none.
pub(crate) fn read(index: &Path) -> Result<Leftover> {
    read_at(&names::journal(index))
}

/// Reads what has the form of a journal; an empty one if there is none.
pub(crate) fn read_at(path: &Path) -> Result<Leftover> {
    match plain_file::read(path, BYTES_MAX) {
        Ok(text) => Ok(parse(&text)),
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Ok(Leftover::default())
        }
        Err(error) => Err(error),
    }
}

fn parse(text: &[u8]) -> Leftover {
    let mut lines = text.split_inclusive(|&byte| byte == b'\n');
    let whole = |line: &[u8]| -> Option<String> {
        Some(std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?.to_owned())
    };
    let first = lines.next().and_then(whole).unwrap_or_default();
    let Some(["canopy", "journal", _, generation]) =
        first.split(' ').collect::<Vec<_>>().first_chunk().copied()
    else {
        return Leftover::default();
    };
    let intent = |line: String| -> Option<(Intent, PathBuf)> {
        let (sum, line) = line.split_once(' ')?;
        let sound = u32::from_str_radix(sum, 16) == Ok(crc32fast::hash(line.as_bytes()));
        let (word, path) = line.split_once(' ')?;
        let intent = Intent::ALL.into_iter().find(|intent| intent.word() == word)?;
        (sound && is_below(Path::new(path))).then(|| (intent, PathBuf::from(path)))
    };
    let intents = lines.filter_map(whole).filter_map(intent).collect();
    Leftover { generation: generation.parse().unwrap_or(Generation::NONE), intents }
}

/// Returns whether a relative path leads to something below where it begins.
fn is_below(path: &Path) -> bool {
    let mut components = path.components();
    components.next().is_some()
        && path.components().all(|component| matches!(component, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_or_foreign_line_names_nothing() {
        let place = tempfile::tempdir().unwrap();
        let journal = Journal::new(place.path(), Generation(7));
        for (intent, name) in Intent::ALL.into_iter().zip(["classes", "a/7-0.bin", "b c.bin"]) {
            journal.note(intent, &place.path().join(name)).unwrap();
        }
        for outside in ["", "..", "a/../../b"] {
            assert!(journal.note(Intent::Make, &place.path().join(outside)).is_err(), "{outside}");
        }
        assert!(journal.note(Intent::Make, Path::new("/etc/passwd")).is_err());
        let text = std::fs::read(names::journal(place.path())).unwrap();
        let all = read(place.path()).unwrap();
        let expected = [
            (Intent::Make, "classes".into()),
            (Intent::Remove, "a/7-0.bin".into()),
            (Intent::Close, "b c.bin".into()),
        ];
        assert_eq!((all.generation, &all.intents[..]), (Generation(7), &expected[..]));
        for end in 0..text.len() {
            let torn = parse(&text[..end]);
            assert_eq!(torn.intents[..], all.intents[..torn.intents.len()], "{end}");
            assert!(torn.intents.len() < 3);
        }
        let forged = |line: &str| format!("{:08x} {line}\n", crc32fast::hash(line.as_bytes()));
        let mut foreign = b"canopy journal 6 7\n".to_vec();
        for path in ["../home", "/etc/passwd", "", "a/../../b"] {
            foreign.extend(forged(&format!("remove {path}")).bytes());
        }
        foreign.extend(forged("take classes").bytes());
        foreign.extend(b"00000000 make classes\n");
        assert_eq!(parse(&foreign).intents, Vec::new());
        assert_eq!(parse(b"something else\n00000000 make classes\n"), Leftover::default());
    }
}
