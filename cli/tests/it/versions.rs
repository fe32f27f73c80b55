//! Commands and roles that meet a master of another wire version: an error that says whom to upgrade, and an exit code.

use crate::roles::shoal;
use shoal_runtime::host::rpc::answering;
use shoal_runtime::wire::WireVersion;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tonic::service::Routes;
use tonic::transport::server::{Server, TcpIncoming};

/// A server that speaks this version, or one from before there was any; its address.
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

#[tokio::test(flavor = "multi_thread")]
async fn every_command_that_asks_a_master_of_another_version_fails_and_says_whom_to_upgrade() {
    let folder = tempfile::tempdir().unwrap();
    let present = WireVersion::PRESENT.0;
    let ours = format!("wire version {present}");
    for (version, told, way_out) in [
        (Some(present + 1), format!("wire version {}", present + 1), "upgrade the caller"),
        (Some(present - 1), format!("wire version {}", present - 1), "upgrade the called process"),
        (None, String::from("no wire version"), "upgrade the called process"),
    ] {
        let master = serve(version.map(WireVersion)).await;
        let commands: [&[&str]; 5] = [
            &["status"],
            &["scale", "--trainers", "2"],
            &["checkpoint", "now"],
            &["drain", "--pserver", "p"],
            &["pserver", "--listen", "127.0.0.1:0"],
        ];
        for arguments in commands {
            let began = Instant::now();
            let mut command = shoal(folder.path());
            command.args(arguments).args(["--master", &master]);
            let ended = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
            let said = String::from_utf8_lossy(&ended.stderr).into_owned();
            assert!(ended.status.code().is_some_and(|code| code != 0), "{arguments:?}: {said}");
            assert!(began.elapsed() < Duration::from_secs(20), "{arguments:?}");
            for word in [&told, way_out, "docs/versions.md", &ours] {
                assert!(said.contains(word), "{arguments:?} says {said:?}, not {word:?}");
            }
        }
    }
}
