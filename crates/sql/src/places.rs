//! Parts of the tree of all paths, as predicates name them.
//!
//! Paths here are absolute, but have no slash in front: that of the root is empty.

use super::gufi;
use super::tables::PATH_COLUMN;
use canopy_index::SourceRecord;
use canopy_model::{SourcePath, SourcePathBuf, is_below, parent};
use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::utils::{split_binary, split_conjunction};
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Operator};
use std::collections::HashSet;

/// Pairs of places that are compared at most to find the places common to two predicates.
const PAIRS_MAX: usize = 1 << 16;

/// One path, or all below a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PathScope {
    /// The path, or that of the directory.
    pub(super) path: String,
    /// Whether all below it is meant, and, where what is there are listings, its own.
    pub(super) below: bool,
}

/// One path in a source, or all below a directory of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourceScope {
    /// The path, or that of the directory.
    pub(super) path: SourcePathBuf,
    /// Whether all below it is meant, and, where what is there are listings, its own.
    pub(super) below: bool,
}

impl PathScope {
    /// Returns the place of one path.
    pub(super) fn at(path: &str) -> Self {
        PathScope { path: path.trim_matches('/').to_owned(), below: false }
    }

    /// Returns all that lies below a directory.
    pub(super) fn below(path: &str) -> Self {
        PathScope { path: path.trim_matches('/').to_owned(), below: true }
    }

    /// Returns whether a path may be meant.
    pub(super) fn has(&self, path: &str) -> bool {
        if self.below { is_below(path, &self.path) } else { path == self.path }
    }

    /// Returns the path of the directory that all of it is in.
    pub(super) fn directory(&self) -> &str {
        if self.below { &self.path } else { parent(&self.path).unwrap_or_default() }
    }

    /// Returns the part of it in a source.
    pub(super) fn in_source(&self, source: &SourceRecord) -> Option<SourceScope> {
        let root = source.root.trim_matches('/');
        if is_below(&self.path, root) {
            let path = SourcePath::escaped(self.path[root.len()..].trim_start_matches('/'));
            return Some(SourceScope { path: path.to_buf(), below: self.below });
        }
        (self.below && is_below(root, &self.path)).then(SourceScope::everything)
    }

    /// Returns whether all of another place may be in this one.
    fn covers(&self, other: &PathScope) -> bool {
        self.has(&other.path) && (self.below || !other.below)
    }
}

impl SourceScope {
    /// Returns all of a source.
    pub(super) fn everything() -> Self {
        SourceScope { path: SourcePathBuf::root(), below: true }
    }
}

/// Leaves out listings that are among those of another place, and sorts the rest.
pub(super) fn disjoint(mut listings: Vec<PathScope>) -> Vec<PathScope> {
    listings.sort();
    listings.dedup();
    let directories: HashSet<String> =
        listings.iter().filter(|place| place.below).map(|place| place.path.clone()).collect();
    listings.retain(|place| {
        let own = if place.below { parent(&place.path) } else { Some(&*place.path) };
        !std::iter::successors(own, |path| parent(path)).any(|above| directories.contains(above))
    });
    listings
}

/// A column of paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathColumn {
    /// Paths of the rows themselves.
    Own,
    /// A column of GUFI's views: paths of the directories that contain the rows.
    Directory,
}

/// The columns by name: that of the index's own tables, and those of GUFI's views.
const COLUMNS: [(&str, PathColumn); 3] = [
    (PATH_COLUMN, PathColumn::Own),
    (gufi::ENTRY, PathColumn::Own),
    (gufi::PATH, PathColumn::Directory),
];

/// Returns where all paths are of which predicates are true, all of them, in no order; `None` if
/// that can be anywhere.
pub(super) fn of_all(filters: &[&Expr]) -> Option<Vec<PathScope>> {
    let ranges = COLUMNS.iter().filter_map(|(name, _)| of_range(name, filters));
    filters.iter().filter_map(|filter| of_one(filter)).chain(ranges).reduce(in_both)
}

fn of_one(filter: &Expr) -> Option<Vec<PathScope>> {
    match filter {
        Expr::BinaryExpr(BinaryExpr { op: Operator::And, .. }) => {
            of_all(&split_conjunction(filter))
        }
        Expr::BinaryExpr(BinaryExpr { op: Operator::Or, .. }) => {
            let sides = split_binary(filter, Operator::Or);
            let places: Option<Vec<Vec<PathScope>>> = sides.into_iter().map(of_one).collect();
            Some(places?.concat())
        }
        Expr::BinaryExpr(_) => {
            let (column, op, value) = comparison(filter)?;
            let path = text_of(value).filter(|_| op == Operator::Eq)?;
            of_column(column, vec![PathScope::at(path)])
        }
        Expr::InList(list) if !list.negated => {
            let path = |value: &Expr| match value {
                Expr::Literal(value, _) => text_of(value).map(PathScope::at),
                _ => None,
            };
            let Expr::Column(column) = &*list.expr else { return None };
            let paths: Option<Vec<PathScope>> = list.list.iter().map(path).collect();
            of_column(column, paths?)
        }
        Expr::Between(Between { expr, negated: false, low, high }) => {
            let Expr::Column(column) = &**expr else { return None };
            let side = |op, value: &Expr| {
                Expr::BinaryExpr(BinaryExpr::new(expr.clone(), op, Box::new(value.clone())))
            };
            let sides = [side(Operator::GtEq, low), side(Operator::LtEq, high)];
            of_column(column, of_range(&column.name, &[&sides[0], &sides[1]])?)
        }
        Expr::Like(like) if !like.negated && !like.case_insensitive => {
            let (Expr::Column(column), Expr::Literal(pattern, _)) = (&*like.expr, &*like.pattern)
            else {
                return None;
            };
            of_column(column, of_pattern(text_of(pattern)?, like.escape_char.unwrap_or('\\'))?)
        }
        Expr::ScalarFunction(call) => {
            let [Expr::Column(column), Expr::Literal(value, _)] = &call.args[..] else {
                return None;
            };
            let text = text_of(value)?;
            let places = match call.name() {
                "starts_with" => of_prefix(text)?,
                // A function of GUFI's views: the directory itself is in its own listing.
                "gufi_listed_below" => vec![PathScope::below(text)],
                "below" => vec![PathScope::at(text), PathScope::below(text)],
                _ => return None,
            };
            of_column(column, places)
        }
        _ => None,
    }
}

/// Returns whether a column has paths.
pub(super) fn is_path(column: &Column) -> bool {
    COLUMNS.iter().any(|(name, _)| *name == column.name)
}

/// Returns where the rows are if a column of theirs has such paths.
fn of_column(column: &Column, mut places: Vec<PathScope>) -> Option<Vec<PathScope>> {
    let (_, of) = COLUMNS.iter().find(|(name, _)| *name == column.name)?;
    if *of == PathColumn::Directory {
        places.iter_mut().for_each(|place| place.below = true);
    }
    Some(places)
}

/// Returns where paths are that match a pattern of LIKE.
fn of_pattern(pattern: &str, escape: char) -> Option<Vec<PathScope>> {
    let mut prefix = String::new();
    let mut letters = pattern.chars();
    loop {
        match letters.next() {
            None => return Some(vec![PathScope::at(&prefix)]),
            Some(letter) if letter == escape => prefix.push(letters.next().unwrap_or(escape)),
            Some('%' | '_') => return of_prefix(&prefix),
            Some(letter) => prefix.push(letter),
        }
    }
}

/// Returns where paths are that begin with a text.
fn of_prefix(text: &str) -> Option<Vec<PathScope>> {
    let (directory, _) = text.rsplit_once('/')?;
    Some(vec![PathScope::below(directory)])
}

/// Returns where paths are between the greatest lower and the least upper bound that predicates
/// set of a column.
fn of_range(name: &str, filters: &[&Expr]) -> Option<Vec<PathScope>> {
    let (mut low, mut high): (Option<&str>, Option<(&str, bool)>) = (None, None);
    for filter in filters {
        let Some((column, op, value)) = comparison(filter) else { continue };
        let Some(text) = text_of(value).filter(|_| column.name == name) else { continue };
        match op {
            Operator::Gt | Operator::GtEq => low = low.max(Some(text)),
            Operator::Lt | Operator::LtEq => {
                let bound = (text, op == Operator::LtEq);
                high = Some(high.map_or(bound, |high| high.min(bound)));
            }
            _ => {}
        }
    }
    let (low, (high, included)) = (low?, high?);
    // All texts between the bounds begin with the common prefix of both.
    let common = low.bytes().zip(high.bytes()).take_while(|(a, b)| a == b).count();
    let next = match (low.as_bytes().get(common), &high.as_bytes()[common..]) {
        // As '/a/' and '/a0': all that begins with the former.
        (Some(&first), &[last]) if !included && last == first + 1 => 1,
        _ => 0,
    };
    let common = (0..=common + next).rev().find(|&end| low.is_char_boundary(end))?;
    of_prefix(&low[..common])
}

/// Returns the places that are in both of two lists.
fn in_both(a: Vec<PathScope>, b: Vec<PathScope>) -> Vec<PathScope> {
    if a.len().saturating_mul(b.len()) > PAIRS_MAX {
        return if a.len() < b.len() { a } else { b };
    }
    let pairs = a.iter().flat_map(|a| b.iter().map(move |b| (a, b)));
    let common = pairs.filter_map(|(a, b)| match (a.covers(b), b.covers(a)) {
        (true, _) => Some(b),
        (_, true) => Some(a),
        _ => None,
    });
    common.cloned().collect()
}

/// Returns the column, the operator and the value of a comparison of a column with a value.
pub(super) fn comparison(filter: &Expr) -> Option<(&Column, Operator, &ScalarValue)> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = filter else { return None };
    match (&**left, &**right) {
        (Expr::Column(column), Expr::Literal(value, _)) => Some((column, *op, value)),
        (Expr::Literal(value, _), Expr::Column(column)) => Some((column, op.swap()?, value)),
        _ => None,
    }
}

fn text_of(value: &ScalarValue) -> Option<&str> {
    value.try_as_str().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::prelude::{Expr, ident, lit};

    fn shown(filters: &[Expr]) -> String {
        let filters: Vec<&Expr> = filters.iter().collect();
        let Some(places) = of_all(&filters) else { return "anywhere".to_owned() };
        let places = places.into_iter().map(|PathScope { path, below }| {
            let end = if below { "/" } else { "" };
            format!("/{path}{end}")
        });
        places.collect::<Vec<_>>().join(" ")
    }

    fn path() -> Expr {
        ident("path")
    }

    #[test]
    fn predicates_name_places() {
        let is = |text: &str| path().eq(lit(text));
        let like = |text: &str| path().like(lit(text));
        for (filter, expected) in [
            (is("/a/b"), "/a/b"),
            (is("/"), "/"),
            (lit("/a").eq(path()), "/a"),
            (path().not_eq(lit("/a")), "anywhere"),
            (ident("name").eq(lit("/a")), "anywhere"),
            (like("/a/b/%"), "/a/b/"),
            (like("/a/b%"), "/a/"),
            (like("/a/b_c/%"), "/a/"),
            (like("/a/b\\_c/%"), "/a/b_c/"),
            (like("/a/b\\_c"), "/a/b_c"),
            (like("%/b"), "anywhere"),
            (path().not_like(lit("/a/%")), "anywhere"),
            (path().ilike(lit("/a/%")), "anywhere"),
            (is("/a").or(like("/b/%")), "/a /b/"),
            (is("/a").or(ident("size").gt(lit(5))), "anywhere"),
            (is("/a").or(is("/b").and(ident("size").gt(lit(5)))), "/a /b"),
            (path().in_list(vec![lit("/a"), lit("/b/c")], false), "/a /b/c"),
            (path().in_list(vec![lit("/a")], true), "anywhere"),
            (path().between(lit("/a/b"), lit("/a/c")), "/a/"),
            (path().between(lit("/a"), lit("/b")), "//"),
            (ident("name").between(lit("/a/b"), lit("/a/c")), "anywhere"),
            // In GUFI's views, this column is the directory of the rows.
            (ident(gufi::PATH).eq(lit("/a")), "/a/"),
            (ident(gufi::ENTRY).eq(lit("/a/b")), "/a/b"),
        ] {
            assert_eq!(shown(std::slice::from_ref(&filter)), expected, "{filter}");
        }
    }

    #[test]
    fn joined_conditions_are_at_their_common_place() {
        let below = |text: &str| path().like(lit(text));
        for (filters, expected) in [
            (vec![below("/a/%"), below("/a/b/%")], "/a/b/"),
            (vec![below("/a/%"), below("/b/%")], ""),
            (vec![below("/a/%"), path().eq(lit("/a/b"))], "/a/b"),
            (vec![ident("size").gt(lit(5)), path().eq(lit("/a/b"))], "/a/b"),
            (vec![path().gt_eq(lit("/a/b/")), path().lt(lit("/a/b0"))], "/a/b/"),
            (vec![path().gt_eq(lit("/a/b/")), path().lt_eq(lit("/a/b0"))], "/a/"),
            (vec![path().gt(lit("/a/b")), path().lt(lit("/a/b0"))], "/a/"),
            (vec![path().gt(lit("/a/b"))], "anywhere"),
            (vec![ident(gufi::PATH).eq(lit("/a")), ident(gufi::ENTRY).eq(lit("/a/b"))], "/a/b"),
            (vec![ident(gufi::PATH).gt(lit("/a/b")), path().lt(lit("/a/c"))], "anywhere"),
        ] {
            assert_eq!(shown(&filters), expected, "{filters:?}");
        }
    }

    #[test]
    fn no_listing_is_read_twice() {
        let places = [
            PathScope::at("a"),
            PathScope::below("a"),
            PathScope::below("a/b"),
            PathScope::at("b"),
            PathScope::at("b"),
            PathScope::at("ab"),
        ];
        let left = disjoint(places.to_vec());
        assert_eq!(left, [PathScope::below("a"), PathScope::at("ab"), PathScope::at("b")]);
        assert_eq!(
            disjoint(vec![PathScope::below(""), PathScope::at("a")]),
            [PathScope::below("")]
        );
    }
}
