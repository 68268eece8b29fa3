//! Permissions that deserve a look.

use super::*;
use canopy_index::column::MODE;

/// Permissions that deserve a look.
#[derive(Clone, Debug, Serialize)]
pub(in crate::report) struct Permissions {
    /// Regular files that everybody may write.
    world_writable_files: Flagged,
    /// Directories that everybody may write, where everybody may remove what others have made (no
    /// sticky bit).
    world_writable_directories: Flagged,
    /// Directories that everybody may write, with a sticky bit.
    world_writable_sticky: i64,
    /// Regular files that run as their owner.
    setuid: Flagged,
    /// Regular files that run as their group.
    setgid: Flagged,
}

/// Rows of these files, collected in the pass.
pub(in crate::report) struct PermissionRows {
    /// Files and directories that everybody may write, setuid and setgid files.
    lists: [FlaggedRows; 4],
    sticky: i64,
}

impl EntryCollector for PermissionRows {
    const READS_DIRS: bool = true;

    fn new(scope: &Scope<'_>) -> Self {
        let lists = std::array::from_fn(|_| FlaggedRows::new(scope.options.top));
        PermissionRows { lists, sticky: 0 }
    }

    fn columns(&self, _: &CoveredFile<'_>) -> Result<Columns> {
        Ok(MODE.into())
    }

    fn add(&mut self, batch: &EntryBatch<'_>) -> Result<()> {
        let modes = MODE.of(batch.batch)?;
        let [files, dirs, setuid, setgid] = &mut self.lists;
        if batch.kind == FileKind::Dirs {
            for &at in batch.rows.iter().filter(|&&at| modes[at] & 0o002 != 0) {
                match modes[at] & 0o1000 {
                    0 => dirs.add(0, batch.id(at)),
                    _ => self.sticky += 1,
                }
            }
            return Ok(());
        }
        for &at in batch.files.iter().filter(|&&at| modes[at] & 0o6002 != 0) {
            let lists = [(0o002, &mut *files), (0o4000, &mut *setuid), (0o2000, &mut *setgid)];
            for (_, list) in lists.into_iter().filter(|(bit, _)| modes[at] & bit != 0) {
                list.add(0, batch.id(at));
            }
        }
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        self.lists.iter_mut().zip(other.lists).for_each(|(own, other)| own.merge(other));
        self.sticky += other.sticky;
    }

    fn lists(&mut self) -> Vec<&mut TopK> {
        self.lists.iter_mut().map(|list| &mut list.first).collect()
    }
}

impl ReportSection for Permissions {
    const TITLE: &'static str = "Permissions to look at";
    const NEEDS: &'static [Need] = &[Need::Dirs, Need::Entries];
    type Entries = PermissionRows;

    fn answer(facts: &mut Facts<'_>, found: PermissionRows) -> Result<Option<Self>> {
        let [files, directories, setuid, setgid] = found.lists.map(|rows| rows.answer(facts));
        Ok(Some(Permissions {
            world_writable_files: files,
            world_writable_directories: directories,
            world_writable_sticky: found.sticky,
            setuid,
            setgid,
        }))
    }

    fn blocks(&self) -> Vec<Block> {
        let mut blocks = flagged_blocks(&[
            ("files that everybody may write", &self.world_writable_files),
            ("directories that everybody may write, not sticky", &self.world_writable_directories),
            ("setuid files", &self.setuid),
            ("setgid files", &self.setgid),
        ]);
        if let Some(Block::Facts(facts)) = blocks.first_mut() {
            let sticky = count(self.world_writable_sticky);
            facts.insert(2, (sticky, "directories that everybody may write, sticky"));
        }
        blocks
    }
}
