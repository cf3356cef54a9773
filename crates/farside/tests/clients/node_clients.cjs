// node-redis, ioredis and redlock against a gateway: what programs do with them.
//
// usage: node_clients.cjs URL [CA-FILE]

const assert = require("node:assert/strict");
const fs = require("node:fs");
const redis = require("redis");
const Redis = require("ioredis");
const { default: Redlock, ResourceLockedError } = require("redlock");

const [url, caFile] = process.argv.slice(2);
const ca = caFile && fs.readFileSync(caFile);

process.on("warning", (warning) => {
  throw warning;
});

async function nodeRedis() {
  const client = redis.createClient({ url, name: "tests", socket: ca ? { tls: true, ca } : {} });
  client.on("error", (error) => {
    throw error;
  });
  await client.connect();
  await client.flushAll();
  assert.equal(await client.set("a", "1"), "OK");
  assert.equal(await client.set("a", "2", { NX: true, PX: 5000 }), null);
  assert.equal(await client.incr("a"), 2);
  assert.equal(await client.get("none"), null);
  assert.deepEqual(await client.mGet(["a", "none"]), ["2", null]);
  const binary = Buffer.from([...Array(256).keys()]);
  await client.set("binary", binary);
  assert.deepEqual(await client.get(redis.commandOptions({ returnBuffers: true }), "binary"), binary);

  const keys = [...Array(500).keys()].map((number) => `key:${number}`);
  await Promise.all(keys.map((key) => client.setEx(key, 100, key)));
  const seen = [];
  for await (const key of client.scanIterator({ MATCH: "key:*", COUNT: 50 })) seen.push(key);
  assert.deepEqual(seen.sort(), [...keys].sort());
  assert.deepEqual(await client.multi().get("a").ttl("key:1").execAsPipeline(), ["2", await client.ttl("key:1")]);
  assert.deepEqual(await client.multi().incr("a").get("a").decr("a").exec(), [3, "3", 2]);
  await client.executeIsolated(async (own) => {
    await own.watch("a");
    await client.incr("a");
    await assert.rejects(own.multi().set("a", "0").exec(), redis.WatchError);
  });
  assert.equal(await client.decr("a"), 2);

  const info = await client.clientInfo();
  assert.equal(info.name, "tests");
  assert.equal((await client.configGet("maxmemory-policy"))["maxmemory-policy"], "noeviction");
  assert.equal(await client.copy("a", "b"), true);
  assert.equal(await client.rename("b", "c"), "OK");
  assert.equal(await client.expire("c", 0), true);
  assert.equal(await client.exists("c"), 0);
  await assert.rejects(client.xLen("list"), /unknown command/);
  await assert.rejects(client.eval("return 1"), /not supported/);
  await client.quit();
}

async function redlock() {
  const options = ca ? { tls: { ca } } : {};
  const clients = [new Redis(url, options), new Redis(url, options)];
  // Both clients reach one store, so a lock is asked for through one of them.
  const locks = clients.map((client) => new Redlock([client], { retryCount: 0 }));
  const patient = new Redlock([clients[1]], { retryCount: -1, retryDelay: 2, retryJitter: 2 });
  await clients[0].flushall();

  let lock = await locks[0].acquire(["a", "b"], 20_000);
  assert.equal(await clients[0].exists("a", "b"), 2);
  await assert.rejects(locks[1].acquire(["b", "c"], 20_000));
  // Who did not get all has none.
  assert.equal(await clients[0].exists("c"), 0);
  lock = await lock.extend(60_000);
  assert.ok((await clients[0].pttl("b")) > 50_000);
  await lock.release();
  assert.equal(await clients[0].exists("a", "b"), 0);
  await assert.rejects(lock.extend(1000));

  await clients[0].set("count", 0);
  const count = async (locks) => {
    for (let round = 0; round < 10; round += 1) {
      await locks.using(["count-lock"], 30_000, async () => {
        await clients[1].set("count", Number(await clients[1].get("count")) + 1);
      });
    }
  };
  await Promise.all([count(patient), count(patient), count(patient)]);
  assert.equal(await clients[0].get("count"), "30");
  assert.equal(typeof ResourceLockedError, "function");
  await Promise.all(clients.map((client) => client.quit()));
}

nodeRedis()
  .then(redlock)
  .then(() => console.log("node-redis, ioredis, redlock: done"))
  .catch((error) => {
    console.error(error);
    process.exit(1);
  });
