//! Operations on paths and open files, for the user of the process.

use canopy_cluster::contents::{ClusterNamespace, Memory};
use canopy_cluster::{
    Connection, ConnectionError, Security, Speaker, UnknownStorage, addresses_of,
};
use canopy_model::{ErrorKind, Wanted};
use canopy_namespace::inode::{TYPE_MASK, file_type};
use canopy_namespace::operation::{Access, Change, Changer, Moment, Operation};
use canopy_namespace::{
    EntryName, Error, Execute, FileContents, FileId, Inode, Listing, New, Privileges, ROOT,
    RenameMode, SetAttributes,
};
use canopy_store::Environment;
use rustix::process::{getegid, geteuid};
use std::borrow::Cow;
use std::ffi::{CStr, c_int};
use std::path::Path;
use std::sync::Arc;

/// The name of storage that says that there is none here.
const NONE: &str = "none";

/// A failure, as C gets it.
#[derive(Debug)]
pub struct Failure {
    /// The number of the error.
    pub errno: c_int,
    /// The message; empty for that of the number.
    pub message: String,
}

impl Failure {
    pub fn new(errno: c_int, message: String) -> Self {
        Failure { errno, message }
    }

    /// Returns the failure of a null pointer.
    pub fn of_null() -> Self {
        Failure::new(libc::EINVAL, "an argument is NULL".into())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let message = match &error {
            Error::Posix(_) => String::new(),
            error => error.to_string(),
        };
        Failure::new(error.errno().raw_os_error(), message)
    }
}

impl From<ConnectionError> for Failure {
    fn from(error: ConnectionError) -> Self {
        let errno = match error.kind() {
            ErrorKind::NotFound => libc::ENOENT,
            ErrorKind::Denied => libc::EACCES,
            ErrorKind::Invalid => libc::EINVAL,
            ErrorKind::Unavailable => libc::EHOSTUNREACH,
            _ => libc::EIO,
        };
        Failure::new(errno, error.to_string())
    }
}

impl From<canopy_store::Error> for Failure {
    fn from(error: canopy_store::Error) -> Self {
        let errno = if error.is_not_found() { libc::ENOENT } else { libc::EIO };
        Failure::new(errno, error.to_string())
    }
}

fn posix(errno: c_int) -> Failure {
    Failure::new(errno, String::new())
}

/// The place of a path.
struct Place<'p> {
    /// The last name, in its directory; none for the root.
    name: Option<EntryName<'p>>,
    /// Whether it can only be a directory: the path ends in `/` or `.`.
    is_directory: bool,
    ends_in_dot: bool,
}

/// A connection to a namespace.
pub struct Session {
    connection: Connection,
    namespace: Arc<ClusterNamespace>,
}

impl Session {
    /// Connects to a namespace by addresses or its place.
    pub fn open(
        name: &str,
        certificate: Option<&str>,
        storage: Option<&str>,
    ) -> Result<Self, Failure> {
        let certificate = certificate.map(Path::new);
        let quiet = Arc::new(|_: &canopy_cluster::Wait| ());
        let (connection, place) = match addresses_of(name) {
            Some(addresses) => {
                let wrong = |error| Failure::new(libc::EINVAL, format!("{name}: {error}"));
                let addresses = addresses.map_err(wrong)?;
                let security = Security::of_client(None, certificate);
                let security = security.map_err(ConnectionError::from)?;
                (Connection::open(&addresses, security, quiet)?, None)
            }
            None => {
                let environment = Environment::system(canopy_object_storage::open(name)?);
                let security = Security::of_client(Some(&environment.storage), certificate);
                let security = security.map_err(ConnectionError::from)?;
                (Connection::of_storage(&environment, security, quiet)?, Some(name))
            }
        };
        if matches!(connection.speaker(), Speaker::Machine { .. }) {
            let text = "the certificate is for a machine: give one for a user or the servers";
            return Err(Failure::new(libc::EACCES, text.into()));
        }
        let reported = connection.place();
        let environment = match storage.or(place).unwrap_or(&reported) {
            NONE => Environment::system(Arc::new(UnknownStorage)),
            place => {
                let environment = Environment::system(canopy_object_storage::open(place)?);
                connection.check_storage(&*environment.storage)?;
                environment
            }
        };
        let namespace = connection.namespace(&environment, Memory::default())?;
        Ok(Session { connection, namespace })
    }

    /// Sends all that was written, and ends the session.
    pub fn end(&self) -> Result<(), Failure> {
        let ended = self.namespace.end();
        self.connection.end();
        Ok(ended?)
    }

    fn execute(&self) -> &dyn Execute {
        &*self.namespace
    }

    /// Returns the place of a path.
    fn split<'p>(&self, path: &'p CStr) -> Result<Place<'p>, Failure> {
        let path = path.to_bytes();
        if path.is_empty() {
            return Err(posix(libc::ENOENT));
        }
        let names = path.split(|byte| *byte == b'/');
        let names = Vec::from_iter(names.filter(|name| !matches!(*name, b"" | b".")));
        if names.contains(&&b".."[..]) {
            return Err(Failure::new(libc::EINVAL, "'..' is not understood here".into()));
        }
        let last = path.split(|byte| *byte == b'/').rfind(|name| !name.is_empty());
        let ends_in_dot = last == Some(b".");
        let is_directory = ends_in_dot || path.ends_with(b"/");
        let place = |name| Place { name, is_directory, ends_in_dot };
        let Some((last, above)) = names.split_last() else { return Ok(place(None)) };
        let mut directory = ROOT;
        for name in above {
            let found = self.execute().lookup(Moment::Now, EntryName::new(directory, name))?;
            if !found.is_directory() {
                return Err(posix(libc::ENOTDIR));
            }
            directory = found.id;
        }
        Ok(place(Some(EntryName::new(directory, last))))
    }

    /// Returns the inode of a path.
    pub fn stat(&self, path: &CStr) -> Result<Inode, Failure> {
        self.inode(&self.split(path)?)
    }

    fn inode(&self, place: &Place<'_>) -> Result<Inode, Failure> {
        let inode = match place.name {
            Some(name) => self.execute().lookup(Moment::Now, name)?,
            None => self.execute().inode(Moment::Now, ROOT)?,
        };
        match place.is_directory && !inode.is_directory() {
            true => Err(posix(libc::ENOTDIR)),
            false => Ok(inode),
        }
    }

    /// Makes a file or a directory of the user of this process.
    pub fn make(&self, path: &CStr, kind: u32, mode: u32) -> Result<(), Failure> {
        let place = self.split(path)?;
        let is_new = place.name.filter(|_| !place.ends_in_dot);
        let is_directory = kind & TYPE_MASK == file_type::DIRECTORY;
        let name = match is_new {
            Some(name) if is_directory || !place.is_directory => name,
            // A name of a directory: it is there, or not.
            _ => {
                return Err(self.inode(&place).map_or_else(|error| error, |_| posix(libc::EEXIST)));
            }
        };
        let new = Cow::Owned(new(kind, mode));
        let create = Change::Create { name, new, holds: false };
        self.execute().execute(&Operation::Change(create))?;
        Ok(())
    }

    /// Removes a name of a file.
    pub fn unlink(&self, path: &CStr) -> Result<(), Failure> {
        let place = self.split(path)?;
        match place.name.filter(|_| !place.is_directory) {
            Some(name) => self.execute().unlink(name)?,
            None => {
                return Err(self.inode(&place).map_or_else(|error| error, |_| posix(libc::EISDIR)));
            }
        };
        Ok(())
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, path: &CStr) -> Result<(), Failure> {
        let place = self.split(path)?;
        let Some(name) = place.name else { return Err(posix(libc::EBUSY)) };
        if place.ends_in_dot {
            return Err(posix(libc::EINVAL));
        }
        self.execute().rmdir(name)?;
        Ok(())
    }

    /// Renames a file or a directory.
    pub fn rename(&self, from: &CStr, to: &CStr) -> Result<(), Failure> {
        let (from, to) = (self.split(from)?, self.split(to)?);
        let (Some(old), Some(new)) = (from.name, to.name) else { return Err(posix(libc::EBUSY)) };
        if from.ends_in_dot || to.ends_in_dot {
            return Err(posix(libc::EBUSY));
        }
        if from.is_directory || to.is_directory {
            self.inode(&Place { is_directory: true, ..from })?;
        }
        Ok(self.execute().rename(old, new, RenameMode::Replace, None)?)
    }

    /// Calls `each` with the entries of a directory until it returns false.
    pub fn list(
        &self,
        path: &CStr,
        mut each: impl FnMut(&[u8], &Inode) -> bool,
    ) -> Result<(), Failure> {
        let directory = self.stat(path)?;
        if !directory.is_directory() {
            return Err(posix(libc::ENOTDIR));
        }
        let mut listing = Listing::new(directory.id);
        let each = |entry: canopy_namespace::Entry<'_>| each(entry.name, entry.inode);
        Ok(self.execute().list(Moment::Now, &mut listing, 0, each)?)
    }
}

/// A file that is open and held.
pub struct OpenFile {
    session: Arc<Session>,
    id: FileId,
    reads: bool,
    writes: bool,
}

impl OpenFile {
    /// Opens a regular file, and makes it if the flags say so.
    pub fn open(
        session: &Arc<Session>,
        path: &CStr,
        flags: c_int,
        mode: u32,
    ) -> Result<Self, Failure> {
        let known =
            libc::O_ACCMODE | libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_CLOEXEC;
        let (reads, writes) = match flags & libc::O_ACCMODE {
            libc::O_RDONLY => (true, false),
            libc::O_WRONLY => (false, true),
            libc::O_RDWR => (true, true),
            _ => return Err(posix(libc::EINVAL)),
        };
        if flags & !known != 0 {
            return Err(posix(libc::EINVAL));
        }
        let place = session.split(path)?;
        let Some(name) = place.name.filter(|_| !place.is_directory) else {
            // A file that is to be made cannot be a directory, whether that is there or not.
            let creates = flags & libc::O_CREAT != 0;
            let found = if creates { Ok(()) } else { session.inode(&place).map(drop) };
            return Err(found.err().unwrap_or_else(|| posix(libc::EISDIR)));
        };
        let opened = |id| OpenFile { session: session.clone(), id, reads, writes };
        if flags & libc::O_CREAT != 0 {
            match session.execute().create(name, &new(libc::S_IFREG, mode)) {
                Ok(inode) => {
                    let file = opened(inode.id);
                    session.namespace.open_new(&inode).inspect_err(|_| file.release())?;
                    return Ok(file);
                }
                Err(error)
                    if error.errno().raw_os_error() == libc::EEXIST
                        && flags & libc::O_EXCL == 0 => {}
                Err(error) => return Err(error.into()),
            }
        }
        let inode = session.execute().lookup_held(name)?;
        let file = opened(inode.id);
        let begun = file.begin(&inode, flags & libc::O_TRUNC != 0);
        begun.inspect_err(|_| file.release())?;
        Ok(file)
    }

    /// Opens a file that is held.
    fn begin(&self, inode: &Inode, truncates: bool) -> Result<(), Failure> {
        match inode.file_type() {
            file_type::REGULAR => {}
            file_type::DIRECTORY => return Err(posix(libc::EISDIR)),
            file_type::SYMLINK => return Err(posix(libc::ELOOP)),
            _ => return Err(posix(libc::EOPNOTSUPP)),
        }
        let execute = self.session.execute();
        let wanted = [(self.reads, Wanted::READ), (self.writes, Wanted::WRITE)];
        for (_, wanted) in wanted.into_iter().filter(|(is_wanted, _)| *is_wanted) {
            execute.execute(&Operation::Access(Access::Open(self.id, wanted)))?;
        }
        if truncates && self.writes {
            let set = SetAttributes { size: Some(0), ..SetAttributes::default() };
            execute.set_attributes(self.id, &set, changer())?;
        }
        Ok(self.session.namespace.open(self.id)?)
    }

    /// Reads bytes; fewer than `count` only at the end.
    pub fn read(&self, offset: u64, count: usize) -> Result<Vec<u8>, Failure> {
        match self.reads {
            true => Ok(self.session.namespace.read_at(self.id, offset, count, true)?),
            false => Err(posix(libc::EBADF)),
        }
    }

    /// Writes bytes, and returns how many.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<usize, Failure> {
        if !self.writes {
            return Err(posix(libc::EBADF));
        }
        // Servers decide for users: those may keep no privileges.
        let is_in = |_| false;
        let privileges = match geteuid().is_root() {
            true => Privileges::Keep,
            false => Privileges::Drop(&is_in),
        };
        Ok(self.session.namespace.write_at(self.id, offset, bytes, privileges)?)
    }

    /// Makes the file outlast a crash.
    pub fn sync(&self) -> Result<(), Failure> {
        Ok(self.session.namespace.sync_contents(self.id)?)
    }

    /// Sends what was written, and closes the file.
    pub fn close(self) -> Result<(), Failure> {
        let closed = self.session.namespace.close(self.id);
        self.release();
        Ok(closed?)
    }

    fn release(&self) {
        // A hold that stays ends with the session.
        let _ = self.session.execute().release(self.id, 1);
    }
}

fn new(kind: u32, mode: u32) -> New {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    New { mode: kind | mode & !TYPE_MASK & 0o7777, uid, gid, ..New::default() }
}

/// Returns the user who changes lengths: servers know the groups of users.
fn changer() -> Changer<'static> {
    match geteuid().is_root() {
        true => Changer::Privileged,
        false => Changer::Member(Cow::Owned(vec![getegid().as_raw()])),
    }
}
