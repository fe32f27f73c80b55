//! Updates that fall due all at once: of a whole shard, once what was decided over all blocks is known, and of a follower that has
//! been left behind. How long they take with one processor and with more, and what `/healthz` answers meanwhile. This bench is the
//! trainer; master and pservers are processes as a cluster starts them. It must never count the way of the gradients.

mod cluster;
mod print;
mod probe;
mod trainer;

pub(super) use self::print::Heading;

use self::cluster::{Cluster, Pserver};
use self::probe::Probe;
use self::trainer::Trainer;
use super::parts::Part;
use super::{Arguments, say};
use crate::measure::Spread;
use crate::process::thread_seconds;
use crate::programs::Programs;
use anyhow::ensure;
use serde::Serialize;
use std::collections::BTreeMap;
use tokio::time::Instant;

/// Of a follower that stands still while its primary is pushed to.
const FOLLOWED_TTL_MILLIS: u64 = 60_000;

/// What one kind of pserver did with so many processors.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// Decided or followed.
    part: Part,
    /// Updated in each step, by the pserver that is measured.
    elements: u64,
    /// Processors that it was given.
    cores: u32,
    ttl_millis: u64,
    /// Seconds of a step's updates; `None`: not one was measured.
    seconds: Option<Spread>,
    /// In those with the fewest processors; `None`: one of the two has no figure.
    of_the_fewest: Option<f64>,
    /// Processor seconds of the pserver in that time, all its threads together.
    processor_seconds: Option<Spread>,
    /// And of the thread that ran most of it. No machine, however idle, does it in less.
    busiest_seconds: Option<Spread>,
    /// Of answers of `/healthz` during updates, in milliseconds: the longest.
    healthz_longest_millis: Option<f64>,
    /// Why not all steps were made: `None`, they were.
    cut_short: Option<String>,
}

/// The updates of one step.
struct Update {
    seconds: f64,
    processor_seconds: f64,
    busiest_seconds: f64,
    healthz_longest_millis: f64,
}

/// Looks at a pserver while it updates.
struct Stopwatch {
    process: u32,
    begin: Instant,
    threads: BTreeMap<u32, f64>,
}

impl Stopwatch {
    fn start(pserver: &Pserver) -> anyhow::Result<Stopwatch> {
        let (process, begin) = (pserver.id(), Instant::now());
        Ok(Stopwatch { process, begin, threads: thread_seconds(process)? })
    }

    fn stop(self, probe: Probe) -> anyhow::Result<Update> {
        let seconds = self.begin.elapsed().as_secs_f64();
        let before = |thread: &u32| self.threads.get(thread).copied().unwrap_or(0.0);
        let ran = thread_seconds(self.process)?.into_iter().map(|(thread, after)| after - before(&thread));
        let ran: Vec<f64> = ran.collect();
        Ok(Update {
            seconds,
            processor_seconds: ran.iter().sum(),
            busiest_seconds: ran.into_iter().fold(0.0, f64::max),
            healthz_longest_millis: probe.longest_since(self.begin)?,
        })
    }
}

/// The rows of a part, one for each number of processors.
///
/// # Errors
/// A process that does not start, a machine with fewer processors than are asked for.
pub(super) fn rows(part: Part, arguments: &Arguments, programs: &Programs) -> anyhow::Result<Vec<Row>> {
    let here = std::thread::available_parallelism()?.get();
    let most = arguments.cores.iter().copied().max().unwrap_or(1);
    ensure!(most as usize <= here, "--cores {most}: this machine has {here} processors for this bench");
    let mut rows: Vec<Row> = Vec::new();
    for cores in &arguments.cores {
        let mut row = row(part, *cores, arguments, programs)?;
        let fewest = rows.first().unwrap_or(&row).seconds.map(|seconds| seconds.median);
        row.of_the_fewest = row.seconds.zip(fewest).map(|(seconds, fewest)| seconds.median / fewest);
        rows.push(row);
    }
    Ok(rows)
}

fn row(part: Part, cores: u32, arguments: &Arguments, programs: &Programs) -> anyhow::Result<Row> {
    let ttl_millis = if part == Part::Followed { FOLLOWED_TTL_MILLIS } else { arguments.ttl };
    let (mut updates, mut cut_short, mut elements) = (Vec::new(), None, 0);
    for round in 1..=arguments.rounds {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let measured = runtime.block_on(async {
            let cluster = Cluster::start(programs, part, cores, ttl_millis, arguments.steps + 2)?;
            let mut trainer = Trainer::join(&cluster, part, arguments.elements).await?;
            elements = trainer.elements_updated();
            for step in 0..=arguments.steps {
                let update = match part {
                    Part::Followed => followed(&cluster, &mut trainer).await,
                    _ => decided(&cluster, &mut trainer).await,
                };
                // The first is not counted: memory is asked for.
                updates.extend(update?.filter(|_| step > 0));
                if let Some(why) = trainer.went_back().await? {
                    return Ok(Some(why));
                }
            }
            trainer.check(&trainer.blocks()).await?;
            anyhow::Ok(None)
        });
        let took: Vec<f64> = updates.iter().map(|update: &Update| update.seconds).collect();
        say(&format!("round {round}, {part}, {cores} processors: {took:.3?} s"));
        cut_short = measured?;
        if cut_short.is_some() {
            break;
        }
    }
    let of = |figure: fn(&Update) -> f64| {
        let figures: Vec<f64> = updates.iter().map(figure).collect();
        (!figures.is_empty()).then(|| Spread::of(figures))
    };
    Ok(Row {
        part,
        elements,
        cores,
        ttl_millis,
        seconds: of(|update| update.seconds),
        of_the_fewest: None,
        processor_seconds: of(|update| update.processor_seconds),
        busiest_seconds: of(|update| update.busiest_seconds),
        healthz_longest_millis: of(|update| update.healthz_longest_millis).map(|millis| millis.max),
        cut_short,
    })
}

/// From the last push of a step until the step is published: nothing is updated before, for nothing is decided. `None`: it never
/// was published.
async fn decided(cluster: &Cluster, trainer: &mut Trainer) -> anyhow::Result<Option<Update>> {
    let probe = Probe::start(&cluster.measured().pages)?;
    let blocks = trainer.blocks();
    let Some((last, others)) = blocks.split_last() else { return Ok(None) };
    trainer.push(others).await?;
    let stopwatch = Stopwatch::start(cluster.measured())?;
    trainer.push(std::slice::from_ref(last)).await?;
    let is_published = trainer.published(&blocks).await?;
    let update = stopwatch.stop(probe)?;
    trainer.step += 1;
    Ok(is_published.then_some(update))
}

/// From the moment on that a follower, which stood still while its primary was pushed to, goes on, until it has all that its
/// primary has: only then is that published. What the other leads of the two is pushed before.
async fn followed(cluster: &Cluster, trainer: &mut Trainer) -> anyhow::Result<Option<Update>> {
    let follower = cluster.measured();
    let (own, others): (Vec<_>, Vec<_>) =
        trainer.blocks().into_iter().partition(|block| block.is_led_at(&follower.address));
    trainer.push(&own).await?;
    ensure!(trainer.published(&own).await?, "what the follower leads was not published");
    follower.stand_still()?;
    trainer.push(&others).await?;
    let stopwatch = Stopwatch::start(follower)?;
    follower.go_on()?;
    let probe = Probe::start(&follower.pages)?;
    let is_published = trainer.published(&others).await?;
    let update = stopwatch.stop(probe)?;
    trainer.step += 1;
    Ok(is_published.then_some(update))
}
