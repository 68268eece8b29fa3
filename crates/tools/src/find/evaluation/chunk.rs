//! Rows with what their listings tell of them.

use super::rows::Batch;
use super::run::bad_ordinal;
use super::visit::Visit;
use crate::error::Result;
use arrow::array::RecordBatch;
use arrow::datatypes::UInt32Type;
use canopy_index::{FileKind, Shard};
use canopy_model::{escape, join};
use canopy_read::columns::{numbers, row_of, strings};
use canopy_read::listings::ListingHeads;
use canopy_read::locate::Start;
use std::sync::Arc;

/// Where the rows of a batch are.
#[derive(Default)]
pub(super) struct Places {
    /// The path of each in the source, escaped.
    pub(super) paths: Vec<String>,
    /// How many components the path of its listing has.
    listing_depths: Vec<u32>,
    /// The device of its listing.
    pub(super) devs: Vec<u64>,
}

impl Places {
    /// Of a batch that has `listing` and `name`.
    pub(super) fn of(shard: &Shard, batch: &RecordBatch) -> Result<Self> {
        let listings = numbers::<UInt32Type>(batch, "listing").values();
        let heads = ListingHeads::read_with_devices(shard, listings)?;
        let names = strings(batch, "name");
        let mut places = Places::default();
        for (at, &listing) in listings.iter().enumerate() {
            let head = heads.get(listing).ok_or_else(|| bad_ordinal(shard, FileKind::Listings))?;
            places.paths.push(join(head.path, names.value(at)));
            places.listing_depths.push(head.depth());
            places.devs.extend(head.dev);
        }
        Ok(places)
    }
}

/// The path of an entry as it would be printed, escaped; `prefix` is the start as it was given,
/// escaped.
pub(super) fn shown(start: &Start, prefix: &str, path: &str) -> String {
    let below = path.get(start.path.len()..).unwrap_or("").trim_start_matches('/');
    let slash = if prefix.ends_with('/') { "" } else { "/" };
    format!("{prefix}{slash}{below}")
}

/// Selected rows with all that tests and actions may ask of them.
pub(super) struct Chunk {
    pub(super) visit: Arc<Visit>,
    pub(super) batch: RecordBatch,
    dirs: bool,
    via_link: bool,
    pub(super) shown: Vec<String>,
    pub(super) paths: Vec<String>,
    pub(super) depths: Vec<u32>,
    pub(super) devs: Vec<u64>,
}

impl Chunk {
    /// Rows of a shard below a start.
    pub(super) fn below(
        visit: &Arc<Visit>,
        shard: &Shard,
        kind: FileKind,
        batch: RecordBatch,
    ) -> Result<Self> {
        let Places { paths, listing_depths, devs } = Places::of(shard, &batch)?;
        let prefix = escape(&visit.start.given).into_owned();
        let shown = paths.iter().map(|path| shown(&visit.start, &prefix, path)).collect();
        let (start, visit) = (visit.start.depth(), visit.clone());
        let depths = listing_depths
            .iter()
            .map(|depth| (depth + 1).saturating_sub(start) + visit.depth)
            .collect();
        let dirs = kind == FileKind::Dirs;
        Ok(Chunk { visit, batch, dirs, via_link: false, shown, paths, depths, devs })
    }

    /// The start itself.
    pub(super) fn of_start(visit: &Arc<Visit>) -> Self {
        let start = &visit.start;
        let given = escape(&start.given).into_owned();
        let name = escape(trim_slashes(super::format::file_name(&start.given))).into_owned();
        Chunk {
            visit: visit.clone(),
            batch: row_of(&name, &start.inode),
            dirs: start.is_dir(),
            via_link: visit.via_link,
            shown: vec![given],
            paths: vec![start.path.clone()],
            depths: vec![visit.depth],
            devs: vec![start.inode.dev],
        }
    }

    /// One row by itself.
    pub(super) fn only(&self, at: usize) -> Self {
        Chunk {
            visit: self.visit.clone(),
            batch: self.batch.slice(at, 1),
            dirs: self.dirs,
            via_link: self.via_link,
            shown: vec![self.shown[at].clone()],
            paths: vec![self.paths[at].clone()],
            depths: vec![self.depths[at]],
            devs: vec![self.devs[at]],
        }
    }

    /// All rows, as tests see them.
    pub(super) fn rows(&self) -> Batch<'_> {
        Batch {
            batch: &self.batch,
            dirs: self.dirs,
            via_link: self.via_link,
            shown: &self.shown,
            paths: &self.paths,
            devs: &self.devs,
            known: &self.visit.known,
        }
    }

    /// One row; `batch` is that row.
    pub(super) fn row<'r>(&'r self, at: usize, batch: &'r RecordBatch) -> Batch<'r> {
        Batch {
            batch,
            dirs: self.dirs,
            via_link: self.via_link,
            shown: &self.shown[at..=at],
            paths: &self.paths[at..=at],
            devs: &self.devs[at..=at],
            known: &self.visit.known,
        }
    }
}

/// One row of a chunk.
#[derive(Clone, Copy)]
pub(super) struct ChunkRow<'c> {
    pub(super) chunk: &'c Chunk,
    pub(super) at: usize,
}

pub(super) fn trim_slashes(name: &[u8]) -> &[u8] {
    let end = name.iter().rposition(|&byte| byte != b'/').map_or(name.len().min(1), |at| at + 1);
    &name[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_searched_without_its_slashes() {
        for (path, name) in
            [(&b"/"[..], &b"/"[..]), (b"//", b"/"), (b"a/b/", b"b"), (b".", b"."), (b"a", b"a")]
        {
            assert_eq!(trim_slashes(super::super::format::file_name(path)), name);
        }
    }
}
