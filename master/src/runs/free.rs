//! What is free, and where in it a trainer works next.

use super::{Lacking, Lease, Runs};
use shoal_runtime::cluster::Incarnation;
use std::ops::Range;

impl Runs {
    /// The free stretch at whose beginning a trainer works next.
    pub(super) fn choose(
        &mut self,
        trainer: Incarnation,
        window: &Range<u64>,
        lacking: &dyn Lacking,
    ) -> Option<Range<u64>> {
        let found = self.at_front(trainer, window, lacking);
        let found = found.or_else(|| self.own_lane(trainer, window, lacking));
        let found = found.or_else(|| self.new_lane(window, lacking));
        let found = found.or_else(|| self.left_behind(window, lacking));
        found.or_else(|| {
            let free = self.free(self.searched.max(window.start)..window.end, lacking);
            self.searched = free.as_ref().map_or(window.end, |free| free.start);
            free
        })
    }

    /// What is free at the front and holds everybody up, unless somebody is about to come by.
    fn at_front(
        &self,
        trainer: Incarnation,
        window: &Range<u64>,
        lacking: &dyn Lacking,
    ) -> Option<Range<u64>> {
        if self.covering(window.start).is_some() || self.lanes.is_anothers(trainer, window.start) {
            return None;
        }
        self.free(window.clone(), lacking)
    }

    /// What is free in a trainer's lane, up to where another goes on.
    fn own_lane(
        &self,
        trainer: Incarnation,
        window: &Range<u64>,
        lacking: &dyn Lacking,
    ) -> Option<Range<u64>> {
        let lane = self.lanes.of(trainer)?;
        let free = self.free(lane.start..lane.end.min(window.end), lacking)?;
        Some(free).filter(|free| !self.lanes.is_anothers(trainer, free.start))
    }

    /// What is free beyond the last lane. What is left behind when a trainer goes is nobody's lane, and taken up when
    /// it comes to the front.
    fn new_lane(&self, window: &Range<u64>, lacking: &dyn Lacking) -> Option<Range<u64>> {
        let last = self.lanes.end_of_last_before(window.end)?;
        self.free(last..window.end, lacking)
    }

    /// The first stretch that was leased and is free again. Each is looked at until nothing of it is free any more, so
    /// that those under a lease are not walked over again and again.
    fn left_behind(&mut self, window: &Range<u64>, lacking: &dyn Lacking) -> Option<Range<u64>> {
        while let Some(entry) = self.left.first_entry().filter(|entry| *entry.key() < window.end) {
            let (first, end) = entry.remove_entry();
            let within = first.max(window.start)..end.min(window.end);
            if let Some(free) = self.free(within, lacking) {
                self.left.insert(free.start, end);
                return self.free(free.start..window.end, lacking);
            }
            if end > window.end {
                self.left.insert(window.end, end);
            }
        }
        None
    }

    /// The first stretch of `within` that some block lacks and no lease covers.
    pub(super) fn free(&self, within: Range<u64>, lacking: &dyn Lacking) -> Option<Range<u64>> {
        let lacked_from = |at| if at < within.end { lacking.lacking(at..within.end) } else { None };
        let mut lacked = lacked_from(within.start)?;
        while let Some(lease) = self.covering(lacked.start) {
            lacked.start = lease.run.end;
            if lacked.is_empty() {
                lacked = lacked_from(lacked.start)?;
            }
        }
        let next = self.by_first.range(lacked.clone()).next();
        Some(lacked.start..next.map_or(lacked.end, |(first, _)| *first))
    }

    pub(super) fn covering(&self, position: u64) -> Option<&Lease> {
        let (_, id) = self.by_first.range(..=position).next_back()?;
        self.leases.get(id).filter(|lease| lease.run.contains(&position))
    }
}
