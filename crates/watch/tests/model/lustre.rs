//! Change logs as Lustre would write them, of what happens in a tree on another file system.
//!
//! After each operation the tree is looked at, and what is different becomes records of some
//! metadata targets. `.lustre/fid` has a symbolic link for each FID. The log of a target is a file
//! of its name in a directory, to which records are appended, and NAME.cleared says up to where it
//! was cleared.

#![allow(dead_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The targets of all clusters.
pub const TARGETS: [&str; 2] = ["test-MDT0000", "test-MDT0001"];

/// What is before each record in a file, since names have line ends.
pub const SEPARATOR: u8 = 0x1e;

/// What befalls records, each in so many of a thousand.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mishaps {
    /// One is never written.
    pub lost: u64,
    /// One is written twice.
    pub twice: u64,
    /// One is damaged.
    pub damaged: u64,
    /// Those of a target are written later than those of others.
    pub late: u64,
    /// Whether FIDs are those of inodes, which are used again.
    pub fids_again: bool,
}

/// A file system with change logs.
pub struct Cluster {
    mount: PathBuf,
    logs: PathBuf,
    known: BTreeMap<u64, Known>,
    next_object: u32,
    mishaps: Mishaps,
    forgets: bool,
    targets: [Target; TARGETS.len()],
    random: u64,
}

#[derive(Default)]
struct Target {
    /// Index of the last record.
    last: u64,
    late: Vec<u8>,
}

/// What is known of an inode.
#[derive(Clone, Debug, PartialEq)]
struct Known {
    fid: String,
    path: PathBuf,
    is_dir: bool,
    names: BTreeSet<(u64, OsString)>,
    access: (u32, u32, u32),
    contents: (u64, i64, i64),
    changed: (i64, i64),
}

impl Cluster {
    /// Begins with what is in a directory, which becomes the mount.
    pub fn new(mount: &Path, logs: &Path, seed: u64, mishaps: Mishaps) -> Self {
        fs::create_dir_all(mount.join(".lustre/fid")).unwrap();
        fs::create_dir_all(logs).unwrap();
        let mut cluster = Cluster {
            mount: mount.to_owned(),
            logs: logs.to_owned(),
            known: BTreeMap::new(),
            next_object: 1,
            mishaps,
            forgets: false,
            targets: Default::default(),
            random: seed * 2 + 1,
        };
        TARGETS.iter().for_each(|name| cluster.append(name, b""));
        cluster.known = cluster.look();
        cluster.link(&BTreeMap::new());
        cluster
    }

    /// Ends what befalls records.
    pub fn be_kind(&mut self) {
        self.mishaps = Mishaps { fids_again: self.mishaps.fids_again, ..Mishaps::default() };
        self.flush();
    }

    /// Writes records that tell nothing to all logs, and returns their last.
    pub fn fill(&mut self, records: u64) -> [u64; TARGETS.len()] {
        for number in 0..TARGETS.len() {
            for _ in 0..records {
                // A number that this log tells of.
                self.record(number as u64, "10OPEN", 0, "[0x1:0x1:0x0]", "");
            }
        }
        self.flush();
        self.last()
    }

    /// Returns the last record of each log.
    pub fn last(&self) -> [u64; TARGETS.len()] {
        [0, 1].map(|number| self.targets[number].last)
    }

    /// Returns which log tells of what is made in a directory, by number.
    pub fn teller_of(directory: &Path) -> usize {
        teller(directory.symlink_metadata().unwrap().ino())
    }

    /// Clears a log to its end, as if nobody had ever read it.
    pub fn wipe(&mut self, number: usize) {
        self.flush();
        clear(&self.logs, TARGETS[number], self.targets[number].last);
    }

    /// Has no records be written of what has happened since the last call.
    pub fn forget(&mut self) {
        self.forgets = true;
        self.observe();
        self.forgets = false;
    }

    /// Writes records of what has happened since the last call. Returns, by target, the last ones.
    #[expect(clippy::too_many_lines, reason = "a list of kinds")]
    pub fn observe(&mut self) -> [u64; TARGETS.len()] {
        let before = std::mem::take(&mut self.known);
        // FIDs of what stays are needed to look.
        self.known.clone_from(&before);
        let after = self.look();
        self.known = after.clone();
        self.link(&before);
        let mut overwritten = BTreeMap::new();
        for (ino, known) in &before {
            let names = after.get(ino).map(|now| now.names.clone()).unwrap_or_default();
            overwritten.extend(known.names.difference(&names).map(|name| (name.clone(), *ino)));
        }
        let fid = |all: &BTreeMap<u64, Known>, ino| -> String {
            all.get(ino).map_or_else(|| "[0x0:0x0:0x0]".to_owned(), |known| known.fid.clone())
        };
        let mut replaced = BTreeSet::new();
        let no_names = BTreeSet::new();
        for (ino, now) in &after {
            let was = before.get(ino);
            let names = was.map_or(&no_names, |was| &was.names);
            let mut gone = names.difference(&now.names);
            let mut is_new = was.is_none();
            for (parent, name) in now.names.difference(names) {
                let new = (*parent, name.clone());
                let place = format!(" p={} {}", fid(&after, parent), shown(name));
                if let Some((from, old_name)) = gone.next() {
                    let other = overwritten.get(&new);
                    replaced.extend(other.map(|_| new.clone()));
                    let last = other.is_some_and(|other| !after.contains_key(other));
                    let target =
                        other.map_or_else(|| "[0x0:0x0:0x0]".to_owned(), |o| fid(&before, o));
                    let source =
                        format!(" s={} sp={} {}", now.fid, fid(&before, from), shown(old_name));
                    let rest = format!("{place}{source}");
                    self.record(*parent, "08RENME", last.into(), &target, &rest);
                } else {
                    let kind = match (is_new, now.is_dir) {
                        (true, true) => "02MKDIR",
                        (true, false) => "01CREAT",
                        _ => "03HLINK",
                    };
                    self.record(*parent, kind, 0, &now.fid, &place);
                }
                is_new = false;
            }
            let Some(was) = was else { continue };
            for (parent, name) in gone {
                if !replaced.contains(&(*parent, name.clone())) {
                    let place = format!(" p={} {}", fid(&before, parent), shown(name));
                    self.record(*parent, "06UNLNK", 0, &now.fid, &place);
                }
            }
            if was.access != now.access {
                self.record(*ino, "14SATTR", 0x14, &now.fid, "");
            } else if !now.is_dir && was.contents != now.contents {
                self.record(*ino, "17MTIME", 7, &now.fid, "");
            } else if was.changed != now.changed
                && was.names == now.names
                && was.contents == now.contents
            {
                self.record(*ino, "15XATTR", 0, &now.fid, " x=user.number");
            }
        }
        for was in before.iter().filter(|(ino, _)| !after.contains_key(ino)).map(|(_, was)| was) {
            let left = Vec::from_iter(was.names.iter().filter(|name| !replaced.contains(*name)));
            for (number, (parent, name)) in left.iter().enumerate() {
                let place = format!(" p={} {}", fid(&before, parent), shown(name));
                let (kind, flags) = match was.is_dir {
                    true => ("07RMDIR", 1),
                    false => ("06UNLNK", u32::from(number + 1 == left.len())),
                };
                self.record(*parent, kind, flags, &was.fid, &place);
            }
        }
        for number in 0..TARGETS.len() {
            if self.chance(self.mishaps.late) {
                continue;
            }
            self.flush_one(number);
        }
        self.last()
    }

    fn below(&mut self, number: u64) -> u64 {
        // Xorshift.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % number
    }

    fn chance(&mut self, of_thousand: u64) -> bool {
        of_thousand > 0 && self.below(1000) < of_thousand
    }

    fn record(&mut self, place: u64, kind: &str, flags: u32, target: &str, rest: &str) {
        if self.forgets {
            return;
        }
        let number = teller(place);
        self.targets[number].last += 1;
        let index = self.targets[number].last;
        let extra = if index.is_multiple_of(3) { " j=cp.0 ef=0xf u=0:0 nid=0@lo" } else { "" };
        let time = format!("12:00:00.{:09} 2026.11.23", index % 1_000_000_000);
        let line = format!("{index} {kind} {time} 0x{flags:x} t={target}{extra}{rest}\n");
        // Names that are not text were written so that they are these bytes.
        let mut line = unshown(&line);
        if self.chance(self.mishaps.lost) {
            return;
        }
        if self.chance(self.mishaps.damaged) {
            let at = self.below(line.len() as u64 - 1) as usize;
            line[at] ^= 0x15;
        }
        let copies = 1 + usize::from(self.chance(self.mishaps.twice));
        for _ in 0..copies {
            self.targets[number].late.push(SEPARATOR);
            self.targets[number].late.extend(&line);
        }
    }

    fn flush(&mut self) {
        (0..TARGETS.len()).for_each(|number| self.flush_one(number));
    }

    fn flush_one(&mut self, number: usize) {
        let lines = std::mem::take(&mut self.targets[number].late);
        self.append(TARGETS[number], &lines);
    }

    fn append(&self, name: &str, lines: &[u8]) {
        let mut options = fs::File::options();
        let mut file = options.create(true).append(true).open(self.logs.join(name)).unwrap();
        file.write_all(lines).unwrap();
    }

    /// Looks at all that is there.
    fn look(&mut self) -> BTreeMap<u64, Known> {
        let mut all = BTreeMap::new();
        let mount = self.mount.clone();
        let about = mount.symlink_metadata().unwrap();
        let mut found = known("[0x200000007:0x1:0x0]".to_owned(), &mount, &about);
        found.names.clear();
        all.insert(about.ino(), found);
        let mut left = vec![(mount, about.ino())];
        while let Some((directory, parent)) = left.pop() {
            for entry in fs::read_dir(&directory).unwrap() {
                let entry = entry.unwrap();
                let (path, about) = (entry.path(), entry.metadata().unwrap());
                if entry.file_name() == ".lustre" {
                    continue;
                }
                let ino = about.ino();
                let fid = match self.known.get(&ino) {
                    Some(known) => known.fid.clone(),
                    None if self.mishaps.fids_again => format!("[0x200000401:0x{ino:x}:0x0]"),
                    None => {
                        self.next_object += 1;
                        format!("[0x200000400:0x{:x}:0x0]", self.next_object)
                    }
                };
                let found = all.entry(ino).or_insert_with(|| known(fid, &path, &about));
                found.names.insert((parent, entry.file_name()));
                if about.is_dir() {
                    left.push((path, ino));
                }
            }
        }
        all
    }

    /// Has `.lustre/fid` say where all is.
    fn link(&self, before: &BTreeMap<u64, Known>) {
        let fids = self.mount.join(".lustre/fid");
        for (ino, known) in &self.known {
            let was = before.get(ino);
            if was.is_some_and(|was| (&was.path, &was.fid) == (&known.path, &known.fid)) {
                continue;
            }
            let new = fids.join("new");
            std::os::unix::fs::symlink(&known.path, &new).unwrap();
            fs::rename(&new, fids.join(&known.fid)).unwrap();
        }
        for was in before.values() {
            if !self.known.values().any(|known| known.fid == was.fid) {
                fs::remove_file(fids.join(&was.fid)).unwrap();
            }
        }
    }
}

/// Returns which log tells of a directory's entries, or of a file.
fn teller(ino: u64) -> usize {
    ino as usize % TARGETS.len()
}

fn known(fid: String, path: &Path, about: &fs::Metadata) -> Known {
    Known {
        fid,
        path: path.to_owned(),
        is_dir: about.is_dir(),
        names: BTreeSet::new(),
        access: (about.mode(), about.uid(), about.gid()),
        contents: (about.size(), about.mtime(), about.mtime_nsec()),
        changed: (about.ctime(), about.ctime_nsec()),
    }
}

/// A name as text that [`unshown`] makes its bytes of again.
fn shown(name: &OsStr) -> String {
    name.as_bytes().iter().map(|&byte| char::from(byte)).collect()
}

fn unshown(line: &str) -> Vec<u8> {
    line.chars().map(|character| character as u8).collect()
}

/// Returns what a log has from a record on.
pub fn lines_from(logs: &Path, name: &str, from: u64) -> Vec<u8> {
    let all = fs::read(logs.join(name)).unwrap();
    let from = from.max(cleared(logs, name) + 1);
    let is_kept = |record: &&[u8]| {
        let digits = record.split(|byte| !byte.is_ascii_digit()).next().unwrap_or_default();
        str::from_utf8(digits).unwrap().parse().is_ok_and(|index: u64| index >= from)
    };
    all.split(|&byte| byte == SEPARATOR).filter(is_kept).flatten().copied().collect()
}

/// Returns up to where a log was cleared.
pub fn cleared(logs: &Path, name: &str) -> u64 {
    let text = fs::read_to_string(logs.join(format!("{name}.cleared")));
    text.map_or(0, |text| text.trim().parse().unwrap())
}

/// Notes up to where a log was cleared.
pub fn clear(logs: &Path, name: &str, up_to: u64) {
    let new = logs.join(format!("{name}.new"));
    fs::write(&new, format!("{up_to}\n")).unwrap();
    fs::rename(new, logs.join(format!("{name}.cleared"))).unwrap();
}
