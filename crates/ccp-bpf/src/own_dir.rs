//! Directories that nobody else can change: for the lock and for the pins.
//!
//! Who can remove or replace a pin or a lock could keep the agent from starting, or start a second one.

use crate::error::Error;
use crate::sys;
use std::fs::{self, DirBuilder, File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Write permission of the group and of others; what makes a shared directory safe.
const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Creates the directory for this user alone, or checks one that is there.
pub(crate) fn create(dir: &Path) -> Result<(), Error> {
    let what = || format!("creating {}", dir.display());
    let result = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    match result {
        Err(e) if e.kind() == ErrorKind::PermissionDenied && !sys::is_root() => {
            return Err(Error::Privilege);
        }
        // Something else has the name, or a link that leads nowhere: the check says so.
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
        other => other.map_err(Error::io(what()))?,
    }
    if is_there(dir)? {
        Ok(())
    } else {
        Err(Error::io(what())(ErrorKind::NotFound.into()))
    }
}

/// Whether the directory is there; an error if it is no directory of this user's that only it may change.
pub(crate) fn is_there(dir: &Path) -> Result<bool, Error> {
    let Some(found) = look(dir)? else {
        return Ok(false);
    };
    let user = sys::user();
    if user != 0 && found.uid() == 0 && !found.is_symlink() {
        return Err(Error::Privilege); // root's agent has it, or had
    }
    let owned = |of: &Metadata| of.uid() == user || of.uid() == 0;
    let others_may_replace_in =
        |above: &Metadata| above.mode() & OTHERS_WRITE != 0 && above.mode() & STICKY == 0;
    let unsafe_because = if found.is_symlink() {
        "it is a symbolic link".to_owned()
    } else if !found.is_dir() {
        "it is no directory".to_owned()
    } else if found.uid() != user {
        format!("it belongs to user {}", found.uid())
    } else if found.mode() & OTHERS_WRITE != 0 {
        format!(
            "its mode {:03o} lets others write to it",
            found.mode() & 0o777
        )
    } else if let Some(parent) = dir.parent()
        && let Some(above) = fs::metadata(parent).ok()
        && (!owned(&above) || others_may_replace_in(&above))
    {
        format!("others can replace it in {}", parent.display())
    } else {
        return Ok(true);
    };
    Err(Error::ForeignDir {
        path: dir.to_owned(),
        unsafe_because,
    })
}

fn look(path: &Path) -> Result<Option<Metadata>, Error> {
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) if e.kind() == ErrorKind::PermissionDenied && !sys::is_root() => {
            Err(Error::Privilege)
        }
        other => other
            .map(Some)
            .map_err(Error::io(format!("looking at {}", path.display()))),
    }
}

/// A file in a directory of our own that one process at a time holds.
pub(crate) struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// Takes the lock; `None` if another process holds it.
    pub(crate) fn take(dir: &Path, name: &str) -> Result<Option<Self>, Error> {
        let path = dir.join(name);
        let what = || format!("taking the lock {}", path.display());
        // Who gives a lock up removes file and directory, perhaps just now.
        const ATTEMPTS: usize = 100;
        for _ in 0..ATTEMPTS {
            create(dir)?;
            let opened = File::options()
                .create(true)
                .truncate(false)
                .write(true)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW)
                .open(&path);
            let file = match opened {
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                other => other.map_err(Error::io(what()))?,
            };
            match file.try_lock() {
                Ok(()) => {}
                Err(fs::TryLockError::WouldBlock) => return Ok(None),
                Err(fs::TryLockError::Error(e)) => return Err(Error::io(what())(e)),
            }
            let held = file.metadata().map_err(Error::io(what()))?;
            let named = look(&path)?;
            if named.is_some_and(|named| named.ino() == held.ino() && named.dev() == held.dev()) {
                return Ok(Some(Self { path, _file: file }));
            }
        }
        Err(Error::io(what())(ErrorKind::WouldBlock.into()))
    }

    /// Gives it up, and leaves nothing behind.
    pub(crate) fn remove(self) {
        // Both may have gone with their file system, and the directory may hold what is not ours.
        let _ = fs::remove_file(&self.path);
        let _ = self.path.parent().map(fs::remove_dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// An empty directory of the test's own, removed at the end.
    struct Place(PathBuf);

    impl Place {
        fn new(test: &str) -> Self {
            let path = std::env::temp_dir().join(format!("ccp-bpf-{test}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            DirBuilder::new().mode(0o700).create(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn refusal(dir: &Path) -> String {
        match (is_there(dir), create(dir)) {
            (Err(Error::ForeignDir { unsafe_because, .. }), Err(_)) => unsafe_because,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_directory_is_made_for_this_user_alone() {
        let place = Place::new("made");
        let dir = place.0.join("run/ours");
        assert!(!is_there(&dir).unwrap());
        create(&dir).unwrap();
        create(&dir).unwrap();
        assert!(is_there(&dir).unwrap());
        assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn what_others_can_change_is_refused() {
        let place = Place::new("refused");
        let dir = place.0.join("ours");
        create(&dir).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(0o775)).unwrap();
        assert_eq!(refusal(&dir), "its mode 775 lets others write to it");
        fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
        assert!(is_there(&dir).unwrap());

        // In a shared directory only the sticky bit keeps what is one's own.
        fs::set_permissions(&place.0, Permissions::from_mode(0o777)).unwrap();
        assert!(refusal(&dir).starts_with("others can replace it in "));
        fs::set_permissions(&place.0, Permissions::from_mode(0o1777)).unwrap();
        assert!(is_there(&dir).unwrap());

        let link = place.0.join("link");
        symlink(&dir, &link).unwrap();
        assert_eq!(refusal(&link), "it is a symbolic link");
        let file = place.0.join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(refusal(&file), "it is no directory");
    }

    #[test]
    fn another_user_s_directory_is_refused() {
        if !sys::is_root() {
            println!("SKIPPED another_user_s_directory_is_refused: needs root, to give one away");
            return;
        }
        let place = Place::new("foreign");
        let dir = place.0.join("theirs");
        create(&dir).unwrap();
        std::os::unix::fs::chown(&dir, Some(65_534), None).unwrap();
        assert_eq!(refusal(&dir), "it belongs to user 65534");
    }

    #[test]
    fn one_holds_the_lock_and_leaves_nothing() {
        let place = Place::new("lock");
        let dir = place.0.join("ours");
        let lock = Lock::take(&dir, "lock").unwrap().unwrap();
        assert!(Lock::take(&dir, "lock").unwrap().is_none());
        lock.remove();
        assert!(!dir.exists());
        // A crash leaves the file, but not the lock.
        drop(Lock::take(&dir, "lock").unwrap().unwrap());
        assert!(dir.join("lock").exists());
        Lock::take(&dir, "lock").unwrap().unwrap().remove();
        assert!(!dir.exists());
        // A link in the lock's place is not followed.
        create(&dir).unwrap();
        symlink(place.0.join("elsewhere"), dir.join("lock")).unwrap();
        assert!(Lock::take(&dir, "lock").is_err());
        assert!(!place.0.join("elsewhere").exists());
    }
}
