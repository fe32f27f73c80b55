//! C sources of ours as a library for this processor. It must never be called from anything but tests.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder with the library `name` made of `sources`, files of this package. Made once for each content.
pub(crate) fn library(name: &str, sources: &[&str]) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let content =
        |file: &Path| std::fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let kernel = package.join("src/device/kernels/update.cu");
    let mut hash = crc32fast::Hasher::new();
    let files: Vec<PathBuf> = sources.iter().map(|source| package.join(source)).collect();
    files.iter().chain([&kernel]).for_each(|file| hash.update(&content(file)));
    let here = std::env::current_exe().unwrap();
    let folder = here.parent().unwrap().join(format!("compiled-{:08x}", hash.finalize()));
    let library = folder.join(name);
    if !library.exists() {
        std::fs::create_dir_all(&folder).unwrap();
        let making = folder.join(format!("{name}.{}", std::process::id()));
        let soname = format!("-Wl,-soname,{name}");
        let flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread"];
        // No contraction, and a square root that is the processor's.
        let exact = ["-ffp-contract=off", "-fno-math-errno"];
        let mut compiler = Command::new("cc");
        compiler.args(flags).args(exact).args([&soname, "-o"]).arg(&making).args(&files);
        let made = compiler.output().expect("a C compiler is needed: cc");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        std::fs::rename(&making, &library).unwrap();
    }
    folder
}
