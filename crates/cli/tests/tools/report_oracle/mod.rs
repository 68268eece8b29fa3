//! The expected contents of a report, computed from find(1) and du(1) run as a user.

use crate::common::User;
use canopy_model::{compare_paths, escape};
use chrono::{DateTime, Datelike};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// An entry as find shows it; texts are escaped.
#[derive(Clone, Debug)]
struct Seen {
    path: String,
    directory: String,
    name: String,
    kind: char,
    size: i64,
    blocks: i64,
    uid: u32,
    gid: u32,
    nlink: i64,
    inode: (u64, u64),
    mode: u32,
    mtime: i64,
    atime: i64,
    depth: i64,
    leads_to: char,
    xattrs: bool,
}

/// A tree as a user sees it.
pub struct Walk {
    all: Vec<Seen>,
    /// Directories that the user may list.
    listable: BTreeSet<String>,
    /// The figures of du: space, sizes, inodes.
    du: [i64; 3],
}

impl Walk {
    pub fn of(user: &User, tree: &Path) -> Self {
        let format = "%p\\0%h\\0%f\\0%y\\0%s\\0%b\\0%U\\0%G\\0%n\\0%i\\0%D\\0%m\\0%T@\\0%A@\\0%d\\0%l\\0%Y\\0";
        let find = |arguments: &[&str]| {
            let mut all = vec![tree.as_os_str()];
            all.extend(arguments.iter().map(OsStr::new));
            user.run("find".as_ref(), &all).stdout
        };
        let output = find(&["-printf", format]);
        let mut fields: Vec<&[u8]> = output.split(|&byte| byte == 0).collect();
        fields.pop();
        let all = fields.chunks(17).map(seen).collect();
        let output = find(&["-type", "d", "-readable", "-executable", "-print0"]);
        let paths = output.split(|&byte| byte == 0).filter(|path| !path.is_empty());
        let listable = paths.map(|path| escape(path).into_owned()).collect();
        let du = |options: &[&str]| -> i64 {
            let mut arguments: Vec<&OsStr> = options.iter().map(OsStr::new).collect();
            arguments.extend([OsStr::new("-s"), tree.as_os_str()]);
            let output =
                String::from_utf8_lossy(&user.run("du".as_ref(), &arguments).stdout).into_owned();
            output.split('\t').next().unwrap().parse().unwrap()
        };
        let du = [du(&["-B1"]), du(&["-B1", "--apparent-size"]), du(&["--inodes"])];
        Walk { all, listable, du }
    }

    /// The whole report, of an owner's entries if there is an owner.
    pub fn expected(&self, report: &Value, owner: Option<u32>) -> Value {
        let scanned = report["paths"][0]["scanned_ns"].as_i64().unwrap();
        let all: Vec<&Seen> =
            self.all.iter().filter(|e| owner.is_none_or(|uid| uid == e.uid)).collect();
        let entries: Vec<&Seen> = all.iter().copied().filter(|e| e.kind != 'd').collect();
        let files: Vec<&Seen> = all.iter().copied().filter(|e| e.kind == 'f').collect();
        let dirs: Vec<&Seen> = all.iter().copied().filter(|e| e.kind == 'd').collect();
        let kept = |files: &[&Seen], keep: &dyn Fn(&Seen) -> bool| -> Vec<Seen> {
            files.iter().filter(|e| keep(e)).map(|e| (*e).clone()).collect()
        };
        let flagged = |list: Vec<Seen>| json!({"count": list.len(), "first": items(list, |_| 0)});
        let both: Vec<&Seen> = entries.iter().chain(&dirs).copied().collect();
        let sparse = kept(&files, &|e| e.blocks * 512 < e.size);
        let saved: i64 = sparse.iter().map(|e| e.size - e.blocks * 512).sum();
        let nobody = kept(&entries, &|e| user_name(e.uid).is_none());
        let no_group = kept(&entries, &|e| group_name(e.gid).is_none());
        let [nobody, no_group] = [&nobody, &no_group].map(|all| all.iter().collect::<Vec<_>>());
        let trees = self.trees(owner);
        let future = kept(&files, &|e| e.mtime > scanned);
        json!({
            "totals": self.totals(&all, owner),
            "users": usage(&entries, |e| e.uid, user_name),
            "groups": usage(&entries, |e| e.gid, group_name),
            "user_ages": user_ages(&entries, scanned),
            "user_groups": user_groups(&entries),
            "types": types(&all),
            "extensions": extensions(&entries),
            "sizes": sizes(&entries),
            "ages": {
                "modified": ages(&entries, scanned, |e| e.mtime),
                "accessed": ages(&entries, scanned, |e| e.atime),
            },
            "largest": items(kept(&files, &|_| true), |e| -e.size),
            "newest": items(kept(&files, &|_| true), |e| -e.mtime),
            "oldest": items(kept(&files, &|_| true), |e| e.mtime),
            "used": items(kept(&files, &|_| true), |e| -e.atime),
            "unused": items(kept(&files, &|_| true), |e| e.atime),
            "trees": trees.iter().map(Tree::json).collect::<Vec<_>>(),
            "outliers": outliers(&trees),
            "directories": self.directories(owner),
            "deepest": self.deepest(owner),
            "empty": self.empty(owner),
            "duplicates": duplicates(&files),
            "links": links(&entries),
            "sparse": {
                "count": sparse.len(), "saved_bytes": saved,
                "largest": items(sparse, |e| e.blocks * 512 - e.size),
            },
            "permissions": {
                "world_writable_files": flagged(kept(&files, &|e| e.mode & 0o2 != 0)),
                "world_writable_directories": flagged(kept(&self.below(&dirs), &|e| e.mode & 0o1002 == 0o2)),
                "world_writable_sticky": kept(&self.below(&dirs), &|e| e.mode & 0o1002 == 0o1002).len(),
                "setuid": flagged(kept(&files, &|e| e.mode & 0o4000 != 0)),
                "setgid": flagged(kept(&files, &|e| e.mode & 0o2000 != 0)),
            },
            "owners": {
                "without_user": sum(nobody.iter().copied()),
                "without_group": sum(no_group.iter().copied()),
                "users": usage(&nobody, |e| e.uid, |_| None),
                "groups": usage(&no_group, |e| e.gid, |_| None),
            },
            "names": {
                "control": flagged(kept(&self.below(&both), &|e| e.name.chars().any(char::is_control))),
                "not_utf8": flagged(kept(&self.below(&both), &|e| {
                    std::str::from_utf8(&canopy_model::unescape(&e.name)).is_err()
                })),
                "direction": flagged(kept(&self.below(&both), &|e| e.name.contains('\u{202e}'))),
            },
            "future": {"count": future.len(), "first": items(future, |e| -e.mtime)},
        })
    }

    /// The usage of owners, beside limits `(kind, id, bytes, inodes)`.
    pub fn quotas(&self, limits: &[(&str, u32, i64, i64)], owner: Option<u32>) -> Value {
        let of = |limit: &&(&str, u32, i64, i64)| {
            owner.is_none_or(|uid| limit.0 == "user" && limit.1 == uid)
        };
        let mut rows: Vec<(f64, Value)> = Vec::new();
        for &(kind, id, bytes, inodes) in limits.iter().filter(of) {
            let own = |e: &&Seen| id == if kind == "user" { e.uid } else { e.gid };
            let [taken, _, blocks] = once(&self.all.iter().filter(own).collect::<Vec<_>>());
            let name = if kind == "user" { user_name(id) } else { group_name(id) };
            let share = (blocks as f64 * 512.0 / bytes as f64).max(taken as f64 / inodes as f64);
            let row = json!({
                "kind": kind, "id": id, "name": name,
                "disk_bytes": blocks * 512, "inodes": taken,
                "limit_bytes": bytes, "limit_inodes": inodes,
                "left_bytes": bytes - blocks * 512, "left_inodes": inodes - taken,
            });
            rows.push((share, row));
        }
        rows.sort_by(|a, b| b.0.total_cmp(&a.0));
        let over = rows.iter().filter(|row| row.0 > 1.0).count();
        let rows: Vec<Value> = rows.into_iter().map(|row| row.1).collect();
        json!({"quotas": {"limited": rows.len(), "over": over, "rows": rows}})
    }

    /// Those below the start, which a report of permissions and names does not look at.
    fn below<'a>(&self, all: &[&'a Seen]) -> Vec<&'a Seen> {
        all.iter().copied().filter(|e| e.depth > 0).collect()
    }

    fn totals(&self, all: &[&Seen], owner: Option<u32>) -> Value {
        let count = |keep: &dyn Fn(&Seen) -> bool| all.iter().filter(|e| keep(e)).count();
        let [inodes, bytes, blocks] = once(all);
        if owner.is_none() {
            assert_eq!([blocks * 512, bytes, inodes], self.du, "this oracle and du");
        }
        json!({
            "entries": all.len(),
            "directories": count(&|e| e.kind == 'd'),
            "files": count(&|e| e.kind == 'f'),
            "symlinks": count(&|e| e.kind == 'l'),
            "others": count(&|e| !"dfl".contains(e.kind)),
            "zero_byte_files": count(&|e| e.kind == 'f' && e.size == 0),
            "with_xattrs": count(&|e| e.kind != 'd' && e.xattrs),
            "inodes": inodes, "bytes": bytes, "disk_bytes": blocks * 512,
        })
    }

    fn trees(&self, owner: Option<u32>) -> Vec<Tree> {
        let mine = |e: &&Seen| owner.is_none_or(|uid| uid == e.uid);
        let dirs = self.all.iter().filter(|e| self.listable.contains(&e.path) && e.kind == 'd');
        let mut trees = Vec::new();
        for dir in dirs {
            let shown = owner.is_none_or(|uid| {
                dir.uid == uid
                    || self
                        .all
                        .iter()
                        .any(|e| e.depth > 0 && e.directory == dir.path && e.uid == uid)
            });
            let prefix = format!("{}/", dir.path);
            let below =
                self.all.iter().filter(|e| e.path == dir.path || e.path.starts_with(&prefix));
            let sums = once(&below.filter(mine).collect::<Vec<_>>());
            if shown {
                let around = if dir.depth > 0 { dir.directory.clone() } else { String::new() };
                trees.push(Tree { path: dir.path.clone(), around, sums });
            }
        }
        trees.sort_by(|a, b| {
            b.sums[2].cmp(&a.sums[2]).then_with(|| compare_paths(&a.path, &b.path))
        });
        trees
    }

    /// The entries of an owner, or all, in each directory that can be listed: their number, and
    /// bytes of those that are not directories.
    fn held(&self, owner: Option<u32>) -> Vec<(String, i64, i64)> {
        let held = self.listable.iter().map(|path| {
            let here = self.all.iter().filter(|e| e.depth > 0 && e.directory == *path);
            let here: Vec<&Seen> = here.filter(|e| owner.is_none_or(|uid| uid == e.uid)).collect();
            let bytes = here.iter().filter(|e| e.kind != 'd').map(|e| e.size).sum();
            (path.clone(), here.len() as i64, bytes)
        });
        held.filter(|(_, entries, _)| owner.is_none() || *entries > 0).collect()
    }

    fn directories(&self, owner: Option<u32>) -> Value {
        let mut held = self.held(owner);
        let (mean, stdev) = mean_and_deviation(&held.iter().map(|row| row.1).collect::<Vec<_>>());
        held.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| compare_paths(&a.0, &b.0)));
        let entries: Vec<_> =
            held.iter().map(|(path, n, _)| json!({"path": path, "entries": n})).collect();
        held.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| compare_paths(&a.0, &b.0)));
        let bytes: Vec<_> =
            held.iter().map(|(path, _, bytes)| json!({"path": path, "bytes": bytes})).collect();
        json!({
            "listed": held.len(), "mean_entries": mean, "stdev_entries": stdev,
            "most_entries": entries, "most_bytes": bytes,
        })
    }

    fn own_dirs(&self, owner: Option<u32>) -> Vec<&Seen> {
        let mine = |e: &&Seen| e.kind == 'd' && owner.is_none_or(|uid| uid == e.uid);
        self.all.iter().filter(mine).filter(|e| self.listable.contains(&e.path)).collect()
    }

    fn deepest(&self, owner: Option<u32>) -> Value {
        let mut dirs = self.own_dirs(owner);
        dirs.sort_by(|a, b| b.depth.cmp(&a.depth).then_with(|| compare_paths(&a.path, &b.path)));
        dirs.iter().map(|e| json!({"path": e.path, "depth": e.depth})).collect()
    }

    fn empty(&self, owner: Option<u32>) -> Value {
        let is_empty =
            |dir: &Seen| !self.all.iter().any(|e| e.depth > 0 && e.directory == dir.path);
        let mut paths: Vec<String> = self
            .own_dirs(owner)
            .into_iter()
            .filter(|dir| is_empty(dir))
            .map(|dir| dir.path.clone())
            .collect();
        paths.sort_by(|a, b| compare_paths(a, b));
        json!({"count": paths.len(), "first": paths})
    }

    /// No link is called broken or looping that is not; root, who sees everything, misses none but
    /// those that lead out.
    pub fn check_symlinks(&self, report: &Value, root: bool, what: &str) {
        let answer = &report["symlinks"];
        let links: Vec<&Seen> = self.all.iter().filter(|e| e.kind == 'l').collect();
        assert_eq!(answer["symlinks"], links.len(), "{what}");
        let mut known = 0;
        for (key, letter) in [("broken", 'N'), ("loops", 'L')] {
            let shown: BTreeSet<&str> = answer[key]["first"]
                .as_array()
                .unwrap()
                .iter()
                .map(|row| row["path"].as_str().unwrap())
                .collect();
            assert_eq!(answer[key]["count"], shown.len(), "{what}");
            let is = |e: &&&Seen| e.leads_to == letter;
            let really: BTreeSet<&str> = links.iter().filter(is).map(|e| e.path.as_str()).collect();
            let inside: BTreeSet<&str> = links
                .iter()
                .filter(is)
                .filter(|e| !e.name.starts_with("out"))
                .map(|e| e.path.as_str())
                .collect();
            assert!(shown.is_subset(&really), "{what} {key}: {:?}", &shown - &really);
            if root {
                assert_eq!(shown, inside, "{what} {key}");
            }
            known += shown.len();
        }
        let unknown = answer["unknown"].as_u64().unwrap() as usize;
        assert!(known + unknown <= links.len(), "{what}");
        if root {
            assert_eq!(
                unknown,
                links.iter().filter(|e| e.name.starts_with("out")).count(),
                "{what}"
            );
        }
    }
}

fn seen(fields: &[&[u8]]) -> Seen {
    let text = |at: usize| std::str::from_utf8(fields[at]).unwrap();
    let number = |at: usize| -> i64 { text(at).parse().unwrap() };
    let time = |at: usize| -> i64 {
        let (seconds, fraction) = text(at).split_once('.').unwrap();
        seconds.parse::<i64>().unwrap() * 1_000_000_000 + fraction[..9].parse::<i64>().unwrap()
    };
    let path = PathBuf::from(OsString::from_vec(fields[0].to_vec()));
    let xattrs = rustix::fs::llistxattr(&path, &mut [0_u8; 4096][..]).unwrap_or(0) > 0;
    Seen {
        path: escape(fields[0]).into_owned(),
        directory: escape(fields[1]).into_owned(),
        name: escape(fields[2]).into_owned(),
        kind: text(3).chars().next().unwrap(),
        size: number(4),
        blocks: number(5),
        uid: number(6) as u32,
        gid: number(7) as u32,
        nlink: number(8),
        inode: (number(10) as u64, number(9) as u64),
        mode: u32::from_str_radix(text(11), 8).unwrap(),
        mtime: time(12),
        atime: time(13),
        depth: number(14),
        leads_to: text(16).chars().next().unwrap(),
        xattrs,
    }
}

/// Inodes, bytes and blocks, each inode once.
fn once(all: &[&Seen]) -> [i64; 3] {
    let mut inodes = BTreeSet::new();
    let mut sums = [0; 3];
    for e in all.iter().filter(|e| e.kind == 'd' || e.nlink < 2 || inodes.insert(e.inode)) {
        sums = [sums[0] + 1, sums[1] + e.size, sums[2] + e.blocks];
    }
    sums
}

fn user_name(id: u32) -> Option<String> {
    nix::unistd::User::from_uid(id.into()).unwrap().map(|user| user.name)
}

fn group_name(id: u32) -> Option<String> {
    nix::unistd::Group::from_gid(id.into()).unwrap().map(|group| group.name)
}

fn sum<'a>(entries: impl Iterator<Item = &'a Seen>) -> Value {
    let sums = entries.fold((0, 0, 0), |sum, e| (sum.0 + 1, sum.1 + e.size, sum.2 + e.blocks));
    json!({"entries": sums.0, "bytes": sums.1, "disk_bytes": sums.2 * 512})
}

fn nothing() -> Value {
    sum(std::iter::empty())
}

fn usage(entries: &[&Seen], id: fn(&Seen) -> u32, name: fn(u32) -> Option<String>) -> Value {
    let ids: BTreeSet<u32> = entries.iter().map(|e| id(e)).collect();
    let row = |of: &u32| {
        let mut row = sum(entries.iter().copied().filter(|e| id(e) == *of));
        row["id"] = (*of).into();
        row["name"] = name(*of).into();
        row
    };
    let mut rows: Vec<Value> = ids.iter().map(row).collect();
    let number = |row: &Value, key: &str| row[key].as_i64().unwrap();
    rows.sort_by_key(|row| {
        (Reverse(number(row, "disk_bytes")), Reverse(number(row, "entries")), number(row, "id"))
    });
    json!({"rows": rows, "others": 0, "rest": nothing()})
}

/// The users of [`usage`], each with more of its entries.
fn of_each_user(entries: &[&Seen], rest: Value, more: impl Fn(&[&Seen], &mut Value)) -> Value {
    let mut users = usage(entries, |e| e.uid, user_name);
    for row in users["rows"].as_array_mut().unwrap() {
        let own: Vec<&Seen> = entries.iter().copied().filter(|e| row["id"] == e.uid).collect();
        more(&own, row);
    }
    users["rest"] = rest;
    users
}

fn user_ages(entries: &[&Seen], scanned: i64) -> Value {
    let add = |of: &[&Seen], row: &mut Value| {
        row["modified"] = ages(of, scanned, |e| e.mtime);
        row["accessed"] = ages(of, scanned, |e| e.atime);
    };
    let mut rest = nothing();
    add(&[], &mut rest);
    of_each_user(entries, rest, add)
}

fn user_groups(entries: &[&Seen]) -> Value {
    of_each_user(entries, nothing(), |of, row| row["groups"] = usage(of, |e| e.gid, group_name))
}

fn types(all: &[&Seen]) -> Value {
    let types = [('d', "directory"), ('f', "file"), ('l', "symlink"), ('p', "fifo")];
    let rows =
        types.iter().map(|(kind, name)| (all.iter().filter(|e| e.kind == *kind).count(), name));
    rows.filter(|(count, _)| *count > 0)
        .map(|(count, name)| json!({"type": name, "entries": count}))
        .collect()
}

fn extensions(entries: &[&Seen]) -> Value {
    let mut counts: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    for e in entries {
        let extension = match e.name.rfind('.') {
            Some(dot) if dot > 0 && dot + 1 < e.name.len() => &e.name[dot + 1..],
            _ => "",
        };
        let numbered = !extension.is_empty() && extension.chars().all(|c| c.is_ascii_digit());
        let extension = if numbered { "#" } else { extension };
        let count = counts.entry(extension).or_default();
        *count = (count.0 + 1, count.1 + e.size);
    }
    let mut rows: Vec<_> = counts.into_iter().collect();
    rows.sort_by_key(|(extension, (entries, bytes))| {
        (Reverse(*bytes), Reverse(*entries), *extension)
    });
    let row = |(extension, (entries, bytes))| json!({"extension": extension, "entries": entries, "bytes": bytes});
    json!({"rows": rows.into_iter().map(row).collect::<Vec<_>>(), "others": 0, "rest": nothing()})
}

fn mean_and_deviation(values: &[i64]) -> (f64, f64) {
    if values.is_empty() {
        return (0.0, 0.0);
    }
    let n = values.len() as f64;
    let mean = values.iter().map(|&value| value as f64).sum::<f64>() / n;
    let variance = values.iter().map(|&value| (value as f64 - mean).powi(2)).sum::<f64>() / n;
    (mean, variance.sqrt())
}

fn sizes(entries: &[&Seen]) -> Value {
    let mut sizes: Vec<i64> = entries.iter().map(|e| e.size).collect();
    sizes.sort_unstable();
    let (mean, stdev) = mean_and_deviation(&sizes);
    let n = sizes.len();
    let median = if n == 0 { 0.0 } else { (sizes[(n - 1) / 2] + sizes[n / 2]) as f64 / 2.0 };
    // 0, 1, 2-3, 4-7, ...
    let class = |size: i64| if size == 0 { 0 } else { size.ilog2() + 1 };
    let from = |class: u32| if class == 0 { 0 } else { 1_i64 << (class - 1) };
    let classes: Vec<Value> = match (sizes.first(), sizes.last()) {
        (Some(&first), Some(&last)) => (class(first)..=class(last))
            .map(|at| {
                let here: Vec<i64> =
                    sizes.iter().copied().filter(|&size| class(size) == at).collect();
                json!({
                    "from_bytes": from(at), "to_bytes": from(at + 1),
                    "entries": here.len(), "bytes": here.iter().sum::<i64>(),
                })
            })
            .collect(),
        _ => Vec::new(),
    };
    json!({
        "entries": n, "mean_bytes": mean, "median_bytes": median, "stdev_bytes": stdev,
        "max_bytes": sizes.last().copied().unwrap_or(0), "classes": classes,
    })
}

fn ages(entries: &[&Seen], scanned: i64, time: fn(&Seen) -> i64) -> Value {
    let spans = [
        ("in the future", -1, Some(-1)),
        ("this month", 0, Some(0)),
        ("1 month", 1, Some(1)),
        ("2 months", 2, Some(2)),
        ("3-5 months", 3, Some(5)),
        ("6-11 months", 6, Some(11)),
        ("1 year", 12, Some(23)),
        ("2 years", 24, Some(35)),
        ("3-4 years", 36, Some(59)),
        ("5-9 years", 60, Some(119)),
        ("10 years and more", 120, None),
    ];
    let month = |ns: i64| {
        let date = DateTime::from_timestamp_nanos(ns);
        date.year() * 12 + date.month() as i32
    };
    let age = |e: &Seen| month(scanned) - month(time(e));
    let row = |&(label, from, to): &(&str, i32, Option<i32>)| {
        let within = |age: i32| (age >= from || from < 0) && to.is_none_or(|to| age <= to);
        let here: Vec<&&Seen> = entries.iter().filter(|e| within(age(e))).collect();
        let bytes: i64 = here.iter().map(|e| e.size).sum();
        json!({"label": label, "from_months": from, "to_months": to, "entries": here.len(), "bytes": bytes})
    };
    let rows: Vec<Value> = spans.iter().map(row).collect();
    let occurs = |row: &Value| row["entries"] != 0;
    let first = rows.iter().position(occurs).unwrap_or(0);
    let end = rows.iter().rposition(occurs).map_or(0, |last| last + 1);
    rows[first..end.max(first)].to_vec().into()
}

/// Ties: by directory in path order, then by name.
fn by_path(a: &Seen, b: &Seen) -> std::cmp::Ordering {
    compare_paths(&a.directory, &b.directory).then_with(|| a.name.cmp(&b.name))
}

fn items(mut list: Vec<Seen>, key: fn(&Seen) -> i64) -> Value {
    list.sort_by(|a, b| key(a).cmp(&key(b)).then_with(|| by_path(a, b)));
    let types = |kind: char| match kind {
        'd' => 0o040_000,
        'f' => 0o100_000,
        'l' => 0o120_000,
        'p' => 0o010_000,
        _ => 0,
    };
    let item = |e: &Seen| {
        json!({
            "path": e.path, "uid": e.uid, "user": user_name(e.uid), "mode": types(e.kind) | e.mode,
            "bytes": e.size, "disk_bytes": e.blocks * 512, "mtime_ns": e.mtime, "atime_ns": e.atime,
        })
    };
    list.iter().map(item).collect()
}

struct Tree {
    path: String,
    /// The directory that holds it; empty for the start.
    around: String,
    sums: [i64; 3],
}

impl Tree {
    fn json(&self) -> Value {
        let [inodes, bytes, blocks] = self.sums;
        json!({"path": self.path, "inodes": inodes, "bytes": bytes, "disk_bytes": blocks * 512})
    }
}

fn outliers(trees: &[Tree]) -> Value {
    let mut found: Vec<(f64, Value)> = Vec::new();
    for tree in trees.iter().filter(|tree| !tree.around.is_empty()) {
        let siblings: Vec<i64> = trees
            .iter()
            .filter(|other| other.around == tree.around)
            .map(|other| other.sums[2])
            .collect();
        let (mean, deviation) = mean_and_deviation(&siblings);
        let deviations = ((tree.sums[2] as f64 - mean) / deviation * 1e6).round() / 1e6;
        if deviations.abs() >= 3.0 {
            let mut row = tree.json();
            row["siblings"] = siblings.len().into();
            row["mean_disk_bytes"] = (mean * 512.0).into();
            row["deviations"] = deviations.into();
            found.push((deviations, row));
        }
    }
    let path = |row: &Value| row["path"].as_str().unwrap().to_owned();
    found.sort_by(|a, b| {
        b.0.abs().total_cmp(&a.0.abs()).then_with(|| compare_paths(&path(&a.1), &path(&b.1)))
    });
    found.into_iter().map(|(_, row)| row).collect()
}

fn duplicates(files: &[&Seen]) -> Value {
    let mut groups: BTreeMap<(i64, i64, &str), Vec<&Seen>> = BTreeMap::new();
    for e in files.iter().filter(|e| e.size > 0) {
        groups.entry((e.size, e.mtime, &e.name)).or_default().push(e);
    }
    let mut found = Vec::new();
    for ((size, mtime, name), mut group) in groups {
        group.sort_by(|a, b| by_path(a, b));
        let mut inodes = BTreeSet::new();
        group.retain(|e| inodes.insert(e.inode));
        if group.len() > 1 {
            let wasted = size * (group.len() as i64 - 1);
            let paths: Vec<&String> = group.iter().map(|e| &e.path).collect();
            let row = json!({
                "name": name, "bytes": size, "mtime_ns": mtime, "files": group.len(), "wasted_bytes": wasted,
                "paths": paths,
            });
            found.push(((Reverse(wasted), Reverse(size), mtime, name), group.len(), row));
        }
    }
    found.sort_by_key(|group| group.0);
    json!({
        "groups": found.len(),
        "files": found.iter().map(|group| group.1).sum::<usize>(),
        "wasted_bytes": found.iter().map(|group| group.0.0.0).sum::<i64>(),
        "largest": found.into_iter().map(|group| group.2).collect::<Vec<_>>(),
    })
}

fn links(entries: &[&Seen]) -> Value {
    let mut inodes: BTreeMap<(u64, u64), Vec<&Seen>> = BTreeMap::new();
    for e in entries.iter().filter(|e| e.nlink > 1) {
        inodes.entry(e.inode).or_default().push(e);
    }
    let elsewhere = inodes.values().filter(|names| names[0].nlink > names.len() as i64).count();
    let mut several: Vec<Vec<&Seen>> =
        inodes.into_values().filter(|names| names.len() > 1).collect();
    several.iter_mut().for_each(|names| names.sort_by(|a, b| by_path(a, b)));
    let saved = |names: &[&Seen]| names[0].blocks * 512 * (names.len() as i64 - 1);
    several.sort_by(|a, b| {
        (saved(b), b.len()).cmp(&(saved(a), a.len())).then_with(|| by_path(a[0], b[0]))
    });
    let row = |names: &Vec<&Seen>| {
        json!({
            "path": names[0].path, "names": names.len(), "nlink": names[0].nlink, "bytes": names[0].size,
            "saved_disk_bytes": saved(names),
        })
    };
    json!({
        "inodes": several.len(),
        "names": several.iter().map(Vec::len).sum::<usize>(),
        "saved_disk_bytes": several.iter().map(|names| saved(names)).sum::<i64>(),
        "names_elsewhere": elsewhere,
        "largest": several.iter().map(row).collect::<Vec<_>>(),
    })
}

/// Compares every section that is expected, fractions but for rounding.
pub fn assert_alike(shown: &Value, expected: &Value, what: &str) {
    for (section, expected) in expected.as_object().unwrap() {
        compare(&shown[section], expected, &format!("{what} {section}"));
    }
}

fn compare(shown: &Value, expected: &Value, what: &str) {
    match (shown, expected) {
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter()
                .zip(b)
                .enumerate()
                .for_each(|(at, (a, b))| compare(a, b, &format!("{what}[{at}]")));
        }
        (Value::Object(a), Value::Object(b)) => {
            // Beside a time in nanoseconds stands a text, which `forms` looks at.
            let is_text = |key: &&String| {
                a[*key].is_string() && b.contains_key(&format!("{key}_ns")) && !b.contains_key(*key)
            };
            let shown = a.keys().filter(|key| !is_text(key)).collect();
            let keys: [BTreeSet<&String>; 2] = [shown, b.keys().collect()];
            assert_eq!(keys[0], keys[1], "{what}");
            b.iter().for_each(|(key, value)| compare(&a[key], value, &format!("{what}.{key}")));
        }
        (Value::Number(a), Value::Number(b)) if a.is_f64() || b.is_f64() => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            assert!(
                (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0),
                "{what}: {a}, expected {b}"
            );
        }
        _ => assert_eq!(shown, expected, "{what}"),
    }
}

/// The paths of a tree that a user's walk does not find.
pub fn hidden_paths(user: &User, tree: &Path) -> Vec<PathBuf> {
    let seen = user.run("find".as_ref(), &[tree.as_os_str(), "-print0".as_ref()]).stdout;
    let seen: BTreeSet<&[u8]> = seen.split(|&byte| byte == 0).collect();
    let all = crate::common::all_paths(tree);
    all.into_iter().filter(|path| !seen.contains(path.as_os_str().as_bytes())).collect()
}

/// How a report for people shows an escaped path.
pub fn shown(escaped: &str) -> String {
    let mut text = String::new();
    for c in escaped.chars() {
        match c {
            '\\' => text += "\\\\",
            '\n' => text += "\\n",
            '\u{10FF80}'.. => text += &format!("\\x{:02x}", c as u32 & 0xFF),
            c if c.is_ascii_control() => text += &format!("\\x{:02x}", c as u32),
            '\u{202e}' => text += "\\u{202e}",
            c => text.push(c),
        }
    }
    text
}
