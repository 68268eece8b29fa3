//! Gathers what is known of the subtree of a start besides the columns of its rows, as far as the
//! expression asks.

use super::known::{FileSystems, Known};
use super::parse::Find;
use super::run::BATCH_ROWS;
use super::test::{Test, XattrTest};
use crate::error::Result;
use arrow::datatypes::{Int64Type, UInt32Type};
use canopy_index::FileKind;
use canopy_model::{Acl, Credentials, join};
use canopy_read::columns::{numbers, strings};
use canopy_read::links::Links;
use canopy_read::locate::{Start, read_xattrs, xattrs_of};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::{Arc, Mutex};

/// What the expression may ask of the subtree of a start.
pub(super) fn gather(find: &Find, start: &Start, links: &Arc<Links>) -> Result<Known> {
    let judges = find.asks(&|test| matches!(test, Test::Access(_)));
    let knows_mounts = find.asks(&|test| matches!(test, Test::FileSystem(_))) || find.prints('F');
    Ok(Known {
        empty_dirs: if find.asks(&|test| matches!(test, Test::Empty)) {
            empty_dirs(start)?
        } else {
            none()
        },
        hits: xattr_hits(find, start)?,
        acls: if judges { values(start, Acl::XATTR_NAME)? } else { FxHashMap::default() },
        contexts: if find.prints('Z') {
            values(start, "security.selinux")?
        } else {
            FxHashMap::default()
        },
        who: if judges { caller() } else { Credentials::new(0, []) },
        file_systems: if knows_mounts { FileSystems::mounted() } else { FileSystems::none() },
        source: start.source.clone(),
        links: links.clone(),
        link_problems: Mutex::default(),
        problems: Mutex::default(),
    })
}

fn none() -> FxHashSet<String> {
    FxHashSet::default()
}

/// The credentials by which access(2) judges the caller.
fn caller() -> Credentials {
    let groups = rustix::process::getgroups().unwrap_or_default();
    let groups = groups.into_iter().chain([rustix::process::getgid()]).map(|gid| gid.as_raw());
    Credentials::new(rustix::process::getuid().as_raw(), groups)
}

/// Directories of the subtree that have a listing without entries.
fn empty_dirs(start: &Start) -> Result<FxHashSet<String>> {
    let mut empty = FxHashSet::default();
    let mut continued = FxHashSet::default();
    for shard in start.view.shards_of(start.source.id) {
        let listings = shard.listings_below(&start.path)?;
        if listings.is_empty() {
            continue;
        }
        let columns = ["path", "part", "files", "symlinks", "others", "subdirs"];
        for batch in
            shard.read(FileKind::Listings, &columns, std::slice::from_ref(&listings), BATCH_ROWS)?
        {
            let batch = batch?;
            let counts =
                columns[2..].iter().map(|name| numbers::<Int64Type>(&batch, name).values());
            let counts: Vec<_> = counts.collect();
            let paths = strings(&batch, "path");
            let parts = numbers::<UInt32Type>(&batch, "part").values();
            for at in 0..batch.num_rows() {
                if counts.iter().all(|count| count[at] == 0) {
                    empty.insert(paths.value(at).to_owned());
                } else if parts[at] > 0 {
                    continued.insert(paths.value(at).to_owned());
                }
            }
        }
    }
    empty.retain(|path| !continued.contains(path));
    Ok(empty)
}

/// The values of one extended attribute that the caller may see, by path.
fn values(start: &Start, wanted: &str) -> Result<FxHashMap<String, String>> {
    let mut found = FxHashMap::default();
    for shard in start.view.shards_of(start.source.id) {
        for batch in read_xattrs(shard)? {
            let batch = batch?;
            let [paths, names, keys, values] =
                ["path", "name", "key", "value"].map(|name| strings(&batch, name));
            for at in (0..batch.num_rows()).filter(|&at| keys.value(at) == wanted) {
                found.insert(join(paths.value(at), names.value(at)), values.value(at).to_owned());
            }
        }
    }
    for (key, value) in xattrs_of(&start.view, &start.source, &start.path)? {
        if key == wanted {
            found.insert(start.path.clone(), value);
        }
    }
    Ok(found)
}

/// The paths that pass each test of extended attributes for which names in the listing are not
/// enough.
fn xattr_hits(find: &Find, start: &Start) -> Result<Vec<FxHashSet<String>>> {
    let mut tests: Vec<&XattrTest> = Vec::new();
    find.expr.each_test(&mut |test| {
        if let Test::Xattr(test) = test {
            tests.push(test);
        }
    });
    tests.sort_by_key(|test| test.number);
    let mut hits = vec![FxHashSet::default(); tests.len()];
    if tests.iter().any(|test| test.reads_values()) {
        for shard in start.view.shards_of(start.source.id) {
            for batch in read_xattrs(shard)? {
                let batch = batch?;
                let [paths, names, keys, values] =
                    ["path", "name", "key", "value"].map(|name| strings(&batch, name));
                for at in 0..batch.num_rows() {
                    for test in
                        tests.iter().filter(|test| test.holds(keys.value(at), values.value(at)))
                    {
                        let path = join(paths.value(at), names.value(at));
                        hits[test.number].insert(path);
                    }
                }
            }
        }
        for (key, value) in xattrs_of(&start.view, &start.source, &start.path)? {
            for test in tests.iter().filter(|test| test.holds(&key, &value)) {
                hits[test.number].insert(start.path.clone());
            }
        }
    }
    Ok(hits)
}
