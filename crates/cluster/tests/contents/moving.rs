//! Files that move from server to server by renames, and get more names, while clients write them.

use crate::place::{CHUNK, Over, Place, User};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Change, Moment, Operation, Read};
use canopy_namespace::{EntryName, FileContents, FileId, New, ROOT, RenameMode, Reply};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

fn directory(client: &User, name: &str) -> FileId {
    let new = New { mode: file_type::DIRECTORY | 0o755, ..New::default() };
    let name = EntryName::new(ROOT, name.as_bytes());
    let create = Change::Create { name, new: Cow::Owned(new), holds: false };
    match client.execute(&Operation::Change(create)) {
        Ok(Reply::Inode(inode)) => inode.id,
        other => panic!("{other:?}"),
    }
}

fn rename(client: &User, from: EntryName<'_>, to: EntryName<'_>) {
    let change = Change::Rename { from, to, mode: RenameMode::Replace, whiteout: None };
    client.execute(&Operation::Change(change)).expect("renamed");
}

#[test]
fn contents_go_where_a_rename_takes_a_file() {
    let place = Place::new();
    let client = place.client();
    let directories = Vec::from_iter((0..6).map(|at| directory(&client, &format!("d{at}"))));
    for (length, with_link) in [(20, false), (3 * CHUNK as usize, false), (5000, true)] {
        let id = client.create("file").id;
        let mut name = EntryName::new(ROOT, b"file");
        if with_link {
            let link = Change::Link { id, name: EntryName::new(directories[0], b"other") };
            client.execute(&Operation::Change(link)).expect("another name");
        }
        let is_over = AtomicBool::new(false);
        let mut model = vec![0; length];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mover = place.client();
                let mut at = 0;
                while !is_over.load(Ordering::Relaxed) {
                    at = (at + 1) % directories.len();
                    let to = EntryName::new(directories[at], b"moved");
                    rename(&mover, name, to);
                    name = to;
                }
            });
            let _over = Over(&is_over);
            let mut random = StdRng::seed_from_u64(length as u64);
            for round in 0..40_u8 {
                client.0.open(id).expect("a file");
                let at = random.random_range(0..length);
                let count = random.random_range(0..=length - at);
                client.write(id, at as u64, &vec![round; count]).expect("written");
                model[at..at + count].fill(round);
                client.0.close(id).expect("closed");
                let end = client.inode(id).size as usize;
                assert!(place.client().whole(id) == model[..end], "round {round}");
            }
        });
        let looked_up = client.execute(&Operation::Read(Moment::Now, Read::Lookup(name)));
        assert!(matches!(looked_up, Ok(Reply::Inode(inode)) if inode.id == id));
        place.process.collect().expect("collected");
        let end = client.inode(id).size as usize;
        assert!(place.client().whole(id) == model[..end]);
        client.execute(&Operation::Change(Change::Unlink(name))).expect("removed");
        if with_link {
            let other = EntryName::new(directories[0], b"other");
            assert!(place.client().whole(id) == model[..end], "it has another name");
            client.execute(&Operation::Change(Change::Unlink(other))).expect("removed");
        }
    }
    client.0.end().expect("ended");
    place.collect_until(|| 0);
    assert_eq!(place.objects("contents/"), Vec::<String>::new());
}
