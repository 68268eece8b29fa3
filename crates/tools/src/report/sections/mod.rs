//! The sections of a report, listed once, in the order of a report.
//!
//! A section is one struct in one file: what it needs, what it collects in the pass over entries
//! ([`EntryCollector`]), how it is answered from that and from [`Facts`], how it is shown. Its JSON
//! is the struct itself.

mod ages;
mod crossed;
mod deepest;
mod directories;
mod duplicates;
mod empty;
mod extensions;
mod future;
mod links;
mod lists;
mod names;
mod outliers;
mod owners;
mod permissions;
mod quotas;
mod ranked;
mod sizes;
mod sparse;
mod storage;
mod symlinks;
mod totals;
mod trees;
mod types;

// Sections take these from here.
use super::details::{EntryDetails, ListedEntry};
use super::entries::{EntryBatch, EntryCollector, Scope};
use super::facts::Facts;
use super::format::grouped;
use super::parts::{CoveredFile, RowId};
use super::statistics::{Usage, mean_and_deviation};
use super::top_k::TopK;
use super::view::{Block, Cell, SectionView, Table, count, date, name, size, table};
use crate::error::Result;
use canopy_index::{Columns, FileKind};
use canopy_text::human_size;
use canopy_text::safe::report_name;
use lists::{Flagged, entries_table, flagged_blocks, user};
use serde::{Deserialize, Serialize};

pub(super) use directories::DirectorySizes;
pub use duplicates::DuplicateRule;
pub(super) use lists::FlaggedRows;
pub(super) use totals::once;
pub(super) use trees::count_once;

/// An input that a section needs before it can be answered, in the order in which they are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    /// Statistics, which the index keeps.
    Statistics,
    /// Directories in the pass over entries.
    Dirs,
    /// The pass over entries.
    Entries,
    /// That pass, and the names of inodes with several.
    Links,
    /// Sums of trees in the pass over listings.
    Trees,
    /// The pass over listings.
    Listings,
}

/// An answer of a report.
pub(super) trait ReportSection: Sized {
    /// Title of the section.
    const TITLE: &'static str;

    /// Explanation of its counts, where needed.
    const NOTE: Option<&'static str> = None;

    /// Its collection in the pass over entries; `()` if nothing.
    type Entries: EntryCollector;

    /// Inputs that it needs.
    const NEEDS: &'static [Need];

    /// Inputs that it needs in a report on the entries of one owner.
    const NEEDS_OF_OWNER: &'static [Need] = Self::NEEDS;

    /// Answers it when all it needs is there; `None` if there is no answer.
    fn answer(facts: &mut Facts<'_>, collected: Self::Entries) -> Result<Option<Self>>;

    /// Returns the explanation of this answer's counts, where needed.
    fn note(&self) -> Option<&'static str> {
        Self::NOTE
    }

    /// Shows it.
    fn blocks(&self) -> Vec<Block>;
}

macro_rules! sections {
    ($($field:ident: $module:ident::$Section:ident,)*) => {
        /// A section of a report.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Section {
            $(#[doc = concat!("The section `", stringify!($field), "`.")] $Section,)*
        }

        impl Section {
            /// All of them, in the order of a report.
            pub const ALL: &[Section] = &[$(Section::$Section,)*];

            /// Gives the word for it on the command line and in JSON.
            pub fn name(self) -> &'static str {
                match self { $(Section::$Section => stringify!($field),)* }
            }

            fn needs(self, owned: bool) -> &'static [Need] {
                match self {
                    $(Section::$Section if owned => $module::$Section::NEEDS_OF_OWNER,
                    Section::$Section => $module::$Section::NEEDS,)*
                }
            }
        }

        /// The sections that were asked for.
        #[derive(Clone, Debug, Default, Serialize)]
        pub(super) struct Answers {
            $(#[serde(skip_serializing_if = "Option::is_none")]
            $field: Option<$module::$Section>,)*
        }

        impl Answers {
            /// Answers the sections that need nothing beyond `stage`.
            pub(super) fn answer(
                &mut self,
                stage: Need,
                facts: &mut Facts<'_>,
                collected: &mut Collected,
            ) -> Result<()> {
                let owned = facts.options.owner.is_some();
                $(if Section::$Section.needs(owned).iter().max() == Some(&stage)
                    && let Some(own) = collected.$field.take()
                {
                    self.$field = ReportSection::answer(facts, own)?;
                })*
                Ok(())
            }

            /// Shows them, in order.
            pub(super) fn views(&self) -> impl Iterator<Item = SectionView> {
                let views = [$(self.$field.as_ref().map(|own| view(stringify!($field), own)),)*];
                views.into_iter().flatten()
            }
        }

        /// Collections of the requested sections in the pass over entries.
        #[derive(Default)]
        pub(super) struct Collected {
            $($field: Option<<$module::$Section as ReportSection>::Entries>,)*
        }

        impl Collected {
            /// Begins with nothing.
            pub(super) fn new(scope: &Scope<'_>) -> Self {
                let has = |section| scope.options.sections.has(section);
                Collected {
                    $($field: has(Section::$Section).then(|| EntryCollector::new(scope)),)*
                }
            }

            /// Gives the columns to read of a part.
            pub(super) fn columns(&self, part: &CoveredFile<'_>) -> Result<Columns> {
                let mut columns = Columns::NONE;
                $(if let Some(own) = self.$field.as_ref().filter(|_| {
                    reads::<<$module::$Section as ReportSection>::Entries>(part.kind)
                }) {
                    columns.add(own.columns(part)?);
                })*
                Ok(columns)
            }

            /// Takes in a batch with these columns.
            pub(super) fn add(&mut self, batch: &EntryBatch<'_>) -> Result<()> {
                $(if let Some(own) = self.$field.as_mut().filter(|_| {
                    reads::<<$module::$Section as ReportSection>::Entries>(batch.kind)
                }) {
                    own.add(batch)?;
                })*
                Ok(())
            }

            /// Takes in what another worker has collected.
            pub(super) fn merge(&mut self, other: Collected) {
                $(match (&mut self.$field, other.$field) {
                    (Some(own), Some(other)) => own.merge(other),
                    (own, other) => *own = own.take().or(other),
                })*
            }

            /// Gives the lists whose rows are to be read.
            pub(super) fn lists(&mut self) -> Vec<&mut TopK> {
                let mut lists = Vec::new();
                $(lists.extend(self.$field.iter_mut().flat_map(EntryCollector::lists));)*
                lists
            }
        }
    };
}

sections! {
    totals: totals::Totals,
    quotas: quotas::Quotas,
    users: owners::Users,
    groups: owners::Groups,
    user_ages: crossed::UserAges,
    user_groups: crossed::UserGroups,
    types: types::Types,
    extensions: extensions::Extensions,
    sizes: sizes::Sizes,
    ages: ages::Ages,
    largest: ranked::Largest,
    newest: ranked::Newest,
    oldest: ranked::Oldest,
    used: ranked::Used,
    unused: ranked::Unused,
    trees: trees::Trees,
    outliers: outliers::Outliers,
    directories: directories::Directories,
    deepest: deepest::Deepest,
    empty: empty::Empty,
    duplicates: duplicates::Duplicates,
    links: links::Links,
    symlinks: symlinks::Symlinks,
    storage: storage::Storage,
    sparse: sparse::Sparse,
    permissions: permissions::Permissions,
    owners: owners::Owners,
    names: names::Names,
    future: future::Future,
}

impl Answers {
    /// Gives the number of candidates for duplicates whose contents could not be compared.
    pub(super) fn duplicates_not_read(&self) -> i64 {
        self.duplicates.as_ref().map_or(0, duplicates::Duplicates::not_read)
    }

    /// Gives the users in the section of that name.
    pub(super) fn users(&self) -> impl Iterator<Item = u32> {
        self.users.iter().flat_map(owners::Users::ids)
    }
}

fn reads<C: EntryCollector>(kind: FileKind) -> bool {
    kind == FileKind::Entries || C::READS_DIRS
}

fn view<S: ReportSection>(name: &'static str, section: &S) -> SectionView {
    SectionView { name, title: S::TITLE, note: section.note(), blocks: section.blocks() }
}

impl Section {
    /// Finds the section of a name.
    pub fn named(name: &str) -> Option<Section> {
        Section::ALL.iter().copied().find(|section| section.name() == name)
    }
}

/// A set of sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sections(u32);

impl Sections {
    /// Gives all of them.
    pub fn all() -> Self {
        Section::ALL.iter().copied().collect()
    }

    /// Returns whether a section is in the set.
    pub fn has(self, section: Section) -> bool {
        self.0 >> section as u8 & 1 == 1
    }

    /// Gives the set without a section.
    pub fn without(self, section: Section) -> Self {
        Sections(self.0 & !(1 << section as u8))
    }

    /// Returns whether any section in the set needs this.
    pub(super) fn need(self, need: Need, owned: bool) -> bool {
        let mut sections = Section::ALL.iter().filter(|&&section| self.has(section));
        sections.any(|section| section.needs(owned).contains(&need))
    }
}

impl FromIterator<Section> for Sections {
    fn from_iter<I: IntoIterator<Item = Section>>(sections: I) -> Self {
        Sections(sections.into_iter().fold(0, |set, section| set | 1 << section as u8))
    }
}
