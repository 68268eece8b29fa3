//! Finding what a query asks for: by the index that has the fewest candidates, or by going through
//! all records where no index helps.

use crate::acl;
use crate::error::Result;
use crate::inode::{Inode, flag};
use crate::keys::{self, FileId, ROOT, Space};
use crate::namespace::Namespace;
use crate::query::{Candidate, Expression, Source};
use canopy_model::{Acl, Credentials, Grant, Wanted};
use canopy_store::{Direction, Key, KeyRange, Snapshot};
use std::collections::HashMap;
use std::sync::Arc;

/// Looking a candidate up takes as long as going through so many records.
const LOOKUP_RECORDS: u64 = 30;

/// A record of a name takes about so many bytes in an SSTable, with its index entries.
const RECORD_BYTES: u64 = 60;

/// A file that a query asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its path below the directory that was searched.
    pub path: Vec<u8>,
    /// Its attributes.
    pub inode: Inode,
}

/// A directory on the way to a candidate.
#[derive(Clone)]
struct Directory {
    /// Its path below the directory that is searched, with a slash at its end.
    path: Arc<[u8]>,
    /// Whether who asks may see what is in it, and look at that.
    is_shown: bool,
}

struct Search<'a> {
    snapshot: Snapshot,
    expression: &'a Expression,
    who: &'a Credentials,
    /// Directories that were looked at; none for those that do not lie below the base.
    directories: HashMap<FileId, Option<Directory>>,
    needs_path: bool,
}

impl Namespace {
    /// Tells the files below a directory that an expression is true of, in no order, until `tell`
    /// returns false. Only what `who` could see by listing directories from `base` on is told.
    pub fn search(
        &self,
        base: FileId,
        expression: &Expression,
        who: &Credentials,
        mut tell: impl FnMut(Found) -> bool,
    ) -> Result<()> {
        if !expression.is_possible() {
            return Ok(());
        }
        self.flush_pending()?;
        let mut search = Search {
            snapshot: self.table.snapshot(),
            expression,
            who,
            directories: HashMap::new(),
            needs_path: expression.needs().path,
        };
        let shown = search.is_shown(&self.inode(base)?)?;
        let own = Directory { path: Arc::from(&b""[..]), is_shown: shown };
        search.directories.insert(base, Some(own));
        let Some(candidates) = expression.candidates(&self.configured().ready) else {
            return search.scan(&mut tell);
        };
        let limit = self.records_estimate() / LOOKUP_RECORDS + 1024;
        let mut failed = None;
        let (cost, sources) = candidates.cheapest(&mut |source| {
            let counted = search.count(source, limit);
            counted.unwrap_or_else(|error| {
                failed = Some(error);
                u64::MAX
            })
        });
        if let Some(error) = failed {
            return Err(error);
        }
        match cost < limit {
            true => search.look_up(&sources, &mut tell),
            false => search.scan(&mut tell),
        }
    }

    /// Returns about how many names there are.
    fn records_estimate(&self) -> u64 {
        let runs: u64 = self.table.manifest().state.runs.iter().map(|run| run.size_bytes()).sum();
        (runs + self.table.memtable_bytes() / 4) / RECORD_BYTES
    }
}

impl Search<'_> {
    /// Returns how many files a source has, up to a limit.
    fn count(&self, source: &Source, limit: u64) -> Result<u64> {
        let range = match source {
            Source::Files(ids) => return Ok((ids.end() - ids.start()).saturating_add(1)),
            Source::Index(_, range) => range,
        };
        let mut scan = self.snapshot.scan(range, Direction::Forward)?;
        let mut count = 0;
        while count < limit && scan.next()?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    /// Looks at the files that the sources have.
    fn look_up(&mut self, sources: &[&Source], tell: &mut impl FnMut(Found) -> bool) -> Result<()> {
        let mut ids = Vec::new();
        for source in sources {
            match source {
                Source::Files(range) => ids.extend(range.clone()),
                Source::Index(_, range) => {
                    let mut scan = self.snapshot.scan(range, Direction::Forward)?;
                    while let Some(record) = scan.next()? {
                        ids.extend(keys::entry_id(record.key.name));
                    }
                }
            }
        }
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            for (parent, name) in self.names(id)? {
                let value = self.snapshot.get(Key::named(parent, &name).as_ref())?;
                let Some(value) = value else { continue };
                if !self.judge(parent, &name, Inode::decode(&value)?, tell)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn names(&self, id: FileId) -> Result<Vec<(FileId, Vec<u8>)>> {
        let mut scan = self.snapshot.scan(&Space::Names.range_of(id), Direction::Forward)?;
        let mut names = Vec::new();
        while let Some(record) = scan.next()? {
            names.extend(keys::parse_name(record.key.name).map(|(id, name)| (id, name.to_vec())));
        }
        Ok(names)
    }

    /// Looks at all names.
    fn scan(&mut self, tell: &mut impl FnMut(Found) -> bool) -> Result<()> {
        let start = Key { directory: ROOT, ..Key::default() };
        let range = KeyRange { start, ..keys::all_names() };
        let mut scan = self.snapshot.scan(&range, Direction::Forward)?;
        while let Some(record) = scan.next()? {
            let inode = Inode::decode(record.value)?;
            if !self.judge(record.key.directory, record.key.name, inode, tell)? {
                break;
            }
        }
        Ok(())
    }

    /// Tells a file if it is asked for; returns whether to go on.
    fn judge(
        &mut self,
        parent: FileId,
        name: &[u8],
        mut inode: Inode,
        tell: &mut impl FnMut(Found) -> bool,
    ) -> Result<bool> {
        if inode.has(flag::LINKED) {
            let linked = self.snapshot.get(Space::Links.of(inode.id, b"").as_ref())?;
            let Some(linked) = linked else { return Ok(true) };
            inode = Inode::decode(&linked)?;
        }
        // What costs little comes first, unless it needs the path.
        if !self.needs_path && !self.matches(&inode, name, b"") {
            return Ok(true);
        }
        let Some(directory) = self.directory(parent)? else { return Ok(true) };
        if !directory.is_shown {
            return Ok(true);
        }
        let path = [&directory.path, name].concat();
        if self.needs_path && !self.matches(&inode, name, &path) {
            return Ok(true);
        }
        Ok(tell(Found { path, inode }))
    }

    fn matches(&self, inode: &Inode, name: &[u8], path: &[u8]) -> bool {
        let xattr = |xattr: &[u8]| self.xattr(inode, xattr);
        self.expression.matches(&Candidate { inode, name, path, xattr: &xattr })
    }

    /// Returns the value of an extended attribute that the kernel would show to who asks.
    fn xattr(&self, inode: &Inode, name: &[u8]) -> Option<Vec<u8>> {
        if !inode.has(flag::XATTRS) {
            return None;
        }
        let is_shown = match name {
            _ if self.who.is_root() => true,
            _ if name.starts_with(b"trusted.") => false,
            _ if name.starts_with(b"user.") => self.passes(inode, Wanted::READ).ok()?,
            _ => true,
        };
        let key = Space::Xattrs.of(inode.id, name);
        is_shown.then(|| self.snapshot.get(key.as_ref()).ok().flatten()).flatten()
    }

    /// Returns whether who asks passes the kernel's check of a file.
    fn passes(&self, inode: &Inode, wanted: Wanted) -> Result<bool> {
        if self.who.is_root() {
            return Ok(true);
        }
        let acl = match inode.has(flag::XATTRS) {
            true => {
                self.snapshot.get(Space::Xattrs.of(inode.id, acl::ACCESS.as_bytes()).as_ref())?
            }
            false => None,
        };
        let acl = acl.and_then(|acl| Acl::decode(&acl).ok());
        let grant = Grant::new(inode.mode, inode.uid, inode.gid, acl.as_ref(), wanted);
        Ok(grant.passes(self.who))
    }

    /// Returns whether who asks may list a directory and look at what is in it.
    fn is_shown(&self, inode: &Inode) -> Result<bool> {
        Ok(self.passes(inode, Wanted::READ)? && self.passes(inode, Wanted::SEARCH)?)
    }

    /// Returns a directory, if it is the base or lies below it.
    fn directory(&mut self, id: FileId) -> Result<Option<Directory>> {
        let (mut way, mut at) = (Vec::new(), id);
        let mut known = loop {
            if let Some(known) = self.directories.get(&at) {
                break known.clone();
            }
            let place = if at == ROOT { None } else { self.names(at)?.into_iter().next() };
            let Some((parent, name)) = place else { break None };
            way.push((at, parent, name));
            at = parent;
        };
        for (id, parent, name) in way.into_iter().rev() {
            known = match known {
                None => None,
                Some(above) => {
                    let value = self.snapshot.get(Key::named(parent, &name).as_ref())?;
                    let inode = value.map(|value| Inode::decode(&value)).transpose()?;
                    match inode {
                        None => None,
                        Some(inode) => Some(Directory {
                            path: [&above.path, name.as_slice(), b"/"].concat().into(),
                            is_shown: above.is_shown && self.is_shown(&inode)?,
                        }),
                    }
                }
            };
            self.directories.insert(id, known.clone());
        }
        Ok(known)
    }
}
