use super::*;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

const WMEM: &str = "net.ipv4.tcp_wmem";
const RMEM: &str = "net.ipv4.tcp_rmem";
/// A stock kernel's settings.
const STOCK: [(&str, &str); 9] = [
    (WMEM, "4096\t16384\t4194304"),
    (RMEM, "4096\t131072\t6291456"),
    ("net.core.wmem_max", "212992"),
    ("net.core.rmem_max", "212992"),
    ("net.core.default_qdisc", "pfifo_fast"),
    ("net.ipv4.tcp_notsent_lowat", "4294967295"),
    ("net.ipv4.tcp_min_tso_segs", "2"),
    ("net.ipv4.tcp_slow_start_after_idle", "1"),
    ("net.ipv4.tcp_no_metrics_save", "0"),
];

/// A machine of files, gone when dropped.
struct Machine {
    root: PathBuf,
    tuner: Tuner,
}

impl Machine {
    fn stock() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("pk3c-tune-{}-{number}", std::process::id()));
        let tuner = Tuner {
            settings: root.join("sys"),
            saved: root.join("saved"),
        };
        let machine = Self { root, tuner };
        for (name, value) in STOCK {
            let file = machine.tuner.file(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, format!("{value}\n")).unwrap();
        }
        machine
    }

    /// As another program would.
    fn set(&self, name: &str, value: &str) {
        fs::write(self.tuner.file(name), value).unwrap();
    }

    fn value(&self, name: &str) -> String {
        self.tuner.value(name).unwrap()
    }

    fn values(&self) -> Vec<String> {
        STOCK.iter().map(|(name, _)| self.value(name)).collect()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.root).unwrap();
    }
}

#[test]
fn applying_raises_what_is_too_small_and_reverting_restores_it() {
    let machine = Machine::stock();
    let before = machine.values();
    machine.tuner.apply().unwrap();
    assert_eq!(
        machine.values(),
        [
            "4096 16384 33554432",
            "4096 131072 33554432",
            "16777216",
            "16777216",
            "fq",
            "4294967295",
            "2",
            "1",
            "0"
        ]
    );
    let rows = machine.tuner.look();
    assert!(
        rows.iter()
            .all(|row| !matches!(row.verdict, Verdict::Change(_)))
    );
    assert_eq!(rows[0].before.as_deref(), Some("4096 16384 4194304"));

    let reverted = machine.tuner.revert().unwrap();
    assert_eq!(reverted.len(), 5);
    assert!(reverted.iter().all(|one| one.restored));
    assert_eq!(machine.values(), before);
    assert!(!machine.tuner.saved.exists());
    assert_eq!(machine.tuner.revert().unwrap(), []);
}

#[test]
fn what_is_saved_is_for_its_owner_only() {
    let machine = Machine::stock();
    machine.tuner.apply().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&machine.tuner.saved), 0o700);
    assert_eq!(mode(&machine.tuner.saved.join("saved.json")), 0o600);
}

#[test]
fn larger_values_stay_and_are_not_reverted() {
    let machine = Machine::stock();
    machine.set(WMEM, "4096 65536 134217728");
    machine.set("net.core.default_qdisc", "cake");
    machine.tuner.apply().unwrap();
    assert_eq!(machine.value(WMEM), "4096 65536 134217728");
    assert_eq!(machine.value("net.core.default_qdisc"), "cake");
    let reverted = machine.tuner.revert().unwrap();
    assert!(reverted.iter().all(|one| one.name != WMEM));
}

#[test]
fn applying_twice_keeps_the_original() {
    let machine = Machine::stock();
    let before = machine.values();
    machine.tuner.apply().unwrap();
    machine.tuner.apply().unwrap();
    machine.tuner.revert().unwrap();
    assert_eq!(machine.values(), before);
}

#[test]
fn a_crash_between_saving_and_changing_costs_nothing() {
    let machine = Machine::stock();
    let before = machine.values();
    // As if the process had ended before the second setting, and once more while reverting.
    machine.tuner.apply().unwrap();
    machine.set(RMEM, &before[1]);
    machine.tuner.apply().unwrap();
    assert_eq!(machine.value(RMEM), "4096 131072 33554432");
    machine.set(WMEM, &before[0]);
    assert!(
        machine
            .tuner
            .revert()
            .unwrap()
            .iter()
            .all(|one| one.restored)
    );
    assert_eq!(machine.values(), before);
}

#[test]
fn a_crash_while_saving_leaves_the_whole_old_file() {
    let machine = Machine::stock();
    let before = machine.values();
    machine.tuner.apply().unwrap();
    fs::write(machine.tuner.saved.join("saved.json.new"), "{\"vers").unwrap();
    machine.set(RMEM, "4096 131072 6291456");
    machine.tuner.apply().unwrap();
    machine.tuner.revert().unwrap();
    assert_eq!(machine.values(), before);
    assert!(!machine.tuner.saved.exists());
}

#[test]
fn what_somebody_else_has_set_since_is_left_alone() {
    let machine = Machine::stock();
    machine.tuner.apply().unwrap();
    machine.set(WMEM, "4096 16384 8388608");
    let reverted = machine.tuner.revert().unwrap();
    let wmem = reverted.iter().find(|one| one.name == WMEM).unwrap();
    assert!(!wmem.restored);
    assert_eq!(machine.value(WMEM), "4096 16384 8388608");
    assert_eq!(machine.value(RMEM), "4096 131072 6291456");
}

#[test]
fn what_somebody_else_has_set_since_is_what_a_second_apply_goes_back_to() {
    let machine = Machine::stock();
    machine.tuner.apply().unwrap();
    machine.set(WMEM, "4096 16384 8388608");
    machine.tuner.apply().unwrap();
    assert_eq!(machine.value(WMEM), "4096 16384 33554432");
    machine.tuner.revert().unwrap();
    assert_eq!(machine.value(WMEM), "4096 16384 8388608");
}

#[test]
fn a_later_versions_larger_wish_goes_back_to_the_original_too() {
    let mut change = Change {
        name: WMEM.to_owned(),
        before: "4096 16384 4194304".to_owned(),
        ours: vec!["4096 16384 8388608".to_owned()],
    };
    change.again("4096 16384 8388608", "4096 16384 33554432");
    assert_eq!(change.before, "4096 16384 4194304");
    assert_eq!(change.ours.len(), 2);
}

#[test]
fn nobody_elses_folder_or_file_is_used() {
    let machine = Machine::stock();
    let before = machine.values();
    let elsewhere = machine.root.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let saved = &machine.tuner.saved;

    symlink(&elsewhere, saved).unwrap();
    let error = format!("{:#}", machine.tuner.apply().unwrap_err());
    assert!(error.contains("cannot use the folder"), "{error}");
    fs::remove_file(saved).unwrap();

    fs::create_dir(saved).unwrap();
    fs::set_permissions(saved, fs::Permissions::from_mode(0o777)).unwrap();
    let error = format!("{:#}", machine.tuner.apply().unwrap_err());
    assert!(error.contains("nobody else may write it"), "{error}");

    fs::set_permissions(saved, fs::Permissions::from_mode(0o700)).unwrap();
    let target = elsewhere.join("target");
    fs::write(&target, "{\"version\": 1, \"changes\": []}").unwrap();
    symlink(&target, saved.join("saved.json")).unwrap();
    let error = format!("{:#}", machine.tuner.apply().unwrap_err());
    assert!(error.contains("cannot read"), "{error}");
    assert_eq!(machine.values(), before);
}

#[test]
fn a_damaged_file_stops_everything_and_says_so() {
    let machine = Machine::stock();
    machine.tuner.apply().unwrap();
    let applied = machine.values();
    fs::write(machine.tuner.saved.join("saved.json"), "{").unwrap();
    machine.set(RMEM, "4096 131072 6291456");
    let error = format!("{:#}", machine.tuner.apply().unwrap_err());
    assert!(error.contains("is damaged"), "{error}");
    assert!(machine.tuner.revert().is_err());
    assert_eq!(machine.value(RMEM), "4096 131072 6291456");
    assert_eq!(machine.value(WMEM), applied[0]);
}

#[test]
fn one_setting_that_cannot_be_set_does_not_hold_up_the_others() {
    let machine = Machine::stock();
    machine.tuner.apply().unwrap();
    fs::remove_file(machine.tuner.file(RMEM)).unwrap();
    let error = format!("{:#}", machine.tuner.revert().unwrap_err());
    assert!(
        error.contains(RMEM) && error.contains("stays in"),
        "{error}"
    );
    assert_eq!(machine.value(WMEM), "4096 16384 4194304");
    // What is left can be reverted when it is there again.
    machine.set(RMEM, "4096 131072 33554432");
    machine.tuner.revert().unwrap();
    assert_eq!(machine.value(RMEM), "4096 131072 6291456");
}

#[test]
fn nothing_to_change_leaves_nothing_behind() {
    let machine = Machine::stock();
    machine.tuner.apply().unwrap();
    let values = machine.values();
    fs::remove_dir_all(&machine.tuner.saved).unwrap();
    machine.tuner.apply().unwrap();
    assert!(!machine.tuner.saved.exists());
    assert_eq!(machine.values(), values);
}

#[test]
fn a_kernel_without_a_setting_is_no_error() {
    let machine = Machine::stock();
    fs::remove_file(machine.tuner.file("net.core.default_qdisc")).unwrap();
    machine.tuner.apply().unwrap();
    assert!(!machine.tuner.file("net.core.default_qdisc").exists());
    assert_eq!(machine.tuner.look()[4].verdict, Verdict::Unknown);
    assert_eq!(machine.value(WMEM), "4096 16384 33554432");
}

#[test]
fn every_setting_is_told_with_its_reason_and_source() {
    let machine = Machine::stock();
    let rows = machine.tuner.look();
    let text = describe(&rows);
    for setting in &ALL {
        for part in [setting.name, setting.why, setting.source] {
            assert!(text.contains(part), "{part}");
        }
    }
    assert!(text.contains("4096 16384 4194304, wanted 4096 16384 33554432"));
    let json = serde_json::to_value(&rows).unwrap();
    assert_eq!(json[0]["status"], "change");
    assert_eq!(json[0]["wanted"], "4096 16384 33554432");
    assert_eq!(json[5]["status"], "leave");
    assert_eq!(json[5]["current"], "4294967295");
}
