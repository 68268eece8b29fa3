//! Mounts in a territory, and their changes.

use crate::error::{Error, Result};
use crate::suspects::is_at_or_below;
use canopy_model::Device;
use canopy_scan::{Mount, MountRules, parse_mounts};
use rustix::fd::{AsFd, BorrowedFd};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

const TABLE: &str = "/proc/self/mountinfo";

/// The table of mounts, which tells poll(2) when it has changed.
pub(crate) struct MountTable {
    file: File,
    pub(crate) mounts: Vec<Mount>,
}

impl MountTable {
    pub(crate) fn open() -> Result<Self> {
        let file = File::open(TABLE).map_err(Error::io("open", Path::new(TABLE)))?;
        let mut table = MountTable { file, mounts: Vec::new() };
        table.refresh()?;
        Ok(table)
    }

    /// Reads the table again, and returns where something is mounted that was not, or the other way
    /// round.
    pub(crate) fn refresh(&mut self) -> Result<Vec<Vec<u8>>> {
        let mut text = Vec::new();
        let read = self.file.rewind().and_then(|()| self.file.read_to_end(&mut text));
        read.map_err(Error::io("read", Path::new(TABLE)))?;
        let before = std::mem::replace(&mut self.mounts, parse_mounts(&text));
        Ok(difference(&before, &self.mounts))
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn difference(before: &[Mount], after: &[Mount]) -> Vec<Vec<u8>> {
    let places = |mounts: &[Mount]| -> BTreeSet<(Vec<u8>, u64, Device)> {
        mounts.iter().map(|mount| (mount.point.clone(), mount.id, mount.dev)).collect()
    };
    let (before, after) = (places(before), places(after));
    let mut points = Vec::from_iter(before.symmetric_difference(&after).map(|one| one.0.clone()));
    points.dedup();
    points
}

/// Returns where something is mounted below a root that a scan of the root enters.
pub(crate) fn entered_mounts(
    mounts: &[Mount],
    root: &[u8],
    rules: &MountRules,
    one_file_system: bool,
) -> Vec<Vec<u8>> {
    let around = mount_of(mounts, root);
    let dev = around.map(|mount| mount.dev);
    let below = mounts.iter().filter(|mount| {
        mount.point != root
            && is_at_or_below(&mount.point, root)
            && rules.enters(mount, around)
            && (!one_file_system || Some(mount.dev) == dev)
    });
    let points: BTreeSet<Vec<u8>> = below.map(|mount| mount.point.clone()).collect();
    points.into_iter().collect()
}

/// Returns the mount that a path is on.
pub(crate) fn mount_of<'a>(mounts: &'a [Mount], path: &[u8]) -> Option<&'a Mount> {
    let around = mounts.iter().filter(|mount| is_at_or_below(path, &mount.point));
    around.max_by_key(|mount| mount.point.len())
}

/// Returns whether a scan of a root comes to a path below it through all that is mounted on the way.
pub(crate) fn is_entered(mounts: &[Mount], root: &[u8], path: &[u8], rules: &MountRules) -> bool {
    let around = mount_of(mounts, root);
    mounts.iter().all(|mount| {
        mount.point == root
            || !is_at_or_below(&mount.point, root)
            || !is_at_or_below(path, &mount.point)
            || rules.enters(mount, around)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_that_a_scan_enters_are_followed_and_told_when_they_change() {
        let before = parse_mounts(
            b"1 0 8:1 / / rw - ext4 /dev/a rw\n\
              2 1 0:5 / /proc rw - proc proc rw\n\
              3 1 8:2 / /data/in rw - xfs /dev/b rw\n\
              4 1 8:1 /x /data/bound rw - ext4 /dev/a rw\n\
              5 1 0:9 / /data/of-ann rw - fuse.sshfs h rw,user_id=7\n\
              6 1 8:3 / /database rw - xfs /dev/c rw\n",
        );
        let rules = MountRules::new(Vec::new(), false);
        let points = |root: &[u8], one| entered_mounts(&before, root, &rules, one);
        assert_eq!(points(b"/data", false), [b"/data/bound".to_vec(), b"/data/in".to_vec()]);
        assert_eq!(points(b"/data", true), [b"/data/bound".to_vec()]);
        assert_eq!(points(b"/data/in", false), [b""; 0]);
        assert_eq!(points(b"/", false).len(), 3);
        let entered = |path: &[u8]| is_entered(&before, b"/data", path, &rules);
        assert!(entered(b"/data") && entered(b"/data/in/a") && entered(b"/data/of-anna"));
        assert!(!entered(b"/data/of-ann") && !entered(b"/data/of-ann/a"));
        let mut after = before.clone();
        after.remove(2);
        after[4].id = 7;
        assert_eq!(difference(&before, &after), [b"/data/in".to_vec(), b"/database".to_vec()]);
        assert_eq!(difference(&after, &after), [b""; 0]);
    }
}
