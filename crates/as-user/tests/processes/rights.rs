//! Rights of a process, and their limits.

use crate::subject::{Asked, Fixture, SHARED, Said, patient};
use crate::{is_running, wait_until};
use canopy_as_user::Class;
use canopy_model::Credentials;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, dup};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;

const ANN: u32 = 2001;

/// The argument that makes this program a parent that is to be killed.
pub const PARENT: &str = "--parent";

/// The real and saved user of all processes.
const HOLDER: u32 = u32::MAX - 15;

pub fn a_process_is_one_user_for_good() {
    let place = Fixture::new(patient(8, 8, 8));
    let (sender, answers) = channel();
    let who = Credentials { uid: ANN, gids: vec![3009, 3002, 3005] };
    place.pool.ask(&who, Class::Prompt, &Asked::Describe, move |told| {
        sender.send(told).expect("somebody waits");
    });
    let Ok(Said::Description(own)) = crate::subject::wait(&answers) else { panic!() };
    assert_eq!(own.setup, "the setup");
    assert_eq!(own.status["Uid"], format!("{HOLDER}\t{ANN}\t{HOLDER}\t{ANN}"));
    // The first group is the main one.
    assert_eq!(own.status["Gid"], "3009\t3009\t3009\t3009");
    assert_eq!(own.status["Groups"], "3002 3005 3009");
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(own.status[set], "0000000000000000", "{set}");
    }
    assert_eq!(own.status["NoNewPrivs"], "1");
    assert_eq!(own.attempts, [Err(Errno::EPERM as i32); 3]);
    // A user with one group only is not in a group of root.
    let other = place.describe(2002);
    assert_eq!(
        (&*other.status["Groups"], &*other.status["Gid"]),
        ("2002", "2002\t2002\t2002\t2002")
    );
    assert_ne!(own.pid, other.pid);
}

pub fn it_has_nothing_of_its_parent_but_the_socket() {
    // Without the flag by which it would be closed.
    let inherited = dup(std::fs::File::open("/etc/passwd").expect("a file")).expect("a descriptor");
    let place = Fixture::new(patient(8, 8, 8));
    let own = place.describe(ANN);
    drop(inherited);
    for target in &own.open {
        let is_fine = target.to_string_lossy().starts_with("socket:")
            || target.to_str() == Some("/dev/null")
            || target.starts_with("/proc");
        assert!(is_fine, "{:?}", own.open);
    }
    assert_eq!(own.variables, ["PATH"]);
    assert_eq!(own.directory.to_str(), Some("/"));
    assert_eq!(own.oom_score_adj.trim(), "500");
    // Heavy requests give way to all others.
    let niceness = rustix::process::nice(0).expect("the niceness");
    let heavy = crate::subject::wait(&place.begin(ANN, Class::Heavy, &Asked::Describe));
    let Ok(Said::Description(heavy)) = heavy else { panic!() };
    assert_eq!((own.nice, heavy.nice), (niceness, (niceness + 10).min(19)));
    assert_eq!(own.limits, [(0, 0), (0, 0), (1 << 30, 1 << 30), (64, 64)]);
    let line = std::fs::read_to_string(format!("/proc/{}/cmdline", own.pid)).expect("/proc");
    assert_eq!(line, [SHARED.program, "as-user", SHARED.name, ""].join("\0"));
}

pub fn its_own_user_cannot_touch_it() {
    let place = Fixture::new(patient(8, 8, 8));
    let pid = place.describe(ANN).pid;
    let as_ann = |program: &str, words: &[&str]| {
        let mut command = Command::new(program);
        command.args(words).uid(ANN).gid(ANN).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().expect("a program").success()
    };
    for signal in ["-KILL", "-STOP", "-0"] {
        assert!(!as_ann("kill", &[signal, &pid.to_string()]), "{signal}");
    }
    for file in ["mem", "environ", "maps", "fd/"] {
        assert!(!as_ann("ls", &["-l", &format!("/proc/{pid}/fd/")]), "{file}");
        assert!(!as_ann("cat", &[&format!("/proc/{pid}/{file}")]), "{file}");
    }
    assert_eq!(place.describe(ANN).pid, pid);
}

/// Prints the process of a user that hangs, and waits to be killed.
pub fn be_parent() {
    let place = Fixture::new(patient(8, 8, 8));
    println!("{}", place.describe(ANN).pid);
    // Its main thread hangs, so that it does not see that nobody asks any more.
    let _ = place.ask(ANN, &Asked::Hang);
}

pub fn it_ends_with_its_parent() {
    let mut parent = Command::new("/proc/self/exe");
    let mut parent = parent.arg(PARENT).stdout(Stdio::piped()).spawn().expect("a parent");
    let mut line = String::new();
    let output = parent.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut line).expect("a line");
    let pid: u32 = line.trim().parse().expect("a number");
    assert!(is_running(pid));
    kill(Pid::from_raw(parent.id() as i32), Signal::SIGKILL).expect("the parent");
    parent.wait().expect("its end");
    wait_until("the process has ended", || !is_running(pid));
}
