//! Clients that create and look up files in one directory, and the cost of that.

use crate::cluster::site::{Site, cpu_seconds};
use anyhow::{Result, anyhow};
use canopy_cluster::Client;
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Caller, Change, Moment, Operation, Page, Read};
use canopy_namespace::{EntryName, FileId, New, ROOT, Reply};
use std::borrow::Cow;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Length of the intervals in which rates are counted.
pub const INTERVAL: Duration = Duration::from_millis(100);

/// The work of the clients.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Clients, each a thread with connections of its own.
    pub clients: u32,
    /// Files of all clients together.
    pub files: u32,
    /// Operations that a client sends at once.
    pub at_once: usize,
    /// A client uses the names of the client so many numbers further.
    pub shift: u32,
}

/// The cost of a load.
#[derive(Clone, Debug)]
pub struct Cost {
    pub operations: f64,
    pub seconds: f64,
    /// CPU seconds of all servers, and of the clients.
    pub servers: f64,
    pub client: f64,
    /// Calls and frames that arrived at servers, also from each other.
    pub calls: f64,
    pub frames: f64,
    pub addressing_errors: f64,
    /// Entries that moved from one server to another.
    pub moved: f64,
    /// Operations that were done in each interval.
    pub rates: Vec<u32>,
    /// The longest wait for an answer.
    pub longest: Duration,
}

impl Cost {
    /// Returns operations per second of CPU time of servers.
    pub fn per_core(&self) -> f64 {
        self.operations / self.servers
    }

    /// Returns the CPU time of servers for an operation in microseconds.
    pub fn server_us(&self) -> f64 {
        1e6 * self.servers / self.operations
    }

    /// Returns the least rate of an interval but the first and the last, as a share of the mean.
    pub fn worst_share(&self) -> f64 {
        let inner = self.rates.get(1..self.rates.len().saturating_sub(1)).unwrap_or_default();
        let mean = inner.iter().sum::<u32>() as f64 / inner.len().max(1) as f64;
        let least = inner.iter().min().copied().unwrap_or(0);
        f64::from(least) / mean.max(1.0)
    }
}

/// Makes a directory with a random name in the root.
pub fn make_directory(client: &Client) -> Result<FileId> {
    make_directory_named(client, &format!("bench-{:?}", Instant::now()))
}

/// Makes a directory in the root.
pub fn make_directory_named(client: &Client, name: &str) -> Result<FileId> {
    match client.execute_for(Caller::Trusted, &create(ROOT, name, file_type::DIRECTORY))? {
        Reply::Inode(inode) => Ok(inode.id),
        other => Err(anyhow!("an odd reply: {other:?}")),
    }
}

pub fn create(directory: FileId, name: &str, kind: u32) -> Operation<'_> {
    let new = New { mode: kind | 0o755, ..New::default() };
    let name = EntryName::new(directory, name.as_bytes());
    Operation::Change(Change::Create { name, new: Cow::Owned(new), holds: false })
}

pub fn lookup(directory: FileId, name: &str) -> Operation<'_> {
    Operation::Read(Moment::Now, Read::Lookup(EntryName::new(directory, name.as_bytes())))
}

pub fn name_of(client: u32, number: u32) -> String {
    format!("file-{client}-{number}")
}

/// Has clients create files in a directory.
pub fn create_files(site: &Site, directory: FileId, load: Load) -> Result<Cost> {
    create_all(site, directory, load, file_type::REGULAR)
}

/// Has clients create files of a kind in a directory.
pub fn create_all(site: &Site, directory: FileId, load: Load, kind: u32) -> Result<Cost> {
    run(site, load, &|one, names| {
        let operations = names.iter().map(|name| create(directory, name, kind));
        execute(one, &Vec::from_iter(operations))
    })
}

/// Has clients look up files that were created by as many clients, in a random order.
pub fn look_up(site: &Site, directory: FileId, load: Load) -> Result<Cost> {
    let each = u64::from((load.files / load.clients).max(1));
    // A prime: a full cycle through all numbers.
    let order = |number: u32| (u64::from(number) * 2_654_435_761 % each) as u32;
    run_in(site, load, &order, &|one, names| {
        let operations = names.iter().map(|name| lookup(directory, name));
        execute(one, &Vec::from_iter(operations))
    })
}

fn execute(client: &Client, operations: &[Operation<'_>]) -> Result<()> {
    if let [operation] = operations {
        client.execute_for(Caller::Trusted, operation)?;
        return Ok(());
    }
    for reply in client.execute_all(Caller::Trusted, operations) {
        reply?;
    }
    Ok(())
}

type Work<'a> = &'a (dyn Fn(&Client, &[String]) -> Result<()> + Sync);

/// Has clients do something with their names, in order.
pub fn run(site: &Site, load: Load, work: Work<'_>) -> Result<Cost> {
    run_in(site, load, &|number| number, work)
}

fn run_in(
    site: &Site,
    load: Load,
    order: &(dyn Fn(u32) -> u32 + Sync),
    work: Work<'_>,
) -> Result<Cost> {
    let clients = (0..load.clients).map(|_| site.connect()).collect::<Result<Vec<_>>>()?;
    let done = Mutex::new((Vec::<u32>::new(), Duration::ZERO));
    let own = std::process::id();
    let (servers, before) = site.totals()?;
    let (client_cpu, begin) = (cpu_seconds(own)?, Instant::now());
    let each = load.files / load.clients;
    std::thread::scope(|scope| -> Result<()> {
        let threads = (0..).zip(&clients).map(|(number, client)| {
            let done = &done;
            let of = (number + load.shift) % load.clients;
            scope.spawn(move || -> Result<()> {
                let (mut rates, mut longest) = (Vec::new(), Duration::ZERO);
                let mut next = 0;
                while next < each {
                    let end = each.min(next + load.at_once as u32);
                    let names = Vec::from_iter((next..end).map(|file| name_of(of, order(file))));
                    let sent = Instant::now();
                    work(client, &names)?;
                    longest = longest.max(sent.elapsed());
                    note(&mut rates, begin.elapsed(), end - next);
                    next = end;
                }
                let mut done = done.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                for (at, count) in rates.iter().enumerate() {
                    note(&mut done.0, INTERVAL * at as u32, *count);
                }
                done.1 = done.1.max(longest);
                Ok(())
            })
        });
        let mut outcomes = Vec::from_iter(threads).into_iter().map(|thread| thread.join());
        outcomes.try_for_each(|ended| ended.map_err(|_| anyhow!("a client panicked"))?)
    })
    .and_then(|()| {
        let seconds = begin.elapsed().as_secs_f64();
        let client_after = cpu_seconds(own)?;
        let (servers_after, after) = site.totals()?;
        let grown = |name: &str| {
            let of = |numbers: &std::collections::BTreeMap<String, u64>| {
                numbers.get(name).copied().unwrap_or(0)
            };
            of(&after).saturating_sub(of(&before)) as f64
        };
        let (rates, longest) = done.into_inner().unwrap_or_else(|poison| poison.into_inner());
        let errors = clients.iter().map(Client::addressing_errors).sum::<u64>();
        Ok(Cost {
            operations: f64::from(each * load.clients),
            seconds,
            servers: servers_after - servers,
            client: client_after - client_cpu,
            calls: grown("calls_total"),
            frames: grown("frames_total"),
            addressing_errors: errors as f64,
            moved: grown("moved_entries_total"),
            rates,
            longest,
        })
    })
}

fn note(rates: &mut Vec<u32>, at: Duration, count: u32) {
    let at = (at.as_nanos() / INTERVAL.as_nanos()) as usize;
    if rates.len() <= at {
        rates.resize(at + 1, 0);
    }
    rates[at] += count;
}

/// Lists a directory, and returns the number of its entries.
pub fn list(client: &Client, directory: FileId) -> Result<u64> {
    let (mut count, mut after) = (0, 0);
    loop {
        let page = Page { directory, after, name: None, count_max: 4096 };
        let read = Operation::Read(Moment::Now, Read::List(page));
        let Reply::Entries(entries) = client.execute_for(Caller::Trusted, &read)? else {
            return Err(anyhow!("an odd reply"));
        };
        if entries.count() == 0 {
            return Ok(count);
        }
        count += entries.count() as u64;
        after = entries.iter().last().map_or(after, |entry| entry.cookie);
    }
}
