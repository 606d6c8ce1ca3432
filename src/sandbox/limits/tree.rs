//! The processes below a process, as /proc shows them. For a tree that stands
//! still; nothing here stops one that forks on.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Most processes that are looked at; the trees asked for have four.
const LIMIT: usize = 4096;

/// The process itself first, then all below it.
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
        let Some(process) = entry.file_name().to_str().and_then(|it| it.parse().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let Some(parent) = parent(&stat) {
            children.entry(parent).or_default().push(process);
        }
    }
    children
}

/// `12 (name) S PARENT …`; the name may hold anything, brackets too.
fn parent(stat: &str) -> Option<u32> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::PathBuf;
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
            let stat = format!("{process} (a) S 9 (b) S {parent} 1 1 0 -1");
            fs::write(folder(proc, process).join("stat"), stat).unwrap();
        });
    }

    #[test]
    fn a_process_that_is_gone_is_a_tree_of_its_own() {
        assert_eq!(process_tree(Path::new("/nowhere"), 5), [5]);
    }
}
