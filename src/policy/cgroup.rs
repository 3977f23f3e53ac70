//! The paths of cgroups by the numbers that the kernel gives them.
//!
//! A datapath knows a socket's cgroup by its number, which is the inode number of its folder. The folders are read when
//! a number is met that is not known yet, so a cgroup that was made after the agent started is found with its first
//! connection; a number that is not among them (of a cgroup that is gone) is remembered as unknown and not searched
//! again.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the cgroups are on a machine of our time.
const ROOT: &str = "/sys/fs/cgroup";
/// Folders that are read at once, and numbers that are remembered, at most.
const CGROUPS_MAX: usize = 16_384;
/// Folders are nested at most so deep: the kernel allows no more than its default of no limit, people a handful.
const DEPTH_MAX: usize = 32;

/// The numbers known so far.
#[derive(Debug)]
pub struct Cgroups {
    root: PathBuf,
    /// `None` of a number that was searched in vain.
    paths: HashMap<u64, Option<Arc<str>>>,
}

impl Default for Cgroups {
    /// Those of this machine, where its cgroup2 file system is mounted.
    fn default() -> Self {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mut mounts = mounts.lines().map(|line| line.split(' '));
        let mounted = mounts.find_map(|mut fields| {
            let (place, kind) = (fields.nth(1)?, fields.next()?);
            (kind == "cgroup2").then(|| PathBuf::from(place))
        });
        Self::new(mounted.unwrap_or_else(|| ROOT.into()))
    }
}

impl Cgroups {
    /// Those below a folder.
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        Self {
            root,
            paths: HashMap::new(),
        }
    }

    /// The path of a cgroup below the root, `/` for the root itself; `None` if there is none of this number.
    pub fn path(&mut self, number: u64) -> Option<Arc<str>> {
        if number == 0 {
            return None;
        }
        if let Some(known) = self.paths.get(&number) {
            return known.clone();
        }
        self.read();
        self.paths.entry(number).or_default().clone()
    }

    /// Whether there is a cgroup of this path now.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.root.join(path.trim_start_matches('/')).is_dir()
    }

    fn read(&mut self) {
        if self.paths.len() >= CGROUPS_MAX {
            self.paths.clear();
        }
        let mut folders = vec![(self.root.clone(), 0)];
        while let Some((folder, depth)) = folders.pop() {
            if self.paths.len() >= CGROUPS_MAX {
                tracing::warn!(
                    limit = CGROUPS_MAX,
                    "more cgroups than this are not told apart: policies by cgroup may not match"
                );
                return;
            }
            if let Ok(about) = fs::metadata(&folder) {
                let path = self.name(&folder);
                self.paths.insert(about.ino(), Some(path));
            }
            if depth == DEPTH_MAX {
                continue;
            }
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            let inner = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            folders.extend(inner.map(|entry| (entry.path(), depth + 1)));
        }
    }

    fn name(&self, folder: &Path) -> Arc<str> {
        let below = folder.strip_prefix(&self.root).unwrap_or(folder);
        format!("/{}", below.display()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_found_by_number_also_those_made_later() {
        let root = std::env::temp_dir().join(format!("pk3c-cgroups-{}", std::process::id()));
        let make = |name: &str| {
            let folder = root.join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::metadata(&folder).unwrap().ino()
        };
        let video = make("system.slice/video.service");
        let mut cgroups = Cgroups::new(root.clone());
        let path =
            |cgroups: &mut Cgroups, number| cgroups.path(number).map(|path| path.to_string());
        assert_eq!(
            path(&mut cgroups, video).as_deref(),
            Some("/system.slice/video.service")
        );
        let top = fs::metadata(&root).unwrap().ino();
        assert_eq!(path(&mut cgroups, top).as_deref(), Some("/"));
        let late = make("system.slice/video.service/worker");
        assert_eq!(
            path(&mut cgroups, late).as_deref(),
            Some("/system.slice/video.service/worker")
        );
        assert_eq!(path(&mut cgroups, 0), None);
        assert_eq!(path(&mut cgroups, u64::MAX), None);
        assert!(
            cgroups.paths[&u64::MAX].is_none(),
            "it is not searched again"
        );
        assert!(cgroups.exists("/system.slice") && !cgroups.exists("/user.slice"));
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn this_machine_s_own_cgroups_are_found_by_their_inodes() {
        let mut cgroups = Cgroups::default();
        let Ok(about) = fs::metadata(&cgroups.root) else {
            println!(
                "SKIPPED this_machine_s_own_cgroups_are_found_by_their_inodes: no cgroups are mounted"
            );
            return;
        };
        assert_eq!(cgroups.path(about.ino()).as_deref(), Some("/"));
    }
}
