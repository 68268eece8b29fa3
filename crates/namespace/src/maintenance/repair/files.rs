//! Mending files whose records do not agree: all that there is of one is collected, and then each
//! record says what follows from that.

use super::Repair;
use crate::contents::chunks::Stored;
use crate::contents::describe;
use crate::error::Result;
use crate::maintenance::check::{Check, Fault};
use crate::records::inode::{Inode, file_type, flag};
use crate::records::keys::{self, FileId, ROOT, Space};
use canopy_store::{Direction, Key, KeyRange};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Existing parts of a file.
#[derive(Default)]
pub(super) struct Parts {
    /// Where its names lie, each with the inode if it lies there.
    names: Vec<(Key, Option<Inode>)>,
    /// The inode of a file with several names.
    links: Option<Inode>,
    /// The inode of a file without a name.
    orphan: Option<Inode>,
    /// Keys of the name index.
    indexed: Vec<Key>,
    xattrs: Vec<Key>,
    pub(super) contents: Option<Vec<u8>>,
    /// The size of its object.
    object: Option<u64>,
    /// Its chunks, as far as their records can be read.
    pub(super) chunks: Vec<(u64, Option<Stored>)>,
    /// Those whose records or objects are not what they must be.
    pub(super) bad_chunks: HashSet<u64>,
    has_children: bool,
    subdirectories: u32,
}

impl Parts {
    fn has_contents(&self) -> bool {
        self.contents.is_some() || self.object.is_some() || !self.chunks.is_empty()
    }
}

impl Repair<'_> {
    /// Mends some files.
    pub(super) fn mend_files(
        &mut self,
        check: &Check<'_>,
        suspects: &BTreeSet<FileId>,
        faults: &[Fault],
    ) -> Result<()> {
        let mut names: HashMap<FileId, Vec<(Key, Option<Inode>)>> = HashMap::new();
        let mut scan =
            self.namespace.tablet.table.scan(&keys::names_in_directories(), Direction::Forward)?;
        while let Some(record) = scan.next()? {
            let inode = Inode::decode(record.value)?;
            if suspects.contains(&inode.id) {
                let own = (!inode.has(flag::LINKED)).then(|| inode.clone());
                names.entry(inode.id).or_default().push((record.key.to_key(), own));
            }
        }
        drop(scan);
        for &id in suspects {
            // The process that has it open knows better.
            if self.namespace.contents.find(id, false).is_some() {
                continue;
            }
            for fault in faults.iter().filter(|fault| fault.id == id) {
                self.report(id, format!("mended: {}", fault.what));
            }
            let names = names.remove(&id).unwrap_or_default();
            let mut parts = self.parts(id, names)?;
            parts.subdirectories = check.files.get(&id).map_or(0, |seen| seen.subdirectories);
            parts.bad_chunks = check.bad_chunks.get(&id).cloned().unwrap_or_default();
            self.mend_file(id, parts)?;
            self.write_some()?;
        }
        Ok(())
    }

    fn parts(&self, id: FileId, names: Vec<(Key, Option<Inode>)>) -> Result<Parts> {
        let table = &self.namespace.tablet.table;
        let keys_in = |range: &KeyRange| -> Result<Vec<Key>> {
            let mut scan = table.scan(range, Direction::Forward)?;
            let mut keys = Vec::new();
            while let Some(record) = scan.next()? {
                keys.push(record.key.to_key());
            }
            Ok(keys)
        };
        Ok(Parts {
            names,
            links: self.of(Space::Links, id)?,
            orphan: self.of(Space::Orphans, id)?,
            indexed: keys_in(&Space::Names.range_of(id))?,
            xattrs: keys_in(&Space::Xattrs.range_of(id))?,
            contents: table.get(Space::Contents.of(id, b"").as_ref())?,
            object: self.namespace.contents.object_size(id),
            chunks: self.chunks_of(id)?,
            bad_chunks: HashSet::new(),
            has_children: !self.namespace.tablet.is_empty(id)?,
            subdirectories: 0,
        })
    }

    fn mend_file(&mut self, id: FileId, mut parts: Parts) -> Result<()> {
        if id == ROOT {
            return self.mend_root(&mut parts);
        }
        let own = parts.names.iter().find_map(|(_, inode)| inode.clone());
        let found = parts.links.clone().or(own).or(parts.orphan.clone());
        let mut inode = match found {
            Some(inode) => inode,
            None if parts.has_children => self.new_directory(id, 0o700),
            None if parts.has_contents() => {
                let mode = file_type::REGULAR | 0o600;
                self.with_times(Inode { mode, id, ..Inode::default() })
            }
            None => return self.remove_rest_of(&parts),
        };
        if parts.has_children && !inode.is_directory() {
            self.move_children(id)?;
        }
        self.mend_contents(&mut inode, &mut parts)?;
        inode.flags &= !flag::XATTRS;
        inode.flags |= if parts.xattrs.is_empty() { 0 } else { flag::XATTRS };
        match inode.is_directory() {
            true => self.place_directory(inode, parts),
            false => self.place_file(inode, parts),
        }
    }

    /// Removes what is left of a file that has neither an inode nor contents.
    fn remove_rest_of(&mut self, parts: &Parts) -> Result<()> {
        for key in parts.names.iter().map(|(key, _)| key) {
            self.batch.delete(key.as_ref())?;
            let name = key.name.escape_ascii();
            self.report(
                FileId::NONE,
                format!("removed {name} in directory {}, of no file", key.directory),
            );
        }
        for key in parts.indexed.iter().chain(&parts.xattrs) {
            self.batch.delete(key.as_ref())?;
        }
        Ok(())
    }

    /// Makes the flags and the size of an inode those of the contents that there are. What it cannot
    /// have becomes a file of its own.
    fn mend_contents(&mut self, inode: &mut Inode, parts: &mut Parts) -> Result<()> {
        let (had_object, id) = (inode.has(flag::OBJECT), inode.id);
        inode.flags &= !(flag::INLINE | flag::OBJECT);
        if !inode.is_regular() {
            inode.flags &= !flag::ABSENT;
            self.rescue_contents(id, parts)?;
            self.rescue_chunks(id, parts)?;
            return self.rescue_object(id, parts);
        }
        let takes = |has: bool| has && (had_object || parts.contents.is_none());
        if takes(!parts.chunks.is_empty()) {
            self.rescue_contents(id, parts)?;
            inode.flags |= flag::OBJECT;
            self.mend_chunks(inode, parts)?;
        } else if takes(parts.object.is_some()) {
            self.rescue_contents(id, parts)?;
            inode.flags |= flag::OBJECT;
            describe(&self.namespace.contents.open_object(id)?, inode);
        } else if let Some(contents) = &parts.contents {
            inode.size = contents.len() as u64;
            inode.blocks = inode.size.div_ceil(512);
            inode.flags |= flag::INLINE;
            self.rescue_chunks(id, parts)?;
            self.rescue_object(id, parts)?;
        } else if had_object && inode.blocks == 0 && self.chunk_objects.is_some() {
            // It is a hole.
            inode.flags |= flag::OBJECT;
        }
        let has_any = inode.has(flag::INLINE) || inode.has(flag::OBJECT);
        inode.flags &= !flag::ABSENT;
        if !has_any && inode.size > 0 {
            // Nobody takes what is missing for zeros.
            inode.flags |= flag::ABSENT;
            let what = "its contents are missing: reading fails until it is truncated";
            self.report(id, self.namespace.about(id, what));
        }
        Ok(())
    }

    /// Makes contents that a file cannot have a file of its own.
    fn rescue_contents(&mut self, of: FileId, parts: &mut Parts) -> Result<()> {
        let Some(contents) = parts.contents.take() else { return Ok(()) };
        self.batch.delete(Space::Contents.of(of, b"").as_ref())?;
        let id = self.writer.ids.new_id(&self.namespace.tablet.table)?;
        let mut inode = self.new_file(id);
        (inode.size, inode.blocks) = (contents.len() as u64, (contents.len() as u64).div_ceil(512));
        inode.flags = flag::INLINE;
        self.batch.put(Space::Contents.of(id, b"").as_ref(), &contents)?;
        self.attach(&mut inode)
    }

    /// Makes an object that a file cannot have one of another file.
    fn rescue_object(&mut self, of: FileId, parts: &mut Parts) -> Result<()> {
        if parts.object.take().is_none() {
            return Ok(());
        }
        let id = self.writer.ids.new_id(&self.namespace.tablet.table)?;
        self.namespace.contents.move_object(of, id)?;
        let mut inode = self.new_file(id);
        describe(&self.namespace.contents.open_object(id)?, &mut inode);
        inode.flags = flag::OBJECT;
        self.attach(&mut inode)
    }

    pub(super) fn new_file(&self, id: FileId) -> Inode {
        let mode = file_type::REGULAR | 0o600;
        self.with_times(Inode { mode, nlink: 1, id, ..Inode::default() })
    }

    /// Moves names that lie in what is not a directory into a new one.
    fn move_children(&mut self, id: FileId) -> Result<()> {
        let new_id = self.writer.ids.new_id(&self.namespace.tablet.table)?;
        let mut directory = self.new_directory(new_id, 0o700);
        self.attach(&mut directory)?;
        let mut scan = self.namespace.tablet.table.scan(&keys::names_in(id), Direction::Forward)?;
        while let Some(record) = scan.next()? {
            let child = Inode::decode(record.value)?;
            self.batch.delete(record.key)?;
            self.batch.delete(keys::name_of(child.id, id, record.key.name).as_ref())?;
            self.put_name(new_id, record.key.name, &child)?;
            self.write_some()?;
        }
        Ok(())
    }

    /// Leaves a directory one name, that in the index if there is one.
    fn place_directory(&mut self, mut inode: Inode, parts: Parts) -> Result<()> {
        let id = inode.id;
        let is_indexed = |key: &Key| {
            parts.indexed.contains(&keys::name_of(id, FileId(key.directory), &key.name))
        };
        let indexed = parts.names.iter().position(|(key, _)| is_indexed(key));
        let kept = indexed.or((!parts.names.is_empty()).then_some(0));
        for key in parts.names.iter().map(|(key, _)| key).chain(&parts.indexed) {
            self.batch.delete(key.as_ref())?;
        }
        self.batch.delete(Space::Links.of(id, b"").as_ref())?;
        if kept.is_none() && parts.orphan.is_some() && !parts.has_children {
            inode.nlink = 0;
            return Ok(self.batch.put(Space::Orphans.of(id, b"").as_ref(), &inode.encode())?);
        }
        self.batch.delete(Space::Orphans.of(id, b"").as_ref())?;
        inode.nlink = 2 + parts.subdirectories;
        match kept.and_then(|at| parts.names.get(at)) {
            Some((key, _)) => self.put_name(FileId(key.directory), &key.name, &inode),
            None => self.attach(&mut inode),
        }
    }

    /// Puts the inode of a file where its names say: with its only one, or aside of several.
    fn place_file(&mut self, mut inode: Inode, parts: Parts) -> Result<()> {
        let id = inode.id;
        let (links, orphans) = (Space::Links.of(id, b""), Space::Orphans.of(id, b""));
        inode.nlink = parts.names.len() as u32;
        for key in &parts.indexed {
            self.batch.delete(key.as_ref())?;
        }
        for (key, _) in &parts.names {
            self.batch.put(keys::name_of(id, FileId(key.directory), &key.name).as_ref(), b"")?;
        }
        match &parts.names[..] {
            [] if parts.orphan.is_some() && parts.links.is_none() => {
                return Ok(self.batch.put(orphans.as_ref(), &inode.encode())?);
            }
            [] => {
                self.batch.delete(links.as_ref())?;
                self.batch.delete(orphans.as_ref())?;
                inode.nlink = 1;
                return self.attach(&mut inode);
            }
            [(key, _)] => {
                self.batch.delete(links.as_ref())?;
                self.batch.put(key.as_ref(), &inode.encode())?;
            }
            several => {
                self.batch.put(links.as_ref(), &inode.encode())?;
                for (key, _) in several {
                    self.batch.put(key.as_ref(), &Inode::pointer(id).encode())?;
                }
            }
        }
        Ok(self.batch.delete(orphans.as_ref())?)
    }

    /// The root has no name, and its record only one place.
    fn mend_root(&mut self, parts: &mut Parts) -> Result<()> {
        let found = self.namespace.tablet.record(&keys::root())?.filter(Inode::is_directory);
        if found.is_none() {
            let what = "the root directory is made anew: only root may enter it until you change \
                        its mode";
            self.report(ROOT, what);
        }
        let mut root = found.unwrap_or_else(|| self.new_directory(ROOT, 0o700));
        self.rescue_contents(ROOT, parts)?;
        self.rescue_chunks(ROOT, parts)?;
        self.rescue_object(ROOT, parts)?;
        root.id = ROOT;
        root.nlink = 2 + parts.subdirectories;
        root.flags = if parts.xattrs.is_empty() { 0 } else { flag::XATTRS };
        for (key, _) in &parts.names {
            self.batch.delete(key.as_ref())?;
        }
        for key in &parts.indexed {
            self.batch.delete(key.as_ref())?;
        }
        for space in [Space::Links, Space::Orphans] {
            self.batch.delete(space.of(ROOT, b"").as_ref())?;
        }
        Ok(self.batch.put(keys::root().as_ref(), &root.encode())?)
    }
}
