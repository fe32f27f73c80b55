//! Commands and roles that meet a master of another wire version: an error that says whom to upgrade, and an exit code.

use crate::roles::shoal;
use shoal_runtime::host::rpc::answering;
use shoal_runtime::wire::WireVersion;
use std::path::Path;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tonic::service::Routes;
use tonic::transport::server::{Server, TcpIncoming};

/// A server that speaks this version, or one that is not Shoal's; its address.
async fn serve(version: Option<WireVersion>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, incoming) = (listener.local_addr().unwrap().to_string(), TcpIncoming::from(listener));
    match version {
        Some(version) => {
            let layer = tower::layer::layer_fn(move |service| answering(service, version));
            tokio::spawn(
                Server::builder().layer(layer).add_routes(Routes::default()).serve_with_incoming(incoming),
            );
        }
        None => {
            drop(tokio::spawn(Server::builder().add_routes(Routes::default()).serve_with_incoming(incoming)));
        }
    }
    address
}

/// Those that ask a master once.
const COMMANDS: [&[&str]; 4] =
    [&["status"], &["scale", "--trainers", "2"], &["checkpoint", "now"], &["drain", "--pserver", "p"]];

/// What a command says that fails, which it does soon.
async fn failed(folder: &Path, arguments: &[&str], master: &str) -> String {
    let began = Instant::now();
    let mut command = shoal(folder);
    command.args(arguments).args(["--master", master]);
    let ended = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.code().is_some_and(|code| code != 0), "{arguments:?}: {said}");
    assert!(began.elapsed() < Duration::from_secs(20), "{arguments:?}");
    said
}

/// It may be something in between, or another server at the address that was given.
#[tokio::test(flavor = "multi_thread")]
async fn every_command_says_so_where_no_process_of_shoal_answers() {
    let (folder, master) = (tempfile::tempdir().unwrap(), serve(None).await);
    for arguments in COMMANDS {
        let said = failed(folder.path(), arguments, &master).await;
        for word in [&master, "without a wire version", "no process of Shoal"] {
            assert!(said.contains(word), "{arguments:?} says {said:?}, not {word:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_that_asks_a_master_of_another_version_fails_and_says_whom_to_upgrade() {
    let folder = tempfile::tempdir().unwrap();
    let present = WireVersion::PRESENT.0;
    let ours = format!("wire version {present}");
    for (version, told, way_out) in [
        (Some(present + 1), format!("wire version {}", present + 1), "upgrade the caller"),
        (Some(present - 1), format!("wire version {}", present - 1), "upgrade the called process"),
    ] {
        let master = serve(version.map(WireVersion)).await;
        for arguments in COMMANDS.iter().chain(&[&["pserver", "--listen", "127.0.0.1:0"][..]]) {
            let said = failed(folder.path(), arguments, &master).await;
            for word in [&told, way_out, "docs/versions.md", &ours] {
                assert!(said.contains(word), "{arguments:?} says {said:?}, not {word:?}");
            }
        }
    }
}
