//! `canopy store` on tables in buckets of a real server.

use crate::garage::Garage;
use crate::place::{command, layout, options, put};
use crate::server::{BUCKET, Server};
use canopy_store::storage::{LocalStorage, SplitStorage};
use canopy_store::{Environment, SstableCache, Table, create};
use std::process::Output;
use std::sync::Arc;

/// Runs the command with variables beside those that name the server.
fn run(garage: &Garage, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = command();
    garage.set_variables(&mut command);
    command.envs(variables.iter().copied()).args(arguments).output().unwrap()
}

#[test]
fn tables_in_a_bucket_are_looked_into() {
    let mut garage = Garage::start();
    let directory = tempfile::tempdir().unwrap();
    let rest = LocalStorage::new(directory.path()).unwrap();
    let storage = SplitStorage::new(Arc::new(rest), garage.storage("tables"));
    let environment = Environment::system(Arc::new(storage));
    let id = create(&environment, layout(), &options()).unwrap();
    let cache = SstableCache::new(&environment, 8 << 20);
    let table = Table::open(&environment, id, cache, options()).unwrap();
    put(&table, 0..3000);
    table.flush().unwrap();
    drop(table);

    let bucket = format!("s3://{BUCKET}/tables");
    let both = format!("{}+{bucket}", directory.path().display());
    let text = |arguments: &[&str]| {
        let output = run(&garage, &[], arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(text(&["list", &both]).contains(" 3000 "), "{}", text(&["list", &both]));
    assert!(text(&["verify", &both]).ends_with(": no faults\n"), "{}", text(&["verify", &both]));
    assert_eq!(text(&["dump", &both, &id.to_string()]).lines().count(), 3000);
    let sstable = garage.storage("tables").list("", "").unwrap().remove(0).name;
    let told = text(&["stat", &format!("{bucket}/{sstable}")]);
    assert!(told.contains("records"), "{told}");

    // The bucket alone has no manifest.
    let output = run(&garage, &[], &["verify", &bucket]);
    assert!(!output.status.success());
    let refused = |garage: &Garage, variables: &[(&str, &str)]| {
        let output = run(garage, variables, &["list", &bucket]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.lines().count() == 1, "{said}");
        said
    };
    let said = refused(&garage, &[("AWS_SECRET_ACCESS_KEY", "wrong")]);
    assert!(said.contains("403"), "{said}");
    garage.stop();
    let said = refused(&garage, &[]);
    assert!(said.contains("Connection refused"), "{said}");
}

#[test]
fn wrong_variables_are_told() {
    for (name, value, why) in [
        ("AWS_ENDPOINT_URL", "127.0.0.1:9000", "must be http://HOST:PORT"),
        ("AWS_ENDPOINT_URL", "", "must be http://HOST:PORT"),
        ("AWS_ENDPOINT_URL", "http://", "must be http://HOST:PORT"),
        ("AWS_ENDPOINT_URL", "http://host:99999", "must be http://HOST:PORT"),
        ("AWS_ENDPOINT_URL", " http://host", "must be http://HOST:PORT"),
        ("AWS_ENDPOINT_URL", "http://user:secret@host", "must be http://HOST:PORT"),
        ("AWS_REGION", "a\nb", "AWS_REGION has characters"),
        ("AWS_SESSION_TOKEN", "a b", "AWS_SESSION_TOKEN has characters"),
    ] {
        let mut command = command();
        command.args(["list", "s3://bucket"]).env("AWS_ENDPOINT_URL", "http://127.0.0.1:1");
        command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "secret");
        let output = command.env(name, value).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{name}={value:?}: {said}");
        assert!(said.contains(why) && said.lines().count() == 1, "{name}={value:?}: {said}");
        assert!(!said.contains("secret"), "{said}");
    }
}
