//! Job settings on the wire.

use super::{malformed, proto};
use crate::cluster::{Evaluated, JobId, JobSettings, Mode, Period, Precision, Refusal, WarmStart};

impl From<&JobSettings> for proto::JobSettings {
    fn from(settings: &JobSettings) -> Self {
        let (mode, staleness_window, scale_by_staleness) = match settings.mode {
            Mode::Sync { .. } => (proto::Mode::Sync, 0, false),
            Mode::Async { staleness_window, scale_by_staleness } => {
                (proto::Mode::Async, staleness_window, scale_by_staleness)
            }
        };
        proto::JobSettings {
            job: settings.job.0.clone(),
            seed: settings.seed,
            epochs: settings.epochs,
            microbatch_records: settings.microbatch_records,
            microbatches_per_step: settings.microbatches_per_step,
            shuffle_run: settings.shuffle_run,
            records: settings.records,
            manifest_fingerprint: settings.manifest_fingerprint.to_vec().into(),
            lease_ttl_millis: settings.lease_ttl_millis,
            mode: mode.into(),
            staleness_window,
            scale_by_staleness,
            delay: settings.mode.delay() as u32,
            gradients: proto::Precision::from(settings.gradients).into(),
            warm_start: settings.warm_start.as_ref().map(Into::into),
            evaluated: settings.evaluated.as_ref().map(Into::into),
        }
    }
}

impl From<Precision> for proto::Precision {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::F32 => proto::Precision::F32,
            Precision::Bf16 => proto::Precision::Bf16,
        }
    }
}

impl From<proto::Precision> for Precision {
    fn from(wire: proto::Precision) -> Self {
        match wire {
            proto::Precision::F32 => Precision::F32,
            proto::Precision::Bf16 => Precision::Bf16,
        }
    }
}

impl From<&Evaluated> for proto::Evaluated {
    fn from(evaluated: &Evaluated) -> Self {
        let (every_epochs, every_steps) = match evaluated.every {
            Period::Epochs(epochs) => (epochs, 0),
            Period::Steps(steps) => (0, steps),
        };
        let outputs = evaluated.outputs.clone().unwrap_or_default();
        proto::Evaluated { records: evaluated.records, every_epochs, every_steps, outputs }
    }
}

impl TryFrom<proto::Evaluated> for Evaluated {
    type Error = Refusal;

    fn try_from(wire: proto::Evaluated) -> Result<Self, Refusal> {
        let every = match (wire.every_epochs, wire.every_steps) {
            (1.., 0) => Period::Epochs(wire.every_epochs),
            (0, 1..) => Period::Steps(wire.every_steps),
            _ => return Err(malformed("evaluated.every", "must be a number of epochs or of steps")),
        };
        let outputs = Some(wire.outputs).filter(|place| !place.is_empty());
        Ok(Evaluated { records: wire.records, every, outputs })
    }
}

impl From<&WarmStart> for proto::WarmStart {
    fn from(pinned: &WarmStart) -> Self {
        proto::WarmStart {
            place: pinned.place.clone(),
            file: pinned.file.clone(),
            bytes: pinned.bytes,
            header_sha256: pinned.header_sha256.to_vec().into(),
        }
    }
}

impl TryFrom<proto::WarmStart> for WarmStart {
    type Error = Refusal;

    fn try_from(wire: proto::WarmStart) -> Result<Self, Refusal> {
        let header_sha256 = wire.header_sha256.as_ref().try_into();
        let header_sha256 =
            header_sha256.map_err(|_| malformed("warm_start.header_sha256", "must have 32 bytes"))?;
        Ok(WarmStart { place: wire.place, file: wire.file, bytes: wire.bytes, header_sha256 })
    }
}

impl TryFrom<proto::JobSettings> for JobSettings {
    type Error = Refusal;

    /// The settings, checked ([`JobSettings::check`]).
    fn try_from(wire: proto::JobSettings) -> Result<Self, Refusal> {
        let mode = match wire.mode() {
            proto::Mode::Sync => Mode::Sync { delay: wire.delay },
            proto::Mode::Async => Mode::Async {
                staleness_window: wire.staleness_window,
                scale_by_staleness: wire.scale_by_staleness,
            },
            proto::Mode::Unspecified => {
                return Err(malformed("mode", "neither synchronous nor asynchronous"));
            }
        };
        let gradients = proto::Precision::try_from(wire.gradients);
        let gradients = gradients.map_err(|_| malformed("gradients", "neither f32 nor bf16"))?.into();
        let settings = JobSettings {
            job: JobId(wire.job),
            seed: wire.seed,
            epochs: wire.epochs,
            microbatch_records: wire.microbatch_records,
            microbatches_per_step: wire.microbatches_per_step,
            shuffle_run: wire.shuffle_run,
            records: wire.records,
            manifest_fingerprint: wire
                .manifest_fingerprint
                .as_ref()
                .try_into()
                .map_err(|_| malformed("manifest_fingerprint", "must have 32 bytes"))?,
            lease_ttl_millis: wire.lease_ttl_millis,
            mode,
            gradients,
            warm_start: wire.warm_start.map(TryInto::try_into).transpose()?,
            evaluated: wire.evaluated.map(TryInto::try_into).transpose()?,
        };
        settings.check().map_err(|fault| malformed(fault.setting, fault.what))?;
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::sample::settings;

    #[test]
    fn settings_come_back_as_they_were_in_either_precision() {
        for gradients in Precision::ALL {
            let settings = JobSettings { gradients, ..settings() };
            assert_eq!(JobSettings::try_from(proto::JobSettings::from(&settings)), Ok(settings));
        }
    }

    #[test]
    fn a_precision_that_nobody_knows_is_refused_and_not_taken_for_f32() {
        for gradients in [2, 3, -1] {
            let wire = proto::JobSettings { gradients, ..(&settings()).into() };
            let refusal = JobSettings::try_from(wire).unwrap_err();
            assert!(refusal.to_string().contains("gradients"), "{refusal}");
        }
    }
}
