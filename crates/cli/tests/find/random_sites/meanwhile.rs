//! Trees that change while they are scanned. What the index shows then is of no single moment, but
//! each part of it must have been allowed at some: names that were never in a directory open to a
//! user, and values that the user could never read, do not appear, neither in answers nor in the
//! files that the user can read; and directories that nobody touched are shown exactly.

use super::asked::{Question, ask, compare};
use super::names::{Names, Token, tokens};
use super::raw::Files;
use super::site::{Site, dir, quiet};
use super::{Named, seeds, with_own_mounts};
use crate::common;
use canopy_model::Acl;
use common::length::rounds;
use common::{Fixture, User};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rustix::fs::{CWD, RenameFlags, XattrFlags};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The user whom ACLs shut out of what is open to others.
const SHUT_OUT: u32 = 2001;

/// Runs of the index on one tree.
const RUNS: usize = 4;

/// Directories in a room.
const NOOKS: usize = 40;

/// Most entries that are made in a room where not all may see them.
const SECRETS: usize = 200;

/// A scan begins to read some time after its process was started, and takes some more.
const SCAN_BEGINS: Duration = Duration::from_millis(12);

/// A scan hands over what it has read every few milliseconds.
const MOMENT: Duration = Duration::from_micros(1500);

#[test]
fn trees_that_change_show_only_allowed_entries_1() {
    trees(0);
}

#[test]
fn trees_that_change_show_only_allowed_entries_2() {
    trees(1);
}

fn trees(test: u64) {
    with_own_mounts(|| {
        let place = Fixture::new();
        let memory = tempfile::tempdir_in("/dev/shm").unwrap();
        fs::set_permissions(memory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let (mut ops, mut secrets, mut partial, mut read) = (0, 0, 0, 0);
        let mut seeds = seeds(test, 2, 40);
        if std::env::var_os("CANOPY_SITES").is_none() {
            seeds.truncate(rounds(12, usize::MAX));
        }
        for &seed in &seeds {
            let named = Named(seed);
            let mut tree = Tree::make(seed, memory.path());
            for _ in 0..RUNS {
                let (made, complete) = tree.index_while_it_changes(&place);
                ops += made;
                partial += usize::from(!complete);
                read += tree.check(&place);
                tree.reset();
            }
            quiet(&tree.site.top);
            let top = tree.site.top.clone();
            tree.site.index(&place, std::slice::from_ref(&top), &[]);
            for user in users() {
                compare_exactly(&tree.site, &place, &user, &[&top]);
            }
            secrets += tree.forbidden.len() + tree.forbidden_to_one.len();
            tree.site.remove();
            drop(named);
        }
        let trees = seeds.len();
        println!(
            "{trees} trees, {ops} changes, {partial} partial runs, {secrets} secrets, {read} read"
        );
        assert!(read > 0 || trees < 5, "no scan met what it must not show");
    });
}

fn users() -> [User; 2] {
    [
        User { uid: SHUT_OUT, gid: 3001, groups: vec![3002] },
        User { uid: 2999, gid: 2999, groups: Vec::new() },
    ]
}

fn compare_exactly(site: &Site, place: &Fixture, user: &User, starts: &[&Path]) {
    let question = Question {
        starts: starts.to_vec(),
        du: starts[0],
        du_options: vec!["-s".to_owned()],
        raw: None,
        values: true,
    };
    let answers = ask(site, place, user, &question);
    let what = format!("seed {} {user:?} {starts:?}", site.seed);
    compare(site, &answers.find, &what);
    compare(site, &answers.xattrs, &what);
    compare(site, &answers.du, &what);
}

/// A directory that is open at the beginning of a run.
struct Room {
    path: PathBuf,
    closed: Option<Closed>,
    files: Vec<PathBuf>,
    /// Entries in it that not all may see.
    secrets: Vec<PathBuf>,
}

#[derive(Clone, Copy, PartialEq)]
enum Closed {
    ToAll,
    ToOne,
    /// By being moved into a closed directory.
    Moved,
}

struct Tree {
    site: Site,
    names: Names,
    untouched: PathBuf,
    /// For root alone at all times.
    closed: PathBuf,
    halls: [PathBuf; 2],
    rooms: Vec<Room>,
    forbidden: BTreeSet<Token>,
    /// To the user whom ACLs shut out.
    forbidden_to_one: BTreeSet<Token>,
    hidden: Vec<PathBuf>,
}

impl Tree {
    fn make(seed: u64, memory: &Path) -> Self {
        let random = common::seeded(0x3ea2_0000 + seed);
        let mut site = Site::empty(seed, &memory.join(format!("site{seed}")), random);
        let mut names = Names::default();
        let top = site.top.clone();
        dir(&top);
        let untouched = top.join(names.plain("untouched", &mut site.random));
        site.grow(&untouched, 30);
        let closed = top.join(names.plain("closed", &mut site.random));
        dir(&closed);
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        let halls = [("hall", 0o755), ("gate", 0o711)].map(|(name, mode)| {
            let path = top.join(names.plain(name, &mut site.random));
            dir(&path);
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        });
        let mut rooms = Vec::new();
        for number in 0..8 {
            let path = halls[number % 2].join(names.plain("room", &mut site.random));
            dir(&path);
            // What is in these is read after the room was looked at.
            (0..NOOKS).for_each(|number| dir(&path.join(format!("nook{number}"))));
            let file = |_| path.join(names.odd(&mut site.random));
            let files: Vec<PathBuf> = (0..4).map(file).collect();
            files.iter().for_each(|file| fs::write(file, "").unwrap());
            rooms.push(Room { path, closed: None, files, secrets: Vec::new() });
        }
        quiet(&top);
        let (forbidden, forbidden_to_one) = Default::default();
        let hidden = Vec::new();
        Tree { site, names, untouched, closed, halls, rooms, forbidden, forbidden_to_one, hidden }
    }

    /// Indexes while another thread makes changes; returns how many, and whether the run says that
    /// it is complete.
    fn index_while_it_changes(&mut self, place: &Fixture) -> (usize, bool) {
        let threads = ["--threads=1", "--threads=2"].choose(&mut self.site.random).unwrap();
        let mut scan = self.site.command(place, std::slice::from_ref(&self.site.top), &[threads]);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let changes = scope.spawn(|| {
                let mut count = 0;
                let closing = Instant::now() + SCAN_BEGINS.mul_f64(self.site.random.random());
                while !done.load(Ordering::Relaxed) {
                    self.change(Instant::now() > closing);
                    count += 1;
                }
                count
            });
            let output = scan.output();
            done.store(true, Ordering::Relaxed);
            let count = changes.join().unwrap();
            let output = output.unwrap();
            let code = output.status.code();
            assert!(matches!(code, Some(0 | 1)), "{}", String::from_utf8_lossy(&output.stderr));
            (count, code == Some(0))
        })
    }

    fn change(&mut self, may_close: bool) {
        let mut random: StdRng = common::seeded(self.site.random.random());
        let random = &mut random;
        match random.random_range(0..1000) {
            0..20 if may_close => self.close_a_room(random),
            10..40 => self.close_a_room_for_a_moment(random),
            0..10 => self.rename_a_room(random),
            40..100 => self.exchange_values(random),
            100..300 => self.make_a_secret(random),
            300..400 => self.make_hidden(random),
            _ => self.move_a_file(random),
        }
    }

    fn open_room(&mut self, random: &mut StdRng) -> Option<usize> {
        let open = (0..self.rooms.len()).filter(|&room| self.rooms[room].closed.is_none());
        open.collect::<Vec<_>>().choose(random).copied()
    }

    /// Closes a room for the rest of the run.
    fn close_a_room(&mut self, random: &mut StdRng) {
        let Some(room) = self.open_room(random) else { return };
        let room = &mut self.rooms[room];
        let how = [Closed::ToAll, Closed::ToOne, Closed::Moved];
        let how = how.choose(random).copied().unwrap();
        match how {
            Closed::ToAll => {
                fs::set_permissions(&room.path, fs::Permissions::from_mode(0o700)).unwrap();
            }
            Closed::ToOne => {
                let acl = Acl {
                    entries: vec![
                        entry(canopy_model::AclTag::Owner, 7),
                        entry(canopy_model::AclTag::User(SHUT_OUT), 0),
                        entry(canopy_model::AclTag::OwningGroup, 5),
                        entry(canopy_model::AclTag::Mask, 5),
                        entry(canopy_model::AclTag::Other, 5),
                    ],
                };
                let flags = XattrFlags::empty();
                rustix::fs::setxattr(&room.path, Acl::XATTR_NAME, &acl.encode(), flags).unwrap();
            }
            Closed::Moved => room.go_to(&self.closed.join(room.path.file_name().unwrap())),
        }
        room.closed = Some(how);
        let forbidden = match how {
            Closed::ToOne => &mut self.forbidden_to_one,
            _ => &mut self.forbidden,
        };
        // The last ones first: they are the last to be read.
        for number in (0..NOOKS).rev() {
            let name = self.names.plain("secret", random);
            forbidden.extend(tokens(name.as_bytes()));
            let path = room.path.join(format!("nook{number}")).join(name);
            dir(&path);
            room.secrets.push(path);
        }
    }

    /// Closes a room, makes entries in it, changes one that is there, and leaves all as it was
    /// before it is opened again.
    fn close_a_room_for_a_moment(&mut self, random: &mut StdRng) {
        let Some(room) = self.open_room(random) else { return };
        let room = &mut self.rooms[room];
        let was_at = room.path.clone();
        let is_moved = random.random_bool(0.5);
        match is_moved {
            true => room.go_to(&self.closed.join(was_at.file_name().unwrap())),
            false => fs::set_permissions(&was_at, fs::Permissions::from_mode(0o700)).unwrap(),
        }
        let first = random.random_range(0..NOOKS);
        let nooks = first..(first + 6).min(NOOKS);
        let paths: Vec<PathBuf> = nooks
            .map(|number| {
                let name = self.names.plain("moment", random);
                self.forbidden.extend(tokens(name.as_bytes()));
                room.path.join(format!("nook{number}")).join(name)
            })
            .collect();
        for (number, path) in paths.iter().enumerate() {
            if number % 2 == 0 { dir(path) } else { fs::write(path, "").unwrap() }
        }
        let value = self.names.plain("plain", random);
        self.forbidden.extend(tokens(value.as_bytes()));
        let flags = XattrFlags::empty();
        for file in &room.files {
            rustix::fs::setxattr(file, "user.b", value.as_bytes(), flags).unwrap();
        }
        let until = Instant::now() + MOMENT.mul_f64(random.random());
        while Instant::now() < until {}
        for file in &room.files {
            rustix::fs::removexattr(file, "user.b").unwrap();
        }
        for (number, path) in paths.iter().enumerate() {
            if number % 2 == 0 {
                fs::remove_dir(path).unwrap();
            } else {
                fs::remove_file(path).unwrap();
            }
        }
        match is_moved {
            true => room.go_to(&was_at),
            false => fs::set_permissions(&was_at, fs::Permissions::from_mode(0o755)).unwrap(),
        }
    }

    fn rename_a_room(&mut self, random: &mut StdRng) {
        let Some(room) = self.open_room(random) else { return };
        let hall = self.halls.choose(random).unwrap();
        let path = hall.join(self.names.plain("room", random));
        self.rooms[room].go_to(&path);
    }

    /// Moves a file from one room that was open to another; who may read it stays as it is.
    fn move_a_file(&mut self, random: &mut StdRng) {
        let (Some(from), Some(to)) = (self.open_room(random), self.open_room(random)) else {
            return;
        };
        let files = &mut self.rooms[from].files;
        if files.is_empty() {
            return;
        }
        let file = files.swap_remove(random.random_range(0..files.len()));
        let path = self.rooms[to].path.join(self.names.odd(random));
        fs::rename(file, &path).unwrap();
        self.rooms[to].files.push(path);
    }

    /// Has a file with a value that nobody else may read take the place of another.
    fn exchange_values(&mut self, random: &mut StdRng) {
        let Some(room) = self.open_room(random) else { return };
        let room = &self.rooms[room];
        let Some(file) = room.files.choose(random) else { return };
        let private = self.closed.join(self.names.plain("private", random));
        fs::write(&private, "").unwrap();
        self.forbidden.extend(tokens(private.file_name().unwrap().as_encoded_bytes()));
        fs::set_permissions(&private, fs::Permissions::from_mode(0o600)).unwrap();
        let value = self.names.plain("plain", random);
        self.forbidden.extend(tokens(value.as_bytes()));
        let flags = XattrFlags::empty();
        rustix::fs::setxattr(&private, "user.a", value.as_bytes(), flags).unwrap();
        rustix::fs::renameat_with(CWD, &private, CWD, file, RenameFlags::EXCHANGE).unwrap();
        rustix::fs::renameat_with(CWD, &private, CWD, file, RenameFlags::EXCHANGE).unwrap();
        fs::remove_file(private).unwrap();
    }

    /// Makes an entry in a room that was closed in this run.
    fn make_a_secret(&mut self, random: &mut StdRng) {
        let closed = |room: &&mut Room| room.closed.is_some() && room.secrets.len() < SECRETS;
        let mut closed: Vec<&mut Room> = self.rooms.iter_mut().filter(closed).collect();
        if closed.is_empty() {
            return;
        }
        let at = random.random_range(0..closed.len());
        let room = &mut closed[at];
        let path = room.path.join(self.names.plain("secret", random));
        let forbidden = match room.closed {
            Some(Closed::ToOne) => &mut self.forbidden_to_one,
            _ => &mut self.forbidden,
        };
        forbidden.extend(tokens(path.file_name().unwrap().as_encoded_bytes()));
        match random.random_bool(0.5) {
            true => dir(&path),
            false => fs::write(&path, "").unwrap(),
        }
        room.secrets.push(path);
    }

    /// Makes, renames or removes something in the directory that is closed at all times.
    fn make_hidden(&mut self, random: &mut StdRng) {
        let path = self.closed.join(self.names.plain("hidden", random));
        self.forbidden.extend(tokens(path.file_name().unwrap().as_encoded_bytes()));
        match (random.random_range(0..3), self.hidden.pop()) {
            (0, Some(old)) => fs::rename(old, &path).unwrap(),
            (1, Some(old)) => return fs::remove_dir(old).unwrap(),
            (_, old) => {
                self.hidden.extend(old);
                dir(&path);
            }
        }
        self.hidden.push(path);
    }

    /// Looks at what users are shown now; returns how much of what they are not is in the index.
    fn check(&self, place: &Fixture) -> usize {
        let files = Files::read(&self.site.index);
        let paths = files.paths();
        for user in users() {
            let mut forbidden = self.forbidden.clone();
            if user.uid == SHUT_OUT {
                forbidden.extend(&self.forbidden_to_one);
            }
            compare_exactly(&self.site, place, &user, &[&self.untouched]);
            let rooms = self.rooms.iter().map(|room| room.path.as_path());
            let secrets = self.rooms.iter().flat_map(|room| room.secrets.iter().take(3));
            let starts = [self.site.top.as_path()].into_iter().chain(rooms);
            let question = Question {
                starts: starts.chain(secrets.map(PathBuf::as_path)).collect(),
                du: &self.untouched,
                du_options: vec!["-s".to_owned()],
                raw: Some((&[], &paths)),
                values: true,
            };
            let answers = ask(&self.site, place, &user, &question);
            let shown = answers.find.index.iter().chain(&answers.xattrs.index);
            let shown: BTreeSet<Token> = shown.flat_map(|line| tokens(line.as_bytes())).collect();
            let seed = self.site.seed;
            let found = |tokens: &BTreeSet<Token>| {
                let found = tokens.intersection(&forbidden);
                found.map(|token| String::from_utf8_lossy(token).into_owned()).collect::<Vec<_>>()
            };
            assert!(found(&shown).is_empty(), "seed {seed} {user:?} is shown {:?}", found(&shown));
            for path in answers.raw.unwrap().opened {
                let found = found(files.tokens(&path));
                assert!(found.is_empty(), "seed {seed} {user:?} reads {found:?} in {path:?}");
            }
        }
        let all: BTreeSet<&Token> = paths.iter().flat_map(|path| files.tokens(path)).collect();
        all.iter().filter(|token| self.forbidden_to_one.contains(**token)).count()
    }

    /// Removes what not all may see, and opens the rooms again.
    fn reset(&mut self) {
        for path in self.rooms.iter_mut().flat_map(|room| room.secrets.drain(..)) {
            match path.is_dir() {
                true => fs::remove_dir(path).unwrap(),
                false => fs::remove_file(path).unwrap(),
            }
        }
        for room in &mut self.rooms {
            let _ = rustix::fs::removexattr(&room.path, Acl::XATTR_NAME);
            fs::set_permissions(&room.path, fs::Permissions::from_mode(0o755)).unwrap();
            if room.closed.take() == Some(Closed::Moved) {
                let hall = self.halls.choose(&mut self.site.random).unwrap();
                room.go_to(&hall.join(room.path.file_name().unwrap()));
            }
        }
    }
}

impl Room {
    fn go_to(&mut self, path: &Path) {
        fs::rename(&self.path, path).unwrap();
        for inside in self.files.iter_mut().chain(&mut self.secrets) {
            *inside = path.join(inside.strip_prefix(&self.path).unwrap());
        }
        self.path = path.to_owned();
    }
}

fn entry(tag: canopy_model::AclTag, permissions: u16) -> canopy_model::AclEntry {
    canopy_model::AclEntry { tag, permissions }
}
