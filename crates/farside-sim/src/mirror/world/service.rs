//! Clients' frames: the node's side, and the client's.

use super::*;

impl World {
    /// A frame has come to a machine.
    pub(super) fn serve(&mut self, client: usize, machine: usize, link: u64, frame: Frame) {
        if client != READER && self.isolated.contains(&machine) {
            if let Some(process) = &mut self.machines[machine].process {
                // Nothing comes over this connection behind what was lost.
                process.sessions.retain(|session| session.link != link);
            }
            self.at(1, Event::ClientLost { client, link });
            return;
        }
        let process = self.machines[machine].process.as_ref();
        let is_hello = matches!(frame, Frame::Hello { .. });
        let is_known = process.is_some_and(|process| process.sessions.iter().any(|session| session.link == link));
        if process.is_none() || !is_hello && !is_known {
            self.at(1, Event::ClientLost { client, link });
            return;
        }
        let answered = match frame {
            Frame::Hello {
                id,
                group,
                answered,
                taken,
            } => self.greet(client, machine, link, id, group, answered, taken),
            Frame::Request { pending, answered } => self.execute(machine, link, &pending, answered),
            Frame::Taken { taken } => self.take(machine, link, taken),
        };
        if let Err(refusal) = answered {
            self.refuse(client, machine, link, refusal);
        }
        self.carry_out(machine);
    }

    fn refuse(&mut self, client: usize, machine: usize, link: u64, refusal: Refusal) {
        let process = self.machines[machine].process.as_mut().expect("it runs");
        process.sessions.retain(|session| session.link != link);
        let delay_ns = self.arrival(link, MACHINES, LEASE_NS / 200);
        let frame = Reply::Refused { refusal };
        self.at(delay_ns, Event::ToClient { client, link, frame });
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a hello")]
    fn greet(
        &mut self,
        client: usize,
        machine: usize,
        link: u64,
        id: Option<EndpointId>,
        group: u64,
        answered: u32,
        taken: u64,
    ) -> Result<(), Refusal> {
        let process = self.machines[machine].process.as_mut().expect("it runs");
        let member = &mut process.member;
        let (id, hold) = match id {
            None => {
                let executed = member.admit(None)?;
                (executed.answer, executed.hold)
            }
            Some(_) if member.is_primary() && member.group() != group => return Err(Refusal::Stranger),
            Some(id) => (id, member.resume(id, answered, taken)?.hold),
        };
        let welcome = Reply::Welcome {
            id,
            group: member.group(),
        };
        process.sessions.retain(|session| session.id != id);
        process.sessions.push(Session {
            client,
            link,
            id,
            pushed: taken,
            held: VecDeque::from([(hold, welcome)]),
        });
        Ok(())
    }

    fn take(&mut self, machine: usize, link: u64, taken: u64) -> Result<(), Refusal> {
        let process = self.machines[machine].process.as_mut().expect("it runs");
        let Some(session) = process.sessions.iter().find(|session| session.link == link) else {
            return Ok(());
        };
        process.member.took(session.id, taken)?;
        Ok(())
    }

    fn execute(&mut self, machine: usize, link: u64, pending: &Pending, answered: u32) -> Result<(), Refusal> {
        let process = self.machines[machine].process.as_mut().expect("it runs");
        let Some(session) = process.sessions.iter_mut().find(|session| session.link == link) else {
            return Ok(());
        };
        let (id, request) = (session.id, pending.request);
        let member = &mut process.member;
        let mut bytes = Vec::new();
        let hold = match pending.ask {
            Ask::Send { .. } => {
                let (to, number) = pending.message.expect("decided when it was asked");
                let message = Message::try_from(&number.to_le_bytes()[..]).expect("short");
                let sent = member.send(id, request, answered, to, &message)?;
                bytes.push(sent.answer as u8);
                sent.hold
            }
            Ask::Fence { .. } => {
                let (victim, _) = pending.message.expect("decided when it was asked");
                member.fence(id, request, answered, victim)?.hold
            }
            _ => {
                let (verbs, mut body) = verbs_of(pending.ask);
                member
                    .execute(id, request, answered, &verbs, &mut body, &mut bytes)?
                    .hold
            }
        };
        session.held.push_back((hold, Reply::Answer { request, bytes }));
        if let Ask::Fence { .. } = pending.ask {
            let (victim, _) = pending.message.expect("decided when it was asked");
            let cut_off = process.sessions.iter().find(|session| session.id == victim);
            if let Some((client, link)) = cut_off.map(|session| (session.client, session.link)) {
                self.refuse(client, machine, link, Refusal::Fenced);
            }
        }
        Ok(())
    }

    pub(super) fn client_turn(&mut self, client: usize) {
        if self.clients[client].is_dead {
            return;
        }
        match self.clients[client].connection {
            Connection::None => self.greet_next(client),
            Connection::Greeting { .. } => {}
            Connection::Open { server, link } => {
                let patience_ns = LEASE_NS + self.below(8 * LEASE_NS);
                let of = &mut self.clients[client];
                if of
                    .pending
                    .front()
                    .is_some_and(|oldest| self.now_ns > oldest.start_ns + patience_ns)
                    && self.now_ns > of.opened_ns + patience_ns
                {
                    // As good as dead: somebody else may be primary.
                    of.connection = Connection::None;
                    self.at(1, Event::ClientTurn { client });
                    return;
                }
                for thread in 0..THREADS as u32 {
                    if !self.clients[client].busy[thread as usize] && self.one_in(2) {
                        self.ask(client, thread, server, link);
                    }
                }
            }
        }
        let delay_ns = self.below(TICK_NS / 2);
        self.at(delay_ns, Event::ClientTurn { client });
    }

    fn greet_next(&mut self, client: usize) {
        let link = self.next_link;
        self.next_link += 1;
        let of = &mut self.clients[client];
        let server = of.next_server % MACHINES;
        of.next_server += 1;
        of.connection = Connection::Greeting { server, link };
        let frame = Frame::Hello {
            id: of.id,
            group: of.group,
            answered: of.answered(),
            taken: of.taken,
        };
        self.post(client, server, link, frame);
        // A node that never answers is given up.
        self.at(
            LEASE_NS * 2,
            Event::ClientLost {
                client,
                link: link | GREETING,
            },
        );
    }

    fn post(&mut self, client: usize, machine: usize, link: u64, frame: Frame) {
        let latency_ns = LEASE_NS / 400 + self.below(LEASE_NS / 200);
        let delay_ns = self.arrival(link, machine, latency_ns);
        let event = Event::ToServer {
            client,
            machine,
            link,
            frame,
        };
        self.at(delay_ns, event);
    }

    fn ask(&mut self, client: usize, thread: u32, server: usize, link: u64) {
        let value = self.next_value;
        let key = KEYS[self.below(KEYS.len() as u64) as usize];
        let ask = match self.below(28) {
            // Only somebody who writes nothing can see for long what was true.
            0..24 if client == READER => Ask::Word { key, call: Call::Get },
            0..6 => Ask::Word { key, call: Call::Get },
            6..9 => Ask::Word {
                key,
                call: Call::Put(value),
            },
            9..14 => Ask::Word {
                key,
                call: Call::Add(value << 20),
            },
            14 => Ask::Word {
                key,
                call: Call::Insert(value),
            },
            15 => Ask::Word { key, call: Call::Take },
            16 | 17 => Ask::Twice { key, value },
            18 | 19 => Ask::WritePair { value },
            20 => Ask::ReadPair,
            21..27 => Ask::Send {
                to: self.below(self.clients.len() as u64) as usize,
            },
            _ if self.one_in(8) => Ask::Fence {
                victim: self.below(self.clients.len() as u64) as usize,
            },
            _ => Ask::ReadPair,
        };
        self.next_value += 1;
        let start_ns = self.now_ns;
        let message = match ask {
            Ask::Send { to } => {
                let Some(peer) = self.clients[to]
                    .id
                    .filter(|_| to != client && !self.clients[to].is_dead)
                else {
                    return;
                };
                let number = self.clients[client].sent.entry(peer).or_default();
                *number += 1;
                Some((peer, *number))
            }
            Ask::Fence { victim } => {
                let Some(peer) = self.clients[victim]
                    .id
                    .filter(|_| victim != client && !self.clients[victim].is_dead)
                else {
                    return;
                };
                Some((peer, 0))
            }
            _ => None,
        };
        let of = &mut self.clients[client];
        let request = of.next_request;
        of.next_request = of.next_request.wrapping_add(1);
        of.busy[thread as usize] = true;
        let pending = Pending {
            request,
            ask,
            thread,
            start_ns,
            message,
        };
        of.pending.push_back(pending.clone());
        let answered = of.answered();
        self.post(client, server, link, Frame::Request { pending, answered });
    }

    /// The client has no connection any more, or gives up waiting for a welcome.
    pub(super) fn client_lost(&mut self, client: usize, link: u64) {
        let is_greeting = link & GREETING != 0;
        let link = link & !GREETING;
        let of = &mut self.clients[client];
        let is_current = match of.connection {
            Connection::None => false,
            Connection::Greeting { link: current, .. } => current == link,
            Connection::Open { link: current, .. } => current == link && !is_greeting,
        };
        if is_current {
            of.connection = Connection::None;
        }
    }

    pub(super) fn client_hears(&mut self, client: usize, link: u64, frame: Reply) {
        let connection = self.clients[client].connection;
        let (server, is_open) = match connection {
            Connection::Greeting { server, link: current } if current == link => (server, false),
            Connection::Open { server, link: current } if current == link => (server, true),
            _ => return,
        };
        if self.clients[client].is_dead {
            return;
        }
        match frame {
            Reply::Welcome { id, group } => {
                let of = &mut self.clients[client];
                of.id = Some(id);
                of.group = group;
                of.connection = Connection::Open { server, link };
                of.opened_ns = self.now_ns;
                let again: Vec<Pending> = of.pending.iter().cloned().collect();
                let answered = of.answered();
                self.report.resent += again.len() as u64;
                for pending in again {
                    self.post(client, server, link, Frame::Request { pending, answered });
                }
            }
            Reply::Refused {
                refusal: Refusal::NotPrimary,
            } => {
                self.clients[client].connection = Connection::None;
            }
            Reply::Refused { .. } => self.begin_anew(client),
            Reply::Answer { request, bytes } if is_open => self.answered(client, request, &bytes),
            Reply::Letter { from, number } if is_open => {
                self.report.messages += 1;
                let of = &mut self.clients[client];
                of.taken += 1;
                let taken = of.taken;
                let last = of.received.entry(from).or_default();
                let (before, name) = (*last, of.name);
                *last = number;
                if number != before + 1 {
                    self.fail(format!("client {name} got message {number} of {from} after {before}"));
                }
                if self.one_in(3) {
                    self.post(client, server, link, Frame::Taken { taken });
                }
            }
            Reply::Answer { .. } | Reply::Letter { .. } => {}
        }
    }

    fn answered(&mut self, client: usize, request: u32, bytes: &[u8]) {
        let of = &mut self.clients[client];
        let Some(pending) = of.pending.pop_front() else {
            self.fail("an answer nobody asked for".to_owned());
            return;
        };
        if pending.request != request {
            let name = of.name;
            self.fail(format!(
                "client {name} got answer {request} instead of {}",
                pending.request
            ));
            return;
        }
        of.busy[pending.thread as usize] = false;
        self.report.answers += 1;
        let id = self.clients[client].id.expect("it is known");
        if let Some(&fenced_ns) = self.fenced.get(&id)
            && pending.start_ns > fenced_ns
        {
            self.fail(format!(
                "{id} was cut off at {fenced_ns} ns and got an answer to what it asked at {} ns",
                pending.start_ns
            ));
        }
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("a word"));
        match pending.ask {
            Ask::Word { key, call } => {
                let answer = match call {
                    Call::Get | Call::Take => Answer::Value(Some(word(0)).filter(|&word| word != 0)),
                    Call::Add(add) => Answer::Sum(word(0).wrapping_add(add)),
                    Call::Insert(_) => Answer::Happened(word(0) == 0),
                    _ => Answer::Done,
                };
                self.record(client, &pending, key, call, Some(answer));
            }
            Ask::Twice { key, value } => self.record(client, &pending, key, Call::Put(value), Some(Answer::Done)),
            Ask::WritePair { .. } => {}
            Ask::ReadPair => {
                let (first, second) = (word(0), word(8));
                if first != second {
                    self.fail(format!("a pair that is written together reads {first} and {second}"));
                }
            }
            Ask::Send { .. } => {
                let (peer, number) = pending.message.expect("decided when it was asked");
                if bytes[0] == Status::Done as u8 {
                    self.delivered.insert((id, peer), number);
                }
            }
            Ask::Fence { .. } => {
                let (victim, _) = pending.message.expect("decided when it was asked");
                let now_ns = self.now_ns;
                self.fenced.entry(victim).or_insert(now_ns);
                self.report.fences += 1;
            }
        }
    }

    fn record(&mut self, client: usize, pending: &Pending, key: u64, call: Call, answer: Option<Answer>) {
        self.history.push(Operation {
            client: self.clients[client].thread_name(pending.thread),
            key,
            call,
            start_ns: pending.start_ns,
            end: answer.map(|answer| (self.now_ns, answer)),
        });
    }

    /// What the client has asked may have happened or not.
    pub(super) fn leave_open(&mut self, client: usize) {
        for pending in core::mem::take(&mut self.clients[client].pending) {
            match pending.ask {
                Ask::Word { key, call } => self.record(client, &pending, key, call, None),
                Ask::Twice { key, value } => self.record(client, &pending, key, Call::Put(value), None),
                _ => {}
            }
        }
    }

    /// The group does not know the client: another takes its place.
    fn begin_anew(&mut self, client: usize) {
        self.leave_open(client);
        let name = self.clients.len() + self.next_value as usize;
        self.next_value += 1;
        let next_server = self.clients[client].next_server;
        self.clients[client] = Client {
            next_server,
            ..Client::new(name, THREADS)
        };
    }

    pub(super) fn crash_client(&mut self, client: usize) {
        if let Connection::Open { server, link } = self.clients[client].connection
            && let Some(process) = &mut self.machines[server].process
        {
            process.sessions.retain(|session| session.link != link);
        }
        self.begin_anew(client);
    }
}

/// The client that mostly reads, and that reaches machines that nobody else reaches.
const READER: usize = 0;
/// Tells a wait for a welcome from one for answers.
const GREETING: u64 = 1 << 63;

/// The verbs of what is asked, and the bytes that they write.
fn verbs_of(ask: Ask) -> (Vec<Verb>, Vec<u8>) {
    let at = |offset: u64| RemoteAddr::new(NodeId::new(0), offset);
    let mut body = Vec::new();
    let verbs = match ask {
        Ask::Word { key, call } => vec![match call {
            Call::Put(value) => Verb::WriteWord { target: at(key), value },
            Call::Add(add) => Verb::FetchAdd { target: at(key), add },
            Call::Insert(swap) => Verb::CompareSwap {
                target: at(key),
                compare: 0,
                swap,
            },
            Call::Take => Verb::MaskedCompareSwap {
                target: at(key),
                operands: MaskedCas {
                    compare: 0,
                    compare_mask: 0,
                    swap: 0,
                    swap_mask: u64::MAX,
                },
            },
            _ => Verb::ReadWord { source: at(key) },
        }],
        Ask::Twice { key, value } => vec![
            Verb::WriteWord {
                target: at(key),
                value: value | 1 << 62,
            },
            Verb::WriteWord { target: at(key), value },
        ],
        Ask::WritePair { value } => {
            body.extend_from_slice(&value.to_le_bytes());
            vec![
                Verb::Write {
                    source: Slice::first(8),
                    target: at(PAIR[0]),
                },
                Verb::WriteWord {
                    target: at(PAIR[1]),
                    value,
                },
            ]
        }
        Ask::ReadPair => vec![
            Verb::ReadWord { source: at(PAIR[0]) },
            Verb::Read {
                source: at(PAIR[1]),
                target: Slice::new(8, 8),
            },
        ],
        Ask::Send { .. } | Ask::Fence { .. } => unreachable!("no verbs"),
    };
    (verbs, body)
}
