//! Bytes that are set aside for a file while it is written: how many it takes is known afterwards.

use super::{Account, Accounts, BLOCK_BYTES};
use crate::contents::object::Object;
use crate::contents::{Inline, Opened, seek};
use crate::error::{Error, Result};
use crate::namespace::Namespace;
use crate::records::change::Privileges;
use rustix::io::Errno;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// Unit in which file systems allocate space, in bytes.
const UNIT_BYTES: u64 = 4096;

/// Most parts of an object that are looked at; if there are more, all of it counts as holes.
const SEEKS_MAX: usize = 1024;

/// Bytes that are given back when this is dropped.
pub(crate) struct Reservation {
    accounts: Arc<Accounts>,
    of: Vec<Account>,
    bytes: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.accounts.state.lock();
        for account in &self.of {
            if let Some(reserved) = state.reserved.get_mut(account) {
                *reserved = reserved.saturating_sub(self.bytes);
                if *reserved == 0 {
                    state.reserved.remove(account);
                }
            }
        }
    }
}

impl Reservation {
    /// Takes on what another one of the same accounts has set aside; gives it back if there are
    /// others.
    pub(crate) fn join(&mut self, mut other: Self) -> Option<Self> {
        if other.of != self.of {
            return Some(other);
        }
        self.bytes += std::mem::take(&mut other.bytes);
        None
    }
}

impl Namespace {
    /// Sets bytes aside for an open file that gets at least a size, and `data` in it;
    /// none if no limit concerns it. `EDQUOT` if that would pass one. The caller has the lock of `inline`.
    pub(crate) fn reserve(
        &self,
        opened: &Opened,
        inline: &Inline,
        size: u64,
        data: Range<u64>,
        privileges: Privileges<'_>,
    ) -> Result<Option<Reservation>> {
        if !self.tablet.accounts.counts() {
            return Ok(None);
        }
        let of = self.tablet.accounts.limited(&self.tablet.inode(opened.id)?);
        if of.is_empty() {
            return Ok(None);
        }
        let length = inline.bytes.len() as u64;
        let taken = length.div_ceil(BLOCK_BYTES) * BLOCK_BYTES;
        let bytes = match opened.object() {
            Some(Object::File(object)) => growth(object, data.start, data.end)?,
            Some(Object::Chunks(chunked)) => chunked.growth(data.start, data.end)?,
            None if size <= self.tablet.configured().settings.inline_bytes_max as u64 => {
                (size.div_ceil(BLOCK_BYTES) * BLOCK_BYTES).saturating_sub(taken)
            }
            // The contents move into an object.
            None => {
                let needed = units(0, length).saturating_add(units(data.start, data.end));
                needed.min(units(0, data.end.max(length))).saturating_sub(taken)
            }
        };
        let is_bound = !matches!(privileges, Privileges::Keep);
        let now_ns = self.tablet.now_ns();
        let mut state = self.tablet.accounts.state.lock();
        if is_bound {
            for account in &of {
                let usage = state.usage.get(account).copied().unwrap_or_default();
                state.check(*account, &usage, [bytes, 0], now_ns)?;
            }
        }
        for account in &of {
            *state.reserved.entry(*account).or_default() += bytes;
        }
        drop(state);
        Ok(Some(Reservation { accounts: self.tablet.accounts.clone(), of, bytes }))
    }

    /// Returns whether the bytes of a file's owner, group or tree have a limit, so that nobody may
    /// write it unasked.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such file, and as the table does.
    pub fn is_limited(&self, id: crate::FileId) -> Result<bool> {
        if !self.tablet.accounts.counts() {
            return Ok(false);
        }
        Ok(!self.tablet.accounts.limited(&self.tablet.inode(id)?).is_empty())
    }
}

/// Returns the bytes of the units that a range touches.
fn units(start: u64, end: u64) -> u64 {
    if start >= end {
        return 0;
    }
    let first = start / UNIT_BYTES * UNIT_BYTES;
    end.div_ceil(UNIT_BYTES).saturating_mul(UNIT_BYTES).saturating_sub(first)
}

/// Returns how many bytes more an object takes at most when it gets data in a range: no more than
/// there are holes, and no more than a file of that size takes without any.
fn growth(object: &File, offset: u64, end: u64) -> Result<u64> {
    if offset >= end {
        return Ok(0);
    }
    let metadata = object.metadata().map_err(Error::io("an object"))?;
    let whole = units(0, metadata.len().max(end));
    let limit = whole.saturating_sub(metadata.blocks().saturating_mul(BLOCK_BYTES));
    let (mut at, mut holes) = (offset / UNIT_BYTES * UNIT_BYTES, 0u64);
    for _ in 0..SEEKS_MAX {
        if at >= end || holes >= limit {
            return Ok(holes.min(limit));
        }
        let data = match seek(object, false, at) {
            Ok(data) => data.min(end),
            // There is no more.
            Err(Error::Posix(Errno::NXIO)) => end,
            Err(error) => return Err(error),
        };
        holes += units(at, data.max(at));
        if data >= end {
            return Ok(holes.min(limit));
        }
        at = seek(object, true, data)?.div_ceil(UNIT_BYTES) * UNIT_BYTES;
    }
    Ok(limit)
}
