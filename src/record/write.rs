//! Writing a record while flows run. A thread of its own does it, since flows do not wait for a disk; of lines that it
//! cannot take any more there is none in the record, nor any after them: a gap would make other decisions of what
//! follows.

use super::{FORMAT, Line, VERSION, texts};
use crate::params::Params;
use crate::program::REPORT_FIELDS;
use crate::spool::Spool;
use std::borrow::Cow;
use std::fmt::Display;
use std::fs::{self, File, Permissions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes that may wait for the disk: seconds of ten thousand reports each.
const WAITING_MAX: usize = 16 << 20;

struct Open {
    /// Of the record, with what waits.
    size: u64,
    has_ended: bool,
    /// One line, kept so that a report allocates nothing.
    text: Vec<u8>,
}

/// Writes a record, buffered, up to a size. Shared by all flows of an agent; what was taken is written when the last of
/// them drops it.
pub struct Recorder {
    path: PathBuf,
    limit_bytes: u64,
    spool: Spool,
    open: Mutex<Open>,
}

impl Recorder {
    /// Creates the file for this user alone, and writes the header. What is there already is kept beside it, as `.old`.
    /// A record names the peers of connections, so the file is neither another's nor behind a symbolic link that
    /// another may have made.
    ///
    /// # Errors
    /// If the file cannot be created, kept or written, is a link, or belongs to another user.
    pub fn create(path: &Path, limit_bytes: u64, params: &Params) -> io::Result<Self> {
        let mut file = create(path)?;
        let mut open = Open {
            size: 0,
            has_ended: false,
            text: Vec::new(),
        };
        let header = Line::Header {
            format: FORMAT.into(),
            version: VERSION,
            params: texts(params),
            fields: REPORT_FIELDS.map(Cow::from).into(),
        };
        // Here, so that what is wrong with the file is known at the start.
        if open.compose(&header, limit_bytes)? {
            file.write_all(&open.text)?;
        }
        let name = path.to_owned();
        let spool = Spool::start("record", WAITING_MAX, move |text| {
            let written = append(&mut file, text);
            if let Err(error) = &written {
                stopped(&name, error);
            }
            written.is_ok()
        })?;
        Ok(Self {
            path: path.to_owned(),
            limit_bytes,
            spool,
            open: Mutex::new(open),
        })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a line. When the size limit is reached, or the disk refuses or is too slow, recording ends with one
    /// warning; flows are never disturbed.
    pub fn write(&self, line: &Line) {
        let mut open = self.open();
        if open.has_ended {
            return;
        }
        let is_end = matches!(line, Line::End { .. });
        let problem = match open.compose(line, self.limit_bytes) {
            Ok(true) if self.spool.push(&open.text, is_end) => return,
            // The thread has told why.
            Ok(true) if self.spool.has_failed() => None,
            Ok(true) => Some(format!(
                "the disk is too slow, {} MiB wait for it",
                WAITING_MAX >> 20
            )),
            Ok(false) => Some(format!(
                "the size limit of {} bytes is reached",
                self.limit_bytes
            )),
            Err(error) => Some(error.to_string()),
        };
        if let Some(problem) = problem {
            stopped(&self.path, &problem);
        }
        open.has_ended = true;
        self.spool.close();
    }

    /// Whether lines are still taken.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.open().has_ended
    }
}

/// Writes lines; if they do not all fit, none that is cut off.
fn append(file: &mut File, lines: &[u8]) -> io::Result<()> {
    let began = file.stream_position();
    file.write_all(lines).inspect_err(|_| {
        // A pipe has no position, and cannot be shortened.
        if let (Ok(began), Ok(is)) = (began, file.stream_position()) {
            let written = &lines[..lines.len().min((is - began) as usize)];
            let end = written.iter().rposition(|byte| *byte == b'\n');
            let _ = file.set_len(began + end.map_or(0, |at| at as u64 + 1));
        }
    })
}

fn stopped(path: &Path, problem: &dyn Display) {
    tracing::warn!(target: "record", path = %path.display(), "recording stopped: {problem}");
}

fn create(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options
        .write(true)
        .mode(0o600)
        .custom_flags(nix::libc::O_NOFOLLOW);
    // Nothing is moved before it is known whose it is.
    let opened = options.clone().create(true).truncate(false).open(path);
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
    if found.len() == 0 {
        return Ok(file);
    }
    keep_old(path)?;
    options.create_new(true).open(path)
}

/// Makes room for a record. The one that is there may be all that a crash has left, or that of an agent which writes it
/// yet.
fn keep_old(path: &Path) -> io::Result<()> {
    let mut old = path.as_os_str().to_owned();
    old.push(".old");
    let old = Path::new(&old);
    fs::rename(path, old).map_err(|error| {
        let why = format!(
            "what is there cannot be kept as {}: {error}; move it, or name another file",
            old.display()
        );
        io::Error::new(error.kind(), why)
    })
}

impl Open {
    /// Makes the text of a line. False if it would exceed the limit.
    fn compose(&mut self, line: &Line, limit_bytes: u64) -> io::Result<bool> {
        self.text.clear();
        serde_json::to_writer(&mut self.text, line)?;
        self.text.push(b'\n');
        self.size += self.text.len() as u64;
        Ok(self.size <= limit_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, symlink};
    use std::process::Command;

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
        // One that was there is kept, and closed to others.
        let old = place.0.join("flows.jsonl.old");
        for text in ["first", "second"] {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
            record(&file).unwrap();
            assert_eq!(fs::read(&file).unwrap(), header);
            assert_eq!(fs::read_to_string(&old).unwrap(), text);
            for file in [&file, &old] {
                assert_eq!(fs::metadata(file).unwrap().mode() & 0o777, 0o600);
            }
        }
        // What cannot be kept stays.
        fs::remove_file(&old).unwrap();
        fs::create_dir(&old).unwrap();
        let refused = record(&file).err().unwrap().to_string();
        assert!(refused.contains("flows.jsonl.old"), "{refused}");
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

    /// A full disk, as the kernel tells it of a file that may not grow.
    #[test]
    fn a_full_disk_cuts_no_line_off() {
        const ROOM: &str = "PK3C_TEST_ROOM";
        let name = "record::write::tests::a_full_disk_cuts_no_line_off";
        if std::env::var_os(ROOM).is_none() {
            let script = "trap '' XFSZ; ulimit -f 64; exec \"$0\" --exact \"$1\"";
            let mut limited = Command::new("bash");
            limited
                .args(["-c", script])
                .arg(std::env::current_exe().unwrap());
            let output = limited.arg(name).env(ROOM, "little").output().unwrap();
            assert!(output.status.success(), "{output:?}");
            return;
        }
        let place = Place::new("full");
        let file = place.0.join("flows.jsonl");
        let recorder = record(&file).unwrap();
        let mut flow = 0;
        while recorder.is_open() {
            recorder.write(&Line::End { flow, at_s: 0.0 });
            flow += 1;
        }
        drop(recorder);
        let text = fs::read_to_string(&file).unwrap();
        assert!(
            text.ends_with("}\n") && text.len() > 60 << 10,
            "{}",
            text.len()
        );
    }

    #[test]
    fn a_disk_that_does_not_take_it_ends_a_record_and_holds_up_nobody() {
        let place = Place::new("slow");
        let file = place.0.join("pipe");
        nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
        // Has room for 64 kB until somebody reads.
        let mut disk = File::options().read(true).write(true).open(&file).unwrap();
        let recorder = Recorder::create(&file, 1 << 30, &Params::default()).unwrap();
        let mut taken = 0;
        for flow in 0.. {
            recorder.write(&Line::End { flow, at_s: 0.0 });
            if !recorder.is_open() {
                break;
            }
            taken = flow;
        }
        // Neither are lines taken later, when there is room again.
        let reader = std::thread::spawn(move || {
            let mut bytes = vec![0; 1 << 16];
            let mut text = Vec::new();
            let last = format!("\"flow\":{taken},");
            let is_over = |text: &[u8]| {
                let end = &text[text.len().saturating_sub(100)..];
                text.ends_with(b"\n") && String::from_utf8_lossy(end).contains(&last)
            };
            while !is_over(&text) {
                let read = io::Read::read(&mut disk, &mut bytes).unwrap();
                text.extend_from_slice(&bytes[..read]);
            }
            String::from_utf8(text).unwrap()
        });
        drop(recorder);
        let text = reader.join().unwrap();
        let lines: Vec<_> = text.lines().skip(1).collect();
        assert!(text.len() > WAITING_MAX && lines.len() as u64 == taken + 1);
        for (flow, line) in lines.iter().enumerate() {
            assert!(line.contains(&format!("\"flow\":{flow},")), "{line}");
        }
    }
}
