//! Entry points for fuzzing, and for the test of the golden index: the documents of an index, its
//! packed lists, sealed records and summaries, from bytes. No part of the interface of this crate.
//!
//! A document and a sealed record have a checksum or a stream in front of what is decoded, which no
//! fuzzer gets through. So the targets take what is behind it.

use crate::disk::BLOCK_BYTES;
use crate::manifest::{
    self, AllManifests, Catalog, ClassManifest, Current, Document, GateStepRecord, GrantRecord,
    Level, LocalClass, LocalGate, Manifest, Passage, SealedInode, SealedRecord, SourceRecord,
};
use crate::manifest::{ClassRecord, GateRecord};
use crate::names::{self, Names};
use crate::own_tables::TableFileRecord;
use crate::own_tables::{ColumnType, TableColumn, TableFormat, TableKind, TableRecord};
use crate::packed::PackedList;
use crate::schema::{FORMAT, FileKind};
use crate::shard::unsealed;
use crate::shard_record::{Cover, FileRecord, HardLink, ShardRecord};
use crate::summaries::{self, BlockSummary};
use crate::thrift;
use canopy_model::fuzzing::Target;
use canopy_model::{Attributes, ClassTable, Grant, Parts, Summary, Totals};
use std::fmt::Debug;
use std::path::Path;

/// The targets of this crate.
pub const TARGETS: &[Target] = &[
    Target { name: "document", run: document, seeds: document_seeds },
    Target { name: "current", run: content::<Current>, seeds: || of(current()) },
    Target { name: "catalog", run: content::<Catalog>, seeds: || of(catalog()) },
    Target { name: "passage", run: content::<Passage>, seeds: || of(Passage { level: level() }) },
    Target { name: "manifest", run: content::<Manifest>, seeds: || of(class_manifest()) },
    Target { name: "manifests", run: manifests, seeds: || of(all_manifests()) },
    Target { name: "sealed", run: sealed, seeds: sealed_seeds },
    Target {
        name: "summary",
        run: |bytes| drop(summaries::decode(bytes, None)),
        seeds: summary_seeds,
    },
    Target { name: "extensions", run: extensions, seeds: extension_seeds },
    Target { name: "thrift", run: footer, seeds: footer_seeds },
];

/// Returns what a document of any kind says, for people, or what is wrong with it.
pub fn describe(bytes: &[u8]) -> Result<String, String> {
    fn text<D: Document + Debug>(bytes: &[u8]) -> Result<String, String> {
        let document = manifest::decode::<D>(bytes).map_err(|fault| format!("{fault:?}"))?;
        Ok(format!("{document:#?}"))
    }
    let kind = bytes.split(|&byte| byte == b' ').nth(1).unwrap_or_default();
    match std::str::from_utf8(kind) {
        Ok(Current::KIND) => text::<Current>(bytes),
        Ok(Catalog::KIND) => text::<Catalog>(bytes),
        Ok(Passage::KIND) => text::<Passage>(bytes),
        Ok(Manifest::KIND) => text::<Manifest>(bytes),
        _ => text::<AllManifests>(bytes),
    }
}

fn document(bytes: &[u8]) {
    drop(describe(bytes));
}

/// Decodes what is behind the first line of a document, its packed lists too. What it gives is
/// encoded so that it is decoded to the same.
fn content<D: Document + Debug>(bytes: &[u8]) {
    let Ok(document) = manifest::decode_content::<D>(bytes) else { return };
    let shown = format!("{document:?}");
    let again = manifest::encode_content(&document).expect("what was decoded can be encoded");
    let again: D = manifest::decode_content(&again).expect("what was encoded can be decoded");
    assert_eq!(format!("{again:?}"), shown);
}

/// Decodes as [`content`] does, and does with it what the writer does.
fn manifests(bytes: &[u8]) {
    content::<AllManifests>(bytes);
    let Ok(all) = manifest::decode_content::<AllManifests>(bytes) else { return };
    let Ok(grants) = all.grants.get() else { return };
    let table = ClassTable::with_grants(grants.iter().map(GrantRecord::grant));
    for ClassManifest { class, .. } in &all.classes {
        if class.grant_ids().all(|id| (id as usize) < grants.len()) {
            let path = class.path();
            let names = Names::new(Path::new("/index"), all.key);
            assert!(names.class(&path).starts_with("/index/classes"));
            table.class_of(&path);
        }
    }
}

/// Makes the manifest for root of an index fit its files again after these were changed, sizes and
/// checksums, as somebody would who makes an index to do harm. `change` may change more of each
/// shard: how many rows its files have, its covers' ends.
pub fn forge(index: &Path, generation: u64, mut change: impl FnMut(&mut u64)) {
    let path = names::all_manifests(index, generation);
    let mut all: AllManifests = manifest::read(&path).expect("the manifest is sound");
    let names = Names::new(index, all.key);
    for ClassManifest { class, manifest } in &mut all.classes {
        let directory = names.class(&class.path());
        for shard in &mut manifest.shards {
            let mut sums = vec![Vec::new(); FileKind::COUNT];
            for kind in FileKind::ALL {
                let name = shard.file_name(kind);
                let Some(file) = &mut shard.files[kind as usize] else { continue };
                let bytes = std::fs::read(directory.join(name)).expect("a file of a shard");
                file.bytes = bytes.len() as u64;
                change(&mut file.rows);
                sums[kind as usize] = bytes.chunks(BLOCK_BYTES).map(crc32fast::hash).collect();
            }
            shard.sums = packed(sums);
        }
    }
    let text = manifest::encode(&path, &all).expect("a document can be encoded");
    std::fs::write(&path, text).expect("a writable index");
}

/// Makes the checksum of a document fit its content again.
pub fn forge_document(text: &[u8]) -> Vec<u8> {
    let end = text.iter().position(|&byte| byte == b'\n').expect("a first line");
    let line = String::from_utf8_lossy(&text[..end]);
    let (words, _) = line.rsplit_once(' ').expect("four words");
    let sum = crc32fast::hash(&text[end + 1..]);
    [format!("{words} {sum:08x}\n").as_bytes(), &text[end + 1..]].concat()
}

const SEALED_PATH: &str = "/gate/ann";

fn sealed(bytes: &[u8]) {
    let names = Names::new(Path::new("/index"), [7; 32]);
    drop(unsealed(&names, SEALED_PATH, bytes));
    let (nonce, record) = bytes.split_at(bytes.len().min(20));
    let mut record = record.to_vec();
    names.seal(SEALED_PATH, nonce, &mut record);
    drop(unsealed(&names, SEALED_PATH, &[nonce, &record].concat()));
}

fn extensions(bytes: &[u8]) {
    let summary = postcard::to_extend(&Summary::default(), Vec::new());
    drop(summaries::decode(&summary.expect("a summary can be encoded"), Some(bytes)));
}

/// Looks over bytes as over a footer and the head of a page.
fn footer(bytes: &[u8]) {
    thrift::are_structures(bytes);
    let _ = thrift::page_head(bytes);
}

fn footer_seeds() -> Vec<Vec<u8>> {
    vec![
        vec![0x15, 0, 0x15, 200, 1, 0x15, 100, 0x2c, 0x15, 14, 0x15, 0, 0, 0],
        vec![0x19, 0x35, 2, 4, 6, 0x18, 2, b'a', b'b', 0x19, 0x2c, 0x11, 0, 0x12, 0, 0],
    ]
}

fn of<D: Document>(document: D) -> Vec<Vec<u8>> {
    vec![manifest::encode_content(&document).expect("a document can be encoded")]
}

fn document_seeds() -> Vec<Vec<u8>> {
    fn whole<D: Document>(document: D) -> Vec<u8> {
        let content = of(document).concat();
        let line = format!("canopy {} {FORMAT} {:08x}\n", D::KIND, crc32fast::hash(&content));
        [line.as_bytes(), &content].concat()
    }
    vec![whole(current()), whole(catalog()), whole(all_manifests())]
}

fn current() -> Current {
    Current { generation: 7, previous: Some(5), published_ns: 1_700_000_000_000_000_000 }
}

fn packed<T: serde::Serialize>(list: Vec<T>) -> PackedList<T> {
    PackedList::new(list).expect("a list can be encoded")
}

fn grants() -> Vec<GrantRecord> {
    [Grant::nobody(), Grant::from_parts([(1000, true)], [(5, false)], true)]
        .iter()
        .map(GrantRecord::new)
        .collect()
}

fn level() -> Level {
    let gate = GateRecord { search: 0, read: 1 };
    Level {
        classes: vec![LocalClass { grants: vec![0, 1], manifest: 300 }],
        gates: vec![LocalGate { grants: Vec::new(), gate }],
    }
}

fn catalog() -> Catalog {
    Catalog { key: [9; 32], grants: grants(), level: level(), tables: tables() }
}

fn tables() -> Vec<TableRecord> {
    let format = TableFormat::Sqlite { table: "t".to_owned() };
    let columns = vec![TableColumn { name: "size".to_owned(), holds: ColumnType::Int }];
    [
        ("a", TableKind::Attached { file: "/data/a.db".to_owned(), format }),
        ("d", TableKind::Derived { columns, fresh: true }),
    ]
    .map(|(name, kind)| TableRecord { name: name.to_owned(), kind })
    .into()
}

fn class_manifest() -> Manifest {
    let totals = Totals { entries: 3, dirs: 1, bytes: -5, dir_bytes: 4096, blocks: 1 << 40 };
    let file = FileRecord { rows: 3, bytes: 70_000 };
    let link = HardLink { listing: 1, dev: 2, ino: 3, size_bytes: 4, blocks: 5 };
    let shard = ShardRecord {
        id: "7-0".to_owned(),
        source: 1,
        files: [Some(file), None, Some(file), None, None, None, None, Some(file)],
        totals,
        parts: false,
        prefix: "home/ann".to_owned(),
        sums: packed(vec![vec![1, u32::MAX], Vec::new(), vec![3]]),
        links: packed(vec![link, link]),
        repeats: totals,
        open_links: Some(packed(vec![link])),
        covers: packed(vec![Cover { prefix: "home".to_owned(), first: 0, end: 3, totals }]),
    };
    let source = SourceRecord {
        id: 1,
        name: "home".to_owned(),
        root: "/home".to_owned(),
        dev: 64,
        scanned_ns: -1,
        attributes: Attributes { mode: 0o040_755, ..Attributes::default() },
        xattrs: "user.a,user.b".to_owned(),
    };
    let table = TableFileRecord { table: "d".to_owned(), generation: 7, file, sums: vec![1, 2] };
    Manifest { sources: vec![source], shards: vec![shard], tables: vec![table] }
}

fn all_manifests() -> AllManifests {
    let gate = GateRecord { search: 0, read: 1 };
    let step = GateStepRecord { grants: vec![1], gate, child: "/home/ann".to_owned() };
    let class = ClassRecord { gates: vec![step.clone()], grants: vec![0], manifest: 7 };
    AllManifests {
        key: [9; 32],
        grants: packed(grants()),
        classes: vec![ClassManifest { class, manifest: class_manifest() }],
        passages: packed(vec![(vec![step], 6)]),
        tables: tables(),
        queries: [("d".to_owned(), "SELECT size FROM entries".to_owned())].into(),
    }
}

fn sealed_seeds() -> Vec<Vec<u8>> {
    let inode = SealedInode {
        source: 1,
        dev: 64,
        attributes: Attributes { mode: 0o120_777, ..Attributes::default() },
        target: "ann".to_owned(),
        xattrs: "user.a".to_owned(),
    };
    let xattrs = vec![("user.a".to_owned(), "value".to_owned())];
    let record = SealedRecord { inode: Some(inode), xattrs };
    let record = postcard::to_extend(&record, vec![3; 20]);
    vec![record.expect("a record can be encoded")]
}

fn summary() -> (Vec<u8>, Vec<u8>) {
    let mut summary = Summary::default();
    for (name, size_bytes) in [("a.txt", 5), ("b.txt", 1 << 40), ("c", 0), ("log.1", -3)] {
        let attributes = Attributes { size_bytes, mode: 0o100_644, ..Attributes::default() };
        summary.add(&attributes, name, false, Parts::ALL);
    }
    let block = BlockSummary { listings: 0..1, owner: (0, 0), summary, extensions: true };
    let (summary, extensions) = block.encode().expect("a summary can be encoded");
    (summary, extensions.unwrap_or_default())
}

fn summary_seeds() -> Vec<Vec<u8>> {
    vec![summary().0]
}

fn extension_seeds() -> Vec<Vec<u8>> {
    vec![summary().1]
}
