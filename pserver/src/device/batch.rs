//! What one launch of the kernel is told, laid out as `kernels/update.cu` reads it. Pure.

use crate::kernel::rules::Constants;
use bytemuck::{Pod, Zeroable};
use std::ops::Range;

/// Elements that one block of threads updates, at most: enough that its beginning and end are not seen.
const CHUNK_ELEMENTS: usize = 8192;

/// What becomes of one piece of a block.
#[derive(Clone, Debug)]
pub struct PieceUpdate {
    /// Which elements of the block.
    pub range: Range<usize>,
    /// What the rule is run with.
    pub constants: Constants,
}

/// Where the buffers of a block begin on the device: multiples of 16.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// Its parameters.
    pub parameters: u64,
    /// Where the next version of them goes.
    pub next: u64,
    /// Its rule state; of slots that it has not, anything.
    pub slots: [u64; 3],
}

/// One gradient sum on the device.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Operand {
    /// Where the block's values begin: a multiple of 16.
    pub address: u64,
    /// 1 if they are bf16, 0 if f32.
    pub is_half: u32,
    /// Once it is there, how often the two newest sums become one.
    pub joins: u32,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Piece {
    parameters: u64,
    next: u64,
    slots: [u64; 3],
    first_operand: u32,
    operands: u32,
    rule: u32,
    rounds: u32,
    constants: [f32; 12],
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Chunk {
    piece: u32,
    elements: u32,
    first: u64,
}

/// What one launch is told.
#[derive(Debug, Default)]
pub struct Tables {
    pieces: Vec<Piece>,
    operands: Vec<Operand>,
    chunks: Vec<Chunk>,
}

impl Tables {
    /// Adds a block's update. Its sum is that of `operands`, one after another, rounded to bf16 each time if `rounds`.
    pub fn add(&mut self, at: Addresses, operands: &[Operand], rounds: bool, pieces: &[PieceUpdate]) {
        let first_operand = self.operands.len() as u32;
        self.operands.extend_from_slice(operands);
        for PieceUpdate { range, constants } in pieces {
            let piece = self.pieces.len() as u32;
            self.pieces.push(Piece {
                parameters: at.parameters,
                next: at.next,
                slots: at.slots,
                first_operand,
                operands: operands.len() as u32,
                rule: constants.rule,
                rounds: rounds.into(),
                constants: constants.values,
            });
            let firsts = range.clone().step_by(CHUNK_ELEMENTS);
            self.chunks.extend(firsts.map(|first| {
                let elements = CHUNK_ELEMENTS.min(range.end - first) as u32;
                Chunk { piece, elements, first: first as u64 }
            }));
        }
    }

    /// How many blocks of threads are launched.
    pub fn chunks(&self) -> u32 {
        self.chunks.len() as u32
    }

    /// Bytes of all tables.
    pub fn bytes(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }

    /// Where each of the three tables begins, if the first does at `address`.
    pub fn addresses(&self, address: u64) -> [u64; 3] {
        let [pieces, operands, _] = self.parts().map(|part| part.len() as u64);
        [address, address + pieces, address + pieces + operands]
    }

    /// Writes all tables to the beginning of `to`.
    pub fn write(&self, to: &mut [u8]) {
        let mut at = 0;
        for part in self.parts() {
            to[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
    }

    /// The tables as bytes; each is a multiple of 8 long.
    fn parts(&self) -> [&[u8]; 3] {
        [
            bytemuck::cast_slice(&self.pieces),
            bytemuck::cast_slice(&self.operands),
            bytemuck::cast_slice(&self.chunks),
        ]
    }
}
