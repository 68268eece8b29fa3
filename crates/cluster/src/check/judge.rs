//! The rules that all facts of a file obey together.
//!
//! | file | where |
//! | --- | --- |
//! | with one name | its inode is the record of the name; all else of it is on that server |
//! | with several names | inode and entries of the name index at its home; each name is a pointer |
//! | without a name | its inode, anywhere |
//! | directory | an access half under its one name; the first content half at its home |
//!
//! The partitions of a directory hold each hash once, each on the server that the placement says. All
//! servers with a partition have the attributes of the home.

use super::{DirectoryFact, Fault, Item, Repair};
use canopy_namespace::inode::flag;
use canopy_namespace::{ChunkId, Fact, FileId, InodeFact, Mend, NameKind, ObjectId, ROOT};
use canopy_partition::{PartitionId, ServerId, SplitHistory};
use std::collections::{BTreeMap, BTreeSet};

/// The home of a file, if any table has given its id out.
pub(super) type Home = Option<ServerId>;

type Name = (FileId, Vec<u8>);

/// Returns the faults of a file, by all facts about it.
pub(super) fn judge(id: FileId, home: Home, items: &[(ServerId, Item)]) -> Vec<Fault> {
    let mut file = File::new(id, home, items);
    file.judge_wrong();
    match file.is_directory() {
        true => file.judge_directory(),
        false => file.judge_file(),
    }
    file.judge_objects();
    file.faults
}

/// A content half.
#[derive(Clone, Copy)]
struct Half {
    server: ServerId,
    inode: InodeFact,
    is_first: bool,
    version: u64,
    attributes: u64,
}

/// All that is known of a file.
#[derive(Default)]
struct File<'a> {
    id: FileId,
    home: Home,
    /// Names with the inode.
    whole: Vec<(ServerId, Name, InodeFact)>,
    pointers: BTreeSet<(Name, ServerId)>,
    access: BTreeSet<(Name, ServerId)>,
    linked: Vec<(ServerId, InodeFact)>,
    orphans: Vec<(ServerId, InodeFact)>,
    halves: Vec<Half>,
    found: BTreeMap<ServerId, BTreeSet<Name>>,
    xattrs: BTreeMap<ServerId, u32>,
    contents: BTreeMap<ServerId, u64>,
    chunks: BTreeMap<ServerId, (u64, u64)>,
    objects: BTreeMap<(u64, ObjectId), (ServerId, u32)>,
    stored: BTreeMap<(u64, ObjectId), (u64, bool)>,
    unsound: BTreeMap<(u64, ObjectId), (bool, &'a str)>,
    is_making: bool,
    /// Servers that remove its chunks.
    doomed: BTreeSet<ServerId>,
    /// Names and directories in it, by servers that hold them.
    entries: BTreeMap<ServerId, (u64, u32)>,
    copies: BTreeMap<ServerId, Vec<u64>>,
    directories: Vec<(ServerId, &'a DirectoryFact)>,
    wrong: Vec<(ServerId, &'a str, bool)>,
    faults: Vec<Fault>,
}

impl<'a> File<'a> {
    fn new(id: FileId, home: Home, items: &'a [(ServerId, Item)]) -> Self {
        let mut file = File { id, home, ..File::default() };
        for (server, item) in items {
            match item {
                Item::Fact(fact) => file.add(*server, fact),
                Item::Directory(directory) => file.directories.push((*server, directory)),
                Item::Stored { chunk, object, bytes, has_ended } => {
                    file.stored.insert((*chunk, *object), (*bytes, *has_ended));
                }
                Item::Unsound { chunk, object, is_damaged, why } => {
                    file.unsound.insert((*chunk, *object), (*is_damaged, why));
                }
            }
        }
        file
    }

    fn add(&mut self, server: ServerId, fact: &'a Fact) {
        match fact {
            Fact::Name { directory, name, kind, inode } => {
                let name = (*directory, name.clone());
                match kind {
                    NameKind::Whole => self.whole.push((server, name, *inode)),
                    NameKind::Linked => drop(self.pointers.insert((name, server))),
                    NameKind::Directory => drop(self.access.insert((name, server))),
                }
            }
            Fact::Linked(inode) => self.linked.push((server, *inode)),
            Fact::Orphan(inode) => self.orphans.push((server, *inode)),
            Fact::Half { inode, is_first, version, attributes } => self.halves.push(Half {
                server,
                inode: *inode,
                is_first: *is_first,
                version: *version,
                attributes: *attributes,
            }),
            Fact::Found { directory, name } => {
                self.found.entry(server).or_default().insert((*directory, name.clone()));
            }
            Fact::Xattrs(count) => *self.xattrs.entry(server).or_default() += count,
            Fact::Contents(bytes) => drop(self.contents.insert(server, *bytes)),
            Fact::Chunks { blocks, end } => {
                let of = self.chunks.entry(server).or_default();
                *of = (of.0 + blocks, of.1.max(*end));
            }
            Fact::Object { chunk, object, bytes, .. } => {
                self.objects.insert((*chunk, *object), (server, *bytes));
            }
            Fact::Making => self.is_making = true,
            Fact::Doomed => drop(self.doomed.insert(server)),
            Fact::Entries { names, directories } => {
                let of = self.entries.entry(server).or_default();
                *of = (of.0 + names, of.1 + directories);
            }
            Fact::Copy { hash } => self.copies.entry(server).or_default().push(*hash),
            Fact::Wrong { what, is_note } => self.wrong.push((server, what, *is_note)),
        }
    }

    fn fault(&mut self, what: impl Into<String>, repair: Option<Repair>) {
        self.faults.push(Fault { id: self.id, what: what.into(), repair });
    }

    fn judge_wrong(&mut self) {
        for (server, what, is_note) in std::mem::take(&mut self.wrong) {
            let repair = is_note.then_some(Repair::At(server, Mend::Notes(self.id)));
            self.fault(format!("{what} (server {server})"), repair);
        }
    }

    fn is_directory(&self) -> bool {
        let is_listed = !self.entries.is_empty() || !self.copies.is_empty();
        self.id == ROOT
            || !self.halves.is_empty()
            || !self.access.is_empty()
            || is_listed
            || self.whole.iter().any(|(_, _, inode)| inode.is_directory)
    }

    fn judge_file(&mut self) {
        let whole = self.whole.iter().map(|(server, _, inode)| (*server, *inode));
        let inodes = whole.chain(self.linked.iter().copied()).chain(self.orphans.iter().copied());
        let inodes = Vec::from_iter(inodes);
        let [(server, inode)] = inodes[..] else {
            return self.judge_inodes(&inodes);
        };
        let has_pointers = !self.pointers.is_empty();
        let names = match (&self.whole[..], &self.orphans[..]) {
            ([(_, name, _)], _) if !has_pointers => BTreeSet::from([name.clone()]),
            ([_], _) => {
                return self.fault("it has several names, and its inode lies with one", None);
            }
            (_, [_]) if has_pointers => {
                return self.fault("it has a name and is kept as if it had none", None);
            }
            (_, [_]) => BTreeSet::new(),
            _ => self.pointers.iter().map(|(name, _)| name.clone()).collect(),
        };
        if !self.linked.is_empty() && self.home != Some(server) {
            self.fault(format!("its inode is on server {server}, which is not its home"), None);
        }
        if !self.linked.is_empty() && names.is_empty() {
            let lost = Repair::Lost { is_directory: false };
            return self.fault("no name leads to it", Some(lost));
        }
        let links = names.len() as u32;
        if inode.nlink != links {
            let what = format!("it counts {} links and has {links}", inode.nlink);
            self.fault(what, Some(Repair::At(server, Mend::Links(self.id, links))));
        }
        self.judge_found(&BTreeMap::from([(server, names)]));
        self.judge_rest(server, inode);
    }

    /// Judges a file that has no inode, or several.
    fn judge_inodes(&mut self, inodes: &[(ServerId, InodeFact)]) {
        if !inodes.is_empty() {
            let servers = inodes.iter().map(|(server, _)| server.to_string());
            let servers = Vec::from_iter(servers).join(", ");
            return self.fault(format!("it has several inodes, on servers {servers}"), None);
        }
        self.drop_names("leads to a file that has no inode");
        let has_chunks = self.chunks.keys().any(|server| !self.doomed.contains(server));
        if has_chunks || !self.xattrs.is_empty() || !self.contents.is_empty() {
            self.fault("there are records of a file that has no inode", None);
        }
        self.judge_found(&BTreeMap::new());
    }

    fn drop_names(&mut self, why: &str) {
        let names = Vec::from_iter(self.pointers.iter().chain(&self.access).cloned());
        for ((directory, name), server) in names {
            let what = format!("its name {} in directory {directory} {why}", name.escape_ascii());
            let mend = Mend::DropName { id: self.id, directory, name };
            self.fault(what, Some(Repair::At(server, mend)));
        }
    }

    /// Compares the entries of the name index with those that servers must have.
    fn judge_found(&mut self, expected: &BTreeMap<ServerId, BTreeSet<Name>>) {
        let servers = BTreeSet::from_iter(self.found.keys().chain(expected.keys()).copied());
        let none = BTreeSet::new();
        for server in servers {
            let has = self.found.get(&server).unwrap_or(&none).clone();
            let must = expected.get(&server).unwrap_or(&none);
            for (names, is_there) in [(must - &has, true), (&has - must, false)] {
                for (directory, name) in names {
                    let lacks = if is_there { "lacks" } else { "has" };
                    let shown = name.escape_ascii();
                    let what = format!(
                        "the name index of server {server} {lacks} its name {shown} in directory \
                         {directory}"
                    );
                    let mend = Mend::Found { id: self.id, directory, name, is_there };
                    self.fault(what, Some(Repair::At(server, mend)));
                }
            }
        }
    }

    /// Compares an inode with what else there is of its file.
    fn judge_rest(&mut self, server: ServerId, inode: InodeFact) {
        let servers = self.xattrs.keys().chain(self.contents.keys()).chain(self.chunks.keys());
        let elsewhere = BTreeSet::from_iter(servers.filter(|one| **one != server).copied());
        for other in elsewhere {
            self.fault(format!("there are records of it on server {other}, too"), None);
        }
        let has = |flag| inode.flags & flag != 0;
        let xattrs = self.xattrs.get(&server).copied().unwrap_or(0);
        if has(flag::XATTRS) != (xattrs > 0) {
            self.fault(
                format!("it has {xattrs} extended attributes, and its inode says otherwise"),
                None,
            );
        }
        let contents = self.contents.get(&server).copied();
        if has(flag::INLINE) != contents.is_some() {
            self.fault("its inode and its records differ on whether it has small contents", None);
        }
        if let Some(bytes) = contents.filter(|bytes| *bytes != inode.size) {
            let size = inode.size;
            self.fault(format!("its inode says {size} bytes, its contents have {bytes}"), None);
        }
        let chunks = self.chunks.get(&server).copied();
        let (blocks, end) = chunks.unwrap_or_default();
        if chunks.is_some() && !has(flag::OBJECT) {
            self.fault("its inode says that it has no chunks, and there are some", None);
        } else if has(flag::OBJECT) && (end > inode.size || blocks != inode.blocks) {
            let (size, taken) = (inode.size, inode.blocks);
            let what = format!(
                "it has {size} bytes in {taken} blocks, and chunks up to {end} in {blocks}"
            );
            self.fault(what, None);
        }
    }

    fn judge_directory(&mut self) {
        let firsts = self.halves.iter().filter(|half| half.is_first).copied();
        let firsts = Vec::from_iter(firsts);
        let [first] = firsts[..] else {
            return match firsts.is_empty() {
                true if self.entries.is_empty() => self.drop_names("leads to no directory"),
                true => self.fault("it has names, but is not a directory", None),
                false => self.fault("it has several content halves", None),
            };
        };
        if self.home != Some(first.server) {
            let server = first.server;
            self.fault(format!("its content half is on server {server}, not at its home"), None);
        }
        self.judge_name(first);
        self.judge_links();
        self.judge_partitions(first);
        self.judge_copies();
    }

    /// A directory has one name, but for the root.
    fn judge_name(&mut self, first: Half) {
        let names = Vec::from_iter(self.access.iter().cloned());
        match &names[..] {
            _ if self.id == ROOT && names.is_empty() => {}
            // The name may be missing, and the home asks for it.
            [] if self.is_making || first.inode.nlink == 0 => {}
            [] => {
                let lost = Repair::Lost { is_directory: true };
                self.fault("no name leads to this directory", Some(lost));
            }
            [(name, server)] => {
                let names = BTreeSet::from([name.clone()]);
                let expected = BTreeMap::from([(first.server, names.clone()), (*server, names)]);
                self.judge_found(&expected);
            }
            _ => self.fault("a directory has several names", None),
        }
    }

    /// Each half counts the directories among the names that its server holds.
    fn judge_links(&mut self) {
        for half in self.halves.clone() {
            let directories = self.entries.get(&half.server).map_or(0, |(_, count)| *count);
            let (counts, links) = (half.inode.nlink, 2 + directories);
            if counts != links && (counts > 0 || directories > 0) {
                let server = half.server;
                let what =
                    format!("its half on server {server} counts {counts} links, not {links}");
                self.fault(what, Some(Repair::At(server, Mend::Subdirectories(self.id))));
            }
        }
        for server in Vec::from_iter(self.entries.keys().copied()) {
            if !self.halves.iter().any(|half| half.server == server) {
                let what = format!("names of it are on server {server}, which does not have it");
                self.fault(what, None);
            }
        }
    }

    fn judge_partitions(&mut self, first: Half) {
        let mut held = Vec::new();
        let mut placements = BTreeSet::new();
        for (server, directory) in &self.directories {
            held.extend(directory.held.iter().map(|history| (*server, *history)));
            placements.extend(directory.placement);
        }
        let is_recorded = self.directories.iter().any(|(server, _)| *server == first.server);
        if !is_recorded {
            held.extend(SplitHistory::new(PartitionId::ZERO, 0).map(|all| (first.server, all)));
        }
        for (server, directory) in self.directories.clone() {
            for partition in &directory.unfinished {
                let what = format!("the hand-over of {partition} does not end on server {server}");
                self.fault(what, None);
            }
            let placement = directory.placement();
            for history in directory.held.iter().filter(|history| history.depth() > 0) {
                let partition = history.partition();
                if placement.is_none_or(|placement| placement.server(partition) != server) {
                    self.fault(format!("{partition} is on server {server} by mistake"), None);
                }
            }
        }
        if placements.len() > 1 {
            self.fault("servers do not agree on where its partitions are", None);
        }
        self.judge_hashes(&held);
        let holders = BTreeSet::from_iter(held.iter().map(|(server, _)| *server));
        let differs = |half: &&Half| {
            holders.contains(&half.server)
                && (half.version, half.attributes) != (first.version, first.attributes)
        };
        if let Some(half) = self.halves.iter().find(differs) {
            let what = format!("server {} has other attributes of it than its home", half.server);
            self.fault(what, Some(Repair::Push));
        }
    }

    /// Each hash is held once.
    fn judge_hashes(&mut self, held: &[(ServerId, SplitHistory)]) {
        let ranges = held.iter().map(|(server, history)| {
            let hashes = history.partition().hashes(history.depth());
            (*hashes.start(), *hashes.end(), *server)
        });
        let mut ranges = Vec::from_iter(ranges);
        ranges.sort_unstable();
        let mut next = Some(0);
        for (start, end, server) in ranges {
            match next {
                Some(next) if start == next => {}
                Some(next) if start > next => {
                    self.fault(format!("no server holds names with hashes from {next:x} on"), None);
                }
                _ => {
                    let what =
                        format!("server {server} and another one hold names from {start:x} on");
                    self.fault(what, None);
                }
            }
            next = end.checked_add(1);
        }
        if let Some(next) = next {
            self.fault(format!("no server holds names with hashes from {next:x} on"), None);
        }
    }

    /// Names that a server does not hold arrive or leave.
    fn judge_copies(&mut self) {
        for (server, hashes) in std::mem::take(&mut self.copies) {
            let of = self.directories.iter().find(|(of, _)| *of == server);
            let unfinished = of.map(|(_, directory)| &directory.unfinished[..]).unwrap_or_default();
            let is_explained = |hash: &u64| {
                let mut partitions = unfinished.iter();
                partitions.any(|one| one.hashes(one.first_depth()).contains(hash))
            };
            let left = hashes.iter().filter(|hash| !is_explained(hash)).copied();
            let left = Vec::from_iter(left);
            if !left.is_empty() {
                let count = left.len();
                let what = format!("{count} copies of its names are left on server {server}");
                self.fault(what, Some(Repair::At(server, Mend::Copies(self.id, left))));
            }
        }
    }

    /// Each object that a record names is there. One that no record names goes once its session has
    /// ended; a note may already say so.
    fn judge_objects(&mut self) {
        for ((chunk, object), (server, bytes)) in self.objects.clone() {
            let stored = self.stored.get(&(chunk, object)).map(|(bytes, _)| *bytes);
            let mend = Mend::LostChunk(ChunkId::new(self.id, chunk), object);
            let repair = Some(Repair::At(server, mend));
            if stored == Some(bytes.into()) {
                match self.unsound.get(&(chunk, object)) {
                    None => {}
                    Some((true, _)) => {
                        self.fault(format!("the object of chunk {chunk} is damaged"), repair);
                    }
                    // It may be sound, and storage cannot read it now.
                    Some((false, why)) => self.fault(*why, None),
                }
                continue;
            }
            let found = stored.map_or("missing".into(), |found| format!("{found} bytes long"));
            let what = format!("the object of chunk {chunk}, of {bytes} bytes, is {found}");
            self.fault(what, repair);
        }
        let has_inode =
            !self.whole.is_empty() || !self.linked.is_empty() || !self.orphans.is_empty();
        for ((chunk, object), (_, has_ended)) in self.stored.clone() {
            if has_ended && !has_inode && !self.objects.contains_key(&(chunk, object)) {
                let session = object.epoch;
                let what = format!(
                    "there is an object of chunk {chunk} of a file that does not exist, from session \
                     {session}, which has ended"
                );
                let repair = Repair::Remove(ChunkId::new(self.id, chunk), object);
                self.fault(what, Some(repair));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_a_file_that_was_removed_go_later() {
        let at = ServerId(1);
        let chunks = |server| (server, Item::Fact(Fact::Chunks { blocks: 8, end: 4096 }));
        let doomed = (at, Item::Fact(Fact::Doomed));
        let faults = |items: &[(ServerId, Item)]| judge(FileId(70), Some(at), items);
        assert!(faults(&[chunks(at), doomed.clone()]).is_empty());
        let what = "there are records of a file that has no inode";
        for items in [&[chunks(at)][..], &[chunks(ServerId(2)), doomed]] {
            let found = faults(items);
            assert_eq!(found.iter().map(|fault| &*fault.what).collect::<Vec<_>>(), [what]);
        }
    }
}
