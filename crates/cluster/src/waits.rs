//! Requests that wait long for a server: an observer gets to know which server does not answer, once
//! until it answers again, however many requests wait.

use canopy_partition::ServerId;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Time without an answer after which the observer is notified.
const NOTICE: Duration = Duration::from_secs(5);

/// A wait for a server. As text, it is a message to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A server has not answered for some time.
    Silent {
        /// The server; none while any process of the cluster would do.
        server: Option<ServerId>,
        /// The process that should run it; empty if none does.
        address: String,
        /// Time since the request was sent first.
        time: Duration,
        /// The last error; empty while the first attempt waits.
        why: String,
    },
    /// The server has answered.
    Over {
        /// The server; none if any process of the cluster would do.
        server: Option<ServerId>,
        /// Time since the first request that was not answered.
        time: Duration,
    },
    /// The namespace was restored to a snapshot: nothing succeeds any more.
    Restored,
    /// A process refuses this client, as when its certificate was revoked. Nothing succeeds until that is
    /// over.
    Refused(String),
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |f: &mut fmt::Formatter<'_>, server: &Option<ServerId>| match server {
            Some(server) => write!(f, "server {server}"),
            None => f.write_str("the cluster"),
        };
        match self {
            Wait::Silent { server, address, time, why } => {
                name(f, server)?;
                if !address.is_empty() {
                    write!(f, " ({address})")?;
                }
                write!(f, " has not answered for {} s", time.as_secs())?;
                match why.as_str() {
                    "" => Ok(()),
                    why => write!(f, ": {why}"),
                }
            }
            Wait::Restored => crate::Error::Restored.fmt(f),
            Wait::Refused(why) => write!(f, "the servers refuse this client: {why}"),
            Wait::Over { server, time } => {
                name(f, server)?;
                write!(f, " answers again, after {} s", time.as_secs())
            }
        }
    }
}

/// Gets to know of waits. Is called by threads that wait, so it must not call the cluster.
pub type WaitObserver = Arc<dyn Fn(&Wait) + Send + Sync>;

/// Servers that requests wait for.
#[derive(Default)]
pub(crate) struct SilentServers {
    observer: RwLock<Option<WaitObserver>>,
    /// Servers that the observer knows not to answer, with the time since when.
    silent: Mutex<HashMap<Option<ServerId>, Instant>>,
    /// Number of these, for a look without the lock.
    count: AtomicUsize,
}

/// A request that may have to wait.
pub(crate) struct WaitingRequest<'a> {
    waits: &'a SilentServers,
    server: Option<ServerId>,
    since: Instant,
    is_noticed: bool,
}

impl SilentServers {
    pub(crate) fn observe(&self, observer: WaitObserver) {
        *self.observer.write() = Some(observer);
    }

    /// Begins a request to a server, or to any.
    pub(crate) fn begin(&self, server: Option<ServerId>) -> WaitingRequest<'_> {
        WaitingRequest { waits: self, server, since: Instant::now(), is_noticed: false }
    }

    pub(crate) fn notify(&self, wait: &Wait) {
        let observer = self.observer.read().clone();
        if let Some(observer) = observer {
            observer(wait);
        }
    }
}

impl WaitingRequest<'_> {
    /// Returns the time until the observer has to be notified.
    pub(crate) fn left(&self) -> Duration {
        match self.is_noticed {
            true => Duration::MAX,
            false => NOTICE.saturating_sub(self.since.elapsed()),
        }
    }

    /// Notifies the observer if the request has waited long.
    pub(crate) fn notice(&mut self, address: Option<&str>, why: &str) {
        if self.is_noticed || !self.left().is_zero() {
            return;
        }
        self.is_noticed = true;
        let mut silent = self.waits.silent.lock();
        if silent.contains_key(&self.server) {
            return;
        }
        silent.insert(self.server, self.since);
        self.waits.count.store(silent.len(), Ordering::Release);
        drop(silent);
        let (server, time) = (self.server, self.since.elapsed());
        let address = address.unwrap_or_default().to_owned();
        self.waits.notify(&Wait::Silent { server, address, time, why: why.to_owned() });
    }

    /// Notes that the server has answered.
    pub(crate) fn answered(&self) {
        // Usually no server is silent. A request that gave up may have left one.
        if self.waits.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut silent = self.waits.silent.lock();
        let since = silent.remove(&self.server);
        self.waits.count.store(silent.len(), Ordering::Release);
        drop(silent);
        if let Some(since) = since {
            self.waits.notify(&Wait::Over { server: self.server, time: since.elapsed() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_noticed_once_and_its_end_too() {
        let heard = Arc::<Mutex<Vec<String>>>::default();
        let (waits, own) = (SilentServers::default(), heard.clone());
        waits.observe(Arc::new(move |wait| own.lock().push(wait.to_string())));
        let mut quick = waits.begin(Some(ServerId(1)));
        quick.notice(Some("a:1"), "why");
        quick.answered();
        assert!(heard.lock().is_empty());
        let since = Instant::now().checked_sub(NOTICE).unwrap();
        let slow = || WaitingRequest {
            waits: &waits,
            server: Some(ServerId(3)),
            since,
            is_noticed: false,
        };
        let (mut one, mut other) = (slow(), slow());
        one.notice(Some("a:1"), "it is down");
        one.notice(Some("a:1"), "it is down");
        other.notice(None, "");
        other.answered();
        one.answered();
        assert_eq!(
            heard.lock()[..],
            [
                "server 3 (a:1) has not answered for 5 s: it is down",
                "server 3 answers again, after 5 s"
            ]
        );
    }
}
