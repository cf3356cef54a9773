//! Backups again and again: when, under which names, and which ones go.
//!
//! Retention removes only what has exactly the name of such a backup: what is not whole has another one.

use std::process::ExitCode;

use farside_fabric::host::{self, HostClock};

use super::export::Summary;
use super::place::Place;
use crate::signal::Stop;
use farside_cli::Failure;

/// Reads a time: a number with s, min, h or d.
pub(super) fn every(text: &str) -> Result<u64, String> {
    let digits = text
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "s" => 1,
        "min" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => 0,
    };
    let number: Option<u64> = number.parse().ok();
    let time = number
        .and_then(|number| number.checked_mul(seconds))
        .filter(|&time| time > 0);
    time.ok_or_else(|| format!("`{text}` is not a time: write a number with s, min, h or d, such as 1h"))
}

pub(super) struct Schedule {
    pub(super) folder: Place,
    pub(super) every_s: u64,
    pub(super) keep: Option<u64>,
    pub(super) is_json: bool,
}

impl Schedule {
    /// Exports until the process is asked to end. What fails is reported, and tried again next time.
    pub(super) fn run(self, mut export: impl FnMut(&Place) -> Result<Summary, Failure>) -> Result<ExitCode, Failure> {
        match &self.folder {
            Place::Standard => return Err(Failure::usage("--every needs a folder in --to: a backup has a name")),
            Place::File(folder) => std::fs::create_dir_all(folder)
                .map_err(|error| Failure::usage(format!("cannot make {}: {error}", folder.display())))?,
            Place::Object(_) => {}
        }
        let stop = Stop::listen()?;
        let (asked, mut is_asked) = tokio::sync::watch::channel(false);
        let waiter = move || host::on_this_thread(async move { stop.asked().await }).map(|()| asked.send_replace(true));
        std::thread::Builder::new()
            .name("farside-schedule".to_owned())
            .spawn(waiter)
            .map_err(Failure::runtime)?;
        // Ends when it is asked to; the backup under way is finished before.
        loop {
            let begun_s = HostClock.unix_ms() / 1000;
            match export(&self.folder.within(&name(begun_s))).and_then(|summary| {
                summary.print(self.is_json, true)?;
                self.retain()
            }) {
                Ok(()) => {}
                Err(failed) => drop(failed.report("farside")),
            }
            let next_s = begun_s + self.every_s;
            let pause = host::on_this_thread(async {
                let wait_ns = next_s.saturating_sub(HostClock.unix_ms() / 1000) * 1_000_000_000;
                tokio::select! {
                    () = HostClock.sleep(wait_ns) => false,
                    _ = is_asked.wait_for(|asked| *asked) => true,
                }
            });
            if pause.map_err(Failure::runtime)? {
                return Ok(ExitCode::SUCCESS);
            }
        }
    }

    /// Removes the oldest backups beyond those that are kept.
    fn retain(&self) -> Result<(), Failure> {
        let Some(keep) = self.keep else { return Ok(()) };
        for name in superfluous(self.folder.list()?, keep) {
            self.folder.within(&name).remove()?;
            tracing::info!("removed the old backup {name}");
        }
        Ok(())
    }
}

/// The name of the backup that was begun then: in the order of time, and the same everywhere.
fn name(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    let (year, month, day) = date(days);
    format!(
        "farside-{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z.rdb",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// Year, month and day of a day since 1970 (Hinnant, "chrono-compatible low-level date algorithms").
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    // Counted from March on, so that the leap day is the last one.
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

/// Whether this is the name of a backup.
fn is_backup(name: &str) -> bool {
    let pattern = "farside-00000000T000000Z.rdb";
    name.len() == pattern.len()
        && name
            .bytes()
            .zip(pattern.bytes())
            .all(|(byte, expected)| match expected {
                b'0' => byte.is_ascii_digit(),
                expected => byte == expected,
            })
}

/// The backups that are older than the last so many.
fn superfluous(mut names: Vec<String>, keep: u64) -> Vec<String> {
    names.retain(|name| is_backup(name));
    names.sort_unstable();
    let keep = usize::try_from(keep).unwrap_or(usize::MAX);
    names.truncate(names.len().saturating_sub(keep));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        assert_eq!(every("90s"), Ok(90));
        assert_eq!(every("15min"), Ok(900));
        assert_eq!(every("1h"), Ok(3600));
        assert_eq!(every("2d"), Ok(172_800));
        for text in ["", "1", "h", "0h", "1m", "-1h", "1 h", "99999999999999999999d"] {
            assert!(every(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_are_in_the_order_of_time() {
        assert_eq!(name(0), "farside-19700101T000000Z.rdb");
        assert_eq!(name(951_827_696), "farside-20000229T123456Z.rdb");
        let names: Vec<_> = (0..2000).map(|step| name(step * 100_000)).collect();
        assert!(names.is_sorted() && names.iter().all(|name| is_backup(name)));
    }

    #[test]
    fn only_old_backups_are_superfluous() {
        let mut names: Vec<String> = (0..5).map(|day| name(day * 86_400)).collect();
        let others = [
            "farside-19700101T000000Z.rdb.bak",
            ".farside-19700101T000000Z.rdb.12.partial",
            "farside-x9700101T000000Z.rdb",
            "dump.rdb",
        ];
        names.extend(others.map(str::to_owned));
        assert_eq!(superfluous(names.clone(), 3), [name(0), name(86_400)]);
        assert_eq!(superfluous(names.clone(), 5), [""; 0]);
        assert_eq!(superfluous(names, 6), [""; 0]);
    }
}
