//! Areas of device memory that trainers on this machine put gradients into: the owner of each, and the end of its life.
//!
//! An area is its trainer's for as long as the trainer holds the lock that goes with the mapping. It is never given to another trainer,
//! and its memory is not freed before: a trainer that was stopped may write there unexpectedly late.

use super::Shard;
use crate::device::{Area, DeviceError};
use shoal_runtime::cluster::permutation::mix;
use shoal_runtime::cluster::{Incarnation, Refusal, RefusalKind};
use shoal_runtime::host::cuda::{AREAS_MAX, MapWatch};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

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
    lock: MapWatch,
}

impl Areas {
    /// Takes out the areas that no trainer has mapped any more.
    fn take_unmapped(&mut self) -> Vec<Shared> {
        let is_unmapped = |(number, shared): (&u64, &Shared)| (!shared.lock.is_held()).then_some(*number);
        let numbers: Vec<u64> = self.areas.iter().filter_map(is_unmapped).collect();
        numbers.iter().filter_map(|number| self.areas.remove(number)).collect()
    }

    fn count(&self, trainer: Incarnation) -> usize {
        self.areas.values().filter(|shared| shared.trainer == trainer).count()
    }
}

impl Shard {
    /// An area of so many bytes for a trainer that holds `lock` until it has the area mapped no more, and its number; none where there
    /// is no device or no memory.
    ///
    /// # Errors
    /// It wants more than one gradient's.
    pub fn share(
        &self,
        trainer: Incarnation,
        bytes: u64,
        lock: MapWatch,
    ) -> Result<Option<(u64, Arc<Area>)>, Refusal> {
        let (Some(device), Some(hosting)) = (self.device(), self.hosting()) else { return Ok(None) };
        let most = hosting.gradient_bytes();
        if bytes > most {
            let detail = format!("a gradient has {most} bytes at most, it wants {bytes}");
            return Err(Refusal::new(RefusalKind::Malformed, "share.bytes", detail));
        }
        self.give_areas_back();
        if self.areas.lock().unwrap_or_else(PoisonError::into_inner).count(trainer) >= AREAS_MAX {
            return Ok(None);
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
        areas.areas.insert(number, Shared { area: Arc::clone(&area), trainer, lock });
        tracing::debug!(%trainer, number, bytes = area.bytes(), "an area for gradients");
        Ok(Some((number, area)))
    }

    /// Frees the areas that no trainer has mapped any more.
    pub(super) fn give_areas_back(&self) {
        let unmapped = self.areas.lock().unwrap_or_else(PoisonError::into_inner).take_unmapped();
        // Without the lock: the driver waits for the device before it frees.
        drop(unmapped);
    }

    /// Whether an area is here.
    pub fn has_area(&self, number: u64) -> bool {
        self.area(number).is_some()
    }

    /// An area that is here.
    pub(super) fn area(&self, number: u64) -> Option<Arc<Area>> {
        let areas = self.areas.lock().unwrap_or_else(PoisonError::into_inner);
        areas.areas.get(&number).map(|shared| Arc::clone(&shared.area))
    }
}
