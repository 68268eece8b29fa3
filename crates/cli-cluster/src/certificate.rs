//! `canopy cluster certificate`.

use crate::place::{CERTIFICATE, Place};
use anyhow::{Context, bail, ensure};
use canopy::Outcome;
use canopy::commands::cluster::Certificate as Arguments;
use canopy_cluster::certificates::{
    Authority, Certified, Credentials, Identity, Issued, NodeName, check_output, is_of_newest_key,
    issued, retire_keys, revoke,
};
use canopy_store::storage::Storage;
use chrono::DateTime;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Digits of a serial number that are enough to revoke it, if no other begins with them.
const DIGITS_MIN: usize = 6;

pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let identity = identity(arguments)?;
    let place = Place::open(&arguments.namespace)?;
    if arguments.task.new_key {
        return replace_key(arguments, &place);
    }
    if arguments.task.retire_key {
        return retire_old_keys(arguments, &place);
    }
    match (identity, &arguments.task.revoke) {
        (Some(identity), _) => make(arguments, &place, &identity),
        (None, Some(serial)) => revoke_one(&*place.storage, serial, arguments.json),
        (None, None) => list(&*place.storage, arguments.json),
    }
}

/// Returns the holder of the certificate to be made; none if it is not about making one.
fn identity(arguments: &Arguments) -> anyhow::Result<Option<Identity>> {
    let task = &arguments.task;
    ensure!(
        task.node.is_some() || !arguments.root,
        "--root is for the certificates of machines: --node NAME --root"
    );
    if task.server {
        return Ok(Some(Identity::Server));
    }
    if let Some(name) = &task.node {
        let node = NodeName::parse(name).with_context(|| {
            format!("--node {name}: names have lower case letters, digits, '.', '-' and '_'")
        })?;
        return Ok(Some(Identity::Node { name: node, is_root: arguments.root }));
    }
    let Some(user) = &task.user else { return Ok(None) };
    let uid = match user.parse() {
        Ok(uid) => uid,
        Err(_) => match nix::unistd::User::from_name(user)? {
            Some(user) => user.uid.as_raw(),
            None => bail!("--user {user}: there is no such user on this machine"),
        },
    };
    Ok(Some(Identity::user(uid)?))
}

/// Returns the file of the cluster's own key.
fn key_file(arguments: &Arguments, place: &Place) -> anyhow::Result<PathBuf> {
    match (&arguments.key, &place.directory) {
        (Some(key), _) => Ok(key.clone()),
        (None, Some(directory)) => Ok(directory.join("cluster.key")),
        (None, None) => bail!(
            "name a file for the cluster's own key with --key FILE: whoever can read the bucket must \
             not read the key"
        ),
    }
}

/// Makes a new key in place of the cluster's.
fn replace_key(arguments: &Arguments, place: &Place) -> anyhow::Result<Outcome> {
    let key = key_file(arguments, place)?;
    // The first certificate makes the first key.
    ensure!(
        key.symlink_metadata().is_ok(),
        "{} is missing: the current key is needed to replace it (--key FILE)",
        key.display()
    );
    Authority::replace(&*place.storage, &key, now_s()?)?;
    if arguments.json {
        canopy::say_json(&json!({ "key": key.to_string_lossy() }))?;
        return Ok(Outcome::Complete);
    }
    let shown = arguments.namespace.display();
    canopy::say(format!(
        "made a new key in {}. Servers trust the old one, too. Renew certificates with --replace: first \
         those of nodes and users, once these are in use those of the servers. Then: canopy cluster \
         certificate --retire-key {shown}",
        key.display()
    ))?;
    Ok(Outcome::Complete)
}

/// Has only the newest key trusted.
fn retire_old_keys(arguments: &Arguments, place: &Place) -> anyhow::Result<Outcome> {
    if let Some(file) = place.certificate() {
        let is_new = is_of_newest_key(&*place.storage, &file)?;
        ensure!(
            is_new,
            "{} is of an older key, so no server could be reached any more: renew it first, with canopy \
             cluster certificate --server --replace {}",
            file.display(),
            arguments.namespace.display()
        );
    }
    let retired = retire_keys(&*place.storage, now_s()?)?;
    if arguments.json {
        canopy::say_json(&json!({ "retired": retired }))?;
        return Ok(Outcome::Complete);
    }
    canopy::say(match retired {
        0 => "only one key is trusted already",
        _ => "the old key is retired: servers refuse its certificates within seconds",
    })?;
    Ok(Outcome::Complete)
}

fn make(arguments: &Arguments, place: &Place, identity: &Identity) -> anyhow::Result<Outcome> {
    let key = key_file(arguments, place)?;
    let file = output(arguments, place, identity);
    // Before a certificate is noted that nobody gets.
    ensure!(
        arguments.replace || file.symlink_metadata().is_err(),
        "{} is there already: renew it with --replace, or name another file with --output",
        file.display()
    );
    if file.symlink_metadata().is_ok() {
        check_replaced(&file, identity)?;
    }
    check_output(&file)?;
    let now_s = now_s()?;
    let authority = Authority::open(&*place.storage, &key, now_s)?;
    let made = authority.issue(&*place.storage, identity, arguments.days, now_s)?;
    let certified = &made.certified;
    if let Err(error) = made.write(&file, arguments.replace) {
        // Nobody has its key.
        revoke(&*place.storage, certified.serial, now_s)?;
        return Err(error.into());
    }
    if arguments.json {
        let mut shown = as_json(certified);
        shown["file"] = json!(file.to_string_lossy());
        shown["key"] = json!(key.to_string_lossy());
        canopy::say_json(&shown)?;
        return Ok(Outcome::Complete);
    }
    canopy::say(format!(
        "made {} for {identity}, valid until {}, serial number {}",
        file.display(),
        day(certified.not_after_s),
        certified.serial
    ))?;
    Ok(Outcome::Complete)
}

/// Fails unless a file that is to be replaced has a certificate of the same holder.
fn check_replaced(file: &Path, identity: &Identity) -> anyhow::Result<()> {
    let shown = file.display();
    let before = Credentials::open(file).with_context(|| {
        format!("{shown} cannot be renewed: name another file with --output, or remove it first")
    })?;
    let holder = before.certified().identity;
    ensure!(
        holder == *identity,
        "{shown} has the certificate of {holder}: name another file with --output"
    );
    Ok(())
}

fn output(arguments: &Arguments, place: &Place, identity: &Identity) -> PathBuf {
    if let Some(output) = &arguments.output {
        return output.clone();
    }
    match identity {
        Identity::Server => place.directory.as_deref().unwrap_or(Path::new("")).join(CERTIFICATE),
        Identity::Node { name, .. } => format!("{name}.pem").into(),
        Identity::User { uid } => {
            let user = arguments.task.user.clone().filter(|name| !name.contains('/'));
            format!("{}.pem", user.unwrap_or_else(|| uid.to_string())).into()
        }
    }
}

fn revoke_one(storage: &dyn Storage, digits: &str, is_json: bool) -> anyhow::Result<Outcome> {
    ensure!(
        digits.len() >= DIGITS_MIN,
        "--revoke {digits}: give {DIGITS_MIN} digits of the serial number at least"
    );
    let all = issued(storage)?;
    let begins = |one: &&Issued| one.certified.serial.to_string().starts_with(digits);
    let mut found = all.iter().filter(begins);
    let certified = match (found.next(), found.next()) {
        (Some(one), None) => &one.certified,
        (Some(_), Some(_)) => {
            bail!("--revoke {digits}: several serial numbers begin so: give more")
        }
        (None, _) => bail!(
            "--revoke {digits}: the cluster made no such certificate; 'canopy cluster certificate \
             --list' has them all"
        ),
    };
    let is_new = revoke(storage, certified.serial, now_s()?)?;
    if is_json {
        let mut shown = as_json(certified);
        shown["revoked"] = json!(true);
        canopy::say_json(&shown)?;
        return Ok(Outcome::Complete);
    }
    let (identity, serial) = (&certified.identity, certified.serial);
    canopy::say(match is_new {
        true => format!("revoked the certificate of {identity}, serial number {serial}"),
        false => {
            format!("the certificate of {identity}, serial number {serial}, was revoked before")
        }
    })?;
    Ok(Outcome::Complete)
}

fn list(storage: &dyn Storage, is_json: bool) -> anyhow::Result<Outcome> {
    let now_s = now_s()?;
    let mut all = issued(storage)?;
    all.sort_by_key(|one| (one.certified.identity.to_string(), one.certified.not_after_s));
    if all.is_empty() {
        canopy::message("the cluster has made no certificates yet");
    } else if !is_json {
        canopy::say(format_args!("{:32}  {:10}  STATE    HOLDER", "SERIAL", "UNTIL"))?;
    }
    for one in &all {
        if is_json {
            let mut shown = as_json(&one.certified);
            shown["revoked"] = json!(one.is_revoked);
            shown["retired"] = json!(one.is_retired);
            canopy::say_json(&shown)?;
            continue;
        }
        let state = match one.is_revoked {
            true => "revoked",
            false if one.certified.not_after_s < now_s => "expired",
            false if one.is_retired => "retired",
            false => "valid",
        };
        let Certified { identity, serial, not_after_s, .. } = &one.certified;
        canopy::say(format_args!("{serial}  {}  {state:7}  {identity}", day(*not_after_s)))?;
    }
    Ok(Outcome::Complete)
}

fn as_json(certified: &Certified) -> Value {
    let Certified { cluster, identity, serial, not_after_s } = certified;
    let mut shown = json!({
        "cluster": cluster.to_string(), "serial": serial.to_string(),
        "until": DateTime::from_timestamp(*not_after_s, 0).map(|at| at.to_rfc3339()),
    });
    match identity {
        Identity::Server => shown["holder"] = json!("server"),
        Identity::Node { name, is_root } => {
            shown["holder"] = json!("node");
            shown["node"] = json!(name.to_string());
            shown["root"] = json!(is_root);
        }
        Identity::User { uid } => {
            shown["holder"] = json!("user");
            shown["uid"] = json!(uid);
        }
    }
    shown
}

fn day(seconds: i64) -> String {
    let at = DateTime::from_timestamp(seconds, 0);
    at.map_or_else(|| seconds.to_string(), |at| at.format("%Y-%m-%d").to_string())
}

fn now_s() -> anyhow::Result<i64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is wrong")?;
    Ok(i64::try_from(since.as_secs())?)
}
