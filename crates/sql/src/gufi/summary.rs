//! GUFI's sums of directories and of trees.
//!
//! Sizes and blocks are those of files alone; all other sums are over files and links. The sums
//! that the index stores of each directory are over all entries, so they serve only for counts; the
//! others are computed from the entries. [`sum`] defines which.

use super::super::summaries::By;
use super::views::{
    ABOVE, ALONE, Column, ENTRIES, NAMES, Needs, SUMS, inode_columns, kept_entries, literal, prefix,
};
use canopy_index::ColumnId;
use std::borrow::Cow;

/// Extremum of nothing, in GUFI.
const LEAST: &str = "9223372036854775807";
const GREATEST: &str = "(-9223372036854775807 - 1)";

/// The inode of the directory above; GUFI has 0 for the root of an index.
pub(super) const PINODE: &str = "CASE WHEN l.depth = 0 THEN 0 ELSE p.ino END";

/// Returns the column of whose entries sums are, unless they are everybody's.
fn owner_column(by: By) -> Option<&'static str> {
    by.column().map(ColumnId::name)
}

/// Returns GUFI's number of such sums.
fn record_type(by: By) -> &'static str {
    match by {
        By::All => "0",
        By::User => "1",
        By::Group => "2",
    }
}

/// Aggregates of the entries of a directory: a name of GUFI, and SQL over `entries`. `?` stands for
/// the condition of a file.
const OF_ENTRIES: [(&str, &str); 35] = [
    ("totfiles", "sum(CASE WHEN ? THEN 1 ELSE 0 END)"),
    ("totlinks", "sum(CASE WHEN ? THEN 0 ELSE 1 END)"),
    ("minuid", "min(uid)"),
    ("maxuid", "max(uid)"),
    ("mingid", "min(gid)"),
    ("maxgid", "max(gid)"),
    ("minsize", "min(CASE WHEN ? THEN size END)"),
    ("maxsize", "max(CASE WHEN ? THEN size END)"),
    ("totzero", "sum(CASE WHEN ? AND size = 0 THEN 1 ELSE 0 END)"),
    ("totltk", "sum(CASE WHEN ? AND size <= 1024 THEN 1 ELSE 0 END)"),
    ("totmtk", "sum(CASE WHEN ? AND size > 1024 THEN 1 ELSE 0 END)"),
    ("totltm", "sum(CASE WHEN ? AND size <= 1048576 THEN 1 ELSE 0 END)"),
    ("totmtm", "sum(CASE WHEN ? AND size > 1048576 THEN 1 ELSE 0 END)"),
    ("totmtg", "sum(CASE WHEN ? AND size > 1073741824 THEN 1 ELSE 0 END)"),
    ("totmtt", "sum(CASE WHEN ? AND size > 1099511627776 THEN 1 ELSE 0 END)"),
    ("totsize", "sum(CASE WHEN ? THEN size ELSE 0 END)"),
    ("minctime", "min(gufi_seconds(ctime))"),
    ("maxctime", "max(gufi_seconds(ctime))"),
    ("totctime", "sum(gufi_seconds(ctime))"),
    ("minmtime", "min(gufi_seconds(mtime))"),
    ("maxmtime", "max(gufi_seconds(mtime))"),
    ("totmtime", "sum(gufi_seconds(mtime))"),
    ("minatime", "min(gufi_seconds(atime))"),
    ("maxatime", "max(gufi_seconds(atime))"),
    ("totatime", "sum(gufi_seconds(atime))"),
    ("minblocks", "min(CASE WHEN ? THEN blocks END)"),
    ("maxblocks", "max(CASE WHEN ? THEN blocks END)"),
    ("totblocks", "sum(CASE WHEN ? THEN blocks ELSE 0 END)"),
    ("totxattr", "sum(gufi_xattr_count(xattrs))"),
    ("mincrtime", "min(coalesce(gufi_seconds(btime), 0))"),
    ("maxcrtime", "max(coalesce(gufi_seconds(btime), 0))"),
    ("totcrtime", "sum(coalesce(gufi_seconds(btime), 0))"),
    // Columns for file systems that keep more: 0 where there are entries.
    ("minoss", "min(0)"),
    ("maxoss", "max(0)"),
    ("totoss", "sum(0)"),
];

/// Returns the names of the sums in GUFI's order; those for more than POSIX are there four times.
fn sums() -> impl Iterator<Item = Cow<'static, str>> {
    let (posix, more) = OF_ENTRIES.split_at(OF_ENTRIES.len() - 3);
    let posix = posix.iter().flat_map(|(name, _)| match *name {
        "mincrtime" => vec!["depth", name],
        name => vec![name],
    });
    let more = (1..=4).flat_map(move |number| {
        more.iter().map(move |(name, _)| Cow::from(format!("{name}int{number}")))
    });
    posix.map(Cow::from).chain(more)
}

/// Returns the SQL of a sum of one directory, over the tables `l` (the directory) and `a` (sums of
/// entries), and its needs.
///
/// Only this function knows which values come from the index's own sums. They are over all entries
/// that are not directories, those that GUFI leaves out (sockets, pipes, devices) among them.
fn sum(by: By, name: &str) -> (String, Needs) {
    match name {
        "totfiles" if by == By::All => return ("l.files".to_owned(), SUMS),
        "totlinks" if by == By::All => return ("l.symlinks".to_owned(), SUMS),
        _ => {}
    }
    let of_nothing = match &name[..3] {
        "min" => LEAST,
        "max" => GREATEST,
        _ => "0",
    };
    // All columns for more than POSIX are the same.
    let stored = name.split_once("int").map_or(name, |(stored, _)| stored);
    (format!("coalesce(a.{stored}, {of_nothing})"), ENTRIES)
}

/// Returns a column of numbers. Sums of sizes end at the greatest number of 64 bits, so that huge
/// files of one user make no query of others fail.
fn column_of(name: Cow<'static, str>, value: String, needs: Needs) -> Column {
    match &*name {
        "totsize" | "totblocks" | "maxsubdirsize" => {
            Column::new(name, format!("least({value}, {LEAST})"), needs)
        }
        _ => Column::new(name, value, needs),
    }
}

/// Returns `dname`, `sname`, `sroll` and `srollsubdirs`: no directory is rolled up into another.
pub(super) fn names() -> Vec<Column> {
    vec![
        Column::text("dname", "basename(l.path)", ALONE),
        Column::text("sname", "basename(l.path)", ALONE),
        Column::new("sroll", "0", ALONE),
        Column::new("srollsubdirs", "0", ALONE),
    ]
}

/// Returns the columns of `summary`.
pub(super) fn columns(by: By) -> Vec<Column> {
    let mut columns = vec![
        Column::text("name", "basename(l.path)", ALONE),
        Column::text("type", "'d'", ALONE),
        Column::text("inode", "l.ino", ALONE),
    ];
    columns.extend(inode_columns("l", "", ALONE));
    if let Some(id) = owner_column(by) {
        for column in columns.iter_mut().filter(|column| column.name == id) {
            (column.value, column.needs) = (format!("a.{id}").into(), ENTRIES);
        }
    }
    columns.extend([
        Column::text("linkname", "''", ALONE),
        Column::text("xattr_names", "gufi_xattrs(d.xattrs)", NAMES),
        Column::new("crtime", "coalesce(gufi_seconds(l.btime), 0)", ALONE),
    ]);
    for name in sums() {
        let (value, needs) = match &*name {
            // GUFI keeps levels of directories that were rolled up alone.
            "depth" => ("0".to_owned(), ALONE),
            name => sum(by, name),
        };
        columns.push(column_of(name, value, needs));
    }
    columns.push(Column::new("rectype", record_type(by), ALONE));
    columns.push(Column::text("pinode", PINODE, ABOVE));
    for (name, value) in [("isroot", "1"), ("canrollup", "0"), ("isrolledup", "0")] {
        columns.push(Column::new(name, value, ALONE));
    }
    columns
}

/// Returns the columns of `treesummary`, over a table `t` of [`trees`].
pub(super) fn tree_columns(by: By) -> Vec<Column> {
    let mut columns =
        vec![Column::text("inode", "l.ino", ALONE), Column::text("pinode", PINODE, ABOVE)];
    let own = [
        ("totsubdirs", ALONE),
        ("maxsubdirfiles", SUMS),
        ("maxsubdirlinks", SUMS),
        ("maxsubdirsize", SUMS | ENTRIES),
    ];
    columns.extend(own.map(|(name, needs)| column_of(name.into(), format!("t.{name}"), needs)));
    for name in sums() {
        let (value, needs) = match &*name {
            "depth" => ("length(l.path) - length(replace(l.path, '/', ''))".to_owned(), ALONE),
            // Extrema are of directories with files alone, so they need the number of files too.
            name => (format!("t.{name}"), sum(by, name).1 | SUMS),
        };
        columns.push(column_of(name, value, needs));
    }
    columns.push(Column::new("totextdbs", "0", ALONE));
    columns.push(Column::new("rectype", record_type(by), ALONE));
    for id in ["uid", "gid"] {
        // Otherwise whose the directory is.
        let table = if owner_column(by) == Some(id) { "t" } else { "l" };
        let value = format!("{table}.{id}");
        columns.push(Column::new(id, value, ALONE));
    }
    columns
}

/// Writes the directories that can be listed, one row each; with sums only if they are asked for,
/// since a huge directory is kept in parts.
pub(super) fn listings(needs: Needs, below: Option<&str>) -> String {
    let below = below.map_or("true".to_owned(), |directory| {
        format!("gufi_listed_below(path, {})", literal(directory))
    });
    if needs & SUMS == 0 {
        return format!("(SELECT * FROM gufi.\" listings\" WHERE part = 0 AND {below})");
    }
    let same = |name: &&str| format!("min({name}) AS {name}");
    let total = |name: &&str| format!("sum({name}) AS {name}");
    let own = [
        "depth", "ino", "mode", "nlink", "uid", "gid", "size", "blksize", "blocks", "atime",
        "mtime", "ctime", "btime",
    ];
    let totals = ["files", "symlinks", "others", "subdirs"];
    let columns: Vec<String> = own.iter().map(same).chain(totals.iter().map(total)).collect();
    format!(
        "(SELECT path, source, {} FROM gufi.\" listings\" WHERE {below} GROUP BY path, source)",
        columns.join(", ")
    )
}

/// Writes the joins to directories `l`.
pub(super) fn joined(by: By, needs: Needs, below: Option<&str>) -> String {
    let mut tables = String::new();
    if needs & ABOVE != 0 {
        let above = listings(ALONE, None);
        tables += &format!(
            " LEFT JOIN {above} p ON p.source = l.source AND p.path = gufi_directory(l.path)"
        );
    }
    if needs & ENTRIES != 0 {
        let outer = if by == By::All { "LEFT " } else { "" };
        let sums = entry_sums(by, below);
        tables += &format!(" {outer}JOIN {sums} a ON a.source = l.source AND a.directory = l.path");
    }
    if needs & NAMES != 0 {
        let directories = match below {
            // The directory itself is an entry of the one above.
            Some(directory) => format!(
                "(SELECT * FROM public.directories WHERE starts_with(path, {}) \
                 UNION ALL SELECT * FROM public.directories WHERE path = {})",
                prefix(directory),
                literal(directory)
            ),
            None => "public.directories".to_owned(),
        };
        tables += &format!(" LEFT JOIN {directories} d ON d.source = l.source AND d.path = l.path");
    }
    tables
}

fn entry_sums(by: By, below: Option<&str>) -> String {
    let sums = OF_ENTRIES
        .map(|(name, sql)| format!("{} AS \"{name}\"", sql.replace('?', "(mode & 61440) = 32768")));
    let id = owner_column(by).map(|id| format!(", {id}")).unwrap_or_default();
    format!(
        "(SELECT source, gufi_directory(path) AS directory{id}, {} FROM {} GROUP BY source, \
         gufi_directory(path){id})",
        sums.join(", "),
        kept_entries(below)
    )
}

/// Writes the sums of each directory and all below it, as `t`, with the directory as `l`.
pub(super) fn trees(by: By, needs: Needs, below: Option<&str>) -> String {
    let mut one: Vec<String> =
        vec!["l.source".into(), "gufi_ancestors(l.path, l.depth) AS above".into()];
    let mut all = vec!["count(*) - 1 AS totsubdirs".to_owned()];
    let of_files = needs & SUMS != 0;
    let id = owner_column(by).map(|id| format!(", {id}")).unwrap_or_default();
    if let Some(id) = owner_column(by) {
        one.push(format!("a.{id}"));
    }
    for name in sums().filter(|name| name != "depth") {
        let (value, needed) = sum(by, &name);
        if (needed | SUMS) & !needs != 0 {
            continue;
        }
        one.push(format!("{value} AS {name}"));
        all.push(match &name[..3] {
            "min" => {
                format!("coalesce(min(CASE WHEN totfiles > 0 THEN {name} END), {LEAST}) AS {name}")
            }
            "max" => format!(
                "coalesce(max(CASE WHEN totfiles > 0 THEN {name} END), {GREATEST}) AS {name}"
            ),
            // Times are summed up where there are files alone.
            _ if name.ends_with("time") => {
                format!("sum(CASE WHEN totfiles > 0 THEN {name} ELSE 0 END) AS {name}")
            }
            _ => format!("sum({name}) AS {name}"),
        });
    }
    if of_files {
        all.push("max(totfiles) AS maxsubdirfiles".to_owned());
        all.push("max(totlinks) AS maxsubdirlinks".to_owned());
    }
    if of_files && needs & ENTRIES != 0 {
        all.push("max(totsize) AS maxsubdirsize".to_owned());
    }
    let directories = listings(needs, below);
    let sums = joined(by, needs & ENTRIES, below);
    let above = if needs & ABOVE != 0 { joined(By::All, ABOVE, None) } else { String::new() };
    format!(
        "(SELECT source, directory{id}, {} FROM (SELECT *, unnest(above) AS directory FROM \
         (SELECT {} FROM {directories} l{sums})) GROUP BY source, directory{id}) t JOIN {} l \
         ON l.source = t.source AND l.path = t.directory{above}",
        all.join(", "),
        one.join(", "),
        listings(ALONE, below),
    )
}
