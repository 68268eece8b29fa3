//! Visibility of the index to a statement: all that its user may list, and entries behind gates on
//! the paths that the statement names.
//!
//! A gate is a directory that one may enter but not list. It shows its entries to users who know
//! their names. So every text in a statement that is an absolute path, or begins with one as
//! patterns do, is tried as a path. Its place does not matter: `=`, `IN`, `LIKE` and other
//! conditions, either side of an `OR`, a join, a subquery. Naming more never shows less.
//!
//! A condition that asks for all names in a gate gets only the named ones, and a note reports that.

use super::places::{PathScope, comparison, is_path};
use super::restriction::Restriction;
use super::tables::{TABLES, external};
use super::{gufi, summaries};
use canopy_index::{Index, SourceRecord, TableKind};
use canopy_model::{AbsolutePath, FileType, SourcePathBuf, join_absolute};
use canopy_read::locate::{
    self, UnlistedEntry, absolute_path, lists, look_up, may_search, source_of, to_path,
};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, Operator, TableScan};
use datafusion::prelude::lit;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Characters that end the path at the beginning of a pattern, in LIKE or a regular expression.
const WILD: [char; 6] = ['%', '*', '?', '[', '{', '+'];

/// Characters that divide a regular expression into parts that may be paths.
const DIVIDES: [char; 5] = ['|', '(', ')', '^', '$'];

/// Most bytes of a text that may be a path: none in an index is as long, escaped.
const PATH_BYTES_MAX: usize = 16 * 1024;

/// The part of an index that a statement sees.
#[derive(Debug)]
pub(super) struct Seen {
    /// The part of the index that the user may list.
    listed: Arc<Index>,
    /// That part, and everything that the named paths lead to.
    pub(super) index: Arc<Index>,
    /// Named paths and all directories above them, absolute, those above first.
    paths: BTreeSet<String>,
    /// Entries at such paths that are in no listing.
    pub(super) unlisted: Vec<Arc<Unlisted>>,
}

/// An entry of a gate that a statement names.
#[derive(Debug)]
pub(super) struct Unlisted {
    pub(super) source: SourceRecord,
    pub(super) path: SourcePathBuf,
    pub(super) entry: UnlistedEntry,
}

/// Subtrees, or one, as users see them who name them.
pub(super) struct Start {
    pub(super) place: PathScope,
    pub(super) view: Arc<Index>,
}

impl Seen {
    /// Returns the view of a statement that names nothing.
    pub(super) fn listed(index: Arc<Index>) -> Self {
        let (paths, unlisted) = (BTreeSet::new(), Vec::new());
        Seen { listed: index.clone(), index, paths, unlisted }
    }

    /// Returns the view of a statement that has these texts.
    pub(super) fn by(index: &Arc<Index>, texts: &BTreeSet<String>) -> canopy_read::Result<Self> {
        let names: BTreeSet<String> = texts.iter().flat_map(|text| names(text)).collect();
        if names.is_empty() || index.is_one_class() {
            return Ok(Seen::listed(index.clone()));
        }
        let given: Vec<&str> = names.iter().map(String::as_str).collect();
        let asked: Vec<_> = given.iter().map(|name| AbsolutePath::new(name)).collect();
        let view = index.seen_from_all(&asked)?.flattened();
        let mut paths = BTreeSet::new();
        for name in given {
            let ends = name.match_indices('/').map(|(at, _)| at).chain([name.len()]);
            paths.extend(ends.filter(|&end| end > 0).map(|end| name[..end].to_owned()));
        }
        let mut unlisted = Vec::new();
        for absolute in &paths {
            let absolute = AbsolutePath::new(absolute);
            let Some((source, path)) = source_of(&view, absolute) else { continue };
            if let Some(entry) = locate::unlisted(&view, source, path)? {
                let (source, path) = (source.clone(), path.to_buf());
                unlisted.push(Arc::new(Unlisted { source, path, entry }));
            }
        }
        Ok(Seen { listed: index.clone(), index: Arc::new(view), paths, unlisted })
    }

    /// Returns the subtrees that predicates ask for, none of them in another. Each is seen as du
    /// would see it that gets its path, so that its sum does not depend on what else is named.
    pub(super) fn subtrees(&self, restriction: &Restriction) -> canopy_read::Result<Vec<Start>> {
        let anywhere = [PathScope::below("")];
        let places = restriction.places().unwrap_or(&anywhere);
        let deep: Vec<PathScope> = places.iter().filter(|place| place.below).cloned().collect();
        let mut starts = Vec::new();
        for place in super::places::disjoint(deep.clone()) {
            starts.push(Start { view: self.from(&place.path)?, place });
        }
        let single = places.iter().filter(|place| !place.below).map(|place| place.path.clone());
        let named = self.paths.iter().map(|path| path.trim_start_matches('/').to_owned());
        let named = named.filter(|path| deep.iter().any(|place| place.has(path)));
        for path in single.chain(named).collect::<BTreeSet<String>>() {
            let below = deep.iter().any(|place| place.has(&path));
            let place = PathScope { path, below };
            let mut is_in_other = false;
            for start in &starts {
                is_in_other |= start.shows(&place.path)?;
            }
            if !is_in_other {
                starts.push(Start { view: self.from(&place.path)?, place });
            }
        }
        Ok(starts)
    }

    fn from(&self, path: &str) -> canopy_read::Result<Arc<Index>> {
        // Where nothing is named, nothing is opened.
        if self.paths.is_empty() {
            return Ok(self.listed.clone());
        }
        Ok(Arc::new(
            self.listed.seen_from(AbsolutePath::new(&join_absolute("/", path)))?.flattened(),
        ))
    }

    /// Returns whether a directory lets its user in and does not list itself.
    fn is_gate(&self, directory: &str) -> canopy_read::Result<bool> {
        let found = source_of(&self.index, AbsolutePath::new(directory));
        let Some((source, path)) = found else { return Ok(false) };
        let Some(inode) = look_up(&self.index, source, path)? else { return Ok(false) };
        Ok(inode.attributes.file_type() == FileType::Directory
            && !lists(&self.index, source, path)?
            && may_search(&self.index, source, path, &inode)?)
    }
}

impl Start {
    /// Returns whether it has a source, too, whose root lies below another start.
    pub(super) fn is_around(&self, other: &Start, source: &SourceRecord) -> bool {
        self.place.below
            && self.place != other.place
            && self.place.has(&other.place.path)
            && self.view.sources().iter().any(|known| known.id == source.id)
    }

    /// Returns whether rows of a path are among its own.
    fn shows(&self, path: &str) -> canopy_read::Result<bool> {
        if !self.place.below || !self.place.has(path) {
            return Ok(false);
        }
        let is_root = |source: &SourceRecord| source.root.trim_matches('/') == path;
        if path == self.place.path || self.view.sources().iter().any(is_root) {
            return Ok(true);
        }
        let above = join_absolute("/", canopy_model::parent(path).unwrap_or_default());
        match source_of(&self.view, AbsolutePath::new(&above)) {
            Some((source, above)) => lists(&self.view, source, above),
            None => Ok(false),
        }
    }
}

/// Paths and tables that a statement names, and directories in which it asks for unknown names.
#[derive(Default)]
pub(super) struct Named {
    /// All its texts.
    texts: BTreeSet<String>,
    /// Directories, absolute, in which any names may be meant.
    any_in: BTreeSet<String>,
    /// Texts that are compared with paths but cannot be paths or begin one.
    no_paths: BTreeSet<String>,
    /// The tables that it reads.
    tables: BTreeSet<String>,
}

impl Named {
    /// Takes the texts of a statement, before and after the engine has simplified it: it may have
    /// taken texts apart or joined them.
    pub(super) fn new(written: &LogicalPlan, simplified: &LogicalPlan) -> Result<Self> {
        let mut named = Named::default();
        for plan in [written, simplified] {
            plan.apply_with_subqueries(|node| {
                let chooses = matches!(
                    node,
                    LogicalPlan::Filter(_) | LogicalPlan::Join(_) | LogicalPlan::TableScan(_)
                );
                node.apply_expressions(|expression| {
                    expression.apply(|part| {
                        if let Expr::Literal(value, _) = part
                            && let Some(text) = value.try_as_str().flatten()
                        {
                            named.text(text, chooses);
                        }
                        Ok(TreeNodeRecursion::Continue)
                    })
                })?;
                if let LogicalPlan::TableScan(scan) = node {
                    named.scan(scan)?;
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        Ok(named)
    }

    fn text(&mut self, text: &str, chooses: bool) {
        if !text.contains('/') {
            return;
        }
        self.texts.insert(text.to_owned());
        for piece in text.split(DIVIDES).filter(|piece| chooses && piece.starts_with('/')) {
            let piece = piece.replace('\\', "");
            let path = piece.split(WILD).next().unwrap_or_default();
            if path.len() < piece.len() || path.ends_with('/') {
                self.any_in.extend(path.rsplit_once('/').map(|(directory, _)| absolute(directory)));
            }
        }
    }

    fn scan(&mut self, scan: &TableScan) -> Result<()> {
        let table = scan.table_name.table();
        self.tables.insert(table.to_owned());
        let is_ours = TABLES.iter().any(|own| own.name == table)
            || summaries::TABLES.iter().any(|own| own.name == table)
            || gufi::is_view(table);
        if is_ours {
            for filter in &scan.filters {
                filter.apply(|part| {
                    self.no_paths.extend(no_path(part).map(str::to_owned));
                    Ok(TreeNodeRecursion::Continue)
                })?;
            }
            // Names have '_' more often than patterns are meant to have it.
            let literally = |expression| match expression {
                Expr::Like(mut like) => {
                    if let Expr::Literal(pattern, _) = &*like.pattern
                        && let Some(pattern) = pattern.try_as_str().flatten()
                    {
                        like.pattern = Box::new(lit(pattern.replace('_', "-")));
                    }
                    Ok(Transformed::yes(Expr::Like(like)))
                }
                other => Ok(Transformed::no(other)),
            };
            let filters = scan.filters.iter().cloned();
            let filters = filters.map(|filter| Ok(filter.transform(literally)?.data));
            let restriction = Restriction::new(&filters.collect::<Result<Vec<Expr>>>()?);
            let places = restriction.places().unwrap_or_default().iter();
            let below = places.filter(|place| place.below);
            self.any_in.extend(below.map(|place| absolute(&place.path)));
        }
        Ok(())
    }

    /// Returns the view of the statement, and notes about rows that it hides.
    pub(super) fn seen(&self, index: &Arc<Index>) -> Result<(Seen, Vec<String>)> {
        let seen = Seen::by(index, &self.texts).map_err(external)?;
        let mut notes = Vec::new();
        for directory in &self.any_in {
            if seen.is_gate(directory).map_err(external)? {
                let shown = to_path(directory);
                let shown = shown.display();
                notes.push(format!(
                    "note: you may enter {shown} but not list it: it shows what is named in full, \
                     as by path LIKE '{shown}/NAME/%'"
                ));
            }
        }
        if let Some(text) = self.no_paths.first() {
            notes.push(format!(
                "note: no path is like '{text}': all are absolute, without a slash at their end"
            ));
        }
        let derived = index.tables().iter().filter(|table| {
            matches!(table.kind, TableKind::Derived { .. }) && self.tables.contains(&table.name)
        });
        for table in derived.filter(|_| !seen.unlisted.is_empty()) {
            notes.push(format!(
                "note: {} has no rows of what is found by name alone, as {} is",
                table.name,
                to_path(&seen.unlisted[0].absolute()).display()
            ));
        }
        Ok((seen, notes))
    }
}

impl Unlisted {
    pub(super) fn is_directory(&self) -> bool {
        self.entry.inode.attributes.file_type() == FileType::Directory
    }

    fn absolute(&self) -> String {
        absolute_path(&self.source, self.path.as_path())
    }
}

/// Returns the text that a predicate compares with paths, if none can be equal to it or match it.
fn no_path(filter: &Expr) -> Option<&str> {
    let (column, value, is_pattern) = match filter {
        Expr::Like(like) if !like.negated => match (&*like.expr, &*like.pattern) {
            (Expr::Column(column), Expr::Literal(value, _)) => (column, value, true),
            _ => return None,
        },
        _ => match comparison(filter)? {
            (column, Operator::Eq, value) => (column, value, false),
            _ => return None,
        },
    };
    let text = value.try_as_str().flatten().filter(|_| is_path(column))?;
    let begins = text.starts_with('/') || is_pattern && text.starts_with(['%', '_']);
    (!begins || text.len() > 1 && text.ends_with('/')).then_some(text)
}

fn absolute(path: &str) -> String {
    join_absolute("/", path.trim_start_matches('/'))
}

/// Returns the paths that a text may name: all of it, its parts, and the part in front of a
/// wildcard; with backslashes, and without.
fn names(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for piece in std::iter::once(text).chain(text.split(DIVIDES)) {
        for piece in [piece, &piece.replace('\\', ""), &piece.replace("\\\\", "\\")] {
            let path = piece.split(WILD).next().unwrap_or_default();
            let paths = [piece, path, path.trim_end_matches('.')].into_iter();
            let is_path = |path: &&str| path.starts_with('/') && path.len() <= PATH_BYTES_MAX;
            let paths = paths.filter(is_path);
            names.extend(paths.map(|path| path.trim_end_matches('/').to_owned()));
        }
    }
    names.remove("");
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_name_paths() {
        for (text, expected) in [
            ("/home/a/b", "/home/a/b"),
            ("/home/a%", "/home/a"),
            ("/home/a_b/%", "/home/a_b/"),
            ("/home/a\\_b/%", "/home/a_b"),
            ("^/home/a.*", "/home/a"),
            ("^(/home/a|/home/b)(/|$)", "/home/b"),
            ("/home/a[0-9]", "/home/a"),
            ("/home/a\\\\b/%", "/home/a\\b"),
        ] {
            let expected = expected.trim_end_matches('/');
            assert!(names(text).contains(expected), "{text}: {:?}", names(text));
        }
        assert!(names(&"/a".repeat(10_000)).is_empty());
        assert!(names("a/b").is_empty() && names("/").is_empty() && names("%/x").is_empty());
    }
}
