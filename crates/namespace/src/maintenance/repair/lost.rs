//! Losses from damaged files of records: reports lost files by path, and restores what other
//! records still contain.
//!
//! A directory entry says which inode it is, and an entry of the name index where the file's names
//! are; indexes of attributes and snapshots have more. So a file whose inode was lost keeps its name
//! if anything says what it was. Nobody knows its permissions, so only root may use it then. The
//! same holds of a file that has an older inode since its newest one was lost. Older contents are
//! never shown as those of now: they become files in `lost+found`.

use super::Repair;
use crate::contents::chunks::{self, ChunkId, Stored};
use crate::error::Result;
use crate::records::acl;
use crate::records::attributes::Attribute;
use crate::records::inode::{Inode, file_type, flag};
use crate::records::keys::{self, FileId, ROOT, Space};
use crate::snapshot::past::Past;
use canopy_store::{Direction, Key, KeyRange, Loss};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// More chunks of one file are not marked as lost one by one.
const CHUNKS_MAX: u64 = 1 << 20;

/// The permissions that an inode keeps whose permissions are not known for sure.
const PRIVATE: u32 = !0o7077;

/// Attributes of a file whose inode was lost, from the indexes.
#[derive(Clone, Copy, Default)]
struct Hint {
    uid: Option<u32>,
    gid: Option<u32>,
    size: Option<u64>,
    mtime_ns: Option<i64>,
    file_type: Option<u32>,
}

/// A name whose record was lost.
struct LostName {
    id: FileId,
    parent: FileId,
    name: Vec<u8>,
}

impl LostName {
    fn key(&self) -> Key {
        keys::name_in(self.parent, &self.name)
    }
}

/// Records that were lost with damaged files.
struct Losses<'a> {
    all: &'a [Loss],
    /// The CRC-32 of older values.
    stale: HashMap<&'a Key, &'a Loss>,
}

impl Losses<'_> {
    /// Returns whether the record of a key may be lost with an SSTable.
    fn has(&self, key: &Key) -> bool {
        self.all.iter().any(|loss| loss.has(key.as_ref()))
    }

    /// Returns whether records of a range may be lost with an SSTable.
    fn meets(&self, range: &KeyRange) -> bool {
        let meets = |lost: &KeyRange| !lost.intersection(range).is_empty();
        self.all.iter().any(|loss| loss.ranges.iter().any(meets))
    }
}

impl Repair<'_> {
    /// Reports losses, and restores the records that are known. The rest is mended as ever.
    pub(super) fn mend_losses(&mut self, all: &[Loss]) -> Result<()> {
        if all.is_empty() {
            return Ok(());
        }
        let mut stale = HashMap::new();
        for loss in all {
            stale.extend(loss.stale.iter().map(|one| (&one.key, loss)));
        }
        let losses = Losses { all, stale };
        all.iter().for_each(|loss| self.report_loss(loss));
        self.secure_ids()?;
        self.settle_stale(&losses)?;
        self.restore_names(&losses)?;
        self.look_at_inodes(&losses)?;
        for (key, what) in [
            (keys::settings(), "the settings may be older ones: look at 'canopy ns index'"),
            (keys::quotas(), "usage of quotas may no longer be counted: look at 'canopy ns quota'"),
        ] {
            if losses.has(&key) {
                self.report(FileId::NONE, what);
            }
        }
        if losses.meets(&Space::Limits.range()) {
            self.report(
                FileId::NONE,
                "limits of quotas may be lost, or older ones: look at 'canopy ns quota'",
            );
        }
        if losses.meets(&Space::Snapshots.range()) {
            self.report(FileId::NONE, "snapshots may be lost: look at 'canopy ns snapshot list'");
        }
        self.write()
    }

    /// Sees to it that no new file gets an id that another one has: the record may be lost.
    fn secure_ids(&mut self) -> Result<()> {
        let mut last = ROOT;
        let spaces = [Space::Links, Space::Orphans, Space::Names, Space::Xattrs, Space::Contents];
        for space in spaces.into_iter().chain([Space::Chunks, Space::Doomed, Space::Garbage]) {
            let mut scan = self.namespace.tablet.table.scan(&space.range(), Direction::Backward)?;
            last = last.max(scan.next()?.map_or(FileId::NONE, |record| FileId(record.key.hash)));
        }
        if self.namespace.contents.chunks().is_none() {
            last = last
                .max(self.namespace.contents.objects()?.into_iter().max().unwrap_or(FileId::NONE));
        }
        let all = self.namespace.all_snapshots();
        let end =
            all.iter().map(|one| one.info.ids_end).max().unwrap_or(FileId::NONE).max(last.next());
        if end > self.writer.ids.end() && end < FileId::MAX {
            self.writer.ids.skip_to(&self.namespace.tablet.table, end)?;
            self.writer.ids.put_end(&mut self.batch, FileId::NONE)?;
        }
        self.write()
    }

    fn report_loss(&mut self, loss: &Loss) {
        let [puts, merges, deletes] = loss.lost;
        let Loss { object, what, .. } = loss;
        let lost = match puts + merges + deletes {
            _ if loss.is_log => format!("{} bytes of changes are lost", loss.lost_bytes),
            0 => "nothing is lost".to_owned(),
            records => format!("{records} records are lost, {} are left", loss.left),
        };
        let aside = loss.aside.as_ref();
        let aside = aside.map(|aside| format!("; a copy of the damaged file is {aside}"));
        self.report(FileId::NONE, format!("{object}: {what}: {lost}{}", aside.unwrap_or_default()));
        if loss.is_log {
            self.report(
                FileId::NONE,
                "the latest changes may be lost, including changes of permissions",
            );
        } else if loss.has_unknown_stale && puts + merges + deletes > 0 {
            let what = "older records count in their place where there are any, with older \
                        permissions, and nothing says of which files";
            self.report(FileId::NONE, what);
        }
        if loss.is_unproved {
            self.report(
                FileId::NONE,
                "no checksum proves what is left of it: compare it with a backup",
            );
        }
    }

    /// Returns the path of a file, as far as names are known.
    fn path_of(&self, id: FileId) -> String {
        self.namespace.shown_path(id).unwrap_or_else(|| format!("file {id}"))
    }

    fn path_in(&self, parent: FileId, name: &[u8]) -> String {
        let above = self.path_of(parent);
        format!("{}/{}", above.trim_end_matches('/'), name.escape_ascii())
    }

    fn is_there(&self, key: &Key) -> Result<bool> {
        Ok(self.namespace.tablet.table.get(key.as_ref())?.is_some())
    }

    /// Decides about keys that have an older value since the newest one was lost.
    fn settle_stale(&mut self, losses: &Losses<'_>) -> Result<()> {
        let all = losses.all.iter().flat_map(|loss| loss.stale.iter().map(move |one| (loss, one)));
        for (loss, stale) in all {
            let Some(value) = self.namespace.tablet.table.get(stale.key.as_ref())? else {
                continue;
            };
            // A later writer knew the right value.
            if !stale.is_value(&value) {
                continue;
            }
            let [puts, merges, deletes] = loss.lost;
            let key = &stale.key;
            let is_inode = keys::all_names().contains(key.as_ref())
                || [Space::Links, Space::Orphans].iter().any(|one| key.directory == *one as u64);
            if is_inode && Inode::decode(&value).is_err() {
                // Only the part that changes often is left, and the rest is lost.
                self.batch.delete(key.as_ref())?;
                continue;
            }
            match (puts + deletes, merges) {
                (0, 0) => {}
                (0, _) => self.report_older(key, &value),
                _ => self.settle(losses, key, &value)?,
            }
            self.write_some()?;
        }
        self.write()
    }

    /// Reports that only frequently changing attributes may be older.
    fn report_older(&mut self, key: &Key, value: &[u8]) {
        let Ok(inode) = Inode::decode(value) else { return };
        if keys::all_names().contains(key.as_ref()) && !inode.has(flag::LINKED)
            || key.directory == Space::Links as u64
        {
            let path = self.path_of(inode.id);
            self.report(FileId::NONE, format!("{path}: its size and times may be older ones"));
        }
    }

    fn settle(&mut self, losses: &Losses<'_>, key: &Key, value: &[u8]) -> Result<()> {
        let id = FileId(key.hash);
        let space = |space: Space| key.directory == space as u64;
        if keys::all_names().contains(key.as_ref()) {
            return self.settle_name(losses, key, value);
        }
        if space(Space::Links) {
            let names = self.namespace.names(id)?;
            return match Inode::decode(value) {
                Ok(_) if names.is_empty() && !losses.meets(&Space::Names.range_of(id)) => {
                    Ok(self.batch.delete(key.as_ref())?)
                }
                Ok(inode) => self.keep_older(key, inode),
                Err(_) => Ok(()),
            };
        }
        if ![Space::Xattrs, Space::Contents, Space::Chunks].into_iter().any(space) {
            return Ok(());
        }
        self.batch.delete(key.as_ref())?;
        // Otherwise the file was removed, and this with it.
        let Some(path) = self.namespace.shown_path(id) else { return Ok(()) };
        if space(Space::Contents) {
            return self.keep_older_contents(id, value);
        }
        if space(Space::Xattrs) {
            let name = key.name.escape_ascii();
            self.report(FileId::NONE, format!("{path}: its attribute {name} is lost"));
        } else if let Some(stored) = Stored::decode(value) {
            self.batch.put(key.as_ref(), &Stored::lost(stored.used).encode())?;
            self.report(FileId::NONE, format!("{path}: a part of its contents is lost"));
        }
        Ok(())
    }

    /// Decides about a name that has an older inode. The name index knows whether it was removed.
    fn settle_name(&mut self, losses: &Losses<'_>, key: &Key, value: &[u8]) -> Result<()> {
        let Ok(inode) = Inode::decode(value) else { return Ok(()) };
        let entry = keys::name_of(inode.id, FileId(key.directory), &key.name);
        if *key != keys::root() && !self.is_there(&entry)? && !losses.has(&entry) {
            let path = self.path_in(FileId(key.directory), &key.name);
            self.batch.delete(key.as_ref())?;
            self.report(FileId::NONE, format!("{path}: it had been removed, and stays removed"));
            return Ok(());
        }
        if losses.stale.contains_key(&entry) {
            let path = self.path_in(FileId(key.directory), &key.name);
            if inode.has(flag::LINKED) && self.has_too_many_names(inode.id)? {
                self.batch.delete(key.as_ref())?;
                self.batch.delete(entry.as_ref())?;
                self.report(
                    FileId::NONE,
                    format!("{path}: it had been removed, and stays removed"),
                );
                return self.write();
            }
            self.report(
                FileId::NONE,
                format!("{path}: it may have been removed; that record is lost, too"),
            );
        }
        match inode.has(flag::LINKED) {
            true => Ok(()),
            false => self.keep_older(key, inode),
        }
    }

    /// Returns whether a file has more names than its inode counts, or no inode.
    fn has_too_many_names(&self, id: FileId) -> Result<bool> {
        let nlink = self.of(Space::Links, id)?.map_or(0, |inode| inode.nlink);
        Ok(self.namespace.names(id)?.len() > nlink as usize)
    }

    /// Keeps an older inode for root alone, unless indexes know the owner.
    fn keep_older(&mut self, key: &Key, mut inode: Inode) -> Result<()> {
        let Inode { uid, gid, mode, id, .. } = inode;
        if !self.is_indexed(Attribute::Uid, &inode)? {
            inode.uid = 0;
        }
        if !self.is_indexed(Attribute::Gid, &inode)? {
            inode.gid = 0;
        }
        if inode.file_type() != file_type::SYMLINK {
            inode.mode &= PRIVATE;
        }
        self.batch.put(key.as_ref(), &inode.encode())?;
        let path = self.path_of(id);
        let was = format!("owner {uid}:{gid} and mode {:o}", mode & 0o7777);
        let what =
            format!("{path}: an older state counts again, with {was}; others have no access");
        self.report(FileId::NONE, format!("{what} until you change its mode"));
        Ok(())
    }

    fn is_indexed(&self, attribute: Attribute, inode: &Inode) -> Result<bool> {
        let configured = self.namespace.tablet.configured();
        let value = attribute.value(inode, b"");
        match value.filter(|_| configured.ready.has(attribute)) {
            Some(value) => self.is_there(&attribute.entry(&value, inode.id)),
            None => Ok(false),
        }
    }

    fn keep_older_contents(&mut self, of: FileId, contents: &[u8]) -> Result<()> {
        let id = self.writer.ids.new_id(&self.namespace.tablet.table)?;
        let mut inode = self.new_file(id);
        inode.size = contents.len() as u64;
        inode.blocks = chunks::blocks(inode.size);
        inode.flags = flag::INLINE;
        self.batch.put(Space::Contents.of(id, b"").as_ref(), contents)?;
        let path = self.path_of(of);
        self.report(
            FileId::NONE,
            format!("{path}: its contents are lost; older ones become file {id}"),
        );
        self.attach(&mut inode)
    }

    /// Restores the inodes of lost names from other records and snapshots.
    fn restore_names(&mut self, losses: &Losses<'_>) -> Result<()> {
        if !losses.meets(&keys::all_names()) {
            return Ok(());
        }
        let (lost, directories) = self.lost_names(losses)?;
        let hints = self.hints(&lost)?;
        for name in &lost {
            let hint = hints.get(&name.id).copied().unwrap_or_default();
            let path = self.path_in(name.parent, &name.name);
            if self.is_there(&Space::Links.of(name.id, b""))? {
                self.batch.put(name.key().as_ref(), &Inode::pointer(name.id).encode())?;
                self.report(FileId::NONE, format!("{path}: the name is restored"));
            } else if let Some(inode) = self.guess(name, hint, directories.contains(&name.id))? {
                let Inode { uid, gid, .. } = inode;
                self.batch.put(name.key().as_ref(), &inode.encode())?;
                let what = format!("{path}: its attributes are lost; it belongs to {uid}:{gid}");
                self.report(
                    FileId::NONE,
                    format!("{what}, and others are kept out until you change its mode"),
                );
            } else {
                self.forget(name)?;
                let owner = hint.uid.map(|uid| format!(" (of user {uid})")).unwrap_or_default();
                self.report(FileId::NONE, format!("{path}: it is lost{owner}"));
            }
            self.write_some()?;
        }
        self.write()
    }

    /// Returns the names that the name index has and no record any more, and all directories that
    /// anything is in.
    fn lost_names(&self, losses: &Losses<'_>) -> Result<(Vec<LostName>, HashSet<FileId>)> {
        let (mut lost, mut directories) = (Vec::new(), HashSet::new());
        let range = Space::Names.range();
        let mut scan = self.namespace.tablet.table.scan(&range, Direction::Forward)?;
        while let Some(record) = scan.next()? {
            let Some((parent, name)) = keys::parse_name(record.key.name) else { continue };
            let found = LostName { id: FileId(record.key.hash), parent, name: name.to_vec() };
            directories.insert(parent);
            let key = found.key();
            // An entry that should have gone itself proves nothing.
            let is_stale = losses.stale.contains_key(&record.key.to_key());
            if losses.has(&key) && !is_stale && !self.is_there(&key)? {
                lost.push(found);
            }
        }
        Ok((lost, directories))
    }

    /// Returns the attributes of some files that indexes contain.
    fn hints(&self, lost: &[LostName]) -> Result<HashMap<FileId, Hint>> {
        let ids: BTreeSet<FileId> = lost.iter().map(|one| one.id).collect();
        let mut hints: HashMap<FileId, Hint> = HashMap::new();
        let configured = self.namespace.tablet.configured();
        for attribute in configured.ready.attributes.iter().copied() {
            let is_used = matches!(
                attribute,
                Attribute::Uid
                    | Attribute::Gid
                    | Attribute::Size
                    | Attribute::Mtime
                    | Attribute::Type
            );
            if !is_used || ids.is_empty() {
                continue;
            }
            let mut scan =
                self.namespace.tablet.table.scan(&attribute.all(), Direction::Forward)?;
            while let Some(record) = scan.next()? {
                let id = keys::entry_id(record.key.name).filter(|id| ids.contains(id));
                let Some(hint) = id.map(|id| hints.entry(id).or_default()) else { continue };
                let number = record.key.hash;
                match attribute {
                    Attribute::Uid => hint.uid = u32::try_from(number).ok(),
                    Attribute::Gid => hint.gid = u32::try_from(number).ok(),
                    Attribute::Size => hint.size = Some(number),
                    Attribute::Mtime => hint.mtime_ns = Some((number ^ 1 << 63) as i64),
                    _ => hint.file_type = u32::try_from(number << 12).ok(),
                }
            }
        }
        Ok(hints)
    }

    /// Returns the inode of a lost name as far as it is known; none if nothing shows its type.
    fn guess(&self, of: &LostName, hint: Hint, is_directory: bool) -> Result<Option<Inode>> {
        let id = of.id;
        let earlier = self.earlier(of);
        let has_contents = self.is_there(&Space::Contents.of(id, b""))?
            || self.namespace.contents.object_size(id).is_some()
            || !self.chunks_of(id)?.is_empty();
        let kind = match (is_directory, has_contents) {
            (true, _) => Some(file_type::DIRECTORY),
            (_, true) => Some(file_type::REGULAR),
            _ => earlier.as_ref().map(Inode::file_type).or(hint.file_type),
        };
        // No index contains the target of a link or the number of a device.
        let needs_more = [file_type::SYMLINK, file_type::CHARACTER, file_type::BLOCK];
        let Some(kind) = kind.filter(|kind| earlier.is_some() || !needs_more.contains(kind)) else {
            return Ok(None);
        };
        let mut inode = match earlier.filter(|earlier| earlier.file_type() == kind) {
            Some(earlier) => earlier,
            None => self.with_times(Inode { id, nlink: 1, ..Inode::default() }),
        };
        let permissions = if kind == file_type::DIRECTORY { 0o700 } else { 0o600 };
        inode.mode = kind | if kind == file_type::SYMLINK { 0o777 } else { permissions };
        // Without an index of owners, an earlier one may be another's.
        (inode.uid, inode.gid) = (hint.uid.unwrap_or(0), hint.gid.unwrap_or(0));
        inode.size = hint.size.unwrap_or(inode.size);
        inode.mtime_ns = hint.mtime_ns.unwrap_or(inode.mtime_ns);
        (inode.flags, inode.nlink, inode.blocks) = (0, 1, 0);
        if kind == file_type::REGULAR && inode.size > 0 && !has_contents {
            inode.flags = flag::ABSENT;
        }
        Ok(Some(inode))
    }

    /// Returns the inode of a name in the newest snapshot that has the name, if it is the same
    /// file.
    fn earlier(&self, of: &LostName) -> Option<Inode> {
        let all = self.namespace.all_snapshots();
        let pasts = all.iter().rev().filter_map(|one| one.past.as_ref());
        let mut found = pasts.filter_map(|past| past.lookup(of.parent, &of.name).ok());
        found.find(|inode| inode.id == of.id)
    }

    /// Removes the rest of a name whose type nothing shows.
    fn forget(&mut self, name: &LostName) -> Result<()> {
        self.batch.delete(keys::name_of(name.id, name.parent, &name.name).as_ref())?;
        let range = Space::Xattrs.range_of(name.id);
        let mut scan = self.namespace.tablet.table.scan(&range, Direction::Forward)?;
        while let Some(record) = scan.next()? {
            self.batch.delete(record.key)?;
        }
        Ok(())
    }

    /// Looks at all inodes for records that they refer to, and that were lost.
    fn look_at_inodes(&mut self, losses: &Losses<'_>) -> Result<()> {
        let spaces = [Space::Links, Space::Xattrs, Space::Contents, Space::Chunks];
        if !spaces.iter().any(|space| losses.meets(&space.range())) {
            return Ok(());
        }
        let mut without_inode: BTreeMap<FileId, Vec<String>> = BTreeMap::new();
        for range in [keys::all_names(), Space::Links.range()] {
            let mut scan = self.namespace.tablet.table.scan(&range, Direction::Forward)?;
            while let Some(record) = scan.next()? {
                let Ok(inode) = Inode::decode(record.value) else { continue };
                if !inode.has(flag::LINKED) {
                    self.look_at(losses, &record.key.to_key(), inode)?;
                } else if losses.has(&Space::Links.of(inode.id, b""))
                    && !self.is_there(&Space::Links.of(inode.id, b""))?
                {
                    let path = self.path_in(FileId(record.key.directory), record.key.name);
                    without_inode.entry(inode.id).or_default().push(path);
                }
                self.write_some()?;
            }
        }
        for (id, paths) in without_inode {
            self.restore_linked(id, &paths)?;
        }
        self.write()
    }

    /// Restores the inode of a file with several names, if anything shows its type.
    fn restore_linked(&mut self, id: FileId, paths: &[String]) -> Result<()> {
        let Some((parent, name)) = self.namespace.names(id)?.into_iter().next() else {
            return Ok(());
        };
        let name = [LostName { id, parent, name }];
        let hint = self.hints(&name)?.get(&id).copied().unwrap_or_default();
        let paths = paths.join(", ");
        match self.guess(&name[0], hint, false)? {
            Some(inode) => {
                let Inode { uid, gid, .. } = inode;
                self.batch.put(Space::Links.of(id, b"").as_ref(), &inode.encode())?;
                let what = format!("{paths}: its attributes are lost; it belongs to {uid}:{gid}");
                self.report(
                    FileId::NONE,
                    format!("{what}, and others are kept out until you change its mode"),
                );
            }
            None => self.report(FileId::NONE, format!("{paths}: it is lost")),
        }
        self.write_some()
    }

    fn look_at(&mut self, losses: &Losses<'_>, key: &Key, mut inode: Inode) -> Result<()> {
        let id = inode.id;
        let contents = Space::Contents.of(id, b"");
        let lost_contents =
            inode.has(flag::INLINE) && losses.has(&contents) && !self.is_there(&contents)?;
        let lost_xattrs = inode.has(flag::XATTRS) && losses.meets(&Space::Xattrs.range_of(id));
        let lost_chunks = inode.has(flag::OBJECT) && losses.meets(&Space::Chunks.range_of(id));
        if !lost_contents && !lost_xattrs && !lost_chunks {
            return Ok(());
        }
        let path = self.path_of(id);
        let same = self.same_in_snapshot(&inode);
        if let Some(past) = &same {
            for space in [Space::Contents, Space::Xattrs, Space::Chunks] {
                self.restore_from(losses, past, &space.range_of(id))?;
            }
            self.report(FileId::NONE, format!("{path}: lost records are restored from a snapshot"));
            return Ok(());
        }
        if lost_contents {
            self.report(FileId::NONE, format!("{path}: its contents are lost"));
        }
        if lost_chunks {
            self.mark_chunks(losses, &inode)?;
        }
        if lost_xattrs {
            self.report(
                FileId::NONE,
                format!("{path}: some of its extended attributes may be lost"),
            );
            let access = Space::Xattrs.of(id, acl::ACCESS.as_bytes());
            // The bits of the group are what an access list may grant at most.
            if !self.is_there(&access)? && inode.mode & 0o070 != 0 && !is_link(&inode) {
                inode.mode &= !0o070;
                self.batch.put(key.as_ref(), &inode.encode())?;
                let what = "its ACL may be lost, too: its group has no access";
                self.report(FileId::NONE, format!("{path}: {what} until you change its mode"));
            }
        }
        Ok(())
    }

    /// Returns a snapshot that has a file as it is now.
    fn same_in_snapshot(&self, inode: &Inode) -> Option<Past> {
        let all = self.namespace.all_snapshots();
        let mut pasts = all.iter().rev().filter_map(|one| one.past.as_ref());
        let is_same = |past: &&Past| {
            past.inode(inode.id).is_ok_and(|then| {
                (then.ctime_ns, then.mtime_ns, then.size)
                    == (inode.ctime_ns, inode.mtime_ns, inode.size)
            })
        };
        pasts.find(is_same).cloned()
    }

    /// Puts lost records of a file in place as a snapshot has them.
    fn restore_from(&mut self, losses: &Losses<'_>, past: &Past, range: &KeyRange) -> Result<()> {
        let mut scan = past.view().scan(range)?;
        while let Some(record) = scan.next()? {
            let key = record.key.to_key();
            if losses.has(&key) && !self.is_there(&key)? {
                self.batch.put(record.key, record.value)?;
            }
        }
        Ok(())
    }

    /// Marks chunks as lost whose records may be, so that nobody takes them for holes.
    fn mark_chunks(&mut self, losses: &Losses<'_>, inode: &Inode) -> Result<()> {
        let Some(store) = self.namespace.contents.chunks().cloned() else { return Ok(()) };
        let id = inode.id;
        let there: HashSet<u64> = self.chunks_of(id)?.into_iter().map(|(chunk, _)| chunk).collect();
        let found = self.chunks_of(id)?;
        let blocks: u64 = found
            .iter()
            .filter_map(|(_, one)| one.map(|one| chunks::blocks(one.used.into())))
            .sum();
        if blocks >= inode.blocks {
            return Ok(());
        }
        let count = inode.size.div_ceil(store.chunk_bytes);
        let path = self.path_of(id);
        let mut marked = 0u64;
        for chunk in (0..count.min(CHUNKS_MAX)).filter(|chunk| !there.contains(chunk)) {
            let key = ChunkId::new(id, chunk).key();
            if losses.has(&key) {
                let used = store.chunk_bytes.min(inode.size - chunk * store.chunk_bytes);
                self.batch.put(key.as_ref(), &Stored::lost(used as u32).encode())?;
                marked += 1;
                self.write_some()?;
            }
        }
        let bytes = store.chunk_bytes;
        let what = format!("{marked} parts of {bytes} bytes of its contents are lost");
        self.report(
            FileId::NONE,
            format!("{path}: {what}: reading them fails until they are written"),
        );
        if count > CHUNKS_MAX {
            self.report(FileId::NONE, format!("{path}: more of it may be lost, and read as zeros"));
        }
        Ok(())
    }
}

fn is_link(inode: &Inode) -> bool {
    inode.file_type() == file_type::SYMLINK
}
