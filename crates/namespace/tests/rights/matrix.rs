//! Every call on files and directories whose bits grant something to one class of users, and the
//! opposite to everybody else; in sticky directories; and of ACLs. These are the cases that
//! `canopy-conformance` has for mounts (`src/matrix`), but here Linux says what is right.
//! `CANOPY_LONG=1` tries all of them, else it is a tenth.

use crate::step::Call;
use crate::user::{User, users};
use crate::{Site, is_long};
use canopy_model::{Acl, AclEntry, AclTag, Wanted};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Access, Change, Changer, Moment, Page, Read};
use canopy_namespace::{
    EntryName, FileId, New, Operation, ROOT, RenameMode, SetAttributes, SetTime, SetXattr, acl,
};
use std::borrow::Cow;

const OWNER: u32 = 1001;
const GROUP: u32 = 2001;

/// Permissions of what the calls are about.
struct Protection {
    owner: u32,
    mode: u32,
    acl: Option<Acl>,
}

/// A directory `d` with a file `f`, a directory `e` and a link `l`, beside a file `m` and a directory
/// `o` of the user.
struct Files {
    d: FileId,
    f: FileId,
    l: FileId,
    m: FileId,
}

impl Files {
    /// Returns what stands for no files: calls are counted by it.
    fn none() -> Self {
        Files { d: ROOT, f: ROOT, l: ROOT, m: ROOT }
    }
}

/// Makes a call, and returns whether it was allowed.
fn execute(site: &mut Site, user: &User, operation: Operation<'static>) -> bool {
    let call = Call::Execute(operation);
    !site.differs(user, &call) && site.step(user, call).is_ok()
}

fn change(site: &mut Site, user: &User, change: Change<'static>) {
    let _ = execute(site, user, Operation::Change(change));
}

fn set(site: &mut Site, user: &User, id: FileId, set: SetAttributes) {
    change(site, user, Change::SetAttributes { id, set, changer: Changer::Privileged });
}

fn create(user: &User, name: EntryName<'static>, mode: u32) -> Change<'static> {
    let target = if mode == file_type::SYMLINK | 0o777 { b"f".to_vec() } else { Vec::new() };
    let (uid, gid) = (user.credentials.uid, user.gid);
    let new = New { mode, uid, gid, target, ..New::default() };
    Change::Create { name, new: Cow::Owned(new), holds: true }
}

fn name(directory: FileId, name: &'static [u8]) -> EntryName<'static> {
    EntryName::new(directory, name)
}

fn made(site: &mut Site, user: &User, name: EntryName<'static>, mode: u32) -> FileId {
    change(site, user, create(user, name, mode));
    site.namespace.lookup(name.directory, name.name).expect("a file").id
}

fn protect(site: &mut Site, id: FileId, protection: &Protection) {
    let root = &users()[0];
    let none = SetAttributes::default;
    let (uid, gid) = (Some(protection.owner), Some(GROUP));
    set(site, root, id, SetAttributes { uid, gid, ..none() });
    set(site, root, id, SetAttributes { mode: Some(protection.mode), ..none() });
    if let Some(acl) = &protection.acl {
        let (name, value) = (acl::ACCESS.as_bytes(), Vec::leak(acl.encode()));
        let changer = Changer::Privileged;
        change(site, root, Change::SetXattr { id, name, value, how: SetXattr::Any, changer });
    }
}

fn files(site: &mut Site, user: &User, above: FileId) -> Files {
    let root = &users()[0];
    let d = made(site, root, name(above, b"d"), file_type::DIRECTORY | 0o777);
    let f = made(site, root, name(d, b"f"), file_type::REGULAR | 0o666);
    made(site, root, name(d, b"e"), file_type::DIRECTORY | 0o777);
    let l = made(site, root, name(d, b"l"), file_type::SYMLINK | 0o777);
    let m = made(site, user, name(above, b"m"), file_type::REGULAR | 0o600);
    made(site, user, name(above, b"o"), file_type::DIRECTORY | 0o700);
    Files { d, f, l, m }
}

/// Calls on names in the directory.
fn on_names(user: &User, above: FileId, files: &Files) -> Vec<Operation<'static>> {
    let Files { d, f, m, .. } = *files;
    let here = |one| name(above, one);
    let within = |one| name(d, one);
    let rename = |from, to, mode| Change::Rename { from, to, mode, whiteout: None };
    let replace = |from, to| rename(from, to, RenameMode::Replace);
    let exchange = |from, to| rename(from, to, RenameMode::Exchange);
    let mut changes = Vec::new();
    for kind in [
        file_type::REGULAR | 0o644,
        file_type::DIRECTORY | 0o755,
        file_type::SYMLINK | 0o777,
        file_type::FIFO | 0o644,
        file_type::CHARACTER | 0o644,
        file_type::BLOCK | 0o644,
    ] {
        changes.extend([b"n".as_slice(), b"f"].map(|one| create(user, within(one), kind)));
    }
    changes.extend([
        Change::Link { id: m, name: within(b"n") },
        Change::Link { id: m, name: within(b"f") },
        Change::Link { id: f, name: here(b"n") },
        replace(here(b"m"), within(b"n")),
        replace(here(b"m"), within(b"f")),
        replace(here(b"m"), within(b"e")),
        replace(here(b"o"), within(b"n")),
        replace(here(b"o"), within(b"e")),
        replace(here(b"o"), within(b"f")),
        replace(within(b"f"), here(b"n")),
        replace(within(b"f"), within(b"n")),
        replace(within(b"e"), here(b"n")),
        replace(within(b"e"), within(b"n")),
        replace(within(b"missing"), here(b"n")),
        rename(here(b"m"), within(b"f"), RenameMode::NoReplace),
        exchange(within(b"f"), here(b"m")),
        exchange(here(b"m"), within(b"e")),
        exchange(here(b"o"), within(b"e")),
        Change::Unlink(within(b"f")),
        Change::Unlink(within(b"l")),
        Change::Unlink(within(b"e")),
        Change::Unlink(within(b"missing")),
        Change::Rmdir(within(b"e")),
        Change::Rmdir(within(b"f")),
        Change::Rmdir(within(b"missing")),
    ]);
    let page = Page { directory: d, after: 0, name: None, count_max: 100 };
    let reads = [
        Read::Lookup(within(b"f")),
        Read::Lookup(within(b"missing")),
        Read::Parent(d),
        Read::List(page),
    ];
    let reads = reads.into_iter().map(|read| Operation::Read(Moment::Now, read));
    changes.into_iter().map(Operation::Change).chain(reads).collect()
}

/// Calls on a file or a directory itself.
fn on_inode(id: FileId) -> Vec<Operation<'static>> {
    let none = SetAttributes::default;
    let (now, then) = (Some(SetTime::Now), Some(SetTime::To(5)));
    let mut sets = vec![
        SetAttributes { size: Some(0), ..none() },
        none(),
        SetAttributes { atime: now, mtime: now, ..none() },
        SetAttributes { atime: now, ..none() },
        SetAttributes { mtime: then, ..none() },
        SetAttributes { atime: then, mtime: now, ..none() },
    ];
    for mode in [0, 0o755, 0o2755, 0o2644, 0o4755, 0o1777, 0o7777] {
        sets.push(SetAttributes { mode: Some(mode), ..none() });
    }
    for uid in [None, Some(OWNER), Some(1002), Some(0)] {
        for gid in [None, Some(GROUP), Some(2002), Some(2003)] {
            sets.push(SetAttributes { uid, gid, ..none() });
        }
    }
    let changer = || Changer::Privileged;
    let mut all = Vec::new();
    all.extend(
        sets.into_iter()
            .map(|set| Operation::Change(Change::SetAttributes { id, set, changer: changer() })),
    );
    for name in [b"user.x".as_slice(), b"trusted.x", b"security.x", acl::DEFAULT.as_bytes()] {
        let (how, acl) = (SetXattr::Any, acl::DEFAULT.as_bytes());
        let value = if name == acl { Vec::leak(grants(7, 7, 7, &[])) } else { b"v".as_slice() };
        let set = Change::SetXattr { id, name, value, how, changer: changer() };
        all.push(Operation::Change(set));
        all.push(Operation::Read(Moment::Now, Read::Xattr { id, name }));
        all.push(Operation::Change(Change::RemoveXattr { id, name }));
    }
    for wanted in [Wanted::READ, Wanted::WRITE, Wanted::READ_WRITE, Wanted::EXECUTE] {
        all.push(Operation::Access(Access::Open(id, wanted)));
    }
    all
}

/// Returns the value of an ACL.
fn grants(group: u16, mask: u16, other: u16, named: &[AclEntry]) -> Vec<u8> {
    list(group, mask, other, named).encode()
}

fn list(group: u16, mask: u16, other: u16, named: &[AclEntry]) -> Acl {
    let entry = |tag, permissions| AclEntry { tag, permissions };
    let of = |is_user: bool| {
        named.iter().filter(move |entry| matches!(entry.tag, AclTag::User(_)) == is_user)
    };
    let mut entries = vec![entry(AclTag::Owner, 7)];
    entries.extend(of(true));
    entries.push(entry(AclTag::OwningGroup, group));
    entries.extend(of(false));
    entries.extend([entry(AclTag::Mask, mask), entry(AclTag::Other, other)]);
    Acl { entries }
}

/// Returns permissions that differ for each class of users.
fn protections() -> Vec<Protection> {
    let mut all = Vec::new();
    for shift in [6, 3, 0] {
        for bits in 0..8 {
            let mode = ((!bits & 7) * 0o111) & !(7 << shift) | bits << shift;
            all.push(Protection { owner: OWNER, mode, acl: None });
        }
    }
    for owner in [OWNER, 1002, 1003] {
        all.push(Protection { owner, mode: 0o1777, acl: None });
    }
    all.push(Protection { owner: OWNER, mode: 0o6777, acl: None });
    for bits in 0..8 {
        let entry = |tag, permissions| AclEntry { tag, permissions };
        let named = [entry(AclTag::User(1002), bits), entry(AclTag::Group(2004), bits)];
        for mask in [7, 5, 2, 0] {
            let acl = list(!bits & 7, mask, !bits & 7, &named);
            all.push(Protection { owner: OWNER, mode: 0o777, acl: Some(acl) });
        }
    }
    all
}

/// Reading and writing are one check where a file gets another name: no two entries of an ACL can
/// grant it together. They can where it is opened.
#[test]
fn one_entry_grants_all_that_is_wanted_at_once() {
    let (mut site, users) = (Site::new(), users());
    let (root, member) = (&users[0], &users[3]);
    let writers = [AclEntry { tag: AclTag::Group(2004), permissions: 2 }];
    for (group, is_allowed) in [(4, false), (6, true)] {
        let file = name(ROOT, Vec::leak(vec![b'f', group as u8]));
        let id = made(&mut site, root, file, file_type::REGULAR | 0o600);
        let acl = Some(list(group, 7, 0, &writers));
        protect(&mut site, id, &Protection { owner: OWNER, mode: 0o770, acl });
        let link = Change::Link { id, name: name(ROOT, Vec::leak(vec![b'l', group as u8])) };
        let link = Call::Execute(Operation::Change(link));
        // A host may protect no hard links.
        if !site.differs(member, &link) {
            assert_eq!(site.step(member, link).is_ok(), is_allowed);
        }
        for wanted in [Wanted::READ, Wanted::WRITE, Wanted::READ_WRITE] {
            execute(&mut site, member, Operation::Access(Access::Open(id, wanted)));
        }
    }
}

#[test]
fn all_calls_are_allowed_to_those_whom_linux_allows_them() {
    let mut site = Site::new();
    let (users, mut number) = (users(), 0);
    let root = &users[0];
    for (at, protection) in protections().iter().enumerate() {
        for (who, user) in users.iter().enumerate() {
            if !is_long() && (at + 2 * who) % 10 != 0 {
                continue;
            }
            let count = on_names(user, ROOT, &Files::none()).len();
            let mut made_for = None;
            for at in 0..count {
                let (above, files) = made_for.take().unwrap_or_else(|| {
                    number += 1;
                    let top = name(ROOT, Vec::leak(format!("{number}").into_bytes()));
                    let above = made(&mut site, root, top, file_type::DIRECTORY | 0o777);
                    let files = files(&mut site, user, above);
                    protect(&mut site, files.d, protection);
                    (above, files)
                });
                let operation = on_names(user, above, &files).swap_remove(at);
                let is_read = matches!(operation, Operation::Read(..));
                match site.step(user, Call::Execute(operation)) {
                    Ok(()) if !is_read => site.remove_all(above),
                    _ => made_for = Some((above, files)),
                }
            }
            let (above, files) = made_for.expect("reads come last");
            for id in [files.d, files.f, files.l] {
                let mut is_changed = true;
                for operation in on_inode(id) {
                    if is_changed {
                        protect(&mut site, id, protection);
                    }
                    is_changed = execute(&mut site, user, operation);
                }
            }
            site.compare();
            site.remove_all(above);
        }
    }
}
