//! The pservers' side of the master: register, report, placement.

use super::{Machine, Placed};
use crate::lease::Leases;
use crate::placement::place;
use crate::reports::{BlockProgress, Reports};
use shoal_runtime::cluster::routing::PserverAddress;
use shoal_runtime::cluster::{BlockId, Declaration, Incarnation, Layout, Refusal, Routing, Step};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a pserver has counted so far, cumulative over its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // The names are the units: see `PserverCounters` in the protocol.
pub struct PserverCounters {
    pub pushes: u64,
    pub duplicates_refused: u64,
    pub late_pushes: u64,
    pub records_refused: u64,
    pub replaced_by_ancestor: u64,
    pub busy: u64,
    pub short_steps: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub levels: u64,
}

/// What the master knows of one pserver.
#[derive(Clone, Debug)]
pub struct PserverRecord {
    /// Where it listens.
    pub address: String,
    /// What it has counted.
    pub counters: PserverCounters,
}

/// What a pserver is to host.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// Of the routing it follows from.
    pub routing_version: u64,
    /// The parameters.
    pub declaration: Declaration,
    /// The blocks.
    pub blocks: Vec<BlockId>,
}

impl Machine {
    /// A pserver registers. A second life of a pserver whose blocks are placed ends the job: they have no copy.
    pub fn register(
        &mut self,
        name: &str,
        address: &str,
        nonce: u64,
        process: u32,
        now: Duration,
    ) -> Result<Incarnation, Refusal> {
        let (incarnation, superseded) = self.pservers.join(name, nonce, process, now)?;
        let record = PserverRecord { address: address.to_owned(), counters: PserverCounters::default() };
        self.pserver_records.entry(incarnation).or_insert(record);
        if let Some(old) = superseded {
            self.pserver_records.remove(&old);
            if self.hosts_blocks(old) {
                self.fail(format!("pserver {name:?} was started again, and its blocks had no copy"));
            }
        }
        self.place(now);
        Ok(incarnation)
    }

    /// A pserver says how far its blocks are; it learns what to host when its routing is not the present one.
    pub fn report(
        &mut self,
        pserver: Incarnation,
        routing_version: u64,
        progress: Vec<BlockProgress>,
        counters: PserverCounters,
        failure: &str,
        now: Duration,
    ) -> Result<Option<Assignment>, Refusal> {
        self.pservers.hear(pserver, now)?;
        if let Some(record) = self.pserver_records.get_mut(&pserver) {
            record.counters = counters;
        }
        if !failure.is_empty() {
            self.fail(failure.to_owned());
        }
        let (Some(job), Some(declaration)) = (&mut self.job, &self.declaration) else { return Ok(None) };
        if routing_version == job.routing.version {
            job.reports.hear(pserver, progress);
            job.leases.advance(Step(job.reports.lowest_version().0), now);
            return Ok(None);
        }
        let at = job.routing.pservers.iter().position(|known| known.incarnation == pserver);
        let blocks = at.map_or_else(Vec::new, |at| job.routing.blocks_of(at));
        Ok(Some(Assignment {
            routing_version: job.routing.version,
            declaration: declaration.clone(),
            blocks,
        }))
    }

    /// Whether blocks are placed on a pserver, so that its end loses them.
    pub(super) fn hosts_blocks(&self, pserver: Incarnation) -> bool {
        let Some(job) = &self.job else { return false };
        let at = job.routing.pservers.iter().position(|known| known.incarnation == pserver);
        at.is_some_and(|at| job.routing.primary.contains(&(at as u32)))
    }

    /// Places the blocks once the declaration and the wanted pservers are there.
    pub(super) fn place(&mut self, now: Duration) {
        let Some(declaration) = &self.declaration else { return };
        if self.job.is_some() || (self.pservers.live().count() as u32) < self.wanted.pservers {
            return;
        }
        let layout = Layout::new(declaration);
        // In name order, so that placement does not depend on who was faster.
        let mut hosts: Vec<(String, Incarnation)> =
            self.pservers.live().map(|(incarnation, member)| (member.name.clone(), incarnation)).collect();
        hosts.sort();
        let sizes: Vec<u64> = layout.iter().map(|(_, block)| 4 * block.elements as u64).collect();
        let primary = place(&sizes, hosts.len() as u32);
        let address =
            |incarnation| self.pserver_records.get(incarnation).map_or("", |record| &record.address);
        let pservers = hosts
            .iter()
            .map(|(_, incarnation)| PserverAddress {
                incarnation: *incarnation,
                address: address(incarnation).to_owned(),
            })
            .collect();
        let routing = Routing { version: 1, pservers, primary };
        let hosted: BTreeMap<Incarnation, usize> = hosts
            .iter()
            .enumerate()
            .map(|(at, (_, incarnation))| (*incarnation, routing.blocks_of(at).len()))
            .collect();
        let shape = self.settings.shape();
        let ttl = Duration::from_millis(self.settings.lease_ttl_millis);
        let leases = Leases::new(shape, self.settings.steps(), ttl, now);
        self.job = Some(Placed { layout, routing, reports: Reports::new(shape, hosted), leases });
    }
}
