//! The tables of statistics against what find(1) shows the same user on the live tree. Needs root.

use crate::common;
use crate::tables::answers;

use canopy_model::escape;
use common::length::rounds;
use common::{Fixture, User, all_paths, random_tree, random_xattrs, seeded};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The output of find for an entry.
#[derive(Clone, Debug)]
struct Entry {
    /// Escaped.
    path: String,
    kind: String,
    size: i64,
    blocks: i64,
    uid: i64,
    gid: i64,
    nlink: i64,
    inode: (String, String),
    times: [i64; 4],
    xattrs: bool,
}

const FORMAT: &str = "%p\\0%y\\0%s\\0%b\\0%U\\0%G\\0%n\\0%D\\0%i\\0%A@\\0%T@\\0%C@\\0";

fn nanoseconds(text: &str) -> i64 {
    let (seconds, fraction) = text.split_once('.').unwrap();
    let fraction: i64 = fraction[..9].parse().unwrap();
    let whole: i64 = seconds.parse().unwrap();
    whole * 1_000_000_000 + if seconds.starts_with('-') { -fraction } else { fraction }
}

fn entries(user: &User, tree: &Path) -> Vec<Entry> {
    let arguments = [tree.as_os_str(), "-printf".as_ref(), FORMAT.as_ref()];
    let output = user.run("find".as_ref(), &arguments).stdout;
    let fields: Vec<&[u8]> = output.split(|&byte| byte == 0).collect();
    let entry = |fields: &[&[u8]]| {
        let path = Path::new(OsStr::from_bytes(fields[0]));
        // As root, since find does not tell it everywhere.
        let born = path.symlink_metadata().unwrap().created().unwrap();
        let born = born.duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as i64;
        let text = |at: usize| std::str::from_utf8(fields[at]).unwrap();
        let number = |at: usize| text(at).parse::<i64>().unwrap();
        let mut names = vec![0; 4096];
        // As root: whoever may look an entry up may see the names of its attributes, but for those
        // of root.
        let length = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
        let names = names[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty());
        Entry {
            path: escape(fields[0]).into_owned(),
            kind: text(1).to_owned(),
            size: number(2),
            blocks: number(3),
            uid: number(4),
            gid: number(5),
            nlink: number(6),
            inode: (text(7).to_owned(), text(8).to_owned()),
            times: [nanoseconds(text(9)), nanoseconds(text(10)), nanoseconds(text(11)), born],
            xattrs: names.clone().any(|name| !name.starts_with(b"trusted.")),
        }
    };
    fields.chunks_exact(12).map(entry).collect()
}

/// Directories that the user can list, escaped.
fn listable(user: &User, tree: &Path) -> BTreeSet<String> {
    let arguments = ["-type", "d", "-readable", "-executable", "-print0"].map(OsStr::new);
    let output = user.run("find".as_ref(), &[&[tree.as_os_str()], &arguments[..]].concat()).stdout;
    output
        .split(|&b| b == 0)
        .filter(|path| !path.is_empty())
        .map(|path| escape(path).into_owned())
        .collect()
}

fn histogram<K: Ord>(entries: &[&Entry], key: impl Fn(&Entry) -> K) -> BTreeMap<K, (i64, i64)> {
    let mut counts = BTreeMap::new();
    for entry in entries {
        let count: &mut (i64, i64) = counts.entry(key(entry)).or_default();
        count.0 += 1;
        count.1 += entry.size;
    }
    counts
}

fn month(ns: i64) -> String {
    let time = chrono::DateTime::from_timestamp_nanos(ns);
    time.format("%Y-%m-01").to_string()
}

fn extension(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap();
    let at = name.rfind('.').filter(|&at| at > 0 && at + 1 < name.len());
    let extension = at.map_or("", |at| &name[at + 1..]);
    let numbered = !extension.is_empty() && extension.chars().all(|c| c.is_ascii_digit());
    if numbered { "#".to_owned() } else { extension.to_owned() }
}

/// The columns of a row over entries that are not directories. Times in nanoseconds.
fn statistics(entries: &[&Entry]) -> Map<String, Value> {
    let mut row = Map::new();
    let mut set = |name: &str, value: Value| row.insert(name.to_owned(), value);
    let count =
        |pass: &dyn Fn(&Entry) -> bool| json!(entries.iter().filter(|entry| pass(entry)).count());
    set("entries", json!(entries.len()));
    let kinds = [
        ("files", "f"),
        ("symlinks", "l"),
        ("fifos", "p"),
        ("sockets", "s"),
        ("block_devices", "b"),
    ];
    for (name, kind) in kinds {
        set(name, count(&|entry| entry.kind == kind));
    }
    set("char_devices", count(&|entry| entry.kind == "c"));
    set("others", json!(0));
    set("zero_files", count(&|entry| entry.kind == "f" && entry.size == 0));
    set("linked", count(&|entry| entry.nlink > 1));
    set("with_xattrs", count(&|entry| entry.xattrs));
    let mut extrema = |name: &str, value: &dyn Fn(&Entry) -> i64| {
        let values = || entries.iter().map(|entry| value(entry));
        if !entries.is_empty() {
            set(&format!("{name}_min"), json!(values().min()));
            set(&format!("{name}_max"), json!(values().max()));
        }
    };
    extrema("size", &|entry| entry.size);
    extrema("blocks", &|entry| entry.blocks);
    extrema("uid", &|entry| entry.uid);
    extrema("gid", &|entry| entry.gid);
    for (at, name) in ["atime", "mtime", "ctime", "btime"].into_iter().enumerate() {
        extrema(name, &|entry| entry.times[at]);
    }
    set("size", json!(entries.iter().map(|entry| entry.size).sum::<i64>()));
    set("blocks", json!(entries.iter().map(|entry| entry.blocks).sum::<i64>()));
    set("owners", json!(entries.iter().map(|entry| entry.uid).collect::<BTreeSet<_>>().len()));
    set("groups", json!(entries.iter().map(|entry| entry.gid).collect::<BTreeSet<_>>().len()));
    let low = |entry: &Entry| {
        if entry.size == 0 { 0 } else { (entry.size as u64 + 1).next_power_of_two() as i64 / 2 }
    };
    let list = |key: &str, counts: Vec<(Value, (i64, i64))>| {
        let item = |(value, count): (Value, (i64, i64))| json!({key: value, "count": count.0, "size": count.1});
        Value::Array(counts.into_iter().map(item).collect())
    };
    let sizes =
        histogram(entries, low).into_iter().map(|(low, count)| (json!(low), count)).collect();
    set("size_hist", list("low", sizes));
    for (at, name) in [(0, "atime_hist"), (1, "mtime_hist")] {
        let months = histogram(entries, |entry| month(entry.times[at]));
        set(
            name,
            list("month", months.into_iter().map(|(month, count)| (json!(month), count)).collect()),
        );
    }
    let mut extensions: Vec<_> =
        histogram(entries, |entry| extension(&entry.path)).into_iter().collect();
    extensions.sort_by(|a, b| b.1.0.cmp(&a.1.0).then(a.0.cmp(&b.0)));
    let extensions =
        extensions.into_iter().map(|(extension, count)| (json!(extension), count)).collect();
    set("extensions", list("extension", extensions));
    row
}

fn is_below(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

fn depth(path: &str, tree: &str) -> usize {
    path[tree.len()..].matches('/').count()
}

/// Rows of a table by path and key, times as nanoseconds.
fn shown(place: &Fixture, index: &Path, user: &User, sql: &str) -> Rows {
    rows(&answers(place, index, user, &[sql.to_owned()])[0], sql)
}

fn rows(answer: &[u8], sql: &str) -> Rows {
    let mut rows = BTreeMap::new();
    for line in std::str::from_utf8(answer).unwrap().lines() {
        let mut row: Map<String, Value> = serde_json::from_str(line).unwrap();
        for (name, value) in &mut row {
            if name.contains("time_m") {
                let time = chrono::DateTime::parse_from_rfc3339(value.as_str().unwrap()).unwrap();
                *value = json!(time.timestamp_nanos_opt().unwrap());
            }
        }
        let path = row.remove("path").unwrap().as_str().unwrap().to_owned();
        assert!(row.remove("source").is_some());
        let key = row.remove("uid").or(row.remove("gid")).map_or(0, |key| key.as_i64().unwrap());
        assert!(rows.insert((path.clone(), key), row).is_none(), "{sql}: {path} twice");
    }
    rows
}

type Rows = BTreeMap<(String, i64), Map<String, Value>>;

/// The expected rows of the six tables.
fn expected(
    entries: &[Entry],
    listable: &BTreeSet<String>,
    tree: &str,
) -> BTreeMap<&'static str, Rows> {
    let mut tables: BTreeMap<&'static str, Rows> = BTreeMap::new();
    for directory in entries.iter().filter(|entry| entry.kind == "d") {
        let below = || entries.iter().filter(|entry| is_below(&entry.path, &directory.path));
        let files: Vec<&Entry> = below().filter(|entry| entry.kind != "d").collect();
        let own = |entry: &&Entry| depth(&entry.path, &directory.path) == 1;
        let in_it: Vec<&Entry> = files.iter().copied().filter(own).collect();
        let mut add = |table, key: i64, more: &[(&str, Value)], entries: &[&Entry]| {
            let mut row = statistics(entries);
            row.insert("depth".to_owned(), json!(depth(&directory.path, tree)));
            row.extend(more.iter().map(|(name, value)| (name.to_string(), value.clone())));
            tables.entry(table).or_default().insert((directory.path.clone(), key), row);
        };
        if listable.contains(&directory.path) {
            let subdirs = below().filter(|entry| entry.kind == "d").filter(own).count();
            add("summaries", 0, &[("subdirs", json!(subdirs))], &in_it);
        }
        let dirs: Vec<&Entry> =
            below().filter(|entry| entry.kind == "d").chain([directory]).collect();
        let mut seen = BTreeSet::new();
        let once: Vec<&&Entry> =
            files.iter().filter(|entry| entry.nlink == 1 || seen.insert(&entry.inode)).collect();
        let blocks =
            once.iter().map(|entry| entry.blocks).chain(dirs.iter().map(|entry| entry.blocks));
        let totals = [
            ("entries", json!(once.len())),
            ("subdirs", json!(dirs.len() - 1)),
            ("size", json!(once.iter().map(|entry| entry.size).sum::<i64>())),
            ("dir_size", json!(dirs.iter().map(|entry| entry.size).sum::<i64>())),
            ("blocks", json!(blocks.sum::<i64>())),
        ];
        add("trees", 0, &totals, &files);
        let by: [(&str, &str, fn(&Entry) -> i64); 2] = [
            ("summaries_by_user", "trees_by_user", |entry| entry.uid),
            ("summaries_by_group", "trees_by_group", |entry| entry.gid),
        ];
        for (single, whole, id) in by {
            for (table, entries) in [(single, &in_it), (whole, &files)] {
                for key in entries.iter().map(|entry| id(entry)).collect::<BTreeSet<_>>() {
                    let of: Vec<&Entry> =
                        entries.iter().copied().filter(|entry| id(entry) == key).collect();
                    add(table, key, &[], &of);
                }
            }
        }
    }
    tables
}

const TABLES: [&str; 6] = [
    "summaries",
    "summaries_by_user",
    "summaries_by_group",
    "trees",
    "trees_by_user",
    "trees_by_group",
];

fn assert_equal(shown: &Rows, expected: &Rows, what: &str) {
    let (one, other): (Vec<_>, Vec<_>) = (shown.keys().collect(), expected.keys().collect());
    assert_eq!(one, other, "{what}");
    for (key, row) in shown {
        for (name, value) in &expected[key] {
            assert_eq!(row.get(name), Some(value), "{what}: {name} of {key:?}");
        }
        // JSON leaves null out.
        assert_eq!(row.len(), expected[key].len(), "{what}: {key:?} {row:?}");
    }
}

#[test]
fn statistics_are_those_of_a_live_walk() {
    let place = Fixture::new();
    for seed in 5000..5000 + rounds(10, 30) {
        let mut random = seeded(seed);
        let (tree, index) =
            (place.path(&format!("tree{seed}")), place.path(&format!("index{seed}")));
        random_tree(&tree, &mut random, true);
        for (at, path) in all_paths(&tree).iter().enumerate().filter(|(at, _)| at % 4 == 1) {
            let name = ["x.tar.gz", "y.TXT", ".profile", "log.0042"][at / 4 % 4];
            let named = path.with_file_name(format!("{at}{name}"));
            std::fs::rename(path, named).unwrap_or_default();
        }
        random_xattrs(&all_paths(&tree), &mut random);
        place.index(&index, &tree);
        let root = escape(tree.as_os_str().as_bytes()).into_owned();
        for number in 0..4 {
            let user = User::random(&mut random);
            let entries = entries(&user, &tree);
            let tables = expected(&entries, &listable(&user, &tree), &root);
            let expected = |table: &str| tables.get(table).cloned().unwrap_or_default();
            let mut asked: Vec<(String, Rows)> =
                TABLES.map(|table| (format!("SELECT * FROM {table}"), expected(table))).to_vec();
            // One directory is answered from blocks of statistics.
            for directory in entries.iter().filter(|entry| entry.kind == "d").take(4) {
                let path = directory.path.replace('\'', "''");
                for table in TABLES {
                    let sql = format!("SELECT * FROM {table} WHERE path = '{path}'");
                    let mut expected = expected(table);
                    expected.retain(|(path, _), _| *path == directory.path);
                    asked.push((sql, expected));
                }
            }
            // One user in four asks each question in a process of its own.
            let (queries, all): (Vec<String>, Vec<Rows>) = asked.into_iter().unzip();
            let answers: Vec<Vec<u8>> = match number {
                0 => queries
                    .chunks(1)
                    .flat_map(|query| answers(&place, &index, &user, query))
                    .collect(),
                _ => answers(&place, &index, &user, &queries),
            };
            for ((query, expected), answer) in queries.iter().zip(&all).zip(&answers) {
                let what = format!("seed {seed}, {user:?}, {query}");
                assert_equal(&rows(answer, query), expected, &what);
            }
        }
    }
}

#[test]
fn blocks_and_parts_add_up_to_what_find_shows() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    // More than a block in one directory, more than a listing's part in another, and blocks that
    // end within directories.
    let file = |path: String| drop(std::fs::File::create(tree.join(path)).unwrap());
    for (directory, files) in [("one", 20_000), ("huge", 70_000)] {
        std::fs::create_dir_all(tree.join(directory)).unwrap();
        (0..files).for_each(|at| file(format!("{directory}/f{at}.e{}", at % 7)));
    }
    for at in 0..3000 {
        let directory = format!("many/d{}/e{at}", at % 13);
        std::fs::create_dir_all(tree.join(&directory)).unwrap();
        (0..at % 17)
            .for_each(|number| file(format!("{directory}/f{number}.x{}", at * 20 + number)));
    }
    place.index(&index, &tree);
    let user = User { uid: 2001, gid: 3001, groups: Vec::new() };
    let all = entries(&user, &tree);
    let root = tree.to_str().unwrap();
    let whole = shown(&place, &index, &user, "SELECT * FROM trees");
    let some = ["", "/one", "/huge", "/many", "/many/d3", "/many/d7/e7", "/many/d12/e2222"];
    for directory in some.map(|below| format!("{root}{below}")) {
        let within = |entry: &&Entry| entry.path == directory || is_below(&entry.path, &directory);
        let within: Vec<Entry> = all.iter().filter(within).cloned().collect();
        let directories = within.iter().filter(|entry| entry.kind == "d").count();
        let files: Vec<&Entry> = within.iter().filter(|entry| entry.kind != "d").collect();
        let mut expected = statistics(&files);
        expected.insert("subdirs".to_owned(), json!(directories - 1));
        let dirs = within.iter().filter(|entry| entry.kind == "d");
        expected.insert("dir_size".to_owned(), json!(dirs.map(|entry| entry.size).sum::<i64>()));
        expected.insert(
            "blocks".to_owned(),
            json!(within.iter().map(|entry| entry.blocks).sum::<i64>()),
        );
        expected.insert("depth".to_owned(), json!(depth(&directory, root)));
        let key = (directory.clone(), 0);
        let expected = Rows::from([(key.clone(), expected)]);
        let sql = format!("SELECT * FROM trees WHERE path = '{directory}'");
        assert_equal(&shown(&place, &index, &user, &sql), &expected, &sql);
        assert_equal(&Rows::from([(key.clone(), whole[&key].clone())]), &expected, "all trees");
    }
    let huge = shown(
        &place,
        &index,
        &user,
        &format!("SELECT * FROM summaries WHERE path = '{root}/huge'"),
    );
    assert_eq!(huge[&(format!("{root}/huge"), 0)]["files"], json!(70_000));
}
