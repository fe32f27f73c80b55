//! One trainer's pulls and pushes of rows, as the SDK makes them, without its routing and its patience: keys once each and by
//! bucket, messages of about 1 MiB under way together, rows into one array in key order.

use crate::pserver::{JOB, REWIND};
use crate::tcp::OnlyTcp;
use anyhow::{Context, ensure};
use futures_util::StreamExt;
use futures_util::future::try_join_all;
use shoal_runtime::cluster::{Node, Rows, Table};
use shoal_runtime::host::rpc::{PserverClient, pserver_client};
use shoal_runtime::wire::proto::{self, PushAnswer};
use shoal_runtime::wire::rows;

/// As in the SDK.
const MESSAGE_BYTES: usize = 1 << 20;

pub(crate) struct Client {
    client: PserverClient,
    table: Table,
    dimension: usize,
    /// The next that is pushed.
    step: u64,
}

impl Client {
    pub(crate) fn new(address: &str, dimension: usize) -> anyhow::Result<Client> {
        let client = pserver_client(&OnlyTcp, address).map_err(anyhow::Error::msg)?;
        Ok(Client { client, table: Table::default(), dimension, step: 0 })
    }

    /// The rows of the keys that occur, each once, in key order. All of them must have been born.
    pub(crate) async fn pull(&self, occurrences: &[u64]) -> anyhow::Result<Vec<f32>> {
        let mut rows = Rows::zeros(self.dimension, occurrences.iter().copied());
        let places = self.table.places(rows.keys());
        let wanted = (0..).zip(&places).filter(|(_, places)| !places.is_empty()).map(|(block, places)| {
            let mut keys = Vec::new();
            rows::encode_keys_at(rows.keys(), places, &mut keys);
            (proto::WantedRows { block, keys: keys.into() }, places.len() * (8 + 4 * self.dimension))
        });
        let calls = batches(wanted).into_iter().map(|rows| self.pull_once(rows));
        let mut pulled = 0;
        let mut calls: futures_util::stream::FuturesUnordered<_> = calls.collect();
        while let Some(reply) = calls.next().await {
            for block in reply?.blocks {
                let places = places.get(block.block as usize).context("rows of a bucket that is none")?;
                self.keep(places, &block.parameters, rows.values_mut())?;
                pulled += places.len();
            }
        }
        ensure!(pulled == rows.len(), "{pulled} of {} rows came", rows.len());
        Ok(rows.into_parts().1)
    }

    async fn pull_once(&self, rows: Vec<proto::WantedRows>) -> anyhow::Result<proto::PullReply> {
        let request = proto::PullRequest {
            job: JOB.into(),
            incarnation: 9,
            step: self.step,
            rewind: REWIND.0,
            wait_millis: 1000,
            rows,
            ..Default::default()
        };
        Ok(self.client.clone().pull(request).await?.into_inner())
    }

    fn keep(&self, places: &[u32], bytes: &[u8], values: &mut [f32]) -> anyhow::Result<()> {
        let pulled = rows::pulled(bytes, places.len(), self.dimension).context("no answer to a pull")?;
        for (place, row) in places.iter().zip(pulled) {
            let row = row.context("a key that was pushed has no row")?;
            let values = &mut values[*place as usize * self.dimension..][..self.dimension];
            values.iter_mut().zip(row).for_each(|(value, word)| *value = f32::from_le_bytes(*word));
        }
        Ok(())
    }

    /// Pushes the gradients of the next step; they are applied and published when it returns.
    pub(crate) async fn push(&mut self, gradients: &Rows) -> anyhow::Result<()> {
        // Every block makes the step, those without rows too.
        let blocks = (0..).zip(self.table.places(gradients.keys())).map(|(block, places)| {
            let mut gradient = Vec::new();
            rows::encode_places(gradients, &places, &mut gradient);
            let (bytes, rewind) = (gradient.len(), REWIND.0);
            (proto::BlockGradient { block, gradient: gradient.into(), rewind, ..Default::default() }, bytes)
        });
        let calls = batches(blocks).into_iter().map(|blocks| self.push_once(blocks));
        for reply in try_join_all(calls).await? {
            ensure!(reply.answers().all(|answer| answer == PushAnswer::Applied), "{reply:?}");
        }
        self.step += 1;
        Ok(())
    }

    async fn push_once(&self, blocks: Vec<proto::BlockGradient>) -> anyhow::Result<proto::PushReply> {
        let request = proto::PushRequest {
            job: JOB.into(),
            incarnation: 9,
            step: self.step,
            node: Some(Node::leaf(0).into()),
            weight: 1,
            blocks,
            ..Default::default()
        };
        Ok(self.client.clone().push(request).await?.into_inner())
    }
}

/// Parts in messages of about 1 MiB.
fn batches<T>(parts: impl Iterator<Item = (T, usize)>) -> Vec<Vec<T>> {
    let (mut batches, mut batch, mut room) = (Vec::new(), Vec::new(), MESSAGE_BYTES);
    for (part, bytes) in parts {
        if bytes > room && !batch.is_empty() {
            batches.push(std::mem::take(&mut batch));
            room = MESSAGE_BYTES;
        }
        room = room.saturating_sub(bytes);
        batch.push(part);
    }
    batches.push(batch);
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_filled_up_to_their_size_and_nothing_is_lost() {
        let parts = (0..10).map(|part| (part, MESSAGE_BYTES * 3 / 8));
        assert_eq!(batches(parts).concat(), (0..10).collect::<Vec<i32>>());
        assert_eq!(batches((0..10).map(|part| (part, MESSAGE_BYTES * 3 / 8)))[0].len(), 2);
        assert_eq!(batches([(7, 2 * MESSAGE_BYTES), (8, 1)].into_iter()), [vec![7], vec![8]]);
    }
}
