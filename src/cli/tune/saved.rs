//! What the settings were before: a file in a folder of its own, written before anything is changed.
//!
//! Whoever reads it as root writes into `/proc/sys` what it says, so nobody else may have a hand in it: the folder and
//! the file must belong to this user and be writable by no other, and symbolic links are not followed. The file is
//! replaced by renaming, so that it is always whole; the folder is locked while it is in use.

use anyhow::{Context, Result, bail, ensure};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, openat, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const FILE: &str = "saved.json";
const NEW: &str = "saved.json.new";
/// Version of the file's meaning.
const VERSION: u32 = 1;
/// A few settings; what is longer is not ours.
const LENGTH_MAX_BYTES: u64 = 64 << 10;

/// A setting that was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Change {
    /// As `sysctl` names it.
    pub(super) name: String,
    /// The value to put back.
    pub(super) before: String,
    /// Values that we have given it: another one is somebody else's.
    pub(super) ours: Vec<String>,
}

/// The file.
#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    version: u32,
    changes: Vec<Change>,
}

/// The folder, locked.
#[derive(Debug)]
pub(super) struct Folder {
    place: PathBuf,
    folder: Flock<File>,
}

impl Folder {
    /// Opens the folder, or makes it.
    pub(super) fn create(place: &Path) -> Result<Self> {
        loop {
            if let Err(error) = DirBuilder::new().mode(0o700).create(place)
                && error.kind() != ErrorKind::AlreadyExists
            {
                return Err(error).with_context(|| {
                    format!("cannot create {} (this takes root)", place.display())
                });
            }
            if let Some(folder) = Self::open(place)? {
                return Ok(folder);
            }
        }
    }

    /// Opens the folder; `None` if there is none.
    pub(super) fn open(place: &Path) -> Result<Option<Self>> {
        let cannot = || format!("cannot use the folder {}", place.display());
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits())
            .open(place);
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(cannot),
        };
        own(&opened.metadata().with_context(cannot)?).with_context(cannot)?;
        let folder = Flock::lock(opened, FlockArg::LockExclusive)
            .map_err(|(_, errno)| errno)
            .with_context(|| format!("cannot lock {}", place.display()))?;
        // Whoever had the lock before may have removed it.
        if folder.metadata().with_context(cannot)?.nlink() == 0 {
            return Ok(None);
        }
        let place = place.to_owned();
        Ok(Some(Self { place, folder }))
    }

    fn file(&self) -> PathBuf {
        self.place.join(FILE)
    }

    /// What was changed; nothing if nothing is saved.
    pub(super) fn read(&self) -> Result<Vec<Change>> {
        let name = self.file();
        let cannot = || format!("cannot read {}", name.display());
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = match openat(&*self.folder, FILE, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::ENOENT) => return Ok(Vec::new()),
            Err(errno) => return Err(errno).with_context(cannot),
        };
        let metadata = file.metadata().with_context(cannot)?;
        own(&metadata).with_context(cannot)?;
        ensure!(metadata.is_file(), "{} is no file", name.display());
        let mut text = String::new();
        file.take(LENGTH_MAX_BYTES)
            .read_to_string(&mut text)
            .with_context(cannot)?;
        let saved: Saved = serde_json::from_str(&text).with_context(|| {
            format!(
                "{} is damaged; the settings stay as they are until you put them back and remove it",
                name.display()
            )
        })?;
        ensure!(
            saved.version == VERSION,
            "{} is of another version of this program ({}): use that one to revert",
            name.display(),
            saved.version
        );
        Ok(saved.changes)
    }

    /// Saves all changes, on disk before it returns.
    pub(super) fn write(&self, changes: &[Change]) -> Result<()> {
        let cannot = || format!("cannot write {}", self.file().display());
        let saved = Saved {
            version: VERSION,
            changes: changes.to_vec(),
        };
        let text = serde_json::to_string_pretty(&saved).with_context(cannot)?;
        self.unlink(NEW).with_context(cannot)?;
        let flags =
            OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let mut file = openat(&*self.folder, NEW, flags, mode)
            .map(File::from)
            .with_context(cannot)?;
        file.write_all(text.as_bytes())
            .and_then(|()| file.sync_all())
            .with_context(cannot)?;
        renameat(&*self.folder, NEW, &*self.folder, FILE).with_context(cannot)?;
        self.folder.sync_all().with_context(cannot)
    }

    /// Removes what was saved, and the folder.
    pub(super) fn remove(self) -> Result<()> {
        for name in [FILE, NEW] {
            self.unlink(name)
                .with_context(|| format!("cannot remove {}", self.place.join(name).display()))?;
        }
        fs::remove_dir(&self.place)
            .with_context(|| format!("cannot remove {}", self.place.display()))
    }

    fn unlink(&self, name: &str) -> nix::Result<()> {
        match unlinkat(&*self.folder, name, UnlinkatFlags::NoRemoveDir) {
            Err(Errno::ENOENT) => Ok(()),
            result => result,
        }
    }
}

/// Refuses what another user owns or can write.
fn own(metadata: &Metadata) -> Result<()> {
    let user = geteuid().as_raw();
    if metadata.uid() != user || metadata.mode() & 0o022 != 0 {
        bail!(
            "it belongs to user {} and has mode {:o}: it must belong to user {user}, and nobody else may write it",
            metadata.uid(),
            metadata.mode() & 0o7777
        );
    }
    Ok(())
}
