//! A folder of results: one JSON file for each run, written whole or not at all.
//!
//! A file is written under another name, flushed, and renamed, so that a reader never sees half of one, and a suite
//! that is killed leaves whole results only. What it may leave is one unfinished file, whose name begins with a point;
//! the next suite that opens the folder removes it. While a suite writes to a folder it holds a lock on it, which the
//! kernel releases however the suite ends.

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::lab::result::{FORMAT, Inputs, RunResult};

const UNFINISHED: &str = ".unfinished";

/// What went wrong with files of results.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The folder.
    #[error("cannot use {} for results: {cause}; give a folder that can be written to", .folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// The cache.
    #[error("cannot keep results in the cache {}: {cause}; --cache names another folder, --no-cache none", .folder.display())]
    Cache {
        /// Its folder.
        folder: PathBuf,
        /// What went wrong.
        cause: io::Error,
    },
    /// Someone else writes to the folder.
    #[error("another suite is writing to {}: wait for its end, or give another folder", .0.display())]
    InUse(
        /// The folder.
        PathBuf,
    ),
    /// A file.
    #[error("cannot write {}: {cause}{}", .file.display(), remedy(.cause))]
    Write {
        /// The file.
        file: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
}

fn remedy(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            "; make room and give the same command again: what is there is kept"
        }
        _ => "",
    }
}

/// A folder of results that this process writes to.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    /// Open and locked for as long as the store lives.
    _lock: Flock<File>,
}

/// What is in a folder of the result of a run.
#[derive(Debug, PartialEq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// A result of other inputs: another program, kernel or setting.
    Other,
    /// A result that must not be used, or what cannot be read.
    Useless(String),
    /// The result.
    Result(Box<RunResult>),
}

impl Store {
    /// Opens a folder, makes it if it is not there, and removes what a killed suite left unfinished.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be made, locked or written to.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let unusable = |cause| StoreError::Folder {
            folder: folder.to_owned(),
            cause,
        };
        fs::create_dir_all(folder).map_err(unusable)?;
        let file = File::open(folder).map_err(unusable)?;
        let lock =
            Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(
                |(_, errno)| match errno {
                    Errno::EWOULDBLOCK => StoreError::InUse(folder.to_owned()),
                    errno => unusable(errno.into()),
                },
            )?;
        for entry in fs::read_dir(folder).map_err(unusable)? {
            let path = entry.map_err(unusable)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with('.') && name.ends_with(UNFINISHED) {
                fs::remove_file(&path).map_err(unusable)?;
            }
        }
        let store = Self {
            folder: folder.to_owned(),
            _lock: lock,
        };
        store.try_out()?;
        Ok(store)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Fails now rather than after the first run.
    fn try_out(&self) -> Result<(), StoreError> {
        let file = self.folder.join(format!(".try{UNFINISHED}"));
        let tried = File::create(&file).and_then(|mut open| open.write_all(b"room"));
        let removed = fs::remove_file(&file);
        let failed = |cause| StoreError::Folder {
            folder: self.folder.clone(),
            cause,
        };
        tried.and(removed).map_err(failed)
    }

    /// Where the result of a run is.
    pub fn file_of(&self, inputs: &Inputs) -> PathBuf {
        self.folder.join(format!("{}.json", name(inputs)))
    }

    /// What is there of the result of a run.
    pub fn find(&self, inputs: &Inputs) -> Found {
        find(&self.file_of(inputs), inputs)
    }

    /// Writes the result of a run.
    ///
    /// # Errors
    /// [`StoreError::Write`]; then nothing of it is left.
    pub fn keep(&self, result: &RunResult) -> Result<(), StoreError> {
        self.write(&self.file_of(&result.inputs), result)
    }

    /// Writes another file of the suite.
    ///
    /// # Errors
    /// As [`Store::keep`].
    pub fn keep_other(&self, name: &str, content: &impl Serialize) -> Result<(), StoreError> {
        self.write(&self.folder.join(name), content)
    }

    fn write(&self, file: &Path, content: &impl Serialize) -> Result<(), StoreError> {
        write_whole(file, content).map_err(|cause| StoreError::Write {
            file: file.to_owned(),
            cause,
        })
    }
}

/// `ID-SCHEME-SEED`, with what no file name should have replaced.
fn name(inputs: &Inputs) -> String {
    let name = format!("{}-{}-{}", inputs.scenario, inputs.scheme, inputs.seed);
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    name.chars()
        .map(|c| if fits(c) { c } else { '_' })
        .collect()
}

/// What a file has of the result of a run.
pub(super) fn find(file: &Path, inputs: &Inputs) -> Found {
    let text = match fs::read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Found::Nothing,
        Err(error) => return Found::Useless(format!("it cannot be read: {error}")),
    };
    let result: RunResult = match serde_json::from_slice(&text) {
        Ok(result) => result,
        Err(error) => return Found::Useless(format!("it is no result: {error}")),
    };
    if result.format != FORMAT {
        return Found::Useless(format!("its format is {}, not {FORMAT}", result.format));
    }
    if result.inputs.hash != inputs.hash || result.inputs.seed != inputs.seed {
        return Found::Other;
    }
    match &result.void {
        Some(why) => Found::Useless(format!("it is void: {why}")),
        None => Found::Result(Box::new(result)),
    }
}

/// Writes a file that is either whole or not there.
pub(super) fn write_whole(file: &Path, content: &impl Serialize) -> io::Result<()> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = file.with_file_name(format!(".{name}{UNFINISHED}"));
    let write = || -> io::Result<()> {
        let mut text = serde_json::to_vec(content)?;
        text.push(b'\n');
        let mut open = File::create(&unfinished)?;
        open.write_all(&text)?;
        open.sync_data()?;
        fs::rename(&unfinished, file)
    };
    // Half a file takes room that someone needs; if it cannot be removed, the next suite tries.
    write().inspect_err(|_| drop(fs::remove_file(&unfinished)))
}
