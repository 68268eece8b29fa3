//! Queries of a client: it asks all servers at once, and puts their results together.

use super::{ArrivalMark, NameRange, SearchPart};
use crate::client::Client;
use crate::error::{Error, Result};
use crate::message::{Request, Response};
use canopy_namespace::operation::{Caller, Moment, Operation, Plan, Query, program};
use canopy_namespace::{Cursor, FileId, Found, Pace, Reply};
use canopy_partition::ServerId;
use canopy_store::hash_of;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

/// Replies that wait until the caller takes them.
const WAITING: usize = 16;

/// Rounds after which entries that move all the time are given up.
const ROUNDS: usize = 1000;

/// Memory of a file that was found.
const SEEN_BYTES: usize = 32;

/// Files that were found: some are found again after they have moved.
#[derive(Default)]
struct Seen(HashSet<(FileId, u64)>);

impl Seen {
    /// Notes a file, and returns whether it is new. One with several names is found by each.
    fn note(&mut self, found: &Found) -> bool {
        let inode = &found.inode;
        let has_one_name = inode.is_directory() || inode.nlink <= 1;
        self.0.insert((inode.id, if has_one_name { 0 } else { hash_of(&found.path) }))
    }

    fn bytes(&self) -> usize {
        self.0.capacity() * SEEN_BYTES
    }
}

/// A query under way.
struct Searching<'a> {
    client: &'a Client,
    caller: Caller<'a>,
    query: &'a Query<'a>,
    /// Moments up to which arrivals at servers are known.
    marks: Mutex<BTreeMap<ServerId, ArrivalMark>>,
}

/// The caller wants no more results.
struct Enough;

impl Searching<'_> {
    /// Searches a server, all that it has or some names, and sends what it finds.
    fn search(
        &self,
        server: ServerId,
        within: Option<NameRange>,
        results: &SyncSender<Vec<Found>>,
    ) -> Result<std::result::Result<(), Enough>> {
        let mut after: Option<Cursor> = None;
        let is_whole = within.is_none();
        loop {
            let is_first = after.is_none();
            let query = self.query.clone();
            let part = SearchPart { query, after, within: within.clone() };
            let request = Request::Search(part);
            let asked = self.client.ask_patiently(self.caller, server, &request)?;
            let Response::Found(found, next, mark) = asked else { return Err(Error::Unfit) };
            if is_first && is_whole {
                self.marks.lock().insert(server, mark);
            }
            if !found.is_empty() && results.send(found).is_err() {
                return Ok(Err(Enough));
            }
            match next {
                Some(cursor) => after = Some(cursor),
                None => return Ok(Ok(())),
            }
        }
    }

    /// Searches what has arrived at a server. Returns whether there was anything.
    fn search_arrivals(
        &self,
        server: ServerId,
        results: &SyncSender<Vec<Found>>,
    ) -> Result<std::result::Result<bool, Enough>> {
        let since = self.marks.lock().get(&server).copied().unwrap_or_default();
        let asked = self.client.ask_patiently(self.caller, server, &Request::Arrivals(since))?;
        let Response::Arrived(arrived, mark) = asked else { return Err(Error::Unfit) };
        let Some(arrived) = arrived else {
            // Another process runs the server now, or it forgot: all of it is searched again.
            return Ok(self.search(server, None, results)?.map(|()| true));
        };
        self.marks.lock().insert(server, mark);
        let has_arrivals = !arrived.is_empty();
        for range in arrived {
            if let Err(enough) = self.search(server, Some(range), results)? {
                return Ok(Err(enough));
            }
        }
        Ok(Ok(has_arrivals))
    }

    /// Searches all servers, and then what has moved meanwhile.
    fn run(&self, results: &SyncSender<Vec<Found>>) -> Result<()> {
        let is_enough = Mutex::new(false);
        self.client.on_each_server(|server| {
            if !*is_enough.lock() {
                *is_enough.lock() |= self.search(server, None, results)?.is_err();
            }
            Ok(())
        })?;
        if self.client.is_past() {
            return Ok(());
        }
        for _ in 0..ROUNDS {
            let has_moved = Mutex::new(false);
            self.client.on_each_server(|server| {
                if *is_enough.lock() {
                    return Ok(());
                }
                match self.search_arrivals(server, results)? {
                    Ok(moved) => *has_moved.lock() |= moved,
                    Err(Enough) => *is_enough.lock() = true,
                }
                Ok(())
            })?;
            if !has_moved.into_inner() || *is_enough.lock() {
                return Ok(());
            }
        }
        Err(canopy_namespace::Error::from(rustix::io::Errno::AGAIN).into())
    }
}

impl Client {
    /// Passes the files that a query finds to `tell`, in no order, until it returns false. Calls `pace`
    /// with the memory that the query takes here.
    ///
    /// # Errors
    ///
    /// Fails as the servers do, with `NOENT` if the base is gone, and with `AGAIN` if partitions of
    /// directories move all the time.
    pub fn search(
        &self,
        caller: Caller<'_>,
        query: &Query<'_>,
        pace: Pace<'_>,
        tell: &mut dyn FnMut(Found) -> bool,
    ) -> Result<()> {
        let caller = self.asker(caller, query);
        if let Moment::Snapshot(number) = query.at {
            let then = Query { at: Moment::Now, ..query.clone() };
            return self.past_for(caller, number)?.search(caller, &then, pace, tell);
        }
        let searching = Searching { client: self, caller, query, marks: Mutex::default() };
        let program = program::current();
        thread::scope(|scope| {
            let (sender, results) = sync_channel(WAITING);
            let run = scope.spawn(|| {
                let _work = program::resume(program);
                let sender = sender;
                searching.run(&sender)
            });
            let mut seen = Seen::default();
            let mut is_wanted = true;
            for found in &results {
                pace(seen.bytes());
                let mut new = found.into_iter().filter(|one| seen.note(one));
                is_wanted = new.all(&mut *tell);
                if !is_wanted {
                    break;
                }
            }
            drop(results);
            let ended = run.join().unwrap_or(Err(Error::Unfit));
            if is_wanted { ended } else { Ok(()) }
        })
    }

    /// Returns the caller of a query: its user, if servers check this client.
    fn asker<'a>(&self, caller: Caller<'a>, query: &'a Query<'_>) -> Caller<'a> {
        match caller {
            Caller::Trusted if self.is_checked() => Caller::User(&query.who),
            caller => caller,
        }
    }

    /// Returns the files that a query finds, and no more of them than `count_max`.
    pub(crate) fn found(
        &self,
        caller: Caller<'_>,
        query: &Query<'_>,
        count_max: u64,
    ) -> Result<Vec<Found>> {
        let count_max = match caller {
            Caller::Trusted => count_max,
            Caller::User(_) => count_max.min(canopy_namespace::operation::FOUND_MAX),
        };
        let mut all = Vec::new();
        if count_max > 0 {
            self.search(caller, query, &|_| (), &mut |found| {
                all.push(found);
                (all.len() as u64) < count_max
            })?;
        }
        Ok(all)
    }

    /// Returns how servers search, with the number of their candidates together if it `counts` them;
    /// none if one of them looks at every name.
    pub(crate) fn explain(
        &self,
        caller: Caller<'_>,
        query: &Query<'_>,
        counts: bool,
    ) -> Result<Plan> {
        let caller = self.asker(caller, query);
        if let Moment::Snapshot(number) = query.at {
            let then = Query { at: Moment::Now, ..query.clone() };
            return self.past_for(caller, number)?.explain(caller, &then, counts);
        }
        // The number counts files that a user cannot see.
        let counts = counts && caller.user().is_none_or(|who| who.is_root());
        let request = Request::Execute(Operation::Explain(query.clone(), counts));
        let plans = Mutex::new(Vec::new());
        self.ask_all(caller, &request, |server, response| match response {
            Response::Reply(Reply::Plan(plan)) => {
                plans.lock().push((server, plan));
                Ok(())
            }
            _ => Err(Error::Unfit),
        })?;
        let mut plans = plans.into_inner();
        plans.sort_unstable_by_key(|(server, _)| *server);
        let candidates = plans.iter().map(|(_, plan)| plan.candidates).sum();
        let looks_in = plans.first().map(|(_, plan)| plan.looks_in.clone()).unwrap_or_default();
        let looks_in = format!("{looks_in}; on each of {} servers", plans.len());
        Ok(Plan { looks_in, candidates })
    }
}
