//! Calls that arrive at a process, and their answers. Changes outlast a crash before they are answered:
//! those that were executed together by one write of the log.
//!
//! Brief calls of clients are executed together (`executors`). A call that has to wait, for another
//! server or for the end of something, is left to a thread that may wait, so that it delays no other one.

use super::{CLIENT_THREADS, Inner, SERVER_THREADS, client_share, is_change};
use crate::envelope::{self, Answer, Envelope, RequestClass};
use crate::error::Error;
use crate::executors::{Calls, MOMENT, Turn};
use crate::handles::Owner;
use crate::message::{Refusal, Request};
use crate::turns::Taken;
use crate::wire::{Batch, Call, Peer, Replies};
use canopy_namespace::operation::{Access, Change, Operation};
use canopy_partition::ServerId;
use rustix::io::Errno;
use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Calls of one client, with its share of threads.
pub(super) type TakenCalls = Taken<Peer, Vec<Call>>;

impl Calls for Vec<Call> {
    fn count(&self) -> usize {
        self.len()
    }
}

/// Calls that were executed together.
#[derive(Default)]
struct Executed {
    done: Vec<Done>,
    /// Servers that were asked, each with its epoch before, and whether it has changed something.
    touched: BTreeMap<ServerId, (crate::error::Result<u64>, bool)>,
}

/// A call that was executed.
struct Done {
    call: Call,
    answer: Answer,
    /// The server that was asked, and whether it has changed something.
    server: Option<(ServerId, bool)>,
    /// Whether the authority of limits has to know of the change before the reply.
    has_notices: bool,
}

/// A call that was not executed, since it may have to wait.
struct Waiting {
    call: Call,
    /// Whether calls like this one wait each by itself: for other servers, say.
    is_alone: bool,
}

impl Inner {
    /// Takes the calls of a frame.
    pub(super) fn take_batch(self: &Arc<Self>, batch: Batch) {
        let metrics = self.process.metrics();
        metrics.frames.add(1);
        metrics.calls.add(batch.len() as u64);
        let peer = batch.peer().clone();
        let may_be_server = self.rights.may_be_server(&peer);
        let class = |call: &Call| match may_be_server {
            true => envelope::class_of(call.body()),
            false => RequestClass::Client,
        };
        let mut calls = BTreeMap::<RequestClass, Vec<Call>>::new();
        for call in batch {
            metrics.bytes_in.add(call.body().len() as u64);
            calls.entry(class(&call)).or_default().push(call);
        }
        for (class, calls) in calls {
            match class {
                RequestClass::Client => {
                    self.brief.add(peer.clone(), client_share(may_be_server), calls);
                }
                class => self.answer_later(&peer, class, calls),
            }
        }
    }

    /// Has a thread that may wait answer calls of one client.
    fn answer_later(self: &Arc<Self>, peer: &Peer, class: RequestClass, calls: Vec<Call>) {
        let (workers, share) = match class {
            RequestClass::Client => (&self.clients, client_share(self.rights.may_be_server(peer))),
            RequestClass::Nested => (&self.nested, CLIENT_THREADS),
            RequestClass::Server => (&self.servers, SERVER_THREADS),
        };
        let (inner, peer_of) = (self.clone(), peer.clone());
        workers.add(peer.clone(), share, move || inner.answer(&peer_of, class, calls));
    }

    /// Answers calls of one client. Those that may wait for other servers are answered each by itself.
    fn answer(self: &Arc<Self>, peer: &Peer, class: RequestClass, calls: Vec<Call>) {
        let mut executed = Executed::default();
        let is_alone = calls.len() == 1;
        for call in calls {
            match !is_alone && waits_for_servers(&call) {
                true => self.answer_later(peer, class, vec![call]),
                false => _ = self.execute_call(&mut executed, call, true),
            }
        }
        self.reply(executed);
    }

    /// Answers calls that have arrived, of several clients, and returns those that are left for
    /// another turn.
    pub(super) fn answer_briefly(
        self: &Arc<Self>,
        taken: Vec<TakenCalls>,
        turn: &Turn<'_, Peer, Vec<Call>>,
    ) -> Vec<TakenCalls> {
        let mut executed = Executed::default();
        let (mut left, mut count) = (Vec::new(), 0);
        let is_shared = taken.len() > 1;
        let is_alone = !is_shared && taken.iter().all(|one| one.job.len() == 1);
        for Taken { client, share, job } in taken {
            let (mut calls, mut waiting) = (job.into_iter(), Vec::new());
            // Others do not wait for the rest of a slow client, nor for what waits.
            while (count == 0 || !is_shared || !turn.is_over())
                && let Some(call) = calls.next()
            {
                count += 1;
                match self.execute_call(&mut executed, call, false) {
                    Some(one) if is_alone => {
                        turn.end();
                        self.execute_call(&mut executed, one.call, true);
                    }
                    Some(one) if one.is_alone => {
                        self.answer_later(&client, RequestClass::Client, vec![one.call]);
                    }
                    Some(one) => waiting.push(one.call),
                    None => {}
                }
            }
            if !waiting.is_empty() {
                self.answer_later(&client, RequestClass::Client, waiting);
            }
            let job = Vec::from_iter(calls);
            if !job.is_empty() {
                left.push(Taken { client, share, job });
            }
        }
        if self.has_slow_log.load(Ordering::Relaxed) {
            turn.end();
        }
        self.reply(executed);
        left
    }

    /// Executes a call. Returns it if it has to wait and must not.
    fn execute_call(&self, executed: &mut Executed, call: Call, may_wait: bool) -> Option<Waiting> {
        let Ok(envelope) = postcard::from_bytes::<Envelope<'_>>(call.body()) else {
            call.refuse("the request is damaged");
            return None;
        };
        if !may_wait && may_wait_for_servers(&envelope) {
            drop(envelope);
            return Some(Waiting { call, is_alone: true });
        }
        let (mut server, mut has_notices) = (None, false);
        let answer = match &envelope {
            Envelope::Route => Answer::Route((*self.others.route()).clone()),
            Envelope::Session => {
                let owner = Owner::of(call.peer());
                Answer::Session(self.key.session(owner, self.random.next_u64()))
            }
            Envelope::Request { server: asked, request, .. } => {
                let epoch = || (self.process.epoch_of(*asked), false);
                let touched = executed.touched.entry(*asked).or_insert_with(epoch);
                // Others in the batch are answered although one request meets a fault of the server.
                let execute = || self.execute(call.peer(), &envelope, may_wait);
                let answer = match catch_unwind(AssertUnwindSafe(execute)).unwrap_or_else(panicked)
                {
                    Err(Error::WouldWait) => {
                        drop(envelope);
                        return Some(Waiting { call, is_alone: false });
                    }
                    Ok((response, Some(marks))) => Answer::Marked(response, marks),
                    Ok((response, None)) => Answer::Of(Ok(response)),
                    Err(error) => Answer::Of(Err((&error).into())),
                };
                // A failed request has changed nothing.
                let is_change = is_change(request) && !matches!(answer, Answer::Of(Err(_)));
                touched.1 |= is_change;
                has_notices = !may_wait && self.process.has_notices(*asked);
                server = Some((*asked, is_change));
                answer
            }
        };
        executed.done.push(Done { call, answer, server, has_notices });
        None
    }

    /// Makes changes durable, and sends the answers.
    fn reply(self: &Arc<Self>, executed: Executed) {
        let outcomes = executed.touched.into_iter().map(|(server, (epoch, is_change))| {
            let began = Instant::now();
            let durable = epoch.and_then(|epoch| self.make_durable(server, epoch, is_change));
            if is_change {
                self.has_slow_log.store(began.elapsed() >= MOMENT / 2, Ordering::Relaxed);
            }
            (server, durable)
        });
        let outcomes = BTreeMap::from_iter(outcomes);
        let mut replies = Replies::default();
        for Done { call, answer, server, has_notices } in executed.done {
            let failed = server.and_then(|(server, is_change)| {
                let error = outcomes.get(&server)?.as_ref().err()?;
                // While the disk is full, what has been stored can be read.
                (is_change || !matches!(error, Error::Full(_))).then_some(error)
            });
            let answer = failed.map_or(answer, |error| Answer::Of(Err(Refusal::from(error))));
            let body = envelope::encode(&answer);
            self.process.metrics().bytes_out.add(body.len() as u64);
            match server.filter(|_| has_notices) {
                Some((server, _)) => self.reply_after_notices(server, call, body),
                None => replies.answer(call, &body),
            }
        }
    }

    /// Sends an answer once the authority of limits knows of the change, by a thread that may wait.
    fn reply_after_notices(self: &Arc<Self>, server: ServerId, call: Call, body: Vec<u8>) {
        let (inner, peer) = (self.clone(), call.peer().clone());
        let share = client_share(self.rights.may_be_server(&peer));
        self.clients.add(peer, share, move || {
            inner.process.send_notices(server);
            call.answer(&body);
        });
    }
}

/// Returns the outcome of a request whose execution has panicked: it may have changed something.
fn panicked<T>(_: Box<dyn Any + Send>) -> crate::error::Result<T> {
    Err(canopy_namespace::Error::from(Errno::IO).into())
}

fn waits_for_servers(call: &Call) -> bool {
    let envelope = postcard::from_bytes::<Envelope<'_>>(call.body());
    envelope.is_ok_and(|envelope| may_wait_for_servers(&envelope))
}

/// Returns whether a request may have to wait for other servers, or for storage, from the beginning.
fn may_wait_for_servers(envelope: &Envelope<'_>) -> bool {
    use canopy_namespace::inode::{TYPE_MASK, file_type};
    let operation = match envelope {
        Envelope::Request { request: Request::Execute(operation), .. } => operation,
        Envelope::Request {
            request:
                Request::Split(..)
                | Request::Cut(_)
                | Request::Past(..)
                | Request::Search(_)
                | Request::Share(_)
                | Request::Servers
                | Request::PushAttributes(_)
                | Request::AwaitLocks,
            ..
        } => return true,
        _ => return false,
    };
    match operation {
        Operation::Change(change) => match change {
            Change::Create { new, .. } => new.mode & TYPE_MASK == file_type::DIRECTORY,
            Change::Link { .. } | Change::Rename { .. } | Change::Rmdir(_) => true,
            _ => false,
        },
        Operation::Administration(_) | Operation::Explain(..) => true,
        Operation::Quotas(_) => true,
        Operation::Snapshots(_) | Operation::Access(Access::IsShown(..)) => true,
        _ => false,
    }
}
