//! redis-rs against a gateway: what programs do with it. The argument is the server's URL.

use std::collections::BTreeSet;
use std::io::BufRead as _;

use redis::{Client, Commands as _, Connection, ExistenceCheck, RedisResult, SetExpiry, SetOptions};

fn values(connection: &mut Connection) -> RedisResult<()> {
    redis::cmd("FLUSHALL").exec(connection)?;
    let binary: Vec<u8> = (0..=255).collect();
    let _: () = connection.set(b"\0k\r\n", &binary)?;
    assert_eq!(connection.get::<_, Vec<u8>>(b"\0k\r\n")?, binary);
    assert_eq!(connection.get::<_, Option<String>>("none")?, None);
    let once = SetOptions::default().conditional_set(ExistenceCheck::NX);
    assert!(
        connection
            .set_options::<_, _, Option<String>>("a", 1, once.clone())?
            .is_some()
    );
    assert!(connection.set_options::<_, _, Option<String>>("a", 2, once)?.is_none());
    assert_eq!(connection.incr::<_, _, i64>("n", 40)?, 40);
    assert_eq!(connection.incr::<_, _, f64>("f", 0.5)?, 0.5);
    assert_eq!(
        connection.mget::<_, Vec<Option<String>>>(&["a", "none"])?,
        [Some("1".to_owned()), None]
    );
    let large = vec![b'v'; 3_000_000];
    let _: () = connection.set("large", &large)?;
    assert_eq!(connection.get_del::<_, Vec<u8>>("large")?, large);
    let unknown = redis::cmd("XLEN").arg("l").query::<i64>(connection).expect_err("XLEN is refused");
    assert!(unknown.to_string().contains("unknown command"), "{unknown}");
    Ok(())
}

fn expiry(connection: &mut Connection) -> RedisResult<()> {
    let options = SetOptions::default().with_expiration(SetExpiry::PX(60_000));
    let _: () = connection.set_options("e", "v", options)?;
    assert!((1..=60_000).contains(&connection.pttl::<_, i64>("e")?));
    assert!(connection.persist::<_, bool>("e")?);
    assert_eq!(connection.ttl::<_, i64>("e")?, -1);
    Ok(())
}

fn keys(connection: &mut Connection) -> RedisResult<()> {
    redis::cmd("FLUSHALL").exec(connection)?;
    let mut pipeline = redis::pipe();
    for number in 0..1000 {
        pipeline.set(format!("key:{number}"), number).ignore();
    }
    pipeline.exec(connection)?;
    let found: RedisResult<BTreeSet<String>> = connection.scan_match("key:*")?.collect();
    assert_eq!(found?.len(), 1000);
    assert_eq!(redis::cmd("DBSIZE").query::<usize>(connection)?, 1000);
    Ok(())
}

fn transactions(connection: &mut Connection, client: &Client) -> RedisResult<()> {
    let (count,): (i64,) = redis::pipe()
        .atomic()
        .set("t", 1)
        .ignore()
        .incr("t", 1)
        .query(connection)?;
    assert_eq!(count, 2);
    let mut tries = 0;
    // Somebody else is quicker the first time.
    let (count,): (i64,) = redis::transaction(connection, &["t"], |connection, pipeline| {
        tries += 1;
        let before: i64 = connection.get("t")?;
        if tries == 1 {
            let _: () = client.get_connection()?.set("t", 10)?;
        }
        pipeline.set("t", before + 1).ignore().get("t").query(connection)
    })?;
    assert_eq!((count, tries), (11, 2));
    Ok(())
}

fn locks(connection: &mut Connection) -> RedisResult<()> {
    let release = redis::Script::new(
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
    );
    let _: () = connection.set("lock", "token")?;
    assert_eq!(release.key("lock").arg("another").invoke::<i64>(connection)?, 0);
    assert_eq!(release.key("lock").arg("token").invoke::<i64>(connection)?, 1);
    Ok(())
}

fn main() -> RedisResult<()> {
    let address = std::env::args().nth(1).expect("the argument is the server's URL");
    for protocol in ["resp2", "resp3"] {
        let client = Client::open(format!("{address}?protocol={protocol}"))?;
        let mut connection = client.get_connection()?;
        values(&mut connection)?;
        expiry(&mut connection)?;
        keys(&mut connection)?;
        transactions(&mut connection, &client)?;
        locks(&mut connection)?;
        let _: () = connection.set("kept", "v")?;
        // The server is killed and started again on the same segment.
        println!("restart");
        std::io::stdin().lock().read_line(&mut String::new())?;
        assert!(connection.get::<_, String>("kept").is_err(), "the connection is gone");
        assert_eq!(client.get_connection()?.get::<_, String>("kept")?, "v");
    }
    println!("done");
    Ok(())
}
