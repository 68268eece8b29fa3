//! The queries of GUFI's paper (figures 9 and 10 and its artifact appendix, Lee et al., SC22), in
//! today's words of gufi_query, and what a user of canopy types for the same answer.

/// How the answers of both sides are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Check {
    /// They are the same lines, but for a header and the sign between columns.
    Text,
    /// They have as many lines.
    Lines,
}

/// One question to both sides.
pub struct Query {
    pub what: &'static str,
    /// Options of gufi_query.
    pub gufi: Vec<String>,
    /// Command of canopy in find's language or as du, if there is one.
    pub find: Option<Vec<String>>,
    /// As SQL.
    pub sql: Option<String>,
    /// The SQL whose answer must be GUFI's, if not `sql`.
    pub checked: Option<String>,
    pub check: Check,
}

/// The tree and the entries that the queries look for.
pub struct Fixture<'a> {
    /// Root of the source.
    pub root: &'a str,
    /// The directory whose total is asked for.
    pub home: &'a str,
    /// A file whose time separates old from new, and that time in seconds.
    pub reference: &'a str,
    pub old_s: i64,
    pub xattrs: bool,
}

/// Bytes above which a file counts as large: with the time, about one in a thousand of the
/// generated files.
const LARGE_MIB: i64 = 700;

/// All queries, in the order of the table.
#[expect(clippy::too_many_lines, reason = "a list")]
pub fn all(place: &Fixture<'_>) -> Vec<Query> {
    let words =
        |words: &[&str]| -> Vec<String> { words.iter().map(|word| (*word).to_owned()).collect() };
    let (root, old_s, large) = (place.root, place.old_s, LARGE_MIB << 20);
    let path = "rpath(sname, sroll, name)";
    let mut queries = vec![
        Query {
            what: "names of all entries",
            gufi: words(&["-E", "SELECT name FROM pentries"]),
            find: Some(words(&["find", root, "!", "-type", "d", "-printf", "%f\\n"])),
            sql: Some("SELECT name FROM entries".to_owned()),
            checked: None,
            check: Check::Lines,
        },
        Query {
            what: "name and size of every directory",
            gufi: words(&["-S", "SELECT name, size FROM summary"]),
            find: Some(words(&["find", root, "-type", "d", "-printf", "%f %s\\n"])),
            sql: Some("SELECT name, size FROM directories".to_owned()),
            // GUFI does not know directories that a user sees but cannot list.
            checked: Some("SELECT path FROM summaries".to_owned()),
            check: Check::Lines,
        },
        Query {
            what: "total size by aggregation",
            gufi: aggregate(
                "s INT64",
                "SELECT CAST(TOTAL(size) AS INT) FROM pentries",
                "SELECT CAST(TOTAL(s) AS INT) FROM ",
                "",
            ),
            find: None,
            sql: Some("SELECT coalesce(sum(size), 0) FROM entries".to_owned()),
            checked: None,
            check: Check::Text,
        },
        Query {
            what: "total size of a home from tree summaries",
            gufi: words(&["--max-level", "0", "-T", "SELECT totsize FROM treesummary"]),
            find: Some(words(&["du", "-s", "--apparent-size", place.home])),
            sql: Some(format!("SELECT size FROM trees WHERE path = '{}'", place.home)),
            checked: None,
            check: Check::Text,
        },
        Query {
            what: "sum of size by owner",
            gufi: aggregate(
                "uid INT64, s INT64",
                "SELECT uid, CAST(TOTAL(size) AS INT) FROM pentries GROUP BY uid",
                "SELECT uid, CAST(TOTAL(s) AS INT) FROM ",
                " GROUP BY uid ORDER BY uid",
            ),
            find: None,
            sql: Some("SELECT uid, sum(size) FROM usage GROUP BY uid ORDER BY uid".to_owned()),
            checked: Some(
                "SELECT uid, sum(size) FROM entries GROUP BY uid ORDER BY uid".to_owned(),
            ),
            check: Check::Text,
        },
        Query {
            what: "large and old, with paths",
            gufi: words(&[
                "-E",
                &format!("SELECT {path} FROM vrpentries WHERE size > {large} AND mtime < {old_s}"),
            ]),
            find: Some(words(&[
                "find",
                root,
                "!",
                "-type",
                "d",
                "-size",
                &format!("+{LARGE_MIB}M"),
                "!",
                "-newer",
                place.reference,
            ])),
            sql: Some(format!(
                "SELECT path FROM entries WHERE size > {large} AND mtime < \
                 to_timestamp_seconds({old_s})"
            )),
            checked: None,
            check: Check::Lines,
        },
        Query {
            what: "names '*77.h5', with paths",
            gufi: words(&[
                "-E",
                &format!("SELECT {path} FROM vrpentries WHERE name LIKE '%77.h5'"),
            ]),
            find: Some(words(&["find", root, "!", "-type", "d", "-name", "*77.h5"])),
            sql: Some("SELECT path FROM entries WHERE name LIKE '%77.h5'".to_owned()),
            checked: None,
            check: Check::Lines,
        },
    ];
    if place.xattrs {
        for (what, key) in [("xattr scan", "user.ext"), ("xattr stab", "user.needle")] {
            queries.push(Query {
                what,
                gufi: words(&[
                    "-x",
                    "-E",
                    &format!(
                        "SELECT {path}, uid, gid, xattr_value FROM vrxpentries WHERE xattr_name = \
                         CAST('{key}' AS BLOB)"
                    ),
                ]),
                find: None,
                sql: Some(format!("SELECT path, uid, gid, value FROM xattrs WHERE key = '{key}'")),
                checked: None,
                check: Check::Lines,
            });
        }
    }
    queries
}

/// GUFI's aggregation: a table a thread, filled in every directory, and one table of all threads.
fn aggregate(columns: &str, select: &str, merge: &str, end: &str) -> Vec<String> {
    let words = [
        "-I".to_owned(),
        format!("CREATE TABLE own({columns})"),
        "-E".to_owned(),
        format!("INSERT INTO own {select}"),
        "-K".to_owned(),
        format!("CREATE TABLE whole({columns})"),
        "-J".to_owned(),
        format!("INSERT INTO whole {merge}own{}", end.replace(" ORDER BY uid", "")),
        "-G".to_owned(),
        format!("{merge}whole{end}"),
    ];
    words.into()
}
