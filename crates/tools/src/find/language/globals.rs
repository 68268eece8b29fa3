//! The options of a find, which hold for the whole search wherever they stand.

use crate::find::actions::{Action, Destination, EntryFormat, SortField};
use std::ffi::OsString;

/// Options of the whole search.
#[derive(Debug, Default)]
pub(crate) struct Globals {
    /// Smallest and largest distance from the start.
    pub(crate) depth_min: u32,
    pub(crate) depth_max: u32,
    /// `-depth`, also where `-delete` asks for it
    pub(crate) depth_first: bool,
    /// `-depth` itself
    pub(crate) depth_asked: bool,
    /// `-xdev`, `-mount`
    pub(crate) one_file_system: bool,
    /// `-H`, `-L`
    pub(crate) follow_starts: bool,
    /// `-L`, `-follow`
    pub(crate) follow_all: bool,
    /// `-ignore_readdir_race`
    pub(crate) ignores_races: bool,
    /// `--live`
    pub(crate) live: bool,
    /// `-files0-from`
    pub(crate) starts_from: Option<OsString>,
    /// `--sort`
    pub(crate) sort: Option<SortField>,
    /// `--reverse`
    pub(crate) reverse: bool,
    /// `--limit`
    pub(crate) limit: Option<u64>,
    /// `--count`
    pub(crate) count: bool,
    /// `--sum`
    pub(crate) sum: bool,
    /// `--mine`, `--user`: whose entries alone are acted on
    pub(crate) owner: Option<u32>,
    /// `--json`, `--ndjson`, `--0`
    pub(crate) json: bool,
    pub(crate) ndjson: bool,
    pub(crate) zero: bool,
    /// `-j`: how many commands run at once, if not one
    pub(crate) jobs: Option<usize>,
    /// `--color`
    pub(crate) color: ColorWhen,
}

/// When names are shown in colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColorWhen {
    /// Always.
    Always,
    /// On a terminal.
    #[default]
    Auto,
    /// Never.
    Never,
}

impl Globals {
    /// Returns whether entries are held until all are there, to be put in order, or for commands to
    /// run beside each other. A live search goes depth first by itself.
    pub(crate) fn holds(&self) -> bool {
        let ordered = self.sort.is_some() || self.reverse || (self.depth_first && !self.live);
        // If only the first entries are added up, the sum depends on their order.
        let adds_all = self.count || (self.sum && self.limit.is_none());
        (ordered || (self.live && self.jobs.is_some())) && !adds_all
    }

    /// Returns whether entries are printed as one list of JSON: a number or a sum is JSON alone.
    pub(crate) fn lists_json(&self) -> bool {
        self.json && !self.count && !self.sum
    }

    /// Returns whether what is so many levels below a start is looked at through symbolic links.
    pub(crate) fn follows(&self, depth: u32) -> bool {
        self.follow_all || (self.follow_starts && depth == 0)
    }

    /// Returns the action of an expression that has none.
    pub(crate) fn implied_action(&self) -> Action {
        let format = match () {
            () if self.count => return Action::Count,
            () if self.sum => return Action::Sum,
            () if self.json || self.ndjson => EntryFormat::Json,
            () if self.zero => EntryFormat::Zero,
            () => EntryFormat::Line,
        };
        Action::Write(format, Destination::Stdout)
    }
}
