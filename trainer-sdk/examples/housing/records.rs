//! Rows of the housing table as records: 13 standardised features and the price, each a little-endian f32. It must
//! never let a held-out row have a say in the standardisation, nor draw at random: a row's side follows from its text.

use super::held_out;
use anyhow::{Context, ensure};
use shoal_recordio::{Writer, WriterOptions};
use std::fs::File;
use std::path::Path;

/// Numbers of a row that the price is told from.
pub(crate) const FEATURES: usize = 13;
/// Bytes of a record.
const RECORD_BYTES: usize = 4 * (FEATURES + 1);
/// Far below a sensible chunk: a small data set shall still be many chunks, so that there are leases to lose.
const CHUNK_BYTES: u64 = 1 << 10;

/// A row: features, then the price in thousands of dollars.
type Row = [f64; FEATURES + 1];

/// The features and the price of a record.
///
/// # Errors
/// Another length.
pub(crate) fn decode(record: &[u8]) -> anyhow::Result<([f32; FEATURES], f32)> {
    let (numbers, rest) = record.as_chunks::<4>();
    ensure!(
        numbers.len() == FEATURES + 1 && rest.is_empty(),
        "a suburb is a record of {RECORD_BYTES} bytes (14 numbers), not of {}",
        record.len()
    );
    let features = std::array::from_fn(|index| f32::from_le_bytes(numbers[index]));
    Ok((features, f32::from_le_bytes(numbers[FEATURES])))
}

/// Writes both files, and returns what there is to tell.
///
/// # Errors
/// A table that cannot be read or has other columns, a folder that cannot be written.
pub(crate) fn pack(csv: &Path, dir: &Path) -> anyhow::Result<String> {
    let table = std::fs::read_to_string(csv).with_context(|| format!("cannot read {}", csv.display()))?;
    let (train, test) = split(&table).with_context(|| format!("{}", csv.display()))?;
    let scales = Scales::of(&train);
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make the folder {}", dir.display()))?;
    write_file(&dir.join("train.recordio"), &train, &scales)?;
    write_file(&dir.join("test.recordio"), &test, &scales)?;
    Ok(format!("{} rows to train on, {} held out", train.len(), test.len()))
}

/// The rows to train on and those held out, both in the table's order.
fn split(table: &str) -> anyhow::Result<(Vec<Row>, Vec<Row>)> {
    let (mut train, mut test) = (Vec::new(), Vec::new());
    // Row 1 names the columns.
    for (number, line) in table.lines().enumerate().skip(1).filter(|(_, line)| !line.is_empty()) {
        let row = parse(line).with_context(|| format!("line {}", number + 1))?;
        let side = if held_out::is_held_out(line) { &mut test } else { &mut train };
        side.push(row);
    }
    ensure!(!train.is_empty() && !test.is_empty(), "has too few rows to hold some out");
    Ok((train, test))
}

fn parse(line: &str) -> anyhow::Result<Row> {
    let cells: Vec<&str> = line.split(',').collect();
    ensure!(cells.len() == FEATURES + 1, "has {} columns and not {}", cells.len(), FEATURES + 1);
    let mut row: Row = [0.0; FEATURES + 1];
    for (slot, cell) in row.iter_mut().zip(cells) {
        *slot = cell.trim().parse().with_context(|| format!("{cell:?} is no number"))?;
        ensure!(slot.is_finite(), "{cell:?} is no finite number");
    }
    Ok(row)
}

/// Mean and deviation of each feature over the rows to train on.
struct Scales([(f64, f64); FEATURES]);

impl Scales {
    fn of(rows: &[Row]) -> Scales {
        let count = rows.len() as f64;
        Scales(std::array::from_fn(|index| {
            let mean = rows.iter().map(|row| row[index]).sum::<f64>() / count;
            let squares = rows.iter().map(|row| (row[index] - mean) * (row[index] - mean)).sum::<f64>();
            let deviation = (squares / count).sqrt();
            // A feature that is the same everywhere tells nothing, and becomes 0.
            (mean, if deviation > 0.0 { deviation } else { 1.0 })
        }))
    }

    fn encode(&self, row: &Row) -> Vec<u8> {
        let features = row.iter().zip(&self.0).map(|(value, (mean, deviation))| (value - mean) / deviation);
        features.chain([row[FEATURES]]).flat_map(|value| (value as f32).to_le_bytes()).collect()
    }
}

fn write_file(path: &Path, rows: &[Row], scales: &Scales) -> anyhow::Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    let file = File::create(path).with_context(cannot)?;
    let mut writer =
        Writer::new(file, WriterOptions { chunk_bytes: CHUNK_BYTES, ..WriterOptions::default() });
    rows.iter().try_for_each(|row| writer.write(&scales.encode(row))).with_context(cannot)?;
    writer.finish().with_context(cannot)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_recordio::Reader;
    use std::fmt::Write;

    /// A table whose features are functions of the row's number; the last feature is the same everywhere.
    fn table() -> String {
        let mut table = String::from("\"a\",\"b\"\r\n");
        for row in 0..200 {
            let cells = (0..FEATURES).map(|index| if index == 12 { 3 } else { row * (index + 1) % 97 });
            let cells: Vec<String> = cells.map(|cell| cell.to_string()).collect();
            write!(table, "{},{}.5\r\n", cells.join(","), row).unwrap();
        }
        table
    }

    fn read(path: &Path) -> Vec<([f32; FEATURES], f32)> {
        let reader = Reader::open(path).unwrap();
        let chunks = (0..reader.index().chunks.len()).map(|index| reader.chunk(index).unwrap());
        chunks
            .flat_map(|chunk| {
                (0..chunk.len()).map(|row| decode(chunk.record(row)).unwrap()).collect::<Vec<_>>()
            })
            .collect()
    }

    /// The records to train on and those held out, of the made-up table.
    fn packed() -> [Vec<([f32; FEATURES], f32)>; 2] {
        let folder = tempfile::tempdir().unwrap();
        let (csv, packed) = (folder.path().join("table.csv"), folder.path().join("made/on/demand"));
        std::fs::write(&csv, table()).unwrap();
        pack(&csv, &packed).unwrap();
        ["train.recordio", "test.recordio"].map(|name| read(&packed.join(name)))
    }

    #[test]
    fn every_row_is_on_one_side_and_about_a_fifth_is_held_out() {
        let [train, test] = packed();
        assert!((25..=55).contains(&test.len()), "{} rows held out", test.len());
        let mut prices: Vec<f32> = train.iter().chain(&test).map(|(_, price)| *price).collect();
        prices.sort_by(f32::total_cmp);
        assert_eq!(prices, (0..200).map(|row| row as f32 + 0.5).collect::<Vec<_>>());
    }

    #[test]
    fn features_are_standardised_by_the_rows_to_train_on() {
        let [train, test] = packed();
        let moments = |rows: &[([f32; FEATURES], f32)], index: usize| {
            let values = rows.iter().map(|(features, _)| f64::from(features[index]));
            let (sum, squares) = values.fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
            (sum / rows.len() as f64, squares / rows.len() as f64)
        };
        for index in 0..FEATURES - 1 {
            let (mean, square) = moments(&train, index);
            assert!(mean.abs() < 1e-6 && (square - 1.0).abs() < 1e-6, "feature {index}: {mean}, {square}");
        }
        assert_eq!(moments(&train, 12), (0.0, 0.0));
        // Were the held-out rows standardised by themselves, or together with the others, this would be 0.
        assert!((0..12).any(|index| moments(&test, index).0.abs() > 1e-3));
    }

    #[test]
    fn what_is_no_table_of_14_numbers_is_refused_by_line() {
        let refusal = |table: &str| format!("{:#}", split(table).unwrap_err());
        assert!(refusal("header\n1,2,3\n").contains("line 2: has 3 columns"));
        assert!(refusal("header\n1,2,3,4,5,6,7,8,9,10,11,12,13,x\n").contains("line 2: \"x\" is no number"));
        assert!(refusal("header\n1,2,3,4,5,6,7,8,9,10,11,12,13,inf\n").contains("no finite number"));
        assert!(refusal("header\n").contains("too few rows"));
        assert!(decode(&[0; 55]).is_err() && decode(&[0; 57]).is_err() && decode(&[0; 60]).is_err());
    }
}
