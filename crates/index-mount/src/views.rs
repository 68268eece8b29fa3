//! The views of all users, each of which a process or thread has that answers for that user alone.

use crate::protocol::{Failure, ReplyKind, RequestKind, Setup};
use crate::service::{VIEW, answer_all};
use crate::view::{Opener, UserView};
use canopy_as_user::{Accounts, Class, Pool, PoolLimits};
use canopy_model::Credentials;
use nix::errno::Errno;
use std::io;
use std::path::PathBuf;

/// Asks for users.
#[derive(Clone)]
pub(crate) struct Views(Pool<RequestKind, Result<ReplyKind, Failure>>);

impl Views {
    /// Returns the views of an index by everybody. Takes root. The root of the mount stands for the
    /// path `root`.
    pub(crate) fn of_everybody(
        index: PathBuf,
        root: PathBuf,
        accounts: Accounts,
    ) -> io::Result<Self> {
        let (setup, limits) = (Setup { index, root }, PoolLimits::STANDARD);
        Pool::of_processes(&VIEW, &setup, accounts, limits).map(Views)
    }

    /// Returns the view of the user of this process. `root` is escaped.
    pub(crate) fn of_owner(opener: Opener, root: String) -> Self {
        let serve = move |channel| {
            // The socket is closed with it, which fails all requests.
            let _ = answer_all(channel, UserView::new(opener.clone(), root.clone()));
        };
        Views(Pool::in_thread(serve, PoolLimits::STANDARD))
    }

    /// Asks for a user, and calls `then` with the answer, from another thread.
    pub(crate) fn ask(
        &self,
        who: &Credentials,
        asked: &RequestKind,
        class: Class,
        then: impl FnOnce(Result<ReplyKind, Errno>) + Send + 'static,
    ) {
        let pool = self.0.clone();
        self.0.ask(who, class, asked, move |told| {
            then(told.and_then(|reply| {
                reply.map_err(|failure| {
                    failure.log.iter().for_each(|line| pool.warn(line));
                    match failure.errno {
                        1..4096 => Errno::from_raw(failure.errno),
                        _ => Errno::EIO,
                    }
                })
            }));
        });
    }

    /// Sends a request that needs no answer to the process of a user, if there is one.
    pub(crate) fn notify(&self, who: &Credentials, asked: &RequestKind) {
        self.0.notify(who, asked);
    }
}
