//! Integer arithmetic in SQL: an answer is right, or it is an error. The engine's own arithmetic wraps.
//! Needs root.

use crate::common;

use common::Fixture;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Output;

const TIB: u64 = 1 << 40;

/// A tree on a file system that has files of 8 EiB, indexed: one of 8 TiB, and three of a user who
/// owns nothing else, of 2^63 - 1 bytes each.
fn indexed() -> (Fixture, common::SmallDisk, PathBuf) {
    let place = Fixture::new();
    let disk = place.small_disk("disk", "16m");
    let tree = disk.0.join("tree");
    fs::create_dir(&tree).unwrap();
    let file = |name: &str, size: u64, uid: u32| {
        let path = tree.join(name);
        fs::File::create(&path).unwrap().set_len(size).unwrap();
        chown(&path, Some(uid), None).unwrap();
    };
    file("large", 8 * TIB, 2001);
    for name in ["a", "b", "c"] {
        file(name, i64::MAX as u64, 2002);
    }
    fs::set_permissions(&tree, fs::Permissions::from_mode(0o755)).unwrap();
    let index = place.path("index");
    place.index(&index, &tree);
    (place, disk, index)
}

fn ask(place: &Fixture, index: &Path, options: &[&str], query: &str) -> Output {
    let arguments: Vec<&OsStr> =
        ["sql"].iter().chain(options).chain([&query]).map(OsStr::new).collect();
    place.canopy(index, &arguments)
}

/// The answer as CSV without its header; else what was said.
fn answer(place: &Fixture, index: &Path, query: &str) -> Result<String, String> {
    let output = ask(place, index, &["--format", "csv"], query);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.code() {
        Some(0) => Ok(text(&output.stdout).lines().skip(1).collect::<Vec<_>>().join("\n")),
        _ => Err(text(&output.stderr)),
    }
}

#[test]
fn no_operator_wraps() {
    let (place, _disk, index) = indexed();
    for (expression, expected) in [
        // Was 0.
        ("max(size) FILTER (WHERE name = 'large') * 2", Some("17592186044416")),
        ("9223372036854775806 + 1", Some("9223372036854775807")),
        // Was -9223372036854775808.
        ("9223372036854775807 + 1", None),
        ("-9223372036854775807 - 2", None),
        ("3037000500 * 3037000500", None),
        ("- (-9223372036854775807 - 1)", None),
        ("abs(-9223372036854775807 - 1)", None),
        ("1 << 62", Some("4611686018427387904")),
        // Was 1.
        ("1 << 64", None),
        ("1 << 63", None),
        ("1 << -1", None),
        ("-8 >> 1", Some("-4")),
        ("7 / 2", Some("3")),
        ("-7 / 2", Some("-3")),
        ("7 % 0", None),
        ("-(5)", Some("-5")),
        ("-(2.5)", Some("-2.5")),
        ("2.5 * 2", Some("5.0")),
        ("CAST(300 AS TINYINT)", None),
        ("CAST(1e30 AS BIGINT)", None),
        ("CAST(9223372036854775807 AS DECIMAL(38, 0)) + 1", Some("9223372036854775808")),
        ("18446744073709551615 + 1", Some("18446744073709551616")),
        ("1 - 18446744073709551615", Some("-18446744073709551614")),
        ("18446744073709551615 * 18446744073709551615", None),
        ("4294967296 * 18446744073709551615", Some("79228162514264337589248983040")),
        ("NULL + 1", Some("\"\"")),
        ("sum(NULL::BIGINT)", Some("\"\"")),
    ] {
        let query = format!("SELECT {expression} AS x FROM entries");
        let query = match expression.contains("max(") || expression.contains("sum(") {
            true => query,
            false => format!("SELECT {expression} AS x"),
        };
        let answered = answer(&place, &index, &query);
        match expected {
            Some(expected) => assert_eq!(answered.as_deref(), Ok(expected), "{expression}"),
            None => {
                let said = answered.expect_err(expression);
                assert!(!said.contains("Overflow") && !said.contains("int64Array"), "{said}");
            }
        }
    }
    for query in [
        "SELECT size * size * size FROM entries WHERE name = 'large'",
        "SELECT name FROM entries WHERE size * size * size = 0",
        "SELECT count(*) FROM entries GROUP BY size * size * size",
        "SELECT name FROM entries ORDER BY size * size * size",
        "SELECT name FROM entries WHERE size << 1 < 0",
        "SELECT a.name FROM entries a JOIN entries b ON (a.size << 1) + b.size < 0",
    ] {
        let said = answer(&place, &index, query).unwrap_err();
        assert!(said.contains("the result is too large"), "{query}: {said}");
        assert!(said.contains("CAST(x AS DECIMAL(38, 0))"), "{query}: {said}");
    }
}

/// The file of one user made what others computed of sizes an error.
#[test]
fn arithmetic_with_sizes_of_huge_files_does_not_fail() {
    let (place, _disk, index) = indexed();
    for (query, expected) in [
        ("SELECT count(*) FROM entries WHERE size + 4096 > 1", "4"),
        ("SELECT max(size * size) FROM entries", "85070591730234615847396907784232501249"),
        ("SELECT max(size) + 1 FROM entries", "9223372036854775808"),
        (
            "SELECT uid, max(size) * 2 FROM entries GROUP BY uid ORDER BY 1",
            "2001,17592186044416\n2002,18446744073709551614",
        ),
        (
            "SELECT DISTINCT coalesce(size, 0) + size FROM entries ORDER BY 1",
            "17592186044416\n18446744073709551614",
        ),
        (
            "SELECT max(CASE WHEN size > 5 THEN size ELSE 0 END + 1) FROM entries",
            "9223372036854775808",
        ),
        ("SELECT min(-size) FROM entries", "-9223372036854775807"),
        ("SELECT max(total) + 1 FROM (SELECT max(size) AS total FROM entries)", ""),
        ("SELECT sum(blocks * 512) FROM entries", "0"),
        // Functions take what is computed so.
        ("SELECT max(log10(size + 1)) < 19 FROM entries", "true"),
        ("SELECT max(floor(log2(size + 1))) FROM entries", "63.0"),
        ("SELECT round(sqrt(size * 2)) FROM entries WHERE uid = 2001", "4194304.0"),
        ("SELECT power(size + 0, 2) FROM entries WHERE uid = 2001", "7.737125245533627e25"),
        ("SELECT ln(size - 8796093022207) FROM entries WHERE uid = 2001", "0.0"),
        (
            "SELECT abs(size * -1), signum(size * -1) FROM entries WHERE uid = 2001",
            "8796093022208,-1.0",
        ),
        ("SELECT human_size(size * 2) FROM entries WHERE uid = 2001", "16T"),
        ("SELECT round(size * 100.0 / (size + 1), 1) FROM entries WHERE uid = 2001", "100.0"),
        (
            "SELECT (size + 1) / 1024, (size + 1) % 1024 FROM entries WHERE uid = 2001",
            "8589934592,1",
        ),
        ("SELECT (size + 1) >> 40 FROM entries WHERE uid = 2001", "8"),
        ("SELECT greatest(size + 1, 5) FROM entries WHERE uid = 2001", "8796093022209"),
        (
            "SELECT size + 1 FROM entries WHERE uid = 2001 UNION ALL SELECT 7 ORDER BY 1",
            "7\n8796093022209",
        ),
        ("SELECT count(*) FROM entries WHERE size + 1 IN (8796093022209, 5)", "1"),
        ("SELECT count(*) FROM entries WHERE size * 2 BETWEEN 1 AND 17592186044416", "1"),
        ("SELECT avg(size * 2) FROM entries WHERE uid = 2001", "17592186044416.0"),
        ("SELECT median(size * 2) FROM entries WHERE uid = 2001", "17592186044416"),
        ("SELECT concat('x', size + 1) FROM entries WHERE uid = 2001", "x8796093022209"),
        ("SELECT (size + 1)::TEXT || 'x' FROM entries WHERE uid = 2001", "8796093022209x"),
        ("SELECT CAST(size + 1 AS BIGINT) FROM entries WHERE uid = 2001", "8796093022209"),
        ("SELECT repeat('x', CAST(size * 0 + 2 AS INT)) FROM entries WHERE uid = 2001", "xx"),
        ("SELECT count(*) FROM entries GROUP BY floor(log10(size + 1)) ORDER BY 1", "1\n3"),
        ("SELECT count(DISTINCT size * 3) FROM entries", "2"),
        ("SELECT to_timestamp(size * 0 + 1) FROM entries WHERE uid = 2001", "1970-01-01T00:00:01"),
        (
            "WITH RECURSIVE t(size) AS (SELECT 1 UNION ALL SELECT size + 1 FROM t WHERE size < 4) \
             SELECT max(size) FROM t",
            "4",
        ),
    ] {
        let answered = answer(&place, &index, query);
        match expected {
            "" => assert!(answered.unwrap_err().contains("the result is too large"), "{query}"),
            expected => assert_eq!(answered.as_deref(), Ok(expected), "{query}"),
        }
    }
}

#[test]
fn unsigned_columns_have_negative_differences() {
    let (place, _disk, index) = indexed();
    for (query, expected) in [
        // Was 4294967294 of each, and the filter found nothing.
        ("SELECT DISTINCT depth - nlink - 2 FROM entries", "-2"),
        ("SELECT count(*) FROM entries WHERE depth - nlink < 1", "4"),
        ("SELECT count(*) FROM entries WHERE depth - nlink - nlink < 0", "4"),
        ("SELECT count(*) FROM entries WHERE -depth < 0", "4"),
        ("SELECT min(uid - 2002) FROM entries", "-1"),
        ("SELECT DISTINCT signum(ino - 2 * ino) FROM entries", "-1.0"),
        ("SELECT DISTINCT ino - ino - 1 FROM entries", "-1"),
        ("SELECT DISTINCT uid * 4294967295 - uid * 4294967295 FROM entries", "0"),
        ("SELECT count(*) FROM entries WHERE depth - nlink < depth", "4"),
        ("SELECT count(*) FROM entries WHERE depth IN (depth + nlink - 1)", "4"),
        ("SELECT DISTINCT (size + 0) * 1 - (size + 0) * 1 FROM entries", "0"),
        ("SELECT d FROM (SELECT depth - 2 AS d FROM entries) WHERE d < 0 GROUP BY d", "-1"),
        (
            "SELECT count(*) FROM entries e WHERE depth - 2 = \
             (SELECT min(depth - 2) FROM entries i WHERE i.uid = e.uid)",
            "4",
        ),
        ("SELECT depth - 2 FROM entries UNION SELECT -5 ORDER BY 1", "-5\n-1"),
    ] {
        assert_eq!(answer(&place, &index, query).as_deref(), Ok(expected), "{query}");
    }
}

#[test]
fn sums_of_huge_files_are_right() {
    let (place, _disk, index) = indexed();
    let three = 3 * i128::from(i64::MAX);
    let all = three + i128::from(8 * TIB);
    let all = all.to_string();
    let of = |query: &str| answer(&place, &index, query).unwrap_or_else(|said| panic!("{said}"));
    // Was negative.
    assert_eq!(of("SELECT sum(size) FROM entries"), all);
    assert_eq!(of("SELECT sum(x) FROM (SELECT sum(size) AS x FROM entries GROUP BY uid)"), all);
    assert_eq!(
        of("SELECT uid, sum(size) FROM entries GROUP BY uid ORDER BY 1"),
        format!("2001,{}\n2002,{three}", 8 * TIB)
    );
    assert_eq!(
        of("SELECT uid, sum(DISTINCT size), count(*) FROM entries GROUP BY uid ORDER BY uid"),
        format!("2001,{},1\n2002,{},3", 8 * TIB, i64::MAX)
    );
    let windows = "SELECT sum(size) OVER (ORDER BY name ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) \
                   FROM entries ORDER BY name";
    let two = 2 * i128::from(i64::MAX);
    let last = i128::from(i64::MAX) + i128::from(8 * TIB);
    assert_eq!(of(windows), format!("{}\n{two}\n{two}\n{last}", i64::MAX));
    // Dividing whole numbers gives whole numbers.
    assert_eq!(
        of("SELECT sum(size) / 1024 FROM entries WHERE uid = 2001"),
        (8 * TIB / 1024).to_string()
    );
    assert_eq!(
        of("SELECT sum(size) // count(*) FROM entries"),
        (all.parse::<i128>().unwrap() / 4).to_string()
    );
    assert_eq!(of("SELECT sum(size) - sum(size) - 1 FROM entries"), "-1");
    assert_eq!(of("SELECT count(*) FROM entries HAVING sum(size) > 27670116110564327421"), "4");
    assert_eq!(of("SELECT human_size(sum(size)) FROM entries"), "25E");
    assert_eq!(of("SELECT avg(size) > 6.9e18 FROM entries"), "true");
    assert!(
        answer(&place, &index, "SELECT sum(size) / 0 FROM entries").unwrap_err().contains("zero")
    );
    // GUFI's sums are sums, and its columns of sums end at 2^63 - 1.
    assert_eq!(of("SELECT sum(size) FROM pentries"), all);
    assert_eq!(
        of("SELECT totsize FROM treesummary WHERE path() = path() ORDER BY 1 DESC LIMIT 1"),
        i64::MAX.to_string()
    );
    for (format, expected) in [
        ("json", format!("[{{\"s\":{all}}}]\n")),
        ("ndjson", format!("{{\"s\":{all}}}\n")),
        ("line", format!("s = {all}\n")),
    ] {
        let output =
            ask(&place, &index, &["--format", format], "SELECT sum(size) AS s FROM entries");
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{format}");
    }
}

#[test]
fn durations_are_added_up_without_wrapping() {
    let (place, _disk, index) = indexed();
    let hundred = "INTERVAL '100 years'";
    let ages = format!(
        "(SELECT TIMESTAMP '2026-01-01' - (TIMESTAMP '2026-01-01' - {hundred}) AS age FROM entries)"
    );
    let mean = answer(&place, &index, &format!("SELECT avg(age) = min(age) FROM {ages}"));
    // Four times a hundred years are more nanoseconds than 64 bits have.
    assert_eq!(mean.as_deref(), Ok("true"));
    let grouped = format!("SELECT avg(age) = min(age) FROM {ages} GROUP BY age");
    assert_eq!(answer(&place, &index, &grouped).as_deref(), Ok("true"));
    let said = answer(&place, &index, &format!("SELECT sum(age) FROM {ages}")).unwrap_err();
    assert!(said.contains("longer than 292 years"), "{said}");
}
