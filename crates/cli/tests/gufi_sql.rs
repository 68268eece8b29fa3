//! What GUFI's documents, its gufi_stats and its paper ask, asked here: as written where that means one thing, else as
//! docs/coming-from-gufi.md says. The answers that are expected are computed from the tree itself.
//!
//! With GUFI_BIN set to the directory of GUFI's programs, GUFI answers the same questions too.

mod common;

use common::Place;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Later than all that reads the tree, so that reading changes no access time.
const ATIME_S: i64 = 4_000_000_000;

/// A file, link or directory of the tree.
struct Row {
    /// The directory that holds it; of a directory, itself.
    dir: String,
    path: String,
    name: String,
    kind: char,
    meta: Metadata,
    /// Of its directory.
    level: usize,
    target: String,
    xattrs: Vec<(String, String)>,
}

impl Row {
    fn new(path: &Path, level: usize) -> Self {
        let meta = path.symlink_metadata().unwrap();
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let dir = if meta.is_dir() { path } else { path.parent().unwrap() };
        Row {
            dir: text(dir),
            path: text(path),
            name: text(Path::new(path.file_name().unwrap())),
            kind: if meta.is_dir() {
                'd'
            } else if meta.is_symlink() {
                'l'
            } else {
                'f'
            },
            level,
            target: fs::read_link(path).map(|target| text(&target)).unwrap_or_default(),
            xattrs: xattrs(path),
            meta,
        }
    }

    fn size(&self) -> u64 {
        self.meta.size()
    }

    fn created_s(&self) -> i64 {
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        let mask = rustix::fs::StatxFlags::BTIME;
        rustix::fs::statx(rustix::fs::CWD, self.path.as_str(), flags, mask).unwrap().stx_btime.tv_sec
    }
}

fn xattrs(path: &Path) -> Vec<(String, String)> {
    let mut names = vec![0; 4096];
    let Ok(length) = rustix::fs::llistxattr(path, &mut names) else { return Vec::new() };
    let names = names[..length].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user."));
    let value = |name: &[u8]| {
        let mut value = vec![0; 4096];
        let length = rustix::fs::lgetxattr(path, name, &mut value).unwrap();
        (String::from_utf8(name.to_vec()).unwrap(), String::from_utf8(value[..length].to_vec()).unwrap())
    };
    names.map(value).collect()
}

/// All that is in a tree.
struct Tree {
    root: String,
    dirs: Vec<Row>,
    entries: Vec<Row>,
}

impl Tree {
    fn read(root: &Path) -> Self {
        let mut tree =
            Tree { root: root.to_str().unwrap().to_owned(), dirs: Vec::new(), entries: Vec::new() };
        tree.read_below(root, 0);
        tree
    }

    fn read_below(&mut self, dir: &Path, level: usize) {
        self.dirs.push(Row::new(dir, level));
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.symlink_metadata().unwrap().is_dir() {
                self.read_below(&path, level + 1);
            } else {
                self.entries.push(Row::new(&path, level));
            }
        }
    }

    fn of<'a>(&'a self, dir: &'a Row) -> impl Iterator<Item = &'a Row> {
        self.entries.iter().filter(|row| row.dir == dir.path)
    }

    fn count(&self, dir: &Row, kind: char) -> usize {
        self.of(dir).filter(|row| row.kind == kind).count()
    }

    fn totsize(&self, dir: &Row) -> u64 {
        self.of(dir).filter(|row| row.kind == 'f').map(Row::size).sum()
    }

    fn subdirs(&self, dir: &Row) -> usize {
        self.dirs.iter().filter(|row| parent(&row.path) == dir.path).count()
    }

    fn leaves(&self) -> impl Iterator<Item = &Row> {
        self.dirs.iter().filter(|dir| self.subdirs(dir) == 0)
    }

    fn files(&self) -> impl Iterator<Item = &Row> {
        self.entries.iter().filter(|row| row.kind == 'f')
    }

    fn dir(&self, row: &Row) -> &Row {
        self.dirs.iter().find(|dir| dir.path == row.dir).unwrap()
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').unwrap().0
}

/// The example tree of GUFI's SQL guide, and what makes its answers differ: sizes at the limits, links, owners, times before
/// 1970, attributes, names that patterns and quotes mean something in.
fn make(root: &Path) {
    let file = |path: &str, size: u64| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        File::create(&path).unwrap().set_len(size).unwrap();
        path
    };
    for dir in 1..=3 {
        file(&format!("l1.2/l2.{dir}/f1.xls"), 0);
        file(&format!("l1.1/l2.{dir}/f1.exe"), 0);
        file(&format!("l1.1/l2.{dir}/f1.tar"), 0);
    }
    for (path, size) in [
        ("l1.1/f1.1.doc", 2),
        ("l1.1/f2.1.doc", 2),
        ("l1.2/f2.1.doc", 2),
        ("l1.3/f3.1.doc", 2),
        ("l1.3/l2.1/f1.biggest", 10),
        ("l1.3/l2.2/f1.bigger", 7),
        ("l1.3/l2.3/f1.big", 4),
        ("sizes/zero.dat", 0),
        ("sizes/k.dat", 1024),
        ("sizes/k1.dat", 1025),
        ("sizes/m.dat", 1 << 20),
        ("sizes/m1.dat", (1 << 20) + 1),
        ("sizes/g1.dat", (1 << 30) + 1),
        ("sizes/t1.dat", (1 << 40) + 1),
        ("names/Makefile", 5),
        ("names/.hidden", 5),
        ("names/ends.", 5),
        ("names/LOUD.BIG", 5),
        ("names/its 100% _ü", 5),
        ("hard/one", 6),
    ] {
        file(path, size);
    }
    fs::hard_link(root.join("hard/one"), root.join("hard/two")).unwrap();
    fs::create_dir_all(root.join("empty/l2.empty")).unwrap();
    fs::create_dir(root.join("links")).unwrap();
    symlink("../l1.1/f1.1.doc", root.join("links/to")).unwrap();
    symlink("nowhere", root.join("links/broken.lnk")).unwrap();
    for (path, name, value) in [
        ("l1.3/l2.3/f1.big", "user.needle", "found the needle"),
        ("l1.3/l2.3/f1.big", "user.ext", "one"),
        ("l1.1/f1.1.doc", "user.ext", "two"),
        ("sizes", "user.ext", "of a directory"),
    ] {
        rustix::fs::setxattr(root.join(path), name, value.as_bytes(), rustix::fs::XattrFlags::empty())
            .unwrap();
    }
    let mut paths = common::all_paths(root);
    paths.reverse();
    for (number, path) in paths.iter().enumerate() {
        adorn(path, number);
    }
}

fn adorn(path: &Path, number: usize) {
    // Of users and groups that every system has: GUFI cannot show others.
    let ids = [(0, 0), (1, 1), (2, 1), (1, 2)];
    let (uid, gid) = ids[number % ids.len()];
    lchown(path, Some(uid), Some(gid)).unwrap();
    if !path.is_symlink() {
        let mode = if path.is_dir() { 0o755 } else { [0o644, 0o600, 0o755, 0o4711][number / 4 % 4] };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let mtime_s =
        [1_700_000_000, 1_000_000_000, 1_790_000_000, 86_400, -1_000_000][number % 5] + number as i64;
    let at = |tv_sec| rustix::fs::Timespec { tv_sec, tv_nsec: 500_000_000 };
    let times = rustix::fs::Timestamps { last_access: at(ATIME_S), last_modification: at(mtime_s) };
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, flags).unwrap();
}

type Answer = Vec<Vec<String>>;

macro_rules! row {
    ($($value:expr),* $(,)?) => { vec![$($value.to_string()),*] };
}

/// A question of one of GUFI's documents.
struct Case {
    origin: &'static str,
    /// What gufi_query is told.
    gufi: &'static [&'static str],
    /// What is asked here; none if GUFI's last argument is, as it stands.
    ours: Option<&'static str>,
    /// Whether rows come in the order of the answer.
    ordered: bool,
    expected: fn(&Tree) -> Answer,
}

const GUIDE: &str = "GUFI-SQL.docx";

/// A statement that runs as written.
const fn written(origin: &'static str, gufi: &'static [&'static str], expected: fn(&Tree) -> Answer) -> Case {
    Case { origin, gufi, ours: None, ordered: false, expected }
}

/// What takes several statements in GUFI, or means something for each directory.
const fn one(
    origin: &'static str,
    gufi: &'static [&'static str],
    ours: &'static str,
    expected: fn(&Tree) -> Answer,
) -> Case {
    Case { origin, gufi, ours: Some(ours), ordered: false, expected }
}

fn rows<'a>(rows: impl IntoIterator<Item = &'a Row>, row: impl Fn(&Row) -> Vec<String>) -> Answer {
    rows.into_iter().map(row).collect()
}

fn user(row: &Row) -> String {
    canopy_query::user_name(row.meta.uid()).unwrap_or_else(|| row.meta.uid().to_string())
}

fn group(row: &Row) -> String {
    canopy_query::group_name(row.meta.gid()).unwrap_or_else(|| row.meta.gid().to_string())
}

/// What date(1) and ls(1) would show of these.
fn described(row: &Row) -> Vec<String> {
    assert_eq!(row.meta.atime(), ATIME_S);
    let mode = Command::new("stat").args(["-c", "%A"]).arg(&row.path).output().unwrap().stdout;
    let mode = String::from_utf8(mode).unwrap();
    row![
        row.dir,
        row.name,
        row.kind,
        row.size(),
        user(row),
        group(row),
        "2096-10-02 07:06:40",
        mode.trim_end()
    ]
}

fn full(row: &Row) -> Vec<String> {
    row![row.path]
}

/// The columns of `entries`.
fn entry(row: &Row) -> Vec<String> {
    let names: String = row.xattrs.iter().map(|(name, _)| format!("{name}\u{1f}")).collect();
    let meta = &row.meta;
    let numbers = row![
        meta.ino(),
        meta.mode(),
        meta.nlink(),
        meta.uid(),
        meta.gid(),
        meta.size(),
        meta.blksize(),
        meta.blocks(),
        meta.atime(),
        meta.mtime(),
        meta.ctime(),
    ];
    let head = row![row.name, row.kind];
    let tail = row![row.target, names, row.created_s(), 0, 0, 0, 0, "", ""];
    [head, numbers, tail].concat()
}

/// The sums of `summary` of some entries, from `totfiles` to `totcrtime`, without `depth`.
fn sums(entries: &[&Row]) -> Vec<i64> {
    let files: Vec<&&Row> = entries.iter().filter(|row| row.kind == 'f').collect();
    let number = |condition: fn(u64) -> bool| files.iter().filter(|row| condition(row.size())).count() as i64;
    let ends = |values: &[i64]| {
        [values.iter().min().copied().unwrap_or(i64::MAX), values.iter().max().copied().unwrap_or(i64::MIN)]
    };
    let all = |value: fn(&Row) -> i64| -> Vec<i64> { entries.iter().map(|row| value(row)).collect() };
    let of_files = |value: fn(&Row) -> i64| -> Vec<i64> { files.iter().map(|row| value(row)).collect() };
    let mut sums = vec![files.len() as i64, (entries.len() - files.len()) as i64];
    sums.extend(ends(&all(|row| row.meta.uid().into())));
    sums.extend(ends(&all(|row| row.meta.gid().into())));
    let sizes = of_files(|row| row.size() as i64);
    sums.extend(ends(&sizes));
    sums.extend([
        number(|size| size == 0),
        number(|size| size <= 1 << 10),
        number(|size| size > 1 << 10),
        number(|size| size <= 1 << 20),
        number(|size| size > 1 << 20),
        number(|size| size > 1 << 30),
        number(|size| size > 1 << 40),
        sizes.iter().sum(),
    ]);
    for time in [|row: &Row| row.meta.ctime(), |row: &Row| row.meta.mtime(), |row: &Row| row.meta.atime()] {
        sums.extend(ends(&all(time)));
        sums.push(all(time).iter().sum());
    }
    let blocks = of_files(|row| row.meta.blocks() as i64);
    sums.extend(ends(&blocks));
    sums.push(blocks.iter().sum());
    sums.push(entries.iter().map(|row| row.xattrs.len() as i64).sum());
    let created = all(Row::created_s);
    sums.extend(ends(&created));
    sums.push(created.iter().sum());
    sums
}

/// Columns of file systems that keep more, of so many entries.
fn oss(entries: usize) -> Vec<String> {
    let one = if entries == 0 { row![i64::MAX, i64::MIN, 0] } else { row![0, 0, 0] };
    vec![one; 4].concat()
}

fn texts(numbers: &[i64]) -> Vec<String> {
    numbers.iter().map(i64::to_string).collect()
}

fn pinode(tree: &Tree, dir: &Row) -> u64 {
    tree.dirs.iter().find(|above| above.path == parent(&dir.path)).map_or(0, |above| above.meta.ino())
}

/// The columns of `summary`.
fn summary(tree: &Tree, dir: &Row) -> Vec<String> {
    let entries: Vec<&Row> = tree.of(dir).collect();
    let sums = sums(&entries);
    let own = entry(dir)[..16].to_vec();
    let (sums, created) = (texts(&sums[..29]), texts(&sums[29..]));
    let tail = row![0, pinode(tree, dir), 1, 0, 0];
    [own, sums, row![0], created, oss(entries.len()), tail].concat()
}

/// What gufi_treesummary sums up for a directory.
fn tree_summary(tree: &Tree, top: &Row) -> Vec<String> {
    let inside = |path: &str| path == top.path || path.starts_with(&format!("{}/", top.path));
    let dirs: Vec<&Row> = tree.dirs.iter().filter(|dir| inside(&dir.path)).collect();
    let entries: Vec<&Row> = tree.entries.iter().filter(|row| inside(&row.path)).collect();
    // Extrema, and sums of times, are of directories with files alone.
    let with_files: Vec<&Row> =
        entries.iter().filter(|row| tree.count(tree.dir(row), 'f') > 0).copied().collect();
    let (mut all, some) = (sums(&entries), sums(&with_files));
    for at in (2..8).chain(16..27).chain(29..32) {
        all[at] = some[at];
    }
    all[27] = sums(&entries)[27];
    let most = |value: &dyn Fn(&Row) -> i64| dirs.iter().map(|dir| value(dir)).max().unwrap();
    let head = row![
        top.meta.ino(),
        pinode(tree, top),
        dirs.len() - 1,
        most(&|dir| tree.count(dir, 'f') as i64),
        most(&|dir| tree.count(dir, 'l') as i64),
        most(&|dir| tree.totsize(dir) as i64),
    ];
    let depth = top.path.matches('/').count();
    let (sums, created) = (texts(&all[..29]), texts(&all[29..]));
    [head, sums, row![depth], created, oss(with_files.len()), row![0, 0, 0, 0]].concat()
}

fn by<K: Ord + ToString, V>(
    rows: impl IntoIterator<Item = V>,
    key: impl Fn(&V) -> K,
    value: impl Fn(&V) -> u64,
) -> Answer {
    let mut sums: BTreeMap<K, u64> = BTreeMap::new();
    for row in rows {
        *sums.entry(key(&row)).or_default() += value(&row);
    }
    sums.into_iter().map(|(key, sum)| row![key, sum]).collect()
}

fn extension(row: &Row) -> String {
    let name = row.name.as_str();
    name.rsplit_once('.').map_or("", |(_, extension)| extension).to_owned()
}

const CASES: &[Case] = &[
    written(GUIDE, &["-E", "select name,type,size,uid,gid,atime from entries;"], |tree| {
        rows(&tree.entries, |row| {
            entry(row)[..2]
                .iter()
                .chain(&row![row.size(), row.meta.uid(), row.meta.gid(), ATIME_S])
                .cloned()
                .collect()
        })
    }),
    written(GUIDE, &["-E", "select name,type,size,uid,gid,atime from vrpentries;"], |tree| {
        rows(&tree.entries, |row| {
            row![row.name, row.kind, row.size(), row.meta.uid(), row.meta.gid(), ATIME_S]
        })
    }),
    written(
        GUIDE,
        &[
            "-E",
            r#"select path(),name,type,size,uidtouser(uid),gidtogroup(gid),datetime(atime,"unixepoch"),modetotxt(mode) from vrpentries;"#,
        ],
        |tree| rows(&tree.entries, described),
    ),
    written(
        GUIDE,
        &[
            "-E",
            r#"select rpath(sname,sroll),name,type,size,uidtouser(uid),gidtogroup(gid),datetime(atime,"unixepoch"),modetotxt(mode) from vrpentries;"#,
        ],
        |tree| rows(&tree.entries, described),
    ),
    one(
        GUIDE,
        &[
            "-S",
            r#"select "D-",rpath(sname,sroll),name  from vrsummary;select "F-",rpath(sname,sroll),name  from vrpentries;"#,
        ],
        r#"select "D-",rpath(sname,sroll),name  from vrsummary UNION ALL select "F-",rpath(sname,sroll),name  from vrpentries;"#,
        |tree| {
            let of = |rows_of: &[Row], mark: &str| rows(rows_of, |row| row![mark, row.dir, row.name]);
            [of(&tree.dirs, "D-"), of(&tree.entries, "F-")].concat()
        },
    ),
    written(
        GUIDE,
        &[
            "-E",
            r#"select rpath(sname,sroll),name,type,size,uidtouser(uid),gidtogroup(gid),datetime(atime,"unixepoch"),modetotxt(mode) from vrpentries where size>6;"#,
        ],
        |tree| rows(tree.entries.iter().filter(|row| row.size() > 6), described),
    ),
    written(
        GUIDE,
        &[
            "-E",
            r#"select rpath(sname,sroll),name,type,size,uidtouser(uid),gidtogroup(gid),datetime(atime,"unixepoch"),modetotxt(mode) from vrpentries where name like "%big%";"#,
        ],
        |tree| rows(tree.entries.iter().filter(|row| row.name.to_lowercase().contains("big")), described),
    ),
    written(
        GUIDE,
        &[
            "-E",
            r#"select rpath(sname,sroll),name,type,size,uidtouser(uid),gidtogroup(gid),datetime(atime,"unixepoch"),modetotxt(mode) from vrpentries where dname like "%l1%";"#,
        ],
        |tree| rows(tree.entries.iter().filter(|row| tree.dir(row).name.contains("l1")), described),
    ),
    written(GUIDE, &["-E", "select rpath(sname,sroll),dname,totfiles,maxsize from vrsummary;"], |tree| {
        rows(&tree.dirs, |dir| {
            let largest = tree.of(dir).filter(|row| row.kind == 'f').map(|row| row.size() as i64).max();
            row![dir.path, dir.name, tree.count(dir, 'f'), largest.unwrap_or(i64::MIN)]
        })
    }),
    one(
        GUIDE,
        &[],
        "SELECT path, name, size FROM (SELECT rpath(sname, sroll) AS path, name, size, row_number() OVER (PARTITION BY pinode ORDER BY name) AS place FROM vrpentries) WHERE place <= 1",
        |tree| {
            let first = |dir| tree.of(dir).min_by_key(|row| row.name.clone());
            rows(tree.dirs.iter().filter_map(first), |row| row![row.dir, row.name, row.size()])
        },
    ),
    Case {
        ordered: true,
        ..one(
            GUIDE,
            &[
                "-I",
                "create table out (oname TEXT);",
                "-E",
                r#"insert into out select rpath(sname,sroll) || "/" || name from vrpentries;"#,
                "-K",
                "CREATE TABLE aggregate (fname TEXT);",
                "-J",
                "insert into aggregate (fname) select oname from out;",
                "-G",
                "select fname  from aggregate order by fname asc;",
            ],
            r#"select rpath(sname,sroll) || "/" || name AS fname from vrpentries order by fname asc;"#,
            |tree| {
                let mut paths = rows(&tree.entries, full);
                paths.sort();
                paths
            },
        )
    },
    one(
        GUIDE,
        &[
            "-I",
            "create table out (oext TEXT,ocnt INT64);",
            "-E",
            r#"insert into out select ltrim(name,rtrim(name,replace(name,".",""))) as myext,count(inode) from entries group by myext;"#,
            "-K",
            "CREATE TABLE aggregate (fext TEXT,fcnt INT64);",
            "-J",
            "insert into aggregate (fext,fcnt) select oext,ocnt from out;",
            "-G",
            "select fext,sum(fcnt) from aggregate group by fext;",
        ],
        r#"select ltrim(name,rtrim(name,replace(name,".",""))) as myext,count(inode) from entries group by myext;"#,
        |tree| {
            // What trims the letters of the name from its end finds no dot in a name without one.
            let last =
                |row: &&Row| row.name.rsplit_once('.').map_or(row.name.clone(), |(_, last)| last.to_owned());
            by(&tree.entries, last, |_| 1)
        },
    ),
    written(GUIDE, &["-E", "select rpath(sname,sroll),type,size from vrpentries;"], |tree| {
        rows(&tree.entries, |row| row![row.dir, row.kind, row.size()])
    }),
    one(GUIDE, &[], "select type, count(*), sum(size) from vrpentries group by pinode, type;", |tree| {
        let key = |row: &&Row| (row.dir.clone(), row.kind);
        let mut sums: BTreeMap<(String, char), (u64, u64)> = BTreeMap::new();
        for row in &tree.entries {
            let sum = sums.entry(key(&row)).or_default();
            *sum = (sum.0 + 1, sum.1 + row.size());
        }
        sums.into_iter().map(|((_, kind), (count, size))| row![kind, count, size]).collect()
    }),
    written(GUIDE, &["-S", "select * from summary"], |tree| rows(&tree.dirs, |dir| summary(tree, dir))),
    one(
        GUIDE,
        &[
            "-S",
            r#"select "dir",rpath(sname,sroll),dname from vrsummary where dname like "%l2%";"#,
            "-E",
            "select name,size from vrpentries;",
            "-a",
            "0",
        ],
        r#"select "dir",rpath(sname,sroll),dname from vrsummary where dname like "%l2%" UNION ALL select name, CAST(size AS TEXT), NULL from vrpentries where dname like "%l2%";"#,
        |tree| {
            let l2 = |dir: &&Row| dir.name.contains("l2");
            let dirs = rows(tree.dirs.iter().filter(l2), |dir| row!["dir", dir.path, dir.name]);
            let entries = tree.entries.iter().filter(|row| l2(&tree.dir(row)));
            [dirs, rows(entries, |row| row![row.name, row.size(), ""])].concat()
        },
    ),
    written(
        GUIDE,
        &[
            "-T",
            r#"select path(),"mtotsubdirs",totsubdirs,"mmaxsubdirfiles",maxsubdirfiles,"mmaxsubdirsize",maxsubdirsize,"mtottreefiles",totfiles  from treesummary;"#,
        ],
        |tree| {
            rows(&tree.dirs, |dir| {
                let all = tree_summary(tree, dir);
                row![
                    dir.path,
                    "mtotsubdirs",
                    all[2],
                    "mmaxsubdirfiles",
                    all[3],
                    "mmaxsubdirsize",
                    all[5],
                    "mtottreefiles",
                    all[6]
                ]
            })
        },
    ),
    one(GUIDE, &[], "select count(name) from summary;", |tree| vec![row![tree.dirs.len()]]),
    written(GUIDE, &["-S", "select path(),rpath(sname,sroll), name, size from vrpentries;"], |tree| {
        rows(&tree.entries, |row| row![row.dir, row.dir, row.name, row.size()])
    }),
    written("quickstart.tex", &["-S", "SELECT rpath(sname, sroll) FROM vrsummary;"], |tree| {
        rows(&tree.dirs, |dir| row![dir.path])
    }),
    written("quickstart.tex", &["-E", "SELECT rpath(sname, sroll, name) FROM vrpentries;"], |tree| {
        rows(&tree.entries, full)
    }),
    written(
        "addqueryfuncs.tex",
        &["-E", "SELECT rpath(sname, sroll) || '/' || name FROM vrpentries;"],
        |tree| rows(&tree.entries, full),
    ),
    written(
        "addqueryfuncs.tex",
        &["-x", "-E", "SELECT rpath(sname, sroll, name) FROM vrxpentries;"],
        |tree| tree.entries.iter().flat_map(|row| vec![full(row); row.xattrs.len().max(1)]).collect(),
    ),
    written("addqueryfuncs.tex", &["-S", "SELECT subdirs(srollsubdirs, sroll) FROM vrsummary;"], |tree| {
        rows(&tree.dirs, |dir| row![tree.subdirs(dir)])
    }),
    written("reconstruct.tex", &["-E", "SELECT * FROM entries;"], |tree| rows(&tree.entries, entry)),
    written("gufi_query.tex", &["-S", "SELECT * FROM vrsummary;"], |tree| {
        rows(&tree.dirs, |dir| [row![dir.name, dir.name, 0, 0], summary(tree, dir)].concat())
    }),
    written("gufi_query.tex", &["-E", "SELECT * FROM vrpentries;"], |tree| {
        rows(&tree.entries, |row| {
            let dir = tree.dir(row);
            let own = summary(tree, dir);
            // From totfiles to totcrtime.
            let sums = own[16..49].to_vec();
            let pinodes = row![dir.meta.ino(), pinode(tree, dir)];
            [row![dir.name, dir.name], own[3..14].to_vec(), sums, row![0, 1, 0], entry(row), pinodes].concat()
        })
    }),
    Case {
        ordered: true,
        ..one(
            "gufi_query.tex",
            &[
                "-I",
                "CREATE TABLE intermediate(name TEXT, size INT64);",
                "-S",
                "INSERT INTO intermediate SELECT name, size FROM vrsummary;",
                "-K",
                "CREATE TABLE aggregate(name TEXT, size INT64);",
                "-J",
                "INSERT INTO aggregate SELECT * FROM intermediate;",
                "-G",
                "SELECT * FROM aggregate ORDER BY size DESC, name;",
            ],
            "SELECT name, size FROM vrsummary ORDER BY size DESC, name;",
            |tree| {
                let mut dirs: Vec<&Row> = tree.dirs.iter().collect();
                dirs.sort_by_key(|dir| (std::cmp::Reverse(dir.size()), dir.name.clone()));
                rows(dirs, |dir| row![dir.name, dir.size()])
            },
        )
    },
    one("virtual_tables.tex", &[], "SELECT * FROM pentries", |tree| {
        rows(&tree.entries, |row| {
            let dir = tree.dir(row);
            [entry(row), row![dir.meta.ino(), pinode(tree, dir)]].concat()
        })
    }),
    written("virtual_tables.tex", &["-E", "SELECT name, size FROM pentries"], |tree| {
        rows(&tree.entries, |row| row![row.name, row.size()])
    }),
    one(
        "examples/userfilespacehog",
        &[
            "-I",
            "CREATE TABLE intermediate (uid INT64, totfiles INT64, totsize INT64);",
            "-E",
            "INSERT INTO intermediate SELECT uid, COUNT(*), SUM(size) FROM entries WHERE type == 'f' GROUP by uid;",
            "-K",
            "CREATE TABLE aggregate (uid INT64, totfiles INT64, totsize INT64);",
            "-J",
            "INSERT INTO aggregate SELECT uid, SUM(totfiles), SUM(totsize) FROM intermediate GROUP BY uid;",
            "-G",
            "SELECT uidtouser(uid), SUM(totfiles), SUM(totsize) as finalsize FROM aggregate GROUP BY uid ORDER BY finalsize DESC;",
        ],
        "SELECT uidtouser(uid), COUNT(*), SUM(size) AS finalsize FROM entries WHERE type == 'f' GROUP BY uid ORDER BY finalsize DESC",
        |tree| {
            let counts = by(tree.files(), |row| user(row), |_| 1);
            let sizes = by(tree.files(), |row| user(row), |row| row.size());
            counts.into_iter().zip(sizes).map(|(count, size)| row![count[0], count[1], size[1]]).collect()
        },
    ),
    Case {
        ordered: true,
        ..one(
            "examples/oldbigfiles",
            &[
                "-I",
                "CREATE TABLE intermediate (uid INT64, pathname TEXT, name TEXT, size INT64, mtime INT64);",
                "-E",
                "INSERT INTO intermediate SELECT uid, rpath(sname, sroll), name, size, mtime FROM vrpentries WHERE (type == 'f') AND (size > 1024);",
                "-K",
                "CREATE TABLE aggregate (uid INT64, pathname TEXT, name TEXT, size INT64, mtime INT64);",
                "-J",
                "INSERT INTO aggregate SELECT uid, pathname, name, size, mtime FROM intermediate;",
                "-G",
                "SELECT uid, pathname, name, size, mtime FROM aggregate ORDER BY size DESC, pathname ASC, name ASC;",
            ],
            "SELECT uid, rpath(sname, sroll) AS pathname, name, size, mtime FROM vrpentries WHERE (type == 'f') AND (size > 1024) ORDER BY size DESC, pathname ASC, name ASC",
            |tree| {
                let mut large: Vec<&Row> = tree.files().filter(|row| row.size() > 1024).collect();
                large.sort_by_key(|row| (std::cmp::Reverse(row.size()), row.path.clone()));
                rows(large, |row| row![row.meta.uid(), row.dir, row.name, row.size(), row.meta.mtime()])
            },
        )
    },
    written(
        "examples/example_run",
        &["-S", "SELECT path(),name, type, size, datetime(atime,'unixepoch') FROM vsummarydir;"],
        |tree| rows(&tree.dirs, |dir| row![dir.path, dir.name, 'd', dir.size(), "2096-10-02 07:06:40"]),
    ),
    written("SC22, figure 7", &["-E", "SELECT uid FROM entries"], |tree| {
        rows(&tree.entries, |row| row![row.meta.uid()])
    }),
    one(
        "SC22, figure 8",
        &["-S", "SELECT uid FROM summary", "-E", "SELECT uid FROM pentries"],
        "SELECT uid FROM summary UNION ALL SELECT uid FROM pentries",
        |tree| rows(tree.dirs.iter().chain(&tree.entries), |row| row![row.meta.uid()]),
    ),
    one(
        "SC22, figure 9",
        &[
            "-x",
            "-E",
            "SELECT path(), name, uid, gid, xattr_value FROM xpentries WHERE xattr_value IS NOT NULL",
        ],
        r#"SELECT path(""), name, uid, gid, xattr_value FROM xpentries WHERE xattr_value IS NOT NULL"#,
        |tree| {
            let of = |row: &Row| -> Answer {
                row.xattrs
                    .iter()
                    .map(|(_, value)| row![row.dir, row.name, row.meta.uid(), row.meta.gid(), value])
                    .collect()
            };
            tree.entries.iter().flat_map(of).collect()
        },
    ),
    one(
        "SC22, figure 9",
        &[
            "-x",
            "-E",
            r#"SELECT path(), name, uid, gid, xattr_value FROM xpentries WHERE xattr_value LIKE "%needle%""#,
        ],
        r#"SELECT path(""), name, uid, gid, xattr_value FROM xpentries WHERE xattr_value LIKE "%needle%""#,
        |tree| {
            let found = tree.entries.iter().filter(|row| row.name == "f1.big");
            rows(found, |row| row![row.dir, row.name, row.meta.uid(), row.meta.gid(), "found the needle"])
        },
    ),
    written("SC22, figure 10", &["-E", "SELECT name FROM pentries"], |tree| {
        rows(&tree.entries, |row| row![row.name])
    }),
    written("SC22, figure 10", &["-S", "SELECT name, size FROM summary"], |tree| {
        rows(&tree.dirs, |dir| row![dir.name, dir.size()])
    }),
    one(
        "SC22, figure 10",
        &[
            "-I",
            "CREATE TABLE sizes(total_size INT64)",
            "-S",
            "INSERT INTO sizes SELECT TOTAL(size) FROM summary",
            "-E",
            "INSERT INTO sizes SELECT TOTAL(size) FROM pentries",
            "-K",
            "CREATE TABLE agg(total_size INT64)",
            "-J",
            "INSERT INTO agg SELECT TOTAL(total_size) from sizes",
            "-G",
            "SELECT TOTAL(total_size) from agg",
            "-a",
            "1",
        ],
        "SELECT TOTAL(size) FROM (SELECT size FROM summary UNION ALL SELECT size FROM pentries)",
        |tree| {
            let total: u64 = tree.dirs.iter().chain(&tree.entries).map(Row::size).sum();
            vec![row![format!("{total}.0")]]
        },
    ),
    one(
        "SC22, figure 10",
        &["--max-level", "0", "-T", "SELECT totsize FROM treesummary"],
        "SELECT totsize FROM tsummary WHERE level() = 0",
        |tree| vec![row![tree.files().map(Row::size).sum::<u64>()]],
    ),
    one("treesummary.tex", &[], "SELECT * FROM treesummary", |tree| {
        rows(&tree.dirs, |dir| tree_summary(tree, dir))
    }),
    // All columns but the depth, which is that of the index in GUFI.
    written(
        "treesummary.tex",
        &[
            "-T",
            "SELECT inode, pinode, totsubdirs, maxsubdirfiles, maxsubdirlinks, maxsubdirsize, totfiles, totlinks, minuid, maxuid, mingid, maxgid, minsize, maxsize, totzero, totltk, totmtk, totltm, totmtm, totmtg, totmtt, totsize, minctime, maxctime, totctime, minmtime, maxmtime, totmtime, minatime, maxatime, totatime, minblocks, maxblocks, totblocks, totxattr, mincrtime, maxcrtime, totcrtime, minossint1, maxossint1, totossint1, minossint2, maxossint2, totossint2, minossint3, maxossint3, totossint3, minossint4, maxossint4, totossint4, totextdbs, rectype, uid, gid FROM treesummary",
        ],
        |tree| {
            rows(&tree.dirs, |dir| {
                let mut all = tree_summary(tree, dir);
                all.remove(35);
                all
            })
        },
    ),
];

/// The place with a tree, its index, and GUFI's if there is a GUFI.
struct Site {
    place: Place,
    tree: Tree,
    index: PathBuf,
    gufi: Option<PathBuf>,
}

impl Site {
    fn new() -> Self {
        Site::with(&[])
    }

    /// With some more files.
    fn with(files: &[&str]) -> Self {
        let place = Place::new();
        let (root, index, gufi_index) = (place.path("test"), place.path("index"), place.path("gufi"));
        fs::create_dir(&root).unwrap();
        make(&root);
        for file in files {
            fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            fs::write(root.join(file), "").unwrap();
        }
        place.index(&index, &root);
        let gufi = std::env::var_os("GUFI_BIN").map(PathBuf::from);
        if let Some(gufi) = &gufi {
            let arguments = ["-x".as_ref(), root.as_os_str(), gufi_index.as_os_str()];
            run(&gufi.join("gufi_dir2index"), &arguments);
            // Another for tree summaries: making them changes what GUFI says of rollups.
            let trees = place.path("gufi-trees");
            run(&gufi.join("gufi_dir2index"), &["-x".as_ref(), root.as_os_str(), trees.as_os_str()]);
            run(&gufi.join("gufi_treesummary_all"), &[trees.join("test").as_os_str()]);
        } else {
            eprintln!("skipped: GUFI_BIN does not name a directory with GUFI's programs");
        }
        Site { place, tree: Tree::read(&root), index, gufi }
    }

    fn ask(&self, query: &str) -> Answer {
        let arguments = ["sql", "--gufi", "--format", "csv", query].map(OsStr::new);
        let output = self.place.canopy(&self.index, &arguments);
        assert!(output.status.success(), "{query}\n{}", String::from_utf8_lossy(&output.stderr));
        csv(&String::from_utf8(output.stdout).unwrap()).split_off(1)
    }

    /// GUFI's answer, with paths as they are in the tree.
    fn ask_gufi(&self, query: &[&str]) -> Option<Answer> {
        let gufi = self.gufi.as_ref().filter(|_| !query.is_empty())?;
        let index = if query.contains(&"-T") { "gufi-trees" } else { "gufi" };
        let index = self.place.path(index).join("test");
        // Builds of SQLite differ in whether text may stand in double quotes.
        let query: Vec<String> = query.iter().map(|argument| argument.replace('"', "'")).collect();
        let mut arguments: Vec<&OsStr> = query.iter().map(OsStr::new).collect();
        arguments.extend(["-d".as_ref(), "|".as_ref(), index.as_os_str()]);
        let text =
            run(&gufi.join("gufi_query"), &arguments).replace(index.to_str().unwrap(), &self.tree.root);
        Some(text.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect())
    }
}

fn run(program: &Path, arguments: &[&OsStr]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {arguments:?}\n{errors}", program.display());
    String::from_utf8(output.stdout).unwrap()
}

/// The fields of CSV.
fn csv(text: &str) -> Answer {
    let (mut rows, mut row, mut field, mut quoted) = (Vec::new(), Vec::new(), String::new(), false);
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => field.extend(characters.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(std::mem::take(&mut field)),
            '\n' if !quoted => {
                row.push(std::mem::take(&mut field));
                rows.push(std::mem::take(&mut row));
            }
            _ => field.push(character),
        }
    }
    rows
}

/// How an answer differs from what is expected, if it does.
fn difference(mut shown: Answer, mut expected: Answer, ordered: bool, what: &str) -> Option<String> {
    // Rows of GUFI's statements for directories and for entries may have different numbers of columns.
    for row in shown.iter_mut().chain(&mut expected) {
        while row.last().is_some_and(String::is_empty) {
            row.pop();
        }
    }
    if !ordered {
        shown.sort();
        expected.sort();
    }
    let first = shown.iter().zip(&expected).find(|(shown, expected)| shown != expected);
    let counts = (shown.len(), expected.len());
    (shown != expected).then(|| format!("{what}\n{counts:?} rows, first to differ: {first:?}\n"))
}

#[test]
fn questions_of_gufis_documents_have_the_same_answers() {
    let site = Site::new();
    let mut differences = Vec::new();
    for case in CASES {
        let query = case.ours.unwrap_or_else(|| case.gufi.last().unwrap());
        let what = format!("{}: {query}", case.origin);
        let expected = (case.expected)(&site.tree);
        assert!(!expected.is_empty(), "{what}");
        differences.extend(difference(site.ask(query), expected.clone(), case.ordered, &what));
        if let Some(shown) = site.ask_gufi(case.gufi) {
            differences.extend(difference(shown, expected, case.ordered, &format!("GUFI, {what}")));
        }
    }
    assert!(differences.is_empty(), "{}", differences.concat());
}

/// Groups of a histogram in GUFI's form.
fn powers(values: impl Iterator<Item = u64>, base: u32, buckets: usize) -> String {
    let (mut below, mut above, mut counts) = (0, 0, vec![0; buckets]);
    for value in values {
        match value.checked_ilog(u64::from(base)) {
            None => below += 1,
            Some(exponent) => match counts.get_mut(exponent as usize) {
                Some(count) => *count += 1,
                None => above += 1,
            },
        }
    }
    let counts = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    let counts: String = counts.map(|(exponent, count)| format!("{exponent}:{count};")).collect();
    format!("{base};{buckets};{below};{above};{counts}")
}

fn bins(values: impl Iterator<Item = u64>, base: u64) -> Answer {
    by(values, |value| value.checked_ilog(base).map_or(-1, i64::from), |_| 1)
}

/// When the tests say that it is.
const NOW_S: i64 = 1_800_000_000;

fn ages<'a>(rows: impl Iterator<Item = &'a Row>, time: fn(&Row) -> i64) -> Answer {
    let year = 365 * 86_400;
    let ends =
        [0, 1, 60, 3600, 86_400, 7 * 86_400, 28 * 86_400, year, 2 * year, 5 * year, 10 * year, 20 * year];
    let end = |row: &&Row| {
        let age = NOW_S - time(row);
        ends.into_iter().find(|end| age < *end).unwrap_or(20 * year + 1)
    };
    let counts = by(rows, end, |_| 1);
    let counts: String = counts.iter().map(|row| format!("{}:{};", row[0], row[1])).collect();
    vec![row![format!("{NOW_S};{counts}")]]
}

fn distinct<'a>(rows: impl Iterator<Item = &'a Row>, id: fn(&Row) -> u32) -> Answer {
    vec![row![rows.map(id).collect::<BTreeSet<u32>>().len()]]
}

fn real(value: f64) -> Answer {
    vec![row![format!("{value:?}")]]
}

fn average(values: Vec<u64>) -> Answer {
    real(values.iter().sum::<u64>() as f64 / values.len() as f64)
}

fn median(mut values: Vec<u64>) -> Answer {
    values.sort_unstable();
    let middle = values.len() / 2;
    real(match values.len() % 2 {
        0 => (values[middle - 1] + values[middle]) as f64 / 2.0,
        _ => values[middle] as f64,
    })
}

/// What the SQL of a statistic in docs/coming-from-gufi.md must give.
fn statistic(tree: &Tree, name: &str) -> Option<Answer> {
    let per_dir = |value: &dyn Fn(&Row) -> String| rows(&tree.dirs, |dir| row![dir.path, value(dir)]);
    let per_leaf = |value: &dyn Fn(&Row) -> String| rows(tree.leaves(), |dir| row![dir.path, value(dir)]);
    let links = || tree.entries.iter().filter(|row| row.kind == 'l');
    let files_in = |dir: &&Row| tree.count(dir, 'f') as u64;
    let links_in = |dir: &&Row| tree.count(dir, 'l') as u64;
    let owner = |row: &&Row| user(row);
    let level = |value: &dyn Fn(&&Row) -> u64| -> Answer {
        let mut sums: BTreeMap<(String, usize), u64> = BTreeMap::new();
        for dir in &tree.dirs {
            *sums.entry((user(dir), dir.level)).or_default() += value(&dir);
        }
        let some = sums.into_iter().filter(|(_, sum)| *sum > 0);
        some.map(|((user, level), sum)| row![user, level, sum]).collect()
    };
    let sizes = || tree.files().map(Row::size);
    let counts = || tree.dirs.iter().map(|dir| tree.count(dir, 'f') as u64);
    let leaf = |value: &dyn Fn(&&Row) -> u64| -> Vec<u64> { tree.leaves().map(|dir| value(&dir)).collect() };
    let time = |name: &str| -> fn(&Row) -> i64 {
        match name.split('-').nth(2) {
            Some("atime") => |row| row.meta.atime(),
            Some("mtime") => |row| row.meta.mtime(),
            _ => |row| row.meta.ctime(),
        }
    };
    let by_owner = |id: fn(&Row) -> u32| rows(tree.files(), |row| row![id(row), row.size(), row.path]);
    Some(match name {
        "depth" => per_dir(&|dir| dir.level.to_string()),
        "filesize" => per_dir(&|dir| tree.totsize(dir).to_string()),
        "filecount" => per_dir(&|dir| tree.count(dir, 'f').to_string()),
        "linkcount" => per_dir(&|dir| tree.count(dir, 'l').to_string()),
        "dircount" => per_dir(&|dir| tree.subdirs(dir).to_string()),
        "leaf-dirs" => rows(tree.leaves(), |dir| row![dir.path]),
        "leaf-depth" => per_leaf(&|dir| dir.level.to_string()),
        "leaf-files" => per_leaf(&|dir| tree.count(dir, 'f').to_string()),
        "leaf-links" => per_leaf(&|dir| tree.count(dir, 'l').to_string()),
        "total-filesize" => by(tree.files(), owner, |row| row.size()),
        "total-filecount" => by(tree.files(), owner, |_| 1),
        "total-linkcount" => by(links(), owner, |_| 1),
        "total-dircount" => by(&tree.dirs, owner, |_| 1),
        "total-leaf-files" => by(tree.leaves(), owner, files_in),
        "total-leaf-links" => by(tree.leaves(), owner, links_in),
        "files-per-level" => level(&files_in),
        "links-per-level" => level(&links_in),
        "dirs-per-level" => level(&|_| 1),
        "extensions" => by(&tree.entries, |row| extension(row), |_| 1),
        "extensions-hist" => {
            let named = |row: &&Row| match extension(row) {
                none if none.is_empty() => "no-ext".to_owned(),
                extension => extension,
            };
            let counts = by(&tree.entries, named, |_| 1);
            let text: String =
                counts.iter().map(|row| format!("{}:{}:{};", row[0].len(), row[0], row[1])).collect();
            vec![row![format!("{};{text}", counts.len())]]
        }
        "filesize-log2-bins" => bins(sizes(), 2),
        "filesize-log1024-bins" => bins(sizes(), 1024),
        "filesize-log2-bins-hist" => vec![row![powers(sizes(), 2, 60)]],
        "filesize-log1024-bins-hist" => vec![row![powers(sizes(), 1024, 6)]],
        "dirfilecount-log2-bins" => bins(counts(), 2),
        "dirfilecount-log1024-bins" => bins(counts(), 1024),
        "dirfilecount-log2-bins-hist" => vec![row![powers(counts(), 2, 60)]],
        "dirfilecount-log1024-bins-hist" => vec![row![powers(counts(), 1024, 6)]],
        "unique-file-uid-count" => distinct(tree.files(), |row| row.meta.uid()),
        "unique-file-gid-count" => distinct(tree.files(), |row| row.meta.gid()),
        "unique-link-uid-count" => distinct(links(), |row| row.meta.uid()),
        "unique-link-gid-count" => distinct(links(), |row| row.meta.gid()),
        "unique-dir-uid-count" => distinct(tree.dirs.iter(), |row| row.meta.uid()),
        "unique-dir-gid-count" => distinct(tree.dirs.iter(), |row| row.meta.gid()),
        "average-leaf-files" => average(leaf(&files_in)),
        "average-leaf-links" => average(leaf(&links_in)),
        "average-leaf-size" => average(leaf(&|dir| tree.totsize(dir))),
        "median-leaf-files" => median(leaf(&files_in)),
        "median-leaf-links" => median(leaf(&links_in)),
        "median-leaf-size" => median(leaf(&|dir| tree.totsize(dir))),
        "duplicate-names" => {
            let all = || tree.dirs.iter().chain(&tree.entries);
            let alike = |a: &Row, b: &Row| (&a.name, a.kind, a.size()) == (&b.name, b.kind, b.size());
            let several = all().filter(|row| all().filter(|other| alike(row, other)).count() > 1);
            rows(several, |row| row![row.name, row.dir])
        }
        "uid-size" => by_owner(|row| row.meta.uid()),
        "gid-size" => by_owner(|row| row.meta.gid()),
        _ if name.starts_with("file-age-") => ages(tree.files(), time(name)),
        _ if name.starts_with("dir-age-") => ages(tree.dirs.iter(), time(name)),
        _ => return None,
    })
}

/// The statements of a table of the document, by what stands before them.
fn documented(section: &str) -> Vec<(String, String)> {
    let document = include_str!("../../../docs/coming-from-gufi.md");
    let start = document.find(&format!("\n## {section}\n")).expect("the document has this section");
    let section = document[start + 1..].split("\n## ").next().unwrap();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix("` |"));
    let unescaped = |text: &str| text.replace("\\|", "|");
    cells
        .filter_map(|line| line.split_once("` | `"))
        .map(|(name, sql)| (name.into(), unescaped(sql)))
        .collect()
}

#[test]
fn every_statistic_of_gufi_stats_is_what_the_document_says() {
    let site = Site::new();
    let statements = documented("gufi_stats");
    assert_eq!(statements.len(), 55, "all statistics that gufi_stats has");
    for (name, query) in statements {
        let expected = statistic(&site.tree, &name).unwrap_or_else(|| panic!("unknown: {name}"));
        let query = query.replace("to_unixtime(now())", &NOW_S.to_string());
        let difference = difference(site.ask(&query), expected, false, &format!("{name}: {query}"));
        assert_eq!(difference, None);
    }
}

#[test]
fn statements_that_name_none_of_gufis_views_are_not_changed() {
    let site = Site::new();
    let ask = |query: &str| {
        let arguments = ["sql", "--format", "csv", query].map(OsStr::new);
        let output = site.place.canopy(&site.index, &arguments);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), String::from_utf8(output.stdout).unwrap(), message)
    };
    let count = |query: &str| ask(query).1.lines().nth(1).unwrap_or_default().to_owned();
    // Patterns and quotes are the engine's own.
    assert_eq!(count("SELECT count(*) FROM entries WHERE name LIKE '%BIG%'"), "1");
    assert_eq!(count("SELECT count(*) FROM pentries WHERE name LIKE '%BIG%'"), "4");
    let (accepted, _, message) = ask("SELECT \"text\" FROM entries");
    assert!(!accepted && message.contains("No field named text"), "{message}");
    // A table of the index is not GUFI's, unless that is asked for.
    assert_eq!(count("SELECT count(*) FROM gufi.entries"), site.tree.entries.len().to_string());
    assert!(ask("SELECT arrow_typeof(mtime) FROM entries LIMIT 1").1.contains("Timestamp"));
    assert!(ask("SELECT arrow_typeof(mtime) FROM gufi.entries LIMIT 1").1.contains("Int64"));
    // Functions serve any table.
    assert_eq!(count("SELECT human_readable_size(max(size)) FROM entries"), "1.0T");
    // Nothing can be changed, and no program can be started.
    for query in [
        "DROP VIEW pentries",
        "INSERT INTO pentries SELECT * FROM pentries",
        "CREATE TABLE intermediate (a INT)",
        "SELECT strop('id') FROM pentries",
        "SELECT intop('id') FROM pentries",
        "SELECT blobop('id') FROM pentries",
        "SELECT path()",
        "SELECT path() FROM directories",
        "SET a = 1",
    ] {
        let (accepted, shown, _) = ask(query);
        assert!(!accepted && shown.is_empty(), "{query}");
    }
}

#[test]
fn a_start_directory_and_the_rest_of_sql_work_over_the_views() {
    let quoted = "it's a \"directory\"";
    let site = Site::with(&[&format!("{quoted}/file")]);
    let tree = &site.tree;
    let below = |directory: &str| {
        let directory = format!("{}/{directory}", tree.root);
        tree.entries.iter().filter(move |row| row.path.starts_with(&format!("{directory}/"))).count()
    };
    let count = |query: &str| site.ask(query)[0][0].clone();
    let start = format!("{}/l1.1", tree.root);
    for view in ["entries", "pentries", "vrpentries", "epentries"] {
        let query = format!("SELECT count(*) FROM {view} WHERE below(path(), '{start}')");
        assert_eq!(count(&query), below("l1.1").to_string(), "{query}");
        let query = format!("SELECT count(*) FROM {view} WHERE path() = '{start}'");
        assert_eq!(count(&query), "2", "{query}");
    }
    for view in ["summary", "vrsummary", "treesummary", "vtsummarydir", "summarylong", "esummary"] {
        assert_eq!(count(&format!("SELECT count(*) FROM {view} WHERE below(path(), '{start}')")), "4");
        assert_eq!(count(&format!("SELECT count(*) FROM {view} WHERE path() = '{start}'")), "1");
        assert_eq!(count(&format!("SELECT count(*) FROM {view} WHERE below(path(), '{start}x')")), "0");
    }
    let start = format!("{}/{}", tree.root, quoted.replace('\'', "''"));
    assert_eq!(
        count(&format!("SELECT path() || '/' || name FROM pentries WHERE below(path(), '{start}')")),
        format!("{}/{quoted}/file", tree.root)
    );
    let start = format!("{}/l1.1", tree.root);
    let names = format!("SELECT xattr_names FROM summary WHERE path() = '{}/sizes'", tree.root);
    assert_eq!(count(&names), "user.ext\u{1f}");
    let totals = format!("SELECT totsize FROM treesummary WHERE path() = '{start}'");
    assert_eq!(count(&totals), "4");
    // By user and by group, what a directory has is as much as all of its users have.
    for (view, all) in [("vsummaryuser", "summary"), ("vtsummarygroup", "treesummary")] {
        let sum = |view: &str| count(&format!("SELECT SUM(totfiles) * 1000000 + SUM(totlinks) FROM {view}"));
        assert_eq!(sum(view), sum(all), "{view}");
    }
    let users = "SELECT COUNT(DISTINCT minuid) FROM vsummaryuser WHERE minuid == maxuid AND uid == minuid";
    assert_eq!(count(users), "3");
    // Views join, hide what paths are made of, and are found under other names.
    let joined = "SELECT s.*, rpath(e.sname, e.sroll, name) FROM vrpentries AS e JOIN (SELECT inode AS i FROM summary) AS s ON e.pinode == s.i";
    assert_eq!(site.ask(joined).len(), tree.entries.len());
    assert_eq!(site.ask(joined)[0].len(), 2);
    let starred = site.ask("SELECT *, path() FROM summary ORDER BY path() LIMIT 1");
    assert_eq!((starred[0].len(), starred[0][66].as_str()), (67, tree.root.as_str()));
    let nested = "SELECT max(p) FROM (SELECT rpath(sname, sroll) AS p FROM vrsummary) AS inner_query";
    assert_eq!(count(nested), format!("{}/sizes", tree.root));
    let correlated = "SELECT count(*) FROM vrsummary WHERE totfiles > 0 AND NOT EXISTS (SELECT 1 FROM pentries WHERE pinode == vrsummary.inode)";
    assert_eq!(count(correlated), "0");
    for (query, answer) in [
        ("SELECT count(*) FROM entries WHERE name REGEXP '^f[12]\\.1'", "3"),
        ("SELECT count(*) FROM entries WHERE name NOT REGEXP '^f' AND type == 'l'", "2"),
        ("SELECT count(*) FROM entries WHERE regexp('^LOUD', name)", "1"),
        ("SELECT TOTAL(size) FROM entries WHERE name == 'nothing'", "0.0"),
        ("SELECT CAST(TOTAL(size) AS INT64) FROM entries WHERE name == 'f1.big'", "4"),
        (
            "SELECT rpad(name, 6) || '|' || rpad(name, 12) || '|' FROM entries WHERE name == 'Makefile'",
            "Makefile|Makefile    |",
        ),
        ("SELECT stdevp(size) FROM entries WHERE name LIKE 'f1.big%'", "2.449489742783178"),
        (
            "SELECT log_hist_combine(h) FROM (SELECT log_hist(size, 2, 8) AS h FROM pentries WHERE type == 'f' AND size < 20 GROUP BY pinode)",
            "2;8;11;0;1:4;2:9;3:1;",
        ),
        ("SELECT mode_count(name) FROM entries WHERE name LIKE '%.xls' OR name LIKE '%.big'", "6:f1.xls:3;"),
        ("SELECT strftime('%s', mtime) == mtime FROM summary WHERE level() == 0", "true"),
        ("SELECT starting_point() == path() FROM summary WHERE level() == 0", "true"),
        (
            "SELECT count(*) FROM summary WHERE pinode() == CAST(pinode AS INTEGER)",
            &tree.dirs.len().to_string(),
        ),
        ("SELECT count(*) FROM xattrs WHERE name == 'user.ext'", "3"),
        ("SELECT xattr_value FROM xsummary WHERE xattr_name == 'user.ext'", "of a directory"),
        ("SELECT count(*) FROM trees", &tree.dirs.len().to_string()),
    ] {
        assert_eq!(count(query), answer, "{query}");
    }
}

/// Whoever asks, wherever the question begins: the views have the rows of the index's own tables, which are what the kernel
/// lets this user see.
#[test]
fn the_views_show_each_user_what_the_own_tables_show() {
    for seed in 0..4 {
        let mut random = common::seeded(seed);
        let place = Place::new();
        let (root, index) = (place.path("tree"), place.path("index"));
        common::random_tree(&root, &mut random, true);
        place.index(&index, &root);
        let starts = common::all_paths(&root).into_iter().filter(|path| path.is_dir());
        let mut starts: Vec<String> = starts.filter_map(|path| Some(path.to_str()?.to_owned())).collect();
        starts.retain(|path| !path.contains(['\n', '\u{1b}', '\u{10FF90}', '\\']));
        for _ in 0..3 {
            let user = common::User::random(&mut random);
            let ask = |query: String| -> BTreeSet<Vec<String>> {
                let arguments = ["--index".as_ref(), index.as_os_str(), "sql".as_ref(), "--format".as_ref()];
                let arguments = [&arguments[..], &["csv", &query].map(OsStr::new)].concat();
                let output = user.run(place.canopy.as_os_str(), &arguments);
                assert!(output.status.success(), "{query}\n{}", String::from_utf8_lossy(&output.stderr));
                csv(&String::from_utf8(output.stdout).unwrap()).split_off(1).into_iter().collect()
            };
            for start in starts.iter().step_by(3) {
                let own = ask(format!(
                    "SELECT path, size FROM entries WHERE starts_with(path, '{start}/') AND type IN ('f', 'l')"
                ));
                for view in ["vrpentries", "vrxpentries"] {
                    let shown = ask(format!(
                        "SELECT rpath(sname, sroll, name), size FROM {view} WHERE below(path(), '{start}') AND \
                         dtotsize >= 0 AND pinode <> '' AND coalesce(ppinode, '') <> '-'"
                    ));
                    assert_eq!(shown, own, "{seed} {user:?} {start} {view}");
                }
                let own = ask(format!(
                    "SELECT path, files, symlinks FROM summaries WHERE starts_with(path, '{start}/') OR path = '{start}'"
                ));
                let shown = ask(format!(
                    "SELECT path(), totfiles, totlinks FROM vrsummary WHERE below(path(), '{start}') AND totsize >= 0"
                ));
                // Behind a gate, where the own table has to be told of something below it, the view finds more.
                assert!(shown.is_superset(&own), "{seed} {user:?} {start}");
                let listed: BTreeSet<String> = shown.iter().map(|row| row[0].clone()).collect();
                let find = ["--index".as_ref(), index.as_os_str(), "find".as_ref(), start.as_ref()];
                let find = [&find[..], &["-type", "d"].map(OsStr::new)].concat();
                let found = user.run(place.canopy.as_os_str(), &find).stdout;
                let found = String::from_utf8_lossy(&found).into_owned();
                for path in listed.iter().filter(|path| starts.contains(path)) {
                    assert!(found.lines().any(|line| line == path), "{seed} {user:?} {start} {path}");
                }
            }
        }
    }
}
