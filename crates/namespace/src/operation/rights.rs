//! The table of what a user needs for each operation, and reads of users.
//!
//! [`Operation::needs`] matches every operation, so that a new one does not compile before its line
//! is here. What depends on records is checked in `records::permissions`.
//!
//! | operation | a user needs |
//! | --- | --- |
//! | look up, parent | search on the directory |
//! | list | read on the directory; search, too, for more than types and numbers |
//! | inode, target of a link, names of attributes | a handle ([`Caller`]) |
//! | whether a time of access is due; sync | a handle |
//! | state, time, space, settings; whether there is a snapshot of a number | nothing |
//! | an attribute | as xattr(7): read for `user.`, root for `trusted.` |
//! | open; note a time of access | what it is opened for; read |
//! | records of contents: read, write | read, write; or to own the file, as with NFS |
//! | create, link, unlink, rename | as Linux: search, write, sticky bit, protected hard links |
//! | set attributes, attributes of files | as Linux: owner, groups, write for lengths |
//! | hold a name, and what is created | as to look it up, or to create it |
//! | hold a file, release | root; in a session of a cluster everybody, for that session |
//! | paths | root |
//! | questions about access, queries, entering snapshots | to be the user who is named |
//! | usage of an account | to be that user, or a member; of a tree: read |
//! | all accounts, limits, other snapshots and administration | root |

use super::reply::{Entries, Reply};
use super::tablet::target;
use super::{
    Access, Administration, Change, Hold, Operation, Page, Query, QuotasRequest, Read,
    SnapshotsRequest,
};
use crate::error::Result;
use crate::quota::Account;
use crate::records::access::passes;
use crate::records::inode::{Inode, TYPE_MASK, file_type};
use crate::records::keys::{EntryName, FileId};
use crate::records::listing::{Entry, Listing, PAGE_MAX};
use crate::records::permissions::Caller;
use crate::records::tablet::Tablet;
use crate::snapshot::past::Past;
use crate::snapshot::present::Present;
use canopy_model::{Credentials, Wanted, XattrAccess};
use rustix::io::Errno;

/// Rights that a user needs for an operation.
#[derive(Debug)]
enum Needs<'a> {
    /// Nothing: it names no file, and anybody may know the answer.
    Nothing,
    /// A handle of the file that it names.
    Handle,
    /// Permissions, which are checked where the operation is executed, in its view.
    Permissions,
    /// To be the user that it names.
    Identity(&'a Credentials),
    /// To be the user or in the group whose account it is.
    Account(Account),
    /// To be root.
    Root,
}

impl Operation<'_> {
    fn needs(&self) -> Needs<'_> {
        match self {
            Operation::Read(_, read) => read.needs(),
            Operation::Access(access) => access.needs(),
            Operation::Hold(hold) => match hold {
                Hold::Name(_) => Needs::Permissions,
                Hold::File(_) | Hold::Release(..) => Needs::Root,
            },
            Operation::Change(change) => change.needs(),
            Operation::Quotas(quotas) => quotas.needs(),
            Operation::Snapshots(snapshots) => snapshots.needs(),
            Operation::Administration(administration) => administration.needs(),
            // The number of candidates counts files that the user cannot see.
            Operation::Explain(_, true) => Needs::Root,
            Operation::Search(Query { who, .. }, _) | Operation::Explain(Query { who, .. }, _) => {
                Needs::Identity(who)
            }
        }
    }

    /// Returns an error unless a caller may ask for this, as far as no record decides.
    ///
    /// # Errors
    ///
    /// Fails with `PERM`.
    pub fn check_caller(&self, caller: Caller<'_>) -> Result<()> {
        let Some(who) = caller.user().filter(|who| !who.is_root()) else { return Ok(()) };
        let may = match self.needs() {
            Needs::Nothing | Needs::Handle | Needs::Permissions => true,
            Needs::Identity(named) => named == who,
            Needs::Account(Account::User(uid)) => uid == who.uid,
            Needs::Account(Account::Group(gid)) => who.gids.contains(&gid),
            Needs::Account(Account::Tree(_)) | Needs::Root => false,
        };
        if may { Ok(()) } else { Err(Errno::PERM.into()) }
    }
}

impl Read<'_> {
    fn needs(&self) -> Needs<'_> {
        match self {
            Read::Lookup(_)
            | Read::Parent(_)
            | Read::List(_)
            | Read::Xattr { .. }
            | Read::Contents(_) => Needs::Permissions,
            // Names of `trusted.` are left out.
            Read::Inode(_) | Read::Readlink(_) | Read::Xattrs(_) => Needs::Handle,
        }
    }
}

impl Access<'_> {
    fn needs(&self) -> Needs<'_> {
        match self {
            // It names directories that the user may not list.
            Access::Path(_) | Access::NeedsObject(..) => Needs::Root,
            Access::IsDue(_) => Needs::Handle,
            Access::MayRead(_, _, who) | Access::MayChange(_, who) | Access::IsShown(.., who) => {
                Needs::Identity(who)
            }
            Access::Open(..) => Needs::Permissions,
        }
    }
}

impl Change<'_> {
    fn needs(&self) -> Needs<'_> {
        match self {
            Change::Create { .. }
            | Change::CreateNameless { .. }
            | Change::Link { .. }
            | Change::Unlink(_)
            | Change::Rmdir(_)
            | Change::Rename { .. }
            | Change::SetAttributes { .. }
            | Change::SetXattr { .. }
            | Change::RemoveXattr { .. }
            | Change::WriteSmall { .. }
            | Change::PutChunks { .. }
            | Change::TouchAccess(_) => Needs::Permissions,
            Change::Sync(_) => Needs::Handle,
        }
    }
}

impl QuotasRequest {
    fn needs(&self) -> Needs<'_> {
        match self {
            QuotasRequest::Of(account) => Needs::Account(*account),
            QuotasRequest::OfTree(_) => Needs::Permissions,
            QuotasRequest::All
            | QuotasRequest::Set(..)
            | QuotasRequest::SetTree(..)
            | QuotasRequest::RemoveTree(_)
            | QuotasRequest::RemoveTreeOfNumber(_) => Needs::Root,
        }
    }
}

impl SnapshotsRequest<'_> {
    fn needs(&self) -> Needs<'_> {
        match self {
            SnapshotsRequest::Enter(_, _, who) => Needs::Identity(who),
            SnapshotsRequest::Has(_) => Needs::Nothing,
            SnapshotsRequest::All
            | SnapshotsRequest::Described
            | SnapshotsRequest::Create(_)
            | SnapshotsRequest::Delete(_) => Needs::Root,
        }
    }
}

impl Administration<'_> {
    fn needs(&self) -> Needs<'_> {
        match self {
            Administration::State
            | Administration::Time
            | Administration::Capacity
            | Administration::Settings => Needs::Nothing,
            Administration::SetIndexes(_)
            | Administration::Flush
            | Administration::Check { .. }
            | Administration::Repair { .. } => Needs::Root,
        }
    }
}

/// Reads of users. They have the lock of changes, so that no check is of another moment than what
/// is read.
impl Tablet {
    /// Reads for a user.
    pub(super) fn read_for(&self, who: &Credentials, read: &Read<'_>) -> Result<Reply> {
        let _writer = self.writer.lock();
        let check = self.check(who);
        match read {
            Read::Lookup(name) => {
                check.search_for(*name)?;
                self.lookup_now(name.directory, name.name).map(Reply::Inode)
            }
            Read::Inode(id) => self.inode_now(*id).map(Reply::Inode),
            Read::Parent(id) => {
                check.search(*id)?;
                self.parent(*id).map(Reply::File)
            }
            Read::Readlink(id) => self.inode_now(*id)?.into_target().map(target),
            Read::List(page) => {
                let (_, directory) = self.locate(page.directory)?;
                if !directory.is_directory() {
                    return Err(Errno::NOTDIR.into());
                }
                check.require(&directory, Wanted::READ)?;
                let is_searched = check.passes(&directory, Wanted::SEARCH)?;
                let list = |listing: &mut Listing, tell: &mut dyn FnMut(Entry<'_>) -> bool| {
                    self.list_by(listing, page.after, |id| self.inode_now(id), tell)
                };
                page.read_for(is_searched, list).map(Reply::Entries)
            }
            Read::Xattr { id, name } => {
                let (_, inode) = self.locate(*id)?;
                match check.read_xattr(&inode, name)? {
                    true => self.xattr_of(*id, name).map(Reply::Bytes),
                    false => Ok(Reply::Bytes(None)),
                }
            }
            Read::Xattrs(id) => {
                self.locate(*id)?;
                let mut names = self.xattr_names(*id)?;
                names.retain(|name| shows_name(who, name));
                Ok(Reply::Names(names))
            }
            Read::Contents(part) => self.contents_now(Some(check), part).map(Reply::Contents),
        }
    }

    /// Looks a name up for a user, and holds the file.
    pub(super) fn lookup_held_for(&self, who: &Credentials, name: EntryName<'_>) -> Result<Inode> {
        let _writer = self.writer.lock();
        self.check(who).search_for(name)?;
        let found = self.lookup_now(name.directory, name.name)?;
        self.hold(found.id);
        Ok(found)
    }

    /// Returns an error unless a caller may open a file so.
    ///
    /// # Errors
    ///
    /// Fails with `ACCESS`, with `ISDIR` if a directory is to be written, with `LOOP` for a symbolic
    /// link, and with `NOENT` if there is no such file.
    pub fn check_open(&self, caller: Caller<'_>, id: FileId, wanted: Wanted) -> Result<()> {
        self.check_early(caller, id, |check, inode| check.open(inode, wanted))
    }

    /// Returns an error unless a caller may read a file: what was read may be noted then.
    ///
    /// # Errors
    ///
    /// Fails with `ACCESS`, and with `NOENT` if there is no such file.
    pub fn check_reading(&self, caller: Caller<'_>, id: FileId) -> Result<()> {
        self.check_early(caller, id, |check, inode| match inode.file_type() {
            file_type::SYMLINK => Ok(()),
            _ => check.require(inode, Wanted::READ),
        })
    }
}

/// Reads of a tree as a snapshot has it. Both the permissions of then and those of now count.
impl Past {
    /// Returns an error unless a user may read this, and whether a listing has more than types.
    fn check(&self, present: &mut Present<'_>, read: &Read<'_>) -> Result<bool> {
        let who = present.who;
        let mut lets = |id: FileId, wanted: Wanted| -> Result<bool> {
            let inode = self.inode(id)?;
            let xattr = |id, name: &[u8]| self.view().xattr(id, name);
            Ok(passes(&inode, who, wanted, xattr)? && present.lets(id, wanted)?)
        };
        let (may, is_searched) = match read {
            Read::Lookup(name) => (lets(name.directory, Wanted::SEARCH)?, true),
            Read::Parent(id) => (lets(*id, Wanted::SEARCH)?, true),
            Read::List(Page { directory, .. }) => {
                (lets(*directory, Wanted::READ)?, lets(*directory, Wanted::SEARCH)?)
            }
            Read::Xattr { id, name } => match XattrAccess::of(&String::from_utf8_lossy(name)) {
                XattrAccess::Read => (lets(*id, Wanted::READ)?, true),
                XattrAccess::Lookup | XattrAccess::Privilege => (true, true),
            },
            Read::Inode(_) | Read::Readlink(_) | Read::Xattrs(_) => (true, true),
            Read::Contents(part) => (lets(part.id, Wanted::READ)?, true),
        };
        if may { Ok(is_searched) } else { Err(Errno::ACCESS.into()) }
    }

    /// Reads for a user, who looks at the namespace as it is through `present`.
    pub(super) fn read_for(&self, mut present: Present<'_>, read: &Read<'_>) -> Result<Reply> {
        let is_searched = self.check(&mut present, read)?;
        let who = present.who;
        match read {
            Read::List(page) => page
                .read_for(is_searched, |listing, tell| self.list(listing, page.after, tell))
                .map(Reply::Entries),
            Read::Xattr { name, .. } if !shows_name(who, name) => Ok(Reply::Bytes(None)),
            Read::Xattrs(_) => match self.execute(read)? {
                Reply::Names(mut names) => {
                    names.retain(|name| shows_name(who, name));
                    Ok(Reply::Names(names))
                }
                other => Ok(other),
            },
            _ => self.execute(read),
        }
    }
}

impl Page<'_> {
    /// Returns the entries of this part for a user, who gets no more than `PAGE_MAX` at once. Without
    /// search on the directory, they have types and numbers alone.
    fn read_for(
        &self,
        is_searched: bool,
        list: impl FnOnce(&mut Listing, &mut dyn FnMut(Entry<'_>) -> bool) -> Result<()>,
    ) -> Result<Entries> {
        let part = Page { count_max: self.count_max.min(PAGE_MAX), ..*self };
        part.read(|listing, tell| {
            list(listing, &mut |entry| {
                if is_searched {
                    return tell(entry);
                }
                let Inode { mode, id, .. } = *entry.inode;
                let inode = Inode { mode: mode & TYPE_MASK, id, ..Inode::default() };
                tell(Entry { inode: &inode, ..entry })
            })
        })
    }
}

/// Returns whether a user is shown that a file has the attribute of this name.
fn shows_name(who: &Credentials, name: &[u8]) -> bool {
    who.is_root() || XattrAccess::shows_name(&String::from_utf8_lossy(name))
}
