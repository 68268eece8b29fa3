//! Imports: listings that other scanners wrote become a source.

use crate::Context;
use crate::observer::{Progress, with_progress};
use crate::publishing::{end_if_cancelled, publish, warn_of};
use crate::sinks::Shards;
use crate::sources::{ListingSource, SourceRun};
use canopy_index::{NewSource, Published, Writer, WriterOptions};
use canopy_model::Approach;
use canopy_read::to_path;
use canopy_scan::{Counts, ScanOptions};
use std::path::Path;

/// The result of an import.
pub struct Imported<S> {
    /// The generation.
    pub published: Published,
    /// The source that was imported.
    pub source: S,
    /// Whether users see all entries that the source would show them, and derived tables are
    /// complete.
    pub is_complete: bool,
}

/// Lists a source and publishes it as one generation. `open` opens it, and returns its root, escaped.
///
/// # Errors
///
/// Those of `open`, [`Interrupted`](crate::Interrupted), and errors of the source and the index.
pub fn import<S: ListingSource>(
    cx: &Context<'_>,
    location: &Path,
    options: WriterOptions,
    name: Option<String>,
    progress: &dyn Progress,
    open: impl FnOnce() -> anyhow::Result<(S, String)>,
) -> anyhow::Result<Imported<S>> {
    let threads = options.threads;
    let mut writer = Writer::open(location, options)?;
    let add = || {
        let (source, root) = open()?;
        add(cx, &mut writer, &source, name, root)?;
        anyhow::Ok(source)
    };
    let added = with_progress(cx.observer, progress, add);
    let mut writer = end_if_cancelled(cx, writer)?;
    let source = added?;
    let are_complete = match cx.derived {
        Some(derived) => derived.refresh(&mut writer, threads)?,
        None => true,
    };
    let published = publish(cx, writer)?;
    let is_complete = warn_of(cx, &published) && are_complete;
    Ok(Imported { published, source, is_complete })
}

fn add(
    cx: &Context<'_>,
    writer: &mut Writer,
    source: &dyn ListingSource,
    name: Option<String>,
    root: String,
) -> anyhow::Result<()> {
    let (attributes, dev) = source.about();
    let approach = source.approach(Approach::EVERYONE, writer.classes());
    let xattrs = source.xattrs(approach.audience, writer.classes())?;
    let begun = writer.add_source(NewSource {
        name,
        root: root.clone(),
        dev,
        scanned_ns: (cx.clock)(),
        attributes,
        approach: approach.clone(),
        xattrs,
        scan: None,
    })?;
    let run = SourceRun {
        options: &ScanOptions::default(),
        classes: writer.classes(),
        part: None,
        counts: &Counts::default(),
        on_error: &|_| {},
    };
    let sinks = Shards::of(writer.shard_writers(begun), cx.cancel);
    let sinks = source.list(&to_path(&root), &approach, &run, sinks)?;
    Ok(writer.finish_shards(Shards::writers(sinks))?)
}
