//! What fetches the examples' data passes its own tests, which need nothing but Python 3 (`SHOAL_PYTHON` names it).
//! Without it the test says so and passes, or fails when `SHOAL_REQUIRE_ALL=1`. It must never reach for a network.

use std::path::Path;
use std::process::Command;

#[test]
fn fetching_checks_every_file_and_names_the_way_out() {
    let python = std::env::var("SHOAL_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    if Command::new(&python).arg("--version").output().is_err() {
        let missing = format!("{python} is not here");
        assert_ne!(std::env::var("SHOAL_REQUIRE_ALL").as_deref(), Ok("1"), "{missing}");
        eprintln!("NOT TESTED: {missing}");
        return;
    }
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trainer-sdk/examples");
    let tested = Command::new(&python).args(["-B", "fetch_test.py"]).current_dir(examples).output().unwrap();
    assert!(tested.status.success(), "{}", String::from_utf8_lossy(&tested.stderr));
}
