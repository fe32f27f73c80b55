//! Messages on their way out and in, as bodies of calls carry them: pushes and pulls of blocks, sums over rows of tables.

use super::{HotPath, Walk};
use bytes::{BufMut, Bytes};
use prost::Message;
use shoal_runtime::cluster::Rows;
use shoal_runtime::wire::proto::{BlockGradient, PullReply, PulledBlock, PushRequest};
use shoal_runtime::wire::rope::{Rope, Writer};
use shoal_runtime::wire::rows;
use std::hint::black_box;

/// Blocks of one message, and bytes of each.
const LARGE: (u32, usize) = (1, 1 << 20);
const SMALL: (u32, usize) = (256, 1 << 10);
const ROWS: u32 = 10_000;
const DIMENSION: usize = 16;

pub(super) fn paths() -> Vec<HotPath> {
    let (message, block, row) = ((1, "message"), (SMALL.0, "block"), (ROWS, "row"));
    vec![
        HotPath::new("wire/push/encode/large", message, 200, || encode(push(LARGE))),
        HotPath::new("wire/push/encode/small", block, 20, || encode(push(SMALL))),
        HotPath::new("wire/push/decode/large", message, 200, || decode(&push(LARGE))),
        HotPath::new("wire/push/decode/small", block, 20, || decode(&push(SMALL))),
        HotPath::new("wire/pull/encode/large", message, 200, || encode(pull(LARGE))),
        HotPath::new("wire/pull/encode/small", block, 20, || encode(pull(SMALL))),
        HotPath::new("wire/pull/decode/large", message, 200, || decode(&pull(LARGE))),
        HotPath::new("wire/pull/decode/small", block, 20, || decode(&pull(SMALL))),
        HotPath::new("wire/rows/encode", row, 4, || {
            let rows = sum();
            Ok(Box::new(move || {
                let mut bytes = Vec::new();
                rows::encode(&rows, &mut bytes);
                black_box(bytes);
                Ok(())
            }))
        }),
        HotPath::new("wire/rows/decode", row, 4, || {
            let mut bytes = Vec::new();
            rows::encode(&sum(), &mut bytes);
            Ok(Box::new(move || {
                black_box(rows::decode(&bytes, DIMENSION).map_err(anyhow::Error::msg)?);
                Ok(())
            }))
        }),
    ]
}

/// A sum over rows of one message.
fn sum() -> Rows {
    Rows::zeros(DIMENSION, (0..u64::from(ROWS)).map(|key| key * 7))
}

fn push((blocks, bytes): (u32, usize)) -> PushRequest {
    let gradient =
        |block| BlockGradient { block, gradient: vec![1; bytes].into(), rewind: 3, ..Default::default() };
    PushRequest {
        job: "bench".into(),
        weight: 48,
        blocks: (0..blocks).map(gradient).collect(),
        ..Default::default()
    }
}

fn pull((blocks, bytes): (u32, usize)) -> PullReply {
    let pulled = |block| PulledBlock {
        block,
        parameters: vec![1; bytes].into(),
        version: 1000,
        rewind: 3,
        is_in_area: false,
    };
    PullReply { blocks: (0..blocks).map(pulled).collect(), ..Default::default() }
}

fn encode<M: Message + 'static>(message: M) -> anyhow::Result<Walk> {
    Ok(Box::new(move || {
        black_box(rope(&message)?);
        Ok(())
    }))
}

/// The buffers of a message come as frames, which are small enough for that here.
fn decode<M: Message + Default>(message: &M) -> anyhow::Result<Walk> {
    let (bytes, mut rope) = (message.encoded_len(), rope(message)?);
    let frames: Vec<Bytes> = std::iter::from_fn(|| rope.pop()).collect();
    Ok(Box::new(move || {
        let mut writer = Writer::new(bytes);
        frames.iter().for_each(|frame| writer.put(frame.clone()));
        black_box(M::decode(writer.finish())?);
        Ok(())
    }))
}

fn rope(message: &impl Message) -> anyhow::Result<Rope> {
    let mut writer = Writer::new(message.encoded_len());
    message.encode(&mut writer)?;
    Ok(writer.finish())
}
