//! Imports against scans of the same trees: what is told of every entry, and who sees it. Needs
//! root.
//!
//! With GUFI_BIN set to the directory of GUFI's programs, traces and indexes that GUFI makes are
//! imported too.

use crate::common;

use canopy_import::{Counts, Format, Import, Request};
use canopy_model::{Audience, ClassId, ClassTable, Credentials, Listing, Sink, unescape};
use common::requirements::gufi;
use common::{Fixture, User, assert_same, random_tree, seeded, sorted};
use rand::RngExt;
use rand::rngs::StdRng;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// All that a trace tells of an entry, with times in whole seconds.
const ALL: &str = "%p|%y|%m|%U|%G|%s|%n|%i|%b|%l|%T@ %A@ %C@\\0";

/// How a trace is written.
#[derive(Clone, Copy)]
struct Style {
    prefixed: bool,
    delimiter: u8,
    /// Whether entries that GUFI leaves out are written.
    special: bool,
}

impl Style {
    fn text(self, out: &mut Vec<u8>, text: &[u8]) {
        if self.prefixed {
            out.extend(format!("{:04x}", text.len()).bytes());
        }
        out.extend_from_slice(text);
        out.push(self.delimiter);
    }

    fn record(self, path: &Path, name: &[u8]) -> Vec<u8> {
        let (mut out, metadata) = (Vec::new(), path.symlink_metadata().unwrap());
        let target = if metadata.is_symlink() {
            fs::read_link(path).unwrap().into_os_string().into_vec()
        } else {
            Vec::new()
        };
        self.text(&mut out, name);
        let kind = if metadata.is_dir() {
            'd'
        } else if metadata.is_symlink() {
            'l'
        } else {
            'f'
        };
        let created =
            metadata.created().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
        let created = created.map_or(0, |since| since.as_secs());
        let m = &metadata;
        let numbers = [
            m.ino() as i64,
            m.mode().into(),
            m.nlink() as i64,
            m.uid().into(),
            m.gid().into(),
            m.size() as i64,
            m.blksize() as i64,
            m.blocks() as i64,
            m.atime(),
            m.mtime(),
            m.ctime(),
        ];
        let mut put = |text: String| {
            out.extend(text.bytes());
            out.push(self.delimiter);
        };
        put(kind.to_string());
        numbers.iter().for_each(|number| put(number.to_string()));
        self.text(&mut out, &target);
        let pairs =
            acl(path).map(|acl| [b"system.posix_acl_access\x1f", &acl[..], b"\x1f"].concat());
        if self.prefixed {
            let length = pairs.as_ref().map_or(0, Vec::len) + 4;
            out.extend(format!("{length:04x}{:04x}", u8::from(pairs.is_some())).bytes());
        }
        out.extend(pairs.unwrap_or_default());
        out.push(self.delimiter);
        for number in [created, 0, 0, 0, 0] {
            out.extend(number.to_string().bytes());
            out.push(self.delimiter);
        }
        self.text(&mut out, b"");
        self.text(&mut out, b"");
        out.extend(b"0");
        out.push(self.delimiter);
        out.push(b'\n');
        out
    }

    /// The stanzas of a tree.
    fn stanzas(self, directory: &Path, name: &[u8], into: &mut Vec<Vec<u8>>) {
        let mut stanza = self.record(directory, name);
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            let name = [name, b"/", entry.file_name().as_bytes()].concat();
            if kind.is_dir() {
                self.stanzas(&path, &name, into);
            } else if self.special || !kind.is_fifo() {
                stanza.extend(self.record(&path, &name));
            }
        }
        into.push(stanza);
    }
}

fn acl(path: &Path) -> Option<Vec<u8>> {
    let mut value = vec![0; 4096];
    let length = rustix::fs::lgetxattr(path, "system.posix_acl_access", &mut value[..]).ok()?;
    value.truncate(length);
    Some(value)
}

/// Writes stanzas into files, in random order.
fn shuffled(stanzas: Vec<Vec<u8>>, random: &mut StdRng, prefix: &Path) -> Vec<PathBuf> {
    let mut files = vec![Vec::new(); random.random_range(1..4)];
    let mut stanzas = stanzas;
    while !stanzas.is_empty() {
        let stanza = stanzas.swap_remove(random.random_range(0..stanzas.len()));
        let file = random.random_range(0..files.len());
        files[file].extend(stanza);
    }
    let written = files.into_iter().enumerate().map(|(number, bytes)| {
        let path = prefix.with_extension(number.to_string());
        fs::write(&path, bytes).unwrap();
        path
    });
    written.collect()
}

fn import(place: &Fixture, index: &Path, format: &str, root: &Path, files: &[PathBuf]) -> Output {
    import_with(place, index, format, root, files, &[])
}

fn import_with(
    place: &Fixture,
    index: &Path,
    format: &str,
    root: &Path,
    files: &[PathBuf],
    more: &[&OsStr],
) -> Output {
    let mut arguments: Vec<&OsStr> = vec!["import".as_ref(), "--format".as_ref(), format.as_ref()];
    arguments.extend([OsStr::new("--root"), root.as_os_str()]);
    arguments.extend(more);
    arguments.extend(files.iter().map(|file| file.as_os_str()));
    place.canopy(index, &arguments)
}

fn succeeded(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Returns all entries of an index, with times cut to seconds.
fn indexed_entries(place: &Fixture, index: &Path, tree: &Path, expression: &[&str]) -> Vec<String> {
    let mut arguments: Vec<&OsStr> = vec!["find".as_ref(), tree.as_os_str()];
    arguments.extend(expression.iter().map(OsStr::new));
    arguments.extend(["-printf", ALL].map(OsStr::new));
    let output = place.canopy(index, &arguments);
    succeeded(&output);
    let cut = |line: String| {
        let (rest, times) = line.rsplit_once('|').unwrap();
        let whole: Vec<&str> =
            times.split(' ').map(|time| time.split('.').next().unwrap()).collect();
        format!("{rest}|{}", whole.join(" "))
    };
    sorted(&output.stdout, 0).into_iter().map(cut).collect()
}

/// Expects that users see the same paths in two indexes.
fn same_for_users(
    place: &Fixture,
    tree: &Path,
    scanned: &Path,
    imported: &Path,
    random: &mut StdRng,
) {
    for _ in 0..6 {
        let user = User::random(random);
        let shown = |index: &Path| {
            let arguments: [&OsStr; 5] = [
                "--index".as_ref(),
                index.as_os_str(),
                "find".as_ref(),
                tree.as_os_str(),
                "-print0".as_ref(),
            ];
            sorted(&user.run(place.canopy.as_os_str(), &arguments).stdout, 0)
        };
        assert_same(&shown(imported), &shown(scanned), &format!("{user:?} in {}", tree.display()));
    }
}

/// The directories that an import hands over, with the classes of their listings.
struct Listed<'a>(&'a Path, Vec<(PathBuf, ClassId)>);

impl Sink for Listed<'_> {
    type Error = std::convert::Infallible;

    fn listing(&mut self, listing: &Listing<'_>) -> Result<(), Self::Error> {
        let path = unescape(listing.path.as_str()).into_owned();
        let path =
            if path.is_empty() { self.0.to_owned() } else { self.0.join(OsString::from_vec(path)) };
        let Audience { listers, knowers } = listing.access.listing;
        self.1.push((path, knowers.unwrap_or(listers)));
        Ok(())
    }
}

/// Expects that the classes of imported listings admit exactly those whom the kernel lets list the
/// directories, if they know their names.
fn same_as_the_kernel(tree: &Path, files: &[PathBuf], delimiter: u8, random: &mut StdRng) {
    let request = Request {
        files: files.to_vec(),
        root: Some(tree.as_os_str().as_bytes().to_vec()),
        delimiter: Some(delimiter),
        ..Request::new(Format::GufiTrace)
    };
    let classes = ClassTable::default();
    let mut import = Import::open(&request).unwrap();
    let listed = import.run(&classes, &Counts::default(), vec![Listed(tree, Vec::new())]).unwrap();
    let dirs = &listed[0].1;
    for _ in 0..10 {
        let user = User::random(random);
        let who = Credentials::new(user.uid, user.groups.iter().copied().chain([user.gid]));
        let mut arguments: Vec<&OsStr> = dirs.iter().map(|(path, _)| path.as_os_str()).collect();
        arguments.extend(["-maxdepth", "0", "-readable", "-executable", "-print0"].map(OsStr::new));
        let expected = sorted(&user.run("find".as_ref(), &arguments).stdout, 0);
        let admitted = dirs.iter().filter(|(_, class)| classes.admits(*class, &who));
        let mut found: Vec<String> = admitted
            .map(|(path, _)| path.as_os_str().as_bytes().escape_ascii().to_string())
            .collect();
        found.sort();
        assert_same(&found, &expected, &format!("{user:?} in {}", tree.display()));
    }
}

#[test]
fn an_imported_trace_equals_a_scan() {
    let place = Fixture::new();
    for seed in 4000..4016 {
        let mut random = seeded(seed);
        let path = |name: &str| place.path(&format!("{name}{seed}"));
        let (tree, scanned, imported) = (path("tree"), path("scanned"), path("imported"));
        random_tree(&tree, &mut random, true);
        let prefixed = seed % 3 != 0;
        let style =
            Style { prefixed, delimiter: if seed % 4 == 0 { b'|' } else { 0x1E }, special: true };
        let mut stanzas = Vec::new();
        style.stanzas(&tree, b"root", &mut stanzas);
        let files = shuffled(stanzas, &mut random, &path("trace"));
        place.index(&scanned, &tree);
        let delimiter = OsString::from_vec(vec![style.delimiter]);
        let more: [&OsStr; 4] =
            ["--delim".as_ref(), &delimiter, "--threads".as_ref(), "3".as_ref()];
        succeeded(&import_with(&place, &imported, "gufi-trace", &tree, &files, &more));
        let (found, expected) = (
            indexed_entries(&place, &imported, &tree, &[]),
            indexed_entries(&place, &scanned, &tree, &[]),
        );
        assert_same(&found, &expected, &format!("seed {seed}"));
        same_for_users(&place, &tree, &scanned, &imported, &mut random);
        same_as_the_kernel(&tree, &files, style.delimiter, &mut random);
    }
}

/// The recipe of docs/import.md.
const RECIPE: &str = "%y %m %U %G %s %n %i %b %T@ %A@ %C@ %B@ %p\\0%l\\0";

/// Returns all entries of an index, with times to the nanosecond. Not every find(1) knows birth
/// times.
fn indexed_entries_exactly(place: &Fixture, index: &Path, tree: &Path) -> Vec<String> {
    let format = "%p|%y|%m|%U|%G|%s|%n|%i|%b|%l|%T@ %A@ %C@\\0";
    let arguments: [&OsStr; 4] =
        ["find".as_ref(), tree.as_os_str(), "-printf".as_ref(), format.as_ref()];
    let output = place.canopy(index, &arguments);
    succeeded(&output);
    sorted(&output.stdout, 0)
}

#[test]
fn the_output_of_find_equals_a_scan() {
    let place = Fixture::new();
    for seed in 4400..4408 {
        let mut random = seeded(seed);
        let path = |name: &str| place.path(&format!("{name}{seed}"));
        let (tree, scanned, imported, list) =
            (path("tree"), path("scanned"), path("imported"), path("list"));
        random_tree(&tree, &mut random, true);
        without_acls(&tree);
        let output = Command::new("find").arg(&tree).args(["-printf", RECIPE]).output().unwrap();
        fs::write(&list, &output.stdout).unwrap();
        place.index(&scanned, &tree);
        succeeded(&import(&place, &imported, "find", &tree, &[list]));
        let (found, expected) = (
            indexed_entries_exactly(&place, &imported, &tree),
            indexed_entries_exactly(&place, &scanned, &tree),
        );
        assert_same(&found, &expected, &format!("seed {seed}"));
    }
}

#[test]
fn an_export_that_is_imported_equals_what_was_exported() {
    let place = Fixture::new();
    for seed in 4500..4505 {
        let mut random = seeded(seed);
        let path = |name: &str| place.path(&format!("{name}{seed}"));
        let (tree, scanned) = (path("tree"), path("scanned"));
        random_tree(&tree, &mut random, true);
        // Exports have no values of extended attributes, so no ACLs.
        without_acls(&tree);
        place.index(&scanned, &tree);
        for format in ["parquet", "csv", "ndjson"] {
            let (imported, file) = (path(&format!("imported-{format}")), path(format));
            let arguments: [&OsStr; 4] =
                ["export".as_ref(), "--format".as_ref(), format.as_ref(), tree.as_os_str()];
            let output = place.canopy(&scanned, &arguments);
            succeeded(&output);
            fs::write(&file, &output.stdout).unwrap();
            let arguments: [&OsStr; 4] =
                ["import".as_ref(), "--format".as_ref(), format.as_ref(), file.as_os_str()];
            succeeded(&place.canopy(&imported, &arguments));
            let (found, expected) = (
                indexed_entries_exactly(&place, &imported, &tree),
                indexed_entries_exactly(&place, &scanned, &tree),
            );
            assert_same(&found, &expected, &format!("seed {seed}, {format}"));
            same_for_users(&place, &tree, &scanned, &imported, &mut random);
        }
    }
}

#[test]
fn csv_and_ndjson_by_way_of_the_command() {
    let place = Fixture::new();
    let (csv, ndjson) = (place.path("a.csv"), place.path("a.ndjson"));
    fs::write(
        &csv,
        "path,type,mode,uid,gid,size,mtime\n/d/x,f,600,2001,3001,7,1.5\n/d,d,755,0,0,0,0\n",
    )
    .unwrap();
    let lines = [
        r#"{"path":"/d/x","type":"f","mode":"600","uid":2001,"gid":3001,"size":7,"mtime_ns":1500000000}"#,
        r#"{"path":"/d","mode":16877,"uid":0,"gid":0,"size":0,"mtime":"1970-01-01T00:00:00Z"}"#,
    ];
    fs::write(&ndjson, lines.join("\n")).unwrap();
    for (format, file) in [("csv", csv), ("ndjson", ndjson)] {
        let index = place.path(format);
        let output = place.canopy(
            &index,
            &["import".as_ref(), "--format".as_ref(), format.as_ref(), file.as_os_str()],
        );
        succeeded(&output);
        let arguments: [&OsStr; 4] = [
            "find".as_ref(),
            "/d".as_ref(),
            "-printf".as_ref(),
            "%p %y %m %U %G %s %b %T@\\n".as_ref(),
        ];
        let shown = String::from_utf8(place.canopy(&index, &arguments).stdout).unwrap();
        let expected = "/d d 755 0 0 0 0 0.0000000000\n/d/x f 600 2001 3001 7 1 1.5000000000\n";
        assert_eq!(shown, expected, "{format}");
    }
}

#[test]
fn programs_get_one_object() {
    let place = Fixture::new();
    let (csv, index) = (place.path("a.csv"), place.path("index"));
    let text = "path,type,mode,uid,gid,size,mtime
        /d,d,755,0,0,0,0\n/d/x,f,600,0,0,7,0\n/d/y,q,0,0,0,0,0";
    fs::write(&csv, text.replace("        ", "")).unwrap();
    let words =
        ["import", "--format", "csv", "--lenient", "--root", "/d", "--json"].map(OsStr::new);
    let output = place.canopy(&index, &[&words, &[csv.as_os_str()][..]].concat());
    assert_eq!(output.status.code(), Some(1));
    let mut object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for key in ["seconds", "bytes"] {
        let number = object.as_object_mut().unwrap().remove(key);
        assert!(number.unwrap().as_f64() > Some(0.0), "{key}");
    }
    let expected = serde_json::json!({
        "generation": 1, "unchanged": false, "complete": false, "entries": 2, "files": 1, "directories": 1,
        "shards": 1, "skipped": 1, "sources": ["/d"],
    });
    assert_eq!(object, expected);
}

#[test]
fn a_source_has_a_name_and_builders_have_their_memory() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    random_tree(&tree, &mut seeded(4200), false);
    let mut stanzas = Vec::new();
    let style = Style { prefixed: false, delimiter: 0x1E, special: true };
    style.stanzas(&tree, b"root", &mut stanzas);
    stanzas.reverse();
    let file = place.path("trace");
    fs::write(&file, stanzas.concat()).unwrap();
    let more = ["--name", "site", "--memory", "16M", "--threads", "2", "--trace-form", "plain"]
        .map(OsStr::new);
    succeeded(&import_with(
        &place,
        &index,
        "gufi-trace",
        &tree,
        std::slice::from_ref(&file),
        &more,
    ));
    let info = place.canopy(&index, &["info".as_ref(), "--json".as_ref()]).stdout;
    let info: serde_json::Value = serde_json::from_slice(&info).unwrap();
    assert_eq!(info["sources"][0]["name"], "site");
    let entries = common::all_paths(&tree).len();
    assert_eq!(info["visible_entries"].as_u64(), Some(entries as u64));
    for wrong in [["--memory", "1K"], ["--trace-form", "nonsense"], ["--trace-form", "prefixed"]] {
        let files = std::slice::from_ref(&file);
        let output =
            import_with(&place, &index, "gufi-trace", &tree, files, &wrong.map(OsStr::new));
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn bad_input_publishes_nothing_and_says_where() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    random_tree(&tree, &mut seeded(4100), false);
    let mut stanzas = Vec::new();
    Style { prefixed: true, delimiter: 0x1E, special: true }.stanzas(&tree, b"root", &mut stanzas);
    stanzas.reverse();
    let mut bytes = stanzas.concat();
    bytes.truncate(bytes.len() - 3);
    let file = place.path("trace");
    fs::write(&file, &bytes).unwrap();
    let output = import(&place, &index, "gufi-trace", &tree, std::slice::from_ref(&file));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("trace: byte ") && said.contains("ends within a record"), "{said}");
    assert!(!index.join("CURRENT").exists());
    let output = import_with(&place, &index, "gufi-trace", &tree, &[file], &["--lenient".as_ref()]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("1 record"), "{said}");
    assert!(index.join("CURRENT").exists());
}

/// No input tells of the directories above its root: whoever imports can.
#[test]
fn directories_above_the_root_are_as_told() {
    let place = Fixture::new();
    let (tree, index) = (PathBuf::from("/no-such/home/team"), place.path("index"));
    let file = place.path("list.csv");
    fs::write(&file, "path,type,mode,uid,gid,size,mtime\n,d,0755,0,0,0,0\nplan,f,0644,0,0,0,0\n")
        .unwrap();
    let bob = User { uid: 2002, gid: 3002, groups: vec![3002] };
    let found = |start: &str| -> String {
        let words = ["--index".as_ref(), index.as_os_str(), "find".as_ref(), start.as_ref()];
        String::from_utf8(bob.run(place.canopy.as_os_str(), &words).stdout).unwrap()
    };
    let run = |above: &[&str]| {
        let words: Vec<&OsStr> =
            above.iter().flat_map(|above| ["--above".as_ref(), OsStr::new(above)]).collect();
        import_with(&place, &index, "csv", &tree, std::slice::from_ref(&file), &words)
    };
    let open = run(&[]);
    let said = String::from_utf8_lossy(&open.stderr).into_owned();
    assert!(said.contains("above /no-such/home/team count as open to all"), "{said}");
    assert!(found("/no-such/home/team").contains("plan"));
    // Closed to Bob; then a gate, through which who knows the name gets.
    for (mode, shown) in [("0750:0:0", false), ("0750:0:3002", true), ("0711:0:0", true)] {
        let output = run(&[format!("/no-such/home={mode}").as_str(), "/no-such=0755:0:0"]);
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        assert_eq!(found("/no-such/home/team").contains("plan"), shown, "{mode}");
    }
    for wrong in ["/no-such/home", "/elsewhere=0755:0:0", "/no-such=0799:0:0", "/no-such=0755:0"] {
        assert_eq!(run(&[wrong]).status.code(), Some(2), "{wrong}");
    }
}

fn run(program: &Path, arguments: &[&OsStr]) {
    let output = Command::new(program).args(arguments).current_dir("/").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Fields of an entry in ncdu's exports: directories have no links, files with one name no inode.
const NCDU_HAS: &str = "%p|%y|%m|%U|%G|%s|%b|";

#[test]
fn exports_of_ncdu_equal_a_scan() {
    let place = Fixture::new();
    for seed in 4500..4506 {
        let mut random = seeded(seed);
        let path = |name: &str| place.path(&format!("{name}{seed}"));
        let (tree, scanned, imported, file) =
            (path("tree"), path("scanned"), path("imported"), path("ncdu"));
        random_tree(&tree, &mut random, true);
        without_acls(&tree);
        let export = |options: &[&str]| {
            let mut arguments: Vec<&OsStr> = ["-0", "-e", "-o"].map(OsStr::new).to_vec();
            arguments.push(file.as_os_str());
            arguments.extend(options.iter().map(OsStr::new));
            arguments.push(tree.as_os_str());
            run("ncdu".as_ref(), &arguments);
        };
        let told = |index: &Path, options: &[&str]| {
            let mut arguments: Vec<&OsStr> = vec!["find".as_ref(), tree.as_os_str()];
            let (dirs, linked) = (format!("{NCDU_HAS}%Ts\\0"), format!("{NCDU_HAS}%Ts|%n|%i\\0"));
            let more = [
                "(", "-type", "d", "-o", "-links", "1", ")", "-printf", &dirs, "-o", "-printf",
                &linked,
            ];
            arguments.extend(options.iter().chain(&more).map(OsStr::new));
            let output = place.canopy(index, &arguments);
            succeeded(&output);
            sorted(&output.stdout, 0)
        };
        export(&[]);
        place.index(&scanned, &tree);
        succeeded(&import(&place, &imported, "ncdu", &tree, std::slice::from_ref(&file)));
        let what = format!("seed {seed}");
        assert_same(&told(&imported, &[]), &told(&scanned, &[]), &what);
        same_for_users(&place, &tree, &scanned, &imported, &mut random);
        let sum = |index: &Path| {
            place.canopy(index, &["du".as_ref(), "-s".as_ref(), tree.as_os_str()]).stdout
        };
        assert_eq!(sum(&imported), sum(&scanned), "{what}");
        // What it leaves out by a pattern is not there.
        export(&["--exclude", "*1"]);
        succeeded(&import(&place, &imported, "ncdu", &tree, std::slice::from_ref(&file)));
        let not = ["-mindepth", "1", "-name", "*1", "-prune", "-o"];
        let kept: Vec<String> = told(&scanned, &not);
        let found: Vec<String> = told(&imported, &not);
        assert_same(&found, &kept, &what);
        let left = place.canopy(
            &imported,
            &["find", tree.to_str().unwrap(), "-mindepth", "1", "-name", "*1"].map(OsStr::new),
        );
        assert!(left.stdout.is_empty(), "{}", left.stdout.escape_ascii());
    }
}

/// ncdu 1 refused an export with ids from 2^31 on, and `import` one with a file older than 1970.
#[test]
fn exports_for_ncdu_take_every_id_and_time() {
    let place = Fixture::new();
    let (tree, file) = (place.path("tree"), place.path("export"));
    let (scanned, imported) = (place.path("scanned"), place.path("imported"));
    fs::create_dir(&tree).unwrap();
    for (name, id, mtime_s) in
        [("nobody", u32::MAX - 1, 0), ("large", 3_000_000_000, -1_000_000), ("old", 5, -1)]
    {
        let path = tree.join(name);
        fs::write(&path, name).unwrap();
        std::os::unix::fs::chown(&path, Some(id), Some(id)).unwrap();
        run("touch".as_ref(), &["-d".as_ref(), format!("@{mtime_s}").as_ref(), path.as_os_str()]);
    }
    place.index(&scanned, &tree);
    let output = place.canopy(
        &scanned,
        &["export".as_ref(), "--format".as_ref(), "ncdu".as_ref(), tree.as_os_str()],
    );
    succeeded(&output);
    fs::write(&file, &output.stdout).unwrap();
    let again = place.path("again");
    run(
        "ncdu".as_ref(),
        &["-0", "-f", file.to_str().unwrap(), "-o", again.to_str().unwrap()].map(OsStr::new),
    );
    assert!(fs::read_to_string(&again).unwrap().contains("\"nobody\""));
    succeeded(&import(&place, &imported, "ncdu", &tree, &[file]));
    let told = |index: &Path| {
        let printed = ["-printf", "%f %U %G %T@\\0"].map(OsStr::new);
        let arguments =
            [&["find".as_ref(), tree.as_os_str(), "-type".as_ref(), "f".as_ref()][..], &printed]
                .concat();
        sorted(&place.canopy(index, &arguments).stdout, 0)
    };
    let found = told(&imported);
    assert_same(&found, &told(&scanned), "exported and imported");
    assert!(
        found.iter().any(|line| line.starts_with("nobody 4294967294 4294967294 0.")),
        "{found:?}"
    );
    // An export of ncdu's own, in which ids and times are signed.
    run(
        "ncdu".as_ref(),
        &["-0".as_ref(), "-e".as_ref(), "-o".as_ref(), again.as_os_str(), tree.as_os_str()],
    );
    succeeded(&import(&place, &imported, "ncdu", &tree, &[again]));
    assert_same(&told(&imported), &found, "exported by ncdu");
}

/// GUFI leaves out all but files, directories and links, and does not read ACLs.
const GUFI_HAS: &[&str] = &["-type", "f,d,l"];

fn without_acls(tree: &Path) {
    run("setfacl".as_ref(), &["-R".as_ref(), "-P".as_ref(), "-b".as_ref(), tree.as_os_str()]);
}

#[test]
fn traces_of_gufi_equal_a_scan() {
    let Some(gufi) = gufi() else { return };
    let place = Fixture::new();
    for seed in 4200..4206 {
        let mut random = seeded(seed);
        let path = |name: &str| place.path(&format!("{name}{seed}"));
        let (tree, scanned, imported, trace) =
            (path("tree"), path("scanned"), path("imported"), path("trace"));
        random_tree(&tree, &mut random, true);
        without_acls(&tree);
        let arguments: [&OsStr; 5] =
            ["-n".as_ref(), "2".as_ref(), "-x".as_ref(), tree.as_os_str(), trace.as_os_str()];
        run(&gufi.join("gufi_dir2trace"), &arguments);
        place.index(&scanned, &tree);
        let files = [trace.with_extension("0"), trace.with_extension("1")];
        succeeded(&import(&place, &imported, "gufi-trace", &tree, &files));
        let (found, expected) = (
            indexed_entries(&place, &imported, &tree, GUFI_HAS),
            indexed_entries(&place, &scanned, &tree, GUFI_HAS),
        );
        assert_same(&found, &expected, &format!("seed {seed}"));
    }
}

/// Gives some files attributes, so that values lie in GUFI's databases of owners and groups too.
fn with_xattrs(tree: &Path) {
    let files =
        Command::new("find").arg(tree).args(["-type", "f,d", "-print0"]).output().unwrap().stdout;
    for (number, path) in files.split(|&byte| byte == 0).filter(|path| !path.is_empty()).enumerate()
    {
        let (path, value) = (Path::new(OsStr::from_bytes(path)), format!("value {number}"));
        // Some file systems have none for users.
        let _ = rustix::fs::setxattr(
            path,
            "user.note",
            value.as_bytes(),
            rustix::fs::XattrFlags::empty(),
        );
    }
}

#[test]
fn indexes_of_gufi_equal_a_scan_rolled_up_or_not() {
    let Some(gufi) = gufi() else { return };
    let place = Fixture::new();
    for seed in 4300..4306 {
        let mut random = seeded(seed);
        let path = |name: &str| place.path(&format!("{name}{seed}"));
        let (tree, scanned, imported, made) =
            (path("tree"), path("scanned"), path("imported"), path("gufi"));
        random_tree(&tree, &mut random, true);
        without_acls(&tree);
        with_xattrs(&tree);
        fs::set_permissions(&tree, fs::Permissions::from_mode(0o755)).unwrap();
        let arguments: [&OsStr; 5] =
            ["-n".as_ref(), "2".as_ref(), "-x".as_ref(), tree.as_os_str(), made.as_os_str()];
        run(&gufi.join("gufi_dir2index"), &arguments);
        place.index(&scanned, &tree);
        let expected = indexed_entries(&place, &scanned, &tree, GUFI_HAS);
        let root = [made.join(tree.file_name().unwrap())];
        for rolled_up in [false, true] {
            if rolled_up {
                run(&gufi.join("gufi_rollup"), &["-n".as_ref(), "2".as_ref(), made.as_os_str()]);
            }
            succeeded(&import(&place, &imported, "gufi-index", &tree, &root));
            let found = indexed_entries(&place, &imported, &tree, GUFI_HAS);
            assert_same(&found, &expected, &format!("seed {seed}, rolled up: {rolled_up}"));
        }
    }
}

/// No process has this number, and no ACL can name it.
#[test]
fn entries_of_unknown_owners_are_for_root() {
    let place = Fixture::new();
    let (csv, index) = (place.path("a.csv"), place.path("index"));
    let nobody = u32::MAX;
    fs::write(
        &csv,
        format!(
            "path,type,mode,uid,gid,size,mtime\n/d/open/x,f,644,0,0,7,1.5\n/d,d,755,0,0,0,0\n\
             /d/open,d,755,0,0,0,0\n/d/closed/y,f,644,0,0,7,1\n/d/closed,d,750,{nobody},{nobody},0,0\n"
        ),
    )
    .unwrap();
    let words = ["import", "--format=csv", csv.to_str().unwrap()].map(OsStr::new);
    succeeded(&place.canopy(&index, &words));
    for (uid, gid, expected) in [(0, 0, 5), (2001, 3001, 4), (65534, 65534, 4), (2001, 0, 4)] {
        let user = User { uid, gid, groups: vec![gid] };
        let words = ["--index".as_ref(), index.as_os_str(), "find".as_ref(), "/d".as_ref()];
        let lines = user.run(place.canopy.as_os_str(), &words).stdout;
        assert_eq!(lines.iter().filter(|&&byte| byte == b'\n').count(), expected, "{user:?}");
    }
}
