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

/// A directory on its servers.
struct Directory {
    /// All partitions. Each server looks only at its own ones.
    map: DirectoryMap,
    /// Partitions that each server knows: its own, those that were known to givers of its
    /// partitions, and those of clients that were redirected.
    known: Vec<DirectoryMap>,
    placement: Placement,
    policy: SplitPolicy,
    servers: u32,
    counts: Counts,
    exchanges: u64,
    /// Entries of each partition, by number.
    entries: Vec<u64>,
}

impl Directory {
    fn new(servers: u32, partitions_per_server: u32) -> Self {
        Directory {
            map: DirectoryMap::default(),
            known: vec![DirectoryMap::default(); servers as usize],
            placement: Placement::new(ServerId(0), servers, partitions_per_server).unwrap(),
            policy: SplitPolicy { partitions_per_server, ..SplitPolicy::default() },
            servers,
            exchanges: 0,
            counts: Counts(vec![0; 1 << 16]),
            entries: vec![0; 1 << 16],
        }
    }

    /// Sends a request of a client, and again until it reaches the server. A server that does not
    /// hold the name replies with all that it knows, and a request that is sent again has all that
    /// the client knows. Returns the errors.
    fn address(&mut self, client: &mut DirectoryMap, hash: u64) -> u32 {
        for errors in 0.. {
            let server = self.placement.server(client.find(hash));
            let known = &mut self.known[server.0 as usize];
            let is_holder = self.placement.server(self.map.find(hash)) == server;
            if client.count() != known.count() || !is_holder {
                known.merge(client);
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
            let known = self.known[giver].clone();
            self.known[self.placement.server(split.child).0 as usize].merge(&known);
            for half in [partition, split.child] {
                let depth = history.depth() + 1;
                self.entries[half.number() as usize] = self.counts.of(half, depth);
            }
        }
    }
}

/// Lets clients create so many files each, in turn. Returns the directory and, of each error, the
/// request of its client.
fn grow(servers: u32, each: u32, clients: u32, creates: u32) -> (Directory, Vec<u32>) {
    let mut rng = StdRng::seed_from_u64(9);
    let mut directory = Directory::new(servers, each);
    let mut maps = vec![DirectoryMap::default(); clients as usize];
    let mut errors = Vec::new();
    for request in 0..creates {
        for map in &mut maps {
            let hash = rng.random();
            let count = directory.address(map, hash);
            // The reply of a server is enough for the second probe, as in Figure 9 (b).
            errors.extend((0..count).map(|_| request));
            directory.create(hash);
        }
    }
    (directory, errors)
}

#[test]
fn figure_9a_few_requests_are_addressed_wrongly() {
    println!("servers  partitions each  wrong requests");
    for (servers, each) in [(2, 1), (4, 4), (8, 1), (8, 16), (16, 4), (24, 4), (30, 1), (30, 16)] {
        // As many entries a server as in the paper, by a client each.
        let creates = 400_000;
        let (directory, errors) = grow(servers, each, servers, creates);
        let share = 100.0 * errors.len() as f64 / f64::from(servers * creates);
        println!("{servers:7}  {each:15}  {share:.4} % {}", directory.exchanges);
        assert_eq!(directory.map.count(), (servers * each) as usize);
        assert!(share < 0.05, "{servers} servers with {each} partitions: {share} %");
    }
}

#[test]
fn figure_9b_errors_end_with_the_splits() {
    let (_, errors) = grow(30, 16, 30, 400_000);
    // "The last 80 % of the work is done after the last burst of splitting."
    let last = *errors.last().unwrap();
    println!("last wrong request: {last} of 400000");
    assert!(last < 400_000 / 5 * 2, "{last}");
}

#[test]
fn figure_9c_a_new_client_learns_fast() {
    let (mut directory, _) = grow(30, 16, 30, 150_000);
    assert_eq!(directory.map.count(), 480);
    let (mut most, mut all, mut last) = (0, 0, 0);
    for seed in 0..100 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut client = DirectoryMap::default();
        let errors: Vec<u32> =
            (0..10_000).map(|_| directory.address(&mut client, rng.random())).collect();
        most = most.max(errors.iter().copied().max().unwrap());
        all = all.max(errors.iter().sum());
        last = last.max(errors.iter().rposition(|count| *count > 0).map_or(0, |at| at + 1));
    }
    println!("of one request: {most}; in all: {all}; last in request {last} (most of 100 clients)");
    assert!(most <= 3 && all <= 30 && last <= 40, "{most} {all} {last}");
}
