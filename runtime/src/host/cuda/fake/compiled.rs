//! C sources of ours as a library for this processor. It must never be called from anything but tests.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// What sources include.
const KERNELS: [(&str, &str); 3] = [
    ("runtime/src/host/cuda/kernels", "values.cuh"),
    ("pserver/src/device/kernels", "update.cu"),
    ("runtime/src/host/cuda/kernels", "reduce.cu"),
];

/// A folder with the library `name` made of `sources`, files of the workspace. Made once for each content.
pub(crate) fn library(name: &str, sources: &[&str]) -> PathBuf {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let top = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let content =
        |file: &Path| std::fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let kernels = KERNELS.map(|(folder, file)| top.join(folder).join(file));
    let mut hash = DefaultHasher::new();
    let files: Vec<PathBuf> = sources.iter().map(|source| top.join(source)).collect();
    files.iter().chain(&kernels).for_each(|file| content(file).hash(&mut hash));
    let here = std::env::current_exe().unwrap();
    let folder = here.parent().unwrap().join(format!("compiled-{:016x}", hash.finish()));
    let library = folder.join(name);
    if !library.exists() {
        std::fs::create_dir_all(&folder).unwrap();
        let making = folder.join(format!("{name}.{}", std::process::id()));
        let soname = format!("-Wl,-soname,{name}");
        let flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread"];
        // No contraction, and a square root that is the processor's.
        let exact = ["-ffp-contract=off", "-fno-math-errno"];
        let mut compiler = Command::new("cc");
        compiler.args(KERNELS.map(|(folder, _)| format!("-I{}", top.join(folder).display())));
        compiler.args(flags).args(exact).args([&soname, "-o"]).arg(&making).args(&files);
        let made = compiler.output().unwrap_or_else(|error| panic!("a C compiler is needed: cc: {error}"));
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        std::fs::rename(&making, &library).unwrap();
    }
    folder
}
