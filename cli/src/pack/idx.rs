//! IDX files, the format of MNIST and its kin: a record is a label's byte and then the image's bytes.
//! It must never pair unequal numbers of images and labels, nor pass a file that is cut short or goes on too long.

use std::io::{self, BufRead, Read};
use std::path::Path;

use anyhow::{Context, bail, ensure};

use super::content::Wanted;
use super::{Emit, open, record_ceiling};

/// The type code of unsigned bytes, the only one that images come in.
const UNSIGNED_BYTE: u8 = 0x08;

pub(crate) fn pack(images: &Path, labels: &Path, emit: Emit<'_>) -> anyhow::Result<()> {
    let image_items = Items::read_header(images, open(images, Wanted::Idx)?.1)?;
    let label_items = Items::read_header(labels, open(labels, Wanted::Idx)?.1)?;
    pair(image_items, label_items, emit)
}

fn pair(mut images: Items<'_>, mut labels: Items<'_>, emit: Emit<'_>) -> anyhow::Result<()> {
    let (image_file, label_file) = (images.file.display(), labels.file.display());
    ensure!(
        images.dimensions > 1,
        "{image_file}: an IDX file of one dimension holds no images: are the files swapped?"
    );
    ensure!(labels.dimensions == 1, "{label_file}: labels have one dimension and not {}", labels.dimensions);
    let (image_count, label_count) = (images.count, labels.count);
    ensure!(
        image_count == label_count,
        "{image_file} holds {image_count} images and {label_file} {label_count} labels: they do not belong together"
    );
    let mut record = Vec::new();
    for number in 0..image_count {
        record.clear();
        labels.append(number, &mut record)?;
        images.append(number, &mut record)?;
        emit(&record)?;
    }
    images.end()?;
    labels.end()
}

/// An IDX file of unsigned bytes after its header: `count` items of `item_bytes` each.
struct Items<'a> {
    file: &'a Path,
    source: Box<dyn BufRead + 'a>,
    dimensions: usize,
    count: u32,
    item_bytes: u64,
}

impl<'a> Items<'a> {
    fn read_header(file: &'a Path, mut source: Box<dyn BufRead + 'a>) -> anyhow::Result<Self> {
        let name = file.display();
        let short = || format!("{name}: ends inside its header: it is cut short or not an IDX file");
        let mut magic = [0; 4];
        source.read_exact(&mut magic).with_context(short)?;
        let dimensions = match magic {
            [0, 0, UNSIGNED_BYTE, dimensions @ 1..=u8::MAX] => usize::from(dimensions),
            [0, 0, code, _] if code != UNSIGNED_BYTE => {
                bail!("{name}: holds values of type {code:#04x}; only unsigned bytes (0x08) can be packed")
            }
            _ => bail!("{name}: is not an IDX file: it begins with {magic:02x?}"),
        };
        let mut sizes = vec![0; dimensions];
        for size in &mut sizes {
            let mut bytes = [0; 4];
            source.read_exact(&mut bytes).with_context(short)?;
            *size = u32::from_be_bytes(bytes);
        }
        let item_bytes = sizes[1..].iter().try_fold(1_u64, |bytes, &size| bytes.checked_mul(u64::from(size)));
        match item_bytes {
            Some(item_bytes) if item_bytes < record_ceiling() => {
                Ok(Self { file, source, dimensions, count: sizes[0], item_bytes })
            }
            _ => bail!("{name}: items of shape {:?} are larger than a record may be", &sizes[1..]),
        }
    }

    /// Appends item `number` to `record`. Memory grows with what is there, not with the shape.
    fn append(&mut self, number: u32, record: &mut Vec<u8>) -> anyhow::Result<()> {
        let cut = || format!("{}: cannot be read in item {number} of {}", self.file.display(), self.count);
        let read = (&mut self.source).take(self.item_bytes).read_to_end(record).with_context(cut)?;
        ensure!(
            read as u64 == self.item_bytes,
            "{}: ends inside item {number} of {}: it was cut short, copy it again",
            self.file.display(),
            self.count
        );
        Ok(())
    }

    /// Makes sure that nothing follows the last item. For gzip this also reads the checksum at the end.
    fn end(mut self) -> anyhow::Result<()> {
        let name = self.file.display();
        let after = io::copy(&mut (&mut self.source).take(1), &mut io::sink());
        let after = after.with_context(|| format!("{name}: cannot be read after its last item"))?;
        ensure!(after == 0, "{name}: goes on after the {} items that its header names", self.count);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idx(code: u8, sizes: &[u32], bytes: &[u8]) -> Vec<u8> {
        let sizes: Vec<u8> = sizes.iter().flat_map(|size| size.to_be_bytes()).collect();
        [&[0, 0, code, (sizes.len() / 4) as u8], sizes.as_slice(), bytes].concat()
    }

    fn records(images: &[u8], labels: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let mut records = Vec::new();
        let mut emit = |record: &[u8]| {
            records.push(record.to_vec());
            Ok(())
        };
        let images = Items::read_header(Path::new("images"), Box::new(images));
        let labels = Items::read_header(Path::new("labels"), Box::new(labels));
        let paired = images.and_then(|images| pair(images, labels?, &mut emit));
        paired.map(|()| records).map_err(|error| error.to_string())
    }

    #[test]
    fn a_record_is_the_label_and_then_the_image() {
        let images = idx(8, &[2, 1, 3], &[1, 2, 3, 4, 5, 6]);
        assert_eq!(records(&images, &idx(8, &[2], &[7, 9])).unwrap(), [[7, 1, 2, 3], [9, 4, 5, 6]]);
        assert!(records(&idx(8, &[0, 28, 28], &[]), &idx(8, &[0], &[])).unwrap().is_empty());
    }

    #[test]
    fn every_truncation_is_refused() {
        let (images, labels) = (idx(8, &[2, 1, 3], &[1, 2, 3, 4, 5, 6]), idx(8, &[2], &[7, 9]));
        for cut in 0..images.len() {
            let error = records(&images[..cut], &labels).unwrap_err();
            assert!(error.starts_with("images: ends inside "), "{error}");
        }
        for cut in 0..labels.len() {
            let error = records(&images, &labels[..cut]).unwrap_err();
            assert!(error.starts_with("labels: ends inside "), "{error}");
        }
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let (images, labels) = (idx(8, &[2, 1, 3], &[1, 2, 3, 4, 5, 6]), idx(8, &[2], &[7, 9]));
        let refusal = |images: &[u8], labels: &[u8]| records(images, labels).unwrap_err();
        assert!(refusal(&images, &idx(8, &[3], &[7, 9, 1])).contains("2 images and labels 3 labels"));
        assert!(refusal(&labels, &images).contains("swapped"));
        assert!(refusal(&images, &images).contains("one dimension and not 3"));
        assert!(refusal(&[images.clone(), vec![0]].concat(), &labels).contains("goes on after the 2 items"));
        assert!(refusal(&images, &[labels.clone(), vec![0]].concat()).contains("goes on after the 2 items"));
        assert!(refusal(&idx(0x0d, &[1], &[0; 4]), &labels).contains("type 0x0d"));
        assert!(refusal(b"PNG?", &labels).contains("not an IDX file"));
        assert!(refusal(&idx(8, &[], &[]), &labels).contains("not an IDX file"));
        let huge = idx(8, &[1, u32::MAX, u32::MAX, u32::MAX], &[]);
        assert!(refusal(&huge, &labels).contains("larger than a record may be"));
    }
}
