//! What the facts about a pool mean. Pure functions.

use farside_cli::scalar::show_size;
use farside_etcd::ClusterName;
use farside_gateway::MirrorReport;
use farside_pool::{NodeState, Phase, Standing, Usage};

use super::finding::Finding;
use super::pool::{NodeFacts, PoolFacts, Reached, Trouble};

/// If less than this share of the memory is free, somebody should look.
const FREE_SHARE_LOW: u64 = 10;
/// Likewise of the places for clients.
const CLIENTS_SHARE_LOW: u64 = 10;

/// Everything about a pool.
pub(super) fn pool(facts: &PoolFacts) -> Vec<Finding> {
    let mut findings: Vec<Finding> = facts.nodes.iter().flat_map(|node| self::node(facts, node)).collect();
    findings.extend(secret(facts));
    if let Some(standing) = &facts.standing {
        findings.extend(space(facts));
        findings.extend(clients(facts, standing));
        findings.push(snapshot(facts, standing));
    }
    findings
}

/// A command about this pool, with the secret that it needs.
fn command(facts: &PoolFacts, verb: &str, spec: &str, rest: &str) -> String {
    let secret = facts.secret.as_ref();
    let secret = secret.map_or_else(String::new, |file| format!(" --secret-file {}", file.path.display()));
    let gap = if rest.is_empty() { "" } else { " " };
    format!("farside {verb} --pool {spec}{secret}{gap}{rest}")
}

fn of_pool(facts: &PoolFacts, verb: &str, rest: &str) -> String {
    command(facts, verb, &facts.name, rest)
}

fn node(facts: &PoolFacts, node: &NodeFacts) -> Vec<Finding> {
    let about = format!("node {}", node.number);
    if node.state == Some(NodeState::Removed) {
        return vec![Finding::ok(about, "was removed from the pool: need not be named")];
    }
    let mut findings = vec![match &node.reached {
        Ok(reached) => reachable(facts, node, reached, about),
        Err(trouble) => unreachable(facts, node, trouble, about),
    }];
    let about = || format!("node {}", node.number);
    match node.state {
        Some(NodeState::Joining) => findings.push(
            Finding::look(
                about(),
                "was added and is not in use yet: unless `add-node` still runs, repeat it",
            )
            .next(of_pool(facts, "pool add-node", &node.place)),
        ),
        Some(NodeState::Draining) => findings.push(
            Finding::look(
                about(),
                "is being drained and not empty yet: unless `drain` still runs, repeat it",
            )
            .next(of_pool(facts, "pool drain", &node.number.to_string())),
        ),
        _ => {}
    }
    findings.extend(node.mirror.as_ref().map(|mirror| self::mirror(facts, node, mirror)));
    findings
}

fn reachable(facts: &PoolFacts, node: &NodeFacts, reached: &Reached, about: String) -> Finding {
    let place = &node.place;
    let way = if place.starts_with("shm:") { "mapped" } else { "answers" };
    let Some((pool, number)) = reached.identity else {
        return Finding::look(
            about,
            format!(
                "{place} {way}, {}, and holds no pool yet: the first gateway makes one",
                show_size(reached.bytes)
            ),
        )
        .next(of_pool(facts, "gateway", ""));
    };
    let first = facts.nodes.first().and_then(|first| first.reached.as_ref().ok());
    let first = first.and_then(|first| first.identity).map(|(pool, _)| pool);
    if first.is_some_and(|first| first != pool) {
        return Finding::wrong(
            about,
            format!("{place} belongs to pool {pool:016x}, not to that of node 0: name the nodes of one pool"),
        )
        .next(command(facts, "pool status", place, ""));
    }
    if usize::from(number) != node.number {
        return Finding::wrong(
            about,
            format!("{place} is node {number} of its pool: name the nodes in the order of their numbers"),
        );
    }
    Finding::ok(
        about,
        format!(
            "{place} {way}: {}, {} free",
            show_size(reached.bytes),
            show_size(reached.usage.bytes_free)
        ),
    )
}

fn unreachable(facts: &PoolFacts, node: &NodeFacts, trouble: &Trouble, about: String) -> Finding {
    match trouble {
        Trouble::Secret(text) => {
            let verb = format!("doctor --pool {} --secret-file PATH", facts.name);
            Finding::wrong(about, text).next(format!("farside {verb}"))
        }
        Trouble::NoPrimary(_) => {
            Finding::wrong(about, format!("{} has no primary: nothing is served of it", node.place))
        }
        Trouble::Contents(text) => {
            Finding::wrong(about, format!("{}: {text}", node.place)).next(of_pool(facts, "fsck", ""))
        }
        // What is said of its group says what to do.
        Trouble::Away(text) if node.mirror.is_some() => Finding::wrong(about, text),
        Trouble::Away(text) => {
            let finding = Finding::wrong(about, text);
            let mut places = node.place.split(',');
            match places.find_map(|place| place.split_once(':')) {
                Some(("shm", path)) => finding.next(format!("ls -l {path}")),
                Some((_, address)) => {
                    let (first, mirrored) = match address.split_once('+') {
                        Some((first, _)) => (first, " --mirrored"),
                        None => (address, ""),
                    };
                    finding.next(format!("farside node{mirrored} --segment PATH --listen {first}"))
                }
                None => finding,
            }
        }
    }
}

fn mirror(facts: &PoolFacts, node: &NodeFacts, mirror: &MirrorReport) -> Finding {
    let about = format!("mirror {}", node.number);
    let addresses: Vec<&str> = mirror.members.iter().map(|member| &*member.address).collect();
    let is_cluster = ClusterName::is_meant(&facts.name);
    let spec = match is_cluster {
        true => facts.name.clone(),
        false => format!("tcp:{}", addresses.join("+")),
    };
    let with_role = |role: &str| {
        let mut members = mirror.members.iter();
        let found = members.find(|member| member.role == role && member.address != mirror.primary);
        found.map(|member| &*member.address)
    };
    let epoch = mirror.epoch;
    if !mirror.has_primary {
        let primary = &mirror.primary;
        return match with_role("backup") {
            Some(backup) if is_cluster => Finding::wrong(
                about,
                format!("primary {primary} of epoch {epoch} does not serve; backup {backup} takes over within two leases, if etcd answers"),
            )
            .next(command(facts, "pool status", &spec, "")),
            Some(backup) => Finding::wrong(
                about,
                format!(
                    "primary {primary} of epoch {epoch} does not serve; backup {backup} has all that was acknowledged"
                ),
            )
            .next(command(facts, "pool promote", &spec, backup)),
            None => Finding::wrong(
                about,
                format!("primary {primary} of epoch {epoch} does not serve, and no backup answers: start it again"),
            )
            .next(match is_cluster {
                true => format!("farside node --cluster {spec} --node {} --segment PATH --listen {primary}", node.number),
                false => format!("farside node --mirrored --segment PATH --listen {primary}"),
            }),
        };
    }
    let primary = &mirror.primary;
    if let Some(silent) = with_role("silent") {
        if is_cluster {
            return Finding::look(
                about,
                format!("backup {silent} of epoch {epoch} does not answer; the group goes on without it as soon as etcd answers"),
            )
            .next(command(facts, "pool status", &spec, ""));
        }
        return Finding::wrong(
            about,
            format!("backup {silent} of epoch {epoch} does not answer, and no change is acknowledged without it: start it, or if it stays off let it go"),
        )
        .next(command(
            facts,
            "pool remove-backup",
            &spec,
            &format!("{silent} --silent-are-off"),
        ));
    }
    if let Some(member) = mirror.members.iter().find(|member| member.role == "joining") {
        let left = match (member.lag_bytes, member.lag_entries) {
            (0, entries) => format!("{entries} changes behind"),
            (bytes, _) => format!("{} to copy", show_size(bytes)),
        };
        return Finding::look(
            about,
            format!("{} catches up with primary {primary}: {left}", member.address),
        )
        .next(command(facts, "pool status", &spec, ""));
    }
    if let Some(idle) = with_role("idle") {
        return Finding::look(about, format!("{idle} answers and follows nobody")).next(command(
            facts,
            "pool add-backup",
            &spec,
            idle,
        ));
    }
    let backups = mirror.count("backup");
    if backups == 0 {
        return Finding::look(
            about,
            format!("primary {primary} of epoch {epoch} has no backup: what it holds is lost with it"),
        )
        .next(match is_cluster {
            true => format!(
                "farside node --cluster {spec} --node {} --segment PATH --memory SIZE --listen HOST:PORT",
                node.number
            ),
            false => format!("farside node --backup-of {primary} --segment PATH --memory SIZE --listen HOST:PORT"),
        });
    }
    let (entries, _) = mirror.lag();
    let backups = match backups {
        1 => "1 backup".to_owned(),
        count => format!("{count} backups"),
    };
    Finding::ok(
        about,
        format!("primary {primary}, epoch {epoch}, {backups}, {entries} changes under way"),
    )
}

fn secret(facts: &PoolFacts) -> Option<Finding> {
    let is_remote = |node: &NodeFacts| node.place.split(',').any(|place| !place.starts_with("shm:"));
    let Some(file) = &facts.secret else {
        let is_accepted = |node: &NodeFacts| is_remote(node) && node.reached.is_ok();
        return facts
            .nodes
            .iter()
            .any(is_accepted)
            .then(|| Finding::ok("secret", "the nodes ask for none"));
    };
    let path = file.path.display();
    match file.mode {
        Some(mode) if mode & 0o077 != 0 => Some(
            Finding::look("secret", format!("other users of this machine may read {path}"))
                .next(format!("chmod 600 {path}")),
        ),
        _ => Some(Finding::ok("secret", format!("{path} is for its owner alone"))),
    }
}

fn space(facts: &PoolFacts) -> Option<Finding> {
    let mut all = Usage::default();
    let reached = facts.nodes.iter().filter_map(|node| node.reached.as_ref().ok());
    reached.for_each(|reached| all.add(&reached.usage));
    if all.bytes == 0 {
        return None;
    }
    let (free, bytes) = (all.bytes_free, all.bytes);
    let percent = free.saturating_mul(100) / bytes;
    let held = all.members.map_or(0, |members| members.bytes_held);
    let text = format!(
        "{} of {} free ({percent} %), {} in items and index",
        show_size(free),
        show_size(bytes),
        show_size(held)
    );
    Some(match percent < FREE_SHARE_LOW {
        true => Finding::look("space", text).next(of_pool(facts, "pool add-node", "--memory SIZE ADDRESS")),
        false => Finding::ok("space", text),
    })
}

fn clients(facts: &PoolFacts, standing: &Standing) -> Vec<Finding> {
    let live = standing.clients.iter().filter(|(_, entry)| entry.is_live()).count() as u64;
    let dead = standing.clients.iter().filter(|(_, entry)| entry.liveness.is_cut_off());
    let dead: Vec<u16> = dead.map(|&(client, _)| client).collect();
    let most = standing.clients_max;
    let mut findings = Vec::new();
    if !facts.still.is_empty() {
        findings.push(
            Finding::look(
                "clients",
                format!(
                    "{} not renewed a lease for longer than it lasts: dead, and nobody is there to notice; any gateway takes over what was held",
                    have(&facts.still)
                ),
            )
            .next(of_pool(facts, "gateway", "")),
        );
    }
    if !dead.is_empty() {
        let others = live.saturating_sub(facts.still.len() as u64);
        let text = format!(
            "{} been declared dead, and what was held is not all found yet",
            have(&dead)
        );
        findings.push(match others {
            0 => Finding::look("clients", format!("{text}; any gateway does that")).next(of_pool(facts, "gateway", "")),
            _ => {
                Finding::look("clients", format!("{text}; the others do that")).next(of_pool(facts, "pool status", ""))
            }
        });
    }
    if !standing.lagging.is_empty() {
        findings.push(
            Finding::look(
                "clients",
                format!(
                    "{} not connected to all nodes yet; their logs say why",
                    have(&standing.lagging)
                ),
            )
            .next(of_pool(facts, "pool status", "")),
        );
    }
    let text = format!("{live} of {most} places are taken");
    findings.push(match most.saturating_sub(live) < most / CLIENTS_SHARE_LOW {
        true => Finding::look("clients", format!("{text}: few more can join")),
        false => Finding::ok("clients", text),
    });
    findings
}

/// "client 3 has", "clients 3, 4 have".
fn have(clients: &[u16]) -> String {
    let numbers: Vec<String> = clients.iter().map(u16::to_string).collect();
    match clients.len() {
        1 => format!("client {} has", numbers[0]),
        _ => format!("clients {} have", numbers.join(", ")),
    }
}

fn snapshot(facts: &PoolFacts, standing: &Standing) -> Finding {
    let Some((phase, client, life)) = standing.snapshot else {
        return Finding::ok("export", "none is under way");
    };
    let mut clients = standing.clients.iter();
    let is_live = clients.any(|(number, entry)| *number == client && entry.is_live() && entry.life == life)
        && !facts.still.contains(&client);
    match (is_live, phase) {
        (true, _) => Finding::ok("export", format!("client {client} makes one")),
        (false, Phase::Closed) => Finding::wrong(
            "export",
            format!(
                "client {client} died when it began one, and changes wait for it: any gateway ends that within seconds"
            ),
        )
        .next(of_pool(facts, "gateway", "")),
        (false, _) => Finding::look(
            "export",
            format!(
                "client {client} died while it made one, and blocks wait for it: any gateway ends that within seconds"
            ),
        )
        .next(of_pool(facts, "gateway", "")),
    }
}
