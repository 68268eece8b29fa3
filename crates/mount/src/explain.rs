//! The plan of a query, which a user reads as an attribute of it.

use crate::node::{Node, QueryId};
use crate::pool::Turn;
use crate::queries::{Meaning, Queries};
use crate::results::RESULTS_MAX;
use canopy_model::Credentials;
use canopy_namespace::{Error, FileId, ReadView};
use rustix::io::Errno;

/// The attribute of a query that says how it is answered.
pub const PLAN: &str = "user.canopy.plan";

impl Queries {
    /// Returns how a query is answered, in lines. Root gets the number of candidates, too: it counts
    /// files that others may not see.
    pub(crate) fn plan(
        &self,
        query: QueryId,
        who: &Credentials,
        turn: &Turn<'_>,
    ) -> Result<String, Error> {
        let (base, components) = self.nodes.chain(Node::Query(query))?;
        if self.lists_snapshots(&components) {
            return Ok("lists the snapshots\n".to_owned());
        }
        let parent = self.nodes.parent(query).unwrap_or(base);
        let asking = self.asking(who.uid, parent);
        let Meaning { expression, limit, reads } = self.meaning(&asking, &components)?;
        let mut plan = format!("finds: [{expression}]\n");
        if limit < RESULTS_MAX {
            plan.push_str(&format!("at most: the {limit} files that were changed last\n"));
        }
        let mut look = |view: &ReadView, base: FileId| -> Result<(), Error> {
            plan.push_str(&format!("looks in: {}\n", view.explain(&expression)));
            if who.is_root() {
                let count = view.count_candidates(base, &expression, &|bytes| turn.pause(bytes))?;
                let count = count.map_or("every name".to_owned(), |count| count.to_string());
                plan.push_str(&format!("candidates: {count}\n"));
            }
            Ok(())
        };
        match base {
            Node::File(id) => look(&self.namespace.view()?, id)?,
            Node::Snapshot(file) => look(self.pasts.of(file)?.view(), file.id)?,
            Node::Query(_) => return Err(Errno::NOTDIR.into()),
        }
        if reads {
            plan.push_str("then: compares the contents of files of one size that you may read\n");
        }
        Ok(plan)
    }
}
