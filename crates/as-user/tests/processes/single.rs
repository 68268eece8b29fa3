//! Processes of one caller.

use crate::subject::{Asked, SINGLE, Said, too_long};
use crate::{is_running, wait_until};
use canopy_as_user::{Process, Service};
use std::io::{ErrorKind, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

fn start(output: Stdio) -> Process {
    let process = Process::start(&SINGLE, output, Stdio::piped()).expect("a process");
    process.introduce(2001, &[2001]).expect("a reader");
    process
}

fn receive(process: &mut Process) -> std::io::Result<Said> {
    process.receive(Instant::now() + PATIENCE, &|| true)
}

pub fn a_process_of_one_caller_answers_and_ends() {
    let output = tempfile::tempfile().expect("a file");
    let mut process = start(output.try_clone().expect("a descriptor").into());
    for length in [0, 100_000, 1 << 19] {
        process.send(&Asked::Answer(length)).expect("a reader");
        assert_eq!(receive(&mut process).expect("an answer"), Said::Bytes(vec![7; length]));
    }
    process.send(&Asked::Describe).expect("a reader");
    let Ok(Said::Description(told)) = receive(&mut process) else { panic!() };
    assert_eq!(Some(told.directory), std::env::current_dir().ok());
    assert!(told.variables.is_empty(), "{:?}", told.variables);
    assert!(!process.is_over());
    let mut errors = process.take_errors().expect("a pipe");
    assert_eq!(process.wait().expect("its end").code(), Some(7));
    let mut text = String::new();
    errors.read_to_string(&mut text).expect("its messages");
    assert_eq!(text, "as 2001\n".repeat(3));
    // The file is root's, and the process has written to it nevertheless.
    assert_eq!(output.metadata().expect("the file").len(), 3 * "asked\n".len() as u64);
}

pub fn a_caller_waits_no_longer_than_it_likes() {
    let mut process = start(Stdio::null());
    process.send(&Asked::Describe).expect("a reader");
    let Ok(Said::Description(told)) = receive(&mut process) else { panic!() };
    process.send(&Asked::Hang).expect("a reader");
    let soon = Instant::now() + Duration::from_millis(50);
    let late = process.receive::<Said>(soon, &|| true).expect_err("nothing is said");
    assert_eq!(late.kind(), ErrorKind::TimedOut);
    assert!(Instant::now() >= soon);
    let later = Instant::now() + PATIENCE;
    let unwanted = process.receive::<Said>(later, &|| false).expect_err("nothing is said");
    assert_eq!(unwanted.kind(), ErrorKind::TimedOut);
    process.end(Duration::from_millis(50), &|| true);
    assert!(!is_running(told.pid), "what hangs is killed");

    let mut process = start(Stdio::null());
    process.send(&Asked::Write(too_long(), None)).expect("a reader");
    assert!(receive(&mut process).is_err());
    let mut process = start(Stdio::null());
    process.send(&Asked::Write(too_long()[..9].to_vec(), Some(0))).expect("a reader");
    wait_until("it has ended", || process.is_over());
    let error = receive(&mut process).expect_err("half of an answer");
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
}

pub fn what_is_no_service_is_not_run() {
    let other = Service { name: "another", ..SINGLE };
    let process = Process::start(&other, Stdio::null(), Stdio::null()).expect("a process");
    let _ = process.introduce(2001, &[2001]);
    // It is an ordinary run of the program, of a test that does not exist.
    assert!(process.wait().expect("its end").success());
    for words in [&["as-user", "single"][..], &["as-user"]] {
        let mut command = Command::new("/proc/self/exe");
        command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let output = command.output().expect("a program");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(text.contains("cannot become that user"), words.len() == 2, "{text}");
    }
    // Nobody becomes root without a group, or another without being root.
    let process = Process::start(&SINGLE, Stdio::null(), Stdio::null()).expect("a process");
    process.introduce(2001, &[]).expect("a reader");
    assert_eq!(process.wait().expect("its end").code(), Some(1));
}
