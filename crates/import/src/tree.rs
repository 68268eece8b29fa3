//! The directories of an input, in memory: the first pass gathers them and the second looks them
//! up.
//!
//! Visibility of a listing depends on every directory above it, and directories come in any order.
//! So no listing can be handed over before all directories are known.
//!
//! Its invariant: no directory is more visible than its source would show it. Anything uncertain (a
//! missing directory, an unreadable ACL, two records for one directory) counts as root only.

use crate::error::{Error, Position, Problems, Result};
use crate::fault::{Checked, Fault};
use crate::first_pass::{FirstPass, RootRule, input_root};
use crate::path::{below, check, shown};
use canopy_model::{
    Access, Acl, Approach, Attributes, Audience, ClassTable, Permissions, base_name, escape,
    join_absolute, parent,
};
use rustc_hash::FxHashMap;
use std::collections::HashMap;
use std::path::PathBuf;

/// Stands for a directory that was left out.
pub(crate) const NO_DIR: u32 = u32::MAX;

/// The attributes of a directory of which nothing is known.
pub(crate) const MADE_UP: Attributes = Attributes {
    ino: 0,
    mode: 0o040_000,
    nlink: 2,
    uid: 0,
    gid: 0,
    size_bytes: 0,
    blksize_bytes: 4096,
    blocks: 0,
    atime_ns: 0,
    mtime_ns: 0,
    ctime_ns: 0,
    btime_ns: 0,
    rdev: 0,
};

/// Extended attributes: names, escaped, and values.
pub(crate) type Xattrs = Vec<(String, Vec<u8>)>;

/// All directories of the input.
#[derive(Debug)]
pub(crate) struct Tree {
    /// Absolute path of the root, escaped.
    pub root: String,
    /// The root as the input has it.
    pub input_root: Vec<u8>,
    pub dirs: Vec<Dir>,
    /// Number of the first directory that the input does not have; all from there on are made up.
    pub first_made_up: u32,
    paths: String,
    xattrs: FxHashMap<u32, Xattrs>,
    /// Children of directory i: `children[first_child[i]..first_child[i + 1]]`.
    children: Vec<u32>,
    first_child: Vec<u32>,
    accesses: Vec<Access>,
}

/// A directory of the tree.
#[derive(Debug)]
pub(crate) struct Dir {
    path_start: usize,
    path_bytes: u32,
    pub depth: u32,
    /// The directory that holds it; the root is its own.
    parent: u32,
    pub attributes: Attributes,
    /// Whether its permissions are not known for sure.
    unknown: bool,
}

impl Tree {
    /// Puts together what threads have gathered. Returns the number in the tree of each directory
    /// gathered, by thread.
    pub(crate) fn build(
        gathered: Vec<FirstPass>,
        asked_root: Option<&[u8]>,
        rule: RootRule,
        names: &[PathBuf],
        problems: &Problems,
    ) -> Result<(Tree, Vec<Vec<u32>>)> {
        let input_root = input_root(&gathered, asked_root, rule, problems)?;
        let root = match asked_root {
            Some(root) => escape(root).into_owned(),
            None => escape(if input_root.is_empty() { b"/" } else { &input_root }).into_owned(),
        };
        let mut tree = Tree {
            root,
            input_root,
            dirs: Vec::with_capacity(gathered.iter().map(FirstPass::len).sum()),
            first_made_up: 0,
            paths: String::new(),
            xattrs: FxHashMap::default(),
            children: Vec::new(),
            first_child: Vec::new(),
            accesses: Vec::new(),
        };
        let mut places = Vec::with_capacity(tree.dirs.capacity());
        let mut numbers = Vec::with_capacity(gathered.len());
        for thread in gathered {
            numbers.push(tree.take(thread, names, problems, &mut places)?);
        }
        tree.first_made_up = tree.dirs.len() as u32;
        let merged = tree.link(names, &places, problems)?;
        for number in numbers.iter_mut().flatten() {
            if let Some(&to) = merged.get(number) {
                *number = to;
            }
        }
        Ok((tree, numbers))
    }

    /// Takes in the directories of one thread.
    fn take(
        &mut self,
        mut gathered: FirstPass,
        names: &[PathBuf],
        problems: &Problems,
        places: &mut Vec<(u32, Position)>,
    ) -> Result<Vec<u32>> {
        let mut xattrs = std::mem::take(&mut gathered.xattrs);
        let mut numbers = Vec::with_capacity(gathered.len());
        for (at, (raw, dir)) in gathered.iter().enumerate() {
            let path = self.below_root(raw);
            match path {
                Ok(path) => {
                    let path = escape(path).into_owned();
                    let id = self.push(&path, dir.attributes, dir.unknown)?;
                    places.push((dir.input, dir.place.clone()));
                    if let Some(xattrs) = xattrs.remove(&(at as u32)) {
                        self.xattrs.insert(id, xattrs);
                    }
                    numbers.push(id);
                }
                Err(reason) => {
                    let name = &names[dir.input as usize];
                    problems.report(Error::record(name, dir.place.clone(), reason))?;
                    numbers.push(NO_DIR);
                }
            }
        }
        Ok(numbers)
    }

    /// Returns the part of a path of the input that is below the root, checked.
    pub(crate) fn below_root<'a>(&self, raw: &'a [u8]) -> Checked<&'a [u8]> {
        let path = below(&self.input_root, raw);
        let path = path.ok_or_else(|| {
            let (path, root) = (shown(raw), shown(&self.input_root));
            Fault::name(format!("{path} is not below the root of the input, {root}"))
        })?;
        check(path).map_err(|fault| fault.within(shown(raw)))?;
        Ok(path)
    }

    fn push(&mut self, path: &str, attributes: Attributes, unknown: bool) -> Result<u32> {
        let id = u32::try_from(self.dirs.len()).ok().filter(|&id| id != NO_DIR);
        let id = id.ok_or_else(|| Error::Input("more than 4294967294 directories".to_owned()))?;
        let depth = if path.is_empty() {
            0
        } else {
            1 + memchr::memchr_iter(b'/', path.as_bytes()).count()
        };
        self.dirs.push(Dir {
            path_start: self.paths.len(),
            path_bytes: path.len() as u32,
            depth: depth as u32,
            parent: 0,
            attributes,
            unknown,
        });
        self.paths.push_str(path);
        Ok(id)
    }

    /// Finds the parent of every directory, and makes up those that are missing. Returns which
    /// directories of equal paths were left out.
    fn link(
        &mut self,
        names: &[PathBuf],
        places: &[(u32, Position)],
        problems: &Problems,
    ) -> Result<FxHashMap<u32, u32>> {
        let mut left_out = FxHashMap::default();
        loop {
            let mut doubtful = Vec::new();
            let mut missing = HashMap::new();
            let mut parents = vec![NO_DIR; self.dirs.len()];
            // Paths are chosen by users, so that the hash must be one that they cannot make
            // collide.
            let mut ids: HashMap<&str, u32> = HashMap::with_capacity(self.dirs.len());
            let mut kept = Vec::with_capacity(self.dirs.len());
            for id in (0..self.dirs.len() as u32).filter(|id| !left_out.contains_key(id)) {
                let first = *ids.entry(self.path(id)).or_insert(id);
                if first != id {
                    let (input, place) = &places[id as usize];
                    let reason =
                        format!("directory {} a second time", shown(self.path(id).as_bytes()));
                    problems.report(Error::record(
                        &names[*input as usize],
                        place.clone(),
                        Fault::contradiction(reason),
                    ))?;
                    doubtful.push((id, first));
                } else {
                    kept.push(id);
                }
            }
            // Directories that follow each other are mostly in the same one.
            let mut last = None;
            for id in kept {
                let Some(above) = parent(self.path(id)) else {
                    parents[id as usize] = id;
                    continue;
                };
                if last.is_none_or(|(path, _)| path != above) {
                    last = ids.get(above).map(|&parent| (above, parent));
                }
                match last {
                    Some((_, parent)) => parents[id as usize] = parent,
                    None => add_missing(above, id, &ids, &mut missing)?,
                }
            }
            if self.dirs.is_empty() {
                missing.insert(String::new(), 0);
            }
            for (id, first) in doubtful {
                self.dirs[first as usize].unknown = true;
                left_out.insert(id, NO_DIR);
            }
            if missing.is_empty() {
                self.dirs.iter_mut().zip(parents).for_each(|(dir, parent)| dir.parent = parent);
                self.list_children();
                return Ok(left_out);
            }
            self.make_up(missing, names, places, problems)?;
        }
    }

    /// Adds directories that the input does not have, which nobody but root may enter.
    fn make_up(
        &mut self,
        missing: HashMap<String, u32>,
        names: &[PathBuf],
        places: &[(u32, Position)],
        problems: &Problems,
    ) -> Result<()> {
        let mut missing: Vec<(String, u32)> = missing.into_iter().collect();
        missing.sort();
        for (path, child) in missing {
            let path_shown = shown(join_absolute(&self.root, &path).as_bytes());
            let error = match places.get(child as usize) {
                Some((input, place)) => Error::record(
                    &names[*input as usize],
                    place.clone(),
                    Fault::name(format!(
                        "the directory above, {path_shown}, is missing in the input"
                    )),
                ),
                None => Error::Input(format!("directory {path_shown} is missing in the input")),
            };
            problems.report(error)?;
            self.push(&path, MADE_UP, true)?;
        }
        Ok(())
    }

    fn list_children(&mut self) {
        let is_child =
            |(id, dir): &(usize, &Dir)| dir.parent != NO_DIR && dir.parent as usize != *id;
        let mut first = vec![0_u32; self.dirs.len() + 1];
        for (_, dir) in self.dirs.iter().enumerate().filter(is_child) {
            first[dir.parent as usize + 1] += 1;
        }
        for at in 1..first.len() {
            first[at] += first[at - 1];
        }
        let mut next = first.clone();
        let mut children = vec![0; first[first.len() - 1] as usize];
        for (id, dir) in self.dirs.iter().enumerate().filter(is_child) {
            let slot = &mut next[dir.parent as usize];
            children[*slot as usize] = id as u32;
            *slot += 1;
        }
        (self.first_child, self.children) = (first, children);
    }

    /// Finds out who may see each directory, where the root may be looked up by `approach`.
    pub(crate) fn classify(&mut self, classes: &ClassTable, approach: &Approach) {
        let Some(root) = self.root_dir() else { return };
        let nobody = classes.access(&Approach::EVERYONE, self.closed());
        let mut accesses = vec![nobody; self.dirs.len()];
        accesses[root as usize] =
            self.with_permissions(root, |permissions| classes.access(approach, permissions));
        let mut waiting = vec![root];
        while let Some(id) = waiting.pop() {
            let access = accesses[id as usize].clone();
            for &child in self.children(id) {
                let approach =
                    classes.below(&access, || join_absolute(&self.root, self.path(child)));
                accesses[child as usize] = self
                    .with_permissions(child, |permissions| classes.access(&approach, permissions));
                waiting.push(child);
            }
        }
        self.accesses = accesses;
    }

    fn closed(&self) -> Permissions<'static> {
        Permissions { mode: MADE_UP.mode, uid: 0, gid: 0, acl: None, unknown: true }
    }

    /// Returns the root's number.
    pub(crate) fn root_dir(&self) -> Option<u32> {
        let is_root = |(id, dir): &(usize, &Dir)| dir.path_bytes == 0 && dir.parent as usize == *id;
        self.dirs.iter().enumerate().find(is_root).map(|(id, _)| id as u32)
    }

    /// Calls `with` with the permissions of a directory.
    pub(crate) fn with_permissions<R>(
        &self,
        id: u32,
        with: impl FnOnce(Permissions<'_>) -> R,
    ) -> R {
        let dir = &self.dirs[id as usize];
        let acl = self.xattrs(id).iter().find(|(key, _)| key == Acl::XATTR_NAME);
        let acl = acl.map(|(_, value)| Acl::decode(value));
        with_permissions(&dir.attributes, acl, dir.unknown, with)
    }

    /// Returns who may see a directory's listing. Meaningless before [`Tree::classify`].
    pub(crate) fn access(&self, id: u32) -> &Access {
        &self.accesses[id as usize]
    }

    /// Returns the path below the root, escaped.
    pub(crate) fn path(&self, id: u32) -> &str {
        let dir = &self.dirs[id as usize];
        &self.paths[dir.path_start..dir.path_start + dir.path_bytes as usize]
    }

    /// Returns the directories by path.
    pub(crate) fn ids(&self) -> HashMap<&str, u32> {
        let used = (0..self.dirs.len() as u32).filter(|&id| self.is_used(id));
        used.map(|id| (self.path(id), id)).collect()
    }

    /// Returns whether the directory is one of the tree: not a second record of another.
    pub(crate) fn is_used(&self, id: u32) -> bool {
        self.dirs[id as usize].parent != NO_DIR
    }

    /// Returns the last component of the path.
    pub(crate) fn name(&self, id: u32) -> &str {
        base_name(self.path(id))
    }

    /// Returns the subdirectories.
    pub(crate) fn children(&self, id: u32) -> &[u32] {
        let at = |id: u32| self.first_child[id as usize] as usize;
        &self.children[at(id)..at(id + 1)]
    }

    /// Returns the extended attributes.
    pub(crate) fn xattrs(&self, id: u32) -> &[(String, Vec<u8>)] {
        self.xattrs.get(&id).map_or(&[], Vec::as_slice)
    }

    /// Returns the extended attributes of a directory with those who may see their values, where
    /// its own listing is for `listing`.
    pub(crate) fn xattr_audiences<'a>(
        &'a self,
        id: u32,
        listing: Audience,
        classes: &ClassTable,
    ) -> Vec<(&'a str, &'a [u8], Audience)> {
        let xattrs = self.xattrs(id);
        if xattrs.is_empty() {
            return Vec::new();
        }
        self.with_permissions(id, |permissions| {
            let audience = |key| classes.value_audience(listing, key, permissions);
            let xattrs = xattrs.iter();
            xattrs.map(|(key, value)| (key.as_str(), value.as_slice(), audience(key))).collect()
        })
    }
}

/// Most bytes of paths of directories that are made up: a few long paths could ask for any number
/// of them.
const MADE_UP_BYTES_MAX: usize = 256 << 20;

/// Notes that a directory and those above it are missing, as far as they are. `child` is below it.
fn add_missing(
    first: &str,
    child: u32,
    ids: &HashMap<&str, u32>,
    missing: &mut HashMap<String, u32>,
) -> Result<()> {
    let mut path = Some(first);
    let mut bytes = 0;
    while let Some(above) = path.filter(|path| !ids.contains_key(path)) {
        if let Some(known) = missing.get_mut(above) {
            *known = child.min(*known);
            break;
        }
        bytes += above.len();
        if bytes > MADE_UP_BYTES_MAX || missing.len() > MADE_UP_BYTES_MAX / 64 {
            return Err(Error::Input("too many directories are missing in the input".to_owned()));
        }
        missing.insert(above.to_owned(), child);
        path = parent(above);
    }
    Ok(())
}

/// Calls `with` with the permissions of an inode with this ACL, if it has one.
pub(crate) fn with_permissions<R>(
    attributes: &Attributes,
    acl: Option<std::result::Result<Acl, canopy_model::AclError>>,
    unknown: bool,
    with: impl FnOnce(Permissions<'_>) -> R,
) -> R {
    let permissions = Permissions::of_inode(attributes, acl.as_ref().map(|acl| acl.as_ref()));
    with(Permissions { unknown: unknown || permissions.unknown, ..permissions })
}
