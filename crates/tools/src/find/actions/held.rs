//! Entries that wait until all are there to be put in order. Where only the first so many are acted
//! on (`--limit`), no more than twice as many wait: those behind the last of them are let go.

use super::order::{Sortable, first, precedes};
use crate::find::evaluation::{Chunk, ChunkRow};
use crate::find::language::Globals;
use std::sync::Arc;

/// Entries that wait, one by one.
pub(crate) struct Held<T> {
    rows: Vec<T>,
    /// The place of the last of the first ones, once there were enough.
    last: Option<usize>,
}

/// Rows of the index that wait.
#[derive(Default)]
pub(super) struct HeldChunks {
    chunks: Vec<Chunk>,
    rows: usize,
    /// The last of the first ones, once there were enough, alone.
    last: Option<Arc<Chunk>>,
}

/// Returns how many of the entries that wait are acted on, if that is limited.
fn limit(globals: &Globals) -> Option<usize> {
    // With none the search ends before anything waits.
    globals.limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX).max(1))
}

impl<T> Default for Held<T> {
    fn default() -> Self {
        Held { rows: Vec::new(), last: None }
    }
}

impl<T: Sortable> Held<T> {
    /// Adds an entry, if it may be acted on.
    pub(crate) fn push(&mut self, row: T, globals: &Globals) {
        if self.last.is_some_and(|last| !precedes(&row, &self.rows[last], globals)) {
            return;
        }
        self.rows.push(row);
        if let Some(limit) = limit(globals).filter(|limit| self.rows.len() / 2 >= *limit) {
            self.cut(limit, globals);
        }
    }

    fn cut(&mut self, limit: usize, globals: &Globals) {
        let mut numbers = first(&self.rows, limit, globals);
        let last = numbers[limit - 1];
        numbers.sort_unstable();
        self.last = numbers.binary_search(&last).ok();
        let (mut at, mut kept) = (0, numbers.into_iter().peekable());
        self.rows.retain(|_| {
            at += 1;
            kept.next_if_eq(&(at - 1)).is_some()
        });
    }

    /// Returns the entries that wait.
    pub(crate) fn into_rows(self) -> Vec<T> {
        self.rows
    }
}

impl HeldChunks {
    /// Returns a row behind which none is acted on, alone.
    pub(super) fn last(&self) -> Option<Arc<Chunk>> {
        self.last.clone()
    }

    /// Adds rows.
    pub(super) fn push(&mut self, chunk: Chunk, globals: &Globals) {
        self.rows += chunk.len();
        self.chunks.push(chunk);
        if let Some(limit) = limit(globals).filter(|limit| self.rows / 2 >= *limit) {
            self.cut(limit, globals);
        }
    }

    fn cut(&mut self, limit: usize, globals: &Globals) {
        let rows: Vec<ChunkRow<'_>> = self.chunks.iter().flat_map(Chunk::each).collect();
        let mut numbers = first(&rows, limit, globals);
        let last = rows[numbers[limit - 1]];
        let last = last.chunk.keep(&[last.at]);
        numbers.sort_unstable();
        let (mut kept, mut before) = (Vec::new(), 0);
        let mut numbers = numbers.into_iter().peekable();
        for chunk in &self.chunks {
            let mut places = Vec::new();
            while let Some(number) = numbers.next_if(|number| number - before < chunk.len()) {
                places.push(number - before);
            }
            before += chunk.len();
            if places.len() == chunk.len() {
                kept.push(chunk.clone());
            } else if !places.is_empty() {
                kept.push(chunk.keep(&places));
            }
        }
        (self.chunks, self.rows, self.last) = (kept, limit, Some(Arc::new(last)));
    }

    /// Takes the chunks that wait.
    pub(super) fn take(&mut self) -> Vec<Chunk> {
        std::mem::take(&mut self.chunks)
    }
}

/// Returns the rows of a chunk that may be acted on: no more than the limit, and none behind
/// `last`.
pub(super) fn leading(chunk: Chunk, last: Option<&Chunk>, globals: &Globals) -> Option<Chunk> {
    let Some(limit) = limit(globals) else { return Some(chunk) };
    let may_act = |row: &ChunkRow<'_>| {
        last.is_none_or(|last| precedes(row, &ChunkRow { chunk: last, at: 0 }, globals))
    };
    let mut places: Vec<usize> = chunk.each().filter(may_act).map(|row| row.at).collect();
    if places.len() > limit {
        let rows: Vec<ChunkRow<'_>> =
            places.iter().map(|&at| ChunkRow { chunk: &chunk, at }).collect();
        places = first(&rows, limit, globals).into_iter().map(|number| places[number]).collect();
    }
    match places.len() {
        0 => None,
        count if count == chunk.len() => Some(chunk),
        _ => Some(chunk.keep(&places)),
    }
}
