//! The tests, carried out over candidates: all that are asked for at once, or one.

use super::candidates::{Among, Candidates, Numeric, Over};
use crate::error::Result;
use crate::find::language::Test;
use arrow::buffer::BooleanBuffer;
use canopy_index::column::{
    ATIME, BLOCKS, BTIME, CTIME, Column, GID, INO, MODE, MTIME, NLINK, SIZE, Time, UID,
};
use canopy_query::{AttributeTest, Field, Span};
use std::cell::Cell;

impl Test {
    /// Returns which candidates of `among` pass.
    pub(crate) fn evaluate(
        &self,
        rows: &impl Candidates,
        among: &BooleanBuffer,
    ) -> Result<BooleanBuffer> {
        match self {
            Test::Always(true) => Ok(among.clone()),
            Test::Always(false) => Ok(BooleanBuffer::new_unset(rows.len())),
            _ => self.check(rows, Among(among)),
        }
    }

    /// Carries the test out over candidates.
    pub(crate) fn check<O: Over>(&self, rows: &impl Candidates, over: O) -> Result<O::Outcome> {
        Ok(match self {
            Test::Always(outcome) => over.each(|_| *outcome),
            Test::Name(glob) => {
                let names = rows.names()?;
                over.each(|at| glob.matches(&names(at)))
            }
            Test::Path(glob) => over.each(|at| glob.matches(&rows.shown(at))),
            Test::Regex(regex) => {
                let failed = Cell::new(None);
                let outcome = over.each(|at| {
                    let matches = regex.matches(&rows.shown(at));
                    matches.unwrap_or_else(|error| {
                        failed.set(Some(error));
                        false
                    })
                });
                if let Some(error) = failed.take() {
                    return Err(error.into());
                }
                outcome
            }
            Test::Condition(test) => condition(*test, rows, over)?,
            Test::Empty => over.each(rows.empties()?),
            Test::Xattr(test) => over.each(rows.xattrs(test)?),
            Test::Target(glob) => {
                let targets = rows.targets();
                over.each(|at| match &*targets(at) {
                    "" => false,
                    target => glob.matches(target),
                })
            }
            Test::TargetType(types) => over.each(rows.leads_to(types)?),
            Test::NoName(column, name) => {
                of_number(rows, over, *column, |id| name(id as u32).is_none())?
            }
            Test::Used(after, until) => {
                let (read, changed) = (rows.numbers(ATIME)?, rows.numbers(CTIME)?);
                over.each(|at| {
                    let span = read(at)
                        .zip(changed(at))
                        .map(|(read, changed)| read.saturating_sub(changed));
                    span.is_some_and(|span| *after < span && span <= *until)
                })
            }
            Test::SameFile(file) => {
                let inodes = rows.numbers(INO)?;
                over.each(|at| inodes(at) == Some(file.ino as i64) && rows.is_device_of(file, at))
            }
            Test::FileSystem(name) => over.each(|at| rows.is_on(name, at)),
            Test::Access(wanted) => over.each(rows.may_access(*wanted)?),
        })
    }
}

/// Carries out a test of an attribute, as a comparison of two numbers with each of a column.
fn condition<O: Over>(test: AttributeTest, rows: &impl Candidates, over: O) -> Result<O::Outcome> {
    match test {
        AttributeTest::Type(types) => {
            let kinds = rows.types()?;
            Ok(over.each(|at| kinds(at).is_some_and(|kind| types.has(kind))))
        }
        AttributeTest::Permissions(kind, bits) => {
            of_number(rows, over, MODE, |mode| kind.holds(mode as u32, bits))
        }
        AttributeTest::Span(field, span) => in_span(field, span, rows, over),
    }
}

fn in_span<O: Over>(
    field: Field,
    span: Span,
    rows: &impl Candidates,
    over: O,
) -> Result<O::Outcome> {
    // No number is in the other order, and find knows no project of an entry.
    let ends = field.signed(span).filter(|_| field != Field::Project);
    let (least, most) = ends.unwrap_or((1, 0));
    let is_in = |value: i64| least <= value && value <= most;
    // One call for each type of columns: there is a loop for each.
    match field {
        Field::Size | Field::Blocks | Field::Project => {
            of_number(rows, over, if field == Field::Blocks { BLOCKS } else { SIZE }, is_in)
        }
        Field::Uid | Field::Gid | Field::Links | Field::Mode => {
            of_number(rows, over, id_column(field), is_in)
        }
        Field::Mtime | Field::Ctime | Field::Atime | Field::Btime => {
            let is_known = |time: i64| time != 0 || !field.may_be_unknown();
            let column = time_column(field);
            of_number(rows, over, column, |time| is_known(time) && is_in(time))
        }
        Field::Inode => {
            let (least, most) = span.within(0, u64::MAX).unwrap_or((1, 0));
            of_number(rows, over, INO, |ino| least <= ino as u64 && ino as u64 <= most)
        }
    }
}

fn id_column(field: Field) -> Column<u32> {
    match field {
        Field::Uid => UID,
        Field::Gid => GID,
        Field::Mode => MODE,
        _ => NLINK,
    }
}

fn time_column(field: Field) -> Column<Time> {
    match field {
        Field::Ctime => CTIME,
        Field::Atime => ATIME,
        Field::Btime => BTIME,
        _ => MTIME,
    }
}

/// Carries out a test of a column of numbers.
fn of_number<T: Numeric, O: Over>(
    rows: &impl Candidates,
    over: O,
    column: Column<T>,
    holds: impl Fn(i64) -> bool,
) -> Result<O::Outcome> {
    let numbers = rows.numbers(column)?;
    Ok(over.each(|at| numbers(at).is_some_and(&holds)))
}
