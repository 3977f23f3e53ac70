//! Replacing a record by one with today's decisions, whole or not at all.

use super::is_stdin;
use anyhow::{Context, Result, bail};
use pk3c_ccp::record;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fs::{self, File};
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The new record until it takes the old one's place; removed unless it does.
struct Draft {
    path: PathBuf,
    placed: bool,
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.placed {
            // There is nobody to tell, and the next --accept writes over it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Rewrites the decisions of `file`; returns how many changed.
pub(super) fn file(file: &Path) -> Result<usize> {
    if is_stdin(file) {
        bail!("--accept writes into the record: give its file instead of -");
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("cannot handle signals")?;
    }
    // A link stays one.
    let target = fs::canonicalize(file).context("cannot find it")?;
    let mut name = target.file_name().context("it has no name")?.to_owned();
    name.push(".accepting");
    let mut draft = Draft {
        path: target.with_file_name(name),
        placed: false,
    };
    let beside = || format!("cannot write {} beside it", draft.path.display());
    let input = File::open(&target).context("cannot open it")?;
    let permissions = input
        .metadata()
        .context("cannot read its mode")?
        .permissions();
    let output = File::create(&draft.path).with_context(beside)?;
    output.set_permissions(permissions).with_context(beside)?;
    let go_on = || !stop.load(Ordering::Relaxed);
    let changed = record::accept(BufReader::new(input), BufWriter::new(&output), go_on)?;
    let Some(changed) = changed.filter(|_| go_on()) else {
        bail!("interrupted; the file is as it was");
    };
    output.sync_all().with_context(beside)?;
    fs::rename(&draft.path, &target).context("cannot replace it")?;
    draft.placed = true;
    Ok(changed)
}
