//! Debian's cloud kernels, fetched once with apt and kept in the user's cache.
//!
//! The cache holds one unpacked kernel package per version, and its apt is the one that checked
//! the download. A kernel once cached stays, so that figures taken on different days come from
//! the same kernel; delete the folder to fetch the current one.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::str::FromStr;

use nix::fcntl::{Flock, FlockArg};

use super::Error;

/// What the names of kernels' images begin with.
const IMAGE: &str = "vmlinuz-";

/// A kernel series that Debian 12 offers as a cloud kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KernelVersion {
    /// 6.1, the series of Debian 12 itself.
    V6_1,
    /// 6.12, from the backport that the security archive carries.
    #[default]
    V6_12,
}

impl KernelVersion {
    /// The package that depends on the current kernel of the series.
    fn meta_package(self) -> &'static str {
        match self {
            Self::V6_1 => "linux-image-cloud-amd64",
            Self::V6_12 => "linux-image-6.12-cloud-amd64",
        }
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
        })
    }
}

impl FromStr for KernelVersion {
    type Err = UnknownKernel;

    fn from_str(text: &str) -> Result<Self, UnknownKernel> {
        match text {
            "6.1" => Ok(Self::V6_1),
            "6.12" => Ok(Self::V6_12),
            _ => Err(UnknownKernel(text.to_owned())),
        }
    }
}

/// A kernel version that no guest exists for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("no guest kernel {0:?}: choose 6.1 or 6.12")]
pub struct UnknownKernel(String);

/// A kernel on disk: its image and its modules.
#[derive(Debug)]
pub(super) struct Kernel {
    /// The bootable image.
    pub(super) image: PathBuf,
    /// `/lib/modules/RELEASE` of the package.
    modules: PathBuf,
}

impl Kernel {
    /// The cached kernel of this series, fetched first if the cache has none.
    pub(super) fn obtain(version: KernelVersion, cache: &Path) -> Result<Self, Error> {
        let io = |what| Error::io(what, cache);
        fs::create_dir_all(cache).map_err(io("create the cache"))?;
        let lock = File::create(cache.join("lock")).map_err(io("lock the cache"))?;
        let _lock = Flock::lock(lock, FlockArg::LockExclusive)
            .map_err(|(_, errno)| io("lock the cache")(errno.into()))?;
        let home = cache.join(version.to_string());
        if !home.exists() {
            fetch(version, cache, &home)?;
        }
        Self::unpacked(&home)
    }

    /// The kernel in a folder that looks as a package unpacks.
    pub(super) fn unpacked(home: &Path) -> Result<Self, Error> {
        let image = only_entry(&home.join("boot"), IMAGE)?;
        // 6.12's package has moved to the merged /usr.
        let library = ["lib/modules", "usr/lib/modules"].map(|dir| home.join(dir));
        let library = library
            .iter()
            .find(|dir| dir.exists())
            .unwrap_or(&library[0]);
        Ok(Self {
            image,
            modules: only_entry(library, "")?,
        })
    }

    /// Its release, as `uname -r` says it: `6.12.117+deb12-cloud-amd64`.
    pub(super) fn release(&self) -> String {
        let name = self.image.file_name().unwrap_or_default().to_string_lossy();
        name.trim_start_matches(IMAGE).to_owned()
    }

    /// The named modules and all they depend on, in loading order, as plain ELF objects. Modules
    /// that this kernel has built in are left out.
    pub(super) fn modules(&self, names: &[&str]) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let list = self.modules.join("modules.builtin");
        let builtin = fs::read_to_string(&list).map_err(Error::io("read", &list))?;
        let mut files = Vec::new();
        find_modules(&self.modules.join("kernel"), &mut files)?;
        let mut loaded = Vec::new();
        for name in names {
            self.load(name, &builtin, &files, &mut loaded)?;
        }
        Ok(loaded)
    }

    fn load(
        &self,
        name: &str,
        builtin: &str,
        files: &[PathBuf],
        loaded: &mut Vec<(String, Vec<u8>)>,
    ) -> Result<(), Error> {
        let is_builtin = |line: &str| module_name(Path::new(line)).as_deref() == Some(name);
        if loaded.iter().any(|(other, _)| other == name) || builtin.lines().any(is_builtin) {
            return Ok(());
        }
        let file = files
            .iter()
            .find(|file| module_name(file).as_deref() == Some(name));
        let file = file.ok_or_else(|| Error::NoModule {
            module: name.to_owned(),
            modules: self.modules.clone(),
        })?;
        let object = read_module(file)?;
        for dependency in dependencies(&object) {
            self.load(&dependency, builtin, files, loaded)?;
        }
        loaded.push((name.to_owned(), object));
        Ok(())
    }
}

fn fetch(version: KernelVersion, cache: &Path, home: &Path) -> Result<(), Error> {
    let partial = cache.join("partial");
    // Under the lock, a partial folder is what an interrupted download left.
    if partial.exists() {
        fs::remove_dir_all(&partial).map_err(Error::io("clear", &partial))?;
    }
    let tree = partial.join("tree");
    fs::create_dir_all(&tree).map_err(Error::io("create", &tree))?;
    let meta = version.meta_package();
    let depends = run(Command::new("apt-cache").args(["depends", "--important", meta]))?;
    let depends = String::from_utf8_lossy(&depends.stdout);
    let package = depends
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|package| package.starts_with("linux-image-"))
        .ok_or_else(|| Error::NoKernelPackage(meta.to_owned()))?;
    run(Command::new("apt-get")
        .args(["download", "--quiet", package])
        .current_dir(&partial))?;
    let archive = only_entry(&partial, "linux-image-")?;
    run(Command::new("dpkg-deb")
        .arg("--extract")
        .arg(&archive)
        .arg(&tree))?;
    fs::rename(&tree, home).map_err(Error::io("move the kernel to", home))?;
    fs::remove_dir_all(&partial).map_err(Error::io("clear", &partial))
}

/// Runs a command to its end; fails with what it wrote to standard error.
fn run(command: &mut Command) -> Result<Output, Error> {
    let shown = format!("{command:?}");
    let output = command.output().map_err(|source| Error::Command {
        command: shown.clone(),
        problem: source.to_string(),
    })?;
    if output.status.success() {
        return Ok(output);
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(Error::Command {
        command: shown,
        problem: format!("{}: {}", output.status, complaint.trim()),
    })
}

fn only_entry(dir: &Path, prefix: &str) -> Result<PathBuf, Error> {
    let mut names = fs::read_dir(dir)
        .and_then(|entries| {
            entries
                .map(|entry| Ok(entry?.file_name()))
                .collect::<io::Result<Vec<_>>>()
        })
        .map_err(Error::io("list", dir))?;
    names.retain(|name| name.to_string_lossy().starts_with(prefix));
    match names.as_slice() {
        [name] => Ok(dir.join(name)),
        _ => Err(Error::BrokenKernel(dir.to_owned())),
    }
}

fn find_modules(dir: &Path, found: &mut Vec<PathBuf>) -> Result<(), Error> {
    let entries = fs::read_dir(dir).map_err(Error::io("list", dir))?;
    for entry in entries {
        let path = entry.map_err(Error::io("list", dir))?.path();
        if path.is_dir() {
            find_modules(&path, found)?;
        } else if module_name(&path).is_some() {
            found.push(path);
        }
    }
    Ok(())
}

/// `sch_fq` for `.../sch_fq.ko` and `.../sch_fq.ko.xz`; the kernel writes `-` as `_`.
fn module_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let name = name
        .strip_suffix(".xz")
        .unwrap_or(name)
        .strip_suffix(".ko")?;
    Some(name.replace('-', "_"))
}

fn read_module(file: &Path) -> Result<Vec<u8>, Error> {
    if file.extension().is_some_and(|extension| extension == "xz") {
        return Ok(run(Command::new("xz")
            .args(["--decompress", "--stdout"])
            .arg(file))?
        .stdout);
    }
    fs::read(file).map_err(Error::io("read", file))
}

/// The `depends=` entry of a module's `.modinfo` section: NUL-terminated strings, of which this
/// one names other modules, separated by commas.
fn dependencies(object: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = object.windows(KEY.len()).position(|window| window == KEY) else {
        return Vec::new();
    };
    let value = object[at + KEY.len()..]
        .split(|&byte| byte == 0)
        .next()
        .unwrap_or_default();
    let value = String::from_utf8_lossy(value);
    value
        .split(',')
        .filter(|name| !name.is_empty())
        .map(|name| name.replace('-', "_"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_they_print() {
        for version in [KernelVersion::V6_1, KernelVersion::V6_12] {
            assert_eq!(version.to_string().parse(), Ok(version));
        }
        let error = "6.2".parse::<KernelVersion>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "no guest kernel \"6.2\": choose 6.1 or 6.12"
        );
    }

    #[test]
    fn a_kernel_knows_its_release() {
        let name = format!("pk3c-guest-kernel-{}", std::process::id());
        let home = std::env::temp_dir().join(name);
        fs::create_dir_all(home.join("boot")).unwrap();
        fs::create_dir_all(home.join("usr/lib/modules/6.12.117+deb12-cloud-amd64")).unwrap();
        fs::write(home.join("boot/vmlinuz-6.12.117+deb12-cloud-amd64"), "").unwrap();
        let kernel = Kernel::unpacked(&home);
        fs::remove_dir_all(&home).unwrap();
        assert_eq!(kernel.unwrap().release(), "6.12.117+deb12-cloud-amd64");
    }

    #[test]
    fn modinfo_names_dependencies() {
        let object = b"\x7fELF...license=GPL\0depends=virtio,virtio-ring\0retpoline=Y\0";
        assert_eq!(dependencies(object), ["virtio", "virtio_ring"]);
        assert!(dependencies(b"license=GPL\0depends=\0").is_empty());
        assert!(dependencies(b"no module").is_empty());
    }

    #[test]
    fn module_names_lose_folder_and_suffix() {
        assert_eq!(
            module_name(Path::new("net/sched/sch_fq.ko.xz")).as_deref(),
            Some("sch_fq")
        );
        assert_eq!(
            module_name(Path::new("crc-t10dif.ko")).as_deref(),
            Some("crc_t10dif")
        );
        assert_eq!(module_name(Path::new("modules.order")), None);
    }
}
