//! The plan of a query, which a user reads as an attribute of it.

use crate::node::{Node, QueryId};
use crate::pool::Turn;
use crate::queries::{Meaning, Queries};
use canopy_fuse::results::RESULTS_MAX;
use canopy_model::Credentials;
use canopy_namespace::Error;
use canopy_namespace::operation::Query;

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
        let (at, id) = self.place(base)?;
        let asked = Query::new(at, id, &expression, who);
        let pace = |bytes| turn.pause(bytes);
        let found = self.namespace.explain_query(&asked, who.is_root(), &pace)?;
        plan.push_str(&format!("looks in: {}\n", found.looks_in));
        if who.is_root() {
            let count = found.candidates.map_or("every name".to_owned(), |count| count.to_string());
            plan.push_str(&format!("candidates: {count}\n"));
        }
        if reads {
            plan.push_str("then: compares the contents of files of one size that you may read\n");
        }
        Ok(plan)
    }
}
