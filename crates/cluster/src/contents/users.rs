//! Users who have a file open, for servers that check them: what is read and sent goes under the name
//! of one of them. A client that servers trust has none.
//!
//! Servers check again what these users may do now, as NFS servers do. So a user whose rights are
//! taken away cannot send any more through a file that is open, unless the user owns it.

use canopy_model::{Credentials, Wanted};
use canopy_namespace::operation::Caller;
use canopy_namespace::{Error, Result};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::sync::Arc;

/// Users who have opened a file, each once with all that it was opened for.
#[derive(Default)]
pub(super) struct Users(Mutex<Vec<Opener>>);

#[derive(Clone)]
struct Opener {
    who: Arc<Credentials>,
    reads: bool,
    writes: bool,
}

impl Users {
    /// Notes that a user has opened the file.
    pub(super) fn add(&self, who: &Credentials, wanted: Wanted) {
        let (reads, writes) = (wanted.includes(Wanted::READ), wanted.includes(Wanted::WRITE));
        let mut all = self.0.lock();
        match all.iter_mut().find(|one| one.who.uid == who.uid) {
            Some(one) => {
                one.who = Arc::new(who.clone());
                (one.reads, one.writes) = (one.reads | reads, one.writes | writes);
            }
            None => all.push(Opener { who: Arc::new(who.clone()), reads, writes }),
        }
    }

    /// Asks servers for the users who may read, until one is not refused. A user who can only write
    /// comes last: the owner of a file may read its records then.
    pub(super) fn reading<T>(&self, ask: impl FnMut(Caller<'_>) -> Result<T>) -> Result<T> {
        let mut all = self.0.lock().clone();
        all.sort_by_key(|one| !one.reads);
        for_each(&all, ask)
    }

    /// Asks servers for the users who write, until one is not refused. Root comes last: a change goes
    /// under the name of somebody whom permissions bind, if anybody has them. Bytes of all are sent
    /// together, so root's are not lost with those of a user who has lost the right to write.
    pub(super) fn writing<T>(&self, ask: impl FnMut(Caller<'_>) -> Result<T>) -> Result<T> {
        let mut all = self.0.lock().clone();
        all.retain(|one| one.writes);
        all.sort_by_key(|one| one.who.is_root());
        for_each(&all, ask)
    }
}

fn for_each<T>(all: &[Opener], mut ask: impl FnMut(Caller<'_>) -> Result<T>) -> Result<T> {
    let Some((last, others)) = all.split_last() else { return ask(Caller::Trusted) };
    for one in others {
        match ask(Caller::User(&one.who)) {
            Err(Error::Posix(Errno::ACCESS | Errno::PERM)) => {}
            answered => return answered,
        }
    }
    ask(Caller::User(&last.who))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uids(users: &Users, writes: bool) -> Vec<Option<u32>> {
        let mut asked = Vec::new();
        let ask = |caller: Caller<'_>| {
            asked.push(caller.user().map(|who| who.uid));
            Err::<(), _>(Errno::ACCESS.into())
        };
        let refused = if writes { users.writing(ask) } else { users.reading(ask) };
        assert!(refused.is_err());
        asked
    }

    #[test]
    fn requests_are_those_of_users_who_have_the_file_open() {
        let users = Users::default();
        assert_eq!(uids(&users, true), [None]);
        users.add(&Credentials::new(0, [0]), Wanted::READ_WRITE);
        assert_eq!(uids(&users, true), [Some(0)]);
        users.add(&Credentials::new(7, [7]), Wanted::WRITE);
        users.add(&Credentials::new(8, [8]), Wanted::READ);
        users.add(&Credentials::new(7, [7, 9]), Wanted::WRITE);
        assert_eq!(uids(&users, true), [Some(7), Some(0)]);
        assert_eq!(uids(&users, false), [Some(0), Some(8), Some(7)]);
    }
}
