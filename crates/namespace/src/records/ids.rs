//! The ids of new files. A table counts within blocks of ids that storage has given it alone
//! ([`canopy_store::reserve_numbers`]), so that no two files of a storage ever have one id, whatever
//! is cloned or merged.
//!
//! - Blocks from 0 to 65,535 go to one table as a whole: the namespace's own. Ids of namespaces that
//!   are older than blocks lie there, and go on there.
//! - Later blocks go to tables 16 at a time. 17 billion blocks are enough for a billion clones.
//! - A clone inherits the record of its parent, which names the parent. So it reserves blocks of its
//!   own before its first new file, behind all that it inherited: later files of one history have
//!   larger ids.
//!
//! Blocks are reserved ahead, while half a block is left, without the lock of writers. A crash wastes
//! them at most.

#[cfg(test)]
mod tests;

use crate::error::{Error, Result};
use crate::records::keys::{self, Block, FileId, ROOT, Space};
use crate::records::tablet::Tablet;
use crate::settings::table_of;
use canopy_store::storage::Storage;
use canopy_store::{
    Batch, Direction, Durability, RunLayout, Table, TableId, owner_of_numbers, reserve_numbers,
};
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The table has a record of so many ids at a time.
const RECORDED: u64 = 1 << 16;

/// Where blocks lie that are reserved, and how many ids of each are used. Tests use few.
#[derive(Clone, Debug)]
pub(crate) struct IdLayout {
    /// The blocks of the first table of a storage.
    first: RunLayout,
    /// The blocks of all others, and of the first one once it has used up its own.
    others: RunLayout,
    /// New files get so many ids of each block.
    per_block: u64,
}

impl Default for IdLayout {
    fn default() -> Self {
        let first = 1 << 16;
        IdLayout {
            first: RunLayout { numbers: 0..first, run: first },
            others: RunLayout { numbers: first..Block::END.0, run: 16 },
            per_block: Block::IDS,
        }
    }
}

/// Contents of the record of ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IdsRecord {
    /// No file has this id or a larger one.
    pub(crate) end: FileId,
    /// The table that has reserved blocks, by its number; none in records that are older than blocks.
    owner: Option<u128>,
    /// Those blocks, the last ones that it has reserved.
    blocks: Range<Block>,
}

impl IdsRecord {
    /// Reads a record; none where there is none.
    pub(crate) fn decode(value: Option<&[u8]>) -> Result<Option<Self>> {
        let Some(value) = value else { return Ok(None) };
        Self::parse(value).map(Some).ok_or_else(|| Error::corrupt("the ids"))
    }

    fn parse(value: &[u8]) -> Option<Self> {
        let (end, rest) = value.split_first_chunk()?;
        let end = FileId::from_be_bytes(*end);
        if rest.is_empty() {
            let end = end.min(FileId::MAX);
            return Some(IdsRecord { end, owner: None, blocks: Block(0)..Block(0) });
        }
        let (owner, rest) = rest.split_first_chunk()?;
        let (start, rest) = rest.split_first_chunk()?;
        let blocks = Block(u64::from_be_bytes(*start))..Block(keys::parse_number(rest)?);
        let is_sound = blocks.start < blocks.end
            && blocks.end <= Block::END
            && (blocks.start.first_id()..=blocks.end.first_id()).contains(&end);
        is_sound.then_some(IdsRecord { end, owner: Some(u128::from_be_bytes(*owner)), blocks })
    }

    /// Returns the blocks that the owner has reserved last.
    pub(crate) fn own_blocks(self) -> Option<Range<Block>> {
        self.owner.map(|_| self.blocks)
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = self.end.to_be_bytes().to_vec();
        if let Some(owner) = self.owner {
            bytes.extend_from_slice(&owner.to_be_bytes());
            for Block(block) in [self.blocks.start, self.blocks.end] {
                bytes.extend_from_slice(&block.to_be_bytes());
            }
        }
        bytes
    }
}

/// How a table came to its record of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// There is none: no file was made, or what says so was lost.
    Unknown,
    /// It is older than blocks.
    Older,
    /// It names blocks, of this table or another one.
    OfBlocks,
}

/// The ids that a table has for new files. The writer's lock guards it.
pub(crate) struct Ids {
    layout: IdLayout,
    owner: u128,
    /// No file of this history has this id or a larger one.
    next: FileId,
    /// New files may have smaller ids: the table has a record of them.
    recorded: FileId,
    /// Blocks of this table. Earlier ones are used up.
    blocks: Range<Block>,
    /// Blocks of this table for later.
    ahead: Option<Range<Block>>,
    /// Origin of the blocks that the table had when it was opened.
    origin: Origin,
    /// Once no more ids are left than these, blocks are reserved ahead.
    reserve_at: u64,
    /// Whether that is so, for those who have no lock.
    shortage: Arc<AtomicBool>,
}

impl Ids {
    /// Returns the ids of a table that is open.
    pub(crate) fn open(table: &Table, layout: IdLayout) -> Result<Self> {
        let found = IdsRecord::decode(table.get(keys::ids().as_ref())?.as_deref())?;
        let owner = table.id().0;
        let origin = match &found {
            None => Origin::Unknown,
            Some(found) if found.owner.is_none() => Origin::Older,
            Some(_) => Origin::OfBlocks,
        };
        let next = found.as_ref().map_or(ROOT.next(), |found| found.end);
        let mut ids = Ids {
            reserve_at: layout.per_block / 2,
            owner,
            next,
            recorded: next,
            blocks: next.block()..next.block(),
            ahead: None,
            origin,
            shortage: Arc::default(),
            layout,
        };
        if let Some(found) = found.filter(|found| found.owner == Some(owner)) {
            ids.blocks = found.blocks;
        } else if table.is_read_only() {
            // Nothing that happens in memory lasts.
            ids.blocks.end = Block::END;
        }
        ids.note_shortage();
        Ok(ids)
    }

    /// Returns the id that no file of this history has, nor any larger one.
    pub(crate) fn end(&self) -> FileId {
        self.next
    }

    /// Returns where ids end that are in the block of the next one.
    fn block_end(&self) -> FileId {
        match self.blocks.contains(&self.next.block()) {
            true => FileId(self.next.block().first_id().0 + self.layout.per_block),
            false => self.next,
        }
    }

    /// Returns how many ids are left, but for blocks that are reserved ahead.
    fn left(&self) -> u64 {
        let block = self.block_end().0.saturating_sub(self.next.0);
        let later = self.blocks.end.0.saturating_sub(self.next.block().0 + 1);
        block.saturating_add(later.saturating_mul(self.layout.per_block))
    }

    fn is_short(&self) -> bool {
        self.ahead.is_none() && self.left() <= self.reserve_at
    }

    fn note_shortage(&self) {
        self.shortage.store(self.is_short(), Ordering::Relaxed);
    }

    /// Goes on with ids behind `count` of them, all in one block, and returns these. They are not on
    /// record yet.
    pub(crate) fn take(&mut self, table: &Table, count: u64) -> Result<Range<FileId>> {
        if count > self.layout.per_block {
            return Err(Errno::INVAL.into());
        }
        while self.next.0 + count > self.block_end().0 {
            self.go_to_next_block(table)?;
        }
        let start = self.next;
        self.next = FileId(start.0 + count);
        Ok(start..self.next)
    }

    /// Leaves the rest of a block, for the next one of this table.
    fn go_to_next_block(&mut self, table: &Table) -> Result<()> {
        let next = self.next.block().next();
        if self.blocks.contains(&self.next.block()) && next < self.blocks.end {
            self.next = next.first_id();
            return Ok(());
        }
        let blocks = match self.ahead.take() {
            Some(ahead) => ahead,
            None => self.wanted().reserve(table)?,
        };
        self.begin(blocks);
        Ok(())
    }

    /// Goes on in other blocks.
    fn begin(&mut self, blocks: Range<Block>) {
        self.next = self.next.max(blocks.start.first_id());
        (self.recorded, self.blocks, self.origin) = (self.next, blocks, Origin::OfBlocks);
        self.reserve_at = self.layout.per_block / 2;
        self.note_shortage();
    }

    /// Returns which blocks could be reserved now.
    fn wanted(&self) -> WantedBlocks {
        let behind = match self.next.0.checked_sub(1) {
            Some(last) => FileId(last).block().next(),
            None => Block(0),
        };
        WantedBlocks {
            layout: self.layout.clone(),
            origin: self.origin,
            next: self.next.block(),
            from: behind.max(self.blocks.end),
        }
    }

    /// Adds blocks that were reserved ahead. Returns whether ids of them are taken from now on.
    fn add(&mut self, blocks: Range<Block>) -> bool {
        // Somebody may have been faster: then they are wasted.
        if self.ahead.is_some() || blocks.end <= self.blocks.end {
            return false;
        }
        let is_out = self.left() == 0;
        match is_out {
            true => self.begin(blocks),
            false => self.ahead = Some(blocks),
        }
        self.note_shortage();
        is_out
    }

    /// Tries again later to reserve blocks ahead.
    fn put_off(&mut self) {
        self.reserve_at = self.left() / 2;
        self.note_shortage();
    }

    /// Returns what says, without a lock, whether blocks should be reserved.
    pub(crate) fn shortage(&self) -> Arc<AtomicBool> {
        self.shortage.clone()
    }

    /// Returns an id that no file ever had, after the table has a record of it.
    pub(crate) fn new_id(&mut self, table: &Table) -> Result<FileId> {
        // Ids that were taken and given up again may lie beyond.
        if self.next >= self.recorded {
            self.record_more(table)?;
        }
        self.take(table, 1).map(|ids| ids.start)
    }

    #[cold]
    fn record_more(&mut self, table: &Table) -> Result<()> {
        while self.next >= self.block_end() {
            self.go_to_next_block(table)?;
        }
        let end = FileId(self.next.0.saturating_add(RECORDED)).min(self.block_end());
        let (mut batch, recorded) = (Batch::new(), self.recorded);
        self.put_end(&mut batch, end)?;
        if let Err(error) = table.write(&batch, Durability::Visible) {
            // A file with an id that is not recorded could lose it to another one.
            self.recorded = recorded;
            return Err(error.into());
        }
        Ok(())
    }

    /// Adds to `batch`, which is to be written, that all ids taken so far are, and those below `end`.
    /// They are in blocks of the table.
    pub(crate) fn put_end(&mut self, batch: &mut Batch, end: FileId) -> Result<()> {
        if self.blocks.is_empty() {
            // None were taken.
            return Ok(());
        }
        self.recorded = end.max(self.next).max(self.recorded);
        self.note_shortage();
        let record =
            IdsRecord { end: self.recorded, owner: Some(self.owner), blocks: self.blocks.clone() };
        Ok(batch.put(keys::ids().as_ref(), &record.encode())?)
    }

    /// Reserves the run that a block lies in, for this table. Returns whether nobody had it.
    pub(crate) fn claim(&self, table: &Table, Block(block): Block) -> Result<bool> {
        let is_first = self.layout.first.numbers.contains(&block);
        let layout = if is_first { &self.layout.first } else { &self.layout.others };
        let runs = block.saturating_sub(layout.numbers.start) / layout.run;
        let start = layout.numbers.start + runs * layout.run;
        let one = RunLayout { numbers: start..start + layout.run, run: layout.run };
        Ok(table.reserve_numbers(&one, start)?.is_some())
    }

    /// Adds to `batch` the record that there is now, with all ids that were taken.
    pub(crate) fn put_record(&mut self, table: &Table, batch: &mut Batch) -> Result<()> {
        match table.get(keys::ids().as_ref())? {
            Some(record) if self.blocks.is_empty() => Ok(batch.put(keys::ids().as_ref(), &record)?),
            _ => self.put_end(batch, FileId::NONE),
        }
    }

    /// Sees to it that new files get ids from `end` on, or from later ones. The table has no record
    /// of that yet.
    pub(crate) fn skip_to(&mut self, table: &Table, end: FileId) -> Result<()> {
        if end <= self.next {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.next, end);
        while self.next >= self.block_end() {
            if let Err(error) = self.go_to_next_block(table) {
                self.next = before;
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Returns the table that has reserved a block; nothing if none has.
///
/// # Errors
///
/// Fails as storage does, and if the object that says so is damaged.
pub fn table_of_block(storage: &dyn Storage, block: Block) -> Result<Option<TableId>> {
    let IdLayout { first, others, .. } = IdLayout::default();
    let layout = if first.numbers.contains(&block.0) { first } else { others };
    let start = block.0 - (block.0 - layout.numbers.start) % layout.run;
    Ok(owner_of_numbers(storage, &(start..start + layout.run))?)
}

/// Blocks that could be reserved.
struct WantedBlocks {
    layout: IdLayout,
    origin: Origin,
    /// The block of the next id.
    next: Block,
    /// Others begin here or behind.
    from: Block,
}

impl WantedBlocks {
    /// Reserves blocks. `NOSPC` if there are none.
    fn reserve(self, table: &Table) -> Result<Range<Block>> {
        // Where ids end behind the first blocks, nobody else may have these nevertheless.
        let first = self.first_blocks(table)?.filter(|first| first.contains(&self.next.0));
        let reserved = match first {
            Some(first) => Some(first),
            None => table.reserve_numbers(&self.layout.others, self.from.0)?,
        };
        let reserved = reserved.ok_or(Errno::NOSPC)?;
        Ok(Block(reserved.start)..Block(reserved.end))
    }

    /// Returns the first blocks if they are this table's. A clone that inherits ids in them reserves
    /// them for the namespace, so that nobody else gets them.
    fn first_blocks(&self, table: &Table) -> Result<Option<Range<u64>>> {
        let environment = table.environment();
        let named = match table_of(&*environment.storage) {
            _ if self.origin == Origin::OfBlocks => return Ok(None),
            Err(Error::Invalid(_)) => return Ok(None),
            named => named?,
        };
        let is_own = named == table.id() && table.manifest().state.parents.is_empty();
        if !is_own && self.origin != Origin::Older {
            return Ok(None);
        }
        let reserved = reserve_numbers(environment, named, &self.layout.first, 0)?;
        if reserved.is_some() || !is_own {
            return Ok(reserved.filter(|_| is_own));
        }
        let first = self.layout.first.numbers.clone();
        match owner_of_numbers(&*environment.storage, &first) {
            Ok(Some(owner)) if owner == named => {}
            // Nobody knows whose they are. There are others.
            Ok(_) | Err(canopy_store::Error::Corrupt { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        // Nothing was written with ids of them: a process died, or a clone has reserved them.
        let is_unused = || Ok::<_, Error>(self.origin == Origin::Older || has_no_files(table)?);
        Ok(is_unused()?.then_some(first))
    }
}

/// Returns whether a table has nothing but a root.
fn has_no_files(table: &Table) -> Result<bool> {
    let names = Space::Names.range();
    Ok(table.scan(&names, Direction::Forward)?.next()?.is_none())
}

impl Tablet {
    /// Reserves blocks of ids if few are left, while others hold the lock of writers. An error says
    /// that none are left.
    pub(crate) fn reserve_ids(&self) -> Result<()> {
        if !self.id_shortage.load(Ordering::Relaxed) || self.table.is_read_only() {
            return Ok(());
        }
        self.reserve_ids_now()
    }

    #[cold]
    fn reserve_ids_now(&self) -> Result<()> {
        let _reserving = self.reserving_ids.lock();
        let wanted = {
            let ids = &self.writer.lock().ids;
            ids.note_shortage();
            if !ids.is_short() {
                return Ok(());
            }
            ids.wanted()
        };
        let reserved = wanted.reserve(&self.table);
        let mut writer = self.writer.lock();
        let ids = &mut writer.ids;
        let blocks = match reserved {
            Err(error) if ids.left() == 0 => return Err(error),
            Err(_) => {
                ids.put_off();
                return Ok(());
            }
            Ok(blocks) => blocks,
        };
        if ids.add(blocks) {
            let (mut batch, next) = (Batch::new(), ids.next);
            ids.put_end(&mut batch, next)?;
            self.table.write(&batch, Durability::Visible)?;
            drop(writer);
            // A crash before that wastes the blocks.
            let _ = self.table.sync();
        }
        Ok(())
    }
}
