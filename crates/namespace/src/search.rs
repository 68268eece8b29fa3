//! Finding what a query asks for: by the files that all indexes have that it asks, or by going
//! through all records where these do not help.

use crate::error::Result;
use crate::inode::{Inode, flag};
use crate::keys::{self, FileId, ROOT, Space};
use crate::namespace::Namespace;
use crate::present::{Present, passes};
use crate::query::{Candidate, Expression, Source};
use crate::view::View;
use canopy_model::{Credentials, Wanted};
use canopy_store::{Key, KeyRange};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;

/// Looking a candidate up takes as long as going through so many records.
const LOOKUP_RECORDS: u64 = 150;

/// One in so many names may have an entry in a part of an index for that to be read.
const ENTRIES_OF_ALL: u64 = 4;

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
    view: &'a View,
    expression: &'a Expression,
    who: &'a Credentials,
    /// What hides directories of the past; none if the present is searched.
    present: Option<Present<'a>>,
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
        tell: impl FnMut(Found) -> bool,
    ) -> Result<()> {
        if !expression.is_possible() {
            return Ok(());
        }
        self.view()?.search(base, expression, who, tell)
    }
}

impl View {
    /// Does the same as [`Namespace::search`].
    pub fn search(
        &self,
        base: FileId,
        expression: &Expression,
        who: &Credentials,
        tell: impl FnMut(Found) -> bool,
    ) -> Result<()> {
        self.search_with(base, expression, who, None, tell)
    }

    /// Does the same, but for what the present permissions of directories hide.
    pub(crate) fn search_with(
        &self,
        base: FileId,
        expression: &Expression,
        who: &Credentials,
        present: Option<Present<'_>>,
        mut tell: impl FnMut(Found) -> bool,
    ) -> Result<()> {
        let mut search = Search::new(self, base, expression, who, present)?;
        match search.plan()? {
            Some(ids) => search.look_up(&ids, &mut tell),
            None => search.scan(&mut tell),
        }
    }

    /// Does the same for who may see everything, if an index helps. Returns whether one does; if
    /// not, nothing is told.
    pub fn search_by_index(
        &self,
        base: FileId,
        expression: &Expression,
        mut tell: impl FnMut(Found) -> bool,
    ) -> Result<bool> {
        let who = Credentials::new(0, []);
        let mut search = Search::new(self, base, expression, &who, None)?;
        let Some(ids) = search.plan()? else { return Ok(false) };
        search.look_up(&ids, &mut tell)?;
        Ok(true)
    }
}

impl<'a> Search<'a> {
    fn new(
        view: &'a View,
        base: FileId,
        expression: &'a Expression,
        who: &'a Credentials,
        present: Option<Present<'a>>,
    ) -> Result<Self> {
        let mut search = Search {
            view,
            expression,
            who,
            present,
            directories: HashMap::new(),
            needs_path: expression.needs().path,
        };
        let shown = search.is_shown(&view.inode(base)?.ok_or(Errno::NOENT)?)?;
        let own = Directory { path: Arc::from(&b""[..]), is_shown: shown };
        search.directories.insert(base, Some(own));
        Ok(search)
    }

    /// Returns the ids of all candidates, sorted; none if going through all records is as fast.
    fn plan(&self) -> Result<Option<Vec<FileId>>> {
        if !self.expression.is_possible() {
            return Ok(Some(Vec::new()));
        }
        let Some(candidates) = self.expression.candidates(&self.view.configured.ready) else {
            return Ok(None);
        };
        let names = self.view.names_estimate;
        let entries_max = names / ENTRIES_OF_ALL + 1024;
        let ids = candidates.files(&mut |source| self.read(source, entries_max))?;
        Ok(ids.filter(|ids| (ids.len() as u64) < names / LOOKUP_RECORDS + 1024))
    }

    /// Returns the files that a source has, if it has not more than so many.
    fn read(&self, source: &Source, most: u64) -> Result<Option<Vec<FileId>>> {
        let range = match source {
            Source::Files(ids) => {
                let count = (ids.end().saturating_sub(*ids.start())).saturating_add(1);
                return Ok((count <= most).then(|| ids.clone().collect()));
            }
            Source::Index(_, range) => range,
        };
        let mut scan = self.view.scan(range)?;
        let mut ids = Vec::new();
        while let Some(record) = scan.next()? {
            if ids.len() as u64 >= most {
                return Ok(None);
            }
            ids.extend(keys::entry_id(record.key.name));
        }
        Ok(Some(ids))
    }

    /// Looks at files.
    fn look_up(&mut self, ids: &[FileId], tell: &mut impl FnMut(Found) -> bool) -> Result<()> {
        for id in ids {
            let view = self.view;
            if !view.records(*id, |parent, name, inode| self.judge(parent, name, inode, tell))? {
                break;
            }
        }
        Ok(())
    }

    /// Looks at all names.
    fn scan(&mut self, tell: &mut impl FnMut(Found) -> bool) -> Result<()> {
        let start = Key { directory: ROOT, ..Key::default() };
        let range = KeyRange { start, ..keys::all_names() };
        let mut scan = self.view.scan(&range)?;
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
        inode: Inode,
        tell: &mut impl FnMut(Found) -> bool,
    ) -> Result<bool> {
        let Some(inode) = self.view.behind(inode)? else { return Ok(true) };
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
        is_shown.then(|| self.view.get(key.as_ref()).ok().flatten()).flatten()
    }

    /// Returns whether who asks passes the kernel's check of a file.
    fn passes(&self, inode: &Inode, wanted: Wanted) -> Result<bool> {
        passes(inode, self.who, wanted, |id, name| self.view.xattr(id, name))
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

    /// Returns a directory, if it is the base or lies below it.
    fn directory(&mut self, id: FileId) -> Result<Option<Directory>> {
        let (mut way, mut at) = (Vec::new(), id);
        let mut known = loop {
            if let Some(known) = self.directories.get(&at) {
                break known.clone();
            }
            let place = if at == ROOT { None } else { self.view.names(at)?.into_iter().next() };
            let Some((parent, name)) = place else { break None };
            way.push((at, parent, name));
            at = parent;
        };
        for (id, parent, name) in way.into_iter().rev() {
            known = match known {
                None => None,
                Some(above) => {
                    let value = self.view.get(Key::named(parent, &name).as_ref())?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RenameMode::{Exchange, Replace};
    use crate::change::New;
    use crate::contents::Contents;
    use crate::inode::file_type;
    use crate::namespace::{create_namespace, system_clock};
    use crate::query::{Component, Context, parse};
    use crate::settings::Settings;
    use canopy_store::Environment;
    use canopy_store::storage::LocalStorage;
    use jiff::tz::TimeZone;

    /// Returns what an index finds of regular files: names with ids, sorted.
    fn files(view: &View) -> Vec<(String, FileId)> {
        let nobody = |_: &str| None;
        let context = Context { now_ns: 0, zone: TimeZone::UTC, user: &nobody, group: &nobody };
        let query = parse(b"[type=f]", &context).unwrap();
        let Some(Component::Search(expression)) = query else { panic!("{query:?}") };
        let mut found = Vec::new();
        let by_index = view.search_by_index(ROOT, &expression, |one| {
            found.push((String::from_utf8(one.path).unwrap(), one.inode.id));
            true
        });
        assert!(by_index.unwrap());
        found.sort();
        found
    }

    /// Returns what the records say, likewise.
    fn listed(view: &View) -> Vec<(String, FileId)> {
        let mut found = Vec::new();
        let told = view.list(ROOT, None, |name, inode| {
            found.push((String::from_utf8(name.to_vec()).unwrap(), inode.id));
            true
        });
        told.unwrap();
        found.sort();
        found
    }

    #[test]
    fn files_are_found_where_they_are_now_and_where_they_were_then() {
        let directory = tempfile::tempdir().unwrap();
        let storage = Arc::new(LocalStorage::new(directory.path()).unwrap());
        let environment = Environment::system(storage);
        let clock = system_clock();
        create_namespace(&environment, &Settings::default(), (0, 0), &clock).unwrap();
        let contents = Contents::new(&directory.path().join("contents")).unwrap();
        let namespace = Namespace::open(&environment, contents, clock).unwrap();
        namespace.set_indexes(&["type"]).unwrap();
        namespace.build_indexes(|| true).unwrap();
        let new = New { mode: file_type::REGULAR | 0o644, ..New::default() };
        let create = |name: &str| namespace.create(ROOT, name.as_bytes(), &new, false).unwrap().id;
        let name = |name: &'static str| (ROOT, name.as_bytes());
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
        assert!(namespace.places.get(second).is_some());
        assert_eq!(views.last().unwrap().1.len(), 5);
    }
}
