//! Where a search of the index begins: at a start of the user, or with `-L` at what a link below
//! one leads to.

use super::following::Above;
use super::gather::gather;
use super::known::{Known, UNKNOWN, quoted};
use super::parse::Find;
use super::run::RunOptions;
use crate::error::Result;
use canopy_index::Index;
use canopy_model::FileType;
use canopy_read::links::{Links, Place};
use canopy_read::locate::{Start, absolute_path, locate, to_path};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// A start with what is known of its subtree; with `-L`, also what a link below a start leads to.
pub(super) struct Visit {
    /// Its place among the starts.
    pub(super) number: usize,
    pub(super) start: Start,
    /// The path of the start, as the user gave it; `start` has that of the link.
    pub(super) given: Vec<u8>,
    /// How far below the start of the user it is.
    pub(super) depth: u32,
    /// Whether a symbolic link leads to it, which is followed.
    pub(super) via_link: bool,
    pub(super) known: Known,
    /// Directories above the link that leads here, from start to start.
    pub(super) above: Vec<Above>,
    /// Those of them that lie below the start, by path in the source, with what is then told.
    pub(super) loops: Vec<(String, String)>,
    /// With `-xdev`: the device of the start of the user.
    pub(super) device: Option<u64>,
}

/// The start at a path; with `-H` and `-L`, where it leads. `None` if that is told to be nothing.
/// Also whether anything was told.
pub(super) fn start_at(
    index: &Index,
    find: &Find,
    number: usize,
    given: &OsStr,
    options: RunOptions,
) -> Result<(Option<Visit>, bool)> {
    let start = locate(index, given)?;
    let links = Arc::new(Links::new(start.view.clone()));
    let visit = |start: Start, via_link: bool| -> Result<Option<Visit>> {
        let known = gather(find, &start, &links)?;
        let mut visit = Visit {
            number,
            given: start.given.clone(),
            depth: 0,
            via_link,
            known,
            above: Vec::new(),
            loops: Vec::new(),
            device: None,
            start,
        };
        if find.globals.one_file_system {
            visit.device = device(&visit.start)?;
        }
        Ok(Some(visit))
    };
    if !find.globals.follow_starts || start.inode.attributes.file_type() != FileType::Symlink {
        return Ok((visit(start, false)?, false));
    }
    let tell = |what: &str| (options.tell)(&format!("{}: {what}", quoted(given.as_bytes())));
    match links.follow(&absolute_path(&start.source, &start.path), &start.inode.target) {
        Place::There(reached) => {
            let there = locate(index, to_path(&reached.absolute).as_os_str())?;
            Ok((visit(Start { given: start.given, ..there }, true)?, false))
        }
        Place::Missing => Ok((visit(start, false)?, false)),
        Place::Loop => {
            tell("Too many levels of symbolic links");
            Ok((None, true))
        }
        Place::NotDirectory => {
            tell("Not a directory");
            Ok((None, true))
        }
        Place::Unknown => {
            tell(UNKNOWN);
            Ok((visit(start, false)?, true))
        }
    }
}

/// The device of the start directory's own listing, which is not that of its parent's where
/// something is mounted.
fn device(start: &Start) -> Result<Option<u64>> {
    for shard in start.view.shards_of(start.source.id) {
        let listings = shard.listings_at(&start.path)?;
        if !listings.is_empty() {
            return Ok(Some(shard.device_of(listings.start)?));
        }
    }
    Ok(None)
}
