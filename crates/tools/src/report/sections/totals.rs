//! Totals.

use super::*;
use canopy_model::Totals as Sum;
use canopy_read::totals::{SeenInodes, VisibleTree};

/// Sums over everything, the directories that were asked about among it.
#[derive(Clone, Debug, Default, Serialize)]
pub(in crate::report) struct Totals {
    /// Everything that has a name.
    entries: i64,
    /// Directories among them.
    directories: i64,
    /// Regular files.
    files: i64,
    /// Symbolic links.
    symlinks: i64,
    /// All else.
    others: i64,
    /// Regular files of no bytes.
    zero_byte_files: i64,
    /// Those with extended attributes, but for directories.
    with_xattrs: i64,
    /// As `du --inodes`: hard links count once.
    inodes: i64,
    /// As `du --apparent-size`.
    bytes: i128,
    /// As `du`.
    disk_bytes: i128,
}

impl ReportSection for Totals {
    const TITLE: &'static str = "Totals";
    const NEEDS: &'static [Need] = &[Need::Statistics];
    type Entries = ();

    /// The index keeps no sums of an owner's entries that count each inode once.
    const NEEDS_OF_OWNER: &'static [Need] = &[Need::Statistics, Need::Dirs, Need::Links];

    fn answer(facts: &mut Facts<'_>, (): ()) -> Result<Option<Self>> {
        let once = facts.once()?;
        let whole = &facts.statistics.whole;
        Ok(Some(Totals {
            entries: whole.entries() + once.dirs,
            directories: once.dirs,
            files: whole.types[0],
            symlinks: whole.types[1],
            others: whole.types[2..].iter().sum(),
            zero_byte_files: whole.zero_files,
            with_xattrs: whole.with_xattrs,
            inodes: once.entries + once.dirs,
            bytes: once.bytes.saturating_add(once.dir_bytes),
            disk_bytes: once.disk_bytes(),
        }))
    }

    fn blocks(&self) -> Vec<Block> {
        vec![Block::Facts(vec![
            (size(self.disk_bytes), "on disk (du)"),
            (size(self.bytes), "of sizes"),
            (count(self.entries), "entries"),
            (count(self.files), "files"),
            (count(self.directories), "directories"),
            (count(self.symlinks), "symbolic links"),
            (count(self.others), "others"),
            (count(self.inodes), "inodes (du --inodes)"),
            (count(self.zero_byte_files), "files of no bytes"),
            (count(self.with_xattrs), "with extended attributes"),
        ])]
    }
}

/// Adds up everything, each inode once, as du(1) does. Asked for by [`Facts::once`].
pub(in crate::report) fn once(facts: &Facts<'_>) -> Result<Sum> {
    let options = facts.options;
    let own = facts.starts.iter().map(|start| &start.inode.attributes);
    let own = own.filter(|own| options.owner.is_none_or(|owner| owner == own.uid));
    let mut once = Sum::default();
    for own in own {
        once += Sum::of_directory(own.size_bytes, own.blocks);
    }
    if options.owner.is_some() {
        let whole = &facts.statistics.whole;
        let (entries, bytes, blocks) = (whole.entries(), whole.bytes, whole.blocks);
        once += Sum { entries, bytes, blocks, ..Sum::default() };
        once += facts.owned_dirs;
        once -= facts.links.surplus();
        return Ok(once);
    }
    let mut seen = SeenInodes::default();
    for start in facts.starts {
        let subtree = VisibleTree::of(start, options.threads);
        once += match facts.starts.len() {
            1 => subtree.sum_alone()?,
            _ => subtree.sum(&mut seen)?,
        };
    }
    Ok(once)
}
