//! The membership of a running member: hears what is decided, asks for what it proposes, and says that it is there.
//!
//! A proposal is a transaction that writes the next view if the one that it follows is still there. One that loses brings what is
//! there instead. A transaction whose answer is lost may be tried again: it finds its own view in force.
//!
//! While etcd does not answer nothing is decided. The members go on: a primary with its backups serves; it stops only if a backup
//! falls silent, until etcd agrees to leave it out.

use farside_fabric::host::HostClock;
use farside_fabric::mirror::View;
use tokio::sync::mpsc;

use crate::client::{Client, EtcdError, Watch};
use crate::enter::{Candidate, EnterError, Found};
use crate::keys::{Registration, RoleOfView, Stored, member_key, view_key};
use crate::wire::{self, Change, Entry, Swap};

/// For how long a member that has gone is shown, in seconds.
const TTL_S: u64 = 6;
/// How often etcd is told that the member is there.
const BEAT_NS: u64 = TTL_S * 1_000_000_000 / 3;
const BACKOFF_NS_MIN: u64 = 50_000_000;
const BACKOFF_NS_MAX: u64 = 1_000_000_000;

/// How long to wait before etcd is asked again.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    waited_ns: u64,
}

impl Backoff {
    pub(crate) fn is_first(&self) -> bool {
        self.waited_ns == 0
    }

    pub(crate) fn next_ns(&mut self) -> u64 {
        self.waited_ns = (self.waited_ns * 2).clamp(BACKOFF_NS_MIN, BACKOFF_NS_MAX);
        self.waited_ns
    }
}

/// What etcd says that a member cannot act on; each is said once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trouble {
    Gone,
    Strange,
    Behind,
}

/// What to do about a proposal.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Verdict {
    /// It has lost already, or is in force already: say what is.
    Known,
    /// It follows the view that was written at this revision.
    Ask(u64),
    /// It follows a view that is not known here yet.
    Behind,
}

/// Asks etcd on behalf of a member, and tells it what is decided.
#[derive(Debug)]
pub struct Asker {
    candidate: Candidate,
    client: Client,
    current: Option<Found>,
    proposed: mpsc::UnboundedReceiver<View>,
    deciding: mpsc::UnboundedSender<View>,
    backoff: Backoff,
    trouble: Option<Trouble>,
}

/// Why a session with etcd has ended.
enum End {
    Etcd(EtcdError),
    Enter(EnterError),
    /// The server is gone.
    Over,
}

impl From<EtcdError> for End {
    fn from(error: EtcdError) -> Self {
        Self::Etcd(error)
    }
}

impl From<EnterError> for End {
    fn from(error: EnterError) -> Self {
        Self::Enter(error)
    }
}

/// What has happened.
enum News {
    Changes(Vec<Change>),
    Proposal(Option<View>),
    Beat,
}

impl Asker {
    pub(crate) fn new(
        candidate: Candidate,
        client: Client,
        found: Option<Found>,
        proposed: mpsc::UnboundedReceiver<View>,
        deciding: mpsc::UnboundedSender<View>,
    ) -> Self {
        let asker = Self {
            candidate,
            client,
            current: found,
            proposed,
            deciding,
            backoff: Backoff::default(),
            trouble: None,
        };
        asker.tell();
        asker
    }

    /// Runs for as long as the server does; ends only if the node must not be a member.
    ///
    /// # Errors
    /// [`EnterError`], for a standby that must not join what it has waited for.
    pub async fn run(mut self) -> Result<(), EnterError> {
        loop {
            let error = match self.session().await {
                End::Over => return Ok(()),
                End::Enter(error) => return Err(error),
                End::Etcd(error) => error,
            };
            if self.backoff.is_first() {
                tracing::warn!("{error}: the node goes on, but nobody can take over or join until etcd is back");
            }
            HostClock.sleep(self.backoff.next_ns()).await;
        }
    }

    fn is_back(&mut self) {
        if !self.backoff.is_first() {
            tracing::warn!("etcd at {} answers again", self.client.endpoint());
            self.backoff = Backoff::default();
        }
    }

    /// Until etcd fails.
    async fn session(&mut self) -> End {
        match self.converse().await {
            Ok(()) => End::Over,
            Err(end) => end,
        }
    }

    async fn converse(&mut self) -> Result<(), End> {
        let revision = self.refresh().await?;
        let mut watch = self.watch(revision).await?;
        let mut lease = self.register().await?;
        let mut role = self.role();
        self.is_back();
        let mut beat_ns = HostClock.now_ns() + BEAT_NS;
        loop {
            let left_ns = beat_ns.saturating_sub(HostClock.now_ns());
            let news = tokio::select! {
                biased;
                changes = watch.next() => match changes {
                    Ok(changes) => News::Changes(changes),
                    Err(_) => {
                        // Another member of etcd may be there; if none is, that is said. Not at once: one that ends
                        // every watch would keep this thread busy.
                        HostClock.sleep(BACKOFF_NS_MIN).await;
                        self.client.skip();
                        let revision = self.refresh().await?;
                        watch = self.watch(revision).await?;
                        continue;
                    }
                },
                view = self.proposed.recv() => News::Proposal(view),
                () = HostClock.sleep(left_ns) => News::Beat,
            };
            match news {
                News::Changes(changes) => {
                    for change in changes {
                        match change {
                            // What was asked for meanwhile has told of later ones.
                            Change::Put(entry) if self.knows(entry.revision) => {}
                            Change::Put(entry) => self.hear(&entry)?,
                            Change::Delete(_) => self.warn(Trouble::Gone),
                        }
                    }
                }
                News::Proposal(None) => return Ok(()),
                News::Proposal(Some(view)) => {
                    let mut newest = view;
                    // A member asks again and again; what it asks for last counts.
                    while let Ok(view) = self.proposed.try_recv() {
                        newest = view;
                    }
                    self.propose(newest).await?;
                }
                News::Beat => {
                    let request = wire::keep_alive(lease);
                    let lives = self
                        .client
                        .ask("/v3/lease/keepalive", &request, wire::read_keep_alive)
                        .await?;
                    if !lives {
                        lease = self.register().await?;
                    }
                    beat_ns = HostClock.now_ns() + BEAT_NS;
                }
            }
            if self.role() != role {
                role = self.role();
                self.put_registration(lease).await?;
            }
            if self.client.endpoint() != watch.endpoint() {
                // The one that is watched through has not answered: it may not hear anything either.
                let revision = self.refresh().await?;
                watch = self.watch(revision).await?;
            }
        }
    }

    fn key(&self) -> String {
        view_key(&self.candidate.cluster, self.candidate.node)
    }

    async fn watch(&self, revision: u64) -> Result<Watch, EtcdError> {
        let watch = self.client.watch(&self.key(), revision + 1).await;
        if watch.is_err() {
            self.client.skip();
        }
        watch
    }

    /// Reads the view; returns the revision at which it was read.
    async fn refresh(&mut self) -> Result<u64, End> {
        let request = wire::range(&self.key());
        let range = self.client.ask("/v3/kv/range", &request, wire::read_range).await?;
        match range.entries.first() {
            Some(entry) => self.hear(entry)?,
            None if self.current.is_some() => self.warn(Trouble::Gone),
            None => {}
        }
        Ok(range.revision)
    }

    fn knows(&self, revision: u64) -> bool {
        self.current.as_ref().is_some_and(|(_, known)| *known >= revision)
    }

    /// Takes in what is in etcd.
    fn hear(&mut self, entry: &Entry) -> Result<(), EnterError> {
        let Some((current, _)) = &self.current else {
            self.current = Some(self.candidate.check_first(entry)?);
            self.tell();
            return Ok(());
        };
        match Stored::decode(&entry.value) {
            Some(stored) if stored.group == current.group && stored.view.epoch >= current.view.epoch => {
                self.trouble = None;
                self.current = Some((stored, entry.revision));
                self.tell();
            }
            Some(stored) if stored.group == current.group => self.warn(Trouble::Behind),
            _ => self.warn(Trouble::Strange),
        }
        Ok(())
    }

    fn warn(&mut self, trouble: Trouble) {
        if self.trouble.replace(trouble) == Some(trouble) {
            return;
        }
        let key = self.key();
        let etcd = self.candidate.cluster.etcd();
        let what = match trouble {
            Trouble::Gone => "is gone",
            Trouble::Strange => "is the view of another group",
            Trouble::Behind => "is older than it was",
        };
        tracing::error!(
            "{key} in etcd at {etcd} {what}: nobody can take over or join until etcd has the newest data again"
        );
    }

    /// Tells the member what is in force.
    fn tell(&self) {
        if let Some((current, _)) = &self.current {
            // If nobody listens, the server is at its end.
            let _ = self.deciding.send(current.view.clone());
        }
    }

    async fn propose(&mut self, view: View) -> Result<(), End> {
        if judge(self.current.as_ref(), &view) == Verdict::Behind {
            self.refresh().await?;
        }
        let Verdict::Ask(revision) = judge(self.current.as_ref(), &view) else {
            self.tell();
            return Ok(());
        };
        let Some((current, _)) = &self.current else {
            return Ok(());
        };
        let next = Stored {
            view,
            group: current.group,
        };
        let request = wire::swap(&self.key(), revision, &next.encode());
        match self.client.ask("/v3/kv/txn", &request, wire::read_swap).await? {
            Swap::Done(revision) => {
                self.current = Some((next, revision));
                self.tell();
            }
            Swap::Lost(Some(entry)) => self.hear(&entry)?,
            Swap::Lost(None) => self.warn(Trouble::Gone),
        }
        Ok(())
    }

    fn role(&self) -> RoleOfView {
        let view = self.current.as_ref().map(|(current, _)| &current.view);
        RoleOfView::of(view, self.candidate.member.segment)
    }

    /// Says that the member is there, under a new lease.
    async fn register(&self) -> Result<u64, EtcdError> {
        let grant = wire::grant(TTL_S);
        let lease = self.client.ask("/v3/lease/grant", &grant, wire::read_grant).await?;
        self.put_registration(lease).await?;
        Ok(lease)
    }

    async fn put_registration(&self, lease: u64) -> Result<(), EtcdError> {
        let Candidate {
            cluster, node, member, ..
        } = &self.candidate;
        let registration = Registration {
            address: member.address.clone(),
            role: self.role(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let value = serde_json::to_vec(&registration).expect("text");
        let request = wire::put(&member_key(cluster, *node, member.segment), &value, lease);
        self.client.ask("/v3/kv/put", &request, |_| Ok(())).await
    }
}

/// What to do about a proposal, as far as is known.
fn judge(current: Option<&Found>, proposal: &View) -> Verdict {
    match current {
        Some((stored, _)) if proposal.epoch <= stored.view.epoch => Verdict::Known,
        Some((stored, revision)) if proposal.epoch == stored.view.epoch + 1 => Verdict::Ask(*revision),
        _ => Verdict::Behind,
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use farside_fabric::mirror::{MemberId, Peer};

    use super::*;

    fn peer(id: u64) -> Peer {
        Peer {
            id: MemberId(id),
            segment: id,
            address: format!("host{id}:7380"),
        }
    }

    fn view(epoch: u64, primary: u64) -> View {
        View {
            epoch,
            primary: peer(primary),
            backups: Vec::new(),
        }
    }

    fn entry(epoch: u64, primary: u64, group: u64, revision: u64) -> Entry {
        Entry {
            key: "/farside/main/nodes/0/view".to_owned(),
            value: Stored {
                view: view(epoch, primary),
                group,
            }
            .encode(),
            revision,
        }
    }

    fn asker() -> (Asker, mpsc::UnboundedReceiver<View>) {
        let (_, proposed) = mpsc::unbounded_channel();
        let (deciding, decisions) = mpsc::unbounded_channel();
        let candidate = Candidate {
            cluster: "etcd:127.0.0.1:1/main".parse().expect("a name"),
            node: 0,
            member: peer(1),
            is_standby: false,
            is_new: false,
            segment: PathBuf::new(),
            lineage: PathBuf::new(),
            known: None,
        };
        let found = Stored {
            view: view(3, 1),
            group: 7,
        };
        let client = Client::new(candidate.cluster.endpoints.clone());
        (
            Asker::new(candidate, client, Some((found, 20)), proposed, deciding),
            decisions,
        )
    }

    #[test]
    fn only_the_next_epoch_is_asked_for() {
        let found = (
            Stored {
                view: view(3, 1),
                group: 7,
            },
            20,
        );
        assert_eq!(judge(Some(&found), &view(4, 2)), Verdict::Ask(20));
        assert_eq!(judge(Some(&found), &view(3, 2)), Verdict::Known);
        assert_eq!(judge(Some(&found), &view(1, 2)), Verdict::Known);
        assert_eq!(judge(Some(&found), &view(5, 2)), Verdict::Behind);
        assert_eq!(judge(None, &view(1, 2)), Verdict::Behind);
    }

    #[test]
    fn a_proposal_that_loses_brings_what_is_in_force() {
        let (mut asker, mut decisions) = asker();
        assert_eq!(decisions.try_recv().expect("at the beginning"), view(3, 1));
        // Somebody else has written epoch 4 when this member's epoch 4 comes.
        let there = entry(4, 2, 7, 21);
        asker.hear(&there).expect("of the same group");
        assert_eq!(decisions.try_recv().expect("what won"), view(4, 2));
        assert_eq!(judge(asker.current.as_ref(), &view(4, 1)), Verdict::Known);
        assert_eq!(judge(asker.current.as_ref(), &view(5, 1)), Verdict::Ask(21));
    }

    #[test]
    fn a_proposal_that_is_old_is_answered_without_etcd() {
        let (mut asker, mut decisions) = asker();
        decisions.try_recv().expect("at the beginning");
        // Nobody listens at the address of this etcd: were it asked, there would be an error.
        let proposed = farside_fabric::host::on_this_thread(asker.propose(view(3, 9))).expect("a loop");
        assert!(proposed.is_ok(), "it is known that it loses");
        assert_eq!(decisions.try_recv().expect("what is in force"), view(3, 1));
    }

    #[test]
    fn views_of_other_groups_and_older_ones_are_not_passed_on() {
        let (mut asker, mut decisions) = asker();
        decisions.try_recv().expect("at the beginning");
        for strange in [entry(9, 2, 8, 30), entry(2, 2, 7, 31)] {
            asker.hear(&strange).expect("it is only said");
            decisions.try_recv().expect_err("it is not for this member");
        }
        assert_eq!(asker.current.as_ref().map(|(stored, _)| stored.view.epoch), Some(3));
    }

    #[test]
    fn waiting_grows_up_to_a_bound() {
        let mut backoff = Backoff::default();
        assert!(backoff.is_first());
        let waits: Vec<_> = core::iter::repeat_with(|| backoff.next_ns()).take(7).collect();
        assert_eq!(waits[..2], [BACKOFF_NS_MIN, 2 * BACKOFF_NS_MIN]);
        assert_eq!(waits[6], BACKOFF_NS_MAX);
    }
}
