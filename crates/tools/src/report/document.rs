//! What a report says. Its JSON is exactly this.
//!
//! Sizes are bytes, `disk_bytes` is space taken, times are nanoseconds since 1970. Paths are
//! absolute and, as names, escaped (see `canopy_model::escape`). Lists are in the order of what
//! they are about, ties by directory in path order, then by name.

use canopy_model::Count;
use serde::Serialize;

/// A report.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Generation of the index that answered.
    pub generation: u64,
    /// When it was published.
    pub published_ns: i64,
    /// For whom: it has what this user sees.
    pub asked_by: Owner,
    /// Whose entries it is about, if not everybody's.
    pub owner: Option<Owner>,
    /// Most rows of a list.
    pub top: usize,
    /// Where it has looked.
    pub paths: Vec<Covered>,
    #[serde(flatten)]
    #[allow(missing_docs)]
    pub answers: Answers,
}

/// The sections that were asked for.
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs)] // Named as their sections.
pub struct Answers {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub totals: Option<Totals>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<Breakdown<OwnerUsage>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<Breakdown<OwnerUsage>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub types: Option<Vec<TypeCount>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extensions: Option<Breakdown<ExtensionUsage>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sizes: Option<Sizes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ages: Option<Ages>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest: Option<Vec<Item>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newest: Option<Vec<Item>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Vec<Item>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<Vec<Item>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unused: Option<Vec<Item>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trees: Option<Vec<Tree>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outliers: Option<Vec<Outlier>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directories: Option<Directories>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deepest: Option<Vec<Deep>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub empty: Option<Empty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicates: Option<Duplicates>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub links: Option<Links>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub symlinks: Option<Symlinks>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sparse: Option<Sparse>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Permissions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owners: Option<Owners>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<Names>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub future: Option<Flagged>,
}

/// A user or a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct Owner {
    pub id: u32,
    /// What the system calls it, if it does.
    pub name: Option<String>,
}

/// A directory that a report is about.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct Covered {
    pub path: String,
    /// When the scan of its source began.
    pub scanned_ns: i64,
}

/// Sums over everything, the directories that were asked about among it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Totals {
    /// Everything that has a name.
    pub entries: i64,
    /// Directories among them.
    pub directories: i64,
    /// Regular files.
    pub files: i64,
    /// Symbolic links.
    pub symlinks: i64,
    /// All else.
    pub others: i64,
    /// Regular files of no bytes.
    pub zero_byte_files: i64,
    /// Those with extended attributes, but for directories.
    pub with_xattrs: i64,
    /// As `du --inodes`: hard links count once.
    pub inodes: i64,
    /// As `du --apparent-size`.
    pub bytes: i64,
    /// As `du`.
    pub disk_bytes: i64,
}

/// The largest parts of a whole and what is left.
#[derive(Clone, Debug, Serialize)]
pub struct Breakdown<T> {
    /// The largest first.
    pub rows: Vec<T>,
    /// How many others there are.
    pub others: usize,
    /// What they have.
    pub rest: Usage,
}

/// What some entries that are not directories use; hard links count as often as they occur.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct Usage {
    pub entries: i64,
    pub bytes: i64,
    pub disk_bytes: i64,
}

/// What an owner uses.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct OwnerUsage {
    #[serde(flatten)]
    pub owner: Owner,
    #[serde(flatten)]
    pub usage: Usage,
}

/// What the names that end alike use.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct ExtensionUsage {
    /// Without its dot; empty for names without one.
    pub extension: String,
    #[serde(flatten)]
    pub count: Count,
}

/// How many there are of a type.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct TypeCount {
    #[serde(rename = "type")]
    pub name: &'static str,
    pub entries: i64,
}

/// Sizes of entries that are not directories.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct Sizes {
    pub entries: i64,
    pub mean_bytes: f64,
    pub median_bytes: f64,
    /// Standard deviation of all of them (not of a sample).
    pub stdev_bytes: f64,
    pub max_bytes: i64,
    /// By powers of two, from the smallest that occurs to the largest.
    pub classes: Vec<SizeClass>,
}

/// Sizes from `from_bytes` up to but not including `to_bytes`.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct SizeClass {
    pub from_bytes: i64,
    pub to_bytes: i64,
    #[serde(flatten)]
    pub count: Count,
}

/// Ages in calendar months (UTC) before the scan, of entries that are not directories.
#[derive(Clone, Debug, Serialize)]
pub struct Ages {
    /// Since the last change of the contents.
    pub modified: Vec<AgeClass>,
    /// Since the last access.
    pub accessed: Vec<AgeClass>,
}

/// Those `from_months` to `to_months` calendar months old; in the future if both are negative.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct AgeClass {
    pub label: &'static str,
    pub from_months: i32,
    /// None: and all older ones.
    pub to_months: Option<i32>,
    #[serde(flatten)]
    pub count: Count,
}

/// An entry.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct Item {
    pub path: String,
    pub uid: u32,
    pub user: Option<String>,
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    pub bytes: i64,
    pub disk_bytes: i64,
    pub mtime_ns: i64,
    pub atime_ns: i64,
}

/// A directory with all below it; hard links count once.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct Tree {
    pub path: String,
    pub inodes: i64,
    pub bytes: i64,
    pub disk_bytes: i64,
}

/// A directory whose tree is far from the mean of those in the same directory.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct Outlier {
    #[serde(flatten)]
    pub tree: Tree,
    /// How many directories there are in the same directory, this one among them.
    pub siblings: i64,
    /// Mean of their `disk_bytes`.
    pub mean_disk_bytes: f64,
    /// How far from it, in standard deviations, to six places.
    pub deviations: f64,
}

/// What single directories hold, without those below them.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct Directories {
    /// How many can be listed.
    pub listed: i64,
    pub mean_entries: f64,
    /// Standard deviation of all of them (not of a sample).
    pub stdev_entries: f64,
    pub most_entries: Vec<FullDirectory>,
    /// By the sizes of their entries that are not directories.
    pub most_bytes: Vec<LargeDirectory>,
}

/// How many entries one directory has.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct FullDirectory {
    pub path: String,
    /// Directories among them.
    pub entries: i64,
}

/// What the files of one directory add up to.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct LargeDirectory {
    pub path: String,
    pub bytes: i64,
}

/// A directory and how many levels it is below the path that was asked about.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct Deep {
    pub path: String,
    pub depth: i64,
}

/// Directories with nothing in them.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct Empty {
    pub count: i64,
    pub first: Vec<String>,
}

/// Regular files of the same size, mtime and name, but for hard links of one inode.
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs)]
pub struct Duplicates {
    pub groups: i64,
    /// Files in them.
    pub files: i64,
    /// Sizes of all but one of each group.
    pub wasted_bytes: i64,
    /// By `wasted_bytes`, then size, mtime and name.
    pub largest: Vec<DuplicateGroup>,
}

/// Files that may be copies of each other.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct DuplicateGroup {
    pub name: String,
    pub bytes: i64,
    pub mtime_ns: i64,
    pub files: i64,
    pub wasted_bytes: i64,
    /// The first of them.
    pub paths: Vec<String>,
}

/// Inodes with several names, which are not directories.
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs)]
pub struct Links {
    /// Inodes with two or more names here.
    pub inodes: i64,
    /// Their names.
    pub names: i64,
    /// Space that copies would take instead.
    pub saved_disk_bytes: i64,
    /// Inodes with names that are not here, or not to be seen.
    pub names_elsewhere: i64,
    /// By space saved, then names.
    pub largest: Vec<LinkedInode>,
}

/// An inode with several names.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct LinkedInode {
    /// Its first name here.
    pub path: String,
    pub names: i64,
    /// How many names it has in all.
    pub nlink: u32,
    pub bytes: i64,
    pub saved_disk_bytes: i64,
}

/// Where symbolic links lead, as far as the index tells.
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs)]
pub struct Symlinks {
    pub symlinks: i64,
    pub broken: FlaggedLinks,
    /// Those that lead to themselves, or through more than 40 others.
    pub loops: FlaggedLinks,
    /// Those that lead out of the index, or where the user cannot see.
    pub unknown: i64,
}

/// Some symbolic links.
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs)]
pub struct FlaggedLinks {
    pub count: i64,
    pub first: Vec<SymbolicLink>,
}

/// A symbolic link.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct SymbolicLink {
    pub path: String,
    pub target: String,
}

/// Regular files that take less space than their size.
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs)]
pub struct Sparse {
    pub count: i64,
    /// What they do not take.
    pub saved_bytes: i64,
    pub largest: Vec<Item>,
}

/// Entries that deserve a look.
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs)]
pub struct Flagged {
    pub count: i64,
    pub first: Vec<Item>,
}

/// Permissions that deserve a look.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Permissions {
    /// Regular files that everybody may write.
    pub world_writable_files: Flagged,
    /// Directories that everybody may write, where everybody may remove what others have made (no
    /// sticky bit).
    pub world_writable_directories: Flagged,
    /// Directories that everybody may write, with a sticky bit.
    pub world_writable_sticky: i64,
    /// Regular files that run as their owner.
    pub setuid: Flagged,
    /// Regular files that run as their group.
    pub setgid: Flagged,
}

/// What belongs to users and groups that the system has no name for, but for directories.
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs)]
pub struct Owners {
    pub without_user: Usage,
    pub without_group: Usage,
}

/// Names that are hard to type or mislead the eye.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Names {
    /// With control characters, such as an end of line.
    pub control: Flagged,
    /// That are not UTF-8.
    pub not_utf8: Flagged,
    /// With characters that change the direction of text.
    pub direction: Flagged,
}
