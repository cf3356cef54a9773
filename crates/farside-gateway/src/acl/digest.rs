//! Passwords as their SHA-256, and random ones.
//!
//! On the path: AUTH and HELLO. Of a password that a rule gives only this is kept, in memory and in files.

use core::fmt;
use core::hint::black_box;

use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use ring::rand::{SecureRandom, SystemRandom};

/// The SHA-256 of a password.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Digest([u8; SHA256_OUTPUT_LEN]);

impl Digest {
    pub(crate) fn of(password: &[u8]) -> Self {
        let digest = digest(&SHA256, password);
        Self(digest.as_ref().try_into().expect("it has this length"))
    }

    /// From 64 digits in lower case, as Redis wants them.
    pub(crate) fn from_hex(text: &[u8]) -> Option<Self> {
        let text: &[u8; 2 * SHA256_OUTPUT_LEN] = text.try_into().ok()?;
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            let value = |digit: u8| match digit {
                b'0'..=b'9' => Some(digit - b'0'),
                b'a'..=b'f' => Some(digit - b'a' + 10),
                _ => None,
            };
            *byte = value(pair[0])? << 4 | value(pair[1])?;
        }
        Some(Self(bytes))
    }

    pub(crate) fn to_hex(self) -> String {
        hex(&self.0)
    }

    /// Takes the same time wherever they differ.
    pub(crate) fn matches(self, other: Self) -> bool {
        let pairs = self.0.iter().zip(other.0);
        pairs.fold(0, |difference, (one, other)| black_box(difference | (one ^ other))) == 0
    }
}

/// Not shown: who knows it can try passwords at leisure.
impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(not shown)")
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// So many digits that nobody can guess; `None` if the system gives no chance.
pub(crate) fn random_hex(digits: usize) -> Option<String> {
    let mut bytes = vec![0; digits.div_ceil(2)];
    SystemRandom::new().fill(&mut bytes).ok()?;
    let mut text = hex(&bytes);
    text.truncate(digits);
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_redis() {
        // `ACL SETUSER x >pw` and `ACL GETUSER x` of a redis-server.
        let text = "30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4";
        let digest = Digest::of(b"pw");
        assert_eq!(digest.to_hex(), text);
        assert_eq!(Digest::from_hex(text.as_bytes()), Some(digest));
        assert!(digest.matches(Digest::of(b"pw")) && !digest.matches(Digest::of(b"pW")));
        let (upper, long) = (text.to_uppercase(), format!("{text}0"));
        for wrong in ["", &text[1..], &upper, &long, &text.replace('3', "g")] {
            assert_eq!(Digest::from_hex(wrong.as_bytes()), None, "{wrong}");
        }
        assert!(!format!("{digest:?}").contains("30"));
    }

    #[test]
    fn random_passwords_differ_and_have_the_length_that_is_asked_for() {
        for digits in [1, 2, 5, 64] {
            assert_eq!(random_hex(digits).map(|text| text.len()), Some(digits));
        }
        assert_ne!(random_hex(64), random_hex(64));
    }
}
