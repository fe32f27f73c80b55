//! A plan in the making: who has how many trainers on which nodes, and how room is made by taking some. Pure.
//!
//! Of a job's trainers those beyond its least may be taken, whichever they are; the first ones, masters and pservers never are.
//! Beside what is free there is a second account, of what could be free if everything were taken that may be.

use super::reason::Blocker;
use super::resources::{CPU, KINDS, MEMORY, Resources};
use super::room::Room;
use super::settings::Settings;
use super::view::{Ask, ClusterView, JobView, Servers};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Of several donors, who gives first: the lowest priority, then the largest share, then the youngest.
type DonorKey = (i32, Reverse<u64>, Reverse<u64>, Reverse<usize>);

/// A plan in the making.
#[derive(Clone, Debug)]
pub(super) struct State<'a> {
    pub(super) view: &'a ClusterView,
    pub(super) settings: &'a Settings,
    /// What is free.
    pub(super) room: Room,
    /// What would be free without trainers that may be taken.
    pub(super) yielding: Room,
    pub(super) jobs: Vec<JobState>,
    donors: BTreeSet<DonorKey>,
    /// By node, the jobs of which trainers there may be taken, one entry for each trainer.
    guests: Vec<Vec<usize>>,
}

/// A job in the making.
#[derive(Clone, Debug, Default)]
pub(super) struct JobState {
    pub(super) is_admitted: bool,
    /// Nodes of its trainers; the first of them, up to its least, are not taken.
    pub(super) trainers: Vec<usize>,
    /// Trainers for which there is no node yet: something brings one.
    pub(super) to_come: u32,
    /// Nodes that its master and its pservers were given now.
    pub(super) served: [Vec<usize>; 2],
    /// What its master and pservers ask for together.
    servers: Resources,
    /// The most that it may have now.
    pub(super) most: u32,
    /// Why it may not have more than that.
    pub(super) bound: Option<Blocker>,
    /// Whom it gave trainers, in order.
    pub(super) gave: Vec<Taker>,
    /// Why it has no more, or is not let in.
    pub(super) blocker: Option<Blocker>,
    /// A server or one of the least trainers has no node: what it waits for.
    pub(super) lacks: Option<String>,
}

/// Whom a trainer is given up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Taker {
    /// A pod that waits, by its place in the view.
    Pod(usize),
    /// Another job's least.
    Least(usize),
    /// Another job that had less, or has priority.
    Share(usize),
    /// What is kept free.
    Headroom,
    /// Nobody: it is not worth its room.
    Nobody,
    /// Nobody: fewer are asked for.
    Fewer,
}

/// Whether a job gives a trainer up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Willing {
    Yes,
    No,
    /// Neither does any that comes after it.
    NoFurther,
}

/// Room that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Made {
    /// On this node.
    pub(super) node: usize,
    /// By these jobs, with the nodes of their trainers, in the order in which they were taken.
    pub(super) taken: Vec<(usize, usize)>,
}

/// Trainers that are looked at to find one that makes room by itself.
const LOOKS_MAX: usize = 4096;
/// Nodes that are tried if one trainer does not make room.
const NODES_MAX: usize = 16;

impl<'a> State<'a> {
    /// The cluster as it is, every trainer where it is.
    pub(super) fn new(view: &'a ClusterView, settings: &'a Settings) -> State<'a> {
        let mut room = Room::new(&view.nodes);
        let mut jobs = Vec::with_capacity(view.jobs.len());
        for job in &view.jobs {
            for servers in [&job.master, &job.pservers] {
                servers.nodes.iter().for_each(|node| room.take(*node, &servers.ask.request));
            }
            let mut servers = job.master.ask.request.times(job.master.count);
            servers.add(&job.pservers.ask.request.times(job.pservers.count));
            let most = job.trainers.max;
            jobs.push(JobState { is_admitted: job.is_admitted, servers, most, ..JobState::default() });
        }
        let guests = vec![Vec::new(); view.nodes.len()];
        let yielding = room.clone();
        let mut state = State { view, settings, room, yielding, jobs, donors: BTreeSet::new(), guests };
        for (job, seen) in view.jobs.iter().enumerate() {
            seen.trainers.nodes.iter().for_each(|node| state.push(job, *node));
        }
        state
    }

    pub(super) fn job(&self, job: usize) -> &'a JobView {
        &self.view.jobs[job]
    }

    /// What a trainer of a job asks for.
    fn request(&self, job: usize) -> &'a Resources {
        &self.view.jobs[job].trainers.ask.request
    }

    /// The share that a job has, or would have with so many trainers: its dominant share of all open nodes.
    pub(super) fn share(&self, job: usize, trainers: usize) -> f64 {
        let mut all = self.jobs[job].servers;
        all.add(&self.request(job).times(trainers as u32));
        all.share_of(self.room.whole())
    }

    pub(super) fn share_now(&self, job: usize) -> f64 {
        self.share(job, self.jobs[job].trainers.len())
    }

    fn least(&self, job: usize) -> usize {
        self.job(job).trainers.min as usize
    }

    /// The nodes of trainers that a job could give, the last to have come first.
    fn spare(&self, job: usize) -> impl Iterator<Item = usize> {
        self.jobs[job].trainers.iter().skip(self.least(job)).rev().copied()
    }

    /// The last node on which a job has a trainer that it could give.
    pub(super) fn last_spare(&self, job: usize) -> Option<usize> {
        self.spare(job).next()
    }

    /// The first donor with a trainer that uses this kind of what is counted, and its node.
    pub(super) fn donor_of(&self, kind: usize) -> Option<(usize, usize)> {
        let uses = |job: &usize| self.request(*job).0[kind] > 0;
        let with_node = |job: usize| Some((job, self.spare(job).find(|node| self.room.is_open(*node))?));
        self.donors.iter().map(|(.., Reverse(job))| *job).filter(uses).find_map(with_node)
    }

    fn key(&self, job: usize) -> DonorKey {
        // Shares are not negative, so that their bits are in their order.
        let share = self.share_now(job).to_bits();
        (self.job(job).priority, Reverse(share), Reverse(self.job(job).since), Reverse(job))
    }

    fn note_donor(&mut self, job: usize) {
        if self.jobs[job].trainers.len() > self.least(job) {
            let key = self.key(job);
            self.donors.insert(key);
        }
    }

    /// Gives a job a trainer on a node.
    pub(super) fn push(&mut self, job: usize, node: usize) {
        let key = self.key(job);
        self.donors.remove(&key);
        self.room.take(node, self.request(job));
        self.jobs[job].trainers.push(node);
        if self.jobs[job].trainers.len() > self.least(job) {
            self.guests[node].push(job);
        } else {
            self.yielding.take(node, self.request(job));
        }
        self.note_donor(job);
    }

    /// Takes a job's trainer on a node, if it has one there that may be taken.
    pub(super) fn pop(&mut self, job: usize, node: usize) -> bool {
        let place = self.spare(job).position(|one| one == node);
        let Some(from_end) = place else { return false };
        let key = self.key(job);
        self.donors.remove(&key);
        let trainers = &mut self.jobs[job].trainers;
        trainers.remove(trainers.len() - 1 - from_end);
        if let Some(guest) = self.guests[node].iter().rposition(|one| *one == job) {
            self.guests[node].remove(guest);
        }
        self.room.give(node, self.request(job));
        self.note_donor(job);
        true
    }

    /// Gives a node to something that is never taken: a pod of others.
    pub(super) fn reserve(&mut self, node: usize, request: &Resources) {
        self.room.take(node, request);
        self.yielding.take(node, request);
    }

    /// Gives a job its master (0) or a pserver (1) on a node.
    pub(super) fn serve(&mut self, job: usize, part: usize, node: usize) {
        self.reserve(node, &self.servers(job, part).ask.request);
        self.jobs[job].served[part].push(node);
    }

    /// Takes back the last that was given.
    pub(super) fn unserve(&mut self, job: usize, part: usize) {
        if let Some(node) = self.jobs[job].served[part].pop() {
            let request = &self.servers(job, part).ask.request;
            self.room.give(node, request);
            self.yielding.give(node, request);
        }
    }

    /// A job's master (0) or its pservers (1).
    pub(super) fn servers(&self, job: usize, part: usize) -> &'a Servers {
        let view = &self.view.jobs[job];
        if part == 0 { &view.master } else { &view.pservers }
    }

    /// Takes back the last trainer of a job that was not let in after all.
    pub(super) fn retract(&mut self, job: usize) {
        debug_assert!(self.last_spare(job).is_none(), "only the least is given to a job that is not in");
        if let Some(node) = self.jobs[job].trainers.pop() {
            self.room.give(node, self.request(job));
            self.yielding.give(node, self.request(job));
        }
    }

    /// What may be used of cpu and memory before the headroom begins. Devices have none: they come in whole pieces, and an
    /// idle one is the dearest thing in a cluster.
    fn ceiling(&self) -> Resources {
        let mut ceiling = *self.room.whole();
        for kind in [CPU, MEMORY] {
            ceiling.0[kind] = (ceiling.0[kind] as f64 * (1.0 - self.settings.headroom)).floor() as i64;
        }
        ceiling
    }

    /// What is used of open nodes.
    fn used(&self) -> Resources {
        let mut used = *self.room.whole();
        used.take(self.room.whole_free());
        used
    }

    /// A kind of which more is used than the headroom leaves.
    pub(super) fn over_ceiling(&self) -> Option<usize> {
        let (used, ceiling) = (self.used(), self.ceiling());
        [CPU, MEMORY].into_iter().find(|kind| used.0[*kind] > ceiling.0[*kind])
    }

    /// The first kind of which so much more would reach into the headroom.
    pub(super) fn headroom_hit(&self, more: &Resources) -> Option<usize> {
        self.beyond(&self.ceiling(), more, &Resources::default())
    }

    /// The first kind of which more is used than `limit` with so much more, and so much given up for it.
    fn beyond(&self, limit: &Resources, more: &Resources, given: &Resources) -> Option<usize> {
        let used = self.used();
        let after = |kind: usize| used.0[kind].saturating_add(more.0[kind]).saturating_sub(given.0[kind]);
        [CPU, MEMORY].into_iter().find(|kind| more.0[*kind] > 0 && after(*kind) > limit.0[*kind])
    }

    /// Finds a node for a pod, and if there is none takes trainers of jobs that are willing, as few as it can. What the node
    /// is to have room for is not taken yet. Changes nothing if it fails.
    ///
    /// `keeps_headroom`: the pod must not reach into the headroom, or no further than those did that gave.
    pub(super) fn make_room(
        &mut self,
        ask: &Ask,
        keeps_headroom: bool,
        willing: impl Fn(&State<'_>, usize) -> Willing,
    ) -> Option<Made> {
        let ceiling = if keeps_headroom { self.ceiling() } else { Resources([i64::MAX; KINDS]) };
        let free = self.room.first_fit(ask);
        let is_kept = self.beyond(&ceiling, &ask.request, &Resources::default()).is_none();
        if let Some(node) = free.filter(|_| is_kept) {
            return Some(Made { node, taken: Vec::new() });
        }
        if let Some((donor, from)) = self.one_that_helps(ask, &ceiling, free.is_some(), &willing) {
            self.pop(donor, from);
            let node = if self.room.would_fit(from, ask, &Resources::default()) { from } else { free? };
            return Some(Made { node, taken: vec![(donor, from)] });
        }
        self.several_on_one_node(ask, &ceiling, &willing)
    }

    /// The first donor that is willing, with the node of a trainer that is enough by itself.
    fn one_that_helps(
        &self,
        ask: &Ask,
        ceiling: &Resources,
        is_free: bool,
        willing: impl Fn(&State<'_>, usize) -> Willing,
    ) -> Option<(usize, usize)> {
        let limit = ceiling.most(&self.used());
        let mut looks = 0;
        for (.., Reverse(job)) in &self.donors {
            match willing(self, *job) {
                Willing::Yes => {}
                Willing::No => continue,
                Willing::NoFurther => return None,
            }
            if self.beyond(&limit, &ask.request, self.request(*job)).is_some() {
                continue;
            }
            let helps = |node: &usize| {
                (is_free && self.room.is_open(*node)) || self.room.would_fit(*node, ask, self.request(*job))
            };
            if let Some(node) = self.spare(*job).take(LOOKS_MAX - looks).find(helps) {
                return Some((*job, node));
            }
            looks += self.jobs[*job].trainers.len() - self.least(*job);
            if looks >= LOOKS_MAX {
                return None;
            }
        }
        None
    }

    /// The first of a few nodes on which those that are willing are enough together.
    fn several_on_one_node(
        &mut self,
        ask: &Ask,
        ceiling: &Resources,
        willing: impl Fn(&State<'_>, usize) -> Willing,
    ) -> Option<Made> {
        let limit = ceiling.most(&self.used());
        for node in self.yielding.fits(ask, NODES_MAX) {
            let fits = |state: &State<'_>| {
                state.room.would_fit(node, ask, &Resources::default())
                    && state.beyond(&limit, &ask.request, &Resources::default()).is_none()
            };
            let mut taken = Vec::new();
            while !fits(self) {
                let mut guests = self.guests[node].clone();
                guests.sort_by_key(|guest| self.key(*guest));
                guests.dedup();
                let Some(guest) = guests.into_iter().find(|guest| willing(self, *guest) == Willing::Yes)
                else {
                    break;
                };
                self.pop(guest, node);
                taken.push((guest, node));
            }
            if !fits(self) {
                self.give_back(&taken);
                continue;
            }
            // What was not needed after all is given back, the first to have been taken first.
            let mut kept = Vec::new();
            for (job, node) in taken {
                self.push(job, node);
                if !fits(self) {
                    self.pop(job, node);
                    kept.push((job, node));
                }
            }
            return Some(Made { node, taken: kept });
        }
        None
    }

    /// Takes from a node, in the order of donors, until it has room for a pod; the node must have it in its second account.
    pub(super) fn clear(&mut self, node: usize, ask: &Ask) -> Vec<(usize, usize)> {
        let mut taken = Vec::new();
        while !self.room.would_fit(node, ask, &Resources::default()) {
            let first = self.guests[node].iter().copied().min_by_key(|guest| self.key(*guest));
            let Some(guest) = first.filter(|guest| self.pop(*guest, node)) else { break };
            taken.push((guest, node));
        }
        taken
    }

    /// Undoes what making room took.
    pub(super) fn give_back(&mut self, taken: &[(usize, usize)]) {
        taken.iter().rev().for_each(|(job, node)| self.push(*job, *node));
    }
}
