//! An RDMA device that has been opened: one port of it, one address, and memory that it knows.
//!
//! On the path: opened once per process, when a pool or a node is; afterwards only its memory regions
//! and queue pairs are used. The library may be called from any thread.

use core::ffi::{CStr, c_int};
use core::fmt;
use core::mem::zeroed;
use core::ptr::NonNull;
use std::io;
use std::sync::Arc;

use super::error::RdmaError;
use super::ffi::{self, Gid, Library};
use super::mlx5::Driver;
use crate::buffer::Buffer;
use crate::region::Region;

/// The vendor's number of soft-RoCE, which has no vendor.
const SOFT_ROCE: u32 = 0x00ff_ffff;

/// Which device to use, and how. What is not said is chosen.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct DeviceOptions {
    /// Its name, as `ibv_devices` lists it; the first with an active port if not given.
    pub name: Option<String>,
    /// Its port, counted from 1; the first that is active if not given.
    pub port: Option<u8>,
    /// The entry of the port's address table (GID index). If not given: on Ethernet the first of RoCE v2
    /// with a routable address, on InfiniBand 0.
    pub gid_index: Option<u8>,
    /// The largest packet in bytes; what the port has now if not given.
    pub mtu: Option<u32>,
}

/// What a device and its port are, for reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceFacts {
    /// The device's name.
    pub name: String,
    /// The port in use.
    pub port: u8,
    /// Whether the port is one of InfiniBand; else it is Ethernet (RoCE).
    pub is_infiniband: bool,
    /// The entry of the address table in use.
    pub gid_index: u8,
    /// The address.
    pub gid: std::net::Ipv6Addr,
    /// The largest packet in bytes.
    pub mtu: u32,
    /// The vendor's number.
    pub vendor_id: u32,
    /// How many READs and atomics of one queue pair may be under way at once.
    pub reads_max: u32,
    /// How many queue pairs there may be.
    pub queue_pairs_max: u32,
    /// The version of the device's firmware.
    pub firmware: String,
}

impl DeviceFacts {
    /// One event that says what is used.
    fn log(&self) {
        tracing::info!(
            device = self.name,
            port = self.port,
            gid_index = self.gid_index,
            mtu = self.mtu,
            "using an RDMA device"
        );
    }
}

/// An open device. Closed with the last of what was made of it.
pub struct Device {
    library: &'static Library,
    context: NonNull<ffi::Context>,
    domain: NonNull<ffi::ProtectionDomain>,
    attributes: ffi::DeviceAttributes,
    port_attributes: ffi::PortAttributes,
    facts: DeviceFacts,
    gid: Gid,
    driver: Option<&'static Driver>,
}

// SAFETY: the library's functions on contexts and protection domains may be called from any thread, by its own
// word; nothing else is reached through the two pointers.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// The names of this machine's RDMA devices.
///
/// # Errors
/// [`RdmaError::Library`], [`RdmaError::Disabled`].
pub fn device_names() -> Result<Vec<String>, RdmaError> {
    let list = DeviceList::new(ffi::library()?);
    Ok(list.devices().map(|device| list.name(device)).collect())
}

/// The library's list of devices, freed when dropped.
struct DeviceList {
    library: &'static Library,
    list: *mut *mut ffi::DeviceHandle,
    count: usize,
}

impl DeviceList {
    fn new(library: &'static Library) -> Self {
        let mut count: c_int = 0;
        // SAFETY: the count is ours to be written; a null list means no devices.
        let list = unsafe { (library.get_device_list)(&raw mut count) };
        let count = if list.is_null() { 0 } else { count.max(0) as usize };
        Self { library, list, count }
    }

    fn devices(&self) -> impl Iterator<Item = *mut ffi::DeviceHandle> {
        // SAFETY: the list has that many entries, and lives as long as we do.
        (0..self.count).map(|index| unsafe { *self.list.add(index) })
    }

    fn name(&self, device: *mut ffi::DeviceHandle) -> String {
        // SAFETY: an entry of the list; its name is a string that lives as long as the list.
        let name = unsafe { CStr::from_ptr((self.library.get_device_name)(device)) };
        name.to_string_lossy().into_owned()
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        if !self.list.is_null() {
            // SAFETY: made by the library, freed once; open devices do not need it.
            unsafe { (self.library.free_device_list)(self.list) };
        }
    }
}

/// A context that is closed unless it becomes a [`Device`].
struct OpenContext {
    library: &'static Library,
    name: String,
    context: NonNull<ffi::Context>,
}

impl Drop for OpenContext {
    fn drop(&mut self) {
        // SAFETY: opened by the library and given to nobody.
        unsafe { (self.library.close_device)(self.context.as_ptr()) };
    }
}

impl Device {
    /// Opens a device.
    ///
    /// # Errors
    /// Says what is missing and what would be right.
    pub fn open(options: &DeviceOptions) -> Result<Arc<Self>, RdmaError> {
        let library = ffi::library()?;
        let list = DeviceList::new(library);
        let names: Vec<String> = list.devices().map(|device| list.name(device)).collect();
        if names.is_empty() {
            return Err(RdmaError::NoDevice);
        }
        if let Some(name) = &options.name
            && !names.contains(name)
        {
            return Err(RdmaError::DeviceUnknown {
                name: name.clone(),
                known: names.join(", "),
            });
        }
        let mut failure = RdmaError::NoDevice;
        for device in list.devices() {
            let name = list.name(device);
            if options.name.as_ref().is_some_and(|wanted| *wanted != name) {
                continue;
            }
            match open_context(library, device, name).and_then(|open| Self::set_up(open, options)) {
                Ok(device) => {
                    device.facts.log();
                    return Ok(Arc::new(device));
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    fn set_up(open: OpenContext, options: &DeviceOptions) -> Result<Self, RdmaError> {
        let attributes = open.attributes()?;
        if attributes.atomic_cap == ffi::ATOMIC_NONE {
            return Err(RdmaError::Atomics {
                device: open.name.clone(),
            });
        }
        let (port, port_attributes) = open.pick_port(options.port, attributes.phys_port_cnt)?;
        let (gid_index, gid) = open.pick_gid(port, &port_attributes, options.gid_index)?;
        let mtu = pick_mtu(&open.name, options.mtu, port_attributes.active_mtu)?;
        // SAFETY: the context is open.
        let domain = unsafe { (open.library.alloc_pd)(open.context.as_ptr()) };
        let domain = NonNull::new(domain).ok_or_else(|| open.failed("allocate a protection domain"))?;
        // SAFETY: the firmware's version is a string within its field, which the library has filled.
        let firmware = unsafe { CStr::from_ptr(attributes.fw_ver.as_ptr()) };
        let facts = DeviceFacts {
            name: open.name.clone(),
            port,
            is_infiniband: port_attributes.link_layer == ffi::LINK_INFINIBAND,
            gid_index,
            gid: std::net::Ipv6Addr::from(gid.0),
            mtu: mtu_bytes(mtu),
            vendor_id: attributes.vendor_id,
            reads_max: attributes.max_qp_rd_atom.max(0) as u32,
            queue_pairs_max: attributes.max_qp.max(0) as u32,
            firmware: firmware.to_string_lossy().into_owned(),
        };
        // Closed by us from now on.
        let open = core::mem::ManuallyDrop::new(open);
        Ok(Self {
            library: open.library,
            context: open.context,
            domain,
            attributes,
            port_attributes,
            facts,
            gid,
            // SAFETY: the context is open; its device is set when it is opened.
            driver: Driver::of(unsafe { open.context.as_ref() }.device),
        })
    }

    /// What the device and its port are.
    #[must_use]
    pub fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    pub(super) fn library(&self) -> &'static Library {
        self.library
    }

    pub(super) fn context(&self) -> *mut ffi::Context {
        self.context.as_ptr()
    }

    pub(super) fn domain(&self) -> *mut ffi::ProtectionDomain {
        self.domain.as_ptr()
    }

    /// The functions with which its driver makes queue pairs that take entries, if it does.
    pub(super) fn driver(&self) -> Option<&'static Driver> {
        self.driver
    }

    pub(super) fn gid(&self) -> Gid {
        self.gid
    }

    pub(super) fn lid(&self) -> u16 {
        self.port_attributes.lid
    }

    /// The code of [`DeviceFacts::mtu`].
    pub(super) fn mtu_code(&self) -> u32 {
        self.facts.mtu.trailing_zeros() - 7
    }

    /// How many bytes one READ or WRITE may carry.
    pub(super) fn message_bytes_max(&self) -> u32 {
        self.port_attributes.max_msg_sz
    }

    /// Whether fences can be relied on. Those of soft-RoCE cannot: when a packet is late, it sends everything again that has
    /// not been answered, and a fence among it then waits also for what was sent behind it, or for itself, so that the queue
    /// pair stands still without an error (seen with Linux 6.1).
    pub(super) fn can_fence(&self) -> bool {
        self.facts.vendor_id != SOFT_ROCE
    }

    /// How many READs and atomics one queue pair may have under way, as requester and as responder.
    pub(super) fn reads_at_once(&self) -> (u8, u8) {
        let bounded = |count: c_int| u8::try_from(count.clamp(1, 16)).expect("at most 16");
        (
            bounded(self.attributes.max_qp_init_rd_atom),
            bounded(self.attributes.max_qp_rd_atom),
        )
    }

    /// How many completions one queue holds at most.
    pub(super) fn completions_max(&self) -> u32 {
        self.attributes.max_cqe.max(1) as u32
    }

    /// How many places a shared receive queue has at most.
    pub(super) fn shared_receives_max(&self) -> u32 {
        self.attributes.max_srq_wr.max(1) as u32
    }

    pub(super) fn work_requests_max(&self) -> u32 {
        self.attributes.max_qp_wr.max(1) as u32
    }

    /// What the last call of the library has failed with.
    pub(super) fn failed(&self, action: &'static str) -> RdmaError {
        RdmaError::System {
            device: self.facts.name.clone(),
            action,
            source: io::Error::last_os_error(),
        }
    }

    /// A call of the library that returns an error number.
    pub(super) fn check(&self, action: &'static str, code: c_int) -> Result<(), RdmaError> {
        if code == 0 {
            return Ok(());
        }
        Err(RdmaError::System {
            device: self.facts.name.clone(),
            action,
            source: io::Error::from_raw_os_error(code),
        })
    }

    /// A buffer that the device knows; one that it does not know if that fails, which posting then says.
    #[must_use]
    pub fn buffer(self: &Arc<Self>, bytes: usize) -> Buffer {
        let mut buffer = Buffer::unregistered(bytes);
        if let Err(error) = buffer.memory_mut().register(self) {
            tracing::warn!("a buffer of {bytes} bytes: {error}");
        }
        buffer
    }

    /// Makes the memory of a node known, for verbs of others.
    pub(super) fn register_node(self: &Arc<Self>, region: &Region) -> Result<MemoryRegion, RdmaError> {
        // SAFETY: the region's memory stays mapped as long as the region, which whoever serves it keeps; every access of
        // this process to it is atomic, as to memory that other processes write.
        unsafe { MemoryRegion::for_others(self, region.base(), region.bytes()) }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: all that was made of the device holds it, so nothing is left; each is freed once, in this order.
        unsafe {
            (self.library.dealloc_pd)(self.domain.as_ptr());
            (self.library.close_device)(self.context.as_ptr());
        }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("facts", &self.facts)
            .finish_non_exhaustive()
    }
}

fn open_context(
    library: &'static Library,
    device: *mut ffi::DeviceHandle,
    name: String,
) -> Result<OpenContext, RdmaError> {
    // SAFETY: an entry of the library's list, which is still there.
    let context = unsafe { (library.open_device)(device) };
    match NonNull::new(context) {
        Some(context) => Ok(OpenContext { library, name, context }),
        None => Err(RdmaError::System {
            device: name,
            action: "open the device",
            source: io::Error::last_os_error(),
        }),
    }
}

impl OpenContext {
    fn failed(&self, action: &'static str) -> RdmaError {
        RdmaError::System {
            device: self.name.clone(),
            action,
            source: io::Error::last_os_error(),
        }
    }

    fn attributes(&self) -> Result<ffi::DeviceAttributes, RdmaError> {
        // SAFETY: numbers only, for which zero is a value.
        let mut attributes: ffi::DeviceAttributes = unsafe { zeroed() };
        // SAFETY: an open context, and a place of the right layout.
        let code = unsafe { (self.library.query_device)(self.context.as_ptr(), &raw mut attributes) };
        if code == 0 {
            Ok(attributes)
        } else {
            Err(self.failed("query the device"))
        }
    }

    fn port(&self, port: u8) -> Result<ffi::PortAttributes, RdmaError> {
        // SAFETY: numbers only, for which zero is a value.
        let mut attributes: ffi::PortAttributes = unsafe { zeroed() };
        // SAFETY: an open context, and a place at least as large as what the function writes.
        let code = unsafe { (self.library.query_port)(self.context.as_ptr(), port, &raw mut attributes) };
        if code == 0 {
            Ok(attributes)
        } else {
            Err(self.failed("query a port"))
        }
    }

    fn pick_port(&self, wanted: Option<u8>, count: u8) -> Result<(u8, ffi::PortAttributes), RdmaError> {
        if let Some(port) = wanted {
            return match self.port(port) {
                Ok(attributes) if attributes.state == ffi::PORT_ACTIVE => Ok((port, attributes)),
                _ => Err(RdmaError::PortDown {
                    device: self.name.clone(),
                    port,
                }),
            };
        }
        for port in 1..=count {
            let attributes = self.port(port)?;
            if attributes.state == ffi::PORT_ACTIVE {
                return Ok((port, attributes));
            }
        }
        Err(RdmaError::NoPort {
            device: self.name.clone(),
        })
    }

    fn gid(&self, port: u8, index: u8) -> Option<Gid> {
        let mut gid = Gid([0; 16]);
        // SAFETY: an open context and a place for one address.
        let code = unsafe { (self.library.query_gid)(self.context.as_ptr(), port, index.into(), &raw mut gid) };
        (code == 0 && gid.0 != [0; 16]).then_some(gid)
    }

    fn pick_gid(&self, port: u8, attributes: &ffi::PortAttributes, wanted: Option<u8>) -> Result<(u8, Gid), RdmaError> {
        let missing = |index: String| RdmaError::Gid {
            device: self.name.clone(),
            port,
            index,
        };
        if let Some(index) = wanted {
            let gid = self.gid(port, index).ok_or_else(|| missing(index.to_string()))?;
            return Ok((index, gid));
        }
        let entries: Vec<GidEntry> = (0..attributes.gid_tbl_len.clamp(0, 255) as u8)
            .filter_map(|index| {
                Some(GidEntry {
                    index,
                    gid: self.gid(port, index)?,
                    is_roce_v2: is_roce_v2(&self.name, port, index),
                })
            })
            .collect();
        let is_ethernet = attributes.link_layer == ffi::LINK_ETHERNET;
        let entry = usual_gid(&entries, is_ethernet).ok_or_else(|| missing("of RoCE v2".to_owned()))?;
        Ok((entry.index, entry.gid))
    }
}

/// One entry of a port's address table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct GidEntry {
    index: u8,
    gid: Gid,
    is_roce_v2: bool,
}

/// The entry that nobody has to name: RoCE v2 before all, and an address that is not of one link alone.
fn usual_gid(entries: &[GidEntry], is_ethernet: bool) -> Option<GidEntry> {
    if !is_ethernet {
        return entries.first().copied();
    }
    let is_link_local = |entry: &GidEntry| entry.gid.0[..2] == [0xfe, 0x80];
    let mut version_2 = entries.iter().filter(|entry| entry.is_roce_v2);
    let routable = version_2.clone().find(|entry| !is_link_local(entry));
    routable.or_else(|| version_2.next()).copied()
}

/// What the kernel says of an entry; the library's older releases have no function for it.
fn is_roce_v2(device: &str, port: u8, index: u8) -> bool {
    let path = format!("/sys/class/infiniband/{device}/ports/{port}/gid_attrs/types/{index}");
    std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "RoCE v2")
}

fn mtu_bytes(code: u32) -> u32 {
    128 << code
}

fn pick_mtu(device: &str, wanted: Option<u32>, active: u32) -> Result<u32, RdmaError> {
    let active = active.clamp(ffi::MTU_MIN, ffi::MTU_MAX);
    let Some(mtu) = wanted else { return Ok(active) };
    let code = (ffi::MTU_MIN..=active).find(|&code| mtu_bytes(code) == mtu);
    code.ok_or_else(|| RdmaError::Mtu {
        device: device.to_owned(),
        mtu,
        active: mtu_bytes(active),
    })
}

/// Memory that a device knows, until this is dropped.
pub(crate) struct MemoryRegion {
    device: Arc<Device>,
    handle: NonNull<ffi::MemoryRegionHandle>,
}

// SAFETY: the handle is only read, and freed once; the library allows that from any thread.
unsafe impl Send for MemoryRegion {}
// SAFETY: as above.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    /// Registers memory.
    ///
    /// # Safety
    /// The memory must stay allocated until the region is dropped, and nobody may rely on it staying the same
    /// while a verb that writes it is under way.
    pub(crate) unsafe fn new(
        device: &Arc<Device>,
        memory: *mut u8,
        bytes: u64,
        access: c_int,
    ) -> Result<Self, RdmaError> {
        // SAFETY: the domain is there, and the memory by the caller's word.
        let handle = unsafe { (device.library.reg_mr)(device.domain(), memory.cast(), bytes as usize, access) };
        match NonNull::new(handle) {
            Some(handle) => Ok(Self {
                device: device.clone(),
                handle,
            }),
            None => Err(RdmaError::Registration {
                device: device.facts.name.clone(),
                bytes,
                source: io::Error::last_os_error(),
            }),
        }
    }

    /// Registers memory for verbs of others.
    ///
    /// # Safety
    /// As [`MemoryRegion::new`].
    pub(super) unsafe fn for_others(device: &Arc<Device>, memory: *mut u8, bytes: u64) -> Result<Self, RdmaError> {
        let access =
            ffi::ACCESS_LOCAL_WRITE | ffi::ACCESS_REMOTE_READ | ffi::ACCESS_REMOTE_WRITE | ffi::ACCESS_REMOTE_ATOMIC;
        // SAFETY: by the caller's word.
        unsafe { Self::new(device, memory, bytes, access) }
    }

    /// Whether this device knows the memory.
    pub(crate) fn is_of(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    /// What names the memory in work requests of this machine.
    pub(crate) fn local_key(&self) -> u32 {
        // SAFETY: the handle is there until we are dropped, and nobody changes it.
        unsafe { self.handle.as_ref() }.lkey
    }

    /// What names the memory in work requests of others.
    pub(super) fn remote_key(&self) -> u32 {
        // SAFETY: as in `local_key`.
        unsafe { self.handle.as_ref() }.rkey
    }

    /// The address under which others name its first byte.
    pub(super) fn remote_base(&self) -> u64 {
        // SAFETY: as in `local_key`.
        unsafe { self.handle.as_ref() }.addr as u64
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // SAFETY: registered once, and no work request names it any more: whoever posts keeps the memory until then.
        let code = unsafe { (self.device.library.dereg_mr)(self.handle.as_ptr()) };
        debug_assert_eq!(code, 0, "nothing holds the region");
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryRegion")
            .field("device", &self.device.facts.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u8, first: u8, is_roce_v2: bool) -> GidEntry {
        let mut gid = [0; 16];
        gid[..2].copy_from_slice(&[first, 0x80]);
        GidEntry {
            index,
            gid: Gid(gid),
            is_roce_v2,
        }
    }

    #[test]
    fn a_routable_address_of_version_2_comes_first() {
        let table = [
            entry(0, 0xfe, false),
            entry(1, 0xfe, true),
            entry(2, 0, false),
            entry(3, 0, true),
        ];
        assert_eq!(usual_gid(&table, true), Some(table[3]));
        assert_eq!(usual_gid(&table[..3], true), Some(table[1]));
        assert_eq!(usual_gid(&table[..1], true), None, "RoCE v1 is not spoken");
        assert_eq!(usual_gid(&table, false), Some(table[0]), "InfiniBand has one");
    }

    #[test]
    fn an_mtu_is_a_power_of_two_that_the_port_has() {
        assert_eq!(pick_mtu("x", None, 3).expect("what is active"), 3);
        assert_eq!(pick_mtu("x", Some(512), 3).expect("less than what is active"), 2);
        for wrong in [0, 128, 513, 2048] {
            let error = pick_mtu("x", Some(wrong), 3).expect_err("none, or too much");
            assert!(error.to_string().contains("at most 1024"), "{error}");
        }
    }
}
