//! Sizes and durations as people write them: `4GiB`, `100MB`, `20ms`.

/// Reads a size in bytes: a number with B, kB, MB, GB (powers of 1000) or KiB, MiB, GiB (of 1024).
///
/// # Errors
/// Says how a size is written.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let units = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("B", 1),
        ("", 1),
    ];
    parse(text, &units).ok_or_else(|| format!("`{text}` is not a size: write 512MiB, 4GiB or 100MB"))
}

/// Reads a duration in nanoseconds: a number with ns, us, ms or s.
///
/// # Errors
/// Says how a duration is written.
pub fn parse_duration(text: &str) -> Result<u64, String> {
    let units = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    parse(text, &units).ok_or_else(|| format!("`{text}` is not a duration: write 20ms, 500us or 2s"))
}

fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits_end);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    number
        .parse::<u64>()
        .ok()?
        .checked_mul(*factor)
        .filter(|&value| value > 0)
}

/// A number as a person reads it: `20.38 M`, `15.5 k`.
#[must_use]
pub fn with_prefix(value: f64) -> String {
    match value.abs() {
        large if large >= 1e9 => format!("{:.2} G", value / 1e9),
        large if large >= 1e6 => format!("{:.2} M", value / 1e6),
        large if large >= 1e3 => format!("{:.1} k", value / 1e3),
        large if large >= 100.0 => format!("{value:.0} "),
        _ => format!("{value:.2} "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_are_read() {
        assert_eq!(parse_bytes("4GiB"), Ok(4 << 30));
        assert_eq!(parse_bytes("100 MB"), Ok(100_000_000));
        assert_eq!(parse_bytes("64"), Ok(64));
        assert_eq!(parse_duration("20ms"), Ok(20_000_000));
        for wrong in ["", "ms", "1.5s", "20", "-1ms", "0ms", "1h", "99999999999999s"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
        assert!(parse_bytes("4 gigs").is_err());
    }

    #[test]
    fn numbers_are_shortened() {
        assert_eq!(with_prefix(15_480.0), "15.5 k");
        assert_eq!(with_prefix(20_380_000.0), "20.38 M");
        assert_eq!(with_prefix(0.15), "0.15 ");
    }
}
