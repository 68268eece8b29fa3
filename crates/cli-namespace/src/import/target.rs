//! The namespace that a tree is imported into, as the walk sees it.

use canopy_namespace::{FileId, Inode};
use std::ffi::CString;
use std::fs::File;

/// The name of a file that is imported.
pub struct Place<'a> {
    /// The directory.
    pub parent: FileId,
    /// The name in it.
    pub name: &'a [u8],
    /// Returns the path below the source, for messages.
    pub path: &'a dyn Fn() -> String,
}

/// A file that is imported.
#[derive(Default)]
pub struct NewFile {
    /// Attributes. Only directories have an id, and the number of their links.
    pub inode: Inode,
    /// Names and values of extended attributes.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Contents of a regular file.
    pub contents: Contents,
}

/// Contents of a regular file.
#[derive(Default)]
pub enum Contents {
    /// The file is empty, or its contents stay where they are.
    #[default]
    None,
    /// All bytes.
    Small(Vec<u8>),
    /// The file to read them from.
    Large(File),
}

/// A namespace that takes a tree. Problems of one file are noted as faults; errors end the import.
pub trait Target {
    /// Returns the greatest length of contents that are passed as bytes.
    fn small_bytes_max(&self) -> usize;

    /// Returns the number of entries beyond which a directory is announced by `spread`, if that helps.
    fn spreads_beyond(&self) -> Option<u64>;

    /// Prepares a directory for many entries.
    fn spread(&mut self, directory: FileId);

    /// Returns whether a directory that was there before has a name.
    fn has_name(&mut self, directory: FileId, name: &[u8]) -> anyhow::Result<bool>;

    /// Returns ids for directories of these names; none for those that cannot be made.
    fn new_directories(
        &mut self,
        parent: FileId,
        names: &[CString],
        path: &dyn Fn(&CString) -> String,
    ) -> anyhow::Result<Vec<Option<FileId>>>;

    /// Gives up a directory from `new_directories`.
    fn drop_directory(&mut self, place: &Place<'_>) -> anyhow::Result<()>;

    /// Adds a directory from `new_directories`, after everything in it.
    fn add_directory(&mut self, place: &Place<'_>, directory: NewFile) -> anyhow::Result<()>;

    /// Adds a file under its only name.
    fn add(&mut self, place: &Place<'_>, file: NewFile) -> anyhow::Result<()>;

    /// Adds a file under the first of several names. Returns its inode; none if it cannot be added.
    fn add_first(&mut self, place: &Place<'_>, file: NewFile) -> anyhow::Result<Option<Inode>>;

    /// Adds another name of a file.
    fn add_name(&mut self, place: &Place<'_>, id: FileId) -> anyhow::Result<()>;

    /// Ends a file with several names, after the last of them. `inode` counts these.
    fn add_linked(&mut self, inode: &Inode) -> anyhow::Result<()>;
}
