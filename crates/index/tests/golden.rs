//! A small index of the format of today, kept as it was written: it must be read to the same values
//! for ever, and today's writer must make one with the same values.
//!
//! With `CANOPY_WRITE_GOLDEN` in the environment, the tests write it anew: only for a new format.

use arrow::array::{Int64Array, RecordBatch, StringArray};
use arrow::util::pretty::pretty_format_batches;
use canopy_index::column::{ACCESS, ATIME, BTIME, CONTENT, CTIME, Columns};
use canopy_index::fuzzing::{classes, describe, unsealed};
use canopy_index::schema::FORMAT;
use canopy_index::{
    ColumnType, Error, FileKind, Index, ListingOrdinal, NewSource, Shard, TableColumn, TableFormat,
    TableKind, TableRecord, Writer, WriterOptions, table_schema,
};
use canopy_model::{
    Approach, Attributes, Audience, ClassTable, Device, Grant, Listing, Permissions, Rows,
    SourcePath, Xattr, escape,
};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SECOND_NS: i64 = 1_000_000_000;

/// Where the golden index and what it says are.
fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn attributes(ino: u64, mode: u32, uid: u32, size_bytes: i64) -> Attributes {
    Attributes {
        ino,
        mode,
        nlink: 1,
        uid,
        gid: uid,
        size_bytes,
        blksize_bytes: 4096,
        blocks: (size_bytes + 511) / 512,
        atime_ns: 1_700_000_000 * SECOND_NS + ino as i64,
        mtime_ns: 1_600_000_000 * SECOND_NS - ino as i64,
        ctime_ns: 1_650_000_000 * SECOND_NS,
        btime_ns: 1_500_000_000 * SECOND_NS,
        rdev: 0,
    }
}

/// The listings of the golden source, one after the other, below a root that everybody may read.
struct Tree<'a> {
    classes: &'a ClassTable,
    push: &'a mut dyn FnMut(&Listing<'_>),
}

impl Tree<'_> {
    /// Hands a listing over, and returns who may look up its child `gate/ann`.
    fn listing(
        &mut self,
        approach: &Approach,
        path: &str,
        directory: Attributes,
        rows: &Rows,
    ) -> Approach {
        let permissions = Permissions::of_inode::<()>(&directory, None);
        let access = self.classes.access(approach, permissions);
        let depth = if path.is_empty() { 0 } else { 1 + path.matches('/').count() as u32 };
        let (directory, access) = (&directory, &access);
        let path = SourcePath::escaped(path);
        (self.push)(&Listing { path, depth, part: 0, dev: Device(2049), directory, access, rows });
        self.classes.below(access, || "/golden/gate/ann".to_owned())
    }

    fn walk(&mut self) {
        let everyone = &Approach::EVERYONE;
        let all = everyone.audience;
        let mut rows = Rows::default();
        rows.push("a.txt", attributes(11, 0o100_644, 1000, 5), "");
        let root = self.classes.restricted(ClassTable::EVERYONE, &Grant::nobody(), 0);
        let root = Audience { listers: root, knowers: None };
        let value = Some((&b"text/\xff"[..], all));
        rows.push_xattr(Xattr { key: "user.mime,type", value });
        rows.push_xattr(Xattr { key: "trusted.secret", value: Some((b"hidden", root)) });
        rows.push(&escape(b"not\xfftext"), attributes(12, 0o100_600, 1001, 1 << 33), "");
        rows.push("link", attributes(13, 0o120_777, 0, 5), "a.txt");
        let device = Attributes { rdev: 0x0801, ..attributes(14, 0o060_660, 0, 0) };
        rows.push("disk", device, "");
        rows.push("gate", attributes(20, 0o040_711, 0, 4096), "");
        rows.push("private", attributes(30, 0o040_700, 1000, 4096), "");
        self.listing(everyone, "", attributes(10, 0o040_755, 0, 4096), &rows);

        let mut rows = Rows::default();
        rows.push("ann", attributes(21, 0o040_755, 1002, 4096), "");
        rows.push("notes", attributes(22, 0o100_644, 1002, 700), "");
        rows.push_xattr(Xattr { key: "user.a", value: Some((b"b", all)) });
        let ann = self.listing(everyone, "gate", attributes(20, 0o040_711, 0, 4096), &rows);

        let mut rows = Rows::default();
        let linked = |ino, nlink| Attributes { nlink, ..attributes(ino, 0o100_644, 1002, 100) };
        rows.push("one", linked(23, 2), "");
        rows.push("two", linked(23, 2), "");
        rows.push("elsewhere", linked(24, 3), "");
        self.listing(&ann, "gate/ann", attributes(21, 0o040_755, 1002, 4096), &rows);

        let mut rows = Rows::default();
        rows.push("key.001", attributes(31, 0o100_600, 1000, 32), "");
        self.listing(everyone, "private", attributes(30, 0o040_700, 1000, 4096), &rows);
    }
}

/// Makes the golden index with the writer of today.
fn write(index: &Path) {
    let mut writer = Writer::open(index, WriterOptions::default()).unwrap();
    let column = |name: &str, holds| TableColumn { name: name.to_owned(), holds };
    let columns = vec![column("name", ColumnType::Text), column("n", ColumnType::Int)];
    let derived = TableKind::Derived { columns: columns.clone(), fresh: true };
    let format = TableFormat::Sqlite { table: "projects".to_owned() };
    let attached = TableKind::Attached { file: "/data/p.db".to_owned(), format };
    let all = Approach::EVERYONE.audience;
    let source = writer
        .add_source(NewSource {
            name: Some("golden".to_owned()),
            root: "/golden".to_owned(),
            dev: Device(2049),
            scanned_ns: 1_700_000_001 * SECOND_NS,
            attributes: attributes(10, 0o040_755, 0, 4096),
            approach: Approach::EVERYONE,
            xattrs: vec![("user.root".to_owned(), Some((b"of it".into(), all)))],
            scan: None,
        })
        .unwrap();
    let mut sinks = writer.shard_writers(source);
    let sink = &mut sinks[0];
    let mut push = |listing: &Listing<'_>| sink.push(listing).unwrap();
    Tree { classes: writer.classes(), push: &mut push }.walk();
    writer.finish_shards(sinks).unwrap();
    writer.add_table(TableRecord { name: "projects".to_owned(), kind: attached }, None).unwrap();
    let record = TableRecord { name: "names".to_owned(), kind: derived };
    writer.add_table(record, Some("SELECT name, 1 AS n FROM entries".to_owned())).unwrap();
    for class in writer.held_classes() {
        let mut rows = writer.table_writer(class, "names").unwrap();
        let names = Arc::new(StringArray::from(vec![Some("a"), None]));
        let columns = vec![names as _, Arc::new(Int64Array::from(vec![1, 2])) as _];
        let schema = table_schema(&self::columns(&writer));
        rows.write(&RecordBatch::try_new(schema, columns).unwrap()).unwrap();
        let rows = rows.finish().unwrap();
        writer.add_rows(class, rows);
    }
    writer.publish().unwrap();
}

fn columns(writer: &Writer) -> Vec<TableColumn> {
    let derived = writer.tables().iter().find_map(|table| match &table.kind {
        TableKind::Derived { columns, .. } => Some(columns.clone()),
        TableKind::Attached { .. } => None,
    });
    derived.unwrap()
}

/// All that the public API tells of an index, but when it was published, sizes of files, and names
/// and digests that the keys of the index make.
fn description(index: &Path) -> String {
    let opened = Index::open(index).unwrap();
    let mut text = String::new();
    let classes = opened.classes();
    let counts = (opened.generation().0, classes.all, classes.visible);
    writeln!(text, "generation, classes, visible ones: {counts:?}").unwrap();
    writeln!(text, "{:#?}\n{:#?}", opened.sources(), opened.tables()).unwrap();
    for table in opened.tables() {
        writeln!(text, "query of {}: {:?}", table.name, opened.table_query(&table.name)).unwrap();
        let TableKind::Derived { columns, .. } = &table.kind else { continue };
        let schema = table_schema(columns);
        for file in opened.table_files(&table.name).unwrap() {
            let batches = file.read(&schema, &["name", "n"], 100).unwrap();
            let batches: Vec<RecordBatch> = batches.map(Result::unwrap).collect();
            writeln!(text, "{}", pretty_format_batches(&batches).unwrap()).unwrap();
        }
    }
    let shards = opened.shards().unwrap().into_iter().map(|shard| description_shard(index, shard));
    // In an order that no hash decides.
    let shards: BTreeMap<String, String> = shards.collect();
    shards.iter().for_each(|(place, says)| text.push_str(&format!("\nshard in {place}\n{says}")));
    for path in ["/golden/gate/ann", "/golden/gate/notes", "/golden/gate/nobody"] {
        let (records, shards) = unsealed(index, path).unwrap();
        writeln!(text, "\nsealed with {path}: {records:#?}").unwrap();
        for shard in shards {
            let (place, says) = description_shard(index, &shard);
            writeln!(text, "\nshard behind {path} in {place}\n{says}").unwrap();
        }
    }
    text
}

fn description_shard(index: &Path, shard: &Shard) -> (String, String) {
    let mut text = String::new();
    let record = shard.record();
    let facts = (record.source, record.totals, record.parts, &record.prefix);
    writeln!(text, "{facts:#?}\ncovers {:#?}", shard.covers().unwrap()).unwrap();
    let listings = ListingOrdinal::range(0..shard.rows(FileKind::Listings));
    writeln!(text, "links {:?}", shard.hardlinks(std::slice::from_ref(&listings)).unwrap())
        .unwrap();
    writeln!(text, "once {:?}", shard.once_below(SourcePath::ROOT).unwrap()).unwrap();
    for block in shard.summaries(true).unwrap() {
        let mut block = block;
        let extensions: BTreeMap<_, _> = block.summary.extensions.drain().collect();
        writeln!(text, "{block:?} {extensions:?}").unwrap();
    }
    for path in ["", "gate", "gate/ann", "private"] {
        let range = shard.listings_below(SourcePath::escaped(path)).unwrap();
        let rows = shard.rows_of(&range).unwrap();
        let totals = shard.totals_below(SourcePath::escaped(path)).unwrap();
        writeln!(text, "below '{path}': {range:?} {rows:?} {totals:?}").unwrap();
    }
    let mut place = String::new();
    for kind in FileKind::ALL.into_iter().filter(|&kind| shard.rows(kind) > 0) {
        place = place_in(index, shard.path(kind).parent().unwrap());
        writeln!(text, "{} rows of {}", shard.rows(kind), kind.name()).unwrap();
        let inodes = [FileKind::Listings, FileKind::Entries, FileKind::Dirs].contains(&kind);
        let columns: Columns = kind.columns().iter().copied().collect();
        let columns = columns | (ATIME | BTIME | CTIME).when(inodes);
        let rows = 0..shard.rows(kind);
        let batches = shard.read(kind, columns, std::slice::from_ref(&rows), 100).unwrap();
        for batch in batches {
            let batch = batch.unwrap();
            for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
                if [CONTENT.name(), ACCESS.name()].contains(&field.name().as_str()) {
                    continue;
                }
                writeln!(text, "{} {}: {column:?}", field.name(), field.data_type()).unwrap();
            }
        }
    }
    (place, text)
}

/// The place of a directory in an index, with the grants of a class instead of its random name.
fn place_in(index: &Path, directory: &Path) -> String {
    for (class, grants) in classes(index).unwrap() {
        if let Ok(below) = directory.strip_prefix(class) {
            return format!("{grants} {}", below.display()).trim_end().to_owned();
        }
    }
    directory.strip_prefix(index).unwrap().display().to_string()
}

/// The files of an index, by path in it.
fn files(index: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![index.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else {
                found.push(path.strip_prefix(index).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// The contents of the documents, without the parts that differ from index to index if `mask` says
/// so.
fn documents(index: &Path, mask: bool) -> String {
    let mut text = String::new();
    let is_document = |path: &&PathBuf| {
        path.ends_with("CURRENT")
            || path.extension() == Some("bin".as_ref())
                && !path.to_string_lossy().ends_with("-sealed.bin")
    };
    for path in files(index).iter().filter(is_document) {
        let said = describe(&std::fs::read(index.join(path)).unwrap()).unwrap();
        let name = path.to_string_lossy();
        let of_class = ["-page.bin", "-bundle.bin"].iter().any(|end| name.ends_with(end));
        let of_class = of_class || name.contains("manifest");
        let public = !of_class && !path.ends_with("CURRENT");
        match mask {
            true if !public => continue,
            true => text.push_str(&format!("{}\n{}\n", path.display(), without_random(&said))),
            false => text.push_str(&format!("{}\n{said}\n", path.display())),
        }
    }
    text
}

/// Leaves out the bytes of keys and of the names of class directories.
fn without_random(said: &str) -> String {
    let mut text = String::new();
    let mut lines = said.lines();
    while let Some(line) = lines.next() {
        text.push_str(line);
        text.push('\n');
        if line.ends_with(" key: [") || line.ends_with(" tag: [") {
            lines.by_ref().find(|line| line.ends_with("],"));
        }
    }
    text
}

fn copy(from: &Path, to: &Path) {
    for path in files(from).iter().filter(|path| !path.ends_with("lock")) {
        std::fs::create_dir_all(to.join(path).parent().unwrap()).unwrap();
        std::fs::copy(from.join(path), to.join(path)).unwrap();
    }
}

/// Writes generations as the numbers that they are in the documents.
fn with_bare_generations(text: &str) -> String {
    let mut pieces = text.split("Generation(");
    let mut bare = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (number, rest) = piece.split_once(')').unwrap();
        bare += number.trim_matches(|edge: char| edge.is_whitespace() || edge == ',');
        bare += rest;
    }
    bare
}

/// Writes owners with their groups as the pairs that they were when the texts were made.
fn with_bare_owners(text: &str) -> String {
    let mut pieces = text.split("Ownership { uid: ");
    let mut bare = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (uid, rest) = piece.split_once(", gid: ").unwrap();
        let (gid, rest) = rest.split_once(" }").unwrap();
        bare += &format!("({uid}, {gid}){rest}");
    }
    bare
}

/// Compares with a kept text.
fn same_as_kept(name: &str, text: &str) {
    let text = with_bare_owners(&with_bare_generations(text));
    let kept = std::fs::read_to_string(golden(name)).unwrap();
    for (number, (line, kept)) in text.lines().zip(kept.lines()).enumerate() {
        assert_eq!(line, kept, "line {} of {name}", number + 1);
    }
    assert_eq!(text.lines().count(), kept.lines().count(), "{name}");
}

/// The key guards nothing in the golden index, and is not secret: git has no permissions.
#[test]
fn the_golden_index_says_what_it_said() {
    let place = tempfile::tempdir().unwrap();
    let index = place.path().join("index");
    if std::env::var_os("CANOPY_WRITE_GOLDEN").is_some() {
        write(&index);
        copy(&index, &golden("format-15"));
        std::fs::write(golden("format-15.txt"), description(&index)).unwrap();
        std::fs::write(golden("format-15.public.txt"), documents(&index, true)).unwrap();
        std::fs::write(golden("format-15.documents.txt"), documents(&index, false)).unwrap();
        std::fs::remove_dir_all(&index).unwrap();
    }
    assert_eq!(FORMAT, 15, "a new format has a golden index of its own");
    copy(&golden("format-15"), &index);
    same_as_kept("format-15.txt", &description(&index));
    same_as_kept("format-15.documents.txt", &documents(&index, false));
}

#[test]
fn the_writer_of_today_says_the_same() {
    let place = tempfile::tempdir().unwrap();
    let index = place.path().join("index");
    write(&index);
    if rustix::process::geteuid().is_root() {
        same_as_kept("format-15.txt", &description(&index));
        same_as_kept("format-15.public.txt", &documents(&index, true));
    }
}

#[test]
fn other_formats_are_refused_with_both_numbers() {
    let place = tempfile::tempdir().unwrap();
    let index = place.path().join("index");
    copy(&golden("format-15"), &index);
    let current = std::fs::read_to_string(index.join("CURRENT")).unwrap();
    let remedies = ["remove the index and index its sources again", "use the newer canopy"];
    for (other, remedy) in [FORMAT - 1, FORMAT + 1].into_iter().zip(remedies) {
        let line = |format: u32| format!("canopy current {format} ");
        let changed = current.replace(&line(FORMAT), &line(other));
        std::fs::write(index.join("CURRENT"), changed).unwrap();
        let error = Index::open(&index).unwrap_err();
        assert!(matches!(error, Error::Version { found, expected: FORMAT, .. } if found == other));
        let says = format!("has format {other}, this canopy reads format {FORMAT}; {remedy}");
        assert!(error.to_string().contains(&says), "{error}");
    }
}
