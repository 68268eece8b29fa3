//! GUFI's tables and views: their columns, and the SQL over the index's own tables that gives them.
//!
//! A view is one of four kinds of rows, with or without the columns of the directory (`vr...`) and
//! extended attributes (`...x...`). [`GufiTable::query`] joins only the tables that the columns in
//! the query need.

use super::super::summaries::By;
use super::summary;
use arrow::datatypes::DataType;
use std::borrow::Cow;

/// Files and links, which are all entries that GUFI keeps besides directories.
const KEPT: &str = "(mode & 61440) IN (32768, 40960)";

/// Extended attributes, those of users alone, as in GUFI.
const XATTRS: &str = "(SELECT * FROM public.xattrs WHERE starts_with(key, 'user.'))";

/// Bits for the inputs that a column needs besides the rows themselves.
pub(super) type Needs = u8;
/// Nothing.
pub(super) const ALONE: Needs = 0;
/// The directory of an entry.
pub(super) const DIRECTORY: Needs = 1;
/// The directory above.
pub(super) const ABOVE: Needs = 2;
/// Sums that the index keeps of each directory.
pub(super) const SUMS: Needs = 4;
/// Sums that are made of entries.
pub(super) const ENTRIES: Needs = 8;
/// Names of a directory's extended attributes.
pub(super) const NAMES: Needs = 16;

/// A column of a view.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) name: Cow<'static, str>,
    pub(super) data_type: DataType,
    /// The SQL that gives it.
    pub(super) value: Cow<'static, str>,
    pub(super) needs: Needs,
}

impl Column {
    /// Returns a column of whole numbers.
    pub(super) fn new(
        name: impl Into<Cow<'static, str>>,
        value: impl Into<Cow<'static, str>>,
        needs: Needs,
    ) -> Self {
        Column { name: name.into(), data_type: DataType::Int64, value: value.into(), needs }
    }

    /// Returns a column of texts.
    pub(super) fn text(
        name: &'static str,
        value: impl Into<Cow<'static, str>>,
        needs: Needs,
    ) -> Self {
        Column { data_type: DataType::Utf8, ..Column::new(name, value, needs) }
    }
}

/// Kind of the rows of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowKind {
    Entries,
    Directories(By),
    Trees(By),
    Xattrs,
}

/// A table or view of GUFI.
#[derive(Clone, Debug)]
pub(super) struct GufiTable {
    rows: RowKind,
    /// Whether each row is repeated for each extended attribute.
    xattrs: bool,
    pub(super) columns: Vec<Column>,
}

/// All views by name, sorted.
pub(super) const NAMES_OF_VIEWS: [&str; 31] = [
    "entries",
    "epentries",
    "esummary",
    "evrpentries",
    "evrsummary",
    "evrxpentries",
    "evrxsummary",
    "expentries",
    "exsummary",
    "pentries",
    "summary",
    "summarylong",
    "treesummary",
    "tsummary",
    "vrpentries",
    "vrsummary",
    "vrsummarylong",
    "vrxpentries",
    "vrxsummary",
    "vsummarydir",
    "vsummarygroup",
    "vsummaryuser",
    "vtsummarydir",
    "vtsummarygroup",
    "vtsummaryuser",
    "xattrs",
    "xattrs_avail",
    "xattrs_pwd",
    "xentries",
    "xpentries",
    "xsummary",
];

/// The columns that path functions become. No query can name them by accident.
pub(crate) const PATH: &str = " path";
/// The path of an entry itself.
pub(crate) const ENTRY: &str = " entry";
/// Levels below the root of the source.
pub(super) const LEVEL: &str = " level";
/// The root of the source.
pub(super) const ROOT: &str = " root";
/// The inode of the directory above.
pub(super) const PINODE: &str = " pinode";
/// How many directories are in it.
pub(super) const SUBDIRS: &str = " subdirs";
/// All of them.
pub(super) const HIDDEN: [&str; 6] = [PATH, ENTRY, LEVEL, ROOT, PINODE, SUBDIRS];

/// Returns the view of a name, if there is one.
pub(super) fn named(name: &str) -> Option<GufiTable> {
    if NAMES_OF_VIEWS.binary_search(&name).is_err() {
        return None;
    }
    // Views for databases that sites attach (e...) are those without.
    let plain = match name {
        "entries" => name,
        _ => name.strip_prefix('e').unwrap_or(name),
    };
    let xattrs = !plain.starts_with("xattrs") && plain.contains('x');
    let plain = plain.replacen('x', "", usize::from(xattrs));
    let by = match plain.as_str() {
        "vsummaryuser" | "vtsummaryuser" => By::User,
        "vsummarygroup" | "vtsummarygroup" => By::Group,
        _ => By::All,
    };
    let (rows, mut columns) = match plain.as_str() {
        "entries" => (RowKind::Entries, entry_columns()),
        "pentries" => (RowKind::Entries, pentries_columns()),
        "vrpentries" => (RowKind::Entries, [directory_columns(), pentries_columns()].concat()),
        "summary" | "summarylong" | "vsummarydir" | "vsummaryuser" | "vsummarygroup" => {
            (RowKind::Directories(by), summary::columns(by))
        }
        "vrsummary" | "vrsummarylong" => {
            (RowKind::Directories(by), [summary::names(), summary::columns(by)].concat())
        }
        "treesummary" | "tsummary" | "vtsummarydir" | "vtsummaryuser" | "vtsummarygroup" => {
            (RowKind::Trees(by), summary::tree_columns(by))
        }
        _ => (RowKind::Xattrs, xattr_columns()),
    };
    if xattrs {
        columns.push(Column::text("xattr_name", "x.key", ALONE));
        columns.push(Column::text("xattr_value", "x.value", ALONE));
    }
    Some(GufiTable { rows, xattrs, columns })
}

impl GufiTable {
    /// Adds the columns that path functions become.
    pub(super) fn with_paths(mut self) -> Self {
        if self.rows != RowKind::Xattrs {
            self.columns.extend(self.hidden());
        }
        self
    }

    fn hidden(&self) -> [Column; 6] {
        let in_entry = self.rows == RowKind::Entries;
        let (path, entry) = match in_entry {
            true => ("gufi_directory(e.path)", "e.path"),
            false => ("l.path", "l.path"),
        };
        let level = if in_entry { "e.depth - 1" } else { "l.depth" };
        let subdirs = if in_entry { DIRECTORY | SUMS } else { SUMS };
        [
            Column::text(PATH, path, ALONE),
            Column::text(ENTRY, entry, ALONE),
            Column::new(LEVEL, level, ALONE),
            Column::text(ROOT, format!("gufi_root({path}, {level})"), ALONE),
            Column::new(PINODE, summary::PINODE, DIRECTORY | ABOVE),
            Column::new(SUBDIRS, "l.subdirs", subdirs),
        ]
    }

    /// Returns whether rows are entries, whose names with those of their directories are paths.
    pub(super) fn is_of_entries(&self) -> bool {
        self.rows == RowKind::Entries
    }

    /// Writes the query for some columns, of rows at or below a directory.
    pub(super) fn query(&self, columns: &[&Column], below: Option<&str>) -> String {
        let mut needs = columns.iter().fold(ALONE, |needs, column| needs | column.needs);
        // There is a row for each user or group that has entries.
        if let RowKind::Directories(by) | RowKind::Trees(by) = self.rows
            && by != By::All
        {
            needs |= ENTRIES;
        }
        let values =
            columns.iter().map(|column| format!("{} AS \"{}\"", column.value, column.name));
        let values: Vec<String> = values.collect();
        let values = if values.is_empty() { "1 AS one".to_owned() } else { values.join(", ") };
        let (row, mut tables) = match self.rows {
            RowKind::Entries => ("e", entries(needs, below)),
            RowKind::Directories(by) => ("l", directories(by, needs, below)),
            RowKind::Trees(by) => ("l", summary::trees(by, needs, below)),
            RowKind::Xattrs => ("x", format!("{XATTRS} x")),
        };
        if self.xattrs {
            let joined = format!("x.source = {row}.source AND x.path = {row}.path");
            tables += &format!(" LEFT JOIN {XATTRS} x ON {joined}");
        }
        format!("SELECT {values} FROM {tables}")
    }
}

fn entries(needs: Needs, below: Option<&str>) -> String {
    let mut tables = format!("(SELECT * FROM {}) e", kept_entries(below));
    if needs & (DIRECTORY | ABOVE | SUMS | ENTRIES) != 0 {
        let listings = summary::listings(needs, below);
        tables += &format!(
            " JOIN {listings} l ON l.source = e.source AND l.path = gufi_directory(e.path)"
        );
    }
    tables + &summary::joined(By::All, needs, below)
}

fn directories(by: By, needs: Needs, below: Option<&str>) -> String {
    format!("{} l{}", summary::listings(needs, below), summary::joined(by, needs, below))
}

/// Writes a text in quotes.
pub(super) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Writes the text that all paths below a directory begin with, in quotes.
pub(super) fn prefix(directory: &str) -> String {
    literal(&format!("{}/", directory.trim_end_matches('/')))
}

/// Names the entries that GUFI keeps, those below a directory or all.
pub(super) fn kept_entries(below: Option<&str>) -> String {
    let below = below.map_or(String::new(), |directory| {
        format!(" AND starts_with(path, {})", prefix(directory))
    });
    format!("public.entries WHERE {KEPT}{below}")
}

/// Returns the columns of an inode of the table `row`, as GUFI names them, up to `ctime`.
pub(super) fn inode_columns(row: &str, prefix: &str, needs: Needs) -> Vec<Column> {
    let column = |name: &str| {
        let value = match name {
            "atime" | "mtime" | "ctime" => format!("gufi_seconds({row}.{name})"),
            _ => format!("{row}.{name}"),
        };
        Column::new(format!("{prefix}{name}"), value, needs)
    };
    ["mode", "nlink", "uid", "gid", "size", "blksize", "blocks", "atime", "mtime", "ctime"]
        .map(column)
        .into()
}

/// Returns the columns that are for file systems that keep more, which have no values here.
fn oss_columns() -> Vec<Column> {
    let numbers =
        ["ossint1", "ossint2", "ossint3", "ossint4"].map(|name| Column::new(name, "0", ALONE));
    let texts = ["osstext1", "osstext2"].map(|name| Column::text(name, "''", ALONE));
    numbers.into_iter().chain(texts).collect()
}

fn entry_columns() -> Vec<Column> {
    let mut columns = vec![
        Column::text("name", "e.name", ALONE),
        Column::text("type", "e.type", ALONE),
        Column::text("inode", "e.ino", ALONE),
    ];
    columns.extend(inode_columns("e", "", ALONE));
    columns.extend([
        Column::text("linkname", "coalesce(e.target, '')", ALONE),
        Column::text("xattr_names", "gufi_xattrs(e.xattrs)", ALONE),
        Column::new("crtime", "coalesce(gufi_seconds(e.btime), 0)", ALONE),
    ]);
    columns.extend(oss_columns());
    columns
}

fn pentries_columns() -> Vec<Column> {
    let mut columns = entry_columns();
    columns.push(Column::text("pinode", "l.ino", DIRECTORY));
    columns.push(Column::text("ppinode", summary::PINODE, DIRECTORY | ABOVE));
    columns
}

/// Returns the columns of an entry's directory in `vrpentries`.
fn directory_columns() -> Vec<Column> {
    let mut columns = summary::names()[..2].to_vec();
    columns.extend(inode_columns("l", "d", ALONE));
    columns.push(Column::text("dlinkname", "''", ALONE));
    let sums = summary::columns(By::All);
    let first = sums.iter().position(|column| column.name == "totfiles").unwrap_or(sums.len());
    for column in &sums[first..] {
        let name = match column.name.as_ref() {
            // GUFI names this one so.
            "totltm" => "totltm".to_owned(),
            "rectype" => break,
            name if name.contains("ossint") => continue,
            name => format!("d{name}"),
        };
        columns.push(Column { name: name.into(), ..column.clone() });
    }
    columns.push(Column::new("sroll", "0", ALONE));
    columns.push(Column::new("atroot", "1", ALONE));
    columns.push(Column::new("srollsubdirs", "0", ALONE));
    columns.iter_mut().for_each(|column| column.needs |= DIRECTORY);
    columns
}

fn xattr_columns() -> Vec<Column> {
    vec![
        Column::text("inode", "x.ino", ALONE),
        Column::text("name", "x.key", ALONE),
        Column::text("value", "x.value", ALONE),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_view_with_the_columns_that_gufi_has() {
        assert!(NAMES_OF_VIEWS.is_sorted());
        for (name, columns) in [
            ("entries", 22),
            ("pentries", 24),
            ("epentries", 24),
            ("vrpentries", 73),
            ("summary", 66),
            ("vrsummary", 70),
            ("treesummary", 55),
            ("xpentries", 26),
            ("vrxsummary", 72),
            ("evrxpentries", 75),
            ("xattrs", 3),
        ] {
            let view = named(name).unwrap();
            assert_eq!(view.columns.len(), columns, "{name}");
        }
        for name in NAMES_OF_VIEWS {
            let mut names: Vec<_> = named(name).unwrap().with_paths().columns;
            let all = names.len();
            names.sort_by(|a, b| a.name.cmp(&b.name));
            names.dedup_by(|a, b| a.name == b.name);
            assert_eq!(names.len(), all, "{name}");
        }
        assert!(named("trees").is_none());
    }

    #[test]
    fn directories_are_quoted() {
        let view = named("entries").unwrap();
        let query = view.query(&[&view.columns[0]], Some("/it's"));
        assert!(query.contains("starts_with(path, '/it''s/')"), "{query}");
        assert!(!query.contains("JOIN"), "{query}");
    }
}
