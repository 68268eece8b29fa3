//! Processes of real users: their rights, how they are asked, how they fail, and how many there
//! are. Needs root.
//!
//! The processes are this program again, so it has a `main` of its own, which runs tests as the
//! usual one does: all, or those that are named; `--list` prints their names.

mod limits;
mod pools;
mod rights;
mod single;
mod subject;

use canopy_as_user::serve_if_asked;
use std::panic::catch_unwind;
use std::process::ExitCode;
use std::time::{Duration, Instant};

macro_rules! tests {
    ($($module:ident::$name:ident,)*) => {
        const TESTS: &[(&str, fn())] =
            &[$((concat!(stringify!($module), "::", stringify!($name)), $module::$name),)*];
    };
}

tests! {
    rights::a_process_is_one_user_for_good,
    rights::it_has_nothing_of_its_parent_but_the_socket,
    rights::its_own_user_cannot_touch_it,
    rights::it_ends_with_its_parent,
    pools::many_users_are_answered_at_once,
    pools::who_hangs_keeps_nobody_else_waiting,
    pools::a_process_that_dies_in_an_answer_is_replaced,
    pools::what_no_answer_may_be_ends_the_process,
    pools::a_request_that_panics_or_says_too_much_fails_alone,
    pools::requests_and_answers_are_of_bounded_size,
    pools::a_thread_answers_its_own_user,
    limits::the_idle_make_room,
    limits::the_busy_keep_their_share,
    limits::a_process_that_nobody_asks_ends,
    limits::an_account_has_few_heavy_requests_at_a_time,
    single::a_process_of_one_caller_answers_and_ends,
    single::a_caller_waits_no_longer_than_it_likes,
    single::what_is_no_service_is_not_run,
}

fn main() -> ExitCode {
    if let Some(code) = serve_if_asked(&[&subject::SHARED, &subject::SINGLE]) {
        return code;
    }
    // The only format is the terse one.
    let words = std::env::args().skip(1).filter(|word| word != "terse");
    let words: Vec<String> = words.collect();
    let has = |word: &str| words.iter().any(|one| one == word);
    if has(rights::PARENT) {
        rights::be_parent();
        return ExitCode::FAILURE;
    }
    let is_wanted = |name: &str| {
        let mut filters = words.iter().filter(|word| !word.starts_with("--")).peekable();
        let is_exact = has("--exact");
        filters.peek().is_none()
            || filters.any(|one| if is_exact { one == name } else { name.contains(one.as_str()) })
    };
    // None is ignored.
    let wanted = TESTS.iter().filter(|(name, _)| is_wanted(name) && !has("--ignored"));
    if has("--list") {
        wanted.for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let failed = wanted.filter(|(name, test)| {
        let is_ok = catch_unwind(test).is_ok();
        println!("test {name} ... {}", if is_ok { "ok" } else { "FAILED" });
        !is_ok
    });
    if failed.count() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Waits until something is so.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns whether a process is there and has not ended.
fn is_running(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains(['Z', 'X']))
}
