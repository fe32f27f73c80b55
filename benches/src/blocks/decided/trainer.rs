//! The trainer of such a job: it joins, and pushes one gradient to every block. It pulls nothing, it only asks what is published.

use super::Part;
use super::cluster::{Cluster, JOB};
use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use shoal_runtime::cluster::initial::Initial;
use shoal_runtime::cluster::{Decisions, Declaration, Layout, Node, Parameter, Rule, Schedule};
use shoal_runtime::host::rpc::{Channel, PserverClient, TcpDial, master_client, pserver_client};
use shoal_runtime::wire::proto::{self, PushAnswer, StatusReply, StatusRequest, master_client::MasterClient};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tonic::Response;

/// As in the SDK.
const CALLS: usize = 8;
/// Between two looks at what is not there yet.
const PAUSE: Duration = Duration::from_millis(20);
/// How long blocks may take to be placed, filled and copied, and a step to be published.
const PATIENCE: Duration = Duration::from_secs(120);
/// Blocks of each pserver that are asked whether they are published, the first and the last among them: to ask all would cost the
/// pserver more.
const ASKED: usize = 64;
const GRADIENT: f32 = 0.25;
const RATE: f32 = 0.001;
/// Smaller than the norm of these gradients.
const CLIP_NORM: f32 = 1.0;

pub(super) struct Trainer {
    master: MasterClient<Channel>,
    pservers: BTreeMap<String, PserverClient>,
    blocks: Vec<Block>,
    gradient: Bytes,
    part: Part,
    incarnation: u64,
    /// The next that is pushed.
    pub(super) step: u64,
}

/// A block that gradients are pushed to.
#[derive(Clone, Debug)]
pub(super) struct Block {
    number: u32,
    elements: usize,
    rewind: u64,
    /// Of its primary.
    address: String,
}

impl Block {
    /// Whether the pserver there leads it.
    pub(super) fn is_led_at(&self, address: &str) -> bool {
        self.address == address
    }
}

impl Trainer {
    /// Of a job with Adam and one parameter of so many elements. Ready when all copies are.
    pub(super) async fn join(cluster: &Cluster, part: Part, elements: u64) -> anyhow::Result<Trainer> {
        let master = master_client(&TcpDial::default(), &cluster.address).map_err(anyhow::Error::msg)?;
        let declaration = declaration(part, elements);
        declaration.check()?;
        let layout = Layout::new(&declaration);
        let largest = layout.iter().map(|(_, block)| block.elements).max().unwrap_or(0);
        let gradient = vec![GRADIENT.to_le_bytes(); largest].into_flattened().into();
        let (blocks, pservers) = (Vec::new(), BTreeMap::new());
        let mut trainer = Trainer { master, pservers, blocks, gradient, part, incarnation: 0, step: 0 };
        let routing = trainer.routed(&declaration).await?;
        trainer.take(&layout, &routing)?;
        trainer.copied(cluster.followers * layout.len() as u64).await?;
        Ok(trainer)
    }

    /// The routing, once there is one.
    async fn routed(&mut self, declaration: &Declaration) -> anyhow::Result<proto::Routing> {
        let join = proto::JoinRequest {
            job: JOB.into(),
            name: "trainer-0".to_owned(),
            nonce: 1,
            declaration: Some(declaration.into()),
            process: std::process::id(),
            ..Default::default()
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            // A master does not lead from its first moment on.
            match self.master.join(join.clone()).await.map(Response::into_inner) {
                Ok(proto::JoinReply { incarnation, routing: Some(routing), .. }) => {
                    self.incarnation = incarnation;
                    return Ok(routing);
                }
                Ok(_) => ensure!(Instant::now() < deadline, "no pserver has come in {PATIENCE:?}"),
                Err(why) => {
                    ensure!(Instant::now() < deadline, "the master does not take a trainer in: {why}");
                }
            }
            sleep(PAUSE).await;
        }
    }

    fn take(&mut self, layout: &Layout, routing: &proto::Routing) -> anyhow::Result<()> {
        for range in &routing.ranges {
            let pserver =
                routing.pservers.get(range.pserver as usize).context("a range without a pserver")?;
            let address = &pserver.address;
            if !self.pservers.contains_key(address) {
                let client = pserver_client(&TcpDial::default(), address).map_err(anyhow::Error::msg)?;
                self.pservers.insert(address.clone(), client);
            }
            let numbers = range.first_block..range.first_block + range.blocks;
            for (id, block) in layout.iter().filter(|(id, block)| numbers.contains(&id.0) && block.is_pushed)
            {
                let (elements, address) = (block.elements, address.clone());
                self.blocks.push(Block { number: id.0, elements, rewind: range.rewind, address });
            }
        }
        Ok(())
    }

    /// Waits until so many copies are in sync.
    async fn copied(&mut self, copies: u64) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.status().await?.copies_in_sync < copies {
            ensure!(Instant::now() < deadline, "copies are not in sync after {PATIENCE:?}");
            sleep(PAUSE).await;
        }
        Ok(())
    }

    async fn status(&mut self) -> anyhow::Result<StatusReply> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.master.status(StatusRequest { job: JOB.into(), ..Default::default() }).await {
                Ok(status) => return Ok(status.into_inner()),
                Err(why) => ensure!(Instant::now() < deadline, "the master says nothing: {why}"),
            }
            sleep(PAUSE).await;
        }
    }

    /// Why what comes after the step that was made last would be no measurement any more, if so.
    pub(super) async fn went_back(&mut self) -> anyhow::Result<Option<String>> {
        let status = self.status().await?;
        if !status.failure.is_empty() {
            return Ok(Some(format!("the job failed: {}", status.failure)));
        }
        let went_back = status.rewind > 0 || status.pservers.iter().any(|pserver| pserver.lost);
        let step = self.step.saturating_sub(1);
        let why = || format!("the pserver was taken for lost, and the job went back, in step {step}");
        Ok(went_back.then(why))
    }

    /// All blocks that are pushed to, in order.
    pub(super) fn blocks(&self) -> Vec<Block> {
        self.blocks.clone()
    }

    /// In each step, at once: all, or those that a follower follows, about half of them.
    pub(super) fn elements_updated(&self) -> u64 {
        let all: u64 = self.blocks.iter().map(|block| block.elements as u64).sum();
        if self.part == Part::Followed { all / 2 } else { all }
    }

    /// Pushes this step's gradient to these blocks, and waits until each has taken it in.
    pub(super) async fn push(&self, blocks: &[Block]) -> anyhow::Result<()> {
        let mut calls = stream::iter(blocks).map(|block| self.push_one(block)).buffer_unordered(CALLS);
        while let Some(pushed) = calls.next().await {
            pushed?;
        }
        Ok(())
    }

    async fn push_one(&self, block: &Block) -> anyhow::Result<()> {
        let gradient = self.gradient.slice(..4 * block.elements);
        let request = proto::PushRequest {
            job: JOB.into(),
            incarnation: self.incarnation,
            step: self.step,
            node: Some(Node::leaf(0).into()),
            weight: 1,
            blocks: vec![proto::BlockGradient {
                block: block.number,
                gradient,
                rewind: block.rewind,
                ..Default::default()
            }],
            ..Default::default()
        };
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let reply = self.client(block)?.push(request.clone()).await?.into_inner();
            match reply.answers().next() {
                Some(PushAnswer::Held | PushAnswer::Applied) => return Ok(()),
                Some(PushAnswer::Busy) => sleep(PAUSE).await,
                // The job has gone back: whoever pushed asks the master.
                Some(PushAnswer::Rewound | PushAnswer::Moved) => return Ok(()),
                other => bail!("block {}: a push was answered {other:?}", block.number),
            }
        }
        bail!("block {} has no room for a gradient after {PATIENCE:?}", block.number)
    }

    fn client(&self, block: &Block) -> anyhow::Result<PserverClient> {
        Ok(self.pservers.get(&block.address).context("a pserver that nobody knows")?.clone())
    }

    /// Waits until this step is published by these blocks, some of which are asked. False: they have moved or gone back.
    pub(super) async fn published(&self, blocks: &[Block]) -> anyhow::Result<bool> {
        let mut of_pserver: BTreeMap<&str, Vec<&Block>> = BTreeMap::new();
        for block in blocks {
            of_pserver.entry(&block.address).or_default().push(block);
        }
        let asked = of_pserver.into_values().map(|blocks| self.published_by(blocks));
        let told: Vec<bool> = futures_util::future::try_join_all(asked).await?;
        Ok(told.into_iter().all(|is_published| is_published))
    }

    /// Whether these blocks have what the steps up to now make of them: of a gradient that is always the same Adam makes the rate.
    pub(super) async fn check(&self, blocks: &[Block]) -> anyhow::Result<()> {
        for block in spread(blocks) {
            let request = proto::PullRequest {
                job: JOB.into(),
                incarnation: self.incarnation,
                step: self.step,
                rewind: block.rewind,
                wait_millis: 1000,
                blocks: vec![block.number],
                ..Default::default()
            };
            let reply = self.client(block)?.pull(request).await?.into_inner();
            let pulled =
                reply.blocks.first().with_context(|| format!("block {} does not come", block.number))?;
            check_values(self.step, &pulled.parameters, block.elements)
                .with_context(|| format!("block {}", block.number))?;
        }
        Ok(())
    }

    async fn published_by(&self, led: Vec<&Block>) -> anyhow::Result<bool> {
        let mut blocks: Vec<&Block> = spread(&led).into_iter().copied().collect();
        let deadline = Instant::now() + PATIENCE;
        while let Some(first) = blocks.first() {
            ensure!(Instant::now() < deadline, "step {} is not published after {PATIENCE:?}", self.step);
            let request = proto::PullRequest {
                job: JOB.into(),
                incarnation: self.incarnation,
                step: self.step + 1,
                rewind: first.rewind,
                wait_millis: 1000,
                without_data: blocks.iter().map(|block| block.number).collect(),
                ..Default::default()
            };
            let reply = self.client(first)?.pull(request).await?.into_inner();
            if !reply.moved.is_empty() {
                return Ok(false);
            }
            blocks.retain(|block| reply.blocks.iter().all(|published| published.block != block.number));
        }
        Ok(true)
    }
}

fn declaration(part: Part, elements: u64) -> Declaration {
    let rate = Schedule::constant(RATE);
    let weights = Parameter::new("w", &[elements], Rule::ADAM, rate, Initial::Zeros);
    let declaration = Declaration { parameters: vec![weights], block_elements: 0 };
    let clipping = Decisions { clip_norm: Some(CLIP_NORM), ..Decisions::default() };
    if part == Part::Decided { declaration.deciding(clipping) } else { declaration }
}

/// Within a hundredth of what so many steps make, for sums are rounded, and what keeps a quotient finite has its part.
fn check_values(steps: u64, parameters: &[u8], elements: usize) -> anyhow::Result<()> {
    let expected = -(steps as f32) * RATE;
    let values = parameters.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word));
    let right = values.filter(|value| (value / expected - 1.0).abs() < 0.01).count();
    ensure!(right == elements, "{right} of {elements} values are about {expected} after {steps} steps");
    Ok(())
}

/// Some of them, evenly, the first and the last among them.
fn spread<T>(all: &[T]) -> Vec<&T> {
    if all.len() <= ASKED {
        return all.iter().collect();
    }
    (0..ASKED).map(|at| &all[at * (all.len() - 1) / (ASKED - 1)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_are_asked_lie_evenly_and_the_first_and_the_last_are_among_them() {
        let asked: Vec<u32> = spread(&(0..1000).collect::<Vec<u32>>()).into_iter().copied().collect();
        assert_eq!((asked.len(), asked[0], asked[ASKED - 1]), (ASKED, 0, 999));
        assert!(asked.windows(2).all(|pair| (15..=16).contains(&(pair[1] - pair[0]))));
        assert_eq!(spread(&[3, 4]), [&3, &4]);
    }

    #[test]
    fn a_step_that_was_not_made_and_a_value_that_did_not_come_show() {
        let after = |value: f32| vec![value.to_le_bytes(); 4].into_flattened();
        check_values(9, &after(-0.008_99), 4).unwrap();
        for wrong in [after(-0.008), after(-0.01), after(0.0), after(f32::NAN), after(-0.009)[4..].to_vec()] {
            assert!(check_values(9, &wrong, 4).is_err());
        }
    }
}
