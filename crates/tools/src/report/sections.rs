//! The sections of a report: their names, titles, and sets of them.

/// A section of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)] // The titles below say what each has.
pub enum Section {
    Totals,
    Users,
    Groups,
    Types,
    Extensions,
    Sizes,
    Ages,
    Largest,
    Newest,
    Oldest,
    Used,
    Unused,
    Trees,
    Outliers,
    Directories,
    Deepest,
    Empty,
    Duplicates,
    Links,
    Symlinks,
    Sparse,
    Permissions,
    Owners,
    Names,
    Future,
}

impl Section {
    /// All of them, in the order of a report.
    pub const ALL: [Section; 25] = [
        Section::Totals,
        Section::Users,
        Section::Groups,
        Section::Types,
        Section::Extensions,
        Section::Sizes,
        Section::Ages,
        Section::Largest,
        Section::Newest,
        Section::Oldest,
        Section::Used,
        Section::Unused,
        Section::Trees,
        Section::Outliers,
        Section::Directories,
        Section::Deepest,
        Section::Empty,
        Section::Duplicates,
        Section::Links,
        Section::Symlinks,
        Section::Sparse,
        Section::Permissions,
        Section::Owners,
        Section::Names,
        Section::Future,
    ];

    /// The word for it on the command line and in JSON, and its title.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Section::Totals => ("totals", "Totals"),
            Section::Users => ("users", "By user"),
            Section::Groups => ("groups", "By group"),
            Section::Types => ("types", "By type"),
            Section::Extensions => ("extensions", "By extension"),
            Section::Sizes => ("sizes", "Sizes"),
            Section::Ages => ("ages", "Ages"),
            Section::Largest => ("largest", "Largest files"),
            Section::Newest => ("newest", "Modified last"),
            Section::Oldest => ("oldest", "Not modified for longest"),
            Section::Used => ("used", "Used last"),
            Section::Unused => ("unused", "Not used for longest"),
            Section::Trees => ("trees", "Largest directories, with all below"),
            Section::Outliers => ("outliers", "Directories unlike their siblings"),
            Section::Directories => ("directories", "Directories with most in them"),
            Section::Deepest => ("deepest", "Deepest directories"),
            Section::Empty => ("empty", "Empty directories"),
            Section::Duplicates => ("duplicates", "Candidates for duplicates"),
            Section::Links => ("links", "Hard links"),
            Section::Symlinks => ("symlinks", "Symbolic links"),
            Section::Sparse => ("sparse", "Sparse files"),
            Section::Permissions => ("permissions", "Permissions to look at"),
            Section::Owners => ("owners", "Owners without a name"),
            Section::Names => ("names", "Names that are hard to type"),
            Section::Future => ("future", "Modified in the future"),
        }
    }

    /// The word for it on the command line and in JSON.
    pub fn name(self) -> &'static str {
        self.words().0
    }

    /// Its title.
    pub fn title(self) -> &'static str {
        self.words().1
    }

    /// The section of a name.
    pub fn named(name: &str) -> Option<Section> {
        Section::ALL.into_iter().find(|section| section.name() == name)
    }
}

/// A set of sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sections(u32);

impl Sections {
    /// All of them.
    pub fn all() -> Self {
        Section::ALL.into_iter().collect()
    }

    /// Whether a section is in the set.
    pub fn has(self, section: Section) -> bool {
        self.0 >> section as u8 & 1 == 1
    }

    /// Whether any of these is in the set.
    pub(super) fn any(self, sections: &[Section]) -> bool {
        sections.iter().any(|section| self.has(*section))
    }
}

impl FromIterator<Section> for Sections {
    fn from_iter<I: IntoIterator<Item = Section>>(sections: I) -> Self {
        Sections(sections.into_iter().fold(0, |set, section| set | 1 << section as u8))
    }
}
