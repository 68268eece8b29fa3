//! Entry points for fuzzing, and for the test of the golden index: the documents of an index, its
//! packed lists, sealed records and summaries, from bytes. No part of the interface of this crate.
//!
//! A document and a sealed record have a checksum or a stream in front of what is decoded, which no
//! fuzzer gets through. So the targets take what is behind it.

use crate::builder::Builder;
use crate::bundles::{self, Bundle, BundleId, BundleRecord};
use crate::class_lists::{ClassList, ListRecord, ListedClass};
use crate::digest::Digests;
use crate::disk::BLOCK_BYTES;
use crate::error::Error;
use crate::hidden::{HiddenSource, KnownSource, SealedSource};
use crate::listing_ordinal::ListingOrdinal;
use crate::manifest::{
    self, AllManifests, Catalog, ClassManifest, ClassRecord, Current, Document, GrantRecord,
    Manifest, ScanRecord, ShardSet, SourceRecord,
};
use crate::names::{self, ClassPlace, Names};
use crate::own_tables::TableFileRecord;
use crate::own_tables::{ColumnType, TableColumn, TableFormat, TableKind, TableRecord};
use crate::packed::PackedList;
use crate::pages::{Extent, Page, PageId, PageRecord, PathRanges};
use crate::passages::SealedFiles;
use crate::retention::{KeptGeneration, Leaving};
use crate::schema::{FORMAT, FileKind};
use crate::sealed::{self, SealedFile, SealedInode, SealedPart, SealedRecord};
use crate::sealed_rows::SealedRows;
use crate::shard::Shard;
use crate::shard_record::{Cover, DeadListings, FileRecord, HardLink, ShardRecord};
use crate::source_id::SourceId;
use crate::summaries::{self, BlockSummary};
use crate::thrift;
use crate::unfinished::{
    RemainingDirectory, RemainingExtent, Unfinished, UnfinishedRecord, UnfinishedSource,
};
use canopy_model::fuzzing::Target;
use canopy_model::{
    AbsolutePath, Access, Attributes, ClassTable, Device, Generation, Grant, GrantId, Listing,
    OwnerLimits, Ownership, Parts, Principal, Rows, SourcePath, Summary, Totals, Xattr,
};
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The targets of this crate.
pub const TARGETS: &[Target] = &[
    Target { name: "document", run: document, seeds: document_seeds },
    Target { name: "current", run: content::<Current>, seeds: || of(current()) },
    Target { name: "catalog", run: content::<Catalog>, seeds: || of(catalog()) },
    Target { name: "list", run: content::<ClassList>, seeds: || of(list()) },
    Target { name: "manifest", run: content::<Manifest>, seeds: || of(class_manifest()) },
    Target { name: "page", run: content::<Page>, seeds: || of(page()) },
    Target { name: "manifests", run: manifests, seeds: || of(all_manifests()) },
    Target {
        name: "bundle",
        run: bundle,
        seeds: || of(Bundle { classes: vec![class_manifests()] }),
    },
    Target { name: "unfinished", run: content::<UnfinishedRecord>, seeds: || of(unfinished()) },
    Target { name: "sealed", run: sealed, seeds: sealed_seeds },
    Target {
        name: "hidden",
        run: |bytes| drop(postcard::take_from_bytes::<KnownSource>(bytes)),
        seeds: hidden_seeds,
    },
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
        Ok(ClassList::KIND) => text::<ClassList>(bytes),
        Ok(Manifest::KIND) => text::<Manifest>(bytes),
        Ok(Page::KIND) => text::<Page>(bytes),
        Ok(Bundle::KIND) => text::<Bundle>(bytes),
        _ => text::<AllManifests>(bytes),
    }
}

/// Returns the directory of each class of an index, and its grants for people.
pub fn classes(index: &Path) -> Result<Vec<(PathBuf, String)>, Error> {
    let current: Current = manifest::read(&names::current(index))?;
    let all: AllManifests = manifest::read(&names::all_manifests(index, current.generation))?;
    let names = Names::new(index, all.key);
    let described = |ClassManifest { class, .. }: &ClassManifest| {
        (names.class(class.place), format!("grants {:?}", class.grants))
    };
    let (_, classes) = bundles::read_all(index, &all.bundles)?;
    Ok(classes.iter().map(described).collect())
}

/// Returns what an index has sealed with an absolute path, for people: entries, then what lies
/// behind a passage with the shards that were made or opened for it.
pub fn unsealed(index: &Path, path: &str) -> Result<(Vec<SealedRecord>, Vec<Shard>), Error> {
    let path = AbsolutePath::new(path);
    let current: Current = manifest::read(&names::current(index))?;
    let all: AllManifests = manifest::read(&names::all_manifests(index, current.generation))?;
    let names = Arc::new(Names::new(index, all.key));
    let mut files = SealedFiles::new(names.clone());
    let mut sources = Vec::new();
    for ClassManifest { class, manifest, .. } in bundles::read_all(index, &all.bundles)?.1 {
        let nobody = ClassPlace { tag: [255; 16], ..class.place };
        files.add(nobody, &names.class(class.place), manifest.sealed, manifest.hidden);
        sources.extend(manifest.sources);
    }
    let mut records = Vec::new();
    for source in sources {
        records.extend(files.entry(source.id, path)?);
    }
    Ok((records, files.behind(&[path], &[])?.shards))
}

fn document(bytes: &[u8]) {
    drop(describe(bytes));
}

/// Decodes the content behind the first line of a document, its packed lists too. Encoding the
/// result and decoding it again must give an equal document.
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
    let grants = grants.iter().map(|(id, grant)| (GrantId(*id), grant.grant()));
    ClassTable::with_grants(grants, all.next_grant, OwnerLimits::default());
}

/// Decodes as [`content`] does, and does with it what the writer does.
fn bundle(bytes: &[u8]) {
    content::<Bundle>(bytes);
    let Ok(Bundle { classes }) = manifest::decode_content(bytes) else { return };
    let grants = self::grants();
    let known: Vec<u32> = grants.iter().map(|(id, _)| *id).collect();
    let grants = grants.iter().map(|(id, grant)| (GrantId(*id), grant.grant()));
    let table = ClassTable::with_grants(grants, 2, OwnerLimits::default());
    for ClassManifest { class, .. } in &classes {
        if class.place.is_sound() {
            let names = Names::new(Path::new("/index"), [9; 32]);
            assert!(names.class(class.place).starts_with("/index"));
        }
        if class.grants.iter().all(|id| known.contains(id)) {
            table.class_of(&class.grants().collect::<Vec<_>>());
        }
    }
}

/// Makes the manifests of an index fit its files again after these were changed, sizes and
/// checksums, as somebody would who makes an index to do harm. `change` may change more of each
/// shard: how many rows its files have, its covers' ends.
pub fn forge(index: &Path, generation: Generation, mut change: impl FnMut(&mut u64)) {
    let path = names::all_manifests(index, generation);
    let all: AllManifests = manifest::read(&path).expect("the manifest is sound");
    let names = Names::new(index, all.key);
    let (_, classes) = bundles::read_all(index, &all.bundles).expect("bundles are sound");
    for ClassManifest { class, manifest, .. } in &classes {
        let directory = names.class(class.place);
        for page in &manifest.shards.pages {
            let path = directory.join(page.id.file_name());
            let mut page: Page = manifest::read(&path).expect("the page is sound");
            page.shards.iter_mut().for_each(|shard| forge_shard(shard, &directory, &mut change));
            let text = manifest::encode(&path, &page).expect("a document can be encoded");
            std::fs::write(&path, text).expect("a writable index");
        }
    }
}

fn forge_shard(shard: &mut ShardRecord, directory: &Path, change: &mut impl FnMut(&mut u64)) {
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
/// Makes the checksum of a document fit its content again.
pub fn forge_document(text: &[u8]) -> Vec<u8> {
    let end = text.iter().position(|&byte| byte == b'\n').expect("a first line");
    let line = String::from_utf8_lossy(&text[..end]);
    let (words, _) = line.rsplit_once(' ').expect("four words");
    let sum = crc32fast::hash(&text[end + 1..]);
    [format!("{words} {sum:08x}\n").as_bytes(), &text[end + 1..]].concat()
}

/// Decodes what is sealed, behind the stream that seals it.
fn sealed(bytes: &[u8]) {
    drop(sealed::decode::<SealedRecord>(bytes));
    let Ok(parts) = sealed::decode::<SealedPart>(bytes) else { return };
    for part in parts {
        let mut builder = Builder::default();
        let below = SealedPart::below_root("/home/ann", &part.root);
        part.rows.unpack(&mut builder, below);
        let names = |gate| part.rows.subdirectories(below, gate).count();
        assert!(part.gates.iter().map(|gate| names(gate.as_path())).sum::<usize>() < 1 << 40);
    }
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
    vec![whole(current()), whole(catalog()), whole(list()), whole(all_manifests())]
}

fn current() -> Current {
    let published_ns = 1_700_000_000_000_000_000;
    let kept = vec![KeptGeneration { generation: Generation(5), published_ns: published_ns - 1 }];
    let retention = "3,24h".parse().unwrap_or_default();
    let leaving =
        vec![Leaving { generation: Generation(6), published_ns: published_ns - 1, bytes: 1 << 20 }];
    Current { generation: Generation(7), published_ns, kept, leaving, retention }
}

fn unfinished() -> UnfinishedRecord {
    let remaining =
        RemainingDirectory::new(SourcePath::escaped("home/ann").to_buf(), RemainingExtent::Whole);
    let source = UnfinishedSource {
        root: "/home".to_owned(),
        scanned_ns: 5,
        remaining: vec![remaining],
        ..UnfinishedSource::default()
    };
    let about = Unfinished { noted_ns: 6, source: Some(source), ..Unfinished::default() };
    let state = all_manifests();
    let classes = vec![class_manifests()];
    UnfinishedRecord {
        base: Generation(6),
        generation: Generation(7),
        about,
        state,
        classes,
        ..UnfinishedRecord::default()
    }
}

fn packed<T: serde::Serialize>(list: Vec<T>) -> PackedList<T> {
    PackedList::new(list).expect("a list can be encoded")
}

fn grants() -> Vec<(u32, GrantRecord)> {
    let grants = [Grant::nobody(), Grant::from_parts([(1000, true)], [(5, false)], true)];
    let grants = grants.iter().map(GrantRecord::new);
    (0..).zip(grants).collect()
}

fn class() -> ClassRecord {
    ClassRecord {
        grants: vec![0, 1],
        place: listed().place,
        manifest: Generation(300),
        charged: Some(1),
    }
}

fn listed() -> ListedClass {
    ListedClass { place: ClassPlace { tag: [3; 16], depth: 2 }, manifest: Generation(300) }
}

fn list() -> ClassList {
    ClassList { classes: vec![listed()] }
}

fn lists() -> Vec<ListRecord> {
    [Principal::User(1000), Principal::Group(5)]
        .map(|principal| ListRecord { principal, generation: Generation(7) })
        .into()
}

fn catalog() -> Catalog {
    Catalog { key: [9; 32], classes: vec![listed()], lists: lists(), tables: tables() }
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

fn shard() -> ShardRecord {
    let totals = Totals { entries: 3, dirs: 1, bytes: -5, dir_bytes: 4096, blocks: 1 << 40 };
    let file = FileRecord { rows: 3, bytes: 70_000 };
    let link =
        HardLink { listing: ListingOrdinal(1), dev: Device(2), ino: 3, size_bytes: 4, blocks: 5 };
    ShardRecord {
        id: "7-0".to_owned(),
        source: SourceId(1),
        files: [Some(file), None, Some(file), None, None, None, Some(file)],
        totals,
        parts: false,
        prefix: "home/ann".to_owned(),
        sums: packed(vec![vec![1, u32::MAX], Vec::new(), vec![3]]),
        links: packed(vec![link, link]),
        repeats: totals,
        open_links: Some(packed(vec![link])),
        covers: packed(vec![Cover {
            prefix: "home".to_owned(),
            first: ListingOrdinal(0),
            end: ListingOrdinal(3),
            totals,
        }]),
        dead: packed(vec![DeadListings {
            first: ListingOrdinal(1),
            end: ListingOrdinal(2),
            before: totals,
            totals,
        }]),
        dead_values: packed(vec![(0, 2)]),
        values_prefix: Some("home".to_owned()),
        dead_since_ns: Some(1),
    }
}

fn page() -> Page {
    Page { shards: vec![shard()] }
}

fn extent() -> Extent {
    let ShardRecord { totals, repeats, open_links, .. } = shard();
    Extent {
        source: SourceId(1),
        shards: 1,
        bytes: 210_000,
        files: [(1, 2); FileKind::COUNT],
        ranges: PathRanges::default(),
        values_prefix: Some("home".to_owned()),
        totals,
        repeats,
        open_links,
    }
}

fn shards() -> ShardSet {
    let page = PageRecord {
        id: PageId { generation: Generation(7), number: 9, secret: Some([5; 16]) },
        extent: extent(),
        small_shards: 1,
        is_wasteful: true,
        dead_since_ns: Some(1),
    };
    ShardSet { pages: vec![Arc::new(page)], loose: vec![shard()] }
}

fn source() -> SourceRecord {
    SourceRecord {
        id: SourceId(1),
        name: "home".to_owned(),
        root: "/home".to_owned(),
        dev: Device(64),
        scanned_ns: -1,
        updated_ns: 1,
        attributes: Attributes { mode: 0o040_755, ..Attributes::default() },
        xattrs: "user.a,user.b".to_owned(),
    }
}

fn class_manifest() -> Manifest {
    let file = FileRecord { rows: 3, bytes: 70_000 };
    let sealed = SealedFile {
        id: "7-1".to_owned(),
        source: SourceId(1),
        records: 2,
        bytes: 96,
        sums: packed(vec![4]),
        dead: packed(vec![[3; 16]]),
        dead_records: 1,
        dead_since_ns: Some(5),
    };
    let table = TableFileRecord {
        table: "d".to_owned(),
        generation: Generation(7),
        file,
        sums: vec![1, 2],
    };
    Manifest {
        sources: vec![source()],
        shards: shards(),
        sealed: vec![sealed],
        hidden: vec![SealedSource { hash: [1; 16], salt: [2; 16], content: vec![3; 32] }],
        tables: vec![table],
    }
}

fn class_manifests() -> ClassManifest {
    let hidden = vec![HiddenSource { source: SourceId(1), passage: "/home/ann".to_owned() }];
    ClassManifest { class: class(), manifest: class_manifest(), gated: shards(), hidden }
}

fn all_manifests() -> AllManifests {
    let id = BundleId { generation: Generation(7), number: 11 };
    let bundle = BundleRecord { id, classes: 1, extents: vec![extent()], has_tables: true };
    AllManifests {
        key: [9; 32],
        grants: packed(grants()),
        next_grant: 2,
        limits: Some((1024, 5)),
        sources: vec![source()],
        bundles: vec![bundle],
        lists: packed(lists()),
        tables: tables(),
        queries: [("d".to_owned(), "SELECT size FROM entries".to_owned())].into(),
        scans: [(
            SourceId(1),
            ScanRecord { excludes: vec!["*.o".to_owned()], ..ScanRecord::default() },
        )]
        .into(),
    }
}

fn sealed_seeds() -> Vec<Vec<u8>> {
    let attributes = Attributes { mode: 0o120_777, mtime_ns: 5, ..Attributes::default() };
    let (target, xattrs) = ("ann".to_owned(), "user.a".to_owned());
    let inode = SealedInode { dev: Device(64), attributes, target, xattrs };
    let xattrs = vec![("user.a".to_owned(), "value".to_owned())];
    let record = SealedRecord { inode: Some(inode), xattrs };
    let mut rows = Rows::default();
    rows.push("notes", attributes, "");
    rows.push_xattr(Xattr { key: "user.a", value: None });
    rows.push("sub", Attributes { mode: 0o040_711, ..Attributes::default() }, "");
    let mut builder = Builder::default();
    let listing = Listing {
        path: SourcePath::escaped("ann"),
        depth: 1,
        part: 0,
        dev: Device(64),
        directory: &attributes,
        access: &Access::EVERYONE,
        rows: &rows,
    };
    builder.push(&listing, Digests::default(), &mut Vec::new());
    let part = SealedPart {
        listers: [1; 16],
        source: SourceId(1),
        root: "/home".to_owned(),
        gates: vec![SourcePath::escaped("ann").to_buf()],
        shards: vec![shard()],
        rows: SealedRows::pack(builder, SourcePath::escaped("ann")),
    };
    let seed = |content: postcard::Result<Vec<u8>>| {
        let mut content = content.expect("what is sealed can be encoded");
        content.resize(content.len() + 7, 0);
        content
    };
    vec![
        seed(postcard::to_extend(&vec![record], Vec::new())),
        seed(postcard::to_extend(&vec![part], Vec::new())),
    ]
}

fn hidden_seeds() -> Vec<Vec<u8>> {
    let known = KnownSource { listers: [1; 16], record: source() };
    vec![postcard::to_extend(&known, Vec::new()).expect("a source can be encoded")]
}

fn summary() -> (Vec<u8>, Vec<u8>) {
    let mut summary = Summary::default();
    for (name, size_bytes) in [("a.txt", 5), ("b.txt", 1 << 40), ("c", 0), ("log.1", -3)] {
        let attributes = Attributes { size_bytes, mode: 0o100_644, ..Attributes::default() };
        summary.add(&attributes, name, false, Parts::ALL);
    }
    let block = BlockSummary {
        listings: ListingOrdinal(0)..ListingOrdinal(1),
        owner: Ownership::default(),
        summary,
        extensions: true,
    };
    let (summary, extensions) = block.encode().expect("a summary can be encoded");
    (summary, extensions.unwrap_or_default())
}

fn summary_seeds() -> Vec<Vec<u8>> {
    vec![summary().0]
}

fn extension_seeds() -> Vec<Vec<u8>> {
    vec![summary().1]
}
