//! Where a search of the index begins: at a start of the user, or with `-L` at what a link below
//! one leads to.

use super::RunOptions;
use super::facts::SubtreeFacts;
use super::follow::Ancestors;
use super::outside::Outside;
use super::preload::preload;
use crate::error::Result;
use crate::find::language::Find;
use crate::find::messages::{link_problem, quoted};
use canopy_index::Index;
use canopy_model::{Device, FileType, SourcePath, SourcePathBuf, escape};
use canopy_read::Lost;
use canopy_read::links::{Links, Resolved};
use canopy_read::listings::ListingHead;
use canopy_read::locate::{Start, absolute_path, device_within, to_path};
use canopy_read::resolve::locate;
use std::sync::Arc;

/// A start with what is known of its subtree; with `-L`, also what a link below a start leads to.
pub(crate) struct Visit {
    /// Its place among the starts.
    pub(crate) number: usize,
    pub(crate) start: Start,
    /// How many components the path of the start has.
    pub(super) start_depth: u32,
    /// The path of the start as it is printed, escaped.
    pub(crate) shown_start: String,
    /// The path of the start, as the user gave it; `start` has that of the link.
    pub(crate) given: Vec<u8>,
    /// How far below the start of the user it is.
    pub(crate) depth: u32,
    /// Whether a symbolic link leads to it, which is followed.
    pub(crate) via_link: bool,
    pub(crate) facts: SubtreeFacts,
    /// Directories above the link that leads here, from start to start.
    pub(crate) ancestors: Vec<Ancestors>,
    /// Those of them that lie below the start, by path, with what is then said.
    pub(crate) loops: Vec<(SourcePathBuf, String)>,
    /// With `-xdev`: the device of the start of the user.
    pub(crate) device: Option<Device>,
}

impl Visit {
    /// Begins at a start of the user, of which facts are read as far as the expression asks.
    pub(crate) fn new(
        find: &Find,
        number: usize,
        start: Start,
        links: &Arc<Links>,
        outside: &Arc<Outside>,
    ) -> Result<Self> {
        Ok(Visit {
            number,
            start_depth: start.depth(),
            shown_start: escape(&start.given).into_owned(),
            given: start.given.clone(),
            depth: 0,
            via_link: false,
            facts: preload(find, &start, links, outside)?,
            ancestors: Vec::new(),
            loops: Vec::new(),
            device: None,
            start,
        })
    }

    /// Returns the path of an entry of the source below the start as it is printed, escaped.
    pub(crate) fn shown(&self, path: SourcePath<'_>) -> String {
        let below = path.as_str().get(self.start.path.as_str().len()..);
        let below = below.unwrap_or("").trim_start_matches('/');
        let slash = if self.shown_start.ends_with('/') { "" } else { "/" };
        format!("{}{slash}{below}", self.shown_start)
    }

    /// Returns how far below the start of the user the entries of a listing are.
    pub(crate) fn depth_of_entries(&self, listing: &ListingHead<'_>) -> u32 {
        (listing.depth() + 1).saturating_sub(self.start_depth) + self.depth
    }

    /// Returns how far below the start of the user an entry of the source is.
    pub(crate) fn depth_of(&self, path: SourcePath<'_>) -> u32 {
        (path.as_str().split('/').count() as u32).saturating_sub(self.start_depth) + self.depth
    }
}

/// Begins at a start; with `-H` and `-L`, where it leads. Returns no visit where the start leads
/// nowhere, and whether a diagnostic was given.
pub(crate) fn start_at(
    index: &Index,
    find: &Find,
    number: usize,
    start: Start,
    outside: &Arc<Outside>,
    options: RunOptions,
) -> Result<(Option<Visit>, bool)> {
    let links = Arc::new(Links::new(start.view.clone()));
    let visit = |start: Start, via_link: bool| -> Result<Option<Visit>> {
        let visit = Visit::new(find, number, start, &links, outside)?;
        let device = match find.globals.one_file_system {
            true => {
                device_within(&visit.start.view, &visit.start.source, visit.start.path.as_path())?
            }
            false => None,
        };
        Ok(Some(Visit { via_link, device, ..visit }))
    };
    if !find.globals.follow_starts || start.inode.attributes.file_type() != FileType::Symlink {
        return Ok((visit(start, false)?, false));
    }
    let link = absolute_path(&start.source, start.path.as_path());
    let mut reached = links.follow_after(start.links, &link, &start.inode.target);
    if let Resolved::Unknown = reached {
        reached = match outside.reached(&start) {
            Ok(inode) if inode.attributes.file_type() != FileType::Directory => {
                return Ok((visit(Start { inode, ..start }, true)?, false));
            }
            // No index has what is in that directory.
            Ok(_) => Resolved::Unknown,
            Err(Lost::Missing) => Resolved::Missing,
            Err(Lost::NotDirectory) => Resolved::NotDirectory,
            Err(Lost::Denied) => Resolved::Denied,
            Err(Lost::Loop) => Resolved::Loop,
            Err(Lost::LongName) => Resolved::LongName,
            Err(Lost::Outside | Lost::Unseen | Lost::Unindexed) => {
                outside.note_unknown(link.as_bytes());
                Resolved::Missing
            }
        };
    }
    match reached {
        Resolved::Entry(reached) => {
            let there = locate(index, to_path(&reached.absolute).as_os_str())?;
            let links = reached.links;
            Ok((visit(Start { given: start.given, links, ..there }, true)?, false))
        }
        lost => {
            let problem = link_problem(&lost);
            if let Some(what) = problem {
                (options.diagnostic)(&format!("{}: {what}", quoted(&start.given)));
            }
            let visit = match lost {
                Resolved::Missing | Resolved::Unknown => visit(start, false)?,
                _ => None,
            };
            Ok((visit, problem.is_some()))
        }
    }
}
