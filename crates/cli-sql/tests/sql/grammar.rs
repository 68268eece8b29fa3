//! Clauses that the parser accepts: each means what it means in PostgreSQL or DuckDB, or is an
//! error. Needs root.

use crate::common;

use common::Fixture;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

const NAMES: [&str; 6] = ["a.txt", "atxt", "foo", "foobar", "x50%", "x50y"];

fn indexed() -> (Fixture, PathBuf) {
    let place = Fixture::new();
    let tree = place.path("tree");
    fs::create_dir_all(tree.join("sub")).unwrap();
    for (size, name) in NAMES.iter().enumerate() {
        fs::write(tree.join(name), "x".repeat(size)).unwrap();
    }
    let index = place.path("index");
    place.index(&index, &tree);
    (place, index)
}

fn ask(place: &Fixture, index: &Path, query: &str) -> Output {
    place.canopy(index, &["sql", "--format", "csv", query].map(OsStr::new))
}

/// The rows of an answer, joined by blanks.
fn rows(place: &Fixture, index: &Path, query: &str) -> String {
    let output = ask(place, index, query);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{query}: {said}");
    let shown = String::from_utf8(output.stdout).unwrap();
    shown.lines().skip(1).collect::<Vec<_>>().join(" ")
}

#[test]
fn patterns_are_those_of_postgresql() {
    let (place, index) = indexed();
    let names = |condition: &str| {
        rows(&place, &index, &format!("SELECT name FROM entries WHERE {condition} ORDER BY name"))
    };
    for (condition, expected) in [
        // Found nothing.
        ("name SIMILAR TO '%.txt'", "a.txt"),
        // Found foobar, too.
        ("name SIMILAR TO 'foo'", "foo"),
        ("name SIMILAR TO 'foo|a%'", "a.txt atxt foo"),
        ("name NOT SIMILAR TO '(foo|a)%'", "x50% x50y"),
        ("name SIMILAR TO 'x50!%' ESCAPE '!'", "x50%"),
        ("name SIMILAR TO 'x50\\%'", "x50%"),
        ("name SIMILAR TO substr(name, 1, 3) || '%'", &NAMES.join(" ")),
        ("name SIMILAR TO NULL", ""),
        ("name LIKE 'x50!%' ESCAPE '!'", "x50%"),
        ("name NOT LIKE '%!%%' ESCAPE '!' AND name LIKE 'x%'", "x50y"),
        ("name ILIKE 'X50!%' ESCAPE '!'", "x50%"),
        ("name LIKE 'x50\\%'", "x50%"),
        ("name LIKE 'x50\\%' ESCAPE ''", ""),
        ("name COLLATE \"C\" > 'x50'", "x50% x50y"),
    ] {
        assert_eq!(names(condition), expected, "{condition}");
    }
}

#[test]
fn clauses_that_the_engine_passes_over_are_carried_out() {
    let (place, index) = indexed();
    for (query, expected) in [
        ("SELECT size FROM entries ORDER BY size FETCH FIRST 2 ROWS ONLY", "0 1"),
        ("SELECT size FROM entries ORDER BY size OFFSET 1 ROWS FETCH NEXT ROW ONLY", "1"),
        // A sum beside a window of that name.
        (
            "SELECT name FROM entries WINDOW w AS (PARTITION BY size % 2) \
             ORDER BY sum(size) OVER w, name",
            "a.txt foo x50% atxt foobar x50y",
        ),
        (
            "SELECT name, sum(size) OVER (w ORDER BY size) AS s FROM entries \
             WINDOW w AS (PARTITION BY size % 2) QUALIFY sum(size) OVER (w ORDER BY size) = 2",
            "foo,2",
        ),
        ("SELECT name FROM entries SEMI JOIN (SELECT 2 AS size) b USING (size)", "foo"),
        ("SELECT count(*) FROM entries ANTI JOIN (SELECT 2 AS size) b USING (size)", "5"),
        // The order was lost.
        ("SELECT size FROM (SELECT size FROM entries ORDER BY size DESC) LIMIT 2", "5 4"),
        ("SELECT size % 2, count(*) FROM entries GROUP BY ALL ORDER BY ALL", "0,3 1,3"),
        ("SELECT 2 AS a UNION SELECT 1 ORDER BY ALL", "1 2"),
        ("SELECT DISTINCT ON (size % 2) size FROM entries ORDER BY size % 2, size", "0 1"),
        ("SELECT count(*) FILTER (WHERE size > 3) FROM entries", "2"),
        ("SELECT sum(size) FROM entries GROUP BY ROLLUP (size % 2) ORDER BY 1", "6 9 15"),
        ("SELECT size FROM entries WHERE size = ANY (ARRAY[1, 2]) ORDER BY 1", "1 2"),
        ("SELECT name FROM entries CROSS JOIN (SELECT 1) b ORDER BY 1 LIMIT 1", "a.txt"),
        ("SELECT 7 // 2, 7 % 2", "3,1"),
        // Had no columns.
        ("FROM (SELECT 1 AS a, 2 AS b) x", "1,2"),
        ("FROM entries SELECT max(size)", "5"),
        // Were bytes.
        ("SELECT 0x10, 0xfF + 1, 0x7fffffffffffffff", "16,256,9223372036854775807"),
        ("SELECT size FROM entries WHERE size = 0x2", "2"),
        ("SELECT X'6162' = 'ab'", "true"),
        ("SELECT 1 a, 2 AS b", "1,2"),
        ("SELECT * REPLACE (size + 1 AS size) FROM (SELECT max(size) AS size FROM entries)", "6"),
        // An expression of aggregates, without a name.
        ("SELECT size % 2, sum(size) * 2 FROM entries GROUP BY 1 ORDER BY 2", "0,12 1,18"),
        (
            "SELECT size % 2, sum(size) / count(*) FROM entries GROUP BY 1 ORDER BY 2 DESC",
            "1,3 0,2",
        ),
        ("SELECT extension(name), count(*) + 1 FROM entries GROUP BY 1 ORDER BY 2, 1", "txt,2 ,6"),
        (
            "SELECT user_name(0), group_name(0::BIGINT), user_name(4294967299)",
            "root,root,4294967299",
        ),
        ("SELECT human_size(1.5), human_size(2048)", "2,2.0K"),
    ] {
        assert_eq!(rows(&place, &index, query), expected, "{query}");
    }
    assert_eq!(rows(&place, &index, "SELECT human_size(avg(size)) FROM entries"), "3");
    let titles = ask(&place, &index, "SELECT uid, sum(size)/2 FROM entries GROUP BY 1 ORDER BY 2");
    assert!(String::from_utf8_lossy(&titles.stdout).starts_with("uid,sum(size) / 2\n"));
}

#[test]
fn unknown_clauses_are_errors() {
    let (place, index) = indexed();
    for (query, words) in [
        ("SELECT * FROM entries TABLESAMPLE BERNOULLI (10)", "WHERE random() < 0.1"),
        ("SELECT * FROM entries FOR UPDATE", "queries lock nothing"),
        ("SELECT * FROM entries FOR SHARE", "queries lock nothing"),
        ("SELECT size FROM entries LIMIT 1 BY size", "LIMIT BY is not known"),
        ("SELECT size FROM entries PREWHERE size > 1", "write WHERE"),
        ("SELECT size, count(*) FROM entries GROUP BY size WITH ROLLUP", "GROUP BY ROLLUP (a, b)"),
        ("SELECT * REPLACE (1 AS nosuch) FROM entries", "no column 'nosuch' to REPLACE"),
        ("SELECT * ILIKE '%size%' FROM entries", "* ILIKE is not known"),
        ("SELECT name FROM entries ORDER BY 'size'", "write the column size without quotes"),
        ("SELECT count(*) FROM entries GROUP BY 'size'", "write the column size without quotes"),
        ("SELECT a.name FROM entries a JOIN entries b", "JOIN needs ON or USING"),
        ("SELECT a.name FROM entries a LEFT JOIN entries b", "JOIN needs ON or USING"),
        ("SELECT upper(DISTINCT name) FROM entries", "DISTINCT is for functions of several rows"),
        ("SELECT upper(name) FILTER (WHERE size > 1) FROM entries", "FILTER is for functions of"),
        ("SELECT upper(name) OVER () FROM entries", "OVER is for functions of several rows"),
        (
            "SELECT row_number() IGNORE NULLS OVER (ORDER BY size) FROM entries",
            "IGNORE NULLS is for",
        ),
        ("SELECT size FROM entries ORDER BY sum(size) OVER w", "no window 'w'"),
        ("SELECT 2 ^ 3", "write power(a, b)"),
        // Were 1, 0 and 1 with names.
        ("SELECT 1_000", "'1_000' is not a number"),
        ("SELECT 0b11 FROM entries", "'0b11' is not a number"),
        ("SELECT x FROM (SELECT 1K x)", ""),
        ("SELECT 1K", "'1K' is not a number"),
        ("SELECT 0x1ffffffffffffffff", "0x1ffffffffffffffff has more than 64 bits"),
        ("SELECT name COLLATE \"de_DE\" FROM entries", "no collation de_DE"),
        (
            "SELECT size FROM entries FETCH FIRST 10 PERCENT ROWS ONLY",
            "FETCH takes a number of rows",
        ),
        ("SELECT size FROM entries FETCH FIRST 1 ROW WITH TIES", "FETCH takes a number of rows"),
        ("SELECT size FROM entries LIMIT 1 FETCH FIRST 1 ROW ONLY", "leave one out"),
        ("SELECT * FROM entries UNION SELECT * FROM entries ORDER BY ALL", "in place of *"),
        (
            "SELECT name FROM entries WHERE name LIKE 'a!' ESCAPE '!'",
            "ends with its escape character",
        ),
        ("SELECT name FROM entries WHERE name LIKE 'a' ESCAPE '!!'", "ESCAPE takes one character"),
        ("SELECT name FROM entries FOR SYSTEM_TIME AS OF '2026-01-01'", ""),
        ("SELECT * FROM generate_series(1, 2) WITH ORDINALITY", "row_number() OVER ()"),
        ("SELECT name FROM entries WHERE (size, 1) OVERLAPS (2, 3)", ""),
        ("SELECT name FROM entries WHERE name = 5", "cannot compare"),
        ("SELECT name FROM entries WHERE name IN (5)", "cannot compare"),
        ("SELECT name FROM entries WHERE size < name", "cannot compare"),
    ] {
        let output = ask(&place, &index, query);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{query}: {said}");
        assert!(said.contains(words), "{query}: {said}");
        assert!(!said.contains("sqltorel") && !said.contains("Span"), "{query}: {said}");
    }
}

/// Conditions that no row can fulfil, each with what is said of it.
#[test]
fn values_that_a_column_never_holds_get_a_hint() {
    let (place, index) = indexed();
    for (condition, hint) in [
        ("type = 'd'", "see the table directories"),
        ("type = 'file'", "type = 'f'"),
        ("type <> 'symlink'", "type = 'l'"),
        ("type IN ('f', 'x')", "never 'x'"),
        ("mode = 644", "(0644 is 420): mode & 4095 = 420"),
        ("mode = 0644", "(0644 is 420): mode & 4095 = 420"),
        ("mode & 511 = 644", "for 0644 write 420"),
        ("mode & 777 = 420", "for 0777 write 511"),
        ("name = '/etc/foo'", "name is without directories"),
        ("name LIKE '*.txt'", "'%.txt'"),
        ("extension(name) = '.txt'", "extension(name) = 'txt'"),
    ] {
        for query in [
            format!("SELECT count(*) FROM entries WHERE {condition}"),
            format!("SELECT count(*) FROM entries e WHERE {condition} OR size < 0"),
            format!("WITH c AS (SELECT * FROM entries WHERE {condition}) SELECT count(*) FROM c"),
            format!("SELECT count(*) FILTER (WHERE {condition}) FROM entries"),
        ] {
            let output = ask(&place, &index, &query);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{query}: {said}");
            assert_eq!(said.matches(hint).count(), 1, "{query}: {said}");
        }
    }
    for query in [
        "SELECT count(*) FROM entries WHERE type = 'f' AND mode & 4095 = 420",
        "SELECT count(*) FROM directories WHERE type = 'd'",
        "SELECT count(*) FROM entries WHERE mode = 33188 AND name LIKE '%*%'",
        "SELECT count(*) FROM (SELECT 'd' AS type FROM entries) WHERE type = 'd'",
        "SELECT count(*) FROM pentries WHERE type = 'd'",
    ] {
        let output = ask(&place, &index, query);
        assert!(output.status.success() && output.stderr.is_empty(), "{query}: {output:?}");
    }
}

/// The engine took the outer column for the inner one in ALL and ANY, and did not see NULLs in some
/// forms of NOT IN.
#[test]
#[expect(clippy::too_many_lines, reason = "a list of cases")]
fn subqueries_that_would_be_answered_wrongly_are_refused() {
    let (place, index) = indexed();
    for (query, says) in [
        ("SELECT name FROM entries WHERE size >= ALL (SELECT size FROM entries)", "write IN"),
        ("SELECT name FROM entries WHERE size < ANY (SELECT size FROM entries)", "write IN"),
        ("SELECT name FROM entries WHERE 'zz' NOT IN (SELECT target FROM entries)", "NOT EXISTS"),
        (
            "SELECT name FROM entries WHERE size = 7 OR name NOT IN (SELECT target FROM entries)",
            "NOT EXISTS",
        ),
        (
            "SELECT name FROM entries e WHERE name NOT IN \
             (SELECT f.target FROM entries f WHERE f.size < e.size)",
            "NOT EXISTS",
        ),
        (
            "SELECT name FROM entries e WHERE EXISTS \
             (SELECT count(*) FROM entries f WHERE f.name = e.target)",
            "always true",
        ),
        (
            "SELECT name FROM entries e WHERE EXISTS \
             (SELECT coalesce(max(size), 1) FROM entries f WHERE f.name = e.target)",
            "always true",
        ),
        ("SELECT name FROM entries WHERE EXISTS (SELECT 1 FROM entries OFFSET 50)", "OFFSET"),
        (
            "SELECT name FROM entries e WHERE 0 IN \
             (SELECT count(*) FROM entries f WHERE f.name = e.target)",
            "= (SELECT ...)",
        ),
        (
            "SELECT name FROM entries WHERE nullif(uid, 0) NOT IN (SELECT uid FROM directories)",
            "NOT EXISTS",
        ),
        (
            "SELECT name FROM entries WHERE NOT (name IN (SELECT target FROM entries) AND size = 0)",
            "NOT EXISTS",
        ),
        (
            "SELECT name FROM entries WHERE (name NOT IN (SELECT target FROM entries)) IS NULL",
            "not a value",
        ),
        (
            "SELECT name FROM entries WHERE coalesce(name IN (SELECT target FROM entries), true)",
            "not a value",
        ),
        (
            "SELECT name FROM entries WHERE (name IN (SELECT target FROM entries)) = false",
            "not a value",
        ),
        (
            "SELECT x FROM (SELECT 1 AS x) a RIGHT JOIN (SELECT 2 AS x) b USING (x)",
            "coalesce(a.x, b.x)",
        ),
        (
            "SELECT x FROM (SELECT 1 AS x) a NATURAL FULL JOIN (SELECT 2 AS x) b",
            "coalesce(a.x, b.x)",
        ),
        ("SELECT size FROM entries EXCEPT ALL SELECT 1", "leave out ALL"),
        ("SELECT size FROM entries INTERSECT ALL SELECT 1", "leave out ALL"),
        ("SELECT name FROM entries WHERE name SIMILAR TO 'run\\d+'", "[0-9]"),
        ("SELECT to_char(mtime, 'YYYY-MM-DD') FROM entries", "'%Y-%m-%d'"),
    ] {
        let output = ask(&place, &index, query);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{query}: {said}");
        assert!(said.contains(says), "{query}: {said}");
    }
    for (query, expected) in [
        (
            "SELECT name FROM entries WHERE name NOT IN (SELECT f.name FROM entries f WHERE \
             f.size > 0) AND type = 'f'",
            "a.txt",
        ),
        (
            "SELECT name FROM entries e WHERE NOT EXISTS (SELECT 1 FROM entries f WHERE \
             f.size < e.size) AND type = 'f'",
            "a.txt",
        ),
        ("SELECT min(name) FROM entries WHERE lower(name) NOT IN (SELECT 'a.txt')", "atxt"),
        ("SELECT min(name) FROM entries WHERE NOT (name IN (SELECT 'a.txt'))", "atxt"),
        ("SELECT min(name) FROM entries WHERE name IN (SELECT 'foo') OR size = 0", "a.txt"),
        ("SELECT min(name) FROM entries WHERE EXISTS (SELECT 1 FROM entries LIMIT 1)", "a.txt"),
        (
            "SELECT 36893488147419103231 - 1, -36893488147419103231",
            "36893488147419103230,-36893488147419103231",
        ),
        ("SELECT x FROM (SELECT 1 AS x) a LEFT JOIN (SELECT 1 AS x) b USING (x)", "1"),
        ("SELECT size FROM entries EXCEPT SELECT 1 ORDER BY 1 LIMIT 2", "0 2"),
        ("SELECT to_char(TIMESTAMP '2024-05-06', '%Y-%m-%d')", "2024-05-06"),
    ] {
        assert_eq!(rows(&place, &index, query), expected, "{query}");
    }
}
