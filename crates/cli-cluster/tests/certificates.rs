//! `canopy cluster certificate`. Needs root.

mod common;

use canopy_cluster::certificates::{Credentials, Identity, Trust};
use canopy_store::storage::SharedDirectory;
use common::{CANOPY, NOBODY, Place, Process, failure, success, wait_until};
use nix::sys::signal::Signal;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::Command;

fn serial_of(told: &str) -> String {
    told.trim_end().rsplit(' ').next().unwrap().to_owned()
}

#[test]
fn certificates_are_made_listed_and_revoked() {
    let place = Place::new(4);
    let told = success(&place.run(&["certificate", "--server", "@"]));
    let file = place.namespace.join("server.pem");
    let begin = format!("made {} for server, valid until 20", file.display());
    assert!(told.starts_with(&begin), "{told}");
    for file in [&file, &place.namespace.join("cluster.key")] {
        let about = fs::metadata(file).unwrap();
        assert_eq!((about.mode() & 0o7777, about.uid()), (0o600, 0));
    }
    let credentials = Credentials::open(&file).unwrap();
    let storage = SharedDirectory::open(&place.namespace).unwrap();
    let trust = Trust::of_server(&storage, &credentials).unwrap();

    let node = success(&place.run(&["certificate", "--node", "n17", "@"]));
    assert!(node.starts_with("made n17.pem for node n17, valid until "), "{node}");
    let words = ["certificate", "--node", "n18", "--root", "--days", "2", "--output", "x.pem", "@"];
    let root = success(&place.run(&words));
    assert!(root.starts_with("made x.pem for node n18 with root, valid until "), "{root}");
    let user = success(&place.run(&["certificate", "--user", "nobody", "--json", "@"]));
    let user: serde_json::Value = serde_json::from_str(&user).unwrap();
    assert_eq!((&user["holder"], &user["uid"]), (&"user".into(), &NOBODY.into()));
    let own = Credentials::open(&place.path("nobody.pem")).unwrap().certified();
    assert_eq!(
        (own.identity, own.serial.to_string().as_str()),
        (Identity::user(NOBODY).unwrap(), user["serial"].as_str().unwrap())
    );
    assert!(
        Credentials::open(&place.path("x.pem")).unwrap().certified().not_after_s
            < Credentials::open(&place.path("n17.pem")).unwrap().certified().not_after_s
    );

    let listed = success(&place.run(&["certificate", "--list", "@"]));
    assert_eq!(listed.lines().count(), 5, "{listed}");
    assert_eq!(listed.matches("  valid    ").count(), 4, "{listed}");
    let serial = serial_of(&node);
    let revoked = success(&place.run(&["certificate", "--revoke", &serial[..8], "@"]));
    assert_eq!(revoked, format!("revoked the certificate of node n17, serial number {serial}\n"));
    let again = success(&place.run(&["certificate", "--revoke", &serial, "@"]));
    assert!(again.ends_with("was revoked before\n"), "{again}");
    let listed = success(&place.run(&["certificate", "--list", "--json", "@"]));
    let lines = listed.lines().map(|line| serde_json::from_str(line).unwrap());
    let lines = Vec::<serde_json::Value>::from_iter(lines);
    let gone = Vec::from_iter(lines.iter().filter(|line| line["revoked"] == true));
    assert_eq!((lines.len(), gone.len(), &gone[0]["serial"]), (4, 1, &serial.clone().into()));
    let leaf = Credentials::open(&place.path("n17.pem")).unwrap().certified();
    trust.refresh(&storage).unwrap();
    trust.check(&leaf, rustls_now()).unwrap_err();
}

fn rustls_now() -> rustls::pki_types::UnixTime {
    rustls::pki_types::UnixTime::now()
}

#[test]
fn certificates_are_renewed() {
    let place = Place::new(1);
    let words = ["certificate", "--node", "n1", "@"];
    let first = serial_of(&success(&place.run(&words)));
    let refused = failure(&place.run(&words));
    assert!(refused.contains("n1.pem is there already: renew it with --replace"), "{refused}");
    let second = success(&place.run(&["certificate", "--node", "n1", "--replace", "@"]));
    assert_ne!(serial_of(&second), first);
    let own = Credentials::open(&place.path("n1.pem")).unwrap().certified();
    assert_eq!(own.serial.to_string(), serial_of(&second));
    // Nothing was noted that nobody got.
    assert_eq!(success(&place.run(&["certificate", "--list", "@"])).lines().count(), 3);
}

/// A slip of the hand once cost any file that was named.
#[test]
fn only_a_certificate_of_the_same_holder_is_replaced() {
    let place = Place::new(1);
    success(&place.run(&["certificate", "--server", "@"]));
    success(&place.run(&["certificate", "--node", "n1", "@"]));
    fs::write(place.path("text"), "text").unwrap();
    let server = place.namespace.join("server.pem");
    let before =
        Vec::from_iter([&server, &place.path("n1.pem")].map(|file| fs::read(file).unwrap()));
    for (output, expected) in [
        ("text", "text cannot be renewed: name another file"),
        ("n1.pem", "n1.pem has the certificate of node n1: name another file"),
        (server.to_str().unwrap(), "server.pem has the certificate of server: name another file"),
    ] {
        let words = ["certificate", "--user", "nobody", "--replace", "--output", output, "@"];
        let told = failure(&place.run(&words));
        assert!(told.contains(expected), "{told}");
    }
    assert_eq!(fs::read(place.path("text")).unwrap(), b"text");
    assert!(
        [&server, &place.path("n1.pem")]
            .iter()
            .zip(&before)
            .all(|(file, before)| fs::read(file).unwrap() == *before)
    );
    // Nobody is advised to take a file from others that has no key.
    fs::set_permissions(place.path("text"), Permissions::from_mode(0o644)).unwrap();
    let told = failure(&place.run(&["certificate", "--node", "n2", "--key", "text", "@"]));
    assert!(told.contains("text: it is not a file with a key"), "{told}");
}

/// The map was changed before the certificate was refused.
#[test]
fn commands_that_need_the_servers_certificate_change_nothing_without_it() {
    let place = Place::new(2);
    success(&place.run(&["certificate", "--server", "@"]));
    success(&place.run(&["certificate", "--user", "nobody", "@"]));
    let words = ["start", "@", "--listen", "127.0.0.1:0", "--lease", "0.5"];
    let [(_one, address, _), _other] = [(); 2].map(|()| Process::start(place.command(&words)));
    let status = || success(&place.run(&["status", "@"]));
    wait_until("both serve", || status().matches("  serving").count() == 2);
    for words in [&["drain", &address, "@"][..], &["add", "--servers", "1", "@"], &["status", "@"]]
    {
        let words = [words, &["--certificate", "nobody.pem"]].concat();
        let told = failure(&place.run(&words));
        assert!(told.contains("the certificate of user 65534 is not enough for this"), "{told}");
    }
    let shown = status();
    assert!(shown.matches("  serving").count() == 2 && !shown.contains("drain"), "{shown}");
    assert!(!place.namespace.join("table-2").exists());
}

#[test]
fn the_key_may_be_elsewhere() {
    let place = Place::new(1);
    let key = place.path("safe.key");
    let key = key.to_str().unwrap();
    success(&place.run(&["certificate", "--server", "--key", key, "@"]));
    assert!(!place.namespace.join("cluster.key").exists());
    let refused = failure(&place.run(&["certificate", "--node", "n1", "@"]));
    assert!(refused.contains("name its file with --key"), "{refused}");
    assert!(!place.namespace.join("cluster.key").exists());
    success(&place.run(&["certificate", "--node", "n1", "--key", key, "@"]));
    fs::set_permissions(key, Permissions::from_mode(0o640)).unwrap();
    let refused = failure(&place.run(&["certificate", "--node", "n2", "--key", key, "@"]));
    assert!(refused.contains("others may read its private key"), "{refused}");
    fs::set_permissions(key, Permissions::from_mode(0o600)).unwrap();
    chown(key, Some(NOBODY), None).unwrap();
    let refused = failure(&place.run(&["certificate", "--node", "n2", "--key", key, "@"]));
    assert!(refused.contains("belongs to uid 65534"), "{refused}");
}

#[test]
fn wrong_requests_are_explained() {
    let place = Place::new(1);
    for (words, expected) in [
        (&["certificate", "@"][..], "canopy: missing <--server|--node <NAME>|--user <NAME>|"),
        (&["certificate", "--server", "--node", "n1", "@"], "cannot be used with"),
        (&["certificate", "--server", "--root", "@"], "--root is for the certificates of machines"),
        (
            &["certificate", "--user", "nobody", "--root", "@"],
            "--root is for the certificates of machines",
        ),
        (&["certificate", "--list", "--days", "3", "@"], "cannot be used with"),
        (&["certificate", "--list", "--replace", "@"], "cannot be used with"),
        (&["certificate", "--node", "N17", "@"], "names have lower case letters"),
        (&["certificate", "--node", "../n", "@"], "names have lower case letters"),
        (
            &["certificate", "--user", "root", "@"],
            "make one for the machine, with --node NAME --root",
        ),
        (&["certificate", "--user", "0", "@"], "make one for the machine"),
        (&["certificate", "--user", "4294967295", "@"], "4294967295 is not a user"),
        (&["certificate", "--user", "no such", "@"], "there is no such user on this machine"),
        (&["certificate", "--server", "--days", "0", "@"], "valid for 1 to 3650 days"),
        (&["certificate", "--revoke", "41", "@"], "give 6 digits"),
        (&["certificate", "--revoke", "414141414141", "@"], "the cluster made no such certificate"),
        (&["certificate", "--server", "/nowhere/at/all"], "/nowhere/at/all: No such file"),
        (&["certificate", "--server", "/usr"], "is not a namespace on several servers"),
    ] {
        let told = failure(&place.run(words));
        assert!(told.contains(expected), "{words:?}: {told}");
    }
    assert!(!place.namespace.join("server.pem").exists());
    let none = place.run(&["certificate", "--list", "@"]);
    assert_eq!(success(&none), "");
    assert!(String::from_utf8_lossy(&none.stderr).contains("has made no certificates yet"));
    // A bucket has no place for a key that who reads the bucket may not read.
    let mut bucket = place.command(&["certificate", "--server", "s3://bucket/ns"]);
    bucket.env("AWS_ENDPOINT_URL", "http://127.0.0.1:1").env("AWS_ACCESS_KEY_ID", "a");
    bucket.env("AWS_SECRET_ACCESS_KEY", "b");
    let told = String::from_utf8_lossy(&bucket.output().unwrap().stderr).into_owned();
    assert!(told.starts_with("canopy: "), "{told}");
}

#[test]
fn users_make_certificates_of_their_own_clusters_alone() {
    let place = Place::new(1);
    success(&place.run(&["certificate", "--server", "@"]));
    let as_nobody = |words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", CANOPY, "cluster"]);
        command.args(words).arg(&place.namespace).current_dir("/tmp").output().unwrap()
    };
    for words in [&["certificate", "--list"][..], &["certificate", "--node", "n1", "--root"]] {
        let told = failure(&as_nobody(words));
        assert!(told.contains("belongs to uid 0, who alone can run this"), "{told}");
    }
    // Root does not follow a user, who could exchange the directory.
    chown(&place.namespace, Some(NOBODY), Some(NOBODY)).unwrap();
    let told = failure(&place.run(&["certificate", "--node", "n1", "@"]));
    assert!(told.contains("run this as that user, as with 'setpriv --reuid 65534"), "{told}");
}

#[test]
fn canopy_cluster_carries_out_nothing_else() {
    let place = Place::new(1);
    let other = Command::new(CANOPY).args(["ns", "info"]).arg(&place.namespace).output().unwrap();
    let told = failure(&other);
    assert!(told.contains("canopy-cluster carries out 'canopy cluster' alone"), "{told}");
    let mut versioned = place.command(&["certificate", "--list", "@"]);
    let told = failure(&versioned.env("CANOPY_COMPANION_OF", "0.0.1").output().unwrap());
    assert!(told.contains("install both from one package"), "{told}");
}

#[test]
fn the_key_is_replaced_without_a_stop() {
    let place = Place::new(2);
    let early = failure(&place.run(&["certificate", "--new-key", "@"]));
    assert!(early.contains("the current key is needed"), "{early}");
    success(&place.run(&["certificate", "--server", "@"]));
    let words = ["start", "@", "--listen", "127.0.0.1:0", "--lease", "0.5"];
    let started = [(); 2].map(|()| Process::start(place.command(&words)).0);
    let reaches = || place.run(&["partitions", "/", "@"]).status.success();
    wait_until("the servers are shared", reaches);
    let old = place.path("old.pem");
    fs::copy(place.namespace.join("server.pem"), &old).unwrap();
    let told = success(&place.run(&["certificate", "--new-key", "@"]));
    assert!(told.contains("first those of nodes and users"), "{told}");
    assert!(reaches());
    let early = failure(&place.run(&["certificate", "--retire-key", "@"]));
    assert!(early.contains("is of an older key"), "{early}");
    success(&place.run(&["certificate", "--server", "--replace", "@"]));
    wait_until("the processes use the new certificate", reaches);
    let retired = success(&place.run(&["certificate", "--retire-key", "@"]));
    assert!(retired.starts_with("the old key is retired"), "{retired}");
    let listed = success(&place.run(&["certificate", "--list", "@"]));
    assert!(listed.contains("  retired  ") && listed.contains("  valid    "), "{listed}");
    let with_old = || {
        let words = ["partitions", "/", "@", "--certificate", old.to_str().unwrap()];
        place.run(&words).status.success()
    };
    wait_until("the old certificate is refused", || !with_old());
    wait_until("the new one is not", reaches);
    for process in started {
        process.signal(Signal::SIGTERM);
        assert_eq!(process.end().0, Some(0));
    }
}

/// Processes with and without certificates cannot reach each other.
#[test]
fn all_processes_have_certificates_or_none() {
    let place = Place::new(2);
    let words = ["start", "@", "--listen", "127.0.0.1:0", "--lease", "0.5"];
    let (plain, address, _) = Process::start(place.command(&words));
    success(&place.run(&["certificate", "--server", "@"]));
    let told = failure(&place.run(&words));
    let expected =
        format!("{address}, which is running, has no certificate, and this process has one");
    assert!(told.contains(&expected) && told.contains("end all others first"), "{told}");
    plain.signal(Signal::SIGTERM);
    assert_eq!(plain.end().0, Some(0));
    let (_secured, address, _) = Process::start(place.command(&words));
    fs::remove_file(place.namespace.join("server.pem")).unwrap();
    let told = failure(&place.run(&words));
    let expected =
        format!("{address}, which is running, has a certificate, and this process has none");
    assert!(told.contains(&expected), "{told}");
}

#[test]
fn a_certificate_that_cannot_be_written_is_not_made() {
    let place = Place::new(1);
    for output in ["/nosuch/x", "."] {
        let words = ["certificate", "--node", "n1", "--output", output, "@"];
        let told = failure(&place.run(&words));
        assert!(told.contains(output), "{told}");
        assert_eq!(success(&place.run(&["certificate", "--list", "@"])), "");
        assert!(!place.namespace.join("cluster.key").exists());
    }
}
