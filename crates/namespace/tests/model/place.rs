//! A namespace that steps are executed on, and what only a namespace has.

use crate::executor::{Executor, Result};
use crate::step::{Names, Step};
use canopy_model::Credentials;
use canopy_namespace::inode::file_type;
use canopy_namespace::quota::{Account, Limits};
use canopy_namespace::{
    Contents, EntryName, FileId, Inode, Listing, NamedInode, Namespace, New, ROOT, Reply,
    system_clock,
};
use canopy_query::{Component, Context, Expression};
use canopy_store::Environment;
use canopy_store::storage::LocalStorage;
use rand::RngExt;
use rand::rngs::StdRng;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// So much is cached of contents that are chunks: two of them.
const CACHE_BYTES: u64 = 8192;

pub(crate) struct Fixture {
    directory: PathBuf,
    namespace: Arc<Namespace>,
    executor: Executor,
}

/// Opens a copy of what a namespace has on the disk, as if its process had died.
pub(crate) fn crash(place: &Fixture, copy: &Path) -> Fixture {
    let copied = Command::new("cp").arg("-a").arg(&place.directory).arg(copy).status();
    assert!(copied.expect("cp").success());
    Fixture::open(copy.into())
}

impl Names for Fixture {
    fn root(&self) -> FileId {
        self.executor.root()
    }

    fn lookup(&self, name: EntryName<'_>) -> Result<Inode> {
        self.executor.lookup(name)
    }
}

impl Fixture {
    pub(crate) fn open(directory: PathBuf) -> Self {
        let storage = LocalStorage::new(&directory).expect("a storage");
        let environment = Environment::system(Arc::new(storage));
        let contents = Contents::new(&directory.join("contents")).expect("a directory");
        let contents = contents.with_cache_bytes(CACHE_BYTES);
        let namespace =
            Namespace::open(&environment, contents, system_clock()).expect("a namespace");
        Fixture::of(directory, Arc::new(namespace), ROOT)
    }

    fn of(directory: PathBuf, namespace: Arc<Namespace>, root: FileId) -> Self {
        let executor = Executor { execute: namespace.clone(), root };
        Fixture { directory, namespace, executor }
    }

    /// Returns the same namespace with paths that begin at a directory in its root, which is made
    /// if it is missing.
    pub(crate) fn at(&self, name: &str) -> Self {
        let new = New { mode: file_type::DIRECTORY | 0o755, ..New::default() };
        let found = self.namespace.lookup(ROOT, name.as_bytes());
        let found = found.or_else(|_| self.namespace.create(ROOT, name.as_bytes(), &new, false));
        let root = found.expect("a directory").id;
        Fixture::of(self.directory.clone(), self.namespace.clone(), root)
    }

    pub(crate) fn reopen(self) -> Self {
        let directory = self.directory;
        drop((self.namespace, self.executor));
        Fixture::open(directory)
    }

    /// Removes objects of chunks that nobody needs.
    pub(crate) fn collect(&self) {
        self.namespace.collect().expect("a collection");
    }

    pub(crate) fn sync(&self) {
        self.namespace.sync().expect("a sync");
    }

    /// Wants other indexes.
    pub(crate) fn change_indexes(&self, random: &mut StdRng) {
        let all = ["size", "uid", "type", "mtime", "ctime", "ext", "name", "user.one", "user.two"];
        let some = Vec::from_iter(all.iter().filter(|_| random.random_ratio(1, 2)));
        self.namespace.set_indexes(&some).expect("indexes");
    }

    /// Has usage counted, or not any more: limits that nobody reaches, as root does all here.
    pub(crate) fn change_quotas(&self, random: &mut StdRng) {
        let account = Account::User(random.random_range(0..3));
        let inodes_hard = random.random_range(0..3);
        let limits = Limits { inodes_hard, ..Limits::default() };
        self.namespace.set_limits(account, limits).expect("limits");
    }

    /// Builds some of what is missing in indexes, and begins anew the next time.
    pub(crate) fn build_some(&self, steps: u32) {
        let left = Cell::new(steps);
        let goes_on = || left.replace(left.get().saturating_sub(1)) > 0;
        self.namespace.build_indexes(goes_on).expect("indexes");
    }

    /// Writes the log, as a thread of the engine does all the time.
    pub(crate) fn sync_log(&self) {
        self.namespace.table().sync().expect("a sync");
    }

    pub(crate) fn check(&self) {
        let found = self.namespace.check_contents(|_| {}).expect("a check");
        assert!(found.is_empty(), "{found:#?}");
    }

    /// Searches, and compares that with going through all directories.
    pub(crate) fn check_search(&self) {
        let queries = [
            "[size>4K]",
            "[size<100 and type=f]",
            "[uid=1 or gid=2]",
            "[ext=txt]",
            "[name~long*]",
            "[mtime=@1700000000 and not uid=0]",
            "[user.one]",
            "[links>1]",
            "[path~a/*]",
            "[type=d and not (uid=1 or name=a)]",
        ];
        let nobody = |_: &str| None;
        let context = Context {
            now_ns: 1_800_000_000_000_000_000,
            zone: jiff::tz::TimeZone::UTC,
            user: &nobody,
            group: &nobody,
        };
        for query in queries {
            let component = canopy_query::parse(query.as_bytes(), &context);
            let Ok(Some(Component::Search(expression))) = component else {
                panic!("{query}: {component:?}")
            };
            let (mut expected, mut found) = (Vec::new(), Vec::new());
            self.walk(ROOT, "", &expression, &mut expected);
            let root = Credentials::new(0, [0]);
            let searched = self.namespace.search(ROOT, &expression, &root, |one| {
                found.push(String::from_utf8_lossy(&one.path).into_owned());
                true
            });
            searched.expect("a search");
            expected.sort();
            found.sort();
            assert_eq!(found, expected, "{query}");
        }
    }

    /// Searches while others change what is found.
    pub(crate) fn search_all(&self) {
        let nobody = |_: &str| None;
        let zone = jiff::tz::TimeZone::UTC;
        let context = Context { now_ns: 0, zone, user: &nobody, group: &nobody };
        for query in ["[size>100]", "[type=d]", "[ext=txt or user.one]"] {
            let component = canopy_query::parse(query.as_bytes(), &context);
            let Ok(Some(Component::Search(expression))) = component else { panic!("{query}") };
            let root = Credentials::new(0, [0]);
            let searched = self.namespace.search(ROOT, &expression, &root, |_| true);
            searched.expect("a search");
        }
    }

    fn walk(&self, id: FileId, path: &str, expression: &Expression, found: &mut Vec<String>) {
        let mut entries = Vec::new();
        let listed = self.namespace.list(&mut Listing::new(id), 0, |entry| {
            entries.push((entry.name.to_vec(), entry.inode.clone()));
            true
        });
        listed.expect("a listing");
        for (name, inode) in entries {
            let below = format!("{path}{}", String::from_utf8_lossy(&name));
            let xattr = |name: &[u8]| self.namespace.xattr(inode.id, name).expect("an attribute");
            let candidate =
                NamedInode { inode: &inode, name: &name, path: below.as_bytes(), xattr: &xattr };
            if expression.matches(&candidate) {
                found.push(below.clone());
            }
            if inode.is_directory() {
                self.walk(inode.id, &format!("{below}/"), expression, found);
            }
        }
    }

    pub(crate) fn apply(&self, step: &Step) -> Result<Reply> {
        self.executor.apply(step)
    }

    /// Returns what [`Reference::tree`](crate::reference::Reference::tree) does.
    pub(crate) fn tree(&self) -> String {
        self.executor.tree()
    }

    /// Returns whether what a crash left is a tree that there was: names, owners and modes are, and
    /// so are contents that are records. Times and contents of larger files may be newer.
    pub(crate) fn resembles(&self, tree: &str, found: &str) -> bool {
        let names = |tree: &str| {
            Vec::from_iter(tree.lines().map(|line| {
                let mut words = Vec::from_iter(line.split(' '));
                words.truncate(words.len().min(5));
                words.join(" ")
            }))
        };
        names(tree) == names(found)
    }
}
