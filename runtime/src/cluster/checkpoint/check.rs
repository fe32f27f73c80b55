//! What must hold of a checkpoint's manifest. It must never take more memory than the manifest has, whatever that says.

use super::{CheckpointId, CheckpointManifest, FileRecord, MANIFEST_NAME, PIECE_BYTES_MAX, PieceRef};
use crate::cluster::block_copy::WHOLE;
use crate::cluster::layout::BLOCK_ELEMENTS_MAX;
use crate::cluster::parameter::Parameter;
use crate::cluster::{BlockId, Layout, Rewind, StateName};
use std::collections::BTreeSet;
use std::fmt;

const FILE_NAME_BYTES_MAX: usize = 128;

/// Why a manifest is refused: what in it, and what is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{subject}: {what}")]
pub struct CheckpointFault {
    /// The block, file or parameter.
    pub subject: String,
    /// What is wrong with it.
    pub what: String,
}

impl CheckpointManifest {
    /// Checks that every block of the layout is there once, that pieces lie apart inside files with plain names,
    /// and that a cut is one. Its memory is bounded by the manifest's own, whatever the declaration says.
    pub fn check(&self) -> Result<(), CheckpointFault> {
        self.declaration.check().or_else(|f| fault(format_args!("parameter {:?}", f.parameter), f.what))?;
        let mut names = BTreeSet::new();
        for file in &self.files {
            if !is_plain(&file.name) {
                return fault(format_args!("file {:?}", file.name), "not a name that a file of pieces has");
            }
            if !names.insert(file.place()) {
                return fault(format_args!("file {}", file.name), "listed twice");
            }
            if file.checkpoint > self.checkpoint {
                return fault(format_args!("file {}", file.name), "of a checkpoint that came later");
            }
        }
        self.check_blocks()?;
        for piece in &self.pieces {
            self.check_piece(piece)?;
        }
        self.check_apart()
    }

    fn check_blocks(&self) -> Result<(), CheckpointFault> {
        let block_elements = match self.declaration.block_elements {
            0 => BLOCK_ELEMENTS_MAX,
            stated => stated.min(BLOCK_ELEMENTS_MAX),
        };
        // Before the layout is made: it would have a block for every entry of an absurd declaration.
        let of = |is_table: bool| {
            self.declaration.parameters.iter().filter(move |parameter| parameter.table.is_some() == is_table)
        };
        let elements = of(false).map(Parameter::elements).fold(0, u64::saturating_add);
        let buckets = of(true).filter_map(|parameter| parameter.table).map(|table| u64::from(table.buckets));
        let blocks_min = elements.div_ceil(block_elements).saturating_add(buckets.sum());
        if blocks_min > self.pieces.len() as u64 {
            let what = format!("{} of at least {blocks_min} blocks are there", self.pieces.len());
            return fault("pieces", what);
        }
        let layout = Layout::new(&self.declaration);
        let mut next = Expected::first_of(BlockId(0));
        for piece in &self.pieces {
            let subject = format!("block {}", piece.block);
            let Some(block) = layout.block(piece.block) else {
                return fault(subject, format!("the job has {} blocks", layout.len()));
            };
            let (is_dense, file) = (block.bucket.is_none(), self.file_of(piece)?);
            next = next.after(piece, is_dense, (self.checkpoint, file.checkpoint))?;
        }
        match (next.block.0 as usize) < layout.len() {
            true => fault(format_args!("block {}", next.block), next.missing()),
            false => Ok(()),
        }
    }

    fn file_of(&self, piece: &PieceRef) -> Result<&FileRecord, CheckpointFault> {
        let what = || format!("its file has index {} of {}", piece.file, self.files.len());
        let file = self.files.get(piece.file as usize);
        file.ok_or_else(|| CheckpointFault { subject: format!("block {}", piece.block), what: what() })
    }

    fn check_piece(&self, piece: &PieceRef) -> Result<(), CheckpointFault> {
        let subject = format!("block {}", piece.block);
        let file = self.file_of(piece)?;
        if piece.bytes == 0 || piece.bytes > PIECE_BYTES_MAX {
            return fault(subject, format!("a piece of {} bytes, at most {PIECE_BYTES_MAX}", piece.bytes));
        }
        if piece.offset.checked_add(piece.bytes).is_none_or(|end| end > file.bytes) {
            let what = format!(
                "{} bytes at offset {} are not inside {} of {} bytes",
                piece.bytes, piece.offset, file.name, file.bytes
            );
            return fault(subject, what);
        }
        match self.cut {
            Some(cut) if piece.rewind != cut.rewind => {
                fault(subject, format!("rewind number {}, the checkpoint's is {}", piece.rewind, cut.rewind))
            }
            // What deltas rest on is older.
            Some(cut) if piece.name.version != cut.version && self.is_own(file) => {
                fault(subject, format!("version {}, the checkpoint's is {}", piece.name.version, cut.version))
            }
            _ => Ok(()),
        }
    }

    fn check_apart(&self) -> Result<(), CheckpointFault> {
        let mut stretches: Vec<&PieceRef> = self.pieces.iter().collect();
        stretches.sort_by_key(|piece| (piece.file, piece.offset));
        for pair in stretches.windows(2) {
            if pair[0].file == pair[1].file && pair[0].offset + pair[0].bytes > pair[1].offset {
                return fault(
                    format_args!("block {}", pair[1].block),
                    format!("its piece overlaps that of block {}", pair[0].block),
                );
            }
        }
        Ok(())
    }
}

/// The piece that comes next.
struct Expected {
    block: BlockId,
    first: u32,
    /// What its block's pieces with the slots before are of.
    state: Option<(Rewind, StateName, bool)>,
    /// The newest pieces of its block that are whole: of which checkpoint, of which state. They rest on what comes.
    above: Option<(CheckpointId, Rewind, StateName)>,
    /// Of which checkpoint the pieces with the slots before are.
    checkpoint: Option<CheckpointId>,
}

impl Expected {
    fn first_of(block: BlockId) -> Expected {
        Expected { block, first: 0, state: None, above: None, checkpoint: None }
    }

    /// What comes after a piece that lies in a file of checkpoint `own`, in a manifest of `newest`.
    fn after(
        &self,
        piece: &PieceRef,
        is_dense: bool,
        (newest, own): (CheckpointId, CheckpointId),
    ) -> Result<Expected, CheckpointFault> {
        let subject = format!("block {}", piece.block);
        if piece.block < self.block || piece.block == self.block && piece.slots.start < self.first {
            return fault(subject, "there twice, or out of order");
        }
        if piece.block > self.block {
            return fault(format_args!("block {}", self.block), self.missing());
        }
        let is_next = piece.slots.start == self.first && !piece.slots.is_empty();
        if !is_next || is_dense && (piece.slots != WHOLE || piece.is_delta) {
            return fault(subject, format!("a piece with slots {:?}", piece.slots));
        }
        let state = (piece.rewind, piece.name, piece.is_delta);
        let is_one = self.state.is_none_or(|before| before == state)
            && self.checkpoint.is_none_or(|checkpoint| checkpoint == own);
        if !is_one {
            return fault(subject, "pieces of two states");
        }
        let is_in_its_place = match self.above {
            None => own == newest,
            Some((checkpoint, rewind, name)) => {
                own < checkpoint && rewind == piece.rewind && piece.name.version <= name.version
            }
        };
        if !is_in_its_place {
            return fault(subject, format!("a piece of checkpoint {own} where none of it can be"));
        }
        Ok(match (piece.slots.end == WHOLE.end, piece.is_delta) {
            (true, false) => Expected::first_of(BlockId(self.block.0 + 1)),
            (true, true) => {
                let above = Some((own, piece.rewind, piece.name));
                Expected { above, ..Expected::first_of(self.block) }
            }
            (false, _) => {
                Expected { first: piece.slots.end, state: Some(state), checkpoint: Some(own), ..*self }
            }
        })
    }

    fn missing(&self) -> String {
        match (self.first, self.above) {
            (0, None) => "it has no piece".to_owned(),
            (0, Some((checkpoint, ..))) => {
                format!("nothing that its changes of checkpoint {checkpoint} rest on")
            }
            (first, _) => format!("it has no piece with slot {first}"),
        }
    }
}

/// Whether a name stays inside its folder and is one that every kind of storage takes as it is.
fn is_plain(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    (1..=FILE_NAME_BYTES_MAX).contains(&name.len())
        && name.chars().all(is_allowed)
        && !name.starts_with('.')
        && name != MANIFEST_NAME
}

fn fault<T>(subject: impl fmt::Display, what: impl Into<String>) -> Result<T, CheckpointFault> {
    Err(CheckpointFault { subject: subject.to_string(), what: what.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::checkpoint::{Cut, WrittenFile};
    use crate::cluster::initial::Initial;
    use crate::cluster::schedule::Schedule;
    use crate::cluster::{Declaration, Rewind, Rule, StateName, Table, Term, Version};
    use crate::wire::sample::settings;
    use std::ops::Range;

    /// One block for each element.
    fn declaration(elements: u64) -> Declaration {
        let parameter = Parameter::new("w", &[elements], Rule::Sgd, Schedule::constant(0.1), Initial::Zeros);
        Declaration { parameters: vec![parameter], block_elements: 1 }
    }

    fn written(name: &str, blocks: &[u32]) -> WrittenFile {
        let pieces = blocks.iter().enumerate().map(|(index, block)| PieceRef {
            block: BlockId(*block),
            rewind: Rewind(2),
            name: StateName { term: Term(3), version: Version(5) },
            slots: WHOLE,
            is_delta: false,
            file: 0,
            offset: 50 + 10 * index as u64,
            bytes: 10,
            crc32: *block,
        });
        let bytes = 50 + 10 * blocks.len() as u64;
        let file = FileRecord { checkpoint: CheckpointId(4), name: name.into(), bytes, crc32: 9 };
        WrittenFile { file, pieces: pieces.collect() }
    }

    fn assemble(written: Vec<WrittenFile>) -> Result<CheckpointManifest, CheckpointFault> {
        let cut = Some(Cut { rewind: Rewind(2), version: Version(5) });
        CheckpointManifest::assemble(settings(), declaration(3), CheckpointId(4), cut, written)
    }

    fn manifest() -> CheckpointManifest {
        assemble(vec![written("b.blocks", &[2, 0]), written("a.blocks", &[1])]).unwrap()
    }

    #[test]
    fn a_manifest_says_of_every_block_which_file_has_it() {
        let manifest = manifest();
        let piece = |block| match manifest.pieces_of(BlockId(block)) {
            [piece] => piece,
            pieces => panic!("{pieces:?}"),
        };
        let files: Vec<&str> =
            (0..3).map(|block| manifest.files[piece(block).file as usize].name.as_str()).collect();
        assert_eq!(files, ["b.blocks", "a.blocks", "b.blocks"]);
        assert!((0..3).all(|block| piece(block).crc32 == block));
        assert_eq!(manifest.pieces_of(BlockId(3)), []);
    }

    #[test]
    fn a_file_of_which_no_piece_is_taken_is_left_out() {
        let manifest = assemble(vec![written("a.blocks", &[0, 1, 2]), written("b.blocks", &[])]).unwrap();
        assert_eq!(manifest.files.len(), 1);
    }

    #[test]
    fn every_block_is_there_exactly_once() {
        let fault = |blocks: &[u32]| assemble(vec![written("a.blocks", blocks)]).unwrap_err().to_string();
        assert_eq!(fault(&[0, 2]), "pieces: 2 of at least 3 blocks are there");
        assert_eq!(fault(&[0, 1, 1]), "block 1: there twice, or out of order");
        assert_eq!(fault(&[0, 0, 1, 2]), "block 0: there twice, or out of order");
        assert_eq!(fault(&[0, 1, 2, 3]), "block 3: the job has 3 blocks");
        assert_eq!(fault(&[1, 2, 3]), "block 0: it has no piece");
        // Metrics have a block of their own: the least number of blocks is not the number.
        let mut declaration = declaration(2);
        declaration.block_elements = 8;
        declaration.parameters.push(Parameter::sum("loss", &[1]));
        let written = vec![written("a.blocks", &[0])];
        let fault = CheckpointManifest::assemble(settings(), declaration, CheckpointId(4), None, written)
            .unwrap_err();
        assert_eq!(fault.to_string(), "block 1: it has no piece");
    }

    #[test]
    fn a_bucket_is_whole_only_if_its_segments_are_one_state_without_a_gap() {
        let bucket = |slots: &[Range<u32>]| {
            let mut declaration = declaration(1);
            let table = declaration.parameters[0].clone().as_table(Table { buckets: 2, ..Table::default() });
            declaration.parameters.push(Parameter { name: "t".to_owned(), ..table });
            let mut written = written("a.blocks", &vec![1; slots.len() + 2]);
            for (piece, slots) in written.pieces.iter_mut().zip(slots) {
                piece.slots = slots.clone();
            }
            let [.., dense, other] = &mut written.pieces[..] else { panic!("two more") };
            (dense.block, other.block) = (BlockId(0), BlockId(2));
            CheckpointManifest::assemble(settings(), declaration, CheckpointId(4), None, vec![written])
        };
        let whole = bucket(&[5..9, 0..5, 9..WHOLE.end]).unwrap();
        let found: Vec<u32> = whole.pieces_of(BlockId(1)).iter().map(|piece| piece.slots.start).collect();
        assert_eq!((found, whole.pieces_of(BlockId(2)).len()), (vec![0, 5, 9], 1));
        let fault = |slots: &[Range<u32>]| bucket(slots).unwrap_err().to_string();
        assert_eq!(fault(&[0..5, 5..9]), "block 1: it has no piece with slot 9");
        assert_eq!(fault(&[0..5, 6..WHOLE.end]), "block 1: a piece with slots 6..4294967295");
        assert_eq!(fault(&[0..5, 4..WHOLE.end]), "block 1: there twice, or out of order");
        assert_eq!(fault(&[0..0, 0..WHOLE.end]), "block 1: a piece with slots 0..0");
        let mut two_states = whole.clone();
        two_states.pieces[2].name.version = Version(6);
        assert_eq!(two_states.check().unwrap_err().to_string(), "block 1: pieces of two states");
        let mut dense = whole;
        dense.pieces[0].slots = 0..5;
        assert!(dense.check().unwrap_err().what.contains("slots 0..5"));
    }

    /// The manifest of checkpoint 4 with the bucket that is block 1, of whose state pieces are in these files:
    /// (checkpoint, whether it is a delta, its slots, version).
    fn layered(layers: &[(u64, bool, Range<u32>, u64)]) -> Result<CheckpointManifest, CheckpointFault> {
        let mut declaration = declaration(1);
        let table = declaration.parameters[0].clone().as_table(Table { buckets: 1, ..Table::default() });
        declaration.parameters.push(Parameter { name: "t".to_owned(), ..table });
        let files = layers.iter().enumerate().map(|(at, (checkpoint, is_delta, slots, version))| {
            let mut file = written(&format!("{at}.blocks"), &[1]);
            file.file.checkpoint = CheckpointId(*checkpoint);
            let piece = &mut file.pieces[0];
            (piece.is_delta, piece.slots, piece.name.version) = (*is_delta, slots.clone(), Version(*version));
            file
        });
        let files = files.chain([written("dense.blocks", &[0])]).collect();
        let cut = Some(Cut { rewind: Rewind(2), version: Version(5) });
        CheckpointManifest::assemble(settings(), declaration, CheckpointId(4), cut, files)
    }

    #[test]
    fn changes_rest_on_older_ones_and_these_on_a_whole_state() {
        let found = layered(&[
            (1, false, WHOLE, 2),
            (3, true, 0..7, 4),
            (3, true, 7..WHOLE.end, 4),
            (4, true, WHOLE, 5),
        ]);
        let found = found.unwrap();
        let order: Vec<u64> = found
            .pieces_of(BlockId(1))
            .iter()
            .map(|piece| found.files[piece.file as usize].checkpoint.0)
            .collect();
        assert_eq!((order, found.oldest()), (vec![4, 3, 3, 1], CheckpointId(1)));
        layered(&[(4, true, WHOLE, 5), (2, false, WHOLE, 5)]).unwrap();
        let fault = |layers: &[_]| layered(layers).unwrap_err().to_string();
        let beneath = "block 1: nothing that its changes of checkpoint 4 rest on";
        assert_eq!(fault(&[(4, true, WHOLE, 5)]), beneath);
        assert_eq!(
            fault(&[(4, true, WHOLE, 5), (3, false, 0..7, 4)]),
            "block 1: it has no piece with slot 7"
        );
        assert_eq!(
            fault(&[(4, true, WHOLE, 5), (4, false, WHOLE, 5)]),
            "block 1: a piece of checkpoint 4 where none of it can be"
        );
        assert_eq!(
            fault(&[(3, false, WHOLE, 4)]),
            "block 1: a piece of checkpoint 3 where none of it can be",
            "it is not the newest"
        );
        assert_eq!(
            fault(&[(4, true, WHOLE, 5), (3, false, WHOLE, 6)]),
            "block 1: a piece of checkpoint 3 where none of it can be",
            "it came later"
        );
        assert_eq!(
            fault(&[(4, false, WHOLE, 5), (3, false, WHOLE, 4)]),
            "block 1: there twice, or out of order",
            "nothing rests on it"
        );
        let half = [(4, true, 0..7, 5), (4, false, 7..WHOLE.end, 5), (3, false, WHOLE, 4)];
        assert_eq!(fault(&half), "block 1: pieces of two states");
        let torn = [(4, true, 0..7, 5), (3, true, 7..WHOLE.end, 5)];
        assert_eq!(fault(&torn), "block 1: pieces of two states");
        assert!(fault(&[(5, true, WHOLE, 5), (3, false, WHOLE, 4)]).contains("came later"));
    }

    #[test]
    fn what_changes_rest_on_is_found_in_the_manifest_before() {
        let before = layered(&[(2, false, WHOLE, 3), (4, true, WHOLE, 5)]).unwrap();
        let mut changed = written("a.blocks", &[0, 1]);
        assert_eq!(before.beneath(&[changed.clone()]), []);
        changed.pieces[1].is_delta = true;
        let beneath = before.beneath(&[changed]);
        let of: Vec<(u64, u32)> =
            beneath.iter().map(|file| (file.file.checkpoint.0, file.pieces[0].block.0)).collect();
        assert_eq!(of, [(2, 1), (4, 1)], "and the dense block's file is not");
    }

    #[test]
    fn an_absurd_declaration_is_refused_before_its_blocks_are_counted_out() {
        let mut manifest = manifest();
        manifest.declaration = declaration(1 << 20);
        assert_eq!(manifest.check().unwrap_err().subject, "pieces");
        manifest.declaration = declaration(1 << 36);
        manifest.declaration.block_elements = 0;
        assert_eq!(manifest.check().unwrap_err().subject, "pieces");
    }

    #[test]
    fn a_piece_lies_inside_its_file_and_apart_from_others() {
        let fault = |change: fn(&mut PieceRef)| {
            let mut manifest = manifest();
            change(&mut manifest.pieces[0]);
            manifest.check().unwrap_err()
        };
        for change in [
            (|p: &mut PieceRef| p.file = 2) as fn(&mut PieceRef),
            |p| p.offset += 1,
            |p| p.offset = u64::MAX,
            |p| p.bytes = 0,
            |p| p.bytes = PIECE_BYTES_MAX + 1,
        ] {
            assert_eq!(fault(change).subject, "block 0");
        }
        assert!(fault(|p| p.offset -= 1).what.contains("overlaps"));
        let mut manifest = manifest();
        manifest.files[1].bytes = u64::MAX;
        manifest.pieces[0].bytes = PIECE_BYTES_MAX;
        manifest.check().unwrap();
        manifest.pieces[0].bytes += 1;
        assert!(manifest.check().unwrap_err().what.contains("at most"));
    }

    #[test]
    fn a_cut_is_one_rewind_number_and_one_version_and_terms_may_differ() {
        let mut manifest = manifest();
        manifest.pieces[1].name.term = Term(9);
        manifest.check().unwrap();
        manifest.pieces[1].name.version = Version(6);
        assert_eq!(manifest.check().unwrap_err().to_string(), "block 1: version 6, the checkpoint's is 5");
        manifest.pieces[1].rewind = Rewind(1);
        assert_eq!(
            manifest.check().unwrap_err().to_string(),
            "block 1: rewind number 1, the checkpoint's is 2"
        );
        manifest.cut = None;
        manifest.check().unwrap();
    }

    #[test]
    fn a_file_has_a_plain_name_of_its_own() {
        let long = "a".repeat(FILE_NAME_BYTES_MAX + 1);
        for name in ["", "..", ".a", "../a", "a/b", "A", "a b", "a#1", "a%2f", MANIFEST_NAME, &long] {
            let mut manifest = manifest();
            manifest.files[0].name = name.to_owned();
            assert!(manifest.check().unwrap_err().subject.starts_with("file"), "{name}");
        }
        let mut manifest = manifest();
        manifest.files[0].name = manifest.files[1].name.clone();
        assert_eq!(manifest.check().unwrap_err().what, "listed twice");
    }
}
