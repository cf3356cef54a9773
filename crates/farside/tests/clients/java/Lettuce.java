import io.lettuce.core.ClientOptions;
import io.lettuce.core.KeyScanCursor;
import io.lettuce.core.KeyValue;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.SetArgs;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.protocol.ProtocolVersion;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/** Lettuce against a gateway: what programs do with it. The argument is the server's URL. */
public final class Lettuce {
    private static void check(String what, boolean holds) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    private static void values(RedisClient client, RedisCommands<String, String> commands) {
        check("flush", commands.flushall().equals("OK"));
        byte[] binary = new byte[256];
        for (int index = 0; index < binary.length; index++) {
            binary[index] = (byte) index;
        }
        byte[] key = {0, 'k', '\r', '\n'};
        byte[] large = new byte[3_000_000];
        Arrays.fill(large, (byte) 'v');
        try (StatefulRedisConnection<byte[], byte[]> bytes = client.connect(ByteArrayCodec.INSTANCE)) {
            check("set", bytes.sync().set(key, binary).equals("OK"));
            check("get", Arrays.equals(bytes.sync().get(key), binary));
            check("large", bytes.sync().set(key, large).equals("OK"));
            check("large", Arrays.equals(bytes.sync().getdel(key), large));
        }
        check("none", commands.get("none") == null);
        check("nx", commands.set("a", "1", SetArgs.Builder.nx()).equals("OK"));
        check("nx", commands.set("a", "2", SetArgs.Builder.nx()) == null);
        check("incr", commands.incrby("n", 40) == 40 && commands.incrbyfloat("f", 0.5) == 0.5);
        check("mget", commands.mget("a", "none").equals(List.of(KeyValue.just("a", "1"), KeyValue.empty("none"))));
        try {
            commands.xlen("l");
            throw new AssertionError("XLEN was not refused");
        } catch (RedisCommandExecutionException error) {
            check("unknown", error.getMessage().contains("unknown command"));
        }
    }

    private static void expiry(RedisCommands<String, String> commands) {
        commands.set("e", "v", SetArgs.Builder.px(60_000));
        long left = commands.pttl("e");
        check("pttl", left > 0 && left <= 60_000);
        check("persist", commands.persist("e") && commands.ttl("e") == -1);
    }

    private static void keys(StatefulRedisConnection<String, String> connection) throws Exception {
        RedisCommands<String, String> commands = connection.sync();
        commands.flushall();
        // Without waiting: Lettuce sends what has piled up in one burst.
        List<RedisFuture<String>> stored = new ArrayList<>();
        for (int number = 0; number < 1000; number++) {
            stored.add(connection.async().set("key:" + number, "v"));
        }
        for (RedisFuture<String> each : stored) {
            check("pipeline", each.get().equals("OK"));
        }
        Set<String> found = new HashSet<>();
        ScanArgs pattern = ScanArgs.Builder.matches("key:*").limit(100);
        KeyScanCursor<String> page = commands.scan(pattern);
        found.addAll(page.getKeys());
        while (!page.isFinished()) {
            page = commands.scan(page, pattern);
            found.addAll(page.getKeys());
        }
        check("scan", found.size() == 1000 && commands.dbsize() == 1000);
    }

    private static void transactions(RedisClient client, RedisCommands<String, String> commands) {
        commands.multi();
        commands.set("t", "1");
        commands.incr("t");
        var done = commands.exec();
        check("exec", done.get(0).equals("OK") && done.get(1).equals(2L));
        commands.watch("t");
        try (var other = client.connect()) {
            other.sync().set("t", "another");
        }
        commands.multi();
        commands.set("t", "ours");
        check("watch", commands.exec().wasDiscarded() && commands.get("t").equals("another"));
    }

    /** The server is killed and started again on the same segment; Lettuce connects anew by itself, and sends again what waits. */
    private static void restart(RedisCommands<String, String> commands) throws Exception {
        commands.set("kept", "v");
        System.out.println("restart");
        check("line", System.in.read() == '\n');
        check("kept", commands.get("kept").equals("v"));
    }

    public static void main(String[] arguments) throws Exception {
        RedisClient client = RedisClient.create(RedisURI.create(arguments[0]));
        for (ProtocolVersion protocol : List.of(ProtocolVersion.RESP2, ProtocolVersion.RESP3)) {
            client.setOptions(ClientOptions.builder().protocolVersion(protocol).build());
            try (StatefulRedisConnection<String, String> connection = client.connect()) {
                values(client, connection.sync());
                expiry(connection.sync());
                keys(connection);
                transactions(client, connection.sync());
                restart(connection.sync());
            }
        }
        client.shutdown();
        System.out.println("done");
    }
}
