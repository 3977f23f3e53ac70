//! Results of the kernel's own schemes, kept from suite to suite.
//!
//! Cubic does not change while PK3C is worked on, so its runs need not be made again for every comparison. A result is
//! found by the hash of all that it depends on (scenario, settings, kernel, the sources of the emulator) and its seed;
//! if any of them differs, it is not there. Nothing is ever removed: the folder may be deleted at any time.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use super::store::{Found, StoreError, find, write_whole};
use crate::lab::result::{Inputs, RunResult};

/// A folder of results by hash and seed.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// In a folder, which need not be there yet.
    pub fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
        }
    }

    /// In the user's cache folder; `None` if there is none.
    pub fn of_user() -> Option<Self> {
        let absolute = |name| {
            let folder = env::var_os(name).map(PathBuf::from);
            folder.filter(|folder| folder.is_absolute())
        };
        let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
        Some(Self::new(&base.join("pk3c-ccp/lab")))
    }

    fn file_of(&self, inputs: &Inputs) -> PathBuf {
        let Inputs { hash, seed, .. } = inputs;
        self.folder.join(hash).join(format!("{seed}.json"))
    }

    /// The result of equal inputs, if there is a good one.
    pub fn find(&self, inputs: &Inputs) -> Option<RunResult> {
        match find(&self.file_of(inputs), inputs) {
            Found::Result(result) => Some(*result),
            _ => None,
        }
    }

    /// Keeps a result for later suites.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be written.
    pub fn keep(&self, result: &RunResult) -> Result<(), StoreError> {
        let file = self.file_of(&result.inputs);
        let folder = file.parent().unwrap_or(&self.folder);
        let kept = fs::create_dir_all(folder).and_then(|()| write_whole(&file, result));
        kept.map_err(|cause| StoreError::Cache {
            folder: self.folder.clone(),
            cause,
        })
    }
}
