//! Why queries were refused: for the log, and for whoever asked, who can read it as an attribute of
//! the directory that was asked.

use crate::node::Node;
use canopy_events::LimitedEvents;
use canopy_query::shown;
use parking_lot::Mutex;
use std::collections::VecDeque;

/// How many reasons are kept of one account, and of all.
const OF_ACCOUNT: usize = 16;
const ALL: usize = 1024;

struct One {
    asking: Asking,
    why: String,
}

/// The user who asked, and the parent of the query: a directory, and perhaps other queries. The
/// kernel forgets the ids of these at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asking {
    pub(crate) uid: u32,
    pub(crate) account: u32,
    pub(crate) base: Node,
    pub(crate) above: Vec<Vec<u8>>,
}

#[derive(Default)]
pub(crate) struct Refusals {
    events: LimitedEvents,
    all: Mutex<VecDeque<One>>,
}

impl Refusals {
    /// Notes why a query was refused.
    pub(crate) fn note(&self, asking: &Asking, name: &[u8], why: &str) {
        let why = format!("the query {}: {why}", shown(name));
        self.events.warn(&why);
        let mut all = self.all.lock();
        all.retain(|one| one.asking != *asking);
        let own = |one: &One| one.asking.account == asking.account;
        if all.iter().filter(|one| own(one)).count() >= OF_ACCOUNT
            && let Some(at) = all.iter().position(own)
        {
            all.remove(at);
        }
        if all.len() >= ALL {
            all.pop_front();
        }
        all.push_back(One { asking: asking.clone(), why });
    }

    /// Returns why the last query of a user was refused below a directory, or below queries there.
    pub(crate) fn of(&self, uid: u32, base: Node, above: &[Vec<u8>]) -> Option<String> {
        let all = self.all.lock();
        let is_it = |asking: &Asking| {
            (asking.uid, asking.base) == (uid, base) && (above.is_empty() || asking.above == above)
        };
        all.iter().rev().find(|one| is_it(&one.asking)).map(|one| one.why.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use canopy_events::{EVENTS_MAX, Lines};
    use canopy_namespace::FileId;
    use std::sync::Arc;

    #[test]
    fn reasons_are_for_whoever_asked() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let own = lines.clone();
        let subscriber = Lines::new(move |_, line| own.lock().push(line.to_owned()));
        let refusals = tracing::subscriber::with_default(subscriber, Refusals::default);
        let directory = |id| Node::File(FileId(id));
        let note = |uid: u32, base: u64, why: &str| {
            let account = if uid >= 1000 { 1 } else { uid };
            let above = vec![b"[true]".to_vec()];
            refusals.note(&Asking { uid, account, base: directory(base), above }, b"[x\n]", why);
        };
        note(1, 7, "first");
        note(1, 7, "second");
        note(2, 8, "another");
        let why = |uid, base| refusals.of(uid, directory(base), &[]);
        assert_eq!(why(1, 7).as_deref(), Some("the query [x\\n]: second"));
        assert_eq!((why(2, 7), why(1, 8)), (None, None));
        assert_eq!(refusals.of(1, directory(7), &[b"[true]".to_vec()]), why(1, 7));
        assert_eq!(refusals.of(1, directory(7), &[b"[other]".to_vec()]), None);
        // The uids of one account do not have those of others forgotten.
        (1000..4000).for_each(|uid| note(uid, 9, "many"));
        assert!(why(2, 8).is_some() && why(3999, 9).is_some() && why(1000, 9).is_none());
        assert_eq!(lines.lock().len(), EVENTS_MAX as usize);
    }
}
