//! Searching one of several tables by parts, for its server.

use super::cursor::Cursor;
use super::sight::PartView;
use super::{Found, PATH_BYTES_MAX, Pace, Search, Viewer, explain};
use crate::error::Result;
use crate::records::keys::FileId;
use crate::snapshot::present::{FileTree, Present};
use canopy_model::Credentials;
use canopy_query::Expression;

impl PartView<'_> {
    /// Calls `tell` with the files of this table below a directory that match an expression, behind a
    /// cursor, until it returns false or as many names as `names_max` were looked at. Only files that
    /// `who` could see by listing directories from `base` on are found; of a snapshot, also by the
    /// permissions in the tree of now, if it is given. Returns where to go on, unless all was looked at.
    ///
    /// # Errors
    ///
    /// Fails as this and the other tables do, with `NOENT` if the base is gone, and with `Corrupt` if a
    /// record is damaged.
    pub fn search(
        &self,
        base: FileId,
        expression: &Expression,
        (who, now): (&Credentials, Option<&dyn FileTree>),
        (after, names_max): (Option<&Cursor>, u64),
        mut tell: impl FnMut(Found) -> bool,
    ) -> Result<Option<Cursor>> {
        if !expression.is_possible() {
            return Ok(None);
        }
        let viewer = match now {
            Some(now) => Viewer::of_then(Present::new(now, who)),
            None => Viewer::of_now(who),
        };
        let mut search = Search::new(self, base, expression, viewer, &|_| ())?;
        search.path_bytes_max = PATH_BYTES_MAX;
        search.left = names_max;
        match self.is_narrow() {
            true => search.scan(after, &mut tell),
            false => search.run(after, &mut tell),
        }
    }

    /// Returns where a search looks for the files that an expression is true of, in words.
    pub fn explain(&self, expression: &Expression) -> String {
        explain::explained(expression, self.configured())
    }

    /// Returns how many candidates a search looks up by indexes; none if it looks at every name.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn count_candidates(
        &self,
        base: FileId,
        expression: &Expression,
        pace: Pace<'_>,
    ) -> Result<Option<usize>> {
        let who = Credentials::new(0, []);
        let search = Search::new(self, base, expression, Viewer::of_now(&who), pace)?;
        Ok(search.plan(false)?.map(|ids| ids.len()))
    }
}
