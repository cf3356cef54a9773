//! Sizes and addresses as people write them.

use std::net::{SocketAddr, ToSocketAddrs};

/// Reads a size: bytes, or a number with a unit.
pub fn size(text: &str) -> Result<u64, String> {
    let units = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("kB", 1_000),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("B", 1),
        ("", 1),
    ];
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let wrong = || format!("`{text}` is not a size: write a number with KiB, MiB, GiB, kB, MB or GB, such as 1GiB");
    let &(_, factor) = units
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()))
        .ok_or_else(wrong)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let mut bytes = whole.checked_mul(factor).ok_or_else(wrong)?;
    if number.contains('.') {
        let fraction: f64 = format!("0.{fraction}").parse().map_err(|_| wrong())?;
        bytes = bytes.checked_add((fraction * factor as f64) as u64).ok_or_else(wrong)?;
    }
    if bytes == 0 { Err(wrong()) } else { Ok(bytes) }
}

/// Reads a limit: a size, or 0 for none.
pub fn limit(text: &str) -> Result<u64, String> {
    match text {
        "0" => Ok(0),
        _ => size(text).map_err(|why| format!("{why}, or 0 for no limit")),
    }
}

/// A size for people.
pub fn show_size(bytes: u64) -> String {
    for (unit, factor) in [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes >= factor {
            let text = format!("{:.1}", bytes as f64 / factor as f64);
            return format!("{} {unit}", text.strip_suffix(".0").unwrap_or(&text));
        }
    }
    format!("{bytes} bytes")
}

/// Reads where to listen.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let wrong = || format!("`{text}` is not an address to listen on: write HOST:PORT, such as 127.0.0.1:6380");
    text.to_socket_addrs().map_err(|_| wrong())?.next().ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [
            ("1", 1),
            ("4096", 4096),
            ("64B", 64),
            ("1KiB", 1024),
            ("2MiB", 2 << 20),
            ("1GiB", 1 << 30),
            ("1gib", 1 << 30),
            ("100MB", 100_000_000),
            ("3kB", 3000),
            ("2 GB", 2_000_000_000),
            ("1.5GiB", 3 << 29),
            ("1TiB", 1 << 40),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        assert_eq!((limit("0"), limit("1KiB")), (Ok(0), Ok(1024)));
        assert!(limit("0KiB").is_err());
        for text in ["", "GiB", "1XB", "-1", "1GiB2", "0", "1.2.3MB", "99999999999GiB", "１"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn addresses_have_a_host_and_a_port() {
        assert_eq!(address("127.0.0.1:6380"), Ok(SocketAddr::from(([127, 0, 0, 1], 6380))));
        assert!(address("[::1]:80").is_ok());
        for text in ["", "6380", "127.0.0.1", "127.0.0.1:99999", "no such host:1"] {
            assert!(address(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_size_or_not(text in ".{0,20}") {
            let _ = size(&text);
        }
    }
}
