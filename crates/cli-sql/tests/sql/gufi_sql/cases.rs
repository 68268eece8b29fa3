//! The questions of GUFI's documents, and the answers that the tree gives.

use super::tree::{ATIME_S, Row, Tree, parent};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

pub(crate) type Answer = Vec<Vec<String>>;

/// A question of one of GUFI's documents.
pub(crate) struct Case {
    pub(crate) origin: &'static str,
    /// Arguments of gufi_query.
    pub(crate) gufi: &'static [&'static str],
    /// The query here; none if it is GUFI's last argument, as it stands.
    pub(crate) ours: Option<&'static str>,
    /// Whether rows come in the order of the answer.
    pub(crate) ordered: bool,
    pub(crate) expected: fn(&Tree) -> Answer,
}

pub(crate) const GUIDE: &str = "GUFI-SQL.docx";

/// A statement that runs as written.
pub(crate) const fn written(
    origin: &'static str,
    gufi: &'static [&'static str],
    expected: fn(&Tree) -> Answer,
) -> Case {
    Case { origin, gufi, ours: None, ordered: false, expected }
}

/// A case that takes several statements in GUFI, or means something for each directory.
pub(crate) const fn one(
    origin: &'static str,
    gufi: &'static [&'static str],
    ours: &'static str,
    expected: fn(&Tree) -> Answer,
) -> Case {
    Case { origin, gufi, ours: Some(ours), ordered: false, expected }
}

pub(crate) fn rows<'a>(
    rows: impl IntoIterator<Item = &'a Row>,
    row: impl Fn(&Row) -> Vec<String>,
) -> Answer {
    rows.into_iter().map(row).collect()
}

pub(crate) fn user(row: &Row) -> String {
    canopy_text::user_name(row.meta.uid()).unwrap_or_else(|| row.meta.uid().to_string())
}

pub(crate) fn group(row: &Row) -> String {
    canopy_text::group_name(row.meta.gid()).unwrap_or_else(|| row.meta.gid().to_string())
}

/// The output of date(1) and ls(1) for a row.
pub(crate) fn described(row: &Row) -> Vec<String> {
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

pub(crate) fn full(row: &Row) -> Vec<String> {
    row![row.path]
}

/// The columns of `entries`.
pub(crate) fn entry(row: &Row) -> Vec<String> {
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
pub(crate) fn sums(entries: &[&Row]) -> Vec<i64> {
    let files: Vec<&&Row> = entries.iter().filter(|row| row.kind == 'f').collect();
    let number = |condition: fn(u64) -> bool| {
        files.iter().filter(|row| condition(row.size())).count() as i64
    };
    let ends = |values: &[i64]| {
        [
            values.iter().min().copied().unwrap_or(i64::MAX),
            values.iter().max().copied().unwrap_or(i64::MIN),
        ]
    };
    let all =
        |value: fn(&Row) -> i64| -> Vec<i64> { entries.iter().map(|row| value(row)).collect() };
    let of_files =
        |value: fn(&Row) -> i64| -> Vec<i64> { files.iter().map(|row| value(row)).collect() };
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
    for time in
        [|row: &Row| row.meta.ctime(), |row: &Row| row.meta.mtime(), |row: &Row| row.meta.atime()]
    {
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
pub(crate) fn oss(entries: usize) -> Vec<String> {
    let one = if entries == 0 { row![i64::MAX, i64::MIN, 0] } else { row![0, 0, 0] };
    vec![one; 4].concat()
}

pub(crate) fn texts(numbers: &[i64]) -> Vec<String> {
    numbers.iter().map(i64::to_string).collect()
}

pub(crate) fn pinode(tree: &Tree, dir: &Row) -> u64 {
    tree.dirs
        .iter()
        .find(|above| above.path == parent(&dir.path))
        .map_or(0, |above| above.meta.ino())
}

/// The columns of `summary`.
pub(crate) fn summary(tree: &Tree, dir: &Row) -> Vec<String> {
    let entries: Vec<&Row> = tree.of(dir).collect();
    let sums = sums(&entries);
    let own = entry(dir)[..16].to_vec();
    let (sums, created) = (texts(&sums[..29]), texts(&sums[29..]));
    let tail = row![0, pinode(tree, dir), 1, 0, 0];
    [own, sums, row![0], created, oss(entries.len()), tail].concat()
}

/// The sums of gufi_treesummary for a directory.
pub(crate) fn tree_summary(tree: &Tree, top: &Row) -> Vec<String> {
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
    [
        head,
        sums,
        row![depth],
        created,
        oss(with_files.len()),
        row![0, 0, top.meta.uid(), top.meta.gid()],
    ]
    .concat()
}

pub(crate) fn by<K: Ord + ToString, V>(
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

pub(crate) fn extension(row: &Row) -> String {
    let name = row.name.as_str();
    name.rsplit_once('.').map_or("", |(_, extension)| extension).to_owned()
}

pub(crate) const CASES: &[Case] = &[
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
            let of =
                |rows_of: &[Row], mark: &str| rows(rows_of, |row| row![mark, row.dir, row.name]);
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
        |tree| {
            rows(
                tree.entries.iter().filter(|row| row.name.to_lowercase().contains("big")),
                described,
            )
        },
    ),
    written(
        GUIDE,
        &[
            "-E",
            r#"select rpath(sname,sroll),name,type,size,uidtouser(uid),gidtogroup(gid),datetime(atime,"unixepoch"),modetotxt(mode) from vrpentries where dname like "%l1%";"#,
        ],
        |tree| rows(tree.entries.iter().filter(|row| tree.dir(row).name.contains("l1")), described),
    ),
    written(
        GUIDE,
        &["-E", "select rpath(sname,sroll),dname,totfiles,maxsize from vrsummary;"],
        |tree| {
            rows(&tree.dirs, |dir| {
                let largest =
                    tree.of(dir).filter(|row| row.kind == 'f').map(|row| row.size() as i64).max();
                row![dir.path, dir.name, tree.count(dir, 'f'), largest.unwrap_or(i64::MIN)]
            })
        },
    ),
    one(
        GUIDE,
        &[],
        "SELECT path, name, size FROM (SELECT rpath(sname, sroll) AS path, name, size, \
         row_number() OVER (PARTITION BY pinode ORDER BY name) AS place FROM vrpentries) WHERE \
         place <= 1",
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
            let last = |row: &&Row| {
                row.name.rsplit_once('.').map_or(row.name.clone(), |(_, last)| last.to_owned())
            };
            by(&tree.entries, last, |_| 1)
        },
    ),
    written(GUIDE, &["-E", "select rpath(sname,sroll),type,size from vrpentries;"], |tree| {
        rows(&tree.entries, |row| row![row.dir, row.kind, row.size()])
    }),
    one(
        GUIDE,
        &[],
        "select type, count(*), sum(size) from vrpentries group by pinode, type;",
        |tree| {
            let key = |row: &&Row| (row.dir.clone(), row.kind);
            let mut sums: BTreeMap<(String, char), (u64, u64)> = BTreeMap::new();
            for row in &tree.entries {
                let sum = sums.entry(key(&row)).or_default();
                *sum = (sum.0 + 1, sum.1 + row.size());
            }
            sums.into_iter().map(|((_, kind), (count, size))| row![kind, count, size]).collect()
        },
    ),
    written(GUIDE, &["-S", "select * from summary"], |tree| {
        rows(&tree.dirs, |dir| summary(tree, dir))
    }),
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
    written(
        GUIDE,
        &["-S", "select path(),rpath(sname,sroll), name, size from vrpentries;"],
        |tree| rows(&tree.entries, |row| row![row.dir, row.dir, row.name, row.size()]),
    ),
    written("quickstart.tex", &["-S", "SELECT rpath(sname, sroll) FROM vrsummary;"], |tree| {
        rows(&tree.dirs, |dir| row![dir.path])
    }),
    written(
        "quickstart.tex",
        &["-E", "SELECT rpath(sname, sroll, name) FROM vrpentries;"],
        |tree| rows(&tree.entries, full),
    ),
    written(
        "addqueryfuncs.tex",
        &["-E", "SELECT rpath(sname, sroll) || '/' || name FROM vrpentries;"],
        |tree| rows(&tree.entries, full),
    ),
    written(
        "addqueryfuncs.tex",
        &["-x", "-E", "SELECT rpath(sname, sroll, name) FROM vrxpentries;"],
        |tree| {
            tree.entries.iter().flat_map(|row| vec![full(row); row.xattrs.len().max(1)]).collect()
        },
    ),
    written(
        "addqueryfuncs.tex",
        &["-S", "SELECT subdirs(srollsubdirs, sroll) FROM vrsummary;"],
        |tree| rows(&tree.dirs, |dir| row![tree.subdirs(dir)]),
    ),
    written("reconstruct.tex", &["-E", "SELECT * FROM entries;"], |tree| {
        rows(&tree.entries, entry)
    }),
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
            [
                row![dir.name, dir.name],
                own[3..14].to_vec(),
                sums,
                row![0, 1, 0],
                entry(row),
                pinodes,
            ]
            .concat()
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
            "INSERT INTO intermediate SELECT uid, COUNT(*), SUM(size) FROM entries WHERE type == \
             'f' GROUP by uid;",
            "-K",
            "CREATE TABLE aggregate (uid INT64, totfiles INT64, totsize INT64);",
            "-J",
            "INSERT INTO aggregate SELECT uid, SUM(totfiles), SUM(totsize) FROM intermediate \
             GROUP BY uid;",
            "-G",
            "SELECT uidtouser(uid), SUM(totfiles), SUM(totsize) as finalsize FROM aggregate GROUP \
             BY uid ORDER BY finalsize DESC;",
        ],
        "SELECT uidtouser(uid), COUNT(*), SUM(size) AS finalsize FROM entries WHERE type == 'f' \
         GROUP BY uid ORDER BY finalsize DESC",
        |tree| {
            let counts = by(tree.files(), |row| user(row), |_| 1);
            let sizes = by(tree.files(), |row| user(row), |row| row.size());
            counts
                .into_iter()
                .zip(sizes)
                .map(|(count, size)| row![count[0], count[1], size[1]])
                .collect()
        },
    ),
    Case {
        ordered: true,
        ..one(
            "examples/oldbigfiles",
            &[
                "-I",
                "CREATE TABLE intermediate (uid INT64, pathname TEXT, name TEXT, size INT64, \
                 mtime INT64);",
                "-E",
                "INSERT INTO intermediate SELECT uid, rpath(sname, sroll), name, size, mtime FROM \
                 vrpentries WHERE (type == 'f') AND (size > 1024);",
                "-K",
                "CREATE TABLE aggregate (uid INT64, pathname TEXT, name TEXT, size INT64, mtime \
                 INT64);",
                "-J",
                "INSERT INTO aggregate SELECT uid, pathname, name, size, mtime FROM intermediate;",
                "-G",
                "SELECT uid, pathname, name, size, mtime FROM aggregate ORDER BY size DESC, \
                 pathname ASC, name ASC;",
            ],
            "SELECT uid, rpath(sname, sroll) AS pathname, name, size, mtime FROM vrpentries WHERE \
             (type == 'f') AND (size > 1024) ORDER BY size DESC, pathname ASC, name ASC",
            |tree| {
                let mut large: Vec<&Row> = tree.files().filter(|row| row.size() > 1024).collect();
                large.sort_by_key(|row| (std::cmp::Reverse(row.size()), row.path.clone()));
                rows(large, |row| {
                    row![row.meta.uid(), row.dir, row.name, row.size(), row.meta.mtime()]
                })
            },
        )
    },
    written(
        "examples/example_run",
        &["-S", "SELECT path(),name, type, size, datetime(atime,'unixepoch') FROM vsummarydir;"],
        |tree| {
            rows(&tree.dirs, |dir| row![dir.path, dir.name, 'd', dir.size(), "2096-10-02 07:06:40"])
        },
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
            "SELECT path(), name, uid, gid, xattr_value FROM xpentries WHERE xattr_value IS NOT \
             NULL",
        ],
        r#"SELECT path(""), name, uid, gid, xattr_value FROM xpentries WHERE xattr_value IS NOT NULL"#,
        |tree| {
            let of = |row: &Row| -> Answer {
                row.xattrs
                    .iter()
                    .map(|(_, value)| {
                        row![row.dir, row.name, row.meta.uid(), row.meta.gid(), value]
                    })
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
            rows(found, |row| {
                row![row.dir, row.name, row.meta.uid(), row.meta.gid(), "found the needle"]
            })
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
    // All columns but the depth, which is that of the index in GUFI, the number of attached
    // databases, and the group, in whose place GUFI has the user.
    written(
        "treesummary.tex",
        &[
            "-T",
            "SELECT inode, pinode, totsubdirs, maxsubdirfiles, maxsubdirlinks, maxsubdirsize, \
             totfiles, totlinks, minuid, maxuid, mingid, maxgid, minsize, maxsize, totzero, \
             totltk, totmtk, totltm, totmtm, totmtg, totmtt, totsize, minctime, maxctime, \
             totctime, minmtime, maxmtime, totmtime, minatime, maxatime, totatime, minblocks, \
             maxblocks, totblocks, totxattr, mincrtime, maxcrtime, totcrtime, minossint1, \
             maxossint1, totossint1, minossint2, maxossint2, totossint2, minossint3, maxossint3, \
             totossint3, minossint4, maxossint4, totossint4, rectype FROM treesummary",
        ],
        |tree| {
            rows(&tree.dirs, |dir| {
                let mut all = tree_summary(tree, dir);
                all.truncate(53);
                all.remove(51);
                all.remove(35);
                all
            })
        },
    ),
];
