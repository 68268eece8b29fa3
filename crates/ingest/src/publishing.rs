//! The end of a run: a new generation, and warnings about it.

use crate::{Context, Interrupted};
use canopy_index::{Published, Writer};
use canopy_site::Source;
use canopy_text::counted;

/// Drops a writer, with all that it wrote, if the run is to end.
///
/// # Errors
///
/// [`Interrupted`] then.
pub fn end_if_cancelled(cx: &Context<'_>, writer: Writer) -> Result<Writer, Interrupted> {
    if cx.cancel.is_requested() {
        cx.cancel.finish();
        drop(writer);
        return Err(Interrupted { continued: None });
    }
    Ok(writer)
}

/// Publishes a new generation; nothing interrupts that.
///
/// # Errors
///
/// [`Interrupted`] if the run was to end before, and errors of the index.
pub fn publish(cx: &Context<'_>, writer: Writer) -> anyhow::Result<Published> {
    cx.cancel.finish();
    Ok(end_if_cancelled(cx, writer)?.publish()?)
}

/// Publishes a new generation if anything has changed, with derived tables that follow. Returns
/// whether these are complete, too.
pub(crate) fn publish_changes(
    cx: &Context<'_>,
    mut writer: Writer,
    threads: usize,
) -> anyhow::Result<(Published, bool)> {
    if writer.has_nothing_new() {
        cx.cancel.finish();
        return Ok((end_if_cancelled(cx, writer)?.end_unchanged()?, true));
    }
    let are_complete = match cx.derived {
        Some(derived) => derived.refresh(&mut writer, threads)?,
        None => true,
    };
    Ok((publish(cx, writer)?, are_complete))
}

/// Reports sources that became part of others, and entries of a new generation that users cannot see
/// though the source would show them. Returns whether the latter is nobody's doing: otherwise the run
/// is partial.
pub fn warn_of(cx: &Context<'_>, published: &Published) -> bool {
    for root in &published.absorbed {
        cx.note(format_args!("{root} is not a source of its own any more: it is in one around it"));
    }
    for (root, above) in &published.subtrees {
        cx.note(format_args!("{root} lies in the source {above} and was replaced there"));
        let path = canopy_read::to_path(root);
        if cx.site.settings.source(&path).is_some_and(Source::has_options) {
            cx.note(format_args!(
                "warning: what the configuration says of {root} does not hold when {above} is \
                 scanned or updated; exclude it there"
            ));
        }
    }
    if published.closed_grants > 0 {
        cx.note(format_args!(
            "warning: the file system of the index cannot hold {} of the ACLs; what they guard is \
             for root alone",
            published.closed_grants
        ));
    }
    for (owner, dirs) in &published.beyond_limits {
        cx.note(format_args!(
            "warning: what uid {owner} owns asks for more access classes than one owner may have; \
             {}, and values of extended attributes that ask for more, are for root and that owner \
             alone (--owner-classes and --owner-names set the limits)",
            counted(dirs, "directory")
        ));
    }
    if published.folded > 0 {
        cx.note(format_args!(
            "warning: some directories take membership of more than 8 groups at once; \
             only users whom their permissions name see what they guard"
        ));
    }
    if let Some(error) = &published.unrecorded {
        cx.note(format_args!("warning: 'canopy info' will not tell of what failed: {error}"));
    }
    published.beyond_limits.is_empty() && published.folded == 0
}
