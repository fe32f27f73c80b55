//! What to break, and when: a seeded plan of faults on trainers. Decides; the supervisor's signals do it.

use super::Supervisor;
use rustix::process::Signal;
use shoal_runtime::host::random::Random;
use std::time::Duration;
use tokio::time::Instant;

/// A run of chaos.
#[derive(Debug)]
pub(crate) struct Chaos {
    random: Random,
    ttl: Duration,
    next: Instant,
    frozen: Vec<(Instant, u32, String)>,
}

impl Chaos {
    /// The chaos of `seed` over a job with this lease TTL.
    pub(crate) fn new(seed: u64, ttl: Duration) -> Chaos {
        let mut random = Random::seeded(seed);
        let next = Instant::now() + Duration::from_millis(500 + random.below(400));
        Chaos { random, ttl, next, frozen: Vec::new() }
    }

    /// Does what is due. Speaks through `say`.
    pub(crate) async fn tick(
        &mut self,
        job: &mut Supervisor,
        say: &mut dyn FnMut(&str),
    ) -> anyhow::Result<()> {
        self.thaw(job, say);
        if Instant::now() < self.next || job.status.phase != "training" {
            return Ok(());
        }
        self.next = Instant::now() + Duration::from_millis(300 + self.random.below(700));
        let (min, max) = (job.plan.trainers_min, job.plan.trainers_max);
        if min < max && self.random.percent(25) {
            let trainers = min + self.random.below(u64::from(max - min) + 1) as u32;
            let before = job.status.trainers_wanted;
            job.client.scale(trainers).await?;
            let kind = if trainers >= before { "join" } else { "leave" };
            job.record.fault(kind, "", &format!("scaled from {before} to {trainers} trainers"));
            say(&format!("chaos: scale from {before} to {trainers} trainers"));
            return Ok(());
        }
        let targets: Vec<(String, u32, u32)> = job
            .members()
            .into_iter()
            .filter(|(_, pid, _)| !self.frozen.iter().any(|(_, f, _)| f == pid))
            .collect();
        if targets.is_empty() {
            return Ok(());
        }
        let (name, pid, _) = targets[self.random.below(targets.len() as u64) as usize].clone();
        match self.random.below(10) {
            0..4 => {
                job.signal(pid, Signal::KILL);
                job.record.fault("kill", &name, "kill -9");
                say(&format!("chaos: kill -9 {name} (pid {pid})"));
            }
            4..8 => {
                let tenths = 5 + self.random.below(25) as u32;
                job.signal(pid, Signal::STOP);
                job.record.fault(
                    "freeze",
                    &name,
                    &format!("SIGSTOP for {:.1} lease TTLs", f64::from(tenths) / 10.0),
                );
                say(&format!(
                    "chaos: freeze {name} (pid {pid}) for {:.1} lease TTLs",
                    f64::from(tenths) / 10.0
                ));
                self.frozen.push((Instant::now() + self.ttl * tenths / 10, pid, name));
            }
            _ => {
                job.record.fault("leave", &name, "SIGTERM: hands back its tasks");
                say(&format!("chaos: {name} (pid {pid}) leaves"));
                job.ask_to_leave(pid);
            }
        }
        Ok(())
    }

    fn thaw(&mut self, job: &mut Supervisor, say: &mut dyn FnMut(&str)) {
        let now = Instant::now();
        self.frozen.retain(|(due, pid, name)| {
            if *due > now {
                return true;
            }
            job.signal(*pid, Signal::CONT);
            job.record.fault("thaw", name, "SIGCONT");
            say(&format!("chaos: thaw {name} (pid {pid})"));
            false
        });
    }
}
