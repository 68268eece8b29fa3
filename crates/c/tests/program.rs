//! A program in C, built by the machine's compiler, on servers that listen at addresses. Needs root,
//! since it also runs as another user.

#[path = "../../cli/tests/common/requirements.rs"]
mod requirements;

use canopy_cluster::wire::{ClientSecurity, ServerSecurity};
use canopy_cluster::{Node, NodeSettings, create_cluster, name_of};
use canopy_namespace::{Ownership, Settings, system_clock};
use canopy_partition::SplitPolicy;
use canopy_store::Environment;
use canopy_store::storage::SharedDirectory;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

fn start(environment: &Environment, place: &Path) -> Node {
    let settings = NodeSettings {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        advertise: None,
        security: ServerSecurity::default(),
        to_others: ClientSecurity::default(),
        lease: Some(Duration::from_millis(300)),
        place: place.display().to_string(),
    };
    Node::start(environment, &system_clock(), &settings).unwrap()
}

#[test]
fn a_program_in_c_uses_a_cluster() {
    if !requirements::has("cc") {
        return;
    }
    assert!(nix::unistd::geteuid().is_root(), "this test needs root");
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    // The library lies beside this program.
    let program = std::env::current_exe().unwrap();
    let libraries = program.parent().unwrap();
    let library = directory.path().join("libcanopy_c.so.0");
    fs::copy(libraries.join("libcanopy_c.so"), &library).unwrap();
    symlink("libcanopy_c.so.0", library.with_extension("")).unwrap();
    let (here, built) = (Path::new(env!("CARGO_MANIFEST_DIR")), directory.path().join("program"));
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-I"]);
    compiler.arg(here.join("include")).arg(here.join("tests/program.c")).arg("-L");
    compiler.arg(directory.path()).args(["-lcanopy_c", "-o"]).arg(&built);
    compiler.arg(format!("-Wl,-rpath,{}", directory.path().display()));
    assert!(compiler.status().unwrap().success());

    let place = directory.path().join("namespace");
    fs::create_dir(&place).unwrap();
    fs::set_permissions(&place, Permissions::from_mode(0o700)).unwrap();
    let environment = Environment::system(Arc::new(SharedDirectory::make(&place).unwrap()));
    let policy = SplitPolicy { entries_max: 64, variation_percent: 25, partitions_per_server: 4 };
    let settings = Settings { chunk_bytes: 64 << 10, ..Settings::default() };
    create_cluster(&environment, &settings, Ownership::ROOT, 4, policy, &system_clock()).unwrap();
    let nodes = [start(&environment, &place), start(&environment, &place)];
    let addresses = Vec::from_iter(nodes.iter().flat_map(Node::addresses).cloned());
    let name = name_of(&addresses);
    let run = |command: &mut Command| {
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} {said}", output.status);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(run(Command::new(&built).arg(&name)), "all is well\n");
    // As nobody, whom the servers check. Its storage is closed to the user.
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&built);
    run(command.args([&name, "user"]));
}
