//! Rows that the predicates of a query rule out before anything is read.

use super::places::{self, PathScope, SourceScope, comparison, disjoint};
use canopy_index::{ColumnId, SourceRecord};
use canopy_model::{SourcePathBuf, is_below, parent};
use canopy_query::{Expression, Span};
use canopy_read::conditions;
use canopy_read::plan::Unit;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};

/// Necessary conditions of the rows of an answer. The engine checks the predicates themselves.
#[derive(Clone, Debug)]
pub(super) struct Restriction {
    /// Where all paths are; `None` if that can be anywhere.
    places: Option<Vec<PathScope>>,
    /// The condition that attributes meet.
    condition: Expression,
}

/// The entry that the path of a row names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowPath {
    /// An entry, which is in the listing of the directory above.
    Entry,
    /// A directory, whose own listing gives the row.
    Listing,
}

impl Restriction {
    /// Finds the conditions of a row under which all of the predicates can hold.
    pub(super) fn new(filters: &[Expr]) -> Self {
        let filters: Vec<&Expr> = filters.iter().flat_map(split_conjunction).collect();
        let condition = Expression::all(filters.iter().filter_map(|filter| condition(filter)));
        Restriction { condition, places: places::of_all(&filters) }
    }

    /// Returns where all paths are, in no order; `None` if that can be anywhere.
    pub(super) fn places(&self) -> Option<&[PathScope]> {
        self.places.as_deref()
    }

    /// Returns a directory at or below which those of all paths lie; its path has no slash in
    /// front.
    pub(super) fn directory(&self) -> Option<&str> {
        let mut directories = self.places.as_deref()?.iter().map(PathScope::directory);
        let first = directories.next()?;
        Some(directories.fold(first, |mut common, next| {
            while !is_below(next, common) {
                common = parent(common).unwrap_or_default();
            }
            common
        }))
    }

    /// Returns the subtree of a source in which all listings of the answer lie; `None` if there are
    /// none.
    pub(super) fn subtree(&self, source: &SourceRecord) -> Option<SourcePathBuf> {
        if self.places.is_none() {
            return Some(SourcePathBuf::root());
        }
        PathScope::below(self.directory()?).in_source(source).map(|place| place.path)
    }

    /// Returns the listings of a source that hold all rows of the answer: none of them twice.
    pub(super) fn listings(&self, source: &SourceRecord, of: RowPath) -> Vec<SourceScope> {
        let Some(places) = &self.places else { return vec![SourceScope::everything()] };
        let listings = places.iter().filter_map(|place| {
            let inside = place.in_source(source)?;
            match (inside.below, of) {
                // The root of a source is in no listing of it.
                (false, RowPath::Entry) if inside.path.as_path().is_root() => None,
                (false, RowPath::Entry) => parent(&place.path).map(PathScope::at),
                _ => Some(place.clone()),
            }
        });
        let listings = disjoint(listings.collect());
        listings.iter().filter_map(|place| place.in_source(source)).collect()
    }

    /// Returns whether a row can be the root of a source.
    pub(super) fn admits_root(&self, source: &SourceRecord) -> bool {
        let root = source.root.trim_start_matches('/');
        self.places.as_deref().is_none_or(|places| places.iter().any(|place| place.has(root)))
    }

    /// Returns whether rows of a unit may fulfil the predicates, by the bounds of its row group.
    pub(super) fn admits(&self, unit: &Unit) -> canopy_read::Result<bool> {
        conditions::may_pass(&self.condition, unit)
    }
}

/// Returns a condition that rows meet of which a predicate is true; `None` if none is known. A
/// value that is null, such as a birth that is not known, is in no order.
fn condition(filter: &Expr) -> Option<Expression> {
    if let Expr::BinaryExpr(BinaryExpr { left, op, right }) = filter {
        match op {
            Operator::Or => return Some(Expression::any([condition(left)?, condition(right)?])),
            Operator::And => {
                let parts = [condition(left), condition(right)];
                return Some(Expression::all(parts.into_iter().flatten()));
            }
            _ => {}
        }
    }
    let (column, op, value) = comparison(filter)?;
    let field = conditions::field_of(ColumnId::named(&column.name)?)?;
    let (value, domain) = (number(value)?, field.domain());
    let span = match op {
        Operator::Eq => Span { least: value, most: value },
        Operator::Gt => Span { least: value + 1, ..domain },
        Operator::GtEq => Span { least: value, ..domain },
        Operator::Lt => Span { most: value - 1, ..domain },
        Operator::LtEq => Span { most: value, ..domain },
        _ => return None,
    };
    // A column may have numbers below nothing, which conditions count as nothing.
    let from_nothing = Span { least: span.least.max(0), most: span.most.max(0) };
    Some(Expression::span(field, if field.is_time() { span } else { from_nothing }))
}

fn number(value: &ScalarValue) -> Option<i128> {
    match value {
        ScalarValue::Int64(value) | ScalarValue::TimestampNanosecond(value, _) => {
            value.map(i128::from)
        }
        ScalarValue::UInt64(value) => value.map(i128::from),
        ScalarValue::UInt32(value) => value.map(i128::from),
        ScalarValue::Int32(value) => value.map(i128::from),
        _ => None,
    }
}
