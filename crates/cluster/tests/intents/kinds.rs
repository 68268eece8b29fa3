//! Each kind of change once, with its times and numbers of links.

use crate::net::{
    Name, Net, POLICY, change, create, execute, file, link, list, lookup, rename, rmdir, unlink,
};
use canopy_cluster::{Client, Error};
use canopy_namespace::inode::{TYPE_MASK, file_type};
use canopy_namespace::operation::{Change, Changer, Hold, Moment, Operation, Read};
use canopy_namespace::{EntryName, FileId, New, Ownership, ROOT, RenameMode, Reply, SetXattr};
use canopy_partition::SplitPolicy;
use rustix::io::Errno;
use std::borrow::Cow;
use std::time::{Duration, Instant};

fn stat(client: &Client, id: FileId) -> canopy_namespace::Inode {
    match execute(client, &Operation::Read(Moment::Now, Read::Inode(id))) {
        Ok(Reply::Inode(inode)) => inode,
        other => panic!("{other:?}"),
    }
}

fn set_xattr(client: &Client, id: FileId, value: &[u8]) {
    let changer = Changer::Privileged;
    let set = Change::SetXattr { id, name: b"user.x", value, how: SetXattr::Any, changer };
    change(client, set).unwrap();
}

fn xattr(client: &Client, id: FileId) -> Option<Vec<u8>> {
    let read = Operation::Read(Moment::Now, Read::Xattr { id, name: b"user.x" });
    match execute(client, &read) {
        Ok(Reply::Bytes(value)) => value,
        other => panic!("{other:?}"),
    }
}

fn fails(result: Result<Reply, Error>, errno: Errno) {
    match result {
        Err(Error::Namespace(error)) => assert_eq!(error.errno(), errno),
        other => panic!("{other:?}"),
    }
}

/// Waits until a file without a name is gone. A server that has just started keeps it for clients that
/// may have held it.
fn goes(client: &Client, id: FileId) {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        match execute(client, &Operation::Read(Moment::Now, Read::Inode(id))) {
            Ok(Reply::Inode(inode)) => assert_eq!(inode.nlink, 0),
            gone => return fails(gone, Errno::NOENT),
        }
        assert!(Instant::now() < end, "file {id} stays");
        std::thread::yield_now();
    }
}

/// Three directories, each on a server of its own.
fn three(net: &Net) -> [FileId; 3] {
    [0, 1, 2].map(|server| net.directory_at(server, 0o755, 7))
}

#[test]
fn a_file_moves_with_everything() {
    let net = Net::new(3, POLICY);
    let client = net.client();
    let [here, there, _] = three(&net);
    let id = file(&client, here, "a");
    set_xattr(&client, id, b"value");
    let before = stat(&client, id);
    let directories = [stat(&client, here), stat(&client, there)];
    rename(&client, (here, "a"), (there, "b"), RenameMode::Replace).unwrap();
    assert!(lookup(&client, here, "a").is_none());
    let moved = lookup(&client, there, "b").unwrap();
    assert_eq!(moved, stat(&net.client(), id));
    assert!(moved.ctime_ns > before.ctime_ns);
    let expected = canopy_namespace::Inode { ctime_ns: moved.ctime_ns, ..before };
    assert_eq!(moved, expected);
    assert_eq!(xattr(&client, id).unwrap(), b"value");
    for directory in directories {
        let now = stat(&client, directory.id);
        assert!(now.mtime_ns > directory.mtime_ns && now.ctime_ns > directory.ctime_ns);
        assert_eq!(now.nlink, directory.nlink);
    }
    // Changes go on where it is now.
    set_xattr(&client, id, b"other");
    rename(&client, (there, "b"), (here, "a"), RenameMode::NoReplace).unwrap();
    assert_eq!(xattr(&client, id).unwrap(), b"other");
    file(&client, there, "c");
    fails(rename(&client, (here, "a"), (there, "c"), RenameMode::NoReplace), Errno::EXIST);
    fails(rename(&client, (here, "none"), (there, "c"), RenameMode::Replace), Errno::NOENT);
    fails(rename(&client, (here, "a"), (there, "none"), RenameMode::Exchange), Errno::NOENT);
    fails(rename(&client, (here, "a"), (FileId(1 << 40), "c"), RenameMode::Replace), Errno::NOENT);
    net.settle();
    net.assert_sound();
}

#[test]
fn files_replace_and_exchange() {
    let net = Net::new(3, POLICY);
    let client = net.client();
    let [here, there, _] = three(&net);
    let (one, other) = (file(&client, here, "a"), file(&client, there, "b"));
    set_xattr(&client, one, b"one");
    set_xattr(&client, other, b"other");
    rename(&client, (here, "a"), (there, "b"), RenameMode::Exchange).unwrap();
    assert_eq!(lookup(&client, here, "a").unwrap().id, other);
    assert_eq!(lookup(&client, there, "b").unwrap().id, one);
    assert_eq!(xattr(&client, one).unwrap(), b"one");
    assert_eq!(xattr(&client, other).unwrap(), b"other");
    rename(&client, (here, "a"), (there, "b"), RenameMode::Replace).unwrap();
    assert_eq!(lookup(&client, there, "b").unwrap().id, other);
    goes(&client, one);
    assert_eq!(list(&client, here).len() + list(&client, there).len(), 1);
    net.settle();
    net.assert_sound();
}

#[test]
fn a_whiteout_is_left() {
    let net = Net::new(2, POLICY);
    let client = net.client();
    let (here, there) = (net.directory_at(0, 0o755, 7), net.directory_at(1, 0o755, 7));
    let id = file(&client, here, "a");
    let (from, to) = (EntryName::new(here, b"a"), EntryName::new(there, b"b"));
    let whiteout = Some(Ownership { uid: 7, gid: 8 });
    let mode = RenameMode::Replace;
    change(&client, Change::Rename { from, to, mode, whiteout }).unwrap();
    let left = lookup(&client, here, "a").unwrap();
    assert_eq!((left.mode & TYPE_MASK, left.rdev, left.uid), (file_type::CHARACTER, 0, 7));
    assert_eq!(lookup(&client, there, "b").unwrap().id, id);
}

/// A second name may be on another server than the file. A mount holds what it looks up.
#[test]
fn a_name_leads_to_all_attributes_of_a_file_of_another_server() {
    let net = Net::new(3, POLICY);
    let client = net.client();
    let directories = three(&net);
    let types = [
        file_type::REGULAR,
        file_type::FIFO,
        file_type::SOCKET,
        file_type::SYMLINK,
        file_type::CHARACTER,
        file_type::BLOCK,
    ];
    for (number, first) in directories.into_iter().enumerate() {
        for (kind, of_type) in types.into_iter().enumerate() {
            let name = format!("{number}-{kind}");
            let target =
                if of_type == file_type::SYMLINK { b"target".to_vec() } else { Vec::new() };
            let new = Cow::Owned(New { mode: of_type | 0o640, uid: 7, target, ..New::default() });
            let of_first = EntryName::new(first, name.as_bytes());
            let made = change(&client, Change::Create { name: of_first, new, holds: false });
            let Ok(Reply::Inode(made)) = made else { panic!("{made:?}") };
            for (number, second) in directories.into_iter().enumerate() {
                let other = format!("{name}-{number}");
                link(&client, made.id, (second, &other)).unwrap();
                for at in [(first, &name), (second, &other)] {
                    let held = Hold::Name(EntryName::new(at.0, at.1.as_bytes()));
                    let held = execute(&net.client(), &Operation::Hold(held));
                    let Ok(Reply::Inode(held)) = held else { panic!("{at:?}: {held:?}") };
                    assert_eq!(held, stat(&client, made.id), "{at:?}");
                    assert_eq!((held.mode, held.uid), (made.mode, 7), "{at:?}");
                }
            }
        }
    }
    net.settle();
    net.assert_sound();
}

/// Links a file and takes the names away again, in every order of the servers of its names.
#[test]
fn links_are_counted() {
    for servers in [2, 3] {
        let net = Net::new(servers, POLICY);
        let client = net.client();
        let directories = Vec::from_iter((0..servers).map(|at| net.directory_at(at, 0o755, 7)));
        for (number, first) in directories.iter().enumerate() {
            for second in &directories {
                links(&client, &directories, *first, *second);
                assert!(directories.iter().all(|at| list(&client, *at).is_empty()), "{number}");
            }
        }
        net.settle();
        net.assert_sound();
    }
}

fn links(client: &Client, directories: &[FileId], first: FileId, second: FileId) {
    let id = file(client, first, "first");
    set_xattr(client, id, b"value");
    let before = [stat(client, first), stat(client, second)];
    let Ok(Reply::Inode(linked)) = link(client, id, (second, "second")) else { panic!() };
    let is_touched = |at: usize| {
        let now = stat(client, before[at].id);
        now.mtime_ns > before[at].mtime_ns && now.ctime_ns > before[at].ctime_ns
    };
    // The directory of the old name does not change.
    assert!(is_touched(1) && (first == second || !is_touched(0)));
    assert_eq!(linked, stat(client, id));
    let mut names = vec![(first, "first".to_owned()), (second, "second".to_owned())];
    for (number, directory) in directories.iter().enumerate() {
        let name = format!("more{number}");
        link(client, id, (*directory, &name)).unwrap();
        names.push((*directory, name));
    }
    fails(link(client, id, (first, "first")), Errno::EXIST);
    fails(rename(client, (first, "first"), (second, "none"), RenameMode::Exchange), Errno::NOENT);
    // Both names are of one file: nothing happens.
    rename(client, (first, "first"), (second, "second"), RenameMode::Replace).unwrap();
    for (directory, name) in &names {
        let found = lookup(client, *directory, name).unwrap();
        assert_eq!((found.id, found.nlink as usize), (id, names.len()));
        let listed = list(client, *directory);
        assert!(listed.iter().any(|(one, inode)| one == name && *inode == found));
    }
    // A rename of one of several names, onto a file with one.
    let last = directories[directories.len() - 1];
    file(client, last, "moved");
    let ctime_ns = stat(client, id).ctime_ns;
    rename(client, (first, "first"), (last, "moved"), RenameMode::Replace).unwrap();
    assert!(stat(client, id).ctime_ns > ctime_ns);
    names[0] = (last, "moved".to_owned());
    // And a file with one name onto one of several.
    file(client, first, "new");
    rename(client, (first, "new"), (second, "second"), RenameMode::Replace).unwrap();
    names.remove(1);
    unlink(client, (second, "second")).unwrap();
    assert_eq!(xattr(client, id).unwrap(), b"value");
    while let Some((directory, name)) = names.pop() {
        assert_eq!(stat(client, id).nlink as usize, names.len() + 1);
        assert_eq!(unlink(client, (directory, &name)).unwrap(), Reply::File(id));
    }
    goes(client, id);
}

#[test]
fn directories_get_other_names() {
    let net = Net::new(3, POLICY);
    let client = net.client();
    let names = |prefix: &str| Vec::from_iter((0..6).map(|number| format!("{prefix}{number}")));
    let parent = net.directory_at(1, 0o755, 7);
    for (old, new) in names("old").iter().zip(names("new")) {
        let made = create(&client, parent, old, file_type::DIRECTORY | 0o755, 7).unwrap();
        let inside = file(&client, made.id, "inside");
        let links = stat(&client, parent).nlink;
        rename(&client, (parent, old), (parent, &new), RenameMode::Replace).unwrap();
        assert_eq!(stat(&client, parent).nlink, links);
        let moved = lookup(&client, parent, &new).unwrap();
        assert!(lookup(&client, parent, old).is_none() && moved.ctime_ns > made.ctime_ns);
        assert_eq!((moved.id, moved.nlink), (made.id, 2));
        assert_eq!(lookup(&client, made.id, "inside").unwrap().id, inside);
        let path = Operation::Access(canopy_namespace::operation::Access::Path(inside));
        let Ok(Reply::Bytes(Some(path))) = execute(&client, &path) else { panic!() };
        assert!(path.ends_with(format!("{new}/inside").as_bytes()), "{path:?}");
    }
    let (one, other): (Name<'_>, Name<'_>) = ((parent, "new0"), (parent, "new1"));
    let ids = [one, other].map(|(at, name)| lookup(&client, at, name).unwrap().id);
    rename(&client, one, other, RenameMode::Exchange).unwrap();
    assert_eq!([other, one].map(|(at, name)| lookup(&client, at, name).unwrap().id), ids);
    file(&client, parent, "file");
    fails(rename(&client, one, (parent, "file"), RenameMode::Replace), Errno::NOTDIR);
    fails(rename(&client, (parent, "file"), one, RenameMode::Replace), Errno::ISDIR);
    rename(&client, (parent, "file"), one, RenameMode::Exchange).unwrap();
    fails(unlink(&client, (parent, "file")), Errno::ISDIR);
    fails(link(&client, ids[0], (parent, "link")), Errno::PERM);
    assert_eq!(lookup(&client, parent, "new1").unwrap().id, ids[0]);
    net.settle();
    net.assert_sound();
}

#[test]
fn directories_move_and_go() {
    let net = Net::new(3, POLICY);
    let client = net.client();
    let at = three(&net);
    let links = |directory: FileId| stat(&client, directory).nlink;
    for (number, parent) in at.into_iter().enumerate() {
        for (other, target) in at.into_iter().enumerate().filter(|(other, _)| *other != number) {
            let (old, new) = (format!("old{number}{other}"), format!("new{number}{other}"));
            let made = create(&client, parent, &old, file_type::DIRECTORY | 0o755, 7).unwrap();
            let inside = create(&client, made.id, "in", file_type::DIRECTORY | 0o755, 7).unwrap();
            let before = [links(parent), links(target)];
            // Into itself, and below itself.
            for below in [made.id, inside.id] {
                let into = rename(&client, (parent, &old), (below, "x"), RenameMode::Replace);
                fails(into, Errno::INVAL);
            }
            let onto = rename(&client, (made.id, "in"), (parent, &old), RenameMode::Replace);
            fails(onto, Errno::NOTEMPTY);
            rename(&client, (parent, &old), (target, &new), RenameMode::Replace).unwrap();
            assert_eq!([links(parent), links(target)], [before[0] - 1, before[1] + 1]);
            assert_eq!(lookup(&client, target, &new).unwrap().id, made.id);
            fails(rmdir(&client, (target, &new)), Errno::NOTEMPTY);
            file(&client, made.id, "file");
            fails(rmdir(&client, (made.id, "file")), Errno::NOTDIR);
            unlink(&client, (made.id, "file")).unwrap();
            // An empty directory is replaced, another one is not.
            let other = create(&client, parent, &old, file_type::DIRECTORY | 0o755, 7).unwrap();
            let onto = rename(&client, (parent, &old), (target, &new), RenameMode::Replace);
            fails(onto, Errno::NOTEMPTY);
            rmdir(&client, (made.id, "in")).unwrap();
            rename(&client, (parent, &old), (target, &new), RenameMode::Replace).unwrap();
            assert_eq!(lookup(&client, target, &new).unwrap().id, other.id);
            assert!(create(&client, made.id, "late", file_type::REGULAR, 7).is_err());
            rmdir(&client, (target, &new)).unwrap();
            assert_eq!([links(parent), links(target)], [before[0] - 1, before[1]]);
            for id in [made.id, inside.id, other.id] {
                goes(&client, id);
            }
        }
    }
    net.settle();
    net.assert_sound();
}

#[test]
fn a_directory_with_many_partitions_goes() {
    let net = Net::new(3, SplitPolicy { entries_max: 16, ..POLICY });
    let client = net.client();
    let made = create(&client, ROOT, "big", file_type::DIRECTORY | 0o755, 7).unwrap();
    let names = Vec::from_iter((0..300).map(|number| format!("{number}")));
    names.iter().for_each(|name| _ = file(&client, made.id, name));
    net.settle();
    for name in &names {
        fails(rmdir(&client, (ROOT, "big")), Errno::NOTEMPTY);
        unlink(&client, (made.id, name)).unwrap();
    }
    rmdir(&client, (ROOT, "big")).unwrap();
    assert!(lookup(&client, ROOT, "big").is_none());
    goes(&client, made.id);
    for name in &names {
        let late = create(&client, made.id, name, file_type::REGULAR, 7);
        assert!(late.is_err() && lookup(&client, made.id, name).is_none());
    }
    net.settle();
    net.assert_sound();
}

#[test]
fn a_held_file_stays_wherever_it_goes() {
    let net = Net::new(3, POLICY);
    let client = net.client();
    let [here, there, _] = three(&net);
    let hold = |name: &str| {
        let hold = Hold::Name(EntryName::new(here, name.as_bytes()));
        execute(&client, &Operation::Hold(hold)).unwrap();
    };
    let [moved, linked, free] = ["moved", "linked", "free"].map(|name| file(&client, here, name));
    let exchanged = file(&client, there, "exchanged");
    hold("moved");
    hold("linked");
    let name = EntryName::new(there, b"exchanged");
    execute(&client, &Operation::Hold(Hold::Name(name))).unwrap();
    link(&client, linked, (there, "other")).unwrap();
    unlink(&client, (here, "linked")).unwrap();
    rename(&client, (here, "moved"), (there, "exchanged"), RenameMode::Exchange).unwrap();
    rename(&client, (here, "free"), (there, "free"), RenameMode::Replace).unwrap();
    for name in [(there, "exchanged"), (here, "moved"), (there, "other"), (there, "free")] {
        unlink(&client, name).unwrap();
    }
    goes(&client, free);
    for id in [moved, linked, exchanged] {
        assert_eq!(stat(&client, id).nlink, 0);
        execute(&client, &Operation::Hold(Hold::Release(id, 1))).unwrap();
        goes(&client, id);
    }
    net.settle();
    net.assert_sound();
}
