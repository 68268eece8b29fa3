//! Requests to processes of many users, and processes that fail.

use crate::subject::{Asked, Fixture, Said, head, patient, too_long, wait};
use crate::{is_running, wait_until};
use canopy_as_user::{Class, FRAME_BYTES_MAX, Pool, PoolLimits};
use canopy_events::Lines;
use canopy_model::Credentials;
use nix::errno::Errno;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use tracing::subscriber::with_default;

const ANN: u32 = 2001;
const BOB: u32 = 2002;

pub fn many_users_are_answered_at_once() {
    let place = Fixture::new(patient(40, 8, 8));
    let asked: Vec<_> = (0..20)
        .flat_map(|_| 2001..2041)
        .map(|uid| (uid, place.begin(uid, Class::Prompt, &Asked::Describe)))
        .collect();
    let mut pids = std::collections::BTreeMap::new();
    for (uid, answers) in &asked {
        let Ok(Said::Description(told)) = wait(answers) else { panic!("{uid}") };
        assert_eq!(told.status["Uid"].split('\t').nth(1), Some(&*uid.to_string()));
        assert_eq!(*pids.entry(*uid).or_insert(told.pid), told.pid, "one process of each");
    }
    assert_eq!((pids.len(), place.log()), (40, String::new()));
    drop(place);
    wait_until("all end with the pool", || !pids.values().any(|pid| is_running(*pid)));
}

/// Answers of others come though a user hangs, the own prompt ones fail, and in the end the process
/// is replaced.
pub fn who_hangs_keeps_nobody_else_waiting() {
    let (patience, stuck) = (Duration::from_secs(3), Duration::from_secs(8));
    let place = Fixture::new(PoolLimits { patience, stuck, ..patient(8, 8, 8) });
    let pid = place.describe(ANN).pid;
    let begun = Instant::now();
    let hangs = place.begin(ANN, Class::Prompt, &Asked::Hang);
    let long = place.begin(ANN, Class::Long, &Asked::Describe);
    let flood: Vec<_> =
        (0..3000).map(|_| place.begin(ANN, Class::Prompt, &Asked::Describe)).collect();
    assert!(place.describe(BOB).pid != pid);
    assert!(begun.elapsed() < patience, "nobody waits for another's process");
    assert_eq!(wait(&hangs), Err(Errno::ETIMEDOUT));
    assert!(begun.elapsed() >= patience);
    let refused: Vec<_> = flood.iter().map(wait).collect();
    assert!(refused.iter().all(|told| matches!(told, Err(Errno::ETIMEDOUT | Errno::EAGAIN))));
    assert!(refused.contains(&Err(Errno::EAGAIN)), "some were too many at once");
    // As long as it hangs, nothing prompt is asked of it.
    let told = wait(&place.begin(ANN, Class::Prompt, &Asked::Describe));
    assert_eq!(told, Err(Errno::ETIMEDOUT));
    assert!(begun.elapsed() < stuck, "it was refused at once");
    assert_eq!(wait(&long), Err(Errno::EIO));
    assert!(begun.elapsed() >= stuck);
    assert!(place.describe(ANN).pid != pid);
    assert!(!is_running(pid));
    place.wait_for_log("the process that answers for uid 2001 ended");
}

pub fn a_process_that_dies_in_an_answer_is_replaced() {
    let place = Fixture::new(patient(8, 8, 8));
    let pid = place.describe(ANN).pid;
    let half = [head(1000, 2, 0), vec![1; 500]].concat();
    for bytes in [half, head(10, 2, 0)[..5].to_vec(), Vec::new()] {
        let others = place.begin(ANN, Class::Prompt, &Asked::Write(bytes, Some(3)));
        let waiting = place.begin(ANN, Class::Prompt, &Asked::Describe);
        assert_eq!(wait(&others), Err(Errno::EIO));
        // It has waited with the first, or it is asked of the next process.
        assert!(matches!(wait(&waiting), Err(Errno::EIO) | Ok(Said::Description(_))));
        assert!(place.describe(ANN).pid != pid);
    }
    place.wait_for_log("ended: exit status: 3");
}

pub fn what_no_answer_may_be_ends_the_process() {
    let place = Fixture::new(patient(8, 8, 8));
    for (bytes, why) in [
        (too_long(), "a frame is too long"),
        ([head(0, 77, 0)].concat(), "an answer to nothing"),
        ([head(1, 2, 9)].concat(), "invalid data"),
        // No variant of answers, and one with more behind it.
        ([head(1, 2, 0), vec![99]].concat(), "an answer of another form"),
        ([head(2, 2, 0), vec![2, 2]].concat(), "an answer of another form"),
    ] {
        let pid = place.describe(ANN).pid;
        assert_eq!(place.ask(ANN, &Asked::Write(bytes, None)), Err(Errno::EIO), "{why}");
        wait_until("the log says why", || {
            let log = place.log();
            let is_why = |line: &str| line.contains("uid 2001 is ended: ") && line.contains(why);
            log.lines().any(is_why)
        });
        wait_until("it is ended", || !is_running(pid));
    }
    assert_ne!(place.describe(BOB).pid, place.describe(ANN).pid);
}

pub fn a_request_that_panics_or_says_too_much_fails_alone() {
    let place = Fixture::new(patient(8, 8, 8));
    let pid = place.describe(ANN).pid;
    let failed = |why: &str| Ok(Said::Failed(why.to_owned()));
    for class in [Class::Prompt, Class::Long, Class::Heavy] {
        assert_eq!(wait(&place.begin(ANN, class, &Asked::Panic)), failed("Panicked"));
        let told = wait(&place.begin(ANN, class, &Asked::Answer(FRAME_BYTES_MAX)));
        assert_eq!(told, failed("TooLong"));
    }
    assert_eq!(place.describe(ANN).pid, pid);
}

pub fn requests_and_answers_are_of_bounded_size() {
    let place = Fixture::new(patient(8, 8, 8));
    let large = FRAME_BYTES_MAX - 8;
    assert_eq!(place.ask(ANN, &Asked::Answer(large)), Ok(Said::Bytes(vec![7; large])));
    let long = Asked::Write(vec![1; FRAME_BYTES_MAX + 1], None);
    assert_eq!(place.ask(ANN, &long), Err(Errno::EMSGSIZE));
    let pid = place.describe(ANN).pid;
    // Without a process, nobody need know; of one that is there, no answer is wanted.
    place.pool.notify(&Credentials::new(BOB, [BOB]), &Asked::Describe);
    place.pool.notify(&Credentials::new(ANN, [ANN]), &Asked::Describe);
    place.pool.notify(&Credentials::new(ANN, [ANN]), &long);
    assert_eq!(place.describe(ANN).pid, pid);
}

pub fn a_thread_answers_its_own_user() {
    let serve = |channel: canopy_as_user::Channel| {
        let _ = channel.serve(|number: &u32| number + 1, |_, _| 0);
    };
    let pool: Pool<u32, u32> = with_default(Lines::new(|_, line| panic!("{line}")), || {
        Pool::in_thread(serve, patient(8, 8, 8))
    });
    let (sender, answers) = channel();
    for number in 0..100 {
        let sender = sender.clone();
        let class = if number % 3 == 0 { Class::Heavy } else { Class::Prompt };
        pool.ask(&Credentials::new(0, []), class, &number, move |told| {
            sender.send(told).expect("somebody waits");
        });
    }
    let told = (0..100).map(|_| answers.recv_timeout(Duration::from_secs(60)).expect("an answer"));
    let mut told: Vec<u32> = told.map(|told| told.expect("no error")).collect();
    told.sort_unstable();
    assert_eq!(told, (1..101).collect::<Vec<u32>>());
}
