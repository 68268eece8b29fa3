//! Listing directories, and doing so while they change.

use super::inodes::type_name;
use super::refusal::{Refusal, value};
use super::words::Words;
use super::{Answer, Calls, Worker};
use crate::word;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

/// `getdents FD SIZE` returns the names that one call with a buffer of that size yields; `ls PATH`
/// all of them, sorted. `fill PATH COUNT` makes files. `entries PATH` returns whether `.`, `..`,
/// types and inodes of entries are right, `positions PATH` whether one can go back to each, `walk
/// PATH SIZE ACTION` whether a listing is exact while the directory changes.
pub const CALLS: Calls = &[
    ("getdents", |worker, words| {
        let directory = worker.descriptor(words)?;
        let entries = batch(directory, words.number()? as usize)?;
        Ok(sorted(entries.iter().map(|entry| &entry.name[..])))
    }),
    ("ls", |_, words| {
        let entries = all(&open(words.path()?)?)?;
        let names = entries.iter().map(|entry| &entry.name[..]);
        Ok(sorted(names.filter(|name| *name != b"." && *name != b"..")))
    }),
    ("count", |_, words| value(Ok::<_, Refusal>(all(&open(words.path()?)?)?.len() - 2))),
    ("fill", |_, words| {
        let directory = open(words.path()?)?;
        for number in 0..words.number()? {
            make(&directory, &format!("file-{number:06}"))?;
        }
        Ok(String::new())
    }),
    ("entries", entries),
    ("positions", positions),
    ("walk", walk),
];

/// An entry of a listing.
struct Entry {
    name: Vec<u8>,
    kind: FileType,
    ino: u64,
    /// The position behind it.
    next: u64,
}

fn open(path: OsString) -> Result<OwnedFd, Refusal> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

fn make(directory: &OwnedFd, name: &str) -> Result<(), Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR).map(drop)
}

/// Returns the entries of one call.
fn batch(directory: impl AsFd, size: usize) -> Result<Vec<Entry>, Refusal> {
    let mut buffer = vec![MaybeUninit::uninit(); size];
    let mut listing = RawDir::new(directory, &mut buffer);
    let mut entries = Vec::new();
    while let Some(entry) = listing.next() {
        let entry = entry?;
        entries.push(Entry {
            name: entry.file_name().to_bytes().to_vec(),
            kind: entry.file_type(),
            ino: entry.ino(),
            next: entry.next_entry_cookie(),
        });
        if listing.is_buffer_empty() {
            break;
        }
    }
    Ok(entries)
}

fn all(directory: &OwnedFd) -> Result<Vec<Entry>, Refusal> {
    let mut entries = Vec::new();
    loop {
        let more = batch(directory, 32 * 1024)?;
        if more.is_empty() {
            return Ok(entries);
        }
        entries.extend(more);
    }
}

fn sorted<'a>(names: impl Iterator<Item = &'a [u8]>) -> String {
    let names = BTreeSet::from_iter(names.map(word::encode));
    if names.is_empty() { "-".to_owned() } else { Vec::from_iter(names).join(" ") }
}

/// Compares what a listing says of each entry with what stat says.
fn entries(_: &mut Worker, words: &mut Words) -> Answer {
    let directory = open(words.path()?)?;
    let entries = all(&directory)?;
    for dot in [&b"."[..], b".."] {
        if entries.iter().filter(|entry| entry.name == dot).count() != 1 {
            return Ok(format!("{} is not listed once", word::encode(dot)));
        }
    }
    for entry in &entries {
        let stat = rustix::fs::statat(&directory, &entry.name[..], AtFlags::SYMLINK_NOFOLLOW)?;
        let (kind, name) = (FileType::from_raw_mode(stat.st_mode), word::encode(&entry.name));
        if entry.kind != FileType::Unknown && entry.kind != kind {
            return Ok(format!("{name} is listed as {}", type_name(entry.kind)));
        }
        if entry.ino != stat.st_ino {
            return Ok(format!("{name} is listed as inode {}, not {}", entry.ino, stat.st_ino));
        }
    }
    Ok("right".to_owned())
}

/// Goes back to the position behind each entry and looks at what follows.
fn positions(_: &mut Worker, words: &mut Words) -> Answer {
    let directory = open(words.path()?)?;
    let entries = all(&directory)?;
    for pair in entries.windows(2).rev() {
        rustix::fs::seek(&directory, SeekFrom::Start(pair[0].next))?;
        let next = batch(&directory, 1024)?;
        if next.first().is_none_or(|entry| entry.name != pair[1].name) {
            return Ok(format!("{} is lost", word::encode(&pair[1].name)));
        }
    }
    rustix::fs::seek(&directory, SeekFrom::Start(0))?;
    let again = all(&directory)?;
    let same = again.iter().map(|entry| &entry.name).eq(entries.iter().map(|entry| &entry.name));
    Ok(if same { "right" } else { "another order after rewinding" }.to_owned())
}

/// `walk PATH SIZE ACTION` reads a directory of files in pieces of SIZE bytes and, after each, does
/// to it what ACTION says: `remove` what was read, `add` names, `remove-unread` a name that existed
/// before, or `rename` what was read. Names that stay as they are have to be listed exactly once.
fn walk(_: &mut Worker, words: &mut Words) -> Answer {
    let path = words.path()?;
    let (size, action) = (words.number()? as usize, words.word()?);
    let directory = open(path.clone())?;
    let mut unread: BTreeSet<_> = all(&open(path)?)?.into_iter().map(|entry| entry.name).collect();
    let mut stay = unread.clone();
    let mut seen: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    for step in 0.. {
        let entries = batch(&directory, size)?;
        if entries.is_empty() {
            break;
        }
        for entry in entries {
            unread.remove(&entry.name);
            if !entry.name.starts_with(b".") && !entry.name.starts_with(b"new-") {
                act_on_read(&directory, &entry.name, action)?;
            }
            *seen.entry(entry.name).or_default() += 1;
        }
        act_on_rest(&directory, step, action, &mut unread, &mut stay)?;
    }
    let wrong = stay.iter().find(|name| seen.get(*name) != Some(&1));
    Ok(match wrong {
        None => format!("{} exact", stay.len() - 2),
        Some(name) => {
            let times = seen.get(name).copied().unwrap_or(0);
            format!("{} is listed {times} times", word::encode(name))
        }
    })
}

fn act_on_read(directory: &OwnedFd, name: &[u8], action: &str) -> Result<(), Errno> {
    match action {
        "remove" => rustix::fs::unlinkat(directory, name, AtFlags::empty()),
        "rename" => {
            let renamed = [b"new-", name].concat();
            rustix::fs::renameat(directory, name, directory, &renamed[..])
        }
        _ => Ok(()),
    }
}

fn act_on_rest(
    directory: &OwnedFd,
    step: u32,
    action: &str,
    unread: &mut BTreeSet<Vec<u8>>,
    stay: &mut BTreeSet<Vec<u8>>,
) -> Result<(), Errno> {
    match action {
        "add" => make(directory, &format!("new-{step:06}")),
        "remove-unread" => match unread.pop_last() {
            Some(name) if !name.starts_with(b".") => {
                stay.remove(&name);
                rustix::fs::unlinkat(directory, &name[..], AtFlags::empty())
            }
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}
