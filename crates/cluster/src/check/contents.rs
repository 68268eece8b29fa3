//! Reading the objects of contents, and comparing them with the checksums of their records. Some threads
//! read at once, each one object; so memory is bounded however large files are.

use super::{Check, Item, Items, Progress, SUSPECTS_MAX, Suspects, names_of};
use crate::contents::objects;
use crate::error::{Error, Result};
use canopy_namespace::{ChunkId, Fact, FileId, ObjectId};
use canopy_partition::ServerId;
use canopy_store::storage::Storage;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

/// Objects that are read at once.
const THREADS: usize = 8;

/// Objects that wait for these threads.
const WAITING: usize = 64;

/// Objects of chunks, by file.
pub(super) type Chunks = BTreeMap<FileId, BTreeSet<(u64, ObjectId)>>;

/// Objects that a check reads.
pub(super) enum Reads {
    /// Those of all chunks.
    All,
    /// These.
    Some(Chunks),
}

impl Reads {
    fn contains(&self, id: FileId, object: (u64, ObjectId)) -> bool {
        match self {
            Reads::All => true,
            Reads::Some(chunks) => chunks.get(&id).is_some_and(|of| of.contains(&object)),
        }
    }
}

/// Names of a file that is looked at again.
type Names = Arc<BTreeSet<(FileId, Vec<u8>)>>;

/// An object to read.
struct Wanted {
    chunk: ChunkId,
    object: ObjectId,
    bytes: u32,
    checksum: u64,
    names: Names,
}

/// Takes objects to read.
pub(super) struct Reader<'a> {
    reads: &'a Reads,
    sender: SyncSender<Wanted>,
}

impl Reader<'_> {
    /// Has the objects that records of a file name be read, soon.
    pub(super) fn read(&self, id: FileId, items: &Items) -> Result<()> {
        let mut names: Option<Names> = None;
        for (_, item) in items {
            let Item::Fact(Fact::Object { chunk, object, bytes, checksum }) = item else {
                continue;
            };
            if !self.reads.contains(id, (*chunk, *object)) {
                continue;
            }
            let names = names.get_or_insert_with(|| Arc::new(names_of(items))).clone();
            let chunk = ChunkId::new(id, *chunk);
            let (object, bytes, checksum) = (*object, *bytes, *checksum);
            let wanted = Wanted { chunk, object, bytes, checksum, names };
            self.sender.send(wanted).map_err(|_| Error::Unfit)?;
        }
        Ok(())
    }
}

impl Check<'_> {
    /// Reads the objects that `pass` hands over. Files with some that are not what their records say
    /// become suspects.
    pub(super) fn read_contents(
        &mut self,
        suspects: &mut Suspects,
        progress: &(dyn Fn(Progress) + Sync),
        pass: impl FnOnce(&mut Self, &Reader<'_>, &mut Suspects) -> Result<()>,
    ) -> Result<()> {
        let (sender, receiver) = sync_channel(WAITING);
        let (receiver, found) = (Mutex::new(receiver), Mutex::new(Vec::new()));
        let (done, all) = (AtomicU64::new(0), self.content_bytes);
        let (storage, reads) = (self.storage, self.reads);
        let note = |bytes: u32| {
            let bytes = done.fetch_add(bytes.into(), Ordering::Relaxed) + u64::from(bytes);
            progress(Progress::Contents { bytes, all });
        };
        let passed = thread::scope(|scope| {
            let work = || read_all(storage, &receiver, &found, &note);
            for _ in 0..THREADS {
                let named = thread::Builder::new().name("check-contents".into());
                let io =
                    |source| canopy_namespace::Error::Io { what: "start a thread".into(), source };
                named.spawn_scoped(scope, work).map_err(io)?;
            }
            // The threads end once the sender is gone.
            pass(self, &Reader { reads, sender }, suspects)
        });
        passed?;
        for Wanted { chunk, object, names, .. } in found.into_inner() {
            self.unsound.entry(chunk.file).or_default().insert((chunk.number, object));
            if suspects.len() < SUSPECTS_MAX {
                suspects.entry(chunk.file).or_default().extend(names.iter().cloned());
            }
        }
        Ok(())
    }

    /// Adds to the items of a file the objects that were not what their records said, and are not now.
    pub(super) fn read_again(&self, id: FileId, items: &mut Items) {
        let Some(unsound) = self.unsound.get(&id) else { return };
        let mut found = Vec::new();
        for (_, item) in &*items {
            if let Item::Fact(Fact::Object { chunk, object, bytes, checksum }) = item
                && unsound.contains(&(*chunk, *object))
                && let Err(error) = objects::read(
                    self.storage,
                    ChunkId::new(id, *chunk),
                    *object,
                    (*bytes, *checksum),
                )
            {
                let (is_damaged, why) = (error.is_damage(), error.to_string());
                let (chunk, object) = (*chunk, *object);
                found.push((ServerId(0), Item::Unsound { chunk, object, is_damaged, why }));
            }
        }
        items.append(&mut found);
    }
}

/// Reads objects until there are no more, and finds those that are not what their records say.
fn read_all(
    storage: &dyn Storage,
    receiver: &Mutex<Receiver<Wanted>>,
    found: &Mutex<Vec<Wanted>>,
    note: &dyn Fn(u32),
) {
    loop {
        let wanted = receiver.lock().recv();
        let Ok(wanted) = wanted else { return };
        let Wanted { chunk, object, bytes, checksum, .. } = &wanted;
        let read = objects::read(storage, *chunk, *object, (*bytes, *checksum));
        note(*bytes);
        if read.is_err() {
            let mut found = found.lock();
            if found.len() < SUSPECTS_MAX {
                found.push(wanted);
            }
        }
    }
}
