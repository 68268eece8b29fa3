//! Cases that are computed: who may do what, for many owners, modes and ACLs, as the model of the
//! kernel's rules has it.

mod access;
mod lists;
mod ownership;

use crate::case::Case;
use crate::credentials::Credentials;
use crate::model::{Acl, Object};
use crate::script;

/// All of them.
pub fn cases() -> anyhow::Result<Vec<Case>> {
    let mut cases = Vec::new();
    access::add(&mut cases)?;
    lists::add(&mut cases)?;
    ownership::add(&mut cases)?;
    Ok(cases)
}

/// Somebody as scripts say it and as the model takes it.
struct Caller {
    name: &'static str,
    credentials: Credentials,
}

fn callers(names: &[&'static str]) -> anyhow::Result<Vec<Caller>> {
    let caller = |name: &&'static str| Ok(Caller { name, credentials: Credentials::parse(name)? });
    names.iter().map(caller).collect()
}

/// Makes a case of lines.
fn case(name: String, needs: &[&str], lines: &str) -> anyhow::Result<Case> {
    let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty());
    Ok(Case {
        name,
        needs: needs.iter().map(|need| (*need).to_owned()).collect(),
        lacks: Vec::new(),
        steps: lines.map(script::step).collect::<Result<_, _>>()?,
    })
}

/// Returns the expected reply: `then` if the call is allowed, `refusal` if not.
fn unless(refusal: &'static str, allowed: bool, then: &'static str) -> &'static str {
    if allowed { then } else { refusal }
}

/// Permissions as ACLs have them.
fn letters(bits: u32) -> String {
    let letter = |bit, letter| if bits & bit == 0 { '-' } else { letter };
    String::from_iter([letter(4, 'r'), letter(2, 'w'), letter(1, 'x')])
}

/// The steps that give a path its owner, group, mode and ACL.
fn protect(object: &Object, path: &str) -> String {
    let owner = format!("chown {path} {} {}", object.uid, object.gid);
    match &object.acl {
        None => format!("{owner}\nchmod {path} 0{:o}", object.mode),
        Some(acl) => format!("{owner}\nsetacl {path} access {}", text(acl, object.mode)),
    }
}

/// Writes an ACL as `setacl` takes it, in the kernel's order: named entries by their numbers.
fn text(acl: &Acl, mode: u32) -> String {
    let named = |tag: &str, entries: &[(u32, u32)]| {
        let mut entries = entries.to_vec();
        entries.sort_unstable();
        let entries = entries.iter().map(|(id, bits)| format!("{tag}:{id}:{},", letters(*bits)));
        entries.collect::<String>()
    };
    format!(
        "u::{},{}g::{},{}m::{},o::{}",
        letters(mode >> 6),
        named("u", &acl.users),
        letters(acl.group),
        named("g", &acl.groups),
        letters(mode >> 3),
        letters(mode)
    )
}
