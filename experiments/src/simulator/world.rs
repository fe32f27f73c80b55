//! The events of a simulation, in order, and what each changes.

use super::cluster::{Cluster, Owner, PodState};
use super::job::{self, Job};
use super::scenario::Scenario;
use super::{Policy, edl, gang, shoal};
use crate::{Experiment, JobRow, Sample};
use shoal_planner::Resources;
use shoal_runtime::host::random::Random;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What keeps the draws of losses apart from all others.
const LOSSES: u64 = 0x10_55e5;

/// A number from 0 to below 1.
pub(super) fn unit(random: &mut Random) -> f64 {
    (random.bits() >> 11) as f64 / (1u64 << 53) as f64
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    NodeLost(usize),
    NodeBack(usize),
    Gone(usize),
    Started(usize),
    End(usize, u32),
    Submit(usize),
    Serve(usize),
    Look,
    Sample,
}

/// A simulation under way.
#[derive(Debug)]
pub(super) struct World<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) policy: Policy,
    pub(super) now: f64,
    pub(super) random: Random,
    pub(super) cluster: Cluster,
    pub(super) jobs: Vec<Job>,
    /// By service, its pods that are to stay.
    services: Vec<Vec<usize>>,
    /// In microseconds, so that times are in order.
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    pushed: u64,
    /// Whether anything has changed since the policy last looked.
    pub(super) is_changed: bool,
    samples: Vec<Sample>,
    /// How long pods of services waited, and how many there were.
    serving_wait: (f64, u32),
    /// Trainers that were taken from jobs.
    taken: u32,
    /// Nodes that were lost at random, when, and for how long; not the order of anything else.
    pub(super) losses: Random,
    /// Nodes that were lost, and steps that are made again.
    pub(super) lost: (u32, f64),
    /// Looks of EDL's rules that came to no rest.
    pub(super) unsettled: u32,
}

impl<'a> World<'a> {
    pub(super) fn new(scenario: &'a Scenario, policy: Policy) -> World<'a> {
        let mut random = Random::seeded(scenario.seed);
        let jobs = job::jobs(scenario, &mut random);
        let mut world = World {
            scenario,
            policy,
            now: 0.0,
            random,
            cluster: Cluster::new(scenario),
            jobs,
            services: vec![Vec::new(); scenario.serving.len()],
            events: BinaryHeap::new(),
            pushed: 0,
            is_changed: false,
            samples: Vec::new(),
            serving_wait: (0.0, 0),
            taken: 0,
            losses: Random::seeded(scenario.seed ^ LOSSES),
            lost: (0, 0.0),
            unsettled: 0,
        };
        (0..world.jobs.len()).for_each(|job| world.at(world.jobs[job].submit, Event::Submit(job)));
        (0..scenario.serving.len()).for_each(|service| world.at(0.0, Event::Serve(service)));
        for failure in &scenario.failures {
            if let Some(node) = world.cluster.nodes.iter().position(|node| node.name == failure.node) {
                world.at(failure.from_seconds, Event::NodeLost(node));
                world.at(failure.to_seconds, Event::NodeBack(node));
            }
        }
        (0..world.cluster.nodes.len()).for_each(|node| world.foresee_loss(node));
        world.at(0.0, Event::Look);
        world.at(0.0, Event::Sample);
        world
    }

    /// Runs to the end.
    pub(super) fn run(mut self, mut told: impl FnMut(f64)) -> Experiment {
        while let Some(Reverse((micros, _, event))) = self.events.pop() {
            let at = micros as f64 / 1e6;
            if at > self.scenario.seconds {
                break;
            }
            self.now = at;
            self.happen(event);
            let is_last = self.events.peek().is_none_or(|Reverse((next, ..))| *next > micros);
            if is_last {
                self.schedule();
            }
            if event == Event::Sample {
                told(at / self.scenario.seconds);
            }
            let is_over = !self.scenario.to_the_end && self.jobs.iter().all(|job| job.is_done);
            if is_over && !self.jobs.is_empty() {
                break;
            }
        }
        told(1.0);
        self.sample();
        self.experiment()
    }

    pub(super) fn at(&mut self, seconds: f64, event: Event) {
        self.pushed += 1;
        let micros = (seconds.max(self.now) * 1e6).round() as u64;
        self.events.push(Reverse((micros, self.pushed, event)));
    }

    fn happen(&mut self, event: Event) {
        let scenario = self.scenario;
        match event {
            Event::NodeLost(node) => self.lose(node),
            Event::NodeBack(node) => {
                self.cluster.set_lost(node, false);
                self.foresee_loss(node);
                self.is_changed = true;
            }
            Event::Gone(pod) => self.gone(pod),
            Event::Started(pod) if self.cluster.pods[pod].state == PodState::Starting => {
                self.cluster.pods[pod].state = PodState::Running;
                self.count(pod, 1);
            }
            Event::Started(_) => {}
            Event::End(job, generation) if self.jobs[job].generation == generation => self.end(job),
            Event::End(..) => {}
            Event::Submit(job) => {
                self.jobs[job].is_submitted = true;
                self.is_changed = true;
                match self.policy {
                    Policy::Gang => {}
                    Policy::Edl => self.admit(job, self.jobs[job].least),
                    // A job that is submitted is an event to the operator as well.
                    Policy::Shoal => shoal::look(self),
                }
            }
            Event::Serve(service) => {
                self.serve(service);
                self.at(self.now + scenario.serving[service].every_seconds, Event::Serve(service));
            }
            Event::Look => {
                let every = match self.policy {
                    Policy::Gang => scenario.every.gang,
                    Policy::Edl => scenario.every.edl,
                    Policy::Shoal => scenario.every.shoal,
                };
                match self.policy {
                    Policy::Gang => gang::look(self),
                    Policy::Edl => edl::look(self),
                    Policy::Shoal => shoal::look(self),
                }
                self.at(self.now + every, Event::Look);
            }
            Event::Sample => {
                self.sample();
                self.at(self.now + scenario.sample_seconds, Event::Sample);
            }
        }
    }

    /// Lets a job in, with so many trainers.
    pub(super) fn admit(&mut self, job: usize, trainers: u32) {
        self.jobs[job].is_admitted = true;
        self.jobs[job].wanted = trainers;
        self.keep(job);
    }

    /// Makes what a job lacks.
    pub(super) fn keep(&mut self, job: usize) {
        let one = &self.jobs[job];
        if !one.is_admitted || one.is_done {
            return;
        }
        let (masters, pservers, trainers) = (one.masters.len(), one.pservers.len(), one.trainers.len());
        (masters..1).for_each(|_| self.make(Owner::Master(job)));
        (pservers..self.jobs[job].pservers_wanted as usize).for_each(|_| self.make(Owner::Pserver(job)));
        (trainers..self.jobs[job].wanted as usize).for_each(|_| self.make(Owner::Trainer(job)));
    }

    fn make(&mut self, owner: Owner) {
        let (request, priority): (Resources, i32) = match owner {
            Owner::Master(job) => (self.jobs[job].master, self.jobs[job].priority),
            Owner::Pserver(job) => (self.jobs[job].pserver, self.jobs[job].priority),
            Owner::Trainer(job) => (self.jobs[job].trainer, self.jobs[job].priority),
            Owner::Service(service) => {
                let service = &self.scenario.serving[service];
                (super::cluster::resources(&service.amounts), service.priority)
            }
        };
        let pod = self.cluster.create(owner, request, priority, self.now);
        self.pods_of(owner).push(pod);
        self.is_changed = true;
    }

    /// Pods of services.
    pub(super) fn services(&self) -> impl Iterator<Item = usize> {
        self.services.iter().flatten().copied()
    }

    pub(super) fn pods_of(&mut self, owner: Owner) -> &mut Vec<usize> {
        match owner {
            Owner::Master(job) => &mut self.jobs[job].masters,
            Owner::Pserver(job) => &mut self.jobs[job].pservers,
            Owner::Trainer(job) => &mut self.jobs[job].trainers,
            Owner::Service(service) => &mut self.services[service],
        }
    }

    /// Ends a pod in order. It is not its owner's from here on.
    pub(super) fn stop(&mut self, pod: usize) {
        let owner = self.cluster.pods[pod].owner;
        self.pods_of(owner).retain(|one| *one != pod);
        self.is_changed = true;
        match self.cluster.pods[pod].state {
            PodState::Waiting => self.cluster.remove(pod),
            PodState::Starting | PodState::Running => {
                if self.cluster.pods[pod].state == PodState::Running {
                    self.count(pod, -1);
                }
                self.cluster.pods[pod].state = PodState::Stopping;
                self.at(self.now + self.scenario.stop_seconds, Event::Gone(pod));
            }
            PodState::Stopping | PodState::Gone => {}
        }
    }

    /// Takes a trainer from a job that goes on.
    pub(super) fn take(&mut self, pod: usize) {
        self.taken += u32::from(self.cluster.pods[pod].state != PodState::Waiting);
        self.stop(pod);
    }

    fn gone(&mut self, pod: usize) {
        if self.cluster.pods[pod].state == PodState::Stopping {
            self.cluster.remove(pod);
            self.is_changed = true;
        }
    }

    /// One more, or one fewer, of an owner's pods runs.
    pub(super) fn count(&mut self, pod: usize, change: i32) {
        let (job, part) = match self.cluster.pods[pod].owner {
            Owner::Master(job) => (job, 0),
            Owner::Pserver(job) => (job, 1),
            Owner::Trainer(job) => (job, 2),
            Owner::Service(_) => {
                if change > 0 {
                    let waited = self.now - self.cluster.pods[pod].created;
                    self.serving_wait = (self.serving_wait.0 + waited, self.serving_wait.1 + 1);
                }
                return;
            }
        };
        let needed = if self.policy == Policy::Gang { self.jobs[job].fixed } else { 1 };
        let one = &mut self.jobs[job];
        if !one.is_done {
            // What ran until now is what it went with until now.
            one.measure(self.now);
            one.running[part] = one.running[part].saturating_add_signed(change);
            if let Some(end) = one.advance(self.now, needed) {
                let generation = one.generation;
                self.at(end, Event::End(job, generation));
            }
        }
    }

    fn end(&mut self, job: usize) {
        let one = &mut self.jobs[job];
        one.is_done = true;
        one.ended = Some(self.now);
        let pods: Vec<usize> = one.pods().collect();
        pods.into_iter().for_each(|pod| self.stop(pod));
    }

    /// As many pods of a service as its load asks for.
    fn serve(&mut self, service: usize) {
        let wanted = self.scenario.serving[service].wanted(self.now) as usize;
        while self.services[service].len() < wanted {
            self.make(Owner::Service(service));
        }
        while self.services[service].len() > wanted
            && let Some(pod) = self.services[service].last().copied()
        {
            self.stop(pod);
        }
    }

    fn schedule(&mut self) {
        for pod in self.cluster.schedule() {
            self.will_start(pod);
        }
    }

    /// A pod that was placed starts after a while.
    pub(super) fn will_start(&mut self, pod: usize) {
        let spans = &self.scenario.start_seconds;
        let span = match self.cluster.pods[pod].owner {
            Owner::Master(_) => spans.master,
            Owner::Pserver(_) => spans.pserver,
            Owner::Trainer(_) => spans.trainer,
            Owner::Service(_) => spans.serving,
        };
        let place = unit(&mut self.random);
        self.at(self.now + span.at(place), Event::Started(pod));
        self.is_changed = true;
    }

    fn sample(&mut self) {
        let jobs = || self.jobs.iter().filter(|job| job.is_submitted);
        let running = |service: &Vec<usize>| {
            service.iter().filter(|pod| self.cluster.pods[**pod].state == PodState::Running).count() as u32
        };
        let sample = Sample {
            at_seconds: self.now,
            utilisation: self.cluster.utilisation(&self.scenario.resource),
            jobs_absent: self.jobs.iter().filter(|job| !job.is_submitted).count() as u32,
            jobs_pending: jobs().filter(|job| job.started.is_none()).count() as u32,
            jobs_running: jobs().filter(|job| job.started.is_some() && !job.is_done).count() as u32,
            jobs_done: jobs().filter(|job| job.is_done).count() as u32,
            pods_pending: self.cluster.waiting().count() as u32,
            pods_placed: self.cluster.placed(),
            serving: self.services.iter().map(running).sum(),
            trainers: self.jobs.iter().map(|job| if job.is_done { 0 } else { job.running[2] }).collect(),
            asked: self
                .jobs
                .iter()
                .map(|job| self.cluster.asked_by(job.pods(), &self.scenario.resource))
                .collect(),
        };
        self.samples.push(sample);
    }

    fn experiment(self) -> Experiment {
        let row = |job: &Job| JobRow {
            name: job.name.clone(),
            submitted: job.submit,
            started: job.started,
            ended: job.ended,
        };
        let mut notes = vec![("trainers taken".to_owned(), f64::from(self.taken))];
        if self.lost.0 > 0 {
            notes.push(("nodes lost".to_owned(), f64::from(self.lost.0)));
            notes.push(("steps made again".to_owned(), self.lost.1));
        }
        // Who has not run by the end has waited until then.
        let is_late = |pod: &&usize| self.cluster.pods[**pod].state != PodState::Running;
        let late: Vec<usize> = self.services.iter().flatten().filter(is_late).copied().collect();
        let waited = late.iter().map(|pod| self.now - self.cluster.pods[*pod].created).sum::<f64>();
        let (waited, count) = (self.serving_wait.0 + waited, self.serving_wait.1 + late.len() as u32);
        if count > 0 {
            let mean = waited / f64::from(count);
            notes.push(("mean wait of serving pods, s".to_owned(), mean));
        }
        if self.policy == Policy::Edl {
            notes.push(("looks without rest".to_owned(), f64::from(self.unsettled)));
        }
        Experiment {
            policy: self.policy.name().to_owned(),
            resource: self.scenario.resource.clone(),
            jobs: self.jobs.iter().map(row).collect(),
            samples: self.samples,
            until_seconds: self.scenario.until_seconds,
            notes,
        }
    }
}
