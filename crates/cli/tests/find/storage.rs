//! Where Lustre keeps files, as their extended attributes tell: find in the index and live, and
//! SQL. The attributes are set on an ordinary file system, which keeps them as Lustre's servers do.
//! Needs root.

use crate::common;

use canopy_model::fuzzing::lustre::{composite, hsm, layouts, plain, striped};
use common::{Fixture, User, assert_same, sorted};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A tree of files with layouts, by name.
fn tree(place: &Fixture) -> PathBuf {
    let tree = place.path("tree");
    let set = |name: &str, key: &str, value: &[u8]| {
        let path = tree.join(name);
        rustix::fs::setxattr(path, key, value, rustix::fs::XattrFlags::empty()).unwrap();
    };
    for directory in ["striped", "private"] {
        fs::create_dir_all(tree.join(directory)).unwrap();
    }
    fs::set_permissions(tree.join("private"), fs::Permissions::from_mode(0o700)).unwrap();
    let names = ["one", "over", "released", "foreign", "private/parts", "none", "planned"];
    for name in names {
        fs::write(tree.join(name), vec![b'x'; 3 << 20]).unwrap();
    }
    for (name, layout) in names.iter().zip(layouts()) {
        set(name, "trusted.lov", &layout);
    }
    let planned = plain(1, 1 << 20, 2, "flash", &[u32::MAX, u32::MAX]);
    set("planned", "trusted.lov", &composite(&[(1, 0, 0, u64::MAX, planned)]));
    // Files that are made here get such a layout.
    set("striped", "trusted.lov", &plain(1, 1 << 22, 4, "disk", &[]));
    set("striped", "trusted.lmv", &striped(&[1, 0, 2], 3));
    set("released", "trusted.hsm", &hsm(0xD, 2));
    set("one", "trusted.hsm", &hsm(0x3, 1));
    for (name, project) in [("one", "1000"), ("striped", "1000"), ("none", "7"), ("over", "0")] {
        set(name, "trusted.projid", project.as_bytes());
    }
    tree
}

/// The output of find as a user, in the index or live, sorted; with its messages and exit code.
fn found(
    place: &Fixture,
    user: &User,
    mode: Option<&str>,
    tree: &Path,
    words: &[&str],
) -> (Vec<String>, String, Option<i32>) {
    let index = place.path("index");
    let mut arguments =
        vec![OsStr::new("--index"), index.as_os_str(), "find".as_ref(), tree.as_os_str()];
    arguments.extend(mode.iter().map(OsStr::new));
    arguments.extend(words.iter().map(OsStr::new));
    arguments.extend(["-printf", "%P\\0"].map(OsStr::new));
    let output = user.run(place.canopy.as_os_str(), &arguments);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (sorted(&output.stdout, 0), errors, output.status.code())
}

fn rows(place: &Fixture, user: &User, query: &str) -> Vec<String> {
    let index = place.path("index");
    let words = ["--index".as_ref(), index.as_os_str(), "sql".as_ref(), "--format".as_ref()];
    let words = words.into_iter().chain(["csv", query].map(OsStr::new)).collect::<Vec<_>>();
    let output = user.run(place.canopy.as_os_str(), &words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().skip(1).map(str::to_owned).collect()
}

fn user(uid: u32) -> User {
    User { uid, gid: uid + 1000, groups: vec![] }
}

#[test]
fn files_are_found_by_where_lustre_keeps_them() {
    let place = Fixture::new();
    let tree = tree(&place);
    place.index(&place.path("index"), &tree);
    let cases: [(&[&str], &[&str]); 20] = [
        (&["-ost", "17"], &["private/parts"]),
        (&["-ost", "5,3"], &["one", "over", "private/parts"]),
        (&["-ost", "4-6", "-size", "+1M", "-name", "o*"], &["one", "over"]),
        (&["-type", "f", "!", "-ost", "0-99"], &["foreign", "none", "planned", "released"]),
        (&["-pool", "flash"], &["over", "private/parts"]),
        (&["-pool", "d*"], &["striped"]),
        (&["-stripe-count", "+1"], &["over", "private/parts", "released", "striped"]),
        (&["-stripe-count", "0"], &["foreign", "planned"]),
        (&["-stripe-size", "4M"], &["over", "striped"]),
        (&["-stripe-size", "-2M", "-type", "f"], &["one", "private/parts", "released"]),
        (&["-component-count", "+0"], &["planned", "private/parts"]),
        (&["-mdt-index", "1"], &["striped"]),
        (&["-mdt-index", "0,2-9"], &[]),
        (&["-hsm-state", "exists"], &["one", "released"]),
        (&["-hsm-state", "exists,released"], &["released"]),
        (&["(", "-ost", "17", "-o", "-hsm-state", "dirty", ")"], &["one", "private/parts"]),
        (&["-xattr", "trusted.hsm", "-ost", "5"], &["one"]),
        (&["-projid", "1000"], &["one", "striped"]),
        (&["-projid", "-1000"], &["none"]),
        (&["-projid", "0"], &[]),
    ];
    let root = user(0);
    for (words, expected) in cases {
        let expected: Vec<String> = expected.iter().map(|name| name.to_string()).collect();
        for mode in [None, Some("--live")] {
            let (names, errors, code) = found(&place, &root, mode, &tree, words);
            assert_same(&names, &expected, &format!("{words:?} {mode:?}"));
            assert_eq!((errors.as_str(), code), ("", Some(0)), "{words:?} {mode:?}");
        }
        // What only root is shown tells nobody else anything.
        let nothing: (Vec<String>, _, _) = match words.contains(&"!") {
            true => continue,
            false => (Vec::new(), String::new(), Some(0)),
        };
        let (names, ..) = found(&place, &user(2001), Some("--live"), &tree, words);
        assert!(names.is_empty());
        assert_eq!(found(&place, &user(2001), None, &tree, words), nothing, "{words:?}");
    }
}

#[test]
fn layouts_are_rows() {
    let place = Fixture::new();
    let tree = tree(&place);
    place.index(&place.path("index"), &tree);
    let root = user(0);
    let parts = "SELECT component, mirror, extent_start, extent_end, stripe_count, stripe_size, \
                 pool, pattern, flags, osts, size FROM layouts WHERE name = 'parts' ORDER BY 1";
    assert_eq!(
        rows(&place, &root, parts),
        [
            "1,0,0,1048576,0,1048576,,mdt,init,,3145728",
            "2,0,1048576,1073741824,2,1048576,flash,raid0,init,\"3,17\",3145728",
            "3,0,1073741824,4294967296,0,67108864,flash,raid0,extension,,3145728",
            "4,0,4294967296,,,4194304,disk,raid0,,,3145728",
        ]
    );
    let drained = "SELECT name, ost, stripe, bytes FROM stripes WHERE ost IN (5, 17) ORDER BY 1, 3";
    assert_eq!(
        rows(&place, &root, drained),
        ["one,5,0,3145728", "over,5,0,3145728", "over,5,2,0", "parts,17,1,1048576"]
    );
    let directories = "SELECT name, type, mdt_index, stripe_count, hash FROM directory_layouts";
    assert_eq!(rows(&place, &root, directories), ["striped,d,1,3,crush"]);
    let archived = "SELECT name, state, archive, version FROM hsm ORDER BY name";
    assert_eq!(
        rows(&place, &root, archived),
        ["one,\"exists,dirty\",1,5", "released,\"exists,released,archived\",2,5"]
    );
    let by_pool =
        "SELECT pool, count(DISTINCT path), sum(bytes) FROM stripes GROUP BY pool ORDER BY 1";
    assert_eq!(rows(&place, &root, by_pool), [",1,3145728", "flash,2,5242880"]);
    for table in ["layouts", "stripes", "directory_layouts", "hsm"] {
        let all = format!("SELECT count(*) FROM {table}");
        assert_eq!(rows(&place, &user(2001), &all), ["0"], "{table}");
    }
}

/// A value that is not a layout is an error for find and a row of nulls in SQL: a list of what is
/// to be moved off an OST that lacks a file in silence costs that file.
#[test]
fn layouts_that_cannot_be_understood_are_not_left_out_in_silence() {
    let place = Fixture::new();
    let tree = tree(&place);
    let (broken, flags) = (tree.join("none"), rustix::fs::XattrFlags::empty());
    rustix::fs::setxattr(&broken, "trusted.lov", b"layout", flags).unwrap();
    place.index(&place.path("index"), &tree);
    for mode in [None, Some("--live")] {
        let (names, errors, code) = found(&place, &user(0), mode, &tree, &["-ost", "5"]);
        assert_eq!((names.len(), code), (2, Some(1)), "{mode:?}");
        let said = ": the value of trusted.lov cannot be understood\n";
        assert!(errors.contains("/none") && errors.ends_with(said), "{mode:?} {errors}");
        let (.., code) = found(&place, &user(0), mode, &tree, &["-name", "o*", "-pool", "flash"]);
        assert_eq!(code, Some(0), "not asked: {mode:?}");
    }
    let unknown = "SELECT name, pattern FROM layouts WHERE component IS NULL";
    assert_eq!(rows(&place, &user(0), unknown), ["none,"]);
}

/// The section `storage` of a report as a user gets it, if it has one.
fn reported(place: &Fixture, user: &User, arguments: &[&str]) -> Option<serde_json::Value> {
    let index = place.path("index");
    let words = ["--index".as_ref(), index.as_os_str(), "report".as_ref(), "--json".as_ref()];
    let words = words.into_iter().chain(arguments.iter().map(OsStr::new)).collect::<Vec<_>>();
    let output = user.run(place.canopy.as_os_str(), &words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    report.get("storage").cloned()
}

#[test]
fn reports_have_what_is_on_each_ost_and_in_each_pool() {
    let place = Fixture::new();
    let tree = tree(&place);
    place.index(&place.path("index"), &tree);
    let path = tree.to_str().unwrap();
    let whole = reported(&place, &user(0), &["--section", "storage", path]).unwrap();
    let mebibytes = |rows: &serde_json::Value| -> Vec<(String, i64, i64)> {
        let rows = rows["rows"].as_array().unwrap().iter();
        let number = |row: &serde_json::Value, key: &str| row[key].as_i64().unwrap();
        let row = |row: &serde_json::Value| {
            let bytes = number(row, "bytes");
            assert_eq!(bytes % (1 << 20), 0);
            (row["name"].as_str().unwrap().to_owned(), number(row, "entries"), bytes >> 20)
        };
        rows.map(row).collect()
    };
    let row = |name: &str, files, mebibytes| (name.to_owned(), files, mebibytes);
    // The file 'over' has two stripes on OST 5, and is one file there. The first MiB of 'parts' is
    // on an MDT.
    let osts = [row("5", 2, 6), row("17", 1, 1), row("3", 1, 1), row("6", 1, 0)];
    assert_eq!(mebibytes(&whole["osts"]), osts);
    assert_eq!(mebibytes(&whole["pools"]), [row("flash", 2, 5), row("", 1, 3)]);
    assert_eq!(whole["unknown"], 0);
    let short = reported(&place, &user(0), &["--section", "storage", "--top", "1", path]).unwrap();
    assert_eq!(
        (&short["osts"]["others"], &short["osts"]["rest"]["bytes"]),
        (&3.into(), &(2 << 20).into())
    );
    let below = reported(&place, &user(0), &[&format!("{path}/private")]).unwrap();
    assert_eq!(mebibytes(&below["pools"]), [row("flash", 1, 2)]);
    assert_eq!(reported(&place, &user(0), &[&format!("{path}/striped")]), None);
    assert_eq!(reported(&place, &user(2001), &[path]), None);
    assert_eq!(reported(&place, &user(0), &["--user", "2001", path]), None);
}

#[test]
fn policy_lists_of_storage_scale_tell_pools() {
    let place = Fixture::new();
    let line = |inode: u32, mode: &str, path: &str, storage: &str| {
        let time = "2026-01-01 00:00:00";
        format!(
            "{inode} 1 0  {mode}|1|2001|3001|9|4|4096|{time}|{time}|{time}|{time}{storage} -- \
             %2Fgpfs{path}\n"
        )
    };
    let lines = [
        line(3, "drwxr-xr-x", "%2F.", "|system|root|D"),
        line(4, "-rw-r--r--", "%2Fhot", "|flash|home|F"),
        line(5, "-rw-------", "%2Fcold", "|disk%20pool|home|FMV"),
        // Of a rule that shows none of it.
        line(6, "-rw-r--r--", "%2Fold", ""),
    ];
    fs::write(place.path("list"), lines.concat()).unwrap();
    let list = place.path("list");
    let words = ["import", "--format", "gpfs-policy"].map(OsStr::new);
    let imported = place.canopy(&place.path("index"), &[&words[..], &[list.as_os_str()]].concat());
    assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
    let root = Path::new("/gpfs");
    for (uid, words, expected) in [
        (0, ["-pool", "flash"], &["hot"][..]),
        (0, ["-pool", "d*"], &["cold"]),
        (0, ["-pool", "*"], &["cold", "hot"]),
        (0, ["-xattr", "gpfs.state=*V*"], &["cold"]),
        (0, ["-xattr", "gpfs.fileset=home"], &["cold", "hot"]),
        (2001, ["-pool", "disk pool"], &["cold"]),
        (2002, ["-pool", "disk pool"], &[]),
    ] {
        let (names, errors, _) = found(&place, &user(uid), None, root, &words);
        assert_eq!(errors, "", "{uid} {words:?}");
        assert_eq!(names, expected, "{uid} {words:?}");
    }
    let by_pool = "SELECT value, count(*), sum(size) FROM xattrs \
                   WHERE key = 'gpfs.pool' AND type = 'f' GROUP BY value ORDER BY value";
    assert_eq!(rows(&place, &user(0), by_pool), ["disk pool,1,9", "flash,1,9"]);
    assert_eq!(rows(&place, &user(2002), by_pool), ["flash,1,9"]);
}

/// Lustre shows `lustre.lov` to whoever may read the file, which read permission decides.
#[test]
fn layouts_are_hidden_from_users_who_may_not_read_the_file() {
    let place = Fixture::new();
    let value = layouts()[1].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let line = |path: &str, kind: &str, mode: &str, xattrs: &str| {
        format!(
            r#"{{"path":"/scratch{path}","type":"{kind}","mode":"{mode}","uid":2001,"gid":3001,"size":9,"mtime":1,"xattrs":{{{xattrs}}}}}"#
        )
    };
    let layout = format!(r#""lustre.lov":"0x{value}""#);
    let lines = [
        line("", "d", "755", ""),
        line("/open", "f", "644", &layout),
        line("/closed", "f", "600", &layout),
        line("/hidden", "f", "644", &layout.replace("lustre.", "trusted.")),
    ];
    fs::write(place.path("list"), lines.join("\n")).unwrap();
    let list = place.path("list");
    let words = ["import", "--format", "ndjson"].map(OsStr::new);
    let imported = place.canopy(&place.path("index"), &[&words[..], &[list.as_os_str()]].concat());
    assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
    for (uid, expected) in
        [(0, &["closed", "hidden", "open"][..]), (2001, &["closed", "open"]), (2002, &["open"])]
    {
        let (names, errors, _) =
            found(&place, &user(uid), None, Path::new("/scratch"), &["-ost", "6"]);
        assert_eq!(errors, "", "{uid}");
        assert_eq!(names, expected, "{uid}");
        let query = "SELECT name FROM stripes WHERE ost = 6 ORDER BY name";
        assert_eq!(rows(&place, &user(uid), query), expected, "{uid}");
    }
}
