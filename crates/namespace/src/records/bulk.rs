//! Adding a whole tree at once, beside the log: threads of its own sort its records into SSTables,
//! and a single commit shows all of them. Until then nothing is seen of it, whatever happens; what
//! a crash leaves are SSTables and objects that nobody refers to, and both are removed later.
//!
//! The caller counts links: nothing is read here.

use crate::contents::chunks::ChunkId;
use crate::error::{Error, Result};
use crate::namespace::Namespace;
use crate::quota::{Account, Sums, Transaction};
use crate::records::change::is_recorded;
use crate::records::inode::{Inode, flag};
use crate::records::keys::{self, FileId, Space, check_name};
use crate::records::tablet::Writer;
use canopy_store::{Batch, Durability, Ingestion, IngestionPart};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

/// Records are handed to another thread so many bytes at a time, and so many times ahead.
const BATCH_BYTES: usize = 1 << 20;
const BATCHES: usize = 4;

/// Each thread sorts so many bytes of records at once: the more, the fewer runs there are.
const MEMORY_BYTES: u64 = 128 << 20;

/// Threads that sort and write, beside the one that adds.
const THREADS_MAX: usize = 2;

/// Ids of objects that are written to the log at a time.
const OBJECT_IDS: u64 = 1024;

/// Names, inodes and contents on their way into a namespace, which nobody changes meanwhile.
pub struct Bulk<'a> {
    namespace: &'a Namespace,
    writer: MutexGuard<'a, Writer>,
    ingestion: Ingestion,
    batch: Batch,
    batches: Option<SyncSender<Batch>>,
    /// Batches that can be filled again.
    emptied: Receiver<Batch>,
    threads: Vec<JoinHandle<canopy_store::Result<IngestionPart>>>,
    /// Ids that are on record as those of objects to be removed.
    doomed: Vec<Range<FileId>>,
    /// Those of them that have no object yet.
    object_ids: Range<FileId>,
    /// Objects that are not to be used.
    abandoned: Vec<FileId>,
    /// Usage of all files.
    sums: HashMap<Account, [u64; 2]>,
    /// Whether there may be objects of what a crash took away, apart from ours.
    has_strays: bool,
}

impl<'a> Bulk<'a> {
    /// Begins to add files to a namespace. Whoever else would change it waits.
    ///
    /// # Errors
    ///
    /// Fails with `NOSPC` or `DQUOT` if there is no room, and as the table and the disk do.
    pub fn begin(namespace: &'a Namespace) -> Result<Self> {
        namespace.flush_pending()?;
        namespace.tablet.reserve_ids()?;
        let writer = namespace.tablet.writer.lock();
        let ingestion = namespace.tablet.table.ingestion(MEMORY_BYTES)?;
        let (sender, receiver) = sync_channel(BATCHES);
        let receiver = Arc::new(Mutex::new(receiver));
        let (return_emptied, emptied) = channel();
        let count = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let threads = (0..count).map(|_| {
            let (part, batches) = (ingestion.part(), receiver.clone());
            let emptied = return_emptied.clone();
            std::thread::spawn(move || ingest(part, &batches, &emptied))
        });
        // Chunks that are sent for nothing are found when the namespace is opened again.
        let is_chunked = namespace.contents.chunks().is_some();
        let has_strays = namespace.has_strays.fetch_or(is_chunked, Ordering::AcqRel);
        Ok(Bulk {
            namespace,
            has_strays,
            writer,
            threads: threads.collect(),
            ingestion,
            batch: Batch::new(),
            batches: Some(sender),
            emptied,
            doomed: Vec::new(),
            object_ids: FileId::NONE..FileId::NONE,
            abandoned: Vec::new(),
            sums: HashMap::new(),
        })
    }

    /// Returns an id that no file ever had.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn new_id(&mut self) -> Result<FileId> {
        Ok(self.writer.ids.take(&self.namespace.tablet.table, 1)?.start)
    }

    /// Adds a file under its only name.
    ///
    /// # Errors
    ///
    /// Fails as storage does, and if records of an earlier call could not be written.
    pub fn add(&mut self, parent: FileId, name: &[u8], inode: &Inode) -> Result<()> {
        check_name(name)?;
        let batch = &mut self.batch;
        batch.put(keys::name_of(inode.id, parent, name).as_ref(), b"")?;
        self.namespace.tablet.write_inode_uncounted(
            batch,
            &keys::name_in(parent, name),
            None,
            inode,
        )?;
        self.namespace.tablet.index_name(batch, inode, None, Some(name), false)?;
        self.count(inode);
        self.hand_over_full()
    }

    /// Adds one of several names of a file.
    ///
    /// # Errors
    ///
    /// Fails as storage does, and if records of an earlier call could not be written.
    pub fn add_name(&mut self, parent: FileId, name: &[u8], id: FileId) -> Result<()> {
        check_name(name)?;
        let pointer = Inode::pointer(id);
        let batch = &mut self.batch;
        batch.put(keys::name_of(id, parent, name).as_ref(), b"")?;
        batch.put(keys::name_in(parent, name).as_ref(), &pointer.encode())?;
        self.namespace.tablet.index_name(batch, &pointer, None, Some(name), true)?;
        self.hand_over_full()
    }

    /// Adds the inode of a file with several names.
    ///
    /// # Errors
    ///
    /// Fails as storage does, and if records of an earlier call could not be written.
    pub fn add_linked(&mut self, inode: &Inode) -> Result<()> {
        let place = Space::Links.of(inode.id, b"");
        self.namespace.tablet.write_inode_uncounted(&mut self.batch, &place, None, inode)?;
        self.count(inode);
        self.hand_over_full()
    }

    fn count(&mut self, inode: &Inode) {
        if self.namespace.tablet.accounts.counts() {
            let mut sums = Sums::default();
            sums.add(inode);
            sums.add_to(&mut self.sums);
        }
    }

    /// Adds an extended attribute, which the inode then says that it has. `INVAL` if it is none
    /// that the file could have.
    ///
    /// # Errors
    ///
    /// Fails with `INVAL` or `TOOBIG` if the file could not have the attribute. Fails as storage
    /// does, and if records of an earlier call could not be written.
    pub fn add_xattr(&mut self, inode: &mut Inode, name: &[u8], value: &[u8]) -> Result<()> {
        if !is_recorded(&mut inode.mode, name, value)? {
            return Ok(());
        }
        inode.flags |= flag::XATTRS;
        self.batch.put(Space::Xattrs.of(inode.id, name).as_ref(), value)?;
        self.namespace.tablet.index_xattr(&mut self.batch, inode.id, name, None, Some(value))?;
        self.hand_over_full()
    }

    /// Returns how many bytes [`Bulk::add_contents`] takes.
    pub fn inline_bytes_max(&self) -> usize {
        self.namespace.tablet.configured().settings.inline_bytes_max
    }

    /// Adds the contents of a small file, which the inode then says that it has.
    ///
    /// # Errors
    ///
    /// Fails as storage does, and if records of an earlier call could not be written.
    pub fn add_contents(&mut self, inode: &mut Inode, bytes: &[u8]) -> Result<()> {
        inode.size = bytes.len() as u64;
        inode.blocks = inode.size.div_ceil(512);
        if bytes.is_empty() {
            return Ok(());
        }
        inode.flags |= flag::INLINE;
        self.batch.put(Space::Contents.of(inode.id, b"").as_ref(), bytes)?;
        self.hand_over_full()
    }

    /// Makes an object for the contents of a large file, and returns it with the file's id.
    ///
    /// # Errors
    ///
    /// Fails with `NOSPC` or `DQUOT` if there is no room, and as the table and the disk do.
    pub fn create_object(&mut self) -> Result<(FileId, File)> {
        if let Some(chunks) = self.namespace.contents.chunks() {
            let file = chunks.cache().new_nameless()?;
            return Ok((self.new_id()?, file));
        }
        if self.object_ids.is_empty() {
            self.object_ids = self.doom_ids()?;
        }
        let id = self.object_ids.start;
        self.object_ids.start = id.next();
        Ok((id, self.namespace.contents.create_object(id)?))
    }

    /// Has an object removed that is not to be used after all.
    pub fn abandon_object(&mut self, id: FileId) {
        if self.namespace.contents.chunks().is_some() {
            return;
        }
        self.abandoned.push(id);
    }

    /// Says that an inode's contents are the object that was made under its id.
    ///
    /// # Errors
    ///
    /// Fails as storage and the disk do, and if records of an earlier call could not be written.
    pub fn use_object(&mut self, inode: &mut Inode, object: &File) -> Result<()> {
        let metadata = object.metadata().map_err(Error::io("an object"))?;
        if let Some(chunks) = self.namespace.contents.chunks() {
            let sent = chunks.send_file(object, metadata.len())?;
            inode.size = metadata.len();
            inode.blocks =
                sent.iter().map(|(_, stored)| u64::from(stored.used).div_ceil(512)).sum();
            inode.flags |= flag::OBJECT;
            for (chunk, stored) in sent {
                let key = ChunkId::new(inode.id, chunk).key();
                self.batch.put(key.as_ref(), &stored.encode())?;
            }
            return self.hand_over_full();
        }
        (inode.size, inode.blocks) =
            (metadata.len(), std::os::unix::fs::MetadataExt::blocks(&metadata));
        inode.flags |= flag::OBJECT;
        Ok(())
    }

    /// Takes ids, and puts on record that their objects are to be removed, before there are any.
    /// What is on record outlasts a crash before the objects do.
    fn doom_ids(&mut self) -> Result<Range<FileId>> {
        let table = &self.namespace.tablet.table;
        let ids = self.writer.ids.take(table, OBJECT_IDS)?;
        let mut batch = Batch::new();
        self.writer.ids.put_end(&mut batch, ids.end)?;
        for id in FileId::each(ids.clone()) {
            batch.put(Space::Doomed.of(id, b"").as_ref(), b"")?;
        }
        table.write(&batch, Durability::Durable)?;
        while table.flush_frozen()? {}
        self.doomed.push(ids.clone());
        Ok(ids)
    }

    fn hand_over_full(&mut self) -> Result<()> {
        if self.batch.size_bytes() >= BATCH_BYTES { self.hand_over() } else { Ok(()) }
    }

    fn hand_over(&mut self) -> Result<()> {
        let emptied = self.emptied.try_recv().unwrap_or_default();
        let batch = std::mem::replace(&mut self.batch, emptied);
        let has_ended = self.threads.iter().any(JoinHandle::is_finished);
        match &self.batches {
            Some(batches) if !has_ended && batches.send(batch).is_ok() => Ok(()),
            // One of them says why.
            _ => self.end_threads(),
        }
    }

    /// Waits until the threads have written everything.
    fn end_threads(&mut self) -> Result<()> {
        self.batches = None;
        for thread in self.threads.drain(..) {
            let part = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            self.ingestion.join(part)?;
        }
        Ok(())
    }

    /// Shows all that was added, and gives `directory`, which was there before, its new inode. All
    /// of it outlasts a crash then.
    ///
    /// # Errors
    ///
    /// Fails with `NOSPC` or `DQUOT` if there is no room, and as the table and the disk do.
    pub fn commit(mut self, directory: &Inode) -> Result<()> {
        let (place, before) = self.namespace.tablet.locate(directory.id)?;
        self.namespace.tablet.write_inode_uncounted(
            &mut self.batch,
            &place,
            Some(&before),
            directory,
        )?;
        let mut change = Transaction::new();
        if self.namespace.tablet.accounts.counts() {
            change.sums.subtract(&before);
            change.sums.add(directory);
            change.sums.add_all(&self.sums);
        }
        let usage =
            self.namespace.tablet.accounts.admit(&mut change, self.namespace.tablet.now_ns())?;
        self.hand_over()?;
        self.end_threads()?;
        let mut last = Batch::new();
        self.writer.ids.put_end(&mut last, FileId::NONE)?;
        self.ingestion.add_batch(&last)?;
        self.ingestion.add_batch(&change)?;
        for id in self.doomed.iter().cloned().flat_map(FileId::each) {
            last.clear();
            last.delete(Space::Doomed.of(id, b"").as_ref())?;
            self.ingestion.add_batch(&last)?;
        }
        for id in &self.abandoned {
            last.clear();
            last.put(Space::Doomed.of(*id, b"").as_ref(), b"")?;
            self.ingestion.add_batch(&last)?;
        }
        if !self.doomed.is_empty() {
            self.namespace.contents.sync_all()?;
        }
        // Records in the log would be newer than the ingested ones.
        self.namespace.tablet.table.flush()?;
        self.ingestion.commit()?;
        self.namespace.tablet.table.refresh()?;
        self.namespace.tablet.accounts.adopt(usage);
        self.namespace.has_strays.store(self.has_strays, Ordering::Release);
        drop(self.writer);
        self.namespace.sync()
    }
}

/// Adds batches to a part until there are no more, and writes it out.
fn ingest(
    mut part: IngestionPart,
    batches: &Mutex<Receiver<Batch>>,
    emptied: &Sender<Batch>,
) -> canopy_store::Result<IngestionPart> {
    loop {
        let received = batches.lock().recv();
        match received {
            Ok(mut batch) => {
                part.add_batch(&batch)?;
                batch.clear();
                // The caller may not need them any more.
                let _ = emptied.send(batch);
            }
            Err(_) => break,
        }
    }
    part.write_out()?;
    Ok(part)
}
