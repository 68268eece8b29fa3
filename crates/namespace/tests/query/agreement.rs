//! The table of conditions, answered by ranges of all indexes of a namespace.

#[path = "../../../query/tests/table/mod.rs"]
mod table;

use canopy_namespace::attributes::{Attribute, Indexes};
use canopy_namespace::{Candidates, FileId, Inode, NamedInode, Source};
use table::{CASES, ENTRIES, Entry};

fn inode(entry: &Entry) -> Inode {
    Inode {
        mode: entry.mode,
        uid: entry.uid,
        gid: entry.gid,
        nlink: entry.links,
        size: entry.size as u64,
        blocks: entry.blocks as u64,
        mtime_ns: entry.mtime_ns,
        ctime_ns: entry.ctime_ns,
        atime_ns: entry.atime_ns,
        btime_ns: entry.btime_ns,
        id: FileId(entry.ino),
        target: entry.target.to_vec(),
        ..Inode::default()
    }
}

/// Reads a source as an index with the entries of the table has it.
fn read(source: &Source, indexes: &Indexes) -> Vec<FileId> {
    let entries = ENTRIES.iter().map(|entry| (entry, inode(entry)));
    let found = entries.filter(|(entry, inode)| match source {
        Source::Files(ids) => ids.contains(&inode.id),
        Source::Index(_, range) => {
            indexes.entries(inode, entry.name).any(|key| range.contains(key.as_ref()))
        }
    });
    found.map(|(_, inode)| inode.id).collect()
}

#[test]
fn ranges_of_indexes_agree_with_the_table() {
    let attributes = Attribute::built_in().collect();
    let indexes = Indexes { attributes, ..Indexes::default() };
    let mut left_out = 0;
    for case in CASES {
        let expression = case.expression();
        let candidates = Candidates::of(&expression, &indexes);
        let ids = candidates.map(|all| {
            let ids = all.files(&mut |source| Ok::<_, ()>(Some(read(source, &indexes))));
            ids.expect("no error").expect("no source has too many")
        });
        for entry in &ENTRIES {
            let inode = inode(entry);
            let is_candidate = ids.as_ref().is_none_or(|ids| ids.contains(&inode.id));
            let (name, path) = (entry.name, entry.name);
            let named = NamedInode { inode: &inode, name, path, xattr: &|_| None };
            let found = is_candidate && expression.matches(&named);
            assert_eq!(found, case.finds(entry), "{} {entry:?}", case.brackets);
            left_out += usize::from(!is_candidate);
        }
    }
    assert!(left_out > 200, "{left_out}");
}
