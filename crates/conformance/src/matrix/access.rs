//! Every call on files and directories whose bits grant something to the owner, the group, others
//! or a user whom an ACL names, and the opposite to everybody else, so that looking at the wrong
//! bits shows.

use super::{Caller, callers, case, letters, protect, unless};
use crate::case::Case;
use crate::credentials::id;
use crate::model::{Acl, Object, R, W, X};

/// A call, what it needs to be allowed to do, and what it answers if it is.
type Row = (&'static str, u32, &'static str);

/// On a file that the caller gets to.
const ON_FILES: &[Row] = &[
    ("stat f mode", 0, "ok"),
    ("listxattr f", 0, "ok"),
    ("open f O_PATH", 0, "ok"),
    ("access f F_OK", 0, "ok"),
    ("access f R_OK", R, "ok"),
    ("access f W_OK", W, "ok"),
    ("access f X_OK", X, "ok"),
    ("access f R_OK|W_OK", R | W, "ok"),
    ("access f R_OK|X_OK", R | X, "ok"),
    ("access f W_OK|X_OK", W | X, "ok"),
    ("access f R_OK|W_OK|X_OK", R | W | X, "ok"),
    ("faccessat AT_FDCWD f R_OK AT_EACCESS", R, "ok"),
    ("faccessat AT_FDCWD f W_OK|X_OK AT_EACCESS", W | X, "ok"),
    ("faccessat AT_FDCWD l R_OK|W_OK 0", R | W, "ok"),
    ("open f O_RDONLY", R, "ok"),
    ("open f O_WRONLY", W, "ok"),
    ("open f O_RDWR", R | W, "ok"),
    ("open f O_WRONLY|O_APPEND", W, "ok"),
    ("open f O_RDONLY|O_TRUNC", R | W, "ok"),
    ("open f O_WRONLY|O_CREAT|O_TRUNC 0644", W, "ok"),
    ("open f O_RDWR|O_CREAT|O_EXCL 0644", 0, "EEXIST"),
    ("creat f 0644", W, "ok"),
    ("open l O_RDONLY", R, "ok"),
    ("cat l", R, "data"),
    ("truncate f 0", W, "ok"),
    ("truncate l 9", W, "ok"),
    ("utimes f omit omit", 0, "ok"),
];

/// On a file's extended attributes.
const ON_ATTRIBUTES: &[Row] = &[
    ("getxattr f user.x", R, "1"),
    ("setxattr f user.x 2", W, "ok"),
    ("setxattr f user.y 2", W, "ok"),
    ("removexattr f user.x", W, "ok"),
];

/// On a program.
const ON_PROGRAMS: &[Row] = &[("run ./f", X, "0")];

/// Steps before calls on directories.
const DIRECTORY: &str = "mkdir d 0755
    create d/f 0666
    mkdir d/e 0777
    symlink f d/l
    WHO: create mine 0600
    WHO: mkdir ours 0700";

/// On a directory `d` with a file `f`, an empty directory `e` and a link `l`, beside a file `mine`
/// and a directory `ours` of the caller.
const ON_DIRECTORIES: &[Row] = &[
    ("open d O_RDONLY", R, "ok"),
    ("open d O_RDONLY|O_DIRECTORY", R, "ok"),
    ("open d O_PATH", 0, "ok"),
    ("ls d", R, "e f l"),
    ("access d R_OK|X_OK", R | X, "ok"),
    ("access d W_OK", W, "ok"),
    ("chdir d", X, "ok"),
    ("stat d/f type", X, "file"),
    ("lstat d/l type", X, "symlink"),
    ("stat d/. type", X, "directory"),
    ("stat d/.. type", X, "directory"),
    ("stat d/missing", X, "ENOENT"),
    ("access d/f F_OK", X, "ok"),
    ("readlink d/l", X, "f"),
    ("open d/f O_RDWR", X, "ok"),
    ("open d/f O_RDWR|O_CREAT 0644", X, "ok"),
    ("open d/l O_RDWR", X, "ok"),
    ("open d/f O_CREAT|O_EXCL|O_RDWR 0644", X, "EEXIST"),
    ("open d/new O_RDWR", X, "ENOENT"),
    ("truncate d/f 0", X, "ok"),
    ("statfs d/f", X, "ok"),
    ("open d/new O_CREAT|O_RDWR 0644", W | X, "ok"),
    ("creat d/new 0644", W | X, "ok"),
    ("mkdir d/new 0755", W | X, "ok"),
    ("mkdir d/e 0755", X, "EEXIST"),
    ("mknod d/new file 0644", W | X, "ok"),
    ("mknod d/new fifo 0644", W | X, "ok"),
    ("mknod d/new socket 0644", W | X, "ok"),
    ("symlink x d/new", W | X, "ok"),
    ("symlink x d/f", X, "EEXIST"),
    ("link mine d/new", W | X, "ok"),
    ("link mine d/f", X, "EEXIST"),
    ("rename mine d/new", W | X, "ok"),
    ("rename mine d/f", W | X, "ok"),
    ("rename ours d/new", W | X, "ok"),
    ("rename d/f new", W | X, "ok"),
    ("rename d/f d/new", W | X, "ok"),
    ("rename d/l new", W | X, "ok"),
    ("rename d/missing new", X, "ENOENT"),
    ("renameat2 d/f mine RENAME_EXCHANGE", W | X, "ok"),
    ("renameat2 mine d/f RENAME_EXCHANGE", W | X, "ok"),
    ("unlink d/f", W | X, "ok"),
    ("unlink d/l", W | X, "ok"),
    ("unlink d/missing", X, "ENOENT"),
    ("rmdir d/e", W | X, "ok"),
    ("rmdir d/missing", X, "ENOENT"),
];

/// Adds the cases of all tables.
pub fn add(cases: &mut Vec<Case>) -> anyhow::Result<()> {
    let by_class = callers(&["root", "u1", "u2+g1", "u3"])?;
    for mode in modes() {
        let object = Object { uid: id(1), gid: id(1), mode, is_directory: false, acl: None };
        for caller in &by_class {
            add_tables(cases, &object, caller, &format!("{mode:04o}"))?;
        }
    }
    for caller in &callers(&["u4"])? {
        for bits in 0..8 {
            add_tables(cases, &naming(caller.credentials.uid, bits), caller, &letters(bits))?;
        }
    }
    Ok(())
}

/// Bits of one class that are the opposite of those of the other two.
fn modes() -> impl Iterator<Item = u32> {
    [6, 3, 0].into_iter().flat_map(|shift| {
        (0..8).map(move |bits| (((!bits & 7) * 0o111) & !(7 << shift)) | (bits << shift))
    })
}

/// Returns an object whose ACL grants `bits` to one user, and the opposite to everybody else.
fn naming(user: u32, bits: u32) -> Object {
    let others = !bits & 7;
    let acl = Acl { group: others, users: vec![(user, bits)], groups: Vec::new() };
    let mode = (others << 6) | 0o070 | others;
    Object { uid: id(1), gid: id(1), mode, is_directory: false, acl: Some(acl) }
}

/// Adds the cases of one caller and what is protected in one way.
fn add_tables(
    cases: &mut Vec<Case>,
    object: &Object,
    caller: &Caller,
    bits: &str,
) -> anyhow::Result<()> {
    let feature = object.acl.as_ref().map(|_| "acls");
    let mut add = |table: &[Row], setup: &str, need: Option<&str>, kind: &str, path: &str| {
        for (call, wanted, then) in table {
            let object = Object { is_directory: kind == "directory", ..object.clone() };
            let allowed = object.may(&caller.credentials, *wanted);
            let (who, protect) = (caller.name, protect(&object, path));
            let setup = setup.replace("WHO", who);
            let expected = unless("EACCES", allowed, then);
            let lines = format!("{setup}\n{protect}\n{who}: {call} => {expected}");
            let needs = Vec::from_iter(feature.into_iter().chain(need));
            cases.push(case(format!("access/{kind} [{bits}, {who}, {call}]"), &needs, &lines)?);
        }
        anyhow::Ok(())
    };
    add(ON_FILES, "create f 0600 data\nsymlink f l", None, "file", "f")?;
    let attribute = "create f\nsetxattr f user.x 1";
    add(ON_ATTRIBUTES, attribute, Some("user-xattrs"), "file", "f")?;
    add(ON_PROGRAMS, "install /bin/true f", Some("executes"), "file", "f")?;
    add(ON_DIRECTORIES, DIRECTORY, None, "directory", "d")
}
