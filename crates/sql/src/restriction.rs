//! What the predicates of a query rule out before anything is read.

use super::tables::{PATH_COLUMN, external};
use canopy_index::{ColumnId, Index, SourceRecord};
use canopy_model::is_below;
use canopy_read::plan::Unit;
use datafusion::common::{Column, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use std::sync::Arc;

/// Necessary conditions of the rows of an answer. The engine checks the predicates themselves.
#[derive(Clone, Debug, Default)]
pub(super) struct Restriction {
    /// A directory, absolute, at or below which all paths lie.
    directory: Option<String>,
    /// The one path that there can be, absolute.
    path: Option<String>,
    /// Ranges of columns of the files, both ends included.
    bounds: Vec<(ColumnId, i64, i64)>,
}

impl Restriction {
    /// Finds what predicates, all of which hold, demand of a row.
    pub(super) fn new(filters: &[Expr]) -> Self {
        let mut restriction = Restriction::default();
        filters.iter().for_each(|filter| restriction.add(filter));
        restriction
    }

    fn add(&mut self, filter: &Expr) {
        match filter {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
                self.add(left);
                self.add(right);
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => match (&**left, &**right) {
                (Expr::Column(column), Expr::Literal(value, _)) => self.compare(column, *op, value),
                (Expr::Literal(value, _), Expr::Column(column)) => {
                    if let Some(op) = op.swap() {
                        self.compare(column, op, value);
                    }
                }
                _ => {}
            },
            Expr::Like(like)
                if !like.negated && !like.case_insensitive && like.escape_char.is_none() =>
            {
                if let (Expr::Column(column), Expr::Literal(pattern, _)) =
                    (&*like.expr, &*like.pattern)
                {
                    let pattern = pattern.try_as_str().flatten().unwrap_or_default();
                    let end = pattern.find(['%', '_', '\\']).unwrap_or(pattern.len());
                    self.begins_with(column, &pattern[..end]);
                }
            }
            Expr::ScalarFunction(call) if call.name() == "starts_with" => {
                if let [Expr::Column(column), Expr::Literal(prefix, _)] = &call.args[..] {
                    self.begins_with(column, prefix.try_as_str().flatten().unwrap_or_default());
                }
            }
            // Of GUFI's views: the directory itself is in its own listing.
            Expr::ScalarFunction(call) if call.name() == "gufi_listed_below" => {
                if let [_, Expr::Literal(directory, _)] = &call.args[..] {
                    self.directory = directory.try_as_str().flatten().map(str::to_owned);
                }
            }
            _ => {}
        }
    }

    fn compare(&mut self, column: &Column, op: Operator, value: &ScalarValue) {
        if let (Operator::Eq, Some(Some(path))) = (op, value.try_as_str()) {
            if column.name == PATH_COLUMN {
                self.path = Some(path.to_owned());
            }
            return self.begins_with(column, path);
        }
        let (Some(column), Some(value)) = (ColumnId::named(&column.name), number(value)) else {
            return;
        };
        let (low, high) = match op {
            Operator::Eq => (value, value),
            Operator::Gt => (value.saturating_add(1), i64::MAX),
            Operator::GtEq => (value, i64::MAX),
            Operator::Lt => (i64::MIN, value.saturating_sub(1)),
            Operator::LtEq => (i64::MIN, value),
            _ => return,
        };
        self.bounds.push((column, low, high));
    }

    fn begins_with(&mut self, column: &Column, text: &str) {
        if column.name != PATH_COLUMN {
            return;
        }
        let Some((directory, _)) = text.rsplit_once('/') else { return };
        let directory = if directory.is_empty() { "/" } else { directory };
        if self.directory.as_ref().is_none_or(|known| known.len() < directory.len()) {
            self.directory = Some(directory.to_owned());
        }
    }

    /// Returns a directory, absolute, at or below which all paths lie.
    pub(super) fn directory(&self) -> Option<&str> {
        self.directory.as_deref()
    }

    /// Returns what the caller sees of an index: who names a path may see what lies behind gates
    /// above it.
    pub(super) fn view(&self, index: &Arc<Index>) -> Result<Arc<Index>> {
        match self.path.as_deref().or(self.directory.as_deref()) {
            Some(path) => Ok(Arc::new(index.seen_from(path).map_err(external)?)),
            None => Ok(index.clone()),
        }
    }

    /// Returns the one path that there can be, absolute.
    pub(super) fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// Returns that path, relative to the root of a source that holds it.
    pub(super) fn path_in(&self, source: &SourceRecord) -> Option<String> {
        let (path, root) =
            (self.path.as_ref()?.trim_start_matches('/'), source.root.trim_matches('/'));
        is_below(path, root)
            .then(|| path.strip_prefix(root).unwrap_or("").trim_start_matches('/').to_owned())
    }

    /// Returns the subtree of a source, relative to its root, in which all listings of the answer
    /// lie; `None` if the source holds none.
    pub(super) fn subtree(&self, source: &SourceRecord) -> Option<String> {
        let Some(directory) = &self.directory else { return Some(String::new()) };
        let (directory, root) = (directory.trim_matches('/'), source.root.trim_matches('/'));
        if is_below(directory, root) {
            let below = directory.strip_prefix(root).unwrap_or("");
            return Some(below.trim_start_matches('/').to_owned());
        }
        is_below(root, directory).then(String::new)
    }

    /// Returns whether rows of a unit may fulfil the predicates, by the bounds of its row group.
    pub(super) fn admits(&self, unit: &Unit) -> canopy_read::Result<bool> {
        for &(column, low, high) in &self.bounds {
            if unit.bounds(column)?.is_some_and(|(min, max)| max < low || high < min) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn number(value: &ScalarValue) -> Option<i64> {
    match value {
        ScalarValue::Int64(value) | ScalarValue::TimestampNanosecond(value, _) => *value,
        ScalarValue::UInt64(value) => value.and_then(|value| i64::try_from(value).ok()),
        ScalarValue::UInt32(value) => value.map(i64::from),
        ScalarValue::Int32(value) => value.map(i64::from),
        _ => None,
    }
}
