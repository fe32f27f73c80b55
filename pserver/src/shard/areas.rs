//! Areas of device memory that trainers on this machine put gradients into: who has which, and for how long.
//!
//! An area is its trainer's until the trainer names it no more among those that it uses, or nothing has come through it for a
//! while. It is never given to another: a trainer that stood still may write there when nobody expects it any more.

use super::Shard;
use crate::device::{Area, DeviceError};
use shoal_runtime::cluster::permutation::mix;
use shoal_runtime::cluster::{Incarnation, Refusal, RefusalKind};
use shoal_runtime::host::cuda::AREAS_MAX;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// For how long an area stays through which nothing comes.
const UNUSED: Duration = Duration::from_secs(600);

/// Of an area's number, those that count.
const NUMBER_BITS: u32 = 32;

/// All areas, by number.
#[derive(Debug, Default)]
pub(super) struct Areas {
    last: u64,
    areas: BTreeMap<u64, Shared>,
}

#[derive(Debug)]
struct Shared {
    area: Arc<Area>,
    trainer: Incarnation,
    used: Instant,
}

impl Areas {
    /// Forgets what its trainer uses no more.
    fn follow(&mut self, trainer: Incarnation, keeps: &[u64], now: Instant) {
        self.areas.retain(|number, shared| shared.trainer != trainer || keeps.contains(number));
        self.forget_unused(now);
    }

    /// Forgets what nothing comes through any more.
    fn forget_unused(&mut self, now: Instant) {
        self.areas.retain(|_, shared| now.saturating_duration_since(shared.used) < UNUSED);
    }

    fn count(&self, trainer: Incarnation) -> usize {
        self.areas.values().filter(|shared| shared.trainer == trainer).count()
    }
}

impl Shard {
    /// An area of so many bytes for a trainer that uses `keeps` and no others, and its number; none where there is no device or
    /// no memory.
    ///
    /// # Errors
    /// It wants more than one gradient's.
    pub fn share(
        &self,
        trainer: Incarnation,
        bytes: u64,
        keeps: &[u64],
    ) -> Result<Option<(u64, Arc<Area>)>, Refusal> {
        let (Some(device), Some(hosting)) = (self.device(), self.hosting()) else { return Ok(None) };
        let most = hosting.gradient_bytes();
        if bytes > most {
            let detail = format!("a gradient has {most} bytes at most, it wants {bytes}");
            return Err(Refusal::new(RefusalKind::Malformed, "share.bytes", detail));
        }
        let now = Instant::now();
        {
            let mut areas = self.areas.lock().unwrap_or_else(PoisonError::into_inner);
            areas.follow(trainer, keeps, now);
            if areas.count(trainer) >= AREAS_MAX {
                return Ok(None);
            }
        }
        // The driver is called without the lock.
        let area = match device.area(bytes as usize) {
            Ok(area) => Arc::new(area),
            Err(why @ (DeviceError::Memory { .. } | DeviceError::Unshared { .. })) => {
                tracing::warn!(%trainer, %why, "its gradients and parameters go over the network");
                return Ok(None);
            }
            // That is told where the device is waited for.
            Err(_) => return Ok(None),
        };
        let mut areas = self.areas.lock().unwrap_or_else(PoisonError::into_inner);
        if areas.count(trainer) >= AREAS_MAX {
            // Another call of its came first.
            return Ok(None);
        }
        areas.last += 1;
        // No number of an earlier life of this process is given again.
        let number = mix(self.incarnation().0) << NUMBER_BITS | areas.last;
        areas.areas.insert(number, Shared { area: Arc::clone(&area), trainer, used: now });
        tracing::debug!(%trainer, number, bytes = area.bytes(), "an area for gradients");
        Ok(Some((number, area)))
    }

    /// Gives areas back through which nothing comes any more.
    pub(super) fn give_areas_back(&self, now: Instant) {
        self.areas.lock().unwrap_or_else(PoisonError::into_inner).forget_unused(now);
    }

    /// Whether an area is here.
    pub fn has_area(&self, number: u64) -> bool {
        self.area(number).is_some()
    }

    /// An area that is here.
    pub(super) fn area(&self, number: u64) -> Option<Arc<Area>> {
        let mut areas = self.areas.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = areas.areas.get_mut(&number)?;
        shared.used = Instant::now();
        Some(Arc::clone(&shared.area))
    }
}
