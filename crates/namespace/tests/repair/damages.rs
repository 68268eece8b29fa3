//! All that can be wrong with records and contents.

use crate::place::Fixture;
use canopy_namespace::inode::{file_type, flag};
use canopy_namespace::keys::{self, Space};
use canopy_namespace::{FileId, Inode, LOST_AND_FOUND, ROOT};
use canopy_store::{Batch, Direction, Durability, Key};

pub type Damage = (&'static str, bool, fn(&Fixture));

/// All that can be wrong: a name, whether contents are lost with it, and how to do it. Paths that
/// are damaged are each used once, so that several can be done.
pub const DAMAGES: &[Damage] = &[
    ("a name of a small file", false, |place| place.put(&place.key("top/small.txt"), b"?")),
    ("a name of a large file", false, |place| place.put(&place.key("top/large.dat"), b"?")),
    ("a name of a directory", false, |place| place.put(&place.key("top/sub/deep"), b"?")),
    ("a name of the top", false, |place| place.put(&place.key("top"), b"?")),
    ("the root", false, |place| place.put(&keys::root(), b"?")),
    ("an impossible number", false, |place| {
        place.change("top/small.txt", |inode| inode.id = FileId(u64::MAX));
    }),
    ("a hash", false, |place| {
        let key = place.key("top/small.txt");
        let inode = place.get(&key).unwrap();
        place.delete(&key);
        place.put(&Key { hash: 7, ..key }, &inode.encode());
    }),
    ("a hash of what there is already", false, |place| {
        let (key, other) = (place.key("top/small.txt"), place.key("top/large.dat"));
        let inode = place.get(&key).unwrap();
        place.delete(&key);
        place.delete(&keys::name_of(inode.id, FileId(key.directory), &key.name));
        place.put(&keys::name_of(inode.id, FileId(key.directory), &other.name), b"");
        place.put(&Key { hash: 7, ..other }, &inode.encode());
    }),
    ("an inode aside", false, |place| {
        place.put(&Space::Links.of(place.id("top/sub/linked"), b""), b"?");
    }),
    ("an inode aside that is missing", false, |place| {
        place.delete(&Space::Links.of(place.id("top/sub/deep/large linked"), b""));
    }),
    ("an inode aside of another file", false, |place| {
        place.change("top/sub/linked", |inode| inode.id = FileId(3));
    }),
    ("an inode that lies aside, too", false, |place| {
        let inode = place.inode("top/small.txt");
        place.put(&Space::Links.of(inode.id, b""), &inode.encode());
    }),
    ("an inode under two names", false, |place| {
        let inode = place.inode("top/large.dat");
        place.put(&Key::named(ROOT.0, b"copy"), &inode.encode());
    }),
    ("an inode without a name", false, |place| {
        let inode = place.inode("top/small.txt");
        let key = place.key("top/small.txt");
        place.delete(&key);
        place.delete(&keys::name_of(inode.id, FileId(key.directory), &key.name));
        place.put(&Space::Links.of(inode.id, b""), &Inode { nlink: 0, ..inode }.encode());
    }),
    ("a name of no file", false, |place| {
        place.put(&Key::named(ROOT.0, b"dangling"), &Inode::pointer(FileId(4_000_000)).encode());
        place.put(&keys::name_of(FileId(4_000_000), ROOT, b"dangling"), b"");
    }),
    ("names that are not in the index", false, |place| {
        for path in ["top/sub/linked", "another name", "top", "top/sub/deep/bottom"] {
            let (id, key) = (place.id(path), place.key(path));
            place.delete(&keys::name_of(id, FileId(key.directory), &key.name));
        }
    }),
    ("names that only the index has", false, |place| {
        place.put(&keys::name_of(place.id("top"), ROOT, b"nowhere"), b"");
        place.put(&keys::name_of(FileId(5_000_000), ROOT, b"top"), b"");
        place.put(&Space::Names.of(place.id("top"), b"short"), b"");
    }),
    ("entries of indexes that are missing", false, |place| {
        for range in [keys::index(1), keys::index(2), keys::index(3)] {
            let mut scan = place.namespace.table().scan(&range, Direction::Forward).unwrap();
            let Some(key) = scan.next().unwrap().map(|record| record.key.to_key()) else {
                continue;
            };
            place.delete(&key);
        }
        let mut batch = Batch::new();
        let xattrs = canopy_namespace::attributes::Attribute::Xattr(0).number();
        batch.delete_range(&keys::index(xattrs)).unwrap();
        place.namespace.table().write(&batch, Durability::Durable).unwrap();
    }),
    ("entries of indexes that are too many", false, |place| {
        place.put(&keys::entry(1, &[0; 8], place.id("top")), b"");
        place.put(&keys::entry(9999, &[0; 8], place.id("top")), b"");
    }),
    ("counts of links", false, |place| {
        place.change("top/small.txt", |inode| inode.nlink = 9);
        place.change("top/sub/linked", |inode| inode.nlink = 1);
        place.change("top/sub", |inode| inode.nlink = 77);
        place.change("", |inode| inode.nlink = 1);
    }),
    ("a file that counts as nameless", false, |place| {
        let inode = place.inode("top/small.txt");
        place.put(&Space::Orphans.of(inode.id, b""), &inode.encode());
    }),
    ("a file that only counts as nameless", false, |place| {
        let inode = place.inode("top/small.txt");
        place.put(&place.key("top/small.txt"), &Inode::pointer(inode.id).encode());
        place.put(&Space::Orphans.of(inode.id, b""), &Inode { nlink: 0, ..inode }.encode());
    }),
    ("a directory with two names", false, |place| {
        let inode = place.inode("top/sub/deep");
        place.put(&Key::named(ROOT.0, b"deep again"), &inode.encode());
        place.put(&keys::name_of(inode.id, ROOT, b"deep again"), b"");
    }),
    ("flags of extended attributes", false, |place| {
        place.change("top/small.txt", |inode| inode.flags &= !flag::XATTRS);
        place.change("top/large.dat", |inode| inode.flags |= flag::XATTRS);
        place.put(&Space::Xattrs.of(FileId(6_000_000), b"user.lost"), b"1");
    }),
    ("flags of contents", false, |place| {
        place.change("top/small.txt", |inode| inode.flags &= !flag::INLINE);
        place.change("top/large.dat", |inode| inode.flags &= !flag::OBJECT);
        place.change("top/sub/deep/nothing", |inode| inode.flags |= flag::INLINE);
        place.change("top/sub/deep", |inode| inode.flags |= flag::OBJECT | flag::ABSENT);
        place.change("top/sub/linked", |inode| inode.flags |= flag::ABSENT | flag::OBJECT);
    }),
    ("contents that are missing", true, |place| {
        place.delete(&Space::Contents.of(place.id("top/small.txt"), b""));
        place.lose_contents(place.id("top/large.dat"));
    }),
    ("sizes", false, |place| {
        place.change("top/small.txt", |inode| inode.size = 5);
        place.change("top/large.dat", |inode| inode.size = 5);
        place.change("top/sub/deep/nothing", |inode| inode.size = 5);
    }),
    ("contents of no file", false, |place| {
        place.put(&Space::Contents.of(FileId(7_000_000), b""), b"found again");
        place.plant(FileId(7_000_001), "found again, too");
    }),
    ("contents of what has others", false, |place| {
        place.plant(place.id("top/small.txt"), "another object");
        place.put(&Space::Contents.of(place.id("top/large.dat"), b""), b"other contents");
        place.put(&Space::Contents.of(place.id("empty"), b""), b"contents of a directory");
    }),
    ("ids", false, |place| place.delete(&keys::ids())),
    ("blocks of ids that are given out again", false, |place| {
        std::fs::remove_dir_all(place.path.join("ids")).unwrap();
    }),
    ("a directory that lies in itself", false, |place| {
        let (sub, deep) = (place.inode("top/sub"), place.id("top/sub/deep"));
        let key = place.key("top/sub");
        place.delete(&key);
        place.delete(&keys::name_of(sub.id, FileId(key.directory), &key.name));
        place.put(&Key::named(deep.0, b"sub"), &sub.encode());
        place.put(&keys::name_of(sub.id, deep, b"sub"), b"");
    }),
    ("a directory that is missing", false, |place| {
        let (id, key) = (place.id("top/sub"), place.key("top/sub"));
        place.delete(&key);
        place.delete(&keys::name_of(id, FileId(key.directory), &key.name));
    }),
    ("names in a file", false, |place| {
        let (inode, file) = (place.inode("top/large.dat"), place.id("top/small.txt"));
        let key = place.key("top/large.dat");
        place.delete(&key);
        place.delete(&keys::name_of(inode.id, FileId(key.directory), &key.name));
        place.put(&Key::named(file.0, b"large.dat"), &inode.encode());
        place.put(&keys::name_of(inode.id, file, b"large.dat"), b"");
    }),
    ("usage", false, |place| {
        place.put(&Space::Usage.of(FileId(0), b""), &[0; 32]);
        place.put(&Space::Usage.of(FileId(1 << 32 | 55), b""), &[1; 32]);
        place.put(&Space::Usage.of(FileId(9 << 32), b""), &[1; 32]);
        place.put(&Space::Usage.of(FileId(77), b""), b"short");
    }),
    ("limits", false, |place| {
        place.put(&Space::Limits.of(FileId(7), b""), b"short");
        place.put(&Space::Limits.of(FileId(9 << 32), b""), &[1; 48]);
    }),
    ("usage that is missing", false, |place| place.delete(&Space::Usage.of(FileId(0), b""))),
    ("lost+found", false, |place| {
        place.make(ROOT, LOST_AND_FOUND, file_type::REGULAR | 0o600);
        place.put(&place.key("top/small.txt"), b"?");
    }),
];
