//! Where a symbolic link leads, by what the index has: component by component, as the kernel goes.
//!
//! Nobody learns of anything that is not in the shards that they can read: what lies in a directory that they cannot
//! list, or outside of all sources, is unknown.

use crate::error::Result;
use crate::locate::{Inode, absolute_path, look_up, source_of};
use canopy_index::{Index, SourceRecord};
use canopy_model::{Attributes, FileType, join_absolute, parent};
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex};

const LINKS_MAX: u32 = 40;

/// What a link leads to.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// This.
    There(Box<Reached>),
    /// Nothing.
    Missing,
    /// Itself, or too many links.
    Loop,
    /// The index does not know.
    Unknown,
}

/// An entry that a link leads to.
#[derive(Clone, Debug)]
pub(crate) struct Reached {
    /// Its absolute path, escaped.
    pub(crate) absolute: String,
    /// Its path in its source.
    pub(crate) path: String,
    pub(crate) attributes: Attributes,
    pub(crate) xattrs: String,
}

/// Follows links, remembering what was looked up.
pub(crate) struct Links {
    index: Arc<Index>,
    source: SourceRecord,
    known: Mutex<FxHashMap<String, Option<Inode>>>,
}

impl Links {
    /// For links of a source.
    pub(crate) fn new(index: Arc<Index>, source: SourceRecord) -> Self {
        Links { index, source, known: Mutex::default() }
    }

    /// Where the link at a path of the source leads; both escaped. A file that cannot be read counts as unknown.
    pub(crate) fn follow(&self, path: &str, target: &str) -> Place {
        let absolute = absolute_path(&self.source, path);
        self.go(parent_of(&absolute), target).unwrap_or(Place::Unknown)
    }

    fn go(&self, directory: &str, target: &str) -> Result<Place> {
        let mut directory = directory.to_owned();
        let mut rest: Vec<String> = Vec::new();
        let mut links = 0;
        let mut last: Option<(String, Inode)> = None;
        lead(&mut directory, &mut rest, target);
        while let Some(name) = rest.pop() {
            match name.as_str() {
                "." => continue,
                ".." => {
                    directory = parent_of(&directory).to_owned();
                    last = None;
                    continue;
                }
                _ => {}
            }
            let path = join_absolute(&directory, &name);
            if source_of(&self.index, &path).is_none() {
                if !leads_to_source(&self.index, &path) {
                    return Ok(Place::Unknown);
                }
                directory = path;
                continue;
            }
            let Some(inode) = self.inode(&path)? else {
                return Ok(if self.lists(&directory)? { Place::Missing } else { Place::Unknown });
            };
            match inode.attributes.file_type() {
                FileType::Symlink => {
                    links += 1;
                    if links >= LINKS_MAX {
                        return Ok(Place::Loop);
                    }
                    lead(&mut directory, &mut rest, &inode.target);
                    last = None;
                }
                FileType::Directory => {
                    directory.clone_from(&path);
                    last = Some((path, inode));
                }
                _ if rest.is_empty() => last = Some((path, inode)),
                _ => return Ok(Place::Missing),
            }
        }
        let last = match last {
            Some(last) => Some(last),
            None if source_of(&self.index, &directory).is_some() => {
                self.inode(&directory)?.map(|inode| (directory, inode))
            }
            None => None,
        };
        Ok(last.map_or(Place::Unknown, |(absolute, inode)| {
            let path = source_of(&self.index, &absolute).map_or_else(String::new, |(_, path)| path);
            let Inode { attributes, xattrs, .. } = inode;
            Place::There(Box::new(Reached { absolute, path, attributes, xattrs }))
        }))
    }

    fn inode(&self, absolute: &str) -> Result<Option<Inode>> {
        if let Some(known) =
            self.known.lock().expect("no thread panics while it holds the lock").get(absolute)
        {
            return Ok(known.clone());
        }
        let Some((source, path)) = source_of(&self.index, absolute) else { return Ok(None) };
        let inode = look_up(&self.index, source, &path)?;
        let mut known = self.known.lock().expect("no thread panics while it holds the lock");
        known.insert(absolute.to_owned(), inode.clone());
        Ok(inode)
    }

    /// Whether the caller sees the listing of a directory, so that what is not in it does not exist.
    fn lists(&self, absolute: &str) -> Result<bool> {
        let Some((source, path)) = source_of(&self.index, absolute) else { return Ok(false) };
        for shard in self.index.shards_of(source.id) {
            if !shard.listings_at(&path)?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn lead(directory: &mut String, rest: &mut Vec<String>, target: &str) {
    if target.starts_with('/') {
        *directory = "/".to_owned();
    }
    // A slash at the end asks for a directory, as a '.' there does.
    let target = target.strip_suffix('/').map_or_else(|| target.to_owned(), |target| format!("{target}/."));
    rest.extend(target.split('/').rev().filter(|name| !name.is_empty()).map(str::to_owned));
}

fn parent_of(absolute: &str) -> &str {
    match parent(absolute.trim_start_matches('/')) {
        Some(above) if !above.is_empty() => &absolute[..above.len() + 1],
        _ => "/",
    }
}

/// Whether a path is that of a source or of a directory above one.
fn leads_to_source(index: &Index, path: &str) -> bool {
    let leads =
        |root: &str| root == path || root.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
    index.sources().iter().any(|source| leads(&source.root))
}
