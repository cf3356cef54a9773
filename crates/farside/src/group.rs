//! What `farside pool` does to the members of a mirrored node.
//!
//! Which member is what decides, without a membership service, whoever types these commands. So each first asks all
//! members that the group has, and refuses what could leave it with two primaries. Of a pool that is named as a cluster etcd
//! decides: then members are asked to propose, and who does not answer is no danger.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::Args;
use farside_cli::scalar::show_size;
use farside_cli::{Failure, chain};
use farside_fabric::host::{HostClock, on_this_thread};
use farside_fabric::mirror::{RoleName, Standing, View};
use farside_fabric::tcp::{Command, Said, Secret, ask_members, command, newest_view, status};
use farside_gateway::MemberReport;

use crate::gateway::PoolArgs;

/// How often a member is asked while it is waited for.
const LOOK_NS: u64 = 200_000_000;
/// How often a member is asked that does not answer in time.
pub(crate) const ATTEMPTS: usize = 10;
/// How often a member is asked whether it knows that it is out of its group.
const LOOKS_MAX: usize = 50;

/// What `add-backup` is told.
#[derive(Debug, Args)]
pub(crate) struct NewBackup {
    #[command(flatten)]
    pool: PoolArgs,
    /// Where the new backup listens
    #[arg(value_name = "HOST:PORT")]
    address: String,
}

/// What `replace` is told.
#[derive(Debug, Args)]
pub(crate) struct Replacement {
    #[command(flatten)]
    pool: PoolArgs,
    /// The member that is to go
    #[arg(value_name = "OLD")]
    old: String,
    /// The node that takes its place, started with --backup-of or --standby
    #[arg(value_name = "NEW")]
    new: String,
    /// Members that do not answer are switched off, and stay so
    #[arg(long)]
    silent_are_off: bool,
}

/// What `promote` and `remove-backup` are told.
#[derive(Debug, Args)]
pub(crate) struct OfBackup {
    #[command(flatten)]
    pool: PoolArgs,
    /// The backup
    #[arg(value_name = "HOST:PORT")]
    address: String,
    /// Members that do not answer are switched off, and stay so
    #[arg(long)]
    silent_are_off: bool,
}

pub(crate) fn add_backup(args: &NewBackup) -> Result<ExitCode, Failure> {
    with_group(&args.pool, &args.address, async |group| {
        group.add_backup(&args.address).await
    })
}

pub(crate) fn replace(args: &Replacement) -> Result<ExitCode, Failure> {
    let Replacement {
        pool,
        old,
        new,
        silent_are_off,
    } = args;
    with_group(pool, old, async |group| {
        group.replace(pool, old, new, *silent_are_off).await
    })
}

pub(crate) fn promote(args: &OfBackup) -> Result<ExitCode, Failure> {
    with_group(&args.pool, &args.address, async |group| {
        group.promote(&args.address, args.silent_are_off).await
    })
}

pub(crate) fn remove_backup(args: &OfBackup) -> Result<ExitCode, Failure> {
    with_group(&args.pool, &args.address, async |group| {
        group.remove_backup(&args.address, args.silent_are_off).await
    })
}

/// Works on the group of a member, or the only one.
fn with_group(
    pool: &PoolArgs,
    member: &str,
    work: impl AsyncFnOnce(Group) -> Result<(), Failure>,
) -> Result<ExitCode, Failure> {
    let named = Named::read(pool, member)?;
    let done = on_this_thread(async { work(Group::find(&named).await?).await });
    done.map_err(Failure::runtime)??;
    Ok(ExitCode::SUCCESS)
}

/// The one mirrored node that is meant.
struct Named {
    /// Where its members are, as far as the user or etcd says.
    members: Vec<String>,
    secret: Option<Secret>,
    /// etcd decides, not the user.
    is_cluster: bool,
}

impl Named {
    fn read(pool: &PoolArgs, member: &str) -> Result<Self, Failure> {
        let secret = pool.secret()?;
        if let Some(cluster) = pool.cluster()? {
            let nodes = cluster.nodes.iter().map(|node| {
                let view = node.view.peers().map(|peer| &peer.address);
                let waiting = node.members.iter().map(|member| &member.address);
                view.chain(waiting).cloned().collect()
            });
            let nodes: Vec<Vec<String>> = nodes.collect();
            let members = match &nodes[..] {
                // Also one that has not told etcd yet that it is there.
                [only] => Some(only.clone()),
                _ => nodes
                    .into_iter()
                    .find(|members| members.iter().any(|known| known == member)),
            };
            let members = members.ok_or_else(|| {
                Failure::usage(format!(
                    "{member} is no member of this cluster: farside pool status --pool {} shows who is",
                    pool.name()
                ))
            })?;
            return Ok(Self {
                members,
                secret,
                is_cluster: true,
            });
        }
        let text = pool.spec()?.to_string();
        let names = match text.split(',').collect::<Vec<_>>()[..] {
            [node] => node.strip_prefix("tcp:"),
            _ => None,
        };
        let names = names.ok_or_else(|| {
            Failure::usage(format!(
                "--pool {text}: name the one mirrored node that is meant, as tcp:HOST:PORT"
            ))
        })?;
        Ok(Self {
            members: names.split('+').map(str::to_owned).collect(),
            secret,
            is_cluster: false,
        })
    }
}

/// The members of one mirrored node, as far as they answer.
pub(crate) struct Group {
    secret: Option<Secret>,
    /// etcd decides, not the user.
    is_cluster: bool,
    view: View,
    members: Said,
}

impl Group {
    /// Asks the members that `--pool` names, and those that they name.
    async fn find(named: &Named) -> Result<Self, Failure> {
        let group = Self::ask(named.members.iter().cloned(), named.secret.clone()).await;
        let group = group.ok_or_else(|| {
            Failure::usage(format!(
                "{} is no mirrored node that answers: start nodes with --mirrored, --backup-of or --cluster",
                named.members.join("+")
            ))
        })?;
        Ok(Self {
            is_cluster: named.is_cluster,
            ..group
        })
    }

    /// Asks members and whomever they name. `None` if none answers or knows a view.
    async fn ask(names: impl Iterator<Item = String>, secret: Option<Secret>) -> Option<Self> {
        let members = ask_members(names, secret.as_ref(), ATTEMPTS).await;
        Some(Self {
            secret,
            is_cluster: false,
            view: newest_view(&members)?.clone(),
            members,
        })
    }

    async fn tell(&self, address: &str, what: &Command) -> Result<Standing, Failure> {
        let secret = self.secret.as_ref();
        let told = match what {
            Command::Status => status(address, secret, ATTEMPTS).await,
            _ => command(address, secret, what).await,
        };
        told.map_err(|error| Failure::usage(chain(&error)))
    }

    fn role(&self, address: &str) -> Option<RoleName> {
        Some(self.members.get(address)?.as_ref()?.role)
    }

    /// Members of the newest view that do not answer, except one.
    fn silent(&self, except: &str) -> Vec<&str> {
        let addresses = self.view.peers().map(|peer| &*peer.address);
        addresses
            .filter(|address| *address != except && self.role(address).is_none())
            .collect()
    }

    async fn promote(&self, address: &str, silent_are_off: bool) -> Result<(), Failure> {
        if self.role(address) == Some(RoleName::Primary) {
            say(&format!("{address} is the primary already"));
            return Ok(());
        }
        // The primary cannot answer anybody without the consent of a backup that has everything. But another backup may have
        // been promoted; and without a process that was started anew the primary may have gone on.
        let is_backup = self.role(address) == Some(RoleName::Backup);
        let silent = self.silent(address);
        let dangerous: Vec<_> = silent
            .into_iter()
            .filter(|silent| *silent != self.view.primary.address || !is_backup)
            .collect();
        if let [first, ..] = dangerous[..]
            && !silent_are_off
            && !self.is_cluster
        {
            return Err(Failure::usage(format!(
                "{first} is in the group and does not answer: it may be primary, and there would be two; \
                 if it is switched off and stays so, repeat with --silent-are-off"
            )));
        }
        let known = self.members.get(address).and_then(Option::as_ref);
        if known
            .and_then(|standing| standing.view.as_ref())
            .is_some_and(|view| view.epoch < self.view.epoch)
        {
            return Err(Failure::usage(format!(
                "{address} is behind: epoch {} is in force, of which {} is primary",
                self.view.epoch, self.view.primary.address
            )));
        }
        let what = "waits until its grants are over";
        let standing = self
            .have(address, &Command::Promote, what, |standing| {
                standing.role == RoleName::Primary
            })
            .await?;
        let epoch = standing.view.map_or(0, |view| view.epoch);
        say(&format!("{address} is the primary now, in epoch {epoch}"));
        Ok(())
    }

    async fn remove_backup(&self, address: &str, silent_are_off: bool) -> Result<(), Failure> {
        if !self.view.backups.iter().any(|backup| backup.address == address) {
            return Err(Failure::usage(format!(
                "{address} is no backup of this group: {}",
                self.view
            )));
        }
        if self.role(address).is_none() && !silent_are_off && !self.is_cluster {
            return Err(Failure::usage(format!(
                "{address} does not answer: it may have been promoted, and there would be two primaries; \
                 if it is switched off and stays so, repeat with --silent-are-off"
            )));
        }
        let primary = &self.view.primary.address;
        let remove = Command::RemoveBackup(address.to_owned());
        let left = |standing: &Standing| {
            let view = standing.view.as_ref();
            view.is_some_and(|view| !view.backups.iter().any(|backup| backup.address == address))
        };
        self.have(primary, &remove, "is told", left).await?;
        if self.role(address).is_some() {
            self.wait_until_it_knows(address, left).await?;
        }
        say(&format!("{primary} goes on without {address}, which can be stopped"));
        Ok(())
    }

    /// Waits until a backup that was removed knows that it was: before, it would let itself be promoted.
    async fn wait_until_it_knows(&self, address: &str, knows: impl Fn(&Standing) -> bool) -> Result<(), Failure> {
        for _ in 0..LOOKS_MAX {
            match self.tell(address, &Command::Status).await {
                Ok(standing) if !knows(&standing) => HostClock.sleep(LOOK_NS).await,
                // It is gone by now, and whoever is started anew asks the primary.
                _ => return Ok(()),
            }
        }
        let primary = &self.view.primary.address;
        Err(Failure::runtime(format!(
            "{primary} goes on without {address}, which does not know it: they do not reach each other; stop {address}, and do not promote it"
        )))
    }

    async fn add_backup(&self, address: &str) -> Result<(), Failure> {
        let primary = &self.view.primary.address;
        let standing = self.tell(address, &Command::Status).await?;
        if standing.role == RoleName::Primary {
            return Err(Failure::usage(format!(
                "{address} is a primary itself: start it with --backup-of {primary}"
            )));
        }
        if standing.view.is_none() && !self.is_cluster {
            self.tell(address, &Command::Follow(primary.clone())).await?;
        }
        self.wait_for_backup(address).await?;
        say(&format!(
            "{address} is a backup of {primary}: from now on all that is acknowledged is there too"
        ));
        Ok(())
    }

    /// Shows how far the copy is until the member is a backup.
    async fn wait_for_backup(&self, address: &str) -> Result<(), Failure> {
        let mut line = Progress::default();
        loop {
            let primary = self.tell(&self.view.primary.address, &Command::Status).await?;
            if primary
                .view
                .is_some_and(|view| view.backups.iter().any(|backup| backup.address == address))
            {
                line.end();
                return Ok(());
            }
            let lag = primary.followers.iter().find(|(peer, ..)| peer.address == address);
            line.show(&match lag {
                None => format!("{address} has not joined yet"),
                Some((_, entries, 0)) => format!("{address} is {entries} changes behind"),
                Some((_, _, bytes)) => format!("{address} has {} still to copy", show_size(*bytes)),
            });
            HostClock.sleep(LOOK_NS).await;
        }
    }

    async fn replace(&self, pool: &PoolArgs, old: &str, new: &str, silent_are_off: bool) -> Result<(), Failure> {
        if !self.view.peers().any(|peer| peer.address == old) {
            return Err(Failure::usage(format!("{old} is not in this group: {}", self.view)));
        }
        self.add_backup(new).await?;
        let named = Named::read(pool, new)?;
        let group = Self::find(&named).await?;
        if self.is_cluster {
            if group.view.primary.address == old {
                group.promote(new, silent_are_off).await?;
            }
            say(&format!("stop {old}: the group goes on without it"));
            return Ok(());
        }
        if group.view.primary.address == old {
            group.promote(new, silent_are_off).await?;
            if group.role(old).is_none() {
                return Ok(());
            }
            // A primary that was deposed follows the new one: before it has become its backup it cannot be removed.
            let group = Self::find(&named).await?;
            group.wait_for_backup(old).await?;
            return Self::find(&named).await?.remove_backup(old, silent_are_off).await;
        }
        group.remove_backup(old, silent_are_off).await
    }

    /// Has a member do something, and asks until it has. Says it again each time: another view makes it forget what it was told.
    async fn have(
        &self,
        address: &str,
        command: &Command,
        what: &str,
        is_done: impl Fn(&Standing) -> bool,
    ) -> Result<Standing, Failure> {
        let mut line = Progress::default();
        loop {
            let told = self.tell(address, command).await;
            let standing = self.tell(address, &Command::Status).await?;
            if is_done(&standing) {
                line.end();
                return Ok(standing);
            }
            told?;
            line.show(&format!("{address} {what}"));
            HostClock.sleep(LOOK_NS).await;
        }
    }
}

/// The members of a mirrored node as text.
pub(crate) fn text(members: &[MemberReport]) -> String {
    let width = members.iter().map(|member| member.address.len()).max().unwrap_or(0);
    let line = |member: &MemberReport| {
        let behind = match (member.lag_entries, member.lag_bytes) {
            (0, 0) => String::new(),
            (changes, 0) => format!(", {changes} changes behind"),
            (_, bytes) => format!(", {} still to copy", show_size(bytes)),
        };
        let epoch = match member.epoch {
            0 => String::new(),
            epoch => format!(", epoch {epoch}"),
        };
        format!("  {:<width$}  {}{epoch}{behind}\n", member.address, member.role)
    };
    members.iter().map(line).collect()
}

fn say(what: &str) {
    // A closed pipe is the reader's choice.
    let _ = writeln!(std::io::stdout(), "{what}");
}

/// One line on standard error that is replaced, or a new one where that is no terminal and something has changed.
#[derive(Default)]
struct Progress {
    shown: String,
}

impl Progress {
    fn show(&mut self, what: &str) {
        if self.shown == what {
            return;
        }
        what.clone_into(&mut self.shown);
        let mut stderr = std::io::stderr();
        let _ = match stderr.is_terminal() {
            true => write!(stderr, "\r\x1b[K{what}"),
            false => writeln!(stderr, "{what}"),
        };
    }

    fn end(&mut self) {
        if !self.shown.is_empty() && std::io::stderr().is_terminal() {
            let _ = writeln!(std::io::stderr());
        }
    }
}
