//! Figures 7 and 9 of the paper, from the code of this crate. `cargo test --release -p
//! canopy-partition --test figures -- --nocapture` prints them as tables. The plots of
//! `docs/cluster-figures.md` use the same modules.

mod balance;
mod growth;

use balance::{consistent, dense, random};
use growth::{Rules, grow, new_client};
use rand::SeedableRng;
use rand::rngs::StdRng;

#[test]
fn figure_7_partitions_balance_servers() {
    let mut rng = StdRng::seed_from_u64(7);
    println!("mean over 1 to 32 servers of the mean deviation from an even load");
    println!("partitions each   dense  random splits  consistent hashing");
    let mut means = Vec::new();
    for each in [1, 2, 4, 8, 16, 32, 64, 128] {
        let mut sums = [0.0; 3];
        for servers in 1..=32 {
            let ours = dense(servers, each).mean;
            sums[0] += ours;
            sums[1] += random(servers, each, &mut rng).mean;
            sums[2] += consistent(servers, each, &mut rng).mean;
            let is_even = servers.is_power_of_two() && each.is_power_of_two();
            assert!(!is_even || ours < 1e-9, "{servers} servers with {each} partitions: {ours}");
        }
        let [dense, random, consistent] = sums.map(|sum| sum / 32.0);
        println!("{each:15}  {dense:6.4}  {random:13.4}  {consistent:18.4}");
        means.push((each, dense, random, consistent));
    }
    let of = |each| *means.iter().find(|mean| mean.0 == each).unwrap();
    // "Consistent hashing needs more than 128 partitions per server to match the variance that
    // GIGA+ achieves with 8."
    assert!(of(8).1 <= of(128).3 && of(8).2 <= of(128).3, "{means:?}");
    // More partitions never make the balance worse.
    assert!(means.is_sorted_by(|a, b| a.1 >= b.1), "{means:?}");
}

#[test]
fn figure_9a_few_requests_are_addressed_wrongly() {
    println!("servers  partitions each  wrong requests");
    for (servers, each) in [(2, 1), (4, 4), (8, 1), (8, 16), (16, 4), (24, 4), (30, 1), (30, 16)] {
        // As many entries a server as in the paper, by a client each.
        let creates = 400_000;
        let (directory, errors) = grow(Rules::Canopy, servers, each, servers, creates);
        let share = 100.0 * errors.requests.len() as f64 / f64::from(servers * creates);
        println!("{servers:7}  {each:15}  {share:.4} % {}", directory.exchanges);
        assert_eq!(directory.map.count(), (servers * each) as usize);
        assert!(share < 0.05, "{servers} servers with {each} partitions: {share} %");
    }
}

#[test]
fn figure_9b_errors_end_with_the_splits() {
    let (_, errors) = grow(Rules::Canopy, 30, 16, 30, 400_000);
    // "The last 80 % of the work is done after the last burst of splitting."
    let last = *errors.requests.last().unwrap();
    println!("last wrong request: {last} of 400000");
    assert!(last < 400_000 / 5 * 2, "{last}");
}

#[test]
fn figure_9c_a_new_client_learns_fast() {
    let (mut directory, _) = grow(Rules::Canopy, 30, 16, 30, 150_000);
    assert_eq!(directory.map.count(), 480);
    let (mut most, mut all, mut last) = (0, 0, 0);
    for seed in 0..100 {
        let errors = new_client(&mut directory, seed, 10_000);
        most = most.max(errors.iter().copied().max().unwrap());
        all = all.max(errors.iter().sum());
        last = last.max(errors.iter().rposition(|count| *count > 0).map_or(0, |at| at + 1));
    }
    println!("of one request: {most}; in all: {all}; last in request {last} (most of 100 clients)");
    assert!(most <= 3 && all <= 30 && last <= 40, "{most} {all} {last}");
}
