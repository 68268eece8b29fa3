//! Which machines may write to a shared directory.
//!
//! A machine that sees names of others late would take an old state of a table for the current one,
//! and lose data. So a machine writes only after `canopy store probe` has passed on it and on one that
//! may write already. The machine that makes the directory is the first one.
//!
//! ```text
//! machines/ID     "2 NAME\n", or "2 NAME PARTNER\n" once two machines have passed the probe
//! ```
//!
//! The probe of version 1 did not try files that grow. Notes of two machines that passed that one do not
//! count any more.

use super::error::SharedDirectoryError;
use super::root::Root;
use crate::error::{Error, Result};
use crate::key::hash_of;
use rustix::fs::{Dir, renameat};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DIRECTORY: &str = "machines";

/// A note is shorter.
const NOTE_BYTES_MAX: u64 = 4096;

/// A machine, by what it calls itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Tells machines apart.
    pub id: u64,
    /// The name of the host.
    pub name: String,
}

impl Machine {
    /// Returns the machine that this process runs on.
    pub fn own() -> Self {
        Self::named(&read("/proc/sys/kernel/hostname"))
    }

    /// Returns the machine with this one's number and another name of the host: machines that were
    /// copied have one number, so both count.
    pub fn named(host: &str) -> Self {
        let is_plain = |one: &char| one.is_ascii_alphanumeric() || "-_.".contains(*one);
        let name = Vec::from_iter(host.trim().chars().filter(is_plain).take(255));
        let name = if name.is_empty() { "unknown".to_owned() } else { String::from_iter(name) };
        let id = hash_of(format!("{}\n{name}", read("/etc/machine-id").trim()).as_bytes());
        Machine { id, name }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The notes about the machines that may write to a shared directory.
pub struct Notes {
    root: Arc<Root>,
}

impl Notes {
    pub(super) fn below(root: &Arc<Root>) -> Self {
        Notes { root: root.clone() }
    }

    fn failed(&self, below: &Path, error: io::Error) -> Error {
        Error::storage(self.root.path().join(below).display().to_string(), error)
    }

    /// Notes that a machine may write; `partner` is the one that it has passed the probe with.
    ///
    /// # Errors
    ///
    /// Fails as the file system does.
    pub fn add(&self, machine: &Machine, partner: Option<&Machine>) -> Result<()> {
        let partner = partner.map(|one| format!(" {}", one.name)).unwrap_or_default();
        let text = format!("2 {}{partner}\n", machine.name);
        let path = path(machine.id);
        self.replace(&path, &text).map_err(|error| self.failed(&path, error))
    }

    fn replace(&self, path: &Path, text: &str) -> io::Result<()> {
        self.root.make_directory(Path::new(DIRECTORY))?;
        let new = path.with_extension(format!("{:x}", crate::environment::system_random()));
        let mut file = self.root.create_file(&new)?;
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        let renamed =
            written.and_then(|()| Ok(renameat(self.root.at(), &new, self.root.at(), path)?));
        if renamed.is_err() {
            let _ = self.root.remove_file(&new);
        }
        renamed.and_then(|()| self.root.sync_directory(Path::new(DIRECTORY)))
    }

    /// Returns whether a machine may write.
    ///
    /// # Errors
    ///
    /// Fails as the file system does.
    pub fn has(&self, machine: &Machine) -> Result<bool> {
        let path = path(machine.id);
        let failed = |error| self.failed(&path, error);
        // As it is now, and not as it was when this machine last looked.
        let directory = self.root.open_below(Path::new(DIRECTORY));
        match directory.and_then(|_| self.root.open_below(&path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            opened => Ok(note_in(opened.map_err(failed)?).map_err(failed)?.is_some()),
        }
    }

    /// Returns the names of the machines that may write, in order.
    ///
    /// # Errors
    ///
    /// Fails as the file system does.
    pub fn names(&self) -> Result<Vec<String>> {
        self.read_names().map_err(|error| self.failed(Path::new(DIRECTORY), error))
    }

    fn read_names(&self) -> io::Result<Vec<String>> {
        let directory = match self.root.open_directory(Path::new(DIRECTORY)) {
            Err(Errno::NOENT) => return Ok(Vec::new()),
            directory => directory?,
        };
        let mut names = Vec::new();
        for file in Dir::read_from(&directory)? {
            let file = file?;
            let Ok(name) = file.file_name().to_str() else { continue };
            let note = Path::new(DIRECTORY).join(name);
            if !name.contains('.') && self.root.stat(&note).is_ok_and(is_file) {
                names.extend(self.root.open_below(&note).and_then(note_in)?);
            }
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    pub(super) fn check(&self, machine: &Machine) -> Result<()> {
        if self.has(machine)? {
            return Ok(());
        }
        let names = self.names()?;
        let known = match &names[..] {
            [] => "another machine".to_owned(),
            [one] => one.clone(),
            [names @ .., last] => format!("{} or {last}", names.join(", ")),
        };
        let (root, machine) = (self.root.path().to_owned(), machine.name.clone());
        Err(SharedDirectoryError::Untried { root, machine, known }.into())
    }
}

/// Returns the path of a machine's note below the root.
fn path(id: u64) -> PathBuf {
    Path::new(DIRECTORY).join(format!("{id:016x}"))
}

fn is_file(about: rustix::fs::Stat) -> bool {
    super::is_of(&about, rustix::fs::FileType::RegularFile)
}

/// Reads the name of the machine in a note; none if it is not a note of this version.
fn note_in(file: File) -> io::Result<Option<String>> {
    let mut text = Vec::new();
    file.take(NOTE_BYTES_MAX).read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let mut words = text.split_whitespace();
    let (version, name, partner) = (words.next(), words.next(), words.next());
    let counts = version == Some("2") || version == Some("1") && partner.is_none();
    Ok(name.filter(|_| counts).map(str::to_owned))
}
