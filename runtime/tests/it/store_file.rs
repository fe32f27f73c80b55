//! The store in a folder, on a real disk, among several handles and processes.

use bytes::Bytes;
use shoal_runtime::host::store::{FileStore, Revision, Store, StoreError};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(60);
/// Set in a child of this test, to the folder in which it shall lead until it is killed.
const LEAD_IN: &str = "SHOAL_TEST_LEAD_IN";

fn open(folder: &Path) -> FileStore {
    FileStore::open(folder).unwrap()
}

fn is_conflict<T>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Conflict(_)))
}

fn broken<T: std::fmt::Debug>(result: Result<T, StoreError>) -> String {
    match result {
        Err(StoreError::Broken(what)) => what,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn only_who_names_the_present_revision_may_swap_and_it_outlives_the_handle() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    assert_eq!(store.load().await, Ok(None));
    assert!(is_conflict(&store.swap(Some(Revision(1)), Bytes::from("a")).await));
    let first = store.swap(None, Bytes::from("a")).await.unwrap();
    let conflict = store.swap(None, Bytes::from("b")).await;
    assert!(is_conflict(&conflict) && conflict.unwrap_err().to_string().contains("master.state"));
    let second = open(folder.path()).swap(Some(first), Bytes::from("b")).await.unwrap();
    assert!(second > first);
    assert!(is_conflict(&store.swap(Some(first), Bytes::from("c")).await));
    drop(store);
    assert_eq!(open(folder.path()).load().await, Ok(Some((second, Bytes::from("b")))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn swaps_of_many_handles_at_once_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut writers = Vec::new();
    for _ in 0..8 {
        let store = open(folder.path());
        writers.push(tokio::spawn(async move {
            let mut done = 0;
            while done < 10 {
                let (expected, count) = match store.load().await.unwrap() {
                    Some((revision, count)) => (Some(revision), count[0]),
                    None => (None, 0),
                };
                match store.swap(expected, Bytes::from(vec![count + 1])).await {
                    Ok(_) => done += 1,
                    Err(StoreError::Conflict(_)) => {}
                    Err(other) => panic!("{other}"),
                }
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let (revision, count) = open(folder.path()).load().await.unwrap().unwrap();
    assert_eq!((revision.0, count[0]), (80, 80));
}

#[tokio::test]
async fn one_leads_at_a_time_and_dropping_lets_the_next_one_in() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (open(folder.path()), open(folder.path()));
    let mut led = one.lead("the master on one").await.unwrap();
    let name = std::fs::read(folder.path().join("master.leader.lock")).unwrap();
    assert_eq!(name, b"the master on one");
    assert!(timeout(Duration::from_millis(700), two.lead("two")).await.is_err());
    assert!(timeout(Duration::from_millis(10), led.lost()).await.is_err());
    let first = timeout(LONG, one.swap(None, Bytes::from("a"))).await.expect("a leader swaps").unwrap();
    assert!(two.swap(Some(first), Bytes::from("b")).await.is_ok(), "leading gives no right to anything");
    drop(led);
    let led = timeout(LONG, two.lead("two")).await.unwrap().unwrap();
    let name = std::fs::read(folder.path().join("master.leader.lock")).unwrap();
    assert_eq!(name, b"two", "nothing is left of a longer name");
    assert!(timeout(Duration::from_millis(700), one.lead("one")).await.is_err());
    drop(led);
}

#[tokio::test]
async fn leadership_falls_with_a_process_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut leader = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "store_file::a_child_leads_until_it_is_killed", "--nocapture"])
        .env(LEAD_IN, folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let name = folder.path().join("master.leader.lock");
    let leads = async {
        while std::fs::read(&name).map_or(true, |name| name.is_empty()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LONG, leads).await.unwrap();
    let store = open(folder.path());
    let waits = timeout(Duration::from_millis(700), store.lead("standby")).await;
    leader.kill().unwrap();
    leader.wait().unwrap();
    assert!(waits.is_err());
    assert!(timeout(LONG, store.lead("standby")).await.unwrap().is_ok());
}

#[tokio::test]
async fn a_child_leads_until_it_is_killed() {
    let Some(folder) = std::env::var_os(LEAD_IN) else { return };
    let _led = open(Path::new(&folder)).lead("child").await.unwrap();
    tokio::time::sleep(LONG).await;
}

#[tokio::test(start_paused = true)]
async fn a_swap_that_another_process_never_ends_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let first = store.swap(None, Bytes::from("a")).await.unwrap();
    let lock = std::fs::File::open(folder.path().join("master.swap.lock")).unwrap();
    lock.lock().unwrap();
    let waited = timeout(LONG * 2, store.swap(Some(first), Bytes::from("b"))).await.expect("no end");
    assert!(
        matches!(&waited, Err(StoreError::Unavailable(why)) if why.contains("master.swap.lock")),
        "{waited:?}"
    );
    assert_eq!(store.load().await.unwrap().unwrap().1, "a", "reading needs no lock");
    drop(lock);
    assert!(store.swap(Some(first), Bytes::from("b")).await.is_ok());
}

#[tokio::test]
async fn damage_is_told_with_the_file_and_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let first = store.swap(None, Bytes::from("a")).await.unwrap();
    let path = folder.path().join("master.state");
    let whole = std::fs::read(&path).unwrap();
    for damaged in [&[][..], &whole[..whole.len() - 1], &[&whole[..], b"x"].concat()] {
        std::fs::write(&path, damaged).unwrap();
        for what in [broken(store.load().await), broken(store.swap(Some(first), Bytes::from("b")).await)] {
            assert!(what.contains(path.to_str().unwrap()) && what.contains("copy"), "{what}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), damaged);
    }
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(
        broken(store.load().await).contains(path.to_str().unwrap()),
        "what cannot be read is not nothing"
    );
    std::fs::remove_dir(&path).unwrap();
    std::fs::write(&path, whole).unwrap();
    assert!(store.swap(Some(first), Bytes::from("b")).await.is_ok());
}

#[tokio::test]
async fn a_folder_that_is_gone_is_not_an_empty_one() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("state");
    let store = open(&inner);
    std::fs::remove_dir_all(&inner).unwrap();
    let outcomes = [
        broken(store.load().await),
        broken(store.swap(None, Bytes::from("a")).await),
        broken(store.lead("one").await),
    ];
    for what in outcomes {
        assert!(what.contains(inner.to_str().unwrap()) && what.contains("mounted"), "{what}");
    }
    std::fs::write(&inner, "a file").unwrap();
    for path in [inner.clone(), inner.join("below")] {
        let what = broken(FileStore::open(&path));
        assert!(what.contains(inner.to_str().unwrap()) && what.contains("right folder"), "{what}");
    }
}

#[tokio::test]
async fn what_a_process_left_half_written_is_nothing_to_the_next() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("master.state.next"), vec![1; 1000]).unwrap();
    let store = open(folder.path());
    assert_eq!(store.load().await, Ok(None));
    let first = store.swap(None, Bytes::from("a")).await.unwrap();
    assert_eq!(store.load().await, Ok(Some((first, Bytes::from("a")))));
}

#[tokio::test]
async fn a_full_disk_is_told_and_keeps_the_document_until_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let mount = ["-t", "tmpfs", "-o", "size=64k", "tmpfs"];
    let mounted = Command::new("mount").args(mount).arg(folder.path()).stderr(Stdio::null()).status();
    if !mounted.is_ok_and(|mounted| mounted.success()) {
        // The same, on a disk that is a model, is tested by `file/power_tests.rs`.
        eprintln!("NOT TESTED: mounting a small disk needs privileges");
        return;
    }
    let store = open(folder.path());
    let first = store.swap(None, Bytes::from("a")).await;
    let rest = std::fs::write(folder.path().join("rest"), vec![0; 40 << 10]);
    let full = store.swap(Some(Revision(1)), Bytes::from(vec![1; 32 << 10])).await;
    let kept = store.load().await;
    let freed = std::fs::remove_file(folder.path().join("rest"));
    let later = store.swap(Some(Revision(1)), Bytes::from(vec![2; 32 << 10])).await;
    let unmounted = Command::new("umount").arg(folder.path()).status();
    assert!(unmounted.is_ok_and(|unmounted| unmounted.success()));
    assert_eq!(first, Ok(Revision(1)));
    assert!(rest.is_ok() && freed.is_ok());
    let what = broken(full);
    assert!(what.contains("master.state") && what.contains("make room"), "{what}");
    assert_eq!(kept, Ok(Some((Revision(1), Bytes::from("a")))));
    assert_eq!(later, Ok(Revision(2)));
}

#[tokio::test]
async fn a_folder_that_may_not_be_written_is_told_and_keeps_the_document() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let first = store.swap(None, Bytes::from("a")).await.unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o555)).unwrap();
    if std::fs::write(folder.path().join("probe"), "").is_ok() {
        eprintln!("NOT TESTED: this user may write everywhere");
        return;
    }
    let refused = store.swap(Some(first), Bytes::from("b")).await;
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    assert!(broken(refused).contains("write there"));
    assert_eq!(store.load().await, Ok(Some((first, Bytes::from("a")))));
}
