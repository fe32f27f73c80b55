//! The rival: synchronous steps as fast as they can be had when bits may depend on who came first. Each trainer, a thread with a
//! connection of its own, takes the next microbatch whenever it is free and pushes one sum a step. Its calls are those of our
//! pservers; it asks nobody for tasks.

use super::arrivals::Adding;
use super::begins::Begins;
use super::load::Load;
use crate::measure::{pause, wall_nanos};
use crate::pserver::Pserver;
use anyhow::{Context, anyhow, ensure};
use bytes::Bytes;
use shoal_runtime::host::rpc::{PserverClient, TcpDial, pserver_client};
use shoal_runtime::wire::proto;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use tokio::runtime::Runtime;

/// How long a call is kept open, and how often it is made again before a step is given up.
const WAIT_MILLIS: u32 = 1000;
const CALLS_MAX: u32 = 60;

/// Runs so many steps with so many trainers.
pub(crate) fn run(trainers: u32, steps: u32, load: Load) -> anyhow::Result<Begins> {
    let told = serde_json::to_string(&Adding(load))?;
    let pserver = Pserver::start(&["--add", &told])?;
    let job = Job { load, steps: (0..steps).map(|_| Step::default()).collect(), address: &pserver.address };
    std::thread::scope(|scope| {
        let trainers: Vec<_> = (0..trainers).map(|_| scope.spawn(|| job.train())).collect();
        let ends =
            trainers.into_iter().map(|trainer| trainer.join().map_err(|_| anyhow!("a trainer panicked"))?);
        ends.collect::<anyhow::Result<Vec<()>>>()
    })?;
    Begins::new(job.steps.iter().map(|step| step.begun.load(Relaxed)).collect())
}

struct Job<'a> {
    load: Load,
    steps: Vec<Step>,
    address: &'a str,
}

/// What all trainers share of a step.
struct Step {
    /// The next microbatch that nobody has taken.
    next: AtomicU32,
    begun: AtomicU64,
}

impl Default for Step {
    fn default() -> Step {
        Step { next: AtomicU32::new(0), begun: AtomicU64::new(u64::MAX) }
    }
}

/// A gradient as it lies in memory.
struct Sum(Vec<f32>);

impl AsRef<[u8]> for Sum {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

impl Job<'_> {
    /// One trainer, until all steps are done.
    fn train(&self) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = runtime.block_on(async { pserver_client(&TcpDial::default(), self.address) });
        let client = client.map_err(anyhow::Error::msg)?;
        let mut values = vec![0.0; self.load.elements];
        for (number, step) in (0..).zip(&self.steps) {
            self.pull(&runtime, &client, number, &mut values)?;
            self.load.check(number, &values)?;
            let (sum, weight) = self.compute(number, step);
            if weight > 0 {
                runtime.block_on(push(client.clone(), number, sum, weight))?;
            }
        }
        let end = self.steps.len() as u64;
        self.pull(&runtime, &client, end, &mut values)?;
        self.load.check(end, &values)
    }

    /// Microbatches as long as there are any: their sum, and how many they were.
    fn compute(&self, number: u64, step: &Step) -> (Vec<f32>, u64) {
        let (mut sum, mut weight) = (vec![0.0; self.load.elements], 0);
        let mut gradient = sum.clone();
        loop {
            let slot = step.next.fetch_add(1, Relaxed);
            if slot >= self.load.microbatches {
                return (sum, weight);
            }
            if slot == 0 {
                step.begun.store(wall_nanos(), Relaxed);
            }
            pause(self.load.pause(number, slot));
            // What a training program does; the rest is the rival's.
            gradient.fill(self.load.gradient(slot));
            sum.iter_mut().zip(&gradient).for_each(|(sum, gradient)| *sum += gradient);
            weight += 1;
        }
    }

    /// The parameters of a step, once it may begin.
    fn pull(
        &self,
        runtime: &Runtime,
        client: &PserverClient,
        step: u64,
        values: &mut [f32],
    ) -> anyhow::Result<()> {
        let request =
            proto::PullRequest { step, wait_millis: WAIT_MILLIS, blocks: vec![0], ..Default::default() };
        for _ in 0..CALLS_MAX {
            let reply = runtime.block_on(client.clone().pull(request.clone()))?.into_inner();
            let Some(block) = reply.blocks.first() else { continue };
            let words = block.parameters.as_chunks().0;
            ensure!(words.len() == values.len(), "{} values came", words.len());
            values.iter_mut().zip(words).for_each(|(value, word)| *value = f32::from_le_bytes(*word));
            return Ok(());
        }
        Err(anyhow!("step {step} never began"))
    }
}

async fn push(mut client: PserverClient, step: u64, sum: Vec<f32>, weight: u64) -> anyhow::Result<()> {
    let block = proto::BlockGradient { gradient: Bytes::from_owner(Sum(sum)), ..Default::default() };
    let request = proto::PushRequest { step, weight, blocks: vec![block], ..Default::default() };
    client.push(request).await.with_context(|| format!("pushing to step {step}"))?;
    Ok(())
}
