//! What a process has allocated, as the kernel counts it.

use crate::error::BenchError;

/// Bytes of memory that belong to this process alone: no files, no shared memory.
///
/// # Errors
/// If the kernel does not say.
pub(super) fn private_bytes() -> Result<u64, BenchError> {
    let status = std::fs::read_to_string("/proc/self/status").map_err(BenchError::system("read /proc/self/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    let missing = || BenchError::system("find RssAnon in /proc/self/status")(std::io::ErrorKind::NotFound.into());
    Ok(kib.ok_or_else(missing)? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_counts() {
        let before = private_bytes().expect("Linux");
        let block = core::hint::black_box(vec![1_u8; 64 << 20]);
        let grown = private_bytes().expect("Linux") - before;
        assert!(grown >= 60 << 20, "{grown} bytes more for {} bytes", block.len());
    }
}
