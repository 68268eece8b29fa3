//! A Ceph cluster of one monitor, one storage daemon that keeps everything in memory, and a gateway
//! that speaks S3's language.

use super::server::{BUCKET, Process, Server, demand, free_ports, wait_for_port, wait_until};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path as ObjectPath;
use object_store::signer::Signer;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const FSID: &str = "4f2a1f0e-5a3c-4d0d-9c55-0d6a3a1b7c11";
const OSD: &str = "0d3b6d5e-8f2f-4a3e-a6a8-0c2b1f7d9e11";
const USER: &str = "canopy";

pub struct Ceph {
    port: u16,
    /// Ended in this order, then what they wrote is removed.
    _daemons: Vec<Process>,
    _directory: Logged,
}

/// A directory whose logs are shown if the test fails.
struct Logged(TempDir);

impl Drop for Logged {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for file in fs::read_dir(self.0.path()).unwrap().map(|file| file.unwrap().path()) {
            let lines = fs::read_to_string(&file).unwrap_or_default();
            let last = Vec::from_iter(lines.lines().rev().take(30));
            eprintln!("{}:", file.display());
            last.iter().rev().for_each(|line| eprintln!("  {line}"));
        }
    }
}

impl Ceph {
    pub fn start() -> Self {
        let directory = Logged(tempfile::tempdir().unwrap());
        let (at, [monitor, port]) = (directory.0.path(), free_ports());
        for part in ["mon", "osd"] {
            fs::create_dir(at.join(part)).unwrap();
        }
        fs::write(at.join("ceph.conf"), configuration(at, monitor, port)).unwrap();
        let configured = |command: &mut Command| {
            command.env("CEPH_CONF", at.join("ceph.conf"));
        };
        let attempt = |package: &str, line: &str| {
            let (program, arguments) = line.split_once(' ').unwrap();
            run(program, package, |command| {
                configured(command);
                command.args(arguments.split(' ')).current_dir(at);
            })
        };
        let once = |package: &str, line: &str| drop(attempt(package, line).unwrap());
        let ceph =
            |line: &str| attempt("ceph-common", &format!("ceph --connect-timeout 20 {line}"));
        let daemon = |program: &str, arguments: &[&str]| {
            let log = File::create(at.join(format!("{program}.out"))).unwrap();
            Process::start(program, program, |command| {
                configured(command);
                command.arg("-f").args(arguments).current_dir(at);
                command.stdout(log.try_clone().unwrap()).stderr(log);
            })
        };
        let address = format!("[v1:127.0.0.1:{monitor}]");
        once(
            "ceph-common",
            &format!("monmaptool --create --fsid {FSID} --addv a {address} monmap"),
        );
        once("ceph-mon", "ceph-mon --mkfs -i a --monmap monmap");
        let mut daemons = vec![daemon("ceph-mon", &["-i", "a"])];
        wait_for_port(monitor);
        // The monitor refuses commands at first.
        wait_until("ceph-mon", || ceph(&format!("osd new {OSD}")).is_ok());
        once("ceph-osd", &format!("ceph-osd --mkfs -i 0 --osd-uuid {OSD}"));
        let mut osd = daemon("ceph-osd", &["-i", "0"]);
        wait_until("ceph-osd", || {
            // The monitor may have refused its first command; then it has ended.
            if osd.0.try_wait().unwrap().is_some() {
                osd = daemon("ceph-osd", &["-i", "0"]);
            }
            ceph("osd stat").is_ok_and(|said| said.contains("1 up"))
        });
        daemons.push(osd);
        daemons.push(daemon("radosgw", &["-n", "client.rgw"]));
        wait_for_port(port);
        once(
            "radosgw",
            &format!(
                "radosgw-admin -n client.rgw user create --uid={USER} --display-name={USER} \
                 --access-key={USER} --secret-key={USER}"
            ),
        );
        daemons.reverse();
        let ceph = Ceph { port, _daemons: daemons, _directory: directory };
        ceph.make_bucket();
        ceph
    }

    /// Makes the bucket, which object_store has no call for.
    fn make_bucket(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client: AmazonS3 = self.builder().build().unwrap();
        let (method, bucket) = (http::Method::PUT, ObjectPath::default());
        let signed = client.signed_url(method, &bucket, Duration::from_secs(60));
        let signed = runtime.block_on(signed).unwrap();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let (path, query) = (signed.path(), signed.query().unwrap());
        let port = self.port;
        write!(
            stream,
            "PUT {path}?{query} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 0\r\n\
             Connection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

impl Server for Ceph {
    fn builder(&self) -> AmazonS3Builder {
        AmazonS3Builder::new()
            .with_endpoint(format!("http://127.0.0.1:{}", self.port))
            .with_allow_http(true)
            .with_region("default")
            .with_bucket_name(BUCKET)
            .with_access_key_id(USER)
            .with_secret_access_key(USER)
    }
}

/// Runs a program to its end and returns what it wrote, or what it complained of.
fn run(
    program: &str,
    package: &str,
    configure: impl FnOnce(&mut Command),
) -> Result<String, String> {
    demand(program, package);
    let mut command = Command::new(program);
    configure(&mut command);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let bytes = if output.status.success() { &output.stdout } else { &output.stderr };
    let said = String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(said) } else { Err(format!("{program}: {said}")) }
}

fn configuration(at: &Path, monitor: u16, port: u16) -> String {
    let at = at.display();
    format!(
        "[global]
fsid = {FSID}
mon host = v1:127.0.0.1:{monitor}
mon initial members = a
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
mon allow pool size one = true
mon max pg per osd = 1000
mon data avail crit = 0
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pgp num = 4
osd crush chooseleaf type = 0
osd objectstore = memstore
memstore device bytes = 2147483648
ms bind msgr2 = false
run dir = {at}
log file = {at}/$name.log
pid file = {at}/$name.pid
admin socket = {at}/$name.$pid.asok
[mon.a]
host = localhost
mon addr = 127.0.0.1:{monitor}
mon data = {at}/mon
[osd.0]
osd data = {at}/osd
[client.rgw]
rgw frontends = beast endpoint=127.0.0.1:{port}
"
    )
}
