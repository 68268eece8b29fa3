//! Entry points for fuzzing: operations from bytes, as a server gets them. No part of the interface
//! of this crate.
//!
//! An input is messages, one behind the other. They are executed on a small namespace in memory,
//! which must obey every rule of records afterwards.

use crate::contents::Contents;
use crate::namespace::{Namespace, create_namespace};
use crate::operation::{
    Access, Administration, Change, Changer, Execute, FileContents, Hold, Moment, Operation, Page,
    Query, QuotasRequest, Read, SnapshotsRequest,
};
use crate::quota::{Account, Limits};
use crate::records::change::{New, Privileges, RenameMode, SetAttributes, SetTime};
use crate::records::inode::file_type;
use crate::records::keys::{EntryName, FileId, ROOT};
use crate::records::permissions::Caller;
use crate::records::xattrs::SetXattr;
use crate::settings::Settings;
use canopy_model::fuzzing::Target;
use canopy_model::{Credentials, Ownership, Wanted};
use canopy_query::Expression;
use canopy_store::storage::MemoryStorage;
use canopy_store::{Clock, Environment, Random};
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The targets of this crate.
pub const TARGETS: &[Target] = &[
    Target { name: "operations", run: |bytes| run(bytes, 0), seeds },
    Target { name: "operations_on_chunks", run: |bytes| run(bytes, 4096), seeds },
];

/// Messages that are executed of one input.
const MESSAGES_MAX: usize = 64;

/// Counts, so that all runs are equal.
#[derive(Default)]
struct Counter(AtomicU64);

impl Clock for Counter {
    fn now_ms(&self) -> u64 {
        self.next_u64()
    }

    fn sleep(&self, _duration: Duration) {}
}

impl Random for Counter {
    fn next_u64(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// A directory for contents that no record has.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let memory = Path::new("/dev/shm");
        let above = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Directory(above.join(format!("canopy-fuzz-{}-{number}", std::process::id())))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // The rest is in memory, or is a temporary file.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The ids that the files of a new namespace get, in this order.
const DIRECTORY: FileId = FileId(2);
const SMALL: FileId = FileId(3);
const LARGE: FileId = FileId(4);
const LINK: FileId = FileId(5);

fn name_in(directory: FileId, name: &[u8]) -> EntryName<'_> {
    EntryName::new(directory, name)
}

fn create(name: EntryName<'static>, mode: u32) -> Operation<'static> {
    let is_link = mode == file_type::SYMLINK;
    let target = if is_link { b"d/small".to_vec() } else { Vec::new() };
    let new = New { mode: mode | 0o644, uid: 7, gid: 8, target, ..New::default() };
    Operation::Change(Change::Create { name, new: Cow::Owned(new), holds: false })
}

/// Makes a namespace with some files.
fn namespace(directory: &Directory, chunk_bytes: u64) -> crate::Result<Namespace> {
    let environment = Environment {
        storage: Arc::new(MemoryStorage::default()),
        clock: Arc::new(Counter::default()),
        random: Arc::new(Counter::default()),
    };
    let now = Counter(AtomicU64::new(1 << 60));
    let clock: crate::Clock = Arc::new(move || now.next_u64() as i64);
    let settings = Settings { chunk_bytes, ..Settings::default() };
    let settings = settings.with_indexes(&["size", "ext", "user.x"])?;
    create_namespace(&environment, &settings, Ownership::ROOT, &clock)?;
    let namespace = Namespace::open(&environment, Contents::new(&directory.0)?, clock)?;
    let write = |id, length| -> crate::Result<()> {
        namespace.open(id)?;
        namespace.write_at(id, 0, &vec![b'a'; length], Privileges::Keep)?;
        FileContents::close(&namespace, id)
    };
    namespace.execute(&create(name_in(ROOT, b"d"), file_type::DIRECTORY))?;
    namespace.execute(&create(name_in(DIRECTORY, b"small"), file_type::REGULAR))?;
    namespace.execute(&create(name_in(DIRECTORY, b"large.txt"), file_type::REGULAR))?;
    namespace.execute(&create(name_in(ROOT, b"link"), file_type::SYMLINK))?;
    write(SMALL, 10)?;
    write(LARGE, 5000)?;
    namespace.link(SMALL, ROOT, b"second")?;
    namespace.set_xattr(SMALL, b"user.x", b"value", SetXattr::Any, Privileges::Keep)?;
    Ok(namespace)
}

fn run(bytes: &[u8], chunk_bytes: u64) {
    let directory = Directory::new();
    let namespace = namespace(&directory, chunk_bytes).expect("a namespace in memory");
    let mut rest = bytes;
    let user = canopy_model::Credentials::new(7, [8]);
    for at in 0..MESSAGES_MAX {
        let Ok((operation, others)) = postcard::take_from_bytes::<Operation<'_>>(rest) else {
            break;
        };
        let target = operation.target();
        let caller = if at % 2 == 0 { Caller::Trusted } else { Caller::User(&user) };
        if let Ok(reply) = namespace.execute_for(caller, &operation) {
            let message = postcard::to_extend(&reply, Vec::new()).expect("a message");
            let arrived = postcard::from_bytes(&message);
            assert_eq!(arrived.as_ref(), Ok(&reply), "{target}: the reply arrives");
        }
        rest = others;
    }
    let faults = namespace.check(|_| {}).expect("records in memory can be read");
    assert!(faults.is_empty(), "{faults:?}");
}

/// Returns sequences of messages: every operation is in one of them.
fn seeds() -> Vec<Vec<u8>> {
    let all = Expression::all(Vec::new());
    let sequences = [names(), attributes(), reads(), on_quotas(), others(&all)];
    sequences.iter().map(|sequence| encode(sequence)).collect()
}

fn encode(sequence: &[Operation<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for operation in sequence {
        bytes = postcard::to_extend(operation, bytes).expect("a message");
    }
    bytes
}

fn names() -> Vec<Operation<'static>> {
    let (from, to) = (name_in(DIRECTORY, b"small"), name_in(ROOT, b"moved"));
    let rename =
        |from, to, mode, whiteout| Operation::Change(Change::Rename { from, to, mode, whiteout });
    let new = New { mode: file_type::REGULAR | 0o600, ..New::default() };
    vec![
        create(name_in(DIRECTORY, b"new"), file_type::REGULAR),
        create(name_in(ROOT, b"e"), file_type::DIRECTORY),
        Operation::Change(Change::CreateNameless { directory: ROOT, new: Cow::Owned(new) }),
        Operation::Change(Change::Link { id: SMALL, name: name_in(DIRECTORY, b"third") }),
        rename(from, to, RenameMode::Replace, Some(Ownership { uid: 7, gid: 8 })),
        rename(to, name_in(ROOT, b"second"), RenameMode::Exchange, None),
        rename(name_in(ROOT, b"d"), name_in(ROOT, b"e"), RenameMode::Replace, None),
        Operation::Hold(Hold::Name(name_in(ROOT, b"second"))),
        Operation::Change(Change::Unlink(name_in(ROOT, b"second"))),
        Operation::Hold(Hold::Release(SMALL, 1)),
        Operation::Hold(Hold::File(DIRECTORY)),
        Operation::Change(Change::Rmdir(name_in(ROOT, b"e"))),
    ]
}

fn attributes() -> Vec<Operation<'static>> {
    let changer = || Changer::Member(Cow::Owned(vec![8]));
    let set = |id, set| Operation::Change(Change::SetAttributes { id, set, changer: changer() });
    let set_xattr = |id, name, value| {
        let (how, changer) = (SetXattr::Any, changer());
        Operation::Change(Change::SetXattr { id, name, value, how, changer })
    };
    let owner = SetAttributes { uid: Some(9), mode: Some(0o2750), ..SetAttributes::default() };
    let times = SetAttributes {
        size: Some(9000),
        atime: Some(SetTime::To(5)),
        mtime: Some(SetTime::Now),
        ..SetAttributes::default()
    };
    let acl = b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x04\0\x04\0\xff\xff\xff\xff\
                \x20\0\0\0\xff\xff\xff\xff";
    let size = |size| SetAttributes { size: Some(size), ..SetAttributes::default() };
    vec![
        set(LARGE, owner),
        set(LARGE, times),
        set(SMALL, size(5000)),
        set(LARGE, size(0)),
        set_xattr(SMALL, b"user.x", b"other"),
        set_xattr(DIRECTORY, b"system.posix_acl_default", acl),
        Operation::Change(Change::RemoveXattr { id: SMALL, name: b"user.x" }),
        Operation::Change(Change::TouchAccess(SMALL)),
        Operation::Change(Change::Sync(DIRECTORY)),
    ]
}

fn reads() -> Vec<Operation<'static>> {
    let who = || Cow::Owned(Credentials::new(7, [8, 9]));
    let page = Page { directory: DIRECTORY, after: 3, name: Some(b"small"), count_max: 7 };
    let now = |read| Operation::Read(Moment::Now, read);
    vec![
        now(Read::Lookup(name_in(ROOT, b"second"))),
        now(Read::Inode(SMALL)),
        now(Read::Parent(DIRECTORY)),
        now(Read::Readlink(LINK)),
        now(Read::List(page)),
        now(Read::Xattr { id: SMALL, name: b"user.x" }),
        now(Read::Xattrs(SMALL)),
        Operation::Access(Access::Path(SMALL)),
        Operation::Access(Access::IsDue(SMALL)),
        Operation::Access(Access::MayRead(Moment::Now, SMALL, who())),
        Operation::Access(Access::MayChange(SMALL, who())),
        Operation::Access(Access::IsShown(0, SMALL, Wanted::READ, who())),
        Operation::Read(Moment::Snapshot(0), Read::Inode(SMALL)),
    ]
}

fn on_quotas() -> Vec<Operation<'static>> {
    let limits = Limits { inodes_hard: 9, bytes_hard: 8192, ..Limits::default() };
    let all = [
        QuotasRequest::Set(Account::User(7), limits),
        QuotasRequest::SetTree(DIRECTORY, limits),
        QuotasRequest::All,
        QuotasRequest::Of(Account::Group(8)),
        QuotasRequest::OfTree(SMALL),
        QuotasRequest::RemoveTree(DIRECTORY),
        QuotasRequest::RemoveTreeOfNumber(1),
    ];
    let mut all = Vec::from_iter(all.into_iter().map(Operation::Quotas));
    all.insert(2, create(name_in(DIRECTORY, b"more"), file_type::REGULAR));
    all
}

fn others(expression: &Expression) -> Vec<Operation<'_>> {
    let who = || Cow::Owned(Credentials::new(0, [0]));
    let query = |at| Query { at, base: ROOT, expression: Cow::Borrowed(expression), who: who() };
    let indexes = Administration::SetIndexes(vec!["uid", "name", "user.y"]);
    let check = Administration::Check { snapshot: Some(b"s"), reads_contents: true };
    vec![
        Operation::Search(query(Moment::Now), 10),
        Operation::Explain(query(Moment::Now), true),
        Operation::Snapshots(SnapshotsRequest::Create("s")),
        Operation::Change(Change::Unlink(name_in(DIRECTORY, b"large.txt"))),
        Operation::Snapshots(SnapshotsRequest::Enter(b"s", DIRECTORY, who())),
        Operation::Search(query(Moment::Snapshot(0)), 10),
        Operation::Snapshots(SnapshotsRequest::Described),
        Operation::Administration(indexes),
        Operation::Administration(Administration::Flush),
        Operation::Administration(check),
        Operation::Administration(Administration::Repair { reads_contents: false }),
        Operation::Administration(Administration::State),
        Operation::Snapshots(SnapshotsRequest::Delete("s")),
    ]
}
