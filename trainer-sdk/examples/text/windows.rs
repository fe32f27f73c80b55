//! Texts as records: windows of a context and of characters to tell, so that every character but the first few of a
//! file is told exactly once. It must never let a window cross from one file to the next, nor a file lie on both sides.

use anyhow::{Context, ensure};
use shoal_recordio::{Writer, WriterOptions};
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

/// Characters that the next one is told from.
pub(crate) const CONTEXT: usize = 32;
/// Characters to tell in a window; the last one of a file has fewer.
pub(crate) const TARGETS: usize = 32;
/// Classes of characters: the line's end, printable ASCII, everything else.
pub(crate) const CLASSES: usize = 97;

const OTHER: u8 = 96;
/// Every tenth file by name is held out, and it is the last of its ten.
const HELD_OUT_EVERY: usize = 10;
const CHUNK_BYTES: u64 = 1 << 16;

/// A character's class, 0 to 96.
pub(crate) fn class_of(byte: u8) -> u8 {
    match byte {
        b'\n' => 0,
        b' '..=b'~' => byte - b' ' + 1,
        _ => OTHER,
    }
}

/// The character of a class; of everything else, a question mark that is no ASCII.
pub(crate) fn character_of(class: u8) -> char {
    match class {
        0 => '\n',
        1..OTHER => char::from(class - 1 + b' '),
        _ => '\u{fffd}',
    }
}

/// How many characters a record tells.
///
/// # Errors
/// Another length than a window's.
pub(crate) fn targets(record: &[u8]) -> anyhow::Result<usize> {
    let wanted = CONTEXT + 1..=CONTEXT + TARGETS;
    ensure!(
        wanted.contains(&record.len()),
        "a window is a record of {} to {} bytes, not of {}",
        wanted.start(),
        wanted.end(),
        record.len()
    );
    Ok(record.len() - CONTEXT)
}

/// The windows of one text, in order.
fn windows(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let last = text.len().saturating_sub(CONTEXT);
    (0..last).step_by(TARGETS).map(|begin| &text[begin..text.len().min(begin + CONTEXT + TARGETS)])
}

/// Writes both files, and returns what there is to tell.
///
/// # Errors
/// A folder without texts, a file that cannot be read or written.
pub(crate) fn pack(texts: &Path, dir: &Path) -> anyhow::Result<String> {
    let paths = sorted_texts(texts)?;
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make the folder {}", dir.display()))?;
    let is_held_out = |index: usize| index % HELD_OUT_EVERY == HELD_OUT_EVERY - 1;
    let mut told = Vec::new();
    for (name, side) in [("train", false), ("test", true)] {
        let chosen = paths.iter().enumerate().filter(|(index, _)| is_held_out(*index) == side);
        let chosen: Vec<&PathBuf> = chosen.map(|(_, path)| path).collect();
        let records = write_file(&dir.join(format!("{name}.recordio")), &chosen)?;
        told.push(format!("{name}: {} texts, {records} windows", chosen.len()));
    }
    Ok(told.join("; "))
}

fn sorted_texts(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let cannot = || format!("cannot read the folder {}", folder.display());
    let mut paths = Vec::new();
    for entry in folder.read_dir().with_context(cannot)? {
        paths.push(entry.with_context(cannot)?.path());
    }
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    ensure!(
        paths.len() >= HELD_OUT_EVERY,
        "{}: has fewer than {HELD_OUT_EVERY} files *.txt",
        folder.display()
    );
    Ok(paths)
}

fn write_file(path: &Path, texts: &[&PathBuf]) -> anyhow::Result<u64> {
    let cannot = || format!("cannot write {}", path.display());
    let file = BufWriter::new(File::create(path).with_context(cannot)?);
    let mut writer =
        Writer::new(file, WriterOptions { chunk_bytes: CHUNK_BYTES, ..WriterOptions::default() });
    let mut records = 0;
    for source in texts {
        let text = std::fs::read(source).with_context(|| format!("cannot read {}", source.display()))?;
        for window in windows(&text) {
            writer.write(window).with_context(cannot)?;
            records += 1;
        }
    }
    writer.finish().with_context(cannot)?;
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_recordio::Reader;

    fn read(path: &Path) -> Vec<Vec<u8>> {
        let reader = Reader::open(path).unwrap();
        let chunks = (0..reader.index().chunks.len()).map(|index| reader.chunk(index).unwrap());
        chunks
            .flat_map(|chunk| (0..chunk.len()).map(|at| chunk.record(at).to_vec()).collect::<Vec<_>>())
            .collect()
    }

    #[test]
    fn every_character_after_the_first_context_is_told_once() {
        for length in [0, 1, CONTEXT, CONTEXT + 1, CONTEXT + TARGETS, CONTEXT + TARGETS + 1, 1000] {
            let text: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let mut told = Vec::new();
            for window in windows(&text) {
                let at = CONTEXT + told.len();
                assert_eq!(window[..CONTEXT], text[at - CONTEXT..at]);
                assert!(targets(window).unwrap() <= TARGETS);
                told.extend_from_slice(&window[CONTEXT..]);
            }
            assert_eq!(told, text[length.min(CONTEXT)..]);
        }
    }

    #[test]
    fn a_class_is_a_line_end_a_printable_character_or_another() {
        let classes: Vec<u8> = (0..=u8::MAX).map(class_of).collect();
        for byte in 0..=u8::MAX {
            let class = classes[usize::from(byte)];
            assert!(usize::from(class) < CLASSES);
            let alike = classes.iter().filter(|other| **other == class).count();
            assert_eq!(alike == 1, byte == b'\n' || (b' '..=b'~').contains(&byte));
            assert!(alike > 1 || character_of(class) == char::from(byte));
        }
    }

    #[test]
    fn every_tenth_file_by_name_is_held_out_whole() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..20 {
            let text = [b'a' + number; CONTEXT + TARGETS + 3];
            std::fs::write(folder.path().join(format!("{number:02}.txt")), text).unwrap();
        }
        std::fs::write(folder.path().join("05.json"), [b'z'; 200]).unwrap();
        let dir = folder.path().join("made/on/demand");
        pack(folder.path(), &dir).unwrap();
        let letters = |name: &str| {
            let windows = read(&dir.join(name));
            assert!(windows.iter().all(|window| window.iter().all(|byte| *byte == window[0])));
            windows.chunks(2).map(|two| (two[0][0] - b'a', two[1].len())).collect::<Vec<_>>()
        };
        assert_eq!(letters("test.recordio"), [(9, CONTEXT + 3), (19, CONTEXT + 3)]);
        let train: Vec<u8> = letters("train.recordio").iter().map(|(number, _)| *number).collect();
        assert_eq!(train, (0..20).filter(|number| number % 10 != 9).collect::<Vec<_>>());
    }

    #[test]
    fn other_records_and_folders_are_refused() {
        assert!(targets(&[0; CONTEXT]).is_err() && targets(&[0; CONTEXT + TARGETS + 1]).is_err());
        let folder = tempfile::tempdir().unwrap();
        let refusal = pack(folder.path(), folder.path()).unwrap_err().to_string();
        assert!(refusal.contains("fewer than 10 files"), "{refusal}");
    }
}
