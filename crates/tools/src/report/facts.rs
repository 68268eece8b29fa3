//! Facts that the sections of a report are answered from, read stage by stage.

use super::ReportOptions;
use super::details::{self, EntryDetails, ListedEntry};
use super::entries::{self, Scope};
use super::link_names::LinkNames;
use super::listings::{self, ListingPass};
use super::parts::{CoveredFile, RowId, parts};
use super::sections::{Answers, Collected, Need, count_once, once};
use super::statistics::{Statistics, statistics};
use super::top_k::TopK;
use crate::error::Result;
use canopy_index::FileKind;
use canopy_index::column::{INODE, PATH};
use canopy_model::{SourcePath, Totals, compare_paths};
use canopy_read::locate::{Start, absolute_path};
use rustc_hash::FxHashMap;

/// Facts that are known so far.
pub(super) struct Facts<'a> {
    pub(super) starts: &'a [Start],
    pub(super) options: &'a ReportOptions,
    /// The entries and directories that were looked at.
    pub(super) parts: Vec<CoveredFile<'a>>,
    pub(super) statistics: Statistics,
    /// The rows of the lists of sections.
    preloaded: FxHashMap<RowId, EntryDetails>,
    /// Directories of the owner, if there is one.
    pub(super) owned_dirs: Totals,
    pub(super) links: LinkNames<'a>,
    once: Option<Totals>,
    pub(super) listing_parts: Vec<CoveredFile<'a>>,
    pub(super) listings: ListingPass,
}

/// Answers the sections that are asked for.
pub(super) fn answer(starts: &[Start], options: &ReportOptions) -> Result<Answers> {
    let needs = |need| options.sections.need(need, options.owner.is_some());
    let first_pass = needs(Need::Entries) || needs(Need::Links);
    let mut answers = Answers::default();
    let mut facts = Facts {
        starts,
        options,
        parts: Vec::new(),
        statistics: Statistics::default(),
        preloaded: FxHashMap::default(),
        owned_dirs: Totals::default(),
        links: LinkNames::default(),
        once: None,
        listing_parts: Vec::new(),
        listings: ListingPass::default(),
    };
    if first_pass || (needs(Need::Statistics) && options.owner.is_some()) {
        let kinds = [FileKind::Dirs, FileKind::Entries];
        let kinds = if needs(Need::Dirs) { &kinds[..] } else { &kinds[1..] };
        facts.parts = parts(starts, kinds, options.owner)?;
    }
    if needs(Need::Statistics) {
        facts.statistics = statistics(starts, &facts.parts, options)?;
    }
    let mut collected = facts.collect_nothing();
    answers.answer(Need::Statistics, &mut facts, &mut collected)?;
    if first_pass {
        let links = needs(Need::Links);
        let pass = entries::read(&facts.parts, options, &facts.statistics, links)?;
        collected = pass.collected;
        facts.owned_dirs = pass.owned_dirs;
        facts.preload(&mut collected)?;
        answers.answer(Need::Entries, &mut facts, &mut collected)?;
        facts.links = LinkNames::read(&facts.parts, pass.links, options)?;
        answers.answer(Need::Links, &mut facts, &mut collected)?;
    }
    if needs(Need::Listings) {
        facts.listing_parts = parts(starts, &[FileKind::Listings], options.owner)?;
        facts.listings = listings::read(&facts.listing_parts, options, needs(Need::Trees))?;
        count_once(&mut facts.listings.trees, &facts.links);
        answers.answer(Need::Listings, &mut facts, &mut collected)?;
    }
    Ok(answers)
}

impl Facts<'_> {
    /// Begins what is collected, of sections that need no pass over entries.
    fn collect_nothing(&self) -> Collected {
        Collected::new(&Scope {
            options: self.options,
            statistics: &self.statistics,
            links: false,
            entries: 0,
            workers: 1,
        })
    }

    /// Reads the rows of all lists at once, so that no file is read twice.
    fn preload(&mut self, collected: &mut Collected) -> Result<()> {
        let mut ids = Vec::new();
        for list in collected.lists() {
            ids.extend(list.candidates().iter().map(|(_, id)| *id));
        }
        self.preloaded = details::read(&self.parts, ids, INODE, self.options.threads)?;
        Ok(())
    }

    /// Gives sums over everything in which each inode counts once.
    pub(super) fn once(&mut self) -> Result<Totals> {
        let once = self.once.map_or_else(|| once(self), Ok)?;
        self.once = Some(once);
        Ok(once)
    }

    /// Gives the first entries of a list that was preloaded, in order.
    pub(super) fn first_entries(&self, mut list: TopK) -> Vec<ListedEntry> {
        let candidates = list.candidates().iter();
        let mut rows: Vec<(i128, &EntryDetails)> =
            candidates.filter_map(|(key, id)| Some((*key, self.preloaded.get(id)?))).collect();
        rows.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp_path(b.1)));
        rows.truncate(self.options.top);
        rows.into_iter().map(|(_, entry)| entry.listed()).collect()
    }

    /// Gives the paths of the first directories of a list of the pass over listings, in order, with
    /// their keys.
    pub(super) fn first_directories(&self, mut list: TopK) -> Result<Vec<(String, i128)>> {
        let list = list.candidates();
        let mut paths = self.directory_paths(list.iter().map(|(_, id)| *id).collect())?;
        let mut rows: Vec<(String, i128)> =
            list.iter().filter_map(|(key, id)| Some((paths.remove(id)?, *key))).collect();
        rows.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| compare_paths(&a.0, &b.0)));
        rows.truncate(self.options.top);
        Ok(rows)
    }

    /// Reads the absolute paths of listings.
    pub(super) fn directory_paths(&self, mut ids: Vec<RowId>) -> Result<FxHashMap<RowId, String>> {
        ids.sort_unstable();
        ids.dedup();
        let mut found = FxHashMap::default();
        for ids in ids.chunk_by(|a, b| a.part == b.part) {
            let part = &self.listing_parts[ids[0].part as usize];
            let unit = part.unit_of(ids.iter().map(|id| id.row));
            let mut ids = ids.iter();
            for batch in unit.read(PATH)? {
                let batch = batch?;
                let paths = PATH.of(&batch)?.iter().flatten();
                for (id, path) in ids.by_ref().take(batch.num_rows()).zip(paths) {
                    found.insert(*id, absolute_path(&part.start.source, SourcePath::escaped(path)));
                }
            }
        }
        Ok(found)
    }
}
