//! A pserver's settings: flag, then `SHOAL_*`, then default.

use crate::device::DeviceChoice;
use anyhow::ensure;
use shoal_runtime::host::rpc::Security;
use shoal_runtime::host::rpc::tls::Role;
use shoal_runtime::host::telemetry::LogFormat;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Settings of one pserver.
#[derive(clap::Args, Clone, Debug)]
pub struct PserverSettings {
    /// Address of the master, or of all masters of the job with commas: the leader and standbys
    #[arg(long, env = "SHOAL_MASTER", default_value = "127.0.0.1:7400", value_name = "HOST:PORT")]
    pub master: String,
    /// Name of the job; by default whichever job the master runs
    #[arg(long, env = "SHOAL_JOB")]
    pub job: Option<String>,
    /// Address to listen on; port 0 lets the system choose
    #[arg(long, env = "SHOAL_PSERVER_LISTEN", default_value = "127.0.0.1:0", value_name = "HOST:PORT")]
    pub listen: SocketAddr,
    /// Folder with ca.pem, cert.pem and key.pem (or a Kubernetes secret's ca.crt, tls.crt, tls.key), made by `shoal certs
    /// issue`: connections are over TLS, with roles of the same job alone. Looked at again when the files change
    #[arg(long, env = "SHOAL_TLS", value_name = "DIR", conflicts_with = "plaintext")]
    pub tls: Option<PathBuf>,
    /// Speak plaintext with other machines too: whoever reaches the network may read, command and spoil the job. Without
    /// it, and without --tls, only loopback addresses are listened on and called
    #[arg(long, env = "SHOAL_PLAINTEXT")]
    pub plaintext: bool,
    /// How logs are written, on standard error: text or json, one object a line. SHOAL_LOG or else RUST_LOG filters them
    #[arg(long, env = "SHOAL_LOG_FORMAT", default_value = "text", value_name = "FORMAT")]
    pub log_format: LogFormat,
    /// Address of the pages /metrics, /healthz and /readyz; none by default
    #[arg(long, env = "SHOAL_HTTP", value_name = "HOST:PORT")]
    pub http: Option<SocketAddr>,
    /// Address at which trainers reach this pserver; by default the one it listens on
    #[arg(long, env = "SHOAL_PSERVER_ADVERTISE", value_name = "HOST:PORT")]
    pub advertise: Option<String>,
    /// Where checkpoints lie, if this pserver reaches them under another name than the master: a folder or a URL
    #[arg(long, env = "SHOAL_CHECKPOINTS", value_name = "PLACE")]
    pub checkpoints: Option<String>,
    /// What pieces of checkpoints may hold beyond what training needs while they wait to be written, in MiB: updates
    /// copy what a piece still holds until so much is held, then they wait. With as much as the model and its rules'
    /// state here they never wait; some 32 MiB for the file being written come on top
    #[arg(long, env = "SHOAL_CHECKPOINT_MEMORY", default_value_t = 1024, value_name = "MIB",
          value_parser = clap::value_parser!(u64).range(0..=1 << 30))]
    pub checkpoint_memory: u64,
    /// Where dense blocks are updated, to the same bits: cpu; cuda:N, an NVIDIA device from compute capability 8.0 on, or an
    /// error; auto, the first device if it can be used. Blocks that its memory has no room for are updated by the processor,
    /// as are tables
    #[arg(long, env = "SHOAL_DEVICE", default_value = "cpu", value_name = "DEVICE")]
    pub device: DeviceChoice,
    /// Name of this pserver, unique in the job; by default made from the process id and a random number
    #[arg(long, env = "SHOAL_PSERVER_NAME")]
    pub name: Option<String>,
    /// How long to stay after SIGTERM, until all blocks are elsewhere; a second SIGTERM ends it at once, as does the first where
    /// the job is over
    #[arg(long, env = "SHOAL_PSERVER_GRACE_SECONDS", default_value_t = 20, value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub grace_seconds: u64,
}

impl PserverSettings {
    /// How connections are secured.
    ///
    /// # Errors
    /// Files that cannot be used, a certificate for another role or another job.
    pub fn security(&self) -> anyhow::Result<Security> {
        let security = Security::open(self.tls.as_deref(), self.plaintext, Some(Role::Pserver));
        let security = security.map_err(anyhow::Error::msg)?;
        if let Some(job) = &self.job {
            security.check_job(job).map_err(anyhow::Error::msg)?;
        }
        Ok(security)
    }

    /// The address that trainers are told, given the one that is listened on.
    pub(crate) fn advertised(&self, listening: SocketAddr) -> anyhow::Result<String> {
        if let Some(address) = &self.advertise {
            return Ok(address.clone());
        }
        ensure!(
            !listening.ip().is_unspecified(),
            "--listen {listening}: trainers cannot call this address; say with --advertise where they reach the pserver"
        );
        Ok(listening.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        settings: PserverSettings,
    }

    #[test]
    fn an_unspecified_address_must_be_advertised_under_another() {
        let parse = |arguments: &[&str]| {
            let all = std::iter::once("shoal-pserver").chain(arguments.iter().copied());
            Arguments::try_parse_from(all).unwrap().settings
        };
        let any: SocketAddr = "0.0.0.0:7500".parse().unwrap();
        let fault = parse(&["--listen", "0.0.0.0:7500"]).advertised(any).unwrap_err();
        assert!(fault.to_string().contains("--advertise"));
        assert_eq!(parse(&["--advertise", "ps-0:7500"]).advertised(any).unwrap(), "ps-0:7500");
        assert_eq!(parse(&[]).advertised("127.0.0.1:9".parse().unwrap()).unwrap(), "127.0.0.1:9");
    }
}
