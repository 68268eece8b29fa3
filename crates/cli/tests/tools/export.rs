//! Exports against find(1) and du(1), as root and as users on random trees, each format read back;
//! GUFI's own programs against ours if GUFI_BIN names their directory. Needs root.

use crate::common;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{
    ArrowPrimitiveType, Int64Type, SchemaRef, TimestampNanosecondType, UInt32Type, UInt64Type,
};
use canopy_model::unescape;
use common::requirements::gufi;
use common::{Fixture, User, assert_same, on_terminal, random_tree, seeded, sorted};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Cursor;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The fields of an entry that find and [`lines`] print.
const FIND: &str = "%p|%y|%d|%i|%m|%n|%U|%G|%u|%g|%s|%b|%A@|%T@|%C@|%l\\0";

/// A tree with its index, asked by one user after the other.
struct Case {
    place: Fixture,
    tree: PathBuf,
    index: PathBuf,
}

impl Case {
    fn new(seed: u64) -> Self {
        let place = Fixture::new();
        let (tree, index) = (place.path("tree"), place.path("index"));
        random_tree(&tree, &mut seeded(seed), true);
        place.index(&index, &tree);
        // Users write their files here.
        std::fs::create_dir(place.path("out")).unwrap();
        Command::new("chmod").arg("1777").arg(place.path("out")).status().unwrap();
        Case { place, tree, index }
    }

    fn export(&self, user: &User, format: &str, options: &[&OsStr]) -> Output {
        let mut all: Vec<&OsStr> = vec!["--index".as_ref(), self.index.as_os_str()];
        all.extend(["export", "--format", format].map(OsStr::new));
        all.extend(options);
        user.run(self.place.canopy.as_os_str(), &all)
    }

    fn exported(&self, user: &User, format: &str, options: &[&OsStr]) -> Vec<u8> {
        let output = self.export(user, format, options);
        assert!(
            output.status.success(),
            "{format} {user:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        output.stdout
    }
}

fn root() -> User {
    User { uid: 0, gid: 0, groups: Vec::new() }
}

fn users(seed: u64) -> Vec<User> {
    let mut random = seeded(seed + 1);
    let mut users = vec![root()];
    users.extend((0..4).map(|_| User::random(&mut random)));
    users
}

#[test]
fn flat_formats_hold_what_find_shows() {
    for seed in 3000..3012 {
        let case = Case::new(seed);
        for (number, user) in users(seed).iter().enumerate() {
            let arguments = [case.tree.as_os_str(), "-printf".as_ref(), FIND.as_ref()];
            let expected = sorted(&user.run("find".as_ref(), &arguments).stdout, 0);
            let file = |format: &str| {
                let path = case.place.path(&format!("out/{number}.{format}"));
                case.exported(user, format, &["-o".as_ref(), path.as_os_str()]);
                File::open(path).unwrap()
            };
            let parquet = ParquetRecordBatchReaderBuilder::try_new(file("parquet")).unwrap();
            let schema = parquet.schema().clone();
            let read = |schema: &SchemaRef, text: Vec<u8>| -> Vec<RecordBatch> {
                let reader = arrow::csv::ReaderBuilder::new(schema.clone()).with_header(true);
                reader.build(Cursor::new(text)).unwrap().map(Result::unwrap).collect()
            };
            let json = |text: Vec<u8>| -> Vec<RecordBatch> {
                let reader =
                    arrow::json::ReaderBuilder::new(schema.clone()).build(Cursor::new(text));
                reader.unwrap().map(Result::unwrap).collect()
            };
            let stream = Cursor::new(case.exported(user, "arrow", &[]));
            let stream = arrow::ipc::reader::StreamReader::try_new(stream, None).unwrap();
            let arrow = arrow::ipc::reader::FileReader::try_new(file("arrow"), None).unwrap();
            for (format, batches) in [
                ("parquet", parquet.build().unwrap().map(Result::unwrap).collect::<Vec<_>>()),
                ("arrow", arrow.map(Result::unwrap).collect()),
                ("arrow stream", stream.map(Result::unwrap).collect()),
                ("csv", read(&schema, case.exported(user, "csv", &[]))),
                ("ndjson", json(case.exported(user, "ndjson", &[case.tree.as_os_str()]))),
            ] {
                assert_same(&lines(&batches), &expected, &format!("seed {seed} {user:?} {format}"));
            }
        }
    }
}

/// Rows as [`FIND`] prints them, sorted.
fn lines(batches: &[RecordBatch]) -> Vec<String> {
    fn value<T: ArrowPrimitiveType>(batch: &RecordBatch, name: &str, at: usize) -> T::Native {
        batch.column_by_name(name).unwrap().as_primitive::<T>().value(at)
    }
    let mut all = Vec::new();
    for batch in batches {
        let text = |name: &str, at: usize| {
            let column = batch.column_by_name(name).unwrap();
            if column.is_null(at) { "" } else { column.as_string::<i32>().value(at) }
        };
        let number = |name: &str, at| value::<UInt32Type>(batch, name, at);
        let time = |name: &str, at| {
            let time = value::<TimestampNanosecondType>(batch, name, at);
            format!("{}.{:09}0", time / 1_000_000_000, time % 1_000_000_000)
        };
        for at in 0..batch.num_rows() {
            let named = |name: &str, id: u32| match text(name, at) {
                "" => id.to_string(),
                name => name.to_owned(),
            };
            let (uid, gid, mode) = (number("uid", at), number("gid", at), number("mode", at));
            let mut line = unescape(text("path", at)).into_owned();
            line.extend_from_slice(
                format!(
                    "|{}|{}|{}|{:o}|{}|{uid}|{gid}|{}|{}|{}|{}|{}|{}|{}|",
                    text("type", at),
                    number("depth", at),
                    value::<UInt64Type>(batch, "ino", at),
                    mode & 0o7777,
                    number("nlink", at),
                    named("user", uid),
                    named("group", gid),
                    value::<Int64Type>(batch, "size", at),
                    value::<Int64Type>(batch, "blocks", at),
                    time("atime", at),
                    time("mtime", at),
                    time("ctime", at),
                )
                .as_bytes(),
            );
            line.extend_from_slice(&unescape(text("target", at)));
            line.push(0);
            all.extend(line);
        }
    }
    sorted(&all, 0)
}

#[test]
fn ncdu_adds_up_to_what_du_does() {
    for seed in 3100..3130 {
        let case = Case::new(seed);
        for user in users(seed) {
            let text = case.exported(&user, "ncdu", &[case.tree.as_os_str()]);
            let tree: serde_json::Value =
                serde_json::from_str(&String::from_utf8_lossy(&text)).unwrap();
            assert_eq!((tree[0].as_u64(), tree[1].as_u64()), (Some(1), Some(2)));
            let mut sums = Sums::default();
            sums.add(&tree[3], &case.tree, true);
            let du =
                user.run("du".as_ref(), &["-s".as_ref(), "-B1".as_ref(), case.tree.as_os_str()]);
            let du =
                String::from_utf8_lossy(&du.stdout).split_whitespace().next().map(str::to_owned);
            assert_eq!(Some(sums.disk_bytes.to_string()), du, "seed {seed} {user:?}");
            // Names without attributes, of a directory that can be read but not searched, do not
            // count.
            let with_size = [case.tree.as_os_str(), "-printf".as_ref(), "%p %s\\0".as_ref()];
            let all = user.run("find".as_ref(), &with_size);
            assert_eq!(sums.entries, sorted(&all.stdout, 0).len(), "seed {seed} {user:?}");
            let tests = [
                "-type",
                "d",
                "(",
                "!",
                "-readable",
                "-o",
                "!",
                "-executable",
                ")",
                "-printf",
                "%p %s\\0",
            ];
            let mut arguments = vec![case.tree.as_os_str()];
            arguments.extend(tests.map(std::ffi::OsStr::new));
            let denied = sorted(&user.run("find".as_ref(), &arguments).stdout, 0).len();
            assert_eq!(sums.denied, denied, "seed {seed} {user:?}");
        }
    }
}

#[derive(Default)]
struct Sums {
    entries: usize,
    denied: usize,
    disk_bytes: u64,
    links: BTreeSet<u64>,
}

impl Sums {
    fn add(&mut self, value: &serde_json::Value, root: &Path, first: bool) {
        let (info, below) = match value.as_array() {
            Some(items) => (&items[0], &items[1..]),
            None => (value, &[][..]),
        };
        if first {
            assert_eq!(info["name"].as_str(), root.to_str());
            assert!(info["dev"].is_u64());
        }
        self.entries += 1;
        self.denied += usize::from(info["read_error"] == true);
        if info["hlnkc"] != true || self.links.insert(info["ino"].as_u64().unwrap()) {
            // Of a directory that a user only passes through nothing is known but its name.
            self.disk_bytes += info["dsize"].as_u64().unwrap_or(0);
        }
        let names: BTreeSet<String> =
            below.iter().map(|value| value.get(0).unwrap_or(value)["name"].to_string()).collect();
        assert!(names.len() == below.len() || names.iter().any(|name| name.contains('\u{FFFD}')));
        for value in below {
            self.add(value, root, false);
        }
    }
}

/// The lines of traces, by the lengths that they state: path and letter.
fn trace_lines(mut trace: &[u8]) -> Vec<(Vec<u8>, u8)> {
    let length =
        |text: &[u8]| usize::from_str_radix(std::str::from_utf8(&text[..4]).unwrap(), 16).unwrap();
    let mut lines = Vec::new();
    while !trace.is_empty() {
        let name = &trace[4..4 + length(trace)];
        trace = &trace[4 + name.len()..];
        assert_eq!((trace[0], trace[2]), (0x1E, 0x1E));
        lines.push((name.to_vec(), trace[1]));
        trace = &trace[3..];
        let mut skip = |fields: usize| {
            for _ in 0..fields {
                let end = trace.iter().position(|&byte| byte == 0x1E).unwrap();
                trace = &trace[end + 1..];
            }
        };
        skip(11);
        trace = &trace[4 + length(trace) + 1..];
        trace = &trace[4 + length(trace) + 1..];
        let mut skip = |fields: usize| {
            for _ in 0..fields {
                let end = trace.iter().position(|&byte| byte == 0x1E).unwrap();
                trace = &trace[end + 1..];
            }
        };
        skip(8);
        assert_eq!(trace[0], b'\n');
        trace = &trace[1..];
    }
    lines
}

#[test]
fn traces_hold_what_find_shows() {
    for seed in 3200..3212 {
        let case = Case::new(seed);
        for user in users(seed) {
            let trace = case.exported(&user, "gufi-trace", &[]);
            let shown = trace_lines(&trace).into_iter().map(|(mut path, letter)| {
                path.extend([b'|', letter]);
                path.escape_ascii().to_string()
            });
            let mut shown: Vec<String> = shown.collect();
            shown.sort();
            // GUFI's walk leaves out directories that it cannot list.
            let arguments =
                ["find", "tree", "-type", "d", "!", "(", "-readable", "-executable", ")"];
            let within = |arguments: &[&str]| {
                let mut command = format!("cd '{}' && exec", case.place.dir.path().display());
                arguments.iter().for_each(|word| command.push_str(&format!(" '{word}'")));
                user.run("sh".as_ref(), &["-c".as_ref(), command.as_ref()]).stdout
            };
            let mut prune = arguments.to_vec();
            prune.extend(["-prune", "-o", "-printf", "%p|%y\\0"]);
            assert_same(&shown, &sorted(&within(&prune), 0), &format!("seed {seed} {user:?}"));
        }
    }
}

#[test]
fn a_huge_directory_is_one_stanza() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    std::fs::create_dir_all(tree.join("huge/below")).unwrap();
    for number in 0..70_000 {
        File::create(tree.join(format!("huge/{number}"))).unwrap();
    }
    place.index(&index, &tree);
    let parts = place.path("parts");
    let options =
        ["export", "--format", "gufi-trace", "--parts", "3", "-o", parts.to_str().unwrap()];
    assert!(place.canopy(&index, &options.map(OsStr::new)).status.success());
    let mut dirs = 0;
    let mut files = 0;
    for part in std::fs::read_dir(&parts).unwrap() {
        let lines = trace_lines(&std::fs::read(part.unwrap().path()).unwrap());
        let mut last: Vec<u8> = Vec::new();
        for (path, letter) in lines {
            if letter == b'd' {
                dirs += 1;
                last = path;
            } else {
                files += 1;
                assert!(path.starts_with(&[&last[..], b"/"].concat()));
            }
        }
    }
    assert_eq!((dirs, files), (3, 70_000));
    let ncdu = place.canopy(&index, &["export", "--format", "ncdu"].map(OsStr::new)).stdout;
    let ncdu: serde_json::Value = serde_json::from_slice(&ncdu).unwrap();
    assert_eq!(ncdu[3][1].as_array().unwrap().len(), 70_002);
}

#[test]
fn gufi_reads_our_traces() {
    let Some(gufi) = gufi() else { return };
    for seed in 3300..3310 {
        let place = Fixture::new();
        let (tree, index) = (place.path("tree"), place.path("index"));
        random_tree(&tree, &mut seeded(seed), true);
        // GUFI reads by lines: a name with an end of line ends its reading.
        let remove = ["-depth", "-name", "*\n*", "-exec", "rm", "-rf", "{}", ";"];
        Command::new("find").arg(&tree).args(remove).status().unwrap();
        place.index(&index, &tree);
        let parts = place.path("parts");
        let options =
            ["export", "--format", "gufi-trace", "--parts", "2", "-o", parts.to_str().unwrap()];
        assert!(place.canopy(&index, &options.map(OsStr::new)).status.success());
        let theirs = place.path("gufi");
        let files = ["part-0000.trace", "part-0001.trace"].map(|name| parts.join(name));
        let mut build = Command::new(gufi.join("gufi_trace2index"));
        let built = build.args(["-d", "x", "-n", "2"]).args(&files).arg(&theirs).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let query = Command::new(gufi.join("gufi_query"))
            .args(["-n", "2", "-d", ",", "-I", "CREATE TABLE t(d INT64, n INT64, s INT64)"])
            .args(["-S", "INSERT INTO t SELECT 1, 0, 0 FROM summary", "-a", "2"])
            .args([
                "-E",
                "INSERT INTO t SELECT 0, count(*), CAST(total(size) AS INT) FROM pentries",
            ])
            .args(["-K", "CREATE TABLE a(d INT64, n INT64, s INT64)"])
            .args(["-J", "INSERT INTO a SELECT sum(d), sum(n), sum(s) FROM t"])
            .args(["-G", "SELECT sum(d), sum(n), sum(s) FROM a"])
            .arg(theirs.join("tree"))
            .output()
            .unwrap();
        let ours = |table: &str, sum: &str| {
            let sql = format!("SELECT count(*), coalesce(sum({sum}), 0) FROM {table}");
            let output = place.canopy(&index, &["sql", "--format", "csv", &sql].map(OsStr::new));
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let text = String::from_utf8(output.stdout).unwrap();
            text.lines().nth(1).unwrap().to_owned()
        };
        let dirs = ours("directories", "size");
        let dirs = dirs.split(',').next().unwrap();
        let ours = Some(format!("{dirs},{}", ours("entries", "size")));
        let theirs = String::from_utf8_lossy(&query.stdout).trim().to_owned();
        let errors = String::from_utf8_lossy(&query.stderr).into_owned();
        assert_eq!(Some(theirs), ours, "seed {seed}: {errors}");
    }
}

const FORMATS: [&str; 6] = ["gufi-trace", "ncdu", "parquet", "arrow", "csv", "ndjson"];

#[test]
fn a_reader_that_goes_away_is_no_fault_and_a_full_disk_is_one() {
    let case = Case::new(3400);
    for format in FORMATS {
        let mut command = Command::new(&case.place.canopy);
        command.arg("--index").arg(&case.index).args(["export", "--format", format]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let quiet =
            errors.is_empty() || errors.contains("end of line") && errors.lines().count() == 1;
        assert!(output.status.success() && quiet, "{format}: {errors}");
        let full = case.export(&root(), format, &["-o".as_ref(), "/dev/full".as_ref()]);
        let errors = String::from_utf8_lossy(&full.stderr).into_owned();
        assert_eq!(full.status.code(), Some(2), "{format}");
        assert_eq!(errors, "canopy: cannot write the answer: No space left on device\n");
    }
}

#[test]
fn impossible_exports_are_errors() {
    let case = Case::new(3401);
    let nowhere = case.tree.join("nowhere");
    for format in FORMATS {
        let output = case.export(&root(), format, &[nowhere.as_os_str()]);
        assert_eq!(output.status.code(), Some(1), "{format}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("No such file"), "{format}");
    }
    std::fs::write(case.tree.join("a file"), "").unwrap();
    case.place.index(&case.index, &case.tree);
    for format in ["gufi-trace", "ncdu"] {
        let output = case.export(&root(), format, &[case.tree.join("a file").as_os_str()]);
        assert_eq!(output.status.code(), Some(1), "{format}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("not a directory"), "{format}");
    }
    let file = case.tree.join("a file");
    let csv = String::from_utf8(case.exported(&root(), "csv", &[file.as_os_str()])).unwrap();
    assert_eq!(csv.lines().count(), 2, "{csv}");
    assert!(csv.lines().nth(1).unwrap().starts_with(file.to_str().unwrap()), "{csv}");
    assert!(file.as_os_str().as_bytes().ends_with(b"a file"));
}

#[test]
fn a_terminal_gets_no_controls_and_no_binary_formats() {
    let case = Case::new(3402);
    for name in [&b"\x1b[2J"[..], "\u{9b}2J".as_bytes(), b"raw\x9b2J"] {
        std::fs::write(case.tree.join(OsStr::from_bytes(name)), "").unwrap();
    }
    case.place.index(&case.index, &case.tree);
    let canopy = format!(
        "{} --index {} export {} --format",
        case.place.canopy.display(),
        case.index.display(),
        case.tree.display()
    );
    for format in FORMATS {
        for output in ["", "-o /dev/tty"] {
            let (shown, code) = on_terminal(&format!("{canopy} {format} {output}"), "C.UTF-8");
            let text = String::from_utf8_lossy(&shown);
            if ["parquet", "arrow", "gufi-trace"].contains(&format) {
                assert_eq!(code, Some(2), "{format}: {text}");
                assert!(text.contains("nothing for a terminal: name a file with -o"), "{text}");
            } else {
                assert_eq!(code, Some(0), "{format}: {text}");
                let control = |c: char| c.is_control() && !['\r', '\n', '\t'].contains(&c);
                assert!(text.contains("2J") && !text.contains(control), "{format}: {text:?}");
                assert!(!shown.split(|byte| *byte == b'w').any(|end| end.starts_with(b"\x9b")));
            }
        }
    }
}

#[test]
fn a_file_is_written_to_once_there_is_something_to_export() {
    let case = Case::new(3403);
    let file = case.place.path("kept");
    std::fs::write(&file, "what was there").unwrap();
    let nowhere = case.tree.join("nowhere");
    let parts = case.place.path("parts");
    for format in FORMATS {
        let words = [nowhere.as_os_str(), "-o".as_ref(), file.as_os_str()];
        assert_eq!(case.export(&root(), format, &words).status.code(), Some(1), "{format}");
        assert_eq!(std::fs::read(&file).unwrap(), b"what was there", "{format}");
    }
    let trees = [case.tree.as_os_str(), case.tree.as_os_str(), "-o".as_ref(), file.as_os_str()];
    for format in ["ncdu", "gufi-trace"] {
        assert_eq!(case.export(&root(), format, &trees).status.code(), Some(2), "{format}");
        assert_eq!(std::fs::read(&file).unwrap(), b"what was there", "{format}");
    }
    let words =
        [nowhere.as_os_str(), "-o".as_ref(), parts.as_os_str(), "--parts".as_ref(), "2".as_ref()];
    assert_eq!(case.export(&root(), "gufi-trace", &words).status.code(), Some(1));
    assert!(!parts.exists());
    // Other things than files stay as they are.
    let pipe = case.place.path("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read(pipe).unwrap()
    });
    let link = case.place.path("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let expected = case.exported(&root(), "csv", &[case.tree.as_os_str()]);
    for place in [pipe.as_os_str(), link.as_os_str(), "/dev/null".as_ref()] {
        case.exported(&root(), "csv", &[case.tree.as_os_str(), "-o".as_ref(), place]);
    }
    let to_stdout = [case.tree.as_os_str(), "-o".as_ref(), "/dev/stdout".as_ref()];
    let sorted = |text: &[u8]| sorted(text, b'\n');
    assert_eq!(sorted(&case.exported(&root(), "csv", &to_stdout)), sorted(&expected));
    assert_eq!(sorted(&reader.join().unwrap()), sorted(&expected));
    assert_eq!(sorted(&std::fs::read(&file).unwrap()), sorted(&expected));
    assert!(link.is_symlink());
}

#[test]
fn an_export_that_does_not_end_well_leaves_the_file_that_was_there() {
    let case = Case::new(3404);
    for number in 0..2000 {
        std::fs::write(case.tree.join(format!("more{number}")), "").unwrap();
    }
    case.place.index(&case.index, &case.tree);
    let disk = case.place.small_disk("small", "64k");
    let there = disk.0.join("file");
    let names = || {
        let names = std::fs::read_dir(&disk.0).unwrap();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    for format in ["csv", "ndjson", "parquet", "arrow", "ncdu", "gufi-trace"] {
        std::fs::write(&there, "what was there").unwrap();
        let place = ["-o".as_ref(), there.as_os_str()];
        let output = case.export(&root(), format, &place);
        // What takes less fits.
        if output.status.success() {
            continue;
        }
        assert_eq!(std::fs::read(&there).unwrap(), b"what was there", "{format}");
        assert_eq!(names(), ["file"], "{format}");
    }
    // Whoever ends it, it leaves what was there.
    let file = case.place.path("whole");
    std::fs::write(&file, "what was there").unwrap();
    let line = format!(
        "ulimit -f 8; exec {} --index {} export --format csv -o {}",
        case.place.canopy.display(),
        case.index.display(),
        file.display()
    );
    let ended = Command::new("bash").args(["-c", &line]).output().unwrap();
    assert!(!ended.status.success(), "{ended:?}");
    assert_eq!(std::fs::read(&file).unwrap(), b"what was there");
}

#[test]
fn a_file_that_is_replaced_keeps_its_permissions() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    let case = Case::new(3405);
    let (file, hard) = (case.place.path("file"), case.place.path("hard"));
    std::fs::write(&file, "old").unwrap();
    chown(&file, Some(2001), Some(3001)).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    let acl = Command::new("setfacl").args(["-m", "u:2002:r"]).arg(&file).status();
    let write = || case.exported(&root(), "csv", &["-o".as_ref(), file.as_os_str()]);
    write();
    let now = file.metadata().unwrap();
    assert_eq!((now.uid(), now.gid()), (2001, 3001));
    assert_eq!(now.mode() & 0o7777, 0o640);
    if acl.is_ok_and(|status| status.success()) {
        let shown = Command::new("getfacl").arg("-n").arg(&file).output().unwrap().stdout;
        assert!(String::from_utf8_lossy(&shown).contains("user:2002:r"));
    }
    // It gets no ACL from the directory, either.
    let plain = case.place.path("out/plain");
    std::fs::write(&plain, "old").unwrap();
    std::fs::set_permissions(&plain, std::fs::Permissions::from_mode(0o640)).unwrap();
    let out = plain.parent().unwrap();
    let acl = Command::new("setfacl").args(["-d", "-m", "u:2002:rw"]).arg(out).status();
    case.exported(&root(), "csv", &["-o".as_ref(), plain.as_os_str()]);
    assert_eq!(plain.metadata().unwrap().mode() & 0o7777, 0o640);
    if acl.is_ok_and(|status| status.success()) {
        let shown = Command::new("getfacl").arg("-n").arg(&plain).output().unwrap().stdout;
        assert!(!String::from_utf8_lossy(&shown).contains("2002"));
    }
    // One file with two names stays one.
    std::fs::hard_link(&file, &hard).unwrap();
    write();
    assert_eq!(file.metadata().unwrap().ino(), hard.metadata().unwrap().ino());
    // Who may not write to the file may not replace it.
    let theirs = case.place.path("out/theirs");
    std::fs::write(&theirs, "mine").unwrap();
    let user = users(3405).remove(0);
    let output = case.export(&user, "csv", &["-o".as_ref(), theirs.as_os_str()]);
    assert!(user.uid == 0 || !output.status.success());
    assert!(user.uid == 0 || std::fs::read(&theirs).unwrap() == b"mine");
}

#[test]
fn nothing_is_exported_to_what_others_planted() {
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};
    let case = Case::new(3406);
    let (victim, shared) = (case.place.path("victim"), case.place.path("shared"));
    std::fs::write(&victim, "precious").unwrap();
    std::fs::create_dir(&shared).unwrap();
    std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o1777)).unwrap();
    let [link, pipe, file] = ["link", "pipe", "file"].map(|name| shared.join(name));
    symlink(&victim, &link).unwrap();
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::fs::write(&file, "theirs").unwrap();
    for path in [&link, &pipe, &file] {
        lchown(path, Some(2001), Some(3001)).unwrap();
        let output = case.export(&root(), "csv", &["-o".as_ref(), path.as_os_str()]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("what is there belongs to uid 2001"), "{said}");
    }
    assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
    assert_eq!(std::fs::read(&file).unwrap(), b"theirs");
    // No file is made where a directory was meant.
    let slash = format!("{}/", case.place.path("slash").display());
    let output = case.export(&root(), "csv", &["-o", &*slash].map(OsStr::new));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said, format!("canopy: cannot create {slash}: Is a directory\n"));
    assert!(!case.place.path("slash").exists());
    // More parts than names are tried.
    let parts = case.place.path("parts");
    let words = ["-o".as_ref(), parts.as_os_str(), "--parts".as_ref(), "250".as_ref()];
    for _ in 0..2 {
        case.exported(&root(), "gufi-trace", &words);
        let names = std::fs::read_dir(&parts).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, (0..250).map(|part| format!("part-{part:04}.trace")).collect::<Vec<_>>());
    }
}
