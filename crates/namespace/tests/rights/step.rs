//! Calls at random: a user, and an operation on files that there are or were.

use crate::user::{GIDS, UIDS, User};
use canopy_model::{Acl, AclEntry, AclTag, Ownership, Wanted};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Access, Change, Changer, Moment, Page, Read};
use canopy_namespace::{
    EntryName, FileId, New, Operation, RenameMode, SetAttributes, SetTime, SetXattr, acl,
};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use std::borrow::Cow;

/// Names of all files.
const NAMES: [&[u8]; 5] = [b"a", b"b", b"c", b"d", b"e"];

/// A name that no file can have.
const LONG: &[u8] = &[b'x'; 256];

/// Names of extended attributes. Of the last ones, no file has any.
const XATTRS: [&[u8]; 9] = [
    b"user.one",
    b"user.two",
    b"trusted.one",
    b"security.one",
    b"security.capability",
    b"user.",
    b"trusted.",
    b"system.one",
    b"other.one",
];

/// A value of `security.capability`: version 2, the right to use raw sockets.
const CAPABILITY: &[u8] = b"\0\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

const MODES: [u32; 14] = [
    0o777, 0o1777, 0o2777, 0o3777, 0o755, 0o1775, 0o2775, 0o700, 0o711, 0o733, 0o070, 0o007,
    0o6755, 0o2644,
];

/// Subjects of random calls.
pub(crate) struct Files<'a> {
    /// Directories that there are or were.
    pub(crate) directories: &'a [FileId],
    /// All files.
    pub(crate) all: &'a [FileId],
}

/// A call.
#[derive(Debug)]
pub(crate) enum Call {
    Execute(Operation<'static>),
    /// Makes a file without a name, which gets one later, or never.
    CreateNameless(FileId, New),
}

/// Chooses calls.
pub(crate) struct Choice<'a> {
    pub(crate) random: &'a mut StdRng,
    pub(crate) files: Files<'a>,
    pub(crate) user: &'a User,
}

fn pick<T: Copy>(random: &mut StdRng, from: &[T]) -> T {
    *from.choose(random).expect("something to choose from")
}

impl Choice<'_> {
    fn of<T: Copy>(&mut self, from: &[T]) -> T {
        pick(self.random, from)
    }

    fn one_in(&mut self, count: u32) -> bool {
        self.random.random_ratio(1, count)
    }

    fn file(&mut self) -> FileId {
        pick(self.random, self.files.all)
    }

    fn directory(&mut self) -> FileId {
        match self.one_in(40) {
            true => self.file(),
            false => pick(self.random, self.files.directories),
        }
    }

    fn name(&mut self) -> EntryName<'static> {
        let name = if self.one_in(60) { LONG } else { self.of(&NAMES) };
        EntryName::new(self.directory(), name)
    }

    fn mode(&mut self) -> u32 {
        match self.one_in(2) {
            true => self.random.random_range(0..0o10000),
            false => self.of(&MODES),
        }
    }

    fn new_file(&mut self) -> New {
        let kinds = [
            file_type::DIRECTORY,
            file_type::DIRECTORY,
            file_type::DIRECTORY,
            file_type::REGULAR,
            file_type::REGULAR,
            file_type::REGULAR,
            file_type::SYMLINK,
            file_type::FIFO,
            file_type::SOCKET,
            file_type::CHARACTER,
            file_type::BLOCK,
        ];
        let kind = self.of(&kinds);
        let is_link = kind == file_type::SYMLINK;
        let is_device = matches!(kind, file_type::CHARACTER | file_type::BLOCK);
        New {
            mode: kind | if is_link { 0o777 } else { self.mode() },
            umask: self.of(&[0, 0o022, 0o077]),
            uid: self.user.credentials.uid,
            gid: self.user.gid,
            rdev: if is_device && !self.one_in(3) { 0x103 } else { 0 },
            target: if is_link { b"a".to_vec() } else { Vec::new() },
            origin: None,
        }
    }

    fn acl(&mut self) -> Vec<u8> {
        let mut entries = vec![(AclTag::Owner, self.random.random_range(0..8))];
        let named = |choice: &mut Self, tag: fn(u32) -> AclTag, ids: &[u32]| {
            let mut ids = Vec::from_iter(ids.iter().copied().filter(|_| choice.one_in(3)));
            ids.sort_unstable();
            let entries = ids.into_iter().map(|id| (tag(id), choice.random.random_range(0..8)));
            Vec::from_iter(entries)
        };
        entries.extend(named(self, AclTag::User, &UIDS));
        entries.push((AclTag::OwningGroup, self.random.random_range(0..8)));
        entries.extend(named(self, AclTag::Group, &GIDS));
        // Without a mask, an ACL with further entries is refused.
        if entries.len() > 2 && !self.one_in(20) {
            entries.push((AclTag::Mask, self.random.random_range(0..8)));
        }
        entries.push((AclTag::Other, self.random.random_range(0..8)));
        let entry = |(tag, permissions)| AclEntry { tag, permissions };
        Acl { entries: entries.into_iter().map(entry).collect() }.encode()
    }

    fn xattr(&mut self) -> &'static [u8] {
        match self.random.random_range(0..4) {
            0 => acl::ACCESS.as_bytes(),
            1 => acl::DEFAULT.as_bytes(),
            2 => self.of(&XATTRS[..2]),
            _ => self.of(&XATTRS),
        }
    }

    fn set_attributes(&mut self) -> SetAttributes {
        let none = SetAttributes::default();
        match self.random.random_range(0..10) {
            0..4 => SetAttributes { mode: Some(self.mode()), ..none },
            4..7 => {
                let uid = (!self.one_in(2)).then(|| self.of(&UIDS));
                let gid = (!self.one_in(3)).then(|| self.of(&GIDS));
                SetAttributes { uid, gid, ..none }
            }
            7 => SetAttributes { size: Some(self.random.random_range(0..100)), ..none },
            _ => {
                let times = [None, Some(SetTime::Now), Some(SetTime::Now), Some(SetTime::To(7))];
                let (atime, mtime) = (self.of(&times), self.of(&times));
                SetAttributes { atime, mtime, ..none }
            }
        }
    }

    fn read(&mut self) -> Read<'static> {
        match self.random.random_range(0..8) {
            0..3 => Read::Lookup(self.name()),
            3 => Read::Parent(self.directory()),
            4 => Read::Readlink(self.file()),
            5 => {
                let directory = self.directory();
                Read::List(Page { directory, after: 0, name: None, count_max: u32::MAX })
            }
            6 => Read::Xattr { id: self.file(), name: self.xattr() },
            _ => Read::Xattrs(self.file()),
        }
    }

    /// Returns a call of the user.
    pub(crate) fn call(&mut self) -> Call {
        // Claims of users count for nothing.
        let changer = Changer::Privileged;
        let change = match self.random.random_range(0..100) {
            0..24 => {
                let new = Cow::Owned(self.new_file());
                Change::Create { name: self.name(), new, holds: true }
            }
            24..26 => {
                let mode = file_type::REGULAR | self.mode();
                let new = New { target: Vec::new(), rdev: 0, mode, ..self.new_file() };
                return Call::CreateNameless(self.directory(), new);
            }
            26..32 => Change::Link { id: self.file(), name: self.name() },
            32..37 => Change::Unlink(self.name()),
            37..41 => Change::Rmdir(self.name()),
            41..55 => {
                let modes = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];
                let mode = self.of(&modes);
                let leaves = mode != RenameMode::Exchange && self.one_in(6);
                let uid = self.user.credentials.uid;
                let whiteout = leaves.then_some(Ownership { uid, gid: self.user.gid });
                Change::Rename { from: self.name(), to: self.name(), mode, whiteout }
            }
            55..73 => {
                Change::SetAttributes { id: self.file(), set: self.set_attributes(), changer }
            }
            73..81 => {
                let name = self.xattr();
                let how = self.of(&[SetXattr::Any, SetXattr::Create, SetXattr::Replace]);
                let value = match name {
                    b"security.capability" => CAPABILITY.to_vec(),
                    _ if name.starts_with(b"system.posix") => self.acl(),
                    _ => vec![b'v'; self.random.random_range(0..9)],
                };
                Change::SetXattr { id: self.file(), name, value: value.leak(), how, changer }
            }
            81..85 => Change::RemoveXattr { id: self.file(), name: self.xattr() },
            85..90 => {
                let ways = [Wanted::READ, Wanted::WRITE, Wanted::READ_WRITE, Wanted::EXECUTE];
                let access = Access::Open(self.file(), self.of(&ways));
                return Call::Execute(Operation::Access(access));
            }
            _ => return Call::Execute(Operation::Read(Moment::Now, self.read())),
        };
        Call::Execute(Operation::Change(change))
    }
}
