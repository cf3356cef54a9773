import java.net.URI;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import redis.clients.jedis.AbstractPipeline;
import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.resps.ScanResult;

/** Jedis against a gateway: what programs do with it. The argument is the server's URL. */
public final class Jedis {
    private static void check(String what, boolean holds) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    private static void values(RedisClient client) {
        check("flush", client.flushAll().equals("OK"));
        byte[] binary = new byte[256];
        for (int index = 0; index < binary.length; index++) {
            binary[index] = (byte) index;
        }
        byte[] key = {0, 'k', '\r', '\n'};
        check("set", client.set(key, binary).equals("OK"));
        check("get", Arrays.equals(client.get(key), binary));
        check("none", client.get("none") == null);
        check("nx", client.set("a", "1", SetParams.setParams().nx()).equals("OK"));
        check("nx", client.set("a", "2", SetParams.setParams().nx()) == null);
        check("incr", client.incrBy("n", 40) == 40);
        check("float", client.incrByFloat("f", 0.5) == 0.5);
        check("mset", client.mset("a", "1", "b", "2").equals("OK"));
        check("mget", client.mget("a", "none", "b").equals(Arrays.asList("1", null, "2")));
        byte[] large = new byte[3_000_000];
        Arrays.fill(large, (byte) 'v');
        client.set("large".getBytes(), large);
        check("large", Arrays.equals(client.getDel("large".getBytes()), large));
        try {
            client.xlen("l");
            throw new AssertionError("XLEN was not refused");
        } catch (JedisDataException error) {
            check("unknown", error.getMessage().contains("unknown command"));
        }
    }

    private static void expiry(RedisClient client) {
        client.set("e", "v", SetParams.setParams().px(60_000));
        long left = client.pttl("e");
        check("pttl", left > 0 && left <= 60_000);
        check("persist", client.persist("e") == 1 && client.ttl("e") == -1);
        check("expire", client.expire("e", 100) == 1);
    }

    private static void keys(RedisClient client) {
        client.flushAll();
        try (AbstractPipeline pipeline = client.pipelined()) {
            Response<String> last = null;
            for (int number = 0; number < 1000; number++) {
                last = pipeline.set("key:" + number, "v");
            }
            pipeline.sync();
            check("pipeline", last.get().equals("OK"));
        }
        Set<String> found = new HashSet<>();
        String cursor = ScanParams.SCAN_POINTER_START;
        do {
            ScanResult<String> page = client.scan(cursor, new ScanParams().match("key:*").count(100));
            found.addAll(page.getResult());
            cursor = page.getCursor();
        } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
        check("scan", found.size() == 1000 && client.dbSize() == 1000);
    }

    private static void transactions(RedisClient client) {
        try (AbstractTransaction transaction = client.multi()) {
            transaction.set("t", "1");
            Response<Long> count = transaction.incr("t");
            check("exec", transaction.exec().equals(List.of("OK", 2L)) && count.get() == 2);
        }
        try (AbstractTransaction transaction = client.transaction(false)) {
            transaction.watch("t");
            client.set("t", "another");
            transaction.multi();
            transaction.set("t", "ours");
            check("watch", transaction.exec() == null && client.get("t").equals("another"));
        }
    }

    private static void pool(RedisClient client) throws InterruptedException {
        var threads = Executors.newFixedThreadPool(8);
        for (int each = 0; each < 50; each++) {
            threads.execute(() -> client.incr("pool"));
        }
        threads.shutdown();
        while (!threads.awaitTermination(1, TimeUnit.HOURS)) { }
        check("pool", client.get("pool").equals("50"));
    }

    /** The server is killed and started again on the same segment. What Jedis had open in its pool is broken then, once for each connection. */
    private static void restart(RedisClient client) throws Exception {
        client.set("kept", "v");
        System.out.println("restart");
        check("line", System.in.read() == '\n');
        for (int broken = 0; ; broken++) {
            try {
                check("kept", client.get("kept").equals("v"));
                return;
            } catch (JedisConnectionException error) {
                check("connects anew", broken < 8);
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        URI address = URI.create(arguments[0]);
        for (RedisProtocol protocol : List.of(RedisProtocol.RESP2, RedisProtocol.RESP3)) {
            var settings = DefaultJedisClientConfig.builder().protocol(protocol).clientName("tests").build();
            try (RedisClient client = RedisClient.builder()
                    .hostAndPort(new HostAndPort(address.getHost(), address.getPort())).clientConfig(settings).build()) {
                values(client);
                expiry(client);
                keys(client);
                transactions(client);
                pool(client);
                restart(client);
            }
        }
        System.out.println("done");
    }
}
