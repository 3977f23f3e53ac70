//! Writing a record while flows run.

use super::{FORMAT, Line, VERSION, texts};
use crate::params::Params;
use crate::program::REPORT_FIELDS;
use std::borrow::Cow;
use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

struct Open {
    file: BufWriter<File>,
    written: u64,
    /// One line, kept so that a report allocates nothing.
    text: Vec<u8>,
}

/// Writes a record, buffered, up to a size. Shared by all flows of an agent.
pub struct Recorder {
    path: PathBuf,
    limit_bytes: u64,
    open: Mutex<Option<Open>>,
}

impl Recorder {
    /// Creates the file for this user alone, or empties it, and writes the header. A record names the peers of connections,
    /// so the file is neither another's nor behind a symbolic link that another may have made.
    ///
    /// # Errors
    /// If the file cannot be created or written, is a link, or belongs to another user.
    pub fn create(path: &Path, limit_bytes: u64, params: &Params) -> io::Result<Self> {
        let open = Open {
            file: BufWriter::with_capacity(1 << 16, create(path)?),
            written: 0,
            text: Vec::new(),
        };
        let recorder = Self {
            path: path.to_owned(),
            limit_bytes,
            open: Mutex::new(Some(open)),
        };
        let header = Line::Header {
            format: FORMAT.into(),
            version: VERSION,
            params: texts(params),
            fields: REPORT_FIELDS.map(Cow::from).into(),
        };
        let mut guard = recorder.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = guard.as_mut() {
            open.append(&header, limit_bytes)?;
            open.file.flush()?;
        }
        drop(guard);
        Ok(recorder)
    }

    /// Appends a line. When the size limit is reached or the disk refuses, recording ends with one warning; flows are
    /// never disturbed.
    pub fn write(&self, line: &Line) {
        let mut guard = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(open) = guard.as_mut() else { return };
        let result = open.append(line, self.limit_bytes);
        let result = match line {
            Line::End { .. } => result.and_then(|more| open.file.flush().map(|()| more)),
            _ => result,
        };
        let problem = match result {
            Ok(true) => return,
            Ok(false) => "the size limit is reached".to_owned(),
            Err(error) => error.to_string(),
        };
        let flushed = open.file.flush().is_ok();
        tracing::warn!(target: "record", path = %self.path.display(), limit_bytes = self.limit_bytes, flushed, "recording stopped: {problem}");
        *guard = None;
    }

    /// Whether lines are still written.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some()
    }
}

fn create(path: &Path) -> io::Result<File> {
    // Nothing is emptied before it is known whose it is.
    let opened = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(nix::libc::O_NOFOLLOW)
        .open(path);
    let refused = |why: String| io::Error::new(io::ErrorKind::PermissionDenied, why);
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(nix::libc::ELOOP) => refused(
            "it is a symbolic link, and records do not follow links: name another file".into(),
        ),
        _ => error,
    })?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Ok(file);
    }
    if found.uid() != nix::unistd::geteuid().as_raw() {
        return Err(refused(format!(
            "it belongs to user {}, who could read the record: remove it, or name another file",
            found.uid()
        )));
    }
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.set_len(0)?;
    Ok(file)
}

impl Open {
    /// False if the line would exceed the limit; nothing is written then.
    fn append(&mut self, line: &Line, limit_bytes: u64) -> io::Result<bool> {
        self.text.clear();
        serde_json::to_writer(&mut self.text, line)?;
        self.text.push(b'\n');
        let size = self.text.len() as u64;
        if self.written + size > limit_bytes {
            return Ok(false);
        }
        self.file.write_all(&self.text)?;
        self.written += size;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{chown, symlink};

    /// A directory of the test's own, removed at the end.
    struct Place(PathBuf);

    impl Place {
        fn new(test: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("pk3c-record-{test}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn record(file: &Path) -> io::Result<Recorder> {
        Recorder::create(file, 1 << 20, &Params::default())
    }

    #[test]
    fn a_record_is_its_user_s_alone() {
        let place = Place::new("mode");
        let file = place.0.join("flows.jsonl");
        record(&file).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        let header = fs::read(&file).unwrap();
        // One that was there is emptied, and closed to others.
        fs::write(&file, "x".repeat(header.len() + 10)).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        record(&file).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read(&file).unwrap(), header);
    }

    #[test]
    fn a_link_is_not_followed() {
        let place = Place::new("link");
        let (target, link) = (place.0.join("target"), place.0.join("link"));
        fs::write(&target, "precious").unwrap();
        symlink(&target, &link).unwrap();
        let refused = record(&link).err().unwrap().to_string();
        assert!(refused.contains("symbolic link"), "{refused}");
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    }

    #[test]
    fn another_user_s_file_is_left_alone() {
        let place = Place::new("foreign");
        let file = place.0.join("theirs");
        fs::write(&file, "precious").unwrap();
        if let Err(error) = chown(&file, Some(65_534), None) {
            println!("SKIPPED another_user_s_file_is_left_alone: cannot give a file away: {error}");
            return;
        }
        let refused = record(&file).err().unwrap().to_string();
        assert!(refused.contains("user 65534"), "{refused}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    }
}
