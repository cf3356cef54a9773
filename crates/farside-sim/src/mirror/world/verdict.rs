//! What is right at the end.

use super::*;

impl World {
    pub(super) fn judge(mut self) -> Result<Report, String> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let Some(leader) = (0..MACHINES).find(|&at| self.role(at) == Some(RoleName::Primary)) else {
            return Err(format!(
                "nobody is primary at the end; the view is {:?}",
                self.membership.newest()
            ));
        };
        let now_ns = self.machines[leader].clock(self.now_ns);
        if self.member(leader).released(now_ns).is_none() {
            return Err("the primary may not answer at the end".to_owned());
        }
        let backups: Vec<usize> = (0..MACHINES)
            .filter(|&at| self.role(at) == Some(RoleName::Backup))
            .collect();
        if backups.len() + 1 < MACHINES {
            return Err(format!(
                "there are {} backups at the end: {:?}",
                backups.len(),
                self.membership.newest()
            ));
        }
        let last_start = FAULTS_UNTIL_NS + (END_NS - FAULTS_UNTIL_NS) / 2;
        if !self
            .history
            .iter()
            .any(|operation| operation.end.is_some() && operation.start_ns > last_start)
        {
            return Err(format!("nothing is answered any more at the end by {:?}", self.clients));
        }
        self.compare(leader, &backups)?;
        for client in 0..self.clients.len() {
            self.leave_open(client);
        }
        self.letters()?;
        // The operations' history, sorted as they began.
        let mut history = core::mem::take(&mut self.history);
        history.sort_by_key(|operation| operation.start_ns);
        linearizability::check(&history, &BTreeMap::new()).map_err(|violation| violation.to_string())?;
        Ok(self.report)
    }

    fn role(&self, machine: usize) -> Option<RoleName> {
        let process = self.machines[machine].process.as_ref()?;
        Some(process.member.standing().role)
    }

    /// Backups that have applied everything have the same memory. (The others have a little less.)
    fn compare(&mut self, leader: usize, backups: &[usize]) -> Result<(), String> {
        // Nothing new comes; what is under way arrives.
        self.events.clear();
        let last = self.member(leader).last();
        for _ in 0..1000 {
            self.carry_out(leader);
            let mut notes: Vec<_> = core::mem::take(&mut self.bodies).into_iter().collect();
            if notes.is_empty() {
                break;
            }
            notes.sort_by_key(|(order, _)| *order);
            for (_, event) in notes {
                if matches!(event, Event::Note { .. }) && !self.waits(&event) {
                    self.happen(event);
                }
            }
        }
        let mut of_leader = vec![0; MEMORY_BYTES as usize];
        let mut of_backup = of_leader.clone();
        self.machines[leader].memory.read(0, &mut of_leader);
        for &backup in backups {
            let applied = self.member(backup).last();
            if applied != last {
                return Err(format!("machine {backup} has {applied} of {last} entries at the end"));
            }
            self.machines[backup].memory.read(0, &mut of_backup);
            if let Some(at) = of_leader.iter().zip(&of_backup).position(|(one, other)| one != other) {
                return Err(format!("byte {at} of a backup differs at the end"));
            }
        }
        Ok(())
    }

    /// No message is missing that was acknowledged and whose receiver goes on, except those still on their way.
    fn letters(&self) -> Result<(), String> {
        for (&(from, to), &number) in &self.delivered {
            let Some(receiver) = self.clients.iter().find(|client| client.id == Some(to)) else {
                continue;
            };
            let came = receiver.received.get(&from).copied().unwrap_or(0);
            // The last ones may be under way.
            if came + 8 < number {
                return Err(format!("{to} has {came} of {number} messages of {from} at the end"));
            }
        }
        Ok(())
    }
}
