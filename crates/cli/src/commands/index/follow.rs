//! `canopy index --follow ns:PATH`: follows a namespace once, for 'canopy watch', which reads the line
//! that this prints.

use super::Arguments;
use super::summary::UNCHANGED;
use crate::invocation::Invocation;
use crate::outcome::{Outcome, say};
use canopy_ingest::Namespaces;
use canopy_ingest::follow::{FollowResult, follow};
use canopy_site::check_links;
use canopy_text::counted;

/// Carries the command out.
///
/// # Errors
///
/// If the namespace or the index cannot be read or written, or the run is interrupted.
pub fn run(
    invocation: &Invocation,
    arguments: &Arguments,
    namespaces: &dyn Namespaces,
) -> anyhow::Result<Outcome> {
    let location = invocation.site.index_to_write()?;
    check_links(&location)?;
    invocation.watch_signals()?;
    let request = arguments.request(invocation);
    let followed = follow(&invocation.ingest(None), &location, &request, namespaces)?;
    let FollowResult { generation, read, is_complete } = followed;
    match read {
        None => say(format_args!("{UNCHANGED}generation {generation}"))?,
        Some((entries, directories)) => say(format_args!(
            "generation {generation}: {} in {} looked at",
            counted(entries, "entry"),
            counted(directories, "directory"),
        ))?,
    }
    Ok(Outcome::of(is_complete))
}
