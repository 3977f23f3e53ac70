//! What the module counts, from `/sys/class/misc`.

use std::fs;
use std::path::Path;

/// A counter of the module; it only counts up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// `counters/NAME` or `rejected/REASON`; `ccp-kernel/README.md` explains them.
    pub name: String,
    /// Its value since the module was loaded.
    pub value: u64,
}

/// The module's counters by name, empty if it has none (the original ccp-kernel) or is not loaded.
pub fn counters() -> Vec<Counter> {
    let mut counters = read(Path::new("/sys/class/misc/ccpkp"));
    counters.sort_by(|a, b| a.name.cmp(&b.name));
    counters
}

fn read(device: &Path) -> Vec<Counter> {
    let files = |group: &'static str| {
        let entries = fs::read_dir(device.join(group)).into_iter().flatten();
        entries
            .flatten()
            .map(move |entry| (group, entry.file_name(), entry.path()))
    };
    let all = files("counters").chain(files("rejected"));
    all.filter_map(|(group, name, path)| {
        let value = fs::read_to_string(path).ok()?.trim().parse().ok()?;
        let name = format!("{group}/{}", name.to_string_lossy());
        Some(Counter { name, value })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_that_is_not_there_has_no_counters() {
        assert_eq!(read(Path::new("/nonexistent")), []);
    }
}
