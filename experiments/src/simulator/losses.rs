//! Nodes that are lost, at stated times or at random: what goes with them, and what is made again.

use super::Policy;
use super::cluster::{Owner, PodState};
use super::world::{Event, World, unit};

impl World<'_> {
    /// When a node of those that are lost at random will be: as long as one lives that is as likely to go in each moment.
    pub(super) fn foresee_loss(&mut self, node: usize) {
        let share = self.scenario.nodes[self.cluster.nodes[node].pool as usize].lost_per_hour;
        if share > 0.0 {
            let lives = -libm::log(1.0 - unit(&mut self.losses)) / -libm::log(1.0 - share) * 3600.0;
            self.at(self.now + lives, Event::NodeLost(node));
        }
    }

    /// A node is lost, with all that is on it.
    pub(super) fn lose(&mut self, node: usize) {
        let group = &self.scenario.nodes[self.cluster.nodes[node].pool as usize];
        if group.lost_per_hour > 0.0 {
            let away = group.away_seconds.at(unit(&mut self.losses));
            self.at(self.now + away, Event::NodeBack(node));
        }
        self.lost.0 += 1;
        self.go_back(node);
        let on_it = (0..self.cluster.pods.len()).filter(|pod| self.cluster.pods[*pod].node == Some(node));
        let running: Vec<usize> =
            on_it.filter(|pod| self.cluster.pods[*pod].state == PodState::Running).collect();
        running.into_iter().for_each(|pod| self.count(pod, -1));
        for pod in self.cluster.set_lost(node, true) {
            let owner = self.cluster.pods[pod].owner;
            self.pods_of(owner).retain(|one| *one != pod);
        }
        self.is_changed = true;
        (0..self.jobs.len()).for_each(|job| self.keep(job));
    }

    /// Jobs that lose with a node what they cannot go on without make steps again.
    fn go_back(&mut self, node: usize) {
        let on_it =
            self.cluster.pods.iter().filter(|pod| pod.node == Some(node) && pod.state == PodState::Running);
        let job = |owner: Owner| match (owner, self.policy) {
            (Owner::Service(_), _) => None,
            (Owner::Master(job) | Owner::Pserver(job) | Owner::Trainer(job), Policy::Gang) => Some(job),
            (Owner::Pserver(job), _) if !self.jobs[job].has_copies => Some(job),
            _ => None,
        };
        let mut jobs: Vec<usize> = on_it.filter_map(|pod| job(pod.owner)).collect();
        jobs.sort_unstable();
        jobs.dedup();
        let now = self.now;
        self.lost.1 += jobs.into_iter().map(|job| self.jobs[job].go_back(now)).sum::<f64>();
    }
}
