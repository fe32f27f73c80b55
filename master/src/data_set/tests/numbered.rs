//! Data without files: what is pinned for a number of records, and what is refused.

use super::super::Refused;
use super::scan;
use shoal_job::numbered;
use shoal_recordio::numbered::CHUNK_RECORDS;
use shoal_recordio::{Limits, Writer, WriterOptions};
use shoal_runtime::cluster::Manifest;

fn words(given: &[&str]) -> Vec<String> {
    given.iter().map(|name| (*name).to_owned()).collect()
}

async fn refusal(given: &[&str]) -> String {
    let error = scan(&words(given), &[]).await.unwrap_err();
    assert!(error.downcast_ref::<Refused>().is_some(), "{error:#}");
    error.to_string()
}

async fn pinned(name: &str) -> Manifest {
    scan(&words(&[name]), &[]).await.unwrap().0
}

#[tokio::test]
async fn a_number_of_records_is_the_data_set_that_a_file_of_them_is() {
    let folder = tempfile::tempdir().unwrap();
    let whole = u64::from(CHUNK_RECORDS);
    for records in [1, 1000, whole, whole + 1, 60_000] {
        let options = WriterOptions { chunk_records: CHUNK_RECORDS, ..WriterOptions::default() };
        let mut writer = Writer::new(Vec::new(), options);
        (0..records).for_each(|number| writer.write(&number.to_le_bytes()).unwrap());
        let file = folder.path().join("numbers.recordio");
        std::fs::write(&file, writer.finish().unwrap()).unwrap();
        let name = format!("records:{records}");
        let (manifest, of_file) = (pinned(&name).await, pinned(file.to_str().unwrap()).await);
        assert_eq!(manifest.fingerprint(), of_file.fingerprint());
        assert_eq!((manifest.record_count(), manifest.files()[0].path.as_str()), (records, name.as_str()));
        assert!((0..manifest.chunk_count()).all(|chunk| {
            let (of_number, of_file) = (manifest.chunk(chunk), of_file.chunk(chunk));
            (of_number.offset, of_number.bytes, of_number.records, of_number.checksum)
                == (of_file.offset, of_file.bytes, of_file.records, of_file.checksum)
        }));
    }
}

#[tokio::test]
async fn what_is_trained_on_and_what_is_evaluated_are_numbers_or_files_each_for_itself() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f").display().to_string();
    std::fs::write(&file, super::file(0, 3, 1)).unwrap();
    for (trained, evaluated, records) in [
        ("records:7", "records:7", (14, 7)),
        ("records:7", file.as_str(), (10, 7)),
        (&file, "records:7", (10, 3)),
    ] {
        let (manifest, trained) = scan(&words(&[trained]), &words(&[evaluated])).await.unwrap();
        assert_eq!((manifest.record_count(), trained), records);
    }
}

#[tokio::test]
async fn numbers_stand_alone_and_are_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f").display().to_string();
    std::fs::write(&file, super::file(0, 3, 1)).unwrap();
    let listed = format!("records:5,{file}");
    for given in [&["records:5", &file][..], &[&file, "records:5"], &[&listed], &["records:5", "records:6"]] {
        let said = refusal(given).await;
        assert!(said.contains("\n  records:5: a number of records stands alone"), "{given:?}: {said}");
        assert!(!said.contains(&format!("\n  {file}")), "{said}");
    }
    assert!(refusal(&["records:5,"]).await.contains("records:5: a number of records stands alone"));
    for (name, way_out) in [
        ("records:0", "records:1 at least"),
        ("records:1e6", "in digits"),
        ("records:68719476737", "at most"),
    ] {
        assert!(refusal(&[name]).await.contains(way_out));
    }
}

#[tokio::test]
async fn the_most_records_are_the_most_chunks_of_a_file_and_are_pinned_without_a_look_at_each() {
    let manifest = pinned(&format!("records:{}", numbered::RECORDS_MAX)).await;
    assert_eq!(manifest.chunk_count() as usize, Limits::default().max_chunks);
    assert_eq!(manifest.record_count(), numbered::RECORDS_MAX);
}
