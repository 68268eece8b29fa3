//! The tests, carried out over candidates: all that are asked for at once, or one.

use super::candidates::{Among, Candidates, Numeric, Over};
use crate::error::Result;
use crate::find::language::Test;
use arrow::buffer::BooleanBuffer;
use canopy_index::column::{ATIME, BTIME, CTIME, Column, INO, MODE, SIZE};
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
            Test::Type(types) => {
                let kinds = rows.types()?;
                over.each(|at| kinds(at).is_some_and(|kind| types.contains(&kind)))
            }
            Test::Size(number, unit) => {
                let (after, until) = number.span(*unit);
                of_number(rows, over, SIZE, |size| after < size && size <= until)?
            }
            Test::Empty => over.each(rows.empties()?),
            Test::Time(column, after, until) => {
                let is_known = |time: i64| time != 0 || column.id() != BTIME.id();
                of_number(rows, over, *column, |time| {
                    is_known(time) && *after < time && time <= *until
                })?
            }
            Test::Id(column, number) => of_number(rows, over, *column, |id| number.holds(id))?,
            Test::Inode(number) => of_number(rows, over, INO, |inode| number.holds(inode))?,
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
            Test::Perm(bits, kind) => {
                of_number(rows, over, MODE, |mode| bits.match_mode(mode as u32, *kind))?
            }
        })
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
