//! Random sites: a tree below ancestors that let some in, its sources, what is mounted in it, and
//! changes between runs of the index. All follows from the seed but times and inode numbers.

use crate::common;

use super::names::Names;
use canopy_model::{Acl, AclEntry, AclTag};
use common::{Fixture, GIDS, UIDS, adorn, all_paths, seeded};
use nix::sys::stat::Mode;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, RngExt};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, XattrFlags};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Rows behind a gate that are a shard of their own, whose name only a sealed record contains.
const SHARD_ENTRIES: usize = 4200;

/// A tree with its index.
pub struct Site {
    pub seed: u64,
    pub random: StdRng,
    /// Holds the ancestors and the tree. Everybody may list it.
    pub base: PathBuf,
    ancestors: Vec<PathBuf>,
    pub top: PathBuf,
    pub sources: Vec<PathBuf>,
    pub index: PathBuf,
    mounted: Option<Mounted>,
    foreign: Option<PathBuf>,
    pub one_file_system: bool,
    exclude: Option<Exclude>,
    pub hard_links: bool,
    umask: u32,
    /// Whether the files of the generation before, which readers may still open, are of the same
    /// state of the tree.
    pub settled: bool,
    /// Whether an index run said that some see less than the kernel would show them.
    pub narrowed: bool,
    pub runs: usize,
    /// Directories that were changed since the index was written.
    suspects: Vec<PathBuf>,
    names: Names,
}

/// A mount in a tree. Only this thread has it, and it ends with the thread.
struct Mounted {
    point: PathBuf,
    /// The directory that is seen there.
    bound: PathBuf,
    foreign: bool,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.point).status();
    }
}

enum Exclude {
    /// Names that begin with this.
    Names(&'static str),
    Path {
        pattern: String,
        path: String,
    },
}

impl Site {
    /// An empty site: only a directory at `base`, beside which its index will be.
    pub fn empty(seed: u64, base: &Path, mut random: StdRng) -> Self {
        dir(base);
        let mut names = Names::default();
        Site {
            seed,
            base: base.to_owned(),
            ancestors: Vec::new(),
            top: base.join(names.plain("top", &mut random)),
            sources: Vec::new(),
            index: base.with_file_name(format!("index{seed}")),
            mounted: None,
            foreign: None,
            one_file_system: false,
            exclude: None,
            hard_links: false,
            umask: 0o022,
            settled: true,
            narrowed: false,
            runs: 0,
            suspects: Vec::new(),
            random,
            names,
        }
    }

    /// Makes a site on one of two file systems, one of which is in memory.
    pub fn make(seed: u64, place: &Fixture, memory: &Path) -> Self {
        let mut random = seeded(0x517e_0000 + seed);
        let homes = [memory, place.dir.path()];
        let home = usize::from(random.random_bool(0.3));
        let mut site = Site::empty(seed, &homes[home].join(format!("site{seed}")), random);
        let random = &mut site.random;
        site.index = homes[usize::from(random.random_bool(0.05))].join(format!("index{seed}"));
        site.umask = [0o022, 0o077, 0o027, 0].choose(random).copied().unwrap();
        let mut above = site.base.clone();
        for _ in 0..[0, 0, 1, 1, 2, 3].choose(random).copied().unwrap() {
            above.push(site.names.plain("anc", random));
            dir(&above);
            site.ancestors.push(above.clone());
        }
        let top = above.join(site.names.plain("top", random));
        site.top = top.clone();
        let mounts = random.random_bool(0.12);
        site.hard_links = !mounts && random.random_bool(0.5);
        let size = if site.random.random_bool(0.1) { 60 } else { 24 };
        let dirs = site.grow(&top, size);
        if site.random.random_bool(0.004) {
            site.wide_behind_gate(&dirs);
        }
        site.choose_sources(&dirs);
        if mounts {
            site.mount(&dirs, &homes[1 - home].join(format!("foreign{seed}")));
        }
        site.one_file_system = site.random.random_bool(if mounts { 0.4 } else { 0.05 });
        site.choose_exclude();
        site.restrict_ancestors();
        quiet(&site.base);
        site
    }

    /// Makes a random tree; returns its directories.
    pub fn grow(&mut self, root: &Path, entries: usize) -> Vec<PathBuf> {
        let random = &mut self.random;
        dir(root);
        let mut dirs = vec![root.to_owned()];
        let mut files: Vec<PathBuf> = Vec::new();
        for _ in 0..random.random_range(2..entries) {
            let path = dirs.choose(random).unwrap().join(self.names.odd(random));
            if random.random_bool(0.4) {
                dir(&path);
                dirs.push(path);
            } else if self.hard_links && !files.is_empty() && random.random_bool(0.2) {
                fs::hard_link(files.choose(random).unwrap(), &path).unwrap();
            } else {
                leaf(&path, random);
                files.push(path);
            }
        }
        for path in files.iter().chain(&dirs) {
            // Some stay open to all, so that much is found behind them.
            let open = if path == root { 0.7 } else { 0.4 };
            if !self.random.random_bool(open) {
                self.dress(path);
            }
        }
        dirs
    }

    /// Gives an entry an owner, a mode, sometimes an ACL and extended attributes.
    fn dress(&mut self, path: &Path) {
        let random = &mut self.random;
        adorn(path, random);
        let kind = path.symlink_metadata().unwrap().file_type();
        if random.random_bool(0.01) && !kind.is_symlink() {
            let acl = long_acl(random);
            set(path, Acl::XATTR_NAME, &acl.encode());
        }
        for key in ["user.a", "trusted.t", "security.canopy"] {
            let possible = kind.is_dir() || kind.is_file() || !key.starts_with("user.");
            if possible && random.random_bool(0.08) {
                set(path, key, self.names.plain("plain", random).as_bytes());
            }
        }
    }

    /// Adds a directory that some may enter but not list, and behind it so many files that they
    /// are a shard of their own.
    fn wide_behind_gate(&mut self, dirs: &[PathBuf]) {
        let gate = dirs.choose(&mut self.random).unwrap();
        let gate = gate.join(self.names.plain("gate", &mut self.random));
        let wide = gate.join(self.names.plain("wide", &mut self.random));
        fs::create_dir_all(&wide).unwrap();
        for _ in 0..SHARD_ENTRIES {
            fs::write(wide.join(self.names.plain("f", &mut self.random)), "").unwrap();
        }
        fs::set_permissions(&gate, fs::Permissions::from_mode(0o711)).unwrap();
    }

    fn choose_sources(&mut self, dirs: &[PathBuf]) {
        let random = &mut self.random;
        let mut sources = Vec::new();
        if random.random_bool(0.65) {
            sources.push(self.top.clone());
        }
        let more = [0, 1, 1, 2].choose(random).copied().unwrap().max(1 - sources.len());
        sources.extend(dirs.sample(random, more).cloned());
        sources.sort();
        sources.dedup();
        sources.shuffle(random);
        self.sources = sources;
    }

    /// Binds a directory of the tree, or one of another file system, to a new one in the tree.
    fn mount(&mut self, dirs: &[PathBuf], foreign_root: &Path) {
        let point = dirs.choose(&mut self.random).unwrap();
        let point = point.join(self.names.plain("mnt", &mut self.random));
        dir(&point);
        let within: Vec<&PathBuf> = dirs.iter().filter(|dir| !point.starts_with(dir)).collect();
        let foreign = within.is_empty() || self.random.random_bool(0.5);
        let bound = match foreign {
            true => {
                self.grow(foreign_root, 12);
                quiet(foreign_root);
                self.foreign = Some(foreign_root.to_owned());
                foreign_root.to_owned()
            }
            false => (*within.choose(&mut self.random).unwrap()).clone(),
        };
        let mount = Command::new("mount").arg("--bind").args([&bound, &point]).status().unwrap();
        assert!(mount.success());
        self.mounted = Some(Mounted { point, bound, foreign });
    }

    /// Chooses what is left out, but no source.
    fn choose_exclude(&mut self) {
        if !self.random.random_bool(0.1) {
            return;
        }
        let all: Vec<String> = all_paths(&self.top).iter().map(|path| shown(path)).collect();
        let plain = |path: &&String| {
            path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/~.-".contains(&b))
        };
        let below =
            |path: &String| Some(path.strip_prefix(&shown(&self.sources[0]))?.get(1..)?.to_owned());
        let path = all.iter().filter(plain).filter(|path| below(path).is_some());
        let path = path.collect::<Vec<_>>().choose(&mut self.random).map(|path| (*path).clone());
        self.exclude = match path {
            Some(path) if self.sources.len() == 1 => {
                Some(Exclude::Path { pattern: format!("/{}", below(&path).unwrap()), path })
            }
            _ => Some(Exclude::Names("data")),
        };
        if self.sources.iter().any(|source| self.is_excluded(&shown(source))) {
            self.exclude = None;
        }
    }

    /// Returns whether a path, as it is shown with escapes, is left out of the index.
    pub fn is_excluded(&self, path: &str) -> bool {
        match &self.exclude {
            None => false,
            Some(Exclude::Names(begin)) => path
                .strip_prefix(&shown(&self.top))
                .is_some_and(|below| below.split('/').any(|name| name.starts_with(begin))),
            Some(Exclude::Path { path: excluded, .. }) => {
                path.strip_prefix(excluded).is_some_and(|r| r.is_empty() || r.starts_with('/'))
            }
        }
    }

    /// The option of du(1) that leaves entries out.
    pub fn du_exclude(&self) -> Option<String> {
        Some(match self.exclude.as_ref()? {
            Exclude::Names(begin) => format!("--exclude={begin}*"),
            Exclude::Path { path, .. } => format!("--exclude={path}"),
        })
    }

    /// Whether another file system is mounted in the tree.
    pub fn has_foreign(&self) -> bool {
        self.mounted.as_ref().is_some_and(|mounted| mounted.foreign)
    }

    fn is_in_foreign(&self, path: &Path) -> bool {
        self.mounted.as_ref().is_some_and(|m| m.foreign && path.starts_with(&m.point))
    }

    /// All paths of the tree that the index should have, as root sees them.
    pub fn covered(&self) -> Vec<PathBuf> {
        let entered = |path: &PathBuf| !self.one_file_system || !self.is_in_foreign(path);
        let covered = |path: &PathBuf| self.sources.iter().any(|source| path.starts_with(source));
        let all = all_paths(&self.top).into_iter().filter(|path| covered(path) && entered(path));
        all.filter(|path| !self.is_excluded(&shown(path))).collect()
    }

    /// The sources that lie in no other one.
    pub fn outermost(&self) -> Vec<&Path> {
        let within = |source: &Path| {
            self.sources.iter().any(|other| other != source && source.starts_with(other))
        };
        self.sources.iter().map(PathBuf::as_path).filter(|source| !within(source)).collect()
    }

    /// Gives ancestors permissions of which most are for some users alone.
    fn restrict_ancestors(&mut self) {
        for ancestor in self.ancestors.clone() {
            self.restrict(&ancestor);
        }
    }

    fn restrict(&mut self, ancestor: &Path) {
        let random = &mut self.random;
        let _ = rustix::fs::removexattr(ancestor, Acl::XATTR_NAME);
        let owner = |of: &[u32], random: &mut StdRng| Some(of.choose(random).copied().unwrap());
        chown(ancestor, owner(&UIDS, random), owner(&GIDS, random)).unwrap();
        let modes = [0o755, 0o755, 0o700, 0o750, 0o711, 0o710, 0o311, 0o751, 0o1777];
        let mode = modes.choose(random).copied().unwrap();
        fs::set_permissions(ancestor, fs::Permissions::from_mode(mode)).unwrap();
        if random.random_bool(0.3) {
            let acl =
                if random.random_bool(0.1) { long_acl(random) } else { common::random_acl(random) };
            set(ancestor, Acl::XATTR_NAME, &acl.encode());
        }
    }

    /// Scans the sources in the order they have, then again with changes between, so that at the
    /// end the index is of the tree as it is.
    pub fn index_with_changes(&mut self, place: &Fixture) {
        let sources = self.sources.clone();
        if self.random.random_bool(0.5) {
            self.index(place, &sources, &[]);
        } else {
            sources.iter().for_each(|source| self.index(place, std::slice::from_ref(source), &[]));
        }
        if !self.random.random_bool(0.6) {
            return;
        }
        let mut changed = self.change();
        for _ in 0..[0, 0, 0, 1, 3].choose(&mut self.random).copied().unwrap() {
            self.refresh(place, &changed);
            if self.random.random_bool(0.2) {
                self.compact(place, "--due");
            }
            changed = self.change();
        }
        match self.random.random_range(0..6) {
            3.. => {
                self.refresh(place, &changed);
                // What no longer counts is in no file then.
                self.settled = self.random.random_bool(0.3);
                if self.settled {
                    self.compact(place, "--replace");
                }
            }
            0 => self.index(place, &changed, &["--replace"]),
            1 => {
                self.index(place, &changed, &[]);
                self.settled = false;
            }
            2 => {
                self.index(place, &changed, &[]);
                self.index(place, &changed, &[]);
                self.compact(place, "--replace");
            }
            _ => unreachable!("a number below 6"),
        }
    }

    /// Has the index follow what was changed: by a scan of the changed sources that writes only what
    /// is new, or by listing the directories that were changed again.
    fn refresh(&mut self, place: &Fixture, changed: &[PathBuf]) {
        let copied = ["--copied-rows=0", "--copied-rows=10", "--copied-rows=4096"];
        let copied = copied.choose(&mut self.random).copied().unwrap();
        let mut suspects = std::mem::take(&mut self.suspects);
        if suspects.is_empty() {
            suspects = changed.to_vec();
        }
        // What is mounted is seen at two places.
        if self.mounted.is_some() || self.random.random_bool(0.4) {
            return self.index(place, changed, &["--incremental", copied]);
        }
        let mut command = Command::new(&place.canopy);
        command.arg("--index").arg(&self.index).args(["update", copied]);
        if self.random.random_bool(0.2) {
            command.arg("--recursive");
        }
        self.check(command.args(suspects));
    }

    /// Has what updates have left of the index written anew.
    fn compact(&mut self, place: &Fixture, option: &str) {
        let mut command = Command::new(&place.canopy);
        self.check(command.arg("--index").arg(&self.index).args(["compact", option]));
    }

    /// Indexes paths; that nothing is missing is checked.
    pub fn index(&mut self, place: &Fixture, paths: &[PathBuf], options: &[&str]) {
        self.suspects.clear();
        self.check(&mut self.command(place, paths, options));
    }

    /// Runs a command that writes the index; that nothing is missing is checked.
    fn check(&mut self, command: &mut Command) {
        // The file mode mask of this thread is its own, as its mounts are.
        let before = rustix::process::umask(self.umask.into());
        let output = command.output().unwrap();
        rustix::process::umask(before);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        self.narrowed |= said.contains("groups at once");
        let code = output.status.code();
        assert!(code == Some(0) || (self.narrowed && code == Some(1)), "{command:?}: {said}");
        self.runs += 1;
    }

    /// The command that indexes paths.
    pub fn command(&self, place: &Fixture, paths: &[PathBuf], options: &[&str]) -> Command {
        let mut command = Command::new(&place.canopy);
        command.arg("--index").arg(&self.index).arg("index").args(options).args(paths);
        if self.one_file_system {
            command.arg("-x");
        }
        match &self.exclude {
            None => {}
            Some(Exclude::Names(begin)) => drop(command.arg(format!("--exclude={begin}*"))),
            Some(Exclude::Path { pattern, .. }) => {
                command.arg(format!("--exclude={pattern}"));
            }
        }
        command
    }

    /// Changes something in one source or above all; returns what has to be scanned again.
    fn change(&mut self) -> Vec<PathBuf> {
        if !self.ancestors.is_empty() && self.random.random_bool(0.2) {
            let ancestor = self.ancestors.choose(&mut self.random).unwrap().clone();
            self.restrict(&ancestor);
            self.suspects.extend(self.sources.clone());
            return self.sources.clone();
        }
        let source = self.sources.choose(&mut self.random).unwrap().clone();
        for _ in 0..self.random.random_range(1..8) {
            self.change_in(&source);
        }
        quiet(&source);
        match self.mounted {
            Some(_) => self.sources.clone(),
            None => vec![source],
        }
    }

    /// Makes one change below a directory in a source, whose own row stays as it is: that may be
    /// in the listing of another source.
    fn change_in(&mut self, source: &Path) {
        let kept = |path: &Path| {
            let mounted = self.mounted.iter().flat_map(|mounted| [&mounted.point, &mounted.bound]);
            self.sources.iter().chain(mounted).any(|kept| kept.starts_with(path))
        };
        // A link elsewhere would change with this one.
        let single = |path: &PathBuf| {
            let about = path.symlink_metadata().unwrap();
            about.is_dir() || about.nlink() == 1
        };
        let is_dir = |path: &&PathBuf| path.symlink_metadata().unwrap().is_dir();
        // What is bound is changed where it is: a source may be in it.
        let free =
            |path: &PathBuf| !self.mounted.as_ref().is_some_and(|m| path.starts_with(&m.point));
        let all: Vec<PathBuf> = all_paths(source).into_iter().filter(free).collect();
        let dirs = all.iter().filter(is_dir).filter(|dir| !self.sources.contains(dir));
        let dirs: Vec<&PathBuf> = dirs.collect();
        let random = &mut self.random;
        let Some(&into) = dirs.choose(random) else { return };
        let movable = |path: &&PathBuf| dirs.iter().any(|dir| path.parent() == Some(dir.as_path()));
        let movable: Vec<&PathBuf> =
            all.iter().filter(movable).filter(|path| !kept(path) && single(path)).collect();
        let chosen = movable.choose(random).map(|path| (*path).clone());
        let new = into.join(self.names.odd(random));
        match (random.random_range(0..6), chosen) {
            (0, Some(path)) => {
                self.suspects.push(path.clone());
                remove(&path);
            }
            // Between two mounts this fails.
            (1, Some(path)) if !new.starts_with(&path) => {
                self.suspects.extend([path.clone(), new.clone()]);
                let _ = fs::rename(path, new);
            }
            (2 | 3, Some(path)) => {
                self.suspects.push(path.clone());
                self.dress(&path);
            }
            (4, _) => {
                self.suspects.push(into.clone());
                dir(&new);
                self.dress(&new);
            }
            _ => {
                self.suspects.push(into.clone());
                leaf(&new, random);
                self.dress(&new);
            }
        }
    }

    /// Removes all there is of it.
    pub fn remove(mut self) {
        self.mounted = None;
        self.foreign.iter().for_each(|foreign| fs::remove_dir_all(foreign).unwrap());
        fs::remove_dir_all(&self.base).unwrap();
        fs::remove_dir_all(&self.index).unwrap();
    }
}

/// Removes a subtree in which no file has a link elsewhere.
fn remove(path: &Path) {
    if !path.symlink_metadata().unwrap().is_dir() {
        return fs::remove_file(path).unwrap();
    }
    let linked = |path: &PathBuf| {
        let about = path.symlink_metadata().unwrap();
        !about.is_dir() && about.nlink() > 1
    };
    if !all_paths(path).iter().any(linked) {
        fs::remove_dir_all(path).unwrap();
    }
}

/// A path as the tests show it.
pub fn shown(path: &Path) -> String {
    path.as_os_str().as_encoded_bytes().escape_ascii().to_string()
}

pub fn dir(path: &Path) {
    fs::create_dir(path).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Makes something that is not a directory.
fn leaf(path: &Path, random: &mut StdRng) {
    match random.random_range(0..8) {
        0 => symlink("./nowhere", path).unwrap(),
        1 => nix::unistd::mkfifo(path, Mode::from_bits_truncate(0o640)).unwrap(),
        2 => fs::File::create(path).unwrap().set_len(random.random_range(0..1 << 22)).unwrap(),
        _ => fs::write(path, vec![b'x'; random.random_range(0..9_000)]).unwrap(),
    }
}

/// Sets an extended attribute, if there is room for it and the file system has such.
fn set(path: &Path, key: &str, value: &[u8]) {
    let _ = rustix::fs::lsetxattr(path, key, value, XattrFlags::empty());
}

/// An ACL with 300 users and groups, some of whom there are.
fn long_acl(random: &mut StdRng) -> Acl {
    let mut bits = || [0, 5, 5, 7, 1, 4][random.random_range(0..6)];
    let mut of = |tag: fn(u32) -> AclTag, known: &[u32]| {
        let mut ids: Vec<u32> = known.iter().copied().filter(|&id| id != 0).collect();
        ids.truncate(2);
        ids.extend(10_000..10_148);
        let entry = |id: &u32| AclEntry { tag: tag(*id), permissions: bits() };
        ids.iter().map(entry).collect::<Vec<_>>()
    };
    let (users, groups) = (of(AclTag::User, &UIDS), of(AclTag::Group, &GIDS));
    let one = |tag, permissions| vec![AclEntry { tag, permissions }];
    let entries = [
        one(AclTag::Owner, 7),
        users,
        one(AclTag::OwningGroup, (random.next_u32() & 7) as u16),
        groups,
        one(AclTag::Mask, 7),
        one(AclTag::Other, [0, 1, 5][random.random_range(0..3)]),
    ];
    Acl { entries: entries.concat() }
}

/// Moves the times of access of directories and links into the future, so that neither a scan nor a
/// live command changes them.
pub fn quiet(root: &Path) {
    let future = 4_000_000_000;
    let omitted = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let times = Timestamps {
        last_access: Timespec { tv_sec: future, tv_nsec: 5 },
        last_modification: omitted,
    };
    for path in all_paths(root) {
        let about = path.symlink_metadata().unwrap();
        if (about.is_dir() || about.is_symlink()) && about.atime() != future {
            rustix::fs::utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        }
    }
}
