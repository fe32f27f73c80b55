//! The first CUDA device, and folders with certificates.

use crate::doctor::judge::trust::{Certificate, Device};
use shoal_pserver::device::{self, DeviceChoice, DeviceError};
use shoal_runtime::host::rpc::Security;
use shoal_runtime::host::rpc::tls::described;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Opened as a pserver opens it, which tries its arithmetic.
pub(crate) fn device() -> Device {
    match device::Device::open(DeviceChoice::Cuda(0)) {
        Ok(Some(device)) => Device::Usable(device.name().to_owned()),
        Ok(None) => Device::Absent { why: "no CUDA device was opened".to_owned(), is_there: false },
        Err(DeviceError::Absent { what, .. }) => {
            Device::Absent { why: what, is_there: Path::new("/proc/driver/nvidia/gpus").exists() }
        }
        Err(why) => Device::Unsuitable(why.to_string()),
    }
}

/// What the certificate in a folder says, and whether it can be used.
pub(crate) fn certificate(folder: &Path) -> Result<Certificate, String> {
    let (identity, validity) = described(folder)?;
    let key = std::fs::metadata(folder.join("key.pem"));
    Ok(Certificate {
        folder: folder.display().to_string(),
        identity: identity.to_string(),
        from: validity.from,
        until: validity.until,
        fault: Security::open(Some(folder), false, None).err(),
        is_key_open: key.is_ok_and(|key| key.permissions().mode() & 0o007 != 0),
    })
}
