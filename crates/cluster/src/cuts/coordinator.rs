//! Server 0 as the maker of cuts.

use crate::cuts::{CutId, CutMessage, CutReply};
use crate::error::{Error, Result};
use crate::message::{Request, Response, Sender, ServerRequest};
use crate::peers::Peers;
use crate::process::Process;
use crate::server::Server;
use canopy_partition::ServerId;
use parking_lot::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// Threads that ask servers at once.
pub(crate) const AT_ONCE: usize = 16;

/// Limits of the pause in the attempts to make a cut. The first ones are short: if something does
/// not come to its end, clients do not wait for it for long.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_millis(1000),
    Duration::from_millis(2000),
];

/// Times between attempts, and until a server is asked again.
const BETWEEN: Duration = Duration::from_millis(50);
const POLL_MIN: Duration = Duration::from_micros(100);
const POLL_MAX: Duration = Duration::from_millis(5);

/// The tables of all servers at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    /// Checkpoints, in the order of servers.
    pub(crate) checkpoints: Vec<u64>,
    /// A moment in the pause, in nanoseconds since 1970.
    pub(crate) at_ns: i64,
    /// Time for which changes were paused.
    pub(crate) pause: Duration,
}

impl Process {
    /// Makes a cut. Its checkpoints go after `lifetime_ms`. One cut is made at a time.
    ///
    /// # Errors
    ///
    /// Fails with `NoCut` if servers did not come to rest in time, and as they do.
    pub(crate) fn cut(&self, maker: &Server, lifetime_ms: u64) -> Result<Cut> {
        let mut last = None;
        for pause_max in PAUSES {
            let id = maker.snapshots.next_cut(maker.epoch());
            match self.try_cut(maker, id, lifetime_ms, pause_max) {
                Err(error @ Error::NoCut { .. }) => last = Some(error),
                outcome => return outcome,
            }
            thread::sleep(BETWEEN);
        }
        Err(last.unwrap_or(Error::Unfit))
    }

    fn try_cut(
        &self,
        maker: &Server,
        id: CutId,
        lifetime_ms: u64,
        pause_max: Duration,
    ) -> Result<Cut> {
        let servers = self.layout().refresh()?;
        self.round(id, CutMessage::Begin, None)?;
        let begun = Instant::now();
        let deadline = Some(begun + pause_max);
        let frozen = self.round(id, CutMessage::Pause, deadline).and_then(|_| {
            self.round(id, CutMessage::Rest, deadline)?;
            if self.layout().refresh()? != servers {
                return Err(Error::NoCut { server: ServerId(servers), why: "was just added" });
            }
            let at_ns = maker.tablet.now_ns();
            self.round(id, CutMessage::Freeze { lifetime_ms }, deadline)?;
            Ok(at_ns)
        });
        let resumed =
            frozen.and_then(|at_ns| self.round(id, CutMessage::Resume, None).map(|_| at_ns));
        let pause = begun.elapsed();
        let kept = resumed.and_then(|at_ns| Ok((at_ns, self.round(id, CutMessage::Keep, None)?)));
        let (at_ns, replies) = match kept {
            Ok(kept) => kept,
            Err(error) => {
                // A server that does not hear of this ends its pause by itself.
                let _ = self.round(id, CutMessage::Abandon, None);
                return Err(error);
            }
        };
        let checkpoint = |reply| match reply {
            CutReply::Checkpoint(checkpoint) => Ok(checkpoint),
            _ => Err(Error::Unfit),
        };
        let checkpoints = replies.into_iter().map(checkpoint).collect::<Result<_>>()?;
        Ok(Cut { checkpoints, at_ns, pause })
    }

    /// Has all servers do a round. Returns their replies in order.
    fn round(
        &self,
        id: CutId,
        step: CutMessage,
        deadline: Option<Instant>,
    ) -> Result<Vec<CutReply>> {
        let servers = Vec::from_iter(self.layout().servers());
        let goes_on = step == CutMessage::Abandon;
        each_at_once(&servers, goes_on, |server| self.ask_for_round(*server, id, step, deadline))
    }

    fn ask_for_round(
        &self,
        server: ServerId,
        id: CutId,
        step: CutMessage,
        deadline: Option<Instant>,
    ) -> Result<CutReply> {
        let request = Request::OfServer(ServerRequest::Cut(id, step));
        let mut pause = POLL_MIN;
        loop {
            let reply = match self.ask(server, Sender::SERVER, &request)? {
                Response::Cut(reply) => reply,
                _ => return Err(Error::Unfit),
            };
            match reply {
                CutReply::NotYet if deadline.is_none_or(|deadline| Instant::now() < deadline) => {
                    thread::sleep(pause);
                    pause = (2 * pause).min(POLL_MAX);
                }
                CutReply::NotYet => {
                    return Err(Error::NoCut { server, why: "has unfinished changes" });
                }
                CutReply::Refused => {
                    return Err(Error::NoCut { server, why: "was replaced or too slow" });
                }
                CutReply::Done | CutReply::Checkpoint(_) => return Ok(reply),
            }
        }
    }
}

/// Does something for each of many on a few threads. Returns all results in order, or an error. After
/// an error nothing more is begun, unless it `goes_on`.
pub(crate) fn each_at_once<T: Sync, R: Send>(
    all: &[T],
    goes_on: bool,
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let next = Mutex::new((0, None));
    let work_on = || {
        let mut done = Vec::new();
        loop {
            let at = {
                let mut next = next.lock();
                let (at, failed): &mut (usize, Option<Error>) = &mut next;
                if *at >= all.len() || failed.is_some() && !goes_on {
                    return done;
                }
                *at += 1;
                *at - 1
            };
            match work(&all[at]) {
                Ok(result) => done.push((at, result)),
                Err(error) => _ = next.lock().1.get_or_insert(error),
            }
        }
    };
    let mut done = match all.len() {
        0 | 1 => work_on(),
        count => thread::scope(|scope| {
            let threads = Vec::from_iter((1..count.min(AT_ONCE)).map(|_| scope.spawn(work_on)));
            let mut done = work_on();
            for thread in threads {
                match thread.join() {
                    Ok(of_thread) => done.extend(of_thread),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            done
        }),
    };
    if let Some(error) = next.into_inner().1 {
        return Err(error);
    }
    done.sort_unstable_by_key(|(at, _)| *at);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}
