//! Services, and the side of the process that runs one.

use crate::channel::Channel;
use crate::identity::{become_user, close_all_but_standard, limit};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::Resource;
use nix::sys::signal::Signal;
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

/// The first argument of a process that runs a service; the second one is its name.
pub(crate) const ARGUMENT: &str = "as-user";

/// Work for users, each of whom has a process of their own that does it with their rights.
pub struct Service {
    /// The name, by which a program finds the service.
    pub name: &'static str,
    /// The name that lists of processes show for the program.
    pub program: &'static str,
    /// Most bytes of memory; `None` for as many as the program may have.
    pub memory_bytes_max: Option<u64>,
    /// Most open files; `None` for as many as the program may have.
    pub files_max: Option<u64>,
    /// Whether it writes to files, such as the one that it gets as standard output.
    pub writes_files: bool,
    /// Whether these processes go before others where memory is short.
    pub ends_first: bool,
    /// Variables of the environment that it keeps.
    pub variables: &'static [&'static str],
    /// Whether it keeps the working directory, for relative paths.
    pub keeps_directory: bool,
    /// Does the work as the user. Returns the exit code of the process.
    pub serve: fn(Channel) -> ExitCode,
}

/// Runs the service that this process was started for, as its user. Returns the exit code, or
/// `None` where this is an ordinary run of the program. To be called first of all, with one thread.
pub fn serve_if_asked(services: &[&Service]) -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    words.next().filter(|first| first == ARGUMENT)?;
    let name = words.next()?;
    let service = services.iter().find(|service| name == OsStr::new(service.name))?;
    Some(match enter(service) {
        Ok(channel) => (service.serve)(channel),
        Err(error) => {
            // The reader of standard error may be gone.
            let _ = io::Write::write_all(
                &mut io::stderr(),
                format!("canopy: cannot become that user: {error}\n").as_bytes(),
            );
            ExitCode::FAILURE
        }
    })
}

/// Becomes the user whom the first frame names, within the limits of the service.
fn enter(service: &Service) -> io::Result<Channel> {
    close_all_but_standard()?;
    let channel = Channel::new(UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?));
    let (uid, gids): (u32, Vec<u32>) = channel.receive()?;
    if service.ends_first {
        // Where there is no such file, all processes are equal.
        let _ = std::fs::write("/proc/self/oom_score_adj", "500");
    }
    let own = [
        (Resource::RLIMIT_CORE, Some(0)),
        (Resource::RLIMIT_FSIZE, Some(0).filter(|_| !service.writes_files)),
        (Resource::RLIMIT_DATA, service.memory_bytes_max),
        (Resource::RLIMIT_NOFILE, service.files_max),
    ];
    for (resource, most) in own {
        most.map_or(Ok(()), |most| limit(resource, most))?;
    }
    become_user(uid, &gids)?;
    // Set last, as becoming somebody resets it.
    set_pdeathsig(Signal::SIGKILL)?;
    Ok(channel)
}
