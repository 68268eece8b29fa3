//! Standard input and output that are closed when the process begins, as by `canopy find >&-`.
//!
//! Rust opens `/dev/null` in their place before `main`, so that no file that is opened later gets
//! their numbers. Answers would vanish there without an error, and an empty input would be read. So
//! [`look`] runs before that, and [`prepare`] puts in place what fails to be written and read.

#![allow(unsafe_code)]

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl, open};
use nix::sys::stat::Mode;
use nix::unistd::{dup2_stdin, dup2_stdout};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

static INPUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);
static OUTPUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Has the C library call [`look`] before Rust's own start.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    INPUT_WAS_CLOSED.store(is_closed(0), Ordering::Relaxed);
    OUTPUT_WAS_CLOSED.store(is_closed(1), Ordering::Relaxed);
}

fn is_closed(number: i32) -> bool {
    fcntl(standard(number), FcntlArg::F_GETFD).is_err()
}

fn standard(number: i32) -> BorrowedFd<'static> {
    // SAFETY: nothing but the system looks at it, which knows whether it is open.
    unsafe { BorrowedFd::borrow_raw(number) }
}

/// Returns whether standard output was closed when the process began.
pub fn was_output_closed() -> bool {
    OUTPUT_WAS_CLOSED.load(Ordering::Relaxed)
}

/// Puts a file that takes nothing in place of a standard output that was closed, and a directory,
/// which cannot be read, in place of such an input. Programs that are run from here find them
/// closed. Called first in `main`.
pub fn prepare() {
    // Without /dev/full, output goes to /dev/null, as it does without all this.
    let full = |flags| open("/dev/full", flags | OFlag::O_WRONLY, Mode::empty());
    let root = |flags| open("/", flags | OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty());
    if was_output_closed() && full(OFlag::O_CLOEXEC).is_ok_and(|fd| dup2_stdout(fd).is_ok()) {
        close_on_exec(1);
    }
    let was_input_closed = INPUT_WAS_CLOSED.load(Ordering::Relaxed);
    if was_input_closed && root(OFlag::O_CLOEXEC).is_ok_and(|fd| dup2_stdin(fd).is_ok()) {
        close_on_exec(0);
    }
}

fn close_on_exec(number: i32) {
    let _ = fcntl(standard(number), FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC));
}
