//! Requests that concern all servers: a client asks them at once.

use crate::client::Client;
use crate::error::{Error, Result};
use crate::message::{Request, Response};
use canopy_namespace::Reply;
use canopy_namespace::operation::{Administration, Caller, Operation, program};
use canopy_partition::ServerId;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// Servers that are asked at once.
const AT_ONCE: u32 = 32;

impl Client {
    /// Does something with each server, with several at once, until one fails.
    ///
    /// # Errors
    ///
    /// Fails with the first error in the order of threads.
    pub(crate) fn on_each_server(
        &self,
        work: impl Fn(ServerId) -> Result<()> + Sync,
    ) -> Result<()> {
        let count = self.all_servers()?;
        let next = AtomicU32::new(0);
        let program = program::current();
        let run = || -> Result<()> {
            let _work = program::resume(program);
            loop {
                let server = ServerId(next.fetch_add(1, Ordering::Relaxed));
                if server.0 >= count {
                    return Ok(());
                }
                if let Err(error) = work(server) {
                    // The others end, too.
                    next.store(count, Ordering::Relaxed);
                    return Err(error);
                }
            }
        };
        if count == 1 {
            return run();
        }
        thread::scope(|scope| {
            let threads = Vec::from_iter((0..count.min(AT_ONCE)).map(|_| scope.spawn(run)));
            // All of them have ended before the first failure is returned.
            let join = |one: thread::ScopedJoinHandle<'_, Result<()>>| one.join();
            let ended = Vec::from_iter(threads.into_iter().map(join));
            ended.into_iter().try_for_each(|one| one.unwrap_or(Err(Error::Unfit)))
        })
    }

    /// Sends a request to all servers, to several at once, and passes their replies on, in no order.
    ///
    /// # Errors
    ///
    /// Fails as a server and `take` do.
    pub(crate) fn ask_all(
        &self,
        caller: Caller<'_>,
        request: &Request<'_>,
        take: impl Fn(ServerId, Response) -> Result<()> + Sync,
    ) -> Result<()> {
        self.on_each_server(|server| take(server, self.ask_patiently(caller, server, request)?))
    }

    /// Has all servers carry out what concerns the namespace as a whole.
    pub(crate) fn administer(
        &self,
        caller: Caller<'_>,
        administration: &Administration<'_>,
    ) -> Result<Reply> {
        let request = Request::Execute(Operation::Administration(administration.clone()));
        self.ask_all(caller, &request, |_, response| match response {
            Response::Reply(Reply::Done) => Ok(()),
            _ => Err(Error::Unfit),
        })?;
        Ok(Reply::Done)
    }
}
