//! What the program says of itself and carries with it: the revision it is built from, the state of the sources that
//! carry out the lab's runs, and the scenarios that it ships.

use std::collections::hash_map::DefaultHasher;
use std::env;
use std::fmt::Write;
use std::fs;
use std::hash::Hasher;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What carries out runs with the kernel's TCP: with these sources unchanged, results of it are still good.
const CARRIERS: [&str; 3] = [
    "crates/pathlab/src",
    "crates/pathlab/guest",
    "crates/pathsim/src",
];
/// Of these, what only shows results. The rest of `lab/statistics` makes their quantiles.
const SHOWS: [&str; 6] = [
    "lab/report",
    "lab/score",
    "lab/format",
    "lab/statistics/bootstrap",
    "lab/statistics/over_time",
    "lab/statistics/student",
];
/// What decides: figures of the algorithm are those of these sources. An entry is a module: its file and its folder.
const ALGORITHM: [&str; 12] = [
    "aimd",
    "compete",
    "controller",
    "estimate",
    "governor",
    "handbrake",
    "params",
    "plan",
    "program",
    "startup",
    "units",
    "vivace",
];
const SCENARIOS: &str = "scenarios";

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    println!("cargo:rustc-env=PK3C_REVISION={}", revision(&root));
    println!("cargo:rustc-env=PK3C_CARRIERS={:016x}", carriers(&root)?);
    println!("cargo:rustc-env=PK3C_ALGORITHM={:016x}", algorithm(&root)?);
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src");
    ship(&root)
}

/// As `git describe` has it; `unknown` without git or outside a repository.
fn revision(root: &Path) -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .current_dir(root)
            .args(arguments)
            .output();
        let output = output.ok().filter(|output| output.status.success())?;
        let text = String::from_utf8(output.stdout).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    // Written with every commit and checkout. A path that does not exist would make every build a new one.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"]).map(|log| root.join(log));
    if let Some(log) = log.filter(|log| log.exists()) {
        println!("cargo:rerun-if-changed={}", log.display());
    }
    git(&["describe", "--always", "--dirty", "--tags"]).unwrap_or_else(|| "unknown".to_owned())
}

/// Hash of the sources that carry out runs.
fn carriers(root: &Path) -> io::Result<u64> {
    let mut hasher = DefaultHasher::new();
    // Outside the repository the crates come by version.
    hasher.write(env::var("CARGO_PKG_VERSION").unwrap_or_default().as_bytes());
    for folder in CARRIERS.map(|folder| root.join(folder)) {
        if !folder.is_dir() {
            continue;
        }
        println!("cargo:rerun-if-changed={}", folder.display());
        for file in files(&folder)? {
            let name = file.to_string_lossy();
            if SHOWS.iter().any(|shows| name.contains(shows)) {
                continue;
            }
            hasher.write(name.trim_start_matches(&*root.to_string_lossy()).as_bytes());
            hasher.write(&fs::read(&file)?);
        }
    }
    Ok(hasher.finish())
}

/// Hash of the sources that decide, without their tests' files.
fn algorithm(root: &Path) -> io::Result<u64> {
    let mut hasher = DefaultHasher::new();
    for module in ALGORITHM {
        let folder = root.join("src").join(module);
        let mut sources = vec![folder.with_extension("rs")];
        if folder.is_dir() {
            sources.extend(files(&folder)?);
        }
        for file in sources {
            if file.file_name().is_none_or(|name| name != "tests.rs") {
                hasher.write(&fs::read(&file)?);
            }
        }
    }
    Ok(hasher.finish())
}

/// All files below a folder, in the order of their names.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Writes the list of shipped files, each with its name below `scenarios/` and its text.
fn ship(root: &Path) -> io::Result<()> {
    let folder = root.join(SCENARIOS);
    println!("cargo:rerun-if-changed={}", folder.display());
    let mut list = String::from("&[\n");
    let found = if folder.is_dir() {
        files(&folder)?
    } else {
        Vec::new()
    };
    for file in found {
        let name = file
            .strip_prefix(&folder)
            .unwrap_or(&file)
            .to_string_lossy();
        // Writing to a string cannot fail.
        let _ = writeln!(
            list,
            "    ({name:?}, include_str!({:?})),",
            file.display().to_string()
        );
    }
    list.push_str("]\n");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    fs::write(out.join("shipped.rs"), list)
}
