//! Words that values of options of `canopy ls` may be.

use crate::switches::LEFT_OUT;
use canopy_tools::ls::{Indicator, Layout, LsTime, SortBy};

/// When something is done.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum When {
    Always,
    #[default]
    Auto,
    Never,
}

impl When {
    /// Returns whether it is done, on a terminal or not.
    pub(super) fn is_now(self, terminal: bool) -> bool {
        self == When::Always || (self == When::Auto && terminal)
    }
}

pub(super) const WHEN: [(&str, When); 10] = [
    (LEFT_OUT, When::Always),
    ("always", When::Always),
    ("yes", When::Always),
    ("force", When::Always),
    ("never", When::Never),
    ("no", When::Never),
    ("none", When::Never),
    ("auto", When::Auto),
    ("tty", When::Auto),
    ("if-tty", When::Auto),
];

pub(super) const SORTS: [(&str, SortBy); 6] = [
    ("none", SortBy::None),
    ("time", SortBy::Time),
    ("size", SortBy::Size),
    ("extension", SortBy::Extension),
    ("version", SortBy::Version),
    ("width", SortBy::Width),
];

pub(super) const TIME_STYLES: [&str; 4] = ["full-iso", "long-iso", "iso", "locale"];

pub(super) const TIMES: [(&str, LsTime); 9] = [
    ("atime", LsTime::Access),
    ("access", LsTime::Access),
    ("use", LsTime::Access),
    ("ctime", LsTime::Change),
    ("status", LsTime::Change),
    ("mtime", LsTime::Modification),
    ("modification", LsTime::Modification),
    ("birth", LsTime::Birth),
    ("creation", LsTime::Birth),
];

pub(super) const LAYOUTS: [(&str, Layout); 7] = [
    ("verbose", Layout::Long),
    ("long", Layout::Long),
    ("commas", Layout::Commas),
    ("horizontal", Layout::Across),
    ("across", Layout::Across),
    ("vertical", Layout::Columns),
    ("single-column", Layout::Lines),
];

pub(super) const INDICATORS: [(&str, Indicator); 4] = [
    ("none", Indicator::None),
    ("slash", Indicator::Slash),
    ("file-type", Indicator::FileType),
    ("classify", Indicator::Classify),
];
