//! Where items are made: in a file system, or by Canopy's library without a mount.

use crate::cluster::load;
use anyhow::{Context, Result, bail};
use canopy_cluster::wire::ClientSecurity;
use canopy_cluster::{Client, Patience, Remote, SessionId};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Caller, Change, Moment, Operation, Read};
use canopy_namespace::{EntryName, FileId, ROOT, Reply};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

/// Executes what is measured.
pub trait Place {
    fn make_directory(&self, path: &Path) -> Result<()>;
    fn create(&self, path: &Path, bytes: usize) -> Result<()>;
    fn stat(&self, path: &Path) -> Result<()>;
    fn read(&self, path: &Path, bytes: usize) -> Result<()>;
    fn remove(&self, path: &Path) -> Result<()>;
    fn remove_directory(&self, path: &Path) -> Result<()>;

    /// Makes a directory and those above it, unless they are there.
    fn make_directories(&self, path: &Path) -> Result<()>;
}

/// A file system, such as a mount.
pub struct Files {
    /// Whether files are synced once they are written.
    pub sync: bool,
}

impl Place for Files {
    fn make_directory(&self, path: &Path) -> Result<()> {
        Ok(fs::create_dir(path)?)
    }

    fn create(&self, path: &Path, bytes: usize) -> Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        if bytes > 0 {
            file.write_all(&vec![0; bytes])?;
        }
        if self.sync {
            file.sync_all()?;
        }
        Ok(())
    }

    fn stat(&self, path: &Path) -> Result<()> {
        fs::symlink_metadata(path)?;
        Ok(())
    }

    fn read(&self, path: &Path, bytes: usize) -> Result<()> {
        let mut file = File::open(path)?;
        if bytes > 0 {
            file.read_exact(&mut vec![0; bytes])?;
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        Ok(fs::remove_file(path)?)
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        Ok(fs::remove_dir(path)?)
    }

    fn make_directories(&self, path: &Path) -> Result<()> {
        Ok(fs::create_dir_all(path)?)
    }
}

/// Canopy's library. It remembers where directories are, as a mount does.
pub struct Library {
    client: Client,
    directories: RefCell<HashMap<PathBuf, FileId>>,
}

impl Library {
    pub fn connect(addresses: &[String], rank: u64) -> Result<Self> {
        let addresses = addresses.iter().map(|address| Ok(address.parse()?));
        let addresses = addresses.collect::<Result<Vec<_>>>()?;
        let remote = Remote::connect(&addresses, ClientSecurity::default(), Patience::CLIENT)?;
        let session = u64::from(std::process::id()) << 32 | (rank + 1);
        let client = Client::new(remote, SessionId(session));
        Ok(Library { client, directories: RefCell::default() })
    }

    fn execute(&self, operation: &Operation<'_>) -> Result<Reply> {
        Ok(self.client.execute_for(Caller::Trusted, operation)?)
    }

    fn directory(&self, path: &Path) -> Result<FileId> {
        if path.file_name().is_none() {
            return Ok(ROOT);
        }
        if let Some(id) = self.directories.borrow().get(path) {
            return Ok(*id);
        }
        let (directory, name) = self.name(path)?;
        match self.execute(&load::lookup(directory, name))? {
            Reply::Inode(inode) if inode.is_directory() => {
                self.directories.borrow_mut().insert(path.to_owned(), inode.id);
                Ok(inode.id)
            }
            _ => bail!("{} is not a directory", path.display()),
        }
    }

    /// Returns the directory that a path is in, and its name there.
    fn name<'a>(&self, path: &'a Path) -> Result<(FileId, &'a str)> {
        let name = path.file_name().and_then(|name| name.to_str()).context("a name of UTF-8")?;
        Ok((self.directory(path.parent().unwrap_or(Path::new("")))?, name))
    }
}

impl Place for Library {
    fn make_directory(&self, path: &Path) -> Result<()> {
        let (directory, name) = self.name(path)?;
        self.execute(&load::create(directory, name, file_type::DIRECTORY))?;
        Ok(())
    }

    fn create(&self, path: &Path, _bytes: usize) -> Result<()> {
        let (directory, name) = self.name(path)?;
        self.execute(&load::create(directory, name, file_type::REGULAR))?;
        Ok(())
    }

    fn stat(&self, path: &Path) -> Result<()> {
        let (directory, name) = self.name(path)?;
        self.execute(&load::lookup(directory, name))?;
        Ok(())
    }

    /// Looks the file up and reads its inode, as opening and closing it would.
    fn read(&self, path: &Path, _bytes: usize) -> Result<()> {
        let (directory, name) = self.name(path)?;
        let Reply::Inode(inode) = self.execute(&load::lookup(directory, name))? else {
            bail!("an odd reply");
        };
        self.execute(&Operation::Read(Moment::Now, Read::Inode(inode.id)))?;
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let (directory, name) = self.name(path)?;
        let name = EntryName::new(directory, name.as_bytes());
        self.execute(&Operation::Change(Change::Unlink(name)))?;
        Ok(())
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        let (directory, name) = self.name(path)?;
        let name = EntryName::new(directory, name.as_bytes());
        self.execute(&Operation::Change(Change::Rmdir(name)))?;
        self.directories.borrow_mut().remove(path);
        Ok(())
    }

    fn make_directories(&self, path: &Path) -> Result<()> {
        if path.file_name().is_none() || self.directory(path).is_ok() {
            return Ok(());
        }
        self.make_directories(path.parent().unwrap_or(Path::new("")))?;
        match self.make_directory(path) {
            // Another process has made it.
            Err(_) => self.directory(path).map(drop),
            made => made,
        }
    }
}
