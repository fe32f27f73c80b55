//! The operator's settings: flag, then `SHOAL_*`, then default.

use crate::manifest::Issuer;
use shoal_runtime::host::authority::lifetime;
use shoal_runtime::host::telemetry::LogFormat;
use std::net::SocketAddr;
use std::time::Duration;

/// A number from 0 to 1.
fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("{text:?} is no share: give a number from 0 to 1, such as 0.03"))
}

/// How jobs speak that say nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TlsDefault {
    /// Over TLS, by certificates that the operator issues.
    On,
    /// In plaintext.
    Off,
}

/// Settings of one operator.
#[derive(clap::Args, Clone, Debug)]
pub struct OperatorSettings {
    /// Look after the jobs of this namespace only; by default of the whole cluster. For one namespace nothing is planned, for
    /// that takes a view of all nodes: jobs have the replicas of their spec, or their least
    #[arg(long, env = "SHOAL_NAMESPACE", value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Image of masters; by default the one beside this operator's own (--pod), of the same registry and tag, or else
    /// shoal-master of this version
    #[arg(long, env = "SHOAL_MASTER_IMAGE", value_name = "IMAGE")]
    pub master_image: Option<String>,
    /// Image of pservers; by default likewise
    #[arg(long, env = "SHOAL_PSERVER_IMAGE", value_name = "IMAGE")]
    pub pserver_image: Option<String>,
    /// Name of the pod that this operator runs in, in the namespace of its Lease: the image of its container `operator` says
    /// where the other images are
    #[arg(long, env = "SHOAL_POD", value_name = "NAME")]
    pub pod: Option<String>,
    /// Priority class of trainers beyond the least of their job, which anything may preempt; empty for none
    #[arg(long, env = "SHOAL_ELASTIC_PRIORITY_CLASS", default_value = "shoal-elastic", value_name = "CLASS")]
    pub elastic_priority_class: String,
    /// Share of the cluster's cpu and memory, from 0 to 1, that trainers beyond their job's least leave free
    #[arg(long, env = "SHOAL_HEADROOM", default_value = "0.03", value_name = "SHARE", value_parser = share)]
    pub headroom: f64,
    /// A job that gave trainers up to other pods grows again after so many seconds
    #[arg(long, env = "SHOAL_REGROW_SECONDS", default_value = "60", value_name = "SECONDS")]
    pub regrow_seconds: u64,
    /// Where the states of jobs are kept that name no place of their own: etcd://HOST:PORT/PREFIX, or etcds:// over TLS. Without it,
    /// in the folder of their checkpoints
    #[arg(long, env = "SHOAL_JOB_STORE", value_name = "PLACE")]
    pub store: Option<String>,
    /// The secret, in each namespace with jobs, with what an etcd over TLS is shown: ca.crt, and a client's tls.crt and tls.key
    #[arg(long, env = "SHOAL_JOB_STORE_SECRET", value_name = "SECRET")]
    pub store_secret: Option<String>,
    /// Namespace in which the operators run, and have the Lease by which one of several is elected; by default the one that they look
    /// after, and no other for an operator of one namespace: by its lease there the cluster's operator leaves that to it. Without either,
    /// shoal-system
    #[arg(long, env = "SHOAL_LEASE_NAMESPACE", value_name = "NAMESPACE")]
    pub lease_namespace: Option<String>,
    /// Name of that Lease
    #[arg(long, env = "SHOAL_LEASE_NAME", default_value = "shoal-operator", value_name = "NAME")]
    pub lease_name: String,
    /// Name of this operator among those that may lead; by default the host's name and a random number
    #[arg(long, env = "SHOAL_OPERATOR_IDENTITY", value_name = "NAME")]
    pub identity: Option<String>,
    /// How jobs speak that say nothing of it in spec.tls: on, over TLS by certificates that this operator issues, or off, in plaintext.
    /// Jobs that have begun stay as they began
    #[arg(long, env = "SHOAL_TLS_DEFAULT", default_value = "on", value_name = "on|off")]
    pub tls_default: TlsDefault,
    /// How long the certificates of jobs are good for, as 24h: they are changed after two thirds of it
    #[arg(long, env = "SHOAL_CERTIFICATE_LIFE", default_value = "24h", value_name = "TIME", value_parser = lifetime)]
    pub certificate_life: Duration,
    /// The secret of type kubernetes.io/tls with the authority that signs them, in the namespace of the Lease; it is made where there is
    /// none
    #[arg(long, env = "SHOAL_AUTHORITY", default_value = "shoal-authority", value_name = "SECRET")]
    pub authority: String,
    /// Have cert-manager make the certificates of jobs instead, by ClusterIssuer/NAME or Issuer/NAME
    #[arg(long, env = "SHOAL_ISSUER", value_name = "ISSUER")]
    pub issuer: Option<Issuer>,
    /// How logs are written, on standard error: text or json, one object a line. SHOAL_LOG or else RUST_LOG filters them
    #[arg(long, env = "SHOAL_LOG_FORMAT", default_value = "text", value_name = "FORMAT")]
    pub log_format: LogFormat,
    /// Address of the pages /metrics, /healthz and /readyz; none by default
    #[arg(long, env = "SHOAL_HTTP", value_name = "HOST:PORT")]
    pub http: Option<SocketAddr>,
}

impl OperatorSettings {
    /// The namespace of the Lease.
    ///
    /// # Errors
    /// It is another than the one namespace that is looked after.
    pub fn lease_namespace(&self) -> anyhow::Result<&str> {
        match (&self.namespace, &self.lease_namespace) {
            (Some(namespace), Some(lease)) if namespace != lease => anyhow::bail!(
                "--namespace {namespace} with --lease-namespace {lease}: an operator of one namespace runs and has its lease there, by which \
                 others leave that namespace to it: leave --lease-namespace out, or install it into {namespace}"
            ),
            (namespace, lease) => Ok(lease.as_deref().or(namespace.as_deref()).unwrap_or("shoal-system")),
        }
    }
}

/// The settings of a command line.
#[cfg(test)]
pub(crate) fn parsed(arguments: &[&str]) -> OperatorSettings {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        settings: OperatorSettings,
    }
    <Line as clap::Parser>::parse_from(["operator"].iter().chain(arguments)).settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_of_one_namespace_has_its_lease_there() {
        let lease = |words: &[&str]| {
            parsed(words).lease_namespace().map(str::to_owned).map_err(|error| error.to_string())
        };
        assert_eq!(lease(&[]).unwrap(), "shoal-system");
        assert_eq!(lease(&["--lease-namespace", "ops"]).unwrap(), "ops");
        assert_eq!(lease(&["--namespace", "team"]).unwrap(), "team");
        assert_eq!(lease(&["--namespace", "team", "--lease-namespace", "team"]).unwrap(), "team");
        let refused = lease(&["--namespace", "team", "--lease-namespace", "ops"]).unwrap_err();
        assert!(refused.contains("install it into team"), "{refused}");
    }
}
