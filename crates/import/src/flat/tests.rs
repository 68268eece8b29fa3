//! The flat formats: the same small tree in each of them, and broken ones.

use crate::trace::tests::{Seen, import_with};
use crate::{Error, Format};
use arrow::array::{
    ArrayRef, BinaryArray, Int16Array, Int64Array, LargeStringArray, RecordBatch, StringArray,
    TimestampMicrosecondArray, TimestampSecondArray, UInt64Array,
};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use proptest::prelude::*;
use std::sync::{Arc, LazyLock};

fn import(format: Format, files: &[&[u8]], lenient: bool) -> Result<(Seen, u64), Error> {
    import_with(files, |request| {
        request.format = format;
        request.lenient = lenient;
    })
}

const CSV: &[u8] = b"path,type,mode,uid,gid,size,mtime,target,extra\r\n\
    /r/a/x,f,0644,1000,100,5,1.5,,\n\"/r/a/new\nline \"\"q\"\"\",l,777,1000,100,3,2,../\xff,ignored\n\
    /r,d,755,0,0,0,0,,\n/r/a,d,755,0,0,0,0,,\n/r/secret,d,700,0,0,0,0,,\n/r/secret/f,f,644,0,0,0,0,,\n";

const FIND: &[u8] = b"f 644 1000 100 5 1 7 8 1.5 1.5 1.5 0 /r/a/x\0\0l 777 1000 100 3 1 8 0 2 2 2  /r/a/new\nline \"q\"\0../\xff\0\
    d 755 0 0 0 2 9 0 0 0 0 0 /r\0\0d 755 0 0 0 2 9 0 0 0 0 0 /r/a\0\0d 700 0 0 0 2 9 0 0 0 0 -1.-000000010 /r/secret\0\0\
    f 644 0 0 0 1 9 0 0 0 0 0 /r/secret/f\0\0";

#[test]
fn formats_tell_the_same() {
    for (format, bytes) in [(Format::Csv, CSV), (Format::Find, FIND), (Format::Parquet, &PARQUET)] {
        let (seen, problems) = import(format, &[bytes], false).unwrap();
        assert_eq!(problems, 0);
        let names = |dir: &str| seen.dirs[dir].iter().map(|row| row.0.as_str()).collect::<Vec<_>>();
        assert_eq!((names(""), names("a")), (vec!["a", "secret"], vec!["new\nline \"q\"", "x"]));
        assert_eq!(seen.open, ["", "a"]);
        let x = seen.dirs["a"][1].1;
        assert_eq!((x.mode, x.uid, x.size_bytes, x.mtime_ns), (0o100_644, 1000, 5, 1_500_000_000));
        assert_eq!(seen.dirs["a"][0].2, canopy_model::escape(b"../\xff"));
    }
}

#[test]
fn ndjson_carries_extended_attributes() {
    let text = br#"{"path":"/r","mode":16877,"uid":0,"gid":0,"size":0,"mtime":1}
{"path":"/r/f","type":"f","mode":"600","uid":1,"gid":1,"size":9,"mtime":"2023-11-14T22:13:20Z","xattrs":{"user.a":"b","user.h":"0x00ff"}}

{"path":"/r/d","type":"d","mode":"755","uid":0,"gid":0,"size":0,"mtime":1,"xattrs":{"system.posix_acl_access":"?"}}"#;
    let (seen, _) = import(Format::Ndjson, &[text], false).unwrap();
    assert_eq!(seen.xattrs["/f:user.h"], [0, 255]);
    assert_eq!(seen.dirs[""][1].1.mtime_ns, 1_700_000_000_000_000_000);
    assert_eq!(seen.open, [""]);
}

/// The tree of [`CSV`].
static PARQUET: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let paths: [&[u8]; 6] =
        [b"/r/a/x", b"/r/a/new\nline \"q\"", b"/r", b"/r/a", b"/r/secret", b"/r/secret/f"];
    let (none, some) = (None::<&[u8]>, Some(&b"../\xff"[..]));
    written(
        "somebody",
        vec![
            ("path", Arc::new(BinaryArray::from_iter_values(paths))),
            ("type", Arc::new(LargeStringArray::from(vec!["f", "l", "d", "d", "d", "f"]))),
            ("mode", Arc::new(Int16Array::from(vec![0o644, 0o777, 0o755, 0o755, 0o700, 0o644]))),
            ("uid", Arc::new(UInt64Array::from(vec![1000, 1000, 0, 0, 0, 0]))),
            ("gid", Arc::new(StringArray::from(vec!["100", "100", "0", "0", "0", "0"]))),
            ("Size", Arc::new(Int64Array::from(vec![5, 3, 0, 0, 0, 0]))),
            (
                "mtime",
                Arc::new(TimestampMicrosecondArray::from(vec![1_500_000, 2_000_000, 0, 0, 0, 0])),
            ),
            (
                "atime",
                Arc::new(TimestampSecondArray::from(vec![Some(7), None, None, None, None, None])),
            ),
            ("target", Arc::new(BinaryArray::from(vec![none, some, none, none, none, none]))),
            ("other", Arc::new(arrow::array::Float64Array::from(vec![0.5; 6]))),
        ],
    )
});

fn written(by: &str, columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let properties = WriterProperties::builder().set_created_by(by.to_owned()).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

#[test]
fn parquet_has_typed_columns() {
    let (seen, _) = import(Format::Parquet, &[&PARQUET], false).unwrap();
    let x = seen.dirs["a"][1].1;
    assert_eq!((x.atime_ns, x.mtime_ns, x.gid), (7_000_000_000, 1_500_000_000, 100));
    // A null is as good as no column.
    assert_eq!(seen.dirs["a"][0].1.atime_ns, 2_000_000_000);
    let table = |mode: ArrayRef| {
        let zeros = || Arc::new(Int64Array::from(vec![0; 2])) as ArrayRef;
        let columns = ["uid", "gid", "size", "mtime"].map(|name| (name, zeros()));
        let paths = Arc::new(StringArray::from(vec!["/r", "/r/x"])) as ArrayRef;
        written("somebody", [("path", paths), ("mode", mode)].into_iter().chain(columns).collect())
    };
    let cases: [(ArrayRef, &str, bool); 4] = [
        (Arc::new(Int64Array::from(vec![0o40755, -1])), "row 2: mode", true),
        (Arc::new(Int64Array::from(vec![Some(0o40755), None])), "row 2: '/r/x': no mode", true),
        (Arc::new(StringArray::from(vec!["40755", "9"])), "row 2: mode", true),
        (
            Arc::new(arrow::array::Float32Array::from(vec![0.5; 2])),
            "column mode: got Float32",
            false,
        ),
    ];
    for (mode, says, skipped) in cases {
        let bytes = table(mode);
        let error = import(Format::Parquet, &[&bytes], false).unwrap_err().to_string();
        assert!(error.contains(says), "{error}, expected {says}");
        assert_eq!(
            import(Format::Parquet, &[&bytes], true).map(|seen| seen.1).ok(),
            skipped.then_some(1)
        );
    }
    // A footer whose list of row groups claims to have 2^31 - 1 of them.
    let footer = b"\x15\x02\x19\x2c\x48\x01s\x15\x02\x00\x15\x02\x25\x02\x18\x01p\x00\x16\x02\x19\xfc\xff\xff\xff\xff\x07";
    let many = [&b"PAR1"[..], footer, &(footer.len() as u32).to_le_bytes(), b"PAR1"].concat();
    let error = import(Format::Parquet, &[&many], true).unwrap_err().to_string();
    assert!(error.contains("2147483647 row groups in 0 bytes"), "{error}");
    for bytes in [&b""[..], b"PAR1", &PARQUET[..PARQUET.len() - 1]] {
        assert!(matches!(import(Format::Parquet, &[bytes], true), Err(Error::File { .. })));
    }
}

#[test]
fn own_exports_are_told_by_their_columns() {
    let csv = "path,source,name,type,depth,ino,mode,nlink,uid,gid,user,group,size,blksize,blocks,atime,mtime,ctime,\
        btime,target,rdev,xattrs\n\
        /r,s,r,d,0,1,16877,2,0,0,root,root,0,4096,0,1970-01-01T00:00:01Z,1970-01-01T00:00:01Z,1970-01-01T00:00:01Z,\
        1970-01-01T00:00:00Z,,0,\n\
        /r/\u{10ffff},s,\u{10ffff},f,1,2,33188,1,1,1,,,0,4096,0,1970-01-01T00:00:01Z,1970-01-01T00:00:01.5Z,\
        1970-01-01T00:00:01Z,1970-01-01T00:00:00Z,,0,user.a\n";
    let json = "{\"path\":\"/r\",\"source\":\"s\",\"name\":\"r\",\"type\":\"d\",\"depth\":0,\"ino\":1,\"mode\":16877,\
        \"nlink\":2,\"uid\":0,\"gid\":0,\"size\":0,\"mtime\":\"1970-01-01T00:00:01Z\",\"rdev\":0}\n\
        {\"path\":\"/r/\u{10ffff}\",\"source\":\"s\",\"name\":\"\u{10ffff}\",\"type\":\"f\",\"depth\":1,\"ino\":2,\
        \"mode\":33188,\"nlink\":1,\"uid\":1,\"gid\":1,\"size\":0,\"mtime\":\"1970-01-01T00:00:01.5Z\",\"rdev\":0,\
        \"xattrs\":\"user.a\"}\n";
    for (format, text) in [(Format::Csv, csv), (Format::Ndjson, json)] {
        let (seen, _) = import(format, &[text.as_bytes()], false).unwrap();
        let (name, attributes, _) = &seen.dirs[""][0];
        assert_eq!(
            (&**name, attributes.mode),
            (&*canopy_model::escape(b"\xff"), 0o100_644),
            "{format:?}"
        );
        assert_eq!(attributes.mtime_ns, 1_500_000_000);
    }
}

/// The directories and files of [`CSV`]; the targets of links are not in such lists.
const GPFS: &[u8] = b"7 65536 0   -rw-r--r--|1|1000|100|5|1|4096|1970-01-01%2000%3A00%3A01|1970-01-01 00:00:01.500000|\
    1970-01-01 00:00:01|1970-01-01 00:00:01 -- %2Fr%2Fa%2Fx\n\
    8 1 0 lrwxrwxrwx%7C1%7C1000%7C100%7C3%7C0%7C4096%7C1970-01-01%2000%3A00%3A02%7C1970-01-01%2000%3A00%3A02%7C\
    1970-01-01%2000%3A00%3A02%7C1970-01-01%2000%3A00%3A02 -- %2Fr%2Fa%2Fnew%0Aline%20%22q%22%ff\n\
    3 1 0  drwxr-xr-x|2|0|0|0|0|4096|1970-01-01 00:00:00|1970-01-01 00:00:00|1970-01-01 00:00:00|1970-01-01 00:00:00 -- %2Fr%2F.\n\
    4 1 0  drwxr-xr-x|2|0|0|0|0|4096|1970-01-01 00:00:00|1970-01-01 00:00:00|1970-01-01 00:00:00|1970-01-01 00:00:00 -- %2Fr%2Fa\n";

#[test]
fn gpfs_policy_lists() {
    let (seen, _) = import(Format::GpfsPolicy, &[GPFS], false).unwrap();
    let [link, x] = [0, 1].map(|at| &seen.dirs["a"][at]);
    assert_eq!(link.0, canopy_model::escape(b"new\nline \"q\"\xff"));
    assert_eq!((link.1.mode, link.1.mtime_ns), (0o120_777, 2_000_000_000));
    let x = x.1;
    assert_eq!(
        (x.ino, x.mode, x.uid, x.gid, x.size_bytes, x.blocks),
        (7, 0o100_644, 1000, 100, 5, 2)
    );
    assert_eq!((x.mtime_ns, x.btime_ns), (1_500_000_000, 1_000_000_000));
    assert_eq!(seen.open, ["", "a"]);

    let line = |mode: &str, time: &str, path: &str| {
        format!("9 1 0 {mode}|1|0|0|0|0|4096|{time}|{time}|{time}|{time} -- {path}\n")
    };
    let time = "1970-01-01 00:00:00";
    for (mode, bits) in
        [("-rwsr-Sr-t", 0o107_745), ("drwxrwxrwT", 0o041_776), ("c---------", 0o020_000)]
    {
        let text = [GPFS, line(mode, time, "%2Fr%2Fy").as_bytes()].concat();
        let (seen, _) = import(Format::GpfsPolicy, &[&text], false).unwrap();
        assert_eq!(seen.dirs[""].iter().find(|row| row.0 == "y").unwrap().1.mode, bits);
    }
    let cases = [
        // Without ESCAPE, a name of '%2F' would be a slash.
        (line("-rw-r--r--", time, "/r/y"), "ESCAPE"),
        (line("-rw-r--r--", time, "%2Fr%2Fa b"), "ESCAPE"),
        (line("-rw-r--r--", time, "%2Fr%2Fy%4"), "digits"),
        (line("-rw-r--r--", time, "%2Fr%2Fy%+1"), "digits"),
        (line("-rw-r--r-", time, "%2Fr%2Fy"), "MODE"),
        (line("-rwtr--r--", time, "%2Fr%2Fy"), "MODE"),
        (line("-rw-r--r--+", time, "%2Fr%2Fy"), "MODE"),
        (line("-rw-r--r--", "1970-01-01", "%2Fr%2Fy"), "ACCESS_TIME"),
        (line("-rw-r--r--", "1970-01-01 00:00:00Z", "%2Fr%2Fy"), "ACCESS_TIME"),
        ("9 1 0 -- %2Fr%2Fy\n".to_owned(), "SHOW has 1 values"),
        ("9 1 -- %2Fr%2Fy\n".to_owned(), "snapshot"),
        ("9 1 0 %2Fr%2Fy\n".to_owned(), "no ' -- '"),
    ];
    for (line, says) in cases {
        let text = [GPFS, line.as_bytes()].concat();
        let error = import(Format::GpfsPolicy, &[&text], false).unwrap_err().to_string();
        assert!(
            error.contains(says) && error.contains("line 5, byte "),
            "{error}, expected {says}"
        );
        assert_eq!(import(Format::GpfsPolicy, &[&text], true).unwrap().1, 1, "{line}");
    }
}

const LESTER: &[u8] = b"#IDENT#|0.9|1.42.7|1385000000|Thu Nov 21|mds|/dev/sdb|0|0|0|0|UNKNOWN|\n\
    1|3|2|0|0|40755|4096|12|||/a\n9|8|7|1000|100|100644|5|13|3:1f,2:a0|0x200000400:0x1:0x0|/a/x|y\n\
    9|8|7|1000|100|120777|3|14||/a/l\n9|8|7|1000|100|100600|0|15|/a/plain\n#complete#1385000100\n";

#[test]
fn lester_lists() {
    // Lester does not print the root.
    let root: &[u8] = b"0|0|0|0|0|40755|4096|2|/\n";
    for files in [[root, LESTER], [LESTER, root]] {
        let (seen, _) = import(Format::Lester, &files, false).unwrap();
        let names: Vec<&str> = seen.dirs["a"].iter().map(|row| &*row.0).collect();
        assert_eq!(
            (names, seen.open),
            (vec!["l", "plain", "x|y"], vec![String::new(), "a".to_owned()])
        );
        let x = seen.dirs["a"][2].1;
        assert_eq!((x.ino, x.mode, x.uid, x.gid, x.size_bytes), (13, 0o100_644, 1000, 100, 5));
        assert_eq!(
            (x.atime_ns, x.ctime_ns, x.mtime_ns),
            (9_000_000_000, 8_000_000_000, 7_000_000_000)
        );
    }
    let error = import(Format::Lester, &[LESTER], false).unwrap_err().to_string();
    assert!(error.contains("missing"), "{error}");
    let cut = &LESTER[..LESTER.len() - b"#complete#1385000100\n".len()];
    let error = import(Format::Lester, &[root, cut], false).unwrap_err().to_string();
    assert!(error.contains("was cut"), "{error}");
    for (line, says) in [
        ("1|1|1|0|0|100644|0|9|a|b|c|/x", "no absolute path"),
        ("1|1|1|0|0|100644|0|9|", "no path"),
        ("1|1|1|0|0|100644|0", "no size"),
        ("1|1|1|0|0|644|0|9|/x", "no type"),
        ("1|1|1|0|0|100644|-1|9|/x", "size"),
    ] {
        let files = [root, LESTER, line.as_bytes()];
        let error = import(Format::Lester, &files, false).unwrap_err().to_string();
        assert!(
            error.contains(says) && error.contains("line 1, byte 0"),
            "{error}, expected {says}"
        );
        assert_eq!(import(Format::Lester, &files, true).unwrap().1, 1, "{line}");
    }
}

#[test]
fn bad_records_have_a_line() {
    let head = "path,mode,uid,gid,size,mtime\n/r,40755,0,0,0,0\n";
    let cases = [
        ("/r/x,100644,0,0,0\n", "5 values"),
        ("/r/x,100644,0,0,-1,0\n", "size"),
        ("/r/x,644,0,0,1,0\n", "no type"),
        ("/r/x,100644,,0,1,0\n", "no uid"),
        ("/r/x,100644,4294967296,0,1,0\n", "32 bits"),
        ("/r/../x,100644,0,0,1,0\n", "missing"),
        ("/r/..,100644,0,0,1,0\n", "'..'"),
        ("/r/no/x,100644,0,0,1,0\n", "missing"),
        ("/else,100644,0,0,1,0\n", "missing"),
        ("\"/r/x", "without an end"),
        ("/r/x,100644,0,0,1,0\n/r/x,100644,0,0,1,0\n", "second"),
        ("/r/x,100644,0,0,1,0\n/r/x,40755,0,0,1,0\n", "second"),
        ("/r/d,40755,0,0,1,0\n/r/d,40755,0,0,1,0\n", "second"),
    ];
    for (line, says) in cases {
        let text = format!("{head}{line}");
        let error = import(Format::Csv, &[text.as_bytes()], false).unwrap_err().to_string();
        assert!(error.contains(says) && error.contains("line "), "{error}, expected {says}");
        assert_eq!(import(Format::Csv, &[text.as_bytes()], true).unwrap().1, 1, "{line}");
    }
    // Without the record of the root, the root must be named, or a directory could take its place.
    let text = "path,mode,uid,gid,size,mtime\n/r/d,40755,0,0,1,0\n";
    let (seen, problems) = import(Format::Csv, &[text.as_bytes()], true).unwrap();
    assert_eq!((seen.open.len(), problems), (0, 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_change_makes_it_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 0..6),
        lenient: bool,
        which in 0..6_usize,
    ) {
        let inputs = [
            (Format::Csv, CSV),
            (Format::Find, FIND),
            (Format::Ndjson, CSV),
            (Format::Parquet, &PARQUET),
            (Format::GpfsPolicy, GPFS),
            (Format::Lester, LESTER),
        ];
        let (format, bytes) = inputs[which];
        let mut bytes = bytes.to_vec();
        for (at, byte, kind) in changes {
            let at = at.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => bytes.truncate(at + 1),
            }
        }
        let _ = import(format, &[&bytes], lenient);
    }
}

#[test]
fn a_header_without_paths_is_told_once() {
    let error = import(Format::Csv, &[b"name,size\na,1\nb,2\n"], false).err().unwrap();
    let said = error.to_string();
    assert!(said.contains("line 1") && said.contains("the header has no column 'path'"), "{said}");
    // --lenient would leave out every record.
    for (header, words) in [
        ("path,size,uid,gid,mtime", "the header has no column 'mode'"),
        ("path,mode,mtime_ns", "the header has no columns 'uid', 'gid', 'size'"),
    ] {
        let file = format!("{header}\n/r\n/r/a\n");
        let error = import(Format::Csv, &[file.as_bytes()], false).err().unwrap();
        let said = error.to_string();
        assert!(said.contains(words) && !said.contains("--lenient"), "{said}");
    }
}

/// An export of ncdu of these entries in its root.
fn ncdu(entries: &str) -> Vec<u8> {
    let root =
        r#"{"name":"/r","dev":1,"asize":9,"dsize":4096,"uid":0,"gid":0,"mode":16877,"mtime":3}"#;
    format!("[1,2,{{\"progname\":\"x\",\"more\":[{{\"deep\":[]}},1]}},[{root}{entries}]]\n")
        .into_bytes()
}

const NCDU_FILE: &str = r#""uid":1,"gid":2,"mode":33188,"mtime":5"#;

#[test]
fn ncdu_tells_names_sizes_links_and_extended_information() {
    let mut text = ncdu(&format!(
        "{}{}{}{}{}",
        format_args!(r#",{{"name":"a\n\u00e9\ud83d\ude00","asize":5,"dsize":1024,{NCDU_FILE}}}"#),
        format_args!(
            ",\r\n{{\"name\":\"h\",\"ino\":7,\"hlnkc\":true,\"nlink\":3,{NCDU_FILE},\"x\":{{}}}}"
        ),
        r#",{"name":"out","excluded":"pattern"},{"name":"gone","read_error":true}"#,
        r#",[{"name":"d","dev":2,"mode":16832,"uid":1,"gid":2,"mtime":1},{"name":"H","ino":7,"hlnkc":true,"#,
        format_args!("{NCDU_FILE}}}],[{{\"name\":\"proc\",\"excluded\":\"kernfs\"}}]"),
    ));
    let (seen, problems) = import(Format::Ncdu, &[&text], false).unwrap();
    assert_eq!(problems, 0);
    let names = |dir: &str| seen.dirs[dir].iter().map(|row| row.0.as_str()).collect::<Vec<_>>();
    assert_eq!(names(""), ["a\né😀", "d", "h", "proc"]);
    let row = |dir: &str, name: &str| seen.dirs[dir].iter().find(|row| row.0 == name).unwrap().1;
    let (a, h, other) = (row("", "a\né😀"), row("", "h"), row("d", "H"));
    assert_eq!((a.size_bytes, a.blocks, a.uid, a.gid, a.mode), (5, 2, 1, 2, 0o100_644));
    assert_eq!((a.mtime_ns, h.ino, h.nlink), (5_000_000_000, 7, 3));
    // Equal inode numbers on another file system belong to another inode.
    assert!(other.nlink == 2 && other.ino != 7);
    // A directory without known attributes is for root alone.
    assert_eq!(seen.open, [""]);
    assert_eq!(row("", "proc").mode, 0o040_000);
    // Bytes that are not UTF-8 are names, too.
    let at = text.windows(6).position(|window| window == b"\\u00e9").unwrap();
    text.splice(at..at + 6, [0xFF]);
    let (seen, _) = import(Format::Ncdu, &[&text], false).unwrap();
    assert!(
        seen.dirs[""].iter().any(|row| row.0 == canopy_model::escape(b"a\n\xff\xf0\x9f\x98\x80"))
    );
}

#[test]
fn no_depth_of_an_export_is_one_of_the_stack() {
    let deep = |levels: usize, name: &str| {
        let directory =
            format!(",[{{\"name\":\"{name}\",\"mode\":16877,\"uid\":0,\"gid\":0,\"mtime\":0}}");
        ncdu(&(directory.repeat(levels) + &"]".repeat(levels)))
    };
    let (seen, _) = import(Format::Ncdu, &[&deep(400, "d")], false).unwrap();
    assert_eq!(seen.dirs.len(), 401);
    let error = import(Format::Ncdu, &[&deep(500_000, &"d".repeat(200))], false).unwrap_err();
    assert!(error.to_string().contains("a path of more than 65535 bytes"), "{error}");
    let skipped =
        format!(",{{\"name\":\"f\",\"more\":{}{}}}", "[".repeat(1_000_000), "]".repeat(1_000_000));
    let error = import(Format::Ncdu, &[&ncdu(&skipped)], false).unwrap_err();
    assert!(error.to_string().contains("no mode"), "{error}");
}

#[test]
fn other_input_than_exports_of_ncdu_is_one_error_with_its_place() {
    let whole = ncdu(&format!(r#",{{"name":"a",{NCDU_FILE}}}"#));
    let whole = whole.trim_ascii_end();
    for end in 0..whole.len() {
        let error = import(Format::Ncdu, &[&whole[..end]], false).unwrap_err().to_string();
        assert!(error.contains(": byte ") && error.contains("ends"), "{end}: {error}");
    }
    let file = |change: &str| ncdu(&format!(r#",{{{change},{NCDU_FILE}}}"#));
    for (bytes, reason) in [
        (file(r#""name":"a/b""#), "a name with a NUL or a slash"),
        (file(r#""name":"..""#), "a name '.' or '..'"),
        (file(r#""name":"""#), "an empty name"),
        (file(r#""name":"a\u0000""#), "a name with a NUL"),
        (file(r#""name":"\ud800x""#), "half a character"),
        (file(r#""name":"\q""#), "an escape of JSON"),
        (file("\"name\":\"a\nb\""), "no control character"),
        (file(r#""asize":1"#), "no name"),
        (file(r#""name":"a","asize":-1"#), "size: got '-1'"),
        (file(r#""name":"a","dsize":1e9"#), "dsize: got '1e9'"),
        (file(r#""name":"a","ino":"7""#), "a number or a word"),
        (ncdu(r#",{"name":"a"}"#), "no mode: export with extended information (ncdu -e)"),
        (ncdu(r#",{"name":"a","mode":33188,"mtime":0,"gid":0}"#), "no uid"),
        (ncdu(&format!(r#",[{{"name":"a",{NCDU_FILE}}}]"#)), "does not agree with the type"),
        (ncdu(",7"), "an entry, which begins with '{'"),
        ([whole, b"[]"].concat(), "the end of the file"),
        (b"{}".to_vec(), "an export of ncdu"),
        (b"[2,0,{},[]]".to_vec(), "version 1 of ncdu's export format"),
        (br#"[1,2,{},[{"name":"r"}]]"#.to_vec(), "an absolute path of the root"),
    ] {
        let error = import(Format::Ncdu, &[&bytes], false).unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains(": byte "), "{reason}: {error}");
    }
    let error = import(Format::Ncdu, &[whole, whole], false).unwrap_err().to_string();
    assert!(error.contains("give one export"), "{error}");
}

/// A file of 18 KB held one path of 500 MiB, and cost 1.6 GB of memory before it was refused.
#[test]
fn a_page_that_decodes_to_too_much_is_refused_before_it_is_decoded() {
    let long = vec![b'x'; 257 << 20];
    let bytes = packed(vec![("path", Arc::new(BinaryArray::from_iter_values([&long[..]])))], None);
    assert!(bytes.len() < 100_000, "{}", bytes.len());
    let error = import(Format::Parquet, &[&bytes], true).unwrap_err().to_string();
    assert!(error.contains("column path: its pages take 2"), "{error}");
    assert!(error.contains("write the file with smaller pages"), "{error}");
}

/// Values that share a prefix take little room in a page, and are each as long as it in memory.
#[test]
fn few_values_with_long_shared_prefixes_are_decoded_at_once() {
    let long = "x".repeat(1 << 20);
    let values = (0..600).map(|number| format!("{long}{number:03}"));
    let paths: ArrayRef = Arc::new(StringArray::from_iter_values(values));
    let rows = |encoding, has_views| {
        let bytes = packed(vec![("path", paths.clone())], Some(encoding));
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &bytes).unwrap();
        let (file, metadata) = crate::open_foreign_parquet(file).unwrap();
        crate::bounded_batch_rows(&file, &metadata, &[0], 4096, has_views)
    };
    assert!((2..256).contains(&rows(Encoding::DELTA_BYTE_ARRAY, true).unwrap()));
    assert!(rows(Encoding::PLAIN, true).is_ok_and(|rows| rows == 4096));
}

/// Writes columns compressed, without dictionaries where an encoding is given.
fn packed(columns: Vec<(&str, ArrayRef)>, encoding: Option<Encoding>) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let zstd = Compression::ZSTD(ZstdLevel::try_new(1).unwrap());
    let mut properties = WriterProperties::builder().set_compression(zstd);
    if let Some(encoding) = encoding {
        properties = properties.set_dictionary_enabled(false).set_encoding(encoding);
    }
    let properties = Some(properties.set_statistics_enabled(EnabledStatistics::None).build());
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), properties).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

/// ncdu 1 prints ids of NFS' nobody, and times before 1970, modulo 2^64.
#[test]
fn ncdu_prints_negative_ids_and_times_as_large_numbers() {
    let file = |name: &str, uid: &str, mtime: &str| {
        format!(r#",{{"name":"{name}","uid":{uid},"gid":{uid},"mode":33188,"mtime":{mtime}}}"#)
    };
    let entries = [
        file("a", "18446744073709551614", "18446744073709551615"),
        file("b", "18446744072414584320", "18446744073709551614"),
        file("c", "4294967294", "0"),
        file("d", "-2", "-1"),
    ];
    let (seen, _) = import(Format::Ncdu, &[&ncdu(&entries[..3].concat())], false).unwrap();
    let found: Vec<_> = seen.dirs[""].iter().map(|row| row.1).collect();
    let ids: Vec<_> = found.iter().map(|row| (row.uid, row.gid)).collect();
    assert_eq!(ids, [4_294_967_294, 3_000_000_000, 4_294_967_294].map(|id| (id, id)));
    let times: Vec<_> = found.iter().map(|row| row.mtime_ns).collect();
    assert_eq!(times, [-1_000_000_000, -2_000_000_000, 0]);
    let error = import(Format::Ncdu, &[&ncdu(&entries[3])], false).unwrap_err().to_string();
    assert!(error.contains("uid: got '-2'"), "{error}");
}

/// Programs on Windows begin a file of text with a byte order mark.
#[test]
fn a_byte_order_mark_is_skipped() {
    let mark = &b"\xEF\xBB\xBF"[..];
    let export = ncdu("");
    for (format, bytes) in [
        (Format::Csv, CSV),
        (Format::GpfsPolicy, GPFS),
        (Format::Ncdu, &export),
        (Format::Ndjson, br#"{"path":"/r","mode":16877,"uid":0,"gid":0,"size":0,"mtime":1}"#),
    ] {
        let (seen, _) = import(format, &[&[mark, bytes].concat()], false).unwrap();
        assert!(seen.open.contains(&String::new()), "{format:?}");
        for mark in [&b"\xFF\xFE"[..], b"\xFE\xFF"] {
            let utf_16 = [mark, bytes].concat();
            let error = import(format, &[&utf_16], true).unwrap_err().to_string();
            assert!(error.contains("is UTF-16: save it as UTF-8"), "{error}");
        }
    }
}

#[test]
fn an_error_names_the_expected_format_and_shows_the_first_line() {
    for (format, bytes, shows) in [
        (
            Format::Find,
            &b"f 644 /r/a\nf 644 /r/b\n"[..],
            "%T@ %A@ %C@ %B@ %p\\0%l\\0'; its first line is 'f 644 /r/a'",
        ),
        (Format::Find, b"644 f /r/a\0\0", "its first line is '644 f /r/a\\x00\\x00'"),
        (Format::Csv, b"path;mode;uid\n/r;644;0\n", "is --delim ';' missing?"),
        (Format::Csv, b"path\tmode\tuid\n/r\t644\t0\n", "is --delim $'\\t' missing?"),
        (Format::Ndjson, b"path,mode\n/r,644\n", "its first line is 'path,mode'"),
        (Format::Lester, b"path,mode\n/r,644\n", "--format lester expects the output of Lester"),
        (Format::Ncdu, b"path,mode\n", "--format ncdu expects the output of ncdu -e -o"),
        (Format::GufiTrace, b"path,mode\n", "--format gufi-trace expects a trace"),
    ] {
        let error = import(format, &[bytes], false).unwrap_err().to_string();
        assert!(error.contains(shows) && !error.contains("--lenient"), "{error}, expected {shows}");
    }
    let text = "path,type,mode,uid,gid,size,mtime\n/r,d,755,0,0,0,2026/11/21 15:00:00\n";
    let error = import(Format::Csv, &[text.as_bytes()], false).unwrap_err().to_string();
    let expected = "got '2026/11/21 15:00:00', expected seconds since 1970 or a time such as \
                    2026-11-21T15:00:00Z";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn an_import_counts_its_faults_and_names_the_option() {
    let head = "path,type,mode,uid,gid,size,mtime\n/r,d,755,0,0,0,0\n";
    let twice = |name: &str| format!("/r/{name},f,644,0,0,1,0\n/r/{name},f,644,0,0,2,0\n");
    let one = import(Format::Csv, &[[head, &twice("a")].concat().as_bytes()], false);
    let error = one.unwrap_err().to_string();
    assert!(error.contains("'/r/a': a second entry of this name; --lenient leaves"), "{error}");
    let three = [head, &twice("a"), &twice("b"), &twice("c")].concat();
    let error = import(Format::Csv, &[three.as_bytes()], false).unwrap_err().to_string();
    assert!(error.contains("it is the first of 3 such faults; --lenient leaves"), "{error}");
    assert_eq!(import(Format::Csv, &[three.as_bytes()], true).unwrap().1, 3);
    let bad = format!("{head}/r/x,f,644,0,0,-1,0\n/r/y,f,644,0,0,-1,0\n");
    let error = import(Format::Csv, &[bad.as_bytes()], false).unwrap_err().to_string();
    assert!(error.contains("the first of at least 2 such faults"), "{error}");
}
