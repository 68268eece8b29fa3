//! Parts of changes: what a server that a change concerns is asked to check and to prepare.

use crate::error::{Error, Result};
use crate::holds::MovedHold;
use crate::intents::LockKey;
use crate::server::Server;
use canopy_namespace::operation::Caller;
use canopy_namespace::{
    Arrival, Arrived, Effect, FileId, Inode, MovedEntry, OwnedName, RenameMode, Tablet,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// The part of one server in a change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum IntentPart {
    /// A name gets the file of another one.
    Arrive(Box<Arriving>),
    /// A name gets a pointer to a file, by link(2). Errors have the numbers of the system.
    Link {
        /// The name.
        name: OwnedName,
        /// The file.
        inode: Box<Inode>,
        /// Why the file gets no further name.
        refusals: [Option<i32>; 2],
    },
    /// A file with several names, at its home, loses a name or gets one, or both.
    Relink {
        /// The file.
        id: FileId,
        /// The name that it loses.
        removed: Option<OwnedName>,
        /// The name that it gets.
        added: Option<OwnedName>,
    },
    /// A directory gets another name. This is its home.
    Renamed {
        /// The directory.
        id: FileId,
        /// The name that it loses.
        from: OwnedName,
        /// The name that it gets.
        to: OwnedName,
    },
    /// A directory goes: no names are added to it until the change ends.
    Close(FileId),
    /// Directories move to others: no other change has them do so until this one ends.
    Moves,
    /// A file gets its second name, and arrives at its home.
    Gather {
        /// The file.
        moving: Box<MovingFile>,
        /// Its names.
        names: Vec<OwnedName>,
    },
}

/// A file that gets a name by a rename.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Arriving {
    /// The name that it has.
    pub from: OwnedName,
    /// The project of the directory of that name.
    pub from_project: u32,
    /// The name that it gets.
    pub to: OwnedName,
    /// The treatment of a file that has this name.
    pub mode: RenameMode,
    /// The file; none if there is none.
    pub moved: Option<Inode>,
    /// The entry to be put, and who holds its file.
    pub moving: Option<MovingFile>,
    /// The file that has the name, if the decider has found it at its home.
    pub other: Option<Inode>,
    /// Why the old name cannot be taken away.
    pub refusal: Option<i32>,
    /// Whether the new name is in the directory that moves, or below it.
    pub is_loop: bool,
    /// The directory of the old name, and those above it, if they matter.
    pub above: Vec<FileId>,
}

/// A file on its way to another server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovingFile {
    /// The entry.
    pub entry: MovedEntry,
    /// Holders of the file.
    pub holds: Holds,
}

/// Holds of files.
pub type Holds = Vec<MovedHold>;

/// Outcome of a server's check of a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartOutcome {
    /// Nothing that others need to know.
    Possible,
    /// Both names are of one file. Nothing is prepared.
    SameFile,
    /// The home of this file has to be asked first; whether it is a directory. Nothing is prepared.
    NeedsInode(FileId, bool),
    /// The name is free.
    NameFree,
    /// The name is of this file: its inode, and what moves in exchange.
    NameTaken(Box<Inode>, Option<Box<MovingFile>>),
    /// The directory is closed.
    DirectoryClosed {
        /// Whether other servers may have names of it, by its home.
        is_split: bool,
        /// The number of servers that this one knows of: it has handed names to no others.
        servers: u32,
    },
    /// The inode at its home, and why a directory cannot be moved to another one.
    InodeAtHome(Box<Inode>, Option<i32>),
}

/// A part that was checked.
pub(crate) struct Checked {
    pub(crate) seen: PartOutcome,
    pub(crate) effects: Vec<Effect>,
    /// By how many names partitions change.
    pub(crate) counts: Vec<(FileId, u64, i64)>,
    /// Holds of the file that arrives.
    pub(crate) takes: Holds,
    /// The file that leaves in exchange.
    pub(crate) gives: Option<FileId>,
}

impl PartOutcome {
    /// Returns whether there is anything to prepare.
    pub(crate) fn is_prepared(&self) -> bool {
        !matches!(self, PartOutcome::SameFile | PartOutcome::NeedsInode(..))
    }
}

impl IntentPart {
    /// Returns what the part locks before it is checked.
    pub(crate) fn key(&self) -> LockKey {
        match self {
            IntentPart::Arrive(arriving) => LockKey::of(&arriving.to),
            IntentPart::Link { name, .. } => LockKey::of(name),
            IntentPart::Relink { id, .. } | IntentPart::Renamed { id, .. } => LockKey::File(*id),
            IntentPart::Close(id) => LockKey::Directory(*id),
            IntentPart::Moves => LockKey::Moves,
            IntentPart::Gather { moving, .. } => LockKey::File(moving.entry.inode.id),
        }
    }

    /// Returns the files of the part: they are locked, too, before it is checked. The one that arrives
    /// is in doubt here, and so is one that it replaces.
    pub(crate) fn files(&self, tablet: &Tablet) -> Result<Vec<LockKey>> {
        let files = match self {
            IntentPart::Arrive(arriving) => {
                let whole = arriving.moving.as_ref().map(|moving| &moving.entry.inode);
                let arrives = whole.filter(|inode| !inode.is_pointer()).map(|inode| inode.id);
                let replaced = tablet.file_under(arriving.to.borrowed())?;
                arrives.into_iter().chain(replaced).collect()
            }
            IntentPart::Close(id) => vec![*id],
            _ => Vec::new(),
        };
        Ok(files.into_iter().map(LockKey::File).collect())
    }

    /// Checks the part. All that it depends on is locked.
    pub(crate) fn check(&self, server: &Server, caller: Caller<'_>) -> Result<Checked> {
        let tablet = &server.tablet;
        match self {
            IntentPart::Arrive(arriving) => arriving.check(server, caller),
            IntentPart::Link { name, inode, refusals } => {
                let refusals = refusals.map(|refusal| refusal.map(Errno::from_raw_os_error));
                tablet.check_link(caller, name.borrowed(), inode, refusals)?;
                let entry = MovedEntry::pointer(name.name.clone(), inode.id);
                let put = Effect::Put(name.directory, entry);
                let counts = vec![name.counted(1)];
                Ok(Checked { counts, ..Checked::one(PartOutcome::Possible, put) })
            }
            IntentPart::Relink { id, removed, added } => {
                let inode = tablet.inode_at_home(*id)?;
                let (removed, added) = (removed.clone(), added.clone());
                let effect = Effect::Relink { id: *id, removed, added };
                Ok(Checked::one(PartOutcome::InodeAtHome(Box::new(inode), None), effect))
            }
            IntentPart::Renamed { id, from, to } => {
                let (inode, refusal) = tablet.check_renamed(caller, *id)?;
                let refusal = refusal.map(Errno::raw_os_error);
                let effect = Effect::Renamed { id: *id, from: from.clone(), to: to.clone() };
                Ok(Checked::one(PartOutcome::InodeAtHome(Box::new(inode), refusal), effect))
            }
            IntentPart::Close(id) => {
                tablet.check_vanishing(*id)?;
                let is_split = tablet.range().is_split(*id);
                let servers = server.layout.server_count();
                Ok(Checked::one(
                    PartOutcome::DirectoryClosed { is_split, servers },
                    Effect::Vanish(*id),
                ))
            }
            IntentPart::Moves => Ok(Checked::new(PartOutcome::Possible)),
            IntentPart::Gather { moving, names } => {
                let effect = Effect::Gather(moving.entry.clone(), names.clone());
                let takes = moving.holds.clone();
                Ok(Checked { takes, ..Checked::one(PartOutcome::Possible, effect) })
            }
        }
    }
}

impl Checked {
    fn new(seen: PartOutcome) -> Self {
        let (effects, counts, takes) = (Vec::new(), Vec::new(), Vec::new());
        Checked { seen, effects, counts, takes, gives: None }
    }

    fn one(seen: PartOutcome, effect: Effect) -> Self {
        Checked { effects: vec![effect], ..Checked::new(seen) }
    }
}

impl Arriving {
    fn check(&self, server: &Server, caller: Caller<'_>) -> Result<Checked> {
        let tablet = &server.tablet;
        let arrival = Arrival {
            from: self.from.directory,
            from_project: self.from_project,
            to: self.to.borrowed(),
            mode: self.mode,
            moved: self.moved.as_ref(),
            other: self.other.as_ref(),
            refusal: self.refusal.map(Errno::from_raw_os_error),
            is_loop: self.is_loop,
            above: &self.above,
        };
        let arrived = tablet.check_arrival(caller, &arrival)?;
        let mut checked = Checked::new(PartOutcome::NameFree);
        match arrived {
            Arrived::Same => checked.seen = PartOutcome::SameFile,
            Arrived::Elsewhere(id, is_directory) => {
                checked.seen = PartOutcome::NeedsInode(id, is_directory);
            }
            Arrived::Free => checked.counts.push(self.to.counted(1)),
            Arrived::Replaces { record, inode } => {
                checked.effects.push(match self.mode {
                    RenameMode::Exchange => Effect::Take(self.to.clone(), record.id),
                    _ if record.is_pointer() => Effect::Take(self.to.clone(), record.id),
                    _ => Effect::Drop(self.to.clone(), record.id),
                });
                let back = match self.mode {
                    RenameMode::Exchange => {
                        let entry = tablet.entry(self.to.borrowed())?;
                        checked.gives = (!record.is_pointer()).then_some(record.id);
                        Some(Box::new(server.moving(entry)))
                    }
                    _ => None,
                };
                checked.seen = PartOutcome::NameTaken(inode, back);
            }
        }
        if checked.seen.is_prepared() {
            let MovingFile { entry, holds } = self.moving.clone().ok_or(Error::Unfit)?;
            checked.takes = holds;
            let entry = MovedEntry { name: self.to.name.clone(), ..entry };
            checked.effects.push(Effect::Put(self.to.directory, entry));
        }
        Ok(checked)
    }
}

impl LockKey {
    pub(crate) fn of(name: &OwnedName) -> Self {
        LockKey::Name(name.directory, name.borrowed().hash())
    }
}

impl Server {
    /// Returns an entry with the holds of its file, which is on its way to another server.
    pub(crate) fn moving(&self, entry: MovedEntry) -> MovingFile {
        let holds = match entry.inode.is_pointer() {
            true => Vec::new(),
            false => self.holds_of(&[entry.inode.id].into()),
        };
        MovingFile { entry, holds }
    }
}
