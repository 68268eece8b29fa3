//! The names of constants that scripts may use, as C has them.

use nix::libc;

/// Makes a table of constants of libc by their names.
macro_rules! constants {
    ($($name:ident)*) => {
        /// Each constant's name and value.
        const CONSTANTS: &[(&str, i64)] = &[$((stringify!($name), libc::$name as i64)),*];
    };
}

constants! {
    O_RDONLY O_WRONLY O_RDWR O_ACCMODE O_CREAT O_EXCL O_TRUNC O_APPEND O_DIRECTORY O_NOFOLLOW
    O_PATH O_TMPFILE O_NOATIME O_NONBLOCK O_SYNC O_DSYNC O_DIRECT O_CLOEXEC O_NOCTTY
    AT_SYMLINK_NOFOLLOW AT_SYMLINK_FOLLOW AT_EMPTY_PATH AT_REMOVEDIR AT_EACCESS AT_NO_AUTOMOUNT
    AT_STATX_FORCE_SYNC AT_STATX_DONT_SYNC AT_STATX_SYNC_TYPE
    STATX_BASIC_STATS STATX_BTIME STATX_ALL STATX__RESERVED
    RENAME_NOREPLACE RENAME_EXCHANGE RENAME_WHITEOUT
    FALLOC_FL_KEEP_SIZE FALLOC_FL_PUNCH_HOLE FALLOC_FL_ZERO_RANGE FALLOC_FL_COLLAPSE_RANGE
    FALLOC_FL_INSERT_RANGE
    XATTR_CREATE XATTR_REPLACE
    F_OK R_OK W_OK X_OK
    F_RDLCK F_WRLCK F_UNLCK
    LOCK_SH LOCK_EX LOCK_UN LOCK_NB
    MS_RDONLY MS_NOATIME MS_NODIRATIME MS_STRICTATIME MS_RELATIME MS_NOEXEC MS_NODEV MS_NOSUID
}

/// The value of a constant.
pub fn constant(name: &str) -> Option<i64> {
    CONSTANTS.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}
