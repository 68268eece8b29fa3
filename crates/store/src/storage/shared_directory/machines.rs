//! Which machines may write to a shared directory.
//!
//! A machine that sees names of others late would take an old state of a table for the current one,
//! and lose data. So a machine writes only after `canopy store probe` has passed on it and on one that
//! may write already. The machine that makes the directory is the first one.
//!
//! ```text
//! machines/ID     "1 NAME\n", or "1 NAME PARTNER\n" once two machines have passed the probe
//! ```

use super::error::SharedDirectoryError;
use crate::error::{Error, Result};
use crate::key::hash_of;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

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
    directory: PathBuf,
}

impl Notes {
    pub(super) fn below(root: &Path) -> Self {
        Notes { directory: root.join("machines") }
    }

    fn path(&self, id: u64) -> PathBuf {
        self.directory.join(format!("{id:016x}"))
    }

    /// Notes that a machine may write; `partner` is the one that it has passed the probe with.
    ///
    /// # Errors
    ///
    /// Fails as the file system does.
    pub fn add(&self, machine: &Machine, partner: Option<&Machine>) -> Result<()> {
        let partner = partner.map(|one| format!(" {}", one.name)).unwrap_or_default();
        let text = format!("1 {}{partner}\n", machine.name);
        let path = self.path(machine.id);
        self.replace(&path, &text)
            .map_err(|error| Error::storage(path.display().to_string(), error))
    }

    fn replace(&self, path: &Path, text: &str) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(&self.directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let new = path.with_extension(format!("{:x}", crate::environment::system_random()));
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        let renamed = written.and_then(|()| fs::rename(&new, path));
        if renamed.is_err() {
            let _ = fs::remove_file(&new);
        }
        renamed.and_then(|()| super::sync_directory(&self.directory))
    }

    /// Returns whether a machine may write.
    ///
    /// # Errors
    ///
    /// Fails as the file system does.
    pub fn has(&self, machine: &Machine) -> Result<bool> {
        let path = self.path(machine.id);
        let failed = |error| Error::storage(path.display().to_string(), error);
        // As it is now, and not as it was when this machine last looked.
        match File::open(&self.directory).and_then(|_| File::open(&path)) {
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
        let failed = |error| Error::storage(self.directory.display().to_string(), error);
        let files = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            files => files.map_err(failed)?,
        };
        let mut names = Vec::new();
        for file in files {
            let path = file.map_err(failed)?.path();
            if path.extension().is_none() && path.is_file() {
                names.extend(File::open(&path).and_then(note_in).map_err(failed)?);
            }
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    pub(super) fn check(&self, root: &Path, machine: &Machine) -> Result<()> {
        if self.has(machine)? {
            return Ok(());
        }
        let names = self.names()?;
        let known = match &names[..] {
            [] => "another machine".to_owned(),
            [one] => one.clone(),
            [names @ .., last] => format!("{} or {last}", names.join(", ")),
        };
        let (root, machine) = (root.to_owned(), machine.name.clone());
        Err(SharedDirectoryError::Untried { root, machine, known }.into())
    }
}

/// Reads the name of the machine in a note; none if it is not a note of this version.
fn note_in(file: File) -> io::Result<Option<String>> {
    let mut text = Vec::new();
    file.take(NOTE_BYTES_MAX).read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let mut words = text.split_whitespace();
    Ok(words.next().filter(|version| *version == "1").and(words.next()).map(str::to_owned))
}
