//! A trainer moved by hand: it says what a directed test tells it to, through the simulated network.

use super::host::Host;
use super::link::Door;
use super::reference;
use super::world::{JOB, MASTER, World};
use shoal_runtime::cluster::layout::BlockLayout;
use shoal_runtime::cluster::precision::bf16_to_bytes;
use shoal_runtime::cluster::{Declaration, Layout, Node, Precision, Routing, Step};
use shoal_runtime::host::rpc::{Channel, PserverClient, master_client, pserver_client};
use shoal_runtime::wire::Fault;
use shoal_runtime::wire::proto::{self, PushAnswer, master_client::MasterClient};
use shoal_trainer_sdk::usual_environment;
use std::time::Duration;
use tokio::time::sleep;

/// A trainer of the simulation's program that has joined.
#[derive(Debug)]
pub struct Hand {
    /// The master's number for this life.
    pub incarnation: u64,
    /// The job's parameters.
    pub declaration: Declaration,
    /// How they are cut.
    pub layout: Layout,
    /// Who hosts what.
    pub routing: Routing,
    calls: u64,
    master: MasterClient<Channel>,
    door: Door,
}

impl Hand {
    /// Joins under `name`, as the life that `nonce` tells from others, and waits until blocks are placed.
    ///
    /// # Errors
    /// The master's refusal.
    pub async fn join(world: &World, name: &str, nonce: u64) -> Result<Hand, Fault> {
        let declaration = world.scenario.program().declaration(world.job.records);
        Hand::join_with(world, name, nonce, declaration).await
    }

    /// Joins with another declaration than the program's.
    ///
    /// # Errors
    /// The master's refusal.
    pub async fn join_with(
        world: &World,
        name: &str,
        nonce: u64,
        declaration: Declaration,
    ) -> Result<Hand, Fault> {
        let door = Door::of(&Host::new(name), &world.network);
        let mut master = master_client(&door, MASTER).expect("any address will do");
        let request = proto::JoinRequest {
            job: JOB.to_owned(),
            name: name.to_owned(),
            nonce,
            declaration: Some((&declaration).into()),
            environment: (&usual_environment()).into(),
            ..Default::default()
        };
        let (incarnation, routing) = loop {
            let reply = master.join(request.clone()).await?.into_inner();
            if let Some(routing) = reply.routing {
                break (reply.incarnation, Routing::try_from(routing)?);
            }
            sleep(Duration::from_millis(50)).await;
        };
        let layout = Layout::new(&declaration);
        Ok(Hand { incarnation, declaration, layout, routing, calls: 0, master, door })
    }

    /// Learns the present routing.
    ///
    /// # Errors
    /// The master's refusal.
    pub async fn look_again(&mut self) -> Result<(), Fault> {
        let request = proto::RouteRequest { job: JOB.to_owned(), routing_version: 0, wait_millis: 0 };
        if let Some(routing) = self.master.route(request).await?.into_inner().routing {
            self.routing = Routing::try_from(routing)?;
        }
        Ok(())
    }

    /// The index of the pserver at an address, in the routing that it knows.
    pub fn index(&self, address: &str) -> usize {
        let found = self.routing.pservers.iter().rposition(|pserver| pserver.address == address);
        found.unwrap_or_else(|| panic!("{address} is not in {:?}", self.routing))
    }

    /// Asks for up to `want` tasks and tells of no progress.
    ///
    /// # Errors
    /// The master's refusal.
    pub async fn lease(&mut self, want: u32) -> Result<Vec<proto::Task>, Fault> {
        Ok(self.say(want, Vec::new()).await?.tasks)
    }

    /// Tells of `progress`, true or not, and asks for up to `want` tasks.
    ///
    /// # Errors
    /// The master's refusal.
    pub async fn say(
        &mut self,
        want: u32,
        progress: Vec<proto::Progress>,
    ) -> Result<proto::LeaseReply, Fault> {
        self.calls += 1;
        let request = proto::LeaseRequest {
            job: JOB.to_owned(),
            incarnation: self.incarnation,
            want,
            progress,
            call: self.calls,
            ..Default::default()
        };
        Ok(self.master.lease(request).await?.into_inner())
    }

    /// The push message of one node for the blocks of one pserver (an index into the routing), computed from the
    /// definition at the step's version.
    pub fn message(&self, world: &World, pserver: usize, step: u64, node: Node) -> proto::PushRequest {
        let (sums, weight) =
            reference::node_sum(world.scenario.program(), &world.job, &world.data, Step(step), node);
        let blocks = self.routing.blocks_of(pserver).into_iter();
        let blocks = blocks.filter(|id| Some(*id) != self.layout.scalars()).map(|id| {
            let gradient = self.layout.block(id).map(|block| encoded(block, &sums, world.job.gradients));
            let gradient = gradient.unwrap_or_default();
            let rewind = self.routing.blocks[id.0 as usize].rewind.0;
            proto::BlockGradient { block: id.0, gradient: gradient.into(), rewind, ..Default::default() }
        });
        proto::PushRequest {
            job: JOB.to_owned(),
            incarnation: self.incarnation,
            step,
            node: Some(node.into()),
            weight,
            blocks: blocks.collect(),
            position: 0,
            exclusions: 0,
            ..Default::default()
        }
    }

    /// Pushes one node to one pserver. Returns what all of its blocks answered; they must agree.
    ///
    /// # Errors
    /// The pserver's refusal.
    pub async fn push(
        &self,
        world: &World,
        pserver: usize,
        step: u64,
        node: Node,
    ) -> Result<PushAnswer, Fault> {
        let answers = self.send(pserver, self.message(world, pserver, step, node)).await?;
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "blocks disagree: {answers:?}");
        Ok(answers.first().copied().unwrap_or_default())
    }

    /// Sends a push message as it is, waiting until the pserver has its blocks.
    ///
    /// # Errors
    /// The pserver's refusal.
    pub async fn send(&self, pserver: usize, push: proto::PushRequest) -> Result<Vec<PushAnswer>, Fault> {
        let mut tries = 0;
        loop {
            let reply = self.pserver(pserver).push(push.clone()).await.map_err(Fault::from)?;
            let answers: Vec<PushAnswer> = reply.into_inner().answers().collect();
            let is_early = |answer: &PushAnswer| matches!(answer, PushAnswer::Moved | PushAnswer::Busy);
            tries += 1;
            if tries > 10 || !answers.iter().any(is_early) {
                return Ok(answers);
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// A client of one pserver.
    pub fn pserver(&self, pserver: usize) -> PserverClient {
        let address = &self.routing.pservers[pserver].address;
        pserver_client(&self.door, address).expect("any address will do")
    }
    /// A client of the master.
    pub fn master(&self) -> MasterClient<Channel> {
        self.master.clone()
    }

    /// Does all of one step, each pserver getting the root at once.
    ///
    /// # Errors
    /// A pserver's refusal.
    pub async fn do_step(&self, world: &World, step: u64) -> Result<(), Fault> {
        let root = world.job.shape().tree(Step(step)).root();
        for pserver in 0..self.routing.pservers.len() {
            if !self.routing.blocks_of(pserver).is_empty() {
                self.push_until_applied(world, pserver, step, root).await?;
            }
        }
        Ok(())
    }

    /// Pushes one node to one pserver until all copies of its blocks have it.
    ///
    /// # Errors
    /// The pserver's refusal, or the last answer.
    pub async fn push_until_applied(
        &self,
        world: &World,
        pserver: usize,
        step: u64,
        node: Node,
    ) -> Result<(), Fault> {
        let mut answers = Vec::new();
        for _ in 0..200 {
            answers = self.send(pserver, self.message(world, pserver, step, node)).await?;
            if answers.iter().all(|answer| *answer == PushAnswer::Applied) {
                return Ok(());
            }
            sleep(Duration::from_millis(20)).await;
        }
        Err(Fault::Impossible(format!("step {step} is not applied: {answers:?}")))
    }

    /// In asynchronous jobs: the push message of one position of the first epoch for the blocks of one pserver, as if
    /// computed from the initial values.
    pub fn position_message(&self, world: &World, pserver: usize, position: u64) -> proto::PushRequest {
        let shape = world.job.shape();
        let epoch = shape.training();
        let slots = (0..epoch.steps()).flat_map(|step| (0..epoch.slots()).map(move |slot| (step, slot)));
        let found = slots
            .filter(|(step, slot)| *slot < epoch.tree(Step(*step)).present())
            .find(|(step, slot)| epoch.microbatch(Step(*step), *slot) == position);
        let (step, slot) = found.expect("a position of the first epoch");
        let message = self.message(world, pserver, step, Node::leaf(slot));
        proto::PushRequest { step: 0, node: None, position, ..message }
    }
}

/// A block's gradient as it travels.
fn encoded(block: &BlockLayout, sums: &[Vec<f32>], gradients: Precision) -> Vec<u8> {
    let mut values = Vec::new();
    block.gather(sums, &mut values);
    match block.precision(gradients) {
        Precision::F32 => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        Precision::Bf16 => values.iter().flat_map(|value| bf16_to_bytes(*value)).collect(),
    }
}
