//! One direction of a port of the network: bytes take time, one message after the other.
//!
//! On the path: a request passes the compute node's sending port and the memory node's receiving
//! port, its reply the other two. A message costs its payload and the headers of its packets.
//!
//! Cut-through: the receiving port takes the bytes while the sending port still emits them, so an
//! idle receiver adds nothing; a busy one delays the message by what it has to take before.

/// Bytes that each packet of RoCE v2 occupies on the wire beside its payload: Ethernet header and
/// checksum (18), preamble and gap (20), IPv4 (20), UDP (8), base transport header (12), invariant
/// checksum (4). The extended headers (address, operands, acknowledgement) count as payload of the
/// verbs that carry them.
pub const PACKET_HEADER_BYTES: u64 = 82;
/// Payload of one packet: the largest RDMA MTU within an Ethernet frame of 1500 bytes.
pub const PACKET_PAYLOAD_BYTES: u64 = 1024;

/// Bytes on the wire of a message with this payload; a message without payload is one packet.
#[inline]
pub(super) fn wire_bytes(payload: u64) -> u64 {
    if payload <= PACKET_PAYLOAD_BYTES {
        payload + PACKET_HEADER_BYTES
    } else {
        payload + payload.div_ceil(PACKET_PAYLOAD_BYTES) * PACKET_HEADER_BYTES
    }
}

/// A port. Its own time is in picoseconds, so that the bandwidth of short messages is not rounded;
/// events are in whole nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Port {
    picoseconds_per_byte: u64,
    busy_until_ps: u64,
}

impl Port {
    /// A port of this many bytes per microsecond (12 500 are 100 Gbit/s).
    pub(super) fn new(bytes_per_us: u64) -> Self {
        Self {
            picoseconds_per_byte: (1_000_000 / bytes_per_us.max(1)).max(1),
            busy_until_ps: 0,
        }
    }

    /// At least a nanosecond, the step of events: so of two messages that a port delays, the second is
    /// always the later one, and a queue pair keeps its order.
    #[inline]
    fn duration_ps(&self, bytes: u64) -> u64 {
        (bytes * self.picoseconds_per_byte).max(1000)
    }

    /// Sends a message that is ready at `ready_ns`; returns when its last byte has left. Callers
    /// come in the order of `ready_ns`.
    #[inline]
    pub(super) fn transmit(&mut self, ready_ns: u64, bytes: u64) -> u64 {
        let start = self.busy_until_ps.max(ready_ns * 1000);
        self.busy_until_ps = start + self.duration_ps(bytes);
        self.busy_until_ps.div_ceil(1000)
    }

    /// Sends an acknowledgement, which a NIC puts before what is not ready yet: it takes bandwidth
    /// from later messages and waits for none.
    #[inline]
    pub(super) fn acknowledge(&mut self, ready_ns: u64, bytes: u64) -> u64 {
        let duration = self.duration_ps(bytes);
        self.busy_until_ps = self.busy_until_ps.max(ready_ns * 1000) + duration;
        (ready_ns * 1000 + duration).div_ceil(1000)
    }

    /// Takes a message whose last byte would be here at `due_ns` if the port were idle; returns
    /// when it is.
    #[inline]
    pub(super) fn receive(&mut self, due_ns: u64, bytes: u64) -> u64 {
        let duration = self.duration_ps(bytes);
        let start = self.busy_until_ps.max((due_ns * 1000).saturating_sub(duration));
        self.busy_until_ps = start + duration;
        self.busy_until_ps.div_ceil(1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saturated_port_keeps_its_bandwidth() {
        let mut port = Port::new(12_500);
        let last = (0..1000).map(|_| port.transmit(0, 90)).last();
        assert_eq!(
            last,
            Some(90 * 1000 * 80 / 1000),
            "90 000 bytes at 12.5 bytes per nanosecond"
        );
    }

    #[test]
    fn an_idle_receiver_adds_nothing_and_a_busy_one_its_backlog() {
        let mut port = Port::new(12_500);
        assert_eq!(port.receive(1000, 1250), 1000);
        assert_eq!(port.receive(1000, 1250), 1100);
        assert_eq!(port.receive(5000, 1250), 5000);
    }

    #[test]
    fn long_messages_pay_for_every_packet() {
        assert_eq!(wire_bytes(0), 82);
        assert_eq!(wire_bytes(1024), 1106);
        assert_eq!(wire_bytes(1025), 1025 + 164);
    }
}
