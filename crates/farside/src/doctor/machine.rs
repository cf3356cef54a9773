//! This machine: processors, pages, memory, limits, units. What the kernel tells everybody; nothing is executed.

use std::path::{Path, PathBuf};

use farside_cli::scalar::show_size;
use rustix::process::{Resource, getrlimit};

use super::finding::Finding;

/// How many connections a gateway allows unless it is told otherwise, and files that it needs beside them.
const FILES_WANTED: u64 = 10_000 + 64;
/// Below this size the pages of a segment matter little.
const LARGE_BYTES: u64 = 1 << 30;
/// Where the units of packages and administrators are.
const UNIT_FOLDERS: [&str; 3] = ["/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];
const UNITS: [&str; 3] = ["farside.service", "farside-node.service", "farside-gateway.service"];

/// What is known about this machine.
#[derive(Clone, Default, Debug)]
pub(super) struct MachineFacts {
    pub(super) processors: usize,
    /// When memory without a file gets huge pages: `always`, `madvise` or `never`; `None` if the kernel does not say.
    pub(super) huge_pages: Option<String>,
    pub(super) segments: Vec<SegmentFacts>,
    /// Bytes of `/dev/shm`, and how many of them are free; `None` if there is none.
    pub(super) shared_memory: Option<(u64, u64)>,
    pub(super) rdma_devices: Vec<String>,
    /// How many bytes a process may lock; `None`: no limit.
    pub(super) locked_max: Option<u64>,
    /// How many files a process may open; `None`: no limit.
    pub(super) files_max: Option<u64>,
    /// Units that are installed; `None` if systemd does not run this machine.
    pub(super) units: Option<Vec<UnitFacts>>,
}

/// A segment file, and the file system that it is on.
#[derive(Clone, Debug)]
pub(super) struct SegmentFacts {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    /// How many of them the file system has given it.
    pub(super) bytes_given: u64,
    /// How many the file system has left.
    pub(super) bytes_free: u64,
    pub(super) mount: Mount,
}

/// A mounted file system.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Mount {
    pub(super) place: String,
    pub(super) kind: String,
    pub(super) options: String,
}

#[derive(Clone, Debug)]
pub(super) struct UnitFacts {
    pub(super) name: &'static str,
    /// Whether it is started with the machine.
    pub(super) is_enabled: bool,
    pub(super) is_running: bool,
}

/// Looks at this machine, and at the files of these segments.
pub(super) fn look(segments: &[PathBuf]) -> MachineFacts {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok();
    let folder = rustix::fs::statvfs("/dev/shm").ok();
    MachineFacts {
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        huge_pages: setting.as_deref().and_then(chosen).map(str::to_owned),
        segments: segments.iter().filter_map(|path| segment(path, &mounts)).collect(),
        shared_memory: folder.map(|folder| (folder.f_blocks * folder.f_frsize, folder.f_bavail * folder.f_frsize)),
        rdma_devices: names_in("/sys/class/infiniband"),
        locked_max: getrlimit(Resource::Memlock).current,
        files_max: getrlimit(Resource::Nofile).maximum,
        units: Path::new("/run/systemd/system").exists().then(units),
    }
}

fn names_in(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort_unstable();
    names
}

/// Of `always [madvise] never` the one that is chosen.
pub(super) fn chosen(setting: &str) -> Option<&str> {
    let (_, rest) = setting.split_once('[')?;
    rest.split_once(']').map(|(chosen, _)| chosen)
}

/// The file system that a file is on, by the lines of `/proc/self/mounts`.
pub(super) fn mount_of(path: &Path, mounts: &str) -> Mount {
    let lines = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (place, kind, options) = (words.next()?, words.next()?, words.next()?);
        path.starts_with(place).then(|| Mount {
            place: place.to_owned(),
            kind: kind.to_owned(),
            options: options.to_owned(),
        })
    });
    // Of two at the same place the later one hides the other.
    lines.max_by_key(|mount| mount.place.len()).unwrap_or_default()
}

fn segment(path: &Path, mounts: &str) -> Option<SegmentFacts> {
    use std::os::unix::fs::MetadataExt;
    let file = std::fs::metadata(path).ok()?;
    let system = rustix::fs::statvfs(path).ok()?;
    let absolute = std::fs::canonicalize(path).ok()?;
    Some(SegmentFacts {
        bytes: file.size(),
        // Blocks of this size, whatever those of the file system are.
        bytes_given: file.blocks() * 512,
        bytes_free: system.f_bavail * system.f_frsize,
        mount: mount_of(&absolute, mounts),
        path: path.to_owned(),
    })
}

fn units() -> Vec<UnitFacts> {
    let is_there = |folder: &str, name: &str| Path::new(folder).join(name).exists();
    let installed = UNITS
        .into_iter()
        .filter(|name| UNIT_FOLDERS.iter().any(|folder| is_there(folder, name)));
    let unit = |name| UnitFacts {
        name,
        is_enabled: is_there("/etc/systemd/system/multi-user.target.wants", name),
        // A unit has a control group as long as it has processes.
        is_running: ["/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/systemd/system.slice"]
            .iter()
            .any(|folder| is_there(folder, name)),
    };
    installed.map(unit).collect()
}

/// What that means.
pub(super) fn judge(facts: &MachineFacts) -> Vec<Finding> {
    let mut findings = vec![processors(facts), huge_pages(facts)];
    findings.extend(facts.segments.iter().flat_map(of_segment));
    findings.extend(shared_memory(facts));
    findings.push(locked_memory(facts));
    findings.push(open_files(facts));
    findings.extend(of_units(facts));
    findings
}

fn processors(facts: &MachineFacts) -> Finding {
    match facts.processors {
        0 | 1 => Finding::look(
            "processors",
            "1: node, gateway and kernel share it, and leases run out where they are kept waiting",
        ),
        count => Finding::ok(
            "processors",
            format!("{count}, half of them for the threads of a gateway"),
        ),
    }
}

fn huge_pages(facts: &MachineFacts) -> Finding {
    const ABOUT: &str = "huge pages";
    match facts.huge_pages.as_deref() {
        Some("never") => Finding::look(
            ABOUT,
            "never: memory of `farside serve` has 4 KiB pages, and lookups are slower",
        )
        .next("echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"),
        Some(setting) => Finding::ok(
            ABOUT,
            format!("{setting}, for memory of `farside serve` without a file"),
        ),
        None => Finding::ok(ABOUT, "the kernel does not say"),
    }
}

fn of_segment(segment: &SegmentFacts) -> Vec<Finding> {
    let SegmentFacts { path, mount, .. } = segment;
    let path = path.display();
    let missing = segment.bytes.saturating_sub(segment.bytes_given);
    let is_memory = mount.kind == "tmpfs";
    let mut findings = Vec::new();
    if missing > segment.bytes_free {
        let finding = Finding::wrong(
            "segment",
            format!(
                "{path} may grow by {}, and {} has {} left: whoever writes to the rest is killed (SIGBUS)",
                show_size(missing),
                mount.place,
                show_size(segment.bytes_free)
            ),
        );
        findings.push(match is_memory {
            true => finding.next(format!("sudo mount -o remount,size=SIZE {}", mount.place)),
            false => finding.next(format!("df -h {path}")),
        });
    }
    if is_memory && segment.bytes >= LARGE_BYTES && !has_huge_pages(&mount.options) {
        findings.push(
            Finding::look(
                "segment",
                format!("{path} has 4 KiB pages, since {} is mounted without huge=", mount.place),
            )
            .next(format!("sudo mount -o remount,huge=advise {}", mount.place)),
        );
    }
    if findings.is_empty() {
        let bytes = show_size(segment.bytes);
        findings.push(Finding::ok(
            "segment",
            format!("{path}: {bytes} on {} ({})", mount.place, mount.kind),
        ));
    }
    findings
}

fn has_huge_pages(options: &str) -> bool {
    let mut options = options.split(',');
    options.any(|option| matches!(option.strip_prefix("huge="), Some("always" | "advise" | "within_size")))
}

fn shared_memory(facts: &MachineFacts) -> Option<Finding> {
    let (bytes, free) = facts.shared_memory?;
    let text = format!("{} of {} free", show_size(free), show_size(bytes));
    Some(match free < bytes / 20 {
        true => Finding::look("/dev/shm", format!("{text}: no room for another segment"))
            .next("sudo mount -o remount,size=SIZE /dev/shm"),
        false => Finding::ok("/dev/shm", text),
    })
}

fn locked_memory(facts: &MachineFacts) -> Finding {
    const ABOUT: &str = "locked memory";
    let devices = facts.rdma_devices.join(", ");
    match (facts.rdma_devices.is_empty(), facts.locked_max) {
        (true, _) => Finding::ok(ABOUT, "there is no RDMA device that needs any"),
        (false, None) => Finding::ok(ABOUT, format!("no limit, for {devices}")),
        (false, Some(bytes)) => Finding::look(
            ABOUT,
            format!(
                "at most {}, and {devices} locks all memory of a node (a unit has LimitMEMLOCK=infinity)",
                show_size(bytes)
            ),
        )
        .next("ulimit -l unlimited"),
    }
}

fn open_files(facts: &MachineFacts) -> Finding {
    const ABOUT: &str = "open files";
    match facts.files_max {
        Some(count) if count < FILES_WANTED => Finding::look(
            ABOUT,
            format!(
                "at most {count}, and each connection of a gateway is one: fewer than the 10000 of --maxclients (a unit has LimitNOFILE=65536)"
            ),
        )
        .next("ulimit -Hn 65536"),
        Some(count) => Finding::ok(ABOUT, format!("at most {count}, and a gateway allows 10000 connections")),
        None => Finding::ok(ABOUT, "no limit"),
    }
}

fn of_units(facts: &MachineFacts) -> Vec<Finding> {
    let Some(units) = &facts.units else {
        return Vec::new();
    };
    if units.is_empty() {
        return vec![Finding::ok(
            "units",
            "systemd is there, and no unit of Farside is installed",
        )];
    }
    let unit = |unit: &UnitFacts| {
        let name = unit.name;
        match (unit.is_running, unit.is_enabled) {
            (true, true) => Finding::ok("units", format!("{name} runs, and is started with the machine")),
            (true, false) => Finding::look("units", format!("{name} runs, and is not started with the machine"))
                .next(format!("sudo systemctl enable {name}")),
            (false, true) => Finding::wrong("units", format!("{name} should run, and has no process"))
                .next(format!("systemctl status {name}")),
            (false, false) => Finding::ok("units", format!("{name} is installed and not enabled")),
        }
    };
    units.iter().map(unit).collect()
}
