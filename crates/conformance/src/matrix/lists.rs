//! Access by ACLs: named users, named groups and the mask, in all combinations of their bits.

use super::{Caller, callers, case, protect, unless};
use crate::case::Case;
use crate::credentials::id;
use crate::model::{Acl, Object, R, W, X};

/// A call on a file and what it needs.
const CALLS: &[(&str, u32)] = &[
    ("open f O_RDONLY", R),
    ("open f O_WRONLY", W),
    ("open f O_RDWR", R | W),
    ("access f X_OK", X),
    ("access f R_OK|W_OK|X_OK", R | W | X),
];

/// Permissions of the owner where entries are tried one at a time.
const OWNER: u32 = 7;

/// Adds the cases. A mask without any bit is left out: the kernel then does not look at the ACL, so
/// that those whom it names count as others, which acl(5) does not say.
pub fn add(cases: &mut Vec<Case>) -> anyhow::Result<()> {
    let callers = callers(&["root", "u1", "u2", "u3+g1", "u3+g4", "u4", "u3+g1+g4"])?;
    for bits in 0..8 {
        for mask in 1..8 {
            let acl =
                Acl { group: !bits & 7, users: vec![(id(2), bits)], groups: vec![(id(4), bits)] };
            for caller in &callers {
                cases.push(on_file(&acl, mask, !bits & 7, caller)?);
            }
            cases.push(on_directory(&acl, mask, !bits & 7)?);
        }
    }
    for (one, other) in (0..8).flat_map(|one| (0..8).map(move |other| (one, other))) {
        let groups = vec![(id(2), one), (id(4), other)];
        let acl = Acl { group: 0, users: Vec::new(), groups };
        for caller in &super::callers(&["u3+g2+g4", "u2+g4", "u3+g1+g2"])? {
            cases.push(on_file(&acl, 7, 7, caller)?);
        }
    }
    Ok(())
}

fn object(acl: &Acl, mask: u32, others: u32, is_directory: bool) -> Object {
    let mode = (OWNER << 6) | (mask << 3) | others;
    Object { uid: id(1), gid: id(1), mode, is_directory, acl: Some(acl.clone()) }
}

/// All bits of an object, for the name of a case.
fn label(object: &Object) -> String {
    protect(object, "f").rsplit(' ').next().unwrap_or_default().to_owned()
}

fn on_file(acl: &Acl, mask: u32, others: u32, caller: &Caller) -> anyhow::Result<Case> {
    let file = object(acl, mask, others, false);
    let who = caller.name;
    let mut lines =
        format!("create f\n{}\nstat f mode => {:04o}\n", protect(&file, "f"), file.mode);
    for (call, wanted) in CALLS {
        let expected = unless("EACCES", file.may(&caller.credentials, *wanted), "ok");
        lines.push_str(&format!("{who}: {call} => {expected}\n"));
    }
    case(format!("acl/file [{}, {who}]", label(&file)), &["acls"], &lines)
}

fn on_directory(acl: &Acl, mask: u32, others: u32) -> anyhow::Result<Case> {
    let directory = object(acl, mask, others, true);
    let mut lines = format!("mkdir d 0755\ncreate d/f 0666\n{}\n", protect(&directory, "d"));
    for caller in callers(&["u1", "u2", "u3+g4", "u3+g1"])? {
        let who = caller.name;
        let make = format!("mkdir d/{who} 0755");
        for (call, wanted) in [("ls d", R), ("stat d/f", X), (make.as_str(), W | X)] {
            let expected = unless("EACCES", directory.may(&caller.credentials, wanted), "ok");
            lines.push_str(&format!("{who}: {call} => {expected}\n"));
        }
    }
    case(format!("acl/directory [{}]", label(&directory)), &["acls"], &lines)
}
