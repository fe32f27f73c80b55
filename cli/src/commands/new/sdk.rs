//! Where a new program's SDK comes from, and the line of its Cargo.toml that says so. Looks at folders, writes nothing.

use std::path::{Path, PathBuf};

/// Where the SDK comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sdk {
    /// The folder of the package, from the root.
    Folder(PathBuf),
    /// A repository.
    Git(String),
    /// A version, or several, as Cargo.toml says it.
    Version(String),
}

impl Sdk {
    /// The package beside the one that this command was built from.
    ///
    /// # Errors
    /// It is not there any more.
    pub(super) fn built_from() -> Result<Sdk, String> {
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
        checkout.and_then(Sdk::in_folder).ok_or_else(|| {
            "the checkout that this command was built from is not there: name the SDK with --sdk, by the folder of \
             another checkout, a git URL, or a version"
                .to_owned()
        })
    }

    /// What `--sdk` says.
    ///
    /// # Errors
    /// Neither a folder with the package in it, nor a URL, nor a version.
    pub(super) fn said(said: &str) -> Result<Sdk, String> {
        let folder = Path::new(said);
        if folder.is_dir() {
            let lacks =
                || format!("--sdk {said}: neither the package shoal-trainer-sdk nor a checkout with it");
            return Sdk::in_folder(folder).ok_or_else(lacks);
        }
        let is_version = |c: char| c.is_ascii_alphanumeric() || "^~=<>*.,+- ".contains(c);
        if said.contains("://") {
            Ok(Sdk::Git(said.to_owned()))
        } else if said.starts_with(|c: char| c.is_ascii_digit() || "^~=<>".contains(c))
            && said.chars().all(is_version)
        {
            Ok(Sdk::Version(said.to_owned()))
        } else {
            Err(format!("--sdk {said}: there is no such folder, and it is neither a git URL nor a version"))
        }
    }

    fn in_folder(folder: &Path) -> Option<Sdk> {
        let places = [folder.to_owned(), folder.join("trainer-sdk")];
        let found = places.into_iter().find(|place| is_sdk(&place.join("Cargo.toml")))?;
        Some(Sdk::Folder(found.canonicalize().ok()?))
    }

    /// What Cargo.toml says after `shoal-trainer-sdk = `.
    pub(super) fn dependency(&self) -> String {
        match self {
            Sdk::Folder(folder) => format!("{{ path = {} }}", quoted(&folder.to_string_lossy())),
            Sdk::Git(url) => format!("{{ git = {} }}", quoted(url)),
            Sdk::Version(version) => quoted(version),
        }
    }

    /// The lock file of the checkout that the folder is part of.
    pub(super) fn lock(&self) -> Option<PathBuf> {
        let Sdk::Folder(folder) = self else { return None };
        Some(folder.parent()?.join("Cargo.lock")).filter(|lock| lock.is_file())
    }
}

fn is_sdk(manifest: &Path) -> bool {
    let text = std::fs::read_to_string(manifest).unwrap_or_default();
    text.lines().any(|line| line.trim() == "name = \"shoal-trainer-sdk\"")
}

/// A string as TOML writes it.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checkout_that_this_was_built_from_has_the_sdk_and_a_lock_file() {
        let sdk = Sdk::built_from().unwrap();
        let Sdk::Folder(folder) = &sdk else { panic!("{sdk:?}") };
        assert!(folder.join("src/trial.rs").is_file() && sdk.lock().unwrap().is_file());
        assert_eq!(sdk.dependency(), format!("{{ path = \"{}\" }}", folder.display()));
    }

    #[test]
    fn a_checkout_and_the_package_in_it_are_the_same_sdk() {
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let said = |folder: PathBuf| Sdk::said(folder.to_str().unwrap());
        assert_eq!(said(checkout.to_owned()), Sdk::built_from());
        assert_eq!(said(checkout.join("trainer-sdk")), Sdk::built_from());
        assert!(said(checkout.join("runtime")).unwrap_err().contains("neither the package"));
    }

    #[test]
    fn what_is_no_folder_is_a_url_or_a_version_or_refused() {
        let of = |said: &str| Sdk::said(said).map(|sdk| (sdk.dependency(), sdk.lock()));
        let git = "https://example.org/shoal.git";
        assert_eq!(of(git), Ok((format!("{{ git = \"{git}\" }}"), None)));
        assert_eq!(of("0.1"), Ok(("\"0.1\"".to_owned(), None)));
        assert_eq!(of(">=0.1, <0.3"), Ok(("\">=0.1, <0.3\"".to_owned(), None)));
        for said in ["nowhere", "../gone", "", "0.1\" }"] {
            assert!(of(said).unwrap_err().contains("no such folder"), "{said:?}");
        }
    }

    #[test]
    fn a_folder_of_any_name_is_one_string_of_the_manifest() {
        assert_eq!(Sdk::Folder("a \"b\" \\c".into()).dependency(), "{ path = \"a \\\"b\\\" \\\\c\" }");
    }
}
