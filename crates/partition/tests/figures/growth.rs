//! Figure 9: requests that reach a server which does not hold the name. Clients create files in one
//! directory in turn, and servers split it; every message takes no time.

use canopy_partition::{DirectoryMap, PartitionId, Placement, ServerId, SplitPolicy};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Entries by the 16 highest bits of their hashes, which all ranges of partitions are made of.
struct Counts(Vec<u64>);

impl Counts {
    fn slot(hash: u64) -> usize {
        (hash >> 48) as usize
    }

    /// Returns the entries of a partition.
    fn of(&self, partition: PartitionId, depth: u32) -> u64 {
        let range = partition.hashes(depth);
        self.0[Self::slot(*range.start())..=Self::slot(*range.end())].iter().sum()
    }
}

/// Rules for what servers and clients learn from each other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// A server knows what givers of its partitions and clients knew. It replies with all of that if
    /// the client knows a different number of partitions. Thresholds of partitions differ.
    Canopy,
    /// A server knows its own partitions, and replies with them to requests that reach it wrongly
    /// (section 3.3). All partitions have one threshold.
    #[allow(dead_code, reason = "only the plots compare")]
    Paper,
}

/// A directory on its servers.
pub struct Directory {
    rules: Rules,
    /// All partitions. Each server looks only at its own ones.
    pub map: DirectoryMap,
    /// Partitions that each server knows.
    known: Vec<DirectoryMap>,
    placement: Placement,
    policy: SplitPolicy,
    servers: u32,
    counts: Counts,
    /// Maps that servers and clients have exchanged.
    #[allow(dead_code, reason = "only the tables show it")]
    pub exchanges: u64,
    /// Entries of each partition, by number.
    entries: Vec<u64>,
}

impl Directory {
    fn new(rules: Rules, servers: u32, partitions_per_server: u32) -> Self {
        let mut policy = SplitPolicy { partitions_per_server, ..SplitPolicy::default() };
        if rules == Rules::Paper {
            policy.variation_percent = 0;
        }
        Directory {
            rules,
            map: DirectoryMap::default(),
            known: vec![DirectoryMap::default(); servers as usize],
            placement: Placement::new(ServerId(0), servers, partitions_per_server).unwrap(),
            policy,
            servers,
            exchanges: 0,
            counts: Counts(vec![0; 1 << 16]),
            entries: vec![0; 1 << 16],
        }
    }

    /// Sends a request of a client, and again until it reaches the server that holds the name.
    /// Returns the errors.
    pub fn address(&mut self, client: &mut DirectoryMap, hash: u64) -> u32 {
        for errors in 0.. {
            let server = self.placement.server(client.find(hash));
            let known = &mut self.known[server.0 as usize];
            let is_holder = self.placement.server(self.map.find(hash)) == server;
            let is_different = client.count() != known.count();
            if !is_holder || self.rules == Rules::Canopy && is_different {
                if self.rules == Rules::Canopy {
                    known.merge(client);
                }
                client.merge(known);
                self.exchanges += 1;
            }
            if is_holder {
                return errors;
            }
        }
        unreachable!("a map that learns ends")
    }

    /// Adds an entry, and splits its partition if that is too large.
    fn create(&mut self, hash: u64) {
        self.counts.0[Counts::slot(hash)] += 1;
        let partition = self.map.find(hash);
        let entries = &mut self.entries[partition.number() as usize];
        *entries += 1;
        if *entries <= self.policy.threshold(1, partition) {
            return;
        }
        let history = self.map.history(partition);
        if let Some(split) = self.policy.child(&self.placement, history, self.servers) {
            assert_eq!(self.map.split(partition), Some(split.child));
            let giver = self.placement.server(partition).0 as usize;
            self.known[giver].learn(self.map.history(partition));
            let receiver = self.placement.server(split.child).0 as usize;
            match self.rules {
                Rules::Canopy => {
                    let known = self.known[giver].clone();
                    self.known[receiver].merge(&known);
                }
                Rules::Paper => self.known[receiver].learn(self.map.history(split.child)),
            }
            for half in [partition, split.child] {
                let depth = history.depth() + 1;
                self.entries[half.number() as usize] = self.counts.of(half, depth);
            }
        }
    }
}

/// Addressing errors of the requests of clients.
pub struct Errors {
    /// The request of its client in which each error was, counted from 0, in the order of requests.
    pub requests: Vec<u32>,
    /// Those of the first client alone.
    #[allow(dead_code, reason = "only the plots show it")]
    pub of_first: Vec<u32>,
}

/// Lets clients create `creates` files each, in turn. Returns the directory and the errors.
pub fn grow(
    rules: Rules,
    servers: u32,
    each: u32,
    clients: u32,
    creates: u32,
) -> (Directory, Errors) {
    let mut rng = StdRng::seed_from_u64(9);
    let mut directory = Directory::new(rules, servers, each);
    let mut maps = vec![DirectoryMap::default(); clients as usize];
    let mut errors = Errors { requests: Vec::new(), of_first: Vec::new() };
    for request in 0..creates {
        for (client, map) in maps.iter_mut().enumerate() {
            let hash = rng.random();
            for _ in 0..directory.address(map, hash) {
                errors.requests.push(request);
                if client == 0 {
                    errors.of_first.push(request);
                }
            }
            directory.create(hash);
        }
    }
    (directory, errors)
}

/// Sends requests of a new client for random names. Returns the errors of each.
pub fn new_client(directory: &mut Directory, seed: u64, requests: u32) -> Vec<u32> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut client = DirectoryMap::default();
    (0..requests).map(|_| directory.address(&mut client, rng.random())).collect()
}
