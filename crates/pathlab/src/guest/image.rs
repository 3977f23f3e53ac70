//! The guest's root file system: a cpio archive in the `newc` format, built in memory from
//! binaries of this machine and their shared libraries.
//!
//! The kernel accepts several archives one after the other, so what all runs share is built once
//! and each run adds a small archive of its own. Nothing is compressed: QEMU copies the bytes
//! into the guest's memory at no cost in virtual time, and the guest would unpack them slowly.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Error;

const DIRECTORY: u32 = 0o040_755;
const EXECUTABLE: u32 = 0o100_755;
const SYMLINK: u32 = 0o120_777;

/// A growing archive. Parent folders appear by themselves.
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    present: BTreeSet<String>,
}

impl Archive {
    /// Adds a folder. `path` is relative to the guest's root, here and below.
    pub(super) fn directory(&mut self, path: &str) {
        if path.is_empty() || self.present.contains(path) {
            return;
        }
        self.entry(path, DIRECTORY, &[]);
    }

    /// Adds an executable file.
    pub(super) fn file(&mut self, path: &str, content: &[u8]) {
        self.entry(path, EXECUTABLE, content);
    }

    /// Adds a symbolic link to `target`.
    pub(super) fn symlink(&mut self, path: &str, target: &str) {
        self.entry(path, SYMLINK, target.as_bytes());
    }

    /// Adds a binary of this machine with the libraries that its loader would find.
    pub(super) fn binary(&mut self, source: &Path, path: &str) -> Result<(), Error> {
        let read = |file: &Path| fs::read(file).map_err(Error::io("read", file));
        self.file(path, &read(source)?);
        for library in libraries(source)? {
            let inside = library.to_string_lossy();
            let inside = inside.trim_start_matches('/');
            if !self.present.contains(inside) {
                self.file(inside, &read(&library)?);
            }
        }
        Ok(())
    }

    /// The archive with its end mark.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.append("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent);
        }
        self.present.insert(path.to_owned());
        self.append(path, mode, content);
    }

    /// One `newc` record: magic and 13 fields of 8 hexadecimal digits, the name with its NUL, the
    /// content; name and content padded to 4 bytes.
    fn append(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let (inode, links) = (self.entries, if mode == DIRECTORY { 2 } else { 1 });
        let (owner, group, modified, device, check) = (0, 0, 0, 0, 0);
        let (size, name_size) = (content.len(), name.len() + 1);
        self.bytes.extend_from_slice(
            format!(
                "070701{inode:08x}{mode:08x}{owner:08x}{group:08x}{links:08x}{modified:08x}{size:08x}\
                 {device:08x}{device:08x}{device:08x}{device:08x}{name_size:08x}{check:08x}{name}\0"
            )
            .as_bytes(),
        );
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// The shared libraries of a binary, as `ldd` resolves them; none for a static one.
fn libraries(binary: &Path) -> Result<Vec<PathBuf>, Error> {
    let broken = |problem: String| Error::Command {
        command: format!("ldd {}", binary.display()),
        problem,
    };
    let output = Command::new("ldd")
        .arg(binary)
        .output()
        .map_err(|error| broken(error.to_string()))?;
    let listing = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && !complaint.contains("not a dynamic executable") {
        return Err(broken(complaint.trim().to_owned()));
    }
    parse_ldd(&listing).map_err(|library| broken(format!("this machine lacks {library}")))
}

/// Reads lines `NAME => PATH (ADDRESS)` and `PATH (ADDRESS)`; the kernel's vdso has no path.
fn parse_ldd(listing: &str) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for line in listing.lines() {
        let (name, path) = line.split_once("=>").unwrap_or(("", line));
        if path.trim() == "not found" {
            return Err(name.trim().to_owned());
        }
        let path = path.trim().split(" (").next().unwrap_or_default();
        if path.starts_with('/') {
            found.push(PathBuf::from(path));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_padded_and_parents_come_first() {
        let mut archive = Archive::default();
        archive.file("etc/name", b"guest");
        archive.symlink("bin/sh", "busybox");
        archive.directory("etc");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let mut names = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            assert_eq!(&bytes[at..at + 6], b"070701");
            let field = |index: usize| {
                let digits = &bytes[at + 6 + 8 * index..at + 14 + 8 * index];
                usize::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap()
            };
            let (size, name_size) = (field(6), field(11));
            let name = String::from_utf8(bytes[at + 110..at + 109 + name_size].to_vec()).unwrap();
            let content = (at + 110 + name_size).next_multiple_of(4);
            names.push((name, bytes[content..content + size].to_vec()));
            at = (content + size).next_multiple_of(4);
        }
        let expected: [(&str, &[u8]); 5] = [
            ("etc", b""),
            ("etc/name", b"guest"),
            ("bin", b""),
            ("bin/sh", b"busybox"),
            ("TRAILER!!!", b""),
        ];
        assert_eq!(
            names,
            expected.map(|(name, content)| (name.to_owned(), content.to_vec()))
        );
    }

    #[test]
    fn ldd_output_gives_paths() {
        let listing = "\tlinux-vdso.so.1 (0x00007ff)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x7ff)\n\
                       \t/lib64/ld-linux-x86-64.so.2 (0x7f)\n";
        let paths = parse_ldd(listing).unwrap();
        assert_eq!(
            paths,
            [
                Path::new("/lib/x/libc.so.6"),
                Path::new("/lib64/ld-linux-x86-64.so.2")
            ]
        );
        assert_eq!(parse_ldd("\tnot a dynamic executable\n"), Ok(Vec::new()));
        assert_eq!(
            parse_ldd("\tlibx.so.1 => not found\n"),
            Err("libx.so.1".to_owned())
        );
    }
}
