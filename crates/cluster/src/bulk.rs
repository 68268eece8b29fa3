//! Many operations of one caller at once: those for one server share frames, and one write of its log.
//!
//! An operation on one name is sent to the server that the client believes to hold it. What is
//! refused or not answered is sent again by itself, with the number that it had, so it is executed
//! once. All other operations are executed one after the other.

use crate::client::{Client, Numbered};
use crate::error::{Error, Result};
use crate::holds::makes_held;
use crate::message::{Request, Response};
use crate::peers::Asked;
use crate::wire::CALLS_MAX;
use canopy_namespace::operation::{Caller, Change, Moment, Operation, Read, Target};
use canopy_namespace::{FileId, Reply};
use canopy_partition::ServerId;

/// An operation that is sent with others.
struct Sent<'a> {
    /// Its place among all.
    at: usize,
    directory: FileId,
    hash: u64,
    server: ServerId,
    numbered: Numbered<'a>,
    request: Request<'a>,
}

impl Client {
    /// Executes operations of a caller, in no order, each as [`execute_for`](Self::execute_for)
    /// does. Returns the replies in the order of the operations.
    pub fn execute_all(
        &self,
        caller: Caller<'_>,
        operations: &[Operation<'_>],
    ) -> Vec<Result<Reply>> {
        let mut replies = Vec::from_iter(operations.iter().map(|_| None));
        let mut next = 0;
        while next < operations.len() {
            let mut together = Vec::new();
            while next < operations.len() && together.len() < CALLS_MAX {
                let operation = &operations[next];
                let Some((directory, hash)) = name_of(operation) else {
                    replies[next] = Some(self.execute_for(caller, operation));
                    next += 1;
                    continue;
                };
                match self.prepare(caller, next, (directory, hash), operation) {
                    Ok(Some(sent)) => together.push(sent),
                    // All numbers of the session are in use.
                    Ok(None) if !together.is_empty() => break,
                    Ok(None) => replies[next] = Some(self.execute_for(caller, operation)),
                    Err(error) => replies[next] = Some(Err(error)),
                }
                next += 1;
            }
            self.send_all(caller, operations, together, &mut replies);
        }
        replies.into_iter().map(|reply| reply.unwrap_or(Err(Error::Unfit))).collect()
    }

    fn prepare<'a>(
        &'a self,
        caller: Caller<'a>,
        at: usize,
        (directory, hash): (FileId, u64),
        operation: &'a Operation<'_>,
    ) -> Result<Option<Sent<'a>>> {
        let (_, server) = self.find(self.home(directory)?, directory, hash);
        let request = Request::Execute(operation.clone());
        let numbered = self.try_number(caller, &request);
        Ok(numbered.map(|numbered| Sent { at, directory, hash, server, numbered, request }))
    }

    fn send_all(
        &self,
        caller: Caller<'_>,
        operations: &[Operation<'_>],
        together: Vec<Sent<'_>>,
        replies: &mut [Option<Result<Reply>>],
    ) {
        let asked = together.iter().map(|sent| {
            let Sent { server, numbered, request, .. } = sent;
            Asked { server: *server, sender: numbered.sender, request }
        });
        let answers = self.peers.ask_all(&Vec::from_iter(asked));
        for (sent, answer) in together.into_iter().zip(answers) {
            let answer = self.answer_or_retry(&sent, answer);
            let name = (sent.directory, sent.hash);
            let operation = &operations[sent.at];
            let reply =
                answer.and_then(|response| self.complete_named(caller, name, operation, response));
            replies[sent.at] = Some(reply);
        }
    }

    fn answer_or_retry(&self, sent: &Sent<'_>, answer: Result<Response>) -> Result<Response> {
        match answer {
            Err(Error::WrongServer { partitions, .. }) => {
                self.learn(&mut self.maps.lock(), sent.directory, partitions);
            }
            Err(error) if error.is_passing() => {}
            answer => {
                let outcome = answer.map(|response| (response, sent.server));
                self.note_outcome(&sent.request, &outcome);
                return outcome.map(|(response, _)| response);
            }
        }
        let sender = sent.numbered.sender;
        Ok(self.at_server_by(sender, sent.directory, sent.hash, &sent.request)?.0)
    }
}

/// Returns directory and hash of the name that an operation is about, if it is about one name alone and
/// needs nothing else.
fn name_of(operation: &Operation<'_>) -> Option<(FileId, u64)> {
    let is_fit = match operation {
        Operation::Change(Change::Link { .. } | Change::Rename { .. }) => false,
        Operation::Change(_) => !makes_held(operation),
        Operation::Read(Moment::Now, read) => matches!(read, Read::Lookup(_)),
        _ => false,
    };
    match operation.target() {
        Target::Name { directory, hash } if is_fit => Some((directory, hash)),
        _ => None,
    }
}
