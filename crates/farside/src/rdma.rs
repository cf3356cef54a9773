//! `farside rdma-check`, and opening the device that flags choose.

use std::net::TcpListener;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use farside_cli::DeviceArgs;
use farside_fabric::rdma::{Device, Export, NativeAtomics, RdmaError, device_names};
use farside_fabric::shm::Segment;
use farside_fabric::tcp::{ConnectOptions, NodeLocation, Server, ServerOptions, connect};
use farside_fabric::{FabricError, MaskedAdd, NodeId, OpContext, RemoteAddr, Slice, host};

use farside_cli::{Failure, chain};

/// What is native, what is made of it, and what is missing.
fn verbs(native: NativeAtomics) -> [(&'static str, &'static str); 5] {
    let or_steps = |is_native| {
        if is_native {
            "native"
        } else {
            "emulated by compare-and-swaps"
        }
    };
    let wide = if native.wide {
        "native"
    } else {
        "missing: the locks shiftlock and shiftlock-mutex are refused"
    };
    [
        ("READ, WRITE, compare-and-swap and fetch-and-add of 8 bytes", "native"),
        ("masked compare-and-swap of 8 bytes", or_steps(native.masked_swap)),
        ("masked fetch-and-add of 8 bytes", or_steps(native.masked_add)),
        ("WRITE of a word that atomics share", or_steps(native.masked_swap)),
        ("atomics of 16 bytes", wide),
    ]
}

/// Opens the device that was chosen.
pub(crate) fn open(args: &DeviceArgs) -> Result<Arc<Device>, Failure> {
    Device::open(&args.options()).map_err(|error| Failure::usage(chain(&error)))
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn run(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let names = device_names().map_err(|error| Failure::runtime(chain(&error)))?;
    if names.is_empty() {
        return Err(Failure::runtime(RdmaError::NoDevice));
    }
    let wanted = args.device.options();
    let mut is_usable = false;
    for name in names {
        if wanted.name.as_ref().is_some_and(|wanted| *wanted != name) {
            continue;
        }
        let mut options = wanted.clone();
        options.name = Some(name.clone());
        match Device::open(&options) {
            Ok(device) => is_usable |= report(&device),
            Err(error) => println!("{name}: {}", chain(&error)),
        }
    }
    println!("locked memory: {}", locked_memory());
    if !is_usable {
        // Says which names there are, or what is wrong with the one.
        Device::open(&wanted).map_err(|error| Failure::runtime(chain(&error)))?;
    }
    Ok(if is_usable {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Says what a device is and can do, and tries it. Returns whether it can be used.
fn report(device: &Arc<Device>) -> bool {
    let facts = device.facts();
    let kind = if facts.is_infiniband { "InfiniBand" } else { "RoCE v2" };
    println!(
        "{} port {}: {kind}, GID {} {}, MTU {}, firmware {}",
        facts.name, facts.port, facts.gid_index, facts.gid, facts.mtu, facts.firmware
    );
    let tried = try_verbs(device);
    match &tried {
        Ok(native) => {
            println!("  every verb was tried, from this device to itself: all as they should be");
            for (verb, how) in verbs(*native) {
                println!("  {verb}: {how}");
            }
        }
        Err(reason) => println!("  the verbs were tried, from this device to itself: {reason}"),
    }
    tried.is_ok()
}

fn locked_memory() -> String {
    use rustix::process::{Resource, getrlimit};
    match getrlimit(Resource::Memlock).current {
        None => "no limit".to_owned(),
        Some(bytes) => {
            format!("at most {bytes} bytes (ulimit -l): nodes and clients need a limit above the size of their memory")
        }
    }
}

/// Executes each kind of verb through the device, on memory of this process. Returns which atomics are native.
fn try_verbs(device: &Arc<Device>) -> Result<NativeAtomics, String> {
    let segment = Segment::anonymous(1 << 16).map_err(|error| chain(&error))?;
    let export = Export::new(&segment, device).map_err(|error| chain(&error))?;
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let address = listener.local_addr().map_err(|error| error.to_string())?.to_string();
    let server = Server::new(segment, ServerOptions::default()).with_rdma(export);
    let handle = server.handle();
    let thread = std::thread::spawn(move || server.run(listener));
    let tried = host::on_this_thread(async {
        let node = vec![NodeLocation::Rdma(address, device.clone())];
        let endpoint = connect(node, ConnectOptions::default()).await;
        let endpoint = endpoint.map_err(|error| chain(&error))?;
        let mut cx = OpContext::new(endpoint.clone());
        cx.set_deadline(endpoint.deadline_in(10_000_000_000));
        match sequence(&mut cx).await {
            Ok(None) => {
                let native = endpoint
                    .remote()
                    .and_then(|remote| remote.native_atomics(NodeId::new(0)));
                Ok(native.unwrap_or_default())
            }
            Ok(Some(verb)) => Err(format!("{verb} gave a wrong result")),
            Err(error) => Err(error.to_string()),
        }
    });
    handle.stop();
    let served = thread.join().map_err(|_| "the node panicked".to_owned())?;
    served.map_err(|error| error.to_string())?;
    tried.map_err(|error| error.to_string())?
}

/// The first verb that brings something wrong.
async fn sequence(cx: &mut OpContext) -> Result<Option<&'static str>, FabricError> {
    let at = |offset| RemoteAddr::new(NodeId::new(0), offset);
    let pattern: Vec<u8> = (0..4096).map(|index| (index % 251) as u8).collect();
    cx.buffer_mut()[..4096].copy_from_slice(&pattern);
    cx.write(Slice::first(4096), at(4096)).await?;
    if cx.read(at(4096), Slice::new(8192, 4096)).await? != pattern {
        return Ok(Some("READ or WRITE"));
    }
    cx.write_word(at(64), 5).await?;
    if cx.compare_swap(at(64), 5, 7).await? != 5 || cx.read_word(at(64)).await? != 7 {
        return Ok(Some("compare-and-swap"));
    }
    if cx.fetch_add(at(64), 2).await? != 7 || cx.read_word(at(64)).await? != 9 {
        return Ok(Some("fetch-and-add"));
    }
    let add = MaskedAdd {
        add: 0xff,
        boundary: 0x80,
    };
    if cx.masked_fetch_add(at(64), add).await? != 9 || cx.read_word(at(64)).await? != 8 {
        return Ok(Some("a masked atomic"));
    }
    Ok(None)
}
