//! Users at the other end, as the kernel reports them. This needs root, and a process of its own: it
//! becomes other users for a while.

use canopy_cluster::wire::{
    Address, Batch, ClientSecurity, Connections, Limits, Listener, Refusal, ServerSecurity,
    Service, Terms, WireError,
};
use nix::unistd::{Uid, geteuid, seteuid};
use std::sync::Arc;
use std::time::Duration;

/// Answers with the peer.
struct NamePeer;

impl Service for NamePeer {
    fn take(&self, batch: Batch) {
        for call in batch {
            let peer = call.peer().to_string();
            call.answer(peer.as_bytes());
        }
    }
}

fn ask(address: &Address, trusted_uids: Option<Vec<u32>>) -> Result<String, WireError> {
    let connections = Connections::new(ClientSecurity { tls: None, trusted_uids }).unwrap();
    let answer = connections.call(address, b"", Terms::within(Duration::from_secs(60)))?;
    Ok(String::from_utf8(answer.to_vec()).unwrap())
}

#[test]
fn a_peer_is_the_user_whom_the_kernel_reports() {
    assert!(geteuid().is_root(), "becoming other users needs root");
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let addresses = [
        "127.0.0.1:0".parse().unwrap(),
        "[::1]:0".parse().unwrap(),
        "[::ffff:127.0.0.1]:0".parse().unwrap(),
        Address::Unix(directory.path().join("socket")),
    ];
    let security = ServerSecurity::default();
    let service = Arc::new(NamePeer);
    let listener = Listener::start(&addresses, security, Limits::default(), service).unwrap();
    for address in listener.addresses() {
        for uid in [0, 1234, 65_534, 1] {
            seteuid(Uid::from_raw(uid)).unwrap();
            let answer = ask(address, None);
            seteuid(Uid::from_raw(0)).unwrap();
            assert_eq!(answer.unwrap(), format!("local user {uid}"), "{address}");
        }
    }
    // Sockets made by another user, and those of a user who is trusted.
    seteuid(Uid::from_raw(1234)).unwrap();
    let rogue = ["127.0.0.1:0".parse().unwrap()];
    let security = ServerSecurity::default();
    let rogue = Listener::start(&rogue, security, Limits::default(), Arc::new(NamePeer)).unwrap();
    let rogue_address = &rogue.addresses()[0];
    assert_eq!(ask(rogue_address, Some(vec![1234])).unwrap(), "local user 1234");
    seteuid(Uid::from_raw(0)).unwrap();
    for address in listener.addresses() {
        assert_eq!(ask(address, Some(vec![0])).unwrap(), "local user 0", "{address}");
        let error = ask(address, Some(vec![1234])).unwrap_err();
        let WireError::Refused { refusal: Refusal::Denied(text), .. } = error else {
            panic!("{error}")
        };
        assert!(text.contains("user 0"), "{text}");
    }
}
