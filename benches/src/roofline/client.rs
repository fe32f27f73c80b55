//! One trainer's pulls and pushes of a dense parameter, as the SDK makes them, without its routing and its patience: a message
//! for each block, several under way together.

use crate::pserver::{JOB, REWIND};
use crate::tcp::OnlyTcp;
use anyhow::{Context, ensure};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use shoal_runtime::cluster::layout::BLOCK_ELEMENTS_MAX;
use shoal_runtime::cluster::{Node, Precision};
use shoal_runtime::host::rpc::{Dial, PserverClient, TcpDial, pserver_client};
use shoal_runtime::wire::proto::{self, PushAnswer};

/// As in the SDK.
const CALLS: usize = 8;
const BLOCK: usize = BLOCK_ELEMENTS_MAX as usize;

pub(crate) struct Client {
    here: PserverClient,
    tcp: PserverClient,
    /// The next that is pushed.
    step: u64,
}

/// How bytes go.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    /// As a trainer takes it to a pserver of its own host: a Unix socket.
    Here,
    /// As to another host.
    Tcp,
}

impl Client {
    pub(crate) fn new(address: &str) -> anyhow::Result<Client> {
        let client = |dial: &dyn Dial| pserver_client(dial, address).map_err(anyhow::Error::msg);
        Ok(Client { here: client(&TcpDial::default())?, tcp: client(&OnlyTcp)?, step: 0 })
    }

    fn client(&self, way: Way) -> PserverClient {
        match way {
            Way::Here => self.here.clone(),
            Way::Tcp => self.tcp.clone(),
        }
    }

    /// The parameters of the next step, into `values`.
    pub(crate) async fn pull(&self, way: Way, values: &mut [f32]) -> anyhow::Result<()> {
        let blocks = values.len().div_ceil(BLOCK) as u32;
        let mut calls =
            stream::iter(0..blocks).map(|block| self.pull_once(way, block)).buffer_unordered(CALLS);
        while let Some(reply) = calls.next().await {
            for block in reply?.blocks {
                let values = values.chunks_mut(BLOCK).nth(block.block as usize).context("no such block")?;
                let words = block.parameters.as_chunks().0;
                ensure!(words.len() == values.len(), "{} values came", words.len());
                values.iter_mut().zip(words).for_each(|(value, word)| *value = f32::from_le_bytes(*word));
            }
        }
        Ok(())
    }

    async fn pull_once(&self, way: Way, block: u32) -> anyhow::Result<proto::PullReply> {
        let request = proto::PullRequest {
            job: JOB.into(),
            incarnation: 9,
            step: self.step,
            rewind: REWIND.0,
            wait_millis: 1000,
            blocks: vec![block],
            ..Default::default()
        };
        Ok(self.client(way).pull(request).await?.into_inner())
    }

    /// Asks for room and pushes the gradient of the next step, as it travels; it is applied and published when this returns.
    pub(crate) async fn push(
        &mut self,
        way: Way,
        gradient: &Bytes,
        precision: Precision,
    ) -> anyhow::Result<()> {
        let bytes = precision.bytes() * BLOCK;
        let blocks = gradient.len().div_ceil(bytes);
        let part = |block: usize| gradient.slice(bytes * block..gradient.len().min(bytes * (block + 1)));
        let question = self.message(blocks as u32 - 1, Bytes::new());
        let question = proto::PushRequest { asks: true, wait_millis: 1000, ..question };
        let told = self.client(way).push(question).await?.into_inner();
        ensure!(told.answers().eq([PushAnswer::Credit]), "{told:?}");
        let calls = (0..blocks).map(|block| self.push_once(way, block as u32, part(block)));
        let mut calls = stream::iter(calls).buffer_unordered(CALLS);
        while let Some(reply) = calls.next().await {
            let reply = reply?;
            ensure!(reply.answers().all(|answer| answer == PushAnswer::Applied), "{reply:?}");
        }
        drop(calls);
        self.step += 1;
        Ok(())
    }

    async fn push_once(&self, way: Way, block: u32, gradient: Bytes) -> anyhow::Result<proto::PushReply> {
        Ok(self.client(way).push(self.message(block, gradient)).await?.into_inner())
    }

    fn message(&self, block: u32, gradient: Bytes) -> proto::PushRequest {
        proto::PushRequest {
            job: JOB.into(),
            incarnation: 9,
            step: self.step,
            node: Some(Node::leaf(0).into()),
            weight: 1,
            blocks: vec![proto::BlockGradient { block, gradient, rewind: REWIND.0, ..Default::default() }],
            ..Default::default()
        }
    }
}
