//! Objects in a store that is a table in memory.

use std::io::Read as _;
use std::sync::Arc;

use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt as _};

use super::*;

fn object(store: &Arc<dyn ObjectStore>, name: &str) -> Object {
    let path = Path::parse(name).expect("a name");
    Object::within(&format!("s3://bucket/{name}"), Arc::clone(store), path).expect("an object")
}

fn store() -> Arc<dyn ObjectStore> {
    Arc::new(InMemory::new())
}

fn read(store: &Arc<dyn ObjectStore>, name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut reader = object(store, name).read().expect("it is there");
    reader.read_to_end(&mut bytes).expect("nobody changes it");
    bytes
}

/// Bytes that tell their place.
fn bytes(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    for (place, word) in bytes.chunks_mut(8).enumerate() {
        let value = (place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        word.copy_from_slice(&value[..word.len()]);
    }
    bytes
}

#[test]
fn what_is_written_is_read_at_every_length() {
    let store = store();
    for length in [0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 6 * PART_BYTES + 7] {
        let expected = bytes(length);
        let mut upload = object(&store, "a/name").write().expect("a name");
        // In pieces that do not fit parts.
        for piece in expected.chunks(1_000_003) {
            upload.write(piece).expect("room");
        }
        upload.finish().expect("it is there");
        assert!(read(&store, "a/name") == expected, "{length} bytes");
    }
}

#[test]
fn what_is_not_finished_is_not_there() {
    let store = store();
    for length in [0, 100, PART_BYTES, 3 * PART_BYTES] {
        let mut upload = object(&store, "half").write().expect("a name");
        upload.write(&bytes(length)).expect("room");
        drop(upload);
        assert_eq!(object(&store, "").list().expect("a list"), [""; 0], "{length} bytes");
    }
}

#[test]
fn folders_are_listed_and_objects_removed() {
    let store = store();
    for name in ["backups/b", "backups/a", "backups/old/c", "other"] {
        object(&store, name)
            .write()
            .expect("a name")
            .finish()
            .expect("it is there");
    }
    let mut names = object(&store, "backups").list().expect("a list");
    names.sort();
    assert_eq!(names, ["a", "b"]);
    object(&store, "backups/a").remove().expect("it is there");
    assert_eq!(object(&store, "backups").list().expect("a list"), ["b"]);
    let missing = object(&store, "backups/a").read().expect_err("it is gone");
    assert_eq!(
        missing.to_string(),
        "s3://bucket/backups/a: it is not there, or its bucket is not"
    );
}

#[test]
fn an_object_that_is_replaced_is_not_read_as_half_of_each() {
    let store = store();
    let path = Path::parse("name").expect("a name");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let put = |length| {
        let put = store.put(&path, bytes(length).into());
        runtime.block_on(put).expect("room");
    };
    // More than is fetched ahead.
    put(10 * PART_BYTES);
    let mut reader = object(&store, "name").read().expect("it is there");
    let mut first = [0; 8];
    reader.read_exact(&mut first).expect("bytes");
    put(10 * PART_BYTES + 1);
    let mut rest = Vec::new();
    let error = reader.read_to_end(&mut rest).expect_err("it has changed");
    assert_eq!(error.to_string(), "s3://bucket/name: it has changed while it was read");
}

#[test]
fn a_server_is_an_address_of_the_web() {
    let check = |server: &str| check_server("s3://bucket/name", Some(server.to_owned()));
    for server in [
        "http://localhost:9000",
        "https://storage.example",
        "http://[::1]:9000/path",
    ] {
        assert_eq!(check(server), Ok(()), "{server}");
    }
    for server in ["", "nonsense", "localhost:9000", "ftp://host", "http://", "https:// x"] {
        let error = check(server).expect_err(server).to_string();
        assert!(error.contains(&format!("`{server}`: write https://")), "{error}");
    }
}

#[test]
fn wrong_addresses_say_what_is_wrong() {
    for (address, reason) in [
        ("s3:///name", "no bucket"),
        ("ftp://host/name", "no store has addresses"),
        ("s3://bucket/a//b", "empty"),
    ] {
        let error = Object::open(address).expect_err(address).to_string();
        assert!(error.starts_with(address) && error.contains(reason), "{error}");
    }
    let unnamed = Object::open("s3://bucket").expect("the bucket's folder");
    assert!(unnamed.write().is_err());
}
