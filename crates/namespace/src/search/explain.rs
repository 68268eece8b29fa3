//! How a search finds its files, in words.

use super::candidates::{Candidates, Source};
use crate::records::attributes::Indexes;
use crate::records::view::ReadView;
use crate::settings::Configured;
use canopy_query::Expression;
use std::collections::BTreeSet;

impl ReadView {
    /// Returns where a search looks for the files that an expression is true of. Depends on the
    /// expression and on which indexes there are, not on what is in them.
    pub fn explain(&self, expression: &Expression) -> String {
        explained(expression, &self.configured)
    }
}

/// Returns where a search with these settings looks.
pub(crate) fn explained(expression: &Expression, configured: &Configured) -> String {
    let indexes = &configured.ready;
    let candidates = Candidates::of(expression, indexes);
    match candidates {
        _ if !expression.is_possible() => "nowhere: no file can pass".to_owned(),
        Some(Candidates::Union(parts)) if parts.is_empty() => {
            "nowhere: no file can pass".to_owned()
        }
        Some(candidates) => format!(
            "{}; every name instead where that has too many files",
            described(&candidates, indexes)
        ),
        None => {
            let names = configured.settings.index_names().join(", ");
            let names = if names.is_empty() { "none" } else { &names };
            format!("every name: no index has all files that may pass (indexes: {names})")
        }
    }
}

fn described(candidates: &Candidates, indexes: &Indexes) -> String {
    let all = |parts: &[Candidates], separator: &str| {
        let parts: BTreeSet<String> = parts.iter().map(|part| described(part, indexes)).collect();
        Vec::from_iter(parts).join(separator)
    };
    match candidates {
        Candidates::Source(Source::Files(_)) => "the inode numbers that are asked for".to_owned(),
        Candidates::Source(Source::Index(attribute, _)) => {
            format!("the index of {}", indexes.name_of(*attribute))
        }
        Candidates::Either(choices) => {
            format!("files that all of these have: {}", all(choices, ", "))
        }
        Candidates::Union(parts) => all(parts, " and "),
    }
}
