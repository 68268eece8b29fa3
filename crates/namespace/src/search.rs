//! Finding what a query asks for: by the files that all indexes have that it asks, or by going
//! through all records where these do not help.
//!
//! The planner reads the candidates of each index, up to the number at which a walk through all
//! records is faster. So it keeps no statistics, which could be wrong. It looks only at files that
//! are candidates of all indexes: reading an index entry takes a hundredth of looking at its file.

pub(crate) mod candidates;
pub(crate) mod cursor;
mod explain;
pub(crate) mod part;
pub(crate) mod sight;

use crate::error::Result;
use crate::namespace::Namespace;
use crate::records::access::passes;
use crate::records::circle::Circle;
use crate::records::inode::{Inode, flag};
use crate::records::keys::{FileId, ROOT};
use crate::records::view::ReadView;
use crate::snapshot::present::Present;
use candidates::{Candidates, Source};
use canopy_model::{Credentials, Wanted};
use canopy_query::{Candidate, Expression, Field};
use cursor::Cursor;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sight::Sight;
use std::collections::HashMap;

/// Looking a candidate up takes as long as going through so many records.
const LOOKUP_RECORDS: u64 = 150;

/// One in so many names may have an entry in a part of an index for that to be read.
const ENTRIES_OF_ALL: u64 = 4;

/// Bytes of the longest path below the directory that is searched to which a link can lead: with
/// `../` for each of 16 queries before it, what a link says has at most 4,095 bytes.
const PATH_BYTES_MAX: usize = 4095 - 16 * "../".len();

/// Files whose inodes lie apart from their names, which are looked at together.
const APART: usize = 1024;

/// Memory that a directory takes besides its name: its state, and where that is.
const DIRECTORY_BYTES: usize = size_of::<Directory>() + 2 * size_of::<(FileId, Option<usize>)>();

/// A file that a query asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Its path below the directory that was searched.
    pub path: Vec<u8>,
    /// Whether the path is too long for a link: it is the name alone then.
    pub is_beyond: bool,
    /// Its attributes.
    pub inode: Inode,
}

/// An inode with one of its names, as conditions are tested on it.
#[derive(Clone, Copy)]
pub struct NamedInode<'a> {
    /// The inode.
    pub inode: &'a Inode,
    /// Its name, if [`canopy_query::Needs::name`] asks for it.
    pub name: &'a [u8],
    /// Its path from the directory that is searched, without a '/' in front, if
    /// [`canopy_query::Needs::path`] asks for it.
    pub path: &'a [u8],
    /// Returns the value of an extended attribute, if there is one of this name.
    pub xattr: &'a dyn Fn(&[u8]) -> Option<Vec<u8>>,
}

impl Candidate for NamedInode<'_> {
    fn number(&self, field: Field) -> i128 {
        let inode = self.inode;
        match field {
            Field::Size => inode.size.into(),
            Field::Blocks => inode.blocks.into(),
            Field::Mode => inode.mode.into(),
            Field::Uid => inode.uid.into(),
            Field::Gid => inode.gid.into(),
            Field::Links => inode.nlink.into(),
            Field::Project => inode.project.into(),
            Field::Inode => inode.id.0.into(),
            Field::Mtime => inode.mtime_ns.into(),
            Field::Ctime => inode.ctime_ns.into(),
            Field::Atime => inode.atime_ns.into(),
            Field::Btime => inode.btime_ns.into(),
        }
    }

    fn mode(&self) -> u32 {
        self.inode.mode
    }

    fn name(&self) -> &[u8] {
        self.name
    }

    fn path(&self) -> &[u8] {
        self.path
    }

    fn target(&self) -> &[u8] {
        &self.inode.target
    }

    fn xattr(&self, name: &[u8]) -> Option<Vec<u8>> {
        (self.xattr)(name)
    }
}

/// Is called for each record that a search looks at, with the memory that the search takes, about,
/// and may take its time.
pub type Pace<'a> = &'a dyn Fn(usize);

/// A directory on the way to a candidate. Its path is not kept: of deep trees, all paths together
/// take the square of the depth.
struct Directory {
    /// The one above it, in the order in which they were looked at; none of the base.
    above: Option<usize>,
    name: Box<[u8]>,
    /// Bytes of its path below the base, with a slash at its end.
    path_bytes: usize,
    /// Whether who asks may see what is in it, and look at that.
    is_shown: bool,
}

/// The user for whom a search is, and the permissions that count.
pub(crate) struct Viewer<'a> {
    who: &'a Credentials,
    /// The present permissions, which hide entries of a snapshot, too.
    present: Option<Present<'a>>,
}

impl<'a> Viewer<'a> {
    /// Returns a user who searches what there is now.
    fn of_now(who: &'a Credentials) -> Self {
        Viewer { who, present: None }
    }

    /// Returns a user who searches a snapshot.
    pub(crate) fn of_then(present: Present<'a>) -> Self {
        Viewer { who: present.who, present: Some(present) }
    }
}

struct Search<'a, S> {
    sight: &'a S,
    expression: &'a Expression,
    who: &'a Credentials,
    /// The present permissions, which hide directories of the past; none if the present is
    /// searched.
    present: Option<Present<'a>>,
    /// Directories below the base that were looked at, and the base.
    directories: Vec<Directory>,
    /// Where they are; none for those that do not lie below the base.
    known: HashMap<FileId, Option<usize>>,
    /// Memory that these take, about.
    bytes: usize,
    needs_path: bool,
    pace: Pace<'a>,
    /// Longest path that is reported; of files with longer paths, only the name is.
    path_bytes_max: usize,
    /// Names that are still looked at, before the search ends with a cursor.
    left: u64,
}

impl Namespace {
    /// Calls `tell` with the files below a directory that match an expression, in no order, until
    /// it returns false. Only files that `who` could see by listing directories from `base` on are
    /// found.
    ///
    /// # Errors
    ///
    /// Fails as the table does, with `NOENT` if the base is gone, and with `Corrupt` if a record is
    /// damaged.
    pub fn search(
        &self,
        base: FileId,
        expression: &Expression,
        who: &Credentials,
        tell: impl FnMut(Found) -> bool,
    ) -> Result<()> {
        self.search_paced(base, expression, who, &|_| (), tell)
    }

    /// Like [`Namespace::search`], but calls `pace` for each record that it looks at, so that others
    /// can have their turn.
    ///
    /// # Errors
    ///
    /// Fails as the table does, with `NOENT` if the base is gone, and with `Corrupt` if a record is
    /// damaged.
    pub fn search_paced(
        &self,
        base: FileId,
        expression: &Expression,
        who: &Credentials,
        pace: Pace<'_>,
        tell: impl FnMut(Found) -> bool,
    ) -> Result<()> {
        if !expression.is_possible() {
            return Ok(());
        }
        self.view()?.search_with(base, expression, Viewer::of_now(who), pace, tell)
    }
}

impl ReadView {
    /// Does the same as [`Namespace::search`].
    ///
    /// # Errors
    ///
    /// Fails as the table does, with `NOENT` if the base is gone, and with `Corrupt` if a record is
    /// damaged.
    pub fn search(
        &self,
        base: FileId,
        expression: &Expression,
        who: &Credentials,
        tell: impl FnMut(Found) -> bool,
    ) -> Result<()> {
        self.search_with(base, expression, Viewer::of_now(who), &|_| (), tell)
    }

    /// Like [`Namespace::search_paced`], but without entries that the present permissions of
    /// directories hide.
    pub(crate) fn search_with(
        &self,
        base: FileId,
        expression: &Expression,
        viewer: Viewer<'_>,
        pace: Pace<'_>,
        mut tell: impl FnMut(Found) -> bool,
    ) -> Result<()> {
        let mut search = Search::new(self, base, expression, viewer, pace)?;
        search.path_bytes_max = PATH_BYTES_MAX;
        search.run(None, &mut tell).map(drop)
    }

    /// Returns how many candidates a search looks up by indexes; none if it looks at every name.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn count_candidates(
        &self,
        base: FileId,
        expression: &Expression,
        pace: Pace<'_>,
    ) -> Result<Option<usize>> {
        let who = Credentials::new(0, []);
        let search = Search::new(self, base, expression, Viewer::of_now(&who), pace)?;
        Ok(search.plan(false)?.map(|ids| ids.len()))
    }

    /// Like `search` for a user who may see everything, with all paths, if an index helps. Returns
    /// whether one does; if not, finds nothing.
    ///
    /// # Errors
    ///
    /// Fails as the table does, with `NOENT` if the base is gone, and with `Corrupt` if a record is
    /// damaged.
    pub fn search_by_index(
        &self,
        base: FileId,
        expression: &Expression,
        mut tell: impl FnMut(Found) -> bool,
    ) -> Result<bool> {
        let who = Credentials::new(0, []);
        let mut search = Search::new(self, base, expression, Viewer::of_now(&who), &|_| ())?;
        let Some(ids) = search.plan(false)? else { return Ok(false) };
        search.look_up(&ids, None, &mut tell)?;
        Ok(true)
    }
}

impl<'a, S: Sight> Search<'a, S> {
    fn new(
        sight: &'a S,
        base: FileId,
        expression: &'a Expression,
        viewer: Viewer<'a>,
        pace: Pace<'a>,
    ) -> Result<Self> {
        let mut search = Search {
            sight,
            expression,
            who: viewer.who,
            present: viewer.present,
            directories: Vec::new(),
            known: HashMap::from([(base, Some(0))]),
            bytes: 0,
            needs_path: expression.needs().path,
            pace,
            path_bytes_max: usize::MAX,
            left: u64::MAX,
        };
        let is_shown = search.is_shown(&sight.directory(base)?.ok_or(Errno::NOENT)?)?;
        search.directories.push(Directory {
            above: None,
            name: Box::default(),
            path_bytes: 0,
            is_shown,
        });
        Ok(search)
    }

    /// Calls `tell` with all that is found behind a cursor, until it returns false. Returns where to go
    /// on, unless all was looked at.
    fn run(
        &mut self,
        after: Option<&Cursor>,
        tell: &mut impl FnMut(Found) -> bool,
    ) -> Result<Option<Cursor>> {
        let planned = match after {
            None => self.plan(false)?,
            Some(Cursor::Candidate(..)) => self.plan(true)?,
            Some(Cursor::Name(..) | Cursor::Apart(..)) => None,
        };
        let Some(ids) = planned else { return self.scan(after, tell) };
        let after = match after {
            Some(Cursor::Candidate(id, name)) => Some((*id, name.as_ref())),
            _ => None,
        };
        let stopped = self.look_up(&ids, after, tell)?;
        Ok(stopped.map(|(id, name)| Cursor::Candidate(id, name)))
    }

    /// Returns the ids of all candidates, sorted; none if going through all records is as fast. A
    /// search that goes on keeps to its plan.
    fn plan(&self, goes_on: bool) -> Result<Option<Vec<FileId>>> {
        if !self.expression.is_possible() {
            return Ok(Some(Vec::new()));
        }
        let Some(candidates) = Candidates::of(self.expression, self.sight.ready()) else {
            return Ok(None);
        };
        let names = self.sight.names_estimate();
        let most = if goes_on { u64::MAX } else { names / ENTRIES_OF_ALL + 1024 };
        let entries_max = most.min(self.sight.candidates_max());
        let ids = candidates.files(&mut |source| self.read(source, entries_max))?;
        let ids = ids.filter(|ids| goes_on || (ids.len() as u64) < names / LOOKUP_RECORDS + 1024);
        let Some(mut ids) = ids else { return Ok(None) };
        let count = ids.len();
        self.sight.add_apart(&mut ids)?;
        if ids.len() > count {
            ids.sort_unstable();
            ids.dedup();
        }
        Ok(Some(ids))
    }

    /// Returns the files that a source has, if it has not more than so many.
    fn read(&self, source: &Source, most: u64) -> Result<Option<Vec<FileId>>> {
        let range = match source {
            Source::Files(ids) => {
                let (first, last) = (ids.start().0, ids.end().0);
                let count = last.saturating_sub(first).saturating_add(1);
                return Ok((count <= most).then(|| (first..=last).map(FileId).collect()));
            }
            Source::Index(_, range) => range,
        };
        let mut ids = Vec::new();
        let mut is_much = false;
        self.sight.entries(range, &mut |id| {
            (self.pace)(self.bytes);
            is_much = ids.len() as u64 >= most;
            ids.push(id);
            !is_much
        })?;
        Ok((!is_much).then_some(ids))
    }

    /// Looks at files behind one, or behind a name of it. Returns the file, and the name of it, if the
    /// search stops there.
    fn look_up(
        &mut self,
        ids: &[FileId],
        after: Option<(FileId, Option<&(FileId, Vec<u8>)>)>,
        tell: &mut impl FnMut(Found) -> bool,
    ) -> Result<Option<(FileId, Option<(FileId, Vec<u8>)>)>> {
        let begin = match after {
            Some((id, None)) => ids.partition_point(|one| *one <= id),
            Some((id, Some(_))) => ids.partition_point(|one| *one < id),
            None => 0,
        };
        for id in &ids[begin..] {
            (self.pace)(self.bytes);
            let seen = after.filter(|(of, _)| of == id).and_then(|(_, name)| name);
            let seen = seen.map(|(parent, name)| (*parent, &name[..]));
            let mut last = None;
            let sight = self.sight;
            let goes_on = sight.each_name_of(*id, &mut |parent, name, inode| {
                if seen.is_some_and(|seen| (parent, name) <= seen) {
                    return Ok(true);
                }
                let goes_on = self.judge(parent, name, inode, tell)?;
                if !goes_on {
                    last = Some((parent, name.to_vec()));
                }
                Ok(goes_on)
            })?;
            if !goes_on {
                return Ok(Some((*id, last)));
            }
            self.left = self.left.saturating_sub(1);
            if self.left == 0 {
                return Ok(Some((*id, None)));
            }
        }
        Ok(None)
    }

    /// Looks at all names behind a cursor.
    fn scan(
        &mut self,
        after: Option<&Cursor>,
        tell: &mut impl FnMut(Found) -> bool,
    ) -> Result<Option<Cursor>> {
        let mut stopped = None;
        let sight = self.sight;
        if !matches!(after, Some(Cursor::Apart(..))) {
            sight.each_name(after, &mut |parent, name, inode| {
                (self.pace)(self.bytes);
                self.left = self.left.saturating_sub(1);
                let goes_on = self.judge(parent, name, inode, tell)? && self.left > 0;
                if !goes_on {
                    stopped = Some(Cursor::Name(parent, name.to_vec()));
                }
                Ok(goes_on)
            })?;
        }
        if stopped.is_some() {
            return Ok(stopped);
        }
        let mut after = match after {
            Some(Cursor::Apart(id, name)) => (*id, name.as_ref()),
            _ => (FileId::NONE, None),
        };
        loop {
            // The one in front whose names were not all looked at, too.
            let from = FileId(after.0.0 - u64::from(after.1.is_some()));
            let ids = sight.files_apart(from, APART)?;
            if let Some((id, name)) = self.look_up(&ids, Some(after), tell)? {
                return Ok(Some(Cursor::Apart(id, name)));
            }
            match ids.last() {
                Some(last) if ids.len() == APART => after = (*last, None),
                _ => return Ok(None),
            }
        }
    }

    /// Calls `tell` with a file if it matches; returns whether to go on.
    fn judge(
        &mut self,
        parent: FileId,
        name: &[u8],
        inode: Inode,
        tell: &mut impl FnMut(Found) -> bool,
    ) -> Result<bool> {
        // Cheap tests come first, unless they need the path.
        if !self.needs_path && !self.matches(&inode, name, b"") {
            return Ok(true);
        }
        let Some(at) = self.directory(parent)? else { return Ok(true) };
        if !self.directories[at].is_shown {
            return Ok(true);
        }
        let is_beyond = self.directories[at].path_bytes + name.len() > self.path_bytes_max;
        let path = match is_beyond && !self.needs_path {
            true => name.to_vec(),
            false => self.path(at, name),
        };
        if self.needs_path && !self.matches(&inode, name, &path) {
            return Ok(true);
        }
        let path = if is_beyond { name.to_vec() } else { path };
        Ok(tell(Found { path, is_beyond, inode }))
    }

    fn matches(&self, inode: &Inode, name: &[u8], path: &[u8]) -> bool {
        let xattr = |xattr: &[u8]| self.xattr(inode, xattr);
        self.expression.matches(&NamedInode { inode, name, path, xattr: &xattr })
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
        is_shown.then(|| self.sight.value(inode.id, name).ok().flatten()).flatten()
    }

    /// Returns whether who asks passes the kernel's check of a file.
    fn passes(&self, inode: &Inode, wanted: Wanted) -> Result<bool> {
        passes(inode, self.who, wanted, |id, name| self.sight.value(id, name))
    }

    /// Returns whether who asks may list a directory and look at what is in it.
    fn is_shown(&mut self, inode: &Inode) -> Result<bool> {
        for wanted in [Wanted::READ, Wanted::SEARCH] {
            let is_hidden = match &mut self.present {
                Some(present) => !present.lets(inode.id, wanted)?,
                None => false,
            };
            if is_hidden || !self.passes(inode, wanted)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the path of a name in a directory that was looked at.
    fn path(&self, directory: usize, name: &[u8]) -> Vec<u8> {
        let mut path = vec![b'/'; self.directories[directory].path_bytes + name.len()];
        let mut end = path.len() - name.len();
        path[end..].copy_from_slice(name);
        let mut at = directory;
        while let Directory { above: Some(above), name, .. } = &self.directories[at] {
            // Before the slash.
            let start = end - 1 - name.len();
            path[start..end - 1].copy_from_slice(name);
            (at, end) = (*above, start);
        }
        path
    }

    /// Returns where a directory is among those that were looked at, if it is the base or lies below
    /// it.
    fn directory(&mut self, id: FileId) -> Result<Option<usize>> {
        let (mut way, mut at, mut circle) = (Vec::new(), id, Circle::at(id));
        let mut known = loop {
            if let Some(known) = self.known.get(&at) {
                break *known;
            }
            let place = if at == ROOT { None } else { self.sight.above(at)? };
            let Some((parent, name)) = place else { break None };
            if circle.is_closed_by(parent) {
                break None;
            }
            way.push((at, parent, name));
            at = parent;
        };
        for (id, parent, name) in way.into_iter().rev() {
            self.bytes += DIRECTORY_BYTES + name.len();
            if let Some(above) = known {
                known = match self.sight.named(id, parent, &name)? {
                    None => None,
                    Some(inode) => {
                        let Directory { path_bytes, is_shown, .. } = self.directories[above];
                        let directory = Directory {
                            above: Some(above),
                            path_bytes: path_bytes + name.len() + 1,
                            name: name.into(),
                            is_shown: is_shown && self.is_shown(&inode)?,
                        };
                        self.directories.push(directory);
                        Some(self.directories.len() - 1)
                    }
                };
            }
            self.known.insert(id, known);
        }
        Ok(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RenameMode::{Exchange, Replace};
    use crate::contents::Contents;
    use crate::namespace::{create_namespace, system_clock};
    use crate::records::change::New;
    use crate::records::inode::file_type;
    use crate::records::keys::EntryName;
    use crate::settings::Settings;
    use canopy_model::Ownership;
    use canopy_query::{Component, Context, parse};
    use canopy_store::Environment;
    use canopy_store::storage::LocalStorage;
    use jiff::tz::TimeZone;
    use std::path::Path;
    use std::sync::Arc;

    /// Makes a namespace with an index of types.
    fn namespace(directory: &Path) -> Namespace {
        let storage = Arc::new(LocalStorage::new(directory).unwrap());
        let environment = Environment::system(storage);
        let clock = system_clock();
        create_namespace(&environment, &Settings::default(), Ownership::ROOT, &clock).unwrap();
        let contents = Contents::new(&directory.join("contents")).unwrap();
        let namespace = Namespace::open(&environment, contents, clock).unwrap();
        namespace.set_indexes(&["type"]).unwrap();
        namespace.build_indexes(|| true).unwrap();
        namespace
    }

    /// Returns what an index finds of regular files: names with ids, sorted.
    fn files(view: &ReadView) -> Vec<(String, FileId)> {
        let mut found = Vec::new();
        let by_index = view.search_by_index(ROOT, &expression(b"[type=f]"), |one| {
            found.push((String::from_utf8(one.path).unwrap(), one.inode.id));
            true
        });
        assert!(by_index.unwrap());
        found.sort();
        found
    }

    /// Returns what the records say, likewise.
    fn listed(view: &ReadView) -> Vec<(String, FileId)> {
        let mut found = Vec::new();
        let told = view.list(ROOT, None, |name, inode| {
            found.push((String::from_utf8(name.to_vec()).unwrap(), inode.id));
            true
        });
        told.unwrap();
        found.sort();
        found
    }

    fn expression(query: &[u8]) -> Expression {
        let nobody = |_: &str| None;
        let context = Context { now_ns: 0, zone: TimeZone::UTC, user: &nobody, group: &nobody };
        match parse(query, &context) {
            Ok(Some(Component::Search(expression))) => expression,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn deep_trees_take_no_more_than_their_names() {
        let directory = tempfile::tempdir().unwrap();
        let namespace = namespace(directory.path());
        let new = New { mode: file_type::DIRECTORY | 0o755, ..New::default() };
        let (name, depth) = ("x".repeat(255), 400);
        let mut at = ROOT;
        for _ in 0..depth {
            at = namespace.create(at, name.as_bytes(), &new, false).unwrap().id;
        }
        let directories = expression(b"[type=d]");
        let view = namespace.view().unwrap();
        let mut all = Vec::new();
        let by_index = view.search_by_index(ROOT, &directories, |one| {
            all.push(one.path);
            true
        });
        assert!(by_index.unwrap());
        all.sort_by_key(Vec::len);
        let paths = (1..=depth).map(|depth| vec![name.as_str(); depth].join("/").into_bytes());
        assert!(all.iter().eq(&Vec::from_iter(paths)));
        // Links lead no further than so many bytes.
        for query in [&b"[type=d]"[..], b"[path~x*]"] {
            let (mut found, mut beyond) = (0, 0);
            let root = Credentials::new(0, [0]);
            let searched = namespace.search(ROOT, &expression(query), &root, |one| {
                assert!(one.path.len() <= PATH_BYTES_MAX);
                assert!(!one.is_beyond || one.path == name.as_bytes());
                *(if one.is_beyond { &mut beyond } else { &mut found }) += 1;
                true
            });
            searched.unwrap();
            assert_eq!((found, beyond), (15, depth - 15));
        }
    }

    #[test]
    fn files_are_found_where_they_are_now_and_where_they_were_then() {
        let directory = tempfile::tempdir().unwrap();
        let namespace = namespace(directory.path());
        let new = New { mode: file_type::REGULAR | 0o644, ..New::default() };
        let create = |name: &str| namespace.create(ROOT, name.as_bytes(), &new, false).unwrap().id;
        let name = |name: &'static str| EntryName::new(ROOT, name.as_bytes());
        let (_, second) = (create("first"), create("second"));
        let mut views = Vec::new();
        let mut keep = || {
            let view = namespace.view().unwrap();
            let now = listed(&view);
            assert_eq!(files(&view), now);
            views.push((view, now));
        };
        keep();
        // Another file where one was seen last, and the other one elsewhere.
        namespace.rename(name("first"), name("moved"), Replace).unwrap();
        create("first");
        keep();
        namespace.rename(name("first"), name("moved"), Exchange).unwrap();
        keep();
        namespace.rename(name("first"), name("second"), Replace).unwrap();
        keep();
        create("first");
        let linked = create("linked");
        namespace.link(linked, ROOT, b"link").unwrap();
        keep();
        namespace.unlink(ROOT, b"linked").unwrap();
        create("linked");
        keep();
        for (view, then) in &views {
            assert_eq!(files(view), *then);
        }
        // The test tests something: `second` was seen, and is not there any more.
        assert!(namespace.tablet.places.get(second).is_some());
        assert_eq!(views.last().unwrap().1.len(), 5);
    }
}
