//! The credentials of a local run that speaks TLS: an authority of its own, and a certificate for each role.

use super::JobPlan;
use crate::exit::Exit;
use crate::validity::lasting;
use shoal_runtime::host::authority::Authority;
use shoal_runtime::host::rpc::Security;
use shoal_runtime::host::rpc::tls::{Identity, Role};
use std::time::Duration;

/// How long the certificates of a run are good for.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Issues what the run's processes need, and returns how this one speaks with them.
pub(super) fn prepare(plan: &JobPlan) -> anyhow::Result<Security> {
    if !plan.tls {
        return Ok(if plan.has_network { Security::Plaintext } else { Security::Loopback });
    }
    let folder = plan.folder.tls().join("authority");
    let authority =
        if folder.is_dir() { Authority::open(&folder) } else { Authority::create(&folder, lasting(YEAR)) };
    let authority = authority.map_err(anyhow::Error::msg)?;
    for role in Role::ALL {
        let identity = Identity { job: plan.name.clone(), role };
        let issued = authority.issue(&identity, lasting(YEAR)).map_err(anyhow::Error::msg)?;
        issued.write(&plan.folder.tls_of(role)).map_err(anyhow::Error::msg)?;
    }
    let own = plan.folder.tls_of(Role::Client);
    Ok(Security::open(Some(&own), false, Some(Role::Client)).map_err(Exit::Usage)?)
}
