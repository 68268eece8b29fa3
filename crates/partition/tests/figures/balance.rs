//! Figure 7: how evenly the hashes of a directory lie on servers.

use canopy_partition::{DirectoryMap, PartitionId, Placement, ServerId};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

/// Random selections of partitions, or of points, as in the paper.
const SELECTIONS: usize = 5;

/// Differences of the shares of servers from an even share, as parts of it.
pub struct Deviation {
    /// Mean over the servers, and over selections if there are any.
    pub mean: f64,
    /// Half of the width of the 95 % confidence interval of the mean.
    #[allow(dead_code, reason = "only the plots show it")]
    pub confidence: f64,
}

impl Deviation {
    /// Measures shares of servers, one list a selection.
    fn of(selections: &[Vec<f64>]) -> Self {
        let even = 1.0 / selections[0].len() as f64;
        let all = selections.iter().flatten().map(|share| (share - even).abs() / even);
        let all: Vec<f64> = all.collect();
        let count = all.len() as f64;
        let mean = all.iter().sum::<f64>() / count;
        let squares: f64 = all.iter().map(|one| (one - mean).powi(2)).sum();
        let confidence = 1.96 * (squares / (count - 1.0).max(1.0) / count).sqrt();
        Deviation { mean, confidence }
    }
}

/// Returns the part of all hashes that a partition of a map holds.
fn share(map: &DirectoryMap, partition: PartitionId) -> f64 {
    0.5_f64.powi(map.depth(partition) as i32)
}

/// Returns the deviation with dense numbers of partitions, as Canopy splits.
pub fn dense(servers: u32, each: u32) -> Deviation {
    let placement = Placement::new(ServerId(0), servers, each).unwrap();
    let mut map = DirectoryMap::default();
    while map.count() < (servers * each) as usize {
        // Any order of splits gives these partitions in the end.
        let all: Vec<PartitionId> = map.partitions().collect();
        for partition in all {
            let child = partition.child(map.depth(partition));
            if child.is_some_and(|child| placement.has_server(child, servers)) {
                map.split(partition);
            }
        }
    }
    let mut shares = vec![0.0; servers as usize];
    for partition in map.partitions() {
        shares[placement.server(partition).0 as usize] += share(&map, partition);
    }
    Deviation::of(&[shares])
}

/// Returns the deviation as the paper computes Figure 7 (a): a random set of the partitions of the
/// last full level has split. Partitions go to servers in turn.
pub fn random(servers: u32, each: u32, rng: &mut StdRng) -> Deviation {
    let partitions = servers * each;
    let level = partitions.ilog2();
    let all: Vec<PartitionId> = (0..1 << level).filter_map(PartitionId::new).collect();
    let selections = (0..SELECTIONS).map(|_| {
        let mut map = DirectoryMap::default();
        all.iter().for_each(|one| map.learn(DirectoryMap::default().history(*one)));
        for one in all.sample(rng, (partitions - (1 << level)) as usize) {
            map.split(*one);
        }
        let mut shares = vec![0.0; servers as usize];
        for (at, partition) in map.partitions().enumerate() {
            shares[at % servers as usize] += share(&map, partition);
        }
        shares
    });
    Deviation::of(&Vec::from_iter(selections))
}

/// Returns the deviation of consistent hashing, Figure 7 (b): `each` random points a server.
pub fn consistent(servers: u32, each: u32, rng: &mut StdRng) -> Deviation {
    let selections = (0..SELECTIONS).map(|_| {
        let mut points: Vec<(f64, usize)> =
            (0..servers * each).map(|at| (rng.random(), (at % servers) as usize)).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut shares = vec![0.0; servers as usize];
        let first = points[0].0;
        for (at, (point, server)) in points.iter().enumerate() {
            let next = points.get(at + 1).map_or(1.0 + first, |next| next.0);
            shares[*server] += next - point;
        }
        shares
    });
    Deviation::of(&Vec::from_iter(selections))
}
