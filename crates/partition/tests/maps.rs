//! Maps in every state that splits lead to: exhaustively for few partitions, at random for many.

use canopy_partition::{
    DEPTH_MAX, DirectoryMap, PARTITIONS_MAX, PartitionId, Placement, ServerId, SplitHistory,
    SplitPolicy, enumerate,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use std::collections::HashSet;
use std::convert::Infallible;

/// Returns a map after splits, each of a partition that is chosen among those that exist.
fn map_after(splits: &[Index]) -> DirectoryMap {
    let mut map = DirectoryMap::default();
    for split in splits {
        let all: Vec<PartitionId> = map.partitions().collect();
        map.split(*split.get(&all));
    }
    map
}

/// Returns a map that a client may have: built from some of the histories of an earlier state.
fn stale(earlier: &DirectoryMap, known: &[Index]) -> DirectoryMap {
    let all: Vec<PartitionId> = earlier.partitions().collect();
    let mut map = DirectoryMap::default();
    known.iter().for_each(|one| map.learn(earlier.history(*one.get(&all))));
    map
}

/// Checks that partitions cover all hashes, none twice, and that each hash is found where it is.
fn check_homes(map: &DirectoryMap) {
    let mut ranges: Vec<_> = map
        .partitions()
        .map(|partition| (partition.hashes(map.depth(partition)), partition))
        .collect();
    ranges.sort_by_key(|(range, _)| *range.start());
    assert_eq!(ranges.len(), map.count());
    let mut next = Some(0);
    for (range, partition) in ranges {
        assert_eq!(next, Some(*range.start()), "{map:?}");
        for hash in [*range.start(), *range.end(), range.start() / 2 + range.end() / 2] {
            assert_eq!(map.find(hash), partition, "{hash} in {map:?}");
            assert!(map.history(partition).holds(hash));
        }
        next = range.end().checked_add(1);
    }
    assert_eq!(next, None, "{map:?}");
}

/// Asks for a hash with a map that may be stale, as a client does: the owner of the partition that
/// the map names replies with its history if it does not hold the hash. Returns the corrections.
fn corrections(truth: &DirectoryMap, mut map: DirectoryMap, hash: u64) -> u32 {
    let mut count = 0;
    loop {
        let asked = truth.history(map.find(hash));
        if asked.holds(hash) {
            assert_eq!(asked.partition(), truth.find(hash));
            return count;
        }
        map.learn(asked);
        count += 1;
    }
}

#[test]
fn each_hash_has_one_home_in_every_state_of_few_partitions() {
    let mut seen = HashSet::new();
    let mut ahead = vec![DirectoryMap::default()];
    while let Some(map) = ahead.pop() {
        let numbers: Vec<u32> = map.partitions().map(PartitionId::number).collect();
        if map.count() > 8 || !seen.insert(numbers) {
            continue;
        }
        check_homes(&map);
        // Every other state that is known of it costs at most one correction a level.
        let all: Vec<PartitionId> = map.partitions().collect();
        for known in 0_u32..1 << all.len() {
            let mut client = DirectoryMap::default();
            for (at, partition) in all.iter().enumerate() {
                if known >> at & 1 == 1 {
                    client.learn(map.history(*partition));
                }
            }
            let depth_max = all.iter().map(|partition| map.depth(*partition)).max().unwrap_or(0);
            for partition in &all {
                let hash = *partition.hashes(map.depth(*partition)).end();
                assert!(corrections(&map, client.clone(), hash) <= depth_max);
            }
        }
        for partition in all {
            let mut next = map.clone();
            next.split(partition);
            ahead.push(next);
        }
    }
    // Trees with at most 8 leaves whose left and right subtrees differ: 1 + 1 + 2 + 5 + 14 + ...
    assert_eq!(seen.len(), 1 + 1 + 2 + 5 + 14 + 42 + 132 + 429);
}

#[test]
fn a_directory_has_so_many_partitions_and_no_more() {
    let mut map = DirectoryMap::default();
    for _ in 0..DEPTH_MAX {
        let all: Vec<PartitionId> = map.partitions().collect();
        assert!(all.into_iter().all(|partition| map.split(partition).is_some()));
    }
    assert_eq!(map.count(), PARTITIONS_MAX as usize);
    assert!(map.partitions().all(|partition| map.clone().split(partition).is_none()));
    check_homes(&map);
}

#[test]
fn impossible_histories_are_refused() {
    let decode = |partition: u32, depth: u8| {
        let bytes = postcard::to_extend(&(partition, depth), Vec::new()).unwrap();
        postcard::from_bytes::<SplitHistory>(&bytes).is_ok()
    };
    assert!(decode(0, 0) && decode(0, 16) && decode(5, 3) && decode(65535, 16));
    assert!(!decode(5, 2) && !decode(0, 17) && !decode(65536, 17));
}

proptest! {
    #[test]
    fn each_hash_has_one_home(splits in vec(any::<Index>(), 0..300)) {
        check_homes(&map_after(&splits));
    }

    #[test]
    fn dense_numbers_take_few_corrections(
        partitions in 1_u32..5000,
        hashes in vec(any::<u64>(), 1..20),
        known in vec(any::<Index>(), 0..10),
    ) {
        let mut map = DirectoryMap::default();
        (1..partitions).filter_map(PartitionId::new).for_each(|partition| {
            let history = SplitHistory::new(partition, partition.first_depth());
            map.learn(history.unwrap());
        });
        prop_assert_eq!(map.count(), partitions as usize);
        let limit = partitions.next_power_of_two().ilog2();
        for hash in hashes {
            prop_assert!(corrections(&map, stale(&map, &known), hash) <= limit);
        }
    }

    #[test]
    fn a_stale_map_leads_home(
        splits in vec(any::<Index>(), 0..300),
        age in 0_usize..300,
        known in vec(any::<Index>(), 0..20),
        hash in any::<u64>(),
    ) {
        let truth = map_after(&splits);
        let client = stale(&map_after(&splits[..age.min(splits.len())]), &known);
        let known_depth = client.depth(client.find(hash));
        let depth = truth.depth(truth.find(hash));
        prop_assert!(corrections(&truth, client, hash) <= depth.saturating_sub(known_depth));
    }

    #[test]
    fn maps_merge_in_any_order(
        splits in vec(any::<Index>(), 0..200),
        known in vec(vec(any::<Index>(), 0..8), 3),
    ) {
        let truth = map_after(&splits);
        let [a, b, c] = [0, 1, 2].map(|at: usize| stale(&truth, &known[at]));
        let merged = |maps: &[&DirectoryMap]| {
            let mut all = DirectoryMap::default();
            maps.iter().for_each(|map| all.merge(map));
            all
        };
        let all = merged(&[&a, &b, &c]);
        prop_assert_eq!(&all, &merged(&[&c, &a, &b]));
        prop_assert_eq!(&all, &merged(&[&a, &merged(&[&b, &c])]));
        prop_assert_eq!(&all, &merged(&[&all, &all, &b]));
        check_homes(&all);
        // Nothing that does not exist is ever known.
        prop_assert!(all.partitions().all(|partition| truth.contains(partition)));
    }

    #[test]
    fn histories_are_the_whole_map(splits in vec(any::<Index>(), 0..200)) {
        let truth = map_after(&splits);
        let found = enumerate(|partition| Ok::<_, Infallible>(truth.history(partition)));
        prop_assert_eq!(&found.unwrap(), &truth);
        let mut learnt = DirectoryMap::default();
        for partition in truth.partitions() {
            learnt.learn(truth.history(partition));
        }
        prop_assert_eq!(learnt, truth);
    }
}

#[test]
fn an_added_server_gets_at_most_its_share() {
    for (servers, each) in (1..=20).flat_map(|servers| [1, 2, 4, 8].map(|each| (servers, each))) {
        let policy = SplitPolicy { partitions_per_server: each, ..SplitPolicy::default() };
        let placement = Placement::new(ServerId(0), servers, each).unwrap();
        let mut map = DirectoryMap::default();
        let mut grow = |servers: u32| {
            loop {
                let histories = Vec::from_iter(map.partitions().map(|one| map.history(one)));
                let split =
                    histories.iter().find(|one| policy.child(&placement, **one, servers).is_some());
                let Some(split) = split else { break };
                map.split(split.partition());
            }
            let share = |one| 0.5_f64.powi(map.depth(one) as i32);
            let of_new = map.partitions().filter(|one| placement.server(*one).0 == servers - 1);
            of_new.map(share).sum::<f64>()
        };
        grow(servers);
        let moved = grow(servers + 1);
        assert!(
            moved > 0.0 && moved <= 1.0 / f64::from(servers + 1),
            "{servers} * {each}: {moved}"
        );
    }
}
