//! Namespaces on several servers for programs in C: `include/canopy.h` describes the functions.
//!
//! | to change | read |
//! | --- | --- |
//! | functions of C, pointers and errors | this file |
//! | operations on paths, open files | `session` |
//!
//! Invariants:
//!
//! - All that is unsafe is here: a pointer is what the header requires, or null, which is an error.
//! - No panic reaches the caller.

#![allow(unsafe_code)]

mod session;

use canopy_namespace::Inode;
use session::{Failure, OpenFile, Session};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A connection, as C has it.
pub struct Canopy(Arc<Session>);

/// An open file, as C has it.
pub struct CanopyFile(OpenFile);

/// A function that is called with each entry of a directory.
pub type Each = unsafe extern "C" fn(*mut c_void, *const c_char, *const libc::stat) -> c_int;

thread_local! {
    /// The last failure of this thread, and the message that C has got.
    static LAST: RefCell<(c_int, String)> = const { RefCell::new((0, String::new())) };
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Returns the number of a result for C, and notes the message of a failure.
fn result(work: impl FnOnce() -> Result<isize, Failure>) -> isize {
    let done = catch_unwind(AssertUnwindSafe(work));
    let failure = match done {
        Ok(Ok(number)) => return number,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(libc::EIO, "a fault of the library".into()),
    };
    LAST.with_borrow_mut(|last| *last = (failure.errno, failure.message));
    -(failure.errno as isize)
}

fn done(work: impl FnOnce() -> Result<(), Failure>) -> c_int {
    result(|| work().map(|()| 0)) as c_int
}

/// Returns the bytes of a string.
fn text<'a>(string: *const c_char) -> Result<&'a CStr, Failure> {
    match string.is_null() {
        true => Err(Failure::of_null()),
        // SAFETY: the header requires a string that stays for the call.
        false => Ok(unsafe { CStr::from_ptr(string) }),
    }
}

fn optional<'a>(string: *const c_char) -> Result<Option<&'a str>, Failure> {
    if string.is_null() {
        return Ok(None);
    }
    let text = text(string)?.to_str();
    text.map(Some).map_err(|_| Failure::new(libc::EINVAL, "a name is not UTF-8".into()))
}

/// Returns the value behind a pointer.
fn reference<'a, T>(pointer: *const T) -> Result<&'a T, Failure> {
    // SAFETY: the header requires null, or a pointer from the library that was not freed.
    unsafe { pointer.as_ref() }.ok_or_else(Failure::of_null)
}

/// Gives C a pointer to a new value.
fn give<T>(to: *mut *mut T, made: impl FnOnce() -> Result<T, Failure>) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::of_null());
    }
    // SAFETY: the header requires a place for a pointer.
    unsafe { *to = std::ptr::null_mut() };
    let made = Box::into_raw(Box::new(made()?));
    // SAFETY: as above.
    unsafe { *to = made };
    Ok(())
}

/// Writes a value to a place of C.
fn put<T>(to: *mut T, value: T) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::of_null());
    }
    // SAFETY: the header requires a place for such a value.
    unsafe { *to = value };
    Ok(())
}

/// Calls a function of C with an entry of a directory.
fn call(each: Each, context: *mut c_void, name: &CStr, attributes: &libc::stat) -> c_int {
    // SAFETY: the header requires such a function; name and attributes are valid for the call.
    unsafe { each(context, name.as_ptr(), attributes) }
}

/// Takes back what C was given.
fn take<T>(pointer: *mut T) -> Result<Box<T>, Failure> {
    match pointer.is_null() {
        true => Err(Failure::of_null()),
        // SAFETY: the header requires a pointer from the library that was not freed.
        false => Ok(unsafe { Box::from_raw(pointer) }),
    }
}

/// Returns the attributes of an inode as C has them.
fn attributes_of(inode: &Inode) -> libc::stat {
    // SAFETY: all fields are numbers, for which zero is valid.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let seconds = |time_ns: i64| time_ns.div_euclid(1_000_000_000);
    let rest = |time_ns: i64| time_ns.rem_euclid(1_000_000_000);
    stat.st_ino = inode.id.0;
    stat.st_mode = inode.mode;
    stat.st_nlink = inode.nlink.into();
    (stat.st_uid, stat.st_gid, stat.st_rdev) = (inode.uid, inode.gid, inode.rdev.into());
    stat.st_size = i64::try_from(inode.size).unwrap_or(i64::MAX);
    (stat.st_blksize, stat.st_blocks) = (4096, i64::try_from(inode.blocks).unwrap_or(i64::MAX));
    (stat.st_atime, stat.st_atime_nsec) = (seconds(inode.atime_ns), rest(inode.atime_ns));
    (stat.st_mtime, stat.st_mtime_nsec) = (seconds(inode.mtime_ns), rest(inode.mtime_ns));
    (stat.st_ctime, stat.st_ctime_nsec) = (seconds(inode.ctime_ns), rest(inode.ctime_ns));
    stat
}

/// Connects to a namespace.
#[unsafe(no_mangle)]
pub extern "C" fn canopy_connect(
    name: *const c_char,
    certificate: *const c_char,
    storage: *const c_char,
    connection: *mut *mut Canopy,
) -> c_int {
    done(|| {
        give(connection, || {
            let name = optional(name)?.ok_or_else(Failure::of_null)?;
            let session = Session::open(name, optional(certificate)?, optional(storage)?)?;
            Ok(Canopy(Arc::new(session)))
        })
    })
}

/// Ends a connection.
#[unsafe(no_mangle)]
pub extern "C" fn canopy_disconnect(connection: *mut Canopy) -> c_int {
    done(|| take(connection)?.0.end())
}

/// Returns attributes of a file.
#[unsafe(no_mangle)]
pub extern "C" fn canopy_stat(
    connection: *const Canopy,
    path: *const c_char,
    attributes: *mut libc::stat,
) -> c_int {
    done(|| {
        let inode = reference(connection)?.0.stat(text(path)?)?;
        put(attributes, attributes_of(&inode))
    })
}

/// Makes an empty regular file.
#[unsafe(no_mangle)]
pub extern "C" fn canopy_create(
    connection: *const Canopy,
    path: *const c_char,
    mode: libc::mode_t,
) -> c_int {
    done(|| reference(connection)?.0.make(text(path)?, libc::S_IFREG, mode))
}

/// Makes a directory.
#[unsafe(no_mangle)]
pub extern "C" fn canopy_mkdir(
    connection: *const Canopy,
    path: *const c_char,
    mode: libc::mode_t,
) -> c_int {
    done(|| reference(connection)?.0.make(text(path)?, libc::S_IFDIR, mode))
}

/// Removes a name of a file.
#[unsafe(no_mangle)]
pub extern "C" fn canopy_unlink(connection: *const Canopy, path: *const c_char) -> c_int {
    done(|| reference(connection)?.0.unlink(text(path)?))
}

/// Removes an empty directory.
#[unsafe(no_mangle)]
pub extern "C" fn canopy_rmdir(connection: *const Canopy, path: *const c_char) -> c_int {
    done(|| reference(connection)?.0.rmdir(text(path)?))
}

/// Renames a file or a directory.
#[unsafe(no_mangle)]
pub extern "C" fn canopy_rename(
    connection: *const Canopy,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    done(|| reference(connection)?.0.rename(text(from)?, text(to)?))
}

/// Calls a function with each entry of a directory.
#[unsafe(no_mangle)]
pub extern "C" fn canopy_readdir(
    connection: *const Canopy,
    path: *const c_char,
    each: Option<Each>,
    context: *mut c_void,
) -> c_int {
    done(|| {
        let each = each.ok_or_else(Failure::of_null)?;
        reference(connection)?.0.list(text(path)?, |name, inode| {
            // A name has no NUL in it.
            let Ok(name) = CString::new(name) else { return true };
            call(each, context, &name, &attributes_of(inode)) == 0
        })
    })
}

/// Opens a regular file.
#[unsafe(no_mangle)]
pub extern "C" fn canopy_open(
    connection: *const Canopy,
    path: *const c_char,
    flags: c_int,
    mode: libc::mode_t,
    file: *mut *mut CanopyFile,
) -> c_int {
    done(|| {
        let session = &reference(connection)?.0;
        let path = text(path)?;
        give(file, || OpenFile::open(session, path, flags, mode).map(CanopyFile))
    })
}

/// Reads from a file.
#[unsafe(no_mangle)]
pub extern "C" fn canopy_pread(
    file: *const CanopyFile,
    bytes: *mut c_void,
    count: usize,
    offset: u64,
) -> isize {
    result(|| {
        let (file, count) = room(file, bytes, count)?;
        let read = file.read(offset, count)?;
        let length = read.len().min(count);
        // SAFETY: the header requires room for `count` bytes, which is elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(read.as_ptr(), bytes.cast::<u8>(), length) };
        Ok(length as isize)
    })
}

/// Writes into a file.
#[unsafe(no_mangle)]
pub extern "C" fn canopy_pwrite(
    file: *const CanopyFile,
    bytes: *const c_void,
    count: usize,
    offset: u64,
) -> isize {
    result(|| {
        let (file, count) = room(file, bytes, count)?;
        // SAFETY: the header requires so many bytes, which stay for the call.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), count) };
        Ok(file.write(offset, bytes)? as isize)
    })
}

/// Returns the file and the number of bytes of a call that reads or writes, once these can be used.
fn room<'a>(
    file: *const CanopyFile,
    bytes: *const c_void,
    count: usize,
) -> Result<(&'a OpenFile, usize), Failure> {
    let file = &reference(file)?.0;
    match bytes.is_null() {
        true => Err(Failure::of_null()),
        false => Ok((file, count.min(isize::MAX as usize))),
    }
}

/// Makes a file outlast a crash.
#[unsafe(no_mangle)]
pub extern "C" fn canopy_fsync(file: *const CanopyFile) -> c_int {
    done(|| reference(file)?.0.sync())
}

/// Closes a file.
#[unsafe(no_mangle)]
pub extern "C" fn canopy_close(file: *mut CanopyFile) -> c_int {
    done(|| take(file)?.0.close())
}

/// Returns a message for an error: that of the last failure of this thread if it has this number.
#[unsafe(no_mangle)]
pub extern "C" fn canopy_strerror(error: c_int) -> *const c_char {
    let number = error.saturating_abs();
    let message = LAST.with_borrow(|(last, message)| match *last == number {
        true if !message.is_empty() => message.clone(),
        _ => std::io::Error::from_raw_os_error(number).to_string(),
    });
    let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
    MESSAGE.with_borrow_mut(|kept| {
        *kept = message;
        kept.as_ptr()
    })
}
