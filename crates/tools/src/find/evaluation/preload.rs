//! Reads ahead what is known of the subtree of a start besides the columns of its rows, as far as
//! the expression asks.

use super::facts::{FileSystems, SubtreeFacts};
use super::outside::Outside;
use crate::error::Result;
use crate::find::language::{Find, NamedFile, Test, XattrTest};
use crate::find::messages::quoted;
use canopy_index::column::*;
use canopy_model::{Acl, Credentials, SourcePath, SourcePathBuf};
use canopy_read::follow::locate_followed;
use canopy_read::links::Links;
use canopy_read::locate::{Start, read_xattrs, xattrs_of};
use canopy_read::plan::{BATCH_ROWS, below};
use canopy_read::resolve::locate;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Reads what the expression may ask of the subtree of a start.
pub(crate) fn preload(
    find: &Find,
    start: &Start,
    links: &Arc<Links>,
    outside: &Arc<Outside>,
) -> Result<SubtreeFacts> {
    let asks_access = find.has_test(&|test| matches!(test, Test::Access(_)));
    let asks_empty = find.has_test(&|test| matches!(test, Test::Empty));
    let asks_mounts =
        find.has_test(&|test| matches!(test, Test::FileSystem(_))) || find.prints('F');
    let values_if = |asked: bool, key: &str| match asked {
        true => xattr_values(start, key),
        false => Ok(FxHashMap::default()),
    };
    let (xattr_matches, unknown_values) = xattr_matches(find, start)?;
    let (own_files, problems) = own_files(find, start);
    Ok(SubtreeFacts {
        empty_dirs: if asks_empty { empty_dirs(start)? } else { FxHashSet::default() },
        xattr_matches,
        unknown_values,
        acls: values_if(asks_access, Acl::XATTR_NAME)?,
        contexts: values_if(find.prints('Z'), "security.selinux")?,
        caller: if asks_access { caller() } else { Credentials::new(0, []) },
        file_systems: if asks_mounts { FileSystems::mounted() } else { FileSystems::default() },
        source: start.source.clone(),
        links: links.clone(),
        outside: outside.clone(),
        own_files,
        // Otherwise find(1) looks at each link from its own directory.
        links_before: if find.globals.follow_all { start.links } else { 0 },
        link_problems: Mutex::new(problems),
        problems: Mutex::default(),
    })
}

/// Returns the reference files of `-samefile` that lie in the source of a start, if that source has
/// no device numbers to distinguish them from files of other sources. Also returns the problems of
/// reference files that are not known.
fn own_files(find: &Find, start: &Start) -> (FxHashSet<Vec<u8>>, Vec<String>) {
    let (mut own, mut problems) = (FxHashSet::default(), Vec::new());
    if start.source.has_devices() {
        return (own, problems);
    }
    find.expr.each_test(&mut |test| {
        let Test::SameFile(NamedFile { path, follows, .. }) = test else { return };
        let given = OsStr::from_bytes(path);
        let found = match follows {
            true => locate_followed(&start.view, given),
            false => locate(&start.view, given),
        };
        match found {
            Ok(found) if found.inode.attributes.ino == 0 => problems
                .push(format!("{}: the index has no inode numbers for -samefile", quoted(path))),
            Ok(found) if found.source.id == start.source.id => drop(own.insert(path.clone())),
            Ok(_) => {}
            Err(_) => problems.push(format!(
                "{}: -samefile needs a file that is in the index, which has no device numbers here",
                quoted(path)
            )),
        }
    });
    (own, problems)
}

/// Returns the credentials by which access(2) judges the caller.
pub(crate) fn caller() -> Credentials {
    let groups = rustix::process::getgroups().unwrap_or_default();
    let groups = groups.into_iter().chain([rustix::process::getgid()]).map(|gid| gid.as_raw());
    Credentials::new(rustix::process::getuid().as_raw(), groups)
}

/// Returns the directories of the subtree that have a listing without entries.
fn empty_dirs(start: &Start) -> Result<FxHashSet<SourcePathBuf>> {
    let mut empty = FxHashSet::default();
    let mut continued = FxHashSet::default();
    for range in below(&start.view, start.source.id, start.path.as_path())? {
        let columns = PATH | PART | FILES | SYMLINKS | OTHERS | SUBDIRS;
        let listings = &range.listings;
        for batch in range.shard.read_listings(columns, listings, BATCH_ROWS)? {
            let batch = batch?;
            let (paths, parts) = (PATH.of(&batch)?, PART.of(&batch)?);
            let counts =
                [FILES.of(&batch)?, SYMLINKS.of(&batch)?, OTHERS.of(&batch)?, SUBDIRS.of(&batch)?];
            for at in 0..batch.num_rows() {
                let path = || SourcePath::escaped(paths.value(at)).to_buf();
                if counts.iter().all(|count| count[at] == 0) {
                    empty.insert(path());
                } else if parts[at] > 0 {
                    continued.insert(path());
                }
            }
        }
    }
    empty.retain(|path| !continued.contains(path));
    Ok(empty)
}

/// Calls `visit` with each extended attribute at and below a start whose value the caller may see,
/// and perhaps with others: a way to get the path of its entry, then its name and value, escaped.
fn each_value(
    start: &Start,
    mut visit: impl FnMut(&dyn Fn() -> SourcePathBuf, &str, &str),
) -> Result<()> {
    for shard in start.view.shards_with_values(start.source.id, start.path.as_path())? {
        for batch in read_xattrs(shard)? {
            let batch = batch?;
            let (paths, names) = (VALUE_PATH.of(&batch)?, NAME.of(&batch)?);
            let (keys, values) = (KEY.of(&batch)?, VALUE.of(&batch)?);
            for at in 0..batch.num_rows() {
                let path = || SourcePath::escaped(paths.value(at)).child(names.value(at));
                visit(&path, keys.value(at), values.value(at));
            }
        }
    }
    for (key, value) in xattrs_of(&start.view, &start.source, start.path.as_path())? {
        visit(&|| start.path.clone(), &key, &value);
    }
    Ok(())
}

/// Returns the values of one extended attribute that the caller may see, by path.
fn xattr_values(start: &Start, wanted: &str) -> Result<FxHashMap<SourcePathBuf, String>> {
    let mut found = FxHashMap::default();
    each_value(start, |path, key, value| {
        if key == wanted {
            found.insert(path(), value.to_owned());
        }
    })?;
    Ok(found)
}

/// Paths that pass each of some tests, and names of attributes that could not be understood, by
/// path.
type XattrMatches = (Vec<FxHashSet<SourcePathBuf>>, FxHashMap<SourcePathBuf, String>);

/// Returns the paths that pass each test of extended attributes, by the number of the test, if
/// names in listings are not enough for any of them.
fn xattr_matches(find: &Find, start: &Start) -> Result<XattrMatches> {
    let mut tests: Vec<&XattrTest> = Vec::new();
    find.expr.each_test(&mut |test| {
        if let Test::Xattr(test) = test {
            tests.push(test);
        }
    });
    let (mut matches, mut unknown) =
        (vec![FxHashSet::default(); tests.len()], FxHashMap::default());
    if tests.iter().any(|test| test.reads_values()) {
        each_value(start, |path, key, value| {
            for test in tests.iter().filter(|test| test.asks(key)) {
                match test.holds(key, value) {
                    Some(true) => {
                        matches[test.number].insert(path());
                    }
                    Some(false) => {}
                    None => {
                        unknown.insert(path(), key.to_owned());
                    }
                }
            }
        })?;
    }
    Ok((matches, unknown))
}
