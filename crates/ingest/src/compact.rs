//! Compaction: shards with many dead rows, and many small shards, are rewritten.

use crate::Context;
use crate::observer::with_progress;
use crate::publishing::{end_if_cancelled, publish};
use canopy_index::{Compacted, Due, Index, Retention, Writer, WriterOptions};
use canopy_model::Generation;
use std::path::Path;
use std::time::Duration;

/// Rows that are rewritten at a time, for a second or a few: meanwhile, nothing else can be written.
const ROWS_MAX: usize = 2 << 20;

/// A compaction that a caller asks for.
#[derive(Clone, Debug)]
pub struct CompactRequest {
    /// Whether only due shards are rewritten.
    pub only_due: bool,
    /// Whether one portion is enough, of a second or a few.
    pub once: bool,
    /// Older generations to keep from now on.
    pub retention: Option<Retention>,
    /// Whether replaced files are removed at once.
    pub replaces: bool,
    /// Threads that write.
    pub threads: usize,
    /// Memory for building, in bytes.
    pub memory_bytes: usize,
}

/// One generation of a compaction.
pub enum Portion {
    /// Shards were rewritten.
    Rewritten(Generation, Compacted),
    /// Nothing was, but older generations are kept in another way from now on.
    Kept(Generation),
}

/// Rewrites an index, portion by portion; `done` gets each that is published.
///
/// # Errors
///
/// [`Interrupted`](crate::Interrupted), errors of the index, and those of `done`.
pub fn compact(
    cx: &Context<'_>,
    location: &Path,
    request: &CompactRequest,
    mut done: impl FnMut(Portion) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let known = Index::open(location)?.retention().clone();
    let options = WriterOptions {
        memory_bytes: request.memory_bytes,
        threads: request.threads,
        keep_replaced: !request.replaces,
        retention: request.retention.clone(),
        ..WriterOptions::default()
    };
    let mut changes_retention = request.retention.as_ref().is_some_and(|keep| *keep != known);
    let due = if request.only_due { Due::Now } else { Due::Any };
    loop {
        let mut writer = Writer::open(location, options.clone())?;
        let compact = || writer.compact(due, ROWS_MAX, || cx.cancel.is_requested());
        let line = |_: Duration| "shards are written anew".to_owned();
        let compacted = with_progress(cx.observer, &line, compact)?;
        let writer = end_if_cancelled(cx, writer)?;
        let is_something = |it: &Compacted| it.shards + it.sealed > 0;
        let Some(compacted) = compacted.filter(is_something) else {
            if changes_retention {
                let published = publish(cx, writer)?;
                done(Portion::Kept(published.generation))?;
            }
            return Ok(());
        };
        let published = publish(cx, writer)?;
        changes_retention = false;
        let is_last = request.once || !compacted.is_partial;
        done(Portion::Rewritten(published.generation, compacted))?;
        if is_last {
            return Ok(());
        }
    }
}
