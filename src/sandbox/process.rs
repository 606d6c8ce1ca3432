//! A look at the host's process table: who a process is, whether it still is
//! that one, and who is below it. A look changes nothing and is past as soon
//! as it was taken; a pid is only ever believed together with its start.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::Resident;
use super::wait::tells_by;

/// Where the kernel shows its processes.
const PROC: &str = "/proc";

/// Most processes of one tree that are looked at.
const LIMIT: usize = 4096;

/// Bytes of the line that tells of a process: some fifty numbers.
const MOST_LINE: usize = 2048;

/// In the kernel's flags of a process: it has begun to end.
const EXITING: u32 = 0x4;

/// The name of every resident: that of the program which it is.
const RESIDENT_NAME: &str = "tool-client";

/// A process as the table shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    /// At most 15 bytes; whatever the process chose.
    pub(super) name: String,
    /// 0 where there is none, or none that is seen from here.
    pub(super) parent: u32,
    /// In clock ticks since boot.
    pub(super) started: u64,
    /// Ended, and not yet reaped.
    pub(super) is_zombie: bool,
    /// On its way out of the kernel: it runs nothing any more. A first process
    /// is so until all others of its namespace are gone.
    pub(super) is_exiting: bool,
}

impl Process {
    /// That process, if it is there and may be seen from here.
    pub(super) fn look(pid: u32) -> Option<Self> {
        // The kernel writes the line anew for each read: one has to do.
        let mut line = [0; MOST_LINE];
        let mut file = File::open(format!("{PROC}/{pid}/stat")).ok()?;
        let length = file.read(&mut line).ok()?;
        parse(&String::from_utf8_lossy(line.get(..length)?))
    }

    /// Whether it has not ended; a zombie has.
    pub(super) fn lives(&self) -> bool {
        Self::look(self.pid).is_some_and(|it| it.started == self.started && !it.is_zombie)
    }

    fn as_resident(&self) -> Option<Resident> {
        let is_one = self.name == RESIDENT_NAME && !self.is_zombie;
        is_one.then_some(Resident { pid: self.pid, started: self.started })
    }

    fn has_ended_by(&self, deadline: Instant) -> bool {
        if !self.lives() {
            return true;
        }
        // What is held now may be another that got the same pid; it lives then.
        if let Some(held) = hold(self.pid).filter(|_| self.lives()) {
            let _ = tells_by(deadline, &[held.as_fd()]);
        }
        !self.lives()
    }
}

/// Waits until all of these have ended, until the deadline at most; whether
/// they have.
pub(super) fn have_ended(all: &[Process], deadline: Instant) -> bool {
    all.iter().all(|it| it.has_ended_by(deadline))
}

/// A number as the kernel's calls take it.
pub(super) fn number(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

/// A descriptor of the process that has this pid now: what it holds stays the
/// same process. `None` if there is none.
pub(super) fn hold(pid: u32) -> Option<OwnedFd> {
    pidfd_open(number(pid)?, PidfdFlags::empty()).ok()
}

impl Resident {
    /// The resident of that pid, if it can be seen and is one.
    pub(super) fn look(pid: u32) -> Option<Self> {
        Process::look(pid)?.as_resident()
    }

    /// Whether that very process is still there.
    pub(super) fn lives(self) -> bool {
        Self::look(self.pid) == Some(self)
    }

    /// Whether it is there and can still do something. One that was killed and
    /// whose sandbox is not yet gone lives, and does not serve.
    pub(super) fn serves(self) -> bool {
        let seen = Process::look(self.pid).filter(|it| !it.is_exiting);
        seen.and_then(|it| it.as_resident()) == Some(self)
    }
}

/// All processes below one that still lives, however deep, each as it was
/// seen; not the one itself. Empty where there are none or none are seen, and
/// not all of them where there are thousands.
pub(super) fn below(top: u32) -> Vec<Process> {
    seen(process_tree(Path::new(PROC), top))
}

/// The same; `None` if there are more than a look takes in.
pub(super) fn all_below(top: u32) -> Option<Vec<Process>> {
    whole_tree(Path::new(PROC), top).map(seen)
}

fn whole_tree(proc: &Path, top: u32) -> Option<Vec<u32>> {
    Some(process_tree(proc, top)).filter(|it| it.len() < LIMIT)
}

fn seen(tree: Vec<u32>) -> Vec<Process> {
    tree.into_iter().skip(1).filter_map(Process::look).collect()
}

/// The process itself first, then all below it. For a tree that stands still;
/// one that forks on may have more.
pub(super) fn process_tree(proc: &Path, top: u32) -> Vec<u32> {
    let mut scanned = None;
    let mut tree = vec![top];
    let mut next = 0;
    while let Some(&process) = tree.get(next).filter(|_| tree.len() < LIMIT) {
        next += 1;
        // Kernels without CONFIG_PROC_CHILDREN do not have the list.
        let children = listed_children(proc, process).unwrap_or_else(|| {
            let all = scanned.get_or_insert_with(|| children_by_parent(proc));
            all.get(&process).cloned().unwrap_or_default()
        });
        tree.extend(children);
    }
    tree
}

/// What `/proc/PID/task/*/children` say; `None` where they do not exist.
fn listed_children(proc: &Path, process: u32) -> Option<Vec<u32>> {
    let threads = fs::read_dir(proc.join(process.to_string()).join("task")).ok()?;
    let mut children = Vec::new();
    for thread in threads.flatten() {
        let list = fs::read_to_string(thread.path().join("children")).ok()?;
        children.extend(list.split_whitespace().filter_map(|it| it.parse::<u32>().ok()));
    }
    Some(children)
}

fn children_by_parent(proc: &Path) -> BTreeMap<u32, Vec<u32>> {
    let mut children = BTreeMap::<u32, Vec<u32>>::new();
    for entry in fs::read_dir(proc).into_iter().flatten().flatten() {
        // A name need not be text, and hides nobody.
        let stat = fs::read(entry.path().join("stat")).unwrap_or_default();
        if let Some(seen) = parse(&String::from_utf8_lossy(&stat)) {
            children.entry(seen.parent).or_default().push(seen.pid);
        }
    }
    children
}

/// `12 (name) S PARENT …`, its start the 22nd word; the name may hold
/// anything, brackets too.
fn parse(stat: &str) -> Option<Process> {
    let (before_end, after_name) = stat.rsplit_once(')')?;
    let (pid, name) = before_end.split_once(" (")?;
    let mut words = after_name.split_whitespace();
    let state = words.next()?;
    let parent = words.next()?.parse().ok()?;
    let flags: u32 = words.nth(4)?.parse().ok()?;
    let threads: u32 = words.nth(10)?.parse().ok()?;
    let started = words.nth(1)?.parse().ok()?;
    Some(Process {
        pid: pid.parse().ok()?,
        name: name.to_owned(),
        parent,
        started,
        // One whose first thread alone has ended looks like a zombie, and runs.
        is_zombie: matches!(state, "Z" | "X") && threads <= 1,
        is_exiting: flags & EXITING != 0,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::PathBuf;
    use std::process::{Command, Stdio};
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Lays out a /proc in which 1 is the parent of 2 and 3, and 3 of 4; 9 is
    /// nobody's.
    #[track_caller]
    fn check(lay_out: impl Fn(&Path, u32, u32, &str)) {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("beige-tree-{}-{count}", std::process::id());
        let proc = std::env::temp_dir().join(name);
        for (process, parent, children) in
            [(1, 0, "2 3 "), (2, 1, ""), (3, 1, "4 "), (4, 3, ""), (9, 7, "")]
        {
            lay_out(&proc, process, parent, children);
        }
        let mut got = process_tree(&proc, 1);
        assert_eq!(got.first(), Some(&1));
        got.sort_unstable();
        assert_eq!(got, [1, 2, 3, 4]);
        fs::remove_dir_all(proc).unwrap();
    }

    fn folder(proc: &Path, process: u32) -> PathBuf {
        let folder = proc.join(process.to_string());
        fs::create_dir_all(folder.join("task").join(process.to_string())).unwrap();
        folder
    }

    fn stat(pid: u32, name: &str, state: &str, parent: u32) -> String {
        format!(
            "{pid} ({name}) {state} {parent} 1 1 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 777 9 10"
        )
    }

    #[test]
    fn a_tree_is_found_by_the_lists_of_children() {
        check(|proc, process, _, children| {
            let task = folder(proc, process).join("task").join(process.to_string());
            fs::write(task.join("children"), children).unwrap();
        });
    }

    #[test]
    fn a_tree_is_found_without_them() {
        check(|proc, process, parent, _| {
            let stat = stat(process, "a) S 9 (b", "S", parent);
            fs::write(folder(proc, process).join("stat"), stat).unwrap();
        });
    }

    #[test]
    fn a_name_that_is_no_text_hides_nobody() {
        check(|proc, process, parent, _| {
            let stat = stat(process, "?", "S", parent);
            let stat: Vec<u8> = stat.bytes().map(|it| if it == b'?' { 0xff } else { it }).collect();
            fs::write(folder(proc, process).join("stat"), stat).unwrap();
        });
    }

    #[test]
    fn a_tree_of_which_a_look_sees_only_a_part_is_none() {
        let proc = std::env::temp_dir().join(format!("beige-many-{}", std::process::id()));
        for (last, is_whole) in [(LIMIT - 1, true), (LIMIT + 1, false)] {
            let all: Vec<String> = (2..=last).map(|it| it.to_string()).collect();
            fs::write(folder(&proc, 1).join("task/1/children"), all.join(" ")).unwrap();
            assert_eq!(whole_tree(&proc, 1).is_some(), is_whole, "{last}");
        }
        fs::remove_dir_all(proc).unwrap();
    }

    #[test]
    fn a_process_that_is_gone_is_a_tree_of_its_own() {
        assert_eq!(process_tree(Path::new("/nowhere"), 5), [5]);
    }

    #[test]
    fn a_name_cannot_forge_the_rest_of_the_line() {
        let name = "x) Z 1 (tool-client";
        let got = parse(&stat(12, name, "S", 7)).unwrap();
        let want = Process {
            pid: 12,
            name: name.into(),
            parent: 7,
            started: 777,
            is_zombie: false,
            is_exiting: false,
        };
        assert_eq!(got, want);
        assert!(parse(&stat(12, "a", "Z", 7)).unwrap().is_zombie);
        let with_threads = stat(12, "a", "Z", 7).replace(" 20 0 1 0 ", " 20 0 2 0 ");
        assert!(!parse(&with_threads).unwrap().is_zombie, "its threads run on");
        let exiting = stat(12, "a", "D", 7).replace(" -1 4194304 ", " -1 4194564 ");
        assert!(parse(&exiting).unwrap().is_exiting);
        assert_eq!(parse("12 (a) S 7"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_process_lives_until_it_has_ended_even_if_nobody_reaped_it() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let seen = Process::look(child.id()).unwrap();
        assert!(seen.lives() && below(std::process::id()).iter().any(|it| it.pid == seen.pid));
        let other = Process { started: seen.started + 1, ..seen.clone() };
        assert!(!other.lives(), "a pid alone is nobody");
        assert_eq!(Resident::look(child.id()), None, "no resident has that name");
        assert!(!have_ended(std::slice::from_ref(&seen), Instant::now()));
        child.kill().unwrap();
        rustix::process::waitid(
            rustix::process::WaitId::Pid(rustix::process::Pid::from_child(&child)),
            rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT,
        )
        .unwrap();
        assert!(!seen.lives(), "a zombie has ended");
        assert!(have_ended(std::slice::from_ref(&seen), Instant::now()));
        child.wait().unwrap();
        assert!(!seen.lives());
    }
}
